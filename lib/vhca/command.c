/* command.c - the commands inside INVOKE_WRITE, and the device's capabilities
 *
 * A command is a row of a table with the least size of its structures; shorter ones are ENOSPC, as
 * in the kernel. The functions read through vhca_span_read() and write through vhca_span_write(),
 * which know what the program gave.
 */
#include "command.h"
#include "guard.h"
#include "raw_queue.h"
#include "trace.h"

#include <limits.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <unistd.h>

/* ---- what the emulation offers: a feature that the device side gains is turned on here ---- */

const struct vhca_features vhca_features = {
	.device_cap_flags = IB_UVERBS_DEVICE_CHANGE_PHY_PORT | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
		IB_UVERBS_DEVICE_SYS_IMAGE_GUID | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN |
		IB_UVERBS_DEVICE_RAW_IP_CSUM,
	.atomic_cap = IBV_ATOMIC_HCA,
	.qp_create_flags = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | /* there is none */
		IB_UVERBS_QP_CREATE_CVLAN_STRIPPING,
	.qp_types =
		1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_RAW_PACKET,
	.multi_packet = MLX5_IB_ALLOW_MPW | MLX5_IB_SUPPORT_EMPW,
	.timestamp_mask = UINT64_MAX >> 1,
	.compressed_formats = MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM,
	.mlx5_flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP |
		MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD,
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
		.eth_min_inline = device->facts->eth_min_inline,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
	};
}

static int check_context_request(const struct vhca_span *span, bool *devx)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req;
	int error;

	if (span->size < sizeof(struct mlx5_ib_alloc_ucontext_req))
		return EINVAL;
	error = vhca_span_read(span, &req, sizeof(req));
	if (error)
		return error;
	/* libmlx5 goes on without it where it may */
	if (req.flags & MLX5_IB_ALLOC_UCTX_DEVX && !vhca_options()->devx)
		return EPERM;
	*devx = req.flags & MLX5_IB_ALLOC_UCTX_DEVX;
	if (req.flags & ~(uint32_t)MLX5_IB_ALLOC_UCTX_DEVX || req.comp_mask || req.reserved0 ||
		req.reserved1 || req.reserved2)
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
	int error = check_context_request(&request->uhw_in, &request->context->handles->devx);

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
	const uint16_t *version = device->facts->firmware;

	return (uint64_t)version[0] << 32 | (uint32_t)version[1] << 16 | version[2];
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
		.vendor_part_id = device->facts->device_id,
		.max_qp = MAX_QP,
		.max_qp_wr = MAX_WR,
		.device_cap_flags = vhca_features.device_cap_flags,
		.max_sge = MAX_SGE,
		.max_sge_rd = MAX_SGE,
		.max_cq = MAX_OBJECTS,
		.max_cqe = MAX_CQE,
		.max_mr = MAX_OBJECTS,
		.max_pd = MAX_OBJECTS,
		.max_qp_rd_atom = MAX_RD_ATOMIC,
		.max_res_rd_atom = MAX_RD_ATOMIC * MAX_QP,
		.max_qp_init_rd_atom = MAX_RD_ATOMIC,
		.atomic_cap = vhca_features.atomic_cap,
		.max_mw = vhca_features.max_mw,
		.max_mcast_grp = vhca_features.max_mcast_grp,
		.max_ah = INT_MAX,
		.max_srq = 1 << 23,
		.max_srq_wr = MAX_SRQ_WR,
		.max_srq_sge = MAX_SRQ_SGE,
		.max_pkeys = 128,
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

uint32_t vhca_compressed_formats(const struct vhca_device *device)
{
	return vhca_features.compressed_formats |
		(device->facts->compresses_stride ? (uint32_t)MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX
						  : 0);
}

/* libmlx5's part of QUERY_DEVICE_EX: what is zero is not offered. */
static int answer_mlx5_device(struct vhca_request *request)
{
	struct mlx5_ib_query_device_resp resp = {
		.response_length = (uint32_t)min(request->uhw_out.size, sizeof(resp)),
		.rss_caps = {.rx_hash_fields_mask = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4 |
				MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6 |
				MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP |
				MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP,
			.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ},
		.striding_rq_caps = {.min_single_stride_log_num_of_bytes = VHCA_MIN_STRIDE,
			.max_single_stride_log_num_of_bytes = VHCA_MAX_STRIDE,
			.min_single_wqe_log_num_of_strides = VHCA_MIN_STRIDES,
			.max_single_wqe_log_num_of_strides = VHCA_MAX_STRIDES,
			.supported_qpts = 1u << IBV_QPT_RAW_PACKET},
		.mlx5_ib_support_multi_pkt_send_wqes =
			request->context->device->facts->enhanced_multi_packet
			? vhca_features.multi_packet
			: 0,
		.flags = vhca_features.mlx5_flags,
		.cqe_comp_caps.max_num = vhca_features.compressed_formats ? 128 : 0,
		.cqe_comp_caps.supported_format = vhca_compressed_formats(request->context->device),
	};

	return vhca_span_write(&request->uhw_out, &resp, sizeof(resp));
}

