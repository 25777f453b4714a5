/* ud_process_test.c - datagrams between processes: many senders to one receiver, all that was sent received
 * or dropped by name; senders and receivers that are killed, and one that writes what it likes over every
 * word that it shares, while others go on and notice nothing
 *
 * SHM_SECONDS says for how long the liar lies (1).
 */

#include "two.h"

#include "../unit/held.h"

#include "drv/shm/ud.h"

#include <signal.h>
#include <sys/wait.h>

enum { N_SENDERS = 4, EACH = 15000, LIAR_SENDERS = 2, DEATHS = 6 };

/* ---- queues ---- */

static struct vbn_queue *make(void)
{
	const struct vbn_queue_conf conf = {.transport = VBN_UD,
		.tx_depth = TWO_DEPTH,
		.rx_depth = TWO_DEPTH,
		.rx_pool = two.pool};
	struct vbn_queue *queue;

	assert_int_equal(vbn_queue_create(two.worker, two.port, &conf, &queue), 0);
	assert_int_equal(vbn_queue_connect(queue, NULL), 0);
	return queue;
}

static struct vbn_address address_of(const struct vbn_queue *queue)
{
	struct vbn_address address;

	vbn_queue_address(queue, &address);
	return address;
}

static struct vbn_peer *peer_at(struct vbn_queue *queue, const struct vbn_address *address)
{
	struct vbn_peer *peer;

	assert_int_equal(vbn_peer_create(queue, address, &peer), 0);
	return peer;
}

static uint64_t drops(const struct vbn_queue *queue, const char *name)
{
	struct vbn_drop list[16];
	int n = vbn_queue_drops(queue, list, 16);

	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return list[i].count;
	unit_fail("no drop is called %s", name);
	return 0;
}

/* ---- datagrams: who sends, the number, and bytes that follow from both ---- */

struct content {
	uint32_t sender, len;
	uint64_t number;
};

static uint32_t length_of(uint64_t number)
{
	return (uint32_t)sizeof(struct content) +
		(uint32_t)(number * 37 % (number % 50 ? 300 : 4000));
}

static void send_one(
	struct vbn_queue *queue, const struct vbn_peer *peer, uint32_t sender, uint64_t number)
{
	const struct content content = {sender, length_of(number), number};
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(two.pool, &buf, 1), 1);
	buf->len = content.len;
	memset(buf->data, (int)(number + sender), buf->len);
	memcpy(buf->data, &content, sizeof(content));
	vbn_buf_set_peer(buf, peer);
	assert_int_equal(vbn_send_one(queue, buf), 1);
}

/* What was lost is not here, and what is here is in order and whole. */
static void check(const struct vbn_buf *buf, uint64_t *next, uint32_t n_senders)
{
	struct content content;

	assert_true(buf->len >= sizeof(content));
	memcpy(&content, buf->data, sizeof(content));
	assert_true(content.sender < n_senders);
	assert_int_equal(content.len, buf->len);
	assert_int_equal(buf->len, length_of(content.number));
	assert_true(content.number >= next[content.sender]);
	next[content.sender] = content.number + 1;
	for (uint32_t i = sizeof(content); i < buf->len; i++)
		assert_int_equal(buf->data[i], (uint8_t)(content.number + content.sender));
}

/* ---- many senders ---- */

static int other_sends(void)
{
	struct vbn_queue *queues[N_SENDERS];
	struct vbn_peer *peers[N_SENDERS];
	struct two_word word;
	uint64_t lost = 0;

	two_is_other();
	if (!two_hear(&word))
		return 1;
	for (int i = 0; i < N_SENDERS; i++) {
		queues[i] = make();
		peers[i] = peer_at(queues[i], &word.address);
	}
	for (uint64_t number = 0; number < EACH; number++)
		for (uint32_t i = 0; i < N_SENDERS; i++) {
			send_one(queues[i], peers[i], i, number);
			if (number % 16 == 15 || number == EACH - 1)
				vbn_flush(queues[i]);
		}
	for (int i = 0; i < N_SENDERS; i++)
		lost += drops(queues[i], "tx_no_room");
	two_say(&(struct two_word){.word = lost});
	two_hear(&word);
	for (int i = 0; i < N_SENDERS; i++) {
		vbn_peer_release(peers[i]);
		vbn_queue_destroy(queues[i]);
	}
	two_close(NULL);
	return 0;
}

