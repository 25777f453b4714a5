/* raw_striding_test.c - striding receive rings: packets across strides and at the ends of WQEs, bufs that
 * are held, packets that are too long, and completions that cannot be */

#include "raw_wire.h"

enum { STRIDE = 1 << STRIDE_LOG2 };

static struct vbn_queue_conf striding_conf(void)
{
	struct vbn_queue_conf conf = conf_of();

	conf.striding = VBN_ON;
	conf.rx_depth = STRIDES;
	return conf;
}

static struct strides *strides(void)
{
	return &raw_queue(wire.rx[0])->strides;
}

static void test_modes(void **state)
{
	struct vbn_queue_conf conf = striding_conf();

	(void)state;
	connect_wire(&conf, 1);
	assert_string_equal(mode(wire.rx[0], "striding"), "on");
	assert_string_equal(mode(wire.rx[0], "rx_ring"), "1024 strides");
	disconnect();
	conf.striding = VBN_OFF;
	conf.rx_depth = DEPTH;
	connect_wire(&conf, 1);
	assert_string_equal(mode(wire.rx[0], "striding"), "off");
	disconnect();
	/* Of a queue that only sends it is of no account. */
	conf.striding = VBN_ON;
	create_sender(&conf);
}

/* Each length about each multiple of a stride, to 9,018 bytes; strides that stay empty are left out. */
static void test_lengths(void **state)
{
	struct vbn_queue_conf conf;
	uint32_t taken = 0, number = 0;

	(void)state;
	reopen_wire(MTU, JUMBO);
	conf = striding_conf();
	connect_wire(&conf, 1);
	take_everything();
	for (uint32_t k = 0; k <= JUMBO / STRIDE; k++)
		for (int about = -1; about <= 1; about++, number++) {
			const uint32_t len =
				min(max(k * STRIDE, 61u) + (uint32_t)about, (uint32_t)JUMBO);
			struct vbn_buf *buf;

			send_frame(numbers(number, len));
			buf = receive(0);
			check_numbers(buf, number, len);
			let_go(buf);
			taken += (len + STRIDE - 1) / STRIDE;
		}
	settle();
	assert_true((uint32_t)raw_queue(wire.rx[0])->rq.tail * strides()->n + strides()->used >
		taken); /* there were fillers */
}

/* RAW_LONG: WQE counters of 16 bits go round. Two packets to a WQE, and strides left over. A WQE that is begun is not
 * free before what is left of it is known to stay empty, so of four three are for certain. */
static void test_wraps(void **state)
{
	enum { LEN = 1518, AT_ONCE = 6 };
	const uint64_t n = getenv("RAW_LONG") ? (1 << 17) + 1000 : 2000;
	struct vbn_queue_conf conf = striding_conf();
	uint64_t received = 0;

	(void)state;
	conf.rx_depth = 64;
	connect_wire(&conf, 1);
	take_everything();
	assert_int_equal(strides()->n, 16);
	for (uint64_t sent = 0; sent < n; sent += AT_ONCE) {
		const uint64_t start = clock_ns();
		struct vbn_buf *bufs[AT_ONCE];

		assert_int_equal(vbn_buf_alloc(wire.pool, bufs, AT_ONCE), AT_ONCE);
		for (uint64_t i = 0; i < AT_ONCE; i++) {
			const uint64_t number = sent + i;

			bufs[i]->len = LEN;
			vbn_buf_packet(bufs[i])->flags = 0;
			memcpy(bufs[i]->data, udp4.dst_mac, 6);
			memcpy(bufs[i]->data + 6, &number, sizeof(number));
			memcpy(bufs[i]->data + LEN - 8, &number, sizeof(number));
		}
		send_all(wire.tx, bufs, AT_ONCE);
		while (received < sent + AT_ONCE) {
			const int got = vbn_recv(wire.rx[0], bufs, AT_ONCE);

			if (got < 0)
				unit_fail("vbn_recv: %s", vbn_queue_error(wire.rx[0]));
			for (int i = 0; i < got; i++, received++) {
				assert_int_equal(bufs[i]->len, LEN);
				assert_memory_equal(bufs[i]->data + 6, &received, 8);
				assert_memory_equal(bufs[i]->data + LEN - 8, &received, 8);
			}
			vbn_buf_free(bufs, got);
			if (!got)
				patience(start);
		}
	}
	settle();
	assert_int_equal(port_drops("out_of_buffer"), 0);
}

/* One that holds every buf makes packets wait, and then be dropped by the device, which counts. */
static void test_held(void **state)
{
	struct vbn_queue_conf conf = striding_conf();
	const uint64_t start = clock_ns();
	struct vbn_buf *held[BUFS], *buf;
	uint32_t n_held = BUFS - 32, sent = 0, got = 0;

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	connect_wire(&conf, 1);
	take_everything();
	assert_int_equal(vbn_buf_alloc(wire.pool, held, (int)n_held), n_held);
	for (; got < 32; got++) {
		send_frame(formed(sent++, FOREIGN));
		settle();
		held[n_held++] = receive(0);
	}
	for (; !port_drops("out_of_buffer"); patience(start)) {
		for (int i = 0; i < 32; i++)
			send_frame(formed(sent++, FOREIGN));
		settle();
		assert_null(look(0));
	}
	assert_true(stats_of(wire.rx[0]).rx_no_buf > 0);
	vbn_buf_free(held, (int)n_held);
	while (got + port_drops("out_of_buffer") < sent) {
		if ((buf = look(0))) {
			check_formed(buf, got++, FOREIGN);
			let_go(buf);
		}
		patience(start);
	}
	assert_true(got > 32);
	assert_int_equal(got + port_drops("out_of_buffer"), sent);
	stream(in_runs, 200);
}

