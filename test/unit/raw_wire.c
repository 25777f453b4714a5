/* raw_wire.c - two ports of the emulated device on one switch, and frames between their queues */

#include "raw_wire.h"

#include <sched.h>

extern const char *vhca_present(void);

struct wire wire;

const struct flow udp4 = {4, 17, 1000, 2000, 1, 2, {2, 0, 0, 0, 0, 9}};

uint32_t cqe_size(void)
{
	const char *asked = getenv("RAW_CQE_SIZE");

	return asked ? (uint32_t)atoi(asked) : 0;
}

/* ---- set-up ---- */

static void open_ports(uint32_t frame_mtu, uint32_t data_size)
{
	const struct vbn_port_conf port = {.frame_mtu = frame_mtu};
	const struct vbn_pool_conf pool = {
		.n_bufs = BUFS, .data_size = data_size, .headroom = VBN_NUM(HEADROOM)};

	assert_int_equal(vbn_port_open("mlx5:mlx5_0", &port, &wire.a), 0);
	assert_int_equal(vbn_port_open("mlx5:mlx5_1", &port, &wire.b), 0);
	assert_int_equal(vbn_pool_create(&pool, &wire.pool), 0);
	assert_int_equal(vbn_pool_create(&pool, &wire.other), 0);
}

/* Whatever has happened, every buf is home. */
static void close_ports(void)
{
	assert_int_equal(vbn_pool_available(wire.pool), BUFS);
	assert_int_equal(vbn_pool_available(wire.other), BUFS);
	vbn_port_close(wire.a);
	vbn_port_close(wire.b);
	vbn_pool_destroy(wire.pool);
	vbn_pool_destroy(wire.other);
}

void reopen_wire(uint32_t frame_mtu, uint32_t data_size)
{
	close_ports();
	open_ports(frame_mtu, data_size);
}

int open_wire(void **state)
{
	(void)state;
	vhca_present();
	memset(&wire, 0, sizeof(wire));
	assert_int_equal(vbn_init(NULL, NULL), 0);
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &wire.worker), 0);
	open_ports(0, DATA);
	return 0;
}

void disconnect(void)
{
	vbn_queue_destroy(wire.tx);
	for (uint32_t i = 0; i < MOST_RX; i++)
		vbn_queue_destroy(wire.rx[i]);
	vbn_rx_group_destroy(wire.group);
	wire.tx = NULL;
	memset(wire.rx, 0, sizeof(wire.rx));
	wire.group = NULL;
}

int close_wire(void **state)
{
	(void)state;
	disconnect();
	close_ports();
	vbn_worker_detach(wire.worker);
	vbn_fini();
	return 0;
}

bool is_striding(void)
{
	return getenv("RAW_STRIDING") != NULL;
}

struct vbn_queue_conf conf_of(void)
{
	return (struct vbn_queue_conf){.transport = VBN_RAW,
		.tx_depth = DEPTH,
		.rx_depth = is_striding() ? STRIDES : DEPTH,
		.striding = is_striding() ? VBN_ON : VBN_AUTO,
		.tx_pool = wire.pool,
		.rx_pool = wire.pool,
		.cqe_size = cqe_size()};
}

uint32_t add_rule(const struct vbn_rx_rule *rule)
{
	uint32_t id = 0;
	const int ret = vbn_rx_rule_add(wire.group, rule, &id);

	if (ret)
		unit_fail("a rule was refused: %s; %s", strerror(-ret), wire.log);
	return id;
}

uint32_t take_everything(void)
{
	return add_rule(&(struct vbn_rx_rule){.kind = VBN_RULE_EVERYTHING});
}

void create_receivers(const struct vbn_queue_conf *asked, uint32_t n)
{
	const struct vbn_rx_group_conf group = {.n_queues = n};
	struct vbn_queue_conf conf = *asked;

	wire.n_rx = n;
	assert_int_equal(vbn_rx_group_create(wire.b, &group, &wire.group), 0);
	conf.rx_group = wire.group;
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(vbn_queue_create(wire.worker, wire.b, &conf, &wire.rx[i]), 0);
}

void connect_receivers(void)
{
	for (uint32_t i = 0; i < wire.n_rx; i++) {
		assert_false(vbn_rx_group_is_built(wire.group));
		assert_int_equal(vbn_queue_connect(wire.rx[i], NULL), 0);
	}
	assert_true(vbn_rx_group_is_built(wire.group));
}

void create_sender(const struct vbn_queue_conf *asked)
{
	struct vbn_queue_conf conf = *asked;

	conf.rx_group = NULL;
	assert_int_equal(vbn_queue_create(wire.worker, wire.a, &conf, &wire.tx), 0);
	assert_int_equal(vbn_queue_connect(wire.tx, NULL), 0);
}

void connect_wire(const struct vbn_queue_conf *conf, uint32_t n)
{
	create_receivers(conf, n);
	connect_receivers();
	create_sender(conf);
}

/* ---- frames ---- */

