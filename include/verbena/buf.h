/* verbena/buf.h - a buf: one message, or one segment of it; a one-cache-line header and then its
 * room
 *
 *    +--------------- one element of a pool, aligned to 64 bytes ----------------+
 *    | struct vbn_buf (64) | headroom | data: `len` bytes from `data` | tailroom |
 *    +---------------------------------------------------------------------------+
 *                            ^ vbn_buf_room()                                     ^ room + size
 *
 * Ownership: vbn_buf_alloc() and receives give a buf to the caller; vbn_buf_free() and a send or
 * write that took it take it back. A sent buf is freed by the stack when the device has completed
 * it, unless it says VBN_BUF_KEEP or carries a cookie: then an event returns it to the caller. A
 * buf is used by one thread at a time. It may be handed to another worker by whatever orders memory
 * (verbena/ring.h, vbn_post()), and be sent or freed there.
 *
 * A chain is a gather list: bufs linked by vbn_buf_append(); the first stands for all of them, and
 * freeing, sending and completing it does so to the whole.
 */
#ifndef VERBENA_BUF_H
#define VERBENA_BUF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_pool;

/* Flags of a buf. KEEP is the caller's to set; the other two are set by the inline functions below.
 */
enum {
	VBN_BUF_KEEP = 1 << 0,   /* do not free on completion: return it by an event */
	VBN_BUF_COOKIE = 1 << 1, /* `cookie` holds: return it by an event */
	VBN_BUF_CHAIN = 1 << 2,  /* `next` holds */
};

struct vbn_buf {
	uint8_t *data;    /* the first byte of the message; may move within the room */
	uint32_t len;     /* bytes at data */
	uint16_t pool_id; /* the library's; with flags and state it is compared as one word on the
			     send path */
	uint8_t flags;
	uint8_t state; /* the library's: 0 in release builds */
	struct vbn_buf *next;
	void *cookie;
	struct vbn_pool *pool; /* where it goes home to; never changes */
	uint32_t size;         /* of the room; never changes */
	uint32_t mark;         /* a received packet's flow tag or hash; the caller's when sending */
	uint64_t peer[2]; /* a datagram's source or destination, as the queue's driver has it */
};

#ifdef __cplusplus
static_assert(sizeof(struct vbn_buf) == 64, "a buf's header is one cache line");
#else
_Static_assert(sizeof(struct vbn_buf) == 64, "a buf's header is one cache line");
#endif

static inline uint8_t *vbn_buf_room(struct vbn_buf *buf)
{
	return (uint8_t *)(buf + 1);
}

/* Bytes free before the data, and behind it. */
static inline uint32_t vbn_buf_headroom(struct vbn_buf *buf)
{
	return (uint32_t)(buf->data - vbn_buf_room(buf));
}

static inline uint32_t vbn_buf_tailroom(struct vbn_buf *buf)
{
	return buf->size - vbn_buf_headroom(buf) - buf->len;
}

/* The completion of this buf comes back as an event with this cookie (any value, NULL too). */
static inline void vbn_buf_set_cookie(struct vbn_buf *buf, void *cookie)
{
	buf->cookie = cookie;
	buf->flags |= VBN_BUF_COOKIE;
}

/* Puts `segment` (a buf or a chain) behind the last segment of `buf`. */
static inline void vbn_buf_append(struct vbn_buf *buf, struct vbn_buf *segment)
{
	while (buf->flags & VBN_BUF_CHAIN)
		buf = buf->next;
	buf->next = segment;
	buf->flags |= VBN_BUF_CHAIN;
}

/* Bytes of a whole chain. */
static inline uint64_t vbn_buf_total(const struct vbn_buf *buf)
{
	uint64_t total = buf->len;

	while (buf->flags & VBN_BUF_CHAIN) {
		buf = buf->next;
		total += buf->len;
	}
	return total;
}

/* Takes n bufs from the pool: all n, or none. Each has len 0, no flags, and data behind the pool's
 * headroom. Returns n, or -ENOBUFS (counted as the pool's `empty`). The pool's worker only. */
int vbn_buf_alloc(struct vbn_pool *pool, struct vbn_buf **bufs, int n);

/* Gives n bufs, or chains, back to their pools. Any thread. Those of the calling worker's pools are
 * home at once. Those of another worker's are shown to it at the end of this worker's iteration, or
 * as soon as 64 are under way, and are home when it has taken them in, in an iteration of its own
 * or when its pool is short: no lock and no locked instruction on either side. Where they find the
 * ring between the two full they wait, and go with a later iteration (the worker's counter
 * `bufs_waited`). A thread that is no worker takes one locked instruction for each buf of a
 * worker's.
 *
 * A library built with -Ddebug_bufs=enabled (--buildtype=debug and sanitizers have it) aborts on a
 * double free, a buf freed or sent while it is sent, one whose data lies outside its room, and one of
 * another thread's, naming who allocated and who freed. */
void vbn_buf_free(struct vbn_buf **bufs, int n);

#ifdef __cplusplus
}
#endif

#endif
