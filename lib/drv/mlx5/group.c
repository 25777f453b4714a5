/* group.c - what a worker's queues share, made with the first of them and gone with the last; and what
 * is left of a queue when it goes */

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"

#include <stdlib.h>

enum {
	FIRST_ENTRIES = 4096,   /* of the first CQ */
	MOST_ENTRIES = 1 << 17, /* of any, unless one ring wants more */
};

struct mlx5_group *vbn__group_get(struct rdma_port *port, struct queue_list *list)
{
	struct mlx5_group *group;

	for (struct queue_group *at = list->groups; at; at = at->next) {
		if (at->port == &port->port) {
			__atomic_fetch_add(&at->n_users, 1, __ATOMIC_RELAXED);
			return container_of(at, struct mlx5_group, group);
		}
	}
	group = calloc(1, sizeof(*group));
	if (!group)
		return NULL;
	group->group = (struct queue_group){
		.port = &port->port, .list = list, .next = list->groups, .n_users = 1};
	list->groups = &group->group;
	return group;
}

static void free_cqs(struct shared_cq *shared)
{
	while (shared) {
		struct shared_cq *next = shared->next;

		vbn__cq_destroy(&shared->cq);
		free(shared);
		shared = next;
	}
}

static void destroy(struct mlx5_group *group)
{
	struct doorbell *doorbell = group->doorbells;

	for (struct queue_group **at = &group->group.list->groups; *at; at = &(*at)->next) {
		if (*at == &group->group) {
			*at = group->group.next;
			break;
		}
	}
	free_cqs(group->send_cqs);
	free_cqs(group->recv_cqs);
	if (group->pd)
		ibv_dealloc_pd(group->pd);
	if (group->td)
		ibv_dealloc_td(group->td);
	qpn_free(&group->by_qpn);
	while (doorbell) {
		struct doorbell *next = doorbell->next;

		free(doorbell);
		doorbell = next;
	}
	free(group);
}

/* True: it was the last one. */
static bool lose_user(struct mlx5_group *group)
{
	return !__atomic_sub_fetch(&group->group.n_users, 1, __ATOMIC_ACQ_REL);
}

void vbn__group_put(struct mlx5_group *group)
{
	if (lose_user(group))
		destroy(group);
}

static int destroy_call(void *arg)
{
	destroy(arg);
	return 0;
}

void vbn__group_leave(struct mlx5_group *group)
{
	if (lose_user(group))
		vbn__control_call(-1, destroy_call, group);
}

struct doorbell *vbn__group_doorbell(struct mlx5_group *group, uint64_t *reg, uint32_t size)
{
	struct doorbell *doorbell;

	for (doorbell = group->doorbells; doorbell; doorbell = doorbell->next)
		if (doorbell->reg == reg)
			return doorbell;
	doorbell = calloc(1, sizeof(*doorbell));
	if (!doorbell)
		return NULL;
	*doorbell = (struct doorbell){.reg = reg, .size = size, .next = group->doorbells};
	group->doorbells = doorbell;
	return doorbell;
}

/* A thread domain is libmlx5's word for a register that one thread uses. */
struct ibv_pd *vbn__group_pd(struct mlx5_group *group)
{
	struct rdma_port *port = rdma_port(group->group.port);
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr attr = {.pd = port->pd};

	if (group->pd)
		return group->pd;
	if (!group->td)
		group->td = ibv_alloc_td(port->context, &td_attr);
	if (!group->td)
		return NULL;
	attr.td = group->td;
	group->pd = ibv_alloc_parent_domain(port->context, &attr);
	return group->pd;
}

struct shared_cq *vbn__group_reserve(struct mlx5_group *group, struct shared_cq **cqs, uint32_t n,
	uint32_t *cqe_size, bool compressed)
{
	struct rdma_port *port = rdma_port(group->group.port);
	uint32_t entries = FIRST_ENTRIES;
	struct shared_cq *shared;
	int ret;

	for (shared = *cqs; shared; shared = shared->next) {
		if (!shared->lost && shared->cq.compressed == compressed &&
			shared->cq.mask + 1 - load_once(&shared->reserved) >= n &&
			(!*cqe_size || *cqe_size == 1u << shared->cq.log2_stride)) {
			__atomic_fetch_add(&shared->reserved, n, __ATOMIC_RELAXED);
			*cqe_size = 1u << shared->cq.log2_stride;
			return shared;
		}
		entries = max(entries, 2 * (shared->cq.mask + 1));
	}
	entries = min(entries, (uint32_t)MOST_ENTRIES);
	entries = min(entries, (uint32_t)port->device.max_cqe);
	entries = max(entries, (uint32_t)pow2_ceil(n));
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return NULL;
	ret = cqs == &group->recv_cqs
		? vbn__recv_cq_create(port, &shared->cq, entries, cqe_size, compressed)
		: vbn__cq_create(port, &shared->cq, entries, cqe_size, compressed);
	if (ret) {
		vbn__cq_destroy(&shared->cq);
		free(shared);
		errno = -ret;
		return NULL;
	}
	shared->reserved = n;
	shared->next = *cqs;
	store_release(cqs, shared); /* the worker may be polling: pairs with its load */
	if (!group->group.poll || (compressed && !group->compressed)) {
		group->compressed |=
			compressed; /* while the worker polls, all is as its SRQ has it */
		vbn__group_choose_poll(group);
	}
	return shared;
}

