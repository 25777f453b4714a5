/* fail.c - a failed completion in words, and the data path of a queue that has failed */

#include "drv/verbs/verbs.h"

#include <stdio.h>

static enum vbn_status status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS: return VBN_OK;
	case IBV_WC_LOC_LEN_ERR: return VBN_LOCAL_LENGTH;
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_EEC_OP_ERR:
	case IBV_WC_MW_BIND_ERR: return VBN_LOCAL_QP;
	case IBV_WC_LOC_PROT_ERR: return VBN_LOCAL_PROTECTION;
	case IBV_WC_WR_FLUSH_ERR: return VBN_FLUSHED;
	case IBV_WC_BAD_RESP_ERR: return VBN_BAD_RESPONSE;
	case IBV_WC_LOC_ACCESS_ERR: return VBN_LOCAL_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR: return VBN_REMOTE_INVALID;
	case IBV_WC_REM_ACCESS_ERR: return VBN_REMOTE_ACCESS;
	case IBV_WC_REM_OP_ERR: return VBN_REMOTE_OPERATION;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR: return VBN_RETRY_EXCEEDED;
	case IBV_WC_RNR_RETRY_EXC_ERR: return VBN_RNR_RETRY_EXCEEDED;
	case IBV_WC_REM_ABORT_ERR: return VBN_REMOTE_ABORTED;
	default: return VBN_DEVICE_ERROR;
	}
}

static const char *opcode_text(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND: return "SEND";
	case IBV_WR_SEND_WITH_IMM: return "SEND_IMM";
	case IBV_WR_RDMA_WRITE: return "RDMA_WRITE";
	case IBV_WR_RDMA_WRITE_WITH_IMM: return "RDMA_WRITE_IMM";
	case IBV_WR_RDMA_READ: return "RDMA_READ";
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return "ATOMIC_FA";
	case IBV_WR_ATOMIC_CMP_AND_SWP: return "ATOMIC_CS";
	default: return "unknown opcode";
	}
}

static bool has_remote(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		opcode == IBV_WR_RDMA_READ;
}

