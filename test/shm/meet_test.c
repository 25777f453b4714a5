/* meet_test.c - the socket of a port: what is no request is refused, who asks for a queue must know
 * its nonce, and of a process that answers lies nothing is believed
 */

#include "drv/shm/meet.h"

#include "../unit/duo.h"
#include "../unit/held.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* ---- askers ---- */

static int ask_port(uint64_t id)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t size = vbn__shm_socket_name(id, &name);
	struct timeval patience = {.tv_sec = 30};

	assert_int_equal(connect(fd, (struct sockaddr *)&name, size), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

/* The reply and the descriptor that came with it, or -1; the life word's is kept. */
static int last_life = -1;

static ssize_t reply_of(int socket, struct shm_reply *reply, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(socket, &message, 0);

	*fd = -1;
	if (n > 0 && CMSG_FIRSTHDR(&message)) {
		if (last_life >= 0)
			close(last_life);
		assert_int_equal(CMSG_FIRSTHDR(&message)->cmsg_len, CMSG_LEN(2 * sizeof(int)));
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(*fd));
		memcpy(&last_life, CMSG_DATA(CMSG_FIRSTHDR(&message)) + sizeof(int), sizeof(int));
	}
	return n;
}

static struct shm_request good_request(const struct vbn_queue *queue)
{
	struct shm_request request = {.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.number = queue->number,
		.transport = VBN_RC,
		.nonce = shm_queue(queue)->nonce};

	memcpy(request.name, shm_port(duo.port)->name, SHM_NAME);
	return request;
}

static uint32_t status_of(int socket, const struct shm_request *request, int *fd)
{
	struct shm_reply reply = {0};

	assert_int_equal(send(socket, request, sizeof(*request), MSG_NOSIGNAL), sizeof(*request));
	assert_int_equal(reply_of(socket, &reply, fd), sizeof(reply));
	assert_int_equal(reply.magic, SHM_MAGIC);
	assert_int_equal(*fd >= 0, reply.status == SHM_OK);
	return reply.status;
}

/* Of every length but the right one, and of the right one without sense: hung up on, and counted. */
static void test_no_requests(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	uint8_t bytes[2 * sizeof(struct shm_request)];
	const uint64_t id = shm_port(duo.port)->id;
	struct shm_reply reply;
	int fd;

	(void)state;
	memset(bytes, 0xa5, sizeof(bytes));
	for (size_t len = 1; len <= sizeof(bytes); len++) {
		int socket = ask_port(id);

		send(socket, bytes, len, MSG_NOSIGNAL);
		assert_true(reply_of(socket, &reply, &fd) <= 0);
		close(socket);
	}
	assert_int_equal(
		__atomic_load_n(&shm_port(duo.port)->counts[SHM_REFUSED_PEERS], __ATOMIC_RELAXED),
		sizeof(bytes));
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 100);
}

/* The life word is the kernel's: who has its descriptor can look at it, and neither write it, nor map
 * it so, nor take it away. */
static void nobody_writes(int life)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t word = FUTEX_OWNER_DIED;

	assert_int_equal(pwrite(life, &word, sizeof(word), 0), -1);
	assert_ptr_equal(mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, life, 0), MAP_FAILED);
	assert_int_equal(ftruncate(life, 0), -1);
	assert_int_equal(
		fallocate(life, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page), -1);
	assert_int_equal(pread(life, &word, sizeof(word), 0), sizeof(word));
	assert_int_not_equal(word, 0);
	assert_false(word & FUTEX_OWNER_DIED);
}

