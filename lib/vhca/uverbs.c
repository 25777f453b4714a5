/* uverbs.c - RDMA_VERBS_IOCTL: attributes, handles, completion channels, native methods
 *
 * A method is a row of a table with the attributes it knows; one function checks what the program
 * sent against it as the kernel does, so that a method's own code sees only what is there and long
 * enough. What is not in the table is answered EPROTONOSUPPORT, upon which libibverbs tries
 * INVOKE_WRITE.
 */
#include "front.h"

#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- the program's memory ---- */

enum direction { IN, OUT };

/* By system call rather than by access, so that a bad address is an EFAULT and no SIGSEGV; where a
 * sandbox forbids the call, by access. */
static int copy(void *ours, uint64_t theirs, size_t size, enum direction direction)
{
	struct iovec local = {.iov_base = ours, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)theirs, .iov_len = size};
	int saved = errno;
	ssize_t n;

	if (!size)
		return 0;
	n = direction == IN ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0)
			    : process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	if (n == (ssize_t)size)
		return 0;
	if (n >= 0 || (errno != ENOSYS && errno != EPERM)) {
		errno = saved;
		return EFAULT;
	}
	errno = saved;
	if (direction == IN)
		memcpy(ours, remote.iov_base, size);
	else
		memcpy(remote.iov_base, ours, size);
	return 0;
}

int vhca_copy_in(void *to, uint64_t from, size_t size)
{
	return copy(to, from, size, IN);
}

int vhca_copy_out(uint64_t to, const void *from, size_t size)
{
	return copy((void *)(uintptr_t)from, to, size, OUT);
}

static int tail_is_zero(const struct vhca_span *span, size_t from)
{
	static const uint8_t zero[64];
	uint8_t chunk[64];

	while (from < span->size) {
		size_t n = min(span->size - from, sizeof(chunk));
		int error = vhca_copy_in(chunk, span->address + from, n);

		if (error)
			return error;
		if (memcmp(chunk, zero, n))
			return EOPNOTSUPP;
		from += n;
	}
	return 0;
}

int vhca_span_read(const struct vhca_span *span, void *to, size_t size)
{
	size_t n = min(span->size, size);

	memset(to, 0, size);
	if (!span->present)
		return 0;
	if (!span->inlined)
		return vhca_copy_in(to, span->address, n) ?: tail_is_zero(span, size);
	memcpy(to, &span->address, n);
	return 0;
}

int vhca_span_write(const struct vhca_span *span, const void *from, size_t size)
{
	static const uint8_t zero[64];
	size_t n = min(span->size, size);
	int error;

	if (!span->present)
		return 0;
	error = vhca_copy_out(span->address, from, n);
	while (!error && n < span->size) {
		size_t more = min(span->size - n, sizeof(zero));

		error = vhca_copy_out(span->address + n, zero, more);
		n += more;
	}
	return error;
}

/* Whether all of an output can be written, without changing it: it may also be an input. Once
 * known, nothing has to be undone for an answer that does not arrive. */
static int probe_out(uint64_t address, size_t size)
{
	uint64_t end = address + size;
	uint8_t byte;
	int error = 0;

	while (!error && address < end) {
		error = vhca_copy_in(&byte, address, 1) ?: vhca_copy_out(address, &byte, 1);
		address = (address | (VHCA_PAGE - 1)) + 1;
	}
	return error || !size ? error : vhca_copy_in(&byte, end - 1, 1);
}

/* ---- handles ---- */

int vhca_handle_add(struct vhca_context *context, void *object, uint32_t *number)
{
	struct vhca_handles *handles = context->handles;
	struct vhca_object **grown;
	uint32_t n;

	for (uint32_t i = 0; i < handles->n; i++) {
		if (handles->objects[i])
			continue;
		handles->objects[i] = object;
		*number = i + 1;
		return 0;
	}
	n = handles->n ? handles->n * 2 : 64;
	grown = n > 1u << 24 ? NULL
			     : reallocarray(handles->objects, n, sizeof(struct vhca_object *));
	if (!grown)
		return ENOMEM;
	memset(grown + handles->n, 0, (n - handles->n) * sizeof(struct vhca_object *));
	grown[handles->n] = object;
	*number = handles->n + 1;
	handles->objects = grown;
	handles->n = n;
	return 0;
}

