/* callgrind.c - instructions of acts, counted by running the program again under valgrind
 *
 * Collection is on only inside the functions named measure_*, and callgrind keeps that switch per
 * thread, so what other threads (an emulated device, a control thread) execute is not counted. A
 * dump is made at the end of each act's warm-up and at the end of its counted rounds, in this
 * order: dumps 2 i + 1 and 2 i + 2 belong to act i.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_UP = 20, COUNTED = 50 }; /* rounds; the warm-up takes the rings once round */

extern char **environ;

/* Leaving this function makes callgrind dump what it has collected, and start from zero. */
static __attribute__((noinline)) void callgrind_dump_here(void)
{
	__asm__ volatile("" ::: "memory");
}

static void one_round(const struct act *act)
{
	struct patience patience = patience_start();

	for (;;) {
		act->prepare();
		act->call();
		if (act->settle())
			return;
		patience_wait(&patience, "a whole burst to have landed");
	}
}

void count_rounds(const struct act *const *acts, int n_acts)
{
	for (int i = 0; i < n_acts; i++) {
		for (int round = 0; round < WARM_UP; round++)
			one_round(acts[i]);
		callgrind_dump_here();
		for (int round = 0; round < COUNTED; round++)
			one_round(acts[i]);
		callgrind_dump_here();
	}
}

/* True when valgrind ran and the program under it ended well. */
static bool run_valgrind(const char *const *options, const char *out)
{
	char out_option[256], self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *argv[18] = {"valgrind", "--tool=callgrind", "-q", "--fair-sched=try",
		"--collect-atstart=no", "--toggle-collect=measure_*",
		"--dump-after=callgrind_dump_here", out_option, self, "--count"};
	int argc = 10;
	pid_t pid;
	int error, status;

	if (len < 0)
		die("cannot read /proc/self/exe: %s", strerror(errno));
	self[len] = 0;
	while (*options && argc < 17)
		argv[argc++] = *options++;
	snprintf(out_option, sizeof(out_option), "--callgrind-out-file=%s", out);
	error = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
	if (error == ENOENT)
		return false;
	if (error)
		die("cannot start valgrind: %s", strerror(error));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("cannot wait for valgrind: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		die("the run under valgrind failed (wait status %#x)", (unsigned int)status);
	return true;
}

/* ---- what callgrind has left: its format's names may be given once, "(1) name", and then "(1)" ---- */

enum { MAX_FILES = 4096 };

static enum bench_room room_of(const char *file)
{
	if (strstr(file, "lib/drv/"))
		return ROOM_DRIVER;
	if (strstr(file, "lib/chan/"))
		return ROOM_CHANNELS;
	return strstr(file, "lib/port/") ? ROOM_PORT : ROOM_REST;
}

/* Of the name behind "fl=", whose files' rooms are remembered by number. */
static enum bench_room read_file(const char *name, unsigned char *rooms)
{
	char *end;
	unsigned long id = *name == '(' ? strtoul(name + 1, &end, 10) : MAX_FILES;

	if (id >= MAX_FILES)
		die("callgrind names a file in a way that is not known here: %s", name);
	if (end[0] == ')' && end[1] == ' ')
		rooms[id] = (unsigned char)room_of(end + 2);
	return (enum bench_room)rooms[id];
}

/* Self cost of each function to the room that its file is in. A line of cost behind "calls=" is the
 * called function's. */
static struct cost read_cost(const char *path)
{
	unsigned char rooms[MAX_FILES] = {0};
	enum bench_room room = ROOM_REST;
	struct cost cost = {0};
	bool is_call = false;
	char line[4096];
	FILE *file = fopen(path, "r");

	if (!file)
		die("callgrind left no %s: its --dump-after did not work", path);
	while (fgets(line, sizeof(line), file)) {
		unsigned long long count;

		if (!strncmp(line, "fl=", 3))
			room = read_file(line + 3, rooms);
		else if (!strncmp(line, "fi=", 3) || !strncmp(line, "fe=", 3) ||
			!strncmp(line, "cfi=", 4) || !strncmp(line, "cfl=", 4))
			read_file(strchr(line, '=') + 1, rooms);
		else if (!strncmp(line, "calls=", 6))
			is_call = true;
		else if (strchr("0123456789+-*", *line)) {
			if (!is_call && sscanf(line, "%*s %llu", &count) == 1)
				cost.rooms[room] += (double)count;
			is_call = false;
		}
	}
	fclose(file);
	for (int i = 0; i < ROOM_ALL; i++)
		cost.rooms[ROOM_ALL] += cost.rooms[i];
	if (!(cost.rooms[ROOM_ALL] > 0))
		die("%s has no costs: callgrind did not see the measured function", path);
	return cost;
}

bool count_costs(const char *const *options, struct cost *costs, int n_acts)
{
	char folder[] = "/tmp/bench.XXXXXX", out[64], path[96];
	bool ran;

	if (!mkdtemp(folder))
		die("cannot make a folder in /tmp: %s", strerror(errno));
	snprintf(out, sizeof(out), "%s/out", folder);
	ran = run_valgrind(options, out);
	for (int i = 0; ran && i < n_acts; i++) {
		snprintf(path, sizeof(path), "%s.%d", out, 2 * i + 2);
		costs[i] = read_cost(path);
		for (int room = 0; room < N_ROOMS; room++)
			costs[i].rooms[room] /= COUNTED * BURST;
	}
	for (int i = 0; i <= 2 * n_acts + 1; i++) {
		snprintf(path, sizeof(path), i ? "%s.%d" : "%s", out, i);
		unlink(path);
	}
	rmdir(folder);
	return ran;
}

bool count_instructions(const char *const *options, double *counts, int n_acts)
{
	struct cost *costs = calloc((size_t)n_acts, sizeof(*costs));
	bool ran;

	if (!costs)
		die("no memory for the costs of %d acts", n_acts);
	ran = count_costs(options, costs, n_acts);
	for (int i = 0; ran && i < n_acts; i++)
		counts[i] = costs[i].rooms[ROOM_ALL];
	free(costs);
	return ran;
}
