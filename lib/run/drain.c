/* drain.c - the end of a run: polling goes on until nothing is in flight on any worker
 *
 * A worker is calm in an iteration that did nothing and left nothing in flight. One worker's calm
 * says little: a message that another one's completed send has put into its ring may still make it
 * answer. So the run's first worker looks in waves: it notes how many iterations each has
 * published, waits until each has published two more (the second of these began after the note),
 * and the run has drained if each was calm from its noted iteration on.
 */

#include "run/internal.h"

#include <inttypes.h>

/* What was posted to others counts, and bufs that have not come home. */
static uint32_t in_flight(const struct vbn_worker *worker)
{
	uint32_t sum = vbn__lane_in_flight(worker->posts) + vbn__lane_in_flight(worker->home);

	for (uint32_t i = 0; i < worker->n_ports; i++)
		sum += worker->ports[i].in_flight(worker->ports[i].arg);
	return sum;
}

static void publish(struct vbn_worker *worker, int did)
{
	uint32_t left = in_flight(worker);
	uint64_t seq = worker->drain.seq + 1;

	if (did > 0 || left)
		store_once(&worker->drain.calm_since, CALM_NEVER);
	else if (worker->drain.calm_since == CALM_NEVER)
		store_once(&worker->drain.calm_since, seq);
	store_once(&worker->drain.in_flight, left);
	store_release(&worker->drain.seq, seq); /* pairs with wave_complete() */
}

static void wave_begin(struct run *run)
{
	for (int i = 0; i < run->n_workers; i++)
		run->workers[i]->drain.noted_seq = load_acquire(&run->workers[i]->drain.seq);
}

static bool wave_complete(const struct run *run)
{
	for (int i = 0; i < run->n_workers; i++)
		if (load_acquire(&run->workers[i]->drain.seq) <
			run->workers[i]->drain.noted_seq + 2)
			return false;
	return true;
}

static bool wave_was_calm(const struct run *run)
{
	for (int i = 0; i < run->n_workers; i++)
		if (load_once(&run->workers[i]->drain.calm_since) >
			run->workers[i]->drain.noted_seq)
			return false;
	return true;
}

/* Says what is left when the time is over. */
static cold void report_left(const struct run *run)
{
	const struct vbn_worker *most = run->workers[0];
	uint64_t left = 0;

	for (int i = 0; i < run->n_workers; i++) {
		const struct vbn_worker *worker = run->workers[i];

		left += load_once(&worker->drain.in_flight);
		if (load_once(&worker->drain.in_flight) > load_once(&most->drain.in_flight))
			most = worker;
	}
	if (left)
		log_warning("run: ended with operations in flight: %" PRIu64
			    ", of which worker %d has %u: they did "
			    "not complete within the %" PRIu64
			    " ms that vbn_run() drains (drain_ns); see whether the peer is "
			    "there and receives, or give it longer",
			left, most->index, load_once(&most->drain.in_flight),
			run->drain_ns / 1000000);
	else
		log_info(
			"run: ended after all %" PRIu64
			" ms of draining, with nothing in flight: poll functions went on "
			"reporting work; let them return 0 where vbn_worker_stopping() is true and nothing arrives",
			run->drain_ns / 1000000);
}

/* The first worker decides for all. */
static void decide(struct run *run)
{
	if (wave_complete(run)) {
		if (wave_was_calm(run)) {
			store_release(&run->over, 1);
			return;
		}
		wave_begin(run);
	}
	if (clock_ns() >= run->deadline_ns) {
		report_left(run);
		store_release(&run->over, 1);
	}
}

void vbn__worker_drain(struct vbn_worker *worker)
{
	struct run *run = worker->run;
	bool first = run->workers[0] == worker;

	if (first) {
		run->deadline_ns = clock_ns() + min(run->drain_ns, (uint64_t)INT64_MAX);
		wave_begin(run);
	}
	do {
		publish(worker, vbn__worker_iterate(worker));
		if (first)
			decide(run);
	} while (!load_acquire(&run->over));
}
