/* receive.c - messages in: each header against what is known of the peer, then what it means */

#include "chan/chan.h"

/* A place has been promised once PLACE is out, which is when it is not put off any more. */
static bool is_placed(const struct vbn_channel *channel)
{
	return channel->in && !(channel->todo & TODO_PLACE);
}

static struct channel_view view_of(const struct vbn_channel *channel)
{
	return (struct channel_view){
		.received = channel->received,
		.granted = channel->told,
		.sent = channel->sent,
		.limit = channel->limit,
		.window = channel->peer_window,
		.max_message = channel->group->conf.max_message,
		.ended = channel->peer_ended,
		.large_in = channel->in_size != 0,
		.placed = is_placed(channel),
		.asked = channel->out && !channel->out->placed,
	};
}

/* The ring has a receive less, and the peer a send less. */
static void account(struct vbn_channel *channel)
{
	channel->received++;
	if (channel->ring)
		channel->ring->promised--;
	vbn__channel_is_hungry(channel);
}

static void on_data(struct vbn_channel *channel, struct vbn_buf *buf, struct sink *sink)
{
	struct vbn_channel_event *event = sink_event(sink, channel, VBN_CHANNEL_MESSAGE);

	buf->data += CHANNEL_HEADER;
	buf->len -= CHANNEL_HEADER;
	event->buf = buf;
	event->data = buf->data;
	event->len = buf->len;
	event->number = ++channel->received_messages;
}

static void on_landed(struct vbn_channel *channel, struct sink *sink)
{
	struct vbn_channel_event *event = sink_event(sink, channel, VBN_CHANNEL_MESSAGE);

	event->place = channel->in;
	event->data = vbn__place_data(channel->in);
	event->len = channel->in_size;
	event->number = ++channel->received_messages;
	channel->in = NULL;
	channel->in_size = 0;
	group_count(channel->group, COUNT_LARGE_RECEIVED);
}

static void on_place(struct vbn_channel *channel, const struct channel_message *message)
{
	channel->out->to = (struct vbn_remote){message->addr, message->rkey};
	channel->out->placed = true;
	vbn__channel_put_off(channel, TODO_LARGE);
}

static void on_end(struct vbn_channel *channel)
{
	channel->peer_ended = true;
	vbn__channel_tell(channel, NEWS_ENDED);
	vbn__channel_put_off(channel, TODO_CLOSE);
}

static void on_control(
	struct vbn_channel *channel, const struct channel_message *message, struct sink *sink)
{
	switch (message->type) {
	case CHANNEL_LARGE:
		channel->in_size = message->size;
		vbn__channel_put_off(channel, TODO_PLACE);
		return;
	case CHANNEL_PLACE: on_place(channel, message); return;
	case CHANNEL_LANDED: on_landed(channel, sink); return;
	case CHANNEL_END: on_end(channel); return;
	case CHANNEL_FAIL:
		vbn__channel_failed(channel, "channel to %s: the peer has given it up: %s%s",
			channel->peer,
			message->reason == FAULT_BROKEN_OFF ? "" : "it says of this end that ",
			vbn__channel_fault_text(message->reason));
		return;
	case CHANNEL_DATA:
	case CHANNEL_CREDIT: return;
	}
}

static bool listens(const struct vbn_channel *channel)
{
	return channel->state == CHANNEL_OPEN || channel->state == CHANNEL_ANSWERING ||
		channel->state == CHANNEL_RESTING;
}

void vbn__channel_received(struct vbn_channel *channel, struct vbn_buf *buf, struct sink *sink)
{
	struct channel_view view;
	struct channel_message message;
	enum channel_fault fault;

	if (unlikely(!listens(channel))) {
		account(channel);
		group_count(channel->group, COUNT_DROPPED);
		vbn_buf_free(&buf, 1);
		return;
	}
	/* What the peer sends says that it is ready, before its session has. */
	if (unlikely(channel->state == CHANNEL_ANSWERING))
		vbn__channel_opened(channel);
	if (unlikely(channel->news))
		vbn__channel_give_news(channel, sink);
	view = view_of(channel);
	fault = vbn__channel_unpack(buf->data, buf->len, &view, &message);
	account(channel);
	if (unlikely(fault)) {
		vbn_buf_free(&buf, 1);
		vbn__channel_faulty(channel, fault);
		return;
	}
	channel->limit = message.limit;
	if (likely(message.type == CHANNEL_DATA)) {
		on_data(channel, buf, sink);
		return;
	}
	vbn_buf_free(&buf, 1);
	on_control(channel, &message, sink);
}
