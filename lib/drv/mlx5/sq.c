/* sq.c - sends and writes with bufs, and the flush that tells the device of them */

#include "drv/mlx5/sq_stage.h"

/* Each has a form for queues that copy small bufs into the WQE. */
STAGE_RUNS(run_send, 0)
STAGE_RUNS(run_send_inlining, K_INLINING)
STAGE_RUNS(run_send_imm, K_IMM)
STAGE_RUNS(run_send_imm_inlining, K_IMM | K_INLINING)
STAGE_RUNS(run_write, K_REMOTE)
STAGE_RUNS(run_write_inlining, K_REMOTE | K_INLINING)
STAGE_RUNS(run_write_imm, K_REMOTE | K_IMM)
STAGE_RUNS(run_write_imm_inlining, K_REMOTE | K_IMM | K_INLINING)

static fast_path int send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return STAGE(queue, n, 0, run_send, .bufs = bufs);
}

static fast_path int send_inlining(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return STAGE(queue, n, K_INLINING, run_send_inlining, .bufs = bufs);
}

static fast_path int send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return STAGE(queue, n, K_IMM, run_send_imm, .bufs = bufs, .imms = imms);
}

static fast_path int send_imm_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return STAGE(
		queue, n, K_IMM | K_INLINING, run_send_imm_inlining, .bufs = bufs, .imms = imms);
}

static fast_path int write_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return STAGE(queue, n, K_REMOTE, run_write, .bufs = bufs, .remotes = remotes);
}

static fast_path int write_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return STAGE(queue, n, K_REMOTE | K_INLINING, run_write_inlining, .bufs = bufs,
		.remotes = remotes);
}

static fast_path int write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return STAGE(queue, n, K_REMOTE | K_IMM, run_write_imm, .bufs = bufs, .remotes = remotes,
		.imms = imms);
}

static fast_path int write_imm_inlining(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return STAGE(queue, n, K_REMOTE | K_IMM | K_INLINING, run_write_imm_inlining, .bufs = bufs,
		.remotes = remotes, .imms = imms);
}

void vbn__sq_ops(struct queue_ops *ops, bool inlining)
{
	ops->send = inlining ? send_inlining : send;
	ops->send_imm = inlining ? send_imm_inlining : send_imm;
	ops->write = inlining ? write_inlining : write_bufs;
	ops->write_imm = inlining ? write_imm_inlining : write_imm;
}

/* ---- flush ---- */

static force_inline void flush(struct vbn_queue *queue, const bool blueflame)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	uint64_t *ctrl;

	if (sq->head == sq->rung)
		return;
	if (!sq->pending)
		sq_signal_last(mq); /* so that a completion is always on its way */
	ctrl = sq_wqebb(sq, sq->last);
	wqes_before_record(); /* the device may fetch as soon as it sees the record */
	store_once(&sq->record[MLX5_SND_DBR], be32(sq->head));
	record_before_doorbell(); /* pairs with the device's read of the record on a doorbell */
	if (blueflame && (uint16_t)(sq->head - sq->rung) == 1) {
		blueflame_copy(sq->doorbell, ctrl);
		count_add(&queue->stats.tx_blueflame, 1);
	} else {
		store_once(doorbell_address(sq->doorbell), *ctrl);
	}
	flush_doorbell();
	sq->rung = sq->head;
	count_add(&queue->stats.tx_doorbells, 1);
}

fast_path void vbn__sq_flush(struct vbn_queue *queue)
{
	flush(queue, false);
}

fast_path void vbn__sq_flush_blueflame(struct vbn_queue *queue)
{
	flush(queue, true);
}

uint32_t vbn__sq_outstanding(const struct vbn_queue *queue)
{
	const struct sq *sq = &container_of(queue, const struct mlx5_queue, queue)->sq;

	return (uint16_t)(sq->head - sq->tail);
}
