/* raw.c - receive work queues, indirection tables and TIRs: create, states, destroy */

#include "vhca/raw.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>

/* Every object of these has a number, and a place in its context's list unless it is a QP's own. */
static int adopt(
	struct vhca_object *object, struct vhca_numbers *numbers, uint32_t *number, bool of_qp)
{
	int error = vhca_number_add(numbers, object, number);

	if (error)
		free(object);
	else if (!of_qp)
		vhca_object_link(object);
	return error;
}

static void end(struct vhca_object *object, bool of_qp)
{
	if (of_qp)
		free(object);
	else
		vhca_object_free(object);
}

/* ---- receive work queues ---- */

static uint32_t first_segment(const struct vhca_wq_attr *attr)
{
	return (attr->signature ? 1u : 0) + (attr->striding ? 1u : 0);
}

static int wq_check(const struct vhca_wq_attr *attr)
{
	if (!is_pow2(attr->n_wqe) || attr->n_wqe > VHCA_MAX_QUEUE || attr->log2_stride < 4 ||
		attr->log2_stride > 10)
		return EINVAL;
	if (first_segment(attr) * VHCA_SEGMENT >= 1u << attr->log2_stride)
		return EINVAL;
	if (attr->striding &&
		(attr->log2_stride_bytes < VHCA_MIN_STRIDE ||
			attr->log2_stride_bytes > VHCA_MAX_STRIDE ||
			attr->log2_n_strides < VHCA_MIN_STRIDES ||
			attr->log2_n_strides > VHCA_MAX_STRIDES))
		return EINVAL;
	if (!attr->cq || !attr->pd || !attr->buf || attr->buf % 16 || attr->db % 8)
		return EINVAL;
	if (vhca_memory_check(attr->buf, (uint64_t)attr->n_wqe << attr->log2_stride, true))
		return EFAULT;
	return vhca_memory_check(attr->db, 8, true);
}

static void queue_init(struct vhca_qp *queue, const struct vhca_wq_attr *attr)
{
	queue->tables = vhca_tables_of(&queue->object);
	queue->pd = attr->pd;
	queue->type = IBV_QPT_RAW_PACKET;
	queue->state = IBV_QPS_RESET;
	queue->uidx = attr->uidx & 0xffffff;
	queue->rq = vhca_pointer(attr->buf);
	queue->rq_mask = attr->n_wqe - 1;
	queue->log2_rq_stride = attr->log2_stride;
	queue->rq_first = (uint8_t)first_segment(attr);
	queue->db = vhca_pointer(attr->db);
	queue->recv_cq = attr->cq;
	queue->attr.rq_wqe_count = attr->n_wqe;
	queue->attr.rq_wqe_shift = attr->log2_stride;
	queue->owner = attr->owner;
	vhca_counted_init(&queue->async, queue->object.context->async, attr->user_handle);
	vhca_list_init(&queue->in_active);
	vhca_list_init(&queue->in_waiting);
	vhca_list_init(&queue->in_errored);
	vhca_list_init(&queue->in_unreported);
	vhca_list_init(&queue->on_page);
}

static void wq_refs(struct vhca_wq *wq, uint32_t by)
{
	wq->attr.pd->object.refs += by;
	wq->attr.cq->object.refs += by;
}

int vhca_wq_create(
	struct vhca_context *context, const struct vhca_wq_attr *attr, struct vhca_wq **result)
{
	struct vhca_wq *wq;
	int error = wq_check(attr);

	if (error)
		return error;
	wq = vhca_object_new(context, VHCA_WQ, sizeof(*wq));
	if (!wq)
		return ENOMEM;
	queue_init(&wq->queue, attr);
	wq->attr = *attr;
	error = adopt(&wq->queue.object, &context->device->tables->wqs, &wq->queue.number,
		attr->owner != NULL);
	if (error)
		return error;
	wq_refs(wq, 1);
	*result = wq;
	return 0;
}

/* Out of every list of the engine, and with nothing in hand. */
static void wq_quiet(struct vhca_wq *wq)
{
	vhca_late_flush(wq->queue.tables);
	vhca_list_remove(&wq->queue.in_errored);
	vhca_list_remove(&wq->queue.in_unreported);
}

static void wq_reset(struct vhca_wq *wq)
{
	wq_quiet(wq);
	wq->queue.rq_ci = wq->queue.rq_pi = 0;
	wq->strides_used = 0;
	wq->queue.state = IBV_QPS_RESET;
	memset(wq->queue.reports, 0, sizeof(wq->queue.reports));
}

