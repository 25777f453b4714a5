/* packet.h - RoCEv2 packets from the base transport header to the ICRC: take apart, put together
 *
 * Knows nothing of queues, sockets or time. What comes in is hostile: nothing of a packet is used
 * before its length has been checked against what its opcode says it has.
 */
#ifndef VHCA_PACKET_H
#define VHCA_PACKET_H

#include "vhca/route.h"

#define VHCA_PSN_MASK    0xffffffu
#define VHCA_MAX_MTU     4096u
/* BTH, RETH or AtomicETH, and ImmDt: the most of headers that an opcode here has. */
#define VHCA_MAX_HEADERS (12u + 28u)
#define VHCA_MAX_PACKET  (VHCA_MAX_HEADERS + VHCA_MAX_MTU + VHCA_ICRC_BYTES)

/* The upper three bits of an opcode. */
enum vhca_transport { VHCA_TRANSPORT_RC, VHCA_TRANSPORT_UC, VHCA_TRANSPORT_UD = 3 };

/* The lower five. */
enum vhca_operation {
	VHCA_SEND_FIRST,
	VHCA_SEND_MIDDLE,
	VHCA_SEND_LAST,
	VHCA_SEND_LAST_IMM,
	VHCA_SEND_ONLY,
	VHCA_SEND_ONLY_IMM,
	VHCA_WRITE_FIRST,
	VHCA_WRITE_MIDDLE,
	VHCA_WRITE_LAST,
	VHCA_WRITE_LAST_IMM,
	VHCA_WRITE_ONLY,
	VHCA_WRITE_ONLY_IMM,
	VHCA_READ_REQUEST,
	VHCA_READ_RESPONSE_FIRST,
	VHCA_READ_RESPONSE_MIDDLE,
	VHCA_READ_RESPONSE_LAST,
	VHCA_READ_RESPONSE_ONLY,
	VHCA_ACKNOWLEDGE,
	VHCA_ATOMIC_ACKNOWLEDGE,
	VHCA_COMPARE_SWAP,
	VHCA_FETCH_ADD,
	VHCA_SEND_LAST_INVALIDATE = 22,
	VHCA_SEND_ONLY_INVALIDATE,
	VHCA_N_OPERATIONS,
};

/* What an operation's packet has behind the base transport header, and where it stands in its
 * message. */
enum vhca_packet_part {
	VHCA_HAS_RETH = 1 << 0,
	VHCA_HAS_AETH = 1 << 1,
	VHCA_HAS_IMM = 1 << 2,
	VHCA_HAS_ATOMIC = 1 << 3,
	VHCA_HAS_ATOMIC_ACK = 1 << 4,
	VHCA_HAS_DETH = 1 << 5,
	VHCA_HAS_IETH = 1 << 6,
	VHCA_HAS_PAYLOAD = 1 << 7,
	VHCA_BEGINS = 1 << 8,
	VHCA_ENDS = 1 << 9,
	VHCA_IS_SEND = 1 << 10,
	VHCA_IS_WRITE = 1 << 11,
	VHCA_IS_RESPONSE = 1 << 12,
};

/* AETH syndromes: the upper three bits, and the codes of a NAK. */
enum {
	VHCA_AETH_ACK = 0 << 5,
	VHCA_AETH_RNR = 1 << 5,
	VHCA_AETH_NAK = 3 << 5,
	VHCA_AETH_KIND = 7 << 5,
	VHCA_AETH_VALUE = 31,
	VHCA_AETH_NO_CREDITS = 31, /* an ACK that says nothing of receives left */
};

enum vhca_nak_code {
	VHCA_NAK_CODE_SEQUENCE,
	VHCA_NAK_CODE_INVALID,
	VHCA_NAK_CODE_ACCESS,
	VHCA_NAK_CODE_OPERATION,
};

/* Why a packet went no further: each has a counter of its device, by this name. */
enum vhca_drop {
	VHCA_DROP_NONE,
	VHCA_DROP_LENGTH,
	VHCA_DROP_VERSION,
	VHCA_DROP_OPCODE,
	VHCA_DROP_PAD,
	VHCA_DROP_ICRC,
	VHCA_DROP_PKEY,
	VHCA_DROP_QPN,
	VHCA_DROP_TRANSPORT,
	VHCA_DROP_STATE,
	VHCA_DROP_SOURCE,
	VHCA_DROP_STALE_ANSWER,
	VHCA_DROP_ADDRESS,
	VHCA_DROP_OVERFLOW, /* in the socket, before it was seen */
	VHCA_DROP_VLAN,
	VHCA_DROP_SEND,
	VHCA_DROP_FAULT,
	VHCA_DROP_NOT_YET, /* it is not: it comes again */
	VHCA_N_DROPS,
};

extern const char *const vhca_drop_names[VHCA_N_DROPS];

struct vhca_packet {
	uint8_t transport, operation;
	bool solicited, ack_request;
	bool v1; /* between sockets, which carry v2 alone: its sender's GID is of RoCEv1 */
	uint16_t pkey;
	uint32_t dest_qpn, psn;
	uint16_t parts; /* enum vhca_packet_part, by the opcode */
	/* those parts that are there */
	uint8_t syndrome; /* AETH */
	uint32_t msn;
	__be32 imm; /* in the order of the wire, as CQEs have it; the IETH's key too */
	uint32_t qkey, source_qpn;
	uint64_t va;
	uint32_t rkey, dma_length;
	uint64_t swap_add, compare, original;
	const uint8_t *payload; /* in the packet */
	uint32_t length;        /* of it, without pad */
};

/* Parts of that opcode; 0: there is no such opcode. */
uint16_t vhca_packet_parts(uint8_t transport, uint8_t operation);
/* Bytes of its headers, the base transport header among them. */
uint32_t vhca_packet_headers(uint16_t parts);

/* `bytes` are all from the BTH to the ICRC, which is not looked at. */
enum vhca_drop vhca_packet_decode(const uint8_t *bytes, size_t size, struct vhca_packet *packet);
/* Writes the headers, with a pad count for packet->length; returns their length. The payload goes
 * behind them. */
uint32_t vhca_packet_encode(const struct vhca_packet *packet, uint8_t *to);

/* Bytes from the BTH to the pad, without the ICRC. */
static inline uint32_t vhca_packet_size(uint16_t parts, uint32_t length)
{
	return vhca_packet_headers(parts) + (uint32_t)round_up(length, 4);
}

/* ---- PSNs: 24 bits that go round ---- */

/* How far `psn` is ahead of `from`; negative: behind. */
static inline int32_t vhca_psn_ahead(uint32_t psn, uint32_t from)
{
	return (int32_t)((psn - from) << 8) >> 8;
}

static inline uint32_t vhca_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & VHCA_PSN_MASK;
}

#endif
