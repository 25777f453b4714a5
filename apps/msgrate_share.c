/* msgrate_share.c - whether a worker's core is another process's, too: then its figures are half of what
 * they were alone
 *
 * A look at /proc: threads that run now, on one of the cores, and may run nowhere else.
 */
#include "msgrate.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

/* The line of a file, behind "name:" where there is a name; false: it is gone, or not for us. */
static bool read_line(const char *path, const char *name, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t length = strlen(name);
	bool found = false;

	while (file && !found && fgets(text, (int)size, file))
		found = !strncmp(text, name, length);
	if (file)
		fclose(file);
	if (found)
		text[strcspn(text, "\n")] = 0;
	return found;
}

/* Where a thread runs; -1: it does not. Behind its name, which may hold anything, the state is the first
 * word and the core the 37th. */
static int runs_on(const char *task)
{
	char path[96], text[1024], *at;

	snprintf(path, sizeof(path), "%s/stat", task);
	if (!read_line(path, "", text, sizeof(text)) || !(at = strrchr(text, ')')) ||
		at[1] != ' ' || at[2] != 'R')
		return -1;
	at += 2;
	for (int word = 1; word < 37 && at; word++) {
		at = strchr(at, ' ');
		at += at != NULL;
	}
	return at ? atoi(at) : -1;
}

static bool is_pinned(const char *task, int core)
{
	static const char name[] = "Cpus_allowed_list:\t";
	char path[96], text[1024], only[16];

	snprintf(path, sizeof(path), "%s/status", task);
	snprintf(only, sizeof(only), "%d", core);
	return read_line(path, name, text, sizeof(text)) && !strcmp(text + strlen(name), only);
}

static bool is_ours(const struct run *run, int core)
{
	for (int i = 0; i < run->n_sides; i++)
		if (run->sides[i].core == core)
			return true;
	return false;
}

/* The core that a thread of the process shares with a worker; -1: none does. */
static int shared_core(const struct run *run, const char *process)
{
	char path[64], task[80];
	const struct dirent *entry;
	int shared = -1;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%.20s/task", process);
	tasks = opendir(path);
	while (tasks && shared < 0 && (entry = readdir(tasks))) {
		int core;

		snprintf(task, sizeof(task), "%.40s/%.20s", path, entry->d_name);
		core = isdigit((unsigned char)entry->d_name[0]) ? runs_on(task) : -1;
		if (core >= 0 && is_ours(run, core) && is_pinned(task, core))
			shared = core;
	}
	if (tasks)
		closedir(tasks);
	return shared;
}

static void say_shared(int core, const char *process)
{
	char path[64], name[64] = "?";

	snprintf(path, sizeof(path), "/proc/%.20s/comm", process);
	read_line(path, "", name, sizeof(name));
	for (char *c = name; *c; c++)
		*c = isprint((unsigned char)*c) ? *c : '?';
	say("core %d is shared: process %.20s (%s) has a busy thread pinned to it, too, so each gets a part of "
	    "it; give --cores others",
		core, process, name);
}

void cores_say_shared(const struct run *run)
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	int core = -1;

	while (processes && core < 0 && (entry = readdir(processes)))
		if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != getpid()) {
			core = shared_core(run, entry->d_name);
			if (core >= 0)
				say_shared(core, entry->d_name);
		}
	if (processes)
		closedir(processes);
}
