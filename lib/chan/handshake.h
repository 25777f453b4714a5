/* handshake.h - what the two ends of a channel tell each other in a session, before its queue
 *
 * The service is "verbena.channel", its version is the channel's (see channel_wire.h). The end that
 * connects sends OFFER, the one that listens ANSWER or refuses, the first READY; then both end the
 * session, and the queue is all there is between them. Numbers are big-endian.
 *
 *     OFFER    0 kind 1, 1 flags (1: the channel goes on, see received), 2 bytes of data (2),
 *              4 largest send that the sender can receive, with its header (4),
 *              8 receives that it keeps for this channel (4), 12 zero (4),
 *              16 largest message that it takes (8),
 *              24 messages that it has received on this channel (8),
 *              32 the channel's name (16): random, the connecting end's choice,
 *              48 where its queue is (48): struct vbn_address, with transport, link and path MTU,
 *              96 data: 0 to 512 bytes of the application's
 *     ANSWER   the same with kind 2, and the name that was offered; data of the application that
 *              listens
 *     READY    0 kind 3, 1 zero (3): its queue can receive
 *     REJECT   0 kind 4, 1 zero (1), 2 bytes of data (2), 4 data: instead of ANSWER, where the
 *              application that listens refuses and has something to say; then the session is refused
 *              with the reason as text. From version 2 on.
 *
 * Pure functions, as wire.h's.
 */
#ifndef VBN_CHAN_HANDSHAKE_H
#define VBN_CHAN_HANDSHAKE_H

#include "chan/wire.h"

#include <verbena/queue.h>

enum handshake_kind { HANDSHAKE_OFFER = 1, HANDSHAKE_ANSWER, HANDSHAKE_READY, HANDSHAKE_REJECT };
enum { HANDSHAKE_GOES_ON = 1 << 0 };

#define HANDSHAKE_MAX_DATA 512 /* VBN_CHANNEL_MAX_DATA */
#define CHANNEL_NAME_BYTES 16

struct offer_body {
	uint8_t kind, flags;
	__be16 data_len;
	__be32 buf_size, window, zero;
	__be64 max_message, received;
	uint8_t name[CHANNEL_NAME_BYTES];
	struct vbn_address address;
};
static_assert(sizeof(struct offer_body) == 96, "an offer has no padding");

#define HANDSHAKE_MAX ((uint32_t)sizeof(struct offer_body) + HANDSHAKE_MAX_DATA)

struct offer {
	enum handshake_kind kind;
	bool goes_on;
	uint32_t buf_size, window;
	uint64_t max_message, received;
	uint8_t name[CHANNEL_NAME_BYTES];
	struct vbn_address address;
	const uint8_t *data;
	uint32_t data_len;
};

/* Smallest values that a channel can work with: a buf holds a header and some bytes, and credits
 * can be returned. */
#define HANDSHAKE_MIN_BUF    64u
#define HANDSHAKE_MAX_BUF    (1u << 30)
#define HANDSHAKE_MIN_WINDOW 16u
#define HANDSHAKE_MAX_WINDOW 32768u

/* Bytes written, at most HANDSHAKE_MAX. READY has a kind alone, REJECT data. */
uint32_t vbn__offer_pack(const struct offer *offer, uint8_t bytes[HANDSHAKE_MAX]);

/* 0 or -1 with the fault; data points into bytes. */
int vbn__offer_unpack(const uint8_t *bytes, size_t len, enum handshake_kind expected,
	struct offer *offer, struct wire_fault *fault);

#endif
