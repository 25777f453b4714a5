/* rdma_device.c - RDMA devices by plain verbs: list, open, choose a GID */

#include "drv/rdma.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#define SIW_VENDOR_ID 0x626d74
#define MOST_GATHER   30 /* segments that fit into a WQE of mlx5 */

char *vbn__rdma_gid_text(const uint8_t *raw, char *text)
{
	if (!inet_ntop(AF_INET6, raw, text, 48))
		text[0] = '\0';
	return text;
}

static const char *gid_type_text(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_ROCE_V2: return "RoCE v2";
	case IBV_GID_TYPE_ROCE_V1: return "RoCE v1";
	default: return "IB";
	}
}

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static uint32_t speed_mbit(const struct ibv_port_attr *attr)
{
	/* Mbit/s of a lane by active_speed: IBTA 1.4, PortInfo; and lanes by active_width. */
	static const struct {
		uint8_t speed;
		uint32_t mbit;
	} lane[] = {{1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000},
		{64, 50000}, {128, 100000}};
	static const struct {
		uint8_t width, lanes;
	} wide[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	uint32_t mbit = 0, lanes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lane); i++)
		if (lane[i].speed == attr->active_speed)
			mbit = lane[i].mbit;
	for (size_t i = 0; i < ARRAY_SIZE(wide); i++)
		if (wide[i].width == attr->active_width)
			lanes = wide[i].lanes;
	return mbit * lanes;
}

static enum vbn_link link_of(const struct ibv_port_attr *attr)
{
	switch (attr->link_layer) {
	case IBV_LINK_LAYER_ETHERNET: return VBN_LINK_ETHERNET;
	case IBV_LINK_LAYER_INFINIBAND: return VBN_LINK_INFINIBAND;
	default: return VBN_LINK_UNKNOWN;
	}
}

/* ---- choosing a GID: what a peer on another host can reach comes first ---- */

static bool gid_is_ipv4(const uint8_t *raw)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(raw, prefix, sizeof(prefix));
}

static bool gid_is_link_local(const uint8_t *raw)
{
	return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

static int gid_rank(const struct ibv_gid_entry *entry)
{
	bool v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;

	if (entry->gid_type == IBV_GID_TYPE_IB)
		return 1;
	if (gid_is_ipv4(entry->gid.raw))
		return v2 ? 6 : 3;
	if (!gid_is_link_local(entry->gid.raw))
		return v2 ? 5 : 2;
	return v2 ? 4 : 1;
}

int vbn__rdma_read_gids(
	struct ibv_context *context, uint32_t port_number, struct ibv_gid_entry **table)
{
	struct ibv_device_attr device;
	struct ibv_port_attr attr;
	ssize_t n;

	*table = NULL;
	if (ibv_query_port(context, (uint8_t)port_number, &attr) ||
		ibv_query_device(context, &device))
		return -EIO;
	if (attr.gid_tbl_len <= 0)
		return 0;
	*table = calloc((size_t)attr.gid_tbl_len * device.phys_port_cnt, sizeof(**table));
	if (!*table)
		return -ENOMEM;
	n = ibv_query_gid_table(
		context, *table, (size_t)attr.gid_tbl_len * device.phys_port_cnt, 0);
	if (n < 0) { /* a kernel before 5.10: the first entry is all that can be had */
		n = !ibv_query_gid(context, (uint8_t)port_number, 0, &(*table)->gid);
		(*table)->port_num = port_number;
		(*table)->gid_type = IBV_GID_TYPE_ROCE_V2;
	}
	return (int)n;
}

static int choose_gid(struct rdma_port *port, const struct vbn_port_conf *conf)
{
	struct ibv_gid_entry *table;
	int n = vbn__rdma_read_gids(port->context, (uint32_t)port->port.info.port, &table),
	    best = -1;

	for (int i = 0; i < n; i++) {
		if (table[i].port_num != (uint32_t)port->port.info.port)
			continue;
		if (conf->gid_index.set) {
			if (table[i].gid_index == conf->gid_index.value)
				best = i;
		} else if (best < 0 || gid_rank(&table[i]) > gid_rank(&table[best])) {
			best = i;
		}
	}
	if (best >= 0) {
		port->gid = table[best];
		snprintf(port->gid_why, sizeof(port->gid_why), "%s",
			conf->gid_index.set
				? "asked for"
				: "ranked: RoCE v2 before v1, IPv4 before IPv6 before link-local");
	}
	free(table);
	if (best >= 0 || (port->port.info.link == VBN_LINK_INFINIBAND && !conf->gid_index.set))
		return 0;
	if (conf->gid_index.set)
		return fail(EINVAL,
			"port %s: GID index %u is not in use: choose one that `verbena devices` lists",
			port->port.info.name, conf->gid_index.value);
	return fail(EADDRNOTAVAIL,
		"port %s has no GID, so no peer could reach it: give its network interface an address",
		port->port.info.name);
}

int vbn__rdma_gids(const char *name, int port_number, char (*gids)[80], int n)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_gid_entry *table = NULL;
	int n_table = -ENODEV, found = 0;

	for (int i = 0; devices && devices[i]; i++) {
		struct ibv_context *context;

		if (strcmp(ibv_get_device_name(devices[i]), name))
			continue;
		n_table = 0;
		context = ibv_open_device(devices[i]);
		if (!context)
			break;
		n_table = vbn__rdma_read_gids(context, (uint32_t)port_number, &table);
		ibv_close_device(context);
		break;
	}
	for (int i = 0; i < n_table; i++) {
		char text[48];

		if (table[i].port_num != (uint32_t)port_number)
			continue;
		if (found < n)
			snprintf(gids[found], sizeof(gids[0]), "%u %s %s", table[i].gid_index,
				gid_type_text(table[i].gid_type),
				vbn__rdma_gid_text(table[i].gid.raw, text));
		found++;
	}
	free(table);
	if (devices)
		ibv_free_device_list(devices);
	return n_table == -ENODEV ? n_table : found;
}

