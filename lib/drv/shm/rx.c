/* rx.c - what has arrived is copied into bufs and handed out; the rest is served */

#include "drv/shm/box.h"
#include "drv/shm/lend.h"
#include "drv/shm/life.h"
#include "drv/shm/ud.h"

enum { OTHERS = 256 }; /* records that are no messages, at the most in one call */

/* What stands behind the header of a record of each kind. */
static const uint8_t extra_of[SHM_N_KINDS] = {
	[SHM_SEND_IMM] = sizeof(struct shm_imm),
	[SHM_PART] = sizeof(struct shm_part),
	[SHM_WRITE] = sizeof(struct shm_write),
	[SHM_READ] = sizeof(struct shm_fetch),
	[SHM_FETCH_ADD] = sizeof(struct shm_fetch),
	[SHM_CMP_SWAP] = sizeof(struct shm_fetch),
	[SHM_ANSWER] = sizeof(struct shm_answer),
	[SHM_REFUSED] = sizeof(struct shm_refused),
	[SHM_PART_REF] = sizeof(struct shm_part),
	[SHM_WRITE_REF] = sizeof(struct shm_write),
};

/* ---- bufs ---- */

fast_path struct vbn_buf *vbn__shm_buf(struct shm_bufs *bufs)
{
	struct vbn_buf *buf = pool_pop(bufs->pool);

	return buf || !bufs->n ? buf : bufs->stack[--bufs->n];
}

fast_path uint32_t vbn__shm_bufs_fill(struct shm_bufs *bufs)
{
	const uint32_t wanted = bufs->depth - bufs->n, n = pool_ready(bufs->pool, wanted);

	for (uint32_t i = 0; i < n; i++)
		bufs->stack[bufs->n++] = pool_pop(bufs->pool);
	return wanted - n;
}

void vbn__shm_bufs_drop(struct shm_bufs *bufs)
{
	while (bufs->n)
		pool_push(bufs->pool, bufs->stack[--bufs->n]);
}

/* ---- one record of any kind ---- */

enum found { FOUND_NOTHING, FOUND_MESSAGE, FOUND_OTHER };

struct record {
	uint64_t header;
	uint32_t kind, len, size;
	const uint8_t *extra, *data;
};

/* Takes the record at pos apart. False: it cannot be one. */
static fast_path bool record_open(
	const struct shm_rx *rx, uint64_t pos, uint64_t header, struct record *record)
{
	const uint32_t at = (uint32_t)pos & rx->mask, left = rx->mask + 1 - at;
	const uint32_t kind = record_kind(header & ~SHM_BEHIND_BOX), len = record_len(header);
	uint32_t extra;

	*record = (struct record){.header = header, .kind = kind, .len = len};
	if (kind < SHM_PAD || kind >= SHM_N_KINDS || len > rx->mask)
		return false;
	if (kind == SHM_PAD) {
		record->size = left;
		return len == left;
	}
	extra = extra_of[kind];
	record->size = record_size(extra, len);
	record->extra = rx->ring + at + SHM_WORD;
	record->data = record->extra + extra;
	return record->size <= left;
}

static fast_path void deliver(struct shm_queue *sq, struct vbn_buf *buf, uint32_t len, bool has_imm,
	uint32_t imm, enum vbn_op op, uint32_t event_len, struct vbn_event *event)
{
	buf->len = len;
	buf->mark = imm;
	*event = (struct vbn_event){.queue = &sq->queue,
		.buf = buf,
		.len = event_len,
		.imm = imm,
		.op = (uint8_t)op,
		.has_imm = has_imm};
}

static fast_path struct vbn_buf *start_buf(struct shm_queue *sq)
{
	struct shm_bufs *bufs = sq->rx.bufs;
	struct vbn_buf *buf = vbn__shm_buf(bufs);

	if (buf)
		buf_start(bufs->pool, buf, pool_data(bufs->pool, buf), 0);
	return buf;
}