static void test_many_senders(void **state)
{
	const uint64_t since = clock_ns();
	struct vbn_queue *hub = make();
	struct two_word word = {.address = address_of(hub)};
	uint64_t next[N_SENDERS] = {0}, received = 0, lost = UINT64_MAX;

	(void)state;
	two_start("sends");
	two_say(&word);
	while (lost == UINT64_MAX || received + lost < (uint64_t)N_SENDERS * EACH) {
		struct vbn_event events[64];
		int n = vbn_poll(two.worker, events, 64);

		for (int i = 0; i < n; i++) {
			assert_int_equal(events[i].op, VBN_OP_RECV);
			check(events[i].buf, next, N_SENDERS);
			vbn_buf_free(&events[i].buf, 1);
		}
		received += (uint64_t)n;
		if (lost == UINT64_MAX && two_may_hear()) {
			assert_true(two_hear(&word));
			lost = word.word;
		}
		if (!n)
			two_patience(since);
	}
	assert_int_equal(received + lost + drops(hub, "rx_no_receive"), (uint64_t)N_SENDERS * EACH);
	printf("%llu received, %llu found no room\n", (unsigned long long)received,
		(unsigned long long)lost);
	two_say(&word);
	assert_int_equal(two_wait(), 0);
	vbn_queue_destroy(hub);
}

/* ---- a pair of this process beside them, which loses nothing ---- */

static struct {
	struct vbn_queue *hub, *from;
	struct vbn_peer *to_hub, *source;
	uint64_t sent, received;
} pair;

static void pair_make(void)
{
	struct vbn_address hub, from;

	memset(&pair, 0, sizeof(pair));
	pair.hub = make();
	pair.from = make();
	hub = address_of(pair.hub);
	from = address_of(pair.from);
	pair.to_hub = peer_at(pair.from, &hub);
	pair.source = peer_at(pair.hub, &from);
}

static void pair_end(void)
{
	vbn_peer_release(pair.to_hub);
	vbn_peer_release(pair.source);
	vbn_queue_destroy(pair.from);
	vbn_queue_destroy(pair.hub);
}

/* A few more are on their way at a time; what the others' events are is not looked at but for what a
 * buf can hold. How many those were. */
static int pair_work(void)
{
	struct vbn_event events[64];
	int n, others = 0;

	while (pair.sent - pair.received < 8)
		send_one(pair.from, pair.to_hub, 0, pair.sent++);
	vbn_flush(pair.from);
	n = vbn_poll(two.worker, events, 64);
	for (int i = 0; i < n; i++) {
		struct vbn_buf *buf = events[i].buf;

		assert_int_equal(events[i].op, VBN_OP_RECV);
		assert_ptr_equal(events[i].queue, pair.hub);
		assert_int_equal(events[i].len, buf->len);
		assert_in_range(buf->len, 0, UD_MTU);
		if (vbn_buf_is_from(buf, pair.source)) {
			uint64_t next = pair.received;

			check(buf, &next, 1);
			assert_int_equal(next, ++pair.received); /* none is lost */
		} else {
			others++;
		}
		vbn_buf_free(&buf, 1);
	}
	return others;
}

static void nothing_is_left(int descriptors, int segments)
{
	const uint64_t since = clock_ns();

	while (held_descriptors() > descriptors || two_segments() > segments) {
		pair_work();
		two_patience(since);
	}
}

/* ---- killed senders ---- */

static int other_floods(void)
{
	struct vbn_queue *queues[N_SENDERS];
	struct vbn_peer *peers[N_SENDERS];
	struct two_word word;

	two_is_other();
	if (!two_hear(&word))
		return 1;
	for (int i = 0; i < N_SENDERS; i++) {
		queues[i] = make();
		peers[i] = peer_at(queues[i], &word.address);
	}
	for (uint64_t number = 0;; number++)
		for (uint32_t i = 0; i < N_SENDERS; i++) {
			send_one(queues[i], peers[i], i, number);
			if (number % 16 == 15)
				vbn_flush(queues[i]);
		}
}

