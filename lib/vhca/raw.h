/* raw.h - raw Ethernet: frames, the queues that receive them, and the seam to steering
 *
 * Lives here: receive work queues, indirection tables, TIRs (where a steering rule sends a frame:
 * one queue, or a table that a hash chooses from), and what is known of a frame. May touch it: the
 * device side. A raw QP's send queue is a struct vhca_qp, whose WQEs raw_send.c executes.
 *
 *   raw.c          work queues, tables and TIRs: create, states, destroy
 *   raw_frame.c    takes a frame apart, sums, hashes
 *   raw_send.c     Ethernet segment, multi-packet WQEs, checksum and VLAN on their way out
 *   raw_receive.c  a frame into a receive WQE or its strides, and its CQE
 *   steer.c        which TIRs a frame goes to: the steering's, by its rules
 *
 * A frame that a raw send queue sends leaves by the wire: TAP and packet socket carry it. The wires
 * loopback and udp carry none, so there the ports of the process stand on one switch that floods:
 * each other port gets it; a port that is alone is plugged into itself, and gets its own.
 *
 * Everything in here holds the device's lock.
 */
#ifndef VHCA_RAW_H
#define VHCA_RAW_H

#include "vhca/device.h"

#define VHCA_MAX_FRAME   9018u /* from the MAC on, one tag included, without the FCS */
#define VHCA_MIN_FRAME   14u
#define VHCA_RSS_KEY     40u
#define VHCA_MAX_RQT     13 /* log2 of a table's size */
#define VHCA_MAX_STEERED 16u
#define VHCA_MAX_TAGS    2u

/* ---- frames ---- */

/* The values of a CQE. */
enum vhca_l3 { VHCA_L3_NONE, VHCA_L3_IPV6, VHCA_L3_IPV4 };
enum vhca_l4 { VHCA_L4_NONE, VHCA_L4_TCP, VHCA_L4_UDP, VHCA_L4_TCP_EMPTY_ACK, VHCA_L4_TCP_ACK };

/* A frame and what vhca_frame_parse() has found. All offsets lie within its size. */
struct vhca_frame {
	const uint8_t *bytes; /* a copy that nobody else writes */
	uint32_t size;
	uint16_t type;   /* EtherType behind the tags, host order */
	uint16_t n_tags; /* 802.1Q and 802.1ad, at most VHCA_MAX_TAGS */
	uint16_t tag[VHCA_MAX_TAGS], tag_type[VHCA_MAX_TAGS]; /* TCI and TPID, host order */
	uint16_t l3_at;                                       /* behind the tags */
	uint16_t l4_at;   /* 0: there is none, or it is a later fragment */
	uint16_t l4_end;  /* behind the IP packet: what follows is padding */
	uint16_t data_at; /* behind the L4 header; 0: none */
	uint8_t l3, l4;   /* enum vhca_l3, vhca_l4 */
	uint8_t protocol; /* IP's, behind IPv6's extension headers; only where l3 is one */
	uint8_t tos, ttl; /* of IPv4 or IPv6 */
	uint8_t tcp_flags;
	bool fragment; /* the first one too */
	bool options;  /* IPv4 options or IPv6 extension headers */
	bool multicast, broadcast;
	uint16_t source_port, dest_port; /* host order; 0 where l4 is none */
	/* by vhca_frame_sums(), which a receive needs and steering does not */
	bool l3_ok, l4_ok;
	uint16_t sum; /* one's complement sum of all behind the tags, as bytes lie: not inverted */
};

/* Any bytes: what is cut short or nonsense is a frame without L3 or L4. */
void vhca_frame_parse(struct vhca_frame *frame, const uint8_t *bytes, uint32_t size);
void vhca_frame_sums(struct vhca_frame *frame);

/* ---- receive work queues ---- */

enum vhca_wq_state { VHCA_WQ_RESET, VHCA_WQ_READY, VHCA_WQ_ERROR };

struct vhca_wq_attr {
	struct vhca_pd *pd; /* NULL: any of the context's, as a DevX queue's lkeys may be */
	struct vhca_cq *cq;
	uint64_t buf, db;     /* the program's addresses; the record is at db, 4 bytes */
	uint32_t n_wqe;       /* a power of two */
	uint32_t log2_stride; /* bytes of a WQE */
	uint32_t uidx;
	uint64_t user_handle;
	bool strip_vlan;
	bool signature; /* a segment in front of the data segments */
	/* striding: a WQE is a buffer of strides, which frames consume one after the other */
	bool striding;
	uint8_t log2_stride_bytes, log2_n_strides;
	bool two_byte_shift; /* frames begin two bytes into their stride */
	bool linked;         /* a next segment of 16 bytes in front: what verbs make of striding */
	bool of_qp;          /* a raw QP's own: in no handle table */
};

