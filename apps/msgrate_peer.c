/* msgrate_peer.c - a run between two processes: what they tell each other over a session
 *
 * Service "msgrate", version 2: each message is one JSON object with a `say`, in this order.
 *
 *     connecting                          listening
 *     run: the parameters            ->
 *                                    <-   accept, or the session ends with a reason
 *     ends: addresses, handles       <->  ends
 *     ready                          <->  ready
 *     end: sends no more; what it sent <-> end
 *     tally: what came               <->  tally
 *     final: after the last look     <->  final
 *     run, for the next size of a sweep, or the session is closed
 *
 * All of it comes from another process: what is not as expected ends the run with a sentence.
 */
#include "msgrate.h"

#include <stdlib.h>

#define SERVICE     "msgrate"
#define SLICE       (SECOND / 10)
#define WAIT        (30 * SECOND) /* for what the other one has to do meanwhile */
#define SOON        (2 * SECOND)  /* when it is told that it waits */
#define MAX_MESSAGE (16u << 20)
#define MAX_ENDS    65536

/* ---- messages ---- */

/* The run goes on no more; the first reason stays. */
static int lose(struct other *other, const char *why)
{
	if (!other->lost)
		snprintf(other->why, sizeof(other->why), "%s", why);
	store_once(&other->lost, true);
	return -ECONNRESET;
}

void other_say_loss(struct other *other)
{
	if (!load_once(&other->lost) || other->loss_said || stop_signal())
		return;
	other->loss_said = true;
	say("%s", other->why);
}

static int lose_session(struct other *other, int err)
{
	const char *why = vbn_session_error(other->session);
	char text[128];

	snprintf(text, sizeof(text), "the other process is lost: %s", strerror(-err));
	return lose(other, *why ? why : text);
}

static int lose_nonsense(struct other *other, const char *say)
{
	char why[160];

	snprintf(why, sizeof(why),
		"the other process has sent something else than \"%.20s\" as this version of verbena "
		"knows it: use the same version at both ends",
		say);
	return lose(other, why);
}

/* Takes the reference. */
static int tell(struct other *other, json_t *message)
{
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	int err = text ? vbn_session_send(other->session, text, strlen(text)) : -ENOMEM;

	json_decref(message);
	free(text);
	return err < 0 ? lose_session(other, err) : 0;
}

/* The next message, whatever it says. -ETIMEDOUT. */
static int hear(struct other *other, uint64_t timeout_ns, json_t **message)
{
	json_error_t error;
	int n;

	if (!other->buffer)
		other->buffer = malloc(MAX_MESSAGE);
	if (!other->buffer)
		return lose(other, "a message of the other process cannot be taken: no memory");
	n = vbn_session_recv(other->session, other->buffer, MAX_MESSAGE, timeout_ns);
	if (n == -ETIMEDOUT)
		return n;
	if (n < 0)
		return lose_session(other, n);
	*message = json_loadb(other->buffer, (size_t)n, 0, &error);
	return json_is_object(*message) ? 0 : lose_nonsense(other, "an object");
}

static bool says(const json_t *message, const char *say)
{
	const char *text = json_string_value(json_object_get(message, "say"));

	return text && !strcmp(text, say);
}

static void say_waits(const struct other *other)
{
	say("%s does not answer yet: it serves another process, which goes first, or is stopped; "
	    "waiting %lld s for it",
		vbn_session_peer(other->session), (WAIT - SOON) / SECOND);
}

/* The message that says this; the run is left where a signal has come. */
static int await(struct other *other, const char *say, json_t **message)
{
	const uint64_t since = now_ns();
	bool told = !other->leads;
	int err;

	*message = NULL;
	while ((err = hear(other, SLICE, message)) == -ETIMEDOUT) {
		if (stop_signal() || now_ns() - since > WAIT)
			return lose(other,
				stop_signal()
					? "stopped"
					: "the other process does not answer in time: see whether it is stopped, or its host");
		if (told || now_ns() - since < SOON || strcmp(say, "accept"))
			continue;
		told = true;
		say_waits(other);
	}
	if (!err && !says(*message, say))
		err = lose_nonsense(other, say);
	return err;
}

