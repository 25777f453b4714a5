/* frame_queue.c - what queues of raw Ethernet have in common where the kernel is the device */

#include "drv/frame_queue.h"
#include "drv/netdev.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- tables ---- */

int vbn__frame_queue_make(struct frame_queue *fq, const struct vbn_queue_conf *conf)
{
	fq->back_mask = conf->tx_depth - 1;
	fq->back = calloc(conf->tx_depth, sizeof(struct vbn_buf *));
	return fq->back ? 0 : -ENOMEM;
}

void vbn__frame_queue_end(struct frame_queue *fq)
{
	while (fq->back_tail != fq->back_head)
		vbn_buf_free(&fq->back[fq->back_tail++ & fq->back_mask], 1);
}

int vbn__frame_conf_check(const struct vbn_port *port, const struct vbn_queue_conf *conf)
{
	const struct technique more[] = {
		{"shared_cq = ON", conf->shared_cq == VBN_ON},
		{"doorbell_burst = OFF", conf->doorbell_burst == VBN_OFF},
		{"inline_size", conf->inline_size.value != 0},
		{"pace_kbit", conf->pace_kbit != 0},
		{"striding", conf->striding == VBN_ON},
		{"multi_packet", conf->multi_packet == VBN_ON},
		{"vlan_strip", conf->vlan_strip == VBN_ON},
	};
	const char *name = vbn__technique_wanted(conf, more, ARRAY_SIZE(more));

	if (name)
		return fail(ENOTSUP,
			"queue cannot be created: port %s is no ConnectX and has no %s: leave it to the library",
			port->info.name, name);
	if (conf->rx_group && conf->rx_pool && conf->rx_pool->data_size < FRAME_LEAST)
		return fail(EINVAL,
			"queue cannot be created: bufs of pool \"%s\" hold %u bytes, and the shortest frame has %d: make its data_size that of the longest frame, of %zu",
			conf->rx_pool->name, conf->rx_pool->data_size, FRAME_LEAST,
			(size_t)port->info.max_message);
	return 0;
}

/* ---- events ---- */

int vbn__frame_back(struct frame_queue *fq, enum vbn_status status, struct vbn_event *events, int n)
{
	int got = 0;

	for (; got < n && fq->back_tail != fq->back_head; got++) {
		struct vbn_buf *buf = fq->back[fq->back_tail++ & fq->back_mask];

		event_of_buf(&fq->queue, buf, (uint32_t)vbn_buf_total(buf), VBN_OP_SEND, status,
			&events[got]);
		fq->n_out--;
	}
	return got;
}

int vbn__frame_poll(struct vbn_queue *queue, struct vbn_event *events, int n,
	int (*recv)(struct vbn_queue *queue, struct vbn_buf **bufs, int n))
{
	struct vbn_buf *bufs[FRAME_BURST];
	int got = vbn__frame_back(frame_queue(queue), VBN_OK, events, n);
	const int more = recv(queue, bufs, min(n - got, (int)FRAME_BURST));

	for (int i = 0; i < more; i++)
		events[got + i] = (struct vbn_event){
			.queue = queue, .buf = bufs[i], .len = bufs[i]->len, .op = VBN_OP_RECV};
	return got + max(more, 0);
}

uint32_t vbn__frame_outstanding(const struct vbn_queue *queue)
{
	return frame_queue(queue)->n_out;
}

/* ---- failure ---- */

static int failed_poll(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	struct frame_queue *fq = frame_queue(queue);
	int got = 0;

	if (!n)
		return 0;
	if (!fq->reported) {
		fq->reported = true;
		events[got++] = (struct vbn_event){
			.queue = queue, .op = VBN_OP_FAILED, .status = VBN_DEVICE_ERROR};
	}
	return got + vbn__frame_back(fq, VBN_FLUSHED, events + got, n - got);
}

