/* stack_test.c - the stack with no device: what a host and a router answer, deliver and forward */

#include "stack_fixture.h"

#include "net/seat.h"
#include "run/rcu.h"

static struct stack stack;
static struct frame frame;

/* ---- neighbours ---- */

static int neighbour_state(const char *ip)
{
	static struct vbn_neighbour all[2048];
	struct vbn_ip wanted;
	int n = vbn_net_neighbours(stack.net, all, 2048);

	assert_int_equal(vbn_ip_parse(ip, &wanted), 0);
	for (int i = 0; i < n; i++)
		if (!memcmp(&all[i].ip, &wanted, sizeof(wanted)))
			return all[i].state;
	return -1;
}

static void test_arp_request_is_answered(void **arg)
{
	const struct sent *sent;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	frame_arp(&frame, 1, peer_mac, PEER4, (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, frame.bytes, frame.len);
	sent = stack_sent(&stack, 0x0806, -1, 0);
	assert_non_null(sent);
	assert_memory_equal(sent->bytes, peer_mac, 6);
	assert_int_equal(get16(sent->bytes + ETH + 6), 2);
	assert_memory_equal(sent->bytes + ETH + 8, our_mac, 6);
	assert_memory_equal(sent->bytes + ETH + 14, "\x0a\0\0\2", 4);
	assert_memory_equal(sent->bytes + ETH + 18, peer_mac, 6);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_STALE);
	assert_counted(&stack, "answered", 1);
	/* To somebody else: nothing is said, nobody is learned. */
	stack_clear(&stack);
	frame_arp(&frame, 1, peer_mac, "10.0.0.77", (const uint8_t[6]){0}, "10.0.0.78");
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 0);
	assert_int_equal(neighbour_state("10.0.0.77"), -1);
	stack_close(&stack);
}

static void test_solicitation_is_answered(void **arg)
{
	const struct sent *sent;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	frame_nd(&frame, 135, PEER6, "ff02::1:ff00:2", OUR6, 0, peer_mac);
	stack_input(&stack, frame.bytes, frame.len);
	sent = stack_sent(&stack, 0x86dd, 58, 0);
	assert_non_null(sent);
	assert_memory_equal(sent->bytes, peer_mac, 6);
	assert_int_equal(sent->bytes[ETH + IP6], 136);
	assert_int_equal(get32(sent->bytes + ETH + IP6 + 4), 0x60000000);
	assert_memory_equal(sent->bytes + ETH + IP6 + 26, our_mac, 6);
	assert_int_equal(neighbour_state(PEER6), VBN_NEIGHBOUR_STALE);
	/* From beyond the link it would have lost a hop. */
	frame.bytes[ETH + 7] = 254;
	stack_clear(&stack);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 0);
	assert_counted(&stack, "drop_nd", 1);
	stack_close(&stack);
}

static struct vbn_udp *open_port(uint16_t port, vbn_udp_recv_fn *recv)
{
	struct vbn_udp *udp;

	assert_int_equal(vbn_udp_open(stack.end,
				 &(struct vbn_udp_conf){.local.port = port,
					 .recv = recv,
					 .arg = &stack,
					 .broadcast = VBN_ON},
				 &udp),
		0);
	return udp;
}

static int send_to(struct vbn_udp *udp, const char *ip, uint16_t port, size_t n)
{
	struct vbn_udp_address to = {.port = port};
	struct vbn_buf *buf;
	int sent;

	assert_int_equal(vbn_ip_parse(ip, &to.ip), 0);
	assert_int_equal(vbn_buf_alloc(stack.pool, &buf, 1), 1);
	memset(buf->data, 0x5a, n);
	buf->len = (uint32_t)n;
	sent = vbn_udp_send(udp, &to, &buf, 1);
	if (sent <= 0)
		vbn_buf_free(&buf, 1);
	vbn_net_flush(stack.end);
	vbn_net_flush(stack.second);
	return sent;
}

