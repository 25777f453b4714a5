/* mlx5_test.c - the mlx5 driver on an emulated device: data, order, wraps, events, failures, and
 * not one verbs call in the data path */

#include "drv/mlx5/mlx5.h"

#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <verbena.h>

/* Linked ahead of libibverbs; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void);

enum { DEPTH = 64, N_BUFS = 512, DATA = 4096, N_EVENTS = 256 };

/* Two queues of one worker, connected to each other, and an export for writes. */
struct fixture {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool, *other_pool;
	struct vbn_queue *a, *b;
	struct vbn_export *target;
	struct vbn_event events[N_EVENTS];
	struct vbn_buf *bufs[N_BUFS];
};
static struct fixture f;

/* The driver mlx5, or another one that must do the same: VBN_TEST_DEVICE=verbs:mlx5_0. */
static const char *device = "mlx5_0";

static bool refuse_no_scatter; /* mlx5dv_create_qp() as on a device that would not turn
				  scatter-to-CQE off */

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
	struct mlx5dv_qp_init_attr *dv)
{
	__typeof__(mlx5dv_create_qp) *real = (__typeof__(real))dlsym(RTLD_NEXT, "mlx5dv_create_qp");

	if (refuse_no_scatter && dv->create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return real(context, attr, dv);
}

static struct vbn_pool *make_pool(const char *name)
{
	struct vbn_pool *pool;

	assert_int_equal(
		vbn_pool_create(
			&(struct vbn_pool_conf){.n_bufs = N_BUFS, .data_size = DATA, .name = name},
			&pool),
		0);
	return pool;
}

static void connect_pair(const struct vbn_queue_conf *conf)
{
	struct vbn_address a, b;

	assert_int_equal(vbn_queue_create(f.worker, f.port, conf, &f.a), 0);
	assert_int_equal(vbn_queue_create(f.worker, f.port, conf, &f.b), 0);
	vbn_queue_address(f.a, &a);
	vbn_queue_address(f.b, &b);
	assert_int_equal(vbn_queue_connect(f.a, &b), 0);
	assert_int_equal(vbn_queue_connect(f.b, &a), 0);
}

static struct vbn_queue_conf base_conf(void)
{
	return (struct vbn_queue_conf){.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = 16,
		.rx_pool = f.pool,
		.remote_access = VBN_REMOTE_WRITE,
		.retry_count = VBN_NUM(1),
		.timeout = VBN_NUM(1)};
}

static int open_all(void **state)
{
	(void)state;
	assert_non_null(vhca_present());
	memset(&f, 0, sizeof(f));
	unit_catch_log();
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &f.worker), 0);
	assert_int_equal(vbn_port_open(device, NULL, &f.port), 0);
	f.pool = make_pool("main");
	f.other_pool = make_pool("other");
	assert_int_equal(
		vbn_export_create(f.port,
			&(struct vbn_export_conf){.size = DATA * DEPTH, .access = VBN_REMOTE_WRITE},
			&f.target),
		0);
	return 0;
}

/* Every buf is home again, whatever happened to the queues. */
static int close_all(void **state)
{
	(void)state;
	vbn_queue_destroy(f.a);
	vbn_queue_destroy(f.b);
	assert_int_equal(vbn_pool_available(f.pool), N_BUFS);
	assert_int_equal(vbn_pool_available(f.other_pool), N_BUFS);
	vbn_export_destroy(f.target);
	vbn_worker_detach(f.worker);
	vbn_pool_destroy(f.pool);
	vbn_pool_destroy(f.other_pool);
	vbn_port_close(f.port);
	vbn_fini();
	refuse_no_scatter = false;
	return 0;
}

static void must_not_take_longer(uint64_t since)
{
	if (clock_ns() - since > 20ull * 1000 * 1000 * 1000)
		unit_fail("nothing came for 20 s; a: %s; b: %s; the log: %s",
			f.a ? vbn_queue_error(f.a) : "", f.b ? vbn_queue_error(f.b) : "", unit_log);
	sched_yield();
}

static uint8_t pattern(uint64_t message, size_t at)
{
	return (uint8_t)(message * 131 + at * 7 + 1);
}

