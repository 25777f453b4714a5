/* peer.c - peers of datagram queues: made once for each address and way there, counted, kept by
 * the port */

#include "port/port.h"

#include <stdlib.h>

struct peer_call {
	struct vbn_queue *queue;
	const struct vbn_address *address;
	struct peer_entry *entry;
};

static bool is_same(const struct peer_entry *entry, const struct peer_call *call)
{
	const struct vbn_queue_conf *conf = &call->queue->conf;

	return entry->service_level == conf->service_level.value &&
		entry->traffic_class == conf->traffic_class.value &&
		entry->hop_limit == conf->hop_limit &&
		!memcmp(&entry->address, call->address, sizeof(*call->address));
}

static int make(struct peer_call *call)
{
	const struct vbn_queue_conf *conf = &call->queue->conf;
	struct vbn_port *port = call->queue->port;
	struct peer_entry *entry = calloc(1, sizeof(*entry));
	int ret;

	if (!entry)
		return -ENOMEM;
	*entry = (struct peer_entry){
		.port = port,
		.refs = 1,
		.address = *call->address,
		.service_level = (uint8_t)conf->service_level.value,
		.traffic_class = (uint8_t)conf->traffic_class.value,
		.hop_limit = (uint8_t)conf->hop_limit,
	};
	ret = port->driver->peer_create(entry);
	if (ret) {
		free(entry);
		return ret;
	}
	entry->next = port->peers;
	port->peers = call->entry = entry;
	port->n_peers++;
	return 0;
}

static int release_call(void *arg)
{
	struct peer_entry *entry = arg;
	struct vbn_port *port = entry->port;

	if (--entry->refs)
		return 0;
	for (struct peer_entry **at = &port->peers; *at; at = &(*at)->next) {
		if (*at == entry) {
			*at = entry->next;
			break;
		}
	}
	port->n_peers--;
	port->driver->peer_destroy(entry);
	free(entry);
	return 0;
}

static int find_or_make(struct peer_call *call)
{
	for (struct peer_entry *at = call->queue->port->peers; at; at = at->next) {
		if (is_same(at, call)) {
			at->refs++;
			call->entry = at;
			return 0;
		}
	}
	return make(call);
}

static int create_call(void *arg)
{
	struct peer_call *call = arg;
	const struct driver *driver = call->queue->port->driver;
	int ret = find_or_make(call);

	if (ret || !driver->peer_join)
		return ret;
	ret = driver->peer_join(call->entry, call->queue);
	if (ret)
		release_call(call->entry);
	return ret;
}

VBN_API int vbn_peer_create(
	struct vbn_queue *queue, const struct vbn_address *wire, struct vbn_peer **peer)
{
	struct peer_call call = {.queue = queue, .address = wire};
	struct address address;
	int ret;

	if (!queue->port->driver->peer_create)
		return -EOPNOTSUPP;
	if (queue->conf.transport != VBN_UD)
		return fail(EINVAL,
			"queue %s/%u has one peer, to which it is connected: only UD queues have others",
			queue->port->info.name, queue->number);
	ret = vbn__address_unpack(wire, &address);
	if (!ret && (address.transport != VBN_UD || address.link != queue->port->info.link))
		ret = fail(EINVAL,
			"peer of queue %s/%u cannot be made: the address is that of another transport or link layer",
			queue->port->info.name, queue->number);
	if (!ret)
		ret = vbn__control_call(-1, create_call, &call);
	if (!ret)
		*peer = &call.entry->peer;
	return ret;
}

VBN_API int vbn_peer_from_buf(
	struct vbn_queue *queue, const struct vbn_buf *buf, struct vbn_peer **peer)
{
	struct address address = {
		.transport = VBN_UD,
		.link = queue->port->info.link,
		.mtu = queue->port->mtu,
		.qkey = queue->conf.qkey.value,
	};
	struct vbn_address wire;

	if (queue->conf.transport == VBN_UD)
		queue->port->driver->buf_source(buf, &address.qpn, address.gid);
	vbn__address_pack(&address, &wire);
	return vbn_peer_create(queue, &wire, peer);
}

VBN_API void vbn_peer_release(struct vbn_peer *peer)
{
	if (peer)
		vbn__control_call(-1, release_call, container_of(peer, struct peer_entry, peer));
}
