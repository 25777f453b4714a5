/* preload.c - libc calls on descriptors that are answered here: open to close, ioctl, socket
 *
 * Each hook asks a cheap question first (a path's prefix, a slot in a table) and passes to the real
 * function, errno and all. vhca's own calls come through here too, and pass.
 */
#include "preload.h"

#include <dlfcn.h>
#include <linux/netlink.h>
#include <stdarg.h>

const struct vhca_real *vhca_real_found;

/* Programs link this name to keep the library where the linker would drop it as unneeded. */
HOOK const char *vhca_present(void);

const char *vhca_present(void)
{
	return VHCA_VERSION;
}

const struct vhca_real *vhca_real_find(void)
{
	static struct vhca_real table;
	static const struct {
		const char *name;
		size_t offset;
	} names[] = {
#define NAME(name_) {#name_, offsetof(struct vhca_real, name_)}
		NAME(open),
		NAME(openat),
		NAME(fopen),
		NAME(close),
		NAME(dup),
		NAME(dup2),
		NAME(dup3),
		NAME(fcntl),
		NAME(ioctl),
		NAME(socket),
		NAME(sigaction),
		NAME(pthread_sigmask),
		NAME(sigprocmask),
		NAME(signal),
		NAME(bsd_signal),
		NAME(ssignal),
		NAME(sysv_signal),
		NAME(__sysv_signal),
		NAME(stat),
		NAME(lstat),
		NAME(fstat),
		NAME(fstatat),
		NAME(statx),
		NAME(__xstat),
		NAME(__lxstat),
		NAME(__fxstat),
		NAME(__fxstatat),
		NAME(getxattr),
		NAME(lgetxattr),
		NAME(listxattr),
		NAME(llistxattr),
		NAME(access),
		NAME(euidaccess),
		NAME(faccessat),
		NAME(readlink),
		NAME(readlinkat),
		NAME(realpath),
		NAME(canonicalize_file_name),
		NAME(opendir),
		NAME(fdopendir),
		NAME(readdir),
		NAME(readdir_r),
		NAME(closedir),
		NAME(dirfd),
		NAME(rewinddir),
		NAME(telldir),
		NAME(seekdir),
		NAME(scandir),
		NAME(scandirat),
#undef NAME
	};
	int saved = errno;

	/* Two threads may both come here: they store the same values. */
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		void **slot = (void **)((char *)&table + names[i].offset);

		store_once(slot, dlsym(RTLD_NEXT, names[i].name));
	}
	store_release(&vhca_real_found, &table);
	errno = saved;
	return &table;
}

/* ---- open ---- */

static int failed(int error)
{
	errno = error;
	return -1;
}

static int open_any(int dirfd, const char *path, int flags, mode_t mode)
{
	struct vhca_place place;
	int error;

	if (unlikely(vhca_may_locate(dirfd, path, false))) {
		bool follow =
			!(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);

		switch (vhca_locate(dirfd, path, follow, false, &place, &error)) {
		case VHCA_FOUND: return vhca_open_place(&place, flags);
		case VHCA_FAILED: return failed(error);
		case VHCA_NOT_OURS: break;
		}
	}
	return dirfd == AT_FDCWD ? real()->open(path, flags, mode)
				 : real()->openat(dirfd, path, flags, mode);
}

/* Whether a mode follows the flags. */
static bool takes_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

#define OPEN_HOOK(name_)                                      \
	HOOK int name_(const char *path, int flags, ...)      \
	{                                                     \
		mode_t mode = 0;                              \
		va_list args;                                 \
                                                              \
		va_start(args, flags);                        \
		if (takes_mode(flags))                        \
			mode = va_arg(args, mode_t);          \
		va_end(args);                                 \
		return open_any(AT_FDCWD, path, flags, mode); \
	}

#define OPENAT_HOOK(name_)                                          \
	HOOK int name_(int dirfd, const char *path, int flags, ...) \
	{                                                           \
		mode_t mode = 0;                                    \
		va_list args;                                       \
                                                                    \
		va_start(args, flags);                              \
		if (takes_mode(flags))                              \
			mode = va_arg(args, mode_t);                \
		va_end(args);                                       \
		return open_any(dirfd, path, flags, mode);          \
	}

OPEN_HOOK(open)
OPEN_HOOK(open64)
OPENAT_HOOK(openat)
OPENAT_HOOK(openat64)

/* What fortified programs call when no mode is given. */
HOOK int __open_2(const char *path, int flags);
HOOK int __open64_2(const char *path, int flags);
HOOK int __openat_2(int dirfd, const char *path, int flags);
HOOK int __openat64_2(int dirfd, const char *path, int flags);

