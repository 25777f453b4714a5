/* raw_steering_test.c - which queue a frame comes to, or none: RSS and rules */

#include "raw_wire.h"

/* ---- RSS ---- */

static struct flow numbered(uint32_t i)
{
	struct flow flow = udp4;

	flow.ip_version = i & 1 ? 6 : 4;
	flow.protocol = i & 2 ? 6 : 17;
	flow.src_port = (uint16_t)(1000 + i);
	flow.src = (uint8_t)i;
	return flow;
}

static struct flow reversed(const struct flow *flow)
{
	struct flow other = *flow;

	other.src = flow->dst;
	other.dst = flow->src;
	other.src_port = flow->dst_port;
	other.dst_port = flow->src_port;
	return other;
}

static void test_rss(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	for (uint32_t n = 2; n <= MOST_RX; n++) {
		static const struct flow arp = {.dst_mac = {2, 0, 0, 0, 0, 9}};
		uint32_t seen[4][MOST_RX] = {0};

		connect_wire(&conf, n);
		take_everything();
		for (uint32_t i = 0; i < 96; i++) {
			const struct flow flow = numbered(i), back = reversed(&flow);
			const uint32_t q = queue_of(&flow);

			seen[i & 3][q]++;
			assert_int_equal(queue_of(&flow), q);
			assert_int_equal(queue_of(&back), q);
		}
		for (uint32_t kind = 0; kind < 4; kind++)
			for (uint32_t q = 0; q < n; q++)
				assert_true(seen[kind][q] > 0);
		/* What is not hashed comes to the first one. */
		send_frame(frame_of(wire.pool, &arp, 1, 120));
		let_go(receive(0));
		settle();
		disconnect();
	}
}

static void test_hash_and_key(void **state)
{
	static const uint8_t key[VBN_RX_KEY_SIZE] = {1, 2, 3, 4, 5, 6, 7};
	struct vbn_rx_group_conf group = {.n_queues = 2, .symmetric = VBN_ON, .key = key};

	(void)state;
	assert_int_equal(vbn_rx_group_create(wire.b, &group, &wire.group), -ENOTSUP);
	assert_logged("its key does not repeat the same 16 bits");
	wire.group = NULL;
	group = (struct vbn_rx_group_conf){.n_queues = 1000};
	assert_int_equal(vbn_rx_group_create(wire.b, &group, &wire.group), -EINVAL);
	wire.group = NULL;
	/* Of IPv4's addresses alone: ports do not matter. */
	group = (struct vbn_rx_group_conf){.n_queues = 2, .hash = VBN_HASH_IPV4};
	assert_int_equal(vbn_rx_group_create(wire.b, &group, &wire.group), 0);
	wire.n_rx = 2;
	{
		struct vbn_queue_conf conf = conf_of();

		conf.rx_group = wire.group;
		for (int i = 0; i < 2; i++)
			assert_int_equal(
				vbn_queue_create(wire.worker, wire.b, &conf, &wire.rx[i]), 0);
		connect_receivers();
		create_sender(&conf);
	}
	take_everything();
	for (uint32_t i = 0; i < 32; i++) {
		struct flow flow = numbered(4 * i), other;
		uint32_t q;

		other = flow;
		other.src_port ^= 0x1234;
		q = queue_of(&flow);
		assert_int_equal(queue_of(&other), q);
	}
}

/* ---- rules ---- */

/* The sentinel, or what comes before it. */
static void let_go_sentinel(struct vbn_buf *buf, struct vbn_buf **first)
{
	if (buf->data[5] != 0x77) {
		*first = buf;
		buf = receive(0);
	}
	assert_int_equal(buf->data[5], 0x77);
	let_go(buf);
}

/* Sends a frame of the flow and behind it one that always comes, to the first queue, which tells that
 * the first did not. */
static bool comes(const struct flow *flow, uint32_t *mark, uint32_t vlan)
{
	static const struct flow sentinel = {.dst_mac = {2, 0, 0, 0, 0, 0x77}};
	struct vbn_buf *buf = frame_of(wire.pool, flow, 7, 120), *first = NULL;
	bool came;

	if (vlan) {
		vbn_buf_packet(buf)->flags = VBN_PACKET_TX_VLAN;
		vbn_buf_packet(buf)->vlan = (uint16_t)vlan;
	}
	send_frame(buf);
	send_frame(frame_of(wire.pool, &sentinel, 9, 80));
	let_go_sentinel(receive(0), &first);
	for (uint32_t q = 0; q < wire.n_rx && !first; q++)
		first = look(q);
	came = first != NULL;
	if (came && mark)
		*mark = vbn_buf_packet(first)->flags & VBN_PACKET_MARK ? first->mark : 0;
	if (came)
		let_go(first);
	settle();
	return came;
}

