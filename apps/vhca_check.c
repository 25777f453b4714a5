/* vhca_check.c - the option values of `verbena vhca`: those that make no sense are refused here, as
 * the emulator itself only warns of them */
#include "vhca.h"

#include <arpa/inet.h>
#include <net/if.h>
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

/* What the emulator's clock takes: from a microsecond to a million seconds. */
static bool is_time(const char *text, size_t length)
{
	static const struct {
		const char *name;
		double us;
	} units[] = {{"", 1e6}, {"s", 1e6}, {"ms", 1e3}, {"us", 1}};
	double value;
	size_t n = decimal(text, length, &value);

	for (size_t i = 0; n && i < ARRAY_SIZE(units); i++)
		if (strlen(units[i].name) == length - n &&
			!memcmp(units[i].name, text + n, length - n))
			return value * units[i].us >= 1 && value * units[i].us < 1e12;
	return false;
}

/* "15@5", "0x15@5": one or two hexadecimal digits that are not 0, and a place. */
static bool is_syndrome(const char *text, size_t length)
{
	size_t n;

	if (length > 2 && !strncmp(text, "0x", 2)) {
		text += 2;
		length -= 2;
	}
	n = strspn(text, "0123456789abcdefABCDEF");
	return n && n <= 2 && n < length && text[n] == '@' && strspn(text, "0") < n &&
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

/* Unless it is told, there is one. */
static int n_devices(const struct vhca_options *conf)
{
	return conf->devices ? (int)conf->devices : 1;
}

static int check_list(const struct vhca_options *conf, const char *name, const char *list,
	check_fn *check, const char *wanted)
{
	char called[64];
	int n_values = 0, n = n_devices(conf);

	vhca_called(conf, name, called);

	for (const char *text = list; text; n_values++) {
		size_t length = strcspn(text, ",");

		if (!check(text, length))
			return usage_error(
				"%s cannot have \"%.*s\": give %s, or a comma list of these, "
				"one for each device",
				called, (int)(length < 80 ? length : 80), text, wanted);
		text = text[length] ? text + length + 1 : NULL;
	}
	return n_values > n
		? usage_error("%s has %d values: there %s %d device%s; give fewer, or --devices",
			  called, n_values, n > 1 ? "are" : "is", n, n > 1 ? "s" : "")
		: 0;
}

/* ---- the others ---- */

/* What stands behind a mark in the text, which ends at the mark then. */
static bool take_suffix(char *text, char mark, long high)
{
	char *at = strrchr(text, mark), *end = NULL;
	long value;

	if (!at)
		return true;
	*at++ = '\0';
	value = strtol(at, &end, 10);
	return *at >= '1' && *at <= '9' && !*end && value <= high;
}

/* One that a port can have, and no multicast group, broadcast, or the unspecified one. */
static bool is_host(const unsigned char *raw, bool ipv4)
{
	static const unsigned char none[16];

	return memcmp(raw, none, ipv4 ? 4 : 16) && (ipv4 ? *raw < 224 : *raw != 0xff);
}

/* ADDRESS[/PREFIX][@VLAN] */
static bool is_address(const char *from, size_t length)
{
	unsigned char raw[16];
	char text[64];
	bool ipv4;

	if (length >= sizeof(text))
		return false;
	snprintf(text, sizeof(text), "%.*s", (int)length, from);
	if (!take_suffix(text, '@', 4094))
		return false;
	ipv4 = !strchr(text, ':');
	return take_suffix(text, '/', ipv4 ? 32 : 128) &&
		inet_pton(ipv4 ? AF_INET : AF_INET6, text, raw) == 1 && is_host(raw, ipv4);
}

static int check_addresses(const struct vhca_options *conf, const char *name, const char *list)
{
	const char *text = list;
	char called[64];
	int n = 0;

	while (text && is_address(text, strcspn(text, ","))) {
		n++;
		text += strcspn(text, ",");
		text = *text ? text + 1 : NULL;
	}
	if (!text && n <= 8)
		return 0;
	return usage_error(
		"%s cannot be \"%.80s\": it is no host's address; give an IPv4 or IPv6 address, "
		"with /PREFIX and @VLAN behind it where it has them, or a list of up to 8",
		vhca_called(conf, name, called), list);
}

static int check_address(const struct vhca_options *conf)
{
	char called[64];

	if (!conf->address || strcmp(conf->address, "interface"))
		return check_addresses(conf, "address", conf->address);
	if (conf->wire && !strncmp(conf->wire, "packet:", 7))
		return 0;
	return usage_error("%s cannot be \"interface\" without one: give the wire packet:INTERFACE",
		vhca_called(conf, "address", called));
}

static int check_wire(const struct vhca_options *conf)
{
	const char *wire = conf->wire, *interface;
	char called[64];

	if (!wire || !strcmp(wire, "loopback") || !strcmp(wire, "udp"))
		return 0;
	interface = !strncmp(wire, "tap:", 4)  ? wire + 4
		: !strncmp(wire, "packet:", 7) ? wire + 7
					       : "";
	if (strlen(interface) >= IFNAMSIZ)
		return usage_error("%s cannot be \"%.80s\": the name of an interface has at most "
				   "%d characters; give one that there is",
			vhca_called(conf, "wire", called), wire, IFNAMSIZ - 1);
	if (*interface)
		return 0;
	return usage_error("%s cannot be \"%.80s\": there is no such wire; give loopback, udp, "
			   "tap:INTERFACE or packet:INTERFACE",
		vhca_called(conf, "wire", called), wire);
}

/* ---- faults ---- */

#define PLACE "the number of a SEND, from 1"
#define RATE  "a part of 1, from 0 to 1"
#define TIME  "a time from 1us to a million seconds, in s, ms or us"

/* NULL, or what is wrong with a fault. */
static const char *wrong_fault(const char *text, size_t length)
{
	static const struct {
		const char *name;
		check_fn *check; /* of what follows; NULL: nothing does */
		const char *wanted;
	} faults[] = {
		{"msg-drop", is_place, "it wants " PLACE},
		{"msg-double", is_place, "it wants " PLACE},
		{"msg-alter", is_place, "it wants " PLACE},
		{"syndrome", is_syndrome,
			"it wants a syndrome of two hexadecimal digits, not 0, and behind an @ the number "
			"of a WQE, from 1, as 13@500"},
		{"loss", is_rate, "it wants " RATE},
		{"reorder", is_rate, "it wants " RATE},
		{"duplicate", is_rate, "it wants " RATE},
		{"corrupt", is_rate, "it wants " RATE},
		{"rnr", is_place, "it wants the number of a message that wants a receive, from 1"},
		{"delay", is_time, "it wants " TIME},
		{"delay-cqe", is_time, "it wants " TIME},
		{"port-flap", is_time, "it wants " TIME},
		{"device-fatal", is_time, "it wants " TIME},
		{"torn", NULL, "it takes no value"},
	};
	size_t n = strcspn(text, "=,");

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		bool right;

		if (strlen(faults[i].name) != n || memcmp(text, faults[i].name, n))
			continue;
		right = faults[i].check
			? n < length && faults[i].check(text + n + 1, length - n - 1)
			: n == length;
		return right ? NULL : faults[i].wanted;
	}
	return "there is no such fault";
}

