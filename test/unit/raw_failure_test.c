/* raw_failure_test.c - raw queues with more than they can take, reset, failed and destroyed at work */

#include "raw_wire.h"
#include "vhca_ask.h"

/* What was sent and nobody took is counted by its name: none is lost without one. */
static void test_overload(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	uint64_t got = 0, start = clock_ns();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 20; round++) {
		struct vbn_buf *bufs[64];

		for (int i = 0; i < 64; i++)
			bufs[i] = formed((uint64_t)i, PLAIN);
		send_all(wire.tx, bufs, 64);
		settle();
		if (round % 7 == 6) {
			int n = vbn_recv(wire.rx[0], bufs, 64);

			assert_true(n >= 0);
			vbn_buf_free(bufs, n);
			got += (uint64_t)n;
		}
	}
	while (got + port_drops("out_of_buffer") < 20 * 64) {
		struct vbn_buf *bufs[64];
		int n = vbn_recv(wire.rx[0], bufs, 64);

		assert_true(n >= 0);
		vbn_buf_free(bufs, n);
		got += (uint64_t)n;
		patience(start);
	}
	assert_int_equal(got + port_drops("out_of_buffer"), 20 * 64);
	assert_true(port_drops("out_of_buffer") > 0);
	assert_int_equal(stats_of(wire.rx[0]).rx_messages, got);
}

/* Reset at any place of its rings, and used again; the group stands still meanwhile. */
static void test_reset(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 2);
	take_everything();
	for (int round = 0; round < 6; round++) {
		struct vbn_buf *bufs[40];

		for (int i = 0; i < 40; i++)
			bufs[i] = formed((uint64_t)i, i % 5 ? PLAIN : KEPT);
		send_all(wire.tx, bufs, 7 + 5 * round);
		for (int i = 7 + 5 * round; i < 40; i++) {
			bufs[i]->flags &= (uint8_t)~VBN_BUF_KEEP;
			let_go(bufs[i]);
		}
		reset(round & 1 ? wire.tx : wire.rx[round >> 1 & 1]);
		if (!(round & 1)) {
			assert_false(vbn_rx_group_is_built(wire.group));
			assert_int_equal(vbn_queue_connect(wire.rx[round >> 1 & 1], NULL), 0);
			assert_true(vbn_rx_group_is_built(wire.group));
		} else {
			assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
		}
		for (uint64_t start = clock_ns(); vbn_queue_outstanding(wire.tx);) {
			struct vbn_event event;

			if (vbn_poll(wire.worker, &event, 1))
				vbn_buf_free(&event.buf, 1);
			patience(start);
		}
		for (uint32_t q = 0; q < 2; q++) {
			int n;

			while ((n = vbn_recv(wire.rx[q], bufs, 40)) > 0)
				vbn_buf_free(bufs, n);
			assert_int_equal(n, 0);
		}
		queue_of(&udp4);
	}
}

static void test_destroyed_at_work(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	for (int round = 0; round < 8; round++) {
		struct vbn_buf *bufs[DEPTH];

		connect_wire(&conf, 1 + (uint32_t)round % 2);
		take_everything();
		for (int i = 0; i < DEPTH; i++)
			bufs[i] = formed((uint64_t)i, i % 3 ? PLAIN : COOKIE);
		assert_int_equal(vbn_send(wire.tx, bufs, DEPTH), DEPTH);
		if (round & 2)
			vbn_flush(wire.tx);
		disconnect();
		assert_int_equal(vbn_pool_available(wire.pool), BUFS);
	}
}

/* VHCA_FAULT names the WQE that fails. */
static void test_syndrome(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[8];

	(void)state;
	conf.multi_packet = VBN_OFF;
	connect_wire(&conf, 1);
	take_everything();
	for (int i = 0; i < 8; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 8), 8);
	vbn_flush(wire.tx);
	expect_failed(wire.tx, VBN_LOCAL_PROTECTION, "a raw packet to be sent");
	bufs[0] = formed(0, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 1), -EPIPE);
	let_go(bufs[0]);
	reset(wire.tx);
	assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
	for (uint64_t start = clock_ns(); stats_of(wire.rx[0]).rx_messages < 2; patience(start)) {
		struct vbn_buf *buf = look(0); /* of those before the one that failed */

		if (buf)
			let_go(buf);
	}
	stream(all_plain, 300);
	assert_int_equal(stats_of(wire.tx).tx_flushed + stats_of(wire.tx).tx_done, 308);
}

/* A device is gone, then the other one: what their queues had comes back without them. The last test, since
 * they do not come again. */
static void test_device_fatal(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[16];

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	stream(all_plain, 100);
	for (int i = 0; i < 16; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 16), 16);
	vhca_tell("fatal mlx5_0");
	vbn_flush(wire.tx);
	expect_failed(wire.tx, VBN_DEVICE_ERROR, "fatal error");
	vhca_tell("fatal mlx5_1");
	expect_failed(wire.rx[0], VBN_DEVICE_ERROR, "fatal error");
}

