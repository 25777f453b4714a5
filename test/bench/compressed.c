/* compressed.c - what a receive costs with and without compressed completions, from a CQ of the
 * queue's own and from a shared one, and there with prefetch; and what decoding does. In instructions
 * and time per completion: 64-byte messages in bursts of 64, on the emulated device */
#include "bench.h"

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

enum { DEPTH = 256, SIZE = 64, N_ARRAYS = BURST / MINI_CQES };

struct loop {
	struct vbn_queue *tx, *rx;
};

/* What queues of one worker and port share is one group, so each kind has its port. */
enum { SHARED_PLAIN, SHARED_AHEAD, SHARED_COMPRESSED, N_SHARED };

static const char *device = "mlx5_0";
static struct vbn_worker *worker;
static struct vbn_port *port, *shared_ports[N_SHARED];
static struct vbn_pool *pool;
static struct loop plain, compressed, shared[N_SHARED];
static struct loop *in_use;
static struct vbn_buf *bufs[BURST], *received[BURST];
static struct vbn_event events[BURST];
static int result;
static uint64_t compressed_before;

static void must(int error, const char *what)
{
	if (error < 0)
		die("%s failed: %s", what, strerror(-error));
}

/* ---- decoders alone ---- */

static uint64_t arrays[N_ARRAYS][MINI_CQES];
static struct completion completions[MINI_CQES];
static mini_decode *decode;

static void prepare_scalar(void)
{
	decode = vbn__mini_scalar.decode;
}

static void prepare_vector(void)
{
	decode = vbn__mini_decoder()->decode;
}

static noinline void measure_decode(void)
{
	for (int i = 0; i < N_ARRAYS; i++)
		decode(arrays[i], completions);
}

static bool settle_decode(void)
{
	return true;
}

/* ---- receives ---- */

static void open_loop(
	struct loop *loop, struct vbn_port *on, const struct vbn_queue_conf *techniques)
{
	struct vbn_queue_conf conf = *techniques;
	struct vbn_address tx, rx;

	conf.tx_depth = conf.rx_depth = DEPTH;
	conf.cq_mod = BURST;
	conf.rx_pool = pool;
	must(vbn_queue_create(worker, on, &conf, &loop->tx), "vbn_queue_create");
	must(vbn_queue_create(worker, on, &conf, &loop->rx), "vbn_queue_create");
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

static void set_up(void)
{
	if (vhca_present)
		vhca_present();
	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	must(vbn_port_open(device, NULL, &port), "vbn_port_open");
	must(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 12 * DEPTH}, &pool),
		"vbn_pool_create");
	open_loop(&plain, port, &(struct vbn_queue_conf){.cqe_compression = VBN_OFF});
	open_loop(&compressed, port, &(struct vbn_queue_conf){.cqe_compression = VBN_ON});
	for (int i = 0; i < N_SHARED; i++) {
		struct vbn_queue_conf conf = {.shared_cq = VBN_ON,
			.prefetch = i == SHARED_AHEAD ? VBN_ON : VBN_OFF,
			.cqe_compression = i == SHARED_COMPRESSED ? VBN_ON : VBN_OFF};

		must(vbn_port_open(device, NULL, &shared_ports[i]), "vbn_port_open");
		open_loop(&shared[i], shared_ports[i], &conf);
	}
}

static void tear_down(void)
{
	close_loop(&plain);
	close_loop(&compressed);
	for (int i = 0; i < N_SHARED; i++)
		close_loop(&shared[i]);
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	for (int i = 0; i < N_SHARED; i++)
		vbn_port_close(shared_ports[i]);
	vbn_port_close(port);
	vbn_fini();
}

static uint64_t came_compressed(void)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(in_use->rx, &stats);
	return stats.rx_compressed;
}

static struct mlx5_group *group_of(const struct loop *loop)
{
	return mlx5_queue(loop->rx)->queue.grouped ? mlx5_queue(loop->rx)->group : NULL;
}

static void reap(const struct loop *loop)
{
	struct mlx5_group *group = group_of(loop);

	if (group)
		vbn__group_reap(group);
	else
		must(vbn_recv(loop->tx, received, BURST), "vbn_recv");
}

/* Once the sends have completed, the receives have too. */
static void send_burst(struct loop *loop)
{
	struct patience patience = patience_start();

	in_use = loop;
	compressed_before = came_compressed();
	must(vbn_buf_alloc(pool, bufs, BURST), "vbn_buf_alloc");
	for (int i = 0; i < BURST; i++)
		bufs[i]->len = SIZE;
	if (vbn_send(loop->tx, bufs, BURST) != BURST)
		die("an empty ring took fewer than %d messages", BURST);
	vbn_flush(loop->tx);
	while (vbn_queue_outstanding(loop->tx)) {
		reap(loop);
		if (vbn_queue_outstanding(loop->tx))
			patience_wait(&patience, "the send completions");
	}
	rest_us(50);
}

static void prepare_plain(void)
{
	send_burst(&plain);
}

static void prepare_compressed(const struct mini_decoder *decoder)
{
	struct session *session =
		container_of(compressed.rx, struct mlx5_queue, queue)->own_recv_cq.session;

	session->decode = decoder->decode;
	send_burst(&compressed);
}

static void prepare_compressed_scalar(void)
{
	prepare_compressed(&vbn__mini_scalar);
}

static void prepare_compressed_vector(void)
{
	prepare_compressed(vbn__mini_decoder());
}

static noinline void measure_plain(void)
{
	result = vbn_recv(plain.rx, received, BURST);
}

