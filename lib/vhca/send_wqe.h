/* send_wqe.h - a send WQE: copied out of the ring, and understood
 *
 * Inlined into the requester, which does it for each message.
 */
#ifndef VHCA_SEND_WQE_H
#define VHCA_SEND_WQE_H

#include "vhca/device.h"

/* One WQE: its copy, so that nothing the program does meanwhile can matter, and what has been
 * understood of it. */
struct wqe {
	union {
		uint8_t bytes[1024];
		struct mlx5_wqe_ctrl_seg ctrl;
	};
	uint32_t opcode;
	uint32_t n_segments; /* ds */
	uint32_t next;       /* segment that is decoded next */
	uint16_t index;
	bool inlined; /* what a read or atomic brings goes into the CQE, by way of `answer` */
	uint8_t answer[32];
	struct vhca_message message;
};

enum {
	RUN_WQES = 128, /* of one QP before the others have their turn */
	RUN_BYTES = 1 << 20,
	CLOCK_WQES =
		16, /* CQEs in a row may have the same time: so long is less than a microsecond */
	CLOCK_BYTES = 4096,
	INFINITE_RNR = 7,
	BLOCKS_AHEAD = 6, /* fetched while others are executed: the program's core has them */
};

static struct wqe engine_wqe cache_aligned; /* the engine's: there is one thread */

/* ---- decode ---- */

static force_inline const uint8_t *block(const struct vhca_qp *qp, uint32_t index)
{
	return qp->sq + ((size_t)(index & qp->sq_mask) << MLX5_SEND_WQE_SHIFT);
}

static force_inline uint32_t n_blocks(uint32_t n_segments)
{
	return (n_segments + 3) / 4;
}

/* Copies the WQE at the ring's next position; more blocks than one may go round the ring's end. */
static force_inline void fetch(const struct vhca_qp *qp, struct wqe *wqe)
{
	uint32_t index = qp->sq_ci;

	__builtin_prefetch(block(qp, index + BLOCKS_AHEAD));
	vhca_memory_read(wqe->bytes, block(qp, index), MLX5_SEND_WQE_BB);
	wqe->opcode = from_be32(wqe->ctrl.opmod_idx_opcode);
	wqe->n_segments = from_be32(wqe->ctrl.qpn_ds) & 0x3f;
	wqe->index = (uint16_t)index;
	wqe->next = 1;
	for (uint32_t i = 1; unlikely(i < n_blocks(wqe->n_segments)); i++)
		vhca_memory_read(
			wqe->bytes + i * MLX5_SEND_WQE_BB, block(qp, index + i), MLX5_SEND_WQE_BB);
}

static uint8_t operation_error(
	enum vhca_rule rule, struct vhca_qp *qp, const char *field, uint64_t found, uint64_t wanted)
{
	vhca_rule_report(rule, qp, qp->sq_ci, field, found, wanted);
	return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
}

static force_inline uint8_t check_ctrl(struct vhca_qp *qp, const struct wqe *wqe)
{
	uint32_t index = wqe->opcode >> 8 & 0xffff, number = from_be32(wqe->ctrl.qpn_ds) >> 8;

	if (unlikely(index != qp->sq_ci))
		return operation_error(VHCA_RULE_WQE_INDEX, qp, "wqe_index", index, qp->sq_ci);
	if (unlikely(number != qp->number))
		return operation_error(VHCA_RULE_WQE_QPN, qp, "qpn", number, qp->number);
	if (unlikely(!wqe->n_segments ||
		    n_blocks(wqe->n_segments) > (uint16_t)(qp->sq_pi - qp->sq_ci)))
		return operation_error(VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments,
			min(63u, 4u * (uint16_t)(qp->sq_pi - qp->sq_ci)));
	if (unlikely(wqe->opcode >> 24))
		return operation_error(VHCA_RULE_WQE_OPMOD, qp, "opc_mod", wqe->opcode >> 24, 0);
	return likely(vhca_ctrl_clean(&wqe->ctrl)) ? 0 : vhca_rule_ctrl(qp, &wqe->ctrl);
}

/* Inline data lie in the copy of the WQE, padded to a segment's end. */
static uint8_t decode_inline(struct vhca_qp *qp, struct wqe *wqe, uint32_t length)
{
	uint32_t room = (wqe->n_segments - wqe->next) * VHCA_SEGMENT - 4;
	struct vhca_sge *sge = &wqe->message.sge[wqe->message.n_sge++];

	if (unlikely(length > room))
		return operation_error(
			VHCA_RULE_SEGMENT_END, qp, "inline byte_count", length, room);
	sge->addr = wqe->bytes + wqe->next * VHCA_SEGMENT + 4;
	sge->length = length;
	wqe->next += (length + 4 + VHCA_SEGMENT - 1) / VHCA_SEGMENT;
	return 0;
}

