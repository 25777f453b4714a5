/* compressed_test.c - a queue whose receive completions come compressed, on an emulated device:
 * data, order, cuts, wraps, failures, and that sessions were what it read */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/mlx5.h"

#include "unit.h"

#include <verbena.h>

/* Linked ahead of libibverbs; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void);

enum { DEPTH = 64, N_BUFS = 512, DATA = 256, N_EVENTS = 64 };

struct fixture {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool;
	struct vbn_queue *a, *b;
	struct vbn_peer *to_b, *to_a;
};
static struct fixture f;

static int open_all(void **state)
{
	struct vbn_pool_conf pool = {.n_bufs = N_BUFS, .data_size = DATA, .headroom = VBN_NUM(64)};

	(void)state;
	assert_non_null(vhca_present());
	memset(&f, 0, sizeof(f));
	unit_catch_log();
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &f.worker), 0);
	assert_int_equal(vbn_port_open("mlx5_0", NULL, &f.port), 0);
	assert_int_equal(vbn_pool_create(&pool, &f.pool), 0);
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	vbn_queue_destroy(f.a);
	vbn_queue_destroy(f.b);
	vbn_peer_release(f.to_a);
	vbn_peer_release(f.to_b);
	assert_int_equal(vbn_pool_available(f.pool), N_BUFS);
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
		.rx_pool = f.pool,
		.cqe_compression = compression};
}

static void connect_pair(enum vbn_transport transport, enum vbn_switch compression)
{
	struct vbn_queue_conf conf = base_conf(transport, compression);
	struct vbn_address a, b;
	bool datagrams = transport == VBN_UD;

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

	if (!by_events)
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
		vbn_poll(f.worker, NULL, 0);
		vbn_recv(f.a, NULL, 0);
		must_not_take_longer(start);
	}
}

/* How many of them came compressed. */
static uint64_t stream_over(enum vbn_transport transport, enum vbn_switch compression, uint64_t n)
{
	struct vbn_queue_stats stats;

	connect_pair(transport, compression);
	stream(n);
	vbn_queue_stats(f.b, &stats);
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

static void test_off(void **state)
{
	(void)state;
	assert_int_equal(stream_over(VBN_RC, VBN_OFF, 2000), 0);
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

static void test_not_with_shared_cqs(void **state)
{
	struct vbn_queue_conf conf = base_conf(VBN_RC, VBN_ON);

	(void)state;
	conf.shared_cq = VBN_ON;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), -ENOTSUP);
	assert_logged("cqe_compression is on");
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_rc),
		test(test_uc),
		test(test_ud),
		test(test_off),
		test(test_modes),
		test(test_error_behind_a_session),
		test(test_impossible_session),
		test(test_not_with_shared_cqs),
	};

	return cmocka_run_group_tests_name("compressed", tests, NULL, NULL);
}
