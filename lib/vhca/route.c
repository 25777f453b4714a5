/* route.c - the headers in front of a BTH: IP and UDP, or a GRH; made, taken apart, and in the ICRC
 */

#include "vhca/route.h"

#include "vhca/crc.h"

enum {
	IPV4_BYTES = 20,
	IPV6_BYTES = 40, /* a GRH has the same form */
	UDP_BYTES = 8,
	BTH_BYTES = 12,
	MASKED_LRH_BYTES = 8,
	NEXT_UDP = 17,
	NEXT_BTH = 0x1b,
	FRAGMENT = 0x3fff, /* more fragments, or an offset */
};

static void put_be16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

static uint32_t get_be16(const uint8_t *from)
{
	return (uint32_t)from[0] << 8 | from[1];
}

/* ---- the checksum of IP and UDP ---- */

static uint32_t add_words(uint32_t sum, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		sum += get_be16(bytes + i);
	return sum;
}

static uint32_t fold_sum(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16)) & 0xffff;
}

/* RoCE packets are of an even length. */
void vhca_route_sum(uint8_t *ip)
{
	uint8_t *udp = ip + IPV6_BYTES;
	uint32_t udp_size = get_be16(udp + 4);
	uint32_t sum = add_words(udp_size + NEXT_UDP, ip + 8, 32);

	sum = fold_sum(add_words(sum, udp, udp_size));
	put_be16(udp + 6, sum ? sum : 0xffff);
}

/* ---- made ---- */

static size_t put_ipv4(uint8_t *ip, const struct vhca_route *route, uint32_t payload)
{
	memset(ip, 0, IPV4_BYTES);
	ip[0] = 0x45;
	ip[1] = route->traffic_class;
	put_be16(ip + 2, IPV4_BYTES + payload);
	ip[6] = 0x40; /* do not fragment */
	ip[8] = route->hop_limit;
	ip[9] = NEXT_UDP;
	memcpy(ip + 12, route->source + 12, 4);
	memcpy(ip + 16, route->dest + 12, 4);
	put_be16(ip + 10, fold_sum(add_words(0, ip, IPV4_BYTES)));
	return IPV4_BYTES;
}

static size_t put_ipv6(uint8_t *ip, const struct vhca_route *route, uint32_t payload)
{
	memset(ip, 0, 4);
	ip[0] = (uint8_t)(0x60 | route->traffic_class >> 4);
	ip[1] = (uint8_t)(route->traffic_class << 4);
	put_be16(ip + 4, payload);
	ip[6] = route->v1 ? NEXT_BTH : NEXT_UDP;
	ip[7] = route->hop_limit;
	memcpy(ip + 8, route->source, 16);
	memcpy(ip + 24, route->dest, 16);
	return IPV6_BYTES;
}

uint16_t vhca_route_type(const struct vhca_route *route)
{
	if (route->v1)
		return VHCA_TYPE_ROCE;
	return vhca_is_ipv4(route->dest) ? VHCA_TYPE_IPV4 : VHCA_TYPE_IPV6;
}

size_t vhca_route_headers(
	const struct vhca_route *route, uint32_t size, uint8_t to[VHCA_ROUTE_BYTES])
{
	uint32_t udp_size = UDP_BYTES + size + VHCA_ICRC_BYTES;
	size_t n;

	if (route->v1)
		return put_ipv6(to, route, size + VHCA_ICRC_BYTES);
	n = vhca_is_ipv4(route->dest) ? put_ipv4(to, route, udp_size)
				      : put_ipv6(to, route, udp_size);
	put_be16(to + n, route->source_port);
	put_be16(to + n + 2, VHCA_ROCE_PORT);
	put_be16(to + n + 4, udp_size);
	put_be16(to + n + 6, 0);
	return n + UDP_BYTES;
}

void vhca_route_grh(const struct vhca_route *route, uint32_t size, uint8_t grh[40])
{
	uint8_t headers[VHCA_ROUTE_BYTES];

	vhca_route_headers(route, size, headers);
	if (headers[0] >> 4 == 6) {
		memcpy(grh, headers, IPV6_BYTES);
		return;
	}
	memset(grh, 0, IPV6_BYTES - IPV4_BYTES);
	memcpy(grh + IPV6_BYTES - IPV4_BYTES, headers, IPV4_BYTES);
}

/* ---- taken apart ---- */

