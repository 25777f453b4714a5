/* devx.h - DevX: a program's own commands to the device, and the objects that they make
 *
 * Lives here: what method_devx.c answers and devx*.c execute. A command is the PRM's: a mailbox in, a
 * mailbox out, big-endian. An object is one of the device's own (object.c, queue.c, raw.c, steer.c),
 * held under a handle of kind VHCA_DEVX.
 */
#ifndef VHCA_DEVX_H
#define VHCA_DEVX_H

#include "vhca/steer.h"

struct vhca_devx;

void vhca_devx_destroy(struct vhca_devx *devx);

/* The TIR or the counter behind a handle, and what to hold; NULL: it is none. */
struct vhca_tir *vhca_devx_tir(
	struct vhca_context *context, uint32_t handle, struct vhca_object **holder);
struct vhca_tally *vhca_devx_tally(struct vhca_context *context, uint32_t handle, uint32_t offset,
	struct vhca_object **holder);

#endif