static void take_sentinel(void)
{
	add_rule(&(struct vbn_rx_rule){.kind = VBN_RULE_MATCH,
		.dst_mac = {2, 0, 0, 0, 0, 0x77},
		.dst_mac_mask = {255, 255, 255, 255, 255, 255}});
}

static void test_rules(void **state)
{
	const struct flow udp6 = {6, 17, 1000, 2000, 1, 2, {2, 0, 0, 0, 0, 9}},
			  tcp4 = {4, 6, 1000, 2000, 1, 2, {2, 0, 0, 0, 0, 9}},
			  group = {4, 17, 1000, 2000, 1, 2, {1, 0, 0x5e, 0, 0, 9}},
			  plain = {.dst_mac = {2, 0, 0, 0, 0, 9}};
	const struct {
		struct vbn_rx_rule rule;
		bool udp4, udp6, tcp4, group, plain, tagged;
	} cases[] = {
		{{.kind = VBN_RULE_EVERYTHING}, true, true, true, true, true, true},
		{{.kind = VBN_RULE_ALL_MULTICAST}, .group = true},
		{{.kind = VBN_RULE_MATCH,
			 .dst_mac = {2, 0, 0, 0, 0, 9},
			 .dst_mac_mask = {255, 255, 255, 255, 255, 255}},
			true, true, true, false, true, true},
		{{.kind = VBN_RULE_MATCH, .dst_mac = {2}, .dst_mac_mask = {3}}, true, true, true,
			false, true, true},
		{{.kind = VBN_RULE_MATCH, .ethertype = 0x88b5}, .plain = true},
		{{.kind = VBN_RULE_MATCH, .vlan = VBN_NUM(5)}, .tagged = true},
		{{.kind = VBN_RULE_MATCH, .ip_version = 6}, .udp6 = true},
		{{.kind = VBN_RULE_MATCH, .ip_version = 4, .src_prefix = 8, .src_ip = {10, 9, 9}},
			.udp4 = true, .tcp4 = true, .group = true, .tagged = true},
		{{.kind = VBN_RULE_MATCH,
			 .ip_version = 4,
			 .dst_prefix = 31,
			 .dst_ip = {10, 0, 0, 3}},
			.udp4 = true, .tcp4 = true, .group = true, .tagged = true},
		{{.kind = VBN_RULE_MATCH,
			 .ip_version = 4,
			 .dst_prefix = 32,
			 .dst_ip = {10, 0, 0, 3}},
			.udp4 = false},
		{{.kind = VBN_RULE_MATCH, .ip_version = 6, .src_prefix = 128, .src_ip = {0xfd}},
			.udp6 = false},
		{{.kind = VBN_RULE_MATCH, .ip_version = 4, .protocol = VBN_NUM(6)}, .tcp4 = true},
		{{.kind = VBN_RULE_MATCH,
			 .ip_version = 6,
			 .protocol = VBN_NUM(17),
			 .dst_port = VBN_NUM(2000)},
			.udp6 = true},
		{{.kind = VBN_RULE_MATCH,
			 .ip_version = 6,
			 .protocol = VBN_NUM(17),
			 .dst_port = VBN_NUM(2001)},
			.udp6 = false},
		{{.kind = VBN_RULE_MATCH,
			 .ip_version = 4,
			 .protocol = VBN_NUM(17),
			 .src_port = VBN_NUM(1000)},
			.udp4 = true, .group = true, .tagged = true},
	};
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	for (uint32_t n = 1; n <= 2; n++) { /* with a table, and without */
		connect_wire(&conf, n);
		take_sentinel();
		assert_false(comes(&udp4, NULL, 0)); /* nothing else was asked for */
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			const uint32_t id = add_rule(&cases[i].rule);
			const bool came[] = {comes(&udp4, NULL, 0), comes(&udp6, NULL, 0),
				comes(&tcp4, NULL, 0), comes(&group, NULL, 0),
				comes(&plain, NULL, 0), comes(&udp4, NULL, 5)};
			const bool wanted[] = {cases[i].udp4, cases[i].udp6, cases[i].tcp4,
				cases[i].group, cases[i].plain, cases[i].tagged};

			for (size_t k = 0; k < ARRAY_SIZE(came); k++)
				if (came[k] != wanted[k])
					unit_fail("rule %zu: frame %zu came: %d", i, k, came[k]);
			assert_int_equal(vbn_rx_rule_remove(wire.group, id), 0);
			assert_int_equal(vbn_rx_rule_remove(wire.group, id), -ENOENT);
			assert_false(comes(&udp4, NULL, 0));
		}
		disconnect();
	}
}

