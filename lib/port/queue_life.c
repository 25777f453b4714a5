/* queue_life.c - a queue's life in steps: what its worker does before and after, and what the control
 * thread does between
 */

#include "port/conf.h"
#include "port/port.h"

/* ---- what may be asked for ---- */

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

static const char *link_text(enum vbn_link link)
{
	switch (link) {
	case VBN_LINK_ETHERNET: return "Ethernet";
	case VBN_LINK_INFINIBAND: return "InfiniBand";
	case VBN_LINK_IWARP: return "iWARP";
	case VBN_LINK_HOST: return "shm, memory of one host,";
	default: return "a link that is not known here";
	}
}

/* A datagram queue has no peer; the others' is of their transport and link. */
static int check_peer(
	const struct vbn_queue *queue, const struct vbn_address *wire, struct address *peer)
{
	static const char *const transports[] = {[VBN_RC] = "RC", [VBN_UC] = "UC", [VBN_UD] = "UD"};
	const char *name = queue->port->info.name;
	int ret;

	if (queue->conf.transport == VBN_UD || queue->conf.transport == VBN_RAW) {
		if (wire)
			return fail(EINVAL,
				"queue %s/%u cannot be connected: a %s queue has no peer of its own: connect it to NULL%s",
				name, queue->number, queue->conf.transport == VBN_UD ? "UD" : "raw",
				queue->conf.transport == VBN_UD ? ", and give each buf its peer"
								: "");
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
			"queue %s/%u cannot be connected: this end is on %s and the other on %s: take ports of one kind",
			name, queue->number, link_text(queue->port->info.link),
			link_text(peer->link));
	return 0;
}

bool vbn__queue_step_is_apart(const struct queue_job *job)
{
	const struct vbn_queue *queue = job->queue;

	if (!job->port->driver->queue_part)
		return false;
	return queue ? queue->conf.srq && !load_once(&queue->cause) : job->conf.srq != NULL;
}

/* ---- create ---- */

int vbn__queue_begin_create(struct queue_job *job, struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *asked)
{
	int ret;

	*job = (struct queue_job){
		.step = QUEUE_CREATE, .list = list, .port = port, .asked = *asked, .conf = *asked};
	ret = check_srq(list, port, &job->conf);
	if (!ret)
		ret = vbn__queue_conf_check(&port->info, &job->conf);
	if (port->max_retries)
		job->conf.retry_count.value = min(job->conf.retry_count.value, port->max_retries);
	return ret;
}

static int create_on_node(void *arg)
{
	struct queue_job *job = arg;
	struct vbn_port *port = job->port;
	struct vbn_queue *queue;
	int ret = vbn__rx_group_may_join(job->conf.rx_group, port);

	if (!ret)
		ret = vbn__port_register_zone(port, job->conf.rx_pool->zone);
	if (!ret)
		ret = vbn__port_register_zone(port, job->conf.tx_pool->zone);
	if (!ret)
		ret = port->driver->queue_create(port, job->list, &job->conf, &queue);
	if (ret)
		return ret;
	job->queue = queue;
	vbn__rx_group_join(job->conf.rx_group, queue);
	port->n_queues++;
	queue->next = port->queues;
	queue->at = &port->queues;
	if (queue->next)
		queue->next->at = &queue->next;
	port->queues = queue;
	return 0;
}

static void start(struct vbn_queue *queue, const struct queue_job *job)
{
	queue->refusal = -ENOTCONN;
	queue->ops = &vbn__refusing_ops;
	queue->port = job->port;
	queue->worker = job->list->worker;
	queue->asked = job->asked;
	queue->context = job->conf.context;
	queue->conf = job->conf;
	if (queue->conf.srq)
		queue->conf.srq->n_queues++;
	vbn__queue_show(queue);
}

/* News of it that nobody could be told of have waited. */
static void come_back(struct vbn_queue *queue)
{
	queue->away = false;
	if (queue->list && load_once(&queue->news))
		store_release(&queue->list->news, 1);
}

static int finish_create(const struct queue_job *job)
{
	struct vbn_queue *queue = job->queue;
	const struct driver *driver = job->port->driver;
	int ret = driver->queue_adopt ? driver->queue_adopt(queue) : 0;

	start(queue, job);
	if (!ret)
		ret = vbn__worker_queues_add(job->list, queue);
	if (ret)
		vbn_queue_destroy(queue);
	else
		come_back(queue);
	return ret;
}

/* ---- connect ---- */

int vbn__queue_begin_connect(
	struct queue_job *job, struct vbn_queue *queue, const struct vbn_address *wire)
{
	int ret;

