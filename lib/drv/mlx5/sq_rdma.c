/* sq_rdma.c - reads and atomics: what they fetch lands in the buf, whose event returns it */

#include "drv/mlx5/sq_stage.h"

enum {
	READ = K_REMOTE | K_READ,
	FETCH_ADD = READ | K_ATOMIC,
	CMP_SWAP = FETCH_ADD | K_COMPARE,
};

STAGE_RUNS(run_read, READ)
STAGE_RUNS(run_fetch_add, FETCH_ADD)
STAGE_RUNS(run_cmp_swap, CMP_SWAP)

static fast_path int read_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return STAGE(queue, n, READ, run_read, .bufs = bufs, .remotes = remotes);
}

static fast_path int fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return STAGE(queue, n, FETCH_ADD, run_fetch_add, .bufs = bufs, .remotes = remotes,
		.atomics = atomics);
}

static fast_path int cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return STAGE(queue, n, CMP_SWAP, run_cmp_swap, .bufs = bufs, .remotes = remotes,
		.atomics = atomics);
}

void vbn__sq_rdma_ops(struct queue_ops *ops)
{
	ops->read = read_bufs;
	ops->fetch_add = fetch_add;
	ops->cmp_swap = cmp_swap;
}
