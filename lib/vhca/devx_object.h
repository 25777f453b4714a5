/* devx_object.h - the seams among devx*.c: an object under a handle, and what its commands have in common */
#ifndef VHCA_DEVX_OBJECT_H
#define VHCA_DEVX_OBJECT_H

#include "vhca/devx.h"
#include "vhca/devx_prm.h"
#include "vhca/raw.h"

enum vhca_devx_kind {
	VHCA_DEVX_CQ,
	VHCA_DEVX_RQ,
	VHCA_DEVX_SQ,
	VHCA_DEVX_RQT,
	VHCA_DEVX_TIR,
	VHCA_DEVX_TIS,
	VHCA_DEVX_TRANSPORT_DOMAIN,
	VHCA_DEVX_Q_COUNTER,
	VHCA_DEVX_FLOW_COUNTER,
};

#define VHCA_DEVX_MAX_HELD 3 /* rings, records, domains */

struct vhca_devx {
	struct vhca_object object;
	enum vhca_devx_kind kind;
	uint32_t id;
	struct vhca_object *of; /* of the device's own; NULL: the number is all there is */
	struct vhca_object *held[VHCA_DEVX_MAX_HELD];
	uint32_t n_held;
	uint32_t counter_set; /* an RQ's; 0: none */
	uint32_t most;        /* queues that an indirection table may get to have */
	uint64_t base;        /* a Q counter's: what was counted when it was cleared */
	struct vhca_tally tally, tally_base;
};

static inline struct vhca_devx *vhca_devx_of(struct vhca_object *object)
{
	return container_of(object, struct vhca_devx, object);
}

/* ---- mailboxes ---- */

static inline uint64_t in_get(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return field_get(mailbox->in, mailbox->in_size, field);
}

static inline uint32_t in_get32(const struct vhca_mailbox *mailbox, uint32_t first, uint32_t field)
{
	return (uint32_t)in_get(mailbox, WITHIN(first, field));
}

static inline void out_put(struct vhca_mailbox *mailbox, uint32_t field, uint64_t value)
{
	field_put(mailbox->out, mailbox->out_size, field, value);
}

/* ---- devx.c: what numbers in a mailbox stand for, of the same context; NULL: nothing ---- */

void *vhca_devx_find_number(
	const struct vhca_context *context, const struct vhca_numbers *numbers, uint64_t number);
struct vhca_pd *vhca_devx_find_pd(const struct vhca_context *context, uint64_t pdn);
struct vhca_devx *vhca_devx_find(
	const struct vhca_context *context, enum vhca_devx_kind kind, uint64_t id);
struct vhca_wq *vhca_devx_find_rq(const struct vhca_context *context, uint64_t number);

/* Until the object ends; NULL is nothing. */
void vhca_devx_hold(struct vhca_devx *devx, struct vhca_object *object);

/* Where a mailbox says that a ring or a record lies. */
struct vhca_devx_place {
	uint64_t valid, umem, offset;
};

/* The address of so many bytes there, whose memory is held. EINVAL: they are not within it, or there
 * is none. */
int vhca_devx_place(struct vhca_mailbox *mailbox, struct vhca_devx *devx,
	struct vhca_devx_place place, uint64_t bytes, uint64_t *address);

/* ---- commands: `devx` is the object, new where it is made ---- */

typedef int vhca_devx_command(struct vhca_mailbox *mailbox, struct vhca_devx *devx);

/* devx_queue.c */
vhca_devx_command vhca_devx_create_cq, vhca_devx_create_rq, vhca_devx_create_sq;
vhca_devx_command vhca_devx_modify_rq, vhca_devx_modify_sq;

/* devx_tir.c */
vhca_devx_command vhca_devx_create_rqt, vhca_devx_modify_rqt, vhca_devx_create_tir;

/* devx_counter.c */
vhca_devx_command vhca_devx_create_number, vhca_devx_create_tis;
vhca_devx_command vhca_devx_create_q_counter, vhca_devx_query_q_counter;
vhca_devx_command vhca_devx_create_flow_counter, vhca_devx_query_flow_counter;

#endif
