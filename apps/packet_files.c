/* packet_files.c - the files that a run reads and writes: none is both, nor is one written by two */
#include "packet.h"

#include <sys/stat.h>

enum { MAX_FILES = 2 * MAX_DEVICES + 3, MOST_PATH = 1100 };

struct file {
	char path[MOST_PATH];
	const char *option;
	bool written;
};

struct files {
	struct file of[MAX_FILES];
	int n;
};

static void add(struct files *files, const char *option, const char *path, size_t n, bool written)
{
	struct file *file = &files->of[files->n];

	if (!n || n >= MOST_PATH)
		return; /* is none, or none that can be opened */
	files->n++;
	memcpy(file->path, path, n);
	file->path[n] = 0;
	file->option = option;
	file->written = written;
}

/* "pcap:FROM", "pcap:>TO", "pcap:FROM>TO". */
static void add_device(struct files *files, const char *name)
{
	const char *path = name + 5, *arrow;

	if (strncmp(name, "pcap:", 5) != 0)
		return;
	arrow = strchrnul(path, '>');
	add(files, "device", path, (size_t)(arrow - path), false);
	if (*arrow)
		add(files, "device", arrow + 1, strlen(arrow + 1), true);
}

/* What is no regular file may be opened twice: /dev/null, a terminal. */
static bool is_same(const char *one, const char *other)
{
	struct stat a, b;
	bool is = !stat(one, &a), other_is = !stat(other, &b);

	if (is && other_is)
		return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
	return !is && !other_is && !strcmp(one, other);
}

static int check_pair(const struct file *one, const struct file *other)
{
	const struct file *written = one->written ? one : other;

	if (!(one->written || other->written) || !is_same(one->path, other->path))
		return 0;
	if (one->written && other->written)
		return usage_error(
			"options --%s and --%s both write %s: only one could have it; give each a file of its own",
			one->option, other->option, written->path);
	return usage_error(
		"option --%s would write over %s, which --%s reads: nothing has been written; give another file",
		written->option, written->path, written == one ? other->option : one->option);
}

int files_check(const struct packet_run *run)
{
	static struct files files;
	const struct packet_options *conf = &run->conf;
	int status = 0;

	files.n = 0;
	for (int i = 0; i < conf->devices.n && i < MAX_DEVICES; i++)
		add_device(&files, conf->devices.text[i]);
	if (run->reads)
		add(&files, run->reads_by, run->reads, strlen(run->reads), false);
	if (conf->pcap)
		add(&files, "pcap", conf->pcap, strcspn(conf->pcap, ","), true);
	if (conf->json && strcmp(conf->json, "-"))
		add(&files, "json", conf->json, strlen(conf->json), true);
	for (int i = 0; i < files.n && !status; i++)
		for (int j = 0; j < i && !status; j++)
			status = check_pair(&files.of[i], &files.of[j]);
	return status;
}