static void test_requests(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct shm_request request;
	struct vbn_address address;
	int socket = ask_port(shm_port(duo.port)->id), fd, again;

	(void)state;
	duo_connect(&conf);
	request = good_request(duo.a);
	assert_int_equal(status_of(socket, &request, &fd), SHM_TAKEN);
	request.nonce++;
	assert_int_equal(status_of(socket, &request, &fd), SHM_NO_QUEUE);
	request = good_request(duo.a);
	request.number++;
	assert_int_equal(status_of(socket, &request, &fd), SHM_NO_QUEUE);
	request = good_request(duo.a);
	request.transport = VBN_UC;
	assert_int_equal(status_of(socket, &request, &fd), SHM_NO_QUEUE);
	request = good_request(duo.a);
	request.version_min = request.version_max = SHM_VERSION + 1;
	assert_int_equal(status_of(socket, &request, &fd), SHM_OTHER_VERSION);
	request.version_min = 0;
	request.name[0] = 'x';
	assert_int_equal(status_of(socket, &request, &fd), SHM_OTHER_NAME);
	memset(request.name, 'y', sizeof(request.name));
	assert_int_equal(status_of(socket, &request, &fd), SHM_OTHER_NAME);
	duo_disconnect();
	/* One that is not connected is given to the last who asks, each time with a ring of its own. */
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	request = good_request(duo.a);
	request.version_max = SHM_VERSION + 7;
	assert_int_equal(status_of(socket, &request, &fd), SHM_OK);
	assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
	nobody_writes(last_life);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(status_of(socket, &request, &again), SHM_OK);
	close(fd);
	close(again);
	close(socket);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	vbn_queue_address(duo.a, &address);
	assert_int_equal(vbn_queue_connect(duo.b, &address), 0);
	vbn_queue_address(duo.b, &address);
	assert_int_equal(vbn_queue_connect(duo.a, &address), 0);
	duo_stream(duo.a, duo.b, 100);
}

/* ---- a process that answers lies ---- */

struct liar {
	int socket;
	struct shm_reply reply;
	size_t len;
	int fd;      /* that goes with it; -1 */
	int life;    /* and behind it; -1 */
	size_t more; /* of fd once more */
	bool silent;
	/* while it is asked */
	uint64_t id;
	int before;
	pthread_t thread;
};

enum { MORE = 4 };

static void say(int socket, const struct liar *liar)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE((2 + MORE) * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)&liar->reply, .iov_len = liar->len};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[2 + MORE] = {liar->fd, liar->life};
	size_t n = liar->fd < 0 ? 0 : liar->life < 0 ? 1 : 2;

	for (size_t i = 0; i < liar->more; i++)
		fds[n++] = liar->fd;
	if (n) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(header), fds, n * sizeof(int));
	}
	sendmsg(socket, &message, MSG_NOSIGNAL);
}

static void *lie(void *arg)
{
	struct liar *liar = arg;
	struct shm_request request;
	int fd = accept(liar->socket, NULL, NULL);

	if (recv(fd, &request, sizeof(request), 0) > 0 && !liar->silent)
		say(fd, liar);
	recv(fd, &request, sizeof(request), 0); /* until it is hung up on */
	close(fd);
	return NULL;
}

