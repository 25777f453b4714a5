/* channel_wire.c - a channel's headers: packed, and unpacked from what any peer may have sent */

#include "chan/channel_wire.h"

const char *vbn__channel_fault_text(uint32_t fault)
{
	static const char *const text[] = {
		[FAULT_NONE] = "no reason",
		[FAULT_BROKEN_OFF] = "it has broken the channel off",
		[FAULT_SHORT] = "it has sent less than a header",
		[FAULT_LENGTH] = "a header's length is not that of what came",
		[FAULT_TYPE] = "a header has an unknown type",
		[FAULT_RESERVED] = "a header's reserved bytes are not zero",
		[FAULT_SEQUENCE] = "a header's sequence is not the next one",
		[FAULT_OVERRUN] = "it has sent more than it was allowed to",
		[FAULT_LIMIT] = "it allows more than its window, or less than it had",
		[FAULT_AFTER_END] = "it has sent a message behind its end",
		[FAULT_SIZE] = "it has announced a message larger than is taken",
		[FAULT_ORDER] = "a large message's steps came out of order",
	};

	static_assert(ARRAY_SIZE(text) == FAULT_N, "each fault has its text");
	return fault < FAULT_N ? text[fault] : "a reason that this version does not know";
}

static uint64_t read_be64(const uint8_t *bytes)
{
	__be64 value;

	memcpy(&value, bytes, sizeof(value));
	return from_be64(value);
}

static uint32_t read_be32(const uint8_t *bytes)
{
	__be32 value;

	memcpy(&value, bytes, sizeof(value));
	return from_be32(value);
}

static enum channel_fault unpack_large(
	const uint8_t *body, const struct channel_view *view, struct channel_message *message)
{
	if (message->length != sizeof(struct channel_large))
		return FAULT_LENGTH;
	message->size = read_be64(body);
	if (view->large_in)
		return FAULT_ORDER;
	return message->size && message->size <= view->max_message ? FAULT_NONE : FAULT_SIZE;
}

static enum channel_fault unpack_place(
	const uint8_t *body, const struct channel_view *view, struct channel_message *message)
{
	if (message->length != sizeof(struct channel_place))
		return FAULT_LENGTH;
	message->addr = read_be64(body);
	message->rkey = read_be32(body + 8);
	return view->asked ? FAULT_NONE : FAULT_ORDER;
}

static enum channel_fault unpack_body(
	const uint8_t *body, const struct channel_view *view, struct channel_message *message)
{
	bool is_message = message->type == CHANNEL_DATA || message->type == CHANNEL_LARGE ||
		message->type == CHANNEL_LANDED;

	if (is_message && view->ended)
		return FAULT_AFTER_END;
	switch (message->type) {
	case CHANNEL_DATA: return view->large_in ? FAULT_ORDER : FAULT_NONE;
	case CHANNEL_CREDIT: return message->length ? FAULT_LENGTH : FAULT_NONE;
	case CHANNEL_LARGE: return unpack_large(body, view, message);
	case CHANNEL_PLACE: return unpack_place(body, view, message);
	case CHANNEL_LANDED:
		if (message->length)
			return FAULT_LENGTH;
		return view->placed ? FAULT_NONE : FAULT_ORDER;
	case CHANNEL_END:
		if (message->length)
			return FAULT_LENGTH;
		return view->ended || view->large_in ? FAULT_ORDER : FAULT_NONE;
	case CHANNEL_FAIL:
		if (message->length != sizeof(struct channel_fail))
			return FAULT_LENGTH;
		message->reason = read_be32(body);
		return FAULT_NONE;
	}
	return FAULT_TYPE;
}

enum channel_fault vbn__channel_unpack(const uint8_t *bytes, uint64_t len,
	const struct channel_view *view, struct channel_message *message)
{
	struct channel_header header;

	if (len < sizeof(header))
		return FAULT_SHORT;
	memcpy(&header, bytes, sizeof(header));
	*message = (struct channel_message){.type = (enum channel_type)header.type,
		.length = from_be32(header.length),
		.limit = from_be32(header.limit)};
	if (header.zero[0] | header.zero[1] | header.zero[2])
		return FAULT_RESERVED;
	if (message->length != len - sizeof(header))
		return FAULT_LENGTH;
	if (from_be32(header.sequence) != view->received)
		return FAULT_SEQUENCE;
	if (view->granted == view->received)
		return FAULT_OVERRUN;
	if (!channel_limit_is_good(message->limit, view->limit, view->sent, view->window))
		return FAULT_LIMIT;
	return unpack_body(bytes + sizeof(header), view, message);
}
