/* raw.h - raw Ethernet on mlx5: the send ring of a RAW_PACKET QP, a receive work queue, and the rx
 * group that spreads packets over such queues
 *
 *   raw_queue.c   create, connect, reset, stop, free, modes
 *   raw_tx.c      packets into WQEs, several to one where the device has that; what has completed
 *   raw_rx.c      what has arrived; raw_cqe.h what its CQE says of it
 *   raw_strides.c a striding receive ring; raw_stride_rx.c what has arrived in it
 *   raw_failed.c  why a queue has failed, and its data path from then on
 *   raw_group.c   indirection tables and hash QPs; raw_rule.c flow rules
 *
 * A WQE carries up to MULTI_MOST packets, so the side table has a slot for each packet, and each WQE
 * that asks for a CQE a mark that says how far it completes both rings. The newest WQE of a flush asks
 * for one, so that nothing waits for a later flush.
 */
#ifndef VBN_MLX5_RAW_H
#define VBN_MLX5_RAW_H

#include "drv/frame.h"
#include "drv/mlx5/group.h"
#include "drv/mlx5/rq.h"

enum {
	MULTI_OPCODE = 0x29, /* ENHANCED_MPSW of the PRM, which mlx5dv.h does not name */
	MULTI_HEAD = 2,      /* segments before the packets': control, Ethernet */
	MULTI_MOST = 63 - MULTI_HEAD,
	L2_INLINE = 18, /* bytes that older devices want in the WQE: the MACs, a tag, the type */
	LEAST_FRAME = FRAME_HEADER,
};

/* Behind a WQE that asks for a CQE. */
struct raw_mark {
	uint16_t wqebbs, packets;
};

struct raw_sq {
	/* line 0: written by each burst. WQEBBs: */
	uint16_t head;            /* next to write */
	uint16_t rung;            /* the device knows of all before */
	uint16_t tail;            /* the device has completed all before */
	uint16_t last, rung_last; /* the newest WQE, and the newest that the device knows of */
	/* packets: */
	uint16_t staged;   /* next to stage */
	uint16_t sent;     /* the device knows of all before */
	uint16_t done;     /* the device has completed all before */
	uint16_t released; /* all before have been freed, or returned by an event */
	uint16_t since_signal;
	uint16_t marks_head, marks_tail;
	uint16_t slow_flags; /* those of enum vbn_packet_flag that software sees to */
	uint32_t mask;       /* of WQEBBs, and of marks */
	uint32_t packet_mask;
	uint8_t *wqes;
	uintptr_t *slots;
	struct raw_mark *marks;
	struct vbn_pool *pool;
	/* line 1: read only after creation */
	__be32 lkey cache_aligned;
	uint32_t qpn_shifted;
	uint32_t plain_word;
	uint32_t longest;
	uint32_t cq_mod;
	uint32_t max_gather;
	__be32 *record;
	struct doorbell *doorbell;
	bool l2_inline;
};

struct raw_failure {
	enum vbn_status status;
	bool reported; /* the FAILED event has been given */
	bool silent;   /* no CQE will tell of what is outstanding */
	bool nonsense; /* a CQE says what cannot be: none is believed once the device is out of it */
	bool flushed;  /* all that was sent has come back */
};

/* A striding receive ring, whose WQEs are runs of strides. */
struct strides {
	/* written by each burst */
	uint32_t used; /* strides of the WQE that is next, which have been taken */
	/* read only after creation */
	uint32_t n, log2_n; /* strides of a WQE; 0: the ring has a buf for each packet */
	uint32_t runs;
	uint32_t longest; /* packet */
	uint32_t
		span_of_one; /* bytes by which one that takes a stride may be longer than the least */
	struct vbn_zone *zone;
	struct zone_registration registration;
};
enum { STRIDE_LOG2 = 8 };

struct raw_queue {
	struct vbn_queue queue;
	struct raw_sq sq;
	struct cq send_cq cache_aligned;
	struct cq recv_cq;
	struct rq rq cache_aligned;
	struct strides strides;
	uint64_t title_facts; /* of a session of compressed CQEs */
	uint32_t title_tag;
	bool title_hashed;
	struct ibv_context *context;
	/* control path */
	struct raw_failure failure;
	struct queue_ops ops;
	struct mlx5_group *group;
	struct ibv_qp *qp;
	struct ibv_wq *wq; /* NULL: it transmits only */
	uint32_t cqe_size;
	bool own_uar, multi, offload;
};

static force_inline struct raw_queue *raw_queue(const struct vbn_queue *queue)
{
	return container_of((struct vbn_queue *)(uintptr_t)queue, struct raw_queue, queue);
}

