/* rdma_peer.c - where datagrams go and come from: address handles, and the network header in front
 * of what is received
 *
 * The header takes 40 bytes: an IPv6 header, or behind 20 bytes that mean nothing an IPv4 one.
 */

#include "drv/rdma.h"

enum {
	IPV4_AT = 20, /* in the header */
	IPV4_SOURCE_AT = IPV4_AT + 12,
	IPV6_SOURCE_AT = 8,
};

static bool gid_is_ipv4(const uint8_t *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid, prefix, sizeof(prefix));
}

/* The bytes of the header that name the sender. */
static void source_of(const uint8_t *gid, struct vbn_peer *peer)
{
	bool ipv4 = gid_is_ipv4(gid);

	peer->source_at = ipv4 ? IPV4_SOURCE_AT : IPV6_SOURCE_AT;
	peer->source_len = ipv4 ? 4 : 16;
	memcpy(peer->source, gid + 16 - peer->source_len, peer->source_len);
}

int vbn__rdma_peer_create(struct peer_entry *entry, struct ibv_ah **ah, struct address *address)
{
	struct rdma_port *port = rdma_port(entry->port);
	struct rdma_way way = {entry->service_level, entry->traffic_class, entry->hop_limit};
	struct ibv_ah_attr attr = {0};
	char text[48];
	int ret = vbn__address_unpack(&entry->address, address);

	if (ret)
		return ret;
	vbn__rdma_fill_path(port, way, address, &attr);
	*ah = ibv_create_ah(port->pd, &attr);
	if (!*ah)
		return fail(errno ? errno : EHOSTUNREACH,
			"port %s finds no way to peer %s: %s: check that the address is right and its network is routed",
			port->port.info.name, vbn__rdma_gid_text(address->gid, text),
			strerror(errno));
	entry->peer.number = address->qpn;
	source_of(address->gid, &entry->peer);
	return 0;
}

/* RFC 791: the sum over a right header is all ones. */
static bool is_ipv4_header(const uint8_t *header)
{
	uint32_t sum = 0;

	if (header[0] != 0x45)
		return false;
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

void vbn__rdma_buf_source(const struct vbn_buf *buf, uint32_t *qpn, uint8_t gid[16])
{
	const uint8_t *header = (const uint8_t *)(uintptr_t)buf->peer[1];

	*qpn = (uint32_t)buf->peer[0];
	if (!is_ipv4_header(header + IPV4_AT)) {
		memcpy(gid, header + IPV6_SOURCE_AT, 16);
		return;
	}
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, header + IPV4_SOURCE_AT, 4);
}
