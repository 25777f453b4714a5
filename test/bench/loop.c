/* loop.c - what a worker's loop is made of: timers, rings, bufs that go home; beside them Concurrency
 * Kit's ring and DPDK's ring and pool; in instructions and time of one thing
 *
 * Instructions come from callgrind and repeat; times are of whatever else the machine does. The two
 * threads of a ring take turns on two cores, so their figure is for comparing the two rings alone.
 */
#include "loop.h"

#include "mem/mem.h"
#include "run/internal.h"

#include <verbena.h>

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CK
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <ck_ring.h>
#pragma GCC diagnostic pop
#endif

enum { TIMERS = 64 * 1024 };

static struct vbn_worker *worker;
static struct vbn_pool *pool;
static struct vbn_buf *bufs[BURST];

static bool settled(void)
{
	return true;
}

static void nothing(void)
{
}

static void alloc_bufs(void)
{
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("the pool has no %d bufs left", BURST);
}

static bool free_bufs(void)
{
	vbn_buf_free(bufs, BURST);
	return true;
}

/* ---- bufs of one's own, and of another's ---- */

static noinline void measure_alloc(void)
{
	vbn_buf_alloc(pool, bufs, BURST);
}

static noinline void measure_free(void)
{
	vbn_buf_free(bufs, BURST);
}

static noinline void measure_free_singly(void)
{
	for (int i = 0; i < BURST; i++)
		vbn_buf_free(&bufs[i], 1);
}

/* A second home on this thread: it takes turns with the worker's. */
static struct lane_end *other_home;

static void alloc_for_other(void)
{
	alloc_bufs();
	vbn__home = other_home;
}

static void free_away(void)
{
	vbn_buf_free(bufs, BURST);
	lane_flush(other_home);
}

static noinline void measure_free_away(void)
{
	free_away();
}

static bool take_home(void)
{
	vbn__home = worker->home;
	vbn__home_exchange(worker->home);
	return true;
}

static void free_for_other(void)
{
	alloc_for_other();
	free_away();
	vbn__home = worker->home;
}

static noinline void measure_come_home(void)
{
	vbn__home_exchange(worker->home);
}

/* ---- timers, with TIMERS others pending ---- */

static struct vbn_timer pending[TIMERS], timers[BURST];
static int n_fired;

static void fired(struct vbn_worker *on, void *arg)
{
	(void)on;
	(void)arg;
	n_fired++;
}

/* From microseconds to hours. */
static uint64_t distance(uint64_t i)
{
	return 1000 + (i * 0x9e3779b97f4a7c15u >> (22 + i % 32));
}

static void stop_all(void)
{
	for (int i = 0; i < BURST; i++)
		vbn_timer_stop(worker, &timers[i]);
}

static void start_all(void)
{
	for (uint64_t i = 0; i < BURST; i++)
		vbn_timer_start(worker, &timers[i], 1000000 + distance(i));
}

static noinline void measure_start(void)
{
	for (uint64_t i = 0; i < BURST; i++)
		vbn_timer_start(worker, &timers[i], 1000000 + (i << 14));
}

static noinline void measure_stop(void)
{
	for (int i = 0; i < BURST; i++)
		vbn_timer_stop(worker, &timers[i]);
}

static struct wheel wheel;
static uint64_t wheel_now;

/* They are dealt out from a higher level on the way. */
static void start_due(void)
{
	for (uint64_t i = 0; i < BURST; i++)
		vbn__wheel_start(&wheel, &timers[i], wheel_now + ((100 + i) << wheel.shift));
	wheel_now += 200ull << wheel.shift;
	n_fired = 0;
}

static noinline void measure_expire(void)
{
	vbn__wheel_run(&wheel, worker, wheel_now);
}

static bool all_fired(void)
{
	if (n_fired != BURST)
		die("%d of %d timers fired", n_fired, BURST);
	return true;
}

/* ---- the iteration of a worker that has nothing to do ---- */

