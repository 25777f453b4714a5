/* frame.h - what software does to frames for drivers whose device does not: checksums filled in, a tag
 * put in
 *
 * Lives here: the headers of a frame that is to be sent, as far as its checksums want. May come in: base,
 * mem. May touch it: the drivers of raw Ethernet. What a frame says of itself is not believed: lengths
 * are checked, and what does not fit is sent as it is.
 */
#ifndef VBN_FRAME_H
#define VBN_FRAME_H

#include "base/base.h"
#include "mem/mem.h"

#include <verbena/packet.h>

enum {
	FRAME_HEADER = 14, /* of Ethernet */
	FRAME_LEAST = 60,  /* of the whole, but for the check sequence */
	FRAME_TAG = 4,
	FRAME_SEND_FLAGS = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM | VBN_PACKET_TX_VLAN,
};

/* Where a frame's checksums are: offsets from its first byte. */
struct frame_sums {
	uint32_t ip;       /* the IPv4 header; 0: there is none */
	uint32_t ip_len;   /* bytes of it */
	uint32_t l4;       /* where the fourth layer begins; 0: none whose checksum is known */
	uint32_t l4_len;   /* bytes of it, checksum and data */
	uint32_t l4_field; /* the checksum in it */
	uint64_t pseudo;   /* sum of the pseudo header */
	bool is_udp;
};

/* Finds them in the first `len` bytes of a frame of `total`. */
void vbn__frame_sums(const uint8_t *data, uint32_t len, uint64_t total, struct frame_sums *sums);

/* Does what the flags of a frame ask for, in place; `device_l4`: all but the fourth layer's checksum.
 * A chain is one frame; its headers are in its first segment. -EINVAL: there is no room for a tag before
 * the frame, nor behind. */
int vbn__frame_prepare(struct vbn_buf *buf, bool device_l4);

static force_inline bool frame_wants_work(struct vbn_buf *buf)
{
	return vbn_buf_packet(buf)->flags & FRAME_SEND_FLAGS;
}

#endif
