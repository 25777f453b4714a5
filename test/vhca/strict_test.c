/* strict_test.c - VHCA_STRICT: what a device leaves undefined goes on, fails, or stops the process
 */

#include "pair.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rings with a record a hundred rings ahead of its WQEs: undefined on a device. */
static void break_record(struct pair *pair)
{
	struct mlx5dv_qp qp = {0};
	uint64_t doorbell;
	struct mlx5dv_obj object = {.qp = {.in = pair->a.qp, .out = &qp}};

	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	post_recv(&pair->b, 1, 0, 64);
	post_send(&pair->a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
	__atomic_store_n(&qp.dbrec[1], htobe32(0x8000), __ATOMIC_RELEASE);
	memcpy(&doorbell, qp.sq.buf, sizeof(doorbell));
	__atomic_store_n((uint64_t *)qp.bf.reg, doorbell, __ATOMIC_RELEASE);
	wait_state(pair->a.qp, IBV_QPS_ERR);
}

/* What follows the broken record: by `report` the slot's stale WQE fails, by `error` the QP does,
 * with a flush. */
static int first_status(const char *strict)
{
	struct pair_conf conf = {0};
	struct pair pair;

	setenv("VHCA_STRICT", strict, 1);
	pair_open(&pair, &conf);
	break_record(&pair);
	return (int)wait_wc(pair.a.send_cq).status;
}

/* Each in a process of its own: the option is read once. */
static int status_of(const char *strict)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(first_status(strict));
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void undefined_goes_on_or_fails_or_stops(void **state)
{
	int status;

	(void)state;
	status = status_of("report");
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), IBV_WC_LOC_QP_OP_ERR);
	status = status_of("error");
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), IBV_WC_WR_FLUSH_ERR);
	status = status_of("abort");
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(undefined_goes_on_or_fails_or_stops)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
