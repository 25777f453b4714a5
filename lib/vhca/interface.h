/* interface.h - a port that is an interface's: its MAC, and GIDs that are the interface's addresses
 *
 * The host goes on using the interface: it answers for the addresses, and chooses them.
 */
#ifndef VHCA_INTERFACE_H
#define VHCA_INTERFACE_H

#include "vhca/vhca.h"

/* The one device becomes the interface's; before any program has seen it. 0 or -errno. */
int vhca_interface_begin(struct vhca_device *device, const char *name);
/* Readable when addresses or routes have changed; -1: no port is an interface's. */
int vhca_interface_fd(void);
/* Takes the changes: GIDs come and go, with their events. Not under the lock. */
void vhca_interface_changed(void);

#endif