static void drain(void)
{
	for (uint32_t q = 0; q < wire.n_rx; q++) {
		struct vbn_buf *buf;

		while ((buf = look(q)))
			let_go(buf);
	}
}

/* What was sent has been received, or is lost; nothing is left of it. */
static void meet_again(struct vbn_queue *queue)
{
	reset(queue);
	assert_int_equal(vbn_queue_connect(queue, NULL), 0);
	settle();
	drain();
}

static void wait_port(bool up)
{
	const uint64_t start = clock_ns();
	struct vbn_port_info info;

	do {
		vbn_port_info(wire.b, &info);
		patience(start);
	} while (info.up != up);
}

/* Queue 0 is the one that udp4 comes to; and a flow that comes to the other one. */
static struct flow sort_queues(void)
{
	struct flow flow = udp4;
	struct vbn_queue *first = wire.rx[0];

	if (queue_of(&udp4)) {
		wire.rx[0] = wire.rx[1];
		wire.rx[1] = first;
	}
	while (!queue_of(&flow))
		flow.src_port++;
	return flow;
}

/* The device cannot write where the next receive says: that queue fails, says why, and is made new; the
 * other one of its group goes on. */
static void test_receive_error(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct flow other;

	(void)state;
	connect_wire(&conf, 2);
	take_everything();
	other = sort_queues();
	for (int round = 0; round < 3; round++) {
		struct raw_queue *raw = raw_queue(wire.rx[0]);
		struct vbn_buf *buf;

		stream(all_plain, 50 + 7 * (uint64_t)round);
		for (uint32_t i = 0; i <= raw->rq.mask; i++) {
			struct mlx5_wqe_data_seg *seg = rq_wqe(&raw->rq, (uint16_t)i);

			seg[raw->strides.n ? 1 : 0].lkey = be32(0xdead00);
		}
		send_frame(formed(1, PLAIN));
		expect_failed(wire.rx[0], VBN_LOCAL_PROTECTION, "a raw packet to be received");
		send_frame(frame_of(wire.pool, &other, 3, 100));
		buf = receive(1);
		check_frame(buf, &other, 3, 100);
		let_go(buf);
		meet_again(wire.rx[0]);
		stream(all_summed, 200);
	}
}

/* Nothing more comes out of a CQ that was overrun; here because its record is kept back. */
static void overrun(struct vbn_queue *queue, struct cq *cq)
{
	const uint64_t start = clock_ns();
	__be32 *record = cq->record, elsewhere;

	cq->record = &elsewhere;
	while (!queue->failed) {
		struct vbn_event events[8];
		struct vbn_buf *buf = formed(1, PLAIN);
		int n;

		if (vbn_send(wire.tx, &buf, 1) != 1)
			let_go(buf);
		vbn_flush(wire.tx);
		n = vbn_poll(wire.worker, events, 8);
		for (int i = 0; i < n; i++)
			if (events[i].buf)
				let_go(events[i].buf);
		patience(start);
	}
	cq->record = record;
	assert_has(vbn_queue_error(queue), "a completion queue of it has failed");
}

static void test_cq_error(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	conf.cq_mod = 1;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 4; round++) {
		struct vbn_queue *queue = round & 1 ? wire.tx : wire.rx[0];
		struct raw_queue *raw = raw_queue(queue);

		overrun(queue, round & 1 ? &raw->send_cq : &raw->recv_cq);
		meet_again(queue);
		stream(all_plain, 200);
	}
}

/* What is sent while the port is down is lost, and counted by whoever has it; queues go on. */
static void test_port_flap(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	stream(all_plain, 100);
	vhca_tell("port mlx5_1 down");
	wait_port(false);
	send_frame(formed(1, PLAIN));
	settle();
	assert_null(look(0));
	vhca_tell("port mlx5_1 up");
	wait_port(true);
	stream(all_plain, 100);
	assert_logged("went down");
	assert_logged("is up again");
}

int failure_tests(void)
{
	const struct CMUnitTest breaking[] = {
		test(test_receive_error),
		test(test_cq_error),
	};
	const struct CMUnitTest tests[] = {
		test(test_overload),
		test(test_reset),
		test(test_destroyed_at_work),
		test(test_port_flap),
		test(test_device_fatal),
	};
	int failed = 0;

	if (!getenv("VHCA_STRICT")) /* a rule that is broken would end the process */
		failed = cmocka_run_group_tests_name("error", breaking, NULL, NULL);
	return failed + cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}

/* Each with a VHCA_FAULT of its own. */
int fault_tests(void)
{
	const struct CMUnitTest tests[] = {test(test_syndrome)};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
