/* duo.c - two queues of one worker, for tests */

#include "duo.h"

#include <sched.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

struct duo duo;

/* Another driver that must do the same: VBN_TEST_DEVICE=verbs:mlx5_0. */
static const char *device(void)
{
	const char *asked = getenv("VBN_TEST_DEVICE");

	return asked ? asked : "mlx5:mlx5_0";
}

bool duo_is_direct(void)
{
	return !strncmp(device(), "mlx5:", 5);
}

bool duo_is_emulated(void)
{
	return vhca_present && vhca_present();
}

int duo_open(void **state)
{
	(void)state;
	duo_is_emulated();
	memset(&duo, 0, sizeof(duo));
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &duo.worker), 0);
	assert_int_equal(vbn_port_open(device(), NULL, &duo.port), 0);
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = DUO_BUFS, .data_size = DUO_DATA},
			&duo.pool),
		0);
	assert_int_equal(
		vbn_export_create(duo.port,
			&(struct vbn_export_conf){.size = DUO_DATA * DUO_DEPTH,
				.access = VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC},
			&duo.target),
		0);
	return 0;
}

void duo_disconnect(void)
{
	vbn_queue_destroy(duo.a);
	vbn_queue_destroy(duo.b);
	vbn_peer_release(duo.to_a);
	vbn_peer_release(duo.to_b);
	vbn_srq_destroy(duo.srq);
	duo.a = duo.b = NULL;
	duo.n_failures = 0;
	duo.to_a = duo.to_b = NULL;
	duo.srq = NULL;
}

int duo_close(void **state)
{
	(void)state;
	duo_disconnect();
	assert_int_equal(vbn_pool_available(duo.pool), DUO_BUFS);
	vbn_export_destroy(duo.target);
	vbn_worker_detach(duo.worker);
	vbn_pool_destroy(duo.pool);
	vbn_port_close(duo.port);
	vbn_fini();
	return 0;
}

struct vbn_queue_conf duo_conf(enum vbn_transport transport, enum duo_kind kind)
{
	struct vbn_srq_conf srq = {
		.depth = DUO_DEPTH, .pool = duo.pool, .datagrams = transport == VBN_UD};

	if (kind == DUO_SRQ && !duo.srq)
		assert_int_equal(vbn_srq_create(duo.worker, duo.port, &srq, &duo.srq), 0);
	return (struct vbn_queue_conf){
		.transport = transport,
		.tx_depth = DUO_DEPTH,
		.rx_depth = DUO_DEPTH,
		.cq_mod = 16,
		.rx_pool = duo.pool,
		.srq = kind == DUO_SRQ ? duo.srq : NULL,
		.shared_cq = kind == DUO_SHARED ? VBN_ON : VBN_AUTO,
		.remote_access = VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC,
		.retry_count = VBN_NUM(1),
		.timeout = VBN_NUM(1),
	};
}

void duo_meet(void)
{
	struct vbn_address a, b;
	struct vbn_peer *old_a = duo.to_a, *old_b = duo.to_b;

	vbn_queue_address(duo.a, &a);
	vbn_queue_address(duo.b, &b);
	if (a.bytes[5] != VBN_UD) {
		assert_int_equal(vbn_queue_connect(duo.a, &b), 0);
		assert_int_equal(vbn_queue_connect(duo.b, &a), 0);
		return;
	}
	assert_int_equal(vbn_queue_connect(duo.a, NULL), 0);
	assert_int_equal(vbn_queue_connect(duo.b, NULL), 0);
	assert_int_equal(vbn_peer_create(duo.a, &b, &duo.to_b), 0);
	assert_int_equal(vbn_peer_create(duo.b, &a, &duo.to_a), 0);
	vbn_peer_release(old_a);
	vbn_peer_release(old_b);
}

void duo_connect(const struct vbn_queue_conf *conf)
{
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, conf, &duo.a), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, conf, &duo.b), 0);
	duo_meet();
}

void duo_patience(uint64_t since)
{
	if (clock_ns() - since > 30ull * 1000 * 1000 * 1000)
		unit_fail("nothing came for 30 s; a: %s; b: %s; the log: %s",
			duo.a ? vbn_queue_error(duo.a) : "", duo.b ? vbn_queue_error(duo.b) : "",
			unit_log);
	sched_yield();
}

static uint8_t pattern(uint64_t message, size_t at)
{
	return (uint8_t)(message * 131 + at * 7 + 1);
}

