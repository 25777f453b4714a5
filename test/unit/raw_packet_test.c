/* raw_packet_test.c - raw Ethernet on mlx5: frames from one emulated port to another, every form of a
 * send, rings around their ends, RSS, rules, marks, checksums, tags, times, overload and failures
 *
 * VHCA_DEVICES=2 VHCA_WIRE=loopback: the ports of this process stand on one switch.
 */
#include "drv/mlx5/raw.h"

#include "unit.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <verbena.h>
#include <verbena/rx_group.h>

extern const char *vhca_present(void);

enum { BUFS = 2048, DEPTH = 64, DATA = 2048, HEADROOM = 64, MOST_RX = 3, HEADERS = 42 };

static struct {
	struct vbn_worker *worker;
	struct vbn_port *a, *b;
	struct vbn_pool *pool, *other;
	struct vbn_rx_group *group;
	struct vbn_queue *tx, *rx[MOST_RX];
	uint32_t n_rx;
} wire;

static uint32_t cqe_size(void)
{
	const char *asked = getenv("RAW_CQE_SIZE");

	return asked ? (uint32_t)atoi(asked) : 0;
}

/* ---- set-up ---- */

static int open_wire(void **state)
{
	struct vbn_pool_conf conf = {
		.n_bufs = BUFS, .data_size = DATA, .headroom = VBN_NUM(HEADROOM)};

	(void)state;
	vhca_present();
	memset(&wire, 0, sizeof(wire));
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &wire.worker), 0);
	assert_int_equal(vbn_port_open("mlx5:mlx5_0", NULL, &wire.a), 0);
	assert_int_equal(vbn_port_open("mlx5:mlx5_1", NULL, &wire.b), 0);
	assert_int_equal(vbn_pool_create(&conf, &wire.pool), 0);
	assert_int_equal(vbn_pool_create(&conf, &wire.other), 0);
	return 0;
}

static void disconnect(void)
{
	vbn_queue_destroy(wire.tx);
	for (uint32_t i = 0; i < MOST_RX; i++)
		vbn_queue_destroy(wire.rx[i]);
	vbn_rx_group_destroy(wire.group);
	wire.tx = NULL;
	memset(wire.rx, 0, sizeof(wire.rx));
	wire.group = NULL;
}

/* Whatever has happened, every buf is home. */
static int close_wire(void **state)
{
	(void)state;
	disconnect();
	assert_int_equal(vbn_pool_available(wire.pool), BUFS);
	assert_int_equal(vbn_pool_available(wire.other), BUFS);
	vbn_worker_detach(wire.worker);
	vbn_port_close(wire.a);
	vbn_port_close(wire.b);
	vbn_pool_destroy(wire.pool);
	vbn_pool_destroy(wire.other);
	vbn_fini();
	return 0;
}

static struct vbn_queue_conf conf_of(void)
{
	return (struct vbn_queue_conf){.transport = VBN_RAW,
		.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.tx_pool = wire.pool,
		.rx_pool = wire.pool,
		.cqe_size = cqe_size()};
}

static uint32_t add_rule(const struct vbn_rx_rule *rule)
{
	uint32_t id = 0;
	const int ret = vbn_rx_rule_add(wire.group, rule, &id);

	if (ret)
		unit_fail("a rule was refused: %s; %s", strerror(-ret), unit_log);
	return id;
}

static uint32_t take_everything(void)
{
	return add_rule(&(struct vbn_rx_rule){.kind = VBN_RULE_EVERYTHING});
}

static void create_receivers(const struct vbn_queue_conf *asked, uint32_t n)
{
	const struct vbn_rx_group_conf group = {.n_queues = n};
	struct vbn_queue_conf conf = *asked;

	wire.n_rx = n;
	assert_int_equal(vbn_rx_group_create(wire.b, &group, &wire.group), 0);
	conf.rx_group = wire.group;
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(vbn_queue_create(wire.worker, wire.b, &conf, &wire.rx[i]), 0);
}

