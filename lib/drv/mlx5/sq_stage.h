/* sq_stage.h - the template that every operation with bufs is made of
 *
 * A kind is a constant, so that an operation's loop has no branch for what it is not. Plain bufs,
 * one segment of the queue's own pool each, are staged in runs; any other goes one by one.
 */
#ifndef VBN_MLX5_SQ_STAGE_H
#define VBN_MLX5_SQ_STAGE_H

#include "base/copy.h"
#include "drv/mlx5/sq.h"

enum {
	K_IMM = 1 << 0,      /* carries immediate data */
	K_REMOTE = 1 << 1,   /* names memory of the peer */
	K_READ = 1 << 2,     /* fetches into the buf: always yields its event */
	K_ATOMIC = 1 << 3,   /* with K_REMOTE and K_READ */
	K_COMPARE = 1 << 4,  /* of atomics: compare-and-swap */
	K_PEER = 1 << 5,     /* a datagram to the buf's peer */
	K_INLINING = 1 << 6, /* small bufs are copied into the WQE */
	K_MARKED = 1 << 7,   /* bufs that say KEEP or have a cookie, too */
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
	const uint32_t marks = kind & K_MARKED ? BUF_MARKS : 0;
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

		if (unlikely((buf_word(buf) & ~marks) != plain ||
			    len - shortest > longest - shortest ||
			    (kind & K_PEER && !is_handle(buf->peer[0]))))
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
		slots[i * bb] = kind & K_READ || buf_word(buf) & marks
			? slot_event(buf, kind_op(kind))
			: (uintptr_t)buf;
		vbn__buf_debug_sent(buf);
		bytes += len;
	}
	count_add(&mq->queue.stats.tx_messages, i);
	count_add(&mq->queue.stats.tx_bytes, bytes);
	sq->head = (uint16_t)(sq->head + i * bb);
	return (int)i;
}

/* Stages plain bufs that are small enough to be copied, until the next WQE that must ask for a CQE;
 * none that passes the ring's end. They go home at once. */
static force_inline int stage_inlined(
	struct mlx5_queue *mq, const unsigned int kind, const struct burst *burst, int n)
{
	struct sq *sq = &mq->sq;
	const uint32_t k = kind_head(kind), plain = sq->plain_word;
	const uint32_t most =
		min(sq->inline_size, 2 * MLX5_SEND_WQE_BB - 16 * k - (uint32_t)sizeof(__be32));
	struct pool_homecoming home = pool_open(sq->pool);
	uint64_t bytes = 0;
	int i;

	for (i = 0; i < n && sq->since_signal < sq->cq_mod; i++) {
		struct vbn_buf *buf = burst->bufs[i];
		const uint32_t len = buf->len, at = sq->head & sq->mask;
		const uint32_t n_segments = k + (len + (uint32_t)sizeof(__be32) + 15) / 16;
		const uint32_t bb = n_segments > 4 ? 2 : 1;
		const __be32 header = be32(len | MLX5_INLINE_SEG);
		uint8_t *wqe = sq->wqes + (size_t)at * MLX5_SEND_WQE_BB;

		if (unlikely(buf_word(buf) != plain || len > most || at == sq->mask ||
			    (kind & K_PEER && !is_handle(buf->peer[0])) ||
			    (uint16_t)(sq->head - sq->tail) >= sq->mask))
			break;
		ctrl_write(wqe, be32(idx_opcode(sq->head, kind_opcode(kind))),
			be32(sq->qpn_shifted | n_segments),
			kind & K_IMM ? be32(burst->imms[i]) : 0);
		if (kind & K_REMOTE)
			remote_write(wqe + 16, &burst->remotes[i]);
		if (kind & K_PEER)
			peer_write(wqe + 16, buf->peer[0]);
		memcpy(wqe + 16 * k, &header, sizeof(header));
		copy_few(wqe + 16 * k + sizeof(header), buf->data, len);
		sq->slots[at] = SLOT_EMPTY;
		sq->slots[at + 1] = SLOT_FURTHER; /* written anew where it is the next WQE's */
		sq->last = sq->head;
		sq->head = (uint16_t)(sq->head + bb);
		sq->since_signal = (uint16_t)(sq->since_signal + bb);
		pool_take_home(&home, buf);
		bytes += len;
	}
	pool_close(&home);
	count_add(&mq->queue.stats.tx_messages, (uint64_t)i);
	count_add(&mq->queue.stats.tx_bytes, bytes);
	return i;
}

