/* pattern_test.c - what --verify makes of messages: any altered byte, gaps, late ones, doubles */
#include "msgrate_pattern.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define STREAM 7

static void any_altered_byte_is_seen(void **state)
{
	uint8_t data[200];
	uint64_t sequence;

	(void)state;
	for (size_t size = PATTERN_MIN_SIZE; size <= sizeof(data); size++) {
		pattern_fill(data, size, 0x123456789abcdef0u + size, STREAM);
		assert_true(pattern_check(data, size, STREAM, &sequence));
		assert_int_equal(sequence, 0x123456789abcdef0u + size);
		for (size_t i = 0; i < size; i++) {
			data[i] ^= (uint8_t)(1u << i % 8);
			assert_false(pattern_check(data, size, STREAM, &sequence));
			data[i] ^= (uint8_t)(1u << i % 8);
		}
	}
}

/* A message of another queue, and one that was never written. */
static void strangers_are_corrupt(void **state)
{
	uint8_t data[64] = {0};
	uint64_t sequence;

	(void)state;
	assert_false(pattern_check(data, sizeof(data), STREAM, &sequence));
	pattern_fill(data, sizeof(data), 5, STREAM + 1);
	assert_false(pattern_check(data, sizeof(data), STREAM, &sequence));
}

struct counts {
	uint64_t duplicate, reordered;
};

/* Given sequence numbers in the order in which they come, then so many are doubles and so many
 * late. */
static void expect(const uint64_t *sequences, size_t n, struct counts counts)
{
	struct track track = {0};
	uint8_t data[24];

	assert_int_equal(track_init(&track, 1), 0);
	for (size_t i = 0; i < n; i++) {
		pattern_fill(data, sizeof(data), sequences[i], STREAM);
		track_message(&track, data, sizeof(data), sizeof(data), STREAM);
	}
	assert_int_equal(track.corrupt, 0);
	assert_int_equal(track.duplicate, counts.duplicate);
	assert_int_equal(track.reordered, counts.reordered);
	free(track.seen);
}

#define EXPECT(doubles, late, ...)                                                        \
	do {                                                                              \
		const uint64_t sequences[] = {__VA_ARGS__};                               \
		expect(sequences, ARRAY_SIZE(sequences), (struct counts){doubles, late}); \
	} while (0)

static void order_is_seen(void **state)
{
	(void)state;
	EXPECT(0, 0, 0, 1, 2, 3);
	EXPECT(0, 0, 0, 2, 3);       /* one is missing: neither late nor double */
	EXPECT(0, 1, 0, 2, 1, 3);    /* late */
	EXPECT(1, 0, 0, 1, 1, 2);    /* double */
	EXPECT(1, 1, 0, 2, 1, 1, 3); /* late, and then double */
	EXPECT(1, 0, 5, 6, 5);       /* the first ones are missing */
	EXPECT(0, 2, 5, 3, 4, 6);
	EXPECT(0, 0, 0, 4000, 8000, 12000);
	EXPECT(0, 1, 0, 4000, 3999);  /* inside the window of 4,096 */
	EXPECT(1, 0, 0, 1000000, 10); /* older than the window */
	EXPECT(1, 1, 0, 1000000, 999999, 1000000);
	EXPECT(0, 1, 63, 64, 62); /* across a word */
	EXPECT(1, 0, 63, 64, 63);
}

/* Given a window that is gone round many times with every 100th missing and coming one window
 * later. */
static void the_window_wraps(void **state)
{
	struct track track = {0};
	uint64_t late = 0;

	(void)state;
	assert_int_equal(track_init(&track, 1), 0);
	for (uint64_t i = 0; i < 100000; i++) {
		uint8_t data[PATTERN_MIN_SIZE];

		if (i % 100 != 50) {
			pattern_fill(data, sizeof(data), i, STREAM);
			track_message(&track, data, sizeof(data), sizeof(data), STREAM);
		}
		if (i >= 3000 && i % 100 == 75) {
			pattern_fill(data, sizeof(data), i - 3000 - 25, STREAM);
			track_message(&track, data, sizeof(data), sizeof(data), STREAM);
			late++;
		}
	}
	assert_int_equal(track.reordered, late);
	assert_int_equal(track.duplicate, 0);
	assert_int_equal(track.corrupt, 0);
	free(track.seen);
}

static void another_length_is_corrupt(void **state)
{
	struct track track = {0};
	uint8_t data[64];

	(void)state;
	assert_int_equal(track_init(&track, 1), 0);
	pattern_fill(data, sizeof(data), 0, STREAM);
	track_message(&track, data, 63, 64, STREAM);
	assert_int_equal(track.corrupt, 1);
	assert_int_equal(track.next, 0);
	free(track.seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_altered_byte_is_seen),
		cmocka_unit_test(strangers_are_corrupt),
		cmocka_unit_test(order_is_seen),
		cmocka_unit_test(the_window_wraps),
		cmocka_unit_test(another_length_is_corrupt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
