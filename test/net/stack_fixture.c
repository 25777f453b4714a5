/* stack_fixture.c - a net with no device, frames from a peer, and a look at each frame that is sent */

#include "stack_fixture.h"

#include <arpa/inet.h>

const uint8_t our_mac[6] = {0x02, 0, 0, 0, 0, 0x02}, peer_mac[6] = {0x02, 0, 0, 0, 0, 0x01};
static const uint8_t second_mac[6] = {0x02, 0, 0, 0, 1, 0x02},
		     everybody[6] = {255, 255, 255, 255, 255, 255};

uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

uint32_t get32(const uint8_t *at)
{
	return (uint32_t)get16(at) << 16 | get16(at + 2);
}

void put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* ---- sums, byte by byte ---- */

static uint32_t sum_bytes(uint32_t sum, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sum += (uint32_t)bytes[i] << (i & 1 ? 0 : 8);
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return sum;
}

static uint16_t sum_with(const uint8_t *from, const uint8_t *to, size_t address, uint8_t protocol,
	const uint8_t *bytes, size_t n)
{
	uint32_t sum = sum_bytes(sum_bytes(0, from, address), to, address);
	uint8_t rest[8] = {0, 0, (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, protocol};

	rest[1] = (uint8_t)(n >> 16);
	sum = sum_bytes(sum_bytes(sum, rest, 8), bytes, n);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

static size_t address(const char *text, uint8_t bytes[16])
{
	if (inet_pton(AF_INET, text, bytes) == 1)
		return 4;
	assert_int_equal(inet_pton(AF_INET6, text, bytes), 1);
	return 16;
}

uint16_t frame_sum(
	const char *from, const char *to, uint8_t protocol, const uint8_t *bytes, size_t n)
{
	uint8_t a[16], b[16];
	size_t size = address(from, a);

	address(to, b);
	return sum_with(a, b, size, protocol, bytes, n);
}

uint16_t frame_sum_plain(const uint8_t *bytes, size_t n)
{
	return (uint16_t)sum_bytes(0, bytes, n);
}

/* ---- what is sent is looked at ---- */

static void check_transport(const uint8_t *from, const uint8_t *to, size_t size, uint8_t protocol,
	const uint8_t *at, uint32_t n)
{
	switch (protocol) {
	case 17:
		assert_true(n >= UDP);
		assert_int_equal(get16(at + 4), n);
		assert_int_not_equal(get16(at + 6), 0);
		assert_int_equal(sum_with(from, to, size, 17, at, n), 0xffff);
		break;
	case 1:
	case 2:
		assert_true(n >= 8);
		assert_int_equal(sum_bytes(0, at, n), 0xffff);
		break;
	case 58:
		assert_true(n >= 8);
		assert_int_equal(sum_with(from, to, size, 58, at, n), 0xffff);
		break;
	default: break;
	}
}

static bool is_ours(const uint8_t *from, size_t size, uint8_t ttl)
{
	static const char *const addresses[] = {OUR4, OUR6, "10.1.0.2", "fd01::2"};
	static const uint8_t none[16];
	uint8_t ip[16];

	if (size == 16 &&
		((from[0] == 0xfe && (from[1] & 0xc0) == 0x80) || !memcmp(from, none, 16)))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		if (address(addresses[i], ip) == size && !memcmp(ip, from, size))
			return ttl == 64 || ttl == 255 || ttl == 1;
	return false;
}

static void check_ip4(const uint8_t *at, uint32_t n)
{
	uint32_t header = (at[0] & 15u) * 4;

	assert_true(n >= IP4 && at[0] >> 4 == 4 && header >= IP4);
	assert_int_equal(get16(at + 2), n);
	assert_int_equal(sum_bytes(0, at, header), 0xffff);
	/* What is forwarded has a transport of others' making. */
	if (!(get16(at + 6) & 0x3fff) && is_ours(at + 12, 4, at[8]))
		check_transport(at + 12, at + 16, 4, at[9], at + header, n - header);
}

static void check_ip6(const uint8_t *at, uint32_t n)
{
	uint32_t header = IP6;
	uint8_t next = at[6];

	assert_true(n >= IP6 && at[0] >> 4 == 6);
	assert_int_equal(get16(at + 4) + IP6, n);
	if (next == 0) {
		next = at[header];
		header += 8;
	}
	if (next != 44 && is_ours(at + 8, 16, at[7]))
		check_transport(at + 8, at + 24, 16, next, at + header, n - header);
}

static void check_frame(const struct sent *sent)
{
	const uint8_t *at = sent->bytes;
	uint16_t type = get16(at + 12);
	uint32_t n = sent->len - ETH;

	assert_memory_equal(at + 6, sent->link ? second_mac : our_mac, 6);
	at += ETH;
	if (type == 0x8100) {
		type = get16(at + 2);
		at += 4;
		n -= 4;
	}
	if (type == 0x0800)
		check_ip4(at, n);
	else if (type == 0x86dd)
		check_ip6(at, n);
	else
		assert_true(type == 0x0806 && n == 28);
}

static void untag(struct sent *sent, uint16_t vlan)
{
	assert_int_equal(get16(sent->bytes + 12), 0x8100);
	assert_int_equal(get16(sent->bytes + 14), vlan);
	sent->len -= 4;
	memmove(sent->bytes + 12, sent->bytes + 16, sent->len - 12);
}

static int output(struct stack *stack, struct vbn_buf **bufs, int n, uint32_t link)
{
	if (stack->deaf)
		return 0;
	for (int i = 0; i < n; i++) {
		struct sent *sent =
			&stack->sent[stack->n_sent < MOST_SENT ? stack->n_sent++ : MOST_SENT - 1];

		sent->len = 0;
		sent->link = link;
		for (const struct vbn_buf *buf = bufs[i];; buf = buf->next) {
			assert_true(sent->len + buf->len <= sizeof(sent->bytes));
			memcpy(sent->bytes + sent->len, buf->data, buf->len);
			sent->len += buf->len;
			if (!(buf->flags & VBN_BUF_CHAIN))
				break;
		}
		check_frame(sent);
		if (stack->vlan)
			untag(sent, stack->vlan);
	}
	vbn_buf_free(bufs, n);
	return n;
}

static int output_first(struct vbn_buf **bufs, int n, void *arg)
{
	return output(arg, bufs, n, 0);
}

static int output_second(struct vbn_buf **bufs, int n, void *arg)
{
	return output(arg, bufs, n, 1);
}

const struct sent *stack_sent(const struct stack *stack, uint16_t type, int protocol, uint32_t n)
{
	for (uint32_t i = 0; i < stack->n_sent; i++) {
		const struct sent *sent = &stack->sent[i];
		uint8_t is = type == 0x0800 ? sent->bytes[ETH + 9] : sent->bytes[ETH + 6];

		if (get16(sent->bytes + 12) == type && (protocol < 0 || is == protocol) && !n--)
			return sent;
	}
	return NULL;
}

/* ---- the net ---- */

void stack_open(struct stack *stack, const struct vbn_net_conf *conf, uint32_t mtu)
{
	stack_open_tagged(stack, conf, mtu, 0);
}

void stack_open_tagged(
	struct stack *stack, const struct vbn_net_conf *conf, uint32_t mtu, uint16_t vlan)
{
	struct vbn_net_interface_conf interfaces[2] = {
		{.name = "first",
			.link = 0,
			.mtu = mtu,
			.addresses = mtu < 1280 ? OUR4 "/24" : OUR4 "/24," OUR6 "/64"},
		{.name = "second",
			.link = 1,
			.mtu = mtu,
			.addresses = mtu < 1280 ? "10.1.0.2/16" : "10.1.0.2/16,fd01::2/64"},
	};
	struct vbn_net_conf full = conf ? *conf : (struct vbn_net_conf){.n_interfaces = 0};
	struct vbn_net_route route;

	*stack = (struct stack){.now = 1000, .vlan = vlan};
	stack->sent = calloc(MOST_SENT, sizeof(*stack->sent));
	memcpy(interfaces[0].mac, our_mac, 6);
	memcpy(interfaces[1].mac, second_mac, 6);
	for (int i = 0; i < 2 && vlan; i++)
		interfaces[i].vlan = (struct vbn_num)VBN_NUM(vlan);
	full.interfaces = interfaces;
	full.n_interfaces = 2;
	if (full.probe_addresses == VBN_AUTO)
		full.probe_addresses = VBN_OFF;
	unit_catch_log();
	assert_int_equal(vbn_net_create(&full, &stack->net), 0);
	assert_int_equal(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = POOL,
						 .data_size = FRAME,
						 .headroom = VBN_NUM(128)},
				 &stack->pool),
		0);
	assert_int_equal(vbn_net_attach(stack->net,
				 &(struct vbn_net_end_conf){
					 .output = output_first, .arg = stack, .pool = stack->pool},
				 &stack->end),
		0);
	assert_int_equal(vbn_net_attach(stack->net,
				 &(struct vbn_net_end_conf){.output = output_second,
					 .arg = stack,
					 .link = 1,
					 .pool = stack->pool},
				 &stack->second),
		0);
	assert_int_equal(vbn_net_route_parse(stack->net, "192.168.0.0/16 via " PEER4, &route), 0);
	assert_int_equal(vbn_net_route_add(stack->net, &route), 0);
	vbn_net_tick(stack->end, stack->now);
	if (full.probe_addresses == VBN_OFF)
		stack_pass(stack, 30000); /* reports have gone */
	stack_clear(stack);
}

