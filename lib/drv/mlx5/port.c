/* port.c - the mlx5 driver's table, and opening a device by mlx5dv */

#include "drv/mlx5/queue.h"

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
	return vbn__rdma_list(driver_of, infos, n);
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

static int open_port(const char *name, int port_number, const struct vbn_port_conf *conf,
	struct vbn_port **result)
{
	struct rdma_port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	ret = vbn__rdma_open(
		port, &vbn__driver_mlx5, name, port_number, conf, accepts, open_device);
	port->cq_failed = vbn__mlx5_cq_failed;
	if (!ret)
		ret = check_device(port);
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
	.queue_create = vbn__mlx5_queue_create,
	.queue_adopt = vbn__mlx5_queue_adopt,
	.queue_part = vbn__mlx5_queue_part,
	.queue_address = vbn__mlx5_queue_address,
	.queue_fill = vbn__mlx5_queue_fill,
	.queue_posted = vbn__mlx5_queue_posted,
	.queue_connect = vbn__mlx5_queue_connect,
	.queue_fail = vbn__mlx5_queue_fail,
	.queue_quiet = vbn__failed_is_quiet,
	.queue_reset = vbn__mlx5_queue_reset,
	.queue_news = vbn__mlx5_news,
	.queue_stop = vbn__mlx5_queue_stop,
	.queue_free = vbn__mlx5_queue_free,
	.queue_modes = vbn__mlx5_queue_modes,
	.srq_create = vbn__mlx5_srq_create,
	.srq_fill = vbn__mlx5_srq_fill,
	.srq_stop = vbn__mlx5_srq_stop,
	.srq_free = vbn__mlx5_srq_free,
	.srq_posted = vbn__mlx5_srq_posted,
	.peer_create = vbn__mlx5_peer_create,
	.peer_destroy = vbn__mlx5_peer_destroy,
	.buf_source = vbn__rdma_buf_source,
};
