/* raw_stride_rx.c - packets that have arrived in strides: each is copied into a buf, and what its CQE
 * says with it */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/raw_cqe.h"

#define FILLER (1u << 31) /* in a byte count: strides that nothing lies in */

/* Of a byte count: how many strides, and how many bytes lie in them. */
static force_inline uint32_t strides_of(uint32_t count)
{
	return count >> 16;
}

static force_inline uint32_t bytes_of(uint32_t count)
{
	return count & 0xffff;
}

/* ---- where the device is ---- */

static force_inline uint8_t *run_at(const struct raw_queue *raw, uint16_t wqe)
{
	return raw->strides.zone->base +
		((size_t)(wqe & raw->rq.mask) << (raw->strides.log2_n + STRIDE_LOG2));
}

/* n strides have been taken, of the WQE's that are left. */
static force_inline void strides_taken(struct raw_queue *raw, uint32_t n)
{
	struct strides *strides = &raw->strides;

	strides->used += n;
	if (strides->used == strides->n) {
		strides->used = 0;
		raw->rq.tail++;
	}
}

/* Whether an entry is of a packet that a buf holds, and that ends in its WQE. A filler has more strides
 * than any WQE. */
static force_inline bool is_packet(const struct strides *strides, uint32_t count, uint32_t at)
{
	const uint32_t n = strides_of(count), len = bytes_of(count);

	return n - 1 < strides->n - at && len <= n << STRIDE_LOG2 &&
		len - LEAST_FRAME <= strides->longest - LEAST_FRAME;
}

/* An entry that is of none: true where it is done with. False: it cannot be. */
static cold bool take_strange(struct raw_queue *raw, uint32_t count, uint32_t at)
{
	const struct strides *strides = &raw->strides;
	const uint32_t n = strides_of(count & ~FILLER);

	if (at != strides->used || !n || n > strides->n - at ||
		(!(count & FILLER) && bytes_of(count) > n << STRIDE_LOG2))
		return false;
	if (!(count & FILLER))
		count_add(bytes_of(count) < LEAST_FRAME ? &raw->queue.stats.rx_malformed
							: &raw->queue.stats.rx_too_long,
			1);
	strides_taken(raw, n);
	return true;
}

/* A packet for which there is no buf waits in its strides; of a queue that has failed nothing does. */
static cold bool take_without_buf(struct raw_queue *raw, uint32_t count)
{
	if (!raw->queue.failed) {
		count_add(&raw->queue.stats.rx_no_buf, 1);
		return false;
	}
	count_add(&raw->queue.stats.rx_flushed, 1);
	strides_taken(raw, strides_of(count));
	return true;
}

/* ---- copies ---- */

typedef uint8_t line_t __attribute__((vector_size(16)));

/* Strides and the room of bufs are whole cache lines. */
static force_inline void copy_line(uint8_t *to, const uint8_t *from)
{
	const line_t *source = (const void *)from;
	line_t *dest = (void *)to;

#pragma GCC unroll 4
	for (size_t i = 0; i < CACHE_LINE / sizeof(line_t); i++)
		dest[i] = source[i];
}

static force_inline void copy_packet(uint8_t *to, const uint8_t *from, uint32_t len)
{
	enum { BY_LINES = 256 };

	copy_line(to, from);
	if (likely(len <= CACHE_LINE))
		return;
	if (len > BY_LINES) {
		memcpy(to, from, len);
		return;
	}
	for (uint32_t at = CACHE_LINE; at < len; at += CACHE_LINE)
		copy_line(to + at, from + at);
}

/* ---- take ---- */

/* The bufs of a burst, and where its packets lie: between open and close nothing else uses the pool. */
struct landing {
	struct vbn_buf **top;
	const uint8_t *from; /* the next packet */
	uint32_t used, offset;
	uint64_t word;
	uint32_t most; /* packets */
};

static force_inline struct landing landing_open(struct raw_queue *raw, uint32_t n)
{
	const uint32_t used = raw->strides.used;
	struct vbn_pool *pool = raw->rq.pool;

	n = pool_ready(pool, n);
	return (struct landing){.top = pool->stack + pool->n_free,
		.from = run_at(raw, raw->rq.tail) + ((size_t)used << STRIDE_LOG2),
		.used = used,
		.offset = raw->rq.data_offset,
		.word = len_and_word(pool, 0),
		.most = n};
}

