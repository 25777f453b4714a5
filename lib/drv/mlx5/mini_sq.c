/* mini_sq.c - send completions that come compressed: of each session the newest says it all */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/sq.h"

uint32_t vbn__mini_newest(const struct cq *cq, uint32_t index, struct mlx5_cqe64 *whole)
{
	const struct mlx5_cqe64 *cqe;
	const uint8_t seen = cq_look(cq, index, &cqe);
	uint32_t n;

	if (cqe_absent(seen))
		return 0;
	*whole = *cqe;
	n = session_of_sends(cqe, seen, cq->mask + 1);
	if (!n)
		return cqe_span(cq, cqe, seen);
	whole->wqe_counter = be16(session_newest(cq, index, n));
	whole->op_own &= (uint8_t)~CQE_FORMAT;
	return n;
}

/* What has completed, up to what is no completion: the index behind it. *odd is the entry there, if
 * there is one. */
static force_inline uint32_t look_on(struct mlx5_queue *mq, const struct mlx5_cqe64 **odd)
{
	struct sq *sq = &mq->sq;
	const struct cq *cq = &mq->own_send_cq;
	uint32_t index = cq->index, n;
	uint64_t compressed = 0;

	for (;; index += n) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(cq, index, &cqe);

		if (seen == CQE_IS(MLX5_CQE_REQ)) {
			n = 1;
			sq_completed(sq, from_be16(cqe->wqe_counter));
		} else {
			*odd = cqe_absent(seen) ? NULL : cqe;
			n = *odd ? session_of_sends(cqe, seen, sq->pending) : 0;
			if (!n)
				break;
			sq_completed(sq, session_newest(cq, index, n));
			slots_done(cq, index, n);
			compressed += n;
		}
		sq->pending = (uint16_t)(sq->pending - n);
	}
	count_add(&mq->queue.stats.tx_compressed, compressed);
	return index;
}

fast_path int vbn__mini_reap(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct cq *cq = &mq->own_send_cq;
	const struct mlx5_cqe64 *odd;
	const uint32_t index = look_on(mq, &odd);

	if (likely(index != cq->index)) {
		cq_consume(cq, index);
		sq->idle_polls = 0;
	} else if (unlikely(sq_tail_is_idle(sq)) && ++sq->idle_polls >= IDLE_POLLS) {
		sq->idle_polls = 0;
		vbn__sq_nop(mq);
	}
	if (unlikely(odd))
		vbn__mlx5_failed(mq, true, odd);
	return vbn__sq_release(mq, sq->done, VBN_OK, events, n);
}
