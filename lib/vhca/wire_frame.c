/* wire_frame.c - RoCE packets in Ethernet frames: of a TAP, whose other end is the host's, or of an
 * interface, by a packet socket
 *
 * The headers are made and checked here. The port has a MAC of its own and answers for the addresses
 * that its GIDs are; a GID's VLAN is a tag. Peers beyond a GID's link are reached by a gateway.
 */

#include "vhca/flow.h"
#include "vhca/frame_io.h"
#include "vhca/interface.h"
#include "vhca/neighbor.h"
#include "vhca/raw.h"

#include <arpa/inet.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	TAG_BYTES = VHCA_TAG_BYTES,
	HEADROOM = VHCA_ETHERNET + TAG_BYTES + VHCA_ROUTE_BYTES,
	MOST_HEADERS = 96,    /* from GRH to ICRC, of the packet that has most of them */
	RECEIVE_FRAMES = 256, /* before the queues have their turn */
	MAX_WAITING = 64,     /* frames to neighbors whose MAC is not known yet */
	TOLD_UNREACHABLE = 4, /* sentences about addresses that no way leads to */
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
	struct vhca_frame_io *io;
	struct vhca_neighbors neighbors;
	struct waiting *waiting;
	uint32_t n_waiting;
	uint32_t told; /* of addresses that no way leads to */
	/* where the table had the GIDs of the last packets */
	uint32_t source_at, dest_at;
	/* the packet that is being written, behind room for its headers */
	struct vhca_route route;
	uint32_t size;
	uint8_t out[HEADROOM + VHCA_MAX_PACKET];
	/* the frame that came last, and whether its receiver was not ready */
	bool held;
	struct vhca_frame_in in;
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

static uint16_t get_be16(const uint8_t *from)
{
	return (uint16_t)(from[0] << 8 | from[1]);
}

/* ---- own addresses ---- */

static bool gid_is(const struct vhca_gid *gid, const uint8_t address[16], uint16_t vlan, bool v1)
{
	return !memcmp(gid->raw, address, 16) && gid->vlan == vlan && !gid->type == v1;
}

/* NULL: the port has no such GID. Begins where the last one was. */
static const struct vhca_gid *find_gid(const struct frame_carrier *frames,
	const uint8_t address[16], uint16_t tag, bool v1, uint32_t *at)
{
	const struct vhca_gid *gids = frames->carrier.device->gids;
	uint16_t vlan = tag & VHCA_VLAN_MASK;

	if (likely(gid_is(&gids[*at], address, vlan, v1)))
		return &gids[*at];
	for (uint32_t i = 0; i < VHCA_N_GIDS; i++) {
		if (!gid_is(&gids[i], address, vlan, v1))
			continue;
		*at = i;
		return &gids[i];
	}
	return NULL;
}

static bool has_address(const struct frame_carrier *frames, const uint8_t address[16])
{
	const struct vhca_gid *gids = frames->carrier.device->gids;

	for (uint32_t i = 0; i < VHCA_N_GIDS; i++)
		if (!memcmp(gids[i].raw, address, 16))
			return true;
	return false;
}

/* ---- ways ---- */

static bool on_link(const struct vhca_gid *gid, const uint8_t address[16])
{
	uint32_t whole = gid->prefix / 8, rest = gid->prefix % 8;

	if (memcmp(gid->raw, address, whole))
		return false;
	return !rest || !((gid->raw[whole] ^ address[whole]) >> (8 - rest));
}

static const uint8_t *gateway_of(const struct vhca_device *device, const struct vhca_gid *gid)
{
	for (uint32_t i = 0; i < device->n_gateways; i++) {
		const uint8_t *gateway = device->gateways[i];
		bool anywhere = vhca_is_link_local(gateway) && !vhca_is_ipv4(gid->raw);

		if (anywhere || on_link(gid, gateway))
			return gateway;
	}
	return NULL;
}

/* Who on the link takes what goes to `dest`; NULL: nobody. */
static const uint8_t *next_hop(struct frame_carrier *frames, const struct vhca_route *route)
{
	const struct vhca_gid *gid =
		find_gid(frames, route->source, route->tag, route->v1, &frames->source_at);

	if (!gid || vhca_is_link_local(route->dest) || on_link(gid, route->dest))
		return route->dest;
	return route->v1 ? NULL : gateway_of(frames->carrier.device, gid);
}

