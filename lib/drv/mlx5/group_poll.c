/* group_poll.c - one poll for all queues that share CQs: their receives, what waits for room in the
 * order it came, and their sends */

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"
#include "drv/mlx5/sq.h"

/* ---- lists: each queue is in each at most once ---- */

fast_path void vbn__group_backlog(struct mlx5_queue *mq)
{
	struct mlx5_group *group = mq->group;

	if (mq->in_backlog || mq->parted)
		return;
	mq->in_backlog = true;
	mq->next_backlog = NULL;
	if (group->backlog)
		group->backlog_last->next_backlog = mq;
	else
		group->backlog = mq;
	group->backlog_last = mq;
}

static force_inline void note_short(struct mlx5_group *group, struct mlx5_queue *mq)
{
	if (mq->in_short)
		return;
	mq->in_short = true;
	mq->next_short = group->short_rings;
	group->short_rings = mq;
}

/* ---- receives ---- */

static cold void recv_failed(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe)
{
	if (!mq->queue.failed)
		vbn__mlx5_failed(mq, false, cqe);
	vbn__failed_recv_cqe(mq, cqe);
	vbn__group_backlog(mq);
}

/* The buf that the message behind this one will be in: of a shared ring the device follows the list. */
static force_inline void prefetch_next(const struct rq *rq, uint16_t index)
{
	const uint16_t next = rq->linked ? srq_next(rq, index) : (uint16_t)(index + 1);

	__builtin_prefetch(rq->slots[next & rq->mask], 1);
}

/* One message, unless the entry is an error. */
static force_inline int recv_one(struct mlx5_group *group, struct mlx5_queue *mq,
	const struct mlx5_cqe64 *cqe, uint8_t seen, struct vbn_event *event, const bool prefetch)
{
	struct rq *rq = mq->rq;
	struct arrival arrival = {.len = from_be32(cqe->byte_cnt), .op = VBN_OP_RECV};
	const uint16_t index = rq->linked ? from_be16(cqe->wqe_counter) : rq->tail;
	struct vbn_buf *buf = rq->slots[index & rq->mask];

	if (unlikely(seen != CQE_IS(MLX5_CQE_RESP_SEND)) &&
		!vbn__rq_take_other(mq, cqe, seen, buf, &arrival)) {
		recv_failed(mq, cqe);
		return 0;
	}
	if (prefetch)
		prefetch_next(rq, index);
	if (rq->linked) {
		srq_take(rq, index);
	} else {
		rq->tail++;
		note_short(group, mq);
	}
	buf_receive(rq, buf, len_and_word(rq->pool, 0), cqe, &arrival, rq->datagrams);
	recv_event(mq, buf, &arrival, event);
	count_add(&mq->queue.stats.rx_messages, 1);
	count_add(&mq->queue.stats.rx_bytes, arrival.len);
	return 1;
}

/* Messages of the session under way, n of those that are decoded. */
static force_inline void recv_decoded(
	struct mlx5_queue *mq, const struct session *session, uint32_t n, struct vbn_event *events)
{
	struct rq *rq = mq->rq;
	const struct completion *completions = session_next(session);
	const uint64_t word = len_and_word(rq->pool, 0);
	uint16_t index = rq->linked ? (uint16_t)(session->wqe + session->taken) : rq->tail;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++, index++) {
		struct vbn_buf *buf = rq->slots[index & rq->mask];
		struct arrival arrival = {.len = completions[i].len, .op = VBN_OP_RECV};

		if (rq->linked)
			srq_take(rq, index);
		else
			rq->tail++;
		if (rq->datagrams)
			buf_source(rq, buf, session->source, &arrival);
		buf_set(buf, (uint8_t *)buf + rq->data_offset, word | arrival.len);
		recv_event(mq, buf, &arrival, &events[i]);
		bytes += arrival.len;
	}
	count_add(&mq->queue.stats.rx_messages, n);
	count_add(&mq->queue.stats.rx_compressed, n);
	count_add(&mq->queue.stats.rx_bytes, bytes);
}

