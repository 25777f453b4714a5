/* devx.c - DevX objects: made, changed and asked by the PRM's commands */

#include "vhca/devx_prm.h"
#include "vhca/raw.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>

enum devx_kind {
	DEVX_CQ,
	DEVX_RQ,
	DEVX_SQ,
	DEVX_RQT,
	DEVX_TIR,
	DEVX_TIS,
	DEVX_TRANSPORT_DOMAIN,
	DEVX_Q_COUNTER,
	DEVX_FLOW_COUNTER,
};

#define MAX_HELD 3 /* rings, records, domains */

struct vhca_devx {
	struct vhca_object object;
	enum devx_kind kind;
	uint32_t id;
	struct vhca_object *of; /* of the device's own; NULL: the number is all there is */
	struct vhca_object *held[MAX_HELD];
	uint32_t n_held;
	uint32_t counter_set; /* an RQ's; 0: none */
	uint64_t base;        /* a Q counter's: what was counted when it was cleared */
	struct vhca_tally tally, tally_base;
};

static struct vhca_devx *devx_of(struct vhca_object *object)
{
	return container_of(object, struct vhca_devx, object);
}

/* ---- what numbers in a mailbox stand for: of the same context, or nothing ---- */

static void *find_number(
	const struct vhca_context *context, const struct vhca_numbers *numbers, uint64_t number)
{
	struct vhca_object *object = number < numbers->n ? numbers->object[number] : NULL;

	return object && object->context == context ? object : NULL;
}

static struct vhca_pd *find_pd(const struct vhca_context *context, uint64_t pdn)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_PD && ((struct vhca_pd *)object)->pdn == pdn)
			return (struct vhca_pd *)object;
	return NULL;
}

static struct vhca_umem *find_umem(const struct vhca_context *context, uint64_t id)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_UMEM && ((struct vhca_umem *)object)->id == id)
			return (struct vhca_umem *)object;
	return NULL;
}

static struct vhca_devx *find_devx(
	const struct vhca_context *context, enum devx_kind kind, uint64_t id)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_DEVX && devx_of(object)->kind == kind &&
			devx_of(object)->id == id)
			return devx_of(object);
	return NULL;
}

static struct vhca_wq *find_rq(const struct vhca_context *context, uint64_t number)
{
	struct vhca_qp *queue = find_number(context, &context->device->tables->wqs, number);

	return queue && !queue->owner ? container_of(queue, struct vhca_wq, queue) : NULL;
}

/* ---- objects ---- */

static void hold(struct vhca_devx *devx, struct vhca_object *object)
{
	if (!object)
		return;
	object->refs++;
	devx->held[devx->n_held++] = object;
}

static void let_go(struct vhca_devx *devx)
{
	while (devx->n_held)
		devx->held[--devx->n_held]->refs--;
}

bool vhca_devx_in_use(const struct vhca_devx *devx)
{
	return devx->object.refs || (devx->of && devx->of->refs > 1);
}

void vhca_devx_destroy(struct vhca_devx *devx)
{
	if (devx->of) {
		devx->of->refs--;
		vhca_object_destroy(devx->of);
	}
	let_go(devx);
	vhca_object_free(&devx->object);
}

/* One that goes takes the object behind it along, so the list begins anew. */
void vhca_devx_end(struct vhca_context *context)
{
	struct vhca_object *object = context->objects;

	while (object)
		object = object->kind == VHCA_DEVX && !vhca_object_destroy(object)
			? context->objects
			: object->next;
}

struct vhca_tir *vhca_devx_tir(struct vhca_devx *devx, struct vhca_object **holder)
{
	if (devx->kind != DEVX_TIR)
		return NULL;
	*holder = &devx->object;
	return container_of(devx->of, struct vhca_tir, object);
}

struct vhca_tally *vhca_devx_tally(
	struct vhca_devx *devx, uint32_t offset, struct vhca_object **holder)
{
	if (devx->kind != DEVX_FLOW_COUNTER || offset)
		return NULL;
	*holder = &devx->object;
	return &devx->tally;
}

