/* net.h - the stack of one's own: what its parts know of each other
 *
 * Lives here: what is on top of packet queues. May come in: base, mem, run, port. Nothing below knows
 * it.
 *
 *   net        shared by workers: interfaces, and tables that they read without a lock. Who changes one
 *              holds net->lock. A worker that has learned something never waits for it: learn.c.
 *   seat       one worker's part of a net: its counters, its sockets, what waits, pieces of datagrams, and
 *              destinations that it has looked up. Owner: the worker.
 *   end        a seat's packet queue on one link, and what is staged for it.
 *
 * A received buf goes up through ether.c, ip4.c or ip6.c, fragment.c, and udp.c or icmp.c, but for the few kinds
 * that most are of: those quick.c deals with in one pass. Each function that takes a buf ends its life in exactly one way and counts it once; that is what
 * vbn_net_balance() adds up. While it goes up, buf->data is where the current layer begins and the headers
 * below are still in front.
 */
#ifndef VBN_NET_NET_H
#define VBN_NET_NET_H

#include "base/base.h"
#include "mem/mem.h"
#include "net/wire.h"
#include "run/rcu.h"

#include <pthread.h>

#include <verbena/net.h>
#include <verbena/packet.h>
#include <verbena/timer.h>
#include <verbena/udp.h>

/* ---- counters: of a seat ---- */

