/* lane.h - lanes: what one worker hands to another, by a ring for each pair that has ever used it
 *
 *     worker 0's end ──ring──▶ worker 1's end ◀──ring── worker 2's end
 *                                    ▲
 *                                    └── list ── any thread that has no end
 *
 * A kind of lane carries one sort of item: bufs on their way home, functions to run. Each worker has
 * one end of each kind. An item is handed over by one store into a ring, and all of an iteration are
 * shown to the other side by one more (lane_flush). No item is ever refused: one that finds its ring
 * full, or not yet made, waits in a list that the items themselves form, and goes with a later flush.
 *
 * Who may call what: lane_send(), lane_flush(), lane_receive() and lane_in_flight() the end's owner
 * alone; lane_push() any thread. What is ordered: the items of one sender to one receiver stay in
 * order, and what the sender wrote before it sent is seen by who receives. What is not: the items
 * of two senders. Sending takes no locked instruction, lane_push() takes one.
 *
 * An end that was opened stays in memory for good, and serves another worker when its own is gone,
 * so an end that a sender has just read the address of may be closed but is never freed memory. What
 * arrives at a closed end stays there until somebody sweeps or the end is opened again.
 */
#ifndef VBN_LANE_H
#define VBN_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <verbena/ring.h>

#define LANE_ENDS  1024
#define LANE_SLOTS 512 /* of a ring */
#define LANE_BURST 64  /* shown to the other side as soon as there are so many */

struct lane_end;

/* One sort of item, static. */
struct lane_kind {
	size_t link; /* offset in an item of a pointer that is free for a list while it is under way */
	pthread_mutex_t lock;
	struct lane_end *ends[LANE_ENDS]; /* under the lock, as is each end's `open` */
};

/* The way from one end to another; the sender's. */
struct lane {
	struct vbn_ring *ring; /* NULL until the first flush that had use for one */
	struct lane_end *to;
	void *first, *last; /* items that wait for room, oldest first */
	struct lane *next_dirty, *next_used;
	uint32_t shown; /* the ring's `staged` when it was last published */
	bool dirty;     /* something was sent since the last flush, or waits */
	bool used;
};

struct lane_stats {
	uint64_t sent, received, waits; /* waits: flushes that left items for the next one */
};

struct lane_end {
	/* line 0: the owner's */
	struct lane *lanes; /* by the other end's id */
	struct lane *dirty, *used;
	struct lane_stats stats;
	struct lane_kind *kind;
	/* line 1: written by others when they first send here, read by the owner in each iteration */
	struct vbn_ring *inbound __attribute__((__aligned__(64))); /* newest first */
	void *pushed; /* items of threads without an end, newest first */
	int id;
	bool active; /* something was ever sent from here or to here; stays */
	bool open;
};

/* What is called with items that have arrived. */
typedef void lane_fn(void *arg, void **items, uint32_t n);

/* An end for a new worker: 0, -ENOMEM, or -ENOSPC where LANE_ENDS are open, without a sentence. What
 * the end may still hold is as if sent now. */
int vbn__lane_open(struct lane_kind *kind, struct lane_end **end);

/* The owner sends and receives no more: what it received and sent and nobody has taken goes on to
 * who is there, or to fn. NULL is allowed. */
void vbn__lane_close(struct lane_end *end, lane_fn *fn, void *arg);

/* Hands what lies at closed ends to fn, under the kind's lock. Any thread. */
void vbn__lane_sweep(struct lane_kind *kind, lane_fn *fn, void *arg);

void vbn__lane_push(struct lane_end *to, void *item);
void vbn__lane_wait(struct lane *lane, void **items, uint32_t n);
void vbn__lane_flush(struct lane_end *end);
void vbn__lane_receive(struct lane_end *end, lane_fn *fn, void *arg);

/* Items that were sent and that the other side has not taken. Not for each iteration. */
uint32_t vbn__lane_in_flight(const struct lane_end *end);

/* Shows the other side what was put into the ring. */
static force_inline void lane_show(struct lane_end *from, struct lane *lane)
{
	count_add(&from->stats.sent, lane->ring->staged - lane->shown);
	lane->shown = lane->ring->staged;
	vbn_ring_publish(lane->ring);
}

static force_inline void lane_send(
	struct lane_end *from, struct lane_end *to, void **items, uint32_t n)
{
	struct lane *lane = &from->lanes[to->id];
	uint32_t put = 0;

	if (!lane->dirty) {
		store_once(&from->active, true);
		lane->dirty = true;
		lane->to = to;
		lane->next_dirty = from->dirty;
		from->dirty = lane;
	}
	if (likely(lane->ring && !lane->first)) {
		put = vbn_ring_put(lane->ring, items, n);
		if (lane->ring->staged - lane->shown >= LANE_BURST)
			lane_show(from, lane);
	}
	if (unlikely(put != n))
		vbn__lane_wait(lane, items + put, n - put);
}

/* Whether there is anything to flush or to receive: one compare where nothing has ever crossed. */
static force_inline bool lane_active(const struct lane_end *end)
{
	return unlikely(load_once(&end->active));
}

/* At the end of an iteration: shows all that was sent. */
static force_inline void lane_flush(struct lane_end *end)
{
	if (end->dirty)
		vbn__lane_flush(end);
}

/* Hands what has arrived to fn. */
static force_inline void lane_receive(struct lane_end *end, lane_fn *fn, void *arg)
{
	if (load_once(&end->inbound) || load_once(&end->pushed))
		vbn__lane_receive(end, fn, arg);
}

#endif
