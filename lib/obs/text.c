/* text.c - telling UTF-8 from other bytes */

#include "obs/text.h"

/* By the first byte: how long, and the least and largest value the second may have. Surrogates,
 * overlong forms and what is above U+10FFFF have none. */
static size_t shape_of(uint8_t first, uint8_t *low, uint8_t *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	if (first < 0xe0)
		return 2;
	*low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	*high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
	return first < 0xf0 ? 3 : 4;
}

size_t vbn__utf8(const char *text, size_t len)
{
	const uint8_t *bytes = (const uint8_t *)text;
	uint8_t low, high;
	size_t n = len ? shape_of(bytes[0], &low, &high) : 0;

	if (!n || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (bytes[i] < low || bytes[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return n;
}
