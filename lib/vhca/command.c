/* command.c - the commands inside INVOKE_WRITE: what each asks of the device, and the device's
 * capabilities
 *
 * A command is a row of a table with the least size of its structures; shorter ones are ENOSPC, as
 * in the kernel. The functions read through vhca_span_read() and write through vhca_span_write(),
 * which know what the program gave.
 */
#include "front.h"

#include <limits.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <unistd.h>

/* ---- what the emulation offers: a feature that the device side gains is turned on here ---- */

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
};

static const struct {
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
} features = {
	.device_cap_flags = IB_UVERBS_DEVICE_CHANGE_PHY_PORT | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
		IB_UVERBS_DEVICE_SYS_IMAGE_GUID | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN,
	.atomic_cap = IBV_ATOMIC_NONE,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD,
	.timestamp_mask = UINT64_MAX >> 1,
};

/* ---- context ---- */

uint32_t vhca_n_vectors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return (uint32_t)min(max(n, 1L), 63L);
}

static void fill_context(
	const struct vhca_device *device, size_t size, struct mlx5_ib_alloc_ucontext_resp *resp)
{
	*resp = (struct mlx5_ib_alloc_ucontext_resp){
		.qp_tab_size = MAX_QP,
		.bf_reg_size = 512,
		.tot_bfregs = 0, /* UARs come from the UAR object alone */
		.cache_line_size = CACHE_LINE,
		.max_sq_desc_sz = 1024,
		.max_rq_desc_sz = 512,
		.max_send_wqebb = MAX_WR,
		.max_recv_wr = MAX_WR,
		.max_srq_recv_wr = MAX_SRQ_WR,
		.num_ports = 1,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
		.response_length = (uint32_t)min(size, sizeof(*resp)),
		.cqe_version = 1,
		.cmds_supp_uhw =
			MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline =
			device->connectx4lx ? MLX5_USER_INLINE_MODE_L2 : MLX5_USER_INLINE_MODE_NONE,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
	};
}

static int check_context_request(const struct vhca_span *span)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req;
	int error;

	if (span->size < sizeof(struct mlx5_ib_alloc_ucontext_req))
		return EINVAL;
	error = vhca_span_read(span, &req, sizeof(req));
	if (error)
		return error;
	if (req.flags & MLX5_IB_ALLOC_UCTX_DEVX) /* DEVX needs a right that nobody has here; libmlx5
						    goes on without */
		return EPERM;
	if (req.flags || req.comp_mask || req.reserved0 || req.reserved1 || req.reserved2)
		return EOPNOTSUPP;
	if (!req.total_num_bfregs || req.num_low_latency_bfregs >= req.total_num_bfregs)
		return EINVAL;
	if (!(req.lib_caps & MLX5_LIB_CAP_DYN_UAR) || !req.max_cqe_version)
		return EOPNOTSUPP;
	return 0;
}

int vhca_answer_context(struct vhca_request *request)
{
	struct mlx5_ib_alloc_ucontext_resp resp;
	int error = check_context_request(&request->uhw_in);

	if (error)
		return error;
	fill_context(request->context->device, request->uhw_out.size, &resp);
	return vhca_span_write(&request->uhw_out, &resp, sizeof(resp));
}

int vhca_answer_context_again(struct vhca_request *request, const struct vhca_span *out)
{
	struct mlx5_ib_alloc_ucontext_resp resp;

	fill_context(request->context->device, out->size, &resp);
	return vhca_span_write(out, &resp, sizeof(resp));
}

