/* ring.h - what two queues share: a segment each, with a ring of records that the peer writes and its
 * owner reads
 *
 *   segment:  | taken (line 0) | open, sleeps (line 1) | box (lines 4, 6) | … | ring: `size` bytes, a power of two |
 *
 * A record is a header of 8 bytes, what its kind has behind it, and data, rounded up to 8; it never
 * passes the ring's end, before which a PAD fills what is left. Positions count bytes and run freely.
 *
 *   header:   | len: 32 | kind: 8 | 0: 8 | lines of this burst: 16 |
 *
 * A header of 0 is where the reader stops. A burst becomes visible by one store: the writer fills in
 * all of it but the header of its first record, puts a 0 behind its last one, and then stores that
 * first header with release. So there is no index to fetch: the line with the header is the line with
 * the message. What a message costs between the caches, for data of n bytes:
 *
 *   8 + n bytes, packed: a line for 56 bytes, 9/8 lines for 64, a quarter of one for 8
 *   `taken`: a line for each time that the writer runs out of room it knows of, or waits for a write
 *   to be carried out; the reader stores it once a burst
 *
 * The box: a line for both directions. A line that its reader polls has to be fetched twice for each
 * message, by its writer and by its reader; one that the reader answers in comes with the right to
 * write it, and so half as often. So a lone message of up to SHM_BOX_DATA bytes goes into the box,
 * two lines that both ends read and write, where it is this end's turn: it is the turn of who has
 * received the last message of the box. Two that talk by turns need no ring at all.
 *
 *   word:     | sequence: 16 | 0: 8 | len: 8 | ring position: 32 |, then data
 *
 * Up to 56 bytes of data stand behind the word, in one line; more in the other one, which costs about
 * as much again. Between the two is one that is left empty: there are CPUs that fetch lines by pairs,
 * and a look would take the second one away from who is about to write it.
 *
 * The word is stored last. Its position says what was in the ring before the message; the first record
 * behind it is marked (SHM_BEHIND_BOX), so that no message overtakes another. Of the two segments it is
 * the box of the one with the lower nonce, whose end has the first turn.
 *
 * Large data need not pass the ring: a record may name bytes of a zone that its writer has lent to the
 * reader, who copies them from there. They are the writer's again when `taken` is behind the record.
 *
 * Who may do what: the ring is written by the peer, line 0 and 1 by the owner; the peer can write
 * all of it all the same, at any time. So the owner reads nothing of its own two lines; it loads a
 * header once and checks that copy; lengths and places are checked against what it knows itself; data
 * is copied once and looked at afterwards by nobody here. The writer checks that `taken` is between
 * what it was and what has been published.
 */
#ifndef VBN_SHM_RING_H
#define VBN_SHM_RING_H

#include "base/base.h"

enum {
	SHM_HEAD = 1024, /* bytes of a segment before its ring */
	SHM_WORD = 8,    /* records are so aligned */
	SHM_RING_MIN = 16 << 10,
	SHM_RING_MAX = 1 << 20,
	SHM_PIECE = 8192, /* data of one record, at the most */
	SHM_MAX_MESSAGE = 1 << 30,
};

/* The first lines of a segment. */
struct shm_head {
	/* line 0: stored by the owner once a burst */
	uint64_t taken; /* bytes of the ring that it has taken */
	/* line 1: stored by the owner once, unless it sleeps; loaded by the peer with each burst, as one
	 * word */
	uint32_t open cache_aligned; /* 1; 0: the owner takes nothing more */
	uint32_t sleeps; /* 1: the owner sleeps, or is about to; who wakes it stores 0 */
	/* line 4, 6: of who has the turn */
	struct shm_box {
		uint64_t word;
		uint8_t few[CACHE_LINE - sizeof(uint64_t)];
		uint8_t fetched_along[CACHE_LINE]; /* by a look, of some CPUs: nothing is here */
		uint8_t many[CACHE_LINE];
	} box __attribute__((__aligned__(4 * CACHE_LINE)));
};
static_assert(offsetof(struct shm_head, open) == CACHE_LINE &&
		offsetof(struct shm_head, sleeps) == CACHE_LINE + 4 &&
		sizeof(struct shm_head) <= SHM_HEAD,
	"what changes with each burst shares no line with what does not");