static int print_counter(const char *name, const char *help, uint64_t value, void *arg)
{
	(void)help;
	(void)arg;
	if (value)
		print_error("  %s %llu\n", name, (unsigned long long)value);
	return 0;
}

void stack_check(struct stack *stack)
{
	int64_t received, sent;

	if (vbn_net_balance(stack->end, &received, &sent))
		return;
	vbn_net_counters(stack->end, print_counter, NULL);
	unit_fail("%lld frames received and %lld packets to be sent have no fate",
		(long long)received, (long long)sent);
}

void stack_close(struct stack *stack)
{
	stack_check(stack);
	vbn_net_detach(stack->second);
	vbn_net_detach(stack->end);
	vbn_net_destroy(stack->net);
	assert_int_equal(vbn_pool_available(stack->pool), POOL);
	vbn_pool_destroy(stack->pool);
	free(stack->sent);
}

void stack_pass(struct stack *stack, uint64_t ms)
{
	for (uint64_t until = stack->now + ms; stack->now < until;) {
		stack->now += 10;
		vbn_net_tick(stack->end, stack->now);
		vbn_net_flush(stack->end);
		vbn_net_flush(stack->second);
	}
}

void stack_clear(struct stack *stack)
{
	vbn_net_flush(stack->end);
	vbn_net_flush(stack->second);
	stack->n_sent = 0;
}

