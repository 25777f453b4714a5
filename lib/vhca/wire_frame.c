/* wire_frame.c - RoCEv2 packets in Ethernet frames: of a TAP, whose other end is the host's, or of
 * an interface, by a packet socket
 *
 * Ethernet, IP and UDP headers are made and checked here. The port has a MAC of its own and answers
 * for its address; peers are on the same link.
 */

#include "vhca/flow.h"
#include "vhca/neighbor.h"

#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
	IPV4_BYTES = 20,
	IPV6_BYTES = 40,
	UDP_BYTES = 8,
	PROTOCOL_UDP = 17,
	TIME_TO_LIVE = 64,
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TYPE_ALL = 0x0003,
	HEADROOM = VHCA_ETHERNET + IPV6_BYTES + UDP_BYTES,
	MAX_FRAME = 65536,
	RECEIVE_FRAMES = 256, /* before the queues have their turn */
	MAX_WAITING = 64,     /* frames to neighbors whose MAC is not known yet */
};

/* A packet whose neighbor has been asked for. */
struct waiting {
	struct waiting *next;
	struct vhca_route route;
	uint32_t size;
	uint8_t bytes[HEADROOM + VHCA_MAX_PACKET];
};

struct frame_carrier {
	struct vhca_carrier carrier;
	struct vhca_neighbors neighbors;
	struct waiting *waiting;
	uint32_t n_waiting;
	/* the packet that is being written, behind room for its headers */
	struct vhca_route route;
	uint32_t size;
	uint8_t out[HEADROOM + VHCA_MAX_PACKET];
	/* the frame that came last, and whether its receiver was not ready */
	bool held;
	size_t in_size;
	uint8_t in[MAX_FRAME];
};

static struct frame_carrier *frame_carrier(struct vhca_carrier *carrier)
{
	return container_of(carrier, struct frame_carrier, carrier);
}

static void put_be16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

static uint32_t get_be16(const uint8_t *from)
{
	return (uint32_t)from[0] << 8 | from[1];
}

/* ---- headers ---- */

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

static void make_ipv4(uint8_t *ip, const struct vhca_route *route, uint32_t udp_size)
{
	memset(ip, 0, IPV4_BYTES);
	ip[0] = 0x45;
	put_be16(ip + 2, IPV4_BYTES + udp_size);
	ip[6] = 0x40; /* do not fragment; identification 0, as the ICRC has been told */
	ip[8] = TIME_TO_LIVE;
	ip[9] = PROTOCOL_UDP;
	memcpy(ip + 12, route->source + 12, 4);
	memcpy(ip + 16, route->dest + 12, 4);
	put_be16(ip + 10, fold_sum(add_words(0, ip, IPV4_BYTES)));
}

static void make_ipv6(uint8_t *ip, const struct vhca_route *route, uint32_t udp_size)
{
	memset(ip, 0, 8);
	ip[0] = 0x60;
	put_be16(ip + 4, udp_size);
	ip[6] = PROTOCOL_UDP;
	ip[7] = TIME_TO_LIVE;
	memcpy(ip + 8, route->source, 16);
	memcpy(ip + 24, route->dest, 16);
}

/* UDP over IPv6 must have one. */
static void sum_udp(uint8_t *udp, const uint8_t *ip, uint32_t udp_size)
{
	uint32_t sum = add_words(udp_size + PROTOCOL_UDP, ip + 8, 32);

	sum = fold_sum(add_words(sum, udp, udp_size));
	put_be16(udp + 6, sum ? sum : 0xffff);
}

/* Headers in front of a packet of `size` bytes; where the frame begins. */
static uint8_t *make_headers(const struct frame_carrier *frames, const uint8_t mac[VHCA_MAC],
	const struct vhca_route *route, uint8_t *packet, uint32_t size)
{
	bool ipv4 = vhca_is_ipv4(route->dest);
	uint32_t udp_size = UDP_BYTES + size;
	uint8_t *udp = packet - UDP_BYTES, *ip = udp - (ipv4 ? IPV4_BYTES : IPV6_BYTES);
	uint8_t *ethernet = ip - VHCA_ETHERNET;

	put_be16(udp, route->source_port);
	put_be16(udp + 2, VHCA_ROCE_PORT);
	put_be16(udp + 4, udp_size);
	put_be16(udp + 6, 0);
	if (ipv4) {
		make_ipv4(ip, route, udp_size);
	} else {
		make_ipv6(ip, route, udp_size);
		sum_udp(udp, ip, udp_size);
	}
	memcpy(ethernet, mac, VHCA_MAC);
	memcpy(ethernet + VHCA_MAC, frames->neighbors.mac, VHCA_MAC);
	put_be16(ethernet + 12, ipv4 ? TYPE_IPV4 : TYPE_IPV6);
	return ethernet;
}

/* ---- out ---- */

