/* msgrate_layout.c - which worker has which ends, and which of them are peers */
#include "msgrate.h"

#include <stdlib.h>

/* Streams of the side that listens are told apart from those of the side that connects. */
#define LISTENING 0x40000000u

static int pair_of(const struct run *run, int core)
{
	return run->conf.one_worker ? core : core / 2;
}

/* Links n ends of a side to as many of its peer's, from the given places on. Streams are numbered
 * by the sending end. */
static void link_ends(struct run *run, struct side *a, int at_a, struct side *b, int at_b, int n)
{
	for (int i = 0; i < n; i++) {
		struct end *sender = &a->ends[at_a + i], *receiver = &b->ends[at_b + i];

		sender->side = a;
		receiver->side = b;
		sender->peer = receiver;
		receiver->peer = sender;
		sender->sends = receiver->receives = true;
		sender->receives = receiver->sends = run->conf.bidirectional;
		receiver->answers = run->conf.latency;
		sender->stream = receiver->peer_stream = (uint32_t)(sender - run->ends) + 1;
		receiver->stream = sender->peer_stream = (uint32_t)(receiver - run->ends) + 1;
		run->n_senders += run->conf.bidirectional && !run->conf.latency ? 2 : 1;
	}
}

/* Cores pair up in their order; one that is left over, and each with --one-worker, has both ends.
 */
static void lay_out(struct run *run)
{
	int n = (int)run->conf.queues, used = 0;

	for (int i = 0; i < run->n_sides; i++) {
		struct side *side = &run->sides[i];
		bool first = i == 0 || pair_of(run, i) != pair_of(run, i - 1);
		bool alone =
			first && (i + 1 == run->n_sides || pair_of(run, i + 1) != pair_of(run, i));

		side->run = run;
		side->index = i;
		side->ends = run->ends + used;
		side->n_ends = alone ? 2 * n : n;
		used += side->n_ends;
		if (alone)
			link_ends(run, side, 0, side, n, n);
		else if (!first)
			link_ends(run, side - 1, 0, side, 0, n);
	}
}

/* The ends of a run between processes: as many here as there, peers by their place. */
static void lay_out_half(struct run *run, int n_ends)
{
	bool leads = run->other->leads;

	for (int i = 0; i < run->n_sides; i++) {
		struct side *side = &run->sides[i];
		int first = (int)((int64_t)n_ends * i / run->n_sides);

		side->run = run;
		side->index = i;
		side->ends = run->ends + first;
		side->n_ends = (int)((int64_t)n_ends * (i + 1) / run->n_sides) - first;
		for (int j = 0; j < side->n_ends; j++)
			side->ends[j].side = side;
	}
	for (int i = 0; i < n_ends; i++) {
		struct end *end = &run->ends[i];
		uint32_t here = leads ? 0 : LISTENING, there = leads ? LISTENING : 0;

		end->stream = here | (uint32_t)(i + 1);
		end->peer_stream = there | (uint32_t)(i + 1);
		end->sends = leads || run->conf.bidirectional;
		end->receives = !leads || run->conf.bidirectional;
		end->answers = !leads && run->conf.latency;
		run->n_senders += end->sends && !end->answers;
	}
	run->n_unfinished = run->n_senders;
}

static void *zalloc_aligned(size_t n, size_t size)
{
	void *memory = aligned_alloc(64, n * size);

	return memory ? memset(memory, 0, n * size) : NULL;
}

int sides_make(struct run *run)
{
	size_t most = 2 * (size_t)run->conf.queues * (size_t)run->n_cores;

	if (run->other && !run->other->leads)
		most = (size_t)run->other->n_ends;
	else if (run->other)
		most /= 2;
	/* A worker without an end has nothing to do. */
	run->n_sides = run->n_cores < (int)most ? run->n_cores : (int)most;
	run->sides = zalloc_aligned((size_t)run->n_sides, sizeof(*run->sides));
	run->ends = zalloc_aligned(most, sizeof(*run->ends));
	if (!run->sides || !run->ends)
		return cannot(
			"the run cannot be laid out: there is no memory for %zu queues; give fewer --queues",
			most);
	if (run->other)
		lay_out_half(run, (int)most);
	else
		lay_out(run);
	for (int i = 0; i < run->n_sides; i++)
		run->n_ends += run->sides[i].n_ends;
	return 0;
}

void sides_free(struct run *run)
{
	for (int i = 0; run->sides && i < run->n_sides; i++)
		free(run->sides[i].times);
	free(run->ends);
	free(run->sides);
	run->ends = NULL;
	run->sides = NULL;
	run->n_sides = run->n_ends = run->n_senders = 0;
}