int vhca_wq_modify(struct vhca_wq *wq, enum ibv_qp_state to)
{
	enum ibv_qp_state from = (enum ibv_qp_state)wq->queue.state;

	switch (to) {
	case IBV_QPS_RESET: wq_reset(wq); return 0;
	case IBV_QPS_ERR:
		if (from == IBV_QPS_RESET)
			return EINVAL;
		vhca_qp_fail(&wq->queue);
		return 0;
	case IBV_QPS_RTR:
		if (from == IBV_QPS_ERR)
			return EINVAL;
		wq->queue.state = IBV_QPS_RTR;
		return 0;
	default: return EINVAL;
	}
}

void vhca_wq_destroy(struct vhca_wq *wq)
{
	vhca_wq_events(wq);
	wq_quiet(wq);
	vhca_number_remove(&wq->queue.tables->wqs, wq->queue.number);
	wq_refs(wq, (uint32_t)-1);
	end(&wq->queue.object, wq->attr.owner != NULL);
}

uint32_t vhca_wq_events(struct vhca_wq *wq)
{
	return vhca_events_end(&wq->queue.async);
}

uint32_t vhca_wq_number(const struct vhca_wq *wq)
{
	return wq->queue.number;
}

enum ibv_qp_state vhca_wq_state(const struct vhca_wq *wq)
{
	return (enum ibv_qp_state)wq->queue.state;
}

void vhca_wq_strip_vlan(struct vhca_wq *wq, bool strip)
{
	wq->attr.strip_vlan = strip;
}

/* ---- indirection tables ---- */

static void rqt_refs(struct vhca_rqt *rqt, uint32_t by)
{
	for (uint32_t i = 0; i < rqt->n; i++)
		rqt->wq[i]->queue.object.refs += by;
}

static int rqt_fill(struct vhca_rqt *rqt, struct vhca_wq *const *wqs, uint32_t n)
{
	size_t size = n * sizeof(*wqs);
	struct vhca_wq **copy = is_pow2(n) && n <= 1u << VHCA_MAX_RQT ? malloc(size) : NULL;

	if (!copy)
		return is_pow2(n) ? ENOMEM : EINVAL;
	memcpy(copy, wqs, size);
	rqt_refs(rqt, (uint32_t)-1);
	free(rqt->wq);
	rqt->wq = copy;
	rqt->n = n;
	rqt_refs(rqt, 1);
	return 0;
}

int vhca_rqt_create(struct vhca_context *context, struct vhca_wq *const *wqs, uint32_t n,
	struct vhca_rqt **result)
{
	struct vhca_rqt *rqt = vhca_object_new(context, VHCA_RQT, sizeof(*rqt));
	int error;

	if (!rqt)
		return ENOMEM;
	error = rqt_fill(rqt, wqs, n);
	if (error) {
		free(rqt);
		return error;
	}
	error = vhca_number_add(&context->device->tables->rqts, rqt, &rqt->number);
	if (error) {
		rqt_refs(rqt, (uint32_t)-1);
		free(rqt->wq);
		free(rqt);
		return error;
	}
	vhca_object_link(&rqt->object);
	*result = rqt;
	return 0;
}

int vhca_rqt_modify(struct vhca_rqt *rqt, struct vhca_wq *const *wqs, uint32_t n)
{
	return rqt_fill(rqt, wqs, n);
}

void vhca_rqt_destroy(struct vhca_rqt *rqt)
{
	vhca_number_remove(&vhca_tables_of(&rqt->object)->rqts, rqt->number);
	rqt_refs(rqt, (uint32_t)-1);
	free(rqt->wq);
	vhca_object_free(&rqt->object);
}

uint32_t vhca_rqt_number(const struct vhca_rqt *rqt)
{
	return rqt->number;
}

uint32_t vhca_rqt_size(const struct vhca_rqt *rqt)
{
	return rqt->n;
}

/* ---- TIRs ---- */

static const uint64_t ipv4 = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4;
static const uint64_t ipv6 = MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6;
static const uint64_t tcp = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP;
static const uint64_t udp = MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP;

/* One protocol of each layer, as the device's selector has it. */
static int fields_check(uint64_t fields)
{
	if (fields & ~(ipv4 | ipv6 | tcp | udp))
		return EOPNOTSUPP;
	if ((fields & ipv4 && fields & ipv6) || (fields & tcp && fields & udp))
		return EINVAL;
	return 0;
}

static uint32_t key_bits(const uint8_t *key, uint32_t from)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < 5; i++)
		bits = bits << 8 | key[(from / 8 + i) % VHCA_RSS_KEY];
	return (uint32_t)(bits >> (8 - from % 8));
}

/* By half bytes of the input, so that a hash is a lookup for each. */
static void table_fill(struct vhca_tir *tir)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(tir->table); i++)
		for (uint32_t value = 0; value < 16; value++)
			for (uint32_t bit = 0; bit < 4; bit++)
				if (value & 8u >> bit)
					tir->table[i][value] ^=
						key_bits(tir->attr.key, 4 * i + bit);
}