static void send_frame(struct frame_carrier *frames, const uint8_t *frame, size_t size)
{
	if (write(frames->carrier.fd, frame, size) != (ssize_t)size)
		frames->carrier.refused++;
}

static void send_packet(struct frame_carrier *frames, const uint8_t mac[VHCA_MAC],
	const struct vhca_route *route, uint8_t *packet, uint32_t size)
{
	uint8_t *frame = make_headers(frames, mac, route, packet, size);

	send_frame(frames, frame, (size_t)(packet + size - frame));
}

static void wait_for_neighbor(struct frame_carrier *frames)
{
	uint8_t question[VHCA_NEIGHBOR_FRAME];
	size_t size = vhca_neighbor_ask(&frames->neighbors, frames->route.dest, question);
	struct waiting *waiting = frames->n_waiting < MAX_WAITING ? malloc(sizeof(*waiting)) : NULL;
	struct waiting **last = &frames->waiting;

	if (size)
		send_frame(frames, question, size);
	if (!waiting)
		return;
	waiting->next = NULL;
	waiting->route = frames->route;
	waiting->size = frames->size;
	memcpy(waiting->bytes + HEADROOM, frames->out + HEADROOM, frames->size);
	while (*last)
		last = &(*last)->next;
	*last = waiting;
	frames->n_waiting++;
}

/* Those whose neighbor is known by now leave, in their order. */
static void send_waiting(struct frame_carrier *frames)
{
	struct waiting **link = &frames->waiting;

	while (*link) {
		struct waiting *waiting = *link;
		const uint8_t *mac = vhca_neighbor_find(&frames->neighbors, waiting->route.dest);

		if (!mac) {
			link = &waiting->next;
			continue;
		}
		send_packet(frames, mac, &waiting->route, waiting->bytes + HEADROOM, waiting->size);
		*link = waiting->next;
		frames->n_waiting--;
		free(waiting);
	}
}

static uint8_t *reserve(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t size)
{
	struct frame_carrier *frames = frame_carrier(carrier);

	frames->route = *route;
	frames->size = size;
	return frames->out + HEADROOM;
}

static void commit(struct vhca_carrier *carrier)
{
	struct frame_carrier *frames = frame_carrier(carrier);
	const uint8_t *mac = vhca_neighbor_find(&frames->neighbors, frames->route.dest);

	if (likely(mac != NULL))
		send_packet(frames, mac, &frames->route, frames->out + HEADROOM, frames->size);
	else
		wait_for_neighbor(frames);
}

/* Each frame leaves as it is committed. */
static void flush(struct vhca_carrier *carrier)
{
	(void)carrier;
}

/* ---- in ---- */

/* Bytes of the IP header, whose packet is whole, of UDP, and for this port; 0: it is not. */
static size_t ip_header(const uint8_t *ip, size_t size, struct vhca_route *route, size_t *udp_size)
{
	uint32_t type = get_be16(ip - 2);

	*route = (struct vhca_route){
		.source = {[10] = 0xff, [11] = 0xff}, .dest = {[10] = 0xff, [11] = 0xff}};
	if (type == TYPE_IPV4 && size >= IPV4_BYTES + UDP_BYTES && ip[0] == 0x45 &&
		ip[9] == PROTOCOL_UDP && !(get_be16(ip + 6) & 0x3fff)) {
		memcpy(route->source + 12, ip + 12, 4);
		memcpy(route->dest + 12, ip + 16, 4);
		*udp_size = get_be16(ip + 2) - (size_t)IPV4_BYTES;
		return get_be16(ip + 2) >= IPV4_BYTES + UDP_BYTES ? IPV4_BYTES : 0;
	}
	if (type == TYPE_IPV6 && size >= IPV6_BYTES + UDP_BYTES && ip[6] == PROTOCOL_UDP) {
		memcpy(route->source, ip + 8, 16);
		memcpy(route->dest, ip + 24, 16);
		*udp_size = get_be16(ip + 4);
		return IPV6_BYTES;
	}
	return 0;
}

static bool take_packet(struct frame_carrier *frames, struct vhca_packet_wire *wire)
{
	const uint8_t *ip = frames->in + VHCA_ETHERNET, *udp;
	size_t size = frames->in_size - VHCA_ETHERNET, udp_size = 0, ip_size;
	struct vhca_route route;

	ip_size = ip_header(ip, size, &route, &udp_size);
	udp = ip + ip_size;
	if (!ip_size || udp_size > size - ip_size || udp_size < UDP_BYTES + VHCA_ICRC_BYTES ||
		get_be16(udp + 2) != VHCA_ROCE_PORT || get_be16(udp + 4) != udp_size)
		return true; /* the rest of the network's */
	if (memcmp(route.dest, frames->carrier.address, 16)) {
		vhca_wire_drop(wire, VHCA_DROP_ADDRESS);
		return true;
	}
	route.source_port = (uint16_t)get_be16(udp);
	vhca_neighbor_learn(&frames->neighbors, route.source, frames->in + VHCA_MAC);
	return vhca_wire_receive(wire, &route, vhca_icrc_of_headers(ip, ip_size), udp + UDP_BYTES,
		udp_size - UDP_BYTES);
}

