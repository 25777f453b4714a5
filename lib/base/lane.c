/* lane.c - lanes: ends, their rings, and items that wait */

#include "base/base.h"

#include <stdlib.h>

#define CHUNK 32 /* items handed to a lane_fn at a time */

static_assert(offsetof(struct lane_end, inbound) == CACHE_LINE,
	"what others write shares no line with what the owner writes");

/* ---- lists of items ---- */

static void *item_next(const struct lane_kind *kind, const void *item)
{
	void *next;

	memcpy(&next, (const char *)item + kind->link, sizeof(next));
	return next;
}

static void item_link(const struct lane_kind *kind, void *item, void *next)
{
	memcpy((char *)item + kind->link, &next, sizeof(next));
}

/* A list's items, CHUNK at a time; each link is read before fn has the item. */
static void hand_over_list(
	const struct lane_kind *kind, void *first, struct lane_stats *stats, lane_fn *fn, void *arg)
{
	void *items[CHUNK];
	uint32_t n;

	while (first) {
		for (n = 0; first && n < CHUNK; n++) {
			items[n] = first;
			first = item_next(kind, first);
		}
		count_add(&stats->received, n);
		fn(arg, items, n);
	}
}

static void append(const struct lane_kind *kind, struct lane *lane, void *item)
{
	item_link(kind, item, NULL);
	if (lane->first)
		item_link(kind, lane->last, item);
	else
		lane->first = item;
	lane->last = item;
}

/* ---- sending ---- */

void vbn__lane_wait(struct lane *lane, void **items, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		append(lane->to->kind, lane, items[i]);
}