static bool unlink_cq(struct shared_cq **at, const struct shared_cq *shared)
{
	for (; *at; at = &(*at)->next) {
		if (*at == shared) {
			*at = shared->next;
			return true;
		}
	}
	return false;
}

void vbn__group_release(struct mlx5_group *group, struct shared_cq *shared, uint32_t n)
{
	if (__atomic_sub_fetch(&shared->reserved, n, __ATOMIC_RELAXED) || !shared->lost)
		return;
	if (!unlink_cq(&group->send_cqs, shared))
		unlink_cq(&group->recv_cqs, shared);
	vbn__cq_destroy(&shared->cq);
	free(shared);
}

struct release_call {
	struct mlx5_group *group;
	struct shared_cq *shared;
	uint32_t n;
};

static int release_call(void *arg)
{
	const struct release_call *call = arg;

	vbn__group_release(call->group, call->shared, call->n);
	return 0;
}

void vbn__group_give_back(struct mlx5_group *group, struct shared_cq *shared, uint32_t n)
{
	struct release_call call = {group, shared, n};

	if (load_once(&shared->lost))
		vbn__control_call(-1, release_call, &call);
	else
		__atomic_sub_fetch(&shared->reserved, n, __ATOMIC_RELAXED);
}

int vbn__group_add(struct mlx5_group *group, struct mlx5_queue *mq)
{
	int ret = qpn_add(&group->by_qpn, mq->queue.number, &mq->queue);

	mq->in_group = !ret;
	return ret;
}

/* ---- a queue that goes ---- */

/* CQEs of the queue that nobody has read would be taken for those of the next one with its QPN. A
 * receive of a shared ring goes back to it. */
static void give_back_receives(struct rq *rq, uint16_t wqe, uint32_t n)
{
	for (; rq->linked && n && rq->posted; n--)
		pool_push(rq->pool, srq_take(rq, wqe++));
}

static void strike_out(struct mlx5_queue *mq, struct cq *cq, bool receives)
{
	struct session *session = cq->session;
	const struct mlx5_cqe64 *cqe;
	uint32_t span;
	uint8_t seen;

	if (session && session_ready(session) && session->qpn == mq->queue.number) {
		give_back_receives(mq->rq, (uint16_t)(session->wqe + session->taken),
			session->n - session->taken);
		session_drop(session, cq);
	}
	for (uint32_t i = 0; i <= cq->mask; i += span) {
		seen = cq_look(cq, cq->index + i, &cqe);
		if (cqe_absent(seen))
			return;
		span = cqe_span(cq, cqe, seen);
		if (cqe_qpn(cqe) != mq->queue.number)
			continue;
		if (receives)
			give_back_receives(mq->rq, from_be16(cqe->wqe_counter), span);
		((struct mlx5_cqe64 *)(uintptr_t)cqe)->sop_drop_qpn = 0;
	}
}

#define LIST_REMOVE(head, mq, link)                                          \
	for (struct mlx5_queue **at_ = &(head); *at_; at_ = &(*at_)->link) { \
		if (*at_ == (mq)) {                                          \
			*at_ = (mq)->link;                                   \
			break;                                               \
		}                                                            \
	}

static void unlist(struct mlx5_group *group, struct mlx5_queue *mq)
{
	if (mq->in_idle)
		LIST_REMOVE(group->idle, mq, next_idle);
	if (mq->in_short)
		LIST_REMOVE(group->short_rings, mq, next_short);
	mq->in_idle = mq->in_short = false;
	if (!mq->in_backlog)
		return;
	mq->in_backlog = false;
	LIST_REMOVE(group->backlog, mq, next_backlog);
	group->backlog_last = group->backlog;
	while (group->backlog_last && group->backlog_last->next_backlog)
		group->backlog_last = group->backlog_last->next_backlog;
}

void vbn__group_part(struct mlx5_group *group, struct mlx5_queue *mq)
{
	mq->parted = true;
	unlist(group, mq);
}

void vbn__group_forget(struct mlx5_group *group, struct mlx5_queue *mq)
{
	strike_out(mq, mq->send_cq, false);
	strike_out(mq, mq->recv_cq, true);
	qpn_remove(&group->by_qpn, mq->queue.number);
	mq->in_group = false;
	unlist(group, mq);
}