static void connect_receivers(void)
{
	for (uint32_t i = 0; i < wire.n_rx; i++) {
		assert_false(vbn_rx_group_is_built(wire.group));
		assert_int_equal(vbn_queue_connect(wire.rx[i], NULL), 0);
	}
	assert_true(vbn_rx_group_is_built(wire.group));
}

static void create_sender(const struct vbn_queue_conf *asked)
{
	struct vbn_queue_conf conf = *asked;

	conf.rx_group = NULL;
	assert_int_equal(vbn_queue_create(wire.worker, wire.a, &conf, &wire.tx), 0);
	assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
}

static void connect_wire(const struct vbn_queue_conf *conf, uint32_t n)
{
	create_receivers(conf, n);
	connect_receivers();
	create_sender(conf);
}

/* ---- frames: of which flow and of which number, with a pattern behind ---- */

struct flow {
	uint8_t ip_version, protocol; /* 0: neither IPv4 nor IPv6 */
	uint16_t src_port, dst_port;
	uint8_t src, dst; /* last bytes of both addresses */
	uint8_t dst_mac[6];
};

static const struct flow udp4 = {4, 17, 1000, 2000, 1, 2, {2, 0, 0, 0, 0, 9}};

static void put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

static uint32_t put_ip(uint8_t *at, const struct flow *flow, uint32_t len)
{
	if (flow->ip_version == 4) {
		memset(at, 0, 20);
		at[0] = 0x45;
		put16(at + 2, len);
		at[8] = 64;
		at[9] = flow->protocol;
		at[12] = at[16] = 10;
		at[15] = flow->src;
		at[19] = flow->dst;
		return 20;
	}
	memset(at, 0, 40);
	at[0] = 0x60;
	put16(at + 4, len - 40);
	at[6] = flow->protocol;
	at[7] = 64;
	at[8] = at[24] = 0xfd;
	at[23] = flow->src;
	at[39] = flow->dst;
	return 40;
}

static uint8_t pattern(uint64_t number, uint32_t at)
{
	return (uint8_t)(number * 131 + at * 7 + 3);
}

/* The headers' bytes; the rest of `len` is the number's. */
static uint32_t put_frame(uint8_t *data, const struct flow *flow, uint64_t number, uint32_t len)
{
	uint32_t at = 14;

	memcpy(data, flow->dst_mac, 6);
	memcpy(data + 6, (const uint8_t[6]){2, 0, 0, 0, 0, 1}, 6);
	put16(data + 12, flow->ip_version == 4 ? 0x0800 : flow->ip_version == 6 ? 0x86dd : 0x88b5);
	if (flow->ip_version)
		at += put_ip(data + at, flow, len - at);
	if (flow->protocol == 17) {
		put16(data + at, flow->src_port);
		put16(data + at + 2, flow->dst_port);
		put16(data + at + 4, len - at);
		put16(data + at + 6, 0);
		at += 8;
	} else if (flow->protocol == 6) {
		memset(data + at, 0, 20);
		put16(data + at, flow->src_port);
		put16(data + at + 2, flow->dst_port);
		data[at + 12] = 0x50;
		at += 20;
	}
	for (uint32_t i = at; i < len; i++)
		data[i] = pattern(number, i);
	return at;
}

static struct vbn_buf *frame_of(
	struct vbn_pool *pool, const struct flow *flow, uint64_t number, uint32_t len)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	put_frame(buf->data, flow, number, len);
	buf->len = len;
	vbn_buf_packet(buf)->flags = 0;
	return buf;
}

/* The same bytes behind the headers' checksums, which are not compared. */
static void check_frame(
	const struct vbn_buf *buf, const struct flow *flow, uint64_t number, uint32_t len)
{
	uint8_t expected[DATA];
	const uint32_t least = max(len, 60u), from = put_frame(expected, flow, number, len);

	if (buf->len != len && buf->len != least)
		unit_fail("frame %llu has %u bytes and should have %u", (unsigned long long)number,
			buf->len, len);
	assert_memory_equal(buf->data, expected, 14);
	for (uint32_t i = from; i < len; i++)
		if (buf->data[i] != expected[i])
			unit_fail("frame %llu: byte %u is %u and should be %u",
				(unsigned long long)number, i, buf->data[i], expected[i]);
}