	*job = (struct queue_job){.step = QUEUE_CONNECT, .port = queue->port, .queue = queue};
	if (queue->connected || queue->failed)
		return fail(EISCONN,
			"queue %s/%u has been connected before: take vbn_queue_reset(), or make a new one",
			queue->port->info.name, queue->number);
	ret = check_peer(queue, wire, &job->peer);
	job->has_peer = wire;
	if (!ret && !queue->ready)
		ret = queue->port->driver->queue_fill(queue);
	queue->away = !ret;
	return ret;
}

static int connect_on_node(void *arg)
{
	struct queue_job *job = arg;
	struct vbn_queue *queue = job->queue;
	int ret = 0;

	if (!queue->ready)
		ret = job->port->driver->queue_connect(queue, job->has_peer ? &job->peer : NULL);
	if (ret)
		return ret;
	queue->ready = true;
	return vbn__rx_group_connected(queue);
}

static void finish_connect(struct vbn_queue *queue)
{
	queue->ops = queue->connected_ops;
	queue->connected = true;
}

/* ---- reset ---- */

void vbn__queue_begin_fail(struct queue_job *job, struct vbn_queue *queue)
{
	*job = (struct queue_job){.step = QUEUE_FAIL, .port = queue->port, .queue = queue};
	queue->away = true;
}

static void finish_fail(struct vbn_queue *queue)
{
	queue->ended = true;
	queue->port->driver->queue_news(queue, NEWS_QP);
}

int vbn__queue_begin_reset(struct queue_job *job, struct vbn_queue *queue)
{
	*job = (struct queue_job){.step = QUEUE_RESET, .port = queue->port, .queue = queue};
	if (queue->failed && !queue->port->driver->queue_quiet(queue))
		return -EAGAIN;
	queue->away = true;
	job->number = queue->number;
	return 0;
}

static void finish_reset(struct vbn_queue *queue, uint32_t number)
{
	queue->ops = &vbn__refusing_ops;
	queue->refusal = -ENOTCONN;
	queue->connected = queue->failed = queue->ended = queue->ready = false;
	queue->error[0] = '\0';
	if (queue->number != number) {
		vbn__counters_remove(&queue->counters);
		vbn__queue_show(queue);
	}
}

/* ---- destroy ---- */

void vbn__queue_begin_destroy(struct queue_job *job, struct vbn_queue *queue)
{
	*job = (struct queue_job){.step = QUEUE_DESTROY, .port = queue->port, .queue = queue};
	vbn__counters_remove(&queue->counters);
	if (!queue->port->driver->queue_part)
		return;
	vbn__worker_queues_remove(queue);
	queue->port->driver->queue_part(queue);
}

/* From here on it has no news. */
static int stop(struct queue_job *job)
{
	struct vbn_queue *queue = job->queue;

	vbn__rx_group_leave(queue);
	*queue->at = queue->next;
	if (queue->next)
		queue->next->at = queue->at;
	job->port->driver->queue_stop(queue);
	job->port->n_queues--;
	return 0;
}

static void finish_destroy(struct vbn_queue *queue)
{
	vbn__worker_queues_remove(queue);
	if (queue->conf.srq)
		queue->conf.srq->n_queues--;
	queue->port->driver->queue_free(queue);
}

/* ---- any step ---- */

void vbn__queue_carry_out(struct queue_job *job)
{
	const struct driver *driver = job->port->driver;
	int node = vbn_worker_node(job->list ? job->list->worker : job->queue->worker);

	switch (job->step) {
	case QUEUE_CREATE: job->result = vbn__control_call(node, create_on_node, job); return;
	case QUEUE_CONNECT: job->result = vbn__control_call(node, connect_on_node, job); return;
	case QUEUE_FAIL:
		vbn__rx_group_away(job->queue);
		job->result = driver->queue_fail(job->queue);
		return;
	case QUEUE_RESET:
		vbn__rx_group_away(job->queue);
		job->result = driver->queue_reset(job->queue);
		return;
	case QUEUE_DESTROY: job->result = stop(job); return;
	}
}

int vbn__queue_finish(struct queue_job *job)
{
	struct vbn_queue *queue = job->queue;

	if (job->step == QUEUE_DESTROY) { /* whatever came of it */
		finish_destroy(queue);
		return 0;
	}
	if (job->step == QUEUE_CREATE)
		return job->result ? job->result : finish_create(job);
	if (!job->result && job->step == QUEUE_CONNECT)
		finish_connect(queue);
	if (!job->result && job->step == QUEUE_FAIL)
		finish_fail(queue);
	if (!job->result && job->step == QUEUE_RESET)
		finish_reset(queue, job->number);
	come_back(queue);
	return job->result;
}
