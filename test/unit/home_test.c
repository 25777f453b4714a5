/* home_test.c - bufs that are freed by others than their pool's worker: all come home, in batches,
 * whoever frees them, and whenever the worker ends */

#include "unit.h"

#include "mem/mem.h"
#include "run/run.h"

#include <verbena.h>

#include <pthread.h>
#include <sched.h>

#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

/* For threads that cmocka's asserts cannot leave. */
static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "home_test: does not hold: %s; the log is:\n%s\n", what, unit_log);
	abort();
}

static struct vbn_pool *make(uint32_t n_bufs)
{
	const struct vbn_pool_conf conf = {.n_bufs = n_bufs, .data_size = 64, .name = "home"};
	struct vbn_pool *pool = NULL;

	must(!vbn_pool_create(&conf, &pool), "a pool can be had");
	return pool;
}

static uint64_t counter_sum;

static int add_counter(const char *kind, const char *object, const char *name, const char *help,
	uint64_t value, void *arg)
{
	(void)object;
	(void)help;
	if (!strcmp(kind, "worker") && !strcmp(name, arg))
		counter_sum += value;
	return 0;
}

static uint64_t counter(const char *name)
{
	counter_sum = 0;
	vbn_counters_each(add_counter, (void *)(uintptr_t)name);
	return counter_sum;
}

/* ---- one worker, and a thread that is none ---- */

static void *free_one(void *arg)
{
	vbn_buf_free((struct vbn_buf *[]){arg}, 1);
	return NULL;
}

static void free_elsewhere(struct vbn_buf *buf)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, free_one, buf), 0);
	pthread_join(thread, NULL);
}

static void by_a_thread_that_is_no_worker(void **state)
{
	struct vbn_buf *bufs[8];
	struct vbn_worker *worker;
	struct vbn_pool *pool;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	pool = make(8);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 8), 8);
	vbn_buf_append(bufs[2], bufs[3]);
	free_elsewhere(bufs[1]);
	free_elsewhere(bufs[2]);
	assert_int_equal(vbn_pool_available(pool), 0);
	vbn_worker_poll(worker);
	assert_int_equal(vbn_pool_available(pool), 3);
	free_elsewhere(bufs[4]);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 4), 4); /* being short it looks */
	assert_int_equal(counter("bufs_came_home"), 4);
	assert_int_equal(vbn_buf_alloc(pool, bufs + 4, 1), -ENOBUFS);
	vbn_buf_free(bufs, 4);
	free_elsewhere(bufs[5]);
	free_elsewhere(bufs[6]);
	free_elsewhere(bufs[7]);
	vbn_buf_alloc(pool, bufs, 1);
	vbn_worker_poll(worker);
	vbn_worker_detach(worker);
	free_elsewhere(bufs[0]); /* its pool has no worker now */
	unit_catch_log();
	vbn_pool_destroy(pool);
	assert_int_equal(vbn__pools_report_leaks(), 1); /* bufs[0] of the first eight */
}

/* ---- a pool that is nobody's becomes the one's who is short ---- */

static void claimed_by_who_is_short(void **state)
{
	struct vbn_pool *pool = make(4);
	struct vbn_buf *bufs[4];
	struct vbn_worker *worker;

	(void)state;
	assert_null(pool->home);
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 3), 3);
	vbn_buf_free(bufs, 3);
	assert_null(pool->home);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 2), 2);
	assert_ptr_equal(pool->home, vbn__home);
	vbn_buf_free(bufs, 2);
	assert_int_equal(vbn_pool_available(pool), 4);
	assert_int_equal(vbn__pool_claim(pool), 0);
	vbn_worker_detach(worker);
	assert_null(pool->home);
	vbn_pool_destroy(pool);
}

/* ---- two workers: one allocates and hands over, the other frees; and the other way round ---- */

enum { BUFS = 4000, MESSAGES = UNIT_SHADOW ? 20000 : 100000, RING = 1024 };