/* ---- waits ---- */

static void patience(uint64_t since)
{
	if (clock_ns() - since > 30ull * 1000 * 1000 * 1000)
		unit_fail("nothing came for 30 s; tx: %s; rx: %s; the log: %s",
			wire.tx ? vbn_queue_error(wire.tx) : "",
			wire.rx[0] ? vbn_queue_error(wire.rx[0]) : "", unit_log);
	sched_yield();
}

static void send_all(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	const uint64_t start = clock_ns();

	for (int done = 0; done < n;) {
		int took = vbn_send(queue, bufs + done, n - done);

		if (took < 0)
			unit_fail("vbn_send: %s; %s", strerror(-took), vbn_queue_error(queue));
		vbn_flush(queue);
		done += took;
		if (!took) {
			vbn_recv(queue, NULL, 0);
			patience(start);
		}
	}
}

static void send_frame(struct vbn_buf *buf)
{
	send_all(wire.tx, &buf, 1);
}

static struct vbn_buf *look(uint32_t q)
{
	struct vbn_buf *buf;
	const int got = vbn_recv(wire.rx[q], &buf, 1);

	if (got < 0)
		unit_fail("vbn_recv: %s; %s", strerror(-got), vbn_queue_error(wire.rx[q]));
	return got ? buf : NULL;
}

static struct vbn_buf *receive(uint32_t q)
{
	const uint64_t start = clock_ns();
	struct vbn_buf *buf;

	while (!(buf = look(q)))
		patience(start);
	return buf;
}

static void let_go(struct vbn_buf *buf)
{
	vbn_buf_free(&buf, 1);
}

/* What was sent has been carried out: nothing of it is under way any more, but to a receive ring. */
static void settle(void)
{
	const uint64_t start = clock_ns();

	while (vbn_queue_outstanding(wire.tx)) {
		vbn_recv(wire.tx, NULL, 0);
		patience(start);
	}
}

static struct vbn_queue_stats stats_of(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	return stats;
}

static const char *mode(const struct vbn_queue *queue, const char *name)
{
	static struct vbn_mode modes[40];
	const int n = vbn_queue_modes(queue, modes, ARRAY_SIZE(modes));

	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, name))
			return modes[i].effective;
	return "no such mode";
}

static bool is_connectx5(void)
{
	return strcmp(mode(wire.tx, "multi_packet"), "off") != 0;
}

/* ---- bytes, in every form of a send ---- */

/* A frame of this number in a form of its own: plain, kept, with a cookie, a chain, of another pool,
 * with a tag, with checksums. */
enum form { PLAIN, KEPT, COOKIE, CHAIN, FOREIGN, TAGGED, SUMMED, N_FORMS };

static uint32_t length_of(uint64_t number)
{
	return 60 + (uint32_t)(number * 37 % 1400);
}

static struct vbn_buf *formed(uint64_t number, enum form form)
{
	const uint32_t len = length_of(number);
	struct vbn_buf *buf =
		frame_of(form == FOREIGN ? wire.other : wire.pool, &udp4, number, len);

	if (form == KEPT)
		buf->flags |= VBN_BUF_KEEP;
	if (form == COOKIE)
		vbn_buf_set_cookie(buf, (void *)(uintptr_t)(number + 1));
	if (form == CHAIN) {
		struct vbn_buf *second;

		assert_int_equal(vbn_buf_alloc(wire.other, &second, 1), 1);
		second->len = len - 45;
		memcpy(second->data, buf->data + 45, second->len);
		buf->len = 45;
		vbn_buf_append(buf, second);
	}
	if (form == TAGGED) {
		vbn_buf_packet(buf)->flags = VBN_PACKET_TX_VLAN;
		vbn_buf_packet(buf)->vlan = (uint16_t)(number & 0xfff);
	}
	if (form == SUMMED)
		vbn_buf_packet(buf)->flags = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM;
	return buf;
}

