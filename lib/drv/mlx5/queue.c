/* queue.c - an mlx5 queue's life: QP and CQs made by libmlx5, their memory taken over by
 * mlx5dv_init_obj */

#include "drv/mlx5/queue.h"

#include <stdio.h>
#include <stdlib.h>

/* Inline bytes a WQE of one WQEBB holds behind control, address and inline header. */
enum { INLINE_IN_WQEBB = MLX5_SEND_WQE_BB - 16 - 16 - 4 };

/* Segments of a WQE beyond one WQEBB that a ring's entries allow for: what most sends need, so that
 * a ring is no larger than it must. */
enum { GATHER_IN_WQEBB = 2 };

static int ring_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = n ? vbn__rq_poll(mq, events, n) : 0;

	if (mq->sq.tail != mq->sq.head && !queue->failed)
		got += vbn__sq_reap(mq, events + got, n - got);
	if (unlikely(queue->failed))
		got += queue->ops->poll(queue, events + got, n - got); /* says so at once */
	return got;
}

/* What a connected queue does; the rest the transport has not. */
static void ops_fill(struct mlx5_queue *mq)
{
	bool inlining = mq->sq.inline_size != 0;

	mq->ops = vbn__lacking_ops;
	mq->ops.send = inlining ? vbn__sq_send_inlining : vbn__sq_send;
	mq->ops.send_inline = vbn__sq_send_copy;
	mq->ops.write = inlining ? vbn__sq_write_inlining : vbn__sq_write;
	mq->ops.flush = vbn__sq_flush;
	mq->ops.recv = vbn__rq_recv;
	mq->ops.poll = ring_poll;
	mq->ops.outstanding = vbn__sq_outstanding;
}

/* ---- taking libmlx5's rings over ---- */

static int cq_create(struct rdma_port *port, struct cq *cq, uint32_t n, uint32_t *cqe_size)
{
	struct mlx5dv_cq dv = {0};
	struct mlx5dv_obj obj = {0};

	/* libmlx5 makes the next power of two above what is asked for. */
	cq->ibv = ibv_create_cq(port->context, (int)n - 1, NULL, NULL, 0);
	if (!cq->ibv)
		return fail(errno,
			"port %s refused a completion queue of %u entries: %s; ask for smaller rings",
			port->port.info.name, n, strerror(errno));
	obj.cq.in = cq->ibv;
	obj.cq.out = &dv;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ))
		return fail(EIO,
			"port %s does not show the memory of a completion queue: is libmlx5 of this system's rdma-core?",
			port->port.info.name);
	if (!is_pow2(dv.cqe_cnt) || (dv.cqe_size != 64 && dv.cqe_size != 128))
		return fail(ENOTSUP,
			"port %s has completion queues of %u entries of %u bytes, which this driver does not know",
			port->port.info.name, dv.cqe_cnt, dv.cqe_size);
	cq->first = (uint8_t *)dv.buf + dv.cqe_size - sizeof(struct mlx5_cqe64);
	cq->mask = dv.cqe_cnt - 1;
	cq->log2_count = (uint8_t)log2_floor(dv.cqe_cnt);
	cq->log2_stride = (uint8_t)log2_floor(dv.cqe_size);
	cq->record = dv.dbrec;
	*cqe_size = dv.cqe_size;
	return 0;
}

static uint32_t inline_limit(const struct vbn_queue_conf *conf)
{
	return max(conf->inline_size.value, (uint32_t)INLINE_IN_WQEBB);
}

/* Bytes of a send WQE as libmlx5 plans its ring: control and address segments, then data segments
 * or inline bytes. */
static uint32_t wqe_size(const struct vbn_queue_conf *conf)
{
	uint32_t inline_bytes = 32 + (uint32_t)round_up(4 + inline_limit(conf), 16);
	uint32_t gather_bytes = 32 + 16 * GATHER_IN_WQEBB;

	return (uint32_t)round_up(max(inline_bytes, gather_bytes), MLX5_SEND_WQE_BB);
}

