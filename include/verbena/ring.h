/* verbena/ring.h - a ring: pointers from one thread to one other, in order, with no locked
 * instruction
 *
 *     producer: vbn_ring_put() … vbn_ring_publish()        consumer: vbn_ring_take()
 *
 * Who may call what: one thread produces, one consumes; they may be one thread. Which thread it is
 * may change where something else (a join, a mutex) orders the change. Nothing blocks or allocates.
 *
 * What is ordered: all that the producer wrote before it published is seen by the consumer once it
 * has taken. Publishing is one store for a whole burst, taking is one load and one store for one;
 * on x86-64 all are plain moves. What is not: nothing is ordered between two rings, nobody is woken,
 * and a ring found full or empty may have changed by the time the caller looks at the answer.
 *
 * What wraps: indices run on through 2^32 and are compared by their difference alone. Each of the
 * two sides has a line of its own that the other never touches, and one line that the other reads:
 * the producer looks at how far the consumer has come only when the ring seems full, the consumer at
 * what was published only when it has taken all it knew of.
 */
#ifndef VERBENA_RING_H
#define VERBENA_RING_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VBN_RING_LINE __attribute__((__aligned__(64)))

struct vbn_ring {
	/* line 0: the producer's alone */
	void **in_slots;
	uint32_t in_mask;
	uint32_t staged; /* the next slot to write */
	uint32_t limit;  /* slots up to here were free when the producer looked last */
	/* line 1: the producer writes, the consumer reads */
	VBN_RING_LINE uint32_t published;
	/* line 2: the consumer's alone */
	VBN_RING_LINE void **out_slots;
	uint32_t out_mask;
	uint32_t taken;        /* the next slot to read */
	uint32_t seen;         /* what was published when the consumer looked last */
	struct vbn_ring *next; /* for a consumer that keeps a list of its rings */
	/* line 3: the consumer writes, the producer reads */
	VBN_RING_LINE uint32_t released;
};

#ifdef __cplusplus
static_assert(sizeof(struct vbn_ring) == 4 * 64, "four lines, each of one writer");
#else
_Static_assert(sizeof(struct vbn_ring) == 4 * 64, "four lines, each of one writer");
#endif

/* A ring of `size` pointers, a power of two from 2 to 2^20, on the calling thread's NUMA node.
 * -EINVAL; -ENOMEM. */
int vbn_ring_create(uint32_t size, struct vbn_ring **ring);

/* What is still in it is forgotten. Both sides must be done with it. NULL is allowed. */
void vbn_ring_destroy(struct vbn_ring *ring);

static inline uint32_t vbn_ring_size(const struct vbn_ring *ring)
{
	return ring->in_mask + 1;
}

/* Four in a turn. */
static inline void vbn__ring_copy(void **to, void *const *from, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4) {
		to[i] = from[i];
		to[i + 1] = from[i + 1];
		to[i + 2] = from[i + 2];
		to[i + 3] = from[i + 3];
	}
	for (; i < n; i++)
		to[i] = from[i];
}

/* ---- producer ---- */

/* Slots that are free, looking at the consumer's side where fewer than n seem to be. */
static inline uint32_t vbn_ring_room(struct vbn_ring *ring, uint32_t n)
{
	if (__builtin_expect(ring->limit - ring->staged < n, 0))
		ring->limit =
			__atomic_load_n(&ring->released, __ATOMIC_ACQUIRE) + ring->in_mask + 1;
	return ring->limit - ring->staged;
}

/* Puts one pointer behind the others; false: the ring is full. Nobody sees it yet. */
static inline bool vbn_ring_put_one(struct vbn_ring *ring, void *item)
{
	if (__builtin_expect(!vbn_ring_room(ring, 1), 0))
		return false;
	ring->in_slots[ring->staged++ & ring->in_mask] = item;
	return true;
}

/* Puts as many of the n as it returns, from the first; the rest found it full. Nobody sees them
 * yet. */
static inline uint32_t vbn_ring_put(struct vbn_ring *ring, void *const *items, uint32_t n)
{
	const uint32_t room = vbn_ring_room(ring, n), at = ring->staged & ring->in_mask;
	const uint32_t before_end = ring->in_mask + 1 - at;

	if (n > room)
		n = room;
	if (__builtin_expect(n <= before_end, 1)) {
		vbn__ring_copy(ring->in_slots + at, items, n);
	} else {
		vbn__ring_copy(ring->in_slots + at, items, before_end);
		vbn__ring_copy(ring->in_slots, items + before_end, n - before_end);
	}
	ring->staged += n;
	return n;
}

/* Shows the consumer all that was put: once for a burst. */
static inline void vbn_ring_publish(struct vbn_ring *ring)
{
	__atomic_store_n(&ring->published, ring->staged, __ATOMIC_RELEASE);
}

/* What was put and has not been taken yet: the producer's question. */
static inline uint32_t vbn_ring_in_flight(const struct vbn_ring *ring)
{
	return ring->staged - __atomic_load_n(&ring->released, __ATOMIC_ACQUIRE);
}

/* ---- consumer ---- */

/* At least so many wait to be taken; 0: none did. */
static inline uint32_t vbn_ring_ready(struct vbn_ring *ring)
{
	if (ring->seen == ring->taken)
		ring->seen = __atomic_load_n(&ring->published, __ATOMIC_ACQUIRE);
	return ring->seen - ring->taken;
}

/* Takes up to n pointers, oldest first, and gives their slots back. Returns how many. */
static inline uint32_t vbn_ring_take(struct vbn_ring *ring, void **items, uint32_t n)
{
	const uint32_t ready = vbn_ring_ready(ring), at = ring->taken & ring->out_mask;
	const uint32_t before_end = ring->out_mask + 1 - at;

	if (!ready)
		return 0;
	if (n > ready)
		n = ready;
	if (__builtin_expect(n <= before_end, 1)) {
		vbn__ring_copy(items, ring->out_slots + at, n);
	} else {
		vbn__ring_copy(items, ring->out_slots + at, before_end);
		vbn__ring_copy(items + before_end, ring->out_slots, n - before_end);
	}
	ring->taken += n;
	__atomic_store_n(&ring->released, ring->taken, __ATOMIC_RELEASE);
	return n;
}

#undef VBN_RING_LINE

#ifdef __cplusplus
}
#endif

#endif
