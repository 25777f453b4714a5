/* carrier.h - between a wire of packets and what carries them: UDP sockets, or Ethernet frames
 *
 * Lives here: RoCEv2 packets on their way out and in, from the BTH to the ICRC. The wire
 * (wire_packet.c) knows queues and flows, a carrier knows addresses, sockets and headers below
 * UDP's payload.
 */
#ifndef VHCA_CARRIER_H
#define VHCA_CARRIER_H

#include "vhca/device.h"
#include "vhca/packet.h"
#include "vhca/peer.h"

struct vhca_packet_wire;

struct vhca_carrier {
	const struct vhca_carrier_ops *ops;
	struct vhca_device *device;
	uint8_t address[16];  /* of the port; IPv4 is mapped into IPv6 */
	uint16_t source_port; /* of all packets; 0: each flow has its own */
	int fd;               /* readable when a packet has come */
	uint64_t refused;     /* datagrams that the kernel did not take */
};

struct vhca_carrier_ops {
	const char *name;
	bool frames; /* it makes the headers itself: what a route says beyond addresses is sent */
	/* NULL after a sentence. It may change the device's address before anyone has seen it. */
	struct vhca_carrier *(*create)(struct vhca_device *device, const char *argument);
	void (*destroy)(struct vhca_carrier *carrier);
	/* Where a packet of `size` bytes from BTH to ICRC is to be written, which is valid until
	 * the next call; NULL: it cannot leave. It is gone with commit() and never was without. */
	uint8_t *(*reserve)(
		struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t size);
	void (*commit)(struct vhca_carrier *carrier);
	/* Whether `bytes` more to there had better wait, where nobody will ask for them again. */
	bool (*full)(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t bytes);
	/* What waits to be read where packets of that route go; NULL: nobody knows. */
	enum vhca_backlog (*backlog)(struct vhca_carrier *carrier, const struct vhca_route *route);
	/* A raw frame goes out as it is. NULL: the carrier has no frames, and they go to the switch. */
	void (*frame)(struct vhca_carrier *carrier, const uint8_t *bytes, uint32_t size);
	/* Frames that came and found no room in the kernel. NULL: the wire has counted them. */
	uint64_t (*overflowed)(struct vhca_carrier *carrier);
	/* What was committed goes out. */
	void (*flush)(struct vhca_carrier *carrier);
	/* Hands what has come to vhca_wire_receive(), a bounded number; how many. */
	unsigned int (*receive)(struct vhca_carrier *carrier, struct vhca_packet_wire *wire);
};

extern const struct vhca_carrier_ops vhca_carrier_udp, vhca_carrier_tap, vhca_carrier_packet;

/* A packet from BTH to ICRC; the seed is that of the headers it came with. */
/* False: its receiver is not ready; come again with it. */
bool vhca_wire_receive(struct vhca_packet_wire *wire, const struct vhca_route *route,
	uint32_t icrc_seed, const uint8_t *bytes, size_t size);
void vhca_wire_drop(struct vhca_packet_wire *wire, enum vhca_drop why);

#endif
