/* queue.c - CQs and SRQs: create, resize, limit, destroy */

#include "vhca/device.h"

#include <stdlib.h>

enum { MAX_CQE = 1 << 22 };

/* ---- CQ ---- */

static int cq_check(const struct vhca_cq_attr *attr)
{
	if (!is_pow2(attr->n_cqe) || attr->n_cqe > MAX_CQE)
		return EINVAL;
	if (attr->cqe_size != 64 && attr->cqe_size != 128)
		return EINVAL;
	if (!attr->buf || attr->buf % 64 || attr->db % 8)
		return EINVAL;
	if (vhca_memory_check(attr->buf, (uint64_t)attr->n_cqe * attr->cqe_size, true))
		return EFAULT;
	return vhca_memory_check(attr->db, 8, true);
}

int vhca_cq_create(
	struct vhca_context *context, const struct vhca_cq_attr *attr, struct vhca_cq **result)
{
	struct vhca_page *page = vhca_page_find(context, attr->uar_page);
	struct vhca_cq *cq;
	int error = page ? cq_check(attr) : EINVAL;

	if (error)
		return error;
	cq = vhca_object_new(context, VHCA_CQ, sizeof(*cq));
	if (!cq)
		return ENOMEM;
	if (attr->compress && !attr->timestamp && !vhca_late_any) /* mini CQEs have no timestamps */
		error = vhca_session_create(cq);
	if (!error)
		error = vhca_number_add(&context->device->tables->cqs, cq, &cq->number);
	if (error) {
		free(cq->session);
		free(cq);
		return error;
	}
	cq->buf = vhca_pointer(attr->buf);
	cq->mask = attr->n_cqe - 1;
	cq->log2_size = log2_floor(attr->cqe_size);
	cq->db = vhca_pointer(attr->db);
	cq->ignore_overrun = attr->ignore_overrun;
	cq->arm_seen = ~0u; /* 0 is a record that arms */
	cq->channel = attr->channel;
	if (cq->channel)
		cq->channel->object.refs++;
	vhca_counted_init(
		&cq->completions, cq->channel ? cq->channel->events : NULL, attr->user_handle);
	vhca_counted_init(&cq->async, context->async, attr->user_handle);
	cq->attr = *attr;
	cq->page = page;
	vhca_list_init(&cq->in_sessions);
	vhca_list_init(&cq->in_moderated);
	page->uar.object.refs++;
	vhca_list_add(&page->cqs, &cq->on_page);
	vhca_object_link(&cq->object);
	*result = cq;
	return 0;
}

int vhca_cq_moderate(struct vhca_cq *cq, uint16_t count, uint16_t period)
{
	if (period > VHCA_MAX_EVENT_PERIOD)
		return EINVAL;
	cq->event_count = count;
	cq->event_period = period;
	return 0;
}

/* What has been rung before comes before: the engine does it first. */
int vhca_cq_resize(struct vhca_cq *cq, uint64_t buf, uint32_t n_cqe, uint32_t cqe_size)
{
	struct vhca_cq_attr attr = cq->attr;
	int error;

	attr.buf = buf;
	attr.n_cqe = n_cqe;
	attr.cqe_size = cqe_size;
	error = cq_check(&attr);
	if (error)
		return error;
	cq->object.refs++;
	vhca_engine_settle(cq->object.context->device);
	vhca_late_flush(vhca_tables_of(&cq->object));
	cq->object.refs--;
	cq->ci = cq->pi - ((cq->pi - vhca_record_read(&cq->db[0])) & 0xffffff);
	if (cq->pi - cq->ci >
		min(n_cqe, cq->mask)) /* the old ring must have room for the CQE that ends it */
		return EINVAL;
	vhca_cqe_resize(cq);
	cq->buf = vhca_pointer(buf);
	cq->mask = n_cqe - 1;
	cq->log2_size = log2_floor(cqe_size);
	cq->attr = attr;
	return 0;
}

void vhca_cq_destroy(struct vhca_cq *cq)
{
	vhca_late_flush(vhca_tables_of(&cq->object));
	vhca_page_poll(cq->page);
	vhca_events_end(&cq->completions);
	vhca_events_end(&cq->async);
	if (cq->channel)
		cq->channel->object.refs--;
	vhca_number_remove(&vhca_tables_of(&cq->object)->cqs, cq->number);
	cq->page->uar.object.refs--;
	vhca_list_remove(&cq->on_page);
	vhca_list_remove(&cq->in_sessions);
	vhca_list_remove(&cq->in_moderated);
	free(cq->session);
	vhca_object_free(&cq->object);
}

uint32_t vhca_cq_number(const struct vhca_cq *cq)
{
	return cq->number;
}

uint32_t vhca_cq_events(struct vhca_cq *cq, uint32_t *async)
{
	*async = vhca_events_end(&cq->async);
	return vhca_events_end(&cq->completions);
}

/* ---- SRQ ---- */

/* Room for the link and the data segments, as libmlx5 lays a WQE out. */
static uint32_t srq_log2_stride(uint32_t max_sge)
{
	return log2_floor(pow2_ceil(max(32u, VHCA_SEGMENT * (1 + max_sge))));
}

int vhca_srq_create(
	struct vhca_context *context, const struct vhca_srq_attr *attr, struct vhca_srq **result)
{
	uint32_t log2_stride = srq_log2_stride(min(attr->max_sge, VHCA_MAX_SGE));
	uint32_t n_wqe = (uint32_t)pow2_ceil(attr->max_wr + 1ull);
	struct vhca_srq *srq;
	int error;

	if (attr->max_wr > VHCA_MAX_QUEUE || attr->max_sge > 31 || !attr->buf || attr->db % 4)
		return EINVAL;
	error = vhca_memory_check(attr->buf, (uint64_t)n_wqe << log2_stride, true);
	if (!error)
		error = vhca_memory_check(attr->db, 4, true);
	if (error)
		return error;
	srq = vhca_object_new(context, VHCA_SRQ, sizeof(*srq));
	if (!srq)
		return ENOMEM;
	error = vhca_number_add(&context->device->tables->srqs, srq, &srq->number);
	if (error) {
		free(srq);
		return error;
	}
	srq->buf = vhca_pointer(attr->buf);
	srq->db = vhca_pointer(attr->db);
	srq->log2_stride = log2_stride;
	srq->n_wqe = n_wqe;
	srq->limit = attr->limit;
	srq->attr = *attr;
	vhca_counted_init(&srq->async, context->async, attr->user_handle);
	attr->pd->object.refs++;
	vhca_object_link(&srq->object);
	*result = srq;
	return 0;
}

void vhca_srq_destroy(struct vhca_srq *srq)
{
	vhca_events_end(&srq->async);
	vhca_number_remove(&vhca_tables_of(&srq->object)->srqs, srq->number);
	srq->attr.pd->object.refs--;
	vhca_object_free(&srq->object);
}

uint32_t vhca_srq_number(const struct vhca_srq *srq)
{
	return srq->number;
}

uint32_t vhca_srq_events(struct vhca_srq *srq)
{
	return vhca_events_end(&srq->async);
}

int vhca_srq_modify(struct vhca_srq *srq, uint32_t limit)
{
	if (limit >= srq->n_wqe)
		return EINVAL;
	srq->limit = limit;
	return 0;
}

void vhca_srq_query(
	const struct vhca_srq *srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
{
	*max_wr = srq->n_wqe - 1;
	*max_sge = srq->attr.max_sge;
	*limit = srq->limit;
}