static void tell_unreachable(struct frame_carrier *frames, const struct vhca_route *route)
{
	bool ipv4 = vhca_is_ipv4(route->dest);
	char text[INET6_ADDRSTRLEN] = "";

	frames->carrier.refused++;
	if (frames->told++ >= TOLD_UNREACHABLE)
		return;
	inet_ntop(ipv4 ? AF_INET : AF_INET6, route->dest + (ipv4 ? 12 : 0), text, sizeof(text));
	log_warning(
		"vhca: %s cannot reach %s: it is outside of the GID's link, and no gateway is on "
		"it; name one by VHCA_GATEWAY, or give VHCA_ADDRESS a shorter prefix",
		frames->carrier.device->name, text);
}

/* A link-local GID of RoCEv1 has the MAC in it: no IP is at work that could be asked. */
static bool mac_in_gid(const struct vhca_route *route, uint8_t mac[VHCA_MAC])
{
	const uint8_t *gid = route->dest;

	if (!route->v1 || !vhca_is_link_local(gid) || gid[11] != 0xff || gid[12] != 0xfe)
		return false;
	memcpy(mac, gid + 8, 3);
	memcpy(mac + 3, gid + 13, 3);
	mac[0] ^= 2;
	return true;
}

static bool find_mac(struct frame_carrier *frames, const struct vhca_route *route,
	const uint8_t *hop, uint8_t mac[VHCA_MAC])
{
	const uint8_t *known;

	if (mac_in_gid(route, mac))
		return true;
	known = vhca_neighbor_find(&frames->neighbors, hop, route->tag & VHCA_VLAN_MASK);
	if (known)
		memcpy(mac, known, VHCA_MAC);
	return known != NULL;
}

/* ---- out ---- */

/* `frame` has room for a tag in front of it. */
static void send_frame(struct frame_carrier *frames, uint8_t *frame, size_t size, uint16_t tag)
{
	if (tag) {
		memmove(frame - TAG_BYTES, frame, 2 * VHCA_MAC);
		frame -= TAG_BYTES;
		size += TAG_BYTES;
		put_be16(frame + 12, VHCA_TYPE_VLAN);
		put_be16(frame + 14, tag);
	}
	frames->carrier.refused += vhca_frame_io_send(frames->io, frame, size);
}

static void send_packet(struct frame_carrier *frames, const uint8_t mac[VHCA_MAC],
	const struct vhca_route *route, uint8_t *packet, uint32_t size)
{
	uint8_t headers[VHCA_ROUTE_BYTES];
	size_t n = vhca_route_headers(route, size - VHCA_ICRC_BYTES, headers);
	uint8_t *ip = packet - n, *frame = ip - VHCA_ETHERNET;

	memcpy(ip, headers, n);
	if (vhca_route_type(route) == VHCA_TYPE_IPV6)
		vhca_route_sum(ip);
	memcpy(frame, mac, VHCA_MAC);
	memcpy(frame + VHCA_MAC, frames->neighbors.mac, VHCA_MAC);
	put_be16(frame + 12, vhca_route_type(route));
	send_frame(frames, frame, VHCA_ETHERNET + n + size, route->tag);
}

static void ask_for(
	struct frame_carrier *frames, const struct vhca_route *route, const uint8_t *hop)
{
	uint8_t question[TAG_BYTES + VHCA_NEIGHBOR_FRAME];
	size_t size = vhca_neighbor_ask(&frames->neighbors, route->source, hop,
		route->tag & VHCA_VLAN_MASK, question + TAG_BYTES);

	if (size)
		send_frame(frames, question + TAG_BYTES, size, route->tag);
}

static void forget_oldest(struct frame_carrier *frames)
{
	struct waiting *oldest = frames->waiting;

	frames->waiting = oldest->next;
	frames->n_waiting--;
	free(oldest);
}

