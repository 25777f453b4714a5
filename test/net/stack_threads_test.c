/* stack_threads_test.c - a net of several workers: frames come to the wrong one, all learn at once, workers come and
 * go; whatever came was delivered or dropped by name
 */

#include "stack_fixture.h"

#include "net/seat.h"

#include <sched.h>

enum {
	WORKERS = 3,
	REASSEMBLY_MS = 300,
	BUFS = 2048,
	AT_ONCE = 16,
	OWN_PORT = 7000,
	SHARED_PORT = 80,
	SLOW_PORT = 7100,
	GROUP_PORT = 5000
};
#define GROUP "239.1.2.3"

struct host {
	uint32_t index;
	pthread_t thread;
	struct vbn_worker *worker;
	struct vbn_pool *pool;
	struct vbn_net_end *end;
	struct vbn_udp *slow; /* nobody takes what comes */
	uint32_t random;
	uint64_t called, bad,
		strangers; /* datagrams; of them with other contents; on another thread */
};

static struct vbn_net *net;
static struct host hosts[WORKERS];
static void (*act)(struct host *host);
static pthread_barrier_t all;
static uint32_t n_home, n_passed, go_on;

#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

/* On any thread. */
static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "net_stack_threads_test: does not hold: %s\n", what);
	abort();
}

static void must_equal(uint64_t a, uint64_t b, const char *what)
{
	if (a == b)
		return;
	fprintf(stderr, "%llu and %llu: ", (unsigned long long)a, (unsigned long long)b);
	must(false, what);
}

static void must_soon(const uint32_t *word, uint32_t value, const char *what)
{
	const uint64_t deadline = clock_ns() + PATIENCE_NS;

	while (load_acquire(word) < value) {
		must(clock_ns() < deadline, what);
		sched_yield();
	}
}

/* ---- frames: made before, since what makes them is not for several threads ---- */

enum { MOST_FRAMES = 512, PIECES = 4, PIECE = 24, DATAGRAMS = 24 };
static struct made {
	uint32_t len;
	uint8_t bytes[200];
} made[MOST_FRAMES];
static uint32_t n_made;

static void keep(const struct frame *frame)
{
	assert_true(n_made < MOST_FRAMES && frame->len <= sizeof(made[0].bytes));
	made[n_made].len = frame->len;
	memcpy(made[n_made++].bytes, frame->bytes, frame->len);
}

/* Its payload is its number, again and again. */
static void make_in_pieces(struct frame *frame, uint16_t number, uint16_t port)
{
	uint8_t datagram[PIECES * PIECE] = {0x20, 0, 0, 0, 0, sizeof(datagram)};

	put16(datagram + 2, port);
	memset(datagram + UDP, number, sizeof(datagram) - UDP);
	put16(datagram + 6, (uint16_t)~frame_sum(PEER4, OUR4, 17, datagram, sizeof(datagram)));
	for (uint16_t i = 0; i < PIECES; i++) {
		frame_ip(frame,
			&(struct ip_fields){.from = PEER4,
				.to = OUR4,
				.protocol = 17,
				.id = number,
				.fragment =
					(uint16_t)(i * PIECE / 8 | (i < PIECES - 1 ? 0x2000 : 0))},
			datagram + i * PIECE, PIECE);
		keep(frame);
	}
}

static void make_stations(struct frame *frame)
{
	for (int i = 0; i < 40; i++) {
		const uint8_t mac[6] = {2, 0, 0, 0, 9, (uint8_t)i};
		char ip[32];

		snprintf(ip, sizeof(ip), "10.0.0.%d", 50 + i);
		frame_arp(frame, 1, mac, ip, (const uint8_t[6]){0}, OUR4);
		memcpy(frame->bytes + 6, mac, 6);
		keep(frame);
		snprintf(ip, sizeof(ip), "fd00::%d", 50 + i);
		frame_nd(frame, 135, ip, OUR6, OUR6, 0, mac);
		keep(frame);
	}
}

