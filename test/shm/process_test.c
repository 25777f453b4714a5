/* process_test.c - queues over shared memory between two processes: everything works; and one of them
 * is killed at any time, over and over: the other is told, has its memory back, and goes on with the
 * next
 *
 * SHM_KILLS says how often (12). Each death is told within 100 ms of time that the machine gave: what it
 * kept from this thread, and from another one that only wants to wake up, is taken off.
 */

#include "two.h"

#include "../unit/held.h"

#include "drv/shm/life.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- all that there is to do ---- */

enum { N_ECHOES = 3000 };

static uint32_t length_of(uint64_t number)
{
	return (uint32_t)(number * 37 % (number % 10 ? 300 : TWO_DATA));
}

static struct vbn_buf *message(uint64_t number)
{
	struct vbn_buf *buf;

	if (vbn_buf_alloc(two.pool, &buf, 1) != 1)
		return NULL;
	buf->len = length_of(number);
	for (uint32_t i = 0; i < buf->len; i++)
		buf->data[i] = (uint8_t)(number * 31 + i);
	return buf;
}

static int other_echoes(void)
{
	uint64_t since = clock_ns(), echoed = 0;

	two_is_other();
	two_connect();
	while (echoed < N_ECHOES || vbn_queue_outstanding(two.queue)) {
		struct vbn_event events[16];
		int n = vbn_poll(two.worker, events, 16);

		for (int i = 0; i < n; i++) {
			if (events[i].op != VBN_OP_RECV)
				return 2;
			while (!vbn_send_one(two.queue, events[i].buf))
				vbn_flush(two.queue);
			echoed++;
		}
		vbn_flush(two.queue);
		if (!n)
			two_patience(since);
	}
	while (two_hear(&(struct two_word){0})) /* it carries out what it is asked */
		for (int i = 0; i < 1000; i++)
			vbn_poll(two.worker, (struct vbn_event[1]){0}, 1);
	two_close(NULL);
	return 0;
}

static void test_echoes(void **state)
{
	uint64_t sent = 0, received = 0, since = clock_ns();

	(void)state;
	two_start("echoes");
	two_connect();
	while (received < N_ECHOES) {
		struct vbn_buf *buf =
			sent < N_ECHOES && sent - received < 100 ? message(sent) : NULL;
		struct vbn_event event;

		if (buf && vbn_send_one(two.queue, buf) == 1)
			sent++;
		else
			vbn_buf_free(&buf, buf != NULL);
		vbn_flush(two.queue);
		if (!vbn_poll(two.worker, &event, 1)) {
			two_patience(since);
			continue;
		}
		assert_int_equal(event.op, VBN_OP_RECV);
		assert_int_equal(event.len, length_of(received));
		for (uint32_t i = 0; i < event.len; i++)
			assert_int_equal(event.buf->data[i], (uint8_t)(received * 31 + i));
		received++;
		vbn_buf_free(&event.buf, 1);
	}
	/* one-sided, of the other's memory */
	for (uint64_t i = 0; i < 50; i++) {
		struct vbn_buf *bufs[3];
		struct vbn_event event;
		int got = 0;

		assert_int_equal(vbn_buf_alloc(two.pool, bufs, 3), 3);
		bufs[0]->len = bufs[1]->len = TWO_DATA;
		memset(bufs[0]->data, (int)i + 1, TWO_DATA);
		bufs[2]->len = 8;
		assert_int_equal(
			vbn_write_one(two.queue, bufs[0],
				(struct vbn_remote){two.remote.addr + 64, two.remote.rkey}),
			1);
		assert_int_equal(
			vbn_read_one(two.queue, bufs[1],
				(struct vbn_remote){two.remote.addr + 64, two.remote.rkey}),
			1);
		assert_int_equal(vbn_fetch_add_one(two.queue, bufs[2], two.remote, 5), 1);
		vbn_flush(two.queue);
		while (got < 2) {
			two_say(&(struct two_word){.word = 1});
			if (!vbn_poll(two.worker, &event, 1)) {
				two_patience(since);
				continue;
			}
			assert_int_equal(event.status, VBN_OK);
			if (event.op == VBN_OP_READ)
				for (uint32_t k = 0; k < TWO_DATA; k++)
					assert_int_equal(event.buf->data[k], (uint8_t)(i + 1));
			else
				assert_int_equal(*(uint64_t *)(void *)event.buf->data, 5 * i);
			got++;
			vbn_buf_free(&event.buf, 1);
		}
	}
	two_disconnect();
	assert_int_equal(two_wait(), 0);
}

/* ---- what a busy machine keeps from a thread ---- */