static void fill(struct vbn_buf *buf, uint64_t message, uint32_t len)
{
	buf->len = len;
	for (uint32_t i = 0; i < len; i++)
		buf->data[i] = pattern(message, i);
}

static void check(const uint8_t *data, uint64_t message, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (data[i] != pattern(message, i))
			unit_fail("message %llu: byte %u is %u and should be %u",
				(unsigned long long)message, i, data[i], pattern(message, i));
}

static struct vbn_buf *new_buf(struct vbn_pool *pool)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	return buf;
}

/* Waits for n events of the worker, sorted into f.events. */
static void wait_events(int n)
{
	uint64_t start = clock_ns();
	int got = 0;

	while (got < n) {
		got += vbn_poll(f.worker, f.events + got, n - got);
		must_not_take_longer(start);
	}
}

static void wait_idle(struct vbn_queue *queue)
{
	uint64_t start = clock_ns();

	while (vbn_queue_outstanding(queue)) {
		assert_int_equal(vbn_poll(f.worker, f.events, N_EVENTS), 0);
		must_not_take_longer(start);
	}
}

/* Sends `n` messages of lengths that `length` gives, in bursts, and checks each at the other end.
 */
static void stream(uint64_t n, uint32_t (*length)(uint64_t))
{
	uint64_t sent = 0, received = 0, start = clock_ns();

	while (received < n) {
		struct vbn_buf *burst[24], *in[24];
		int want = (int)min(n - sent, (uint64_t)ARRAY_SIZE(burst)), took, got;

		if (want && vbn_buf_alloc(f.pool, burst, want) == want) {
			for (int i = 0; i < want; i++)
				fill(burst[i], sent + (uint64_t)i, length(sent + (uint64_t)i));
			took = vbn_send(f.a, burst, want);
			assert_true(took >= 0);
			vbn_buf_free(burst + took, want - took);
			sent += (uint64_t)took;
			vbn_flush(f.a);
		}
		got = vbn_recv(f.b, in, ARRAY_SIZE(in));
		assert_true(got >= 0);
		for (int i = 0; i < got; i++) {
			assert_int_equal(in[i]->len, length(received));
			check(in[i]->data, received++, in[i]->len);
		}
		vbn_buf_free(in, got);
		if (got)
			start = clock_ns();
		else
			must_not_take_longer(start);
	}
	wait_idle(f.a);
}

static uint32_t small(uint64_t message)
{
	return (uint32_t)(1 + message % 40);
}

static uint32_t mixed(uint64_t message)
{
	return message % 50 == 0 ? 0 : message % 49 == 0 ? DATA : (uint32_t)(1 + message % 300);
}

/* 150,000 messages: every 16-bit index wraps twice, every ring thousands of times. */
static void test_stream_wraps(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_queue_stats stats;

	(void)state;
	connect_pair(&conf);
	stream(150000, small);
	vbn_queue_stats(f.a, &stats);
	assert_int_equal(stats.tx_messages, 150000);
	assert_int_equal(stats.tx_done, 150000);
	vbn_queue_stats(f.b, &stats);
	assert_int_equal(stats.rx_messages, 150000);
}

static void test_mixed_sizes(void **state)
{
	struct vbn_queue_conf conf = base_conf();

	(void)state;
	connect_pair(&conf);
	stream(20000, mixed);
}

/* Inlined messages take one to several WQEBBs, so they pass the ring's end in the middle. */
static void test_inlining_wraps(void **state)
{
	struct vbn_queue_conf conf = base_conf();

	(void)state;
	conf.inline_size = (struct vbn_num)VBN_NUM(200);
	connect_pair(&conf);
	stream(100000, mixed);
}

/* The data path with every verbs entry point made to abort: calls, macros and function pointers
 * alike. */
