/* debug.c - what debug builds watch of bufs: owner bits, poison, who allocated, who freed, which
 * thread */

#include "mem/mem.h"

#ifdef VBN_DEBUG_BUFS

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POISON   0xdb
#define N_SITES  8
#define SITE_MAX 160

struct buf_history {
	const void *allocated_by, *freed_by; /* return addresses; NULL: never */
};

/* By pool and buf. Not in the pool itself: what only a zone points to looks like a leak to a
 * sanitizer. */
static struct buf_history *histories[MEM_MAX_POOLS + 1];

/* "name+0x12 (object)", or "object+0x1234", which addr2line takes, where the function has no
 * exported name. */
static const char *site(const void *caller, char *text, size_t size)
{
	const char *file;
	Dl_info info;

	if (!caller) {
		snprintf(text, size, "nobody");
		return text;
	}
	if (!dladdr((const char *)caller - 1, &info) ||
		!info.dli_fname) { /* the call, not what follows it */
		snprintf(text, size, "%p", caller);
		return text;
	}
	file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	if (info.dli_sname)
		snprintf(text, size, "%s+0x%zx (%s)", info.dli_sname,
			(size_t)((const char *)caller - (const char *)info.dli_saddr), file);
	else
		snprintf(text, size, "%s+0x%zx", file,
			(size_t)((const char *)caller - (const char *)info.dli_fbase));
	return text;
}

static int thread_id(void)
{
	static __thread int id;

	if (!id)
		id = gettid();
	return id;
}

static uint32_t index_of(const struct vbn_pool *pool, const struct vbn_buf *buf)
{
	return (uint32_t)((size_t)((const uint8_t *)buf - pool->first) / pool->stride);
}

static struct vbn_buf *buf_of(const struct vbn_pool *pool, uint32_t i)
{
	return (struct vbn_buf *)(void *)(pool->first + (size_t)i * pool->stride);
}

/* ---- sentences that end the process ---- */

static cold _Noreturn void die(const struct vbn_pool *pool, const struct vbn_buf *buf,
	const char *what, const void *caller)
{
	const struct buf_history *history = &histories[pool->id][index_of(pool, buf)];
	char by[SITE_MAX], allocated[SITE_MAX], freed[SITE_MAX];

	log_error(
		"pool %s: buf %u: %s, noticed in a call by %s; last allocated by %s, last freed by %s",
		pool->name, index_of(pool, buf), what, site(caller, by, sizeof(by)),
		site(history->allocated_by, allocated, sizeof(allocated)),
		site(history->freed_by, freed, sizeof(freed)));
	abort();
}

static cold _Noreturn void die_stranger(const struct vbn_buf *buf, const void *caller)
{
	char by[SITE_MAX];

	log_error(
		"buf %p: it is no buf of a pool, or its header has been overwritten, noticed when freed by %s; look for a write "
		"before the start or behind the end of a buf's room",
		(const void *)buf, site(caller, by, sizeof(by)));
	abort();
}

static void check_thread(struct vbn_pool *pool, const struct vbn_buf *buf, const void *caller)
{
	char what[96];

	if (!pool->owner)
		pool->owner = thread_id();
	if (likely(pool->owner == thread_id()))
		return;
	snprintf(what, sizeof(what), "used by thread %d, but its pool belongs to thread %d",
		thread_id(), pool->owner);
	die(pool, buf, what, caller);
}

/* ---- poison ---- */

/* The words of a header that mean nothing at home; pool, pool_id and size stay, and flags are 0. */
static void poison(struct vbn_buf *buf)
{
	memset(&buf->data, POISON, sizeof(buf->data));
	memset(&buf->len, POISON, sizeof(buf->len));
	memset(&buf->next, POISON, sizeof(buf->next));
	memset(&buf->cookie, POISON, sizeof(buf->cookie));
	memset(&buf->mark, POISON, sizeof(buf->mark));
	memset(buf->peer, POISON, sizeof(buf->peer));
	memset(vbn_buf_room(buf), POISON, buf->size);
	buf->flags = 0;
	buf->state = BUF_HOME;
}

/* Where the first byte that is not poison lies, or size. Compares the area with itself one byte on.
 */
static size_t first_written(const void *area, size_t size)
{
	const uint8_t *bytes = area;
	size_t at = 0;

	if (bytes[0] == POISON && !memcmp(bytes, bytes + 1, size - 1))
		return size;
	while (at < size && bytes[at] == POISON)
		at++;
	return at;
}

static bool header_written(const struct vbn_buf *buf)
{
	return first_written(&buf->data, sizeof(buf->data)) < sizeof(buf->data) ||
		first_written(&buf->len, sizeof(buf->len)) < sizeof(buf->len) ||
		first_written(&buf->next, sizeof(buf->next)) < sizeof(buf->next) ||
		first_written(&buf->cookie, sizeof(buf->cookie)) < sizeof(buf->cookie) ||
		first_written(&buf->mark, sizeof(buf->mark)) < sizeof(buf->mark) ||
		first_written(buf->peer, sizeof(buf->peer)) < sizeof(buf->peer) || buf->flags;
}

static void check_poison(const struct vbn_pool *pool, struct vbn_buf *buf, const void *caller)
{
	size_t at = first_written(vbn_buf_room(buf), buf->size);
	char what[96];

	if (unlikely(header_written(buf)))
		die(pool, buf, "use after free: its header was written while it was home", caller);
	if (likely(at == buf->size))
		return;
	snprintf(what, sizeof(what),
		"use after free: byte %zu of its room was written while it was home", at);
	die(pool, buf, what, caller);
}

