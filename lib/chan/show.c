/* show.c - what can be seen of a channel while it runs
 *
 * There may be thousands, so metrics have their group's sums; each by itself is there for who asks
 * for it. A message writes nothing for it: what is told is what the channel needs anyway, read at a
 * glance by the thread that looks.
 */

#include "chan/chan.h"

#include <stdio.h>

static const char *state_text(uint8_t state)
{
	static const char *const texts[] = {
		[CHANNEL_DIALING] = "connecting",
		[CHANNEL_ANSWERING] = "answering",
		[CHANNEL_OPEN] = "open",
		[CHANNEL_RESTING] = "broken",
		[CHANNEL_CLOSED_] = "closed",
		[CHANNEL_FAILED_] = "failed",
		[CHANNEL_LEAVING] = "leaving",
		[CHANNEL_GONE] = "gone",
	};

	return state < ARRAY_SIZE(texts) ? texts[state] : "?";
}

static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_channel *channel = container_of(set, struct vbn_channel, counters);
	const uint8_t state = vbn__glance_byte(&channel->state);

	vbn__fact_number(list, "worker", vbn__worker_number(channel->group->worker));
	vbn__fact_text(list, "group", channel->group->name);
	vbn__fact_note(list, "peer", channel->peer);
	vbn__fact_note(list, "state", state_text(state));
	vbn__fact_note(list, "error", channel->error ? channel->error : "");
	vbn__fact_gauge(list, "open", "whether messages may be sent", state == CHANNEL_OPEN);
	vbn__fact_gauge(list, "failed", "whether it has failed", state == CHANNEL_FAILED_);
	vbn__fact_counter(
		list, "tx_messages", "messages sent", vbn__glance_count(&channel->sent_messages));
	vbn__fact_counter(list, "rx_messages", "messages received",
		vbn__glance_count(&channel->received_messages));
	vbn__fact_gauge(list, "tx_credits", "sends that the peer has room for",
		vbn__glance(&channel->limit) - vbn__glance(&channel->sent));
	vbn__fact_gauge(list, "rx_credits", "sends of the peer that there is room for",
		vbn__glance(&channel->granted) - vbn__glance(&channel->received));
	vbn__fact_gauge(list, "waits", "whether something waits for room or for the device",
		vbn__glance_byte(&channel->todo) != 0);
}

void vbn__channel_show(struct vbn_channel *channel)
{
	static uint32_t n_channels;

	channel->counters =
		(struct counter_set){.kind = "channel", .describe = describe, .many = true};
	snprintf(channel->counters.object, sizeof(channel->counters.object), "%.20s/%u",
		channel->group->name, __atomic_fetch_add(&n_channels, 1, __ATOMIC_RELAXED));
	vbn__counters_add(&channel->counters);
}