int vhca_umem_create(struct vhca_context *context, uint64_t start, uint64_t length, uint32_t access,
	struct vhca_umem **result)
{
	struct vhca_umem *umem;

	if (!length || start + length < start || access & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE)
		return EINVAL;
	if (vhca_memory_check(start, length, access))
		return EFAULT;
	umem = vhca_object_new(context, VHCA_UMEM, sizeof(*umem));
	if (!umem)
		return ENOMEM;
	umem->id = ++context->device->tables->next_devx;
	umem->start = start;
	umem->length = length;
	vhca_object_link(&umem->object);
	*result = umem;
	return 0;
}

/* Where `bytes` at an offset into registered memory lie. EINVAL: not within it, or there is none. */
static int place(struct vhca_mailbox *mailbox, struct vhca_devx *devx, uint64_t valid, uint64_t id,
	uint64_t offset, uint64_t bytes, uint64_t *address)
{
	struct vhca_umem *umem = valid ? find_umem(mailbox->context, id) : NULL;

	if (!umem || offset > umem->length || bytes > umem->length - offset)
		return EINVAL;
	hold(devx, &umem->object);
	*address = umem->start + offset;
	return 0;
}

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
	return place(mailbox, devx, in_get(mailbox, CQ_UMEM_VALID), in_get(mailbox, CQ_UMEM_ID),
		       in_get(mailbox, CQ_UMEM_OFFSET), (uint64_t)attr->n_cqe * attr->cqe_size,
		       &attr->buf)
		?: place(mailbox, devx, cqc(mailbox, CQC_DBR_UMEM_VALID),
			   cqc(mailbox, CQC_DBR_UMEM_ID),
			   in_get(mailbox, WITHIN(CQ_CONTEXT, CQC_DBR_ADDR)), 8, &attr->db);
}

static int create_cq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
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
	if (wq_field(mailbox, WQ_PAGE_OFFSET))
		return EINVAL;
	return place(mailbox, devx, wq_field(mailbox, WQ_UMEM_VALID), wq_field(mailbox, WQ_UMEM_ID),
		       wq_field(mailbox, WQ_UMEM_OFFSET), bytes, ring)
		?: place(mailbox, devx, wq_field(mailbox, WQ_DBR_UMEM_VALID),
			   wq_field(mailbox, WQ_DBR_UMEM_ID), wq_field(mailbox, WQ_DBR_ADDR), 8,
			   record);
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
	if (queue_context(mailbox, RQC_RESERVED_LKEY) || queue_context(mailbox, RQC_DELAY_DROP) ||
		queue_context(mailbox, RQC_SCATTER_FCS) ||
		queue_context(mailbox, RQC_MEMORY_TYPE) || queue_context(mailbox, RQC_HAIRPIN))
		return EOPNOTSUPP;
	return 0;
}

static int find_counter_set(
	struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_devx **set)
{
	uint32_t id = queue_context(mailbox, RQC_COUNTER_SET);

	*set = find_devx(mailbox->context, DEVX_Q_COUNTER, id);
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
	attr->pd = find_pd(mailbox->context, wq_field(mailbox, WQ_PD));
	attr->cq = find_number(mailbox->context, &mailbox->context->device->tables->cqs,
		queue_context(mailbox, RQC_CQN));
	attr->n_wqe = 1u << log2_n;
	attr->log2_stride = (uint32_t)wq_field(mailbox, WQ_LOG_STRIDE);
	attr->uidx = queue_context(mailbox, RQC_USER_INDEX);
	attr->strip_vlan = !queue_context(mailbox, RQC_VLAN_STRIP_DISABLE);
	attr->signature = wq_field(mailbox, WQ_SIGNATURE);
	read_strides(mailbox, attr);
	error = place_ring(
		mailbox, devx, (uint64_t)attr->n_wqe << attr->log2_stride, &attr->buf, &attr->db);
	if (!error && set)
		hold(devx, &set->object);
	return error;
}

