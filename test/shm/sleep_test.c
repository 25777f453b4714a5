/* sleep_test.c - workers that sleep while nothing comes: each message wakes its receiver, between threads
 * and between processes; who sleeps takes no time of the CPU; a peer that writes the word at will does
 * no harm
 *
 * A sleep ends by itself after a millisecond, which would hide a wake-up that is lost. So it is made
 * half a minute here: a round that takes a quarter of one has lost its wake-up.
 */

#include "two.h"

#include "run/internal.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS = 2000, LATENESS_US = 130 };

static const struct vbn_worker_conf sleeper = {.idle_yield = VBN_OFF, .idle_sleep = VBN_ON};

static bool may_sleep(void)
{
	const char *why;
	enum vbn_switch asked;

	if (vbn__worker_sleeps(two.worker, &asked, &why))
		return true;
	print_message("skipped: %s\n", why);
	return false;
}

/* ---- one end of a conversation ---- */

struct end {
	struct vbn_worker *worker;
	struct vbn_queue *queue;
	uint64_t got, longest_ns;
	uint32_t random;
};
static struct end ends[2]; /* a poll function looks at them until its worker has gone */

static void begin(struct end *end, struct vbn_worker *worker, uint32_t random)
{
	*end = (struct end){.worker = worker, .random = random};
}

static int take(struct vbn_worker *worker, void *arg)
{
	struct end *end = arg;
	struct vbn_buf *bufs[8];
	int n = end->queue ? vbn_recv(end->queue, bufs, 8) : 0;

	(void)worker;
	if (n <= 0)
		return 0;
	vbn_buf_free(bufs, n);
	end->got += (uint64_t)n;
	return n;
}

/* About when the other falls asleep; by the box, and by the ring. */
static void say(struct end *end, uint64_t round)
{
	static const uint8_t bytes[100];
	const uint64_t now = clock_ns();

	end->random = end->random * 1664525 + 1013904223;
	while (clock_ns() - now < (end->random >> 8) % LATENESS_US * 1000)
		;
	assert_int_equal(vbn_send_inline(end->queue, bytes, round % 3 ? 8 : sizeof(bytes)), 1);
	vbn_flush(end->queue);
}

static void hear(struct end *end, uint64_t round)
{
	const uint64_t since = clock_ns();

	while (end->got <= round)
		vbn_worker_poll(end->worker);
	end->longest_ns = max(end->longest_ns, clock_ns() - since);
}

static void talk(struct end *end, bool first, uint64_t rounds)
{
	vbn_worker_add_poll(end->worker, take, end);
	for (uint64_t i = 0; i < rounds; i++) {
		if (first)
			say(end, i);
		hear(end, i);
		if (!first)
			say(end, i);
	}
	end->queue = NULL;
}

/* ---- two processes ---- */

static int other_talks(void)
{
	struct end *end = &ends[0];

	two_worker_conf = sleeper;
	vbn__sleep_longest_ns = 30 * SECOND_NS;
	two_is_other();
	two_connect();
	begin(end, two.worker, 2);
	end->queue = two.queue;
	talk(end, false, ROUNDS);
	vbn__sleep_longest_ns = 1000000;
	while (two_hear(&(struct two_word){0}))
		;
	two_close(NULL);
	return end->longest_ns < 15 * SECOND_NS ? 0 : 3;
}

static void test_two_processes(void **state)
{
	struct end *end = &ends[0];

	(void)state;
	if (!may_sleep())
		return;
	two_start("talks");
	two_connect();
	begin(end, two.worker, 1);
	end->queue = two.queue;
	vbn__sleep_longest_ns = 30 * SECOND_NS;
	talk(end, true, ROUNDS);
	vbn__sleep_longest_ns = 1000000;
	assert_true(end->longest_ns < 15 * SECOND_NS);
	assert_true(two.worker->n_sleeps > ROUNDS / 50);
	assert_int_equal(two_wait(), 0);
}

/* ---- one process ---- */

static struct {
	struct vbn_address address[2];
	pthread_barrier_t barrier;
	uint64_t rounds, longest_ns;
	uint32_t over; /* atomic */
} pair;

static void connect_pair(struct vbn_worker *worker, int me, struct end *end)
{
	const struct vbn_queue_conf conf = {
		.tx_depth = TWO_DEPTH, .rx_depth = TWO_DEPTH, .rx_pool = two.pool};
	struct vbn_queue_conf own = conf;

	if (me)
		assert_int_equal(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 2 * TWO_DEPTH,
							 .data_size = 256},
					 &own.rx_pool),
			0);
	begin(end, worker, 3 + (uint32_t)me);
	assert_int_equal(vbn_queue_create(worker, two.port, &own, &end->queue), 0);
	vbn_queue_address(end->queue, &pair.address[me]);
	pthread_barrier_wait(&pair.barrier);
	assert_int_equal(vbn_queue_connect(end->queue, &pair.address[!me]), 0);
	pthread_barrier_wait(&pair.barrier);
}

