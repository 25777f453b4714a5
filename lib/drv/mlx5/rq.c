/* rq.c - the receive queue: what has arrived is handed out, and as many bufs are posted again */

#include "drv/mlx5/rq.h"

#include "drv/mlx5/mini.h"

static force_inline void refill(struct mlx5_queue *mq)
{
	rq_refill(mq->rq, &mq->queue.stats);
}

fast_path void vbn__rq_refill(struct mlx5_queue *mq)
{
	refill(mq);
}

/* The same for a shared ring, whose free WQEs are a list that the device follows, too; its record is
 * a count of all that were ever posted. Returns how many the pool had not. */
fast_path uint32_t vbn__srq_refill(struct rq *rq)
{
	struct vbn_pool *pool = rq->pool;
	const uint32_t wanted = (uint32_t)rq->depth - rq->posted, n = pool_ready(pool, wanted);
	uint16_t head = rq->head;

	if (!n)
		return wanted;
	for (uint32_t i = 0; i < n; i++) {
		struct mlx5_wqe_srq_next_seg *link = srq_link(rq, head);
		struct mlx5_wqe_data_seg *data = (void *)(link + 1);
		struct vbn_buf *buf = pool->stack[--pool->n_free];

		vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
		rq->slots[head & rq->mask] = buf;
		data->addr = be64((uintptr_t)buf + rq->post_offset);
		head = from_be16(link->next_wqe_index);
	}
	rq->head = head;
	rq->posted = (uint16_t)(rq->posted + n);
	rq->counter = (uint16_t)(rq->counter + n);
	wqes_before_record(); /* pairs with the device, which follows the list as far as the record */
	store_once(rq->record, be32(rq->counter));
	return wanted - n;
}

/* The data is in the CQE: up to 32 bytes at its start, up to 64 in the half before it. */
static cold void take_scattered(
	const struct mlx5_cqe64 *cqe, uint8_t seen, uint8_t *data, uint32_t len)
{
	if ((seen & CQE_FORMAT) == MLX5_INLINE_SCATTER_32)
		memcpy(data, cqe, min(len, 32u));
	else
		memcpy(data, cqe - 1, min(len, 64u));
}

cold bool vbn__rq_take_other(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe, uint8_t seen,
	struct vbn_buf *buf, struct arrival *arrival)
{
	if ((seen & CQE_FORMAT) == CQE_COMPRESSED)
		return false;
	*arrival = (struct arrival){.len = from_be32(cqe->byte_cnt), .op = VBN_OP_RECV};
	switch (seen >> 4) {
	case MLX5_CQE_RESP_SEND: break;
	case MLX5_CQE_RESP_WR_IMM: arrival->op = VBN_OP_RECV_WRITE; /* fall through */
	case MLX5_CQE_RESP_SEND_IMM:
		arrival->imm = from_be32(cqe->imm_inval_pkey);
		arrival->has_imm = true;
		buf->mark = arrival->imm;
		break;
	default: return false;
	}
	if (seen & CQE_FORMAT) {
		take_scattered(cqe, seen, (uint8_t *)buf + mq->rq->post_offset, arrival->len);
		count_add(&mq->queue.stats.rx_scattered, 1);
	}
	return true;
}

/* Hands out up to n messages, as bufs or as events. The receive ring is in order, so a CQE's WQE is
 * the oldest one. */
static force_inline int take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events,
	int n, const bool datagrams, const bool prefetch)
{
	struct rq *rq = mq->rq;
	struct cq *cq = &mq->own_recv_cq;
	const uint64_t word = len_and_word(rq->pool, 0);
	const struct cq ring = *cq; /* what does not change stays in registers */
	struct vbn_buf *const *const slots = rq->slots;
	const uint16_t mask = rq->mask;
	uint32_t index = ring.index;
	uint16_t tail = rq->tail;
	uint64_t bytes = 0;
	int got = 0;

	for (; got < n; got++) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(&ring, index, &cqe);
		struct arrival arrival = {.op = VBN_OP_RECV};
		struct vbn_buf *buf = slots[tail & mask];

		if (likely(seen == CQE_IS(MLX5_CQE_RESP_SEND))) {
			arrival.len = from_be32(cqe->byte_cnt);
		} else if (cqe_absent(seen)) {
			break;
		} else {
			rq->tail = tail;
			if (!vbn__rq_take_other(mq, cqe, seen, buf, &arrival)) {
				vbn__mlx5_failed(mq, false, cqe);
				break;
			}
		}
		if (prefetch) {
			__builtin_prefetch(cq_entry(&ring, index + 4));
			__builtin_prefetch(slots[(tail + 2) & mask], 1);
		}
		buf_receive(rq, buf, word, cqe, &arrival, datagrams);
		if (events)
			recv_event(mq, buf, &arrival, &events[got]);
		else
			bufs[got] = buf;
		bytes += arrival.len;
		tail++;
		index++;
	}
	if (got) {
		rq->tail = tail;
		count_add(&mq->queue.stats.rx_messages, (uint64_t)got);
		count_add(&mq->queue.stats.rx_bytes, bytes);
		cq_consume(cq, index);
	}
	return got;
}

