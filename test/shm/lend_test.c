/* lend_test.c - large messages by reference: out of a zone that the peer has mapped, whole and in order
 * with all others; given back when they are; and nothing that a liar lends or names is believed
 *
 * Two queues of this process do most of it, which map each other's zones as two processes do.
 */

#include "two.h"

#include "../unit/held.h"

#include "drv/shm/lend.h"
#include "drv/shm/meet.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { DATA = 600 << 10, BUFS = 128, DEPTH = 16 };

/* ---- two queues of this process ---- */

static struct vbn_queue *a, *b;

static struct vbn_queue_conf conf_of(struct vbn_pool *pool)
{
	return (struct vbn_queue_conf){.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.rx_pool = pool,
		.remote_access = VBN_REMOTE_WRITE};
}

static void meet(const struct vbn_queue_conf *conf)
{
	struct vbn_address at_a, at_b;

	assert_int_equal(vbn_queue_create(two.worker, two.port, conf, &a), 0);
	assert_int_equal(vbn_queue_create(two.worker, two.port, conf, &b), 0);
	vbn_queue_address(a, &at_a);
	vbn_queue_address(b, &at_b);
	assert_int_equal(vbn_queue_connect(a, &at_b), 0);
	assert_int_equal(vbn_queue_connect(b, &at_a), 0);
}

static void part(void)
{
	vbn_queue_destroy(a);
	vbn_queue_destroy(b);
	a = b = NULL;
}

static const struct shm_tx *tx_of(const struct vbn_queue *queue)
{
	return &shm_queue(queue)->tx;
}

static void expect_mode(const struct vbn_queue *queue, const char *effective, const char *why)
{
	struct vbn_mode modes[32];
	int n = vbn_queue_modes(queue, modes, 32);

	for (int i = 0; i < n; i++) {
		if (strcmp(modes[i].name, "by_reference") != 0)
			continue;
		assert_string_equal(modes[i].effective, effective);
		assert_has(modes[i].why, why);
		return;
	}
	unit_fail("there is no such mode");
}

/* A pattern that has neither the period of a page nor that of a piece. */
static uint8_t byte_of(uint64_t number, uint64_t i)
{
	return (uint8_t)(number * 131 + i * 7 + i / 251 * 3);
}

static void fill_buf(struct vbn_buf *buf, uint64_t number, uint64_t from)
{
	for (uint32_t i = 0; i < buf->len; i++)
		buf->data[i] = byte_of(number, from + i);
}

static void check(const uint8_t *data, uint64_t len, uint64_t number)
{
	for (uint64_t i = 0; i < len; i++)
		if (data[i] != byte_of(number, i))
			unit_fail("message %llu of %llu bytes: byte %llu is %u and not %u",
				(unsigned long long)number, (unsigned long long)len,
				(unsigned long long)i, data[i], byte_of(number, i));
}

static struct vbn_buf *message(uint64_t number, uint32_t len, int segments)
{
	struct vbn_buf *head = NULL;
	uint32_t done = 0;

	for (int i = 0; i < segments; i++) {
		struct vbn_buf *buf;

		assert_int_equal(vbn_buf_alloc(two.pool, &buf, 1), 1);
		buf->len = i + 1 == segments ? len - done : len / (uint32_t)segments;
		fill_buf(buf, number, done);
		done += buf->len;
		if (head)
			vbn_buf_append(head, buf);
		else
			head = buf;
	}
	return head;
}

static struct vbn_event next_event(void)
{
	const uint64_t since = clock_ns();
	struct vbn_event event;

	while (!vbn_poll(two.worker, &event, 1))
		two_patience(since);
	return event;
}

static void expect_message(uint64_t number, uint32_t len)
{
	struct vbn_event event = next_event();

	assert_ptr_equal(event.queue, b);
	assert_int_equal(event.op, VBN_OP_RECV);
	assert_int_equal(event.len, len);
	check(event.buf->data, len, number);
	vbn_buf_free(&event.buf, 1);
}

