/* preload_path.c - libc calls on paths that are answered here: stat, access, readlink, realpath */
#include "preload.h"

#include <limits.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static int failed(int error)
{
	errno = error;
	return -1;
}

/* ---- stat ---- */

/* A stat answered here: 0 or an errno; false if the real one is to answer. */
static bool stat_ours(int dirfd, const char *path, int flags, struct stat *st, int *error)
{
	bool empty_is_fd = flags & AT_EMPTY_PATH;
	struct vhca_place place;

	if (likely(!vhca_may_locate(dirfd, path, empty_is_fd)))
		return false;
	switch (vhca_locate(
		dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), empty_is_fd, &place, error)) {
	case VHCA_FOUND:
		vhca_place_stat(&place, st);
		*error = 0;
		return true;
	case VHCA_FAILED: return true;
	default: return false;
	}
}

static bool fstat_ours(int fd, struct stat *st)
{
	struct vhca_file *file;
	bool ours;

	if (likely(!vhca_fd_may_be_ours(fd)))
		return false;
	file = vhca_file_get(fd);
	if (!file)
		return false;
	ours = file->kind != VHCA_FILE_CHANNEL;
	if (ours)
		vhca_place_stat(&file->place, st);
	vhca_file_put(file);
	return ours;
}

static int stat_any(const char *path, struct stat *st)
{
	int error;

	if (stat_ours(AT_FDCWD, path, 0, st, &error))
		return error ? failed(error) : 0;
	return real()->stat ? real()->stat(path, st) : real()->__xstat(1, path, st);
}

static int lstat_any(const char *path, struct stat *st)
{
	int error;

	if (stat_ours(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, st, &error))
		return error ? failed(error) : 0;
	return real()->lstat ? real()->lstat(path, st) : real()->__lxstat(1, path, st);
}

static int fstat_any(int fd, struct stat *st)
{
	if (fstat_ours(fd, st))
		return 0;
	return real()->fstat ? real()->fstat(fd, st) : real()->__fxstat(1, fd, st);
}

static int fstatat_any(int dirfd, const char *path, struct stat *st, int flags)
{
	int error;

	if (stat_ours(dirfd, path, flags, st, &error))
		return error ? failed(error) : 0;
	return real()->fstatat ? real()->fstatat(dirfd, path, st, flags)
			       : real()->__fxstatat(1, dirfd, path, st, flags);
}

HOOK int stat(const char *path, struct stat *st)
{
	return stat_any(path, st);
}

HOOK int stat64(const char *path, struct stat64 *st)
{
	return stat_any(path, (struct stat *)st);
}

HOOK int lstat(const char *path, struct stat *st)
{
	return lstat_any(path, st);
}

HOOK int lstat64(const char *path, struct stat64 *st)
{
	return lstat_any(path, (struct stat *)st);
}

HOOK int fstat(int fd, struct stat *st)
{
	return fstat_any(fd, st);
}

HOOK int fstat64(int fd, struct stat64 *st)
{
	return fstat_any(fd, (struct stat *)st);
}

HOOK int fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	return fstatat_any(dirfd, path, st, flags);
}

HOOK int fstatat64(int dirfd, const char *path, struct stat64 *st, int flags)
{
	return fstatat_any(dirfd, path, (struct stat *)st, flags);
}

/* What programs built with a glibc before 2.33 call instead. */
HOOK xstat_fn __xstat, __xstat64, __lxstat, __lxstat64;
HOOK fxstat_fn __fxstat, __fxstat64;
HOOK fxstatat_fn __fxstatat, __fxstatat64;

int __xstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return stat_any(path, st);
}

int __xstat64(int version, const char *path, struct stat *st)
{
	(void)version;
	return stat_any(path, st);
}

int __lxstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return lstat_any(path, st);
}

int __lxstat64(int version, const char *path, struct stat *st)
{
	(void)version;
	return lstat_any(path, st);
}

int __fxstat(int version, int fd, struct stat *st)
{
	(void)version;
	return fstat_any(fd, st);
}

int __fxstat64(int version, int fd, struct stat *st)
{
	(void)version;
	return fstat_any(fd, st);
}

int __fxstatat(int version, int dirfd, const char *path, struct stat *st, int flags)
{
	(void)version;
	return fstatat_any(dirfd, path, st, flags);
}

int __fxstatat64(int version, int dirfd, const char *path, struct stat *st, int flags)
{
	(void)version;
	return fstatat_any(dirfd, path, st, flags);
}

static struct statx_timestamp statx_time(struct timespec time)
{
	return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (uint32_t)time.tv_nsec};
}

static void statx_of(const struct stat *st, struct statx *stx)
{
	*stx = (struct statx){
		.stx_mask = STATX_BASIC_STATS,
		.stx_blksize = (uint32_t)st->st_blksize,
		.stx_nlink = (uint32_t)st->st_nlink,
		.stx_uid = st->st_uid,
		.stx_gid = st->st_gid,
		.stx_mode = (uint16_t)st->st_mode,
		.stx_ino = st->st_ino,
		.stx_size = (uint64_t)st->st_size,
		.stx_atime = statx_time(st->st_atim),
		.stx_mtime = statx_time(st->st_mtim),
		.stx_ctime = statx_time(st->st_ctim),
		.stx_rdev_major = major(st->st_rdev),
		.stx_rdev_minor = minor(st->st_rdev),
		.stx_dev_major = major(st->st_dev),
		.stx_dev_minor = minor(st->st_dev),
	};
}

