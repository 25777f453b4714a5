/* connect.c - the worker's half of connecting: offers made and answered, channels accepted, broken
 * ones connected again */

#include "chan/chan.h"

#include <stdio.h>
#include <stdlib.h>

#define REDIAL_PAUSE_NS (50ull * 1000 * 1000)

/* ---- terms ---- */

static struct offer offer_of(
	const struct vbn_channel *channel, enum handshake_kind kind, const void *data, size_t len)
{
	const struct vbn_channel_group *group = channel->group;
	struct offer offer = {.kind = kind,
		.goes_on = channel->goes_on,
		.buf_size = group->conf.buf_size + CHANNEL_HEADER,
		.window = group->window,
		.max_message = group->conf.max_message,
		.received = channel->received_messages,
		.data = data,
		.data_len = (uint32_t)len};

	memcpy(offer.name, channel->name, sizeof(offer.name));
	vbn_queue_address(channel->queue, &offer.address);
	return offer;
}

static const char no_connection[] = "the queues could not be connected: see the other end's log";

/* What the peer offers holds from here on. 0 or -errno with the reason for it. */
static int take_terms(struct vbn_channel *channel, struct dial *dial, const struct offer *offer,
	const char **reason)
{
	struct address address;

	*reason = "the handshake is not about this channel";
	if (memcmp(offer->name, channel->name, sizeof(offer->name)) ||
		offer->goes_on != channel->goes_on)
		return -EPROTO;
	*reason = "the handshake speaks of messages that were never sent";
	if (offer->goes_on &&
		(offer->received > channel->sent_messages || offer->received < channel->delivered))
		return -EPROTO;
	*reason = no_connection;
	if (vbn__address_unpack(&offer->address, &address) || address.transport != VBN_RC ||
		address.link != channel->group->port->info.link)
		return -EINVAL;
	dial->queue = offer->address;
	channel->delivered = offer->received;
	channel->peer_window = (uint16_t)offer->window;
	channel->peer_buf_size = offer->buf_size - CHANNEL_HEADER;
	channel->peer_max_message = offer->max_message;
	return 0;
}

/* What the application that listens says with its answer. At one end it waits to be sent, at the other
 * it is the application's. */
static int keep_answer(struct vbn_channel *channel, const void *data, size_t len)
{
	free(channel->answer);
	channel->answer = len ? malloc(len) : NULL;
	channel->answer_len = channel->answer ? (uint32_t)len : 0;
	if (channel->answer)
		memcpy(channel->answer, data, len);
	return channel->answer || !len ? 0 : -ENOMEM;
}

VBN_API int vbn_channel_answer(struct vbn_channel *channel, const void *data, size_t len)
{
	if (channel != channel->group->asking)
		return fail(EINVAL,
			"channel to %s: data can be given with an answer alone: from within the function that accepts it",
			channel->peer);
	if (len > HANDSHAKE_MAX_DATA || (len && !data))
		return fail(EINVAL,
			"channel to %s cannot be answered: %zu bytes of data%s, at most %d",
			channel->peer, len, data ? "" : ", which are nowhere", HANDSHAKE_MAX_DATA);
	return keep_answer(channel, data, len);
}

/* ---- dials ---- */

void vbn__channel_hang_up(struct vbn_channel *channel, const char *reason)
{
	if (channel->resume)
		vbn__dial_done(channel->resume->dial, "the channel cannot go on");
	channel->resume = NULL;
	if (channel->dial && channel->dial->begun)
		vbn__dial_done(channel->dial, reason);
	else
		free(channel->dial);
	channel->dial = NULL;
}

static void hang_up_well(struct vbn_channel *channel)
{
	vbn__dial_done(channel->dial, NULL);
	channel->dial = NULL;
}

/* What is to be offered to the channel's address once it has a queue: the data waits where the offer
 * will have it. */
static int prepare_dial(
	struct vbn_channel *channel, const void *data, size_t len, uint64_t patience_ns)
{
	struct dial *made = calloc(1, sizeof(*made));
	int n;

	if (!made)
		return -ENOMEM;
	n = vbn__endpoint_parse(channel->address, false, false, made->endpoints);
	if (n <= 0) {
		free(made);
		return n ? n : -EINVAL;
	}
	made->n_endpoints = n;
	made->group = channel->group;
	made->channel = channel;
	made->patience_ns = patience_ns;
	made->say_len = (uint32_t)len;
	if (len)
		memcpy(made->say + sizeof(struct offer_body), data, len);
	channel->dial = made;
	channel->state = CHANNEL_DIALING;
	return 0;
}

