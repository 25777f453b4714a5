/* devx_counter.c - DevX: objects that are but a number to a program, and counters */

#include "vhca/devx_object.h"

int vhca_devx_create_number(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	devx->id = ++mailbox->context->device->tables->next_devx & 0xffffff;
	return 0;
}

int vhca_devx_create_tis(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_devx *domain = vhca_devx_find(mailbox->context, VHCA_DEVX_TRANSPORT_DOMAIN,
		in_get(mailbox, TISC_TRANSPORT_DOMAIN));

	if (!domain)
		return EINVAL;
	vhca_devx_hold(devx, &domain->object);
	return vhca_devx_create_number(mailbox, devx);
}

int vhca_devx_create_q_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	for (devx->id = 1; devx->id < 256; devx->id++)
		if (!vhca_devx_find(mailbox->context, VHCA_DEVX_Q_COUNTER, devx->id))
			return 0;
	return ENOMEM;
}

int vhca_devx_create_flow_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	return in_get(mailbox, COUNTER_BULK) ? EOPNOTSUPP : vhca_devx_create_number(mailbox, devx);
}

/* Frames that found no receive WQE in a queue of the set. */
int vhca_devx_query_q_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	uint64_t n = 0;

	for (struct vhca_object *object = mailbox->context->objects; object;
		object = object->next) {
		const struct vhca_devx *rq = vhca_devx_of(object);

		if (object->kind == VHCA_DEVX && rq->kind == VHCA_DEVX_RQ &&
			rq->counter_set == devx->id)
			n += container_of(rq->of, struct vhca_wq, queue.object)->out_of_buffer;
	}
	out_put(mailbox, OUT_OF_BUFFER, (uint32_t)(n - devx->base));
	if (in_get(mailbox, COUNTER_CLEAR))
		devx->base = n;
	return 0;
}

int vhca_devx_query_flow_counter(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	if (in_get(mailbox, COUNTER_DUMP) || in_get(mailbox, COUNTER_N) > 1)
		return EOPNOTSUPP;
	out_put(mailbox, OUT_PACKETS, devx->tally.packets - devx->tally_base.packets);
	out_put(mailbox, OUT_OCTETS, devx->tally.bytes - devx->tally_base.bytes);
	if (in_get(mailbox, COUNTER_CLEAR))
		devx->tally_base = devx->tally;
	return 0;
}
