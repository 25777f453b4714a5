/* raw_wqe.h - a raw send WQE understood: its Ethernet segment, then one frame or several
 *
 * Inlined into the requester, behind send_wqe.h, whose copy of the WQE and lists of memory these are.
 */
#ifndef VHCA_RAW_WQE_H
#define VHCA_RAW_WQE_H

#include "vhca/raw.h"
#include "vhca/route.h"
#include "vhca/send_wqe.h"

#include <rdma/mlx5-abi.h>

enum {
	ETH_SEGMENTS = 1,   /* as much of the Ethernet segment as every WQE has */
	ETH_INLINE_AT = 14, /* bytes into it, where inlined headers begin */
	ETH_INLINED = 2,    /* bytes of them within it */
	ETH_MAX_INLINE = 0x3ff,
	ETH_INSERT_SERVICE = 1,
	ETH_NO_SUCH_FLAGS = 0xff ^ (MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM),
	MAC_HEADER = 14,
	TAG_BYTES = 4,
};

/* What is wrong with it goes on as a device without the feature does; true where that is an error. */
static bool eth_undefined(
	struct vhca_qp *qp, enum vhca_rule rule, const char *field, uint64_t found)
{
	return vhca_rule_report(rule, qp, qp->sq_ci, field, found, 0);
}

/* Fields of features that none of the profiles has. */
static uint8_t eth_reserved(struct vhca_qp *qp, const struct mlx5_wqe_eth_seg *eth)
{
	const uint8_t inner = VHCA_ETH_INNER;
	bool fails = false;

	if (eth->rsvd0)
		fails |= eth_undefined(
			qp, VHCA_RULE_ETH_RESERVED, "parsing offsets", from_be32(eth->rsvd0));
	if (eth->rsvd1)
		fails |= eth_undefined(qp, VHCA_RULE_ETH_RESERVED, "parsing flags", eth->rsvd1);
	if (eth->mss)
		fails |= eth_undefined(qp, VHCA_RULE_ETH_RESERVED, "mss", from_be16(eth->mss));
	if (eth->cs_flags & ETH_NO_SUCH_FLAGS)
		fails |= eth_undefined(qp, VHCA_RULE_ETH_RESERVED,
			eth->cs_flags & inner ? "cs_flags of inner headers" : "cs_flags",
			eth->cs_flags);
	return fails ? MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR : 0;
}

static bool wants_l2(const struct vhca_qp *qp)
{
	return qp->object.context->device->facts->eth_min_inline == MLX5_USER_INLINE_MODE_L2;
}

/* What a device that wants the MAC header in the WQE has of it there. */
static uint8_t eth_inline_enough(
	struct vhca_qp *qp, const struct mlx5_wqe_eth_seg *eth, uint32_t size)
{
	bool tagged = size >= MAC_HEADER && eth->inline_hdr[10] == 0x81 && eth->inline_hdr[11] == 0;
	uint32_t wanted = MAC_HEADER + (tagged ? TAG_BYTES : 0);

	if (!wants_l2(qp) || size >= wanted)
		return 0;
	return operation_error(VHCA_RULE_ETH_INLINE, qp, "inline_hdr_sz", size, wanted);
}

/* Headers in the Ethernet segment are the first of the frame's bytes. */
static uint8_t eth_inline(struct vhca_qp *qp, struct wqe *wqe, const struct mlx5_wqe_eth_seg *eth)
{
	uint32_t size = from_be16(eth->inline_hdr_sz);
	uint32_t room = ETH_INLINED + (wqe->n_segments - wqe->next) * VHCA_SEGMENT;

	if (unlikely(size > ETH_MAX_INLINE || size > room))
		return operation_error(VHCA_RULE_SEGMENT_END, qp, "inline_hdr_sz", size,
			min(room, (uint32_t)ETH_MAX_INLINE));
	if (size > ETH_INLINED)
		wqe->next += (size - ETH_INLINED + VHCA_SEGMENT - 1) / VHCA_SEGMENT;
	if (size)
		wqe->message.sge[wqe->message.n_sge++] =
			(struct vhca_sge){(uint8_t *)(uintptr_t)eth + ETH_INLINE_AT, size};
	wqe->message.length = size;
	return eth_inline_enough(qp, eth, size);
}

