/* doctor_root.c - reading files below a root: the machine itself, or another sysfs and proc tree
 *
 * Below another root every link stays in it, absolute ones too. What is read is somebody's: lengths
 * are bounded, and nothing in it is taken for true before it is parsed.
 */
#include "doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int root_open(struct root *root, const char *dir)
{
	*root = (struct root){.fd = -1, .real = true};
	if (!dir || !strcmp(dir, "/"))
		return 0;
	root->real = false;
	root->fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root->fd < 0 ? -errno : 0;
}

void root_close(struct root *root)
{
	if (root->fd >= 0)
		close(root->fd);
	root->fd = -1;
}

/* By libc where it is the machine, so that under `verbena vhca` its devices are seen. */
static int open_below(const struct root *root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned int)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT};
	char absolute[ROOT_PATH + 1];
	long fd;

	if (root->real) {
		snprintf(absolute, sizeof(absolute), "/%s", path);
		fd = open(absolute, flags | O_CLOEXEC);
	} else {
		fd = syscall(SYS_openat2, root->fd, path, &how, sizeof(how));
		if (fd < 0 && errno == ENOSYS) /* before Linux 5.6 links are followed as they are */
			fd = openat(root->fd, path, flags | O_CLOEXEC);
	}
	return fd < 0 ? -errno : (int)fd;
}

ssize_t root_bytes(const struct root *root, void *bytes, size_t size, const char *path)
{
	int fd = open_below(root, path, O_RDONLY | O_NONBLOCK);
	size_t used = 0;
	ssize_t n = 1;

	if (fd < 0)
		return fd;
	while (used + 1 < size && n > 0) {
		n = read(fd, (char *)bytes + used, size - used - 1);
		used += n > 0 ? (size_t)n : 0;
	}
	n = n < 0 ? -errno : (ssize_t)used;
	close(fd);
	((char *)bytes)[used] = 0;
	return n;
}

static int print_path(char path[ROOT_PATH], const char *fmt, va_list args)
{
	return vsnprintf(path, ROOT_PATH, fmt, args) < ROOT_PATH ? 0 : -ENAMETOOLONG;
}

int root_line(const struct root *root, char *text, size_t size, const char *fmt, ...)
{
	char path[ROOT_PATH];
	va_list args;
	ssize_t n;
	int err;

	va_start(args, fmt);
	err = print_path(path, fmt, args);
	va_end(args);
	n = err ? err : root_bytes(root, text, size, path);
	if (n < 0)
		return (int)n;
	text[strcspn(text, "\n")] = 0;
	return 0;
}

int root_number(const struct root *root, int64_t *value, const char *fmt, ...)
{
	char path[ROOT_PATH], text[64], *end;
	va_list args;
	ssize_t n;
	int err;

	va_start(args, fmt);
	err = print_path(path, fmt, args);
	va_end(args);
	n = err ? err : root_bytes(root, text, sizeof(text), path);
	if (n < 0)
		return (int)n;
	errno = 0;
	*value = strtoll(text, &end, 0);
	return end == text || errno ? -EINVAL : 0;
}

bool root_has(const struct root *root, const char *fmt, ...)
{
	char path[ROOT_PATH];
	struct stat info;
	va_list args;
	int err;

	va_start(args, fmt);
	err = print_path(path, fmt, args);
	va_end(args);
	return !err && !root_stat(root, &info, path);
}

int root_stat(const struct root *root, struct stat *info, const char *path)
{
	char absolute[ROOT_PATH + 1];
	int fd, err;

	if (root->real) {
		snprintf(absolute, sizeof(absolute), "/%s", path);
		return stat(absolute, info) ? -errno : 0;
	}
	fd = open_below(root, path, O_PATH);
	if (fd < 0)
		return fd;
	err = fstat(fd, info) ? -errno : 0;
	close(fd);
	return err;
}

static ssize_t read_link(const struct root *root, const char *path, char *target, size_t size)
{
	char absolute[ROOT_PATH + 1];
	ssize_t n;
	int fd;

	if (root->real) {
		snprintf(absolute, sizeof(absolute), "/%s", path);
		n = readlink(absolute, target, size);
		return n < 0 ? -errno : n;
	}
	fd = open_below(root, path, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", target, size);
	n = n < 0 ? -errno : n;
	close(fd);
	return n;
}

int root_link_name(const struct root *root, char *name, size_t size, const char *fmt, ...)
{
	char path[ROOT_PATH], target[1024], *last;
	va_list args;
	ssize_t n;
	int err;

	va_start(args, fmt);
	err = print_path(path, fmt, args);
	va_end(args);
	n = err ? err : read_link(root, path, target, sizeof(target) - 1);
	if (n < 0)
		return (int)n;
	target[n] = 0;
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	return snprintf(name, size, "%s", last) < (int)size ? 0 : -ENAMETOOLONG;
}

/* ---- directories ---- */

/* Numbers by their value: node2 before node10. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int root_each(const struct root *root, const char *path,
	int (*fn)(const struct root *root, const char *name, void *arg), void *arg)
{
	struct dirent **entries;
	int fd = -1, n, ret = 0;

	if (root->real) {
		char absolute[ROOT_PATH + 1];

		snprintf(absolute, sizeof(absolute), "/%s", path);
		n = scandir(absolute, &entries, is_visible, by_name);
	} else {
		fd = open_below(root, path, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return fd;
		n = scandirat(fd, ".", &entries, is_visible, by_name);
	}
	if (n < 0)
		ret = -errno;
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < n; i++) {
		if (!ret)
			ret = fn(root, entries[i]->d_name, arg);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return ret;
}
