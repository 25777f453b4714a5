/* loop_dpdk.c - DPDK's pool and ring as loop.c measures ours: a mempool with its cache for one core, and
 * a ring between one producer and one consumer
 */
#include "loop.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <sched.h>
#include <stdio.h>

#define N_ITEMS(array) (sizeof(array) / sizeof((array)[0]))

enum { N_OBJECTS = 1023, CACHE_SIZE = 256 };

static struct rte_mempool *mempool;
static struct rte_ring *ring;
static void *objects[BURST], *got[BURST];

void dpdk_start(void)
{
	/* Plain memory, no device, no file: what is compared is the code of the calls. */
	static char options[][16] = {"loop_bench", "--no-huge", "--no-pci", "--no-telemetry",
		"--no-shconf", "-m", "64", "--log-level", "error"};
	char *argv[N_ITEMS(options) + 1] = {NULL};
	cpu_set_t cores;

	pthread_getaffinity_np(pthread_self(), sizeof(cores), &cores);
	for (size_t i = 0; i < N_ITEMS(options); i++)
		argv[i] = options[i];
	if (rte_eal_init(N_ITEMS(options), argv) < 0)
		die("DPDK's environment did not start");
	pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
	mempool = rte_mempool_create("bufs", N_OBJECTS, 128, CACHE_SIZE, 0, NULL, NULL, NULL, NULL,
		SOCKET_ID_ANY, RTE_MEMPOOL_F_SP_PUT | RTE_MEMPOOL_F_SC_GET);
	ring = rte_ring_create("items", RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (!mempool || !ring)
		die("no mempool or ring of DPDK's");
}

void dpdk_get(void)
{
	if (rte_mempool_get_bulk(mempool, objects, BURST))
		die("DPDK's mempool has no %d objects left", BURST);
}

bool dpdk_put(void)
{
	rte_mempool_put_bulk(mempool, objects, BURST);
	return true;
}

__attribute__((noinline)) void measure_rte_mempool_get(void)
{
	(void)!rte_mempool_get_bulk(mempool, objects, BURST);
}

__attribute__((noinline)) void measure_rte_mempool_put(void)
{
	rte_mempool_put_bulk(mempool, objects, BURST);
}

__attribute__((noinline)) void measure_rte_mempool_put_singly(void)
{
	for (int i = 0; i < BURST; i++)
		rte_mempool_put(mempool, objects[i]);
}

__attribute__((noinline)) void measure_rte_ring(void)
{
	rte_ring_sp_enqueue_burst(ring, objects, BURST, NULL);
	rte_ring_sc_dequeue_burst(ring, got, BURST, NULL);
}

__attribute__((noinline)) void measure_rte_ring_singly(void)
{
	for (int i = 0; i < BURST; i++)
		rte_ring_sp_enqueue(ring, objects[i]);
	for (int i = 0; i < BURST; i++)
		rte_ring_sc_dequeue(ring, &got[i]);
}

void *dpdk_produce(void *arg)
{
	for (int sent = 0; sent < HANDED;)
		sent += done((int)rte_ring_sp_enqueue_burst(ring, objects, BURST, NULL));
	return arg;
}

void dpdk_consume(void)
{
	for (int taken = 0; taken < HANDED;)
		taken += done((int)rte_ring_sc_dequeue_burst(ring, got, BURST, NULL));
}
