/* options.c - VHCA_* in the environment: what kind of devices there are, and how they behave
 *
 * The command line of `verbena vhca` mirrors these one to one. A bad value never stops a program
 * that merely has the emulator preloaded: it is one sentence on standard error, and the default
 * holds.
 *
 * VHCA_MTU, VHCA_NODE, VHCA_PROFILE and VHCA_SPEED are comma lists, a value for each device; the
 * last one is also that of the devices behind it: VHCA_DEVICES=3 VHCA_MTU=1024,4096 gives 1024,
 * 4096 and 4096.
 */
#include "front.h"

#include <arpa/inet.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

/* Takes the text into *options; NULL, or what is wrong with it: "is not …". */
typedef const char *parse_fn(struct vhca_options *options, const char *text);

static const char *parse_number(const char *text, long long low, long long high, long long *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 0);
	if (end == text || *end || errno || *value < low || *value > high)
		return "is not a number in its range";
	return NULL;
}

static const char *parse_devices(struct vhca_options *options, const char *text)
{
	long long value;

	if (parse_number(text, 1, VHCA_MAX_DEVICES, &value))
		return "is not a count from 1 to 16";
	options->n_devices = (int)value;
	return NULL;
}

/* ---- what each device has of its own ---- */

typedef const char *parse_one_fn(struct vhca_device_options *device, const char *text);

/* Takes a list, the last value of which is repeated. */
static const char *parse_each(struct vhca_options *options, const char *list, parse_one_fn *parse)
{
	for (size_t i = 0; i < VHCA_MAX_DEVICES; i++) {
		size_t n = strcspn(list, ",");
		const char *wrong;
		char text[32];

		snprintf(text, sizeof(text), "%.*s", (int)min(n, sizeof(text)), list);
		wrong = parse(&options->device[i], text);
		if (wrong)
			return wrong;
		if (list[n])
			list += n + 1;
		else if (i < VHCA_MAX_DEVICES - 1)
			continue;
		else
			return NULL;
	}
	return "has values for more than 16 devices";
}

static const char *parse_one_mtu(struct vhca_device_options *device, const char *text)
{
	long long value;

	if (parse_number(text, 256, 4096, &value) || !is_pow2((uint64_t)value))
		return "is not 256, 512, 1024, 2048 or 4096, or a list of these";
	device->mtu = (int)value;
	return NULL;
}

static const char *parse_mtu(struct vhca_options *options, const char *text)
{
	return parse_each(options, text, parse_one_mtu);
}

static const char *parse_one_node(struct vhca_device_options *device, const char *text)
{
	long long value;

	if (parse_number(text, -1, 1023, &value))
		return "is not a NUMA node from 0 to 1023, or -1 for none, or a list of these";
	device->node = (int)value;
	return NULL;
}

static const char *parse_node(struct vhca_options *options, const char *text)
{
	return parse_each(options, text, parse_one_node);
}

static const char *parse_one_profile(struct vhca_device_options *device, const char *text)
{
	return vhca_facts_named(text, &device->profile)
		? NULL
		: "is not connectx5 or connectx4lx, or a list of these";
}

static const char *parse_profile(struct vhca_options *options, const char *text)
{
	return parse_each(options, text, parse_one_profile);
}

static const char *parse_one_speed(struct vhca_device_options *device, const char *text)
{
	long long value;

	if (parse_number(text, 1, 1000, &value))
		return "is not 10, 25, 40, 50 or 100 Gbit/s, or a list of these";
	device->speed = (int)value;
	return NULL;
}

static const char *parse_speed(struct vhca_options *options, const char *text)
{
	return parse_each(options, text, parse_one_speed);
}

/* Only when all is read is it known which card shall have the speed. */
static void settle_speed(struct vhca_device_options *device, int index)
{
	const struct vhca_facts *facts = vhca_facts(device->profile);
	int asked = device->speed;

	device->speed = facts->speed;
	for (size_t i = 0; asked && i < ARRAY_SIZE(facts->speeds); i++)
		if (facts->speeds[i] == asked)
			device->speed = asked;
	if (asked && device->speed != asked)
		log_warning(
			"vhca: VHCA_SPEED gives mlx5_%d %d Gbit/s, which a %s does not have; it runs at %d",
			index, asked, facts->name, device->speed);
}

/* ---- what all have in common ---- */

