/* net.h - the stack of one's own: what its workers share; seat.h is what each has by itself
 *
 * Lives here: what is on top of packet queues. May come in: base, mem, run, port. Nothing below knows
 * it.
 *
 *   net        shared by workers: interfaces, and tables that they read without a lock. Who changes one
 *              holds net->lock. A worker that has learned something never waits for it: learn.c.
 *   seat       one worker's part of a net: its counters, its sockets, what waits, pieces of datagrams, and
 *              destinations that it has looked up. Owner: the worker.
 *   end        a seat's packet queue on one link, and what is staged for it.
 */
#ifndef VBN_NET_NET_H
#define VBN_NET_NET_H

#include "base/base.h"
#include "net/wire.h"
#include "run/rcu.h"

#include <pthread.h>

#include <verbena/net.h>
#include <verbena/packet.h>
#include <verbena/timer.h>
#include <verbena/udp.h>

/* ---- addresses ---- */

static force_inline uint64_t ip_high(const struct vbn_ip *ip)
{
	return load8(ip->bytes);
}

static force_inline uint64_t ip_low(const struct vbn_ip *ip)
{
	return load8(ip->bytes + 8);
}

static force_inline bool ip_equal(const struct vbn_ip *a, const struct vbn_ip *b)
{
	return !((ip_high(a) ^ ip_high(b)) | (ip_low(a) ^ ip_low(b)));
}

static force_inline bool ip_is_none(const struct vbn_ip *ip)
{
	return !(ip_high(ip) | ip_low(ip));
}

static force_inline struct vbn_ip ip_from4(const uint8_t bytes[4])
{
	struct vbn_ip ip;
	uint64_t low = (be_force uint64_t)be64(0xffff00000000ull), high = 0;
	uint32_t address = load4(bytes);

	memcpy(ip.bytes, &high, 8);
	memcpy(ip.bytes + 8, &low, 8);
	memcpy(ip.bytes + 12, &address, 4);
	return ip;
}

static force_inline struct vbn_ip ip_from6(const uint8_t bytes[16])
{
	struct vbn_ip ip;

	memcpy(ip.bytes, bytes, 16);
	return ip;
}

static force_inline bool ip_is4(const struct vbn_ip *ip)
{
	return !(ip_high(ip) | (load4(ip->bytes + 8) ^ (be_force uint32_t)be32(0xffff)));
}

static force_inline bool ip_is_multicast(const struct vbn_ip *ip)
{
	return ip_is4(ip) ? (ip->bytes[12] & 0xf0) == 0xe0 : ip->bytes[0] == 0xff;
}