static int check_fault(const struct vhca_options *conf)
{
	const char *fault = conf->fault;
	char called[64];

	for (size_t n; fault && *fault; fault += n + (fault[n] == ',')) {
		const char *wrong;

		n = strcspn(fault, ",");
		wrong = wrong_fault(fault, n);
		if (wrong)
			return usage_error(
				"%s cannot have \"%.*s\": %s; verbena vhca --help lists the faults",
				vhca_called(conf, "fault", called), (int)(n < 80 ? n : 80), fault,
				wrong);
	}
	return 0;
}

int vhca_check(const struct vhca_options *conf)
{
	int status = check_address(conf);

	if (!status)
		status = check_addresses(conf, "gateway", conf->gateway);
	if (!status)
		status = check_wire(conf);
	if (!status)
		status = check_fault(conf);
	if (!status)
		status = check_list(conf, "mtu", conf->mtu, is_mtu, "256, 512, 1024, 2048 or 4096");
	if (!status)
		status = check_list(conf, "node", conf->node, is_node, "a node from -1 to 1023");
	if (!status)
		status = check_list(
			conf, "profile", conf->profile, is_profile, "connectx5 or connectx4lx");
	if (!status)
		status = check_list(
			conf, "speed", conf->speed, is_speed, "10, 25, 40, 50 or 100 Gbit/s");
	return status;
}
