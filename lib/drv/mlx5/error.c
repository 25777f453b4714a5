/* error.c - why a queue has failed: an error CQE, or an event, in words */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/sq.h"

#include <stdio.h>

/* The syndromes of enum MLX5_CQE_SYNDROME_*: what they mean for us. */
struct syndrome {
	uint8_t code;
	enum vbn_status status;
};

static const struct syndrome syndromes[] = {
	{MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VBN_LOCAL_LENGTH},
	{MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VBN_LOCAL_QP},
	{MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VBN_LOCAL_PROTECTION},
	{MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VBN_FLUSHED},
	{MLX5_CQE_SYNDROME_MW_BIND_ERR, VBN_LOCAL_QP},
	{MLX5_CQE_SYNDROME_BAD_RESP_ERR, VBN_BAD_RESPONSE},
	{MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VBN_LOCAL_ACCESS},
	{MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VBN_REMOTE_INVALID},
	{MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VBN_REMOTE_ACCESS},
	{MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VBN_REMOTE_OPERATION},
	{MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VBN_RETRY_EXCEEDED},
	{MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VBN_RNR_RETRY_EXCEEDED},
	{MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, VBN_REMOTE_ABORTED},
};

enum vbn_status vbn__mlx5_status(uint8_t code)
{
	for (size_t i = 0; i < ARRAY_SIZE(syndromes); i++)
		if (syndromes[i].code == code)
			return syndromes[i].status;
	return VBN_DEVICE_ERROR;
}

static const char *opcode_text(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_NOP: return "NOP";
	case MLX5_OPCODE_SEND: return "SEND";
	case MLX5_OPCODE_SEND_IMM: return "SEND_IMM";
	case MLX5_OPCODE_RDMA_WRITE: return "RDMA_WRITE";
	case MLX5_OPCODE_RDMA_WRITE_IMM: return "RDMA_WRITE_IMM";
	case MLX5_OPCODE_RDMA_READ: return "RDMA_READ";
	case MLX5_OPCODE_ATOMIC_CS: return "ATOMIC_CS";
	case MLX5_OPCODE_ATOMIC_FA: return "ATOMIC_FA";
	default: return "unknown opcode";
	}
}

static bool names_remote(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
		opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS ||
		opcode == MLX5_OPCODE_ATOMIC_FA;
}

/* Segments before the first one of data. */
static uint32_t head_segments(const struct mlx5_queue *mq, uint8_t opcode)
{
	if (opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA)
		return 3;
	if (names_remote(opcode))
		return 2;
	return mq->queue.conf.transport == VBN_UD ? 4 : 1;
}

static int describe_data(const struct sq *sq, uint16_t index, uint32_t k, char *text, size_t size)
{
	const struct mlx5_wqe_data_seg *data = sq_segment(sq, index, k);
	uint32_t count = from_be32(data->byte_count);

	if (count & MLX5_INLINE_SEG)
		return snprintf(
			text, size, ", %u bytes inline", count & ~(uint32_t)MLX5_INLINE_SEG);
	return snprintf(text, size, ", %u bytes at %#llx with lkey %#x", count,
		(unsigned long long)from_be64(data->addr), from_be32(data->lkey));
}

/* "SEND, 2 segments, 64 bytes at 0x7f…" from the ring: the WQE as the device was given it. */
static void describe_wqe(const struct mlx5_queue *mq, uint16_t index, char *text, size_t size)
{
	const struct sq *sq = &mq->sq;
	const struct mlx5_wqe_ctrl_seg *ctrl = sq_wqebb(sq, index);
	uint8_t opcode = from_be32(ctrl->opmod_idx_opcode) & 0xff;
	uint32_t n_segments = from_be32(ctrl->qpn_ds) & 0x3f, k = head_segments(mq, opcode);
	int n = snprintf(text, size, "%s, %u segments", opcode_text(opcode), n_segments);

	if (n_segments > k)
		n += describe_data(sq, index, k, text + n, size - (size_t)n);
	if (names_remote(opcode)) {
		const struct mlx5_wqe_raddr_seg *remote = sq_segment(sq, index, 1);

		snprintf(text + n, size - (size_t)n, ", to %#llx with rkey %#x",
			(unsigned long long)from_be64(remote->raddr), from_be32(remote->rkey));
	} else if (k == 4) {
		const struct mlx5_wqe_av *av = sq_segment(sq, index, 1);

		snprintf(text + n, size - (size_t)n, ", to QP %u",
			from_be32(av->dqp_dct) & 0xffffff);
	}
}

static void describe_peer(const struct mlx5_queue *mq, char *text, size_t size)
{
	char gid[48];

	text[0] = '\0';
	if (mq->queue.conf.transport != VBN_UD)
		snprintf(text, size, ", peer %s QP %u", vbn__rdma_gid_text(mq->peer.gid, gid),
			mq->peer.qpn);
}

