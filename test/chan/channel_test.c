/* channel_test.c - channels on an emulated device: opened, refused, messages of every kind, flow
 * control, large messages, the end */

#include "channel_fixture.h"

#include <pthread.h>

static const struct vbn_channel_group_conf small = {
	.max_channels = 4, .buf_size = BUF_SIZE, .window = 16, .n_held = 64};

static const struct vbn_channel_group_conf large = {.max_channels = 4,
	.buf_size = BUF_SIZE,
	.window = 16,
	.n_held = 64,
	.max_message = 1 << 20,
	.landing_size = 3 << 19};

static void open_one(const struct vbn_channel_group_conf *conf)
{
	make_groups(conf, conf);
	open_channel(0);
}

/* ---- connecting ---- */

static void both_ends_open_and_know_each_other(void **state)
{
	struct vbn_channel_group_conf there = small;

	(void)state;
	there.buf_size = 512;
	there.max_message = 4096;
	make_groups(&small, &there);
	open_channel(0);
	assert_int_equal(vbn_channel_buf_size(f.a[0].channel), 512);
	assert_int_equal(vbn_channel_buf_size(f.b[0].channel), BUF_SIZE);
	assert_int_equal(vbn_channel_max_message(f.a[0].channel), 4096);
	assert_non_null(strstr(vbn_channel_peer(f.b[0].channel), "127.0.0.1:"));
	assert_string_equal(
		vbn_channel_peer(f.a[0].channel), vbn_channel_listener_address(f.listener));
	assert_int_equal(f.a[0].n_order, 1);
	assert_int_equal(f.b[0].n_order, 1);
}

static void an_application_may_refuse(void **state)
{
	(void)state;
	make_groups(&small, &small);
	f.refuse = EACCES;
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), "x",
				 1, &f.a[0].channel),
		0);
	vbn_channel_set_context(f.a[0].channel, &f.a[0]);
	turn_until(f.a[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(
		f.a[0].error, "refuses: the application that listens refuses: Permission denied");
	turn_until(!f.there->n_channels);
	/* and take the next one */
	f.refuse = 0;
	vbn_channel_close(f.a[0].channel);
	memset(&f.a[0], 0, sizeof(f.a[0]));
	open_channel(0);
}

/* Both answers bring what the application says with them, to the end that has connected. */
static void an_answer_brings_data(void **state)
{
	char most[VBN_CHANNEL_MAX_DATA + 2] = "";

	(void)state;
	make_groups(&small, &small);
	memset(most, 'm', VBN_CHANNEL_MAX_DATA);
	f.answer = "come in";
	open_channel(0);
	assert_int_equal(f.a[0].told_len, strlen(f.answer));
	assert_memory_equal(f.a[0].told, f.answer, strlen(f.answer));
	assert_int_equal(f.b[0].told_len, 0);
	/* it is for who has been asked, and only then */
	assert_int_equal(vbn_channel_answer(f.b[0].channel, "x", 1), -EINVAL);
	f.answer = most;
	f.refuse = EACCES;
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), "x",
				 1, &f.a[1].channel),
		0);
	vbn_channel_set_context(f.a[1].channel, &f.a[1]);
	turn_until(f.a[1].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[1].error, "the application that listens refuses: Permission denied");
	assert_int_equal(f.a[1].told_len, VBN_CHANNEL_MAX_DATA);
	assert_memory_equal(f.a[1].told, most, VBN_CHANNEL_MAX_DATA);
	send_all(&f.a[0], f.pool, 1, 100, 100);
	turn_until(f.b[0].received == 100);
}

static void a_full_group_refuses(void **state)
{
	struct vbn_channel_group_conf one = small;
	struct vbn_channel *channel;

	(void)state;
	one.max_channels = 1;
	make_groups(&small, &one);
	open_channel(0);
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), NULL,
				 0, &f.a[1].channel),
		0);
	vbn_channel_set_context(f.a[1].channel, &f.a[1]);
	turn_until(f.a[1].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[1].error, "has all the channels that it can have");
	assert_int_equal(vbn_channel_connect(f.there, "127.0.0.1:1", NULL, 0, &channel), -ENOSPC);
}

