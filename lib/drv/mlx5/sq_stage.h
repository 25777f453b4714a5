/* sq_stage.h - the template that every operation with bufs is made of
 *
 * A kind is a constant, so that an operation's loop has no branch for what it is not. Plain bufs,
 * one segment of the queue's own pool each, are staged in runs; any other goes one by one.
 */
#ifndef VBN_MLX5_SQ_STAGE_H
#define VBN_MLX5_SQ_STAGE_H

#include "drv/mlx5/sq.h"

enum {
	K_IMM = 1 << 0,      /* carries immediate data */
	K_REMOTE = 1 << 1,   /* names memory of the peer */
	K_READ = 1 << 2,     /* fetches into the buf: always yields its event */
	K_ATOMIC = 1 << 3,   /* with K_REMOTE and K_READ */
	K_COMPARE = 1 << 4,  /* of atomics: compare-and-swap */
	K_PEER = 1 << 5,     /* a datagram to the buf's peer */
	K_INLINING = 1 << 6, /* small bufs are copied into the WQE */
};

enum { ATOMIC_LEN = 8 };

static force_inline uint8_t kind_opcode(const unsigned int kind)
{
	if (kind & K_ATOMIC)
		return kind & K_COMPARE ? MLX5_OPCODE_ATOMIC_CS : MLX5_OPCODE_ATOMIC_FA;
	if (kind & K_READ)
		return MLX5_OPCODE_RDMA_READ;
	if (kind & K_REMOTE)
		return kind & K_IMM ? MLX5_OPCODE_RDMA_WRITE_IMM : MLX5_OPCODE_RDMA_WRITE;
	return kind & K_IMM ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND;
}

/* What its event says. */
static force_inline enum vbn_op kind_op(const unsigned int kind)
{
	if (kind & K_ATOMIC)
		return kind & K_COMPARE ? VBN_OP_CMP_SWAP : VBN_OP_FETCH_ADD;
	if (kind & K_READ)
		return VBN_OP_READ;
	return kind & K_REMOTE ? VBN_OP_WRITE : VBN_OP_SEND;
}

/* Segments before the data. */
static force_inline uint32_t kind_head(const unsigned int kind)
{
	return 1u + (kind & K_REMOTE ? 1 : 0) + (kind & K_ATOMIC ? 1 : 0) + (kind & K_PEER ? 3 : 0);
}

/* WQEBBs of a plain WQE: a datagram's data segment is in a second one. */
static force_inline uint16_t kind_wqebbs(const unsigned int kind)
{
	return kind & K_PEER ? 2 : 1;
}

/* What a burst is of; a kind looks only at what it has. */
struct burst {
	struct vbn_buf **bufs;
	const struct vbn_remote *remotes;
	const uint32_t *imms;
	const struct vbn_atomic *atomics;
};

/* Stages plain bufs from head on, no more than until the next WQE that must ask for a CQE and not
 * past the ring's end, so that slots and WQEs are walked by pointers. Returns how many. It is to be
 * in a function of its own, so that the loop has the registers to itself. */
static force_inline int stage_plain(
	struct mlx5_queue *mq, const unsigned int kind, const struct burst *burst, int n)
{
	struct sq *sq = &mq->sq;
	struct vbn_buf **bufs = burst->bufs;
	const struct vbn_remote *remotes = burst->remotes;
	const uint32_t *imms = burst->imms;
	const struct vbn_atomic *atomics = burst->atomics;
	const uint32_t bb = kind_wqebbs(kind);
	const uint32_t at = sq->head & sq->mask, plain = sq->plain_word;
	const uint32_t longest = kind & K_ATOMIC ? ATOMIC_LEN : sq->max_message;
	const uint32_t shortest = kind & K_ATOMIC ? ATOMIC_LEN
		: kind & K_INLINING               ? sq->inline_size + 1
						  : 1;
	const __be32 lkey = sq->lkey, qpn_ds = be32(sq->qpn_shifted | (kind_head(kind) + 1));
	uint32_t ctrl = idx_opcode(sq->head, kind_opcode(kind));
	uint8_t *wqe = sq_wqebb(sq, sq->head);
	uintptr_t *slots = sq->slots + at;
	uint64_t bytes = 0;
	size_t i, end = min((uint32_t)n, (sq->mask + bb - at) / bb);