void *vhca_handle_find(struct vhca_context *context, uint32_t number, enum vhca_kind kind)
{
	const struct vhca_handles *handles = context->handles;
	struct vhca_object *object = number - 1 < handles->n ? handles->objects[number - 1] : NULL;

	return object && object->kind == kind ? object : NULL;
}

int vhca_handle_destroy(struct vhca_context *context, uint32_t number, enum vhca_kind kind)
{
	struct vhca_object *object = vhca_handle_find(context, number, kind);
	int error;

	if (!object)
		return EINVAL;
	error = vhca_object_destroy(object);
	if (!error)
		context->handles->objects[number - 1] = NULL;
	return error;
}

static int handles_need(struct vhca_context *context)
{
	struct vhca_handles *handles;

	if (context->handles)
		return 0;
	handles = calloc(1, sizeof(*handles));
	if (!handles)
		return ENOMEM;
	handles->async_fd = -1;
	context->handles = handles;
	return 0;
}

/* ---- completion channels ---- */

/* Between a channel's last close and its context's. Taken before a device's lock. */
static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;

/* Ends channels that have neither a descriptor nor a CQ left. */
static void channels_sweep(struct vhca_context *context)
{
	struct vhca_channel_file **at = &context->handles->channels;

	while (*at) {
		struct vhca_channel_file *file = *at;

		if (!file->closed || vhca_object_destroy(&file->channel->object)) {
			at = &file->next;
			continue;
		}
		*at = file->next;
		free(file);
	}
}

void vhca_channel_close(struct vhca_channel_file *file)
{
	struct vhca_context *context;

	pthread_mutex_lock(&channels_lock);
	context = file->context;
	if (context) {
		vhca_lock(context->device);
		file->closed = true;
		channels_sweep(context);
		vhca_unlock(context->device);
	} else {
		free(file);
	}
	pthread_mutex_unlock(&channels_lock);
}

int vhca_channel_make(struct vhca_context *context, int *program_fd)
{
	struct vhca_channel_file *file = calloc(1, sizeof(*file));
	int error;

	if (!file)
		return ENOMEM;
	error = vhca_channel_create(context, program_fd, &file->channel);
	if (error)
		goto no_channel;
	error = vhca_fd_is_channel(*program_fd, file);
	if (error)
		goto no_fd;
	file->context = context;
	file->next = context->handles->channels;
	context->handles->channels = file;
	return 0;

no_fd:
	close(*program_fd);
	vhca_object_destroy(&file->channel->object);
no_channel:
	free(file);
	return error;
}

int vhca_async_make(struct vhca_context *context, int *program_fd)
{
	struct vhca_handles *handles = context->handles;
	int error;

	if (handles->async_fd < 0) {
		error = vhca_async_create(context, program_fd);
		if (!error)
			handles->async_fd = fcntl(*program_fd, F_DUPFD_CLOEXEC, 0);
		return error;
	}
	*program_fd = fcntl(handles->async_fd, F_DUPFD_CLOEXEC, 0);
	return *program_fd < 0 ? errno : 0;
}

/* ---- the end of a context ---- */

void vhca_context_close(struct vhca_context *context)
{
	struct vhca_handles *handles = context->handles;
	struct vhca_channel_file *file;

	pthread_mutex_lock(&channels_lock);
	while (handles && (file = handles->channels)) {
		handles->channels = file->next;
		file->context = NULL;
		file->channel = NULL;
		if (file->closed)
			free(file);
	}
	pthread_mutex_unlock(&channels_lock);
	vhca_context_destroy(context);
	if (!handles)
		return;
	if (handles->async_fd >= 0)
		close(handles->async_fd);
	free(handles->objects);
	free(handles);
}

/* ---- attributes ---- */

#define MAX_ATTRS 32

enum attr_kind {
	ATTR_IN,     /* a structure: a pointer, or inlined up to 8 bytes */
	ATTR_OUT,    /* a pointer to what is written */
	ATTR_HANDLE, /* the number of an object */
	ATTR_NEW,    /* the number of a new object is written to it */
};