/* "RDMA_WRITE, 1 segment, 64 bytes at 0x7f… with lkey 0x1, to …": the request as it was posted. */
static void describe_request(const struct verbs_sq *sq, uint32_t index, char *text, size_t size)
{
	const struct ibv_send_wr *wr = &sq->wrs[index & sq->mask];
	const bool atomic = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	int n = snprintf(text, size, "%s, %d segments", opcode_text(wr->opcode), wr->num_sge);

	if (wr->num_sge && wr->send_flags & IBV_SEND_INLINE)
		n += snprintf(text + n, size - (size_t)n, ", %u bytes inline", wr->sg_list->length);
	else if (wr->num_sge)
		n += snprintf(text + n, size - (size_t)n, ", %u bytes at %#llx with lkey %#x",
			wr->sg_list->length, (unsigned long long)wr->sg_list->addr,
			wr->sg_list->lkey);
	if (has_remote(wr->opcode))
		snprintf(text + n, size - (size_t)n, ", remote %#llx with rkey %#x",
			(unsigned long long)wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	else if (atomic)
		snprintf(text + n, size - (size_t)n, ", remote %#llx with rkey %#x",
			(unsigned long long)wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
}

static const char cut_off[] =
	"its connection has ended: the peer's queue or process is gone, or one end broke a rule (a message without a receive posted for it, or an access that is not allowed)";

/* Of iWARP a flushed request is all that is seen of a connection that ends. */
static bool is_cut_off(const struct verbs_queue *vq)
{
	return vq->link && vq->failure.status == VBN_FLUSHED && !vq->queue.ended;
}

static void describe(struct verbs_queue *vq, const struct ibv_wc *wc)
{
	struct vbn_queue *queue = &vq->queue;
	const enum vbn_status status = vq->failure.status;
	char request[200], gid[48], patience[48];

	snprintf(
		request, sizeof(request), "a receive%s", vq->rq->free ? " of the shared ring" : "");
	if (vq->failure.of_send)
		describe_request(&vq->sq, vq->failure.wqe, request, sizeof(request));
	vbn__rdma_patience(&queue->conf, status, patience, sizeof(patience));
	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: %s%s (ibv_wc_status %d, vendor error %#x) for WQE %u (%s), peer %s QP %u, path MTU %u: %s",
		queue->port->info.name, queue->number, vbn_status_text(status), patience,
		wc->status, wc->vendor_err, vq->failure.wqe, request,
		vbn__rdma_gid_text(vq->peer.gid, gid), vq->peer.qpn, vq->mtu,
		is_cut_off(vq) ? cut_off : vbn__rdma_remedy(status));
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n);

static void stop_for_good(struct verbs_queue *vq)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	ibv_modify_qp(vq->qp, &attr, IBV_QP_STATE);
}

/* From now on it takes nothing and reports what it had. Called again where the cause is found to be
 * another one. */
static void fail_queue(struct verbs_queue *vq, enum vbn_status status)
{
	vq->failure.status = status;
	vq->failure.of_send = false;
	if (vq->queue.failed)
		return;
	vq->failure.flushed = vq->sq.done;
	vq->queue.failed = true;
	vq->queue.refusal = -EPIPE;
	vq->ops = vbn__refusing_ops;
	vq->ops.recv = failed_recv;
	vq->ops.poll = failed_poll;
	vq->ops.outstanding = vbn__verbs_outstanding;
	if (vq->link)
		stop_for_good(vq);
	if (vq->queue.grouped)
		vbn__verbs_backlog(vq);
}

/* Whether this completion is the cause: the first, or the first that is no flush. An error of one
 * side flushes the other, so what is seen first need not be what came first. */
static bool is_cause(const struct verbs_queue *vq, enum vbn_status status)
{
	if (!vq->queue.failed)
		return true;
	return !vq->failure.reported && vq->failure.status == VBN_FLUSHED && status != VBN_FLUSHED;
}

cold void vbn__verbs_send_failed(struct verbs_queue *vq, const struct ibv_wc *wc)
{
	const enum vbn_status status = status_of(wc->status);
	const uint32_t index = (uint32_t)wc->wr_id;
	const bool cause = is_cause(vq, status);

	if (vq->failure.silent)
		return; /* what it had has been given back */
	if (cause) {
		fail_queue(vq, status);
		vq->failure.of_send = true;
		vq->failure.wqe = index;
		describe(vq, wc);
	}
	if (!vq->failure.sends_end) {
		vq->failure.sends_end = true;
		vq->sq.done = index; /* what was before it has been carried out */
	}
	vq->failure.flushed = index + 1;
}

/* Then the flush of its receives says less than the control thread will. */
static bool is_connecting(const struct verbs_queue *vq)
{
	return vq->link && load_acquire(&vq->link->state) != LINK_UP && !vq->queue.ended;
}

cold void vbn__verbs_recv_failed(struct verbs_queue *vq, const struct ibv_wc *wc)
{
	const enum vbn_status status = status_of(wc->status);
	struct vbn_buf *buf = vbn__verbs_claim(vq->rq, wc);

	if (is_cause(vq, status) && !(status == VBN_FLUSHED && is_connecting(vq))) {
		fail_queue(vq, status);
		vq->failure.wqe = (uint32_t)wc->wr_id;
		describe(vq, wc);
		/* What flushed it may be a send's error, which is there already: whoever is told of the
		 * failure asks why at once. A group looks before it tells. */
		if (status == VBN_FLUSHED && !vq->queue.grouped)
			vbn__verbs_reap(vq);
	}
	if (!buf)
		return;
	pool_push(vq->rq->pool, buf);
	count_add(&vq->queue.stats.rx_flushed, 1);
}

cold void vbn__verbs_failed(struct verbs_queue *vq, enum vbn_status status, const char *cause)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct vbn_queue *queue = &vq->queue;

	if (queue->failed)
		return;
	fail_queue(vq, status);
	snprintf(queue->error, sizeof(queue->error), "queue %s/%u failed: %s: %s",
		queue->port->info.name, queue->number, vbn_status_text(status), cause);
	ibv_modify_qp(vq->qp, &attr, IBV_QP_STATE);
}