static void describe(struct mlx5_queue *mq, const struct mlx5_err_cqe *error)
{
	struct vbn_queue *queue = &mq->queue;
	enum vbn_status status = mq->failure.status;
	char wqe[192] = "a receive", peer[80], patience[48];

	if (mq->failure.of_send)
		describe_wqe(mq, mq->failure.wqe, wqe, sizeof(wqe));
	else if (mq->rq->linked)
		snprintf(wqe, sizeof(wqe), "a receive of the shared ring");
	describe_peer(mq, peer, sizeof(peer));
	snprintf(queue->error, sizeof(queue->error),
		"queue %s/%u failed: %s%s (syndrome %#x, vendor syndrome %#x) for WQE %u (%s)%s, path MTU %u: %s",
		queue->port->info.name, queue->number,
		status != VBN_DEVICE_ERROR ? vbn_status_text(status) : "unknown syndrome",
		vbn__rdma_patience(&queue->conf, status, patience, sizeof(patience)),
		error->syndrome, error->vendor_err_synd, mq->failure.wqe, wqe, peer, mq->mtu,
		vbn__rdma_remedy(status));
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

/* The first error of the queue among those not read yet. */
static const struct mlx5_cqe64 *first_error(const struct cq *cq, uint32_t qpn)
{
	const struct mlx5_cqe64 *cqe;

	uint8_t seen;

	for (uint32_t i = 0; i <= cq->mask; i += cqe_span(cq, cqe, seen)) {
		seen = cq_look(cq, cq->index + i, &cqe);
		if (cqe_absent(seen))
			break;
		if (is_error(cqe) && cqe_qpn(cqe) == qpn)
			return cqe;
	}
	return NULL;
}

/* Sends that were carried out and that nobody has looked at yet. They stay to be read. */
static void see_send_done(struct mlx5_queue *mq)
{
	const struct cq *cq = mq->send_cq;
	struct mlx5_cqe64 newest;
	uint32_t span;

	for (uint32_t i = 0; i <= cq->mask; i += span) {
		span = vbn__mini_newest(cq, cq->index + i, &newest);
		if (!span)
			return;
		if (cqe_qpn(&newest) != mq->queue.number)
			continue;
		if (newest.op_own >> 4 != MLX5_CQE_REQ)
			return;
		vbn__sq_completed(&mq->sq, from_be16(newest.wqe_counter));
	}
}

/* The queue takes nothing from here on. What it was told of its sends before is known. */
static void begin(struct mlx5_queue *mq, enum vbn_status status)
{
	mq->queue.failed = true;
	mq->queue.refusal = -EPIPE;
	mq->failure = (struct failure){.status = status};
	see_send_done(mq);
	mq->failure.flushed = mq->sq.done;
	vbn__failed_ops(mq);
}

static const char *news_text(uint32_t news)
{
	if (news & NEWS_DEVICE)
		return "its device reports a fatal error";
	if (news & NEWS_CQ)
		return "a completion queue of it has failed: it was overrun, or the device could not write it";
	return "the device has it in the error state: it was reset, or the peer asked for what it may not";
}

static void fail_by_news(struct mlx5_queue *mq, uint32_t news)
{
	begin(mq,
		news & NEWS_DEVICE       ? VBN_DEVICE_ERROR
			: news & NEWS_CQ ? VBN_CQ_ERROR
					 : VBN_FLUSHED);
	snprintf(mq->queue.error, sizeof(mq->queue.error), "queue %s/%u failed: %s",
		mq->queue.port->info.name, mq->queue.number, news_text(news));
}

/* An error of one side flushes the other, so what is seen first need not be what came first: the
 * cause is the error that is no flush, or what made the control thread end the queue pair. */
cold void vbn__mlx5_failed(struct mlx5_queue *mq, bool of_send, const struct mlx5_cqe64 *cqe)
{
	const struct mlx5_cqe64 *cause = is_flush(cqe)
		? first_error(of_send ? mq->recv_cq : mq->send_cq, mq->queue.number)
		: NULL;
	const uint32_t ended = __atomic_load_n(&mq->queue.cause, __ATOMIC_RELAXED);
	const struct mlx5_err_cqe *error;

	if (mq->queue.failed)
		return;
	if (cause && !is_flush(cause)) {
		cqe = cause;
		of_send = !of_send;
	}
	if (is_flush(cqe) && ended) {
		fail_by_news(mq, ended);
		return;
	}
	begin(mq, VBN_DEVICE_ERROR);
	if (!is_error(cqe)) {
		describe_unexpected(mq, cqe);
		return;
	}
	static_assert(sizeof(*error) == sizeof(*cqe), "an error CQE is a CQE");
	error = (const void *)cqe;
	mq->failure.in_error = true;
	mq->failure.status = vbn__mlx5_status(error->syndrome);
	mq->failure.of_send = of_send;
	mq->failure.wqe = from_be16((be_force __be16)error->wqe_counter);
	if (of_send) {
		mq->sq.done = mq->failure.wqe; /* what was before it has been carried out */
		mq->failure.flushed = mq->sq.done;
	}
	describe(mq, error);
}

/* An error that waits in a CQ says more than an event. */
static bool find_error(struct mlx5_queue *mq)
{
	const struct mlx5_cqe64 *cqe = first_error(mq->send_cq, mq->queue.number);
	bool of_send = cqe != NULL;

	if (!cqe)
		cqe = first_error(mq->recv_cq, mq->queue.number);
	if (cqe)
		vbn__mlx5_failed(mq, of_send, cqe);
	return cqe != NULL;
}

/* What the control thread has heard of a queue: it has failed without a completion that says so, or
 * none will come any more. */
cold void vbn__mlx5_news(struct vbn_queue *queue, uint32_t news)
{
	struct mlx5_queue *mq = mlx5_queue(queue);

	if (!queue->connected)
		return;
	if (!queue->failed && !find_error(mq))
		fail_by_news(mq, news);
	mq->failure.in_error = true;
	mq->failure.silent |= (news & (NEWS_DEVICE | NEWS_CQ)) != 0;
	mq->failure.cq_lost |= (news & NEWS_CQ) != 0;
	if (queue->grouped)
		vbn__group_backlog(mq);
}
