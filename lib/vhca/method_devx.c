/* method_devx.c - the native methods of DevX: mailboxes, objects, registered memory, numbers of pages
 * and event queues
 *
 * A command that the device refuses is EREMOTEIO with the reason in the mailbox out, as the kernel
 * answers; what is not DevX's to answer, or comes from a context that has not asked for DevX, is the
 * kernel's own EINVAL or EPERM.
 */
#include "uverbs.h"

#include "devx.h"
#include "trace.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>

enum { MAX_MAILBOX = 16384 };

static int may_devx(const struct vhca_call *call)
{
	return call->request.context->handles->devx ? 0 : EPERM;
}

/* ---- mailboxes ---- */

static int open_mailbox(const struct vhca_call *call, unsigned int in, unsigned int out,
	struct vhca_mailbox *mailbox)
{
	struct vhca_span from = vhca_attr_span(call, in), to = vhca_attr_span(call, out);
	uint8_t *bytes;
	int error = may_devx(call);

	if (error)
		return error;
	if (from.size < VHCA_DEVX_HEAD || from.size > MAX_MAILBOX || to.size < VHCA_DEVX_HEAD ||
		to.size > MAX_MAILBOX)
		return EINVAL;
	bytes = calloc(1, from.size + to.size);
	if (!bytes)
		return ENOMEM;
	error = vhca_copy_in(bytes, from.address, from.size);
	if (error) {
		free(bytes);
		return error;
	}
	*mailbox = (struct vhca_mailbox){
		.context = call->request.context,
		.in = bytes,
		.out = bytes + from.size,
		.in_size = (uint32_t)from.size,
		.out_size = (uint32_t)to.size,
	};
	return 0;
}

static int close_mailbox(
	const struct vhca_call *call, unsigned int out, struct vhca_mailbox *mailbox, int error)
{
	int failed;

	vhca_note(" opcode 0x%02x%02x", mailbox->in[0], mailbox->in[1]);
	if (error)
		vhca_devx_status(mailbox, error);
	failed = vhca_attr_write(call, out, mailbox->out, mailbox->out_size);
	free((void *)(uintptr_t)mailbox->in);
	return failed ?: error ? EREMOTEIO : 0;
}

static struct vhca_devx *find_object(const struct vhca_call *call, unsigned int spec)
{
	return vhca_handle_find(call->request.context, vhca_attr_handle(call, spec), VHCA_DEVX);
}

static int other(struct vhca_call *call)
{
	struct vhca_mailbox mailbox;
	int error = open_mailbox(call, 0, 1, &mailbox);

	return error ?: close_mailbox(call, 1, &mailbox, vhca_devx_general(&mailbox));
}

static int obj_create(struct vhca_call *call)
{
	struct vhca_mailbox mailbox;
	struct vhca_devx *devx;
	uint32_t handle;
	int error = open_mailbox(call, 1, 2, &mailbox);

	if (error)
		return error;
	error = close_mailbox(call, 2, &mailbox, vhca_devx_create(&mailbox, &devx));
	if (error)
		return error;
	error = vhca_handle_add(call->request.context, devx, &handle);
	if (error) {
		vhca_object_destroy((struct vhca_object *)(void *)devx);
		return error;
	}
	return vhca_attr_return(call, 0, handle);
}

static int obj_modify(struct vhca_call *call)
{
	struct vhca_devx *devx = find_object(call, 0);
	struct vhca_mailbox mailbox;
	int error = devx ? open_mailbox(call, 1, 2, &mailbox) : ENOENT;

	return error ?: close_mailbox(call, 2, &mailbox, vhca_devx_modify(&mailbox, devx));
}

static int obj_query(struct vhca_call *call)
{
	struct vhca_devx *devx = find_object(call, 0);
	struct vhca_mailbox mailbox;
	int error = devx ? open_mailbox(call, 1, 2, &mailbox) : ENOENT;

	return error ?: close_mailbox(call, 2, &mailbox, vhca_devx_query(&mailbox, devx));
}