static void until_quiet(void)
{
	const uint64_t since = clock_ns();
	struct vbn_event event;

	while (vbn_queue_outstanding(a)) {
		assert_int_equal(vbn_poll(two.worker, &event, 1), 0);
		two_patience(since);
	}
}

static const uint32_t lengths[] = {0, 1, 64, 2048, SHM_REF_MIN - 1, SHM_REF_MIN, SHM_REF_MIN + 1,
	8192, 9000, 65536, SHM_REF_PIECE - 1, SHM_REF_PIECE, SHM_REF_PIECE + 1, 2 * SHM_REF_PIECE,
	DATA};

static void test_lengths(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	uint64_t number = 0, large = 0;

	(void)state;
	meet(&conf);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (int segments = 1; segments <= 3; segments += 2) {
			struct vbn_buf *buf = message(number, lengths[i], segments);

			large += lengths[i] >= SHM_REF_MIN;
			assert_int_equal(vbn_send_one(a, buf), 1);
			vbn_flush(a);
			expect_message(number++, lengths[i]);
			until_quiet();
			assert_int_equal(tx_of(a)->by_reference, large);
		}
	}
	expect_mode(a, "4096 B and more", "copied once");
	part();
	assert_int_equal(vbn_pool_available(two.pool), BUFS);
}

/* What its sender wants back comes back when it has been received, and not before. */
static void test_returned(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	struct vbn_buf *buf;
	struct vbn_event event;

	(void)state;
	meet(&conf);
	for (uint32_t i = 0; i < 5; i++) {
		buf = message(i, 100000, 1);
		vbn_buf_set_cookie(buf, &two);
		assert_int_equal(vbn_send_imm(a, &buf, &(uint32_t){7 + i}, 1), 1);
		vbn_flush(a);
		assert_int_equal(vbn_queue_outstanding(a), 1);
		event = next_event();
		assert_ptr_equal(event.queue, b);
		assert_true(event.has_imm);
		assert_int_equal(event.imm, 7 + i);
		check(event.buf->data, 100000, i);
		vbn_buf_free(&event.buf, 1);
		event = next_event();
		assert_ptr_equal(event.queue, a);
		assert_ptr_equal(event.buf, buf);
		assert_ptr_equal(event.cookie, &two);
		assert_int_equal(event.status, VBN_OK);
		vbn_buf_free(&event.buf, 1);
	}
	assert_int_equal(tx_of(a)->by_reference, 5);
	part();
}

/* By the box, by the ring and by reference, in one order. */
static void test_order(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	unsigned int seed = 5;
	uint64_t sent = 0, received = 0, since = clock_ns();
	uint32_t expected[2 * DEPTH];

	(void)state;
	meet(&conf);
	while (received < 3000) {
		const uint32_t len = rand_r(&seed) % 4 ? (uint32_t)rand_r(&seed) % 200
						       : (uint32_t)rand_r(&seed) % 20000;
		struct vbn_event event;

		if (sent < 3000 && sent - received < 2 * DEPTH - 1) {
			struct vbn_buf *buf = message(sent, len, 1);

			expected[sent % ARRAY_SIZE(expected)] = len;
			if (vbn_send_one(a, buf) == 1)
				sent++;
			else
				vbn_buf_free(&buf, 1);
		}
		if (rand_r(&seed) % 3)
			vbn_flush(a);
		if (!vbn_poll(two.worker, &event, 1)) {
			two_patience(since);
			vbn_flush(a);
			continue;
		}
		assert_int_equal(event.len, expected[received % ARRAY_SIZE(expected)]);
		check(event.buf->data, event.len, received++);
		vbn_buf_free(&event.buf, 1);
	}
	assert_in_range(tx_of(a)->by_reference, 300, 1000);
	part();
}

