/* output.c - what the emulator writes to a file that the user named: a trace, a capture */
#include "vhca/output.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HIGH_FD = 512 }; /* out of the way of programs that count on small numbers */

/* "%p" becomes the process's number. */
static bool make_path(const char *path, char *made, size_t size)
{
	const char *at = strstr(path, "%p");
	int n = at ? snprintf(made, size, "%.*s%d%s", (int)(at - path), path, getpid(), at + 2)
		   : snprintf(made, size, "%s", path);

	return n >= 0 && (size_t)n < size;
}

/* 0 or an errno. Processes that start at the same time wait for each other. */
static int begin(int fd, const void *start, size_t size, size_t n_magic)
{
	char magic[16] = {0};
	struct stat st;
	int error = 0;

	if (flock(fd, LOCK_EX) && errno != EOPNOTSUPP && errno != EINVAL)
		return errno;
	if (syscall(SYS_fstat, fd, &st))
		error = errno;
	else if (!S_ISREG(st.st_mode) || !st.st_size || !n_magic)
		error = size && write(fd, start, size) != (ssize_t)size ? errno : 0;
	else if (n_magic &&
		(pread(fd, magic, n_magic, 0) != (ssize_t)n_magic || memcmp(magic, start, n_magic)))
		error = EEXIST;
	flock(fd, LOCK_UN);
	return error;
}

static int open_path(struct vhca_output *output, const char *path, const void *start, size_t size,
	size_t n_magic)
{
	struct stat st;
	int fd = strcmp(path, "-") ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
				   : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	int high, error;

	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC); /* a pipe, or the like */
	if (fd < 0)
		return errno;
	high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	error = begin(fd, start, size, n_magic);
	if (!error && syscall(SYS_fstat, fd, &st))
		error = errno;
	if (error) {
		close(fd);
		return error;
	}
	output->fd = fd;
	output->dev = st.st_dev;
	output->ino = st.st_ino;
	return 0;
}

bool vhca_output_open(struct vhca_output *output, const char *path, const void *start, size_t size,
	size_t n_magic)
{
	char made[PATH_MAX];
	int error = make_path(path, made, sizeof(made))
		? open_path(output, made, start, size, n_magic)
		: ENAMETOOLONG;

	if (!error)
		return true;
	output->fd = -1;
	log_warning("vhca: %s: the %s cannot be written there: %s; give a path that can be", path,
		output->what, error == EEXIST ? "the file is something else" : strerror(error));
	return false;
}

static int writable(const struct vhca_output *output)
{
	struct stat st;

	if (syscall(SYS_fstat, output->fd, &st))
		return errno;
	return st.st_dev == output->dev && st.st_ino == output->ino ? 0 : EBADF;
}

bool vhca_output_write(struct vhca_output *output, const struct iovec *parts, int n)
{
	int saved = errno, error = writable(output);

	if (!error && writev(output->fd, parts, n) < 0)
		error = errno;
	errno = saved;
	if (error)
		log_warning("vhca: the %s ends here: %s", output->what,
			error == EBADF ? "the program has closed its file" : strerror(error));
	return !error;
}
