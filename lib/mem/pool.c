/* pool.c - pools: bufs of one size carved out of a zone, and the LIFO that they go home to */

#include "mem/mem.h"

#include <pthread.h>
#include <stdio.h>

#define DEFAULT_DATA_SIZE 2048u
#define MAX_BUFS          (1u << 27)
#define MAX_DATA_SIZE     (1u << 30)
#define MAX_HEADROOM      (1u << 20)

static pthread_mutex_t lock =
	PTHREAD_MUTEX_INITIALIZER; /* the table, and what zones have given away */
struct vbn_pool *vbn__pools[MEM_MAX_POOLS + 1];

static const struct counter_name counter_names[] = {
	{"empty", "allocations refused because too few bufs were home"}};

/* ---- shape ---- */

/* What a conf comes to, in bytes. */
struct shape {
	uint32_t headroom, data_size, stride;
	size_t stack, bufs, footprint; /* offset of the stack, of the first buf, and the whole */
};

/* Headers that lie a multiple of 1 KiB apart share few sets of a cache, so such a stride gets one
 * line more. */
static uint32_t spread(uint32_t stride)
{
	return stride % (16 * CACHE_LINE) ? stride : stride + CACHE_LINE;
}

/* -EINVAL without a sentence where a number is out of range. */
static int shape_of(const struct vbn_pool_conf *conf, struct shape *shape)
{
	uint32_t headroom = conf->headroom.set ? conf->headroom.value : 0;

	shape->data_size = conf->data_size ? conf->data_size : DEFAULT_DATA_SIZE;
	if (!conf->n_bufs || conf->n_bufs > MAX_BUFS || shape->data_size > MAX_DATA_SIZE ||
		headroom > MAX_HEADROOM)
		return -EINVAL;
	shape->headroom = (uint32_t)round_up(headroom, CACHE_LINE);
	shape->stride = spread((uint32_t)(sizeof(struct vbn_buf) + shape->headroom +
		round_up(shape->data_size, CACHE_LINE)));
	shape->stack = round_up(sizeof(struct vbn_pool), CACHE_LINE);
	shape->bufs = shape->stack +
		round_up((conf->n_bufs + 1ul) * sizeof(struct vbn_buf *), CACHE_LINE);
	shape->footprint = shape->bufs + (size_t)conf->n_bufs * shape->stride;
	return 0;
}

VBN_API size_t vbn_pool_footprint(const struct vbn_pool_conf *conf)
{
	struct shape shape;

	return shape_of(conf, &shape) ? 0 : shape.footprint;
}

/* ---- room in a zone: taken and given back under the lock ---- */

/* The first gap between pools that is large enough. */
static struct vbn_pool *carve(struct vbn_zone *zone, size_t size)
{
	struct vbn_pool **link = &zone->pools, *pool;
	uint8_t *at = zone->base;

	while (*link && (size_t)((uint8_t *)*link - at) < size) {
		at = (uint8_t *)*link + (*link)->footprint;
		link = &(*link)->behind;
	}
	if (!*link && (size_t)(zone->base + zone->size - at) < size)
		return NULL;
	pool = (struct vbn_pool *)(void *)at;
	memset(pool, 0, sizeof(*pool)); /* an earlier pool may have lain here */
	pool->zone = zone;
	pool->footprint = size;
	pool->behind = *link;
	store_once(link, pool);
	store_once(&zone->used, zone->used + size);
	return pool;
}

static void uncarve(struct vbn_pool *pool)
{
	struct vbn_pool **link = &pool->zone->pools;

	while (*link != pool)
		link = &(*link)->behind;
	store_once(&pool->zone->used, pool->zone->used - pool->footprint);
	store_once(link, pool->behind);
}

/* ---- create and destroy ---- */

static const char *name_of(const struct vbn_pool_conf *conf)
{
	return conf->name ? conf->name : "pool";
}

static int get_zone(
	const struct vbn_pool_conf *conf, const struct shape *shape, struct vbn_zone **zone)
{
	const struct vbn_zone_conf zone_conf = {.size = shape->footprint,
		.node = conf->node,
		.memfd = conf->memfd,
		.name = name_of(conf)};

	if (!conf->zone)
		return vbn_zone_create(&zone_conf, zone);
	*zone = conf->zone;
	return 0;
}

