/* heap.h - whose memory of the heap it is */
#ifndef BENCH_HEAP_H
#define BENCH_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes since the first call, which is to come before there is anything of the device's. */
struct heap_use {
	int64_t others; /* the program's, the library's, libmlx5's, libibverbs' */
	int64_t rings;  /* theirs, too: page-aligned */
	int64_t device; /* the emulated device's */
};
struct heap_use heap_use(void);

#endif
