/* preload_dir.c - libc calls on directories that are answered here: opendir to closedir, scandir
 *
 * A DIR of ours is an object of ours; a list tells it from a real one. While there is none, which
 * is nearly always, a call on a real DIR costs one load. A directory that both trees have shows the
 * real entries, then those that only the emulation has.
 */
#include "preload.h"

struct vhca_dir {
	struct vhca_dir *next;
	struct vhca_place place;
	int fd;
	DIR *beneath;  /* of a directory that the real system has too: its entries come first */
	long position; /* of the next entry: 0 is ".", 1 is "..", then the children */
	struct dirent entry;
};

static struct vhca_dir *dirs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The object behind a DIR; NULL for a real one. The caller owns the stream as any user of a DIR
 * does. */
static struct vhca_dir *dir_of(DIR *stream)
{
	struct vhca_dir *dir;

	if (likely(!load_once(&dirs)))
		return NULL;
	pthread_mutex_lock(&lock);
	dir = dirs;
	while (dir && dir != (struct vhca_dir *)(void *)stream)
		dir = dir->next;
	pthread_mutex_unlock(&lock);
	return dir;
}

static DIR *dir_new(const struct vhca_place *place, int fd, DIR *beneath)
{
	struct vhca_dir *dir = calloc(1, sizeof(*dir));

	if (!dir)
		return NULL;
	dir->place = *place;
	dir->fd = fd;
	dir->beneath = beneath;
	dir->position = beneath ? 2 : 0;
	pthread_mutex_lock(&lock);
	dir->next = dirs;
	store_once(&dirs, dir);
	pthread_mutex_unlock(&lock);
	return (DIR *)(void *)dir;
}

static int dir_close(struct vhca_dir *dir)
{
	struct vhca_dir **at = &dirs;
	DIR *beneath = dir->beneath;
	int fd = dir->fd;

	pthread_mutex_lock(&lock);
	while (*at != dir)
		at = &(*at)->next;
	store_once(at, dir->next);
	pthread_mutex_unlock(&lock);
	free(dir);
	return beneath ? real()->closedir(beneath) : close(fd);
}

/* ---- entries ---- */

static void entry_fill(
	struct dirent *entry, const struct vhca_place *place, const char *name, long position)
{
	static const uint8_t types[] = {
		[VHCA_DIRECTORY] = DT_DIR,
		[VHCA_ATTRIBUTE] = DT_REG,
		[VHCA_LINK] = DT_LNK,
		[VHCA_CHARDEV] = DT_CHR,
	};
	struct stat st;

	vhca_place_stat(place, &st);
	entry->d_ino = st.st_ino;
	entry->d_off = position + 1;
	entry->d_reclen = sizeof(*entry);
	entry->d_type = types[vhca_place_kind(place)];
	snprintf(entry->d_name, sizeof(entry->d_name), "%s", name);
}

/* The entry at a position; false past the end. */
static bool entry_at(const struct vhca_place *place, long position, struct dirent *entry)
{
	struct vhca_place child;
	const char *name;

	if (position < 0)
		return false;
	if (position < 2) {
		entry_fill(entry, place, position ? ".." : ".", position);
		return true;
	}
	if (!vhca_place_child(place, (size_t)position - 2, &child, &name))
		return false;
	entry_fill(entry, &child, name, position);
	return true;
}

/* ---- the calls ---- */

/* A directory that the real system may have too. False if it is the real one's alone. */
static bool opendir_both(const char *path, const struct vhca_place *place, DIR **result)
{
	DIR *beneath;

	if (!place->entry)
		return false;
	beneath = real()->opendir(path);
	if (!beneath)
		return true;
	*result = dir_new(place, real()->dirfd(beneath), beneath);
	if (!*result)
		real()->closedir(beneath);
	return true;
}

