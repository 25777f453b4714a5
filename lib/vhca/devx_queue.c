/* devx_queue.c - DevX: completion queues, receive and send queues, by the PRM's commands */

#include "vhca/devx_object.h"

#include <rdma/mlx5-abi.h>

enum { RECORD_BYTES = 8 };

/* ---- CQ ---- */

static int compressed_format(const struct vhca_device *device, uint32_t format, uint8_t *to)
{
	static const uint8_t formats[] = {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM, 0,
		MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};

	*to = formats[format];
	if (!*to || (format == 3 && !device->facts->compresses_stride))
		return EINVAL;
	return 0;
}

static uint32_t cqc(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return in_get32(mailbox, CQ_CONTEXT, field);
}

static int read_cq(struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_cq_attr *attr)
{
	uint32_t size = cqc(mailbox, CQC_CQE_SIZE), log2_n = cqc(mailbox, CQC_LOG_SIZE);
	const struct vhca_devx_place ring = {in_get(mailbox, CQ_UMEM_VALID),
		in_get(mailbox, CQ_UMEM_ID), in_get(mailbox, CQ_UMEM_OFFSET)};
	const struct vhca_devx_place record = {cqc(mailbox, CQC_DBR_UMEM_VALID),
		cqc(mailbox, CQC_DBR_UMEM_ID), in_get(mailbox, WITHIN(CQ_CONTEXT, CQC_DBR_ADDR))};

	if (size > 1 || log2_n > 22 || cqc(mailbox, CQC_COLLAPSED) ||
		cqc(mailbox, CQC_PAGE_OFFSET) || cqc(mailbox, CQC_MINI_FORMAT_EXT) ||
		cqc(mailbox, CQC_EQN) < VHCA_DEVX_EQN)
		return EINVAL;
	attr->n_cqe = 1u << log2_n;
	attr->cqe_size = 64u << size;
	attr->ignore_overrun = cqc(mailbox, CQC_IGNORE_OVERRUN);
	attr->compress = (uint8_t)cqc(mailbox, CQC_COMPRESS);
	attr->uar_page = cqc(mailbox, CQC_UAR_PAGE);
	if (attr->compress &&
		compressed_format(mailbox->context->device, cqc(mailbox, CQC_MINI_FORMAT),
			&attr->compress_format))
		return EINVAL;
	return vhca_devx_place(
		       mailbox, devx, ring, (uint64_t)attr->n_cqe * attr->cqe_size, &attr->buf)
		?: vhca_devx_place(mailbox, devx, record, RECORD_BYTES, &attr->db);
}

int vhca_devx_create_cq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_cq_attr attr = {.channel = NULL};
	struct vhca_cq *cq;
	int error = read_cq(mailbox, devx, &attr) ?: vhca_cq_create(mailbox->context, &attr, &cq);

	if (error)
		return error;
	if (cqc(mailbox, CQC_PERIOD) || cqc(mailbox, CQC_MAX_COUNT))
		vhca_cq_moderate(cq, (uint16_t)cqc(mailbox, CQC_MAX_COUNT),
			(uint16_t)cqc(mailbox, CQC_PERIOD));
	devx->of = &cq->object;
	devx->id = cq->number;
	return 0;
}

/* ---- work queues ---- */

static uint32_t queue_context(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return in_get32(mailbox, QUEUE_CONTEXT, field);
}

static uint64_t wq_field(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return in_get(mailbox, WITHIN(QUEUE_CONTEXT + QUEUE_WQ, field));
}

static int place_ring(struct vhca_mailbox *mailbox, struct vhca_devx *devx, uint64_t bytes,
	uint64_t *ring, uint64_t *record)
{
	const struct vhca_devx_place at = {wq_field(mailbox, WQ_UMEM_VALID),
		wq_field(mailbox, WQ_UMEM_ID), wq_field(mailbox, WQ_UMEM_OFFSET)};
	const struct vhca_devx_place record_at = {wq_field(mailbox, WQ_DBR_UMEM_VALID),
		wq_field(mailbox, WQ_DBR_UMEM_ID), wq_field(mailbox, WQ_DBR_ADDR)};

	if (wq_field(mailbox, WQ_PAGE_OFFSET))
		return EINVAL;
	return vhca_devx_place(mailbox, devx, at, bytes, ring)
		?: vhca_devx_place(mailbox, devx, record_at, RECORD_BYTES, record);
}

