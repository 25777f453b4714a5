/* memory.c - whether memory that a program names is there */

#include "vhca/device.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

void *(*vhca_memmove)(void *to, const void *from, size_t length) = memmove;

static __attribute__((constructor)) void find_memmove(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *found = libc ? dlsym(libc, "memmove") : NULL;

	if (found)
		memcpy(&vhca_memmove, &found, sizeof(found));
	if (libc)
		dlclose(libc);
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Of a large registration only so much is brought in: a sparse mapping of terabytes is legal, and all
 * of it would be more than any machine has. The engine takes page faults on the rest. Fuzz targets,
 * which name addresses of sanitizers' memory, have less. */
#ifndef MOST_BROUGHT_IN
#define MOST_BROUGHT_IN ((size_t)256 << 20)
#endif

/* Kernels before 5.14 know no such advice. Others say the same, EINVAL, of memory that may not be
 * read, or written. */
static bool can_populate(void)
{
	return !madvise(NULL, 0, MADV_POPULATE_READ);
}

/* Brings the pages in as a registration on hardware pins them; old kernels only say whether there are
 * any. */
int vhca_memory_check(uint64_t addr, uint64_t length, bool writable)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = addr & ~(page - 1);
	size_t size = (size_t)(round_up(addr + length, page) - start);

	if (!length)
		return 0;
	if (addr + length < addr || round_up(addr + length, page) <= start)
		return EFAULT;
	if (madvise(vhca_pointer(start), min(size, MOST_BROUGHT_IN),
		    writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)) {
		if ((errno != EINVAL && errno != ENOSYS) || can_populate())
			return EFAULT;
	} else if (size <= MOST_BROUGHT_IN) {
		return 0;
	}
	return msync(vhca_pointer(start), size, MS_ASYNC) ? EFAULT : 0;
}