static const char *parse_strict(struct vhca_options *options, const char *text)
{
	if (!strcmp(text, "report"))
		options->strict = VHCA_REPORT;
	else if (!strcmp(text, "error"))
		options->strict = VHCA_ERROR;
	else if (!strcmp(text, "abort"))
		options->strict = VHCA_ABORT;
	else
		return "is not report, error or abort";
	return NULL;
}

static const char *parse_trap(struct vhca_options *options, const char *text)
{
	options->trap = !strcmp(text, "1");
	return strcmp(text, "0") && strcmp(text, "1") ? "is neither 0 nor 1" : NULL;
}

static const char *parse_devx(struct vhca_options *options, const char *text)
{
	options->devx = !strcmp(text, "1");
	return strcmp(text, "0") && strcmp(text, "1") ? "is neither 0 nor 1" : NULL;
}

static const char *parse_idle(struct vhca_options *options, const char *text)
{
	options->doze = !strcmp(text, "doze");
	return strcmp(text, "doze") && strcmp(text, "nap") ? "is neither doze nor nap" : NULL;
}

static const char *parse_seed(struct vhca_options *options, const char *text)
{
	char *end;

	errno = 0;
	options->seed = strtoull(text, &end, 0);
	return end == text || *end || errno || *text == '-' ? "is not a 64-bit number" : NULL;
}

static bool parse_raw(const char *text, uint8_t raw[16], bool *ipv4)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	*ipv4 = inet_pton(AF_INET, text, raw + 12) == 1;
	if (!*ipv4)
		return inet_pton(AF_INET6, text, raw) == 1;
	memcpy(raw, mapped, sizeof(mapped));
	return true;
}

/* What stands behind a mark in the text, which ends at the mark then. */
static bool parse_suffix(char *text, char mark, long long high, long long *value)
{
	char *at = strrchr(text, mark);

	*value = 0;
	if (!at)
		return true;
	*at = '\0';
	return !parse_number(at + 1, 1, high, value);
}

/* One that a port can have: no group's, and not the broadcast or the unspecified one. */
static bool is_host(const uint8_t raw[16], bool ipv4)
{
	static const uint8_t none[16];
	uint8_t first = raw[ipv4 ? 12 : 0];

	return memcmp(raw + (ipv4 ? 12 : 0), none, ipv4 ? 4 : 16) &&
		(ipv4 ? first < 224 : first != 0xff);
}

/* ADDRESS[/PREFIX][@VLAN] */
static bool parse_one_address(char *text, struct vhca_address *address)
{
	long long prefix, vlan;
	bool ipv4;

	if (!parse_suffix(text, '@', 4094, &vlan) || !parse_suffix(text, '/', 128, &prefix) ||
		!parse_raw(text, address->raw, &ipv4) || !is_host(address->raw, ipv4) ||
		(ipv4 && prefix > 32))
		return false;
	address->prefix = (uint8_t)(prefix && ipv4 ? 96 + prefix : prefix);
	address->vlan = (uint16_t)vlan;
	return true;
}

static bool parse_addresses(
	const char *list, struct vhca_address *addresses, uint32_t max, uint32_t *n)
{
	for (*n = 0; *n < max; list++) {
		size_t length = strcspn(list, ",");
		char text[64];

		snprintf(text, sizeof(text), "%.*s", (int)min(length, sizeof(text)), list);
		if (!parse_one_address(text, &addresses[(*n)++]))
			return false;
		list += length;
		if (!*list)
			return true;
	}
	return false;
}

static const char *parse_address(struct vhca_options *options, const char *text)
{
	options->of_interface = !strcmp(text, "interface");
	if (options->of_interface ||
		parse_addresses(
			text, options->addresses, VHCA_MAX_ADDRESSES, &options->n_addresses))
		return NULL;
	return "is not an IPv4 or IPv6 address, perhaps with /PREFIX and @VLAN behind it, nor a list "
	       "of up to 8 of these, nor \"interface\"";
}

static const char *parse_gateway(struct vhca_options *options, const char *text)
{
	return parse_addresses(text, options->gateways, VHCA_MAX_GATEWAYS, &options->n_gateways)
		? NULL
		: "is not an IPv4 or IPv6 address, nor a list of up to 8 of these";
}

