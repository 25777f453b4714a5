/* ud_rx.c - datagrams that have come, from many: each sender's ring gets its turn, and no more than its
 * part of it */

#include "base/copy.h"
#include "drv/shm/ud.h"

enum {
	TURN = 64,    /* datagrams of one sender before the next one's */
	INLETS = 32,  /* senders that are looked at in one call */
	OTHERS = 256, /* records of one that yield nothing, at the most in one call */
};

/* ---- one record ---- */

enum found { FOUND_NOTHING, FOUND_MESSAGE, FOUND_OTHER };

static force_inline void name_source(
	const struct ud_inlet *inlet, struct vbn_buf *buf, uint8_t *data)
{
	memcpy(data - UD_SOURCE, inlet->source, UD_SOURCE);
	buf->peer[0] = inlet->number;
	buf->peer[1] = (uintptr_t)(data - UD_HEADER);
}

static force_inline void tell_taken(struct ud_inlet *inlet, uint64_t pos)
{
	inlet->told = pos;
	/* What was there has been read: the sender may write it again. */
	store_release(&inlet->head->taken, pos);
}

/* Nothing more is taken of who writes what cannot be. */
static cold enum found faulty(struct shm_queue *sq, struct ud_inlet *inlet)
{
	shm_count(shm_port(sq->queue.port), SHM_FAULTS, 1);
	tell_taken(inlet, inlet->pos);
	store_release(&inlet->head->open, 0);
	store_once(&sq->ud->inlets[inlet->slot], NULL);
	store_release(&inlet->done, 1);
	return FOUND_NOTHING;
}

/* The record at the inlet's place, whatever it is. */
static noinline fast_path enum found take_record(
	struct shm_queue *sq, struct ud_inlet *inlet, uint64_t header, struct vbn_event *event)
{
	const uint32_t at = (uint32_t)inlet->pos & inlet->mask, left = inlet->mask + 1 - at;
	const uint32_t kind = record_kind(header), len = record_len(header);
	const bool has_imm = kind == SHM_SEND_IMM;
	const uint32_t extra = has_imm ? SHM_WORD : 0, size = record_size(extra, len);
	const uint8_t *from = inlet->ring + at + SHM_WORD;
	struct shm_bufs *bufs = sq->rx.bufs;
	struct shm_imm imm = {0};
	struct vbn_buf *buf;
	uint8_t *data;

	if (kind == SHM_PAD && len == left) {
		inlet->pos += left;
		return FOUND_OTHER;
	}
	if ((kind != SHM_SEND && !has_imm) || len > UD_MTU || size > left)
		return faulty(sq, inlet);
	inlet->pos += size;
	if (len > sq->ud->longest) {
		count_add(&sq->queue.stats.rx_too_long, 1);
		return FOUND_OTHER;
	}
	buf = vbn__shm_buf(bufs);
	if (!buf) {
		ud_drop(sq, UD_NO_RECEIVE);
		return FOUND_OTHER;
	}
	if (has_imm)
		memcpy(&imm, from, sizeof(imm));
	data = (uint8_t *)buf + sq->ud->data_at;
	buf_start(bufs->pool, buf, data, len);
	memcpy(data, from + extra, len);
	name_source(inlet, buf, data);
	buf->mark = imm.imm;
	*event = (struct vbn_event){.queue = &sq->queue,
		.buf = buf,
		.len = len,
		.imm = imm.imm,
		.op = VBN_OP_RECV,
		.has_imm = has_imm};
	return FOUND_MESSAGE;
}

/* ---- one sender ---- */

/* Its sender has gone: when it is empty, too, that is its end. */
static cold void retire(struct shm_queue *sq, struct ud_inlet *inlet)
{
	if (ring_look(inlet->ring, inlet->mask, inlet->pos))
		return;
	store_once(&sq->ud->inlets[inlet->slot], NULL);
	store_release(&inlet->done, 1);
}

/* Hands out up to n datagrams of one sender, as bufs or as events. */
static force_inline int take_from(struct shm_queue *sq, struct ud_inlet *inlet,
	struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	struct vbn_pool *pool = sq->rx.bufs->pool;
	uint8_t *const ring = inlet->ring;
	const uint64_t word = len_and_word(pool, 0);
	const uint32_t mask = inlet->mask, longest = sq->ud->longest, data_at = sq->ud->data_at;
	struct vbn_buf *const *top = pool->stack + pool->n_free, *const *const bottom = pool->stack;
	uint64_t pos = inlet->pos, burst = inlet->burst, bytes = 0;
	int got = 0, others = OTHERS;

	while (got < n) {
		const uint64_t header = ring_look(ring, mask, pos);
		const uint32_t len = record_len(header), at = (uint32_t)pos & mask;
		const uint32_t size = record_size(0, len);
		struct vbn_event own;
		enum found found;

		if (likely(record_kind(header) == SHM_SEND && len <= longest &&
			    at + size <= mask + 1 && top != bottom)) {
			const uint8_t *from = ring + at + SHM_WORD;
			struct vbn_buf *buf = *--top;
			uint8_t *data = (uint8_t *)buf + data_at;

			ring_fetch_ahead(ring, mask, pos, header, &burst);
			vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
			buf_set(buf, data, word | len);
			copy_message(data, from, len);
			name_source(inlet, buf, data);
			if (events)
				events[got] = (struct vbn_event){.queue = &sq->queue,
					.buf = buf,
					.len = len,
					.op = VBN_OP_RECV};
			else
				bufs[got] = buf;
			got++;
			bytes += len;
			pos += size;
			if (unlikely(pos - inlet->told > mask / 8))
				tell_taken(inlet, pos);
			continue;
		}
		if (likely(!header))
			break;
		pool->n_free = (uint32_t)(top - bottom);
		inlet->pos = pos;
		found = take_record(sq, inlet, header, &own);
		top = pool->stack + pool->n_free;
		pos = inlet->pos;
		if (unlikely(found == FOUND_NOTHING)) { /* the inlet is not this end's any more */
			inlet = NULL;
			break;
		}
		if (!others--)
			break;
		if (found != FOUND_MESSAGE)
			continue;
		if (events)
			events[got] = own;
		else
			bufs[got] = own.buf;
		got++;
		bytes += own.len;
	}
	pool->n_free = (uint32_t)(top - bottom);
	if (likely(inlet)) {
		inlet->pos = pos;
		inlet->burst = burst;
		if (pos != inlet->told)
			tell_taken(inlet, pos);
	}
	count_add(&sq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&sq->queue.stats.rx_bytes, bytes);
	return got;
}