static void check_formed(struct vbn_buf *buf, uint64_t number, enum form form)
{
	if (form == TAGGED) {
		assert_int_equal(buf->data[12] << 8 | buf->data[13], 0x8100);
		assert_int_equal(buf->data[14] << 8 | buf->data[15], number & 0xfff);
		memmove(buf->data + 4, buf->data, 12);
		buf->data += 4;
		buf->len -= 4;
	}
	if (form == SUMMED)
		assert_int_equal(vbn_buf_packet(buf)->flags &
				(VBN_PACKET_IP_GOOD | VBN_PACKET_IP_BAD | VBN_PACKET_L4_GOOD |
					VBN_PACKET_L4_BAD),
			VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD);
	check_frame(buf, &udp4, number, length_of(number));
}

static uint64_t events_seen; /* of KEEP and cookies */

static void take_events(void)
{
	struct vbn_event events[8];
	const int n = vbn_poll(wire.worker, events, 8);

	for (int i = 0; i < n; i++) {
		assert_int_equal(events[i].op, VBN_OP_SEND);
		assert_int_equal(events[i].status, VBN_OK);
		assert_ptr_equal(events[i].queue, wire.tx);
		events_seen++;
		if (events[i].cookie)
			assert_true((uintptr_t)events[i].cookie <= 100000);
		vbn_buf_free(&events[i].buf, 1);
	}
}

static enum form all_plain(uint64_t number)
{
	(void)number;
	return PLAIN;
}

static enum form all_summed(uint64_t number)
{
	(void)number;
	return SUMMED;
}

static enum form in_turn(uint64_t number)
{
	return (enum form)(number % N_FORMS);
}

/* Runs of three, so that a burst changes what it is and goes on for a while. */
static enum form in_runs(uint64_t number)
{
	return (enum form)(number / 3 % N_FORMS);
}

static int burst_of(uint64_t sent)
{
	return 1 + (int)(sent * 7 % 64);
}

/* n frames in bursts of 1 to 64, each looked at; no more under way than there are receives. */
static void stream(enum form (*form_of)(uint64_t), uint64_t n)
{
	uint64_t sent = 0, received = 0, returns = 0, start = clock_ns();

	events_seen = 0;
	while (received < n || events_seen < returns || vbn_queue_outstanding(wire.tx)) {
		struct vbn_buf *bufs[64];
		int want = burst_of(sent), took, got;

		want = min(want, (int)(DEPTH - (sent - received)));
		if ((uint64_t)want > n - sent)
			want = (int)(n - sent);
		for (int i = 0; i < want; i++)
			bufs[i] = formed(sent + (uint64_t)i, form_of(sent + (uint64_t)i));
		took = vbn_send(wire.tx, bufs, want);
		if (took < 0)
			unit_fail("vbn_send: %s; %s", strerror(-took), vbn_queue_error(wire.tx));
		for (int i = 0; i < took; i++, sent++)
			returns += form_of(sent) == KEPT || form_of(sent) == COOKIE;
		for (int i = took; i < want; i++) {
			bufs[i]->flags &= (uint8_t) ~(VBN_BUF_KEEP | VBN_BUF_COOKIE);
			let_go(bufs[i]);
		}
		vbn_flush(wire.tx);
		got = vbn_recv(wire.rx[0], bufs, 64);
		if (got < 0)
			unit_fail("vbn_recv: %s; %s", strerror(-got), vbn_queue_error(wire.rx[0]));
		for (int i = 0; i < got; i++, received++) {
			check_formed(bufs[i], received, form_of(received));
			let_go(bufs[i]);
		}
		vbn_recv(wire.tx, NULL, 0);
		if (received == sent) /* else a poll would take packets, too */
			take_events();
		if (got || took)
			start = clock_ns();
		else
			patience(start);
	}
	assert_int_equal(events_seen, returns);
}

