/* ring_test.c - rings: full, empty, wrap of slots and of indices, and a validator with two threads */

#include "unit.h"

#include <verbena/ring.h>

#include <pthread.h>
#include <sched.h>

#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

static struct vbn_ring *make(uint32_t size)
{
	struct vbn_ring *ring;

	assert_int_equal(vbn_ring_create(size, &ring), 0);
	return ring;
}

/* Indices that are about to pass 2^32. */
static void near_the_wrap(struct vbn_ring *ring, uint32_t before)
{
	const uint32_t at = 0u - before;

	ring->staged = ring->published = ring->taken = ring->seen = ring->released = at;
	ring->limit = at + vbn_ring_size(ring);
}

static void *number(uint64_t n)
{
	return (void *)(uintptr_t)n;
}

static void sizes_that_cannot_be(void **state)
{
	static const uint32_t sizes[] = {0, 1, 3, 1000, (1u << 20) + 1, 1u << 21};
	struct vbn_ring *ring;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		unit_catch_log();
		assert_int_equal(vbn_ring_create(sizes[i], &ring), -EINVAL);
		assert_null(ring);
		assert_logged("power of two");
	}
	vbn_ring_destroy(NULL);
}

static void what_is_not_published_is_not_seen(void **state)
{
	struct vbn_ring *ring = make(8);
	void *items[8];

	(void)state;
	assert_true(vbn_ring_put_one(ring, number(1)));
	assert_int_equal(vbn_ring_ready(ring), 0);
	assert_int_equal(vbn_ring_take(ring, items, 8), 0);
	assert_int_equal(vbn_ring_in_flight(ring), 1);
	vbn_ring_publish(ring);
	assert_int_equal(vbn_ring_ready(ring), 1);
	assert_int_equal(vbn_ring_take(ring, items, 8), 1);
	assert_ptr_equal(items[0], number(1));
	assert_int_equal(vbn_ring_in_flight(ring), 0);
	vbn_ring_destroy(ring);
}

static void a_full_ring_takes_no_more(void **state)
{
	void *in[8], *out[8];
	struct vbn_ring *ring = make(4);

	(void)state;
	for (uint64_t i = 0; i < 8; i++)
		in[i] = number(i + 1);
	assert_int_equal(vbn_ring_put(ring, in, 8), 4);
	assert_int_equal(vbn_ring_put(ring, in, 1), 0);
	assert_false(vbn_ring_put_one(ring, in[0]));
	assert_int_equal(vbn_ring_room(ring, 1), 0);
	vbn_ring_publish(ring);
	assert_int_equal(vbn_ring_take(ring, out, 3), 3);
	assert_int_equal(vbn_ring_put(ring, in + 4, 4), 3);
	vbn_ring_publish(ring);
	assert_int_equal(vbn_ring_take(ring, out + 3, 5), 1); /* what it knew of */
	assert_int_equal(vbn_ring_take(ring, out + 4, 4), 3);
	for (uint64_t i = 0; i < 7; i++)
		assert_ptr_equal(out[i], number(i + 1));
	vbn_ring_destroy(ring);
}

/* Every fill level and burst size, across the ends of slots and indices, against plain counting. */
static void any_burst_at_any_place(void **state)
{
	struct vbn_ring *ring = make(16);
	uint64_t put = 0, taken = 0;
	uint32_t random = 1;
	void *items[32];

	(void)state;
	near_the_wrap(ring, 5000);
	for (int turn = 0; turn < 20000; turn++) {
		uint32_t n, want;

		random = random * 1664525 + 1013904223;
		want = random >> 27;
		for (uint32_t i = 0; i < want; i++)
			items[i] = number(put + i);
		n = vbn_ring_put(ring, items, want);
		assert_int_equal(n, min((uint64_t)want, 16 - (put - taken)));
		put += n;
		vbn_ring_publish(ring);
		assert_int_equal(vbn_ring_in_flight(ring), put - taken);
		random = random * 1664525 + 1013904223;
		n = vbn_ring_take(ring, items, random >> 27);
		for (uint32_t i = 0; i < n; i++)
			assert_ptr_equal(items[i], number(taken + i));
		taken += n;
	}
	assert_true(taken > 10000); /* past the wrap */
	vbn_ring_destroy(ring);
}

/* ---- the validator: each item points to a record that its producer wrote just before ---- */

enum { RECORDS = 1 << 12, ITEMS = UNIT_SHADOW ? 200000 : 1000000 };

static struct {
	struct vbn_ring *ring;
	uint64_t records[RECORDS]; /* plain: what orders them is the ring */
	uint64_t deadline;
} shared;

static void *produce(void *arg)
{
	uint64_t sent = 0;
	uint32_t random = 7;

	(void)arg;
	while (sent < ITEMS && clock_ns() < shared.deadline) {
		uint32_t burst;

		random = random * 1664525 + 1013904223;
		burst = 1 + (random >> 26);
		for (; burst && sent < ITEMS; burst--, sent++) {
			uint64_t *record = &shared.records[sent % RECORDS];

			if (!vbn_ring_room(shared.ring, 1))
				break;
			*record = sent;
			vbn_ring_put_one(shared.ring, record);
		}
		vbn_ring_publish(shared.ring);
		if (burst)
			sched_yield();
	}
	return NULL;
}

static void two_threads(void **state)
{
	uint64_t taken = 0, wrong = 0;
	pthread_t producer;
	void *items[48];

	(void)state;
	shared.ring = make(RECORDS / 2);
	near_the_wrap(shared.ring, ITEMS / 2);
	shared.deadline = clock_ns() + PATIENCE_NS;
	assert_int_equal(pthread_create(&producer, NULL, produce, NULL), 0);
	while (taken < ITEMS && clock_ns() < shared.deadline) {
		uint32_t n = vbn_ring_ready(shared.ring);

		/* the records before their slots are given back, as the producer writes over them */
		n = min(n, (uint32_t)ARRAY_SIZE(items));
		for (uint32_t i = 0; i < n; i++) {
			const uint64_t *record = shared.ring->out_slots[(shared.ring->taken + i) &
				shared.ring->out_mask];

			wrong += *record != taken + i;
		}
		assert_int_equal(vbn_ring_take(shared.ring, items, n), n);
		taken += n;
		if (!n)
			sched_yield();
	}
	pthread_join(producer, NULL);
	assert_int_equal(taken, ITEMS);
	assert_int_equal(wrong, 0);
	vbn_ring_destroy(shared.ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_that_cannot_be),
		cmocka_unit_test(what_is_not_published_is_not_seen),
		cmocka_unit_test(a_full_ring_takes_no_more),
		cmocka_unit_test(any_burst_at_any_place),
		cmocka_unit_test(two_threads),
	};

	return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
