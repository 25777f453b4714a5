/* failed.c - the data path of a failed queue: what it had comes back in order, and it is done when
 * the device has flushed everything */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"
#include "drv/mlx5/sq.h"

/* ---- what the device flushes: each WQE that it had not completed, one CQE each, signalled or not
 * ---- */

/* Of WQEs that were completed and asked for no CQE the device says nothing, and it may have nothing
 * else to flush. A NOP behind them is flushed in any case. */
static void drain(struct mlx5_queue *mq)
{
	struct failure *failure = &mq->failure;

	if (failure->drained || !failure->in_error || failure->silent ||
		failure->flushed == mq->sq.head || !sq_room(&mq->sq))
		return;
	failure->drained = true;
	vbn__sq_nop(mq);
}

static void see_flush_end(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;
	uint16_t *flushed = &mq->failure.flushed;

	while (*flushed != sq->head && slot_is_further(sq->slots[*flushed & sq->mask]))
		(*flushed)++;
	/* What was staged and never rung the device does not know. */
	if (*flushed == sq->rung || mq->failure.silent)
		*flushed = sq->head;
}

/* Whether a is before b, both being in the ring. */
static bool is_before(const struct sq *sq, uint16_t a, uint16_t b)
{
	return (uint16_t)(a - sq->tail) < (uint16_t)(b - sq->tail);
}

/* Everything before the first that is flushed has been carried out. */
void vbn__failed_send_cqe(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	struct sq *sq = &mq->sq;
	struct failure *failure = &mq->failure;
	const uint16_t index = from_be16(cqe->wqe_counter), end = (uint16_t)(index + 1);
	const bool is_flush = cqe->op_own >> 4 == MLX5_CQE_REQ_ERR;

	if (!failure->flushing) {
		failure->flushing = is_flush;
		if (is_before(sq, sq->done, is_flush ? index : end))
			sq->done = is_flush ? index : end;
		if (is_before(sq, failure->flushed, sq->done))
			failure->flushed = sq->done;
	}
	if (is_flush && is_before(sq, failure->flushed, end))
		failure->flushed = end;
}

void vbn__failed_recv_cqe(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	struct rq *rq = mq->rq;
	struct vbn_buf *buf;

	if (cqe->op_own >> 4 != MLX5_CQE_RESP_ERR)
		return;
	if (rq->linked)
		buf = srq_take(rq, from_be16(cqe->wqe_counter));
	else if (rq->tail != rq->head)
		buf = rq->slots[rq->tail++ & rq->mask];
	else
		return;
	pool_push(rq->pool, buf);
	count_add(&mq->queue.stats.rx_flushed, 1);
}

/* No CQE will tell of these. */
static void drop_receives(struct mlx5_queue *mq)
{
	struct rq *rq = mq->rq;

	if (rq->linked)
		return;
	count_add(&mq->queue.stats.rx_flushed, (uint16_t)(rq->head - rq->tail));
	for (; rq->tail != rq->head; rq->tail++)
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
}

/* ---- what is given back ---- */

static int failed_event(struct mlx5_queue *mq, struct vbn_event *event)
{
	mq->failure.reported = true;
	*event = (struct vbn_event){
		.queue = &mq->queue, .op = VBN_OP_FAILED, .status = (uint8_t)mq->failure.status};
	return 1;
}

/* What was carried out comes before the failure, so that must be known: by the error itself, by the
 * first flushed send, or because there is nothing to know. */
static bool may_report(const struct mlx5_queue *mq)
{
	const struct failure *failure = &mq->failure;

	return failure->of_send || failure->flushing || failure->silent || !failure->in_error ||
		failure->flushed == mq->sq.head;
}

/* In order: what was carried out before the failure, the failure, and then the outstanding work:
 * the WQE that failed with its own status, those behind it flushed. */
