/* uverbs.c - RDMA_VERBS_IOCTL: the program's memory, attributes, dispatch
 *
 * A method is a row of a table with the attributes it knows; one function checks what the program
 * sent against it as the kernel does, so that a method's own code sees only what is there and long
 * enough. What is not in the table is answered EPROTONOSUPPORT, upon which libibverbs tries
 * INVOKE_WRITE.
 */
#include "uverbs.h"

#include "vhca/doze.h"
#include "vhca/guard.h"
#include "vhca/trace.h"
#include "vhca/trap.h"

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

/* ---- attributes ---- */

bool vhca_attr_given(const struct vhca_call *call, unsigned int spec)
{
	return call->found[spec] >= 0;
}

struct vhca_span vhca_attr_span(const struct vhca_call *call, unsigned int spec)
{
	struct vhca_span span = {.present = false};

	if (vhca_attr_given(call, spec)) {
		const struct ib_uverbs_attr *attr = &call->attrs[call->found[spec]];

		span.present = true;
		span.address = attr->data;
		span.size = attr->len;
		span.inlined = call->specs[spec].kind == ATTR_IN && attr->len <= sizeof(attr->data);
	}
	return span;
}

uint8_t vhca_attr_element(const struct vhca_call *call, unsigned int spec)
{
	return vhca_attr_given(call, spec)
		? call->attrs[call->found[spec]].attr_data.enum_data.elem_id
		: 0;
}

int vhca_attr_read(const struct vhca_call *call, unsigned int spec, void *to, size_t size)
{
	struct vhca_span span = vhca_attr_span(call, spec);

	return vhca_span_read(&span, to, size);
}

/* A number of at most 8 bytes; 0 where absent. */
uint64_t vhca_attr_number(const struct vhca_call *call, unsigned int spec)
{
	struct vhca_span span = vhca_attr_span(call, spec);
	uint64_t number = 0;

	if (span.present)
		memcpy(&number, &span.address, min(span.size, sizeof(number)));
	return number;
}

uint32_t vhca_attr_handle(const struct vhca_call *call, unsigned int spec)
{
	uint64_t data = vhca_attr_given(call, spec) ? call->attrs[call->found[spec]].data : 0;

	return data > UINT32_MAX ? 0 : (uint32_t)data;
}

int vhca_attr_write(const struct vhca_call *call, unsigned int spec, const void *from, size_t size)
{
	struct vhca_span span = vhca_attr_span(call, spec);

	return vhca_span_write(&span, from, size);
}

/* Writes a number back into the attribute itself, as new objects and descriptors are. */
int vhca_attr_return(const struct vhca_call *call, unsigned int spec, uint64_t data)
{
	uint64_t at = call->header + offsetof(struct ib_uverbs_ioctl_hdr, attrs) +
		(unsigned int)call->found[spec] * sizeof(struct ib_uverbs_attr);

	return vhca_copy_out(at + offsetof(struct ib_uverbs_attr, data), &data, sizeof(data));
}

static int attr_check(struct vhca_call *call, unsigned int i, const struct vhca_attr_spec *spec)
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
static int attrs_match(struct vhca_call *call, const struct vhca_method *method)
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
		if (method->specs[spec].required && !vhca_attr_given(call, spec))
			return EINVAL;
	return 0;
}

/* Tells libibverbs under valgrind which outputs have been written. */
static void attrs_mark_outputs(const struct vhca_call *call, const struct vhca_method *method)
{
	for (unsigned int spec = 0; spec < method->n; spec++) {
		uint64_t at;
		uint16_t flags;

		if (method->specs[spec].kind != ATTR_OUT || !vhca_attr_given(call, spec))
			continue;
		flags = call->attrs[call->found[spec]].flags | UVERBS_ATTR_F_VALID_OUTPUT;
		at = call->header + offsetof(struct ib_uverbs_ioctl_hdr, attrs) +
			(unsigned int)call->found[spec] * sizeof(struct ib_uverbs_attr);
		vhca_copy_out(at + offsetof(struct ib_uverbs_attr, flags), &flags, sizeof(flags));
	}
}

/* ---- the ioctl ---- */

static int read_header(struct vhca_call *call, const struct vhca_method **method)
{
	struct ib_uverbs_ioctl_hdr header;
	int error = vhca_copy_in(&header, call->header, sizeof(header));

	if (error)
		return error;
	if (header.length != sizeof(header) + header.num_attrs * sizeof(struct ib_uverbs_attr))
		return EINVAL;
	if (header.reserved1 || header.reserved2)
		return EPROTONOSUPPORT;
	*method = vhca_method_find(header.object_id, header.method_id);
	if (!*method)
		return EPROTONOSUPPORT;
	if (header.num_attrs > VHCA_MAX_ATTRS)
		return EINVAL;
	call->n = header.num_attrs;
	return vhca_copy_in(
		call->attrs, call->header + sizeof(header), call->n * sizeof(call->attrs[0]));
}

/* A command may look at a queue's record, which the program may have unmapped. */
static int run_guarded(struct vhca_call *call, const struct vhca_method *method)
{
	struct vhca_guard guard;
	int error;

	if (likely(!vhca_guarded(&guard))) {
		error = method->run(call);
	} else {
		vhca_queue_lost(call->request.context->device, guard.address);
		error = EFAULT;
	}
	vhca_unguarded(&guard);
	return error;
}

static int execute(struct vhca_call *call, const struct vhca_method *method)
{
	struct vhca_context *context = call->request.context;
	int error = attrs_match(call, method);

	if (error)
		return error;
	vhca_command_begin();
	vhca_lock(context->device);
	error = vhca_handles_need(context);
	if (!error && vhca_method_needs_context(method) && !context->handles->opened)
		error = EINVAL;
	if (!error && unlikely(context->device->fatal) && !vhca_call_outlives_device(call, method))
		error = EIO;
	if (!error)
		error = run_guarded(call, method);
	if (!error)
		vhca_channels_sweep(context);
	vhca_doze_pages_changed();
	vhca_unlock(context->device);
	vhca_command_end();
	if (!error)
		attrs_mark_outputs(call, method);
	return error;
}

int vhca_ioctl(struct vhca_context *context, void *argument)
{
	struct vhca_call call = {.request.context = context, .header = (uintptr_t)argument};
	uint64_t began = unlikely(vhca_trace_on) ? clock_ns() : 0;
	const struct vhca_method *method;
	int error = read_header(&call, &method);

	if (error)
		return error;
	error = execute(&call, method);
	if (unlikely(vhca_trapped))
		vhca_trap_pages(context);
	if (unlikely(vhca_trace_on))
		vhca_trace_command(context, method->object, method->method,
			vhca_call_command(&call, method), error, clock_ns() - began);
	return error;
}