/* The session under way, as far as there is room. */
static force_inline int recv_session(
	struct mlx5_group *group, const struct cq *cq, struct vbn_event *events, int n)
{
	struct session *session = cq->session;
	struct mlx5_queue *mq = group_find(group, session->qpn);
	uint32_t ready;
	int got = 0;

	if (unlikely(!mq)) { /* a queue that goes takes its sessions along */
		session_drop(session, cq);
		return 0;
	}
	if (!mq->rq->linked)
		note_short(group, mq);
	while (got < n && (ready = session_ready(session))) {
		ready = min(ready, (uint32_t)(n - got));
		recv_decoded(mq, session, ready, events + got);
		session_take(session, cq, ready);
		got += (int)ready;
	}
	return got;
}

/* The title at `index` is of this queue, or of none that is left: begun, or passed over. How many
 * entries. */
static noinline fast_path uint32_t recv_title(struct mlx5_queue *mq, struct cq *cq, uint32_t index,
	const struct mlx5_cqe64 *cqe, uint8_t seen)
{
	const uint32_t span = cqe_span(cq, cqe, seen);

	if (unlikely(!mq)) {
		slots_done(cq, index, span);
	} else if (unlikely(!session_open(cq, index, cqe, seen, rq_posted(mq->rq)))) {
		recv_failed(mq, cqe);
		return 1; /* how many is not to be believed */
	}
	return span;
}

static force_inline int poll_receives(struct mlx5_group *group, struct cq *cq,
	struct vbn_event *events, int n, const bool compressed, const bool prefetch)
{
	const struct cq ring = *cq;
	uint32_t index = ring.index;
	int got = 0;

	while (got < n) {
		const struct mlx5_cqe64 *cqe;
		struct mlx5_queue *mq;
		uint8_t seen;

		if (compressed && session_ready(ring.session)) {
			got += recv_session(group, &ring, events + got, n - got);
			continue;
		}
		seen = cq_look(&ring, index, &cqe);
		if (cqe_absent(seen))
			break;
		if (prefetch)
			__builtin_prefetch(cq_entry(&ring, index + 4));
		mq = group_find(group, cqe_qpn(cqe));
		if (compressed && cqe_is_title(seen)) {
			index += recv_title(mq, cq, index, cqe, seen);
			continue;
		}
		index++;
		if (likely(mq))
			got += recv_one(group, mq, cqe, seen, &events[got], prefetch);
	}
	if (index != ring.index || (compressed && got)) {
		cq->index = index;
		cqes_before_record();
		if (compressed)
			index = session_consumed(ring.session, index);
		store_once(cq->record, be32(index & 0xffffff));
		group->idle_polls = 0;
	}
	return got;
}

#define POLL_RECEIVES(name, compressed, prefetch)                                         \
	static noinline fast_path int name(                                               \
		struct mlx5_group *group, struct cq *cq, struct vbn_event *events, int n) \
	{                                                                                 \
		return poll_receives(group, cq, events, n, compressed, prefetch);         \
	}

POLL_RECEIVES(poll_receives_plain, false, false)
POLL_RECEIVES(poll_receives_ahead, false, true)
POLL_RECEIVES(poll_receives_compressed, true, false)

/* Posts again what was taken; a ring that stays short, its pool being empty, is tried again. */
static force_inline void refill_short(struct mlx5_group *group)
{
	struct mlx5_queue *mq = group->short_rings;

	group->short_rings = NULL;
	while (mq) {
		struct mlx5_queue *next = mq->next_short;

		mq->in_short = false;
		if (likely(!mq->queue.failed)) {
			vbn__rq_refill(mq);
			if (unlikely(ring_is_short(mq->rq)))
				note_short(group, mq);
		}
		mq = next;
	}
}

