/* export.c - memory that peers may ask for: a table of it, which workers read without a lock
 *
 * A key is the place in the table and a random part, so that one that is guessed, or of an export that
 * is gone, is none.
 */

#include "drv/shm/shm.h"
#include "run/rcu.h"

#include <stdlib.h>
#include <sys/random.h>

enum { INDEX_BITS = 12, MOST = 1 << INDEX_BITS };

struct entry {
	uint64_t addr, size; /* size 0: none */
	uint32_t rkey, access;
};

struct shm_exports {
	uint32_t n;
	struct rcu_later later;
	struct entry entries[];
};

fast_path uint8_t *vbn__shm_export_find(
	const struct shm_port *port, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t access)
{
	const struct shm_exports *exports = rcu_read(&port->exports);
	const uint32_t index = rkey & (MOST - 1);
	const struct entry *entry;

	if (!exports || index >= exports->n)
		return NULL;
	entry = &exports->entries[index];
	if (entry->rkey != rkey || !(entry->access & access) || addr < entry->addr ||
		addr - entry->addr > entry->size || len > entry->size - (addr - entry->addr))
		return NULL;
	return (uint8_t *)(uintptr_t)addr;
}

/* A copy with room for n; the old one goes when no worker is at it. */
static struct shm_exports *copy_table(const struct shm_exports *old, uint32_t n)
{
	struct shm_exports *copy = calloc(1, sizeof(*copy) + n * sizeof(copy->entries[0]));

	if (!copy)
		return NULL;
	copy->n = n;
	if (old)
		memcpy(copy->entries, old->entries, min(old->n, n) * sizeof(copy->entries[0]));
	return copy;
}

static void replace(struct shm_port *port, struct shm_exports *exports)
{
	struct shm_exports *old = port->exports;

	rcu_publish(&port->exports, exports);
	if (old)
		vbn__rcu_call(&old->later, free, old);
}

int vbn__shm_export_register(struct vbn_port *base, void *addr, size_t size, uint32_t access,
	bool relaxed, struct export_key *key)
{
	struct shm_port *port = shm_port(base);
	struct shm_exports *exports = port->exports;
	uint32_t index = 0, n = exports ? exports->n : 0, tag = 0;

	(void)relaxed;
	while (index < n && exports->entries[index].size)
		index++;
	if (index == MOST)
		return fail(ENOSPC,
			"export on port %s cannot be made: it has %d, the most there are",
			base->info.name, (int)MOST);
	exports = copy_table(exports, max(n, index + 1));
	if (!exports)
		return -ENOMEM;
	while (!tag)
		if (getrandom(&tag, sizeof(tag), 0) != sizeof(tag))
			tag = (uint32_t)clock_cycles();
	key->rkey = (tag & ~(uint32_t)(MOST - 1)) | index;
	key->region = port;
	exports->entries[index] = (struct entry){.addr = (uint64_t)(uintptr_t)addr,
		.size = size,
		.rkey = key->rkey,
		.access = access};
	replace(port, exports);
	return 0;
}

void vbn__shm_export_unregister(struct vbn_port *base, struct export_key *key)
{
	struct shm_port *port = shm_port(base);
	const uint32_t index = key->rkey & (MOST - 1);
	struct shm_exports *exports = copy_table(port->exports, port->exports->n);

	/* Without memory for a copy the entry is struck out where it is: no worker's access spans it. */
	if (!exports) {
		store_release(&port->exports->entries[index].access, 0);
		return;
	}
	exports->entries[index] = (struct entry){0};
	replace(port, exports);
}
