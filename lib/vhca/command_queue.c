/* command_queue.c - the commands of CQs, QPs and SRQs */
#include "command.h"
#include "trace.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

/* ---- completion ---- */

int vhca_create_comp_channel(struct vhca_request *request)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	int fd, error = vhca_channel_make(request->context, &fd);

	if (error)
		return error;
	resp.fd = (uint32_t)fd;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* The channel behind the program's descriptor: it does not go before the command has ended. */
static int find_channel(struct vhca_request *request, int fd, struct vhca_channel **channel)
{
	struct vhca_file *file = vhca_file_get(fd);
	int error = 0;

	if (!file)
		return EBADF;
	if (file->kind != VHCA_FILE_CHANNEL)
		error = EBADF;
	else if (!file->channel || file->channel->context != request->context)
		error = EINVAL;
	else
		*channel = file->channel->channel;
	vhca_file_put(file);
	return error;
}

static int check_cq_size(uint32_t cqe, uint32_t cqe_size)
{
	return cqe > MAX_CQE || (cqe_size != 64 && cqe_size != 128) ? EINVAL : 0;
}

static int read_mlx5_cq(struct vhca_request *request, struct vhca_cq_attr *attr)
{
	const uint16_t known =
		MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
	struct mlx5_ib_create_cq cmd;
	int error = vhca_span_read(&request->uhw_in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (request->uhw_in.size < offsetof(struct mlx5_ib_create_cq, flags))
		return EINVAL;
	if (cmd.flags & (uint16_t)~known)
		return EINVAL;
	if (cmd.cqe_comp_en && !is_pow2(cmd.cqe_comp_res_format))
		return EINVAL;
	if (cmd.cqe_comp_en &&
		!(vhca_compressed_formats(request->context->device) & cmd.cqe_comp_res_format))
		return EOPNOTSUPP;
	if (cmd.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD &&
		!(vhca_features.mlx5_flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD))
		return EOPNOTSUPP;
	attr->buf = cmd.buf_addr;
	attr->db = cmd.db_addr;
	attr->cqe_size = cmd.cqe_size;
	attr->compress = cmd.cqe_comp_en;
	attr->compress_format = cmd.cqe_comp_res_format;
	if (cmd.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)
		attr->uar_page = cmd.uar_page_index;
	return 0;
}

int vhca_make_cq(struct vhca_request *request, const struct ib_uverbs_ex_create_cq *cmd,
	struct ib_uverbs_create_cq_resp *resp)
{
	struct vhca_cq_attr attr = {
		.user_handle = cmd->user_handle,
		.ignore_overrun = cmd->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN,
		.timestamp = cmd->flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION,
	};
	struct mlx5_ib_create_cq_resp uhw = {.cqn = 0};
	struct vhca_cq *cq;
	int error;

	if (cmd->comp_vector >= vhca_n_vectors())
		return EINVAL;
	if (cmd->flags &
		~(uint32_t)(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN |
			IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION))
		return EOPNOTSUPP;
	error = read_mlx5_cq(request, &attr) ?: check_cq_size(cmd->cqe, attr.cqe_size);
	if (!error && cmd->comp_channel >= 0)
		error = find_channel(request, cmd->comp_channel, &attr.channel);
	if (error)
		return error;
	attr.n_cqe = (uint32_t)pow2_ceil((uint64_t)cmd->cqe + 1);
	error = vhca_cq_create(request->context, &attr, &cq)
		?: vhca_adopt(request, cq, &resp->cq_handle);
	if (error)
		return error;
	vhca_note(" cq 0x%x entries %u of %u bytes", vhca_cq_number(cq), attr.n_cqe, attr.cqe_size);
	resp->cqe = attr.n_cqe - 1;
	uhw.cqn = vhca_cq_number(cq);
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_create_cq(struct vhca_request *request)
{
	struct ib_uverbs_create_cq_resp resp;
	struct ib_uverbs_create_cq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));
	struct ib_uverbs_ex_create_cq ex = {
		.user_handle = cmd.user_handle,
		.cqe = cmd.cqe,
		.comp_vector = cmd.comp_vector,
		.comp_channel = cmd.comp_channel,
	};

	error = error ?: vhca_make_cq(request, &ex, &resp);
	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_create_cq_ex(struct vhca_request *request)
{
	struct ib_uverbs_ex_create_cq_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct ib_uverbs_ex_create_cq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (!error && (cmd.comp_mask || cmd.reserved))
		error = EINVAL;
	error = error ?: vhca_make_cq(request, &cmd, &resp.base);
	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_resize_cq(struct vhca_request *request)
{
	struct ib_uverbs_resize_cq_resp resp = {.cqe = 0};
	struct mlx5_ib_resize_cq uhw;
	struct ib_uverbs_resize_cq cmd;
	struct vhca_cq *cq;
	uint32_t n;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_span_read(&request->uhw_in, &uhw, sizeof(uhw));

	if (error)
		return error;
	cq = vhca_handle_find(request->context, cmd.cq_handle, VHCA_CQ);
	if (!cq || request->uhw_in.size < offsetof(struct mlx5_ib_resize_cq, reserved0) ||
		!cmd.cqe || check_cq_size(cmd.cqe, uhw.cqe_size))
		return EINVAL;
	n = (uint32_t)pow2_ceil((uint64_t)cmd.cqe + 1);
	error = vhca_cq_resize(cq, uhw.buf_addr, n, uhw.cqe_size);
	if (error)
		return error;
	resp.cqe = n - 1;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_modify_cq(struct vhca_request *request)
{
	struct ib_uverbs_ex_modify_cq cmd;
	struct vhca_cq *cq;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (!cmd.attr_mask || cmd.reserved)
		return EINVAL;
	if (cmd.attr_mask != IBV_CQ_ATTR_MODERATE)
		return EOPNOTSUPP;
	cq = vhca_handle_find(request->context, cmd.cq_handle, VHCA_CQ);
	return cq ? vhca_cq_moderate(cq, cmd.attr.cq_count, cmd.attr.cq_period) : EINVAL;
}

int vhca_end_cq(
	struct vhca_request *request, uint32_t handle, uint32_t *completions, uint32_t *async)
{
	struct vhca_cq *cq = vhca_handle_find(request->context, handle, VHCA_CQ);

	if (!cq)
		return EINVAL;
	if (((struct vhca_object *)(void *)cq)->refs)
		return EBUSY;
	*completions = vhca_cq_events(cq, async);
	return vhca_handle_destroy(request->context, handle, VHCA_CQ);
}

int vhca_destroy_cq(struct vhca_request *request)
{
	struct ib_uverbs_destroy_cq_resp resp;
	struct ib_uverbs_destroy_cq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_end_cq(request, cmd.cq_handle, &resp.comp_events_reported,
			   &resp.async_events_reported);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- queue pairs ---- */

static int read_mlx5_qp(struct vhca_request *request, struct vhca_qp_attr *attr)
{
	struct mlx5_ib_create_qp cmd;
	int error = vhca_span_read(&request->uhw_in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (request->uhw_in.size < offsetof(struct mlx5_ib_create_qp, sq_buf_addr))
		return EINVAL;
	if (!(cmd.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX))
		return EINVAL;
	attr->buf = cmd.buf_addr;
	attr->sq_buf = cmd.sq_buf_addr;
	attr->db = cmd.db_addr;
	attr->sq_wqe_count = cmd.sq_wqe_count;
	attr->rq_wqe_count = cmd.rq_wqe_count;
	attr->rq_wqe_shift = cmd.rq_wqe_shift;
	if (!attr->srq && cmd.rq_wqe_count && cmd.rq_wqe_shift < 16) {
		attr->max_recv_wr = cmd.rq_wqe_count;
		attr->max_recv_sge = (1u << cmd.rq_wqe_shift) / sizeof(struct mlx5_wqe_data_seg);
	}
	attr->flags = cmd.flags;
	attr->uidx = cmd.uidx;
	attr->uar_page = cmd.bfreg_index;
	return 0;
}

static int find_qp_parts(struct vhca_request *request, const struct ib_uverbs_ex_create_qp *cmd,
	struct vhca_qp_attr *attr)
{
	attr->pd = vhca_handle_find(request->context, cmd->pd_handle, VHCA_PD);
	attr->send_cq = vhca_handle_find(request->context, cmd->send_cq_handle, VHCA_CQ);
	attr->recv_cq = vhca_handle_find(request->context, cmd->recv_cq_handle, VHCA_CQ);
	if (cmd->is_srq)
		attr->srq = vhca_handle_find(request->context, cmd->srq_handle, VHCA_SRQ);
	return !attr->pd || !attr->send_cq || !attr->recv_cq || (cmd->is_srq && !attr->srq) ? EINVAL
											    : 0;
}

static int check_qp(const struct ib_uverbs_ex_create_qp *cmd)
{
	if (cmd->qp_type >= 32 || !(vhca_features.qp_types & 1u << cmd->qp_type))
		return EOPNOTSUPP;
	if (cmd->create_flags & ~vhca_features.qp_create_flags || cmd->comp_mask)
		return EOPNOTSUPP;
	if (cmd->create_flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING &&
		cmd->qp_type != IBV_QPT_RAW_PACKET)
		return EOPNOTSUPP;
	if (cmd->max_send_wr > MAX_WR || cmd->max_recv_wr > MAX_WR || cmd->max_send_sge > MAX_SGE ||
		cmd->max_recv_sge > MAX_SRQ_SGE + 1 || cmd->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

int vhca_make_qp(struct vhca_request *request, const struct ib_uverbs_ex_create_qp *cmd,
	struct ib_uverbs_create_qp_resp *resp)
{
	struct vhca_qp_attr attr = {
		.type = cmd->qp_type,
		.signal_all = cmd->sq_sig_all,
		.max_send_wr = cmd->max_send_wr,
		.max_send_sge = cmd->max_send_sge,
		.max_inline = cmd->max_inline_data,
		.user_handle = cmd->user_handle,
		.strip_vlan = cmd->create_flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING,
	};
	struct mlx5_ib_create_qp_resp uhw = {
		.bfreg_index = 1u << 31}; /* the UAR was the program's choice */
	struct vhca_qp *qp;
	int error;

	if (cmd->comp_mask == IB_UVERBS_CREATE_QP_MASK_IND_TABLE)
		return vhca_make_hash_qp(request, cmd, resp);
	error = check_qp(cmd) ?: find_qp_parts(request, cmd, &attr) ?: read_mlx5_qp(request, &attr);
	if (!error && attr.type == IBV_QPT_RAW_PACKET)
		error = vhca_may_raw(request->context->device);
	if (error)
		return error;
	error = vhca_qp_create(request->context, &attr, &qp)
		?: vhca_adopt(request, qp, &resp->qp_handle);
	if (error)
		return error;
	resp->qpn = vhca_qp_number(qp);
	vhca_note(" qp 0x%x type %u sq %u rq %u send_cq 0x%x recv_cq 0x%x uar %u", resp->qpn,
		attr.type, attr.sq_wqe_count, attr.rq_wqe_count, vhca_cq_number(attr.send_cq),
		vhca_cq_number(attr.recv_cq), attr.uar_page);
	resp->max_send_wr = attr.max_send_wr;
	resp->max_recv_wr = cmd->is_srq ? 0 : cmd->max_recv_wr;
	resp->max_send_sge = attr.max_send_sge;
	resp->max_recv_sge = cmd->is_srq ? 0 : cmd->max_recv_sge;
	resp->max_inline_data = attr.max_inline;
	resp->reserved = 0;
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_create_qp(struct vhca_request *request)
{
	struct ib_uverbs_create_qp_resp resp;
	struct ib_uverbs_create_qp cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));
	struct ib_uverbs_ex_create_qp ex = {
		.user_handle = cmd.user_handle,
		.pd_handle = cmd.pd_handle,
		.send_cq_handle = cmd.send_cq_handle,
		.recv_cq_handle = cmd.recv_cq_handle,
		.srq_handle = cmd.srq_handle,
		.max_send_wr = cmd.max_send_wr,
		.max_recv_wr = cmd.max_recv_wr,
		.max_send_sge = cmd.max_send_sge,
		.max_recv_sge = cmd.max_recv_sge,
		.max_inline_data = cmd.max_inline_data,
		.sq_sig_all = cmd.sq_sig_all,
		.qp_type = cmd.qp_type,
		.is_srq = cmd.is_srq,
	};

	error = error ?: vhca_make_qp(request, &ex, &resp);
	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_create_qp_ex(struct vhca_request *request)
{
	struct ib_uverbs_ex_create_qp_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct ib_uverbs_ex_create_qp cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_make_qp(request, &cmd, &resp.base);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

static struct ibv_ah_attr ah_of_dest(const struct ib_uverbs_qp_dest *dest)
{
	struct ibv_ah_attr attr = {
		.grh.flow_label = dest->flow_label,
		.grh.sgid_index = dest->sgid_index,
		.grh.hop_limit = dest->hop_limit,
		.grh.traffic_class = dest->traffic_class,
		.dlid = dest->dlid,
		.sl = dest->sl,
		.src_path_bits = dest->src_path_bits,
		.static_rate = dest->static_rate,
		.is_global = dest->is_global,
		.port_num = dest->port_num,
	};

	memcpy(attr.grh.dgid.raw, dest->dgid, sizeof(dest->dgid));
	return attr;
}

static struct ib_uverbs_qp_dest dest_of_ah(const struct ibv_ah_attr *attr)
{
	struct ib_uverbs_qp_dest dest = {
		.flow_label = attr->grh.flow_label,
		.dlid = attr->dlid,
		.sgid_index = attr->grh.sgid_index,
		.hop_limit = attr->grh.hop_limit,
		.traffic_class = attr->grh.traffic_class,
		.sl = attr->sl,
		.src_path_bits = attr->src_path_bits,
		.static_rate = attr->static_rate,
		.is_global = attr->is_global,
		.port_num = attr->port_num,
	};

	memcpy(dest.dgid, attr->grh.dgid.raw, sizeof(dest.dgid));
	return dest;
}

/* No value of an enum can be told from what the program may send: ranges are checked where they are
 * used. */
static int modify(
	struct vhca_request *request, const struct ib_uverbs_ex_modify_qp *cmd, uint32_t known)
{
	const struct ib_uverbs_modify_qp *base = &cmd->base;
	struct ibv_qp_attr attr = {
		.qp_state = (enum ibv_qp_state)base->qp_state,
		.cur_qp_state = (enum ibv_qp_state)base->cur_qp_state,
		.path_mtu = (enum ibv_mtu)base->path_mtu,
		.path_mig_state = (enum ibv_mig_state)base->path_mig_state,
		.qkey = base->qkey,
		.rq_psn = base->rq_psn,
		.sq_psn = base->sq_psn,
		.dest_qp_num = base->dest_qp_num,
		.qp_access_flags = base->qp_access_flags,
		.ah_attr = ah_of_dest(&base->dest),
		.alt_ah_attr = ah_of_dest(&base->alt_dest),
		.pkey_index = base->pkey_index,
		.alt_pkey_index = base->alt_pkey_index,
		.en_sqd_async_notify = base->en_sqd_async_notify,
		.max_rd_atomic = base->max_rd_atomic,
		.max_dest_rd_atomic = base->max_dest_rd_atomic,
		.min_rnr_timer = base->min_rnr_timer,
		.port_num = base->port_num,
		.timeout = base->timeout,
		.retry_cnt = base->retry_cnt,
		.rnr_retry = base->rnr_retry,
		.alt_port_num = base->alt_port_num,
		.alt_timeout = base->alt_timeout,
		.rate_limit = cmd->rate_limit,
	};
	struct vhca_qp *qp = vhca_handle_find(request->context, base->qp_handle, VHCA_QP);

	if (!qp)
		return EINVAL;
	if (base->attr_mask & ~known)
		return EOPNOTSUPP;
	if (request->context->device->fatal && base->qp_state != IBV_QPS_RESET &&
		base->qp_state != IBV_QPS_ERR)
		return EIO;
	vhca_note(" qp 0x%x mask 0x%x", vhca_qp_number(qp), base->attr_mask);
	if (base->attr_mask & IBV_QP_STATE)
		vhca_note(" to state %u", base->qp_state);
	if (base->attr_mask & IBV_QP_DEST_QPN)
		vhca_note(" peer 0x%x", base->dest_qp_num);
	return vhca_qp_modify(qp, &attr, base->attr_mask, base->dest.sgid_index);
}

enum { MODIFY_STANDARD = (IBV_QP_DEST_QPN << 1) - 1 };

int vhca_modify_qp(struct vhca_request *request)
{
	struct ib_uverbs_ex_modify_qp cmd = {.rate_limit = 0};
	int error = vhca_span_read(&request->in, &cmd.base, sizeof(cmd.base));

	return error ?: modify(request, &cmd, MODIFY_STANDARD);
}

int vhca_modify_qp_ex(struct vhca_request *request)
{
	struct ib_uverbs_ex_modify_qp_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
	};
	struct mlx5_ib_modify_qp_resp uhw = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(uhw)),
	};
	struct ib_uverbs_ex_modify_qp cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: modify(request, &cmd, MODIFY_STANDARD);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp)) ?:
			vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_query_qp(struct vhca_request *request)
{
	struct ib_uverbs_query_qp_resp resp;
	struct ibv_qp_init_attr init = {.sq_sig_all = 0};
	struct ibv_qp_attr attr = {.rate_limit = 0};
	struct ib_uverbs_query_qp cmd;
	struct vhca_qp *qp;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	qp = vhca_handle_find(request->context, cmd.qp_handle, VHCA_QP);
	if (!qp)
		return EINVAL;
	vhca_qp_query(qp, &attr, &init);
	resp = (struct ib_uverbs_query_qp_resp){
		.dest = dest_of_ah(&attr.ah_attr),
		.alt_dest = dest_of_ah(&attr.alt_ah_attr),
		.max_send_wr = attr.cap.max_send_wr,
		.max_recv_wr = attr.cap.max_recv_wr,
		.max_send_sge = attr.cap.max_send_sge,
		.max_recv_sge = attr.cap.max_recv_sge,
		.max_inline_data = attr.cap.max_inline_data,
		.qkey = attr.qkey,
		.rq_psn = attr.rq_psn,
		.sq_psn = attr.sq_psn,
		.dest_qp_num = attr.dest_qp_num,
		.qp_access_flags = (uint32_t)attr.qp_access_flags,
		.pkey_index = attr.pkey_index,
		.alt_pkey_index = attr.alt_pkey_index,
		.qp_state = (uint8_t)attr.qp_state,
		.cur_qp_state = (uint8_t)attr.cur_qp_state,
		.path_mtu = (uint8_t)attr.path_mtu,
		.path_mig_state = (uint8_t)attr.path_mig_state,
		.sq_draining = attr.sq_draining,
		.max_rd_atomic = attr.max_rd_atomic,
		.max_dest_rd_atomic = attr.max_dest_rd_atomic,
		.min_rnr_timer = attr.min_rnr_timer,
		.port_num = attr.port_num,
		.timeout = attr.timeout,
		.retry_cnt = attr.retry_cnt,
		.rnr_retry = attr.rnr_retry,
		.alt_port_num = attr.alt_port_num,
		.alt_timeout = attr.alt_timeout,
		.sq_sig_all = (uint8_t)init.sq_sig_all,
	};
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_end_qp(struct vhca_request *request, uint32_t handle, uint32_t *events)
{
	struct vhca_qp *qp = vhca_handle_find(request->context, handle, VHCA_QP);

	if (!qp)
		return EINVAL;
	if (((struct vhca_object *)(void *)qp)->refs)
		return EBUSY;
	*events = vhca_qp_events(qp);
	return vhca_handle_destroy(request->context, handle, VHCA_QP);
}

int vhca_destroy_qp(struct vhca_request *request)
{
	struct ib_uverbs_destroy_qp_resp resp;
	struct ib_uverbs_destroy_qp cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_end_qp(request, cmd.qp_handle, &resp.events_reported);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- shared receive queues ---- */

int vhca_make_srq(struct vhca_request *request, const struct ib_uverbs_create_xsrq *cmd,
	struct ib_uverbs_create_srq_resp *resp)
{
	struct vhca_srq_attr attr = {
		.max_wr = cmd->max_wr,
		.max_sge = cmd->max_sge,
		.limit = cmd->srq_limit,
		.user_handle = cmd->user_handle,
	};
	struct mlx5_ib_create_srq_resp uhw = {.srqn = 0};
	struct mlx5_ib_create_srq mlx5;
	struct vhca_srq *srq;
	int error;

	if (cmd->srq_type != IB_UVERBS_SRQT_BASIC)
		return EOPNOTSUPP;
	error = vhca_span_read(&request->uhw_in, &mlx5, sizeof(mlx5));
	if (error)
		return error;
	attr.pd = vhca_handle_find(request->context, cmd->pd_handle, VHCA_PD);
	if (!attr.pd || request->uhw_in.size < offsetof(struct mlx5_ib_create_srq, reserved0))
		return EINVAL;
	if (cmd->max_wr > MAX_SRQ_WR || cmd->max_sge > MAX_SRQ_SGE + 1)
		return EINVAL;
	attr.buf = mlx5.buf_addr;
	attr.db = mlx5.db_addr;
	attr.flags = mlx5.flags;
	attr.uidx = mlx5.uidx;
	error = vhca_srq_create(request->context, &attr, &srq)
		?: vhca_adopt(request, srq, &resp->srq_handle);
	if (error)
		return error;
	resp->max_wr = (uint32_t)pow2_ceil((uint64_t)cmd->max_wr + 1) - 1;
	resp->max_sge = cmd->max_sge;
	resp->srqn = uhw.srqn = vhca_srq_number(srq);
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

int vhca_create_srq(struct vhca_request *request)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ib_uverbs_create_srq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));
	struct ib_uverbs_create_xsrq ex = {
		.user_handle = cmd.user_handle,
		.srq_type = IB_UVERBS_SRQT_BASIC,
		.pd_handle = cmd.pd_handle,
		.max_wr = cmd.max_wr,
		.max_sge = cmd.max_sge,
		.srq_limit = cmd.srq_limit,
	};

	error = error ?: vhca_make_srq(request, &ex, &resp);
	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_create_xsrq(struct vhca_request *request)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ib_uverbs_create_xsrq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_make_srq(request, &cmd, &resp);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_modify_srq(struct vhca_request *request)
{
	struct ib_uverbs_modify_srq cmd;
	struct vhca_srq *srq;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	srq = vhca_handle_find(request->context, cmd.srq_handle, VHCA_SRQ);
	if (!srq ||
		cmd.attr_mask & ~(uint32_t)IBV_SRQ_LIMIT) /* as mlx5: its size cannot be changed */
		return EINVAL;
	return cmd.attr_mask ? vhca_srq_modify(srq, cmd.srq_limit) : 0;
}

int vhca_query_srq(struct vhca_request *request)
{
	struct ib_uverbs_query_srq_resp resp = {.max_wr = 0};
	struct ib_uverbs_query_srq cmd;
	struct vhca_srq *srq;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	srq = vhca_handle_find(request->context, cmd.srq_handle, VHCA_SRQ);
	if (!srq)
		return EINVAL;
	vhca_srq_query(srq, &resp.max_wr, &resp.max_sge, &resp.srq_limit);
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_end_srq(struct vhca_request *request, uint32_t handle, uint32_t *events)
{
	struct vhca_srq *srq = vhca_handle_find(request->context, handle, VHCA_SRQ);

	if (!srq)
		return EINVAL;
	if (((struct vhca_object *)(void *)srq)->refs)
		return EBUSY;
	*events = vhca_srq_events(srq);
	return vhca_handle_destroy(request->context, handle, VHCA_SRQ);
}

int vhca_destroy_srq(struct vhca_request *request)
{
	struct ib_uverbs_destroy_srq_resp resp;
	struct ib_uverbs_destroy_srq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_end_srq(request, cmd.srq_handle, &resp.events_reported);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}
