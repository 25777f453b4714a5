/* real_fuzz.c - what preload.c would have found: nothing is hooked in a fuzz target */

#include "vhca/preload.h"

static const struct vhca_real plain = {
	.open = open,
	.close = close,
	.fopen = fopen,
	.fstat = fstat,
	.sigaction = sigaction,
	.socket = socket,
};

const struct vhca_real *vhca_real_found = &plain;

const struct vhca_real *vhca_real_find(void)
{
	return &plain;
}
