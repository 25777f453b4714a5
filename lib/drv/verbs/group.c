/* group.c - completions of queues that share CQs: each finds its queue by QPN; what there is no room
 * for waits in the order it came */

#include "drv/verbs/verbs.h"

enum {
	FIRST_ENTRIES = 4096,   /* of the first CQ */
	MOST_ENTRIES = 1 << 16, /* of any, unless one ring wants more */
	NOBODY = 0xffffff,      /* a QPN that no queue has: multicast's */
};

/* ---- lists: each queue is in each at most once ---- */

void vbn__verbs_backlog(struct verbs_queue *vq)
{
	struct verbs_group *group = vq->group;

	if (vq->in_backlog)
		return;
	vq->in_backlog = true;
	vq->next_backlog = NULL;
	if (group->backlog)
		group->backlog_last->next_backlog = vq;
	else
		group->backlog = vq;
	group->backlog_last = vq;
}

static void note_short(struct verbs_group *group, struct verbs_queue *vq)
{
	if (vq->in_short)
		return;
	vq->in_short = true;
	vq->next_short = group->short_rings;
	group->short_rings = vq;
}

static struct verbs_queue *find(const struct verbs_group *group, uint32_t qpn)
{
	struct vbn_queue *queue = qpn_find(&group->queues, qpn);

	return queue ? verbs_queue(queue) : NULL;
}

/* ---- completions ---- */

/* What was kept comes first. A CQ that cannot be read has nothing; the device says so by an event,
 * which is told to its queues. */
static int cq_poll(struct verbs_cq *cq, int n, struct ibv_wc *wcs)
{
	int found;

	if (likely(cq->kept_at == cq->n_kept))
		return max(ibv_poll_cq(cq->ibv, n, wcs), 0);
	found = min(n, (int)(cq->n_kept - cq->kept_at));
	memcpy(wcs, &cq->kept[cq->kept_at], (size_t)found * sizeof(*wcs));
	cq->kept_at += (uint32_t)found;
	return found;
}

static int send_done(
	struct verbs_queue *vq, const struct ibv_wc *wc, struct vbn_event *events, int n)
{
	int got;

	vq->sq.done = (uint32_t)wc->wr_id + 1;
	if (unlikely(vq->queue.failed)) {
		vbn__verbs_backlog(vq);
		return 0;
	}
	got = vbn__verbs_release(vq, vq->sq.done, VBN_OK, events, n);
	if (vq->sq.tail != vq->sq.done)
		vbn__verbs_backlog(vq);
	return got;
}

static int poll_sends(struct verbs_group *group, struct vbn_event *events, int n)
{
	struct ibv_wc wcs[WC_BATCH];
	int got = 0, found;

	for (struct verbs_cq *cq = group->send_cqs; cq; cq = cq->next) {
		do {
			found = cq_poll(cq, WC_BATCH, wcs);
			for (int i = 0; i < found; i++) {
				struct verbs_queue *vq = find(group, wcs[i].qp_num);

				if (unlikely(!vq))
					continue;
				if (likely(!wcs[i].status)) {
					got += send_done(vq, &wcs[i], events + got, n - got);
					continue;
				}
				vbn__verbs_send_failed(vq, &wcs[i]);
				vbn__verbs_backlog(vq);
			}
		} while (found == WC_BATCH);
	}
	return got;
}

void vbn__verbs_group_reap(struct verbs_group *group)
{
	poll_sends(group, NULL, 0);
}

static int recv_one(struct verbs_group *group, struct verbs_queue *vq, const struct ibv_wc *wc,
	struct vbn_event *event)
{
	struct vbn_buf *buf;
	uint32_t len;

	if (unlikely(wc->status)) {
		vbn__verbs_recv_failed(vq, wc);
		vbn__verbs_backlog(vq);
		return 0;
	}
	buf = vbn__verbs_claim(vq->rq, wc);
	if (unlikely(!buf))
		return 0;
	len = vbn__verbs_arrived(vq, wc, buf, event);
	if (!vq->rq->free)
		note_short(group, vq);
	count_add(&vq->queue.stats.rx_messages, 1);
	count_add(&vq->queue.stats.rx_bytes, len);
	return 1;
}

/* A receive of a queue that is gone. */
static void give_back(struct verbs_cq *cq, const struct ibv_wc *wc)
{
	struct vbn_buf *buf = cq->srq ? vbn__verbs_claim(&cq->srq->rq, wc) : NULL;

	if (buf)
		pool_push(cq->srq->rq.pool, buf);
}

