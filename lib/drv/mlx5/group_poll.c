/* group_poll.c - completions of queues that share CQs: each finds its queue by QPN; what there is no
 * room for waits in the order it came */

#include "drv/mlx5/cq.h"
#include "drv/mlx5/group.h"
#include "drv/mlx5/rq.h"
#include "drv/mlx5/sq.h"

enum { IDLE_POLLS = 32 }; /* empty polls before unsignalled tails are completed by NOPs */

/* ---- lists: each queue is in each at most once ---- */

void vbn__group_backlog(struct mlx5_queue *mq)
{
	struct mlx5_group *group = mq->group;

	if (mq->in_backlog)
		return;
	mq->in_backlog = true;
	mq->next_backlog = NULL;
	if (group->backlog)
		group->backlog_last->next_backlog = mq;
	else
		group->backlog = mq;
	group->backlog_last = mq;
}

static force_inline void note_idle(struct mlx5_group *group, struct mlx5_queue *mq)
{
	if (mq->in_idle)
		return;
	mq->in_idle = true;
	mq->next_idle = group->idle;
	group->idle = mq;
}

static force_inline void note_short(struct mlx5_group *group, struct mlx5_queue *mq)
{
	if (mq->in_short)
		return;
	mq->in_short = true;
	mq->next_short = group->short_rings;
	group->short_rings = mq;
}

/* ---- sends ---- */

static cold void send_failed(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	if (!mq->queue.failed)
		vbn__mlx5_failed(mq, true, cqe);
	vbn__failed_send_cqe(mq, cqe);
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

static force_inline int send_done(struct mlx5_group *group, struct mlx5_queue *mq, uint16_t index,
	struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	int got = 0;

	sq->pending--;
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
static fast_path int poll_sends(
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
				group, mq, from_be16(cqe->wqe_counter), events + got, n - got);
		else
			send_failed(mq, cqe);
	}
	if (index != ring.index) {
		cq_consume(cq, index);
		group->idle_polls = 0;
	}
	return got;
}

static fast_path int poll_all_sends(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct shared_cq *shared = group->send_cqs; shared; shared = shared->next)
		got += poll_sends(group, &shared->cq, events + got, n - got);
	return got;
}

void vbn__group_reap(struct mlx5_group *group)
{
	struct vbn_event none;

	poll_all_sends(group, &none, 0);
}

/* ---- receives ---- */

static cold void recv_failed(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	if (!mq->queue.failed)
		vbn__mlx5_failed(mq, false, cqe);
	vbn__failed_recv_cqe(mq, cqe);
	vbn__group_backlog(mq);
}

/* One message, unless the entry is an error. */
static force_inline int recv_one(struct mlx5_group *group, struct mlx5_queue *mq,
	const struct mlx5_cqe64 *cqe, uint8_t seen, struct vbn_event *event)
{
	struct rq *rq = mq->rq;
	struct arrival arrival = {.len = from_be32(cqe->byte_cnt), .op = VBN_OP_RECV};
	const uint16_t index = rq->linked ? from_be16(cqe->wqe_counter) : rq->tail;
	struct vbn_buf *buf = rq->slots[index & rq->mask];

	if (unlikely(seen != CQE_IS(MLX5_CQE_RESP_SEND)) &&
		!vbn__rq_take_other(mq, cqe, seen, buf, &arrival)) {
		recv_failed(mq, cqe);
		return 0;
	}
	if (rq->linked) {
		srq_take(rq, index);
	} else {
		rq->tail++;
		note_short(group, mq);
	}
	buf_receive(rq, buf, len_and_word(rq->pool, 0), cqe, &arrival, rq->datagrams);
	recv_event(mq, buf, &arrival, event);
	count_add(&mq->queue.stats.rx_messages, 1);
	count_add(&mq->queue.stats.rx_bytes, arrival.len);
	return 1;
}

