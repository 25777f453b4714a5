/* channels.c - what a message costs over few channels and over many: instructions by room of the
 * library, the rate, and the memory that a channel takes
 *
 * Both ends are in one worker. A message is sent on a channel of the one group, answered by the other
 * group, and the answer is received: two messages with their completions. A burst of 64 goes over
 * channels that take turns, `together` messages each, and nothing is under way when it begins: so each
 * doorbell has as many messages behind it, and each completion, however many channels there are.
 */
#include "bench.h"
#include "heap.h"

#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

enum { SIZE = 64, WINDOW = 16, DIALING = 100, MOST_BYTES = 4096 };

static struct vbn_worker *worker;
static struct vbn_port *port;
static struct vbn_channel_group *asking, *answering;
static struct vbn_channel_listener *listener;
static struct vbn_channel **channels;
static int n_channels, n_opened, together = 4, few; /* few: as many as a burst goes over */
static struct vbn_channel_event events[4 * BURST];
static struct vbn_buf *bufs[BURST];
static int in_use, next_channel; /* the first so many of the channels; whose turn it is */
static int result, left;
static long rest = 300; /* until all has landed */

static void must(int error, const char *what)
{
	if (error < 0)
		die("%s failed: %s", what, strerror(-error));
}

/* ---- the program between the calls ---- */

static struct vbn_channel *whose_turn(void)
{
	struct vbn_channel *channel = channels[next_channel];

	if (++next_channel >= in_use)
		next_channel = 0;
	return channel;
}

static inline __attribute__((always_inline)) void ask(void)
{
	int taken = 0;

	for (int i = 0; i < BURST; i += together)
		taken += vbn_channel_send(whose_turn(), &bufs[i], together);
	vbn_worker_poll(worker);
	result = taken;
}

static inline __attribute__((always_inline)) void answer(void)
{
	int n = vbn_channel_poll(answering, events, 4 * BURST), taken = 0;

	for (int i = 0; i < n; i++)
		taken += vbn_channel_send(events[i].channel, &events[i].buf, 1);
	vbn_worker_poll(worker);
	result = taken;
}

static inline __attribute__((always_inline)) void receive(void)
{
	int n = vbn_channel_poll(asking, events, 4 * BURST);

	for (int i = 0; i < n; i++)
		vbn_channel_release(&events[i]);
	result = n;
}

static __attribute__((noinline)) void measure_ask(void)
{
	ask();
}

static __attribute__((noinline)) void measure_answer(void)
{
	answer();
}

static __attribute__((noinline)) void measure_receive(void)
{
	receive();
}

/* ---- acts ---- */

/* What comes of a burst, however it comes; false where it has not come at once. Polls are few, for
 * many empty ones would have the library ask for completions that a busy worker gets anyway. */
static bool finish(void (*call)(void))
{
	bool all = result == left;

	for (struct patience patience = patience_start(); (left -= result);) {
		patience_wait(&patience, "messages of a burst");
		rest_us(rest);
		call();
	}
	return all;
}

static void finish_with(void (*call)(void))
{
	left = BURST;
	result = 0;
	finish(call);
}

static void prepare_ask(int of)
{
	in_use = of;
	if (vbn_buf_alloc(vbn_channel_group_pool(asking), bufs, BURST) != BURST)
		die("the pool has no %d bufs left: something was not freed", BURST);
	for (int i = 0; i < BURST; i++) {
		bufs[i]->len = SIZE;
		memset(bufs[i]->data, i, SIZE);
	}
}

static bool settle_ask(void)
{
	if (result != BURST)
		die("%d of %d messages were taken", result, BURST);
	finish_with(answer);
	finish_with(receive);
	return true;
}

static void prepare_answer(int of)
{
	prepare_ask(of);
	ask();
	left = BURST;
	rest_us(rest); /* a round that is done again would be counted, too */
}

static bool settle_answer(void)
{
	bool all = finish(answer);

	finish_with(receive);
	return all;
}

static void prepare_receive(int of)
{
	prepare_answer(of);
	finish_with(answer);
	left = BURST;
	rest_us(rest);
}

