/* sq_inline.c - one message of bytes that are copied into the WQE: no buf, no memory key */

#include "drv/mlx5/sq_stage.h"

/* memcpy() for the few bytes of an inline message: no call, and no byte past either end. */
static force_inline void copy_few(uint8_t *to, const uint8_t *from, size_t len)
{
	if (len >= 16) {
		size_t at = 0;

		do
			memcpy(to + at, from + at, 16);
		while ((at += 16) + 16 <= len);
		memcpy(to + len - 16, from + len - 16,
			16); /* the rest, over what is there already */
	} else if (len >= 8) {
		memcpy(to, from, 8);
		memcpy(to + len - 8, from + len - 8, 8);
	} else if (len >= 4) {
		memcpy(to, from, 4);
		memcpy(to + len - 4, from + len - 4, 4);
	} else {
		for (size_t at = 0; at < len; at++)
			to[at] = from[at];
	}
}

/* The same over the ring's end. */
static cold void copy_wrapping(
	struct sq *sq, uint16_t index, uint32_t k, const void *data, uint32_t len)
{
	struct vbn_buf bytes = {.data = (uint8_t *)(uintptr_t)data, .len = len};

	vbn__sq_inline_write(sq, index, k, &bytes, len);
}

/* Room for a WQE of so many WQEBBs: 1, 0, -EPIPE. */
static cold int find_room(struct mlx5_queue *mq, uint32_t n_wqebbs)
{
	vbn__sq_make_room(mq);
	if (mq->queue.failed)
		return -EPIPE;
	return sq_room(&mq->sq) >= n_wqebbs;
}

/* Behind the segments of its kind: a header of 4 bytes with the length, then the bytes. */
static force_inline int copy(struct mlx5_queue *mq, const unsigned int kind, const void *data,
	size_t len, uint32_t imm, const struct vbn_remote *remote, uint64_t peer)
{
	struct sq *sq = &mq->sq;
	const uint32_t k = kind_head(kind);
	const uint32_t n_segments = k + (uint32_t)(len + sizeof(uint32_t) + 15) / 16;
	const uint32_t n_wqebbs = wqebbs(n_segments), at = sq->head & sq->mask;
	uint8_t *wqe = sq->wqes + (size_t)at * MLX5_SEND_WQE_BB;
	__be32 header = be32((uint32_t)len | MLX5_INLINE_SEG);

	if (unlikely(len > sq->max_inline))
		return -EMSGSIZE;
	if (unlikely(sq_room(sq) < n_wqebbs)) {
		int ret = find_room(mq, n_wqebbs);

		if (ret <= 0)
			return ret;
	}
	queue_mark_dirty(&mq->queue);
	ctrl_write(wqe, be32(idx_opcode(sq->head, kind_opcode(kind))),
		be32(sq->qpn_shifted | n_segments), kind & K_IMM ? be32(imm) : 0);
	if (kind & K_REMOTE)
		remote_write(wqe + 16, remote);
	if (kind & K_PEER)
		peer_write(wqe + 16, peer);
	if (likely(at + n_wqebbs <= sq->mask + 1)) {
		memcpy(wqe + 16 * k, &header, sizeof(header));
		copy_few(wqe + 16 * k + sizeof(header), data, len);
	} else {
		copy_wrapping(sq, sq->head, k, data, (uint32_t)len);
	}
	sq_advance(mq, n_segments, SLOT_EMPTY);
	count_add(&mq->queue.stats.tx_messages, 1);
	count_add(&mq->queue.stats.tx_bytes, len);
	return 1;
}

static fast_path int send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	return copy(mlx5_queue(queue), 0, data, len, 0, NULL, 0);
}

static fast_path int send_inline_imm(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	return copy(mlx5_queue(queue), K_IMM, data, len, imm, NULL, 0);
}

static fast_path int write_inline(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote)
{
	return copy(mlx5_queue(queue), K_REMOTE, data, len, 0, remote, 0);
}

static fast_path int send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	return copy(mlx5_queue(queue), K_PEER, data, len, 0, NULL, peer->handle);
}

void vbn__sq_inline_ops(struct queue_ops *ops, enum vbn_transport transport)
{
	if (transport == VBN_UD) {
		ops->send_inline_to = send_inline_to;
		return;
	}
	ops->send_inline = send_inline;
	ops->send_inline_imm = send_inline_imm;
	ops->write_inline = write_inline;
}
