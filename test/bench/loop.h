/* loop.h - what loop.c measures of others: DPDK's pool and ring, where they are installed */
#ifndef LOOP_H
#define LOOP_H

#include "bench.h"

#include <sched.h>

enum { RING = 1024, HANDED = 1 << 18 }; /* slots; items that cross between two threads */

/* Where nothing could be done the other thread may be waiting for this core. */
static inline int done(int n)
{
	if (!n)
		sched_yield();
	return n;
}

void dpdk_start(void);
void dpdk_get(void);
bool dpdk_put(void);
void measure_rte_mempool_get(void);
void measure_rte_mempool_put(void);
void measure_rte_mempool_put_singly(void);
void measure_rte_ring(void);
void measure_rte_ring_singly(void);
void *dpdk_produce(void *arg);
void dpdk_consume(void);

#endif