/* Packets wait, the question is asked three times, what waited goes in order when it is answered. */
static void test_packets_wait_for_a_neighbour(void **arg)
{
	struct vbn_udp *udp;
	const struct sent *sent;

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.max_waiting_each = 4}, 1500);
	udp = open_port(1000, NULL);
	for (int i = 0; i < 6; i++)
		assert_int_equal(send_to(udp, PEER4, (uint16_t)(2000 + i), 10), 1);
	assert_int_equal(stack.n_sent, 1);
	assert_non_null(stack_sent(&stack, 0x0806, -1, 0));
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_INCOMPLETE);
	stack_check(&stack);
	frame_arp(&frame, 2, peer_mac, PEER4, our_mac, OUR4);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_REACHABLE);
	assert_counted(&stack, "drop_tx_waiting", 2);
	for (uint32_t i = 0; i < 4; i++) {
		sent = stack_sent(&stack, 0x0800, 17, i);
		assert_non_null(sent);
		assert_memory_equal(sent->bytes, peer_mac, 6);
		assert_int_equal(get16(sent->bytes + ETH + IP4 + 2), 2002 + i);
	}
	/* Not heard of for long it is stale; used, it is asked by itself, and then by all. */
	stack_pass(&stack, 50000);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_STALE);
	stack_clear(&stack);
	assert_int_equal(send_to(udp, PEER4, 2000, 10), 1);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_DELAY);
	stack_pass(&stack, 5200);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_PROBE);
	sent = stack_sent(&stack, 0x0806, -1, 0);
	assert_non_null(sent);
	assert_memory_equal(sent->bytes, peer_mac, 6);
	stack_pass(&stack, 4000);
	assert_int_equal(neighbour_state(PEER4), -1);
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_nobody_answers(void **arg)
{
	struct vbn_udp *udp;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	udp = open_port(1000, NULL);
	assert_int_equal(send_to(udp, PEER4, 1, 10), 1);
	assert_int_equal(send_to(udp, PEER6, 1, 10), 1);
	stack_pass(&stack, 3500);
	assert_int_equal(neighbour_state(PEER4), VBN_NEIGHBOUR_FAILED);
	assert_int_equal(neighbour_state(PEER6), VBN_NEIGHBOUR_FAILED);
	assert_counted(&stack, "drop_tx_no_neighbour", 2);
	assert_counted(&stack, "arp_requests_sent", 3);
	assert_int_equal(send_to(udp, PEER4, 1, 10), 1);
	assert_counted(&stack, "drop_tx_no_neighbour", 3);
	stack_pass(&stack, 4000);
	assert_int_equal(neighbour_state(PEER4), -1);
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_mac_changes(void **arg)
{
	static const uint8_t new_mac[6] = {2, 0, 0, 0, 9, 9};
	struct vbn_udp *udp;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	udp = open_port(1000, NULL);
	stack_know(&stack, PEER4);
	stack_know(&stack, PEER6);
	/* Gratuitous ARP; an unsolicited advertisement that overrides. */
	frame_arp(&frame, 1, new_mac, PEER4, (const uint8_t[6]){0}, PEER4);
	stack_input(&stack, frame.bytes, frame.len);
	frame_nd(&frame, 136, PEER6, "ff02::1", PEER6, 0x20000000, new_mac);
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "neighbours_changed", 2);
	send_to(udp, PEER4, 1, 10);
	send_to(udp, PEER6, 1, 10);
	assert_memory_equal(stack_sent(&stack, 0x0800, 17, 0)->bytes, new_mac, 6);
	assert_memory_equal(stack_sent(&stack, 0x86dd, 17, 0)->bytes, new_mac, 6);
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_spoofed_arp(void **arg)
{
	static const uint8_t liar[6] = {2, 0, 0, 0, 6, 6}, group[6] = {3, 0, 0, 0, 6, 6};
	uint8_t *at = frame.bytes;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	/* Our own address: said once that it is ours, counted each time. */
	for (int i = 0; i < 5; i++) {
		frame_arp(&frame, 1, liar, OUR4, (const uint8_t[6]){0}, OUR4);
		stack_input(&stack, at, frame.len);
	}
	assert_counted(&stack, "address_conflicts", 5);
	assert_int_equal(stack.n_sent, 1);
	assert_int_equal(neighbour_state(OUR4), -1);
	/* A MAC that is not who sent it, one of many, an address from elsewhere, a broadcast address. */
	frame_arp(&frame, 1, liar, PEER4, (const uint8_t[6]){0}, OUR4);
	memcpy(at + 6, peer_mac, 6);
	stack_input(&stack, at, frame.len);
	frame_arp(&frame, 1, group, PEER4, (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, at, frame.len);
	frame_arp(&frame, 1, liar, "192.168.1.1", (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, at, frame.len);
	frame_arp(&frame, 1, liar, "10.0.0.255", (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, at, frame.len);
	assert_counted(&stack, "drop_arp", 3);
	assert_counted(&stack, "drop_source", 1);
	assert_int_equal(vbn_net_neighbours(stack.net, NULL, 0), 0);
	/* An answer that nobody asked for makes nobody known. */
	frame_arp(&frame, 2, liar, "10.0.0.50", our_mac, OUR4);
	stack_input(&stack, at, frame.len);
	assert_int_equal(vbn_net_neighbours(stack.net, NULL, 0), 0);
	stack_close(&stack);
}

static void test_addresses_are_probed(void **arg)
{
	static const uint8_t other[6] = {2, 0, 0, 0, 5, 5};
	struct vbn_net_address addresses[8];

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.probe_addresses = VBN_ON}, 1500);
	stack_pass(&stack, 500);
	assert_counted(&stack, "arp_requests_sent", 2); /* one for each IPv4 address */
	/* Nobody is answered for an address that is not ours yet; somebody has one of them. */
	frame_arp(&frame, 1, peer_mac, PEER4, (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "arp_replies_sent", 0);
	frame_arp(&frame, 2, other, OUR4, our_mac, "10.0.0.9");
	stack_input(&stack, frame.bytes, frame.len);
	frame_nd(&frame, 136, OUR6, "ff02::1", OUR6, 0x20000000, other);
	stack_input(&stack, frame.bytes, frame.len);
	stack_pass(&stack, 10000);
	assert_int_equal(vbn_net_addresses(stack.net, addresses, 8), 6);
	for (int i = 0; i < 6; i++) {
		assert_false(addresses[i].tentative);
		assert_int_equal(addresses[i].duplicate, i < 2);
	}
	frame_arp(&frame, 1, peer_mac, PEER4, (const uint8_t[6]){0}, OUR4);
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "arp_replies_sent", 0);
	stack_close(&stack);
}

static void test_flood_of_neighbours(void **arg)
{
	uint32_t left;
	struct vbn_udp *udp;

	(void)arg;
	stack_open(&stack,
		&(struct vbn_net_conf){.max_neighbours = 64, .max_waiting = 32, .forward = true},
		1500);
	udp = open_port(1000, NULL);
	for (int i = 0; i < 20000; i++) {
		char ip[32];

		snprintf(ip, sizeof(ip), "10.1.%d.%d", i / 250 % 256, 1 + i % 250);
		send_to(udp, ip, 9, 30);
		if (i % 4 == 0) {
			frame_udp(&frame, PEER4, ip, 1, 2, "forward me", 10);
			stack_input(&stack, frame.bytes, frame.len);
		}
		if (i % 4 == 1) {
			snprintf(ip, sizeof(ip), "10.0.0.%d", 3 + i % 250);
			frame_arp(&frame, 1, peer_mac, ip, (const uint8_t[6]){0}, OUR4);
			stack_input(&stack, frame.bytes, frame.len);
		}
		stack_clear(&stack);
		assert_true(vbn_net_neighbours(stack.net, NULL, 0) <= 64);
		if (i % 1000 == 0)
			stack_pass(&stack, 100);
	}
	stack_check(&stack);
	left = vbn_pool_available(stack.pool);
	assert_true(left >= POOL - 33);
	/* And it goes on working, once those evicted have passed a grace period. */
	vbn__rcu_barrier();
	stack_pass(&stack, 20000);
	stack_know(&stack, PEER4);
	stack_clear(&stack);
	assert_int_equal(send_to(udp, PEER4, 9, 30), 1);
	assert_int_equal(stack.n_sent, 1);
	vbn_udp_close(udp);
	stack_close(&stack);
}

/* Of its own MAC. */
static void hear_of(const char *ip)
{
	const uint8_t mac[6] = {2, 0, 0, 0, 9, 9};

	frame_arp(&frame, 1, mac, ip, (const uint8_t[6]){0}, OUR4);
	memcpy(frame.bytes + 6, mac, 6);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(neighbour_state(ip), VBN_NEIGHBOUR_STALE);
}

static void forget_all(void)
{
	for (int i = 0; i < 60 && vbn_net_neighbours(stack.net, NULL, 0); i++)
		stack_pass(&stack, 1000);
	assert_int_equal(vbn_net_neighbours(stack.net, NULL, 0), 0);
	vbn__rcu_barrier();
}

/* An entry's lives are counted, and begin anew: who remembers one is not taken in by another of its number. */
static void test_lives_begin_anew(void **arg)
{
	const struct neighbour *entry;
	struct vbn_udp *udp;

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.stale_ms = 1000}, 1500);
	udp = open_port(1000, NULL);
	entry = stack.net->free_neighbours;
	stack_know(&stack, PEER4);
	assert_int_equal(entry->life, WORD_LIFE);
	assert_int_equal(send_to(udp, PEER4, 9, 30), 1);
	forget_all();
	assert_ptr_equal(stack.net->free_neighbours, entry);
	stack.net->free_neighbours->life = WORD_LIVES; /* thousands of them later */
	hear_of("10.0.0.8");
	assert_int_equal(entry->life, 0);
	forget_all();
	hear_of("10.0.0.9");
	assert_int_equal(entry->life, WORD_LIFE);
	stack_clear(&stack);
	assert_int_equal(send_to(udp, PEER4, 9, 30), 1);
	assert_int_equal(stack.n_sent, 1);
	assert_non_null(stack_sent(&stack, 0x0806, -1, 0)); /* it is asked for */
	vbn_udp_close(udp);
	stack_close(&stack);
}

