/* qp.c - QPs: create, the states and what each may set, failure, destroy */

#include "vhca/raw.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>

uint64_t vhca_qp_generation = 1;

/* ---- create and destroy ---- */

static bool type_known(uint8_t type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
		type == IBV_QPT_RAW_PACKET;
}

static bool ring_size_fits(uint32_t n)
{
	return !n || (is_pow2(n) && n <= VHCA_MAX_QUEUE);
}

static uint64_t rq_bytes(const struct vhca_qp_attr *attr)
{
	/* Without a ring its stride may be anything. */
	return attr->rq_wqe_count ? (uint64_t)attr->rq_wqe_count << attr->rq_wqe_shift : 0;
}

/* A raw one's send ring lies by itself. */
static uint64_t sq_at(const struct vhca_qp_attr *attr)
{
	return attr->type == IBV_QPT_RAW_PACKET ? attr->sq_buf : attr->buf + rq_bytes(attr);
}

static int ring_check(uint64_t at, uint64_t bytes)
{
	if (bytes && (!at || at % 16))
		return EINVAL;
	return bytes && vhca_memory_check(at, bytes, true) ? EFAULT : 0;
}

static int qp_check(const struct vhca_qp_attr *attr)
{
	int error;

	if (!type_known(attr->type))
		return EOPNOTSUPP;
	if (attr->type == IBV_QPT_RAW_PACKET && attr->srq)
		return EOPNOTSUPP;
	if (!ring_size_fits(attr->sq_wqe_count) || !ring_size_fits(attr->rq_wqe_count))
		return EINVAL;
	if (attr->rq_wqe_count && (attr->srq || attr->rq_wqe_shift < 4 || attr->rq_wqe_shift > 10))
		return EINVAL;
	if ((attr->sq_wqe_count && !attr->send_cq) || (attr->rq_wqe_count && !attr->recv_cq) ||
		attr->db % 8)
		return EINVAL;
	error = ring_check(attr->buf, rq_bytes(attr))
		?: ring_check(sq_at(attr), (uint64_t)attr->sq_wqe_count * MLX5_SEND_WQE_BB);
	return error ?: vhca_memory_check(attr->db, 8, true);
}

static void qp_refs(struct vhca_qp *qp, uint32_t by)
{
	qp->pd->object.refs += by;
	if (qp->page)
		qp->page->uar.object.refs += by;
	if (qp->send_cq)
		qp->send_cq->object.refs += by;
	if (qp->recv_cq)
		qp->recv_cq->object.refs += by;
	if (qp->srq)
		qp->srq->object.refs += by;
}

/* As the kernel's driver sets it up: only connected transports, and as much as a CQE has room for.
 */
static uint8_t cqe_scatter(const struct vhca_qp_attr *attr)
{
	if (!(attr->flags & MLX5_QP_FLAG_SCATTER_CQE) || !attr->recv_cq ||
		(attr->type != IBV_QPT_RC && attr->type != IBV_QPT_UC))
		return 0;
	if (attr->recv_cq->log2_size == 7)
		return vhca_late_any ? 0 : 64; /* a late CQE is one of 64 bytes */
	return 32;
}

/* Only where each WQE has a CQE to go into, or the program says it knows; libmlx5 takes nothing of
 * the kind out of a CQE of 128 bytes. */
static uint8_t answer_scatter(const struct vhca_qp_attr *attr)
{
	if (!(attr->flags & MLX5_QP_FLAG_SCATTER_CQE) || attr->type != IBV_QPT_RC || !attr->send_cq)
		return 0;
	if (!attr->signal_all && !(attr->flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE))
		return 0;
	return attr->send_cq->log2_size == 6 ? 32 : 0;
}

static void qp_init(struct vhca_qp *qp, const struct vhca_qp_attr *attr, struct vhca_page *page)
{
	qp->attr = *attr;
	qp->page = page;
	qp->pd = attr->pd;
	qp->tables = vhca_tables_of(&qp->object);
	qp->type = attr->type;
	qp->state = IBV_QPS_RESET;
	qp->uidx = attr->uidx & 0xffffff;
	qp->rq = vhca_pointer(attr->buf);
	qp->sq = vhca_pointer(sq_at(attr));
	qp->sq_mask = attr->sq_wqe_count ? attr->sq_wqe_count - 1 : 0;
	qp->rq_mask = attr->rq_wqe_count ? attr->rq_wqe_count - 1 : 0;
	qp->log2_rq_stride = attr->rq_wqe_shift;
	qp->rq_first = attr->flags & MLX5_QP_FLAG_SIGNATURE ? 1 : 0;
	qp->db = vhca_pointer(attr->db);
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->cqe_scatter = cqe_scatter(attr);
	qp->answer_scatter = answer_scatter(attr);
	vhca_counted_init(&qp->async, qp->object.context->async, attr->user_handle);
	vhca_list_init(&qp->in_active);
	vhca_list_init(&qp->in_waiting);
	vhca_list_init(&qp->in_errored);
	vhca_list_init(&qp->in_unreported);
	vhca_list_init(&qp->on_page);
	if (page)
		vhca_list_add(&page->qps, &qp->on_page);
}

