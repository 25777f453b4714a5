/* control_test.c - the control thread: calls in order, from many threads; watches; early and late
 * use */

#include "unit.h"

#include "run/run.h"

#include <fcntl.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

#define PATIENCE_NS (20ull * 1000 * 1000 * 1000)
#define CALLERS     4
#define CALLS       500

static int start(void **state)
{
	(void)state;
	unit_catch_log();
	return vbn__control_start();
}

static int stop(void **state)
{
	(void)state;
	vbn__control_stop();
	return 0;
}

static void wait_until(const int *counter, int value)
{
	uint64_t deadline = clock_ns() + PATIENCE_NS;

	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value) {
		assert_true(clock_ns() < deadline);
		sched_yield();
	}
}

/* ---- calls ---- */

static int twice(void *arg)
{
	return 2 * *(int *)arg;
}

static void a_call_returns_what_its_function_does(void **state)
{
	int number = 21;

	(void)state;
	assert_int_equal(vbn__control_call(-1, twice, &number), 42);
	number = -EACCES;
	assert_int_equal(vbn__control_call(-1, twice, &number), -2 * EACCES);
}

static int note_thread(void *arg)
{
	*(pthread_t *)arg = pthread_self();
	return 0;
}

static int call_within(void *arg)
{
	return vbn__control_call(-1, note_thread, arg);
}

static void a_call_from_the_control_thread_is_a_plain_one(void **state)
{
	pthread_t outer, inner;

	(void)state;
	assert_int_equal(vbn__control_call(-1, note_thread, &outer), 0);
	assert_false(pthread_equal(outer, pthread_self()));
	assert_int_equal(vbn__control_call(-1, call_within, &inner), 0);
	assert_true(pthread_equal(outer, inner));
}

/* What the calls of all callers write to, with no lock: the control thread alone does. */
static struct {
	int caller[CALLERS * CALLS], number[CALLERS * CALLS];
	int n;
	int running;
} book;

struct caller {
	pthread_t thread;
	int id, number;
	int n_wrong;
};

static int enter(void *arg)
{
	const struct caller *caller = arg;

	if (book.running++)
		return -EBUSY;
	book.caller[book.n] = caller->id;
	book.number[book.n] = caller->number;
	book.n++;
	book.running--;
	return caller->number;
}

static void *caller_main(void *arg)
{
	struct caller *caller = arg;

	for (caller->number = 0; caller->number < CALLS; caller->number++)
		if (vbn__control_call(caller->id % 2 ? 0 : -1, enter, caller) != caller->number)
			caller->n_wrong++;
	return NULL;
}

