/* pktgen.h - the parts of `verbena pktgen`
 *
 *     pktgen.c             options, their checks, what a run comes to
 *     pktgen_range.c       ranges of addresses and ports, mixes of sizes
 *     pktgen_frame.c       protocols and flows: the headers of each
 *     pktgen_loop.c        the loops: frames made and sent, or replayed; stamps of those that come back
 *     pktgen_known.c       frames that a replay has sent, told from others
 *     pktgen_rate.c        what the pace came to
 *     pktgen_neighbour.c   ARP and neighbour discovery: who asks for its addresses is answered, and it may ask
 *
 * A frame has a stamp behind its headers: when it was made, by whom. What comes back with the stamp of this run
 * is `returned`, what asks or tells of neighbours `neighbour`, anything else a stranger.
 */
#ifndef PKTGEN_H
#define PKTGEN_H

#include "packet.h"

enum {
	MAX_FLOWS = 65536,
	MAX_SIZES = 16,
	MOST_HEADERS = 80, /* Ethernet, a tag, IPv6, TCP, rounded up */
	LEAST_FRAME = 60,
	MAX_FRAME = 9216,
	ON_THE_WIRE = 24, /* beside a frame: preamble, FCS, gap */
};

/* Bytes of headers, types of frames, protocols. */
enum { ETHERNET = 14, TAG = 4, ARP = 28, IPV4 = 20, IPV6 = 40, UDP = 8, TCP = 20, ICMP = 8 };
enum { TYPE_IPV4 = 0x0800, TYPE_ARP = 0x0806, TYPE_TAG = 0x8100, TYPE_IPV6 = 0x86dd };
enum { ICMP4 = 1, ICMP6 = 58 };

/* Returns what is behind it. */
static inline uint8_t *put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
	return to + 2;
}

enum protocol {
	PROTOCOL_UDP,
	PROTOCOL_TCP,
	PROTOCOL_TCP_SYN,
	PROTOCOL_ICMP,
	PROTOCOL_ARP,
	PROTOCOL_ETHERNET
};
#define PROTOCOL_WORDS "udp tcp tcp-syn icmp arp ethernet"

struct size_mix {
	struct size_part {
		uint32_t first, last, share;
	} parts[MAX_SIZES];
	int n;
	uint32_t shares; /* of all */
};

struct pktgen_options {
	struct packet_options packet;
	const char *dst_mac, *src_mac, *dst_ip, *src_ip, *sport, *dport, *replay, *size;
	struct rate rate;
	struct size_mix sizes;
	int64_t flows, count, vlan, ttl, window, protocol, seed;
	bool verify, resolve;
};

struct stamp {
	uint32_t run;
	uint16_t worker;
	uint32_t seq;
	uint64_t ns;
} __attribute__((packed));
static_assert(sizeof(struct stamp) == 18,
	"with Ethernet, IPv4 and UDP, or with ARP, the 60 bytes of the shortest frame");

struct address_range {
	uint8_t first[16]; /* network order; IPv4 in the last 4 */
	uint64_t n;
	bool v6;
};

struct port_range {
	uint32_t first, n;
};

struct ends {
	struct address_range src, dst;
	struct port_range sport, dport;
};

/* Headers of one flow, without what differs from frame to frame. The sums are of 16-bit words as they lie in
 * memory, and of the rest. */
struct flow {
	uint8_t bytes[MOST_HEADERS];
	uint64_t ip_sum, l4_sum;
};

/* Who is at the other end of a device, where it is asked for: written by one worker before `known`. */
struct neighbour {
	uint8_t mac[6];
	bool known;
};

/* What all workers send; never changes while they do, but for `neighbours`. */
struct pattern {
	struct flow *flows;
	uint32_t n_flows;
	bool ip, v6, arp;
	uint32_t ip_at, l4_at, header_len;
	/* where in a frame they are; 0: there is none */
	uint32_t length_at, csum_at, seq_at;
	uint32_t csum_lengths; /* how often the length is in that sum */
	uint32_t seq_bytes;
	uint32_t run; /* of the stamps */
	uint32_t least;
	struct ends ends;
	struct neighbour neighbours[MAX_DEVICES];
	struct vbn_port *source; /* of a replay */
	struct vbn_rx_group *source_group;
	struct known *known; /* what it sends */
};

