/* rq.h - one message received: from a CQE to a buf and an event, for a ring of a queue's own or a
 * shared one */
#ifndef VBN_MLX5_RQ_H
#define VBN_MLX5_RQ_H

#include "drv/mlx5/cq.h"
#include "drv/mlx5/mlx5.h"

/* What an entry says of its message. */
struct arrival {
	uint32_t len;
	uint32_t imm;
	uint8_t op; /* enum vbn_op */
	bool has_imm;
};

/* Entries that a plain send does not make: with immediate data, or scattered into the CQE. False:
 * an error. */
bool vbn__rq_take_other(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe, uint8_t seen,
	struct vbn_buf *buf, struct arrival *arrival);

static force_inline struct mlx5_wqe_data_seg *rq_wqe(const struct rq *rq, uint16_t index)
{
	return (void *)(rq->wqes + ((size_t)(index & rq->mask) << rq->log2_stride));
}

static force_inline struct mlx5_wqe_srq_next_seg *srq_link(const struct rq *rq, uint16_t index)
{
	return (void *)(rq->wqes + ((size_t)(index & rq->mask) << rq->log2_stride));
}

static force_inline uint16_t srq_next(const struct rq *rq, uint16_t index)
{
	return from_be16(srq_link(rq, index)->next_wqe_index);
}

/* A datagram has its network header before the data: it stays there, and says who sent it. */
static force_inline void buf_source(
	const struct rq *rq, struct vbn_buf *buf, uint32_t source, struct arrival *arrival)
{
	arrival->len -= min(arrival->len, (uint32_t)GRH_LEN);
	buf->peer[0] = source;
	buf->peer[1] = (uintptr_t)buf + rq->post_offset;
}

/* Data and length of a message in a buf that was posted. */
static force_inline void buf_receive(const struct rq *rq, struct vbn_buf *buf, uint64_t word,
	const struct mlx5_cqe64 *cqe, struct arrival *arrival, const bool datagrams)
{
	if (datagrams)
		buf_source(rq, buf, from_be32(cqe->flags_rqpn) & 0xffffff, arrival);
	/* A write's bytes are elsewhere. */
	buf_set(buf, (uint8_t *)buf + rq->data_offset,
		word | (likely(arrival->op == VBN_OP_RECV) ? arrival->len : 0));
}

static force_inline void recv_event(struct mlx5_queue *mq, struct vbn_buf *buf,
	const struct arrival *arrival, struct vbn_event *event)
{
	*event = (struct vbn_event){.queue = &mq->queue,
		.buf = buf,
		.len = arrival->len,
		.imm = arrival->imm,
		.op = arrival->op,
		.has_imm = arrival->has_imm};
}

/* Receives that the device may still complete. */
static force_inline uint32_t rq_posted(const struct rq *rq)
{
	return rq->linked ? rq->posted : (uint16_t)(rq->head - rq->tail);
}

/* With the ring short of bufs nothing may arrive any more, so it is filled even where nothing did.
 */
static force_inline bool ring_is_short(const struct rq *rq)
{
	return (uint16_t)(rq->head - rq->tail) != rq->depth;
}

/* Posts bufs until the ring has `depth` of them or the pool is empty. Each WQE's length and key
 * never change, so only the address is written: queue creation wrote the rest. The device reads the
 * record when it needs a receive; there is no doorbell. */
static force_inline void rq_refill(struct rq *rq, struct vbn_queue_stats *stats)
{
	struct vbn_pool *pool = rq->pool;
	uint32_t wanted = rq->depth - (uint32_t)(uint16_t)(rq->head - rq->tail);
	uint32_t n = pool_ready(pool, wanted);
	uint16_t head = rq->head;
	const uint16_t end = (uint16_t)(head + n);

	count_add(&stats->rx_no_buf, wanted - n);
	if (!n)
		return;
	for (struct vbn_buf **top = pool->stack + pool->n_free; head != end;) {
		const uint32_t at = head & rq->mask, offset = rq->post_offset;
		const uint32_t run = min((uint32_t)(uint16_t)(end - head), rq->mask + 1u - at);
		const size_t stride = (size_t)1 << rq->log2_stride;
		struct vbn_buf **slot = rq->slots + at, **const last = slot + run;
		struct mlx5_wqe_data_seg *wqe = rq_wqe(rq, head);

		for (; slot != last; wqe = (void *)((uint8_t *)wqe + stride)) {
			struct vbn_buf *buf = *--top;

			vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
			*slot++ = buf;
			wqe->addr = be64((uintptr_t)buf + offset);
		}
		head = (uint16_t)(head + run);
	}
	pool->n_free -= n;
	rq->head = head;
	wqes_before_record(); /* pairs with the device, which reads WQEs up to the record */
	store_once(&rq->record[MLX5_RCV_DBR], be32(head));
}

/* A shared ring's WQE is free again: behind the last one that the device was given to follow. */
static force_inline struct vbn_buf *srq_take(struct rq *rq, uint16_t index)
{
	srq_link(rq, rq->tail)->next_wqe_index = be16(index);
	rq->tail = index;
	rq->posted--;
	return rq->slots[index & rq->mask];
}

#endif