static force_inline void landing_close(struct raw_queue *raw, const struct landing *landing)
{
	struct vbn_pool *pool = raw->rq.pool;

	pool->n_free = (uint32_t)(landing->top - pool->stack);
	raw->strides.used = landing->used;
}

/* The next packet, with all but what its CQE says; NULL: it is a strange one. */
static force_inline struct vbn_buf *land(
	struct raw_queue *raw, struct landing *landing, uint32_t count, uint32_t at)
{
	const struct strides *strides = &raw->strides;
	uint32_t n = 1;
	struct vbn_buf *buf;
	uint8_t *data;

	if (unlikely(at != landing->used))
		return NULL;
	if (unlikely(count - (1u << 16 | LEAST_FRAME) > strides->span_of_one)) {
		n = strides_of(count);
		if (!is_packet(strides, count, at))
			return NULL;
	}
	buf = *--landing->top;
	data = (uint8_t *)buf + landing->offset;
	vbn__buf_debug_alloc(raw->rq.pool, buf, __builtin_return_address(0));
	copy_packet(data, landing->from, bytes_of(count));
	buf_set(buf, data, landing->word | bytes_of(count));
	landing->used += n;
	landing->from += (size_t)n << STRIDE_LOG2;
	if (unlikely(landing->used == strides->n)) {
		landing->used = 0;
		landing->from = run_at(raw, ++raw->rq.tail);
	}
	return buf;
}

/* Entries one behind the other, up to the end of the ring of CQEs, or to a strange one. */
static force_inline uint32_t take_run(struct raw_queue *raw, struct vbn_buf **bufs, uint32_t most,
	uint64_t *bytes, const bool timed)
{
	const struct cq *cq = &raw->recv_cq;
	const size_t stride = (size_t)1 << cq->log2_stride;
	const uint8_t expected =
		(uint8_t)(CQE_IS(MLX5_CQE_RESP_SEND) | (cq->index >> cq->log2_count & 1));
	const struct mlx5_cqe64 *cqe = cq_entry(cq, cq->index);
	struct landing landing =
		landing_open(raw, min(most, cq->mask + 1 - (cq->index & cq->mask)));
	struct last_facts last = {.kind = NO_KIND};
	struct vbn_buf **const first = bufs, **const end = bufs + landing.most;
	uint64_t sum = 0;

	for (; bufs != end; bufs++) {
		struct vbn_buf *buf;
		uint32_t count;

		if ((load_once(&cqe->op_own) & 0xfd) != expected)
			break;
		owner_before_body(); /* as cq_look() has it */
		count = from_be32(cqe->byte_cnt);
		buf = land(raw, &landing, count, from_be16(cqe->wqe_counter));
		if (unlikely(!buf))
			break;
		buf_say(buf, cqe, same_facts(cqe, &last), timed);
		*bufs = buf;
		sum += bytes_of(count);
		cqe = (const void *)((const uint8_t *)cqe + stride);
	}
	landing_close(raw, &landing);
	*bytes += sum;
	return (uint32_t)(bufs - first);
}

static void count_taken(struct raw_queue *raw, uint32_t n, uint64_t bytes)
{
	count_add(&raw->queue.stats.rx_messages, n);
	count_add(&raw->queue.stats.rx_bytes, bytes);
}

/* What ends a run: true where there may be more behind it. */
static fast_path bool step_over(struct raw_queue *raw)
{
	struct cq *cq = &raw->recv_cq;
	const struct mlx5_cqe64 *cqe;
	uint32_t count, at;

	if (cq_look(cq, cq->index, &cqe) != CQE_IS(MLX5_CQE_RESP_SEND))
		return false;
	count = from_be32(cqe->byte_cnt);
	at = from_be16(cqe->wqe_counter);
	if (at == raw->strides.used && is_packet(&raw->strides, count, at)) {
		if (pool_ready(raw->rq.pool, 1))
			return true; /* it was the ring's end */
		if (!take_without_buf(raw, count))
			return false;
	} else if (!take_strange(raw, count, at)) {
		vbn__raw_stride_failed(raw, count, at);
		return false;
	}
	cq->index++;
	return true;
}

/* Runs that have been emptied are the device's, once it knows that their CQEs have been read. */
static force_inline void post_runs(struct raw_queue *raw)
{
	struct rq *rq = &raw->rq;
	const uint16_t head = (uint16_t)(rq->tail + rq->depth);

	if (head == rq->head)
		return;
	rq->head = head;
	cqes_before_record(); /* of packets the same: they have been read */
	store_once(&rq->record[MLX5_RCV_DBR], be32(head));
}

