/* cm.c - a port's end of rdma_cm: where it listens, what it hears, its clock */

#include "drv/verbs/cm.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
	TICK_MS = 250,
	BACKLOG = 256,
};

static const struct counter_name counter_names[N_CM_COUNTERS] = {
	[CM_TAKEN] = {"connected", "connections made"},
	[CM_STRANGERS] = {"strangers",
		"calls refused: they meant no queue of this port, or not from this peer"},
	[CM_TOO_LATE] = {"too_late",
		"calls refused: the queue they meant was not connected in time"},
	[CM_UNANSWERED] = {"unanswered", "queues that failed because no connection came about"},
	[CM_CUT_OFF] = {"cut_off", "connections that ended before their queue did"},
};

/* ---- addresses ---- */

static void ip_of(const struct sockaddr *address, uint8_t ip[16])
{
	memset(ip, 0, 16);
	if (address->sa_family == AF_INET) {
		memset(ip + 10, 0xff, 2);
		memcpy(ip + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
	} else {
		memcpy(ip, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
	}
}

/* What a peer on another host can reach comes first; a link-local IPv6 address would need a scope. */
static int address_rank(const struct sockaddr *address)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127
			? 1
			: 3;
	if (address->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(v6))
		return 0;
	return IN6_IS_ADDR_LOOPBACK(v6) ? 1 : 2;
}

/* ---- a port's life ---- */

bool vbn__cm_is_here(const struct verbs_cm *cm, const struct rdma_cm_id *id)
{
	const struct rdma_port *port = &cm->port->rdma;

	return id->verbs && id->port_num == port->port.info.port &&
		!strcmp(ibv_get_device_name(id->verbs->device),
			ibv_get_device_name(port->context->device));
}

/* Listens at this address, if it leads to the device. */
static bool listen_at(struct verbs_cm *cm, const struct sockaddr *address)
{
	struct rdma_cm_id *id;

	memset(&cm->address, 0, sizeof(cm->address));
	memcpy(&cm->address, address,
		address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					      : sizeof(struct sockaddr_in6));
	((struct sockaddr_in *)&cm->address)->sin_port = 0; /* both families have it there */
	if (rdma_create_id(cm->channel, &id, NULL, RDMA_PS_TCP))
		return false;
	if (!rdma_bind_addr(id, (struct sockaddr *)&cm->address) && vbn__cm_is_here(cm, id) &&
		!rdma_listen(id, BACKLOG)) {
		const __be16 port = (be_force __be16)rdma_get_src_port(id);

		cm->listener = id;
		ip_of(address, cm->name.ip);
		memcpy(cm->name.port, &port, sizeof(port));
		return true;
	}
	rdma_destroy_id(id);
	return false;
}

static int listen_somewhere(struct verbs_cm *cm)
{
	const char *name = cm->port->rdma.port.info.name;
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		return fail(errno,
			"port %s cannot be opened: the host's addresses cannot be listed: %s", name,
			strerror(errno));
	for (int rank = 3; rank > 0 && !cm->listener; rank--)
		for (struct ifaddrs *at = all; at && !cm->listener; at = at->ifa_next)
			if (at->ifa_addr && address_rank(at->ifa_addr) == rank)
				listen_at(cm, at->ifa_addr);
	freeifaddrs(all);
	if (cm->listener)
		return 0;
	return fail(EADDRNOTAVAIL,
		"port %s cannot be opened: rdma_cm finds no IP address that leads to it: give its network interface an address, and see that no other RDMA device is on that interface",
		name);
}

static void on_channel(int fd, void *arg);
static void on_tick(int fd, void *arg);

static int open_channel(struct verbs_cm *cm)
{
	const char *name = cm->port->rdma.port.info.name;
	int flags;

	cm->channel = rdma_create_event_channel();
	if (!cm->channel)
		return fail(errno,
			"port %s cannot be opened: it is iWARP, and rdma_cm gives no event channel (%s): load the kernel module rdma_ucm, and see that /dev/infiniband/rdma_cm may be read and written",
			name, strerror(errno));
	flags = fcntl(cm->channel->fd, F_GETFL);
	fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK);
	cm->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (cm->timer_fd < 0)
		return fail(errno,
			"port %s cannot be opened: no timer can be had (%s): raise the limit on open files (ulimit -n)",
			name, strerror(errno));
	return 0;
}