	for (i = 0; i < end; i++, wqe += bb * MLX5_SEND_WQE_BB, ctrl += bb << 8) {
		struct vbn_buf *buf = bufs[i];
		const uint32_t len = buf->len;
		uint8_t *data = wqe + 16 * kind_head(kind);

		if (unlikely(buf_word(buf) != plain || len - shortest > longest - shortest))
			break;
		ctrl_write(wqe, be32(ctrl), qpn_ds, kind & K_IMM ? be32(imms[i]) : 0);
		if (kind & K_REMOTE)
			remote_write(wqe + 16, &remotes[i]);
		if (kind & K_ATOMIC)
			atomic_write(wqe + 32, &atomics[i], kind & K_COMPARE);
		if (kind & K_PEER) {
			const uint16_t second = (uint16_t)(at + i * bb + 1);

			peer_write(wqe + 16, buf->peer[0]);
			data = sq_wqebb(sq, second);
			sq->slots[second & sq->mask] = SLOT_FURTHER;
		}
		data_write(data, len, lkey, buf->data);
		slots[i * bb] = kind & K_READ ? slot_event(buf, kind_op(kind)) : (uintptr_t)buf;
		vbn__buf_debug_sent(buf);
		bytes += len;
	}
	count_add(&mq->queue.stats.tx_messages, i);
	count_add(&mq->queue.stats.tx_bytes, bytes);
	sq->head = (uint16_t)(sq->head + i * bb);
	return (int)i;
}

/* Stages message i where it is more than one segment of the queue's own pool: chains, foreign, kept
 * or empty bufs, inline copies. 1, 0 where the ring has no room for it, -EMSGSIZE, -EINVAL. */
int vbn__sq_stage_any(struct mlx5_queue *mq, unsigned int kind, const struct burst *burst, int i);

typedef int stage_run(struct mlx5_queue *mq, const struct burst *burst, int n);

static force_inline int stage(struct mlx5_queue *mq, const unsigned int kind, stage_run *run,
	const struct burst *burst, int n)
{
	struct sq *sq = &mq->sq;
	const uint16_t bb = kind_wqebbs(kind);
	int taken = 0;

	if (unlikely(n <= 0))
		return 0;
	queue_mark_dirty(&mq->queue);
	n = (int)(sq_reserve(mq, (uint32_t)n * bb) / bb);
	if (unlikely(mq->queue.failed))
		return -EPIPE; /* found out on the way */
	while (taken < n) {
		int until_signal = (sq->cq_mod - sq->since_signal + bb - 1) / bb, staged, ret;
		const struct burst rest = {
			.bufs = burst->bufs + taken,
			.remotes = kind & K_REMOTE ? burst->remotes + taken : NULL,
			.imms = kind & K_IMM ? burst->imms + taken : NULL,
			.atomics = kind & K_ATOMIC ? burst->atomics + taken : NULL,
		};

		staged = run(mq, &rest, min(n - taken, until_signal));
		if (likely(staged)) {
			taken += staged;
			sq->last = (uint16_t)(sq->head - bb);
			sq->since_signal = (uint16_t)(sq->since_signal + staged * bb);
			if (sq->since_signal >= sq->cq_mod)
				sq_signal_last(mq);
			continue;
		}
		ret = vbn__sq_stage_any(mq, kind, burst, taken);
		if (ret <= 0)
			return taken ? taken : ret;
		taken++;
		n = min(n, taken + (int)(sq_room(sq) / bb));
	}
	return taken;
}

/* A run of its own, and the operation's body. */
#define STAGE_RUN(name, kind)                                            \
	static noinline fast_path int name(                              \
		struct mlx5_queue *mq, const struct burst *burst, int n) \
	{                                                                \
		return stage_plain(mq, kind, burst, n);                  \
	}

#endif
