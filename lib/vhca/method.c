/* method.c - the native methods of RDMA_VERBS_IOCTL, and the one that carries all other commands */
#include "uverbs.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

/* ---- methods ---- */

enum { INVOKE_IN, INVOKE_OUT, INVOKE_COMMAND, INVOKE_UHW_IN, INVOKE_UHW_OUT };

static int invoke_write(struct vhca_call *call)
{
	call->request.in = vhca_attr_span(call, INVOKE_IN);
	call->request.out = vhca_attr_span(call, INVOKE_OUT);
	call->request.uhw_in = vhca_attr_span(call, INVOKE_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, INVOKE_UHW_OUT);
	return vhca_command(&call->request, (uint32_t)vhca_attr_number(call, INVOKE_COMMAND));
}

enum { CONTEXT_VECTORS, CONTEXT_SUPPORT, CONTEXT_UHW_IN, CONTEXT_UHW_OUT };

static int answer_core(struct vhca_call *call)
{
	uint64_t support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
	uint32_t n_vectors = vhca_n_vectors();

	return vhca_attr_write(call, CONTEXT_VECTORS, &n_vectors, sizeof(n_vectors))
		?: vhca_attr_write(call, CONTEXT_SUPPORT, &support, sizeof(support));
}

static int get_context(struct vhca_call *call)
{
	int error;

	if (call->request.context->handles->opened)
		return EINVAL;
	call->request.uhw_in = vhca_attr_span(call, CONTEXT_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, CONTEXT_UHW_OUT);
	error = vhca_answer_context(&call->request) ?: answer_core(call);
	call->request.context->handles->opened = !error;
	return error;
}

enum { AGAIN_UCTX = CONTEXT_SUPPORT + 1 };

static int query_context(struct vhca_call *call)
{
	struct vhca_span out = vhca_attr_span(call, AGAIN_UCTX);

	return vhca_answer_context_again(&call->request, &out) ?: answer_core(call);
}

static int query_port(struct vhca_call *call)
{
	struct ib_uverbs_query_port_resp_ex resp = {.port_cap_flags2 = 0};

	if (vhca_attr_number(call, 0) != 1)
		return EINVAL;
	vhca_answer_port(call->request.context->device, &resp.legacy_resp);
	return vhca_attr_write(call, 1, &resp, sizeof(resp));
}

/* What an eswitch would say of its ports: there is none, as on a card that has not been switched to
 * that mode. */
static int query_port_of_switch(struct vhca_call *call)
{
	struct mlx5_ib_uapi_query_port resp = {.flags = 0};

	if (vhca_attr_number(call, 0) != 1)
		return EINVAL;
	return vhca_attr_write(call, 1, &resp, sizeof(resp));
}

/* False for an entry that is not in use. */
static bool gid_entry(
	const struct vhca_device *device, uint32_t index, struct ib_uverbs_gid_entry *entry)
{
	static const uint8_t none[16];
	const struct vhca_gid *gid = &device->gids[index];

	if (!memcmp(gid->raw, none, sizeof(none)))
		return false;
	*entry = (struct ib_uverbs_gid_entry){
		.gid_index = index,
		.port_num = 1,
		.gid_type = gid->type ? IB_UVERBS_GID_TYPE_ROCE_V2 : IB_UVERBS_GID_TYPE_ROCE_V1,
	};
	memcpy(entry->gid, gid->raw, sizeof(gid->raw));
	return true;
}

static int query_gid_entry(struct vhca_call *call)
{
	struct ib_uverbs_gid_entry entry;
	uint64_t index = vhca_attr_number(call, 1);

	if (vhca_attr_number(call, 0) != 1 || vhca_attr_number(call, 2) || index >= VHCA_N_GIDS)
		return EINVAL;
	if (!gid_entry(call->request.context->device, (uint32_t)index, &entry))
		return ENODATA;
	return vhca_attr_write(call, 3, &entry, sizeof(entry));
}