static void test_no_verbs_in_data_path(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct ibv_context *context = rdma_port(f.port)->context;
	struct ibv_context_ops saved = context->ops;
	struct ibv_qp_ex *qp_ex;

	(void)state;
	connect_pair(&conf);
	context->ops.poll_cq =
		(int (*)(struct ibv_cq *, int, struct ibv_wc *))(void (*)(void))abort;
	context->ops.post_send = (__typeof__(context->ops.post_send))(void (*)(void))abort;
	context->ops.post_recv = (__typeof__(context->ops.post_recv))(void (*)(void))abort;
	context->ops.post_srq_recv = (__typeof__(context->ops.post_srq_recv))(void (*)(void))abort;
	context->ops.req_notify_cq = (__typeof__(context->ops.req_notify_cq))(void (*)(void))abort;
	qp_ex = ibv_qp_to_qp_ex(mlx5_queue(f.a)->qp);
	if (qp_ex) {
		qp_ex->wr_start = (__typeof__(qp_ex->wr_start))(void (*)(void))abort;
		qp_ex->wr_send = (__typeof__(qp_ex->wr_send))(void (*)(void))abort;
		qp_ex->wr_rdma_write = (__typeof__(qp_ex->wr_rdma_write))(void (*)(void))abort;
		qp_ex->wr_complete = (__typeof__(qp_ex->wr_complete))(void (*)(void))abort;
	}
	stream(2000, mixed);
	context->ops = saved;
}

static void test_send_inline(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	uint64_t sent = 0, received = 0, start = clock_ns();

	(void)state;
	conf.inline_size = (struct vbn_num)VBN_NUM(100);
	connect_pair(&conf);
	while (received < 20000) {
		struct vbn_buf *in[16];
		uint8_t bytes[100];
		size_t len = sent % 101;
		int got;

		for (size_t i = 0; i < len; i++)
			bytes[i] = pattern(sent, i);
		if (sent < 20000) {
			int took = vbn_send_inline(f.a, bytes, len);

			assert_in_range(took, 0, 1);
			sent += (uint64_t)took;
		}
		vbn_flush(f.a);
		got = vbn_recv(f.b, in, ARRAY_SIZE(in));
		for (int i = 0; i < got; i++) {
			assert_int_equal(in[i]->len, received % 101);
			check(in[i]->data, received++, in[i]->len);
		}
		vbn_buf_free(in, got);
		must_not_take_longer(start);
	}
	assert_int_equal(vbn_send_inline(f.a, f.bufs, 101), -EMSGSIZE);
	wait_idle(f.a);
}

/* Chains of five segments from two pools, each WQE of two WQEBBs, over the ring's end. */
static void test_chains(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_buf *in[8];

	(void)state;
	conf.max_gather = 5;
	conf.tx_pool = f.pool;
	connect_pair(&conf);
	assert_int_equal(vbn_port_register(f.port, vbn_pool_zone(f.other_pool)), 0);
	for (int round = 0; round < 995; round++) {
		struct vbn_buf *chain = new_buf(f.pool);
		uint64_t start = clock_ns();
		uint32_t total = 10;
		int got;

		chain->len = 10;
		for (int i = 1; i < 5; i++) {
			struct vbn_buf *segment = new_buf(i & 1 ? f.other_pool : f.pool);

			segment->len = (uint32_t)(i == 3 ? 0 : 10 + i);
			total += segment->len;
			vbn_buf_append(chain, segment);
		}
		total = 0;
		for (struct vbn_buf *at = chain;; at = at->next) {
			for (uint32_t i = 0; i < at->len; i++)
				at->data[i] = pattern((uint64_t)round, total++);
			if (!(at->flags & VBN_BUF_CHAIN))
				break;
		}
		assert_int_equal(vbn_send(f.a, &chain, 1), 1);
		if (round % 7)
			continue;
		vbn_flush(f.a);
		for (int left = round ? 7 : 1; left; left -= got) {
			got = vbn_recv(f.b, in, min(left, (int)ARRAY_SIZE(in)));
			for (int i = 0; i < got; i++) {
				assert_int_equal(in[i]->len, total);
				check(in[i]->data, (uint64_t)(round - left + 1 + i), total);
			}
			vbn_buf_free(in, got);
			must_not_take_longer(start);
		}
	}
	wait_idle(f.a);
}

