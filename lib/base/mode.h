/* mode.h - building a report of modes: requested, effective, why */
#ifndef VBN_MODE_H
#define VBN_MODE_H

#include <verbena/mode.h>

/* A report being filled: lines past `max` are counted and not written. */
struct mode_report {
	struct vbn_mode *modes;
	int max;
	int n;
};

/* Adds one line. `why` is a format. */
void vbn__mode_add(struct mode_report *report, const char *name, const char *requested,
	const char *effective, const char *why, ...) printf_like(5, 6);

/* A number as text in one of a few static buffers of the thread: for the arguments of
 * vbn__mode_add. */
const char *vbn__mode_number(uint64_t number, const char *unit);

/* "auto", "on", "off" */
const char *vbn__mode_switch(enum vbn_switch value);

#endif
