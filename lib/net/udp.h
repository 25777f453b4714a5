/* udp.h - a socket, as the files of UDP share it, and quick.c */
#ifndef VBN_NET_UDP_H
#define VBN_NET_UDP_H

#include "net/seat.h"

/* What a socket takes: never changed, but published anew, so that any worker may look. */
struct udp_key {
	struct rcu_later later;
	struct vbn_ip local, peer;
	uint16_t local_port, peer_port;
	uint32_t interface; /* index + 1; 0: any */
	bool bound, connected;
};

enum { UDP_GROUPS = 16 };

/* Others look, too, who has joined: what they see in that moment is not what counts, but to whom they hand. */
struct udp_group {
	uint64_t ip_words[2];
	uint32_t interface; /* index + 1; 0: none. Written last */
};

static force_inline bool udp_group_is(
	const struct udp_group *group, const struct vbn_ip *ip, uint32_t interface)
{
	return load_acquire(&group->interface) == interface &&
		load_once(&group->ip_words[0]) == ip_high(ip) &&
		load_once(&group->ip_words[1]) == ip_low(ip);
}

/* What the headers of all its datagrams have in common, as it is on the wire. */
struct udp_head {
	uint16_t first4, fragment4; /* version, header's length, TOS; DF */
	uint16_t hop4, hop6;        /* TTL and protocol; next header and hops */
	uint32_t first6;            /* version and traffic class */
	uint32_t sum4;              /* of IPv4's */
};

struct vbn_udp {
	/* read by all workers */
	struct vbn_udp *next;  /* in its bucket; RCU */
	struct udp_key *key;   /* RCU */
	struct net_seat *seat; /* for others an address to compare: it may be gone */
	uint32_t number;       /* the seat's */
	struct udp_group groups[UDP_GROUPS];
	/* its worker's */
	vbn_udp_recv_fn *recv cache_aligned;
	void *arg;
	struct vbn_udp *next_mine;
	uint64_t received, sent, dropped; /* counters */
	uint32_t ring_mask, head, tail;
	struct vbn_buf **ring;
	uint32_t error; /* -errno, negated */
	uint32_t peer_scope;
	struct udp_head common;
	uint8_t ttl, group_ttl, traffic_class;
	bool broadcast;
	enum vbn_switch dont_fragment;
	struct rcu_later later;
};

static force_inline uint32_t udp_bucket(const struct vbn_net *net, uint16_t port)
{
	return (uint32_t)(port * 0x9e3779b1u >> 12) & net->socket_mask;
}

/* What a seat's place for a port is known by: with another generation it is out of date. */
static force_inline uint64_t udp_place_key(const struct vbn_net *net, uint16_t port)
{
	return load_acquire(&net->sockets_generation) << 16 | port;
}

/* To a socket of the seat: gathered for its callback, or put into its ring; gone and counted, where there is no
 * room. */
void vbn__udp_deliver(struct net_seat *seat, struct vbn_udp *udp, struct vbn_buf *buf);

#endif
