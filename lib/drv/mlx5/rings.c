/* rings.c - QPs and CQs made by libmlx5, their memory taken over by mlx5dv_init_obj */

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"

#include <stdlib.h>

/* Inline bytes that the entries of a ring hold anyway, behind control, address and inline header. */
enum { INLINE_IN_ENTRY = MLX5_SEND_WQE_BB - 16 - 16 - 4 };

/* Segments of data that a ring's entries allow for: what most sends need, so that a ring is no
 * larger than it must. */
enum { GATHER_IN_ENTRY = 2 };

/* ---- CQs ---- */

static struct ibv_cq *cq_make(
	struct ibv_context *context, uint32_t n, uint32_t cqe_size, uint8_t compression)
{
	/* libmlx5 makes the next power of two above what is asked for. */
	struct ibv_cq_init_attr_ex attr = {.cqe = n - 1};
	struct mlx5dv_cq_init_attr dv = {
		.cqe_size = (uint16_t)cqe_size, .cqe_comp_res_format = compression};
	struct ibv_cq_ex *cq;

	if (!cqe_size && !compression)
		return ibv_create_cq(context, (int)n - 1, NULL, NULL, 0);
	dv.comp_mask = (cqe_size ? (uint64_t)MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE : 0) |
		(compression ? (uint64_t)MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE : 0);
	cq = mlx5dv_create_cq(context, &attr, &dv);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static int cq_take_over(struct rdma_port *port, struct cq *cq, uint32_t *cqe_size)
{
	struct mlx5dv_cq dv = {0};
	struct mlx5dv_obj obj = {.cq = {.in = cq->ibv, .out = &dv}};

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

int vbn__cq_create(
	struct rdma_port *port, struct cq *cq, uint32_t n, uint32_t *cqe_size, bool compressed)
{
	const uint8_t format = compressed ? vbn__mini_format(port, *cqe_size, cq->strided) : 0;
	int ret;

	if (compressed && !format)
		return -ENOTSUP;
	cq->ibv = cq_make(port->context, max(n, 2u), *cqe_size, format);
	if (!cq->ibv)
		return fail(errno,
			"port %s refused a completion queue of %u entries: %s; ask for smaller rings",
			port->port.info.name, n, strerror(errno));
	ret = cq_take_over(port, cq, cqe_size);
	if (!ret && compressed && !vbn__mini_format(port, *cqe_size, cq->strided))
		ret = -ENOTSUP; /* of a size that libmlx5 chose */
	cq->compressed = compressed;
	return ret;
}

int vbn__recv_cq_create(
	struct rdma_port *port, struct cq *cq, uint32_t n, uint32_t *cqe_size, bool compressed)
{
	cq->session = compressed ? vbn__mini_session() : NULL;
	if (compressed && !cq->session)
		return -ENOMEM;
	return vbn__cq_create(port, cq, n, cqe_size, compressed);
}

void vbn__cq_destroy(struct cq *cq)
{
	if (cq->ibv)
		ibv_destroy_cq(cq->ibv);
	free(cq->session);
	*cq = (struct cq){0};
}

/* ---- the send ring ---- */

static uint32_t head_bytes(const struct vbn_queue_conf *conf)
{
	return conf->transport == VBN_UD ? 16 + sizeof(struct mlx5_wqe_av) : 32;
}

static uint32_t inline_limit(const struct vbn_queue_conf *conf)
{
	return max(conf->inline_size.value, (uint32_t)INLINE_IN_ENTRY);
}

/* Bytes of a send WQE as libmlx5 plans its ring: control and address segments, then data segments
 * or inline bytes. */
static uint32_t wqe_size(const struct vbn_queue_conf *conf)
{
	uint32_t head = head_bytes(conf);
	uint32_t inline_bytes = head + (uint32_t)round_up(4 + inline_limit(conf), 16);
	uint32_t gather_bytes = head + 16 * GATHER_IN_ENTRY;

	return (uint32_t)round_up(max(inline_bytes, gather_bytes), MLX5_SEND_WQE_BB);
}

uint32_t vbn__sq_planned(const struct vbn_queue_conf *conf)
{
	return (uint32_t)pow2_ceil(conf->tx_depth * wqe_size(conf)) / MLX5_SEND_WQE_BB;
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
	if (dv->sq.wqe_cnt > vbn__sq_planned(conf))
		return fail(ENOTSUP,
			"port %s made a send ring of %u entries where %u were planned: this libmlx5 is not known",
			mq->queue.port->info.name, dv->sq.wqe_cnt, vbn__sq_planned(conf));
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
	sq->record = dv->dbrec;
	sq->inline_size = conf->inline_size.value;
	sq->max_inline = inline_limit(conf);
	sq->max_gather = conf->max_gather;
	sq->doorbell = vbn__group_doorbell(mq->group, dv->bf.reg, dv->bf.size);
	return sq->doorbell ? 0 : -ENOMEM;
}

/* ---- the receive ring ---- */

/* A datagram's data is where any message's is, and its network header in the headroom before; where
 * there is none, the header takes the first bytes of the data. */
void vbn__rq_offsets(struct rq *rq, const struct vbn_pool *pool, bool datagrams)
{
	const uint32_t data = (uint32_t)sizeof(struct vbn_buf) + pool->headroom;

	rq->pool = pool ? (struct vbn_pool *)(uintptr_t)pool : NULL;
	rq->datagrams = datagrams;
	rq->data_offset = datagrams && pool->headroom < GRH_LEN ? data + GRH_LEN : data;
	rq->post_offset = rq->data_offset - (datagrams ? GRH_LEN : 0);
}

uint32_t vbn__rq_byte_count(const struct rq *rq)
{
	const uint32_t end =
		(uint32_t)sizeof(struct vbn_buf) + rq->pool->headroom + rq->pool->data_size;

	return end - rq->post_offset;
}

/* Its receives are one segment each, of which only the address will change. */
void vbn__rq_lay_out(struct rq *rq, void *wqes, uint32_t n, uint32_t stride, uint32_t key)
{
	rq->wqes = wqes;
	rq->mask = (uint16_t)(n - 1);
	rq->log2_stride = log2_floor(stride);
	for (uint32_t i = 0; i < n; i++) {
		struct mlx5_wqe_data_seg *seg = rq_wqe(rq, (uint16_t)i);

		seg[0] = (struct mlx5_wqe_data_seg){
			.byte_count = be32(vbn__rq_byte_count(rq)), .lkey = be32(key)};
		if (stride > sizeof(*seg))
			seg[1] = (struct mlx5_wqe_data_seg){
				.lkey = be32(MLX5_INVALID_LKEY)}; /* ends the list */
	}
}

static int rq_take_over(
	struct mlx5_queue *mq, const struct mlx5dv_qp *dv, const struct vbn_queue_conf *conf)
{
	struct rq *rq = &mq->own_rq;
	const struct zone_registration *zone = &mq->queue.port->zones[conf->rx_pool->zone_id];

	if (!is_pow2(dv->rq.stride) || dv->rq.stride < 16 || !is_pow2(dv->rq.wqe_cnt) ||
		dv->rq.wqe_cnt < conf->rx_depth || dv->rq.wqe_cnt > 1u << 15)
		return fail(ENOTSUP,
			"queue's receive ring of %u entries of %u bytes is not one this driver knows",
			dv->rq.wqe_cnt, dv->rq.stride);
	rq->slots = calloc(dv->rq.wqe_cnt, sizeof(struct vbn_buf *));
	if (!rq->slots)
		return -ENOMEM;
	rq->depth = (uint16_t)conf->rx_depth;
	rq->record = dv->dbrec;
	vbn__rq_offsets(rq, conf->rx_pool, conf->transport == VBN_UD);
	vbn__rq_lay_out(rq, dv->rq.buf, dv->rq.wqe_cnt, dv->rq.stride, zone->key);
	return 0;
}

/* ---- the queue pair ---- */

/* Scatter to CQE is on unless it is turned off, which not every device takes. */
static struct ibv_qp *make(struct rdma_port *port, struct mlx5_queue *mq,
	const struct vbn_queue_conf *conf, struct ibv_qp_init_attr_ex *attr)
{
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
	};
	struct ibv_qp *qp = NULL;

	if (conf->scatter_to_cqe != VBN_ON) {
		qp = mlx5dv_create_qp(port->context, attr, &dv);
		if (qp || conf->scatter_to_cqe == VBN_OFF ||
			(errno != EINVAL && errno != EOPNOTSUPP))
			return qp;
	}
	mq->scatter_to_cqe = true;
	dv.create_flags = 0;
	return mlx5dv_create_qp(port->context, attr, &dv);
}

/* With a register of the worker's own where that can be had. */
static struct ibv_pd *choose_pd(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	struct ibv_pd *own = conf->own_uar == VBN_OFF ? NULL : vbn__group_pd(mq->group);

	mq->own_uar = own != NULL;
	return own ? own : port->pd;
}

int vbn__qp_create(struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = &mq->queue,
		.send_cq = mq->send_cq->ibv,
		.recv_cq = mq->recv_cq->ibv,
		.srq = conf->srq ? container_of(conf->srq, struct mlx5_srq, srq)->ibv : NULL,
		.cap = {.max_send_wr = conf->tx_depth,
			.max_recv_wr = conf->srq ? 0 : conf->rx_depth,
			.max_send_sge = GATHER_IN_ENTRY,
			.max_recv_sge = conf->srq ? 0 : 1,
			.max_inline_data = inline_limit(conf)},
		.qp_type = vbn__rdma_qp_type(conf->transport),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = choose_pd(port, mq, conf),
		/* Of which libmlx5 plans the ring; more can be posted to it. */
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
			(conf->transport == VBN_UD ? 0 : IBV_QP_EX_WITH_RDMA_WRITE),
	};
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj obj = {.qp = {.out = &dv}};
	int ret;

	if (!mq->own_uar && conf->own_uar == VBN_ON)
		return fail(ENOTSUP,
			"queue cannot be created: own_uar is on, and port %s gives no doorbell register of its own: %s",
			port->port.info.name, strerror(errno));
	mq->qp = make(port, mq, conf, &attr);
	if (!mq->qp && mq->own_uar && conf->own_uar != VBN_ON) {
		mq->own_uar = false; /* registers may run out between the domain and the queue */
		attr.pd = port->pd;
		mq->qp = make(port, mq, conf, &attr);
	}
	if (!mq->qp)
		return fail(errno,
			"port %s refused a queue pair of %u sends and %u receives: %s; ask for smaller rings",
			port->port.info.name, conf->tx_depth, conf->rx_depth, strerror(errno));
	obj.qp.in = mq->qp;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		return fail(EIO,
			"port %s does not show the memory of a queue pair: is libmlx5 of this system's rdma-core?",
			port->port.info.name);
	ret = sq_take_over(mq, &dv, conf);
	if (ret || conf->srq)
		return ret;
	return rq_take_over(mq, &dv, conf);
}
