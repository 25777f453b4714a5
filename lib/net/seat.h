/* seat.h - a worker's part of a net, and what its files do with a packet
 *
 * A received buf goes up through ether.c, ip4.c or ip6.c, fragment.c, and udp.c or icmp.c, but for the few kinds
 * that most are of: those quick.c deals with in one pass. Each function that takes a buf ends its life in exactly one
 * way and counts it once. While it goes up, buf->data is where the current layer begins and the headers below are
 * still in front.
 */
#ifndef VBN_NET_SEAT_H
#define VBN_NET_SEAT_H

#include "mem/mem.h"
#include "net/counters.h"
#include "net/net.h"

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
