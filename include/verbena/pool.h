/* verbena/pool.h - a pool: bufs of one size on one NUMA node, owned by one worker, last in first
 * out */
#ifndef VERBENA_POOL_H
#define VERBENA_POOL_H

#include <stdint.h>
#include <verbena/mode.h>
#include <verbena/zone.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_pool;

struct vbn_pool_conf {
	uint32_t n_bufs;         /* required */
	uint32_t data_size;      /* bytes behind the headroom; default 2048 */
	struct vbn_num headroom; /* bytes before the data, up to a whole cache line; default 0 */
	struct vbn_zone *zone;   /* NULL: a zone of its own on `node` */
	struct vbn_num node;     /* with no zone: default the calling thread's node */
	const char *name; /* for reports, with "/" and a number behind; copied; default "pool" */
};

/* -ENOMEM: the zone has no room, or none could be mapped; -EINVAL: sizes out of range; -ENOSPC:
 * 4,096 pools exist, or 256 zones, of which a pool without one takes one. The thread that uses the pool first owns it. Counters: `empty` (allocations
 * refused). */
int vbn_pool_create(const struct vbn_pool_conf *conf, struct vbn_pool **pool);

/* Its bufs must be home, queues that hold some destroyed: else the pool stays, and a sentence says
 * how many are not; debug builds name who allocated them. NULL is allowed. */
void vbn_pool_destroy(struct vbn_pool *pool);

/* Bufs that are home. The owner's thread; from another one the value is a moment's. */
uint32_t vbn_pool_available(const struct vbn_pool *pool);
uint32_t vbn_pool_size(const struct vbn_pool *pool);

/* Its zone, which is the pool's own where conf named none. */
struct vbn_zone *vbn_pool_zone(struct vbn_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
