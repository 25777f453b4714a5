/* many.c - what a message costs where few queues share CQs and a receive ring, and where many do:
 * instructions and time of sending one on each of 64 queues by turns, and of polling what has come
 *
 * Each queue is connected to itself, so that every message makes two completions: sent, received.
 */
#include "bench.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

enum { FEW = 16, SIZE = 64, RING = 8, SHARED_RING = 1024 };

static struct vbn_worker *worker;
static struct vbn_port *port;
static struct vbn_pool *pool;
static struct vbn_srq *srq;
static struct vbn_queue **queues;
static int n_queues;
static struct vbn_buf *bufs[BURST];
static struct vbn_event events[2 * BURST];
static int in_use, next_queue; /* the first so many of the queues; whose turn it is */
static int result, left;
static long rest = 300; /* until all has landed */

static void must(int error, const char *what)
{
	if (error < 0)
		die("%s failed: %s", what, strerror(-error));
}

static void make_messages(int of)
{
	in_use = of;
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("the pool has no %d bufs left: something was not freed", BURST);
	for (int i = 0; i < BURST; i++) {
		bufs[i]->len = SIZE;
		memset(bufs[i]->data, i, SIZE);
		vbn_buf_set_cookie(bufs[i], bufs[i]);
	}
}

static inline __attribute__((always_inline)) void post(void)
{
	int taken = 0;

	for (int i = 0; i < BURST; i++) {
		struct vbn_queue *queue = queues[next_queue];

		taken += vbn_send(queue, &bufs[i], 1);
		vbn_flush(queue);
		if (++next_queue >= in_use)
			next_queue = 0;
	}
	result = taken;
}

static __attribute__((noinline)) void measure_post(void)
{
	post();
}

static __attribute__((noinline)) void measure_poll(void)
{
	result = vbn_poll(worker, events, 2 * BURST);
}

static void free_events(int n)
{
	for (int i = 0; i < n; i++)
		vbn_buf_free(&events[i].buf, 1);
	left -= n;
}

static bool settle_posted(void)
{
	struct patience patience = patience_start();

	if (result != BURST)
		die("%d of %d messages were taken", result, BURST);
	left = 2 * BURST;
	while (left) {
		int n = vbn_poll(worker, events, 2 * BURST);

		free_events(n);
		if (!n)
			patience_wait(&patience, "what was sent");
	}
	return true;
}

static void prepare_poll(int of)
{
	make_messages(of);
	post();
	left = 2 * BURST;
	rest_us(rest); /* a round that is done again would be counted, too */
}

static bool settle_polled(void)
{
	bool all = result == 2 * BURST;

	free_events(result);
	for (struct patience patience = patience_start(); left;) {
		int n = vbn_poll(worker, events, 2 * BURST);

		free_events(n);
		if (!n)
			patience_wait(&patience, "what was sent");
	}
	return all;
}

static void post_few(void)
{
	make_messages(FEW);
}

static void post_many(void)
{
	make_messages(n_queues);
}

static void poll_few(void)
{
	prepare_poll(FEW);
}

static void poll_many(void)
{
	prepare_poll(n_queues);
}

enum { POST_FEW, POST_MANY, POLL_FEW, POLL_MANY, N_ACTS };
static const struct act all_acts[N_ACTS] = {{post_few, measure_post, settle_posted},
	{post_many, measure_post, settle_posted}, {poll_few, measure_poll, settle_polled},
	{poll_many, measure_poll, settle_polled}};
static const struct act *acts[N_ACTS];

/* ---- set-up ---- */

static uint64_t resident(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_maxrss * 1024;
}

static void open_queue(int i)
{
	struct vbn_queue_conf conf = {.tx_depth = RING, .cq_mod = 1, .srq = srq, .tx_pool = pool};
	struct vbn_address self;

	must(vbn_queue_create(worker, port, &conf, &queues[i]), "vbn_queue_create");
	vbn_queue_address(queues[i], &self);
	must(vbn_queue_connect(queues[i], &self), "vbn_queue_connect");
}

