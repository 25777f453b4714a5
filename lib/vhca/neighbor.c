/* neighbor.c - which MAC an IP address of the own link has: ARP and IPv6 neighbor discovery, asked
 * and answered
 */

#include "vhca/neighbor.h"

#include "vhca/route.h"

enum {
	ASK_AGAIN_NS = 100 * 1000 * 1000,
	TYPE_ARP = 0x0806,
	ARP_REQUEST = 1,
	ARP_REPLY,
	NEXT_ICMPV6 = 58,
	SOLICITATION = 135,
	ADVERTISEMENT = 136,
	SOURCE_OPTION = 1,
	TARGET_OPTION = 2,
	DISCOVERY = 32, /* bytes of a solicitation or advertisement with one option */
};

struct ethernet {
	uint8_t dest[VHCA_MAC], source[VHCA_MAC];
	__be16 type;
};

struct arp {
	struct ethernet ethernet;
	__be16 hardware, protocol;
	uint8_t hardware_size, protocol_size;
	__be16 operation;
	uint8_t sender_mac[VHCA_MAC], sender[4], target_mac[VHCA_MAC], target[4];
};

struct discovery {
	struct ethernet ethernet;
	uint8_t version[4];
	__be16 length;
	uint8_t next, hop_limit;
	uint8_t source[16], dest[16];
	uint8_t type, code;
	__be16 checksum;
	uint8_t flags[4];
	uint8_t target[16];
	uint8_t option, option_size; /* in units of 8 bytes */
	uint8_t mac[VHCA_MAC];
} __attribute__((packed));

static_assert(sizeof(struct arp) == 42, "an ARP frame has 42 bytes");
static_assert(sizeof(struct discovery) == VHCA_NEIGHBOR_FRAME, "a discovery frame has 86 bytes");

/* ---- the table ---- */

static struct vhca_neighbor *find(
	struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan)
{
	for (uint32_t i = 0; i < VHCA_N_NEIGHBORS; i++)
		if (!memcmp(neighbors->neighbor[i].address, address, 16) &&
			neighbors->neighbor[i].vlan == vlan)
			return &neighbors->neighbor[i];
	return NULL;
}

static struct vhca_neighbor *find_or_make(
	struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan)
{
	struct vhca_neighbor *neighbor = find(neighbors, address, vlan);

	if (neighbor)
		return neighbor;
	neighbor = &neighbors->neighbor[neighbors->next++ % VHCA_N_NEIGHBORS];
	*neighbor = (struct vhca_neighbor){.vlan = vlan};
	memcpy(neighbor->address, address, 16);
	return neighbor;
}

const uint8_t *vhca_neighbor_find(
	struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan)
{
	struct vhca_neighbor *neighbor = find(neighbors, address, vlan);

	return neighbor && neighbor->known ? neighbor->mac : NULL;
}

void vhca_neighbor_learn(struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan,
	const uint8_t mac[VHCA_MAC])
{
	struct vhca_neighbor *neighbor = find_or_make(neighbors, address, vlan);

	neighbor->known = true;
	memcpy(neighbor->mac, mac, VHCA_MAC);
}

/* An address that nobody else answers for. */
static bool is_own(const struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan)
{
	static const uint8_t none[16];

	if (!memcmp(address, none, 16))
		return false;
	for (uint32_t i = 0; i < VHCA_N_GIDS; i++)
		if (!memcmp(neighbors->gids[i].raw, address, 16) && neighbors->gids[i].vlan == vlan)
			return !neighbors->gids[i].host;
	return false;
}

static void map_ipv4(const uint8_t ipv4[4], uint8_t address[16])
{
	memset(address, 0, 10);
	address[10] = address[11] = 0xff;
	memcpy(address + 12, ipv4, 4);
}

/* ---- ARP ---- */

static size_t make_arp(const struct vhca_neighbors *neighbors, uint16_t operation,
	const uint8_t source[4], const uint8_t *mac, const uint8_t target[4], uint8_t *frame)
{
	struct arp arp = {
		.ethernet.type = be16(TYPE_ARP),
		.hardware = be16(1),
		.protocol = be16(VHCA_TYPE_IPV4),
		.hardware_size = VHCA_MAC,
		.protocol_size = 4,
		.operation = be16(operation),
	};

	memset(arp.ethernet.dest, 0xff, VHCA_MAC);
	if (mac) {
		memcpy(arp.ethernet.dest, mac, VHCA_MAC);
		memcpy(arp.target_mac, mac, VHCA_MAC);
	}
	memcpy(arp.ethernet.source, neighbors->mac, VHCA_MAC);
	memcpy(arp.sender_mac, neighbors->mac, VHCA_MAC);
	memcpy(arp.sender, source, 4);
	memcpy(arp.target, target, 4);
	memcpy(frame, &arp, sizeof(arp));
	return sizeof(arp);
}