struct side {
	struct vbn_worker *worker;
	struct vbn_pool *pool;
	struct vbn_ring *out; /* to the other */
	uint64_t sent, freed;
	uint32_t turns;
};

static struct {
	struct side sides[2];
	int n_workers;
	uint64_t deadline;
	bool slow; /* a receiver takes and frees all there is in one iteration of many */
	uint64_t came, went, waited;
} pair;

/* Allocates, marks and hands over what there is room for. */
static int hand_over(struct side *side)
{
	struct vbn_buf *bufs[32];
	int n = (int)min(vbn_ring_room(side->out, 32), 32u);

	n = (int)min((uint64_t)n, MESSAGES - side->sent);
	n = min(n, (int)vbn_pool_available(side->pool));
	if (!n || vbn_buf_alloc(side->pool, bufs, n) != n)
		return 0;
	for (int i = 0; i < n; i++) {
		memset(bufs[i]->data, (int)(side->sent + (uint64_t)i), 64);
		bufs[i]->len = 64;
	}
	vbn_ring_put(side->out, (void **)bufs, (uint32_t)n);
	vbn_ring_publish(side->out);
	side->sent += (uint64_t)n;
	return n;
}

static int take_and_free(struct side *side, struct vbn_ring *in)
{
	struct vbn_buf *bufs[32];
	uint32_t n, all = 0;

	if (pair.slow && ++side->turns % 256)
		return 0;
	while ((n = vbn_ring_take(in, (void **)bufs, ARRAY_SIZE(bufs)))) {
		for (uint32_t i = 0; i < n; i++)
			must(bufs[i]->data[63] == (uint8_t)(side->freed + i),
				"a buf holds what was written into it");
		vbn_buf_free(bufs, (int)n);
		side->freed += n;
		all += n;
	}
	return (int)all;
}

static int poll_side(struct vbn_worker *worker, void *arg)
{
	struct side *side = arg, *other = &pair.sides[side == pair.sides];
	int did = take_and_free(side, other->out);

	must(clock_ns() < pair.deadline, "all are handed over in time");
	if (!vbn_worker_stopping(worker))
		did += hand_over(side);
	if (side->sent == MESSAGES && side->freed == MESSAGES)
		vbn_worker_done(worker);
	return did;
}

static void exit_side(struct vbn_worker *worker, void *arg)
{
	struct side *side = arg;

	(void)worker;
	must(vbn_pool_available(side->pool) == BUFS, "every buf came home before the end");
	if (side == pair.sides) {
		pair.came = counter("bufs_came_home");
		pair.went = counter("bufs_sent_home");
		pair.waited = counter("bufs_waited");
	}
	vbn_pool_destroy(side->pool);
}

static int set_up_side(struct vbn_worker *worker, void *arg)
{
	int index = vbn_worker_index(worker);
	struct side *side = &pair.sides[index];

	(void)arg;
	side->worker = worker;
	side->pool = make(BUFS);
	must(!vbn_worker_add_exit(worker, exit_side, side), "a worker takes an exit function");
	return vbn_worker_add_poll(worker, poll_side, side);
}

static void run_pair(bool slow)
{
	struct topo topo;
	char cores[32];

	memset(&pair, 0, sizeof(pair));
	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	if (topo.n_cpus < 2)
		unit_skip("home_two_workers",
			"this process may use one CPU, and two workers need two");
	snprintf(cores, sizeof(cores), "%d,%d", topo.cpus[0], topo.cpus[1]);
	pair.slow = slow;
	pair.deadline = clock_ns() + PATIENCE_NS;
	for (int i = 0; i < 2; i++)
		assert_int_equal(vbn_ring_create(RING, &pair.sides[i].out), 0);
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = PATIENCE_NS},
				 set_up_side, NULL),
		0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair.sides[i].freed, MESSAGES);
		vbn_ring_destroy(pair.sides[i].out);
	}
	assert_int_equal(vbn__pools_report_leaks(), 0);
	assert_int_equal(pair.went, 2 * MESSAGES);
	assert_int_equal(pair.came, 2 * MESSAGES);
}

