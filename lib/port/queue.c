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
	{"tx_blueflame", "doorbells that carried their WQE"},
	{"rx_scattered", "messages that came in their CQE"},
	{"rx_compressed", "messages whose completion came compressed"},
	{"tx_compressed", "completions of sends that came compressed"},
};
static_assert(sizeof(struct vbn_queue_stats) == ARRAY_SIZE(counter_names) * sizeof(uint64_t),
	"each value has its name");

static const char *transport_text(enum vbn_transport transport)
{
	static const char *const text[] = {"rc", "uc", "ud"};

	return (size_t)transport < ARRAY_SIZE(text) ? text[transport] : "?";
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
}

/* What a control call about a queue needs; the worker waits for it. */
struct queue_call {
	struct vbn_port *port;
	struct queue_list *list;
	const struct vbn_queue_conf *conf;
	const struct address *peer;
	struct vbn_queue *queue;
};

static int create_call(void *arg)
{
	struct queue_call *call = arg;
	struct vbn_port *port = call->port;
	int ret = vbn__port_register_zone(port, call->conf->rx_pool->zone);

	if (!ret)
		ret = vbn__port_register_zone(port, call->conf->tx_pool->zone);
	if (!ret)
		ret = port->driver->queue_create(port, call->list, call->conf, &call->queue);
	if (ret)
		return ret;
	port->n_queues++;
	call->queue->next = port->queues;
	port->queues = call->queue;
	return 0;
}

static int connect_call(void *arg)
{
	struct queue_call *call = arg;

	return call->port->driver->queue_connect(call->queue, call->peer);
}

static int fail_call(void *arg)
{
	struct queue_call *call = arg;

	return call->port->driver->queue_fail(call->queue);
}

static int reset_call(void *arg)
{
	struct queue_call *call = arg;

	return call->port->driver->queue_reset(call->queue);
}

static int stop_call(void *arg)
{
	struct queue_call *call = arg;

	for (struct vbn_queue **at = &call->port->queues; *at; at = &(*at)->next) {
		if (*at == call->queue) {
			*at = call->queue->next;
			break;
		}
	}
	call->port->driver->queue_stop(call->queue);
	call->port->n_queues--;
	return 0;
}

static void queue_end(struct vbn_queue *queue)
{
	struct queue_call call = {.port = queue->port, .queue = queue};

	vbn__control_call(-1, stop_call, &call); /* from here on it has no news */
	vbn__worker_queues_remove(queue);
	if (queue->conf.srq)
		queue->conf.srq->n_queues--;
	queue->port->driver->queue_free(queue);
}

/* An SRQ is of one worker and one port, and brings its pool and depth. */
static int check_srq(
	const struct queue_list *list, const struct vbn_port *port, struct vbn_queue_conf *conf)
{
	if (!conf->srq)
		return 0;
	if (conf->srq->list != list || conf->srq->port != port)
		return fail(EINVAL,
			"queue cannot be created: its srq is another worker's or port's: make one for each");
	if (conf->shared_cq == VBN_OFF)
		return fail(EINVAL,
			"queue cannot be created: shared_cq is off, and queues of an srq share CQs");
	if (conf->srq->conf.datagrams != (conf->transport == VBN_UD))
		return fail(EINVAL,
			"queue cannot be created: its srq is %sfor datagrams, and its transport is not: make an srq for each",
			conf->srq->conf.datagrams ? "" : "not ");
	conf->rx_pool = conf->srq->conf.pool;
	conf->rx_depth = conf->srq->conf.depth;
	return 0;
}

/* Under the queue's name. */
static void show_counters(struct vbn_queue *queue)
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

int vbn__queue_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *asked, struct vbn_queue **result)
{
	struct vbn_queue_conf conf = *asked;
	struct queue_call call = {.port = port, .conf = &conf, .list = list};
	struct vbn_queue *queue;
	int ret = check_srq(list, port, &conf);

	if (!ret)
		ret = vbn__queue_conf_check(&port->info, &conf);
	if (!ret)
		ret = vbn__control_call(vbn_worker_node(list->worker), create_call, &call);
	if (ret)
		return ret;
	queue = call.queue;
	queue->refusal = -ENOTCONN;
	queue->ops = &vbn__refusing_ops;
	queue->port = port;
	queue->worker = list->worker;
	queue->asked = *asked;
	queue->context = conf.context;
	queue->conf = conf;
	if (conf.srq)
		conf.srq->n_queues++;
	ret = vbn__worker_queues_add(list, queue);
	if (ret) {
		queue_end(queue);
		return ret;
	}
	show_counters(queue);
	*result = queue;
	return 0;
}

