/* verbs.h - the driver for any RDMA device by plain libibverbs: a post list for a burst, batched
 * polling
 *
 * Lives here: queues over ibv_post_send, ibv_post_recv and ibv_poll_cq. May come in: libibverbs,
 * drv/rdma.h. May touch it: port, through struct driver.
 *
 *   port.c    open, the driver's table
 *   queue.c   create, connect, reset, free; modes
 *   send.c    stage and flush: work requests, releasing bufs that have completed
 *   recv.c    receive and post again
 *   fail.c    a failed completion in words; the data path of a failed queue
 *   ud.c      address handles of peers
 *   group.c   CQs that the queues of a worker share; srq.c shared receive rings
 *   iwarp.h   what iWARP devices do otherwise: connections by rdma_cm
 *
 * The rules of a fast path hold as far as they are this driver's: what a provider does inside a
 * verb (a lock, on some a system call) is its own. A device on which mlx5dv works is driven so only
 * where `verbs:` says it.
 */
#ifndef VBN_VERBS_H
#define VBN_VERBS_H

#include "drv/qpn_table.h"
#include "drv/rdma.h"
#include "drv/verbs/iwarp.h"

enum {
	WC_BATCH = 32, /* completions asked for at once */
	GRH_SIZE = 40, /* in front of each datagram */
};

/* Indices count work requests and run freely; an entry is index & mask. */
struct verbs_sq {
	uint32_t head;         /* next to stage */
	uint32_t rung;         /* all before have been posted */
	uint32_t done;         /* all before have been completed */
	uint32_t tail;         /* all before have been released */
	uint32_t since_signal; /* requests staged behind the last that asks for a completion */
	uint32_t fence;        /* iWARP: IBV_SEND_FENCE once there has been a read */
	uint32_t mask;
	uint32_t cq_mod;
	uint32_t max_gather;
	uint32_t inline_size; /* bufs of up to so many bytes go inline */
	uint32_t max_inline;  /* of vbn_send_inline() */
	bool device_inline;   /* else copies go by way of the pool */
	uint64_t max_message;
	struct vbn_pool *pool;
	struct ibv_send_wr *wrs; /* each linked to the next, the last one to the first */
	struct ibv_sge *sges;    /* max_gather to an entry */
	uint8_t *copies;         /* max_inline to an entry */
	struct vbn_buf **bufs;   /* NULL: none to release */
};

/* A queue's own receive ring, in order; or a shared one, whose entries are free in any order. */
struct verbs_rq {
	uint32_t head;   /* posted */
	uint32_t tail;   /* received */
	uint32_t mask;   /* of the depth, a power of two */
	uint32_t before; /* bytes that the device writes in front of the message */
	uint32_t data_offset;
	struct vbn_pool *pool;
	struct ibv_recv_wr *wrs; /* linked as above; of a shared ring when they are posted */
	struct ibv_sge *sges;
	struct vbn_buf **bufs; /* NULL where none is posted */
	uint32_t *free;        /* entries of a shared ring that are; NULL: it is a queue's own */
};

static force_inline uint32_t rq_posted(const struct verbs_rq *rq)
{
	return rq->head - rq->tail;
}

static force_inline bool rq_is_short(const struct verbs_rq *rq)
{
	return rq_posted(rq) <= rq->mask;
}

struct verbs_failure {
	enum vbn_status status;
	bool reported;    /* the FAILED event has been given */
	bool of_send;     /* the failed request is one of the send queue's */
	bool sends_end;   /* the first send that was not carried out is known */
	bool silent;      /* no completion will tell of what is outstanding */
	bool cq_lost;     /* it cannot be used again */
	uint32_t wqe;     /* its index */
	uint32_t flushed; /* the send queue has been flushed up to here */
};

