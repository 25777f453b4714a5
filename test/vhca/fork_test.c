/* fork_test.c - what a child of fork() can and cannot do, and that its parent does not notice */

#include "pair.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void exchange(struct pair *pair)
{
	post_recv(&pair->b, 1, 0, 64);
	post_send(&pair->a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_wc(pair->a.send_cq, 2, IBV_WC_SUCCESS);
	expect_wc(pair->b.recv_cq, 1, IBV_WC_SUCCESS);
}

static void in_a_child(void (*run)(struct pair *pair), struct pair *pair)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		alarm(60);
		run(pair);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* An assertion that fails in a child must not go on with the parent's tests. */
static void check(bool right)
{
	if (!right)
		_exit(1);
}

static void command(struct pair *pair)
{
	errno = 0;
	check(!ibv_alloc_pd(pair->context));
	check(errno == EPERM);
	check(ibv_query_port(pair->context, 1, &(struct ibv_port_attr){.state = 0}) == EPERM);
}

static void test_a_command_is_refused(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	(void)state;
	pair_open(&pair, &conf);
	in_a_child(command, &pair);
	exchange(&pair);
	pair_close(&pair);
}

static void post(struct pair *pair)
{
	struct ibv_wc wc;

	memset(pair->a.memory, 0xff, 64);
	post_recv(&pair->b, 7, 0, 64);
	post_send(&pair->a, 8, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	for (int i = 0; i < 100; i++) {
		check(!ibv_poll_cq(pair->a.send_cq, 1, &wc));
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
}

/* A doorbell of the child's says what the parent's record does not: the device would be right to
 * complain, and under "abort" would end the parent. */
static void test_a_post_goes_nowhere(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	(void)state;
	pair_open(&pair, &conf);
	fill(pair.a.memory, 64, 3);
	in_a_child(post, &pair);
	expect_quiet(pair.b.recv_cq);
	exchange(&pair);
	assert_memory_equal(pair.a.memory, pair.b.memory, 64);
	pair_close(&pair);
}

static void open_anew(struct pair *unused)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	(void)unused;
	pair_open(&pair, &conf);
	for (int i = 0; i < 1000; i++)
		exchange(&pair);
	pair_close(&pair);
}

static void test_a_device_of_ones_own(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	(void)state;
	pair_open(&pair, &conf);
	in_a_child(open_anew, &pair);
	exchange(&pair);
	pair_close(&pair);
}

/* While the engine is in the middle of it, from a program with several threads' worth of work. */
static void test_many_forks_under_load(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	(void)state;
	pair_open(&pair, &conf);
	for (int i = 0; i < 50; i++) {
		pid_t child;
		int status;

		for (int k = 0; k < 16; k++)
			post_recv(&pair.b, 1, 0, 64);
		for (int k = 0; k < 16; k++)
			post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
		child = fork();
		assert_true(child >= 0);
		if (!child) {
			alarm(60);
			if (i % 10 == 0)
				open_anew(NULL);
			_exit(0);
		}
		for (int k = 0; k < 16; k++) {
			expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
			expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	pair_close(&pair);
}

static bool socket_exists(pid_t process)
{
	FILE *sockets = fopen("/proc/net/unix", "r");
	char line[512], name[64];
	bool found = false;

	assert_non_null(sockets);
	snprintf(name, sizeof(name), "@verbena-vhca/%d\n", process);
	while (fgets(line, sizeof(line), sockets))
		found |= strstr(line, name) != NULL;
	fclose(sockets);
	return found;
}

/* Given a process with a child, when it is killed, then the child keeps nothing of it alive. */
static void test_a_killed_process_leaves_nothing(void **state)
{
	int ready[2];
	pid_t killed, grandchild;
	int status;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	killed = fork();
	assert_true(killed >= 0);
	if (!killed) {
		struct pair pair;
		struct pair_conf conf = {.device = 0};

		alarm(60);
		pair_open(&pair, &conf);
		grandchild = fork();
		if (!grandchild) {
			alarm(60);
			pause();
			_exit(0);
		}
		check(write(ready[1], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	assert_true(socket_exists(killed));
	assert_int_equal(kill(killed, SIGKILL), 0);
	assert_int_equal(waitpid(killed, &status, 0), killed);
	for (int i = 0; i < 1000 && socket_exists(killed); i++) /* the grandchild forks just now */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_false(socket_exists(killed));
	assert_int_equal(kill(grandchild, SIGKILL), 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_killed_process_leaves_nothing),
		cmocka_unit_test(test_a_command_is_refused),
		cmocka_unit_test(test_a_post_goes_nowhere),
		cmocka_unit_test(test_a_device_of_ones_own),
		cmocka_unit_test(test_many_forks_under_load),
	};

	setenv("VHCA_STRICT", "abort", 1);
	return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