/* Bytes of the IP header or GRH, and *payload of what it says lies behind it; 0: not ours. */
static size_t parse_ip(
	uint16_t type, const uint8_t *ip, size_t size, struct vhca_route *route, size_t *payload)
{
	bool grh = type == VHCA_TYPE_ROCE;

	memset(route, 0, sizeof(*route));
	if (type == VHCA_TYPE_IPV4 && size >= IPV4_BYTES && ip[0] == 0x45 && ip[9] == NEXT_UDP &&
		!(get_be16(ip + 6) & FRAGMENT) && get_be16(ip + 2) >= IPV4_BYTES) {
		route->source[10] = route->source[11] = 0xff;
		memcpy(route->source + 12, ip + 12, 4);
		route->dest[10] = route->dest[11] = 0xff;
		memcpy(route->dest + 12, ip + 16, 4);
		route->traffic_class = ip[1];
		route->hop_limit = ip[8];
		*payload = get_be16(ip + 2) - (size_t)IPV4_BYTES;
		return IPV4_BYTES;
	}
	if ((type == VHCA_TYPE_IPV6 || grh) && size >= IPV6_BYTES && ip[0] >> 4 == 6 &&
		ip[6] == (grh ? NEXT_BTH : NEXT_UDP)) {
		memcpy(route->source, ip + 8, 16);
		memcpy(route->dest, ip + 24, 16);
		route->traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
		route->hop_limit = ip[7];
		route->v1 = grh;
		*payload = get_be16(ip + 4);
		/* mapped addresses are a GRH's; in IPv6 they would be mistaken for IPv4's */
		return grh || (!vhca_is_ipv4(route->source) && !vhca_is_ipv4(route->dest))
			? IPV6_BYTES
			: 0;
	}
	return 0;
}

size_t vhca_route_parse(uint16_t type, const uint8_t *bytes, size_t size, struct vhca_route *route,
	size_t *packet_size)
{
	size_t payload = 0, ip_size = parse_ip(type, bytes, size, route, &payload);
	const uint8_t *udp = bytes + ip_size;

	if (!ip_size || payload > size - ip_size)
		return 0;
	*packet_size = payload;
	if (route->v1)
		return payload >= VHCA_ICRC_BYTES ? ip_size : 0;
	if (payload < UDP_BYTES + VHCA_ICRC_BYTES || get_be16(udp + 2) != VHCA_ROCE_PORT ||
		get_be16(udp + 4) != payload)
		return 0;
	route->source_port = (uint16_t)get_be16(udp);
	*packet_size -= UDP_BYTES;
	return ip_size + UDP_BYTES;
}

/* ---- ICRC (annexes A16 and A17.3.3: fields that change on the way count as ones) ---- */

struct masked {
	uint8_t lrh[MASKED_LRH_BYTES];
	uint8_t headers[VHCA_ROUTE_BYTES];
};

static size_t mask_ipv4(uint8_t *ip)
{
	ip[1] = 0xff; /* type of service */
	ip[8] = 0xff; /* time to live */
	ip[10] = ip[11] = 0xff;
	return IPV4_BYTES;
}

static size_t mask_ipv6(uint8_t *ip)
{
	ip[0] |= 0x0f; /* traffic class and flow label */
	ip[1] = ip[2] = ip[3] = 0xff;
	ip[7] = 0xff; /* hop limit */
	return IPV6_BYTES;
}

static uint32_t seed_of(struct masked *masked, size_t size)
{
	uint8_t *ip = masked->headers;
	size_t ip_size = ip[0] >> 4 == 4 ? mask_ipv4(ip) : mask_ipv6(ip);

	memset(masked->lrh, 0xff, sizeof(masked->lrh));
	if (size > ip_size)
		ip[ip_size + 6] = ip[ip_size + 7] = 0xff; /* UDP checksum */
	return vhca_crc32(VHCA_CRC_START, masked, MASKED_LRH_BYTES + size);
}

uint32_t vhca_icrc_of_headers(const uint8_t *headers, size_t size)
{
	struct masked masked;

	memcpy(masked.headers, headers, size);
	return seed_of(&masked, size);
}

uint32_t vhca_icrc_of_route(const struct vhca_route *route, uint32_t size)
{
	struct masked masked;

	return seed_of(&masked, vhca_route_headers(route, size, masked.headers));
}

uint32_t vhca_icrc(uint32_t seed, const uint8_t *packet, size_t size)
{
	uint8_t bth[BTH_BYTES];
	uint32_t state;

	memcpy(bth, packet, sizeof(bth));
	bth[4] = 0xff; /* the reserved byte before the destination QP, which has FECN and BECN */
	state = vhca_crc32(seed, bth, sizeof(bth));
	return ~vhca_crc32(state, packet + sizeof(bth), size - sizeof(bth));
}
