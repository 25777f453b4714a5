/* raw_tx.c - packets to be sent: into WQEs, to the device, and what has completed */

#include "drv/mlx5/raw.h"
#include "drv/mlx5/sq.h"

/* ---- WQEs ---- */

static force_inline void *raw_wqebb(const struct raw_sq *sq, uint16_t index)
{
	return sq->wqes + (size_t)(index & sq->mask) * MLX5_SEND_WQE_BB;
}

/* The k-th 16 bytes of the WQE at `index`, across the ring's end. */
static force_inline void *raw_segment(const struct raw_sq *sq, uint16_t index, uint32_t k)
{
	uint32_t at = ((index & sq->mask) * 4 + k) & (sq->mask * 4 + 3);

	return sq->wqes + (size_t)at * 16;
}

/* What the device is to sum, from what the buf asks for. */
static force_inline uint8_t sum_flags(uint32_t flags)
{
	static_assert(VBN_PACKET_TX_IP_CSUM >> 2 == MLX5_ETH_WQE_L3_CSUM &&
			VBN_PACKET_TX_L4_CSUM >> 2 == MLX5_ETH_WQE_L4_CSUM,
		"one shift makes one of the other");
	return (uint8_t)(flags >> 2 & (MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM));
}

static force_inline void eth_write(void *seg, uint32_t flags, uint16_t n_inline)
{
	uint64_t *eth = seg;

	static_assert(offsetof(struct mlx5_wqe_eth_seg, cs_flags) == 4 &&
			offsetof(struct mlx5_wqe_eth_seg, inline_hdr_sz) == 12,
		"a word each");
	eth[0] = be32_pair(0, be32((uint32_t)sum_flags(flags) << 24));
	eth[1] = be32_pair(0, be32((uint32_t)n_inline << 16));
}

static force_inline uint32_t send_flags(struct vbn_buf *buf)
{
	return vbn_buf_packet(buf)->flags & FRAME_SEND_FLAGS;
}

/* ---- room, signals ---- */

static force_inline uint32_t packet_room(const struct raw_sq *sq)
{
	return sq->packet_mask + 1 - (uint16_t)(sq->staged - sq->released);
}

static force_inline uint32_t wqebb_room(const struct raw_sq *sq)
{
	return sq->mask + 1 - (uint16_t)(sq->head - sq->tail);
}

static force_inline void signal_last(struct raw_queue *raw)
{
	struct raw_sq *sq = &raw->sq;
	struct mlx5_wqe_ctrl_seg *ctrl = raw_wqebb(sq, sq->last);

	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	sq->marks[sq->marks_head++ & sq->mask] = (struct raw_mark){sq->head, sq->staged};
	sq->since_signal = 0;
	count_add(&raw->queue.stats.tx_signalled, 1);
}

/* n packets have been staged as a WQE of so many segments. */
static force_inline void advance(struct raw_queue *raw, uint32_t n_segments, uint32_t n)
{
	struct raw_sq *sq = &raw->sq;

	sq->last = sq->head;
	sq->head = (uint16_t)(sq->head + wqebbs(n_segments));
	sq->staged = (uint16_t)(sq->staged + n);
	sq->since_signal = (uint16_t)(sq->since_signal + n);
	if (sq->since_signal >= sq->cq_mod)
		signal_last(raw);
}

/* ---- plain packets: one segment of the queue's pool ---- */

/* Stages plain packets that want the same of the device, as one WQE that ends before the ring does,
 * and before that of slots does. */
