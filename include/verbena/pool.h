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
	enum vbn_switch memfd;   /* with no zone: as a zone's, verbena/zone.h */
	const char *name; /* for reports, with "/" and a number behind; copied; default "pool" */
};

/* -ENOMEM: the zone has no room, or none could be mapped; -EINVAL: sizes out of range; -ENOSPC:
 * 4,096 pools exist, or 256 zones, of which a pool without one takes one. Counters: `empty` (allocations
 * refused).
 *
 * The worker on whose thread it is created owns it. One that is created elsewhere, or whose worker
 * has ended, is the worker's that makes a queue with it or is short of its bufs; until then it
 * belongs to the threads that are no workers, of which one at a time may use it, and what a worker
 * frees into it costs a locked instruction. */
int vbn_pool_create(const struct vbn_pool_conf *conf, struct vbn_pool **pool);

/* Its bufs must be home, queues that hold some destroyed: else the pool stays, and a sentence says
 * how many are not; debug builds name who allocated them. NULL is allowed. */
void vbn_pool_destroy(struct vbn_pool *pool);

/* Bufs that are home; not those that another worker has freed and that are still under way. The
 * owner's thread; from another one the value is a moment's. */
uint32_t vbn_pool_available(const struct vbn_pool *pool);
uint32_t vbn_pool_size(const struct vbn_pool *pool);

/* Its zone, which is the pool's own where conf named none. */
struct vbn_zone *vbn_pool_zone(struct vbn_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
