/* packet.c - RoCEv2 packets from the base transport header to the ICRC: take apart, put together */

#include "vhca/packet.h"

/* ---- the headers as they lie on the wire (IBA volume 1, chapter 9) ---- */

struct bth {
	uint8_t opcode;
	uint8_t flags; /* solicited event, MigReq, pad count (2 bits), header version (4) */
	__be16 pkey;
	__be32 resv_qpn;
	__be32 ack_psn;
};

struct reth {
	__be64 va;
	__be32 rkey, dma_length;
} __attribute__((packed));

struct atomic_eth {
	__be64 va;
	__be32 rkey;
	__be64 swap_add, compare;
} __attribute__((packed));

struct deth {
	__be32 qkey, source_qpn;
};

static_assert(sizeof(struct bth) == 12, "the base transport header has 12 bytes");
static_assert(sizeof(struct reth) == 16, "the RDMA extended header has 16 bytes");
static_assert(sizeof(struct atomic_eth) == 28, "the atomic extended header has 28 bytes");

enum {
	RESERVED_V1 = 1 << 24, /* a bit beside FECN and BECN, of which nobody else takes notice */
	FLAG_SOLICITED = 0x80,
	FLAG_MIGRATED = 0x40, /* the state that a path without migration is in */
	PAD_SHIFT = 4,
	PAD_MASK = 3,
	VERSION_MASK = 0xf,
	TRANSPORT_SHIFT = 5,
	OPERATION_MASK = 0x1f,
};

#define ACK_REQUEST 0x80000000u

const char *const vhca_drop_names[VHCA_N_DROPS] = {
	[VHCA_DROP_NONE] = "none",
	[VHCA_DROP_LENGTH] = "rx_length",
	[VHCA_DROP_VERSION] = "rx_version",
	[VHCA_DROP_OPCODE] = "rx_opcode",
	[VHCA_DROP_PAD] = "rx_pad",
	[VHCA_DROP_ICRC] = "rx_icrc_encapsulated",
	[VHCA_DROP_PKEY] = "rx_pkey",
	[VHCA_DROP_QPN] = "rx_qpn",
	[VHCA_DROP_TRANSPORT] = "rx_transport",
	[VHCA_DROP_STATE] = "rx_state",
	[VHCA_DROP_SOURCE] = "rx_source",
	[VHCA_DROP_STALE_ANSWER] = "rx_stale_answer",
	[VHCA_DROP_ADDRESS] = "rx_address",
	[VHCA_DROP_OVERFLOW] = "rx_socket_full",
	[VHCA_DROP_VLAN] = "rx_vlan",
	[VHCA_DROP_SEND] = "tx_refused",
	[VHCA_DROP_FAULT] = "tx_fault",
	[VHCA_DROP_NOT_YET] = "rx_waited",
};

/* ---- opcodes ---- */

#define FIRST  (VHCA_BEGINS | VHCA_HAS_PAYLOAD)
#define MIDDLE VHCA_HAS_PAYLOAD
#define LAST   (VHCA_ENDS | VHCA_HAS_PAYLOAD)
#define ONLY   (VHCA_BEGINS | VHCA_ENDS | VHCA_HAS_PAYLOAD)
#define ALONE  (VHCA_BEGINS | VHCA_ENDS)

static const uint16_t operations[VHCA_N_OPERATIONS] = {
	[VHCA_SEND_FIRST] = VHCA_IS_SEND | FIRST,
	[VHCA_SEND_MIDDLE] = VHCA_IS_SEND | MIDDLE,
	[VHCA_SEND_LAST] = VHCA_IS_SEND | LAST,
	[VHCA_SEND_LAST_IMM] = VHCA_IS_SEND | LAST | VHCA_HAS_IMM,
	[VHCA_SEND_ONLY] = VHCA_IS_SEND | ONLY,
	[VHCA_SEND_ONLY_IMM] = VHCA_IS_SEND | ONLY | VHCA_HAS_IMM,
	[VHCA_WRITE_FIRST] = VHCA_IS_WRITE | FIRST | VHCA_HAS_RETH,
	[VHCA_WRITE_MIDDLE] = VHCA_IS_WRITE | MIDDLE,
	[VHCA_WRITE_LAST] = VHCA_IS_WRITE | LAST,
	[VHCA_WRITE_LAST_IMM] = VHCA_IS_WRITE | LAST | VHCA_HAS_IMM,
	[VHCA_WRITE_ONLY] = VHCA_IS_WRITE | ONLY | VHCA_HAS_RETH,
	[VHCA_WRITE_ONLY_IMM] = VHCA_IS_WRITE | ONLY | VHCA_HAS_RETH | VHCA_HAS_IMM,
	[VHCA_READ_REQUEST] = ALONE | VHCA_HAS_RETH,
	[VHCA_READ_RESPONSE_FIRST] = VHCA_IS_RESPONSE | FIRST | VHCA_HAS_AETH,
	[VHCA_READ_RESPONSE_MIDDLE] = VHCA_IS_RESPONSE | MIDDLE,
	[VHCA_READ_RESPONSE_LAST] = VHCA_IS_RESPONSE | LAST | VHCA_HAS_AETH,
	[VHCA_READ_RESPONSE_ONLY] = VHCA_IS_RESPONSE | ONLY | VHCA_HAS_AETH,
	[VHCA_ACKNOWLEDGE] = VHCA_IS_RESPONSE | ALONE | VHCA_HAS_AETH,
	[VHCA_ATOMIC_ACKNOWLEDGE] = VHCA_IS_RESPONSE | ALONE | VHCA_HAS_AETH | VHCA_HAS_ATOMIC_ACK,
	[VHCA_COMPARE_SWAP] = ALONE | VHCA_HAS_ATOMIC,
	[VHCA_FETCH_ADD] = ALONE | VHCA_HAS_ATOMIC,
	[VHCA_SEND_LAST_INVALIDATE] = VHCA_IS_SEND | LAST | VHCA_HAS_IETH,
	[VHCA_SEND_ONLY_INVALIDATE] = VHCA_IS_SEND | ONLY | VHCA_HAS_IETH,
};

