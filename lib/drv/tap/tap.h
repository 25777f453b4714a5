/* tap.h - the driver for TAP devices: the kernel's own stack is at the other end
 *
 * Lives here: ports that are a TAP device of this network namespace, queues that are a descriptor of it
 * each. May come in: /dev/net/tun. May touch it: port, through struct driver.
 *
 *   port.c    the driver's table, open, drops
 *   queue.c   create, connect, groups, free; modes
 *   data.c    stage, flush, receive
 *
 * A descriptor of a TAP device gives and takes one packet with each system call, so here the data path
 * makes them: a flush writes what is staged, a receive reads until there is nothing. That is the
 * device's nature; none waits.
 *
 * Before each packet is a virtio_net_hdr. So the fourth layer's checksum of what is sent is the kernel's
 * to fill in, which it does where the packet leaves the host, and what comes from this host comes without
 * it: it is then filled in here, once, and known to be good.
 *
 * The port has a descriptor of its own, which is no queue, so that the device stays while queues come
 * and go. A device that was made for one queue has one descriptor: the port's is then its queue's.
 */
#ifndef VBN_TAP_H
#define VBN_TAP_H

#include "drv/frame_queue.h"
#include "drv/netdev.h"

#include <linux/virtio_net.h>

enum {
	TAP_MAX_QUEUES = 64,
	TAP_MAX_MTU = 9000,
	TAP_GATHER = 16,
};

struct tap_port {
	struct vbn_port port;
	char name[16];
	int fd;
	int claim;          /* the socket whose name says that the device is this process's */
	bool single;        /* the device has one queue */
	bool offload;       /* the kernel leaves checksums to us, and takes them from us */
	uint32_t mtu_asked; /* 0: none */
	struct netdev_since since; /* it was opened */
};

static inline struct tap_port *tap_port(const struct vbn_port *port)
{
	return container_of((struct vbn_port *)(uintptr_t)port, struct tap_port, port);
}

struct tap_queue {
	struct frame_queue fq;
	struct vbn_buf **staged cache_aligned; /* tx_depth, from tail to head, running freely */
	uint32_t head, tail, mask;
	int fd;
	uint32_t longest;    /* bytes of a frame */
	uint32_t max_gather; /* segments of it */
	uint32_t data_size;
	struct vbn_pool *pool;
	bool offload;
};

static force_inline struct tap_queue *tap_queue(const struct vbn_queue *queue)
{
	return container_of(frame_queue(queue), struct tap_queue, fq);
}

extern const struct driver vbn__driver_tap;

/* port.c: a descriptor of the device. -errno without a sentence. */
int vbn__tap_attach(const char *name, bool single);
/* Whether the kernel gives packets to this descriptor. */
int vbn__tap_enable(int fd, bool enable);
/* Whether it still has its device. */
bool vbn__tap_is_attached(int fd);
/* Makes the device anew where it is gone; 0, or -errno with a sentence. */
int vbn__tap_renew(struct tap_port *port);

/* queue.c */
int vbn__tap_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__tap_queue_fill(struct vbn_queue *queue);
uint32_t vbn__tap_queue_posted(const struct vbn_queue *queue);
int vbn__tap_queue_connect(struct vbn_queue *queue, const struct address *peer);
int vbn__tap_queue_reset(struct vbn_queue *queue);
void vbn__tap_queue_stop(struct vbn_queue *queue);
void vbn__tap_queue_free(struct vbn_queue *queue);
void vbn__tap_queue_modes(const struct vbn_queue *queue, struct mode_report *report);
int vbn__tap_group_build(struct vbn_rx_group *group);
void vbn__tap_group_unbuild(struct vbn_rx_group *group);

/* data.c */
void vbn__tap_ops(struct tap_queue *tq);
void vbn__tap_queue_news(struct vbn_queue *queue, uint32_t news);

#endif
