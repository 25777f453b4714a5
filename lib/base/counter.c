/* counter.c - the registry of named counters */

#include "base/base.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter_set *first, **end = &first;

void vbn__counters_add(struct counter_set *set)
{
	pthread_mutex_lock(&lock);
	set->next = NULL;
	set->at = end;
	*end = set;
	end = &set->next;
	pthread_mutex_unlock(&lock);
}

void vbn__counters_remove(struct counter_set *set)
{
	pthread_mutex_lock(&lock);
	if (set->at) { /* else it was never added */
		*set->at = set->next;
		*(set->next ? &set->next->at : &end) = set->at;
		set->at = NULL;
	}
	pthread_mutex_unlock(&lock);
}

int vbn__counters_each(
	int (*fn)(const struct counter_set *set, size_t i, uint64_t value, void *arg), void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	for (const struct counter_set *set = first; set && !ret; set = set->next)
		for (size_t i = 0; i < set->n && !ret; i++)
			ret = fn(set, i, load_once(&set->values[i]), arg);
	pthread_mutex_unlock(&lock);
	return ret;
}