/* ---- UDP ---- */

static uint64_t bytes_echoed;

static void echo(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent;

	(void)arg;
	for (int i = 0; i < n; i++)
		bytes_echoed += vbn_buf_total(bufs[i]);
	sent = vbn_udp_reply(udp, bufs, n);
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

static void test_udp_echo(void **arg)
{
	static const char *const peers[] = {PEER4, PEER6}, *const ours[] = {OUR4, OUR6};
	uint8_t data[1400];
	struct vbn_udp *udp;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	udp = open_port(7, echo);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 3);
	for (int v = 0; v < 2; v++) {
		stack_know(&stack, peers[v]);
		for (uint32_t n = 0; n <= sizeof(data); n += n < 80 ? 1 : 331) {
			const struct sent *sent;
			uint32_t header = ETH + (v ? IP6 : IP4);

			frame_udp(&frame, peers[v], ours[v], 4000, 7, data, n);
			stack_clear(&stack);
			stack_input(&stack, frame.bytes, frame.len);
			sent = stack_sent(&stack, v ? 0x86dd : 0x0800, 17, 0);
			assert_non_null(sent);
			assert_memory_equal(sent->bytes, peer_mac, 6);
			assert_int_equal(sent->len, header + UDP + n);
			assert_int_equal(get16(sent->bytes + header), 7);
			assert_int_equal(get16(sent->bytes + header + 2), 4000);
			assert_memory_equal(sent->bytes + header + UDP, data, n);
			/* A byte wrong, and it is nobody's. */
			frame.bytes[header + UDP + n / 2] ^= 0x10;
			stack_clear(&stack);
			if (n)
				stack_input(&stack, frame.bytes, frame.len);
			assert_int_equal(stack.n_sent, 0);
		}
	}
	/* No checksum: allowed in IPv4 alone. */
	frame_udp(&frame, PEER4, OUR4, 4000, 7, data, 5);
	put16(frame.bytes + ETH + IP4 + 6, 0);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 1);
	frame_udp(&frame, PEER6, OUR6, 4000, 7, data, 5);
	put16(frame.bytes + ETH + IP6 + 6, 0);
	stack_input(&stack, frame.bytes, frame.len);
	stack.flags = VBN_PACKET_L4_GOOD;
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 1);
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_sockets(void **arg)
{
	struct vbn_udp *any, *bound, *connected, *same;
	struct vbn_udp_address peer = {.port = 5000}, from;
	struct vbn_udp_conf conf = {.local.port = 53};
	struct vbn_buf *bufs[8];

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	any = open_port(53, NULL);
	assert_int_equal(vbn_udp_open(stack.end, &conf, &same), -EADDRINUSE);
	assert_int_equal(vbn_ip_parse(OUR4, &conf.local.ip), 0);
	assert_int_equal(vbn_udp_open(stack.end, &conf, &bound), 0);
	assert_int_equal(vbn_udp_open(stack.end, &conf, &same), -EADDRINUSE);
	conf.local.ip.bytes[15] = 99;
	assert_int_equal(vbn_udp_open(stack.end, &conf, &same), -EADDRNOTAVAIL);
	conf = (struct vbn_udp_conf){.depth = 2};
	assert_int_equal(vbn_udp_open(stack.end, &conf, &connected), 0);
	vbn_udp_local(connected, &from);
	assert_true(from.port >= 49152);
	assert_int_equal(vbn_ip_parse(PEER4, &peer.ip), 0);
	assert_int_equal(vbn_udp_connect(connected, &peer), 0);
	/* Each to whom it fits best. */
	frame_udp(&frame, PEER4, OUR4, 1, 53, "b", 1);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, PEER6, OUR6, 1, 53, "a", 1);
	stack_input(&stack, frame.bytes, frame.len);
	for (int i = 0; i < 3; i++) {
		frame_udp(&frame, PEER4, OUR4, 5000, from.port, "c", 1);
		stack_input(&stack, frame.bytes, frame.len);
	}
	frame_udp(&frame, PEER4, OUR4, 5001, from.port, "d", 1);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(vbn_udp_recv(bound, bufs, 8), 1);
	assert_int_equal(bufs[0]->data[0], 'b');
	vbn_buf_free(bufs, 1);
	assert_int_equal(vbn_udp_recv(any, bufs, 8), 1);
	assert_int_equal(bufs[0]->data[0], 'a');
	vbn_udp_source(bufs[0], &from);
	assert_int_equal(from.port, 1);
	assert_int_equal(from.interface, 1);
	vbn_buf_free(bufs, 1);
	assert_int_equal(vbn_udp_recv(connected, bufs, 8), 2);
	vbn_buf_free(bufs, 2);
	assert_counted(&stack, "drop_udp_full", 1);
	assert_counted(&stack, "drop_no_port", 1);
	/* No socket: said so, once for each datagram, but not to groups. */
	assert_int_equal(stack_sent(&stack, 0x0800, 1, 0)->bytes[ETH + IP4], 3);
	vbn_udp_close(any);
	vbn_udp_close(bound);
	vbn_udp_close(connected);
	stack_close(&stack);
}

