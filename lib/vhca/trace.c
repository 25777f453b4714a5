/* trace.c - commands, doorbells, WQEs and CQEs as lines of text */

#include "vhca/trace.h"
#include "vhca/device.h"
#include "vhca/output.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool vhca_trace_on;

static struct vhca_output output = {.what = "trace", .fd = -1};

/* ---- lines ---- */

struct line {
	size_t n;
	char text[2048];
};

static void add(struct line *line, const char *fmt, ...) printf_like(2, 3);

static void add(struct line *line, const char *fmt, ...)
{
	size_t room = sizeof(line->text) - 1 - line->n; /* one is for the line's end */
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line->text + line->n, room, fmt, args);
	va_end(args);
	if (n > 0)
		line->n += min((size_t)n, room - 1);
}

static void begin(struct line *line, const struct vhca_device *device)
{
	struct timespec now;

	line->n = 0;
	clock_gettime(CLOCK_REALTIME, &now);
	add(line, "%lld.%09ld %d/%ld %s ", (long long)now.tv_sec, now.tv_nsec, getpid(),
		syscall(SYS_gettid), device->name);
}

static void end(struct line *line)
{
	struct iovec part = {line->text, line->n + 1};

	line->text[line->n] = '\n';
	if (!vhca_output_write(&output, &part, 1))
		vhca_trace_on = false;
}

void vhca_trace_open(void)
{
	const char *path = vhca_options()->trace;

	if (*path)
		vhca_trace_on = vhca_output_open(&output, path, NULL, 0, 0);
}

/* ---- commands ---- */

static __thread struct {
	size_t n;
	char text[512];
} note;

void vhca_trace_note(const char *fmt, ...)
{
	size_t room = sizeof(note.text) - note.n;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(note.text + note.n, room, fmt, args);
	va_end(args);
	if (n > 0)
		note.n += min((size_t)n, room - 1);
}

static const char *const command_names[] = {
	[IB_USER_VERBS_CMD_GET_CONTEXT] = "GET_CONTEXT",
	[IB_USER_VERBS_CMD_QUERY_DEVICE] = "QUERY_DEVICE",
	[IB_USER_VERBS_CMD_QUERY_PORT] = "QUERY_PORT",
	[IB_USER_VERBS_CMD_ALLOC_PD] = "ALLOC_PD",
	[IB_USER_VERBS_CMD_DEALLOC_PD] = "DEALLOC_PD",
	[IB_USER_VERBS_CMD_CREATE_AH] = "CREATE_AH",
	[IB_USER_VERBS_CMD_DESTROY_AH] = "DESTROY_AH",
	[IB_USER_VERBS_CMD_REG_MR] = "REG_MR",
	[IB_USER_VERBS_CMD_REREG_MR] = "REREG_MR",
	[IB_USER_VERBS_CMD_DEREG_MR] = "DEREG_MR",
	[IB_USER_VERBS_CMD_ALLOC_MW] = "ALLOC_MW",
	[IB_USER_VERBS_CMD_DEALLOC_MW] = "DEALLOC_MW",
	[IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL] = "CREATE_COMP_CHANNEL",
	[IB_USER_VERBS_CMD_CREATE_CQ] = "CREATE_CQ",
	[IB_USER_VERBS_CMD_RESIZE_CQ] = "RESIZE_CQ",
	[IB_USER_VERBS_CMD_DESTROY_CQ] = "DESTROY_CQ",
	[IB_USER_VERBS_CMD_CREATE_QP] = "CREATE_QP",
	[IB_USER_VERBS_CMD_QUERY_QP] = "QUERY_QP",
	[IB_USER_VERBS_CMD_MODIFY_QP] = "MODIFY_QP",
	[IB_USER_VERBS_CMD_DESTROY_QP] = "DESTROY_QP",
	[IB_USER_VERBS_CMD_ATTACH_MCAST] = "ATTACH_MCAST",
	[IB_USER_VERBS_CMD_DETACH_MCAST] = "DETACH_MCAST",
	[IB_USER_VERBS_CMD_CREATE_SRQ] = "CREATE_SRQ",
	[IB_USER_VERBS_CMD_MODIFY_SRQ] = "MODIFY_SRQ",
	[IB_USER_VERBS_CMD_QUERY_SRQ] = "QUERY_SRQ",
	[IB_USER_VERBS_CMD_DESTROY_SRQ] = "DESTROY_SRQ",
	[IB_USER_VERBS_CMD_OPEN_XRCD] = "OPEN_XRCD",
	[IB_USER_VERBS_CMD_CLOSE_XRCD] = "CLOSE_XRCD",
	[IB_USER_VERBS_CMD_CREATE_XSRQ] = "CREATE_XSRQ",
	[IB_USER_VERBS_CMD_OPEN_QP] = "OPEN_QP",
};

