/* large.c - messages larger than the receiver's bufs: announced, given a place, written there
 *
 * The sender takes the chain apart, so that each segment is a write of its own and comes back by an
 * event; when all have come back it is put together again, and freed or returned. LANDED goes out
 * behind the last write, and a queue carries them out in order.
 */

#include "chan/chan.h"

#include <stdlib.h>

/* ---- sending ---- */

int vbn__large_begin(struct vbn_channel *channel, struct vbn_buf *buf)
{
	struct channel_large body = {.size = be64(vbn_buf_total(buf))};
	struct large_out *out = calloc(1, sizeof(*out));

	if (!out)
		return 0;
	if (!vbn__channel_say(channel, CHANNEL_LARGE, &body, sizeof(body))) {
		free(out);
		return 0;
	}
	out->head = out->at = buf;
	out->size = from_be64(body.size);
	out->flags = buf->flags;
	out->number = ++channel->sent_messages;
	out->n_segments = 1;
	for (struct vbn_buf *at = buf; at->flags & VBN_BUF_CHAIN; at = at->next)
		out->n_segments++;
	channel->out = out;
	channel->flags |= FLAG_LARGE_OUT;
	return 1;
}

/* A segment by itself, that comes back. */
static void detach(struct vbn_buf *buf)
{
	buf->flags = (uint8_t)((buf->flags & ~(VBN_BUF_CHAIN | VBN_BUF_COOKIE)) | VBN_BUF_KEEP);
}

/* The segments from the first one as the chain they were, freed or not. */
static void attach(struct large_out *out)
{
	struct vbn_buf *at = out->head;

	for (uint32_t i = 1; i < out->n_segments; i++, at = at->next)
		at->flags = VBN_BUF_CHAIN;
	at->flags = 0;
	out->head->flags |= out->flags & VBN_BUF_KEEP;
}

static bool stage_segments(struct vbn_channel *channel)
{
	struct large_out *out = channel->out;

	while (out->n_staged < out->n_segments) {
		struct vbn_buf *buf = out->at, *next = buf->next;
		uint8_t flags = buf->flags;
		struct vbn_remote to = out->to;

		to.addr += out->offset;
		detach(buf);
		if (vbn_write(channel->queue, &buf, &to, 1) != 1) {
			buf->flags = flags;
			return false;
		}
		out->offset += buf->len;
		out->n_staged++;
		out->at = next;
	}
	return true;
}

bool vbn__large_stage(struct vbn_channel *channel)
{
	struct large_out *out = channel->out;

	if (!out || out->landed)
		return true;
	if (!stage_segments(channel) || channel_room(channel) <= 0 ||
		!vbn__channel_say(channel, CHANNEL_LANDED, NULL, 0))
		return false;
	out->landed = true;
	if (out->n_back == out->n_staged)
		vbn__channel_tell(channel, NEWS_LARGE);
	return true;
}

/* All segments are back: the message is there, or never will be. */
static void finish(struct vbn_channel *channel, bool is_there, struct sink *sink)
{
	struct large_out *out = channel->out;
	struct vbn_buf *head = out->head;
	struct vbn_channel_event *event;

	attach(out);
	channel->out = NULL;
	channel->flags &= (uint8_t)~FLAG_LARGE_OUT;
	if (is_there)
		group_count(channel->group, COUNT_LARGE_SENT);
	if (channel->state >= CHANNEL_LEAVING || !(out->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))) {
		vbn_buf_free(&head, 1);
	} else {
		event = sink_event(sink, channel, is_there ? VBN_CHANNEL_SENT : VBN_CHANNEL_UNSENT);
		event->buf = head;
		event->cookie = out->flags & VBN_BUF_COOKIE ? head->cookie : NULL;
		event->number = out->number;
	}
	free(out);
}

void vbn__large_returned(
	struct vbn_channel *channel, const struct vbn_event *event, struct sink *sink)
{
	struct large_out *out = channel->out;

	if (!out)
		return;
	out->n_back++;
	out->failed |= event->status != VBN_OK;
	if (channel->state != CHANNEL_OPEN)
		vbn__large_settle(channel, sink);
	else if (event->status == VBN_OK && out->landed)
		vbn__large_settle(channel, sink);
}

void vbn__large_settle(struct vbn_channel *channel, struct sink *sink)
{
	struct large_out *out = channel->out;

	if (out && out->n_back == out->n_staged)
		finish(channel, out->landed && !out->failed, sink);
}

/* What is with the device ends with the queue. */
void vbn__large_free(struct vbn_channel *channel)
{
	struct large_out *out = channel->out;
	struct vbn_buf *at;

	if (!out)
		return;
	at = out->head;
	for (uint32_t i = 0; i < out->n_segments; i++) {
		struct vbn_buf *next = at->next;

		if (i < out->n_back || i >= out->n_staged) {
			at->flags = 0;
			vbn_buf_free(&at, 1);
		}
		at = next;
	}
	channel->out = NULL;
	channel->flags &= (uint8_t)~FLAG_LARGE_OUT;
	free(out);
}

/* ---- receiving ---- */

bool vbn__large_place(struct vbn_channel *channel)
{
	struct channel_place body;
	struct vbn_remote remote;

	if (!channel->in)
		channel->in = vbn__landing_take(&channel->group->landing, channel->in_size);
	if (!channel->in)
		return false; /* until the application releases some */
	remote = vbn__place_remote(channel->in);
	body = (struct channel_place){.addr = be64(remote.addr), .rkey = be32(remote.rkey)};
	return vbn__channel_say(channel, CHANNEL_PLACE, &body, sizeof(body));
}
