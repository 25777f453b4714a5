/* group.h - what a worker's queues of one port share: CQs with a table from QPN to queue, SRQs, a
 * doorbell register
 *
 * A CQ holds at least the sum of the rings that complete into it: rings reserve entries, and where
 * no CQ has that many left the next one is made, twice as large, so that thousands of queues have
 * few. One poll takes what is in them: the cost is by the completion.
 */
#ifndef VBN_MLX5_GROUP_H
#define VBN_MLX5_GROUP_H

#include "drv/mlx5/mlx5.h"
#include "drv/qpn_table.h"

struct shared_cq {
	struct cq cq;
	struct shared_cq *next;
	uint32_t reserved;
	bool lost; /* it has failed: goes with the last ring that completes into it */
};

struct mlx5_srq {
	struct vbn_srq srq;
	struct rq rq;
	struct ibv_srq *ibv;
	struct mlx5_group *group;
	struct shared_cq *cq;
	struct mlx5_srq *next;
	bool below; /* the limit's event has been given */
};

struct mlx5_group {
	struct queue_group group;
	struct shared_cq *send_cqs, *recv_cqs;
	struct mlx5_srq *srqs;
	struct qpn_table by_qpn;
	struct mlx5_queue *backlog, *backlog_last; /* those with more to give than there was room */
	struct mlx5_queue *idle;                   /* those with an unsignalled tail */
	struct mlx5_queue *short_rings;            /* those with receives to post */
	uint32_t idle_polls;
	/* What some of the CQs are, or some queue wants: which form of the poll it is. */
	bool compressed, prefetch;
	/* control path */
	struct ibv_td *td; /* NULL: no register of its own */
	struct ibv_pd *pd;
	struct doorbell *doorbells;
};

static force_inline struct mlx5_queue *group_find(const struct mlx5_group *group, uint32_t qpn)
{
	struct vbn_queue *queue = qpn_find(&group->by_qpn, qpn);

	return likely(queue) ? mlx5_queue(queue) : NULL;
}

/* Events of all queues that share CQs: the form of it that the group needs. */
void vbn__group_choose_poll(struct mlx5_group *group);

/* group_sends.c: completions of all CQs for sends, where none of them is compressed, or any; and
 * tails that have seen nothing for so many polls are asked for. */
int vbn__group_sends(struct mlx5_group *group, struct vbn_event *events, int n);
int vbn__group_sends_any(struct mlx5_group *group, struct vbn_event *events, int n);
void vbn__group_complete_idle(struct mlx5_group *group);

/* A user less: on the worker's thread, which waits for the control thread where it was the last. */
void vbn__group_leave(struct mlx5_group *group);

/* The rest is on the control thread. The worker waits, but for a queue of an SRQ, which is a user
 * itself, so that the group neither comes nor goes; put destroys what nobody uses. */
struct mlx5_group *vbn__group_get(struct rdma_port *port, struct queue_list *list);
void vbn__group_put(struct mlx5_group *group);

/* The register behind a queue pair's doorbells. NULL: no memory. */
struct doorbell *vbn__group_doorbell(struct mlx5_group *group, uint64_t *reg, uint32_t size);

/* The parent domain whose queue pairs have a register of the worker's own, or NULL. */
struct ibv_pd *vbn__group_pd(struct mlx5_group *group);

/* Entries for a ring in one of the group's send_cqs or recv_cqs; NULL with errno and a sentence. */
struct shared_cq *vbn__group_reserve(struct mlx5_group *group, struct shared_cq **cqs, uint32_t n,
	uint32_t *cqe_size, bool compressed);
void vbn__group_release(struct mlx5_group *group, struct shared_cq *shared, uint32_t n);
/* The same on the worker's thread, which waits where the CQ goes, too. */
void vbn__group_give_back(struct mlx5_group *group, struct shared_cq *shared, uint32_t n);

/* On the worker's thread, or while it waits. A queue becomes known; is in no list any more, before its
 * queue pair goes; and is forgotten once that is gone: no CQE names it. */
int vbn__group_add(struct mlx5_group *group, struct mlx5_queue *mq);
void vbn__group_part(struct mlx5_group *group, struct mlx5_queue *mq);
void vbn__group_forget(struct mlx5_group *group, struct mlx5_queue *mq);

/* rings.c: a CQ of at least n entries, for sends or for receives, into a zeroed cq; *cqe_size is 0 for
 * libmlx5's choice, and comes back. Destroy accepts what create has left half-made. */
int vbn__cq_create(
	struct rdma_port *port, struct cq *cq, uint32_t n, uint32_t *cqe_size, bool compressed);
int vbn__recv_cq_create(
	struct rdma_port *port, struct cq *cq, uint32_t n, uint32_t *cqe_size, bool compressed);
void vbn__cq_destroy(struct cq *cq);
int vbn__qp_create(
	struct rdma_port *port, struct mlx5_queue *mq, const struct vbn_queue_conf *conf);
uint32_t vbn__sq_planned(const struct vbn_queue_conf *conf);
void vbn__rq_offsets(struct rq *rq, const struct vbn_pool *pool, bool datagrams);
/* Length and key of every receive WQE, which never change. */
uint32_t vbn__rq_byte_count(const struct rq *rq);
/* The WQEs of a ring whose pool and offsets are set. */
void vbn__rq_lay_out(struct rq *rq, void *wqes, uint32_t n, uint32_t stride, uint32_t key);

#endif