static noinline void measure_iterate(void)
{
	for (int i = 0; i < BURST; i++)
		vbn__worker_iterate(worker);
}

/* ---- rings ---- */

static struct vbn_ring *ring;
static void *items[BURST], *got[BURST];

static noinline void measure_ring(void)
{
	vbn_ring_put(ring, items, BURST);
	vbn_ring_publish(ring);
	vbn_ring_take(ring, got, BURST);
}

static noinline void measure_ring_singly(void)
{
	for (int i = 0; i < BURST; i++) {
		vbn_ring_put_one(ring, items[i]);
		vbn_ring_publish(ring);
	}
	for (int i = 0; i < BURST; i++)
		vbn_ring_take(ring, &got[i], 1);
}

#ifdef HAVE_CK
static ck_ring_t ck;
static ck_ring_buffer_t ck_slots[RING];

static noinline void measure_ck_ring(void)
{
	for (int i = 0; i < BURST; i++)
		ck_ring_enqueue_spsc(&ck, ck_slots, items[i]);
	for (int i = 0; i < BURST; i++)
		ck_ring_dequeue_spsc(&ck, ck_slots, &got[i]);
}
#endif

/* ---- the cases ---- */

static const struct {
	const char *name;
	struct act act;
} cases[] = {
	{"buf alloc, 64 at once", {nothing, measure_alloc, free_bufs}},
	{"buf free, 64 at once", {alloc_bufs, measure_free, settled}},
	{"buf free, one at a time", {alloc_bufs, measure_free_singly, settled}},
	{"buf free, another worker's", {alloc_for_other, measure_free_away, take_home}},
	{"buf comes home", {free_for_other, measure_come_home, settled}},
	{"timer start", {stop_all, measure_start, settled}},
	{"timer stop", {start_all, measure_stop, settled}},
	{"timer dealt out and fired", {start_due, measure_expire, all_fired}},
	{"idle iteration", {nothing, measure_iterate, settled}},
	{"ring, bursts of 64", {nothing, measure_ring, settled}},
	{"ring, one at a time", {nothing, measure_ring_singly, settled}},
#ifdef HAVE_CK
	{"ck_ring spsc, one at a time", {nothing, measure_ck_ring, settled}},
#endif
#ifdef HAVE_DPDK
	{"rte_mempool get, 64 at once", {nothing, measure_rte_mempool_get, dpdk_put}},
	{"rte_mempool put, 64 at once", {dpdk_get, measure_rte_mempool_put, settled}},
	{"rte_mempool put, one at a time", {dpdk_get, measure_rte_mempool_put_singly, settled}},
	{"rte_ring spsc, bursts of 64", {nothing, measure_rte_ring, settled}},
	{"rte_ring spsc, one at a time", {nothing, measure_rte_ring_singly, settled}},
#endif
};

enum { N_CASES = ARRAY_SIZE(cases) };

static void set_up(void)
{
	const struct vbn_pool_conf conf = {.n_bufs = 1024, .data_size = 64};

	if (vbn_worker_attach(NULL, &worker) || vbn_pool_create(&conf, &pool) ||
		vbn_ring_create(RING, &ring))
		die("set-up failed");
	vbn__home = NULL;
	if (vbn__home_open())
		die("no second home");
	other_home = vbn__home;
	vbn__home = worker->home;
#ifdef HAVE_CK
	ck_ring_init(&ck, RING);
#endif
#ifdef HAVE_DPDK
	dpdk_start();
#endif
	for (int i = 0; i < BURST; i++) {
		vbn_timer_init(&timers[i], fired, NULL);
		items[i] = &items[i];
	}
	for (uint64_t i = 0; i < TIMERS; i++) {
		vbn_timer_init(&pending[i], fired, NULL);
		vbn_timer_start(worker, &pending[i], 3600000000000u + distance(i));
	}
	vbn__wheel_init(&wheel, 10, 0);
}

