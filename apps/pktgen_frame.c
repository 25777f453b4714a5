/* pktgen_frame.c - protocols and flows: the headers of each frame, and what of them is still to be filled in */
#include "pktgen.h"

#include <stdlib.h>

enum { SYN = 0x02, PUSH_ACK = 0x18 };
enum { ICMP4_ECHO = 8, ICMP6_ECHO = 128 };
enum { TYPE_EXPERIMENT = 0x88b5 }; /* IEEE 802's, for local experiments */

/* ---- headers ---- */

static uint8_t *put_bytes(uint8_t *to, const void *bytes, size_t n)
{
	memcpy(to, bytes, n);
	return to + n;
}

/* As they lie in memory. */
static uint64_t sum_words(const uint8_t *at, size_t n)
{
	uint64_t sum = 0;
	uint16_t word;

	for (size_t i = 0; i < n; i += 2) {
		memcpy(&word, at + i, 2);
		sum += word;
	}
	return sum;
}

struct plan {
	const struct pattern *pattern;
	const struct pktgen_options *conf;
	uint8_t src[16], dst[16];
	uint32_t sport, dport;
};

static uint8_t ip_protocol(const struct plan *plan)
{
	switch (plan->conf->protocol) {
	case PROTOCOL_UDP: return 17;
	case PROTOCOL_ICMP: return plan->pattern->v6 ? ICMP6 : ICMP4;
	default: return 6;
	}
}

static uint8_t *put_ipv4(const struct plan *plan, uint8_t *at)
{
	memset(at, 0, IPV4);
	at[0] = 0x45;
	at[8] = (uint8_t)plan->conf->ttl;
	at[9] = ip_protocol(plan);
	memcpy(at + 12, plan->src + 12, 4);
	memcpy(at + 16, plan->dst + 12, 4);
	return at + IPV4;
}

static uint8_t *put_ipv6(const struct plan *plan, uint8_t *at)
{
	memset(at, 0, IPV6);
	at[0] = 0x60;
	at[6] = ip_protocol(plan);
	at[7] = (uint8_t)plan->conf->ttl;
	memcpy(at + 8, plan->src, 16);
	memcpy(at + 24, plan->dst, 16);
	return at + IPV6;
}

/* A question; the sender's MAC is the lane's. */
static void put_arp(const struct plan *plan, uint8_t *at)
{
	at = put16(put16(at, 1), TYPE_IPV4);
	*at++ = 6;
	*at++ = 4;
	at = put16(at, 1) + 6;
	at = put_bytes(at, plan->src + 12, 4) + 6;
	put_bytes(at, plan->dst + 12, 4);
}

static void put_udp(const struct plan *plan, uint8_t *at)
{
	put16(put16(at, plan->sport), plan->dport);
}

static void put_tcp(const struct plan *plan, uint8_t *at)
{
	const bool syn = plan->conf->protocol == PROTOCOL_TCP_SYN;

	put16(put16(at, plan->sport), plan->dport);
	at[11] = !syn; /* acknowledged */
	at[12] = TCP / 4 << 4;
	at[13] = syn ? SYN : PUSH_ACK;
	put16(at + 14, 65535);
}

static void put_icmp(const struct plan *plan, uint8_t *at)
{
	at[0] = plan->pattern->v6 ? ICMP6_ECHO : ICMP4_ECHO;
	put16(at + 4, plan->sport);
}

static void put_layer4(const struct plan *plan, uint8_t *at)
{
	switch (plan->conf->protocol) {
	case PROTOCOL_UDP: put_udp(plan, at); return;
	case PROTOCOL_ICMP: put_icmp(plan, at); return;
	default: put_tcp(plan, at);
	}
}

/* With the pseudo header, but for its length; ICMP over IPv4 has none. */
static uint64_t layer4_sum(const struct plan *plan, const uint8_t *at, size_t n)
{
	const bool v6 = plan->pattern->v6;
	uint64_t sum = sum_words(at, n);
	uint8_t protocol[2] = {0, ip_protocol(plan)};

	if (plan->conf->protocol == PROTOCOL_ICMP && !v6)
		return sum;
	sum += sum_words(protocol, 2);
	return sum + sum_words(plan->src + (v6 ? 0 : 12), v6 ? 16 : 4) +
		sum_words(plan->dst + (v6 ? 0 : 12), v6 ? 16 : 4);
}

static uint32_t ether_type(const struct plan *plan)
{
	if (plan->conf->protocol == PROTOCOL_ETHERNET)
		return TYPE_EXPERIMENT;
	if (plan->conf->protocol == PROTOCOL_ARP)
		return TYPE_ARP;
	return plan->pattern->v6 ? TYPE_IPV6 : TYPE_IPV4;
}

