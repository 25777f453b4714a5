/* verbena/mode.h - switches, optional numbers, and the report of what was asked for against what
 * holds */
#ifndef VERBENA_MODE_H
#define VERBENA_MODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* AUTO takes what is best measured, ON insists (the call fails where it cannot be had), OFF does
 * without. */
enum vbn_switch { VBN_AUTO, VBN_ON, VBN_OFF };

/* A number for which 0 is a value: the default holds unless `set`. */
struct vbn_num {
	uint32_t value;
	bool set;
};

/* An initialiser: .inline_size = VBN_NUM(128) */
#define VBN_NUM(number)        \
	{                      \
		(number), true \
	}

/* One line of a start-up report: what a mode was asked to be, what it is, and why where the two
 * differ or the choice was the library's. Texts are NUL-terminated, one line each. */
struct vbn_mode {
	char name[32];
	char requested[32];
	char effective[64];
	char why[160];
};

#ifdef __cplusplus
}
#endif

#endif