static force_inline uint8_t decode_pointer(
	struct vhca_qp *qp, struct wqe *wqe, const struct mlx5_wqe_data_seg *seg, uint32_t need)
{
	uint32_t length = from_be32(seg->byte_count);

	wqe->next++;
	if (unlikely(!length)) {
		if (seg->lkey == be32(MLX5_INVALID_LKEY))
			return 0; /* a null segment */
		vhca_rule_report(
			VHCA_RULE_SEGMENT_ZERO, qp, qp->sq_ci, "byte_count", 0, VHCA_ANOTHER);
		length = 1u << 31;
	}
	return vhca_local_access(
		qp, qp->sq_ci, seg, length, need, &wqe->message.sge[wqe->message.n_sge++]);
}

/* The rest of the WQE's segments, behind `length` bytes that are in the list. `need` is the right that
 * the device needs of the memory: to write what a read brings. */
static force_inline uint8_t decode_segments(
	struct vhca_qp *qp, struct wqe *wqe, uint32_t need, uint64_t length)
{
	struct vhca_message *message = &wqe->message;

	while (wqe->next < wqe->n_segments) {
		const struct mlx5_wqe_data_seg *seg =
			(const void *)(wqe->bytes + wqe->next * VHCA_SEGMENT);
		uint32_t n_sge = message->n_sge, count = from_be32(seg->byte_count);
		uint8_t syndrome;

		if (unlikely(need && count & MLX5_INLINE_SEG))
			return operation_error(VHCA_RULE_SEGMENT_END, qp,
				"byte_count of what is written", count, VHCA_ANOTHER);
		syndrome = count & MLX5_INLINE_SEG
			? decode_inline(qp, wqe, count & ~(uint32_t)MLX5_INLINE_SEG)
			: decode_pointer(qp, wqe, seg, need);
		if (unlikely(syndrome))
			return syndrome;
		if (likely(message->n_sge != n_sge))
			length += message->sge[n_sge].length;
	}
	if (unlikely(length > VHCA_MAX_MESSAGE)) {
		vhca_rule_report(
			VHCA_RULE_MESSAGE_LENGTH, qp, qp->sq_ci, "bytes", length, VHCA_MAX_MESSAGE);
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	}
	message->length = (uint32_t)length;
	return 0;
}

static force_inline uint8_t decode_data(struct vhca_qp *qp, struct wqe *wqe, uint32_t need)
{
	wqe->message.n_sge = 0;
	return decode_segments(qp, wqe, need, 0);
}

static uint8_t decode_remote(struct vhca_qp *qp, struct wqe *wqe)
{
	const struct mlx5_wqe_raddr_seg *seg =
		(const void *)(wqe->bytes + wqe->next * VHCA_SEGMENT);

	if (unlikely(wqe->next == wqe->n_segments))
		return operation_error(VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments, wqe->next + 1);
	wqe->message.raddr = from_be64(seg->raddr);
	wqe->message.rkey = from_be32(seg->rkey);
	if (unlikely(seg->reserved))
		vhca_rule_raddr(qp, seg);
	wqe->next++;
	return 0;
}

/* ---- decode: what brings data back, and datagrams ---- */

/* What fits into the CQE goes there, and its memory stays as it is. */
static void answer_into_cqe(const struct vhca_qp *qp, struct wqe *wqe)
{
	struct vhca_message *message = &wqe->message;

	wqe->inlined = message->length && message->length <= qp->answer_scatter &&
		wqe->ctrl.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE;
	if (!wqe->inlined)
		return;
	message->n_sge = 1;
	message->sge[0] = (struct vhca_sge){wqe->answer, message->length};
}

static uint8_t decode_read(struct vhca_qp *qp, struct wqe *wqe)
{
	uint8_t syndrome = decode_remote(qp, wqe);

	if (!syndrome)
		syndrome = decode_data(qp, wqe, IBV_ACCESS_LOCAL_WRITE);
	if (!syndrome)
		answer_into_cqe(qp, wqe);
	return syndrome;
}

static uint8_t decode_atomic(struct vhca_qp *qp, struct wqe *wqe)
{
	const struct mlx5_wqe_atomic_seg *seg;
	uint8_t syndrome = decode_remote(qp, wqe);

	if (syndrome)
		return syndrome;
	if (wqe->next == wqe->n_segments)
		return operation_error(VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments, wqe->next + 1);
	seg = (const void *)(wqe->bytes + wqe->next++ * VHCA_SEGMENT);
	wqe->message.swap_add = from_be64(seg->swap_add);
	wqe->message.compare = from_be64(seg->compare);
	syndrome = decode_data(qp, wqe, IBV_ACCESS_LOCAL_WRITE);
	if (syndrome)
		return syndrome;
	if (wqe->message.length != VHCA_ATOMIC) {
		vhca_rule_report(VHCA_RULE_MESSAGE_LENGTH, qp, qp->sq_ci, "bytes of an atomic",
			wqe->message.length, VHCA_ATOMIC);
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	}
	answer_into_cqe(qp, wqe);
	return 0;
}

