/* wire_udp.c - RoCEv2 packets in UDP sockets: port 4791 of the device's own address
 *
 * The kernel makes the IP header. An unconnected socket that may not fragment sends identification
 * 0, so that the ICRC, which covers it, is known ahead. Where the kernel cuts a large send into
 * segments it may count that field up, so this is done only towards the own host, where segments
 * stay together.
 */

#include "vhca/flow.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO     104
#endif

enum {
	ARENA_BYTES = 512 * 1024,
	MAX_BURSTS = 64,
	MAX_BURST_BYTES = 65000, /* of one datagram before it is cut */
	MAX_SEGMENTS = 64,
	MAX_MESSAGES = 64,
	RECEIVE_MESSAGES = 16,
	RECEIVE_BYTES = 65536,
	RECEIVE_ROUNDS = 4, /* before the queues have their turn */
	SOCKET_BYTES = 8 * 1024 * 1024,
	LAST_LOCAL = 254, /* 127.0.0.x */
};

/* Packets of one size to one address, side by side, with the same in their IP headers. */
struct burst {
	struct sockaddr_storage dest;
	socklen_t dest_size;
	uint8_t address[16];
	uint32_t offset, length, segment, n;
	uint8_t traffic_class, hop_limit;
	bool local, closed;
};

/* Room for all that may come or go with a datagram: segments, two fields of the IP header, drops. */
union control {
	struct cmsghdr header;
	uint8_t bytes[4 * CMSG_SPACE(sizeof(int))];
};

struct udp {
	struct vhca_carrier carrier;
	bool segments; /* the kernel cuts */
	uint8_t *arena;
	uint32_t used, reserved, n_bursts;
	struct burst bursts[MAX_BURSTS];
	/* what one call sends */
	uint32_t n_messages;
	struct mmsghdr messages[MAX_MESSAGES];
	struct iovec parts[MAX_MESSAGES];
	union control controls[MAX_MESSAGES];
	struct vhca_peers peers;
	/* what one call receives, and how much of it has been taken */
	uint8_t *buffers;
	uint32_t n_in, taken, taken_bytes;
	struct mmsghdr in[RECEIVE_MESSAGES];
	struct iovec in_parts[RECEIVE_MESSAGES];
	union control in_controls[RECEIVE_MESSAGES];
	struct sockaddr_storage from[RECEIVE_MESSAGES];
	/* the route of the last packet, and what of the ICRC follows from it */
	struct vhca_route route;
	uint32_t seed_size, seed;
};

static struct udp *udp_of(struct vhca_carrier *carrier)
{
	return container_of(carrier, struct udp, carrier);
}

/* ---- addresses ---- */

static socklen_t socket_address(
	const uint8_t address[16], uint16_t port, struct sockaddr_storage *result)
{
	struct sockaddr_in *v4 = (void *)result;
	struct sockaddr_in6 *v6 = (void *)result;

	memset(result, 0, sizeof(*result));
	if (vhca_is_ipv4(address)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htobe16(port);
		memcpy(&v4->sin_addr, address + 12, 4);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htobe16(port);
	memcpy(&v6->sin6_addr, address, 16);
	return sizeof(*v6);
}

static void plain_address(const struct sockaddr_storage *from, uint8_t address[16], uint16_t *port)
{
	const struct sockaddr_in *v4 = (const void *)from;
	const struct sockaddr_in6 *v6 = (const void *)from;

	if (from->ss_family == AF_INET) {
		memset(address, 0, 10);
		address[10] = address[11] = 0xff;
		memcpy(address + 12, &v4->sin_addr, 4);
		*port = be16toh(v4->sin_port);
	} else {
		memcpy(address, &v6->sin6_addr, 16);
		*port = be16toh(v6->sin6_port);
	}
}

static bool is_local(const uint8_t address[16])
{
	static const uint8_t v6_loopback[16] = {[15] = 1};

	return vhca_is_ipv4(address) ? address[12] == 127
				     : !memcmp(address, v6_loopback, sizeof(v6_loopback));
}

static const char *address_text(const uint8_t address[16], char text[INET6_ADDRSTRLEN])
{
	if (vhca_is_ipv4(address))
		return inet_ntop(AF_INET, address + 12, text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, address, text, INET6_ADDRSTRLEN);
}

/* ---- out ---- */

static void send_messages(struct udp *udp)
{
	struct mmsghdr *next = udp->messages;
	unsigned int left = udp->n_messages;

	while (left) {
		int n = sendmmsg(udp->carrier.fd, next, left, MSG_DONTWAIT);

		if (n <= 0) {
			/* The first of them cannot go; a kernel without segmentation says so. */
			if (errno == EIO || errno == EINVAL)
				udp->segments = false;
			udp->carrier.refused++;
			n = 1;
		}
		next += n;
		left -= (unsigned int)n;
	}
	udp->n_messages = 0;
}

static void add_control(struct msghdr *message, int level, int type, const void *data, size_t size)
{
	struct cmsghdr *header =
		(void *)((uint8_t *)message->msg_control + message->msg_controllen);

	header->cmsg_level = level;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(header), data, size);
	message->msg_controllen += CMSG_SPACE(size);
}