#define NET_COUNTERS(X)                                                                         \
	X(rx_frames, "frames received")                                                         \
	X(taken_over, "frames that another worker has handed to this one")                      \
	/* fates of a frame */                                                                  \
	X(delivered, "frames whose datagram went to a socket")                                  \
	X(answered, "frames that were turned into their answer, or caused it")                  \
	X(consumed, "frames of ARP, ND, IGMP, MLD and ICMP that only said something")           \
	X(forwarded, "packets passed on to where they are to go")                               \
	X(merged, "fragments that became part of a datagram, all but its first")                \
	X(handed_over, "frames handed to the worker that has their socket, or their fragments") \
	X(drop_short, "frames shorter than their headers say")                                  \
	X(drop_chained, "frames that came in several segments")                                 \
	X(drop_other_host, "frames to another MAC")                                             \
	X(drop_vlan, "frames of a VLAN that no interface has")                                  \
	X(drop_ethertype, "frames of protocols that the stack has not")                         \
	X(drop_arp, "ARP packets that are malformed or not for an interface's addresses")       \
	X(drop_nd, "neighbour discovery that is malformed or from outside of the link")         \
	X(drop_version, "IP packets whose version or header length is wrong")                   \
	X(drop_ip_sum, "IPv4 headers with a wrong checksum")                                    \
	X(drop_l4_sum, "UDP, ICMP or IGMP with a wrong checksum")                               \
	X(drop_source, "packets from an address that nobody can have")                          \
	X(drop_options, "IPv4 options or IPv6 extension headers that are malformed")            \
	X(drop_source_route, "source-routed packets")                                           \
	X(drop_not_local, "packets to an address that is not ours, where nothing is forwarded") \
	X(drop_no_route, "packets to be forwarded where there is no route")                     \
	X(drop_ttl, "packets to be forwarded whose hops were used up")                          \
	X(drop_too_big, "packets larger than the next MTU that may not be fragmented")          \
	X(drop_group, "packets to groups that nobody has joined")                               \
	X(drop_protocol, "packets of a transport that the stack has not")                       \
	X(drop_udp, "UDP datagrams whose length is wrong")                                      \
	X(drop_no_port, "UDP datagrams for which there is no socket")                           \
	X(drop_udp_full, "UDP datagrams for a socket that has no room to wait")                 \
	X(drop_icmp, "ICMP messages that are malformed or unknown")                             \
	X(drop_icmp_unverified, "ICMP errors about nothing that was sent")                      \
	X(drop_igmp, "IGMP or MLD messages that are malformed")                                 \
	X(drop_fragment, "fragments that are malformed")                                        \
	X(drop_fragment_overlap, "fragments of a datagram in which some overlap")               \
	X(drop_fragment_duplicate, "fragments that were there already")                         \
	X(drop_fragment_time, "fragments of a datagram that did not become whole in time")      \
	X(drop_fragment_room, "fragments given up for newer ones, or of too many pieces")       \
	X(drop_no_buf, "frames that no answer or copy could be made of: the pool is empty")     \
	X(drop_handed_full, "frames for another worker that had no room for them")              \
	X(drop_closed, "frames held by what was closed")                                        \
	/* sending */                                                                           \
	X(tx_packets, "packets that were to be sent, with fragments one by one")                \
	X(tx_frames, "frames that the queue has taken")                                         \
	X(drop_tx_no_neighbour, "packets whose next hop did not answer")                        \
	X(drop_tx_neighbours_full, "packets whose next hop found no room among the neighbours") \
	X(drop_tx_waiting, "packets that waited for a neighbour and made room for others")      \
	X(drop_tx_full, "packets that the queue had no room for")                               \
	X(drop_tx_no_buf, "packets that found no buf for a header or fragment")                 \
	X(drop_tx_no_end, "packets to a link on which the worker has no queue")                 \
	X(drop_tx_no_route, "answers for which there is no route or source address")            \
	X(drop_tx_closed, "packets that waited when the end was closed")                        \
	/* what happened beside */                                                              \
	X(udp_received, "datagrams that went to sockets")                                       \
	X(udp_sent, "datagrams sent")                                                           \
	X(udp_copied, "copies of datagrams to several sockets of a group")                      \
	X(udp_copy_no_buf, "copies for a group's socket that could not be made")                \
	X(copies_handed_over, "such copies handed to the workers that have those sockets")      \
	X(copies_handed_full, "such copies for a worker that had no room for them")             \
	X(reassembled, "datagrams put together")                                                \
	X(fragmented, "packets sent in fragments")                                              \
	X(fragments_sent, "fragments made")                                                     \
	X(echo_answered, "echo requests answered")                                              \
	X(icmp_sent, "ICMP errors sent")                                                        \
	X(icmp_limited, "ICMP errors not sent: too many in a second")                           \
	X(icmp_no_buf, "ICMP errors not sent: no buf")                                          \
	X(icmp_received, "ICMP errors that were about something that was sent")                 \
	X(path_mtu_lowered, "paths whose MTU turned out smaller")                               \
	X(arp_requests_sent, "ARP requests and announcements sent")                             \
	X(arp_replies_sent, "ARP replies sent")                                                 \
	X(solicitations_sent, "neighbour solicitations sent")                                   \
	X(advertisements_sent, "neighbour advertisements sent")                                 \
	X(neighbours_made, "neighbours that became known")                                      \
	X(neighbours_changed, "neighbours whose MAC changed")                                   \
	X(neighbours_failed, "neighbours that did not answer")                                  \
	X(neighbours_evicted, "neighbours forgotten to make room")                              \
	X(learned_later, "things learned that had to wait for another worker")                  \
	X(learned_in_vain, "things learned and forgotten, since too many had to wait")          \
	X(address_conflicts, "times that somebody else claimed an address of ours")             \
	X(reports_sent, "IGMP and MLD reports sent")

#define NET_COUNTER(name, help) C_##name,
enum net_counter { NET_COUNTERS(NET_COUNTER) C_N };
#undef NET_COUNTER

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

/* ---- seats and ends ---- */

/* Where packets to an address go, as this worker has looked it up. */
struct dst {
	/* what each packet there needs */
	uint64_t key4; /* 0: of IPv6 */
	uint64_t generation;
	const uint64_t *word;    /* a neighbour's, or `fixed`; never NULL */
	struct vbn_net_end *end; /* the worker's there; NULL: none */
	uint64_t source; /* the interface's MAC, and the ethertype, as they are in a frame */
	uint32_t mtu;
	uint32_t scope;  /* interface's index + 1, as asked for */
	uint16_t expect; /* the word's flags, where it may be used as it is */
	uint8_t kind;    /* enum dst_kind */
	uint8_t ease;    /* enum dst_ease */
	uint8_t by;      /* DST_IN: by which interface alone, index + 1; 0: any */
	bool locked;     /* the path MTU is below what is believed: no DF */
	/* and what few need */
	struct vbn_ip ip cache_aligned;
	struct vbn_ip next_hop;
	const struct net_if *iface;
	struct neighbour *neighbour;       /* NULL: fixed, or not yet looked up */
	const struct net_address *address; /* DST_LOCAL */
	uint64_t fixed; /* of a group or broadcast: the word, which is not a neighbour's */
} cache_aligned;
static_assert(sizeof(struct dst) == 2 * CACHE_LINE, "IPv4 needs one line of it");
enum dst_kind { DST_NONE, DST_UNICAST, DST_LOCAL, DST_BROADCAST, DST_GROUP, DST_FOREIGN_GROUP };

