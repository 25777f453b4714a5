/* port.c - the verbs driver's table, and opening a device by plain libibverbs */

#include "drv/verbs/verbs.h"

#include <stdlib.h>

/* Any device; those that have a driver of their own are listed by that one. */
static bool accepts(struct ibv_device *device)
{
	(void)device;
	return true;
}

static const char *driver_of(struct ibv_device *device)
{
	return accepts(device) ? "verbs" : NULL;
}

static int list(struct vbn_port_info *infos, int n)
{
	return vbn__rdma_list(driver_of, NULL, infos, n);
}

static void close_port(struct vbn_port *port)
{
	vbn__cm_stop(verbs_port(port));
	vbn__rdma_close(rdma_port(port));
	free(verbs_port(port));
}

static bool cq_failed(struct vbn_queue *queue, const struct ibv_cq *cq)
{
	const struct verbs_queue *vq = verbs_queue(queue);

	return vq->send_cq == cq || vq->recv_cq == cq;
}

static int open_port(const char *name, int port_number, const struct vbn_port_conf *conf,
	struct vbn_port **result)
{
	struct verbs_port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	port->rdma.cq_failed = cq_failed;
	ret = vbn__rdma_open(
		&port->rdma, &vbn__driver_verbs, name, port_number, conf, accepts, ibv_open_device);
	if (!ret && port->rdma.port.info.link == VBN_LINK_IWARP)
		ret = vbn__cm_start(port);
	if (ret) {
		close_port(&port->rdma.port);
		return ret;
	}
	*result = &port->rdma.port;
	return 0;
}

static void modes(const struct vbn_port *port, struct mode_report *report)
{
	vbn__rdma_port_modes(rdma_port((struct vbn_port *)(uintptr_t)port), report);
}

const struct driver vbn__driver_verbs = {
	.name = "verbs",
	.list = list,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.gids = vbn__rdma_gids,
	.zone_register = vbn__rdma_zone_register,
	.zone_unregister = vbn__rdma_zone_unregister,
	.export_register = vbn__rdma_export_register,
	.export_unregister = vbn__rdma_export_unregister,
	.queue_create = vbn__verbs_queue_create,
	.queue_address = vbn__verbs_queue_address,
	.queue_fill = vbn__verbs_queue_fill,
	.queue_posted = vbn__verbs_queue_posted,
	.queue_connect = vbn__verbs_queue_connect,
	.queue_fail = vbn__verbs_queue_fail,
	.queue_quiet = vbn__verbs_queue_quiet,
	.queue_reset = vbn__verbs_queue_reset,
	.queue_news = vbn__verbs_queue_news,
	.queue_stop = vbn__verbs_queue_stop,
	.queue_free = vbn__verbs_queue_free,
	.queue_modes = vbn__verbs_queue_modes,
	.srq_create = vbn__verbs_srq_create,
	.srq_fill = vbn__verbs_srq_fill,
	.srq_stop = vbn__verbs_srq_stop,
	.srq_free = vbn__verbs_srq_free,
	.srq_posted = vbn__verbs_srq_posted,
	.peer_create = vbn__verbs_peer_create,
	.peer_destroy = vbn__verbs_peer_destroy,
	.buf_source = vbn__rdma_buf_source,
};