static void test_writes(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	uint8_t *at = vbn_export_addr(two.exported);
	uint64_t large = 0;

	(void)state;
	meet(&conf);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct vbn_buf *buf = message(i, lengths[i], 3);
		const struct vbn_remote to = vbn_export_remote(two.exported, 64);
		struct vbn_event event;

		memset(at, 0xee, lengths[i] + 128);
		large += lengths[i] >= SHM_REF_MIN;
		vbn_buf_set_cookie(buf, &two);
		assert_int_equal(
			i % 2 ? vbn_write_one(a, buf, to) : vbn_write_imm_one(a, buf, to, 9), 1);
		vbn_flush(a);
		event = next_event();
		if (i % 2 == 0) {
			assert_int_equal(event.op, VBN_OP_RECV_WRITE);
			assert_int_equal(event.len, lengths[i]);
			assert_int_equal(event.imm, 9);
			vbn_buf_free(&event.buf, 1);
			event = next_event();
		}
		assert_int_equal(event.op, VBN_OP_WRITE);
		assert_int_equal(event.status, VBN_OK);
		vbn_buf_free(&event.buf, 1);
		check(at + 64, lengths[i], i);
		assert_int_equal(at[63], 0xee);
		assert_int_equal(at[64 + lengths[i]], 0xee);
	}
	assert_int_equal(tx_of(a)->by_reference, large);
	part();
}

/* What nobody wants to lend, or can, goes in pieces. */
static void test_without(void **state)
{
	struct vbn_queue_conf conf = conf_of(two.pool);
	struct vbn_pool *own;

	(void)state;
	conf.by_reference = VBN_OFF;
	meet(&conf);
	assert_int_equal(vbn_send_one(a, message(1, 300000, 1)), 1);
	vbn_flush(a);
	expect_message(1, 300000);
	assert_int_equal(tx_of(a)->by_reference, 0);
	expect_mode(a, "off", "asked for");
	part();
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 64, .data_size = 9000}, &own), 0);
	conf = conf_of(own);
	meet(&conf);
	expect_mode(a, "off", "memfd = ON makes it so");
	part();
	conf.by_reference = VBN_ON;
	unit_catch_log();
	assert_int_equal(vbn_queue_create(two.worker, two.port, &conf, &a), -ENOTSUP);
	assert_logged("make that with memfd = ON");
	/* one of the two pools is shared: what lies in the other one goes in pieces */
	conf = conf_of(two.pool);
	conf.tx_pool = own;
	meet(&conf);
	for (int i = 0; i < 2; i++) {
		struct vbn_buf *buf, *more;

		assert_int_equal(vbn_buf_alloc(own, &buf, 1), 1);
		buf->len = 9000;
		fill_buf(buf, 3, 0);
		more = message(3, 5000, 1);
		fill_buf(more, 3, 9000);
		if (i)
			vbn_buf_append(buf, more);
		else
			vbn_buf_free(&more, 1);
		assert_int_equal(vbn_send_one(a, buf), 1);
		vbn_flush(a);
		expect_message(3, i ? 14000 : 9000);
		assert_int_equal(tx_of(a)->by_reference, 0);
	}
	assert_int_equal(vbn_send_one(a, message(4, 9000, 1)), 1);
	vbn_flush(a);
	expect_message(4, 9000);
	until_quiet();
	assert_int_equal(tx_of(a)->by_reference, 1);
	part();
	vbn_pool_destroy(own);
}

/* Who closes before it has been received has its buf back, and no half of it is delivered. */
static void test_taken_back(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	struct vbn_buf *buf;
	struct vbn_event event;

	(void)state;
	meet(&conf);
	assert_int_equal(vbn_send_one(a, message(1, 100, 1)), 1);
	buf = message(2, 50000, 1);
	assert_int_equal(vbn_send_one(a, buf), 1);
	vbn_flush(a);
	vbn_queue_destroy(a);
	a = NULL;
	assert_int_equal(vbn_buf_alloc(two.pool, &buf, 1), 1);
	memset(buf->data, 0, 50000);
	expect_message(1, 100);
	event = next_event();
	assert_int_equal(event.op, VBN_OP_FAILED);
	assert_int_equal(event.status, VBN_REMOTE_ABORTED);
	assert_has(vbn_queue_error(b), "only half received");
	vbn_buf_free(&buf, 1);
	part();
	assert_int_equal(vbn_pool_available(two.pool), BUFS);
}

