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
/* sleep.c: the worker sleeps until something comes for one of the list's queues, or `ns` are over.
 * False: it cannot, or something has come. */
bool vbn__queues_sleep(void *list, uint64_t ns);
void vbn__queues_end(struct queue_list *list);

/* As vbn_queue_create(), vbn_srq_create() and vbn_poll(), of a list. */
int vbn__queue_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__srq_create_in(struct queue_list *list, struct vbn_port *port,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);
int vbn__queues_poll(struct queue_list *list, struct vbn_event *events, int n);

/* Adds its counters, under its port and number. */
void vbn__queue_show(struct vbn_queue *queue);

/* ---- a queue's life in steps, for who does not wait for the control thread ---- */

enum queue_step { QUEUE_CREATE, QUEUE_CONNECT, QUEUE_FAIL, QUEUE_RESET, QUEUE_DESTROY };

/* One step of one queue: begun on its worker's thread, carried out on the control thread, finished on
 * the worker's again; a queue has one step under way at a time. Between, it is in nobody's hands: it
 * may be polled where vbn__queue_step_is_apart() says so, and its events have its context; else its
 * worker waits. */
struct queue_job {
	enum queue_step step;
	int result;
	struct vbn_port *port;
	struct vbn_queue *queue; /* of QUEUE_CREATE once that is finished */
	/* of QUEUE_CREATE */
	struct queue_list *list;
	struct vbn_queue_conf conf, asked;
	uint32_t number; /* of QUEUE_RESET: the queue's before */
	/* of QUEUE_CONNECT */
	bool has_peer;
	struct address peer;
};

/* Whether the worker may go on polling while the step that has been begun is carried out. */
bool vbn__queue_step_is_apart(const struct queue_job *job);

/* 0 or -errno with a sentence, as the functions of verbena/queue.h. Reset: -EAGAIN while the queue
 * has not given back all it had; a connected one has been made to fail before. */
int vbn__queue_begin_create(struct queue_job *job, struct queue_list *list, struct vbn_port *port,
	const struct vbn_queue_conf *conf);
int vbn__queue_begin_connect(
	struct queue_job *job, struct vbn_queue *queue, const struct vbn_address *address);
void vbn__queue_begin_fail(struct queue_job *job, struct vbn_queue *queue);
int vbn__queue_begin_reset(struct queue_job *job, struct vbn_queue *queue);
void vbn__queue_begin_destroy(struct queue_job *job, struct vbn_queue *queue);
void vbn__queue_carry_out(struct queue_job *job);
/* What came of it. */
int vbn__queue_finish(struct queue_job *job);

/* ---- a queue and its rx group, if it has one; on the control thread ---- */

/* 0 where there is no group, or a place in it. */
int vbn__rx_group_may_join(const struct vbn_rx_group *group, const struct vbn_port *port);
void vbn__rx_group_join(struct vbn_rx_group *group, struct vbn_queue *queue);
/* It is connected; builds the group where it is the last one. */
int vbn__rx_group_connected(struct vbn_queue *queue);
/* It is connected no more, and its place is kept. */
void vbn__rx_group_away(struct vbn_queue *queue);
void vbn__rx_group_leave(struct vbn_queue *queue);

/* Rules of a group that is being built, unbuilt, destroyed. */
int vbn__rx_rules_apply(struct vbn_rx_group *group);
void vbn__rx_rules_withdraw(struct vbn_rx_group *group);
void vbn__rx_rules_free(struct vbn_rx_group *group);

/* Registers the zone with the port unless it is; on the control thread. */
int vbn__port_register_zone(struct vbn_port *port, struct vbn_zone *zone);

#endif
