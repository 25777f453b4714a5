/* responder.c - what a message does at its addressee: receive WQEs, scatter, remote access */

#include "vhca/device.h"

#include <endian.h>

/* ---- receive WQEs ---- */

enum { STRIDES_AHEAD = 8 }; /* fetched while others are filled: the program's core has them */

/* The WQE that a message consumes. */
struct receive {
	uint16_t index;     /* what the CQE reports */
	uint16_t next;      /* SRQ: the WQE behind it in the program's chain */
	const uint8_t *wqe; /* its data segments, in the program's memory */
	uint32_t n_segments;
};

static void receive_record_report(struct vhca_qp *qp, uint32_t ahead)
{
	if (vhca_rule_report(VHCA_RULE_RECEIVE_RECORD, qp, qp->rq_ci, "record", qp->rq_pi,
		    (uint16_t)(qp->rq_ci + ahead)))
		vhca_qp_fail(qp);
}

/* Receive WQEs posted and not consumed. The record is read when those known before are used up. */
static always_inline bool rq_has_wqe(struct vhca_qp *qp)
{
	uint16_t ahead;

	if (likely(qp->rq_ci != qp->rq_pi))
		return true;
	if (unlikely(!qp->attr.rq_wqe_count))
		return false;
	qp->rq_pi = (uint16_t)vhca_record_read(&qp->db[0]);
	ahead = (uint16_t)(qp->rq_pi - qp->rq_ci);
	if (unlikely(ahead > qp->rq_mask + 1))
		receive_record_report(qp, qp->rq_mask + 1);
	return ahead;
}

static always_inline bool rq_peek(struct vhca_qp *qp, struct receive *receive)
{
	uint32_t stride = 1u << qp->log2_rq_stride;

	if (!rq_has_wqe(qp))
		return false;
	__builtin_prefetch(qp->rq +
		((size_t)((qp->rq_ci + STRIDES_AHEAD) & qp->rq_mask) << qp->log2_rq_stride));
	receive->index = qp->rq_ci;
	receive->wqe = qp->rq + ((size_t)(qp->rq_ci & qp->rq_mask) << qp->log2_rq_stride) +
		qp->rq_first * VHCA_SEGMENT;
	receive->n_segments = stride / VHCA_SEGMENT - qp->rq_first;
	return true;
}

static bool srq_peek(struct vhca_srq *srq, struct receive *receive)
{
	const struct mlx5_wqe_srq_next_seg *link;
	__be16 next;

	if (srq->taken == srq->posted) {
		srq->posted = (uint16_t)vhca_record_read(srq->db);
		if (srq->taken == srq->posted)
			return false;
	}
	link = (const void *)(srq->buf + ((size_t)srq->head << srq->log2_stride));
	receive->index = srq->head;
	vhca_memory_read(&next, &link->next_wqe_index, sizeof(next));
	receive->next = from_be16(next);
	receive->wqe = (const uint8_t *)(link + 1);
	receive->n_segments = (1u << srq->log2_stride) / VHCA_SEGMENT - 1;
	return true;
}

static always_inline bool receive_peek(struct vhca_qp *qp, struct receive *receive)
{
	return unlikely(qp->srq != NULL) ? srq_peek(qp->srq, receive) : rq_peek(qp, receive);
}

static void srq_take(struct vhca_srq *srq, const struct receive *receive)
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

