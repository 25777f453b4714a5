/* receive.c - what the queues tell, messages before all: each header against what is known of the
 * peer, then what it means */

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
		.ended = channel->flags & FLAG_PEER_ENDED,
		.large_in = channel->in_size != 0,
		.placed = is_placed(channel),
		.asked = channel->out && !channel->out->placed,
	};
}

/* The ring has a receive less, and the peer a send less. */
static void account(struct vbn_channel *channel)
{
	channel->received++;
	channel_wants(channel);
}

static force_inline void on_data(
	struct vbn_channel *channel, struct vbn_buf *buf, struct sink *sink)
{
	struct vbn_channel_event *event = sink_next(sink, channel->group);

	buf->data += CHANNEL_HEADER;
	buf->len -= CHANNEL_HEADER;
	*event = (struct vbn_channel_event){.channel = channel,
		.buf = buf,
		.data = buf->data,
		.len = buf->len,
		.number = ++channel->received_messages,
		.op = VBN_CHANNEL_MESSAGE};
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
	channel->flags &= (uint8_t)~FLAG_LARGE_IN;
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
	channel->flags |= FLAG_PEER_ENDED;
	vbn__channel_tell(channel, NEWS_ENDED);
	vbn__channel_put_off(channel, TODO_CLOSE);
}

static void on_control(
	struct vbn_channel *channel, const struct channel_message *message, struct sink *sink)
{
	switch (message->type) {
	case CHANNEL_LARGE:
		channel->in_size = message->size;
		channel->flags |= FLAG_LARGE_IN;
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
	if (channel->state == CHANNEL_ANSWERING)
		return !channel->step; /* else the peer cannot know of this end yet */
	return channel->state == CHANNEL_OPEN || channel->state == CHANNEL_RESTING;
}

static void drop(struct vbn_channel *channel, struct vbn_buf *buf)
{
	struct ring *ring = channel_ring(channel);

	channel->received++;
	if (ring)
		ring->promised--;
	group_count(channel->group, COUNT_DROPPED);
	vbn_buf_free(&buf, 1);
}

/* Anything but the next message of a channel that is open and has no news to give first. */
static noinline void received_other(
	struct vbn_channel *channel, struct vbn_buf *buf, struct sink *sink)
{
	struct channel_view view;
	struct channel_message message;
	enum channel_fault fault;

	if (!listens(channel)) {
		drop(channel, buf);
		return;
	}
	/* What the peer sends says that it is ready, before its session has. */
	if (channel->state == CHANNEL_ANSWERING)
		vbn__channel_opened(channel);
	if (channel->news)
		vbn__channel_give_news(channel, sink);
	view = view_of(channel);
	fault = vbn__channel_unpack(buf->data, buf->len, &view, &message);
	account(channel);
	if (fault) {
		vbn_buf_free(&buf, 1);
		vbn__channel_faulty(channel, fault);
		return;
	}
	channel->limit = message.limit;
	if (message.type == CHANNEL_DATA) {
		on_data(channel, buf, sink);
		return;
	}
	vbn_buf_free(&buf, 1);
	on_control(channel, &message, sink);
}

static force_inline bool is_next_message(
	const struct vbn_channel *channel, const struct vbn_buf *buf, uint32_t *limit)
{
	const struct channel_view view = {.received = channel->received,
		.granted = channel->told,
		.sent = channel->sent,
		.limit = channel->limit,
		.window = channel->peer_window};

	return channel->state == CHANNEL_OPEN && !channel->news &&
		!(channel->flags & (FLAG_PEER_ENDED | FLAG_LARGE_IN)) &&
		channel_is_next_data(buf->data, buf->len, &view, limit);
}

static force_inline void received(
	struct vbn_channel *channel, struct vbn_buf *buf, struct sink *sink)
{
	uint32_t limit;

	if (unlikely(!is_next_message(channel, buf, &limit))) {
		received_other(channel, buf, sink);
		return;
	}
	channel->limit = limit;
	channel->received++;
	on_data(channel, buf, sink);
	channel_wants(channel);
}

/* ---- events of queues ---- */

static noinline void translate_other(
	struct vbn_channel *channel, const struct vbn_event *event, struct sink *sink)
{
	switch (event->op) {
	case VBN_OP_FAILED: vbn__channel_broken(channel, vbn_queue_error(event->queue)); break;
	case VBN_OP_SEND:
	case VBN_OP_WRITE: vbn__channel_returned(channel, event, sink); break;
	default:
		if (event->buf)
			vbn_buf_free((struct vbn_buf **)(uintptr_t)&event->buf, 1);
		vbn__channel_faulty(channel, FAULT_TYPE);
		break;
	}
}

static force_inline void translate(const struct vbn_event *event, struct sink *sink)
{
	struct vbn_channel *channel;

	if (unlikely(!event->queue))
		return; /* an SRQ's */
	channel = event->queue->context;
	if (likely(event->op == VBN_OP_RECV))
		received(channel, event->buf, sink);
	else
		translate_other(channel, event, sink);
	if (unlikely(channel->news))
		vbn__channel_give_news(channel, sink);
}

/* What stands in the list of news goes first: it is older than what a queue has to say. */
static void give_news_of_one(struct vbn_channel_group *group, struct sink *sink)
{
	struct vbn_channel *channel = group->news;

	group->news = channel->next_news;
	channel->in_news = false;
	vbn__channel_give_news(channel, sink);
	if (channel->news)
		vbn__channel_tell(channel, (enum channel_news)channel->news);
}

fast_path bool vbn__group_collect(struct vbn_channel_group *group, struct sink *sink)
{
	struct vbn_event events[POLL_BATCH];
	int room, got;

	if (unlikely(group->news)) {
		give_news_of_one(group, sink);
		return true;
	}
	room = min(sink->room - sink->n, (int)POLL_BATCH);
	got = vbn__queues_poll(group->queues, events, room);
	if (!got)
		return false;
	vbn__group_look_at_rings(group);
	for (int i = 0; i < got; i++)
		translate(&events[i], sink);
	return got == room || group->news;
}