/* What may be done without looking any closer. */
enum dst_ease {
	DST_OUT = 1 << 0, /* datagrams of ours: one neighbour, an untagged link, DF as asked for */
	DST_THROUGH = 1 << 1, /* the same of what is forwarded */
	DST_IN = 1 << 2,      /* it is ours */
};

enum { SEAT_DSTS = 256, SEAT_PORTS = 64, END_OUT = 256, BURST = 64 };

struct vbn_net_end {
	struct net_seat *seat;
	struct vbn_queue *queue;
	int (*output)(struct vbn_buf **bufs, int n, void *arg);
	void *arg;
	struct vbn_pool *pool;
	/* How a frame begins that is untagged, ours alone, and from one station: the first 8 bytes under the mask.
	 * Where the link has no untagged interface, none does. */
	uint64_t first, first_mask;
	uint32_t link;
	uint32_t untagged; /* the interface's index + 1 */
	uint32_t n_out;
	bool offload;
	struct vbn_buf *out[END_OUT];
};

struct waiting {
	struct vbn_buf *buf;
	struct neighbour *neighbour; /* NULL: it could not be asked for yet */
	struct vbn_ip next_hop;
	const struct net_if *iface;
	uint16_t life; /* the neighbour's */
	bool ours;     /* not forwarded: no ICMP error is due */
};

/* To whom datagrams to a port go, where that is easily said: one socket, of this worker, whoever has it beside
 * among the others. udp.c fills it in. */
struct udp_place {
	uint64_t key;        /* the port, and behind it the sockets' generation */
	struct vbn_udp *udp; /* NULL: it is not */
	/* Of IPv4: what the addresses and ports of a datagram must be, as they are in its headers. */
	uint64_t ends, ends_mask;
	uint32_t ports, ports_mask;
	bool any; /* of IPv6: all */
};

/* One datagram in pieces. */
struct datagram {
	struct vbn_ip from, to;
	uint32_t id, interface;
	uint8_t protocol;
	bool used, dead; /* dead: its pieces are gone, and those that come go, too */
	uint16_t n_pieces;
	uint32_t bytes, total; /* here; of all, once the last piece is here */
	uint64_t until;        /* ms */
	struct vbn_buf *first; /* by offset; linked by next, place and length in cookie */
};

/* What a worker has learned and tells the others: learn.c. */
enum news_kind {
	NEWS_MAC,    /* of a neighbour, as `value` says: enum heard */
	NEWS_PATH,   /* its MTU is but `value` */
	NEWS_CLAIM,  /* somebody else says that he has this address of ours */
	NEWS_QUERY,  /* a router asks for members of the group, or of all, within `value` ms */
	NEWS_REPORT, /* somebody else has told it of the group */
};
struct news {
	enum news_kind kind;
	uint32_t value;
	const struct net_if *iface;
	struct vbn_ip ip;
	uint8_t mac[6];
	bool v4; /* NEWS_QUERY: of which version */
};
enum { SEAT_NEWS = 64 };

