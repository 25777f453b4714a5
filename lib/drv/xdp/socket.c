/* socket.c - memory and rings of a queue: the pool's zone as umem, a socket bound to a queue of the
 * interface */

#include "drv/xdp/xdp.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, SEND_ROOM = 16 << 20, BIND_TRIES = 500 };

/* Where the kernel puts a packet, counted from the chunk: behind what it leaves alone, and no less than
 * the pool's headroom behind the buf's header. */
static uint32_t headroom(const struct vbn_pool *pool)
{
	const uint32_t wanted = (uint32_t)sizeof(struct vbn_buf) + pool->headroom;

	return wanted > XDP_LEFT_ALONE ? wanted - XDP_LEFT_ALONE : 0;
}

static int check_pool(struct xdp_queue *xq, const struct vbn_pool *pool)
{
	xq->chunk = min(pool->stride, (uint32_t)XDP_MAX_CHUNK);
	if (xq->chunk < XDP_MIN_CHUNK)
		return fail(EINVAL,
			"queue cannot be created: AF_XDP wants bufs of %d bytes and those of pool \"%s\" are of %u: make its data_size %d or more",
			XDP_MIN_CHUNK, pool->name, pool->stride,
			XDP_MIN_CHUNK - (int)sizeof(struct vbn_buf));
	if (XDP_LEFT_ALONE + headroom(pool) + 256 > xq->chunk)
		return fail(EINVAL,
			"queue cannot be created: pool \"%s\" has a headroom of %u, which leaves AF_XDP no room for packets: make it smaller",
			pool->name, pool->headroom);
	return 0;
}

/* Zero-copy needs chunks that lie in one piece in physical memory. */
static uint16_t bind_flags(struct xdp_queue *xq, const struct vbn_queue_conf *conf)
{
	const struct vbn_zone *zone = conf->rx_pool->zone;

	if (conf->zero_copy == VBN_ON)
		return XDP_USE_NEED_WAKEUP | XDP_ZEROCOPY;
	if (conf->zero_copy == VBN_OFF) {
		strcpy(xq->zero_copy_why, "not asked for");
		return XDP_USE_NEED_WAKEUP | XDP_COPY;
	}
	if (zone->page_size < HUGE_PAGE) {
		strcpy(xq->zero_copy_why,
			"not asked for: the pool's pages are no huge ones, and a buf may lie across two of them");
		return XDP_USE_NEED_WAKEUP | XDP_COPY;
	}
	strcpy(xq->zero_copy_why, "asked for; the interface's driver has none");
	return XDP_USE_NEED_WAKEUP;
}

static int make_umem(struct xdp_queue *xq, const struct vbn_queue_conf *conf)
{
	const struct vbn_zone *zone = conf->rx_pool->zone;
	const struct xsk_umem_config config = {.fill_size = max(conf->rx_depth, 2u),
		.comp_size = max(conf->tx_depth, 2u),
		.frame_size = xq->chunk,
		.frame_headroom = headroom(conf->rx_pool),
		.flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG};
	int ret =
		xsk_umem__create(&xq->umem, zone->base, zone->size, &xq->fill, &xq->done, &config);

	if (!ret)
		return 0;
	xq->umem = NULL;
	if (ret == -ENOBUFS || ret == -ENOMEM)
		return fail(ENOMEM,
			"queue cannot be created: the kernel does not lock the %zu MiB of pool \"%s\"'s zone: raise `ulimit -l`, or give the process CAP_IPC_LOCK",
			zone->size >> 20, conf->rx_pool->name);
	if (ret == -EPERM)
		return fail(EPERM,
			"queue cannot be created: an AF_XDP socket needs CAP_NET_RAW: run as root");
	return fail(-ret,
		"queue cannot be created: the kernel does not take pool \"%s\" for AF_XDP: %s",
		conf->rx_pool->name, strerror(-ret));
}

