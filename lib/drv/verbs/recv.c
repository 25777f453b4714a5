/* recv.c - what has arrived is handed out, and as many bufs are posted again as one list */

#include "drv/verbs/verbs.h"

#include <stdlib.h>

/* Posts bufs until the ring is full or the pool empty. */
void vbn__verbs_refill(struct verbs_queue *vq)
{
	struct verbs_rq *rq = vq->rq;
	struct vbn_pool *pool = rq->pool;
	const uint32_t wanted = rq->mask + 1 - rq_posted(rq);
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
	while (rq->head != (uint32_t)bad->wr_id) {
		struct vbn_buf **buf = &rq->bufs[--rq->head & rq->mask];

		pool_push(pool, *buf);
		*buf = NULL;
	}
	if (abs(error) != ENOMEM && abs(error) != EAGAIN)
		vbn__verbs_refused(vq, "ibv_post_recv", abs(error));
}

struct vbn_buf *vbn__verbs_claim(struct verbs_rq *rq, const struct ibv_wc *wc)
{
	const uint32_t at = (rq->free ? (uint32_t)wc->wr_id : rq->tail) & rq->mask;
	struct vbn_buf *buf = rq->bufs[at];

	if (!rq_posted(rq) || !buf)
		return NULL;
	rq->bufs[at] = NULL;
	if (rq->free)
		rq->free[rq->mask + 1 - rq_posted(rq)] = at;
	rq->tail++;
	return buf;
}

uint32_t vbn__verbs_arrived(struct verbs_queue *vq, const struct ibv_wc *wc, struct vbn_buf *buf,
	struct vbn_event *event)
{
	const bool has_imm = wc->wc_flags & IBV_WC_WITH_IMM;
	const bool write = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM; /* its bytes are elsewhere */
	const struct verbs_rq *rq = vq->rq;
	const uint32_t len = wc->byte_len - min(rq->before, wc->byte_len);

	buf_start(rq->pool, buf, (uint8_t *)buf + rq->data_offset, write ? 0 : len);
	buf->mark = has_imm ? be32toh((be_force uint32_t)wc->imm_data) : 0;
	if (rq->before) {
		buf->peer[0] = wc->src_qp;
		buf->peer[1] = (uintptr_t)(buf->data - GRH_SIZE);
	}
	if (event)
		*event = (struct vbn_event){.queue = &vq->queue,
			.buf = buf,
			.len = len,
			.imm = has_imm ? buf->mark : 0,
			.op = write ? VBN_OP_RECV_WRITE : VBN_OP_RECV,
			.has_imm = has_imm};
	return len;
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
			struct vbn_buf *buf;

			if (unlikely(wcs[i].status)) {
				vbn__verbs_recv_failed(vq, &wcs[i]);
				continue;
			}
			buf = vbn__verbs_claim(vq->rq, &wcs[i]);
			if (unlikely(!buf))
				continue;
			bytes += vbn__verbs_arrived(vq, &wcs[i], buf, events ? &events[got] : NULL);
			if (bufs)
				bufs[got] = buf;
			got++;
		}
	} while (found == WC_BATCH);
	count_add(&vq->queue.stats.rx_messages, (uint64_t)got);
	count_add(&vq->queue.stats.rx_bytes, bytes);
	return got;
}

/* ---- create and free ---- */

/* A datagram's network header goes into the headroom where there is enough. */
int vbn__verbs_rq_create(struct verbs_rq *rq, const struct vbn_port *port, struct vbn_pool *pool,
	uint32_t depth, bool datagrams)
{
	const struct zone_registration *zone = &port->zones[pool->zone_id];
	const bool in_headroom = datagrams && pool->headroom >= GRH_SIZE;
	const uint32_t length = pool->data_size + (in_headroom ? GRH_SIZE : 0);

	rq->mask = depth - 1;
	rq->pool = pool;
	rq->before = datagrams ? GRH_SIZE : 0;
	rq->data_offset = (uint32_t)sizeof(struct vbn_buf) + pool->headroom +
		(datagrams && !in_headroom ? GRH_SIZE : 0);
	rq->wrs = calloc(depth, sizeof(*rq->wrs));
	rq->sges = calloc(depth, sizeof(*rq->sges));
	rq->bufs = calloc(depth, sizeof(struct vbn_buf *));
	if (!rq->wrs || !rq->sges || !rq->bufs)
		return -ENOMEM;
	for (uint32_t i = 0; i <= rq->mask; i++) {
		rq->sges[i] = (struct ibv_sge){.length = length, .lkey = zone->key};
		rq->wrs[i] = (struct ibv_recv_wr){.next = &rq->wrs[(i + 1) & rq->mask],
			.sg_list = &rq->sges[i],
			.num_sge = 1};
	}
	return 0;
}

void vbn__verbs_rq_sweep(struct verbs_rq *rq)
{
	for (uint32_t i = 0; rq->bufs && i <= rq->mask; i++) {
		if (rq->bufs[i])
			pool_push(rq->pool, rq->bufs[i]);
		rq->bufs[i] = NULL;
	}
}

void vbn__verbs_rq_free(struct verbs_rq *rq)
{
	vbn__verbs_rq_sweep(rq);
	free(rq->wrs);
	free(rq->sges);
	free(rq->bufs);
	free(rq->free);
}