/* The pool does not keep up: said once, until the ring is full again. */
static cold int limit_event(struct mlx5_srq *srq, struct vbn_event *event)
{
	srq->below = true;
	count_add(&srq->srq.limits, 1);
	*event = (struct vbn_event){
		.cookie = srq->srq.conf.context, .op = VBN_OP_SRQ_LIMIT, .status = VBN_OK};
	return 1;
}

static force_inline int refill_shared(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct mlx5_srq *srq = group->srqs; srq; srq = srq->next) {
		if (likely(srq->rq.posted == srq->rq.depth))
			continue;
		count_add(&srq->srq.no_buf, vbn__srq_refill(&srq->rq));
		if (srq->rq.posted == srq->rq.depth)
			srq->below = false;
		else if (srq->rq.posted < srq->srq.conf.limit && !srq->below && got < n)
			got += limit_event(srq, &events[got]);
	}
	return got;
}

/* ---- the poll ---- */

static cold int serve_backlog(struct mlx5_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	while (group->backlog && got < n) {
		struct mlx5_queue *mq = group->backlog;
		bool more;

		if (mq->queue.away) {
			more = false; /* it has nothing to give, or comes here again when it is back */
		} else if (mq->queue.failed) {
			got += vbn__failed_events(mq, events + got, n - got);
			more = vbn__failed_has_more(mq);
		} else {
			got += vbn__sq_release(mq, mq->sq.done, VBN_OK, events + got, n - got);
			more = mq->sq.tail != mq->sq.done;
		}
		if (more && got == n)
			break;
		group->backlog = mq->next_backlog;
		mq->in_backlog = false;
	}
	return got;
}

/* Receives first, so that what had arrived on a queue comes before its failure; then what waits, and
 * then sends, whose failures wait for the next poll. */
static force_inline int poll(struct queue_group *base, struct vbn_event *events, int n,
	const bool compressed, const bool prefetch)
{
	struct mlx5_group *group = container_of(base, struct mlx5_group, group);
	int got = 0;

	for (struct shared_cq *shared = load_acquire(&group->recv_cqs); shared && got < n;
		shared = shared->next)
		got += (compressed && shared->cq.compressed ? poll_receives_compressed
				: prefetch
				? poll_receives_ahead
				: poll_receives_plain)(group, &shared->cq, events + got, n - got);
	refill_short(group);
	got += refill_shared(group, events + got, n - got);
	if (unlikely(group->backlog && got < n))
		got += serve_backlog(group, events + got, n - got);
	got += (compressed ? vbn__group_sends_any : vbn__group_sends)(group, events + got, n - got);
	if (unlikely(group->idle && ++group->idle_polls >= IDLE_POLLS))
		vbn__group_complete_idle(group);
	return got;
}

static fast_path int poll_plain(struct queue_group *group, struct vbn_event *events, int n)
{
	return poll(group, events, n, false, false);
}

static fast_path int poll_ahead(struct queue_group *group, struct vbn_event *events, int n)
{
	return poll(group, events, n, false, true);
}

static fast_path int poll_compressed(struct queue_group *group, struct vbn_event *events, int n)
{
	return poll(group, events, n, true, false);
}

static fast_path int poll_compressed_ahead(
	struct queue_group *group, struct vbn_event *events, int n)
{
	return poll(group, events, n, true, true);
}

void vbn__group_choose_poll(struct mlx5_group *group)
{
	int (*form)(struct queue_group * group, struct vbn_event * events, int n);

	if (group->compressed)
		form = group->prefetch ? poll_compressed_ahead : poll_compressed;
	else
		form = group->prefetch ? poll_ahead : poll_plain;
	if (group->group.poll != form)
		store_once(&group->group.poll, form);
}

static int queue_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)events, (void)n;
	vbn__group_reap(mlx5_queue(queue)->group);
	return 0;
}

static int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return -EOPNOTSUPP;
}

void vbn__group_ops(struct queue_ops *ops)
{
	ops->recv = no_recv;
	ops->poll = queue_poll;
}
