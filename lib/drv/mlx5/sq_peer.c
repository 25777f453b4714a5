/* sq_peer.c - datagrams: each buf says where to, and the peer's address vector is copied whole */

#include "drv/mlx5/sq_stage.h"

STAGE_RUNS(run_send, K_PEER)
STAGE_RUNS(run_send_inlining, K_PEER | K_INLINING)
STAGE_RUNS(run_send_imm, K_PEER | K_IMM)
STAGE_RUNS(run_send_imm_inlining, K_PEER | K_IMM | K_INLINING)

static fast_path int send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return STAGE(queue, n, K_PEER, run_send, .bufs = bufs);
}

static fast_path int send_inlining(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return STAGE(queue, n, K_PEER | K_INLINING, run_send_inlining, .bufs = bufs);
}

static fast_path int send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return STAGE(queue, n, K_PEER | K_IMM, run_send_imm, .bufs = bufs, .imms = imms);
}

static fast_path int send_imm_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return STAGE(queue, n, K_PEER | K_IMM | K_INLINING, run_send_imm_inlining, .bufs = bufs,
		.imms = imms);
}

void vbn__sq_peer_ops(struct queue_ops *ops, bool inlining)
{
	ops->send = inlining ? send_inlining : send;
	ops->send_imm = inlining ? send_imm_inlining : send_imm;
}
