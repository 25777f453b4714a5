/* child.c - a case in a process of its own: VHCA_* is read once, and what is said is looked at */

#include "child.h"

#include "pair.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_SECONDS = 60 };

int child_run(int (*run)(void), const char *strict, char *said, size_t size)
{
	int text = memfd_create("stderr", 0), status;
	ssize_t n;
	pid_t child = fork();

	if (!child) {
		dup2(text, STDERR_FILENO);
		setenv("VHCA_STRICT", strict, 1);
		setenv("VHCA_WIRE", "loopback", 1); /* one that has nothing to say of itself */
		alarm(MAX_SECONDS);
		_exit(run());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	n = pread(text, said, size - 1, 0);
	said[n > 0 ? n : 0] = 0;
	close(text);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGABRT ? CHILD_STOPPED : CHILD_WRONG;
	return WEXITSTATUS(status);
}

void child_wait_until_told(void)
{
	struct stat file = {0};

	for (int patience = 10000; !file.st_size && patience; patience--) {
		usleep(1000);
		fstat(STDERR_FILENO, &file);
	}
}
