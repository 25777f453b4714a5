/* sq.c - the send queue: WQEs written in place, one doorbell for a burst, bufs released as they
 * complete */

#include "drv/mlx5/cq.h"
#include "drv/mlx5/mlx5.h"

/* Polls that must see an idle, unsignalled tail before a NOP is sent to complete it: a worker that
 * is about to send more does that sooner, and its next flush asks for the completion. */
enum { IDLE_POLLS = 32 };

/* A plain send is control and data segment, a plain write has the remote address between: one WQEBB
 * each. */
struct send_wqe {
	struct mlx5_wqe_ctrl_seg ctrl;
	struct mlx5_wqe_data_seg data;
};
struct write_wqe {
	struct mlx5_wqe_ctrl_seg ctrl;
	struct mlx5_wqe_raddr_seg remote;
	struct mlx5_wqe_data_seg data;
};
static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && sizeof(struct mlx5_wqe_raddr_seg) == 16 &&
		sizeof(struct mlx5_wqe_data_seg) == 16,
	"every segment counts one in DS");
static_assert(sizeof(struct write_wqe) <= MLX5_SEND_WQE_BB, "a plain WQE is one WQEBB");

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

/* Segments are written as 64-bit words: half the stores, and the parts that never change are one
 * OR. The first word of a control segment is also what the doorbell carries. */
static force_inline void ctrl_write(void *wqe, __be32 opmod_idx_opcode, __be32 qpn_ds)
{
	uint64_t *ctrl = wqe;

	static_assert(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11,
		"the flags are in the second word");
	ctrl[0] = be32_pair(opmod_idx_opcode, qpn_ds);
	ctrl[1] = 0; /* no flags, no immediate */
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

/* Index and opcode as a number that the next WQE's is 0x100 more than. */
static force_inline uint32_t idx_opcode(uint16_t index, uint8_t opcode)
{
	return (uint32_t)index << 8 | opcode;
}

/* The newest WQE asks for a CQE. It has not been rung yet, so it is still ours to change. */
static force_inline void sq_signal_last(struct mlx5_queue *mq)
{
	struct mlx5_wqe_ctrl_seg *ctrl = sq_wqebb(&mq->sq, mq->sq.last);

	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	mq->sq.since_signal = 0;
	mq->sq.pending++;
	count_add(&mq->queue.stats.tx_signalled, 1);
}

/* ---- completion ---- */

static enum vbn_op wqe_op(const struct sq *sq, uint16_t index)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = sq_wqebb(sq, index);

	return (from_be32(ctrl->opmod_idx_opcode) & 0xff) == MLX5_OPCODE_RDMA_WRITE ? VBN_OP_WRITE
										    : VBN_OP_SEND;
}

static void event_fill(struct mlx5_queue *mq, uint16_t index, struct vbn_buf *buf,
	enum vbn_status status, struct vbn_event *event)
{
	*event = (struct vbn_event){
		.queue = &mq->queue,
		.buf = buf,
		.cookie = buf->flags & VBN_BUF_COOKIE ? buf->cookie : NULL,
		.op = (uint8_t)wqe_op(&mq->sq, index),
		.status = (uint8_t)status,
	};
	buf->flags &= (uint8_t)~VBN_BUF_COOKIE;
}

/* Releases the slots before `end` that have not been: bufs go home, or back to the caller by
 * events[]. Stops at one that needs an event when there is no more room for it. Returns the events
 * filled. */
static force_inline int release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct pool_homecoming home = pool_open(sq->pool);
	uint16_t tail = sq->tail;
	unsigned int skipped = 0, messages;
	int got = 0;

	for (; tail != end; tail++) {
		uintptr_t slot = sq->slots[tail & sq->mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		if (likely(!(slot & SLOT_BITS))) {
			vbn__buf_debug_done(buf);
			pool_take_home(&home, buf);
		} else if (slot & SLOT_EVENT) {
			if (got == n)
				break;
			vbn__buf_debug_done(buf);
			event_fill(mq, tail, buf, status, &events[got++]);
		} else if (slot & SLOT_FOREIGN) {
			pool_close(&home);
			vbn__buf_debug_done(buf);
			vbn_buf_free(&buf, 1);
			home = pool_open(sq->pool);
		} else {
			skipped += (slot & (SLOT_FURTHER | SLOT_NOP)) != 0;
		}
	}
	pool_close(&home);
	messages = (uint16_t)(tail - sq->tail) - skipped;
	if (likely(status == VBN_OK))
		count_add(&mq->queue.stats.tx_done, messages);
	else
		count_add(&mq->queue.stats.tx_flushed, messages);
	sq->tail = tail;
	return got;
}