enum { NAP_NS = 1000000 };

/* A thread that naps, and how late it is at the most. Who dies has to wake up likewise. */
static struct {
	pthread_t thread;
	uint64_t due, late;
	bool ends;
} napper;

static uint64_t lateness(uint64_t due)
{
	const uint64_t now = clock_ns();

	return now > due ? now - due : 0;
}

static void *nap(void *arg)
{
	while (!__atomic_load_n(&napper.ends, __ATOMIC_RELAXED)) {
		const uint64_t due = clock_ns() + NAP_NS;

		__atomic_store_n(&napper.due, due, __ATOMIC_RELAXED);
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		__atomic_store_n(&napper.late,
			max(lateness(due), __atomic_load_n(&napper.late, __ATOMIC_RELAXED)),
			__ATOMIC_RELAXED);
	}
	return arg;
}

static void naps_begin(void)
{
	__atomic_store_n(&napper.due, clock_ns() + NAP_NS, __ATOMIC_RELAXED);
	__atomic_store_n(&napper.late, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&napper.ends, false, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&napper.thread, NULL, nap, NULL), 0);
}

/* How late it was, or is. */
static uint64_t naps_end(void)
{
	const uint64_t now = lateness(__atomic_load_n(&napper.due, __ATOMIC_RELAXED));

	__atomic_store_n(&napper.ends, true, __ATOMIC_RELAXED);
	pthread_join(napper.thread, NULL);
	return max(now, napper.late);
}

/* ---- killed at any time ---- */

struct death {
	uint64_t told, kept; /* ns from the signal to the event; of these, what the machine kept */
};

/* Messages both ways, writes and reads, without an end; from the first moment on. */
static void load_once_round(uint64_t number)
{
	struct vbn_buf *buf;

	for (int i = 0; i < 8; i++) {
		const uint64_t which = number * 8 + (uint64_t)i;
		struct vbn_remote at = {two.remote.addr + which % 1000 * 64, two.remote.rkey};
		int ret;

		buf = message(which);
		if (!buf)
			break;
		if (which % 3 == 0)
			vbn_buf_set_cookie(buf, &two);
		if (which % 5 == 0 && buf->len)
			ret = vbn_read_one(two.queue, buf, at);
		else if (which % 7 == 0)
			ret = vbn_write_one(two.queue, buf, at);
		else
			ret = vbn_send_one(two.queue, buf);
		if (ret != 1) {
			vbn_buf_free(&buf, 1);
			break;
		}
	}
	vbn_flush(two.queue);
}

/* True: the queue has failed. */
static bool take_events(uint64_t *received)
{
	struct vbn_event events[32];
	bool failed = false;
	int n = vbn_poll(two.worker, events, 32);

	for (int i = 0; i < n; i++) {
		if (events[i].op == VBN_OP_FAILED)
			failed = true;
		if (events[i].op == VBN_OP_RECV)
			(*received)++;
		if (events[i].buf)
			vbn_buf_free(&events[i].buf, 1);
	}
	return failed;
}

static int end_life(void *arg)
{
	(void)arg;
	vbn__shm_life_end();
	return 0;
}

static int other_floods(const char *how)
{
	uint64_t received = 0;

	two_is_other();
	if (!strcmp(how, "floods wordless"))
		vbn__control_call(-1, end_life, NULL);
	two_connect_after(!strcmp(how, "floods after"));
	for (uint64_t number = 0;; number++) {
		load_once_round(number);
		if (take_events(&received))
			return 1;
	}
}

static int compare(const void *a, const void *b)
{
	const struct death *x = a, *y = b;

	return x->told < y->told ? -1 : x->told > y->told;
}

/* Works until it is told. */
static struct death until_told(void)
{
	const uint64_t killed = clock_ns();
	struct death death = {0};
	uint64_t received = 0, number = 0, last = killed;
	bool told = false;

	while (!told) {
		uint64_t now;

		load_once_round(number++);
		told = take_events(&received);
		now = clock_ns();
		death.kept += now - last > NAP_NS ? now - last : 0;
		last = now;
		two_patience(killed);
	}
	death.told = last - killed;
	return death;
}

/* One that has come by now gets nothing from who is gone; the next one works. */
static struct death kill_one(unsigned int round, unsigned int *seed)
{
	const uint64_t life = (uint64_t)(rand_r(seed) % 20000) * 1000;
	uint64_t begin, received = 0, number = 0;
	struct death death;