static void note_address(struct verbs_cm *cm)
{
	struct rdma_port *port = &cm->port->rdma;
	struct vbn_port_info *info = &port->port.info;
	char text[48];

	memcpy(port->gid.gid.raw, cm->name.ip, 16);
	snprintf(info->gid, sizeof(info->gid), "%s (iWARP)", vbn__rdma_gid_text(cm->name.ip, text));
	snprintf(port->gid_why, sizeof(port->gid_why),
		"the address by which rdma_cm finds the device");
}

int vbn__cm_start(struct verbs_port *port)
{
	struct verbs_cm *cm = calloc(1, sizeof(*cm));
	int ret;

	if (!cm)
		return -ENOMEM;
	port->cm = cm;
	cm->port = port;
	cm->timer_fd = -1;
	ret = open_channel(cm);
	if (!ret)
		ret = listen_somewhere(cm);
	if (!ret)
		ret = vbn__control_watch(cm->channel->fd, on_channel, cm);
	if (!ret)
		ret = vbn__control_watch(cm->timer_fd, on_tick, cm);
	if (ret)
		return ret; /* stop follows */
	note_address(cm);
	cm->counters = (struct counter_set){
		.kind = "iwarp", .names = counter_names, .values = cm->counts, .n = N_CM_COUNTERS};
	snprintf(cm->counters.object, sizeof(cm->counters.object), "%.31s",
		port->rdma.port.info.name);
	vbn__counters_add(&cm->counters);
	cm->counted = true;
	return 0;
}

void vbn__cm_stop(struct verbs_port *port)
{
	struct verbs_cm *cm = port->cm;

	if (!cm)
		return;
	if (cm->counted)
		vbn__counters_remove(&cm->counters);
	vbn__cm_drop_kept(cm);
	if (cm->listener)
		rdma_destroy_id(cm->listener);
	if (cm->timer_fd >= 0) {
		vbn__control_unwatch(cm->timer_fd);
		close(cm->timer_fd);
	}
	if (cm->channel) {
		vbn__control_unwatch(cm->channel->fd);
		rdma_destroy_event_channel(cm->channel);
	}
	free(cm);
	port->cm = NULL;
}

void vbn__cm_name(const struct verbs_port *port, struct link_name *name)
{
	uint64_t token;

	if (getrandom(&token, sizeof(token), 0) != (ssize_t)sizeof(token))
		token = clock_cycles() * 0x9e3779b97f4a7c15u;
	*name = port->cm->name;
	memcpy(name->token, &token, sizeof(token));
	name->token[0] = 0; /* an address has 24 bits of a PSN for it, and 32 of a Q_Key */
}

/* ---- what it hears ---- */

static void on_channel(int fd, void *arg)
{
	struct verbs_cm *cm = arg;
	struct rdma_cm_event *event;
	struct heard heard;

	(void)fd;
	if (rdma_get_cm_event(cm->channel, &event))
		return;
	heard = (struct heard){.type = event->event, .status = event->status, .id = event->id};
	heard.n_words = min((size_t)event->param.conn.private_data_len, sizeof(heard.words));
	if (heard.n_words && event->param.conn.private_data)
		memcpy(heard.words, event->param.conn.private_data, heard.n_words);
	rdma_ack_cm_event(event);
	vbn__cm_hear(cm, &heard);
}

/* ---- time ---- */

void vbn__cm_tick(struct verbs_cm *cm, bool wanted)
{
	const struct itimerspec every = {.it_interval.tv_nsec = wanted ? TICK_MS * 1000000l : 0,
		.it_value.tv_nsec = wanted ? TICK_MS * 1000000l : 0};

	if (cm->ticking != wanted)
		timerfd_settime(cm->timer_fd, 0, &every, NULL);
	cm->ticking = wanted;
}

static void on_tick(int fd, void *arg)
{
	struct verbs_cm *cm = arg;
	uint64_t now = clock_ns(), count;

	if (read(fd, &count, sizeof(count)) < 0)
		return;
	vbn__cm_tick(cm, vbn__cm_look(cm, now));
}
