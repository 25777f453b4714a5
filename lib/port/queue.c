/* queue.c - the public face of a queue's life, whose steps are waited for; its reports */

#include "port/port.h"

VBN_API void vbn_queue_address(const struct vbn_queue *queue, struct vbn_address *address)
{
	if (queue->conf.transport == VBN_RAW)
		*address = (struct vbn_address){0};
	else
		queue->port->driver->queue_address(queue, address);
}

/* A step, while the worker waits. */
static int carry_out_call(void *arg)
{
	vbn__queue_carry_out(arg);
	return 0;
}

static int wait_for(struct queue_job *job)
{
	int ret = vbn__control_call(-1, carry_out_call, job);

	if (ret)
		job->result = ret;
	return vbn__queue_finish(job);
}

int vbn__queue_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct queue_job job;
	int ret = vbn__queue_begin_create(&job, list, port, conf);

	if (!ret)
		ret = wait_for(&job);
	if (!ret)
		*queue = job.queue;
	return ret;
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

VBN_API int vbn_queue_connect(struct vbn_queue *queue, const struct vbn_address *wire)
{
	struct queue_job job;
	int ret = vbn__check_own_worker(queue->worker);

	if (!ret)
		ret = vbn__queue_begin_connect(&job, queue, wire);
	return ret ? ret : wait_for(&job);
}

VBN_API int vbn_queue_reset(struct vbn_queue *queue)
{
	struct queue_job job;
	int ret = vbn__check_own_worker(queue->worker);

	if (ret)
		return ret;
	if (!queue->port->driver->queue_reset)
		return -EOPNOTSUPP;
	if (queue->connected && !queue->ended) {
		vbn__queue_begin_fail(&job, queue);
		ret = wait_for(&job);
		if (ret)
			return ret;
	}
	ret = vbn__queue_begin_reset(&job, queue);
	return ret ? ret : wait_for(&job);
}

VBN_API void vbn_queue_destroy(struct vbn_queue *queue)
{
	struct queue_job job;

	if (!queue)
		return;
	vbn__queue_begin_destroy(&job, queue);
	wait_for(&job);
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
