/* raw_failed.c - why a raw queue has failed, and its data path from then on: what it had comes back in
 * order */

#include "drv/mlx5/raw.h"

#include <stdio.h>

/* ---- the cause ---- */

static bool is_error(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4 == MLX5_CQE_REQ_ERR || cqe->op_own >> 4 == MLX5_CQE_RESP_ERR;
}

static bool is_flush(const struct mlx5_cqe64 *cqe)
{
	const struct mlx5_err_cqe *error = (const void *)cqe;

	return is_error(cqe) && error->syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
}

static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n);
static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n);

/* The queue takes nothing from here on. */
static void begin(struct raw_queue *raw, enum vbn_status status)
{
	uint32_t (*const outstanding)(const struct vbn_queue *) = raw->ops.outstanding;

	raw->queue.failed = true;
	raw->queue.refusal = -EPIPE;
	raw->failure = (struct raw_failure){.status = status};
	raw->ops = vbn__refusing_ops;
	raw->ops.poll = failed_poll;
	raw->ops.recv = failed_recv;
	raw->ops.outstanding = outstanding;
	raw->queue.ops = &raw->ops;
}

static void fail_by_news(struct raw_queue *raw, uint32_t news)
{
	struct vbn_queue *queue = &raw->queue;

	begin(raw,
		news & NEWS_DEVICE       ? VBN_DEVICE_ERROR
			: news & NEWS_CQ ? VBN_CQ_ERROR
					 : VBN_FLUSHED);
	snprintf(queue->error, sizeof(queue->error), "queue %s/%u failed: %s",
		queue->port->info.name, queue->number,
		news & NEWS_DEVICE ? "its device reports a fatal error"
			: news & NEWS_CQ
			? "a completion queue of it has failed: it was overrun, or the device could not write it"
			: "the device has it in the error state, or it was reset");
}

cold void vbn__raw_stride_failed(struct raw_queue *raw, uint32_t count, uint32_t at)
{
	struct vbn_queue *queue = &raw->queue;

	if (queue->failed)
		return;
	begin(raw, VBN_DEVICE_ERROR);
	raw->failure.nonsense = true;
	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: the device wrote a completion (count %#x at %u) that is of no packet in strides behind %u of WQE %u: report it, with this line",
		queue->port->info.name, queue->number, count, at, raw->strides.used, raw->rq.tail);
}

cold void vbn__raw_failed(struct raw_queue *raw, const struct mlx5_cqe64 *cqe)
{
	const struct mlx5_err_cqe *error = (const void *)cqe;
	struct vbn_queue *queue = &raw->queue;
	const uint32_t ended = __atomic_load_n(&queue->cause, __ATOMIC_RELAXED);
	enum vbn_status status;

	if (queue->failed)
		return;
	if (is_flush(cqe) && ended) { /* of what made the control thread end it */
		fail_by_news(raw, ended);
		return;
	}
	if (!is_error(cqe)) {
		begin(raw, VBN_DEVICE_ERROR);
		raw->failure.nonsense = true;
		snprintf(queue->error, sizeof(queue->error),
			"queue %s/%u failed: the device wrote a completion with opcode %u and format %u, which was not asked for: report it, with this line",
			queue->port->info.name, queue->number, cqe->op_own >> 4,
			cqe->op_own >> 2 & 3);
		return;
	}
	status = vbn__mlx5_status(error->syndrome);
	begin(raw, status);
	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: %s (syndrome %#x, vendor syndrome %#x) for WQE %u, a raw packet to be %s: %s",
		queue->port->info.name, queue->number, vbn_status_text(status), error->syndrome,
		error->vendor_err_synd, from_be16((be_force __be16)error->wqe_counter),
		cqe->op_own >> 4 == MLX5_CQE_REQ_ERR ? "sent" : "received",
		vbn__rdma_remedy(status));
}

/* An error that waits in a CQ, and is no flush, says more than an event. */
static const struct mlx5_cqe64 *find_error(const struct cq *cq)
{
	const struct mlx5_cqe64 *cqe;
	uint8_t seen;

	for (uint32_t i = 0; cq->ibv && i <= cq->mask; i += cqe_span(cq, cqe, seen)) {
		seen = cq_look(cq, cq->index + i, &cqe);
		if (cqe_absent(seen))
			break;
		if (is_error(cqe) && !is_flush(cqe))
			return cqe;
	}
	return NULL;
}

