/* rules_test.c - rules of an interface that is shared with the kernel: what each field takes, priorities, counts,
 * what the kernel keeps
 */

#include "station.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

static struct station station;

/* Which of these frames a rule takes. */
enum {
	F_UDP4 = 1 << 0,     /* 10.1.2.3:1000 to 10.9.0.2:7 */
	F_TCP4 = 1 << 1,     /* the same by TCP, with IP options */
	F_FRAGMENT = 1 << 2, /* of UDP, not the first */
	F_UDP6 = 1 << 3,     /* fd01::3 to fd09::2, the same ports */
	F_ICMP6 = 1 << 4,
	F_TAGGED = 1 << 5, /* as F_UDP4, on VLAN 7 */
	F_GROUP = 1 << 6,  /* to a group's MAC, of an EtherType of its own */
	F_SHORT = 1 << 7,  /* IPv4's EtherType and nothing behind it */
	F_ALL = (1 << 8) - 1,
	N_FRAMES = 8,
};

#define END_TYPE 0x88b5 /* the last of a round, which another rule takes */

static uint32_t put_ip4(uint8_t *at, uint8_t protocol, uint8_t words, uint16_t fragment)
{
	const uint8_t addresses[8] = {10, 1, 2, 3, 10, 9, 0, 2};
	uint8_t *l4 = at + words * 4;

	memset(at, 0, 100);
	at[0] = (uint8_t)(0x40 | words);
	at[3] = (uint8_t)(words * 4 + 20);
	at[6] = (uint8_t)(fragment >> 8);
	at[7] = (uint8_t)fragment;
	at[8] = 64;
	at[9] = protocol;
	memcpy(at + 12, addresses, 8);
	memcpy(l4, "\x03\xe8\0\7", 4);
	return words * 4u + 20;
}

static uint32_t put_ip6(uint8_t *at, uint8_t protocol)
{
	memset(at, 0, 100);
	at[0] = 0x60;
	at[5] = 20;
	at[6] = protocol;
	at[7] = 64;
	memcpy(at + 8, "\xfd\1\0\0\0\0\0\0\0\0\0\0\0\0\0\3", 16);
	memcpy(at + 24, "\xfd\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
	memcpy(at + 40, "\x03\xe8\0\7", 4);
	return 60;
}

/* Number `i` of them, or the last of a round. */
static uint32_t make_frame(uint8_t *frame, int i)
{
	static const uint8_t source[6] = {2, 0, 0, 0, 0, 0x99}, group[6] = {1, 0, 0x5e, 1, 2, 3};
	uint8_t *ip = frame + ETH;

	memset(frame, 0, ETH + 100);
	memcpy(frame, i == 6 ? group : station.info.mac, 6);
	memcpy(frame + 6, source, 6);
	memcpy(frame + 12, "\x08\0", 2);
	switch (1 << i) {
	case F_UDP4: return ETH + put_ip4(ip, 17, 5, 0);
	case F_TCP4: return ETH + put_ip4(ip, 6, 7, 0);
	case F_FRAGMENT: return ETH + put_ip4(ip, 17, 5, 100);
	case F_UDP6: memcpy(frame + 12, "\x86\xdd", 2); return ETH + put_ip6(ip, 17);
	case F_ICMP6: memcpy(frame + 12, "\x86\xdd", 2); return ETH + put_ip6(ip, 58);
	case F_TAGGED:
		memcpy(frame + 12, "\x81\0\xa0\7\x08\0", 6);
		return ETH + 4 + put_ip4(ip + 4, 17, 5, 0);
	case F_GROUP: memcpy(frame + 12, "\x88\xb6", 2); return 60;
	case F_SHORT: return ETH;
	default: memcpy(frame + 12, "\x88\xb5", 2); return 60;
	}
}

static void send_frames(int fd)
{
	uint8_t frame[200];

	for (int i = 0; i <= N_FRAMES; i++) {
		const uint32_t len = make_frame(frame, i);

		assert_int_equal(send(fd, frame, len, 0), len);
	}
}

/* Which frames of a round come to the station: a bit each. */
static uint32_t taken(void)
{
	const double deadline = station_seconds() + 20;
	uint8_t expected[200];
	uint32_t bits = 0;

	for (;;) {
		struct vbn_buf *buf;
		bool last = false;

		if (station_seconds() > deadline)
			unit_fail("the last frame of a round does not come");
		vbn_worker_poll(station.worker);
		if (vbn_recv(station.queues[0], &buf, 1) != 1)
			continue;
		for (int i = 0; i <= N_FRAMES; i++) {
			const uint32_t len = make_frame(expected, i);

			if (buf->len < len || memcmp(buf->data, expected, len) != 0 ||
				(i == 7 && buf->len > len))
				continue;
			bits |= 1u << i;
			last = i == N_FRAMES;
		}
		vbn_buf_free(&buf, 1);
		if (last)
			return bits & F_ALL;
	}
}

static void check_rule(int fd, struct vbn_rx_rule rule, uint32_t expected, const char *what)
{
	uint64_t packets, bytes;
	uint32_t id, found;

	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), 0);
	send_frames(fd);
	found = taken();
	if (found != (rule.action == VBN_RULE_TAKE ? expected : 0))
		unit_fail("%s: frames %#x came, not %#x", what, found, expected);
	assert_int_equal(vbn_rx_rule_count(station.group, id, &packets, &bytes), 0);
	/* Linux may have had something of its own to say. */
	if (packets < (uint64_t)__builtin_popcount(expected) ||
		packets > (uint64_t)__builtin_popcount(expected) + 8)
		unit_fail("%s: it has counted %llu packets, not those of %#x", what,
			(unsigned long long)packets, expected);
	assert_true(bytes >= packets * ETH);
	assert_int_equal(vbn_rx_rule_remove(station.group, id), 0);
}