void duo_fill(struct vbn_buf *buf, uint64_t message, uint32_t len)
{
	buf->len = len;
	for (uint32_t i = 0; i < len; i++)
		buf->data[i] = pattern(message, i);
}

void duo_check(const uint8_t *data, uint64_t message, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (data[i] != pattern(message, i))
			unit_fail("message %llu: byte %u is %u and should be %u",
				(unsigned long long)message, i, data[i], pattern(message, i));
}

struct vbn_buf *duo_buf(uint64_t message, uint32_t len)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(duo.pool, &buf, 1), 1);
	duo_fill(buf, message, len);
	return buf;
}

static bool take_failure(const struct vbn_queue *queue, struct vbn_event *event)
{
	for (int i = 0; i < duo.n_failures; i++) {
		if (queue && duo.failures[i].queue != queue)
			continue;
		*event = duo.failures[i];
		duo.failures[i] = duo.failures[--duo.n_failures];
		return true;
	}
	return false;
}

static void let_go(struct vbn_event *event)
{
	if (event->buf)
		vbn_buf_free(&event->buf, 1);
	if (event->op == VBN_OP_FAILED && duo.n_failures < (int)ARRAY_SIZE(duo.failures))
		duo.failures[duo.n_failures++] = *event;
}

void duo_wait(struct vbn_queue *queue, int n)
{
	uint64_t start = clock_ns();
	int got = 0;

	while (got < n) {
		struct vbn_event event;

		if (take_failure(queue, &event)) {
			duo.events[got++] = event;
			continue;
		}
		if (!vbn_poll(duo.worker, &event, 1)) {
			duo_patience(start);
			continue;
		}
		if (!queue || event.queue == queue)
			duo.events[got++] = event;
		else
			let_go(&event);
	}
}

static struct vbn_peer *peer_of(const struct vbn_queue *to)
{
	return to == duo.a ? duo.to_a : duo.to_b;
}

/* As many as the ring and the window of what has not arrived take. */
static uint64_t send_some(
	struct vbn_queue *from, struct vbn_queue *to, uint64_t sent, uint64_t received, uint64_t n)
{
	uint64_t want = min(n - sent, (uint64_t)16);
	struct vbn_buf *bufs[16];
	int took;

	want = min(want, DUO_DEPTH / 2 - (sent - received));
	if (!want || vbn_buf_alloc(duo.pool, bufs, (int)want) != (int)want)
		return 0;
	for (uint64_t i = 0; i < want; i++) {
		duo_fill(bufs[i], sent + i, (uint32_t)((sent + i) % 90));
		if (peer_of(to))
			vbn_buf_set_peer(bufs[i], peer_of(to));
	}
	took = vbn_send(from, bufs, (int)want);
	if (took < 0)
		unit_fail("vbn_send: %s; %s", strerror(-took), vbn_queue_error(from));
	vbn_buf_free(bufs + took, (int)want - took);
	vbn_flush(from);
	return (uint64_t)took;
}

void duo_stream(struct vbn_queue *from, struct vbn_queue *to, uint64_t n)
{
	uint64_t sent = 0, received = 0, start = clock_ns();

	while (received < n || vbn_queue_outstanding(from)) {
		int got;

		sent += send_some(from, to, sent, received, n);
		got = vbn_poll(duo.worker, duo.events, 32);
		for (int i = 0; i < got; i++) {
			struct vbn_event *event = &duo.events[i];

			if (event->queue != from && event->queue != to) {
				let_go(event);
				continue;
			}
			if (event->queue != to || event->op != VBN_OP_RECV)
				unit_fail("event of op %u and status %u; %s", event->op,
					event->status, vbn_queue_error(event->queue));
			assert_int_equal(event->len, received % 90);
			assert_int_equal(event->buf->len, event->len);
			duo_check(event->buf->data, received++, event->len);
			vbn_buf_free(&event->buf, 1);
		}
		if (got)
			start = clock_ns();
		else
			duo_patience(start);
	}
}

void duo_reset(struct vbn_queue *queue)
{
	uint64_t start = clock_ns();
	int ret;

	while ((ret = vbn_queue_reset(queue)) == -EAGAIN) {
		int got = vbn_poll(duo.worker, duo.events, 8);

		for (int i = 0; i < got; i++)
			if (duo.events[i].buf)
				vbn_buf_free(&duo.events[i].buf, 1);
		duo_patience(start);
	}
	assert_int_equal(ret, 0);
}
