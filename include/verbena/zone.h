/* verbena/zone.h - a zone: a run of pages of one size on one NUMA node, for pools
 *
 * A zone is one mapping, bound to its node and populated before vbn_zone_create() returns, so that
 * a worker never takes a page fault on it. It is registered once for each port that uses it, for
 * local access only: what peers may touch is an export (verbena/export.h), never a zone. Nothing of
 * it has a name in a file system, so nothing is left behind.
 *
 * One that is backed by a memfd can be shared: a port shm that it is registered for (by a queue of one
 * of its pools, or vbn_port_register()) hands its descriptor to the processes that its queues are
 * connected to, so that these copy large messages out of it (`by_reference`, verbena/queue.h). They map
 * it for reading and can do nothing else: it is sealed against writing, resizing and punching holes.
 * But they can read all of it, whatever was sent to them: keep apart what they may not see. Its memory
 * is given back when it is destroyed here and each of them has let go, which they do when they are
 * told, or end. A memfd costs nothing where the pages are of 2 MiB or 1 GiB; else it is of plain pages,
 * where anonymous memory would be of transparent huge ones (most kernels make none for a memfd).
 */
#ifndef VERBENA_ZONE_H
#define VERBENA_ZONE_H

#include <stddef.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_zone;

enum vbn_pages {
	VBN_PAGES_AUTO,  /* those of --vbn-page-size, or 2 MiB: else transparent ones, else plain */
	VBN_PAGES_PLAIN, /* what sysconf(_SC_PAGESIZE) says */
	VBN_PAGES_TRANSPARENT, /* plain, with huge pages where the kernel has some to give */
	VBN_PAGES_2M,
	VBN_PAGES_1G, /* as a preference only for zones of 512 MiB or more */
};

struct vbn_zone_conf {
	size_t size;           /* bytes wanted; rounded up to a page */
	struct vbn_num node;   /* all pages lie on it; default: the calling thread's, preferred */
	enum vbn_pages pages;  /* an explicit one is taken or the call fails */
	enum vbn_switch memfd; /* ON: backed by a memfd, to be shared; AUTO, OFF: anonymous */
	const char *name;      /* for reports; copied; default "zone" */
};

/* Maps, binds and populates. -ENOMEM: the pages asked for are not there (the sentence says how many
 * the node needs and has); -EINVAL: no such node, or size 0; -ENOSPC: 256 zones exist. Any thread.
 */
int vbn_zone_create(const struct vbn_zone_conf *conf, struct vbn_zone **zone);

/* Unmaps. Its pools must be gone (else the zone stays, and a sentence says so), and nothing of it
 * may be in flight; ports that are open drop their registration of it. NULL is allowed. */
void vbn_zone_destroy(struct vbn_zone *zone);

/* "page_size", "zone_node" and "backing", requested against effective. Writes at most n and returns
 * how many there are. */
int vbn_zone_modes(const struct vbn_zone *zone, struct vbn_mode *modes, int n);

/* Bytes of the mapping, and those not given to pools; where pools have come and gone, not in one
 * run. */
size_t vbn_zone_size(const struct vbn_zone *zone);
size_t vbn_zone_free(const struct vbn_zone *zone);

/* What one pool of this shape takes from a zone, so that a zone can be made for several; 0: the
 * shape is out of range. */
struct vbn_pool_conf;
size_t vbn_pool_footprint(const struct vbn_pool_conf *conf);

#ifdef __cplusplus
}
#endif

#endif
