/* queue_test.c - queues over shared memory, of one worker: what fails and how it is told, what waits
 * for room, what a ring that was written by a liar leads to
 *
 * What is the same with every driver is in unit/message_test.c, which runs on shm, too.
 */

#include "drv/shm/box.h"

#include "../unit/duo.h"
#include "../unit/held.h"

static struct vbn_queue_conf plain(void)
{
	return duo_conf(VBN_RC, DUO_OWN);
}

static uint64_t count_of(enum shm_count which)
{
	return __atomic_load_n(&shm_port(duo.port)->counts[which], __ATOMIC_RELAXED);
}

static void meet_again(void)
{
	duo_reset(duo.a);
	duo_reset(duo.b);
	assert_string_equal(vbn_queue_error(duo.a), "");
	assert_int_equal(vbn_send_inline(duo.a, "x", 1), -ENOTCONN);
	duo_meet();
	duo_stream(duo.a, duo.b, 300);
	duo_stream(duo.b, duo.a, 300);
}

/* ---- what goes well ---- */

static void test_streams(void **state)
{
	(void)state;
	for (int kind = DUO_OWN; kind <= DUO_SRQ; kind += DUO_SRQ - DUO_OWN) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);
		struct vbn_queue_stats stats;

		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 30000);
		duo_stream(duo.b, duo.a, 500);
		vbn_queue_stats(duo.a, &stats);
		assert_int_equal(stats.tx_messages, 30000);
		assert_int_equal(stats.tx_done, 30000);
		assert_int_equal(stats.rx_messages, 500);
		duo_disconnect();
	}
}