/* False: its receiver is not ready. */
static bool take_frame(struct frame_carrier *frames, struct vhca_packet_wire *wire)
{
	uint8_t answer[VHCA_NEIGHBOR_FRAME];
	size_t size;

	if (frames->in_size < VHCA_ETHERNET + IPV4_BYTES)
		return true;
	size = vhca_neighbor_heard(&frames->neighbors, frames->in, frames->in_size, answer);
	if (size)
		send_frame(frames, answer, size);
	if (frames->waiting)
		send_waiting(frames);
	return take_packet(frames, wire);
}

static unsigned int receive(struct vhca_carrier *carrier, struct vhca_packet_wire *wire)
{
	struct frame_carrier *frames = frame_carrier(carrier);
	unsigned int n = 0;

	for (; n < RECEIVE_FRAMES; n++) {
		if (!frames->held) {
			ssize_t size = read(carrier->fd, frames->in, sizeof(frames->in));

			if (size <= 0)
				break;
			frames->in_size = (size_t)size;
		}
		frames->held = false;
		frames->held = !take_frame(frames, wire);
		if (frames->held)
			break;
	}
	return n;
}

/* ---- life ---- */

static int open_tap(const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int error;

	if (fd < 0)
		return -errno;
	memcpy(request.ifr_name, name, min(strlen(name), sizeof(request.ifr_name) - 1));
	if (!ioctl(fd, TUNSETIFF, &request))
		return fd;
	error = errno;
	close(fd);
	return -error;
}

/* All frames, as a port with a MAC of its own behind that interface would get them. */
static int set_up_packet_socket(int fd, unsigned int index)
{
	struct sockaddr_ll name = {
		.sll_family = AF_PACKET, .sll_protocol = be16(TYPE_ALL), .sll_ifindex = (int)index};
	struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
	int one = 1, bytes = 4 * 1024 * 1024;

	if (bind(fd, (const struct sockaddr *)&name, sizeof(name)))
		return -errno;
	setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof(promiscuous));
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	return 0;
}

static int open_packet_socket(const char *name)
{
	unsigned int index = if_nametoindex(name);
	int fd, error;

	if (!index)
		return -errno;
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	error = set_up_packet_socket(fd, index);
	if (!error)
		return fd;
	close(fd);
	return error;
}

static void destroy(struct vhca_carrier *carrier)
{
	struct frame_carrier *frames = frame_carrier(carrier);

	if (carrier->fd >= 0)
		close(carrier->fd);
	while (frames->waiting) {
		struct waiting *waiting = frames->waiting;

		frames->waiting = waiting->next;
		free(waiting);
	}
	free(frames);
}

/* The MAC that the node's GUID is made of. */
static void own_mac(const struct vhca_device *device, uint8_t mac[VHCA_MAC])
{
	for (int i = 0; i < 3; i++) {
		mac[i] = (uint8_t)(device->node_guid >> (56 - 8 * i));
		mac[3 + i] = (uint8_t)(device->node_guid >> (16 - 8 * i));
	}
	mac[0] ^= 2;
}

static struct vhca_carrier *create(
	struct vhca_device *device, const struct vhca_carrier_ops *ops, const char *name, int fd)
{
	struct frame_carrier *frames = fd >= 0 ? calloc(1, sizeof(*frames)) : NULL;

	if (fd < 0)
		log_warning(
			"vhca: %s is not plugged into %s \"%s\" (%s): name an interface that is "
			"there, and have the right to use it (CAP_NET_ADMIN or CAP_NET_RAW)",
			device->name, ops->name, name, strerror(-fd));
	if (!frames) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	frames->carrier.ops = ops;
	frames->carrier.device = device;
	frames->carrier.fd = fd;
	vhca_device_address(device, frames->carrier.address);
	memcpy(frames->neighbors.address, frames->carrier.address, 16);
	own_mac(device, frames->neighbors.mac);
	return &frames->carrier;
}

static struct vhca_carrier *create_tap(struct vhca_device *device, const char *argument)
{
	return create(device, &vhca_carrier_tap, argument, open_tap(argument));
}

static struct vhca_carrier *create_packet(struct vhca_device *device, const char *argument)
{
	return create(device, &vhca_carrier_packet, argument, open_packet_socket(argument));
}

const struct vhca_carrier_ops vhca_carrier_tap = {
	.name = "tap",
	.create = create_tap,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.flush = flush,
	.receive = receive,
};

const struct vhca_carrier_ops vhca_carrier_packet = {
	.name = "packet",
	.create = create_packet,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.flush = flush,
	.receive = receive,
};
