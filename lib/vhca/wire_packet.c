/* wire_packet.c - a wire of RoCEv2 packets: to peers of other processes and hosts by a carrier, to
 * those of this process by the loopback
 */

#include "vhca/disturb.h"
#include "vhca/pcap.h"
#include "vhca/raw.h"

#include <stdlib.h>

enum {
	DEFAULT_PKEY = 0xffff,
	READY_FLOWS = 4096, /* before the queues have their turn */
	PKEY_MASK = 0x7fff,
	FIRST_SOURCE_PORT = 0xc000, /* RoCEv2's source ports are for the network to hash on */
	LIVELY_NS = 1000 * 1000,    /* the carrier is asked at every turn after a packet */
	QUIET_NS = 20 * 1000,       /* ... and so often when there was none for long */
	HELD_NS = 100 * 1000,       /* until a late receiver is looked at again */
	PAUSE_NS = 20 * 1000,       /* a sender's, while its peer is full */
	PAUSE_PACKETS = 16,         /* of a UC message, before the peer is looked at again */
	STOPPED_S = 10,             /* a process that reads nothing for so long is gone */
};

static struct vhca_packet_wire *packet_wire(struct vhca_wire *wire)
{
	return container_of(wire, struct vhca_packet_wire, wire);
}

void vhca_wire_drop(struct vhca_packet_wire *wire, enum vhca_drop why)
{
	wire->drops[why]++;
}

/* ---- routes ---- */

/* The address in the link-local GID of another vhca device, whose MAC is made of it. */
static bool address_of_link_local(const uint8_t gid[16], uint8_t address[16])
{
	static const uint8_t prefix[10] = {0xfe, 0x80};

	if (memcmp(gid, prefix, sizeof(prefix)) || gid[11] != 0xff || gid[12] != 0xfe)
		return false;
	memset(address, 0, 10);
	address[10] = address[11] = 0xff;
	address[12] = gid[10];
	memcpy(address + 13, gid + 13, 3);
	return true;
}

/* In frames of its own a port sends all that a GID is: its address, its VLAN, and v1 as such. */
static bool route_of_frames(
	const struct vhca_gid *source, const struct vhca_path *path, struct vhca_route *route)
{
	if (vhca_gid_is_empty(source))
		return false;
	memcpy(route->source, source->raw, 16);
	memcpy(route->dest, path->gid, 16);
	route->source_port = (uint16_t)(FIRST_SOURCE_PORT | ((path->qpn * 0x9e3779b1u) >> 18));
	route->v1 = !source->type;
	route->tag = vhca_tag_of(source, path->sl);
	return vhca_is_ipv4(route->source) == vhca_is_ipv4(route->dest);
}

/* Of a socket: the kernel writes the headers, by its one address. */
static bool route_of_socket(
	const struct vhca_carrier *carrier, const struct vhca_path *path, struct vhca_route *route)
{
	memcpy(route->source, carrier->address, 16);
	if (!vhca_is_ipv4(route->source) || !address_of_link_local(path->gid, route->dest))
		memcpy(route->dest, path->gid, 16);
	route->source_port = carrier->source_port;
	return vhca_is_ipv4(route->source) == vhca_is_ipv4(route->dest);
}

bool vhca_wire_route(
	const struct vhca_packet_wire *wire, const struct vhca_path *path, struct vhca_route *route)
{
	const struct vhca_gid *source = &wire->wire.device->gids[path->sgid_index];

	memset(route, 0, sizeof(*route));
	route->traffic_class = path->traffic_class;
	route->hop_limit = path->hop_limit;
	return wire->carrier->ops->frames ? route_of_frames(source, path, route)
					  : route_of_socket(wire->carrier, path, route);
}

/* Whether what came by that route is from whom the other leads to. */
static bool is_of_peer(const struct vhca_route *came, const struct vhca_route *to)
{
	return !memcmp(to->dest, came->source, 16) && !memcmp(to->source, came->dest, 16) &&
		to->v1 == came->v1 && !((to->tag ^ came->tag) & VHCA_VLAN_MASK);
}

/* ---- out ---- */

static uint8_t *begin(struct vhca_packet_wire *wire, const struct vhca_route *route, uint32_t seed,
	const struct vhca_packet *packet, uint32_t size)
{
	struct vhca_carrier *carrier = wire->carrier;
	uint8_t *bytes = carrier->ops->reserve(carrier, route, size + VHCA_ICRC_BYTES);
	uint32_t headers;

	if (unlikely(!bytes)) {
		vhca_wire_drop(wire, VHCA_DROP_SEND);
		return NULL;
	}
	wire->out.bytes = bytes;
	wire->out.size = size;
	wire->out.seed = seed;
	wire->out.route = route;
	headers = vhca_packet_encode(packet, bytes);
	memset(bytes + headers + packet->length, 0, size - headers - packet->length);
	return bytes + headers;
}

