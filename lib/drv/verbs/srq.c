/* srq.c - a shared receive ring: its entries are free in any order */

#include "drv/verbs/verbs.h"

static struct verbs_srq *verbs_srq(const struct vbn_srq *srq)
{
	return container_of((struct vbn_srq *)(uintptr_t)srq, struct verbs_srq, srq);
}

uint32_t vbn__verbs_srq_refill(struct verbs_srq *srq)
{
	struct verbs_rq *rq = &srq->rq;
	const uint32_t wanted = rq->mask + 1 - rq_posted(rq);
	const uint32_t n = pool_ready(rq->pool, wanted);
	struct ibv_recv_wr *first = NULL, **link = &first, *bad = NULL;

	if (!n)
		return wanted;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = rq->free[rq->mask - rq_posted(rq)];
		struct vbn_buf *buf = pool_pop(rq->pool);

		rq->bufs[at] = buf;
		rq->sges[at].addr = (uintptr_t)buf + rq->data_offset - rq->before;
		rq->wrs[at].wr_id = at;
		rq->head++;
		*link = &rq->wrs[at];
		link = &rq->wrs[at].next;
	}
	*link = NULL;
	if (likely(!ibv_post_srq_recv(srq->ibv, first, &bad)))
		return wanted - n;
	for (; bad; bad = bad->next) { /* tried again with the next poll */
		struct vbn_buf *buf = vbn__verbs_claim(rq, &(struct ibv_wc){.wr_id = bad->wr_id});

		if (buf)
			pool_push(rq->pool, buf);
	}
	return wanted - n;
}

int vbn__verbs_srq_fill(struct vbn_srq *base)
{
	struct verbs_srq *srq = verbs_srq(base);

	vbn__verbs_srq_refill(srq);
	if (!rq_is_short(&srq->rq))
		return 0;
	return fail(ENOMEM,
		"srq cannot post %u receives, but %u: pool \"%s\" has %u bufs left: make it larger",
		srq->rq.mask + 1, rq_posted(&srq->rq), srq->rq.pool->name, srq->rq.pool->n_free);
}

uint32_t vbn__verbs_srq_posted(const struct vbn_srq *base)
{
	const struct verbs_rq *rq = &verbs_srq(base)->rq;

	return vbn__glance(&rq->head) - vbn__glance(&rq->tail); /* mostly asked elsewhere */
}

static int objects_create(
	struct rdma_port *port, struct verbs_srq *srq, const struct vbn_srq_conf *conf)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = conf->depth, .max_sge = 1}};
	int ret;

	if (conf->cqe_compression == VBN_ON)
		return fail(ENOTSUP,
			"srq cannot be created: port %s is driven by plain verbs, which have no cqe_compression: leave it to the library, or open the device by mlx5",
			port->port.info.name);
	ret = vbn__verbs_rq_create(&srq->rq, &port->port, conf->pool, conf->depth, conf->datagrams);
	if (ret)
		return ret;
	srq->rq.free = calloc(conf->depth, sizeof(*srq->rq.free));
	if (!srq->rq.free)
		return -ENOMEM;
	for (uint32_t i = 0; i <= srq->rq.mask; i++)
		srq->rq.free[i] = i;
	srq->cq = vbn__verbs_reserve(srq->group, &srq->group->recv_cqs, 2 * conf->depth, srq);
	if (!srq->cq)
		return -ENOMEM;
	srq->ibv = ibv_create_srq(port->pd, &attr);
	if (!srq->ibv)
		return fail(errno,
			"port %s refused an SRQ of %u receives: %s; ask for a smaller one",
			port->port.info.name, conf->depth, strerror(errno));
	srq->next = srq->group->srqs;
	srq->group->srqs = srq;
	return 0;
}

/* No list has it, and its CQ goes with it. Accepts a half-made one. */
static void objects_destroy(struct verbs_srq *srq)
{
	struct verbs_group *group = srq->group;

	for (struct verbs_srq **at = &group->srqs; *at; at = &(*at)->next) {
		if (*at == srq) {
			*at = srq->next;
			break;
		}
	}
	if (srq->ibv)
		ibv_destroy_srq(srq->ibv);
	if (srq->cq)
		vbn__verbs_cq_end(&group->recv_cqs, srq->cq);
	vbn__verbs_group_put(group);
}

int vbn__verbs_srq_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **result)
{
	struct rdma_port *port = rdma_port(base);
	struct verbs_srq *srq = calloc(1, sizeof(*srq));
	int ret = -ENOMEM;

	if (!srq)
		return ret;
	srq->group = vbn__verbs_group_get(port, list);
	if (!srq->group)
		goto free_srq;
	ret = objects_create(port, srq, conf);
	if (ret)
		goto destroy;
	*result = &srq->srq;
	return 0;

destroy:
	objects_destroy(srq);
	vbn__verbs_rq_free(&srq->rq);
free_srq:
	free(srq);
	return ret;
}

void vbn__verbs_srq_stop(struct vbn_srq *base)
{
	objects_destroy(verbs_srq(base));
}

void vbn__verbs_srq_free(struct vbn_srq *base)
{
	struct verbs_srq *srq = verbs_srq(base);

	vbn__verbs_rq_free(&srq->rq);
	free(srq);
}