cold void vbn__frame_fail(struct frame_queue *fq, const char *why)
{
	struct vbn_queue *queue = &fq->queue;

	if (queue->failed)
		return;
	queue->failed = true;
	queue->refusal = -EPIPE;
	fq->ops = vbn__refusing_ops;
	fq->ops.poll = failed_poll;
	fq->ops.outstanding = vbn__frame_outstanding;
	queue->ops = &fq->ops;
	snprintf(queue->error, sizeof(queue->error), "queue %s/%u failed: %s",
		queue->port->info.name, queue->number, why);
}

/* ---- reset ---- */

bool vbn__frame_quiet(const struct vbn_queue *queue)
{
	const struct frame_queue *fq = frame_queue(queue);

	return fq->reported && fq->back_tail == fq->back_head;
}

void vbn__frame_renew(struct frame_queue *fq)
{
	fq->n_out = fq->back_head = fq->back_tail = 0;
	fq->reported = false;
	__atomic_store_n(&fq->queue.news, 0, __ATOMIC_RELAXED);
}

int vbn__frame_nothing_to_end(struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

/* ---- ports ---- */

int vbn__frame_no_gids(const char *name, int number, char (*gids)[80], int n)
{
	(void)name, (void)number, (void)gids, (void)n;
	return 0;
}

int vbn__frame_list(const char *driver, struct vbn_port_info *infos, int n,
	bool (*fill)(const struct netdev_found *found, struct vbn_port_info *info))
{
	struct netdev_found *all = calloc((size_t)max(n, 1), sizeof(*all));
	int n_all, count = 0;

	if (!all)
		return -ENOMEM;
	n_all = vbn__netdev_list(all, n);
	for (int i = 0; i < n_all; i++) {
		const struct netdev_found *found = &all[i];
		struct vbn_port_info *info = &infos[count];

		vbn__frame_info(info, driver, found->name);
		info->node = found->node;
		info->up = found->dev.up;
		info->speed_mbit = found->speed_mbit;
		info->mtu = info->frame_mtu = found->dev.mtu;
		info->max_message = found->dev.mtu + FRAME_HEADER + FRAME_TAG;
		info->max_rx_queues = found->rx_queues;
		memcpy(info->mac, found->dev.mac, sizeof(info->mac));
		snprintf(info->kernel_driver, sizeof(info->kernel_driver), "%s", found->driver);
		count += fill(found, info);
	}
	free(all);
	return count;
}

int vbn__frame_nothing_to_list(struct vbn_port_info *infos, int n)
{
	(void)infos, (void)n;
	return 0;
}

/* The kernel copies, or has its own idea of a zone. */
int vbn__frame_zone_register(
	struct vbn_port *port, struct vbn_zone *zone, struct zone_registration *registration)
{
	*registration = (struct zone_registration){
		.region = port, .generation = vbn__zone_generation(zone)};
	return 0;
}

void vbn__frame_zone_unregister(struct vbn_port *port, struct zone_registration *registration)
{
	(void)port;
	registration->region = NULL;
}

void vbn__frame_info(struct vbn_port_info *info, const char *driver, const char *name)
{
	*info = (struct vbn_port_info){.node = -1,
		.port = 1,
		.up = true,
		.link = VBN_LINK_ETHERNET,
		.max_queues = 256,
		.max_depth = 32768,
		.max_gather = 1,
		.max_rx_queues = 1};
	snprintf(info->name, sizeof(info->name), "%s:%.50s", driver, name);
	snprintf(info->driver, sizeof(info->driver), "%s", driver);
	strcpy(info->capabilities, "send packet");
}

int vbn__frame_port_check(
	const char *driver, const char *name, int number, const struct vbn_port_conf *conf)
{
	if (number != 1)
		return fail(ENXIO, "port %s:%s:%d does not exist: it has one port", driver, name,
			number);
	if (conf->gid_index.set || conf->mtu)
		return fail(EINVAL,
			"port %s:%s cannot be opened: it has neither GIDs nor a path MTU; leave gid_index and mtu unset",
			driver, name);
	return 0;
}

uint32_t vbn__frame_number(const struct vbn_port *port)
{
	uint32_t number = 0;

	for (const struct vbn_queue *at = port->queues; at;) {
		if (at->number == number) {
			number++;
			at = port->queues;
		} else {
			at = at->next;
		}
	}
	return number;
}