uint8_t *vhca_wire_begin(struct vhca_flow *flow, struct vhca_packet *packet)
{
	uint32_t size = vhca_packet_size(
		vhca_packet_parts(packet->transport, packet->operation), packet->length);

	packet->pkey = DEFAULT_PKEY;
	packet->dest_qpn = flow->qp->set.dest_qp_num;
	packet->v1 = flow->v1;
	if (flow->seed_size != size) {
		flow->seed_size = size;
		flow->seed = vhca_icrc_of_route(&flow->route, size);
	}
	return begin(flow->wire, &flow->route, flow->seed, packet, size);
}

static void capture(bool sent, const struct vhca_route *route, const uint8_t *bytes, size_t size)
{
	vhca_pcap_packet(sent, route, bytes, size);
}

void vhca_wire_end(struct vhca_packet_wire *wire)
{
	struct vhca_counters *counters = &wire->wire.device->counters;
	uint32_t size = wire->out.size + VHCA_ICRC_BYTES;

	vhca_icrc_write(wire->out.seed, wire->out.bytes, wire->out.size);
	counters->port_xmit_packets++;
	counters->unicast_xmit_packets++;
	counters->port_xmit_data += size;
	if (unlikely(!wire->wire.device->port_up))
		return;
	if (unlikely(vhca_pcap_on))
		capture(true, wire->out.route, wire->out.bytes, size);
	if (unlikely(vhca_disturb_any))
		vhca_disturb(wire);
	else
		wire->carrier->ops->commit(wire->carrier);
	wire->lively = clock_cycles() + wire->lively_cycles;
}

/* ---- in ---- */

static bool ready(const struct vhca_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
		qp->state == IBV_QPS_SQE;
}

static bool of_transport(const struct vhca_qp *qp, uint8_t transport)
{
	switch (qp->type) {
	case IBV_QPT_RC: return transport == VHCA_TRANSPORT_RC;
	case IBV_QPT_UC: return transport == VHCA_TRANSPORT_UC;
	default: return transport == VHCA_TRANSPORT_UD;
	}
}

static enum vhca_drop deliver_datagram(
	struct vhca_qp *qp, const struct vhca_route *route, const struct vhca_packet *packet)
{
	struct vhca_datagram how = {
		.source_qpn = packet->source_qpn, .qkey = packet->qkey, .tag = route->tag};
	struct vhca_message message;

	message.qp = qp;
	message.opcode = packet->parts & VHCA_HAS_IMM ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND;
	message.solicited = packet->solicited;
	message.imm = packet->imm;
	message.length = packet->length;
	message.n_sge = 1;
	message.sge[0] = (struct vhca_sge){(uint8_t *)(uintptr_t)packet->payload, packet->length};
	vhca_route_grh(route, vhca_packet_size(packet->parts, packet->length), how.grh);
	vhca_receive_datagram(qp, &message, &how);
	return VHCA_DROP_NONE;
}

/* Nobody would send it again: it waits for a receive WQE, but not for ever. */
static bool must_wait(
	struct vhca_packet_wire *wire, struct vhca_qp *qp, const struct vhca_packet *packet)
{
	if (likely(qp->type == IBV_QPT_RC) || !(packet->parts & VHCA_IS_SEND) ||
		!(packet->parts & VHCA_BEGINS) || vhca_responder_ready(qp)) {
		qp->unready_since = 0;
		return false;
	}
	wire->wire.held = vhca_patience(wire, qp);
	return wire->wire.held;
}

