/* receive_wqe.h - receive WQEs: found in the ring or the SRQ, their scatter lists read, filled, taken
 *
 * Inlined into the responder, which does all of it for each message.
 */
#ifndef VHCA_RECEIVE_WQE_H
#define VHCA_RECEIVE_WQE_H

#include "vhca/device.h"
#include "vhca/guard.h"
#include "vhca/trace.h"

#include <endian.h>

enum { STRIDES_AHEAD = 8 }; /* fetched while others are filled: the program's core has them */

/* Receive WQEs posted and not consumed. The record is read when those known before are used up. */
static force_inline bool rq_has_wqe(struct vhca_qp *qp)
{
	uint32_t record;

	if (likely(qp->rq_ci != qp->rq_pi))
		return true;
	if (unlikely(!qp->attr.rq_wqe_count))
		return false;
	record = vhca_record_read(&qp->db[0]);
	qp->rq_pi = (uint16_t)record;
	if (unlikely(record >> 16 || (uint16_t)(record - qp->rq_ci) > qp->rq_mask + 1))
		vhca_rule_receive_record(qp, record);
	return qp->rq_pi != qp->rq_ci;
}

static force_inline bool rq_peek(struct vhca_qp *qp, struct vhca_receive *receive)
{
	uint32_t stride = 1u << qp->log2_rq_stride;

	if (!rq_has_wqe(qp))
		return false;
	__builtin_prefetch(qp->rq +
		((size_t)((qp->rq_ci + STRIDES_AHEAD) & qp->rq_mask) << qp->log2_rq_stride));
	receive->index = receive->next = qp->rq_ci;
	receive->wqe = qp->rq + ((size_t)(qp->rq_ci & qp->rq_mask) << qp->log2_rq_stride) +
		qp->rq_first * VHCA_SEGMENT;
	receive->n_segments = stride / VHCA_SEGMENT - qp->rq_first;
	return true;
}

static bool srq_peek(struct vhca_qp *qp, struct vhca_receive *receive)
{
	struct vhca_srq *srq = qp->srq;
	const struct mlx5_wqe_srq_next_seg *link;
	__be16 next;

	if (srq->taken == srq->posted) {
		uint32_t record = vhca_record_read(srq->db);

		srq->posted = (uint16_t)record;
		if (unlikely(record >> 16 || (uint16_t)(record - srq->taken) > srq->n_wqe))
			vhca_rule_srq_record(qp, record);
		if (srq->taken == srq->posted)
			return false;
	}
	link = (const void *)(srq->buf + ((size_t)srq->head << srq->log2_stride));
	receive->index = srq->head;
	vhca_memory_read(&next, &link->next_wqe_index, sizeof(next));
	receive->next = from_be16(next);
	if (unlikely(receive->next >= srq->n_wqe))
		vhca_rule_srq_link(qp, receive->index, receive->next);
	receive->wqe = (const uint8_t *)(link + 1);
	receive->n_segments = (1u << srq->log2_stride) / VHCA_SEGMENT - 1;
	return true;
}

static force_inline bool receive_peek(struct vhca_qp *qp, struct vhca_receive *receive)
{
	return unlikely(qp->srq != NULL) ? srq_peek(qp, receive) : rq_peek(qp, receive);
}

