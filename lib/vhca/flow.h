/* flow.h - the transport's state of one connected QP on a wire of packets, and the wire itself
 *
 *   wire_packet.c   routes, packets out and in, the seam to the requester
 *   flow.c          a flow's life, its timers and lists
 *   flow_send.c     RC's requester: segmentation, window, acknowledgements, going back
 *   flow_answer.c   RC's and UC's responder: sequence, duplicates, replies
 *   patience.c      with a receiver that is late
 *   disturb.c       faults on the wire
 *
 * A flow is made when its QP first sends or hears a packet, and goes with the QP's reset or end.
 * All of it is the engine's, with the device's lock held.
 */
#ifndef VHCA_FLOW_H
#define VHCA_FLOW_H

#include "vhca/carrier.h"

#define VHCA_FLOW_REQUESTS 256u /* WQEs between the wire and their completion */
#define VHCA_FLOW_REPLIES  32u
#define VHCA_MAX_WINDOW    256u /* packets sent and not acknowledged */
#define VHCA_READ_PACKETS  64u  /* of one read request: what a socket's buffer can surely hold */

/* A read or atomic that the responder has accepted and not sent the answer of. */
struct vhca_reply {
	uint8_t operation; /* VHCA_READ_REQUEST, or an atomic's */
	bool again;        /* to a request that had come before */
	uint32_t psn, msn;
	uint32_t rkey, length, sent; /* bytes */
	uint64_t va, original;
};

struct vhca_atomic_result {
	bool valid;
	uint32_t psn;
	uint64_t original;
};

enum vhca_flow_timer { VHCA_TIMER_NONE, VHCA_TIMER_ACK, VHCA_TIMER_RNR };

struct vhca_flow {
	struct vhca_qp *qp;
	struct vhca_packet_wire *wire;
	struct vhca_route route;
	uint32_t mtu;
	bool v1;                  /* is said in the packet: the carrier's headers do not say it */
	uint32_t seed_size, seed; /* the ICRC's first part for the last size sent */
	struct vhca_link in_flows, in_due, in_ready, in_timed;

	/* requester */
	struct vhca_request *requests;
	uint32_t head, cursor, tail; /* of requests: accepted, next to send, oldest */
	uint32_t next_psn;           /* of the next request */
	uint32_t sent_psn;           /* next to send */
	uint32_t high_psn;           /* behind all ever sent */
	uint32_t done_psn;           /* all before it are acknowledged, and their data has come */
	uint32_t window;             /* packets */
	uint32_t reads[VHCA_MAX_RD_ATOMIC]; /* PSNs behind reads and atomics under way */
	uint32_t reads_head, reads_tail;
	bool sending;   /* it has its first PSN */
	bool blocked;   /* the QP's requester waits for room */
	bool failing;   /* a request cannot be sent: nothing behind it is */
	bool gone_back; /* an answer implied that one before it was lost, and we have acted */
	uint8_t tries, rnr_tries;
	enum vhca_flow_timer timer;
	bool overdue;      /* once more: what has come by then is looked at first */
	uint64_t deadline; /* clock_cycles() */
	uint64_t armed;    /* the same, wire->last_poll: the timer runs since */
	uint64_t since;    /* ... and nothing has moved since; 0: since `armed` */

	/* responder */
	uint64_t heard; /* wire->last_poll when a packet came */
	uint32_t expected_psn, msn;
	bool answering; /* a request is in hand: replies ahead of it leave even if it fails the QP */
	bool ack_due;
	bool nak_sent;     /* nothing more is said until the expected one comes */
	uint32_t resume;   /* UC: packet of the message in hand that is next */
	bool broken;       /* UC: until the next message begins */
	uint16_t current;  /* VHCA_IS_SEND or VHCA_IS_WRITE: within such a message; 0: between */
	uint32_t received; /* bytes of it */
	uint64_t va;       /* of a write's first byte */
	uint32_t rkey, dma_length;
	uint32_t replies_head, replies_tail, results_next;
	struct vhca_reply replies[VHCA_FLOW_REPLIES];
	struct vhca_atomic_result results[VHCA_MAX_RD_ATOMIC];
};