static int get_context(struct vhca_request *request)
{
	struct ib_uverbs_get_context_resp resp = {.num_comp_vectors = vhca_n_vectors()};
	int fd, error;

	if (request->context->handles->opened)
		return EINVAL;
	error = vhca_answer_context(request);
	if (error)
		return error;
	error = vhca_async_make(request->context, &fd);
	if (error)
		return error;
	request->context->handles->opened = true;
	resp.async_fd = (uint32_t)fd;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- device and port ---- */

static uint64_t firmware_version(const struct vhca_device *device)
{
	return device->connectx4lx ? 14ull << 32 | 32 << 16 | 1010 : 16ull << 32 | 35 << 16 | 2000;
}

static void fill_device(const struct vhca_device *device, struct ib_uverbs_query_device_resp *resp)
{
	*resp = (struct ib_uverbs_query_device_resp){
		.fw_ver = firmware_version(device),
		.node_guid = be64(device->node_guid),
		.sys_image_guid = be64(device->node_guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = ~(uint64_t)(VHCA_PAGE - 1),
		.vendor_id = 0x02c9,
		.vendor_part_id = device->connectx4lx ? 0x1015 : 0x1017,
		.max_qp = MAX_QP,
		.max_qp_wr = MAX_WR,
		.device_cap_flags = features.device_cap_flags,
		.max_sge = MAX_SGE,
		.max_sge_rd = MAX_SGE,
		.max_cq = MAX_OBJECTS,
		.max_cqe = MAX_CQE,
		.max_mr = MAX_OBJECTS,
		.max_pd = MAX_OBJECTS,
		.max_qp_rd_atom = MAX_RD_ATOMIC,
		.max_res_rd_atom = MAX_RD_ATOMIC * MAX_QP,
		.max_qp_init_rd_atom = MAX_RD_ATOMIC,
		.atomic_cap = features.atomic_cap,
		.max_mw = features.max_mw,
		.max_mcast_grp = features.max_mcast_grp,
		.max_ah = INT_MAX,
		.max_srq = 1 << 23,
		.max_srq_wr = MAX_SRQ_WR,
		.max_srq_sge = MAX_SRQ_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
}

static int query_device(struct vhca_request *request)
{
	struct ib_uverbs_query_device_resp resp;

	fill_device(request->context->device, &resp);
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* libmlx5's part of QUERY_DEVICE_EX: what is zero is not offered. */
static int answer_mlx5_device(struct vhca_request *request)
{
	struct mlx5_ib_query_device_resp resp = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(resp)),
		.mlx5_ib_support_multi_pkt_send_wqes = features.multi_packet,
		.flags = features.mlx5_flags,
		.cqe_comp_caps.max_num = features.compressed_formats ? 128 : 0,
		.cqe_comp_caps.supported_format = features.compressed_formats,
	};

	return vhca_span_write(&request->uhw_out, &resp, sizeof(resp));
}

static int query_device_ex(struct vhca_request *request)
{
	struct ib_uverbs_ex_query_device_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
		.timestamp_mask = features.timestamp_mask,
		.hca_core_clock = VHCA_CLOCK_KHZ,
		.device_cap_flags_ex = features.device_cap_flags,
	};
	struct ib_uverbs_ex_query_device cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (cmd.comp_mask || cmd.reserved)
		return EINVAL;
	fill_device(request->context->device, &resp.base);
	return vhca_span_write(&request->out, &resp, sizeof(resp)) ?: answer_mlx5_device(request);
}

void vhca_answer_port(const struct vhca_device *device, struct ib_uverbs_query_port_resp *resp)
{
	*resp = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
		.max_msg_sz = MAX_MESSAGE,
		.gid_tbl_len = VHCA_N_GIDS,
		.pkey_tbl_len = 1,
		.state = device->port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = (uint8_t)device->mtu,
		.active_width = device->connectx4lx ? 1 : 2, /* 1X or 4X of */
		.active_speed = 32,                          /* EDR, 25 Gbit/s */
		.phys_state = device->port_up ? 5 : 3,       /* link up, or disabled */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IB_UVERBS_QPF_GRH_REQUIRED,
	};
}