static force_inline uint32_t stage_multi(struct raw_queue *raw, struct vbn_buf **bufs, uint32_t n)
{
	struct raw_sq *sq = &raw->sq;
	const uint32_t until_end = min(sq->mask + 1 - (sq->head & sq->mask), wqebb_room(sq));
	const uint32_t slot = sq->staged & sq->packet_mask;
	const uint32_t flags = send_flags(bufs[0]), plain_word = sq->plain_word;
	const uint32_t span = sq->longest - LEAST_FRAME;
	const __be32 lkey = sq->lkey;
	uint8_t *wqe = raw_wqebb(sq, sq->head), *data = wqe + 16 * MULTI_HEAD;
	uintptr_t *slots = sq->slots + slot;
	struct vbn_buf **const first = bufs, **end;
	uint32_t most = min(n, (uint32_t)MULTI_MOST), i;
	uint64_t bytes = 0;

	most = min(most, sq->packet_mask + 1 - slot);
	if (unlikely(!until_end || flags & sq->slow_flags))
		return 0;
	most = min(most, until_end * 4 - MULTI_HEAD);
	for (end = bufs + most; bufs != end; bufs++, data += 16) {
		struct vbn_buf *buf = *bufs;
		const uint32_t other = buf_word(buf) ^ plain_word, len = buf->len;
		uintptr_t entry = (uintptr_t)buf;

		if (unlikely(other)) {
			if (other & ~BUF_MARKS)
				break;
			entry |= SLOT_EVENT;
		}
		if (unlikely(send_flags(buf) != flags || len - LEAST_FRAME > span))
			break;
		data_write(data, len, lkey, buf->data);
		*slots++ = entry;
		vbn__buf_debug_sent(buf);
		bytes += len;
	}
	i = (uint32_t)(bufs - first);
	if (unlikely(!i))
		return 0;
	ctrl_write(wqe, be32(idx_opcode(sq->head, MULTI_OPCODE)),
		be32(sq->qpn_shifted | (MULTI_HEAD + i)), 0);
	eth_write(wqe + 16, flags, 0);
	advance(raw, MULTI_HEAD + i, i);
	count_add(&raw->queue.stats.tx_messages, i);
	count_add(&raw->queue.stats.tx_bytes, bytes);
	return i;
}

/* Stages plain packets that want the same of the device as a WQE each, of one WQEBB, up to the ring's end,
 * that of slots, and the next WQE that asks for a CQE; with `l2` a packet's first bytes are in its WQE. */
static force_inline uint32_t stage_single(
	struct raw_queue *raw, struct vbn_buf **bufs, uint32_t n, const bool l2)
{
	struct raw_sq *sq = &raw->sq;
	const uint32_t segments = l2 ? 4 : 3, skip = l2 ? L2_INLINE : 0;
	const uint32_t shortest = l2 ? L2_INLINE + 1 : LEAST_FRAME;
	const uint32_t at = sq->head & sq->mask, slot = sq->staged & sq->packet_mask;
	const uint32_t flags = send_flags(bufs[0]), plain_word = sq->plain_word;
	const uint32_t span = sq->longest - shortest;
	const __be32 lkey = sq->lkey, qpn_ds = be32(sq->qpn_shifted | segments);
	uint32_t opcode = idx_opcode(sq->head, MLX5_OPCODE_SEND);
	uint8_t *wqe = raw_wqebb(sq, sq->head);
	uintptr_t *slots = sq->slots + slot;
	struct vbn_buf **const first = bufs, **end;
	uint32_t most = min(n, wqebb_room(sq)), i;
	uint64_t bytes = 0;

	if (unlikely(flags & sq->slow_flags))
		return 0;
	most = min(most, sq->mask + 1 - at);
	most = min(most, sq->packet_mask + 1 - slot);
	most = min(most, sq->cq_mod - sq->since_signal);
	for (end = bufs + most; bufs != end; bufs++, wqe += MLX5_SEND_WQE_BB) {
		struct vbn_buf *buf = *bufs;
		const uint32_t other = buf_word(buf) ^ plain_word, len = buf->len;
		uintptr_t entry = (uintptr_t)buf;

		if (unlikely(other)) {
			if (other & ~BUF_MARKS)
				break;
			entry |= SLOT_EVENT;
		}
		if (unlikely(send_flags(buf) != flags || len - shortest > span))
			break;
		ctrl_write(wqe, be32(opcode), qpn_ds, 0);
		eth_write(wqe + 16, flags, l2 ? L2_INLINE : 0);
		if (l2)
			memcpy(wqe + 30, buf->data, L2_INLINE);
		data_write(wqe + (l2 ? 48 : 32), len - skip, lkey, buf->data + skip);
		*slots++ = entry;
		vbn__buf_debug_sent(buf);
		bytes += len;
		opcode += 1u << 8; /* of the next WQE: the ring ends before its index wraps */
	}
	i = (uint32_t)(bufs - first);
	if (unlikely(!i))
		return 0;
	sq->head = (uint16_t)(sq->head + i - 1);
	advance(raw, segments, i);
	count_add(&raw->queue.stats.tx_messages, i);
	count_add(&raw->queue.stats.tx_bytes, bytes);
	return i;
}

/* ---- any packet ---- */