static void calls_of_many_threads_run_one_at_a_time_in_order(void **state)
{
	struct caller callers[CALLERS] = {0};
	int next[CALLERS] = {0};

	(void)state;
	memset(&book, 0, sizeof(book));
	for (int i = 0; i < CALLERS; i++) {
		callers[i].id = i;
		assert_int_equal(
			pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
	}
	for (int i = 0; i < CALLERS; i++)
		pthread_join(callers[i].thread, NULL);
	assert_int_equal(book.n, CALLERS * CALLS);
	for (int i = 0; i < CALLERS; i++)
		assert_int_equal(callers[i].n_wrong, 0);
	for (int i = 0; i < book.n; i++)
		assert_int_equal(book.number[i], next[book.caller[i]]++);
}

static int read_policy(void *arg)
{
	return get_mempolicy(arg, NULL, 0, NULL, 0) ? -errno : 0;
}

static void memory_is_preferred_on_a_node_for_one_call(void **state)
{
	int before = -1, during = -1, after = -1;

	(void)state;
	if (vbn__control_call(-1, read_policy, &before))
		return; /* a kernel without NUMA: the call has run all the same */
	assert_int_equal(vbn__control_call(0, read_policy, &during), 0);
	assert_int_equal(vbn__control_call(-1, read_policy, &after), 0);
	assert_int_equal(during, MPOL_PREFERRED);
	assert_int_equal(after, before);
}

static void a_node_that_is_none_does_not_matter(void **state)
{
	int number = 4;

	(void)state;
	assert_int_equal(vbn__control_call(1000, twice, &number), 8);
	assert_int_equal(vbn__control_call(100000, twice, &number), 8);
}

static int read_mask(void *arg)
{
	return pthread_sigmask(SIG_BLOCK, NULL, arg);
}

static void process_signals_are_blocked_on_it(void **state)
{
	sigset_t mask, mine;

	(void)state;
	assert_int_equal(vbn__control_call(-1, read_mask, &mask), 0);
	assert_true(sigismember(&mask, SIGINT));
	assert_true(sigismember(&mask, SIGTERM));
	assert_true(sigismember(&mask, SIGUSR1));
	assert_false(sigismember(&mask, SIGSEGV));
	pthread_sigmask(SIG_BLOCK, NULL, &mine);
	assert_false(sigismember(&mine, SIGINT));
}

/* ---- early and late ---- */

static void nodisturb(int fd, void *arg)
{
	(void)fd;
	(void)arg;
}

static void early_and_late_use_is_refused(void **state)
{
	int number = 1, fd = eventfd(1, EFD_CLOEXEC);

	(void)state;
	for (int round = 0; round < 3; round++) {
		assert_int_equal(vbn__control_call(-1, twice, &number), -ESHUTDOWN);
		assert_int_equal(vbn__control_watch(fd, nodisturb, NULL), -ESHUTDOWN);
		vbn__control_unwatch(fd);
		vbn__control_stop();
		assert_int_equal(vbn__control_core(), -ESHUTDOWN);
		assert_int_equal(vbn__control_start(), 0);
		assert_int_equal(vbn__control_start(), -EALREADY);
		assert_int_equal(vbn__control_call(-1, twice, &number), 2);
		vbn__control_stop();
	}
	close(fd);
}

static void *call_until_shut(void *arg)
{
	int number = 3, ret;

	do {
		ret = vbn__control_call(-1, twice, &number);
		__atomic_add_fetch((int *)arg, 1, __ATOMIC_ACQ_REL);
	} while (ret == 6);
	return ret == -ESHUTDOWN ? arg : NULL;
}

static void stopping_finishes_calls_under_way(void **state)
{
	pthread_t threads[CALLERS];
	int n_calls = 0;
	void *result;

	(void)state;
	assert_int_equal(vbn__control_start(), 0);
	for (int i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_until_shut, &n_calls), 0);
	wait_until(&n_calls, CALLS);
	vbn__control_stop();
	for (int i = 0; i < CALLERS; i++) {
		pthread_join(threads[i], &result);
		assert_non_null(result);
	}
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void nothing_is_left_open(void **state)
{
	int pipes[2], before;

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	before = count_fds();
	for (int round = 0; round < 10; round++) {
		assert_int_equal(vbn__control_start(), 0);
		assert_int_equal(vbn__control_watch(pipes[0], nodisturb, NULL), 0);
		vbn__control_stop(); /* with a watch that nobody has removed */
	}
	assert_int_equal(count_fds(), before);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- watches ---- */

struct watched {
	int fds[2];
	int n_calls; /* atomic */
	int n_wrong; /* the control thread's */
	int unwatch_at;
};

static void take_byte(int fd, void *arg)
{
	struct watched *watched = arg;
	char byte;

	if (fd != watched->fds[0] || read(fd, &byte, 1) != 1)
		watched->n_wrong++;
	if (__atomic_add_fetch(&watched->n_calls, 1, __ATOMIC_ACQ_REL) == watched->unwatch_at)
		vbn__control_unwatch(fd);
}

static void send_byte(const struct watched *watched)
{
	assert_int_equal(write(watched->fds[1], "", 1), 1);
}

static void make_pipe(struct watched *watched)
{
	memset(watched, 0, sizeof(*watched));
	assert_int_equal(pipe(watched->fds), 0);
}

static void close_pipe(const struct watched *watched)
{
	close(watched->fds[0]);
	close(watched->fds[1]);
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static void a_watch_is_called_while_readable_until_unwatched(void **state)
{
	struct watched one, two;

	(void)state;
	make_pipe(&one);
	make_pipe(&two);
	assert_int_equal(vbn__control_watch(one.fds[0], take_byte, &one), 0);
	assert_int_equal(vbn__control_watch(two.fds[0], take_byte, &two), 0);
	for (int i = 1; i <= 100; i++) {
		send_byte(&one);
		send_byte(i % 2 ? &one : &two);
	}
	wait_until(&one.n_calls, 150);
	wait_until(&two.n_calls, 50);
	assert_int_equal(vbn__control_watch(one.fds[0], take_byte, &one), -EEXIST);
	vbn__control_unwatch(one.fds[0]);
	send_byte(&one);
	send_byte(&two);
	wait_until(&two.n_calls, 51);
	assert_int_equal(vbn__control_call(-1, nothing, NULL), 0);
	assert_int_equal(one.n_calls, 150);
	assert_int_equal(one.n_wrong + two.n_wrong, 0);
	vbn__control_unwatch(two.fds[0]);
	close_pipe(&one);
	close_pipe(&two);
}

static void a_watch_may_remove_itself(void **state)
{
	struct watched watched;

	(void)state;
	make_pipe(&watched);
	watched.unwatch_at = 3;
	assert_int_equal(vbn__control_watch(watched.fds[0], take_byte, &watched), 0);
	for (int i = 0; i < 5; i++)
		send_byte(&watched);
	wait_until(&watched.n_calls, 3);
	assert_int_equal(vbn__control_call(-1, nothing, NULL), 0);
	assert_int_equal(vbn__control_call(-1, nothing, NULL), 0);
	assert_int_equal(watched.n_calls, 3);
	/* and be added again */
	assert_int_equal(vbn__control_watch(watched.fds[0], take_byte, &watched), 0);
	wait_until(&watched.n_calls, 5);
	vbn__control_unwatch(watched.fds[0]);
	close_pipe(&watched);
}

static void what_cannot_be_watched_is_refused(void **state)
{
	(void)state;
	assert_int_equal(vbn__control_watch(-1, nodisturb, NULL), -EBADF);
	vbn__control_unwatch(12345);
}

#define running(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		running(a_call_returns_what_its_function_does),
		running(a_call_from_the_control_thread_is_a_plain_one),
		running(calls_of_many_threads_run_one_at_a_time_in_order),
		running(memory_is_preferred_on_a_node_for_one_call),
		running(a_node_that_is_none_does_not_matter),
		running(process_signals_are_blocked_on_it),
		cmocka_unit_test(early_and_late_use_is_refused),
		cmocka_unit_test(stopping_finishes_calls_under_way),
		cmocka_unit_test(nothing_is_left_open),
		running(a_watch_is_called_while_readable_until_unwatched),
		running(a_watch_may_remove_itself),
		running(what_cannot_be_watched_is_refused),
	};

	return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