static struct ibv_qp *qp_create(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = mq->send_cq.ibv,
		.recv_cq = mq->recv_cq.ibv,
		.cap = {.max_send_wr = conf->tx_depth,
			.max_recv_wr = conf->rx_depth,
			.max_send_sge = GATHER_IN_WQEBB,
			.max_recv_sge = 1,
			.max_inline_data = inline_limit(conf)},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = port->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
	};
	struct ibv_qp *qp = mlx5dv_create_qp(port->context, &attr, &dv);

	if (qp || (errno != EINVAL && errno != EOPNOTSUPP))
		return qp;
	mq->scatter_to_cqe = true;
	dv.create_flags = 0;
	return mlx5dv_create_qp(port->context, &attr, &dv);
}

static int sq_take_over(
	struct mlx5_queue *mq, const struct mlx5dv_qp *dv, const struct vbn_queue_conf *conf)
{
	struct sq *sq = &mq->sq;
	const struct zone_registration *zone = &mq->queue.port->zones[conf->tx_pool->zone_id];

	if (dv->sq.stride != MLX5_SEND_WQE_BB || !is_pow2(dv->sq.wqe_cnt) ||
		dv->sq.wqe_cnt > 1u << 15)
		return fail(ENOTSUP,
			"queue's send ring of %u entries of %u bytes is not one this driver knows",
			dv->sq.wqe_cnt, dv->sq.stride);
	sq->slots = calloc(dv->sq.wqe_cnt, sizeof(*sq->slots));
	if (!sq->slots)
		return -ENOMEM;
	memset(sq->slots, 0xff,
		dv->sq.wqe_cnt * sizeof(*sq->slots)); /* touched now, not by the first messages */
	sq->wqes = dv->sq.buf;
	sq->mask = dv->sq.wqe_cnt - 1;
	/* Half the ring at most, so that an unsignalled tail never leaves no room to ask for its
	 * completion. */
	sq->cq_mod = (uint16_t)max(min(conf->cq_mod, dv->sq.wqe_cnt / 2), 1u);
	sq->max_message = (uint32_t)min(mq->queue.port->info.max_message, (uint64_t)1 << 31);
	sq->pool = conf->tx_pool;
	sq->plain_word = plain_word(conf->tx_pool);
	sq->lkey = be32(zone->key);
	sq->qpn_shifted = mq->qp->qp_num << 8;
	sq->qpn_ds_send = be32(sq->qpn_shifted | 2);
	sq->qpn_ds_write = be32(sq->qpn_shifted | 3);
	sq->record = dv->dbrec;
	sq->doorbell = dv->bf.reg;
	sq->inline_size = conf->inline_size.value;
	sq->max_inline = inline_limit(conf);
	sq->max_gather = conf->max_gather;
	return 0;
}

static int rq_take_over(
	struct mlx5_queue *mq, const struct mlx5dv_qp *dv, const struct vbn_queue_conf *conf)
{
	struct rq *rq = &mq->rq;
	const struct zone_registration *zone = &mq->queue.port->zones[conf->rx_pool->zone_id];

	if (!is_pow2(dv->rq.stride) || dv->rq.stride < 16 || !is_pow2(dv->rq.wqe_cnt) ||
		dv->rq.wqe_cnt < conf->rx_depth || dv->rq.wqe_cnt > 1u << 15)
		return fail(ENOTSUP,
			"queue's receive ring of %u entries of %u bytes is not one this driver knows",
			dv->rq.wqe_cnt, dv->rq.stride);
	rq->slots = calloc(dv->rq.wqe_cnt, sizeof(struct vbn_buf *));
	if (!rq->slots)
		return -ENOMEM;
	rq->wqes = dv->rq.buf;
	rq->mask = (uint16_t)(dv->rq.wqe_cnt - 1);
	rq->depth = (uint16_t)conf->rx_depth;
	rq->log2_stride = log2_floor(dv->rq.stride);
	rq->pool = conf->rx_pool;
	rq->data_offset = (uint32_t)sizeof(struct vbn_buf) + conf->rx_pool->headroom;
	rq->record = dv->dbrec;
	for (uint32_t i = 0; i <= rq->mask; i++) {
		struct mlx5_wqe_data_seg *seg = (void *)(rq->wqes + ((size_t)i << rq->log2_stride));

		seg[0] = (struct mlx5_wqe_data_seg){
			.byte_count = be32(conf->rx_pool->data_size), .lkey = be32(zone->key)};
		if (dv->rq.stride > sizeof(*seg))
			seg[1] = (struct mlx5_wqe_data_seg){
				.lkey = be32(MLX5_INVALID_LKEY)}; /* ends the list */
	}
	return 0;
}