int vbn__sq_release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	return release(mq, end, status, events, n);
}

/* One CQE completes its WQE and all before it. A WQE of several WQEBBs is named by its first. */
static force_inline void sq_completed(struct sq *sq, uint16_t index)
{
	index++;
	while (unlikely(index != sq->head && sq->slots[index & sq->mask] & SLOT_FURTHER))
		index++;
	sq->done = index;
}

static cold void sq_nop(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;

	ctrl_write(sq_wqebb(sq, sq->head), be32(idx_opcode(sq->head, MLX5_OPCODE_NOP)),
		be32(sq->qpn_shifted | 1));
	sq->slots[sq->head & sq->mask] = SLOT_EMPTY | SLOT_NOP;
	sq->last = sq->head++;
	sq_signal_last(mq);
	count_add(&mq->queue.stats.tx_nops, 1);
	vbn__sq_flush(&mq->queue);
}

fast_path int vbn__sq_reap(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	struct sq *sq = &mq->sq;
	struct cq *cq = &mq->send_cq;
	uint32_t index = cq->index;
	const struct mlx5_cqe64 *cqe;
	uint16_t newest = 0;
	uint8_t seen;

	while ((seen = cq_look(cq, index, &cqe)) == CQE_IS(MLX5_CQE_REQ)) {
		newest = from_be16(cqe->wqe_counter);
		index++;
	}
	if (likely(index != cq->index)) {
		sq->pending = (uint16_t)(sq->pending - (index - cq->index));
		sq_completed(sq, newest);
		cq_consume(cq, index);
		sq->idle_polls = 0;
	} else if (unlikely(!sq->pending && sq->done != sq->head && sq->rung == sq->head) &&
		++sq->idle_polls >= IDLE_POLLS) {
		sq->idle_polls = 0;
		sq_nop(mq);
	}
	if (unlikely(!cqe_absent(seen)))
		vbn__mlx5_failed(mq, cq, cqe);
	return release(mq, sq->done, VBN_OK, events, n);
}

/* ---- stage ---- */

/* Room for n WQEBBs, or as many as there are once what has completed is out of the way. */
static force_inline int sq_reserve(struct mlx5_queue *mq, int n)
{
	uint32_t room = sq_room(&mq->sq);

	if (unlikely(room < (uint32_t)n)) {
		vbn__sq_reap(mq, NULL, 0);
		room = sq_room(&mq->sq);
	}
	return (int)min(room, (uint32_t)n);
}

/* Copies a chain's bytes behind an inline header, across the ring's end where it comes to that. */
static void inline_write(
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

/* Gather segments of a chain; an empty buf has none, since a segment of 0 bytes means 2^31 to the
 * device. Returns how many segments the WQE then has, or -EINVAL: too many, or memory that the port
 * has not registered. */
static int gather_write(
	struct mlx5_queue *mq, uint16_t index, uint32_t k, const struct vbn_buf *buf)
{
	struct sq *sq = &mq->sq;
	uint32_t first = k;

	for (;; buf = buf->next) {
		const struct zone_registration *zone = &mq->queue.port->zones[buf->pool->zone_id];

		if (buf->len) {
			if (k - first == sq->max_gather || !zone->region)
				return -EINVAL;
			data_write(
				sq_segment(sq, index, k++), buf->len, be32(zone->key), buf->data);
		}
		if (!(buf->flags & VBN_BUF_CHAIN))
			return (int)k;
	}
}

/* Segments that the gather list of a chain takes. */
static uint32_t gather_count(const struct vbn_buf *buf)
{
	uint32_t n = buf->len != 0;

	while (buf->flags & VBN_BUF_CHAIN) {
		buf = buf->next;
		n += buf->len != 0;
	}
	return n;
}

static uintptr_t slot_of(const struct sq *sq, struct vbn_buf *buf)
{
	if (buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))
		return (uintptr_t)buf | SLOT_EVENT;
	return (uintptr_t)buf | (buf_word(buf) != sq->plain_word ? SLOT_FOREIGN : 0);
}

/* Closes a WQE of `n_segments` at head. */
static force_inline void sq_advance(struct mlx5_queue *mq, uint32_t n_segments, uintptr_t slot)
{
	struct sq *sq = &mq->sq;
	uint16_t n = wqebbs(n_segments);

	sq->slots[sq->head & sq->mask] = slot;
	for (uint16_t i = 1; i < n; i++)
		sq->slots[(uint16_t)(sq->head + i) & sq->mask] = SLOT_EMPTY | SLOT_FURTHER;
	sq->last = sq->head;
	sq->head = (uint16_t)(sq->head + n);
	sq->since_signal = (uint16_t)(sq->since_signal + n);
	if (sq->since_signal >= sq->cq_mod)
		sq_signal_last(mq);
}

