/* wire.h - headers as they are on the wire, and the sums over them */
#ifndef VBN_NET_WIRE_H
#define VBN_NET_WIRE_H

#include "base/base.h"
#include "base/checksum.h"

#define wire_struct __attribute__((__packed__, __may_alias__))

enum {
	ETHERTYPE_V4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_TAG = 0x8100,
	ETHERTYPE_V6 = 0x86dd
};
enum { ETHER_BYTES = 14, TAG_BYTES = 4, IP4_BYTES = 20, IP6_BYTES = 40, UDP_BYTES = 8 };
enum {
	PROTO_HOPOPTS = 0,
	PROTO_ICMP = 1,
	PROTO_IGMP = 2,
	PROTO_UDP = 17,
	PROTO_ROUTING = 43,
	PROTO_FRAGMENT = 44,
	PROTO_ICMP6 = 58,
	PROTO_NONE = 59,
	PROTO_DSTOPTS = 60,
};

struct wire_ether {
	uint8_t to[6], from[6];
	__be16 type;
} wire_struct;

struct wire_arp {
	__be16 hardware, protocol;
	uint8_t hardware_len, protocol_len;
	__be16 operation;
	uint8_t sender_mac[6], sender_ip[4], target_mac[6], target_ip[4];
} wire_struct;

enum { IP4_DF = 0x4000, IP4_MF = 0x2000, IP4_OFFSET = 0x1fff };

struct wire_ip4 {
	uint8_t version_ihl, tos;
	__be16 length, id, fragment;
	uint8_t ttl, protocol;
	__be16 sum;
	uint8_t from[4], to[4];
} wire_struct;

struct wire_ip6 {
	__be32 version_class_flow;
	__be16 length;
	uint8_t next, hops;
	uint8_t from[16], to[16];
} wire_struct;

struct wire_fragment {
	uint8_t next, reserved;
	__be16 offset; /* in bytes, the lower 3 bits are flags: 1 is "more" */
	__be32 id;
} wire_struct;

struct wire_udp {
	__be16 from, to, length, sum;
} wire_struct;

struct wire_icmp {
	uint8_t type, code;
	__be16 sum;
	__be32 rest; /* echo: id and sequence; too big: the MTU */
} wire_struct;

struct wire_igmp {
	uint8_t type, time;
	__be16 sum;
	uint8_t group[4];
} wire_struct;

static_assert(sizeof(struct wire_ether) == ETHER_BYTES && sizeof(struct wire_arp) == 28 &&
		sizeof(struct wire_ip4) == IP4_BYTES && sizeof(struct wire_ip6) == IP6_BYTES &&
		sizeof(struct wire_udp) == UDP_BYTES && sizeof(struct wire_icmp) == 8,
	"headers are what the wire has");

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_QUENCH = 4,
	ICMP_REDIRECT = 5,
	ICMP_ECHO = 8,
	ICMP_TIME = 11,
	ICMP_PARAMETER = 12,
	ICMP6_UNREACHABLE = 1,
	ICMP6_TOO_BIG = 2,
	ICMP6_TIME = 3,
	ICMP6_PARAMETER = 4,
	ICMP6_ECHO = 128,
	ICMP6_ECHO_REPLY = 129,
	ICMP6_MLD_QUERY = 130,
	ICMP6_MLD_REPORT = 131,
	ICMP6_MLD_DONE = 132,
	ICMP6_RS = 133,
	ICMP6_RA = 134,
	ICMP6_NS = 135,
	ICMP6_NA = 136,
};

/* ---- loads at any place ---- */

static force_inline uint64_t load8(const void *at)
{
	uint64_t value;

	memcpy(&value, at, 8);
	return value;
}

static force_inline uint32_t load4(const void *at)
{
	uint32_t value;

	memcpy(&value, at, 4);
	return value;
}

static force_inline uint16_t load2(const void *at)
{
	uint16_t value;

	memcpy(&value, at, 2);
	return value;
}

static force_inline uint16_t load_be16(const void *at)
{
	return be16toh(load2(at));
}

/* Two words of 4 bytes as one of 8, in the order of memory. */
static force_inline uint64_t load_pair(const void *first, const void *second)
{
	const uint32_t words[2] = {load4(first), load4(second)};

	return load8(words);
}

/* Both halves of a word change places: addresses or ports of a header, for an answer. */
static force_inline uint64_t turn8(uint64_t word)
{
	return word << 32 | word >> 32;
}

static force_inline uint32_t turn4(uint32_t word)
{
	return word << 16 | word >> 16;
}

/* ---- sums: base/checksum.h's, of fields as they are on the wire ---- */

enum { SUM_INLINE = 64 }; /* longer ones are worth the call */

/* The last n bytes (1 to 7) of at least 8, as the beginning of a word that has zeros behind. */
static force_inline uint64_t load_last(const uint8_t *end, size_t n)
{
	uint64_t word = load8(end - 8);

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return word >> 8 * (8 - n);
#else
	return word << 8 * (8 - n);
#endif
}

static force_inline uint64_t sum_carry(uint64_t sum, uint64_t word)
{
	sum += word;
	return sum + (sum < word);
}

/* Adds len bytes, which begin at an even place of what is summed. */
static force_inline uint64_t sum_add(uint64_t sum, const void *data, size_t len)
{
	const uint8_t *at = data;

	if (len > SUM_INLINE || len < 8)
		return vbn__csum_bytes(data, len, sum);
	for (; len >= 8; at += 8, len -= 8)
		sum = sum_carry(sum, load8(at));
	if (len)
		sum = sum_carry(sum, load_last(at + len, len));
	return (sum & 0xffffffff) + (sum >> 32);
}

/* What goes into a checksum's field. */
static force_inline __be16 sum_finish(uint64_t sum)
{
	return (be_force __be16)csum_finish(sum);
}

static force_inline __be16 sum_finish_udp(uint64_t sum)
{
	return (be_force __be16)csum_finish_udp(sum);
}

/* Of 8 bytes. */
static force_inline uint64_t sum_halves(uint64_t word)
{
	return (word & 0xffffffff) + (word >> 32);
}

/* A whole that has its checksum in it. */
static force_inline bool sum_is_good(uint64_t sum)
{
	return csum_fold(sum) == 0xffff;
}

/* The part of IPv4's and IPv6's pseudo-header that is no address. */
static force_inline uint64_t sum_pseudo(uint32_t length, uint8_t protocol)
{
	return (uint64_t)(be_force uint32_t)be32(length) + (be_force uint32_t)be32(protocol);
}

#endif