/* ---- list and open ---- */

/* Linux's soft-iWARP wants no more of the memory that is read into than others do. */
bool vbn__rdma_reads_locally(const struct ibv_device_attr *device)
{
	return device->vendor_id == SIW_VENDOR_ID;
}

/* iWARP has connections only, and neither immediate data nor atomics; and what it reads into must be
 * open to the peer, which pools are not. */
static void describe(struct vbn_port_info *info, const struct ibv_context *context,
	const struct ibv_device_attr *device, const struct ibv_port_attr *attr)
{
	const bool iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
	const bool reads = device->max_qp_rd_atom && (!iwarp || vbn__rdma_reads_locally(device));

	info->up = attr->state == IBV_PORT_ACTIVE;
	info->link = iwarp ? VBN_LINK_IWARP : link_of(attr);
	info->speed_mbit = speed_mbit(attr);
	info->mtu = mtu_bytes(attr->active_mtu);
	info->max_message = attr->max_msg_sz;
	info->max_queues = (uint32_t)device->max_qp;
	info->max_depth = (uint32_t)min(device->max_qp_wr, device->max_cqe);
	info->max_depth = min(info->max_depth, 32768u);
	info->max_gather = min((uint32_t)device->max_sge, (uint32_t)MOST_GATHER);
	info->max_reads = (uint32_t)min(device->max_qp_rd_atom, device->max_qp_init_rd_atom);
	snprintf(info->capabilities, sizeof(info->capabilities), "%s send write%s%s%s",
		iwarp ? "rc" : "rc uc ud", iwarp ? "" : " imm", reads ? " read" : "",
		device->atomic_cap != IBV_ATOMIC_NONE && !iwarp ? " atomic" : "");
}

static void name_port(struct vbn_port_info *info, const char *device, int port_number, int n_ports)
{
	if (n_ports > 1)
		snprintf(info->name, sizeof(info->name), "%.50s:%d", device, port_number);
	else
		snprintf(info->name, sizeof(info->name), "%s", device);
	info->port = port_number;
}