static force_inline int take(struct raw_queue *raw, struct vbn_buf **bufs, int n, const bool timed)
{
	struct cq *cq = &raw->recv_cq;
	const uint32_t first = cq->index;
	uint64_t bytes = 0;
	int got = 0;

	while (got < n) {
		const uint32_t run = take_run(raw, bufs + got, (uint32_t)(n - got), &bytes, timed);

		got += (int)run;
		cq->index += run;
		if (got < n && !step_over(raw))
			break;
	}
	if (cq->index != first)
		cq_consume(cq, cq->index);
	if (timed && got)
		vbn__raw_times(raw, bufs, got);
	count_taken(raw, (uint32_t)got, bytes);
	return got;
}

/* ---- compressed: a mini CQE says where its packet begins, and has no hash ---- */

static fast_path bool begin(struct raw_queue *raw, uint8_t seen, const struct mlx5_cqe64 *cqe)
{
	struct cq *cq = &raw->recv_cq;
	const uint32_t wqes = (uint16_t)(raw->rq.head - raw->rq.tail);

	if (unlikely(!session_open(
		    cq, cq->index, cqe, seen, (wqes << raw->strides.log2_n) - raw->strides.used))) {
		vbn__raw_failed(raw, cqe);
		return false;
	}
	raw->title_facts = cqe_facts(cqe);
	raw->title_tag = cqe_qpn(cqe);
	cq->index += cq->session->n;
	return true;
}

/* Of the session under way, up to a strange one: how many packets. */
static fast_path uint32_t hand_out(struct raw_queue *raw, uint32_t n, struct vbn_buf **bufs)
{
	struct session *session = raw->recv_cq.session;
	const struct completion *completions = session_next(session);
	struct landing landing = landing_open(raw, n);
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < landing.most; i++) {
		const uint32_t count = completions[i].len;
		struct vbn_buf *buf =
			land(raw, &landing, count, completion_stride(&completions[i]));

		if (unlikely(!buf))
			break;
		buf_describe(buf, raw->title_facts, raw->title_tag, 0, false);
		bufs[i] = buf;
		bytes += bytes_of(count);
	}
	landing_close(raw, &landing);
	if (unlikely(!i))
		return 0;
	session_take(session, &raw->recv_cq, i);
	count_taken(raw, i, bytes);
	count_add(&raw->queue.stats.rx_compressed, i);
	return i;
}

/* The same of a session's next completion. */
static fast_path bool step_in(struct raw_queue *raw)
{
	struct session *session = raw->recv_cq.session;
	const struct completion *next = session_next(session);
	const uint32_t at = completion_stride(next);

	if (at == raw->strides.used && is_packet(&raw->strides, next->len, at)) {
		if (!take_without_buf(raw, next->len))
			return false;
	} else if (!take_strange(raw, next->len, at)) {
		vbn__raw_stride_failed(raw, next->len, at);
		session_drop(session, &raw->recv_cq);
		return false;
	}
	session_take(session, &raw->recv_cq, 1);
	return true;
}

static fast_path int take_compressed(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	struct cq *cq = &raw->recv_cq;
	int got = 0;

	while (got < n) {
		const uint32_t ready = min(session_ready(cq->session), (uint32_t)(n - got));
		const struct mlx5_cqe64 *cqe;
		uint8_t seen;

		if (ready) {
			const uint32_t run = hand_out(raw, ready, bufs + got);

			got += (int)run;
			if (run < ready && !step_in(raw))
				break;
			continue;
		}
		seen = cq_look(cq, cq->index, &cqe);
		if (cqe_absent(seen))
			break;
		if (cqe_is_title(seen)) {
			if (!begin(raw, seen, cqe))
				break;
		} else if (take(raw, bufs + got, 1, false) == 1) {
			got++;
		} else {
			break;
		}
	}
	cqes_before_record();
	store_once(cq->record, be32(session_consumed(cq->session, cq->index) & 0xffffff));
	return got;
}

fast_path int vbn__raw_stride_take(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	int got;

	if (raw->recv_cq.session)
		got = take_compressed(raw, bufs, n);
	else if (raw->queue.conf.timestamps == VBN_ON)
		got = take(raw, bufs, n, true);
	else
		got = take(raw, bufs, n, false);
	post_runs(raw);
	return got;
}
