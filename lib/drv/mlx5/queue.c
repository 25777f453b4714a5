/* queue.c - an mlx5 queue's life: create, connect, reset, stop, free */

#include "drv/mlx5/queue.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"

#include <stdlib.h>

/* ---- create: on the control thread ---- */

/* What the device has of the queue alone. */
static void destroy_own(struct mlx5_queue *mq)
{
	if (mq->qp)
		ibv_destroy_qp(mq->qp);
	mq->qp = NULL;
	vbn__cq_destroy(&mq->own_recv_cq);
	vbn__cq_destroy(&mq->own_send_cq);
}

static void release_shared(struct mlx5_queue *mq)
{
	if (mq->shared_send)
		vbn__group_release(mq->group, mq->shared_send, mq->reserved_send);
	if (mq->shared_recv)
		vbn__group_release(mq->group, mq->shared_recv, mq->reserved_recv);
	mq->shared_send = mq->shared_recv = NULL;
}

static void destroy_objects(struct mlx5_queue *mq)
{
	destroy_own(mq);
	if (mq->in_group)
		vbn__group_forget(mq->group, mq);
	release_shared(mq);
}

static void free_slots(struct mlx5_queue *mq)
{
	free(mq->sq.slots);
	free(mq->own_rq.slots);
	mq->sq.slots = NULL;
	mq->own_rq.slots = NULL;
}

static void free_memory(struct mlx5_queue *mq)
{
	free_slots(mq);
	free(mq->burst_ops);
	free(mq);
}

/* A CQ holds all that can complete into it: a flush completes every WQE, signalled or not. */
static int own_cqs_create(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	const bool compressed = conf->cqe_compression == VBN_ON;
	int ret = vbn__cq_create(
		port, &mq->own_send_cq, vbn__sq_planned(conf), &mq->cqe_size, compressed);

	return ret ? ret
		   : vbn__recv_cq_create(
			     port, &mq->own_recv_cq, conf->rx_depth, &mq->cqe_size, compressed);
}

/* An SRQ has its CQ already: what is asked of the queue must be what that is. */
static int check_srq_compression(const struct vbn_queue_conf *conf, const struct cq *cq)
{
	if (conf->cqe_compression == (cq->compressed ? VBN_OFF : VBN_ON))
		return fail(EINVAL,
			"queue cannot be created: its cqe_compression is %s, and its srq's is not: ask both for the same",
			cq->compressed ? "off" : "on");
	return 0;
}

static int shared_cqs_take(struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	struct mlx5_group *group = mq->group;
	struct cq *of_srq =
		conf->srq ? &container_of(conf->srq, struct mlx5_srq, srq)->cq->cq : NULL;
	const bool compressed = of_srq ? of_srq->compressed : conf->cqe_compression == VBN_ON;

	if (of_srq && check_srq_compression(conf, of_srq))
		return -EINVAL;
	mq->queue.grouped = true;
	mq->reserved_send = vbn__sq_planned(conf);
	mq->shared_send = vbn__group_reserve(
		group, &group->send_cqs, mq->reserved_send, &mq->cqe_size, compressed);
	if (!mq->shared_send)
		return -errno;
	mq->send_cq = &mq->shared_send->cq;
	if (of_srq) {
		mq->recv_cq = of_srq;
		return 0;
	}
	mq->reserved_recv = conf->rx_depth;
	mq->shared_recv = vbn__group_reserve(
		group, &group->recv_cqs, mq->reserved_recv, &mq->cqe_size, compressed);
	if (!mq->shared_recv)
		return -errno;
	mq->recv_cq = &mq->shared_recv->cq;
	return 0;
}

static bool shares(const struct vbn_queue_conf *conf)
{
	return conf->srq || conf->shared_cq == VBN_ON;
}

/* Copying WQEs into a register takes one of the worker's own, whose halves nobody else uses. */
static int choose_blueflame(struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	mq->blueflame = conf->blueflame == VBN_ON;
	if (mq->blueflame && (!mq->own_uar || !mq->sq.doorbell->size))
		return fail(ENOTSUP,
			"queue cannot be created: blueflame is on, and port %s gives no register of its own that takes WQEs",
			mq->queue.port->info.name);
	return 0;
}

static int objects_create(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf)
{
	int ret;

	mq->cqe_size = conf->cqe_size;
	mq->prefetch = conf->prefetch == VBN_ON;
	mq->send_cq = &mq->own_send_cq;
	mq->recv_cq = &mq->own_recv_cq;
	mq->rq = conf->srq ? &container_of(conf->srq, struct mlx5_srq, srq)->rq : &mq->own_rq;
	ret = shares(conf) ? shared_cqs_take(mq, conf) : own_cqs_create(port, mq, conf);
	if (!ret)
		ret = vbn__qp_create(port, mq, conf);
	if (!ret)
		ret = choose_blueflame(mq, conf);
	if (!ret)
		ret = vbn__rdma_qp_init(port, mq->qp, conf);
	if (ret)
		return ret;
	mq->queue.number = mq->qp->qp_num;
	return 0;
}

