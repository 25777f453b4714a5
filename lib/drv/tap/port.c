/* port.c - the tap driver's table, and its ports: a device found or made, its end of the cable */

#include "drv/tap/tap.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- descriptors ---- */

int vbn__tap_attach(const char *name, bool single)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	if (!single)
		request.ifr_flags |= IFF_MULTI_QUEUE;
	memcpy(request.ifr_name, name, strlen(name));
	if (!ioctl(fd, TUNSETIFF, &request))
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

int vbn__tap_enable(int fd, bool enable)
{
	struct ifreq request = {.ifr_flags = (short)(enable ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE)};

	return ioctl(fd, TUNSETQUEUE, &request) ? -errno : 0;
}

bool vbn__tap_is_attached(int fd)
{
	struct ifreq request;

	return !ioctl(fd, TUNGETIFF, &request);
}

/* ---- open and close ---- */

static int cannot_open(const char *name, int error)
{
	switch (error) {
	case -ENOENT:
	case -ENODEV:
	case -ENXIO:
		return fail(ENODEV,
			"port tap:%s cannot be opened: this kernel has no /dev/net/tun: `modprobe tun`, and let the container have the device",
			name);
	case -EPERM:
	case -EACCES:
		return fail(EPERM,
			"port tap:%s cannot be opened: making a TAP device, or taking one of another user, needs CAP_NET_ADMIN: run as root, or `ip tuntap add dev %s mode tap multi_queue user $USER` first",
			name, name);
	case -EBUSY:
		return fail(EBUSY,
			"port tap:%s cannot be opened: another program has the device: take another name",
			name);
	case -EINVAL:
		return fail(EINVAL,
			"port tap:%s cannot be opened: there is an interface of that name that is no TAP device: take another name",
			name);
	default:
		return fail(-error, "port tap:%s cannot be opened: the kernel answers: %s", name,
			strerror(-error));
	}
}

/* What was made for one queue, by others, is taken as it is. */
static int attach_port(struct tap_port *port)
{
	port->fd = vbn__tap_attach(port->name, false);
	if (port->fd == -EINVAL) {
		port->single = true;
		port->fd = vbn__tap_attach(port->name, true);
	}
	if (port->fd < 0)
		return cannot_open(port->name, port->fd);
	if (!port->single)
		vbn__tap_enable(port->fd, false);
	port->offload = !ioctl(port->fd, TUNSETOFFLOAD, TUN_F_CSUM);
	return 0;
}

/* A device takes queues of any number of processes, and would spread packets over all of them. Whoever has
 * it here has a name among the abstract sockets, which are of a network namespace as interfaces are, and
 * gone with their process. */
static int claim(struct tap_port *port)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int len = snprintf(
		name.sun_path + 1, sizeof(name.sun_path) - 1, "verbena/tap/%s", port->name);

	port->claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (port->claim < 0)
		return cannot_open(port->name, -errno);
	if (!bind(port->claim, (const struct sockaddr *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)))
		return 0;
	return cannot_open(port->name, -(errno == EADDRINUSE ? EBUSY : errno));
}

static int set_up(struct tap_port *port)
{
	int ret = 0;

	if (port->mtu_asked)
		ret = vbn__netdev_set_mtu(port->name, port->mtu_asked);
	if (!ret)
		ret = vbn__netdev_set_up(port->name);
	if (ret)
		return fail(-ret,
			"port tap:%s cannot be opened: its device cannot be given MTU %u and be set up: %s; do so by `ip link set`, or run as root",
			port->name, port->mtu_asked, strerror(-ret));
	vbn__netdev_since_now(&port->since, port->name);
	return 0;
}

/* The kernel's end has the device's address; this end has one of its own, always the same. */
static void choose_mac(uint8_t own[6], const uint8_t kernels[6])
{
	memcpy(own, kernels, 6);
	own[0] = (uint8_t)((own[0] | 2) & ~1);
	own[5] ^= 1;
}

static int look(struct tap_port *port)
{
	struct netdev dev;
	int ret = vbn__netdev_look(port->name, &dev);

	if (ret)
		return fail(-ret, "port tap:%s cannot be opened: its device has gone: %s",
			port->name, strerror(-ret));
	port->port.info.frame_mtu = dev.mtu;
	port->port.info.mtu = dev.mtu;
	port->port.info.max_message = dev.mtu + FRAME_HEADER + FRAME_TAG;
	choose_mac(port->port.info.mac, dev.mac);
	return 0;
}