/* ---- raw ones: what receives is a receive queue and a TIR of theirs ---- */

static int make_receive_queue(struct vhca_qp *qp)
{
	const struct vhca_wq_attr attr = {
		.pd = qp->pd,
		.cq = qp->recv_cq,
		.buf = qp->attr.buf,
		.db = qp->attr.db,
		.n_wqe = qp->attr.rq_wqe_count,
		.log2_stride = qp->attr.rq_wqe_shift,
		.uidx = qp->uidx,
		.strip_vlan = qp->attr.strip_vlan,
		.signature = qp->attr.flags & MLX5_QP_FLAG_SIGNATURE,
		.owner = qp,
	};

	qp->attr.rq_wqe_count = 0; /* its own does not exist */
	return vhca_wq_create(qp->object.context, &attr, &qp->wq);
}

static int make_tir(struct vhca_qp *qp)
{
	struct vhca_tir_attr attr = {
		.wq = qp->wq,
		.rqt = qp->attr.rqt,
		.fields = qp->attr.hash_fields,
		.of_qp = true,
	};

	memcpy(attr.key, qp->attr.hash_key, sizeof(attr.key));
	return vhca_tir_create(qp->object.context, &attr, &qp->tir);
}

static int make_raw_parts(struct vhca_qp *qp)
{
	int error = 0;

	if (qp->type != IBV_QPT_RAW_PACKET)
		return 0;
	if (qp->attr.rq_wqe_count)
		error = make_receive_queue(qp);
	return error ?: qp->wq || qp->attr.rqt ? make_tir(qp) : 0;
}

static void end_raw_parts(struct vhca_qp *qp)
{
	if (qp->tir)
		vhca_tir_destroy(qp->tir);
	if (qp->wq)
		vhca_wq_destroy(qp->wq);
}

int vhca_qp_create(
	struct vhca_context *context, const struct vhca_qp_attr *attr, struct vhca_qp **result)
{
	struct vhca_page *page = attr->rqt ? NULL : vhca_page_find(context, attr->uar_page);
	int error = attr->rqt ? 0 : page ? qp_check(attr) : EINVAL;
	struct vhca_qp *qp;

