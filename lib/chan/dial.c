/* dial.c - the control thread's half of connecting a channel: sessions in, letters out
 *
 * A dial's session carries one message each way and a third; each is checked here, so that the
 * worker gets what is well-formed alone. The worker says when it is done with a dial, and that is
 * when its session ends.
 */

#include "chan/chan.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- letters ---- */

static void send_letter(
	struct dial *dial, enum letter_kind kind, int code, const void *bytes, size_t len)
{
	struct letter *letter = &dial->letters[dial->n_letters++];

	letter->dial = dial;
	letter->kind = kind;
	letter->said = (enum handshake_kind)dial->expected;
	letter->code = code;
	letter->len = (uint32_t)min(len, sizeof(letter->bytes));
	if (len)
		memcpy(letter->bytes, bytes, letter->len);
	vbn__mailbox_put(&dial->group->inbox, &letter->note.mail);
}

static void over(struct dial *dial, int code, const char *why)
{
	vbn__reactor_timer_clear(&dial->timer);
	if (dial->over)
		return;
	dial->over = true;
	send_letter(dial, LETTER_OVER, code, why, strlen(why) + 1);
}

/* ---- what sessions tell ---- */

static void on_timer(struct reactor_timer *timer)
{
	struct dial *dial = container_of(timer, struct dial, timer);

	over(dial, ETIMEDOUT, "the peer greeted and then said nothing in time");
}

static void enlist(struct dial *dial)
{
	dial->next = dial->group->dials;
	dial->at = &dial->group->dials;
	if (dial->next)
		dial->next->at = &dial->next;
	dial->group->dials = dial;
	dial->timer.fn = on_timer;
}

static void on_open(struct session *session)
{
	struct dial *dial = session->arg;

	vbn__reactor_timer_set(&dial->timer, clock_ns() + dial->patience_ns);
	vbn__session_send(session, dial->say, dial->say_len);
}

static bool on_message(struct session *session, const uint8_t *data, uint32_t len)
{
	struct dial *dial = session->arg;
	struct wire_fault fault;
	struct offer offer;

	if (dial->over)
		return true;
	if (!dial->expected) {
		over(dial, EPROTO, "the peer says more than a handshake has");
		return true;
	}
	if (dial->expected == HANDSHAKE_ANSWER && len && data[0] == HANDSHAKE_REJECT &&
		session->version >= 2)
		dial->expected = HANDSHAKE_REJECT;
	if (vbn__offer_unpack(data, len, (enum handshake_kind)dial->expected, &offer, &fault)) {
		over(dial, fault.code, fault.why);
		return true;
	}
	send_letter(dial, LETTER_SAID, 0, data, len);
	dial->expected = dial->expected == HANDSHAKE_OFFER ? HANDSHAKE_READY : 0;
	return true;
}

static void on_over(struct session *session, int code, const char *why)
{
	over(session->arg, code, why);
}

static const struct session_owner connecting = {on_open, on_message, on_over};

/* A peer of a listener: its session becomes a dial's. */
static void on_peer(struct session *session)
{
	struct vbn_channel_listener *listener = session->arg;
	struct dial *dial = calloc(1, sizeof(*dial));

	if (!dial) {
		vbn__session_close(session, "the listener has no memory");
		return;
	}
	dial->group = listener->group;
	dial->listener = listener;
	dial->session = session;
	dial->begun = true;
	dial->expected = HANDSHAKE_OFFER;
	session->arg = dial;
	enlist(dial);
	vbn__reactor_timer_set(&dial->timer, clock_ns() + listener->group->conf.connect_ns);
}

static const struct session_owner accepting = {on_peer, on_message, on_over};

/* ---- orders ---- */

static struct vbn_session_conf session_conf(const struct vbn_channel_group *group)
{
	return (struct vbn_session_conf){.service = "verbena.channel",
		.version_min = CHANNEL_VERSION_MIN,
		.version_max = CHANNEL_VERSION,
		.max_message = HANDSHAKE_MAX,
		.retry_ns = group->conf.connect_ns,
		.timeout_ns = group->conf.connect_ns,
		.keepalive_ns = 10ull * 1000 * 1000 * 1000};
}

