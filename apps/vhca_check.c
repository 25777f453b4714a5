/* vhca_check.c - the option values of `verbena vhca`: those that make no sense are refused here, as
 * the emulator itself only warns of them */
#include "vhca.h"

#include <arpa/inet.h>
#include <stdlib.h>

typedef bool check_fn(const char *text, size_t length);

/* ---- parts ---- */

static bool is_word(const char *text, size_t length, const char *const *words)
{
	for (; *words; words++)
		if (strlen(*words) == length && !memcmp(*words, text, length))
			return true;
	return false;
}

/* Digits, and nothing behind them. */
static bool is_number(const char *text, size_t length)
{
	return length && length < 19 && strspn(text, "0123456789") >= length;
}

static bool is_place(const char *text, size_t length)
{
	return is_number(text, length) && *text != '0';
}

/* How long a decimal number from 0 begins the text; 0: none does. */
static size_t decimal(const char *text, size_t length, double *value)
{
	char copy[32], *end;

	if (!length || length >= sizeof(copy) || *text < '0' || *text > '9')
		return 0;
	memcpy(copy, text, length);
	copy[length] = '\0';
	*value = strtod(copy, &end);
	return (size_t)(end - copy);
}

static bool is_rate(const char *text, size_t length)
{
	double value;

	return decimal(text, length, &value) == length && length && value <= 1;
}

static bool is_time(const char *text, size_t length)
{
	static const char *const units[] = {"", "s", "ms", "us", NULL};
	double value;
	size_t n = decimal(text, length, &value);

	return n && value > 0 && is_word(text + n, length - n, units);
}

/* "15@5": two hexadecimal digits, and a place. */
static bool is_syndrome(const char *text, size_t length)
{
	size_t n = strspn(text, "0123456789abcdefABCDEF");

	return n && n <= 2 && n < length && text[n] == '@' &&
		is_place(text + n + 1, length - n - 1);
}

/* ---- lists, a value for each device ---- */

static bool is_mtu(const char *text, size_t length)
{
	static const char *const words[] = {"256", "512", "1024", "2048", "4096", NULL};

	return is_word(text, length, words);
}

static bool is_node(const char *text, size_t length)
{
	if (length == 2 && !memcmp(text, "-1", 2))
		return true;
	return is_number(text, length) && length <= 4 && atoi(text) <= 1023;
}

static bool is_profile(const char *text, size_t length)
{
	static const char *const words[] = {"connectx5", "connectx4lx", NULL};

	return is_word(text, length, words);
}

static bool is_speed(const char *text, size_t length)
{
	static const char *const words[] = {"10", "25", "40", "50", "100", NULL};

	return is_word(text, length, words);
}

static int check_list(const char *name, const char *list, check_fn *check, const char *wanted)
{
	int n_values = 0;

	for (const char *text = list; text; n_values++) {
		size_t n = strcspn(text, ",");

		if (!check(text, n))
			return usage_error(
				"option --%s cannot have \"%.*s\": give %s, or a comma list of these, "
				"one for each device",
				name, (int)(n < 80 ? n : 80), text, wanted);
		text = text[n] ? text + n + 1 : NULL;
	}
	return n_values > 16
		? usage_error(
			  "option --%s has %d values: there are at most 16 devices", name, n_values)
		: 0;
}

/* ---- the others ---- */

static int check_address(const char *address)
{
	unsigned char raw[16];

	if (!address || inet_pton(AF_INET, address, raw) == 1 ||
		inet_pton(AF_INET6, address, raw) == 1)
		return 0;
	return usage_error(
		"option --address cannot be \"%.80s\": it is no address; give an IPv4 or IPv6 address",
		address);
}

static int check_wire(const char *wire)
{
	if (!wire || !strcmp(wire, "loopback") || !strcmp(wire, "udp"))
		return 0;
	if ((!strncmp(wire, "tap:", 4) && wire[4]) || (!strncmp(wire, "packet:", 7) && wire[7]))
		return 0;
	return usage_error(
		"option --wire cannot be \"%.80s\": there is no such wire; give loopback, udp, "
		"tap:INTERFACE or packet:INTERFACE",
		wire);
}

static bool fault_is_known(const char *text, size_t length)
{
	static const struct {
		const char *name;
		check_fn *check; /* of what follows; NULL: nothing does */
	} faults[] = {
		{"msg-drop=", is_place},
		{"msg-double=", is_place},
		{"msg-alter=", is_place},
		{"syndrome=", is_syndrome},
		{"loss=", is_rate},
		{"reorder=", is_rate},
		{"duplicate=", is_rate},
		{"corrupt=", is_rate},
		{"rnr=", is_rate},
		{"delay=", is_time},
		{"port-flap=", is_time},
		{"device-fatal=", is_time},
		{"torn", NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		size_t n = strlen(faults[i].name);

		if (length < n || memcmp(text, faults[i].name, n))
			continue;
		return faults[i].check ? faults[i].check(text + n, length - n) : length == n;
	}
	return false;
}

static int check_fault(const char *fault)
{
	for (size_t n; fault && *fault; fault += n + (fault[n] == ',')) {
		n = strcspn(fault, ",");
		if (!fault_is_known(fault, n))
			return usage_error(
				"option --fault cannot have \"%.*s\": there is no such fault; verbena "
				"vhca --help lists them",
				(int)(n < 80 ? n : 80), fault);
	}
	return 0;
}

int vhca_check(const struct vhca_options *conf)
{
	int status = check_address(conf->address);

	if (!status)
		status = check_wire(conf->wire);
	if (!status)
		status = check_fault(conf->fault);
	if (!status)
		status = check_list("mtu", conf->mtu, is_mtu, "256, 512, 1024, 2048 or 4096");
	if (!status)
		status = check_list("node", conf->node, is_node, "a node from -1 to 1023");
	if (!status)
		status = check_list(
			"profile", conf->profile, is_profile, "connectx5 or connectx4lx");
	if (!status)
		status = check_list("speed", conf->speed, is_speed, "10, 25, 40, 50 or 100 Gbit/s");
	return status;
}
