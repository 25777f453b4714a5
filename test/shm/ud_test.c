/* ud_test.c - datagrams over shared memory, of one worker: many senders, whose turn it is, what is dropped
 * and by which name, what goes leaves nothing behind, and what a sender or a receiver that lies leads to
 *
 * What is the same with every driver is in unit/message_test.c and unit/duo_datagrams.c.
 */

#include "drv/shm/ud.h"

#include "../unit/duo.h"
#include "../unit/held.h"

enum { N_SENDERS = 20 };

static uint64_t count_of(enum shm_count which)
{
	return __atomic_load_n(&shm_port(duo.port)->counts[which], __ATOMIC_RELAXED);
}

static uint64_t drops(const struct vbn_queue *queue, const char *name)
{
	struct vbn_drop list[16];
	int n = vbn_queue_drops(queue, list, 16);

	assert_in_range(n, 1, 16);
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return list[i].count;
	unit_fail("no drop is called %s", name);
	return 0;
}

static uint64_t sent(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	assert_int_equal(stats.tx_messages, stats.tx_done);
	return stats.tx_messages;
}

static uint64_t received(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	return stats.rx_messages;
}

static int send_to(struct vbn_queue *queue, const struct vbn_peer *peer, uint64_t n, uint32_t len)
{
	struct vbn_buf *buf = duo_buf(n, len);
	int ret;

	vbn_buf_set_peer(buf, peer);
	ret = vbn_send_one(queue, buf);
	if (ret != 1)
		vbn_buf_free(&buf, 1);
	vbn_flush(queue);
	return ret;
}

/* What there is, in one look after the other. */
static int take_all(const struct vbn_queue *queue)
{
	int got = 0, n;

	do {
		n = vbn_poll(duo.worker, duo.events, DUO_EVENTS);
		for (int i = 0; i < n; i++) {
			assert_ptr_equal(duo.events[i].queue, queue);
			assert_int_equal(duo.events[i].op, VBN_OP_RECV);
			vbn_buf_free(&duo.events[i].buf, 1);
		}
		got += n;
	} while (n);
	return got;
}

/* ---- queues beside the two ---- */

static struct vbn_queue *senders[UD_INLETS + 1];
static struct vbn_peer *ways[UD_INLETS + 1];

static int make_sender(int i, const struct vbn_queue *to)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_address address;

	conf.rx_depth = 1;
	vbn_queue_address(to, &address);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &senders[i]), 0);
	assert_int_equal(vbn_queue_connect(senders[i], NULL), 0);
	return vbn_peer_create(senders[i], &address, &ways[i]);
}

static void destroy_sender(int i)
{
	vbn_queue_destroy(senders[i]);
	vbn_peer_release(ways[i]);
	senders[i] = NULL;
	ways[i] = NULL;
}

/* ---- what goes well ---- */

static void test_streams(void **state)
{
	(void)state;
	for (int kind = DUO_OWN; kind <= DUO_SRQ; kind += DUO_SRQ - DUO_OWN) {
		struct vbn_queue_conf conf = duo_conf(VBN_UD, (enum duo_kind)kind);

		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 30000);
		duo_stream(duo.b, duo.a, 500);
		assert_int_equal(sent(duo.a), 30000);
		assert_int_equal(received(duo.b), 30000);
		assert_int_equal(drops(duo.a, "tx_no_room") + drops(duo.b, "rx_no_receive"), 0);
		duo_disconnect();
	}
}

static void test_reset_at_work(void **state)
{
	(void)state;
	duo_reset_at_work(VBN_UD, DUO_OWN);
	duo_reset_at_work(VBN_UD, DUO_SRQ);
}

