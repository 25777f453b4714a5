/* place.c - a telemetry socket's place in the file system: DPDK's directory, a name that no living
 * process has
 *
 * Processes of one prefix take their names one at a time, under a lock on the directory, so that none
 * removes what another has just made. A name whose process is gone is taken over.
 */

#include "obs/obs.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_INSTANCES 256
#define LOCK_TRIES    50
#define LOCK_WAIT_NS  (2l * 1000 * 1000)
#define BACKLOG       32

bool vbn__place_prefix_ok(const char *prefix)
{
	size_t len = strlen(prefix);

	if (!len || len > 48 || prefix[0] == '.')
		return false;
	for (const char *c = prefix; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
			return false;
	return true;
}

/* ---- the directory ---- */

static const char *runtime_directory(void)
{
	const char *directory = getenv("RUNTIME_DIRECTORY");

	if (directory && *directory)
		return directory;
	if (!getuid())
		return "/var/run";
	directory = getenv("XDG_RUNTIME_DIR");
	return directory && *directory ? directory : "/tmp";
}

static int put_why(char why[256], int code, const char *fmt, ...) printf_like(3, 4);
static int put_why(char why[256], int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, 256, fmt, args);
	va_end(args);
	return -code;
}

/* Where anybody may make directories, as in /tmp, one that is another's is none of ours. */
static int open_directory(const char *path, char why[256])
{
	struct stat info;
	int fd, err;

	if (mkdir(path, 0700) && errno != EEXIST) {
		err = errno;
		return put_why(why, err, "%s cannot be made: %s", path, strerror(err));
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info)) {
		err = errno;
		put_why(why, err, "%s cannot be opened: %s", path, strerror(err));
		if (fd >= 0)
			close(fd);
		return -err;
	}
	if (info.st_uid == geteuid() || !info.st_uid)
		return fd;
	close(fd);
	return put_why(why, EACCES, "%s is another user's", path);
}

static int open_place(const char *prefix, char *path, size_t size, char why[256])
{
	const char *directory = runtime_directory();
	int fd, n;

	n = snprintf(path, size, "%.200s/dpdk", directory);
	/* "/" and the prefix, and a socket's name with an instance, have to fit, too. */
	if ((size_t)n + 1 + strlen(prefix) + sizeof("/dpdk_telemetry.v2:255") > size)
		return put_why(why, ENAMETOOLONG, "%.100s/dpdk/%s is too long for a socket's name",
			directory, prefix);
	fd = open_directory(path, why);
	if (fd < 0)
		return fd;
	close(fd);
	snprintf(path + n, size - (size_t)n, "/%s", prefix);
	return open_directory(path, why);
}

/* Whoever holds it does so for a moment; one that is stopped in that moment is not waited for. */
static int lock_directory(int fd)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
	}
	return -EBUSY;
}

/* ---- the socket ---- */

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

/* A child of a dead process may still hold the socket, and answers nobody: so who listens is asked
 * for, too. One of another PID namespace has no number here, and counts as living. */
static bool listener_lives(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 0)
		return true;
	return !kill(peer.pid, 0) || errno != ESRCH;
}

static bool is_stale(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool stale;

	if (fd < 0)
		return false;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		stale = errno == ECONNREFUSED;
	else
		stale = !listener_lives(fd);
	close(fd);
	return stale;
}

static int bind_to(int fd, const char *path)
{
	struct sockaddr_un address = address_of(path);

	return bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
}

/* The first name that is free, or is a dead process's. */
static int take_name(struct place *place)
{
	const size_t len = strlen(place->path);
	int ret = -EADDRINUSE;

	for (int i = 0; i < MAX_INSTANCES && ret == -EADDRINUSE; i++) {
		if (i)
			snprintf(place->path + len, sizeof(place->path) - len, ":%d", i);
		ret = bind_to(place->fd, place->path);
		if (ret == -EADDRINUSE && is_stale(place->path)) {
			unlink(place->path);
			ret = bind_to(place->fd, place->path);
		}
	}
	return ret;
}

static void remember(struct place *place)
{
	struct stat info;

	if (stat(place->path, &info))
		return;
	place->dev = info.st_dev;
	place->ino = info.st_ino;
}

/* Under the directory's lock. Its mode is set before it has a name. */
static int make_socket(struct place *place, char why[256])
{
	int ret;

	place->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (place->fd < 0) {
		ret = -errno;
		return put_why(why, -ret, "there is no socket to be had: %s", strerror(-ret));
	}
	ret = fchmod(place->fd, 0600) ? -errno : take_name(place);
	if (!ret && listen(place->fd, BACKLOG))
		ret = -errno;
	if (!ret) {
		remember(place);
		return 0;
	}
	put_why(why, -ret, "%s cannot be listened on: %s", place->path, strerror(-ret));
	close(place->fd);
	place->fd = -1;
	return ret;
}

int vbn__place_take(const char *prefix, struct place *place, char why[256])
{
	size_t len;
	int directory, ret;

	*place = (struct place){.fd = -1};
	directory = open_place(prefix, place->path, sizeof(place->path), why);
	if (directory < 0)
		return directory;
	ret = lock_directory(directory);
	if (ret) {
		put_why(why, -ret, "%s is being held by another process", place->path);
		goto close_directory;
	}
	len = strlen(place->path);
	snprintf(place->path + len, sizeof(place->path) - len, "/dpdk_telemetry.v2");
	ret = make_socket(place, why);
close_directory:
	close(directory);
	return ret;
}

void vbn__place_leave(struct place *place)
{
	struct stat info;

	if (place->fd < 0)
		return;
	close(place->fd);
	place->fd = -1;
	/* Only what is still ours. */
	if (!lstat(place->path, &info) && info.st_dev == place->dev && info.st_ino == place->ino)
		unlink(place->path);
}
