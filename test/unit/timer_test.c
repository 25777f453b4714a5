/* timer_test.c - timers: the wheel against a sorted list, every level and its borders, and timers of
 * a worker */

#include "unit.h"

#include "run/wheel.h"

#include <verbena.h>

#define MANY 1000

static uint64_t random_state;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* ---- the wheel against a model: an array that knows when each timer is due ---- */

enum { SHIFT = 4, TICK = 1 << SHIFT };

struct modelled {
	struct vbn_timer timer;
	bool pending;
	uint64_t due;   /* cycles asked for */
	uint64_t fires; /* tick: the first run at or after it must fire it */
	int n_fired;
};

static struct {
	struct wheel wheel;
	struct modelled timers[MANY];
	uint64_t now, last_tick;
	int n_fired;
	bool restarts; /* what fires starts itself and stops another */
} model;

static uint64_t tick_of(uint64_t cycles)
{
	return (cycles >> SHIFT) + ((cycles & (TICK - 1)) != 0);
}

static void model_start(struct modelled *one, uint64_t cycles)
{
	if (one->pending)
		vbn__wheel_stop(&model.wheel, &one->timer);
	one->pending = true;
	one->due = cycles;
	one->fires = max(tick_of(cycles), model.wheel.until + 1);
	vbn__wheel_start(&model.wheel, &one->timer, cycles);
}

static void model_stop(struct modelled *one)
{
	if (!one->pending)
		return;
	one->pending = false;
	vbn__wheel_stop(&model.wheel, &one->timer);
}

/* Of any length, each number of bits as likely as any other. */
static uint64_t random_distance(void)
{
	const uint64_t bits = random_number() % 64;

	return random_number() >> bits;
}

/* Of up to 40 bits, so that time does not soon come to its end. */
static uint64_t random_step(void)
{
	const uint64_t bits = random_number() % 40;

	return random_number() >> (24 + bits);
}

static uint64_t later(uint64_t distance)
{
	return distance > WHEEL_LAST - model.now ? WHEEL_LAST : model.now + distance;
}

static void fired(struct vbn_worker *worker, void *arg)
{
	struct modelled *one = arg;

	assert_null(worker);
	assert_true(one->pending);
	assert_false(vbn_timer_pending(&one->timer));
	assert_true(one->due <= model.now);
	assert_true(one->fires >= model.last_tick); /* in order */
	assert_true(one->fires <= model.now >> SHIFT);
	model.last_tick = one->fires;
	one->pending = false;
	one->n_fired++;
	model.n_fired++;
	if (!model.restarts)
		return;
	if (random_number() % 4 == 0)
		model_start(one, later(random_number() % 2 ? random_step() : random_distance()));
	if (random_number() % 4 == 0)
		model_stop(&model.timers[random_number() % MANY]);
}

/* Nothing that is due by now is pending, and the wheel is not late in saying when to look. */
static void check(void)
{
	uint64_t soonest = UINT64_MAX;

	for (int i = 0; i < MANY; i++) {
		const struct modelled *one = &model.timers[i];

		assert_int_equal(vbn_timer_pending(&one->timer), one->pending);
		if (one->pending)
			soonest = min(soonest, one->fires);
	}
	assert_true(soonest > model.now >> SHIFT);
	if (soonest != UINT64_MAX)
		assert_true(model.wheel.due <= soonest << SHIFT);
}

static void run_at(uint64_t now)
{
	model.now = now;
	model.last_tick = 0;
	if (wheel_due(&model.wheel, now))
		vbn__wheel_run(&model.wheel, NULL, now);
}

static void model_begin(uint64_t seed, uint64_t now)
{
	memset(&model, 0, sizeof(model));
	random_state = seed;
	model.now = now;
	vbn__wheel_init(&model.wheel, SHIFT, now);
	for (int i = 0; i < MANY; i++)
		vbn_timer_init(&model.timers[i].timer, fired, &model.timers[i]);
}

static void random_turns(int n)
{
	for (int turn = 0; turn < n; turn++) {
		for (int i = 0; i < 8; i++) {
			struct modelled *one = &model.timers[random_number() % MANY];

			if (random_number() % 3)
				model_start(one, later(random_distance()));
			else
				model_stop(one);
		}
		run_at(later(random_step()));
		check();
	}
}