static const char *const extended_names[] = {
	[IB_USER_VERBS_EX_CMD_QUERY_DEVICE] = "QUERY_DEVICE_EX",
	[IB_USER_VERBS_EX_CMD_CREATE_CQ] = "CREATE_CQ_EX",
	[IB_USER_VERBS_EX_CMD_CREATE_QP] = "CREATE_QP_EX",
	[IB_USER_VERBS_EX_CMD_MODIFY_QP] = "MODIFY_QP_EX",
	[IB_USER_VERBS_EX_CMD_CREATE_FLOW] = "CREATE_FLOW",
	[IB_USER_VERBS_EX_CMD_DESTROY_FLOW] = "DESTROY_FLOW",
	[IB_USER_VERBS_EX_CMD_CREATE_WQ] = "CREATE_WQ",
	[IB_USER_VERBS_EX_CMD_MODIFY_WQ] = "MODIFY_WQ",
	[IB_USER_VERBS_EX_CMD_DESTROY_WQ] = "DESTROY_WQ",
	[IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL] = "CREATE_RWQ_IND_TBL",
	[IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL] = "DESTROY_RWQ_IND_TBL",
	[IB_USER_VERBS_EX_CMD_MODIFY_CQ] = "MODIFY_CQ",
};

static const struct {
	uint16_t object, method;
	const char *name;
} method_names[] = {
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "GET_CONTEXT"},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, "QUERY_CONTEXT"},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "QUERY_PORT"},
	{UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, "QUERY_PORT_OF_SWITCH"},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "QUERY_GID_ENTRY"},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, "QUERY_GID_TABLE"},
	{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT_ALLOC"},
	{UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, "PD_QUERY"},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, "QUERY_MR"},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CREATE_CQ"},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "DESTROY_CQ"},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "CREATE_QP"},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "DESTROY_QP"},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, "CREATE_SRQ"},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, "DESTROY_SRQ"},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR_ALLOC"},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR_DESTROY"},
};

static void add_command(struct line *line, uint32_t command)
{
	bool extended = command & IB_USER_VERBS_CMD_FLAG_EXTENDED;
	uint32_t i = command & ~IB_USER_VERBS_CMD_FLAG_EXTENDED;
	size_t n = extended ? ARRAY_SIZE(extended_names) : ARRAY_SIZE(command_names);
	const char *name = i >= n ? NULL : extended ? extended_names[i] : command_names[i];

	if (name)
		add(line, "command %s", name);
	else
		add(line, "command 0x%x", command);
}

static void add_method(struct line *line, uint16_t object, uint16_t method)
{
	for (size_t i = 0; i < ARRAY_SIZE(method_names); i++) {
		if (method_names[i].object != object || method_names[i].method != method)
			continue;
		add(line, "method %s", method_names[i].name);
		return;
	}
	add(line, "method 0x%x of object 0x%x", method, object);
}

void vhca_trace_command(const struct vhca_context *context, uint16_t object, uint16_t method,
	uint32_t command, int error, uint64_t ns)
{
	struct line line;

	begin(&line, context->device);
	if (object == UVERBS_OBJECT_DEVICE && method == UVERBS_METHOD_INVOKE_WRITE)
		add_command(&line, command);
	else
		add_method(&line, object, method);
	add(&line, ": %s, %llu.%03u us", error ? strerrorname_np(error) : "ok",
		(unsigned long long)(ns / 1000), (unsigned int)(ns % 1000));
	if (note.n)
		add(&line, ";%.*s", (int)note.n, note.text);
	note.n = 0;
	end(&line);
}

