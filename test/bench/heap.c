/* heap.c - whose memory of the heap it is: the emulated device's, rings, or all others'
 *
 * The program's malloc() and its like stand before the C library's and look at who calls: what the
 * device's library takes and gives back is the device's. Page-aligned memory is what rings are in.
 */
#include "heap.h"

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static uintptr_t device_begin, device_end; /* its code */
static struct heap_use use;

static bool is_devices(const void *caller)
{
	return (uintptr_t)caller - device_begin < device_end - device_begin;
}

static void count(int64_t *what, int64_t bytes)
{
	__atomic_fetch_add(what, bytes, __ATOMIC_RELAXED);
}

static void *taken(void *memory, const void *caller)
{
	if (memory)
		count(is_devices(caller) ? &use.device : &use.others,
			(int64_t)malloc_usable_size(memory));
	return memory;
}

static void given(void *memory, const void *caller)
{
	int64_t *what = is_devices(caller) ? &use.device : &use.others;

	if (!memory)
		return;
	if (what == &use.others && !((uintptr_t)memory % PAGE))
		what = &use.rings;
	count(what, -(int64_t)malloc_usable_size(memory));
}

static void *taken_aligned(size_t alignment, size_t size, const void *caller)
{
	void *memory = __libc_memalign(alignment, size);

	if (!memory)
		errno = ENOMEM;
	if (!memory || is_devices(caller) || (uintptr_t)memory % PAGE)
		return taken(memory, caller);
	count(&use.rings, (int64_t)malloc_usable_size(memory));
	return memory;
}

void *malloc(size_t size)
{
	return taken(__libc_malloc(size), __builtin_return_address(0));
}

void *calloc(size_t n, size_t size)
{
	return taken(__libc_calloc(n, size), __builtin_return_address(0));
}

void *realloc(void *old, size_t size)
{
	const void *caller = __builtin_return_address(0);
	size_t before = old ? malloc_usable_size(old) : 0;
	void *memory = __libc_realloc(old, size);

	if (!memory && size)
		return NULL;
	count(is_devices(caller) ? &use.device : &use.others, -(int64_t)before);
	return taken(memory, caller);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return taken_aligned(alignment, size, __builtin_return_address(0));
}

void *memalign(size_t alignment, size_t size)
{
	return taken_aligned(alignment, size, __builtin_return_address(0));
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	*memory = taken_aligned(alignment, size, __builtin_return_address(0));
	return *memory ? 0 : ENOMEM;
}

void free(void *memory)
{
	given(memory, __builtin_return_address(0));
	__libc_free(memory);
}

static int find_device(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	if (!strstr(info->dlpi_name, "libverbena-vhca"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		device_begin = info->dlpi_addr + segment->p_vaddr;
		device_end = device_begin + segment->p_memsz;
	}
	return 1;
}

struct heap_use heap_use(void)
{
	if (!device_begin)
		dl_iterate_phdr(find_device, NULL);
	return use;
}