/* `open` and `sleeps` of an owner that takes what comes and does not sleep. */
#define SHM_AWAKE ((uint64_t)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 1 : 1ull << 32))

static force_inline bool head_is_awake(const struct shm_head *head)
{
	return load_once((const uint64_t *)(const void *)&head->open) == SHM_AWAKE;
}

enum { SHM_BOX_DATA = CACHE_LINE };

static force_inline uint64_t box_word(uint16_t sequence, uint32_t len, uint64_t pos)
{
	return (uint64_t)sequence << 48 | (uint64_t)len << 32 | (uint32_t)pos;
}

static force_inline uint16_t box_sequence(uint64_t word)
{
	return (uint16_t)(word >> 48);
}

static force_inline uint32_t box_len(uint64_t word)
{
	return (uint32_t)(word >> 32) & 0xffff;
}

enum shm_kind {
	SHM_PAD = 1,  /* len counts the header, too */
	SHM_SEND,     /* a whole message */
	SHM_SEND_IMM, /* with a shm_imm */
	SHM_PART,     /* a piece of a message: with a shm_part */
	SHM_WRITE,    /* with a shm_write: a piece, or all */
	SHM_READ,     /* shm_fetch */
	SHM_FETCH_ADD,
	SHM_CMP_SWAP,
	SHM_ANSWER,   /* to one of the three: shm_answer, and a piece of what was asked for */
	SHM_REFUSED,  /* shm_refused: a one-sided operation that may not be */
	SHM_PART_REF, /* as PART and WRITE, but what they have as data is where it is: shm_refs */
	SHM_WRITE_REF,
	SHM_N_KINDS
};

/* Whether the peer answers with a value. */
static force_inline bool is_fetch(enum shm_kind kind)
{
	return kind == SHM_READ || kind == SHM_FETCH_ADD || kind == SHM_CMP_SWAP;
}

struct shm_imm {
	uint32_t imm, zero;
};

struct shm_part {
	uint32_t total, offset; /* of the message */
	uint32_t imm, has_imm;  /* with the last one */
};

enum { SHM_LAST = 1, SHM_HAS_IMM = 2 };

/* `index` names the operation for its answer. */
struct shm_write {
	uint64_t addr;
	uint32_t rkey, index;
	uint32_t imm, flags;
};

struct shm_fetch {
	uint64_t addr;
	uint32_t rkey, index;
	uint64_t len; /* of a read */
	uint64_t value, compare;
};

struct shm_answer {
	uint32_t index, offset;
};

struct shm_refused {
	uint32_t index, status;
};

/* Bytes of a zone that the writer has lent to the reader (lend.h). */
struct shm_ref {
	uint64_t offset;
	uint32_t slot, len;
};
static_assert(sizeof(struct shm_ref) == 16, "a record's data is a row of them");

static_assert(sizeof(struct shm_imm) % SHM_WORD == 0 && sizeof(struct shm_part) % SHM_WORD == 0 &&
		sizeof(struct shm_write) % SHM_WORD == 0 &&
		sizeof(struct shm_fetch) % SHM_WORD == 0 &&
		sizeof(struct shm_answer) % SHM_WORD == 0 &&
		sizeof(struct shm_refused) % SHM_WORD == 0,
	"records are words");

static force_inline uint64_t record_header(enum shm_kind kind, uint32_t len)
{
	return len | (uint64_t)kind << 32;
}

/* Of a header: a message in the box comes before this record. */
#define SHM_BEHIND_BOX (1ull << 40)

static force_inline uint32_t record_len(uint64_t header)
{
	return (uint32_t)header;
}

/* The kind, and the byte that is 0. */
static force_inline uint32_t record_kind(uint64_t header)
{
	return (uint32_t)(header >> 32) & 0xffff;
}

/* Of the burst that begins with this record. */
static force_inline uint32_t record_lines(uint64_t header)
{
	return (uint32_t)(header >> 48);
}

static force_inline uint32_t record_size(uint32_t extra, uint32_t len)
{
	return (uint32_t)round_up((uint64_t)SHM_WORD + extra + len, SHM_WORD);
}