/* The first to connect may send at once; it all waits in the ring. */
static void test_first_may_send(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_address a, b;

	(void)state;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	vbn_queue_address(duo.a, &a);
	vbn_queue_address(duo.b, &b);
	assert_int_equal(vbn_queue_connect(duo.a, &b), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(vbn_send_one(duo.a, duo_buf(i, 50)), 1);
	vbn_flush(duo.a);
	assert_int_equal(vbn_queue_connect(duo.b, &a), 0);
	duo_wait(duo.b, 20);
	for (uint64_t i = 0; i < 20; i++) {
		duo_check(duo.events[i].buf->data, i, 50);
		vbn_buf_free(&duo.events[i].buf, 1);
	}
}

/* More bytes than the ring takes: they wait with the sender, as many as its depth says, in order. */
static void test_more_than_the_ring(void **state)
{
	struct vbn_queue_conf conf = plain();
	uint64_t start = clock_ns();
	int arrived = 0, back = 0;

	(void)state;
	duo_connect(&conf);
	assert_true(shm_queue(duo.b)->in->ring_size < DUO_DEPTH * DUO_DATA);
	for (int round = 0; round < 3; round++) {
		for (uintptr_t i = 0; i < DUO_DEPTH; i++) {
			struct vbn_buf *buf = duo_buf(i, DUO_DATA - (uint32_t)i);

			vbn_buf_set_cookie(buf, (void *)i);
			assert_int_equal(vbn_send_one(duo.a, buf), 1);
		}
		assert_int_equal(vbn_send_inline(duo.a, "x", 1), 0);
		vbn_flush(duo.a);
		assert_true(vbn_queue_outstanding(duo.a) > 0);
		for (arrived = back = 0; arrived < DUO_DEPTH || back < DUO_DEPTH;) {
			struct vbn_event event;

			if (!vbn_poll(duo.worker, &event, 1)) {
				duo_patience(start);
				continue;
			}
			if (event.queue == duo.a) {
				assert_int_equal((uintptr_t)event.cookie, back++);
			} else {
				assert_int_equal(event.len, DUO_DATA - arrived);
				duo_check(event.buf->data, (uint64_t)arrived++, event.len);
			}
			vbn_buf_free(&event.buf, 1);
		}
		assert_int_equal(vbn_queue_outstanding(duo.a), 0);
	}
}

/* The next ones in their order. */
static int take_next(uint64_t *arrived)
{
	struct vbn_event event;

	if (!vbn_poll(duo.worker, &event, 1))
		return 0;
	duo_check(event.buf->data, (*arrived)++, event.len);
	vbn_buf_free(&event.buf, 1);
	return 1;
}

/* Plain ones are left with their sender before so many wait that none is in the cache any more. */
static void test_few_wait(void **state)
{
	struct vbn_queue_conf conf = plain();
	uint64_t start = clock_ns(), sent = 0, arrived = 0;
	struct vbn_buf *buf;

	(void)state;
	duo_connect(&conf);
	while (sent < DUO_DEPTH) {
		buf = duo_buf(sent, DUO_DATA);
		if (!vbn_send_one(duo.a, buf))
			break;
		sent++;
	}
	assert_in_range(sent, 2, DUO_DEPTH - 1);
	assert_in_range(vbn_queue_outstanding(duo.a), 1, sent);
	while (!vbn_send_one(duo.a, buf)) {
		vbn_flush(duo.a);
		if (!take_next(&arrived))
			duo_patience(start);
	}
	vbn_flush(duo.a);
	while (arrived < sent + 1)
		if (!take_next(&arrived))
			duo_patience(start);
	assert_int_equal(vbn_queue_outstanding(duo.a), 0);
}

/* What is staged is not seen before the flush. */
static void test_flush_shows(void **state)
{
	struct vbn_queue_conf conf = plain();

	(void)state;
	duo_connect(&conf);
	for (int i = 0; i < 5; i++)
		assert_int_equal(vbn_send_inline(duo.a, "bytes", 5), 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(vbn_poll(duo.worker, duo.events, 8), 0);
	assert_int_equal(vbn_queue_outstanding(duo.a), 5);
	vbn_flush(duo.a);
	assert_int_equal(vbn_queue_outstanding(duo.a), 0);
	duo_wait(duo.b, 5);
	for (int i = 0; i < 5; i++)
		vbn_buf_free(&duo.events[i].buf, 1);
}

/* A write is done when its bytes are there, and what was sent behind it comes after it. */
static void test_write_then_send(void **state)
{
	struct vbn_queue_conf conf = plain();
	uint8_t *at = vbn_export_addr(duo.target);

	(void)state;
	duo_connect(&conf);
	for (uint32_t i = 1; i < 200; i++) {
		struct vbn_buf *buf = duo_buf(i, i * 20);

		vbn_buf_set_cookie(buf, NULL);
		memset(at, 0, i * 20);
		assert_int_equal(vbn_write_one(duo.a, buf, vbn_export_remote(duo.target, 0)), 1);
		assert_int_equal(vbn_send_inline(duo.a, &i, sizeof(i)), 1);
		vbn_flush(duo.a);
		assert_int_equal(vbn_queue_outstanding(duo.a), 2);
		duo_wait(duo.b, 1);
		duo_check(at, i, i * 20);
		vbn_buf_free(&duo.events[0].buf, 1);
		duo_expect_returned(duo.a, VBN_OP_WRITE, VBN_OK);
	}
}

/* More reads than the peer takes at once: the rest waits. */
static void test_many_reads(void **state)
{
	struct vbn_queue_conf conf = plain();
	uint8_t *at = vbn_export_addr(duo.target);

	(void)state;
	conf.max_reads = (struct vbn_num)VBN_NUM(3);
	conf.max_peer_reads = (struct vbn_num)VBN_NUM(2);
	duo_connect(&conf);
	for (uint32_t i = 0; i < DUO_DEPTH; i++) {
		struct vbn_buf *into = duo_buf(0, 3000);
		struct vbn_buf *source = duo_buf(i, 3000);

		memcpy(at + i * DUO_DATA, source->data, 3000);
		vbn_buf_free(&source, 1);
		assert_int_equal(
			vbn_read_one(duo.a, into, vbn_export_remote(duo.target, i * DUO_DATA)), 1);
	}
	vbn_flush(duo.a);
	duo_wait(duo.a, DUO_DEPTH);
	for (uint32_t i = 0; i < DUO_DEPTH; i++) {
		assert_int_equal(duo.events[i].op, VBN_OP_READ);
		duo_check(duo.events[i].buf->data, i, 3000);
		vbn_buf_free(&duo.events[i].buf, 1);
	}
}

/* ---- what may not be ---- */

static void refused_remotely(enum duo_kind kind)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, kind);
	struct vbn_remote beyond = vbn_export_remote(duo.target, 0);
	struct vbn_remote odd = vbn_export_remote(duo.target, 4);
	struct vbn_remote tail = vbn_export_remote(duo.target, DUO_DATA * DUO_DEPTH - 99);
	struct vbn_remote other = vbn_export_remote(duo.target, 0);

	beyond.addr += 1u << 30;
	other.rkey ^= 1u << 31;
	duo_connect(&conf);
	assert_int_equal(vbn_read_one(duo.a, duo_buf(0, 100), beyond), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "for WQE 0 (RDMA_READ, 100 bytes");
	duo_expect_returned(duo.a, VBN_OP_READ, VBN_REMOTE_ACCESS);
	duo_expect_failed(duo.b, VBN_LOCAL_ACCESS, "the peer asked for a read");
	meet_again();
	assert_int_equal(vbn_write_imm_one(duo.a, duo_buf(0, 100), tail, 1), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(RDMA_WRITE_IMM, 100 bytes");
	meet_again();
	assert_int_equal(vbn_write_one(duo.a, duo_buf(0, 100), other), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(RDMA_WRITE, 100 bytes");
	meet_again();
	assert_int_equal(vbn_fetch_add_one(duo.a, duo_buf(0, 8), beyond, 1), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(ATOMIC_FA, 8 bytes");
	duo_expect_returned(duo.a, VBN_OP_FETCH_ADD, VBN_REMOTE_ACCESS);
	meet_again();
	assert_int_equal(vbn_cmp_swap_one(duo.a, duo_buf(0, 8), odd, 1, 2), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_INVALID, "(ATOMIC_CS, 8 bytes");
	duo_expect_returned(duo.a, VBN_OP_CMP_SWAP, VBN_REMOTE_INVALID);
	meet_again();
	duo_disconnect();
}

static void test_refused_remotely(void **state)
{
	(void)state;
	refused_remotely(DUO_OWN);
	refused_remotely(DUO_SRQ);
}

/* Neither does the queue allow what the export does, nor the export that is gone anything. */
static void test_access_ends(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_export *other;
	struct vbn_remote remote;

	(void)state;
	conf.remote_access = VBN_REMOTE_WRITE;
	duo_connect(&conf);
	assert_int_equal(vbn_read_one(duo.a, duo_buf(0, 10), vbn_export_remote(duo.target, 0)), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "RDMA_READ");
	duo_disconnect();
	conf = plain();
	duo_connect(&conf);
	assert_int_equal(
		vbn_export_create(duo.port,
			&(struct vbn_export_conf){.size = 4096, .access = VBN_REMOTE_WRITE},
			&other),
		0);
	remote = vbn_export_remote(other, 0);
	assert_int_equal(vbn_write_inline(duo.a, "some", 4, remote), 1);
	vbn_flush(duo.a);
	duo_stream(duo.a, duo.b, 10);
	assert_memory_equal(vbn_export_addr(other), "some", 4);
	vbn_export_destroy(other);
	assert_int_equal(vbn_write_inline(duo.a, "more", 4, remote), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "exports no such memory");
}

static void test_longer_than_a_receive(void **state)
{
	(void)state;
	for (int kind = DUO_OWN; kind <= DUO_SRQ; kind += DUO_SRQ - DUO_OWN) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);
		struct vbn_buf *buf = duo_buf(0, DUO_DATA), *more = duo_buf(1, 1);

		duo_connect(&conf);
		vbn_buf_append(buf, more);
		assert_int_equal(vbn_send_one(duo.a, buf), 1);
		vbn_flush(duo.a);
		duo_expect_failed(duo.a, VBN_REMOTE_INVALID, "longer than its receive");
		duo_expect_failed(duo.b, VBN_LOCAL_LENGTH, "longer than its receive");
		meet_again();
		duo_disconnect();
	}
}

/* Whose peer is gone finds out when it has something to say. */
static void test_peer_gone(void **state)
{
	(void)state;
	for (int kind = DUO_OWN; kind <= DUO_SRQ; kind += DUO_SRQ - DUO_OWN) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);

		duo_connect(&conf);
		vbn_queue_destroy(duo.b);
		duo.b = NULL;
		assert_int_equal(vbn_poll(duo.worker, duo.events, 8), 0);
		assert_int_equal(vbn_send_one(duo.a, duo_buf(0, 8)), 1);
		vbn_flush(duo.a);
		duo_expect_failed(duo.a, VBN_REMOTE_ABORTED, "is gone");
		duo_reset(duo.a);
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
		duo_meet();
		duo_stream(duo.a, duo.b, 200);
		duo_disconnect();
	}
}

/* It waits for a write to be done, and the peer goes instead. */
static void test_peer_gone_meanwhile(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_buf *buf;

	(void)state;
	duo_connect(&conf);
	buf = duo_buf(0, 100);
	vbn_buf_set_cookie(buf, &duo);
	assert_int_equal(vbn_write_one(duo.a, buf, vbn_export_remote(duo.target, 0)), 1);
	vbn_flush(duo.a);
	vbn_queue_destroy(duo.b);
	duo.b = NULL;
	duo_expect_failed(duo.a, VBN_REMOTE_ABORTED, "for WQE 0 (RDMA_WRITE, 100 bytes");
	duo_expect_returned(duo.a, VBN_OP_WRITE, VBN_REMOTE_ABORTED);
	assert_ptr_equal(duo.events[0].cookie, &duo);
}

static void test_reset_at_work(void **state)
{
	(void)state;
	duo_reset_at_work(VBN_RC, DUO_OWN);
	duo_reset_at_work(VBN_RC, DUO_SRQ);
	duo_reset_at_work(VBN_UC, DUO_OWN);
}

/* One pair fails, and another one notices nothing. */
static void test_others_go_on(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_queue *failed, *peer;

	(void)state;
	duo_connect(&conf);
	assert_int_equal(vbn_write_one(duo.a, duo_buf(0, 8), (struct vbn_remote){1, 2}), 1);
	vbn_flush(duo.a);
	failed = duo.a;
	peer = duo.b;
	duo_expect_failed(failed, VBN_REMOTE_ACCESS, "rkey 0x2");
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 1000);
	duo_stream(duo.b, duo.a, 1000);
	vbn_queue_destroy(failed);
	vbn_queue_destroy(peer);
	duo_stream(duo.a, duo.b, 100);
}

/* ---- connecting ---- */

static void test_connecting(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_address a, b;
	struct vbn_port *port;
	struct vbn_queue *third;

	(void)state;
	duo_connect(&conf);
	vbn_queue_address(duo.a, &a);
	vbn_queue_address(duo.b, &b);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &third), 0);
	unit_catch_log();
	assert_int_equal(vbn_queue_connect(third, &b), -EISCONN);
	assert_logged("has been connected to already");
	duo_stream(duo.a, duo.b, 100);
	duo_reset(duo.b);
	assert_int_equal(vbn_queue_connect(third, &b), -ENOENT);
	assert_logged("exchange vbn_queue_address()'s anew");
	a.bytes[20] ^= 1; /* another port */
	assert_int_equal(vbn_queue_connect(third, &a), -ECONNREFUSED);
	assert_logged("no process of this host has its peer");
	vbn_queue_destroy(third);
	assert_int_equal(vbn_port_open("shm:other", NULL, &port), 0);
	assert_int_equal(vbn_queue_create(duo.worker, port, &conf, &third), 0);
	vbn_queue_address(duo.b, &b);
	assert_int_equal(vbn_queue_connect(third, &b), -EINVAL);
	assert_logged("open the same shm:NAME on both sides");
	vbn_queue_destroy(third);
	vbn_port_close(port);
	duo_reset(duo.a);
	duo_meet();
	duo_stream(duo.a, duo.b, 100);
}

