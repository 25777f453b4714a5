/* packet_device.c - which ports a packet command is on, and what of their traffic comes to it */
#include "packet.h"

#include <ctype.h>
#include <stdlib.h>

bool mac_parse(const char *text, uint8_t mac[6])
{
	for (int i = 0; i < 6; i++, text += 2) {
		char digits[3] = {0};

		if (i && *text++ != ':')
			return false;
		memcpy(digits, text, strnlen(text, 2));
		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
			return false;
		mac[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return !*text;
}

int devices_before_library(const struct packet_run *run)
{
	const struct texts *devices = &run->conf.devices;

	if (!devices->n)
		return usage_error(
			"option --device is missing: name a port of raw Ethernet, as tap:vbn0, xdp:eth0 or mlx5_0");
	if (devices->n == 2 && !strcmp(devices->text[0], devices->text[1]))
		return usage_error(
			"option --device names %s twice: give it once, and frames go back out of it",
			devices->text[0]);
	for (int i = 0; i < devices->n; i++)
		if (!strcmp(devices->text[i], "vhca") && !vhca_is_loaded())
			return vhca_start_over("");
	return 0;
}

bool device_is_file(const struct packet_device *device)
{
	return !strcmp(device->info.driver, "pcap");
}

bool device_is_read(const struct packet_device *device)
{
	return strncmp(device->info.name, "pcap:>", 6);
}

static bool device_is_written(const struct packet_device *device)
{
	return !device_is_file(device) || strchr(device->info.name, '>');
}

static bool has_word(const char *words, const char *word)
{
	const char *at = strstr(words, word);
	size_t length = strlen(word);

	return at && (at == words || at[-1] == ' ') && (!at[length] || at[length] == ' ');
}

static int open_device(struct packet_run *run, const char *name)
{
	struct packet_device *device = &run->devices[run->n_devices];
	char what[128];
	int err;

	if (!strcmp(name, "vhca"))
		name = "mlx5_0";
	err = vbn_port_open(name, NULL, &device->port);
	if (err) {
		snprintf(what, sizeof(what), "port %.80s cannot be opened", name);
		return library_failed(err, what);
	}
	run->n_devices++;
	vbn_port_info(device->port, &device->info);
	if (!has_word(device->info.capabilities, "packet"))
		return cannot(
			"port %s has no raw Ethernet, but %s: give another --device, as tap:NAME or xdp:IFNAME",
			device->info.name, device->info.capabilities);
	return 0;
}

static int takes_none(const struct packet_device *device)
{
	return usage_error(
		"option --device %s takes no frames: it is a file that is read; name the one to write behind it, as pcap:in.pcap>out.pcap",
		device->info.name);
}

int devices_open(struct packet_run *run)
{
	bool read = !run->command->endless, written = false;
	int status = 0;

	for (int i = 0; i < run->conf.devices.n && !status; i++) {
		status = open_device(run, run->conf.devices.text[i]);
		read |= !status && device_is_read(&run->devices[i]);
		written |= !status && device_is_written(&run->devices[i]);
	}
	if (!status && !read)
		status = usage_error(
			"option --device %s brings no frames: it is a file that is written; name the one to read before it, as pcap:in.pcap>out.pcap",
			run->devices[0].info.name);
	if (!status && !written)
		status = takes_none(&run->devices[0]);
	for (int i = 0; i < run->n_devices && !status; i++)
		if (!run->command->endless && !device_is_written(&run->devices[i]))
			status = takes_none(&run->devices[i]);
	return status;
}

/* A device that is shared with the kernel gives what a rule takes; the others give everything. */
static int add_rules(const struct packet_run *run, struct packet_device *device)
{
	struct vbn_rx_rule everything = {.kind = VBN_RULE_EVERYTHING};
	struct vbn_rx_rule multicast = {.kind = VBN_RULE_ALL_MULTICAST};
	struct vbn_rx_rule own = {.kind = VBN_RULE_MATCH};
	uint32_t id;
	int err;

	if (!run->command->own_mac || strcmp(device->info.driver, "mlx5"))
		return vbn_rx_rule_add(device->group, &everything, &id);
	memcpy(own.dst_mac, device->info.mac, 6);
	memset(own.dst_mac_mask, 0xff, 6);
	err = vbn_rx_rule_add(device->group, &own, &id);
	return err ? err : vbn_rx_rule_add(device->group, &multicast, &id);
}

int devices_group(struct packet_run *run)
{
	const uint32_t n = (uint32_t)(run->n_workers * (int)run->conf.queues);

	for (int i = 0; i < run->n_devices; i++) {
		struct packet_device *device = &run->devices[i];
		struct vbn_rx_group_conf conf = {.n_queues = n};
		int err;

		if (!device->info.max_rx_queues)
			continue;
		if (n > device->info.max_rx_queues)
			return cannot(
				"port %s has %u receive queues, and %d workers with %lld each want %u: give fewer --cores or --queues",
				device->info.name, device->info.max_rx_queues, run->n_workers,
				(long long)run->conf.queues, n);
		err = vbn_rx_group_create(device->port, &conf, &device->group);
		if (!err)
			err = add_rules(run, device);
		if (err)
			return library_failed(err, "what a device receives cannot be had");
	}
	return 0;
}

void devices_ready(struct packet_run *run)
{
	for (int i = 0; i < run->n_devices; i++)
		vbn_port_drops(run->devices[i].port, run->devices[i].before, MAX_NAMED_DROPS);
}

void devices_close(struct packet_run *run)
{
	for (int i = run->n_devices - 1; i >= 0; i--) {
		vbn_rx_group_destroy(run->devices[i].group);
		vbn_port_close(run->devices[i].port);
	}
}

void devices_text(const struct packet_run *run, char text[160])
{
	snprintf(text, 160, "%s%s%s", run->devices[0].info.name,
		run->n_devices > 1 ? (run->command->forwards ? " <-> " : " and ") : "",
		run->n_devices > 1 ? run->devices[1].info.name : "");
}
