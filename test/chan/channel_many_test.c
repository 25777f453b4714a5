/* channel_many_test.c - thousands of channels in one worker, and thousands one after the other:
 * memory, descriptors and bufs
 *
 * How many is an argument: channel_many_test CHANNELS CYCLES.
 */

#include "channel_fixture.h"

#include "../unit/held.h"

#include <malloc.h>
#include <sys/resource.h>

static int n_channels = 4096, n_cycles = 10000;

/* What only counts, for channels that are not one of the fixture's ends. */
static struct {
	int opened, accepted, failed, closed;
	uint64_t messages, unanswered;
	struct vbn_channel **here, **there;
} many;

static int accept_one(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	(void)data, (void)len, (void)arg;
	many.there[many.accepted++] = channel;
	return 0;
}

static void on_event(const struct vbn_channel_event *event)
{
	struct vbn_channel *channel = event->channel;
	struct vbn_buf *buf = event->buf;

	switch (event->op) {
	case VBN_CHANNEL_OPENED: many.opened++; break;
	case VBN_CHANNEL_FAILED:
		if (!many.failed++)
			fprintf(stderr, "%s\n", vbn_channel_error(channel));
		break;
	case VBN_CHANNEL_CLOSED: many.closed++; break;
	case VBN_CHANNEL_MESSAGE:
		many.messages++;
		/* the listening end answers each by sending it back */
		if (vbn_channel_group_of(channel) == f.there) {
			if (vbn_channel_send(channel, &buf, 1) == 1)
				break;
			many.unanswered++; /* its ring is full */
		}
		vbn_channel_release(event);
		break;
	}
}

static int turn_many(void)
{
	struct vbn_channel_group *groups[] = {f.here, f.there};
	struct vbn_channel_event events[256];
	int did = 0;

	for (int g = 0; g < 2; g++) {
		int n = vbn_channel_poll(groups[g], events, 256);

		for (int i = 0; i < n; i++)
			on_event(&events[i]);
		did += n;
	}
	vbn_worker_poll(f.worker);
	if (!did)
		sched_yield();
	return did;
}

#define many_until(condition)                                                              \
	do {                                                                               \
		uint64_t begin_ = clock_ns();                                              \
		while (!(condition)) {                                                     \
			if (turn_many())                                                   \
				begin_ = clock_ns();                                       \
			if (clock_ns() - begin_ > LONG_NS || many.failed)                  \
				unit_fail("never: %s; the log: %s", #condition, unit_log); \
		}                                                                          \
	} while (0)

static void make_many(int n, uint32_t buf_size)
{
	const struct vbn_channel_group_conf conf = {.max_channels = (uint32_t)n,
		.buf_size = buf_size,
		.window = 16,
		.tx_depth = 16,
		.n_held = 1024,
		.keepalive_ns = 10 * SECOND_NS,
		.give_up_ns = 20 * SECOND_NS,
		.connect_ns = LONG_NS};

	memset(&many, 0, sizeof(many));
	many.here = calloc((size_t)n, sizeof(struct vbn_channel *));
	many.there = calloc((size_t)n, sizeof(struct vbn_channel *));
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, &conf, &f.here), 0);
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, &conf, &f.there), 0);
	assert_int_equal(
		vbn_channel_listen(f.there, "127.0.0.1:0", accept_one, NULL, &f.listener), 0);
}

static void free_many(void)
{
	vbn_channel_group_destroy(f.here);
	vbn_channel_group_destroy(f.there);
	f.here = f.there = NULL;
	free(many.here);
	free(many.there);
}

static void connect_one(int i)
{
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), NULL,
				 0, &many.here[i]),
		0);
}

static void send_on(struct vbn_channel *channel)
{
	struct vbn_buf *buf;

	while (vbn_buf_alloc(f.pool, &buf, 1) < 0)
		turn_many();
	buf->len = 64;
	while (vbn_channel_send(channel, &buf, 1) != 1)
		turn_many();
}

/* What this end of a channel takes of memory while it is idle: its own, its queue's, and what
 * libmlx5 has of it; its ring, 16 WQEBBs of 64 bytes, apart. The emulated device's part is no
 * program's. */
static void print_memory(void)
{
	printf("an idle channel has %zu bytes here, and its queue %zu\n",
		malloc_usable_size(many.here[0]), malloc_usable_size(many.here[0]->queue));
}

static void thousands_of_channels_in_one_worker(void **state)
{
	struct rlimit files;
	uint64_t begin = clock_ns(), connected, sent;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &files);
	make_many(n_channels, 256);
	/* no more at a time than sockets can be had */
	for (int i = 0; i < n_channels; i++) {
		connect_one(i);
		many_until(i + 1 - many.opened / 2 < min(200, (int)files.rlim_cur / 4));
	}
	many_until(many.opened == 2 * n_channels);
	connected = clock_ns();
	print_memory();
	for (int round = 0; round < 4; round++)
		for (int i = 0; i < n_channels; i++)
			send_on(many.here[i]);
	many_until(many.messages + many.unanswered == 2 * 4 * (uint64_t)n_channels);
	sent = clock_ns();
	printf("%d channels: connected at %.0f a second; %.0f messages a second over all of them\n",
		n_channels, n_channels * 1e9 / (double)(connected - begin),
		2 * 4 * n_channels * 1e9 / (double)(sent - connected));
	assert_int_equal(f.there->counts[COUNT_FAILED] + f.here->counts[COUNT_FAILED], 0);
	free_many();
}