static void test_what_there_is_not(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SHARED);
	struct vbn_port *port;
	struct vbn_buf *buf;

	(void)state;
	unit_catch_log();
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), -ENOTSUP);
	conf = plain();
	conf.blueflame = VBN_ON;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), -ENOTSUP);
	assert_logged("has no blueflame");
	assert_int_equal(
		vbn_port_open("shm", &(struct vbn_port_conf){.mtu = 1024}, &port), -EINVAL);
	assert_int_equal(vbn_port_open("shm:x:2", NULL, &port), -ENXIO);
	conf = duo_conf(VBN_UC, DUO_OWN);
	duo_connect(&conf);
	buf = duo_buf(0, 8);
	assert_int_equal(vbn_read_one(duo.a, buf, vbn_export_remote(duo.target, 0)), -EOPNOTSUPP);
	vbn_buf_free(&buf, 1);
	duo_stream(duo.a, duo.b, 100);
}

/* ---- received = delivered + unread ---- */

static void test_unread_is_counted(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_queue_stats sent, received;
	uint64_t before;

	(void)state;
	before = count_of(SHM_UNREAD);
	duo_connect(&conf);
	for (int i = 0; i < 12; i++)
		assert_int_equal(vbn_send_inline(duo.a, "unread", 6), 1);
	assert_int_equal(vbn_send_one(duo.a, duo_buf(0, DUO_DATA)), 1); /* in pieces */
	vbn_flush(duo.a);
	duo_wait(duo.b, 5);
	for (int i = 0; i < 5; i++)
		vbn_buf_free(&duo.events[i].buf, 1);
	vbn_queue_stats(duo.a, &sent);
	vbn_queue_stats(duo.b, &received);
	vbn_queue_destroy(duo.b);
	duo.b = NULL;
	assert_int_equal(sent.tx_done, 13);
	assert_int_equal(received.rx_messages + count_of(SHM_UNREAD) - before, sent.tx_done);
}

