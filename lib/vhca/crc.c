/* crc.c - CRC-32 of the reflected polynomial 0xedb88320: eight bytes a step by tables, or
 * sixty-four by carry-less multiplication
 */

#include "vhca/crc.h"

#include "base/base.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { POLYNOMIAL_BITS = 8, SLICES = 8 };

static uint32_t table[SLICES][256];
static bool multiplies;

/* Before any device, so that no user of the tables has to ask whether they are there. */
__attribute__((constructor)) static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t state = i;

		for (int bit = 0; bit < POLYNOMIAL_BITS; bit++)
			state = state >> 1 ^ (state & 1 ? 0xedb88320u : 0);
		table[0][i] = state;
	}
	for (int slice = 1; slice < SLICES; slice++)
		for (uint32_t i = 0; i < 256; i++)
			table[slice][i] =
				table[slice - 1][i] >> 8 ^ table[0][table[slice - 1][i] & 0xff];
#if defined(__x86_64__)
	__builtin_cpu_init();
	multiplies = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static force_inline uint64_t load_le64(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return le64toh(word);
}

uint32_t vhca_crc32_portable(uint32_t state, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	for (; n >= 8; n -= 8, at += 8) {
		uint64_t word = load_le64(at) ^ state;

		state = 0;
		for (int slice = 0; slice < SLICES; slice++)
			state ^= table[SLICES - 1 - slice][word >> 8 * slice & 0xff];
	}
	for (; n; n--, at++)
		state = state >> 8 ^ table[0][(state ^ *at) & 0xff];
	return state;
}

#if defined(__x86_64__)

#define fold_target __attribute__((target("pclmul,sse4.1")))

/* What lies 128 bits (or four times that) before the end of `with` is as much as its product with
 * these powers of x; the remainder does not change. */
fold_target static inline __m128i fold(__m128i from, __m128i with, __m128i powers)
{
	__m128i low = _mm_clmulepi64_si128(from, powers, 0x00);
	__m128i high = _mm_clmulepi64_si128(from, powers, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), with);
}

static inline __m128i load128(const uint8_t *bytes)
{
	return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

/* `n` is at least 64. */
fold_target static uint32_t crc32_multiplied(uint32_t state, const uint8_t *at, size_t n)
{
	const __m128i by_512 = _mm_set_epi64x(0x1c6e41596ll, 0x154442bd4ll);
	const __m128i by_128 = _mm_set_epi64x(0x0ccaa009ell, 0x1751997d0ll);
	__m128i lane[4];
	uint8_t rest[16];

	for (size_t i = 0; i < 4; i++)
		lane[i] = load128(at + 16 * i);
	lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)state));
	for (at += 64, n -= 64; n >= 64; at += 64, n -= 64)
		for (size_t i = 0; i < 4; i++)
			lane[i] = fold(lane[i], load128(at + 16 * i), by_512);
	for (size_t i = 1; i < 4; i++)
		lane[0] = fold(lane[0], lane[i], by_128);
	for (; n >= 16; at += 16, n -= 16)
		lane[0] = fold(lane[0], load128(at), by_128);
	_mm_storeu_si128((__m128i *)(void *)rest, lane[0]);
	state = vhca_crc32_portable(0, rest, sizeof(rest));
	return vhca_crc32_portable(state, at, n);
}

#endif

uint32_t vhca_crc32(uint32_t state, const void *bytes, size_t n)
{
#if defined(__x86_64__)
	if (likely(multiplies) && n >= 64)
		return crc32_multiplied(state, bytes, n);
#endif
	return vhca_crc32_portable(state, bytes, n);
}