/* 0, or why it cannot be sent. */
static fast_path int check_any(
	const struct raw_queue *raw, const struct vbn_buf *buf, uint32_t *segments)
{
	const struct raw_sq *sq = &raw->sq;
	const uint64_t total = vbn_buf_total(buf);
	uint32_t n = 0;

	if (total < LEAST_FRAME || total > sq->longest)
		return -EMSGSIZE;
	if (sq->l2_inline && buf->len < L2_INLINE)
		return -EINVAL;
	for (const struct vbn_buf *at = buf;; at = at->next) {
		const uint32_t len = at->len - (at == buf && sq->l2_inline ? L2_INLINE : 0);

		if (!raw->queue.port->zones[at->pool->zone_id].region)
			return -EINVAL;
		n += len != 0;
		if (!(at->flags & VBN_BUF_CHAIN))
			break;
	}
	*segments = n;
	return n > sq->max_gather ? -EINVAL : 0;
}

static fast_path int gather(struct raw_queue *raw, const struct vbn_buf *buf, uint32_t k)
{
	const struct raw_sq *sq = &raw->sq;
	uint32_t skip = sq->l2_inline ? L2_INLINE : 0;

	for (;; buf = buf->next, skip = 0) {
		const struct zone_registration *zone = &raw->queue.port->zones[buf->pool->zone_id];

		if (buf->len > skip)
			data_write(raw_segment(sq, sq->head, k++), buf->len - skip, be32(zone->key),
				buf->data + skip);
		if (!(buf->flags & VBN_BUF_CHAIN))
			return (int)k;
	}
}

/* What software sees to is done; the rest is the device's. */
static fast_path int prepare(const struct raw_sq *sq, struct vbn_buf *buf)
{
	struct vbn_packet *packet = vbn_buf_packet(buf);
	const uint16_t asked = packet->flags;
	int ret;

	if (!(asked & sq->slow_flags))
		return 0;
	packet->flags = asked & sq->slow_flags;
	ret = vbn__frame_prepare(buf, false);
	packet->flags = ret ? asked : asked & (uint16_t)~sq->slow_flags;
	return ret;
}

/* Stages one packet, whatever it is: 1, 0 without room, -EMSGSIZE, -EINVAL. */
static noinline fast_path int stage_any(struct raw_queue *raw, struct vbn_buf *buf)
{
	struct raw_sq *sq = &raw->sq;
	const uint32_t head = sq->l2_inline ? 3 : 2;
	const bool event = buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE);
	uint32_t segments = 0;
	uint8_t *wqe = raw_wqebb(sq, sq->head);
	int ret = check_any(raw, buf, &segments);

	if (ret)
		return ret;
	if (wqebb_room(sq) < wqebbs(head + segments))
		return 0;
	ret = prepare(sq, buf);
	if (ret)
		return ret;
	ctrl_write(wqe, be32(idx_opcode(sq->head, MLX5_OPCODE_SEND)),
		be32(sq->qpn_shifted | (head + segments)), 0);
	eth_write(wqe + 16, send_flags(buf), sq->l2_inline ? L2_INLINE : 0);
	if (sq->l2_inline)
		memcpy(wqe + 30, buf->data, L2_INLINE);
	gather(raw, buf, head);
	sq->slots[sq->staged & sq->packet_mask] = (uintptr_t)buf |
		(event                                            ? SLOT_EVENT
				: buf_word(buf) != sq->plain_word ? SLOT_FOREIGN
								  : 0);
	vbn__buf_debug_sent(buf);
	advance(raw, head + segments, 1);
	count_add(&raw->queue.stats.tx_messages, 1);
	count_add(&raw->queue.stats.tx_bytes, vbn_buf_total(buf));
	return 1;
}

/* ---- a burst ---- */

enum raw_form { FORM_MULTI, FORM_SINGLE, FORM_L2 };

static force_inline int send_burst(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, const enum raw_form form)
{
	struct raw_queue *raw = raw_queue(queue);
	struct raw_sq *sq = &raw->sq;
	uint32_t taken = 0, most;

	if (unlikely(n <= 0))
		return 0;
	if (unlikely(packet_room(sq) < (uint32_t)n || wqebb_room(sq) < (uint32_t)n)) {
		struct vbn_event none;

		vbn__raw_reap(raw, &none, 0);
		if (queue->failed)
			return -EPIPE; /* found out on the way */
	}
	most = min((uint32_t)n, packet_room(sq));
	queue_mark_dirty(queue);
	while (taken < most) {
		const uint32_t left = most - taken;
		uint32_t staged = form == FORM_MULTI
			? stage_multi(raw, bufs + taken, left)
			: stage_single(raw, bufs + taken, left, form == FORM_L2);

		if (unlikely(!staged)) {
			const int one = stage_any(raw, bufs[taken]);

			if (one <= 0)
				return taken ? (int)taken : one;
			staged = 1;
		}
		taken += staged;
	}
	return (int)taken;
}