static void test_what_cannot_be_sent(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_buf *chain = new_buf(f.pool), *foreign = new_buf(f.other_pool);

	(void)state;
	conf.max_gather = 2;
	conf.tx_depth = 8;
	conf.cq_mod = 4;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), 0);
	assert_int_equal(vbn_send_one(f.a, chain), -ENOTCONN);
	vbn_queue_destroy(f.a);
	connect_pair(&conf);
	foreign->len = 1;
	assert_int_equal(
		vbn_send_one(f.a, foreign), -EINVAL); /* a zone that the port does not know */
	chain->len = 1;
	for (int i = 0; i < 2; i++) {
		struct vbn_buf *segment = new_buf(f.pool);

		segment->len = 1;
		vbn_buf_append(chain, segment);
	}
	assert_int_equal(vbn_send_one(f.a, chain), -EINVAL); /* three segments of two */
	assert_int_equal(vbn_queue_outstanding(f.a), 0);
	vbn_buf_free(&chain, 1);
	vbn_buf_free(&foreign, 1);
	/* A full ring takes what fits and leaves the rest. */
	assert_int_equal(vbn_buf_alloc(f.pool, f.bufs, 20), 20);
	for (int i = 0; i < 20; i++)
		f.bufs[i]->len = 8;
	assert_int_equal(vbn_send(f.a, f.bufs, 20), 8);
	assert_int_equal(vbn_send(f.a, f.bufs + 8, 12), 0);
	vbn_buf_free(f.bufs + 8, 12);
	vbn_flush(f.a);
	for (int got = 0; got < 8;) {
		struct vbn_buf *in[8];
		int n = vbn_recv(f.b, in, 8);

		vbn_buf_free(in, n);
		got += n;
	}
	wait_idle(f.a);
}

static void test_cookies_and_keep(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	int returned = 0, received = 0;
	uint64_t start = clock_ns();

	(void)state;
	connect_pair(&conf);
	for (uintptr_t i = 0; i < 30; i++) {
		struct vbn_buf *buf = new_buf(f.pool);

		fill(buf, i, 50);
		if (i % 3 == 1)
			vbn_buf_set_cookie(buf, (void *)i);
		if (i % 3 == 2)
			buf->flags |= VBN_BUF_KEEP;
		f.bufs[i] = buf;
	}
	assert_int_equal(vbn_send(f.a, f.bufs, 30), 30);
	assert_int_equal(vbn_worker_poll(f.worker), 0); /* the loop's own flush */
	while (returned < 20 || received < 30) {
		int n = vbn_poll(f.worker, f.events, 7);

		for (int i = 0; i < n; i++) {
			struct vbn_event *event = &f.events[i];

			assert_int_equal(event->status, VBN_OK);
			if (event->op == VBN_OP_RECV) {
				assert_ptr_equal(event->queue, f.b);
				assert_int_equal(event->len, 50);
				check(event->buf->data, (uint64_t)received++, 50);
			} else {
				uintptr_t index = (uintptr_t)(returned / 2 * 3 + 1 + returned % 2);

				assert_int_equal(event->op, VBN_OP_SEND);
				assert_ptr_equal(event->queue, f.a);
				assert_ptr_equal(event->buf, f.bufs[index]);
				assert_ptr_equal(
					event->cookie, index % 3 == 1 ? (void *)index : NULL);
				returned++;
			}
			vbn_buf_free(&event->buf, 1);
		}
		must_not_take_longer(start);
	}
}

/* Fewer sends than cq_mod: their bufs come home all the same. */
static void test_idle_tail_completes(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_queue_stats stats;

	(void)state;
	conf.cq_mod = 64;
	connect_pair(&conf);
	for (int i = 0; i < 5; i++) {
		struct vbn_buf *buf = new_buf(f.pool);

		fill(buf, 0, 10);
		assert_int_equal(vbn_send_one(f.a, buf), 1);
		vbn_flush(f.a); /* the first asks for a completion, the others ride behind it */
	}
	wait_events(5);
	for (int i = 0; i < 5; i++)
		vbn_buf_free(&f.events[i].buf, 1);
	wait_idle(f.a);
	vbn_queue_stats(f.a, &stats);
	assert_int_equal(stats.tx_done, 5);
	assert_true(stats.tx_nops <= 1);
	assert_int_equal(stats.tx_doorbells, 5 + stats.tx_nops);
}

