/* long_test.c - 20 million messages through one mlx5 queue, connected to itself on the emulated
 * device: what counts in 24 bits (CQ indices, PSNs) goes round, every message arrives once and in
 * order
 *
 * LONG_TEST_MESSAGES is another number.
 */

#include "duo.h"

#include <stdlib.h>

enum { BURST_OF = 64, RING = 256 };

static uint64_t n_messages = 20000000;

/* As many as the window takes, each with its number. */
static uint64_t send_numbers(struct vbn_queue *from, uint64_t sent, uint64_t received)
{
	uint64_t want = min(n_messages - sent, RING - (sent - received));
	struct vbn_buf *bufs[BURST_OF];
	int took;

	want = min(want, (uint64_t)BURST_OF);
	if (!want || vbn_buf_alloc(duo.pool, bufs, (int)want) != (int)want)
		return 0;
	for (uint64_t i = 0; i < want; i++) {
		uint64_t number = sent + i;

		memcpy(bufs[i]->data, &number, sizeof(number));
		bufs[i]->len = sizeof(number);
	}
	took = vbn_send(from, bufs, (int)want);
	assert_true(took >= 0);
	vbn_buf_free(bufs + took, (int)want - took);
	vbn_flush(from);
	return (uint64_t)took;
}

static uint64_t expect_numbers(const struct vbn_event *events, int n, uint64_t received)
{
	for (int i = 0; i < n; i++) {
		struct vbn_buf *buf = events[i].buf;
		uint64_t number;

		assert_int_equal(events[i].op, VBN_OP_RECV);
		assert_int_equal(buf->len, sizeof(number));
		memcpy(&number, buf->data, sizeof(number));
		if (number != received)
			unit_fail("message %llu came where %llu was due",
				(unsigned long long)number, (unsigned long long)received);
		received++;
		vbn_buf_free(&buf, 1);
	}
	return received;
}

/* cq_mod is 1, so that the send CQ's index goes round, too. */
static void connect_to_itself(enum duo_kind kind)
{
	struct vbn_srq_conf srq = {.depth = RING, .pool = duo.pool};
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_address self;

	if (kind == DUO_SRQ)
		assert_int_equal(vbn_srq_create(duo.worker, duo.port, &srq, &duo.srq), 0);
	conf.srq = duo.srq;
	conf.tx_depth = conf.rx_depth = RING;
	conf.cq_mod = 1;
	conf.timeout = (struct vbn_num)VBN_NUM(18);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	vbn_queue_address(duo.a, &self);
	assert_int_equal(vbn_queue_connect(duo.a, &self), 0);
}

static void run(enum duo_kind kind)
{
	uint64_t sent = 0, received = 0, start = clock_ns();
	struct vbn_queue_stats stats;

	connect_to_itself(kind);
	while (received < n_messages || vbn_queue_outstanding(duo.a)) {
		int got;

		sent += send_numbers(duo.a, sent, received);
		got = vbn_poll(duo.worker, duo.events, BURST_OF);
		received = expect_numbers(duo.events, got, received);
		if (got)
			start = clock_ns();
		else
			duo_patience(start);
	}
	vbn_queue_stats(duo.a, &stats);
	assert_int_equal(stats.tx_done, n_messages);
	assert_int_equal(stats.rx_messages, n_messages);
}

static void test_own(void **state)
{
	(void)state;
	run(DUO_OWN);
}

static void test_srq(void **state)
{
	(void)state;
	run(DUO_SRQ);
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {test(test_own), test(test_srq)};
	const char *asked = getenv("LONG_TEST_MESSAGES");

	if (asked)
		n_messages = strtoull(asked, NULL, 10);
	return cmocka_run_group_tests_name("long", tests, NULL, NULL);
}