/* ---- WQEs ---- */

static const char *opcode_name(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_NOP: return "NOP";
	case MLX5_OPCODE_SEND_INVAL: return "SEND_INVAL";
	case MLX5_OPCODE_RDMA_WRITE: return "RDMA_WRITE";
	case MLX5_OPCODE_RDMA_WRITE_IMM: return "RDMA_WRITE_IMM";
	case MLX5_OPCODE_SEND: return "SEND";
	case MLX5_OPCODE_SEND_IMM: return "SEND_IMM";
	case MLX5_OPCODE_TSO: return "TSO";
	case MLX5_OPCODE_RDMA_READ: return "RDMA_READ";
	case MLX5_OPCODE_ATOMIC_CS: return "ATOMIC_CS";
	case MLX5_OPCODE_ATOMIC_FA: return "ATOMIC_FA";
	case MLX5_OPCODE_ATOMIC_MASKED_CS: return "ATOMIC_MASKED_CS";
	case MLX5_OPCODE_ATOMIC_MASKED_FA: return "ATOMIC_MASKED_FA";
	case MLX5_OPCODE_FMR: return "FMR";
	case MLX5_OPCODE_LOCAL_INVAL: return "LOCAL_INVAL";
	case MLX5_OPCODE_UMR: return "UMR";
	case VHCA_OPCODE_MULTI_PACKET: return "MULTI_PACKET";
	default: return NULL;
	}
}

static void add_opcode(struct line *line, uint8_t opcode)
{
	const char *name = opcode_name(opcode);

	if (name)
		add(line, " %s", name);
	else
		add(line, " opcode 0x%02x", opcode);
}

static void add_flags(struct line *line, const struct mlx5_wqe_ctrl_seg *ctrl)
{
	uint8_t fence = ctrl->fm_ce_se & 0xe0;

	if (ctrl->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
		add(line, " signalled");
	if (ctrl->fm_ce_se & MLX5_WQE_CTRL_SOLICITED)
		add(line, " solicited");
	if (fence)
		add(line, " fence %u", fence >> 5);
}

/* Everything below stays within the `n` units that the WQE has. */
static uint32_t add_datagram(struct line *line, const uint8_t *wqe, uint32_t at, uint32_t n)
{
	const struct mlx5_wqe_datagram_seg *seg = (const void *)(wqe + at * VHCA_SEGMENT);
	uint32_t units = sizeof(*seg) / VHCA_SEGMENT;

	if (at + units > n)
		return n;
	add(line, "; to qp 0x%x qkey 0x%x", from_be32(seg->av.dqp_dct) & 0xffffff,
		from_be32(seg->av.key.qkey.qkey));
	return at + units;
}

/* What its headers inline, or the tag that it inserts, and for which checksums it asks. */
static uint32_t add_ethernet(struct line *line, const uint8_t *wqe, uint32_t at, uint32_t n)
{
	const struct mlx5_wqe_eth_seg *seg = (const void *)(wqe + at * VHCA_SEGMENT);
	uint16_t size;

	if (at == n)
		return n;
	size = from_be16(seg->inline_hdr_sz);
	if (seg->cs_flags)
		add(line, "; checksums 0x%02x", seg->cs_flags);
	if (size & VHCA_ETH_INSERT)
		add(line, "; tag 0x%02x%02x", seg->inline_hdr_start[0], seg->inline_hdr_start[1]);
	else if (size)
		add(line, "; headers %u", size);
	if (size & VHCA_ETH_INSERT || size <= 2)
		return at + 1;
	return min(n, at + 1 + (size - 2u + VHCA_SEGMENT - 1) / VHCA_SEGMENT);
}

static uint32_t add_remote(struct line *line, const uint8_t *wqe, uint32_t at, uint32_t n)
{
	const struct mlx5_wqe_raddr_seg *seg = (const void *)(wqe + at * VHCA_SEGMENT);

	if (at == n)
		return n;
	add(line, "; rkey 0x%x raddr 0x%llx", from_be32(seg->rkey),
		(unsigned long long)from_be64(seg->raddr));
	return at + 1;
}

static uint32_t add_atomic(struct line *line, const uint8_t *wqe, uint32_t at, uint32_t n)
{
	const struct mlx5_wqe_atomic_seg *seg = (const void *)(wqe + at * VHCA_SEGMENT);

	if (at == n)
		return n;
	add(line, "; swap_add 0x%llx compare 0x%llx", (unsigned long long)from_be64(seg->swap_add),
		(unsigned long long)from_be64(seg->compare));
	return at + 1;
}

static void add_data(struct line *line, const uint8_t *wqe, uint32_t at, uint32_t n)
{
	while (at < n) {
		const struct mlx5_wqe_data_seg *seg = (const void *)(wqe + at * VHCA_SEGMENT);
		uint32_t count = from_be32(seg->byte_count);

		if (count & MLX5_INLINE_SEG) {
			count &= ~(uint32_t)MLX5_INLINE_SEG;
			add(line, "; inline %u", count);
			at += (count + 4 + VHCA_SEGMENT - 1) / VHCA_SEGMENT;
			continue;
		}
		add(line, "; lkey 0x%x addr 0x%llx %u", from_be32(seg->lkey),
			(unsigned long long)from_be64(seg->addr), count);
		at++;
	}
}

static void add_segments(
	struct line *line, const struct vhca_qp *qp, const uint8_t *wqe, uint32_t n, uint8_t opcode)
{
	uint32_t at = 1;

	if (qp->type == IBV_QPT_UD && opcode != MLX5_OPCODE_NOP)
		at = add_datagram(line, wqe, at, n);
	if (qp->type == IBV_QPT_RAW_PACKET && opcode != MLX5_OPCODE_NOP)
		at = add_ethernet(line, wqe, at, n);
	switch (opcode) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
	case MLX5_OPCODE_RDMA_READ: at = add_remote(line, wqe, at, n); break;
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		at = add_remote(line, wqe, at, n);
		at = add_atomic(line, wqe, at, n);
		break;
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case VHCA_OPCODE_MULTI_PACKET: break;
	default: return;
	}
	add_data(line, wqe, at, n);
}

