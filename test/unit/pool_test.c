/* pool_test.c - pools and bufs: shape, all or none, last in first out, chains, room in zones,
 * counters */

#include "unit.h"

#include "mem/mem.h"

#include <pthread.h>

static struct vbn_pool *make(const struct vbn_pool_conf *conf)
{
	struct vbn_pool *pool;

	unit_catch_log();
	if (vbn_pool_create(conf, &pool))
		unit_fail("no pool: %s", unit_log);
	return pool;
}

static int no_pool(const struct vbn_pool_conf *conf)
{
	struct vbn_pool *pool = (struct vbn_pool *)-1;
	int ret;

	unit_catch_log();
	ret = vbn_pool_create(conf, &pool);
	assert_null(pool);
	assert_string_not_equal(unit_log, "");
	return ret;
}

static struct vbn_zone *make_zone(size_t size)
{
	const struct vbn_zone_conf conf = {.size = size, .pages = VBN_PAGES_PLAIN, .name = "z"};
	struct vbn_zone *zone;

	assert_int_equal(vbn_zone_create(&conf, &zone), 0);
	return zone;
}

static void a_new_buf(void **state)
{
	const struct vbn_pool_conf conf = {
		.n_bufs = 4, .data_size = 100, .headroom = VBN_NUM(10), .name = "shape"};
	struct vbn_pool *pool = make(&conf);
	struct vbn_buf *bufs[4];

	(void)state;
	assert_int_equal(vbn_pool_size(pool), 4);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 4), 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal((uintptr_t)bufs[i] % CACHE_LINE, 0);
		assert_int_equal((uintptr_t)bufs[i]->data % CACHE_LINE, 0);
		assert_int_equal(bufs[i]->len, 0);
		assert_int_equal(bufs[i]->flags, 0);
		assert_ptr_equal(bufs[i]->pool, pool);
		assert_int_equal(buf_word(bufs[i]), plain_word(pool));
		assert_int_equal(bufs[i]->size, 64 + 100);
		assert_int_equal(vbn_buf_headroom(bufs[i]), 64);
		assert_int_equal(vbn_buf_tailroom(bufs[i]), 100);
		assert_true((uint8_t *)bufs[i] >= vbn_pool_zone(pool)->base);
		assert_true(vbn_buf_room(bufs[i]) + bufs[i]->size <=
			vbn_pool_zone(pool)->base + vbn_pool_zone(pool)->size);
		memset(vbn_buf_room(bufs[i]), i, bufs[i]->size);
	}
	for (int i = 0; i < 4; i++) /* none lies in another */
		for (uint32_t at = 0; at < bufs[i]->size; at++)
			assert_int_equal(vbn_buf_room(bufs[i])[at], i);
	vbn_buf_free(bufs, 4);
	vbn_pool_destroy(pool);
}

/* A buf that was used comes back as new. */
static void a_used_buf_is_new_again(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 1, .headroom = VBN_NUM(64)});
	struct vbn_buf *buf;

	(void)state;
	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	buf->data -= 20;
	buf->len = 77;
	buf->flags = VBN_BUF_KEEP;
	vbn_buf_set_cookie(buf, pool);
	vbn_buf_free(&buf, 1);
	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	assert_int_equal(buf->len, 0);
	assert_int_equal(buf->flags, 0);
	assert_int_equal(vbn_buf_headroom(buf), 64);
	assert_int_equal(vbn_buf_tailroom(buf), 2048);
	vbn_buf_free(&buf, 1);
	vbn_pool_destroy(pool);
}

static void all_or_none(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 10});
	struct vbn_buf *bufs[11] = {0};

	(void)state;
	assert_int_equal(vbn_buf_alloc(pool, bufs, 11), -ENOBUFS);
	assert_int_equal(vbn_buf_alloc(pool, bufs, -1), -ENOBUFS);
	assert_null(bufs[0]);
	assert_int_equal(vbn_pool_available(pool), 10);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 0), 0);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 10), 10);
	assert_int_equal(vbn_pool_available(pool), 0);
	assert_int_equal(vbn_buf_alloc(pool, bufs + 10, 1), -ENOBUFS);
	vbn_buf_free(bufs, 10);
	assert_int_equal(vbn_pool_available(pool), 10);
	assert_int_equal(pool->empty, 3);
	vbn_pool_destroy(pool);
}