/* A packet that is whole, to one of its device's QPs. */
static enum vhca_drop deliver(struct vhca_packet_wire *wire, const struct vhca_route *route,
	const struct vhca_packet *packet)
{
	struct vhca_qp *qp = vhca_find_qp(wire->wire.device, packet->dest_qpn);
	struct vhca_flow *flow;

	if (unlikely(!qp))
		return VHCA_DROP_QPN;
	if (unlikely(!of_transport(qp, packet->transport)))
		return VHCA_DROP_TRANSPORT;
	if (unlikely(!ready(qp)))
		return VHCA_DROP_STATE;
	if (must_wait(wire, qp, packet))
		return VHCA_DROP_NOT_YET;
	if (qp->type == IBV_QPT_UD)
		return deliver_datagram(qp, route, packet);
	/* A stray packet, of a process that had this address, is not to make a flow of a QP whose
	 * peer is in this one. */
	if (unlikely(!qp->flow && !vhca_disturb_any && vhca_find_peer_device(qp)))
		return VHCA_DROP_SOURCE;
	flow = vhca_flow_of(wire, qp);
	if (unlikely(!flow || !is_of_peer(route, &flow->route) || packet->v1 != flow->v1))
		return VHCA_DROP_SOURCE;
	flow->heard = wire->last_poll;
	if (packet->parts & VHCA_IS_RESPONSE)
		vhca_flow_answered(flow, packet);
	else
		vhca_flow_arrived(flow, packet);
	return VHCA_DROP_NONE;
}

static void count_received(struct vhca_packet_wire *wire, const struct vhca_route *route,
	const uint8_t *bytes, size_t size)
{
	struct vhca_counters *counters = &wire->wire.device->counters;

	counters->port_rcv_packets++;
	counters->unicast_rcv_packets++;
	counters->port_rcv_data += size;
	if (unlikely(vhca_pcap_on))
		capture(false, route, bytes, size);
}

bool vhca_wire_receive(struct vhca_packet_wire *wire, const struct vhca_route *route,
	uint32_t icrc_seed, const uint8_t *bytes, size_t size)
{
	struct vhca_counters *counters = &wire->wire.device->counters;
	struct vhca_packet packet;
	enum vhca_drop why = vhca_packet_decode(bytes, size, &packet);

	if (unlikely(!wire->wire.device->port_up))
		return true;
	if (likely(!wire->waited))
		count_received(wire, route, bytes, size);
	if (likely(!why) && unlikely(!vhca_icrc_right(icrc_seed, bytes, size - VHCA_ICRC_BYTES))) {
		counters->rx_icrc_encapsulated++;
		why = VHCA_DROP_ICRC;
	}
	if (likely(!why) && unlikely((packet.pkey & PKEY_MASK) != PKEY_MASK))
		why = VHCA_DROP_PKEY;
	if (likely(!why))
		why = deliver(wire, route, &packet);
	wire->waited = why == VHCA_DROP_NOT_YET;
	if (unlikely(wire->waited))
		return false;
	if (unlikely(why))
		vhca_wire_drop(wire, why);
	return true;
}

/* ---- the seam to the requester ---- */

static bool full(
	struct vhca_packet_wire *wire, const struct vhca_route *route, uint32_t packet_bytes)
{
	struct vhca_carrier *carrier = wire->carrier;

	return carrier->ops->full &&
		carrier->ops->full(carrier, route, PAUSE_PACKETS * packet_bytes);
}

/* UC: all packets leave at once, and nobody answers. */
static struct vhca_answer send_unreliably(
	struct vhca_flow *flow, const struct vhca_message *message)
{
	uint32_t n = message->length ? (message->length + flow->mtu - 1) / flow->mtu : 1;

	vhca_flow_start(flow);
	for (uint32_t k = flow->resume; k < n; k++) {
		struct vhca_packet packet = {.transport = VHCA_TRANSPORT_UC, .psn = flow->next_psn};
		uint8_t *payload;

		if (k % PAUSE_PACKETS == 0 && full(flow->wire, &flow->route, flow->mtu)) {
			flow->resume = k;
			vhca_qp_wait(flow->qp, PAUSE_NS);
			return (struct vhca_answer){.kind = VHCA_BUSY};
		}
		vhca_packet_of_message(message, k, n, flow->mtu, &packet);
		payload = vhca_wire_begin(flow, &packet);
		if (payload) {
			vhca_gather_part(payload, message, k * flow->mtu, packet.length);
			vhca_wire_end(flow->wire);
		}
		flow->next_psn = vhca_psn_add(flow->next_psn, 1);
	}
	flow->resume = 0;
	return (struct vhca_answer){.kind = VHCA_ACK};
}

static struct vhca_answer by_packets(
	struct vhca_packet_wire *wire, const struct vhca_message *message)
{
	struct vhca_flow *flow = vhca_flow_of(wire, message->qp);

	if (unlikely(!flow))
		return (struct vhca_answer){.kind = VHCA_SILENCE};
	if (unlikely(message->qp->type == IBV_QPT_UC))
		return send_unreliably(flow, message);
	return vhca_flow_request(flow, message);
}