static fast_path int poll_receives(
	struct mlx5_group *group, struct cq *cq, struct vbn_event *events, int n)
{
	const struct cq ring = *cq;
	uint32_t index = ring.index;
	int got = 0;

	for (; got < n; index++) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(&ring, index, &cqe);
		struct mlx5_queue *mq;

		if (cqe_absent(seen))
			break;
		mq = group_find(group, cqe_qpn(cqe));
		if (likely(mq))
			got += recv_one(group, mq, cqe, seen, &events[got]);
	}
	if (index != ring.index) {
		cq_consume(cq, index);
		group->idle_polls = 0;
	}
	return got;
}

/* Posts again what was taken; a ring that stays short, its pool being empty, is tried again. */
static force_inline void refill_short(struct mlx5_group *group)
{
	struct mlx5_queue *mq = group->short_rings;

	group->short_rings = NULL;
	while (mq) {
		struct mlx5_queue *next = mq->next_short;

		mq->in_short = false;
		if (likely(!mq->queue.failed)) {
			vbn__rq_refill(mq);
			if (unlikely(ring_is_short(mq->rq)))
				note_short(group, mq);
		}
		mq = next;
	}
}

/* The pool does not keep up: said once, until the ring is full again. */
static cold int limit_event(struct mlx5_srq *srq, struct vbn_event *event)
{
	srq->below = true;
	count_add(&srq->srq.limits, 1);
	*event = (struct vbn_event){
		.cookie = srq->srq.conf.context, .op = VBN_OP_SRQ_LIMIT, .status = VBN_OK};
	return 1;
}

static force_inline int refill_shared(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct mlx5_srq *srq = group->srqs; srq; srq = srq->next) {
		if (likely(srq->rq.posted == srq->rq.depth))
			continue;
		count_add(&srq->srq.no_buf, vbn__srq_refill(&srq->rq));
		if (srq->rq.posted == srq->rq.depth)
			srq->below = false;
		else if (srq->rq.posted < srq->srq.conf.limit && !srq->below && got < n)
			got += limit_event(srq, &events[got]);
	}
	return got;
}

/* ---- the poll ---- */

static cold int serve_backlog(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	while (group->backlog && got < n) {
		struct mlx5_queue *mq = group->backlog;
		bool more;

		if (mq->queue.failed) {
			got += vbn__failed_events(mq, events + got, n - got);
			more = vbn__failed_has_more(mq);
		} else {
			got += vbn__sq_release(mq, mq->sq.done, VBN_OK, events + got, n - got);
			more = mq->sq.tail != mq->sq.done;
		}
		if (more && got == n)
			break;
		group->backlog = mq->next_backlog;
		mq->in_backlog = false;
	}
	return got;
}

/* Tails that have seen nothing for so many polls are asked for. */
static cold void complete_idle(struct mlx5_group *group)
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

/* Receives first, so that what had arrived on a queue comes before its failure; then what waits, and
 * then sends, whose failures wait for the next poll. */
fast_path int vbn__group_poll(struct queue_group *base, struct vbn_event *events, int n)
{
	struct mlx5_group *group = container_of(base, struct mlx5_group, group);
	int got = 0;

	for (struct shared_cq *shared = group->recv_cqs; shared && got < n; shared = shared->next)
		got += poll_receives(group, &shared->cq, events + got, n - got);
	refill_short(group);
	got += refill_shared(group, events + got, n - got);
	if (unlikely(group->backlog && got < n))
		got += serve_backlog(group, events + got, n - got);
	got += poll_all_sends(group, events + got, n - got);
	if (unlikely(group->idle && ++group->idle_polls >= IDLE_POLLS))
		complete_idle(group);
	return got;
}

static int queue_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)events, (void)n;
	vbn__group_reap(mlx5_queue(queue)->group);
	return 0;
}

static int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return -EOPNOTSUPP;
}

void vbn__group_ops(struct queue_ops *ops)
{
	ops->recv = no_recv;
	ops->poll = queue_poll;
}