/* What is not as the socket has it. */
static void add_controls(struct msghdr *message, const struct burst *burst, uint32_t segment)
{
	int traffic_class = burst->traffic_class, hop_limit = burst->hop_limit;
	bool ipv4 = vhca_is_ipv4(burst->address);
	uint16_t size = (uint16_t)segment;

	if (segment)
		add_control(message, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size));
	if (traffic_class)
		add_control(message, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
			&traffic_class, sizeof(traffic_class));
	if (hop_limit != VHCA_HOP_LIMIT)
		add_control(message, ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
			ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hop_limit, sizeof(hop_limit));
}

/* Segments of `segment` bytes; 0: one datagram. */
static void add_message(
	struct udp *udp, struct burst *burst, uint32_t offset, uint32_t length, uint32_t segment)
{
	uint32_t i = udp->n_messages++;
	struct msghdr *message = &udp->messages[i].msg_hdr;

	udp->parts[i] = (struct iovec){udp->arena + offset, length};
	*message = (struct msghdr){.msg_name = &burst->dest,
		.msg_namelen = burst->dest_size,
		.msg_iov = &udp->parts[i],
		.msg_iovlen = 1,
		.msg_control = &udp->controls[i]};
	add_controls(message, burst, segment);
	if (udp->n_messages == MAX_MESSAGES)
		send_messages(udp);
}

static void send_burst(struct udp *udp, struct burst *burst)
{
	if (burst->n > 1 && burst->local && udp->segments) {
		add_message(udp, burst, burst->offset, burst->length, burst->segment);
		return;
	}
	for (uint32_t at = 0; at < burst->length; at += burst->segment)
		add_message(
			udp, burst, burst->offset + at, min(burst->segment, burst->length - at), 0);
}

static bool full(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t bytes)
{
	return is_local(route->dest) && vhca_peer_full(&udp_of(carrier)->peers, route->dest, bytes);
}

static enum vhca_backlog backlog(struct vhca_carrier *carrier, const struct vhca_route *route)
{
	return is_local(route->dest) ? vhca_peer_backlog(&udp_of(carrier)->peers, route->dest)
				     : VHCA_BACKLOG_NONE;
}

static void flush(struct vhca_carrier *carrier)
{
	struct udp *udp = udp_of(carrier);

	if (!udp->n_bursts)
		return;
	for (uint32_t i = 0; i < udp->n_bursts; i++)
		send_burst(udp, &udp->bursts[i]);
	if (udp->n_messages)
		send_messages(udp);
	udp->n_bursts = udp->used = 0;
}

static bool joins(const struct burst *burst, const struct vhca_route *route, uint32_t size)
{
	return !burst->closed && size <= burst->segment && burst->n < MAX_SEGMENTS &&
		burst->length + size <= MAX_BURST_BYTES &&
		burst->traffic_class == route->traffic_class &&
		burst->hop_limit == route->hop_limit && !memcmp(burst->address, route->dest, 16);
}

static void start_burst(struct udp *udp, const struct vhca_route *route, uint32_t size)
{
	struct burst *burst;

	if (udp->n_bursts && !udp->bursts[udp->n_bursts - 1].n)
		udp->n_bursts--; /* it was reserved, and not used */
	burst = &udp->bursts[udp->n_bursts++];
	burst->offset = udp->used;
	burst->length = burst->n = 0;
	burst->segment = size;
	burst->closed = false;
	burst->traffic_class = route->traffic_class;
	burst->hop_limit = route->hop_limit;
	burst->local = is_local(route->dest);
	memcpy(burst->address, route->dest, 16);
	burst->dest_size = socket_address(route->dest, VHCA_ROCE_PORT, &burst->dest);
}

static uint8_t *reserve(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t size)
{
	struct udp *udp = udp_of(carrier);

	if (!udp->n_bursts || !joins(&udp->bursts[udp->n_bursts - 1], route, size) ||
		udp->used + size > ARENA_BYTES) {
		if (udp->n_bursts == MAX_BURSTS || udp->used + size > ARENA_BYTES)
			flush(carrier);
		start_burst(udp, route, size);
	}
	udp->reserved = size;
	return udp->arena + udp->used;
}

static void commit(struct vhca_carrier *carrier)
{
	struct udp *udp = udp_of(carrier);
	struct burst *burst = &udp->bursts[udp->n_bursts - 1];

	burst->length += udp->reserved;
	burst->n++;
	burst->closed = udp->reserved < burst->segment;
	udp->used += udp->reserved;
}