static void nobody_there_is_said(void **state)
{
	struct vbn_channel_group_conf hasty = small;
	struct vbn_channel *channel;

	(void)state;
	hasty.connect_ns = SECOND_NS / 100;
	make_groups(&hasty, &small);
	vbn_channel_unlisten(f.listener);
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), NULL,
				 0, &f.a[0].channel),
		0);
	vbn_channel_set_context(f.a[0].channel, &f.a[0]);
	turn_until(f.a[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[0].error, "cannot be reached: Connection refused");
	assert_int_equal(vbn_channel_connect(f.here, "a.name:80", NULL, 0, &channel), -EINVAL);
	assert_int_equal(
		vbn_channel_connect(f.here, "127.0.0.1:1", f.data, 513, &channel), -EINVAL);
}

/* Those that were accepted learn that the other end has gone. */
static bool all_are_gone(void)
{
	while (f.n_b && f.b[f.n_b - 1].seen[VBN_CHANNEL_FAILED]) {
		struct end *end = &f.b[--f.n_b];

		vbn_channel_close(end->channel);
		memset(end, 0, sizeof(*end));
	}
	return !f.n_b && !f.here->n_channels && !f.there->n_channels;
}

static void a_channel_may_be_closed_while_connecting(void **state)
{
	(void)state;
	make_groups(&small, &small);
	for (int turns = 0; turns < 12; turns++) {
		struct vbn_channel *channel;

		assert_int_equal(
			vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), NULL,
				0, &channel),
			0);
		vbn_channel_set_context(channel, &f.a[1]);
		for (int i = 0; i < turns * 20; i++)
			turn();
		vbn_channel_close(channel);
		turn_until(all_are_gone());
	}
}

/* To close a channel that one is asked about is to refuse it; it was freed under the asker's hands
 * once. And without a function that is asked there is no listener. */
static int close_it(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	(void)data;
	(void)len;
	(void)arg;
	vbn_channel_close(channel);
	return 0;
}

static void a_channel_may_be_closed_while_it_is_asked_about(void **state)
{
	struct vbn_channel_listener *listener;

	(void)state;
	make_groups(&small, &small);
	unit_catch_log();
	assert_int_equal(
		vbn_channel_listen(f.there, "127.0.0.1:0", NULL, NULL, &listener), -EINVAL);
	assert_logged("name a function that accepts them");
	assert_int_equal(vbn_channel_listen(f.there, "127.0.0.1:0", close_it, NULL, &listener), 0);
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(listener), "x", 1,
				 &f.a[0].channel),
		0);
	vbn_channel_set_context(f.a[0].channel, &f.a[0]);
	turn_until(f.a[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[0].error, "the application that listens refuses");
	turn_until(!f.there->n_channels);
}

/* Destroyed when its worker has ended, a group used to look for the worker's memory. */
static void a_group_may_be_destroyed_after_its_worker(void **state)
{
	struct vbn_buf *buf;

	(void)state;
	open_one(&large);
	buf = new_message(f.pool, 1, 100);
	assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), 1);
	vbn_worker_detach(f.worker);
	vbn_channel_group_destroy(f.here);
	vbn_channel_group_destroy(f.there);
	f.here = f.there = NULL;
	memset(f.a, 0, sizeof(f.a));
	memset(f.b, 0, sizeof(f.b));
	assert_int_equal(vbn_worker_attach(NULL, &f.worker), 0);
}

static void *create_elsewhere(void *arg)
{
	struct vbn_channel_group *group;

	assert_int_equal(
		vbn_channel_group_create(f.worker, f.port, NULL, (struct vbn_channel_group **)arg),
		-EPERM);
	assert_int_equal(vbn_channel_group_create(NULL, f.port, NULL, &group), -EPERM);
	return NULL;
}

