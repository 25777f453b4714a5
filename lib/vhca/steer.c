/* steer.c - which TIRs a frame goes to: there are no rules yet, so each is the host's */

#include "vhca/raw.h"

void vhca_steer(
	struct vhca_device *device, const struct vhca_frame *frame, struct vhca_steered *steered)
{
	(void)device;
	(void)frame;
	steered->dropped = false;
	steered->n = 0;
}
