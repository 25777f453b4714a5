/* top_ask.c - finding processes by their telemetry sockets, and asking them */
#include "top.h"

#include <glob.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Of thousands of channels a screen shows the first ones, and whoever they are of has others to do. */
enum { MAX_ANSWER = 1 << 20, MAX_PAGES = 4096, CHANNEL_PAGES = 2 };
#define PATIENCE_US 300000
#define RETRY_NS    2000000000u

static const char *const kind_names[] = {
	"worker", "queue", "srq", "pool", "port", "channels", "channel", "control"};
static_assert(ARRAY_SIZE(kind_names) == N_KINDS, "each kind has its name");

/* ---- talking ---- */

/* Whether the process at the other end may be believed: one of another user could say anything. */
static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
		(peer.uid == geteuid() || !geteuid());
}

static int connect_to(const char *path)
{
	const struct timeval patience = {.tv_usec = PATIENCE_US};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) && is_trusted(fd))
		return fd;
	close(fd);
	return -1;
}

/* NULL: nothing, or nothing that is JSON; errno is EAGAIN where none came in time. */
static json_t *hear(int fd)
{
	static char answer[MAX_ANSWER];
	json_error_t error;
	ssize_t n = recv(fd, answer, sizeof(answer), 0);

	if (n < 0)
		return NULL;
	errno = EPIPE;
	return n ? json_loadb(answer, (size_t)n, 0, &error) : NULL;
}

static json_t *ask(int fd, const char *request)
{
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
		return NULL;
	return hear(fd);
}

/* All objects of a kind, which may take several answers. */
static json_t *ask_all(int fd, const char *kind, int most)
{
	json_t *all = json_array(), *answer = NULL, *next;
	char command[64], request[96];
	int pages = 0;

	snprintf(command, sizeof(command), "/verbena/%s/all", kind);
	snprintf(request, sizeof(request), "%s", command);
	while ((answer = ask(fd, request)) && ++pages < MAX_PAGES) {
		json_array_extend(all, json_object_get(answer, command));
		next = json_object_get(answer, "next");
		if (!next || pages == most)
			break;
		snprintf(request, sizeof(request), "%s,%lld", command,
			(long long)json_integer_value(next));
		json_decref(answer);
	}
	if (answer) {
		json_decref(answer);
		return all;
	}
	json_decref(all);
	return NULL;
}

/* ---- processes ---- */

static void forget(struct process *process)
{
	if (process->fd >= 0)
		close(process->fd);
	for (int i = 0; i < N_KINDS; i++) {
		json_decref(process->now[i]);
		json_decref(process->before[i]);
	}
	free(process->histories);
	free(process);
}

/* False: nobody listens there. */
static bool greet(struct process *process)
{
	json_t *greeting;
	const char *version;

	process->fd = connect_to(process->path);
	if (process->fd < 0)
		return false;
	greeting = hear(process->fd);
	version = json_string_value(json_object_get(greeting, "version"));
	process->pid = (pid_t)json_integer_value(json_object_get(greeting, "pid"));
	process->silent = !greeting && errno == EAGAIN;
	process->foreign = greeting && (!version || strncmp(version, "Verbena ", 8));
	json_decref(greeting);
	if (!greeting && !process->silent)
		return false;
	process_name(process->pid, process->name);
	if (!*process->name)
		strcpy(process->name, "?");
	return true;
}

static bool is_known(const struct processes *all, const char *path)
{
	for (const struct process *process = all->first; process; process = process->next)
		if (!strcmp(process->path, path))
			return true;
	return false;
}

/* The directory's name. */
static void prefix_of(const char *path, char *prefix, size_t size)
{
	const char *end = strrchr(path, '/'), *begin = end;

	while (begin > path && begin[-1] != '/')
		begin--;
	snprintf(prefix, size, "%.*s", (int)(end - begin), begin);
}

static void meet(struct processes *all, const char *path, pid_t pid)
{
	struct process *process, **end = &all->first;

	if (is_known(all, path) || strlen(path) >= sizeof(process->path))
		return;
	process = calloc(1, sizeof(*process));
	if (!process)
		return;
	snprintf(process->path, sizeof(process->path), "%s", path);
	prefix_of(path, process->prefix, sizeof(process->prefix));
	if (!greet(process) || (pid && process->pid != pid)) {
		forget(process);
		return;
	}
	while (*end)
		end = &(*end)->next;
	*end = process;
	all->n += !process->foreign;
	all->n_foreign += process->foreign;
}