/* An opendir answered here: *result is set. False if the real one is to answer. */
static bool opendir_ours(const char *path, DIR **result)
{
	struct vhca_place place = {.entry = NULL};
	int fd, error;

	if (likely(!vhca_may_locate(AT_FDCWD, path, false)))
		return false;
	*result = NULL;
	switch (vhca_locate(AT_FDCWD, path, true, false, &place, &error)) {
	case VHCA_NOT_OURS: return opendir_both(path, &place, result);
	case VHCA_FAILED: errno = error; return true;
	case VHCA_FOUND: break;
	}
	fd = vhca_open_place(&place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return true;
	*result = dir_new(&place, fd, NULL);
	if (!*result)
		close(fd);
	return true;
}

HOOK DIR *opendir(const char *path)
{
	DIR *result;

	return opendir_ours(path, &result) ? result : real()->opendir(path);
}

HOOK DIR *fdopendir(int fd)
{
	struct vhca_file *file;
	DIR *result;

	if (likely(!vhca_fd_may_be_ours(fd)))
		return real()->fdopendir(fd);
	file = vhca_file_get(fd);
	if (!file)
		return real()->fdopendir(fd);
	result = NULL;
	errno = ENOTDIR;
	if (file->kind == VHCA_FILE_DIRECTORY)
		result = dir_new(&file->place, fd, NULL);
	vhca_file_put(file);
	return result;
}

/* The next entry of the emulation's that the real directory has not. */
static bool entry_more(struct vhca_dir *dir, struct dirent *entry)
{
	while (entry_at(&dir->place, dir->position, entry)) {
		dir->position++;
		if (real()->faccessat(dir->fd, entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW))
			return true;
	}
	return false;
}

static struct dirent *dir_read(struct vhca_dir *dir)
{
	int saved = errno;
	struct dirent *entry;

	if (dir->beneath && dir->position == 2) {
		entry = real()->readdir(dir->beneath);
		if (entry)
			return entry;
	}
	if (dir->beneath) {
		entry = entry_more(dir, &dir->entry) ? &dir->entry : NULL;
		errno = saved;
		return entry;
	}
	return entry_at(&dir->place, dir->position, &dir->entry) ? dir->position++,
	       &dir->entry                                       : NULL;
}

HOOK struct dirent *readdir(DIR *stream)
{
	struct vhca_dir *dir = dir_of(stream);

	return dir ? dir_read(dir) : real()->readdir(stream);
}

HOOK struct dirent64 *readdir64(DIR *stream)
{
	return (struct dirent64 *)(void *)readdir(stream);
}

static int readdir_r_any(DIR *stream, struct dirent *entry, struct dirent **result)
{
	struct vhca_dir *dir = dir_of(stream);

	const struct dirent *next;

	if (!dir)
		return real()->readdir_r(stream, entry, result);
	next = dir_read(dir);
	if (next)
		memcpy(entry, next, next->d_reclen);
	*result = next ? entry : NULL;
	return 0;
}

HOOK int readdir_r(DIR *stream, struct dirent *entry, struct dirent **result)
{
	return readdir_r_any(stream, entry, result);
}

HOOK int readdir64_r(DIR *stream, struct dirent64 *entry, struct dirent64 **result)
{
	return readdir_r_any(
		stream, (struct dirent *)(void *)entry, (struct dirent **)(void *)result);
}

HOOK int closedir(DIR *stream)
{
	struct vhca_dir *dir = dir_of(stream);

	return dir ? dir_close(dir) : real()->closedir(stream);
}

HOOK int dirfd(DIR *stream)
{
	struct vhca_dir *dir = dir_of(stream);

	return dir ? dir->fd : real()->dirfd(stream);
}

HOOK void rewinddir(DIR *stream)
{
	struct vhca_dir *dir = dir_of(stream);

	if (dir)
		dir->position = dir->beneath ? 2 : 0;
	if (!dir || dir->beneath)
		real()->rewinddir(dir ? dir->beneath : stream);
}

HOOK long telldir(DIR *stream)
{
	struct vhca_dir *dir = dir_of(stream);

	if (dir && !dir->beneath)
		return dir->position;
	return real()->telldir(dir ? dir->beneath : stream);
}

HOOK void seekdir(DIR *stream, long position)
{
	struct vhca_dir *dir = dir_of(stream);

	if (dir)
		dir->position = dir->beneath ? 2 : position;
	if (!dir || dir->beneath)
		real()->seekdir(dir ? dir->beneath : stream, position);
}

/* ---- scandir: libc's own opens the directory out of sight of the hooks ---- */

static void list_free(struct dirent **list, size_t n)
{
	while (n)
		free(list[--n]);
	free(list);
}

static int compare_entries(const void *a, const void *b, void *compare)
{
	compare_fn *fn = *(compare_fn **)compare;

	return fn((const struct dirent **)a, (const struct dirent **)b);
}

static int scan_place(const struct vhca_place *place, struct dirent ***result, filter_fn *filter,
	compare_fn *compare)
{
	struct dirent **list = NULL, entry;
	size_t n = 0, room = 0;

	for (long position = 0; entry_at(place, position, &entry); position++) {
		if (filter && !filter(&entry))
			continue;
		if (n == room) {
			size_t more = room ? room * 2 : 16;
			struct dirent **grown = reallocarray(list, more, sizeof(struct dirent *));

			if (!grown)
				goto no_memory;
			list = grown;
			room = more;
		}
		list[n] = malloc(sizeof(entry));
		if (!list[n])
			goto no_memory;
		*list[n++] = entry;
	}
	if (compare && n)
		qsort_r(list, n, sizeof(*list), compare_entries, &compare);
	*result = list;
	return (int)n;

no_memory:
	list_free(list, n);
	errno = ENOMEM;
	return -1;
}

static int scandir_any(
	int at, const char *path, struct dirent ***list, filter_fn *filter, compare_fn *compare)
{
	struct vhca_place place;
	int error;

	if (unlikely(vhca_may_locate(at, path, false))) {
		switch (vhca_locate(at, path, true, false, &place, &error)) {
		case VHCA_FOUND:
			if (vhca_place_kind(&place) == VHCA_DIRECTORY)
				return scan_place(&place, list, filter, compare);
			errno = ENOTDIR;
			return -1;
		case VHCA_FAILED: errno = error; return -1;
		default: break;
		}
	}
	if (at == AT_FDCWD)
		return real()->scandir(path, list, filter, compare);
	return real()->scandirat(at, path, list, filter, compare);
}

HOOK int scandir(const char *path, struct dirent ***list, filter_fn *filter, compare_fn *compare)
{
	return scandir_any(AT_FDCWD, path, list, filter, compare);
}

HOOK int scandir64(const char *path, struct dirent64 ***list,
	int (*filter)(const struct dirent64 *),
	int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	return scandir_any(AT_FDCWD, path, (struct dirent ***)list, (filter_fn *)(void *)filter,
		(compare_fn *)(void *)compare);
}

HOOK int scandirat(
	int at, const char *path, struct dirent ***list, filter_fn *filter, compare_fn *compare)
{
	return scandir_any(at, path, list, filter, compare);
}

HOOK int scandirat64(int at, const char *path, struct dirent64 ***list,
	int (*filter)(const struct dirent64 *),
	int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	return scandir_any(at, path, (struct dirent ***)list, (filter_fn *)(void *)filter,
		(compare_fn *)(void *)compare);
}