static int query_port(struct vhca_request *request)
{
	struct ib_uverbs_query_port_resp resp;
	struct ib_uverbs_query_port cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	if (cmd.port_num != 1)
		return EINVAL;
	vhca_answer_port(request->context->device, &resp);
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- protection domains and memory ---- */

/* Registers a new object; ends it again where there is no handle for it. */
static int adopt(struct vhca_request *request, void *object, uint32_t *handle)
{
	int error = vhca_handle_add(request->context, object, handle);

	if (error)
		vhca_object_destroy(object);
	return error;
}

static int alloc_pd(struct vhca_request *request)
{
	struct mlx5_ib_alloc_pd_resp uhw;
	struct ib_uverbs_alloc_pd_resp resp;
	struct vhca_pd *pd;
	int error = vhca_pd_create(request->context, &pd) ?: adopt(request, pd, &resp.pd_handle);

	if (error)
		return error;
	uhw.pdn = pd->pdn;
	return vhca_span_write(&request->out, &resp, sizeof(resp))
		?: vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

/* Commands that are a handle and nothing else. */
static int destroy_plain(struct vhca_request *request, enum vhca_kind kind)
{
	uint32_t handle;
	int error = vhca_span_read(&request->in, &handle, sizeof(handle));

	return error ?: vhca_handle_destroy(request->context, handle, kind);
}

static int dealloc_pd(struct vhca_request *request)
{
	return destroy_plain(request, VHCA_PD);
}

static int reg_mr(struct vhca_request *request)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ib_uverbs_reg_mr cmd;
	struct vhca_pd *pd;
	struct vhca_mr *mr;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	pd = vhca_handle_find(request->context, cmd.pd_handle, VHCA_PD);
	if (!pd || (cmd.start ^ cmd.hca_va) & (VHCA_PAGE - 1))
		return EINVAL;
	error = vhca_mr_create(pd, cmd.start, cmd.length, cmd.hca_va, cmd.access_flags, &mr)
		?: adopt(request, mr, &resp.mr_handle);
	if (error)
		return error;
	resp.lkey = resp.rkey = mr->key;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

static int rereg_mr(struct vhca_request *request)
{
	const uint32_t known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
		IBV_REREG_MR_CHANGE_ACCESS;
	struct ib_uverbs_rereg_mr_resp resp;
	struct ib_uverbs_rereg_mr cmd;
	struct vhca_pd *pd = NULL;
	struct vhca_mr *mr;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	mr = vhca_handle_find(request->context, cmd.mr_handle, VHCA_MR);
	if (!mr || !cmd.flags)
		return EINVAL;
	if (cmd.flags & ~known)
		return EOPNOTSUPP;
	if (cmd.flags & IBV_REREG_MR_CHANGE_TRANSLATION &&
		(cmd.start ^ cmd.hca_va) & (VHCA_PAGE - 1))
		return EINVAL;
	if (cmd.flags & IBV_REREG_MR_CHANGE_PD) {
		pd = vhca_handle_find(request->context, cmd.pd_handle, VHCA_PD);
		if (!pd)
			return EINVAL;
	}
	error = vhca_mr_rereg(
		mr, cmd.flags, pd, cmd.start, cmd.length, cmd.hca_va, cmd.access_flags);
	if (error)
		return error;
	resp.lkey = resp.rkey = mr->key;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

static int dereg_mr(struct vhca_request *request)
{
	return destroy_plain(request, VHCA_MR);
}

/* ---- completion ---- */

static int create_comp_channel(struct vhca_request *request)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	int fd, error = vhca_channel_make(request->context, &fd);

	if (error)
		return error;
	resp.fd = (uint32_t)fd;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* The channel behind the program's descriptor, which the request holds until the lock is released.
 */
static int find_channel(struct vhca_request *request, int fd, struct vhca_channel **channel)
{
	struct vhca_file *file = vhca_file_get(fd);

	request->held = file;
	if (!file || file->kind != VHCA_FILE_CHANNEL)
		return EBADF;
	if (!file->channel || file->channel->context != request->context)
		return EINVAL;
	*channel = file->channel->channel;
	return 0;
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
	if (cmd.cqe_comp_en && !(features.compressed_formats & cmd.cqe_comp_res_format))
		return EOPNOTSUPP;
	if (cmd.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD &&
		!(features.mlx5_flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD))
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
		?: adopt(request, cq, &resp->cq_handle);
	if (error)
		return error;
	resp->cqe = attr.n_cqe - 1;
	uhw.cqn = vhca_cq_number(cq);
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

static int create_cq(struct vhca_request *request)
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

static int create_cq_ex(struct vhca_request *request)
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

static int resize_cq(struct vhca_request *request)
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

static int destroy_cq(struct vhca_request *request)
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
	if (cmd->qp_type >= 32 || !(features.qp_types & 1u << cmd->qp_type))
		return EOPNOTSUPP;
	if (cmd->create_flags & ~features.qp_create_flags || cmd->comp_mask)
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
		.max_recv_wr = cmd->is_srq ? 0 : cmd->max_recv_wr,
		.max_send_sge = cmd->max_send_sge,
		.max_recv_sge = cmd->is_srq ? 0 : cmd->max_recv_sge,
		.max_inline = cmd->max_inline_data,
		.user_handle = cmd->user_handle,
	};
	struct mlx5_ib_create_qp_resp uhw = {
		.bfreg_index = 1u << 31}; /* the UAR was the program's choice */
	struct vhca_qp *qp;
	int error = check_qp(cmd) ?: find_qp_parts(request, cmd, &attr) ?: read_mlx5_qp(request, &attr);

	if (error)
		return error;
	error = vhca_qp_create(request->context, &attr, &qp)
		?: adopt(request, qp, &resp->qp_handle);
	if (error)
		return error;
	resp->qpn = vhca_qp_number(qp);
	resp->max_send_wr = attr.max_send_wr;
	resp->max_recv_wr = attr.max_recv_wr;
	resp->max_send_sge = attr.max_send_sge;
	resp->max_recv_sge = attr.max_recv_sge;
	resp->max_inline_data = attr.max_inline;
	resp->reserved = 0;
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

static int create_qp(struct vhca_request *request)
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

static int create_qp_ex(struct vhca_request *request)
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
	return vhca_qp_modify(qp, &attr, base->attr_mask, base->dest.sgid_index);
}

enum { MODIFY_STANDARD = (IBV_QP_DEST_QPN << 1) - 1 };

static int modify_qp(struct vhca_request *request)
{
	struct ib_uverbs_ex_modify_qp cmd = {.rate_limit = 0};
	int error = vhca_span_read(&request->in, &cmd.base, sizeof(cmd.base));

	return error ?: modify(request, &cmd, MODIFY_STANDARD);
}

static int modify_qp_ex(struct vhca_request *request)
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

static int query_qp(struct vhca_request *request)
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

static int destroy_qp(struct vhca_request *request)
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
		?: adopt(request, srq, &resp->srq_handle);
	if (error)
		return error;
	resp->max_wr = (uint32_t)pow2_ceil((uint64_t)cmd->max_wr + 1) - 1;
	resp->max_sge = cmd->max_sge;
	resp->srqn = uhw.srqn = vhca_srq_number(srq);
	return vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

static int create_srq(struct vhca_request *request)
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

static int create_xsrq(struct vhca_request *request)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ib_uverbs_create_xsrq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_make_srq(request, &cmd, &resp);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

static int modify_srq(struct vhca_request *request)
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

static int query_srq(struct vhca_request *request)
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

static int destroy_srq(struct vhca_request *request)
{
	struct ib_uverbs_destroy_srq_resp resp;
	struct ib_uverbs_destroy_srq cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd))
		?: vhca_end_srq(request, cmd.srq_handle, &resp.events_reported);

	return error ?: vhca_span_write(&request->out, &resp, sizeof(resp));
}

