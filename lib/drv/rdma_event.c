/* rdma_event.c - async events of an RDMA device: ports that go down and come up, GIDs that move,
 * queues, CQs and devices that fail
 *
 * On the control thread; what concerns a queue is told to its worker.
 */

#include "drv/rdma.h"

#include <fcntl.h>
#include <stdlib.h>

/* A GID may move to another index when its interface changes: what is kept is the GID. */
static void follow_gid(struct rdma_port *port)
{
	const char *name = port->port.info.name;
	struct ibv_gid_entry *table;
	int n = vbn__rdma_read_gids(port->context, (uint32_t)port->port.info.port, &table);

	for (int i = 0; i < n; i++) {
		if (table[i].port_num != (uint32_t)port->port.info.port ||
			table[i].gid_type != port->gid.gid_type ||
			memcmp(table[i].gid.raw, port->gid.gid.raw, 16))
			continue;
		if (table[i].gid_index != port->gid.gid_index)
			log_notice("port %s: its GID has moved from index %u to %u", name,
				port->gid.gid_index, table[i].gid_index);
		port->gid.gid_index = table[i].gid_index;
		port->port.info.gid_index = (int)table[i].gid_index;
		free(table);
		return;
	}
	free(table);
	log_warning(
		"port %s has lost its GID %s: give its interface that address again, or open the port anew",
		name, port->port.info.gid);
}

static void tell_all(struct rdma_port *port, uint32_t news)
{
	for (struct vbn_queue *queue = port->port.queues; queue; queue = queue->next)
		queue_tell(queue, news);
}

/* Nothing more comes out of a CQ that has failed, so its queues are stopped before their workers
 * hear of it. */
static void on_cq_error(struct rdma_port *port, struct ibv_cq *cq)
{
	log_error(
		"port %s: a completion queue has failed (overrun, or the device could not write it): its queues fail, and are to be reset or made anew",
		port->port.info.name);
	for (struct vbn_queue *queue = port->port.queues; queue; queue = queue->next) {
		if (!port->cq_failed || !port->cq_failed(queue, cq))
			continue;
		__atomic_store_n(&queue->cause, NEWS_CQ, __ATOMIC_RELAXED);
		queue->port->driver->queue_fail(queue);
		queue_tell(queue, NEWS_CQ);
	}
}

/* An event may be old: of a queue pair that has been reset since. */
static void on_qp_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (!qp->qp_context || ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		return;
	if (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE)
		queue_tell(qp->qp_context, NEWS_QP);
}

static void on_wq_error(struct ibv_wq *wq)
{
	if (wq->wq_context)
		queue_tell(wq->wq_context, NEWS_QP);
}

/* Events of an object of this port. */
static void on_object_event(struct rdma_port *port, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: on_cq_error(port, event->element.cq); return;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: on_qp_error(event->element.qp); return;
	case IBV_EVENT_WQ_FATAL: on_wq_error(event->element.wq); return;
	default:
		log_debug(
			"port %s: %s", port->port.info.name, ibv_event_type_str(event->event_type));
	}
}

/* Async events of this port; those of the device's other port are another rdma_port's. */
static void on_event(struct rdma_port *port, const struct ibv_async_event *event)
{
	struct vbn_port *base = &port->port;
	const char *name = base->info.name, *text = ibv_event_type_str(event->event_type);

	switch (event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		if (event->element.port_num != base->info.port)
			return;
		if (event->event_type == IBV_EVENT_PORT_ERR) {
			count_add(&base->events[PORT_DOWN], 1);
			base->info.up = false;
			log_warning(
				"port %s went down: check its cable and switch; queues go on when it is back in time",
				name);
		} else if (event->event_type == IBV_EVENT_PORT_ACTIVE) {
			count_add(&base->events[PORT_UP], 1);
			base->info.up = true;
			log_notice("port %s is up again", name);
		} else {
			count_add(&base->events[PORT_ADDRESS_CHANGED], 1);
			log_warning("port %s: %s; connected queues keep the address they have",
				name, text);
			if (event->event_type == IBV_EVENT_GID_CHANGE &&
				base->info.link != VBN_LINK_IWARP)
				follow_gid(port);
		}
		return;
	case IBV_EVENT_DEVICE_FATAL:
		count_add(&base->events[PORT_DEVICE_ERROR], 1);
		log_error(
			"device of port %s reports a fatal error: every queue on it fails; close the port, reset the device, open it anew",
			name);
		tell_all(port, NEWS_DEVICE);
		return;
	default: on_object_event(port, event);
	}
}

static void on_async_fd(int fd, void *arg)
{
	struct rdma_port *port = arg;
	struct ibv_async_event event;

	(void)fd;
	if (ibv_get_async_event(port->context, &event))
		return;
	on_event(port, &event);
	ibv_ack_async_event(&event);
}

int vbn__rdma_watch_events(struct rdma_port *port)
{
	int fd = port->context->async_fd;
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	return vbn__control_watch(fd, on_async_fd, port);
}
