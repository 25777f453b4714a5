/* sq_done.c - what the device has completed: bufs released, events filled, an idle tail completed */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/sq.h"

/* A chain, or a buf of another pool: home by the general way. */
static cold void free_foreign(struct vbn_buf *buf)
{
	vbn__buf_debug_done(buf);
	vbn_buf_free(&buf, 1);
}

/* Its length is that of all its bufs. */
cold void vbn__sq_event_of_chain(struct vbn_event *event)
{
	event->len = (uint32_t)vbn_buf_total(event->buf);
}

/* Releases the slots before `end` that have not been: bufs go home, or back to the caller by
 * events[]. Stops at one that needs an event when there is no more room for it. Returns the events
 * filled. */
static force_inline int release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	const uintptr_t *const slots = sq->slots;
	const uint32_t mask = sq->mask;
	struct pool_homecoming home = pool_open(sq->pool);
	struct vbn_event *event = events, *const last = events + n;
	uint16_t tail = sq->tail;
	unsigned int skipped = 0, messages;

	for (; tail != end; tail++) {
		const uintptr_t slot = slots[tail & mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		if (likely(!(slot & SLOT_BITS))) {
			vbn__buf_debug_done(buf);
			pool_take_home(&home, buf);
		} else if (slot & SLOT_EVENT) {
			if (event == last)
				break;
			vbn__buf_debug_done(buf);
			event_fill(mq, slot, buf, status, event++);
		} else if (slot & SLOT_EMPTY) {
			skipped += (slot & (SLOT_FURTHER | SLOT_NOP)) != SLOT_EMPTY;
		} else {
			pool_close(&home);
			free_foreign(buf);
			home = pool_open(sq->pool);
		}
	}
	pool_close(&home);
	messages = (uint16_t)(tail - sq->tail) - skipped;
	if (likely(status == VBN_OK))
		count_add(&mq->queue.stats.tx_done, messages);
	else
		count_add(&mq->queue.stats.tx_flushed, messages);
	sq->tail = tail;
	return (int)(event - events);
}

fast_path int vbn__sq_release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	return release(mq, end, status, events, n);
}

fast_path void vbn__sq_completed(struct sq *sq, uint16_t index)
{
	sq_completed(sq, index);
}

cold void vbn__sq_nop(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;

	ctrl_write(sq_wqebb(sq, sq->head), be32(idx_opcode(sq->head, MLX5_OPCODE_NOP)),
		be32(sq->qpn_shifted | 1), 0);
	sq->slots[sq->head & sq->mask] = SLOT_NOP;
	sq->last = sq->head++;
	sq_signal_last(mq);
	count_add(&mq->queue.stats.tx_nops, 1);
	vbn__sq_flush(&mq->queue);
}

/* Of a queue that has its CQ to itself. Of all that has completed only the newest entry is read. */
fast_path int vbn__sq_reap(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct cq *cq = &mq->own_send_cq;
	uint32_t index = cq_run_end(cq, CQE_IS(MLX5_CQE_REQ));
	const struct mlx5_cqe64 *cqe;
	uint8_t seen;

	if (likely(index != cq->index)) {
		cq_look(cq, index - 1, &cqe);
		sq->pending = (uint16_t)(sq->pending - (index - cq->index));
		sq_completed(sq, from_be16(cqe->wqe_counter));
		cq_consume(cq, index);
		sq->idle_polls = 0;
	} else if (unlikely(sq_tail_is_idle(sq)) && ++sq->idle_polls >= IDLE_POLLS) {
		sq->idle_polls = 0;
		vbn__sq_nop(mq);
	}
	seen = cq_look(cq, index, &cqe);
	if (unlikely(!cqe_absent(seen) && seen != CQE_IS(MLX5_CQE_REQ)))
		vbn__mlx5_failed(mq, true, cqe);
	return release(mq, sq->done, VBN_OK, events, n);
}

fast_path void vbn__sq_make_room(struct mlx5_queue *mq)
{
	struct vbn_event none;

	if (mq->queue.grouped)
		vbn__group_reap(mq->group);
	else if (mq->own_send_cq.compressed)
		vbn__mini_reap(mq, &none, 0);
	else
		vbn__sq_reap(mq, &none, 0);
}
