/* handshake_fuzz.c - any bytes as what a peer says over TCP: frames, greetings and offers
 *
 * The first byte says how the rest is taken. What is accepted lies within the bytes and within its
 * limits, and packing it gives them back.
 */

#include "chan/handshake.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void demand(bool holds)
{
	if (!holds)
		abort();
}

/* A reason is a sentence that ends and can be seen. */
static void demand_reason(const struct wire_fault *fault)
{
	size_t len = strnlen(fault->why, sizeof(fault->why));

	demand(fault->code > 0 && len > 0 && len < sizeof(fault->why));
	for (size_t i = 0; i < len; i++)
		demand(fault->why[i] >= ' ' && fault->why[i] <= '~');
}

static void stream(const uint8_t *bytes, size_t size)
{
	bool greeted = false;

	while (size >= sizeof(struct frame_header)) {
		struct frame_header header, again;
		struct wire_fault fault;
		enum frame_type type;
		uint32_t length;

		memcpy(&header, bytes, sizeof(header));
		if (vbn__frame_unpack(&header, greeted, 4096, &type, &length, &fault)) {
			demand_reason(&fault);
			return;
		}
		demand(length <= 4096 && (greeted || type == FRAME_HELLO || type == FRAME_REFUSE));
		vbn__frame_pack(&again, type, length);
		demand(!memcmp(&again, &header, sizeof(header)));
		if (length > size - sizeof(header))
			return;
		greeted = true;
		bytes += sizeof(header) + length;
		size -= sizeof(header) + length;
	}
}

static void greeting(const uint8_t *bytes, size_t size)
{
	const struct hello mine = {.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.role = WIRE_LISTENS,
		.max_message = 4096,
		.service_min = 2,
		.service_max = 5,
		.service = "fuzz"};
	struct hello hello;
	struct hello_body body;
	struct wire_fault fault;
	uint16_t version;

	if (vbn__hello_unpack(bytes, (uint32_t)size, &hello, &fault)) {
		demand_reason(&fault);
		return;
	}
	vbn__hello_pack(&hello, &body);
	demand(!memcmp(&body, bytes, sizeof(body)));
	if (vbn__hello_agree(&mine, &hello, &version, &fault))
		demand_reason(&fault);
	else
		demand(version >= 2 && version <= 5 && version <= hello.service_max);
}

static void offer(enum handshake_kind kind, const uint8_t *bytes, size_t size)
{
	static uint8_t again[HANDSHAKE_MAX];
	struct wire_fault fault;
	struct offer offer;

	if (vbn__offer_unpack(bytes, size, kind, &offer, &fault)) {
		demand_reason(&fault);
		return;
	}
	demand(kind != HANDSHAKE_REJECT ||
		(offer.data == bytes + size - offer.data_len &&
			offer.data_len <= HANDSHAKE_MAX_DATA));
	demand(kind == HANDSHAKE_READY || kind == HANDSHAKE_REJECT ||
		(offer.data == bytes + size - offer.data_len &&
			offer.window >= HANDSHAKE_MIN_WINDOW &&
			offer.buf_size >= HANDSHAKE_MIN_BUF));
	demand(vbn__offer_pack(&offer, again) == size);
	demand(!memcmp(again, bytes, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	char text[64];

	if (!size)
		return 0;
	switch (bytes[0] % 6) {
	case 0: stream(bytes + 1, size - 1); break;
	case 1: greeting(bytes + 1, size - 1); break;
	default: offer((enum handshake_kind)(bytes[0] % 6 - 1), bytes + 1, size - 1); break;
	}
	vbn__wire_text(bytes, size, text, sizeof(text));
	demand(strnlen(text, sizeof(text)) < sizeof(text));
	return 0;
}