static fast_path int send_multi(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return send_burst(queue, bufs, n, FORM_MULTI);
}

static fast_path int send_single(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return send_burst(queue, bufs, n, FORM_SINGLE);
}

static fast_path int send_l2(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return send_burst(queue, bufs, n, FORM_L2);
}

/* ---- flush ---- */

static fast_path void flush(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	struct raw_sq *sq = &raw->sq;

	if (sq->head == sq->rung)
		return;
	if (sq->since_signal)
		signal_last(raw);
	wqes_before_record(); /* the device may fetch as soon as it sees the record */
	store_once(&sq->record[MLX5_SND_DBR], be32(sq->head));
	record_before_doorbell(); /* pairs with the device's read of the record on a doorbell */
	store_once(doorbell_address(sq->doorbell), *(uint64_t *)raw_wqebb(sq, sq->last));
	flush_doorbell();
	sq->rung = sq->head;
	sq->rung_last = sq->last;
	sq->sent = sq->staged;
	count_add(&queue->stats.tx_doorbells, 1);
}

/* ---- completions ---- */

static cold void free_foreign(struct vbn_buf *buf)
{
	vbn__buf_debug_done(buf);
	vbn_buf_free(&buf, 1);
}

/* Gives back the packets before `done`. */
static force_inline int release(
	struct raw_queue *raw, enum vbn_status status, struct vbn_event *events, int n)
{
	struct raw_sq *sq = &raw->sq;
	const uintptr_t *const slots = sq->slots;
	const uint32_t mask = sq->packet_mask;
	struct pool_homecoming home = pool_open(sq->pool);
	uint32_t at = sq->released;
	const uint32_t end = at + (uint16_t)(sq->done - sq->released);
	int got = 0;

	for (; at != end; at++) {
		const uintptr_t slot = slots[at & mask];
		struct vbn_buf *buf = (struct vbn_buf *)slot;

		if (likely(!(slot & SLOT_BITS))) {
			vbn__buf_debug_done(buf);
			pool_take_home(&home, buf);
			continue;
		}
		buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);
		if (slot & SLOT_EVENT) {
			if (got == n)
				break;
			vbn__buf_debug_done(buf);
			event_of_buf(&raw->queue, buf, (uint32_t)vbn_buf_total(buf), VBN_OP_SEND,
				status, &events[got++]);
		} else {
			pool_close(&home);
			free_foreign(buf);
			home = pool_open(sq->pool);
		}
	}
	pool_close(&home);
	count_add(status == VBN_OK ? &raw->queue.stats.tx_done : &raw->queue.stats.tx_flushed,
		at - sq->released);
	sq->released = (uint16_t)at;
	return got;
}

fast_path int vbn__raw_release(
	struct raw_queue *raw, enum vbn_status status, struct vbn_event *events, int n)
{
	return release(raw, status, events, n);
}

/* Each CQE is that of the next mark, so that of what has come only the number matters. */
fast_path int vbn__raw_reap(struct raw_queue *raw, struct vbn_event *events, int n)
{
	struct raw_sq *sq = &raw->sq;
	struct cq *cq = &raw->send_cq;
	const uint32_t index = cq_run_end(cq, CQE_IS(MLX5_CQE_REQ));
	const uint16_t came = (uint16_t)min(
		index - cq->index, (uint32_t)(uint16_t)(sq->marks_head - sq->marks_tail));
	const struct mlx5_cqe64 *cqe;
	uint8_t seen;

	if (likely(came)) {
		const struct raw_mark *mark;

		sq->marks_tail = (uint16_t)(sq->marks_tail + came);
		mark = &sq->marks[(uint16_t)(sq->marks_tail - 1) & sq->mask];
		sq->tail = mark->wqebbs;
		sq->done = mark->packets;
		cq_consume(cq, index);
	}
	seen = cq_look(cq, index, &cqe);
	if (unlikely(!cqe_absent(seen) && seen != CQE_IS(MLX5_CQE_REQ)))
		vbn__raw_failed(raw, cqe);
	return sq->released == sq->done ? 0 : release(raw, VBN_OK, events, n);
}

static uint32_t outstanding(const struct vbn_queue *queue)
{
	const struct raw_sq *sq = &raw_queue(queue)->sq;

	return (uint16_t)(sq->staged - sq->released);
}

void vbn__raw_tx_ops(struct raw_queue *raw)
{
	raw->ops.send = raw->multi ? send_multi : raw->sq.l2_inline ? send_l2 : send_single;
	raw->ops.flush = flush;
	raw->ops.outstanding = outstanding;
}