static int query_gid_table(struct vhca_call *call)
{
	uint64_t size = vhca_attr_number(call, 0), n = 0;
	struct vhca_span out = vhca_attr_span(call, 2);
	struct ib_uverbs_gid_entry entry;
	int error;

	if (size < sizeof(entry) || size > UINT16_MAX || vhca_attr_number(call, 1))
		return EINVAL;
	for (uint32_t i = 0; i < VHCA_N_GIDS; i++) {
		struct vhca_span at = {
			.present = true, .address = out.address + n * size, .size = size};

		if (!gid_entry(call->request.context->device, i, &entry))
			continue;
		if (n == out.size / size)
			return EINVAL;
		error = vhca_span_write(&at, &entry, sizeof(entry));
		if (error)
			return error;
		n++;
	}
	return vhca_attr_write(call, 3, &n, sizeof(n));
}

static int async_event_alloc(struct vhca_call *call)
{
	int fd, error = vhca_async_make(call->request.context, &fd);

	return error ?: vhca_attr_return(call, 0, (uint64_t)fd);
}

static int pd_query(struct vhca_call *call)
{
	const struct vhca_pd *pd =
		vhca_handle_find(call->request.context, vhca_attr_handle(call, 0), VHCA_PD);

	return pd ? vhca_attr_write(call, 1, &pd->pdn, sizeof(pd->pdn)) : ENOENT;
}

static int query_mr(struct vhca_call *call)
{
	const struct vhca_mr *mr =
		vhca_handle_find(call->request.context, vhca_attr_handle(call, 0), VHCA_MR);

	if (!mr)
		return ENOENT;
	return vhca_attr_write(call, 1, &mr->key, sizeof(mr->key)) ?:
	       vhca_attr_write(call, 2, &mr->key, sizeof(mr->key)) ?:
	       vhca_attr_write(call, 3, &mr->length, sizeof(mr->length)) ?:
	       vhca_attr_write(call, 4, &mr->iova, sizeof(mr->iova));
}

static int uar_alloc(struct vhca_call *call)
{
	struct vhca_context *context = call->request.context;
	uint32_t length = VHCA_PAGE, handle;
	struct vhca_uar *uar;
	uint64_t offset;
	int error;

	if (vhca_attr_number(call, 1) > 1)
		return EOPNOTSUPP;
	error = vhca_uar_create(context, &uar);
	if (error)
		return error;
	error = vhca_handle_add(context, uar, &handle);
	if (error) {
		vhca_object_destroy(&uar->object);
		return error;
	}
	offset = (uint64_t)uar->page * VHCA_PAGE;
	return vhca_attr_return(call, 0, handle) ?: vhca_attr_write(call, 2, &offset, sizeof(offset)) ?:
	       vhca_attr_write(call, 3, &length, sizeof(length)) ?:
	       vhca_attr_write(call, 4, &uar->page, sizeof(uar->page));
}

static int uar_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(call->request.context, vhca_attr_handle(call, 0), VHCA_UAR);
}

enum {
	CQ_HANDLE,
	CQ_CQE,
	CQ_USER,
	CQ_CHANNEL,
	CQ_VECTOR,
	CQ_FLAGS,
	CQ_RESP_CQE,
	CQ_EVENTS,
	CQ_UHW_IN,
	CQ_UHW_OUT
};

static int cq_create(struct vhca_call *call)
{
	struct ib_uverbs_create_cq_resp resp;
	struct ib_uverbs_ex_create_cq cmd = {
		.user_handle = vhca_attr_number(call, CQ_USER),
		.cqe = (uint32_t)vhca_attr_number(call, CQ_CQE),
		.comp_vector = (uint32_t)vhca_attr_number(call, CQ_VECTOR),
		.comp_channel = vhca_attr_given(call, CQ_CHANNEL)
			? (int)vhca_attr_handle(call, CQ_CHANNEL)
			: -1,
		.flags = (uint32_t)vhca_attr_number(call, CQ_FLAGS),
	};
	int error;

	call->request.uhw_in = vhca_attr_span(call, CQ_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, CQ_UHW_OUT);
	error = vhca_make_cq(&call->request, &cmd, &resp);
	return error ?: vhca_attr_return(call, CQ_HANDLE, resp.cq_handle) ?:
			vhca_attr_write(call, CQ_RESP_CQE, &resp.cqe, sizeof(resp.cqe));
}

static int cq_destroy(struct vhca_call *call)
{
	struct ib_uverbs_destroy_cq_resp resp;

	return vhca_end_cq(&call->request, vhca_attr_handle(call, 0), &resp.comp_events_reported,
		       &resp.async_events_reported)
		?: vhca_attr_write(call, 1, &resp, sizeof(resp));
}

