/* rx_group.c - rx groups: made, joined by queues, built when the last one is connected */

#include "port/conf.h"
#include "port/port.h"

#include <stdlib.h>

#define HASH_BITS                                                                        \
	(VBN_HASH_IPV4 | VBN_HASH_IPV6 | VBN_HASH_UDP4 | VBN_HASH_TCP4 | VBN_HASH_UDP6 | \
		VBN_HASH_TCP6)

/* ---- create ---- */

static int check_conf(const struct vbn_port *port, struct vbn_rx_group_conf *conf)
{
	const char *name = port->info.name;

	if (!conf->n_queues)
		conf->n_queues = 1;
	if (conf->n_queues > port->info.max_rx_queues)
		return fail(EINVAL,
			"rx group cannot be created: n_queues is %u and port %s has at most %u: take fewer, or give the interface more queues",
			conf->n_queues, name, port->info.max_rx_queues);
	if (conf->hash & ~(uint32_t)HASH_BITS)
		return fail(EINVAL,
			"rx group cannot be created: hash %#x has bits that no enum vbn_hash names",
			conf->hash);
	if (conf->symmetric > VBN_OFF)
		return fail(EINVAL,
			"rx group cannot be created: symmetric is %d and must be 0 to %d",
			(int)conf->symmetric, VBN_OFF);
	if (!port->driver->group_create && (conf->hash || conf->key || conf->symmetric == VBN_ON))
		return fail(ENOTSUP,
			"rx group cannot be created: what of a packet chooses its queue is the interface's business on port %s: leave hash, key and symmetric unset",
			name);
	return 0;
}

static int make(
	struct vbn_port *port, const struct vbn_rx_group_conf *conf, struct vbn_rx_group **result)
{
	struct vbn_rx_group *group =
		aligned_alloc(CACHE_LINE, round_up(port->driver->group_size, CACHE_LINE));
	int ret = 0;

	if (!group)
		return -ENOMEM;
	memset(group, 0, port->driver->group_size);
	group->port = port;
	group->conf = *conf;
	if (conf->key) {
		memcpy(group->key, conf->key, sizeof(group->key));
		group->conf.key = group->key;
	}
	group->queues = calloc(conf->n_queues, sizeof(struct vbn_queue *));
	if (!group->queues)
		ret = -ENOMEM;
	if (!ret && port->driver->group_create)
		ret = port->driver->group_create(group);
	if (ret) {
		free(group->queues);
		free(group);
		return ret;
	}
	port->n_groups++;
	*result = group;
	return 0;
}

struct group_call {
	struct vbn_port *port;
	const struct vbn_rx_group_conf *conf;
	struct vbn_rx_group *group;
};

static int create_call(void *arg)
{
	struct group_call *call = arg;

	return make(call->port, call->conf, &call->group);
}

VBN_API int vbn_rx_group_create(
	struct vbn_port *port, const struct vbn_rx_group_conf *asked, struct vbn_rx_group **group)
{
	struct vbn_rx_group_conf conf = asked ? *asked : (struct vbn_rx_group_conf){0};
	struct group_call call = {.port = port, .conf = &conf};
	int ret;

	if (!port)
		return fail(EINVAL, "rx group cannot be created: it has no port: open one");
	if (!vbn__port_has_packets(&port->info) || !port->driver->group_size)
		return fail(EOPNOTSUPP,
			"rx group cannot be created: port %s has no raw Ethernet: take a tap:, xdp: or ConnectX port",
			port->info.name);
	ret = check_conf(port, &conf);
	if (!ret)
		ret = vbn__control_call(-1, create_call, &call);
	if (!ret)
		*group = call.group;
	return ret;
}

/* ---- queues join, and leave ---- */

int vbn__rx_group_may_join(const struct vbn_rx_group *group, const struct vbn_port *port)
{
	if (!group)
		return 0;
	if (group->port != port)
		return fail(EINVAL,
			"queue cannot be created: its rx group is of port %s and the queue of %s: make a group for each port",
			group->port->info.name, port->info.name);
	if (rx_group_vacancy(group) == group->conf.n_queues)
		return fail(EINVAL,
			"queue cannot be created: its rx group has the %u queues that it was made for: make it for more",
			group->conf.n_queues);
	return 0;
}