static void srq_take(struct vhca_srq *srq, const struct vhca_receive *receive)
{
	srq->head = (uint16_t)(receive->next & (srq->n_wqe - 1));
	srq->taken++;
	if (!srq->limit)
		return;
	srq->posted = (uint16_t)vhca_record_read(srq->db);
	if ((uint16_t)(srq->posted - srq->taken) < srq->limit) {
		srq->limit = 0;
		vhca_event_async(&srq->async, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
}

static force_inline void receive_take(struct vhca_qp *qp, const struct vhca_receive *receive)
{
	if (unlikely(vhca_trace_on))
		vhca_trace_receive(qp, receive->index, receive->wqe, receive->n_segments);
	if (unlikely(qp->srq != NULL))
		srq_take(qp->srq, receive);
	else
		qp->rq_ci++;
}

/* ---- scatter ---- */

struct scatter {
	uint32_t n;
	struct vhca_sge sge[VHCA_MAX_SGE];
};

/* As many of the WQE's segments as `length` bytes take, behind the first `skip`. 0, or a syndrome.
 */
static force_inline uint8_t scatter_build_at(struct vhca_qp *qp, const struct vhca_receive *receive,
	uint32_t skip, uint32_t length, struct scatter *scatter)
{
	scatter->n = 0;
	for (uint32_t i = 0; length; i++) {
		struct mlx5_wqe_data_seg seg;
		uint32_t size;
		uint8_t syndrome;

		if (i == receive->n_segments)
			goto too_long;
		vhca_memory_read(&seg, receive->wqe + i * VHCA_SEGMENT, VHCA_SEGMENT);
		size = from_be32(seg.byte_count);
		if (unlikely(size & MLX5_INLINE_SEG)) {
			vhca_rule_report(VHCA_RULE_RECEIVE_INLINE, qp, receive->index, "byte_count",
				size, size & ~(uint32_t)MLX5_INLINE_SEG);
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		}
		if (!size) {
			if (seg.lkey == be32(MLX5_INVALID_LKEY))
				goto too_long;
			vhca_rule_report(VHCA_RULE_SEGMENT_ZERO, qp, receive->index, "byte_count",
				0, VHCA_ANOTHER);
			size = 1u << 31;
		}
		syndrome = vhca_local_access(qp, receive->index, &seg, size, IBV_ACCESS_LOCAL_WRITE,
			&scatter->sge[scatter->n]);
		if (unlikely(syndrome))
			return syndrome;
		if (skip >= size) {
			skip -= size;
			continue;
		}
		size = min(size - skip, length);
		scatter->sge[scatter->n].addr += skip;
		scatter->sge[scatter->n++].length = size;
		length -= size;
		skip = 0;
	}
	return 0;

too_long:
	vhca_rule_report(
		VHCA_RULE_RECEIVE_LENGTH, qp, receive->index, "bytes without room", length, 0);
	return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
}

static inline uint8_t scatter_build(struct vhca_qp *qp, const struct vhca_receive *receive,
	uint32_t length, struct scatter *scatter)
{
	return scatter_build_at(qp, receive, 0, length, scatter);
}

/* Gather list to scatter list, which has room for it. */
static void copy_lists(const struct scatter *to, const struct vhca_message *from)
{
	uint32_t t = 0, to_offset = 0;

	for (uint32_t f = 0; f < from->n_sge; f++) {
		uint32_t from_offset = 0;

		while (from_offset < from->sge[f].length) {
			uint32_t n = min(
				from->sge[f].length - from_offset, to->sge[t].length - to_offset);

			vhca_memory_write(
				to->sge[t].addr + to_offset, from->sge[f].addr + from_offset, n);
			from_offset += n;
			to_offset += n;
			if (to_offset == to->sge[t].length) {
				to_offset = 0;
				t++;
			}
		}
	}
}

static force_inline void copy_message(const struct scatter *to, const struct vhca_message *from)
{
	if (likely(to->n == 1 && from->n_sge == 1))
		vhca_memory_write(to->sge[0].addr, from->sge[0].addr, from->length);
	else
		copy_lists(to, from);
}

/* Where the WQE's first segment has room for all, behind `skip` bytes. False: see
 * scatter_build_at(). */
static force_inline bool scatter_first(struct vhca_qp *qp, const struct vhca_receive *receive,
	uint32_t skip, uint32_t length, struct vhca_sge *sge)
{
	struct mlx5_wqe_data_seg seg;
	const struct vhca_mr *mr;
	uint32_t size;

	vhca_memory_read(&seg, receive->wqe, VHCA_SEGMENT);
	size = from_be32(seg.byte_count);
	if (unlikely(size & MLX5_INLINE_SEG || size < skip + length || !length))
		return false;
	mr = vhca_find_mr(qp->tables, from_be32(seg.lkey));
	if (unlikely(!mr || mr->pd != qp->pd || !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return false;
	sge->addr = vhca_mr_at(mr, from_be64(seg.addr), size);
	if (unlikely(!sge->addr))
		return false;
	sge->addr += skip;
	sge->length = length;
	return true;
}

#endif