static void test_write(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	uint8_t *target = vbn_export_addr(f.target);

	(void)state;
	connect_pair(&conf);
	for (uint64_t round = 0; round < 40; round++) {
		struct vbn_remote remotes[DEPTH];

		assert_int_equal(vbn_buf_alloc(f.pool, f.bufs, DEPTH), DEPTH);
		for (uint32_t i = 0; i < DEPTH; i++) {
			fill(f.bufs[i], round * DEPTH + i, i % 8 ? i * 60 : 0);
			remotes[i] = vbn_export_remote(f.target, i * (size_t)DATA);
		}
		vbn_buf_set_cookie(f.bufs[DEPTH - 1], &f);
		assert_int_equal(vbn_write(f.a, f.bufs, remotes, DEPTH), DEPTH);
		vbn_flush(f.a);
		wait_events(1);
		assert_int_equal(f.events[0].op, VBN_OP_WRITE);
		assert_ptr_equal(f.events[0].cookie, &f);
		vbn_buf_free(&f.events[0].buf, 1);
		for (uint32_t i = 0; i < DEPTH; i++)
			check(target + (size_t)i * DATA, round * DEPTH + i, i % 8 ? i * 60 : 0);
	}
}

/* A write that the peer's export does not allow fails one queue: reported in words, then the
 * outstanding work in order; the rest goes on. */
static void test_remote_access_error(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_queue *failed, *other;
	struct vbn_queue_stats stats;

	(void)state;
	connect_pair(&conf);
	for (int i = 0; i < 6; i++) {
		f.bufs[i] = new_buf(f.pool);
		fill(f.bufs[i], (uint64_t)i, 16);
		if (i != 1)
			vbn_buf_set_cookie(f.bufs[i], &f.bufs[i]);
		assert_int_equal(vbn_write_one(f.a, f.bufs[i],
					 (struct vbn_remote){vbn_export_remote(f.target, 0).addr +
							 (i == 2 ? 1u << 30 : 0),
						 vbn_export_remote(f.target, 0).rkey}),
			1);
	}
	vbn_flush(f.a);
	wait_events(6);
	/* The first has been carried out; the other end's queue may report, too. */
	static const struct {
		int buf, op, status;
	} expected[] = {{0, VBN_OP_WRITE, VBN_OK}, {-1, VBN_OP_FAILED, VBN_REMOTE_ACCESS},
		{2, VBN_OP_WRITE, VBN_REMOTE_ACCESS}, {3, VBN_OP_WRITE, VBN_FLUSHED},
		{4, VBN_OP_WRITE, VBN_FLUSHED}, {5, VBN_OP_WRITE, VBN_FLUSHED}};
	int at = 0;
	uint64_t start = clock_ns();

	for (int n = 6; at < 6; n = vbn_poll(f.worker, f.events, N_EVENTS)) {
		for (int i = 0; i < n; i++) {
			struct vbn_event *event = &f.events[i];

			if (event->queue != f.a)
				continue;
			assert_int_equal(event->op, expected[at].op);
			assert_int_equal(event->status, expected[at].status);
			assert_ptr_equal(
				event->buf, expected[at].buf < 0 ? NULL : f.bufs[expected[at].buf]);
			if (event->buf)
				vbn_buf_free(&event->buf, 1);
			at++;
		}
		must_not_take_longer(start);
	}
	assert_has(vbn_queue_error(f.a), "remote access error");
	assert_has(vbn_queue_error(f.a), "(RDMA_WRITE, ");
	assert_has(vbn_queue_error(f.a), " segments, 16 bytes at 0x");
	assert_int_equal(vbn_send_inline(f.a, "x", 1), -EPIPE);
	assert_int_equal(vbn_send(f.a, f.bufs, 0), -EPIPE);
	assert_int_equal(vbn_recv(f.a, f.bufs, 1), -EPIPE);
	vbn_queue_stats(f.a, &stats);
	assert_int_equal(stats.tx_done, 2);
	assert_int_equal(stats.tx_flushed, 4);
	/* Another pair on the same port is not disturbed. */
	failed = f.a;
	other = f.b;
	connect_pair(&conf);
	stream(1000, small);
	vbn_queue_destroy(failed);
	vbn_queue_destroy(other);
}

