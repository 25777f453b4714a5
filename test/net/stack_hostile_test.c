/* stack_hostile_test.c - the stack and frames that lie: each one cut at every byte, each byte of its headers
 * changed, its lengths wrong; every frame has a fate, every buf comes home, nothing sent is malformed
 */

#include "stack_kinds.h"

static struct stack stack;
static struct frame frame;

static void drain(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

static struct vbn_udp *begin(bool forward)
{
	struct vbn_udp *udp;
	struct vbn_ip group;

	stack_open(&stack,
		&(struct vbn_net_conf){
			.forward = forward, .icmp_rate = 65536, .max_neighbours = 32},
		1500);
	assert_int_equal(vbn_udp_open(stack.end,
				 &(struct vbn_udp_conf){.local.port = 7, .recv = drain}, &udp),
		0);
	vbn_ip_parse(KINDS_GROUP, &group);
	assert_int_equal(vbn_udp_join(udp, &group, 0), 0);
	stack_know(&stack, PEER4);
	stack_know(&stack, PEER6);
	return udp;
}

static void finish(struct vbn_udp *udp)
{
	stack_check(&stack);
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_cut_at_every_byte(void **arg)
{
	(void)arg;
	for (int forward = 0; forward < 2; forward++) {
		struct vbn_udp *udp = begin(forward);

		for (int kind = 0; kind < KINDS; kind++) {
			kind_make(&frame, kind);
			for (uint32_t len = 0, whole = frame.len; len <= whole; len++) {
				kind_make(&frame, kind);
				frame.len = len;
				stack_input(&stack, frame.bytes, len);
				/* And so that IP says no other. */
				kind_put_length_right(&frame);
				stack_input(&stack, frame.bytes, len);
				stack_check(&stack);
				stack_clear(&stack);
			}
		}
		finish(udp);
	}
}

static void test_every_byte_is_wrong(void **arg)
{
	static const uint8_t values[] = {0, 1, 4, 5, 0x0f, 0x40, 0x45, 0x46, 0x7f, 0x80, 0xff};

	(void)arg;
	for (int forward = 0; forward < 2; forward++) {
		struct vbn_udp *udp = begin(forward);

		for (int kind = 0; kind < KINDS; kind++) {
			for (uint32_t at = 0; at < 90; at++) {
				for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
					kind_make(&frame, kind);
					if (at >= frame.len)
						break;
					frame.bytes[at] = values[v];
					stack_input(&stack, frame.bytes, frame.len);
					kind_put_sums_right(&frame);
					stack_input(&stack, frame.bytes, frame.len);
				}
			}
			stack_clear(&stack);
			stack_check(&stack);
			stack_pass(&stack, 100);
		}
		finish(udp);
	}
}

/* Several bytes at once, lengths too; tags, chains, and what the device may say of sums. */
static void test_random_lies(void **arg)
{
	uint32_t seed = 7;
	struct vbn_udp *udp;

	(void)arg;
	udp = begin(true);
	for (int i = 0; i < 40000; i++) {
		kind_make(&frame, i % KINDS);
		for (uint32_t n = seed >> 28 & 3; n; n--) {
			seed = seed * 1103515245 + 12345;
			frame.bytes[(seed >> 8) % frame.len] = (uint8_t)(seed >> 20);
		}
		seed = seed * 1103515245 + 12345;
		if ((seed >> 16 & 3) == 0)
			frame.len = (seed >> 18) % (frame.len + 1);
		if (seed >> 20 & 1)
			kind_put_sums_right(&frame);
		stack_input(&stack, frame.bytes, frame.len);
		if (i % 50 == 0) {
			stack_check(&stack);
			stack_clear(&stack);
		}
		if (i % 500 == 0)
			stack_pass(&stack, 100);
	}
	assert_true(vbn_net_neighbours(stack.net, NULL, 0) <= 32);
	finish(udp);
}

/* ---- sums ---- */

static void test_wrong_sums(void **arg)
{
	static const struct {
		int kind;
		uint32_t at; /* the byte that is wrong, from IP's header on */
		const char *drop;
	} cases[] = {
		{2, 8, "drop_ip_sum"},
		{8, IP4 + 1, "drop_ip_sum"}, /* in the options */
		{11, 10, "drop_ip_sum"},     /* to be forwarded */
		{2, IP4 + UDP, "drop_l4_sum"},
		{2, IP4 + 6, "drop_l4_sum"},
		{3, IP6 + UDP, "drop_l4_sum"},
		{3, IP6 + 7, "drop_l4_sum"},
		{4, IP4 + 9, "drop_l4_sum"},
		{5, IP6 + 9, "drop_l4_sum"},
		{6, IP6 + 20, "drop_l4_sum"},
		{KIND_QUERY4, IP4 + 1, "drop_l4_sum"},
		{KIND_QUERY6, IP6 + 9, "drop_l4_sum"},
		{13, IP4 + 20, "drop_l4_sum"},
		{18, IP6 + 20, "drop_l4_sum"},
	};
	struct vbn_udp *udp;

	(void)arg;
	udp = begin(true);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t before = stack_counter(&stack, cases[i].drop);

		kind_make(&frame, cases[i].kind);
		frame.bytes[ETH + cases[i].at] ^= 0x20;
		stack_clear(&stack);
		stack_input(&stack, frame.bytes, frame.len);
		if (stack_counter(&stack, cases[i].drop) != before + 1 || stack.n_sent)
			unit_fail("kind %d with byte %u wrong: %s has not counted it",
				cases[i].kind, cases[i].at, cases[i].drop);
	}
	finish(udp);
}

