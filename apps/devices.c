/* devices.c - `verbena devices`: the ports of this machine, as a table or JSON */
#include "cmd.h"

#include <stdlib.h>

struct devices_options {
	const char *json;
};

static const struct option options[] = {
	{"json", "FILE", VALUE_TEXT, offsetof(struct devices_options, json), 0, 0, NULL,
		"write one JSON object to FILE; - is standard output,\nwhich then has nothing else"},
};

static const struct command command = {
	.name = "devices",
	.usage = "[options]",
	.summary =
		"Lists the ports of this machine, RDMA devices' and the same-host one, and interfaces for raw Ethernet: driver,\n"
		"NUMA node, state, speed, MTU, GIDs or MAC and queues, what they can.",
	.more = "examples:\n"
		"  verbena devices\n"
		"  verbena vhca --devices 2 -- verbena devices\n"
		"                           the emulated ones\n"
		"  verbena devices --json - | jq '.devices[].name'\n"
		"\n"
		"An interface is listed as xdp:IFNAME, a TAP device that is there as tap:NAME too; a tap:NAME that is\n"
		"not there is made by who opens it. Native or generic is where its XDP program would run.\n"
		"A port whose driver is \"-\" (in JSON \"\") is one that Verbena has no driver for.\n"
		"exit status: 0 also where there is none; 2 usage; 3 the list cannot be had.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

#define MAX_GIDS 256

static const char *link_name(enum vbn_link link)
{
	switch (link) {
	case VBN_LINK_ETHERNET: return "ethernet";
	case VBN_LINK_INFINIBAND: return "infiniband";
	case VBN_LINK_HOST: return "host";
	case VBN_LINK_IWARP: return "iwarp";
	default: return "unknown";
	}
}

/* All ports there are: *infos is to be freed. Returns how many, or -errno. */
static int list_ports(struct vbn_port_info **infos)
{
	int n = vbn_port_list(NULL, 0), room;

	for (*infos = NULL; n > 0; n = room) {
		struct vbn_port_info *more = realloc(*infos, (size_t)n * sizeof(**infos));

		if (!more)
			return -ENOMEM;
		*infos = more;
		room = n;
		n = vbn_port_list(*infos, room);
		if (n <= room) /* else one came in between: once more */
			return n;
		room = n;
	}
	return n;
}

static const char *mac_text(const struct vbn_port_info *info, char text[18])
{
	const uint8_t *mac = info->mac;

	snprintf(text, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
		mac[5]);
	return text;
}

/* ---- JSON ---- */

static json_t *gids_json(const char *name)
{
	char(*gids)[80] = calloc(MAX_GIDS, sizeof(*gids));
	json_t *list = json_array();
	int n = gids ? vbn_port_gids(name, gids, MAX_GIDS) : 0;

	for (int i = 0; i < n && i < MAX_GIDS; i++)
		json_array_append_new(list, json_string(gids[i]));
	free(gids);
	return list;
}

static json_t *words_json(const char *words)
{
	json_t *list = json_array();

	for (size_t n; *words; words += n) {
		words += strspn(words, " ");
		n = strcspn(words, " ");
		if (n)
			json_array_append_new(list, json_stringn(words, n));
	}
	return list;
}

static json_t *port_json(const struct vbn_port_info *info)
{
	char mac[18];
	json_t *port = json_pack("{s:s, s:s, s:i, s:s, s:s, s:o, s:I, s:o, s:o}", "name",
		info->name, "driver", info->driver, "node", info->node, "state",
		info->up ? "up" : "down", "link", link_name(info->link), "speed_gbit",
		json_number(info->speed_mbit / 1000.0), "mtu", (json_int_t)info->mtu, "gids",
		gids_json(info->name), "capabilities", words_json(info->capabilities));

	if (port_is_interface(info))
		json_object_update_new(port,
			json_pack("{s:s, s:i, s:s}", "mac", mac_text(info, mac), "queues",
				(int)info->max_rx_queues, "kernel_driver", info->kernel_driver));
	return port;
}

static json_t *ports_json(const struct vbn_port_info *infos, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, port_json(&infos[i]));
	return json_pack("{s:o}", "devices", list);
}

/* ---- the table ---- */

static void print_gids(const char *name)
{
	char(*gids)[80] = calloc(MAX_GIDS, sizeof(*gids));
	int n = gids ? vbn_port_gids(name, gids, MAX_GIDS) : 0;

	for (int i = 0; i < n && i < MAX_GIDS; i++)
		printf("    gid %s\n", gids[i]);
	free(gids);
}

static void print_port(const struct vbn_port_info *info)
{
	char node[16] = "-", speed[16] = "-", mac[18]; /* memory has no rate of its own */

	if (info->node >= 0)
		snprintf(node, sizeof(node), "%d", info->node);
	if (info->speed_mbit)
		snprintf(speed, sizeof(speed), "%.1f", info->speed_mbit / 1000.0);
	printf("%-12s %-8s %-5s %-6s %-11s %10s %6u\n", info->name,
		*info->driver ? info->driver : "-", node, info->up ? "up" : "down",
		link_name(info->link), speed, info->mtu);
	if (port_is_interface(info))
		printf("    mac %s, %u queue%s%s%s\n", mac_text(info, mac), info->max_rx_queues,
			info->max_rx_queues == 1 ? "" : "s", *info->kernel_driver ? " of " : "",
			info->kernel_driver);
	else
		print_gids(info->name);
	if (*info->capabilities)
		printf("    can %s\n", info->capabilities);
}

static void print_ports(const struct vbn_port_info *infos, int n)
{
	printf("%-12s %-8s %-5s %-6s %-11s %10s %6s\n", "name", "driver", "node", "state", "link",
		"Gbit/s", "MTU");
	for (int i = 0; i < n; i++)
		print_port(&infos[i]);
}

static bool has_rdma(const struct vbn_port_info *infos, int n)
{
	for (int i = 0; i < n; i++)
		if (infos[i].link != VBN_LINK_HOST && !port_is_interface(&infos[i]))
			return true;
	return false;
}

static int report(const struct vbn_port_info *infos, int n, struct sink *sink)
{
	if (!has_rdma(infos, n))
		say("there is no RDMA device on this machine: to have an emulated one, run verbena vhca -- verbena "
		    "devices, or give msgrate --device vhca");
	if (n && sink->file != stdout)
		print_ports(infos, n);
	return json_finish(sink, ports_json(infos, n));
}

int cmd_devices(int argc, char **argv)
{
	struct devices_options conf = {0};
	struct sink sink;
	struct vbn_port_info *infos = NULL;
	uint64_t given;
	int n, status = options_parse(&command, argc, argv, &conf, &given, NULL);

	if (status != OPTIONS_OK)
		return status;
	status = json_open(&sink, conf.json);
	if (status)
		return status;
	status = cmd_library_start();
	if (status)
		goto no_library;
	n = list_ports(&infos);
	if (n < 0) {
		library_failed(n, "the devices cannot be listed");
		status = STATUS_CANNOT;
	} else {
		status = report(infos, n, &sink);
	}
	free(infos);
	vbn_fini();
no_library:
	if (sink.file)
		sink_abandon(&sink);
	return status;
}