#define EACH4 (F_UDP4 | F_TCP4 | F_FRAGMENT | F_TAGGED)
#define MATCH .kind = VBN_RULE_MATCH

static void check_rules(int fd)
{
	const struct {
		const char *what;
		struct vbn_rx_rule rule;
		uint32_t expected;
	} cases[] = {
		{"IPv4", {MATCH, .ip_version = 4}, EACH4},
		{"an EtherType", {MATCH, .ethertype = 0x0800}, EACH4 | F_SHORT},
		{"IPv6", {MATCH, .ip_version = 6}, F_UDP6 | F_ICMP6},
		{"a VLAN", {MATCH, .vlan = VBN_NUM(7)}, F_TAGGED},
		{"another VLAN", {MATCH, .vlan = VBN_NUM(8)}, 0},
		{"UDP", {MATCH, .ip_version = 4, .protocol = VBN_NUM(17)},
			F_UDP4 | F_FRAGMENT | F_TAGGED},
		{"a port",
			{MATCH, .ip_version = 4, .protocol = VBN_NUM(17), .dst_port = VBN_NUM(7)},
			F_UDP4 | F_TAGGED},
		{"both ports of TCP",
			{MATCH, .ip_version = 4, .protocol = VBN_NUM(6), .src_port = VBN_NUM(1000),
				.dst_port = VBN_NUM(7)},
			F_TCP4},
		{"another port",
			{MATCH, .ip_version = 6, .protocol = VBN_NUM(17), .src_port = VBN_NUM(7)},
			0},
		{"a port of IPv6",
			{MATCH, .ip_version = 6, .protocol = VBN_NUM(17),
				.src_port = VBN_NUM(1000)},
			F_UDP6},
		{"a source", {MATCH, .ip_version = 4, .src_prefix = 16, .src_ip = {10, 1, 9, 9}},
			EACH4},
		{"another source",
			{MATCH, .ip_version = 4, .src_prefix = 31, .src_ip = {10, 1, 2, 4}}, 0},
		{"a destination",
			{MATCH, .ip_version = 4, .dst_prefix = 32, .dst_ip = {10, 9, 0, 2}}, EACH4},
		{"a prefix of IPv6",
			{MATCH, .ip_version = 6, .dst_prefix = 127, .dst_ip = {0xfd, 9, [15] = 3}},
			F_UDP6 | F_ICMP6},
		{"another one",
			{MATCH, .ip_version = 6, .dst_prefix = 128, .dst_ip = {0xfd, 9, [15] = 3}},
			0},
		{"a MAC",
			{MATCH, .src_mac = {2, 0, 0, 0, 0, 0x99},
				.src_mac_mask = {255, 255, 255, 255, 255, 255}, .ip_version = 6},
			F_UDP6 | F_ICMP6},
		{"another MAC",
			{MATCH, .src_mac = {2, 0, 0, 0, 0, 0x98},
				.src_mac_mask = {255, 255, 255, 255, 255, 255}, .ip_version = 6},
			0},
		{"a MAC's mask", {MATCH, .dst_mac = {1, 0, 0x5e}, .dst_mac_mask = {255, 255, 255}},
			F_GROUP},
		{"groups", {.kind = VBN_RULE_ALL_MULTICAST}, F_GROUP},
		{"what is dropped", {MATCH, .action = VBN_RULE_DROP, .ip_version = 4}, EACH4},
		{"everything", {.kind = VBN_RULE_EVERYTHING}, F_ALL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_rule(fd, cases[i].rule, cases[i].expected, cases[i].what);
}

/* The lower priority is asked first, whatever was added before; everything last. */
static void check_priorities(int fd)
{
	struct vbn_rx_rule rule = {MATCH, .ip_version = 4, .priority = 2};
	uint32_t ids[4];

	assert_int_equal(
		vbn_rx_rule_add(station.group,
			&(struct vbn_rx_rule){.kind = VBN_RULE_EVERYTHING, .action = VBN_RULE_DROP},
			&ids[0]),
		0);
	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &ids[1]), 0);
	rule.protocol = (struct vbn_num)VBN_NUM(6);
	rule.priority = 1;
	rule.action = VBN_RULE_DROP;
	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &ids[2]), 0);
	assert_int_equal(vbn_rx_rule_add(station.group,
				 &(struct vbn_rx_rule){.kind = VBN_RULE_EVERYTHING}, &ids[3]),
		0);
	send_frames(fd);
	assert_int_equal(taken(), EACH4 & ~F_TCP4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(vbn_rx_rule_remove(station.group, ids[i]), 0);
}