/* Each of them is heard, however much the others have to say; and each one's come in order. */
static void test_many_senders(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	uint64_t next[N_SENDERS] = {0}, start = clock_ns();
	int got = 0;

	(void)state;
	duo_connect(&conf);
	for (int i = 0; i < N_SENDERS; i++)
		assert_int_equal(make_sender(i, duo.b), 0);
	for (uint64_t k = 0; k < 200; k++) /* the first one has much, and before the others */
		assert_int_equal(send_to(senders[0], ways[0], k, 20), 1);
	for (uint64_t k = 0; k < 10; k++)
		for (int i = 1; i < N_SENDERS; i++)
			assert_int_equal(send_to(senders[i], ways[i], k, 20), 1);
	while (got < 200 + 10 * (N_SENDERS - 1)) {
		int n = vbn_poll(duo.worker, duo.events, DUO_EVENTS), from = 0;

		for (int k = 0; k < n; k++, got++) {
			struct vbn_buf *buf = duo.events[k].buf;

			assert_ptr_equal(duo.events[k].queue, duo.b);
			for (from = 0; buf->peer[0] != senders[from]->number; from++)
				;
			duo_check(buf->data, next[from]++, 20);
			vbn_buf_free(&buf, 1);
		}
		if (!n)
			duo_patience(start);
		if (got && got <= DUO_EVENTS)
			assert_in_range(next[0], 1, 64);
	}
	for (int i = 0; i < N_SENDERS; i++) {
		assert_int_equal(next[i], i ? 10 : 200);
		destroy_sender(i);
	}
}

/* A peer is its port's: a queue that has not asked for it itself meets it with its first datagram. */
static void test_shared_peer(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_queue *third;

	(void)state;
	duo_connect(&conf);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &third), 0);
	assert_int_equal(vbn_queue_connect(third, NULL), 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 10; i++)
			assert_int_equal(send_to(third, duo.to_b, (uint64_t)i, 30), 1);
		assert_int_equal(take_all(duo.b), round ? 0 : 10);
		vbn_queue_destroy(duo.b);
		duo.b = NULL;
		if (round)
			break;
		vbn_queue_destroy(third); /* and one that finds nobody there */
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &third), 0);
		assert_int_equal(vbn_queue_connect(third, NULL), 0);
	}
	assert_int_equal(drops(third, "tx_no_peer"), 10);
	assert_int_equal(sent(third), 10);
	vbn_queue_destroy(third);
}

/* Before the receiver is connected it may be sent to, as to any queue that has an address. */
static void test_first_may_send(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);

	(void)state;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	assert_int_equal(make_sender(0, duo.b), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(send_to(senders[0], ways[0], i, 50), 1);
	assert_int_equal(vbn_queue_connect(duo.b, NULL), 0);
	assert_int_equal(take_all(duo.b), 20);
	destroy_sender(0);
}

/* ---- what is dropped ---- */

static void test_no_room(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	const struct vbn_port_info *info = &duo.port->info;
	uint64_t n_sent = 0, got;

	(void)state;
	duo_connect(&conf);
	for (uint32_t len = 0; len <= info->mtu; len += 64 + len) {
		const uint64_t fits = info->datagram_room / (len + 16),
			       n = UD_RING / (len + 8) + 10;
		const uint64_t before = drops(duo.a, "tx_no_room");

		for (uint64_t i = 0; i < n; i++) {
			assert_int_equal(send_to(duo.a, duo.to_b, i, len), 1);
			if (i < fits) /* as many as was promised */
				assert_int_equal(drops(duo.a, "tx_no_room"), before);
		}
		n_sent += n;
		got = (uint64_t)take_all(duo.b);
		assert_true(got >= fits && got < n);
		assert_int_equal(got + drops(duo.a, "tx_no_room") - before, n);
	}
	assert_int_equal(sent(duo.a), n_sent);
	assert_int_equal(received(duo.b) + drops(duo.a, "tx_no_room"), n_sent);
	duo_stream(duo.a, duo.b, 200);
}