/* A QP that has a flow has its peer elsewhere. */
static struct vhca_answer request(struct vhca_wire *wire, const struct vhca_message *message)
{
	const struct vhca_qp *qp = message->qp;

	if (unlikely(vhca_disturb_any))
		return by_packets(packet_wire(wire), message);
	if (likely(qp->peer && qp->peer_generation == vhca_qp_generation))
		return vhca_wire_loopback.request(wire, message);
	if (qp->flow || !vhca_find_peer_device(qp))
		return by_packets(packet_wire(wire), message);
	return vhca_wire_loopback.request(wire, message);
}

/* A key with its highest bit set stands for the QP's own. */
static uint32_t qkey_of(const struct vhca_message *message)
{
	uint32_t key = from_be32(message->av->key.qkey.qkey);

	return key >> 31 ? message->qp->set.qkey : key;
}

static bool datagram_by_packet(struct vhca_packet_wire *wire, const struct vhca_message *message)
{
	struct vhca_qp *qp = message->qp;
	struct vhca_path path = vhca_path_of_av(message->av, qp->number);
	struct vhca_packet packet = {
		.transport = VHCA_TRANSPORT_UD,
		.operation = message->opcode == MLX5_OPCODE_SEND_IMM ? VHCA_SEND_ONLY_IMM
								     : VHCA_SEND_ONLY,
		.pkey = DEFAULT_PKEY,
		.dest_qpn = from_be32(message->av->dqp_dct) & 0xffffff,
		.psn = qp->datagram_psn,
		.solicited = message->solicited,
		.imm = message->imm,
		.qkey = qkey_of(message),
		.source_qpn = qp->number,
		.length = message->length,
	};
	uint32_t size = vhca_packet_size(
		vhca_packet_parts(packet.transport, packet.operation), packet.length);
	uint8_t *payload;

	if (!vhca_wire_route(wire, &path, &wire->datagram_route))
		return true;
	if (full(wire, &wire->datagram_route, size / PAUSE_PACKETS)) {
		vhca_qp_wait(qp, PAUSE_NS);
		return false;
	}
	qp->datagram_psn = vhca_psn_add(qp->datagram_psn, 1);
	payload = begin(wire, &wire->datagram_route,
		vhca_icrc_of_route(&wire->datagram_route, size), &packet, size);
	if (!payload)
		return true;
	vhca_gather_part(payload, message, 0, message->length);
	vhca_wire_end(wire);
	return true;
}

static bool datagram(struct vhca_wire *wire, const struct vhca_message *message)
{
	uint32_t source = vhca_av_gid(message->av);

	if (!vhca_disturb_any &&
		vhca_find_device(message->av->rgid, wire->device->gids[source].vlan))
		return vhca_wire_loopback.datagram(wire, message);
	return datagram_by_packet(packet_wire(wire), message);
}

void vhca_wire_frame(struct vhca_packet_wire *wire, const uint8_t *bytes, uint32_t size)
{
	if (wire->carrier->ops->frame)
		wire->carrier->ops->frame(wire->carrier, bytes, size);
	else if (!wire->draining) /* then the process ends, and the other ports are not locked */
		vhca_raw_flood(wire->wire.device, bytes, size);
}

static void frame(struct vhca_wire *base, const uint8_t *bytes, uint32_t size)
{
	struct vhca_packet_wire *wire = packet_wire(base);

	if (unlikely(vhca_disturb_any))
		vhca_disturb_frame(wire, bytes, size);
	else
		vhca_wire_frame(wire, bytes, size);
	wire->lively = clock_cycles() + wire->lively_cycles;
}

/* ---- turns ---- */

static unsigned int run_ready(struct vhca_packet_wire *wire)
{
	struct vhca_link *link, *last = wire->ready.prev;
	unsigned int n = 0;

	while (!vhca_list_empty(&wire->ready) && n < READY_FLOWS) {
		struct vhca_flow *flow;

		link = wire->ready.next;
		flow = container_of(link, struct vhca_flow, in_ready);
		vhca_list_remove(link);
		vhca_flow_reply(flow);
		vhca_flow_go_on(flow);
		n++;
		if (link == last)
			break;
	}
	return n;
}

/* Acknowledgements wait for the replies before them. */
static void run_due(struct vhca_packet_wire *wire)
{
	struct vhca_link *link, *after;

	for (link = wire->due.next; link != &wire->due; link = after) {
		struct vhca_flow *flow = container_of(link, struct vhca_flow, in_due);

		after = link->next;
		if (flow->replies_head != flow->replies_tail)
			continue;
		vhca_list_remove(link);
		vhca_flow_acknowledge(flow);
	}
}

