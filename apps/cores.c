/* cores.c - the list of --cores: its form, and which of them this process may use */
#include "cmd.h"

#include <ctype.h>
#include <sched.h>
#include <stdlib.h>

struct list {
	const char *whole;
	int *cores, *n;
};

static bool allowed(int core)
{
	cpu_set_t *set = CPU_ALLOC(MAX_CORES);
	size_t size = CPU_ALLOC_SIZE(MAX_CORES);
	bool is = set && core < MAX_CORES && !sched_getaffinity(0, size, set) &&
		CPU_ISSET_S((size_t)core, size, set);

	CPU_FREE(set);
	return is;
}

static int add_core(const struct list *list, long core)
{
	for (int i = 0; i < *list->n; i++)
		if (list->cores[i] == core)
			return usage_error(
				"option --cores lists core %ld twice: give each core once, a worker has "
				"one to itself",
				core);
	if (*list->n == MAX_CORES)
		return usage_error(
			"option --cores lists more than %d cores: give fewer", MAX_CORES);
	list->cores[(*list->n)++] = (int)core;
	return 0;
}

/* A number at *text, which then points behind it; -1: there is none, or it is beyond any core. */
static long take_core(const char **text)
{
	char *end;
	long core;

	if (!isdigit((unsigned char)**text))
		return -1;
	core = strtol(*text, &end, 10);
	*text = end;
	return core > 99999 ? -1 : core;
}

static int bad_list(const struct list *list)
{
	return usage_error(
		"option --cores cannot be \"%.80s\": it is not a list of cores; give numbers and ranges, as "
		"in 0,2-3",
		list->whole);
}

/* One "2" or "2-5". */
static int take_range(const struct list *list, const char **text)
{
	long first = take_core(text), last = first;
	int status = 0;

	if (first >= 0 && **text == '-') {
		(*text)++;
		last = take_core(text);
	}
	if (first < 0 || last < first)
		return bad_list(list);
	for (long core = first; core <= last && !status; core++)
		status = add_core(list, core);
	return status;
}

int cores_take(const char *text, int cores[MAX_CORES], int *n)
{
	const struct list list = {text, cores, n};
	int status = 0;

	do
		status = take_range(&list, &text);
	while (!status && *text == ',' && text++);
	if (!status && *text)
		status = bad_list(&list);
	for (int i = 0; i < *n && !status; i++)
		if (!allowed(cores[i]))
			status = cannot(
				"core %d cannot have a worker: this process may not use it, or it does not exist; "
				"give --cores from those that taskset -cp $$ lists",
				cores[i]);
	return status;
}