struct verbs_queue {
	struct vbn_queue queue;
	struct verbs_sq sq cache_aligned;
	struct verbs_rq own_rq cache_aligned;
	struct verbs_rq *rq; /* its own, or the SRQ's */
	struct ibv_qp *qp;   /* NULL: a reset could not make another */
	struct ibv_cq *send_cq, *recv_cq;
	/* of a grouped queue */
	struct verbs_group *group;
	struct verbs_cq *shared_send, *shared_recv;
	struct verbs_queue *next_backlog, *next_short;
	bool in_backlog, in_short;
	bool ring_each; /* no burst: a post for each message */
	struct verbs_failure failure;
	struct queue_ops ops;
	/* control path */
	uint32_t psn;
	uint32_t mtu;
	struct address peer;
	struct verbs_link *link; /* iWARP; else NULL */
};

static force_inline struct verbs_queue *verbs_queue(const struct vbn_queue *queue)
{
	return container_of((struct vbn_queue *)(uintptr_t)queue, struct verbs_queue, queue);
}

/* A CQ that queues share. What was read from it while a queue ended waits in `kept`. */
struct verbs_cq {
	struct ibv_cq *ibv;
	struct verbs_cq *next;
	uint32_t entries, reserved;
	struct verbs_srq *srq; /* whose receives complete into it; NULL: those of queues' own */
	struct ibv_wc *kept;   /* room for all entries */
	uint32_t n_kept, kept_at;
};

struct verbs_srq {
	struct vbn_srq srq;
	struct verbs_rq rq;
	struct ibv_srq *ibv;
	struct verbs_group *group;
	struct verbs_cq *cq;
	struct verbs_srq *next;
	bool below; /* the limit's event has been given */
};

/* What a worker's queues of one port share. */
struct verbs_group {
	struct queue_group group;
	struct verbs_cq *send_cqs, *recv_cqs;
	struct verbs_srq *srqs;
	struct qpn_table queues;
	struct verbs_queue *backlog,
		*backlog_last;           /* those with more to give than there was room */
	struct verbs_queue *short_rings; /* those with receives to post */
};

/* Where a datagram goes: what a peer's handle points at. */
struct verbs_way {
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
};

/* ---- seams between the files ---- */

/* send.c */
int vbn__verbs_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
int vbn__verbs_send_imm(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n);
int vbn__verbs_send_inline(struct vbn_queue *queue, const void *data, size_t len);
int vbn__verbs_send_inline_imm(struct vbn_queue *queue, const void *data, size_t len, uint32_t imm);
int vbn__verbs_send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len);
int vbn__verbs_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
int vbn__verbs_write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n);
int vbn__verbs_write_inline(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote);
int vbn__verbs_read(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
int vbn__verbs_fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n);
int vbn__verbs_cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n);
void vbn__verbs_flush(struct vbn_queue *queue);
/* Into one segment each, however long: iWARP. */
int vbn__verbs_read_whole(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
uint32_t vbn__verbs_outstanding(const struct vbn_queue *queue);
/* Takes completions of sends; a failed one is given to fail.c. */
void vbn__verbs_reap(struct verbs_queue *vq);
/* Frees the bufs before `end`, or returns them by events: at most n. How many events. */
int vbn__verbs_release(struct verbs_queue *vq, uint32_t end, enum vbn_status status,
	struct vbn_event *events, int n);
/* What the request at an index is. */
enum vbn_op vbn__verbs_op(const struct verbs_sq *sq, uint32_t index);

/* recv.c. Either of bufs and events is filled. */
int vbn__verbs_take(struct verbs_queue *vq, struct vbn_buf **bufs, struct vbn_event *events, int n);
void vbn__verbs_refill(struct verbs_queue *vq);
/* The buf of a receive that has completed; its entry is free. NULL: there is none. */
struct vbn_buf *vbn__verbs_claim(struct verbs_rq *rq, const struct ibv_wc *wc);
/* Makes a message of it; the event says so. The bytes received. */
uint32_t vbn__verbs_arrived(struct verbs_queue *vq, const struct ibv_wc *wc, struct vbn_buf *buf,
	struct vbn_event *event);
/* Tables and what never changes in them, for `depth` receives. A datagram has its network header
 * before the data. */
int vbn__verbs_rq_create(struct verbs_rq *rq, const struct vbn_port *port, struct vbn_pool *pool,
	uint32_t depth, bool datagrams);
/* What is posted goes home; and the tables. */
void vbn__verbs_rq_sweep(struct verbs_rq *rq);
void vbn__verbs_rq_free(struct verbs_rq *rq);

/* group.c: on the worker's thread. */
void vbn__verbs_group_reap(struct verbs_group *group);
void vbn__verbs_backlog(struct verbs_queue *vq);
void vbn__verbs_group_ops(struct queue_ops *ops);
/* On the control thread, while the worker waits; put destroys what nobody uses. */
struct verbs_group *vbn__verbs_group_get(struct rdma_port *port, struct queue_list *list);
void vbn__verbs_group_put(struct verbs_group *group);
/* A CQ with room for n more entries; with an SRQ one of its own. NULL with a sentence. */
struct verbs_cq *vbn__verbs_reserve(
	struct verbs_group *group, struct verbs_cq **cqs, uint32_t n, struct verbs_srq *srq);
/* Takes a CQ out of its list, and destroys it. */
void vbn__verbs_cq_end(struct verbs_cq **cqs, struct verbs_cq *cq);
/* Nothing that is still in its CQs names the queue any more. */
void vbn__verbs_strike_out(struct verbs_queue *vq);
/* No list has it: on the worker's thread. */
void vbn__verbs_group_forget(struct verbs_queue *vq);

/* srq.c */
int vbn__verbs_srq_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);
int vbn__verbs_srq_fill(struct vbn_srq *srq);
void vbn__verbs_srq_stop(struct vbn_srq *srq);
void vbn__verbs_srq_free(struct vbn_srq *srq);
uint32_t vbn__verbs_srq_posted(const struct vbn_srq *srq);
/* Posts bufs; how many the pool had not. */
uint32_t vbn__verbs_srq_refill(struct verbs_srq *srq);

