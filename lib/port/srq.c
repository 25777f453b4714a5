/* srq.c - a shared receive ring's life */

#include "port/conf.h"
#include "port/port.h"

#include <stdio.h>

static const struct counter_name counter_names[] = {
	{"no_buf", "receives not posted again at once because the pool was empty"},
	{"limits", "how often fewer receives than the limit were posted"},
};
static_assert(
	offsetof(struct vbn_srq, limits) == offsetof(struct vbn_srq, no_buf) + sizeof(uint64_t),
	"they stand as their names do");

static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_srq *srq = container_of(set, struct vbn_srq, counters);

	vbn__fact_number(list, "worker", vbn__worker_number(srq->list->worker));
	vbn__fact_text(list, "port", srq->port->info.name);
	vbn__fact_number(list, "depth", srq->conf.depth);
	vbn__fact_number(list, "limit", srq->conf.limit);
	vbn__fact_gauge(
		list, "posted", "receives that are posted", srq->port->driver->srq_posted(srq));
	vbn__fact_gauge(list, "queues", "queues that receive from it", vbn__glance(&srq->n_queues));
}

static void show(struct vbn_srq *srq)
{
	static uint32_t n_srqs;

	srq->counters = (struct counter_set){.kind = "srq",
		.names = counter_names,
		.values = &srq->no_buf,
		.n = ARRAY_SIZE(counter_names),
		.describe = describe};
	snprintf(srq->counters.object, sizeof(srq->counters.object), "%.20s/%u",
		srq->port->info.name, __atomic_fetch_add(&n_srqs, 1, __ATOMIC_RELAXED));
	vbn__counters_add(&srq->counters);
}

struct srq_call {
	struct vbn_port *port;
	struct queue_list *list;
	const struct vbn_srq_conf *conf;
	struct vbn_srq *srq;
};

static int create_call(void *arg)
{
	struct srq_call *call = arg;
	int ret = vbn__port_register_zone(call->port, call->conf->pool->zone);

	if (!ret)
		ret = call->port->driver->srq_create(
			call->port, call->list, call->conf, &call->srq);
	if (!ret)
		call->port->n_srqs++;
	return ret;
}

static int stop_call(void *arg)
{
	struct srq_call *call = arg;

	call->port->driver->srq_stop(call->srq);
	call->port->n_srqs--;
	return 0;
}

static void srq_end(struct vbn_srq *srq)
{
	const struct driver *driver = srq->port->driver;

	vbn__counters_remove(&srq->counters);
	vbn__control_call(-1, stop_call, &(struct srq_call){.port = srq->port, .srq = srq});
	driver->srq_free(srq);
}

int vbn__srq_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_srq_conf *asked, struct vbn_srq **result)
{
	struct vbn_srq_conf conf = *asked;
	struct srq_call call = {.port = port, .conf = &conf, .list = list};
	int ret;

	if (!port->driver->srq_create)
		return fail(ENOTSUP, "port %s has no shared receive rings: give each queue its own",
			port->info.name);
	ret = vbn__srq_conf_check(&port->info, &conf);
	if (!ret)
		ret = vbn__control_call(vbn_worker_node(list->worker), create_call, &call);
	if (ret)
		return ret;
	call.srq->port = port;
	call.srq->list = list;
	call.srq->conf = conf;
	ret = port->driver->srq_fill(call.srq);
	if (ret) {
		srq_end(call.srq);
		return ret;
	}
	show(call.srq);
	*result = call.srq;
	return 0;
}

VBN_API int vbn_srq_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq)
{
	static const struct vbn_srq_conf defaults;
	struct queue_list *list;
	int ret = vbn__worker_queues_make(worker, &list);

	if (ret)
		return ret;
	if (!port)
		return fail(EINVAL, "srq cannot be created: it has no port: open one");
	return vbn__srq_create_in(list, port, conf ? conf : &defaults, srq);
}

VBN_API void vbn_srq_destroy(struct vbn_srq *srq)
{
	if (!srq)
		return;
	if (srq->n_queues) {
		log_error(
			"srq on port %s cannot be destroyed: %u queues receive from it; destroy them first",
			srq->port->info.name, srq->n_queues);
		return;
	}
	srq_end(srq);
}

VBN_API void vbn_srq_stats(const struct vbn_srq *srq, struct vbn_srq_stats *stats)
{
	*stats = (struct vbn_srq_stats){
		.posted = srq->port->driver->srq_posted(srq),
		.no_buf = load_once(&srq->no_buf),
		.limits = load_once(&srq->limits),
	};
}