/* A zone that goes is let go of, and its place is the next one's. */
static void test_given_back(void **state)
{
	struct vbn_queue_conf conf = conf_of(two.pool);
	int segments;

	(void)state;
	meet(&conf);
	segments = two_segments();
	for (int i = 0; i < SHM_VIEWS + 3; i++) {
		struct vbn_zone *zone;
		const uint64_t since = clock_ns();
		int id;

		assert_int_equal(
			vbn_zone_create(
				&(struct vbn_zone_conf){.size = 1 << 20, .memfd = VBN_ON}, &zone),
			0);
		assert_int_equal(vbn_port_register(two.port, zone), 0);
		assert_int_not_equal(tx_of(a)->loans->of[zone->id].slot, 0);
		assert_int_equal(two_segments(), segments + 2); /* its owner's and the view */
		id = zone->id;
		vbn_zone_destroy(zone);
		assert_int_equal(tx_of(a)->loans->of[id].slot, 0);
		while (two_segments() != segments) {
			vbn_worker_poll(two.worker);
			two_patience(since);
		}
	}
	part();
}

/* ---- records of a liar ---- */

static void put_raw(enum shm_kind kind, const void *extra, uint32_t extra_size,
	const struct shm_ref *refs, uint32_t size)
{
	struct ring_writer *w = &shm_queue(a)->tx.ring;
	uint8_t *at = (uint8_t *)ring_word(w->ring, w->mask, w->pos);

	memcpy(at + SHM_WORD, extra, extra_size);
	memcpy(at + SHM_WORD + extra_size, refs, size);
	store_release((uint64_t *)(void *)at, record_header(kind, size));
}

static void expect_fault(void)
{
	struct vbn_event event = next_event();

	assert_ptr_equal(event.queue, b);
	assert_int_equal(event.op, VBN_OP_FAILED);
	assert_int_equal(event.status, VBN_BAD_RESPONSE);
}

static void test_lies(void **state)
{
	const struct vbn_queue_conf conf = conf_of(two.pool);
	const uint64_t size = two.pool->zone->size;
	const struct shm_ref lies[] = {
		{0, SHM_VIEWS, 5000},
		{0, UINT32_MAX, 5000},
		{0, SHM_VIEWS - 1, 5000}, /* a place where there is none */
		{size, 0, 5000},
		{size - 4999, 0, 5000},
		{size + 1, 0, 5000},
		{UINT64_MAX - 4999, 0, 5000},
		{UINT64_MAX, 0, 1},
		{0, 0, SHM_REF_PIECE + 1},
		{0, 0, UINT32_MAX},
		{0, 0, 4999}, /* not as long as was said */
		{0, 0, 5001},
		{0, 0, 0},
	};
	const struct shm_part part_of = {.total = 5000};
	struct shm_ref many[SHM_REFS + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		const bool is_length = i >= ARRAY_SIZE(lies) - 3;
		const struct shm_write write = {.addr = vbn_export_remote(two.exported, 0).addr,
			.rkey = vbn_export_remote(two.exported, 0).rkey};

		meet(&conf);
		put_raw(SHM_PART_REF, &part_of, sizeof(part_of), &lies[i], sizeof(lies[i]));
		if (is_length && lies[i].len == 4999)
			assert_int_equal(vbn_poll(two.worker, &(struct vbn_event){0}, 1), 0);
		else
			expect_fault();
		part();
		if (is_length && lies[i].len)
			continue;
		meet(&conf);
		put_raw(SHM_WRITE_REF, &write, sizeof(write), &lies[i], sizeof(lies[i]));
		expect_fault();
		part();
	}
	for (int i = 0; i <= SHM_REFS; i++)
		many[i] = (struct shm_ref){.offset = 0, .slot = 0, .len = 10};
	meet(&conf);
	put_raw(SHM_PART_REF, &part_of, sizeof(part_of), many, sizeof(many));
	expect_fault();
	part();
	for (uint32_t odd = 1; odd < 16; odd += 7) {
		meet(&conf);
		put_raw(SHM_PART_REF, &part_of, sizeof(part_of), many, 16 + odd);
		expect_fault();
		part();
	}
	meet(&conf);
	put_raw(SHM_PART_REF, &part_of, sizeof(part_of), many, 0);
	expect_fault();
	part();
	assert_int_equal(vbn_pool_available(two.pool), BUFS);
}

