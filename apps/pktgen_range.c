/* pktgen_range.c - ranges of addresses and ports, "first" or "first-last", and the mix of sizes */
#include "pktgen.h"

#include <arpa/inet.h>
#include <stdlib.h>

/* ---- addresses and ports ---- */

static bool parse_address(const char *text, size_t length, uint8_t address[16], bool *v6)
{
	char one[64];

	if (length >= sizeof(one))
		return false;
	memcpy(one, text, length);
	one[length] = 0;
	memset(address, 0, 16);
	*v6 = strchr(one, ':');
	return inet_pton(*v6 ? AF_INET6 : AF_INET, one, *v6 ? address : address + 12) == 1;
}

static uint64_t low_half(const uint8_t address[16])
{
	uint64_t half = 0;

	for (int i = 8; i < 16; i++)
		half = half << 8 | address[i];
	return half;
}

static void set_low_half(uint8_t address[16], uint64_t half)
{
	for (int i = 15; i >= 8; i--, half >>= 8)
		address[i] = (uint8_t)half;
}

/* The ends of a range differ in their lower 64 bits. */
static int take_addresses(const char *option, const char *text, struct address_range *range)
{
	const char *dash = strchr(text, '-');
	size_t length = dash ? (size_t)(dash - text) : strlen(text);
	uint8_t last[16];
	bool v6 = false;

	if (!parse_address(text, length, range->first, &range->v6) ||
		(dash && !parse_address(dash + 1, strlen(dash + 1), last, &v6)))
		return usage_error(
			"option --%s cannot be \"%.80s\": it is no address; give one, or two with a dash between, as 10.0.0.1-10.0.0.9 or fd00::1",
			option, text);
	range->n = 1;
	if (!dash)
		return 0;
	if (v6 != range->v6 || memcmp(last, range->first, 8) ||
		low_half(last) < low_half(range->first))
		return usage_error(
			"option --%s cannot be \"%.80s\": the range ends before it begins, or is longer than 64 bits; give the lower address first",
			option, text);
	range->n = low_half(last) - low_half(range->first) + 1;
	return 0;
}

static int take_ports(const char *option, const char *text, struct port_range *range)
{
	unsigned int first, last;
	const char *at = text;
	int used = 0, n = sscanf(at, "%5u%n", &first, &used);

	last = first;
	if (n == 1 && at[used] == '-') {
		at += used + 1;
		n = sscanf(at, "%5u%n", &last, &used);
	}
	if (n != 1 || at[used] || first > 65535 || last > 65535 || last < first)
		return usage_error(
			"option --%s cannot be \"%.80s\": it is no port; give one from 0 to 65535, or two with a dash between, the lower first",
			option, text);
	*range = (struct port_range){first, last - first + 1};
	return 0;
}

void address_of(const struct address_range *range, uint32_t i, uint8_t address[16])
{
	memcpy(address, range->first, 16);
	set_low_half(address, low_half(range->first) + i % range->n);
}

bool address_is_of(const struct address_range *range, const uint8_t address[16])
{
	return !memcmp(address, range->first, 8) &&
		low_half(address) - low_half(range->first) < range->n;
}

int ends_take(const struct pktgen_options *conf, struct ends *ends)
{
	int status =
		take_addresses("src-ip", conf->src_ip ? conf->src_ip : "198.18.0.1", &ends->src);
	const char *otherwise = ends->src.v6 ? "2001:2::2" : "198.19.0.1";

	if (!conf->src_ip && conf->dst_ip && strchr(conf->dst_ip, ':'))
		status = take_addresses("src-ip", "2001:2::1", &ends->src);
	if (!status)
		status = take_addresses(
			"dst-ip", conf->dst_ip ? conf->dst_ip : otherwise, &ends->dst);
	if (!status)
		status = take_ports("sport", conf->sport ? conf->sport : "1024", &ends->sport);
	if (!status)
		status = take_ports("dport", conf->dport ? conf->dport : "9", &ends->dport);
	if (!status && ends->src.v6 != ends->dst.v6)
		status = usage_error(
			"options --src-ip and --dst-ip contradict each other: give both as IPv4, or both as IPv6");
	return status;
}

/* ---- sizes ---- */

/* "SIZE" or "SIZE-SIZE", perhaps with ":SHARE" behind. */
static int take_size(const char *text, size_t length, struct size_mix *mix)
{
	static const struct option size = {
		.value = VALUE_RANGE, .low = LEAST_FRAME, .high = MAX_FRAME};
	static const struct option share = {.value = VALUE_COUNT, .low = 1, .high = 1000};
	struct size_part *part = &mix->parts[mix->n++];
	char one[64], *colon;
	int64_t ends[2], of = 1;
	int status;

	snprintf(one, sizeof(one), "%.*s", (int)length, text);
	colon = strchr(one, ':');
	if (colon)
		*colon = 0;
	status = option_take(&size, "option --size", one, ends);
	if (!status && colon)
		status = option_take(&share, "the share in option --size", colon + 1, &of);
	if (status)
		return status;
	*part = (struct size_part){
		.first = (uint32_t)ends[0], .last = (uint32_t)ends[1], .share = (uint32_t)of};
	mix->shares += part->share;
	return 0;
}

int sizes_take(const char *text, struct size_mix *mix)
{
	int status = 0;

	if (!strcmp(text, "imix"))
		text = "60:7,590:4,1514:1";
	for (; text && !status; text = strchr(text, ','), text += text != NULL) {
		if (mix->n == MAX_SIZES)
			return usage_error(
				"option --size lists more than %d sizes: give fewer", MAX_SIZES);
		status = take_size(text, strcspn(text, ","), mix);
	}
	return status;
}

uint32_t sizes_least(const struct size_mix *mix)
{
	uint32_t least = MAX_FRAME;

	for (int i = 0; i < mix->n; i++)
		least = mix->parts[i].first < least ? mix->parts[i].first : least;
	return least;
}

uint32_t sizes_most(const struct size_mix *mix)
{
	uint32_t most = 0;

	for (int i = 0; i < mix->n; i++)
		most = mix->parts[i].last > most ? mix->parts[i].last : most;
	return most;
}

double sizes_mean(const struct size_mix *mix)
{
	double sum = 0;

	for (int i = 0; i < mix->n; i++)
		sum += mix->parts[i].share * (mix->parts[i].first + (double)mix->parts[i].last) / 2;
	return sum / mix->shares;
}