cold void vbn__verbs_cut_off(struct verbs_queue *vq)
{
	vbn__verbs_failed(vq, VBN_REMOTE_ABORTED, cut_off);
}

cold void vbn__verbs_refused(struct verbs_queue *vq, const char *verb, int error)
{
	char cause[160];

	snprintf(cause, sizeof(cause),
		"%s was refused (%s): see what the kernel's log says of the device", verb,
		strerror(error));
	vbn__verbs_failed(vq, VBN_DEVICE_ERROR, cause);
}

/* ---- the data path of a failed queue ---- */

/* What was staged and never posted the device does not know. */
static void follow_flush(struct verbs_queue *vq)
{
	if (!vq->failure.sends_end)
		vq->failure.flushed = vq->sq.done;
	if (vq->failure.flushed == vq->sq.rung || vq->failure.silent)
		vq->failure.flushed = vq->sq.head;
}

/* No completion will tell of these. */
static void drop_receives(struct verbs_queue *vq)
{
	struct verbs_rq *rq = &vq->own_rq;

	count_add(&vq->queue.stats.rx_flushed, rq_posted(rq));
	rq->tail = rq->head;
	vbn__verbs_rq_sweep(rq);
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	int got = queue->grouped ? 0 : vbn__verbs_take(verbs_queue(queue), bufs, NULL, n);

	return got ? got : -EPIPE;
}

static int failed_event(struct verbs_queue *vq, struct vbn_event *event)
{
	vq->failure.reported = true;
	if (is_cut_off(vq))
		vq->failure.status = VBN_REMOTE_ABORTED;
	*event = (struct vbn_event){
		.queue = &vq->queue, .op = VBN_OP_FAILED, .status = (uint8_t)vq->failure.status};
	return 1;
}

/* An iWARP queue that has been stopped has completed by then what it ever will: what was posted at
 * the wrong moment it has forgotten. */
void vbn__verbs_all_read(struct verbs_queue *vq)
{
	if (vq->link)
		vq->failure.silent = true;
}

/* In order: what was carried out before the failure, the failure, and then the outstanding work:
 * the request that failed with its own status, those behind it flushed. */
int vbn__verbs_failed_events(struct verbs_queue *vq, struct vbn_event *events, int n)
{
	struct verbs_failure *failure = &vq->failure;
	struct verbs_sq *sq = &vq->sq;
	int got = 0;

	follow_flush(vq);
	if (failure->silent)
		drop_receives(vq);
	if (sq->done - sq->tail <= sq->head - sq->tail)
		got += vbn__verbs_release(vq, sq->done, VBN_OK, events + got, n - got);
	if (!failure->reported) {
		if (sq->tail != sq->done || got == n)
			return got;
		got += failed_event(vq, events + got);
	}
	if (failure->of_send && sq->tail == failure->wqe && failure->flushed != sq->tail) {
		got += vbn__verbs_release(vq, sq->tail + 1, failure->status, events + got, n - got);
		if (sq->tail == failure->wqe)
			return got; /* no room for its event */
		failure->of_send = false;
	}
	return got + vbn__verbs_release(vq, failure->flushed, VBN_FLUSHED, events + got, n - got);
}

bool vbn__verbs_failed_has_more(const struct verbs_queue *vq)
{
	return !vq->failure.reported || vq->sq.tail != vq->failure.flushed;
}

/* What had arrived comes before the failure. A group's poll does this for its queues. */
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct verbs_queue *vq = verbs_queue(queue);
	int got = 0;

	if (queue->grouped) {
		vbn__verbs_group_reap(vq->group);
		return 0;
	}
	if (n)
		got = vbn__verbs_take(vq, NULL, events, n);
	vbn__verbs_reap(vq);
	if (got < n)
		vbn__verbs_all_read(vq);
	return got + vbn__verbs_failed_events(vq, events + got, n - got);
}
