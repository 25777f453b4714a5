/* idle_test.c - an idle device costs little, still answers its first doorbell within a millisecond,
 * and whatever ends its sleep does
 *
 * Where the kernel lets it the engine dozes: it sleeps until a store to a protected page, or a read of
 * the clock, wakes it. Elsewhere it naps, which costs a core some percent, and the tests of the doze
 * are tests of that.
 */

#include "../unit/vhca_ask.h"
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void sleep_ns(long time)
{
	struct timespec left = {.tv_sec = time / 1000000000, .tv_nsec = time % 1000000000};

	while (nanosleep(&left, &left))
		;
}

enum {
	NAPS = 300,
	NAP_NS = 950000,
	SETTLED_NS =
		250000000,   /* what opening leaves behind, and then no doze begins for a while */
	PAUSE_NS = 40000000, /* longer than the engine takes to begin a doze */
};

/* ---- what the process says of it ---- */

/* Whether the engine dozes, and how often it has; a device is open. Not the reason that the kernel or
 * the user has against it, but any other is a failure. */
static bool dozes(uint64_t *n)
{
	static char answer[1 << 20];
	const char *idle, *count, *why;

	vhca_ask("status", answer, sizeof(answer));
	idle = strstr(answer, "\"idle\":{");
	assert_non_null(idle);
	count = strstr(idle, "\"dozes\":");
	assert_non_null(count);
	*n = strtoull(count + 8, NULL, 10);
	if (strstr(idle, "\"is\":\"doze\""))
		return true;
	why = strstr(idle, "\"why\":\"");
	print_message("no doze: %.*s\n", why ? (int)strcspn(why + 7, "\"") : 9,
		why ? why + 7 : "asked for");
	assert_true(!why || !strncmp(why + 7, "userfaultfd ", 12));
	return false;
}

/* ---- its cost and its answer ---- */

/* Of a thread that only sleeps, as long as the device's longest nap: its share of a core, and the
 * median sleep. */
