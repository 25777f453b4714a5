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
	case 12:
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
enum { KINDS = 15 };

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_at_every_byte),
		cmocka_unit_test(test_every_byte_is_wrong),
		cmocka_unit_test(test_random_lies),
		cmocka_unit_test(test_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