/* ---- the shared ring of bufs ---- */

/* No bufs at all: what was sent waits, and comes when there are some. */
static void test_no_bufs(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct vbn_buf *hoard[DUO_BUFS];
	int n;

	(void)state;
	duo_connect(&conf);
	n = (int)vbn_pool_available(duo.pool);
	assert_int_equal(vbn_buf_alloc(duo.pool, hoard, n), n);
	for (int i = 0; i < DUO_DEPTH; i++)
		assert_int_equal(vbn_send_inline(duo.a, "some bytes", 10), 1);
	vbn_flush(duo.a);
	duo_wait(duo.b, DUO_DEPTH);
	for (int i = 0; i < DUO_DEPTH; i++)
		hoard[n++] = duo.events[i].buf;
	assert_int_equal(vbn_send_inline(duo.a, "one more", 8), 1);
	vbn_flush(duo.a);
	for (int i = 0; i < 10; i++)
		assert_int_equal(vbn_poll(duo.worker, duo.events, 8), 0);
	vbn_buf_free(hoard, n);
	duo_wait(duo.b, 1);
	assert_memory_equal(duo.events[0].buf->data, "one more", 8);
	vbn_buf_free(&duo.events[0].buf, 1);
}

/* ---- a liar: what cannot be in a ring ---- */