uint16_t vhca_packet_parts(uint8_t transport, uint8_t operation)
{
	if (operation >= VHCA_N_OPERATIONS)
		return 0;
	switch (transport) {
	case VHCA_TRANSPORT_RC: return operations[operation];
	case VHCA_TRANSPORT_UC: return operation < VHCA_READ_REQUEST ? operations[operation] : 0;
	case VHCA_TRANSPORT_UD:
		if (operation != VHCA_SEND_ONLY && operation != VHCA_SEND_ONLY_IMM)
			return 0;
		return operations[operation] | VHCA_HAS_DETH;
	default: return 0;
	}
}

uint32_t vhca_packet_headers(uint16_t parts)
{
	return (uint32_t)sizeof(struct bth) + (parts & VHCA_HAS_DETH ? 8u : 0) +
		(parts & VHCA_HAS_RETH ? 16u : 0) + (parts & VHCA_HAS_ATOMIC ? 28u : 0) +
		(parts & VHCA_HAS_AETH ? 4u : 0) + (parts & VHCA_HAS_ATOMIC_ACK ? 8u : 0) +
		(parts & (VHCA_HAS_IMM | VHCA_HAS_IETH) ? 4u : 0);
}

/* ---- decode ---- */

static const uint8_t *take(const uint8_t *from, void *to, size_t n)
{
	memcpy(to, from, n);
	return from + n;
}

static const uint8_t *decode_reth(const uint8_t *from, struct vhca_packet *packet)
{
	struct reth reth;

	from = take(from, &reth, sizeof(reth));
	packet->va = from_be64(reth.va);
	packet->rkey = from_be32(reth.rkey);
	packet->dma_length = from_be32(reth.dma_length);
	return from;
}

static const uint8_t *decode_atomic(const uint8_t *from, struct vhca_packet *packet)
{
	struct atomic_eth atomic;

	from = take(from, &atomic, sizeof(atomic));
	packet->va = from_be64(atomic.va);
	packet->rkey = from_be32(atomic.rkey);
	packet->swap_add = from_be64(atomic.swap_add);
	packet->compare = from_be64(atomic.compare);
	return from;
}

static const uint8_t *decode_deth(const uint8_t *from, struct vhca_packet *packet)
{
	struct deth deth;

	from = take(from, &deth, sizeof(deth));
	packet->qkey = from_be32(deth.qkey);
	packet->source_qpn = from_be32(deth.source_qpn) & 0xffffff;
	return from;
}

static const uint8_t *decode_aeth(const uint8_t *from, struct vhca_packet *packet)
{
	__be32 word;

	from = take(from, &word, sizeof(word));
	packet->syndrome = (uint8_t)(from_be32(word) >> 24);
	packet->msn = from_be32(word) & 0xffffff;
	return from;
}

static const uint8_t *decode_original(const uint8_t *from, struct vhca_packet *packet)
{
	__be64 word;

	from = take(from, &word, sizeof(word));
	packet->original = from_be64(word);
	return from;
}

/* In the order in which they lie; their bytes are there. */
static const uint8_t *decode_parts(const uint8_t *from, struct vhca_packet *packet)
{
	uint16_t parts = packet->parts;

	if (parts & VHCA_HAS_DETH)
		from = decode_deth(from, packet);
	if (parts & VHCA_HAS_RETH)
		from = decode_reth(from, packet);
	if (parts & VHCA_HAS_ATOMIC)
		from = decode_atomic(from, packet);
	if (parts & VHCA_HAS_AETH)
		from = decode_aeth(from, packet);
	if (parts & VHCA_HAS_ATOMIC_ACK)
		from = decode_original(from, packet);
	if (parts & (VHCA_HAS_IMM | VHCA_HAS_IETH))
		from = take(from, &packet->imm, sizeof(packet->imm));
	return from;
}

