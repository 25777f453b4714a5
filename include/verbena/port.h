/* verbena/port.h - a port: one opened RDMA device port, this host's shared memory, an interface, or a
 * capture file
 *
 * Names: "mlx5_0" is an RDMA device, by the best driver that has it; "mlx5:mlx5_0" insists on a
 * driver. A device with several ports takes ":2" behind its name. "shm", or "shm:NAME", is this host:
 * queues between workers of this process, and of others of the same user that have opened the same
 * name, over shared memory; RC and UC. There a write, a read or an atomic is carried out when the owner
 * of the memory polls the queue, and a send is done when it is in the peer's ring. Processes of
 * different users meet where VBN_SHM_UIDS, in the environment of each, has the other one's number, or a
 * list as 1000,1001; what is no such list is refused when the port is opened.
 *
 * Ports of raw Ethernet alone (verbena/packet.h), VBN_RAW:
 *
 *    tap:NAME         a TAP device of this network namespace, made if it is not there, and then gone
 *                     with the port. What the kernel sends on it is received, and the other way round.
 *                     One process at a time: -EBUSY
 *    xdp:IFNAME       an interface by AF_XDP: its queues 0 to n_queues-1, from which the kernel then
 *                     gets nothing, or what no rule takes. A packet is in one page, so frame_mtu is 3822
 *                     at the most
 *    pcap:FILE        packets come from a file, pcap or pcapng, with their times, until it ends: then
 *                     the port is down (`up`)
 *    pcap:>FILE       sent ones go into a file, which is made anew: pcapng where its name ends in
 *                     .pcapng, else pcap; each with its vbn_packet's time, or that of its flush
 *    pcap:FILE>FILE   both
 */
#ifndef VERBENA_PORT_H
#define VERBENA_PORT_H

#include <stdint.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_port;

struct vbn_port_conf {
	/* Default: RoCE v2 with a routable IPv4 address, then IPv6, then v2 link-local, then v1. */
	struct vbn_num gid_index;

	/* Path MTU: 256, 512, 1024, 2048 or 4096; default the port's active one. */
	uint32_t mtu;

	/* Zones are registered so that the device may write a message's bytes out of order; the
	 * completion comes last all the same. AUTO: where the device and the library have it. */
	enum vbn_switch relaxed_ordering;

	/* tap: the device gets this MTU, 68 to 9000; 0 leaves what it has. pcap: 1500, or this. */
	uint32_t frame_mtu;

	/* xdp: the program runs in the interface's driver, not behind it. AUTO: where it can. */
	enum vbn_switch xdp_native;
};

/* IWARP is RDMA over TCP, on Ethernet. Its port listens at an IP address of its interface while it is
 * open, for its queues' peers alone: others are refused, and counted (`strangers`). */
enum vbn_link {
	VBN_LINK_UNKNOWN,
	VBN_LINK_ETHERNET,
	VBN_LINK_INFINIBAND,
	VBN_LINK_HOST,
	VBN_LINK_IWARP
};

struct vbn_port_info {
	char name[64]; /* as a user would name it: "mlx5_0" */
	char driver
		[16]; /* "mlx5", "verbs" for any other RDMA device, "shm", "tap", "xdp", "pcap" */
	int node;     /* NUMA node; -1 where the machine does not say */
	int port;     /* number on its device, from 1 */
	bool up;
	enum vbn_link link;
	uint32_t speed_mbit;
	uint32_t mtu;         /* active path MTU */
	uint64_t max_message; /* bytes */
	uint32_t max_queues, max_depth;
	uint32_t max_gather; /* segments of a chain that a queue can send */
	uint32_t max_reads;  /* reads and atomics in flight of a queue, either way */
	/* UD: bytes of datagrams, and 16 more of each, on their way from one queue to another, with those
	 * that it has not looked at: those beyond are lost, whatever receives are posted. 0: there is no
	 * such limit. */
	uint32_t datagram_room;
	int gid_index; /* the chosen one */
	char gid[64];  /* as text, with its type: "::ffff:127.0.0.1 (RoCE v2)" */
	char capabilities
		[128]; /* words, blank between: "rc uc ud send write imm read atomic packet": what the device has;
			  of an interface that is listed "native" or "generic", how XDP can be had, and "zero-copy",
			  where the kernel says so */

	/* Where it has "packet", else zeros. */
	uint8_t mac[6];
	uint32_t frame_mtu;     /* bytes of a frame behind its Ethernet header and tags: 1500 */
	uint32_t max_rx_queues; /* of an rx group */

	/* Of an interface that is listed: the kernel's driver, "veth", "virtio_net"; else "". */
	char kernel_driver[16];
};

/* Lists the machine's ports, opened or not: RDMA devices, "shm", Ethernet interfaces of this network namespace as
 * "xdp:IFNAME", and TAP devices among them as "tap:NAME" too: writes at most n and returns how many there are, or
 * -errno. Looks only. */
int vbn_port_list(struct vbn_port_info *infos, int n);

/* Writes the GID table of a port as text lines, `index TYPE address`, at most n of 80 bytes;
 * returns how many are valid. -ENODEV, -EINVAL: no name. */
int vbn_port_gids(const char *name, char (*gids)[80], int n);

/* Opens by name; conf may be NULL. -ENODEV: no such device; -ENXIO: the device has no such port;
 * -ENOTSUP: no driver has it; -EPROTONOSUPPORT: it is iWARP, and the library was built without
 * librdmacm; -EACCES, -EPERM: may not open it; -ENETDOWN: port is down; -EINVAL: no
 * name, or conf out of range; -EADDRNOTAVAIL: it has no GID; -ESHUTDOWN: before vbn_init(). Any
 * thread; the work is done on the control thread. */
int vbn_port_open(const char *name, const struct vbn_port_conf *conf, struct vbn_port **port);

/* Its queues and exports must be gone, else the port stays and a sentence says so; zones lose their
 * registration. NULL is allowed. */
void vbn_port_close(struct vbn_port *port);

struct vbn_zone;

/* Registers a zone for local access, so that bufs of its pools may be sent through this port's
 * queues. Creating a queue does so for its own two pools. -ENOMEM. Any thread. */
int vbn_port_register(struct vbn_port *port, struct vbn_zone *zone);

void vbn_port_info(const struct vbn_port *port, struct vbn_port_info *info);

/* Modes that hold for every queue of the port. Writes at most n and returns how many there are. */
int vbn_port_modes(const struct vbn_port *port, struct vbn_mode *modes, int n);

#ifdef __cplusplus
}
#endif

#endif