struct net_seat {
	struct vbn_net *net;
	struct vbn_worker *worker;
	uint64_t now; /* ms, as of the last tick */
	struct vbn_net_end *ends[VBN_NET_LINKS];
	uint32_t links; /* those that it has an end on, as bits */
	uint32_t n_waiting;
	uint32_t n_news;   /* things learned that wait for the lock */
	bool looking;      /* what waits is just gone through */
	bool unasked;      /* some of it waits for the lock */
	uint64_t resolved; /* as it was when it was last looked at */
	struct waiting *waiting;
	struct datagram *datagrams;
	uint32_t n_held; /* bufs in datagrams */
	uint32_t n_ends, number;
	uint16_t id4; /* of the next IPv4 packet */
	uint32_t id6; /* of the next IPv6 packet in fragments */
	uint64_t random;
	uint32_t icmp_tokens;  /* thousandths */
	uint64_t icmp_at;      /* ms: when they were last added */
	struct vbn_udp *mine;  /* its sockets */
	struct vbn_udp *batch; /* datagrams that its callback has not been called with */
	int n_batch;
	struct vbn_timer timer;
	uint64_t counters[C_N];
	struct counter_set set;
	struct vbn_buf *batch_bufs[BURST];
	struct news news[SEAT_NEWS];
	struct udp_place ports[SEAT_PORTS];
	struct dst dsts[SEAT_DSTS];
};

#define seat_count(seat, name)      count_add(&(seat)->counters[C_##name], 1)
#define seat_count_n(seat, name, n) count_add(&(seat)->counters[C_##name], (uint64_t)(n))

/* Ends a buf or chain. */
static inline void buf_drop(struct vbn_buf *buf)
{
	vbn_buf_free(&buf, 1);
}

#define seat_drop(seat, buf, name)      \
	do {                            \
		seat_count(seat, name); \
		buf_drop(buf);          \
	} while (0)

static inline uint32_t random32(struct net_seat *seat)
{
	seat->random = mix(seat->random + seat->net->seed + clock_cycles());
	return (uint32_t)(seat->random >> 16);
}

/* ---- what came with a packet, on its way up ---- */

struct rx {
	struct vbn_net_end *end;
	struct net_seat *seat;
	const struct net_if *iface;
	bool group;              /* it was to many MACs */
	bool handed;             /* by another worker: it goes no further */
	const uint8_t *mac_from; /* in front of the buf's data */
	struct vbn_ip from, to;
	struct dst *local; /* of `to` */
	uint8_t ttl;
};

/* quick.c: a burst. What is odd goes the whole way. */
void vbn__quick_input(struct vbn_net_end *end, struct vbn_buf **bufs, int n);

/* ether.c */
void vbn__ether_input(struct rx *rx, struct vbn_buf *buf);
/* Puts the Ethernet header in front of an IP packet and stages it. Counts nothing but its drops. */
void vbn__ether_output(struct net_seat *seat, struct vbn_buf *buf, const struct net_if *iface,
	uint64_t word, uint16_t type);
/* A buf from the end's pool with room in front for what is pushed; NULL: none. */
struct vbn_buf *vbn__net_buf(struct net_seat *seat, const struct net_if *iface);
/* Hands what is staged to the queue. */
void vbn__end_flush(struct vbn_net_end *end);

/* dst.c */
struct dst *vbn__dst_miss(struct net_seat *seat, const struct vbn_ip *ip, uint32_t scope);

/* The place of an address, and for IPv4 the whole of what it is looked up by: never 0. */
static force_inline uint64_t dst_key4(uint32_t address, uint32_t scope)
{
	return (uint64_t)address << 32 | 1u << 31 | scope;
}

static force_inline struct dst *dst_place4(struct net_seat *seat, uint64_t key4)
{
	static_assert(SEAT_DSTS == 256, "8 bits of the hash");
	return &seat->dsts[key4 * 0x9e3779b97f4a7c15ull >> 56];
}

static force_inline struct dst *dst_place6(
	struct net_seat *seat, const struct vbn_ip *ip, uint32_t scope)
{
	return &seat->dsts[(ip_low(ip) ^ ip_high(ip) ^ scope) * 0x9e3779b97f4a7c15ull >> 56];
}

struct dst *vbn__dst_miss4(struct net_seat *seat, uint32_t address, uint32_t scope);

/* The address is in network order. */
static force_inline struct dst *dst_find4(struct net_seat *seat, uint32_t address, uint32_t scope)
{
	uint64_t key4 = dst_key4(address, scope);
	struct dst *dst = dst_place4(seat, key4);

	if (likely(dst->key4 == key4 && dst->generation == load_once(&seat->net->generation)))
		return dst;
	return vbn__dst_miss4(seat, address, scope);
}