static void decode_bth(const struct bth *bth, struct vhca_packet *packet)
{
	packet->transport = bth->opcode >> TRANSPORT_SHIFT;
	packet->operation = bth->opcode & OPERATION_MASK;
	packet->solicited = bth->flags & FLAG_SOLICITED;
	packet->pkey = from_be16(bth->pkey);
	packet->dest_qpn = from_be32(bth->resv_qpn) & 0xffffff;
	packet->v1 = from_be32(bth->resv_qpn) & RESERVED_V1;
	packet->ack_request = from_be32(bth->ack_psn) & ACK_REQUEST;
	packet->psn = from_be32(bth->ack_psn) & VHCA_PSN_MASK;
	packet->parts = vhca_packet_parts(packet->transport, packet->operation);
}

enum vhca_drop vhca_packet_decode(const uint8_t *bytes, size_t size, struct vhca_packet *packet)
{
	struct bth bth;
	uint32_t headers, pad;

	if (size < sizeof(bth) + VHCA_ICRC_BYTES || size > VHCA_MAX_PACKET || size % 4)
		return VHCA_DROP_LENGTH;
	memcpy(&bth, bytes, sizeof(bth));
	if (bth.flags & VERSION_MASK)
		return VHCA_DROP_VERSION;
	decode_bth(&bth, packet);
	if (!packet->parts)
		return VHCA_DROP_OPCODE;
	headers = vhca_packet_headers(packet->parts);
	if (size < headers + VHCA_ICRC_BYTES)
		return VHCA_DROP_LENGTH;
	pad = bth.flags >> PAD_SHIFT & PAD_MASK;
	packet->length = (uint32_t)size - headers - VHCA_ICRC_BYTES;
	if (pad > packet->length)
		return VHCA_DROP_PAD;
	if (!(packet->parts & VHCA_HAS_PAYLOAD) && packet->length)
		return VHCA_DROP_LENGTH;
	packet->length -= pad;
	if (packet->length > VHCA_MAX_MTU)
		return VHCA_DROP_LENGTH;
	packet->payload = decode_parts(bytes + sizeof(bth), packet);
	return VHCA_DROP_NONE;
}

/* ---- encode ---- */

static uint8_t *put(uint8_t *to, const void *from, size_t n)
{
	memcpy(to, from, n);
	return to + n;
}

static uint8_t *put_be32(uint8_t *to, uint32_t value)
{
	__be32 word = be32(value);

	return put(to, &word, sizeof(word));
}

static uint8_t *encode_reth(const struct vhca_packet *packet, uint8_t *to)
{
	struct reth reth = {.va = be64(packet->va),
		.rkey = be32(packet->rkey),
		.dma_length = be32(packet->dma_length)};

	return put(to, &reth, sizeof(reth));
}

static uint8_t *encode_atomic(const struct vhca_packet *packet, uint8_t *to)
{
	struct atomic_eth atomic = {.va = be64(packet->va),
		.rkey = be32(packet->rkey),
		.swap_add = be64(packet->swap_add),
		.compare = be64(packet->compare)};

	return put(to, &atomic, sizeof(atomic));
}

static uint8_t *encode_original(const struct vhca_packet *packet, uint8_t *to)
{
	__be64 word = be64(packet->original);

	return put(to, &word, sizeof(word));
}

static void encode_parts(const struct vhca_packet *packet, uint16_t parts, uint8_t *to)
{
	if (parts & VHCA_HAS_DETH) {
		to = put_be32(to, packet->qkey);
		to = put_be32(to, packet->source_qpn);
	}
	if (parts & VHCA_HAS_RETH)
		to = encode_reth(packet, to);
	if (parts & VHCA_HAS_ATOMIC)
		to = encode_atomic(packet, to);
	if (parts & VHCA_HAS_AETH)
		to = put_be32(to, (uint32_t)packet->syndrome << 24 | packet->msn);
	if (parts & VHCA_HAS_ATOMIC_ACK)
		to = encode_original(packet, to);
	if (parts & (VHCA_HAS_IMM | VHCA_HAS_IETH))
		put(to, &packet->imm, sizeof(packet->imm));
}

uint32_t vhca_packet_encode(const struct vhca_packet *packet, uint8_t *to)
{
	uint16_t parts = vhca_packet_parts(packet->transport, packet->operation);
	uint32_t pad = -packet->length & PAD_MASK;
	struct bth bth = {
		.opcode = (uint8_t)(packet->transport << TRANSPORT_SHIFT | packet->operation),
		.flags = (uint8_t)((packet->solicited ? FLAG_SOLICITED : 0) | FLAG_MIGRATED |
			pad << PAD_SHIFT),
		.pkey = be16(packet->pkey),
		.resv_qpn = be32(packet->dest_qpn | (packet->v1 ? RESERVED_V1 : 0)),
		.ack_psn = be32(packet->psn | (packet->ack_request ? ACK_REQUEST : 0)),
	};

	encode_parts(packet, parts, put(to, &bth, sizeof(bth)));
	return vhca_packet_headers(parts);
}
