/* sq_done.c - what the device has completed: bufs released, events filled, an idle tail completed */

#include "drv/mlx5/cq.h"
#include "drv/mlx5/sq.h"

/* Polls that must see an idle, unsignalled tail before a NOP is sent to complete it: a worker that
 * is about to send more does that sooner, and its next flush asks for the completion. */
enum { IDLE_POLLS = 32 };

static enum vbn_op wqe_op(const struct sq *sq, uint16_t index)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = sq_wqebb(sq, index);

	switch (from_be32(ctrl->opmod_idx_opcode) & 0xff) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM: return VBN_OP_WRITE;
	case MLX5_OPCODE_RDMA_READ: return VBN_OP_READ;
	case MLX5_OPCODE_ATOMIC_FA: return VBN_OP_FETCH_ADD;
	case MLX5_OPCODE_ATOMIC_CS: return VBN_OP_CMP_SWAP;
	default: return VBN_OP_SEND;
	}
}

static force_inline void event_fill(struct mlx5_queue *mq, uint16_t index, struct vbn_buf *buf,
	enum vbn_status status, struct vbn_event *event)
{
	*event = (struct vbn_event){
		.queue = &mq->queue,
		.buf = buf,
		.cookie = buf->flags & VBN_BUF_COOKIE ? buf->cookie : NULL,
		.len = unlikely(buf->flags & VBN_BUF_CHAIN) ? (uint32_t)vbn_buf_total(buf)
							    : buf->len,
		.op = (uint8_t)wqe_op(&mq->sq, index),
		.status = (uint8_t)status,
	};
	buf->flags &= (uint8_t)~VBN_BUF_COOKIE;
}

/* Releases the slots before `end` that have not been: bufs go home, or back to the caller by
 * events[]. Stops at one that needs an event when there is no more room for it. Returns the events
 * filled. */
static force_inline int release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct pool_homecoming home = pool_open(sq->pool);
	uint16_t tail = sq->tail;
	unsigned int skipped = 0, messages;
	int got = 0;

	for (; tail != end; tail++) {
		uintptr_t slot = sq->slots[tail & sq->mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		if (likely(!(slot & SLOT_BITS))) {
			vbn__buf_debug_done(buf);
			pool_take_home(&home, buf);
		} else if (slot & SLOT_EVENT) {
			if (got == n)
				break;
			vbn__buf_debug_done(buf);
			event_fill(mq, tail, buf, status, &events[got++]);
		} else if (slot & SLOT_FOREIGN) {
			pool_close(&home);
			vbn__buf_debug_done(buf);
			vbn_buf_free(&buf, 1);
			home = pool_open(sq->pool);
		} else {
			skipped += (slot & (SLOT_FURTHER | SLOT_NOP)) != 0;
		}
	}
	pool_close(&home);
	messages = (uint16_t)(tail - sq->tail) - skipped;
	if (likely(status == VBN_OK))
		count_add(&mq->queue.stats.tx_done, messages);
	else
		count_add(&mq->queue.stats.tx_flushed, messages);
	sq->tail = tail;
	return got;
}

fast_path int vbn__sq_release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	return release(mq, end, status, events, n);
}

/* One CQE completes its WQE and all before it. A WQE of several WQEBBs is named by its first. */
static force_inline void completed(struct sq *sq, uint16_t index)
{
	index++;
	while (unlikely(index != sq->head && sq->slots[index & sq->mask] & SLOT_FURTHER))
		index++;
	sq->done = index;
}

fast_path void vbn__sq_completed(struct sq *sq, uint16_t index)
{
	completed(sq, index);
}

cold void vbn__sq_nop(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;

	ctrl_write(sq_wqebb(sq, sq->head), be32(idx_opcode(sq->head, MLX5_OPCODE_NOP)),
		be32(sq->qpn_shifted | 1), 0);
	sq->slots[sq->head & sq->mask] = SLOT_EMPTY | SLOT_NOP;
	sq->last = sq->head++;
	sq_signal_last(mq);
	count_add(&mq->queue.stats.tx_nops, 1);
	vbn__sq_flush(&mq->queue);
}

/* Of a queue that has its CQ to itself. */
fast_path int vbn__sq_reap(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct cq *cq = &mq->own_send_cq;
	uint32_t index = cq->index;
	const struct mlx5_cqe64 *cqe;
	uint16_t newest = 0;
	uint8_t seen;

	while ((seen = cq_look(cq, index, &cqe)) == CQE_IS(MLX5_CQE_REQ)) {
		newest = from_be16(cqe->wqe_counter);
		index++;
	}
	if (likely(index != cq->index)) {
		sq->pending = (uint16_t)(sq->pending - (index - cq->index));
		completed(sq, newest);
		cq_consume(cq, index);
		sq->idle_polls = 0;
	} else if (unlikely(sq_tail_is_idle(sq)) && ++sq->idle_polls >= IDLE_POLLS) {
		sq->idle_polls = 0;
		vbn__sq_nop(mq);
	}
	if (unlikely(!cqe_absent(seen)))
		vbn__mlx5_failed(mq, true, cqe);
	return release(mq, sq->done, VBN_OK, events, n);
}

fast_path void vbn__sq_make_room(struct mlx5_queue *mq)
{
	if (mq->queue.grouped)
		vbn__group_reap(mq->group);
	else
		vbn__sq_reap(mq, NULL, 0);
}
