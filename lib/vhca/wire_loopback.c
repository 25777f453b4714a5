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

static struct vhca_answer request(struct vhca_wire *wire, const struct vhca_message *message)
{
	struct vhca_qp *qp = message->qp;
	struct vhca_qp *peer =
		likely(qp->peer_generation == vhca_qp_generation) ? qp->peer : find_peer(qp);

	(void)wire;
	if (unlikely(!peer))
		return (struct vhca_answer){.kind = VHCA_SILENCE};
	return vhca_respond(peer, message);
}

const struct vhca_wire_ops vhca_wire_loopback = {
	.name = "loopback",
	.create = create,
	.destroy = destroy,
	.request = request,
};