void vhca_trace_wqe(const struct vhca_qp *qp, const void *wqe, uint32_t n_segments, uint16_t index)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = wqe;
	uint8_t opcode = (uint8_t)from_be32(ctrl->opmod_idx_opcode);
	struct line line;

	begin(&line, qp->object.context->device);
	add(&line, "qp 0x%x wqe %u", qp->number, index);
	add_opcode(&line, opcode);
	add(&line, " ds %u", n_segments);
	add_flags(&line, ctrl);
	add_segments(&line, qp, wqe, min(n_segments, 63u), opcode);
	end(&line);
}

/* A stride's segments end with one of an invalid key, or with the stride. */
static void add_receive(struct line *line, const uint8_t *segments, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mlx5_wqe_data_seg seg;

		vhca_memory_read(&seg, segments + (size_t)i * VHCA_SEGMENT, sizeof(seg));
		if (seg.lkey == be32(MLX5_INVALID_LKEY) && !seg.byte_count)
			return;
		add(line, "; lkey 0x%x addr 0x%llx %u", from_be32(seg.lkey),
			(unsigned long long)from_be64(seg.addr), from_be32(seg.byte_count));
	}
}

void vhca_trace_receive(
	const struct vhca_qp *qp, uint16_t index, const void *segments, uint32_t n_segments)
{
	struct line line;

	begin(&line, qp->object.context->device);
	if (qp->srq)
		add(&line, "srq 0x%x for qp 0x%x receive %u", qp->srq->number, qp->number, index);
	else
		add(&line, "qp 0x%x receive %u", qp->number, index);
	add_receive(&line, segments, n_segments);
	end(&line);
}

/* ---- CQEs ---- */

