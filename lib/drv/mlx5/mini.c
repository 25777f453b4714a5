/* mini.c - decoders of arrays of mini CQEs: the scalar reference, and the vector one of this CPU */

#include "drv/mlx5/mini.h"

/* A mini CQE is two words in the device's order, info before length; as one 64-bit word in host
 * order its low half is the length. */
static fast_path void decode_scalar(const void *array, struct completion *completions)
{
	const __be32(*mini)[2] = array;

	for (int i = 0; i < MINI_CQES; i++)
		completions[i] = (struct completion){
			.len = from_be32(mini[i][1]), .info = from_be32(mini[i][0])};
}

const struct mini_decoder vbn__mini_scalar = {"scalar", decode_scalar};

#if defined(__x86_64__)

#include <immintrin.h>

/* Two times four mini CQEs, the bytes of each turned round. */
static __attribute__((target("avx2"))) fast_path void decode_avx2(
	const void *array, struct completion *completions)
{
	const __m256i turn = _mm256_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8,
		7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
	const __m256i *from = array;
	__m256i *to = (void *)completions;

	for (int i = 0; i < 2; i++)
		_mm256_storeu_si256(
			&to[i], _mm256_shuffle_epi8(_mm256_loadu_si256(&from[i]), turn));
}

static const struct mini_decoder avx2 = {"avx2", decode_avx2};

const struct mini_decoder *vbn__mini_decoder(void)
{
	return __builtin_cpu_supports("avx2") ? &avx2 : &vbn__mini_scalar;
}

#elif defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include <arm_neon.h>

/* Four times two mini CQEs, the bytes of each turned round. Every arm64 has NEON. */
static fast_path void decode_neon(const void *array, struct completion *completions)
{
	const uint8_t *from = array;
	uint8_t *to = (void *)completions;

	for (int i = 0; i < 4; i++)
		vst1q_u8(to + 16 * i, vrev64q_u8(vld1q_u8(from + 16 * i)));
}

static const struct mini_decoder neon = {"neon", decode_neon};

const struct mini_decoder *vbn__mini_decoder(void)
{
	return &neon;
}

#else

const struct mini_decoder *vbn__mini_decoder(void)
{
	return &vbn__mini_scalar;
}

#endif
