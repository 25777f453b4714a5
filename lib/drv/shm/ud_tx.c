/* ud_tx.c - datagrams sent: each copied into the ring of its peer, or dropped and counted; never waited
 * for */

#include "base/copy.h"
#include "drv/shm/ud.h"

/* ---- ways ---- */

/* What lies in the ring from `pos` on, as this end wrote it; the peer may have written over it. */
static uint64_t count_from(const struct ring_writer *w, uint64_t pos)
{
	uint64_t n = 0;

	while ((int64_t)(w->begin - pos) > 0) {
		const uint64_t header = load_once(ring_word(w->ring, w->mask, pos));
		const uint32_t size = ud_record_size(header, w->mask);

		if (!size)
			break;
		n += record_kind(header) != SHM_PAD;
		pos += size;
	}
	return n;
}

cold uint64_t vbn__shm_ud_untaken(struct ud_way *way)
{
	struct ring_writer *w = &way->ring;

	if (way->told || !way->peer)
		return 0;
	way->told = true;
	ring_refresh(w, way->peer);
	return count_from(w, w->end - w->mask - 1);
}

/* Nobody is there any more. */
static cold void way_ends(struct shm_queue *sq, struct ud_way *way)
{
	const uint64_t n = vbn__shm_ud_untaken(way);

	way->dead = true;
	count_add(&sq->ud->drops[UD_NO_PEER], n);
	shm_count(shm_port(sq->queue.port), SHM_UNTAKEN, n);
}

static cold void way_faulty(struct shm_queue *sq, struct ud_way *way)
{
	shm_count(shm_port(sq->queue.port), SHM_FAULTS, 1);
	way_ends(sq, way);
}

/* A peer that ends says so before, and whatever it has taken. */
static cold void look_whether_closed(struct shm_queue *sq, struct ud_way *way)
{
	if (!load_acquire(&way->peer->open))
		way_ends(sq, way);
}

fast_path void vbn__shm_ud_show(struct shm_queue *sq, struct ud_way *way)
{
	if (way->dead || !ring_unpublished(&way->ring))
		return;
	ring_publish(&way->ring);
	compiler_barrier();
	if (unlikely(!head_is_awake(way->peer)))
		look_whether_closed(sq, way);
}

static force_inline void mark_dirty(struct shm_ud *ud, struct ud_way *way)
{
	if (way->dirty)
		return;
	way->dirty = true;
	way->dirty_next = ud->dirty;
	ud->dirty = way;
}

/* NULL: there is none yet, or it leads nowhere. */
static force_inline struct ud_way *open_way(const struct shm_ud *ud, uint64_t handle)
{
	struct ud_way *way;

	if (unlikely(!ud_is_handle(handle)))
		return NULL;
	way = load_acquire(&ud->ways[ud_target(handle)->index]);
	return likely(way) && likely(!way->dead) ? way : NULL;
}

cold void vbn__shm_ud_news(struct shm_queue *sq)
{
	struct shm_ud *ud = sq->ud;

	for (uint32_t i = 0; i < UD_TARGETS; i++) {
		struct ud_way *way = load_acquire(&ud->ways[i]);
		struct ud_way **at = &ud->dirty;

		if (!way || !load_acquire(&way->over))
			continue;
		vbn__shm_ud_show(sq, way);
		if (way->peer)
			look_whether_closed(sq, way);
		while (way->dirty && *at != way)
			at = &(*at)->dirty_next;
		if (way->dirty)
			*at = way->dirty_next;
		store_once(&ud->ways[i], NULL);
		store_release(&way->done, 1);
	}
}

/* ---- stage: any buf ---- */

/* A slot for one more. */
static fast_path bool reserve(struct shm_queue *sq)
{
	if (likely(tx_slots_free(&sq->tx)))
		return true;
	vbn__shm_follow(sq);
	vbn__shm_release(sq, sq->tx.done, VBN_OK, NULL, 0);
	return tx_slots_free(&sq->tx);
}

