/* step.c - a channel's queue made, connected, reset and ended by the control thread, while the worker
 * goes on with the other channels
 *
 * A step is ordered, and comes back as a note in the group's inbox; where the driver's queues cannot be
 * polled meanwhile, or the group is ending, the worker waits instead. A queue's place in a ring is
 * taken before it is made and given back when it has ended: what it may receive until then is promised.
 */

#include "chan/chan.h"

#include <stdlib.h>
#include <sys/random.h>

struct step {
	struct note note;
	struct reactor_order order;
	struct vbn_channel *channel;
	struct queue_job job;
	uint8_t name[CHANNEL_NAME_BYTES]; /* for a channel that needs one */
};

/* ---- on the control thread ---- */

static int carry_out(void *arg)
{
	struct step *step = arg;

	if (step->job.step == QUEUE_CREATE &&
		getrandom(step->name, sizeof(step->name), 0) != sizeof(step->name))
		step->job.result = -EIO;
	else
		vbn__queue_carry_out(&step->job);
	return 0;
}

static void carry_out_order(struct reactor_order *order)
{
	struct step *step = container_of(order, struct step, order);

	carry_out(step);
	vbn__mailbox_put(&step->channel->group->inbox, &step->note.mail);
}

/* ---- back on the worker's ---- */

static void leave_ring(struct vbn_channel *channel)
{
	struct ring *ring = channel_ring(channel);

	if (!ring)
		return;
	ring->promised -= channel->granted - channel->received;
	ring->n_channels--;
	channel->ring = NO_RING;
	channel->granted = channel->received = 0;
}

static void finish_make(struct vbn_channel *channel, const struct step *step, int ret)
{
	if (ret) {
		leave_ring(channel);
	} else {
		channel->queue = step->job.queue;
		vbn__channel_start_credits(channel);
		if (channel->dials)
			memcpy(channel->name, step->name, sizeof(channel->name));
	}
}

/* What the rest of the channel makes of it, unless that is gone or going. */
static void tell(struct vbn_channel *channel, enum queue_step step, int ret)
{
	if (channel->state == CHANNEL_GONE) {
		vbn__channel_free(channel);
		return;
	}
	if (channel->group->ending)
		return;
	switch (step) {
	case QUEUE_CREATE: vbn__channel_made(channel, ret); return;
	case QUEUE_CONNECT: vbn__channel_connected(channel, ret); return;
	case QUEUE_FAIL:
	case QUEUE_RESET: vbn__channel_reset(channel, ret); return;
	case QUEUE_DESTROY: return;
	}
}

static void finish(struct step *step)
{
	struct vbn_channel *channel = step->channel;
	enum queue_step what = step->job.step;
	int ret = vbn__queue_finish(&step->job);

	channel->step = NULL;
	if (what == QUEUE_CREATE)
		finish_make(channel, step, ret);
	if (what == QUEUE_RESET && !ret)
		vbn__channel_start_credits(channel);
	if (what == QUEUE_DESTROY) {
		leave_ring(channel);
		channel->queue = NULL;
	}
	tell(channel, what, ret);
}

void vbn__channel_stepped(struct note *note)
{
	struct step *step = container_of(note, struct step, note);

	finish(step);
	free(step);
}

/* ---- begun ---- */

/* Without memory for the order, too, the worker waits. */
static void run(struct vbn_channel *channel, const struct queue_job *job)
{
	struct step waited = {.channel = channel, .job = *job}, *step = NULL;

	if (vbn__queue_step_is_apart(job) && !channel->group->ending)
		step = malloc(sizeof(*step));
	if (!step) {
		channel->step = &waited;
		if (vbn__control_call(-1, carry_out, &waited))
			waited.job.result = -ESHUTDOWN;
		finish(&waited);
		return;
	}
	*step = (struct step){.note.of_queue = true,
		.order.fn = carry_out_order,
		.channel = channel,
		.job = *job};
	channel->step = step;
	vbn__reactor_order(&step->order);
}

/* The group's rings together have room for the windows of max_channels. */
static struct ring *ring_with_room(struct vbn_channel_group *group)
{
	for (uint32_t i = 0; i < group->n_rings; i++)
		if (group->rings[i].n_channels < group->rings[i].max_channels)
			return &group->rings[i];
	return NULL;
}

int vbn__channel_make_queue(struct vbn_channel *channel)
{
	struct vbn_channel_group *group = channel->group;
	struct vbn_queue_conf conf = group->queue_conf;
	struct ring *ring = ring_with_room(group);
	struct queue_job job;
	int ret;

	if (group->n_rings && !ring) { /* one that is gone has it still */
		vbn__channel_put_off(channel, TODO_REST);
		return 0;
	}
	conf.context = channel;
	conf.srq = ring ? ring->srq : NULL;
	ret = vbn__queue_begin_create(&job, group->queues, group->port, &conf);
	if (ret)
		return ret;
	if (ring) {
		channel->ring = (uint16_t)(ring - group->rings);
		ring->n_channels++;
	}
	run(channel, &job);
	return 0;
}

int vbn__channel_connect_queue(struct vbn_channel *channel, const struct vbn_address *peer)
{
	struct queue_job job;
	int ret = vbn__queue_begin_connect(&job, channel->queue, peer);

	if (!ret)
		run(channel, &job);
	return ret;
}

int vbn__channel_reset_queue(struct vbn_channel *channel)
{
	struct vbn_queue *queue = channel->queue;
	struct queue_job job;
	int ret = 0;

	if (channel->step)
		return -EAGAIN;
	if (queue->connected && !queue->ended)
		vbn__queue_begin_fail(&job, queue);
	else
		ret = vbn__queue_begin_reset(&job, queue);
	if (ret)
		return ret;
	run(channel, &job);
	return -EAGAIN;
}

void vbn__channel_end_queue(struct vbn_channel *channel)
{
	struct queue_job job;

	vbn__queue_begin_destroy(&job, channel->queue);
	run(channel, &job);
}
