/* flow.c - the life of a flow, its timers, and the lists it waits in */

#include "vhca/flow.h"

#include <stdlib.h>

/* ---- life ---- */

static void init_lists(struct vhca_flow *flow)
{
	vhca_list_init(&flow->in_due);
	vhca_list_init(&flow->in_ready);
	vhca_list_init(&flow->in_timed);
	vhca_list_add(&flow->wire->flows, &flow->in_flows);
}

static struct vhca_flow *flow_create(struct vhca_packet_wire *wire, struct vhca_qp *qp)
{
	const struct ibv_ah_attr *to = &qp->set.ah_attr;
	struct vhca_path path = {.gid = to->grh.dgid.raw,
		.qpn = qp->number,
		.sgid_index = (uint8_t)qp->sgid_index,
		.sl = to->sl & 7,
		.traffic_class = to->grh.traffic_class,
		.hop_limit = VHCA_HOP_LIMIT};
	struct vhca_flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		return NULL;
	flow->qp = qp;
	flow->wire = wire;
	flow->mtu = 128u << qp->set.path_mtu;
	flow->v1 = !wire->carrier->ops->frames && !vhca_roce_version(qp);
	if (!vhca_wire_route(wire, &path, &flow->route))
		goto no_route;
	if (qp->type == IBV_QPT_RC) {
		flow->requests = calloc(VHCA_FLOW_REQUESTS, sizeof(*flow->requests));
		if (!flow->requests)
			goto no_route;
	}
	flow->expected_psn = qp->set.rq_psn;
	flow->window = VHCA_MAX_WINDOW / 4;
	init_lists(flow);
	qp->flow = flow;
	return flow;

no_route:
	free(flow);
	return NULL;
}

struct vhca_flow *vhca_flow_of(struct vhca_packet_wire *wire, struct vhca_qp *qp)
{
	return likely(qp->flow != NULL) ? qp->flow : flow_create(wire, qp);
}

/* The first PSN for sending is known only when the QP may send, which is after it may hear. */
void vhca_flow_start(struct vhca_flow *flow)
{
	if (flow->sending)
		return;
	flow->next_psn = flow->sent_psn = flow->high_psn = flow->done_psn = flow->qp->set.sq_psn;
	flow->sending = true;
}

void vhca_flow_end(struct vhca_qp *qp)
{
	struct vhca_flow *flow = qp->flow;

	if (!flow)
		return;
	vhca_list_remove(&flow->in_flows);
	vhca_list_remove(&flow->in_due);
	vhca_list_remove(&flow->in_ready);
	vhca_list_remove(&flow->in_timed);
	free(flow->requests);
	free(flow);
	qp->flow = NULL;
}

bool vhca_flow_under_way(const struct vhca_qp *qp)
{
	return qp->flow && (qp->flow->tail != qp->flow->head || qp->flow->resume);
}

/* What had left and not completed is the ring's again, for its flush. */
void vhca_flow_abandon(struct vhca_qp *qp)
{
	struct vhca_flow *flow = qp->flow;

	if (!flow)
		return;
	if (flow->tail != flow->head)
		qp->sq_ci = flow->requests[flow->tail % VHCA_FLOW_REQUESTS].index;
	flow->tail = flow->cursor = flow->head;
	flow->done_psn = flow->sent_psn = flow->high_psn = flow->next_psn;
	flow->reads_tail = flow->reads_head;
	flow->resume = 0;
	if (!flow->answering)
		flow->replies_tail = flow->replies_head;
	flow->ack_due = false;
	vhca_flow_timer_stop(flow);
	vhca_list_remove(&flow->in_due);
	vhca_list_remove(&flow->in_ready);
}

void vhca_flow_lost(struct vhca_qp *qp, uint16_t index)
{
	struct vhca_flow *flow = qp->flow;

	for (uint32_t i = flow->tail; i != flow->head; i++) {
		struct vhca_request *request = &flow->requests[i % VHCA_FLOW_REQUESTS];

		if (request->index != index)
			continue;
		request->syndrome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		flow->failing = true;
		vhca_flow_ready(flow);
	}
}

/* ---- timers and lists ---- */

void vhca_flow_timer_start(struct vhca_flow *flow, enum vhca_flow_timer timer, uint64_t ns)
{
	flow->timer = timer;
	flow->overdue = false;
	flow->deadline = vhca_deadline(ns);
	if (vhca_list_empty(&flow->in_timed))
		vhca_list_add(&flow->wire->timed, &flow->in_timed);
}

void vhca_flow_timer_stop(struct vhca_flow *flow)
{
	flow->timer = VHCA_TIMER_NONE;
	vhca_list_remove(&flow->in_timed);
}

void vhca_flow_timers(struct vhca_packet_wire *wire, uint64_t now, uint64_t *next)
{
	struct vhca_link *link, *after;

	for (link = wire->timed.next; link != &wire->timed; link = after) {
		struct vhca_flow *flow = container_of(link, struct vhca_flow, in_timed);

		after = link->next;
		if (flow->deadline <= now)
			vhca_flow_timeout(flow);
		if (flow->timer != VHCA_TIMER_NONE)
			*next = min(*next, flow->deadline);
	}
}

/* Removed and added, so that a list's walk from its head comes to an end. */
void vhca_flow_ready(struct vhca_flow *flow)
{
	vhca_list_remove(&flow->in_ready);
	vhca_list_add(&flow->wire->ready, &flow->in_ready);
}

void vhca_flow_ack_due(struct vhca_flow *flow)
{
	if (flow->ack_due)
		return;
	flow->ack_due = true;
	vhca_list_add(&flow->wire->due, &flow->in_due);
}

void vhca_flow_ack_said(struct vhca_flow *flow)
{
	flow->ack_due = false;
	vhca_list_remove(&flow->in_due);
}