/* ---- zones of a liar ---- */

static int ask_port(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t size = vbn__shm_socket_name(shm_port(two.port)->id, &name);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, size), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 30},
		sizeof(struct timeval));
	return fd;
}

static void say(int socket, const struct shm_offer *offer, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)offer, .iov_len = sizeof(*offer)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
		CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, n * sizeof(int));
	}
	assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), sizeof(*offer));
}

/* Whether it is mapped. */
static bool offer(int socket, uint16_t slot, uint64_t size, int fd)
{
	static uint32_t number;
	const struct shm_offer offer = {
		.magic = SHM_OFFER_MAGIC, .slot = slot, .number = ++number, .size = size};
	struct shm_offer_answer answer = {0};

	say(socket, &offer, &fd, 1);
	assert_int_equal(recv(socket, &answer, sizeof(answer), 0), sizeof(answer));
	assert_int_equal(answer.number, number);
	return answer.is_mapped;
}

static void withdraw(int socket, uint16_t slot)
{
	say(socket, &(struct shm_offer){.magic = SHM_OFFER_MAGIC, .slot = slot, .is_over = 1}, NULL,
		0);
}

enum { SIZE = 64 << 10, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE };

static int some_memfd(off_t size, int seals, bool filled)
{
	int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	if (filled)
		assert_int_equal(fallocate(fd, 0, 0, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void expect_refused(int socket, uint64_t size, int fd, const char *words)
{
	unit_catch_log();
	shm_port(two.port)->counts[SHM_UNVIEWED] = 0; /* the first one is logged */
	assert_false(offer(socket, 0, size, fd));
	assert_logged(words);
	close(fd);
}

/* Huge pages that nobody has: of the right size, sealed, and without one to back it. */
static int too_few_pages(void)
{
	int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);

	if (fd >= 0 && (ftruncate(fd, 64 << 20) || fcntl(fd, F_ADD_SEALS, SEALS))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void test_offers(void **state)
{
	int socket = ask_port(), fd, pipes[2], several[4];
	const int segments = two_segments();
	char byte;

	(void)state;
	expect_refused(socket, SIZE, some_memfd(SIZE, 0, true), "not sealed");
	expect_refused(
		socket, SIZE, some_memfd(SIZE, F_SEAL_SHRINK | F_SEAL_GROW, true), "not sealed");
	expect_refused(socket, SIZE, some_memfd(SIZE, F_SEAL_FUTURE_WRITE, true), "not sealed");
	expect_refused(socket, SIZE, some_memfd(SIZE / 2, SEALS, true), "its size");
	expect_refused(socket, SIZE / 2, some_memfd(SIZE, SEALS, true), "its size");
	expect_refused(socket, SIZE - 1, some_memfd(SIZE - 1, SEALS, true), "its size");
	expect_refused(socket, 0, some_memfd(0, SEALS, false), "its size");
	expect_refused(socket, SIZE, some_memfd(SIZE, SEALS, false), "not got all its pages");
	expect_refused(
		socket, 1ull << 40, some_memfd((off_t)1 << 40, SEALS, false), "all its pages");
	fd = too_few_pages();
	if (fd >= 0)
		expect_refused(socket, 64 << 20, fd, "not got all its pages");
	assert_int_equal(pipe(pipes), 0);
	expect_refused(socket, SIZE, pipes[0], "no memfd");
	close(pipes[1]);
	expect_refused(socket, SIZE, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "no memfd");
	/* one that is right: nobody can write it, nor take pages out; and a place is had once */
	fd = some_memfd(SIZE, SEALS, true);
	assert_false(offer(socket, SHM_VIEWS, SIZE, fd));
	assert_true(offer(socket, 3, SIZE, fd));
	assert_false(offer(socket, 3, SIZE, fd));
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE), -1);
	withdraw(socket, 3);
	withdraw(socket, 3);
	withdraw(socket, UINT16_MAX);
	assert_true(offer(socket, 3, SIZE, fd));
	/* more descriptors than one: the kernel closes the rest */
	for (int i = 0; i < 4; i++)
		several[i] = fd;
	say(socket,
		&(struct shm_offer){
			.magic = SHM_OFFER_MAGIC, .slot = 4, .number = 99, .size = SIZE},
		several, 4);
	assert_int_equal(
		recv(socket, &(struct shm_offer_answer){0}, sizeof(struct shm_offer_answer), 0),
		sizeof(struct shm_offer_answer));
	/* none at all: it is hung up on */
	say(socket, &(struct shm_offer){.magic = SHM_OFFER_MAGIC, .slot = 5, .size = SIZE}, NULL,
		0);
	assert_int_equal(recv(socket, &byte, 1, 0), 0);
	close(socket);
	close(fd);
	assert_int_equal(two_segments(), segments);
}

/* However much is lent and taken back, what is mapped is bounded, and ends with who lent it. */
static void test_bounded(void **state)
{
	const int fd = some_memfd(4096, SEALS, true), descriptors = held_descriptors();
	const uint64_t since = clock_ns();
	int sockets[SHM_VIEWS_IN_ALL / SHM_VIEWS + 2], n = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
		sockets[i] = ask_port();
		for (uint16_t slot = 0; slot < SHM_VIEWS; slot++)
			n += offer(sockets[i], slot, 4096, fd);
	}
	assert_in_range(n, SHM_VIEWS_IN_ALL - SHM_VIEWS, SHM_VIEWS_IN_ALL);
	assert_int_equal(held_mappings("/memfd:lie"), n);
	/* a worker is away: what is taken back still counts */
	for (int i = 0; i < 400; i++) {
		withdraw(sockets[0], (uint16_t)(i % SHM_VIEWS));
		offer(sockets[0], (uint16_t)(i % SHM_VIEWS), 4096, fd);
	}
	assert_in_range(held_mappings("/memfd:lie"), 0, SHM_VIEWS_IN_ALL);
	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++)
		close(sockets[i]);
	while (held_mappings("/memfd:lie") || held_descriptors() != descriptors) {
		vbn_worker_poll(two.worker);
		two_patience(since);
	}
	close(fd);
}