static int device_node(const char *device)
{
	char path[128];

	snprintf(path, sizeof(path), "class/infiniband/%s", device);
	return vbn__topo_device_node(NULL, path);
}

int vbn__rdma_list(const char *(*driver_of)(struct ibv_device *device),
	void (*add)(struct vbn_port_info *info, struct ibv_context *context),
	struct vbn_port_info *infos, int n)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	int found = 0;

	if (!devices)
		return errno == ENOSYS ? 0 : -errno; /* ENOSYS: no RDMA in this kernel */
	for (int i = 0; devices[i]; i++) {
		const char *name = ibv_get_device_name(devices[i]), *driver = driver_of(devices[i]);
		struct ibv_context *context;
		struct ibv_device_attr device;

		if (!driver)
			continue;
		context = ibv_open_device(devices[i]);
		if (!context) {
			log_warning("device %s cannot be opened (%s): it is left out", name,
				strerror(errno));
			continue;
		}
		if (!ibv_query_device(context, &device)) {
			for (int port = 1; port <= device.phys_port_cnt; port++, found++) {
				struct vbn_port_info *info = &infos[found];
				struct ibv_port_attr attr;

				if (found >= n || ibv_query_port(context, (uint8_t)port, &attr))
					continue;
				memset(info, 0, sizeof(*info));
				name_port(info, name, port, device.phys_port_cnt);
				snprintf(info->driver, sizeof(info->driver), "%s", driver);
				info->node = device_node(name);
				info->gid_index = -1;
				describe(info, context, &device, &attr);
				if (add)
					add(info, context);
			}
		}
		ibv_close_device(context);
	}
	ibv_free_device_list(devices);
	return found;
}

static int open_failed(const char *name)
{
	int error = errno ? errno : EIO;

	switch (error) {
	case EACCES:
	case EPERM:
		return fail(error,
			"device %s cannot be opened (%s): check, in this order, that the user may read and write "
			"/dev/infiniband/uverbs*, that the container was given these devices, and SELinux's log",
			name, strerror(error));
	case ENOENT:
	case ENXIO:
		return fail(error,
			"device %s cannot be opened (%s): load the kernel module ib_uverbs, or give the container "
			"/dev/infiniband",
			name, strerror(error));
	case EMFILE:
	case ENFILE:
		return fail(error,
			"device %s cannot be opened: %s: raise the limit on open files (ulimit -n), or close some",
			name, strerror(error));
	default: return fail(error, "device %s cannot be opened: %s", name, strerror(error));
	}
}

static int open_by_name(struct rdma_port *port, const char *name,
	bool (*accepts)(struct ibv_device *),
	struct ibv_context *(*open_device)(struct ibv_device *))
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	int ret = -ENODEV;

	for (int i = 0; devices && devices[i]; i++) {
		if (strcmp(ibv_get_device_name(devices[i]), name))
			continue;
		ret = -ENOTSUP;
		if (!accepts(devices[i]))
			break;
		errno = 0;
		port->context = open_device(devices[i]);
		ret = port->context ? 0 : open_failed(name);
		break;
	}
	if (devices)
		ibv_free_device_list(devices);
	return ret;
}

static int check_mtu(struct rdma_port *port, const struct vbn_port_conf *conf)
{
	struct vbn_port_info *info = &port->port.info;

	port->port.mtu = conf->mtu ? conf->mtu : info->mtu;
	if (!is_pow2(port->port.mtu) || port->port.mtu < 256 || port->port.mtu > 4096)
		return fail(EINVAL, "port %s: path MTU %u is none of 256, 512, 1024, 2048, 4096",
			info->name, conf->mtu);
	if (port->port.mtu > info->mtu)
		return fail(EINVAL,
			"port %s: path MTU %u is above the port's active one, %u: lower it, or raise the MTU of its interface",
			info->name, conf->mtu, info->mtu);
	return 0;
}