static int poll_receives(
	struct verbs_group *group, struct verbs_cq *cq, struct vbn_event *events, int n)
{
	struct ibv_wc wcs[WC_BATCH];
	int got = 0, found;

	do {
		const int wanted = min(n - got, (int)WC_BATCH);

		found = wanted ? cq_poll(cq, wanted, wcs) : 0;
		for (int i = 0; i < found; i++) {
			struct verbs_queue *vq = find(group, wcs[i].qp_num);

			if (likely(vq))
				got += recv_one(group, vq, &wcs[i], &events[got]);
			else
				give_back(cq, &wcs[i]);
		}
	} while (found == WC_BATCH);
	return got;
}

/* Posts again what was taken; a ring that stays short, its pool being empty, is tried again. */
static void refill_short(struct verbs_group *group)
{
	struct verbs_queue *vq = group->short_rings;

	group->short_rings = NULL;
	while (vq) {
		struct verbs_queue *next = vq->next_short;

		vq->in_short = false;
		if (!vq->queue.failed) {
			vbn__verbs_refill(vq);
			if (unlikely(rq_is_short(vq->rq)))
				note_short(group, vq);
		}
		vq = next;
	}
}

/* The pool does not keep up: said once, until the ring is full again. */
static int limit_event(struct verbs_srq *srq, struct vbn_event *event)
{
	srq->below = true;
	count_add(&srq->srq.limits, 1);
	*event = (struct vbn_event){
		.cookie = srq->srq.conf.context, .op = VBN_OP_SRQ_LIMIT, .status = VBN_OK};
	return 1;
}

static int refill_shared(struct verbs_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct verbs_srq *srq = group->srqs; srq; srq = srq->next) {
		if (likely(!rq_is_short(&srq->rq)))
			continue;
		count_add(&srq->srq.no_buf, vbn__verbs_srq_refill(srq));
		if (!rq_is_short(&srq->rq))
			srq->below = false;
		else if (rq_posted(&srq->rq) < srq->srq.conf.limit && !srq->below && got < n)
			got += limit_event(srq, &events[got]);
	}
	return got;
}

/* ---- the poll ---- */

static int serve_backlog(struct verbs_group *group, struct vbn_event *events, int n)
{
	int got = 0;

	while (group->backlog && got < n) {
		struct verbs_queue *vq = group->backlog;
		bool more;

		if (vq->queue.failed) {
			vbn__verbs_all_read(vq);
			got += vbn__verbs_failed_events(vq, events + got, n - got);
			more = vbn__verbs_failed_has_more(vq);
		} else {
			got += vbn__verbs_release(vq, vq->sq.done, VBN_OK, events + got, n - got);
			more = vq->sq.tail != vq->sq.done;
		}
		if (more && got == n)
			break;
		group->backlog = vq->next_backlog;
		vq->in_backlog = false;
	}
	return got;
}

/* Receives first, so that what had arrived on a queue comes before its failure; then what waits, and
 * then sends, whose failures wait for the next poll. */
static int group_poll(struct queue_group *base, struct vbn_event *events, int n)
{
	struct verbs_group *group = container_of(base, struct verbs_group, group);
	int got = 0;

	for (struct verbs_cq *cq = group->recv_cqs; cq && got < n; cq = cq->next)
		got += poll_receives(group, cq, events + got, n - got);
	refill_short(group);
	got += refill_shared(group, events + got, n - got);
	if (unlikely(group->backlog)) {
		poll_sends(group, NULL, 0); /* a cause among them comes before what it flushed */
		got += serve_backlog(group, events + got, n - got);
	}
	return got + poll_sends(group, events + got, n - got);
}

static int queue_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)events, (void)n;
	vbn__verbs_group_reap(verbs_queue(queue)->group);
	return 0;
}

static int no_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return -EOPNOTSUPP;
}

void vbn__verbs_group_ops(struct queue_ops *ops)
{
	ops->recv = no_recv;
	ops->poll = queue_poll;
}

/* ---- life: on the control thread ---- */

struct verbs_group *vbn__verbs_group_get(struct rdma_port *port, struct queue_list *list)
{
	struct verbs_group *group;

	for (struct queue_group *at = list->groups; at; at = at->next) {
		if (at->port == &port->port) {
			at->n_users++;
			return container_of(at, struct verbs_group, group);
		}
	}
	group = calloc(1, sizeof(*group));
	if (!group)
		return NULL;
	group->group = (struct queue_group){.port = &port->port,
		.list = list,
		.next = list->groups,
		.n_users = 1,
		.poll = group_poll};
	list->groups = &group->group;
	return group;
}

