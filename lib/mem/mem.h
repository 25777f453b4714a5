/* mem.h - zones, pools, bufs: the memory that messages live in
 *
 * Lives here: mapping and binding pages, carving them into pools, the LIFO of bufs. May come in:
 * base, libnuma. Knows no device: drivers ask a zone for its range and register it (vbn__zone_*).
 * May touch it: everything above.
 *
 *     zone (one mapping, one node) = [ pool: struct | stack of pointers | bufs ][ pool … ] …
 *
 * Fast path here: pool_pop, pool_push; what another worker frees goes by home.c. Owner: the pool's
 * worker. Nothing else is called between poll and doorbell.
 */
#ifndef VBN_MEM_H
#define VBN_MEM_H

#include "base/base.h"

#include <verbena/buf.h>
#include <verbena/pool.h>
#include <verbena/zone.h>

#define MEM_MAX_ZONES 256
#define MEM_MAX_POOLS 4096

struct vbn_pool {
	/* line 0: owner: the pool's worker, on every alloc and free */
	struct vbn_buf **stack; /* n_free bufs that are home; one slot more than n_bufs, so that a
				   free may store first and count after */
	uint32_t n_free;
	uint32_t n_bufs;
	uint32_t headroom; /* a multiple of CACHE_LINE */
	uint32_t data_size;
	uint16_t id;      /* index in the table of pools, from 1 */
	uint16_t zone_id; /* index in the table of zones, from 0 */
	uint32_t stride;  /* bytes from one buf to the next */
	uint64_t empty;   /* allocations refused; counter */
	struct vbn_zone *zone;
	uint8_t *first; /* the first buf */
	struct lane_end
		*home; /* its worker's, NULL: none's; read by whoever frees one of its bufs */
	/* line 1 and on: not on a fast path */
	bool own_zone cache_aligned;
	struct vbn_buf *returned; /* freed by others while it had no home; newest first */
	size_t footprint;        /* bytes of the zone from here: this struct, the stack, the bufs */
	struct vbn_pool *behind; /* the next one in the zone */
	struct counter_set counters;
	char name[32];
#ifdef VBN_DEBUG_BUFS
	int owner; /* the thread that used it first; 0: none yet */
#endif
};
static_assert(offsetof(struct vbn_pool, own_zone) == CACHE_LINE,
	"alloc and free touch one line of the pool");

/* The pool behind a buf's pool_id; 0 is none. */
extern struct vbn_pool *vbn__pools[MEM_MAX_POOLS + 1];

/* ---- home.c: bufs that another worker frees ---- */

/* The calling thread's, NULL where it is no worker. */
extern thread_local_near struct lane_end *vbn__home;

/* The calling thread becomes a worker, and ceases to be one: its pools then have no home. -ENOMEM;
 * -ENOSPC: there are too many workers. */
int vbn__home_open(void);
void vbn__home_close(void);

/* Once an iteration, where lane_active(): what was freed here is shown to whose it is, and what others
 * have freed goes into its pools. The home's thread. */
void vbn__home_exchange(struct lane_end *home);

/* Freed bufs of one pool that is not the calling thread's. */
void vbn__bufs_send_home(struct vbn_pool *pool, struct vbn_buf **bufs, uint32_t n);

/* Takes in what is on its way to a pool of the calling thread's; on one that is no worker, to a pool
 * that is nobody's. */
void vbn__pool_collect(struct vbn_pool *pool);

/* What lies where workers have ended goes on its way. Takes a lock. */
void vbn__homes_sweep(void);

/* ---- pool.c: whose a pool is ---- */

/* Makes a pool that is nobody's the calling worker's. -EBUSY: it is another one's. */
int vbn__pool_claim(struct vbn_pool *pool);

/* Its pools are nobody's from here on. */
void vbn__pools_leave(const struct lane_end *home);

/* What can be done where the pool is short, on its worker's thread: claims it, takes in what is on
 * its way. True where it has bufs now. */
bool vbn__pool_more(struct vbn_pool *pool);

/* What a buf's state is: in debug builds the owner's bits, so that a buf says whether it is home;
 * else always 0. */
#ifdef VBN_DEBUG_BUFS
enum { BUF_HOME = 0x5a, BUF_OUT = 0xa5, BUF_SENT = 0xc3 };
#else
enum { BUF_HOME = 0, BUF_OUT = 0, BUF_SENT = 0 };
#endif

