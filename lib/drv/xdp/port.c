/* port.c - the xdp driver's table, and its ports: an interface that has got a program */

#include "drv/xdp/xdp.h"

#include <linux/if.h>
#include <stdio.h>
#include <stdlib.h>

static void close_port(struct vbn_port *base)
{
	struct xdp_port *port = xdp_port(base);

	vbn__xdp_program_unload(&port->program);
	free(port);
}

static int look(struct xdp_port *port, struct netdev *dev)
{
	int ret = vbn__netdev_look(port->name, dev);

	if (ret)
		return fail(ENODEV,
			"port xdp:%s cannot be opened: this network namespace has no such interface: `ip link` lists those that it has",
			port->name);
	if (!dev->up)
		ret = vbn__netdev_set_up(port->name);
	if (ret)
		return fail(ENETDOWN,
			"port xdp:%s cannot be opened: the interface is down: `ip link set %s up`",
			port->name, port->name);
	return vbn__netdev_look(port->name, dev);
}

static void fill_info(struct xdp_port *port, const struct netdev *dev)
{
	struct vbn_port_info *info = &port->port.info;
	const uint32_t n = min(vbn__netdev_rx_queues(port->name), (uint32_t)XDP_MAX_QUEUES);

	port->index = dev->index;
	port->mtu = dev->mtu;
	info->mtu = info->frame_mtu = min(dev->mtu, (uint32_t)XDP_MAX_MTU);
	info->max_message = info->frame_mtu + FRAME_HEADER + FRAME_TAG;
	info->max_rx_queues = info->max_queues = n;
	info->max_gather = XDP_GATHER;
	memcpy(info->mac, dev->mac, sizeof(dev->mac));
	info->up = dev->up;
}

static int take(struct xdp_port *port, const struct netdev *dev)
{
	int ret;

	fill_info(port, dev);
	ret = vbn__xdp_program_load(port, port->port.info.max_rx_queues, port->native_asked);
	if (!ret)
		vbn__netdev_since_now(&port->since, port->name);
	else
		port->index = 0; /* it has none: for whoever tries again */
	if (!ret && dev->mtu > XDP_MAX_MTU)
		log_warning(
			"port xdp:%s carries frames up to an MTU of %d and its interface has %u: longer ones that come are dropped (rx_dropped): `ip link set %s mtu %d`, and the other end's, too",
			port->name, XDP_MAX_MTU, dev->mtu, port->name, XDP_MAX_MTU);
	return ret;
}

/* An interface that has come back has another number; the program went with the old one. */
int vbn__xdp_renew(struct xdp_port *port)
{
	struct netdev dev;
	int ret = look(port, &dev);

	if (ret || dev.index == port->index)
		return ret;
	vbn__xdp_program_unload(&port->program);
	return take(port, &dev);
}

static int open_port(
	const char *name, int number, const struct vbn_port_conf *conf, struct vbn_port **result)
{
	struct xdp_port *port;
	struct netdev dev;
	int ret = vbn__frame_port_check("xdp", name, number, conf);

	if (!ret && strlen(name) >= IFNAMSIZ)
		ret = fail(EINVAL,
			"port xdp:%s cannot be opened: an interface's name has %d letters at the most",
			name, IFNAMSIZ - 1);
	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->port.driver = &vbn__driver_xdp;
	port->program = (struct xdp_program){.map = -1, .program = -1, .link = -1, .counts = -1};
	memcpy(port->name, name, strlen(name));
	vbn__frame_info(&port->port.info, "xdp", name);
	ret = look(port, &dev);
	if (ret)
		goto out;
	port->native_asked = conf->xdp_native;
	ret = take(port, &dev);
	if (ret)
		goto out;
	*result = &port->port;
	return 0;
out:
	close_port(&port->port);
	return ret;
}

static bool fill_listed(const struct netdev_found *found, struct vbn_port_info *info)
{
	const size_t n = strlen(info->capabilities);

	info->max_rx_queues = info->max_queues = min(found->rx_queues, (uint32_t)XDP_MAX_QUEUES);
	snprintf(info->capabilities + n, sizeof(info->capabilities) - n, "%s",
		vbn__xdp_words(found->dev.index));
	return true;
}

static int list_ports(struct vbn_port_info *infos, int n)
{
	return vbn__frame_list("xdp", infos, n, fill_listed);
}

static void modes(const struct vbn_port *base, struct mode_report *report)
{
	const struct xdp_program *program = &xdp_port(base)->program;

	vbn__mode_add(report, "xdp", "auto", program->native ? "native" : "generic", "%s",
		program->native ? "the program runs in the interface's driver" : program->why);
	if (xdp_port(base)->mtu > XDP_MAX_MTU)
		vbn__mode_add(report, "frame_mtu", vbn__mode_number(xdp_port(base)->mtu, "B"),
			vbn__mode_number(XDP_MAX_MTU, "B"),
			"AF_XDP has a packet in a page; longer ones that come are dropped, and counted as rx_dropped");
	vbn__mode_add(report, "program", "auto", "bpf link",
		"it is gone with the process, whatever ends that");
}

/* What a socket drops of what the program gave it is counted there, and not once more here. */
static void drops(const struct vbn_port *base, struct drop_list *list)
{
	struct xdp_port *port = xdp_port(base);
	struct netdev_counts counts;

	vbn__netdev_since(&port->since, port->name, &counts);
	vbn__drop_add(list, "interface_rx_errors", "received with an error by the interface",
		counts.rx_errors);
	vbn__drop_add(list, "interface_tx_dropped", "sent here, and dropped by the interface",
		counts.tx_dropped);
}

static uint32_t posted(const struct vbn_queue *queue)
{
	return xdp_queue(queue)->posted;
}

static int fill(struct vbn_queue *queue)
{
	struct xdp_queue *xq = xdp_queue(queue);
	uint32_t missing;

	if (!queue->conf.rx_group)
		return 0;
	missing = vbn__xdp_refill(xq);
	if (!missing)
		return 0;
	return fail(ENOMEM,
		"queue %s/%u cannot post %u receives, but %u: pool \"%s\" has no more bufs: make it larger",
		queue->port->info.name, queue->number, queue->conf.rx_depth, xq->posted,
		queue->conf.rx_pool->name);
}

const struct driver vbn__driver_xdp = {
	.name = "xdp",
	FRAME_DRIVER,
	.list = list_ports,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.queue_create = vbn__xdp_queue_create,
	.queue_fill = fill,
	.queue_posted = posted,
	.queue_connect = vbn__xdp_queue_connect,
	.queue_fail = vbn__xdp_queue_fail,
	.queue_news = vbn__xdp_queue_news,
	.queue_reset = vbn__xdp_queue_reset,
	.queue_stop = vbn__xdp_queue_stop,
	.queue_free = vbn__xdp_queue_free,
	.queue_modes = vbn__xdp_queue_modes,
	.group_build = vbn__xdp_group_build,
	.group_unbuild = vbn__xdp_group_unbuild,
	.rule_check = vbn__xdp_rule_check,
	.rule_add = vbn__xdp_rule_add,
	.rule_remove = vbn__xdp_rule_remove,
	.rule_count = vbn__xdp_rule_count,
	.queue_drops = vbn__xdp_queue_drops,
	.port_drops = drops,
};
