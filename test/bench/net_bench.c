/* net_bench.c - instructions of the stack by packet: UDP echo and forwarding, 64-byte frames (60 without FCS; IPv6: 70) in bursts
 * of 32, of 16 peers and 16 destinations; from frames received to frames staged, without the queue's own
 *
 *   net_bench    exits with 1 where one takes more than its limit
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

enum { FLOWS = 16, AT_ONCE = 32, ETH = 14 };

static struct vbn_net *net;
static struct vbn_net_end *plain, *offload;
static struct vbn_pool *pool;
static struct vbn_buf *bufs[BURST];

static int output(struct vbn_buf **sent, int n, void *arg)
{
	(void)arg;
	vbn_buf_free(sent, n);
	return n;
}

static void echo(struct vbn_udp *udp, struct vbn_buf **got, int n, void *arg)
{
	(void)arg;
	if (vbn_udp_reply(udp, got, n) != n)
		die("a reply was not taken");
}

static uint16_t sum(const uint8_t *at, size_t n, uint32_t value)
{
	for (size_t i = 0; i < n; i++)
		value += (uint32_t)at[i] << (i & 1 ? 0 : 8);
	value = (value & 0xffff) + (value >> 16);
	return (uint16_t) ~((value & 0xffff) + (value >> 16));
}

static void put_sum(uint8_t *field, uint16_t value)
{
	field[0] = (uint8_t)(value >> 8);
	field[1] = (uint8_t)value;
}

/* 60 bytes of UDP to port 7, from one of the peers beyond the router; `far` is for somebody else. */
static uint32_t make4(uint8_t *at, int flow, bool far)
{
	static const uint8_t frame[60] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46,
		0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0, 0, 7, 0, 26, 0, 0, 1,
		2, 3};

	memcpy(at, frame, sizeof(frame));
	memcpy(at + 26, (uint8_t[]){192, 168, 1, (uint8_t)flow}, 4);
	if (far)
		memcpy(at + 30, (uint8_t[]){192, 168, 0, (uint8_t)flow}, 4);
	at[35] = (uint8_t)flow;
	put_sum(at + 24, sum(at + 14, 20, 0));
	put_sum(at + 40, sum(at + 26, 34, 17 + 26));
	return sizeof(frame);
}

static uint32_t make6(uint8_t *at, int flow, bool far)
{
	static const uint8_t frame[70] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0,
		0, 0, 0, 16, 17, 64, 0xfd, [37] = 1, [38] = 0xfd, [53] = 2, 0x10, 0, 0, 7, 0, 16, 0,
		0, 1, 2, 3};

	memcpy(at, frame, sizeof(frame));
	memcpy(at + 23, (uint8_t[]){9, 1, (uint8_t)flow}, 3);
	if (far)
		memcpy(at + 39, (uint8_t[]){9, (uint8_t)flow}, 2);
	at[55] = (uint8_t)flow;
	put_sum(at + 60, sum(at + 22, 48, 17 + 16));
	return sizeof(frame);
}

static void prepare(uint32_t (*make)(uint8_t *at, int flow, bool far), bool far, uint16_t flags)
{
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("the pool is empty");
	for (int i = 0; i < BURST; i++) {
		bufs[i]->len = make(bufs[i]->data, i % FLOWS, far);
		*vbn_buf_packet(bufs[i]) = (struct vbn_packet){.flags = flags};
	}
}

