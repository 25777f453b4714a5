/* counter.h - the registry of named counters that all rooms use
 *
 * A set is an object's counters: an array of uint64_t in memory of the owner, written by the owner
 * alone with plain stores, and one table of names. Registering costs nothing on the fast path;
 * readers load each value once (relaxed), so a set is read without a lock, value by value, never as
 * a snapshot.
 */
#ifndef VBN_COUNTER_H
#define VBN_COUNTER_H

#include <stddef.h>
#include <stdint.h>

/* The owner counts: a plain load, add and store, never torn for a reader on another thread. */
static inline __attribute__((__always_inline__)) void count_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

struct counter_name {
	const char *name; /* "rx_no_buf": the field's word, lower case */
	const char *help; /* one clause: what one count is */
};

struct counter_set {
	const char *kind; /* "worker", "queue", "pool", "port" */
	char object[32];  /* "0", "mlx5_0/17" */
	const struct counter_name *names;
	const uint64_t *values;
	size_t n;
	struct counter_set *next, **at; /* the registry's */
};

/* The set stays the caller's memory and must be removed before it goes. Any thread; takes a lock.
 */
void vbn__counters_add(struct counter_set *set);
void vbn__counters_remove(struct counter_set *set);

/* Calls fn for each counter of each set, in the order of registration, under the registry's lock:
 * fn must not add or remove. Stops when fn returns non-zero and returns that. Any thread. */
int vbn__counters_each(
	int (*fn)(const struct counter_set *set, size_t i, uint64_t value, void *arg), void *arg);

#endif
