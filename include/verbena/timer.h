/* verbena/timer.h - timers: a function called once, on the worker's thread, when its time has come
 *
 * A timer is the caller's memory, mostly a member of what it is for; starting and stopping cost a
 * few tens of instructions however many there are, and nothing is allocated. Use one on its worker's
 * thread alone. It may be freed, or used for another worker, whenever it is not pending.
 *
 * When: never before its time; after it at most one tick (vbn_timer_tick_ns(), at most 1 us) and one
 * iteration of the worker, which looks at its timers before it polls. Timers fire in the order of
 * their ticks, those of one tick in no particular order. The clock is vbn_worker_cycles(): the
 * counter of vbn_cycles_hz(), read once an iteration, so a time counts from the start of this
 * iteration.
 *
 * From a timer's function any timer may be started and stopped, its own too, which then fires in a
 * later iteration. While a run drains, timers go on firing, and those that are pending hold it up no
 * longer than anything else; those pending when the worker ends never fire.
 */
#ifndef VERBENA_TIMER_H
#define VERBENA_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_worker;

struct vbn_timer {
	struct vbn_timer *next, **link; /* the library's; link is NULL where it is not pending */
	uint64_t tick;                  /* the library's */
	uint32_t slot;                  /* the library's */
	void (*fn)(struct vbn_worker *worker, void *arg);
	void *arg;
};

/* Once, before anything else. No particular thread. */
static inline void vbn_timer_init(
	struct vbn_timer *timer, void (*fn)(struct vbn_worker *worker, void *arg), void *arg)
{
	timer->next = NULL;
	timer->link = NULL;
	timer->fn = fn;
	timer->arg = arg;
}

static inline bool vbn_timer_pending(const struct vbn_timer *timer)
{
	return timer->link != NULL;
}

/* Starts it, or moves it where it is pending: to `ns` from now (what is above 2^60, some 36
 * years, counts as that), or to a value of vbn_worker_cycles(). What is past fires in the next
 * iteration. */
void vbn_timer_start(struct vbn_worker *worker, struct vbn_timer *timer, uint64_t ns);
void vbn_timer_start_at(struct vbn_worker *worker, struct vbn_timer *timer, uint64_t cycles);

/* It will not fire. False: it was not pending. */
bool vbn_timer_stop(struct vbn_worker *worker, struct vbn_timer *timer);

/* How exact timers are. Any thread. */
uint64_t vbn_timer_tick_ns(const struct vbn_worker *worker);

#ifdef __cplusplus
}
#endif

#endif