/* Indices of 16 bits go round, too, and every ring many times. */
static void test_plain(void **state)
{
	const uint64_t n = UNIT_SHADOW ? 5000 : 70000;
	struct vbn_queue_conf conf = conf_of();
	struct vbn_queue_stats tx, rx;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	stream(all_plain, n);
	tx = stats_of(wire.tx);
	rx = stats_of(wire.rx[0]);
	assert_int_equal(tx.tx_messages, n);
	assert_int_equal(tx.tx_done, n);
	assert_int_equal(rx.rx_messages, n);
	assert_int_equal(tx.tx_bytes, rx.rx_bytes);
	assert_true(tx.tx_doorbells < n);
}

static void test_forms(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	assert_int_equal(vbn_port_register(wire.a, vbn_pool_zone(wire.other)), 0);
	for (int i = 0; i < 3; i++) {
		conf.multi_packet = i == 1 ? VBN_OFF : VBN_AUTO;
		conf.checksum_offload = i == 2 ? VBN_OFF : VBN_AUTO;
		conf.cq_mod = i == 1 ? 1 : 64;
		connect_wire(&conf, 1);
		take_everything();
		assert_string_equal(mode(wire.tx, "tx_checksum"), i == 2 ? "software" : "device");
		stream(in_turn, 1000);
		stream(in_runs, 1000);
		stream(all_summed, 500);
		disconnect();
	}
}

/* Many packets to a WQE, seen by the ring: it went on by less than a WQEBB for each. */
static void test_multi_packet(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[32];
	uint16_t before;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 2; round++) {
		before = raw_queue(wire.tx)->sq.head;
		for (int i = 0; i < 32; i++)
			bufs[i] = formed((uint64_t)i, PLAIN);
		send_all(wire.tx, bufs, 32);
		assert_int_equal(
			(uint16_t)(raw_queue(wire.tx)->sq.head - before), is_connectx5() ? 9 : 32);
		for (int i = 0; i < 32; i++) {
			struct vbn_buf *buf = receive(0);

			check_formed(buf, (uint64_t)i, PLAIN);
			let_go(buf);
		}
		settle();
	}
	if (!is_connectx5()) {
		struct vbn_queue *none;

		conf.multi_packet = VBN_ON;
		assert_int_equal(vbn_queue_create(wire.worker, wire.a, &conf, &none), -ENOTSUP);
		assert_logged("has no multi_packet: leave it to the library");
		return;
	}
	disconnect();
	conf.multi_packet = VBN_OFF;
	connect_wire(&conf, 1);
	assert_string_equal(mode(wire.tx, "multi_packet"), "off");
}

/* A full ring leaves the rest with the caller, and goes on when there is room again. */
static void test_full(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[2 * DEPTH];

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int i = 0; i < 2 * DEPTH; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 2 * DEPTH), DEPTH);
	assert_int_equal(vbn_send(wire.tx, bufs + DEPTH, DEPTH), 0);
	assert_int_equal(vbn_queue_outstanding(wire.tx), DEPTH);
	vbn_flush(wire.tx);
	for (int i = 0; i < 2 * DEPTH; i++) {
		struct vbn_buf *buf;

		if (i == DEPTH) {
			settle();
			send_all(wire.tx, bufs + DEPTH, DEPTH);
		}
		buf = receive(0);
		check_formed(buf, (uint64_t)i, PLAIN);
		let_go(buf);
	}
	settle();
}

