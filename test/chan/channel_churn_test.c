/* channel_churn_test.c - channels that connect, fail and close beside busy ones: the worker waits for
 * the control thread not once, and not a message is lost
 *
 * Where a driver's queues cannot be polled while one is made, it waits; all else holds.
 */

#include "channel_fixture.h"

enum { CROWD = 32, ROUNDS = 10, FULL = 4 };

static const struct vbn_channel_group_conf conf = {
	.max_channels = CROWD + 1, .buf_size = BUF_SIZE, .window = 16, .n_held = 64};

/* What has been told of all of the crowd. */
static struct {
	struct end told;
	struct vbn_channel *here[CROWD], *there[CROWD];
	int n_there;
	struct vbn_channel_listener *listener;
	uint64_t sent, answered; /* by the busy channel, each way */
} crowd;

static int accept_one(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	(void)data, (void)len, (void)arg;
	assert_true(crowd.n_there < CROWD);
	crowd.there[crowd.n_there++] = channel;
	vbn_channel_set_context(channel, &crowd.told);
	return 0;
}

static void send_some(struct end *end, uint64_t *sent)
{
	for (int i = 0; i < 4 && vbn_pool_available(f.pool) > N_BUFS / 2; i++) {
		struct vbn_buf *buf = new_message(f.pool, *sent + 1, 64);

		if (vbn_channel_send(end->channel, &buf, 1) != 1) {
			vbn_buf_free(&buf, 1);
			return;
		}
		++*sent;
	}
}

/* The busy channel is busy both ways. */
static void busy_turn(void)
{
	send_some(&f.a[0], &crowd.sent);
	send_some(&f.b[0], &crowd.answered);
	turn();
}

#define busy_until(condition)                                                              \
	do {                                                                               \
		uint64_t begin_ = clock_ns();                                              \
		while (!(condition)) {                                                     \
			busy_turn();                                                       \
			if (clock_ns() - begin_ > LONG_NS)                                 \
				unit_fail("never: %s; the log: %s", #condition, unit_log); \
		}                                                                          \
	} while (0)

static void start_busy(const struct vbn_channel_group_conf *group)
{
	memset(&crowd, 0, sizeof(crowd));
	make_groups(group, group);
	open_channel(0);
	assert_int_equal(
		vbn_channel_listen(f.there, "127.0.0.1:0", accept_one, NULL, &crowd.listener), 0);
}

static void connect_crowd(int n)
{
	const char *address = vbn_channel_listener_address(crowd.listener);

	crowd.n_there = 0;
	memset(&crowd.told, 0, sizeof(crowd.told));
	for (int i = 0; i < n; i++) {
		assert_int_equal(vbn_channel_connect(f.here, address, NULL, 0, &crowd.here[i]), 0);
		vbn_channel_set_context(crowd.here[i], &crowd.told);
	}
}

static void close_crowd(int n)
{
	for (int i = 0; i < n; i++)
		vbn_channel_close(crowd.here[i]);
	busy_until(crowd.told.seen[VBN_CHANNEL_FAILED] == n);
	for (int i = 0; i < n; i++)
		vbn_channel_close(crowd.there[i]);
}

/* Queues that can be polled while others are made are what mlx5's are. */
static void check_waits(uint64_t before)
{
	if (f.port->driver->queue_part)
		assert_int_equal(vbn__control_waits(), before);
}

static void finish_busy(void)
{
	busy_until(f.here->n_channels == 1 && f.there->n_channels == 1);
	turn_until(f.b[0].received == crowd.sent && f.a[0].received == crowd.answered);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_FAILED] + f.b[0].seen[VBN_CHANNEL_FAILED], 0);
}

static void a_busy_worker_waits_for_no_connection(void **state)
{
	uint64_t waits;

	(void)state;
	start_busy(&conf);
	waits = vbn__control_waits();
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t received = f.b[0].received, answered = f.a[0].received;

		connect_crowd(CROWD);
		busy_until(crowd.told.seen[VBN_CHANNEL_OPENED] == 2 * CROWD);
		close_crowd(CROWD);
		busy_until(f.b[0].received > received && f.a[0].received > answered);
	}
	check_waits(waits);
	finish_busy();
	check_waits(waits);
}

/* Closed in every state that connecting has, by the end that connects. */
static void channels_closed_on_their_way_leave_nothing(void **state)
{
	uint64_t waits;

	(void)state;
	start_busy(&conf);
	waits = vbn__control_waits();
	for (int turns = 0; turns < 40; turns++) {
		connect_crowd(2);
		for (int i = 0; i < turns; i++)
			busy_turn();
		vbn_channel_close(crowd.here[0]);
		vbn_channel_close(crowd.here[1]);
		/* those that had been accepted fail, or never were */
		busy_until(crowd.told.seen[VBN_CHANNEL_FAILED] == crowd.n_there &&
			f.here->n_channels == 1);
		for (int i = 0; i < 3; i++)
			busy_turn();
		busy_until(crowd.told.seen[VBN_CHANNEL_FAILED] == crowd.n_there);
		for (int i = 0; i < crowd.n_there; i++)
			vbn_channel_close(crowd.there[i]);
		busy_until(f.there->n_channels == 1);
	}
	check_waits(waits);
	finish_busy();
}

/* A channel that has been given back makes room at once; the next one's queue waits for its ring. */
static void a_full_group_takes_another_for_one_that_is_closed(void **state)
{
	struct vbn_channel_group_conf full = conf;

	(void)state;
	full.max_channels = FULL + 1;
	start_busy(&full);
	connect_crowd(FULL);
	busy_until(crowd.told.seen[VBN_CHANNEL_OPENED] == 2 * FULL);
	for (int round = 0; round < 20; round++) {
		struct vbn_channel *next;
		int at = round % FULL, opened = crowd.told.seen[VBN_CHANNEL_OPENED];

		assert_int_equal(
			vbn_channel_connect(f.here, vbn_channel_listener_address(crowd.listener),
				NULL, 0, &next),
			-ENOSPC);
		vbn_channel_close(crowd.there[at]);
		vbn_channel_close(crowd.here[at]);
		assert_int_equal(
			vbn_channel_connect(f.here, vbn_channel_listener_address(crowd.listener),
				NULL, 0, &crowd.here[at]),
			0);
		vbn_channel_set_context(crowd.here[at], &crowd.told);
		crowd.n_there = at;
		busy_until(crowd.told.seen[VBN_CHANNEL_OPENED] == opened + 2);
	}
	crowd.told.seen[VBN_CHANNEL_FAILED] = 0;
	close_crowd(FULL);
	finish_busy();
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_fixture(a_busy_worker_waits_for_no_connection),
		with_fixture(channels_closed_on_their_way_leave_nothing),
		with_fixture(a_full_group_takes_another_for_one_that_is_closed),
	};

	cmocka_set_test_filter(getenv("CHANNEL_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
