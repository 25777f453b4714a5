/* srq.c - a shared receive ring's life: its WQEs are a list, which we and the device follow */

#include "drv/mlx5/queue.h"
#include "drv/mlx5/rq.h"

#include <stdlib.h>

/* The list goes from the first WQE to the last: that is how many there are. */
static uint32_t count_wqes(const struct rq *rq, uint32_t head, uint32_t tail)
{
	uint32_t n = 1;

	for (uint32_t at = head; at != tail && n <= 1u << 16; n++)
		at = from_be16(((const struct mlx5_wqe_srq_next_seg *)(const void *)(rq->wqes +
					((size_t)at << rq->log2_stride)))
				       ->next_wqe_index);
	return n;
}

static int take_over(struct rdma_port *port, struct mlx5_srq *srq, const struct vbn_srq_conf *conf)
{
	const struct zone_registration *zone = &port->port.zones[conf->pool->zone_id];
	struct rq *rq = &srq->rq;
	struct mlx5dv_srq dv = {0};
	struct mlx5dv_obj obj = {.srq = {.in = srq->ibv, .out = &dv}};
	uint32_t n;

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ) || !is_pow2(dv.stride) || dv.stride < 32)
		return fail(ENOTSUP,
			"port %s made a shared receive ring that this driver does not know",
			port->port.info.name);
	rq->wqes = dv.buf;
	rq->log2_stride = log2_floor(dv.stride);
	n = count_wqes(rq, dv.head, dv.tail);
	/* One WQE always stays free: the end of the list. */
	if (!is_pow2(n) || n > 1u << 16 || n <= conf->depth)
		return fail(ENOTSUP,
			"port %s made a shared receive ring of %u entries where %u were asked for: this libmlx5 is not known",
			port->port.info.name, n, conf->depth);
	rq->slots = calloc(n, sizeof(struct vbn_buf *));
	if (!rq->slots)
		return -ENOMEM;
	rq->linked = true;
	rq->mask = (uint16_t)(n - 1);
	rq->head = (uint16_t)dv.head;
	rq->tail = (uint16_t)dv.tail;
	rq->depth = (uint16_t)conf->depth;
	rq->record = dv.dbrec;
	vbn__rq_offsets(rq, conf->pool, conf->datagrams);
	for (uint32_t i = 0; i < n; i++)
		*(struct mlx5_wqe_data_seg *)(void *)(srq_link(rq, (uint16_t)i) + 1) =
			(struct mlx5_wqe_data_seg){.byte_count = be32(vbn__rq_byte_count(rq)),
				.lkey = be32(zone->key)};
	return 0;
}

static int objects_create(
	struct rdma_port *port, struct mlx5_srq *srq, const struct vbn_srq_conf *conf)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = conf->depth, .max_sge = 1}};
	uint32_t cqe_size = conf->cqe_size;

	/* A receive is posted again only when its CQE has been read; a failed queue may take one. */
	srq->cq = vbn__group_reserve(srq->group, &srq->group->recv_cqs, 2 * conf->depth, &cqe_size,
		conf->cqe_compression == VBN_ON);
	if (!srq->cq)
		return -errno;
	srq->ibv = ibv_create_srq(port->pd, &attr);
	if (!srq->ibv)
		return fail(errno,
			"port %s refused a shared receive ring of %u: %s; ask for a smaller one",
			port->port.info.name, conf->depth, strerror(errno));
	return take_over(port, srq, conf);
}

int vbn__mlx5_srq_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **result)
{
	struct rdma_port *port = rdma_port(base);
	struct mlx5_srq *srq = calloc(1, sizeof(*srq));
	int ret = -ENOMEM;

	if (!srq)
		return ret;
	srq->group = vbn__group_get(port, list);
	if (!srq->group)
		goto free_srq;
	ret = objects_create(port, srq, conf);
	if (ret)
		goto destroy;
	srq->next = srq->group->srqs;
	srq->group->srqs = srq;
	*result = &srq->srq;
	return 0;

destroy:
	if (srq->ibv)
		ibv_destroy_srq(srq->ibv);
	if (srq->cq)
		vbn__group_release(srq->group, srq->cq, 2 * conf->depth);
	vbn__group_put(srq->group);
free_srq:
	free(srq->rq.slots);
	free(srq);
	return ret;
}

int vbn__mlx5_srq_fill(struct vbn_srq *base)
{
	struct mlx5_srq *srq = container_of(base, struct mlx5_srq, srq);

	if (vbn__srq_refill(&srq->rq))
		return fail(ENOMEM,
			"srq cannot post %u receives: pool \"%s\" had only %u bufs left; make it larger",
			srq->rq.depth, srq->rq.pool->name, srq->rq.posted);
	return 0;
}

/* Of the WQEs, those from head to tail are free, and have no buf. The list is in the device's memory,
 * so it is walked before that goes. */
static void forget_free(struct rq *rq)
{
	uint16_t at = rq->head;

	for (; at != rq->tail; at = srq_next(rq, at) & rq->mask)
		rq->slots[at] = NULL;
	rq->slots[at] = NULL;
}

void vbn__mlx5_srq_stop(struct vbn_srq *base)
{
	struct mlx5_srq *srq = container_of(base, struct mlx5_srq, srq);

	for (struct mlx5_srq **at = &srq->group->srqs; *at; at = &(*at)->next) {
		if (*at == srq) {
			*at = srq->next;
			break;
		}
	}
	forget_free(&srq->rq);
	ibv_destroy_srq(srq->ibv);
	vbn__group_release(srq->group, srq->cq, 2u * srq->rq.depth);
	vbn__group_put(srq->group);
}

/* What is posted goes home. */
void vbn__mlx5_srq_free(struct vbn_srq *base)
{
	struct mlx5_srq *srq = container_of(base, struct mlx5_srq, srq);
	struct rq *rq = &srq->rq;

	for (uint32_t i = 0; i <= rq->mask; i++)
		if (rq->slots[i])
			pool_push(rq->pool, rq->slots[i]);
	free(rq->slots);
	free(srq);
}

uint32_t vbn__mlx5_srq_posted(const struct vbn_srq *base)
{
	return load_once(&container_of(base, const struct mlx5_srq, srq)->rq.posted);
}