/* Memory on demand: all of it is there when this returns, flushed or not. */
static int advise_mr(struct vhca_call *call)
{
	struct vhca_pd *pd =
		vhca_handle_find(call->request.context, vhca_attr_handle(call, 0), VHCA_PD);
	uint64_t advice = vhca_attr_number(call, 1), flags = vhca_attr_number(call, 2);
	struct vhca_span list = vhca_attr_span(call, 3);
	struct ib_uverbs_sge sge;
	int error = 0;

	if (!pd || !list.size || list.size % sizeof(sge))
		return EINVAL;
	if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ||
		flags & ~(uint64_t)IB_UVERBS_ADVISE_MR_FLAG_FLUSH)
		return EOPNOTSUPP;
	for (size_t at = 0; !error && at < list.size; at += sizeof(sge)) {
		struct vhca_span one = {
			.present = true, .address = list.address + at, .size = sizeof(sge)};

		error = vhca_span_read(&one, &sge, sizeof(sge))
			?: vhca_mr_advise(pd, sge.lkey, sge.addr, sge.length,
				   advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE);
	}
	return error;
}

enum {
	QP_HANDLE,
	QP_PD,
	QP_SRQ,
	QP_SEND_CQ,
	QP_RECV_CQ,
	QP_TABLE,
	QP_USER,
	QP_CAP,
	QP_TYPE,
	QP_FLAGS,
	QP_EVENTS,
	QP_RESP_CAP,
	QP_RESP_NUMBER,
	QP_UHW_IN,
	QP_UHW_OUT,
};

static int qp_create(struct vhca_call *call)
{
	struct ib_uverbs_create_qp_resp resp;
	struct ib_uverbs_ex_create_qp cmd = {
		.user_handle = vhca_attr_number(call, QP_USER),
		.pd_handle = vhca_attr_handle(call, QP_PD),
		.send_cq_handle = vhca_attr_handle(call, QP_SEND_CQ),
		.recv_cq_handle = vhca_attr_handle(call, QP_RECV_CQ),
		.srq_handle = vhca_attr_handle(call, QP_SRQ),
		.is_srq = vhca_attr_given(call, QP_SRQ),
		.rwq_ind_tbl_handle = vhca_attr_handle(call, QP_TABLE),
		.comp_mask =
			vhca_attr_given(call, QP_TABLE) ? IB_UVERBS_CREATE_QP_MASK_IND_TABLE : 0,
	};
	uint64_t flags = vhca_attr_number(call, QP_FLAGS), type = vhca_attr_number(call, QP_TYPE);
	struct ib_uverbs_qp_cap cap;
	int error = vhca_attr_read(call, QP_CAP, &cap, sizeof(cap));

	if (error)
		return error;
	cmd.max_send_wr = cap.max_send_wr;
	cmd.max_recv_wr = cap.max_recv_wr;
	cmd.max_send_sge = cap.max_send_sge;
	cmd.max_recv_sge = cap.max_recv_sge;
	cmd.max_inline_data = cap.max_inline_data;
	cmd.qp_type = type > UINT8_MAX ? 0 : (uint8_t)type;
	cmd.sq_sig_all = flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL ? 1 : 0;
	cmd.create_flags = (uint32_t)flags & ~(uint32_t)IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	call->request.uhw_in = vhca_attr_span(call, QP_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, QP_UHW_OUT);
	error = vhca_make_qp(&call->request, &cmd, &resp);
	return error ?: vhca_attr_return(call, QP_HANDLE, resp.qp_handle) ?:
			vhca_attr_write(call, QP_RESP_CAP, &cap, sizeof(cap)) ?:
			vhca_attr_write(call, QP_RESP_NUMBER, &resp.qpn, sizeof(resp.qpn));
}

static int qp_destroy(struct vhca_call *call)
{
	struct ib_uverbs_destroy_qp_resp resp;

	return vhca_end_qp(&call->request, vhca_attr_handle(call, 0), &resp.events_reported)
		?: vhca_attr_write(call, 1, &resp, sizeof(resp));
}