fast_path int vbn__rq_take(
	struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	if (mq->own_recv_cq.session)
		return vbn__mini_take(mq, bufs, events, n);
	return vbn__rq_take_plain(mq, bufs, events, n);
}

fast_path int vbn__rq_take_plain(
	struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	return mq->rq->datagrams ? take(mq, bufs, events, n, true, false)
				 : take(mq, bufs, events, n, false, false);
}

/* ---- what a queue does that has its CQs to itself ---- */

static force_inline int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n,
	const bool datagrams, const bool prefetch)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = take(mq, bufs, NULL, n, datagrams, prefetch);

	if (ring_is_short(mq->rq))
		refill(mq);
	if (mq->sq.tail != mq->sq.head)
		vbn__sq_make_room(mq);
	return got;
}

static force_inline int poll_events(struct vbn_queue *queue, struct vbn_event *events, int n,
	const bool datagrams, const bool prefetch)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = 0;

	if (likely(n > 0)) {
		got = take(mq, NULL, events, n, datagrams, prefetch);
		if (ring_is_short(mq->rq))
			refill(mq);
	}
	if (mq->sq.tail != mq->sq.head && !queue->failed)
		got += vbn__sq_reap(mq, events + got, n - got);
	if (unlikely(queue->failed))
		got += queue->ops->poll(queue, events + got, n - got); /* says so at once */
	return got;
}

static fast_path int recv_messages(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, false, false);
}

static fast_path int recv_messages_ahead(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, false, true);
}

static fast_path int recv_datagrams(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, true, false);
}

static fast_path int recv_datagrams_ahead(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, true, true);
}

/* What a poll finds most often, where queues are many. */
static force_inline bool nothing_to_do(const struct mlx5_queue *mq)
{
	const struct mlx5_cqe64 *cqe;

	return mq->sq.tail == mq->sq.head && !ring_is_short(mq->rq) &&
		cqe_absent(cq_look(&mq->own_recv_cq, mq->own_recv_cq.index, &cqe));
}

/* Polling an idle queue saves no registers. */
#define POLL(name, datagrams, prefetch)                                                      \
	static noinline fast_path int name##_busy(                                           \
		struct vbn_queue *queue, struct vbn_event *events, int n)                    \
	{                                                                                    \
		return poll_events(queue, events, n, datagrams, prefetch);                   \
	}                                                                                    \
	static fast_path int name(struct vbn_queue *queue, struct vbn_event *events, int n)  \
	{                                                                                    \
		return nothing_to_do(mlx5_queue(queue)) ? 0 : name##_busy(queue, events, n); \
	}

POLL(poll_messages, false, false)
POLL(poll_messages_ahead, false, true)
POLL(poll_datagrams, true, false)
POLL(poll_datagrams_ahead, true, true)

void vbn__rq_ops(struct queue_ops *ops, bool datagrams, bool prefetch)
{
	static const struct {
		int (*recv)(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
		int (*poll)(struct vbn_queue *queue, struct vbn_event *events, int n);
	} table[2][2] = {
		{{recv_messages, poll_messages}, {recv_messages_ahead, poll_messages_ahead}},
		{{recv_datagrams, poll_datagrams}, {recv_datagrams_ahead, poll_datagrams_ahead}},
	};

	ops->recv = table[datagrams][prefetch].recv;
	ops->poll = table[datagrams][prefetch].poll;
}