static void as_a_sorted_list_would(void **state)
{
	/* from small times, just before the digits of each level run over, and near the end of time */
	static const uint64_t starts[] = {0, 1, (1ull << 10) - 3, (1ull << 16) - 3,
		(1ull << 22) - 3, (1ull << 40) - 7, (1ull << 58) - 5, (1ull << 63) - 99};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		for (int restarts = 0; restarts < 2; restarts++) {
			model_begin(0x9e3779b97f4a7c15 + i, starts[i]);
			model.restarts = restarts;
			random_turns(120);
			if (starts[i] < 1ull << 60) /* time does not end there */
				assert_true(model.n_fired > 100);
		}
	}
}

static uint64_t one(int bit)
{
	return (uint64_t)1 << bit;
}

/* Each distance of one bit, and one to each side, from each side of a border. */
static void every_border_of_every_level(void **state)
{
	(void)state;
	for (int from = 6; from < 60; from += 3) {
		for (uint64_t before = 0; before < 3; before++) {
			const uint64_t now = (one(from) - 1 + before) << SHIFT >> 1;

			model_begin(1, now);
			for (int bit = 0; bit < 62; bit++)
				for (int off = 0; off < 3; off++)
					model_start(&model.timers[bit * 3 + off],
						later(one(bit) - 1 + (uint64_t)off));
			check();
			while (model.wheel.due != UINT64_MAX && model.wheel.due >= model.now) {
				run_at(model.wheel.due);
				check();
			}
			assert_int_equal(model.n_fired, 62 * 3);
		}
	}
}

/* Where nothing is due one compare says so, until the very tick. */
static void never_early(void **state)
{
	(void)state;
	for (uint64_t distance = 1; distance < 1ull << 50; distance = distance * 3 + 1) {
		model_begin(1, 12345);
		model_start(&model.timers[0], 12345 + distance);
		run_at(12345 + distance - 1);
		assert_int_equal(model.n_fired, 0);
		run_at(12345 + distance + TICK - 1);
		assert_int_equal(model.n_fired, 1);
		assert_false(wheel_due(&model.wheel, UINT64_MAX - 1));
	}
}

/* ---- a worker's ---- */

struct seen {
	struct vbn_timer timer;
	int n;
	uint64_t at, due, iteration;
	int again; /* how often it starts itself */
	struct seen *stops;
};

static uint64_t iterations(const struct vbn_worker *worker)
{
	struct vbn_worker_stats stats;

	vbn_worker_stats(worker, &stats);
	return stats.iterations;
}

static void note(struct vbn_worker *worker, void *arg)
{
	struct seen *seen = arg;

	assert_ptr_equal(vbn_worker_self(), worker);
	assert_false(vbn_timer_pending(&seen->timer));
	seen->n++;
	seen->at = clock_cycles();
	assert_true(!seen->again || iterations(worker) != seen->iteration);
	seen->iteration = iterations(worker);
	if (seen->again) {
		seen->again--;
		vbn_timer_start(worker, &seen->timer, 0);
	}
	if (seen->stops)
		vbn_timer_stop(worker, &seen->stops->timer);
}

static struct vbn_worker *attach(void)
{
	struct vbn_worker *worker;

	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	return worker;
}

static void poll_until(struct vbn_worker *worker, const int *n, int value)
{
	const uint64_t deadline = clock_ns() + 60ull * 1000 * 1000 * 1000;

	while (*n < value) {
		assert_true(clock_ns() < deadline);
		vbn_worker_poll(worker);
	}
}

