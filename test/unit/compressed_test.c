/* compressed_test.c - queues whose completions come compressed, on an emulated device, with CQs of
 * their own, shared ones, and a shared receive ring: data, order, cuts, wraps, failures, queues that
 * go, and that sessions were what they read */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/mlx5.h"

#include "unit.h"

#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. Without, it
 * is on the device that VBN_TEST_DEVICE names. */
extern const char *vhca_present(void) __attribute__((weak));

enum { DEPTH = 64, N_BUFS = 512, DATA = 256, N_EVENTS = 64 };

/* How the queues get at their completions. */
enum kind { OWN, SHARED, SRQ, KINDS };

struct fixture {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool;
	struct vbn_queue *a, *b;
	struct vbn_peer *to_b, *to_a;
	struct vbn_srq *srq;
	enum kind kind;
	uint32_t cq_mod;
};
static struct fixture f;

static int open_all(void **state)
{
	struct vbn_pool_conf pool = {.n_bufs = N_BUFS, .data_size = DATA, .headroom = VBN_NUM(64)};
	const char *device = getenv("VBN_TEST_DEVICE");

	(void)state;
	if (vhca_present)
		vhca_present();
	memset(&f, 0, sizeof(f));
	unit_catch_log();
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &f.worker), 0);
	assert_int_equal(vbn_port_open(device ? device : "mlx5_0", NULL, &f.port), 0);
	assert_int_equal(vbn_pool_create(&pool, &f.pool), 0);
	return 0;
}

static void disconnect(void)
{
	vbn_queue_destroy(f.a);
	vbn_queue_destroy(f.b);
	vbn_srq_destroy(f.srq);
	vbn_peer_release(f.to_a);
	vbn_peer_release(f.to_b);
	f.a = f.b = NULL;
	f.srq = NULL;
	f.to_a = f.to_b = NULL;
	assert_int_equal(vbn_pool_available(f.pool), N_BUFS);
}

static int close_all(void **state)
{
	(void)state;
	disconnect();
	vbn_worker_detach(f.worker);
	vbn_pool_destroy(f.pool);
	vbn_port_close(f.port);
	vbn_fini();
	return 0;
}

static struct vbn_queue_conf base_conf(enum vbn_transport transport, enum vbn_switch compression)
{
	return (struct vbn_queue_conf){.transport = transport,
		.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = f.cq_mod,
		.rx_pool = f.pool,
		.srq = f.srq,
		.shared_cq = f.kind == SHARED ? VBN_ON : VBN_AUTO,
		.cqe_compression = compression};
}

static void make_srq(bool datagrams, enum vbn_switch compression)
{
	struct vbn_srq_conf conf = {.depth = DEPTH,
		.pool = f.pool,
		.datagrams = datagrams,
		.cqe_compression = compression};

	assert_int_equal(vbn_srq_create(f.worker, f.port, &conf, &f.srq), 0);
}

static void connect_pair(enum vbn_transport transport, enum vbn_switch compression)
{
	struct vbn_queue_conf conf;
	struct vbn_address a, b;
	bool datagrams = transport == VBN_UD;

	if (f.kind == SRQ)
		make_srq(datagrams, compression);
	conf = base_conf(transport, compression);
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), 0);
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.b), 0);
	vbn_queue_address(f.a, &a);
	vbn_queue_address(f.b, &b);
	assert_int_equal(vbn_queue_connect(f.a, datagrams ? NULL : &b), 0);
	assert_int_equal(vbn_queue_connect(f.b, datagrams ? NULL : &a), 0);
	if (!datagrams)
		return;
	assert_int_equal(vbn_peer_create(f.a, &b, &f.to_b), 0);
	assert_int_equal(vbn_peer_create(f.b, &a, &f.to_a), 0);
}

static void must_not_take_longer(uint64_t since)
{
	if (clock_ns() - since > 60ull * 1000 * 1000 * 1000)
		unit_fail("nothing came for 60 s; a: %s; b: %s; the log: %s", vbn_queue_error(f.a),
			vbn_queue_error(f.b), unit_log);
	sched_yield();
}