/* An error about what the own socket of a worker has sent. */
static void make_error(struct frame *frame, uint16_t port)
{
	uint8_t message[8 + 28] = {3, 3};
	uint32_t sum = 0;

	memcpy(message + 8, "\x45\0\0\x1c\0\1\0\0\x40\x11\0\0\x0a\0\0\2\x0a\0\0\1", 20);
	put16(message + 28, port);
	put16(message + 30, 9);
	message[33] = 8;
	for (size_t i = 0; i < sizeof(message); i += 2)
		sum += get16(message + i);
	put16(message + 2, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
	frame_ip(frame, &(struct ip_fields){.from = PEER4, .to = OUR4, .protocol = 1}, message,
		sizeof(message));
	keep(frame);
}

static void make_frames(void)
{
	static struct frame frame;

	n_made = 0;
	for (uint16_t i = 0; i < WORKERS; i++) {
		for (uint16_t k = 0; k < 8; k++) {
			frame_udp(&frame, PEER4, OUR4, (uint16_t)(4000 + k),
				(uint16_t)(OWN_PORT + i), "aaaa", 4);
			keep(&frame);
			frame_udp(&frame, PEER6, OUR6, (uint16_t)(4000 + k),
				(uint16_t)(OWN_PORT + i), "bbbb", 4);
			keep(&frame);
		}
		make_error(&frame, (uint16_t)(OWN_PORT + i));
		frame_udp(&frame, PEER4, OUR4, 4000, SHARED_PORT, "cccc", 4);
		keep(&frame);
		frame_udp(&frame, PEER4, GROUP, 4000, GROUP_PORT, "dddd", 4);
		keep(&frame);
		frame_udp(&frame, PEER4, OUR4, 4000, SLOW_PORT, "eeee", 4);
		keep(&frame);
		frame_udp(&frame, PEER4, OUR4, 4000, 999, "nobody", 6);
		keep(&frame);
		frame_udp(&frame, PEER4, "10.1.0.99", 1, 2, "go on", 5);
		keep(&frame);
		frame_echo(&frame, PEER4, OUR4, i, 30);
		keep(&frame);
		frame.bytes[ETH] = 0x12;
		keep(&frame);
	}
	for (uint16_t i = 1; i <= DATAGRAMS; i++)
		make_in_pieces(&frame, i, (uint16_t)(OWN_PORT + i % WORKERS));
	make_stations(&frame);
}

/* ---- workers ---- */

static int output(struct vbn_buf **bufs, int n, void *arg)
{
	(void)arg;
	vbn_buf_free(bufs, n);
	return n;
}

/* Whole, and each byte as the first. */
static bool is_right(const struct vbn_buf *buf)
{
	const uint8_t first = buf->data[0];

	for (;; buf = buf->next) {
		for (uint32_t i = 0; i < buf->len; i++)
			if (buf->data[i] != first)
				return false;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return true;
	}
}

static void count(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	struct host *host = arg;

	(void)udp;
	for (int i = 0; i < n; i++)
		host->bad += !is_right(bufs[i]);
	host->called += (uint64_t)n;
	host->strangers += vbn_worker_self() != host->worker;
	vbn_buf_free(bufs, n);
}

static struct vbn_udp *open_port(struct host *host, uint32_t port, bool polled)
{
	struct vbn_udp_conf conf = {.local.port = (uint16_t)port,
		.recv = polled ? NULL : count,
		.arg = host,
		.depth = 4};
	struct vbn_udp *udp;

	must(!vbn_udp_open(host->end, &conf, &udp), "a socket can be opened");
	return udp;
}

static void sit_down(struct host *host)
{
	struct vbn_net_end_conf conf = {
		.worker = host->worker, .output = output, .pool = host->pool};
	struct vbn_ip group;

	must(!vbn_net_attach(net, &conf, &host->end), "a worker can attach");
	open_port(host, OWN_PORT + host->index, false);
	open_port(host, SHARED_PORT, false);
	host->slow = host->index ? NULL : open_port(host, SLOW_PORT, true);
	must(!vbn_ip_parse(GROUP, &group) &&
			!vbn_udp_join(open_port(host, GROUP_PORT, false), &group, 0),
		"a group can be joined");
}

static void input(struct host *host, const struct made *const *frames, int n)
{
	struct vbn_buf *bufs[AT_ONCE];

	if (vbn_buf_alloc(host->pool, bufs, n) != n)
		n = 0;
	for (int i = 0; i < n; i++) {
		memcpy(bufs[i]->data, frames[i]->bytes, frames[i]->len);
		bufs[i]->len = frames[i]->len;
		*vbn_buf_packet(bufs[i]) = (struct vbn_packet){.flags = 0};
	}
	vbn_net_input(host->end, bufs, n);
	vbn_net_flush(host->end);
	vbn_worker_poll(host->worker);
}

/* Any of them in any order. */
static void input_some(struct host *host)
{
	const struct made *frames[AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++) {
		host->random = host->random * 1103515245 + 12345;
		frames[i] = &made[(host->random >> 8) % n_made];
	}
	input(host, frames, AT_ONCE);
}

static void meet(struct host *host)
{
	vbn_worker_offline(host->worker);
	pthread_barrier_wait(&all);
	vbn_worker_online(host->worker);
}

static void *run(void *arg)
{
	struct host *host = arg;
	const uint64_t deadline = clock_ns() + 2 * PATIENCE_NS;
	bool home = false;

	must(!vbn_worker_attach(&(struct vbn_worker_conf){0}, &host->worker), "a worker begins");
	must(!vbn_pool_create(
		     &(struct vbn_pool_conf){
			     .n_bufs = BUFS, .data_size = 512, .headroom = VBN_NUM(128)},
		     &host->pool),
		"there is a pool");
	sit_down(host);
	meet(host);
	act(host);
	meet(host);
	vbn_net_detach(host->end);
	/* Each one's bufs are with the others. */
	while (load_acquire(&n_home) < WORKERS) {
		vbn_worker_poll(host->worker);
		if (!home && vbn_pool_available(host->pool) == BUFS) {
			home = true;
			__atomic_fetch_add(&n_home, 1, __ATOMIC_RELEASE);
		}
		must(clock_ns() < deadline, "all bufs come home");
	}
	vbn_pool_destroy(host->pool);
	vbn_worker_detach(host->worker);
	return NULL;
}

static void run_all(void (*what)(struct host *host))
{
	static const struct vbn_net_interface_conf interfaces[] = {
		{.mac = {2, 0, 0, 0, 0, 2}, .addresses = OUR4 "/24," OUR6 "/64"},
		{.link = 1, .mac = {2, 0, 0, 0, 1, 2}, .addresses = "10.1.0.2/16"},
	};
	const struct vbn_net_conf conf = {.interfaces = interfaces,
		.n_interfaces = 2,
		.forward = true,
		.probe_addresses = VBN_OFF,
		.reassembly_ms = REASSEMBLY_MS};

	unit_catch_log();
	make_frames();
	act = what;
	n_home = n_passed = go_on = 0;
	assert_int_equal(vbn_net_create(&conf, &net), 0);
	pthread_barrier_init(&all, NULL, WORKERS + 1);
	for (uint32_t i = 0; i < WORKERS; i++) {
		hosts[i] = (struct host){.index = i, .random = i * 77 + 1};
		assert_int_equal(pthread_create(&hosts[i].thread, NULL, run, &hosts[i]), 0);
	}
	pthread_barrier_wait(&all);
}

static void end_all(void)
{
	pthread_barrier_wait(&all);
	for (uint32_t i = 0; i < WORKERS; i++)
		pthread_join(hosts[i].thread, NULL);
	vbn_net_destroy(net);
	pthread_barrier_destroy(&all);
}

static uint64_t sum_of(const char *name)
{
	uint64_t sum = 0;

	for (int i = 0; i < WORKERS; i++)
		sum += vbn_net_counter(hosts[i].end, name);
	return sum;
}

/* ---- whatever comes wherever ---- */

enum { BURSTS = UNIT_SHADOW ? 400 : 3000 };

static void spray(struct host *host)
{
	int64_t received = 0, sent = 0;

	for (int i = 0; i < BURSTS; i++)
		input_some(host);
	__atomic_fetch_add(&n_passed, 1, __ATOMIC_RELEASE);
	/* Until nothing is on its way and what is in pieces has been given up. */
	while (!load_acquire(&go_on))
		input(host, NULL, 0);
	if (vbn_net_balance(host->end, &received, &sent))
		return;
	fprintf(stderr, "worker %u: %lld received and %lld sent without a fate\n", host->index,
		(long long)received, (long long)sent);
	must(false, "each worker's frames have a fate");
}

static int add_fate(const char *name, const char *help, uint64_t value, void *arg)
{
	static const char *const fates[] = {
		"delivered", "answered", "consumed", "forwarded", "merged"};

	(void)help;
	for (size_t i = 0; i < ARRAY_SIZE(fates); i++)
		if (!strcmp(name, fates[i]))
			*(uint64_t *)arg += value;
	if (!strncmp(name, "drop_", 5) && strncmp(name, "drop_tx", 7))
		*(uint64_t *)arg += value;
	return 0;
}

static uint64_t on_their_way(void)
{
	return sum_of("handed_over") + sum_of("copies_handed_over") - sum_of("taken_over");
}

/* Received is delivered, said otherwise, or dropped by name: over all workers. */
static uint64_t without_fate(void)
{
	uint64_t fates = 0;

	for (int i = 0; i < WORKERS; i++)
		vbn_net_counters(hosts[i].end, add_fate, &fates);
	return sum_of("rx_frames") + sum_of("copies_handed_over") - fates;
}

static void test_frames_at_the_wrong_worker(void **arg)
{
	uint64_t called = 0, settled = 0, udp_received, deadline;

	(void)arg;
	run_all(spray);
	must_soon(&n_passed, WORKERS, "all workers have had their frames");
	deadline = clock_ns() + PATIENCE_NS;
	while (!settled || clock_ns() < settled) {
		if (on_their_way())
			settled = 0;
		else if (!settled)
			settled = clock_ns() + 2ull * REASSEMBLY_MS * 1000 * 1000;
		must(clock_ns() < deadline, "what is on its way arrives");
		sched_yield();
	}
	/* Who has had no CPU for so long gives up what is in pieces later. */
	while (without_fate() && clock_ns() < deadline)
		sched_yield();
	must_equal(without_fate(), 0, "what was received has a fate");
	must(sum_of("handed_over") > 100, "handed_over is above 100");
	must(sum_of("copies_handed_over") > 10, "copies_handed_over is above 10");
	must(sum_of("reassembled") > 10, "reassembled is above 10");
	must(sum_of("drop_udp_full") > 10, "drop_udp_full is above 10");
	must(sum_of("icmp_received") > 10, "icmp_received is above 10");
	udp_received = sum_of("udp_received");
	store_release(&go_on, 1);
	end_all();
	for (int i = 0; i < WORKERS; i++) {
		called += hosts[i].called;
		must_equal(hosts[i].bad, 0, "datagrams are as they were sent");
		must_equal(hosts[i].strangers, 0, "callbacks are on their workers' threads");
	}
	must_equal(called, udp_received, "each datagram was delivered once");
}

/* ---- nobody waits for the lock ---- */

static uint32_t stations(void)
{
	struct vbn_neighbour all_of[256];
	int n = vbn_net_neighbours(net, all_of, 256);
	uint32_t known = 0;

	for (int i = 0; i < n; i++)
		known += all_of[i].mac[4] == 9;
	return known;
}

static void learn(struct host *host)
{
	const struct made *frames[AT_ONCE];

	must_soon(&go_on, 1, "the lock is held");
	for (uint32_t i = n_made - 80 + host->index; i < n_made; i += WORKERS) {
		frames[0] = &made[i];
		input(host, frames, 1);
	}
	/* A packet for somebody unknown waits. */
	for (uint32_t i = 0; i < n_made - 80; i++) {
		frames[0] = &made[i];
		if (!memcmp(made[i].bytes + ETH + 16, "\x0a\1\0\x63", 4))
			input(host, frames, 1);
	}
	__atomic_fetch_add(&n_passed, 1, __ATOMIC_RELEASE);
	while (load_acquire(&go_on) < 2)
		input(host, NULL, 0);
}

static void test_nobody_waits_for_the_lock(void **arg)
{
	const uint64_t deadline = clock_ns() + PATIENCE_NS;

	(void)arg;
	run_all(learn);
	pthread_mutex_lock(&net->lock);
	store_release(&go_on, 1);
	must_soon(&n_passed, WORKERS, "workers go on while somebody holds the lock");
	must(sum_of("learned_later") >= 70, "learned_later is at least 70");
	must_equal(sum_of("neighbours_made"), 0, "no neighbour is made without the lock");
	pthread_mutex_unlock(&net->lock);
	while (stations() < 80) {
		must(clock_ns() < deadline, "what was learned is known in the end");
		sched_yield();
	}
	store_release(&go_on, 2);
	end_all();
}

/* ---- coming and going ---- */

enum { TURNS = UNIT_SHADOW ? 30 : 200 };

static void come_and_go(struct host *host)
{
	for (int i = 0; i < TURNS; i++) {
		for (int k = 0; k < 4; k++)
			input_some(host);
		if (host->index == WORKERS - 1) {
			vbn_net_detach(host->end);
			vbn_worker_poll(host->worker);
			sit_down(host);
		}
	}
}

static void test_workers_come_and_go(void **arg)
{
	(void)arg;
	run_all(come_and_go);
	end_all();
}

static void test_who_is_no_worker_is_alone(void **arg)
{
	struct stack stack;
	struct vbn_worker *worker;
	struct vbn_net_end *end;

	(void)arg;
	stack_open(&stack, NULL, 1500);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), 0);
	assert_int_equal(vbn_net_attach(stack.net,
				 &(struct vbn_net_end_conf){
					 .worker = worker, .output = output, .pool = stack.pool},
				 &end),
		-EINVAL);
	assert_logged("must be the net's only one");
	stack_close(&stack);
	vbn_worker_detach(worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_at_the_wrong_worker),
		cmocka_unit_test(test_nobody_waits_for_the_lock),
		cmocka_unit_test(test_workers_come_and_go),
		cmocka_unit_test(test_who_is_no_worker_is_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
