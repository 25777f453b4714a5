/* queue.c - a queue of a TAP device: its descriptor, its place in the group, modes */

#include "drv/tap/tap.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- create ---- */

/* Accepts a half-made one; on the control thread. */
static void free_memory(struct tap_queue *tq)
{
	if (tq->fd >= 0 && tq->fd != tap_port(tq->fq.queue.port)->fd)
		close(tq->fd);
	free(tq->staged);
	free(tq->fq.back);
	free(tq);
}

/* The kernel gives it nothing before its group is built. */
static int open_fd(struct tap_queue *tq, const struct tap_port *port)
{
	if (port->single) {
		tq->fd = port->fd;
		return port->port.n_queues
			? fail(EBUSY,
				  "queue cannot be created: device %s was made for one queue, and has it: make the device by `ip tuntap add dev %s mode tap multi_queue`",
				  port->name, port->name)
			: 0;
	}
	tq->fd = vbn__tap_attach(port->name, false);
	if (tq->fd < 0)
		return fail(-tq->fd,
			"queue cannot be created: device %s cannot have one more: the kernel answers: %s",
			port->name, strerror(-tq->fd));
	return vbn__tap_enable(tq->fd, false);
}

static void fill_in(
	struct tap_queue *tq, const struct tap_port *port, const struct vbn_queue_conf *conf)
{
	tq->mask = conf->tx_depth - 1;
	tq->longest = (uint32_t)port->port.info.max_message;
	tq->max_gather = conf->max_gather;
	tq->data_size = conf->rx_pool->data_size;
	tq->pool = conf->rx_pool;
	tq->offload = port->offload && conf->checksum_offload != VBN_OFF;
}

static int check_conf(const struct tap_port *port, const struct vbn_queue_conf *conf)
{
	int ret = vbn__frame_conf_check(&port->port, conf);

	if (!ret && conf->checksum_offload == VBN_ON && !port->offload)
		ret = fail(ENOTSUP,
			"queue cannot be created: device %s has no checksum_offload: leave it to the library",
			port->name);
	if (!ret && (conf->timestamps == VBN_ON || conf->zero_copy == VBN_ON))
		ret = fail(ENOTSUP,
			"queue cannot be created: TAP devices have no %s: leave it to the library",
			conf->timestamps == VBN_ON ? "timestamps" : "zero_copy");
	return ret;
}

int vbn__tap_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	const struct tap_port *port = tap_port(base);
	struct tap_queue *tq;
	int ret = check_conf(port, conf);

	(void)list;
	if (ret)
		return ret;
	tq = aligned_alloc(CACHE_LINE, round_up(sizeof(*tq), CACHE_LINE));
	if (!tq)
		return -ENOMEM;
	memset(tq, 0, sizeof(*tq));
	tq->fd = -1;
	tq->fq.queue.port = base;
	tq->fq.queue.number = vbn__frame_number(base);
	fill_in(tq, port, conf);
	tq->staged = calloc(conf->tx_depth, sizeof(struct vbn_buf *));
	ret = tq->staged ? vbn__frame_queue_make(&tq->fq, conf) : -ENOMEM;
	if (!ret)
		ret = open_fd(tq, port);
	if (ret) {
		free_memory(tq);
		return ret;
	}
	*queue = &tq->fq.queue;
	return 0;
}

/* Packets wait in the kernel, and are read into bufs as they are taken. */
int vbn__tap_queue_fill(struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

uint32_t vbn__tap_queue_posted(const struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

int vbn__tap_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	(void)peer;
	vbn__tap_ops(tap_queue(queue));
	return 0;
}

/* ---- groups ---- */

void vbn__tap_group_unbuild(struct vbn_rx_group *group)
{
	if (tap_port(group->port)->single)
		return;
	for (uint32_t i = 0; i < group->conf.n_queues; i++)
		vbn__tap_enable(tap_queue(group->queues[i])->fd, false);
}

int vbn__tap_group_build(struct vbn_rx_group *group)
{
	const struct tap_port *port = tap_port(group->port);

	for (uint32_t i = 0; i < group->conf.n_queues && !port->single; i++) {
		const int fd = tap_queue(group->queues[i])->fd;
		int ret = vbn__tap_enable(fd, true);

		/* Of one whose device is gone it is not asked: it waits for its reset. */
		if (ret && vbn__tap_is_attached(fd))
			return fail(-ret,
				"rx group of tap:%s cannot be built: the kernel does not attach queue %u: %s",
				port->name, i, strerror(-ret));
	}
	return 0;
}

/* ---- reset ---- */

/* A descriptor whose device is gone is of no use any more. */
int vbn__tap_queue_reset(struct vbn_queue *queue)
{
	struct tap_queue *tq = tap_queue(queue);
	struct tap_port *port = tap_port(queue->port);
	int ret = vbn__tap_renew(port);

	if (ret)
		return ret;
	if (port->single) {
		tq->fd = port->fd;
	} else if (!vbn__tap_is_attached(tq->fd)) {
		if (tq->fd >= 0)
			close(tq->fd);
		ret = open_fd(tq, port);
	}
	if (!ret)
		vbn__frame_renew(&tq->fq);
	return ret;
}

/* ---- end ---- */

void vbn__tap_queue_stop(struct vbn_queue *queue)
{
	(void)queue;
}

static int free_call(void *arg)
{
	free_memory(arg);
	return 0;
}

void vbn__tap_queue_free(struct vbn_queue *queue)
{
	struct tap_queue *tq = tap_queue(queue);

	while (tq->tail != tq->head) {
		struct vbn_buf *buf = tq->staged[tq->tail++ & tq->mask];

		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	vbn__frame_queue_end(&tq->fq);
	vbn__control_call(-1, free_call, tq);
}

/* ---- modes ---- */

void vbn__tap_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct tap_queue *tq = tap_queue(queue);
	const char *asked = vbn__mode_switch(queue->asked.checksum_offload);

	vbn__mode_add(report, "tx_checksum", asked, tq->offload ? "kernel" : "software",
		tq->offload
			? "of the fourth layer, where the packet leaves the host; IPv4's header in software"
			: "filled in before the packet is written");
	vbn__mode_add(report, "rx_checksum", asked, tq->offload ? "kernel" : "off",
		tq->offload ? "of what this host sends: known to be good, and filled in here"
			    : "the receiver looks itself");
	vbn__mode_add(report, "vlan", "auto", "in the frame", "tags are put in by software");
	vbn__mode_add(report, "system_calls", "auto", "one a packet",
		"a TAP device gives and takes one packet with each");
}