int vbn__failed_events(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	int got = 0;

	see_flush_end(mq);
	drain(mq);
	if (mq->failure.silent)
		drop_receives(mq);
	if (!mq->failure.reported) {
		got = vbn__sq_release(mq, sq->done, VBN_OK, events, n);
		if (sq->tail != sq->done || got == n || !may_report(mq))
			return got;
		got += failed_event(mq, events + got);
	}
	if (mq->failure.of_send && sq->tail == mq->failure.wqe && mq->failure.flushed != sq->tail) {
		got += vbn__sq_release(
			mq, (uint16_t)(sq->tail + 1), mq->failure.status, events + got, n - got);
		if (sq->tail == mq->failure.wqe)
			return got; /* no room for its event */
		mq->failure.of_send = false;
	}
	return got + vbn__sq_release(mq, mq->failure.flushed, VBN_FLUSHED, events + got, n - got);
}

/* Whether there is something to give back at once. */
bool vbn__failed_has_more(const struct mlx5_queue *mq)
{
	if (!mq->failure.reported)
		return mq->sq.tail != mq->sq.done || may_report(mq);
	return mq->sq.tail != mq->failure.flushed;
}

/* Of CQs of its own, what follows the failure belongs to it. */
static void follow_flush(struct mlx5_queue *mq)
{
	struct cq *send = &mq->own_send_cq, *recv = &mq->own_recv_cq;
	const struct mlx5_cqe64 *cqe;
	struct mlx5_cqe64 newest;
	uint32_t span;

	while ((span = vbn__mini_newest(send, send->index, &newest))) {
		vbn__failed_send_cqe(mq, &newest);
		slots_done(send, send->index, span);
		cq_consume(send, send->index + span);
	}
	while (cq_look(recv, recv->index, &cqe) == CQE_IS(MLX5_CQE_RESP_ERR)) {
		vbn__failed_recv_cqe(mq, cqe);
		cq_consume(recv, recv->index + 1);
	}
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = vbn__rq_take(mq, bufs, NULL, n);

	if (got)
		return got;
	follow_flush(mq);
	return -EPIPE;
}

/* What had arrived comes before the failure. */
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = n ? vbn__rq_take(mq, NULL, events, n) : 0;

	if (got == n)
		return got;
	follow_flush(mq);
	return got + vbn__failed_events(mq, events + got, n - got);
}

static int failed_group_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)events, (void)n;
	vbn__group_reap(mlx5_queue(queue)->group);
	return 0;
}

static int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)bufs, (void)n, (void)queue;
	return -EPIPE;
}

/* It takes nothing any more, and gives back what it has. */
void vbn__failed_ops(struct mlx5_queue *mq)
{
	mq->ops = vbn__refusing_ops;
	mq->ops.recv = mq->queue.grouped ? no_recv : failed_recv;
	mq->ops.poll = mq->queue.grouped ? failed_group_poll : failed_poll;
	mq->ops.outstanding = vbn__sq_outstanding;
	mq->queue.ops = &mq->ops;
}

static bool cq_has(const struct cq *cq, uint32_t qpn)
{
	const struct mlx5_cqe64 *cqe;
	uint8_t seen;

	if (cq->session && session_ready(cq->session) && cq->session->qpn == qpn)
		return true;
	for (uint32_t i = 0; i <= cq->mask; i += cqe_span(cq, cqe, seen)) {
		seen = cq_look(cq, cq->index + i, &cqe);
		if (cqe_absent(seen))
			return false;
		if (cqe_qpn(cqe) == qpn)
			return true;
	}
	return false;
}

/* Whether CQEs of it are left to be read. Those that tell of a shared ring's receives count even where
 * nothing is to be learnt any more. */
static bool has_unread(const struct mlx5_queue *mq)
{
	const uint32_t qpn = mq->queue.number;

	if (mq->failure.silent)
		return mq->rq->linked && cq_has(mq->recv_cq, qpn);
	return cq_has(mq->send_cq, qpn) || cq_has(mq->recv_cq, qpn);
}

/* Everything it had has been given back, and no CQE of it is left to be read. */
bool vbn__failed_is_quiet(const struct vbn_queue *queue)
{
	const struct mlx5_queue *mq = container_of(queue, const struct mlx5_queue, queue);

	return mq->failure.reported && mq->sq.tail == mq->sq.head &&
		(mq->rq->linked || mq->rq->tail == mq->rq->head) && !has_unread(mq);
}