static cold enum found too_long(struct shm_queue *sq, uint32_t len)
{
	vbn__shm_fail(sq, VBN_LOCAL_LENGTH,
		"a message of %u bytes for a receive of %u (%s): is the message longer than its receive? make rx_pool's data_size larger",
		len, sq->rx.data_size,
		sq->rx.bufs->srq ? "a receive of the shared ring" : "a receive");
	return FOUND_NOTHING;
}

static fast_path enum found take_whole(
	struct shm_queue *sq, const struct record *record, struct vbn_event *event)
{
	struct shm_imm imm = {0};
	struct vbn_buf *buf;

	if (record->len > sq->rx.data_size)
		return too_long(sq, record->len);
	buf = start_buf(sq);
	if (!buf)
		return FOUND_NOTHING;
	if (record->kind == SHM_SEND_IMM)
		memcpy(&imm, record->extra, sizeof(imm));
	memcpy(buf->data, record->data, record->len);
	deliver(sq, buf, record->len, record->kind == SHM_SEND_IMM, imm.imm, VBN_OP_RECV,
		record->len, event);
	return FOUND_MESSAGE;
}

/* A piece's bytes go where they belong. */
static fast_path bool copy_part(struct shm_queue *sq, const struct record *record,
	const struct shm_borrowed *borrowed, uint8_t *to)
{
	if (record->kind == SHM_PART) {
		memcpy(to, record->data, record->len);
		return true;
	}
	sq->rx.fetched += borrowed->total;
	if (vbn__shm_fetch(sq, borrowed, to))
		return true;
	vbn__shm_unlent(sq);
	return false;
}

/* The next piece of a message: it follows the one before, and they are as long as was said. */
static fast_path enum found take_part(
	struct shm_queue *sq, const struct record *record, struct vbn_event *event)
{
	struct shm_rx *rx = &sq->rx;
	struct shm_borrowed borrowed;
	struct shm_part part;
	struct vbn_buf *buf;
	uint32_t len = record->len;

	memcpy(&part, record->extra, sizeof(part));
	if (record->kind == SHM_PART_REF) {
		if (!vbn__shm_borrow(sq, record->data, record->len, &borrowed)) {
			vbn__shm_fault(sq, "named memory that it has not lent");
			return FOUND_NOTHING;
		}
		len = borrowed.total;
	}
	if (part.total > rx->data_size)
		return too_long(sq, part.total);
	if (!rx->part) {
		rx->part = start_buf(sq);
		rx->part_total = part.total;
		rx->part_done = 0;
	}
	if (!rx->part)
		return FOUND_NOTHING;
	if (part.total != rx->part_total || part.offset != rx->part_done || !len ||
		len > part.total - part.offset) {
		vbn__shm_fault(sq, "sent pieces that make no message");
		return FOUND_NOTHING;
	}
	buf = rx->part;
	if (!copy_part(sq, record, &borrowed, buf->data + part.offset))
		return FOUND_NOTHING;
	rx->part_done += len;
	if (rx->part_done < part.total)
		return FOUND_OTHER;
	rx->part = NULL;
	deliver(sq, buf, part.total, part.has_imm != 0, part.has_imm ? part.imm : 0, VBN_OP_RECV,
		part.total, event);
	return FOUND_MESSAGE;
}

/* The message in the box. */
static fast_path enum found take_box(struct shm_queue *sq, uint64_t word, struct vbn_event *event)
{
	const uint32_t len = box_len(word);
	struct vbn_buf *buf;

	if (len > SHM_BOX_DATA) {
		vbn__shm_fault(sq, "put more into the box than it holds");
		return FOUND_NOTHING;
	}
	if (len > sq->rx.data_size)
		return too_long(sq, len);
	buf = start_buf(sq);
	if (!buf)
		return FOUND_NOTHING;
	copy_few(buf->data, box_data(sq->talk.box, len), len);
	box_taken(sq);
	deliver(sq, buf, len, false, 0, VBN_OP_RECV, len, event);
	return FOUND_MESSAGE;
}

