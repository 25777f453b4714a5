/* command_raw.c - the commands of receive work queues, indirection tables, and QPs that only receive */
#include "command.h"
#include "raw_queue.h"
#include "trace.h"

#include <linux/capability.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- rights ---- */

static bool has_net_raw(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{.effective = 0}};

	return !syscall(SYS_capget, &header, data) && data[0].effective & 1u << CAP_NET_RAW;
}

/* As the kernel asks; but frames that stay within the process need no right. */
int vhca_may_raw(const struct vhca_device *device)
{
	return !vhca_raw_leaves(device) || has_net_raw() ? 0 : EPERM;
}

/* ---- receive work queues ---- */

static int read_strides(const struct mlx5_ib_create_wq *mlx5, struct vhca_wq_attr *attr)
{
	if (!(mlx5->comp_mask & MLX5_IB_CREATE_WQ_STRIDING_RQ))
		return 0;
	if (mlx5->single_stride_log_num_of_bytes < VHCA_MIN_STRIDE ||
		mlx5->single_stride_log_num_of_bytes > VHCA_MAX_STRIDE ||
		mlx5->single_wqe_log_num_of_strides < VHCA_MIN_STRIDES ||
		mlx5->single_wqe_log_num_of_strides > VHCA_MAX_STRIDES)
		return EINVAL;
	attr->striding = true;
	attr->log2_stride_bytes = (uint8_t)mlx5->single_stride_log_num_of_bytes;
	attr->log2_n_strides = (uint8_t)mlx5->single_wqe_log_num_of_strides;
	attr->two_byte_shift = mlx5->two_byte_shift_en;
	return 0;
}

static int read_mlx5_wq(struct vhca_request *request, struct vhca_wq_attr *attr)
{
	struct mlx5_ib_create_wq mlx5;
	int error = vhca_span_read(&request->uhw_in, &mlx5, sizeof(mlx5));

	if (error)
		return error;
	if (request->uhw_in.size <
		offsetof(struct mlx5_ib_create_wq, single_stride_log_num_of_bytes))
		return EINVAL;
	if (mlx5.comp_mask & ~(uint32_t)MLX5_IB_CREATE_WQ_STRIDING_RQ)
		return EOPNOTSUPP;
	if (mlx5.flags & ~(uint32_t)MLX5_WQ_FLAG_SIGNATURE || mlx5.rq_wqe_shift > 31)
		return EINVAL;
	attr->buf = mlx5.buf_addr;
	attr->db = mlx5.db_addr;
	attr->n_wqe = mlx5.rq_wqe_count;
	attr->log2_stride = mlx5.rq_wqe_shift;
	attr->uidx = mlx5.user_index;
	attr->signature = mlx5.flags & MLX5_WQ_FLAG_SIGNATURE;
	return read_strides(&mlx5, attr);
}

static int check_wq(const struct vhca_request *request, const struct ib_uverbs_ex_create_wq *cmd)
{
	if (cmd->comp_mask || cmd->reserved)
		return EOPNOTSUPP;
	if (cmd->wq_type != IBV_WQT_RQ)
		return EINVAL;
	if (cmd->create_flags & ~(uint32_t)IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING)
		return EOPNOTSUPP;
	if (!cmd->max_wr || cmd->max_wr > MAX_WR || cmd->max_sge > MAX_SRQ_SGE + 1)
		return EINVAL;
	return vhca_may_raw(request->context->device);
}