static void cqs_free(struct verbs_cq *cq)
{
	while (cq) {
		struct verbs_cq *next = cq->next;

		ibv_destroy_cq(cq->ibv);
		free(cq->kept);
		free(cq);
		cq = next;
	}
}

void vbn__verbs_group_put(struct verbs_group *group)
{
	if (--group->group.n_users)
		return;
	for (struct queue_group **at = &group->group.list->groups; *at; at = &(*at)->next) {
		if (*at == &group->group) {
			*at = group->group.next;
			break;
		}
	}
	cqs_free(group->send_cqs);
	cqs_free(group->recv_cqs);
	qpn_free(&group->queues);
	free(group);
}

void vbn__verbs_cq_end(struct verbs_cq **cqs, struct verbs_cq *cq)
{
	for (struct verbs_cq **at = cqs; *at; at = &(*at)->next) {
		if (*at == cq) {
			*at = cq->next;
			break;
		}
	}
	cq->next = NULL;
	cqs_free(cq);
}

static struct verbs_cq *cq_create(struct rdma_port *port, uint32_t entries)
{
	struct verbs_cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->kept = calloc(entries, sizeof(*cq->kept));
	if (cq->kept)
		cq->ibv = ibv_create_cq(port->context, (int)entries, NULL, NULL, 0);
	if (!cq->ibv) {
		fail(errno,
			"port %s refused a completion queue of %u entries: %s; ask for smaller rings",
			port->port.info.name, entries, strerror(errno));
		free(cq->kept);
		free(cq);
		return NULL;
	}
	cq->entries = entries;
	return cq;
}

struct verbs_cq *vbn__verbs_reserve(
	struct verbs_group *group, struct verbs_cq **cqs, uint32_t n, struct verbs_srq *srq)
{
	struct rdma_port *port = rdma_port(group->group.port);
	uint32_t entries = srq ? n : FIRST_ENTRIES;
	struct verbs_cq *cq;

	for (cq = *cqs; cq && !srq; cq = cq->next) {
		if (!cq->srq && cq->entries - cq->reserved >= n) {
			cq->reserved += n;
			return cq;
		}
		entries = max(entries, min(2 * cq->entries, (uint32_t)MOST_ENTRIES));
	}
	entries = min(entries, (uint32_t)port->device.max_cqe);
	cq = cq_create(port, max(entries, n));
	if (!cq)
		return NULL;
	cq->reserved = n;
	cq->srq = srq;
	cq->next = *cqs;
	*cqs = cq;
	return cq;
}

/* ---- a queue that goes, or begins anew ---- */

/* What is kept of a queue that goes: nothing but the receives of a shared ring, which go back to it
 * on the worker's thread. */
static void keep(struct verbs_queue *vq, struct verbs_cq *cq, const struct ibv_wc *wc)
{
	struct ibv_wc *kept = &cq->kept[cq->n_kept];
	const bool gone = wc->qp_num == vq->queue.number;

	if (gone && !cq->srq)
		return;
	*kept = *wc;
	if (gone)
		kept->qp_num = NOBODY;
	cq->n_kept++;
}

/* Reads all that is in a CQ, so that it does not name the queue any more. */
static void strike_out(struct verbs_queue *vq, struct verbs_cq *cq)
{
	const uint32_t n = cq->n_kept, at = cq->kept_at;
	struct ibv_wc wc;

	cq->n_kept = cq->kept_at = 0;
	for (uint32_t i = at; i < n; i++) {
		wc = cq->kept[i];
		keep(vq, cq, &wc);
	}
	while (cq->n_kept < cq->entries && ibv_poll_cq(cq->ibv, 1, &wc) > 0)
		keep(vq, cq, &wc);
}

void vbn__verbs_strike_out(struct verbs_queue *vq)
{
	if (vq->shared_send)
		strike_out(vq, vq->shared_send);
	if (vq->shared_recv)
		strike_out(vq, vq->shared_recv);
}

#define LIST_REMOVE(head, vq, link)                                           \
	for (struct verbs_queue **at_ = &(head); *at_; at_ = &(*at_)->link) { \
		if (*at_ == (vq)) {                                           \
			*at_ = (vq)->link;                                    \
			break;                                                \
		}                                                             \
	}

void vbn__verbs_group_forget(struct verbs_queue *vq)
{
	struct verbs_group *group = vq->group;

	if (vq->in_short)
		LIST_REMOVE(group->short_rings, vq, next_short);
	if (!vq->in_backlog)
		return;
	LIST_REMOVE(group->backlog, vq, next_backlog);
	group->backlog_last = group->backlog;
	while (group->backlog_last && group->backlog_last->next_backlog)
		group->backlog_last = group->backlog_last->next_backlog;
}