/* ---- address handles ---- */

/* What neighbour discovery would say: the MAC inside a link-local GID, else the one that the
 * emulation makes of an IPv4 address. */
static void mac_of_gid(const uint8_t gid[16], uint8_t mac[6])
{
	bool link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;

	if (link_local) {
		mac[0] = gid[8] ^ 2;
		mac[1] = gid[9];
		mac[2] = gid[10];
		memcpy(mac + 3, gid + 13, 3);
		return;
	}
	mac[0] = 2;
	mac[1] = 0;
	memcpy(mac + 2, gid + 12, 4);
}

static int create_ah(struct vhca_request *request)
{
	struct mlx5_ib_create_ah_resp uhw = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(uhw)),
	};
	struct ib_uverbs_create_ah_resp resp;
	struct ib_uverbs_create_ah cmd;
	struct ibv_ah_attr attr;
	struct vhca_pd *pd;
	struct vhca_ah *ah;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	pd = vhca_handle_find(request->context, cmd.pd_handle, VHCA_PD);
	if (!pd)
		return EINVAL;
	attr = (struct ibv_ah_attr){
		.grh.flow_label = cmd.attr.grh.flow_label,
		.grh.sgid_index = cmd.attr.grh.sgid_index,
		.grh.hop_limit = cmd.attr.grh.hop_limit,
		.grh.traffic_class = cmd.attr.grh.traffic_class,
		.dlid = cmd.attr.dlid,
		.sl = cmd.attr.sl,
		.src_path_bits = cmd.attr.src_path_bits,
		.static_rate = cmd.attr.static_rate,
		.is_global = cmd.attr.is_global,
		.port_num = cmd.attr.port_num,
	};
	memcpy(attr.grh.dgid.raw, cmd.attr.grh.dgid, sizeof(cmd.attr.grh.dgid));
	error = vhca_ah_create(pd, &attr, &ah) ?: adopt(request, ah, &resp.ah_handle);
	if (error)
		return error;
	mac_of_gid(attr.grh.dgid.raw, uhw.dmac);
	return vhca_span_write(&request->out, &resp, sizeof(resp))
		?: vhca_span_write(&request->uhw_out, &uhw, sizeof(uhw));
}