static void test_connection_is_refused(void **arg)
{
	struct vbn_udp *udp;
	struct vbn_udp_address peer = {.port = 5000}, other = {.port = 1};
	struct vbn_buf *buf;
	uint8_t message[8 + 28] = {3, 3};
	const struct sent *sent;
	uint32_t sum = 0;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	udp = open_port(1000, NULL);
	assert_int_equal(vbn_udp_send(udp, NULL, &buf, 1), -EDESTADDRREQ);
	vbn_ip_parse(PEER4, &peer.ip);
	assert_int_equal(vbn_udp_connect(udp, &peer), 0);
	assert_int_equal(vbn_buf_alloc(stack.pool, &buf, 1), 1);
	buf->len = 4;
	memset(buf->data, 0, 4);
	assert_int_equal(vbn_udp_send(udp, NULL, &buf, 1), 1);
	vbn_net_flush(stack.end);
	sent = stack_sent(&stack, 0x0800, 17, 0);
	memcpy(message + 8, sent->bytes + ETH, 28);
	for (int i = 0; i < 2; i++) {
		/* The second time about a port that has no socket. */
		message[8 + IP4 + 1] ^= (uint8_t)i;
		put16(message + 2, 0);
		sum = 0;
		for (size_t k = 0; k < sizeof(message); k += 2)
			sum += get16(message + k);
		put16(message + 2, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
		frame_ip(&frame, &(struct ip_fields){.from = PEER4, .to = OUR4, .protocol = 1},
			message, sizeof(message));
		stack_input(&stack, frame.bytes, frame.len);
	}
	assert_int_equal(vbn_udp_error(udp), -ECONNREFUSED);
	assert_int_equal(vbn_udp_error(udp), 0);
	assert_counted(&stack, "drop_icmp_unverified", 1);
	vbn_ip_parse("10.99.0.1", &other.ip);
	assert_int_equal(vbn_udp_connect(udp, &other), -EHOSTUNREACH);
	vbn_udp_close(udp);
	stack_close(&stack);
}

/* ---- fragments ---- */

/* An echo request in fragments of `step` bytes, in an order of its own; all that is sent is put together. */
static void send_fragments(
	const char *from, const char *to, size_t n, uint32_t step, uint32_t order)
{
	static struct frame whole, piece;
	bool v6 = strchr(from, ':') != NULL;
	uint32_t header = ETH + (v6 ? IP6 : IP4), total, n_pieces;

	frame_echo(&whole, from, to, 1, n);
	total = whole.len - header;
	n_pieces = (total + step - 1) / step;
	for (uint32_t i = 0; i < n_pieces; i++) {
		uint32_t k = (i * order + order / 2) % n_pieces, at = k * step;
		uint32_t len = total - at < step ? total - at : step;
		bool more = at + len < total;

		if (v6) {
			uint8_t payload[FRAME] = {58, 0, 0, 0, 0, 0, 0, 77};

			put16(payload + 2, (uint16_t)(at | more));
			memcpy(payload + 8, whole.bytes + header + at, len);
			frame_ip(&piece,
				&(struct ip_fields){.from = from, .to = to, .protocol = 44},
				payload, len + 8);
		} else {
			frame_ip(&piece,
				&(struct ip_fields){.from = from,
					.to = to,
					.protocol = 1,
					.id = 77,
					.fragment = (uint16_t)(at / 8 | (more ? 0x2000 : 0))},
				whole.bytes + header + at, len);
		}
		stack_input(&stack, piece.bytes, piece.len);
	}
}

static size_t put_together(bool v6, uint8_t *datagram)
{
	uint32_t header = ETH + (v6 ? IP6 : IP4);
	size_t total = 0;

	for (uint32_t i = 0; i < stack.n_sent; i++) {
		const struct sent *sent = &stack.sent[i];
		const uint8_t *at = sent->bytes + header;
		uint32_t offset = 0, len = sent->len - header;

		if (!v6)
			offset = (get16(sent->bytes + ETH + 6) & 0x1fffu) * 8;
		if (v6 && sent->bytes[ETH + 6] == 44) {
			offset = get16(at + 2) & ~7u;
			at += 8;
			len -= 8;
		}
		memcpy(datagram + offset, at, len);
		total += len;
	}
	return total;
}

static void echo_of(const char *from, const char *to, size_t n, uint32_t step, uint32_t order)
{
	static uint8_t got[66000];
	static struct frame whole;
	bool v6 = strchr(from, ':') != NULL;
	uint32_t header = ETH + (v6 ? IP6 : IP4);

	stack_clear(&stack);
	memset(got, 0, sizeof(got));
	if (n + 8 > step)
		send_fragments(from, to, n, step, order);
	frame_echo(&whole, from, to, 1, n);
	if (n + 8 <= step)
		stack_input(&stack, whole.bytes, whole.len);
	assert_int_equal(put_together(v6, got), n + 8);
	assert_int_equal(got[0], v6 ? 129 : 0);
	assert_memory_equal(got + 4, whole.bytes + header + 4, n + 4);
	if (v6)
		assert_int_equal(frame_sum(from, to, 58, got, n + 8), 0xffff);
}

static void test_ping_of_all_sizes(void **arg)
{
	static const size_t sizes[] = {0, 1, 8, 56, 1471, 1472, 1473, 2953, 8192, 65000, 65507};

	(void)arg;
	for (uint32_t mtu = 576; mtu <= 1500; mtu += 924) {
		stack_open(&stack, NULL, mtu);
		stack_know(&stack, PEER4);
		if (mtu >= 1280)
			stack_know(&stack, PEER6);
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
			for (uint32_t order = 1; order < 12; order += 10) {
				echo_of(PEER4, OUR4, sizes[i], (mtu - IP4) & ~7u,
					order == 1 ? 1 : 1);
				if (mtu >= 1280)
					echo_of(PEER6, OUR6, sizes[i], (mtu - IP6 - 8) & ~7u, 1);
			}
		/* The last one first, and every other one. */
		echo_of(PEER4, OUR4, 5 * 552 - 8, 552, 4);
		echo_of(PEER4, OUR4, 7 * 552 - 10, 552, 3);
		stack_check(&stack);
		assert_int_equal(vbn_pool_available(stack.pool), POOL);
		stack_close(&stack);
	}
}

static void piece4(uint16_t id, uint32_t offset, bool more, size_t n)
{
	static uint8_t payload[FRAME];

	frame_ip(&frame,
		&(struct ip_fields){.from = PEER4,
			.to = OUR4,
			.protocol = 17,
			.id = id,
			.fragment = (uint16_t)(offset / 8 | (more ? 0x2000 : 0))},
		payload, n);
	stack_input(&stack, frame.bytes, frame.len);
}

static void test_hostile_fragments(void **arg)
{
	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.max_datagrams = 8, .max_fragments = 64}, 1500);
	stack_know(&stack, PEER4);
	/* Overlapping: the datagram is gone with all that comes of it. */
	piece4(1, 0, true, 64);
	piece4(1, 56, true, 64);
	piece4(1, 120, false, 64);
	assert_counted(&stack, "drop_fragment_overlap", 3);
	/* The same one again is dropped, no more. */
	piece4(2, 0, true, 64);
	piece4(2, 0, true, 64);
	assert_counted(&stack, "drop_fragment_duplicate", 1);
	/* Behind the end, another end, one that leaves no length, none at all, too far. */
	piece4(3, 64, false, 8);
	piece4(3, 128, true, 64);
	piece4(4, 64, false, 8);
	piece4(4, 128, false, 8);
	piece4(5, 0, true, 63);
	piece4(5, 8, true, 0);
	piece4(5, 65528, true, 64);
	assert_counted(&stack, "drop_fragment", 3);
	assert_counted(&stack, "drop_fragment_overlap", 7);
	stack_check(&stack);
	/* Floods: of datagrams, and of pieces of one. */
	for (int i = 0; i < 5000; i++)
		piece4((uint16_t)(100 + i), 0, true, 64);
	assert_true(vbn_pool_available(stack.pool) >= POOL - 8);
	for (int i = 0; i < 5000; i++)
		piece4(9999, (uint32_t)(8 * i), true, 8);
	assert_true(vbn_pool_available(stack.pool) >= POOL - 64);
	stack_check(&stack);
	/* Time: all of it goes, and whoever sent a first piece is told. */
	stack_clear(&stack);
	stack_pass(&stack, 16000);
	assert_int_equal(vbn_pool_available(stack.pool), POOL);
	assert_true(stack_counter(&stack, "drop_fragment_time") > 0);
	assert_int_equal(stack_sent(&stack, 0x0800, 1, 0)->bytes[ETH + IP4], 11);
	stack_close(&stack);
}