enum { OPTIONAL, REQUIRED };

struct attr_spec {
	uint16_t id;
	uint8_t kind;
	uint8_t required;
	uint16_t size; /* at least so many bytes */
};

struct call {
	struct vhca_request request;
	uint64_t header; /* the program's address */
	struct ib_uverbs_attr attrs[MAX_ATTRS];
	unsigned int n;
	const struct attr_spec *specs;
	int found[16]; /* by spec: which of attrs; -1 is absent */
};

struct method {
	uint16_t object, method;
	int (*run)(struct call *call);
	struct attr_spec specs[17]; /* ends with a size and an id of 0, kind ATTR_IN, optional */
	uint8_t n;
};

static bool attr_given(const struct call *call, unsigned int spec)
{
	return call->found[spec] >= 0;
}

static struct vhca_span attr_span(const struct call *call, unsigned int spec)
{
	struct vhca_span span = {.present = false};

	if (attr_given(call, spec)) {
		const struct ib_uverbs_attr *attr = &call->attrs[call->found[spec]];

		span.present = true;
		span.address = attr->data;
		span.size = attr->len;
		span.inlined = call->specs[spec].kind == ATTR_IN && attr->len <= sizeof(attr->data);
	}
	return span;
}

static int attr_read(const struct call *call, unsigned int spec, void *to, size_t size)
{
	struct vhca_span span = attr_span(call, spec);

	return vhca_span_read(&span, to, size);
}

/* A number of at most 8 bytes; 0 where absent. */
static uint64_t attr_number(const struct call *call, unsigned int spec)
{
	struct vhca_span span = attr_span(call, spec);
	uint64_t number = 0;

	if (span.present)
		memcpy(&number, &span.address, min(span.size, sizeof(number)));
	return number;
}

static uint32_t attr_handle(const struct call *call, unsigned int spec)
{
	uint64_t data = attr_given(call, spec) ? call->attrs[call->found[spec]].data : 0;

	return data > UINT32_MAX ? 0 : (uint32_t)data;
}

static int attr_write(const struct call *call, unsigned int spec, const void *from, size_t size)
{
	struct vhca_span span = attr_span(call, spec);

	return vhca_span_write(&span, from, size);
}

/* Writes a number back into the attribute itself, as new objects and descriptors are. */
static int attr_return(const struct call *call, unsigned int spec, uint64_t data)
{
	uint64_t at = call->header + offsetof(struct ib_uverbs_ioctl_hdr, attrs) +
		(unsigned int)call->found[spec] * sizeof(struct ib_uverbs_attr);

	return vhca_copy_out(at + offsetof(struct ib_uverbs_attr, data), &data, sizeof(data));
}

static int attr_check(struct call *call, unsigned int i, const struct attr_spec *spec)
{
	const struct ib_uverbs_attr *attr = &call->attrs[i];

	switch (spec->kind) {
	case ATTR_HANDLE:
	case ATTR_NEW: return attr->len ? EINVAL : 0;
	case ATTR_OUT: return attr->len < spec->size ? EINVAL : probe_out(attr->data, attr->len);
	default: return attr->len < spec->size ? EINVAL : 0;
	}
}

/* Finds each attribute's spec, checks it, and that none is missing. */
static int attrs_match(struct call *call, const struct method *method)
{
	call->specs = method->specs;
	for (unsigned int spec = 0; spec < method->n; spec++)
		call->found[spec] = -1;
	for (unsigned int i = 0; i < call->n; i++) {
		unsigned int spec = 0;
		int error;

		while (spec < method->n && method->specs[spec].id != call->attrs[i].attr_id)
			spec++;
		if (spec == method->n) {
			if (call->attrs[i].flags & UVERBS_ATTR_F_MANDATORY)
				return EPROTONOSUPPORT;
			continue;
		}
		if (call->found[spec] >= 0)
			return EINVAL;
		error = attr_check(call, i, &method->specs[spec]);
		if (error)
			return error;
		call->found[spec] = (int)i;
	}
	for (unsigned int spec = 0; spec < method->n; spec++)
		if (method->specs[spec].required && !attr_given(call, spec))
			return EINVAL;
	return 0;
}