/* One device's end of the wire. */
struct vhca_packet_wire {
	struct vhca_wire wire;
	struct vhca_carrier *carrier;
	struct vhca_link flows, due, ready, timed;
	uint64_t drops[VHCA_N_DROPS];
	uint64_t last_poll, lively; /* clock_cycles(): when, and until when at every turn */
	uint64_t hz, lively_cycles, quiet_cycles, stopped_cycles;
	uint64_t retransmitted;
	uint64_t starved_at; /* patience.c's: when it last looked, and what it found */
	bool starved;
	bool waited;                      /* the packet that comes next has come before */
	bool draining;                    /* what was held back leaves for the last time */
	struct vhca_route datagram_route; /* of the last one sent */
	/* disturb.c's */
	uint64_t chance;
	struct vhca_held *held, *last_held;
	uint32_t n_held;
	/* the packet that is being written */
	struct {
		uint8_t *bytes;
		uint32_t size; /* BTH to pad */
		uint32_t seed;
		const struct vhca_route *route;
	} out;
};

/* ---- wire_packet.c ---- */

/* A raw frame leaves at once. */
void vhca_wire_frame(struct vhca_packet_wire *wire, const uint8_t *bytes, uint32_t size);

/* ---- flow.c ---- */

/* NULL: there is no memory, or the QP has no peer on this wire. */
struct vhca_flow *vhca_flow_of(struct vhca_packet_wire *wire, struct vhca_qp *qp);
void vhca_flow_start(struct vhca_flow *flow);
void vhca_flow_timer_start(struct vhca_flow *flow, enum vhca_flow_timer timer, uint64_t ns);
void vhca_flow_timer_stop(struct vhca_flow *flow);
/* Timers whose time has come; *next becomes the earliest of the others. */
void vhca_flow_timers(struct vhca_packet_wire *wire, uint64_t now, uint64_t *next);
void vhca_flow_ready(struct vhca_flow *flow);
void vhca_flow_ack_due(struct vhca_flow *flow);
void vhca_flow_ack_said(struct vhca_flow *flow);

/* ---- flow_send.c ---- */

struct vhca_answer vhca_flow_request(struct vhca_flow *flow, const struct vhca_message *message);
/* An acknowledgement, or a read's or atomic's response. */
void vhca_flow_answered(struct vhca_flow *flow, const struct vhca_packet *packet);
/* Sends what may be sent; `in_hand` is the newest request, or NULL. */
void vhca_flow_send(struct vhca_flow *flow, const struct vhca_message *in_hand);
/* Completes what is done, sends what may be sent, and lets the QP's requester go on. */
void vhca_flow_go_on(struct vhca_flow *flow);
void vhca_flow_timeout(struct vhca_flow *flow);

/* Operation, length and headers of packet `k` of a send or write. */
void vhca_packet_of_message(const struct vhca_message *message, uint32_t k, uint32_t n_psn,
	uint32_t mtu, struct vhca_packet *packet);

/* ---- flow_answer.c ---- */

void vhca_flow_arrived(struct vhca_flow *flow, const struct vhca_packet *packet);
/* Replies that wait; then the acknowledgement that is due. */
void vhca_flow_reply(struct vhca_flow *flow);
void vhca_flow_acknowledge(struct vhca_flow *flow);

/* ---- patience.c ---- */

/* A packet has come for a QP that has no receive WQE: whether it waits. */
bool vhca_patience(struct vhca_packet_wire *wire, struct vhca_qp *qp);

/* ---- wire_packet.c ---- */

/* How a QP reaches another, as an address vector says it. */
struct vhca_path {
	const uint8_t *gid; /* the other's */
	uint32_t qpn;       /* the own one */
	uint8_t sgid_index, sl, traffic_class, hop_limit;
};

static inline struct vhca_path vhca_path_of_av(const struct mlx5_wqe_av *av, uint32_t qpn)
{
	return (struct vhca_path){.gid = av->rgid,
		.qpn = qpn,
		.sgid_index = (uint8_t)vhca_av_gid(av),
		.sl = vhca_av_sl(av),
		.traffic_class = av->tclass,
		.hop_limit = av->hop_limit ? av->hop_limit : 1}; /* with 0 no host lets it out */
}

/* False: there is no way on this wire. */
bool vhca_wire_route(const struct vhca_packet_wire *wire, const struct vhca_path *path,
	struct vhca_route *route);

/* Writes the headers of `packet` to a flow's peer; where its payload goes, or NULL: it cannot
 * leave. The packet is gone with vhca_wire_end(). */
uint8_t *vhca_wire_begin(struct vhca_flow *flow, struct vhca_packet *packet);
void vhca_wire_end(struct vhca_packet_wire *wire);

#endif