/* The first one that cannot be sent says why; before it what can is taken. */
static void test_bounds(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_port_info info;
	struct vbn_buf *bufs[3], *buf;
	uint32_t longest;

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	vbn_port_info(wire.a, &info);
	longest = info.frame_mtu + 18;
	for (int i = 0; i < 3; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	bufs[1]->len = 13;
	assert_int_equal(vbn_send(wire.tx, bufs, 3), 1);
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), -EMSGSIZE);
	bufs[1]->len = longest + 1;
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), -EMSGSIZE);
	bufs[1]->len = longest;
	for (uint32_t i = 14; i < longest; i++)
		bufs[1]->data[i] = pattern(1, i);
	put16(bufs[1]->data + 12, 0x88b5);
	assert_int_equal(vbn_send(wire.tx, bufs + 1, 2), 2);
	vbn_flush(wire.tx);
	let_go(receive(0));
	buf = receive(0);
	assert_int_equal(buf->len, longest);
	for (uint32_t i = 14; i < longest; i++)
		assert_int_equal(buf->data[i], pattern(1, i));
	let_go(buf);
	let_go(receive(0));
	settle();
	/* A buf of memory that the port does not know. */
	buf = formed(5, FOREIGN);
	assert_int_equal(vbn_send(wire.tx, &buf, 1), -EINVAL);
	let_go(buf);
	/* A receive must hold whatever may come. */
	{
		struct vbn_pool_conf small = {.n_bufs = 256, .data_size = 256};
		struct vbn_pool *pool;
		struct vbn_rx_group *group;
		struct vbn_queue *queue;

		assert_int_equal(vbn_pool_create(&small, &pool), 0);
		assert_int_equal(vbn_rx_group_create(wire.b, NULL, &group), 0);
		conf.rx_pool = pool;
		conf.rx_group = group;
		assert_int_equal(vbn_queue_create(wire.worker, wire.b, &conf, &queue), -EINVAL);
		assert_logged("a longer frame would end the queue");
		vbn_rx_group_destroy(group);
		vbn_pool_destroy(pool);
	}
}

/* Short frames are padded by the port that sends them; of 14 bytes there is a header alone. */
static void test_short_frames(void **state)
{
	static const struct flow none = {.dst_mac = {2, 0, 0, 0, 0, 9}};
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (uint32_t len = is_connectx5() ? 14 : 19; len < 70; len++) {
		struct vbn_buf *buf;

		send_frame(frame_of(wire.pool, &none, len, len));
		buf = receive(0);
		assert_int_equal(buf->len, max(len, 60u));
		check_frame(buf, &none, len, len);
		let_go(buf);
	}
	settle();
}

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