static int create_rq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_wq_attr attr = {.owner = NULL};
	struct vhca_wq *wq;
	int error = read_rq(mailbox, devx, &attr) ?: vhca_wq_create(mailbox->context, &attr, &wq);

	if (error)
		return error;
	devx->of = &wq->queue.object;
	devx->id = wq->queue.number;
	return rq_to(wq, queue_context(mailbox, RQC_STATE));
}

static uint32_t rq_state(const struct vhca_wq *wq)
{
	switch (vhca_wq_state(wq)) {
	case IBV_QPS_RESET: return QUEUE_RESET;
	case IBV_QPS_ERR: return QUEUE_ERROR;
	default: return QUEUE_READY;
	}
}

static int modify_rq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_wq *wq = container_of(devx->of, struct vhca_wq, queue.object);
	uint64_t what = in_get(mailbox, MODIFY_BITMASK);

	if (in_get(mailbox, MODIFY_STATE) != rq_state(wq))
		return EBUSY;
	if (what & ~(uint64_t)MODIFY_RQ_VSD)
		return EOPNOTSUPP;
	if (what & MODIFY_RQ_VSD)
		vhca_wq_strip_vlan(wq, !queue_context(mailbox, RQC_VLAN_STRIP_DISABLE));
	return queue_context(mailbox, RQC_STATE) == rq_state(wq)
		? 0
		: rq_to(wq, queue_context(mailbox, RQC_STATE));
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
	if (queue_context(mailbox, SQC_RESERVED_LKEY) || queue_context(mailbox, SQC_CD_MASTER) ||
		queue_context(mailbox, SQC_HAIRPIN) || queue_context(mailbox, SQC_NON_WIRE) ||
		queue_context(mailbox, SQC_STATIC) || queue_context(mailbox, SQC_RATE_LIMIT))
		return EOPNOTSUPP;
	return 0;
}

static int read_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx, struct vhca_qp_attr *attr)
{
	struct vhca_devx *tis =
		find_devx(mailbox->context, DEVX_TIS, queue_context(mailbox, SQC_TIS));
	int error = check_sq(mailbox);

	if (error)
		return error;
	attr->pd = find_pd(mailbox->context, wq_field(mailbox, WQ_PD));
	attr->send_cq = find_number(mailbox->context, &mailbox->context->device->tables->cqs,
		queue_context(mailbox, SQC_CQN));
	if (!attr->pd || !attr->send_cq || (queue_context(mailbox, SQC_N_TIS) && !tis))
		return EINVAL;
	attr->sq_wqe_count = 1u << wq_field(mailbox, WQ_LOG_SIZE);
	attr->max_send_wr = attr->sq_wqe_count;
	attr->uidx = queue_context(mailbox, SQC_USER_INDEX);
	attr->uar_page = (uint32_t)wq_field(mailbox, WQ_UAR_PAGE);
	error = place_ring(mailbox, devx, (uint64_t)attr->sq_wqe_count * MLX5_SEND_WQE_BB,
		&attr->sq_buf, &attr->db);
	if (!error && tis)
		hold(devx, &tis->object);
	return error;
}

static int create_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_qp_attr attr = {.type = IBV_QPT_RAW_PACKET};
	struct vhca_qp *qp;
	int error = read_sq(mailbox, devx, &attr) ?: vhca_qp_create(mailbox->context, &attr, &qp);

	if (error)
		return error;
	devx->of = &qp->object;
	devx->id = qp->number;
	return queue_context(mailbox, SQC_STATE) == QUEUE_RESET
		? 0
		: sq_to(qp, queue_context(mailbox, SQC_STATE));
}

