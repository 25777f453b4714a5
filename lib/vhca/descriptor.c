/* descriptor.c - the file descriptors of the emulation: a table from number to file, and opening */
#include "front.h"

#include "vhca/guard.h"
#include "vhca/trap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct vhca_file *vhca_fd_table[VHCA_MAX_FDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The process that the table is of. A child of vfork, which shares it, must leave it alone. */
static pid_t owner;
static int n_slots; /* of the table that were ever used: what a child has to clear */

/* Files whose last descriptor went during a command: they end when the command has released the
 * device. */
static __thread struct vhca_file *ended;
static __thread bool in_command;

/* The real fstat without its hook. */
static int identify(int fd, dev_t *dev, ino_t *ino)
{
	int saved = errno, error = 0;
	struct stat st;

	if (syscall(SYS_fstat, fd, &st))
		error = errno;
	errno = saved;
	if (error)
		return error;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return 0;
}

/* ---- files ---- */

static void file_end(struct vhca_file *file)
{
	int saved = errno;

	if (file->kind == VHCA_FILE_DEVICE && file->context)
		vhca_context_close(file->context);
	if (file->kind == VHCA_FILE_CHANNEL && file->channel)
		vhca_channel_close(file->channel);
	free(file);
	errno = saved;
}

void vhca_file_put(struct vhca_file *file)
{
	bool last;

	pthread_mutex_lock(&lock);
	last = --file->refs == 0;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	if (in_command) {
		file->next = ended;
		ended = file;
	} else {
		file_end(file);
	}
}

void vhca_command_begin(void)
{
	in_command = true;
}

void vhca_command_end(void)
{
	struct vhca_file *file;

	in_command = false;
	while ((file = ended)) {
		ended = file->next;
		file_end(file);
	}
}

struct vhca_file *vhca_file_get(int fd)
{
	struct vhca_file *file;
	dev_t dev = 0;
	ino_t ino = 0;

	if (!vhca_fd_may_be_ours(fd) || owner != getpid())
		return NULL;
	pthread_mutex_lock(&lock);
	file = vhca_fd_table[fd];
	if (file)
		file->refs++;
	pthread_mutex_unlock(&lock);
	if (!file)
		return NULL;
	if (!identify(fd, &dev, &ino) && dev == file->dev && ino == file->ino)
		return file;
	/* closed by a way that has no hook, and perhaps reused since */
	vhca_fd_forget(fd);
	vhca_file_put(file);
	return NULL;
}

void vhca_fd_forget(int fd)
{
	struct vhca_file *file;

	if (!vhca_fd_may_be_ours(fd) || owner != getpid())
		return;
	pthread_mutex_lock(&lock);
	file = vhca_fd_table[fd];
	store_once(&vhca_fd_table[fd], NULL);
	pthread_mutex_unlock(&lock);
	if (file)
		vhca_file_put(file);
}

/* In a child of fork the table starts empty: what the parent had open stays the parent's. */
static void forked(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(vhca_fd_table, 0, (size_t)n_slots * sizeof(vhca_fd_table[0]));
	owner = 0;
	vhca_channels_forked();
	vhca_fork_child();
}

static void watch_forks(void)
{
	pthread_atfork(vhca_fork_prepare, vhca_fork_parent, forked);
}

/* Whether the table is this process's, or becomes it. */
static bool own_table(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pid_t self = getpid();

	pthread_once(&once, watch_forks);
	if (!owner)
		owner = self;
	return owner == self;
}

int vhca_fd_set(int newfd, struct vhca_file *file)
{
	struct vhca_file *old;

	if ((unsigned int)newfd >= VHCA_MAX_FDS)
		return EMFILE;
	if (!own_table())
		return 0; /* a plain descriptor, as good for reading */
	pthread_mutex_lock(&lock);
	old = vhca_fd_table[newfd];
	file->refs++;
	store_once(&vhca_fd_table[newfd], file);
	n_slots = max(n_slots, newfd + 1);
	pthread_mutex_unlock(&lock);
	if (old)
		vhca_file_put(old);
	return 0;
}

/* A file for fd, held by the caller; NULL and errno. */
static struct vhca_file *file_new(int fd, enum vhca_file_kind kind)
{
	struct vhca_file *file = calloc(1, sizeof(*file));
	int error;

	if (!file)
		return NULL;
	file->refs = 1;
	file->kind = kind;
	error = identify(fd, &file->dev, &file->ino);
	if (error) {
		free(file);
		errno = error;
		return NULL;
	}
	return file;
}

int vhca_fd_is_channel(int fd, struct vhca_channel_file *channel)
{
	struct vhca_file *file = file_new(fd, VHCA_FILE_CHANNEL);
	int error;

	if (!file)
		return errno;
	error = vhca_fd_set(fd, file);
	if (!error)
		file->channel = channel;
	vhca_file_put(file);
	return error;
}

/* ---- opening ---- */

static int memfd_of(const char *name, int flags)
{
	return memfd_create(name, MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0u));
}

static int fail_close(int fd, int error)
{
	syscall(SYS_close, fd);
	errno = error;
	return -1;
}

