/* sq_peer.c - datagrams: each buf says where to, and the peer's address vector is copied whole */

#include "drv/mlx5/sq_stage.h"

STAGE_RUN(run_send, K_PEER)
STAGE_RUN(run_send_inlining, K_PEER | K_INLINING)
STAGE_RUN(run_send_imm, K_PEER | K_IMM)
STAGE_RUN(run_send_imm_inlining, K_PEER | K_IMM | K_INLINING)

static fast_path int send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return stage(mlx5_queue(queue), K_PEER, run_send, &(struct burst){.bufs = bufs}, n);
}

static fast_path int send_inlining(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return stage(mlx5_queue(queue), K_PEER | K_INLINING, run_send_inlining,
		&(struct burst){.bufs = bufs}, n);
}

static fast_path int send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return stage(mlx5_queue(queue), K_PEER | K_IMM, run_send_imm,
		&(struct burst){.bufs = bufs, .imms = imms}, n);
}

static fast_path int send_imm_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return stage(mlx5_queue(queue), K_PEER | K_IMM | K_INLINING, run_send_imm_inlining,
		&(struct burst){.bufs = bufs, .imms = imms}, n);
}

void vbn__sq_peer_ops(struct queue_ops *ops, bool inlining)
{
	ops->send = inlining ? send_inlining : send;
	ops->send_imm = inlining ? send_imm_inlining : send_imm;
}
