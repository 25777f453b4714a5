/* stack_kinds.c - a frame of each kind that the stack looks into, to be cut and changed */

#include "stack_kinds.h"

#include <arpa/inet.h>

static void ip(struct frame *frame, const char *from, const char *to, uint8_t protocol, uint8_t ttl,
	const void *payload, size_t n)
{
	frame_ip(frame,
		&(struct ip_fields){.from = from, .to = to, .protocol = protocol, .ttl = ttl},
		payload, n);
	kind_put_sums_right(frame);
}

/* An ICMP error that quotes what port 7 has sent. */
static void error4(struct frame *frame, uint8_t type, uint8_t code, uint16_t rest)
{
	uint8_t message[8 + 28] = {type, code};

	put16(message + 6, rest);
	memcpy(message + 8,
		"\x45\0\5\xdc\0\1\0\0\x40\x11\0\0\x0a\0\0\2\xc0\xa8\x09\x09\0\7\0\x09\5\xc8\0\0",
		28);
	ip(frame, PEER4, OUR4, 1, 64, message, sizeof(message));
}

static void error6(struct frame *frame, uint8_t type, uint8_t code, uint16_t rest)
{
	uint8_t message[8 + 48] = {type, code};

	put16(message + 6, rest);
	memcpy(message + 8, "\x60\0\0\0\5\xb4\x11\x40", 8);
	inet_pton(AF_INET6, OUR6, message + 16);
	inet_pton(AF_INET6, "fd09::9", message + 32);
	memcpy(message + 48, "\0\7\0\x09\5\xb4\0\0", 8);
	ip(frame, PEER6, OUR6, 58, 64, message, sizeof(message));
}

static void mld(
	struct frame *frame, uint8_t type, const char *from, const char *to, const char *group)
{
	uint8_t message[24] = {type, 0, 0, 0, 0, 100};

	inet_pton(AF_INET6, group, message + 8);
	ip(frame, from, to, 58, 1, message, sizeof(message));
}

static void igmp(struct frame *frame, uint8_t type, const char *to, const char *group)
{
	uint8_t message[8] = {type, 100};

	inet_pton(AF_INET, group, message + 4);
	ip(frame, PEER4, to, 2, 1, message, sizeof(message));
}

static void piece4(struct frame *frame, uint16_t fragment)
{
	static const uint8_t payload[40] = {0, 1, 0, 7, 0, 48};

	frame_ip(frame,
		&(struct ip_fields){
			.from = PEER4, .to = OUR4, .protocol = 17, .id = 77, .fragment = fragment},
		payload, sizeof(payload));
}

static void piece6(struct frame *frame, uint16_t fragment)
{
	uint8_t payload[8 + 40] = {17, 0, 0, 0, 0, 0, 0, 77, 0, 1, 0, 7, 0, 48};

	put16(payload + 2, fragment);
	ip(frame, PEER6, OUR6, 44, 64, payload, sizeof(payload));
}

/* UDP behind one IPv6 option of this type. */
static void option6(struct frame *frame, uint8_t header, uint8_t type, const char *to)
{
	uint8_t payload[8 + 12] = {17, 0, type, 4, 0, 0, 0, 0, 0, 9, 0, 7, 0, 12};

	ip(frame, PEER6, to, header, 64, payload, sizeof(payload));
}

static void options4(struct frame *frame, const uint8_t options[8], const char *to)
{
	frame_ip(frame,
		&(struct ip_fields){.from = PEER4,
			.to = to,
			.protocol = 17,
			.n_options = 8,
			.options = options},
		"\0\1\0\7\0\x0c\0\0data", 12);
}

static void tagged(struct frame *frame, uint16_t vlan)
{
	frame_udp(frame, PEER4, OUR4, 9, 7, "some data", 9);
	memmove(frame->bytes + 16, frame->bytes + 12, frame->len - 12);
	put16(frame->bytes + 12, 0x8100);
	put16(frame->bytes + 14, vlan);
	frame->len += 4;
}