/* Stages a message that is more than one segment of the queue's own pool: chains, foreign, kept or
 * empty bufs, inline copies. 1, 0 where the ring has no room for it, -EMSGSIZE, -EINVAL. */
static int stage_any(struct mlx5_queue *mq, struct vbn_buf *buf, const struct vbn_remote *remote,
	uint8_t opcode, bool may_inline)
{
	struct sq *sq = &mq->sq;
	uint64_t total = vbn_buf_total(buf);
	bool copied = may_inline && total <= sq->inline_size;
	uint32_t k = remote ? 2 : 1, n_segments;
	uint16_t index = sq->head;

	if (total > sq->max_message)
		return -EMSGSIZE;
	n_segments =
		k + (copied ? (uint32_t)(total + sizeof(uint32_t) + 15) / 16 : gather_count(buf));
	if (n_segments - k > sq->max_gather && !copied)
		return -EINVAL;
	if (sq_reserve(mq, wqebbs(n_segments)) < wqebbs(n_segments))
		return 0;
	if (copied)
		inline_write(sq, index, k, buf, (uint32_t)total);
	else if (gather_write(mq, index, k, buf) < 0)
		return -EINVAL;
	if (remote)
		remote_write(sq_segment(sq, index, 1), remote);
	ctrl_write(sq_wqebb(sq, index), be32(idx_opcode(index, opcode)),
		be32(sq->qpn_shifted | n_segments));
	if (copied && !(buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))) {
		sq_advance(mq, n_segments, SLOT_EMPTY);
		vbn_buf_free(&buf, 1);
	} else {
		sq_advance(mq, n_segments, slot_of(sq, buf));
		vbn__buf_debug_sent(buf);
	}
	count_add(&mq->queue.stats.tx_messages, 1);
	count_add(&mq->queue.stats.tx_bytes, total);
	return 1;
}

/* Stages plain bufs from head on, no more than until the next WQE that must ask for a CQE and not
 * past the ring's end, so that slots and WQEs are walked by pointers. Returns how many. It is a
 * function of its own so that the loop has the registers to itself. */
static force_inline int stage_plain(struct mlx5_queue *mq, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, int n, const bool inlining)
{
	struct sq *sq = &mq->sq;
	const uint32_t at = sq->head & sq->mask, plain = sq->plain_word, longest = sq->max_message;
	const uint32_t shortest = inlining ? sq->inline_size + 1 : 1;
	const __be32 lkey = sq->lkey, qpn_ds = remotes ? sq->qpn_ds_write : sq->qpn_ds_send;
	uint32_t ctrl = idx_opcode(sq->head, remotes ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_SEND);
	uint8_t *wqe = sq_wqebb(sq, sq->head);
	uintptr_t *slots = sq->slots + at;
	uint64_t bytes = 0;
	size_t i, end = min((uint32_t)n, sq->mask + 1 - at);

	for (i = 0; i < end; i++, wqe += MLX5_SEND_WQE_BB, ctrl += 1u << 8) {
		struct vbn_buf *buf = bufs[i];
		const uint32_t len = buf->len;

		if (unlikely(buf_word(buf) != plain || len - shortest > longest - shortest))
			break;
		ctrl_write(wqe, be32(ctrl), qpn_ds);
		if (remotes)
			remote_write(wqe + 16, &remotes[i]);
		data_write(wqe + (remotes ? 32 : 16), len, lkey, buf->data);
		slots[i] = (uintptr_t)buf;
		vbn__buf_debug_sent(buf);
		bytes += len;
	}
	count_add(&mq->queue.stats.tx_messages, i);
	count_add(&mq->queue.stats.tx_bytes, bytes);
	sq->head = (uint16_t)(sq->head + i);
	return (int)i;
}

static noinline fast_path int plain_sends(struct mlx5_queue *mq, struct vbn_buf **bufs, int n)
{
	return stage_plain(mq, bufs, NULL, n, false);
}

static noinline fast_path int plain_sends_inlining(
	struct mlx5_queue *mq, struct vbn_buf **bufs, int n)
{
	return stage_plain(mq, bufs, NULL, n, true);
}

static noinline fast_path int plain_writes(
	struct mlx5_queue *mq, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage_plain(mq, bufs, remotes, n, false);
}

static noinline fast_path int plain_writes_inlining(
	struct mlx5_queue *mq, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage_plain(mq, bufs, remotes, n, true);
}

static force_inline int plain_run(struct mlx5_queue *mq, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, int n, const bool inlining)
{
	if (remotes)
		return inlining ? plain_writes_inlining(mq, bufs, remotes, n)
				: plain_writes(mq, bufs, remotes, n);
	return inlining ? plain_sends_inlining(mq, bufs, n) : plain_sends(mq, bufs, n);
}

