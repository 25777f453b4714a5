/* sysfs.c - paths of the emulated tree resolve to places, which have content, children and a stat
 *
 * Nothing here allocates: a walk goes down the tables of sysfs_tree.c and follows their links by
 * path.
 */
#include "sysfs.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define SYSFS_DEV makedev(0, 0xfe)
#define MAX_DEPTH 16
#define MAX_LINKS 8

/* ---- names ---- */

const char *vhca_interface_name(void)
{
	const char *wire = vhca_options()->wire, *colon = strchr(wire, ':');

	if (!colon || !if_nametoindex(colon + 1))
		return "";
	return colon + 1;
}

static int format_name(const struct vhca_entry *entry, int number, char *name, size_t size)
{
	if (entry->count == INTERFACE)
		return snprintf(name, size, "%s", vhca_interface_name());
	if (entry->count == ONE || entry->count == ON_A_LINK)
		return snprintf(name, size, "%s", entry->name);
	return snprintf(name, size, entry->hex ? "%s%02x%s" : "%s%d%s", entry->name,
		number + entry->first, entry->suffix ? entry->suffix : "");
}

static int n_instances(const struct vhca_entry *entry)
{
	switch (entry->count) {
	case ONE:
	case THIS_DEVICE: return 1;
	case EACH_DEVICE: return vhca_n_devices();
	case EACH_INDEX: return entry->n;
	case INTERFACE:
	case ON_A_LINK: return vhca_interface_name()[0] ? 1 : 0;
	default: return 0;
	}
}

/* The number in a name that this numbered entry would have made; -1 if it would not have. */
static int number_in(const struct vhca_entry *entry, const char *name)
{
	size_t prefix = strlen(entry->name);
	char again[64];
	long number;

	if (strncmp(name, entry->name, prefix))
		return -1;
	number = strtol(name + prefix, NULL, entry->hex ? 16 : 10) - entry->first;
	if (number < 0 || number > 0xffff)
		return -1;
	format_name(entry, (int)number, again, sizeof(again));
	return strcmp(again, name) ? -1 : (int)number;
}

/* Whether the entry has the name; sets what the name says of the place. */
static bool entry_matches(
	const struct vhca_entry *entry, const char *name, struct vhca_place *place)
{
	int number;

	if (entry->count == ONE)
		return !strcmp(entry->name, name);
	if (entry->count == ON_A_LINK)
		return !strcmp(entry->name, name) && vhca_interface_name()[0];
	if (entry->count == INTERFACE)
		return !strcmp(vhca_interface_name(), name);
	if (entry->count == ANY_OTHER)
		return !strncmp(entry->name, name, strlen(entry->name));
	number = number_in(entry, name);
	if (number < 0)
		return false;
	if (entry->count == THIS_DEVICE)
		return number == place->device;
	if (number >= n_instances(entry))
		return false;
	if (entry->count == EACH_DEVICE)
		place->device = number;
	else
		place->index = number;
	return true;
}

static const struct vhca_entry *find_child(
	const struct vhca_entry *parent, const char *name, struct vhca_place *place)
{
	for (const struct vhca_entry *entry = parent->children; entry && entry->name; entry++)
		if (entry_matches(entry, name, place))
			return entry;
	return NULL;
}

/* ---- resolving ---- */

/* libibverbs takes its root from SYSFS_PATH unless the program is set-id, and so do these lookups.
 */
static const char *other_sysfs(void)
{
	static const char *path;
	const char *env;

	if (likely(load_acquire(&path)))
		return path;
	env = getuid() == geteuid() ? getenv("SYSFS_PATH") : NULL;
	env = env ? env : "";
	store_release(&path, env);
	return env;
}

/* What follows the other root in the path, from its slash on; NULL if the path is not under it. */
static const char *after_other_sysfs(const char *path)
{
	const char *other = other_sysfs();
	size_t n = strlen(other);

	while (n && other[n - 1] == '/')
		n--;
	if (!n || strncmp(path, other, n) || path[n] != '/')
		return NULL;
	return path + n;
}

