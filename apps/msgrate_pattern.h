/* msgrate_pattern.h - what --verify writes into a message and what the receiver makes of it
 *
 *     bytes 0-7    sequence number of the stream, from 0
 *     bytes 8-15   the stream's number (high half), a check of both (low half)
 *     bytes 16-    words that follow from both, each another one
 *
 * All little-endian, so that two ends of different machines agree. Any altered byte makes the
 * message corrupt: the first sixteen are covered by the check, the rest by comparison.
 */
#ifndef MSGRATE_PATTERN_H
#define MSGRATE_PATTERN_H

#include "cmd.h"

#include <endian.h>
#include <stdlib.h>

#define PATTERN_MIN_SIZE 16u
#define PATTERN_STEP     0x9e3779b97f4a7c15u /* odd, so that words repeat after 2^64 only */

static force_inline uint64_t pattern_seed(uint64_t sequence, uint32_t stream)
{
	uint64_t x = (sequence + stream * 0xd6e8feb86659fd93u) * 0xff51afd7ed558ccdu;

	x ^= x >> 32;
	x *= 0xc4ceb9fe1a85ec53u;
	return x ^ x >> 29;
}

static force_inline uint64_t pattern_word(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return le64toh(word);
}

static force_inline void pattern_put(uint8_t *at, uint64_t word)
{
	word = htole64(word);
	memcpy(at, &word, sizeof(word));
}

static force_inline void pattern_fill(
	uint8_t *data, size_t size, uint64_t sequence, uint32_t stream)
{
	uint64_t word = pattern_seed(sequence, stream);
	size_t i;

	pattern_put(data, sequence);
	pattern_put(data + 8, (uint64_t)stream << 32 | (uint32_t)word);
	for (i = 16; i + 8 <= size; i += 8)
		pattern_put(data + i, word += PATTERN_STEP);
	if (i < size) {
		word = htole64(word + PATTERN_STEP);
		memcpy(data + i, &word, size - i);
	}
}

/* Whether this is a whole message of the stream; if so *sequence is its number. */
static force_inline bool pattern_check(
	const uint8_t *data, size_t size, uint32_t stream, uint64_t *sequence)
{
	uint64_t word, wrong, last = 0;
	size_t i;

	*sequence = pattern_word(data);
	word = pattern_seed(*sequence, stream);
	wrong = pattern_word(data + 8) ^ ((uint64_t)stream << 32 | (uint32_t)word);
	for (i = 16; i + 8 <= size; i += 8)
		wrong |= pattern_word(data + i) ^ (word += PATTERN_STEP);
	if (i < size) {
		memcpy(&last, data + i, size - i);
		word = (word + PATTERN_STEP) & ((1ull << 8 * (size - i)) - 1);
		wrong |= le64toh(last) ^ word;
	}
	return !wrong;
}

/* ---- which sequence numbers of a stream have come ----
 *
 * `next` is the highest that came plus one; behind it a window of bits says which of the earlier
 * ones came. One that is behind `next` is a duplicate where its bit is set, else reordered. What is
 * older than the window counts as a duplicate: the window is wider than all that can be in flight,
 * so nothing that old can be on its way.
 */
struct track {
	uint64_t next;
	uint64_t *seen;
	uint64_t mask; /* of bits in the window; a power of two less one */
	uint64_t corrupt, duplicate, reordered;
};

static inline int track_init(struct track *track, uint64_t in_flight)
{
	uint64_t bits = 4096;

	while (bits < 2 * in_flight)
		bits *= 2;
	track->seen = calloc(bits / 64, sizeof(*track->seen));
	track->mask = bits - 1;
	return track->seen ? 0 : -ENOMEM;
}

static force_inline void track_set(struct track *track, uint64_t sequence)
{
	track->seen[(sequence & track->mask) / 64] |= 1ull << sequence % 64;
}

/* Entering a word of the window forgets the 64 numbers that stood there a window ago. */
static force_inline void track_advance(struct track *track)
{
	if (track->next % 64 == 0)
		track->seen[(track->next & track->mask) / 64] = 0;
	track->next++;
}

static void __attribute__((cold, noinline, unused))
track_out_of_order(struct track *track, uint64_t sequence)
{
	uint64_t age = track->next - sequence;

	if (sequence > track->next) {
		/* A gap: its numbers are lost or late. A gap wider than the window needs no more
		 * than the window. */
		if (sequence - track->next > track->mask) {
			memset(track->seen, 0, (track->mask + 1) / 8);
			track->next = sequence;
		}
		while (track->next <= sequence)
			track_advance(track);
		track_set(track, sequence);
	} else if (age > track->mask - 63 ||
		track->seen[(sequence & track->mask) / 64] >> sequence % 64 & 1) {
		track->duplicate++;
	} else {
		track->reordered++;
		track_set(track, sequence);
	}
}

static force_inline void track_sequence(struct track *track, uint64_t sequence)
{
	if (likely(sequence == track->next)) {
		track_advance(track);
		track_set(track, sequence);
	} else {
		track_out_of_order(track, sequence);
	}
}

static force_inline void track_message(
	struct track *track, const uint8_t *data, size_t length, size_t size, uint32_t stream)
{
	uint64_t sequence;

	if (unlikely(length != size || !pattern_check(data, size, stream, &sequence)))
		track->corrupt++;
	else
		track_sequence(track, sequence);
}

#endif