void kind_make(struct frame *frame, int kind)
{
	static const uint8_t record[8] = {7, 7, 4, 0, 0, 0, 0, 0},
			     route[8] = {131, 7, 4, 10, 0, 0, 9, 0}, nobody[6];
	static const uint8_t extended[] = {60, 0, 5, 2, 0, 0, 1, 0, 43, 0, 1, 4, 0, 0, 0, 0, 44, 0,
		0, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 5, 0, 9, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4};
	static const uint8_t tcp[20] = {0, 80, 0, 80, [12] = 0x50, 2};

	switch (kind) {
	case 0: frame_arp(frame, 1, peer_mac, PEER4, nobody, OUR4); break;
	case 1: frame_arp(frame, 2, peer_mac, PEER4, our_mac, OUR4); break;
	case 2: frame_udp(frame, PEER4, OUR4, 9, 7, "some data", 9); break;
	case 3: frame_udp(frame, PEER6, OUR6, 9, 7, "some data", 9); break;
	case 4: frame_echo(frame, PEER4, OUR4, 1, 30); break;
	case 5: frame_echo(frame, PEER6, OUR6, 1, 30); break;
	case 6: frame_nd(frame, 135, PEER6, "ff02::1:ff00:2", OUR6, 0, peer_mac); break;
	case 7: frame_nd(frame, 136, PEER6, OUR6, PEER6, 0x60000000, peer_mac); break;
	case 8: options4(frame, record, OUR4); break;
	case 9: ip(frame, PEER6, OUR6, 0, 64, extended, sizeof(extended)); break;
	case 10: piece4(frame, 0x2000); break;
	case 11: frame_udp(frame, PEER4, FAR4, 1, 2, "go on", 5); break;
	case KIND_QUERY4: igmp(frame, 0x11, "224.0.0.1", "0.0.0.0"); break;
	case 13: error4(frame, 3, 4, 600); break;
	case 14: frame_udp(frame, PEER4, OUR4, 1, 999, "nobody", 6); break;
	case 15: frame_udp(frame, PEER6, "fd01::7", 1, 2, "go on", 5); break;
	case KIND_QUERY6: mld(frame, 130, "fe80::1", "ff02::1", "::"); break;
	case 17: mld(frame, 131, "fe80::1", "ff02::1:ff00:2", "ff02::1:ff00:2"); break;
	case 18: error6(frame, 2, 0, 1300); break;
	case 19: error6(frame, 1, 4, 0); break;
	case 20: piece6(frame, 1); break;
	case 21: piece6(frame, 40 | 1); break;
	case 22: piece4(frame, 0x2000 | 5); break;
	case 23: igmp(frame, 0x16, KINDS_GROUP, KINDS_GROUP); break;
	case 24: frame_udp(frame, PEER4, KINDS_GROUP, 9, 7, "to many", 7); break;
	case 25: error4(frame, 11, 0, 0); break;
	case 26: options4(frame, record, FAR4); break;
	case 27: options4(frame, route, OUR4); break;
	case 28: option6(frame, 0, 0x80, OUR6); break;
	case 29: option6(frame, 60, 0xc0, "ff02::1"); break;
	case 30:
		ip(frame, PEER6, OUR6, 58, 255, "\x86\0\0\0\x40\0\x07\x08\0\0\0\0\0\0\0", 16);
		break;
	case 31: frame_nd(frame, 137, "fe80::1", OUR6, PEER6, 0, peer_mac); break;
	case 32: frame_nd(frame, 135, "::", "ff02::1:ff00:2", OUR6, 0, NULL); break;
	case 33: frame_arp(frame, 1, peer_mac, "0.0.0.0", nobody, OUR4); break;
	case 34: tagged(frame, 5); break;
	case 35: ip(frame, PEER4, OUR4, 6, 64, tcp, sizeof(tcp)); break;
	case 36: frame_udp(frame, PEER4, "10.0.0.255", 9, 7, "to all", 6); break;
	default: frame_udp(frame, PEER6, OUR6, 1, 999, "nobody", 6); break;
	}
}

/* ---- put right ---- */

/* Of one that is at `field` in what is behind IP's header. */
static void put_sum(
	uint8_t *at, uint32_t n, uint32_t field, const char *from, const char *to, uint8_t protocol)
{
	uint16_t sum;

	if (n < field + 2)
		return;
	put16(at + field, 0);
	sum = (uint16_t)~frame_sum(from, to, protocol, at, n);
	put16(at + field, sum || protocol != 17 ? sum : 0xffff);
}

static void put_right4(uint8_t *at, uint32_t len)
{
	uint32_t header = (at[0] & 15u) * 4;

	if (header < IP4 || header > len)
		return;
	put16(at + 10, 0);
	put16(at + 10, (uint16_t)~frame_sum_plain(at, header));
	if (at[9] == 17 && len >= header + UDP)
		put16(at + header + 6, 0);
	if ((at[9] != 1 && at[9] != 2) || len < header + 4)
		return;
	put16(at + header + 2, 0);
	put16(at + header + 2, (uint16_t)~frame_sum_plain(at + header, len - header));
}

static void put_right6(uint8_t *at, uint32_t len)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];

	if (len < IP6 || (at[6] != 17 && at[6] != 58))
		return;
	inet_ntop(AF_INET6, at + 8, from, sizeof(from));
	inet_ntop(AF_INET6, at + 24, to, sizeof(to));
	put_sum(at + IP6, min((uint32_t)get16(at + 4), len - IP6), at[6] == 17 ? 6 : 2, from, to,
		at[6]);
}

void kind_put_sums_right(struct frame *frame)
{
	uint8_t *at = frame->bytes + ETH;

	if (frame->len >= ETH + IP4 && get16(frame->bytes + 12) == 0x0800)
		put_right4(at, frame->len - ETH);
	if (frame->len >= ETH + IP6 && get16(frame->bytes + 12) == 0x86dd)
		put_right6(at, frame->len - ETH);
}

void kind_put_length_right(struct frame *frame)
{
	uint8_t *at = frame->bytes + ETH;

	if (frame->len >= ETH + IP4 && get16(frame->bytes + 12) == 0x0800)
		put16(at + 2, (uint16_t)(frame->len - ETH));
	if (frame->len >= ETH + IP6 && get16(frame->bytes + 12) == 0x86dd)
		put16(at + 4, (uint16_t)(frame->len - ETH - IP6));
	kind_put_sums_right(frame);
}