static int some_memfd(size_t size, unsigned int flags, int seals)
{
	int fd = memfd_create("lie", MFD_CLOEXEC | flags);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* A queue connects to one of the liar's. */
static int connect_to(struct liar *liar)
{
	static uint64_t id = 0x1234567800000000;
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_address address;
	struct sockaddr_un name;
	socklen_t size;

	liar->id = ++id ^ (uint64_t)getpid() << 20;
	size = vbn__shm_socket_name(liar->id, &name);
	liar->before = held_descriptors();
	liar->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(liar->socket, (struct sockaddr *)&name, size), 0);
	assert_int_equal(listen(liar->socket, 1), 0);
	assert_int_equal(pthread_create(&liar->thread, NULL, lie, liar), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	vbn_queue_address(duo.a, &address);
	memcpy(address.bytes + 16, &liar->id, sizeof(liar->id));
	unit_catch_log();
	return vbn_queue_connect(duo.a, &address);
}

static void disconnect_from(struct liar *liar)
{
	vbn_queue_destroy(duo.a);
	duo.a = NULL;
	pthread_join(liar->thread, NULL);
	close(liar->socket);
	assert_int_equal(held_descriptors(), liar->before);
	if (liar->fd >= 0)
		close(liar->fd);
}

static void believe_nothing(struct liar *liar, const char *words)
{
	assert_true(connect_to(liar) < 0);
	assert_logged(words);
	disconnect_from(liar);
}

static void test_lies(void **state)
{
	const uint32_t ring = 64 << 10;
	const size_t size = SHM_HEAD + ring;
	const struct shm_reply good = {.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.version = SHM_VERSION,
		.ring_size = ring,
		.max_message = 100};
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	struct liar liar = {.reply = good, .len = sizeof(good), .fd = -1, .life = -1};

	(void)state;
	believe_nothing(&liar, "makes no sense"); /* no descriptor */
	for (liar.more = 1; liar.more <= MORE; liar.more++) {
		liar.fd = some_memfd(size, MFD_ALLOW_SEALING, 0);
		believe_nothing(&liar, "not sealed against shrinking");
	}
	liar.more = 0;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, 0);
	believe_nothing(&liar, "not sealed against shrinking");
	liar.fd = some_memfd(size / 2, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "its size is not what was said");
	liar.fd = some_memfd(64 << 20, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "its size is not what was said");
	liar.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	believe_nothing(&liar, "it is no memfd");
	liar.reply.ring_size = ring + 8;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "no size that there is");
	liar.reply.ring_size = UINT32_MAX;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "no size that there is");
	liar.reply = good;
	liar.reply.version = 99;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "makes no sense");
	liar.reply = good;
	liar.reply.status = SHM_OTHER_VERSION;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "speaks versions");
	liar.reply.status = 4711;
	liar.fd = -1;
	believe_nothing(&liar, "makes no sense");
	liar.reply = good;
	liar.len = sizeof(good) - 1;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "has gone, or refused");
	liar.len = sizeof(good);
	liar.reply.magic++;
	liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
	believe_nothing(&liar, "has gone, or refused");
}

/* A life word that is none is left alone; one is believed of who handed it over. */
static void test_lies_of_life(void **state)
{
	const uint32_t ring = 64 << 10;
	const size_t size = SHM_HEAD + ring, page = (size_t)sysconf(_SC_PAGESIZE);
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW, died = FUTEX_OWNER_DIED;
	struct liar liar = {.reply = {.magic = SHM_MAGIC,
				    .version_min = SHM_VERSION_MIN,
				    .version_max = SHM_VERSION,
				    .version = SHM_VERSION,
				    .ring_size = ring,
				    .max_message = 100},
		.len = sizeof(liar.reply)};
	const int lives[] = {open("/dev/null", O_RDWR | O_CLOEXEC),
		some_memfd(page, MFD_ALLOW_SEALING, 0),
		some_memfd(page / 2, MFD_ALLOW_SEALING, seals),
		some_memfd(2 * page, MFD_ALLOW_SEALING, seals),
		some_memfd(page, MFD_ALLOW_SEALING, seals)};
	const size_t n = ARRAY_SIZE(lives);

	(void)state;
	assert_int_equal(pwrite(lives[n - 1], &died, sizeof(died), 0), sizeof(died));
	for (size_t i = 0; i < n; i++) {
		struct shm_head head = {.open = 1};

		liar.fd = some_memfd(size, MFD_ALLOW_SEALING, seals);
		assert_int_equal(pwrite(liar.fd, &head, sizeof(head), 0), sizeof(head));
		liar.life = lives[i];
		assert_int_equal(connect_to(&liar), 0);
		assert_int_equal(shm_queue(duo.a)->life != NULL, i == n - 1);
		assert_int_equal(vbn_poll(duo.worker, duo.events, 1), i == n - 1);
		if (i == n - 1)
			assert_has(vbn_queue_error(duo.a), "its process has ended");
		disconnect_from(&liar);
		close(lives[i]);
	}
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_no_requests),
		test(test_requests),
		test(test_lies),
		test(test_lies_of_life),
	};

	setenv("VBN_TEST_DEVICE", "shm", 1);
	return cmocka_run_group_tests_name("meet", tests, NULL, NULL);
}