static int destroy_ah(struct vhca_request *request)
{
	return destroy_plain(request, VHCA_AH);
}

/* ---- dispatch ---- */

struct command {
	int (*run)(struct vhca_request *request);
	size_t in, out; /* at least */
};

#define ROW(run_, in_, out_)                                          \
	{                                                             \
		.run = (run_), .in = sizeof(in_), .out = sizeof(out_) \
	}
#define ROW_IN(run_, in_)                        \
	{                                        \
		.run = (run_), .in = sizeof(in_) \
	}
#define UP_TO(type_, member_) (offsetof(type_, member_) + sizeof(((type_ *)NULL)->member_))

static const struct command commands[] = {
	[IB_USER_VERBS_CMD_GET_CONTEXT] =
		ROW(get_context, struct ib_uverbs_get_context, struct ib_uverbs_get_context_resp),
	[IB_USER_VERBS_CMD_QUERY_DEVICE] = ROW(
		query_device, struct ib_uverbs_query_device, struct ib_uverbs_query_device_resp),
	[IB_USER_VERBS_CMD_QUERY_PORT] =
		ROW(query_port, struct ib_uverbs_query_port, struct ib_uverbs_query_port_resp),
	[IB_USER_VERBS_CMD_ALLOC_PD] =
		ROW(alloc_pd, struct ib_uverbs_alloc_pd, struct ib_uverbs_alloc_pd_resp),
	[IB_USER_VERBS_CMD_DEALLOC_PD] = ROW_IN(dealloc_pd, struct ib_uverbs_dealloc_pd),
	[IB_USER_VERBS_CMD_CREATE_AH] =
		ROW(create_ah, struct ib_uverbs_create_ah, struct ib_uverbs_create_ah_resp),
	[IB_USER_VERBS_CMD_DESTROY_AH] = ROW_IN(destroy_ah, struct ib_uverbs_destroy_ah),
	[IB_USER_VERBS_CMD_REG_MR] =
		ROW(reg_mr, struct ib_uverbs_reg_mr, struct ib_uverbs_reg_mr_resp),
	[IB_USER_VERBS_CMD_REREG_MR] =
		ROW(rereg_mr, struct ib_uverbs_rereg_mr, struct ib_uverbs_rereg_mr_resp),
	[IB_USER_VERBS_CMD_DEREG_MR] = ROW_IN(dereg_mr, struct ib_uverbs_dereg_mr),
	[IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL] = ROW(create_comp_channel,
		struct ib_uverbs_create_comp_channel, struct ib_uverbs_create_comp_channel_resp),
	[IB_USER_VERBS_CMD_CREATE_CQ] =
		ROW(create_cq, struct ib_uverbs_create_cq, struct ib_uverbs_create_cq_resp),
	[IB_USER_VERBS_CMD_RESIZE_CQ] = {resize_cq, sizeof(struct ib_uverbs_resize_cq),
		UP_TO(struct ib_uverbs_resize_cq_resp, cqe)},
	[IB_USER_VERBS_CMD_DESTROY_CQ] =
		ROW(destroy_cq, struct ib_uverbs_destroy_cq, struct ib_uverbs_destroy_cq_resp),
	[IB_USER_VERBS_CMD_CREATE_QP] =
		ROW(create_qp, struct ib_uverbs_create_qp, struct ib_uverbs_create_qp_resp),
	[IB_USER_VERBS_CMD_QUERY_QP] =
		ROW(query_qp, struct ib_uverbs_query_qp, struct ib_uverbs_query_qp_resp),
	[IB_USER_VERBS_CMD_MODIFY_QP] = ROW_IN(modify_qp, struct ib_uverbs_modify_qp),
	[IB_USER_VERBS_CMD_DESTROY_QP] =
		ROW(destroy_qp, struct ib_uverbs_destroy_qp, struct ib_uverbs_destroy_qp_resp),
	[IB_USER_VERBS_CMD_CREATE_SRQ] =
		ROW(create_srq, struct ib_uverbs_create_srq, struct ib_uverbs_create_srq_resp),
	[IB_USER_VERBS_CMD_CREATE_XSRQ] =
		ROW(create_xsrq, struct ib_uverbs_create_xsrq, struct ib_uverbs_create_srq_resp),
	[IB_USER_VERBS_CMD_MODIFY_SRQ] = ROW_IN(modify_srq, struct ib_uverbs_modify_srq),
	[IB_USER_VERBS_CMD_QUERY_SRQ] =
		ROW(query_srq, struct ib_uverbs_query_srq, struct ib_uverbs_query_srq_resp),
	[IB_USER_VERBS_CMD_DESTROY_SRQ] =
		ROW(destroy_srq, struct ib_uverbs_destroy_srq, struct ib_uverbs_destroy_srq_resp),
};

