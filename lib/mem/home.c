/* home.c - bufs that are freed where their pool is not: how they go home
 *
 * A pool's home is the end of the lanes (base/lane.h) of the worker that owns it; NULL: no worker
 * does. A worker that frees another one's buf puts it on the lane to that pool's home, and the
 * receiver puts it back into its pool in an iteration of its own. A thread that is no worker pushes
 * it there. A buf whose pool has no home waits in a list of the pool's until somebody is short of
 * bufs or asks what is missing.
 */

#include "mem/mem.h"

static struct lane_kind kind = {
	.link = offsetof(struct vbn_buf, next), .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- leaving ---- */

/* The release pairs with vbn__pool_take_returned(). */
static noinline void return_to_pool(struct vbn_pool *pool, struct vbn_buf *buf)
{
	struct vbn_buf *first = load_once(&pool->returned);

	do
		buf->next = first;
	while (!__atomic_compare_exchange_n(
		&pool->returned, &first, buf, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* For those who are not the pool's worker, by an instruction that is locked. */
static noinline void send_as_stranger(struct vbn_pool *pool, struct vbn_buf *buf)
{
	struct lane_end *home = load_once(&pool->home);

	if (home)
		vbn__lane_push(home, buf);
	else
		return_to_pool(pool, buf);
}

fast_path void vbn__bufs_send_home(struct vbn_pool *pool, struct vbn_buf **bufs, uint32_t n)
{
	struct lane_end *home = load_once(&pool->home), *self = vbn__home;

	if (likely(home && self)) {
		lane_send(self, home, (void **)bufs, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		send_as_stranger(pool, bufs[i]);
}

/* ---- arriving ---- */

/* Each goes into its pool if that is of this home still. */
static fast_path void arrive(void *arg, void **items, uint32_t n)
{
	const struct lane_end *home = arg;

	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(items[i]);
	for (uint32_t i = 0; i < n; i++) {
		struct vbn_buf *buf = items[i];
		struct vbn_pool *pool = buf->pool;

		vbn__buf_debug_arrived(buf);
		if (likely(home && load_once(&pool->home) == home))
			pool->stack[pool->n_free++] = buf;
		else
			send_as_stranger(pool, buf);
	}
}

fast_path void vbn__home_exchange(struct lane_end *home)
{
	lane_flush(home);
	lane_receive(home, arrive, home);
}

/* The pool's list, by whoever may use the pool. */
static void take_returned(struct vbn_pool *pool)
{
	struct vbn_buf *buf = __atomic_exchange_n(&pool->returned, NULL, __ATOMIC_ACQUIRE), *next;

	for (; buf; buf = next) {
		next = buf->next;
		vbn__buf_debug_arrived(buf);
		pool->stack[pool->n_free++] = buf;
	}
}

void vbn__pool_collect(struct vbn_pool *pool)
{
	if (load_once(&pool->home) != vbn__home)
		return;
	if (vbn__home)
		lane_receive(vbn__home, arrive, vbn__home);
	if (load_once(&pool->returned))
		take_returned(pool);
}

void vbn__homes_sweep(void)
{
	vbn__lane_sweep(&kind, arrive, NULL);
}

/* ---- a worker's home ---- */

int vbn__home_open(void)
{
	return vbn__lane_open(&kind, &vbn__home);
}

void vbn__home_close(void)
{
	vbn__pools_leave(vbn__home);
	vbn__lane_close(vbn__home, arrive, NULL);
	vbn__home = NULL;
}