static void find_in(struct processes *all, const char *directory, const char *prefix, pid_t pid)
{
	char pattern[512];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%.200s/dpdk/%.64s/dpdk_telemetry.v2*", directory,
		prefix ? prefix : "*");
	if (!glob(pattern, 0, NULL, &found))
		for (size_t i = 0; i < found.gl_pathc; i++)
			meet(all, found.gl_pathv[i], pid);
	globfree(&found);
}

/* Where DPDK's tools look; root sees everyone's. */
static void find(struct processes *all, const char *prefix, pid_t pid)
{
	const char *directory = getenv("RUNTIME_DIRECTORY");

	if (directory && *directory) {
		find_in(all, directory, prefix, pid);
		return;
	}
	if (!geteuid()) {
		find_in(all, "/var/run", prefix, pid);
		find_in(all, "/run/user/*", prefix, pid);
		return;
	}
	directory = getenv("XDG_RUNTIME_DIR");
	find_in(all, directory && *directory ? directory : "/tmp", prefix, pid);
}

/* ---- asking ---- */

/* A connection that an answer is still to come on would give it for the next question's. */
static void fall_silent(struct process *process, bool late)
{
	if (process->fd >= 0)
		close(process->fd);
	process->fd = -1;
	process->silent = late;
	process->gone = !late;
	process->retry_ns = now_ns() + RETRY_NS;
}

static bool is_reachable(struct process *process)
{
	if (process->fd >= 0 && !process->silent)
		return true;
	if (now_ns() < process->retry_ns)
		return false;
	if (process->fd >= 0)
		close(process->fd);
	if (!greet(process))
		process->gone = true;
	else if (process->silent)
		fall_silent(process, true);
	return !process->gone && !process->silent;
}

static void ask_process(struct process *process)
{
	json_t *said[N_KINDS];

	if (process->foreign || !is_reachable(process))
		return;
	for (int i = 0; i < N_KINDS; i++) {
		said[i] = ask_all(
			process->fd, kind_names[i], i == KIND_CHANNEL ? CHANNEL_PAGES : MAX_PAGES);
		if (said[i])
			continue;
		fall_silent(process, errno == EAGAIN);
		while (i--)
			json_decref(said[i]);
		return;
	}
	for (int i = 0; i < N_KINDS; i++) {
		json_decref(process->before[i]);
		process->before[i] = process->now[i];
		process->now[i] = said[i];
	}
	process->before_ns = process->now_ns;
	process->now_ns = now_ns();
	process_remember(process);
}

static void note_ended(struct processes *all, const struct process *process)
{
	all->any_lost = true;
	if (all->n_ended < (int)ARRAY_SIZE(all->ended))
		all->ended[all->n_ended++] = process->pid;
}

/* Those that this look has not asked yet. */
static void ask_rest(struct processes *all)
{
	for (struct process **at = &all->first, *process; (process = *at);) {
		if (process->looked != all->look) {
			process->looked = all->look;
			ask_process(process);
		}
		if (!process->gone) {
			at = &process->next;
			continue;
		}
		*at = process->next;
		all->n -= !process->foreign;
		all->n_foreign -= process->foreign;
		if (!process->foreign)
			note_ended(all, process);
		forget(process);
	}
}

/* Those that have ended go first: another may have the same path by now. */
void processes_look(struct processes *all, const char *prefix, pid_t pid)
{
	all->look++;
	all->n_ended = 0;
	ask_rest(all);
	find(all, prefix, pid);
	ask_rest(all);
}

void processes_free(struct processes *all)
{
	struct process *process;

	while ((process = all->first)) {
		all->first = process->next;
		forget(process);
	}
}

/* ---- who is not there ---- */

/* Whether an argument is what turns the socket off. */
static bool has_telemetry_off(pid_t pid)
{
	char path[32], *argument = NULL;
	size_t size = 0;
	bool off = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	file = fopen(path, "re");
	while (file && !off && getdelim(&argument, &size, '\0', file) >= 0)
		off = !strcmp(argument, "--vbn-telemetry=off");
	free(argument);
	if (file)
		fclose(file);
	return off;
}

const char *absence(pid_t pid, char text[160])
{
	const char *why =
		"does not answer: it uses no Verbena, has another --prefix, or is another user's";
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (access(path, F_OK))
		why = "is not there: it has ended, or is in another container; verbena top shows "
		      "those there are";
	else if (has_telemetry_off(pid))
		why = "does not answer: it was started with --vbn-telemetry=off; start it without "
		      "that";
	snprintf(text, 160, "process %d %s", pid, why);
	return text;
}