/* ---- IPv6's fragments ---- */

static void piece6(uint32_t id, uint32_t offset, bool more, size_t n)
{
	static uint8_t payload[8 + FRAME];

	payload[0] = 17;
	put16(payload + 2, (uint16_t)(offset | more));
	put16(payload + 6, (uint16_t)id);
	frame_ip(&frame, &(struct ip_fields){.from = PEER6, .to = OUR6, .protocol = 44}, payload,
		8 + n);
	stack_input(&stack, frame.bytes, frame.len);
}

static void test_hostile_fragments6(void **arg)
{
	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.max_datagrams = 8, .max_fragments = 64}, 1500);
	stack_know(&stack, PEER6);
	/* Overlapping: the datagram is gone with all that comes of it. */
	piece6(1, 0, true, 64);
	piece6(1, 56, true, 64);
	piece6(1, 120, false, 64);
	assert_counted(&stack, "drop_fragment_overlap", 3);
	piece6(2, 0, true, 64);
	piece6(2, 0, true, 64);
	assert_counted(&stack, "drop_fragment_duplicate", 1);
	/* Behind the end, another end, one that leaves no length, none at all, too far. */
	piece6(3, 64, false, 8);
	piece6(3, 128, true, 64);
	piece6(4, 64, false, 8);
	piece6(4, 128, false, 8);
	piece6(5, 0, true, 63);
	piece6(5, 8, true, 0);
	piece6(5, 65528, true, 64);
	assert_counted(&stack, "drop_fragment", 3);
	assert_counted(&stack, "drop_fragment_overlap", 7);
	/* Floods: of datagrams, and of pieces of one without end. */
	for (uint32_t i = 0; i < 5000; i++)
		piece6(100 + i, 0, true, 64);
	assert_true(vbn_pool_available(stack.pool) >= POOL - 8);
	for (uint32_t i = 0; i < 5000; i++)
		piece6(9999, 8 * i % 65000, true, 8);
	assert_true(vbn_pool_available(stack.pool) >= POOL - 64);
	stack_check(&stack);
	stack_clear(&stack);
	stack_pass(&stack, 16000);
	assert_int_equal(vbn_pool_available(stack.pool), POOL);
	assert_int_equal(stack_sent(&stack, 0x86dd, 58, 0)->bytes[ETH + IP6], 3);
	stack_close(&stack);
}

/* ---- floods ---- */

static void test_flood_of_neighbours6(void **arg)
{
	struct vbn_udp *udp;

	(void)arg;
	udp = begin(true);
	for (int i = 0; i < 20000; i++) {
		char ip[48];

		snprintf(ip, sizeof(ip), "fd00::%x:%x", i % 7, i);
		frame_nd(&frame, 135, ip, OUR6, OUR6, 0, peer_mac);
		stack_input(&stack, frame.bytes, frame.len);
		snprintf(ip, sizeof(ip), "fd01::%x:%x", i % 7, i);
		frame_udp(&frame, PEER6, ip, 1, 2, "forward me", 10);
		stack_input(&stack, frame.bytes, frame.len);
		stack_clear(&stack);
		assert_true(vbn_net_neighbours(stack.net, NULL, 0) <= 32);
		if (i % 1000 == 0)
			stack_pass(&stack, 100);
	}
	stack_check(&stack);
	assert_true(vbn_pool_available(stack.pool) >= POOL - 256);
	finish(udp);
}

/* ---- loops ---- */

