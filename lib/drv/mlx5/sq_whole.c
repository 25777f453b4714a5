/* sq_whole.c - each WQE worked out by itself from its buf, to measure what templates save */

#include "drv/mlx5/sq_stage.h"

static fast_path int stage_each(
	struct vbn_queue *queue, unsigned int kind, const struct burst *burst, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int taken = 0, ret = 0;

	if (n <= 0)
		return 0;
	queue_mark_dirty(queue);
	sq_reserve(mq, (uint32_t)n * kind_wqebbs(kind));
	if (queue->failed)
		return -EPIPE; /* found out on the way */
	if (!(kind & K_READ) && mq->sq.inline_size)
		kind |= K_INLINING;
	for (; taken < n; taken++) {
		ret = vbn__sq_stage_any(mq, kind, burst, taken);
		if (ret <= 0)
			break;
	}
	return taken ? taken : ret;
}

/* An operation of a kind; behind it what the burst has. */
#define WHOLE(kind, ...) stage_each(queue, kind, &(struct burst){__VA_ARGS__}, n)

static fast_path int send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return WHOLE(0, .bufs = bufs);
}

static fast_path int send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return WHOLE(K_IMM, .bufs = bufs, .imms = imms);
}

static fast_path int send_to(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return WHOLE(K_PEER, .bufs = bufs);
}

static fast_path int send_imm_to(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return WHOLE(K_PEER | K_IMM, .bufs = bufs, .imms = imms);
}

static fast_path int write_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return WHOLE(K_REMOTE, .bufs = bufs, .remotes = remotes);
}

static fast_path int write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return WHOLE(K_REMOTE | K_IMM, .bufs = bufs, .remotes = remotes, .imms = imms);
}

static fast_path int read_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return WHOLE(K_REMOTE | K_READ, .bufs = bufs, .remotes = remotes);
}

static fast_path int fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return WHOLE(
		K_REMOTE | K_READ | K_ATOMIC, .bufs = bufs, .remotes = remotes, .atomics = atomics);
}

static fast_path int cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return WHOLE(K_REMOTE | K_READ | K_ATOMIC | K_COMPARE, .bufs = bufs, .remotes = remotes,
		.atomics = atomics);
}

void vbn__sq_whole_ops(struct queue_ops *ops, bool datagrams, bool reads)
{
	ops->send = datagrams ? send_to : send;
	ops->send_imm = datagrams ? send_imm_to : send_imm;
	if (datagrams)
		return;
	ops->write = write_bufs;
	ops->write_imm = write_imm;
	if (!reads)
		return;
	ops->read = read_bufs;
	ops->fetch_add = fetch_add;
	ops->cmp_swap = cmp_swap;
}