	two_start(round % 2 ? "floods" : "floods after");
	two_connect_after(round % 2);
	begin = clock_ns();
	while (clock_ns() - begin < life) {
		load_once_round(number++);
		if (take_events(&received))
			unit_fail("it failed before the other was killed: %s",
				vbn_queue_error(two.queue));
		two_patience(begin);
	}
	naps_begin();
	two_kill();
	death = until_told();
	death.kept += naps_end();
	assert_has(vbn_queue_error(two.queue), "its process has ended");
	while (vbn_queue_outstanding(two.queue))
		take_events(&received);
	assert_int_equal(vbn_send_inline(two.queue, "x", 1), -EPIPE);
	two_disconnect();
	assert_int_equal(vbn_pool_available(two.pool), TWO_BUFS);
	assert_true(WIFSIGNALED(two_wait()));
	return death;
}

/* The control thread sees the dead one's socket hang up when its kernel has come to that. */
static void nothing_is_left(int descriptors, int segments)
{
	const uint64_t since = clock_ns();

	while (held_descriptors() != descriptors || two_segments() != segments)
		two_patience(since);
}

static void test_killed(void **state)
{
	const char *asked = getenv("SHM_KILLS");
	const unsigned int n = asked ? (unsigned int)atoi(asked) : 12;
	struct death *deaths = calloc(n, sizeof(*deaths));
	unsigned int seed = (unsigned int)getpid();
	const int descriptors = held_descriptors(), segments = two_segments();

	(void)state;
	for (unsigned int i = 0; i < n; i++) {
		deaths[i] = kill_one(i, &seed);
		nothing_is_left(descriptors, segments);
		if (deaths[i].told > SECOND_NS / 10 + deaths[i].kept)
			unit_fail("death %u was told after %.1f ms, of which the machine kept %.1f",
				i, (double)deaths[i].told / 1e6, (double)deaths[i].kept / 1e6);
	}
	qsort(deaths, n, sizeof(*deaths), compare);
	printf("%u deaths told after %.2f ms, median %.2f, at most %.2f\n", n,
		(double)deaths[0].told / 1e6, (double)deaths[n / 2].told / 1e6,
		(double)deaths[n - 1].told / 1e6);
	free(deaths);
}

/* ---- by which way ---- */

static bool control_is_held, control_may_go;

/* Holds this process's control thread, so that no socket is looked at. */
static int hold(void *arg)
{
	(void)arg;
	__atomic_store_n(&control_is_held, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&control_may_go, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return 0;
}

static void *hold_control(void *arg)
{
	vbn__control_call(-1, hold, NULL);
	return arg;
}

static void told_once(const char *what, bool control_held)
{
	const uint64_t since = clock_ns();
	pthread_t thread;

	two_start(what);
	two_connect();
	if (control_held) {
		control_is_held = control_may_go = false;
		pthread_create(&thread, NULL, hold_control, NULL);
		while (!__atomic_load_n(&control_is_held, __ATOMIC_ACQUIRE))
			two_patience(since);
	}
	two_kill();
	until_told();
	assert_has(vbn_queue_error(two.queue), "its process has ended");
	if (control_held) {
		__atomic_store_n(&control_may_go, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
	}
	while (vbn_queue_outstanding(two.queue))
		take_events(&(uint64_t){0});
	two_disconnect();
	assert_true(WIFSIGNALED(two_wait()));
	assert_int_equal(shm_port(two.port)->counts[SHM_LOST_PEERS], 1);
}

/* The word that its kernel writes does, whatever the control thread is doing. */
static void test_told_by_word(void **state)
{
	(void)state;
	told_once("floods", true);
}

/* Where the other has no such word the socket does. */
static void test_told_by_socket(void **state)
{
	(void)state;
	told_once("floods wordless", false);
}

/* Of both: their large messages then go by reference. */
#define SHARED "SHM_SHARED"

static int open_shared(void **state)
{
	setenv(SHARED, "1", 1);
	two_pool_conf.memfd = VBN_ON;
	return two_open(state);
}

static int close_shared(void **state)
{
	unsetenv(SHARED);
	two_pool_conf.memfd = VBN_OFF;
	return two_close(state);
}

#define test(name)        cmocka_unit_test_setup_teardown(name, two_open, two_close)
#define test_shared(name) cmocka_unit_test_setup_teardown(name, open_shared, close_shared)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(test_echoes),
		test(test_told_by_word),
		test(test_told_by_socket),
		test(test_killed),
		test_shared(test_echoes),
		test_shared(test_killed),
	};

	signal(SIGPIPE, SIG_IGN);
	if (getenv(SHARED))
		two_pool_conf.memfd = VBN_ON;
	if (argc > 1 && !strcmp(argv[1], "echoes"))
		return other_echoes();
	if (argc > 1)
		return other_floods(argv[1]);
	return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