/* The word of a buf that the send path compares in one go: its pool, its flags, its state. */
static force_inline uint32_t buf_word(const struct vbn_buf *buf)
{
	uint32_t word;

	static_assert(offsetof(struct vbn_buf, pool_id) % 4 == 0,
		"pool_id, flags and state are one aligned word");
	__builtin_memcpy(&word, &buf->pool_id, sizeof(word));
	return word;
}

/* The word of a buf of this pool that is out and has no flags. */
static force_inline uint32_t plain_word(const struct vbn_pool *pool)
{
	return pool->id | (uint32_t)BUF_OUT << 24;
}

/* Where the data of a buf of this pool starts when it is new. */
static force_inline uint8_t *pool_data(const struct vbn_pool *pool, struct vbn_buf *buf)
{
	return (uint8_t *)(buf + 1) + pool->headroom;
}

/* Length and word of a buf that is out and has no flags. */
static force_inline uint64_t len_and_word(const struct vbn_pool *pool, uint32_t len)
{
	return len | (uint64_t)plain_word(pool) << 32;
}

/* They are one store, so that the send path's load of the word is forwarded from it. */
static force_inline void buf_set(struct vbn_buf *buf, uint8_t *data, uint64_t len_word)
{
	static_assert(offsetof(struct vbn_buf, len) % 8 == 0 &&
			offsetof(struct vbn_buf, pool_id) % 8 == 4,
		"len and the word are one aligned store");
	buf->data = data;
	__builtin_memcpy((char *)buf + offsetof(struct vbn_buf, len), &len_word, sizeof(len_word));
}

/* Makes what pool_pop() gave a message: data, len, no flags. */
static force_inline void buf_start(
	const struct vbn_pool *pool, struct vbn_buf *buf, uint8_t *data, uint32_t len)
{
	buf_set(buf, data, len_and_word(pool, len));
}

#ifdef VBN_DEBUG_BUFS
/* Poison and check on free; check the poison and note the caller on alloc. Abort with a sentence
 * that names the pool, the buf, who allocated it and who freed it. */
void vbn__buf_debug_free(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller);
/* The same on a thread that the pool is not of; and when the buf comes into its pool. */
void vbn__buf_debug_free_away(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller);
void vbn__buf_debug_arrived(struct vbn_buf *buf);
void vbn__buf_debug_check(
	const struct vbn_buf *buf, const void *caller); /* before its pool is used */
void vbn__buf_debug_alloc(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller);
/* A buf or chain may be sent: it is out, of this thread, and its bytes are in its room. */
void vbn__buf_debug_sendable(const struct vbn_buf *buf, const void *caller);
/* The device has it, so that freeing or sending it is a mistake; and is done with it. */
void vbn__buf_debug_sent(struct vbn_buf *buf);
void vbn__buf_debug_done(struct vbn_buf *buf);
#else
#define vbn__buf_debug_sent(buf)                    ((void)0)
#define vbn__buf_debug_done(buf)                    ((void)0)
#define vbn__buf_debug_free(pool, buf, caller)      ((void)0)
#define vbn__buf_debug_free_away(pool, buf, caller) ((void)0)
#define vbn__buf_debug_arrived(buf)                 ((void)0)
#define vbn__buf_debug_check(buf, caller)           ((void)0)
#define vbn__buf_debug_alloc(pool, buf, caller)     ((void)0)
#endif

/* One buf goes home: a plain one, no chain. */
static force_inline void pool_push(struct vbn_pool *pool, struct vbn_buf *buf)
{
	vbn__buf_debug_free(pool, buf, __builtin_return_address(0));
	pool->stack[pool->n_free++] = buf;
}

/* Many plain bufs of one pool go home: between open and close the top of the stack is in a
 * register, and nothing else may use the pool. */
struct pool_homecoming {
	struct vbn_pool *pool;
	struct vbn_buf **top;
};

static force_inline struct pool_homecoming pool_open(struct vbn_pool *pool)
{
	return (struct pool_homecoming){pool, pool->stack + pool->n_free};
}

static force_inline void pool_take_home(struct pool_homecoming *home, struct vbn_buf *buf)
{
	vbn__buf_debug_free(home->pool, buf, __builtin_return_address(0));
	*home->top++ = buf;
}