/* A lane's part. */
struct generator {
	struct lane *lane;
	uint64_t sent;              /* staged */
	uint64_t limit;             /* of it */
	uint64_t first_ns, last_ns; /* when the first went, and the last; 0: none has */
	/* the pace, in frames or in bits on the wire */
	uint64_t pace_from_ns, paced; /* pace_from_ns: 0 before the first of them */
	double per_ns;                /* 0: as fast as it goes */
	double each;                  /* of a frame, in the mean */
	bool bits;
	bool sends;
	uint32_t flow, random;
};

/* A worker's. */
struct pktgen_worker {
	struct generator *generators; /* of its lanes */
	struct pattern *pattern;
	const struct pktgen_options *conf;
	uint32_t fixed_size; /* 0: a mix of them */
	/* read by the monitor; `sent` is of all its generators */
	uint64_t returned, sent;
	/* ARP and neighbour discovery */
	uint64_t neighbour_came, neighbour_sent;
	uint64_t asked_ns;
	int n_asked;
	bool waits; /* until it is known who is at the other end */
	/* of a window: taken for lost, and when something came last */
	uint64_t given_up, came_ns;
	uint32_t seq;
	struct histogram times;
	/* of a replay */
	struct vbn_queue *source;
	struct vbn_buf *held[MAX_BURST];
	int n_held, first_held;
	uint64_t first_time, first_ns; /* of the file's first frame, and when it went */
	bool ended;                    /* read by the monitor */
	uint64_t n_read;               /* of the file */
	char trouble[256];             /* why it ended before the file; "" */
	struct drops not_sent;         /* of the file's frames */
};

/* ---- pktgen_range.c: 0 or an exit status ---- */

int ends_take(const struct pktgen_options *conf, struct ends *ends);
/* The i-th of them. */
void address_of(const struct address_range *range, uint32_t i, uint8_t address[16]);
bool address_is_of(const struct address_range *range, const uint8_t address[16]);

/* "64", "64-1500", "imix", or several with their shares, "60:7,590:4". */
int sizes_take(const char *text, struct size_mix *mix);
uint32_t sizes_least(const struct size_mix *mix);
uint32_t sizes_most(const struct size_mix *mix);
double sizes_mean(const struct size_mix *mix);

/* ---- pktgen_frame.c ---- */

/* 0 or an exit status. */
int pattern_make(struct pattern *pattern, const struct pktgen_options *conf);
void pattern_free(struct pattern *pattern);

/* ---- pktgen_neighbour.c: on the worker's thread ---- */

/* A frame that is not one of the run's: true where it was a question for an address that this end has, which
 * is answered, or an answer to one of its own. */
bool neighbour_take(struct packet_worker *worker, struct lane *lane, const struct vbn_buf *buf);
/* Whether it is known to whom frames go; asks until it is. */
bool neighbours_found(struct packet_worker *worker);
/* By the monitor or the main thread. */
bool neighbours_known(const struct packet_run *run, const struct pattern *pattern);

/* ---- pktgen_known.c ---- */

struct known *known_make(void); /* NULL: no memory */
void known_free(struct known *known);
/* By the one worker that sends, before it does. 0 or -ENOMEM. */
int known_add(struct known *known, const struct vbn_buf *buf);
/* By any: whether this one is to come back still, which it then is not any more. */
bool known_take(struct known *known, const struct vbn_buf *buf);

/* ---- pktgen_rate.c: once all is over ---- */

/* When the first frame was sent, and when the last one's time was over; 0: none was. */
void pktgen_span(const struct packet_run *run, uint64_t *first, uint64_t *last);
/* Against --rate; null and nothing where that was not given. */
json_t *rate_json(const struct packet_run *run);
void rate_print(const struct packet_run *run);

/* ---- pktgen_loop.c ---- */

/* Poll functions; the argument is the packet_worker, whose own is a pktgen_worker. */
int pktgen_loop(struct vbn_worker *worker, void *arg);
int pktgen_replay_loop(struct vbn_worker *worker, void *arg);

#endif