/* As a NIC does, and unlike a connection, which waits. */
static void test_no_receive(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_buf *hoard[DUO_BUFS];
	int n, got = 0;

	(void)state;
	duo_connect(&conf);
	n = (int)vbn_pool_available(duo.pool);
	assert_int_equal(vbn_buf_alloc(duo.pool, hoard, n), n);
	for (int i = 0; i < DUO_DEPTH + 5; i++) {
		assert_int_equal(vbn_send_inline_to(duo.a, duo.to_b, "some bytes", 10), 1);
		vbn_flush(duo.a);
	}
	for (int k; (k = vbn_poll(duo.worker, duo.events, 10)); got += k)
		for (int i = 0; i < k; i++)
			hoard[n++] = duo.events[i].buf;
	assert_int_equal(got, DUO_DEPTH);
	assert_int_equal(drops(duo.b, "rx_no_receive"), 5);
	vbn_buf_free(hoard, n);
	vbn_poll(duo.worker, duo.events, 1);
	duo_stream(duo.a, duo.b, 200);
}

/* It fails nothing, and others are not kept waiting. */
static void test_longer_than_a_receive(void **state)
{
	struct vbn_pool_conf pool_conf = {.n_bufs = 2 * DUO_DEPTH, .data_size = 140};
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_pool *pool;

	(void)state;
	assert_int_equal(vbn_pool_create(&pool_conf, &pool), 0);
	conf.rx_pool = pool;
	conf.tx_pool = duo.pool;
	duo_connect(&conf);
	assert_int_equal(send_to(duo.a, duo.to_b, 1, 100), 1);
	assert_int_equal(send_to(duo.a, duo.to_b, 2, 101), 1); /* with the header's 40 */
	assert_int_equal(send_to(duo.a, duo.to_b, 3, 4096), 1);
	assert_int_equal(send_to(duo.a, duo.to_b, 4, 100), 1);
	assert_int_equal(take_all(duo.b), 2);
	assert_int_equal(drops(duo.b, "rx_too_long"), 2);
	duo_disconnect();
	vbn_pool_destroy(pool);
}

static void test_other_key(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_address address;
	struct vbn_peer *peer;

	(void)state;
	conf.qkey = (struct vbn_num)VBN_NUM(0x4711);
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 100);
	vbn_queue_address(duo.b, &address);
	address.bytes[39] ^= 1;
	unit_catch_log();
	assert_int_equal(vbn_peer_create(duo.a, &address, &peer), -EACCES);
	assert_logged("its Q_Key is another");
	assert_int_equal(count_of(SHM_OTHER_KEYS), 1);
	assert_int_equal(duo.port->n_peers, 2);
}

/* Who sends to a queue that is gone has lost what that one had not taken, too. */
static void test_receiver_gone(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	uint64_t before;

	(void)state;
	duo_connect(&conf);
	before = count_of(SHM_UNTAKEN);
	for (uint64_t i = 0; i < 30; i++)
		assert_int_equal(send_to(duo.a, duo.to_b, i, 40), 1);
	assert_int_equal(vbn_poll(duo.worker, duo.events, 12), 12);
	for (int i = 0; i < 12; i++)
		vbn_buf_free(&duo.events[i].buf, 1);
	vbn_queue_destroy(duo.b);
	duo.b = NULL;
	for (uint64_t i = 0; i < 7; i++)
		assert_int_equal(send_to(duo.a, duo.to_b, i, 40), 1);
	assert_int_equal(sent(duo.a), 37);
	assert_int_equal(drops(duo.a, "tx_no_peer"), 37 - 12);
	assert_int_equal(count_of(SHM_UNTAKEN) - before, 19);
	/* and the way to another one is as it was */
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	duo_disconnect();
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 200);
}

/* ---- who may write to it: not more than there is memory for ---- */

static int n_segments(void)
{
	return held_mappings("/memfd:verbena");
}

