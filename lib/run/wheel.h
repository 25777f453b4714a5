/* wheel.h - a hierarchical timer wheel: start and stop in constant time, one compare when nothing is
 * due
 *
 * Time is a number of ticks, a tick 2^shift cycles. Written in digits of 6 bits, a timer's tick and
 * the wheel's differ first, from the left, in one digit: that is the timer's level, and the value of
 * its own digit there its slot. So
 *
 *   - every slot in use lies ahead of the wheel's digit on its level, and none is met twice: nothing
 *     wraps, and no time is too far away, since the levels take in all 64 bits;
 *   - what a lower level holds is due before anything a higher one holds, and within a level the
 *     lower slot first: the next time at which something is to be done is found by two bit scans;
 *   - the wheel may move on to any tick before that time without touching a timer.
 *
 * At that time a slot of level 0 fires, one of a higher level is dealt out to the levels below it.
 *
 * The owner's thread alone. wheel_due() says whether wheel_run() has anything to do; a timer that
 * was stopped may make it say so too early, once.
 */
#ifndef VBN_WHEEL_H
#define VBN_WHEEL_H

#include "base/base.h"

#include <verbena/timer.h>

#define WHEEL_BITS   6
#define WHEEL_SLOTS  (1u << WHEEL_BITS)
#define WHEEL_LEVELS 11 /* 66 bits */
#define WHEEL_LAST   ((uint64_t)INT64_MAX)

struct wheel {
	uint64_t due;    /* cycles: wheel_run() has nothing to do before; UINT64_MAX: no timer */
	uint64_t tick;   /* the wheel's: all that is due up to it has fired */
	uint64_t until;  /* the tick that wheel_run() is on its way to */
	uint32_t shift;  /* log2 of a tick's cycles */
	uint32_t levels; /* bit l: level l has timers */
	uint64_t used[WHEEL_LEVELS]; /* bit s: slot s has timers */
	struct vbn_timer *slots[WHEEL_LEVELS * WHEEL_SLOTS];
	struct vbn_timer *firing;
	uint64_t n_fired; /* counter */
};

void vbn__wheel_init(struct wheel *wheel, uint32_t shift, uint64_t cycles);

/* Fires at `cycles` (up to WHEEL_LAST) rounded up to a tick, but never in a wheel_run() that is under
 * way. The timer is not pending. */
void vbn__wheel_start(struct wheel *wheel, struct vbn_timer *timer, uint64_t cycles);

/* The timer is pending. */
void vbn__wheel_stop(struct wheel *wheel, struct vbn_timer *timer);

/* Calls what is due at `cycles`, which never goes back. Returns how many. */
int vbn__wheel_run(struct wheel *wheel, struct vbn_worker *worker, uint64_t cycles);

static force_inline bool wheel_due(const struct wheel *wheel, uint64_t cycles)
{
	return cycles >= wheel->due;
}

#endif
