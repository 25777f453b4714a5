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

#ifdef __cplusplus
}
#endif

#endif
