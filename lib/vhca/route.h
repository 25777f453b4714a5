/* route.h - where a RoCE packet goes, as the headers in front of its BTH say it: IP and UDP, or the
 * GRH of RoCEv1; and the ICRC, which covers them
 *
 * Knows nothing of queues, sockets or time. What comes in is hostile.
 */
#ifndef VHCA_ROUTE_H
#define VHCA_ROUTE_H

#include "base/base.h"

#define VHCA_ROCE_PORT  4791
#define VHCA_ICRC_BYTES 4u

enum {
	VHCA_TYPE_IPV4 = 0x0800, /* of Ethernet frames */
	VHCA_TYPE_VLAN = 0x8100,
	VHCA_TYPE_IPV6 = 0x86dd,
	VHCA_TYPE_ROCE = 0x8915, /* RoCEv1 */
	VHCA_ROUTE_BYTES = 48,   /* the longest headers: IPv6 and UDP */
	VHCA_VLAN_MASK = 0xfff,
};

/* IPv4 addresses are mapped into IPv6. Compared as bytes: there is no padding. */
struct vhca_route {
	uint8_t source[16], dest[16];
	uint16_t source_port; /* of UDP */
	uint16_t tag;         /* of 802.1Q: priority << 13 | VLAN; 0: none */
	bool v1;              /* a GRH alone */
	uint8_t traffic_class, hop_limit;
	uint8_t zero;
};

static_assert(sizeof(struct vhca_route) == 40, "a route has no padding");

enum { VHCA_HOP_LIMIT = 64 }; /* as the kernel resolves a connection's */

static inline bool vhca_is_ipv4(const uint8_t address[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(address, mapped, sizeof(mapped));
}

static inline bool vhca_is_link_local(const uint8_t address[16])
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

/* What Ethernet calls such packets. */
uint16_t vhca_route_type(const struct vhca_route *route);
/* Writes the headers of a packet of `size` bytes from BTH to pad, as the kernel would for an
 * unconnected UDP socket: DF, and 0 for identification and UDP checksum. How many bytes. */
size_t vhca_route_headers(
	const struct vhca_route *route, uint32_t size, uint8_t to[VHCA_ROUTE_BYTES]);
/* The UDP checksum of IPv6 headers that were made, with their packet behind them. */
void vhca_route_sum(uint8_t *headers);
/* Takes headers apart; `bytes` are what lies behind an Ethernet header of that type. Their length,
 * and *packet_size from BTH to ICRC, all of which is there; 0: it is no RoCE packet. The tag is
 * left alone. */
size_t vhca_route_parse(uint16_t type, const uint8_t *bytes, size_t size, struct vhca_route *route,
	size_t *packet_size);
/* What of them a datagram's receiver is shown: an IPv4 header is in the last 20 bytes. */
void vhca_route_grh(const struct vhca_route *route, uint32_t size, uint8_t grh[40]);

/* ---- ICRC ---- */

/* The remainder behind the masked headers of a packet of `size` bytes from BTH to pad: the same for
 * all packets of a route and size. */
uint32_t vhca_icrc_of_route(const struct vhca_route *route, uint32_t size);
/* The same of headers that are there, all `size` bytes of them. */
uint32_t vhca_icrc_of_headers(const uint8_t *headers, size_t size);
/* As it lies behind the packet's `size` bytes from BTH to pad. */
uint32_t vhca_icrc(uint32_t seed, const uint8_t *packet, size_t size);

static inline void vhca_icrc_write(uint32_t seed, uint8_t *packet, size_t size)
{
	uint32_t icrc = htole32(vhca_icrc(seed, packet, size));

	memcpy(packet + size, &icrc, sizeof(icrc));
}

static inline bool vhca_icrc_right(uint32_t seed, const uint8_t *packet, size_t size)
{
	uint32_t icrc;

	memcpy(&icrc, packet + size, sizeof(icrc));
	return le32toh(icrc) == vhca_icrc(seed, packet, size);
}

#endif
