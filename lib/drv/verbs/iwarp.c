/* iwarp.c - the data path of an iWARP queue while it is being connected, and when its connection
 * has ended */

#include "drv/verbs/iwarp.h"

#include "drv/verbs/verbs.h"

/* The end that called says something first, if only a write of no bytes: soft-iWARP may have missed
 * what its own peer-to-peer handshake sent, and looks again when more comes. */
static void speak_first(struct verbs_queue *vq)
{
	const struct vbn_remote nowhere = {0};

	if (memcmp(&vq->link->own, &vq->link->peer, sizeof(struct link_name)) < 0 &&
		vq->sq.head == vq->sq.rung)
		vbn__verbs_write_inline(&vq->queue, "", 0, &nowhere);
}

/* Whether it is known how the connecting went: then the queue's functions are other ones, and what
 * was staged meanwhile has been posted. */
static bool settle(struct verbs_queue *vq)
{
	struct verbs_link *link = vq->link;

	switch ((enum link_state)load_acquire(&link->state)) {
	case LINK_UP:
		vbn__verbs_ops_fill(vq);
		speak_first(vq);
		vq->queue.ops->flush(&vq->queue);
		return true;
	case LINK_DOWN: vbn__verbs_failed(vq, link->status, link->why); return true;
	default: return false;
	}
}

static void connecting_flush(struct vbn_queue *queue)
{
	struct verbs_queue *vq = verbs_queue(queue);

	if (!settle(vq) && vq->sq.head != vq->sq.rung)
		queue_mark_dirty(queue); /* for the next iteration: nobody else need ask */
}

static int connecting_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return settle(verbs_queue(queue)) ? queue->ops->recv(queue, bufs, n) : 0;
}

static int connecting_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return settle(verbs_queue(queue)) ? queue->ops->poll(queue, events, n) : 0;
}

static bool is_connecting(const struct verbs_queue *vq)
{
	return vq->ops.flush == connecting_flush;
}

/* Stages as when it is connected; nothing is posted yet. */
static void connecting_ops_fill(struct verbs_queue *vq)
{
	vbn__verbs_ops_fill(vq);
	vq->ops.flush = connecting_flush;
	vq->ops.poll = connecting_poll;
	if (!vq->queue.grouped) /* else it has none */
		vq->ops.recv = connecting_recv;
}

/* ---- addresses: a name's token is in the PSN and the Q_Key ---- */

static uint32_t get(const uint8_t *at, int bytes)
{
	uint32_t value = 0;

	for (int i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

static void put(uint8_t *at, uint32_t value, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--, value >>= 8)
		at[i] = (uint8_t)value;
}

void vbn__iwarp_address(const struct verbs_queue *vq, struct vbn_address *wire)
{
	const struct vbn_queue_conf *conf = &vq->queue.conf;
	const struct link_name *own = &vq->link->own;
	struct address address = {
		.transport = VBN_RC,
		.link = VBN_LINK_IWARP,
		.mtu = vq->queue.port->mtu,
		.qpn = vq->queue.number,
		.psn = get(own->token, 4),
		.qkey = get(own->token + 4, 4),
		.tcp_port = (uint16_t)get(own->port, 2),
		.reads = (uint8_t)conf->max_reads.value,
		.peer_reads = (uint8_t)conf->max_peer_reads.value,
	};

	memcpy(address.gid, own->ip, sizeof(address.gid));
	vbn__address_pack(&address, wire);
}

int vbn__iwarp_connect(struct verbs_queue *vq)
{
	struct link_name *peer = &vq->link->peer;
	int ret;

	memcpy(peer->ip, vq->peer.gid, sizeof(peer->ip));
	put(peer->port, vq->peer.tcp_port, 2);
	put(peer->token, vq->peer.psn, 4);
	put(peer->token + 4, vq->peer.qkey, 4);
	vq->mtu = vq->queue.port->mtu;
	connecting_ops_fill(vq);
	ret = vbn__cm_connect(vq);
	if (!ret)
		vq->queue.connected_ops = &vq->ops;
	return ret;
}

/* ---- what comes of it: on the worker's thread ---- */

void vbn__iwarp_news(struct verbs_queue *vq, uint32_t news)
{
	struct verbs_link *link = vq->link;

	if (vq->queue.failed)
		return;
	if (is_connecting(vq))
		settle(vq);
	if (vq->queue.failed)
		return;
	if (load_acquire(&link->state) == LINK_DOWN)
		vbn__verbs_failed(vq, link->status, link->why);
	else if (news & NEWS_QP)
		vbn__verbs_failed(vq, VBN_FLUSHED,
			vq->queue.ended ? "it is being reset"
					: "the device has moved it to its error state");
}