static bool settle_receive(void)
{
	return finish(receive);
}

#define act_pair(act)                      \
	static void act##_few(void)        \
	{                                  \
		prepare_##act(few);        \
	}                                  \
	static void act##_many(void)       \
	{                                  \
		prepare_##act(n_channels); \
	}

act_pair(ask) act_pair(answer) act_pair(receive)

	enum { ASK_FEW,
		ANSWER_FEW,
		RECEIVE_FEW,
		ASK_MANY,
		ANSWER_MANY,
		RECEIVE_MANY,
		N_ACTS };
static const struct act all_acts[N_ACTS] = {
	{ask_few, measure_ask, settle_ask},
	{answer_few, measure_answer, settle_answer},
	{receive_few, measure_receive, settle_receive},
	{ask_many, measure_ask, settle_ask},
	{answer_many, measure_answer, settle_answer},
	{receive_many, measure_receive, settle_receive},
};
static const struct act *acts[N_ACTS];

/* Messages a second: a burst is under way at any time. */
static double rate(int of, double seconds)
{
	uint64_t begin, end, messages = 0;

	prepare_ask(of);
	ask();
	begin = now_ns();
	end = begin + (uint64_t)(seconds * 1e9);
	while (now_ns() < end) {
		int n;

		answer();
		n = vbn_channel_poll(asking, events, 4 * BURST);
		for (int i = 0; i < n; i++)
			must(vbn_channel_send(whose_turn(), &events[i].buf, 1) - 1, "sending");
		vbn_worker_poll(worker);
		messages += 2 * (uint64_t)n;
		if (!n)
			sched_yield();
	}
	end = now_ns();
	left = BURST;
	for (struct patience patience = patience_start(); left; left -= result) {
		answer();
		receive();
		if (!result)
			patience_wait(&patience, "the last answers");
	}
	return (double)messages * 1e9 / (double)(end - begin);
}

/* ---- set-up ---- */

static int on_offer(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	(void)channel, (void)data, (void)len, (void)arg;
	return 0;
}

static void connect_turn(void)
{
	struct vbn_channel_group *groups[] = {asking, answering};

	for (int g = 0; g < 2; g++) {
		int n = vbn_channel_poll(groups[g], events, 4 * BURST);

		for (int i = 0; i < n; i++) {
			if (events[i].op == VBN_CHANNEL_FAILED)
				die("%s", vbn_channel_error(events[i].channel));
			n_opened += events[i].op == VBN_CHANNEL_OPENED;
		}
	}
	vbn_worker_poll(worker);
	sched_yield();
}

static void connect_to(int of)
{
	const char *address = vbn_channel_listener_address(listener);

	for (int i = n_opened / 2; i < of; i++) {
		must(vbn_channel_connect(asking, address, NULL, 0, &channels[i]),
			"vbn_channel_connect");
		while (i - n_opened / 2 >= DIALING)
			connect_turn();
	}
	while (n_opened < 2 * of)
		connect_turn();
}

/* Bytes of heap that each end of the many takes. */
struct memory {
	double others, rings, device;
};

static struct memory open_all(const char *device)
{
	struct vbn_channel_group_conf conf = {.max_channels = (uint32_t)n_channels,
		.buf_size = 256,
		.window = WINDOW,
		.tx_depth = WINDOW,
		.n_held = 4 * BURST,
		.keepalive_ns = 3600000000000,
		.give_up_ns = 20000000000,
		.connect_ns = 60000000000};
	struct heap_use before, after;
	double ends = 2.0 * (n_channels - few);