int vbn__mlx5_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct rdma_port *port = rdma_port(base);
	struct mlx5_queue *mq;
	int ret = vbn__rdma_can_pace(port, conf);

	if (ret)
		return ret;
	mq = aligned_alloc(CACHE_LINE, round_up(sizeof(*mq), CACHE_LINE));
	if (!mq)
		return -ENOMEM;
	memset(mq, 0, sizeof(*mq));
	mq->queue.port = base;
	mq->psn = vbn__rdma_random_psn();
	mq->group = vbn__group_get(port, list);
	ret = mq->group ? objects_create(port, mq, conf) : -ENOMEM;
	if (ret) {
		destroy_objects(mq);
		if (mq->group)
			vbn__group_put(mq->group);
		free_memory(mq);
		return ret;
	}
	*queue = &mq->queue;
	return 0;
}

int vbn__mlx5_queue_adopt(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);

	if (!queue->grouped)
		return 0;
	mq->group->prefetch |= mq->prefetch;
	vbn__group_choose_poll(mq->group);
	return vbn__group_add(mq->group, mq);
}

void vbn__mlx5_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	const struct mlx5_queue *mq = container_of(queue, const struct mlx5_queue, queue);

	vbn__rdma_address(rdma_port(queue->port), &queue->conf, queue->number, mq->psn, address);
}

/* ---- connect ---- */

int vbn__mlx5_queue_fill(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);

	if (mq->rq->linked)
		return 0;
	vbn__rq_refill(mq);
	if ((uint16_t)(mq->rq->head - mq->rq->tail) != mq->rq->depth)
		return fail(ENOMEM,
			"queue %s/%u cannot post %u receives: pool \"%s\" had only %u bufs left; make it larger",
			queue->port->info.name, queue->number, mq->rq->depth, mq->rq->pool->name,
			mq->rq->head);
	return 0;
}

uint32_t vbn__mlx5_queue_posted(const struct vbn_queue *queue)
{
	return rq_posted(container_of(queue, const struct mlx5_queue, queue)->rq);
}

/* What a connected queue does; the rest its transport has not. */
static int ops_fill(struct mlx5_queue *mq)
{
	const struct vbn_queue_conf *conf = &mq->queue.conf;
	const bool inlining = mq->sq.inline_size != 0, datagrams = conf->transport == VBN_UD;
	const bool reads = conf->transport == VBN_RC && rdma_reads(conf, &mq->peer);
	struct queue_ops *ops = &mq->ops;

	*ops = vbn__lacking_ops;
	if (datagrams)
		vbn__sq_peer_ops(ops, inlining);
	else
		vbn__sq_ops(ops, inlining);
	vbn__sq_inline_ops(ops, conf->transport);
	if (reads)
		vbn__sq_rdma_ops(ops);
	if (conf->templates == VBN_OFF)
		vbn__sq_whole_ops(ops, datagrams, reads);
	if (mq->queue.grouped)
		vbn__group_ops(ops);
	else if (mq->own_recv_cq.session)
		vbn__mini_ops(ops, datagrams);
	else
		vbn__rq_ops(ops, datagrams, mq->prefetch);
	ops->flush = mq->blueflame ? vbn__sq_flush_blueflame : vbn__sq_flush;
	ops->outstanding = vbn__sq_outstanding;
	return conf->doorbell_burst == VBN_OFF ? vbn__ring_each_ops(mq) : 0;
}

int vbn__mlx5_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct rdma_port *port = rdma_port(queue->port);
	int ret;

	mq->peer = peer ? *peer : (struct address){.transport = VBN_UD};
	ret = vbn__rdma_qp_connect(port, mq->qp, &queue->conf, mq->psn, peer, &mq->mtu);
	if (!ret)
		ret = vbn__rdma_pace(port, mq->qp, &queue->conf);
	if (!ret)
		ret = ops_fill(mq);
	if (ret)
		return ret;
	if (!peer)
		mq->sq.max_message = mq->mtu; /* a datagram is one packet */
	queue->connected_ops = &mq->ops;
	return 0;
}

/* ---- reset ---- */

int vbn__mlx5_queue_fail(struct vbn_queue *queue)
{
	return vbn__rdma_qp_move(rdma_port(queue->port), mlx5_queue(queue)->qp, IBV_QPS_ERR);
}