static noinline void measure_compressed(void)
{
	result = vbn_recv(compressed.rx, received, BURST);
}

/* Whether all came in one call. */
static bool take_rest(struct loop *loop)
{
	struct patience patience = patience_start();
	const bool all = result == BURST;
	int got = result;

	must(got, "vbn_recv");
	vbn_buf_free(received, got);
	while (got < BURST) {
		int n = vbn_recv(loop->rx, received, BURST - got);

		must(n, "vbn_recv");
		vbn_buf_free(received, n);
		got += n;
		if (!n)
			patience_wait(&patience, "the rest of a burst");
	}
	return all;
}

static bool settle_plain(void)
{
	return take_rest(&plain);
}

/* ---- from shared CQs: one poll of their group, as vbn_poll() makes it ---- */

#define SHARED(name, kind)                                                   \
	static void prepare_##name(void)                                     \
	{                                                                    \
		send_burst(&shared[kind]);                                   \
	}                                                                    \
	static noinline void measure_##name(void)                            \
	{                                                                    \
		struct queue_group *group = &group_of(&shared[kind])->group; \
                                                                             \
		result = group->poll(group, events, BURST);                  \
	}

SHARED(shared_plain, SHARED_PLAIN)
SHARED(shared_ahead, SHARED_AHEAD)
SHARED(shared_compressed, SHARED_COMPRESSED)

static bool settle_shared(void)
{
	struct queue_group *group = &group_of(in_use)->group;
	struct patience patience = patience_start();
	const bool all = result == BURST;
	int left = BURST;

	for (;;) {
		for (int i = 0; i < result; i++)
			vbn_buf_free(&events[i].buf, 1);
		left -= result;
		if (!left)
			return all;
		result = group->poll(group, events, left);
		if (!result)
			patience_wait(&patience, "the rest of a burst");
	}
}

static bool settle_shared_compressed(void)
{
	return settle_shared() && came_compressed() - compressed_before == BURST;
}

/* A burst that the device saw in pieces has plain entries between its sessions. */
static bool settle_compressed(void)
{
	return take_rest(&compressed) && came_compressed() - compressed_before == BURST;
}

/* ---- report ---- */

static const struct {
	const char *name;
	struct act act;
} cases[] = {
	{"decode, scalar", {prepare_scalar, measure_decode, settle_decode}},
	{"decode, this CPU's", {prepare_vector, measure_decode, settle_decode}},
	{"receive, plain", {prepare_plain, measure_plain, settle_plain}},
	{"receive, compressed, scalar",
		{prepare_compressed_scalar, measure_compressed, settle_compressed}},
	{"receive, compressed, this CPU's",
		{prepare_compressed_vector, measure_compressed, settle_compressed}},
	{"shared, plain", {prepare_shared_plain, measure_shared_plain, settle_shared}},
	{"shared, plain, prefetched", {prepare_shared_ahead, measure_shared_ahead, settle_shared}},
	{"shared, compressed",
		{prepare_shared_compressed, measure_shared_compressed, settle_shared_compressed}},
};
enum {
	DECODE_SCALAR,
	DECODE_VECTOR,
	PLAIN,
	COMPRESSED_SCALAR,
	COMPRESSED_VECTOR,
	CASE_SHARED_PLAIN,
	CASE_SHARED_AHEAD,
	CASE_SHARED_COMPRESSED
};
enum { N_CASES = ARRAY_SIZE(cases) };

/* What it is all for: instructions, which are the same each time. */
static bool pays(const double *counts)
{
	if (vbn__mini_decoder() == &vbn__mini_scalar || isnan(counts[PLAIN]))
		return true;
	return counts[DECODE_VECTOR] < counts[DECODE_SCALAR] / 3 &&
		counts[COMPRESSED_VECTOR] < counts[COMPRESSED_SCALAR] &&
		counts[COMPRESSED_VECTOR] < counts[PLAIN] &&
		counts[CASE_SHARED_COMPRESSED] < counts[CASE_SHARED_PLAIN];
}

static int report(int rounds)
{
	double counts[N_CASES];

	for (int i = 0; i < N_CASES; i++)
		counts[i] = NAN;
	if (!count_instructions((const char *const[]){"--device", device, NULL}, counts, N_CASES))
		fprintf(stderr,
			"valgrind is not installed: no instruction counts (.ci/deps test installs it)\n");
	printf("%-32s %14s %s\n", "", "instructions", "ns: median (p10-p90), a completion");
	for (int i = 0; i < N_CASES; i++) {
		struct spread spread = time_rounds(&cases[i].act, rounds);

		printf("%-32s %14.1f %10.1f (%.1f-%.1f)\n", cases[i].name, counts[i], spread.median,
			spread.low, spread.high);
	}
	printf("this CPU's decoder is %s\n", vbn__mini_decoder()->name);
	if (pays(counts))
		return 0;
	printf("compressed completions do not pay: more instructions than plain ones, or than without vectors\n");
	return 1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"count", no_argument, NULL, 'c'},
		{"rounds", required_argument, NULL, 'r'}, {"device", required_argument, NULL, 'd'},
		{0}};
	const struct act *acts[N_CASES];
	int option, rounds = 1000, status = 0;
	bool count = false;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == '?')
			return 2;
		count = count || option == 'c';
		if (option == 'd')
			device = optarg;
		if (option == 'r')
			rounds = max(atoi(optarg), 1);
	}
	set_up();
	for (int i = 0; i < N_CASES; i++)
		acts[i] = &cases[i].act;
	if (count)
		count_rounds(acts, N_CASES);
	else
		status = report(rounds);
	tear_down();
	return status;
}
