/* counter_test.c - the registry of named counters: order, removal, an early end, readers beside a
 * writer */

#include "unit.h"

#include <pthread.h>

static const struct counter_name names[] = {{"sent", "messages sent"}, {"lost", "messages lost"}};
static uint64_t a_values[2] = {1, 2}, b_values[2] = {3, 4};
static struct counter_set a = {
	.kind = "queue", .object = "a", .names = names, .values = a_values, .n = 2};
static struct counter_set b = {
	.kind = "queue", .object = "b", .names = names, .values = b_values, .n = 2};

static char seen[256];

static int see(const struct counter_set *set, size_t i, uint64_t value, void *arg)
{
	size_t len = strlen(seen);

	snprintf(seen + len, sizeof(seen) - len, "%s.%s.%s=%llu ", set->kind, set->object,
		set->names[i].name, (unsigned long long)value);
	return arg && !strcmp(set->object, arg) ? 42 : 0;
}

static const char *see_all(void)
{
	seen[0] = '\0';
	assert_int_equal(vbn__counters_each(see, NULL), 0);
	return seen;
}

static void sets_in_order(void **state)
{
	(void)state;
	assert_string_equal(see_all(), "");
	vbn__counters_add(&a);
	vbn__counters_add(&b);
	assert_string_equal(
		see_all(), "queue.a.sent=1 queue.a.lost=2 queue.b.sent=3 queue.b.lost=4 ");
	vbn__counters_remove(&a);
	vbn__counters_remove(&a); /* again is harmless */
	assert_string_equal(see_all(), "queue.b.sent=3 queue.b.lost=4 ");
	vbn__counters_add(&a);
	assert_string_equal(
		see_all(), "queue.b.sent=3 queue.b.lost=4 queue.a.sent=1 queue.a.lost=2 ");
	vbn__counters_remove(&b);
	vbn__counters_remove(&a);
	assert_string_equal(see_all(), "");
}

static void a_result_ends_the_walk(void **state)
{
	(void)state;
	vbn__counters_add(&a);
	vbn__counters_add(&b);
	seen[0] = '\0';
	assert_int_equal(vbn__counters_each(see, (char[]){"a"}), 42);
	assert_string_equal(seen, "queue.a.sent=1 ");
	vbn__counters_remove(&a);
	vbn__counters_remove(&b);
}

static void *count_up(void *arg)
{
	for (uint64_t i = 0; i < 100 * 1000; i++)
		store_once(&a_values[0], i);
	return arg;
}

static int never_less(const struct counter_set *set, size_t i, uint64_t value, void *arg)
{
	uint64_t *last = arg;

	if (set != &a || i)
		return 0;
	if (value < *last)
		return -1;
	*last = value;
	return 0;
}

/* A reader sees whole values, never less than it saw before. */
static void reading_beside_the_owner(void **state)
{
	uint64_t last = 0;
	pthread_t owner;

	(void)state;
	a_values[0] = 0;
	vbn__counters_add(&a);
	assert_int_equal(pthread_create(&owner, NULL, count_up, NULL), 0);
	while (last < 90 * 1000 && load_once(&a_values[0]) < 99999)
		assert_int_equal(vbn__counters_each(never_less, &last), 0);
	pthread_join(owner, NULL);
	vbn__counters_remove(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sets_in_order),
		cmocka_unit_test(a_result_ends_the_walk),
		cmocka_unit_test(reading_beside_the_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
