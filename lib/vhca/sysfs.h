/* sysfs.h - an entry of the emulated tree: sysfs.c walks them, sysfs_tree.c has them */
#ifndef VHCA_SYSFS_H
#define VHCA_SYSFS_H

#include "front.h"

#define UVERBS_MAJOR 231
#define UVERBS_MINOR 192

enum count {
	ONE,         /* the name as it is */
	EACH_DEVICE, /* prefix and number, once for each device */
	THIS_DEVICE, /* prefix and number, of the device that the path already names */
	EACH_INDEX,  /* prefix and number, n times from `first` */
	INTERFACE,   /* the name of the interface that the wire leads to, if to any */
	ON_A_LINK,   /* the name as it is, where there is such an interface */
	ANY_OTHER,   /* any name with this prefix: does not exist, and hides the real one */
};

typedef size_t vhca_read_fn(const struct vhca_place *place, char *text, size_t size);

struct vhca_entry {
	const char *name;   /* or the prefix before a number */
	const char *suffix; /* after the number */
	const struct vhca_entry *children;
	vhca_read_fn *read;
	const char *text; /* instead of read */
	uint16_t n, first;
	uint8_t kind; /* enum vhca_node */
	uint8_t count;
	bool hex; /* the number is two hexadecimal digits */
	bool shadow;
};

extern const struct vhca_entry vhca_root;

/* The interface behind the wire of the device's port; "": none. */
const char *vhca_interface_name(void);

#endif
