/* queue.c - a queue over verbs: its QP, its CQs, its tables of work requests */

#include "drv/verbs/verbs.h"

#include <stdlib.h>

/* What vbn_send_inline() takes where nothing was asked for. */
enum { INLINE_DEFAULT = 28 };

static int ring_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct verbs_sq *sq = &vq->sq;
	int got = 0;

	if (n) {
		got = vbn__verbs_take(vq, NULL, events, n);
		if (rq_is_short(vq->rq) && !queue->failed)
			vbn__verbs_refill(vq);
	}
	if (sq->rung != sq->head && !queue->failed)
		queue_mark_dirty(queue); /* the provider had no room for all */
	if (sq->tail != sq->rung && !queue->failed)
		vbn__verbs_reap(vq);
	if (unlikely(queue->failed))
		return got + queue->ops->poll(queue, events + got, n - got);
	return got + vbn__verbs_release(vq, sq->done, VBN_OK, events + got, n - got);
}

static int ring_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct verbs_sq *sq = &vq->sq;
	int got = vbn__verbs_take(vq, bufs, NULL, n);

	if (rq_is_short(vq->rq) && !queue->failed)
		vbn__verbs_refill(vq);
	if (sq->tail != sq->rung && !queue->failed)
		vbn__verbs_reap(vq);
	if (!queue->failed)
		vbn__verbs_release(vq, sq->done, VBN_OK, NULL, 0);
	return got;
}

/* What a connected queue does; the rest the transport has not. */
void vbn__verbs_ops_fill(struct verbs_queue *vq)
{
	const enum vbn_transport transport = vq->queue.conf.transport;
	struct queue_ops *ops = &vq->ops;

	*ops = vbn__lacking_ops;
	ops->send = vbn__verbs_send;
	ops->flush = vbn__verbs_flush;
	ops->recv = ring_recv;
	ops->poll = ring_poll;
	ops->outstanding = vbn__verbs_outstanding;
	if (vq->queue.grouped)
		vbn__verbs_group_ops(ops);
	if (!vq->link)
		ops->send_imm = vbn__verbs_send_imm;
	if (transport == VBN_UD) {
		ops->send_inline_to = vbn__verbs_send_inline_to;
		return;
	}
	ops->send_inline = vbn__verbs_send_inline;
	ops->write = vbn__verbs_write;
	ops->write_inline = vbn__verbs_write_inline;
	if (vq->link) {
		if (vbn__rdma_reads_locally(&rdma_port(vq->queue.port)->device))
			ops->read = vbn__verbs_read_whole;
		return;
	}
	ops->send_inline_imm = vbn__verbs_send_inline_imm;
	ops->write_imm = vbn__verbs_write_imm;
	if (transport == VBN_UC || !rdma_reads(&vq->queue.conf, &vq->peer))
		return;
	ops->read = vbn__verbs_read;
	ops->fetch_add = vbn__verbs_fetch_add;
	ops->cmp_swap = vbn__verbs_cmp_swap;
}

/* ---- create ---- */

static int cq_create(struct rdma_port *port, uint32_t n, struct ibv_cq **cq)
{
	*cq = ibv_create_cq(port->context, (int)n, NULL, NULL, 0);
	if (!*cq)
		return fail(errno,
			"port %s refused a completion queue of %u entries: %s; ask for smaller rings",
			port->port.info.name, n, strerror(errno));
	return 0;
}

/* With room for inline data as asked for, or without any: then copies go by way of the pool. */
static int qp_create(
	struct rdma_port *port, struct verbs_queue *vq, const struct vbn_queue_conf *conf)
{
	const uint32_t wanted = max(conf->inline_size.value, (uint32_t)INLINE_DEFAULT);
	struct ibv_qp_init_attr attr = {
		.send_cq = vq->send_cq,
		.recv_cq = vq->recv_cq,
		.qp_context = &vq->queue,
		.srq = conf->srq ? container_of(conf->srq, struct verbs_srq, srq)->ibv : NULL,
		.cap = {.max_send_wr = conf->tx_depth,
			.max_recv_wr = conf->srq ? 0 : conf->rx_depth,
			.max_send_sge = conf->max_gather,
			.max_recv_sge = conf->srq ? 0 : 1,
			.max_inline_data = wanted},
		.qp_type = vbn__rdma_qp_type(conf->transport),
	};

