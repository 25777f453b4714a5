/* histogram_test.c - buckets hold what they say, and a percentile is not far off */
#include "histogram.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Each value is in the bucket whose lowest value is not above it, and the next one's is. */
static void a_value_is_in_its_bucket(void **state)
{
	(void)state;
	for (uint64_t value = 0; value < 1ull << 44; value += 1 + value / 997) {
		size_t bucket = histogram_bucket(value);

		assert_in_range(bucket, 0, HISTOGRAM_BUCKETS - 1);
		assert_true(histogram_value(bucket) <= value);
		assert_true(histogram_value(bucket + 1) > value);
	}
	assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void percentiles_are_near(void **state)
{
	static struct histogram all, half[2];

	(void)state;
	for (uint64_t i = 1; i <= 100000; i++) {
		histogram_record(&half[i % 2], i * 10);
	}
	histogram_add(&all, &half[0]);
	histogram_add(&all, &half[1]);
	assert_int_equal(all.n, 100000);
	assert_int_equal(all.min, 10);
	assert_int_equal(all.max, 1000000);
	for (int percent = 1; percent < 100; percent++) {
		uint64_t exact = (uint64_t)percent * 10000;

		assert_in_range(histogram_percentile(&all, percent), exact, exact + exact / 60);
	}
	assert_int_equal(histogram_percentile(&all, 100), 1000000);
	assert_in_range(histogram_percentile(&all, 99.999), 999980, 1000000);
}

static void one_value_is_all_percentiles(void **state)
{
	static struct histogram one;

	(void)state;
	histogram_record(&one, 777777);
	assert_int_equal(histogram_percentile(&one, 0.1), 777777);
	assert_int_equal(histogram_percentile(&one, 99.9), 777777);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_value_is_in_its_bucket),
		cmocka_unit_test(percentiles_are_near),
		cmocka_unit_test(one_value_is_all_percentiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