static const struct command extended[] = {
	[IB_USER_VERBS_EX_CMD_QUERY_DEVICE] = {query_device_ex,
		sizeof(struct ib_uverbs_ex_query_device),
		UP_TO(struct ib_uverbs_ex_query_device_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_CREATE_CQ] = {create_cq_ex, sizeof(struct ib_uverbs_ex_create_cq),
		UP_TO(struct ib_uverbs_ex_create_cq_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_CREATE_QP] = {create_qp_ex,
		UP_TO(struct ib_uverbs_ex_create_qp, comp_mask),
		UP_TO(struct ib_uverbs_ex_create_qp_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_MODIFY_QP] = {modify_qp_ex,
		UP_TO(struct ib_uverbs_ex_modify_qp, base),
		UP_TO(struct ib_uverbs_ex_modify_qp_resp, response_length)},
};

/* EOPNOTSUPP is what the kernel says for a driver without the command, and what libibverbs hands to
 * the program. */
static const struct command *find_command(uint32_t number)
{
	bool is_extended = number & IB_USER_VERBS_CMD_FLAG_EXTENDED;
	uint32_t i = number & ~IB_USER_VERBS_CMD_FLAG_EXTENDED;
	const struct command *table = is_extended ? extended : commands;

	if (i >= (is_extended ? ARRAY_SIZE(extended) : ARRAY_SIZE(commands)) || !table[i].run)
		return NULL;
	return &table[i];
}

int vhca_command(struct vhca_request *request, uint32_t number)
{
	const struct command *command = find_command(number);

	if (!command)
		return EOPNOTSUPP;
	if (request->in.size < command->in || request->out.size < command->out)
		return ENOSPC;
	if (command->run != get_context && !request->context->handles->opened)
		return EINVAL;
	return command->run(request);
}