	vq->qp = ibv_create_qp(port->pd, &attr);
	if (!vq->qp && (errno == EINVAL || errno == ENOMEM)) {
		attr.cap.max_inline_data = 0;
		vq->qp = ibv_create_qp(port->pd, &attr);
	}
	if (!vq->qp)
		return fail(errno,
			"port %s refused a queue pair of %u sends of %u segments and %u receives: %s; ask for smaller rings",
			port->port.info.name, conf->tx_depth, conf->max_gather, conf->rx_depth,
			strerror(errno));
	vq->sq.device_inline = attr.cap.max_inline_data >= wanted;
	vq->sq.max_inline = vq->sq.device_inline ? wanted : min(wanted, conf->tx_pool->data_size);
	vq->sq.inline_size = vq->sq.device_inline ? conf->inline_size.value : 0;
	return 0;
}

static int sq_create(struct verbs_queue *vq, const struct vbn_queue_conf *conf)
{
	const uint64_t longest = vq->queue.port->info.max_message;
	struct verbs_sq *sq = &vq->sq;

	sq->mask = conf->tx_depth - 1;
	sq->cq_mod = vq->link ? 1 : conf->cq_mod;
	sq->max_gather = conf->max_gather;
	sq->max_message = conf->transport == VBN_UD ? vq->queue.port->mtu : longest;
	sq->pool = conf->tx_pool;
	sq->wrs = calloc(conf->tx_depth, sizeof(*sq->wrs));
	sq->sges = calloc((size_t)conf->tx_depth * conf->max_gather, sizeof(*sq->sges));
	sq->bufs = calloc(conf->tx_depth, sizeof(struct vbn_buf *));
	if (sq->device_inline)
		sq->copies = malloc((size_t)conf->tx_depth * sq->max_inline);
	if (!sq->wrs || !sq->sges || !sq->bufs || (sq->device_inline && !sq->copies))
		return -ENOMEM;
	for (uint32_t i = 0; i <= sq->mask; i++) {
		sq->wrs[i].next = &sq->wrs[(i + 1) & sq->mask];
		sq->wrs[i].sg_list = &sq->sges[(size_t)i * sq->max_gather];
	}
	return 0;
}

static void destroy_objects(struct verbs_queue *vq)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	/* Looked at before: some providers drop what a CQ has of a queue pair that goes. */
	if (vq->qp && vq->queue.grouped)
		ibv_modify_qp(vq->qp, &attr, IBV_QP_STATE);
	vbn__verbs_strike_out(vq);
	if (vq->qp)
		ibv_destroy_qp(vq->qp);
	if (vq->link)
		vbn__cm_end(vq);
	if (vq->recv_cq && !vq->shared_recv)
		ibv_destroy_cq(vq->recv_cq);
	if (vq->send_cq && !vq->shared_send)
		ibv_destroy_cq(vq->send_cq);
	if (vq->queue.grouped)
		qpn_remove(&vq->group->queues, vq->queue.number);
	if (vq->shared_recv && !vq->shared_recv->srq)
		vq->shared_recv->reserved -= vq->own_rq.mask + 1;
	if (vq->shared_send)
		vq->shared_send->reserved -= vq->sq.mask + 1;
	vq->qp = NULL;
	vq->recv_cq = vq->send_cq = NULL;
	vq->shared_recv = vq->shared_send = NULL;
}

static void free_memory(struct verbs_queue *vq)
{
	free(vq->sq.wrs);
	free(vq->sq.sges);
	free(vq->sq.bufs);
	free(vq->sq.copies);
	free(vq->link);
	vbn__verbs_rq_free(&vq->own_rq);
	free(vq);
}

/* A technique of direct verbs cannot be insisted on. */
static int check_conf(struct rdma_port *port, const struct vbn_queue_conf *conf)
{
	const struct technique more[] = {
		{"prefetch", conf->prefetch == VBN_ON},
	};
	const char *name = vbn__technique_wanted(conf, more, ARRAY_SIZE(more));

	if (port->port.info.link == VBN_LINK_IWARP && conf->transport != VBN_RC)
		return fail(ENOTSUP,
			"queue cannot be created: port %s is iWARP, which has RC alone: take that, or a RoCE or InfiniBand device",
			port->port.info.name);
	if (name)
		return fail(ENOTSUP,
			"queue cannot be created: port %s is driven by plain verbs, which have no %s: leave it to the library, or open the device by mlx5",
			port->port.info.name, name);
	return vbn__rdma_can_pace(port, conf);
}

