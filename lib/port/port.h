/* port.h - ports, queues, exports, events: names to drivers, conf to what a driver may rely on
 *
 * Lives here: the public face of a port and its queues: checks of every conf, dispatch to a driver,
 * a worker's list of queues and their flush, registration of zones. May come in: drv, run, mem. May
 * touch it: chan, net, apps by the public headers.
 *
 * The data path passes through vbn_send() and its like in data.c: a load and a jump into the
 * driver's table.
 */
#ifndef VBN_PORT_H
#define VBN_PORT_H

#include "drv/drv.h"
#include "run/run.h"

/* Every bit of enum vbn_access. */
#define VBN_ACCESS_BITS (VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC)

/* The drivers there are, best first; ends with NULL. */
extern const struct driver *const vbn__drivers[];

/* The worker's queues, or NULL; made with its first queue or SRQ. */
struct queue_list *vbn__worker_queues(struct vbn_worker *worker);
int vbn__worker_queues_make(struct vbn_worker *worker, struct queue_list **list);
/* -EPERM, with a sentence, where the calling thread is another one, or there is no worker. */
int vbn__check_own_worker(const struct vbn_worker *worker);
int vbn__worker_queues_add(struct queue_list *list, struct vbn_queue *queue);
void vbn__worker_queues_remove(struct vbn_queue *queue);

/* A further list of the worker's, for a room that polls its queues itself: vbn_poll() does not see
 * them. To be ended before the worker; its queues end with it. */
int vbn__queues_make(struct vbn_worker *worker, struct queue_list **list);
void vbn__queues_end(struct queue_list *list);

/* As vbn_queue_create(), vbn_srq_create() and vbn_poll(), of a list. */
int vbn__queue_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__srq_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);
int vbn__queues_poll(struct queue_list *list, struct vbn_event *events, int n);

/* Registers the zone with the port unless it is; on the control thread. */
int vbn__port_register_zone(struct vbn_port *port, struct vbn_zone *zone);

#endif
