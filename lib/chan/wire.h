/* wire.h - what two ends say over TCP: frames, and the greeting
 *
 * All numbers are big-endian. A stream is frames back to back, both ways:
 *
 *     frame    0 "VBNX", 4 type (1), 5 zero (3), 8 length (4) of the body, 12 body
 *
 * The header of a frame, REFUSE and the first 8 bytes of HELLO are the same in every version.
 *
 *     HELLO    the first frame of each end; the listener's comes when it has read the other one.
 *              0 lowest version of this format (2), 2 highest (2), 4 role (1), 5 zero (3),
 *              8 largest message taken (4), 12 lowest version of the service (2), 14 highest (2),
 *              16 service (24, zeros behind); what a later version puts behind 40 is passed over
 *     MESSAGE  1 byte or more of the service's
 *     REFUSE   1 to 255 bytes of text: why the sender ends the session; the last frame
 *     BYE      no body: the sender ends the session in order; the last frame
 *
 * The highest version that both ends have holds. An end that finds none sends REFUSE.
 *
 * Pure functions, so that they can be fuzzed: bytes in, values or a reason out.
 */
#ifndef VBN_CHAN_WIRE_H
#define VBN_CHAN_WIRE_H

#include "base/base.h"

enum { WIRE_VERSION = 1 };

enum frame_type { FRAME_HELLO = 1, FRAME_MESSAGE, FRAME_REFUSE, FRAME_BYE };

struct frame_header {
	uint8_t magic[4];
	uint8_t type;
	uint8_t zero[3];
	__be32 length;
};
static_assert(sizeof(struct frame_header) == 12, "a frame's header has no padding");

enum wire_role { WIRE_CONNECTS = 1, WIRE_LISTENS = 2 };

struct hello_body {
	__be16 version_min, version_max;
	uint8_t role;
	uint8_t zero[3];
	__be32 max_message;
	__be16 service_min, service_max;
	char service[24];
};
static_assert(sizeof(struct hello_body) == 40, "a greeting has no padding");

#define WIRE_MAX_HELLO  1024 /* of any version */
#define WIRE_MAX_REFUSE 255
#define WIRE_MAX_TAKEN  (64u << 20)

struct hello {
	uint16_t version_min, version_max;
	enum wire_role role;
	uint32_t max_message;
	uint16_t service_min, service_max;
	char service[24];
};

/* What is wrong, for both ends to read. */
struct wire_fault {
	int code; /* EPROTO, EPROTONOSUPPORT, EMSGSIZE */
	char why[WIRE_MAX_REFUSE + 1];
};

int vbn__wire_fault(struct wire_fault *fault, int code, const char *fmt, ...) printf_like(3, 4);

void vbn__frame_pack(struct frame_header *header, enum frame_type type, uint32_t length);

/* `greeted`: HELLO has come. `max_message`: what this end takes. 0 or -1 with the fault. */
int vbn__frame_unpack(const struct frame_header *header, bool greeted, uint32_t max_message,
	enum frame_type *type, uint32_t *length, struct wire_fault *fault);

void vbn__hello_pack(const struct hello *hello, struct hello_body *body);

/* Of the peer's: the format, then against what this end has. */
int vbn__hello_unpack(
	const uint8_t *bytes, uint32_t len, struct hello *hello, struct wire_fault *fault);
int vbn__hello_agree(const struct hello *mine, const struct hello *theirs, uint16_t *version,
	struct wire_fault *fault);

/* A peer's text for a log: at most size - 1 of its bytes, what cannot be seen as '?'. */
void vbn__wire_text(const uint8_t *bytes, size_t len, char *text, size_t size);

#endif