static void make_flow(const struct plan *plan, struct flow *flow)
{
	const struct pattern *pattern = plan->pattern;
	uint8_t *at = flow->bytes + 12, *ip = flow->bytes + pattern->ip_at;

	if (plan->conf->vlan)
		at = put16(put16(at, TYPE_TAG), (uint32_t)plan->conf->vlan);
	put16(at, ether_type(plan));
	if (plan->conf->protocol == PROTOCOL_ARP)
		put_arp(plan, ip);
	if (!pattern->ip)
		return;
	at = pattern->v6 ? put_ipv6(plan, ip) : put_ipv4(plan, ip);
	put_layer4(plan, at);
	flow->ip_sum = sum_words(ip, pattern->l4_at - pattern->ip_at);
	flow->l4_sum = layer4_sum(plan, at, pattern->header_len - pattern->l4_at);
}

/* ---- the pattern ---- */

/* As many as the longest range has, where it is not said; and where no range is given, source ports make
 * the difference, of ARP the senders' addresses. */
static uint64_t count_flows(const struct pktgen_options *conf, struct ends *ends)
{
	const uint64_t ns[] = {ends->src.n, ends->dst.n, ends->sport.n, ends->dport.n};
	uint64_t most = 1;

	for (size_t i = 0; i < ARRAY_SIZE(ns); i++)
		most = ns[i] > most ? ns[i] : most;
	if (!conf->flows)
		return most < MAX_FLOWS ? most : MAX_FLOWS;
	if (most == 1 && conf->protocol == PROTOCOL_ARP)
		ends->src.n = (uint64_t)conf->flows;
	else if (most == 1 && (uint64_t)conf->flows <= 65536 - ends->sport.first)
		ends->sport.n = (uint32_t)conf->flows;
	return (uint64_t)conf->flows;
}

/* Where in a frame its headers are, and what of the fourth layer's is filled in for each. */
static void lay_out(struct pattern *pattern, const struct pktgen_options *conf)
{
	static const struct {
		uint32_t len, length_at, csum_at, csum_lengths, seq_at, seq_bytes;
	} layouts[] = {
		[PROTOCOL_UDP] = {UDP, 4, 6, 2, 0, 0},
		[PROTOCOL_TCP] = {TCP, 0, 16, 1, 4, 4},
		[PROTOCOL_TCP_SYN] = {TCP, 0, 16, 1, 4, 4},
		[PROTOCOL_ICMP] = {ICMP, 0, 2, 1, 6, 2},
		[PROTOCOL_ARP] = {0},
		[PROTOCOL_ETHERNET] = {0},
	};
	const __typeof__(layouts[0]) *own = &layouts[conf->protocol];

	pattern->ip = own->len;
	pattern->arp = conf->protocol == PROTOCOL_ARP;
	pattern->ip_at = ETHERNET + (conf->vlan ? TAG : 0);
	pattern->l4_at = pattern->ip_at;
	if (pattern->ip)
		pattern->l4_at += pattern->v6 ? IPV6 : IPV4;
	pattern->header_len = pattern->l4_at + (pattern->arp ? ARP : own->len);
	pattern->least = pattern->header_len + (uint32_t)sizeof(struct stamp);
	if (pattern->least < LEAST_FRAME)
		pattern->least = LEAST_FRAME;
	pattern->length_at = own->length_at ? pattern->l4_at + own->length_at : 0;
	pattern->csum_at = own->csum_at ? pattern->l4_at + own->csum_at : 0;
	pattern->csum_lengths = own->csum_lengths;
	pattern->seq_at = own->seq_at ? pattern->l4_at + own->seq_at : 0;
	pattern->seq_bytes = own->seq_bytes;
	/* UDP over IPv4 may go without a checksum; ICMP's has no pseudo header there. */
	if (!pattern->v6 && conf->protocol == PROTOCOL_UDP)
		pattern->csum_at = 0;
	if (!pattern->v6 && conf->protocol == PROTOCOL_ICMP)
		pattern->csum_lengths = 0;
}

int pattern_make(struct pattern *pattern, const struct pktgen_options *conf)
{
	struct ends *ends = &pattern->ends;
	int status = ends_take(conf, ends);

	if (!status && conf->protocol == PROTOCOL_ARP && ends->src.v6)
		status = usage_error(
			"option --protocol cannot be arp with addresses of IPv6: that has neighbour discovery; give addresses of IPv4");
	if (status)
		return status;
	pattern->v6 = ends->src.v6;
	pattern->n_flows = (uint32_t)count_flows(conf, ends);
	pattern->run = (uint32_t)(cmd_started_ns >> 10) * 2654435761u;
	lay_out(pattern, conf);
	pattern->flows = calloc(pattern->n_flows, sizeof(*pattern->flows));
	if (!pattern->flows)
		return cannot("flows cannot be made: there is no memory; give fewer --flows");
	for (uint32_t i = 0; i < pattern->n_flows; i++) {
		struct plan plan = {.pattern = pattern,
			.conf = conf,
			.sport = ends->sport.first + i % ends->sport.n,
			.dport = ends->dport.first + i % ends->dport.n};

		address_of(&ends->src, i, plan.src);
		address_of(&ends->dst, i, plan.dst);
		make_flow(&plan, &pattern->flows[i]);
	}
	return 0;
}

void pattern_free(struct pattern *pattern)
{
	free(pattern->flows);
}
