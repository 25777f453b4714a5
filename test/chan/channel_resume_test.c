/* channel_resume_test.c - channels whose queues fail go on: each message arrives once, whatever was
 * under way, and the sender knows which did not */

#include "channel_fixture.h"

static struct vbn_channel_group_conf conf = {.max_channels = 4,
	.buf_size = BUF_SIZE,
	.window = 16,
	.n_held = 64,
	.max_message = 1 << 18,
	.keepalive_ns = SECOND_NS / 10,
	.give_up_ns = SECOND_NS / 10,
	.resume_ns = LONG_NS};

static int fail_call(void *arg)
{
	struct vbn_queue *queue = arg;

	return queue->port->driver->queue_fail(queue);
}

/* The queue of a channel fails, as by a flap of its port that lasted too long. */
static void break_queue(struct vbn_channel *channel)
{
	assert_int_equal(vbn__control_call(-1, fail_call, channel->queue), 0);
}

/* Sends on from where the peer is known to be: messages of all kinds, one in 50 large. */
struct sender {
	struct end *end;
	struct vbn_pool *pool;
	uint64_t next, last;
	int resumed;
};

static struct vbn_buf *message_of(struct vbn_pool *pool, uint64_t number)
{
	struct vbn_buf *buf = new_message(pool, number, (uint32_t)(number % 7) * 100), *tail;

	if (number % 50)
		return buf;
	for (int i = 0; i < 5; i++) {
		tail = new_message(pool, number, BUF_SIZE);
		fill(tail, number, vbn_buf_total(buf));
		vbn_buf_append(buf, tail);
	}
	return buf;
}

static void send_some(struct sender *sender)
{
	struct end *end = sender->end;
	struct vbn_buf *buf;
	int ret;

	if (end->seen[VBN_CHANNEL_RESUMED] != sender->resumed) {
		sender->resumed = end->seen[VBN_CHANNEL_RESUMED];
		assert_true(end->resumed_at < sender->next);
		sender->next = end->resumed_at + 1;
	}
	if (sender->next > sender->last || vbn_pool_available(sender->pool) < 8)
		return;
	buf = message_of(sender->pool, sender->next);
	if (sender->next % 3 == 0)
		vbn_buf_set_cookie(buf, sender);
	ret = vbn_channel_send(end->channel, &buf, 1);
	if (ret == 1) {
		sender->next++;
		return;
	}
	if (ret && ret != -ENOTCONN)
		unit_fail("vbn_channel_send() says %d: %s", ret, vbn_channel_error(end->channel));
	buf->flags &= (uint8_t)~VBN_BUF_COOKIE;
	vbn_buf_free(&buf, 1);
}

static void each_message_arrives_once_whatever_breaks(void **state)
{
	enum { N = 1500, BREAKS = 12 };
	struct sender a = {.end = &f.a[0], .pool = f.pool, .next = 1, .last = N};
	struct sender b = {.end = &f.b[0], .pool = f.bare, .next = 1, .last = N};

	(void)state;
	make_groups(&conf, &conf);
	open_channel(0);
	for (int i = 0; i < BREAKS; i++) {
		uint64_t until = f.b[0].received + N / BREAKS / 2;

		turn_until(
			(send_some(&a), send_some(&b), f.b[0].received >= min(until, (uint64_t)N)));
		break_queue(i & 1 ? f.a[0].channel : f.b[0].channel);
		turn_until((send_some(&a), send_some(&b),
			f.a[0].seen[VBN_CHANNEL_RESUMED] == i + 1 &&
				f.b[0].seen[VBN_CHANNEL_RESUMED] == i + 1));
	}
	turn_until((send_some(&a), send_some(&b), f.a[0].received == N && f.b[0].received == N));
	assert_int_equal(f.a[0].seen[VBN_CHANNEL_BROKEN], BREAKS);
	assert_int_equal(f.b[0].seen[VBN_CHANNEL_BROKEN], BREAKS);
	assert_int_equal(f.here->counts[COUNT_RESUMED], BREAKS);
	assert_string_equal(vbn_channel_error(f.a[0].channel), "");
	/* and it ends as any other */
	vbn_channel_end(f.a[0].channel);
	vbn_channel_end(f.b[0].channel);
	turn_until(f.a[0].seen[VBN_CHANNEL_CLOSED] && f.b[0].seen[VBN_CHANNEL_CLOSED]);
	turn_until(vbn_pool_available(f.pool) == N_BUFS && vbn_pool_available(f.bare) == N_BUFS);
}

static void others_do_not_notice(void **state)
{
	(void)state;
	make_groups(&conf, &conf);
	open_channel(0);
	open_channel(1);
	break_queue(f.a[0].channel);
	send_all(&f.a[1], f.pool, 1, 300, 100);
	turn_until(f.a[0].seen[VBN_CHANNEL_RESUMED] && f.b[0].seen[VBN_CHANNEL_RESUMED] &&
		f.b[1].received == 300);
	assert_int_equal(f.a[1].seen[VBN_CHANNEL_BROKEN], 0);
	send_all(&f.a[0], f.pool, 1, 100, 100);
	turn_until(f.b[0].received == 100);
}

static void without_a_peer_it_fails_in_time(void **state)
{
	struct vbn_channel_group_conf hasty = conf;

	(void)state;
	hasty.resume_ns = patient(SECOND_NS / 5);
	hasty.connect_ns = patient(SECOND_NS / 10);
	make_groups(&hasty, &hasty);
	open_channel(0);
	vbn_channel_unlisten(f.listener);
	break_queue(f.a[0].channel);
	turn_until(f.a[0].seen[VBN_CHANNEL_BROKEN] && f.a[0].seen[VBN_CHANNEL_FAILED]);
	if (!f.b[0].seen[VBN_CHANNEL_BROKEN]) /* over some transports it has not even noticed */
		break_queue(f.b[0].channel);
	turn_until(f.b[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.b[0].error, "has not connected again in time");
}

static void a_peer_that_has_closed_it_says_so(void **state)
{
	(void)state;
	make_groups(&conf, &conf);
	open_channel(0);
	vbn__channel_free(f.b[0].channel);
	f.b[0].channel = NULL;
	break_queue(f.a[0].channel);
	turn_until(f.a[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.a[0].error, "is not known here");
}

static void a_broken_channel_may_be_closed(void **state)
{
	(void)state;
	make_groups(&conf, &conf);
	open_channel(0);
	break_queue(f.a[0].channel);
	turn_until(f.a[0].seen[VBN_CHANNEL_BROKEN]);
	vbn_channel_close(f.a[0].channel);
	f.a[0].channel = NULL;
	turn_until(!f.here->n_channels);
	if (!f.b[0].seen[VBN_CHANNEL_BROKEN])
		break_queue(f.b[0].channel);
	turn_until(f.b[0].seen[VBN_CHANNEL_BROKEN] || f.b[0].seen[VBN_CHANNEL_FAILED]);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_fixture(each_message_arrives_once_whatever_breaks),
		with_fixture(others_do_not_notice),
		with_fixture(without_a_peer_it_fails_in_time),
		with_fixture(a_peer_that_has_closed_it_says_so),
		with_fixture(a_broken_channel_may_be_closed),
	};

	conf.keepalive_ns = patient(conf.keepalive_ns);
	conf.give_up_ns = patient(conf.give_up_ns);
	cmocka_set_test_filter(getenv("CHANNEL_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
