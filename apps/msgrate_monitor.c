/* msgrate_monitor.c - the thread that sleeps, and tells the time */
#include "msgrate.h"

#include <signal.h>
#include <time.h>

/* A process that has not said in this time that it sends no more never will: it is stopped, or its
 * host is. */
#define SILENCE (20 * SECOND)
#define SOON    (2 * SECOND) /* when it is told that the other process does not answer */

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

/* Messages that are on their way; between processes those that come here, and those sent from here
 * of which this end sees the completion. */
static uint64_t on_the_way(struct run *run)
{
	bool received = counts_where_it_comes(run);
	uint64_t sum = 0;

	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];
		uint64_t sent, came;

		if (received ? !end->receives : !end->sends)
			continue;
		sent = received ? end_sent_by_peer(end) : load_once(&end->sent);
		came = load_once(received ? &end->received : &end->completed);
		if (sent > came && sent != UINT64_MAX)
			sum += sent - came;
	}
	return sum;
}

static bool sides_quiet(const struct run *run)
{
	for (int i = 0; i < run->n_sides; i++)
		if (!load_once(&run->sides[i].quiet))
			return false;
	return true;
}

/* How long the other process may take to end, too: with --iters it may be a slower one with as many to
 * send. */
static uint64_t others_time(const struct run *run, uint64_t now)
{
	return SILENCE + (run->conf.iters ? 4 * (now - load_once(&run->sides[0].start.ns)) : 0);
}

/* Between processes: neither sends any more, and each knows what the other one has sent. The one
 * that is told to end by the other, or by a signal, tells it, too. */
static void agree_on_end(struct run *run)
{
	uint64_t until = now_ns() + SECOND, since;
	bool told = run->conf.iters; /* it may have more to send */

	while (!sides_quiet(run) && now_ns() < until)
		if (sleep_until(run, now_ns() + SECOND / 1000))
			break;
	if (other_tell_end(run))
		return;
	since = now_ns();
	until = since + others_time(run, since);
	while (!other_poll(run, SECOND / 50)) {
		if (now_ns() > until) {
			other_is_silent(run);
			return;
		}
		if (told || now_ns() - since < SOON)
			continue;
		told = true;
		say("the other process does not answer: it is stopped, or its host is; it has %lld s to "
		    "go on",
			(SILENCE - SOON) / SECOND);
	}
}

/* The time is over: nothing new is sent, and what is on its way may take as long as it comes. */
static void wind_down(struct run *run)
{
	uint64_t left, last, now;

	store_once(&run->phase, PHASE_END);
	if (run->other)
		agree_on_end(run);
	if (run->other)
		other_say_loss(run->other); /* before what follows from it */
	left = on_the_way(run);
	last = now = now_ns();
	while (left && now - last < SECOND && !(run->other && run->other->lost)) {
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

static bool sent_all_iters(const struct run *run)
{
	return run->conf.iters && run->n_senders && load_once(&run->n_unfinished) <= 0;
}

/* The other process has ended because all of its --iters are sent, not because it was stopped. */
static bool other_sent_all_iters(const struct run *run)
{
	if (!run->conf.iters || run->other->lost)
		return false;
	for (int i = 0; i < run->n_ends; i++)
		if (load_once(&run->ends[i].peer_sent) < (uint64_t)run->conf.iters)
			return false;
	return true;
}

/* Between processes the run is over before its time where the other one says so, a signal has come,
 * or with --iters both have sent all. */
static bool is_over(struct run *run)
{
	if (!run->other)
		return false;
	if (other_poll(run, 0) && !(run->n_senders && other_sent_all_iters(run))) {
		run->other->ended_early =
			run->other->leads && run->other->ended && !run->conf.iters;
		if (run->other->ended_early)
			say("the other process has ended the run before its time");
		return true;
	}
	return stop_signal() || sent_all_iters(run);
}

/* Sleeps to the moment in naps short enough to hear the other process. */
static bool sleep_or_over(struct run *run, uint64_t ns)
{
	while (run->other && now_ns() + SECOND / 50 < ns) {
		if (is_over(run) || sleep_until(run, now_ns() + SECOND / 50))
			return true;
	}
	return sleep_until(run, ns) || is_over(run);
}

/* Each second, or for a report as often as it draws. */
static uint64_t tick(const struct run *run)
{
	return run->samples ? samples_tick(run) : SECOND;
}

static void watch(struct run *run)
{
	uint64_t begin = now_ns() + (uint64_t)run->conf.warmup, next = begin, due = begin + SECOND;
	bool follows = run->other && !run->other->leads;
	uint64_t end = run->conf.iters
		? UINT64_MAX
		: begin + (uint64_t)run->conf.duration + (follows ? SILENCE : 0);
	struct progress start, before, now;

	if (sleep_or_over(run, begin))
		return;
	store_once(&run->phase, PHASE_COUNT);
	progress_take(run, &start);
	before = start;
	samples_take(run);
	while (next < end) {
		next = end - next > tick(run) ? next + tick(run) : end;
		if (sleep_or_over(run, next))
			return;
		samples_take(run);
		if (next < due && next != end)
			continue;
		due = next + SECOND;
		progress_take(run, &now);
		if (now.ns - before.ns > SECOND / 2)
			progress_print(run, &start, &before, &now);
		before = now;
	}
	if (follows)
		other_is_silent(run);
}

/* Where the other process has gone there is nothing to wait for. */
static void part(struct run *run)
{
	while (meet(run, STAGE_DRAINED, SECOND) == -ETIMEDOUT)
		;
	if (!run->other->lost)
		other_swap_tallies(run, "tally");
	arrive_all(run, STAGE_PARTED);
	while (meet(run, STAGE_SCANNED, SECOND) == -ETIMEDOUT)
		;
	if (!run->other->lost)
		other_swap_tallies(run, "final");
}

/* Tells how far the set-up is, each second. The side that gives up says why. */
static int await_stage(struct run *run, enum stage stage)
{
	char queues[64];
	int err;

	while ((err = meet(run, stage, SECOND)) == -ETIMEDOUT)
		say_live("setting up: %d of %s, %.1f MiB of memory", load_once(&run->n_made),
			plural((uint64_t)run->n_ends, "queue", queues),
			(double)load_once(&run->zone_bytes) / (1 << 20));
	say_live(NULL);
	return err;
}

/* Between processes: where the other one's ends are, and that all are connected. */
static int set_up_peer(struct run *run)
{
	int err = await_stage(run, STAGE_ADDRESS);

	if (!err)
		err = other_swap_ends(run);
	if (err)
		return err;
	arrive_all(run, STAGE_PEERED);
	err = await_stage(run, STAGE_CONNECTED);
	return err ? err : other_ready(run);
}

static void *monitor(void *arg)
{
	struct run *run = arg;
	int err = run->other ? set_up_peer(run) : await_stage(run, STAGE_CONNECTED);

	if (err) {
		give_up(run, err);
		vbn_stop();
		return NULL;
	}
	if (*run->chosen)
		say("%s", run->chosen);
	if (!run->conf.aside) {
		cores_say_shared(run);
		modes_print(run);
	}
	if (run->other)
		store_once(&run->phase, run->conf.warmup ? PHASE_WARM : PHASE_COUNT);
	watch(run);
	wind_down(run);
	if (run->other)
		part(run);
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
