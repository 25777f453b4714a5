/* preload.c - the emulator in LD_PRELOAD: where it is, putting it first, starting this command over
 * on it
 *
 * The command does not link the emulator: real devices must be visible until the user, or their
 * absence, asks for vhca.
 */
#include "cmd.h"

#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Set for the one exec of vhca_start_over() and removed by the new process. */
#define WHY_VARIABLE     "VERBENA_VHCA_WHY"
#define STARTED_VARIABLE "VERBENA_STARTED_NS"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool is_sanitizer(const char *library)
{
	const char *name = base_name(library);

	return !strncmp(name, "libasan.so", 10) || !strncmp(name, "libtsan.so", 10) ||
		!strncmp(name, "libclang_rt.asan", 16) || !strncmp(name, "libclang_rt.tsan", 16);
}

/* ---- what is loaded here ---- */

static int find_vhca(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	return info->dlpi_name && !strcmp(base_name(info->dlpi_name), VHCA_LIBRARY);
}

static int find_sanitizer(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	if (!info->dlpi_name || !is_sanitizer(info->dlpi_name))
		return 0;
	*(const char **)arg = info->dlpi_name;
	return 1;
}

bool vhca_is_loaded(void)
{
	return dl_iterate_phdr(find_vhca, NULL);
}

const char *loaded_sanitizer(void)
{
	const char *name = NULL;

	dl_iterate_phdr(find_sanitizer, &name);
	return name;
}

/* ---- where the emulator is ---- */

/* By readlink, not by opening: under valgrind the two differ. */
static int own_path(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	if (n < 0 || (size_t)n == size - 1)
		return -ENOENT;
	path[n] = '\0';
	return 0;
}

/* Beside this command: as built, as installed under any prefix, as configured. */
static int find_library(char *path, size_t size)
{
	static const char *const places[] = {"%s/../lib/vhca/" VHCA_LIBRARY,
		"%s/" VBN_LIBDIR_FROM_BIN "/" VHCA_LIBRARY, VBN_LIBDIR "/" VHCA_LIBRARY};
	char self[PATH_MAX], trial[2 * PATH_MAX], real[PATH_MAX];

	if (own_path(self, sizeof(self)))
		snprintf(self, sizeof(self), "/nowhere/");
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(trial, sizeof(trial), places[i], self);
#pragma GCC diagnostic pop
		if (!realpath(trial, real) || access(real, R_OK) || strlen(real) >= size)
			continue;
		strcpy(path, real);
		return 0;
	}
	return cannot("the emulator " VHCA_LIBRARY
		      " is not found beside %s: build or install Verbena whole",
		self);
}

/* ---- LD_PRELOAD ---- */

struct list {
	char *text;
	size_t length, size;
};

static void list_add(struct list *list, const char *name, size_t length)
{
	int n = snprintf(list->text + list->length, list->size - list->length, "%s%.*s",
		list->length ? ":" : "", (int)length, name);

	list->length += (size_t)n;
}

/* Adds those entries of an LD_PRELOAD that are sanitizers, or those that are not; never the
 * emulator. */
static void list_add_old(struct list *list, const char *old, bool sanitizers)
{
	for (size_t n; *old; old += n) {
		char name[PATH_MAX];

		old += strspn(old, ": ");
		n = strcspn(old, ": ");
		snprintf(name, sizeof(name), "%.*s", (int)n, old);
		if (n && strcmp(base_name(name), VHCA_LIBRARY) && is_sanitizer(name) == sanitizers)
			list_add(list, old, n);
	}
}

int vhca_preload(const char *sanitizer)
{
	const char *old = getenv("LD_PRELOAD");
	char path[PATH_MAX];
	struct list list = {0};
	int status = find_library(path, sizeof(path));

	if (status)
		return status;
	if (strpbrk(path, ": "))
		return cannot(
			"%s cannot be preloaded: LD_PRELOAD has no way to say a blank or a colon; move "
			"Verbena to a path without them",
			path);
	if (!old)
		old = "";
	list.size = strlen(old) + strlen(path) + (sanitizer ? strlen(sanitizer) : 0) + 4;
	list.text = calloc(1, list.size);
	if (!list.text)
		return cannot("LD_PRELOAD cannot be set: there is no memory; free some");
	list_add_old(&list, old, true);
	if (!list.length && sanitizer && *sanitizer)
		list_add(&list, sanitizer, strlen(sanitizer));
	list_add(&list, path, strlen(path));
	list_add_old(&list, old, false);
	status = setenv("LD_PRELOAD", list.text, 1)
		? cannot("LD_PRELOAD cannot be set: there is no memory; free some")
		: 0;
	free(list.text);
	return status;
}

/* ---- starting over ---- */

const char *vhca_why(void)
{
	static char why[256];
	static bool started_over;
	const char *text = getenv(WHY_VARIABLE), *started = getenv(STARTED_VARIABLE);

	if (text) {
		uint64_t ns = started ? strtoull(started, NULL, 10) : 0;

		if (ns && ns < cmd_started_ns)
			cmd_started_ns = ns;
		snprintf(why, sizeof(why), "%s", text);
		started_over = true;
		unsetenv(WHY_VARIABLE);
		unsetenv(STARTED_VARIABLE);
	}
	return started_over ? why : NULL;
}

/* A signal that comes between two programs is kept for the new one, which handles it. */
static int exec_self(const char *self)
{
	sigset_t both, old;

	sigemptyset(&both);
	sigaddset(&both, SIGINT);
	sigaddset(&both, SIGTERM);
	sigprocmask(SIG_BLOCK, &both, &old);
	if (!stop_signal())
		execv(self, cmd_argv);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (stop_signal())
		return STATUS_STOPPED;
	return cannot("%s cannot be started over on the emulator: %s; see that it may be executed",
		self, strerror(errno));
}

int vhca_start_over(const char *why)
{
	char self[PATH_MAX], started[32];
	int status;

	if (getauxval(AT_SECURE))
		return cannot(
			"verbena cannot start over on the emulator: it has set-id bits or file capabilities, "
			"which refuse a preload; remove them, or name a real device");
	status = vhca_preload(loaded_sanitizer());
	if (status)
		return status;
	snprintf(started, sizeof(started), "%llu", (unsigned long long)cmd_started_ns);
	if (own_path(self, sizeof(self)) || setenv(WHY_VARIABLE, why, 1) ||
		setenv(STARTED_VARIABLE, started, 1))
		return cannot(
			"verbena cannot start over on the emulator: /proc/self/exe says no path or there "
			"is no memory; mount /proc");
	return exec_self(self);
}