/* ---- the parameters ---- */

struct parameter {
	const char *name;
	size_t offset; /* of an int64_t */
	int64_t low, high;
};

#define NUMBER(name, low, high)                                          \
	{                                                                \
#name, offsetof(struct msgrate_options, name), low, high \
	}

static const struct parameter parameters[] = {
	NUMBER(connection, VBN_RC, VBN_UD),
	NUMBER(op, OP_SEND, OP_CMP_SWAP),
	NUMBER(size, 0, 1ll << 31),
	NUMBER(queues, 1, 4096),
	NUMBER(tx_depth, 1, 1 << 20),
	NUMBER(rx_depth, 1, 1 << 20),
	NUMBER(post_list, 1, 32768),
	NUMBER(cq_mod, 1, 32768),
	NUMBER(duration, 1, 365ll * 86400 * SECOND),
	NUMBER(iters, 0, 1000000000000000),
	NUMBER(warmup, 0, 86400 * SECOND),
	NUMBER(rate, 0, 1000000000000),
};

/* One that does not tell its port's kind has one like this. */
static void take_link(struct run *run, const json_t *message)
{
	const json_t *link = json_object_get(message, "link");

	run->other->link = link ? (int)json_integer_value(link) : (int)run->port_info.link;
}

int other_offer(struct run *run)
{
	json_t *answer,
		*message = json_pack("{s:s, s:i, s:i, s:b, s:b, s:b, s:b, s:b}", "say", "run",
			"ends", run->n_ends, "link", run->port_info.link, "bidirectional",
			run->conf.bidirectional, "verify", run->conf.verify, "latency",
			run->conf.latency, "aside", run->conf.aside, "allow_loss",
			run->conf.allow_loss);
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++)
		json_object_set_new(message, parameters[i].name,
			json_integer(*(const int64_t *)(const void *)((const char *)&run->conf +
				parameters[i].offset)));
	err = tell(run->other, message);
	if (!err)
		err = await(run->other, "accept", &answer);
	if (err)
		return err;
	take_link(run, answer);
	json_decref(answer);
	return 0;
}

static int take_parameters(struct run *run, const json_t *message)
{
	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
		const json_t *number = json_object_get(message, parameters[i].name);
		int64_t value = json_integer_value(number);

		if (!json_is_integer(number) || value < parameters[i].low ||
			value > parameters[i].high)
			return lose_nonsense(run->other, parameters[i].name);
		*(int64_t *)(void *)((char *)&run->conf + parameters[i].offset) = value;
	}
	run->conf.bidirectional = json_is_true(json_object_get(message, "bidirectional"));
	run->conf.aside = json_is_true(json_object_get(message, "aside"));
	run->conf.latency = json_is_true(json_object_get(message, "latency"));
	run->conf.verify = json_is_true(json_object_get(message, "verify"));
	run->conf.allow_loss |= json_is_true(json_object_get(message, "allow_loss"));
	take_link(run, message);
	run->other->n_ends = (int)json_integer_value(json_object_get(message, "ends"));
	if (run->other->n_ends < 1 || run->other->n_ends > MAX_ENDS ||
		run->conf.tx_depth & (run->conf.tx_depth - 1) ||
		run->conf.rx_depth & (run->conf.rx_depth - 1) ||
		run->conf.post_list > run->conf.tx_depth)
		return lose_nonsense(run->other, "run");
	return 0;
}

int other_take(struct run *run)
{
	json_t *message;
	int err = await(run->other, "run", &message);

	if (!err)
		err = take_parameters(run, message);
	json_decref(message);
	return err;
}

int other_accept(struct run *run)
{
	return tell(
		run->other, json_pack("{s:s, s:i}", "say", "accept", "link", run->port_info.link));
}

