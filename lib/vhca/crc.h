/* crc.h - CRC-32 as Ethernet and the ICRC have it */
#ifndef VHCA_CRC_H
#define VHCA_CRC_H

#include <stddef.h>
#include <stdint.h>

#define VHCA_CRC_START 0xffffffffu

/* The remainder after `n` more bytes, not complemented. Any thread. */
uint32_t vhca_crc32(uint32_t state, const void *bytes, size_t n);
/* The same without what only some processors have. */
uint32_t vhca_crc32_portable(uint32_t state, const void *bytes, size_t n);

#endif