static bool is_ours(const struct vbn_pool *pool, const struct vbn_buf *buf)
{
	const size_t offset = (size_t)((const uint8_t *)buf - pool->first);

	return (const uint8_t *)buf >= pool->first &&
		offset < (size_t)pool->n_bufs * pool->stride && offset % pool->stride == 0 &&
		buf->pool == pool && buf->size == pool->headroom + pool->data_size;
}

/* ---- alloc and free ---- */

void vbn__buf_debug_alloc(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller)
{
	check_thread(pool, buf, caller);
	if (unlikely(!is_ours(pool, buf) || buf->pool_id != pool->id || buf->state != BUF_HOME))
		die(pool, buf, "use after free: its header was overwritten while it was home",
			caller);
	check_poison(pool, buf, caller);
	buf->state = BUF_OUT;
	histories[pool->id][index_of(pool, buf)].allocated_by = caller;
}

void vbn__buf_debug_check(const struct vbn_buf *buf, const void *caller)
{
	if (unlikely(buf->pool_id > MEM_MAX_POOLS || !buf->pool ||
		    vbn__pools[buf->pool_id] != buf->pool || !is_ours(buf->pool, buf)))
		die_stranger(buf, caller);
}

static void check_and_poison(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller)
{
	if (unlikely(buf->state == BUF_HOME))
		die(pool, buf, "freed twice", caller);
	if (unlikely(buf->state == BUF_SENT))
		die(pool, buf, "freed while it is sent: it is the queue's until it is completed",
			caller);
	if (unlikely(buf->state != BUF_OUT))
		die(pool, buf, "its header was overwritten while it was in use", caller);
	poison(buf);
	histories[pool->id][index_of(pool, buf)].freed_by = caller;
}

void vbn__buf_debug_free(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller)
{
	vbn__buf_debug_check(buf, caller);
	if (unlikely(buf->pool != pool))
		die(buf->pool, buf, "freed into another pool than its own", caller);
	check_thread(pool, buf, caller);
	check_and_poison(pool, buf, caller);
}

void vbn__buf_debug_free_away(struct vbn_pool *pool, struct vbn_buf *buf, const void *caller)
{
	check_and_poison(pool, buf, caller);
}

/* A list that it waited in has used `next`. */
void vbn__buf_debug_arrived(struct vbn_buf *buf)
{
	memset(&buf->next, POISON, sizeof(buf->next));
}

/* ---- send and completion ---- */

static void check_sendable(const struct vbn_buf *buf, const void *caller)
{
	struct vbn_pool *pool = buf->pool;
	size_t at;

	vbn__buf_debug_check(buf, caller);
	if (load_once(&pool->home) == vbn__home) /* another worker's may be sent by who has it */
		check_thread(pool, buf, caller);
	if (unlikely(buf->state == BUF_HOME))
		die(pool, buf, "sent after it was freed", caller);
	if (unlikely(buf->state == BUF_SENT))
		die(pool, buf, "sent while it is sent already", caller);
	at = (size_t)(buf->data - ((const uint8_t *)(buf + 1)));
	if (unlikely(at > buf->size || buf->len > buf->size - at))
		die(pool, buf, "sent with data or len outside its room", caller);
}

void vbn__buf_debug_sendable(const struct vbn_buf *buf, const void *caller)
{
	for (;; buf = buf->next) {
		check_sendable(buf, caller);
		if (!(buf->flags & VBN_BUF_CHAIN))
			return;
	}
}

static void set_state(struct vbn_buf *buf, uint8_t state)
{
	for (;; buf = buf->next) {
		buf->state = state;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return;
	}
}

void vbn__buf_debug_sent(struct vbn_buf *buf)
{
	set_state(buf, BUF_SENT);
}

void vbn__buf_debug_done(struct vbn_buf *buf)
{
	set_state(buf, BUF_OUT);
}

/* ---- pools ---- */

int vbn__pool_debug_create(struct vbn_pool *pool)
{
	struct buf_history *history = calloc(pool->n_bufs, sizeof(*history));

	if (!history)
		return -ENOMEM;
	histories[pool->id] = history;
	for (uint32_t i = 0; i < pool->n_bufs; i++)
		poison(buf_of(pool, i));
	return 0;
}

void vbn__pool_debug_destroy(struct vbn_pool *pool)
{
	free(histories[pool->id]);
	histories[pool->id] = NULL;
}

void vbn__pool_debug_leaks(const struct vbn_pool *pool)
{
	const void *callers[N_SITES];
	uint32_t counts[N_SITES], elsewhere = 0;
	char by[SITE_MAX];
	int n = 0, at;

	for (uint32_t i = 0; i < pool->n_bufs; i++) {
		const void *caller = histories[pool->id][i].allocated_by;

		if (buf_of(pool, i)->state == BUF_HOME)
			continue;
		for (at = 0; at < n && callers[at] != caller;)
			at++;
		if (at == N_SITES) {
			elsewhere++;
			continue;
		}
		if (at == n) {
			callers[n] = caller;
			counts[n++] = 0;
		}
		counts[at]++;
	}
	for (at = 0; at < n; at++)
		log_warning("pool %s: %u of them were allocated by %s", pool->name, counts[at],
			site(callers[at], by, sizeof(by)));
	if (elsewhere)
		log_warning("pool %s: %u of them were allocated elsewhere", pool->name, elsewhere);
}

#else

typedef int nothing_to_watch; /* a translation unit is not empty */

#endif