/* Room in the peer's ring; NULL: there is none, or no peer, and the datagram is dropped. */
static fast_path uint8_t *room(
	struct shm_queue *sq, uint64_t handle, uint32_t size, struct ud_way **where)
{
	struct ud_way *way = load_acquire(&sq->ud->ways[ud_target(handle)->index]);
	struct ring_writer *w;
	uint8_t *at;

	if (unlikely(!way))
		way = vbn__shm_ud_meet(sq, handle);
	if (unlikely(!way) || way->dead)
		goto no_peer;
	*where = way;
	w = &way->ring;
	at = ring_room(w, size);
	if (at)
		return at;
	vbn__shm_ud_show(sq, way); /* so that the peer takes it meanwhile */
	if (unlikely(way->dead))
		goto no_peer;
	if (unlikely(!ring_refresh(w, way->peer))) {
		way_faulty(sq, way);
		goto no_peer;
	}
	at = ring_pad(w, size) ? ring_room(w, size) : NULL;
	mark_dirty(sq->ud, way); /* a PAD may have been put */
	if (unlikely(!at))
		ud_drop(sq, UD_NO_ROOM);
	return at;

no_peer:
	ud_drop(sq, UD_NO_PEER);
	return NULL;
}

static fast_path void put(
	struct shm_queue *sq, struct ud_way *way, uint32_t size, uint32_t len, bool has_imm)
{
	ring_put(&way->ring, size, record_header(has_imm ? SHM_SEND_IMM : SHM_SEND, len));
	mark_dirty(sq->ud, way);
}

/* It is over when it is in the ring, or dropped; what its sender wants back waits for the flush. */
static fast_path void end_stage(struct shm_queue *sq, struct vbn_buf *buf, uint32_t len)
{
	struct shm_tx *tx = &sq->tx;
	const uint32_t at = tx->head & tx->mask;

	vbn__buf_debug_sent(buf);
	if (buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE)) {
		tx->wqes[at] = (struct shm_wqe){.buf = buf,
			.len = len,
			.kind = SHM_SEND,
			.op = VBN_OP_SEND,
			.returns = true,
			.put = true};
		tx->slots[at] = SLOT_WQE;
		tx->n_wqes++;
	} else {
		tx->slots[at] = SLOT_PLAIN;
		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	tx->put = ++tx->head;
	count_add(&sq->queue.stats.tx_messages, 1);
	count_add(&sq->queue.stats.tx_bytes, len);
}

/* 1, 0 where there is no slot for it, or why it cannot be sent. */
static noinline fast_path int send_other(
	struct shm_queue *sq, struct vbn_buf *buf, const uint32_t *imm)
{
	const uint64_t total = vbn_buf_total(buf), handle = buf->peer[0];
	const uint32_t extra = imm ? SHM_WORD : 0, size = record_size(extra, (uint32_t)total);
	struct ud_way *way;
	uint8_t *at;
	int ret;

	if (total > UD_MTU)
		return -EMSGSIZE;
	if (!ud_is_handle(handle))
		return -EINVAL;
	ret = vbn__shm_check_chain(sq, buf);
	if (ret)
		return ret;
	if (!reserve(sq))
		return 0;
	at = room(sq, handle, size, &way);
	if (likely(at)) {
		if (imm)
			*(uint64_t *)(void *)(at + SHM_WORD) = *imm;
		vbn__shm_chain_copy(at + SHM_WORD + extra, buf, 0, (uint32_t)total);
		put(sq, way, size, (uint32_t)total, imm);
	}
	end_stage(sq, buf, (uint32_t)total);
	return 1;
}

/* ---- stage: plain bufs ---- */