bool vhca_path_may_be_ours(const char *path)
{
	if (!path || path[0] != '/')
		return false;
	if (path[1] == 's')
		return !strncmp(path, "/sys/", 5) || after_other_sysfs(path);
	if (path[1] == 'd' && !strncmp(path, "/dev/infiniband", 15))
		return true;
	return after_other_sysfs(path) != NULL;
}

/* The directories from the root to where a walk has come. */
struct walk {
	struct vhca_place places[MAX_DEPTH];
	int depth;
};

enum step { STEPPED, IS_LINK, ENDED };

static void walk_begin(struct walk *walk)
{
	walk->depth = 0;
	walk->places[0] = (struct vhca_place){.entry = &vhca_root, .device = -1};
}

static struct vhca_place *walk_here(struct walk *walk)
{
	return &walk->places[walk->depth];
}

static enum vhca_lookup walk_step(struct walk *walk, const char *name, int *error)
{
	struct vhca_place *here = walk_here(walk), *next = here + 1;
	size_t length = strlen(here->path);

	if (here->entry->kind != VHCA_DIRECTORY) {
		*error = ENOTDIR;
		return VHCA_FAILED;
	}
	if (!strcmp(name, ".."))
		walk->depth -= walk->depth > 0;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return VHCA_FOUND;
	if (walk->depth + 1 == MAX_DEPTH || length + strlen(name) + 2 > VHCA_PATH_MAX) {
		*error = ENAMETOOLONG;
		return here->entry->shadow ? VHCA_NOT_OURS : VHCA_FAILED;
	}
	*next = *here;
	next->entry = find_child(here->entry, name, next);
	*error = ENOENT;
	if (!next->entry)
		return here->entry->shadow ? VHCA_NOT_OURS : VHCA_FAILED;
	if (next->entry->count == ANY_OTHER)
		return VHCA_FAILED;
	next->path[length] = '/';
	strcpy(next->path + length + 1, name);
	walk->depth++;
	return VHCA_FOUND;
}

/* Puts the link that the walk stands on in the place of itself: its directory, its target, the
 * rest. */
static bool splice_link(struct walk *walk, const char *rest, char *path, size_t size)
{
	char target[VHCA_PATH_MAX], joined[2 * VHCA_PATH_MAX];
	int n;

	vhca_place_read(walk_here(walk), target, sizeof(target));
	walk->depth--;
	n = snprintf(joined, sizeof(joined), "%s/%s/%s", walk_here(walk)->path, target, rest);
	if (n < 0 || (size_t)n >= size)
		return false;
	memcpy(path, joined, (size_t)n + 1);
	return true;
}

/* Cuts the next component off *rest into name; false at the end. *last: nothing but slashes
 * follows. */
static bool next_component(const char **rest, char *name, size_t size, bool *last, bool *too_long)
{
	size_t n;

	*rest += strspn(*rest, "/");
	n = strcspn(*rest, "/");
	*too_long = n >= size;
	if (!n || *too_long)
		return false;
	memcpy(name, *rest, n);
	name[n] = '\0';
	*rest += n;
	*last = !**rest;
	return true;
}

