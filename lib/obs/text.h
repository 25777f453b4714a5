/* text.h - bytes of anybody's as text that others can read */
#ifndef VBN_OBS_TEXT_H
#define VBN_OBS_TEXT_H

#include "base/base.h"

/* Bytes of the UTF-8 character that `text` begins with; 0 where it is none. At most `len` bytes are
 * looked at. */
size_t vbn__utf8(const char *text, size_t len);

#endif
