/* queue_list.c - a worker's queues: who may have something staged, what is in flight, what has
 * passed */

#include "port/port.h"

#include <stdlib.h>

/* The end of an iteration: one doorbell for each queue that has staged since the last. One that
 * cannot be flushed yet marks itself again, for the next: that is behind those looked at. */
static fast_path void flush_dirty(void *arg)
{
	struct queue_list *list = arg;
	const uint32_t n = list->n_dirty;

	list->n_dirty = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct vbn_queue *queue = list->dirty[i];

		queue->dirty = false;
		queue->ops->flush(queue);
	}
}

/* Asked while draining: reaps too, so that what has completed is not taken for in flight. */
static uint32_t in_flight(void *arg)
{
	struct queue_list *list = arg;
	struct vbn_event none;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < list->n_queues; i++) {
		struct vbn_queue *queue = list->queues[i];

		if (queue->failed)
			continue; /* nothing more will come of it */
		queue->ops->poll(queue, &none, 0);
		sum += queue->ops->outstanding(queue);
	}
	return sum;
}

static void add_traffic(const struct vbn_queue_stats *stats, struct worker_traffic *sum)
{
	sum->messages += load_once(&stats->tx_messages) + load_once(&stats->rx_messages);
	sum->bytes += load_once(&stats->tx_bytes) + load_once(&stats->rx_bytes);
}

/* On any thread, under the worker's traffic lock. */
static void traffic(void *arg, struct worker_traffic *sum)
{
	const struct queue_list *list = arg;

	sum->messages += list->gone.messages;
	sum->bytes += list->gone.bytes;
	for (uint32_t i = 0; i < list->n_queues; i++)
		add_traffic(&list->queues[i]->stats, sum);
}

void vbn__queues_end(struct queue_list *list)
{
	while (list->n_queues)
		vbn_queue_destroy(list->queues[list->n_queues - 1]);
	vbn__worker_remove(list->worker, list);
	free(list->queues);
	free(list->dirty);
	free(list);
}

/* A worker's end is its queues' end. */
static void end_of_worker(struct vbn_worker *worker, void *arg)
{
	vbn__queues_end(arg);
	*vbn__worker_port_slot(worker) = NULL;
}

struct queue_list *vbn__worker_queues(struct vbn_worker *worker)
{
	return *vbn__worker_port_slot(worker);
}

int vbn__queues_make(struct vbn_worker *worker, struct queue_list **made)
{
	struct queue_list *list = calloc(1, sizeof(*list));
	int ret;

	if (!list)
		return -ENOMEM;
	list->worker = worker;
	ret = vbn__worker_add_flush(worker, flush_dirty, list);
	if (!ret)
		ret = vbn__worker_add_port(worker, in_flight, traffic, list);
	if (!ret)
		vbn__worker_sleeps_by(worker, vbn__queues_sleep, list);
	if (ret) {
		vbn__worker_remove(worker, list);
		free(list);
		return ret;
	}
	*made = list;
	return 0;
}

static int make_workers_own(struct vbn_worker *worker)
{
	struct queue_list *list;
	int ret = vbn__queues_make(worker, &list);

	if (ret)
		return ret;
	ret = vbn__worker_add_last_exit(worker, end_of_worker, list);
	if (ret) {
		vbn__queues_end(list);
		return ret;
	}
	*vbn__worker_port_slot(worker) = list;
	return 0;
}

/* Room for one more in both tables. */
static int list_grow(struct queue_list *list)
{
	uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
	struct vbn_queue **queues, **dirty;

	if (list->n_queues < list->capacity)
		return 0;
	queues = reallocarray(list->queues, capacity, sizeof(*queues));
	if (!queues)
		return -ENOMEM;
	list->queues = queues;
	dirty = reallocarray(list->dirty, capacity, sizeof(*dirty));
	if (!dirty)
		return -ENOMEM;
	list->dirty = dirty;
	list->capacity = capacity;
	return 0;
}

int vbn__check_own_worker(const struct vbn_worker *worker)
{
	if (worker && worker == vbn_worker_self())
		return 0;
	return fail(EPERM,
		"worker: its queues, srqs and channels are made and changed on its own thread alone: do so in its set-up, in a poll function, or in one that vbn_post() brings there");
}

int vbn__worker_queues_make(struct vbn_worker *worker, struct queue_list **list)
{
	int ret = vbn__check_own_worker(worker);

	if (ret)
		return ret;
	if (!vbn__worker_queues(worker))
		ret = make_workers_own(worker);
	*list = vbn__worker_queues(worker);
	return ret;
}

static void put_at(struct queue_list *list, uint32_t index, struct vbn_queue *queue)
{
	list->queues[index] = queue;
	queue->index = index;
}

/* Queues that are polled each by itself stand before those whose group is. */
int vbn__worker_queues_add(struct queue_list *list, struct vbn_queue *queue)
{
	int ret;

	vbn__worker_lock_traffic(list->worker);
	ret = list_grow(list);
	if (!ret) {
		store_release(&queue->list, list);
		if (queue->grouped) {
			put_at(list, list->n_queues, queue);
		} else {
			if (list->n_own < list->n_queues)
				put_at(list, list->n_queues, list->queues[list->n_own]);
			put_at(list, list->n_own++, queue);
		}
		list->n_queues++;
	}
	vbn__worker_unlock_traffic(list->worker);
	return ret;
}

/* The last one takes its place; of those that are polled by themselves, the last of them. */
static void take_out(struct queue_list *list, const struct vbn_queue *queue)
{
	uint32_t hole = queue->index;

	if (hole < list->n_own) {
		put_at(list, hole, list->queues[--list->n_own]);
		hole = list->n_own;
	}
	if (hole != --list->n_queues)
		put_at(list, hole, list->queues[list->n_queues]);
}

static void forget_dirty(struct queue_list *list, struct vbn_queue *queue)
{
	uint32_t kept = 0;

	if (!queue->dirty)
		return;
	for (uint32_t i = 0; i < list->n_dirty; i++)
		if (list->dirty[i] != queue)
			list->dirty[kept++] = list->dirty[i];
	list->n_dirty = kept;
	queue->dirty = false;
}

void vbn__worker_queues_remove(struct vbn_queue *queue)
{
	struct queue_list *list = queue->list;

	if (!list)
		return;
	vbn__worker_lock_traffic(list->worker);
	add_traffic(&queue->stats, &list->gone);
	take_out(list, queue);
	forget_dirty(list, queue);
	vbn__worker_unlock_traffic(list->worker);
	store_release(&queue->list, NULL);
}
