/* packet_net.h - the IP stack under `verbena echo` and `verbena fwd l3`: one net of all devices, an end of
 * each on each worker */
#ifndef PACKET_NET_H
#define PACKET_NET_H

#include "packet.h"

struct net_worker {
	struct vbn_net_end *ends[MAX_DEVICES];
	struct vbn_udp *udp;
	uint64_t not_replied; /* datagrams that no answer could be sent of */
	uint64_t replied;
	/* the end, once all is over */
	uint64_t received;
	int64_t missing; /* frames without a fate; of those sent, too */
	struct drops fates;
};

struct net_options {
	const struct texts *ips, *routes; /* routes: NULL where there are none */
	bool forward;
};

/* Checks the form of addresses. 0 or an exit status. */
int net_check(const struct net_options *options);
/* With the devices open. 0 or an exit status. */
int net_prepare(struct packet_run *run, const struct net_options *options);
void net_unprepare(struct packet_run *run);

/* On the worker's thread; the packet_worker's own is its net_worker from here on. */
int net_setup(struct packet_worker *worker);
void net_teardown(struct packet_worker *worker);
void net_free_workers(struct packet_run *run);
vbn_poll_fn *net_loop(const struct packet_run *run);

/* Frames whose fate is known. */
uint64_t net_delivered(const struct packet_run *run);
/* "fates": what became of what was received. */
void net_json(const struct packet_run *run, json_t *root);
void net_print(const struct packet_run *run);

#endif
