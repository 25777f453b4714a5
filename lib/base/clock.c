/* clock.c - how fast clock_cycles() counts */

#include "base/base.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t hz;

/* The same moment on both clocks: the closest of a few looks, since this thread may lose its core
 * between the two. */
struct moment {
	uint64_t cycles, ns;
};

__attribute__((__unused__)) static struct moment moment_now(void)
{
	struct moment best = {0};
	uint64_t closest = UINT64_MAX;

	for (int i = 0; i < 16; i++) {
		uint64_t before = clock_cycles(), ns = clock_ns(), took = clock_cycles() - before;

		if (took < closest) {
			closest = took;
			best = (struct moment){.cycles = before + took / 2, .ns = ns};
		}
	}
	return best;
}

static void measure(void)
{
#if defined(__aarch64__)
	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
#else
	struct moment start = moment_now(), end;

	do
		end = moment_now();
	while (end.ns - start.ns < 5 * 1000 * 1000);
	hz = (uint64_t)((double)(end.cycles - start.cycles) * 1e9 / (double)(end.ns - start.ns));
#endif
}

uint64_t vbn__clock_hz(void)
{
	pthread_once(&once, measure);
	return hz;
}
