/* clock.c - how fast clock_cycles() counts */

#include "base/base.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t hz;

static void measure(void)
{
#if defined(__aarch64__)
	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
#else
	uint64_t start_ns = clock_ns(), start = clock_cycles(), now_ns;

	do
		now_ns = clock_ns();
	while (now_ns - start_ns < 5 * 1000 * 1000);
	hz = (uint64_t)((double)(clock_cycles() - start) * 1e9 / (double)(now_ns - start_ns));
#endif
}

uint64_t vbn__clock_hz(void)
{
	pthread_once(&once, measure);
	return hz;
}
