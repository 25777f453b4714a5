/* recv.c - what has arrived is handed out, and as many bufs are posted again as one list */

#include "drv/verbs/verbs.h"

/* Posts bufs until the ring is full or the pool empty. */
void vbn__verbs_refill(struct verbs_queue *vq)
{
	struct verbs_rq *rq = &vq->rq;
	struct vbn_pool *pool = rq->pool;
	const uint32_t wanted = rq->mask + 1 - (rq->head - rq->tail);
	const uint32_t n = pool_ready(pool, wanted), first = rq->head;
	struct ibv_recv_wr *last, *next, *bad;
	int error;

	count_add(&vq->queue.stats.rx_no_buf, wanted - n);
	if (!n)
		return;
	for (uint32_t i = 0; i < n; i++, rq->head++) {
		struct vbn_buf *buf = pool_pop(pool);

		rq->bufs[rq->head & rq->mask] = buf;
		rq->sges[rq->head & rq->mask].addr = (uintptr_t)buf + rq->data_offset - rq->before;
		rq->wrs[rq->head & rq->mask].wr_id = rq->head;
	}
	last = &rq->wrs[(rq->head - 1) & rq->mask];
	next = last->next;
	last->next = NULL;
	error = ibv_post_recv(vq->qp, &rq->wrs[first & rq->mask], &bad);
	last->next = next;
	if (likely(!error))
		return;
	for (; rq->head != (uint32_t)bad->wr_id; rq->head--)
		pool_push(pool, rq->bufs[(rq->head - 1) & rq->mask]);
	if (error != ENOMEM && error != EAGAIN)
		vbn__verbs_refused(vq, "ibv_post_recv", error);
}

/* Makes a message of the buf that was posted at the ring's tail. */
static struct vbn_buf *arrived(struct verbs_queue *vq, const struct ibv_wc *wc, uint32_t len)
{
	struct verbs_rq *rq = &vq->rq;
	struct vbn_buf *buf = rq->bufs[rq->tail++ & rq->mask];

	buf_start(rq->pool, buf, (uint8_t *)buf + rq->data_offset, len);
	buf->mark = wc->wc_flags & IBV_WC_WITH_IMM ? be32toh((be_force uint32_t)wc->imm_data) : 0;
	if (rq->before) {
		buf->peer[0] = wc->src_qp;
		buf->peer[1] = (uintptr_t)(buf->data - GRH_SIZE);
	}
	return buf;
}

static struct vbn_event arrival(
	struct verbs_queue *vq, const struct ibv_wc *wc, struct vbn_buf *buf, uint32_t len)
{
	const bool has_imm = wc->wc_flags & IBV_WC_WITH_IMM;

	return (struct vbn_event){.queue = &vq->queue,
		.buf = buf,
		.len = len,
		.imm = has_imm ? buf->mark : 0,
		.op = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? VBN_OP_RECV_WRITE : VBN_OP_RECV,
		.has_imm = has_imm};
}

int vbn__verbs_take(struct verbs_queue *vq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	struct ibv_wc wcs[WC_BATCH];
	uint64_t bytes = 0;
	int got = 0, found;

	do {
		const int wanted = min(n - got, (int)WC_BATCH);

		found = wanted ? ibv_poll_cq(vq->recv_cq, wanted, wcs) : 0;
		if (unlikely(found < 0)) {
			vbn__verbs_refused(vq, "ibv_poll_cq", -found);
			break;
		}
		for (int i = 0; i < found; i++) {
			const struct ibv_wc *wc = &wcs[i];
			uint32_t len;
			struct vbn_buf *buf;

			if (unlikely(wc->status)) {
				vbn__verbs_recv_failed(vq, wc);
				continue;
			}
			len = wc->byte_len - min(vq->rq.before, wc->byte_len);
			buf = arrived(vq, wc, wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? 0 : len);
			if (events)
				events[got] = arrival(vq, wc, buf, len);
			else
				bufs[got] = buf;
			bytes += len;
			got++;
		}
	} while (found == WC_BATCH);
	count_add(&vq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&vq->queue.stats.rx_bytes, bytes);
	return got;
}