static void test_udp_in_fragments(void **arg)
{
	static uint8_t got[66000];
	struct vbn_udp_address to = {.port = 9};
	struct vbn_udp *udp;
	struct vbn_buf *bufs[40];

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	udp = open_port(7, echo);
	vbn_ip_parse(PEER4, &to.ip);
	/* A chain of 40 bufs, each of an odd length. */
	assert_int_equal(vbn_buf_alloc(stack.pool, bufs, 40), 40);
	for (int i = 0; i < 40; i++) {
		memset(bufs[i]->data, i, 1637);
		bufs[i]->len = 1637;
		if (i)
			vbn_buf_append(bufs[0], bufs[i]);
	}
	assert_int_equal(vbn_udp_send(udp, &to, bufs, 1), 1);
	vbn_net_flush(stack.end);
	assert_int_equal(put_together(false, got), 8 + 40 * 1637);
	assert_int_equal(frame_sum(OUR4, PEER4, 17, got, 8 + 40 * 1637), 0xffff);
	for (int i = 0; i < 40; i++)
		assert_int_equal(got[8 + i * 1637 + 1000], i);
	vbn_udp_close(udp);
	stack_close(&stack);
}

/* ---- forwarding ---- */

static void test_forwarding(void **arg)
{
	uint8_t data[1472] = {0};
	const struct sent *sent;

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.forward = true}, 1500);
	stack_know(&stack, PEER4);
	stack_know(&stack, PEER6);
	frame_udp(&frame, OTHER4, FAR4, 1, 2, data, 100);
	memcpy(frame.bytes, "\2\0\0\0\1\2", 6);
	stack_input_second(&stack, frame.bytes, frame.len);
	sent = stack_sent(&stack, 0x0800, 17, 0);
	assert_non_null(sent);
	assert_int_equal(sent->link, 0);
	assert_memory_equal(sent->bytes, peer_mac, 6);
	assert_int_equal(sent->bytes[ETH + 8], 63);
	frame_udp(&frame, "fd01::7", PEER6, 1, 2, data, 100);
	memcpy(frame.bytes, "\2\0\0\0\1\2", 6);
	stack_input_second(&stack, frame.bytes, frame.len);
	assert_int_equal(stack_sent(&stack, 0x86dd, 17, 0)->bytes[ETH + 7], 63);
	assert_counted(&stack, "forwarded", 2);
	/* The last hop, no route, no MAC of ours. */
	stack_clear(&stack);
	frame_ip(&frame, &(struct ip_fields){.from = PEER4, .to = OTHER4, .protocol = 17, .ttl = 1},
		data, 20);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack_sent(&stack, 0x0800, 1, 0)->bytes[ETH + IP4], 11);
	frame_ip(&frame, &(struct ip_fields){.from = PEER4, .to = "172.16.0.1", .protocol = 17},
		data, 20);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(get16(stack_sent(&stack, 0x0800, 1, 1)->bytes + ETH + IP4), 0x300);
	frame_ip(&frame,
		&(struct ip_fields){.from = PEER6, .to = "fd01::9", .protocol = 17, .ttl = 1}, data,
		20);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack_sent(&stack, 0x86dd, 58, 0)->bytes[ETH + IP6], 3);
	assert_counted(&stack, "drop_ttl", 2);
	assert_counted(&stack, "drop_no_route", 1);
	stack_close(&stack);
}

