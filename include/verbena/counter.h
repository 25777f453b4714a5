/* verbena/counter.h - reading the named counters of every room from outside the data path, and adding
 * one's own */
#ifndef VERBENA_COUNTER_H
#define VERBENA_COUNTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls fn for every counter there is: `kind` ("worker", "queue", "pool", "port"), `object`
 * ("mlx5_0/17"), `name` ("rx_no_buf"), `help` (what one count is). Each value is of a moment: the
 * owner goes on counting. fn must not create or destroy objects; a result other than 0 ends the
 * walk and is returned. Any thread; takes a lock that no data path takes. */
int vbn_counters_each(int (*fn)(const char *kind, const char *object, const char *name,
			      const char *help, uint64_t value, void *arg),
	void *arg);

/* ---- a program's own ---- */

/* Counts, on the counter's one writer: a plain load, add and store, which no reader on another thread
 * sees torn. */
static inline void vbn_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

struct vbn_counter_name {
	const char *name; /* a-z, 0-9, "_" */
	const char *help; /* one clause: what one count is */
};

struct vbn_counters_conf {
	const char *kind;   /* of the object: a-z, 0-9, "_", not one of the library's */
	const char *object; /* its name; up to 31 bytes of it are copied */
	const struct vbn_counter_name *names;
	const uint64_t *values; /* n of them, each with one writer, which never lets it fall */
	size_t n;
};

struct vbn_counters;

/* Adds an object's counters to those that are seen from outside (verbena/telemetry.h). kind, the texts of
 * names, and values stay the caller's memory until vbn_counters_remove(). -EINVAL, -ENOMEM. Any thread; takes
 * a lock. */
int vbn_counters_add(const struct vbn_counters_conf *conf, struct vbn_counters **counters);
void vbn_counters_remove(struct vbn_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