static void test_killed_senders(void **state)
{
	unsigned int seed = (unsigned int)getpid();
	int descriptors, segments;

	(void)state;
	pair_make();
	descriptors = held_descriptors() + 1; /* of the timer that sees to what is over */
	segments = two_segments();
	for (int i = 0; i < DEATHS; i++) {
		const uint64_t life = (uint64_t)(rand_r(&seed) % 20000) * 1000;
		struct two_word word = {.address = address_of(pair.hub)};
		uint64_t begin = clock_ns(), received;

		two_start("floods");
		two_say(&word);
		while (!pair_work())
			two_patience(begin);
		begin = clock_ns();
		while (clock_ns() - begin < life)
			pair_work();
		two_kill();
		assert_true(WIFSIGNALED(two_wait()));
		nothing_is_left(descriptors, segments);
		received = pair.received;
		begin = clock_ns();
		while (pair.received < received + 100) {
			assert_int_equal(pair_work(), 0);
			two_patience(begin);
		}
	}
	pair_end();
}

/* ---- killed receivers ---- */

static void take_whatever(void)
{
	struct vbn_event events[64];
	int n = vbn_poll(two.worker, events, 64);

	for (int i = 0; i < n; i++)
		vbn_buf_free(&events[i].buf, 1);
}

static __attribute__((noreturn)) void other_receives(void)
{
	struct vbn_queue *queue;
	struct two_word word = {0};

	two_is_other();
	queue = make();
	word.address = address_of(queue);
	two_say(&word);
	for (;;)
		take_whatever();
}

static void test_killed_receivers(void **state)
{
	int descriptors, segments;

	(void)state;
	pair_make();
	descriptors = held_descriptors() + 1;
	segments = two_segments();
	for (int i = 0; i < DEATHS; i++) {
		const uint64_t before = drops(pair.from, "tx_no_peer");
		struct vbn_peer *there;
		struct two_word word;
		uint64_t number = 0, since, lost;

		two_start("receives");
		assert_true(two_hear(&word));
		there = peer_at(pair.from, &word.address);
		for (; number < 2000; number++) {
			send_one(pair.from, there, 0, number);
			pair_work();
		}
		assert_int_equal(drops(pair.from, "tx_no_peer"), before);
		two_kill();
		assert_true(WIFSIGNALED(two_wait()));
		since = clock_ns();
		while (drops(pair.from, "tx_no_peer") == before) {
			send_one(pair.from, there, 0, number++);
			pair_work();
			two_patience(since);
		}
		lost = drops(pair.from, "tx_no_peer");
		for (int k = 0; k < 10; k++)
			send_one(pair.from, there, 0, number++);
		vbn_flush(pair.from);
		assert_int_equal(drops(pair.from, "tx_no_peer"), lost + 10);
		assert_int_equal(vbn_queue_outstanding(pair.from), 0);
		vbn_peer_release(there);
		nothing_is_left(descriptors, segments);
	}
	pair_end();
}

/* ---- the liar ---- */

static uint64_t any64(unsigned int *seed)
{
	return (uint64_t)rand_r(seed) << 40 ^ (uint64_t)rand_r(seed) << 20 ^ (uint64_t)rand_r(seed);
}

static uint64_t plausible(unsigned int *seed)
{
	static const uint32_t lengths[] = {0, 1, 8, 64, 100, 2048, 4096, 4097, 9000, 16384, 1 << 18,
		INT32_MAX, UINT32_MAX - 7, UINT32_MAX};
	const uint32_t len = lengths[(size_t)rand_r(seed) % ARRAY_SIZE(lengths)];
	const uint64_t header = record_header((enum shm_kind)(rand_r(seed) % 4), len);

	return rand_r(seed) % 8 ? header : header | any64(seed) << 40;
}

static struct ud_way *way_of(struct vbn_queue *queue, const struct vbn_peer *peer)
{
	return load_acquire(&shm_queue(queue)->ud->ways[ud_target(peer->handle)->index]);
}

/* Over all of a ring that it writes, or that it reads. */
static void lie_over(uint8_t *base, size_t size, unsigned int *seed)
{
	for (int i = 0; i < 300; i++)
		store_once((uint64_t *)(void *)(base + any64(seed) % (size / 8) * 8),
			rand_r(seed) % 2 ? any64(seed) : plausible(seed));
}

static void lie_as_sender(struct ud_way *way, unsigned int *seed)
{
	struct ring_writer *w = &way->ring;

	if (rand_r(seed) % 4 == 0)
		lie_over(way->segment->base, way->segment->size, seed);
	for (int i = 0; i < 50; i++) {
		const uint32_t size = record_size(8, (uint32_t)rand_r(seed) % 100);

		if (((uint32_t)w->pos & w->mask) + size > w->mask)
			break;
		store_release(ring_word(w->ring, w->mask, w->pos), plausible(seed));
		w->pos += size;
	}
}