enum {
	WQ_HANDLE,
	WQ_PD,
	WQ_CQ,
	WQ_USER,
	WQ_TYPE,
	WQ_EVENTS,
	WQ_MAX_WR,
	WQ_MAX_SGE,
	WQ_FLAGS,
	WQ_RESP_MAX_WR,
	WQ_RESP_MAX_SGE,
	WQ_RESP_NUMBER,
	WQ_UHW_IN,
	WQ_UHW_OUT,
};

static int wq_create(struct vhca_call *call)
{
	struct ib_uverbs_ex_create_wq_resp resp = {.wqn = 0};
	struct ib_uverbs_ex_create_wq cmd = {
		.wq_type = (uint32_t)min(vhca_attr_number(call, WQ_TYPE), (uint64_t)UINT32_MAX),
		.user_handle = vhca_attr_number(call, WQ_USER),
		.pd_handle = vhca_attr_handle(call, WQ_PD),
		.cq_handle = vhca_attr_handle(call, WQ_CQ),
		.max_wr = (uint32_t)vhca_attr_number(call, WQ_MAX_WR),
		.max_sge = (uint32_t)vhca_attr_number(call, WQ_MAX_SGE),
		.create_flags = (uint32_t)vhca_attr_number(call, WQ_FLAGS),
	};
	int error;

	call->request.uhw_in = vhca_attr_span(call, WQ_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, WQ_UHW_OUT);
	error = vhca_make_wq(&call->request, &cmd, &resp);
	return error ?: vhca_attr_return(call, WQ_HANDLE, resp.wq_handle) ?:
			vhca_attr_write(call, WQ_RESP_MAX_WR, &resp.max_wr, sizeof(resp.max_wr)) ?:
			vhca_attr_write(call, WQ_RESP_MAX_SGE, &resp.max_sge, sizeof(resp.max_sge)) ?:
			vhca_attr_write(call, WQ_RESP_NUMBER, &resp.wqn, sizeof(resp.wqn));
}

static int wq_destroy(struct vhca_call *call)
{
	uint32_t events;

	return vhca_end_wq(&call->request, vhca_attr_handle(call, 0), &events)
		?: vhca_attr_write(call, 1, &events, sizeof(events));
}

static int rwq_ind_table_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(call->request.context, vhca_attr_handle(call, 0), VHCA_RQT);
}

enum {
	SRQ_HANDLE,
	SRQ_PD,
	SRQ_USER,
	SRQ_MAX_WR,
	SRQ_MAX_SGE,
	SRQ_LIMIT,
	SRQ_TYPE,
	SRQ_EVENTS,
	SRQ_RESP_MAX_WR,
	SRQ_RESP_MAX_SGE,
	SRQ_UHW_IN,
	SRQ_UHW_OUT,
};

static int srq_create(struct vhca_call *call)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ib_uverbs_create_xsrq cmd = {
		.user_handle = vhca_attr_number(call, SRQ_USER),
		.srq_type = (uint32_t)min(vhca_attr_number(call, SRQ_TYPE), (uint64_t)UINT32_MAX),
		.pd_handle = vhca_attr_handle(call, SRQ_PD),
		.max_wr = (uint32_t)vhca_attr_number(call, SRQ_MAX_WR),
		.max_sge = (uint32_t)vhca_attr_number(call, SRQ_MAX_SGE),
		.srq_limit = (uint32_t)vhca_attr_number(call, SRQ_LIMIT),
	};
	int error;

	call->request.uhw_in = vhca_attr_span(call, SRQ_UHW_IN);
	call->request.uhw_out = vhca_attr_span(call, SRQ_UHW_OUT);
	error = vhca_make_srq(&call->request, &cmd, &resp);
	return error ?: vhca_attr_return(call, SRQ_HANDLE, resp.srq_handle) ?:
			vhca_attr_write(call, SRQ_RESP_MAX_WR, &resp.max_wr, sizeof(resp.max_wr)) ?:
			vhca_attr_write(call, SRQ_RESP_MAX_SGE, &resp.max_sge, sizeof(resp.max_sge));
}

static int srq_destroy(struct vhca_call *call)
{
	struct ib_uverbs_destroy_srq_resp resp;

	return vhca_end_srq(&call->request, vhca_attr_handle(call, 0), &resp.events_reported)
		?: vhca_attr_write(call, 1, &resp, sizeof(resp));
}