int __open_2(const char *path, int flags)
{
	return open_any(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return open_any(AT_FDCWD, path, flags, 0);
}

int __openat_2(int dirfd, const char *path, int flags)
{
	return open_any(dirfd, path, flags, 0);
}

int __openat64_2(int dirfd, const char *path, int flags)
{
	return open_any(dirfd, path, flags, 0);
}

/* ---- fopen ---- */

/* Attributes only, for reading only. The descriptor stays out of the table: fclose has no hook. */
static FILE *fopen_place(const struct vhca_place *place, const char *mode)
{
	FILE *stream;
	int fd;

	if (vhca_place_kind(place) != VHCA_ATTRIBUTE || mode[0] != 'r' || strchr(mode, '+')) {
		errno = vhca_place_kind(place) == VHCA_DIRECTORY ? EISDIR : EACCES;
		return NULL;
	}
	fd = vhca_open_content(place, strchr(mode, 'e') ? O_CLOEXEC : 0);
	if (fd < 0)
		return NULL;
	stream = fdopen(fd, mode);
	if (!stream)
		real()->close(fd);
	return stream;
}

static FILE *fopen_any(const char *path, const char *mode)
{
	struct vhca_place place;
	int error;

	if (unlikely(vhca_may_locate(AT_FDCWD, path, false))) {
		switch (vhca_locate(AT_FDCWD, path, true, false, &place, &error)) {
		case VHCA_FOUND: return fopen_place(&place, mode);
		case VHCA_FAILED: errno = error; return NULL;
		case VHCA_NOT_OURS: break;
		}
	}
	return real()->fopen(path, mode);
}

HOOK FILE *fopen(const char *path, const char *mode)
{
	return fopen_any(path, mode);
}

HOOK FILE *fopen64(const char *path, const char *mode)
{
	return fopen_any(path, mode);
}

/* ---- close, dup ---- */

HOOK int close(int fd)
{
	vhca_fd_forget(fd);
	return real()->close(fd);
}

/* newfd is a real duplicate of fd: it stands for the same file. */
static int duplicated(int fd, int newfd)
{
	struct vhca_file *file;
	int error;

	if (newfd < 0)
		return newfd;
	if (!vhca_fd_may_be_ours(fd)) {
		if (fd != newfd)
			vhca_fd_forget(newfd); /* what newfd was before the duplication closed it */
		return newfd;
	}
	file = vhca_file_get(fd);
	if (!file || fd == newfd) {
		if (file)
			vhca_file_put(file);
		return newfd;
	}
	error = vhca_fd_set(newfd, file);
	vhca_file_put(file);
	if (!error)
		return newfd;
	real()->close(newfd);
	return failed(error);
}

HOOK int dup(int fd)
{
	return duplicated(fd, real()->dup(fd));
}

HOOK int dup2(int fd, int newfd)
{
	return duplicated(fd, real()->dup2(fd, newfd));
}

HOOK int dup3(int fd, int newfd, int flags)
{
	return duplicated(fd, real()->dup3(fd, newfd, flags));
}

static int fcntl_any(int fd, int cmd, void *arg)
{
	int result = real()->fcntl(fd, cmd, arg);

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicated(fd, result);
	return result;
}

HOOK int fcntl(int fd, int cmd, ...)
{
	va_list args;
	void *arg;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	return fcntl_any(fd, cmd, arg);
}

HOOK int fcntl64(int fd, int cmd, ...)
{
	va_list args;
	void *arg;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	return fcntl_any(fd, cmd, arg);
}

/* ---- ioctl, socket ---- */

/* A command on a device; false if the descriptor is none of ours. */
static bool device_ioctl(int fd, unsigned long request, void *arg, int *error)
{
	struct vhca_file *file = vhca_file_get(fd);

	if (!file)
		return false;
	if (file->kind == VHCA_FILE_CHANNEL) { /* a pipe, and it answers as one */
		vhca_file_put(file);
		return false;
	}
	if (file->kind == VHCA_FILE_DEVICE && request == RDMA_VERBS_IOCTL)
		*error = vhca_ioctl(file->context, arg);
	else
		*error = ENOTTY;
	vhca_file_put(file);
	return true;
}

/* In a child of fork: the descriptor was a device of the parent's. */
static bool is_inherited(int fd)
{
	static bool said;
	char path[32], target[32] = "";

	if (likely(!vhca_fork_left_devices))
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (real()->readlink(path, target, sizeof(target) - 1) < 0 ||
		strncmp(target, "/memfd:infiniband/uverbs", 24))
		return false;
	if (!said)
		log_warning(
			"vhca: a device that was opened before fork() does not work in the child: open it there anew");
	said = true;
	return true;
}

HOOK int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int error;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (vhca_fd_may_be_ours(fd) && device_ioctl(fd, request, arg, &error))
		return error ? failed(error) : 0;
	if (unlikely(request == RDMA_VERBS_IOCTL) && is_inherited(fd))
		return failed(EPERM);
	return real()->ioctl(fd, request, arg);
}

/* As a kernel without RDMA answers: libibverbs then reads sysfs instead of asking a real ib_core,
 * which has none of these devices. */
HOOK int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA)
		return failed(EPROTONOSUPPORT);
	return real()->socket(domain, type, protocol);
}
