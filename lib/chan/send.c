/* send.c - messages out: a header in front of each, in its headroom where there is some */

#include "chan/chan.h"

#define BURST 32

/* A message that is under way to a place holds back those behind it, and nothing else. */
static force_inline bool may_send(const struct vbn_channel *channel)
{
	return channel->state == CHANNEL_OPEN && !(channel->flags & FLAG_ENDS);
}

static int refusal(const struct vbn_channel *channel)
{
	switch (channel->state) {
	case CHANNEL_DIALING:
	case CHANNEL_ANSWERING:
	case CHANNEL_RESTING: return channel->flags & FLAG_ENDS ? -EPIPE : -ENOTCONN;
	default: return -EPIPE;
	}
}

/* ---- control messages ---- */

bool vbn__channel_say(
	struct vbn_channel *channel, enum channel_type type, const void *body, uint32_t len)
{
	uint8_t bytes[CHANNEL_MAX_CONTROL];

	if (channel->limit == channel->sent)
		return false;
	channel_pack(bytes, type, len, channel->sent, channel->granted);
	if (len)
		memcpy(bytes + CHANNEL_HEADER, body, len);
	if (vbn_send_inline(channel->queue, bytes, CHANNEL_HEADER + len) != 1)
		return false;
	channel->sent++;
	channel->told = channel->granted;
	return true;
}

/* ---- the header in front of a buf's data ---- */

static force_inline void put_header(
	const struct vbn_channel *channel, struct vbn_buf *buf, uint32_t sequence)
{
	buf->data -= CHANNEL_HEADER;
	channel_pack(buf->data, CHANNEL_DATA, buf->len, sequence, channel->granted);
	buf->len += CHANNEL_HEADER;
}

static void take_header_off(struct vbn_buf *buf)
{
	buf->data += CHANNEL_HEADER;
	buf->len -= CHANNEL_HEADER;
}

static noinline void take_headers_off(struct vbn_buf **bufs, int first, int end)
{
	for (int i = first; i < end; i++)
		take_header_off(bufs[i]);
}

static force_inline bool is_plain(const struct vbn_channel *channel, struct vbn_buf *buf)
{
	return !(buf->flags & VBN_BUF_CHAIN) && vbn_buf_headroom(buf) >= CHANNEL_HEADER &&
		buf->len <= channel->peer_buf_size;
}

/* As many of the first ones as are plain, in one go. */
static force_inline int send_plain(struct vbn_channel *channel, struct vbn_buf **bufs, int n)
{
	int ready = 0, taken;

	n = min(n, BURST);
	while (ready < n && is_plain(channel, bufs[ready])) {
		put_header(channel, bufs[ready], channel->sent + (uint32_t)ready);
		bufs[ready]->peer[0] = channel->sent_messages + (uint64_t)ready + 1;
		ready++;
	}
	if (!ready)
		return 0;
	taken = vbn_send(channel->queue, bufs, ready);
	if (unlikely(taken != ready))
		take_headers_off(bufs, max(taken, 0), ready);
	if (likely(taken > 0)) {
		channel->sent += (uint32_t)taken;
		channel->sent_messages += (uint64_t)taken;
		channel->told = channel->granted;
	}
	return taken;
}

/* A chain, or one without headroom: the header is a buf of its own before it. It comes back where
 * the message has to. */
static int send_chained(struct vbn_channel *channel, struct vbn_buf *buf)
{
	struct vbn_buf *header;
	int taken;

	if (vbn_buf_alloc(channel->group->header_pool, &header, 1) < 0)
		return 0;
	channel_pack(header->data, CHANNEL_DATA, (uint32_t)vbn_buf_total(buf), channel->sent,
		channel->granted);
	header->len = CHANNEL_HEADER;
	header->peer[0] = channel->sent_messages + 1;
	if (buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))
		header->flags |= VBN_BUF_KEEP;
	vbn_buf_append(header, buf);
	taken = vbn_send(channel->queue, &header, 1);
	if (taken == 1) {
		channel->sent++;
		channel->sent_messages++;
		channel->told = channel->granted;
		return 1;
	}
	header->flags = 0;
	vbn_buf_free(&header, 1);
	return taken;
}

