/* ud.c - datagram queues and their peers, on the control thread: how a pair meets, and what becomes of
 * its ring */

#include "drv/shm/ud.h"
#include "drv/shm/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { SWEEP_MS = 20 }; /* between looks whether a worker is done with what is over */

static struct shm_port *port_of(const struct shm_queue *sq)
{
	return shm_port(sq->queue.port);
}

/* ---- the queue ---- */

int vbn__shm_ud_make(
	struct shm_queue *sq, const struct vbn_queue_conf *conf, const struct vbn_worker *worker)
{
	const struct vbn_pool *pool = conf->rx_pool;
	const uint32_t before = pool->headroom >= UD_HEADER ? 0 : UD_HEADER;
	const uint32_t room = pool->data_size > before ? pool->data_size - before : 0;
	struct shm_ud *ud = calloc(1, sizeof(*ud));

	if (!ud)
		return -ENOMEM;
	sq->ud = ud;
	strcpy(sq->peer_text, "none");
	ud->qkey = conf->qkey.value;
	ud->node = vbn_worker_node(worker);
	ud->data_at = (uint32_t)sizeof(struct vbn_buf) + pool->headroom + before;
	ud->longest = min((uint32_t)UD_MTU, room);
	ud->ways = calloc(UD_TARGETS, sizeof(struct ud_way *));
	return ud->ways ? 0 : -ENOMEM;
}

void vbn__shm_ud_free(struct shm_queue *sq)
{
	if (!sq->ud)
		return;
	free(sq->ud->ways);
	free(sq->ud);
	sq->ud = NULL;
}

void vbn__shm_ud_connect(struct shm_queue *sq)
{
	sq->ops = vbn__lacking_ops;
	vbn__shm_ud_tx_ops(&sq->ops);
	vbn__shm_ud_rx_ops(&sq->ops, sq->queue.conf.srq != NULL);
	sq->queue.connected_ops = &sq->ops;
}

/* ---- what is over ---- */

static void target_put(struct shm_port *port, struct ud_target *target)
{
	if (--target->refs)
		return;
	port->targets[target->index] = NULL;
	free(target);
}

static void way_free(struct shm_queue *sq, struct ud_way *way)
{
	struct shm_port *port = port_of(sq);

	if (way->segment && load_acquire(&way->peer->open))
		vbn__shm_leave(port, &way->target->address, way->process, way->id);
	else
		shm_count(port, SHM_UNTAKEN, vbn__shm_ud_untaken(way));
	vbn__shm_segment_put(way->segment);
	vbn__shm_detach(port, way->process);
	target_put(port, way->target);
	free(way);
}

/* Who still writes into it sees that it is closed, and what of it was taken. */
static void inlet_free(struct ud_inlet *inlet)
{
	store_release(&inlet->head->open, 0);
	vbn__shm_segment_put(inlet->segment);
	free(inlet);
}

/* Whether there are more that their worker is not done with yet. */
static bool sweep_queue(struct shm_queue *sq)
{
	struct shm_ud *ud = sq->ud;
	bool more = false;

	for (struct ud_way **at = &ud->all_ways, *way; (way = *at);) {
		if (load_acquire(&way->done)) {
			*at = way->next;
			way_free(sq, way);
			continue;
		}
		more |= way->over;
		at = &way->next;
	}
	for (struct ud_inlet **at = &ud->all_inlets, *inlet; (inlet = *at);) {
		if (load_acquire(&inlet->done)) {
			*at = inlet->next;
			inlet_free(inlet);
			continue;
		}
		more |= inlet->over;
		at = &inlet->next;
	}
	return more;
}

static void sweep_arm(const struct shm_source *sweep)
{
	const struct itimerspec once = {.it_value.tv_nsec = SWEEP_MS * 1000000};

	timerfd_settime(sweep->fd, 0, &once, NULL);
}