static void *second(void *arg)
{
	struct end *end = &ends[1];
	struct vbn_worker *worker;
	struct vbn_queue *queue;
	struct vbn_pool *pool;

	(void)arg;
	assert_int_equal(vbn_worker_attach(&sleeper, &worker), 0);
	connect_pair(worker, 1, end);
	queue = end->queue;
	pool = queue->conf.rx_pool;
	talk(end, false, pair.rounds);
	pair.longest_ns = end->longest_ns;
	pthread_barrier_wait(&pair.barrier);
	vbn_queue_destroy(queue);
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	return NULL;
}

static void *liar(void *arg)
{
	uint32_t *word = arg, random = 1;

	while (!__atomic_load_n(&pair.over, __ATOMIC_RELAXED)) {
		random = random * 1664525 + 1013904223;
		store_once(word, random >> 28 ? random : 1);
		for (volatile int i = 0; i < 200; i++)
			;
	}
	return NULL;
}

static void talk_within(uint64_t rounds, bool lies)
{
	struct end *end = &ends[0];
	struct vbn_queue *queue;
	pthread_t thread, lying;

	pair.rounds = rounds;
	pair.over = 0;
	pthread_barrier_init(&pair.barrier, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, second, NULL), 0);
	connect_pair(two.worker, 0, end);
	queue = end->queue;
	if (lies)
		assert_int_equal(
			pthread_create(&lying, NULL, liar, &shm_queue(queue)->rx.head->sleeps), 0);
	talk(end, true, rounds);
	__atomic_store_n(&pair.over, 1, __ATOMIC_RELAXED);
	if (lies)
		pthread_join(lying, NULL);
	pthread_barrier_wait(&pair.barrier);
	vbn_queue_destroy(queue);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&pair.barrier);
	pair.longest_ns = max(pair.longest_ns, end->longest_ns);
}

static void test_one_process(void **state)
{
	uint64_t before = two.worker->n_sleeps;

	(void)state;
	if (!may_sleep())
		return;
	vbn__sleep_longest_ns = 30 * SECOND_NS;
	talk_within(ROUNDS, false);
	vbn__sleep_longest_ns = 1000000;
	assert_true(pair.longest_ns < 15 * SECOND_NS);
	assert_true(two.worker->n_sleeps - before > ROUNDS / 50);
}

/* Whatever the word says, all is said. */
static void test_lies(void **state)
{
	(void)state;
	talk_within(300, true);
}

/* ---- what it costs ---- */

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

static void test_sleeps_cheaply(void **state)
{
	double best = 1;

	(void)state;
	if (!may_sleep())
		return;
	two_start("waits");
	two_connect();
	for (int attempt = 0; attempt < 10 && best >= 0.05; attempt++) {
		const uint64_t start = clock_ns(), cpu = cpu_ns();

		while (clock_ns() - start < SECOND_NS / 5)
			vbn_worker_poll(two.worker);
		best = min(best, (double)(cpu_ns() - cpu) / (double)(clock_ns() - start));
	}
	print_message("an idle sleeper takes %.1f %% of its CPU\n", 100 * best);
	assert_true(best < 0.05);
	assert_int_equal(two_wait(), 0);
}

static int other_waits(void)
{
	two_is_other();
	two_connect();
	while (two_hear(&(struct two_word){0}))
		;
	two_close(NULL);
	return 0;
}

/* ---- what it says ---- */

static void find_sleep(const struct vbn_worker *worker, struct vbn_mode *found)
{
	struct vbn_mode modes[16];
	const int n = vbn_worker_modes(worker, modes, 16);

	memset(found, 0, sizeof(*found));
	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, "sleep"))
			*found = modes[i];
}

static void test_modes(void **state)
{
	struct vbn_mode mode;

	(void)state;
	find_sleep(two.worker, &mode);
	assert_string_equal(mode.requested, "on");
	assert_true(strlen(mode.why) > 0);
	vbn_worker_detach(two.worker);
	assert_int_equal(vbn_worker_attach(NULL, &two.worker), 0);
	find_sleep(two.worker, &mode);
	assert_string_equal(mode.requested, "auto");
	assert_string_equal(mode.effective, "off");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, two_open, two_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_modes),
		TEST(test_one_process),
		TEST(test_two_processes),
		TEST(test_lies),
		TEST(test_sleeps_cheaply),
	};

	if (argc > 1 && !strcmp(argv[1], "talks"))
		return other_talks();
	if (argc > 1 && !strcmp(argv[1], "waits"))
		return other_waits();
	two_worker_conf = sleeper;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