static uint64_t drops(const char *name)
{
	struct vbn_drop list[16];
	const int n = vbn_queue_drops(wire.rx[0], list, 16);

	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return list[i].count;
	unit_fail("queue drops have no %s", name);
	return 0;
}

/* Where the other end's frames may be longer than ours: they are dropped by name, and the queue goes on. */
static void test_too_long(void **state)
{
	uint64_t start = clock_ns();
	struct vbn_queue_conf conf;
	struct vbn_buf *buf;

	(void)state;
	reopen_wire(MTU, JUMBO);
	conf = striding_conf();
	vbn_port_close(wire.b);
	assert_int_equal(
		vbn_port_open("mlx5:mlx5_1", &(struct vbn_port_conf){.frame_mtu = 1500}, &wire.b),
		0);
	for (int compressed = 0; compressed < 2; compressed++) {
		conf.cqe_compression = compressed ? VBN_ON : VBN_AUTO;
		connect_wire(&conf, 1);
		take_everything();
		for (uint32_t i = 0; i < 60; i++)
			send_frame(numbers(i, i % 3 ? 1000 + i : 1519 + i));
		for (uint32_t i = 0; i < 60; i++) {
			if (!(i % 3))
				continue;
			buf = receive(0);
			check_numbers(buf, i, 1000 + i);
			let_go(buf);
		}
		for (; drops("rx_too_long") < 20; patience(start))
			assert_null(look(0));
		assert_int_equal(drops("rx_too_long"), 20);
		assert_int_equal(stats_of(wire.rx[0]).rx_messages, 40);
		settle();
		disconnect();
	}
}

/* The CQE that is next, once it is there. */
static struct mlx5_cqe64 *next_cqe(void)
{
	const struct cq *cq = &raw_queue(wire.rx[0])->recv_cq;
	const uint64_t start = clock_ns();
	const struct mlx5_cqe64 *cqe;

	while (cqe_absent(cq_look(cq, cq->index, &cqe)))
		patience(start);
	return (struct mlx5_cqe64 *)(uintptr_t)cqe;
}

/* What says of a packet what cannot be ends the queue; nothing is read that is not the ring's. */
static void test_nonsense(void **state)
{
	const struct {
		uint32_t count;
		uint16_t stride;
	} cases[] = {{1u << 16 | 100, 1}, {0, 0}, {100, 0}, {1u << 16 | 300, 0},
		{0x7fffu << 16 | 100, 0}, {0xffffu << 16, 0}, {1u << 31, 0},
		{2u << 16 | 100, 0xffff}};
	struct vbn_queue_conf conf = striding_conf();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mlx5_cqe64 *cqe;

		send_frame(formed(i, PLAIN));
		cqe = next_cqe();
		cqe->byte_cnt = (be_force uint32_t)be32(cases[i].count);
		cqe->wqe_counter = (be_force uint16_t)be16(cases[i].stride);
		expect_failed(wire.rx[0], VBN_DEVICE_ERROR, "in strides");
		reset(wire.rx[0]);
		assert_int_equal(vbn_queue_connect(wire.rx[0], NULL), 0);
		settle();
		stream(all_plain, 100);
	}
}

/* The title of a session that is next; NULL: what was sent came by itself, and is taken. */
static struct mlx5_cqe64 *next_title(void)
{
	const struct cq *cq = &raw_queue(wire.rx[0])->recv_cq;
	struct vbn_buf *bufs[24], *buf;
	const struct mlx5_cqe64 *cqe;

	for (uint32_t i = 0; i < 24; i++)
		bufs[i] = numbers(i, 100);
	send_all(wire.tx, bufs, 24);
	settle();
	if (cqe_is_title(cq_look(cq, cq->index, &cqe)))
		return (struct mlx5_cqe64 *)(uintptr_t)cqe;
	while ((buf = look(0)))
		let_go(buf);
	return NULL;
}

/* The same of a mini CQE, behind one that is as it should be; and of a session longer than can be. */
static void test_nonsense_compressed(void **state)
{
	struct vbn_queue_conf conf = striding_conf();

	(void)state;
	conf.cqe_compression = VBN_ON;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 6; round++) {
		const struct cq *cq = &raw_queue(wire.rx[0])->recv_cq;
		const uint64_t start = clock_ns();
		struct mlx5_cqe64 *title;
		__be32(*mini)[2];

		while (!(title = next_title()))
			patience(start);
		mini = (void *)(uintptr_t)cq_entry(cq, cq->index + 1);
		if (round % 3 == 0)
			mini[1][0] = be32(77); /* its stride */
		else if (round % 3 == 1)
			mini[1][1] = be32(0x7fff0064);
		else
			title->byte_cnt = (be_force uint32_t)be32(STRIDES + 1);
		if (round % 3 != 2) {
			struct vbn_buf *buf = receive(0);

			check_numbers(buf, 0, 100);
			let_go(buf);
		}
		expect_failed(wire.rx[0], VBN_DEVICE_ERROR,
			round % 3 == 2 ? "which was not asked for" : "in strides");
		reset(wire.rx[0]);
		assert_int_equal(vbn_queue_connect(wire.rx[0], NULL), 0);
		stream(all_plain, 100);
	}
}

int striding_tests(void)
{
	const struct CMUnitTest tests[] = {
		test(test_modes),
		test(test_lengths),
		test(test_wraps),
		test(test_held),
		test(test_too_long),
		test(test_nonsense),
		test(test_nonsense_compressed),
	};

	return cmocka_run_group_tests_name("striding", tests, NULL, NULL);
}

int long_tests(void)
{
	const struct CMUnitTest tests[] = {test(test_wraps)};

	return cmocka_run_group_tests_name("long", tests, NULL, NULL);
}
