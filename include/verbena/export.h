/* verbena/export.h - an export: memory that remote peers may write or read, registered apart from
 * every pool */
#ifndef VERBENA_EXPORT_H
#define VERBENA_EXPORT_H

#include <stddef.h>
#include <stdint.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_export;
struct vbn_port;

enum vbn_access { VBN_REMOTE_WRITE = 1 << 0, VBN_REMOTE_READ = 1 << 1, VBN_REMOTE_ATOMIC = 1 << 2 };

struct vbn_export_conf {
	size_t size;     /* bytes; required */
	void *addr;      /* the caller's memory, which must outlive the export; NULL: mapped here,
			    zeroed, populated */
	uint32_t access; /* enum vbn_access */
	struct vbn_num node; /* with addr NULL; default the calling thread's */

	/* ON: the device may write a message's bytes out of order, and what is polled for a last byte
	 * may see it before the others; a completion or a message behind still comes last. AUTO: off. */
	enum vbn_switch relaxed_ordering;
};

/* What a peer needs to reach one place in an export. Plain numbers, to be sent by any means. */
struct vbn_remote {
	uint64_t addr;
	uint32_t rkey;
};

/* -ENOMEM (a memlock limit is named with what it takes), -EINVAL. Any thread; the work is done on
 * the control thread. */
int vbn_export_create(
	struct vbn_port *port, const struct vbn_export_conf *conf, struct vbn_export **exported);

/* Peers' accesses fail from here on. NULL is allowed. */
void vbn_export_destroy(struct vbn_export *exported);

void *vbn_export_addr(const struct vbn_export *exported);
size_t vbn_export_size(const struct vbn_export *exported);

/* The remote name of the byte at offset. */
struct vbn_remote vbn_export_remote(const struct vbn_export *exported, size_t offset);

/* A piece of an export as a message carries it. Big-endian and versioned: 0 "VBNH", 4 version (1),
 * 5 enum vbn_access, 6 zero (2), 8 address (8), 16 length (8), 24 rkey (4), 28 zero (4). */
struct vbn_handle {
	uint8_t bytes[32];
};

/* The same, taken apart. */
struct vbn_region {
	struct vbn_remote remote; /* its first byte */
	uint64_t len;
	uint32_t access;
};

/* -ERANGE: len is 0, or the piece is not within the export. */
int vbn_export_handle(
	const struct vbn_export *exported, size_t offset, size_t len, struct vbn_handle *handle);

/* What a peer has sent: -EINVAL, without a log, where the bytes are no handle, of another version,
 * or make no sense. Any thread. */
int vbn_handle_open(const struct vbn_handle *handle, struct vbn_region *region);

/* The remote name of `len` bytes at an offset of a region; false: it has not that many there. */
static inline bool vbn_region_at(
	const struct vbn_region *region, uint64_t offset, uint64_t len, struct vbn_remote *remote)
{
	if (offset > region->len || len > region->len - offset)
		return false;
	remote->addr = region->remote.addr + offset;
	remote->rkey = region->remote.rkey;
	return true;
}

#ifdef __cplusplus
}
#endif

#endif