/* The answer comes by letter. */
static void dial(struct vbn_channel *channel)
{
	struct dial *made = channel->dial;
	struct offer offer = offer_of(
		channel, HANDSHAKE_OFFER, made->say + sizeof(struct offer_body), made->say_len);

	vbn__dial_connect(made, &offer);
}

static void note_refusal(const struct dial *dial, const char *reason)
{
	group_count(dial->group, COUNT_REFUSED_HERE);
	log_info("channel of %s was refused: %s", dial->session->peer, reason);
}

static void refuse(struct dial *dial, const char *reason)
{
	note_refusal(dial, reason);
	vbn__dial_done(dial, reason);
}

/* The channel ends before it has opened, or does not go on, for a reason of this end's. */
static void cannot_connect(struct vbn_channel *channel, const char *reason, int error)
{
	if (channel->dials) {
		vbn__channel_hang_up(channel, reason);
	} else {
		refuse(channel->dial, reason);
		channel->dial = NULL;
		keep_answer(channel, NULL, 0);
	}
	vbn__channel_failed(
		channel, "channel to %s: %s (%s)", channel->peer, reason, strerror(-error));
}

/* ---- its queue ---- */

static void connect_queues(struct vbn_channel *channel)
{
	int ret = vbn__channel_connect_queue(channel, &channel->dial->queue);

	if (ret)
		cannot_connect(channel, no_connection, ret);
}

void vbn__channel_made(struct vbn_channel *channel, int error)
{
	if (!channel->dial)
		return; /* it has failed meanwhile */
	if (error)
		cannot_connect(channel,
			channel->dials ? "its queue could not be made: see the log"
				       : "the end that listens could not make a queue: see its log",
			error);
	else if (channel->dials)
		dial(channel);
	else
		connect_queues(channel);
}

/* The end that listens says what it has, and waits for the peer to be ready. */
void vbn__channel_connected(struct vbn_channel *channel, int error)
{
	const struct offer ready = {.kind = HANDSHAKE_READY};

	if (!channel->dial)
		return; /* it has failed, or rests, meanwhile */
	channel->limit = channel->peer_window;
	if (error) {
		cannot_connect(channel, no_connection, error);
	} else if (channel->state == CHANNEL_DIALING) {
		vbn__dial_say(channel->dial, &ready);
		hang_up_well(channel);
		vbn__channel_opened(channel);
	} else {
		struct offer offer =
			offer_of(channel, HANDSHAKE_ANSWER, channel->answer, channel->answer_len);

		vbn__dial_say(channel->dial, &offer);
		keep_answer(channel, NULL, 0);
	}
}

void vbn__channel_reset(struct vbn_channel *channel, int error)
{
	if (error)
		vbn__channel_failed(channel, "channel to %s: its queue cannot be used again (%s)",
			channel->peer, strerror(-error));
}

/* ---- connect ---- */

/* Those that are leaving make room for others. */
static bool has_room(struct vbn_channel_group *group)
{
	struct vbn_channel *channel = group->channels, *next;

	for (; channel && group->n_channels - group->n_gone >= group->conf.max_channels;
		channel = next) {
		next = channel->next;
		if (channel->state == CHANNEL_LEAVING)
			vbn__channel_free(channel);
	}
	return group->n_channels - group->n_gone < group->conf.max_channels;
}

static int begin(struct vbn_channel *channel, const char *address, const void *data, size_t len)
{
	int ret;

	channel->dials = true;
	channel->address = strdup(address);
	if (!channel->address)
		return -ENOMEM;
	snprintf(channel->peer, sizeof(channel->peer), "%s", address);
	ret = prepare_dial(channel, data, len, channel->group->conf.connect_ns);
	return ret ? ret : vbn__channel_make_queue(channel);
}

VBN_API int vbn_channel_connect(struct vbn_channel_group *group, const char *address,
	const void *data, size_t len, struct vbn_channel **result)
{
	struct vbn_channel *channel;
	int ret;

	*result = NULL;
	if (!address || (len && !data))
		return fail(EINVAL, "channel to %s cannot be made: it has no %s: give it one",
			address ? address : "nowhere", address ? "data" : "address");
	if (len > HANDSHAKE_MAX_DATA)
		return fail(EINVAL, "channel to %s cannot be made: %zu bytes of data, at most %d",
			address, len, HANDSHAKE_MAX_DATA);
	if (!has_room(group))
		return fail(ENOSPC,
			"channel to %s cannot be made: the group has its %u; raise max_channels",
			address, group->conf.max_channels);
	channel = vbn__channel_new(group);
	if (!channel)
		return -ENOMEM;
	ret = begin(channel, address, data, len);
	if (ret) {
		vbn__channel_free(channel);
		return ret;
	}
	*result = channel;
	return 0;
}