static void test_forwarding_of_what_is_too_big(void **arg)
{
	uint8_t data[1480] = {0};
	struct vbn_net_route route;
	const struct sent *sent;

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.forward = true}, 1500);
	stack_know(&stack, PEER4);
	stack_know(&stack, PEER6);
	assert_int_equal(vbn_net_route_parse(stack.net, "10.7.0.0/16 via " PEER4, &route), 0);
	route.mtu = 600;
	assert_int_equal(vbn_net_route_add(stack.net, &route), 0);
	assert_int_equal(vbn_net_route_parse(stack.net, "fd07::/16 via " PEER6, &route), 0);
	route.mtu = 1280;
	assert_int_equal(vbn_net_route_add(stack.net, &route), 0);
	frame_ip(&frame,
		&(struct ip_fields){
			.from = PEER4, .to = "10.7.0.1", .protocol = 17, .fragment = 0x4000},
		data, 1480);
	stack_input(&stack, frame.bytes, frame.len);
	sent = stack_sent(&stack, 0x0800, 1, 0);
	assert_int_equal(get16(sent->bytes + ETH + IP4), 0x304);
	assert_int_equal(get16(sent->bytes + ETH + IP4 + 6), 600);
	frame_ip(&frame, &(struct ip_fields){.from = PEER6, .to = "fd07::1", .protocol = 17}, data,
		1400);
	stack_input(&stack, frame.bytes, frame.len);
	sent = stack_sent(&stack, 0x86dd, 58, 0);
	assert_int_equal(sent->bytes[ETH + IP6], 2);
	assert_int_equal(get32(sent->bytes + ETH + IP6 + 4), 1280);
	/* May be cut: three pieces, with one hop less. */
	stack_clear(&stack);
	frame_ip(&frame,
		&(struct ip_fields){.from = PEER4, .to = "10.7.0.1", .protocol = 17, .id = 5}, data,
		1480);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 3);
	for (uint32_t i = 0; i < 3; i++) {
		sent = stack_sent(&stack, 0x0800, 17, i);
		assert_int_equal(get16(sent->bytes + ETH + 4), 5);
		assert_int_equal(get16(sent->bytes + ETH + 6), i * 576 / 8 + (i < 2 ? 0x2000 : 0));
		assert_int_equal(sent->bytes[ETH + 8], 63);
	}
	assert_counted(&stack, "drop_too_big", 2);
	stack_close(&stack);
}

/* A router says that the path is narrow: believed about what was sent, and about nothing else. */
static void test_path_mtu(void **arg)
{
	struct vbn_udp *udp;
	struct vbn_ip far;
	uint8_t message[8 + 28] = {3, 4};

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	udp = open_port(1000, NULL);
	vbn_ip_parse(FAR4, &far);
	assert_int_equal(send_to(udp, FAR4, 9, 1472), 1);
	assert_int_equal(stack.n_sent, 1);
	memcpy(message + 8, stack.sent[0].bytes + ETH, 28);
	put16(message + 6, 1000);
	for (int i = 0; i < 3; i++) {
		uint32_t sum = 0;

		/* Of another port, of an address that is not ours, and at last of what was sent. */
		memcpy(message + 8, stack.sent[0].bytes + ETH, 28);
		message[8 + IP4 + 1] ^= i == 0;
		message[8 + 15] ^= i == 1;
		put16(message + 2, 0);
		for (size_t k = 0; k < sizeof(message); k += 2)
			sum += get16(message + k);
		sum = (sum & 0xffff) + (sum >> 16);
		put16(message + 2, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
		assert_int_equal(vbn_net_path_mtu(stack.net, &far), 1500);
		frame_ip(&frame, &(struct ip_fields){.from = PEER4, .to = OUR4, .protocol = 1},
			message, sizeof(message));
		stack_input(&stack, frame.bytes, frame.len);
	}
	assert_counted(&stack, "drop_icmp_unverified", 2);
	assert_counted(&stack, "path_mtu_lowered", 1);
	assert_int_equal(vbn_net_path_mtu(stack.net, &far), 1000);
	stack_clear(&stack);
	assert_int_equal(send_to(udp, FAR4, 9, 1472), 1);
	assert_int_equal(stack.n_sent, 2);
	/* Ten minutes later it may have become wider. */
	stack_pass(&stack, 601000);
	assert_int_equal(vbn_net_path_mtu(stack.net, &far), 1500);
	vbn_udp_close(udp);
	stack_close(&stack);
}

/* ---- what is refused ---- */

static void test_options(void **arg)
{
	static const uint8_t record_route[8] = {7, 7, 4, 0, 0, 0, 0, 0},
			     loose[8] = {131, 7, 4, 10, 0, 0, 9, 0},
			     strict[8] = {1, 137, 7, 4, 10, 0, 0, 9}, cut[4] = {7, 7, 4, 0},
			     none[4] = {7, 0, 0, 0};
	static const struct {
		const uint8_t *options;
		uint8_t n;
		const char *counter;
	} cases[] = {
		{record_route, 8, "delivered"},
		{loose, 8, "drop_source_route"},
		{strict, 8, "drop_source_route"},
		{cut, 4, "drop_options"},
		{none, 4, "drop_options"},
	};
	struct vbn_udp *udp;
	static const uint8_t datagram[8] = {0, 1, 0, 7, 0, 8, 0, 0};

	(void)arg;
	stack_open(&stack, NULL, 1500);
	udp = open_port(7, echo);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t before = stack_counter(&stack, cases[i].counter);

		frame_ip(&frame,
			&(struct ip_fields){.from = PEER4,
				.to = OUR4,
				.protocol = 17,
				.options = cases[i].options,
				.n_options = cases[i].n},
			datagram, 8);
		stack_input(&stack, frame.bytes, frame.len);
		assert_counted(&stack, cases[i].counter, before + 1);
	}
	vbn_udp_close(udp);
	stack_close(&stack);
}