static force_inline bool dst_is6(
	const struct net_seat *seat, const struct dst *dst, const struct vbn_ip *ip, uint32_t scope)
{
	return ip_equal(&dst->ip, ip) && dst->scope == scope &&
		dst->generation == load_once(&seat->net->generation);
}

static force_inline struct dst *dst_find6(
	struct net_seat *seat, const struct vbn_ip *ip, uint32_t scope)
{
	struct dst *dst = dst_place6(seat, ip, scope);

	return likely(dst_is6(seat, dst, ip, scope)) ? dst : vbn__dst_miss(seat, ip, scope);
}

static force_inline struct dst *dst_find(
	struct net_seat *seat, const struct vbn_ip *ip, uint32_t scope)
{
	return ip_is4(ip) ? dst_find4(seat, load4(ip->bytes + 12), scope)
			  : dst_find6(seat, ip, scope);
}

/* Sends an IP packet (buf->data is its header, it fits the MTU) to where dst says. */
void vbn__dst_slow(struct net_seat *seat, struct dst *dst, struct vbn_buf *buf, bool ours);

/* The word of a destination that needs nothing, or 0. */
static force_inline uint64_t dst_word(const struct dst *dst)
{
	union mac_word word = {.word = load_acquire(dst->word)};

	return likely(word.flags == dst->expect) ? word.word : 0;
}

static force_inline void dst_send(
	struct net_seat *seat, struct dst *dst, struct vbn_buf *buf, bool ours)
{
	uint64_t word = dst_word(dst);

	seat_count(seat, tx_packets);
	if (likely(word))
		vbn__ether_output(seat, buf, dst->iface, word,
			buf->data[0] >> 4 == 4 ? ETHERTYPE_V4 : ETHERTYPE_V6);
	else
		vbn__dst_slow(seat, dst, buf, ours);
}

/* The end's Ethernet header in front of an IP packet, and it is staged: there is room for both. */
static force_inline void dst_stage(
	const struct dst *dst, struct vbn_buf *buf, uint8_t *at, uint64_t word)
{
	struct vbn_net_end *end = dst->end;

	memcpy(at, &word, 8); /* two bytes more than the MAC: the next store has them */
	memcpy(at + 6, &dst->source, 8);
	end->out[end->n_out++] = buf;
}

/* One that goes to a MAC that is known, whoever has it: for one packet, on the stack. */
void vbn__dst_fixed(
	struct dst *dst, const struct net_if *iface, const struct vbn_ip *ip, const uint8_t mac[6]);

/* The address to send from; NULL: none. */
const struct vbn_ip *vbn__source_for(struct net_seat *seat, struct dst *dst);

/* neighbour.c */
int vbn__neighbours_create(struct vbn_net *net);
void vbn__neighbours_destroy(struct vbn_net *net);
struct neighbour *vbn__neighbour_find(
	const struct vbn_net *net, const struct vbn_ip *ip, uint32_t interface);
/* As found or made, so that it can be waited for; NULL: there is no room, or *later: somebody else holds the
 * lock. Asks for it. */
struct neighbour *vbn__neighbour_want(
	struct net_seat *seat, const struct vbn_ip *ip, const struct net_if *iface, bool *later);
/* It is used though it is stale; where somebody else holds the lock, the next packet says so. */
void vbn__neighbour_used(struct net_seat *seat, struct neighbour *neighbour);
/* Somebody's MAC was heard of. */
enum heard {
	HEARD_ASKING = 1 << 0,   /* it asked us: worth being made */
	HEARD_ANSWER = 1 << 1,   /* it answered us (solicited): it is reachable */
	HEARD_OVERRIDE = 1 << 2, /* a MAC that differs holds */
	HEARD_ROUTER = 1 << 3,
	HEARD_HOST = 1 << 4,
};
void vbn__neighbour_heard(struct net_seat *seat, const struct vbn_ip *ip,
	const struct net_if *iface, const uint8_t mac[6], unsigned int heard);