static void fires_once_and_not_early(void **state)
{
	struct vbn_worker *worker = attach();
	struct seen seen = {0};

	(void)state;
	assert_in_range(vbn_timer_tick_ns(worker), 1, 1001);
	vbn_timer_init(&seen.timer, note, &seen);
	assert_false(vbn_timer_stop(worker, &seen.timer));
	for (uint64_t ns = 1; ns < 4000000; ns = ns * 5) {
		const uint64_t before = vbn_worker_cycles(worker);

		vbn_timer_start(worker, &seen.timer, ns);
		assert_true(vbn_timer_pending(&seen.timer));
		seen.n = 0;
		poll_until(worker, &seen.n, 1);
		assert_true((double)(seen.at - before) >=
			(double)ns * (double)vbn_cycles_hz() / 1e9 * 0.9999);
		for (int i = 0; i < 10; i++)
			vbn_worker_poll(worker);
		assert_int_equal(seen.n, 1);
	}
	vbn_worker_detach(worker);
}

static void moved_and_stopped(void **state)
{
	struct vbn_worker *worker = attach();
	struct seen moved = {0}, stopped = {0}, never = {0};

	(void)state;
	vbn_timer_init(&moved.timer, note, &moved);
	vbn_timer_init(&stopped.timer, note, &stopped);
	vbn_timer_init(&never.timer, note, &never);
	vbn_timer_start(worker, &moved.timer, UINT64_MAX);
	vbn_timer_start(worker, &never.timer, UINT64_MAX);
	vbn_timer_start(worker, &stopped.timer, 1000);
	vbn_timer_start_at(worker, &moved.timer, 0); /* long past */
	assert_true(vbn_timer_stop(worker, &stopped.timer));
	assert_false(vbn_timer_pending(&stopped.timer));
	poll_until(worker, &moved.n, 1);
	assert_int_equal(stopped.n, 0);
	assert_int_equal(never.n, 0);
	assert_true(vbn_timer_pending(&never.timer));
	vbn_worker_detach(worker);
}

/* Two at one time, each of which stops the other: whichever is first is the only one. */
static void a_function_stops_one_that_is_due(void **state)
{
	struct vbn_worker *worker = attach();
	struct seen one = {0}, other = {0};

	(void)state;
	one.stops = &other;
	other.stops = &one;
	vbn_timer_init(&one.timer, note, &one);
	vbn_timer_init(&other.timer, note, &other);
	for (int i = 0; i < 10; i++) {
		const uint64_t at = vbn_worker_cycles(worker) + 1000;
		int before = one.n + other.n;

		vbn_timer_start_at(worker, &one.timer, at);
		vbn_timer_start_at(worker, &other.timer, at);
		while (one.n + other.n == before)
			vbn_worker_poll(worker);
		vbn_worker_poll(worker);
		assert_int_equal(one.n + other.n, before + 1);
	}
	vbn_worker_detach(worker);
}

static void one_that_starts_itself_gives_way(void **state)
{
	struct vbn_worker *worker = attach();
	struct seen seen = {.again = 20};

	(void)state;
	vbn_timer_init(&seen.timer, note, &seen);
	vbn_timer_start(worker, &seen.timer, 0);
	poll_until(worker, &seen.n, 21);
	vbn_worker_detach(worker);
}

static int n_of_run;

static void count_of_run(struct vbn_worker *worker, void *arg)
{
	struct seen *seen = arg;

	if (++n_of_run == MANY)
		vbn_worker_done(worker);
	else
		vbn_timer_start(worker, &seen->timer, 100);
}

static int set_up_run(struct vbn_worker *worker, void *arg)
{
	struct seen *seen = arg;

	if (vbn_worker_index(worker)) {
		vbn_worker_done(worker);
		return 0;
	}
	vbn_timer_init(&seen->timer, count_of_run, seen);
	vbn_timer_start(worker, &seen->timer, 100);
	return 0;
}

static void in_a_workers_own_loop(void **state)
{
	struct seen seen = {0};

	(void)state;
	n_of_run = 0;
	assert_int_equal(vbn_run(NULL, set_up_run, &seen), 0);
	assert_int_equal(n_of_run, MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_a_sorted_list_would),
		cmocka_unit_test(every_border_of_every_level),
		cmocka_unit_test(never_early),
		cmocka_unit_test(fires_once_and_not_early),
		cmocka_unit_test(moved_and_stopped),
		cmocka_unit_test(a_function_stops_one_that_is_due),
		cmocka_unit_test(one_that_starts_itself_gives_way),
		cmocka_unit_test(in_a_workers_own_loop),
	};

	return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
