/* netdev.h - a network interface of this network namespace, by its name: what the drivers of raw
 * Ethernet ask the kernel about it
 *
 * On the control thread. Each answers 0, or -errno without a sentence.
 */
#ifndef VBN_NETDEV_H
#define VBN_NETDEV_H

#include "base/base.h"

struct netdev {
	int index;
	uint32_t mtu;
	uint8_t mac[6];
	bool up; /* and running */
};

/* An Ethernet interface. */
struct netdev_found {
	char name[16];
	char driver[16]; /* the kernel's; "" where it does not say */
	struct netdev dev;
	uint32_t rx_queues, speed_mbit; /* speed 0: not known */
	int node;                       /* -1: not known */
	bool is_tap;
};

/* netdev_list.c: at most n of those there are; how many were written. Asks, and changes nothing. */
int vbn__netdev_list(struct netdev_found *found, int n);

int vbn__netdev_look(const char *name, struct netdev *dev);
int vbn__netdev_set_mtu(const char *name, uint32_t mtu);
int vbn__netdev_set_up(const char *name);
/* Queues that it receives by; 1 where it does not say. */
uint32_t vbn__netdev_rx_queues(const char *name);

/* The kernel's counts, as it names them: what it has sent on the interface and received from it. */
struct netdev_counts {
	uint64_t rx_packets, rx_errors, rx_dropped;
	uint64_t tx_packets, tx_errors, tx_dropped;
};

int vbn__netdev_counts(const char *name, struct netdev_counts *counts);

/* Counts since a port was opened, which go on where its interface has gone and come back. */
struct netdev_since {
	struct netdev_counts before, last;
};

/* The interface is there, for the first time or anew. */
void vbn__netdev_since_now(struct netdev_since *since, const char *name);
/* Where it is gone they are what they were. */
void vbn__netdev_since(struct netdev_since *since, const char *name, struct netdev_counts *counts);

#endif
