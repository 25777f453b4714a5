/* frame_queue.h - what queues of raw Ethernet have in common where the kernel is the device: sends
 * counted and given back, receives as events, failure, the ports' tables
 *
 * Lives here: the head of a queue of the drivers tap, xdp and pcap. May come in: base, mem. May touch it:
 * these drivers. The worker's thread, but for what says otherwise.
 *
 * A send is outstanding from its staging until its buf is free or its event has been taken, and there
 * are at most tx_depth of them. What is to come back by an event waits in `back`.
 */
#ifndef VBN_FRAME_QUEUE_H
#define VBN_FRAME_QUEUE_H

#include "drv/drv.h"
#include "drv/frame.h"

enum { FRAME_BURST = 64 }; /* receives that are made into events at once */

struct frame_queue {
	struct vbn_queue queue;
	uint32_t n_out cache_aligned;  /* sends outstanding */
	uint32_t back_head, back_tail; /* of `back`, running freely */
	uint32_t back_mask;
	struct vbn_buf **back;
	bool reported; /* of a failed queue: its VBN_OP_FAILED has been taken */
	struct queue_ops ops;
};

static force_inline struct frame_queue *frame_queue(const struct vbn_queue *queue)
{
	return container_of((struct vbn_queue *)(uintptr_t)queue, struct frame_queue, queue);
}

/* Sends that may be staged. */
static force_inline uint32_t frame_room(const struct frame_queue *fq)
{
	return fq->back_mask + 1 - fq->n_out;
}

/* The device is done with a send: its buf goes home, or waits for its event. */
static force_inline void frame_done(struct frame_queue *fq, struct vbn_buf *buf)
{
	vbn__buf_debug_done(buf);
	if (unlikely(buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))) {
		fq->back[fq->back_head++ & fq->back_mask] = buf;
		return;
	}
	fq->n_out--;
	vbn_buf_free(&buf, 1);
}

/* The tables; on the control thread. 0 or -ENOMEM. */
int vbn__frame_queue_make(struct frame_queue *fq, const struct vbn_queue_conf *conf);
/* Bufs that wait for their events go home. */
void vbn__frame_queue_end(struct frame_queue *fq);

/* What is not of these devices cannot be insisted on: -ENOTSUP with a sentence. */
int vbn__frame_conf_check(const struct vbn_port *port, const struct vbn_queue_conf *conf);

/* Sends that wait for an event, with the status; at most n. */
int vbn__frame_back(
	struct frame_queue *fq, enum vbn_status status, struct vbn_event *events, int n);
/* What poll does: events of sends, then of what `recv` yields. */
int vbn__frame_poll(struct vbn_queue *queue, struct vbn_event *events, int n,
	int (*recv)(struct vbn_queue *queue, struct vbn_buf **bufs, int n));
uint32_t vbn__frame_outstanding(const struct vbn_queue *queue);

/* From here on it takes nothing; what it had staged must have been given back by frame_done(). `why` is
 * the cause and what to do. */
void vbn__frame_fail(struct frame_queue *fq, const char *why);

/* ---- reset ---- */

#define FRAME_RESET "it was reset"

/* Whether a failed one has reported all it had. */
bool vbn__frame_quiet(const struct vbn_queue *queue);
/* As it was made, once it is quiet or was never connected; on the control thread. */
void vbn__frame_renew(struct frame_queue *fq);
/* Of a driver that has nothing to do on the control thread where a queue is to fail. */
int vbn__frame_nothing_to_end(struct vbn_queue *queue);

/* ---- a driver's table: what is the same for all ---- */

int vbn__frame_no_gids(const char *name, int number, char (*gids)[80], int n);
int vbn__frame_zone_register(
	struct vbn_port *port, struct vbn_zone *zone, struct zone_registration *registration);
void vbn__frame_zone_unregister(struct vbn_port *port, struct zone_registration *registration);
int vbn__frame_nothing_to_list(struct vbn_port_info *infos, int n);
/* As `list` of drivers of interfaces: those that `fill` takes, and has more to say of. */
struct netdev_found;
int vbn__frame_list(const char *driver, struct vbn_port_info *infos, int n,
	bool (*fill)(const struct netdev_found *found, struct vbn_port_info *info));
/* "tap:vbn0" and what holds of all of them. */
void vbn__frame_info(struct vbn_port_info *info, const char *driver, const char *name);
/* -EINVAL, with a sentence, where a port of raw Ethernet is asked for what only RDMA has. */
int vbn__frame_port_check(
	const char *driver, const char *name, int number, const struct vbn_port_conf *conf);
/* A number for people that no other queue of the port has. */
uint32_t vbn__frame_number(const struct vbn_port *port);

#define FRAME_DRIVER                                                                    \
	.by_name = true, .whole_name = true, .group_size = sizeof(struct vbn_rx_group), \
	.gids = vbn__frame_no_gids, .zone_register = vbn__frame_zone_register,          \
	.zone_unregister = vbn__frame_zone_unregister, .queue_quiet = vbn__frame_quiet

#endif