/* ---- create and free: on the control thread ---- */

static void destroy_objects(struct mlx5_queue *mq)
{
	if (mq->qp)
		ibv_destroy_qp(mq->qp);
	if (mq->recv_cq.ibv)
		ibv_destroy_cq(mq->recv_cq.ibv);
	if (mq->send_cq.ibv)
		ibv_destroy_cq(mq->send_cq.ibv);
	mq->qp = NULL;
	mq->recv_cq.ibv = mq->send_cq.ibv = NULL;
}

static void free_memory(struct mlx5_queue *mq)
{
	free(mq->sq.slots);
	free(mq->rq.slots);
	free(mq);
}

static int objects_create(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	uint32_t n_wqebb = (uint32_t)pow2_ceil(conf->tx_depth * wqe_size(conf)) / MLX5_SEND_WQE_BB;
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj obj = {0};
	int ret;

	/* A CQ holds all that can complete into it: a flush completes every WQE, signalled or not.
	 */
	ret = cq_create(port, &mq->send_cq, max(n_wqebb, 2u), &mq->cqe_size);
	if (!ret)
		ret = cq_create(
			port, &mq->recv_cq, max((uint32_t)conf->rx_depth, 2u), &mq->cqe_size);
	if (ret)
		return ret;
	mq->qp = qp_create(port, mq, conf);
	if (!mq->qp)
		return fail(errno,
			"port %s refused a queue pair of %u sends and %u receives: %s; ask for smaller rings",
			port->port.info.name, conf->tx_depth, conf->rx_depth, strerror(errno));
	obj.qp.in = mq->qp;
	obj.qp.out = &dv;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		return fail(EIO,
			"port %s does not show the memory of a queue pair: is libmlx5 of this system's rdma-core?",
			port->port.info.name);
	if (dv.sq.wqe_cnt > mq->send_cq.mask + 1)
		return fail(ENOTSUP,
			"port %s made a send ring of %u entries where %u were planned: this libmlx5 is not known",
			port->port.info.name, dv.sq.wqe_cnt, n_wqebb);
	ret = sq_take_over(mq, &dv, conf);
	return ret ? ret : rq_take_over(mq, &dv, conf);
}

int vbn__mlx5_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct rdma_port *port = rdma_port(base);
	struct mlx5_queue *mq = aligned_alloc(CACHE_LINE, round_up(sizeof(*mq), CACHE_LINE));
	int ret;

	(void)list;
	if (conf->transport != VBN_RC || conf->srq || conf->shared_cq == VBN_ON)
		return fail(ENOTSUP,
			"queue cannot be created: this version has RC queues with CQs of their own only");
	if (!mq)
		return -ENOMEM;
	memset(mq, 0, sizeof(*mq));
	mq->queue.port = base;
	mq->psn = vbn__rdma_random_psn();
	ret = objects_create(port, mq, conf);
	if (!ret)
		ret = vbn__rdma_qp_init(port, mq->qp, conf);
	if (ret) {
		destroy_objects(mq);
		free_memory(mq);
		return ret;
	}
	mq->queue.number = mq->qp->qp_num;
	*queue = &mq->queue;
	return 0;
}

void vbn__mlx5_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	const struct mlx5_queue *mq = container_of(queue, const struct mlx5_queue, queue);

	vbn__rdma_address(rdma_port(queue->port), &queue->conf, mq->qp->qp_num, mq->psn, address);
}

int vbn__mlx5_queue_fill(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);

	vbn__rq_refill(mq);
	if ((uint16_t)(mq->rq.head - mq->rq.tail) != mq->rq.depth)
		return fail(ENOMEM,
			"queue %s/%u cannot post %u receives: pool \"%s\" had only %u bufs left; make it larger",
			queue->port->info.name, queue->number, mq->rq.depth, mq->rq.pool->name,
			mq->rq.head);
	return 0;
}