static unsigned int poll(struct vhca_wire *base)
{
	struct vhca_packet_wire *wire = packet_wire(base);
	struct vhca_carrier *carrier = wire->carrier;
	uint64_t now = clock_cycles();
	unsigned int n = run_ready(wire), received = 0;

	run_due(wire);
	carrier->ops->flush(carrier);
	if (now < wire->lively || now - wire->last_poll > wire->quiet_cycles) {
		wire->last_poll = now;
		wire->wire.held = false;
		received = carrier->ops->receive(carrier, wire);
	}
	if (received) {
		wire->lively = now + wire->lively_cycles;
		run_due(wire);
		n += run_ready(wire);
		carrier->ops->flush(carrier);
	}
	if (unlikely(wire->wire.held))
		vhca_deadline(HELD_NS); /* receives are posted without a doorbell */
	return n + received;
}

static void timers(struct vhca_wire *wire, uint64_t now, uint64_t *next)
{
	vhca_flow_timers(packet_wire(wire), now, next);
	vhca_disturb_release(packet_wire(wire), now, next);
}

static void drain(struct vhca_wire *base)
{
	struct vhca_packet_wire *wire = packet_wire(base);
	uint64_t next = UINT64_MAX;

	if (!wire->held)
		return;
	wire->draining = true;
	vhca_disturb_release(wire, UINT64_MAX, &next);
	wire->draining = false;
	wire->carrier->ops->flush(wire->carrier);
}

/* ---- life ---- */

static void destroy(struct vhca_wire *base)
{
	struct vhca_packet_wire *wire = packet_wire(base);

	vhca_disturb_end(wire);
	wire->carrier->ops->destroy(wire->carrier);
	free(wire);
}

static struct vhca_wire *create(struct vhca_device *device, const struct vhca_wire_ops *ops,
	const struct vhca_carrier_ops *carrier, const char *argument)
{
	struct vhca_packet_wire *wire = calloc(1, sizeof(*wire));
	uint64_t hz = vbn__clock_hz();

	if (!wire)
		return NULL;
	wire->wire.ops = ops;
	wire->wire.device = device;
	wire->carrier = carrier->create(device, argument);
	if (!wire->carrier) {
		free(wire);
		return NULL;
	}
	wire->wire.fd = wire->carrier->fd;
	wire->lively_cycles = hz / 1000000000u * LIVELY_NS;
	wire->hz = hz;
	wire->stopped_cycles = hz * STOPPED_S;
	wire->quiet_cycles = hz / 1000000u * QUIET_NS / 1000;
	vhca_list_init(&wire->flows);
	vhca_list_init(&wire->due);
	vhca_list_init(&wire->ready);
	vhca_list_init(&wire->timed);
	return &wire->wire;
}

static struct vhca_wire *create_udp(struct vhca_device *device, const char *argument)
{
	return create(device, &vhca_wire_udp, &vhca_carrier_udp, argument);
}

static struct vhca_wire *create_tap(struct vhca_device *device, const char *argument)
{
	return create(device, &vhca_wire_tap, &vhca_carrier_tap, argument);
}

static struct vhca_wire *create_packet(struct vhca_device *device, const char *argument)
{
	return create(device, &vhca_wire_packet, &vhca_carrier_packet, argument);
}

static const char *counter(const struct vhca_wire *base, size_t i, uint64_t *value)
{
	const struct vhca_packet_wire *wire =
		container_of(base, const struct vhca_packet_wire, wire);

	if (i >= VHCA_N_DROPS)
		return NULL;
	*value = i ? wire->drops[i] : wire->retransmitted; /* no drop is of the first kind */
	if (i == VHCA_DROP_SEND)
		*value += wire->carrier->refused;
	if (i == VHCA_DROP_OVERFLOW && wire->carrier->ops->overflowed)
		*value += wire->carrier->ops->overflowed(wire->carrier);
	return i ? vhca_drop_names[i] : "retransmitted";
}

#define OPERATIONS(name_)                                                                     \
	.name = #name_, .create = create_##name_, .destroy = destroy, .request = request,     \
	.datagram = datagram, .frame = frame, .poll = poll, .timers = timers, .drain = drain, \
	.counter = counter

const struct vhca_wire_ops vhca_wire_udp = {OPERATIONS(udp)};
const struct vhca_wire_ops vhca_wire_tap = {OPERATIONS(tap), .carries_frames = true};
const struct vhca_wire_ops vhca_wire_packet = {OPERATIONS(packet), .carries_frames = true};