/* A packet that comes back to a router again and again ends when its hops do. */
static void test_loop(void **arg)
{
	static const struct {
		const char *from, *to;
		uint16_t type;
	} loops[] = {{OTHER4, FAR4, 0x0800}, {PEER6, "fd01::7", 0x86dd}};
	struct vbn_udp *udp;

	(void)arg;
	udp = begin(true);
	/* Who is on the other link is known, too. */
	frame_nd(&frame, 135, "fd01::7", "fd01::2", "fd01::2", 0, peer_mac);
	memcpy(frame.bytes, "\2\0\0\0\1\2", 6);
	stack_input_second(&stack, frame.bytes, frame.len);
	for (size_t i = 0; i < ARRAY_SIZE(loops); i++) {
		const struct sent *sent;
		int rounds = 0;

		frame_udp(&frame, loops[i].from, loops[i].to, 1, 2, "round", 5);
		while (stack_clear(&stack), stack_input(&stack, frame.bytes, frame.len),
			(sent = stack_sent(&stack, loops[i].type, 17, 0)) != NULL) {
			memcpy(frame.bytes + ETH, sent->bytes + ETH, sent->len - ETH);
			assert_true(++rounds < 100);
		}
		assert_int_equal(rounds, 63);
		assert_counted(&stack, "drop_ttl", i + 1);
	}
	finish(udp);
}

/* What says that it comes from us, or from where nobody is, is not answered: an echo of an echo has no end. */
static void test_from_nobody(void **arg)
{
	static const char *const nobodies4[] = {OUR4, "10.1.0.2", "10.0.0.255", "255.255.255.255",
		"239.1.2.3", "0.0.0.0", "0.0.0.1", "127.0.0.1", "240.0.0.1"},
				 *const nobodies6[] = {OUR6, "fd01::2", "ff02::1", "::1",
					 "::", "::ffff:10.0.0.1"};
	struct vbn_udp *udp;

	(void)arg;
	for (int forward = 0; forward < 2; forward++) {
		udp = begin(forward);
		for (size_t i = 0; i < ARRAY_SIZE(nobodies4); i++) {
			frame_udp(&frame, nobodies4[i], OUR4, 7, 7, "echo", 4);
			stack_input(&stack, frame.bytes, frame.len);
			frame_echo(&frame, nobodies4[i], OUR4, 1, 10);
			stack_input(&stack, frame.bytes, frame.len);
			frame_udp(&frame, nobodies4[i], OUR4, 7, 999, "no port", 7);
			stack_input(&stack, frame.bytes, frame.len);
		}
		for (size_t i = 0; i < ARRAY_SIZE(nobodies6); i++) {
			frame_udp(&frame, nobodies6[i], OUR6, 7, 7, "echo", 4);
			stack_input(&stack, frame.bytes, frame.len);
			frame_echo(&frame, nobodies6[i], OUR6, 1, 10);
			stack_input(&stack, frame.bytes, frame.len);
			frame_udp(&frame, nobodies6[i], OUR6, 7, 999, "no port", 7);
			stack_input(&stack, frame.bytes, frame.len);
		}
		assert_int_equal(stack.n_sent, 0);
		finish(udp);
	}
}

/* ---- what a device may hand out ---- */

static void test_chains_and_tags(void **arg)
{
	struct vbn_buf *bufs[2];
	struct vbn_udp *udp;

	(void)arg;
	udp = begin(false);
	kind_make(&frame, 2);
	assert_int_equal(vbn_buf_alloc(stack.pool, bufs, 2), 2);
	for (int i = 0; i < 2; i++) {
		memcpy(bufs[i]->data, frame.bytes, frame.len);
		bufs[i]->len = frame.len;
		*vbn_buf_packet(bufs[i]) = (struct vbn_packet){.flags = 0};
	}
	vbn_buf_append(bufs[0], bufs[1]);
	vbn_net_input(stack.end, bufs, 1);
	assert_counted(&stack, "drop_chained", 1);
	/* A tag that was taken out, one that is there, cut; none of them is for an interface. */
	stack.flags = VBN_PACKET_VLAN;
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "udp_received", 1); /* the tag was 0: priority alone */
	stack.flags = 0;
	kind_make(&frame, 34);
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "drop_vlan", 1);
	for (uint32_t len = 14; len < 18; len++)
		stack_input(&stack, frame.bytes, len);
	assert_counted(&stack, "drop_short", 4);
	finish(udp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_at_every_byte),
		cmocka_unit_test(test_every_byte_is_wrong),
		cmocka_unit_test(test_random_lies),
		cmocka_unit_test(test_loop),
		cmocka_unit_test(test_from_nobody),
		cmocka_unit_test(test_wrong_sums),
		cmocka_unit_test(test_hostile_fragments6),
		cmocka_unit_test(test_flood_of_neighbours6),
		cmocka_unit_test(test_chains_and_tags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
