/* threads.c - whether the program's threads have gone on between two looks, or are about to
 *
 * For a rule about what a thread fails to do: one that has been kept from running, by a debugger, a
 * page that has to be fetched, or busier threads, may still be about to do it. Which thread it is
 * about is not known, so all have to have gone on.
 */
#include "vhca/device.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_THREADS = 1024,
	WENT_ON_NS = 10 * 1000 * 1000, /* of CPU time: some 10^7 instructions */
};

struct seen {
	int tid;
	uint64_t ns;
};

static struct seen seen[MAX_THREADS];
static size_t n_seen;
static bool all_seen;

/* The kernel's encoding of a clock that counts one thread's time. */
static bool cpu_time(int tid, uint64_t *ns)
{
	struct timespec time;

	if (clock_gettime((clockid_t)(~(unsigned int)tid << 3 | 6), &time))
		return false;
	*ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	return true;
}

/* Asleep in one, rather than on a CPU, waiting for one, stopped, or in a page fault. */
static bool in_system_call(int tid)
{
	char path[64], text[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	return text[0] >= '0' && text[0] <= '9';
}

static bool went_on(const struct seen *before)
{
	uint64_t ns;

	if (!cpu_time(before->tid, &ns)) /* it has ended */
		return true;
	return ns - before->ns >= WENT_ON_NS || in_system_call(before->tid);
}

void vhca_threads_look(void)
{
	int self = (int)syscall(SYS_gettid);
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;

	n_seen = 0;
	all_seen = tasks;
	while (tasks && all_seen && (entry = readdir(tasks))) {
		int tid = atoi(entry->d_name);

		if (tid <= 0 || tid == self)
			continue;
		all_seen = n_seen < MAX_THREADS;
		if (all_seen && cpu_time(tid, &seen[n_seen].ns))
			seen[n_seen++].tid = tid;
	}
	if (tasks)
		closedir(tasks);
}

bool vhca_threads_went_on(void)
{
	for (size_t i = 0; i < n_seen; i++)
		if (!went_on(&seen[i]))
			return false;
	return all_seen;
}

/* "R" or "t" behind the name, which may have anything in it. */
static bool about_to_run(const char *thread)
{
	char path[64], text[256];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/stat", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	state = strrchr(text, ')');
	return state && state[1] == ' ' && (state[2] == 'R' || state[2] == 't');
}

bool vhca_threads_about_to_run(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int self = (int)syscall(SYS_gettid);
	struct dirent *entry;
	bool found = false;

	while (tasks && !found && (entry = readdir(tasks)))
		found = entry->d_name[0] != '.' && atoi(entry->d_name) != self &&
			about_to_run(entry->d_name);
	if (tasks)
		closedir(tasks);
	return found;
}
