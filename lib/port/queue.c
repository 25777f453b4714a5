/* queue.c - a queue's life: create, connect, destroy; its reports */

#include "port/conf.h"
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
};
static_assert(sizeof(struct vbn_queue_stats) == ARRAY_SIZE(counter_names) * sizeof(uint64_t),
	"each value has its name");

/* What a control call about a queue needs; the worker waits for it. */
struct queue_call {
	struct vbn_port *port;
	struct vbn_worker *worker;
	const struct vbn_queue_conf *conf;
	const struct vbn_address *peer;
	struct vbn_queue *queue;
};

static int create_call(void *arg)
{
	struct queue_call *call = arg;
	int ret = vbn__port_register_zone(call->port, call->conf->rx_pool->zone);

	if (!ret)
		ret = vbn__port_register_zone(call->port, call->conf->tx_pool->zone);
	if (!ret)
		ret = call->port->driver->queue_create(
			call->port, call->worker, call->conf, &call->queue);
	if (!ret)
		call->port->n_queues++;
	return ret;
}

static int connect_call(void *arg)
{
	struct queue_call *call = arg;

	return call->port->driver->queue_connect(call->queue, call->peer);
}

static int stop_call(void *arg)
{
	struct queue_call *call = arg;

	call->port->driver->queue_stop(call->queue);
	call->port->n_queues--;
	return 0;
}

static void queue_end(struct vbn_queue *queue)
{
	struct queue_call call = {.port = queue->port, .queue = queue};

	vbn__worker_queues_remove(queue);
	vbn__control_call(-1, stop_call, &call);
	queue->port->driver->queue_free(queue);
}

VBN_API int vbn_queue_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_queue_conf *asked, struct vbn_queue **result)
{
	struct vbn_queue_conf conf = *asked;
	struct queue_call call = {.port = port, .worker = worker, .conf = &conf};
	struct vbn_queue *queue;
	int ret = vbn__queue_conf_check(&port->info, &conf);

	if (ret)
		return ret;
	ret = vbn__control_call(vbn_worker_node(worker), create_call, &call);
	if (ret)
		return ret;
	queue = call.queue;
	queue->refusal = -ENOTCONN;
	queue->ops = &vbn__queue_unconnected;
	queue->port = port;
	queue->worker = worker;
	queue->asked = *asked;
	queue->context = conf.context;
	queue->conf = conf;
	ret = vbn__worker_queues_add(worker, queue);
	if (ret) {
		queue_end(queue);
		return ret;
	}
	queue->counters = (struct counter_set){.kind = "queue",
		.names = counter_names,
		.values = (const uint64_t *)&queue->stats,
		.n = ARRAY_SIZE(counter_names)};
	snprintf(queue->counters.object, sizeof(queue->counters.object), "%.20s/%u",
		port->info.name, queue->number);
	vbn__counters_add(&queue->counters);
	*result = queue;
	return 0;
}

VBN_API void vbn_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	queue->port->driver->queue_address(queue, address);
}

VBN_API int vbn_queue_connect(struct vbn_queue *queue, const struct vbn_address *peer)
{
	struct queue_call call = {.port = queue->port, .queue = queue, .peer = peer};
	int ret;

	if (queue->connected || queue->failed)
		return fail(EISCONN, "queue %s/%u has been connected before: make a new one",
			queue->port->info.name, queue->number);
	ret = queue->port->driver->queue_fill(queue);
	if (!ret)
		ret = vbn__control_call(vbn_worker_node(queue->worker), connect_call, &call);
	queue->connected = !ret;
	return ret;
}

VBN_API void vbn_queue_destroy(struct vbn_queue *queue)
{
	if (!queue)
		return;
	vbn__counters_remove(&queue->counters);
	queue_end(queue);
}

VBN_API void *vbn_queue_context(const struct vbn_queue *queue)
{
	return queue->context;
}

VBN_API int vbn_queue_modes(const struct vbn_queue *queue, struct vbn_mode *modes, int n)
{
	struct mode_report report = {.modes = modes, .max = n};

	queue->port->driver->queue_modes(queue, &report);
	return report.n;
}

VBN_API const char *vbn_queue_error(const struct vbn_queue *queue)
{
	return queue->error;
}

VBN_API void vbn_queue_stats(const struct vbn_queue *queue, struct vbn_queue_stats *stats)
{
	const uint64_t *from = (const uint64_t *)&queue->stats;
	uint64_t *to = (uint64_t *)stats;

	for (size_t i = 0; i < sizeof(*stats) / sizeof(*to); i++)
		to[i] = load_once(&from[i]);
}

VBN_API uint32_t vbn_queue_outstanding(const struct vbn_queue *queue)
{
	return queue->ops->outstanding(queue);
}

VBN_API const char *vbn_status_text(enum vbn_status status)
{
	static const char *const text[] = {
		[VBN_OK] = "ok",
		[VBN_LOCAL_LENGTH] = "local length error",
		[VBN_LOCAL_QP] = "local queue pair operation error",
		[VBN_LOCAL_PROTECTION] = "local protection error",
		[VBN_FLUSHED] = "flushed",
		[VBN_BAD_RESPONSE] = "bad response",
		[VBN_LOCAL_ACCESS] = "local access error",
		[VBN_REMOTE_INVALID] = "remote invalid request",
		[VBN_REMOTE_ACCESS] = "remote access error",
		[VBN_REMOTE_OPERATION] = "remote operation error",
		[VBN_RETRY_EXCEEDED] = "transport retry counter exceeded",
		[VBN_RNR_RETRY_EXCEEDED] = "receiver-not-ready retry counter exceeded",
		[VBN_REMOTE_ABORTED] = "remote aborted",
		[VBN_DEVICE_ERROR] = "device error",
	};

	return (size_t)status < ARRAY_SIZE(text) ? text[status] : "unknown status";
}
