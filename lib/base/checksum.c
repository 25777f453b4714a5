/* checksum.c - sums of bytes: 8 at a time, and 128 at a time where the CPU has AVX2 */

#include "base/checksum.h"

enum { VECTOR_FROM = 128 }; /* bytes from which vectors pay */

/* A carry out of 64 bits is one of the ones' complement, too. */
static force_inline uint64_t add_carry(uint64_t sum, uint64_t word)
{
	sum += word;
	return sum + (sum < word);
}

static force_inline uint64_t load64(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

/* Less than 8 bytes, as the beginning of a word that has zeros behind. */
static force_inline uint64_t load_tail(const uint8_t *at, size_t n)
{
	uint64_t word = 0;
	uint8_t *to = (uint8_t *)&word;

	if (n & 4) {
		memcpy(to, at, 4);
		at += 4;
		to += 4;
	}
	if (n & 2) {
		memcpy(to, at, 2);
		at += 2;
		to += 2;
	}
	if (n & 1)
		*to = *at;
	return word;
}

static force_inline uint64_t fold_64(uint64_t sum)
{
	return (sum & 0xffffffff) + (sum >> 32);
}

static force_inline uint64_t sum_words(const uint8_t *at, size_t n, uint64_t sum)
{
	for (; n >= 32; n -= 32, at += 32) {
		sum = add_carry(sum, load64(at));
		sum = add_carry(sum, load64(at + 8));
		sum = add_carry(sum, load64(at + 16));
		sum = add_carry(sum, load64(at + 24));
	}
	for (; n >= 8; n -= 8, at += 8)
		sum = add_carry(sum, load64(at));
	if (n)
		sum = add_carry(sum, load_tail(at, n));
	return fold_64(sum);
}

fast_path uint64_t vbn__csum_bytes_plain(const void *data, size_t n, uint64_t sum)
{
	return sum_words(data, n, sum);
}

#ifdef __x86_64__
#include <immintrin.h>

/* Adds the 32-bit words of 32 bytes to two accumulators of 64-bit ones, which cannot overflow. */
#define VECTOR_ADD(i)                                                                       \
	do {                                                                                \
		const __m256i v =                                                           \
			_mm256_loadu_si256((const __m256i *)(const void *)(at + 32 * (i))); \
                                                                                            \
		low = _mm256_add_epi64(low, _mm256_and_si256(v, mask));                     \
		high = _mm256_add_epi64(high, _mm256_srli_epi64(v, 32));                    \
	} while (0)

static fast_path __attribute__((__target__("avx2"))) uint64_t sum_vectors(
	const uint8_t *at, size_t n, uint64_t sum)
{
	const __m256i mask = _mm256_set1_epi64x(0xffffffff);
	__m256i low = _mm256_setzero_si256(), high = low;
	uint64_t lanes[4];

	for (; n >= 128; n -= 128, at += 128) {
		VECTOR_ADD(0);
		VECTOR_ADD(1);
		VECTOR_ADD(2);
		VECTOR_ADD(3);
	}
	for (; n >= 32; n -= 32, at += 32)
		VECTOR_ADD(0);
	_mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_add_epi64(low, high));
	for (int i = 0; i < 4; i++)
		sum = add_carry(sum, lanes[i]);
	return sum_words(at, n, sum);
}

fast_path uint64_t vbn__csum_bytes(const void *data, size_t n, uint64_t sum)
{
	if (n >= VECTOR_FROM && likely(__builtin_cpu_supports("avx2")))
		return sum_vectors(data, n, sum);
	return sum_words(data, n, sum);
}
#else
fast_path uint64_t vbn__csum_bytes(const void *data, size_t n, uint64_t sum)
{
	return sum_words(data, n, sum);
}
#endif
