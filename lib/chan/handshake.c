/* handshake.c - what the two ends of a channel tell each other: packed, and unpacked from bytes
 * that anyone may have sent */

#include "chan/handshake.h"

#define READY_BYTES 4u

struct reject_body {
	uint8_t kind, zero;
	__be16 data_len;
};
static_assert(sizeof(struct reject_body) == 4, "a rejection has no padding");

static uint32_t pack_data(const struct offer *offer, uint8_t *at)
{
	if (offer->data_len && offer->data != at)
		memcpy(at, offer->data, offer->data_len);
	return offer->data_len;
}

static uint32_t pack_reject(const struct offer *offer, uint8_t *bytes)
{
	struct reject_body body = {
		.kind = HANDSHAKE_REJECT, .data_len = be16((uint16_t)offer->data_len)};

	memcpy(bytes, &body, sizeof(body));
	return (uint32_t)sizeof(body) + pack_data(offer, bytes + sizeof(body));
}

uint32_t vbn__offer_pack(const struct offer *offer, uint8_t bytes[HANDSHAKE_MAX])
{
	struct offer_body body = {
		.kind = (uint8_t)offer->kind,
		.flags = offer->goes_on ? HANDSHAKE_GOES_ON : 0,
		.data_len = be16((uint16_t)offer->data_len),
		.buf_size = be32(offer->buf_size),
		.window = be32(offer->window),
		.max_message = be64(offer->max_message),
		.received = be64(offer->received),
		.address = offer->address,
	};

	if (offer->kind == HANDSHAKE_READY) {
		memset(bytes, 0, READY_BYTES);
		bytes[0] = HANDSHAKE_READY;
		return READY_BYTES;
	}
	if (offer->kind == HANDSHAKE_REJECT)
		return pack_reject(offer, bytes);
	memcpy(body.name, offer->name, sizeof(body.name));
	memcpy(bytes, &body, sizeof(body));
	return (uint32_t)sizeof(body) + pack_data(offer, bytes + sizeof(body));
}

static int unpack_ready(const uint8_t *bytes, size_t len, struct wire_fault *fault)
{
	if (len == READY_BYTES && !(bytes[1] | bytes[2] | bytes[3]))
		return 0;
	return vbn__wire_fault(fault, EPROTO, "the channel's ready message is not one");
}

static int unpack_reject(
	const uint8_t *bytes, size_t len, struct offer *offer, struct wire_fault *fault)
{
	struct reject_body body;

	if (len < sizeof(body))
		return vbn__wire_fault(
			fault, EPROTO, "the rejection has %zu bytes of %zu", len, sizeof(body));
	memcpy(&body, bytes, sizeof(body));
	offer->data = bytes + sizeof(body);
	offer->data_len = from_be16(body.data_len);
	if (!body.zero && offer->data_len == len - sizeof(body) &&
		offer->data_len <= HANDSHAKE_MAX_DATA)
		return 0;
	return vbn__wire_fault(fault, EPROTO,
		"the rejection says %u bytes of data and has %zu, of at most %u", offer->data_len,
		len - sizeof(body), HANDSHAKE_MAX_DATA);
}

static int check_range(
	const char *what, uint64_t value, uint64_t low, uint64_t high, struct wire_fault *fault)
{
	if (value >= low && value <= high)
		return 0;
	return vbn__wire_fault(fault, EPROTO, "%s is %llu and must be %llu to %llu", what,
		(unsigned long long)value, (unsigned long long)low, (unsigned long long)high);
}

int vbn__offer_unpack(const uint8_t *bytes, size_t len, enum handshake_kind expected,
	struct offer *offer, struct wire_fault *fault)
{
	struct offer_body body;

	if (!len || bytes[0] != expected)
		return vbn__wire_fault(fault, EPROTO,
			"a message of kind %u came where the handshake has one of kind %d",
			len ? bytes[0] : 0u, expected);
	*offer = (struct offer){.kind = expected};
	if (expected == HANDSHAKE_READY)
		return unpack_ready(bytes, len, fault);
	if (expected == HANDSHAKE_REJECT)
		return unpack_reject(bytes, len, offer, fault);
	if (len < sizeof(body))
		return vbn__wire_fault(fault, EPROTO, "the channel's offer has %zu bytes of %zu",
			len, sizeof(body));
	memcpy(&body, bytes, sizeof(body));
	offer->goes_on = body.flags & HANDSHAKE_GOES_ON;
	offer->data_len = from_be16(body.data_len);
	offer->buf_size = from_be32(body.buf_size);
	offer->window = from_be32(body.window);
	offer->max_message = from_be64(body.max_message);
	offer->received = from_be64(body.received);
	offer->address = body.address;
	offer->data = bytes + sizeof(body);
	memcpy(offer->name, body.name, sizeof(offer->name));
	if (body.flags & ~HANDSHAKE_GOES_ON || from_be32(body.zero))
		return vbn__wire_fault(fault, EPROTO,
			"the channel's offer has reserved bits set: flags %#x", body.flags);
	if (offer->data_len != len - sizeof(body) || offer->data_len > HANDSHAKE_MAX_DATA)
		return vbn__wire_fault(fault, EPROTO,
			"the channel's offer says %u bytes of data and has %zu, of at most %u",
			offer->data_len, len - sizeof(body), HANDSHAKE_MAX_DATA);
	if (check_range("the size of the peer's bufs", offer->buf_size, HANDSHAKE_MIN_BUF,
		    HANDSHAKE_MAX_BUF, fault))
		return -1;
	return check_range("the peer's window", offer->window, HANDSHAKE_MIN_WINDOW,
		HANDSHAKE_MAX_WINDOW, fault);
}
