/* status.c - a socket on which the process answers what its devices are doing
 *
 * An abstract unix socket, "@verbena-vhca/PID", so that nothing is on disk and nothing is left of a
 * killed process. It answers the process's own user and root, one line for one connection:
 *
 *	status                          one JSON object
 *	port DEVICE up|down             ok
 *	gid DEVICE add ADDRESS v1|v2 [VLAN]
 *	                                ok INDEX; ADDRESS is IPv4 or IPv6, VLAN an 802.1Q number
 *	gid DEVICE del INDEX            ok
 *	fatal DEVICE                    ok
 *
 * or "error: " and a sentence. The last four are for tests. The thread sleeps in poll, and also
 * keeps the time of faults that come by the clock.
 */
#include "vhca/status.h"

#include "vhca/interface.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	HIGH_FD = 512,      /* out of the way of programs that count on small numbers */
	PATIENCE_MS = 2000, /* how long a stop may go unseen where the socket was closed behind our
			       back */
	ANSWER_MS = 500,    /* for one who asks and does not read */
};

static struct {
	pthread_mutex_t lock; /* of users and the thread's start and stop */
	int users;
	bool running;
	bool stop;
	pthread_t thread;
	int fd;
	ino_t ino; /* tells when the program has closed and reused the descriptor */
} status = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- requests ---- */

static void refuse(struct vhca_text *answer, const char *sentence)
{
	vhca_text_add(answer, "error: %s\n", sentence);
}

static struct vhca_device *device_named(const char *name)
{
	for (int i = 0; name && i < vhca_n_devices(); i++)
		if (!strcmp(vhca_device(i)->name, name))
			return vhca_device(i);
	return NULL;
}

bool vhca_gid_parse(const char *text, uint8_t raw[16])
{
	memset(raw, 0, 16);
	if (inet_pton(AF_INET6, text, raw) == 1)
		return true;
	raw[10] = raw[11] = 0xff;
	return inet_pton(AF_INET, text, raw + 12) == 1;
}

static void change_port(struct vhca_device *device, char **words, struct vhca_text *answer)
{
	bool up = words[0] && !strcmp(words[0], "up");

	if (!up && (!words[0] || strcmp(words[0], "down"))) {
		refuse(answer, "a port is set up or down");
		return;
	}
	vhca_port_set(device, up);
	vhca_text_add(answer, "ok\n");
}

/* ADDRESS v1|v2 [VLAN] */
static bool parse_gid(char **words, struct vhca_gid *gid)
{
	if (!words[0] || !words[1] || !vhca_gid_parse(words[0], gid->raw) ||
		(strcmp(words[1], "v1") && strcmp(words[1], "v2")))
		return false;
	gid->type = words[1][1] == '2';
	gid->vlan = 0;
	if (!words[2])
		return true;
	if (strlen(words[2]) > 4 || words[2][strspn(words[2], "0123456789")])
		return false;
	gid->vlan = (uint16_t)atoi(words[2]);
	return gid->vlan && gid->vlan < 4095;
}

static void add_gid(struct vhca_device *device, char **words, struct vhca_text *answer)
{
	struct vhca_gid gid;
	int index;

	if (!parse_gid(words, &gid)) {
		refuse(answer,
			"a GID is an IPv4 or IPv6 address, v1 or v2, and perhaps a VLAN from 1 to 4094");
		return;
	}
	switch (vhca_gid_add(device, &gid, &index)) {
	case 0: vhca_text_add(answer, "ok %d\n", index); break;
	case EEXIST: refuse(answer, "the table has that GID"); break;
	default: refuse(answer, "the table has no place for that GID"); break;
	}
}

static void change_gid(struct vhca_device *device, char **words, struct vhca_text *answer)
{
	if (words[0] && !strcmp(words[0], "add")) {
		add_gid(device, words + 1, answer);
		return;
	}
	if (!words[0] || strcmp(words[0], "del") || !words[1] ||
		words[1][strspn(words[1], "0123456789")] ||
		vhca_gid_delete(device, atoi(words[1]))) {
		refuse(answer, "there is no such GID to delete");
		return;
	}
	vhca_text_add(answer, "ok\n");
}

static void fail_device(struct vhca_device *device, char **words, struct vhca_text *answer)
{
	(void)words;
	vhca_device_fail(device);
	vhca_text_add(answer, "ok\n");
}

static void execute(char *line, struct vhca_text *answer)
{
	static const struct {
		const char *name;
		void (*run)(struct vhca_device *device, char **words, struct vhca_text *answer);
	} changes[] = {{"port", change_port}, {"gid", change_gid}, {"fatal", fail_device}};
	char *words[8] = {NULL}, *rest = NULL;
	struct vhca_device *device;
	size_t n = 0;

	for (char *word = strtok_r(line, " \n", &rest); word && n < ARRAY_SIZE(words) - 1;
		word = strtok_r(NULL, " \n", &rest))
		words[n++] = word;
	if (n == 1 && !strcmp(words[0], "status")) {
		vhca_status_json(answer);
		return;
	}
	device = device_named(words[1]);
	for (size_t i = 0; n && device && i < ARRAY_SIZE(changes); i++) {
		if (strcmp(words[0], changes[i].name))
			continue;
		changes[i].run(device, words + 2, answer);
		return;
	}
	refuse(answer, "there is no such request or device");
}