static void last_in_first_out(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 8});
	struct vbn_buf *bufs[8], *again[3];

	(void)state;
	assert_int_equal(vbn_buf_alloc(pool, bufs, 8), 8);
	for (int i = 1; i < 8; i++)
		assert_true(bufs[i] >
			bufs[i - 1]); /* a fresh pool is handed out in the order of memory */
	vbn_buf_free(&bufs[5], 1);
	vbn_buf_free(&bufs[2], 1);
	vbn_buf_free(&bufs[7], 1);
	assert_int_equal(vbn_buf_alloc(pool, again, 3), 3);
	assert_ptr_equal(again[0], bufs[7]);
	assert_ptr_equal(again[1], bufs[2]);
	assert_ptr_equal(again[2], bufs[5]);
	vbn_buf_free(bufs, 8);
	vbn_pool_destroy(pool);
}

/* One free of bufs of two pools, plain and flagged, and chains that go through both. */
static void chains_and_several_pools(void **state)
{
	struct vbn_pool *a = make(&(struct vbn_pool_conf){.n_bufs = 8}),
			*b = make(&(struct vbn_pool_conf){.n_bufs = 8});
	struct vbn_buf *from_a[8], *from_b[8], *list[7];

	(void)state;
	assert_int_equal(vbn_buf_alloc(a, from_a, 8), 8);
	assert_int_equal(vbn_buf_alloc(b, from_b, 8), 8);
	from_a[1]->len = 1;
	from_b[1]->len = 20;
	from_a[2]->len = 300;
	vbn_buf_append(from_b[1], from_a[2]);
	vbn_buf_append(from_a[1], from_b[1]);
	vbn_buf_append(from_a[1], from_b[2]);
	assert_int_equal(vbn_buf_total(from_a[1]), 321);
	from_b[3]->flags |= VBN_BUF_KEEP;
	memcpy(list,
		(struct vbn_buf *[]){from_a[0], from_a[3], from_a[1], from_b[0], from_b[3],
			from_a[4], from_b[4]},
		sizeof(list));
	vbn_buf_free(list, 7);
	assert_int_equal(vbn_pool_available(a), 5);
	assert_int_equal(vbn_pool_available(b), 5);
	vbn_buf_free(&from_a[5], 3);
	vbn_buf_free(&from_b[5], 3);
	vbn_buf_free(from_a, 0);
	assert_int_equal(vbn_pool_available(a), 8);
	assert_int_equal(vbn_pool_available(b), 8);
	vbn_pool_destroy(a);
	vbn_pool_destroy(b);
}

static void inlines_of_drivers(void **state)
{
	struct vbn_pool *pool =
		make(&(struct vbn_pool_conf){.n_bufs = 2, .headroom = VBN_NUM(128)});
	struct vbn_buf *a = pool_pop(pool), *b = pool_pop(pool);

	(void)state;
	assert_null(pool_pop(pool));
	buf_start(pool, a, pool_data(pool, a), 33);
	assert_int_equal(a->len, 33);
	assert_int_equal(vbn_buf_headroom(a), 128);
	assert_int_equal(buf_word(a), plain_word(pool));
	assert_ptr_equal(vbn__pools[a->pool_id], pool);
	pool_push(pool, b);
	assert_ptr_equal(pool_pop(pool), b);
	vbn_buf_free(&a, 1);
	pool_push(pool, b);
	assert_int_equal(vbn_pool_available(pool), 2);
	vbn_pool_destroy(pool);
}

/* ---- room ---- */

static void footprints_fill_a_zone(void **state)
{
	struct vbn_pool_conf small = {.n_bufs = 33, .data_size = 64, .name = "small"},
			     large = {.n_bufs = 7, .data_size = 9000};
	const size_t size = vbn_pool_footprint(&small) + vbn_pool_footprint(&large);
	struct vbn_zone *zone = make_zone(size);
	const size_t spare = vbn_zone_free(zone) - size;
	struct vbn_pool *a, *b;

	(void)state;
	small.zone = large.zone = zone;
	a = make(&small);
	b = make(&large);
	assert_int_equal(vbn_zone_free(zone), spare);
	assert_ptr_equal(vbn_pool_zone(a), zone);
	if (spare < vbn_pool_footprint(&small)) {
		assert_int_equal(no_pool(&small), -ENOMEM);
		assert_logged("pool small: cannot take ");
		assert_logged("zone z");
	}
	vbn_pool_destroy(a);
	assert_int_equal(vbn_zone_free(zone), spare + vbn_pool_footprint(&small));
	a = make(&small); /* where it was */
	assert_int_equal(vbn_zone_free(zone), spare);
	vbn_pool_destroy(b);
	assert_int_equal(vbn_zone_free(zone), spare + vbn_pool_footprint(&large));
	vbn_pool_destroy(a);
	assert_int_equal(vbn_zone_free(zone), vbn_zone_size(zone));
	vbn_zone_destroy(zone);
}