/* ---- two processes ---- */

enum { LARGE = 500000 };

static void await_loan(void)
{
	const uint64_t since = clock_ns();

	while (!load_acquire(&tx_of(two.queue)->loans->of[two.pool->zone_id].slot))
		two_patience(since);
}

/* Sends without an end. */
static int other_sends(void)
{
	const uint64_t since = clock_ns();
	struct vbn_event events[8];

	two_is_other();
	two_connect();
	await_loan();
	for (uint64_t number = 0; !two.queue->failed; number++) {
		struct vbn_buf *buf = message(number, LARGE + (uint32_t)number % 1000, 1);

		while (vbn_send_one(two.queue, buf) != 1) {
			vbn_flush(two.queue);
			vbn_poll(two.worker, events, 8);
			two_patience(since);
		}
		vbn_flush(two.queue);
	}
	return 1;
}

/* Each that arrives is whole, whenever the sender dies; then everything is given back. */
static void kill_one(unsigned int *seed)
{
	const uint64_t since = clock_ns(), life = (uint64_t)rand_r(seed) % 20 * 1000000;
	const int descriptors = held_descriptors(), segments = two_segments();
	uint64_t number = 0, killed = 0;
	struct vbn_event event = {0};

	two_start("sends");
	two_connect();
	while (event.op != VBN_OP_FAILED) {
		if (!killed && number && clock_ns() - since > life) {
			two_kill();
			killed = clock_ns();
		}
		if (!vbn_poll(two.worker, &event, 1)) {
			two_patience(since);
			continue;
		}
		if (event.op != VBN_OP_RECV)
			continue;
		assert_int_equal(event.len, LARGE + number % 1000);
		check(event.buf->data, event.len, number++);
		vbn_buf_free(&event.buf, 1);
	}
	assert_has(vbn_queue_error(two.queue), "its process has ended");
	two_disconnect();
	assert_true(WIFSIGNALED(two_wait()));
	while (held_descriptors() != descriptors || two_segments() != segments)
		two_patience(since);
	assert_int_equal(vbn_pool_available(two.pool), BUFS);
}