/* Copies plain bufs that find room; they go home at once. */
static force_inline int send_run(struct shm_queue *sq, struct vbn_buf **bufs, const uint32_t *imms,
	int n, const bool has_imm)
{
	struct shm_tx *tx = &sq->tx;
	struct shm_ud *ud = sq->ud;
	struct ud_way *way = NULL;
	struct ring_writer w = {0};
	struct pool_homecoming home = pool_open(tx->pool);
	const uint32_t plain = tx->plain, extra = has_imm ? SHM_WORD : 0, head = tx->head;
	uint64_t bytes = 0, handle = 0;
	int i;

	n = min(n, (int)tx_slots_free(tx));
	for (i = 0; i < n; i++) {
		struct vbn_buf *buf = bufs[i];
		const uint32_t len = buf->len, size = record_size(extra, len);
		uint8_t *at;

		if (unlikely(buf_word(buf) != plain || len > UD_MTU))
			break;
		if (unlikely(buf->peer[0] != handle)) {
			if (way)
				way->ring = w;
			way = open_way(ud, buf->peer[0]);
			if (unlikely(!way))
				break;
			handle = buf->peer[0];
			mark_dirty(ud, way);
			w = way->ring;
		}
		at = ring_room(&w, size);
		if (unlikely(!at))
			break;
		if (has_imm)
			*(uint64_t *)(void *)(at + SHM_WORD) = imms[i];
		copy_message(at + SHM_WORD + extra, buf->data, len);
		ring_put(&w, size, record_header(has_imm ? SHM_SEND_IMM : SHM_SEND, len));
		tx->slots[(head + (uint32_t)i) & tx->mask] = SLOT_PLAIN;
		vbn__buf_debug_sent(buf);
		vbn__buf_debug_done(buf);
		pool_take_home(&home, buf);
		bytes += len;
		if (unlikely(len > COPY_FEW && ring_is_much(&w))) {
			i++;
			break;
		}
	}
	pool_close(&home);
	if (way)
		way->ring = w;
	if (unlikely(i < n) && way && ring_is_much(&w))
		vbn__shm_ud_show(sq, way);
	tx->head = tx->put = head + (uint32_t)i;
	count_add(&sq->queue.stats.tx_messages, (uint64_t)i);
	count_add(&sq->queue.stats.tx_bytes, bytes);
	return i;
}

static force_inline int send_all(struct vbn_queue *queue, struct vbn_buf **bufs,
	const uint32_t *imms, int n, const bool has_imm)
{
	struct shm_queue *sq = shm_queue(queue);
	int taken = 0;

	if (unlikely(n <= 0))
		return 0;
	queue_mark_dirty(queue);
	for (;;) {
		int ret;

		taken += send_run(
			sq, bufs + taken, has_imm ? imms + taken : NULL, n - taken, has_imm);
		if (likely(taken == n))
			return n;
		ret = send_other(sq, bufs[taken], has_imm ? &imms[taken] : NULL);
		if (ret <= 0)
			return taken ? taken : ret;
		if (++taken == n)
			return n;
	}
}

static fast_path int send_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return send_all(queue, bufs, NULL, n, false);
}

static fast_path int send_imm_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return send_all(queue, bufs, imms, n, true);
}

static fast_path int send_bytes_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;
	const uint32_t size = record_size(0, (uint32_t)len);
	struct ud_way *way;
	uint8_t *at;

	if (unlikely(len > SHM_MAX_INLINE))
		return -EMSGSIZE;
	if (unlikely(!reserve(sq)))
		return 0;
	queue_mark_dirty(queue);
	at = room(sq, peer->handle, size, &way);
	if (likely(at)) {
		copy_few(at + SHM_WORD, data, len);
		put(sq, way, size, (uint32_t)len, false);
	}
	tx->slots[tx->head & tx->mask] = SLOT_PLAIN;
	tx->put = ++tx->head;
	count_add(&queue->stats.tx_messages, 1);
	count_add(&queue->stats.tx_bytes, len);
	return 1;
}

/* ---- flush ---- */

static fast_path void flush(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;

	while (sq->ud->dirty) {
		struct ud_way *way = sq->ud->dirty;

		sq->ud->dirty = way->dirty_next;
		way->dirty = false;
		vbn__shm_ud_show(sq, way);
	}
	if (tx->rung == tx->head)
		return;
	tx_rang(sq);
}

void vbn__shm_ud_tx_ops(struct queue_ops *ops)
{
	ops->send = send_bufs;
	ops->send_imm = send_imm_bufs;
	ops->send_inline_to = send_bytes_to;
	ops->flush = flush;
	ops->outstanding = vbn__shm_outstanding;
}
