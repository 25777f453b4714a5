/* raw.h - raw Ethernet: frames, the queues that receive them, and the seam to steering
 *
 * Lives here: receive work queues, indirection tables, TIRs (where a steering rule sends a frame:
 * one queue, or a table that a hash chooses from), and what is known of a frame. May touch it: the
 * device side; raw_queue.h has what the commands that make these objects know. A raw QP's send queue is
 * a struct vhca_qp.
 *
 *   raw.c          work queues, tables and TIRs: create, states, destroy
 *   raw_frame.c    takes a frame apart, sums, hashes
 *   raw_wqe.h      send WQEs understood: Ethernet segment, multi-packet WQEs
 *   raw_send.c     frames put together, their checksums and tags, the switch of the process
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
#include "vhca/raw_queue.h"

#define VHCA_MAX_FRAME         9018u /* from the MAC on, one tag included, without the FCS */
#define VHCA_MIN_FRAME         14u
#define VHCA_PADDED_FRAME      60u /* what is shorter is padded by the port that sends it */
#define VHCA_RSS_INPUT         36u /* bytes: two IPv6 addresses and two ports */
#define VHCA_MAX_STEERED       16u
#define VHCA_MAX_TAGS          2u
#define VHCA_TYPE_SERVICE_VLAN 0x88a8u
#define VHCA_ETH_INNER \
	0x30 /* in cs_flags: checksums of inner headers, which mlx5dv.h does not name */

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
	bool cut;      /* less of it came than IP's length says */
	bool options;  /* IPv4 options or IPv6 extension headers */
	bool multicast, broadcast;
	uint16_t source_port, dest_port; /* host order; 0 where l4 is none */
	/* by vhca_frame_sums(), which a receive needs and steering does not */
	bool l3_ok, l4_ok;
	uint16_t sum; /* of all behind the tags, as its bytes lie; not inverted */
};

/* Any bytes: what is cut short or nonsense is a frame without L3 or L4. */
void vhca_frame_parse(struct vhca_frame *frame, const uint8_t *bytes, uint32_t size);
void vhca_frame_sums(struct vhca_frame *frame);

/* One's complement sums of bytes as they lie: parts that begin at even offsets may be added. */
uint64_t vhca_sum(const uint8_t *bytes, uint32_t n);
uint16_t vhca_sum_fold(uint64_t sum);
/* Of the pseudo header of a frame with an L4 header. */
uint64_t vhca_sum_pseudo(const struct vhca_frame *frame);

/* ---- receive work queues ---- */

/* The receive half of a QP by itself: what reads its ring, writes its CQEs and flushes it is what does
 * so for QPs. Its state is IBV_QPS_RESET, IBV_QPS_RTR where it receives, or IBV_QPS_ERR. */
struct vhca_wq {
	struct vhca_qp queue;  /* of kind VHCA_WQ, in no table of QPs; queue.number is the RQ's */
	uint32_t strides_used; /* of the WQE that is next */
	uint64_t received, bytes, out_of_buffer; /* frames */
	struct vhca_wq_attr attr;
};

/* ---- indirection tables ---- */

struct vhca_rqt {
	struct vhca_object object;
	uint32_t number;
	uint32_t n;          /* a power of two */
	struct vhca_wq **wq; /* each is held by a reference */
};

/* ---- TIRs: what a rule of steering leads to ---- */

/* Of a QP that receives raw frames `qp->tir` is one: a rule for the QP is one for its TIR. It holds
 * a reference of its queue or table; a rule is to hold one of the QP, or of a TIR that stands for
 * itself. */
struct vhca_tir {
	struct vhca_object object;
	uint32_t number;
	struct vhca_tir_attr attr;
	uint32_t table[2 * VHCA_RSS_INPUT][16]; /* the hash of each half byte of what goes in */
};

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
/* Whether there is any queue that a frame could go to. */
bool vhca_raw_wanted(const struct vhca_device *device);

/* What a send WQE asks of the device beside sending. */
struct vhca_raw_offload {
	uint8_t checksums;      /* MLX5_ETH_WQE_L3_CSUM, MLX5_ETH_WQE_L4_CSUM */
	uint16_t tag_type, tag; /* to insert; type 0: none */
};

/* Sends what these are together. False: it is too long or too short for a frame. */
bool vhca_raw_send(struct vhca_device *device, const struct vhca_sge *sge, uint32_t n_sge,
	const struct vhca_raw_offload *offload);
/* A frame leaves the port. */
void vhca_raw_transmit(struct vhca_device *device, const uint8_t *frame, uint32_t size);
/* ... by the switch of the process: to each other port there, or back where it is alone. */
void vhca_raw_flood(struct vhca_device *device, const uint8_t *frame, uint32_t size);
/* To the least size of a frame, for which there is room; the new size. */
uint32_t vhca_frame_pad(uint8_t *frame, uint32_t size);
/* Makes the L4 checksum of a frame whose sender has left it to a device. */
void vhca_frame_complete_sum(uint8_t *bytes, uint32_t size);
#endif
