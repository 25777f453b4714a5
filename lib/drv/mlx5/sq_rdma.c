/* sq_rdma.c - reads and atomics: what they fetch lands in the buf, whose event returns it */

#include "drv/mlx5/sq_stage.h"

enum {
	READ = K_REMOTE | K_READ,
	FETCH_ADD = READ | K_ATOMIC,
	CMP_SWAP = FETCH_ADD | K_COMPARE,
};

STAGE_RUN(run_read, READ)
STAGE_RUN(run_fetch_add, FETCH_ADD)
STAGE_RUN(run_cmp_swap, CMP_SWAP)

static fast_path int read_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage(mlx5_queue(queue), READ, run_read,
		&(struct burst){.bufs = bufs, .remotes = remotes}, n);
}

static fast_path int fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage(mlx5_queue(queue), FETCH_ADD, run_fetch_add,
		&(struct burst){.bufs = bufs, .remotes = remotes, .atomics = atomics}, n);
}

static fast_path int cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage(mlx5_queue(queue), CMP_SWAP, run_cmp_swap,
		&(struct burst){.bufs = bufs, .remotes = remotes, .atomics = atomics}, n);
}

void vbn__sq_rdma_ops(struct queue_ops *ops)
{
	ops->read = read_bufs;
	ops->fetch_add = fetch_add;
	ops->cmp_swap = cmp_swap;
}