static void sweep(struct shm_source *source)
{
	struct shm_port *port = source->port;
	uint64_t expirations;
	bool more = false;

	if (read(source->fd, &expirations, sizeof(expirations)) != sizeof(expirations))
		return;
	for (struct vbn_queue *at = port->port.queues; at; at = at->next)
		if (shm_queue(at)->ud)
			more |= sweep_queue(shm_queue(at));
	if (more)
		sweep_arm(source);
}

/* Without a descriptor for it, what is over is freed with its queue. */
static void sweep_soon(struct shm_port *port)
{
	struct shm_source *source = port->sweep;

	if (!source) {
		source = calloc(1, sizeof(*source));
		if (!source)
			return;
		*source = (struct shm_source){
			.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
			.ready = sweep,
			.port = port};
		if (source->fd < 0 || vbn__shm_watch(source)) {
			vbn__shm_source_close(source);
			free(source);
			return;
		}
		port->sweep = source;
	}
	sweep_arm(source);
}

void vbn__shm_ud_close(struct shm_port *port)
{
	if (port->sweep)
		vbn__shm_source_close(port->sweep);
	free(port->sweep);
	port->sweep = NULL;
}

static void way_over(struct shm_queue *sq, struct ud_way *way)
{
	store_release(&way->over, 1);
	queue_tell(&sq->queue, NEWS_LINK);
	sweep_soon(port_of(sq));
}

static void inlet_over(struct shm_queue *sq, struct ud_inlet *inlet)
{
	store_release(&inlet->over, 1);
	sweep_soon(port_of(sq));
}

void vbn__shm_ud_end(struct shm_queue *sq)
{
	struct shm_ud *ud = sq->ud;
	struct ud_inlet *inlet;
	struct ud_way *way;

	while ((way = ud->all_ways)) {
		ud->all_ways = way->next;
		way_free(sq, way);
	}
	while ((inlet = ud->all_inlets)) {
		ud->all_inlets = inlet->next;
		inlet_free(inlet);
	}
	memset(ud->ways, 0, UD_TARGETS * sizeof(struct ud_way *));
	memset(ud->inlets, 0, sizeof(ud->inlets));
	ud->n_inlets = ud->turn = 0;
	ud->dirty = NULL;
}

/* ---- receiving: who asks for a ring ---- */

static enum shm_status may_have_inlet(const struct shm_queue *sq, const struct shm_request *request,
	const struct shm_source *client)
{
	uint32_t n = 0, of_client = 0;

	if (request->from > UD_NUMBER_MAX || !request->from)
		return SHM_NO_QUEUE;
	if (request->qkey != sq->ud->qkey)
		return SHM_OTHER_KEY;
	for (const struct ud_inlet *at = sq->ud->all_inlets; at; at = at->next) {
		n++;
		of_client += client && at->client == client && !at->over;
	}
	return n >= UD_INLETS || of_client >= UD_INLETS_OF_ONE ? SHM_FULL : SHM_OK;
}

/* One that the worker has left; there is one, where there are fewer inlets than slots. */
static uint32_t free_slot(const struct shm_ud *ud)
{
	uint32_t slot = 0;

	for (;; slot++) {
		const struct ud_inlet *at = ud->all_inlets;

		while (at && at->slot != slot)
			at = at->next;
		if (!at)
			return slot;
	}
}

static void publish_inlet(struct shm_ud *ud, struct ud_inlet *inlet)
{
	inlet->next = ud->all_inlets;
	ud->all_inlets = inlet;
	store_release(&ud->inlets[inlet->slot], inlet);
	if (inlet->slot >= ud->n_inlets)
		store_release(&ud->n_inlets, inlet->slot + 1);
}

/* Who had it writes into it no more. */
static void left(struct shm_queue *sq, uint32_t id, const struct shm_source *client)
{
	for (struct ud_inlet *at = sq->ud->all_inlets; at; at = at->next)
		if (at->id == id && at->client == client)
			inlet_over(sq, at);
}

