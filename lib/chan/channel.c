/* channel.c - a channel's life: its queue, open, broken, failed, closed, given back */

#include "chan/chan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAVE_NS (1000ull * 1000 * 1000)

/* ---- memory ---- */

struct vbn_channel *vbn__channel_new(struct vbn_channel_group *group)
{
	struct vbn_channel *channel =
		aligned_alloc(CACHE_LINE, round_up(sizeof(*channel), CACHE_LINE));

	if (!channel)
		return NULL;
	memset(channel, 0, sizeof(*channel));
	channel->group = group;
	channel->ring = NO_RING;
	channel->next = group->channels;
	channel->at = &group->channels;
	if (channel->next)
		channel->next->at = &channel->next;
	group->channels = channel;
	group->n_channels++;
	vbn__channel_show(channel);
	return channel;
}

/* The window is granted at once: the receives for it are, or will be posted before the peer knows
 * where they are. */
void vbn__channel_start_credits(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;
	struct ring *ring = channel_ring(channel);

	if (ring)
		ring->promised += group->window - (channel->granted - channel->received);
	channel->sent = channel->limit = channel->received = 0;
	channel->granted = channel->told = group->window;
}

static void release(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;

	vbn__counters_remove(&channel->counters);
	vbn__large_free(channel);
	if (channel->in)
		vbn__landing_give(channel->in);
	*channel->at = channel->next;
	if (channel->next)
		channel->next->at = channel->at;
	if (group->ticking == channel)
		group->ticking = channel->next;
	group->n_channels--;
	group->n_gone--;
	free(channel->address);
	free(channel->answer);
	free(channel->error);
	free(channel);
}

/* What it has with others ends at once; its queue is the device's until that has let go of it. */
void vbn__channel_free(struct vbn_channel *channel)
{
	if (channel->state != CHANNEL_GONE) {
		vbn__channel_hang_up(channel, "the other end has closed the channel");
		vbn__channel_unlist(channel);
		channel->news = channel->todo = 0;
		channel->state = CHANNEL_GONE;
		channel->group->n_gone++;
	}
	if (channel->step)
		return;
	if (channel->queue)
		vbn__channel_end_queue(channel);
	else
		release(channel);
}

/* ---- open ---- */

void vbn__channel_opened(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;

	channel->state = CHANNEL_OPEN;
	channel->heard = channel->received;
	channel->heard_at = group->ticks;
	if (channel->goes_on) {
		channel->sent_messages = channel->delivered;
		vbn__channel_tell(channel, NEWS_RESUMED);
		group_count(group, COUNT_RESUMED);
		vbn__counters_exchange(&channel->error, NULL);
	} else {
		vbn__channel_tell(channel, NEWS_OPENED);
		group_count(group, COUNT_OPENED_CHANNELS);
	}
	channel->was_open = true;
	channel->goes_on = false;
	if (channel->flags & FLAG_ENDS)
		vbn__channel_put_off(channel, TODO_END);
}

/* ---- failed, broken ---- */

static void set_error(struct vbn_channel *channel, const char *fmt, va_list args)
{
	char *text;

	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	vbn__counters_exchange(&channel->error, text);
}

/* A large message of the peer's will not come any more. */
static void forget_large_in(struct vbn_channel *channel)
{
	if (channel->in)
		vbn__landing_give(channel->in);
	channel->in = NULL;
	channel->in_size = 0;
	channel->flags &= (uint8_t)~FLAG_LARGE_IN;
}

void vbn__channel_failed(struct vbn_channel *channel, const char *fmt, ...)
{
	va_list args;

	if (channel->state == CHANNEL_FAILED_ || channel->state >= CHANNEL_LEAVING)
		return;
	va_start(args, fmt);
	set_error(channel, fmt, args);
	va_end(args);
	channel->state = CHANNEL_FAILED_;
	channel->todo = 0; /* it stays in the list, with nothing to do */
	channel->news = (uint8_t)(channel->news & ~NEWS_READY);
	vbn__channel_hang_up(channel, "the other end has given the channel up");
	vbn__channel_tell(channel, NEWS_FAILED);
	group_count(channel->group, COUNT_FAILED);
}

void vbn__channel_faulty(struct vbn_channel *channel, enum channel_fault fault)
{
	struct channel_fail body = {.reason = be32(fault)};

	group_count(channel->group, COUNT_FAULTS);
	if (channel->state == CHANNEL_OPEN)
		vbn__channel_say(channel, CHANNEL_FAIL, &body, sizeof(body));
	vbn__channel_failed(channel,
		"channel to %s: the peer breaks its rules: %s; run the same release on both ends, and trust no other peer",
		channel->peer, vbn__channel_fault_text(fault));
}