static void a_group_is_made_on_its_workers_thread(void **state)
{
	struct vbn_channel *channel;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, create_elsewhere, &f.here), 0);
	pthread_join(thread, NULL);
	assert_null(f.here);
	assert_int_equal(vbn_channel_group_create(f.worker, NULL, NULL, &f.here), -EINVAL);
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, NULL, &f.here), 0);
	assert_int_equal(vbn_channel_connect(f.here, NULL, NULL, 0, &channel), -EINVAL);
	assert_int_equal(vbn_channel_connect(f.here, "127.0.0.1:1", NULL, 5, &channel), -EINVAL);
	vbn_channel_group_destroy(f.here);
	f.here = NULL;
}

/* A group goes with whatever there is: half-open, open, with messages unread. */
static void a_group_may_end_with_all_it_has(void **state)
{
	struct vbn_channel *channel;
	struct vbn_buf *buf;

	(void)state;
	open_one(&small);
	for (uint64_t i = 1; i < 5; i++) {
		buf = new_message(f.pool, i, 100);
		assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), 1);
	}
	vbn_worker_poll(f.worker);
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), NULL,
				 0, &channel),
		0);
	vbn_channel_group_destroy(f.there);
	vbn_channel_group_destroy(f.here);
	f.here = f.there = NULL;
	memset(f.a, 0, sizeof(f.a));
	memset(f.b, 0, sizeof(f.b));
}

static void conf_out_of_range_is_refused(void **state)
{
	static const struct vbn_channel_group_conf bad[] = {
		{.max_channels = 1 << 20},
		{.buf_size = 8},
		{.window = 8},
		{.window = 24},
		{.tx_depth = 1 << 20},
		{.n_held = UINT32_MAX},
		{.shared = (enum vbn_switch)3},
		{.max_message = 1ull << 41},
		{.max_message = 1 << 20, .landing_size = 1 << 19},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(
			vbn_channel_group_create(f.worker, f.port, &bad[i], &f.here), -EINVAL);
}

/* ---- messages ---- */

static void messages_of_every_shape_arrive_whole(void **state)
{
	static const uint32_t sizes[] = {0, 1, 63, 64, 1000, BUF_SIZE};
	uint64_t number = 0;

	(void)state;
	open_one(&small);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct vbn_buf *buf, *tail;

		send_all(&f.a[0], f.pool, number + 1, number + 1, sizes[i]);
		send_all(&f.a[0], f.bare, number + 2, number + 2, sizes[i]);
		number += 3;
		/* a chain of both kinds */
		buf = new_message(f.pool, number, sizes[i] / 2);
		tail = new_message(f.bare, number, sizes[i] - sizes[i] / 2);
		fill(tail, number, sizes[i] / 2);
		vbn_buf_append(buf, tail);
		while (vbn_channel_send(f.a[0].channel, &buf, 1) != 1)
			turn();
	}
	turn_until(f.b[0].received == number);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_SENT], 0);
	turn_until(vbn_pool_available(f.pool) == N_BUFS && vbn_pool_available(f.bare) == N_BUFS);
}

static void bufs_come_back_where_they_are_asked_to(void **state)
{
	struct vbn_pool *pools[] = {f.pool, f.bare};

	(void)state;
	open_one(&small);
	for (int i = 0; i < 2; i++) {
		struct vbn_buf *buf = new_message(pools[i], (uint64_t)i * 2 + 1, 100);
		uint8_t *data = buf->data;
		struct vbn_channel_event event = {0};

		vbn_buf_set_cookie(buf, &f);
		assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), 1);
		next_event_here(&event);
		assert_int_equal(event.op, VBN_CHANNEL_SENT);
		assert_ptr_equal(event.buf, buf);
		assert_ptr_equal(event.cookie, &f);
		assert_int_equal(event.number, i * 2 + 1);
		/* as it was given */
		assert_ptr_equal(buf->data, data);
		assert_int_equal(buf->len, 100);
		/* and may be sent again, kept */
		buf->flags = VBN_BUF_KEEP;
		fill(buf, (uint64_t)i * 2 + 2, 0);
		assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), 1);
		turn_until(f.a[0].seen[VBN_CHANNEL_SENT] == i + 1);
		assert_int_equal(f.a[0].sent_number, i * 2 + 2);
	}
	turn_until(f.b[0].received == 4);
}

