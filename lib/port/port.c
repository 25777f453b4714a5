/* port.c - ports: names to drivers, open, close, list, and the zones a port has registered */

#include "port/port.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The open ports, for zones that go. Under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vbn_port *ports;

static const struct counter_name counter_names[] = {
	[PORT_DOWN] = {"went_down", "the port lost its link"},
	[PORT_UP] = {"came_up", "the port's link came back"},
	[PORT_ADDRESS_CHANGED] = {"address_changed", "a GID, LID or P_Key of the port changed"},
	[PORT_DEVICE_ERROR] = {"device_error", "the device reported a fatal error"},
};
static_assert(ARRAY_SIZE(counter_names) == ARRAY_SIZE(((struct vbn_port *)0)->events),
	"each event has its name");

/* "mlx5:mlx5_0:2" taken apart; each part but the device is optional. */
struct port_name {
	const struct driver *driver; /* NULL: any */
	char device[1024];
	int number;
};

static int parse_name(const char *name, struct port_name *parsed)
{
	const char *colon, *device = name;
	size_t length;
	char *end;

	*parsed = (struct port_name){.number = 1};
	if (!name || !*name)
		return fail(EINVAL,
			"a port cannot be opened without a name: `verbena devices` lists those that exist");
	colon = strchr(name, ':');
	for (int i = 0; colon && vbn__drivers[i]; i++) {
		if (strlen(vbn__drivers[i]->name) == (size_t)(colon - name) &&
			!strncmp(vbn__drivers[i]->name, name, (size_t)(colon - name))) {
			parsed->driver = vbn__drivers[i];
			device = colon + 1;
		}
	}
	for (int i = 0; !parsed->driver && vbn__drivers[i]; i++)
		if (vbn__drivers[i]->by_name && !vbn__drivers[i]->whole_name &&
			!strcmp(name, vbn__drivers[i]->name))
			parsed->driver = vbn__drivers[i];
	colon = parsed->driver && parsed->driver->whole_name ? NULL : strchr(device, ':');
	length = colon ? (size_t)(colon - device) : strlen(device);
	if (!length || length >= sizeof(parsed->device))
		return fail(ENODEV,
			"device \"%s\" does not exist: `verbena devices` lists those that do",
			name);
	memcpy(parsed->device, device, length);
	if (!colon)
		return 0;
	parsed->number = (int)strtol(colon + 1, &end, 10);
	if (*end || end == colon + 1 || parsed->number < 1 || parsed->number > 255)
		return fail(ENODEV,
			"device \"%s\" does not exist: before a device's name may stand a driver's and \":\", as mlx5:mlx5_0, behind it \":\" and a port's number, as mlx5_0:1",
			name);
	return 0;
}

/* ---- zones ---- */

int vbn__port_register_zone(struct vbn_port *port, struct vbn_zone *zone)
{
	struct zone_registration *registration = &port->zones[zone->id];

	if (registration->region && registration->generation == vbn__zone_generation(zone))
		return 0;
	return port->driver->zone_register(port, zone, registration);
}

static int forget_zone_call(void *arg)
{
	struct vbn_zone *zone = arg;

	pthread_mutex_lock(&lock);
	for (struct vbn_port *port = ports; port; port = port->next)
		port->driver->zone_unregister(port, &port->zones[zone->id]);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void on_zone_destroy(struct vbn_zone *zone, void *arg)
{
	(void)arg;
	if (load_acquire(&ports))
		vbn__control_call(-1, forget_zone_call, zone);
}

struct register_args {
	struct vbn_port *port;
	struct vbn_zone *zone;
};

static int register_call(void *arg)
{
	struct register_args *args = arg;

	return vbn__port_register_zone(args->port, args->zone);
}

VBN_API int vbn_port_register(struct vbn_port *port, struct vbn_zone *zone)
{
	if (!port || !zone)
		return fail(EINVAL, "zone cannot be registered: there is no %s: name one",
			port ? "zone" : "port");
	return vbn__control_call(-1, register_call, &(struct register_args){port, zone});
}

/* ---- open and close ---- */

struct open_args {
	const struct port_name *name;
	const struct vbn_port_conf *conf;
	struct vbn_port *port;
};

static int open_call(void *arg)
{
	struct open_args *args = arg;
	int ret = -ENODEV;

	for (int i = 0; vbn__drivers[i]; i++) {
		if (args->name->driver ? args->name->driver != vbn__drivers[i]
				       : vbn__drivers[i]->by_name)
			continue;
		ret = vbn__drivers[i]->open(
			args->name->device, args->name->number, args->conf, &args->port);
		if (ret != -ENOTSUP && ret != -ENODEV)
			break;
	}
	return ret;
}

/* The control thread writes the port's info; this is asked for elsewhere. */
static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_port *port = container_of(set, struct vbn_port, counters);

	vbn__fact_text(list, "driver", port->info.driver);
	if (port->info.node >= 0)
		vbn__fact_number(list, "node", (uint64_t)port->info.node);
	vbn__fact_number(list, "mtu", port->mtu ? port->mtu : vbn__glance(&port->info.mtu));
	vbn__fact_text(list, "gid", port->info.gid);
	vbn__fact_gauge(
		list, "up", "whether the port has its link", vbn__glance_flag(&port->info.up));
	vbn__fact_gauge(list, "speed_mbit", "bits per second of the link, in millions",
		vbn__glance(&port->info.speed_mbit));
	vbn__fact_gauge(list, "queues", "queues that use the port", vbn__glance(&port->n_queues));
	vbn__fact_gauge(list, "srqs", "shared receive rings on it", vbn__glance(&port->n_srqs));
	vbn__fact_gauge(list, "exports", "exports on it", vbn__glance(&port->n_exports));
}