/* The queue that a frame of the flow has come to. */
static uint32_t queue_of(const struct flow *flow)
{
	const uint64_t start = clock_ns();

	send_frame(frame_of(wire.pool, flow, 1, 120));
	for (;;) {
		for (uint32_t q = 0; q < wire.n_rx; q++) {
			struct vbn_buf *buf;
			const int got = vbn_recv(wire.rx[q], &buf, 1);

			assert_true(got >= 0);
			if (!got)
				continue;
			check_frame(buf, flow, 1, 120);
			assert_int_equal(
				vbn_buf_packet(buf)->flags & VBN_PACKET_HASH, VBN_PACKET_HASH);
			let_go(buf);
			settle();
			return q;
		}
		patience(start);
	}
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

/* ---- what is known of a frame ---- */

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
	if (cqe_size() == 128) {
		struct vbn_queue *queue;
		int ret;

		assert_int_equal(vbn_rx_group_create(wire.b, NULL, &wire.group), 0);
		conf.rx_group = wire.group;
		ret = vbn_queue_create(wire.worker, wire.b, &conf, &queue);
		if (ret) {
			assert_true(strlen(unit_log) > 0);
			return;
		}
		vbn_queue_destroy(queue);
		disconnect();
	}
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

/* ---- overload ---- */

static uint64_t port_drops(const char *name)
{
	struct vbn_drop drops[16];
	const int n = vbn_port_drops(wire.b, drops, 16);

	for (int i = 0; i < n; i++)
		if (!strcmp(drops[i].name, name))
			return drops[i].count;
	unit_fail("port drops have no %s", name);
	return 0;
}

/* What was sent and nobody took is counted by its name: none is lost without one. */
static void test_overload(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	uint64_t got = 0, start = clock_ns();

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	for (int round = 0; round < 20; round++) {
		struct vbn_buf *bufs[64];

		for (int i = 0; i < 64; i++)
			bufs[i] = formed((uint64_t)i, PLAIN);
		send_all(wire.tx, bufs, 64);
		settle();
		if (round % 7 == 6) {
			int n = vbn_recv(wire.rx[0], bufs, 64);

			assert_true(n >= 0);
			vbn_buf_free(bufs, n);
			got += (uint64_t)n;
		}
	}
	while (got + port_drops("out_of_buffer") < 20 * 64) {
		struct vbn_buf *bufs[64];
		int n = vbn_recv(wire.rx[0], bufs, 64);

		assert_true(n >= 0);
		vbn_buf_free(bufs, n);
		got += (uint64_t)n;
		patience(start);
	}
	assert_int_equal(got + port_drops("out_of_buffer"), 20 * 64);
	assert_true(port_drops("out_of_buffer") > 0);
	assert_int_equal(stats_of(wire.rx[0]).rx_messages, got);
}

/* ---- the end of a queue ---- */

static void expect_failed(struct vbn_queue *queue, enum vbn_status status, const char *words)
{
	const uint64_t start = clock_ns();

	for (;;) {
		struct vbn_event event;

		if (!vbn_poll(wire.worker, &event, 1)) {
			patience(start);
			continue;
		}
		if (event.buf)
			vbn_buf_free(&event.buf, 1);
		if (event.op == VBN_OP_FAILED && event.queue == queue) {
			assert_int_equal(event.status, status);
			break;
		}
	}
	assert_has(vbn_queue_error(queue), words);
}

static void reset(struct vbn_queue *queue)
{
	const uint64_t start = clock_ns();
	int ret;

	while ((ret = vbn_queue_reset(queue)) == -EAGAIN) {
		struct vbn_event event;

		if (vbn_poll(wire.worker, &event, 1) && event.buf)
			vbn_buf_free(&event.buf, 1);
		patience(start);
	}
	if (ret)
		unit_fail("vbn_queue_reset: %s; %s", strerror(-ret), unit_log);
}

/* Reset at any place of its rings, and used again; the group stands still meanwhile. */
static void test_reset(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	connect_wire(&conf, 2);
	take_everything();
	for (int round = 0; round < 6; round++) {
		struct vbn_buf *bufs[40];

		for (int i = 0; i < 40; i++)
			bufs[i] = formed((uint64_t)i, i % 5 ? PLAIN : KEPT);
		send_all(wire.tx, bufs, 7 + 5 * round);
		for (int i = 7 + 5 * round; i < 40; i++) {
			bufs[i]->flags &= (uint8_t)~VBN_BUF_KEEP;
			let_go(bufs[i]);
		}
		reset(round & 1 ? wire.tx : wire.rx[round >> 1 & 1]);
		if (!(round & 1)) {
			assert_false(vbn_rx_group_is_built(wire.group));
			assert_int_equal(vbn_queue_connect(wire.rx[round >> 1 & 1], NULL), 0);
			assert_true(vbn_rx_group_is_built(wire.group));
		} else {
			assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
		}
		for (uint64_t start = clock_ns(); vbn_queue_outstanding(wire.tx);) {
			struct vbn_event event;

			if (vbn_poll(wire.worker, &event, 1))
				vbn_buf_free(&event.buf, 1);
			patience(start);
		}
		for (uint32_t q = 0; q < 2; q++) {
			int n;

			while ((n = vbn_recv(wire.rx[q], bufs, 40)) > 0)
				vbn_buf_free(bufs, n);
			assert_int_equal(n, 0);
		}
		queue_of(&udp4);
	}
}

static void test_destroyed_at_work(void **state)
{
	struct vbn_queue_conf conf = conf_of();

	(void)state;
	for (int round = 0; round < 8; round++) {
		struct vbn_buf *bufs[DEPTH];

		connect_wire(&conf, 1 + (uint32_t)round % 2);
		take_everything();
		for (int i = 0; i < DEPTH; i++)
			bufs[i] = formed((uint64_t)i, i % 3 ? PLAIN : COOKIE);
		assert_int_equal(vbn_send(wire.tx, bufs, DEPTH), DEPTH);
		if (round & 2)
			vbn_flush(wire.tx);
		disconnect();
		assert_int_equal(vbn_pool_available(wire.pool), BUFS);
	}
}

/* VHCA_FAULT names the WQE that fails. */
static void test_syndrome(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[8];

	(void)state;
	conf.multi_packet = VBN_OFF;
	connect_wire(&conf, 1);
	take_everything();
	for (int i = 0; i < 8; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 8), 8);
	vbn_flush(wire.tx);
	expect_failed(wire.tx, VBN_LOCAL_PROTECTION, "a raw packet to be sent");
	bufs[0] = formed(0, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 1), -EPIPE);
	let_go(bufs[0]);
	reset(wire.tx);
	assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
	for (uint64_t start = clock_ns(); stats_of(wire.rx[0]).rx_messages < 2; patience(start)) {
		struct vbn_buf *buf = look(0); /* of those before the one that failed */

		if (buf)
			let_go(buf);
	}
	stream(all_plain, 300);
	assert_int_equal(stats_of(wire.tx).tx_flushed + stats_of(wire.tx).tx_done, 308);
}