uint64_t stack_counter(const struct stack *stack, const char *name)
{
	uint64_t value = vbn_net_counter(stack->end, name);

	if (value == UINT64_MAX)
		unit_fail("there is no counter %s", name);
	return value;
}

static void input(struct stack *stack, struct vbn_net_end *end, const void *frame, size_t len)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(stack->pool, &buf, 1), 1);
	assert_true(len <= vbn_buf_tailroom(buf));
	if (len)
		memcpy(buf->data, frame, len);
	buf->len = (uint32_t)len;
	if (stack->vlan && len >= 12) {
		memmove(buf->data + 16, buf->data + 12, len - 12);
		put16(buf->data + 12, 0x8100);
		put16(buf->data + 14, stack->vlan);
		buf->len += 4;
	}
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = stack->flags};
	vbn_net_input(end, &buf, 1);
	vbn_net_flush(stack->end);
	vbn_net_flush(stack->second);
}

void stack_input(struct stack *stack, const void *frame, size_t len)
{
	input(stack, stack->end, frame, len);
}

void stack_input_second(struct stack *stack, const void *frame, size_t len)
{
	input(stack, stack->second, frame, len);
}

void stack_know(struct stack *stack, const char *ip)
{
	static struct frame frame;

	if (strchr(ip, ':'))
		frame_nd(&frame, 135, ip, OUR6, OUR6, 0, peer_mac);
	else
		frame_arp(&frame, 1, peer_mac, ip, (const uint8_t[6]){0}, OUR4);
	stack_input(stack, frame.bytes, frame.len);
	stack_clear(stack);
}

/* ---- frames ---- */

void frame_ether(struct frame *frame, const uint8_t to[6], uint16_t type)
{
	memcpy(frame->bytes, to, 6);
	memcpy(frame->bytes + 6, peer_mac, 6);
	put16(frame->bytes + 12, type);
	frame->len = ETH;
}

void frame_add(struct frame *frame, const void *bytes, size_t n)
{
	if (n)
		memcpy(frame->bytes + frame->len, bytes, n);
	frame->len += (uint32_t)n;
}

/* The MAC that frames to an address have. */
static void mac_of(const uint8_t *ip, size_t size, uint8_t mac[6])
{
	memcpy(mac, our_mac, 6);
	if (size == 16 && ip[0] == 0xff)
		memcpy(mac, (const uint8_t[]){0x33, 0x33, ip[12], ip[13], ip[14], ip[15]}, 6);
	else if (size == 4 && ip[0] == 255)
		memcpy(mac, everybody, 6);
	else if (size == 4 && ip[0] >> 4 == 14)
		memcpy(mac, (const uint8_t[]){0x01, 0, 0x5e, ip[1] & 127, ip[2], ip[3]}, 6);
}