static uint32_t length_of(uint64_t message)
{
	return (uint32_t)(1 + message * 7 % (DATA - 40));
}

static uint8_t pattern(uint64_t message, uint32_t at)
{
	return (uint8_t)(message * 131 + at * 7 + 1);
}

static struct vbn_buf *new_buf(uint64_t message)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(f.pool, &buf, 1), 1);
	buf->len = length_of(message);
	for (uint32_t i = 0; i < buf->len; i++)
		buf->data[i] = pattern(message, i);
	if (f.to_b)
		vbn_buf_set_peer(buf, f.to_b);
	return buf;
}

static void check(const struct vbn_buf *buf, uint64_t message)
{
	if (buf->len != length_of(message))
		unit_fail("message %llu: length is %u and should be %u",
			(unsigned long long)message, buf->len, length_of(message));
	for (uint32_t i = 0; i < buf->len; i++)
		if (buf->data[i] != pattern(message, i))
			unit_fail("message %llu: byte %u is %u and should be %u",
				(unsigned long long)message, i, buf->data[i], pattern(message, i));
	if (f.to_a && !vbn_buf_is_from(buf, f.to_a))
		unit_fail("message %llu does not come from a", (unsigned long long)message);
}

/* Up to n, as bufs or as events; of every 50th message the sender gives immediate data. */
static int take(struct vbn_buf **bufs, int n, uint64_t message, bool by_events)
{
	struct vbn_event events[N_EVENTS];
	int got;

	if (!by_events && f.kind == OWN)
		return vbn_recv(f.b, bufs, n);
	got = vbn_poll(f.worker, events, n);
	for (int i = 0; i < got; i++) {
		const bool has_imm = (message + (uint64_t)i) % 50 == 49;

		assert_int_equal(events[i].op, VBN_OP_RECV);
		assert_ptr_equal(events[i].queue, f.b);
		assert_int_equal(events[i].len, events[i].buf->len);
		assert_int_equal(events[i].has_imm, has_imm);
		if (has_imm)
			assert_int_equal(events[i].imm, (uint32_t)message + (uint32_t)i);
		bufs[i] = events[i].buf;
	}
	return got;
}

static void send_some(uint64_t *sent, uint64_t until)
{
	while (*sent < until) {
		struct vbn_buf *buf = new_buf(*sent);
		int ret = *sent % 50 == 49 ? vbn_send_imm_one(f.a, buf, (uint32_t)*sent)
					   : vbn_send_one(f.a, buf);

		assert_true(ret >= 0);
		if (!ret) {
			vbn_buf_free(&buf, 1);
			break;
		}
		++*sent;
	}
	vbn_flush(f.a);
}

static void stream(uint64_t n)
{
	uint64_t sent = 0, received = 0, start = clock_ns(), round = 0;

	while (received < n) {
		struct vbn_buf *in[N_EVENTS];
		/* Now and then all of a session, more often a part of it. */
		const int most = round % 5 ? (int)(1 + round * 7 % 23) : N_EVENTS;
		int got;

		send_some(&sent, min(n, received + DEPTH));
		got = take(in, most, received, round++ & 1);
		assert_true(got >= 0);
		for (int i = 0; i < got; i++)
			check(in[i], received++);
		vbn_buf_free(in, got);
		if (got)
			start = clock_ns();
		else
			must_not_take_longer(start);
	}
	start = clock_ns();
	while (vbn_queue_outstanding(f.a)) {
		struct vbn_event none;

		assert_int_equal(vbn_poll(f.worker, &none, 1), 0);
		must_not_take_longer(start);
	}
}

/* How many of them came compressed. */
static struct vbn_queue_stats stats_of(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	return stats;
}

