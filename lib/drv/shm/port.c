/* port.c - the shm driver's table, and its ports, which are names in this host */

#include "drv/shm/lend.h"
#include "drv/shm/life.h"
#include "drv/shm/ud.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static const struct counter_name counter_names[] = {
	[SHM_ATTACHED] = {"attached", "queues that a peer has connected to"},
	[SHM_REFUSED_PEERS] = {"refused", "processes that were refused: another user, or no sense"},
	[SHM_LOST_PEERS] = {"lost_peers", "processes that were connected to and have gone"},
	[SHM_FAULTS] = {"faults", "queues that failed because of what a peer wrote into its ring"},
	[SHM_UNREAD] = {"unread", "messages that had come and were dropped with their queue"},
	[SHM_UNTAKEN] = {"untaken", "datagrams whose receiver went without taking them"},
	[SHM_OTHER_KEYS] = {"other_keys",
		"queues that wanted to send datagrams here, and had another Q_Key"},
	[SHM_VIEWED] = {"zones_mapped",
		"zones of peers that were mapped, so that large messages are copied once"},
	[SHM_UNVIEWED] = {"zones_refused",
		"zones of peers that were not mapped, so that messages go in pieces"},
};
static_assert(ARRAY_SIZE(counter_names) == SHM_N_COUNTS, "each count has its name");

static void fill_info(const char *name, struct vbn_port_info *info)
{
	*info = (struct vbn_port_info){.node = -1,
		.port = 1,
		.up = true,
		.link = VBN_LINK_HOST,
		.mtu = 4096,
		.max_message = SHM_MAX_MESSAGE,
		.max_queues = 1 << 20,
		.max_depth = SHM_MAX_DEPTH,
		.max_gather = 30,
		.max_reads = SHM_MAX_READS,
		.datagram_room = UD_RING - UD_PAST_END};
	if (strcmp(name, "shm") != 0)
		snprintf(info->name, sizeof(info->name), "shm:%.40s", name);
	else
		strcpy(info->name, "shm");
	strcpy(info->driver, "shm");
	strcpy(info->capabilities, "rc uc ud send write imm read atomic");
}

static int list(struct vbn_port_info *infos, int n)
{
	if (n > 0)
		fill_info("shm", infos);
	return 1;
}

static void close_port(struct vbn_port *base)
{
	struct shm_port *port = shm_port(base);

	vbn__counters_remove(&port->counters);
	vbn__shm_ud_close(port);
	vbn__shm_unlisten(port);
	free(port->targets);
	vbn__shm_loans_put(port->loans);
	free(port->exports);
	free(port);
}

static int check_open(const char *name, int number, const struct vbn_port_conf *conf)
{
	if (number != 1)
		return fail(ENXIO, "port shm:%s:%d does not exist: shm has one of each name", name,
			number);
	if (strlen(name) >= SHM_NAME)
		return fail(EINVAL,
			"port shm:%s cannot be opened: a name has %d letters at the most", name,
			SHM_NAME - 1);
	if (conf->gid_index.set || conf->mtu)
		return fail(EINVAL,
			"port shm cannot be opened: it has neither GIDs nor an MTU; leave gid_index and mtu unset");
	return vbn__shm_users_check();
}

static int open_port(
	const char *name, int number, const struct vbn_port_conf *conf, struct vbn_port **result)
{
	struct shm_port *port;
	int ret = check_open(name, number, conf);

	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->port.driver = &vbn__driver_shm;
	port->port.mtu = 4096;
	port->port.relaxed_asked = conf->relaxed_ordering;
	fill_info(name, &port->port.info);
	memcpy(port->name, name, strlen(name));
	if (getrandom(&port->id, sizeof(port->id), 0) != sizeof(port->id)) {
		free(port);
		return fail(EIO, "port shm cannot be opened: the kernel gives no random bytes");
	}
	port->next_number = (uint32_t)port->id & 0xffff;
	vbn__shm_sleep_begin();
	ret = vbn__shm_listen(port);
	if (ret) {
		free(port);
		return ret;
	}
	port->counters = (struct counter_set){
		.kind = "shm", .names = counter_names, .values = port->counts, .n = SHM_N_COUNTS};
	snprintf(port->counters.object, sizeof(port->counters.object), "%.31s",
		port->port.info.name);
	vbn__counters_add(&port->counters);
	*result = &port->port;
	return 0;
}