void frame_ip(struct frame *frame, const struct ip_fields *fields, const void *payload, size_t n)
{
	uint8_t from[16], to[16], mac[6];
	size_t size = address(fields->from, from);
	uint8_t *at = frame->bytes + ETH, ttl = fields->ttl ? fields->ttl : 64;

	address(fields->to, to);
	mac_of(to, size, mac);
	frame_ether(frame, mac, size == 4 ? 0x0800 : 0x86dd);
	if (size == 16) {
		uint8_t header[8] = {
			0x60, 0, 0, 0, (uint8_t)(n >> 8), (uint8_t)n, fields->protocol, ttl};

		frame_add(frame, header, 8);
		frame_add(frame, from, 16);
		frame_add(frame, to, 16);
	} else {
		uint32_t header = IP4 + fields->n_options;

		memset(at, 0, header);
		at[0] = (uint8_t)(0x40 | header / 4);
		put16(at + 2, (uint16_t)(header + n));
		put16(at + 4, fields->id);
		put16(at + 6, fields->fragment);
		at[8] = ttl;
		at[9] = fields->protocol;
		memcpy(at + 12, from, 4);
		memcpy(at + 16, to, 4);
		if (fields->n_options)
			memcpy(at + IP4, fields->options, fields->n_options);
		put16(at + 10, (uint16_t)~sum_bytes(0, at, header));
		frame->len += header;
	}
	frame_add(frame, payload, n);
}

void frame_udp(struct frame *frame, const char *from, const char *to, uint16_t from_port,
	uint16_t to_port, const void *payload, size_t n)
{
	static uint8_t datagram[66000];
	uint16_t sum;

	put16(datagram, from_port);
	put16(datagram + 2, to_port);
	put16(datagram + 4, (uint16_t)(UDP + n));
	put16(datagram + 6, 0);
	if (n)
		memcpy(datagram + UDP, payload, n);
	sum = (uint16_t)~frame_sum(from, to, 17, datagram, UDP + n);
	put16(datagram + 6, sum ? sum : 0xffff);
	frame_ip(frame, &(struct ip_fields){.from = from, .to = to, .protocol = 17}, datagram,
		UDP + n);
}

void frame_echo(struct frame *frame, const char *from, const char *to, uint16_t sequence, size_t n)
{
	static uint8_t message[66000];
	bool v6 = strchr(from, ':') != NULL;

	memset(message, 0, 8);
	message[0] = v6 ? 128 : 8;
	put16(message + 4, 0x1234);
	put16(message + 6, sequence);
	for (size_t i = 0; i < n; i++)
		message[8 + i] = (uint8_t)(i * 7 + i / 256);
	put16(message + 2,
		(uint16_t) ~(v6 ? frame_sum(from, to, 58, message, 8 + n)
				: sum_bytes(0, message, 8 + n)));
	frame_ip(frame, &(struct ip_fields){.from = from, .to = to, .protocol = v6 ? 58 : 1},
		message, 8 + n);
}

void frame_arp(struct frame *frame, uint16_t operation, const uint8_t sender_mac[6],
	const char *sender, const uint8_t target_mac[6], const char *target)
{
	uint8_t ip[16];
	static const uint8_t head[6] = {0, 1, 8, 0, 6, 4};

	frame_ether(frame, operation == 1 ? everybody : our_mac, 0x0806);
	memcpy(frame->bytes + 6, sender_mac, 6);
	frame_add(frame, head, 6);
	put16(frame->bytes + frame->len, operation);
	frame->len += 2;
	frame_add(frame, sender_mac, 6);
	address(sender, ip);
	frame_add(frame, ip, 4);
	frame_add(frame, target_mac, 6);
	address(target, ip);
	frame_add(frame, ip, 4);
}

void frame_nd(struct frame *frame, uint8_t type, const char *from, const char *to,
	const char *target, uint32_t flags, const uint8_t *mac)
{
	uint8_t message[32] = {type};
	size_t n = mac ? 32 : 24;

	put16(message + 4, (uint16_t)(flags >> 16));
	address(target, message + 8);
	if (mac) {
		message[24] = type == 135 ? 1 : 2;
		message[25] = 1;
		memcpy(message + 26, mac, 6);
	}
	put16(message + 2, (uint16_t)~frame_sum(from, to, 58, message, n));
	frame_ip(frame, &(struct ip_fields){.from = from, .to = to, .protocol = 58, .ttl = 255},
		message, n);
	if (mac)
		memcpy(frame->bytes + 6, mac, 6);
}
