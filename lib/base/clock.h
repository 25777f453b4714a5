/* clock.h - cycles for the fast path, nanoseconds for everything else */
#ifndef VBN_CLOCK_H
#define VBN_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time stamp counter (x86) or the virtual counter (arm64): constant rate, not ordered with
 * other instructions. */
static force_inline uint64_t clock_cycles(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#endif
}

/* Monotonic nanoseconds, by the kernel's vDSO. */
static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* clock_cycles() per second: measured once against clock_ns() over some milliseconds; the first
 * call takes them. */
uint64_t vbn__clock_hz(void);

#endif