HOOK int statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *stx)
{
	struct stat st;
	int error;

	if (stat_ours(dirfd, path, flags, &st, &error)) {
		if (error)
			return failed(error);
		statx_of(&st, stx);
		return 0;
	}
	return real()->statx(dirfd, path, flags, mask, stx);
}

/* ---- extended attributes: `ls -l` asks for them, and sysfs has none ---- */

static bool xattr_ours(const char *path, int flags)
{
	struct stat st;
	int error;

	if (!stat_ours(AT_FDCWD, path, flags, &st, &error))
		return false;
	errno = error ? error : ENOTSUP;
	return true;
}

HOOK ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	return xattr_ours(path, 0) ? -1 : real()->getxattr(path, name, value, size);
}

HOOK ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	return xattr_ours(path, AT_SYMLINK_NOFOLLOW) ? -1
						     : real()->lgetxattr(path, name, value, size);
}

HOOK ssize_t listxattr(const char *path, char *list, size_t size)
{
	return xattr_ours(path, 0) ? -1 : real()->listxattr(path, list, size);
}

HOOK ssize_t llistxattr(const char *path, char *list, size_t size)
{
	return xattr_ours(path, AT_SYMLINK_NOFOLLOW) ? -1 : real()->llistxattr(path, list, size);
}

/* ---- access ---- */

static bool access_ours(int dirfd, const char *path, int mode, int flags, int *error)
{
	struct stat st;
	mode_t want = (mode_t)mode & (R_OK | W_OK | X_OK);

	if (!stat_ours(dirfd, path, flags, &st, error))
		return false;
	if (!*error &&
		(st.st_mode & want) !=
			want) /* the bits of "others": nobody owns what is not there */
		*error = EACCES;
	return true;
}

HOOK int access(const char *path, int mode)
{
	int error;

	if (access_ours(AT_FDCWD, path, mode, 0, &error))
		return error ? failed(error) : 0;
	return real()->access(path, mode);
}

HOOK int euidaccess(const char *path, int mode)
{
	int error;

	if (access_ours(AT_FDCWD, path, mode, 0, &error))
		return error ? failed(error) : 0;
	return real()->euidaccess(path, mode);
}

HOOK int eaccess(const char *path, int mode)
{
	return euidaccess(path, mode);
}

HOOK int faccessat(int dirfd, const char *path, int mode, int flags)
{
	int error;

	if (access_ours(dirfd, path, mode, flags, &error))
		return error ? failed(error) : 0;
	return real()->faccessat(dirfd, path, mode, flags);
}

/* ---- links ---- */

static bool readlink_ours(int dirfd, const char *path, char *text, size_t size, ssize_t *result)
{
	char target[VHCA_PATH_MAX];
	struct vhca_place place;
	int error;

	if (likely(!vhca_may_locate(dirfd, path, false)))
		return false;
	switch (vhca_locate(dirfd, path, false, false, &place, &error)) {
	case VHCA_NOT_OURS: return false;
	case VHCA_FAILED: *result = failed(error); return true;
	case VHCA_FOUND: break;
	}
	if (vhca_place_kind(&place) != VHCA_LINK) {
		*result = failed(EINVAL);
		return true;
	}
	*result = (ssize_t)min(vhca_place_read(&place, target, sizeof(target)), size);
	memcpy(text, target, (size_t)*result);
	return true;
}

HOOK ssize_t readlink(const char *path, char *text, size_t size)
{
	ssize_t result;

	if (readlink_ours(AT_FDCWD, path, text, size, &result))
		return result;
	return real()->readlink(path, text, size);
}

HOOK ssize_t readlinkat(int dirfd, const char *path, char *text, size_t size)
{
	ssize_t result;

	if (readlink_ours(dirfd, path, text, size, &result))
		return result;
	return real()->readlinkat(dirfd, path, text, size);
}

/* Fortified programs: the caller's buffer has `room` bytes. */
HOOK ssize_t __readlink_chk(const char *path, char *text, size_t size, size_t room);
HOOK ssize_t __readlinkat_chk(int dirfd, const char *path, char *text, size_t size, size_t room);
HOOK char *__realpath_chk(const char *path, char *resolved, size_t room);

ssize_t __readlink_chk(const char *path, char *text, size_t size, size_t room)
{
	if (size > room)
		abort();
	return readlink(path, text, size);
}

ssize_t __readlinkat_chk(int dirfd, const char *path, char *text, size_t size, size_t room)
{
	if (size > room)
		abort();
	return readlinkat(dirfd, path, text, size);
}

static bool realpath_ours(const char *path, char *resolved, char **result)
{
	struct vhca_place place;
	int error;

	if (likely(!vhca_may_locate(AT_FDCWD, path, false)))
		return false;
	*result = NULL;
	switch (vhca_locate(AT_FDCWD, path, true, false, &place, &error)) {
	case VHCA_NOT_OURS: return false;
	case VHCA_FAILED: errno = error; return true;
	case VHCA_FOUND: break;
	}
	*result = resolved ? strcpy(resolved, place.path) : strdup(place.path);
	return true;
}

HOOK char *realpath(const char *path, char *resolved)
{
	char *result;

	if (realpath_ours(path, resolved, &result))
		return result;
	return real()->realpath(path, resolved);
}

char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	if (room < PATH_MAX)
		abort();
	return realpath(path, resolved);
}

HOOK char *canonicalize_file_name(const char *path)
{
	char *result;

	if (realpath_ours(path, NULL, &result))
		return result;
	return real()->canonicalize_file_name(path);
}
