/* cq.h - reading a completion queue: the owner bit, then a barrier, then the body, in this one
 * place */
#ifndef VBN_MLX5_CQ_H
#define VBN_MLX5_CQ_H

#include "drv/mlx5/mlx5.h"

/* What cq_look() says of an entry: its opcode in the high half, its format in bits 2 and 3, and bit
 * 0 set while the device has not written it in this pass. The solicited bit is masked out. So one
 * comparison tells that an expected entry is there. */
#define CQE_IS(opcode) ((uint8_t)((opcode) << 4))
#define CQE_NOT_OURS   1u
#define CQE_FORMAT     (3u << 2)
#define CQE_COMPRESSED (3u << 2)
static_assert(offsetof(struct mlx5_cqe64, op_own) == 63 && sizeof(struct mlx5_cqe64) == 64,
	"mlx5dv.h's CQE is the PRM's");

static force_inline const struct mlx5_cqe64 *cq_entry(const struct cq *cq, uint32_t index)
{
	return (const struct mlx5_cqe64 *)(const void *)(cq->first +
		((size_t)(index & cq->mask) << cq->log2_stride));
}

/* The owner bit of the entry flips with each pass of the ring. */
static force_inline uint8_t cq_look(
	const struct cq *cq, uint32_t index, const struct mlx5_cqe64 **cqe)
{
	uint8_t op_own;

	*cqe = cq_entry(cq, index);
	op_own = load_once(&(*cqe)->op_own);
	owner_before_body(); /* pairs with the device, which writes the owner bit last */
	return (uint8_t)(op_own ^ (index >> cq->log2_count & 1)) & 0xfd;
}

/* The index behind the entries from the next one on that are all of one kind, by their last byte
 * alone: within a pass of the ring the owner bit is the same. Their bodies are for cq_look() to
 * order. */
static force_inline uint32_t cq_run_end(const struct cq *cq, uint8_t kind)
{
	const size_t stride = (size_t)1 << cq->log2_stride;
	uint32_t index = cq->index;

	for (;;) {
		const uint32_t left = cq->mask + 1 - (index & cq->mask);
		const uint8_t *at = &cq_entry(cq, index)->op_own, *const end = at + left * stride;
		const uint8_t expected = (uint8_t)(kind | (index >> cq->log2_count & 1));
		const uint8_t *from = at;

		while (at != end && (load_once(at) & ~2) == expected)
			at += stride;
		index += (uint32_t)((size_t)(at - from) >> cq->log2_stride);
		if (likely(at != end))
			return index;
	}
}

/* Whose it is; an error CQE has it in the same place. */
static force_inline uint32_t cqe_qpn(const struct mlx5_cqe64 *cqe)
{
	static_assert(offsetof(struct mlx5_cqe64, sop_drop_qpn) ==
			offsetof(struct mlx5_err_cqe, s_wqe_opcode_qpn),
		"every CQE has its QPN in one place");
	return from_be32(cqe->sop_drop_qpn) & 0xffffff;
}

/* Nothing there: not written in this pass, or never. */
static force_inline bool cqe_absent(uint8_t seen)
{
	return seen & CQE_NOT_OURS || seen >> 4 == MLX5_CQE_INVALID;
}

/* A title: a session of compressed completions begins here (mini.h). */
static force_inline bool cqe_is_title(uint8_t seen)
{
	return (seen & CQE_FORMAT) == CQE_COMPRESSED && !cqe_absent(seen);
}

/* How many entries are read with this one: a session's length, or 1. */
static force_inline uint32_t cqe_span(
	const struct cq *cq, const struct mlx5_cqe64 *cqe, uint8_t seen)
{
	return cqe_is_title(seen) ? min(max(from_be32(cqe->byte_cnt), 1u), cq->mask + 1) : 1;
}

/* Gives the entries before `index` back to the device. */
static force_inline void cq_consume(struct cq *cq, uint32_t index)
{
	cq->index = index;
	cqes_before_record();
	store_once(cq->record, be32(index & 0xffffff));
}

#endif