/* ---- the conversation ---- */

/* The kernel's word for who is at the other end. */
static bool may_ask(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return false;
	return !peer.uid || peer.uid == geteuid();
}

static void send_all(int fd, const char *at, size_t n)
{
	while (n) {
		ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		at += sent;
		n -= (size_t)sent;
	}
}

/* One line, or nothing from who is too slow. */
static bool read_line(int fd, char *line, size_t size)
{
	size_t n = 0;

	while (n < size - 1) {
		ssize_t got = recv(fd, line + n, size - 1 - n, 0);

		if (got <= 0)
			return false;
		n += (size_t)got;
		line[n] = '\0';
		if (strchr(line, '\n'))
			return true;
	}
	return false;
}

static void converse(int fd)
{
	struct timeval patience = {.tv_usec = ANSWER_MS * 1000};
	struct vhca_text answer = {.at = NULL};
	char line[256];

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (!may_ask(fd)) {
		static const char refusal[] =
			"error: the process belongs to another user: ask as that user or as root\n";

		send_all(fd, refusal, sizeof(refusal) - 1);
		return;
	}
	if (!read_line(fd, line, sizeof(line)))
		return;
	execute(line, &answer);
	if (!answer.failed)
		send_all(fd, answer.at, answer.n);
	free(answer.at);
}

/* ---- the thread ---- */

bool vhca_socket_is_ours(int fd, ino_t ino)
{
	struct stat st;

	return fd >= 0 && !syscall(SYS_fstat, fd, &st) && S_ISSOCK(st.st_mode) && st.st_ino == ino;
}

static void *run(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "vhca-status");
	while (!load_acquire(&status.stop)) {
		bool ours = vhca_socket_is_ours(status.fd, status.ino);
		struct pollfd fds[] = {{.fd = ours ? status.fd : -1, .events = POLLIN},
			{.fd = vhca_interface_fd(), .events = POLLIN}};
		int due = vhca_port_clock();
		int fd;

		if (poll(fds, 2, due < 0 ? PATIENCE_MS : min(due, (int)PATIENCE_MS)) <= 0 ||
			load_acquire(&status.stop))
			continue;
		if (fds[1].revents && vhca_interface_fd() >= 0)
			vhca_interface_changed();
		if (!fds[0].revents || !vhca_socket_is_ours(status.fd, status.ino))
			continue;
		fd = accept4(status.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		converse(fd);
		close(fd);
	}
	return NULL;
}

/* A name that is taken is another process's of the same number, in another PID namespace. */
static int listen_as(int fd)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	for (int i = 0; i < 100; i++) {
		char *path = name.sun_path + 1;
		size_t room = sizeof(name.sun_path) - 1;
		int n = i ? snprintf(path, room, "verbena-vhca/%d.%d", getpid(), i)
			  : snprintf(path, room, "verbena-vhca/%d", getpid());
		socklen_t size =
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);

		if (!bind(fd, (struct sockaddr *)&name, size))
			return listen(fd, 8) ? errno : 0;
		if (errno != EADDRINUSE)
			return errno;
	}
	return EADDRINUSE;
}

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), high, error;
	struct stat st;

	if (fd < 0)
		return errno;
	high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	error = listen_as(fd);
	if (!error && syscall(SYS_fstat, fd, &st))
		error = errno;
	if (error) {
		close(fd);
		return error;
	}
	status.fd = fd;
	status.ino = st.st_ino;
	return 0;
}

static void close_socket(void)
{
	if (vhca_socket_is_ours(status.fd, status.ino))
		close(status.fd);
	status.fd = -1;
}

/* The program's signals are not the thread's. */
static int start_thread(void)
{
	sigset_t all, before;
	int error;

	status.stop = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&status.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void vhca_status_start(void)
{
	int error = 0;

	pthread_mutex_lock(&status.lock);
	if (!status.users++) {
		error = open_socket();
		if (!error || vhca_port_clock() >= 0) {
			int no_thread = start_thread();

			status.running = !no_thread;
			if (no_thread)
				close_socket();
			error = no_thread ?: error;
		}
	}
	pthread_mutex_unlock(&status.lock);
	if (error)
		log_warning(
			"vhca: `verbena vhca status` will not see process %d: its socket cannot be made: %s",
			getpid(), strerror(error));
}

void vhca_status_stop(void)
{
	pthread_mutex_lock(&status.lock);
	if (!--status.users && status.running) {
		store_release(&status.stop, true);
		if (vhca_socket_is_ours(status.fd, status.ino))
			shutdown(status.fd, SHUT_RDWR); /* wakes the thread */
		pthread_join(status.thread, NULL);
		close_socket();
		status.running = false;
	}
	pthread_mutex_unlock(&status.lock);
}

void vhca_status_forked(void)
{
	if (vhca_socket_is_ours(status.fd, status.ino))
		syscall(SYS_close, status.fd); /* it would keep the parent's name taken */
	pthread_mutex_init(&status.lock, NULL);
	status.fd = -1;
	status.users = 0;
	status.running = false;
}