static int modify_sq(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_qp *qp = container_of(devx->of, struct vhca_qp, object);

	if (in_get(mailbox, MODIFY_STATE) != sq_state(qp))
		return EBUSY;
	if (in_get(mailbox, MODIFY_BITMASK))
		return EOPNOTSUPP;
	return queue_context(mailbox, SQC_STATE) == sq_state(qp)
		? 0
		: sq_to(qp, queue_context(mailbox, SQC_STATE));
}

/* ---- tables and TIRs ---- */

/* The queues of a table, to be freed; NULL and an errno. */
static struct vhca_wq **read_table(const struct vhca_mailbox *mailbox, uint32_t *n, int *error)
{
	struct vhca_wq **wqs;

	*error = EINVAL;
	*n = in_get32(mailbox, RQT_CONTEXT, RQTC_ACTUAL_SIZE);
	if (!*n || *n > 1u << VHCA_MAX_RQT || in_get32(mailbox, RQT_CONTEXT, RQTC_LIST_TYPE))
		return NULL;
	wqs = calloc(*n, sizeof(struct vhca_wq *));
	*error = wqs ? 0 : ENOMEM;
	for (uint32_t i = 0; !*error && i < *n; i++) {
		uint32_t field = FIELD(RQT_CONTEXT + RQTC_LIST + 32 * i + 8, 24);

		wqs[i] = find_rq(mailbox->context, in_get(mailbox, field));
		if (!wqs[i])
			*error = EINVAL;
	}
	return wqs;
}

static int create_rqt(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_rqt *rqt;
	uint32_t n;
	int error;
	struct vhca_wq **wqs = read_table(mailbox, &n, &error);

	error = error ?: vhca_rqt_create(mailbox->context, wqs, n, &rqt);
	free(wqs);
	if (error)
		return error;
	devx->of = &rqt->object;
	devx->id = rqt->number;
	return 0;
}

static int modify_rqt(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_rqt *rqt = container_of(devx->of, struct vhca_rqt, object);
	uint32_t n;
	int error;
	struct vhca_wq **wqs = read_table(mailbox, &n, &error);

	error = error ?: vhca_rqt_modify(rqt, wqs, n);
	free(wqs);
	return error;
}

static uint32_t tirc(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return in_get32(mailbox, TIR_CONTEXT, field);
}

static uint64_t hash_fields(const struct vhca_mailbox *mailbox)
{
	bool ipv6 = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_L3));
	bool udp = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_L4));
	uint32_t selected = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_FIELDS));
	uint64_t fields = 0;

	if (selected & 1)
		fields |= ipv6 ? MLX5_RX_HASH_SRC_IPV6 : MLX5_RX_HASH_SRC_IPV4;
	if (selected & 2)
		fields |= ipv6 ? MLX5_RX_HASH_DST_IPV6 : MLX5_RX_HASH_DST_IPV4;
	if (selected & 4)
		fields |= udp ? MLX5_RX_HASH_SRC_PORT_UDP : MLX5_RX_HASH_SRC_PORT_TCP;
	if (selected & 8)
		fields |= udp ? MLX5_RX_HASH_DST_PORT_UDP : MLX5_RX_HASH_DST_PORT_TCP;
	return fields;
}

static int check_tir(const struct vhca_mailbox *mailbox)
{
	uint32_t hash = tirc(mailbox, TIRC_HASH);

	uint32_t domain = tirc(mailbox, TIRC_TRANSPORT_DOMAIN);

	if ((domain && !find_devx(mailbox->context, DEVX_TRANSPORT_DOMAIN, domain)) ||
		tirc(mailbox, TIRC_DISPATCH) > 1)
		return EINVAL;
	if (tirc(mailbox, TIRC_LRO) || tirc(mailbox, TIRC_TUNNELED) ||
		tirc(mailbox, WITHIN(TIRC_INNER, SELECT_FIELDS)) ||
		tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_FIELDS)) > 15 ||
		(hash != HASH_NONE && hash != HASH_TOEPLITZ))
		return EOPNOTSUPP;
	return 0;
}

