/* trap.c - UAR pages that the program cannot write to */

#include "vhca/device.h"

bool vhca_trapped(void)
{
	return false;
}