static void test_killed(void **state)
{
	unsigned int seed = (unsigned int)getpid();

	(void)state;
	for (int i = 0; i < 4; i++)
		kill_one(&seed);
}

/* Receives three, and then no more. */
static int other_receives(void)
{
	const uint64_t since = clock_ns();
	struct two_word word;
	struct vbn_event event;

	two_is_other();
	two_connect();
	for (int i = 0; i < 3;) {
		if (!vbn_poll(two.worker, &event, 1)) {
			two_patience(since);
			continue;
		}
		check(event.buf->data, event.len, (uint64_t)i++);
		vbn_buf_free(&event.buf, 1);
	}
	vbn_poll(two.worker, &event, 0);
	two_say(&word);
	two_hear(&word);
	return 0;
}

/* Who has been lent something dies: it comes back. */
static void test_receiver_killed(void **state)
{
	const uint64_t since = clock_ns();
	struct two_word word;
	int back = 0, flushed = 0;

	(void)state;
	two_start("receives");
	two_connect();
	await_loan();
	for (uint64_t i = 0; i < 6; i++) {
		struct vbn_buf *buf = message(i, LARGE, 1);

		vbn_buf_set_cookie(buf, &two);
		assert_int_equal(vbn_send_one(two.queue, buf), 1);
		vbn_flush(two.queue);
	}
	assert_true(two_hear(&word));
	assert_in_range(vbn_queue_outstanding(two.queue), 3, 6);
	two_kill();
	while (back + flushed < 6) {
		struct vbn_event event;

		if (!vbn_poll(two.worker, &event, 1)) {
			two_patience(since);
			continue;
		}
		if (event.op != VBN_OP_SEND)
			continue;
		*(event.status == VBN_OK ? &back : &flushed) += 1;
		vbn_buf_free(&event.buf, 1);
	}
	assert_int_equal(back, 3);
	two_disconnect();
	assert_true(WIFSIGNALED(two_wait()));
	assert_int_equal(vbn_pool_available(two.pool), BUFS);
}

static int close_all(void **state)
{
	part();
	return two_close(state);
}

#define test(name) cmocka_unit_test_setup_teardown(name, two_open, close_all)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(test_lengths),
		test(test_returned),
		test(test_order),
		test(test_writes),
		test(test_without),
		test(test_taken_back),
		test(test_given_back),
		test(test_lies),
		test(test_offers),
		test(test_bounded),
		test(test_killed),
		test(test_receiver_killed),
	};

	signal(SIGPIPE, SIG_IGN);
	two_pool_conf = (struct vbn_pool_conf){.n_bufs = BUFS, .data_size = DATA, .memfd = VBN_ON};
	if (argc > 1)
		return strcmp(argv[1], "sends") ? other_receives() : other_sends();
	cmocka_set_test_filter(getenv("SHM_TEST"));
	return cmocka_run_group_tests_name("lend", tests, NULL, NULL);
}