static void put_raw(uint64_t header, const uint64_t *words, size_t n)
{
	struct ring_writer *w = &shm_queue(duo.a)->tx.ring;
	uint64_t *at = ring_word(w->ring, w->mask, w->pos);

	for (size_t i = 0; i < n; i++)
		at[1 + i] = words[i];
	store_release(at, header);
}

#define RAW(kind, len) ((uint64_t)(kind) << 32 | (uint32_t)(len))

static void test_records_that_are_none(void **state)
{
	static const struct {
		uint64_t header, words[6];
	} lies[] = {
		{RAW(SHM_N_KINDS, 8), {0}},
		{RAW(0xff, 8), {0}},
		{RAW(SHM_SEND | 0x200, 8), {0}},
		{RAW(0, 8), {0}},
		{RAW(SHM_SEND, UINT32_MAX), {0}},
		{RAW(SHM_SEND, UINT32_MAX - 7), {0}},
		{RAW(SHM_SEND, SHM_RING_MAX), {0}},
		{RAW(SHM_SEND_IMM, UINT32_MAX - 15), {0}},
		{RAW(SHM_WRITE, UINT32_MAX - 24), {0}},
		{RAW(SHM_PAD, 8), {0}},
		{RAW(SHM_PAD, 0), {0}},
		{RAW(SHM_PAD, UINT32_MAX), {0}},
		{RAW(SHM_PART, 8), {(uint64_t)4 << 32 | 100, 0}}, /* from the middle */
		{RAW(SHM_PART, 100), {8, 0}},                     /* longer than all */
		{RAW(SHM_PART, 0), {100, 0}},
		{RAW(SHM_ANSWER, 8), {0, 0}}, /* nothing was asked */
		{RAW(SHM_ANSWER, 8), {UINT64_MAX, 0}},
		{RAW(SHM_REFUSED, 0), {0}},
		{RAW(SHM_REFUSED, 0), {(uint64_t)99 << 32}},
		{RAW(SHM_READ, 0), {0, 0, UINT64_MAX}},
		{RAW(SHM_READ, 0), {0, 0, (uint64_t)SHM_MAX_MESSAGE + 1}},
	};
	struct vbn_queue_conf conf = plain();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		const uint64_t faults = count_of(SHM_FAULTS);

		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 3);
		put_raw(lies[i].header, lies[i].words, ARRAY_SIZE(lies[i].words));
		duo_expect_failed(duo.b, VBN_BAD_RESPONSE, "so it is dropped");
		assert_int_equal(count_of(SHM_FAULTS), faults + 1);
		assert_int_equal(vbn_send_inline(duo.b, "x", 1), -EPIPE);
		duo_disconnect();
	}
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 100);
}