static void a_received_buf_can_be_sent_on(void **state)
{
	struct vbn_channel_event event;

	(void)state;
	open_one(&small);
	f.b[0].holds = true;
	send_all(&f.a[0], f.pool, 1, 1, 500);
	turn_until(f.b[0].n_held == 1);
	event = f.b[0].held[0];
	f.b[0].n_held = 0;
	assert_true(vbn_buf_headroom(event.buf) >= 16);
	assert_int_equal(vbn_channel_send(f.b[0].channel, &event.buf, 1), 1);
	turn_until(f.a[0].received == 1);
	assert_int_equal(f.a[0].received_bytes, 500);
}

static void what_is_too_large_is_said(void **state)
{
	struct vbn_buf *bufs[2];

	(void)state;
	open_one(&small);
	bufs[0] = new_message(f.pool, 1, BUF_SIZE);
	bufs[1] = new_message(f.pool, 1, 1);
	vbn_buf_append(bufs[0], bufs[1]);
	assert_int_equal(vbn_channel_send(f.a[0].channel, bufs, 1), -EMSGSIZE);
	bufs[1] = bufs[0];
	bufs[0] = new_message(f.pool, 1, 10);
	/* what stands before it is taken */
	assert_int_equal(vbn_channel_send(f.a[0].channel, bufs, 2), 1);
	vbn_buf_free(&bufs[1], 1);
	turn_until(f.b[0].received == 1);
}

/* Each end floods the other, with windows far smaller than what is under way. Were a send to find no
 * receive, the queue would fail: it retries none. */
static void floods_both_ways_keep_their_order(void **state)
{
	enum { N = 6000 };

	(void)state;
	open_one(&small);
	for (uint64_t i = 0; i < N; i += 60) {
		send_all(&f.a[0], f.pool, i + 1, i + 60, 200);
		send_all(&f.b[0], f.bare, i + 1, i + 60, 30);
	}
	turn_until(f.a[0].received == N && f.b[0].received == N);
	assert_true(f.here->counts[COUNT_CREDITS] + f.there->counts[COUNT_CREDITS] > 0);
}

/* One way: nothing but credits comes back. */
static void a_flood_one_way_is_kept_going_by_credits(void **state)
{
	enum { N = 5000 };

	(void)state;
	open_one(&small);
	send_all(&f.a[0], f.pool, 1, N, 64);
	turn_until(f.b[0].received == N);
	/* told in batches, not each */
	assert_true(f.there->counts[COUNT_CREDITS] <= N / 4);
	assert_true(f.there->counts[COUNT_CREDITS] >= N / 32);
}

static uint64_t try_to_send(uint64_t number)
{
	struct vbn_buf *buf = new_message(f.pool, number, 64);

	if (vbn_channel_send(f.a[0].channel, &buf, 1) == 1)
		return 1;
	vbn_buf_free(&buf, 1);
	return 0;
}

/* The receiver keeps all: what its pool has beyond the window is taken, then the sender has to wait,
 * and goes on when some are released. */