/* Takes an id and the room: 0, -ENOSPC or -ENOMEM, without a sentence. */
static int claim(struct vbn_zone *zone, const struct shape *shape, struct vbn_pool **claimed)
{
	struct vbn_pool *pool;
	uint16_t id = 1;
	int ret = 0;

	pthread_mutex_lock(&lock);
	while (id <= MEM_MAX_POOLS && vbn__pools[id])
		id++;
	if (id > MEM_MAX_POOLS) {
		ret = -ENOSPC;
		goto out;
	}
	pool = carve(zone, shape->footprint);
	if (!pool) {
		ret = -ENOMEM;
		goto out;
	}
	pool->id = id;
	store_once(&pool->home, vbn__home); /* a worker that ends looks at all there are */
	vbn__pools[id] = pool;
	*claimed = pool;
out:
	pthread_mutex_unlock(&lock);
	return ret;
}

static void unclaim(struct vbn_pool *pool)
{
	pthread_mutex_lock(&lock);
	vbn__pools[pool->id] = NULL;
	uncarve(pool);
	pthread_mutex_unlock(&lock);
}

/* ---- whose it is ---- */

thread_local_near struct lane_end *vbn__home;

int vbn__pool_claim(struct vbn_pool *pool)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!pool->home)
		store_once(&pool->home, vbn__home);
	else if (pool->home != vbn__home)
		ret = -EBUSY;
	pthread_mutex_unlock(&lock);
	return ret;
}

void vbn__pools_leave(const struct lane_end *home)
{
	pthread_mutex_lock(&lock);
	for (int id = 1; id <= MEM_MAX_POOLS; id++) {
		struct vbn_pool *pool = vbn__pools[id];

		if (!pool || pool->home != home)
			continue;
		store_once(&pool->home, NULL);
#ifdef VBN_DEBUG_BUFS
		pool->owner = 0;
#endif
	}
	pthread_mutex_unlock(&lock);
}

cold bool vbn__pool_more(struct vbn_pool *pool)
{
	const uint32_t before = pool->n_free;

	if (!load_once(&pool->home)) {
		vbn__pool_claim(pool);
		vbn__homes_sweep();
	}
	vbn__pool_collect(pool);
	return pool->n_free > before;
}

static struct vbn_buf *buf_at(const struct vbn_pool *pool, uint32_t i)
{
	return (struct vbn_buf *)(void *)(pool->first + (size_t)i * pool->stride);
}

/* All bufs home, the first one on top. */
static void fill(struct vbn_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_bufs; i++) {
		struct vbn_buf *buf = buf_at(pool, i);

		memset(buf, 0, sizeof(*buf));
		buf->pool = pool;
		buf->pool_id = pool->id;
		buf->size = pool->headroom + pool->data_size;
		buf->data = pool_data(pool, buf);
		pool->stack[pool->n_bufs - 1 - i] = buf;
	}
	pool->n_free = pool->n_bufs;
}

static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_pool *pool = container_of(set, struct vbn_pool, counters);

	vbn__fact_text(list, "zone", pool->zone->name);
	if (pool->zone->node >= 0)
		vbn__fact_number(list, "node", (uint64_t)pool->zone->node);
	vbn__fact_number(list, "page_bytes", pool->zone->page_size);
	vbn__fact_number(list, "zone_bytes", pool->zone->size);
	vbn__fact_number(list, "footprint_bytes", pool->footprint);
	vbn__fact_number(list, "buf_bytes", pool->data_size);
	vbn__fact_number(list, "headroom_bytes", pool->headroom);
	vbn__fact_number(list, "bufs", pool->n_bufs);
	vbn__fact_gauge(list, "free_bufs", "bufs that are home", vbn__glance(&pool->n_free));
}

static void build(
	struct vbn_pool *pool, const struct vbn_pool_conf *conf, const struct shape *shape)
{
	pool->stack = (struct vbn_buf **)(void *)((uint8_t *)pool + shape->stack);
	pool->first = (uint8_t *)pool + shape->bufs;
	pool->n_bufs = conf->n_bufs;
	pool->headroom = shape->headroom;
	pool->data_size = shape->data_size;
	pool->stride = shape->stride;
	pool->zone_id = (uint16_t)pool->zone->id;
	pool->own_zone = !conf->zone;
	snprintf(pool->name, sizeof(pool->name), "%.25s/%u", name_of(conf), pool->id);
	pool->counters = (struct counter_set){.kind = "pool",
		.names = counter_names,
		.values = &pool->empty,
		.n = ARRAY_SIZE(counter_names),
		.describe = describe};
	memcpy(pool->counters.object, pool->name, sizeof(pool->name));
	fill(pool);
}
static_assert(sizeof(((struct vbn_pool *)0)->name) == sizeof(((struct counter_set *)0)->object),
	"one name for both");

static int debug_create(struct vbn_pool *pool)
{
#ifdef VBN_DEBUG_BUFS
	return vbn__pool_debug_create(pool);
#else
	(void)pool;
	return 0;
#endif
}