#define UHW_IN                                           \
	{                                                \
		UVERBS_ATTR_UHW_IN, ATTR_IN, OPTIONAL, 0 \
	}
#define UHW_OUT                                            \
	{                                                  \
		UVERBS_ATTR_UHW_OUT, ATTR_OUT, OPTIONAL, 0 \
	}

/* The order of a method's attributes is that of the enum or the numbers its function uses. */
static const struct vhca_method methods[] = {
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, invoke_write,
		{{UVERBS_ATTR_CORE_IN, ATTR_IN, OPTIONAL, 0},
			{UVERBS_ATTR_CORE_OUT, ATTR_OUT, OPTIONAL, 0},
			{UVERBS_ATTR_WRITE_CMD, ATTR_IN, REQUIRED, 4}, UHW_IN, UHW_OUT},
		5},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, get_context,
		{{UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, ATTR_OUT, OPTIONAL, 4},
			{UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, ATTR_OUT, OPTIONAL, 8}, UHW_IN,
			UHW_OUT},
		4},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, query_context,
		{{UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, ATTR_OUT, OPTIONAL, 4},
			{UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, ATTR_OUT, OPTIONAL, 8},
			{MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, ATTR_OUT, REQUIRED, 4}},
		3},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, query_port,
		{{UVERBS_ATTR_QUERY_PORT_PORT_NUM, ATTR_IN, REQUIRED, 1},
			{UVERBS_ATTR_QUERY_PORT_RESP, ATTR_OUT, REQUIRED,
				offsetof(struct ib_uverbs_query_port_resp_ex, reserved)}},
		2},
	{UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, query_port_of_switch,
		{{MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, ATTR_IN, REQUIRED, 4},
			{MLX5_IB_ATTR_QUERY_PORT, ATTR_OUT, REQUIRED,
				offsetof(struct mlx5_ib_uapi_query_port, reg_c0)}},
		2},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, query_gid_entry,
		{{UVERBS_ATTR_QUERY_GID_ENTRY_PORT, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, ATTR_IN, OPTIONAL, 4},
			{UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_gid_entry)}},
		4},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, query_gid_table,
		{{UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, ATTR_IN, REQUIRED, 8},
			{UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, ATTR_IN, OPTIONAL, 4},
			{UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, ATTR_OUT, REQUIRED, 0},
			{UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, ATTR_OUT, REQUIRED, 8}},
		4},
	{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, async_event_alloc,
		{{UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, ATTR_NEW, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, pd_query,
		{{MLX5_IB_ATTR_QUERY_PD_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{MLX5_IB_ATTR_QUERY_PD_RESP_PDN, ATTR_OUT, REQUIRED, 4}},
		2},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, query_mr,
		{{UVERBS_ATTR_QUERY_MR_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_QUERY_MR_RESP_LKEY, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_QUERY_MR_RESP_RKEY, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_QUERY_MR_RESP_LENGTH, ATTR_OUT, REQUIRED, 8},
			{UVERBS_ATTR_QUERY_MR_RESP_IOVA, ATTR_OUT, OPTIONAL, 8}},
		5},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, advise_mr,
		{{UVERBS_ATTR_ADVISE_MR_PD_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_ADVISE_MR_ADVICE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_ADVISE_MR_FLAGS, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_ADVISE_MR_SGE_LIST, ATTR_IN, REQUIRED, 0}},
		4},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, uar_alloc,
		{{MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, ATTR_NEW, REQUIRED, 0},
			{MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, ATTR_IN, REQUIRED, 4},
			{MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, ATTR_OUT, REQUIRED, 8},
			{MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, ATTR_OUT, REQUIRED, 4},
			{MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, ATTR_OUT, REQUIRED, 4}},
		5},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, uar_destroy,
		{{MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, cq_create,
		{{UVERBS_ATTR_CREATE_CQ_HANDLE, ATTR_NEW, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_CQ_CQE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_CQ_USER_HANDLE, ATTR_IN, REQUIRED, 8},
			{UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_CQ_FLAGS, ATTR_IN, OPTIONAL, 4},
			{UVERBS_ATTR_CREATE_CQ_RESP_CQE, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_CQ_EVENT_FD, ATTR_HANDLE, OPTIONAL, 0}, UHW_IN,
			UHW_OUT},
		10},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq_destroy,
		{{UVERBS_ATTR_DESTROY_CQ_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_DESTROY_CQ_RESP, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_destroy_cq_resp)}},
		2},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, qp_create,
		{{UVERBS_ATTR_CREATE_QP_HANDLE, ATTR_NEW, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_QP_PD_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_QP_USER_HANDLE, ATTR_IN, REQUIRED, 8},
			{UVERBS_ATTR_CREATE_QP_CAP, ATTR_IN, REQUIRED,
				sizeof(struct ib_uverbs_qp_cap)},
			{UVERBS_ATTR_CREATE_QP_TYPE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_QP_FLAGS, ATTR_IN, OPTIONAL, 4},
			{UVERBS_ATTR_CREATE_QP_EVENT_FD, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_QP_RESP_CAP, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_qp_cap)},
			{UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, ATTR_OUT, REQUIRED, 4}, UHW_IN,
			UHW_OUT},
		15},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, qp_destroy,
		{{UVERBS_ATTR_DESTROY_QP_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_DESTROY_QP_RESP, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_destroy_qp_resp)}},
		2},
	{UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, wq_create,
		{{UVERBS_ATTR_CREATE_WQ_HANDLE, ATTR_NEW, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_WQ_PD_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_WQ_USER_HANDLE, ATTR_IN, REQUIRED, 8},
			{UVERBS_ATTR_CREATE_WQ_TYPE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_EVENT_FD, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_WQ_MAX_WR, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_MAX_SGE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_FLAGS, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, ATTR_OUT, OPTIONAL, 4}, UHW_IN,
			UHW_OUT},
		14},
	{UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, wq_destroy,
		{{UVERBS_ATTR_DESTROY_WQ_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_DESTROY_WQ_RESP, ATTR_OUT, REQUIRED, 4}},
		2},
	{UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, rwq_ind_table_destroy,
		{{UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, srq_create,
		{{UVERBS_ATTR_CREATE_SRQ_HANDLE, ATTR_NEW, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, ATTR_IN, REQUIRED, 8},
			{UVERBS_ATTR_CREATE_SRQ_MAX_WR, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_SRQ_MAX_SGE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_SRQ_LIMIT, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_SRQ_TYPE, ATTR_IN, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_SRQ_EVENT_FD, ATTR_HANDLE, OPTIONAL, 0},
			{UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, ATTR_OUT, REQUIRED, 4},
			{UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, ATTR_OUT, REQUIRED, 4}, UHW_IN,
			UHW_OUT},
		12},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, srq_destroy,
		{{UVERBS_ATTR_DESTROY_SRQ_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_DESTROY_SRQ_RESP, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_destroy_srq_resp)}},
		2},
};