static void read_strides(const struct vhca_mailbox *mailbox, struct vhca_wq_attr *attr)
{
	uint32_t strides = (uint32_t)wq_field(mailbox, WQ_LOG_STRIDES);

	attr->striding = wq_field(mailbox, WQ_TYPE) == WQ_TYPE_CYCLIC_STRIDING;
	if (!attr->striding)
		return;
	attr->log2_n_strides = (uint8_t)(9 + strides - (strides & 8 ? 16 : 0));
	attr->log2_stride_bytes = (uint8_t)(6 + wq_field(mailbox, WQ_LOG_STRIDE_BYTES));
	attr->two_byte_shift = wq_field(mailbox, WQ_TWO_BYTE_SHIFT);
}

static int check_rq(const struct vhca_mailbox *mailbox)
{
	uint64_t type = wq_field(mailbox, WQ_TYPE);

	if (type != WQ_TYPE_CYCLIC && type != WQ_TYPE_CYCLIC_STRIDING)
		return EINVAL;
	if (queue_context(mailbox, QUEUE_RESERVED_LKEY) || queue_context(mailbox, RQC_DELAY_DROP) ||
		queue_context(mailbox, RQC_SCATTER_FCS) ||
		queue_context(mailbox, RQC_MEMORY_TYPE) || queue_context(mailbox, QUEUE_HAIRPIN))
		return EOPNOTSUPP;
	return 0;
}

static int find_counter_set(
	struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_devx **set)
{
	uint32_t id = queue_context(mailbox, RQC_COUNTER_SET);

	*set = vhca_devx_find(mailbox->context, VHCA_DEVX_Q_COUNTER, id);
	devx->counter_set = *set ? id : 0;
	return id && !*set ? EINVAL : 0;
}

static int rq_to(struct vhca_wq *wq, uint32_t state)
{
	switch (state) {
	case QUEUE_RESET: return vhca_wq_modify(wq, IBV_QPS_RESET);
	case QUEUE_READY: return vhca_wq_modify(wq, IBV_QPS_RTR);
	case QUEUE_ERROR: return vhca_wq_modify(wq, IBV_QPS_ERR);
	default: return EINVAL;
	}
}

static int read_rq(struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_wq_attr *attr)
{
	uint32_t log2_n = (uint32_t)wq_field(mailbox, WQ_LOG_SIZE);
	struct vhca_devx *set;
	int error = check_rq(mailbox) ?: find_counter_set(mailbox, devx, &set);

	if (error || log2_n > 15)
		return error ?: EINVAL;
	attr->pd = vhca_devx_find_pd(mailbox->context, wq_field(mailbox, WQ_PD));
	attr->cq = vhca_devx_find_number(mailbox->context, &mailbox->context->device->tables->cqs,
		queue_context(mailbox, QUEUE_CQN));
	attr->n_wqe = 1u << log2_n;
	attr->log2_stride = (uint32_t)wq_field(mailbox, WQ_LOG_STRIDE);
	attr->uidx = queue_context(mailbox, QUEUE_USER_INDEX);
	attr->strip_vlan = !queue_context(mailbox, RQC_VLAN_STRIP_DISABLE);
	attr->signature = wq_field(mailbox, WQ_SIGNATURE);
	read_strides(mailbox, attr);
	error = place_ring(
		mailbox, devx, (uint64_t)attr->n_wqe << attr->log2_stride, &attr->buf, &attr->db);
	if (!error && set)
		vhca_devx_hold(devx, &set->object);
	return error;
}

int vhca_devx_create_rq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_wq_attr attr = {.owner = NULL};
	struct vhca_wq *wq;
	int error = read_rq(mailbox, devx, &attr) ?: vhca_wq_create(mailbox->context, &attr, &wq);

	if (error)
		return error;
	devx->of = &wq->queue.object;
	devx->id = wq->queue.number;
	return rq_to(wq, queue_context(mailbox, QUEUE_STATE));
}

static uint32_t rq_state(const struct vhca_wq *wq)
{
	switch (vhca_wq_state(wq)) {
	case IBV_QPS_RESET: return QUEUE_RESET;
	case IBV_QPS_ERR: return QUEUE_ERROR;
	default: return QUEUE_READY;
	}
}

int vhca_devx_modify_rq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_wq *wq = container_of(devx->of, struct vhca_wq, queue.object);
	uint64_t what = in_get(mailbox, MODIFY_BITMASK);

	if (in_get(mailbox, MODIFY_STATE) != rq_state(wq))
		return EBUSY;
	if (what & ~(uint64_t)MODIFY_RQ_VSD)
		return EOPNOTSUPP;
	if (what & MODIFY_RQ_VSD)
		vhca_wq_strip_vlan(wq, !queue_context(mailbox, RQC_VLAN_STRIP_DISABLE));
	return queue_context(mailbox, QUEUE_STATE) == rq_state(wq)
		? 0
		: rq_to(wq, queue_context(mailbox, QUEUE_STATE));
}