static void tear_down(void)
{
	vbn__home = other_home;
	vbn__home_close();
	vbn__home = worker->home;
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	vbn_ring_destroy(ring);
}

/* ---- two threads ---- */

static struct vbn_ring *crossing;

static void *produce_ours(void *arg)
{
	for (int sent = 0; sent < HANDED;) {
		sent += done((int)vbn_ring_put(crossing, items, BURST));
		vbn_ring_publish(crossing);
	}
	return arg;
}

static void consume_ours(void)
{
	for (int taken = 0; taken < HANDED;)
		taken += done((int)vbn_ring_take(crossing, got, BURST));
}

#ifdef HAVE_CK
static void *produce_ck(void *arg)
{
	for (int sent = 0; sent < HANDED;)
		sent += done(ck_ring_enqueue_spsc(&ck, ck_slots, items[sent % BURST]));
	return arg;
}

static void consume_ck(void)
{
	for (int taken = 0; taken < HANDED;)
		taken += done(ck_ring_dequeue_spsc(&ck, ck_slots, &got[taken % BURST]));
}
#endif

/* Nanoseconds an item. */
static double time_crossing(void *(*produce)(void *arg), void (*consume)(void))
{
	uint64_t start = now_ns();
	pthread_t thread;

	if (pthread_create(&thread, NULL, produce, NULL))
		die("no thread");
	consume();
	pthread_join(thread, NULL);
	return (double)(now_ns() - start) / HANDED;
}

static struct spread crossings(void *(*produce)(void *arg), void (*consume)(void), int rounds)
{
	double values[16];

	for (int i = 0; i < rounds; i++)
		values[i] = time_crossing(produce, consume);
	return spread_of(values, rounds);
}

/* ---- report ---- */

static void print(const char *name, double count, struct spread spread)
{
	char counted[16] = "-";

	if (!isnan(count))
		snprintf(counted, sizeof(counted), "%.1f", count);
	printf("%-32s %14s %10.1f (%.1f-%.1f)\n", name, counted, spread.median, spread.low,
		spread.high);
}

static void report(int rounds)
{
	double counts[N_CASES];

	for (int i = 0; i < N_CASES; i++)
		counts[i] = NAN;
	if (!count_instructions((const char *const[]){NULL}, counts, N_CASES))
		fprintf(stderr,
			"valgrind is not installed: no instruction counts (.ci/deps test installs it)\n");
	printf("%-32s %14s %s\n", "", "instructions", "ns: median (p10-p90)");
	for (int i = 0; i < N_CASES; i++)
		print(cases[i].name, counts[i], time_rounds(&cases[i].act, rounds));
	if (vbn_ring_create(RING, &crossing))
		die("no ring");
	print("ring, between two threads", NAN, crossings(produce_ours, consume_ours, 7));
	vbn_ring_destroy(crossing);
#ifdef HAVE_CK
	print("ck_ring, between two threads", NAN, crossings(produce_ck, consume_ck, 7));
#else
	printf("no ck_ring beside it: Concurrency Kit was not there when this was built (libck-dev)\n");
#endif
#ifdef HAVE_DPDK
	print("rte_ring, between two threads", NAN, crossings(dpdk_produce, dpdk_consume, 7));
#else
	printf("no rte_ring and rte_mempool beside them: DPDK was not there when this was built (libdpdk-dev)\n");
#endif
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"count", no_argument, NULL, 'c'}, {"rounds", required_argument, NULL, 'r'}, {0}};
	const struct act *acts[N_CASES];
	int option, rounds = 1000;
	bool count = false;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == '?')
			return 2;
		count = count || option == 'c';
		if (option == 'r')
			rounds = max(atoi(optarg), 1);
	}
	set_up();
	for (int i = 0; i < N_CASES; i++)
		acts[i] = &cases[i].act;
	if (count)
		count_rounds(acts, N_CASES);
	else
		report(rounds);
	tear_down();
	return 0;
}