/* A message longer than the receive buf: both ends fail, each with its own reason, and all bufs
 * come home (close_all checks). */
static void test_message_too_long(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_buf *chain = new_buf(f.pool), *segment = new_buf(f.pool);
	bool a = false, b = false;
	uint64_t start = clock_ns();

	(void)state;
	connect_pair(&conf);
	fill(chain, 1, DATA);
	fill(segment, 2, 1);
	vbn_buf_append(chain, segment);
	assert_int_equal(vbn_send_one(f.a, chain), 1);
	vbn_flush(f.a);
	while (!a || !b) {
		int n = vbn_poll(f.worker, f.events, N_EVENTS);

		for (int i = 0; i < n; i++) {
			assert_int_equal(f.events[i].op, VBN_OP_FAILED);
			if (f.events[i].queue == f.a) {
				assert_int_equal(f.events[i].status, VBN_REMOTE_INVALID);
				a = true;
			} else {
				assert_int_equal(f.events[i].status, VBN_LOCAL_LENGTH);
				b = true;
			}
		}
		must_not_take_longer(start);
	}
	assert_has(vbn_queue_error(f.a), "a send longer than its receive bufs, a write, read");
	assert_has(vbn_queue_error(f.b), "local length error");
	while (vbn_pool_available(f.pool) != N_BUFS) { /* both receive rings are flushed */
		vbn_poll(f.worker, f.events, N_EVENTS);
		must_not_take_longer(start);
	}
}

static void test_peer_gone(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_buf *buf = new_buf(f.pool);

	(void)state;
	connect_pair(&conf);
	vbn_queue_destroy(f.b);
	f.b = NULL;
	fill(buf, 1, 8);
	assert_int_equal(vbn_send_one(f.a, buf), 1);
	vbn_flush(f.a);
	wait_events(1);
	assert_int_equal(f.events[0].op, VBN_OP_FAILED);
	assert_int_equal(f.events[0].status, VBN_RETRY_EXCEEDED);
	assert_has(vbn_queue_error(f.a), "transport retry counter exceeded");
	assert_has(vbn_queue_error(f.a), "peer ::ffff:");
}

/* An empty pool keeps receives from being posted again: counted, and made good when bufs come back.
 */
static void test_pool_runs_empty(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_queue_stats stats;
	struct vbn_buf *hoard[N_BUFS], *in[DEPTH];
	uint64_t start = clock_ns();
	int hoarded, got = 0;

	(void)state;
	conf.tx_pool = f.other_pool;
	connect_pair(&conf);
	hoarded = (int)vbn_pool_available(f.pool);
	assert_int_equal(vbn_buf_alloc(f.pool, hoard, hoarded), hoarded);
	for (int i = 0; i < DEPTH / 2; i++)
		assert_int_equal(vbn_send_inline(f.a, "some bytes", 10), 1);
	vbn_flush(f.a);
	while (got < DEPTH / 2) {
		got += vbn_recv(f.b, in + got, DEPTH / 2 - got);
		must_not_take_longer(start);
	}
	vbn_queue_stats(f.b, &stats);
	assert_true(stats.rx_no_buf >= DEPTH / 2);
	vbn_buf_free(in, got);
	vbn_buf_free(hoard, hoarded);
	assert_int_equal(vbn_recv(f.b, in, 1), 0);
	stream(DEPTH * 4, small);
}

/* A device that scatters small receives into the CQE although asked not to: decoded. */
static void test_scatter_to_cqe_decoded(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_mode modes[32];
	int n;

	(void)state;
	refuse_no_scatter = true;
	connect_pair(&conf);
	n = vbn_queue_modes(f.b, modes, ARRAY_SIZE(modes));
	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, "scatter_to_cqe"))
			assert_string_equal(modes[i].effective, "decoded");
	stream(20000, mixed);
}

