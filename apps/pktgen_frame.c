/* pktgen_frame.c - flows: ranges of addresses and ports, and the headers of each frame made of them */
#include "pktgen.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { ETHERNET = 14, TAG = 4, IPV4 = 20, IPV6 = 40, UDP = 8 };

/* ---- ranges: "first" or "first-last" ---- */

struct address_range {
	uint8_t first[16]; /* network order; IPv4 in the last 4 */
	uint64_t n;
	bool v6;
};

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

struct port_range {
	uint32_t first, n;
};

static int take_ports(const char *option, const char *text, struct port_range *range)
{
	unsigned int first, last;
	int used = 0, n = sscanf(text, "%5u%n", &first, &used);

	last = first;
	if (n == 1 && text[used] == '-') {
		text += used + 1;
		n = sscanf(text, "%5u%n", &last, &used);
	}
	if (n != 1 || text[used] || first > 65535 || last > 65535 || last < first)
		return usage_error(
			"option --%s cannot be that: it is no port; give one from 0 to 65535, or two with a dash between, the lower first",
			option);
	*range = (struct port_range){first, last - first + 1};
	return 0;
}

/* ---- headers ---- */

struct ends {
	struct address_range src, dst;
	struct port_range sport, dport;
};

static uint8_t *put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
	return to + 2;
}

static void address_of(const struct address_range *range, uint32_t i, uint8_t address[16])
{
	memcpy(address, range->first, 16);
	set_low_half(address, low_half(range->first) + i % range->n);
}

static uint8_t *put_ipv4(
	uint8_t *at, const uint8_t src[16], const uint8_t dst[16], uint8_t ttl, struct flow *flow)
{
	memset(at, 0, IPV4);
	at[0] = 0x45;
	at[8] = ttl;
	at[9] = 17;
	memcpy(at + 12, src + 12, 4);
	memcpy(at + 16, dst + 12, 4);
	for (int i = 0; i < IPV4; i += 2)
		flow->ip_sum += (uint32_t)(at[i] << 8 | at[i + 1]);
	return at + IPV4;
}

static uint8_t *put_ipv6(uint8_t *at, const uint8_t src[16], const uint8_t dst[16], uint8_t ttl)
{
	memset(at, 0, IPV6);
	at[0] = 0x60;
	at[6] = 17;
	at[7] = ttl;
	memcpy(at + 8, src, 16);
	memcpy(at + 24, dst, 16);
	return at + IPV6;
}

static void make_flow(const struct pattern *pattern, const struct ends *ends,
	const struct pktgen_options *conf, uint32_t i, struct flow *flow)
{
	uint8_t src[16], dst[16], *at = flow->bytes + 12;

	address_of(&ends->src, i, src);
	address_of(&ends->dst, i, dst);
	if (conf->vlan)
		at = put16(put16(at, 0x8100), (uint32_t)conf->vlan);
	at = put16(at, pattern->v6 ? 0x86dd : 0x0800);
	at = pattern->v6 ? put_ipv6(at, src, dst, (uint8_t)conf->ttl)
			 : put_ipv4(at, src, dst, (uint8_t)conf->ttl, flow);
	at = put16(at, ends->sport.first + i % ends->sport.n);
	at = put16(at, ends->dport.first + i % ends->dport.n);
	put16(put16(at, 0), 0);
}

/* ---- the pattern ---- */

static int take_ends(const struct pktgen_options *conf, struct ends *ends)
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

/* As many as the longest range has, where it is not said; and where no range is given, source ports make
 * the difference. */
static uint64_t count_flows(const struct pktgen_options *conf, struct ends *ends)
{
	const uint64_t ns[] = {ends->src.n, ends->dst.n, ends->sport.n, ends->dport.n};
	uint64_t most = 1;

	for (size_t i = 0; i < ARRAY_SIZE(ns); i++)
		most = ns[i] > most ? ns[i] : most;
	if (!conf->flows)
		return most < MAX_FLOWS ? most : MAX_FLOWS;
	if (most == 1 && (uint64_t)conf->flows <= 65536 - ends->sport.first)
		ends->sport.n = (uint32_t)conf->flows;
	return (uint64_t)conf->flows;
}

int pattern_make(
	struct pattern *pattern, const struct packet_run *run, const struct pktgen_options *conf)
{
	struct ends ends = {0};
	int status = take_ends(conf, &ends);

	if (status)
		return status;
	pattern->v6 = ends.src.v6;
	pattern->n_flows = (uint32_t)count_flows(conf, &ends);
	pattern->ip_at = ETHERNET + (conf->vlan ? TAG : 0);
	pattern->udp_at = pattern->ip_at + (pattern->v6 ? IPV6 : IPV4);
	pattern->header_len = pattern->udp_at + UDP;
	pattern->least = pattern->header_len + (uint32_t)sizeof(struct stamp);
	pattern->run = (uint32_t)(cmd_started_ns >> 10) * 2654435761u;
	pattern->flows = calloc(pattern->n_flows, sizeof(*pattern->flows));
	if (!pattern->flows)
		return cannot("flows cannot be made: there is no memory; give fewer --flows");
	for (uint32_t i = 0; i < pattern->n_flows; i++)
		make_flow(pattern, &ends, conf, i, &pattern->flows[i]);
	(void)run;
	return 0;
}

void pattern_free(struct pattern *pattern)
{
	free(pattern->flows);
}
