/* drop.c - drops by name: a queue's stats that are drops, and what its driver and the device know of */

#include "port/port.h"

#include <stdio.h>

void vbn__drop_add(struct drop_list *list, const char *name, const char *help, uint64_t count)
{
	if (list->n < list->max) {
		struct vbn_drop *drop = &list->drops[list->n];

		snprintf(drop->name, sizeof(drop->name), "%s", name);
		snprintf(drop->help, sizeof(drop->help), "%s", help);
		drop->count = count;
	}
	list->n++;
}

static void add_own(const struct vbn_queue *queue, struct drop_list *list)
{
	const struct vbn_queue_stats *stats = &queue->stats;

	vbn__drop_add(list, "rx_too_long", "longer than a buf", load_once(&stats->rx_too_long));
	vbn__drop_add(list, "rx_malformed", "the device or file says what cannot be",
		load_once(&stats->rx_malformed));
	vbn__drop_add(list, "tx_refused", "not taken by the device", load_once(&stats->tx_refused));
}

struct drops_call {
	const struct vbn_queue *queue;
	const struct vbn_port *port;
	struct drop_list *list;
};

static int drops_call(void *arg)
{
	const struct drops_call *call = arg;

	if (call->queue)
		call->queue->port->driver->queue_drops(call->queue, call->list);
	else
		call->port->driver->port_drops(call->port, call->list);
	return 0;
}

VBN_API int vbn_queue_drops(const struct vbn_queue *queue, struct vbn_drop *drops, int n)
{
	struct drop_list list = {.drops = drops, .max = n};
	int ret = 0;

	add_own(queue, &list);
	if (queue->port->driver->queue_drops)
		ret = vbn__control_call(
			-1, drops_call, &(struct drops_call){.queue = queue, .list = &list});
	return ret ? ret : list.n;
}

VBN_API int vbn_port_drops(const struct vbn_port *port, struct vbn_drop *drops, int n)
{
	struct drop_list list = {.drops = drops, .max = n};
	int ret = 0;

	if (port->driver->port_drops)
		ret = vbn__control_call(
			-1, drops_call, &(struct drops_call){.port = port, .list = &list});
	return ret ? ret : list.n;
}
