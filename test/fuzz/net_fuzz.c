/* net_fuzz.c - a net for any bytes: frames handed in, what it sends looked at for its size */

#include "net_fuzz.h"

#include "run/run.h"

#include <sanitizer/asan_interface.h>

#include <string.h>

/* ---- what the stack has of other rooms, and what no frame may lead to here: there is no worker ---- */

struct vbn_timer;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEVER(type, name, ...) \
	type name(__VA_ARGS__) \
	{                      \
		abort();       \
	}
NEVER(int, vbn_send, struct vbn_queue *queue, struct vbn_buf **bufs, int n)
NEVER(int, vbn_recv, struct vbn_queue *queue, struct vbn_buf **bufs, int n)
NEVER(void, vbn_timer_start, struct vbn_worker *worker, struct vbn_timer *timer, uint64_t ns)
NEVER(bool, vbn_timer_stop, struct vbn_worker *worker, struct vbn_timer *timer)
NEVER(int, vbn_worker_index, const struct vbn_worker *worker)
NEVER(struct vbn_worker *, vbn_worker_self, void)
#pragma GCC diagnostic pop

void vbn__block_signals(sigset_t *before)
{
	sigemptyset(before);
}

enum { BUFS = 1024, DATA = 2048, HELD = 64 + 64 + 2, FENCE = 64 };

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 2};

static void demand(bool holds)
{
	if (!holds)
		abort();
}

static int output(struct vbn_buf **bufs, int n, void *arg)
{
	(void)arg;
	for (int i = 0; i < n; i++) {
		volatile uint8_t sink;

		demand(vbn_buf_total(bufs[i]) <= 1518);
		for (uint32_t at = 0; at < bufs[i]->len; at++)
			sink = bufs[i]->data[at];
		(void)sink;
	}
	vbn_buf_free(bufs, n);
	return n;
}

static void echo(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

/* The last bytes of each buf may not be touched, so that what reads behind a frame is found. */
static void put_up_fences(struct vbn_pool *pool)
{
	static struct vbn_buf *bufs[BUFS];

	demand(vbn_buf_alloc(pool, bufs, BUFS) == BUFS);
	for (int i = 0; i < BUFS; i++)
		ASAN_POISON_MEMORY_REGION(vbn_buf_room(bufs[i]) + bufs[i]->size - FENCE, FENCE);
	vbn_buf_free(bufs, BUFS);
}

static void make(struct fuzz_net *net)
{
	static const struct vbn_net_interface_conf interfaces[] = {
		{.link = 0, .mac = {2, 0, 0, 0, 0, 2}, .addresses = "10.0.0.2/24,fd00::2/64"},
		{.link = 1, .mac = {2, 0, 0, 0, 0, 2}, .addresses = "10.1.0.2/16,fd01::2/64"},
		{.link = 1,
			.mac = {2, 0, 0, 0, 0, 2},
			.vlan = VBN_NUM(5),
			.addresses = "10.2.0.2/16"},
	};
	struct vbn_net_route route;
	struct vbn_ip group;

	demand(!vbn_net_create(&(struct vbn_net_conf){.interfaces = interfaces,
				       .n_interfaces = 3,
				       .forward = true,
				       .max_neighbours = 16,
				       .max_waiting = 64,
				       .max_datagrams = 8,
				       .max_fragments = 64,
				       .icmp_rate = 1000},
		&net->net));
	demand(!vbn_pool_create(
		&(struct vbn_pool_conf){
			.n_bufs = BUFS, .data_size = DATA, .headroom = VBN_NUM(128)},
		&net->pool));
	put_up_fences(net->pool);
	for (uint32_t link = 0; link < 2; link++)
		demand(!vbn_net_attach(net->net,
			&(struct vbn_net_end_conf){
				.link = link, .output = output, .pool = net->pool},
			&net->ends[link]));
	demand(!vbn_net_route_parse(net->net, "192.168.0.0/16 via 10.0.0.1 mtu 600", &route) &&
		!vbn_net_route_add(net->net, &route));
	demand(!vbn_udp_open(
		net->ends[0], &(struct vbn_udp_conf){.local.port = 7, .recv = echo}, &net->udp));
	demand(!vbn_ip_parse("239.1.2.3", &group) && !vbn_udp_join(net->udp, &group, 1));
}

struct fuzz_net *fuzz_net(void)
{
	static struct fuzz_net net;

	if (!net.net)
		make(&net);
	return &net;
}

void fuzz_net_input(
	struct fuzz_net *net, uint32_t link, uint16_t flags, const uint8_t *bytes, size_t size)
{
	struct vbn_buf *buf;

	size = size < DATA - FENCE ? size : DATA - FENCE;
	demand(vbn_buf_alloc(net->pool, &buf, 1) == 1);
	buf->data = vbn_buf_room(buf) + buf->size - FENCE - size;
	memcpy(buf->data, bytes, size);
	buf->len = (uint32_t)size;
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = flags, .vlan = 5};
	vbn_net_input(net->ends[link & 1], &buf, 1);
	for (int i = 0; i < 2; i++)
		vbn_net_flush(net->ends[i]);
}

void fuzz_net_check(struct fuzz_net *net)
{
	net->now += 170;
	vbn_net_tick(net->ends[0], net->now);
	for (int i = 0; i < 2; i++)
		vbn_net_flush(net->ends[i]);
	demand(vbn_net_balance(net->ends[0], NULL, NULL));
	demand(vbn_pool_available(net->pool) >= BUFS - HELD);
	demand(vbn_net_neighbours(net->net, NULL, 0) <= 16);
}

static uint16_t sum(const uint8_t *bytes, size_t n)
{
	uint32_t value = 0;

	for (size_t i = 0; i < n; i++)
		value += (uint32_t)bytes[i] << (i & 1 ? 0 : 8);
	value = (value & 0xffff) + (value >> 16);
	return (uint16_t) ~((value & 0xffff) + (value >> 16));
}

size_t fuzz_net_headers(uint8_t *at, int version, uint8_t protocol, size_t payload)
{
	static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 1};
	uint16_t check;

	memcpy(at, our_mac, 6);
	memcpy(at + 6, peer_mac, 6);
	if (version == 4) {
		memcpy(at + 12, "\x08\0\x45\0\0\0\0\1\0\0\x40\0\0\0\x0a\0\0\1\x0a\0\0\2", 22);
		at[14 + 2] = (uint8_t)((payload + 20) >> 8);
		at[14 + 3] = (uint8_t)(payload + 20);
		at[14 + 9] = protocol;
		check = sum(at + 14, 20);
		at[14 + 10] = (uint8_t)(check >> 8);
		at[14 + 11] = (uint8_t)check;
		return 34;
	}
	memcpy(at + 12, "\x86\xdd\x60\0\0\0\0\0\0\xff", 10);
	at[14 + 4] = (uint8_t)(payload >> 8);
	at[14 + 5] = (uint8_t)payload;
	at[14 + 6] = protocol;
	memcpy(at + 22, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 32);
	return 54;
}
