/* command.h - between command.c and command_queue.c: limits, features, the commands of queues */
#ifndef VHCA_COMMAND_H
#define VHCA_COMMAND_H

#include "front.h"

enum {
	MAX_QP = 1 << 17,
	MAX_WR = 32768,
	MAX_SGE = 30,
	MAX_CQE = (1 << 22) - 1,
	MAX_SRQ_WR = 32767,
	MAX_SRQ_SGE = 31,
	MAX_RD_ATOMIC = 16,
	MAX_INLINE = 1008,
	MAX_OBJECTS = 1 << 24,
	MAX_MESSAGE = 1 << 30,
	MAX_RWQ = 1 << 20, /* receive work queues, and tables of them */
};

struct vhca_features {
	uint32_t device_cap_flags;
	uint32_t atomic_cap;
	uint32_t qp_types; /* bit by enum ibv_qp_type */
	uint32_t qp_create_flags;
	uint32_t max_mcast_grp;
	uint32_t max_mw;
	uint64_t timestamp_mask;
	uint32_t mlx5_flags;   /* enum mlx5_ib_query_dev_resp_flags */
	uint32_t multi_packet; /* enum mlx5_ib_mpw_caps */
	uint32_t compressed_formats;
};

extern const struct vhca_features vhca_features;
/* enum mlx5dv_cqe_comp_res_format */
uint32_t vhca_compressed_formats(const struct vhca_device *device);

/* Registers a new object; ends it again where there is no handle for it. */
int vhca_adopt(struct vhca_request *request, void *object, uint32_t *handle);

int vhca_create_comp_channel(struct vhca_request *request);
int vhca_create_cq(struct vhca_request *request);
int vhca_create_cq_ex(struct vhca_request *request);
int vhca_modify_cq(struct vhca_request *request);
int vhca_resize_cq(struct vhca_request *request);
int vhca_destroy_cq(struct vhca_request *request);
int vhca_create_qp(struct vhca_request *request);
int vhca_create_qp_ex(struct vhca_request *request);
int vhca_modify_qp(struct vhca_request *request);
int vhca_modify_qp_ex(struct vhca_request *request);
int vhca_query_qp(struct vhca_request *request);
int vhca_destroy_qp(struct vhca_request *request);
int vhca_create_srq(struct vhca_request *request);
int vhca_create_xsrq(struct vhca_request *request);
int vhca_modify_srq(struct vhca_request *request);
int vhca_query_srq(struct vhca_request *request);
int vhca_destroy_srq(struct vhca_request *request);
int vhca_create_flow(struct vhca_request *request);
int vhca_destroy_flow(struct vhca_request *request);
int vhca_create_wq(struct vhca_request *request);
int vhca_modify_wq(struct vhca_request *request);
int vhca_destroy_wq(struct vhca_request *request);
int vhca_create_rwq_ind_table(struct vhca_request *request);
int vhca_destroy_rwq_ind_table(struct vhca_request *request);

/* command_raw.c: 0, or EPERM for queues of raw frames that leave the process. */
int vhca_may_raw(const struct vhca_device *device);
/* A QP that has an indirection table in the place of queues. */
int vhca_make_hash_qp(struct vhca_request *request, const struct ib_uverbs_ex_create_qp *cmd,
	struct ib_uverbs_create_qp_resp *resp);

#endif