struct vhca_wq {
	struct vhca_object object;
	uint32_t number;
	uint8_t state;
	bool striding;
	uint8_t *buf;
	const __be32 *db;
	struct vhca_cq *cq;
	struct vhca_pd *pd;
	uint32_t mask;        /* WQEs - 1 */
	uint32_t log2_stride; /* bytes of a WQE */
	uint32_t first;       /* data segment: those in front are signature and link */
	uint32_t uidx;
	uint16_t ci, pi;
	uint32_t strides_used;                             /* of the WQE at `ci` */
	uint64_t received, bytes, out_of_buffer, too_long; /* frames */
	struct vhca_link in_errored;                       /* in tables->wqs_errored */
	struct vhca_counted async;
	struct vhca_wq_attr attr;
	uint8_t reports[VHCA_N_RULES];
};

int vhca_wq_create(
	struct vhca_context *context, const struct vhca_wq_attr *attr, struct vhca_wq **wq);
/* EINVAL: there is no such way. To RESET: it begins anew with WQE 0. */
int vhca_wq_modify(struct vhca_wq *wq, enum vhca_wq_state to);
void vhca_wq_destroy(struct vhca_wq *wq);
/* Ends the events; how many the program has read. */
uint32_t vhca_wq_events(struct vhca_wq *wq);
/* Its WQEs are flushed as they are posted, and the program hears WQ_FATAL. */
void vhca_wq_fail(struct vhca_wq *wq);

/* ---- indirection tables ---- */

struct vhca_rqt {
	struct vhca_object object;
	uint32_t number;
	uint32_t n;          /* a power of two */
	struct vhca_wq **wq; /* each is held by a reference */
};

int vhca_rqt_create(struct vhca_context *context, struct vhca_wq *const *wqs, uint32_t n,
	struct vhca_rqt **rqt);
/* The table becomes another one, of the same size at most. */
int vhca_rqt_modify(struct vhca_rqt *rqt, struct vhca_wq *const *wqs, uint32_t n);
void vhca_rqt_destroy(struct vhca_rqt *rqt);

/* ---- TIRs: what a rule of steering leads to ---- */

struct vhca_tir_attr {
	struct vhca_pd *pd;   /* NULL: a DevX one's */
	struct vhca_wq *wq;   /* either a queue ... */
	struct vhca_rqt *rqt; /* ... or a table */
	uint64_t fields;      /* MLX5_RX_HASH_*; 0: the table's first queue */
	uint8_t key[VHCA_RSS_KEY];
	bool symmetric; /* source and destination may change places */
	bool of_qp;     /* a raw QP's own: in no handle table */
};

/* Of a QP that receives raw frames `qp->tir` is one: a rule for the QP is one for its TIR. It holds
 * a reference of its queue or table; a rule is to hold one of the QP, or of a TIR that stands for
 * itself. */
struct vhca_tir {
	struct vhca_object object;
	uint32_t number;
	struct vhca_tir_attr attr;
	uint32_t table[VHCA_RSS_KEY * 8]; /* the key's 32 bits from each bit on */
};

int vhca_tir_create(
	struct vhca_context *context, const struct vhca_tir_attr *attr, struct vhca_tir **tir);
void vhca_tir_destroy(struct vhca_tir *tir);
/* The hash, and a CQE's rss_hash_type of what went into it: 0 where nothing did. */
uint32_t vhca_tir_hash(
	const struct vhca_tir *tir, const struct vhca_frame *frame, uint8_t *hash_type);

/* ---- the seam to steering: steer.c ---- */

struct vhca_steered {
	bool dropped; /* by a rule: nobody gets it, the host's part of the port neither */
	uint32_t n;   /* 0: no rule is for it, and it is the host's */
	struct {
		struct vhca_tir *tir;
		uint32_t flow_tag; /* 24 bits; 0: none */
	} to[VHCA_MAX_STEERED];
};

/* Finds where a frame that has come to the port goes, and counts it in the rules' counters. The
 * frame is parsed, its sums are not known. Engine thread. */
void vhca_steer(
	struct vhca_device *device, const struct vhca_frame *frame, struct vhca_steered *steered);

/* ---- the data path ---- */

/* A frame has come to the port: true where steering has taken it, which dropping is as well. */
bool vhca_raw_receive(struct vhca_device *device, const uint8_t *frame, uint32_t size);
/* A frame leaves the port. */
void vhca_raw_transmit(struct vhca_device *device, const uint8_t *frame, uint32_t size);
/* Executes WQEs of a raw send queue: the requester's part for QPs of that type. */
unsigned int vhca_raw_send(struct vhca_qp *qp);
/* Flushes receive WQEs of queues in error; how many. */
unsigned int vhca_wqs_flush(struct vhca_tables *tables);

#endif
