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

static double read_total(const char *path)
{
	unsigned long long total = 0;
	char line[512];
	bool found = false;
	FILE *file = fopen(path, "r");

	if (!file)
		die("callgrind left no %s: its --dump-after did not work", path);
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "totals: %llu", &total) == 1;
	fclose(file);
	if (!found || !total)
		die("%s has no totals: callgrind did not see the measured function", path);
	return (double)total;
}

bool count_instructions(const char *const *options, double *counts, int n_acts)
{
	char folder[] = "/tmp/bench.XXXXXX", out[64], path[96];
	bool ran;

	if (!mkdtemp(folder))
		die("cannot make a folder in /tmp: %s", strerror(errno));
	snprintf(out, sizeof(out), "%s/out", folder);
	ran = run_valgrind(options, out);
	for (int i = 0; ran && i < n_acts; i++) {
		snprintf(path, sizeof(path), "%s.%d", out, 2 * i + 2);
		counts[i] = read_total(path) / (COUNTED * BURST);
	}
	for (int i = 0; i <= 2 * n_acts + 1; i++) {
		snprintf(path, sizeof(path), i ? "%s.%d" : "%s", out, i);
		unlink(path);
	}
	rmdir(folder);
	return ran;
}