static void between_two_workers(void **state)
{
	(void)state;
	run_pair(false);
}

/* More at a time than the ring home has slots: they wait, and lose nothing. */
static void more_than_the_ring_home_takes(void **state)
{
	(void)state;
	run_pair(true);
}

/* ---- the ring home is full for as long as its receiver does not poll ---- */

enum { PAUSE_BUFS = 3 * LANE_SLOTS };

static struct {
	struct vbn_buf *bufs[PAUSE_BUFS];
	uint64_t waited;
} pause_test;

static void *free_as_a_worker(void *arg)
{
	struct vbn_worker *worker;

	(void)arg;
	must(!vbn_worker_attach(NULL, &worker), "a thread can become a worker");
	for (int i = 0; i < PAUSE_BUFS; i += LANE_BURST) {
		vbn_buf_free(pause_test.bufs + i, LANE_BURST);
		vbn_worker_poll(worker);
	}
	pause_test.waited = counter("bufs_waited");
	vbn_worker_detach(worker); /* gives up the drain after 500 ms; what waits is pushed */
	return NULL;
}

static void what_waits_is_not_lost_when_its_sender_ends(void **state)
{
	struct vbn_worker *worker;
	struct vbn_pool *pool;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	pool = make(PAUSE_BUFS);
	assert_int_equal(vbn_buf_alloc(pool, pause_test.bufs, PAUSE_BUFS), PAUSE_BUFS);
	assert_int_equal(pthread_create(&thread, NULL, free_as_a_worker, NULL), 0);
	pthread_join(thread, NULL);
	assert_true(pause_test.waited > 0);
	assert_int_equal(vbn_pool_available(pool), 0);
	vbn_worker_poll(worker);
	assert_int_equal(vbn_pool_available(pool), PAUSE_BUFS);
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	assert_int_equal(vbn__pools_report_leaks(), 0);
}

/* ---- the pool's worker ends before its bufs are freed ---- */

static struct vbn_pool *left_pool;
static struct vbn_buf *left_bufs[100];

static void *own_and_leave(void *arg)
{
	struct vbn_worker *worker;

	(void)arg;
	must(!vbn_worker_attach(NULL, &worker), "a thread can become a worker");
	left_pool = make(100);
	must(vbn_buf_alloc(left_pool, left_bufs, 100) == 100, "a pool has its bufs");
	vbn_worker_detach(worker);
	return NULL;
}

static void a_pool_outlives_its_worker(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(pthread_create(&thread, NULL, own_and_leave, NULL), 0);
	pthread_join(thread, NULL);
	vbn_buf_free(left_bufs, 60);
	vbn_worker_poll(worker);
	vbn_worker_detach(worker);
	vbn_buf_free(left_bufs + 60, 40);
	vbn_pool_destroy(left_pool);
	assert_int_equal(vbn__pools_report_leaks(), 0);
}

/* The same, and a worker that is not its own destroys it. */
static void a_pool_is_destroyed_by_another_worker(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(pthread_create(&thread, NULL, own_and_leave, NULL), 0);
	pthread_join(thread, NULL);
	vbn_buf_free(left_bufs, 100);
	unit_catch_log();
	vbn_pool_destroy(left_pool);
	assert_string_equal(unit_log, "");
	vbn_worker_detach(worker);
	assert_int_equal(vbn__pools_report_leaks(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claimed_by_who_is_short), cmocka_unit_test(between_two_workers),
		cmocka_unit_test(more_than_the_ring_home_takes),
		cmocka_unit_test(what_waits_is_not_lost_when_its_sender_ends),
		cmocka_unit_test(a_pool_outlives_its_worker),
		cmocka_unit_test(a_pool_is_destroyed_by_another_worker),
		cmocka_unit_test(by_a_thread_that_is_no_worker), /* last: it leaves a buf behind */
	};

	unit_catch_log();
	return cmocka_run_group_tests_name("home", tests, NULL, NULL);
}
