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

/* Of UDP and TCP over IPv4 and IPv6: right as the sender fills them in, and wrong wherever a bit of what they
 * cover is; IPv6 has none of its own. */
static void test_checksum_kinds(void **state)
{
	const uint16_t good = VBN_PACKET_L4_GOOD, bad = VBN_PACKET_L4_BAD;
	const uint16_t l4 = VBN_PACKET_L4_GOOD | VBN_PACKET_L4_BAD;
	const uint16_t l3 = VBN_PACKET_IP_GOOD | VBN_PACKET_IP_BAD;
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (uint32_t kind = 0; kind < 4; kind++) {
		const struct flow flow = {
			kind & 1 ? 6 : 4, kind & 2 ? 6 : 17, 1000, 2000, 1, 2, {2, 0, 0, 0, 0, 9}};
		const uint32_t ip = flow.ip_version == 4 ? 20 : 40, len = 14 + ip + 60;
		struct vbn_buf *buf = frame_of(wire.pool, &flow, kind, len);
		uint8_t right[160];

		vbn_buf_packet(buf)->flags = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM;
		send_frame(buf);
		buf = receive(0);
		assert_int_equal(vbn_buf_packet(buf)->flags & l4, good);
		assert_int_equal(vbn_buf_packet(buf)->flags & l3,
			flow.ip_version == 4 ? VBN_PACKET_IP_GOOD : 0);
		assert_int_equal(vbn_buf_packet(buf)->type,
			(kind & 1 ? VBN_PACKET_IPV6 : VBN_PACKET_IPV4) |
				(kind & 2 ? VBN_PACKET_TCP : VBN_PACKET_UDP));
		memcpy(right, buf->data, len);
		let_go(buf);
		for (uint32_t at = 14 + ip; at < len; at += 7) {
			/* the length of UDP, and of TCP's header, say more than a sum */
			if ((!(kind & 2) && at - 14 - ip - 4 < 2) ||
				((kind & 2) && at == 14 + ip + 12))
				continue;
			buf = frame_of(wire.pool, &flow, kind, len);
			memcpy(buf->data, right, len);
			buf->data[at] ^= (uint8_t)(1 << at % 8);
			assert_int_equal(flags_of(buf) & l4, bad);
		}
		settle();
	}
}

/* Toeplitz, bit by bit, with the key that repeats 0x6d5a. */
static uint32_t toeplitz(const uint8_t *bytes, uint32_t n)
{
	uint32_t hash = 0;

	for (uint32_t i = 0; i < n * 8; i++) {
		uint32_t window = 0;

		for (uint32_t k = 0; k < 32; k++)
			window = window << 1 | (0x6d5au >> (15 - (i + k) % 16) & 1);
		if (bytes[i / 8] >> (7 - i % 8) & 1)
			hash ^= window;
	}
	return hash;
}

static void test_hash_value(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 2);
	take_everything();
	for (uint32_t kind = 0; kind < 4; kind++) {
		const struct flow flow = {kind & 1 ? 6 : 4, kind & 2 ? 6 : 17, 1234, 5678,
			(uint8_t)(7 + kind), 9, {2, 0, 0, 0, 0, 9}};
		const uint32_t addresses = kind & 1 ? 32 : 8, from = kind & 1 ? 22 : 26;
		struct vbn_buf *sent = frame_of(wire.pool, &flow, kind, 120), *buf;
		const uint64_t start = clock_ns();
		uint8_t bytes[36];

		memcpy(bytes, sent->data + from, addresses + 4); /* the ports follow */
		send_frame(sent);
		while (!(buf = look(0)) && !(buf = look(1)))
			patience(start);
		assert_true(vbn_buf_packet(buf)->flags & VBN_PACKET_HASH);
		assert_int_equal(buf->mark, toeplitz(bytes, addresses + 4));
		let_go(buf);
		settle();
	}
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

/* The rings go round several times. */
static void test_compression(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	const uint64_t wanted = UNIT_SHADOW ? 500 : 3 * (uint64_t)conf.rx_depth;
	const uint64_t start = clock_ns();

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	conf.cqe_compression = VBN_ON;
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
	} while (stats_of(wire.rx[0]).rx_compressed < wanted);
	stream(in_runs, 100);
}

/* Of strides a mini CQE must say which: not every device has that form. */
static void test_compression_of_strides(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_queue *queue;
	int ret;

	(void)state;
	create_sender(&conf);
	assert_int_equal(vbn_rx_group_create(wire.b, NULL, &wire.group), 0);
	conf.rx_group = wire.group;
	conf.rx_depth = STRIDES;
	conf.striding = conf.cqe_compression = VBN_ON;
	ret = vbn_queue_create(wire.worker, wire.b, &conf, &queue);
	assert_int_equal(ret, is_connectx5() ? 0 : -ENOTSUP);
	if (ret)
		assert_logged("with stride indices");
	else
		vbn_queue_destroy(queue);
}

int facts_tests(void)
{
	const struct CMUnitTest tests[] = {
		test(test_checksums),
		test(test_checksum_kinds),
		test(test_hash_value),
		test(test_vlan_strip),
		test(test_timestamps),
		test(test_compression),
		test(test_compression_of_strides),
	};

	return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