/* The control thread frees what the worker is done with. */
static void until_segments(int n)
{
	const uint64_t start = clock_ns();

	while (n_segments() > n) {
		assert_int_equal(vbn_poll(duo.worker, duo.events, DUO_EVENTS), 0);
		duo_patience(start);
	}
	assert_int_equal(n_segments(), n);
}

static void test_many_rings(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	int segments, n = 0, ret;

	(void)state;
	duo_connect(&conf);
	segments = n_segments();
	unit_catch_log();
	while (!(ret = make_sender(n, duo.b)))
		assert_in_range(++n, 1, UD_INLETS);
	assert_int_equal(ret, -ENOSPC);
	assert_logged("as many queues send to it as it has rings for");
	assert_int_equal(n, UD_INLETS - 1); /* duo.a has one */
	assert_true(64 * (UD_RING + SHM_HEAD) < 64 << 20);
	vbn_queue_destroy(senders[n]);
	for (int i = 0; i < n; i++)
		assert_int_equal(send_to(senders[i], ways[i], 1, 8), 1);
	assert_int_equal(take_all(duo.b), n);
	/* what goes makes room for others, with its last words heard */
	for (int i = 0; i < n; i++) {
		assert_int_equal(send_to(senders[i], ways[i], 1, 8), 1);
		destroy_sender(i);
	}
	assert_int_equal(take_all(duo.b), n);
	until_segments(segments);
	assert_int_equal(make_sender(0, duo.b), 0);
	duo_stream(duo.a, duo.b, 100);
	destroy_sender(0);
}

/* A peer that is released is nobody's, and what was sent to it arrives. */
static void test_released(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_address address;
	int segments;

	(void)state;
	duo_connect(&conf);
	vbn_queue_address(duo.b, &address);
	vbn_peer_release(duo.to_b);
	duo.to_b = NULL;
	until_segments(n_segments() - 1);
	segments = n_segments();
	for (int i = 0; i < 30; i++) {
		struct vbn_buf *buf = duo_buf(3, 33);

		assert_int_equal(vbn_peer_create(duo.a, &address, &duo.to_b), 0);
		vbn_buf_set_peer(buf, duo.to_b);
		assert_int_equal(vbn_send_one(duo.a, buf), 1);
		vbn_peer_release(duo.to_b); /* staged, and not flushed */
		duo.to_b = NULL;
		vbn_flush(duo.a);
		duo_wait(duo.b, 1);
		duo_check(duo.events[0].buf->data, 3, 33);
		vbn_buf_free(&duo.events[0].buf, 1);
	}
	until_segments(segments);
}

static void test_nothing_is_left(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	int descriptors, segments;

	(void)state;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 10);
	duo_disconnect();
	descriptors = held_descriptors();
	segments = n_segments();
	for (int i = 0; i < 50; i++) {
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 10);
		if (i % 2) {
			duo_reset(duo.a);
			duo_reset(duo.b);
			duo_meet();
			duo_stream(duo.b, duo.a, 10);
		}
		duo_disconnect();
	}
	assert_in_range(held_descriptors(), 0, descriptors + 1); /* a timer's */
	assert_int_equal(n_segments(), segments);
}

/* ---- liars ---- */

static struct ud_way *way_of(struct vbn_queue *queue, const struct vbn_peer *peer)
{
	return shm_queue(queue)->ud->ways[ud_target(peer->handle)->index];
}

#define RAW(kind, len) ((uint64_t)(kind) << 32 | (uint32_t)(len))