/* Bytes of the process that each of the many takes: its rings, the emulated device's state and all. */
static double open_all(const char *device)
{
	struct vbn_pool_conf pool_conf = {.n_bufs = SHARED_RING + 4 * BURST, .data_size = 256};
	struct vbn_srq_conf srq_conf = {.depth = SHARED_RING};
	uint64_t before;

	if (vhca_present)
		vhca_present();
	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_port_open(device, NULL, &port), "vbn_port_open");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	must(vbn_pool_create(&pool_conf, &pool), "vbn_pool_create");
	srq_conf.pool = pool;
	must(vbn_srq_create(worker, port, &srq_conf, &srq), "vbn_srq_create");
	queues = calloc((size_t)n_queues, sizeof(struct vbn_queue *));
	if (!queues)
		die("no memory for %d queues", n_queues);
	for (int i = 0; i < FEW; i++)
		open_queue(i);
	before = resident();
	for (int i = FEW; i < n_queues; i++)
		open_queue(i);
	for (int i = 0; i < N_ACTS; i++)
		acts[i] = &all_acts[i];
	return n_queues > FEW ? (double)(resident() - before) / (n_queues - FEW) : 0;
}

static void close_all(void)
{
	for (int i = 0; i < n_queues; i++)
		vbn_queue_destroy(queues[i]);
	free(queues);
	vbn_srq_destroy(srq);
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	vbn_port_close(port);
	vbn_fini();
}

/* ---- the report ---- */

static int measure(const char *device, int rounds, double bytes)
{
	char count[16];
	double counts[N_ACTS] = {NAN, NAN, NAN, NAN}, ns[N_ACTS], few, many;

	snprintf(count, sizeof(count), "%d", n_queues);
	time_pair(acts + POST_FEW, rounds, ns + POST_FEW);
	time_pair(acts + POLL_FEW, rounds, ns + POLL_FEW);
	count_instructions(
		(const char *const[]){"--device", device, "--queues", count, NULL}, counts, N_ACTS);
	few = counts[POST_FEW] + counts[POLL_FEW];
	many = counts[POST_MANY] + counts[POLL_MANY];
	printf("%-22s%16s%16s\n", "a message", "16 queues", count);
	printf("%-22s%16.1f%16.1f\n", "post, instructions", counts[POST_FEW], counts[POST_MANY]);
	printf("%-22s%16.1f%16.1f\n", "poll, instructions", counts[POLL_FEW], counts[POLL_MANY]);
	printf("%-22s%16.1f%16.1f\n", "post, ns", ns[POST_FEW], ns[POST_MANY]);
	printf("%-22s%16.1f%16.1f\n", "poll, ns", ns[POLL_FEW], ns[POLL_MANY]);
	printf("%-22s%32.0f\n", "bytes a queue", bytes);
	if (many > 1.2 * few) {
		printf("many queues take %.2f of the instructions that few do, and may take 1.2\n",
			many / few);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"queues", required_argument, NULL, 'q'},
		{"rounds", required_argument, NULL, 'r'},
		{"count", no_argument, NULL, 'c'}, /* by the program itself, under callgrind */
		{},
	};
	const char *device = "mlx5:mlx5_0";
	int rounds = 300, option, ret = 0;
	bool count = false;
	double bytes;

	n_queues = 4096;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'q': n_queues = (int)strtol(optarg, NULL, 10); break;
		case 'r': rounds = (int)strtol(optarg, NULL, 10); break;
		case 'c':
			count = true;
			rest = 5000;
			break;
		default:
			fputs("usage: mlx5_many [--device NAME] [--queues N] [--rounds N]\n",
				stderr);
			return 2;
		}
	}
	if (rounds < 1 || n_queues < FEW)
		die("--rounds is a number from 1 up, --queues from %d up", FEW);
	bytes = open_all(device);
	if (count)
		count_rounds(acts, N_ACTS);
	else
		ret = measure(device, rounds, bytes);
	close_all();
	return ret;
}