/* Messages may be written out of order; a completion still comes after them. */
static void choose_ordering(struct rdma_port *port, const struct vbn_port_conf *conf)
{
	port->port.relaxed_asked = conf->relaxed_ordering;
	port->port.relaxed_ordering = conf->relaxed_ordering != VBN_OFF;
}

/* Soft-RoCE retries for ever where a queue pair asks for 7, so that a dead peer is never found out. */
static uint32_t max_retries(const struct ibv_device_attr *device)
{
	const uint32_t soft_roce = 0xffffff; /* its vendor_id */

	return device->vendor_id == soft_roce ? 6 : 7;
}

int vbn__rdma_open(struct rdma_port *port, const struct driver *driver, const char *name,
	int port_number, const struct vbn_port_conf *conf,
	bool (*accepts)(struct ibv_device *device),
	struct ibv_context *(*open_device)(struct ibv_device *device))
{
	struct vbn_port_info *info = &port->port.info;
	char text[48];
	int ret;

	port->port.driver = driver;
	ret = open_by_name(port, name, accepts, open_device);
	if (ret)
		return ret;
	if (ibv_query_device(port->context, &port->device))
		return fail(EIO, "device %s does not answer a query of its attributes: %s", name,
			strerror(errno));
	if (port_number < 1 || port_number > port->device.phys_port_cnt)
		return fail(ENXIO, "device %s has no port %d: its ports are 1 to %u", name,
			port_number, port->device.phys_port_cnt);
	if (ibv_query_port(port->context, (uint8_t)port_number, &port->attr))
		return fail(EIO, "port %d of device %s does not answer a query: %s", port_number,
			name, strerror(errno));
	name_port(info, name, port_number, port->device.phys_port_cnt);
	snprintf(info->driver, sizeof(info->driver), "%s", driver->name);
	info->node = device_node(name);
	port->port.max_retries = max_retries(&port->device);
	describe(info, port->context, &port->device, &port->attr);
	choose_ordering(port, conf);
	if (!info->up)
		return fail(ENETDOWN,
			"port %s is down: bring its link up (`ip link set … up`, cable, switch)",
			info->name);
	ret = check_mtu(port, conf);
	if (!ret)
		ret = choose_gid(port, conf);
	if (ret)
		return ret;
	port->gid_asked = conf->gid_index.set;
	info->gid_index = (int)port->gid.gid_index;
	snprintf(info->gid, sizeof(info->gid), "%s (%s)",
		vbn__rdma_gid_text(port->gid.gid.raw, text), gid_type_text(port->gid.gid_type));
	port->pd = ibv_alloc_pd(port->context);
	if (!port->pd)
		return fail(
			errno, "device %s refused a protection domain: %s", name, strerror(errno));
	return vbn__rdma_watch_events(port);
}

void vbn__rdma_close(struct rdma_port *port)
{
	if (port->context)
		vbn__control_unwatch(port->context->async_fd);
	if (port->pd)
		ibv_dealloc_pd(port->pd);
	if (port->context)
		ibv_close_device(port->context);
}

void vbn__rdma_port_modes(const struct rdma_port *port, struct mode_report *report)
{
	const struct vbn_port_info *info = &port->port.info;

	vbn__mode_add(report, "gid",
		port->gid_asked ? vbn__mode_number((uint64_t)info->gid_index, "") : "auto",
		info->gid, "index %d; %s", info->gid_index, port->gid_why);
	vbn__mode_add(report, "path_mtu",
		port->port.mtu == info->mtu ? "auto" : vbn__mode_number(port->port.mtu, "B"),
		vbn__mode_number(port->port.mtu, "B"), "the smaller of the two ends holds");
	vbn__mode_add(report, "relaxed_ordering", vbn__mode_switch(port->port.relaxed_asked),
		port->port.relaxed_ordering ? "on" : "off",
		"of zones: asked for when registering, and ignored by a device that has it not; completions come last all the same");
	vbn__mode_add(report, "device_node", "auto",
		info->node < 0 ? "unknown" : vbn__mode_number((uint64_t)info->node, ""), "%s",
		info->node < 0 ? "the machine names no NUMA node for it" : "from sysfs");
}
