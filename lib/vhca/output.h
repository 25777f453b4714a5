/* output.h - what the emulator writes to a file that the user named: a trace, a capture */
#ifndef VHCA_OUTPUT_H
#define VHCA_OUTPUT_H

#include "base/base.h"

#include <sys/types.h>
#include <sys/uio.h>

struct vhca_output {
	const char *what; /* "trace" */
	int fd;
	dev_t dev; /* of the file: tells when the program has closed and reused the descriptor */
	ino_t ino;
};

/* Opens for appending, as several processes may share the file; "%p" in the path is the process's
 * number, and "-" alone is standard error. `start`, of `size` bytes, is put into an empty file; one
 * that begins with anything but its first `n_magic` bytes is left alone. False after a sentence. */
bool vhca_output_open(struct vhca_output *output, const char *path, const void *start, size_t size,
	size_t n_magic);

/* One record, whole or not at all but for a full disk. Any thread. False: no more can be written,
 * and a sentence has said so. */
bool vhca_output_write(struct vhca_output *output, const struct iovec *parts, int n);

#endif