static void rest(struct vbn_channel *channel, const char *why)
{
	vbn__counters_exchange(&channel->error, strdup(why));
	channel->state = CHANNEL_RESTING;
	channel->resume_until = clock_ns() + channel->group->conf.resume_ns;
	channel->news = (uint8_t)(channel->news & ~NEWS_READY);
	vbn__channel_hang_up(channel, "the connection has failed");
	forget_large_in(channel);
	vbn__channel_put_off(channel, TODO_REST);
}

void vbn__channel_broken(struct vbn_channel *channel, const char *why)
{
	switch (channel->state) {
	case CHANNEL_OPEN:
	case CHANNEL_ANSWERING: break;
	case CHANNEL_RESTING: return; /* it was made to fail */
	default: return;
	}
	/* A peer that has all there is may be gone before its last acknowledgement has come. */
	if (channel->end_sent && channel->flags & FLAG_PEER_ENDED) {
		channel->state = CHANNEL_CLOSED_;
		group_count(channel->group, COUNT_CLOSED);
		vbn__channel_tell(channel, NEWS_CLOSED);
		return;
	}
	if (!channel->group->conf.resume_ns || !channel->was_open || channel->end_sent ||
		channel->flags & FLAG_PEER_ENDED) {
		vbn__channel_failed(channel, "channel to %s: %s", channel->peer, why);
		return;
	}
	if (channel->state == CHANNEL_OPEN)
		vbn__channel_tell(channel, NEWS_BROKEN);
	rest(channel, why);
}

/* ---- closed ---- */

bool vbn__channel_try_close(struct vbn_channel *channel)
{
	if (!channel->end_sent || !(channel->flags & FLAG_PEER_ENDED) || channel->out ||
		vbn_queue_outstanding(channel->queue))
		return false;
	channel->state = CHANNEL_CLOSED_;
	group_count(channel->group, COUNT_CLOSED);
	vbn__channel_tell(channel, NEWS_CLOSED);
	return true;
}

bool vbn__channel_try_leave(struct vbn_channel *channel)
{
	if (!*vbn_queue_error(channel->queue) && vbn_queue_outstanding(channel->queue) &&
		clock_ns() < channel->leave_until)
		return false;
	vbn__channel_free(channel);
	return true;
}

/* Events of it that the caller had no room for are gone with it. */
static void drop_held(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;
	int kept = 0;

	for (int i = 0; i < group->n_held; i++) {
		struct vbn_channel_event *event = &group->held[group->first_held + i];

		if (event->channel == channel)
			vbn_channel_release(event);
		else
			group->held[kept++] = *event;
	}
	group->first_held = 0;
	group->n_held = kept;
}

VBN_API void vbn_channel_close(struct vbn_channel *channel)
{
	struct channel_fail body = {.reason = be32(FAULT_BROKEN_OFF)};

	if (!channel)
		return;
	if (channel == channel->group->asking) { /* no is the answer, and it ends there */
		channel->group->asking = NULL;
		return;
	}
	drop_held(channel);
	if (channel->state != CHANNEL_OPEN ||
		!vbn__channel_say(channel, CHANNEL_FAIL, &body, sizeof(body))) {
		vbn__channel_free(channel);
		return;
	}
	/* Until the peer has been told. */
	vbn__channel_hang_up(channel, NULL);
	channel->state = CHANNEL_LEAVING;
	channel->leave_until = clock_ns() + LEAVE_NS;
	channel->news = 0;
	vbn__channel_put_off(channel, TODO_LEAVE);
}

/* ---- what one asks of it ---- */

VBN_API void vbn_channel_set_context(struct vbn_channel *channel, void *context)
{
	channel->context = context;
}

VBN_API void *vbn_channel_context(const struct vbn_channel *channel)
{
	return channel->context;
}

VBN_API struct vbn_channel_group *vbn_channel_group_of(const struct vbn_channel *channel)
{
	return channel->group;
}

VBN_API const char *vbn_channel_error(const struct vbn_channel *channel)
{
	return channel->error ? channel->error : "";
}

VBN_API const char *vbn_channel_peer(const struct vbn_channel *channel)
{
	return channel->peer;
}

VBN_API uint64_t vbn_channel_max_message(const struct vbn_channel *channel)
{
	return max(channel->peer_max_message, (uint64_t)channel->peer_buf_size);
}

VBN_API uint32_t vbn_channel_buf_size(const struct vbn_channel *channel)
{
	return channel->peer_buf_size;
}