/* A send queue is a raw QP without a receive queue, which goes through its states in one. */
static int sq_to(struct vhca_qp *qp, uint32_t state)
{
	static const struct {
		enum ibv_qp_state state;
		uint32_t mask;
	} way[] = {{IBV_QPS_INIT, IBV_QP_PORT}, {IBV_QPS_RTR, 0}, {IBV_QPS_RTS, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET, .port_num = 1};
	int error = 0;

	if (state == QUEUE_READY && qp->state != IBV_QPS_RESET)
		return EINVAL;
	for (size_t i = 0; !error && state == QUEUE_READY && i < ARRAY_SIZE(way); i++) {
		attr.qp_state = way[i].state;
		error = vhca_qp_modify(qp, &attr, IBV_QP_STATE | way[i].mask, 0);
	}
	if (state == QUEUE_READY)
		return error;
	attr.qp_state = state == QUEUE_RESET ? IBV_QPS_RESET : IBV_QPS_ERR;
	return state == QUEUE_RESET || state == QUEUE_ERROR
		? vhca_qp_modify(qp, &attr, IBV_QP_STATE, 0)
		: EINVAL;
}

static uint32_t sq_state(const struct vhca_qp *qp)
{
	switch (qp->state) {
	case IBV_QPS_RESET: return QUEUE_RESET;
	case IBV_QPS_RTS: return QUEUE_READY;
	default: return QUEUE_ERROR;
	}
}

static int check_sq(const struct vhca_mailbox *mailbox)
{
	if (wq_field(mailbox, WQ_TYPE) != WQ_TYPE_CYCLIC || wq_field(mailbox, WQ_LOG_STRIDE) != 6 ||
		wq_field(mailbox, WQ_LOG_SIZE) > 15 || queue_context(mailbox, SQC_N_TIS) > 1)
		return EINVAL;
	if (queue_context(mailbox, QUEUE_RESERVED_LKEY) || queue_context(mailbox, SQC_CD_MASTER) ||
		queue_context(mailbox, QUEUE_HAIRPIN) || queue_context(mailbox, SQC_NON_WIRE) ||
		queue_context(mailbox, SQC_STATIC) || queue_context(mailbox, SQC_RATE_LIMIT))
		return EOPNOTSUPP;
	return 0;
}

static int read_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_qp_attr *attr)
{
	struct vhca_devx *tis =
		vhca_devx_find(mailbox->context, VHCA_DEVX_TIS, queue_context(mailbox, SQC_TIS));
	int error = check_sq(mailbox);

	if (error)
		return error;
	attr->pd = vhca_devx_find_pd(mailbox->context, wq_field(mailbox, WQ_PD));
	attr->send_cq = vhca_devx_find_number(mailbox->context,
		&mailbox->context->device->tables->cqs, queue_context(mailbox, QUEUE_CQN));
	if (!attr->pd || !attr->send_cq || (queue_context(mailbox, SQC_N_TIS) && !tis))
		return EINVAL;
	attr->sq_wqe_count = 1u << wq_field(mailbox, WQ_LOG_SIZE);
	attr->max_send_wr = attr->sq_wqe_count;
	attr->uidx = queue_context(mailbox, QUEUE_USER_INDEX);
	attr->uar_page = (uint32_t)wq_field(mailbox, WQ_UAR_PAGE);
	error = place_ring(mailbox, devx, (uint64_t)attr->sq_wqe_count * MLX5_SEND_WQE_BB,
		&attr->sq_buf, &attr->db);
	if (!error && tis)
		vhca_devx_hold(devx, &tis->object);
	return error;
}

int vhca_devx_create_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_qp_attr attr = {.type = IBV_QPT_RAW_PACKET};
	struct vhca_qp *qp;
	int error = read_sq(mailbox, devx, &attr) ?: vhca_qp_create(mailbox->context, &attr, &qp);

	if (error)
		return error;
	devx->of = &qp->object;
	devx->id = qp->number;
	return queue_context(mailbox, QUEUE_STATE) == QUEUE_RESET
		? 0
		: sq_to(qp, queue_context(mailbox, QUEUE_STATE));
}

int vhca_devx_modify_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_qp *qp = container_of(devx->of, struct vhca_qp, object);

	if (in_get(mailbox, MODIFY_STATE) != sq_state(qp))
		return EBUSY;
	if (in_get(mailbox, MODIFY_BITMASK))
		return EOPNOTSUPP;
	return queue_context(mailbox, QUEUE_STATE) == sq_state(qp)
		? 0
		: sq_to(qp, queue_context(mailbox, QUEUE_STATE));
}
