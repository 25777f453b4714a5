/* error.c - an error CQE in words, and the data path of a queue that has failed */

#include "drv/mlx5/cq.h"
#include "drv/mlx5/mlx5.h"

#include <stdio.h>

/* The syndromes of enum MLX5_CQE_SYNDROME_*: what they mean for us, and what to look at. */
struct syndrome {
	uint8_t code;
	enum vbn_status status;
	const char *remedy;
};

static const struct syndrome syndromes[] = {
	{MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VBN_LOCAL_LENGTH,
		"a message was longer than the receive buf, or than the port's maximum: raise the rx pool's data_size"},
	{MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VBN_LOCAL_QP,
		"the device found the WQE not legal for this queue pair: report it, with this line"},
	{MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VBN_LOCAL_PROTECTION,
		"a segment is outside memory registered with this port: register its zone before sending from it"},
	{MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VBN_FLUSHED,
		"the queue pair was in the error state already: the peer or the port went, or it was moved there"},
	{MLX5_CQE_SYNDROME_MW_BIND_ERR, VBN_LOCAL_QP, "a memory window could not be bound"},
	{MLX5_CQE_SYNDROME_BAD_RESP_ERR, VBN_BAD_RESPONSE,
		"the peer answered what the protocol does not allow: check its version"},
	{MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VBN_LOCAL_ACCESS,
		"the peer's access to memory here broke off: is an export gone?"},
	{MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VBN_REMOTE_INVALID,
		"the peer refused the request: is the message longer than its receive bufs?"},
	{MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VBN_REMOTE_ACCESS,
		"the peer's export does not allow it: check remote address, length, rkey and remote_access there"},
	{MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VBN_REMOTE_OPERATION,
		"the peer could not carry it out: look at the error it reports"},
	{MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VBN_RETRY_EXCEEDED,
		"the peer did not answer: is it running, its port up, its address right, and do both ends have the same MTU and the way back?"},
	{MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VBN_RNR_RETRY_EXCEEDED,
		"the peer had no receive posted: it must receive faster, post more, or rnr_retry be raised (7 is for ever)"},
	{MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, VBN_REMOTE_ABORTED,
		"the peer gave up: look at the error it reports"},
};

static const struct syndrome *find_syndrome(uint8_t code)
{
	static const struct syndrome unknown = {
		0, VBN_DEVICE_ERROR, "the device's manual has this code's meaning"};

	for (size_t i = 0; i < ARRAY_SIZE(syndromes); i++)
		if (syndromes[i].code == code)
			return &syndromes[i];
	return &unknown;
}

static const char *opcode_text(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_NOP: return "NOP";
	case MLX5_OPCODE_SEND: return "SEND";
	case MLX5_OPCODE_RDMA_WRITE: return "RDMA_WRITE";
	default: return "unknown opcode";
	}
}

/* "SEND of 64 bytes at 0x7f…" from the ring: the WQE as the device was given it. */
static void describe_wqe(const struct sq *sq, uint16_t index, char *text, size_t size)
{
	const uint8_t *at = sq->wqes + (size_t)(index & sq->mask) * MLX5_SEND_WQE_BB;
	const struct mlx5_wqe_ctrl_seg *ctrl = (const void *)at;
	uint8_t opcode = from_be32(ctrl->opmod_idx_opcode) & 0xff;
	uint32_t n_segments = from_be32(ctrl->qpn_ds) & 0x3f;
	const struct mlx5_wqe_data_seg *data =
		(const void *)(at + (opcode == MLX5_OPCODE_RDMA_WRITE ? 32 : 16));
	const struct mlx5_wqe_raddr_seg *remote = (const void *)(at + 16);
	int n = snprintf(text, size, "%s", opcode_text(opcode));

	if (n_segments < 2 || (opcode != MLX5_OPCODE_SEND && opcode != MLX5_OPCODE_RDMA_WRITE))
		return;
	n += snprintf(text + n, size - (size_t)n, ", %u segments", n_segments);
	if (from_be32(data->byte_count) & MLX5_INLINE_SEG)
		n += snprintf(text + n, size - (size_t)n, ", %u bytes inline",
			from_be32(data->byte_count) & ~(uint32_t)MLX5_INLINE_SEG);
	else
		n += snprintf(text + n, size - (size_t)n, ", %u bytes at %#llx with lkey %#x",
			from_be32(data->byte_count), (unsigned long long)from_be64(data->addr),
			from_be32(data->lkey));
	if (opcode == MLX5_OPCODE_RDMA_WRITE)
		snprintf(text + n, size - (size_t)n, ", to %#llx with rkey %#x",
			(unsigned long long)from_be64(remote->raddr), from_be32(remote->rkey));
}

