/* base.h - the floor that every room stands on: types, bits, byte order, barriers, log, clock,
 * topology, counters
 *
 * Lives here: what knows nothing of messages or devices. May come in: libc, libnuma. May touch it:
 * every room, vhca too. Nothing here allocates, locks or logs on a fast path.
 */
#ifndef VBN_BASE_H
#define VBN_BASE_H

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CACHE_LINE                      64

#define likely(x)                       __builtin_expect(!!(x), 1)
#define unlikely(x)                     __builtin_expect(!!(x), 0)
#define force_inline                    inline __attribute__((__always_inline__))
#define noinline                        __attribute__((__noinline__))
#define cold                            __attribute__((__cold__, __noinline__))
#define hot                             __attribute__((__hot__))
/* Data-path functions are kept together, apart from the rest: a check reads this section of the
 * object for what a fast path must not have. */
#define fast_path                       __attribute__((section(".text.fast"), __hot__))
/* Found without a call also from a shared object. On the declaration and on the definition. */
#define thread_local_near               _Thread_local __attribute__((__tls_model__("initial-exec")))
#define cache_aligned                   __attribute__((__aligned__(CACHE_LINE)))
#define printf_like(fmt, args)          __attribute__((__format__(__printf__, fmt, args)))
#define VBN_API                         __attribute__((visibility("default")))

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define min(a, b)                                  \
	({                                         \
		__typeof__(a) min_a_ = (a);        \
		__typeof__(b) min_b_ = (b);        \
		min_a_ < min_b_ ? min_a_ : min_b_; \
	})
#define max(a, b)                                  \
	({                                         \
		__typeof__(a) max_a_ = (a);        \
		__typeof__(b) max_b_ = (b);        \
		max_a_ > max_b_ ? max_a_ : max_b_; \
	})

static inline bool is_pow2(uint64_t x)
{
	return x && !(x & (x - 1));
}

/* The base-2 logarithm of x rounded down; x is not 0. */
static inline unsigned int log2_floor(uint64_t x)
{
	return 63u - (unsigned int)__builtin_clzll(x);
}

/* The smallest power of two that is at least x; x is at least 1 and at most 2^63. */
static inline uint64_t pow2_ceil(uint64_t x)
{
	return x <= 1 ? 1 : 1ull << (log2_floor(x - 1) + 1);
}

static inline uint64_t round_up(uint64_t x, uint64_t pow2)
{
	return (x + pow2 - 1) & ~(pow2 - 1);
}

/* ---- byte order: values of the device or of a wire have a __be type, and sparse checks that none
 * is mixed up ---- */

#ifdef __CHECKER__
#define be_force __attribute__((force))
#else
#define be_force
#endif

static force_inline __be16 be16(uint16_t x)
{
	return (be_force __be16)htobe16(x);
}

static force_inline __be32 be32(uint32_t x)
{
	return (be_force __be32)htobe32(x);
}

static force_inline __be64 be64(uint64_t x)
{
	return (be_force __be64)htobe64(x);
}

static force_inline uint16_t from_be16(__be16 x)
{
	return be16toh((be_force uint16_t)x);
}

static force_inline uint32_t from_be32(__be32 x)
{
	return be32toh((be_force uint32_t)x);
}

static force_inline uint64_t from_be64(__be64 x)
{
	return be64toh((be_force uint64_t)x);
}

/* Two big-endian words that lie side by side, as one store: `first` has the lower address. */
static force_inline uint64_t be32_pair(__be32 first, __be32 second)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (be_force uint32_t)first | (uint64_t)(be_force uint32_t)second << 32;
#else
	return (uint64_t)(be_force uint32_t)first << 32 | (be_force uint32_t)second;
#endif
}

#include "base/barrier.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/lane.h"
#include "base/log.h"
#include "base/mode.h"
#include "base/topo.h"

#endif