static int own_cqs_create(
	struct rdma_port *port, struct verbs_queue *vq, const struct vbn_queue_conf *conf)
{
	int ret = cq_create(port, conf->tx_depth, &vq->send_cq);

	return ret ? ret : cq_create(port, conf->rx_depth, &vq->recv_cq);
}

static int shared_cqs_take(
	struct rdma_port *port, struct verbs_queue *vq, const struct vbn_queue_conf *conf)
{
	struct verbs_group *group = vq->group;

	(void)port;
	vq->queue.grouped = true;
	vq->shared_send = vbn__verbs_reserve(group, &group->send_cqs, conf->tx_depth, NULL);
	vq->shared_recv = conf->srq
		? container_of(conf->srq, struct verbs_srq, srq)->cq
		: vbn__verbs_reserve(group, &group->recv_cqs, conf->rx_depth, NULL);
	if (!vq->shared_send || !vq->shared_recv)
		return -ENOMEM;
	vq->send_cq = vq->shared_send->ibv;
	vq->recv_cq = vq->shared_recv->ibv;
	return 0;
}

static int objects_create(
	struct rdma_port *port, struct verbs_queue *vq, const struct vbn_queue_conf *conf)
{
	const bool shares = conf->srq || conf->shared_cq == VBN_ON;
	int ret;

	vq->sq.mask = conf->tx_depth - 1;
	vq->own_rq.mask = conf->rx_depth - 1;
	vq->rq = conf->srq ? &container_of(conf->srq, struct verbs_srq, srq)->rq : &vq->own_rq;
	ret = shares ? shared_cqs_take(port, vq, conf) : own_cqs_create(port, vq, conf);
	if (!ret)
		ret = qp_create(port, vq, conf);
	if (!ret)
		ret = sq_create(vq, conf);
	if (!ret && !conf->srq)
		ret = vbn__verbs_rq_create(&vq->own_rq, &port->port, conf->rx_pool, conf->rx_depth,
			conf->transport == VBN_UD);
	if (!ret)
		ret = vbn__rdma_qp_init(port, vq->qp, conf);
	if (ret)
		return ret;
	vq->queue.number = vq->qp->qp_num;
	return shares ? qpn_add(&vq->group->queues, vq->queue.number, &vq->queue) : 0;
}

/* Of an iWARP queue. False: no memory. */
static bool link_create(struct verbs_queue *vq)
{
	const struct verbs_port *port = verbs_port(vq->queue.port);

	if (!port->cm)
		return true;
	vq->link = calloc(1, sizeof(*vq->link));
	if (vq->link)
		vbn__cm_name(port, &vq->link->own);
	return vq->link;
}

int vbn__verbs_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct rdma_port *port = rdma_port(base);
	struct verbs_queue *vq;
	int ret = check_conf(port, conf);

	if (ret)
		return ret;
	vq = aligned_alloc(CACHE_LINE, round_up(sizeof(*vq), CACHE_LINE));
	if (!vq)
		return -ENOMEM;
	memset(vq, 0, sizeof(*vq));
	vq->queue.port = base;
	vq->psn = vbn__rdma_random_psn();
	vq->ring_each = conf->doorbell_burst == VBN_OFF;
	vq->group = vbn__verbs_group_get(port, list);
	ret = vq->group && link_create(vq) ? objects_create(port, vq, conf) : -ENOMEM;
	if (ret) {
		destroy_objects(vq);
		if (vq->group)
			vbn__verbs_group_put(vq->group);
		free_memory(vq);
		return ret;
	}
	*queue = &vq->queue;
	return 0;
}

/* ---- connect ---- */

void vbn__verbs_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	const struct verbs_queue *vq = verbs_queue(queue);

	if (vq->link)
		vbn__iwarp_address(vq, address);
	else
		vbn__rdma_address(
			rdma_port(queue->port), &queue->conf, queue->number, vq->psn, address);
}

int vbn__verbs_queue_fill(struct vbn_queue *queue)
{
	struct verbs_queue *vq = verbs_queue(queue);
	const struct verbs_rq *rq = vq->rq;

	if (rq->free)
		return 0;
	if (!rq_posted(rq))
		vbn__verbs_rq_sweep(&vq->own_rq); /* of before a reset */
	vbn__verbs_refill(vq);
	if (!rq_is_short(rq))
		return 0;
	return fail(ENOMEM,
		"queue %s/%u cannot post %u receives, but %u: pool \"%s\" has %u bufs left: make it larger",
		queue->port->info.name, queue->number, rq->mask + 1, rq_posted(rq), rq->pool->name,
		rq->pool->n_free);
}