	if (error)
		return error;
	qp = vhca_object_new(context, VHCA_QP, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	error = vhca_number_add(&context->device->tables->qps, qp, &qp->number);
	if (error)
		goto no_number;
	qp_init(qp, attr, page);
	error = make_raw_parts(qp);
	if (error)
		goto no_parts;
	qp_refs(qp, 1);
	vhca_qp_generation++;
	vhca_object_link(&qp->object);
	*result = qp;
	return 0;

no_parts:
	end_raw_parts(qp);
	vhca_list_remove(&qp->on_page);
	vhca_number_remove(&context->device->tables->qps, qp->number);
no_number:
	free(qp);
	return error;
}

/* Out of every list of the engine. */
static void qp_quiet(struct vhca_qp *qp)
{
	vhca_late_flush(qp->tables);
	if (qp->page)
		vhca_page_poll(qp->page);
	vhca_qp_wait_cancel(qp);
	vhca_qp_deactivate(qp);
	vhca_list_remove(&qp->in_errored);
	vhca_flow_end(qp);
	vhca_list_remove(&qp->in_unreported);
}

void vhca_qp_destroy(struct vhca_qp *qp)
{
	vhca_events_end(&qp->async);
	qp_quiet(qp);
	end_raw_parts(qp);
	vhca_list_remove(&qp->on_page);
	vhca_number_remove(&vhca_tables_of(&qp->object)->qps, qp->number);
	qp_refs(qp, (uint32_t)-1);
	vhca_qp_generation++;
	vhca_object_free(&qp->object);
}

uint32_t vhca_qp_number(const struct vhca_qp *qp)
{
	return qp->number;
}

uint32_t vhca_qp_events(struct vhca_qp *qp)
{
	return vhca_events_end(&qp->async);
}

/* ---- states: the verbs' table of transitions, and of what each must and may set ---- */

enum { RC, UC, UD, RAW, N_TYPES };

struct transition {
	uint8_t from, to;
	uint32_t required[N_TYPES], optional[N_TYPES];
};

#define IDENTITY (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH     (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define MIGRATE  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RUNNING  (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | MIGRATE)

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_RESET, {0}, {0}},
	{IBV_QPS_RESET, IBV_QPS_INIT,
		{IDENTITY | IBV_QP_ACCESS_FLAGS, IDENTITY | IBV_QP_ACCESS_FLAGS,
			IDENTITY | IBV_QP_QKEY, IBV_QP_PORT},
		{0}},
	{IBV_QPS_INIT, IBV_QPS_INIT, {0},
		{IDENTITY | IBV_QP_ACCESS_FLAGS, IDENTITY | IBV_QP_ACCESS_FLAGS,
			IDENTITY | IBV_QP_QKEY, IBV_QP_PORT}},
	{IBV_QPS_INIT, IBV_QPS_RTR,
		{PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, PATH, 0},
		{IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_RTR, IBV_QPS_RTS,
		{IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
			IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_RTS, {0},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_SQD, {0},
		{IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
			IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{IBV_QPS_SQD, IBV_QPS_RTS, {0},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_SQD, IBV_QPS_SQD, {0},
		{IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | MIGRATE |
				IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER,
			IBV_QP_AV | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_SQE, IBV_QPS_RTS, {0},
		{0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_ERR, IBV_QPS_ERR, {0}, {0}},
};

static int type_column(uint8_t type)
{
	switch (type) {
	case IBV_QPT_RC: return RC;
	case IBV_QPT_UC: return UC;
	case IBV_QPT_RAW_PACKET: return RAW;
	default: return UD;
	}
}

static int transition_check(uint8_t type, uint8_t from, uint8_t to, uint32_t mask)
{
	int column = type_column(type);

	mask &= ~(uint32_t)IBV_QP_STATE;
	if (from != IBV_QPS_RESET && (to == IBV_QPS_RESET || to == IBV_QPS_ERR))
		return mask ? EINVAL : 0;
	if (type == IBV_QPT_RAW_PACKET && (from == IBV_QPS_SQE || to == IBV_QPS_SQD))
		return EINVAL; /* its queues have no such states */
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != from || t->to != to)
			continue;
		if ((mask & t->required[column]) != t->required[column])
			return EINVAL;
		return mask & ~(t->required[column] | t->optional[column]) ? EINVAL : 0;
	}
	return EINVAL;
}

static int ranges_check(const struct vhca_device *device, const struct ibv_qp_attr *attr,
	uint32_t mask, uint32_t sgid_index)
{
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU &&
		(attr->path_mtu < IBV_MTU_256 || attr->path_mtu > device->mtu))
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > VHCA_MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > VHCA_MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & IBV_QP_ALT_PATH)
		return EINVAL; /* RoCE has none */
	return mask & IBV_QP_AV ? vhca_address_check(device, &attr->ah_attr, sgid_index) : 0;
}

static void take_path(
	struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask, uint32_t sgid_index)
{
	if (mask & IBV_QP_AV) {
		qp->set.ah_attr = attr->ah_attr;
		qp->sgid_index = sgid_index;
	}
	if (mask & IBV_QP_PATH_MTU)
		qp->set.path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		qp->set.dest_qp_num = attr->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		qp->set.rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->set.sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_PKEY_INDEX)
		qp->set.pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		qp->set.port_num = attr->port_num;
	if (mask & IBV_QP_PATH_MIG_STATE)
		qp->set.path_mig_state = attr->path_mig_state;
}

static void take_limits(struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = qp->set.qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_QKEY)
		qp->set.qkey = attr->qkey;
	if (mask & IBV_QP_TIMEOUT)
		qp->set.timeout = attr->timeout & 31;
	if (mask & IBV_QP_RETRY_CNT)
		qp->set.retry_cnt = attr->retry_cnt & 7;
	if (mask & IBV_QP_RNR_RETRY)
		qp->set.rnr_retry = attr->rnr_retry & 7;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->set.min_rnr_timer = attr->min_rnr_timer & 31;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->set.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->set.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->set.en_sqd_async_notify = attr->en_sqd_async_notify;
}

static void qp_reset(struct vhca_qp *qp)
{
	qp_quiet(qp);
	qp->state = IBV_QPS_RESET;
	qp->sq_ci = qp->sq_pi = qp->sq_done = 0;
	qp->unrung = false;
	qp->rq_ci = qp->rq_pi = 0;
	qp->part_held = false;
	qp->rnr_tries = qp->transport_tries = qp->copies = 0;
	qp->access = 0;
	memset(&qp->set, 0, sizeof(qp->set));
	memset(qp->reports, 0, sizeof(qp->reports));
	if (qp->wq)
		vhca_wq_modify(qp->wq, IBV_QPS_RESET);
}

