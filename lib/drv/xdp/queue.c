/* queue.c - a queue of an interface: which of its queues, its place in the group, modes */

#include "drv/xdp/xdp.h"

#include <stdlib.h>
#include <sys/socket.h>

/* ---- create ---- */

/* Those of a group have the first ones, in their order; who transmits only has the last that is free. */
static int take_index(struct xdp_port *port, const struct vbn_queue_conf *conf, uint32_t *index)
{
	const uint32_t n = port->port.info.max_rx_queues;
	uint32_t at = n;

	if (conf->rx_group)
		at = rx_group_vacancy(conf->rx_group);
	else
		while (at && port->taken[--at])
			if (!at)
				return fail(EBUSY,
					"queue cannot be created: each of the %u queues of %s has its AF_XDP socket: give it more by `ethtool -L`",
					n, port->name);
	if (port->taken[at])
		return fail(EBUSY,
			"queue cannot be created: queue %u of %s has an AF_XDP socket: destroy the one that uses it, or give the interface more queues by `ethtool -L`",
			at, port->name);
	port->taken[at] = true;
	*index = at;
	return 0;
}

static void fill_in(
	struct xdp_queue *xq, const struct vbn_port *port, const struct vbn_queue_conf *conf)
{
	const struct vbn_pool *rx = conf->rx_pool, *tx = conf->tx_pool;

	xq->fq.queue.port = (struct vbn_port *)(uintptr_t)port;
	xq->fq.queue.number = vbn__frame_number(port);
	xq->pool = conf->rx_pool;
	xq->longest = (uint32_t)port->info.max_message;
	xq->ids[0] = rx->id;
	xq->ids[1] = tx->zone == rx->zone ? tx->id : rx->id;
	xq->received = (uint64_t)(uintptr_t)xq | 1;
	xq->sent = (uint64_t)(uintptr_t)xq | 2;
	xq->fd = -1;
}

static int check_conf(const struct vbn_port *port, const struct vbn_queue_conf *conf)
{
	int ret = vbn__frame_conf_check(port, conf);

	if (!ret && (conf->timestamps == VBN_ON || conf->checksum_offload == VBN_ON))
		ret = fail(ENOTSUP,
			"queue cannot be created: AF_XDP has no %s here: leave it to the library",
			conf->timestamps == VBN_ON ? "timestamps" : "checksum_offload");
	return ret;
}

int vbn__xdp_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct xdp_port *port = xdp_port(base);
	struct xdp_queue *xq;
	int ret = check_conf(base, conf);

	(void)list;
	if (ret)
		return ret;
	xq = aligned_alloc(CACHE_LINE, round_up(sizeof(*xq), CACHE_LINE));
	if (!xq)
		return -ENOMEM;
	memset(xq, 0, sizeof(*xq));
	fill_in(xq, base, conf);
	ret = take_index(port, conf, &xq->index);
	if (ret)
		goto no_index;
	ret = vbn__frame_queue_make(&xq->fq, conf);
	if (!ret)
		ret = vbn__xdp_socket_open(xq, conf);
	if (ret)
		goto no_socket;
	*queue = &xq->fq.queue;
	return 0;

no_socket:
	port->taken[xq->index] = false;
no_index:
	free(xq->fq.back);
	free(xq);
	return ret;
}

int vbn__xdp_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	(void)peer;
	vbn__xdp_ops(xdp_queue(queue));
	return 0;
}

/* ---- groups ---- */

void vbn__xdp_group_unbuild(struct vbn_rx_group *group)
{
	for (uint32_t i = 0; i < group->conf.n_queues; i++)
		vbn__xdp_program_keep(xdp_port(group->port), i);
	vbn__xdp_rules_unbuild(group);
}

