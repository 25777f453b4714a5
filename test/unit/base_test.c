/* base_test.c - the floor: powers of two, rounding, byte order, sentences */

#include "unit.h"

static void powers_of_two(void **state)
{
	(void)state;
	assert_false(is_pow2(0));
	assert_true(is_pow2(1));
	assert_true(is_pow2(1ull << 63));
	assert_false(is_pow2(3));
	assert_false(is_pow2((1ull << 63) + 1));
	for (unsigned int i = 0; i < 64; i++) {
		assert_int_equal(log2_floor(1ull << i), i);
		assert_int_equal(pow2_ceil(1ull << i), 1ull << i);
	}
	assert_int_equal(log2_floor(UINT64_MAX), 63);
	assert_int_equal(log2_floor(1023), 9);
	assert_int_equal(pow2_ceil(3), 4);
	assert_int_equal(pow2_ceil(1025), 2048);
	assert_int_equal(pow2_ceil((1ull << 62) + 1), 1ull << 63);
}

static void rounding(void **state)
{
	(void)state;
	assert_int_equal(round_up(0, 64), 0);
	assert_int_equal(round_up(1, 64), 64);
	assert_int_equal(round_up(64, 64), 64);
	assert_int_equal(round_up(65, 64), 128);
	assert_int_equal(round_up((1ull << 40) + 1, 1ull << 21), (1ull << 40) + (1ull << 21));
}

/* The wire's bytes, one by one: what a device reads must not depend on the host. */
static void byte_order(void **state)
{
	const __be16 x16 = be16(0x0102);
	const __be32 x32 = be32(0x01020304);
	const __be64 x64 = be64(0x0102030405060708);
	const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};

	(void)state;
	assert_memory_equal(&x16, bytes, 2);
	assert_memory_equal(&x32, bytes, 4);
	assert_memory_equal(&x64, bytes, 8);
	assert_int_equal(from_be16(x16), 0x0102);
	assert_int_equal(from_be32(x32), 0x01020304);
	assert_int_equal(from_be64(x64), 0x0102030405060708);
}

static int count_call(int *calls)
{
	return ++*calls;
}

static void smaller_and_larger(void **state)
{
	int calls = 0;

	(void)state;
	assert_int_equal(min(3, 5), 3);
	assert_int_equal(max(3, 5), 5);
	assert_int_equal(max(count_call(&calls), -1), 1); /* each argument is evaluated once */
	assert_int_equal(calls, 1);
}

static void failing_says_why(void **state)
{
	(void)state;
	unit_catch_log();
	assert_int_equal(fail(EINVAL, "queue %d: cannot be", 7), -EINVAL);
	assert_string_equal(unit_log, "queue 7: cannot be\n");
	vbn__log_set(LOG_WARNING, unit_add_to_log, NULL);
	unit_log[0] = '\0';
	log_notice("too much");
	assert_string_equal(unit_log, "");
}

static void clock_runs(void **state)
{
	const uint64_t ns = clock_ns(), cycles = clock_cycles();

	(void)state;
	assert_true(vbn__clock_hz() > 1000 * 1000);
	while (clock_ns() == ns)
		;
	assert_true(clock_cycles() > cycles);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(powers_of_two),
		cmocka_unit_test(rounding),
		cmocka_unit_test(byte_order),
		cmocka_unit_test(smaller_and_larger),
		cmocka_unit_test(failing_says_why),
		cmocka_unit_test(clock_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
