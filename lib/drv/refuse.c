/* refuse.c - the data path of a queue that takes nothing: not connected yet, or failed */

#include "drv/drv.h"

int vbn__refuse_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)bufs, (void)n;
	return queue->refusal;
}

int vbn__refuse_send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	(void)data, (void)len;
	return queue->refusal;
}

int vbn__refuse_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	(void)bufs, (void)remotes, (void)n;
	return queue->refusal;
}

void vbn__refuse_flush(struct vbn_queue *queue)
{
	(void)queue;
}

static int no_events(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)queue, (void)events, (void)n;
	return 0;
}

static uint32_t none_outstanding(const struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

const struct queue_ops vbn__queue_unconnected = {
	.send = vbn__refuse_send,
	.send_inline = vbn__refuse_send_inline,
	.write = vbn__refuse_write,
	.flush = vbn__refuse_flush,
	.recv = vbn__refuse_send,
	.poll = no_events,
	.outstanding = none_outstanding,
};