static void who_does_not_release_slows_its_peer(void **state)
{
	const uint64_t bufs = small.n_held + small.window * small.max_channels;
	uint64_t taken = 0;
	int ready;

	(void)state;
	open_one(&small);
	f.b[0].holds = true;
	/* some receives stay: for what is no message, and what the peer has not been told of */
	turn_until((taken += try_to_send(taken + 1)) && f.b[0].received + small.window >= bufs);
	for (int i = 0; i < 100; i++) {
		taken += try_to_send(taken + 1);
		turn();
	}
	turn_until(f.b[0].received == taken);
	assert_true(taken < bufs);
	ready = f.a[0].seen[VBN_CHANNEL_READY];
	release_held(&f.b[0], f.b[0].n_held);
	f.b[0].holds = false;
	turn_until(f.a[0].seen[VBN_CHANNEL_READY] > ready);
	send_all(&f.a[0], f.pool, taken + 1, taken + 1000, 64);
	turn_until(f.b[0].received == taken + 1000);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_FAILED] + f.b[0].seen[VBN_CHANNEL_FAILED], 0);
}

static void channels_do_not_hold_each_other_up(void **state)
{
	(void)state;
	open_one(&small);
	open_channel(1);
	open_channel(2);
	f.b[0].holds = true;
	send_all(&f.a[0], f.pool, 1, 20, 64);
	for (uint64_t i = 0; i < 1000; i += 50) {
		send_all(&f.a[1], f.pool, i + 1, i + 50, 100);
		send_all(&f.b[2], f.bare, i + 1, i + 50, 10);
	}
	turn_until(f.b[1].received == 1000 && f.a[2].received == 1000 && f.b[0].received == 20);
}

/* ---- large messages ---- */

static struct vbn_buf *new_large(struct vbn_pool *pool, uint64_t number, uint32_t n)
{
	struct vbn_buf *head = new_message(pool, number, BUF_SIZE), *last = head;

	for (uint32_t i = 1; i < n; i++) {
		struct vbn_buf *buf = new_message(pool, number, BUF_SIZE - (i == n - 1 ? 7 : 0));

		fill(buf, number, (uint64_t)i * BUF_SIZE);
		vbn_buf_append(last, buf);
		last = buf;
	}
	return head;
}

static void send_large(struct end *end, struct vbn_buf *buf)
{
	int ret;

	while (!(ret = vbn_channel_send(end->channel, &buf, 1)))
		turn();
	assert_int_equal(ret, 1);
}

static void large_messages_are_written_to_their_place(void **state)
{
	(void)state;
	open_one(&large);
	for (uint64_t i = 1; i <= 6; i += 2) {
		send_large(&f.a[0], new_large(f.pool, i, 500));
		send_large(&f.b[0], new_large(f.bare, i, 300));
		/* a small one behind each comes behind it */
		send_all(&f.a[0], f.pool, i + 1, i + 1, 10);
		send_all(&f.b[0], f.pool, i + 1, i + 1, 10);
	}
	turn_until(f.a[0].received == 6 && f.b[0].received == 6);
	assert_int_equal(f.b[0].received_bytes, 3 * (500 * BUF_SIZE - 7 + 10));
	assert_int_equal(f.here->counts[COUNT_LARGE_SENT], 3);
	assert_int_equal(f.there->counts[COUNT_LARGE_RECEIVED], 3);
	turn_until(vbn_pool_available(f.pool) == N_BUFS && vbn_pool_available(f.bare) == N_BUFS);
	assert_int_equal(f.there->landing.used, 0);
}

static void a_large_message_comes_back_whole(void **state)
{
	struct vbn_buf *buf = new_large(f.pool, 1, 200);
	struct vbn_channel_event event = {0};
	uint64_t total = vbn_buf_total(buf);

	(void)state;
	open_one(&large);
	vbn_buf_set_cookie(buf, &f.turn);
	send_large(&f.a[0], buf);
	next_event_here(&event);
	assert_int_equal(event.op, VBN_CHANNEL_SENT);
	assert_ptr_equal(event.buf, buf);
	assert_ptr_equal(event.cookie, &f.turn);
	assert_int_equal(vbn_buf_total(buf), total);
	turn_until(f.b[0].received == 1);
	vbn_buf_free(&buf, 1);
	assert_int_equal(vbn_pool_available(f.pool), N_BUFS);
}