VBN_API int vbn_pool_create(const struct vbn_pool_conf *conf, struct vbn_pool **created)
{
	static const struct vbn_pool_conf defaults;
	struct shape shape;
	struct vbn_zone *zone;
	struct vbn_pool *pool;
	int ret;

	*created = NULL;
	if (!conf)
		conf = &defaults;
	if (shape_of(conf, &shape))
		return fail(EINVAL,
			"pool %s: cannot make %u bufs of %u bytes with %u of headroom: out of range; ask for 1 to %u bufs, at most %u "
			"bytes, and at most %u of headroom",
			name_of(conf), conf->n_bufs, shape.data_size, conf->headroom.value,
			MAX_BUFS, MAX_DATA_SIZE, MAX_HEADROOM);
	ret = get_zone(conf, &shape, &zone);
	if (ret)
		return ret;
	ret = claim(zone, &shape, &pool);
	if (ret == -ENOSPC) {
		fail(ENOSPC,
			"pool %s: cannot create it: %d pools exist, which is the most; destroy some",
			name_of(conf), MEM_MAX_POOLS);
		goto no_room;
	}
	if (ret) {
		fail(ENOMEM,
			"pool %s: cannot take %zu bytes from zone %s: it has %zu free%s; make the zone larger or the pool smaller",
			name_of(conf), shape.footprint, zone->name, vbn_zone_free(zone),
			vbn_zone_free(zone) < shape.footprint ? "" : ", but not in one run");
		goto no_room;
	}
	build(pool, conf, &shape);
	ret = debug_create(pool);
	if (ret) {
		fail(-ret,
			"pool %s: cannot create it: no memory for the history of its bufs; free some",
			pool->name);
		goto no_history;
	}
	vbn__counters_add(&pool->counters);
	*created = pool;
	return 0;

no_history:
	unclaim(pool);
no_room:
	if (!conf->zone)
		vbn_zone_destroy(zone);
	return ret;
}

static uint32_t bufs_out(const struct vbn_pool *pool)
{
	return pool->n_bufs - load_once(&pool->n_free);
}

/* How many bufs are not home; logs it where there are any. */
static uint32_t report_leaks(struct vbn_pool *pool)
{
	uint32_t out = bufs_out(pool);

	if (out) {
		vbn__homes_sweep();
		vbn__pool_collect(pool);
		out = bufs_out(pool);
	}
	if (!out)
		return 0;
	if (out > pool->n_bufs) {
		log_error(
			"pool %s: it has %u bufs, and %u are home: some were freed twice, or after they were sent; -Ddebug_bufs=enabled, at its build, makes the library name who",
			pool->name, pool->n_bufs, pool->n_bufs - out);
		return out;
	}
	log_warning(
		"pool %s: %u of its %u bufs are not home: destroy the queues that hold some, and free each one that a receive, an event or vbn_buf_alloc() gave",
		pool->name, out, pool->n_bufs);
#ifdef VBN_DEBUG_BUFS
	vbn__pool_debug_leaks(pool);
#endif
	return out;
}

VBN_API void vbn_pool_destroy(struct vbn_pool *pool)
{
	struct vbn_zone *zone;
	bool own_zone;

	if (!pool)
		return;
	vbn__pool_claim(pool); /* what is nobody's yet, so as to take in its bufs */
	if (report_leaks(pool))
		return; /* whoever holds one would find its memory gone */
	vbn__counters_remove(&pool->counters);
#ifdef VBN_DEBUG_BUFS
	vbn__pool_debug_destroy(pool);
#endif
	zone = pool->zone;
	own_zone = pool->own_zone;
	unclaim(pool);
	if (own_zone)
		vbn_zone_destroy(zone);
}

uint32_t vbn__pools_report_leaks(void)
{
	uint32_t out = 0;

	pthread_mutex_lock(&lock);
	for (int id = 1; id <= MEM_MAX_POOLS; id++)
		if (vbn__pools[id])
			out += report_leaks(vbn__pools[id]);
	pthread_mutex_unlock(&lock);
	return out;
}

/* ---- questions ---- */

VBN_API uint32_t vbn_pool_available(const struct vbn_pool *pool)
{
	return load_once(&pool->n_free);
}

VBN_API uint32_t vbn_pool_size(const struct vbn_pool *pool)
{
	return pool->n_bufs;
}

VBN_API struct vbn_zone *vbn_pool_zone(struct vbn_pool *pool)
{
	return pool->zone;
}

/* ---- bufs: the fast path ---- */

static force_inline int take(
	struct vbn_pool *pool, struct vbn_buf **bufs, int n, const void *caller)
{
	const size_t to_data = sizeof(struct vbn_buf) + pool->headroom;
	const uint64_t len_word = len_and_word(pool, 0);
	struct vbn_buf **top = pool->stack + pool->n_free;