static void on_answer(struct vbn_channel *channel, const struct offer *offer)
{
	const char *reason;
	int ret = take_terms(channel, channel->dial, offer, &reason);

	if (!ret && !channel->goes_on) {
		reason = "there was no memory for what the peer says";
		ret = keep_answer(channel, offer->data, offer->data_len);
	}
	if (ret)
		cannot_connect(channel, reason, ret);
	else
		connect_queues(channel);
}

/* ---- listen ---- */

VBN_API int vbn_channel_listen(struct vbn_channel_group *group, const char *address,
	vbn_channel_accept_fn *accept, void *arg, struct vbn_channel_listener **result)
{
	struct listen_request request = {0};
	struct vbn_channel_listener *listener;
	int ret;

	*result = NULL;
	if (!accept)
		return fail(EINVAL,
			"listener %s cannot be made: nobody would know of its channels: name a function that accepts them",
			address ? address : "");
	request.n_endpoints = vbn__endpoint_parse(address, true, false, request.endpoints);
	if (request.n_endpoints <= 0)
		return request.n_endpoints ? request.n_endpoints : -EINVAL;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->group = group;
	listener->accept = accept;
	listener->arg = arg;
	request.listener = listener;
	ret = vbn__dial_listen(&request);
	if (ret) {
		free(listener);
		return ret;
	}
	listener->next = group->listeners;
	group->listeners = listener;
	*result = listener;
	return 0;
}

VBN_API const char *vbn_channel_listener_address(const struct vbn_channel_listener *listener)
{
	return listener->address;
}

/* Its memory stays with the group: letters of its dials may still be on their way. */
VBN_API void vbn_channel_unlisten(struct vbn_channel_listener *listener)
{
	if (!listener || listener->ended)
		return;
	listener->ended = true;
	vbn__dial_unlisten(listener);
}

/* It will be answered when its queue is connected. */
static void take_dial(struct vbn_channel *channel, struct dial *dial)
{
	dial->channel = channel;
	channel->dial = dial;
	channel->state = CHANNEL_ANSWERING;
}

static void reject(struct vbn_channel *channel, struct dial *dial, const char *reason)
{
	const struct offer offer = {
		.kind = HANDSHAKE_REJECT, .data = channel->answer, .data_len = channel->answer_len};

	if (!channel->answer) {
		refuse(dial, reason);
		return;
	}
	note_refusal(dial, reason);
	vbn__dial_reject(dial, &offer, reason);
}

static void on_new_peer(struct dial *dial, const struct offer *offer)
{
	struct vbn_channel_group *group = dial->group;
	struct vbn_channel *channel = has_room(group) ? vbn__channel_new(group) : NULL;
	char reason[WIRE_MAX_REFUSE + 1];
	const char *why;
	int ret;

	if (!channel) {
		refuse(dial, "the group that listens has all the channels that it can have");
		return;
	}
	memcpy(channel->name, offer->name, sizeof(channel->name));
	snprintf(channel->peer, sizeof(channel->peer), "%s", dial->session->peer);
	ret = take_terms(channel, dial, offer, &why);
	if (ret) {
		refuse(dial, why);
		goto free_channel;
	}
	group->asking = channel;
	ret = dial->listener->accept(channel, offer->data, offer->data_len, dial->listener->arg);
	if (!ret && !group->asking)
		ret = -ECONNREFUSED; /* closed while it was asked */
	group->asking = NULL;
	if (ret) {
		snprintf(reason, sizeof(reason), "the application that listens refuses: %s",
			strerror(-ret));
		reject(channel, dial, reason);
		goto free_channel;
	}
	take_dial(channel, dial);
	ret = vbn__channel_make_queue(channel);
	if (ret)
		vbn__channel_made(channel, ret);
	return;

free_channel:
	vbn__channel_free(channel);
}

/* ---- going on ---- */

static struct vbn_channel *find(struct vbn_channel_group *group, const uint8_t *name)
{
	struct vbn_channel *channel = group->channels;

	while (channel &&
		(channel->dials || !channel->was_open || channel->state >= CHANNEL_LEAVING ||
			memcmp(channel->name, name, CHANNEL_NAME_BYTES)))
		channel = channel->next;
	return channel;
}

/* The old queue, which may not know yet that it has failed, has to give back what it has first. */
static void on_old_peer(struct letter *letter, const struct offer *offer)
{
	struct dial *dial = letter->dial;
	struct vbn_channel *channel = find(dial->group, offer->name);

	if (channel && channel->state != CHANNEL_RESTING)
		vbn__channel_broken(channel, "the peer has connected anew");
	if (!channel || channel->state != CHANNEL_RESTING) {
		refuse(dial, "the channel is not known here, or cannot go on");
		return;
	}
	if (channel->resume)
		vbn__dial_done(channel->resume->dial, "another connection has come");
	channel->resume = letter;
	dial->channel = channel;
}