int vhca_make_wq(struct vhca_request *request, const struct ib_uverbs_ex_create_wq *cmd,
	struct ib_uverbs_ex_create_wq_resp *resp)
{
	struct mlx5_ib_create_wq_resp uhw = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(uhw)),
	};
	struct vhca_wq_attr attr = {
		.pd = vhca_handle_find(request->context, cmd->pd_handle, VHCA_PD),
		.cq = vhca_handle_find(request->context, cmd->cq_handle, VHCA_CQ),
		.user_handle = cmd->user_handle,
		.strip_vlan = cmd->create_flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING,
	};
	struct vhca_wq *wq;
	int error = check_wq(request, cmd) ?: read_mlx5_wq(request, &attr);

	if (!error && (!attr.pd || !attr.cq))
		error = EINVAL;
	error = error
		?: vhca_wq_create(request->context, &attr, &wq)
		?: vhca_adopt(request, wq, &resp->wq_handle);
	if (error)
		return error;
	resp->max_wr = cmd->max_wr;
	resp->max_sge = cmd->max_sge;
	resp->wqn = vhca_wq_number(wq);
	vhca_note(" wq 0x%x wqes %u of %u bytes cq 0x%x", resp->wqn, attr.n_wqe,
		1u << attr.log2_stride, vhca_cq_number(attr.cq));
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_create_wq(struct vhca_request *request)
{
	struct ib_uverbs_ex_create_wq_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct ib_uverbs_ex_create_wq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_make_wq(request, &cmd, &resp);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

static int modify_flags(struct vhca_wq *wq, const struct ib_uverbs_ex_modify_wq *cmd)
{
	if (cmd->flags_mask & ~(uint32_t)IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING)
		return EOPNOTSUPP;
	if (cmd->flags_mask)
		vhca_wq_strip_vlan(wq, cmd->flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING);
	return 0;
}

static enum ibv_qp_state queue_state(uint32_t wq_state)
{
	switch (wq_state) {
	case IBV_WQS_RESET: return IBV_QPS_RESET;
	case IBV_WQS_RDY: return IBV_QPS_RTR;
	default: return IBV_QPS_ERR;
	}
}

int vhca_modify_wq(struct vhca_request *request)
{
	const uint32_t known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
	struct ib_uverbs_ex_modify_wq cmd;
	struct vhca_wq *wq;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (!cmd.attr_mask || cmd.attr_mask & ~known)
		return EINVAL;
	wq = vhca_handle_find(request->context, cmd.wq_handle, VHCA_WQ);
	if (!wq || cmd.wq_state > IBV_WQS_ERR || cmd.curr_wq_state > IBV_WQS_ERR)
		return EINVAL;
	if (cmd.attr_mask & IBV_WQ_ATTR_CURR_STATE &&
		queue_state(cmd.curr_wq_state) != vhca_wq_state(wq))
		return EINVAL;
	if (cmd.attr_mask & IBV_WQ_ATTR_FLAGS)
		error = modify_flags(wq, &cmd);
	if (!error && cmd.attr_mask & IBV_WQ_ATTR_STATE)
		error = vhca_wq_modify(wq, queue_state(cmd.wq_state));
	return error;
}

int vhca_end_wq(struct vhca_request *request, uint32_t handle, uint32_t *events)
{
	struct vhca_wq *wq = vhca_handle_find(request->context, handle, VHCA_WQ);

	if (!wq)
		return EINVAL;
	if (((struct vhca_object *)(void *)wq)->refs)
		return EBUSY;
	*events = vhca_wq_events(wq);
	return vhca_handle_destroy(request->context, handle, VHCA_WQ);
}

int vhca_destroy_wq(struct vhca_request *request)
{
	struct ib_uverbs_ex_destroy_wq_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct ib_uverbs_ex_destroy_wq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (!error && cmd.comp_mask)
		error = EOPNOTSUPP;
	error = error ?: vhca_end_wq(request, cmd.wq_handle, &resp.events_reported);
	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- indirection tables ---- */

/* The handles follow the command. */
static int read_wqs(struct vhca_request *request, uint32_t n, struct vhca_wq **wqs)
{
	for (uint32_t i = 0; i < n; i++) {
		size_t at = sizeof(struct ib_uverbs_ex_create_rwq_ind_table) + i * sizeof(uint32_t);
		uint32_t handle;
		int error;

		if (at + sizeof(handle) > request->in.size)
			return EINVAL;
		error = vhca_copy_in(&handle, request->in.address + at, sizeof(handle));
		if (error)
			return error;
		wqs[i] = vhca_handle_find(request->context, handle, VHCA_WQ);
		if (!wqs[i])
			return EINVAL;
	}
	return 0;
}

static int make_table(
	struct vhca_request *request, uint32_t n, struct vhca_rqt **rqt, uint32_t *handle)
{
	struct vhca_wq **wqs = calloc(n, sizeof(*wqs));
	int error = wqs ? read_wqs(request, n, wqs) : ENOMEM;

	error = error
		?: vhca_rqt_create(request->context, wqs, n, rqt)
		?: vhca_adopt(request, *rqt, handle);
	free(wqs);
	return error;
}

int vhca_create_rwq_ind_table(struct vhca_request *request)
{
	struct ib_uverbs_ex_create_rwq_ind_table_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct mlx5_ib_create_rwq_ind_tbl_resp uhw = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(uhw)),
	};
	struct ib_uverbs_ex_create_rwq_ind_table cmd;
	struct vhca_rqt *rqt;
	int error;

	if (request->in.inlined)
		return EINVAL;
	error = vhca_copy_in(&cmd, request->in.address, sizeof(cmd));
	if (error)
		return error;
	if (cmd.comp_mask)
		return EOPNOTSUPP;
	if (cmd.log_ind_tbl_size > VHCA_MAX_RQT)
		return EINVAL;
	error = make_table(request, 1u << cmd.log_ind_tbl_size, &rqt, &resp.ind_tbl_handle);
	if (error)
		return error;
	resp.ind_tbl_num = vhca_rqt_number(rqt);
	return vhca_span_write(&request->out, &resp, sizeof(resp))
		?: vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_destroy_rwq_ind_table(struct vhca_request *request)
{
	struct ib_uverbs_ex_destroy_rwq_ind_table cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (!error && cmd.comp_mask)
		error = EOPNOTSUPP;
	return error ?: vhca_handle_destroy(request->context, cmd.ind_tbl_handle, VHCA_RQT);
}

/* ---- QPs that a hash leads to queues ---- */

static int read_hash(struct vhca_request *request, struct vhca_qp_attr *attr)
{
	const uint32_t known =
		MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
	struct mlx5_ib_create_qp_rss mlx5;
	int error = vhca_span_read(&request->uhw_in, &mlx5, sizeof(mlx5));

	if (error)
		return error;
	if (request->uhw_in.size < offsetof(struct mlx5_ib_create_qp_rss, flags))
		return EINVAL;
	if (mlx5.comp_mask || mlx5.flags & ~known)
		return EOPNOTSUPP;
	if (mlx5.rx_hash_fields_mask & MLX5_RX_HASH_INNER)
		return EOPNOTSUPP;
	if (mlx5.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ)
		return EOPNOTSUPP;
	if (mlx5.rx_key_len != VHCA_RSS_KEY)
		return EINVAL;
	if (!mlx5.rx_hash_fields_mask && vhca_rqt_size(attr->rqt) > 1) /* a hash of nothing */
		return EINVAL;
	attr->hash_fields = mlx5.rx_hash_fields_mask;
	memcpy(attr->hash_key, mlx5.rx_hash_key, VHCA_RSS_KEY);
	return 0;
}

int vhca_make_hash_qp(struct vhca_request *request, const struct ib_uverbs_ex_create_qp *cmd,
	struct ib_uverbs_create_qp_resp *resp)
{
	struct vhca_qp_attr attr = {
		.type = cmd->qp_type,
		.user_handle = cmd->user_handle,
		.pd = vhca_handle_find(request->context, cmd->pd_handle, VHCA_PD),
		.rqt = vhca_handle_find(request->context, cmd->rwq_ind_tbl_handle, VHCA_RQT),
	};
	struct mlx5_ib_create_qp_resp uhw = {.bfreg_index = 0};
	struct vhca_qp *qp;
	int error = vhca_may_raw(request->context->device);

	if (error)
		return error;
	if (cmd->qp_type != IBV_QPT_RAW_PACKET || cmd->max_send_wr || cmd->create_flags)
		return EOPNOTSUPP;
	if (!attr.pd || !attr.rqt || cmd->is_srq || cmd->max_recv_wr || cmd->max_recv_sge)
		return EINVAL;
	error = read_hash(request, &attr)
		?: vhca_qp_create(request->context, &attr, &qp)
		?: vhca_adopt(request, qp, &resp->qp_handle);
	if (error)
		return error;
	resp->qpn = vhca_qp_number(qp);
	vhca_note(" qp 0x%x hash of 0x%llx", resp->qpn, (unsigned long long)attr.hash_fields);
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}