/* A message may be as long as the receive, and no longer, whoever says so. */
static void test_long_lies(void **state)
{
	struct vbn_queue_conf conf = plain();
	static const uint64_t words[6] = {(uint64_t)UINT32_MAX, 0};

	(void)state;
	duo_connect(&conf);
	put_raw(RAW(SHM_SEND, DUO_DATA + 1), words, 1);
	duo_expect_failed(duo.b, VBN_LOCAL_LENGTH, "longer than its receive");
	duo_disconnect();
	duo_connect(&conf);
	put_raw(RAW(SHM_PART, 8), words, 3);
	duo_expect_failed(duo.b, VBN_LOCAL_LENGTH, "a message of 4294967295 bytes");
	duo_disconnect();
	/* memory that is nobody's */
	for (int kind = SHM_WRITE; kind <= SHM_CMP_SWAP; kind++) {
		duo_connect(&conf);
		put_raw(RAW(kind, kind == SHM_WRITE ? 8 : 0),
			(const uint64_t[]){UINT64_MAX - 15, UINT64_MAX, 16, 1, 2}, 5);
		duo_expect_failed(duo.b, VBN_LOCAL_ACCESS, "no export of this port allows");
		duo_disconnect();
	}
}

/* What the peer says that it has taken is between what it was and what was sent. */
static void test_lies_about_taken(void **state)
{
	static const uint64_t lies[] = {1 << 20, UINT64_MAX / 2, UINT64_MAX - SHM_RING_MAX};
	struct vbn_queue_conf conf = plain();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct shm_head *head;
		uint64_t start = clock_ns();

		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 10);
		head = segment_head(shm_queue(duo.b)->in);
		store_release(&head->taken, shm_queue(duo.a)->tx.ring.begin + lies[i]);
		while (!duo.a->failed) {
			if (vbn_send_inline(duo.a, unit_log, 64) == 1)
				vbn_flush(duo.a);
			store_release(&head->taken, shm_queue(duo.a)->tx.ring.begin + lies[i]);
			duo_patience(start);
		}
		duo_expect_failed(duo.a, VBN_BAD_RESPONSE, "taken what was never sent");
		duo_disconnect();
	}
}

/* A position of the box that was never sent, one that is not yet, and a length that it does not hold. */
static void test_lies_in_the_box(void **state)
{
	struct vbn_queue_conf conf = plain();
	struct shm_queue *liar, *victim;

	(void)state;
	for (int i = 0; i < 4; i++) {
		const uint64_t faults = count_of(SHM_FAULTS);
		uint64_t pos;
		uint32_t len = 8;

		duo_connect(&conf);
		liar = shm_queue(duo.a)->talk.turn ? shm_queue(duo.a) : shm_queue(duo.b);
		victim = liar == shm_queue(duo.a) ? shm_queue(duo.b) : shm_queue(duo.a);
		pos = victim->rx.pos;
		if (i == 0)
			pos -= 8;
		else if (i == 1)
			pos += victim->rx.mask + 9;
		else if (i == 2)
			len = SHM_BOX_DATA + 1;
		else
			pos += 8; /* it may yet come */
		store_release(&liar->talk.box->word, box_word(1, len, pos));
		if (i < 3) {
			duo_expect_failed(&victim->queue, VBN_BAD_RESPONSE, "so it is dropped");
			assert_int_equal(count_of(SHM_FAULTS), faults + 1);
		} else {
			for (int k = 0; k < 100; k++)
				assert_int_equal(vbn_poll(duo.worker, duo.events, 1), 0);
			duo_stream(&victim->queue, &liar->queue, 100);
		}
		duo_disconnect();
	}
}

