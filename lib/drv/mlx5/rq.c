/* rq.c - the receive queue: what has arrived is handed out, and as many bufs are posted again */

#include "drv/mlx5/cq.h"
#include "drv/mlx5/mlx5.h"

static force_inline struct mlx5_wqe_data_seg *rq_wqe(const struct rq *rq, uint16_t index)
{
	return (void *)(rq->wqes + ((size_t)(index & rq->mask) << rq->log2_stride));
}

/* Posts bufs until the ring has `depth` of them or the pool is empty. Each WQE's length and key
 * never change, so only the address is written: queue creation wrote the rest. The device reads the
 * record when it needs a receive; there is no doorbell. */
static force_inline void refill(struct mlx5_queue *mq)
{
	struct rq *rq = &mq->rq;
	struct vbn_pool *pool = rq->pool;
	uint32_t wanted = rq->depth - (uint32_t)(uint16_t)(rq->head - rq->tail);
	uint32_t n = min(wanted, pool->n_free);
	uint16_t head = rq->head;
	const uint16_t end = (uint16_t)(head + n);

	count_add(&mq->queue.stats.rx_no_buf, wanted - n);
	if (!n)
		return;
	for (struct vbn_buf **top = pool->stack + pool->n_free; head != end; head++) {
		struct vbn_buf *buf = *--top;

		vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
		rq->slots[head & rq->mask] = buf;
		rq_wqe(rq, head)->addr = be64((uintptr_t)buf + rq->data_offset);
	}
	pool->n_free -= n;
	rq->head = head;
	wqes_before_record(); /* pairs with the device, which reads WQEs up to the record */
	store_once(&rq->record[MLX5_RCV_DBR], be32(head));
}

void vbn__rq_refill(struct mlx5_queue *mq)
{
	refill(mq);
}

/* The data is in the CQE: up to 32 bytes at its start, up to 64 in the half before it. */
static void take_scattered(const struct mlx5_cqe64 *cqe, uint8_t seen, uint8_t *data, uint32_t len)
{
	if ((seen & CQE_FORMAT) == MLX5_INLINE_SCATTER_32)
		memcpy(data, cqe, min(len, 32u));
	else
		memcpy(data, cqe - 1, min(len, 64u));
}

/* What an entry says of its message. */
struct arrival {
	uint32_t len;
	uint32_t imm;
	bool has_imm;
};

/* Entries that a plain send does not make: with immediate data, or scattered into the CQE. False:
 * an error. */
static cold bool take_other(
	struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe, uint8_t seen, struct arrival *arrival)
{
	struct rq *rq = &mq->rq;

	if ((seen & CQE_FORMAT) == CQE_COMPRESSED)
		return false;
	switch (seen >> 4) {
	case MLX5_CQE_RESP_SEND:
		*arrival = (struct arrival){.len = from_be32(cqe->byte_cnt)};
		break;
	case MLX5_CQE_RESP_SEND_IMM:
		*arrival = (struct arrival){
			from_be32(cqe->byte_cnt), from_be32(cqe->imm_inval_pkey), true};
		break;
	case MLX5_CQE_RESP_WR_IMM: /* the bytes went to an export */
		*arrival = (struct arrival){0, from_be32(cqe->imm_inval_pkey), true};
		break;
	default: return false;
	}
	if (seen & CQE_FORMAT)
		take_scattered(cqe, seen, pool_data(rq->pool, rq->slots[rq->tail & rq->mask]),
			arrival->len);
	return true;
}

/* Hands out up to n messages, as bufs or as events. The receive ring is in order, so a CQE's WQE is
 * the oldest one. */
static force_inline int take(
	struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	struct rq *rq = &mq->rq;
	struct cq *cq = &mq->recv_cq;
	const uint64_t word = len_and_word(rq->pool, 0);
	uint32_t index = cq->index;
	uint16_t tail = rq->tail;
	uint64_t bytes = 0;
	int got = 0;

	for (; got < n; got++) {
		const struct mlx5_cqe64 *cqe;
		const uint8_t seen = cq_look(cq, index, &cqe);
		struct arrival arrival = {0};
		struct vbn_buf *buf;

		if (likely(seen == CQE_IS(MLX5_CQE_RESP_SEND))) {
			arrival.len = from_be32(cqe->byte_cnt);
		} else if (cqe_absent(seen)) {
			break;
		} else {
			rq->tail = tail;
			if (!take_other(mq, cqe, seen, &arrival)) {
				vbn__mlx5_failed(mq, cq, cqe);
				break;
			}
		}
		buf = rq->slots[tail & rq->mask];
		buf_set(buf, (uint8_t *)buf + rq->data_offset, word | arrival.len);
		if (events)
			events[got] = (struct vbn_event){.queue = &mq->queue,
				.buf = buf,
				.len = arrival.len,
				.imm = arrival.imm,
				.op = VBN_OP_RECV,
				.has_imm = arrival.has_imm};
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

int vbn__rq_take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	return events ? take(mq, NULL, events, n) : take(mq, bufs, NULL, n);
}

/* With the ring short of bufs nothing may arrive any more, so it is filled even where nothing did.
 */
static force_inline bool ring_is_short(const struct rq *rq)
{
	return (uint16_t)(rq->head - rq->tail) != rq->depth;
}

fast_path int vbn__rq_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = take(mq, bufs, NULL, n);

	if (ring_is_short(&mq->rq))
		refill(mq);
	if (mq->sq.tail != mq->sq.head)
		vbn__sq_reap(mq, NULL, 0);
	return got;
}

fast_path int vbn__rq_poll(struct mlx5_queue *mq, struct vbn_event *events, int n)
{
	int got = take(mq, NULL, events, n);

	if (ring_is_short(&mq->rq))
		refill(mq);
	return got;
}