static void lie_as_receiver(struct shm_queue *sq, unsigned int *seed)
{
	for (uint32_t i = 0; i < UD_INLETS; i++) {
		struct ud_inlet *inlet = load_acquire(&sq->ud->inlets[i]);

		if (!inlet)
			continue;
		store_once(&inlet->head->taken,
			rand_r(seed) % 2 ? any64(seed) : inlet->pos + (uint64_t)rand_r(seed) % 999);
		store_once(&inlet->head->sleeps, (uint32_t)rand_r(seed) % 3);
		if (rand_r(seed) % 16 == 0)
			store_once(&inlet->head->open, (uint32_t)rand_r(seed) % 2);
		if (rand_r(seed) % 8 == 0)
			lie_over(inlet->ring, inlet->mask + 1ul, seed);
	}
}

static int other_lies(void)
{
	unsigned int seed = (unsigned int)getpid();
	struct vbn_queue *queues[LIAR_SENDERS];
	struct two_word word;

	two_is_other();
	if (!two_hear(&word))
		return 1;
	for (int i = 0; i < LIAR_SENDERS; i++)
		queues[i] = make();
	two_say(&(struct two_word){.address = address_of(queues[0])});
	for (uint64_t round = 0; !two_may_hear(); round++) {
		struct vbn_queue *queue = queues[round % LIAR_SENDERS];
		struct vbn_peer *peer;

		if (vbn_peer_create(queue, &word.address, &peer))
			continue; /* its rings are there still, whatever it has done to them */
		for (int i = 0; i < 20 && !way_of(queue, peer)->dead; i++) {
			vbn_send_inline_to(queue, peer, "some", 4);
			vbn_flush(queue);
			lie_as_sender(way_of(queue, peer), &seed);
			lie_as_receiver(shm_queue(queues[0]), &seed);
		}
		vbn_peer_release(peer);
		take_whatever();
	}
	return 0;
}

static void test_liar(void **state)
{
	const char *asked = getenv("SHM_SECONDS");
	const uint64_t end = clock_ns() + (asked ? strtoull(asked, NULL, 10) : 1) * SECOND_NS;
	const uint64_t *faults;
	uint64_t heard = 0, number = 0, since = clock_ns();
	struct vbn_peer *there = NULL;
	struct two_word word;

	(void)state;
	pair_make();
	faults = &shm_port(two.port)->counts[SHM_FAULTS];
	two_start("lies");
	two_say(&(struct two_word){.address = address_of(pair.hub)});
	assert_true(two_hear(&word));
	/* it is found out some times, on a busy machine, too */
	while (clock_ns() < end || __atomic_load_n(faults, __ATOMIC_RELAXED) < 10 ||
		pair.received < 200) {
		if (!there && vbn_peer_create(pair.from, &word.address, &there))
			there = NULL; /* it has no room, or says so */
		for (int i = 0; there && i < 4; i++)
			send_one(pair.from, there, 0, number++);
		heard += (uint64_t)pair_work();
		if (number % 400 == 0) { /* its ring was closed, by one lie or another */
			vbn_peer_release(there);
			there = NULL;
		}
		since = min(clock_ns(), end);
		two_patience(since);
	}
	printf("%llu faults; %llu heard from the liar; %llu of the others\n",
		(unsigned long long)__atomic_load_n(faults, __ATOMIC_RELAXED),
		(unsigned long long)heard, (unsigned long long)pair.received);
	two_kill();
	two_wait();
	vbn_peer_release(there);
	pair_end();
}

#define test(name) cmocka_unit_test_setup_teardown(name, two_open, two_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(test_many_senders),
		test(test_killed_senders),
		test(test_killed_receivers),
		test(test_liar),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "sends"))
		return other_sends();
	if (argc > 1 && !strcmp(argv[1], "floods"))
		return other_floods();
	if (argc > 1 && !strcmp(argv[1], "receives"))
		other_receives();
	if (argc > 1)
		return other_lies();
	cmocka_set_test_filter(getenv("SHM_TEST"));
	return cmocka_run_group_tests_name("datagrams of processes", tests, NULL, NULL);
}