void vhca_qp_fail(struct vhca_qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	qp->draining = false;
	vhca_qp_generation++;
	vhca_qp_wait_cancel(qp);
	vhca_flow_abandon(qp);
	vhca_responder_release(qp);
	if (qp->attr.sq_wqe_count) {
		qp->sq_pi = (uint16_t)vhca_record_read(&qp->db[1]);
		vhca_qp_activate(qp);
	}
	if (qp->attr.rq_wqe_count)
		vhca_list_add(&vhca_tables_of(&qp->object)->errored, &qp->in_errored);
	if (qp->srq)
		vhca_event_async(&qp->async, IBV_EVENT_QP_LAST_WQE_REACHED);
	/* A raw QP and its receive queue are one. */
	if (qp->owner)
		vhca_qp_fail(qp->owner);
	if (qp->wq)
		vhca_qp_fail(&qp->wq->queue);
}

void vhca_qp_fatal(struct vhca_qp *qp)
{
	bool is_wq = qp->object.kind == VHCA_WQ && !qp->owner;
	struct vhca_qp *told = qp->owner ? qp->owner : qp;

	if (told->state != IBV_QPS_ERR)
		vhca_event_async(&told->async, is_wq ? IBV_EVENT_WQ_FATAL : IBV_EVENT_QP_FATAL);
	vhca_qp_fail(qp);
}

void vhca_qps_fail_unreported(struct vhca_tables *tables)
{
	while (!vhca_list_empty(&tables->unreported)) {
		struct vhca_qp *qp =
			container_of(tables->unreported.next, struct vhca_qp, in_unreported);

		vhca_list_remove(&qp->in_unreported);
		vhca_qp_fatal(qp);
	}
}

void vhca_qp_fail_send(struct vhca_qp *qp)
{
	if (qp->type == IBV_QPT_RC || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)) {
		vhca_qp_fail(qp);
		return;
	}
	qp->state = IBV_QPS_SQE;
	qp->draining = false;
	vhca_qp_generation++;
	vhca_qp_wait_cancel(qp);
	vhca_flow_abandon(qp);
	qp->sq_pi = (uint16_t)vhca_record_read(&qp->db[1]);
	vhca_qp_activate(qp);
}

void vhca_qp_drain(struct vhca_qp *qp)
{
	if (!qp->draining || qp->state != IBV_QPS_SQD)
		return;
	qp->draining = vhca_requester_has_begun(qp) || vhca_flow_under_way(qp);
	if (!qp->draining && qp->tell_drained)
		vhca_event_async(&qp->async, IBV_EVENT_SQ_DRAINED);
}

/* What has begun goes on. */
static void begin_to_drain(struct vhca_qp *qp, bool tell)
{
	qp->draining = true;
	qp->tell_drained = tell;
	vhca_qp_drain(qp);
	if (qp->draining)
		vhca_qp_activate(qp);
}

static void enter_state(struct vhca_qp *qp, uint8_t to, bool tell_drained)
{
	uint8_t from = qp->state;

	qp->draining &= to == IBV_QPS_SQD;
	if (to == IBV_QPS_RESET)
		qp_reset(qp);
	else if (to == IBV_QPS_ERR)
		vhca_qp_fail(qp);
	else
		qp->state = to;
	if (from == IBV_QPS_RTS && to == IBV_QPS_SQD)
		begin_to_drain(qp, tell_drained);
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT && qp->wq)
		vhca_wq_modify(qp->wq, IBV_QPS_RTR); /* as the kernel has it */
	if (to == IBV_QPS_RTS && (from == IBV_QPS_SQD || from == IBV_QPS_SQE))
		vhca_qp_activate(qp); /* goes on with what it had */
	vhca_qp_generation++;
}

int vhca_qp_modify(
	struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask, uint32_t av_sgid_index)
{
	uint8_t to = mask & IBV_QP_STATE ? (uint8_t)attr->qp_state : qp->state;
	int error;

	if (qp->attr.rqt)
		return EOPNOTSUPP; /* it has no state */
	if ((mask & IBV_QP_STATE && attr->qp_state > IBV_QPS_ERR) ||
		(mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state))
		return EINVAL;
	error = transition_check(qp->type, qp->state, to, mask);
	if (!error)
		error = ranges_check(qp->object.context->device, attr, mask, av_sgid_index);
	if (error)
		return error;
	take_path(qp, attr, mask, av_sgid_index);
	take_limits(qp, attr, mask);
	enter_state(qp, to, mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify);
	return 0;
}

void vhca_qp_query(struct vhca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	*attr = qp->set;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->sq_draining = qp->draining;
	attr->cap = (struct ibv_qp_cap){
		.max_send_wr = qp->attr.max_send_wr,
		.max_recv_wr = qp->attr.max_recv_wr,
		.max_send_sge = qp->attr.max_send_sge,
		.max_recv_sge = qp->attr.max_recv_sge,
		.max_inline_data = qp->attr.max_inline,
	};
	*init = (struct ibv_qp_init_attr){
		.cap = attr->cap,
		.qp_type = qp->type,
		.sq_sig_all = qp->attr.signal_all,
	};
}
