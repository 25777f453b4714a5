/* fail.c - the data path of a queue that has failed: what it had comes back in order */

#include "drv/shm/ud.h"

#include <stdio.h>

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n);

/* From now on it takes nothing and reports what it had; the peer sees it at its next burst. */
static void fail_queue(struct shm_queue *sq, enum vbn_status status, bool faulty)
{
	sq->failure.status = status;
	sq->failure.faulty = faulty;
	sq->queue.failed = true;
	sq->queue.refusal = -EPIPE;
	sq->ops = vbn__refusing_ops;
	sq->ops.recv = failed_recv;
	sq->ops.poll = failed_poll;
	sq->ops.outstanding = vbn__shm_outstanding;
	sq->queue.ops = &sq->ops;
	if (sq->ud) {
		vbn__shm_ud_stop(sq);
		return;
	}
	vbn__shm_rx_stop(sq, faulty);
	store_release(&segment_head(sq->in)->open, 0);
	/* What is lent comes back behind this: pairs with vbn__shm_fetch(). */
	closed_before_reuse();
}

/* "queue shm/17 failed: remote aborted, peer queue 18 of process 4711: …" */
static void __attribute__((__format__(__printf__, 3, 0)))
describe(struct shm_queue *sq, const char *operation, const char *fmt, va_list args)
{
	struct vbn_queue *queue = &sq->queue;
	int n = snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: %s%s, peer %s: ", queue->port->info.name, queue->number,
		vbn_status_text(sq->failure.status), operation, sq->peer_text);

	vsnprintf(queue->error + n, sizeof(queue->error) - (size_t)n, fmt, args);
}

cold void vbn__shm_fail(struct shm_queue *sq, enum vbn_status status, const char *fmt, ...)
{
	va_list args;

	if (sq->queue.failed)
		return;
	fail_queue(sq, status, false);
	va_start(args, fmt);
	describe(sq, "", fmt, args);
	va_end(args);
}

static void fault_text(struct shm_queue *sq, const char *fmt, ...) printf_like(2, 3);
static void fault_text(struct shm_queue *sq, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	describe(sq, "", fmt, args);
	va_end(args);
}

cold void vbn__shm_fault(struct shm_queue *sq, const char *what)
{
	if (sq->queue.failed)
		return;
	fail_queue(sq, VBN_BAD_RESPONSE, true);
	shm_count(shm_port(sq->queue.port), SHM_FAULTS, 1);
	fault_text(sq, "it %s, so it is dropped: its process has an error, or means harm", what);
}

static const char *op_text(const struct shm_wqe *wqe)
{
	switch (wqe->kind) {
	case SHM_WRITE: return wqe->has_imm ? "RDMA_WRITE_IMM" : "RDMA_WRITE";
	case SHM_READ: return "RDMA_READ";
	case SHM_FETCH_ADD: return "ATOMIC_FA";
	case SHM_CMP_SWAP: return "ATOMIC_CS";
	default: return wqe->has_imm ? "SEND_IMM" : "SEND";
	}
}

static void op_failed_text(struct shm_queue *sq, const char *operation, const char *fmt, ...)
	printf_like(3, 4);
static void op_failed_text(struct shm_queue *sq, const char *operation, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	describe(sq, operation, fmt, args);
	va_end(args);
}

cold void vbn__shm_fail_op(
	struct shm_queue *sq, enum vbn_status status, uint32_t index, const char *cause)
{
	const struct shm_tx *tx = &sq->tx;
	const bool has_wqe = tx->slots[index & tx->mask] == SLOT_WQE;
	const struct shm_wqe *wqe =
		has_wqe ? &tx->wqes[index & tx->mask] : &(const struct shm_wqe){.kind = SHM_SEND};
	char text[160];
	int n;

	if (sq->queue.failed)
		return;
	vbn__shm_follow(sq);
	if (sq->queue.failed)
		return;
	fail_queue(sq, status, false);
	sq->failure.of_send = true;
	sq->failure.wqe = index;
	n = snprintf(
		text, sizeof(text), " for WQE %u (%s, %u bytes", index, op_text(wqe), wqe->len);
	if (wqe->kind != SHM_SEND)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", remote %#llx with rkey %#x",
			(unsigned long long)wqe->addr, wqe->rkey);
	snprintf(text + n, sizeof(text) - (size_t)n, ")");
	op_failed_text(sq, text, "%s", cause);
}

cold void vbn__shm_unlent(struct shm_queue *sq)
{
	vbn__shm_fail(sq, VBN_REMOTE_ABORTED,
		"its queue has failed, was reset or is gone, with a message that was only half received: see what the peer says");
}

cold void vbn__shm_peer_closed(struct shm_queue *sq)
{
	if (sq->queue.failed)
		return;
	vbn__shm_progress(sq); /* it may have said why */
	if (sq->queue.failed)
		return;
	if (sq->tx.done != sq->tx.head)
		vbn__shm_fail_op(sq, VBN_REMOTE_ABORTED, sq->tx.done,
			"its queue has failed, was reset or is gone: see what the peer says");
	else
		vbn__shm_fail(sq, VBN_REMOTE_ABORTED,
			"its queue has failed, was reset or is gone: see what the peer says");
}

/* ---- the data path ---- */

/* No message will come into these. */
static void drop_receives(struct shm_queue *sq)
{
	struct shm_rx *rx = &sq->rx;

	shm_count(shm_port(sq->queue.port), SHM_UNREAD, vbn__shm_rx_unread(sq));
	rx->pos = rx->stop;
	if (rx->part)
		pool_push(rx->bufs->pool, rx->part);
	rx->part = NULL;
	count_add(&sq->queue.stats.rx_flushed, rx->own.n);
	vbn__shm_bufs_drop(&rx->own);
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	int got = vbn__shm_take_rest(shm_queue(queue), bufs, NULL, n);

	return got ? got : -EPIPE;
}

/* In order: messages that had come, what was carried out before the failure, the failure, and then the
 * outstanding work: the operation that failed with its own status, the others flushed. */
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_failure *failure = &sq->failure;
	struct shm_tx *tx = &sq->tx;
	int got = vbn__shm_take_rest(sq, NULL, events, n);

	if (got == n)
		return got;
	if (!failure->reported) {
		got += vbn__shm_release(sq, tx->done, VBN_OK, events + got, n - got);
		if (tx->tail != tx->done || got == n)
			return got;
		drop_receives(sq);
		failure->reported = true;
		events[got++] = (struct vbn_event){
			.queue = queue, .op = VBN_OP_FAILED, .status = (uint8_t)failure->status};
	}
	if (failure->of_send && failure->wqe - tx->tail < tx->head - tx->tail) {
		got += vbn__shm_release(sq, failure->wqe, VBN_FLUSHED, events + got, n - got);
		if (tx->tail != failure->wqe)
			return got;
		got += vbn__shm_release(sq, tx->tail + 1, failure->status, events + got, n - got);
		if (tx->tail == failure->wqe)
			return got; /* no room for its event */
		failure->of_send = false;
	}
	return got + vbn__shm_release(sq, tx->head, VBN_FLUSHED, events + got, n - got);
}
