/* devx.c - DevX objects: what they hold, and the commands that make, change and ask them */

#include "vhca/devx_object.h"

#include <stdlib.h>

/* ---- what numbers in a mailbox stand for ---- */

void *vhca_devx_find_number(
	const struct vhca_context *context, const struct vhca_numbers *numbers, uint64_t number)
{
	struct vhca_object *object = number < numbers->n ? numbers->object[number] : NULL;

	return object && object->context == context ? object : NULL;
}

struct vhca_pd *vhca_devx_find_pd(const struct vhca_context *context, uint64_t pdn)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_PD && ((struct vhca_pd *)object)->pdn == pdn)
			return (struct vhca_pd *)object;
	return NULL;
}

static struct vhca_umem *find_umem(const struct vhca_context *context, uint64_t id)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_UMEM && ((struct vhca_umem *)object)->id == id)
			return (struct vhca_umem *)object;
	return NULL;
}

struct vhca_devx *vhca_devx_find(
	const struct vhca_context *context, enum vhca_devx_kind kind, uint64_t id)
{
	for (struct vhca_object *object = context->objects; object; object = object->next)
		if (object->kind == VHCA_DEVX && vhca_devx_of(object)->kind == kind &&
			vhca_devx_of(object)->id == id)
			return vhca_devx_of(object);
	return NULL;
}

struct vhca_wq *vhca_devx_find_rq(const struct vhca_context *context, uint64_t number)
{
	struct vhca_qp *queue =
		vhca_devx_find_number(context, &context->device->tables->wqs, number);

	return queue && !queue->owner ? container_of(queue, struct vhca_wq, queue) : NULL;
}

/* ---- objects ---- */

void vhca_devx_hold(struct vhca_devx *devx, struct vhca_object *object)
{
	if (!object)
		return;
	object->refs++;
	devx->held[devx->n_held++] = object;
}

static void let_go(struct vhca_devx *devx)
{
	while (devx->n_held)
		devx->held[--devx->n_held]->refs--;
}

bool vhca_devx_in_use(const struct vhca_devx *devx)
{
	return devx->object.refs || (devx->of && devx->of->refs > 1);
}

void vhca_devx_destroy(struct vhca_devx *devx)
{
	if (devx->of) {
		devx->of->refs--;
		vhca_object_destroy(devx->of);
	}
	let_go(devx);
	vhca_object_free(&devx->object);
}

/* One that goes takes the object behind it along, so the list begins anew. */
void vhca_devx_end(struct vhca_context *context)
{
	struct vhca_object *object = context->objects;

	while (object)
		object = object->kind == VHCA_DEVX && !vhca_object_destroy(object)
			? context->objects
			: object->next;
}

struct vhca_tir *vhca_devx_tir(struct vhca_devx *devx, struct vhca_object **holder)
{
	if (devx->kind != VHCA_DEVX_TIR)
		return NULL;
	*holder = &devx->object;
	return container_of(devx->of, struct vhca_tir, object);
}

struct vhca_tally *vhca_devx_tally(
	struct vhca_devx *devx, uint32_t offset, struct vhca_object **holder)
{
	if (devx->kind != VHCA_DEVX_FLOW_COUNTER || offset)
		return NULL;
	*holder = &devx->object;
	return &devx->tally;
}

int vhca_umem_create(struct vhca_context *context, uint64_t start, uint64_t length, uint32_t access,
	struct vhca_umem **result)
{
	struct vhca_umem *umem;

	if (!length || start + length < start || access & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE)
		return EINVAL;
	if (vhca_memory_check(start, length, access))
		return EFAULT;
	umem = vhca_object_new(context, VHCA_UMEM, sizeof(*umem));
	if (!umem)
		return ENOMEM;
	umem->id = ++context->device->tables->next_devx;
	umem->start = start;
	umem->length = length;
	vhca_object_link(&umem->object);
	*result = umem;
	return 0;
}

int vhca_devx_place(struct vhca_mailbox *mailbox, struct vhca_devx *devx,
	struct vhca_devx_place place, uint64_t bytes, uint64_t *address)
{
	struct vhca_umem *umem = place.valid ? find_umem(mailbox->context, place.umem) : NULL;

	if (!umem || place.offset > umem->length || bytes > umem->length - place.offset)
		return EINVAL;
	vhca_devx_hold(devx, &umem->object);
	*address = umem->start + place.offset;
	return 0;
}

/* ---- commands ---- */

struct verb {
	uint16_t opcode;
	uint8_t kind;
	uint32_t out; /* CREATE: where its number goes */
	vhca_devx_command *run;
};

