/* packet_fuzz.c - any bytes as a RoCE packet: what is decoded lies within them, and encoding it gives
 * them back; and as what is behind an Ethernet header
 */

#include "vhca/packet.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void parse(uint16_t type, const uint8_t *bytes, size_t size)
{
	struct vhca_route route;
	size_t packet_size = 0, n = vhca_route_parse(type, bytes, size, &route, &packet_size);
	uint8_t headers[VHCA_ROUTE_BYTES];

	if (!n)
		return;
	demand(n <= sizeof(headers) && n + packet_size <= size);
	demand(vhca_route_type(&route) == type);
	vhca_icrc_of_headers(bytes, n);
	demand(vhca_route_headers(&route, (uint32_t)packet_size - VHCA_ICRC_BYTES, headers) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct vhca_packet packet = {0};
	uint8_t headers[VHCA_MAX_HEADERS];
	uint32_t n;

	parse(VHCA_TYPE_IPV4, bytes, size);
	parse(VHCA_TYPE_IPV6, bytes, size);
	parse(VHCA_TYPE_ROCE, bytes, size);
	if (vhca_packet_decode(bytes, size, &packet) != VHCA_DROP_NONE)
		return 0;
	demand(packet.payload >= bytes &&
		packet.payload + packet.length + VHCA_ICRC_BYTES <= bytes + size);
	demand(vhca_packet_size(packet.parts, packet.length) + VHCA_ICRC_BYTES <= size);
	n = vhca_packet_encode(&packet, headers);
	demand(bytes + n == packet.payload);
	/* Reserved bits, and pad beyond what alignment asks for, are not kept. */
	demand(!memcmp(headers + 12, bytes + 12, packet.parts & VHCA_HAS_DETH ? 4 : n - 12));
	vhca_icrc(0, bytes, size - VHCA_ICRC_BYTES);
	return 0;
}
