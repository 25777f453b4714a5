/* stack_quick_test.c - the short way that most packets take through the stack, against the long one: what is sent and
 * counted is the same, whatever comes
 */

#include "stack_kinds.h"

static void drain(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

/* By the one most packets are dealt with in one pass, by the other, whose frames are tagged, none. */
static struct stack stack, tagged;
static struct frame frame;

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
	static const uint16_t ports[] = {7, 53, 54, 55, 999, 0};
	uint16_t from_port = ports[random >> 4 & 3], to_port = ports[(random >> 8) % 6];

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

static bool is_query(uint32_t kind)
{
	return kind == KIND_QUERY4 || kind == KIND_QUERY6;
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
	struct vbn_udp *sockets[2][5];
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
			sockets[i][4] = open_on(both[i], 55, NULL, PEER4);
			stack_know(both[i], PEER4);
			stack_know(both[i], PEER6);
		}
		for (int i = 0; i < 50000; i++) {
			seed = seed * 1103515245 + 12345;
			if (i % 3)
				make_plain(seed >> 2);
			else if (!is_query((seed >> 8) % KINDS))
				kind_make(&frame, (int)((seed >> 8) % KINDS));
			for (uint32_t n = seed >> 28 & 3; n > 1; n--)
				change_a_byte(seed = seed * 1103515245 + 12345);
			if (seed >> 21 & 3)
				kind_put_sums_right(&frame);
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
			for (int k = 0; k < 5; k++)
				vbn_udp_close(sockets[i][k]);
			stack_close(both[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_short_way_is_the_long_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