static struct offer offer_in(const struct letter *letter)
{
	struct wire_fault fault;
	struct offer offer = {0};

	/* It was found to be good where it came in. */
	vbn__offer_unpack(letter->bytes, letter->len, letter->said, &offer, &fault);
	return offer;
}

static bool take_resume(struct vbn_channel *channel)
{
	struct letter *letter = channel->resume;
	struct offer offer = offer_in(letter);
	const char *reason;
	int ret;

	channel->resume = NULL;
	channel->goes_on = true;
	ret = take_terms(channel, letter->dial, &offer, &reason);
	take_dial(channel, letter->dial);
	if (ret)
		cannot_connect(channel, reason, ret);
	else
		connect_queues(channel);
	return true;
}

static bool redial(struct vbn_channel *channel, uint64_t now)
{
	int ret;

	channel->goes_on = true;
	ret = prepare_dial(channel, NULL, 0, channel->resume_until - now);
	if (!ret)
		dial(channel);
	else
		vbn__channel_failed(channel, "channel to %s cannot be connected again: %s",
			channel->peer, strerror(-ret));
	return true;
}

/* What the queue still had has been seen when it can be reset. */
bool vbn__channel_rest(struct vbn_channel *channel)
{
	uint64_t now = clock_ns();
	bool was_reset = !channel->limit && !channel->sent && !channel->received;
	int ret = was_reset ? 0 : vbn__channel_reset_queue(channel);

	if (now >= channel->resume_until) {
		vbn__channel_failed(channel,
			"channel to %s: %s; the peer has not connected again in time",
			channel->peer, channel->error ? channel->error : "");
		return true;
	}
	if (ret == -EAGAIN)
		return false;
	if (ret) {
		vbn__channel_reset(channel, ret);
		return true;
	}
	if (channel->resume)
		return take_resume(channel);
	if (!channel->dials || now < channel->dial_at)
		return false;
	return redial(channel, now);
}

/* ---- letters ---- */

static void on_said(struct letter *letter)
{
	struct dial *dial = letter->dial;
	struct offer offer = offer_in(letter);

	switch (letter->said) {
	case HANDSHAKE_OFFER:
		if (dial->listener->ended)
			refuse(dial, "the listener has ended");
		else if (offer.goes_on)
			on_old_peer(letter, &offer);
		else
			on_new_peer(dial, &offer);
		return;
	case HANDSHAKE_ANSWER: on_answer(dial->channel, &offer); return;
	case HANDSHAKE_REJECT: /* the reason is behind it */
		keep_answer(dial->channel, offer.data, offer.data_len);
		return;
	case HANDSHAKE_READY: {
		struct vbn_channel *channel = dial->channel;

		hang_up_well(channel);
		if (channel->state == CHANNEL_ANSWERING)
			vbn__channel_opened(channel);
		return;
	}
	}
}

static void on_over(struct letter *letter)
{
	struct dial *dial = letter->dial;
	struct vbn_channel *channel = dial->channel;
	const char *why = (const char *)letter->bytes;

	if (!channel || channel->resume) { /* nothing has come of it yet */
		if (channel)
			channel->resume = NULL;
		vbn__dial_done(dial, why);
		return;
	}
	vbn__channel_hang_up(channel, why);
	if (channel->state == CHANNEL_OPEN)
		return; /* its first message came before READY */
	if (channel->goes_on) {
		channel->goes_on = false;
		channel->state = CHANNEL_RESTING;
		channel->dial_at = clock_ns() + REDIAL_PAUSE_NS;
		/* A refusal will be one again. */
		if (letter->code == ECONNREFUSED && channel->dials)
			channel->resume_until = 0;
		vbn__counters_exchange(&channel->error, strdup(why));
		vbn__channel_put_off(channel, TODO_REST);
		return;
	}
	vbn__channel_failed(channel, "channel to %s: %s", channel->peer, why);
}

static void read_letter(const struct vbn_channel_group *group, struct letter *letter)
{
	struct dial *dial = letter->dial;

	if (letter->kind == LETTER_GONE)
		free(dial);
	else if (dial->done || group->ending)
		return;
	else if (letter->kind == LETTER_SAID)
		on_said(letter);
	else
		on_over(letter);
}

void vbn__letters_take(struct vbn_channel_group *group)
{
	struct mail *mail = vbn__mailbox_take(&group->inbox);

	while (mail) {
		struct note *note = container_of(mail, struct note, mail);

		mail = mail->next;
		if (note->of_queue)
			vbn__channel_stepped(note);
		else
			read_letter(group, container_of(note, struct letter, note));
	}
}