static int create_tir(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_context *context = mailbox->context;
	struct vhca_tir_attr attr = {.symmetric = tirc(mailbox, TIRC_SYMMETRIC)};
	struct vhca_devx *domain =
		find_devx(context, DEVX_TRANSPORT_DOMAIN, tirc(mailbox, TIRC_TRANSPORT_DOMAIN));
	struct vhca_tir *tir;
	int error = check_tir(mailbox);

	if (error)
		return error;
	if (tirc(mailbox, TIRC_DISPATCH))
		attr.rqt = find_number(
			context, &context->device->tables->rqts, tirc(mailbox, TIRC_TABLE));
	else
		attr.wq = find_rq(context, tirc(mailbox, TIRC_RQN));
	if (tirc(mailbox, TIRC_HASH) == HASH_TOEPLITZ)
		attr.fields = hash_fields(mailbox);
	for (uint32_t i = 0; i < VHCA_RSS_KEY; i++)
		attr.key[i] = (uint8_t)tirc(mailbox, FIELD(TIRC_KEY + 8 * i, 8));
	error = vhca_tir_create(context, &attr, &tir);
	if (error)
		return error;
	if (domain) /* that of number 0 is the device's */
		hold(devx, &domain->object);
	devx->of = &tir->object;
	devx->id = tir->number;
	return 0;
}

/* ---- what is but a number, and counters ---- */

static int create_number(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	devx->id = ++mailbox->context->device->tables->next_devx & 0xffffff;
	return 0;
}

static int create_tis(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_devx *domain = find_devx(
		mailbox->context, DEVX_TRANSPORT_DOMAIN, in_get(mailbox, TISC_TRANSPORT_DOMAIN));

	if (!domain)
		return EINVAL;
	hold(devx, &domain->object);
	return create_number(mailbox, devx);
}

static int create_q_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	for (devx->id = 1; devx->id < 256; devx->id++)
		if (!find_devx(mailbox->context, DEVX_Q_COUNTER, devx->id))
			return 0;
	return ENOMEM;
}

static int create_flow_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return in_get(mailbox, COUNTER_BULK) ? EOPNOTSUPP : create_number(mailbox, devx);
}

/* Frames that found no receive WQE in a queue of the set. */
static int query_q_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	uint64_t n = 0;

	for (struct vhca_object *object = mailbox->context->objects; object;
		object = object->next) {
		const struct vhca_devx *rq = devx_of(object);

		if (object->kind == VHCA_DEVX && rq->kind == DEVX_RQ && rq->counter_set == devx->id)
			n += container_of(rq->of, struct vhca_wq, queue.object)->out_of_buffer;
	}
	out_put(mailbox, OUT_OF_BUFFER, (uint32_t)(n - devx->base));
	if (in_get(mailbox, COUNTER_CLEAR))
		devx->base = n;
	return 0;
}

static int query_flow_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	if (in_get(mailbox, COUNTER_DUMP) || in_get(mailbox, COUNTER_N) > 1)
		return EOPNOTSUPP;
	out_put(mailbox, OUT_PACKETS, devx->tally.packets - devx->tally_base.packets);
	out_put(mailbox, OUT_OCTETS, devx->tally.bytes - devx->tally_base.bytes);
	if (in_get(mailbox, COUNTER_CLEAR))
		devx->tally_base = devx->tally;
	return 0;
}

/* ---- commands ---- */

struct verb {
	uint16_t opcode;
	uint8_t kind;
	uint32_t out; /* CREATE: where its number goes */
	int (*run)(struct vhca_mailbox *mailbox, struct vhca_devx *devx);
};

