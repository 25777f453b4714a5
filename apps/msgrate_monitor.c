/* msgrate_monitor.c - the thread that sleeps, and tells the time */
#include "msgrate.h"

#include <signal.h>
#include <time.h>

/* Sleeps until the moment, or until the run is over: true then. */
static bool sleep_until(struct run *run, uint64_t ns)
{
	struct timespec at = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
	int err = 0;
	bool over;

	pthread_mutex_lock(&run->lock);
	while (!run->over && !err)
		err = pthread_cond_timedwait(&run->over_change, &run->lock, &at);
	over = run->over;
	pthread_mutex_unlock(&run->lock);
	return over;
}

/* Messages and writes that are on their way. */
static uint64_t on_the_way(struct run *run)
{
	uint64_t sum = 0;

	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];
		uint64_t came = run->conf.op == OP_WRITE ? load_once(&end->completed)
							 : load_once(&end->peer->received);
		uint64_t sent = load_once(&end->sent);

		if (end->sends && sent > came)
			sum += sent - came;
	}
	return sum;
}

/* The time is over: nothing new is sent, and what is on its way may take as long as it comes. */
static void wind_down(struct run *run)
{
	uint64_t left = on_the_way(run), last = now_ns(), now = last;

	store_once(&run->phase, PHASE_END);
	while (left && now - last < SECOND) {
		uint64_t before = left;

		if (sleep_until(run, now + SECOND / 200))
			return;
		left = on_the_way(run);
		now = now_ns();
		if (left != before)
			last = now;
	}
	vbn_stop();
}

static void watch(struct run *run)
{
	uint64_t begin = now_ns() + (uint64_t)run->conf.warmup, next = begin;
	uint64_t end = run->conf.iters ? UINT64_MAX : begin + (uint64_t)run->conf.duration;
	struct progress start, before, now;

	if (sleep_until(run, begin))
		return;
	store_once(&run->phase, PHASE_COUNT);
	progress_take(run, &start);
	before = start;
	while (next < end) {
		next = end - next > SECOND ? next + SECOND : end;
		if (sleep_until(run, next))
			return;
		progress_take(run, &now);
		if (now.ns - before.ns > SECOND / 2)
			progress_print(run, &start, &before, &now);
		before = now;
	}
	wind_down(run);
}

/* Tells how far the set-up is, each second. The side that gives up says why. */
static int await_setup(struct run *run)
{
	char queues[64];
	int err;

	while ((err = meet(run, STAGE_CONNECTED, SECOND)) == -ETIMEDOUT)
		say_live("setting up: %d of %s", load_once(&run->n_made),
			plural((uint64_t)run->n_ends, "queue", queues));
	say_live(NULL);
	return err;
}

static void *monitor(void *arg)
{
	struct run *run = arg;

	if (await_setup(run))
		return NULL;
	if (*run->chosen)
		say("%s", run->chosen);
	modes_print(run);
	watch(run);
	return NULL;
}

int monitor_start(struct run *run)
{
	sigset_t set, old;
	int err;

	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, &old);
	err = pthread_create(&run->monitor, NULL, monitor, run);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err
		? cannot("the run cannot be watched: no thread can be started: %s; raise ulimit -u or -v",
			  strerror(err))
		: 0;
}

void monitor_stop(struct run *run)
{
	give_up(run, -ECANCELED);
	pthread_mutex_lock(&run->lock);
	run->over = true;
	pthread_cond_broadcast(&run->over_change);
	pthread_mutex_unlock(&run->lock);
	pthread_join(run->monitor, NULL);
	say_live(NULL);
}