static always_inline void receive_take(struct vhca_qp *qp, const struct receive *receive)
{
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

/* As many of the WQE's segments as `length` bytes take. 0, or a syndrome. */
static uint8_t scatter_build(
	struct vhca_qp *qp, const struct receive *receive, uint32_t length, struct scatter *scatter)
{
	scatter->n = 0;
	for (uint32_t i = 0; length; i++) {
		struct mlx5_wqe_data_seg seg;
		uint32_t size;
		uint8_t syndrome;

		if (i == receive->n_segments)
			goto too_long;
		vhca_memory_read(&seg, receive->wqe + i * VHCA_SEGMENT, VHCA_SEGMENT);
		size = from_be32(seg.byte_count) & ~(uint32_t)MLX5_INLINE_SEG;
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
		size = min(size, length);
		scatter->sge[scatter->n++].length = size;
		length -= size;
	}
	return 0;

too_long:
	vhca_rule_report(
		VHCA_RULE_RECEIVE_LENGTH, qp, receive->index, "bytes without room", length, 0);
	return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
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

static always_inline void copy_message(const struct scatter *to, const struct vhca_message *from)
{
	if (likely(to->n == 1 && from->n_sge == 1))
		vhca_memory_write(to->sge[0].addr, from->sge[0].addr, from->length);
	else
		copy_lists(to, from);
}

/* ---- outcomes ---- */

static struct vhca_answer answer(enum vhca_answer_kind kind)
{
	return (struct vhca_answer){.kind = kind};
}

static struct vhca_answer not_ready(const struct vhca_qp *qp)
{
	vhca_counters_of(&qp->object)->out_of_buffer++;
	return (struct vhca_answer){.kind = VHCA_RNR, .rnr_timer = qp->set.min_rnr_timer};
}

/* The receive WQE completes in error, the QP fails, and the requester hears why. */
static struct vhca_answer receive_failed(
	struct vhca_qp *qp, const struct receive *receive, uint8_t syndrome)
{
	receive_take(qp, receive);
	vhca_cqe_error(qp, MLX5_CQE_RESP_ERR, syndrome, 0, 0, receive->index);
	vhca_qp_fail(qp);
	return answer(syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR ? VHCA_NAK_INVALID
								     : VHCA_NAK_OPERATION);
}

/* What a remote access may not do fails the QP without any WQE to say so: by an event. */
static struct vhca_answer access_failed(struct vhca_qp *qp)
{
	vhca_counters_of(&qp->object)->resp_remote_access_errors++;
	if (qp->type == IBV_QPT_RC) {
		vhca_event_async(&qp->async, IBV_EVENT_QP_ACCESS_ERR);
		vhca_qp_fail(qp);
	}
	return answer(VHCA_NAK_ACCESS);
}

/* ---- SEND ---- */

static always_inline struct vhca_answer receive_send(
	struct vhca_qp *qp, const struct vhca_message *message)
{
	struct vhca_received received = {
		.opcode = message->opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM
								  : MLX5_CQE_RESP_SEND,
		.length = message->length,
		.imm = message->opcode == MLX5_OPCODE_SEND_IMM ? message->imm : 0,
		.source_qpn = message->qp->number,
		.solicited = message->solicited,
	};
	struct receive receive;
	struct scatter scatter;
	uint8_t syndrome;

	if (unlikely(!receive_peek(qp, &receive)))
		return not_ready(qp);
	syndrome = scatter_build(qp, &receive, message->length, &scatter);
	if (unlikely(syndrome))
		return receive_failed(qp, &receive, syndrome);
	if (message->length <= qp->cqe_scatter && message->length)
		received.inlined = message;
	else
		copy_message(&scatter, message);
	received.wqe_counter = receive.index;
	receive_take(qp, &receive);
	vhca_cqe_receive(qp, &received);
	return answer(VHCA_ACK);
}

/* ---- RDMA write ---- */

/* The bytes that a remote access names, or NULL after a report. */
static uint8_t *remote_access(struct vhca_qp *qp, const struct vhca_message *message, uint32_t need)
{
	const struct vhca_mr *mr = vhca_find_mr(vhca_tables_of(&qp->object), message->rkey);
	struct vhca_qp *from = message->qp;
	uint8_t *memory;

	if (unlikely(!mr)) {
		vhca_rule_report(
			VHCA_RULE_RKEY, from, from->sq_ci, "rkey", message->rkey, VHCA_ANOTHER);
		return NULL;
	}
	if (unlikely(mr->pd != qp->pd)) {
		vhca_rule_report(VHCA_RULE_RKEY, from, from->sq_ci, "PD of the rkey", mr->pd->pdn,
			qp->pd->pdn);
		return NULL;
	}
	if (unlikely(need & ~(mr->access & qp->access))) {
		vhca_rule_report(VHCA_RULE_RKEY_ACCESS, from, from->sq_ci, "access",
			mr->access & qp->access, need);
		return NULL;
	}
	memory = vhca_mr_at(mr, message->raddr, message->length);
	if (unlikely(!memory))
		vhca_rule_report(VHCA_RULE_RKEY_BOUNDS, from, from->sq_ci, "raddr", message->raddr,
			VHCA_ANOTHER);
	return memory;
}

/* A write of no bytes asks for no right, as the architecture has it. */
static bool write_memory(struct vhca_qp *qp, const struct vhca_message *message)
{
	struct scatter scatter;

	vhca_counters_of(&qp->object)->rx_write_requests++;
	if (!message->length)
		return true;
	scatter.n = 1;
	scatter.sge[0].length = message->length;
	scatter.sge[0].addr = remote_access(qp, message, IBV_ACCESS_REMOTE_WRITE);
	if (!scatter.sge[0].addr)
		return false;
	copy_message(&scatter, message);
	return true;
}

static struct vhca_answer receive_write(struct vhca_qp *qp, const struct vhca_message *message)
{
	return write_memory(qp, message) ? answer(VHCA_ACK) : access_failed(qp);
}

static struct vhca_answer receive_write_imm(struct vhca_qp *qp, const struct vhca_message *message)
{
	struct vhca_received received = {
		.opcode = MLX5_CQE_RESP_WR_IMM,
		.length = message->length,
		.imm = message->imm,
		.source_qpn = message->qp->number,
		.solicited = message->solicited,
	};
	struct receive receive;

	if (!receive_peek(qp, &receive))
		return not_ready(qp);
	if (!write_memory(qp, message))
		return access_failed(qp);
	received.wqe_counter = receive.index;
	receive_take(qp, &receive);
	vhca_cqe_receive(qp, &received);
	return answer(VHCA_ACK);
}

struct vhca_answer vhca_respond(struct vhca_qp *qp, const struct vhca_message *message)
{
	switch (message->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM: return receive_send(qp, message);
	case MLX5_OPCODE_RDMA_WRITE: return receive_write(qp, message);
	case MLX5_OPCODE_RDMA_WRITE_IMM: return receive_write_imm(qp, message);
	}
	return answer(VHCA_NAK_INVALID);
}

/* ---- the flush ---- */

unsigned int vhca_responder_flush(struct vhca_qp *qp)
{
	unsigned int n = 0;

	while (n < 64 && rq_has_wqe(qp)) {
		vhca_cqe_error(
			qp, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0, qp->rq_ci);
		qp->rq_ci++;
		n++;
	}
	return n;
}
