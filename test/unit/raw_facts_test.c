/* raw_facts_test.c - what is known of a frame: checksums, tags, times; and of many at once, compressed */

#include "raw_wire.h"

static uint16_t flags_of(struct vbn_buf *buf)
{
	uint16_t flags;

	send_frame(buf);
	buf = receive(0);
	flags = vbn_buf_packet(buf)->flags;
	let_go(buf);
	settle();
	return flags;
}

static void test_checksums(void **state)
{
	const uint16_t sums =
		VBN_PACKET_IP_GOOD | VBN_PACKET_IP_BAD | VBN_PACKET_L4_GOOD | VBN_PACKET_L4_BAD;
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *buf;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	buf = formed(1, SUMMED);
	assert_int_equal(flags_of(buf) & sums, VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD);
	buf = formed(1, SUMMED);
	vbn_buf_packet(buf)->flags = VBN_PACKET_TX_IP_CSUM;
	buf->data[40] = 0x12; /* a checksum that is none */
	assert_int_equal(flags_of(buf) & sums, VBN_PACKET_IP_GOOD | VBN_PACKET_L4_BAD);
	buf = formed(1, SUMMED);
	vbn_buf_packet(buf)->flags = VBN_PACKET_TX_L4_CSUM;
	buf->data[24] = 0x12;
	assert_int_equal(flags_of(buf) & VBN_PACKET_IP_BAD, VBN_PACKET_IP_BAD);
	assert_int_equal(flags_of(buf = frame_of(wire.pool, &(struct flow){0}, 1, 90)) & sums, 0);
}

static void test_vlan_strip(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	conf.vlan_strip = VBN_ON;
	connect_wire(&conf, 1);
	take_everything();
	assert_string_equal(mode(wire.rx[0], "vlan_strip"), "on");
	for (uint32_t i = 1; i < 200; i++) {
		struct vbn_buf *buf = formed(i, i & 1 ? TAGGED : PLAIN);

		send_frame(buf);
		buf = receive(0);
		if (i & 1)
			assert_int_equal(vbn_buf_packet(buf)->vlan, i);
		assert_int_equal(
			vbn_buf_packet(buf)->flags & VBN_PACKET_VLAN, i & 1 ? VBN_PACKET_VLAN : 0);
		check_formed(buf, i, PLAIN);
		let_go(buf);
		settle();
	}
}

static void test_timestamps(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	uint64_t last = 0;

	(void)state;
	conf.timestamps = VBN_ON;
	connect_wire(&conf, 1);
	take_everything();
	for (uint64_t i = 0; i < 50; i++) {
		struct vbn_buf *buf;

		send_frame(formed(i, PLAIN));
		buf = receive(0);
		assert_true(vbn_buf_packet(buf)->flags & VBN_PACKET_TIME);
		assert_true(vbn_buf_packet(buf)->time >= last);
		last = vbn_buf_packet(buf)->time;
		let_go(buf);
		settle();
	}
	assert_true(last > 0);
	disconnect();
	conf.cqe_compression = VBN_ON;
	{
		struct vbn_queue *queue;

		assert_int_equal(vbn_rx_group_create(wire.b, NULL, &wire.group), 0);
		conf.rx_group = wire.group;
		assert_int_equal(vbn_queue_create(wire.worker, wire.b, &conf, &queue), -EINVAL);
		assert_logged("compressed completions carry no time");
	}
}

static void test_compression(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	const uint64_t start = clock_ns();

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	conf.cqe_compression = VBN_ON;
	if (!compresses(&conf))
		return;
	connect_wire(&conf, 1);
	take_everything();
	assert_string_not_equal(mode(wire.rx[0], "cqe_compression"), "off");
	do {
		struct vbn_buf *bufs[48];

		for (int i = 0; i < 48; i++)
			bufs[i] = formed((uint64_t)i, i == 17 ? TAGGED : SUMMED);
		send_all(wire.tx, bufs, 48);
		settle();
		for (int i = 0; i < 48; i++) {
			struct vbn_buf *buf = receive(0);

			check_formed(buf, (uint64_t)i, i == 17 ? TAGGED : SUMMED);
			let_go(buf);
		}
		patience(start);
	} while (stats_of(wire.rx[0]).rx_compressed < 500);
	stream(in_runs, 100);
}

int facts_tests(void)
{
	const struct CMUnitTest tests[] = {
		test(test_checksums),
		test(test_vlan_strip),
		test(test_timestamps),
		test(test_compression),
	};

	return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
