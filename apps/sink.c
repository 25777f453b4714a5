/* sink.c - where results go: standard output, or a file that holds the whole of one or does not
 * exist */
#include "cmd.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

json_t *json_number(double value)
{
	return json_real(isfinite(value) ? value : 0.0);
}

int open_to_write(const char *path, int flags)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0666);

	if (fd < 0)
		return -errno;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

const char *why_not_opened(int err)
{
	return err == -ENXIO ? "nobody reads that pipe, start its reader first" : strerror(-err);
}

/* Not truncated here: an older result stays until there is a new one. */
static int open_file(struct sink *sink)
{
	int fd = open_to_write(sink->path, O_CREAT | O_EXCL);

	sink->created = fd >= 0;
	if (fd == -EEXIST)
		fd = open_to_write(sink->path, 0);
	if (fd < 0)
		return fd;
	sink->file = fdopen(fd, "w");
	if (!sink->file) {
		close(fd);
		return -ENOMEM;
	}
	return 0;
}

int sink_open(struct sink *sink, const char *option, const char *path)
{
	int err;

	*sink = (struct sink){.path = path};
	if (!path)
		return 0;
	err = open_file(sink);
	if (err)
		return cannot(
			"%s: the %s cannot be written there: %s; give --%s a path in a directory of "
			"yours%s",
			path, strcmp(option, "json") ? option : "JSON", why_not_opened(err), option,
			strcmp(option, "json") ? "" : ", or - for standard output");
	return 0;
}

int json_open(struct sink *sink, const char *path)
{
	if (!path || strcmp(path, "-"))
		return sink_open(sink, "json", path);
	*sink = (struct sink){.path = path, .file = stdout};
	return 0;
}

/* The errno of the first step that failed, or 0. */
static int write_object(FILE *file, const json_t *root)
{
	errno = 0;
	if (json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) ||
		fputc('\n', file) == EOF || fflush(file))
		return errno ? errno : EIO;
	return 0;
}

/* What an older and longer result had behind this one goes. */
static int close_file(FILE *file, int err)
{
	struct stat info;

	/* A pipe or a device has nothing to cut. */
	if (!err && !fstat(fileno(file), &info) && S_ISREG(info.st_mode) &&
		ftruncate(fileno(file), ftell(file)))
		err = errno;
	if (fclose(file) && !err)
		err = errno;
	return err;
}

int sink_finish(struct sink *sink, int err)
{
	if (sink->file != stdout)
		err = close_file(sink->file, err);
	sink->file = NULL;
	if (!strcmp(sink->path, "-"))
		return output_check(err);
	return err ? cannot_write(sink->path, err) : 0;
}

void sink_abandon(struct sink *sink)
{
	if (sink->file && sink->file != stdout)
		fclose(sink->file);
	if (sink->created)
		unlink(sink->path);
	sink->file = NULL;
}

int json_finish(struct sink *sink, json_t *root)
{
	int err;

	if (!sink->path) {
		json_decref(root);
		return 0;
	}
	if (!root) {
		sink_abandon(sink);
		return cannot("the JSON cannot be made: there is no memory; free some");
	}
	err = write_object(sink->file, root);
	json_decref(root);
	return sink_finish(sink, err);
}