static void tir_refs(struct vhca_tir *tir, uint32_t by)
{
	if (tir->attr.wq)
		tir->attr.wq->queue.object.refs += by;
	if (tir->attr.rqt)
		tir->attr.rqt->object.refs += by;
}

int vhca_tir_create(
	struct vhca_context *context, const struct vhca_tir_attr *attr, struct vhca_tir **result)
{
	int error = !attr->wq == !attr->rqt ? EINVAL : fields_check(attr->fields);
	struct vhca_tir *tir;

	if (error)
		return error;
	tir = vhca_object_new(context, VHCA_TIR, sizeof(*tir));
	if (!tir)
		return ENOMEM;
	tir->attr = *attr;
	table_fill(tir);
	error = adopt(&tir->object, &context->device->tables->tirs, &tir->number, attr->of_qp);
	if (error)
		return error;
	tir_refs(tir, 1);
	*result = tir;
	return 0;
}

void vhca_tir_destroy(struct vhca_tir *tir)
{
	vhca_number_remove(&vhca_tables_of(&tir->object)->tirs, tir->number);
	tir_refs(tir, (uint32_t)-1);
	end(&tir->object, tir->attr.of_qp);
}

uint32_t vhca_tir_number(const struct vhca_tir *tir)
{
	return tir->number;
}

/* ---- the hash ---- */

/* What goes into it, in the order of Microsoft's definition: addresses, then ports. */
struct input {
	uint8_t bytes[VHCA_RSS_INPUT];
	uint32_t n;
};

static void take(struct input *input, const uint8_t *from, uint32_t n)
{
	memcpy(input->bytes + input->n, from, n);
	input->n += n;
}

/* Source and destination, which a symmetric hash takes in the order of their values. */
static void take_pair(struct input *input, const struct vhca_tir *tir, const uint8_t *source,
	uint32_t n, bool has_source, bool has_dest)
{
	const uint8_t *dest = source + n;
	bool swap = tir->attr.symmetric && has_source && has_dest && memcmp(source, dest, n) > 0;

	if (has_source)
		take(input, swap ? dest : source, n);
	if (has_dest)
		take(input, swap ? source : dest, n);
}

enum { HASH_IPV4 = 1 << 2, HASH_IPV6 = 2 << 2, HASH_TCP = 1 << 6, HASH_UDP = 2 << 6 };

static uint8_t take_addresses(
	struct input *input, const struct vhca_tir *tir, const struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l3_at;
	uint64_t fields = tir->attr.fields;

	if (frame->l3 == VHCA_L3_IPV4 && fields & ipv4) {
		take_pair(input, tir, header + 12, 4, fields & MLX5_RX_HASH_SRC_IPV4,
			fields & MLX5_RX_HASH_DST_IPV4);
		return HASH_IPV4;
	}
	if (frame->l3 == VHCA_L3_IPV6 && fields & ipv6) {
		take_pair(input, tir, header + 8, 16, fields & MLX5_RX_HASH_SRC_IPV6,
			fields & MLX5_RX_HASH_DST_IPV6);
		return HASH_IPV6;
	}
	return 0;
}

static uint8_t take_ports(
	struct input *input, const struct vhca_tir *tir, const struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l4_at;
	uint64_t fields = tir->attr.fields;

	if (!frame->data_at || frame->fragment)
		return 0;
	if (frame->l4 == VHCA_L4_UDP && fields & udp) {
		take_pair(input, tir, header, 2, fields & MLX5_RX_HASH_SRC_PORT_UDP,
			fields & MLX5_RX_HASH_DST_PORT_UDP);
		return HASH_UDP;
	}
	if (frame->l4 != VHCA_L4_UDP && frame->l4 && fields & tcp) {
		take_pair(input, tir, header, 2, fields & MLX5_RX_HASH_SRC_PORT_TCP,
			fields & MLX5_RX_HASH_DST_PORT_TCP);
		return HASH_TCP;
	}
	return 0;
}

uint32_t vhca_tir_hash(
	const struct vhca_tir *tir, const struct vhca_frame *frame, uint8_t *hash_type)
{
	struct input input = {.n = 0};
	uint32_t hash = 0;

	*hash_type = 0;
	if (!tir->attr.fields)
		return 0;
	*hash_type |= take_addresses(&input, tir, frame);
	*hash_type |= take_ports(&input, tir, frame);
	for (uint32_t i = 0; i < input.n; i++)
		hash ^= tir->table[2 * i][input.bytes[i] >> 4] ^
			tir->table[2 * i + 1][input.bytes[i] & 15];
	return hash;
}