static bool source_gid_known(const struct vhca_device *device, const struct mlx5_wqe_av *av)
{
	static const uint8_t none[16];

	return memcmp(device->gids[vhca_av_gid(av)].raw, none, 16);
}

/* A datagram is one packet. */
static uint8_t decode_datagram(struct vhca_qp *qp, struct wqe *wqe)
{
	uint32_t mtu = 128u << qp->object.context->device->mtu;
	uint32_t end = wqe->next + sizeof(struct mlx5_wqe_datagram_seg) / VHCA_SEGMENT;
	uint8_t syndrome;

	if (end > wqe->n_segments)
		return operation_error(VHCA_RULE_WQE_DS, qp, "ds", wqe->n_segments, end);
	wqe->message.av = (const void *)(wqe->bytes + wqe->next * VHCA_SEGMENT);
	wqe->next = end;
	vhca_rule_datagram(qp, wqe->message.av);
	if (!(wqe->message.av->dqp_dct & be32(MLX5_EXTENDED_UD_AV)))
		return operation_error(VHCA_RULE_ADDRESS_VECTOR, qp, "dqp_dct",
			from_be32(wqe->message.av->dqp_dct), VHCA_ANOTHER);
	if (!source_gid_known(qp->object.context->device, wqe->message.av))
		return operation_error(VHCA_RULE_ADDRESS_VECTOR, qp, "source GID index",
			vhca_av_gid(wqe->message.av), VHCA_ANOTHER);
	syndrome = decode_data(qp, wqe, 0);
	if (!syndrome && wqe->message.length > mtu) {
		vhca_rule_report(VHCA_RULE_MESSAGE_LENGTH, qp, qp->sq_ci, "bytes of a datagram",
			wqe->message.length, mtu);
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	}
	return syndrome;
}

static uint8_t unknown_opcode(struct vhca_qp *qp, const struct wqe *wqe)
{
	return operation_error(
		VHCA_RULE_WQE_OPCODE, qp, "opcode", wqe->message.opcode, VHCA_ANOTHER);
}

/* All but sends and writes on a connection. */
static noinline uint8_t decode_other(struct vhca_qp *qp, struct wqe *wqe)
{
	uint8_t opcode = wqe->message.opcode;

	wqe->message.fence = wqe->ctrl.fm_ce_se & VHCA_FENCE_BITS;
	wqe->inlined = false;
	if (opcode == MLX5_OPCODE_NOP)
		return 0;
	if (qp->type == IBV_QPT_UD &&
		(opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM))
		return decode_datagram(qp, wqe);
	if (qp->type == IBV_QPT_RC && opcode == MLX5_OPCODE_RDMA_READ)
		return decode_read(qp, wqe);
	if (qp->type == IBV_QPT_RC &&
		(opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA))
		return decode_atomic(qp, wqe);
	return unknown_opcode(qp, wqe);
}

/* Writes are 8 and 9, sends 10 and 11. */
static_assert(MLX5_OPCODE_RDMA_WRITE == 8 && MLX5_OPCODE_RDMA_WRITE_IMM == 9 &&
		MLX5_OPCODE_SEND == 10 && MLX5_OPCODE_SEND_IMM == 11,
	"is_stream() and is_write() tell them by their bits");

static force_inline bool is_stream(uint8_t opcode)
{
	return (opcode & ~3u) == MLX5_OPCODE_RDMA_WRITE;
}

static force_inline bool is_write(uint8_t opcode)
{
	return !(opcode & 2);
}

/* 0, or the syndrome of what is wrong with the WQE. */
static force_inline uint8_t decode(struct vhca_qp *qp, struct wqe *wqe)
{
	uint8_t syndrome = check_ctrl(qp, wqe);

	if (unlikely(syndrome))
		return syndrome;
	wqe->message.qp = qp;
	wqe->message.opcode = (uint8_t)wqe->opcode;
	wqe->message.solicited = wqe->ctrl.fm_ce_se & MLX5_WQE_CTRL_SOLICITED;
	wqe->message.imm = wqe->ctrl.imm;
	wqe->message.index = wqe->index;
	wqe->message.n_segments = (uint8_t)wqe->n_segments;
	wqe->message.signalled = wqe->ctrl.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE;
	if (unlikely(!is_stream(wqe->message.opcode) || qp->type == IBV_QPT_UD))
		return decode_other(qp, wqe);
	wqe->message.fence = wqe->ctrl.fm_ce_se & VHCA_FENCE_BITS;
	if (is_write(wqe->message.opcode)) {
		syndrome = decode_remote(qp, wqe);
		if (unlikely(syndrome))
			return syndrome;
	}
	return decode_data(qp, wqe, 0);
}

#endif
