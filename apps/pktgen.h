/* pktgen.h - the parts of `verbena pktgen`
 *
 *     pktgen.c          options, their checks, what a run comes to
 *     pktgen_frame.c    flows: the headers of each, ranges of addresses and ports
 *     pktgen_loop.c     the loops: frames made and sent, or replayed; stamps of those that come back
 *
 * A frame has a stamp behind its headers: when it was made, by whom. What comes back with the stamp of this run
 * is `returned`, anything else a stranger.
 */
#ifndef PKTGEN_H
#define PKTGEN_H

#include "packet.h"

enum {
	MAX_FLOWS = 65536,
	MOST_HEADERS = 72, /* Ethernet, a tag, IPv6, UDP, rounded up */
	MAX_FRAME = 9216,
};

struct pktgen_options {
	struct packet_options packet;
	const char *dst_mac, *src_mac, *dst_ip, *src_ip, *sport, *dport, *replay;
	int64_t rate, size, last_size, flows, count, vlan, ttl, window;
	bool verify;
};

struct stamp {
	uint32_t run;
	uint16_t worker;
	uint32_t seq;
	uint64_t ns;
} __attribute__((packed));
static_assert(sizeof(struct stamp) == 18,
	"with Ethernet, IPv4 and UDP the 60 bytes of the shortest frame");

/* Headers of one flow, without lengths. */
struct flow {
	uint8_t bytes[MOST_HEADERS];
	uint32_t ip_sum; /* of the IPv4 header without its length */
};

/* What all workers send; never changes while they do. */
struct pattern {
	struct flow *flows;
	uint32_t n_flows;
	uint32_t header_len, ip_at, udp_at;
	bool v6;
	uint32_t run; /* of the stamps */
	uint32_t least;
	struct vbn_port *source; /* of a replay */
	struct vbn_rx_group *source_group;
};

/* A lane's part. */
struct generator {
	struct lane *lane;
	uint64_t sent;  /* staged; read by the monitor */
	uint64_t limit; /* of it */
	uint64_t pace_from_ns, paced;
	double per_ns; /* 0: as fast as it goes */
	uint32_t flow, random;
	bool sends;
};

/* A worker's. */
struct pktgen_worker {
	struct generator *generators; /* of its lanes */
	const struct pattern *pattern;
	const struct pktgen_options *conf;
	uint64_t returned; /* read by the monitor */
	uint64_t sent;     /* of all its generators */
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
};

/* 0 or an exit status. */
int pattern_make(
	struct pattern *pattern, const struct packet_run *run, const struct pktgen_options *conf);
void pattern_free(struct pattern *pattern);

/* Poll functions; the argument is the packet_worker, whose own is a pktgen_worker. */
int pktgen_loop(struct vbn_worker *worker, void *arg);
int pktgen_replay_loop(struct vbn_worker *worker, void *arg);

#endif