void vbn__rx_group_join(struct vbn_rx_group *group, struct vbn_queue *queue)
{
	if (group)
		group->queues[rx_group_vacancy(group)] = queue;
}

static void unbuild(struct vbn_rx_group *group)
{
	if (group->port->driver->group_unbuild)
		group->port->driver->group_unbuild(group);
	store_once(&group->built, false);
}

static int build(struct vbn_rx_group *group)
{
	const struct driver *driver = group->port->driver;
	int ret = driver->group_build ? driver->group_build(group) : 0;

	if (ret)
		return ret;
	store_once(&group->built, true);
	ret = vbn__rx_rules_apply(group);
	if (ret)
		unbuild(group);
	return ret;
}

int vbn__rx_group_connected(struct vbn_queue *queue)
{
	struct vbn_rx_group *group = queue->conf.rx_group;
	int ret;

	if (!group)
		return 0;
	queue->in_group = true;
	if (++group->n_connected < group->conf.n_queues)
		return 0;
	ret = build(group);
	if (ret) {
		queue->in_group = false;
		group->n_connected--;
	}
	return ret;
}

void vbn__rx_group_away(struct vbn_queue *queue)
{
	struct vbn_rx_group *group = queue->conf.rx_group;

	if (!group || !queue->in_group)
		return;
	queue->in_group = false;
	if (group->built) {
		vbn__rx_rules_withdraw(group);
		unbuild(group);
	}
	group->n_connected--;
}

void vbn__rx_group_leave(struct vbn_queue *queue)
{
	struct vbn_rx_group *group = queue->conf.rx_group;

	if (!group)
		return;
	vbn__rx_group_away(queue);
	for (uint32_t i = 0; i < group->conf.n_queues; i++)
		if (group->queues[i] == queue)
			group->queues[i] = NULL;
}

/* ---- end, reports ---- */

static int destroy_call(void *arg)
{
	struct vbn_rx_group *group = arg;

	for (uint32_t i = 0; i < group->conf.n_queues; i++)
		if (group->queues[i])
			return -EBUSY;
	vbn__rx_rules_free(group);
	if (group->port->driver->group_destroy)
		group->port->driver->group_destroy(group);
	group->port->n_groups--;
	free(group->queues);
	free(group);
	return 0;
}

VBN_API void vbn_rx_group_destroy(struct vbn_rx_group *group)
{
	if (group && vbn__control_call(-1, destroy_call, group) == -EBUSY)
		log_error(
			"rx group of port %s cannot be destroyed: it has queues; destroy them first",
			group->port->info.name);
}

VBN_API bool vbn_rx_group_is_built(const struct vbn_rx_group *group)
{
	return load_once(&group->built);
}

static void report(const struct vbn_rx_group *group, struct mode_report *to)
{
	const struct driver *driver = group->port->driver;

	vbn__mode_add(to, "rss", vbn__mode_number(group->conf.n_queues, "queues"),
		group->built ? "built" : "not built", "%u of %u queues are connected",
		group->n_connected, group->conf.n_queues);
	if (driver->group_modes) {
		driver->group_modes(group, to);
		return;
	}
	vbn__mode_add(to, "hash", "auto", "the interface's",
		"it spreads packets as it has been told by other means");
	vbn__mode_add(to, "symmetric", vbn__mode_switch(group->conf.symmetric), "the interface's",
		"as the hash");
}

struct modes_call {
	const struct vbn_rx_group *group;
	struct mode_report report;
};

static int modes_call(void *arg)
{
	struct modes_call *call = arg;

	report(call->group, &call->report);
	return 0;
}

VBN_API int vbn_rx_group_modes(const struct vbn_rx_group *group, struct vbn_mode *modes, int n)
{
	struct modes_call call = {.group = group, .report = {.modes = modes, .max = n}};
	const int ret = vbn__control_call(-1, modes_call, &call);

	return ret ? ret : call.report.n;
}