/* Tells libibverbs under valgrind which outputs have been written. */
static void attrs_mark_outputs(const struct call *call, const struct method *method)
{
	for (unsigned int spec = 0; spec < method->n; spec++) {
		uint64_t at;
		uint16_t flags;

		if (method->specs[spec].kind != ATTR_OUT || !attr_given(call, spec))
			continue;
		flags = call->attrs[call->found[spec]].flags | UVERBS_ATTR_F_VALID_OUTPUT;
		at = call->header + offsetof(struct ib_uverbs_ioctl_hdr, attrs) +
			(unsigned int)call->found[spec] * sizeof(struct ib_uverbs_attr);
		vhca_copy_out(at + offsetof(struct ib_uverbs_attr, flags), &flags, sizeof(flags));
	}
}

/* ---- methods ---- */

enum { INVOKE_IN, INVOKE_OUT, INVOKE_COMMAND, INVOKE_UHW_IN, INVOKE_UHW_OUT };

static int invoke_write(struct call *call)
{
	call->request.in = attr_span(call, INVOKE_IN);
	call->request.out = attr_span(call, INVOKE_OUT);
	call->request.uhw_in = attr_span(call, INVOKE_UHW_IN);
	call->request.uhw_out = attr_span(call, INVOKE_UHW_OUT);
	return vhca_command(&call->request, (uint32_t)attr_number(call, INVOKE_COMMAND));
}

enum { CONTEXT_VECTORS, CONTEXT_SUPPORT, CONTEXT_UHW_IN, CONTEXT_UHW_OUT };

static int answer_core(struct call *call)
{
	uint64_t support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
	uint32_t n_vectors = vhca_n_vectors();

	return attr_write(call, CONTEXT_VECTORS, &n_vectors, sizeof(n_vectors))
		?: attr_write(call, CONTEXT_SUPPORT, &support, sizeof(support));
}

static int get_context(struct call *call)
{
	int error;

	if (call->request.context->handles->opened)
		return EINVAL;
	call->request.uhw_in = attr_span(call, CONTEXT_UHW_IN);
	call->request.uhw_out = attr_span(call, CONTEXT_UHW_OUT);
	error = vhca_answer_context(&call->request) ?: answer_core(call);
	call->request.context->handles->opened = !error;
	return error;
}

enum { AGAIN_UCTX = CONTEXT_SUPPORT + 1 };

static int query_context(struct call *call)
{
	struct vhca_span out = attr_span(call, AGAIN_UCTX);

	return vhca_answer_context_again(&call->request, &out) ?: answer_core(call);
}