/* A message that is in the box and comes before what is at pos, or 0. */
static force_inline uint64_t box_before(const struct shm_queue *sq, uint64_t pos)
{
	const uint64_t word = box_word_now(&sq->talk);

	return word && box_is_next(word, pos) ? word : 0;
}

static fast_path enum found take_other(
	struct shm_queue *sq, const struct record *record, struct vbn_event *event)
{
	switch (vbn__shm_serve(sq, record->kind, record->extra, record->len, event)) {
	case SERVED: return FOUND_OTHER;
	case SERVED_EVENT: return FOUND_MESSAGE;
	case SERVED_FAULT:
		if (!sq->queue.failed)
			vbn__shm_fault(sq, "sent a record that makes no sense");
		return FOUND_NOTHING;
	default: return FOUND_NOTHING;
	}
}

static bool is_part(uint32_t kind)
{
	return kind == SHM_PART || kind == SHM_PART_REF;
}

static bool is_message(uint32_t kind)
{
	return kind == SHM_SEND || kind == SHM_SEND_IMM || is_part(kind);
}

/* It may be an event. */
static bool is_write(uint32_t kind)
{
	return kind == SHM_WRITE || kind == SHM_WRITE_REF;
}

static force_inline void tell_taken(struct shm_rx *rx, uint64_t pos)
{
	rx->told = pos;
	/* What was there has been read: the peer may write it again, and knows its writes done. */
	store_release(&rx->head->taken, pos);
}

/* The record at rx->pos, which moves behind it unless nothing came of it. */
static fast_path enum found take_record(
	struct shm_queue *sq, uint64_t header, bool messages, struct vbn_event *event)
{
	struct shm_rx *rx = &sq->rx;
	struct record record;
	enum found found = FOUND_OTHER;

	if (!record_open(rx, rx->pos, header, &record)) {
		vbn__shm_fault(sq, "sent what is no record");
		return FOUND_NOTHING;
	}
	if (record_lines(header))
		rx->burst = rx->pos + (uint64_t)record_lines(header) * CACHE_LINE;
	if (!messages && (is_message(record.kind) || is_write(record.kind)))
		return FOUND_NOTHING;
	if (header & SHM_BEHIND_BOX) {
		const uint64_t word = box_before(sq, rx->pos);

		if (word)
			return messages ? take_box(sq, word, event) : FOUND_NOTHING;
	}
	if (record.kind == SHM_SEND || record.kind == SHM_SEND_IMM)
		found = take_whole(sq, &record, event);
	else if (is_part(record.kind))
		found = take_part(sq, &record, event);
	else if (record.kind != SHM_PAD)
		found = take_other(sq, &record, event);
	if (found == FOUND_NOTHING)
		return found;
	rx->pos += record.size;
	if (rx->fetched) /* somebody waits for its bufs */
		tell_taken(rx, rx->pos);
	return found;
}

/* ---- bursts ---- */

fast_path void vbn__shm_progress(struct shm_queue *sq)
{
	struct shm_rx *rx = &sq->rx;
	struct vbn_event none;
	uint64_t header;

	for (int i = 0; i < OTHERS && !sq->queue.failed; i++) {
		header = ring_look(rx->ring, rx->mask, rx->pos);
		if (!header || take_record(sq, header, false, &none) == FOUND_NOTHING)
			break;
	}
	if (rx->pos != rx->told && !sq->queue.failed)
		tell_taken(rx, rx->pos);
	if (!sq->queue.failed)
		vbn__shm_follow(sq);
}

/* What is not a message in one record: 1, 0 where it is none, or -1 where nothing more can be had. */
static noinline fast_path int take_rare(struct shm_queue *sq, uint64_t header, struct vbn_buf **buf,
	struct vbn_event *event, uint32_t *bytes)
{
	struct vbn_event own;
	enum found found = take_record(sq, header, true, event ? event : &own);

	if (found != FOUND_MESSAGE)
		return found == FOUND_OTHER ? 0 : -1;
	*bytes = event ? event->len : own.len;
	if (buf)
		*buf = own.buf;
	return 1;
}