static void port_publish(struct vbn_port *port)
{
	static bool watching;

	pthread_mutex_lock(&lock);
	if (!watching)
		vbn__zone_on_destroy(on_zone_destroy, NULL);
	watching = true;
	port->next = ports;
	store_release(&ports, port);
	pthread_mutex_unlock(&lock);
	port->counters = (struct counter_set){.kind = "port",
		.names = counter_names,
		.values = port->events,
		.n = ARRAY_SIZE(counter_names),
		.describe = describe};
	snprintf(port->counters.object, sizeof(port->counters.object), "%.31s", port->info.name);
	vbn__counters_add(&port->counters);
}

VBN_API int vbn_port_open(
	const char *name, const struct vbn_port_conf *conf, struct vbn_port **port)
{
	static const struct vbn_port_conf defaults;
	struct port_name parsed;
	struct open_args args = {.name = &parsed, .conf = conf ? conf : &defaults};
	int ret = parse_name(name, &parsed);

	if (ret)
		return ret;
	ret = vbn__control_call(-1, open_call, &args);
	if (ret == -ENODEV)
		return fail(ENODEV,
			"device \"%s\" does not exist: `verbena devices` lists those that do, and `verbena vhca -- COMMAND` runs a command on an emulated one",
			name);
	if (ret == -ENOTSUP)
		return fail(ENOTSUP,
			"device \"%s\" is not one for %s: that drives ConnectX-4 and later; take its name alone, or verbs:NAME",
			name, parsed.driver ? parsed.driver->name : "any driver here");
	if (ret == -ESHUTDOWN)
		return fail(
			ESHUTDOWN, "device \"%s\" cannot be opened: call vbn_init() first", name);
	if (ret)
		return ret;
	port_publish(args.port);
	*port = args.port;
	return 0;
}

static int close_call(void *arg)
{
	struct vbn_port *port = arg;

	for (int i = 0; i < MEM_MAX_ZONES; i++)
		port->driver->zone_unregister(port, &port->zones[i]);
	port->driver->close(port);
	return 0;
}

VBN_API void vbn_port_close(struct vbn_port *port)
{
	if (!port)
		return;
	if (port->n_queues || port->n_exports || port->n_srqs || port->n_peers || port->n_groups) {
		log_error(
			"port %s cannot be closed: it has %u queues and %u exports, %u SRQs, %u peers and %u rx groups; destroy them first",
			port->info.name, port->n_queues, port->n_exports, port->n_srqs,
			port->n_peers, port->n_groups);
		return;
	}
	vbn__counters_remove(&port->counters);
	pthread_mutex_lock(&lock);
	for (struct vbn_port **at = &ports; *at; at = &(*at)->next) {
		if (*at == port) {
			*at = port->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	vbn__control_call(-1, close_call, port);
}

/* ---- what there is ---- */

struct list_args {
	struct vbn_port_info *infos;
	int n;
};

static bool is_listed(const struct vbn_port_info *infos, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(infos[i].name, name))
			return true;
	return false;
}

/* Ports of the same name are one, which the first driver that has it opens. */
static int list_call(void *arg)
{
	enum { MOST = 256 };
	struct list_args *args = arg;
	struct vbn_port_info *all = calloc(2 * MOST, sizeof(*all)), *more = all + MOST;
	int found = 0, ret = all ? 0 : -ENOMEM;

	for (int i = 0; ret >= 0 && vbn__drivers[i]; i++) {
		ret = vbn__drivers[i]->list(more, MOST);
		for (int k = 0; k < min(ret, (int)MOST) && found < MOST; k++)
			if (!is_listed(all, found, more[k].name))
				all[found++] = more[k];
	}
	if (found && args->n > 0)
		memcpy(args->infos, all, (size_t)min(found, args->n) * sizeof(*all));
	free(all);
	return ret < 0 ? ret : found;
}

VBN_API int vbn_port_list(struct vbn_port_info *infos, int n)
{
	return vbn__control_call(-1, list_call, &(struct list_args){infos, n});
}

struct gids_args {
	const struct port_name *name;
	char (*gids)[80];
	int n;
};

static int gids_call(void *arg)
{
	struct gids_args *args = arg;

	const struct driver *driver = args->name->driver ? args->name->driver : vbn__drivers[0];

	return driver->gids(args->name->device, args->name->number, args->gids, args->n);
}

VBN_API int vbn_port_gids(const char *name, char (*gids)[80], int n)
{
	struct port_name parsed;
	int ret = parse_name(name, &parsed);

	if (ret)
		return ret;
	ret = vbn__control_call(-1, gids_call, &(struct gids_args){&parsed, gids, n});
	if (ret == -ENODEV)
		return fail(ENODEV,
			"device \"%s\" does not exist: `verbena devices` lists those that do",
			name);
	return ret;
}

struct info_args {
	const struct vbn_port *port;
	struct vbn_port_info *info;
};

static int info_call(void *arg)
{
	struct info_args *args = arg;

	*args->info = args->port->info;
	return 0;
}

/* The control thread writes it as events come. */
VBN_API void vbn_port_info(const struct vbn_port *port, struct vbn_port_info *info)
{
	struct info_args args = {port, info};

	if (vbn__control_call(-1, info_call, &args))
		info_call(&args); /* there is none any more */
}

VBN_API int vbn_port_modes(const struct vbn_port *port, struct vbn_mode *modes, int n)
{
	struct mode_report report = {.modes = modes, .max = n};

	vbn__mode_add(
		&report, "driver", "auto", port->info.driver, "the best one that has the device");
	port->driver->modes(port, &report);
	return report.n;
}