/* How long the device tried, where that is the matter. */
static void describe_patience(
	const struct vbn_queue_conf *conf, enum vbn_status status, char *text, size_t size)
{
	text[0] = '\0';
	if (status == VBN_RETRY_EXCEEDED)
		snprintf(text, size, " after %u retries of %.1f ms", conf->retry_count.value,
			(double)vbn__rdma_timeout_ns(conf->timeout.value) / 1e6);
	else if (status == VBN_RNR_RETRY_EXCEEDED)
		snprintf(text, size, " after %u retries", conf->rnr_retry.value);
}

static void describe(
	struct mlx5_queue *mq, const struct mlx5_err_cqe *error, const struct syndrome *syndrome)
{
	struct vbn_queue *queue = &mq->queue;
	char wqe[160] = "a receive", gid[48], patience[48];
	bool known = syndrome->status != VBN_DEVICE_ERROR;

	if (mq->failure.of_send)
		describe_wqe(&mq->sq, mq->failure.wqe, wqe, sizeof(wqe));
	describe_patience(&queue->conf, syndrome->status, patience, sizeof(patience));
	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: %s%s (syndrome %#x, vendor syndrome %#x) for WQE %u (%s), peer %s QP %u, path MTU %u: %s",
		queue->port->info.name, queue->number,
		known ? vbn_status_text(syndrome->status) : "unknown syndrome", patience,
		error->syndrome, error->vendor_err_synd, mq->failure.wqe, wqe,
		vbn__rdma_gid_text(mq->peer.gid, gid), mq->peer.qpn, mq->mtu, syndrome->remedy);
}

/* No error CQE, but one that this driver never asked for. */
static void describe_unexpected(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	struct vbn_queue *queue = &mq->queue;

	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: the device wrote a completion with opcode %u and format %u, which was not asked for: report it, with this line",
		queue->port->info.name, queue->number, cqe->op_own >> 4, cqe->op_own >> 2 & 3);
}

static bool is_error(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4 == MLX5_CQE_REQ_ERR || cqe->op_own >> 4 == MLX5_CQE_RESP_ERR;
}

static bool is_flush(const struct mlx5_cqe64 *cqe)
{
	return is_error(cqe) &&
		((const struct mlx5_err_cqe *)(const void *)cqe)->syndrome ==
		MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
}

/* The first entry that is no success among those not read yet. */
static const struct mlx5_cqe64 *first_error(const struct cq *cq)
{
	const struct mlx5_cqe64 *cqe;

	for (uint32_t index = cq->index; !cqe_absent(cq_look(cq, index, &cqe)); index++)
		if (is_error(cqe))
			return cqe;
	return NULL;
}

/* Sends that were carried out and that nobody has looked at yet. */
static void follow_send_done(struct mlx5_queue *mq)
{
	struct cq *cq = &mq->send_cq;
	const struct mlx5_cqe64 *cqe;

	while (cq_look(cq, cq->index, &cqe) == CQE_IS(MLX5_CQE_REQ)) {
		mq->sq.done = (uint16_t)(from_be16(cqe->wqe_counter) + 1);
		cq_consume(cq, cq->index + 1);
	}
	mq->failure.flushed = mq->sq.done;
}

static void ops_of_failure(struct mlx5_queue *mq);

/* An error of one side flushes the other, so what is seen first need not be what came first: the
 * cause is the error that is no flush. */
