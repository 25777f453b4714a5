/* sq_stage.c - a message that is not plain: chains, bufs of other pools, kept or empty ones, small
 * ones copied into the WQE */

#include "drv/mlx5/sq_stage.h"

/* Copies a chain's bytes behind an inline header, across the ring's end where it comes to that. */
fast_path void vbn__sq_inline_write(
	struct sq *sq, uint16_t index, uint32_t k, const struct vbn_buf *buf, uint32_t total)
{
	const uint8_t *end = sq->wqes + (size_t)(sq->mask + 1) * MLX5_SEND_WQE_BB;
	uint8_t *to = sq_segment(sq, index, k);
	__be32 header = be32(total | MLX5_INLINE_SEG);

	memcpy(to, &header, sizeof(header));
	to += sizeof(header);
	for (;; buf = buf->next) {
		size_t first = min((size_t)(end - to), (size_t)buf->len);

		memcpy(to, buf->data, first);
		to += first;
		if (first < buf->len) {
			memcpy(sq->wqes, buf->data + first, buf->len - first);
			to = sq->wqes + (buf->len - first);
		}
		if (!(buf->flags & VBN_BUF_CHAIN))
			return;
	}
}

/* Data segments of a chain; an empty buf has none, since a segment of 0 bytes means 2^31 to the
 * device. 0, or -EINVAL: memory that the port has not registered. */
static fast_path int gather_write(
	struct mlx5_queue *mq, uint16_t index, uint32_t k, const struct vbn_buf *buf)
{
	struct sq *sq = &mq->sq;

	for (;; buf = buf->next) {
		const struct zone_registration *zone = &mq->queue.port->zones[buf->pool->zone_id];

		if (buf->len) {
			if (!zone->region)
				return -EINVAL;
			data_write(
				sq_segment(sq, index, k++), buf->len, be32(zone->key), buf->data);
		}
		if (!(buf->flags & VBN_BUF_CHAIN))
			return 0;
	}
}

/* Segments that the gather list of a chain takes. */
static fast_path uint32_t gather_count(const struct vbn_buf *buf)
{
	uint32_t n = buf->len != 0;

	while (buf->flags & VBN_BUF_CHAIN) {
		buf = buf->next;
		n += buf->len != 0;
	}
	return n;
}

/* What the completion does with a buf. A copied one is done with already, unless it goes back. */
static fast_path uintptr_t slot_of(const struct sq *sq, unsigned int kind, struct vbn_buf *buf)
{
	if (kind & K_READ || buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))
		return slot_event(buf, kind_op(kind));
	return (uintptr_t)buf | (buf_word(buf) != sq->plain_word ? SLOT_FOREIGN : 0);
}

static fast_path int check(const struct sq *sq, unsigned int kind, const struct vbn_buf *buf,
	uint64_t total, uint32_t n_data, bool copied)
{
	if (total > sq->max_message)
		return -EMSGSIZE;
	if (kind & K_ATOMIC && (total != ATOMIC_LEN || buf->len != ATOMIC_LEN))
		return -EMSGSIZE;
	if (kind & K_PEER && !is_handle(buf->peer[0]))
		return -EINVAL;
	return n_data > sq->max_gather && !copied ? -EINVAL : 0;
}

/* What stands between the control segment and the data. */
static fast_path void between_write(
	struct sq *sq, unsigned int kind, uint16_t index, const struct burst *burst, int i)
{
	if (kind & K_REMOTE)
		remote_write(sq_segment(sq, index, 1), &burst->remotes[i]);
	if (kind & K_ATOMIC)
		atomic_write(sq_segment(sq, index, 2), &burst->atomics[i], kind & K_COMPARE);
	if (kind & K_PEER) /* 48 bytes behind 16, so within one WQEBB */
		peer_write(sq_segment(sq, index, 1), burst->bufs[i]->peer[0]);
}

fast_path int vbn__sq_stage_any(
	struct mlx5_queue *mq, unsigned int kind, const struct burst *burst, int i)
{
	struct sq *sq = &mq->sq;
	struct vbn_buf *buf = burst->bufs[i];
	const uint64_t total = vbn_buf_total(buf);
	const bool copied = kind & K_INLINING && total <= sq->inline_size;
	const uint32_t k = kind_head(kind);
	const uint32_t n_data =
		copied ? (uint32_t)(total + sizeof(uint32_t) + 15) / 16 : gather_count(buf);
	const uint32_t n_segments = k + n_data;
	const uint16_t index = sq->head;
	int ret = check(sq, kind, buf, total, n_data, copied);

	if (ret)
		return ret;
	if (sq_reserve(mq, wqebbs(n_segments)) < wqebbs(n_segments))
		return 0;
	if (copied)
		vbn__sq_inline_write(sq, index, k, buf, (uint32_t)total);
	else if (gather_write(mq, index, k, buf) < 0)
		return -EINVAL;
	between_write(sq, kind, index, burst, i);
	ctrl_write(sq_wqebb(sq, index), be32(idx_opcode(index, kind_opcode(kind))),
		be32(sq->qpn_shifted | n_segments), kind & K_IMM ? be32(burst->imms[i]) : 0);
	if (copied && !(buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))) {
		sq_advance(mq, n_segments, SLOT_EMPTY);
		vbn_buf_free(&buf, 1);
	} else {
		sq_advance(mq, n_segments, slot_of(sq, kind, buf));
		vbn__buf_debug_sent(buf);
	}
	count_add(&mq->queue.stats.tx_messages, 1);
	count_add(&mq->queue.stats.tx_bytes, total);
	return 1;
}