int vhca_open_content(const struct vhca_place *place, int flags)
{
	char text[4096];
	size_t n = 0;
	int fd;

	if (vhca_place_kind(place) == VHCA_ATTRIBUTE)
		n = vhca_place_read(place, text, sizeof(text));
	fd = memfd_of("vhca-sysfs", flags);
	if (fd < 0)
		return -1;
	if (n && pwrite(fd, text, n, 0) != (ssize_t)n)
		return fail_close(fd, EIO);
	/* as little to be written to as the attribute */
	if (syscall(SYS_fcntl, fd, F_ADD_SEALS,
		    F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return fail_close(fd, errno);
	return fd;
}

/* Said here, as libibverbs then looks elsewhere for the device, and forgets the errno. */
static int cannot_open(const struct vhca_place *place, int error)
{
	const struct vhca_device *device = vhca_device(place->device);
	const char *remedy = error == EAGAIN ? "raise the limit of processes (ulimit -u)"
		: error == EMFILE            ? "raise the limit of descriptors (ulimit -n)"
		: error == ENOMEM ? "free memory, or raise the limit of addresses (ulimit -v)"
				  : "see what the system lacks";

	if (error != device->refused)
		log_error("vhca: %s cannot be opened: %s for its thread and its pages: %s",
			device->name, strerror(error), remedy);
	errno = error;
	return -1;
}

/* The command fd: the bar itself, so that mapping it needs no hook. Sealed in size, as the engine
 * reads from it. */
static int open_bar(const struct vhca_place *place, int flags, struct vhca_context **context)
{
	int fd = memfd_of(place->path + strlen("/dev/"), flags), error;

	if (fd < 0)
		return cannot_open(place, errno);
	if (ftruncate(fd, (off_t)VHCA_BAR_SIZE) ||
		syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
		error = errno;
		goto no_context;
	}
	vhca_guard_install();
	if (vhca_options()->trap)
		store_once(&vhca_trapped, true); /* written only where it holds: others read it */
	error = vhca_context_create(vhca_device(place->device), fd, context);
	if (error)
		goto no_context;
	vhca_status_start();
	return fd;

no_context:
	syscall(SYS_close, fd);
	return cannot_open(place, error);
}

static int check_flags(const struct vhca_place *place, int flags)
{
	bool writes = (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH);
	enum vhca_node kind = vhca_place_kind(place);

	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return EEXIST;
	if (flags & O_DIRECTORY && kind != VHCA_DIRECTORY)
		return ENOTDIR;
	if (kind == VHCA_LINK && !(flags & O_PATH))
		return ELOOP;
	if (kind == VHCA_DIRECTORY && writes)
		return EISDIR;
	if (kind == VHCA_ATTRIBUTE && writes)
		return EACCES;
	return 0;
}

int vhca_open_place(const struct vhca_place *place, int flags)
{
	bool device = vhca_place_kind(place) == VHCA_CHARDEV && !(flags & O_PATH);
	struct vhca_context *context = NULL;
	int fd, error = check_flags(place, flags);
	struct vhca_file *file;

	if (error) {
		errno = error;
		return -1;
	}
	fd = device ? open_bar(place, flags, &context) : vhca_open_content(place, flags);
	if (fd < 0)
		return -1;
	file = file_new(fd, device ? VHCA_FILE_DEVICE : VHCA_FILE_ATTRIBUTE);
	if (!file) {
		if (context)
			vhca_context_close(context);
		return fail_close(fd, ENOMEM);
	}
	if (vhca_place_kind(place) == VHCA_DIRECTORY)
		file->kind = VHCA_FILE_DIRECTORY;
	file->place = *place;
	file->context = context;
	error = vhca_fd_set(fd, file);
	vhca_file_put(file);
	return error ? fail_close(fd, error) : fd;
}

/* ---- what a path names ---- */

bool vhca_may_locate(int dirfd, const char *path, bool empty_is_fd)
{
	if (!path)
		return false;
	if (path[0] == '/')
		return vhca_path_may_be_ours(path);
	if (!path[0] && !empty_is_fd)
		return false;
	return vhca_fd_may_be_ours(dirfd);
}

enum vhca_lookup vhca_locate(int dirfd, const char *path, bool follow, bool empty_is_fd,
	struct vhca_place *place, int *error)
{
	char joined[2 * VHCA_PATH_MAX];
	enum vhca_lookup found = VHCA_NOT_OURS;
	struct vhca_file *file;

	if (path[0] == '/')
		return vhca_resolve(path, follow, place, error);
	file = vhca_file_get(dirfd);
	if (!file)
		return VHCA_NOT_OURS;
	if (file->kind == VHCA_FILE_CHANNEL) {
		found = VHCA_NOT_OURS;
	} else if (!path[0] && empty_is_fd) {
		*place = file->place;
		found = VHCA_FOUND;
	} else if (file->kind != VHCA_FILE_DIRECTORY) {
		*error = ENOTDIR;
		found = VHCA_FAILED;
	} else if ((size_t)snprintf(joined, sizeof(joined), "%s/%s", file->place.path, path) >=
		sizeof(joined)) {
		*error = ENAMETOOLONG;
		found = VHCA_FAILED;
	} else {
		found = vhca_resolve(joined, follow, place, error);
		if (found == VHCA_NOT_OURS) { /* "..", up into the real tree: there is no real
						 directory to start from */
			*error = ENOENT;
			found = VHCA_FAILED;
		}
	}
	vhca_file_put(file);
	return found;
}
