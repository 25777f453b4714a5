/* copy.h - the bytes of a message, copied without a call where they are few */
#ifndef VBN_COPY_H
#define VBN_COPY_H

#include "base/base.h"

enum { COPY_FEW = 128 }; /* bytes that are copied without a call */

/* memcpy() for a few bytes: no call, no byte past either end, and no loop up
 * to 128. The first half and the last half, which overlap. */
static force_inline void copy_few(uint8_t *to, const uint8_t *from, size_t len)
{
	if (len > 32) {
		size_t at = 0;

		for (; unlikely(at + 128 < len); at += 64)
			memcpy(to + at, from + at, 64);
		if (unlikely(len > 64)) {
			memcpy(to + at, from + at, 64);
			memcpy(to + len - 64, from + len - 64, 64);
		} else {
			memcpy(to, from, 32);
			memcpy(to + len - 32, from + len - 32, 32);
		}
	} else if (len >= 16) {
		memcpy(to, from, 16);
		memcpy(to + len - 16, from + len - 16, 16);
	} else if (len >= 8) {
		memcpy(to, from, 8);
		memcpy(to + len - 8, from + len - 8, 8);
	} else if (len >= 4) {
		memcpy(to, from, 4);
		memcpy(to + len - 4, from + len - 4, 4);
	} else {
		for (size_t at = 0; at < len; at++)
			to[at] = from[at];
	}
}

/* A message of any length, most often a small one. */
static force_inline void copy_message(uint8_t *to, const uint8_t *from, size_t len)
{
	if (likely(len <= COPY_FEW))
		copy_few(to, from, len);
	else
		memcpy(to, from, len);
}

#endif