static force_inline bool ip_is_link_local(const struct vbn_ip *ip)
{
	return ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

/* Bits of the 128 that a prefix of its own version's length stands for. */
static inline uint32_t ip_bits(const struct vbn_ip *ip, uint32_t length)
{
	return ip_is4(ip) ? length + 96 : length;
}

struct vbn_ip vbn__ip_mask(const struct vbn_ip *ip, uint32_t bits);

/* The group that an address's owner listens to (RFC 4291). */
struct vbn_ip vbn__ip_solicited(const struct vbn_ip *ip);

static force_inline uint64_t mix(uint64_t value)
{
	value *= 0x9e3779b97f4a7c15ull;
	return value ^ value >> 32;
}

/* ---- interfaces ---- */

enum address_state { ADDRESS_TENTATIVE, ADDRESS_VALID, ADDRESS_DUPLICATE };

struct net_address {
	struct vbn_ip ip;
	uint32_t length;
	uint8_t state;     /* enum address_state; read by all workers at a glance */
	uint8_t announces; /* to go */
	uint8_t probes;    /* to go */
	uint64_t next;     /* ms; with the two above under net->lock */
	uint64_t defended; /* ms: when its last defence was sent */
};

struct net_if {
	char name[24];
	uint32_t index, link, mtu;
	uint16_t vlan; /* 0: untagged */
	uint8_t mac[6];
	uint32_t n_addresses;
	struct net_address addresses[VBN_NET_ADDRESSES];
	uint64_t next_look; /* ms: neighbours and addresses; under net->lock */
};

/* The address of this version, if it is used; NULL. */
const struct net_address *vbn__if_has(const struct net_if *iface, const struct vbn_ip *ip);

/* ---- routes ---- */

enum hop_kind { HOP_UNICAST, HOP_LOCAL, HOP_BROADCAST };

struct net_hop {
	struct vbn_ip gateway; /* none: on the link */
	const struct net_if *iface;
	const struct net_address *address; /* HOP_LOCAL */
	uint32_t mtu;
	uint8_t kind;
	bool via; /* the gateway */
};

struct route_table;
struct vbn_net;

int vbn__routes_create(struct vbn_net *net);
void vbn__routes_destroy(struct vbn_net *net);

/* The longest prefix that has it; NULL: none. In an iteration. */
const struct net_hop *vbn__route_find(const struct vbn_net *net, const struct vbn_ip *ip);

/* ---- neighbours ---- */

/* What a reader needs of one, in one word: its MAC in the first six bytes of memory, then its state, and above
 * that which life of its entry it is: a word that is of another life is another neighbour's. */
enum {
	WORD_READY = 1 << 0,   /* there is a MAC, and it needs nothing */
	WORD_STALE = 1 << 1,   /* there is one, and whoever uses it says so */
	WORD_FAILED = 1 << 2,  /* it did not answer */
	WORD_WAITING = 1 << 3, /* it is being asked */
	WORD_LIFE = 1
		<< 4, /* counts from here on; it begins anew only with a new generation of the net */
	WORD_LIVES = 0xffff & ~(WORD_LIFE - 1),
};

union mac_word {
	uint64_t word;
	struct {
		uint8_t mac[6];
		uint16_t flags; /* 0: not in use */
	};
};

struct neighbour {
	uint64_t word;        /* union mac_word; written under net->lock, last of all */
	uint64_t ip_words[2]; /* its address; changes only while it is in no list */
	uint32_t interface;
	uint32_t next;  /* index + 1 of the next one in its bucket */
	uint16_t life;  /* as in the word; this and below under net->lock */
	uint8_t state;  /* enum vbn_neighbour_state */
	uint8_t probes; /* sent */
	bool used, router;
	uint64_t at; /* ms: when its state began, or its next probe is due */
	struct vbn_net *net;
	struct rcu_later later;
	struct neighbour *free;
};

static force_inline bool neighbour_is(const struct neighbour *neighbour, const struct vbn_ip *ip)
{
	return !((load_once(&neighbour->ip_words[0]) ^ ip_high(ip)) |
		(load_once(&neighbour->ip_words[1]) ^ ip_low(ip)));
}

/* ---- groups, paths ---- */

struct net_group {
	uint64_t ip_words[2];
	uint32_t interface; /* index + 1; 0: free. Written last */
	uint32_t users;     /* this and below under net->lock */
	uint8_t reports;    /* to go, without being asked */
	uint64_t report_at; /* ms; UINT64_MAX: none is due */
	bool reporter;      /* ours was the last report */
};

struct net_path {
	uint32_t seq; /* odd while it is written */
	uint32_t mtu;
	uint64_t ip_words[2];
	uint64_t until; /* ms */
};

/* ---- the net ---- */

struct net_seat;
struct vbn_udp;

enum { NET_SEATS = 64 };

struct vbn_net {
	/* read by workers */
	struct route_table *routes; /* RCU */
	uint64_t generation; /* grows when routes, paths or groups have changed, after that */
	uint64_t sockets_generation; /* the same of sockets */
	uint64_t
		resolved; /* grows when a neighbour's state has changed in a way that those waiting want to know */
	uint64_t seed;
	bool forward;
	uint32_t n_interfaces;
	uint32_t neighbour_mask, path_mask, socket_mask, n_groups;
	uint32_t *neighbour_heads; /* index + 1 */
	struct neighbour *neighbours;
	struct net_group *groups;
	struct net_path *paths;
	struct vbn_udp **sockets; /* by local port */
	struct net_if *interfaces;
	uint8_t (*by_vlan)[4096]; /* [link][vid]: interface's index + 1 */
	/* Of each worker, by numbers of seats, what others hand to it: [to][from]; as soon as both have been there. */
	struct vbn_ring *(*rings)[NET_SEATS];
	uint64_t numbers;                   /* of seats that there are or have been, as bits */
	uint64_t link_seats[VBN_NET_LINKS]; /* of those that have an end there */
	struct vbn_net_conf conf;
	char name[24];

	/* under the lock */
	pthread_mutex_t lock cache_aligned;
	struct neighbour *free_neighbours;
	uint32_t n_neighbours, n_sockets, hand;
	uint16_t next_port;
	struct net_seat *seats[NET_SEATS];

	/* under its own, since a table is made anew for each route */
	pthread_mutex_t routes_lock;
	struct route *route_list;
	uint32_t n_routes;
};

static force_inline const struct net_if *net_interface(const struct vbn_net *net, uint32_t index)
{
	return &net->interfaces[index];
}

#endif