/* One buf that holds all of it; what comes back in pieces of 1 KiB is the same. */
static void a_message_of_megabytes_arrives_whole(void **state)
{
	enum { SIZE = 3 << 19, N = 2 };
	struct vbn_channel_group_conf conf = large;
	struct vbn_pool *pool;

	(void)state;
	conf.max_message = conf.landing_size = 1 << 22;
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = N, .data_size = SIZE}, &pool), 0);
	assert_int_equal(vbn_port_register(f.port, vbn_pool_zone(pool)), 0);
	open_one(&conf);
	for (uint64_t i = 1; i <= N; i++)
		send_large(&f.a[0], new_message(pool, i, SIZE));
	turn_until(f.b[0].received == N && vbn_pool_available(pool) == N);
	assert_int_equal(f.b[0].received_bytes, N * SIZE);
	vbn_channel_close(f.a[0].channel);
	f.a[0].channel = NULL;
	vbn_pool_destroy(pool);
}

/* There is room for three of them: the fourth waits until one is released, and holds up nobody
 * else. */
static void a_large_message_waits_for_room(void **state)
{
	(void)state;
	open_one(&large);
	open_channel(1);
	f.b[0].holds = true;
	for (uint64_t i = 1; i <= 3; i++)
		send_large(&f.a[0], new_large(f.pool, i, 500));
	turn_until(f.b[0].n_held == 3);
	send_large(&f.a[0], new_large(f.pool, 4, 500));
	send_all(&f.a[1], f.bare, 1, 100, 10);
	turn_until(f.b[1].received == 100);
	assert_int_equal(f.b[0].received, 3);
	release_held(&f.b[0], 1);
	turn_until(f.b[0].received == 4);
}

/* ---- the end ---- */

/* A shared ring cannot hold the largest window: dividing by the windows that fit was dividing by
 * nothing. */
static void the_largest_window_has_a_ring_of_its_own(void **state)
{
	struct vbn_channel_group_conf wide = {.max_channels = 1, .buf_size = 64, .n_held = 64};
	struct vbn_channel_group *none;

	(void)state;
	wide.window = 1u << log2_floor(f.port->info.max_depth);
	make_groups(&small, &wide);
	assert_int_equal(f.there->n_rings, 0);
	open_channel(0);
	send_all(&f.a[0], f.pool, 1, 100, 64);
	turn_until(f.b[0].received == 100);
	if (!f.port->driver->srq_create)
		return;
	wide.shared = VBN_ON;
	unit_catch_log();
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, &wide, &none), -EINVAL);
	assert_logged("shared is on, and no shared ring holds a window of ");
}

static void each_end_ends_by_itself(void **state)
{
	(void)state;
	open_one(&large);
	send_all(&f.a[0], f.pool, 1, 9, 100);
	send_large(&f.a[0], new_large(f.pool, 10, 100));
	vbn_channel_end(f.a[0].channel);
	vbn_channel_end(f.a[0].channel);
	turn_until(f.b[0].seen[VBN_CHANNEL_ENDED]);
	assert_int_equal(f.b[0].received, 10);
	/* the other way is open still */
	send_all(&f.b[0], f.pool, 1, 200, 100);
	turn_until(f.a[0].received == 200);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_CLOSED] + f.b[0].seen[VBN_CHANNEL_CLOSED], 0);
	vbn_channel_end(f.b[0].channel);
	turn_until(f.a[0].seen[VBN_CHANNEL_CLOSED] && f.b[0].seen[VBN_CHANNEL_CLOSED]);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_ENDED], 1);
	assert_int_equal(f.a[0].order[1], VBN_CHANNEL_ENDED);
	assert_int_equal(f.a[0].order[2], VBN_CHANNEL_CLOSED);
	assert_int_equal(f.a[0].n_order, 3);
}