/* The longest piece of data that goes into one record of a ring. */
static inline uint32_t ring_piece(uint32_t ring_size)
{
	return min((uint32_t)SHM_PIECE, ring_size / 8);
}

static force_inline uint64_t *ring_word(uint8_t *ring, uint32_t mask, uint64_t pos)
{
	return (uint64_t *)(void *)(ring + (pos & mask));
}

/* ---- the writing end ---- */

struct ring_writer {
	uint8_t *ring;
	uint64_t pos;    /* where the next record goes */
	uint64_t end;    /* the peer has taken everything that is a ring before this */
	uint64_t begin;  /* of what is not published */
	uint64_t header; /* of the record there */
	uint32_t mask;
	uint32_t piece;
	bool behind_box; /* what is published next is */
};

/* Room for a record at `pos`, without looking at what the peer has taken; NULL: none, or a PAD has to
 * be written first. */
static force_inline uint8_t *ring_room(const struct ring_writer *w, uint32_t size)
{
	const uint32_t at = (uint32_t)w->pos & w->mask;

	if (unlikely(at + size > w->mask + 1 || w->pos + size + SHM_WORD > w->end))
		return NULL;
	return w->ring + at;
}

/* The record at `pos` is complete but for its header. */
static force_inline void ring_put(struct ring_writer *w, uint32_t size, uint64_t header)
{
	if (unlikely(w->pos == w->begin))
		w->header = header;
	else
		*ring_word(w->ring, w->mask, w->pos) = header;
	w->pos += size;
}

/* Shows all that was put. */
static force_inline void ring_publish(struct ring_writer *w)
{
	const uint64_t lines = min((w->pos - w->begin) / CACHE_LINE, (uint64_t)UINT16_MAX);

	*ring_word(w->ring, w->mask, w->pos) = 0;
	/* Pairs with ring_look(): the burst is there, and what ends it. */
	store_release(ring_word(w->ring, w->mask, w->begin),
		w->header | lines << 48 | (w->behind_box ? SHM_BEHIND_BOX : 0));
	w->begin = w->pos;
	w->behind_box = false;
}

static inline uint64_t ring_unpublished(const struct ring_writer *w)
{
	return w->pos - w->begin;
}

/* More than this is shown before the flush, so that the peer takes it meanwhile. */
static force_inline bool ring_is_much(const struct ring_writer *w)
{
	return w->pos - w->begin > w->mask / 8;
}

/* Takes the peer's word for what it has taken. False: it cannot be. */
static inline bool ring_refresh(struct ring_writer *w, const struct shm_head *peer)
{
	const uint64_t size = (uint64_t)w->mask + 1, before = w->end - size;
	const uint64_t taken = load_acquire(&peer->taken); /* what was read there may be written */

	if (unlikely(taken - before > w->begin - before))
		return false;
	w->end = taken + size;
	return true;
}

/* Fills what is left before the ring's end with a PAD where a record of `size` does not fit there.
 * False: there is no room. */
static force_inline bool ring_pad(struct ring_writer *w, uint32_t size)
{
	const uint32_t left = w->mask + 1 - ((uint32_t)w->pos & w->mask);

	if (size <= left)
		return true;
	if (w->pos + left + SHM_WORD > w->end)
		return false;
	ring_put(w, left, record_header(SHM_PAD, left));
	return true;
}

/* ---- the reading end ---- */

/* The header at a position of the own ring; 0: nothing has come yet. */
static force_inline uint64_t ring_look(uint8_t *ring, uint32_t mask, uint64_t pos)
{
	return load_acquire(ring_word(ring, mask, pos));
}

enum { RING_AHEAD = 4 }; /* lines of a burst that are fetched before they are looked at */

/* Fetches what is to come of the burst that the record at `pos` begins, or is in. */
static force_inline void ring_fetch_ahead(
	const uint8_t *ring, uint32_t mask, uint64_t pos, uint64_t header, uint64_t *burst)
{
	if (header >> 48)
		*burst = pos + (header >> 48) * CACHE_LINE;
	if (pos + RING_AHEAD * CACHE_LINE < *burst)
		__builtin_prefetch(ring + ((pos + RING_AHEAD * CACHE_LINE + SHM_WORD) & mask));
}

#endif