void vbn__neighbour_learn(struct net_seat *seat, const struct news *news);
/* Looks after an interface's neighbours: probes, ageing. */
void vbn__neighbours_look(struct net_seat *seat, struct net_if *iface);
/* What waits and can go, or has to. */
void vbn__waiting_look(struct net_seat *seat);
void vbn__waiting_drop(struct net_seat *seat);

/* address.c: ours, and who else claims them */
void vbn__addresses_look(struct net_seat *seat, struct net_if *iface);
void vbn__address_conflict(
	struct net_seat *seat, const struct net_if *iface, const struct net_address *address);
/* True: it is to be announced, in defence. */
bool vbn__address_learn(struct net_seat *seat, const struct news *news);
void vbn__address_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe);

/* learn.c: at once, if nobody holds the lock; else in one of the next iterations. Each room's part of it
 * (vbn__…_learn()) is called with the lock held, and sends nothing. */
void vbn__learn(struct net_seat *seat, const struct news *news);
void vbn__learn_rest(struct net_seat *seat);

/* False: somebody else has it. */
static force_inline bool net_try(struct vbn_net *net)
{
	return !pthread_mutex_trylock(&net->lock);
}

/* hand.c: frames that are another worker's, whose seat has this number */
enum handed {
	HANDED_DATAGRAM, /* of UDP: data is its payload, the headers are in front */
	HANDED_PACKET,   /* of IP: data is its header */
	HANDED_KINDS,
};
/* The interface and group are those of rx. False: there is no room, and the buf is still the caller's. */
bool vbn__hand_over(const struct rx *rx, uint32_t number, struct vbn_buf *buf, enum handed kind);
/* Takes what others have handed to the seat; returns how much. */
int vbn__hand_take(struct net_seat *seat);
/* Rings from and to all others there are or have been; under the lock. */
int vbn__hand_open(struct vbn_net *net, uint32_t number);
/* What is still there goes. */
void vbn__hand_drop(struct net_seat *seat);
void vbn__hand_destroy(struct vbn_net *net);

/* Whether there are others at all. */
static force_inline uint64_t hand_others(const struct net_seat *seat)
{
	return load_acquire(&seat->net->numbers) & ~(1ull << seat->number);
}

/* arp.c, nd.c */
void vbn__arp_input(struct rx *rx, struct vbn_buf *buf);
void vbn__arp_request(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip,
	const uint8_t mac[6]);
void vbn__arp_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe);
void vbn__nd_input(struct rx *rx, struct vbn_buf *buf);
void vbn__nd_solicit(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip,
	const uint8_t mac[6]);
void vbn__nd_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe);

/* One hop less, and the checksum with it (RFC 1141, in which what would become 0xffff is 0). */
static force_inline void ip4_hop(struct wire_ip4 *ip)
{
	uint32_t sum = (uint32_t)load2(&ip->sum) + htobe16(0x0100);
	uint16_t field = (uint16_t)(sum + (sum >= 0xffff));

	memcpy(&ip->sum, &field, 2);
	ip->ttl--;
}

/* ip4.c, ip6.c: buf->data is the IP header */
void vbn__ip4_input(struct rx *rx, struct vbn_buf *buf);
void vbn__ip6_input(struct rx *rx, struct vbn_buf *buf);
/* A datagram that is whole: buf->data is behind the IP header, l3_len says how far. */
void vbn__l4_input(struct rx *rx, struct vbn_buf *buf, uint8_t protocol);

/* ip_out.c: packets of our own. `buf` is the transport's header and payload, with its checksum unless it is
 * to be left to the queue. */
struct ip_out {
	struct dst *dst;
	const struct vbn_ip *from, *to;
	uint8_t protocol, ttl, traffic_class;
	bool dont_fragment; /* never in fragments */
	bool router_alert;
	uint16_t offload; /* VBN_PACKET_TX_L4_CSUM, where it is left to the queue */
};
/* Takes the buf, whatever comes of it. */
void vbn__ip_send(struct net_seat *seat, const struct ip_out *out, struct vbn_buf *buf);
/* In front of buf's data: room for n bytes, by another segment where there is none. NULL: it could not be
 * had, and the buf is gone, counted. */