/* ---- in ---- */

static int int_of(const struct cmsghdr *header)
{
	int value = 0;

	memcpy(&value, CMSG_DATA(header), min(header->cmsg_len - CMSG_LEN(0), sizeof(value)));
	return value;
}

/* What the kernel says of the datagram, and how many it had no room for; returns the size of the
 * segments that it has put together. */
static uint32_t read_controls(
	struct udp *udp, struct vhca_packet_wire *wire, struct msghdr *message, uint32_t length)
{
	uint32_t segment = length;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
		header = CMSG_NXTHDR(message, header)) {
		int value = int_of(header);

		switch (header->cmsg_level << 16 | header->cmsg_type) {
		case IPPROTO_UDP << 16 | UDP_GRO:
			segment = value > 0 ? (uint32_t)value : length;
			break;
		case IPPROTO_IP << 16 | IP_TTL:
		case IPPROTO_IPV6 << 16 | IPV6_HOPLIMIT:
			udp->route.hop_limit = (uint8_t)value;
			break;
		case IPPROTO_IP << 16 | IP_TOS:
		case IPPROTO_IPV6 << 16 | IPV6_TCLASS:
			udp->route.traffic_class = (uint8_t)value;
			break;
		case SOL_SOCKET << 16 | SO_RXQ_OVFL:
			wire->drops[VHCA_DROP_OVERFLOW] = (uint32_t)value;
			break;
		}
	}
	return segment;
}

static bool receive_packet(
	struct udp *udp, struct vhca_packet_wire *wire, const uint8_t *bytes, uint32_t length)
{
	if (length < VHCA_ICRC_BYTES || length > VHCA_MAX_PACKET) {
		vhca_wire_drop(wire, VHCA_DROP_LENGTH);
		return true;
	}
	if (length != udp->seed_size) {
		udp->seed_size = length;
		udp->seed = vhca_icrc_of_route(&udp->route, length - VHCA_ICRC_BYTES);
	}
	return vhca_wire_receive(wire, &udp->route, udp->seed, bytes, length);
}

/* Adds to *n what was taken; false: the rest must wait. */
static bool receive_message(
	struct udp *udp, struct vhca_packet_wire *wire, uint32_t i, unsigned int *n)
{
	uint32_t length = udp->in[i].msg_len;
	const uint8_t *bytes = udp->in_parts[i].iov_base;
	struct vhca_route route = udp->route;
	uint32_t segment = read_controls(udp, wire, &udp->in[i].msg_hdr, length);

	plain_address(&udp->from[i], udp->route.source, &udp->route.source_port);
	if (memcmp(&route, &udp->route, sizeof(route)))
		udp->seed_size = 0;
	for (; udp->taken_bytes < length; udp->taken_bytes += segment, ++*n)
		if (!receive_packet(udp, wire, bytes + udp->taken_bytes,
			    min(segment, length - udp->taken_bytes)))
			return false;
	udp->taken_bytes = 0;
	return true;
}

static void offer_buffers(struct udp *udp)
{
	for (uint32_t i = 0; i < RECEIVE_MESSAGES; i++) {
		udp->in_parts[i] =
			(struct iovec){udp->buffers + (size_t)i * RECEIVE_BYTES, RECEIVE_BYTES};
		udp->in[i].msg_hdr = (struct msghdr){.msg_name = &udp->from[i],
			.msg_namelen = sizeof(udp->from[i]),
			.msg_iov = &udp->in_parts[i],
			.msg_iovlen = 1,
			.msg_control = &udp->in_controls[i],
			.msg_controllen = sizeof(udp->in_controls[i])};
	}
}

static bool take_all(struct udp *udp, struct vhca_packet_wire *wire, unsigned int *n)
{
	while (udp->taken < udp->n_in) {
		if (!receive_message(udp, wire, udp->taken, n))
			return false;
		udp->taken++;
	}
	return true;
}

static unsigned int receive(struct vhca_carrier *carrier, struct vhca_packet_wire *wire)
{
	struct udp *udp = udp_of(carrier);
	unsigned int n_packets = 0;

	for (int round = 0; round < RECEIVE_ROUNDS; round++) {
		int n;

		if (!take_all(udp, wire, &n_packets))
			break;
		offer_buffers(udp);
		n = recvmmsg(carrier->fd, udp->in, RECEIVE_MESSAGES, MSG_DONTWAIT, NULL);
		udp->n_in = n > 0 ? (uint32_t)n : 0;
		udp->taken = udp->taken_bytes = 0;
		if (!take_all(udp, wire, &n_packets) || n < RECEIVE_MESSAGES)
			break;
	}
	return n_packets;
}

/* ---- life ---- */

static void set_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

