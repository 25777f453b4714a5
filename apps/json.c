/* json.c - where --json goes: standard output or a file that holds one whole object or does not
 * exist */
#include "cmd.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

json_t *json_number(double value)
{
	return json_real(isfinite(value) ? value : 0.0);
}

/* Not truncated here: an older result stays until there is a new one. */
static int open_file(struct json_sink *sink)
{
	int fd = open(sink->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	sink->created = fd >= 0;
	if (fd < 0 && errno == EEXIST)
		fd = open(sink->path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	sink->file = fdopen(fd, "w");
	if (!sink->file) {
		close(fd);
		return -ENOMEM;
	}
	return 0;
}

int json_open(struct json_sink *sink, const char *path)
{
	int err;

	*sink = (struct json_sink){.path = path};
	if (!path)
		return 0;
	if (!strcmp(path, "-")) {
		sink->file = stdout;
		return 0;
	}
	err = open_file(sink);
	if (err)
		return cannot(
			"%s: the JSON cannot be written there: %s; give --json a path in a directory of "
			"yours, or - for standard output",
			path, strerror(-err));
	return 0;
}

int json_finish(struct json_sink *sink, json_t *root)
{
	int failed;

	if (!sink->path) {
		json_decref(root);
		return 0;
	}
	if (!root) {
		json_abandon(sink);
		return cannot("the JSON cannot be made: there is no memory; free some");
	}
	failed = json_dumpf(root, sink->file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	failed |= fputc('\n', sink->file) == EOF;
	failed |= fflush(sink->file);
	json_decref(root);
	if (sink->file != stdout) {
		/* Fails where the path is no regular file, where there is nothing to cut either. */
		failed |= ftruncate(fileno(sink->file), ftell(sink->file)) && errno != EINVAL;
		failed |= fclose(sink->file);
	}
	sink->file = NULL;
	if (failed)
		return cannot("%s: the JSON could not be written whole: %s; make room there",
			strcmp(sink->path, "-") ? sink->path : "standard output", strerror(errno));
	return 0;
}

void json_abandon(struct json_sink *sink)
{
	if (sink->file && sink->file != stdout)
		fclose(sink->file);
	if (sink->created)
		unlink(sink->path);
	sink->file = NULL;
}