static void an_ended_channel_takes_nothing(void **state)
{
	struct vbn_buf *buf = new_message(f.pool, 1, 10);

	(void)state;
	open_one(&small);
	vbn_channel_end(f.a[0].channel);
	assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), -EPIPE);
	vbn_buf_free(&buf, 1);
}

static void a_channel_that_is_broken_off_fails_at_the_peer(void **state)
{
	struct vbn_buf *buf;

	(void)state;
	open_one(&small);
	open_channel(1);
	send_all(&f.a[0], f.pool, 1, 5, 100);
	vbn_channel_close(f.a[0].channel);
	f.a[0].channel = NULL;
	turn_until(f.b[0].seen[VBN_CHANNEL_FAILED]);
	assert_int_equal(f.b[0].received, 5);
	assert_has(f.b[0].error, "the peer has given it up: it has broken the channel off");
	buf = new_message(f.pool, 1, 10);
	assert_int_equal(vbn_channel_send(f.b[0].channel, &buf, 1), -EPIPE);
	vbn_buf_free(&buf, 1);
	send_all(&f.a[1], f.pool, 1, 100, 100);
	turn_until(f.b[1].received == 100);
}

/* A peer whose queue is gone without a word is found out by asking it for a sign of life. */
static void a_silent_peer_is_given_up(void **state)
{
	struct vbn_channel_group_conf quick = small;

	(void)state;
	quick.keepalive_ns = patient(SECOND_NS / 20);
	quick.give_up_ns = patient(SECOND_NS / 20);
	make_groups(&quick, &small);
	open_channel(0);
	open_channel(1);
	/* one that is there is not given up */
	turn_until(f.here->counts[COUNT_PROBES] >= 6);
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_FAILED] + f.a[1].seen[VBN_CHANNEL_FAILED], 0);
	vbn__channel_free(f.b[0].channel);
	f.b[0].channel = NULL;
	turn_until(f.a[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[0].error, " failed: ");
	assert_int_equal(f.a[1].seen[VBN_CHANNEL_FAILED], 0);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_fixture(both_ends_open_and_know_each_other),
		with_fixture(an_application_may_refuse),
		with_fixture(an_answer_brings_data),
		with_fixture(a_full_group_refuses),
		with_fixture(nobody_there_is_said),
		with_fixture(a_channel_may_be_closed_while_connecting),
		with_fixture(a_channel_may_be_closed_while_it_is_asked_about),
		with_fixture(a_group_may_be_destroyed_after_its_worker),
		with_fixture(a_group_is_made_on_its_workers_thread),
		with_fixture(a_group_may_end_with_all_it_has),
		with_fixture(conf_out_of_range_is_refused),
		with_fixture(messages_of_every_shape_arrive_whole),
		with_fixture(bufs_come_back_where_they_are_asked_to),
		with_fixture(a_received_buf_can_be_sent_on),
		with_fixture(what_is_too_large_is_said),
		with_fixture(floods_both_ways_keep_their_order),
		with_fixture(a_flood_one_way_is_kept_going_by_credits),
		with_fixture(who_does_not_release_slows_its_peer),
		with_fixture(channels_do_not_hold_each_other_up),
		with_fixture(large_messages_are_written_to_their_place),
		with_fixture(a_large_message_comes_back_whole),
		with_fixture(a_message_of_megabytes_arrives_whole),
		with_fixture(a_large_message_waits_for_room),
		with_fixture(the_largest_window_has_a_ring_of_its_own),
		with_fixture(each_end_ends_by_itself),
		with_fixture(an_ended_channel_takes_nothing),
		with_fixture(a_channel_that_is_broken_off_fails_at_the_peer),
		with_fixture(a_silent_peer_is_given_up),
	};

	cmocka_set_test_filter(getenv("CHANNEL_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
