/* sq_inline.c - one message of bytes that are copied into the WQE: no buf, no memory key */

#include "base/copy.h"
#include "drv/mlx5/sq_stage.h"

/* copy_few() over the ring's end. */
static cold void copy_wrapping(
	struct sq *sq, uint16_t index, uint32_t k, const void *data, uint32_t len)
{
	struct vbn_buf bytes = {.data = (uint8_t *)(uintptr_t)data, .len = len};

	vbn__sq_inline_write(sq, index, k, &bytes, len);
}

/* What stands beside the bytes, in one word: the immediate, a pointer to the remote address, or a
 * peer's handle. */
static force_inline void beside_write(
	uint8_t *wqe, const unsigned int kind, uint16_t index, __be32 qpn_ds, uint64_t beside)
{
	ctrl_write(wqe, be32(idx_opcode(index, kind_opcode(kind))), qpn_ds,
		kind & K_IMM ? be32((uint32_t)beside) : 0);
	if (kind & K_REMOTE)
		remote_write(wqe + 16, (const struct vbn_remote *)(uintptr_t)beside);
	if (kind & K_PEER)
		peer_write(wqe + 16, beside);
}

/* Any length, anywhere in the ring: 1, 0 where it has no room, -EMSGSIZE, -EPIPE. */
static cold int copy_any(struct mlx5_queue *mq, const unsigned int kind, const void *data,
	size_t len, uint64_t beside)
{
	struct sq *sq = &mq->sq;
	const uint32_t k = kind_head(kind);
	const uint32_t n_segments = k + (uint32_t)(len + sizeof(uint32_t) + 15) / 16;
	const uint16_t index = sq->head;
	bool has_room;

	if (len > sq->max_inline)
		return -EMSGSIZE;
	has_room = sq_reserve(mq, wqebbs(n_segments)) >= wqebbs(n_segments);
	if (mq->queue.failed)
		return -EPIPE; /* found out on the way */
	if (!has_room)
		return 0;
	copy_wrapping(sq, index, k, data, (uint32_t)len);
	beside_write(sq_wqebb(sq, index), kind, index, be32(sq->qpn_shifted | n_segments), beside);
	queue_mark_dirty(&mq->queue);
	sq_advance(mq, n_segments, SLOT_EMPTY);
	count_add(&mq->queue.stats.tx_messages, 1);
	count_add(&mq->queue.stats.tx_bytes, len);
	return 1;
}

/* What nearly every message is: no longer than two WQEBBs, which do not pass the ring's end. Behind
 * the segments of its kind there is a header of 4 bytes with the length, and then the bytes. */
static force_inline int copy(struct mlx5_queue *mq, const unsigned int kind, const void *data,
	size_t len, uint64_t beside)
{
	struct sq *sq = &mq->sq;
	const uint32_t k = kind_head(kind), at = sq->head & sq->mask;
	const uint32_t n_segments = k + ((uint32_t)len + (uint32_t)sizeof(__be32) + 15) / 16;
	const uint32_t n = n_segments > 4 ? 2 : 1;
	const size_t most = 2 * MLX5_SEND_WQE_BB - 16 * k - sizeof(__be32);
	const __be32 header = be32((uint32_t)len | MLX5_INLINE_SEG);
	uint8_t *wqe = sq->wqes + (size_t)at * MLX5_SEND_WQE_BB;

	if (unlikely(len > most || len > sq->max_inline || at == sq->mask ||
		    (uint16_t)(sq->head - sq->tail) >= sq->mask))
		return copy_any(mq, kind, data, len, beside);
	queue_mark_dirty(&mq->queue);
	beside_write(wqe, kind, sq->head, be32(sq->qpn_shifted | n_segments), beside);
	memcpy(wqe + 16 * k, &header, sizeof(header));
	copy_few(wqe + 16 * k + sizeof(header), data, len);
	sq->slots[at] = SLOT_EMPTY;
	sq->slots[at + 1] = SLOT_FURTHER; /* written anew where it is the next WQE's */
	sq->last = sq->head;
	sq->head = (uint16_t)(sq->head + n);
	sq->since_signal = (uint16_t)(sq->since_signal + n);
	if (unlikely(sq->since_signal >= sq->cq_mod))
		sq_signal_last(mq);
	count_add(&mq->queue.stats.tx_messages, 1);
	count_add(&mq->queue.stats.tx_bytes, len);
	return 1;
}

static fast_path int send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	return copy(mlx5_queue(queue), 0, data, len, 0);
}

static fast_path int send_inline_imm(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	return copy(mlx5_queue(queue), K_IMM, data, len, imm);
}

static fast_path int write_inline(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote)
{
	return copy(mlx5_queue(queue), K_REMOTE, data, len, (uintptr_t)remote);
}

static fast_path int send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	return copy(mlx5_queue(queue), K_PEER, data, len, peer->handle);
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