static void connect_now(struct dial *dial)
{
	struct vbn_session_conf conf = session_conf(dial->group);

	enlist(dial);
	conf.retry_ns = min(conf.retry_ns, dial->patience_ns);
	dial->expected = HANDSHAKE_ANSWER;
	if (vbn__session_connect(
		    dial->endpoints, dial->n_endpoints, &conf, &connecting, dial, &dial->session))
		over(dial, ENOMEM, "there was no memory for a session");
}

static void end_now(struct dial *dial, const char *reason)
{
	*dial->at = dial->next;
	if (dial->next)
		dial->next->at = dial->at;
	vbn__reactor_timer_clear(&dial->timer);
	if (dial->rejects && dial->session && dial->session->version >= 2)
		vbn__session_send(dial->session, dial->say, dial->say_len);
	vbn__session_close(dial->session, reason);
	send_letter(dial, LETTER_GONE, 0, NULL, 0);
}

static void carry_out(struct reactor_order *base)
{
	struct dial_order *order = container_of(base, struct dial_order, order);
	struct dial *dial = order->dial;

	switch (order->kind) {
	case ORDER_CONNECT: connect_now(dial); return;
	case ORDER_SAY:
		if (dial->session)
			vbn__session_send(dial->session, dial->say, dial->say_len);
		return;
	case ORDER_DONE: end_now(dial, dial->refuses ? dial->reason : NULL); return;
	case ORDER_N: return;
	}
}

static void give_order(struct dial *dial, enum dial_order_kind kind)
{
	struct dial_order *order = &dial->orders[kind];

	order->order.fn = carry_out;
	order->dial = dial;
	order->kind = kind;
	vbn__reactor_order(&order->order);
}

void vbn__dial_connect(struct dial *dial, const struct offer *offer)
{
	dial->begun = true;
	dial->say_len = vbn__offer_pack(offer, dial->say);
	give_order(dial, ORDER_CONNECT);
}

void vbn__dial_say(struct dial *dial, const struct offer *offer)
{
	dial->say_len = vbn__offer_pack(offer, dial->say);
	give_order(dial, ORDER_SAY);
}

void vbn__dial_reject(struct dial *dial, const struct offer *reject, const char *reason)
{
	dial->say_len = vbn__offer_pack(reject, dial->say);
	dial->rejects = true;
	vbn__dial_done(dial, reason);
}

void vbn__dial_done(struct dial *dial, const char *reason)
{
	dial->done = true;
	dial->refuses = reason;
	snprintf(dial->reason, sizeof(dial->reason), "%s", reason ? reason : "");
	give_order(dial, ORDER_DONE);
}

/* ---- what the worker waits for ---- */

static int listen_call(void *arg)
{
	struct listen_request *request = arg;
	struct vbn_channel_listener *listener = request->listener;
	struct vbn_session_conf conf = session_conf(listener->group);
	int ret = vbn__session_listen(request->endpoints, request->n_endpoints, &conf, &accepting,
		listener, &listener->core);

	if (!ret)
		memcpy(listener->address, listener->core->address, ENDPOINT_TEXT);
	return ret;
}

int vbn__dial_listen(struct listen_request *request)
{
	return vbn__control_call(-1, listen_call, request);
}

static int unlisten_call(void *arg)
{
	struct vbn_channel_listener *listener = arg;

	vbn__session_unlisten(listener->core);
	return 0;
}

void vbn__dial_unlisten(struct vbn_channel_listener *listener)
{
	vbn__control_call(-1, unlisten_call, listener);
}

static int settle_call(void *arg)
{
	(void)arg;
	vbn__reactor_settle();
	return 0;
}

void vbn__dial_settle(void)
{
	vbn__control_call(-1, settle_call, NULL);
}

static int end_group_call(void *arg)
{
	struct vbn_channel_group *group = arg;

	vbn__reactor_settle();
	while (group->dials)
		end_now(group->dials, "the other end has shut down");
	return 0;
}

void vbn__dial_end_group(struct vbn_channel_group *group)
{
	vbn__control_call(-1, end_group_call, group);
}
