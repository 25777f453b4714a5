/* wire_loopback.c - the wire between QPs of one process: the peer's responder runs at once */

#include "vhca/device.h"

#include <stdlib.h>

static struct vhca_wire *create(struct vhca_device *device)
{
	struct vhca_wire *wire = calloc(1, sizeof(*wire));

	if (wire) {
		wire->ops = &vhca_wire_loopback;
		wire->device = device;
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
	struct vhca_device *device = vhca_find_device(qp->set.ah_attr.grh.dgid.raw);
	struct vhca_qp *peer = device ? vhca_find_qp(device, qp->set.dest_qp_num) : NULL;

	if (!peer || peer->type != qp->type || !ready(peer) || peer->set.dest_qp_num != qp->number)
		return NULL;
	if (vhca_find_device(peer->set.ah_attr.grh.dgid.raw) != qp->object.context->device)
		return NULL;
	return device->port_up && qp->object.context->device->port_up ? peer : NULL;
}

static noinline struct vhca_qp *find_peer(struct vhca_qp *qp)
{
	qp->peer = connected_peer(qp);
	qp->peer_generation = vhca_qp_generation;
	return qp->peer;
}

/* As many packets as the path MTU makes of a message, without their headers' bytes. */
static always_inline void count_message(
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

const struct vhca_wire_ops vhca_wire_loopback = {
	.name = "loopback",
	.create = create,
	.destroy = destroy,
	.request = request,
};
