/* devx.h - DevX: a program's own commands to the device, and the objects that they make
 *
 * Lives here: what method_devx.c hands over and devx*.c execute. A command is the PRM's: a mailbox in,
 * a mailbox out, big-endian. An object is one of the device's own (object.c, queue.c, raw.c, steer.c)
 * under a handle of kind VHCA_DEVX, which holds it and the memory that it uses.
 *
 *   devx.c          objects, what they hold, and which command is whose
 *   devx_queue.c    CQs, receive and send queues
 *   devx_tir.c      indirection tables and TIRs
 *   devx_counter.c  counters, and what is but a number
 *   devx_caps.c     QUERY_HCA_CAP
 *   devx_object.h   the seams among these; devx_prm.h, where the fields of mailboxes are
 *
 * With the device's lock held; 0 or a positive errno, which the mailbox out tells as a status.
 */
#ifndef VHCA_DEVX_H
#define VHCA_DEVX_H

#include "vhca/steer.h"

/* Copies of the program's: whoever reads a field behind the end of `in` finds 0. */
struct vhca_mailbox {
	struct vhca_context *context;
	const uint8_t *in;
	uint8_t *out;
	uint32_t in_size, out_size;
};

#define VHCA_DEVX_HEAD 16u /* bytes of the shortest mailbox, in or out */
#define VHCA_DEVX_EQN  1u  /* the event queue of vector 0; the others follow */

struct vhca_devx;

/* A command that makes an object. */
int vhca_devx_create(struct vhca_mailbox *mailbox, struct vhca_devx **devx);
int vhca_devx_modify(struct vhca_mailbox *mailbox, struct vhca_devx *devx);
int vhca_devx_query(struct vhca_mailbox *mailbox, struct vhca_devx *devx);
/* A command to the device, of no object. */
int vhca_devx_general(struct vhca_mailbox *mailbox);
int vhca_devx_caps(struct vhca_mailbox *mailbox);
/* Writes the errno as a status of the PRM. */
void vhca_devx_status(struct vhca_mailbox *mailbox, int error);

/* Others than it use what it stands for. */
bool vhca_devx_in_use(const struct vhca_devx *devx);
void vhca_devx_destroy(struct vhca_devx *devx);
/* All of a context's, in an order that lets each go. */
void vhca_devx_end(struct vhca_context *context);

/* Memory that rings and records of such objects lie in. */
struct vhca_umem {
	struct vhca_object object;
	uint32_t id;
	uint64_t start, length;
};

int vhca_umem_create(struct vhca_context *context, uint64_t start, uint64_t length, uint32_t access,
	struct vhca_umem **umem);

/* The TIR or the counter behind a handle's object, and what to hold; NULL: it is none. */
struct vhca_tir *vhca_devx_tir(struct vhca_devx *devx, struct vhca_object **holder);
struct vhca_tally *vhca_devx_tally(
	struct vhca_devx *devx, uint32_t offset, struct vhca_object **holder);

#endif
