/* preload.h - the real functions behind the ones that preload*.c define
 *
 * Only preload*.c includes this, and before anything else: libc's headers must declare the plain
 * names, neither renamed for large files nor wrapped by fortification. On the 64-bit systems that
 * vhca runs on, the names with and without 64 mean the same.
 */
#ifndef VHCA_PRELOAD_H
#define VHCA_PRELOAD_H

#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include "front.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOOK VBN_API

static_assert(sizeof(struct stat) == sizeof(struct stat64), "one stat");
static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one dirent");

typedef int xstat_fn(int version, const char *path, struct stat *st);
typedef int fxstat_fn(int version, int fd, struct stat *st);
typedef int fxstatat_fn(int version, int dirfd, const char *path, struct stat *st, int flags);
typedef int compare_fn(const struct dirent **a, const struct dirent **b);
typedef void (*signal_fn(int signo, void (*handler)(int)))(int);
typedef int filter_fn(const struct dirent *entry);

/* Spelled out where a program may pass NULL to a parameter that libc's headers declare never to be:
 * that is for the real function to answer. */
struct vhca_real {
	int (*open)(const char *path, int flags, ...);
	int (*openat)(int dirfd, const char *path, int flags, ...);
	FILE *(*fopen)(const char *path, const char *mode);
	__typeof__(close) *close;
	__typeof__(dup) *dup;
	__typeof__(dup2) *dup2;
	__typeof__(dup3) *dup3;
	int (*fcntl)(int fd, int cmd, ...);
	int (*ioctl)(int fd, unsigned long request, ...);
	__typeof__(socket) *socket;
	__typeof__(sigaction) *sigaction;
	__typeof__(pthread_sigmask) *pthread_sigmask;
	__typeof__(sigprocmask) *sigprocmask;
	signal_fn *signal, *bsd_signal, *ssignal, *sysv_signal, *__sysv_signal;
	int (*stat)(const char *path, struct stat *st);
	int (*lstat)(const char *path, struct stat *st);
	int (*fstat)(int fd, struct stat *st);
	int (*fstatat)(int dirfd, const char *path, struct stat *st, int flags);
	int (*statx)(int dirfd, const char *path, int flags, unsigned int mask, struct statx *stx);
	xstat_fn *__xstat, *__lxstat;
	fxstat_fn *__fxstat;
	fxstatat_fn *__fxstatat;
	ssize_t (*getxattr)(const char *path, const char *name, void *value, size_t size);
	ssize_t (*lgetxattr)(const char *path, const char *name, void *value, size_t size);
	ssize_t (*listxattr)(const char *path, char *list, size_t size);
	ssize_t (*llistxattr)(const char *path, char *list, size_t size);
	int (*access)(const char *path, int mode);
	int (*euidaccess)(const char *path, int mode);
	int (*faccessat)(int dirfd, const char *path, int mode, int flags);
	ssize_t (*readlink)(const char *path, char *text, size_t size);
	ssize_t (*readlinkat)(int dirfd, const char *path, char *text, size_t size);
	char *(*realpath)(const char *path, char *resolved);
	char *(*canonicalize_file_name)(const char *path);
	DIR *(*opendir)(const char *path);
	DIR *(*fdopendir)(int fd);
	struct dirent *(*readdir)(DIR *dir);
	int (*readdir_r)(DIR *dir, struct dirent *entry, struct dirent **result);
	int (*closedir)(DIR *dir);
	int (*dirfd)(DIR *dir);
	void (*rewinddir)(DIR *dir);
	long (*telldir)(DIR *dir);
	void (*seekdir)(DIR *dir, long position);
	int (*scandir)(
		const char *path, struct dirent ***list, filter_fn *filter, compare_fn *compare);
	int (*scandirat)(int dirfd, const char *path, struct dirent ***list, filter_fn *filter,
		compare_fn *compare);
};

/* Looked up all at once by the first call, which may come before any constructor has run. */
const struct vhca_real *vhca_real_find(void);
extern const struct vhca_real *vhca_real_found;

static inline const struct vhca_real *real(void)
{
	const struct vhca_real *found = load_acquire(&vhca_real_found);

	return likely(found != NULL) ? found : vhca_real_find();
}

#endif
