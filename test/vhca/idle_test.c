/* idle_test.c - an idle device costs little and still answers its first doorbell within a
 * millisecond */

#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

enum { NAPS = 300, NAP_NS = 950000 };

static void sleep_ns(long time)
{
	nanosleep(&(struct timespec){.tv_nsec = time}, NULL);
}

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

static void idle_costs_little(void **state)
{
	struct pair_conf conf = {0};
	uint64_t wall, cpu, median;
	double share, bare;
	struct pair pair;

	(void)state;
	bare_sleeper(&bare, &median);
	pair_open(&pair, &conf);
	sleep_ns(100000000); /* what opening leaves behind */
	wall = ns(CLOCK_MONOTONIC);
	cpu = ns(CLOCK_PROCESS_CPUTIME_ID);
	sleep_ns(900000000);
	share = (double)(ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(ns(CLOCK_MONOTONIC) - wall);
	print_message(
		"idle: %.2f %% of a core; a bare sleeper: %.2f %%\n", 100 * share, 100 * bare);
	assert_true(share < 0.02 || share < 2 * bare);
	pair_close(&pair);
}

/* The median of the times that a first message takes after 30 ms without any. */
static uint64_t first_answer(struct pair *pair)
{
	enum { ROUNDS = 21 };
	uint64_t took[ROUNDS];

	for (uint64_t i = 0; i < ROUNDS; i++) {
		sleep_ns(30000000);
		took[i] = ns(CLOCK_MONOTONIC);
		post_send(&pair->a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &pair->b, 0);
		expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
		took[i] = ns(CLOCK_MONOTONIC) - took[i];
	}
	qsort(took, ROUNDS, sizeof(took[0]), by_value);
	return took[ROUNDS / 2];
}

/* Other busy threads may hold the cores for some milliseconds: one good attempt of three shows what
 * the device does. */
static void idle_answers_soon(void **state)
{
	struct pair_conf conf = {0};
	uint64_t median = UINT64_MAX, bare;
	double share;
	struct pair pair;

	(void)state;
	bare_sleeper(&share, &bare);
	pair_open(&pair, &conf);
	for (int i = 0; i < 3 && median > 1000000 && median > 2 * bare; i++) {
		median = first_answer(&pair);
		print_message("first answer: %.0f us; a bare sleep of 950: %.0f us\n",
			(double)median / 1e3, (double)bare / 1e3);
	}
	assert_true(median < 1000000 || median < 2 * bare);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_costs_little),
		cmocka_unit_test(idle_answers_soon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
