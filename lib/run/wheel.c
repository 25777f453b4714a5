/* wheel.c - the timer wheel: slots by level, dealing out, firing */

#include "run/wheel.h"

#define NO_SLOT (WHEEL_LEVELS * WHEEL_SLOTS) /* in the list of those that fire now */

static_assert(WHEEL_LEVELS * WHEEL_BITS >= 64, "every time has a slot");

void vbn__wheel_init(struct wheel *wheel, uint32_t shift, uint64_t cycles)
{
	memset(wheel, 0, sizeof(*wheel));
	wheel->shift = shift;
	wheel->tick = wheel->until = cycles >> shift;
	wheel->due = UINT64_MAX;
}

/* ---- slots ---- */

static force_inline void push(struct vbn_timer **list, struct vbn_timer *timer)
{
	timer->next = *list;
	if (timer->next)
		timer->next->link = &timer->next;
	timer->link = list;
	*list = timer;
}

static force_inline void unlink_timer(struct vbn_timer *timer)
{
	*timer->link = timer->next;
	if (timer->next)
		timer->next->link = timer->link;
	timer->link = NULL;
}

/* The tick at which a slot is to be looked at: the wheel's with the slot's digit, and 0 behind it. */
static force_inline uint64_t slot_tick(const struct wheel *wheel, uint32_t level, uint32_t digit)
{
	const uint32_t bits = level * WHEEL_BITS;
	const uint64_t below = (uint64_t)WHEEL_SLOTS << bits;
	const uint64_t above = bits + WHEEL_BITS < 64 ? wheel->tick & ~(below - 1) : 0;

	return above | (uint64_t)digit << bits;
}

/* Its tick is after the wheel's. */
static force_inline void insert(struct wheel *wheel, struct vbn_timer *timer)
{
	const uint32_t level = log2_floor(timer->tick ^ wheel->tick) / WHEEL_BITS;
	const uint32_t digit = (timer->tick >> (level * WHEEL_BITS)) & (WHEEL_SLOTS - 1);

	timer->slot = level * WHEEL_SLOTS + digit;
	push(&wheel->slots[timer->slot], timer);
	wheel->used[level] |= 1ull << digit;
	wheel->levels |= 1u << level;
}

static force_inline void mark_empty(struct wheel *wheel, uint32_t slot)
{
	const uint32_t level = slot / WHEEL_SLOTS;

	wheel->used[level] &= ~(1ull << slot % WHEEL_SLOTS);
	if (!wheel->used[level])
		wheel->levels &= ~(1u << level);
}

/* ---- start and stop ---- */

/* What is due is looked for by the timer's own time: its slot may be dealt out any time before. */
fast_path void vbn__wheel_start(struct wheel *wheel, struct vbn_timer *timer, uint64_t cycles)
{
	const uint64_t part = (1ull << wheel->shift) - 1;
	const uint64_t tick = max((cycles + part) >> wheel->shift, wheel->until + 1);

	timer->tick = tick;
	insert(wheel, timer);
	if (tick << wheel->shift < wheel->due)
		wheel->due = tick << wheel->shift;
}

fast_path void vbn__wheel_stop(struct wheel *wheel, struct vbn_timer *timer)
{
	unlink_timer(timer);
	if (timer->slot != NO_SLOT && !wheel->slots[timer->slot])
		mark_empty(wheel, timer->slot);
}

/* ---- run ---- */

/* The slot that is due next, and when; false: there is no timer. */
static force_inline bool next_slot(const struct wheel *wheel, uint32_t *slot, uint64_t *tick)
{
	uint32_t level, digit;

	if (!wheel->levels)
		return false;
	level = (uint32_t)__builtin_ctz(wheel->levels);
	digit = (uint32_t)__builtin_ctzll(wheel->used[level]);
	*slot = level * WHEEL_SLOTS + digit;
	*tick = slot_tick(wheel, level, digit);
	return true;
}

/* The list of a slot, which is empty then. */
static force_inline struct vbn_timer *take_slot(struct wheel *wheel, uint32_t slot)
{
	struct vbn_timer *first = wheel->slots[slot];

	wheel->slots[slot] = NULL;
	mark_empty(wheel, slot);
	return first;
}

/* One after the other, so that a function may stop those behind it. */
static int fire(struct wheel *wheel, struct vbn_worker *worker)
{
	int n = 0;

	for (; wheel->firing; n++) {
		struct vbn_timer *timer = wheel->firing;

		unlink_timer(timer);
		timer->fn(worker, timer->arg);
	}
	return n;
}

/* Timers of a higher level go to lower ones; those due at this very tick fire. */
static int deal_out(struct wheel *wheel, struct vbn_worker *worker, struct vbn_timer *timer)
{
	struct vbn_timer *next;

	for (; timer; timer = next) {
		next = timer->next;
		if (timer->tick != wheel->tick) {
			insert(wheel, timer);
			continue;
		}
		timer->slot = NO_SLOT;
		push(&wheel->firing, timer);
	}
	return fire(wheel, worker);
}

fast_path int vbn__wheel_run(struct wheel *wheel, struct vbn_worker *worker, uint64_t cycles)
{
	const uint64_t until = cycles >> wheel->shift;
	uint64_t tick = 0;
	uint32_t slot = 0;
	bool some;
	int n = 0;

	wheel->until = until;
	while ((some = next_slot(wheel, &slot, &tick)) && tick <= until) {
		wheel->tick = tick;
		n += deal_out(wheel, worker, take_slot(wheel, slot));
	}
	wheel->tick = until;
	wheel->due = some ? tick << wheel->shift : UINT64_MAX;
	count_add(&wheel->n_fired, (uint64_t)n);
	return n;
}