static const struct verb creates[] = {
	{OP_CREATE_CQ, DEVX_CQ, OUT_NUMBER, create_cq},
	{OP_CREATE_RQ, DEVX_RQ, OUT_NUMBER, create_rq},
	{OP_CREATE_SQ, DEVX_SQ, OUT_NUMBER, create_sq},
	{OP_CREATE_RQT, DEVX_RQT, OUT_NUMBER, create_rqt},
	{OP_CREATE_TIR, DEVX_TIR, OUT_NUMBER, create_tir},
	{OP_CREATE_TIS, DEVX_TIS, OUT_NUMBER, create_tis},
	{OP_ALLOC_TRANSPORT_DOMAIN, DEVX_TRANSPORT_DOMAIN, OUT_NUMBER, create_number},
	{OP_ALLOC_Q_COUNTER, DEVX_Q_COUNTER, OUT_COUNTER_SET, create_q_counter},
	{OP_ALLOC_FLOW_COUNTER, DEVX_FLOW_COUNTER, OUT_FLOW_COUNTER, create_flow_counter},
};

static const struct verb modifies[] = {
	{OP_MODIFY_RQ, DEVX_RQ, MODIFY_NUMBER, modify_rq},
	{OP_MODIFY_SQ, DEVX_SQ, MODIFY_NUMBER, modify_sq},
	{OP_MODIFY_RQT, DEVX_RQT, MODIFY_NUMBER, modify_rqt},
};

static const struct verb queries[] = {
	{OP_QUERY_Q_COUNTER, DEVX_Q_COUNTER, FIELD(248, 8), query_q_counter},
	{OP_QUERY_FLOW_COUNTER, DEVX_FLOW_COUNTER, FIELD(224, 32), query_flow_counter},
};

static const struct verb *find_verb(
	const struct verb *list, size_t n, const struct vhca_mailbox *mailbox)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].opcode == in_get(mailbox, IN_OPCODE))
			return &list[i];
	return NULL;
}

/* What a command has made that then failed. */
static void undo(struct vhca_devx *devx)
{
	if (devx->of)
		vhca_object_destroy(devx->of);
	let_go(devx);
	free(devx);
}

int vhca_devx_create(struct vhca_mailbox *mailbox, struct vhca_devx **result)
{
	const struct verb *verb = find_verb(creates, ARRAY_SIZE(creates), mailbox);
	struct vhca_devx *devx;
	int error;

	if (!verb)
		return EOPNOTSUPP;
	devx = vhca_object_new(mailbox->context, VHCA_DEVX, sizeof(*devx));
	if (!devx)
		return ENOMEM;
	devx->kind = verb->kind;
	error = verb->run(mailbox, devx);
	if (error) {
		undo(devx);
		return error;
	}
	if (devx->of)
		devx->of->refs++;
	vhca_object_link(&devx->object);
	out_put(mailbox, verb->out, devx->id);
	*result = devx;
	return 0;
}

static int run_on(const struct verb *verb, struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	if (!verb)
		return EOPNOTSUPP;
	if (verb->kind != devx->kind || in_get(mailbox, verb->out) != devx->id)
		return EINVAL;
	return verb->run(mailbox, devx);
}

int vhca_devx_modify(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return run_on(find_verb(modifies, ARRAY_SIZE(modifies), mailbox), mailbox, devx);
}

int vhca_devx_query(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return run_on(find_verb(queries, ARRAY_SIZE(queries), mailbox), mailbox, devx);
}

int vhca_devx_general(struct vhca_mailbox *mailbox)
{
	return in_get(mailbox, IN_OPCODE) == OP_QUERY_HCA_CAP ? vhca_devx_caps(mailbox)
							      : EOPNOTSUPP;
}

void vhca_devx_status(struct vhca_mailbox *mailbox, int error)
{
	enum { BAD_OPERATION = 0x2, BAD_PARAMETER = 0x3, BAD_STATE = 0x9, NO_RESOURCES = 0xf };
	uint8_t status = BAD_PARAMETER;

	if (error == EOPNOTSUPP)
		status = BAD_OPERATION;
	else if (error == EBUSY)
		status = BAD_STATE;
	else if (error == ENOMEM)
		status = NO_RESOURCES;
	out_put(mailbox, OUT_STATUS, status);
}