static const struct verb creates[] = {
	{OP_CREATE_CQ, VHCA_DEVX_CQ, OUT_NUMBER, vhca_devx_create_cq},
	{OP_CREATE_RQ, VHCA_DEVX_RQ, OUT_NUMBER, vhca_devx_create_rq},
	{OP_CREATE_SQ, VHCA_DEVX_SQ, OUT_NUMBER, vhca_devx_create_sq},
	{OP_CREATE_RQT, VHCA_DEVX_RQT, OUT_NUMBER, vhca_devx_create_rqt},
	{OP_CREATE_TIR, VHCA_DEVX_TIR, OUT_NUMBER, vhca_devx_create_tir},
	{OP_CREATE_TIS, VHCA_DEVX_TIS, OUT_NUMBER, vhca_devx_create_tis},
	{OP_ALLOC_TRANSPORT_DOMAIN, VHCA_DEVX_TRANSPORT_DOMAIN, OUT_NUMBER,
		vhca_devx_create_number},
	{OP_ALLOC_Q_COUNTER, VHCA_DEVX_Q_COUNTER, OUT_COUNTER_SET, vhca_devx_create_q_counter},
	{OP_ALLOC_FLOW_COUNTER, VHCA_DEVX_FLOW_COUNTER, OUT_FLOW_COUNTER,
		vhca_devx_create_flow_counter},
};

static const struct verb modifies[] = {
	{OP_MODIFY_RQ, VHCA_DEVX_RQ, MODIFY_NUMBER, vhca_devx_modify_rq},
	{OP_MODIFY_SQ, VHCA_DEVX_SQ, MODIFY_NUMBER, vhca_devx_modify_sq},
	{OP_MODIFY_RQT, VHCA_DEVX_RQT, MODIFY_NUMBER, vhca_devx_modify_rqt},
};

static const struct verb queries[] = {
	{OP_QUERY_Q_COUNTER, VHCA_DEVX_Q_COUNTER, FIELD(248, 8), vhca_devx_query_q_counter},
	{OP_QUERY_FLOW_COUNTER, VHCA_DEVX_FLOW_COUNTER, FIELD(224, 32),
		vhca_devx_query_flow_counter},
};

static const struct verb *find_verb(
	const struct verb *list, size_t n, const struct vhca_mailbox *mailbox)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].opcode == in_get(mailbox, IN_OPCODE))
			return &list[i];
	return NULL;
}

/* What a command has made that then failed. */
static void undo(struct vhca_devx *devx)
{
	if (devx->of)
		vhca_object_destroy(devx->of);
	let_go(devx);
	free(devx);
}

int vhca_devx_create(struct vhca_mailbox *mailbox, struct vhca_devx **result)
{
	const struct verb *verb = find_verb(creates, ARRAY_SIZE(creates), mailbox);
	struct vhca_devx *devx;
	int error;

	if (!verb)
		return EOPNOTSUPP;
	devx = vhca_object_new(mailbox->context, VHCA_DEVX, sizeof(*devx));
	if (!devx)
		return ENOMEM;
	devx->kind = verb->kind;
	error = verb->run(mailbox, devx);
	if (error) {
		undo(devx);
		return error;
	}
	if (devx->of)
		devx->of->refs++;
	vhca_object_link(&devx->object);
	out_put(mailbox, verb->out, devx->id);
	*result = devx;
	return 0;
}

static int run_on(const struct verb *verb, struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	if (!verb)
		return EOPNOTSUPP;
	if (verb->kind != devx->kind || in_get(mailbox, verb->out) != devx->id)
		return EINVAL;
	return verb->run(mailbox, devx);
}

int vhca_devx_modify(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return run_on(find_verb(modifies, ARRAY_SIZE(modifies), mailbox), mailbox, devx);
}

int vhca_devx_query(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return run_on(find_verb(queries, ARRAY_SIZE(queries), mailbox), mailbox, devx);
}

int vhca_devx_general(struct vhca_mailbox *mailbox)
{
	return in_get(mailbox, IN_OPCODE) == OP_QUERY_HCA_CAP ? vhca_devx_caps(mailbox)
							      : EOPNOTSUPP;
}

void vhca_devx_status(struct vhca_mailbox *mailbox, int error)
{
	enum { BAD_OPERATION = 0x2, BAD_PARAMETER = 0x3, BAD_STATE = 0x9, NO_RESOURCES = 0xf };
	uint8_t status = BAD_PARAMETER;

	if (error == EOPNOTSUPP)
		status = BAD_OPERATION;
	else if (error == EBUSY)
		status = BAD_STATE;
	else if (error == ENOMEM)
		status = NO_RESOURCES;
	out_put(mailbox, OUT_STATUS, status);
}