/* A tag in the place of inlined headers. */
static uint8_t eth_insert(
	struct vhca_qp *qp, const struct mlx5_wqe_eth_seg *eth, struct vhca_raw_offload *offload)
{
	uint16_t type = from_be16(eth->inline_hdr_sz);

	if (unlikely(wants_l2(qp)))
		return operation_error(VHCA_RULE_ETH_INLINE, qp, "inline_hdr_sz", type, MAC_HEADER);
	if (unlikely(type & ~(VHCA_ETH_INSERT | ETH_INSERT_SERVICE)) &&
		eth_undefined(qp, VHCA_RULE_ETH_RESERVED, "inline_hdr_sz", type))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	offload->tag_type = type & ETH_INSERT_SERVICE ? VHCA_TYPE_SERVICE_VLAN : VHCA_TYPE_VLAN;
	offload->tag = (uint16_t)(eth->inline_hdr_start[0] << 8 | eth->inline_hdr_start[1]);
	return 0;
}

/* Leaves what was inlined as the first of the message's list. */
static force_inline uint8_t decode_eth(
	struct vhca_qp *qp, struct wqe *wqe, struct vhca_raw_offload *offload)
{
	const struct mlx5_wqe_eth_seg *eth = (const void *)(wqe->bytes + wqe->next * VHCA_SEGMENT);
	bool insert = eth->inline_hdr_sz & be16(VHCA_ETH_INSERT);
	uint8_t syndrome = 0;

	if (unlikely(wqe->next + ETH_SEGMENTS > wqe->n_segments))
		return operation_error(
			VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments, wqe->next + ETH_SEGMENTS);
	wqe->next += ETH_SEGMENTS;
	wqe->message.n_sge = 0;
	wqe->message.length = 0;
	offload->checksums = eth->cs_flags;
	offload->tag_type = 0;
	if (unlikely(eth->rsvd0 || eth->rsvd1 || eth->mss || eth->cs_flags & ETH_NO_SUCH_FLAGS))
		syndrome = eth_reserved(qp, eth);
	if (unlikely(syndrome))
		return syndrome;
	if (insert)
		return eth_insert(qp, eth, offload);
	if (unlikely(wqe->message.opcode == VHCA_OPCODE_MULTI_PACKET)) {
		if (likely(!eth->inline_hdr_sz))
			return 0;
		return operation_error(VHCA_RULE_MPW_HEADER, qp, "inline_hdr_sz",
			from_be16(eth->inline_hdr_sz), 0);
	}
	return eth->inline_hdr_sz || wants_l2(qp) ? eth_inline(qp, wqe, eth) : 0;
}

static bool raw_opcode_known(const struct vhca_qp *qp, uint8_t opcode)
{
	return opcode == MLX5_OPCODE_SEND ||
		(opcode == VHCA_OPCODE_MULTI_PACKET &&
			qp->object.context->device->facts->enhanced_multi_packet);
}

/* Of a multi-packet WQE each entry of the list is a frame, else all of them are one. 0, or the
 * syndrome of what is wrong with the WQE. */
static force_inline uint8_t decode_raw(
	struct vhca_qp *qp, struct wqe *wqe, struct vhca_raw_offload *offload)
{
	uint8_t syndrome = check_ctrl(qp, wqe);

	if (unlikely(syndrome))
		return syndrome;
	wqe->message.qp = qp;
	wqe->message.opcode = (uint8_t)wqe->opcode;
	wqe->inlined = false;
	wqe->message.n_sge = 0;
	if (wqe->message.opcode == MLX5_OPCODE_NOP)
		return 0;
	if (unlikely(!raw_opcode_known(qp, wqe->message.opcode)))
		return unknown_opcode(qp, wqe);
	syndrome = decode_eth(qp, wqe, offload);
	if (unlikely(syndrome))
		return syndrome;
	syndrome = decode_segments(qp, wqe, 0, wqe->message.length);
	if (unlikely(!syndrome && !wqe->message.n_sge))
		return operation_error(VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments, wqe->next + 1);
	return syndrome;
}

#endif
