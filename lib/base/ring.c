/* ring.c - making and unmaking the rings of verbena/ring.h */

#include "base/base.h"

#include <verbena/ring.h>

#include <stdlib.h>

#define MAX_SIZE (1u << 20)

static_assert(offsetof(struct vbn_ring, published) == CACHE_LINE &&
		offsetof(struct vbn_ring, out_slots) == 2 * CACHE_LINE &&
		offsetof(struct vbn_ring, released) == 3 * CACHE_LINE,
	"no line has two writers");

/* Head and slots are one allocation; the slots start on a line. */
VBN_API int vbn_ring_create(uint32_t size, struct vbn_ring **created)
{
	const size_t bytes = sizeof(struct vbn_ring) + size * sizeof(void *);
	struct vbn_ring *ring;

	*created = NULL;
	if (size < 2 || size > MAX_SIZE || !is_pow2(size))
		return fail(EINVAL,
			"ring: cannot be made with %u slots: that is no power of two from 2 to %u; choose one",
			size, MAX_SIZE);
	ring = aligned_alloc(CACHE_LINE, round_up(bytes, CACHE_LINE));
	if (!ring)
		return fail(
			ENOMEM, "ring: cannot be made with %u slots: no memory; free some", size);
	memset(ring, 0, bytes); /* its pages are this thread's node's from here on */
	ring->in_slots = ring->out_slots = (void **)(void *)(ring + 1);
	ring->in_mask = ring->out_mask = size - 1;
	ring->limit = size;
	*created = ring;
	return 0;
}

VBN_API void vbn_ring_destroy(struct vbn_ring *ring)
{
	free(ring);
}