/* What a kernel does not have is done without. */
static void set_options(struct udp *udp, bool ipv4)
{
	int fd = udp->carrier.fd, zero = 0;

	if (ipv4) {
		set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
		set_option(fd, IPPROTO_IP, IP_TTL, VHCA_HOP_LIMIT);
		set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
		set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
	} else {
		set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
		set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, VHCA_HOP_LIMIT);
		set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
		set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	}
	set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BYTES);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BYTES);
	set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BYTES);
	set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BYTES);
	set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
	udp->segments = !setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &zero, sizeof(zero));
}

static int bind_to(const uint8_t address[16])
{
	struct sockaddr_storage name;
	socklen_t size = socket_address(address, VHCA_ROCE_PORT, &name);
	int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	if (name.ss_family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (!bind(fd, (const struct sockaddr *)&name, size))
		return fd;
	error = errno;
	close(fd);
	return -error;
}

/* The wanted address, or where another process has it, the next free one of 127.0.0.x, so that two
 * processes with the same options are two hosts. */
static int bind_near(uint8_t address[16])
{
	bool moves = vhca_is_ipv4(address) && address[12] == 127;
	uint8_t first = address[15];
	int fd = bind_to(address);

	while (fd == -EADDRINUSE && moves && address[15] < LAST_LOCAL) {
		address[15]++;
		fd = bind_to(address);
	}
	if (fd < 0)
		address[15] = first;
	return fd;
}

static void destroy(struct vhca_carrier *carrier)
{
	struct udp *udp = udp_of(carrier);

	if (carrier->fd >= 0)
		close(carrier->fd);
	vhca_peers_end(&udp->peers);
	free(udp->buffers);
	free(udp->arena);
	free(udp);
}

static struct vhca_carrier *allocate(struct vhca_device *device)
{
	struct udp *udp = calloc(1, sizeof(*udp));

	if (!udp)
		return NULL;
	udp->carrier.ops = &vhca_carrier_udp;
	udp->carrier.device = device;
	udp->carrier.fd = -1;
	udp->peers.fd = -1;
	udp->carrier.source_port = VHCA_ROCE_PORT;
	udp->arena = malloc(ARENA_BYTES);
	udp->buffers = malloc((size_t)RECEIVE_MESSAGES * RECEIVE_BYTES);
	if (udp->arena && udp->buffers)
		return &udp->carrier;
	destroy(&udp->carrier);
	return NULL;
}

/* Who asked for an address is told; nobody asked for the first one. */
static void say_moved(
	const struct vhca_device *device, const uint8_t wanted[16], const uint8_t address[16])
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];

	vbn__log(vhca_address_asked() ? LOG_NOTICE : LOG_INFO,
		"vhca: %s has the address %s, because another process has port %d of %s",
		device->name, address_text(address, to), VHCA_ROCE_PORT,
		address_text(wanted, from));
}

/* With an address that was asked for, and is another's, it would be taken for that one: such a
 * device cannot be opened. */
static void say_refused(struct vhca_device *device, const uint8_t wanted[16], int error)
{
	char text[INET6_ADDRSTRLEN];

	address_text(wanted, text);
	if (!vhca_address_asked()) {
		log_warning("vhca: %s reaches no other process, because port %d of %s cannot be "
			    "had (%s): see that UDP sockets can be made",
			device->name, VHCA_ROCE_PORT, text, strerror(error));
		return;
	}
	device->refused = error;
	if (error == EADDRINUSE)
		log_error("vhca: %s cannot be opened: another process has port %d of %s: end that "
			  "one, or choose another VHCA_ADDRESS of this host",
			device->name, VHCA_ROCE_PORT, text);
	else
		log_error("vhca: %s cannot be opened: port %d of %s cannot be had (%s): choose "
			  "VHCA_ADDRESS among this host's addresses",
			device->name, VHCA_ROCE_PORT, text, strerror(error));
}

static struct vhca_carrier *create(struct vhca_device *device, const char *argument)
{
	struct vhca_carrier *carrier = allocate(device);
	uint8_t wanted[16];

	(void)argument;
	if (!carrier)
		return NULL;
	vhca_device_address(device, wanted);
	memcpy(carrier->address, wanted, 16);
	carrier->fd = bind_near(carrier->address);
	if (carrier->fd < 0) {
		say_refused(device, wanted, -carrier->fd);
		destroy(carrier);
		return NULL;
	}
	set_options(udp_of(carrier), vhca_is_ipv4(wanted));
	memcpy(udp_of(carrier)->route.dest, carrier->address, 16);
	if (memcmp(wanted, carrier->address, 16)) {
		vhca_device_move(device, carrier->address);
		say_moved(device, wanted, carrier->address);
	}
	return carrier;
}

const struct vhca_carrier_ops vhca_carrier_udp = {
	.name = "udp",
	.create = create,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.full = full,
	.backlog = backlog,
	.flush = flush,
	.receive = receive,
};
