/* data.c - the data path's public face: one jump into the queue's driver, and the worker's poll
 * over its queues */

#include "port/port.h"

#define DATA_PATH VBN_API fast_path

DATA_PATH int vbn_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return queue->ops->send(queue, bufs, n);
}

DATA_PATH int vbn_send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	return queue->ops->send_inline(queue, data, len);
}

DATA_PATH int vbn_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return queue->ops->write(queue, bufs, remotes, n);
}

DATA_PATH void vbn_flush(struct vbn_queue *queue)
{
	queue->ops->flush(queue);
}

DATA_PATH int vbn_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
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