enum vhca_lookup vhca_resolve(
	const char *path, bool follow_last, struct vhca_place *place, int *error)
{
	char whole[2 * VHCA_PATH_MAX], name[256];
	const char *rest, *other = after_other_sysfs(path);
	bool last = false, too_long;
	struct walk walk;
	int links = 0;

	if ((size_t)snprintf(whole, sizeof(whole), "%s%s", other ? "/sys" : "",
		    other ? other : path) >= sizeof(whole))
		return VHCA_NOT_OURS;
	rest = whole;
	walk_begin(&walk);
	while (next_component(&rest, name, sizeof(name), &last, &too_long)) {
		enum vhca_lookup found = walk_step(&walk, name, error);

		if (found == VHCA_NOT_OURS &&
			links) { /* one of our links leads out: its target is not there */
			*error = ENOENT;
			found = VHCA_FAILED;
		}
		if (found != VHCA_FOUND)
			return found;
		if (walk_here(&walk)->entry->kind != VHCA_LINK || (last && !follow_last))
			continue;
		if (++links > MAX_LINKS || !splice_link(&walk, rest, whole, sizeof(whole))) {
			*error = ELOOP;
			return VHCA_FAILED;
		}
		rest = whole;
		walk_begin(&walk);
	}
	if (too_long || walk_here(&walk)->entry->shadow) {
		*error = ENOENT;
		if (!too_long)
			*place = *walk_here(&walk);
		return links ? VHCA_FAILED : VHCA_NOT_OURS;
	}
	*place = *walk_here(&walk);
	if (place->entry->kind != VHCA_DIRECTORY && whole[strlen(whole) - 1] == '/' && !links) {
		*error = ENOTDIR;
		return VHCA_FAILED;
	}
	return VHCA_FOUND;
}

/* ---- places ---- */

enum vhca_node vhca_place_kind(const struct vhca_place *place)
{
	return (enum vhca_node)place->entry->kind;
}

size_t vhca_place_read(const struct vhca_place *place, char *text, size_t size)
{
	text[0] = '\0';
	if (place->entry->read)
		return place->entry->read(place, text, size);
	if (!place->entry->text)
		return 0;
	snprintf(text, size, "%s", place->entry->text);
	return strlen(text);
}

bool vhca_place_child(
	const struct vhca_place *place, size_t i, struct vhca_place *child, const char **name)
{
	size_t length = strlen(place->path);

	for (const struct vhca_entry *entry = place->entry->children; entry && entry->name;
		entry++) {
		size_t n = (size_t)n_instances(entry);
		int number = entry->count == THIS_DEVICE ? place->device : (int)i;

		if (i >= n) {
			i -= n;
			continue;
		}
		*child = *place;
		child->entry = entry;
		if (entry->count == EACH_DEVICE)
			child->device = number;
		if (entry->count == EACH_INDEX)
			child->index = number;
		if (length + 64 > VHCA_PATH_MAX)
			return false;
		child->path[length] = '/';
		format_name(entry, number, child->path + length + 1, VHCA_PATH_MAX - length - 1);
		*name = child->path + length + 1;
		return true;
	}
	return false;
}

/* An inode number for a path: the same at every look, and never 0. */
static ino_t inode_of(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (uint8_t)*path) * 0x100000001b3u;
	return hash | 1;
}

/* libibverbs takes a changed time for another device behind the same name: so it is one for all
 * looks, from the first on. */
static struct timespec birth(void)
{
	static struct timespec time_of_birth;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	if (!time_of_birth.tv_sec)
		clock_gettime(CLOCK_REALTIME, &time_of_birth);
	pthread_mutex_unlock(&lock);
	return time_of_birth;
}

void vhca_place_stat(const struct vhca_place *place, struct stat *st)
{
	static const mode_t modes[] = {
		[VHCA_DIRECTORY] = S_IFDIR | 0755,
		[VHCA_ATTRIBUTE] = S_IFREG | 0444,
		[VHCA_LINK] = S_IFLNK | 0777,
		[VHCA_CHARDEV] = S_IFCHR | 0666,
	};

	*st = (struct stat){
		.st_dev = SYSFS_DEV,
		.st_ino = inode_of(place->path),
		.st_mode = modes[place->entry->kind],
		.st_nlink = place->entry->kind == VHCA_DIRECTORY ? 2 : 1,
		.st_size = place->entry->kind == VHCA_ATTRIBUTE ? 4096 : 0,
		.st_blksize = 4096,
	};
	if (place->entry->kind == VHCA_CHARDEV)
		st->st_rdev = makedev(UVERBS_MAJOR, (unsigned int)(UVERBS_MINOR + place->device));
	st->st_atim = st->st_mtim = st->st_ctim = birth();
}
