/* channel_fuzz.c - any bytes as what a channel's peer sends, against any state of this end
 *
 * The first bytes are what this end knows, then come messages, each with a byte of length before it.
 * What is accepted keeps to the rules of channel_wire.h, and packing its header gives it back.
 */

#include "chan/channel_wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct start {
	uint32_t received, granted, sent, limit;
	uint16_t log2_window;
	uint8_t flags;
	uint8_t zero;
	uint32_t max_message;
};

static void demand(bool holds)
{
	if (!holds)
		abort();
}

/* A state that an end can be in. */
static struct channel_view view_of(const struct start *start)
{
	uint32_t window = 16u << (start->log2_window % 12);

	return (struct channel_view){
		.received = start->received,
		.granted = start->received + start->granted % (window + 1),
		.sent = start->sent,
		.limit = start->sent + start->limit % (window + 1),
		.window = window,
		.max_message = start->max_message,
		.ended = start->flags & 1,
		.large_in = (start->flags & 2) && !(start->flags & 1),
		.placed = (start->flags & 6) == 6 && !(start->flags & 1),
		.asked = start->flags & 8,
	};
}

/* What this end does about it. */
static void follow(struct channel_view *view, const struct channel_message *message)
{
	view->received++;
	view->limit = message->limit;
	view->granted = view->received + view->window;
	switch (message->type) {
	case CHANNEL_LARGE: view->large_in = true; break;
	case CHANNEL_LANDED: view->large_in = view->placed = false; break;
	case CHANNEL_PLACE: view->asked = false; break;
	case CHANNEL_END: view->ended = true; break;
	default: break;
	}
}

static void check(const uint8_t *bytes, uint64_t len, const struct channel_view *view,
	const struct channel_message *message)
{
	uint8_t again[CHANNEL_HEADER];
	bool is_message = message->type == CHANNEL_DATA || message->type == CHANNEL_LARGE ||
		message->type == CHANNEL_LANDED;

	demand(len == CHANNEL_HEADER + message->length);
	demand(view->granted != view->received);
	demand(message->limit - view->sent <= view->window);
	demand(message->limit - view->sent >= view->limit - view->sent);
	demand(!is_message || !view->ended);
	demand(message->type != CHANNEL_DATA || !view->large_in);
	demand(message->type != CHANNEL_LANDED || view->placed);
	demand(message->type != CHANNEL_PLACE || view->asked);
	demand(message->type != CHANNEL_LARGE ||
		(message->size && message->size <= view->max_message && !view->large_in));
	channel_pack(again, message->type, message->length, view->received, message->limit);
	demand(!memcmp(again, bytes, sizeof(again)));
}

/* The quick look takes data that has no fault, and nothing else. */
static void demand_quick(const uint8_t *bytes, uint64_t len, const struct channel_view *view,
	enum channel_fault fault, const struct channel_message *message)
{
	uint32_t limit;

	if (view->ended || view->large_in)
		return;
	demand(channel_is_next_data(bytes, len, view, &limit) ==
		(!fault && message->type == CHANNEL_DATA));
	demand(fault || message->type != CHANNEL_DATA || limit == message->limit);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct start start;
	struct channel_view view;

	if (size < sizeof(start))
		return 0;
	memcpy(&start, bytes, sizeof(start));
	view = view_of(&start);
	bytes += sizeof(start);
	size -= sizeof(start);
	while (size) {
		uint64_t len = min((uint64_t)*bytes, (uint64_t)size - 1);
		/* of its own, so that a byte behind it is seen to be read */
		uint8_t *message_bytes = malloc(len ? len : 1);
		struct channel_message message;
		enum channel_fault fault;

		memcpy(message_bytes, bytes + 1, len);
		fault = vbn__channel_unpack(message_bytes, len, &view, &message);
		demand(fault < FAULT_N && vbn__channel_fault_text((uint32_t)fault)[0]);
		demand_quick(message_bytes, len, &view, fault, &message);
		if (!fault) {
			check(message_bytes, len, &view, &message);
			follow(&view, &message);
		}
		free(message_bytes);
		bytes += 1 + len;
		size -= 1 + len;
	}
	return 0;
}
