/* pktgen_known.c - the frames that a replay sends, so that what comes back is told from what others send
 *
 * A frame is known by a hash of its length and of what is behind its MACs: who sends it back swaps those. Tables are
 * filled by the worker that replays, and looked into by all: none is ever moved, a full one is followed by another of
 * twice its size.
 */
#include "pktgen.h"

#include <stdlib.h>

enum { MACS = 12, FIRST_SLOTS = 4096, MAX_TABLES = 20 };

struct slot {
	uint64_t hash; /* 0: none */
	uint32_t sent, came;
};

struct table {
	uint32_t mask, n;
	struct slot slots[];
};

struct known {
	struct table *tables[MAX_TABLES];
	uint32_t n_tables;
};

/* ---- the hash ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
	__extension__ typedef unsigned __int128 wide;
	const wide product = (wide)(hash ^ word) * 0x9e3779b97f4a7c15u;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_bytes(const uint8_t *at, uint32_t n)
{
	uint64_t hash = n * 0xff51afd7ed558ccdu, word = 0;

	for (; n >= 8; n -= 8, at += 8) {
		memcpy(&word, at, 8);
		hash = mix(hash, word);
	}
	word = 0;
	memcpy(&word, at, n);
	hash = mix(hash, word);
	return hash ? hash : 1;
}

/* In one piece, and as long as a wire makes it. */
static uint32_t gather(const struct vbn_buf *buf, uint8_t *to, uint32_t most)
{
	uint32_t n = 0;

	memset(to, 0, LEAST_FRAME);
	for (;; buf = buf->next) {
		uint32_t part = buf->len < most - n ? buf->len : most - n;

		memcpy(to + n, buf->data, part);
		n += part;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return n > LEAST_FRAME ? n : LEAST_FRAME;
	}
}

static uint64_t hash_frame(const struct vbn_buf *buf)
{
	uint8_t whole[MAX_FRAME];
	uint32_t n;

	if (buf->len >= LEAST_FRAME && !(buf->flags & VBN_BUF_CHAIN))
		return hash_bytes(buf->data + MACS, buf->len - MACS);
	n = gather(buf, whole, sizeof(whole));
	return hash_bytes(whole + MACS, n - MACS);
}

/* ---- tables ---- */

/* Where it is, or the free place that is its. A table is never more than half full. */
static struct slot *place(struct table *table, uint64_t hash)
{
	for (uint32_t i = (uint32_t)(hash >> 32);; i++) {
		struct slot *slot = &table->slots[i & table->mask];
		uint64_t has = __atomic_load_n(&slot->hash, __ATOMIC_ACQUIRE);

		if (!has || has == hash)
			return slot;
	}
}

static struct slot *look_up(struct known *known, uint64_t hash)
{
	uint32_t n = __atomic_load_n(&known->n_tables, __ATOMIC_ACQUIRE);

	while (n--) {
		struct slot *slot = place(known->tables[n], hash);

		if (load_once(&slot->hash))
			return slot;
	}
	return NULL;
}

static struct table *add_table(struct known *known)
{
	const uint32_t n = known->n_tables;
	struct table *table = NULL;

	if (n < MAX_TABLES)
		table = calloc(
			1, sizeof(*table) + sizeof(struct slot) * ((size_t)FIRST_SLOTS << n));
	if (!table)
		return NULL;
	table->mask = ((uint32_t)FIRST_SLOTS << n) - 1;
	known->tables[n] = table;
	__atomic_store_n(&known->n_tables, n + 1, __ATOMIC_RELEASE);
	return table;
}

/* One with room. */
static struct table *newest(struct known *known)
{
	struct table *table = known->n_tables ? known->tables[known->n_tables - 1] : NULL;

	return table && table->n <= table->mask / 2 ? table : add_table(known);
}

int known_add(struct known *known, const struct vbn_buf *buf)
{
	const uint64_t hash = hash_frame(buf);
	struct slot *slot = look_up(known, hash);
	struct table *table;

	if (slot) {
		store_once(&slot->sent, slot->sent + 1);
		return 0;
	}
	table = newest(known);
	if (!table)
		return -ENOMEM;
	table->n++;
	slot = place(table, hash);
	slot->sent = 1;
	__atomic_store_n(&slot->hash, hash, __ATOMIC_RELEASE);
	return 0;
}

/* Equal frames are of one flow, which comes to one worker. */
bool known_take(struct known *known, const struct vbn_buf *buf)
{
	struct slot *slot = look_up(known, hash_frame(buf));
	uint32_t came;

	if (!slot)
		return false;
	came = load_once(&slot->came);
	if (came >= load_once(&slot->sent))
		return false;
	store_once(&slot->came, came + 1);
	return true;
}

struct known *known_make(void)
{
	return calloc(1, sizeof(struct known));
}

void known_free(struct known *known)
{
	for (uint32_t i = 0; known && i < known->n_tables; i++)
		free(known->tables[i]);
	free(known);
}