static const struct vhca_method *find_among(
	const struct vhca_method *list, size_t n, uint16_t object, uint16_t method)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].object == object && list[i].method == method)
			return &list[i];
	return NULL;
}

const struct vhca_method *vhca_method_find(uint16_t object, uint16_t method)
{
	return find_among(methods, ARRAY_SIZE(methods), object, method)
		?: find_among(vhca_flow_methods, vhca_n_flow_methods, object, method)
		?: find_among(vhca_devx_methods, vhca_options()->devx ? vhca_n_devx_methods : 0,
			   object, method);
}

/* Before GET_CONTEXT only these have an answer. */
bool vhca_method_needs_context(const struct vhca_method *method)
{
	return method->run != invoke_write && method->run != get_context;
}

uint32_t vhca_call_command(const struct vhca_call *call, const struct vhca_method *method)
{
	return method->run == invoke_write ? (uint32_t)vhca_attr_number(call, INVOKE_COMMAND) : 0;
}

bool vhca_call_outlives_device(const struct vhca_call *call, const struct vhca_method *method)
{
	if (method->run == invoke_write)
		return vhca_command_outlives_device(vhca_call_command(call, method));
	if (method->n == 1 &&
		method->specs[0].kind == ATTR_HANDLE) /* a handle, and nothing to do with it */
		return true;
	return method->run == cq_destroy || method->run == qp_destroy ||
		method->run == srq_destroy || method->run == wq_destroy ||
		method->run == async_event_alloc;
}