static const char *parse_wire(struct vhca_options *options, const char *text)
{
	bool plain = !strcmp(text, "loopback") || !strcmp(text, "udp");
	const char *interface = !strncmp(text, "tap:", 4) ? text + 4
		: !strncmp(text, "packet:", 7)            ? text + 7
							  : "";

	if (!plain && (!*interface || strlen(interface) >= IFNAMSIZ))
		return "is not a wire that exists: loopback, udp, tap:INTERFACE or packet:INTERFACE";
	snprintf(options->wire, sizeof(options->wire), "%s", text);
	return NULL;
}

/* A copy: the environment is the program's to change. */
static const char *keep(const char **place, const char *text)
{
	*place = strdup(text);
	return *place ? NULL : "finds no memory";
}

static const char *parse_fault(struct vhca_options *options, const char *text)
{
	return keep(&options->fault, text);
}

static const char *parse_trace(struct vhca_options *options, const char *text)
{
	return keep(&options->trace, text);
}

static const char *parse_pcap(struct vhca_options *options, const char *text)
{
	return keep(&options->pcap, text);
}

static const struct vhca_options defaults = {
	.n_devices = 1,
	.device[0 ... VHCA_MAX_DEVICES - 1] = {.mtu = 1024, .node = -1, .profile = VHCA_CONNECTX5},
	.strict = VHCA_REPORT,
	.doze = true,
	.seed = 1,
	.fault = "",
	.trace = "",
	.pcap = "",
	.addresses[0].raw = {[10] = 0xff, [11] = 0xff, 127, 0, 0, 1},
	.n_addresses = 1,
	.wire = "udp",
};

static const struct {
	const char *name;
	parse_fn *parse;
} variables[] = {
	{"VHCA_DEVICES", parse_devices},
	{"VHCA_ADDRESS", parse_address},
	{"VHCA_GATEWAY", parse_gateway},
	{"VHCA_WIRE", parse_wire},
	{"VHCA_MTU", parse_mtu},
	{"VHCA_NODE", parse_node},
	{"VHCA_PROFILE", parse_profile},
	{"VHCA_SPEED", parse_speed},
	{"VHCA_STRICT", parse_strict},
	{"VHCA_TRAP", parse_trap},
	{"VHCA_DEVX", parse_devx},
	{"VHCA_IDLE", parse_idle},
	{"VHCA_FAULT", parse_fault},
	{"VHCA_SEED", parse_seed},
	{"VHCA_TRACE", parse_trace},
	{"VHCA_PCAP", parse_pcap},
};

/* Only Ethernet carries more than one address to others, and only behind an interface is there one
 * whose addresses can be had. */
static void settle_addresses(struct vhca_options *options)
{
	if (options->of_interface && strncmp(options->wire, "packet:", 7)) {
		log_warning(
			"vhca: VHCA_ADDRESS is \"interface\", but the wire is %s: plug the port "
			"into packet:INTERFACE, or name an address; the default holds",
			options->wire);
		options->of_interface = false;
	}
	if (options->of_interface && options->n_devices > 1) {
		log_warning(
			"vhca: VHCA_ADDRESS is \"interface\", which one device can be: there is "
			"mlx5_0 alone");
		options->n_devices = 1;
	}
	if (options->n_addresses > 1 && !strcmp(options->wire, "udp")) {
		log_warning(
			"vhca: VHCA_ADDRESS has %u addresses, but a port on UDP has one: plug it "
			"into tap:INTERFACE or packet:INTERFACE; it has the first",
			options->n_addresses);
		options->n_addresses = 1;
	}
}

static struct vhca_options current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
	current = defaults;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		struct vhca_options trial = current;
		const char *text = getenv(variables[i].name);
		const char *wrong = text && *text ? variables[i].parse(&trial, text) : NULL;

		if (!text || !*text)
			continue;
		if (wrong)
			log_warning("vhca: %s is \"%.80s\", which %s; the default holds",
				variables[i].name, text, wrong);
		else
			current = trial;
	}
	for (int i = 0; i < current.n_devices; i++)
		settle_speed(&current.device[i], i);
	settle_addresses(&current);
}

const struct vhca_options *vhca_options(void)
{
	pthread_once(&once, read_environment);
	return &current;
}

bool vhca_address_asked(void)
{
	const struct vhca_address *first = &vhca_options()->addresses[0];
	const struct vhca_address *other = &defaults.addresses[0];

	return memcmp(first->raw, other->raw, sizeof(first->raw)) ||
		first->prefix != other->prefix || first->vlan != other->vlan;
}