static void test_drop_mark_count(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	const struct vbn_rx_rule marked = {.kind = VBN_RULE_MATCH,
		.ip_version = 4,
		.protocol = VBN_NUM(17),
		.mark = 0xabcdef,
		.priority = 2};
	const struct vbn_rx_rule drop = {.kind = VBN_RULE_MATCH,
		.action = VBN_RULE_DROP,
		.ip_version = 4,
		.protocol = VBN_NUM(17),
		.dst_port = VBN_NUM(2000),
		.priority = 1};
	uint64_t packets, bytes;
	uint32_t id, dropping, mark = 0;

	(void)state;
	create_receivers(&conf, 1);
	id = add_rule(&marked); /* before the group is built */
	take_sentinel();
	assert_int_equal(vbn_rx_rule_count(wire.group, id, &packets, &bytes), 0);
	assert_int_equal(packets, 0);
	connect_receivers();
	create_sender(&conf);
	assert_true(comes(&udp4, &mark, 0));
	assert_int_equal(mark, 0xabcdef);
	dropping = add_rule(&drop); /* and behind: it is asked first */
	assert_false(comes(&udp4, NULL, 0));
	assert_false(comes(&udp4, NULL, 0));
	assert_int_equal(vbn_rx_rule_count(wire.group, dropping, &packets, &bytes), 0);
	assert_int_equal(packets, 2);
	assert_int_equal(vbn_rx_rule_count(wire.group, id, &packets, &bytes), 0);
	assert_int_equal(packets, 1);
	assert_true(bytes >= 120);
	assert_int_equal(vbn_rx_rule_remove(wire.group, dropping), 0);
	assert_true(comes(&udp4, &mark, 0));
	assert_int_equal(vbn_rx_rule_count(wire.group, 999, &packets, &bytes), -ENOENT);
	vbn_queue_destroy(wire.rx[0]); /* the rule stays, and its count with it */
	wire.rx[0] = NULL;
	assert_int_equal(vbn_rx_rule_count(wire.group, id, &packets, NULL), 0);
	assert_int_equal(packets, 2);
}

static void test_refused_rules(void **state)
{
	const struct {
		struct vbn_rx_rule rule;
		const char *sentence;
	} cases[] = {
		{{.kind = VBN_RULE_MATCH, .ethertype = 0x806, .priority = 4}, "priority is 4"},
		{{.kind = VBN_RULE_MATCH, .ethertype = 0x806, .mark = 1 << 24}, "mark must be"},
		{{.kind = VBN_RULE_EVERYTHING, .ethertype = 0x806}, "take VBN_RULE_MATCH"},
		{{.kind = VBN_RULE_MATCH, .vlan = VBN_NUM(4096)}, "vlan must be"},
		{{.kind = VBN_RULE_MATCH, .src_prefix = 8}, "no ip_version"},
		{{.kind = VBN_RULE_MATCH, .ip_version = 4, .src_prefix = 33}, "prefix is longer"},
		{{.kind = VBN_RULE_MATCH, .ip_version = 4, .dst_port = VBN_NUM(1)},
			"not its protocol"},
	};
	uint32_t id;

	(void)state;
	assert_int_equal(vbn_rx_group_create(wire.b, NULL, &wire.group), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unit_catch_log();
		assert_int_equal(vbn_rx_rule_add(wire.group, &cases[i].rule, &id), -EINVAL);
		assert_logged(cases[i].sentence);
	}
}

int steering_tests(void)
{
	const struct CMUnitTest tests[] = {
		test(test_rss),
		test(test_hash_and_key),
		test(test_rules),
		test(test_drop_mark_count),
		test(test_refused_rules),
	};

	return cmocka_run_group_tests_name("steering", tests, NULL, NULL);
}
