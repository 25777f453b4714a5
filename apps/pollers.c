/* pollers.c - other processes: their names, and the cores that a thread of theirs keeps busy, so that two
 * commands need not share one
 *
 * A thread that may run on one core alone and is running, or that is a worker of this library (which may
 * sleep), has that core to itself, or means to.
 */
#include "cmd.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define WORKER "(vbn-w" /* how the names of the library's workers begin */

enum { KERNEL_THREAD = 0x00200000 }; /* of the flags in stat */

/* Whether /proc/PID/task/TID/stat is of one that polls; `awake`: at this moment. */
static bool polls(const char *stat, bool awake)
{
	const char *name = strchr(stat, '('), *end = strrchr(stat, ')');
	unsigned int flags;
	char state;

	if (!name || !end || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
		return false;
	return !(flags & KERNEL_THREAD) &&
		(state == 'R' || (!awake && !strncmp(name, WORKER, strlen(WORKER))));
}

/* The one core that it may run on; -1: it has several. */
static int only_core(pid_t thread)
{
	cpu_set_t *set = CPU_ALLOC(MAX_CORES);
	size_t size = CPU_ALLOC_SIZE(MAX_CORES);
	int core = -1;

	if (set && !sched_getaffinity(thread, size, set) && CPU_COUNT_S(size, set) == 1)
		for (core = 0; !CPU_ISSET_S((size_t)core, size, set);)
			core++;
	CPU_FREE(set);
	return core;
}

static void look_at_thread(pid_t process, pid_t thread, bool awake, pid_t on[MAX_CORES])
{
	char path[64], stat[512] = "";
	FILE *file;
	int core;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", process, thread);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(stat, sizeof(stat), file) && polls(stat, awake)) {
		core = only_core(thread);
		if (core >= 0)
			on[core] = process;
	}
	fclose(file);
}

/* The next number among a folder's names; 0: there is none. */
static pid_t next_number(DIR *folder)
{
	const struct dirent *entry;

	while ((entry = readdir(folder)))
		if (isdigit((unsigned char)*entry->d_name))
			return (pid_t)strtol(entry->d_name, NULL, 10);
	return 0;
}

static void look_at_process(pid_t process, bool awake, pid_t on[MAX_CORES])
{
	char path[64];
	DIR *threads;
	pid_t thread;

	snprintf(path, sizeof(path), "/proc/%d/task", process);
	threads = opendir(path);
	if (!threads)
		return;
	while ((thread = next_number(threads)))
		look_at_thread(process, thread, awake, on);
	closedir(threads);
}

void pollers_find(bool awake, pid_t on[MAX_CORES])
{
	DIR *processes = opendir("/proc");
	pid_t process;

	memset(on, 0, MAX_CORES * sizeof(*on));
	if (!processes)
		return;
	while ((process = next_number(processes)))
		if (process != getpid())
			look_at_process(process, awake, on);
	closedir(processes);
}

void process_name(pid_t process, char name[16])
{
	char path[64];
	FILE *file;

	*name = 0;
	snprintf(path, sizeof(path), "/proc/%d/comm", process);
	file = fopen(path, "re");
	if (file && !fgets(name, 16, file))
		*name = 0;
	if (file)
		fclose(file);
	name[strcspn(name, "\n")] = 0;
	make_printable(name);
}

/* "verbena (process 123)". */
static void name_of(pid_t process, char text[64])
{
	char name[16];

	process_name(process, name);
	snprintf(text, 64, "%s (process %d)", *name ? name : "one that has ended", process);
}

int core_choose(int node, int *core, char why[128])
{
	static int cores[MAX_CORES];
	static pid_t on[MAX_CORES];
	int n = vbn_cores_near(node, cores, MAX_CORES), at = 0;
	char who[64];

	if (n < 1)
		return library_failed(n < 0 ? n : -EPERM, "no core can be found for a worker");
	n = n < MAX_CORES ? n : MAX_CORES;
	pollers_find(false, on);
	while (at < n && on[cores[at]])
		at++;
	*core = cores[at < n ? at : 0];
	if (at)
		name_of(on[cores[0]], who);
	if (!at)
		snprintf(why, 128, "one, near the device");
	else if (at < n)
		snprintf(why, 128, "one, near the device: on core %d is %s", cores[0], who);
	else
		snprintf(why, 128, "shared with %s", who);
	if (at == n)
		say("core %d is shared with %s, and both are slow: something polls on each core that this "
		    "process may use; give --cores one that is free, or end what polls there",
			*core, who);
	return 0;
}