cold void vbn__mlx5_failed(struct mlx5_queue *mq, struct cq *cq, const struct mlx5_cqe64 *cqe)
{
	struct cq *other = cq == &mq->send_cq ? &mq->recv_cq : &mq->send_cq;
	const struct mlx5_cqe64 *cause = is_flush(cqe) ? first_error(other) : NULL;
	const struct mlx5_err_cqe *error;
	const struct syndrome *syndrome;

	if (mq->queue.failed)
		return;
	if (cause && !is_flush(cause)) {
		cqe = cause;
		cq = other;
	}
	mq->queue.failed = true;
	mq->queue.refusal = -EPIPE;
	ops_of_failure(mq);
	mq->failure = (struct failure){0};
	follow_send_done(mq);
	if (!is_error(cqe)) {
		mq->failure.status = VBN_DEVICE_ERROR;
		describe_unexpected(mq, cqe);
		return;
	}
	static_assert(sizeof(*error) == sizeof(*cqe), "an error CQE is a CQE");
	error = (const void *)cqe;
	syndrome = find_syndrome(error->syndrome);
	mq->failure.status = syndrome->status;
	mq->failure.of_send = cq == &mq->send_cq;
	mq->failure.wqe = from_be16((be_force __be16)error->wqe_counter);
	if (mq->failure.of_send) {
		mq->sq.done = mq->failure.wqe; /* what was before it has been carried out */
		mq->failure.flushed = mq->sq.done;
	}
	describe(mq, error, syndrome);
}

/* ---- the data path of a failed queue ---- */

/* The device flushes what it knows of, one CQE each, signalled or not. What was staged and never
 * rung it does not know. */
static void follow_send_flush(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;
	struct cq *cq = &mq->send_cq;
	uint16_t *flushed = &mq->failure.flushed;
	const struct mlx5_cqe64 *cqe;

	while (cq_look(cq, cq->index, &cqe) == CQE_IS(MLX5_CQE_REQ_ERR)) {
		uint16_t end = (uint16_t)(from_be16(cqe->wqe_counter) + 1);

		if ((uint16_t)(sq->head - end) < (uint16_t)(sq->head - *flushed))
			*flushed = end;
		cq_consume(cq, cq->index + 1);
	}
	while (*flushed != sq->head && sq->slots[*flushed & sq->mask] & SLOT_FURTHER)
		(*flushed)++;
	if (*flushed == sq->rung)
		*flushed = sq->head;
}

static void follow_recv_flush(struct mlx5_queue *mq)
{
	struct rq *rq = &mq->rq;
	struct cq *cq = &mq->recv_cq;
	const struct mlx5_cqe64 *cqe;
	uint32_t index = cq->index;

	while (rq->tail != rq->head && cq_look(cq, index, &cqe) == CQE_IS(MLX5_CQE_RESP_ERR)) {
		pool_push(rq->pool, rq->slots[rq->tail++ & rq->mask]);
		count_add(&mq->queue.stats.rx_flushed, 1);
		index++;
	}
	if (index != cq->index)
		cq_consume(cq, index);
}

static int failed_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = vbn__rq_take(mq, bufs, NULL, n);

	if (got)
		return got;
	follow_recv_flush(mq);
	return -EPIPE;
}

static int failed_event(struct mlx5_queue *mq, struct vbn_event *event)
{
	mq->failure.reported = true;
	*event = (struct vbn_event){
		.queue = &mq->queue, .op = VBN_OP_FAILED, .status = (uint8_t)mq->failure.status};
	return 1;
}

/* In order: what had arrived, what was carried out before the failure, the failure, and then the
 * outstanding work: the WQE that failed with its own status, those behind it flushed. */
static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	int got = n ? vbn__rq_take(mq, NULL, events, n) : 0;

	if (got < n)
		follow_recv_flush(mq);
	follow_send_flush(mq);
	if (!mq->failure.reported) {
		got += vbn__sq_release(mq, sq->done, VBN_OK, events + got, n - got);
		if (sq->tail != sq->done || got == n)
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

/* It takes nothing any more, and gives back what it has. */
static void ops_of_failure(struct mlx5_queue *mq)
{
	mq->ops = vbn__refusing_ops;
	mq->ops.recv = failed_recv;
	mq->ops.poll = failed_poll;
	mq->ops.outstanding = vbn__sq_outstanding;
	mq->queue.ops = &mq->ops;
}