struct shm_segment *vbn__shm_ud_answer(struct shm_queue *sq, const struct shm_request *request,
	struct shm_reply *reply, const struct shm_source *client)
{
	struct ud_inlet *inlet;
	struct shm_segment *segment;

	sweep_queue(sq);
	if (request->order == SHM_LEAVE) {
		left(sq, request->ring, client);
		return NULL;
	}
	reply->status = may_have_inlet(sq, request, client);
	shm_count(port_of(sq), SHM_OTHER_KEYS, reply->status == SHM_OTHER_KEY);
	if (reply->status != SHM_OK)
		return NULL;
	inlet = aligned_alloc(CACHE_LINE, round_up(sizeof(*inlet), CACHE_LINE));
	if (!inlet || vbn__shm_segment_make(UD_RING, sq->ud->node, &segment)) {
		free(inlet);
		reply->status = SHM_FULL;
		return NULL;
	}
	*inlet = (struct ud_inlet){.ring = segment_ring(segment),
		.mask = segment->ring_size - 1,
		.number = request->from,
		.head = segment_head(segment),
		.segment = segment,
		.client = client,
		.id = ++sq->ud->last_id,
		.slot = free_slot(sq->ud)};
	memcpy(inlet->source, request->from_gid, UD_SOURCE);
	publish_inlet(sq->ud, inlet);
	reply->ring_size = segment->ring_size;
	reply->max_message = UD_MTU;
	reply->ring = inlet->id;
	return segment;
}

void vbn__shm_ud_client_gone(struct shm_port *port, const struct shm_source *client)
{
	for (struct vbn_queue *queue = port->port.queues; queue; queue = queue->next) {
		struct shm_queue *sq = shm_queue(queue);

		for (struct ud_inlet *at = sq->ud ? sq->ud->all_inlets : NULL; at; at = at->next)
			if (at->client == client)
				inlet_over(sq, at);
	}
}

/* ---- sending: a queue and its peer ---- */

/* The dead owner's word is written for it: so who sends has one place to look. */
void vbn__shm_ud_process_gone(struct shm_port *port, const struct shm_peer *process)
{
	for (struct vbn_queue *queue = port->port.queues; queue; queue = queue->next) {
		struct shm_queue *sq = shm_queue(queue);

		for (struct ud_way *at = sq->ud ? sq->ud->all_ways : NULL; at; at = at->next) {
			if (at->process != process)
				continue;
			store_release(&at->peer->open, 0);
			way_over(sq, at);
		}
	}
}

static int meet_peer(struct shm_queue *sq, struct ud_way *way)
{
	struct shm_terms terms;
	int ret = vbn__shm_attach(sq, &way->target->address, &way->segment, &terms, &way->process);

	if (ret)
		return ret;
	way->peer = segment_head(way->segment);
	way->id = terms.ring;
	way->ring = (struct ring_writer){.ring = segment_ring(way->segment),
		.end = terms.ring_size,
		.mask = terms.ring_size - 1,
		.piece = ring_piece(terms.ring_size)};
	return 0;
}

/* One that could not be met is kept as such, where that saves asking again for each datagram. */
static int make_way(struct shm_queue *sq, struct ud_target *target, bool keeps_dead)
{
	struct shm_ud *ud = sq->ud;
	struct ud_way *way = calloc(1, sizeof(*way));
	int ret;

	if (!way)
		return -ENOMEM;
	way->target = target;
	ret = meet_peer(sq, way);
	if (ret && !keeps_dead) {
		free(way);
		return ret;
	}
	way->dead = ret;
	target->refs++;
	way->next = ud->all_ways;
	ud->all_ways = way;
	store_release(&ud->ways[target->index], way);
	return ret;
}