static void wait_for_neighbor(struct frame_carrier *frames, const uint8_t *hop)
{
	struct waiting *waiting = malloc(sizeof(*waiting));
	struct waiting **last = &frames->waiting;

	ask_for(frames, &frames->route, hop);
	if (!waiting)
		return;
	if (frames->n_waiting == MAX_WAITING)
		forget_oldest(frames);
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
	uint8_t mac[VHCA_MAC];

	while (*link) {
		struct waiting *waiting = *link;
		const uint8_t *hop = next_hop(frames, &waiting->route);

		if (hop && !find_mac(frames, &waiting->route, hop, mac)) {
			link = &waiting->next;
			continue;
		}
		if (hop)
			send_packet(frames, mac, &waiting->route, waiting->bytes + HEADROOM,
				waiting->size);
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
	const uint8_t *hop = next_hop(frames, &frames->route);
	uint8_t mac[VHCA_MAC];

	if (unlikely(!hop))
		tell_unreachable(frames, &frames->route);
	else if (likely(find_mac(frames, &frames->route, hop, mac)))
		send_packet(frames, mac, &frames->route, frames->out + HEADROOM, frames->size);
	else
		wait_for_neighbor(frames, hop);
}

static void frame(struct vhca_carrier *carrier, const uint8_t *bytes, uint32_t size)
{
	carrier->refused += vhca_frame_io_send(frame_carrier(carrier)->io, bytes, size);
}

static uint64_t overflowed(struct vhca_carrier *carrier)
{
	return vhca_frame_io_overflowed(frame_carrier(carrier)->io);
}

static void flush(struct vhca_carrier *carrier)
{
	carrier->refused += vhca_frame_io_flush(frame_carrier(carrier)->io);
}

/* ---- in ---- */

/* The frame as it lay on the wire: with its tag in its place, its checksum, and padded. */
static void take_raw(struct frame_carrier *frames)
{
	uint8_t *bytes = frames->in.bytes;
	size_t size = frames->in.size;

	if (frames->in.tag) {
		memmove(bytes - TAG_BYTES, bytes, 2 * VHCA_MAC);
		bytes -= TAG_BYTES;
		size += TAG_BYTES;
		put_be16(bytes + 12, VHCA_TYPE_VLAN);
		put_be16(bytes + 14, frames->in.tag);
	}
	if (frames->in.sum_missing)
		vhca_frame_complete_sum(bytes, (uint32_t)size);
	vhca_raw_receive(frames->carrier.device, bytes, vhca_frame_pad(bytes, (uint32_t)size));
}

/* What is not RoCE's is for raw queues, if there are any. */
static bool take_packet(struct frame_carrier *frames, struct vhca_packet_wire *wire)
{
	const uint8_t *headers = frames->in.bytes + VHCA_ETHERNET;
	size_t packet_size = 0, n;
	struct vhca_route route;

	n = vhca_route_parse(get_be16(headers - 2), headers, frames->in.size - VHCA_ETHERNET,
		&route, &packet_size);
	route.tag = frames->in.tag;
	if (!n || !find_gid(frames, route.dest, route.tag, route.v1, &frames->dest_at)) {
		if (n)
			vhca_wire_drop(wire,
				has_address(frames, route.dest) ? VHCA_DROP_VLAN
								: VHCA_DROP_ADDRESS);
		if (vhca_raw_wanted(frames->carrier.device))
			take_raw(frames);
		return true;
	}
	vhca_neighbor_learn(&frames->neighbors, route.source, route.tag & VHCA_VLAN_MASK,
		frames->in.bytes + VHCA_MAC);
	return vhca_wire_receive(
		wire, &route, vhca_icrc_of_headers(headers, n), headers + n, packet_size);
}

/* False: its receiver is not ready. */
static bool take_frame(struct frame_carrier *frames, struct vhca_packet_wire *wire)
{
	uint8_t answer[TAG_BYTES + VHCA_NEIGHBOR_FRAME];
	size_t size;

	if (frames->in.size < VHCA_ETHERNET)
		return true;
	size = vhca_neighbor_heard(&frames->neighbors, frames->in.tag & VHCA_VLAN_MASK,
		frames->in.bytes, frames->in.size, answer + TAG_BYTES);
	if (size)
		send_frame(frames, answer + TAG_BYTES, size, frames->in.tag & VHCA_VLAN_MASK);
	if (frames->waiting)
		send_waiting(frames);
	return take_packet(frames, wire);
}

static unsigned int receive(struct vhca_carrier *carrier, struct vhca_packet_wire *wire)
{
	struct frame_carrier *frames = frame_carrier(carrier);
	unsigned int n = 0;

	for (; n < RECEIVE_FRAMES; n++) {
		if (!frames->held && !vhca_frame_io_receive(frames->io, &frames->in))
			break;
		frames->held = false;
		frames->held = !take_frame(frames, wire);
		if (frames->held)
			break;
	}
	return n;
}

/* ---- life ---- */

static void destroy(struct vhca_carrier *carrier)
{
	struct frame_carrier *frames = frame_carrier(carrier);

	vhca_frame_io_close(frames->io);
	while (frames->waiting)
		forget_oldest(frames);
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

/* No packet of the port is longer than the interface's frames may be; as the kernel reckons it. */
static void limit_mtu(struct vhca_device *device, const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), asked = 128 << device->mtu;
	struct ifreq request = {.ifr_mtu = 0};

	memcpy(request.ifr_name, name, min(strlen(name), sizeof(request.ifr_name) - 1));
	if (fd < 0 || ioctl(fd, SIOCGIFMTU, &request))
		request.ifr_mtu = INT_MAX;
	if (fd >= 0)
		close(fd);
	while (device->mtu > IBV_MTU_256 && (128 << device->mtu) + MOST_HEADERS > request.ifr_mtu)
		device->mtu--;
	if (128 << device->mtu != asked)
		log_warning("vhca: %s has a path MTU of %d bytes, not of %d: %s has an MTU of %d, "
			    "which %d would be enough for: raise it",
			device->name, 128 << device->mtu, asked, name, request.ifr_mtu,
			asked + MOST_HEADERS);
}

/* `error` is of making `io`, which there is none without. */
static struct vhca_carrier *create(struct vhca_device *device, const struct vhca_carrier_ops *ops,
	const char *name, struct vhca_frame_io *io, int error)
{
	struct frame_carrier *frames = io ? calloc(1, sizeof(*frames)) : NULL;

	if (!io)
		log_warning(
			"vhca: %s is not plugged into %s \"%s\" (%s): name an interface that is "
			"there, and have the right to use it (CAP_NET_ADMIN or CAP_NET_RAW)",
			device->name, ops->name, name, strerror(-error));
	if (!frames) {
		vhca_frame_io_close(io);
		return NULL;
	}
	frames->carrier.ops = ops;
	frames->carrier.device = device;
	frames->carrier.fd = vhca_frame_io_fd(io);
	frames->io = io;
	vhca_device_address(device, frames->carrier.address);
	frames->neighbors.gids = device->gids;
	own_mac(device, frames->neighbors.mac);
	limit_mtu(device, name);
	return &frames->carrier;
}

static struct vhca_carrier *create_tap(struct vhca_device *device, const char *argument)
{
	struct vhca_frame_io *io = NULL;
	int error = vhca_frame_io_tap(argument, &io);

	return create(device, &vhca_carrier_tap, argument, io, error);
}

static struct vhca_carrier *create_packet(struct vhca_device *device, const char *argument)
{
	struct vhca_frame_io *io = NULL;
	int error = vhca_frame_io_socket(argument, &io);

	if (!error && vhca_options()->of_interface)
		error = vhca_interface_begin(device, argument);
	if (error) {
		vhca_frame_io_close(io);
		io = NULL;
	}
	return create(device, &vhca_carrier_packet, argument, io, error);
}

const struct vhca_carrier_ops vhca_carrier_tap = {
	.name = "tap",
	.frames = true,
	.create = create_tap,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.frame = frame,
	.overflowed = overflowed,
	.flush = flush,
	.receive = receive,
};

const struct vhca_carrier_ops vhca_carrier_packet = {
	.name = "packet",
	.frames = true,
	.create = create_packet,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.frame = frame,
	.overflowed = overflowed,
	.flush = flush,
	.receive = receive,
};
