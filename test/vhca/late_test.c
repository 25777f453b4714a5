/* late_test.c - VHCA_FAULT's delay-cqe, torn and rnr: completions that come late and in pieces, and a
 * receive that is not there once */

#include "pair.h"

#include <stdlib.h>
#include <time.h>

enum { DELAY_MS = 3, NOT_READY = 5 /* the message that finds no receive */ };

static const char spec[] = "torn,delay-cqe=3ms,rnr=5";

static double ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* First, since it counts messages: the fifth is asked for again after the responder's timer. */
static void once_not_ready(void **state)
{
	struct pair_conf conf = {.min_rnr_timer = 22 /* 20.48 ms */};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t i = 1; i <= 8; i++) {
		double start = ms(), took;

		post_recv(&pair.b, i, 0, 64);
		post_send(&pair.a, i, i & 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
			IBV_SEND_SIGNALED, 0, 8, &pair.b, 0);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
		took = ms() - start;
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		assert_true(took >= DELAY_MS);
		if (i == NOT_READY)
			assert_true(took >= DELAY_MS + 20.4);
	}
	pair_close(&pair);
}

static bool any_byte(const uint8_t *bytes, size_t n, uint8_t value)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] == value)
			return true;
	return false;
}

/* The ring is read as the device writes it: a piece of a CQE may be there long before its owner bit, or
 * not, and with the owner bit all of it is. Long before is a good part of the delay: a CQE that comes
 * as late and in one go is seen half written too, where this thread looks in the middle of that. */
static void in_pieces(void **state)
{
	enum { MARK = 0xa5 };
	struct pair_conf conf = {.no_scatter = true};
	struct mlx5dv_cq cq = {0};
	struct mlx5dv_obj object = {.cq = {.out = &cq}};
	int seen = 0;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	object.cq.in = pair.b.recv_cq;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
	for (uint64_t i = 0; i < 40; i++) {
		uint8_t *slot = (uint8_t *)cq.buf + i % cq.cqe_cnt * 64;
		double first = 0; /* when its first piece was seen */

		memset(slot, MARK, 60);
		fill(pair.a.memory, 64, (uint32_t)i);
		post_recv(&pair.b, i, 0, 64);
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
		for (;;) {
			struct mlx5_cqe64 *cqe = (void *)slot;
			uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

			if (op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == (i / cq.cqe_cnt & 1))
				break;
			if (first == 0 && __atomic_load_n(slot, __ATOMIC_RELAXED) != MARK)
				first = ms();
		}
		seen += first > 0 && ms() - first > DELAY_MS / 2.0;
		assert_false(any_byte(slot, 16, MARK));
		assert_memory_equal(pair.a.memory, pair.b.memory, 64);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
	}
	print_message("the first piece of %d CQEs of 40 was early\n", seen);
	assert_true(seen > 5 && seen < 35);
	pair_close(&pair);
}

/* Late completions are in order, and none is lost or left behind when queues are reset or go. */
static void in_order(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct pair_conf conf = {0};
	struct pair pair;

	(void)state;
	for (int cqe_size = 64; cqe_size <= 128; cqe_size += 64) {
		conf.cqe_size = cqe_size;
		pair_open(&pair, &conf);
		for (int round = 0; round < 3; round++) {
			for (uint64_t i = 0; i < 32; i++) {
				fill(pair.a.memory + i * 64, 64, (uint32_t)i);
				post_recv(&pair.b, i, i * 64, 64);
				post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, i * 64,
					(uint32_t)i, NULL, 0);
			}
			for (uint64_t i = 0; i < 32; i++) {
				struct ibv_wc wc = wait_wc(pair.b.recv_cq);

				assert_int_equal(wc.status, IBV_WC_SUCCESS);
				assert_int_equal(wc.wr_id, i);
				assert_int_equal(wc.byte_len, i);
				assert_memory_equal(
					pair.a.memory + i * 64, pair.b.memory + i * 64, i);
				expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
			}
		}
		post_recv(&pair.b, 1, 0, 64);
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
		expect_quiet(pair.b.recv_cq);
		pair_close(&pair);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(once_not_ready),
		cmocka_unit_test(in_pieces),
		cmocka_unit_test(in_order),
	};

	setenv("VHCA_FAULT", spec, 1); /* before the device is looked for, which reads it */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
