/* mini_ring.h - a completion ring with a device that compresses at random, and a reader that checks
 * what it reads: also built for other CPUs, so with nothing but libc */
#ifndef MINI_RING_H
#define MINI_RING_H

#include "drv/mlx5/mini.h"

enum { RING_MAX = 256 };

struct expected {
	uint32_t len, info;
	bool of_session;
};

/* The device's and the reader's side. Everything at random follows from `seed`. */
struct mini_ring {
	struct cq cq;
	struct session session;
	__be32 record;
	uint8_t *mapping; /* the ring, with a page before and behind that may not be touched */
	size_t mapped;
	uint64_t seed;
	uint32_t written; /* index after the newest entry */
	uint64_t n_sessions, n_completions, n_compressed;
	/* What was written and not read yet. */
	struct expected expected[RING_MAX];
	uint32_t head, tail;
	/* Of sessions: lengths by the slot of their title. */
	uint8_t seen[RING_MAX][RING_MAX + 1];
	char complaint[160]; /* "" while all is well */
};

uint64_t mini_random(struct mini_ring *ring);

/* A ring of 2^log2_count entries of 2^log2_stride bytes, right before the page behind it or right
 * behind the one before it. False: no memory. */
bool mini_ring_open(struct mini_ring *ring, const struct mini_decoder *decoder, uint8_t log2_count,
	uint8_t log2_stride, bool at_end, uint64_t seed);
void mini_ring_close(struct mini_ring *ring);

/* The device writes sessions and plain entries while there is room and luck; the reader takes up to
 * n. The completions read, or -1 with the complaint. */
void mini_ring_write(struct mini_ring *ring);
int mini_ring_read(struct mini_ring *ring, uint32_t n);

/* Every byte of the ring is anything, with titles more likely than they would be. */
void mini_ring_spoil(struct mini_ring *ring);

/* Reads what may be there, up to n, and expects nothing but to stay in the ring. */
uint32_t mini_ring_read_spoilt(struct mini_ring *ring, uint32_t n);

/* So many sessions through rings of all sizes: NULL, or what was wrong. */
const char *mini_check_sessions(const struct mini_decoder *decoder, uint64_t n_sessions);
/* Every length from every slot of a ring of 16. */
const char *mini_check_lengths(const struct mini_decoder *decoder);
const char *mini_check_spoilt(const struct mini_decoder *decoder, uint32_t rounds);
/* Arrays of random bytes, at every alignment that a ring has: both decoders say the same. */
const char *mini_check_equal(
	const struct mini_decoder *one, const struct mini_decoder *other, uint32_t n_arrays);

#endif