/* What a program gets wrong is refused, and nothing is lost by it. */
static void test_misuse_is_refused(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_port *port;

	(void)state;
	connect_pair(&conf);
	assert_int_equal(vbn_send(f.a, f.bufs, -1), 0);
	assert_int_equal(vbn_send(f.a, f.bufs, 0), 0);
	assert_int_equal(vbn_recv(f.b, f.bufs, -5), 0);
	assert_int_equal(vbn_poll(f.worker, f.events, -1), 0);
	assert_int_equal(vbn_buf_alloc(f.pool, f.bufs, -1), -ENOBUFS);
	assert_int_equal(vbn_port_open(NULL, NULL, &port), -EINVAL);
	assert_int_equal(vbn_port_open("", NULL, &port), -EINVAL);
	assert_int_equal(vbn_port_open("nodriver:mlx5_0", NULL, &port), -ENODEV);
	assert_logged("may stand a driver's");
	assert_int_equal(vbn_port_gids("mlx5_99", NULL, 0), -ENODEV);
	assert_int_equal(vbn_port_open("mlx5_0:2", NULL, &port), -ENXIO);
	assert_int_equal(vbn_port_open("mlx5_99", NULL, &port), -ENODEV);
	vbn_port_close(f.port);
	assert_logged("cannot be closed: it has 2 queues and 1 exports");
	vbn_pool_destroy(f.pool);
	assert_logged("128 of its 512 bufs are not home: destroy the queues");
	stream(500, small); /* all of it is still there */
}

/* What is required is missed with a sentence, not by its address. */
static void test_nothing_is_refused(void **state)
{
	const struct vbn_queue_conf conf = base_conf();
	struct vbn_queue *queue;
	struct vbn_export *exported;
	struct vbn_pool *pool;
	struct vbn_srq *srq;
	struct vbn_zone *zone;

	(void)state;
	assert_int_equal(vbn_queue_create(NULL, f.port, &conf, &queue), -EPERM);
	assert_int_equal(vbn_queue_create(f.worker, NULL, &conf, &queue), -EINVAL);
	assert_int_equal(vbn_queue_create(f.worker, f.port, NULL, &queue), -EINVAL);
	assert_int_equal(vbn_srq_create(NULL, f.port, NULL, &srq), -EPERM);
	assert_int_equal(vbn_srq_create(f.worker, NULL, NULL, &srq), -EINVAL);
	assert_int_equal(vbn_srq_create(f.worker, f.port, NULL, &srq), -EINVAL);
	assert_int_equal(vbn_export_create(NULL, NULL, &exported), -EINVAL);
	assert_int_equal(vbn_export_create(f.port, NULL, &exported), -EINVAL);
	assert_int_equal(vbn_pool_create(NULL, &pool), -EINVAL);
	assert_int_equal(vbn_zone_create(NULL, &zone), -EINVAL);
	assert_int_equal(vbn_port_register(f.port, NULL), -EINVAL);
	assert_int_equal(vbn_port_register(NULL, NULL), -EINVAL);
}

static void *change_elsewhere(void *arg)
{
	const struct vbn_queue_conf conf = base_conf();
	struct vbn_address address = {0};
	struct vbn_queue *queue;

	(void)arg;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &queue), -EPERM);
	assert_int_equal(vbn_queue_connect(f.a, &address), -EPERM);
	assert_int_equal(vbn_queue_reset(f.a), -EPERM);
	return NULL;
}