int vbn__xdp_group_build(struct vbn_rx_group *group)
{
	int ret = vbn__xdp_rules_build(group);

	for (uint32_t i = 0; i < group->conf.n_queues && !ret; i++)
		ret = vbn__xdp_program_give(
			xdp_port(group->port), i, xdp_queue(group->queues[i])->fd);
	if (ret)
		vbn__xdp_group_unbuild(group);
	else if (group->conf.n_queues < group->port->info.max_rx_queues)
		log_warning(
			"rx group of %s takes %u of the interface's %u queues: what comes by the others goes to the kernel; give the group all of them, or the interface fewer by `ethtool -L`",
			group->port->info.name, group->conf.n_queues,
			group->port->info.max_rx_queues);
	return ret;
}

/* ---- reset ---- */

/* What the kernel holds comes back with the socket's end. */
int vbn__xdp_queue_fail(struct vbn_queue *queue)
{
	vbn__xdp_socket_close(xdp_queue(queue));
	return 0;
}

int vbn__xdp_queue_reset(struct vbn_queue *queue)
{
	struct xdp_queue *xq = xdp_queue(queue);
	int ret = vbn__xdp_renew(xdp_port(queue->port));

	if (ret || xq->socket) /* it was never connected, and is as it was made */
		return ret;
	ret = vbn__xdp_socket_open(xq, &queue->conf);
	if (ret)
		return ret;
	xq->posted = xq->staged = 0;
	vbn__frame_renew(&xq->fq);
	return 0;
}

/* ---- end ---- */

void vbn__xdp_queue_stop(struct vbn_queue *queue)
{
	struct xdp_queue *xq = xdp_queue(queue);

	vbn__xdp_socket_close(xq);
	xdp_port(queue->port)->taken[xq->index] = false;
}

static int free_call(void *arg)
{
	struct xdp_queue *xq = arg;

	free(xq->fq.back);
	free(xq);
	return 0;
}

void vbn__xdp_queue_free(struct vbn_queue *queue)
{
	struct xdp_queue *xq = xdp_queue(queue);

	vbn__xdp_reclaim(xq);
	vbn__frame_queue_end(&xq->fq);
	vbn__control_call(-1, free_call, xq);
}

/* ---- reports ---- */

void vbn__xdp_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct xdp_queue *xq = xdp_queue(queue);
	const struct vbn_queue_conf *conf = &queue->conf;

	vbn__mode_add(report, "xdp_queue", "auto", vbn__mode_number(xq->index, ""),
		"of the interface's, from 0");
	vbn__mode_add(report, "zero_copy", vbn__mode_switch(queue->asked.zero_copy),
		xq->zero_copy ? "on" : "off", "%s",
		xq->zero_copy ? "the interface reads and writes the pool" : xq->zero_copy_why);
	vbn__mode_add(
		report, "need_wakeup", "on", "on", "the kernel is called where it asks for it");
	vbn__mode_add(report, "umem", "auto", vbn__mode_number(xq->chunk, "B unaligned chunks"),
		"the zone of pool \"%s\"; %s", conf->rx_pool->name,
		xq->ids[1] == conf->tx_pool->id
			? "sends of its pools are not copied here"
			: "sends of tx_pool, of another zone, are copied here");
	vbn__mode_add(report, "tx_checksum", vbn__mode_switch(queue->asked.checksum_offload),
		"software", "filled in before the packet is sent");
	vbn__mode_add(report, "rx_checksum", vbn__mode_switch(queue->asked.checksum_offload), "off",
		"AF_XDP does not say; a veth's peer must fill them in: `ethtool -K PEER tx off`");
}

/* The kernel's, of this socket. What finds no buf is in rx_dropped. */
void vbn__xdp_queue_drops(const struct vbn_queue *queue, struct drop_list *list)
{
	struct xdp_statistics lost;

	vbn__xdp_socket_lost(xdp_queue(queue), &lost);
	vbn__drop_add(
		list, "rx_dropped", "found no buf posted, or was longer than one", lost.rx_dropped);
	vbn__drop_add(list, "rx_ring_full", "found the receive ring full", lost.rx_ring_full);
	vbn__drop_add(list, "tx_invalid_descs", "a send that the kernel did not take",
		lost.tx_invalid_descs);
}
