/* data.c - the data path's public face: one jump into the queue's driver, and the worker's poll
 * over its queues */

#include "port/port.h"

#include <stdlib.h>

#define DATA_PATH VBN_API fast_path

/* What debug builds watch: who calls, and that what is sent may be. */
#ifdef VBN_DEBUG_BUFS
static void check_caller(const struct vbn_queue *queue)
{
	if (likely(vbn_worker_self() == queue->worker))
		return;
	log_error(
		"queue %s/%u is used by another thread than its worker's: give each worker queues of its own",
		queue->port->info.name, queue->number);
	abort();
}

static void check_send(
	const struct vbn_queue *queue, struct vbn_buf **bufs, int n, const void *caller)
{
	check_caller(queue);
	for (int i = 0; i < n; i++)
		vbn__buf_debug_sendable(bufs[i], caller);
}
#else
#define check_caller(queue)                ((void)0)
#define check_send(queue, bufs, n, caller) ((void)0)
#endif

DATA_PATH int vbn_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->send(queue, bufs, n);
}

DATA_PATH int vbn_send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->send_imm(queue, bufs, imms, n);
}

DATA_PATH int vbn_send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	check_caller(queue);
	return queue->ops->send_inline(queue, data, len);
}

DATA_PATH int vbn_send_inline_imm(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	check_caller(queue);
	return queue->ops->send_inline_imm(queue, data, len, imm);
}

DATA_PATH int vbn_send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	check_caller(queue);
	return queue->ops->send_inline_to(queue, peer, data, len);
}

DATA_PATH int vbn_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->write(queue, bufs, remotes, n);
}

DATA_PATH int vbn_write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->write_imm(queue, bufs, remotes, imms, n);
}

DATA_PATH int vbn_write_inline(
	struct vbn_queue *queue, const void *data, size_t len, struct vbn_remote remote)
{
	check_caller(queue);
	return queue->ops->write_inline(queue, data, len, &remote);
}

DATA_PATH int vbn_read(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->read(queue, bufs, remotes, n);
}

DATA_PATH int vbn_fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->fetch_add(queue, bufs, remotes, atomics, n);
}

DATA_PATH int vbn_cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->cmp_swap(queue, bufs, remotes, atomics, n);
}

DATA_PATH void vbn_flush(struct vbn_queue *queue)
{
	check_caller(queue);
	queue->ops->flush(queue);
}

/* What the control thread has heard is acted upon here, on the worker's thread. */
static cold void take_queue_news(struct vbn_queue *queue)
{
	uint32_t news = __atomic_exchange_n(&queue->news, 0, __ATOMIC_ACQUIRE);

	if (news && queue->port->driver->queue_news)
		queue->port->driver->queue_news(queue, news);
}

static cold void take_news(struct queue_list *list)
{
	/* Pairs with the release of whoever set it: the queues' own news are there to be seen. */
	__atomic_exchange_n(&list->news, 0, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < list->n_queues; i++)
		if (load_once(&list->queues[i]->news) && !list->queues[i]->away)
			take_queue_news(list->queues[i]);
}

/* News wait until nothing is left to take: a program that only receives never asks vbn_poll(). */
DATA_PATH int vbn_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	int got;

	check_caller(queue);
	got = queue->ops->recv(queue, bufs, n);
	if (!got && unlikely(load_once(&queue->news)))
		take_queue_news(queue);
	return got;
}

static fast_path int poll_own(struct queue_list *list, struct vbn_event *events, int n)
{
	int got = 0;

	for (uint32_t i = 0; i < list->n_own && got < n; i++) {
		struct vbn_queue *queue;

		if (list->turn >= list->n_own)
			list->turn = 0;
		queue = list->queues[list->turn++];
		got += queue->ops->poll(queue, events + got, n - got);
	}
	return got;
}

static fast_path int poll_groups(struct queue_list *list, struct vbn_event *events, int n)
{
	int got = 0;

	for (struct queue_group *group = list->groups; group && got < n; group = group->next)
		if (group->poll)
			got += group->poll(group, events + got, n - got);
	return got;
}

/* Those with CQs to themselves and those that share some take turns in going first. */
static force_inline int poll_list(struct queue_list *list, struct vbn_event *events, int n)
{
	int got;

	if (unlikely(load_once(&list->news)))
		take_news(list);
	list->groups_first = !list->groups_first;
	if (list->groups_first) {
		got = poll_groups(list, events, n);
		return got + poll_own(list, events + got, n - got);
	}
	got = poll_own(list, events, n);
	return got + poll_groups(list, events + got, n - got);
}

DATA_PATH int vbn_poll(struct vbn_worker *worker, struct vbn_event *events, int n)
{
	struct queue_list *list = vbn__worker_queues(worker);

	return likely(list) ? poll_list(list, events, n) : 0;
}

fast_path int vbn__queues_poll(struct queue_list *list, struct vbn_event *events, int n)
{
	return poll_list(list, events, n);
}