static void test_other_threads_are_refused(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	pthread_t thread;

	(void)state;
	connect_pair(&conf);
	assert_int_equal(pthread_create(&thread, NULL, change_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	assert_logged("made and changed on its own thread");
	stream(500, small);
}

#ifdef VBN_DEBUG_BUFS
static void expect_abort(void (*misuse)(struct vbn_buf *buf), struct vbn_buf *buf)
{
	pid_t child = fork();
	int status;

	if (!child) {
		misuse(buf);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void send_it(struct vbn_buf *buf)
{
	vbn_send(f.a, &buf, 1);
}

static void free_it(struct vbn_buf *buf)
{
	vbn_buf_free(&buf, 1);
}

/* Debug builds end at the call that is wrong: sent twice, freed while sent, sent when free, longer than its room. */
static void test_debug_sends(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_buf *buf = new_buf(f.pool), *in;
	uint64_t start = clock_ns();

	(void)state;
	connect_pair(&conf);
	buf->len = DATA + 1;
	expect_abort(send_it, buf);
	buf->len = 8;
	assert_int_equal(vbn_send(f.a, &buf, 1), 1);
	expect_abort(send_it, buf);
	expect_abort(free_it, buf);
	vbn_flush(f.a);
	while (!vbn_recv(f.b, &in, 1))
		must_not_take_longer(start);
	vbn_buf_free(&in, 1);
	wait_idle(f.a);
	expect_abort(send_it, buf);
}
#endif

static void expect_refused(const struct vbn_queue_conf *conf, int error, const char *sentence)
{
	struct vbn_queue *queue;

	unit_catch_log();
	assert_int_equal(vbn_queue_create(f.worker, f.port, conf, &queue), error);
	assert_logged(sentence);
}

static void test_conf_ranges(void **state)
{
	struct vbn_queue_conf conf = base_conf();

	(void)state;
	conf.tx_depth = 100;
	expect_refused(&conf, -EINVAL, "tx_depth is 100 and must be a power of two: take 128");
	conf = base_conf();
	conf.rx_depth = N_BUFS * 2;
	expect_refused(&conf, -ENOMEM, "has 512 bufs and the receive ring takes 1024");
	conf = base_conf();
	conf.retry_count = (struct vbn_num)VBN_NUM(8);
	expect_refused(&conf, -EINVAL, "retry_count is 8 and must be 0 to 7");
	conf = base_conf();
	conf.timeout = (struct vbn_num)VBN_NUM(32);
	expect_refused(&conf, -EINVAL, "timeout is 32 and must be 0 to 31");
	conf = base_conf();
	conf.cq_mod = DEPTH * 2;
	expect_refused(&conf, -EINVAL, "cq_mod is 128 and must be 1 to 64");
	conf = base_conf();
	conf.inline_size = (struct vbn_num)VBN_NUM(5000);
	expect_refused(&conf, -EINVAL, "inline_size is 5000");
	conf = base_conf();
	conf.blueflame = (enum vbn_switch)7;
	expect_refused(&conf, -EINVAL, "blueflame is 7 and must be 0 to 2");
	conf = base_conf();
	conf.rx_pool = NULL;
	expect_refused(&conf, -EINVAL, "set rx_pool");
}

static void test_address_of_a_stranger(void **state)
{
	struct vbn_queue_conf conf = base_conf();
	struct vbn_address address;

	(void)state;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), 0);
	vbn_queue_address(f.a, &address);
	address.bytes[5] = VBN_UC;
	assert_int_equal(vbn_queue_connect(f.a, &address), -EINVAL);
	assert_logged("its transport is RC and the peer's UC");
	address.bytes[5] = VBN_RC;
	for (size_t i = 0; i < 8; i++) { /* each byte that is checked, made wrong */
		struct vbn_address wrong = address;

		wrong.bytes[i] ^= 0xa5;
		assert_int_equal(vbn_queue_connect(f.a, &wrong), -EINVAL);
	}
	assert_int_equal(vbn_queue_connect(f.a, &address), 0); /* to itself */
	assert_int_equal(vbn_queue_connect(f.a, &address), -EISCONN);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_stream_wraps),
		test(test_mixed_sizes),
		test(test_inlining_wraps),
		test(test_send_inline),
		test(test_chains),
		test(test_what_cannot_be_sent),
		test(test_cookies_and_keep),
		test(test_idle_tail_completes),
		test(test_write),
		test(test_remote_access_error),
		test(test_message_too_long),
		test(test_peer_gone),
		test(test_pool_runs_empty),
		test(test_misuse_is_refused),
		test(test_nothing_is_refused),
		test(test_other_threads_are_refused),
#ifdef VBN_DEBUG_BUFS
		test(test_debug_sends),
#endif
		test(test_conf_ranges),
		test(test_address_of_a_stranger),
	};
	const struct CMUnitTest direct_tests[] = {
		test(test_no_verbs_in_data_path),
		test(test_scatter_to_cqe_decoded),
	};
	int failed;

	if (getenv("VBN_TEST_DEVICE"))
		device = getenv("VBN_TEST_DEVICE");
	failed = cmocka_run_group_tests_name(device, tests, NULL, NULL);
	if (!strcmp(device, "mlx5_0"))
		failed += cmocka_run_group_tests_name("direct verbs", direct_tests, NULL, NULL);
	return failed;
}
