/* verbena/counter.h - reading the named counters of every room from outside the data path */
#ifndef VERBENA_COUNTER_H
#define VERBENA_COUNTER_H

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

#ifdef __cplusplus
}
#endif

#endif
