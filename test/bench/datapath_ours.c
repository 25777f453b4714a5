/* datapath_ours.c - Verbena's side of mlx5_datapath: vbn_send with vbn_flush, vbn_send_inline,
 * vbn_recv, vbn_poll
 *
 * Reaping is what vbn_recv() does on a queue to which nothing is sent: it takes the completed sends
 * and frees their bufs; or what vbn_poll() does, which gives each back in an event.
 */
#include "datapath.h"

#include <stdio.h>
#include <string.h>
#include <verbena.h>

struct loop {
	struct vbn_queue *tx, *rx;
};

static struct vbn_port *port;
static struct vbn_worker *worker;
static struct vbn_pool *pool;
static struct loop moderated; /* a completion for each BURST */
static struct loop signalled; /* a completion for each send */
static struct loop inlining;  /* as moderated, with room for a message in the WQE */
static struct loop *in_use;

static struct vbn_buf *bufs[BURST], *received[BURST];
static struct vbn_event events[BURST];
static uint8_t message[SIZE];
static int result;

/* ---- set-up ---- */

static void must(int error, const char *what)
{
	if (error < 0)
		die("verbena: %s failed: %s", what, strerror(-error));
}

static struct vbn_queue *create_queue(uint32_t cq_mod, struct vbn_num inline_size)
{
	struct vbn_queue_conf conf = {
		.transport = VBN_RC,
		.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = cq_mod,
		.rx_pool = pool,
		.inline_size = inline_size,
	};
	struct vbn_queue *queue;

	must(vbn_queue_create(worker, port, &conf, &queue), "vbn_queue_create");
	return queue;
}

static void open_loop(struct loop *loop, uint32_t cq_mod, struct vbn_num inline_size)
{
	struct vbn_address tx, rx;

	loop->tx = create_queue(cq_mod, inline_size);
	loop->rx = create_queue(cq_mod, inline_size);
	vbn_queue_address(loop->tx, &tx);
	vbn_queue_address(loop->rx, &rx);
	must(vbn_queue_connect(loop->tx, &rx), "vbn_queue_connect");
	must(vbn_queue_connect(loop->rx, &tx), "vbn_queue_connect");
}

static void close_loop(struct loop *loop)
{
	vbn_queue_destroy(loop->tx);
	vbn_queue_destroy(loop->rx);
}

void ours_open(const char *device)
{
	struct vbn_port_conf port_conf = {};
	struct vbn_worker_conf worker_conf = {};
	struct vbn_pool_conf pool_conf = {.n_bufs = 8 * DEPTH, .data_size = 2048};
	char name[80];

	snprintf(name, sizeof(name), "mlx5:%s", device);
	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_port_open(name, &port_conf, &port), "vbn_port_open");
	must(vbn_worker_attach(&worker_conf, &worker), "vbn_worker_attach");
	must(vbn_pool_create(&pool_conf, &pool), "vbn_pool_create");
	memset(message, 0x5a, sizeof(message));
	open_loop(&moderated, BURST, (struct vbn_num){});
	open_loop(&signalled, 1, (struct vbn_num){});
	open_loop(&inlining, BURST, (struct vbn_num)VBN_NUM(SIZE));
}

void ours_close(void)
{
	close_loop(&moderated);
	close_loop(&signalled);
	close_loop(&inlining);
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	vbn_port_close(port);
	vbn_fini();
}

/* ---- uncounted steps ---- */

static void alloc_messages(void)
{
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("verbena: the pool has no %d bufs left: something was not freed", BURST);
	for (int i = 0; i < BURST; i++) {
		bufs[i]->len = SIZE;
		memcpy(bufs[i]->data, message, SIZE);
	}
}

static void take_received(struct vbn_queue *rx)
{
	struct patience patience = patience_start();

	for (int got = 0; got < BURST;) {
		int n = vbn_recv(rx, received, BURST - got);

		must(n, "vbn_recv");
		vbn_buf_free(received, n);
		got += n;
		if (!n)
			patience_wait(&patience, "64 receives of Verbena's");
	}
}

/* Takes the completions of what was sent. */
static void take_completed(struct vbn_queue *tx)
{
	struct patience patience = patience_start();

	while (vbn_queue_outstanding(tx)) {
		must(vbn_recv(tx, received, BURST), "vbn_recv");
		if (vbn_queue_outstanding(tx))
			patience_wait(&patience, "the send completions of Verbena's");
	}
}

