/* group_sends.c - send completions of queues that share CQs: each finds its queue by QPN */

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/sq.h"

static force_inline void note_idle(struct mlx5_group *group, struct mlx5_queue *mq)
{
	if (mq->in_idle)
		return;
	mq->in_idle = true;
	mq->next_idle = group->idle;
	group->idle = mq;
}

static cold void send_failed(struct mlx5_queue *mq, const struct cq *cq, uint32_t index)
{
	struct mlx5_cqe64 newest;

	if (!mq->queue.failed)
		vbn__mlx5_failed(mq, true, cq_entry(cq, index));
	if (vbn__mini_newest(cq, index, &newest))
		vbn__failed_send_cqe(mq, &newest);
	vbn__group_backlog(mq);
}

/* A completion that releases one slot is what most are where queues are many and bursts short. */
static force_inline bool release_one(
	struct mlx5_queue *mq, uint16_t index, struct vbn_event *events, int n, int *got)
{
	struct sq *sq = &mq->sq;
	const uintptr_t slot = sq->slots[index & sq->mask];
	struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

	if (sq->tail != index || sq->done != (uint16_t)(index + 1))
		return false;
	if (!(slot & SLOT_BITS)) {
		vbn__buf_debug_done(buf);
		pool_push(sq->pool, buf);
	} else if (slot & SLOT_EVENT && n) {
		vbn__buf_debug_done(buf);
		event_fill(mq, slot, buf, VBN_OK, events);
		*got = 1;
	} else {
		return false;
	}
	sq->tail = sq->done;
	count_add(&mq->queue.stats.tx_done, 1);
	return true;
}

/* `entries` of the CQ say that what is up to the WQE at `index` has completed. */
static force_inline int send_done(struct mlx5_group *group, struct mlx5_queue *mq, uint16_t index,
	uint32_t entries, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	int got = 0;

	sq->pending = (uint16_t)(sq->pending - entries);
	sq_completed(sq, index);
	if (unlikely(!release_one(mq, index, events, n, &got))) {
		got = vbn__sq_release(mq, sq->done, VBN_OK, events, n);
		if (unlikely(sq->tail != sq->done))
			vbn__group_backlog(mq);
	}
	if (unlikely(sq_tail_is_idle(sq)))
		note_idle(group, mq);
	return got;
}

/* The CQ is looked at through a copy: what does not change stays in registers. */
static noinline fast_path int poll_plain(
	struct mlx5_group *group, struct cq *cq, struct vbn_event *events, int n)
{
	const struct cq ring = *cq;
	uint32_t index = ring.index;
	int got = 0;

	for (;; index++) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(&ring, index, &cqe);
		struct mlx5_queue *mq;

		if (cqe_absent(seen))
			break;
		mq = group_find(group, cqe_qpn(cqe));
		if (unlikely(!mq))
			continue;
		if (likely(seen == CQE_IS(MLX5_CQE_REQ) && !mq->queue.failed))
			got += send_done(
				group, mq, from_be16(cqe->wqe_counter), 1, events + got, n - got);
		else
			send_failed(mq, &ring, index);
	}
	if (index != ring.index) {
		cq_consume(cq, index);
		group->idle_polls = 0;
	}
	return got;
}

/* Of an entry, whole or a session's title: how many completions it stands for, 0 where it is no such
 * or cannot be; and the WQE of the newest. */
static force_inline uint32_t completions(const struct mlx5_queue *mq, const struct cq *cq,
	uint32_t index, const struct mlx5_cqe64 *cqe, uint8_t seen, uint16_t *wqe)
{
	uint32_t n;

	if (seen == CQE_IS(MLX5_CQE_REQ)) {
		*wqe = from_be16(cqe->wqe_counter);
		return 1;
	}
	n = session_of_sends(cqe, seen, mq->sq.pending);
	if (n)
		*wqe = session_newest(cq, index, n);
	return n;
}

static noinline fast_path int poll_compressed(
	struct mlx5_group *group, struct cq *cq, struct vbn_event *events, int n)
{
	const struct cq ring = *cq;
	uint32_t index = ring.index, span;
	int got = 0;

	for (;; index += span) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(&ring, index, &cqe);
		struct mlx5_queue *mq;
		uint32_t entries;
		uint16_t wqe;

		if (cqe_absent(seen))
			break;
		span = cqe_span(&ring, cqe, seen);
		mq = group_find(group, cqe_qpn(cqe));
		if (likely(mq && !mq->queue.failed)) {
			entries = completions(mq, &ring, index, cqe, seen, &wqe);
			if (likely(entries)) {
				got += send_done(group, mq, wqe, entries, events + got, n - got);
				count_add(&mq->queue.stats.tx_compressed, span > 1 ? span : 0);
			} else {
				send_failed(mq, &ring, index);
				span = 1; /* of what is not believed, each entry is looked at */
			}
		} else if (mq) {
			send_failed(mq, &ring, index);
		}
		if (span > 1)
			slots_done(&ring, index, span);
	}
	if (index != ring.index) {
		cq_consume(cq, index);
		group->idle_polls = 0;
	}
	return got;
}

fast_path int vbn__group_sends(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct shared_cq *shared = load_acquire(&group->send_cqs); shared;
		shared = shared->next)
		got += poll_plain(group, &shared->cq, events + got, n - got);
	return got;
}

fast_path int vbn__group_sends_any(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct shared_cq *shared = load_acquire(&group->send_cqs); shared;
		shared = shared->next)
		got += (shared->cq.compressed ? poll_compressed : poll_plain)(
			group, &shared->cq, events + got, n - got);
	return got;
}

fast_path void vbn__group_reap(struct mlx5_group *group)
{
	struct vbn_event none;

	vbn__group_sends_any(group, &none, 0);
}

/* Tails that have seen nothing for so many polls are asked for. */
cold void vbn__group_complete_idle(struct mlx5_group *group)
{
	struct mlx5_queue *mq = group->idle;

	group->idle = NULL;
	group->idle_polls = 0;
	while (mq) {
		struct mlx5_queue *next = mq->next_idle;

		mq->in_idle = false;
		if (!mq->queue.failed && sq_tail_is_idle(&mq->sq))
			vbn__sq_nop(mq);
		mq = next;
	}
}