static size_t heard_arp(struct vhca_neighbors *neighbors, uint16_t vlan, const uint8_t *frame,
	size_t size, uint8_t *answer)
{
	uint8_t sender[16], target[16];
	struct arp arp;

	if (size < sizeof(arp))
		return 0;
	memcpy(&arp, frame, sizeof(arp));
	if (from_be16(arp.hardware) != 1 || from_be16(arp.protocol) != VHCA_TYPE_IPV4 ||
		arp.hardware_size != VHCA_MAC || arp.protocol_size != 4)
		return 0;
	map_ipv4(arp.sender, sender);
	map_ipv4(arp.target, target);
	if (from_be16(arp.operation) != ARP_REQUEST) {
		if (!memcmp(arp.target_mac, neighbors->mac, VHCA_MAC))
			vhca_neighbor_learn(neighbors, sender, vlan, arp.sender_mac);
		return 0;
	}
	if (!is_own(neighbors, target, vlan))
		return 0;
	vhca_neighbor_learn(neighbors, sender, vlan, arp.sender_mac);
	return make_arp(neighbors, ARP_REPLY, arp.target, arp.sender_mac, arp.sender, answer);
}

/* ---- IPv6 neighbor discovery ---- */

static uint32_t add_words(uint32_t sum, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	return sum;
}

static uint16_t checksum(const struct discovery *discovery)
{
	uint32_t sum = DISCOVERY + NEXT_ICMPV6;

	sum = add_words(sum, discovery->source, 32);
	sum = add_words(sum, &discovery->type, DISCOVERY);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

static size_t make_discovery(const struct vhca_neighbors *neighbors, uint8_t type,
	const uint8_t mac[VHCA_MAC], const uint8_t source[16], const uint8_t dest[16],
	const uint8_t target[16], uint8_t *frame)
{
	struct discovery discovery = {
		.ethernet.type = be16(VHCA_TYPE_IPV6),
		.version = {0x60},
		.length = be16(DISCOVERY),
		.next = NEXT_ICMPV6,
		.hop_limit = 255,
		.type = type,
		.flags = {type == ADVERTISEMENT ? 0x60 : 0}, /* solicited, override */
		.option = type == ADVERTISEMENT ? TARGET_OPTION : SOURCE_OPTION,
		.option_size = 1,
	};

	memcpy(discovery.ethernet.dest, mac, VHCA_MAC);
	memcpy(discovery.ethernet.source, neighbors->mac, VHCA_MAC);
	memcpy(discovery.source, source, 16);
	memcpy(discovery.dest, dest, 16);
	memcpy(discovery.target, target, 16);
	memcpy(discovery.mac, neighbors->mac, VHCA_MAC);
	discovery.checksum = be16(checksum(&discovery));
	memcpy(frame, &discovery, sizeof(discovery));
	return sizeof(discovery);
}

/* To the group that every owner of such an address listens to. */
static size_t solicit(const struct vhca_neighbors *neighbors, const uint8_t source[16],
	const uint8_t target[16], uint8_t *frame)
{
	uint8_t group[16] = {
		0xff, 0x02, [11] = 0x01, [12] = 0xff, target[13], target[14], target[15]};
	uint8_t mac[VHCA_MAC] = {0x33, 0x33, 0xff, target[13], target[14], target[15]};

	return make_discovery(neighbors, SOLICITATION, mac, source, group, target, frame);
}

static size_t heard_discovery(struct vhca_neighbors *neighbors, uint16_t vlan, const uint8_t *frame,
	size_t size, uint8_t *answer)
{
	static const uint8_t nobody[16];
	struct discovery heard = {.option = 0};

	if (size < sizeof(heard) - 8)
		return 0;
	memcpy(&heard, frame, min(size, sizeof(heard)));
	if (heard.next != NEXT_ICMPV6 || heard.hop_limit != 255 ||
		!memcmp(heard.source, nobody, 16))
		return 0;
	if (heard.type == ADVERTISEMENT && heard.option == TARGET_OPTION)
		vhca_neighbor_learn(neighbors, heard.target, vlan, heard.mac);
	if (heard.type != SOLICITATION || !is_own(neighbors, heard.target, vlan))
		return 0;
	if (heard.option == SOURCE_OPTION)
		vhca_neighbor_learn(neighbors, heard.source, vlan, heard.mac);
	return make_discovery(neighbors, ADVERTISEMENT, heard.ethernet.source, heard.target,
		heard.source, heard.target, answer);
}

/* ---- both ---- */

size_t vhca_neighbor_ask(struct vhca_neighbors *neighbors, const uint8_t source[16],
	const uint8_t address[16], uint16_t vlan, uint8_t *frame)
{
	struct vhca_neighbor *neighbor = find_or_make(neighbors, address, vlan);
	uint64_t now = clock_ns();

	if (neighbor->asked && now - neighbor->asked < ASK_AGAIN_NS)
		return 0;
	neighbor->asked = now;
	if (vhca_is_ipv4(address))
		return make_arp(neighbors, ARP_REQUEST, source + 12, NULL, address + 12, frame);
	return solicit(neighbors, source, address, frame);
}

size_t vhca_neighbor_heard(struct vhca_neighbors *neighbors, uint16_t vlan, const uint8_t *frame,
	size_t size, uint8_t *answer)
{
	struct ethernet ethernet;

	if (size < sizeof(ethernet))
		return 0;
	memcpy(&ethernet, frame, sizeof(ethernet));
	switch (from_be16(ethernet.type)) {
	case TYPE_ARP: return heard_arp(neighbors, vlan, frame, size, answer);
	case VHCA_TYPE_IPV6: return heard_discovery(neighbors, vlan, frame, size, answer);
	default: return 0;
	}
}