static int bind_socket(struct xdp_queue *xq, const struct vbn_queue_conf *conf)
{
	const struct xdp_port *port = xdp_port(xq->fq.queue.port);
	const struct xsk_socket_config config = {.rx_size = max(conf->rx_depth, 2u),
		.tx_size = max(conf->tx_depth, 2u),
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = bind_flags(xq, conf)};
	int ret = xsk_socket__create(
		&xq->socket, port->name, xq->index, xq->umem, &xq->rx, &xq->tx, &config);

	if (!ret)
		return 0;
	xq->socket = NULL;
	return ret;
}

static int cannot_bind(const struct xdp_queue *xq, const struct vbn_queue_conf *conf, int ret)
{
	const struct xdp_port *port = xdp_port(xq->fq.queue.port);

	if (ret == -EBUSY)
		return fail(EBUSY,
			"queue cannot be created: queue %u of %s has an AF_XDP socket of another program: end that",
			xq->index, port->name);
	if (conf->zero_copy == VBN_ON)
		return fail(ENOTSUP,
			"queue cannot be created: %s has no zero-copy for this pool: %s: leave zero_copy to the library, or give the pool pages of 2 MiB",
			port->name, strerror(-ret));
	return fail(-ret,
		"queue cannot be created: the kernel does not bind it to queue %u of %s: %s",
		xq->index, port->name, strerror(-ret));
}

/* What the kernel made of it; and room for more packets under way than a socket's default. */
static void look_at_socket(struct xdp_queue *xq)
{
	struct xdp_options options = {0};
	socklen_t size = sizeof(options);
	const int room = SEND_ROOM;

	xq->fd = xsk_socket__fd(xq->socket);
	setsockopt(xq->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (!getsockopt(xq->fd, SOL_XDP, XDP_OPTIONS, &options, &size))
		xq->zero_copy = options.flags & XDP_OPTIONS_ZEROCOPY;
}

/* libxdp takes those that it is given for new ones. */
static void clear_rings(struct xdp_queue *xq)
{
	xq->rx = xq->done = (struct xsk_ring_cons){0};
	xq->tx = xq->fill = (struct xsk_ring_prod){0};
}

int vbn__xdp_socket_open(struct xdp_queue *xq, const struct vbn_queue_conf *conf)
{
	int ret = check_pool(xq, conf->rx_pool);

	clear_rings(xq);
	for (int i = 0; i < BIND_TRIES && !ret; i++) {
		ret = make_umem(xq, conf);
		if (ret)
			break;
		ret = bind_socket(xq, conf);
		if (!ret)
			break;
		vbn__xdp_socket_close(xq);
		/* The socket before has been closed, and the kernel not done with it. */
		if (ret != -EBUSY || i + 1 == BIND_TRIES) {
			ret = cannot_bind(xq, conf, ret);
			break;
		}
		usleep(1000);
		ret = 0;
	}
	if (ret) {
		vbn__xdp_socket_close(xq);
		return ret;
	}
	look_at_socket(xq);
	xq->base = conf->rx_pool->zone->base;
	return 0;
}

void vbn__xdp_socket_lost(const struct xdp_queue *xq, struct xdp_statistics *lost)
{
	struct xdp_statistics now = {0};
	socklen_t size = sizeof(now);

	if (xq->fd < 0 || getsockopt(xq->fd, SOL_XDP, XDP_STATISTICS, &now, &size))
		now = (struct xdp_statistics){0};
	*lost = xq->lost;
	lost->rx_dropped += now.rx_dropped;
	lost->rx_ring_full += now.rx_ring_full;
	lost->tx_invalid_descs += now.tx_invalid_descs;
}

void vbn__xdp_socket_close(struct xdp_queue *xq)
{
	vbn__xdp_socket_lost(xq, &xq->lost);
	if (xq->socket)
		xsk_socket__delete(xq->socket);
	if (xq->umem)
		xsk_umem__delete(xq->umem);
	xq->socket = NULL;
	xq->umem = NULL;
	xq->fd = -1;
}
