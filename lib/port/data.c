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

DATA_PATH int vbn_send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	check_caller(queue);
	return queue->ops->send_inline(queue, data, len);
}

DATA_PATH int vbn_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	check_send(queue, bufs, n, __builtin_return_address(0));
	return queue->ops->write(queue, bufs, remotes, n);
}

DATA_PATH void vbn_flush(struct vbn_queue *queue)
{
	check_caller(queue);
	queue->ops->flush(queue);
}

DATA_PATH int vbn_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	check_caller(queue);
	return queue->ops->recv(queue, bufs, n);
}

DATA_PATH int vbn_poll(struct vbn_worker *worker, struct vbn_event *events, int n)
{
	struct queue_list *list = vbn__worker_queues(worker);
	int got = 0;

	if (unlikely(!list))
		return 0;
	for (uint32_t i = 0; i < list->n_queues && got < n; i++) {
		struct vbn_queue *queue;

		if (list->turn >= list->n_queues)
			list->turn = 0;
		queue = list->queues[list->turn++];
		got += queue->ops->poll(queue, events + got, n - got);
	}
	return got;
}
