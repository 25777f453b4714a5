/* mlx5.h - the driver for ConnectX-4 and later by direct verbs: rings written and read in place
 *
 * Lives here: send queues, receive queues, completion queues through the memory that
 * mlx5dv_init_obj shows. May come in: libmlx5 (control path only: not one ibv_post_*, ibv_wr_* or
 * ibv_poll_cq), drv/rdma.h. May touch it: port, through struct driver.
 *
 *   port.c       open by mlx5dv, the driver's table
 *   queue.c      create, connect, reset, stop, free
 *   rings.c      libmlx5's queue pairs and CQs, and their memory taken over; modes.c says how
 *   group.c      what a worker's queues share: CQs, a register, a table from QPN to queue;
 *                group_poll.c and group_sends.c their completions
 *   srq.c        a shared receive ring
 *   sq_stage.h   the template of operations with bufs: sq.c send and write, sq_rdma.c read and
 *                atomics, sq_peer.c datagrams; sq_inline.c bytes; sq.c flush; sq_whole.c without
 *                it
 *   sq_done.c    what has completed
 *   rq.c         receive and post again
 *   mini*.c      completions that come compressed
 *   cq.h         the next CQE, if it is there
 *   error.c      why a queue has failed, in words; failed.c its data path
 *   peer.c       where datagrams go
 *   raw.h        raw Ethernet, whose queues and rx groups are another kind
 *
 * A queue has a CQ for sends and one for receives to itself, so that a CQE needs no look-up of its
 * queue; or it shares some with the worker's others, so that polling costs by the completion.
 * Layouts: struct mlx5_wqe_* and mlx5_cqe64 of infiniband/mlx5dv.h; NVIDIA's "Adapters Programmer's
 * Reference Manual", chapters Work Queues and Completion Queues.
 */
#ifndef VBN_MLX5_H
#define VBN_MLX5_H

#include "drv/rdma.h"

#include <infiniband/mlx5dv.h>

/* ---- rings ---- */

struct cq {
	uint8_t *first; /* the 64 bytes that hold the first entry: the last 64 of a larger one */
	uint32_t index; /* the next to read; never reset while the queue lives */
	uint32_t mask;
	uint8_t log2_stride; /* 6 or 7 */
	uint8_t log2_count;
	bool compressed;
	bool strided;            /* of a striding receive ring */
	__be32 *record;          /* the consumer index, 24 bits */
	struct session *session; /* of a compressed one for receives */
	struct ibv_cq *ibv;
};

/* What stands in the side table for each WQEBB: a buf, whose address has the low six bits free, and
 * what its completion means. */
enum {
	SLOT_EMPTY = 1 << 0, /* no buf: sent inline, a NOP, or a WQE's further WQEBB */
	SLOT_EVENT =
		1 << 1, /* returns the buf by an event, whose op is in the bits from SLOT_OP on */
	SLOT_FOREIGN =
		1 << 2, /* with neither: a chain, or a buf of another pool than the queue's */
	SLOT_FURTHER = 1 << 3 | SLOT_EMPTY, /* a further WQEBB of the WQE before */
	SLOT_NOP = 1 << 4 | SLOT_EMPTY,
	SLOT_OP = 2,
	SLOT_BITS = 63,
};
static_assert(VBN_OP_CMP_SWAP << SLOT_OP < 64, "an op fits into a slot");

static force_inline bool slot_is_further(uintptr_t slot)
{
	return (slot & SLOT_FURTHER) == SLOT_FURTHER;
}

/* Of a buf that goes back to the caller. */
static force_inline uintptr_t slot_event(struct vbn_buf *buf, enum vbn_op op)
{
	return (uintptr_t)buf | SLOT_EVENT | (uintptr_t)op << SLOT_OP;
}

/* Indices count WQEBBs (64 bytes) and wrap at 2^16 as the device's do; a ring has at most 2^15, so
 * differences are exact. */
/* A doorbell register. Its two halves take turns where WQEs are copied into it, and that is the
 * register's state, whichever queue rings. */