VBN_API int vbn_queue_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	static const struct vbn_queue_conf defaults;
	struct queue_list *list;
	int ret = vbn__worker_queues_make(worker, &list);

	if (ret)
		return ret;
	if (!port)
		return fail(EINVAL, "queue cannot be created: it has no port: open one");
	return vbn__queue_create_in(list, port, conf ? conf : &defaults, queue);
}

VBN_API void vbn_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	queue->port->driver->queue_address(queue, address);
}

/* A datagram queue has no peer; the others' is of their transport and link. */
static int check_peer(
	const struct vbn_queue *queue, const struct vbn_address *wire, struct address *peer)
{
	static const char *const transports[] = {[VBN_RC] = "RC", [VBN_UC] = "UC", [VBN_UD] = "UD"};
	const char *name = queue->port->info.name;
	int ret;

	if (queue->conf.transport == VBN_UD) {
		if (wire)
			return fail(EINVAL,
				"queue %s/%u cannot be connected: a UD queue has no peer of its own: connect it to NULL, and give each buf its peer",
				name, queue->number);
		return 0;
	}
	if (!wire)
		return fail(EINVAL,
			"queue %s/%u cannot be connected without its peer's address: exchange vbn_queue_address()'s",
			name, queue->number);
	ret = vbn__address_unpack(wire, peer);
	if (ret)
		return ret;
	if (peer->transport != queue->conf.transport)
		return fail(EINVAL,
			"queue %s/%u cannot be connected: its transport is %s and the peer's %s: make both queues with one",
			name, queue->number, transports[queue->conf.transport],
			peer->transport <= VBN_UD ? transports[peer->transport]
						  : "none known here");
	if (peer->link != queue->port->info.link)
		return fail(EINVAL,
			"queue %s/%u cannot be connected: one end is on Ethernet and the other on InfiniBand: take ports of one kind",
			name, queue->number);
	return 0;
}

VBN_API int vbn_queue_connect(struct vbn_queue *queue, const struct vbn_address *wire)
{
	struct address peer;
	struct queue_call call = {.port = queue->port, .queue = queue, .peer = wire ? &peer : NULL};
	int ret = vbn__check_own_worker(queue->worker);

	if (ret)
		return ret;
	if (queue->connected || queue->failed)
		return fail(EISCONN,
			"queue %s/%u has been connected before: take vbn_queue_reset(), or make a new one",
			queue->port->info.name, queue->number);
	ret = check_peer(queue, wire, &peer);
	if (!ret)
		ret = queue->port->driver->queue_fill(queue);
	if (!ret)
		ret = vbn__control_call(vbn_worker_node(queue->worker), connect_call, &call);
	queue->connected = !ret;
	return ret;
}

VBN_API int vbn_queue_reset(struct vbn_queue *queue)
{
	struct queue_call call = {.port = queue->port, .queue = queue};
	const uint32_t number = queue->number;
	int ret = vbn__check_own_worker(queue->worker);

	if (ret)
		return ret;
	if (!queue->port->driver->queue_reset)
		return -EOPNOTSUPP;
	if (queue->connected && !queue->ended) {
		ret = vbn__control_call(-1, fail_call, &call);
		if (ret)
			return ret;
		queue->ended = true;
		queue->port->driver->queue_news(queue, NEWS_QP);
	}
	if (queue->failed && !queue->port->driver->queue_quiet(queue))
		return -EAGAIN;
	ret = vbn__control_call(-1, reset_call, &call);
	if (ret)
		return ret;
	queue->ops = &vbn__refusing_ops;
	queue->refusal = -ENOTCONN;
	queue->connected = queue->failed = queue->ended = false;
	queue->error[0] = '\0';
	if (queue->number != number) {
		vbn__counters_remove(&queue->counters);
		show_counters(queue);
	}
	return 0;
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

/* A worker on another node than the device works, slower. */
static void report_distance(const struct vbn_queue *queue, struct mode_report *report)
{
	const int device = queue->port->info.node, node = vbn_worker_node(queue->worker);

	if (device < 0)
		return;
	vbn__mode_add(report, "near_device", "auto", device == node ? "yes" : "no",
		device == node
			? "worker and device are on node %d"
			: "the device is on node %d and the worker on node %d, where its memory is too: "
			  "all it sends and receives crosses over; give it a core of the device's node",
		device, node);
}

VBN_API int vbn_queue_modes(const struct vbn_queue *queue, struct vbn_mode *modes, int n)
{
	struct mode_report report = {.modes = modes, .max = n};

	queue->port->driver->queue_modes(queue, &report);
	report_distance(queue, &report);
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
		[VBN_CQ_ERROR] = "completion queue error",
	};

	return (size_t)status < ARRAY_SIZE(text) ? text[status] : "unknown status";
}