/* What no rule takes the kernel gets: a socket of its own on this interface. */
static void check_kernel(int fd)
{
	const struct sockaddr_ll all = {.sll_family = AF_PACKET,
		.sll_protocol = htons(0x0003),
		.sll_ifindex = (int)if_nametoindex("near")};
	const int kernel = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct vbn_rx_rule rule = {MATCH, .ip_version = 4, .protocol = VBN_NUM(17)};
	uint8_t frame[2048];
	uint32_t id;

	assert_int_equal(bind(kernel, (const struct sockaddr *)&all, sizeof(all)), 0);
	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), 0);
	send_frames(fd);
	assert_int_equal(taken(), F_UDP4 | F_FRAGMENT | F_TAGGED);
	station_wait(&station,
		recv(kernel, frame, sizeof(frame), 0) > ETH && frame[12] == 8 &&
			frame[ETH + 9] == 6);
	while (recv(kernel, frame, sizeof(frame), 0) > ETH)
		assert_false(frame[12] == 8 && frame[ETH + 9] == 17);
	assert_int_equal(vbn_rx_rule_remove(station.group, id), 0);
	close(kernel);
}

static void test_rules(void **arg)
{
	const struct vbn_rx_rule end = {MATCH, .ethertype = END_TYPE};
	uint32_t id;
	int fd;

	(void)arg;
	station_open(&station, 1, NULL);
	fd = linux_frames();
	assert_int_equal(vbn_rx_rule_add(station.group, &end, &id), 0);
	check_rules(fd);
	check_priorities(fd);
	check_kernel(fd);
	/* They outlive a reset. */
	assert_int_equal(station_reset(&station), 0);
	check_rule(fd, (struct vbn_rx_rule){MATCH, .ip_version = 6}, F_UDP6 | F_ICMP6, "again");
	assert_int_equal(vbn_rx_rule_remove(station.group, id), 0);
	/* With no rule all comes. */
	send_frames(fd);
	assert_int_equal(taken(), F_ALL);
	close(fd);
	station_close(&station);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules)};
	int ret = station_network(1500);

	if (ret)
		return ret;
	if (vbn_init(&argc, &argv) < 0)
		return 1;
	vbn__log_set(LOG_WARNING, NULL, NULL);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	vbn_fini();
	return ret;
}