static force_inline bool is_raw(const struct vbn_queue *queue)
{
	return queue->conf.transport == VBN_RAW;
}

/* What the device says of raw Ethernet. */
struct raw_caps {
	uint32_t max_queues;               /* of a group; 0: it has no raw Ethernet */
	uint32_t min_strides, max_strides; /* of a WQE, logarithms; 0: it has no striding */
	bool multi_packet, l2_inline, checksums, strips_vlan, timestamps;
};
void vbn__raw_caps(
	const struct vbn_port_info *info, struct ibv_context *context, struct raw_caps *caps);

/* Adds raw Ethernet to what is said of a port that is not open. */
void vbn__raw_describe(struct vbn_port_info *info, struct ibv_context *context);

/* Adds raw Ethernet to what a port says of itself: on the control thread. */
void vbn__raw_port(struct rdma_port *port, const struct vbn_port_conf *conf);
void vbn__raw_port_drops(const struct vbn_port *port, struct drop_list *list);

/* ---- a queue's life: as drv.h has them ---- */

int vbn__raw_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__raw_fill(struct vbn_queue *queue);
int vbn__raw_connect(struct vbn_queue *queue);
int vbn__raw_fail(struct vbn_queue *queue);
int vbn__raw_reset(struct vbn_queue *queue);
void vbn__raw_stop(struct vbn_queue *queue);
void vbn__raw_free(struct vbn_queue *queue);
void vbn__raw_modes(const struct vbn_queue *queue, struct mode_report *report);
bool vbn__raw_is_quiet(const struct vbn_queue *queue);
void vbn__raw_news(struct vbn_queue *queue, uint32_t news);

/* ---- a striding ring: on the control thread ---- */

int vbn__raw_strides_check(const struct vbn_port *port, const struct vbn_queue_conf *conf,
	const struct raw_caps *caps);
int vbn__raw_strides_create(
	struct raw_queue *raw, const struct vbn_queue_conf *conf, const struct raw_caps *caps);
struct ibv_wq *vbn__raw_strides_wq(struct raw_queue *raw, struct ibv_wq_init_attr *attr);
int vbn__raw_strides_take_over(
	struct raw_queue *raw, const struct mlx5dv_rwq *dv, const struct vbn_queue_conf *conf);
void vbn__raw_strides_modes(const struct raw_queue *raw, struct mode_report *report);
void vbn__raw_strides_destroy(struct raw_queue *raw);

/* ---- data path ---- */

void vbn__raw_tx_ops(struct raw_queue *raw);
void vbn__raw_rx_ops(struct raw_queue *raw);

/* What has completed is given back: n events at the most. */
int vbn__raw_reap(struct raw_queue *raw, struct vbn_event *events, int n);
int vbn__raw_release(
	struct raw_queue *raw, enum vbn_status status, struct vbn_event *events, int n);
/* Packets that have arrived; the ring is not filled again. */
int vbn__raw_take(struct raw_queue *raw, struct vbn_buf **bufs, int n);

int vbn__raw_stride_take(struct raw_queue *raw, struct vbn_buf **bufs, int n);

void vbn__raw_failed(struct raw_queue *raw, const struct mlx5_cqe64 *cqe);

/* What is said of a packet in strides cannot be. */
void vbn__raw_stride_failed(struct raw_queue *raw, uint32_t count, uint32_t at);

/* ---- rx group ---- */

enum raw_class {
	CLASS_OTHER,
	CLASS_IPV4,
	CLASS_IPV6,
	CLASS_UDP4,
	CLASS_TCP4,
	CLASS_UDP6,
	CLASS_TCP6,
	N_CLASSES
};

struct raw_group {
	struct vbn_rx_group group;
	struct ibv_rwq_ind_table *table, *first; /* of all queues, and of the first one */
	struct ibv_qp *qps[N_CLASSES];           /* by what is hashed; NULL: not hashed */
};

static inline struct raw_group *raw_group(const struct vbn_rx_group *group)
{
	return container_of((struct vbn_rx_group *)(uintptr_t)group, struct raw_group, group);
}

int vbn__raw_group_create(struct vbn_rx_group *group);
int vbn__raw_group_build(struct vbn_rx_group *group);
void vbn__raw_group_unbuild(struct vbn_rx_group *group);
void vbn__raw_group_modes(const struct vbn_rx_group *group, struct mode_report *report);

int vbn__raw_rule_check(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule);
int vbn__raw_rule_add(struct vbn_rx_group *group, struct rx_rule *rule);
void vbn__raw_rule_remove(struct vbn_rx_group *group, struct rx_rule *rule);
int vbn__raw_rule_count(const struct vbn_rx_group *group, const struct rx_rule *rule,
	uint64_t *packets, uint64_t *bytes);

#endif
