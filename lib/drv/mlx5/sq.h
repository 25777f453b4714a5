/* sq.h - the send ring as its parts see it: where a WQE lies, how a segment is written, when a
 * completion is asked for */
#ifndef VBN_MLX5_SQ_H
#define VBN_MLX5_SQ_H

#include "drv/mlx5/mlx5.h"

static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && sizeof(struct mlx5_wqe_raddr_seg) == 16 &&
		sizeof(struct mlx5_wqe_atomic_seg) == 16 && sizeof(struct mlx5_wqe_data_seg) == 16,
	"every segment counts one in DS");
static_assert(sizeof(struct mlx5_wqe_av) == 48, "an address vector counts three");

/* In the word of a buf, what sends it back. */
#define BUF_MARKS ((uint32_t)(VBN_BUF_KEEP | VBN_BUF_COOKIE) << 16)

/* ---- ring ---- */

static force_inline void *sq_wqebb(const struct sq *sq, uint16_t index)
{
	return sq->wqes + (size_t)(index & sq->mask) * MLX5_SEND_WQE_BB;
}

/* The k-th 16 bytes of the WQE at `index`: a WQE that passes the ring's end goes on at its start.
 */
static force_inline void *sq_segment(const struct sq *sq, uint16_t index, uint32_t k)
{
	uint32_t at = ((index & sq->mask) * 4 + k) & (sq->mask * 4 + 3);

	return sq->wqes + (size_t)at * 16;
}

static force_inline uint32_t sq_room(const struct sq *sq)
{
	return sq->mask + 1 - (uint16_t)(sq->head - sq->tail);
}

static force_inline uint16_t wqebbs(uint32_t n_segments)
{
	return (uint16_t)((n_segments + 3) / 4);
}

/* ---- segments: written as 64-bit words, which is half the stores, and the parts that never change
 * are one OR ---- */

/* The first word of a control segment is also what the doorbell carries. */
static force_inline void ctrl_write(
	void *wqe, __be32 opmod_idx_opcode, __be32 qpn_ds, __be32 immediate)
{
	uint64_t *ctrl = wqe;

	static_assert(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11 &&
			offsetof(struct mlx5_wqe_ctrl_seg, imm) == 12,
		"the flags and the immediate are in the second word");
	ctrl[0] = be32_pair(opmod_idx_opcode, qpn_ds);
	ctrl[1] = be32_pair(0, immediate); /* no flags */
}

static force_inline void data_write(void *seg, uint32_t len, __be32 lkey, const void *addr)
{
	uint64_t *data = seg;

	data[0] = be32_pair(be32(len), lkey);
	data[1] = (be_force uint64_t)be64((uintptr_t)addr);
}

static force_inline void remote_write(void *seg, const struct vbn_remote *remote)
{
	uint64_t *words = seg;

	words[0] = (be_force uint64_t)be64(remote->addr);
	words[1] = be32_pair(be32(remote->rkey), 0);
}

static force_inline void atomic_write(void *seg, const struct vbn_atomic *atomic, bool compares)
{
	uint64_t *words = seg;

	words[0] = (be_force uint64_t)be64(atomic->value);
	words[1] = compares ? (be_force uint64_t)be64(atomic->compare) : 0;
}

/* A peer's handle is its address vector, made once. */
static force_inline void peer_write(void *seg, uint64_t handle)
{
	memcpy(seg, (const void *)(uintptr_t)handle, sizeof(struct mlx5_wqe_av));
}

/* Index and opcode as a number that the next WQE's is 0x100 more than. */
static force_inline uint32_t idx_opcode(uint16_t index, uint8_t opcode)
{
	return (uint32_t)index << 8 | opcode;
}

/* ---- progress ---- */

/* Polls that must see an idle, unsignalled tail before a NOP is sent to complete it: a worker that
 * is about to send more does that sooner, and its next flush asks for the completion. */
enum { IDLE_POLLS = 32 };

/* The newest WQE asks for a CQE. It has not been rung yet, so it is still ours to change. */
static force_inline void sq_signal_last(struct mlx5_queue *mq)
{
	struct mlx5_wqe_ctrl_seg *ctrl = sq_wqebb(&mq->sq, mq->sq.last);

	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	mq->sq.since_signal = 0;
	mq->sq.pending++;
	count_add(&mq->queue.stats.tx_signalled, 1);
}

/* Closes a WQE of `n_segments` at head. */
static force_inline void sq_advance(struct mlx5_queue *mq, uint32_t n_segments, uintptr_t slot)
{
	struct sq *sq = &mq->sq;
	uint16_t n = wqebbs(n_segments);

	sq->slots[sq->head & sq->mask] = slot;
	for (uint16_t i = 1; i < n; i++)
		sq->slots[(uint16_t)(sq->head + i) & sq->mask] = SLOT_FURTHER;
	sq->last = sq->head;
	sq->head = (uint16_t)(sq->head + n);
	sq->since_signal = (uint16_t)(sq->since_signal + n);
	if (sq->since_signal >= sq->cq_mod)
		sq_signal_last(mq);
}

/* One CQE completes its WQE and all before it. A WQE of several WQEBBs is named by its first. */
static force_inline void sq_completed(struct sq *sq, uint16_t index)
{
	index++;
	while (unlikely(index != sq->head && slot_is_further(sq->slots[index & sq->mask])))
		index++;
	sq->done = index;
}

/* Length, no immediate, op and status as two stores. */
static force_inline void event_rest(
	struct vbn_event *event, uint32_t len, uint8_t op, uint8_t status)
{
	static_assert(offsetof(struct vbn_event, imm) == offsetof(struct vbn_event, len) + 4 &&
			offsetof(struct vbn_event, op) == offsetof(struct vbn_event, len) + 8 &&
			offsetof(struct vbn_event, status) == offsetof(struct vbn_event, op) + 1 &&
			sizeof(*event) == offsetof(struct vbn_event, op) + 8,
		"they are two words");
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	const uint64_t words[2] = {len, op | (uint64_t)status << 8};
#else
	const uint64_t words[2] = {
		(uint64_t)len << 32, (uint64_t)op << 56 | (uint64_t)status << 48};
#endif

	memcpy((char *)event + offsetof(struct vbn_event, len), &words[0], sizeof(words[0]));
	memcpy((char *)event + offsetof(struct vbn_event, op), &words[1], sizeof(words[1]));
}

/* The event of a slot that wants one. */
static force_inline void event_fill(struct mlx5_queue *mq, uintptr_t slot, struct vbn_buf *buf,
	enum vbn_status status, struct vbn_event *event)
{
	const uint8_t flags = buf->flags;

	event->queue = &mq->queue;
	event->buf = buf;
	event->cookie = NULL;
	event_rest(event, buf->len, (uint8_t)((slot & SLOT_BITS) >> SLOT_OP), (uint8_t)status);
	if (flags & VBN_BUF_COOKIE) {
		event->cookie = buf->cookie;
		buf->flags = (uint8_t)(flags & ~VBN_BUF_COOKIE);
	}
	if (unlikely(flags & VBN_BUF_CHAIN))
		vbn__sq_event_of_chain(event);
}

/* Room for n WQEBBs, or as many as there are once what has completed is out of the way. */
static force_inline uint32_t sq_reserve(struct mlx5_queue *mq, uint32_t n)
{
	uint32_t room = sq_room(&mq->sq);

	if (unlikely(room < n)) {
		vbn__sq_make_room(mq);
		room = sq_room(&mq->sq);
	}
	return min(room, n);
}

#endif