static void modes(const struct vbn_port *port, struct mode_report *report)
{
	const char *users = getenv("VBN_SHM_UIDS"), *why;
	const int life_fd = vbn__shm_life_fd(&why);

	vbn__mode_add(report, "relaxed_ordering", vbn__mode_switch(port->relaxed_asked), "off",
		"messages are copied by the CPU, in order");
	vbn__mode_add(report, "peer_death", "auto", life_fd < 0 ? "by its socket" : "by its word",
		"%s", life_fd < 0 ? why : "the kernel writes it first of all");
	if (users && *users)
		vbn__mode_add(report, "peers", "auto", "this user and listed ones",
			"VBN_SHM_UIDS lists %.60s; theirs must list this user, too", users);
	else
		vbn__mode_add(report, "peers", "auto", "this user",
			"VBN_SHM_UIDS is not set: at each end it lists other users' numbers");
}

static int no_gids(const char *name, int number, char (*gids)[80], int n)
{
	(void)name, (void)number, (void)gids, (void)n;
	return 0;
}

/* Peers get what is shared; of another zone messages are copied. */
static int zone_register(
	struct vbn_port *base, struct vbn_zone *zone, struct zone_registration *registration)
{
	struct shm_port *port = shm_port(base);

	*registration = (struct zone_registration){
		.region = zone, .generation = vbn__zone_generation(zone)};
	vbn__shm_lend_to_peers(port, zone);
	if (port->loans)
		vbn__shm_lend(port->loans, zone);
	return 0;
}

static void zone_unregister(struct vbn_port *base, struct zone_registration *registration)
{
	struct shm_port *port = shm_port(base);
	const struct vbn_zone *zone = registration->region;

	registration->region = NULL;
	if (!zone)
		return;
	vbn__shm_take_back_from_peers(port, zone);
	if (port->loans)
		vbn__shm_take_back(port->loans, zone);
}

const struct driver vbn__driver_shm = {
	.name = "shm",
	.by_name = true,
	.serves_exports = true,
	.list = list,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.gids = no_gids,
	.zone_register = zone_register,
	.zone_unregister = zone_unregister,
	.export_register = vbn__shm_export_register,
	.export_unregister = vbn__shm_export_unregister,
	.queue_create = vbn__shm_queue_create,
	.queue_address = vbn__shm_queue_address,
	.queue_fill = vbn__shm_queue_fill,
	.queue_posted = vbn__shm_queue_posted,
	.queue_connect = vbn__shm_queue_connect,
	.queue_fail = vbn__shm_queue_fail,
	.queue_quiet = vbn__shm_queue_quiet,
	.queue_reset = vbn__shm_queue_reset,
	.queue_news = vbn__shm_queue_news,
	.queue_stop = vbn__shm_queue_stop,
	.queue_free = vbn__shm_queue_free,
	.queue_modes = vbn__shm_queue_modes,
	.queue_sleep = vbn__shm_sleep,
	.queue_may_sleep = vbn__shm_may_sleep,
	.queue_sleep_over = vbn__shm_sleep_over,
	.srq_create = vbn__shm_srq_create,
	.srq_fill = vbn__shm_srq_fill,
	.srq_stop = vbn__shm_srq_stop,
	.srq_free = vbn__shm_srq_free,
	.srq_posted = vbn__shm_srq_posted,
	.peer_create = vbn__shm_peer_create,
	.peer_destroy = vbn__shm_peer_destroy,
	.peer_join = vbn__shm_peer_join,
	.buf_source = vbn__shm_buf_source,
	.queue_drops = vbn__shm_queue_drops,
};
