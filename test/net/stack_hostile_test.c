/* stack_hostile_test.c - the stack and frames that lie: each one cut at every byte, each byte of its headers
 * changed, its lengths wrong; every frame has a fate, every buf comes home, nothing sent is malformed
 */

#include "stack_fixture.h"

static struct stack stack;
static struct frame frame;

static void drain(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

enum { QUERY = 12, KINDS = 15 }; /* a query is answered at a time that nobody knows before */

/* One of each kind that the stack looks into. */
static void make(int kind)
{
	static const uint8_t options[8] = {7, 7, 4, 0, 0, 0, 0, 0};
	static const uint8_t extended[] = {60, 0, 5, 2, 0, 0, 1, 0, 43, 0, 1, 4, 0, 0, 0, 0, 44, 0,
		0, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 5, 0, 9, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4};
	uint8_t error[8 + 40 + 8] = {3, 4, 0, 0, 0, 0, 2, 88};

	switch (kind) {
	case 0: frame_arp(&frame, 1, peer_mac, PEER4, (const uint8_t[6]){0}, OUR4); break;
	case 1: frame_arp(&frame, 2, peer_mac, PEER4, our_mac, OUR4); break;
	case 2: frame_udp(&frame, PEER4, OUR4, 9, 7, "some data", 9); break;
	case 3: frame_udp(&frame, PEER6, OUR6, 9, 7, "some data", 9); break;
	case 4: frame_echo(&frame, PEER4, OUR4, 1, 30); break;
	case 5: frame_echo(&frame, PEER6, OUR6, 1, 30); break;
	case 6: frame_nd(&frame, 135, PEER6, "ff02::1:ff00:2", OUR6, 0, peer_mac); break;
	case 7: frame_nd(&frame, 136, PEER6, OUR6, PEER6, 0x60000000, peer_mac); break;
	case 8:
		frame_ip(&frame,
			&(struct ip_fields){.from = PEER4,
				.to = OUR4,
				.protocol = 17,
				.n_options = 8,
				.options = options},
			"\0\1\0\7\0\x0c\0\0data", 12);
		break;
	case 9:
		frame_ip(&frame, &(struct ip_fields){.from = PEER6, .to = OUR6, .protocol = 0},
			extended, sizeof(extended));
		break;
	case 10:
		frame_ip(&frame,
			&(struct ip_fields){
				.from = PEER4, .to = OUR4, .protocol = 17, .fragment = 0x2000},
			error, 40);
		break;
	case 11: frame_udp(&frame, PEER4, FAR4, 1, 2, "go on", 5); break;
	case QUERY:
		frame_ip(&frame,
			&(struct ip_fields){
				.from = PEER4, .to = "224.0.0.1", .protocol = 2, .ttl = 1},
			"\x11\x64\xee\x9b\0\0\0\0", 8);
		break;
	case 13:
		/* An error that quotes what port 7 has sent. */
		memcpy(error + 8,
			"\x45\0\5\xdc\0\1\0\0\x40\x11\0\0\x0a\0\0\2\xc0\xa8\x09\x09\0\7\0\x09\5\xc8\0\0",
			28);
		frame_ip(&frame, &(struct ip_fields){.from = PEER4, .to = OUR4, .protocol = 1},
			error, sizeof(error));
		break;
	default: frame_udp(&frame, PEER4, OUR4, 1, 999, "nobody", 6); break;
	}
}

/* Sums put right again, so that what is behind them is looked at, too. */
static void put_sums_right(uint8_t *at, uint32_t len)
{
	uint32_t header, sum = 0;

	if (len < ETH + IP4 || get16(at + 12) != 0x0800)
		return;
	at += ETH;
	len -= ETH;
	header = (at[0] & 15u) * 4;
	if (header < IP4 || header > len)
		return;
	put16(at + 10, 0);
	for (uint32_t i = 0; i < header; i += 2)
		sum += get16(at + i);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(at + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
	if (at[9] == 17 && len >= header + UDP)
		put16(at + header + 6, 0);
	if ((at[9] != 1 && at[9] != 2) || len < header + 4)
		return;
	put16(at + header + 2, 0);
	sum = 0;
	for (uint32_t i = header; i < len; i++)
		sum += (uint32_t)at[i] << ((i - header) & 1 ? 0 : 8);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(at + header + 2, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
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
	vbn_ip_parse("239.1.2.3", &group);
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
			make(kind);
			for (uint32_t len = 0; len <= frame.len; len++) {
				stack_input(&stack, frame.bytes, len);
				stack_check(&stack);
			}
			stack_clear(&stack);
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
					make(kind);
					if (at >= frame.len)
						break;
					frame.bytes[at] = values[v];
					stack_input(&stack, frame.bytes, frame.len);
					put_sums_right(frame.bytes, frame.len);
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
		make(i % KINDS);
		for (uint32_t n = seed >> 28 & 3; n; n--) {
			seed = seed * 1103515245 + 12345;
			frame.bytes[(seed >> 8) % frame.len] = (uint8_t)(seed >> 20);
		}
		seed = seed * 1103515245 + 12345;
		if ((seed >> 16 & 3) == 0)
			frame.len = (seed >> 18) % (frame.len + 1);
		if (seed >> 20 & 1)
			put_sums_right(frame.bytes, frame.len);
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

/* A packet that comes back to a router again and again ends when its hops do. */
static void test_loop(void **arg)
{
	struct vbn_udp *udp;
	int rounds = 0;

	(void)arg;
	udp = begin(true);
	frame_udp(&frame, OTHER4, FAR4, 1, 2, "round", 5);
	while (stack_clear(&stack), stack_input(&stack, frame.bytes, frame.len),
		stack_sent(&stack, 0x0800, 17, 0)) {
		const struct sent *sent = stack_sent(&stack, 0x0800, 17, 0);

		memcpy(frame.bytes + ETH, sent->bytes + ETH, sent->len - ETH);
		assert_true(++rounds < 100);
	}
	assert_int_equal(rounds, 63);
	assert_counted(&stack, "drop_ttl", 1);
	finish(udp);
}

/* ---- the short way is the long way ---- */

/* By the one most packets are dealt with in one pass, by the other, whose frames are tagged, none. */
static struct stack tagged;

static uint64_t counts[2][128];

static int take_count(const char *name, const char *help, uint64_t value, void *arg)
{
	uint64_t **at = arg;

	(void)name;
	(void)help;
	*(*at)++ = value;
	return 0;
}

static int print_count(const char *name, const char *help, uint64_t value, void *arg)
{
	uint64_t **at = arg;

	(void)help;
	if (value != *(*at)++)
		print_error("  %s: %llu\n", name, (unsigned long long)value);
	return 0;
}

static void compare_counts(void)
{
	uint64_t *one = counts[0], *other = counts[1];

	vbn_net_counters(stack.end, take_count, &one);
	vbn_net_counters(tagged.end, take_count, &other);
	if (!memcmp(counts[0], counts[1], sizeof(counts[0])))
		return;
	one = counts[0];
	other = counts[1];
	print_error("the short way:\n");
	vbn_net_counters(stack.end, print_count, &other);
	print_error("the long way:\n");
	vbn_net_counters(tagged.end, print_count, &one);
	unit_fail("what is counted differs by the way");
}

/* Each net begins to number its packets somewhere. */
static void without_id(struct sent *sent)
{
	if (get16(sent->bytes + 12) != 0x0800)
		return;
	put16(sent->bytes + ETH + 4, 0);
	put16(sent->bytes + ETH + 10, 0);
}

static void compare_sent(void)
{
	assert_int_equal(stack.n_sent, tagged.n_sent);
	for (uint32_t i = 0; i < stack.n_sent; i++) {
		struct sent *one = &stack.sent[i], *other = &tagged.sent[i];

		without_id(one);
		without_id(other);
		assert_int_equal(one->len, other->len);
		assert_int_equal(one->link, other->link);
		assert_memory_equal(one->bytes, other->bytes, one->len);
	}
	stack_clear(&stack);
	stack_clear(&tagged);
}

static void input_both(void)
{
	/* A tag in what is tagged is another thing. */
	if (frame.len >= ETH && get16(frame.bytes + 12) == 0x8100)
		return;
	stack_input(&stack, frame.bytes, frame.len);
	stack_input(&tagged, frame.bytes, frame.len);
	compare_sent();
}

/* Frames that are mostly right, and what they are right for is mostly there. */
static void make_plain(uint32_t random)
{
	static const char *const from4[] = {PEER4, FAR4, "10.0.0.9", "169.254.1.1", "127.0.0.1"},
				 *const to4[] = {OUR4, FAR4, "10.1.0.2", OTHER4, "10.0.0.255",
					 "239.1.2.3", "169.254.1.2", "172.16.0.1"},
				 *const from6[] = {PEER6, "fd00::9", "fe80::1", "::1", "2000::1"},
				 *const to6[] = {OUR6, "fd01::2", "fd01::7", "ff02::1", "fe80::2",
					 "fd77::1"};
	static const uint16_t ports[] = {7, 53, 54, 999, 0};
	uint16_t from_port = ports[random >> 4 & 3], to_port = ports[(random >> 8) % 5];

	random >>= 12;
	if (random & 1)
		frame_udp(&frame, from4[(random >> 1) % 5], to4[(random >> 4) % 8], from_port,
			to_port, "some data that is sent", random >> 8 & 15);
	else
		frame_udp(&frame, from6[(random >> 1) % 5], to6[(random >> 4) % 6], from_port,
			to_port, "some data that is sent", random >> 8 & 15);
}

/* In the headers mostly, and to what means something there. */
static void change_a_byte(uint32_t random)
{
	static const uint8_t values[] = {0, 1, 2, 7, 17, 0x45, 0x46, 255};
	uint32_t at = random >> 16, span = random >> 12 & 3 ? min(frame.len, 64u) : frame.len;
	uint8_t bit = (uint8_t)(1 << (random >> 9 & 7));

	frame.bytes[at % span] =
		random >> 14 & 1 ? values[random >> 9 & 7] : frame.bytes[at % span] ^ bit;
}

static bool is_udp(void)
{
	return frame.bytes[ETH + (frame.bytes[ETH] >> 4 == 4 ? 9 : 6)] == 17;
}

static struct vbn_udp *open_on(struct stack *on, uint16_t port, const char *ip, const char *peer)
{
	struct vbn_udp_conf conf = {.local.port = port, .recv = drain};
	struct vbn_udp_address to = {.port = 7};
	struct vbn_udp *udp;

	if (ip)
		assert_int_equal(vbn_ip_parse(ip, &conf.local.ip), 0);
	assert_int_equal(vbn_udp_open(on->end, &conf, &udp), 0);
	if (peer) {
		assert_int_equal(vbn_ip_parse(peer, &to.ip), 0);
		assert_int_equal(vbn_udp_connect(udp, &to), 0);
	}
	return udp;
}

static void test_the_short_way_is_the_long_way(void **arg)
{
	struct stack *both[2] = {&stack, &tagged};
	struct vbn_udp *sockets[2][4];
	uint32_t seed = 11;

	(void)arg;
	for (int forward = 0; forward < 2; forward++) {
		/* Time stands still and no neighbour is evicted: when its entry comes back is up to other threads. */
		const struct vbn_net_conf conf = {
			.forward = forward, .icmp_rate = 65536, .max_neighbours = 8192};

		for (int i = 0; i < 2; i++) {
			stack_open_tagged(both[i], &conf, 1500, i ? 5 : 0);
			sockets[i][0] = open_on(both[i], 7, NULL, NULL);
			sockets[i][1] = open_on(both[i], 53, OUR4, NULL);
			sockets[i][2] = open_on(both[i], 54, NULL, PEER4);
			sockets[i][3] = open_on(both[i], 54, NULL, NULL);
			stack_know(both[i], PEER4);
			stack_know(both[i], PEER6);
		}
		for (int i = 0; i < 50000; i++) {
			seed = seed * 1103515245 + 12345;
			if (i % 3)
				make_plain(seed >> 2);
			else if ((seed >> 8) % KINDS != QUERY)
				make((int)((seed >> 8) % KINDS));
			for (uint32_t n = seed >> 28 & 3; n > 1; n--)
				change_a_byte(seed = seed * 1103515245 + 12345);
			if (seed >> 21 & 3)
				put_sums_right(frame.bytes, frame.len);
			/* A device does not lie of IP's sums, and says nothing of ICMP's. */
			stack.flags = tagged.flags = seed >> 21 & 1 && is_udp()
				? VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD
				: 0;
			input_both();
			if (i % 64 == 0)
				compare_counts();
		}
		/* Without the short way this would not say much. */
		assert_true(stack_counter(&stack, "udp_received") > 1000);
		assert_true(!forward || stack_counter(&stack, "forwarded") > 500);
		for (int i = 0; i < 2; i++) {
			for (int k = 0; k < 4; k++)
				vbn_udp_close(sockets[i][k]);
			stack_close(both[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_at_every_byte),
		cmocka_unit_test(test_every_byte_is_wrong),
		cmocka_unit_test(test_random_lies),
		cmocka_unit_test(test_loop),
		cmocka_unit_test(test_the_short_way_is_the_long_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
