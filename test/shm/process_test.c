/* process_test.c - queues over shared memory between two processes: everything works; and one of them
 * is killed at any time, over and over: the other is told, has its memory back, and goes on with the
 * next
 *
 * SHM_KILLS says how often (12). What is said of time is said of the fastest, and printed of all.
 */

#include "two.h"

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

/* ---- killed at any time ---- */

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

static int other_floods(bool after)
{
	uint64_t received = 0;

	two_is_other();
	two_connect_after(after);
	for (uint64_t number = 0;; number++) {
		load_once_round(number);
		if (take_events(&received))
			return 1;
	}
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* One that has come by now gets nothing from who is gone; the next one works. */
static uint64_t kill_one(unsigned int round, unsigned int *seed)
{
	const uint64_t life = (uint64_t)(rand_r(seed) % 20000) * 1000;
	uint64_t begin, received = 0, killed = 0, number = 0;
	bool failed = false;

	two_start(round % 2 ? "floods" : "floods after");
	two_connect_after(round % 2);
	begin = clock_ns();
	while (!failed) {
		load_once_round(number++);
		failed = take_events(&received);
		if (!killed && clock_ns() - begin > life) {
			two_kill();
			killed = clock_ns();
		}
		two_patience(begin);
	}
	begin = clock_ns() - killed;
	if (!killed)
		unit_fail("it failed before the other was killed: %s", vbn_queue_error(two.queue));
	assert_has(vbn_queue_error(two.queue), "its process has ended");
	while (vbn_queue_outstanding(two.queue))
		take_events(&received);
	assert_int_equal(vbn_send_inline(two.queue, "x", 1), -EPIPE);
	two_disconnect();
	assert_int_equal(vbn_pool_available(two.pool), TWO_BUFS);
	assert_true(WIFSIGNALED(two_wait()));
	return begin;
}

static void test_killed(void **state)
{
	const char *asked = getenv("SHM_KILLS");
	const unsigned int n = asked ? (unsigned int)atoi(asked) : 12;
	uint64_t *times = calloc(n, sizeof(*times));
	unsigned int seed = (unsigned int)getpid();
	int descriptors = 0, segments = 0;

	(void)state;
	for (unsigned int i = 0; i < n; i++) {
		times[i] = kill_one(i, &seed);
		if (i)
			assert_int_equal(two_descriptors(), descriptors);
		if (i)
			assert_int_equal(two_segments(), segments);
		descriptors = two_descriptors();
		segments = two_segments();
	}
	assert_int_equal(segments, 0);
	qsort(times, n, sizeof(*times), compare);
	printf("%u deaths told after %.2f ms, median %.2f, at most %.2f\n", n,
		(double)times[0] / 1e6, (double)times[n / 2] / 1e6, (double)times[n - 1] / 1e6);
	assert_true(times[0] < SECOND_NS / 10);
	free(times);
}

#define test(name) cmocka_unit_test_setup_teardown(name, two_open, two_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(test_echoes),
		test(test_killed),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "echoes"))
		return other_echoes();
	if (argc > 1)
		return other_floods(!strcmp(argv[1], "floods after"));
	return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