static void test_no_errors_about_errors(void **arg)
{
	uint8_t message[64] = {0};

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	/* Groups, broadcast, errors, later fragments, nobody's address. */
	frame_udp(&frame, PEER4, "224.0.0.1", 1, 999, message, 10);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, PEER4, "255.255.255.255", 1, 999, message, 10);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, PEER4, "10.0.0.255", 1, 999, message, 10);
	memset(frame.bytes, 255, 6);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, PEER6, "ff02::1", 1, 999, message, 10);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, "255.255.255.255", OUR4, 1, 999, message, 10);
	stack_input(&stack, frame.bytes, frame.len);
	frame_udp(&frame, "127.0.0.1", OUR4, 1, 999, message, 10);
	stack_input(&stack, frame.bytes, frame.len);
	/* A unicast address in a frame to all. */
	frame_udp(&frame, PEER4, OUR4, 1, 999, message, 10);
	memset(frame.bytes, 255, 6);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(stack.n_sent, 0);
	assert_counted(&stack, "icmp_sent", 0);
	/* As many in a second as were allowed. */
	for (int i = 0; i < 1000; i++) {
		frame_udp(&frame, PEER4, OUR4, 1, 999, message, 10);
		stack_input(&stack, frame.bytes, frame.len);
	}
	assert_counted(&stack, "icmp_sent", 100);
	assert_counted(&stack, "icmp_limited", 900);
	stack_close(&stack);
}

/* ---- groups ---- */

static void test_groups(void **arg)
{
	struct vbn_udp *one, *two;
	struct vbn_ip group4, group6;
	struct vbn_buf *bufs[4];
	const struct sent *sent;
	struct vbn_udp_address bind = {.port = 0};

	(void)arg;
	(void)bind;
	stack_open(&stack, NULL, 1500);
	one = open_port(5353, NULL);
	vbn_ip_parse("239.1.2.3", &group4);
	vbn_ip_parse("ff05::123", &group6);
	assert_int_equal(vbn_udp_open(stack.end,
				 &(struct vbn_udp_conf){
					 .local = {.port = 5353, .interface = 0, .ip = group4}},
				 &two),
		0);
	frame_udp(&frame, PEER4, "239.1.2.3", 1, 5353, "x", 1);
	stack_input(&stack, frame.bytes, frame.len);
	assert_counted(&stack, "drop_group", 1);
	assert_int_equal(vbn_udp_join(one, &group4, 0), 0);
	assert_int_equal(vbn_udp_join(one, &group4, 1), -EADDRINUSE);
	assert_int_equal(vbn_udp_join(two, &group4, 1), 0);
	assert_int_equal(vbn_udp_join(one, &group6, 0), 0);
	stack_pass(&stack, 10);
	sent = stack_sent(&stack, 0x0800, 2, 0);
	assert_non_null(sent);
	assert_memory_equal(sent->bytes, "\1\0\x5e\1\2\3", 6);
	assert_int_equal(sent->bytes[ETH + 8], 1);
	assert_memory_equal(sent->bytes + ETH + IP4, "\x94\4\0\0\x16\0", 6);
	assert_memory_equal(sent->bytes + ETH + 28, "\xef\1\2\3", 4);
	sent = stack_sent(&stack, 0x86dd, 0, 0);
	assert_non_null(sent);
	assert_int_equal(sent->bytes[ETH + IP6 + 8], 131);
	assert_memory_equal(sent->bytes + ETH + IP6 + 16, &group6, 16);
	stack_input(&stack, frame.bytes, frame.len);
	assert_int_equal(vbn_udp_recv(one, bufs, 4), 1);
	assert_int_equal(vbn_udp_recv(two, bufs + 1, 4), 1);
	vbn_buf_free(bufs, 2);
	/* Asked, it says so again; the last one leaving says that, too. */
	stack_pass(&stack, 20000);
	stack_clear(&stack);
	frame_ip(&frame,
		&(struct ip_fields){.from = PEER4, .to = "224.0.0.1", .protocol = 2, .ttl = 1},
		"\x11\x64\xee\x9b\0\0\0\0", 8);
	stack_input(&stack, frame.bytes, frame.len);
	stack_pass(&stack, 10100);
	assert_non_null(stack_sent(&stack, 0x0800, 2, 0));
	vbn_udp_close(two);
	assert_int_equal(vbn_udp_leave(one, &group4, 0), 0);
	assert_int_equal(vbn_udp_leave(one, &group4, 0), -EADDRNOTAVAIL);
	stack_pass(&stack, 10);
	sent = stack_sent(&stack, 0x0800, 2, 1);
	assert_non_null(sent);
	assert_memory_equal(sent->bytes + ETH + IP4, "\x94\4\0\0\x17\0", 6);
	vbn_udp_close(one);
	stack_close(&stack);
}

/* ---- routes ---- */

static void test_longest_prefix(void **arg)
{
	enum { ROUTES = 300 };
	static struct vbn_net_route routes[ROUTES];
	uint32_t seed = 1, n = 0;

	(void)arg;
	stack_open(&stack, &(struct vbn_net_conf){.forward = true, .max_routes = ROUTES + 1}, 1500);
	for (uint32_t i = 0; i < ROUTES; i++) {
		struct vbn_net_route *route = &routes[n];
		bool v6 = i & 1;

		*route = (struct vbn_net_route){.mtu = 200 + i, .interface = i / 2 % 2};
		vbn_ip_parse(v6 ? "2001:db8::" : "20.0.0.0", &route->prefix);
		for (int k = v6 ? 4 : 13; k < 16; k++) {
			seed = seed * 1103515245 + 12345;
			route->prefix.bytes[k] = (uint8_t)(seed >> 16 & 3);
		}
		route->length = v6 ? 32 + seed % 97 : 8 + seed % 25;
		n += !vbn_net_route_add(stack.net, route);
	}
	assert_true(n > 100);
	for (uint32_t i = 0; i < 20000; i++) {
		const struct vbn_net_route *best = NULL;
		struct vbn_ip ip = routes[i % n].prefix;

		for (int k = vbn_ip_is_v4(&ip) ? 13 : 4; k < 16; k++) {
			seed = seed * 1103515245 + 12345;
			if (seed & 1 << 20)
				ip.bytes[k] = (uint8_t)(seed >> 16 & 3);
		}
		for (uint32_t r = 0; r < n; r++) {
			const struct vbn_net_route *route = &routes[r];
			uint32_t bits = vbn_ip_is_v4(&route->prefix) ? 96 + route->length
								     : route->length,
				 same = 0;

			while (same < 128 &&
				!((ip.bytes[same / 8] ^ route->prefix.bytes[same / 8]) &
					0x80 >> same % 8))
				same++;
			if (same >= bits && (!best || route->length > best->length))
				best = route;
		}
		assert_int_equal(vbn_net_path_mtu(stack.net, &ip), best ? best->mtu : 0);
		/* Half of them go meanwhile. */
		if (i == 10000)
			for (uint32_t r = 0; r < n; r++, n--)
				if (vbn_net_route_remove(stack.net, &routes[r]) == 0)
					routes[r] = routes[n - 1];
	}
	stack_close(&stack);
}

