/* subject_more.c - a shared receive ring, a queue that has failed, channels; a control thread that is
 * kept in a call
 */

#include "subject.h"

#include "run/run.h"

#include <semaphore.h>

static struct {
	struct vbn_srq *srq;
	struct vbn_queue *writer, *target;
	struct vbn_channel_group *group;
	struct vbn_channel_listener *listener;
} more;

static int make_queues(struct vbn_worker *worker, struct vbn_port *port, struct vbn_pool *pool)
{
	const struct vbn_srq_conf srq = {.depth = 64, .pool = pool, .limit = 16};
	struct vbn_queue_conf conf = {
		.tx_depth = 16, .rx_depth = 16, .rx_pool = pool, .tx_pool = pool};
	struct vbn_address here, there;

	if (vbn_srq_create(worker, port, &srq, &more.srq) ||
		vbn_queue_create(worker, port, &conf, &more.writer))
		return -1;
	conf.srq = more.srq;
	conf.rx_pool = NULL;
	conf.rx_depth = 0;
	if (vbn_queue_create(worker, port, &conf, &more.target))
		return -1;
	vbn_queue_address(more.writer, &here);
	vbn_queue_address(more.target, &there);
	return vbn_queue_connect(more.writer, &there) || vbn_queue_connect(more.target, &here);
}

/* To a place that the other end has not exported. */
static int make_it_fail(struct vbn_pool *pool)
{
	const struct vbn_remote nowhere = {.addr = 4096, .rkey = 1};
	struct vbn_buf *buf;

	if (vbn_buf_alloc(pool, &buf, 1) != 1)
		return -1;
	buf->len = 8;
	if (vbn_write(more.writer, &buf, &nowhere, 1) == 1)
		return 0;
	vbn_buf_free(&buf, 1);
	return -1;
}

static int accept_peer(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	(void)channel;
	(void)data;
	(void)len;
	(void)arg;
	return 0;
}

static int make_channels(struct vbn_worker *worker, struct vbn_port *port)
{
	const struct vbn_channel_group_conf conf = {
		.max_channels = 4, .connect_ns = 300ull * 1000 * 1000};
	struct vbn_channel *channel;

	if (vbn_channel_group_create(worker, port, &conf, &more.group) ||
		vbn_channel_listen(more.group, "127.0.0.1:0", accept_peer, NULL, &more.listener))
		return -1;
	return vbn_channel_connect(more.group, vbn_channel_listener_address(more.listener), NULL, 0,
		       &channel) ||
		vbn_channel_connect(more.group, "127.0.0.1:1", NULL, 0, &channel);
}

int more_make(struct vbn_worker *worker, struct vbn_port *port, struct vbn_pool *pool)
{
	return make_queues(worker, port, pool) || make_it_fail(pool) || make_channels(worker, port)
		? -1
		: 0;
}

void more_turn(void)
{
	struct vbn_channel_event events[8];
	struct vbn_event event;
	int n = vbn_channel_poll(more.group, events, 8);

	for (int i = 0; i < n; i++)
		if (events[i].op == VBN_CHANNEL_MESSAGE)
			vbn_channel_release(&events[i]);
	while (vbn_poll(vbn_worker_self(), &event, 1) > 0)
		if (event.buf)
			vbn_buf_free(&event.buf, 1);
}

void more_end(void)
{
	vbn_channel_group_destroy(more.group);
	vbn_queue_destroy(more.writer);
	vbn_queue_destroy(more.target);
	vbn_srq_destroy(more.srq);
}

/* ---- a control thread that is kept ---- */

static pthread_t callers[2];
static sem_t let_go;

static int wait_for_it(void *arg)
{
	(void)arg;
	while (sem_wait(&let_go)) {
	}
	return 0;
}

static void *call(void *arg)
{
	vbn__control_call(-1, wait_for_it, arg);
	return NULL;
}

int stuck_begin(void)
{
	if (sem_init(&let_go, 0, 0))
		return -1;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&callers[i], NULL, call, NULL))
			return -1;
	return 0;
}

void stuck_end(void)
{
	for (int i = 0; i < 2; i++)
		sem_post(&let_go);
	for (int i = 0; i < 2; i++)
		pthread_join(callers[i], NULL);
}