/* Hands out up to n messages, as bufs or as events. */
static force_inline int take(
	struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	struct shm_rx *rx = &sq->rx;
	struct vbn_pool *pool = rx->bufs->pool;
	uint8_t *const ring = rx->ring;
	const uint64_t word = len_and_word(pool, 0);
	const uint32_t mask = rx->mask, longest = min(rx->data_size, mask);
	const uint32_t data_at = (uint32_t)sizeof(struct vbn_buf) + pool->headroom;
	struct vbn_buf *const *top = pool->stack + pool->n_free, *const *const bottom = pool->stack;
	uint64_t pos = rx->pos, burst = rx->burst, bytes = 0;
	int got = 0, others = OTHERS;

	while (got < n) {
		const uint64_t header = ring_look(ring, mask, pos);
		const uint32_t len = record_len(header), at = (uint32_t)pos & mask;
		const uint32_t size = record_size(0, len);
		struct vbn_buf *buf;

		if (likely(record_kind(header) == SHM_SEND && len <= longest &&
			    at + size <= mask + 1 && top != bottom)) {
			const uint8_t *from = ring + at + SHM_WORD;

			ring_fetch_ahead(ring, mask, pos, header, &burst);
			buf = *--top;
			vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
			buf_set(buf, (uint8_t *)buf + data_at, word | len);
			copy_message((uint8_t *)buf + data_at, from, len);
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
			if (unlikely(pos - rx->told > mask / 8))
				tell_taken(rx, pos);
			continue;
		}
		if (likely(!header))
			break;
		pool->n_free = (uint32_t)(top - bottom);
		rx->pos = pos;
		rx->burst = burst;
		{
			uint32_t more = 0;
			int ret = take_rare(sq, header, bufs ? &bufs[got] : NULL,
				events ? &events[got] : NULL, &more);

			top = pool->stack + pool->n_free;
			pos = rx->pos;
			burst = rx->burst;
			if (ret < 0)
				break;
			got += ret;
			bytes += more;
			others -= 1 + (int)(rx->fetched / SHM_PIECE);
			rx->fetched = 0;
			if (others <= 0)
				break;
		}
	}
	pool->n_free = (uint32_t)(top - bottom);
	rx->pos = pos;
	rx->burst = burst;
	if (pos != rx->told)
		tell_taken(rx, pos);
	count_add(&sq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&sq->queue.stats.rx_bytes, bytes);
	return got;
}

/* ---- what a connected queue does ---- */

static force_inline bool nothing_to_do(struct shm_queue *sq, bool *boxed)
{
	const struct shm_rx *rx = &sq->rx;
	const uint64_t header = ring_look(rx->ring, rx->mask, rx->pos);

	*boxed = box_look(&sq->talk);
	/* A message that passes the line's end is then fetched in one go. */
	__builtin_prefetch(rx->ring + ((rx->pos + CACHE_LINE) & rx->mask));
	return !header && !*boxed && sq->tx.tail == sq->tx.head && rx->bufs->n == rx->bufs->depth &&
		rx->pending_head == rx->pending_tail;
}

/* Behind a take: own operations go on. How many events. */
static noinline fast_path int go_on(
	struct shm_queue *sq, uint32_t open, struct vbn_event *events, int n)
{
	struct vbn_queue *queue = &sq->queue;
	struct shm_bufs *bufs = sq->rx.bufs;
	int got = 0;

	if (bufs->n != bufs->depth && bufs->srq)
		got = vbn__shm_srq_refill(bufs, events, n);
	else if (bufs->n != bufs->depth)
		count_add(&queue->stats.rx_no_buf, vbn__shm_bufs_fill(bufs));
	if (sq->rx.pending_head != sq->rx.pending_tail)
		vbn__shm_serve_pending(sq);
	if (sq->tx.put != sq->tx.head && sq->tx.rung == sq->tx.put)
		vbn__shm_tx_go_on(sq);
	if (unlikely(queue->failed))
		return got;
	vbn__shm_follow(sq);
	if (unlikely(queue->failed))
		return got;
	got += vbn__shm_release(sq, sq->tx.done, VBN_OK, events + got, n - got);
	if (unlikely(!open && (sq->tx.done != sq->tx.rung || sq->tx.put != sq->tx.head)))
		vbn__shm_peer_closed(sq);
	return got;
}