static void test_what_is_refused(void **arg)
{
	struct vbn_net *net;
	struct vbn_net_interface_conf iface = {.mac = {2, 0, 0, 0, 0, 1}, .addresses = "10.0.0.1"};
	static const struct {
		const char *addresses, *why;
	} wrong[] = {
		{"10.0.0.255/24", "of a /24 it stands for the subnet"},
		{"10.0.0.0/24", "of a /24 it stands for the subnet"},
		{"10.0.0.1/24,10.0.0.1/24", "given 10.0.0.1 twice"},
		{"127.0.0.1/8", "no address that a host can have"},
	};
	struct vbn_net_route route;
	struct vbn_net_end *end;

	(void)arg;
	unit_catch_log();
	assert_int_equal(
		vbn_net_create(&(struct vbn_net_conf){.interfaces = &iface}, &net), -EINVAL);
	assert_int_equal(
		vbn_net_create(
			&(struct vbn_net_conf){.interfaces = &iface, .n_interfaces = 1}, &net),
		-EINVAL);
	assert_logged("10.0.0.1 is no ADDRESS/LENGTH");
	iface.addresses = "fd00::1/64";
	iface.mtu = 576;
	assert_int_equal(
		vbn_net_create(
			&(struct vbn_net_conf){.interfaces = &iface, .n_interfaces = 1}, &net),
		-EINVAL);
	assert_logged("IPv6 needs an MTU of 1280");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		iface = (struct vbn_net_interface_conf){
			.mac = {2}, .addresses = wrong[i].addresses};
		assert_int_equal(vbn_net_create(&(struct vbn_net_conf){.interfaces = &iface,
							.n_interfaces = 1},
					 &net),
			-EINVAL);
		assert_logged(wrong[i].why);
	}
	iface = (struct vbn_net_interface_conf){.mac = {1}};
	assert_int_equal(
		vbn_net_create(
			&(struct vbn_net_conf){.interfaces = &iface, .n_interfaces = 1}, &net),
		-EINVAL);
	iface = (struct vbn_net_interface_conf){.mac = {2}, .vlan = VBN_NUM(4095)};
	assert_int_equal(
		vbn_net_create(
			&(struct vbn_net_conf){.interfaces = &iface, .n_interfaces = 1}, &net),
		-EINVAL);
	stack_open(&stack, NULL, 1500);
	unit_catch_log(); /* here, where the fixture has its own */
	assert_int_equal(
		vbn_net_attach(stack.net,
			&(struct vbn_net_end_conf){.link = VBN_NET_LINKS - 1, .pool = stack.pool},
			&end),
		-EINVAL);
	assert_logged("no interface is on link");
	assert_int_equal(vbn_net_route_parse(stack.net, "banana", &route), -EINVAL);
	assert_int_equal(vbn_net_route_parse(stack.net, "10.5.0.0/33 via " PEER4, &route), -EINVAL);
	assert_int_equal(
		vbn_net_route_parse(stack.net, "10.5.0.0/16 via 99.0.0.1", &route), -EINVAL);
	assert_int_equal(vbn_net_route_parse(stack.net, "10.5.0.0/16 dev third", &route), -EINVAL);
	assert_int_equal(vbn_net_route_parse(stack.net, "default via " PEER6, &route), 0);
	assert_int_equal(vbn_net_route_add(stack.net, &route), 0);
	assert_int_equal(vbn_net_route_add(stack.net, &route), -EEXIST);
	assert_int_equal(vbn_net_route_remove(stack.net, &route), 0);
	assert_int_equal(vbn_net_route_remove(stack.net, &route), -ENOENT);
	stack_close(&stack);
}

static void test_full_queue(void **arg)
{
	struct vbn_udp *udp;
	int taken = 0;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	stack_know(&stack, PEER4);
	udp = open_port(1, NULL);
	stack.deaf = true;
	while (send_to(udp, PEER4, 2, 20) == 1)
		taken++;
	assert_true(taken > 100 && taken <= 256);
	/* Answers have no sender to keep them. */
	for (int i = 0; i < 10; i++) {
		frame_echo(&frame, PEER4, OUR4, 1, 10);
		stack_input(&stack, frame.bytes, frame.len);
	}
	assert_true(stack_counter(&stack, "drop_tx_full") >= 8);
	stack_check(&stack);
	stack.deaf = false;
	stack_clear(&stack);
	assert_int_equal(send_to(udp, PEER4, 2, 20), 1);
	vbn_udp_close(udp);
	stack_close(&stack);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arp_request_is_answered),
		cmocka_unit_test(test_solicitation_is_answered),
		cmocka_unit_test(test_packets_wait_for_a_neighbour),
		cmocka_unit_test(test_nobody_answers),
		cmocka_unit_test(test_mac_changes),
		cmocka_unit_test(test_spoofed_arp),
		cmocka_unit_test(test_addresses_are_probed),
		cmocka_unit_test(test_flood_of_neighbours),
		cmocka_unit_test(test_lives_begin_anew),
		cmocka_unit_test(test_udp_echo),
		cmocka_unit_test(test_sockets),
		cmocka_unit_test(test_connection_is_refused),
		cmocka_unit_test(test_ping_of_all_sizes),
		cmocka_unit_test(test_hostile_fragments),
		cmocka_unit_test(test_udp_in_fragments),
		cmocka_unit_test(test_forwarding),
		cmocka_unit_test(test_forwarding_of_what_is_too_big),
		cmocka_unit_test(test_path_mtu),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_no_errors_about_errors),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_longest_prefix),
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_full_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
