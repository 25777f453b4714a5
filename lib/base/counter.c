/* counter.c - the registry of named counters, and what else there is to say of who has them */

#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter_set *first, **end = &first;
static uint32_t last_id;

/* So that those of a kind always stand in the order of their ids. There are few that are numbered. */
static struct counter_set **place_of(const struct counter_set *set)
{
	struct counter_set **at = &first;

	while (*at && (strcmp((*at)->kind, set->kind) || (*at)->id < set->id))
		at = &(*at)->next;
	return at;
}

void vbn__counters_add(struct counter_set *set)
{
	pthread_mutex_lock(&lock);
	if (!set->numbered)
		set->id = ++last_id;
	set->at = set->numbered ? place_of(set) : end;
	set->next = *set->at;
	*(set->next ? &set->next->at : &end) = &set->next;
	*set->at = set;
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

void vbn__counters_exchange(char **text, char *value)
{
	char *old;

	pthread_mutex_lock(&lock);
	old = *text;
	*text = value;
	pthread_mutex_unlock(&lock);
	free(old);
}

int vbn__counters_visit(int (*fn)(const struct counter_set *set, void *arg), void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	for (const struct counter_set *set = first; set && !ret; set = set->next)
		ret = fn(set, arg);
	pthread_mutex_unlock(&lock);
	return ret;
}

struct each {
	int (*fn)(const struct counter_set *set, size_t i, uint64_t value, void *arg);
	void *arg;
};

static int each_of_object(const struct counter_set *set, void *arg)
{
	const struct each *each = arg;
	int ret = 0;

	for (; set && !ret; set = set->more)
		for (size_t i = 0; i < set->n && !ret; i++)
			ret = each->fn(set, i, load_once(&set->values[i]), each->arg);
	return ret;
}

int vbn__counters_each(
	int (*fn)(const struct counter_set *set, size_t i, uint64_t value, void *arg), void *arg)
{
	return vbn__counters_visit(each_of_object, &(struct each){fn, arg});
}

/* ---- facts ---- */

static struct fact *fact_add(struct fact_list *list, const char *name, const char *help)
{
	static _Thread_local struct fact spare; /* what there is no room for */
	struct fact *fact =
		list->n < (int)ARRAY_SIZE(list->facts) ? &list->facts[list->n++] : &spare;

	fact->name = name;
	fact->help = help;
	fact->text[0] = '\0';
	return fact;
}

void vbn__fact_text(struct fact_list *list, const char *name, const char *text)
{
	struct fact *fact = fact_add(list, name, "");

	fact->kind = FACT_TEXT;
	snprintf(fact->text, sizeof(fact->text), "%s", text);
}

void vbn__fact_note(struct fact_list *list, const char *name, const char *text)
{
	struct fact *fact = fact_add(list, name, "");

	fact->kind = FACT_NOTE;
	vbn__glance_text(fact->text, sizeof(fact->text), text);
}

static void add_number(struct fact_list *list, enum fact_kind kind, const char *name,
	const char *help, uint64_t number)
{
	struct fact *fact = fact_add(list, name, help);

	fact->kind = kind;
	fact->number = number;
}

void vbn__fact_number(struct fact_list *list, const char *name, uint64_t number)
{
	add_number(list, FACT_NUMBER, name, "", number);
}

void vbn__fact_gauge(struct fact_list *list, const char *name, const char *help, uint64_t number)
{
	add_number(list, FACT_GAUGE, name, help, number);
}

void vbn__fact_counter(struct fact_list *list, const char *name, const char *help, uint64_t number)
{
	add_number(list, FACT_COUNTER, name, help, number);
}

/* Not instrumented: a race detector sees the owner's plain stores, and has nothing to pair them
 * with. An atomic load would be, whatever the attribute says. */
noinline __attribute__((__no_sanitize__("thread"))) uint32_t vbn__glance(const uint32_t *word)
{
	return *(const volatile uint32_t *)word;
}

noinline __attribute__((__no_sanitize__("thread"))) uint64_t vbn__glance_count(const uint64_t *word)
{
	return *(const volatile uint64_t *)word;
}

noinline __attribute__((__no_sanitize__("thread"))) uint8_t vbn__glance_byte(const uint8_t *byte)
{
	return *(const volatile uint8_t *)byte;
}

noinline __attribute__((__no_sanitize__("thread"))) bool vbn__glance_flag(const bool *flag)
{
	return *(const volatile bool *)flag;
}

noinline __attribute__((__no_sanitize__("thread"))) void vbn__glance_text(
	char *to, size_t size, const char *text)
{
	size_t n = 0;
	char c;

	while (n + 1 < size && (c = ((const volatile char *)text)[n]))
		to[n++] = c;
	to[n] = '\0';
}