static void send_messages(struct vbn_queue *tx)
{
	alloc_messages();
	if (vbn_send(tx, bufs, BURST) != BURST)
		die("verbena: vbn_send took fewer than %d messages of an empty ring", BURST);
	vbn_flush(tx);
}

static bool settle_posted(void)
{
	if (result != BURST)
		die("verbena: %d of %d messages were taken", result, BURST);
	take_received(in_use->rx);
	take_completed(in_use->tx);
	return true;
}

/* ---- the acts ---- */

static void prepare_post(void)
{
	in_use = &moderated;
	alloc_messages();
}

static __attribute__((noinline)) void measure_post(void)
{
	result = vbn_send(in_use->tx, bufs, BURST);
	vbn_flush(in_use->tx);
}

static void prepare_post_inline(void)
{
	in_use = &inlining;
}

static __attribute__((noinline)) void measure_post_inline(void)
{
	struct vbn_queue *tx = in_use->tx;
	int taken = 0;

	for (int i = 0; i < BURST; i++)
		taken += vbn_send_inline(tx, message, SIZE);
	vbn_flush(tx);
	result = taken;
}

/* All messages have arrived; their acknowledgements are given a moment to become completions. */
static void prepare_reap(void)
{
	in_use = &signalled;
	send_messages(signalled.tx);
	take_received(signalled.rx);
	rest_us(200);
}

static __attribute__((noinline)) void measure_reap(void)
{
	result = vbn_recv(in_use->tx, received, BURST);
}

static bool settle_reap(void)
{
	bool all = !vbn_queue_outstanding(signalled.tx);

	must(result, "vbn_recv");
	take_completed(signalled.tx);
	return all;
}

/* The same with a cookie on each buf, so that each completion fills an event and gives its buf back.
 * vbn_poll() looks at all queues of the worker, so this worker has no others than it must. */
static void prepare_reap_events(void)
{
	in_use = &signalled;
	alloc_messages();
	for (int i = 0; i < BURST; i++)
		vbn_buf_set_cookie(bufs[i], bufs[i]);
	if (vbn_send(signalled.tx, bufs, BURST) != BURST)
		die("verbena: vbn_send took fewer than %d messages of an empty ring", BURST);
	vbn_flush(signalled.tx);
	take_received(signalled.rx);
	rest_us(200);
}

static __attribute__((noinline)) void measure_reap_events(void)
{
	result = vbn_poll(worker, events, BURST);
}

static bool settle_reap_events(void)
{
	struct patience patience = patience_start();
	int got = result;

	for (int i = 0; i < got; i++)
		vbn_buf_free(&events[i].buf, 1);
	while (got < BURST) {
		int n = vbn_poll(worker, events, BURST - got);

		for (int i = 0; i < n; i++)
			vbn_buf_free(&events[i].buf, 1);
		got += n;
		if (!n)
			patience_wait(&patience, "64 events of Verbena's");
	}
	return result == BURST;
}

/* Once the sends have completed, the receives have too, but for the last stores of a real device.
 */
static void prepare_receive(void)
{
	in_use = &moderated;
	send_messages(moderated.tx);
	take_completed(moderated.tx);
	rest_us(50);
}

static __attribute__((noinline)) void measure_receive(void)
{
	result = vbn_recv(in_use->rx, received, BURST);
}

static bool settle_receive(void)
{
	int got = result;

	must(got, "vbn_recv");
	vbn_buf_free(received, got);
	while (got < BURST) {
		int n = vbn_recv(moderated.rx, received, BURST - got);

		must(n, "vbn_recv");
		vbn_buf_free(received, n);
		got += n;
	}
	return result == BURST;
}

const struct act ours_post = {prepare_post, measure_post, settle_posted};
const struct act ours_post_inline = {prepare_post_inline, measure_post_inline, settle_posted};
const struct act ours_reap = {prepare_reap, measure_reap, settle_reap};
const struct act ours_reap_events = {prepare_reap_events, measure_reap_events, settle_reap_events};
const struct act ours_receive = {prepare_receive, measure_receive, settle_receive};