/* A pointer and a header for each buf, and little more. */
static void a_footprint_is_near_its_bufs(void **state)
{
	const struct vbn_pool_conf conf = {.n_bufs = 10000, .data_size = 2048};

	(void)state;
	assert_in_range(
		vbn_pool_footprint(&conf), 10000 * (64 + 2048), 10000 * (64 + 2048 + 8) + 1024);
}

/* Headers a power of two apart would share few sets of a cache. */
static void strides_are_spread(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 2, .data_size = 2048 - 64});

	(void)state;
	assert_int_equal(pool->stride, 2048 + 64);
	vbn_pool_destroy(pool);
}

static void bad_confs(void **state)
{
	(void)state;
	assert_int_equal(no_pool(&(struct vbn_pool_conf){.n_bufs = 0}), -EINVAL);
	assert_int_equal(no_pool(&(struct vbn_pool_conf){.n_bufs = UINT32_MAX}), -EINVAL);
	assert_int_equal(
		no_pool(&(struct vbn_pool_conf){.n_bufs = 1, .data_size = UINT32_MAX}), -EINVAL);
	assert_int_equal(
		no_pool(&(struct vbn_pool_conf){.n_bufs = 1, .headroom = VBN_NUM(UINT32_MAX)}),
		-EINVAL);
	assert_int_equal(
		no_pool(&(struct vbn_pool_conf){.n_bufs = 1, .node = VBN_NUM(900)}), -EINVAL);
	assert_int_equal(
		no_pool(&(struct vbn_pool_conf){.n_bufs = 1u << 27, .data_size = 1u << 30}),
		-ENOMEM);
	assert_int_equal(vbn_pool_footprint(&(struct vbn_pool_conf){.n_bufs = 0}), 0);
	vbn_pool_destroy(NULL);
}

static void ids_come_again(void **state)
{
	struct vbn_pool *a = make(&(struct vbn_pool_conf){.n_bufs = 1}),
			*b = make(&(struct vbn_pool_conf){.n_bufs = 1});
	const uint16_t id = a->id;

	(void)state;
	assert_int_not_equal(id, 0);
	assert_ptr_equal(vbn__pools[id], a);
	vbn_pool_destroy(a);
	assert_null(vbn__pools[id]);
	a = make(&(struct vbn_pool_conf){.n_bufs = 1});
	assert_int_equal(a->id, id);
	vbn_pool_destroy(a);
	vbn_pool_destroy(b);
}

static void as_many_as_there_can_be(void **state)
{
	struct vbn_pool_conf conf = {.n_bufs = 1, .data_size = 64};
	struct vbn_zone *zone = make_zone((MEM_MAX_POOLS + 1) * vbn_pool_footprint(&conf));
	static struct vbn_pool *pools[MEM_MAX_POOLS];

	(void)state;
	conf.zone = zone;
	for (int i = 0; i < MEM_MAX_POOLS; i++)
		pools[i] = make(&conf);
	assert_int_equal(no_pool(&conf), -ENOSPC);
	for (int i = MEM_MAX_POOLS - 1; i >= 0; i--)
		vbn_pool_destroy(pools[i]);
	assert_int_equal(vbn_zone_free(zone), vbn_zone_size(zone));
	vbn_zone_destroy(zone);
}

/* ---- reports ---- */

static uint64_t found;

static int find_empty(const struct counter_set *set, size_t i, uint64_t value, void *arg)
{
	if (strcmp(set->kind, "pool") || strcmp(set->object, arg) ||
		strcmp(set->names[i].name, "empty"))
		return 0;
	found = value;
	return 1;
}