int vbn__shm_peer_join(struct peer_entry *entry, struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);
	struct ud_target *target = entry->driver_data;

	sweep_queue(sq); /* so that who comes and goes often is never out of rings for it */
	if (load_acquire(&sq->ud->ways[target->index]))
		return 0;
	return make_way(sq, target, false);
}

struct meet_call {
	struct shm_queue *sq;
	struct ud_target *target;
};

static int meet_call(void *arg)
{
	const struct meet_call *call = arg;

	return make_way(call->sq, call->target, true);
}

cold struct ud_way *vbn__shm_ud_meet(struct shm_queue *sq, uint64_t handle)
{
	struct meet_call call = {sq, ud_target(handle)};

	vbn__control_call(-1, meet_call, &call);
	return load_acquire(&sq->ud->ways[call.target->index]);
}

/* ---- peers ---- */

/* A place in the port's table; UD_TARGETS: there is none. */
static uint32_t free_index(const struct shm_port *port)
{
	uint32_t index = 0;

	while (index < UD_TARGETS && port->targets[index])
		index++;
	return index;
}

int vbn__shm_peer_create(struct peer_entry *entry)
{
	struct shm_port *port = shm_port(entry->port);
	struct ud_target *target;
	struct address address;
	uint32_t index;
	int ret = vbn__address_unpack(&entry->address, &address);

	if (ret)
		return ret;
	if (!port->targets)
		port->targets = calloc(UD_TARGETS, sizeof(struct ud_target *));
	target = port->targets ? calloc(1, sizeof(*target)) : NULL;
	if (!target)
		return -ENOMEM;
	index = free_index(port);
	if (index == UD_TARGETS) {
		free(target);
		return fail(ENOSPC,
			"peer of port %s cannot be made: it has %d, the most there are: release some",
			port->port.info.name, (int)UD_TARGETS);
	}
	*target = (struct ud_target){.index = index, .refs = 1, .address = address};
	port->targets[index] = target;
	entry->peer.handle = (uintptr_t)target;
	entry->peer.number = address.qpn;
	entry->peer.source_at = UD_HEADER - UD_SOURCE;
	entry->peer.source_len = UD_SOURCE;
	memcpy(entry->peer.source, address.gid, UD_SOURCE);
	entry->driver_data = target;
	return 0;
}

void vbn__shm_peer_destroy(struct peer_entry *entry)
{
	struct shm_port *port = shm_port(entry->port);
	struct ud_target *target = entry->driver_data;

	for (struct vbn_queue *queue = port->port.queues; queue; queue = queue->next) {
		struct shm_queue *sq = shm_queue(queue);

		for (struct ud_way *at = sq->ud ? sq->ud->all_ways : NULL; at; at = at->next)
			if (at->target == target)
				way_over(sq, at);
	}
	target_put(port, target);
}

void vbn__shm_buf_source(const struct vbn_buf *buf, uint32_t *qpn, uint8_t gid[16])
{
	const uint8_t *header = (const uint8_t *)(uintptr_t)buf->peer[1];

	*qpn = (uint32_t)buf->peer[0];
	memcpy(gid, header + UD_HEADER - UD_SOURCE, UD_SOURCE);
}

void vbn__shm_queue_drops(const struct vbn_queue *queue, struct drop_list *list)
{
	static const struct counter_name names[] = {
		[UD_NO_ROOM] = {"tx_no_room", "datagrams whose peer's ring was full"},
		[UD_NO_PEER] = {"tx_no_peer",
			"datagrams whose peer was gone, or went without taking them"},
		[UD_NO_RECEIVE] = {"rx_no_receive", "datagrams that found no buf to receive into"},
	};
	const struct shm_ud *ud = shm_queue(queue)->ud;

	static_assert(ARRAY_SIZE(names) == UD_N_DROPS, "each drop has its name");
	for (int i = 0; ud && i < UD_N_DROPS; i++)
		vbn__drop_add(list, names[i].name, names[i].help, load_once(&ud->drops[i]));
}