uint32_t vbn__mlx5_queue_posted(const struct vbn_queue *queue)
{
	const struct rq *rq = &container_of(queue, const struct mlx5_queue, queue)->rq;

	return (uint16_t)(rq->head - rq->tail);
}

int vbn__mlx5_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct rdma_port *port = rdma_port(queue->port);
	int ret;

	mq->peer = *peer;
	ret = vbn__rdma_qp_connect(port, mq->qp, &queue->conf, mq->psn, peer, &mq->mtu);
	if (ret)
		return ret;
	ops_fill(mq);
	queue->ops = &mq->ops;
	return 0;
}

void vbn__mlx5_queue_stop(struct vbn_queue *queue)
{
	destroy_objects(mlx5_queue(queue));
}

/* The device is out of it: what the rings still hold goes home. */
void vbn__mlx5_queue_free(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	struct rq *rq = &mq->rq;

	for (; sq->tail != sq->head; sq->tail++) {
		uintptr_t slot = sq->slots[sq->tail & sq->mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		if (slot & (SLOT_EMPTY | SLOT_FURTHER | SLOT_NOP))
			continue;
		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	for (; rq->tail != rq->head; rq->tail++)
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
	free_memory(mq);
}

/* ---- modes ---- */

static const char *asked_count(uint32_t number)
{
	return number ? vbn__mode_number(number, "") : "auto";
}

static const char *asked(const struct vbn_num *number, const char *unit)
{
	return number->set ? vbn__mode_number(number->value, unit) : "auto";
}

static const char *milliseconds(uint64_t ns, char *text, size_t size)
{
	snprintf(text, size, "%.2f ms", (double)ns / 1e6);
	return text;
}

void vbn__mlx5_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct mlx5_queue *mq = container_of(queue, const struct mlx5_queue, queue);
	const struct vbn_queue_conf *conf = &queue->conf;
	char text[32];

	vbn__mode_add(report, "inline", asked(&conf->inline_size, "B"),
		mq->sq.inline_size ? vbn__mode_number(mq->sq.inline_size, "B") : "off",
		"bufs up to this are copied into the WQE; vbn_send_inline() takes up to %u B",
		mq->sq.max_inline);
	vbn__mode_add(report, "tx_ring", asked_count(queue->asked.tx_depth),
		vbn__mode_number(mq->sq.mask + 1ull, "WQEBBs"),
		"a plain send takes one of 64 bytes");
	vbn__mode_add(report, "rx_ring", asked_count(queue->asked.rx_depth),
		vbn__mode_number(mq->rq.depth, "receives"), "kept full from pool \"%s\"",
		mq->rq.pool->name);
	vbn__mode_add(report, "cq_mod", asked_count(queue->asked.cq_mod),
		vbn__mode_number(mq->sq.cq_mod, ""),
		"at most so many WQEs to a completion; sooner where none is on its way");
	vbn__mode_add(report, "cqe_size", "auto", vbn__mode_number(mq->cqe_size, "B"),
		"as libmlx5 made the queue");
	vbn__mode_add(report, "cqe_compression", "auto", "off",
		"this version does not ask the device for it");
	vbn__mode_add(report, "scatter_to_cqe", "auto", mq->scatter_to_cqe ? "decoded" : "off",
		"%s",
		mq->scatter_to_cqe ? "the device would not turn it off"
				   : "received bytes belong in bufs");
	vbn__mode_add(report, "doorbell", "auto", "one a flush, no lock",
		"a 64-bit store to the queue's register; BlueFlame is not used");
	vbn__mode_add(report, "retry_timeout", asked(&conf->timeout, ""),
		milliseconds(vbn__rdma_timeout_ns(conf->timeout.value), text, sizeof(text)),
		"%u retries", conf->retry_count.value);
	vbn__mode_add(report, "rnr_timer", asked(&conf->rnr_timer, ""),
		milliseconds(vbn__rdma_rnr_timer_ns(conf->rnr_timer.value), text, sizeof(text)),
		"%s",
		conf->rnr_retry.value == 7 ? "retried for ever" : "retried as rnr_retry says");
	if (mq->mtu)
		vbn__mode_add(report, "connection_mtu", "auto", vbn__mode_number(mq->mtu, "B"),
			"the smaller of the two ends");
}
