/* checksum.h - the internet checksum (RFC 1071): sums of bytes, pseudo headers, and what a change of a
 * word does to one that is there (RFC 1624)
 *
 * A sum is the ones' complement sum of 16-bit words as they lie in memory, so it needs no byte order:
 * it is folded to 16 bits, and stored as it is. An odd byte at the end counts as followed by 0. Sums of
 * parts that begin at even places are added; csum_add() does so. A message whose checksum is in it sums
 * up to 0xffff.
 */
#ifndef VBN_CHECKSUM_H
#define VBN_CHECKSUM_H

#include "base/base.h"

/* The sum of n bytes added to `sum`, by vector code from some length on where the CPU has it. Any
 * alignment. The result is below 2^33, for csum_fold() or as a `sum` again. */
uint64_t vbn__csum_bytes(const void *data, size_t n, uint64_t sum);

/* The same word by word, which the vector code is compared with. */
uint64_t vbn__csum_bytes_plain(const void *data, size_t n, uint64_t sum);

/* To 16 bits: 0 only where everything summed was 0. Half is added to half, turned round: what is carried out of
 * the lower one goes into the upper one, which is kept. */
static force_inline uint16_t csum_fold(uint64_t sum)
{
	uint32_t half;

	sum += sum << 32 | sum >> 32;
	half = (uint32_t)(sum >> 32);
	half += half << 16 | half >> 16;
	return (uint16_t)(half >> 16);
}

/* What goes into the field. */
static force_inline uint16_t csum_finish(uint64_t sum)
{
	return (uint16_t)~csum_fold(sum);
}

/* Of UDP, where 0 says that there is none. */
static force_inline uint16_t csum_finish_udp(uint64_t sum)
{
	const uint16_t csum = csum_finish(sum);

	return csum ? csum : 0xffff;
}

/* Two sums. Each is below 2^33, and so stays the result once it is folded this far. */
static force_inline uint64_t csum_add(uint64_t a, uint64_t b)
{
	const uint64_t sum = a + b;

	return (sum & 0xffffffff) + (sum >> 32);
}

/* A part that begins at an odd place of the whole. */
static force_inline uint64_t csum_at_odd(uint64_t sum)
{
	return __builtin_bswap16(csum_fold(sum));
}

/* The sum of a pseudo header: addresses in network order, 4 or 16 bytes each, then the length of what
 * follows and the protocol. */
static force_inline uint64_t csum_pseudo4(
	const void *src, const void *dst, uint8_t protocol, uint16_t len)
{
	uint32_t s, d;

	memcpy(&s, src, sizeof(s));
	memcpy(&d, dst, sizeof(d));
	return (uint64_t)s + d + htobe16(protocol) + htobe16(len);
}

static force_inline uint64_t csum_pseudo6(
	const void *src, const void *dst, uint8_t protocol, uint32_t len)
{
	uint32_t word[8];
	uint64_t sum = (uint64_t)htobe32(len) + htobe32(protocol);

	memcpy(word, src, 16);
	memcpy(word + 4, dst, 16);
	for (int i = 0; i < 8; i++)
		sum += word[i];
	return csum_add(sum, 0);
}

/* An IPv4 header of 20 bytes, without options; its own checksum counts, so it has to be 0 to fill it in,
 * and what is right sums up to 0xffff. */
static force_inline uint64_t csum_ip4_header(const void *header)
{
	uint32_t word[5];

	memcpy(word, header, sizeof(word));
	return (uint64_t)word[0] + word[1] + word[2] + word[3] + word[4];
}

/* What a checksum field becomes when a 16-bit, or an aligned 32-bit, word that it covers changes (RFC
 * 1624, equation 3), all as they lie in memory. */
static force_inline uint16_t csum_replace2(uint16_t csum, uint16_t from, uint16_t to)
{
	return csum_finish((uint64_t)(uint16_t)~csum + (uint16_t)~from + to);
}

static force_inline uint16_t csum_replace4(uint16_t csum, uint32_t from, uint32_t to)
{
	return csum_finish((uint64_t)(uint16_t)~csum + (uint32_t)~from + to);
}

#endif
