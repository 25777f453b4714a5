/* raw_packet_test.c - raw Ethernet on mlx5: frames from one emulated port to another, every form of a
 * send, rings around their ends; and the other groups of tests on the same wire */

#include "raw_wire.h"

/* A port that is not open says so, too. */
static void test_listed(void **state)
{
	struct vbn_port_info infos[8];
	const int n = vbn_port_list(infos, ARRAY_SIZE(infos));
	int found = 0;

	(void)state;
	for (int i = 0; i < n; i++)
		if (!strncmp(infos[i].name, "mlx5_", 5)) {
			assert_has(infos[i].capabilities, " packet");
			assert_true(infos[i].max_rx_queues > 1);
			found++;
		}
	assert_int_equal(found, 2);
}

/* Indices of 16 bits go round, too, and every ring many times. */
static void test_plain(void **state)
{
	const uint64_t n = UNIT_SHADOW ? 5000 : 70000;
	struct vbn_queue_conf conf = conf_of();
	struct vbn_queue_stats tx, rx;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	stream(all_plain, n);
	tx = stats_of(wire.tx);
	rx = stats_of(wire.rx[0]);
	assert_int_equal(tx.tx_messages, n);
	assert_int_equal(tx.tx_done, n);
	assert_int_equal(rx.rx_messages, n);
	assert_int_equal(tx.tx_bytes, rx.rx_bytes);
	assert_true(tx.tx_doorbells < n);
}

static void test_forms(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	for (int i = 0; i < 3; i++) {
		conf.multi_packet = i == 1 ? VBN_OFF : VBN_AUTO;
		conf.checksum_offload = i == 2 ? VBN_OFF : VBN_AUTO;
		conf.cq_mod = i == 1 ? 1 : 64;
		connect_wire(&conf, 1);
		take_everything();
		assert_string_equal(mode(wire.tx, "tx_checksum"), i == 2 ? "software" : "device");
		stream(in_turn, 1000);
		stream(in_runs, 1000);
		stream(all_summed, 500);
		disconnect();
	}
}

/* Many packets to a WQE, seen by the ring: it went on by less than a WQEBB for each. */
static void test_multi_packet(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[32];
	uint16_t before;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 2; round++) {
		before = raw_queue(wire.tx)->sq.head;
		for (int i = 0; i < 32; i++)
			bufs[i] = formed((uint64_t)i, PLAIN);
		send_all(wire.tx, bufs, 32);
		assert_int_equal(
			(uint16_t)(raw_queue(wire.tx)->sq.head - before), is_connectx5() ? 9 : 32);
		for (int i = 0; i < 32; i++) {
			struct vbn_buf *buf = receive(0);

			check_formed(buf, (uint64_t)i, PLAIN);
			let_go(buf);
		}
		settle();
	}
	if (!is_connectx5()) {
		struct vbn_queue *none;

		conf.multi_packet = VBN_ON;
		assert_int_equal(vbn_queue_create(wire.worker, wire.a, &conf, &none), -ENOTSUP);
		assert_logged("has no multi_packet: leave it to the library");
		return;
	}
	disconnect();
	conf.multi_packet = VBN_OFF;
	connect_wire(&conf, 1);
	assert_string_equal(mode(wire.tx, "multi_packet"), "off");
}

/* A full ring leaves the rest with the caller, and goes on when there is room again. */
static void test_full(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[2 * DEPTH];

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int i = 0; i < 2 * DEPTH; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 2 * DEPTH), DEPTH);
	assert_int_equal(vbn_send(wire.tx, bufs + DEPTH, DEPTH), 0);
	assert_int_equal(vbn_queue_outstanding(wire.tx), DEPTH);
	vbn_flush(wire.tx);
	for (int i = 0; i < 2 * DEPTH; i++) {
		struct vbn_buf *buf;

		if (i == DEPTH) {
			settle();
			send_all(wire.tx, bufs + DEPTH, DEPTH);
		}
		buf = receive(0);
		check_formed(buf, (uint64_t)i, PLAIN);
		let_go(buf);
	}
	settle();
}

/* The first one that cannot be sent says why; before it what can is taken. */
static void test_bounds(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_port_info info;
	struct vbn_buf *bufs[3], *buf;
	uint32_t longest;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	vbn_port_info(wire.a, &info);
	longest = info.frame_mtu + 18;
	for (int i = 0; i < 3; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	bufs[1]->len = 13;
	assert_int_equal(vbn_send(wire.tx, bufs, 3), 1);
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), -EMSGSIZE);
	bufs[1]->len = longest + 1;
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), -EMSGSIZE);
	bufs[1]->len = longest;
	for (uint32_t i = 14; i < longest; i++)
		bufs[1]->data[i] = pattern(1, i);
	put16(bufs[1]->data + 12, 0x88b5);
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), 2);
	vbn_flush(wire.tx);
	let_go(receive(0));
	buf = receive(0);
	assert_int_equal(buf->len, longest);
	for (uint32_t i = 14; i < longest; i++)
		assert_int_equal(buf->data[i], pattern(1, i));
	let_go(buf);
	let_go(receive(0));
	settle();
	/* A buf of memory that the port does not know. */
	buf = formed(5, FOREIGN);
	assert_int_equal(vbn_send(wire.tx, &buf, 1), -EINVAL);
	let_go(buf);
	/* A receive must hold whatever may come. */
	{
		struct vbn_pool_conf small = {.n_bufs = 256, .data_size = 256};
		struct vbn_pool *pool;
		struct vbn_rx_group *group;
		struct vbn_queue *queue;

		assert_int_equal(vbn_pool_create(&small, &pool), 0);
		assert_int_equal(vbn_rx_group_create(wire.b, NULL, &group), 0);
		conf.rx_pool = pool;
		conf.rx_depth = DEPTH;
		conf.rx_group = group;
		assert_int_equal(vbn_queue_create(wire.worker, wire.b, &conf, &queue), -EINVAL);
		assert_logged(is_striding() ? "a longer frame would be lost"
					    : "a longer frame would end the queue");
		vbn_rx_group_destroy(group);
		vbn_pool_destroy(pool);
	}
}

