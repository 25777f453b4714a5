/* queue_counters.c - what can be seen of a queue while it runs: its counters, under its name */

#include "port/port.h"

#include <stdio.h>

static const struct counter_name counter_names[] = {
	{"tx_messages", "messages staged"},
	{"tx_bytes", "bytes staged"},
	{"tx_done", "sends and writes the device completed"},
	{"tx_doorbells", "doorbells rung"},
	{"tx_signalled", "WQEs that asked for a completion"},
	{"tx_nops", "NOPs that completed an idle tail"},
	{"tx_flushed", "sends and writes outstanding when the queue failed"},
	{"rx_messages", "messages received"},
	{"rx_bytes", "bytes received"},
	{"rx_flushed", "receives outstanding when the queue failed"},
	{"rx_no_buf", "receives not posted again at once because the pool was empty"},
	{"tx_blueflame", "doorbells that carried their WQE"},
	{"rx_scattered", "messages that came in their CQE"},
	{"rx_compressed", "messages whose completion came compressed"},
	{"tx_compressed", "completions of sends that came compressed"},
	{"rx_too_long", "packets that were longer than a buf, and dropped"},
	{"rx_malformed", "packets of which the device or file says what cannot be, and dropped"},
	{"tx_refused", "packets that the device did not take"},
};
static_assert(sizeof(struct vbn_queue_stats) == ARRAY_SIZE(counter_names) * sizeof(uint64_t),
	"each value has its name");

static const char *transport_text(enum vbn_transport transport)
{
	static const char *const text[] = {"rc", "uc", "ud", "raw"};

	return (size_t)transport < ARRAY_SIZE(text) ? text[transport] : "?";
}

/* What its driver or the kernel drops, where it can be asked. */
static void describe_drops(const struct vbn_queue *queue, struct fact_list *facts)
{
	struct vbn_drop drops[8];
	struct drop_list list = {.drops = drops, .max = ARRAY_SIZE(drops)};

	if (!queue->port->driver->queue_drops)
		return;
	queue->port->driver->queue_drops(queue, &list);
	for (int i = 0; i < min(list.n, list.max); i++)
		vbn__fact_counter(facts, drops[i].name, drops[i].help, drops[i].count);
}

static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_queue *queue = container_of(set, struct vbn_queue, counters);

	vbn__fact_number(list, "worker", vbn__worker_number(queue->worker));
	vbn__fact_text(list, "port", queue->port->info.name);
	vbn__fact_text(list, "transport", transport_text(queue->conf.transport));
	vbn__fact_number(list, "tx_depth", queue->conf.tx_depth);
	vbn__fact_number(list, "rx_depth", queue->conf.rx_depth);
	vbn__fact_gauge(
		list, "connected", "whether it is connected", vbn__glance_flag(&queue->connected));
	vbn__fact_gauge(list, "failed", "whether it has failed", vbn__glance_flag(&queue->failed));
	vbn__fact_note(list, "error", queue->error);
	describe_drops(queue, list);
}

void vbn__queue_show(struct vbn_queue *queue)
{
	queue->counters = (struct counter_set){.kind = "queue",
		.names = counter_names,
		.values = (const uint64_t *)&queue->stats,
		.n = ARRAY_SIZE(counter_names),
		.describe = describe};
	snprintf(queue->counters.object, sizeof(queue->counters.object), "%.20s/%u",
		queue->port->info.name, queue->number);
	vbn__counters_add(&queue->counters);
}