/* What is never read may be anything: what a head has beside its two words, the ring but for the next
 * header, the box that is not in use, and what a header says of its burst. */
static void scribble(struct shm_queue *sq)
{
	struct shm_head *head = segment_head(sq->in), *other = segment_head(sq->out);
	struct shm_box *unused = sq->talk.box == &head->box ? &other->box : &head->box;
	uint8_t *own = (uint8_t *)head;
	const uint64_t next = sq->rx.pos;

	memset(unused, 0xa5, sizeof(*unused));
	memset(sq->talk.box->fetched_along, 0xa5, sizeof(sq->talk.box->fetched_along));
	memset(own + sizeof(*head), 0xa5, SHM_HEAD - sizeof(*head));
	memset(own + CACHE_LINE + sizeof(head->open), 0xa5,
		offsetof(struct shm_head, box) - CACHE_LINE - sizeof(head->open));
	for (uint64_t pos = next + SHM_WORD; pos != next + sq->rx.mask + 1; pos += SHM_WORD)
		*ring_word(sq->rx.ring, sq->rx.mask, pos) = 0xa5a5a5a5a5a5a5a5;
}

static void test_lies_that_nobody_reads(void **state)
{
	struct vbn_queue_conf conf = plain();

	(void)state;
	duo_connect(&conf);
	for (int i = 0; i < 200; i++) {
		duo_stream(i % 2 ? duo.b : duo.a, i % 2 ? duo.a : duo.b, (uint64_t)i % 7 + 1);
		scribble(shm_queue(duo.a));
		scribble(shm_queue(duo.b));
	}
	duo_disconnect();
	/* lines of a burst: fetched ahead, within the ring */
	duo_connect(&conf);
	for (uint64_t lines = 1; lines < 1 << 16; lines *= 3) {
		struct ring_writer *w = &shm_queue(duo.a)->tx.ring;

		put_raw(RAW(SHM_SEND, 8) | lines << 48, (const uint64_t[]){lines, 0}, 2);
		w->pos = w->begin = w->pos + record_size(0, 8);
		duo_wait(duo.b, 1);
		assert_int_equal(duo.events[0].len, 8);
		assert_memory_equal(duo.events[0].buf->data, &lines, 8);
		vbn_buf_free(&duo.events[0].buf, 1);
	}
	duo_stream(duo.a, duo.b, 100);
}

/* ---- nothing is left behind ---- */

static void test_nothing_is_left(void **state)
{
	struct vbn_queue_conf conf = plain();
	int descriptors, segments;

	(void)state;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 10);
	duo_disconnect();
	descriptors = held_descriptors();
	segments = held_mappings("/memfd:verbena");
	for (int i = 0; i < 50; i++) {
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 10);
		if (i % 2)
			meet_again();
		duo_disconnect();
	}
	assert_int_equal(held_descriptors(), descriptors);
	assert_int_equal(held_mappings("/memfd:verbena"), segments);
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_streams),
		test(test_first_may_send),
		test(test_more_than_the_ring),
		test(test_few_wait),
		test(test_flush_shows),
		test(test_write_then_send),
		test(test_many_reads),
		test(test_refused_remotely),
		test(test_access_ends),
		test(test_longer_than_a_receive),
		test(test_peer_gone),
		test(test_peer_gone_meanwhile),
		test(test_reset_at_work),
		test(test_others_go_on),
		test(test_connecting),
		test(test_what_there_is_not),
		test(test_unread_is_counted),
		test(duo_srq_limit),
		test(test_no_bufs),
		test(test_records_that_are_none),
		test(test_long_lies),
		test(test_lies_about_taken),
		test(test_lies_in_the_box),
		test(test_lies_that_nobody_reads),
		test(test_nothing_is_left),
	};

	setenv("VBN_TEST_DEVICE", "shm", 1);
	cmocka_set_test_filter(getenv("SHM_TEST"));
	return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