static uint64_t stream_over(enum vbn_transport transport, enum vbn_switch compression, uint64_t n)
{
	struct vbn_queue_stats stats;

	connect_pair(transport, compression);
	stream(n);
	stats = stats_of(f.b);
	assert_int_equal(stats.rx_messages, n);
	print_message("%llu of %llu compressed\n", (unsigned long long)stats.rx_compressed,
		(unsigned long long)n);
	return stats.rx_compressed;
}

/* Two passes of every 16-bit index, a thousand of each ring. */
static void test_rc(void **state)
{
	(void)state;
	assert_true(stream_over(VBN_RC, VBN_ON, 140000) > 140000 / 20);
}

static void test_uc(void **state)
{
	(void)state;
	assert_true(stream_over(VBN_UC, VBN_ON, 10000) > 10000 / 20);
}

/* The source is the title's; what stands in front of the data is each message's own. */
static void test_ud(void **state)
{
	(void)state;
	assert_true(stream_over(VBN_UD, VBN_ON, 10000) > 10000 / 20);
}

/* Shared CQs, and a shared ring, whose WQEs are a list: round each ring and every 16-bit index. */
static void test_shared(void **state)
{
	(void)state;
	for (f.kind = SHARED; f.kind < KINDS; f.kind++) {
		assert_true(stream_over(VBN_RC, VBN_ON, 70000) > 70000 / 20);
		disconnect();
		assert_true(stream_over(VBN_UD, VBN_ON, 10000) > 10000 / 20);
		disconnect();
	}
}

/* With a completion for each send, those come compressed, too, and are all accounted for. */
static void test_sends(void **state)
{
	(void)state;
	for (f.kind = OWN; f.kind < KINDS; f.kind++) {
		struct vbn_queue_stats stats;

		f.cq_mod = 1;
		stream_over(VBN_RC, VBN_ON, 70000);
		stats = stats_of(f.a);
		assert_int_equal(stats.tx_done, 70000);
		assert_int_equal(stats.tx_signalled, 70000 + stats.tx_nops);
		print_message("%llu of 70000 sends compressed\n",
			(unsigned long long)stats.tx_compressed);
		assert_true(stats.tx_compressed > 70000 / 20);
		disconnect();
		stream_over(VBN_RC, VBN_OFF, 1000);
		assert_int_equal(stats_of(f.a).tx_compressed, 0);
		disconnect();
	}
}

/* Bufs with a cookie come back one event each, in order, from a session of sends, however few there is
 * room for. */
static void test_events_of_sends(void **state)
{
	(void)state;
	for (f.kind = OWN; f.kind < KINDS; f.kind++) {
		uintptr_t next = 0;
		uint64_t start = clock_ns();
		int received = 0;

		f.cq_mod = 1;
		connect_pair(VBN_RC, VBN_ON);
		for (uintptr_t i = 0; i < DEPTH; i++) {
			struct vbn_buf *buf = new_buf(i);

			vbn_buf_set_cookie(buf, (void *)i);
			assert_int_equal(vbn_send_one(f.a, buf), 1);
		}
		vbn_flush(f.a);
		while (next < DEPTH || received < DEPTH) {
			struct vbn_event events[3];
			int n = vbn_poll(f.worker, events, ARRAY_SIZE(events));

			for (int i = 0; i < n; i++) {
				if (events[i].op == VBN_OP_SEND)
					assert_int_equal((uintptr_t)events[i].cookie, next++);
				else
					check(events[i].buf, (uint64_t)received++);
				vbn_buf_free(&events[i].buf, 1);
			}
			must_not_take_longer(start);
		}
		disconnect();
	}
}

static void test_off(void **state)
{
	(void)state;
	for (f.kind = OWN; f.kind < KINDS; f.kind++) {
		assert_int_equal(stream_over(VBN_RC, VBN_OFF, 2000), 0);
		disconnect();
	}
}

/* A queue goes in the middle of a session, and with sessions that nobody has read: its bufs are home,
 * the shared ring is full again, and the next queue finds nothing of them. */
