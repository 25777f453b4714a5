/* address.c - where a queue is, as bytes: the layout that verbena/queue.h documents */

#include "port/port.h"

enum { ADDRESS_VERSION = 2 };

static const uint8_t magic[4] = "VBNA";

static void put(uint8_t *at, uint32_t value, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--, value >>= 8)
		at[i] = (uint8_t)value;
}

static uint32_t get(const uint8_t *at, int bytes)
{
	uint32_t value = 0;

	for (int i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

void vbn__address_pack(const struct address *address, struct vbn_address *wire)
{
	uint8_t *at = wire->bytes;

	memset(wire, 0, sizeof(*wire));
	memcpy(at, magic, sizeof(magic));
	at[4] = ADDRESS_VERSION;
	at[5] = (uint8_t)address->transport;
	at[6] = (uint8_t)log2_floor(address->mtu);
	at[7] = (uint8_t)address->link;
	put(at + 8, address->qpn, 4);
	put(at + 12, address->psn, 4);
	memcpy(at + 16, address->gid, sizeof(address->gid));
	put(at + 32, address->lid, 2);
	at[34] = address->reads;
	at[35] = address->peer_reads;
	put(at + 36, address->qkey, 4);
	put(at + 40, address->tcp_port, 2);
}

int vbn__address_unpack(const struct vbn_address *wire, struct address *address)
{
	const uint8_t *at = wire->bytes;

	if (memcmp(at, magic, sizeof(magic)))
		return fail(EINVAL,
			"peer's address cannot be used: these bytes are no queue's address; exchange vbn_queue_address()'s");
	if (at[4] != ADDRESS_VERSION)
		return fail(EINVAL,
			"peer's address cannot be used: its version is %u and this library's %d; run the same version on both ends",
			at[4], ADDRESS_VERSION);
	if (at[6] < 8 || at[6] > 12)
		return fail(EINVAL,
			"peer's address cannot be used: its path MTU of 2^%u is none of 256 to 4096",
			at[6]);
	*address = (struct address){
		.transport = (enum vbn_transport)at[5],
		.link = (enum vbn_link)at[7],
		.mtu = 1u << at[6],
		.qpn = get(at + 8, 4),
		.psn = get(at + 12, 4),
		.lid = (uint16_t)get(at + 32, 2),
		.reads = at[34],
		.peer_reads = at[35],
		.qkey = get(at + 36, 4),
		.tcp_port = (uint16_t)get(at + 40, 2),
	};
	memcpy(address->gid, at + 16, sizeof(address->gid));
	if (address->qpn > 0xffffff || address->psn > 0xffffff)
		return fail(EINVAL,
			"peer's address cannot be used: QPN %#x or PSN %#x has more than 24 bits",
			address->qpn, address->psn);
	return 0;
}