static void add_error(struct line *line, const struct mlx5_err_cqe *error)
{
	static const char *const syndromes[] = {
		[MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR] = "local length",
		[MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR] = "local QP operation",
		[MLX5_CQE_SYNDROME_LOCAL_PROT_ERR] = "local protection",
		[MLX5_CQE_SYNDROME_WR_FLUSH_ERR] = "flushed",
		[MLX5_CQE_SYNDROME_MW_BIND_ERR] = "memory window bind",
		[MLX5_CQE_SYNDROME_BAD_RESP_ERR] = "bad response",
		[MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR] = "local access",
		[MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR] = "remote invalid request",
		[MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR] = "remote access",
		[MLX5_CQE_SYNDROME_REMOTE_OP_ERR] = "remote operation",
		[MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR] = "transport retries exceeded",
		[MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR] = "RNR retries exceeded",
		[MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR] = "remote aborted",
	};
	const char *name =
		error->syndrome < ARRAY_SIZE(syndromes) ? syndromes[error->syndrome] : NULL;

	add(line, " syndrome 0x%02x (%s) vendor 0x%02x", error->syndrome, name ? name : "unknown",
		error->vendor_err_synd);
}

static const char *cqe_name(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_CQE_REQ: return "REQ";
	case MLX5_CQE_RESP_WR_IMM: return "RESP_WR_IMM";
	case MLX5_CQE_RESP_SEND: return "RESP_SEND";
	case MLX5_CQE_RESP_SEND_IMM: return "RESP_SEND_IMM";
	case MLX5_CQE_RESP_SEND_INV: return "RESP_SEND_INV";
	case MLX5_CQE_RESIZE_CQ: return "RESIZE_CQ";
	case MLX5_CQE_REQ_ERR: return "REQ_ERR";
	case MLX5_CQE_RESP_ERR: return "RESP_ERR";
	default: return "?";
	}
}

void vhca_trace_cqe(const struct vhca_cq *cq, const void *bytes, uint8_t op_own,
	uint16_t wqe_counter, uint32_t index)
{
	const struct mlx5_cqe64 *cqe = bytes;
	uint8_t opcode = op_own >> 4;
	uint32_t qpn = from_be32(cqe->sop_drop_qpn);
	struct line line;

	begin(&line, cq->object.context->device);
	add(&line, "cq 0x%x cqe %u %s", cq->number, index, cqe_name(opcode));
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		add_error(&line, bytes);
	else if (opcode == MLX5_CQE_REQ)
		add_opcode(&line, (uint8_t)(qpn >> 24));
	if (opcode != MLX5_CQE_RESIZE_CQ)
		add(&line, " qp 0x%x wqe %u", qpn & 0xffffff, wqe_counter);
	if (opcode <= MLX5_CQE_RESP_SEND_INV)
		add(&line, " %u bytes", from_be32(cqe->byte_cnt));
	if (op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64))
		add(&line, " in the CQE");
	end(&line);
}

/* ---- doorbells ---- */

void vhca_trace_doorbell(
	const struct vhca_page *page, uint32_t offset, uint32_t number, uint32_t index)
{
	bool arms = offset == MLX5_CQ_DOORBELL;
	struct line line;

	begin(&line, page->uar.object.context->device);
	add(&line, "uar %u doorbell 0x%x %s 0x%x %s %u", page->uar.page, offset, arms ? "cq" : "qp",
		number, arms ? "from cqe" : "wqe", index);
	end(&line);
}

void vhca_trace_send_record(const struct vhca_qp *qp, uint16_t index)
{
	struct line line;

	begin(&line, qp->object.context->device);
	add(&line, "qp 0x%x send record %u", qp->number, index);
	end(&line);
}

void vhca_trace_arm(const struct vhca_cq *cq, uint32_t record)
{
	struct line line;

	begin(&line, cq->object.context->device);
	add(&line, "cq 0x%x armed%s from cqe %u, sequence %u", cq->number,
		record & MLX5_CQ_DB_REQ_NOT_SOL ? " for solicited" : "", record & 0xffffff,
		record >> 28);
	end(&line);
}

void vhca_trace_port(const struct vhca_device *device, const char *what)
{
	struct line line;

	begin(&line, device);
	add(&line, "port %s", what);
	end(&line);
}
