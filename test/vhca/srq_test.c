/* srq_test.c - receives that several QPs share: order, free WQEs in any order, the limit, errors */

#include "pair.h"

#include <poll.h>
#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const uint32_t sizes[] = {0, 1, 31, 32, 33, 64, 256, 4096, 1 << 20};

static void every_size(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
	uint64_t wr_id = 0;

	(void)state;
	for (int v = 0; v < 4; v++) {
		struct pair_conf conf = {.cqe_size = v & 1 ? 128 : 64,
			.no_scatter = v & 2,
			.srq = true,
			.bytes = (1 << 20) + 64};
		struct pair pair;

		pair_open(&pair, &conf);
		for (size_t i = 0; i < N(opcodes) * N(sizes) * 8; i++, wr_id++) {
			uint32_t length = sizes[i % N(sizes)];
			struct ibv_wc wc;

			fill(pair.a.memory, length, (uint32_t)wr_id);
			memset(pair.b.memory, 0xee, length + 64);
			post_recv(&pair.b, wr_id, 0, 1 << 20);
			post_send(&pair.a, wr_id, opcodes[i % N(opcodes)], IBV_SEND_SIGNALED, 0,
				length, &pair.b, 0);
			expect_wc(pair.a.send_cq, wr_id, IBV_WC_SUCCESS);
			wc = wait_wc(pair.b.recv_cq);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, wr_id);
			assert_int_equal(wc.byte_len, length);
			assert_memory_equal(pair.a.memory, pair.b.memory, length);
			for (size_t b = length; b < length + 64; b++)
				assert_int_equal(pair.b.memory[b], 0xee);
		}
		pair_close(&pair);
	}
}

/* Both sides of several pairs receive from one SRQ, and free its WQEs in an order of their own:
 * each receive is used once, and has what was sent. */
static void many_qps(void **state)
{
	enum { PAIRS = 8, DEPTH = 64, SIZE = 48, ROUNDS = 3000 };
	static struct pair pairs[PAIRS];
	struct pair_conf conf = {.srq = true, .no_scatter = true};
	uint32_t posted = 0, received = 0;
	bool in_use[DEPTH] = {false};

	(void)state;
	pair_open(&pairs[0], &conf);
	for (int i = 1; i < PAIRS; i++) {
		conf.share = &pairs[0];
		pair_open(&pairs[i], &conf);
	}
	for (; posted < DEPTH; posted++) {
		post_recv(&pairs[0].b, posted, posted * SIZE, SIZE);
		in_use[posted] = true;
	}
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < PAIRS; i++) {
			memset(pairs[i].a.memory, (int)(round + (uint32_t)i), SIZE);
			post_send(&pairs[i].a, round, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, SIZE, NULL,
				0);
		}
		for (int i = PAIRS - 1; i >= 0; i--) {
			struct ibv_wc wc = wait_wc(pairs[i].b.recv_cq);
			const uint8_t *got;

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_true(wc.wr_id < DEPTH && in_use[wc.wr_id]);
			assert_int_equal(wc.qp_num, pairs[i].b.qp->qp_num);
			got = pairs[0].b.memory + wc.wr_id * SIZE;
			for (int b = 0; b < SIZE; b++)
				assert_int_equal(got[b], (uint8_t)(round + (uint32_t)i));
			post_recv(&pairs[0].b, wc.wr_id, wc.wr_id * SIZE, SIZE);
			received++;
			expect_wc(pairs[i].a.send_cq, round, IBV_WC_SUCCESS);
		}
	}
	assert_int_equal(received, ROUNDS * PAIRS);
	for (int i = PAIRS - 1; i >= 0; i--)
		pair_close(&pairs[i]);
}

static void expect_event(struct pair *pair, enum ibv_event_type type)
{
	struct pollfd ready = {.fd = pair->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(ibv_get_async_event(pair->context, &event), 0);
	assert_int_equal(event.event_type, type);
	if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
		assert_ptr_equal(event.element.srq, pair->srq);
	ibv_ack_async_event(&event);
}

/* The limit tells once, when fewer WQEs than it are left, and then is armed no more. */
static void limit(void **state)
{
	struct pair_conf conf = {.srq = true};
	struct ibv_srq_attr attr = {.srq_limit = 5};
	struct pollfd ready;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	ready = (struct pollfd){.fd = pair.context->async_fd, .events = POLLIN};
	for (uint64_t i = 0; i < 10; i++)
		post_recv(&pair.b, i, 0, 64);
	assert_int_equal(ibv_modify_srq(pair.srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(pair.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 5);
	for (uint64_t i = 0; i < 10; i++) {
		assert_int_equal(poll(&ready, 1, 0), 0);
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
		if (i == 5)
			expect_event(&pair, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	assert_int_equal(ibv_query_srq(pair.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	attr.srq_limit = attr.max_wr + 1;
	assert_int_equal(ibv_modify_srq(pair.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	pair_close(&pair);
}

/* A QP that fails leaves the SRQ's WQEs to others, but for the one that was in hand; it tells when
 * it takes no more. */
static void one_fails(void **state)
{
	struct pair_conf conf = {.srq = true};
	struct pair pair, other;

	(void)state;
	pair_open(&pair, &conf);
	conf.share = &pair;
	pair_open(&other, &conf);
	for (uint64_t i = 0; i < 3; i++)
		post_recv(&pair.b, i, 0, 32);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 33, NULL, 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(pair.b.recv_cq, 0, IBV_WC_LOC_LEN_ERR);
	expect_event(&pair, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
	for (uint64_t i = 1; i < 3; i++) {
		post_send(&other.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 32, NULL, 0);
		expect_wc(other.a.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(other.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	expect_quiet(pair.b.recv_cq);
	pair_close(&other);
	/* a failed as a requester, and it receives from the SRQ too */
	expect_event(&pair, IBV_EVENT_QP_LAST_WQE_REACHED);
	pair_close(&pair);
}

/* No receive is left: the requester waits, and goes on when there is one. */
static void empty(void **state)
{
	struct pair_conf conf = {.srq = true, .min_rnr_timer = 10};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 100; i++) {
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		if (i % 10 == 0)
			expect_quiet(pair.a.send_cq);
		post_recv(&pair.b, i, 0, 32);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size),
		cmocka_unit_test(many_qps),
		cmocka_unit_test(limit),
		cmocka_unit_test(one_fails),
		cmocka_unit_test(empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