static force_inline bool has_more(const struct shm_queue *sq)
{
	return sq->tx.tail != sq->tx.head || sq->rx.bufs->n != sq->rx.bufs->depth ||
		sq->rx.pending_head != sq->rx.pending_tail;
}

/* One of the box, where it is the next. */
static noinline fast_path int take_lone(
	struct shm_queue *sq, struct vbn_buf **buf, struct vbn_event *event)
{
	const uint64_t word = box_word_now(&sq->talk);
	struct vbn_event own;

	if (!word)
		return 0;
	if (unlikely(!box_may_be(word, sq->rx.pos, sq->rx.mask)))
		vbn__shm_fault(sq, "put into the box what comes behind what was never sent");
	if (!box_is_next(word, sq->rx.pos) || sq->queue.failed ||
		take_box(sq, word, event ? event : &own) != FOUND_MESSAGE)
		return 0;
	if (buf)
		*buf = own.buf;
	count_add(&sq->queue.stats.rx_messages, 1);
	count_add(&sq->queue.stats.rx_bytes, event ? event->len : own.len);
	return 1;
}

/* Of the box and the ring, in their order: what is in the box may be behind what the ring has. */
static force_inline int take_both(struct shm_queue *sq, struct vbn_buf **bufs,
	struct vbn_event *events, int n, const bool boxed)
{
	int got = unlikely(boxed) ? take_lone(sq, bufs, events) : 0;

	if (likely(got < n) && likely(!sq->queue.failed))
		got += take(sq, bufs ? bufs + got : NULL, events ? events + got : NULL, n - got);
	if (unlikely(boxed) && got < n && !sq->queue.failed)
		got += take_lone(sq, bufs ? bufs + got : NULL, events ? events + got : NULL);
	return got;
}

/* Where nothing has come, perhaps nothing ever will. */
static force_inline void look_for_death(struct shm_queue *sq)
{
	if (unlikely(life_is_over(sq->rx.life)) && !sq->queue.failed)
		vbn__shm_peer_died(sq);
}

static noinline fast_path int poll_busy(
	struct vbn_queue *queue, struct vbn_event *events, int n, bool boxed)
{
	struct shm_queue *sq = shm_queue(queue);
	const uint32_t open =
		load_acquire(&sq->tx.peer->open); /* answers were sent before it went */
	int got = 0;

	if (likely(n > 0))
		got = take_both(sq, NULL, events, n, boxed);
	else
		vbn__shm_progress(sq);
	if (has_more(sq) && !queue->failed)
		got += go_on(sq, open, events + got, n - got);
	if (!got)
		look_for_death(sq);
	if (unlikely(queue->failed))
		got += queue->ops->poll(queue, events + got, n - got); /* says so at once */
	return got;
}

static fast_path int poll_events(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct shm_queue *sq = shm_queue(queue);
	bool boxed;

	if (nothing_to_do(sq, &boxed) && likely(!life_is_over(sq->rx.life)))
		return 0;
	return poll_busy(queue, events, n, boxed);
}

static noinline fast_path int recv_busy(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, bool boxed)
{
	struct shm_queue *sq = shm_queue(queue);
	const uint32_t open = load_acquire(&sq->tx.peer->open);
	int got = likely(n > 0) ? take_both(sq, bufs, NULL, n, boxed) : 0;

	if (has_more(sq) && !queue->failed)
		go_on(sq, open, NULL, 0);
	if (!got)
		look_for_death(sq);
	return got;
}