/* What somebody else has made meanwhile is taken as it is. Its queues' descriptors are theirs to open anew. */
int vbn__tap_renew(struct tap_port *port)
{
	const bool was_single = port->single;
	int ret;

	if (vbn__tap_is_attached(port->fd))
		return 0;
	if (port->fd >= 0)
		close(port->fd);
	port->single = false;
	ret = attach_port(port);
	if (!ret && port->single && !was_single && port->port.n_queues > 1)
		ret = fail(EBUSY,
			"queue of tap:%s cannot be reset: somebody has made the device anew, for one queue: make it by `ip tuntap add dev %s mode tap multi_queue`",
			port->name, port->name);
	return ret ? ret : set_up(port);
}

static void close_port(struct vbn_port *base)
{
	struct tap_port *port = tap_port(base);

	if (port->fd >= 0)
		close(port->fd);
	if (port->claim >= 0)
		close(port->claim);
	free(port);
}

static int check_open(const char *name, int number, const struct vbn_port_conf *conf)
{
	int ret = vbn__frame_port_check("tap", name, number, conf);

	if (!ret && strlen(name) >= IFNAMSIZ)
		ret = fail(EINVAL,
			"port tap:%s cannot be opened: an interface's name has %d letters at the most",
			name, IFNAMSIZ - 1);
	if (!ret && conf->frame_mtu && (conf->frame_mtu < 68 || conf->frame_mtu > TAP_MAX_MTU))
		ret = fail(EINVAL,
			"port tap:%s cannot be opened: frame_mtu is %u and must be 68 to %d", name,
			conf->frame_mtu, TAP_MAX_MTU);
	return ret;
}

static int open_port(
	const char *name, int number, const struct vbn_port_conf *conf, struct vbn_port **result)
{
	struct tap_port *port;
	int ret = check_open(name, number, conf);

	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->port.driver = &vbn__driver_tap;
	memcpy(port->name, name, strlen(name));
	vbn__frame_info(&port->port.info, "tap", name);
	port->mtu_asked = conf->frame_mtu;
	port->fd = -1;
	ret = claim(port);
	if (!ret)
		ret = attach_port(port);
	if (!ret)
		ret = set_up(port);
	if (!ret)
		ret = look(port);
	if (ret) {
		close_port(&port->port);
		return ret;
	}
	port->port.info.max_rx_queues = port->single ? 1 : TAP_MAX_QUEUES;
	port->port.info.max_queues = port->single ? 1 : 2 * TAP_MAX_QUEUES;
	port->port.info.max_gather = TAP_GATHER;
	*result = &port->port;
	return 0;
}

/* ---- what there is ---- */

/* Of devices that others have made. The port's MAC is its own, not the kernel's end's. */
static bool fill_listed(const struct netdev_found *found, struct vbn_port_info *info)
{
	choose_mac(info->mac, found->dev.mac);
	return found->is_tap;
}

static int list_ports(struct vbn_port_info *infos, int n)
{
	return vbn__frame_list("tap", infos, n, fill_listed);
}

/* ---- reports ---- */

static void modes(const struct vbn_port *base, struct mode_report *report)
{
	const struct tap_port *port = tap_port(base);

	vbn__mode_add(report, "multi_queue", "auto", port->single ? "off" : "on",
		port->single ? "the device was made for one queue, by somebody else" : "");
	vbn__mode_add(report, "checksum_offload", "auto", port->offload ? "on" : "off",
		port->offload
			? "the kernel takes checksums of the fourth layer for done, and leaves them to us"
			: "the kernel does not take it");
}

/* As this end sees it: what the kernel counts as sent is what a port receives. */
static void drops(const struct vbn_port *base, struct drop_list *list)
{
	struct tap_port *port = tap_port(base);
	struct netdev_counts counts;

	vbn__netdev_since(&port->since, port->name, &counts);
	vbn__drop_add(list, "rx_dropped_by_kernel",
		"sent here by the kernel, and found the queue full or absent", counts.tx_dropped);
	vbn__drop_add(list, "tx_dropped_by_kernel", "sent by this end, and dropped by the kernel",
		counts.rx_dropped);
}

const struct driver vbn__driver_tap = {
	.name = "tap",
	FRAME_DRIVER,
	.owns_interface = true,
	.list = list_ports,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.queue_create = vbn__tap_queue_create,
	.queue_fill = vbn__tap_queue_fill,
	.queue_posted = vbn__tap_queue_posted,
	.queue_connect = vbn__tap_queue_connect,
	.queue_fail = vbn__frame_nothing_to_end,
	.queue_news = vbn__tap_queue_news,
	.queue_reset = vbn__tap_queue_reset,
	.queue_stop = vbn__tap_queue_stop,
	.queue_free = vbn__tap_queue_free,
	.queue_modes = vbn__tap_queue_modes,
	.group_build = vbn__tap_group_build,
	.group_unbuild = vbn__tap_group_unbuild,
	.port_drops = drops,
};