static void counts_what_it_refuses(void **state)
{
	struct vbn_pool *pool =
		make(&(struct vbn_pool_conf){.n_bufs = 1, .name = "a name of quite some length"});
	struct vbn_buf *bufs[2];
	char object[32];

	(void)state;
	snprintf(object, sizeof(object), "a name of quite some leng/%u", pool->id);
	assert_int_equal(vbn__counters_each(find_empty, object), 1);
	assert_int_equal(found, 0);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 2), -ENOBUFS);
	assert_int_equal(vbn__counters_each(find_empty, object), 1);
	assert_int_equal(found, 1);
	vbn_pool_destroy(pool);
	assert_int_equal(vbn__counters_each(find_empty, object), 0);
}

#ifndef VBN_DEBUG_BUFS
/* It was "4294967295 of its 5 bufs are not home". */
static void too_many_at_home_are_reported(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 5, .name = "full"});
	struct vbn_buf *buf;

	(void)state;
	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	vbn_buf_free(&buf, 1);
	vbn_buf_free(&buf, 1);
	vbn_pool_destroy(pool);
	assert_logged("it has 5 bufs, and 6 are home");
	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1); /* so that it can go */
	vbn_pool_destroy(pool);
	assert_int_equal(vbn__pools_report_leaks(), 0);
}
#endif

static void leaks_are_reported(void **state)
{
	struct vbn_pool *pool = make(&(struct vbn_pool_conf){.n_bufs = 5, .name = "leaky"});
	struct vbn_buf *bufs[3];

	(void)state;
	assert_int_equal(vbn__pools_report_leaks(), 0);
	assert_int_equal(vbn_buf_alloc(pool, bufs, 3), 3);
	assert_int_equal(vbn__pools_report_leaks(), 3);
	assert_logged("pool leaky/");
	assert_logged("3 of its 5 bufs are not home");
	unit_catch_log();
	vbn_pool_destroy(pool);
	assert_logged("3 of its 5 bufs are not home");
	assert_int_equal(vbn__pools_report_leaks(), 3); /* it stays: its memory is in use */
	vbn_buf_free(bufs, 3);
	vbn_pool_destroy(pool);
	assert_int_equal(vbn__pools_report_leaks(), 0);
}

/* ---- threads: pools of one zone, made, used and destroyed by several at once ---- */

static char work_failed;

static void *work(void *zone)
{
	const struct vbn_pool_conf conf = {.n_bufs = 64, .data_size = 256, .zone = zone};
	struct vbn_buf *bufs[64];
	struct vbn_pool *pool;

	for (int i = 0; i < 50; i++) {
		if (vbn_pool_create(&conf, &pool))
			return &work_failed;
		for (int j = 0; j < 20; j++) {
			if (vbn_buf_alloc(pool, bufs, 64) != 64)
				return &work_failed;
			for (int k = 0; k < 64; k++)
				memset(bufs[k]->data, j, 256);
			vbn_buf_free(bufs, 64);
		}
		vbn_pool_destroy(pool);
	}
	return NULL;
}

static void several_threads(void **state)
{
	const struct vbn_pool_conf conf = {.n_bufs = 64, .data_size = 256};
	struct vbn_zone *zone = make_zone(4 * vbn_pool_footprint(&conf));
	pthread_t threads[4];
	void *result;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, zone), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		assert_null(result);
	}
	assert_int_equal(vbn_zone_free(zone), vbn_zone_size(zone));
	vbn_zone_destroy(zone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_buf),
		cmocka_unit_test(a_used_buf_is_new_again),
		cmocka_unit_test(all_or_none),
		cmocka_unit_test(last_in_first_out),
		cmocka_unit_test(chains_and_several_pools),
		cmocka_unit_test(inlines_of_drivers),
		cmocka_unit_test(footprints_fill_a_zone),
		cmocka_unit_test(a_footprint_is_near_its_bufs),
		cmocka_unit_test(strides_are_spread),
		cmocka_unit_test(bad_confs),
		cmocka_unit_test(ids_come_again),
		cmocka_unit_test(as_many_as_there_can_be),
		cmocka_unit_test(counts_what_it_refuses),
#ifndef VBN_DEBUG_BUFS
		cmocka_unit_test(too_many_at_home_are_reported),
#endif
		cmocka_unit_test(leaks_are_reported),
		cmocka_unit_test(several_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