uint32_t vbn__verbs_queue_posted(const struct vbn_queue *queue)
{
	return rq_posted(verbs_queue(queue)->rq);
}

int vbn__verbs_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	struct verbs_queue *vq = verbs_queue(queue);
	int ret;

	if (peer)
		vq->peer = *peer;
	if (vq->link)
		return vbn__iwarp_connect(vq);
	ret = vbn__rdma_qp_connect(
		rdma_port(queue->port), vq->qp, &queue->conf, vq->psn, peer, &vq->mtu);
	if (!ret)
		ret = vbn__rdma_pace(rdma_port(queue->port), vq->qp, &queue->conf);
	if (ret)
		return ret;
	vbn__verbs_ops_fill(vq);
	queue->connected_ops = &vq->ops;
	return 0;
}

/* ---- fail and reset ---- */

int vbn__verbs_queue_fail(struct vbn_queue *queue)
{
	return vbn__rdma_qp_move(rdma_port(queue->port), verbs_queue(queue)->qp, IBV_QPS_ERR);
}

bool vbn__verbs_queue_quiet(const struct vbn_queue *queue)
{
	const struct verbs_queue *vq = verbs_queue(queue);

	return vq->failure.reported && vq->sq.tail == vq->sq.head && !rq_posted(&vq->own_rq);
}

/* What the provider still has of it is nobody's any more. */
static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wcs[WC_BATCH];

	while (ibv_poll_cq(cq, WC_BATCH, wcs) > 0)
		;
}

/* A connection's end is its queue pair's. */
static int link_end(struct verbs_queue *vq)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!vq->qp)
		return 0; /* a reset before this one failed */
	ibv_modify_qp(vq->qp, &attr, IBV_QP_STATE);
	ibv_destroy_qp(vq->qp);
	vq->qp = NULL;
	vbn__cm_end(vq);
	return 0;
}

/* Another queue pair, with another name. */
static int link_anew(struct verbs_queue *vq)
{
	struct vbn_queue *queue = &vq->queue;
	int ret;

	if (queue->grouped)
		qpn_remove(&vq->group->queues, queue->number);
	ret = qp_create(rdma_port(queue->port), vq, &queue->conf);
	if (ret)
		return ret;
	queue->number = vq->qp->qp_num;
	vbn__cm_name(verbs_port(queue->port), &vq->link->own);
	return queue->grouped ? qpn_add(&vq->group->queues, queue->number, queue) : 0;
}

/* All its bufs have been given back: it is quiet, or was never connected. */
int vbn__verbs_queue_reset(struct vbn_queue *queue)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct rdma_port *port = rdma_port(queue->port);
	int ret;

	if (vq->failure.cq_lost)
		return fail(EIO,
			"queue %s/%u cannot be reset: a completion queue of it has failed; destroy it and make another",
			queue->port->info.name, queue->number);
	ret = vq->link ? link_end(vq) : vbn__rdma_qp_move(port, vq->qp, IBV_QPS_RESET);
	if (ret)
		return ret;
	if (queue->grouped) {
		vbn__verbs_strike_out(vq);
	} else {
		drain(vq->send_cq);
		drain(vq->recv_cq);
	}
	vq->sq.head = vq->sq.rung = vq->sq.done = vq->sq.tail = vq->sq.since_signal = 0;
	vq->sq.fence = 0;
	vq->own_rq.head = vq->own_rq.tail = 0;
	vq->failure = (struct verbs_failure){0};
	vq->psn = vbn__rdma_random_psn();
	vq->mtu = 0;
	__atomic_store_n(&queue->news, 0, __ATOMIC_RELAXED);
	if (vq->link) {
		ret = link_anew(vq);
		if (ret)
			return ret;
	}
	return vbn__rdma_qp_init(port, vq->qp, &queue->conf);
}