/* ---- all of them ---- */

static force_inline int take(
	struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	struct shm_ud *ud = sq->ud;
	const uint32_t n_inlets = load_acquire(&ud->n_inlets);
	int got = 0;

	for (uint32_t i = min(n_inlets, (uint32_t)INLETS); i && got < n; i--) {
		struct ud_inlet *inlet;

		if (ud->turn >= n_inlets)
			ud->turn = 0;
		inlet = load_acquire(&ud->inlets[ud->turn++]);
		if (!inlet)
			continue;
		if (ring_look(inlet->ring, inlet->mask, inlet->pos))
			got += take_from(sq, inlet, bufs ? bufs + got : NULL,
				events ? events + got : NULL, min(n - got, (int)TURN));
		else if (unlikely(load_acquire(&inlet->over)))
			retire(sq, inlet);
	}
	return got;
}

/* What has been sent is over, and the bufs are filled up. How many events. */
static noinline fast_path int go_on(struct shm_queue *sq, struct vbn_event *events, int n)
{
	struct shm_bufs *bufs = sq->rx.bufs;
	int got = 0;

	if (bufs->n != bufs->depth && bufs->srq)
		got = vbn__shm_srq_refill(bufs, events, n);
	else if (bufs->n != bufs->depth)
		count_add(&sq->queue.stats.rx_no_buf, vbn__shm_bufs_fill(bufs));
	vbn__shm_follow(sq);
	return got + vbn__shm_release(sq, sq->tx.done, VBN_OK, events + got, n - got);
}

static force_inline bool has_more(const struct shm_queue *sq)
{
	return sq->tx.tail != sq->tx.head || sq->rx.bufs->n != sq->rx.bufs->depth;
}

static fast_path int poll_events(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct shm_queue *sq = shm_queue(queue);
	int got = take(sq, NULL, events, n);

	if (has_more(sq))
		got += go_on(sq, events + got, n - got);
	return got;
}

static fast_path int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct shm_queue *sq = shm_queue(queue);
	int got = take(sq, bufs, NULL, n);

	if (has_more(sq))
		go_on(sq, NULL, 0);
	return got;
}

static fast_path int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return -EOPNOTSUPP;
}

void vbn__shm_ud_rx_ops(struct queue_ops *ops, bool shared)
{
	ops->recv = shared ? no_recv : recv_bufs;
	ops->poll = poll_events;
}

/* ---- a failed queue: datagrams that had come are still taken ---- */

/* Behind the last record that is there now. */
static uint64_t find_end(const struct ud_inlet *inlet)
{
	uint64_t pos = inlet->pos, header;

	while (pos - inlet->pos <= inlet->mask &&
		(header = ring_look(inlet->ring, inlet->mask, pos))) {
		const uint32_t size = ud_record_size(header, inlet->mask);

		if (!size)
			break;
		pos += size;
	}
	return pos;
}

void vbn__shm_ud_stop(struct shm_queue *sq)
{
	for (uint32_t i = 0; i < sq->ud->n_inlets; i++) {
		struct ud_inlet *inlet = load_acquire(&sq->ud->inlets[i]);

		if (inlet)
			inlet->stop = find_end(inlet);
	}
	/* What is staged is never shown. */
	for (struct ud_way *way = sq->ud->dirty; way; way = way->dirty_next)
		way->ring.pos = way->ring.begin;
}

static bool take_one(struct shm_queue *sq, struct ud_inlet *inlet, struct vbn_event *event)
{
	enum found found = FOUND_OTHER;

	while (found == FOUND_OTHER && (int64_t)(inlet->stop - inlet->pos) > 0) {
		const uint64_t header = ring_look(inlet->ring, inlet->mask, inlet->pos);

		found = header ? take_record(sq, inlet, header, event) : FOUND_NOTHING;
		if (found != FOUND_NOTHING)
			tell_taken(inlet, inlet->pos);
	}
	return found == FOUND_MESSAGE;
}

int vbn__shm_ud_take_rest(
	struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	uint64_t bytes = 0;
	int got = 0;

	for (uint32_t i = 0; i < sq->ud->n_inlets && !sq->failure.reported; i++) {
		struct ud_inlet *inlet = load_acquire(&sq->ud->inlets[i]);
		struct vbn_event event;

		while (inlet && got < n && take_one(sq, inlet, &event)) {
			bytes += event.len;
			if (events)
				events[got++] = event;
			else
				bufs[got++] = event.buf;
		}
	}
	count_add(&sq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&sq->queue.stats.rx_bytes, bytes);
	return got;
}