	(void)caller; /* debug builds note it */
	pool->n_free -= (uint32_t)n;
	for (int i = 0; i < n; i++) {
		struct vbn_buf *buf = *--top;

		vbn__buf_debug_alloc(pool, buf, caller);
		buf_set(buf, (uint8_t *)buf + to_data, len_word);
		bufs[i] = buf;
	}
	return n;
}

/* There may be enough once what is on its way is in. */
static cold int take_more(struct vbn_pool *pool, struct vbn_buf **bufs, int n, const void *caller)
{
	if (n > 0 && vbn__pool_more(pool) && (uint32_t)n <= pool->n_free)
		return take(pool, bufs, n, caller);
	store_once(&pool->empty, pool->empty + 1);
	return -ENOBUFS;
}

VBN_API fast_path int vbn_buf_alloc(struct vbn_pool *pool, struct vbn_buf **bufs, int n)
{
	if (unlikely((uint32_t)n > pool->n_free)) /* a negative n too */
		return take_more(pool, bufs, n, __builtin_return_address(0));
	return take(pool, bufs, n, __builtin_return_address(0));
}

/* Each segment goes to its own pool. Debug builds poison what is freed, so `next` is read before.
 */
static fast_path void free_chain(struct vbn_buf *buf, const void *caller)
{
	struct vbn_buf *next;

	(void)caller; /* debug builds note it */
	for (; buf; buf = next) {
		struct vbn_pool *pool;

		vbn__buf_debug_check(buf, caller);
		pool = buf->pool;
		next = buf->flags & VBN_BUF_CHAIN ? buf->next : NULL;
		if (likely(load_once(&pool->home) == vbn__home)) {
			vbn__buf_debug_free(pool, buf, caller);
			pool->stack[pool->n_free++] = buf;
		} else {
			vbn__buf_debug_free_away(pool, buf, caller);
			vbn__bufs_send_home(pool, &buf, 1);
		}
	}
}

/* Plain bufs of one pool of another worker's, from the first on: how many. */
static force_inline uint32_t free_away(
	struct vbn_pool *pool, struct vbn_buf **bufs, uint32_t n, const void *caller)
{
	const uint32_t word = plain_word(pool);
	uint32_t run = 0;

	(void)caller;
	while (run < n && buf_word(bufs[run]) == word) {
		vbn__buf_debug_check(bufs[run], caller);
		vbn__buf_debug_free_away(pool, bufs[run], caller);
		run++;
	}
	if (run)
		vbn__bufs_send_home(pool, bufs, run);
	return run;
}

/* Plain bufs of one pool of this thread's, from the first on: how many. One load of the word, one of
 * the pointer and one store for each. */
static force_inline uint32_t free_here(
	struct vbn_pool *pool, struct vbn_buf **bufs, uint32_t n, const void *caller)
{
	const uint32_t word = plain_word(pool);
	struct vbn_buf **top = pool->stack + pool->n_free;
	size_t i = 0;

	(void)caller;
	do {
		struct vbn_buf *buf = bufs[i];

		if (unlikely(buf_word(buf) != word))
			break;
		vbn__buf_debug_free(pool, buf, caller);
		top[i] = buf;
	} while (++i != n);
	pool->n_free += (uint32_t)i;
	return (uint32_t)i;
}

/* Whatever there is: bufs with flags, chains, other pools, other workers'. */
static noinline fast_path void free_any(struct vbn_buf **bufs, uint32_t n, const void *caller)
{
	while (n) {
		struct vbn_pool *pool;
		uint32_t run;

		vbn__buf_debug_check(*bufs, caller);
		pool = (*bufs)->pool;
		if (load_once(&pool->home) == vbn__home)
			run = free_here(pool, bufs, n, caller);
		else
			run = free_away(pool, bufs, n, caller);
		if (!run) {
			free_chain(*bufs, caller);
			run = 1;
		}
		bufs += run;
		n -= run;
	}
}

/* Most often they are plain, of one pool, and of this thread's. */
VBN_API fast_path void vbn_buf_free(struct vbn_buf **bufs, int n)
{
	const void *caller = __builtin_return_address(0);
	struct vbn_pool *pool;
	uint32_t run = 0;

	if (unlikely(n <= 0))
		return;
	vbn__buf_debug_check(*bufs, caller);
	pool = (*bufs)->pool;
	if (likely(load_once(&pool->home) == vbn__home))
		run = free_here(pool, bufs, (uint32_t)n, caller);
	if (unlikely(run != (uint32_t)n))
		free_any(bufs + run, (uint32_t)n - run, caller);
}
