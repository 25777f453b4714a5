/* trace_test.c - what a trace says of one message and of one that fails */

#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[64];

/* Reads on until a line has all of these; its order is theirs. */
static void expect_line(FILE *trace, const char *first, const char *second)
{
	static char line[4096];
	const char *at;

	while (fgets(line, sizeof(line), trace)) {
		at = strstr(line, first);
		if (at && strstr(at, second))
			return;
	}
	fail_msg("no line \"%s\" ... \"%s\" is left", first, second);
}

static void test_a_message(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0, .no_scatter = true};
	char wqe[64], key[64], done[64], received[64], flushed[64];
	FILE *trace;

	(void)state;
	pair_open(&pair, &conf);
	post_recv(&pair.b, 1, 0, 100);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 80, NULL, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	post_recv(&pair.b, 1, 0, 100);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 101, NULL, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	snprintf(wqe, sizeof(wqe), " mlx5_0 qp 0x%x wqe 0 SEND ds 2 signalled; lkey 0x%x addr ",
		pair.a.qp->qp_num, pair.a.mr->lkey);
	snprintf(key, sizeof(key), " us; key 0x%x start ", pair.a.mr->lkey);
	snprintf(done, sizeof(done), " REQ SEND qp 0x%x wqe 0 80 bytes\n", pair.a.qp->qp_num);
	snprintf(received, sizeof(received), " RESP_SEND qp 0x%x wqe 0 80 bytes\n",
		pair.b.qp->qp_num);
	snprintf(flushed, sizeof(flushed), " qp 0x%x wqe 1\n", pair.a.qp->qp_num);
	pair_close(&pair);

	trace = fopen(path, "r");
	assert_non_null(trace);
	expect_line(trace, " mlx5_0 method GET_CONTEXT: ok, ", " us\n");
	expect_line(trace, " mlx5_0 command REG_MR: ok, ", key);
	expect_line(trace, " mlx5_0 command MODIFY_QP: ok, ", " to state 3");
	expect_line(trace, " doorbell 0x", " wqe 0\n");
	expect_line(trace, wqe, " 80\n");
	expect_line(trace, " mlx5_0 qp 0x", " receive 0; lkey 0x");
	expect_line(trace, " mlx5_0 cq 0x", received);
	expect_line(trace, " mlx5_0 cq 0x", done);
	expect_line(trace, " RESP_ERR syndrome 0x01 (local length) ", " wqe 1\n");
	expect_line(trace, " REQ_ERR syndrome 0x12 (remote invalid request) ", flushed);
	expect_line(trace, " mlx5_0 method DESTROY_QP: ok, ", " us\n");
	fclose(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_message)};
	int failed;

	snprintf(path, sizeof(path), "/tmp/vhca-trace-test.%d", getpid());
	setenv("VHCA_TRACE", path, 1);
	failed = cmocka_run_group_tests_name("trace", tests, NULL, NULL);
	unlink(path);
	return failed;
}
