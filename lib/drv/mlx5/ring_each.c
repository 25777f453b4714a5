/* ring_each.c - a doorbell for each message, to measure what a doorbell for a burst saves */

#include "drv/mlx5/queue.h"

#include <stdlib.h>

/* Calls `one` for each of n messages and rings behind each; ends where one is not taken. */
#define EACH(one)                                 \
	({                                        \
		int taken_ = 0, ret_ = 0;         \
                                                  \
		for (int i = 0; i < n; i++) {     \
			ret_ = one;               \
			if (ret_ <= 0)            \
				break;            \
			queue->ops->flush(queue); \
			taken_++;                 \
		}                                 \
		taken_ ? taken_ : ret_;           \
	})

static const struct queue_ops *burst_ops(struct vbn_queue *queue)
{
	return mlx5_queue(queue)->burst_ops;
}

static fast_path int send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return EACH(burst_ops(queue)->send(queue, &bufs[i], 1));
}

static fast_path int send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return EACH(burst_ops(queue)->send_imm(queue, &bufs[i], &imms[i], 1));
}

static fast_path int write_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return EACH(burst_ops(queue)->write(queue, &bufs[i], &remotes[i], 1));
}

static fast_path int write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return EACH(burst_ops(queue)->write_imm(queue, &bufs[i], &remotes[i], &imms[i], 1));
}

static fast_path int read_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return EACH(burst_ops(queue)->read(queue, &bufs[i], &remotes[i], 1));
}

static fast_path int fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return EACH(burst_ops(queue)->fetch_add(queue, &bufs[i], &remotes[i], &atomics[i], 1));
}

static fast_path int cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return EACH(burst_ops(queue)->cmp_swap(queue, &bufs[i], &remotes[i], &atomics[i], 1));
}

static fast_path int send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	const int n = 1;

	return EACH(burst_ops(queue)->send_inline(queue, data, len));
}

static fast_path int send_inline_imm(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	const int n = 1;

	return EACH(burst_ops(queue)->send_inline_imm(queue, data, len, imm));
}

static fast_path int send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	const int n = 1;

	return EACH(burst_ops(queue)->send_inline_to(queue, peer, data, len));
}

static fast_path int write_inline(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote)
{
	const int n = 1;

	return EACH(burst_ops(queue)->write_inline(queue, data, len, remote));
}

int vbn__ring_each_ops(struct mlx5_queue *mq)
{
	if (!mq->burst_ops)
		mq->burst_ops = malloc(sizeof(*mq->burst_ops));
	if (!mq->burst_ops)
		return -ENOMEM;
	*mq->burst_ops = mq->ops;
	mq->ops.send = send;
	mq->ops.send_imm = send_imm;
	mq->ops.write = write_bufs;
	mq->ops.write_imm = write_imm;
	mq->ops.read = read_bufs;
	mq->ops.fetch_add = fetch_add;
	mq->ops.cmp_swap = cmp_swap;
	mq->ops.send_inline = send_inline;
	mq->ops.send_inline_imm = send_inline_imm;
	mq->ops.send_inline_to = send_inline_to;
	mq->ops.write_inline = write_inline;
	return 0;
}
