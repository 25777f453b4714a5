/* credit.c - who may send how much; what is put off until there is room; news of channels
 *
 * A peer may send as much as has been granted, and never more is granted than receives are posted:
 *
 *     sum over the channels of a ring of (granted - received)  <=  receives posted in it
 *
 * So a pool that runs dry slows peers down, and no send ever finds a ring empty. What was granted
 * is told with any header that goes out, and by CREDIT where none does for `credit_batch` of it.
 */

#include "chan/chan.h"

/* ---- lists: a channel is in each at most once, and out of it when it is freed ---- */

void vbn__channel_put_off(struct vbn_channel *channel, enum channel_todo todo)
{
	channel->todo |= (uint8_t)todo;
	if (channel->in_todo)
		return;
	channel->in_todo = true;
	channel->next_todo = channel->group->todo;
	channel->group->todo = channel;
}

void vbn__channel_tell(struct vbn_channel *channel, enum channel_news news)
{
	channel->news |= (uint8_t)news;
	if (channel->in_news)
		return;
	channel->in_news = true;
	channel->next_news = channel->group->news;
	channel->group->news = channel;
}

void vbn__channel_is_hungry(struct vbn_channel *channel)
{
	struct ring *ring = channel_ring(channel);

	if (ring)
		ring->promised--;
	if (channel->hungry)
		return;
	channel->hungry = true;
	channel->next_hungry = channel->group->hungry;
	channel->group->hungry = channel;
}

#define UNLIST(list, link)                                        \
	do {                                                      \
		struct vbn_channel **at_ = &channel->group->list; \
		while (*at_ && *at_ != channel)                   \
			at_ = &(*at_)->link;                      \
		if (*at_)                                         \
			*at_ = channel->link;                     \
	} while (0)

void vbn__channel_unlist(struct vbn_channel *channel)
{
	if (channel->in_todo)
		UNLIST(todo, next_todo);
	if (channel->in_news)
		UNLIST(news, next_news);
	if (channel->hungry)
		UNLIST(hungry, next_hungry);
	channel->in_todo = channel->in_news = channel->hungry = false;
}

/* ---- credits ---- */

static uint32_t posted(const struct vbn_channel *channel)
{
	const struct driver *driver = channel->group->port->driver;
	const struct ring *ring = channel_ring(channel);

	return ring ? driver->srq_posted(ring->srq) : driver->queue_posted(channel->queue);
}

static uint32_t promised(const struct vbn_channel *channel)
{
	const struct ring *ring = channel_ring(channel);

	return ring ? ring->promised : channel->granted - channel->received;
}

void vbn__group_look_at_rings(struct vbn_channel_group *group)
{
	for (uint32_t i = 0; i < group->n_rings; i++) {
		struct ring *ring = &group->rings[i];
		uint32_t there = group->port->driver->srq_posted(ring->srq);

		ring->generous = (int32_t)(there - ring->promised) >= 0;
	}
}

/* True: it has its whole window again, or wants none. */
static bool grant(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;
	struct ring *ring = channel_ring(channel);
	uint32_t wanted = group->window - (channel->granted - channel->received), spare;

	if (channel->state != CHANNEL_OPEN && channel->state != CHANNEL_ANSWERING)
		return true;
	spare = posted(channel) - promised(channel);
	if ((int32_t)spare <= 0)
		return !wanted;
	wanted = min(wanted, spare);
	channel->granted += wanted;
	if (ring)
		ring->promised += wanted;
	if (channel->granted - channel->told >= group->credit_batch)
		vbn__channel_put_off(channel, TODO_CREDIT);
	return channel->granted - channel->received == group->window;
}

void vbn__group_grant(struct vbn_channel_group *group)
{
	struct vbn_channel **at = &group->hungry, *channel;

	while ((channel = *at)) {
		if (!grant(channel)) {
			at = &channel->next_hungry;
			continue;
		}
		*at = channel->next_hungry;
		channel->hungry = false;
	}
}

/* ---- what was put off ---- */

static bool tell_limit(struct vbn_channel *channel)
{
	if (channel->granted - channel->told < channel->group->credit_batch)
		return true; /* another header has told it meanwhile */
	if (!vbn__channel_say(channel, CHANNEL_CREDIT, NULL, 0))
		return false;
	group_count(channel->group, COUNT_CREDITS);
	return true;
}

static bool tell_end(struct vbn_channel *channel)
{
	if (channel->out || !vbn__channel_say(channel, CHANNEL_END, NULL, 0))
		return false;
	channel->end_sent = true;
	vbn__channel_put_off(channel, TODO_CLOSE);
	return true;
}