static int query_device_ex(struct vhca_request *request)
{
	struct ib_uverbs_ex_query_device_resp resp = {
		.response_length = (uint32_t)min(request->out.size, sizeof(resp)),
		.timestamp_mask = vhca_features.timestamp_mask,
		.odp_caps = {.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
			.per_transport_caps = {.rc_odp_caps = IBV_ODP_SUPPORT_SEND |
					IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
					IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC |
					IBV_ODP_SUPPORT_SRQ_RECV,
				.ud_odp_caps = IBV_ODP_SUPPORT_SEND}},
		.cq_moderation_caps = {.max_cq_moderation_count = UINT16_MAX,
			.max_cq_moderation_period = VHCA_MAX_EVENT_PERIOD},
		.hca_core_clock = VHCA_CLOCK_KHZ,
		.rss_caps = {.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
			.max_rwq_indirection_tables = MAX_RWQ,
			.max_rwq_indirection_table_size = 1u << VHCA_MAX_RQT},
		.max_wq_type_rq = MAX_RWQ,
		.raw_packet_caps =
			IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING | IB_UVERBS_RAW_PACKET_CAP_IP_CSUM,
		.device_cap_flags_ex = vhca_features.device_cap_flags,
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
	uint8_t width, speed;
	const char *text;

	vhca_link_of(device->options->speed, &width, &speed, &text);
	*resp = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
		.max_msg_sz = MAX_MESSAGE,
		.qkey_viol_cntr = device->qkey_violations,
		.gid_tbl_len = VHCA_N_GIDS,
		.pkey_tbl_len = 1,
		.state = device->port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = (uint8_t)device->mtu,
		.active_width = width,
		.active_speed = speed,
		.phys_state = device->port_up ? 5 : 3, /* link up, or disabled */
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

int vhca_adopt(struct vhca_request *request, void *object, uint32_t *handle)
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
	int error =
		vhca_pd_create(request->context, &pd) ?: vhca_adopt(request, pd, &resp.pd_handle);

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

static void note_mr(const struct vhca_mr *mr)
{
	vhca_note(" key 0x%x start 0x%llx length %llu iova 0x%llx access 0x%x pd %u", mr->key,
		(unsigned long long)mr->start, (unsigned long long)mr->length,
		(unsigned long long)mr->iova, mr->access, mr->pd->pdn);
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
	vhca_guard_install(); /* a program may have got past the hooks since */
	error = vhca_mr_create(pd, cmd.start, cmd.length, cmd.hca_va, cmd.access_flags, &mr)
		?: vhca_adopt(request, mr, &resp.mr_handle);
	if (error)
		return error;
	note_mr(mr);
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
	note_mr(mr);
	resp.lkey = resp.rkey = mr->key;
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

static int dereg_mr(struct vhca_request *request)
{
	return destroy_plain(request, VHCA_MR);
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
	vhca_note(" dgid ...%02x%02x%02x%02x sgid_index %u", attr.grh.dgid.raw[12],
		attr.grh.dgid.raw[13], attr.grh.dgid.raw[14], attr.grh.dgid.raw[15],
		attr.grh.sgid_index);
	error = vhca_ah_create(pd, &attr, &ah) ?: vhca_adopt(request, ah, &resp.ah_handle);
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
	[IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL] = ROW(vhca_create_comp_channel,
		struct ib_uverbs_create_comp_channel, struct ib_uverbs_create_comp_channel_resp),
	[IB_USER_VERBS_CMD_CREATE_CQ] =
		ROW(vhca_create_cq, struct ib_uverbs_create_cq, struct ib_uverbs_create_cq_resp),
	[IB_USER_VERBS_CMD_RESIZE_CQ] = {vhca_resize_cq, sizeof(struct ib_uverbs_resize_cq),
		UP_TO(struct ib_uverbs_resize_cq_resp, cqe)},
	[IB_USER_VERBS_CMD_DESTROY_CQ] =
		ROW(vhca_destroy_cq, struct ib_uverbs_destroy_cq, struct ib_uverbs_destroy_cq_resp),
	[IB_USER_VERBS_CMD_CREATE_QP] =
		ROW(vhca_create_qp, struct ib_uverbs_create_qp, struct ib_uverbs_create_qp_resp),
	[IB_USER_VERBS_CMD_QUERY_QP] =
		ROW(vhca_query_qp, struct ib_uverbs_query_qp, struct ib_uverbs_query_qp_resp),
	[IB_USER_VERBS_CMD_MODIFY_QP] = ROW_IN(vhca_modify_qp, struct ib_uverbs_modify_qp),
	[IB_USER_VERBS_CMD_DESTROY_QP] =
		ROW(vhca_destroy_qp, struct ib_uverbs_destroy_qp, struct ib_uverbs_destroy_qp_resp),
	[IB_USER_VERBS_CMD_CREATE_SRQ] =
		ROW(vhca_create_srq, struct ib_uverbs_create_srq, struct ib_uverbs_create_srq_resp),
	[IB_USER_VERBS_CMD_CREATE_XSRQ] = ROW(
		vhca_create_xsrq, struct ib_uverbs_create_xsrq, struct ib_uverbs_create_srq_resp),
	[IB_USER_VERBS_CMD_MODIFY_SRQ] = ROW_IN(vhca_modify_srq, struct ib_uverbs_modify_srq),
	[IB_USER_VERBS_CMD_QUERY_SRQ] =
		ROW(vhca_query_srq, struct ib_uverbs_query_srq, struct ib_uverbs_query_srq_resp),
	[IB_USER_VERBS_CMD_DESTROY_SRQ] = ROW(
		vhca_destroy_srq, struct ib_uverbs_destroy_srq, struct ib_uverbs_destroy_srq_resp),
};

static const struct command extended[] = {
	[IB_USER_VERBS_EX_CMD_QUERY_DEVICE] = {query_device_ex,
		sizeof(struct ib_uverbs_ex_query_device),
		UP_TO(struct ib_uverbs_ex_query_device_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_CREATE_CQ] = {vhca_create_cq_ex,
		sizeof(struct ib_uverbs_ex_create_cq),
		UP_TO(struct ib_uverbs_ex_create_cq_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_MODIFY_CQ] = ROW_IN(vhca_modify_cq, struct ib_uverbs_ex_modify_cq),
	[IB_USER_VERBS_EX_CMD_CREATE_QP] = {vhca_create_qp_ex,
		UP_TO(struct ib_uverbs_ex_create_qp, comp_mask),
		UP_TO(struct ib_uverbs_ex_create_qp_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_CREATE_WQ] = {vhca_create_wq,
		UP_TO(struct ib_uverbs_ex_create_wq, max_sge),
		UP_TO(struct ib_uverbs_ex_create_wq_resp, wqn)},
	[IB_USER_VERBS_EX_CMD_MODIFY_WQ] = {vhca_modify_wq,
		UP_TO(struct ib_uverbs_ex_modify_wq, curr_wq_state), 0},
	[IB_USER_VERBS_EX_CMD_DESTROY_WQ] = {vhca_destroy_wq,
		UP_TO(struct ib_uverbs_ex_destroy_wq, wq_handle),
		UP_TO(struct ib_uverbs_ex_destroy_wq_resp, reserved)},
	[IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL] = {vhca_create_rwq_ind_table,
		UP_TO(struct ib_uverbs_ex_create_rwq_ind_table, log_ind_tbl_size),
		UP_TO(struct ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_num)},
	[IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL] = {vhca_destroy_rwq_ind_table,
		UP_TO(struct ib_uverbs_ex_destroy_rwq_ind_table, ind_tbl_handle), 0},
	[IB_USER_VERBS_EX_CMD_MODIFY_QP] = {vhca_modify_qp_ex,
		UP_TO(struct ib_uverbs_ex_modify_qp, base),
		UP_TO(struct ib_uverbs_ex_modify_qp_resp, response_length)},
	[IB_USER_VERBS_EX_CMD_CREATE_FLOW] = ROW(
		vhca_create_flow, struct ib_uverbs_create_flow, struct ib_uverbs_create_flow_resp),
	[IB_USER_VERBS_EX_CMD_DESTROY_FLOW] =
		ROW_IN(vhca_destroy_flow, struct ib_uverbs_destroy_flow),
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

/* Modifying is among them for the sake of RESET and ERR. */
bool vhca_command_outlives_device(uint32_t number)
{
	switch (number) {
	case IB_USER_VERBS_CMD_DEALLOC_PD:
	case IB_USER_VERBS_CMD_DEREG_MR:
	case IB_USER_VERBS_CMD_DESTROY_AH:
	case IB_USER_VERBS_CMD_DESTROY_CQ:
	case IB_USER_VERBS_CMD_DESTROY_QP:
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
	case IB_USER_VERBS_CMD_MODIFY_QP:
	case IB_USER_VERBS_EX_CMD_DESTROY_FLOW | IB_USER_VERBS_CMD_FLAG_EXTENDED:
	case IB_USER_VERBS_EX_CMD_DESTROY_WQ | IB_USER_VERBS_CMD_FLAG_EXTENDED:
	case IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL | IB_USER_VERBS_CMD_FLAG_EXTENDED:
		return true;
	default: return false;
	}
}