/* ---- where the ends are ---- */

static json_t *hex(const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	char text[128];

	for (size_t i = 0; i < n; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	return json_stringn(text, 2 * n);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool unhex(const json_t *text, uint8_t *bytes, size_t n)
{
	const char *at = json_string_value(text);

	if (!at || json_string_length(text) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int high = digit(at[2 * i]), low = digit(at[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool take_end(struct end *end, const json_t *pair)
{
	return unhex(json_array_get(pair, 0), end->peer_address.bytes, sizeof(end->peer_address)) &&
		unhex(json_array_get(pair, 1), end->peer_handle.bytes, sizeof(end->peer_handle));
}

/* The list of a message, of one element for each end; NULL: it has no such list. */
static const json_t *list_of(const struct run *run, const json_t *message)
{
	const json_t *list = json_object_get(message, "ends");

	return json_array_size(list) == (size_t)run->n_ends ? list : NULL;
}

int other_swap_ends(struct run *run)
{
	json_t *list = json_array(), *message;
	const json_t *theirs;
	int err;

	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];

		json_array_append_new(list,
			json_pack("[o, o]", hex(end->address.bytes, sizeof(end->address)),
				hex(end->handle.bytes, sizeof(end->handle))));
	}
	err = tell(run->other, json_pack("{s:s, s:o}", "say", "ends", "ends", list));
	if (!err)
		err = await(run->other, "ends", &message);
	if (err)
		return err;
	theirs = list_of(run, message);
	for (int i = 0; i < run->n_ends && !err; i++)
		if (!theirs || !take_end(&run->ends[i], json_array_get(theirs, (size_t)i)))
			err = lose_nonsense(run->other, "ends");
	json_decref(message);
	return err;
}

int other_ready(struct run *run)
{
	json_t *message;
	int err = tell(run->other, json_pack("{s:s}", "say", "ready"));

	if (!err)
		err = await(run->other, "ready", &message);
	if (!err)
		json_decref(message);
	return err;
}

/* ---- the end ---- */

static void take_sent(struct run *run, const json_t *message)
{
	const json_t *list = list_of(run, message);

	if (!list) {
		lose_nonsense(run->other, "end");
		return;
	}
	for (int i = 0; i < run->n_ends; i++)
		store_once(&run->ends[i].peer_sent,
			(uint64_t)json_integer_value(json_array_get(list, (size_t)i)));
	run->other->ended = true;
}

bool other_poll(struct run *run, uint64_t timeout_ns)
{
	struct other *other = run->other;
	json_t *message;
	int err;

	if (other->ended || other->lost)
		return true;
	err = hear(other, timeout_ns, &message);
	if (err)
		return err != -ETIMEDOUT;
	if (says(message, "end"))
		take_sent(run, message);
	else
		lose_nonsense(other, "end");
	json_decref(message);
	return true;
}

void other_is_silent(struct run *run)
{
	lose(run->other,
		"the other process does not answer in time: see whether it is stopped, or its host");
}

/* When no end of this process sends any more. */
int other_tell_end(struct run *run)
{
	json_t *list = json_array();

	for (int i = 0; i < run->n_ends; i++)
		json_array_append_new(
			list, json_integer((json_int_t)load_once(&run->ends[i].sent)));
	return tell(run->other, json_pack("{s:s, s:o}", "say", "end", "ends", list));
}

/* ---- what came of it ---- */

#define N_COUNTS (offsetof(struct tally, failed) / sizeof(uint64_t))

static json_t *tally_json(const struct tally *tally)
{
	const uint64_t *counts = (const uint64_t *)tally;
	json_t *list = json_array();

	for (size_t i = 0; i < N_COUNTS; i++)
		json_array_append_new(list, json_integer((json_int_t)counts[i]));
	json_array_append_new(list, json_integer(tally->failed));
	return list;
}

static bool take_tally(struct tally *tally, const json_t *list)
{
	uint64_t *counts = (uint64_t *)tally;

	if (json_array_size(list) != N_COUNTS + 1)
		return false;
	for (size_t i = 0; i < N_COUNTS; i++)
		counts[i] = (uint64_t)json_integer_value(json_array_get(list, i));
	tally->failed = json_integer_value(json_array_get(list, N_COUNTS)) != 0;
	return true;
}

static json_t *times_json(const struct run *run)
{
	uint64_t percentiles[N_PERCENTILES] = {0};
	json_t *list = json_array();

	if (run->conf.latency)
		percentiles_take(run, percentiles);
	for (size_t i = 0; i < N_PERCENTILES; i++)
		json_array_append_new(list, json_integer((json_int_t)percentiles[i]));
	return list;
}

static void take_window(struct other *other, const json_t *message)
{
	const json_t *times = json_object_get(message, "times");

	for (size_t i = 0; i < N_PERCENTILES; i++)
		other->percentiles[i] = (uint64_t)json_integer_value(json_array_get(times, i));
	other->messages = (uint64_t)json_integer_value(json_object_get(message, "messages"));
	other->window_ns = (uint64_t)json_integer_value(json_object_get(message, "window_ns"));
	other->first_message_seconds =
		json_number_value(json_object_get(message, "first_message_seconds"));
}

int other_swap_tallies(struct run *run, const char *say)
{
	struct window window;
	json_t *list = json_array(), *message;
	const json_t *theirs;
	int err;

	window_take(run, &window);
	for (int i = 0; i < run->n_ends; i++)
		json_array_append_new(list, tally_json(&run->ends[i].tally));
	err = tell(run->other,
		json_pack("{s:s, s:o, s:o, s:I, s:I, s:o}", "say", say, "times", times_json(run),
			"ends", list, "messages", (json_int_t)window.messages, "window_ns",
			(json_int_t)window.ns, "first_message_seconds",
			json_number(window.first_message_seconds)));
	if (!err)
		err = await(run->other, say, &message);
	if (err)
		return err;
	theirs = list_of(run, message);
	for (int i = 0; i < run->n_ends && !err; i++)
		if (!theirs ||
			!take_tally(&run->ends[i].peer_tally, json_array_get(theirs, (size_t)i)))
			err = lose_nonsense(run->other, say);
	take_window(run->other, message);
	json_decref(message);
	run->other->told = !err;
	return err;
}

/* ---- meeting ---- */

static const struct vbn_session_conf session_conf = {
	.service = SERVICE, .version_min = 2, .version_max = 2, .max_message = MAX_MESSAGE};

int other_connect(struct other *other, const char *address)
{
	int err = vbn_session_connect(address, &session_conf, &other->session);

	other->leads = true;
	if (err == -ECANCELED || stop_signal()) {
		vbn_session_close(other->session, NULL);
		other->session = NULL;
		return STATUS_STOPPED;
	}
	if (err == -EINVAL)
		return STATUS_USAGE;
	if (err)
		library_failed(err, "the other process is not reached");
	return err ? STATUS_NO_PEER : 0;
}

int other_listen(struct other *other, const char *address)
{
	int err = vbn_session_listen(address, &session_conf, &other->listener);

	if (err)
		return err == -EINVAL ? STATUS_USAGE
				      : library_failed(err, "this process cannot listen");
	say("listening on %s", vbn_session_listener_address(other->listener));
	return 0;
}

int other_wait(struct other *other)
{
	int err = -ETIMEDOUT;

	while (err == -ETIMEDOUT && !stop_signal())
		err = vbn_session_accept(other->listener, SLICE, &other->session);
	if (stop_signal())
		return STATUS_STOPPED;
	return err ? library_failed(err, "no peer can be accepted") : 0;
}

void other_part(struct other *other, const char *reason)
{
	vbn_session_close(other->session, reason);
	free(other->buffer);
	*other = (struct other){.listener = other->listener};
}