static void test_queue_goes(void **state)
{
	(void)state;
	for (f.kind = SHARED; f.kind < KINDS; f.kind++) {
		uint64_t sessions = 0;

		f.cq_mod = 1;
		for (int round = 0; round < 30; round++) {
			uint64_t sent = 0, start = clock_ns();
			struct vbn_event event;

			connect_pair(VBN_RC, VBN_ON);
			send_some(&sent, 40);
			while (!vbn_poll(f.worker, &event, 1))
				must_not_take_longer(start);
			check(event.buf, 0);
			vbn_buf_free(&event.buf, 1);
			sessions += session_ready(mlx5_queue(f.b)->recv_cq->session) != 0;
			vbn_queue_destroy(f.b);
			vbn_queue_destroy(f.a);
			f.a = f.b = NULL;
			assert_int_equal(vbn_poll(f.worker, &event, 1), 0);
			if (f.srq) {
				struct vbn_srq_stats stats;

				vbn_srq_stats(f.srq, &stats);
				assert_int_equal(stats.posted, DEPTH);
			}
			disconnect();
		}
		print_message(
			"%llu of 30 in the middle of a session\n", (unsigned long long)sessions);
		assert_true(sessions);
		connect_pair(VBN_RC, VBN_ON);
		stream(1000);
		disconnect();
	}
}

static void test_modes(void **state)
{
	struct vbn_mode modes[64];
	int n, found = 0;

	(void)state;
	connect_pair(VBN_RC, VBN_ON);
	n = vbn_queue_modes(f.b, modes, ARRAY_SIZE(modes));
	for (int i = 0; i < n; i++) {
		if (strcmp(modes[i].name, "cqe_compression"))
			continue;
		assert_string_equal(modes[i].requested, "on");
		assert_string_equal(modes[i].effective, vbn__mini_decoder()->name);
		found++;
	}
	assert_int_equal(found, 1);
}

/* On a shared CQ: the queue fails behind what had arrived, from sessions that the error ended. */
static void test_error_shared(void **state)
{
	(void)state;
	for (f.kind = SHARED; f.kind < KINDS; f.kind++) {
		struct vbn_buf *buf, *rest;
		uint64_t sent = 0, received = 0, start = clock_ns();
		int failed = 0;

		f.cq_mod = 1;
		connect_pair(VBN_RC, VBN_ON);
		send_some(&sent, 20);
		buf = new_buf(20);
		rest = new_buf(21);
		buf->len = rest->len = DATA;
		vbn_buf_append(buf, rest);
		assert_int_equal(vbn_send_one(f.a, buf), 1);
		send_some(&sent, 40);
		while (failed < 2) {
			struct vbn_event events[3];
			int n = vbn_poll(f.worker, events, ARRAY_SIZE(events));

			for (int i = 0; i < n; i++) {
				failed += events[i].op == VBN_OP_FAILED;
				if (events[i].op != VBN_OP_RECV)
					continue;
				check(events[i].buf, received++);
				vbn_buf_free(&events[i].buf, 1);
			}
			must_not_take_longer(start);
		}
		assert_int_equal(received, 20);
		assert_has(vbn_queue_error(f.b), "local length error");
		disconnect();
	}
}

/* A message that fits no buf, behind others in one burst: what had arrived is handed out first, in
 * order, from a session that the error ended; then both ends fail. */
static void test_error_behind_a_session(void **state)
{
	struct vbn_buf *buf, *rest;
	uint64_t sent = 0, received = 0, start = clock_ns();
	int got = 0;

	(void)state;
	connect_pair(VBN_RC, VBN_ON);
	send_some(&sent, 20);
	buf = new_buf(20);
	rest = new_buf(21);
	buf->len = rest->len = DATA;
	vbn_buf_append(buf, rest);
	assert_int_equal(vbn_send_one(f.a, buf), 1);
	send_some(&sent, 40);
	while (got >= 0) {
		struct vbn_buf *in[3];

		got = vbn_recv(f.b, in, ARRAY_SIZE(in));
		for (int i = 0; i < got; i++)
			check(in[i], received++);
		vbn_buf_free(in, max(got, 0));
		must_not_take_longer(start);
	}
	assert_int_equal(got, -EPIPE);
	assert_int_equal(received, 20);
	assert_has(vbn_queue_error(f.b), "local length error");
	while (*vbn_queue_error(f.a) == '\0') {
		vbn_recv(f.a, NULL, 0);
		must_not_take_longer(start);
	}
}

