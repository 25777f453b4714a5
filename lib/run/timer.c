/* timer.c - a worker's timers: nanoseconds to cycles, and the wheel behind verbena/timer.h */

#include "run/internal.h"

#define FRACTION_BITS 32
#define LONGEST_NS    (1ull << 60)

/* The largest power of two of cycles that is at most a microsecond. */
static uint32_t tick_shift(uint64_t hz)
{
	return log2_floor(max(hz / 1000000, (uint64_t)1));
}

void vbn__timers_init(struct vbn_worker *worker)
{
	const uint64_t hz = vbn__clock_hz();

	worker->cycles_per_ns = (uint64_t)(((unsigned __int128)hz << FRACTION_BITS) / 1000000000u);
	vbn__wheel_init(&worker->wheel, tick_shift(hz), worker->last_cycles);
}

/* Outside its own loop a worker's last look at the clock may be long ago. */
static force_inline uint64_t now(const struct vbn_worker *worker)
{
	return likely(worker->looping) ? worker->last_cycles : clock_cycles();
}

VBN_API uint64_t vbn_worker_cycles(const struct vbn_worker *worker)
{
	return now(worker);
}

static force_inline void start(struct vbn_worker *worker, struct vbn_timer *timer, uint64_t cycles)
{
	if (vbn_timer_pending(timer))
		vbn__wheel_stop(&worker->wheel, timer);
	vbn__wheel_start(&worker->wheel, timer, min(cycles, WHEEL_LAST));
}

VBN_API fast_path void vbn_timer_start_at(
	struct vbn_worker *worker, struct vbn_timer *timer, uint64_t cycles)
{
	start(worker, timer, cycles);
}

VBN_API fast_path void vbn_timer_start(
	struct vbn_worker *worker, struct vbn_timer *timer, uint64_t ns)
{
	const unsigned __int128 cycles =
		(unsigned __int128)min(ns, LONGEST_NS) * worker->cycles_per_ns >> FRACTION_BITS;

	start(worker, timer, (uint64_t)cycles + 1 + now(worker));
}

VBN_API fast_path bool vbn_timer_stop(struct vbn_worker *worker, struct vbn_timer *timer)
{
	if (!vbn_timer_pending(timer))
		return false;
	vbn__wheel_stop(&worker->wheel, timer);
	return true;
}

VBN_API uint64_t vbn_timer_tick_ns(const struct vbn_worker *worker)
{
	return (1000000000ull << worker->wheel.shift) / vbn__clock_hz() + 1;
}
