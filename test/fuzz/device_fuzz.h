/* device_fuzz.h - an emulated device without its engine's thread: the target says when it runs */
#ifndef TEST_FUZZ_DEVICE_H
#define TEST_FUZZ_DEVICE_H

#include "vhca/vhca.h"

/* Once: a device on such a wire, silent. */
void fuzz_device_init(const char *wire);
struct vhca_context *fuzz_context(void);
/* One sweep of the engine. */
void fuzz_sweep(void);
/* Ends the process if it does not hold. */
void fuzz_demand(bool holds);

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What an input is read from; past its end there are zeroes. */
struct fuzz_bytes {
	const uint8_t *at;
	size_t left;
};

static inline uint64_t fuzz_take(struct fuzz_bytes *from, size_t size)
{
	uint64_t value = 0;
	size_t n = min(size, from->left);

	memcpy(&value, from->at, n);
	from->at += n;
	from->left -= n;
	return value;
}

static inline void fuzz_copy(struct fuzz_bytes *from, void *to, size_t size)
{
	size_t n = min(size, from->left);

	memset(to, 0, size);
	memcpy(to, from->at, n);
	from->at += n;
	from->left -= n;
}

#endif
