/* channel_wire.h - what goes over a channel's queue, versions 1 and 2
 *
 * Each send is a header of 16 bytes and what its type has behind it. Numbers are big-endian.
 *
 *     0 type (1), 1 zero (3), 4 bytes behind the header (4), 8 sequence (4), 12 limit (4)
 *
 * Sequence numbers the sends of one connection from 0. Limit is the sender's word to the other end:
 * it may send what has a sequence below this; it never falls, and is at most its window above what
 * has been sent. Both wrap at 2^32. The last CHANNEL_RESERVE sends before the limit are for CREDIT,
 * PLACE, END and FAIL, so that two ends that wait for room can still give each other some.
 *
 *     DATA     a message
 *     CREDIT   nothing: it brings the limit
 *     LARGE    size (8): a message that wants a place to be written to
 *     PLACE    address (8), rkey (4): here it is
 *     LANDED   nothing: it has been written
 *     END      nothing: no DATA, LARGE or LANDED comes behind it
 *     FAIL     reason (4), enum channel_fault: the sender gives the channel up
 *
 * An RDMA write of no bytes is a sign of life.
 */
#ifndef VBN_CHAN_CHANNEL_WIRE_H
#define VBN_CHAN_CHANNEL_WIRE_H

#include "base/base.h"

/* Of what is said in the handshake, too: version 2 has REJECT there. */
enum { CHANNEL_VERSION = 2, CHANNEL_VERSION_MIN = 1, CHANNEL_RESERVE = 6 };

enum channel_type {
	CHANNEL_DATA = 1,
	CHANNEL_CREDIT,
	CHANNEL_LARGE,
	CHANNEL_PLACE,
	CHANNEL_LANDED,
	CHANNEL_END,
	CHANNEL_FAIL,
};

struct channel_header {
	uint8_t type;
	uint8_t zero[3];
	__be32 length, sequence, limit;
};
static_assert(sizeof(struct channel_header) == 16, "a channel's header has no padding");

struct channel_large {
	__be64 size;
};

struct channel_place {
	__be64 addr;
	__be32 rkey;
} __attribute__((__packed__));
static_assert(sizeof(struct channel_place) == 12,
	"a header and a place fit the inline bytes that every queue has");

struct channel_fail {
	__be32 reason;
};

#define CHANNEL_HEADER      ((uint32_t)sizeof(struct channel_header))
#define CHANNEL_MAX_CONTROL 28u /* a header and the longest of what goes with it, but data */

/* Numbers are part of the format. */
enum channel_fault {
	FAULT_NONE,
	FAULT_BROKEN_OFF,
	FAULT_SHORT,
	FAULT_LENGTH,
	FAULT_TYPE,
	FAULT_RESERVED,
	FAULT_SEQUENCE,
	FAULT_OVERRUN,
	FAULT_LIMIT,
	FAULT_AFTER_END,
	FAULT_SIZE,
	FAULT_ORDER,
	FAULT_N,
};

/* "it has sent more than it was allowed to": of the end that is at fault. */
const char *vbn__channel_fault_text(uint32_t fault);

/* What an end knows that a header is held against. */
struct channel_view {
	uint32_t received; /* sends of the peer so far */
	uint32_t granted;  /* the limit that it was told */
	uint32_t sent;     /* own sends so far */
	uint32_t limit;    /* the highest limit that the peer has told */
	uint32_t window;   /* of the peer */
	uint64_t max_message;
	bool ended;    /* the peer's END has come */
	bool large_in; /* its LARGE has come */
	bool placed;   /* and has been given a place */
	bool asked;    /* own LARGE has no place yet */
};

struct channel_message {
	enum channel_type type;
	uint32_t length; /* behind the header */
	uint32_t limit;
	uint64_t size, addr; /* LARGE; PLACE */
	uint32_t rkey, reason;
};

/* Takes apart what has been received. FAULT_NONE, or what is wrong. Pure. */
enum channel_fault vbn__channel_unpack(const uint8_t *bytes, uint64_t len,
	const struct channel_view *view, struct channel_message *message);

/* A header's two halves: type and length, sequence and limit. */
static force_inline __be64 channel_first_half(enum channel_type type, uint32_t length)
{
	return be64((uint64_t)type << 56 | length);
}

static force_inline __be64 channel_second_half(uint32_t sequence, uint32_t limit)
{
	return be64((uint64_t)sequence << 32 | limit);
}

/* Header only; `length` bytes follow. */
static force_inline void channel_pack(
	uint8_t *bytes, enum channel_type type, uint32_t length, uint32_t sequence, uint32_t limit)
{
	const __be64 halves[] = {
		channel_first_half(type, length), channel_second_half(sequence, limit)};

	static_assert(sizeof(halves) == sizeof(struct channel_header), "two halves are the header");
	memcpy(bytes, halves, sizeof(halves));
}

/* A limit neither falls nor promises more than the window. */
static force_inline bool channel_limit_is_good(
	uint32_t limit, uint32_t before, uint32_t sent, uint32_t window)
{
	return limit - before <= window && limit - sent <= window;
}

/* Whether it is DATA that vbn__channel_unpack() would find no fault with, where neither the peer's
 * END nor its LARGE has come: what nearly all is. Then its limit, too. */
static force_inline bool channel_is_next_data(
	const uint8_t *bytes, uint64_t len, const struct channel_view *view, uint32_t *limit)
{
	__be64 halves[2];
	uint64_t second;

	if (len < sizeof(halves))
		return false;
	memcpy(halves, bytes, sizeof(halves));
	second = from_be64(halves[1]);
	*limit = (uint32_t)second;
	return halves[0] ==
		channel_first_half(CHANNEL_DATA, (uint32_t)len - (uint32_t)sizeof(halves)) &&
		second >> 32 == view->received && view->granted != view->received &&
		channel_limit_is_good((uint32_t)second, view->limit, view->sent, view->window);
}

#endif