/* fail.c: a completion with an error; a verb that was refused, and other causes, which take the QP
 * to the error state, so that what was posted comes back. Once called, the queue has failed. */
void vbn__verbs_send_failed(struct verbs_queue *vq, const struct ibv_wc *wc);
void vbn__verbs_recv_failed(struct verbs_queue *vq, const struct ibv_wc *wc);
void vbn__verbs_failed(struct verbs_queue *vq, enum vbn_status status, const char *cause);
/* An iWARP queue whose connection is gone. */
void vbn__verbs_cut_off(struct verbs_queue *vq);
void vbn__verbs_refused(struct verbs_queue *vq, const char *verb, int error);
/* What a failed queue gives back, and whether there is more at once. */
int vbn__verbs_failed_events(struct verbs_queue *vq, struct vbn_event *events, int n);
/* All that its CQs had has been taken. */
void vbn__verbs_all_read(struct verbs_queue *vq);
bool vbn__verbs_failed_has_more(const struct verbs_queue *vq);

extern const struct driver vbn__driver_verbs;

/* queue.c */
int vbn__verbs_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
/* What a connected queue does. */
void vbn__verbs_ops_fill(struct verbs_queue *vq);
void vbn__verbs_queue_address(const struct vbn_queue *queue, struct vbn_address *address);
int vbn__verbs_queue_fill(struct vbn_queue *queue);
uint32_t vbn__verbs_queue_posted(const struct vbn_queue *queue);
int vbn__verbs_queue_connect(struct vbn_queue *queue, const struct address *peer);
int vbn__verbs_queue_fail(struct vbn_queue *queue);
bool vbn__verbs_queue_quiet(const struct vbn_queue *queue);
int vbn__verbs_queue_reset(struct vbn_queue *queue);
void vbn__verbs_queue_news(struct vbn_queue *queue, uint32_t news);
void vbn__verbs_queue_stop(struct vbn_queue *queue);
void vbn__verbs_queue_free(struct vbn_queue *queue);
void vbn__verbs_queue_modes(const struct vbn_queue *queue, struct mode_report *report);

/* ud.c */
int vbn__verbs_peer_create(struct peer_entry *entry);
void vbn__verbs_peer_destroy(struct peer_entry *entry);

#endif