#define GOOD (VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD)
#define ACT(name, end, make, far, flags)                           \
	static void prepare_##name(void)                           \
	{                                                          \
		prepare(make, far, flags);                         \
	}                                                          \
	static __attribute__((noinline)) void measure_##name(void) \
	{                                                          \
		for (int i = 0; i < BURST; i += AT_ONCE)           \
			vbn_net_input(end, bufs + i, AT_ONCE);     \
	}                                                          \
	static bool settle_##name(void)                            \
	{                                                          \
		vbn_net_flush(end);                                \
		return true;                                       \
	}                                                          \
	static const struct act name = {prepare_##name, measure_##name, settle_##name};

ACT(echo4_offload, offload, make4, false, GOOD)
ACT(echo6_offload, offload, make6, false, GOOD)
ACT(forward4_offload, offload, make4, true, GOOD)
ACT(forward6_offload, offload, make6, true, GOOD)
ACT(echo4, plain, make4, false, 0)
ACT(echo6, plain, make6, false, 0)
ACT(forward4, plain, make4, true, 0)

static const struct act *const acts[] = {&echo4_offload, &echo6_offload, &forward4_offload,
	&forward6_offload, &echo4, &echo6, &forward4};
/* Of either compiler, and a tenth. */
static const struct {
	const char *name;
	double limit;
} cases[] = {
	{"UDP echo, IPv4, offloads", 320},
	{"UDP echo, IPv6, offloads", 320},
	{"forwarding, IPv4, offloads", 130},
	{"forwarding, IPv6, offloads", 130},
	{"UDP echo, IPv4, sums by the CPU", 490},
	{"UDP echo, IPv6, sums by the CPU", 470},
	{"forwarding, IPv4, sums by the CPU", 155},
};
enum { ACTS = sizeof(acts) / sizeof(acts[0]) };

/* The peer says who it is. */
static void introduce(struct vbn_net_end *end)
{
	static const uint8_t arp[42] = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1,
		8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2};
	uint8_t nd[86] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58,
		255, 0xfd, [37] = 1, [38] = 0xfd, [53] = 2, 135, 0, 0, 0, 0, 0, 0, 0,
		0xfd, [77] = 2, 1, 1, 2, 0, 0, 0, 0, 1};

	put_sum(nd + 56, sum(nd + 22, 64, 58 + 32));
	if (vbn_buf_alloc(pool, bufs, 2) != 2)
		die("the pool is empty");
	memcpy(bufs[0]->data, arp, sizeof(arp));
	bufs[0]->len = sizeof(arp);
	memcpy(bufs[1]->data, nd, sizeof(nd));
	bufs[1]->len = sizeof(nd);
	for (int i = 0; i < 2; i++)
		*vbn_buf_packet(bufs[i]) = (struct vbn_packet){.flags = 0};
	vbn_net_input(end, bufs, 2);
	vbn_net_flush(end);
}

static struct vbn_net_end *make_net(enum vbn_switch checksums)
{
	static const struct vbn_net_interface_conf iface = {
		.mac = {2, 0, 0, 0, 0, 2}, .addresses = "10.0.0.2/24,fd00::2/64"};
	struct vbn_net_route routes[2];
	struct vbn_net_end *end;
	struct vbn_udp *udp;

	if (vbn_net_create(&(struct vbn_net_conf){.interfaces = &iface,
				   .n_interfaces = 1,
				   .forward = true,
				   .probe_addresses = VBN_OFF},
		    &net) ||
		vbn_net_attach(net,
			&(struct vbn_net_end_conf){
				.output = output, .pool = pool, .checksum_offload = checksums},
			&end) ||
		vbn_udp_open(end, &(struct vbn_udp_conf){.local.port = 7, .recv = echo}, &udp) ||
		vbn_net_route_parse(net, "192.168.0.0/16 via 10.0.0.1", &routes[0]) ||
		vbn_net_route_parse(net, "fd09::/16 via fd00::1", &routes[1]) ||
		vbn_net_route_add(net, &routes[0]) || vbn_net_route_add(net, &routes[1]))
		die("there is no net");
	vbn_net_tick(end, 1000);
	introduce(end);
	return end;
}

int main(int argc, char **argv)
{
	double counts[ACTS];
	int bad = 0;

	if (vbn_pool_create(
		    &(struct vbn_pool_conf){
			    .n_bufs = 256, .data_size = 512, .headroom = VBN_NUM(128)},
		    &pool))
		die("there is no pool");
	offload = make_net(VBN_ON);
	plain = make_net(VBN_OFF);
	if (argc > 1 && !strcmp(argv[1], "--count")) {
		count_rounds(acts, ACTS);
		return 0;
	}
	if (!count_instructions((const char *[]){NULL}, counts, ACTS)) {
		printf("SKIP net-instructions: there is no valgrind\n");
		return 77;
	}
	for (int i = 0; i < ACTS; i++) {
		printf("%-36s %6.1f instructions a packet, of %.0f\n", cases[i].name, counts[i],
			cases[i].limit);
		bad |= counts[i] > cases[i].limit;
	}
	if (bad)
		printf("that is more than the limit\n");
	return bad;
}
