/* mlx5.h - the driver for ConnectX-4 and later by direct verbs: rings written and read in place
 *
 * Lives here: send queues, receive queues, completion queues through the memory that
 * mlx5dv_init_obj shows. May come in: libmlx5 (control path only: not one ibv_post_*, ibv_wr_* or
 * ibv_poll_cq), drv/rdma.h. May touch it: port, through struct driver.
 *
 *   port.c    open by mlx5dv, the driver's table
 *   queue.c   create, connect, stop, free; modes
 *   sq.c      stage and flush: send WQEs, doorbell, releasing bufs that have completed
 *   rq.c      receive and post again
 *   cq.h      the next CQE, if it is there
 *   error.c   an error CQE in words; the ops of a failed queue
 *
 * Every queue has a CQ for sends and one for receives to itself, so a CQE needs no look-up of its
 * queue. Layouts: struct mlx5_wqe_* and mlx5_cqe64 of infiniband/mlx5dv.h; NVIDIA's "Adapters
 * Programmer's Reference Manual", chapters Work Queues and Completion Queues.
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
	__be32 *record; /* the consumer index, 24 bits */
	struct ibv_cq *ibv;
};

/* What stands in the side table for each WQEBB: a buf, whose address has the low bits free, and
 * what its completion means. */
enum {
	SLOT_EMPTY = 1 << 0,   /* no buf: sent inline, a NOP, or a WQE's further WQEBB */
	SLOT_EVENT = 1 << 1,   /* returns the buf by an event */
	SLOT_FOREIGN = 1 << 2, /* a chain, or a buf of another pool than the queue's */
	SLOT_FURTHER = 1 << 3, /* a further WQEBB of the WQE before */
	SLOT_NOP = 1 << 4,
	SLOT_BITS = 31,
};

/* Indices count WQEBBs (64 bytes) and wrap at 2^16 as the device's do; a ring has at most 2^15, so
 * differences are exact. */
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
	uint16_t max_bb; /* of one WQE */
	uint8_t *wqes;
	uintptr_t *slots;
	struct vbn_pool *pool; /* where plain bufs come from and go to */
	uint32_t plain_word;
	uint32_t max_message;
	/* line 1: read only after creation */
	__be32 qpn_ds_send cache_aligned; /* of a plain send: control and one data segment */
	__be32 qpn_ds_write;              /* and an address segment between */
	__be32 lkey;
	uint32_t qpn_shifted;
	__be32 *record;
	uint64_t *doorbell;   /* the BlueFlame register, used as a plain 64-bit doorbell */
	uint32_t inline_size; /* bufs of up to so many bytes are copied */
	uint32_t max_inline;
	uint32_t max_gather;
};
static_assert(offsetof(struct sq, qpn_ds_send) == CACHE_LINE,
	"the constants share no line with the counters");

struct rq {
	uint16_t head; /* posted */
	uint16_t tail; /* received */
	uint16_t mask;
	uint16_t depth;
	uint32_t log2_stride;
	uint32_t data_offset; /* from a buf to where its data begins */
	uint8_t *wqes;
	struct vbn_buf **slots;
	struct vbn_pool *pool;
	__be32 *record;
	__be32 lkey;
	__be32 byte_count;
};

struct failure {
	enum vbn_status status;
	bool reported;    /* the FAILED event has been given */
	bool of_send;     /* the failed WQE is one of the send queue's */
	uint16_t wqe;     /* its index */
	uint16_t flushed; /* the send queue has been flushed up to here */
};

struct mlx5_queue {
	struct vbn_queue queue;
	struct sq sq;
	struct cq send_cq cache_aligned;
	struct cq recv_cq;
	struct rq rq cache_aligned;
	struct failure failure;
	/* control path */
	struct queue_ops ops;
	struct ibv_qp *qp;
	uint32_t psn;
	uint32_t mtu;
	uint32_t cqe_size;
	bool scatter_to_cqe; /* could not be turned off: decoded */
	struct address peer;
};

static force_inline struct mlx5_queue *mlx5_queue(struct vbn_queue *queue)
{
	return container_of(queue, struct mlx5_queue, queue);
}

/* ---- seams between the files ---- */

/* sq.c. The first `limit` events hold what needs one. A queue that fails on the way has the failed
 * ops behind it. */
int vbn__sq_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
int vbn__sq_send_inlining(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
int vbn__sq_send_copy(struct vbn_queue *queue, const void *data, size_t len);
int vbn__sq_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
int vbn__sq_write_inlining(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
void vbn__sq_flush(struct vbn_queue *queue);
int vbn__sq_reap(struct mlx5_queue *mq, struct vbn_event *events, int n);
int vbn__sq_release(struct mlx5_queue *mq, uint16_t end, enum vbn_status status,
	struct vbn_event *events, int n);
uint32_t vbn__sq_outstanding(const struct vbn_queue *queue);

/* rq.c. Either of bufs and events is filled. */
int vbn__rq_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
int vbn__rq_poll(struct mlx5_queue *mq, struct vbn_event *events, int n);
int vbn__rq_take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n);
void vbn__rq_refill(struct mlx5_queue *mq);

/* error.c: what an error CQE says, and the queue with it from now on. */
void vbn__mlx5_failed(struct mlx5_queue *mq, struct cq *cq, const struct mlx5_cqe64 *cqe);

#endif
