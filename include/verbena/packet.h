/* verbena/packet.h - raw Ethernet: what is known of a frame, and the drops by name
 *
 * A packet port has the word "packet" among its capabilities: a ConnectX by direct verbs ("mlx5_0"), a
 * TAP device ("tap:vbn0"), an interface by AF_XDP ("xdp:eth0"), a capture file ("pcap:in.pcap"); see
 * verbena/port.h. A packet queue is a vbn_queue:
 *
 *	vbn_rx_group_create(port, NULL, &group);           verbena/rx_group.h
 *	conf = (struct vbn_queue_conf){.transport = VBN_RAW, .rx_group = group, .rx_pool = pool};
 *	vbn_queue_create(worker, port, &conf, &queue);
 *	vbn_queue_connect(queue, NULL);
 *
 * and vbn_send(), vbn_flush(), vbn_recv(), vbn_poll(), KEEP, cookies, chains and stats are as for any
 * other; the rest answers -EOPNOTSUPP. With no group a queue transmits only; then it needs a tx_pool
 * and no rx_pool. A buf is one frame, from the destination MAC on and without FCS; what is shorter than
 * 60 bytes is padded by whoever has to. Where the ring is full, what was not sent stays with the caller.
 *
 * What is known of a frame is in its buf, in the room that a datagram has its peer in: a driver sets it
 * with each frame that it hands out, the time where its flag says so. A sender sets `flags` of each frame that it sends, 0 where it
 * wants nothing: a frame that has been received and is sent on still has its receive flags, which mean
 * nothing to a sender and do no harm.
 */
#ifndef VERBENA_PACKET_H
#define VERBENA_PACKET_H

#include <stdint.h>
#include <verbena/buf.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_port;
struct vbn_queue;

enum vbn_packet_flag {
	/* Received. Of a checksum neither: nobody has looked at it (or there is none). */
	VBN_PACKET_IP_GOOD = 1 << 0, /* the IPv4 header's checksum */
	VBN_PACKET_IP_BAD = 1 << 1,
	VBN_PACKET_L4_GOOD = 1 << 2, /* UDP's or TCP's */
	VBN_PACKET_L4_BAD = 1 << 3,
	VBN_PACKET_VLAN = 1 << 4, /* a tag was taken out: it is in `vlan` */
	VBN_PACKET_HASH = 1 << 5, /* buf->mark is the hash that chose the queue */
	VBN_PACKET_MARK = 1 << 6, /* buf->mark is the mark of the rule that took it */
	VBN_PACKET_TIME = 1 << 7, /* `time` says when it came */

	/* To send. A checksum is filled in, whatever is in its field: by the device, or in software
	 * where it cannot (the queue's mode "tx_checksum" says which). A frame in which there is none
	 * to fill in (another type, a fragment, cut short) goes as it is. */
	VBN_PACKET_TX_IP_CSUM = 1 << 8,
	VBN_PACKET_TX_L4_CSUM = 1 << 9, /* UDP, TCP, ICMPv6 over IPv4 and IPv6 */
	VBN_PACKET_TX_VLAN = 1 << 10,   /* `vlan` is put in as a tag (0x8100) behind the MACs */
};

/* What a frame is, as far as whoever received it has looked; 0: nobody has. */
enum vbn_packet_type {
	VBN_PACKET_IPV4 = 1 << 0,
	VBN_PACKET_IPV6 = 1 << 1,
	VBN_PACKET_UDP = 1 << 2,
	VBN_PACKET_TCP = 1 << 3,
	VBN_PACKET_ICMP = 1 << 4, /* of either version */
	VBN_PACKET_FRAGMENT = 1 << 5,
};

struct vbn_packet {
	uint16_t flags; /* enum vbn_packet_flag */
	uint16_t vlan;  /* tag control information, host order */
	/* Bytes of the headers: of Ethernet with what tags are in the frame, of IP with its options
	 * and extensions. 0: not known, and the driver looks itself where it has to. */
	uint8_t l2_len, l3_len;
	uint16_t type; /* enum vbn_packet_type */
	uint64_t time; /* ns, of the clock that the queue's mode "timestamps" names */
} __attribute__((__may_alias__));

#ifdef __cplusplus
static_assert(sizeof(struct vbn_packet) == 16, "it lies in the room of a datagram's peer");
#else
_Static_assert(sizeof(struct vbn_packet) == 16, "it lies in the room of a datagram's peer");
#endif

static inline struct vbn_packet *vbn_buf_packet(struct vbn_buf *buf)
{
	return (struct vbn_packet *)(void *)buf->peer;
}

/* Frames that were lost on their way, by name and since the object was made. */
struct vbn_drop {
	char name[32]; /* "rx_too_long", "rx_ring_full", "out_of_buffer" */
	char help[64]; /* one clause: what one drop is */
	uint64_t count;
};

/* Of one queue: what its driver dropped, and what the device or the kernel did on behalf of this queue
 * alone. With those of its port that is every frame that came or was to go and is nowhere else. Writes
 * at most n and returns how many there are. Any thread; system calls are made on the control thread. */
int vbn_queue_drops(const struct vbn_queue *queue, struct vbn_drop *drops, int n);

/* Of the port, where it cannot be said of which queue: out of buffers, the kernel's own. Since the port
 * was opened. */
int vbn_port_drops(const struct vbn_port *port, struct vbn_drop *drops, int n);

#ifdef __cplusplus
}
#endif

#endif