struct vbn_buf *vbn__push_segment(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf, uint32_t n);

static force_inline struct vbn_buf *push(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf, uint32_t n)
{
	uint8_t *data = buf->data - n;

	if (unlikely(data < vbn_buf_room(buf)))
		return vbn__push_segment(seat, iface, buf, n);
	buf->data = data;
	buf->len += n;
	return buf;
}
/* A packet to be forwarded whose length is above the MTU: into fragments. */
void vbn__ip4_refragment(struct net_seat *seat, struct dst *dst, struct vbn_buf *buf);
uint64_t vbn__sum_chain(uint64_t sum, const struct vbn_buf *buf);

static force_inline uint64_t sum_ips(const struct vbn_ip *from, const struct vbn_ip *to)
{
	uint64_t sum = (uint64_t)load4(from->bytes + 12) + load4(to->bytes + 12);

	if (ip_is4(from))
		return sum;
	sum += (uint64_t)load4(from->bytes) + load4(from->bytes + 4) + load4(from->bytes + 8);
	return sum + load4(to->bytes) + load4(to->bytes + 4) + load4(to->bytes + 8);
}

/* fragment.c: a piece of buf->len bytes at `offset`; whole datagrams go to vbn__l4_input(). */
struct piece {
	uint32_t id, offset;
	uint8_t protocol;
	bool more;
};
void vbn__fragment_input(struct rx *rx, struct vbn_buf *buf, const struct piece *piece);
void vbn__fragments_look(struct net_seat *seat);
void vbn__fragments_drop(struct net_seat *seat);

/* icmp.c: errors of both versions about the packet whose header is at buf->data; buf stays the caller's. */
enum icmp_error {
	ERROR_NO_ROUTE,
	ERROR_NO_HOST,
	ERROR_NO_PORT,
	ERROR_NO_PROTOCOL,
	ERROR_TIME,
	ERROR_REASSEMBLY,
	ERROR_TOO_BIG,
	ERROR_SOURCE_ROUTE,
	ERROR_PARAMETER,
	ERROR_OPTION, /* IPv6: one that is not known */
};
void vbn__icmp_error(struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf,
	bool group, enum icmp_error error, uint32_t info);
void vbn__icmp4_input(struct rx *rx, struct vbn_buf *buf);
void vbn__icmp6_input(struct rx *rx, struct vbn_buf *buf);

/* path.c */
int vbn__paths_create(struct vbn_net *net);
uint32_t vbn__path_mtu(const struct vbn_net *net, uint64_t now, const struct vbn_ip *ip,
	uint32_t mtu, bool *locked);
void vbn__path_learn(struct net_seat *seat, const struct news *news);

/* group.c */
int vbn__multicast_create(struct vbn_net *net);
bool vbn__multicast_has(const struct vbn_net *net, const struct vbn_ip *group, uint32_t interface);
int vbn__multicast_join(
	struct net_seat *seat, const struct vbn_ip *group, const struct net_if *iface);
void vbn__multicast_leave(
	struct net_seat *seat, const struct vbn_ip *group, const struct net_if *iface);
void vbn__multicast_look(struct net_seat *seat);
void vbn__multicast_learn(struct net_seat *seat, const struct news *news);
void vbn__igmp_input(struct rx *rx, struct vbn_buf *buf);
void vbn__mld_input(struct rx *rx, struct vbn_buf *buf);

/* udp.c: buf->data is UDP's header */
void vbn__udp_input(struct rx *rx, struct vbn_buf *buf);
/* One that another worker has handed over: of rx, all but `seat` and `iface` is read from its headers. */
void vbn__udp_handed(struct rx *rx, struct vbn_buf *buf);
/* The datagrams that are gathered for a socket go there. */
void vbn__udp_batch(struct net_seat *seat);
/* An ICMP error about a datagram of ours; false: there is no such socket. */
bool vbn__udp_failed(struct net_seat *seat, const struct vbn_ip *local, uint16_t local_port,
	const struct vbn_ip *remote, uint16_t remote_port, int error);
void vbn__udp_close_all(struct net_seat *seat);

int vbn__sockets_create(struct vbn_net *net);

#endif