/* The release pairs with take_pushed(). */
void vbn__lane_push(struct lane_end *to, void *item)
{
	void *first = load_once(&to->pushed);

	do
		item_link(to->kind, item, first);
	while (!__atomic_compare_exchange_n(
		&to->pushed, &first, item, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	if (!load_once(&to->active))
		store_once(&to->active, true);
}

/* The receiver finds the new ring in its list. False: no memory; the items wait. */
static bool make_ring(struct lane *lane)
{
	struct lane_end *to = lane->to;
	struct vbn_ring *ring;

	if (vbn_ring_create(LANE_SLOTS, &ring))
		return false;
	lane->ring = ring;
	pthread_mutex_lock(&to->kind->lock);
	ring->next = to->inbound;
	store_release(&to->inbound, ring); /* pairs with lane_receive() */
	store_once(&to->active, true);
	pthread_mutex_unlock(&to->kind->lock);
	return true;
}

/* Moves what waits into the ring as far as there is room, and shows it. True: nothing waits. */
static bool flush_one(struct lane_end *end, struct lane *lane)
{
	struct vbn_ring *ring;

	if (!lane->used) {
		lane->used = true;
		lane->next_used = end->used;
		end->used = lane;
	}
	if (unlikely(!lane->ring) && !make_ring(lane))
		return false;
	ring = lane->ring;
	while (lane->first && vbn_ring_room(ring, 1)) {
		void *next = item_next(end->kind, lane->first);

		vbn_ring_put_one(ring, lane->first);
		lane->first = next;
	}
	lane_show(end, lane);
	return !lane->first;
}

void vbn__lane_flush(struct lane_end *end)
{
	struct lane *lane = end->dirty, *next, *left = NULL;

	for (; lane; lane = next) {
		next = lane->next_dirty;
		if (likely(flush_one(end, lane))) {
			lane->dirty = false;
			continue;
		}
		count_add(&end->stats.waits, 1);
		lane->next_dirty = left;
		left = lane;
	}
	end->dirty = left;
}

uint32_t vbn__lane_in_flight(const struct lane_end *end)
{
	uint32_t sum = 0;

	for (const struct lane *lane = end->used; lane; lane = lane->next_used)
		if (lane->ring)
			sum += vbn_ring_in_flight(lane->ring);
	for (const struct lane *lane = end->dirty; lane; lane = lane->next_dirty)
		sum += !!lane->first;
	return sum;
}

/* ---- receiving ---- */

/* What was there at the start, so that a sender who keeps up cannot hold the receiver here. */
static void take_ring(struct vbn_ring *ring, struct lane_stats *stats, lane_fn *fn, void *arg)
{
	uint32_t left = vbn_ring_ready(ring);
	void *items[CHUNK];

	while (left) {
		uint32_t n = vbn_ring_take(ring, items, min(left, (uint32_t)CHUNK));

		left -= n;
		count_add(&stats->received, n);
		fn(arg, items, n);
	}
}

/* Whoever pushed first comes first. */
static cold void take_pushed(struct lane_end *end, lane_fn *fn, void *arg)
{
	void *newest = __atomic_exchange_n(&end->pushed, NULL, __ATOMIC_ACQUIRE), *oldest = NULL;

	while (newest) {
		void *next = item_next(end->kind, newest);

		item_link(end->kind, newest, oldest);
		oldest = newest;
		newest = next;
	}
	hand_over_list(end->kind, oldest, &end->stats, fn, arg);
}

void vbn__lane_receive(struct lane_end *end, lane_fn *fn, void *arg)
{
	for (struct vbn_ring *ring = load_acquire(&end->inbound); ring; ring = ring->next)
		take_ring(ring, &end->stats, fn, arg);
	if (unlikely(load_once(&end->pushed)))
		take_pushed(end, fn, arg);
}

/* ---- ends ---- */

static struct lane_end *make_end(struct lane_kind *kind, int id)
{
	struct lane_end *end = aligned_alloc(CACHE_LINE, sizeof(*end));

	if (!end)
		return NULL;
	memset(end, 0, sizeof(*end));
	end->lanes = calloc(LANE_ENDS, sizeof(*end->lanes));
	if (!end->lanes) {
		free(end);
		return NULL;
	}
	end->kind = kind;
	end->id = id;
	kind->ends[id] = end;
	return end;
}

int vbn__lane_open(struct lane_kind *kind, struct lane_end **opened)
{
	struct lane_end *end = NULL;
	int id = 0, ret = 0;

	pthread_mutex_lock(&kind->lock);
	while (id < LANE_ENDS && kind->ends[id] && kind->ends[id]->open)
		id++;
	if (id == LANE_ENDS) {
		ret = -ENOSPC;
		goto unlock;
	}
	end = kind->ends[id] ? kind->ends[id] : make_end(kind, id);
	if (!end) {
		ret = -ENOMEM;
		goto unlock;
	}
	end->stats = (struct lane_stats){0};
	end->open = true;
unlock:
	pthread_mutex_unlock(&kind->lock);
	*opened = end;
	return ret;
}

/* What could not be put into a ring goes the way of those who have none. */
static void push_waiting(struct lane_end *end, struct lane *lane)
{
	while (lane->first) {
		void *item = lane->first;

		lane->first = item_next(end->kind, item);
		vbn__lane_push(lane->to, item);
	}
}

void vbn__lane_close(struct lane_end *end, lane_fn *fn, void *arg)
{
	if (!end)
		return;
	vbn__lane_flush(end);
	for (struct lane *lane = end->dirty; lane; lane = lane->next_dirty) {
		push_waiting(end, lane);
		lane->dirty = false;
	}
	end->dirty = NULL;
	pthread_mutex_lock(&end->kind->lock);
	end->open = false;
	vbn__lane_receive(end, fn, arg);
	pthread_mutex_unlock(&end->kind->lock);
}

void vbn__lane_sweep(struct lane_kind *kind, lane_fn *fn, void *arg)
{
	pthread_mutex_lock(&kind->lock);
	for (int id = 0; id < LANE_ENDS && kind->ends[id]; id++)
		if (!kind->ends[id]->open)
			vbn__lane_receive(kind->ends[id], fn, arg);
	pthread_mutex_unlock(&kind->lock);
}