static int obj_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(call->request.context, vhca_attr_handle(call, 0), VHCA_DEVX);
}

/* ---- numbers ---- */

/* A UAR's number is the same for the program and the device. */
static int query_uar(struct vhca_call *call)
{
	uint32_t page = (uint32_t)vhca_attr_number(call, 0);
	int error = may_devx(call);

	if (!error && page >= VHCA_N_UARS)
		error = EINVAL;
	return error ?: vhca_attr_write(call, 1, &page, sizeof(page));
}

static int query_eqn(struct vhca_call *call)
{
	uint32_t vector = (uint32_t)vhca_attr_number(call, 0), eqn = VHCA_DEVX_EQN + vector;
	int error = may_devx(call);

	if (!error && vector >= vhca_n_vectors())
		error = ENOENT;
	return error ?: vhca_attr_write(call, 1, &eqn, sizeof(eqn));
}

/* ---- memory ---- */

enum { UMEM_HANDLE, UMEM_ADDRESS, UMEM_LENGTH, UMEM_ACCESS, UMEM_ID, UMEM_PAGES };

static int umem_reg(struct vhca_call *call)
{
	struct vhca_umem *umem;
	uint32_t handle;
	int error = may_devx(call)
		?: vhca_umem_create(call->request.context, vhca_attr_number(call, UMEM_ADDRESS),
			   vhca_attr_number(call, UMEM_LENGTH),
			   (uint32_t)vhca_attr_number(call, UMEM_ACCESS), &umem);

	if (error)
		return error;
	error = vhca_handle_add(call->request.context, umem, &handle);
	if (error) {
		vhca_object_destroy(&umem->object);
		return error;
	}
	vhca_note(" umem %u of %llu bytes", umem->id, (unsigned long long)umem->length);
	return vhca_attr_return(call, UMEM_HANDLE, handle)
		?: vhca_attr_write(call, UMEM_ID, &umem->id, sizeof(umem->id));
}

static int umem_dereg(struct vhca_call *call)
{
	return vhca_handle_destroy(call->request.context, vhca_attr_handle(call, 0), VHCA_UMEM);
}

const struct vhca_method vhca_devx_methods[] = {
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, other,
		{{MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, ATTR_IN, REQUIRED, VHCA_DEVX_HEAD},
			{MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, ATTR_OUT, REQUIRED, VHCA_DEVX_HEAD}},
		2},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, query_uar,
		{{MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, ATTR_IN, REQUIRED, 4},
			{MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, ATTR_OUT, REQUIRED, 4}},
		2},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, query_eqn,
		{{MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, ATTR_IN, REQUIRED, 4},
			{MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, ATTR_OUT, REQUIRED, 4}},
		2},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, obj_create,
		{{MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, ATTR_NEW, REQUIRED, 0},
			{MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, ATTR_IN, REQUIRED, VHCA_DEVX_HEAD},
			{MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, ATTR_OUT, REQUIRED, VHCA_DEVX_HEAD}},
		3},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, obj_modify,
		{{MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, ATTR_IN, REQUIRED, VHCA_DEVX_HEAD},
			{MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, ATTR_OUT, REQUIRED, VHCA_DEVX_HEAD}},
		3},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, obj_query,
		{{MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, ATTR_IN, REQUIRED, VHCA_DEVX_HEAD},
			{MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, ATTR_OUT, REQUIRED, VHCA_DEVX_HEAD}},
		3},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, obj_destroy,
		{{MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, umem_reg,
		{{MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, ATTR_NEW, REQUIRED, 0},
			{MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, ATTR_IN, REQUIRED, 8},
			{MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, ATTR_IN, REQUIRED, 8},
			{MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, ATTR_OUT, REQUIRED, 4},
			{MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, ATTR_IN, OPTIONAL, 8}},
		6},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, umem_dereg,
		{{MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
};

const size_t vhca_n_devx_methods = ARRAY_SIZE(vhca_devx_methods);