/* Stages message i where it is more than one segment of the queue's own pool: chains, foreign or
 * empty bufs, longer inline copies. 1, 0 where the ring has no room for it, -EMSGSIZE, -EINVAL. */
int vbn__sq_stage_any(struct mlx5_queue *mq, unsigned int kind, const struct burst *burst, int i);

/* The runs of a kind, each a function of its own. */
typedef int stage_run(struct mlx5_queue *mq, const struct burst *burst, int n);

#define STAGE_RUNS(name, kind)                                                    \
	static noinline fast_path int name(                                       \
		struct mlx5_queue *mq, const struct burst *burst, int n)          \
	{                                                                         \
		return stage_plain(mq, kind, burst, n);                           \
	}                                                                         \
	static noinline fast_path int name##_marked(                              \
		struct mlx5_queue *mq, const struct burst *burst, int n)          \
	{                                                                         \
		return stage_plain(mq, (kind) | K_MARKED, burst, n);              \
	}                                                                         \
	static noinline fast_path int name##_inlined(                             \
		struct mlx5_queue *mq, const struct burst *burst, int n)          \
	{                                                                         \
		return (kind)&K_INLINING ? stage_inlined(mq, kind, burst, n) : 0; \
	}

/* After a run, whose last WQE began `bb` WQEBBs before head. */
static force_inline void ran(struct mlx5_queue *mq, uint16_t bb, int staged)
{
	struct sq *sq = &mq->sq;

	sq->last = (uint16_t)(sq->head - bb);
	sq->since_signal = (uint16_t)(sq->since_signal + staged * bb);
	if (sq->since_signal >= sq->cq_mod)
		sq_signal_last(mq);
}

static force_inline int stage(struct mlx5_queue *mq, const unsigned int kind, stage_run *run,
	stage_run *marked, stage_run *inlined, const struct burst *burst, int n)
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
		const struct burst rest = {
			.bufs = burst->bufs + taken,
			.remotes = kind & K_REMOTE ? burst->remotes + taken : NULL,
			.imms = kind & K_IMM ? burst->imms + taken : NULL,
			.atomics = kind & K_ATOMIC ? burst->atomics + taken : NULL,
		};
		const int until_signal = (sq->cq_mod - sq->since_signal + bb - 1) / bb;
		const int most = min(n - taken, until_signal);
		int staged = run(mq, &rest, most);

		if (unlikely(!staged))
			staged = marked(mq, &rest, most);
		if (likely(staged)) {
			taken += staged;
			ran(mq, bb, staged);
			continue;
		}
		if (kind & K_INLINING)
			staged = inlined(mq, &rest, n - taken);
		if (staged && sq->since_signal >= sq->cq_mod)
			sq_signal_last(mq);
		if (!staged)
			staged = vbn__sq_stage_any(mq, kind, burst, taken);
		if (staged <= 0)
			return taken ? taken : staged;
		taken += staged;
		n = min(n, taken + (int)(sq_room(sq) / bb));
	}
	return taken;
}

/* An operation of a kind, by its runs; behind them what the burst has. */
#define STAGE(queue, n, kind, runs, ...)                                    \
	stage(mlx5_queue(queue), kind, runs, runs##_marked, runs##_inlined, \
		&(struct burst){__VA_ARGS__}, n)

#endif