static void bare_sleeper(double *share, uint64_t *median)
{
	uint64_t took[NAPS], cpu = ns(CLOCK_PROCESS_CPUTIME_ID), wall = ns(CLOCK_MONOTONIC);

	for (int i = 0; i < NAPS; i++) {
		took[i] = ns(CLOCK_MONOTONIC);
		sleep_ns(NAP_NS);
		took[i] = ns(CLOCK_MONOTONIC) - took[i];
	}
	*share =
		(double)(ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(ns(CLOCK_MONOTONIC) - wall);
	qsort(took, NAPS, sizeof(took[0]), by_value);
	*median = took[NAPS / 2];
}

static double idle_share(void)
{
	uint64_t wall = ns(CLOCK_MONOTONIC), cpu = ns(CLOCK_PROCESS_CPUTIME_ID);

	sleep_ns(250000000);
	return (double)(ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(ns(CLOCK_MONOTONIC) - wall);
}

static void idle_costs_little(void **state)
{
	double share = 1, bound = 0.02, bare;
	struct pair_conf conf = {0};
	struct pair pair;
	uint64_t n, median;

	(void)state;
	pair_open(&pair, &conf);
	if (!dozes(&n)) {
		bare_sleeper(&bare, &median);
		print_message("a bare sleeper: %.2f %%\n", 100 * bare);
		bound = bare > 0.01 ? 2 * bare : 0.02;
	}
	sleep_ns(SETTLED_NS);
	for (int i = 0; i < 5 && share >= bound; i++) {
		share = idle_share();
		print_message("idle: %.2f %% of a core\n", 100 * share);
	}
	assert_true(share < bound);
	pair_close(&pair);
}

static void write_and_wait(struct pair *pair, uint64_t id)
{
	post_send(&pair->a, id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &pair->b, 0);
	expect_wc(pair->a.send_cq, id, IBV_WC_SUCCESS);
}

/* The median of the times that a first message takes after 30 ms without any. */
static uint64_t first_answer(struct pair *pair)
{
	enum { ROUNDS = 11 };
	uint64_t took[ROUNDS];

	for (uint64_t i = 0; i < ROUNDS; i++) {
		sleep_ns(30000000);
		took[i] = ns(CLOCK_MONOTONIC);
		write_and_wait(pair, i);
		took[i] = ns(CLOCK_MONOTONIC) - took[i];
	}
	qsort(took, ROUNDS, sizeof(took[0]), by_value);
	return took[ROUNDS / 2];
}

/* Other busy threads may hold the cores for some milliseconds: one good attempt shows what the device
 * does. */
static void idle_answers_soon(void **state)
{
	uint64_t median = UINT64_MAX, bound = 1000000, bare, before, after;
	struct pair_conf conf = {0};
	struct pair pair;
	double share;
	bool doze;

	(void)state;
	pair_open(&pair, &conf);
	doze = dozes(&before);
	if (!doze) {
		bare_sleeper(&share, &bare);
		print_message("a bare sleep of 950: %.0f us\n", (double)bare / 1e3);
		bound = bare > bound / 2 ? 2 * bare : bound;
	}
	sleep_ns(SETTLED_NS);
	for (int i = 0; i < 10 && median >= bound; i++) {
		median = first_answer(&pair);
		print_message("first answer: %.0f us\n", (double)median / 1e3);
	}
	assert_true(median < bound);
	assert_int_equal(dozes(&after), doze);
	assert_true(!doze || after > before);
	pair_close(&pair);
}

/* ---- what ends it ---- */

/* The engine's first doze after commands takes a while to begin; all that follow are begun soon. */
static void open_and_idle(struct pair *pair, const struct pair_conf *conf)
{
	pair_open(pair, conf);
	sleep_ns(SETTLED_NS);
}

/* In ticks of the device. */
static uint64_t device_clock(struct ibv_context *context)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	assert_int_equal(ibv_query_rt_values_ex(context, &values), 0);
	return (uint64_t)values.raw_clock.tv_nsec;
}

/* Between two looks as much time has passed on the device's clock as here, give or take what a busy
 * machine keeps its engine waiting. One that stood still in between is as late in each attempt. */
static void the_clock_goes_on(void **state)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};
	struct pair_conf conf = {0};
	struct pair pair;
	double off = 1;

	(void)state;
	pair_open(&pair, &conf);
	assert_int_equal(ibv_query_device_ex(pair.context, NULL, &attr), 0);
	sleep_ns(SETTLED_NS);
	for (int i = 0; i < 5 && off > 0.1; i++) {
		uint64_t before = ns(CLOCK_MONOTONIC), ticks = device_clock(pair.context), now;
		double here, there;

		sleep_ns(2 * PAUSE_NS);
		now = device_clock(pair.context);
		here = (double)(ns(CLOCK_MONOTONIC) - before);
		assert_true(now > ticks);
		there = (double)(now - ticks) * 1e6 / (double)attr.hca_core_clock;
		off = there < here ? (here - there) / here : (there - here) / here;
		print_message("%.1f ms here, %.1f on the device\n", here / 1e6, there / 1e6);
	}
	assert_true(off <= 0.1);
	pair_close(&pair);
}

/* What is posted to a QP in ERR is flushed, though nothing rings for it. */
static void to_error(struct pair *pair)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	post_recv(&pair->b, 4, 0, 64);
	assert_int_equal(ibv_modify_qp(pair->b.qp, &attr, IBV_QP_STATE), 0);
	expect_wc(pair->b.recv_cq, 4, IBV_WC_WR_FLUSH_ERR);
	sleep_ns(PAUSE_NS);
	post_recv(&pair->b, 5, 0, 64);
	expect_wc(pair->b.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
}

