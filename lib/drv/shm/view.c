/* view.c - zones of other processes, mapped for reading: what a peer hands over is checked here, once,
 * so that no later access finds a page missing */

#include "drv/shm/lend.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older ones answer EINVAL */
#endif

/* Of all views, those too that wait for workers to let go: a peer could else have them pile up. */
static struct {
	uint64_t n, bytes;
} in_all;

static bool count_in(uint64_t size)
{
	if (size > SHM_VIEWS_BYTES ||
		__atomic_load_n(&in_all.n, __ATOMIC_RELAXED) >= SHM_VIEWS_IN_ALL ||
		__atomic_load_n(&in_all.bytes, __ATOMIC_RELAXED) > SHM_VIEWS_BYTES - size)
		return false;
	__atomic_fetch_add(&in_all.n, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&in_all.bytes, size, __ATOMIC_RELAXED);
	return true;
}

static void count_out(uint64_t size)
{
	__atomic_fetch_sub(&in_all.n, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&in_all.bytes, size, __ATOMIC_RELAXED);
}

/* ---- one ---- */

/* Whether this kernel lets nobody punch pages out of what is so sealed: it is tried. */
static bool keeps_pages(unsigned int flags)
{
	const off_t size = 2 << 20;
	int fd = memfd_create("verbena probe", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	bool kept;

	if (fd < 0)
		return false;
	kept = !ftruncate(fd, size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) &&
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) &&
		errno == EPERM;
	close(fd);
	return kept;
}

/* NULL, or why it may not be mapped. Pages that it has not got yet are no promise: of huge ones there
 * may be too few, and plain ones would be had at this process's expense. */
static const char *check(int fd, uint64_t size)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat stat;
	bool huge;

	if (seals < 0 || fstat(fd, &stat) || !S_ISREG(stat.st_mode) || fstatfs(fd, &fs) ||
		(fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC))
		return "it is no memfd";
	if (!(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_FUTURE_WRITE))
		return "it is not sealed against shrinking and writing";
	huge = fs.f_type == HUGETLBFS_MAGIC;
	if (!size || (uint64_t)stat.st_size != size || size % (uint64_t)fs.f_bsize)
		return "its size is not what was said";
	if ((uint64_t)stat.st_blocks * 512 < size)
		return "it has not got all its pages";
	if (!keeps_pages(huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0))
		return "this kernel lets its owner punch pages out of it";
	return NULL;
}

/* What was had at the check is there; old kernels are not asked to say so. */
static bool populate(void *base, size_t size)
{
	int code;

	do
		code = madvise(base, size, MADV_POPULATE_READ) ? errno : 0;
	while (code == EINTR || code == EAGAIN);
	return !code || code == EINVAL;
}

static struct shm_view *map(int fd, size_t size, const char **why)
{
	struct shm_view *view = calloc(1, sizeof(*view));
	void *base;

	*why = "there is no memory for it";
	if (!view)
		return NULL;
	base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (base != MAP_FAILED && populate(base, size)) {
		view->base = base;
		view->size = size;
		return view;
	}
	*why = "it cannot be mapped";
	if (base != MAP_FAILED)
		munmap(base, size);
	free(view);
	return NULL;
}

static void unmap(void *arg)
{
	struct shm_view *view = arg;

	munmap((void *)(uintptr_t)view->base, view->size);
	count_out(view->size);
	free(view);
}

/* ---- those of a process ---- */

struct shm_views *vbn__shm_views_make(void)
{
	struct shm_views *views = calloc(1, sizeof(*views));

	if (views)
		views->refs = 1;
	return views;
}

/* No queue looks at them any more. */
void vbn__shm_views_put(struct shm_views *views)
{
	if (!views || --views->refs)
		return;
	for (int i = 0; i < SHM_VIEWS; i++)
		if (views->at[i])
			unmap(views->at[i]);
	free(views);
}

bool vbn__shm_view_add(
	struct shm_views *views, uint32_t slot, int fd, uint64_t size, const char **why)
{
	struct shm_view *view = NULL;

	*why = "it names no place that is free";
	if (slot < SHM_VIEWS && !views->at[slot])
		*why = check(fd, size);
	if (!*why && !count_in(size))
		*why = "there is more of others' memory than this process takes";
	else if (!*why) {
		view = map(fd, size, why);
		if (!view)
			count_out(size);
	}
	close(fd);
	if (!view)
		return false;
	rcu_publish(&views->at[slot], view);
	return true;
}

void vbn__shm_view_drop(struct shm_views *views, uint32_t slot)
{
	struct shm_view *view = slot < SHM_VIEWS ? views->at[slot] : NULL;

	if (!view)
		return;
	rcu_publish(&views->at[slot], NULL);
	vbn__rcu_call(&view->later, unmap, view);
}
