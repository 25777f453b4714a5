/* frame_io.h - Ethernet frames in and out by a TAP or a packet socket, as few system calls as they let
 *
 * Knows nothing of what is in a frame beside its tag.
 */
#ifndef VHCA_FRAME_IO_H
#define VHCA_FRAME_IO_H

#include "base/base.h"

enum {
	VHCA_TAG_BYTES = 4,
	VHCA_IO_FRAME = 9216, /* room for a frame; what is longer is cut, and too long for all */
};

/* A frame that has come. It is without its tag of 802.1Q, for which there is room in front of it, and
 * behind it there is room for padding. */
struct vhca_frame_in {
	uint8_t *bytes;
	size_t size;
	uint16_t tag;     /* TCI; 0: there was none */
	bool sum_missing; /* its sender has left the L4 checksum to a device */
};

struct vhca_frame_io;

/* The far end of a TAP, which is made if it is not there; or a socket on an interface that sees all of
 * its frames. -errno. */
int vhca_frame_io_tap(const char *name, struct vhca_frame_io **io);
int vhca_frame_io_socket(const char *name, struct vhca_frame_io **io);
void vhca_frame_io_close(struct vhca_frame_io *io);
int vhca_frame_io_fd(const struct vhca_frame_io *io);

/* The next one, valid until the next call; false: there is none. */
bool vhca_frame_io_receive(struct vhca_frame_io *io, struct vhca_frame_in *frame);
/* Takes a copy, which leaves at the latest with the next flush. Both return how many frames the kernel
 * did not take. */
unsigned int vhca_frame_io_send(struct vhca_frame_io *io, const uint8_t *bytes, size_t size);
unsigned int vhca_frame_io_flush(struct vhca_frame_io *io);
/* Frames that came and that the socket had no room for. What a TAP has no room for its interface
 * counts, as dropped on its way out. */
uint64_t vhca_frame_io_overflowed(struct vhca_frame_io *io);

#endif