/* Who writes what cannot be is heard no more, and nobody else notices. */
static void test_records_that_are_none(void **state)
{
	static const uint64_t lies[] = {RAW(SHM_N_KINDS, 8), RAW(0xff, 8), RAW(SHM_SEND | 0x200, 8),
		RAW(SHM_SEND | 0x100, 8), RAW(0, 8), RAW(SHM_SEND, UINT32_MAX),
		RAW(SHM_SEND, UINT32_MAX - 7), RAW(SHM_SEND, UD_MTU + 1), RAW(SHM_SEND, 16 << 10),
		RAW(SHM_SEND_IMM, UINT32_MAX - 15), RAW(SHM_PAD, 8), RAW(SHM_PAD, 0),
		RAW(SHM_PAD, UINT32_MAX), RAW(SHM_PART, 8), RAW(SHM_WRITE, 8), RAW(SHM_READ, 0),
		RAW(SHM_ANSWER, 8), RAW(SHM_REFUSED, 0)};
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);

	(void)state;
	duo_connect(&conf);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		const uint64_t faults = count_of(SHM_FAULTS);
		struct ring_writer *w;

		assert_int_equal(make_sender(0, duo.b), 0);
		assert_int_equal(send_to(senders[0], ways[0], 1, 8), 1);
		w = &way_of(senders[0], ways[0])->ring;
		store_release(ring_word(w->ring, w->mask, w->pos), lies[i]);
		assert_int_equal(take_all(duo.b), 1);
		assert_int_equal(count_of(SHM_FAULTS), faults + 1);
		duo_stream(duo.a, duo.b, 50);
		assert_int_equal(send_to(senders[0], ways[0], 1, 8), 1);
		assert_int_equal(take_all(duo.b), 0);
		assert_int_equal(drops(senders[0], "tx_no_peer"), 1);
		destroy_sender(0);
	}
}

/* A receiver that says it has taken what it was never sent gets nothing more; others do. */
static void test_lies_about_taken(void **state)
{
	static const uint64_t lies[] = {1 << 20, UINT64_MAX, 1ull << 63, UD_RING + 16};
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		const uint64_t faults = count_of(SHM_FAULTS);
		struct ud_way *way;
		uint64_t n = 0;

		duo_connect(&conf);
		way = way_of(duo.a, duo.to_b);
		store_release(&way->peer->taken, lies[i]);
		while (!way->dead && n < 2 * UD_RING / 1024)
			assert_int_equal(send_to(duo.a, duo.to_b, n++, 1024), 1);
		assert_true(way->dead);
		assert_int_equal(count_of(SHM_FAULTS), faults + 1);
		assert_int_equal(sent(duo.a), n);
		assert_int_equal(drops(duo.a, "tx_no_peer"), n);
		take_all(duo.b); /* which is no liar */
		duo_stream(duo.b, duo.a, 50);
		duo_disconnect();
	}
}

/* Words that a receiver shares and lies with may only cost what is sent to it. */
static void test_lies_about_open(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct shm_head *head;

	(void)state;
	duo_connect(&conf);
	head = way_of(duo.a, duo.to_b)->peer;
	store_once(&head->sleeps, 1);
	duo_stream(duo.a, duo.b, 50);
	store_once(&head->open, 77);
	duo_stream(duo.a, duo.b, 50);
	store_once(&head->open, 0);
	assert_int_equal(send_to(duo.a, duo.to_b, 1, 8), 1);
	assert_int_equal(drops(duo.a, "tx_no_peer"), 1);
	take_all(duo.b); /* it has come all the same */
	duo_stream(duo.b, duo.a, 50);
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(duo_peers),
		test(duo_no_peer),
		test(duo_headroom),
		test(duo_peer_misuse),
		test(test_streams),
		test(test_reset_at_work),
		test(test_many_senders),
		test(test_shared_peer),
		test(test_first_may_send),
		test(test_no_room),
		test(test_no_receive),
		test(test_longer_than_a_receive),
		test(test_other_key),
		test(test_receiver_gone),
		test(test_many_rings),
		test(test_released),
		test(test_nothing_is_left),
		test(test_records_that_are_none),
		test(test_lies_about_taken),
		test(test_lies_about_open),
	};

	setenv("VBN_TEST_DEVICE", "shm", 1);
	cmocka_set_test_filter(getenv("SHM_TEST"));
	return cmocka_run_group_tests_name("shm_ud", tests, NULL, NULL);
}