	heap_use();
	if (vhca_present)
		vhca_present();
	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_port_open(device, NULL, &port), "vbn_port_open");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	must(vbn_channel_group_create(worker, port, &conf, &asking), "vbn_channel_group_create");
	must(vbn_channel_group_create(worker, port, &conf, &answering), "vbn_channel_group_create");
	must(vbn_channel_listen(answering, "127.0.0.1:0", on_offer, NULL, &listener),
		"vbn_channel_listen");
	channels = calloc((size_t)n_channels, sizeof(struct vbn_channel *));
	if (!channels)
		die("no memory for %d channels", n_channels);
	for (int i = 0; i < N_ACTS; i++)
		acts[i] = &all_acts[i];
	connect_to(few);
	before = heap_use();
	connect_to(n_channels);
	after = heap_use();
	return (struct memory){.others = (double)(after.others - before.others) / ends,
		.rings = (double)(after.rings - before.rings) / ends,
		.device = (double)(after.device - before.device) / ends};
}

static void close_all(void)
{
	vbn_channel_group_destroy(asking);
	vbn_channel_group_destroy(answering);
	free(channels);
	vbn_worker_detach(worker);
	vbn_port_close(port);
	vbn_fini();
}

/* ---- the report ---- */

/* A round trip's three acts are two messages. */
static double of_message(const struct cost *costs, int room)
{
	return (costs[0].rooms[room] + costs[1].rooms[room] + costs[2].rooms[room]) / 2;
}

static int measure(const char *device, double seconds, double limit, struct memory memory)
{
	static const char *const names[N_ROOMS] = {"driver", "channels", "port", "the rest", "all"};
	struct cost costs[N_ACTS];
	char count[16], each[16];
	int ret = 0;

	snprintf(count, sizeof(count), "%d", n_channels);
	snprintf(each, sizeof(each), "%d", together);
	printf("%-26s%5d channels%14s\n", "a message", few, count);
	if (count_costs((const char *const[]){"--device", device, "--channels", count, "--together",
				each, NULL},
		    costs, N_ACTS)) {
		for (int room = 0; room < N_ROOMS; room++) {
			double of_few = of_message(costs, room);
			double of_many = of_message(costs + 3, room);
			bool over = (room == ROOM_DRIVER || room == ROOM_ALL) &&
				of_many > limit * of_few;

			printf("%-10s instructions    %14.1f%14.1f  %.2f%s\n", names[room], of_few,
				of_many, of_many / of_few, over ? "  too many" : "");
			ret |= over;
		}
	} else {
		puts("no instructions without valgrind");
	}
	printf("%-26s%14.0f%14.0f\n", "messages a second", rate(few, seconds),
		rate(n_channels, seconds));
	printf("bytes of heap an end of a channel: %.0f, and its ring %.0f; the emulated device's %.0f\n",
		memory.others, memory.rings, memory.device);
	if (memory.others > MOST_BYTES) {
		printf("an idle channel may have %d bytes beyond its ring\n", MOST_BYTES);
		return 1;
	}
	if (ret)
		printf("over many channels a message may take %.2f of what it takes over few\n",
			limit);
	return ret;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"channels", required_argument, NULL, 'n'},
		{"together", required_argument, NULL, 't'},
		{"seconds", required_argument, NULL, 's'},
		{"count", no_argument, NULL, 'c'}, /* by the program itself, under callgrind */
		{},
	};
	const char *device = "mlx5:mlx5_0";
	double seconds = 1;
	struct memory memory;
	int option, ret = 0;
	bool count = false;

	n_channels = 4096;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'n': n_channels = (int)strtol(optarg, NULL, 10); break;
		case 't': together = (int)strtol(optarg, NULL, 10); break;
		case 's': seconds = strtod(optarg, NULL); break;
		case 'c':
			count = true;
			rest = 5000;
			break;
		default:
			fputs("usage: channels_bench [--device NAME] [--channels N] [--together 1|2|4|8] [--seconds T]\n",
				stderr);
			return 2;
		}
	}
	if (seconds <= 0 || together < 1 || together > 8 || BURST % together)
		die("--seconds is a number above 0, --together 1, 2, 4 or 8");
	few = BURST / together;
	if (n_channels <= few)
		die("--channels is a number above %d", few);
	memory = open_all(device);
	if (count)
		count_rounds(acts, N_ACTS);
	else
		ret = measure(device, seconds, 1.2, memory);
	close_all();
	return ret;
}