/* The template that every kind of send is made of. */
static force_inline int stage(struct mlx5_queue *mq, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, int n, const bool inlining)
{
	struct sq *sq = &mq->sq;
	int taken = 0;

	if (unlikely(n <= 0))
		return 0;
	queue_mark_dirty(&mq->queue);
	n = sq_reserve(mq, n);
	if (unlikely(mq->queue.failed))
		return -EPIPE; /* found out on the way */
	while (taken < n) {
		int until_signal = sq->cq_mod - sq->since_signal, ret;
		int staged = plain_run(mq, bufs + taken, remotes ? remotes + taken : NULL,
			min(n - taken, until_signal), inlining);

		if (likely(staged)) {
			taken += staged;
			sq->last = (uint16_t)(sq->head - 1);
			sq->since_signal = (uint16_t)(sq->since_signal + staged);
			if (sq->since_signal >= sq->cq_mod)
				sq_signal_last(mq);
			continue;
		}
		ret = stage_any(mq, bufs[taken], remotes ? &remotes[taken] : NULL,
			remotes ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_SEND, inlining);
		if (ret <= 0)
			return taken ? taken : ret;
		taken++;
		n = min(n, taken + (int)sq_room(sq));
	}
	return taken;
}

fast_path int vbn__sq_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return stage(mlx5_queue(queue), bufs, NULL, n, false);
}

fast_path int vbn__sq_send_inlining(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return stage(mlx5_queue(queue), bufs, NULL, n, true);
}

fast_path int vbn__sq_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage(mlx5_queue(queue), bufs, remotes, n, false);
}

fast_path int vbn__sq_write_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage(mlx5_queue(queue), bufs, remotes, n, true);
}

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
static cold void copy_wrapping(struct sq *sq, uint16_t index, const void *data, uint32_t len)
{
	struct vbn_buf bytes = {.data = (uint8_t *)(uintptr_t)data, .len = len};

	inline_write(sq, index, 1, &bytes, len);
}

/* Behind the control segment: a header of 4 bytes with the length, then the bytes. */
fast_path int vbn__sq_send_copy(struct vbn_queue *queue, const void *data, size_t len)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	const uint32_t n_segments = 1 + (uint32_t)(len + sizeof(uint32_t) + 15) / 16;
	const uint32_t n_wqebbs = wqebbs(n_segments), at = sq->head & sq->mask;
	uint8_t *wqe = sq->wqes + (size_t)at * MLX5_SEND_WQE_BB;
	__be32 header = be32((uint32_t)len | MLX5_INLINE_SEG);

	if (unlikely(len > sq->max_inline))
		return -EMSGSIZE;
	if (unlikely(sq_room(sq) < n_wqebbs)) {
		vbn__sq_reap(mq, NULL, 0);
		if (queue->failed || sq_room(sq) < n_wqebbs)
			return queue->failed ? -EPIPE : 0;
	}
	queue_mark_dirty(queue);
	ctrl_write(wqe, be32(idx_opcode(sq->head, MLX5_OPCODE_SEND)),
		be32(sq->qpn_shifted | n_segments));
	if (likely(at + n_wqebbs <= sq->mask + 1)) {
		memcpy(wqe + 16, &header, sizeof(header));
		copy_few(wqe + 20, data, len);
	} else {
		copy_wrapping(sq, sq->head, data, (uint32_t)len);
	}
	sq_advance(mq, n_segments, SLOT_EMPTY);
	count_add(&queue->stats.tx_messages, 1);
	count_add(&queue->stats.tx_bytes, len);
	return 1;
}

/* ---- flush ---- */

fast_path void vbn__sq_flush(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	uint64_t *ctrl;

	if (sq->head == sq->rung)
		return;
	if (!sq->pending)
		sq_signal_last(mq); /* so that a completion is always on its way */
	ctrl = sq_wqebb(sq, sq->last);
	wqes_before_record(); /* the device may fetch as soon as it sees the record */
	store_once(&sq->record[MLX5_SND_DBR], be32(sq->head));
	record_before_doorbell(); /* pairs with the device's read of the record on a doorbell */
	store_once(sq->doorbell, *ctrl);
	flush_doorbell();
	sq->rung = sq->head;
	count_add(&queue->stats.tx_doorbells, 1);
}

uint32_t vbn__sq_outstanding(const struct vbn_queue *queue)
{
	const struct sq *sq = &container_of(queue, const struct mlx5_queue, queue)->sq;

	return (uint16_t)(sq->head - sq->tail);
}
