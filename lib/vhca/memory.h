/* memory.h - the only accesses to memory that a program named by address
 *
 * A device's accesses are DMA: the program orders its own against them by barriers, which
 * ThreadSanitizer takes for none. It is therefore not shown ours.
 */
#ifndef VHCA_MEMORY_H
#define VHCA_MEMORY_H

#include "base/base.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define vhca_dma static noinline __attribute__((no_sanitize("thread"), unused))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define vhca_dma static noinline __attribute__((disable_sanitizer_instrumentation, unused))
#endif
#endif

/* libc's own, where a sanitizer in the program has put itself in front of it. A call for a few bytes
 * whose number is known would go there too: memcpy() of them is no call, and what they are copied
 * from or to is never the program's on both sides. */
extern void *(*vhca_memmove)(void *to, const void *from, size_t length);

#ifdef vhca_dma
/* Not memcpy(), which the sanitizer looks into wherever it is called from. */
#define vhca_dma_copy(to, from, length)       \
	for (size_t i = 0; i < (length); i++) \
	((volatile uint8_t *)(to))[i] = ((const volatile uint8_t *)(from))[i]
#else
#define vhca_dma static force_inline
#define vhca_dma_copy(to, from, length) \
	(__builtin_constant_p(length) ? memcpy(to, from, length) : vhca_memmove(to, from, length))
#endif

/* 0, or EFAULT where the range is not mapped, or not writable though it must be. May block: no lock
 * needed. */
int vhca_memory_check(uint64_t addr, uint64_t length, bool writable);

vhca_dma void vhca_memory_read(void *to, const void *from, size_t length)
{
	vhca_dma_copy(to, from, length);
}

/* A program may well send a buffer to itself. */
vhca_dma void vhca_memory_write(void *to, const void *from, size_t length)
{
	vhca_dma_copy(to, from, length);
}

/* A doorbell record. What the program wrote before it is there: pairs with wqes_before_record(). */
vhca_dma uint32_t vhca_record_read(const __be32 *record)
{
	return from_be32(load_acquire(record));
}

/* The word that makes all that was written before it the program's: pairs with owner_before_body().
 */
vhca_dma void vhca_publish(void *to, uint32_t word)
{
	store_release((uint32_t *)to, word);
}

/* Takes a doorbell. The load finds nothing most of the time, and leaves the line with whoever
 * writes it. */
vhca_dma uint64_t vhca_doorbell_take(void *doorbell)
{
	return load_once((uint64_t *)doorbell)
		? __atomic_exchange_n((uint64_t *)doorbell, 0, __ATOMIC_ACQ_REL)
		: 0;
}

static force_inline void *vhca_pointer(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

#endif