void put16(uint8_t *to, uint32_t value)
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

uint8_t pattern(uint64_t number, uint32_t at)
{
	return (uint8_t)(number * 131 + at * 7 + 3);
}

/* The headers' bytes; the rest of `len` is the number's. */
uint32_t put_frame(uint8_t *data, const struct flow *flow, uint64_t number, uint32_t len)
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

struct vbn_buf *frame_of(
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
void check_frame(const struct vbn_buf *buf, const struct flow *flow, uint64_t number, uint32_t len)
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

struct vbn_buf *numbers(uint64_t number, uint32_t len)
{
	struct vbn_buf *buf = frame_of(wire.pool, &udp4, number, 60);

	put16(buf->data + 12, 0x88b5);
	for (uint32_t i = 14; i < len; i++)
		buf->data[i] = pattern(number, i);
	buf->len = len;
	return buf;
}

void check_numbers(const struct vbn_buf *buf, uint64_t number, uint32_t len)
{
	assert_int_equal(buf->len, len);
	for (uint32_t i = 14; i < len; i++)
		if (buf->data[i] != pattern(number, i))
			unit_fail("frame %llu of %u bytes: byte %u is %u and should be %u",
				(unsigned long long)number, len, i, buf->data[i],
				pattern(number, i));
}

/* ---- waits ---- */

void patience(uint64_t since)
{
	if (clock_ns() - since > 30ull * 1000 * 1000 * 1000)
		unit_fail("nothing came for 30 s; tx: %s; rx: %s; the log: %s",
			wire.tx ? vbn_queue_error(wire.tx) : "",
			wire.rx[0] ? vbn_queue_error(wire.rx[0]) : "", wire.log);
	sched_yield();
}

void send_all(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
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

void send_frame(struct vbn_buf *buf)
{
	send_all(wire.tx, &buf, 1);
}

struct vbn_buf *look(uint32_t q)
{
	struct vbn_buf *buf;
	const int got = vbn_recv(wire.rx[q], &buf, 1);

	if (got < 0)
		unit_fail("vbn_recv: %s; %s", strerror(-got), vbn_queue_error(wire.rx[q]));
	return got ? buf : NULL;
}

struct vbn_buf *receive(uint32_t q)
{
	const uint64_t start = clock_ns();
	struct vbn_buf *buf;

	while (!(buf = look(q)))
		patience(start);
	return buf;
}

void let_go(struct vbn_buf *buf)
{
	vbn_buf_free(&buf, 1);
}

/* What was sent has been carried out: nothing of it is under way any more, but to a receive ring. */
void settle(void)
{
	const uint64_t start = clock_ns();

	while (vbn_queue_outstanding(wire.tx)) {
		vbn_recv(wire.tx, NULL, 0);
		patience(start);
	}
}

struct vbn_queue_stats stats_of(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	return stats;
}

const char *mode(const struct vbn_queue *queue, const char *name)
{
	static struct vbn_mode modes[40];
	const int n = vbn_queue_modes(queue, modes, ARRAY_SIZE(modes));

	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, name))
			return modes[i].effective;
	return "no such mode";
}

bool is_connectx5(void)
{
	return strcmp(mode(wire.tx, "multi_packet"), "off") != 0;
}

/* ---- bytes, in every form of a send ---- */

uint32_t length_of(uint64_t number)
{
	return 60 + (uint32_t)(number * 37 % 1400);
}

struct vbn_buf *formed(uint64_t number, enum form form)
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

void check_formed(struct vbn_buf *buf, uint64_t number, enum form form)
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

enum form all_plain(uint64_t number)
{
	(void)number;
	return PLAIN;
}

enum form all_summed(uint64_t number)
{
	(void)number;
	return SUMMED;
}

enum form in_turn(uint64_t number)
{
	return (enum form)(number % N_FORMS);
}

/* Runs of three, so that a burst changes what it is and goes on for a while. */
enum form in_runs(uint64_t number)
{
	return (enum form)(number / 3 % N_FORMS);
}

int burst_of(uint64_t sent)
{
	return 1 + (int)(sent * 7 % 64);
}

/* n frames in bursts of 1 to 64, each looked at; no more under way than there are receives. */
void stream(enum form (*form_of)(uint64_t), uint64_t n)
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

uint64_t port_drops(const char *name)
{
	struct vbn_drop drops[16];
	const int n = vbn_port_drops(wire.b, drops, 16);

	for (int i = 0; i < n; i++)
		if (!strcmp(drops[i].name, name))
			return drops[i].count;
	unit_fail("port drops have no %s", name);
	return 0;
}

/* The queue that a frame of the flow has come to. */
uint32_t queue_of(const struct flow *flow)
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

/* ---- the end of a queue ---- */

void expect_failed(struct vbn_queue *queue, enum vbn_status status, const char *words)
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

void reset(struct vbn_queue *queue)
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
		unit_fail("vbn_queue_reset: %s; %s", strerror(-ret), wire.log);
}