/* Short frames are padded by the port that sends them; of 14 bytes there is a header alone. */
static void test_short_frames(void **state)
{
	static const struct flow none = {.dst_mac = {2, 0, 0, 0, 0, 9}};
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (uint32_t len = is_connectx5() ? 14 : 19; len < 70; len++) {
		struct vbn_buf *buf;

		send_frame(frame_of(wire.pool, &none, len, len));
		buf = receive(0);
		assert_int_equal(buf->len, max(len, 60u));
		check_frame(buf, &none, len, len);
		let_go(buf);
	}
	settle();
}

/* Both ports at once: each queue sends and receives, and every byte is looked at. */
static enum form in_mix(uint64_t number)
{
	static const enum form forms[] = {PLAIN, PLAIN, SUMMED, CHAIN, PLAIN, TAGGED, FOREIGN};

	return forms[number / 2 % ARRAY_SIZE(forms)];
}

struct way {
	struct vbn_queue *from, *to;
	uint64_t sent, received;
};

static bool move(struct way *way, uint64_t n)
{
	const int room = min(burst_of(way->sent), (int)(DEPTH / 2 - (way->sent - way->received)));
	const uint64_t left = n - way->sent;
	const int want = (uint64_t)room < left ? room : (int)left;
	struct vbn_buf *bufs[64];
	int took, got;

	for (int i = 0; i < want; i++)
		bufs[i] = formed(way->sent + (uint64_t)i, in_mix(way->sent + (uint64_t)i));
	took = want ? vbn_send(way->from, bufs, want) : 0;
	assert_true(took >= 0);
	vbn_flush(way->from);
	way->sent += (uint64_t)took;
	for (int i = took; i < want; i++)
		let_go(bufs[i]);
	got = vbn_recv(way->to, bufs, 64);
	assert_true(got >= 0);
	for (int i = 0; i < got; i++, way->received++) {
		check_formed(bufs[i], way->received, in_mix(way->received));
		let_go(bufs[i]);
	}
	return took || got;
}

static void test_both_ways(void **state)
{
	const uint64_t n = UNIT_SHADOW ? 1000 : 5000;
	struct vbn_queue_conf conf = conf_of();
	uint64_t start = clock_ns();
	struct vbn_rx_group *group;
	struct way ways[2];
	uint32_t id;

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	assert_int_equal(vbn_port_register(wire.b, vbn_pool_zone(wire.other)), 0);
	create_receivers(&conf, 1);
	connect_receivers();
	take_everything();
	assert_int_equal(vbn_rx_group_create(wire.a, NULL, &group), 0);
	conf.rx_group = group;
	assert_int_equal(vbn_queue_create(wire.worker, wire.a, &conf, &wire.tx), 0);
	assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
	assert_int_equal(
		vbn_rx_rule_add(group, &(struct vbn_rx_rule){.kind = VBN_RULE_EVERYTHING}, &id), 0);
	ways[0] = (struct way){wire.tx, wire.rx[0], 0, 0};
	ways[1] = (struct way){wire.rx[0], wire.tx, 0, 0};
	while (ways[0].received < n || ways[1].received < n) {
		bool moved = move(&ways[0], n);

		if (move(&ways[1], n) || moved)
			start = clock_ns();
		else
			patience(start);
	}
	settle();
	for (int i = 0; i < 2; i++)
		assert_int_equal(stats_of(ways[i].to).rx_messages, n);
	vbn_queue_destroy(wire.tx);
	wire.tx = NULL;
	vbn_rx_group_destroy(group);
}

/* Frames of up to 9,018 bytes, and not one more. */
static void test_jumbo(void **state)
{
	struct vbn_queue_conf conf;
	struct vbn_buf *buf;

	(void)state;
	reopen_wire(MTU, JUMBO + 64);
	conf = conf_of();
	connect_wire(&conf, 1);
	take_everything();
	for (uint32_t i = 0; i < 200; i++) {
		const uint32_t len = JUMBO - i * 41;

		send_frame(numbers(i, len));
		buf = receive(0);
		check_numbers(buf, i, len);
		let_go(buf);
	}
	buf = numbers(1, JUMBO + 1);
	assert_int_equal(vbn_send(wire.tx, &buf, 1), -EMSGSIZE);
	let_go(buf);
	settle();
}

static int packet_tests(void)
{
	const struct CMUnitTest tests[] = {
		test(test_listed),
		test(test_plain),
		test(test_forms),
		test(test_multi_packet),
		test(test_full),
		test(test_bounds),
		test(test_short_frames),
		test(test_both_ways),
		test(test_jumbo),
	};

	return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}

int main(void)
{
	int failed;

	if (getenv("VHCA_FAULT"))
		return fault_tests();
	if (getenv("RAW_LONG"))
		return long_tests();
	failed = packet_tests();
	if (is_striding())
		failed += striding_tests();
	failed += steering_tests();
	failed += facts_tests();
	failed += failure_tests(); /* the last: devices do not come again */
	return failed > 0;
}
