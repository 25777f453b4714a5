/* wire_loopback.c - the wire between QPs of one process: the peer's responder runs at once */

#include "vhca/disturb.h"

#include <stdlib.h>

static struct vhca_wire *create(struct vhca_device *device, const char *argument)
{
	struct vhca_wire *wire = calloc(1, sizeof(*wire));

	(void)argument;
	if (vhca_disturb_any)
		log_warning(
			"vhca: faults of packets do nothing on %s, because the wire loopback has "
			"none: choose another VHCA_WIRE, or leave them out of VHCA_FAULT",
			device->name);
	if (wire) {
		wire->ops = &vhca_wire_loopback;
		wire->device = device;
		wire->fd = -1;
	}
	return wire;
}

static void destroy(struct vhca_wire *wire)
{
	free(wire);
}

static bool ready(const struct vhca_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
		qp->state == IBV_QPS_SQE;
}

/* A connected peer: of the same transport, in a state to receive, and connected to this very QP. */
static struct vhca_qp *connected_peer(const struct vhca_qp *qp)
{
	struct vhca_device *device = vhca_find_peer_device(qp);
	struct vhca_qp *peer = device ? vhca_find_qp(device, qp->set.dest_qp_num) : NULL;

	if (!peer || peer->type != qp->type || !ready(peer) || peer->set.dest_qp_num != qp->number)
		return NULL;
	if (vhca_find_peer_device(peer) != qp->object.context->device ||
		vhca_roce_version(peer) != vhca_roce_version(qp))
		return NULL;
	return device->port_up && qp->object.context->device->port_up ? peer : NULL;
}

static noinline struct vhca_qp *find_peer(struct vhca_qp *qp)
{
	qp->peer = connected_peer(qp);
	qp->peer_generation = vhca_qp_generation;
	return qp->peer;
}

static void count_sent(const struct vhca_qp *qp, uint32_t length)
{
	struct vhca_counters *counters = vhca_counters_of(&qp->object);

	counters->port_xmit_packets++;
	counters->unicast_xmit_packets++;
	counters->port_xmit_data += length;
}

static void count_received(const struct vhca_qp *qp, uint32_t length)
{
	struct vhca_counters *counters = vhca_counters_of(&qp->object);

	counters->port_rcv_packets++;
	counters->unicast_rcv_packets++;
	counters->port_rcv_data += length;
}

/* As many packets as the path MTU makes of a message, without their headers' bytes. */
static force_inline void count_message(
	const struct vhca_qp *qp, const struct vhca_qp *peer, uint32_t length)
{
	struct vhca_counters *from = vhca_counters_of(&qp->object);
	struct vhca_counters *to = vhca_counters_of(&peer->object);
	uint32_t log2_mtu = 7u + (uint32_t)qp->set.path_mtu;
	uint32_t packets = length ? ((length - 1) >> log2_mtu) + 1 : 1;

	from->port_xmit_packets += packets;
	from->unicast_xmit_packets += packets;
	from->port_xmit_data += length;
	to->port_rcv_packets += packets;
	to->unicast_rcv_packets += packets;
	to->port_rcv_data += length;
}

static struct vhca_answer request(struct vhca_wire *wire, const struct vhca_message *message)
{
	struct vhca_qp *qp = message->qp;
	struct vhca_qp *peer =
		likely(qp->peer_generation == vhca_qp_generation) ? qp->peer : find_peer(qp);

	(void)wire;
	if (unlikely(!peer))
		return (struct vhca_answer){.kind = VHCA_SILENCE};
	count_message(qp, peer, message->length);
	return vhca_respond(peer, message);
}

/* ---- datagrams ---- */

static void ipv4_header(uint8_t to[20], const struct mlx5_wqe_av *av, const uint8_t source[16],
	const uint8_t dest[16], uint32_t length)
{
	uint32_t total = 20 + 8 + length; /* UDP */
	uint32_t sum = 0;

	memset(to, 0, 20);
	to[0] = 0x45;
	to[1] = av->tclass;
	to[2] = (uint8_t)(total >> 8);
	to[3] = (uint8_t)total;
	to[6] = 0x40;
	to[8] = av->hop_limit;
	to[9] = 17;
	memcpy(to + 12, source + 12, 4);
	memcpy(to + 16, dest + 12, 4);
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)to[i] << 8 | to[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~(sum + (sum >> 16)) & 0xffff;
	to[10] = (uint8_t)(sum >> 8);
	to[11] = (uint8_t)sum;
}

static void ipv6_header(uint8_t to[40], const struct mlx5_wqe_av *av, const uint8_t source[16],
	const uint8_t dest[16], uint8_t next, uint32_t length)
{
	uint32_t flow =
		6u << 28 | (uint32_t)av->tclass << 20 | (from_be32(av->grh_gid_fl) & 0xfffff);
	__be32 first = be32(flow);

	length += next == 17 ? 8 : 0;
	memcpy(to, &first, 4);
	to[4] = (uint8_t)(length >> 8);
	to[5] = (uint8_t)length;
	to[6] = next;
	to[7] = av->hop_limit;
	memcpy(to + 8, source, 16);
	memcpy(to + 24, dest, 16);
}

/* What stands in front of the datagram: IPv4's header has the last half of the room for a GRH. */
static void make_grh(
	uint8_t grh[VHCA_GRH], const struct vhca_gid *source, const struct vhca_message *message)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	enum { ROCE_V1_NEXT = 0x1b, UDP = 17 };
	/* BTH, DETH, and ImmDt where it has one; ICRC */
	uint32_t length = 12 + 8 + (message->opcode == MLX5_OPCODE_SEND_IMM ? 4u : 0) +
		(uint32_t)round_up(message->length, 4) + 4;

	memset(grh, 0, VHCA_GRH);
	if (source->type && !memcmp(source->raw, mapped, sizeof(mapped)))
		ipv4_header(grh + 20, message->av, source->raw, message->av->rgid, length);
	else
		ipv6_header(grh, message->av, source->raw, message->av->rgid,
			source->type ? UDP : ROCE_V1_NEXT, length);
}

/* A key with its highest bit set stands for the QP's own. */
static uint32_t qkey_of(const struct vhca_message *message)
{
	uint32_t key = from_be32(message->av->key.qkey.qkey);

	return key >> 31 ? message->qp->set.qkey : key;
}

static bool datagram(struct vhca_wire *wire, const struct vhca_message *message)
{
	const struct mlx5_wqe_av *av = message->av;
	const struct vhca_gid *source = &wire->device->gids[vhca_av_gid(av)];
	struct vhca_device *to = vhca_find_device(av->rgid, source->vlan);
	struct vhca_qp *peer = to ? vhca_find_qp(to, from_be32(av->dqp_dct) & 0xffffff) : NULL;
	struct vhca_datagram how = {
		.source_qpn = message->qp->number,
		.qkey = qkey_of(message),
		.tag = vhca_tag_of(source, vhca_av_sl(av)),
	};

	count_sent(message->qp, message->length);
	if (!to || !wire->device->port_up || !to->port_up)
		return true;
	if (!peer || peer->type != IBV_QPT_UD || !ready(peer)) {
		to->counters.port_rcv_errors++;
		return true;
	}
	count_received(peer, message->length);
	make_grh(how.grh, source, message);
	vhca_receive_datagram(peer, message, &how);
	return true;
}

const struct vhca_wire_ops vhca_wire_loopback = {
	.name = "loopback",
	.create = create,
	.destroy = destroy,
	.request = request,
	.datagram = datagram,
};