/* A title that says more than was posted is a device gone wrong: the queue fails, in words. */
static void test_impossible_session(void **state)
{
	struct cq *cq;
	struct mlx5_cqe64 *cqe = NULL;
	struct vbn_buf *in[N_EVENTS];
	uint64_t sent = 0, start = clock_ns();
	uint8_t seen;

	(void)state;
	connect_pair(VBN_RC, VBN_ON);
	cq = &mlx5_queue(f.b)->own_recv_cq;
	send_some(&sent, 30);
	while (!cqe) {
		const struct mlx5_cqe64 *next;

		seen = cq_look(cq, cq->index, &next);
		if (cqe_is_title(seen)) {
			cqe = (struct mlx5_cqe64 *)(uintptr_t)next;
		} else if (!cqe_absent(seen)) { /* one that came alone */
			assert_int_equal(vbn_recv(f.b, in, 1), 1);
			vbn_buf_free(in, 1);
			send_some(&sent, sent + 1);
		}
		must_not_take_longer(start);
	}
	cqe->byte_cnt = be32(DEPTH + 1);
	assert_int_equal(vbn_recv(f.b, in, N_EVENTS), 0);
	assert_int_equal(vbn_recv(f.b, in, N_EVENTS), -EPIPE);
	assert_has(vbn_queue_error(f.b), "format 3");
}

/* The receives of an SRQ's queues come as the SRQ was made; the queue follows, or says that it cannot. */
static void test_srq_decides(void **state)
{
	(void)state;
	f.kind = SRQ;
	for (int on = 0; on < 2; on++) {
		struct vbn_queue_conf conf;

		make_srq(false, on ? VBN_ON : VBN_AUTO);
		conf = base_conf(VBN_RC, on ? VBN_OFF : VBN_ON);
		unit_catch_log();
		assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), -EINVAL);
		assert_logged("and its srq's is not: ask both for the same");
		conf.cqe_compression = VBN_AUTO;
		assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), 0);
		assert_int_equal(mlx5_queue(f.a)->send_cq->compressed, on);
		assert_int_equal(mlx5_queue(f.a)->recv_cq->compressed, on);
		disconnect();
	}
}

/* Compressed CQs and plain ones beside each other, with queues of both kinds. */
static void test_side_by_side(void **state)
{
	struct vbn_queue *a, *b;

	(void)state;
	f.kind = SHARED;
	connect_pair(VBN_RC, VBN_OFF);
	stream(1000);
	a = f.a;
	b = f.b;
	assert_true(stream_over(VBN_RC, VBN_ON, 5000) > 0);
	assert_ptr_not_equal(mlx5_queue(a)->recv_cq, mlx5_queue(f.a)->recv_cq);
	vbn_queue_destroy(f.a);
	vbn_queue_destroy(f.b);
	f.a = a;
	f.b = b;
	stream(1000);
	assert_int_equal(stats_of(b).rx_compressed, 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_rc),
		test(test_uc),
		test(test_ud),
		test(test_shared),
		test(test_sends),
		test(test_events_of_sends),
		test(test_off),
		test(test_queue_goes),
		test(test_modes),
		test(test_error_behind_a_session),
		test(test_error_shared),
		test(test_impossible_session),
		test(test_srq_decides),
		test(test_side_by_side),
	};

	return cmocka_run_group_tests_name("compressed", tests, NULL, NULL);
}