static int query_port(struct call *call)
{
	struct ib_uverbs_query_port_resp_ex resp = {.port_cap_flags2 = 0};

	if (attr_number(call, 0) != 1)
		return EINVAL;
	vhca_answer_port(call->request.context->device, &resp.legacy_resp);
	return attr_write(call, 1, &resp, sizeof(resp));
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

static int query_gid_entry(struct call *call)
{
	struct ib_uverbs_gid_entry entry;
	uint64_t index = attr_number(call, 1);

	if (attr_number(call, 0) != 1 || attr_number(call, 2) || index >= VHCA_N_GIDS)
		return EINVAL;
	if (!gid_entry(call->request.context->device, (uint32_t)index, &entry))
		return ENODATA;
	return attr_write(call, 3, &entry, sizeof(entry));
}

static int query_gid_table(struct call *call)
{
	uint64_t size = attr_number(call, 0), n = 0;
	struct vhca_span out = attr_span(call, 2);
	struct ib_uverbs_gid_entry entry;
	int error;

	if (size < sizeof(entry) || size > UINT16_MAX || attr_number(call, 1))
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
	return attr_write(call, 3, &n, sizeof(n));
}

static int async_event_alloc(struct call *call)
{
	int fd, error = vhca_async_make(call->request.context, &fd);

	return error ?: attr_return(call, 0, (uint64_t)fd);
}

static int pd_query(struct call *call)
{
	const struct vhca_pd *pd =
		vhca_handle_find(call->request.context, attr_handle(call, 0), VHCA_PD);

	return pd ? attr_write(call, 1, &pd->pdn, sizeof(pd->pdn)) : ENOENT;
}

static int query_mr(struct call *call)
{
	const struct vhca_mr *mr =
		vhca_handle_find(call->request.context, attr_handle(call, 0), VHCA_MR);

	if (!mr)
		return ENOENT;
	return attr_write(call, 1, &mr->key, sizeof(mr->key)) ?:
	       attr_write(call, 2, &mr->key, sizeof(mr->key)) ?:
	       attr_write(call, 3, &mr->length, sizeof(mr->length)) ?:
	       attr_write(call, 4, &mr->iova, sizeof(mr->iova));
}

static int uar_alloc(struct call *call)
{
	struct vhca_context *context = call->request.context;
	uint32_t length = VHCA_PAGE, handle;
	struct vhca_uar *uar;
	uint64_t offset;
	int error;

	if (attr_number(call, 1) > 1)
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
	return attr_return(call, 0, handle) ?: attr_write(call, 2, &offset, sizeof(offset)) ?:
	       attr_write(call, 3, &length, sizeof(length)) ?:
	       attr_write(call, 4, &uar->page, sizeof(uar->page));
}

static int uar_destroy(struct call *call)
{
	return vhca_handle_destroy(call->request.context, attr_handle(call, 0), VHCA_UAR);
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

static int cq_create(struct call *call)
{
	struct ib_uverbs_create_cq_resp resp;
	struct ib_uverbs_ex_create_cq cmd = {
		.user_handle = attr_number(call, CQ_USER),
		.cqe = (uint32_t)attr_number(call, CQ_CQE),
		.comp_vector = (uint32_t)attr_number(call, CQ_VECTOR),
		.comp_channel =
			attr_given(call, CQ_CHANNEL) ? (int)attr_handle(call, CQ_CHANNEL) : -1,
		.flags = (uint32_t)attr_number(call, CQ_FLAGS),
	};
	int error;

	call->request.uhw_in = attr_span(call, CQ_UHW_IN);
	call->request.uhw_out = attr_span(call, CQ_UHW_OUT);
	error = vhca_make_cq(&call->request, &cmd, &resp);
	return error ?: attr_return(call, CQ_HANDLE, resp.cq_handle) ?:
			attr_write(call, CQ_RESP_CQE, &resp.cqe, sizeof(resp.cqe));
}

static int cq_destroy(struct call *call)
{
	struct ib_uverbs_destroy_cq_resp resp;

	return vhca_end_cq(&call->request, attr_handle(call, 0), &resp.comp_events_reported,
		       &resp.async_events_reported)
		?: attr_write(call, 1, &resp, sizeof(resp));
}

enum {
	QP_HANDLE,
	QP_PD,
	QP_SRQ,
	QP_SEND_CQ,
	QP_RECV_CQ,
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

static int qp_create(struct call *call)
{
	struct ib_uverbs_create_qp_resp resp;
	struct ib_uverbs_ex_create_qp cmd = {
		.user_handle = attr_number(call, QP_USER),
		.pd_handle = attr_handle(call, QP_PD),
		.send_cq_handle = attr_handle(call, QP_SEND_CQ),
		.recv_cq_handle = attr_handle(call, QP_RECV_CQ),
		.srq_handle = attr_handle(call, QP_SRQ),
		.is_srq = attr_given(call, QP_SRQ),
	};
	uint64_t flags = attr_number(call, QP_FLAGS), type = attr_number(call, QP_TYPE);
	struct ib_uverbs_qp_cap cap;
	int error = attr_read(call, QP_CAP, &cap, sizeof(cap));

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
	call->request.uhw_in = attr_span(call, QP_UHW_IN);
	call->request.uhw_out = attr_span(call, QP_UHW_OUT);
	error = vhca_make_qp(&call->request, &cmd, &resp);
	return error ?: attr_return(call, QP_HANDLE, resp.qp_handle) ?:
			attr_write(call, QP_RESP_CAP, &cap, sizeof(cap)) ?:
			attr_write(call, QP_RESP_NUMBER, &resp.qpn, sizeof(resp.qpn));
}

static int qp_destroy(struct call *call)
{
	struct ib_uverbs_destroy_qp_resp resp;

	return vhca_end_qp(&call->request, attr_handle(call, 0), &resp.events_reported)
		?: attr_write(call, 1, &resp, sizeof(resp));
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

static int srq_create(struct call *call)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ib_uverbs_create_xsrq cmd = {
		.user_handle = attr_number(call, SRQ_USER),
		.srq_type = (uint32_t)min(attr_number(call, SRQ_TYPE), (uint64_t)UINT32_MAX),
		.pd_handle = attr_handle(call, SRQ_PD),
		.max_wr = (uint32_t)attr_number(call, SRQ_MAX_WR),
		.max_sge = (uint32_t)attr_number(call, SRQ_MAX_SGE),
		.srq_limit = (uint32_t)attr_number(call, SRQ_LIMIT),
	};
	int error;

	call->request.uhw_in = attr_span(call, SRQ_UHW_IN);
	call->request.uhw_out = attr_span(call, SRQ_UHW_OUT);
	error = vhca_make_srq(&call->request, &cmd, &resp);
	return error ?: attr_return(call, SRQ_HANDLE, resp.srq_handle) ?:
			attr_write(call, SRQ_RESP_MAX_WR, &resp.max_wr, sizeof(resp.max_wr)) ?:
			attr_write(call, SRQ_RESP_MAX_SGE, &resp.max_sge, sizeof(resp.max_sge));
}

static int srq_destroy(struct call *call)
{
	struct ib_uverbs_destroy_srq_resp resp;

	return vhca_end_srq(&call->request, attr_handle(call, 0), &resp.events_reported)
		?: attr_write(call, 1, &resp, sizeof(resp));
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
static const struct method methods[] = {
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
		14},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, qp_destroy,
		{{UVERBS_ATTR_DESTROY_QP_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_DESTROY_QP_RESP, ATTR_OUT, REQUIRED,
				sizeof(struct ib_uverbs_destroy_qp_resp)}},
		2},
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

/* ---- the ioctl ---- */

static const struct method *find_method(uint16_t object, uint16_t method)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (methods[i].object == object && methods[i].method == method)
			return &methods[i];
	return NULL;
}

/* Before GET_CONTEXT only these have an answer. */
static bool needs_context(const struct method *method)
{
	return method->run != invoke_write && method->run != get_context;
}

static int read_header(struct call *call, const struct method **method)
{
	struct ib_uverbs_ioctl_hdr header;
	int error = vhca_copy_in(&header, call->header, sizeof(header));

	if (error)
		return error;
	if (header.length != sizeof(header) + header.num_attrs * sizeof(struct ib_uverbs_attr))
		return EINVAL;
	if (header.reserved1 || header.reserved2)
		return EPROTONOSUPPORT;
	*method = find_method(header.object_id, header.method_id);
	if (!*method)
		return EPROTONOSUPPORT;
	if (header.num_attrs > MAX_ATTRS)
		return EINVAL;
	call->n = header.num_attrs;
	return vhca_copy_in(
		call->attrs, call->header + sizeof(header), call->n * sizeof(call->attrs[0]));
}

int vhca_ioctl(struct vhca_context *context, void *argument)
{
	struct call call = {.request.context = context, .header = (uintptr_t)argument};
	const struct method *method;
	int error;

	error = read_header(&call, &method);
	if (error)
		return error;
	error = attrs_match(&call, method);
	if (error)
		return error;
	vhca_lock(context->device);
	error = handles_need(context);
	if (!error && needs_context(method) && !context->handles->opened)
		error = EINVAL;
	if (!error)
		error = method->run(&call);
	if (!error)
		channels_sweep(context);
	vhca_unlock(context->device);
	if (call.request.held)
		vhca_file_put(call.request.held);
	if (!error)
		attrs_mark_outputs(&call, method);
	return error;
}