/* Everything of the queue's rings that moves, back to where RESET puts the device's counters; its
 * CQs go on where they are. */
static void indices_reset(struct mlx5_queue *mq)
{
	struct sq *sq = &mq->sq;
	struct rq *rq = &mq->own_rq;

	sq->head = sq->rung = sq->done = sq->tail = sq->last = 0;
	sq->since_signal = sq->pending = sq->idle_polls = 0;
	store_once(&sq->record[MLX5_SND_DBR], 0);
	store_once(&sq->record[MLX5_RCV_DBR], 0);
	rq->head = rq->tail = 0;
	mq->failure = (struct failure){0};
}

/* A queue pair cannot be given another CQ: with a CQ that has failed all goes and comes again, and
 * so the queue has another number. What its rings had has been given back. */
static int make_anew(struct rdma_port *port, struct mlx5_queue *mq)
{
	const struct vbn_queue_conf *conf = &mq->queue.conf;
	int ret;

	if (conf->srq && container_of(conf->srq, struct mlx5_srq, srq)->cq->lost)
		return fail(EIO,
			"queue %s/%u cannot be reset: the completion queue of its srq has failed, and with it went which of the shared receives were used; destroy the srq's queues and the srq, and make them anew",
			port->port.info.name, mq->queue.number);
	destroy_objects(mq);
	free_slots(mq);
	mq->sq = (struct sq){0};
	mq->own_rq = (struct rq){0};
	/* What a queue is that could not be made. */
	mq->queue.ops = &vbn__refusing_ops;
	mq->failure = (struct failure){
		.status = VBN_CQ_ERROR, .reported = true, .silent = true, .cq_lost = true};
	ret = objects_create(port, mq, conf);
	if (!ret)
		ret = vbn__mlx5_queue_adopt(&mq->queue);
	if (ret)
		destroy_objects(mq);
	else
		mq->failure = (struct failure){0};
	return ret;
}

static int reset_in_place(struct rdma_port *port, struct mlx5_queue *mq)
{
	int ret = vbn__rdma_qp_move(port, mq->qp, IBV_QPS_RESET);

	if (ret)
		return ret;
	indices_reset(mq);
	return vbn__rdma_qp_init(port, mq->qp, &mq->queue.conf);
}

int vbn__mlx5_queue_reset(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct rdma_port *port = rdma_port(queue->port);
	int ret = mq->failure.cq_lost ? make_anew(port, mq) : reset_in_place(port, mq);

	if (ret)
		return ret;
	mq->psn = vbn__rdma_random_psn();
	__atomic_store_n(&queue->news, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&queue->cause, 0, __ATOMIC_RELAXED);
	return 0;
}

/* ---- stop and free ---- */

bool vbn__mlx5_cq_failed(struct vbn_queue *queue, const struct ibv_cq *cq)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct cq *failed;

	if (!mq->qp || (mq->send_cq->ibv != cq && mq->recv_cq->ibv != cq))
		return false;
	failed = mq->send_cq->ibv == cq ? mq->send_cq : mq->recv_cq;
	if (queue->grouped)
		store_once(&container_of(failed, struct shared_cq, cq)->lost, true);
	return true;
}

void vbn__mlx5_queue_part(struct vbn_queue *queue)
{
	queue->failed = true; /* so that nothing is posted or asked for */
	if (queue->grouped)
		vbn__group_part(mlx5_queue(queue)->group, mlx5_queue(queue));
}

/* What the group has of it stays until the worker has forgotten it. */
void vbn__mlx5_queue_stop(struct vbn_queue *queue)
{
	destroy_own(mlx5_queue(queue));
}

static void leave_group(struct mlx5_queue *mq)
{
	if (mq->in_group)
		vbn__group_forget(mq->group, mq);
	if (mq->shared_send)
		vbn__group_give_back(mq->group, mq->shared_send, mq->reserved_send);
	if (mq->shared_recv)
		vbn__group_give_back(mq->group, mq->shared_recv, mq->reserved_recv);
	vbn__group_leave(mq->group);
}

/* The device is out of it: what the rings still hold goes home. */
void vbn__mlx5_queue_free(struct vbn_queue *queue)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	struct sq *sq = &mq->sq;
	struct rq *rq = &mq->own_rq;

	leave_group(mq);
	for (; sq->tail != sq->head; sq->tail++) {
		uintptr_t slot = sq->slots[sq->tail & sq->mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		if (slot & SLOT_EMPTY)
			continue;
		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	for (; rq->tail != rq->head; rq->tail++)
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
	free_memory(mq);
}