static fast_path int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct shm_queue *sq = shm_queue(queue);
	bool boxed;

	if (nothing_to_do(sq, &boxed) && likely(!life_is_over(sq->rx.life)))
		return 0;
	return recv_busy(queue, bufs, n, boxed);
}

static fast_path int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return -EOPNOTSUPP;
}

void vbn__shm_rx_ops(struct queue_ops *ops, bool shared)
{
	ops->recv = shared ? no_recv : recv_bufs;
	ops->poll = poll_events;
}

/* ---- a failed queue: messages that had come are still taken ---- */

/* Behind the last record that is there now. */
static uint64_t find_end(const struct shm_rx *rx)
{
	uint64_t pos = rx->pos, header;
	struct record record;

	while (pos - rx->pos <= rx->mask && (header = ring_look(rx->ring, rx->mask, pos)) &&
		record_open(rx, pos, header, &record))
		pos += record.size;
	return pos;
}

void vbn__shm_rx_stop(struct shm_queue *sq, bool faulty)
{
	sq->rx.stop = faulty ? sq->rx.pos : find_end(&sq->rx);
}

/* Nothing but messages, and those as long as there are bufs for them. */
static enum found take_message(struct shm_queue *sq, struct vbn_event *event)
{
	struct shm_rx *rx = &sq->rx;
	const uint64_t word = sq->failure.faulty ? 0 : box_before(sq, rx->pos);
	struct record record;
	enum found found = FOUND_OTHER;
	uint64_t header;

	if (word)
		return take_box(sq, word, event);
	if ((int64_t)(rx->stop - rx->pos) <= 0)
		return FOUND_NOTHING;
	header = ring_look(rx->ring, rx->mask, rx->pos);
	if (!header || !record_open(rx, rx->pos, header, &record))
		return FOUND_NOTHING;
	if (record.kind == SHM_SEND || record.kind == SHM_SEND_IMM)
		found = take_whole(sq, &record, event);
	else if (is_part(record.kind))
		found = take_part(sq, &record, event);
	if (found != FOUND_NOTHING)
		rx->pos += record.size;
	return found;
}

int vbn__shm_take_rest(struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	uint64_t bytes = 0;
	int got = 0;

	if (sq->ud)
		return vbn__shm_ud_take_rest(sq, bufs, events, n);
	while (got < n && !sq->failure.reported) {
		struct vbn_event event;
		enum found found = take_message(sq, &event);

		if (found == FOUND_NOTHING)
			break;
		if (found == FOUND_OTHER)
			continue;
		bytes += event.len;
		if (events)
			events[got++] = event;
		else
			bufs[got++] = event.buf;
	}
	count_add(&sq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&sq->queue.stats.rx_bytes, bytes);
	return got;
}

static bool is_last_part(const struct record *record)
{
	struct shm_part part;
	uint32_t len = record->len;

	memcpy(&part, record->extra, sizeof(part));
	if (record->kind == SHM_PART_REF) {
		len = 0;
		for (uint32_t at = 0; at + sizeof(struct shm_ref) <= record->len;
			at += (uint32_t)sizeof(struct shm_ref)) {
			struct shm_ref ref;

			memcpy(&ref, record->data + at, sizeof(ref));
			len += ref.len;
		}
	}
	return part.offset + len == part.total;
}

uint32_t vbn__shm_rx_unread(const struct shm_queue *sq)
{
	const struct shm_rx *rx = &sq->rx;
	const uint64_t end = sq->queue.failed ? rx->stop : find_end(rx);
	uint64_t pos = rx->pos, header;
	struct record record;
	uint32_t n = sq->talk.box && !sq->failure.faulty && box_word_now(&sq->talk) ? 1 : 0;

	while ((int64_t)(end - pos) > 0 && (header = ring_look(rx->ring, rx->mask, pos)) &&
		record_open(rx, pos, header, &record)) {
		n += record.kind == SHM_SEND || record.kind == SHM_SEND_IMM ||
			(is_part(record.kind) && is_last_part(&record));
		pos += record.size;
	}
	return n;
}
