/* options.c - VHCA_* in the environment: what kind of devices there are, and how they behave
 *
 * The command line of `verbena vhca` mirrors these one to one. A bad value never stops a program
 * that merely has the emulator preloaded: it is one sentence on standard error, and the default
 * holds.
 */
#include "front.h"

#include <arpa/inet.h>
#include <limits.h>
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

static const char *parse_mtu(struct vhca_options *options, const char *text)
{
	long long value;

	if (parse_number(text, 256, 4096, &value) || !is_pow2((uint64_t)value))
		return "is not 256, 512, 1024, 2048 or 4096";
	options->mtu = (int)value;
	return NULL;
}

static const char *parse_node(struct vhca_options *options, const char *text)
{
	long long value;

	if (parse_number(text, -1, 1023, &value))
		return "is not a NUMA node from 0 to 1023, or -1 for none";
	options->node = (int)value;
	return NULL;
}

static const char *parse_profile(struct vhca_options *options, const char *text)
{
	if (!strcmp(text, "connectx5"))
		options->profile = VHCA_CONNECTX5;
	else if (!strcmp(text, "connectx4lx"))
		options->profile = VHCA_CONNECTX4LX;
	else
		return "is not connectx5 or connectx4lx";
	return NULL;
}

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

static const char *parse_seed(struct vhca_options *options, const char *text)
{
	char *end;

	errno = 0;
	options->seed = strtoull(text, &end, 0);
	return end == text || *end || errno || *text == '-' ? "is not a 64-bit number" : NULL;
}

static const char *parse_address(struct vhca_options *options, const char *text)
{
	unsigned char raw[16];

	if (inet_pton(AF_INET, text, raw) != 1 && inet_pton(AF_INET6, text, raw) != 1)
		return "is not an IPv4 or IPv6 address";
	snprintf(options->address, sizeof(options->address), "%s", text);
	return NULL;
}

static const char *parse_wire(struct vhca_options *options, const char *text)
{
	if (strcmp(text, "loopback"))
		return "is not a wire that exists: loopback";
	snprintf(options->wire, sizeof(options->wire), "%s", text);
	return NULL;
}

static const char *parse_fault(struct vhca_options *options, const char *text)
{
	if (strlen(text) >= sizeof(options->fault))
		return "is longer than 255 characters";
	snprintf(options->fault, sizeof(options->fault), "%s", text);
	return NULL;
}

static const struct vhca_options defaults = {
	.n_devices = 1,
	.mtu = 1024,
	.node = -1,
	.profile = VHCA_CONNECTX5,
	.strict = VHCA_REPORT,
	.seed = 1,
	.address = "127.0.0.1",
	.wire = "loopback",
};

static const struct {
	const char *name;
	parse_fn *parse;
} variables[] = {
	{"VHCA_DEVICES", parse_devices},
	{"VHCA_ADDRESS", parse_address},
	{"VHCA_WIRE", parse_wire},
	{"VHCA_MTU", parse_mtu},
	{"VHCA_NODE", parse_node},
	{"VHCA_PROFILE", parse_profile},
	{"VHCA_STRICT", parse_strict},
	{"VHCA_FAULT", parse_fault},
	{"VHCA_SEED", parse_seed},
};

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
}

const struct vhca_options *vhca_options(void)
{
	pthread_once(&once, read_environment);
	return &current;
}