static int send_any(struct vbn_channel *channel, struct vbn_buf *buf)
{
	uint64_t total = vbn_buf_total(buf);

	if (total > channel->peer_max_message && total > channel->peer_buf_size)
		return -EMSGSIZE;
	return total > channel->peer_buf_size ? vbn__large_begin(channel, buf)
					      : send_chained(channel, buf);
}

/* Whatever they are, behind those that have been taken already. */
static noinline int send_others(
	struct vbn_channel *channel, struct vbn_buf **bufs, int taken, int n)
{
	int ret = 0, room;

	if (!may_send(channel))
		return refusal(channel);
	room = min(n, channel_room(channel) + taken);
	while (taken < room && !channel->out) {
		ret = send_plain(channel, bufs + taken, room - taken);
		if (!ret)
			ret = is_plain(channel, bufs[taken]) ? 0 : send_any(channel, bufs[taken]);
		if (ret <= 0)
			break;
		taken += ret;
	}
	if (taken < n && ret >= 0)
		vbn__channel_put_off(channel, TODO_READY);
	/* The queue has failed, and the next poll will tell. */
	if (ret == -EPIPE && channel->group->conf.resume_ns)
		ret = -ENOTCONN;
	return taken || ret >= 0 ? taken : ret;
}

VBN_API fast_path int vbn_channel_send(struct vbn_channel *channel, struct vbn_buf **bufs, int n)
{
	int taken = 0;

	if (likely(may_send(channel) && !(channel->flags & FLAG_LARGE_OUT) &&
		    n <= channel_room(channel))) {
		taken = max(
			n == 1 ? send_plain(channel, bufs, 1) : send_plain(channel, bufs, n), 0);
		if (likely(taken == n))
			return n;
	}
	return send_others(channel, bufs, taken, n);
}

VBN_API void vbn_channel_end(struct vbn_channel *channel)
{
	if (channel->flags & FLAG_ENDS)
		return;
	channel->flags |= FLAG_ENDS;
	channel->todo = (uint8_t)(channel->todo & ~TODO_READY);
	vbn__channel_put_off(channel, TODO_END);
}

/* ---- bufs that come back ---- */

static void emit_returned(struct vbn_channel *channel, struct vbn_buf *buf, void *cookie,
	uint64_t number, uint8_t status, struct sink *sink)
{
	struct vbn_channel_event *event;

	if (channel->state >= CHANNEL_LEAVING) {
		vbn_buf_free(&buf, 1);
		return;
	}
	event = sink_event(sink, channel, status == VBN_OK ? VBN_CHANNEL_SENT : VBN_CHANNEL_UNSENT);
	event->buf = buf;
	event->cookie = cookie;
	event->number = number;
}

void vbn__channel_returned(
	struct vbn_channel *channel, const struct vbn_event *event, struct sink *sink)
{
	struct vbn_buf *buf = event->buf, *header = buf;
	uint64_t number = buf->peer[0];
	void *cookie = event->cookie;

	if (event->op == VBN_OP_WRITE) {
		vbn__large_returned(channel, event, sink);
		return;
	}
	if (header->pool != channel->group->header_pool) {
		take_header_off(buf);
	} else {
		buf = header->next;
		header->flags = 0;
		vbn_buf_free(&header, 1);
		cookie = buf->flags & VBN_BUF_COOKIE ? buf->cookie : NULL;
		/* as the queue does with those that it returns */
		buf->flags &= (uint8_t)~VBN_BUF_COOKIE;
	}
	emit_returned(channel, buf, cookie, number, event->status, sink);
}