void vbn__verbs_queue_news(struct vbn_queue *queue, uint32_t news)
{
	struct verbs_queue *vq = verbs_queue(queue);

	if (!queue->connected)
		return;
	vbn__verbs_reap(vq); /* what was asked for and failed says more than an event */
	if (vq->link && news & (NEWS_LINK | NEWS_QP))
		vbn__iwarp_news(vq, news);
	if (news == NEWS_LINK)
		return;
	if (news == NEWS_QP && !queue->ended && rq_posted(&vq->own_rq))
		return; /* these come back, and say why */
	if (news & NEWS_DEVICE)
		vbn__verbs_failed(vq, VBN_DEVICE_ERROR, "its device reports a fatal error");
	else if (news & NEWS_CQ)
		vbn__verbs_failed(vq, VBN_CQ_ERROR,
			"a completion queue of it has failed: it was overrun, or the device could not write it");
	else
		vbn__verbs_failed(vq, VBN_FLUSHED,
			"the device has it in the error state: it was reset, or the peer asked for what it may not");
	vq->failure.silent |= (news & (NEWS_DEVICE | NEWS_CQ)) != 0;
	vq->failure.cq_lost |= (news & NEWS_CQ) != 0;
	if (queue->grouped)
		vbn__verbs_backlog(vq);
}

/* ---- end ---- */

void vbn__verbs_queue_stop(struct vbn_queue *queue)
{
	destroy_objects(verbs_queue(queue));
}

static int put_call(void *arg)
{
	vbn__verbs_group_put(arg);
	return 0;
}

/* The device is out of it: what the rings still hold goes home. */
void vbn__verbs_queue_free(struct vbn_queue *queue)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct verbs_sq *sq = &vq->sq;

	vbn__verbs_group_forget(vq);
	vbn__control_call(-1, put_call, vq->group);
	for (; sq->tail != sq->head; sq->tail++) {
		struct vbn_buf *buf = sq->bufs[sq->tail & sq->mask];

		if (!buf)
			continue;
		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	free_memory(vq);
}

/* ---- modes ---- */

void vbn__verbs_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct verbs_queue *vq = verbs_queue(queue);
	const struct vbn_queue_conf *conf = &queue->conf, *asked = &queue->asked;
	static const char none[] = "plain verbs do not have it";

	vbn__mode_add(report, "inline",
		conf->inline_size.set ? vbn__mode_number(conf->inline_size.value, "B") : "auto",
		vq->sq.inline_size ? vbn__mode_number(vq->sq.inline_size, "B") : "off",
		vq->sq.device_inline
			? "bufs up to this go inline; vbn_send_inline() takes up to %u B"
			: "the device takes no inline data; vbn_send_inline() copies up to %u B into bufs",
		vq->sq.max_inline);
	vbn__mode_add(report, "tx_ring",
		asked->tx_depth ? vbn__mode_number(asked->tx_depth, "") : "auto",
		vbn__mode_number(vq->sq.mask + 1ull, "requests"), "a message takes one");
	vbn__mode_add(report, "rx_ring",
		asked->rx_depth ? vbn__mode_number(asked->rx_depth, "") : "auto",
		vbn__mode_number(vq->rq->mask + 1ull, "receives"), "%s, kept full from pool \"%s\"",
		vq->rq->free ? "shared with others" : "of its own", vq->rq->pool->name);
	vbn__mode_add(report, "shared_cq", vbn__mode_switch(asked->shared_cq),
		queue->grouped ? "on" : "off", "%s",
		queue->grouped ? "a completion finds its queue by QPN"
			       : "the queue has its completion queues to itself");
	vbn__mode_add(report, "cq_mod",
		asked->cq_mod ? vbn__mode_number(asked->cq_mod, "") : "auto",
		vbn__mode_number(vq->sq.cq_mod, ""), "%s",
		vq->link
			? "iWARP: a device may send from a buf until its request completes"
			: "at most so many requests to a completion; the last of each post has one, too");
	vbn__mode_add(report, "doorbell", vbn__mode_switch(asked->doorbell_burst),
		vq->ring_each ? "one a message" : "one a flush", "ibv_post_send with a list");
	vbn__mode_add(report, "cqe_compression", vbn__mode_switch(asked->cqe_compression), "off",
		"%s", none);
	vbn__mode_add(report, "scatter_to_cqe", vbn__mode_switch(asked->scatter_to_cqe),
		"the provider's choice", "%s", none);
	vbn__mode_add(report, "blueflame", vbn__mode_switch(asked->blueflame),
		"the provider's choice", "%s", none);
	if (vq->link)
		vbn__mode_add(report, "connection", "auto", "rdma_cm",
			"iWARP: timers and retries are TCP's");
	else
		vbn__rdma_queue_modes(queue, vq->mtu, report);
}