/* One channel opened, used and closed by both ends. */
static void cycle(void)
{
	many.opened = many.accepted = many.closed = 0;
	many.messages = 0;
	connect_one(0);
	many_until(many.opened == 2);
	send_on(many.here[0]);
	many_until(many.messages == 2);
	vbn_channel_end(many.here[0]);
	vbn_channel_end(many.there[0]);
	many_until(many.closed == 2);
	vbn_channel_close(many.here[0]);
	vbn_channel_close(many.there[0]);
}

static void channels_that_come_and_go_leave_nothing(void **state)
{
	const int warm_up = n_cycles / 10;
	size_t bytes = 0;
	int fds = 0;
	uint64_t begin = clock_ns();

	(void)state;
	make_many(4, 256);
	for (int i = 0; i < n_cycles; i++) {
		cycle();
		if (i + 1 != warm_up)
			continue;
		many_until(!f.here->n_channels && !f.there->n_channels);
		bytes = mallinfo2().uordblks;
		fds = held_descriptors();
	}
	many_until(!f.here->n_channels && !f.there->n_channels);
	printf("%d cycles, %.0f a second; %zu bytes of heap behind the first %d, %zu at the end; %d and %d descriptors\n",
		n_cycles, n_cycles * 1e9 / (double)(clock_ns() - begin), bytes, warm_up,
		(size_t)mallinfo2().uordblks, fds, held_descriptors());
	/* a connection being wound up may have its descriptor still */
	assert_in_range(held_descriptors(), 1, fds + 8);
	/* of ten thousand, a lost block in every fourth would be seen */
	if (!UNIT_SHADOW)
		assert_in_range(mallinfo2().uordblks, 1, bytes + (64 << 10));
	free_many();
}

/* The largest there is: from bufs of 64 MiB, to a place of its size. Run where thousands are. */
static void a_message_of_a_gibibyte(void **state)
{
	const struct vbn_channel_group_conf conf = {.max_channels = 1,
		.buf_size = 4096,
		.window = 16,
		.max_message = 1ull << 30,
		.landing_size = 1ull << 30,
		.give_up_ns = 20 * SECOND_NS};
	struct vbn_pool_conf bufs = {.n_bufs = 16, .data_size = 64 << 20, .name = "gibibyte"};
	struct vbn_channel_event event = {0};
	struct vbn_buf *buf, *message = NULL;
	struct vbn_pool *pool;
	uint64_t begin;

	(void)state;
	if (n_channels < 1000)
		return;
	memset(&many, 0, sizeof(many));
	many.there = calloc(1, sizeof(*many.there));
	many.here = calloc(1, sizeof(*many.here));
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, &conf, &f.here), 0);
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, &conf, &f.there), 0);
	assert_int_equal(
		vbn_channel_listen(f.there, "127.0.0.1:0", accept_one, NULL, &f.listener), 0);
	assert_int_equal(vbn_pool_create(&bufs, &pool), 0);
	assert_int_equal(vbn_port_register(f.port, vbn_pool_zone(pool)), 0);
	connect_one(0);
	many_until(many.opened == 2);
	for (uint64_t i = 0; i < 16; i++) {
		assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
		buf->len = 64 << 20;
		memset(buf->data, (int)(i + 1), buf->len);
		if (message)
			vbn_buf_append(message, buf);
		else
			message = buf;
	}
	begin = clock_ns();
	assert_int_equal(vbn_channel_send(many.here[0], &message, 1), 1);
	while (!event.channel || event.op != VBN_CHANNEL_MESSAGE) {
		struct vbn_channel_event other;

		vbn_channel_poll(f.here, &other, 1);
		vbn_channel_poll(f.there, &event, 1);
		vbn_worker_poll(f.worker);
	}
	printf("a message of 1 GiB took %.1f s\n", (double)(clock_ns() - begin) / 1e9);
	assert_int_equal(event.len, 1ull << 30);
	for (uint64_t at = 0; at < event.len; at += 4093)
		assert_int_equal(event.data[at], (at >> 26) + 1);
	vbn_channel_release(&event);
	many_until(vbn_pool_available(pool) == 16);
	free_many();
	vbn_pool_destroy(pool);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		with_fixture(thousands_of_channels_in_one_worker),
		with_fixture(channels_that_come_and_go_leave_nothing),
		with_fixture(a_message_of_a_gibibyte),
	};

	mallopt(M_ARENA_MAX, 1); /* what mallinfo2() counts */
	n_channels = argc > 1 ? atoi(argv[1]) : n_channels;
	n_cycles = argc > 2 ? atoi(argv[2]) : n_cycles;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