/* Each kind of command finds the engine asleep; what a new context and a new page bring is seen. */
static void commands_are_heard(void **state)
{
	struct pair_conf conf = {0};
	struct pair pair, other;

	(void)state;
	open_and_idle(&pair, &conf);
	for (int i = 0; i < 2; i++) {
		struct ibv_td_init_attr td_attr = {.comp_mask = 0};
		struct ibv_parent_domain_init_attr attr = {.pd = pair.pd};
		struct ibv_pd *domain;

		attr.td = ibv_alloc_td(pair.context, &td_attr);
		assert_non_null(attr.td);
		domain = ibv_alloc_parent_domain(pair.context, &attr);
		assert_non_null(domain);
		sleep_ns(PAUSE_NS);
		write_and_wait(&pair, 1);
		assert_int_equal(ibv_dealloc_pd(domain), 0);
		assert_int_equal(ibv_dealloc_td(attr.td), 0);
		sleep_ns(PAUSE_NS);
		pair_open(&other, &conf);
		write_and_wait(&other, 2);
		write_and_wait(&pair, 3);
		sleep_ns(PAUSE_NS);
		pair_close(&other);
	}
	sleep_ns(SETTLED_NS);
	to_error(&pair);
	pair_close(&pair);
}

/* ---- stores from anywhere ---- */

static struct pair *handlers_pair;
static volatile sig_atomic_t handled;

static void ring_in_handler(int signo)
{
	(void)signo;
	post_send(&handlers_pair->a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8,
		&handlers_pair->b, 0);
	handled = 1;
}

/* It waits for the engine in the handler of a signal, and signals come while it waits. */
static void a_handler_may_ring(void **state)
{
	struct sigaction action = {.sa_handler = ring_in_handler}, before;
	struct pair_conf conf = {0};
	struct pair pair;

	(void)state;
	open_and_idle(&pair, &conf);
	handlers_pair = &pair;
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	for (int i = 0; i < 3; i++) {
		sleep_ns(PAUSE_NS);
		handled = 0;
		raise(SIGUSR1);
		assert_true(handled);
		expect_wc(pair.a.send_cq, 7, IBV_WC_SUCCESS);
	}
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	pair_close(&pair);
}

enum { THREADS = 4, ROUNDS = 4 };

static pthread_barrier_t together;

static void *ring_together(void *arg)
{
	struct pair *pair = arg;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		sleep_ns(PAUSE_NS);
		pthread_barrier_wait(&together);
		write_and_wait(pair, i);
	}
	return NULL;
}

static void all_threads_ring(void **state)
{
	struct pair_conf conf = {0};
	pthread_t threads[THREADS];
	struct pair pairs[THREADS];

	(void)state;
	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		conf.share = i % 2 ? &pairs[i - 1] : NULL; /* two to a context, and to its page */
		pair_open(&pairs[i], &conf);
	}
	sleep_ns(SETTLED_NS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ring_together, &pairs[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = THREADS; i--;)
		pair_close(&pairs[i]);
	pthread_barrier_destroy(&together);
}

/* ---- processes ---- */

static void child_works(void)
{
	struct pair_conf conf = {0};
	struct pair pair;

	open_and_idle(&pair, &conf);
	write_and_wait(&pair, 1);
	sleep_ns(PAUSE_NS);
	write_and_wait(&pair, 2);
	pair_close(&pair);
	_exit(0);
}

/* A child of a process whose engine sleeps has a device of its own, and leaves the parent's alone. */
static void a_fork_in_between(void **state)
{
	struct pair_conf conf = {0};
	struct pair pair;
	int status;
	pid_t child;

	(void)state;
	open_and_idle(&pair, &conf);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		child_works();
	write_and_wait(&pair, 1);
	sleep_ns(PAUSE_NS);
	write_and_wait(&pair, 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	sleep_ns(PAUSE_NS);
	write_and_wait(&pair, 3);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_costs_little),
		cmocka_unit_test(idle_answers_soon),
		cmocka_unit_test(the_clock_goes_on),
		cmocka_unit_test(commands_are_heard),
		cmocka_unit_test(a_handler_may_ring),
		cmocka_unit_test(all_threads_ring),
		cmocka_unit_test(a_fork_in_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