static void ask(const char *line)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int length =
		snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "verbena-vhca/%d", getpid());
	char answer[128] = "";

	assert_true(fd >= 0);
	assert_int_equal(
		connect(fd, (struct sockaddr *)&name,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)),
		0);
	assert_int_equal(write(fd, line, strlen(line)), strlen(line));
	assert_int_equal(write(fd, "\n", 1), 1);
	assert_true(read(fd, answer, sizeof(answer) - 1) > 0);
	assert_has(answer, "ok");
	close(fd);
}

/* The device is gone: what the queues had comes back without it. */
static void test_device_fatal(void **state)
{
	struct vbn_queue_conf conf = conf_of();
	struct vbn_buf *bufs[16];

	(void)state;
	connect_wire(&conf, 1);
	take_everything();
	stream(all_plain, 100);
	for (int i = 0; i < 16; i++)
		bufs[i] = formed((uint64_t)i, PLAIN);
	assert_int_equal(vbn_send(wire.tx, bufs, 16), 16);
	ask("fatal mlx5_0");
	vbn_flush(wire.tx);
	expect_failed(wire.tx, VBN_DEVICE_ERROR, "fatal error");
}

/* A port that is not open says so, too. */
static void test_listed(void **state)
{
	struct vbn_port_info infos[8];
	const int n = vbn_port_list(infos, ARRAY_SIZE(infos));
	int found = 0;

	(void)state;
	for (int i = 0; i < n; i++)
		if (!strncmp(infos[i].name, "mlx5_", 5)) {
			assert_has(infos[i].capabilities, " packet");
			assert_true(infos[i].max_rx_queues > 1);
			found++;
		}
	assert_int_equal(found, 2);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_wire, close_wire)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_listed),
		test(test_plain),
		test(test_forms),
		test(test_multi_packet),
		test(test_full),
		test(test_bounds),
		test(test_short_frames),
		test(test_rss),
		test(test_hash_and_key),
		test(test_rules),
		test(test_drop_mark_count),
		test(test_refused_rules),
		test(test_checksums),
		test(test_vlan_strip),
		test(test_timestamps),
		test(test_compression),
		test(test_overload),
		test(test_reset),
		test(test_destroyed_at_work),
		test(test_device_fatal),
	};
	const struct CMUnitTest faults[] = {test(test_syndrome)};

	if (getenv("VHCA_FAULT"))
		return cmocka_run_group_tests_name("raw_packet_fault", faults, NULL, NULL);
	return cmocka_run_group_tests_name("raw_packet", tests, NULL, NULL);
}