/* What the control thread has heard. */
cold void vbn__raw_news(struct vbn_queue *queue, uint32_t news)
{
	struct raw_queue *raw = raw_queue(queue);
	const struct mlx5_cqe64 *error;

	if (!queue->connected)
		return;
	error = find_error(&raw->send_cq);
	if (!error)
		error = find_error(&raw->recv_cq);
	if (!queue->failed && error && !(news & (NEWS_DEVICE | NEWS_CQ)))
		vbn__raw_failed(raw, error);
	else if (!queue->failed)
		fail_by_news(raw, news);
	raw->failure.silent |=
		(news & (NEWS_DEVICE | NEWS_CQ)) != 0 || (queue->ended && raw->failure.nonsense);
}

/* ---- what the device flushes ---- */

/* The newest WQE that was rung is the last one to come back; what was staged behind it the device does
 * not know. */
static void follow_sends(struct raw_queue *raw)
{
	struct raw_sq *sq = &raw->sq;
	struct cq *cq = &raw->send_cq;
	const struct mlx5_cqe64 *cqe;
	uint8_t seen;

	for (;;) {
		seen = cq_look(cq, cq->index, &cqe);
		if (seen != CQE_IS(MLX5_CQE_REQ) && seen != CQE_IS(MLX5_CQE_REQ_ERR))
			break;
		if (seen == CQE_IS(MLX5_CQE_REQ) && sq->marks_tail != sq->marks_head) {
			const struct raw_mark *mark = &sq->marks[sq->marks_tail++ & sq->mask];

			sq->tail = mark->wqebbs;
			sq->done = mark->packets;
		} else if (seen == CQE_IS(MLX5_CQE_REQ_ERR) &&
			from_be16(cqe->wqe_counter) == sq->rung_last) {
			raw->failure.flushed = true;
		}
		cq_consume(cq, cq->index + 1);
	}
	if (sq->done == sq->sent || raw->failure.silent)
		raw->failure.flushed = true;
}

/* The oldest receive comes back; of a striding ring it is memory of the ring's own. */
static void flush_receive(struct raw_queue *raw)
{
	struct rq *rq = &raw->rq;

	if (rq->tail == rq->head)
		return;
	if (rq->slots)
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
	rq->tail++;
	raw->strides.used = 0;
	count_add(&raw->queue.stats.rx_flushed, 1);
}

static void follow_receives(struct raw_queue *raw)
{
	struct rq *rq = &raw->rq;
	struct cq *cq = &raw->recv_cq;
	const struct mlx5_cqe64 *cqe;

	if (!raw->wq)
		return;
	while (cq_look(cq, cq->index, &cqe) == CQE_IS(MLX5_CQE_RESP_ERR)) {
		cq_consume(cq, cq->index + 1);
		flush_receive(raw);
	}
	while (raw->failure.silent && rq->tail != rq->head)
		flush_receive(raw);
}

/* ---- what is given back ---- */

/* Where no receive is outstanding nothing can have arrived, whatever a CQE says. */
static int take(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	return raw->wq && raw->rq.tail != raw->rq.head ? vbn__raw_take(raw, bufs, n) : 0;
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct raw_queue *raw = raw_queue(queue);
	const int got = take(raw, bufs, n);

	if (got)
		return got;
	follow_sends(raw);
	follow_receives(raw);
	return -EPIPE;
}

static int arrived(struct raw_queue *raw, struct vbn_event *events, int n)
{
	struct vbn_buf *buf;
	int got = 0;

	while (got < n && take(raw, &buf, 1) == 1)
		events[got++] = (struct vbn_event){
			.queue = &raw->queue, .buf = buf, .len = buf->len, .op = VBN_OP_RECV};
	return got;
}

/* What had arrived comes before the failure, and so does what was carried out. */
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct raw_queue *raw = raw_queue(queue);
	struct raw_failure *failure = &raw->failure;
	struct raw_sq *sq = &raw->sq;
	int got = arrived(raw, events, n);

	follow_sends(raw);
	follow_receives(raw);
	if (got == n)
		return got;
	if (!failure->reported) {
		got += vbn__raw_release(raw, VBN_OK, events + got, n - got);
		if (sq->released != sq->done || got == n)
			return got;
		failure->reported = true;
		events[got++] = (struct vbn_event){
			.queue = queue, .op = VBN_OP_FAILED, .status = (uint8_t)failure->status};
	}
	if (failure->flushed)
		sq->done = sq->staged;
	return got + vbn__raw_release(raw, VBN_FLUSHED, events + got, n - got);
}

bool vbn__raw_is_quiet(const struct vbn_queue *queue)
{
	const struct raw_queue *raw = raw_queue(queue);

	return raw->failure.reported && raw->sq.released == raw->sq.staged &&
		(!raw->wq || raw->rq.tail == raw->rq.head);
}
