/* port.c - the mlx5 driver's table, and opening a device by mlx5dv */

#include "drv/mlx5/queue.h"
#include "drv/mlx5/raw.h"

#include <stdlib.h>

static bool accepts(struct ibv_device *device)
{
	return mlx5dv_is_supported(device);
}

static const char *driver_of(struct ibv_device *device)
{
	return accepts(device) ? "mlx5" : NULL;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	struct mlx5dv_context_attr attr = {0};

	return mlx5dv_open_device(device, &attr);
}

static int list(struct vbn_port_info *infos, int n)
{
	return vbn__rdma_list(driver_of, vbn__raw_describe, infos, n);
}

static void close_port(struct vbn_port *port)
{
	vbn__rdma_close(rdma_port(port));
	free(rdma_port(port));
}

/* CQEs must carry what cq.h reads: version 1 of their layout. */
static int check_device(struct rdma_port *port)
{
	struct mlx5dv_context attrs = {0};

	if (mlx5dv_query_device(port->context, &attrs))
		return fail(EIO, "device of port %s does not answer mlx5dv's query",
			port->port.info.name);
	if (!(attrs.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1))
		return fail(ENOTSUP,
			"device of port %s writes CQEs of version 0: the driver needs ConnectX-4 or later with its firmware up to date",
			port->port.info.name);
	return 0;
}

/* ---- queues of both kinds: RDMA, and raw Ethernet ---- */

static int queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	return conf->transport == VBN_RAW ? vbn__raw_create(port, list, conf, queue)
					  : vbn__mlx5_queue_create(port, list, conf, queue);
}

static int queue_fill(struct vbn_queue *queue)
{
	return is_raw(queue) ? vbn__raw_fill(queue) : vbn__mlx5_queue_fill(queue);
}

static uint32_t queue_posted(const struct vbn_queue *queue)
{
	return is_raw(queue) ? rq_posted(&raw_queue(queue)->rq) : vbn__mlx5_queue_posted(queue);
}

static int queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	return is_raw(queue) ? vbn__raw_connect(queue) : vbn__mlx5_queue_connect(queue, peer);
}

static int queue_fail(struct vbn_queue *queue)
{
	return is_raw(queue) ? vbn__raw_fail(queue) : vbn__mlx5_queue_fail(queue);
}

static bool queue_quiet(const struct vbn_queue *queue)
{
	return is_raw(queue) ? vbn__raw_is_quiet(queue) : vbn__failed_is_quiet(queue);
}

static int queue_reset(struct vbn_queue *queue)
{
	return is_raw(queue) ? vbn__raw_reset(queue) : vbn__mlx5_queue_reset(queue);
}

static void queue_news(struct vbn_queue *queue, uint32_t news)
{
	if (is_raw(queue))
		vbn__raw_news(queue, news);
	else
		vbn__mlx5_news(queue, news);
}

static void queue_stop(struct vbn_queue *queue)
{
	if (is_raw(queue))
		vbn__raw_stop(queue);
	else
		vbn__mlx5_queue_stop(queue);
}

static void queue_free(struct vbn_queue *queue)
{
	if (is_raw(queue))
		vbn__raw_free(queue);
	else
		vbn__mlx5_queue_free(queue);
}

static void queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	if (is_raw(queue))
		vbn__raw_modes(queue, report);
	else
		vbn__mlx5_queue_modes(queue, report);
}

static bool cq_failed(struct vbn_queue *queue, const struct ibv_cq *cq)
{
	const struct raw_queue *raw = raw_queue(queue);

	return is_raw(queue) ? raw->send_cq.ibv == cq || raw->recv_cq.ibv == cq
			     : vbn__mlx5_cq_failed(queue, cq);
}

/* ---- open ---- */

static int open_port(const char *name, int port_number, const struct vbn_port_conf *conf,
	struct vbn_port **result)
{
	struct rdma_port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	ret = vbn__rdma_open(
		port, &vbn__driver_mlx5, name, port_number, conf, accepts, open_device);
	port->cq_failed = cq_failed;
	if (!ret)
		ret = check_device(port);
	if (!ret)
		vbn__raw_port(port, conf);
	if (ret) {
		close_port(&port->port);
		return ret;
	}
	*result = &port->port;
	return 0;
}

static void modes(const struct vbn_port *port, struct mode_report *report)
{
	vbn__rdma_port_modes(rdma_port((struct vbn_port *)(uintptr_t)port), report);
}

const struct driver vbn__driver_mlx5 = {
	.name = "mlx5",
	.list = list,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.gids = vbn__rdma_gids,
	.zone_register = vbn__rdma_zone_register,
	.zone_unregister = vbn__rdma_zone_unregister,
	.export_register = vbn__rdma_export_register,
	.export_unregister = vbn__rdma_export_unregister,
	.queue_create = queue_create,
	.queue_adopt = vbn__mlx5_queue_adopt,
	.queue_part = vbn__mlx5_queue_part,
	.queue_address = vbn__mlx5_queue_address,
	.queue_fill = queue_fill,
	.queue_posted = queue_posted,
	.queue_connect = queue_connect,
	.queue_fail = queue_fail,
	.queue_quiet = queue_quiet,
	.queue_reset = queue_reset,
	.queue_news = queue_news,
	.queue_stop = queue_stop,
	.queue_free = queue_free,
	.queue_modes = queue_modes,
	.srq_create = vbn__mlx5_srq_create,
	.srq_fill = vbn__mlx5_srq_fill,
	.srq_stop = vbn__mlx5_srq_stop,
	.srq_free = vbn__mlx5_srq_free,
	.srq_posted = vbn__mlx5_srq_posted,
	.peer_create = vbn__mlx5_peer_create,
	.peer_destroy = vbn__mlx5_peer_destroy,
	.buf_source = vbn__rdma_buf_source,
	.group_size = sizeof(struct raw_group),
	.group_create = vbn__raw_group_create,
	.group_build = vbn__raw_group_build,
	.group_unbuild = vbn__raw_group_unbuild,
	.group_modes = vbn__raw_group_modes,
	.rule_check = vbn__raw_rule_check,
	.rule_add = vbn__raw_rule_add,
	.rule_remove = vbn__raw_rule_remove,
	.rule_count = vbn__raw_rule_count,
	.port_drops = vbn__raw_port_drops,
};