struct doorbell {
	uint64_t *reg;
	uint32_t offset; /* bytes; 0 where nothing is copied */
	uint32_t size;   /* of a half; 0: takes no copies */
	struct doorbell *next;
};

static force_inline uint64_t *doorbell_address(const struct doorbell *doorbell)
{
	return doorbell->reg + doorbell->offset / sizeof(uint64_t);
}

/* A WQE of one WQEBB goes to the device with its doorbell; the first word is the doorbell itself. */
static force_inline void blueflame_copy(struct doorbell *doorbell, const uint64_t *wqe)
{
	uint64_t *reg = doorbell_address(doorbell);

	for (size_t i = 0; i < MLX5_SEND_WQE_BB / sizeof(*wqe); i++)
		store_once(&reg[i], wqe[i]);
	doorbell->offset ^= doorbell->size;
}

struct sq {
	/* line 0: written by each burst */
	uint16_t head;         /* next to write */
	uint16_t rung;         /* the device knows of all before */
	uint16_t done;         /* the device has completed all before */
	uint16_t tail;         /* all before have been released: freed, or returned by an event */
	uint16_t last;         /* the newest WQE */
	uint16_t since_signal; /* WQEBBs from the last WQE that asks for a CQE to head */
	uint16_t pending;      /* WQEs that asked for a CQE and have none yet */
	uint16_t idle_polls;   /* polls that saw an unsignalled tail and nothing pending */
	uint32_t mask;
	uint16_t cq_mod; /* WQEBBs between WQEs that ask for a CQE */
	uint8_t *wqes;
	uintptr_t *slots;
	struct vbn_pool *pool; /* where plain bufs come from and go to */
	uint32_t plain_word;
	uint32_t max_message;
	/* line 1: read only after creation */
	__be32 lkey cache_aligned;
	uint32_t qpn_shifted;
	__be32 *record;
	struct doorbell *doorbell;
	uint32_t inline_size; /* bufs of up to so many bytes are copied */
	uint32_t max_inline;
	uint32_t max_gather;
};
static_assert(
	offsetof(struct sq, lkey) == CACHE_LINE, "the constants share no line with the counters");

/* A tail that nothing has been asked of, and nothing will complete. */
static force_inline bool sq_tail_is_idle(const struct sq *sq)
{
	return !sq->pending && sq->done != sq->head && sq->rung == sq->head;
}

enum { GRH_LEN = 40 }; /* what the device puts in front of a datagram */

/* A queue's own receive ring, or a shared one, whose WQEs are linked. */
struct rq {
	uint16_t head; /* posted; linked: the next WQE to post */
	uint16_t tail; /* received; linked: the last free WQE */
	uint16_t mask;
	uint16_t depth;
	uint16_t posted, counter; /* linked: now, and ever */
	bool linked, datagrams;
	uint32_t log2_stride;
	uint32_t post_offset; /* from a buf to where the device writes */
	uint32_t data_offset; /* from a buf to where its data begins */
	uint8_t *wqes;
	struct vbn_buf **slots;
	struct vbn_pool *pool;
	__be32 *record;
};

struct failure {
	enum vbn_status status;
	bool reported;    /* the FAILED event has been given */
	bool of_send;     /* the failed WQE is one of the send queue's */
	bool in_error;    /* the QP is in its error state, so that everything is flushed */
	bool drained;     /* a NOP has been sent behind everything */
	bool flushing;    /* the first flushed send is known: it is sq.done */
	bool silent;      /* no CQE will tell of what is outstanding */
	bool cq_lost;     /* the queue needs another one */
	uint16_t wqe;     /* its index */
	uint16_t flushed; /* the send queue has been flushed up to here */
};

struct mlx5_group;
struct session;

