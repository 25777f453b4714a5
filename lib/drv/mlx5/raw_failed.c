/* raw_failed.c - why a raw queue has failed, and its data path from then on: what it had comes back in
 * order */

#include "drv/mlx5/raw.h"

#include <stdio.h>

/* ---- the cause ---- */

static bool is_error(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4 == MLX5_CQE_REQ_ERR || cqe->op_own >> 4 == MLX5_CQE_RESP_ERR;
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

cold void vbn__raw_failed(struct raw_queue *raw, const struct mlx5_cqe64 *cqe)
{
	const struct mlx5_err_cqe *error = (const void *)cqe;
	struct vbn_queue *queue = &raw->queue;
	enum vbn_status status;

	if (queue->failed)
		return;
	if (!is_error(cqe)) {
		begin(raw, VBN_DEVICE_ERROR);
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

/* What the control thread has heard. */
cold void vbn__raw_news(struct vbn_queue *queue, uint32_t news)
{
	struct raw_queue *raw = raw_queue(queue);

	if (!queue->connected)
		return;
	if (!queue->failed) {
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
	raw->failure.silent |= (news & (NEWS_DEVICE | NEWS_CQ)) != 0;
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

static void follow_receives(struct raw_queue *raw)
{
	struct rq *rq = &raw->rq;
	struct cq *cq = &raw->recv_cq;
	const struct mlx5_cqe64 *cqe;

	if (!raw->wq)
		return;
	while (cq_look(cq, cq->index, &cqe) == CQE_IS(MLX5_CQE_RESP_ERR)) {
		cq_consume(cq, cq->index + 1);
		if (rq->tail == rq->head)
			continue;
		pool_push(rq->pool, rq->slots[rq->tail++ & rq->mask]);
		count_add(&raw->queue.stats.rx_flushed, 1);
	}
	for (; raw->failure.silent && rq->tail != rq->head; rq->tail++) {
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
		count_add(&raw->queue.stats.rx_flushed, 1);
	}
}

/* ---- what is given back ---- */

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct raw_queue *raw = raw_queue(queue);
	const int got = raw->wq ? vbn__raw_take(raw, bufs, n) : 0;

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

	while (raw->wq && got < n && vbn__raw_take(raw, &buf, 1) == 1)
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