static bool is_ready(struct vbn_channel *channel)
{
	if (channel_room(channel) <= 0 || channel->out ||
		vbn_queue_outstanding(channel->queue) > channel->group->queue_conf.tx_depth / 2)
		return false;
	vbn__channel_tell(channel, NEWS_READY);
	return true;
}

/* Those of an open channel; each is dropped when done. */
static void do_open(struct vbn_channel *channel, uint8_t todo)
{
	static const struct {
		enum channel_todo todo;
		bool (*fn)(struct vbn_channel *channel);
	} steps[] = {
		{TODO_CREDIT, tell_limit},
		{TODO_PLACE, vbn__large_place},
		{TODO_LARGE, vbn__large_stage},
		{TODO_END, tell_end},
		{TODO_CLOSE, vbn__channel_try_close},
		{TODO_READY, is_ready},
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps) && channel->state == CHANNEL_OPEN; i++)
		if (todo & steps[i].todo && !steps[i].fn(channel))
			vbn__channel_put_off(channel, steps[i].todo);
}

void vbn__group_do(struct vbn_channel_group *group)
{
	struct vbn_channel *channel = group->todo;

	group->todo = NULL;
	while (channel) {
		struct vbn_channel *next = channel->next_todo;
		uint8_t todo = channel->todo;

		channel->in_todo = false;
		channel->todo = 0;
		if (todo & TODO_LEAVE) {
			if (!vbn__channel_try_leave(channel))
				vbn__channel_put_off(channel, TODO_LEAVE);
		} else if (channel->state == CHANNEL_RESTING) {
			if (todo & TODO_REST && !vbn__channel_rest(channel))
				vbn__channel_put_off(channel, TODO_REST);
		} else if (todo & TODO_REST && !channel->queue && !channel->step) {
			int ret = vbn__channel_make_queue(channel);

			if (ret)
				vbn__channel_made(channel, ret);
		} else {
			do_open(channel, todo);
		}
		channel = next;
	}
}

/* ---- signs of life ---- */

/* A write of no bytes wants no receive there, and is answered by the peer's device alone. */
static void probe(struct vbn_channel *channel)
{
	const struct vbn_remote nowhere = {0, 0};

	if (!vbn_queue_outstanding(channel->queue) &&
		vbn_write_inline(channel->queue, "", 0, nowhere) == 1)
		group_count(channel->group, COUNT_PROBES);
}

static void look_for_life(struct vbn_channel *channel)
{
	const uint64_t ticks = channel->group->ticks;

	if (channel->state != CHANNEL_OPEN)
		return;
	if (channel->heard == channel->received && ticks - channel->heard_at < 4)
		return;
	if (channel->heard == channel->received)
		probe(channel);
	channel->heard = channel->received;
	channel->heard_at = ticks;
}

/* No poll waits for thousands of them. */
void vbn__group_tick(struct vbn_channel_group *group)
{
	for (int i = 0; i < TICK_BATCH && group->ticking; i++) {
		struct vbn_channel *channel = group->ticking;

		group->ticking = channel->next;
		look_for_life(channel);
	}
}

/* ---- news ---- */

static void give(struct vbn_channel *channel, enum channel_news news, struct sink *sink)
{
	static const uint8_t ops[] = {VBN_CHANNEL_OPENED, VBN_CHANNEL_RESUMED, VBN_CHANNEL_READY,
		VBN_CHANNEL_ENDED, VBN_CHANNEL_CLOSED, VBN_CHANNEL_BROKEN, VBN_CHANNEL_FAILED};
	struct vbn_channel_event *event;

	event = sink_event(sink, channel, (enum vbn_channel_op)ops[log2_floor((uint64_t)news)]);
	if (channel->dials &&
		(news == NEWS_OPENED || (news == NEWS_FAILED && !channel->was_open))) {
		event->data = channel->answer;
		event->len = channel->answer_len;
	}
	if (news == NEWS_RESUMED)
		event->number = channel->delivered;
	if (news == NEWS_FAILED)
		event->number = channel->sent_messages;
}

void vbn__channel_give_news(struct vbn_channel *channel, struct sink *sink)
{
	int given = 0;

	if (channel->news & (NEWS_BROKEN | NEWS_FAILED | NEWS_LARGE))
		vbn__large_settle(channel, sink);
	channel->news = (uint8_t)(channel->news & ~NEWS_LARGE);
	while (channel->news && given++ < 3) {
		uint8_t first = (uint8_t)(channel->news & -channel->news);

		channel->news = (uint8_t)(channel->news & ~first);
		give(channel, (enum channel_news)first, sink);
	}
}