struct mlx5_queue {
	struct vbn_queue queue;
	struct sq sq;
	struct cq own_send_cq cache_aligned;
	struct cq own_recv_cq;
	struct rq own_rq cache_aligned;
	struct rq *rq; /* its own, or the SRQ's */
	struct cq *send_cq, *recv_cq;
	/* in its group's lists */
	struct mlx5_group *group;
	struct mlx5_queue *next_backlog, *next_idle, *next_short;
	bool in_backlog, in_idle, in_short, in_group;
	bool parted; /* about to be stopped: in none of these lists any more */
	struct failure failure;
	/* control path */
	struct queue_ops ops;
	struct queue_ops *burst_ops; /* NULL: a doorbell for a burst */
	struct ibv_qp *qp;
	struct shared_cq *shared_send, *shared_recv;
	uint32_t reserved_send, reserved_recv; /* entries of them */
	uint32_t psn;
	uint32_t mtu;
	uint32_t cqe_size;
	bool scatter_to_cqe; /* wanted, or could not be turned off: decoded */
	bool own_uar, blueflame, prefetch;
	bool filled; /* its receives have been posted since it was made or reset */
	struct address peer;
};

static force_inline struct mlx5_queue *mlx5_queue(struct vbn_queue *queue)
{
	return container_of(queue, struct mlx5_queue, queue);
}

/* ---- seams between the files ---- */

/* Lines of an ops table. */
void vbn__sq_ops(struct queue_ops *ops, bool inlining);
void vbn__sq_rdma_ops(struct queue_ops *ops);
void vbn__sq_peer_ops(struct queue_ops *ops, bool inlining);
void vbn__sq_inline_ops(struct queue_ops *ops, enum vbn_transport transport);
void vbn__sq_whole_ops(struct queue_ops *ops, bool datagrams, bool reads);
void vbn__rq_ops(struct queue_ops *ops, bool datagrams, bool prefetch);
int vbn__ring_each_ops(struct mlx5_queue *mq);
void vbn__failed_ops(struct mlx5_queue *mq);

/* Send queue. The first n events hold what needs one. A queue that fails on the way has its ops
 * changed behind it. */
void vbn__sq_flush(struct vbn_queue *queue);
void vbn__sq_flush_blueflame(struct vbn_queue *queue);
void vbn__sq_inline_write(
	struct sq *sq, uint16_t index, uint32_t k, const struct vbn_buf *buf, uint32_t total);
void vbn__sq_nop(struct mlx5_queue *mq);
void vbn__sq_make_room(struct mlx5_queue *mq);
int vbn__sq_reap(struct mlx5_queue *mq, struct vbn_event *events, int n);
void vbn__sq_completed(struct sq *sq, uint16_t index);
int vbn__sq_release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n);
void vbn__sq_event_of_chain(struct vbn_event *event);
uint32_t vbn__sq_outstanding(const struct vbn_queue *queue);

/* Receive queue. Either of bufs and events is filled. */
int vbn__rq_take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n);
int vbn__rq_take_plain(
	struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n);
void vbn__rq_refill(struct mlx5_queue *mq);
uint32_t vbn__srq_refill(struct rq *rq);

/* Failure: what a CQE says, and the queue with it from now on; each CQE of a failed queue. */
void vbn__mlx5_failed(struct mlx5_queue *mq, bool of_send, const struct mlx5_cqe64 *cqe);
void vbn__mlx5_news(struct vbn_queue *queue, uint32_t news);
enum vbn_status vbn__mlx5_status(uint8_t syndrome);
void vbn__failed_send_cqe(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe);
void vbn__failed_recv_cqe(struct mlx5_queue *mq, const struct mlx5_cqe64 *cqe);
int vbn__failed_events(struct mlx5_queue *mq, struct vbn_event *events, int n);
bool vbn__failed_has_more(const struct mlx5_queue *mq);
bool vbn__failed_is_quiet(const struct vbn_queue *queue);

/* Group: completions of all its sends are taken, and what needs an event waits for the poll. */
void vbn__group_reap(struct mlx5_group *group);
void vbn__group_backlog(struct mlx5_queue *mq);
void vbn__group_ops(struct queue_ops *ops);

#endif