static force_inline void pool_close(struct pool_homecoming *home)
{
	home->pool->n_free = (uint32_t)(home->top - home->pool->stack);
}

/* Takes one buf without touching its header, or NULL: the caller sets data, len and flags when it
 * hands it out. */
static force_inline struct vbn_buf *pool_pop(struct vbn_pool *pool)
{
	struct vbn_buf *buf;

	if (unlikely(!pool->n_free) && !vbn__pool_more(pool))
		return NULL;
	buf = pool->stack[--pool->n_free];
	vbn__buf_debug_alloc(pool, buf, __builtin_return_address(0));
	return buf;
}

/* How many of `wanted` bufs pool_pop() can give now, having looked for more where it is short. */
static force_inline uint32_t pool_ready(struct vbn_pool *pool, uint32_t wanted)
{
	if (likely(pool->n_free >= wanted))
		return wanted;
	vbn__pool_more(pool);
	return min(wanted, pool->n_free);
}

/* ---- zones, for drivers ---- */

struct vbn_zone {
	uint8_t *base;
	size_t size, used;
	int id; /* index, stable for the zone's life; reused after it */
	int node;
	int memfd;    /* -1: anonymous */
	bool lasting; /* whoever has the memfd may map it for reading, and nothing else */
	size_t page_size;
	char name[32];
	struct vbn_mode modes[3]; /* "page_size", "zone_node", "backing" */
	int n_modes;
	uint64_t generation;
	struct vbn_pool *pools; /* in the order of memory; with `used` pool.c's, under its lock */
};

/* A process-wide number of the zone with this id: differs when an id is used again, so that a
 * port's registration of the zone that had it before is not taken for this one's. */
uint64_t vbn__zone_generation(const struct vbn_zone *zone);

/* Calls fn under no lock when a zone is about to go, so that ports drop their registration of it.
 * The same pair twice counts once. 0 or -ENOMEM. Removed by the same pair; the caller sees to it
 * that no zone is just going. Any thread. */
int vbn__zone_on_destroy(void (*fn)(struct vbn_zone *zone, void *arg), void *arg);
void vbn__zone_not_on_destroy(void (*fn)(struct vbn_zone *zone, void *arg), void *arg);

/* What zones are made of, where it can be had, if their conf says VBN_PAGES_AUTO: --vbn-page-size. */
void vbn__zone_default_pages(enum vbn_pages pages);
enum vbn_pages vbn__zone_pages(void);

#ifdef VBN_DEBUG_BUFS
/* Poisons all bufs of a new pool and makes its history. 0 or -ENOMEM. */
int vbn__pool_debug_create(struct vbn_pool *pool);
void vbn__pool_debug_destroy(struct vbn_pool *pool);

/* Logs who allocated the bufs that are not home. */
void vbn__pool_debug_leaks(const struct vbn_pool *pool);
#endif

/* Bufs that are not home, over all pools: logs pool, count and (debug builds) who allocated them.
 * For vbn_fini(). */
uint32_t vbn__pools_report_leaks(void);

/* Maps `size` bytes of zeroed, populated memory on a node (-1: the calling thread's) for an export,
 * by the best pages there are, or returns NULL with the sentence logged; free it likewise. */
void *vbn__map_on_node(size_t size, int node, size_t *mapped);
void vbn__unmap(void *base, size_t mapped);

/* ---- map.c: pages, for zone.c ---- */

struct map_request {
	const char *object; /* for sentences: "zone rx" */
	size_t size;
	int node; /* -1: the calling thread's */
	enum vbn_pages pages;
	bool preferred; /* where there are none of these, the next smaller ones do */
	bool memfd;
	bool read_only; /* whoever else is given the memfd may map it for reading, and nothing else */
};

struct mapping {
	uint8_t *base;
	size_t size;
	size_t page_size; /* transparent is plain here: not every page need be huge */
	int node;
	int memfd;    /* -1: anonymous */
	bool lasting; /* read_only, and this kernel sees to it */
	enum vbn_pages pages;
	char page_text[64], page_why[160]; /* for the modes: what was had, and why not more */
	char node_text[64], node_why[160];
};

/* A test's machine: sysfs is looked for below `root`; NULL: this one's. */
void vbn__map_root(const char *root);

/* Maps, binds, populates. 0, or -errno with the sentence logged. Any thread. */
int vbn__map(const struct map_request *request, struct mapping *map);

#endif
