/* state_test.c - a QP's states and what is done in each, and registrations that change */

#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void expect_event(struct pair *pair, enum ibv_event_type type)
{
	struct pollfd ready = {.fd = pair->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(ibv_get_async_event(pair->context, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, pair->a.qp);
	ibv_ack_async_event(&event);
}

/* A drained queue keeps what is posted for later, and still receives. */
static void drained(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct pair_conf conf = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t round = 0; round < 3; round++) {
		assert_int_equal(
			ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
			0);
		expect_event(&pair, IBV_EVENT_SQ_DRAINED);
		assert_int_equal(qp_state(pair.a.qp), IBV_QPS_SQD);
		for (uint64_t i = 0; i < 10; i++) {
			post_recv(&pair.b, i, 0, 64);
			post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		}
		post_recv(&pair.a, 1, 0, 64);
		post_send(&pair.b, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		expect_wc(pair.b.send_cq, 1, IBV_WC_SUCCESS);
		expect_wc(pair.a.recv_cq, 1, IBV_WC_SUCCESS);
		expect_quiet(pair.a.send_cq);
		assert_int_equal(to_state(pair.a.qp, IBV_QPS_RTS), 0);
		for (uint64_t i = 0; i < 10; i++) {
			expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
			expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
		}
	}
	pair_close(&pair);
}

static bool has_event(struct pair *pair, int ms)
{
	struct pollfd ready = {.fd = pair->context->async_fd, .events = POLLIN};

	return poll(&ready, 1, ms) == 1;
}

static unsigned long long rnr_naks(void)
{
	FILE *file =
		fopen("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rnr_nak_retry_err", "re");
	unsigned long long value;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &value), 1);
	fclose(file);
	return value;
}

/* A send that waits for its peer's receive has begun: only its end drains the queue. What is behind it
 * has not. */
static void drains_what_has_begun(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct pair_conf conf = {.min_rnr_timer = 10 /* 0.32 ms */};
	struct ibv_qp_init_attr init;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	while (!rnr_naks())
		usleep(1000);
	assert_int_equal(
		ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	assert_false(has_event(&pair, 50));
	assert_int_equal(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_SQD);
	assert_int_equal(attr.sq_draining, 1);
	post_recv(&pair.b, 3, 0, 64);
	post_recv(&pair.b, 4, 0, 64);
	expect_event(&pair, IBV_EVENT_SQ_DRAINED);
	expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.sq_draining, 0);
	expect_quiet(pair.a.send_cq);
	assert_int_equal(to_state(pair.a.qp, IBV_QPS_RTS), 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	/* Without being asked for there is no event. */
	assert_int_equal(to_state(pair.a.qp, IBV_QPS_SQD), 0);
	assert_false(has_event(&pair, 50));
	pair_close(&pair);
}

static void send_to_b(struct pair *pair, struct ibv_ah *ah, uint64_t wr_id, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.memory, 8, lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
	wr.wr.ud.remote_qkey = PAIR_QKEY;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

/* The error, then what is behind it, and what comes until the queue is back in RTS. */
static void fail_and_recover(struct pair *pair, struct ibv_ah *ah)
{
	send_to_b(pair, ah, 1, pair->a.mr->lkey ^ 0x100);
	send_to_b(pair, ah, 2, pair->a.mr->lkey);
	expect_wc(pair->a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	expect_wc(pair->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state(pair->a.qp), IBV_QPS_SQE);
	send_to_b(pair, ah, 3, pair->a.mr->lkey);
	expect_wc(pair->a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_quiet(pair->a.recv_cq);
	assert_int_equal(to_state(pair->a.qp, IBV_QPS_RTS), 0);
	post_recv(&pair->b, 4, 0, 64);
	send_to_b(pair, ah, 5, pair->a.mr->lkey);
	expect_wc(pair->a.send_cq, 5, IBV_WC_SUCCESS);
	expect_wc(pair->b.recv_cq, 4, IBV_WC_SUCCESS);
}

/* An error of a send of UC or UD is its send queue's alone. */
static void send_queue_error(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};

	(void)state;
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		struct pair_conf conf = {.type = types[t]};
		struct ibv_ah_attr to = {
			.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3, .hop_limit = 1}};
		struct ibv_ah *ah;
		struct pair pair;

		pair_open(&pair, &conf);
		assert_int_equal(ibv_query_gid(pair.context, 1, 3, &to.grh.dgid), 0);
		ah = ibv_create_ah(pair.pd, &to);
		assert_non_null(ah);
		post_recv(&pair.a, 7, 0, 64); /* stays where it is */
		for (int round = 0; round < 3; round++)
			fail_and_recover(&pair, ah);
		assert_int_equal(to_state(pair.a.qp, IBV_QPS_ERR), 0);
		expect_wc(pair.a.recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(ibv_destroy_ah(ah), 0);
		pair_close(&pair);
	}
}

/* Receives posted in INIT wait; sends wait for RTS; neither is lost on the way. */
static void posted_early(void **state)
{
	struct pair_conf conf = {.unconnected = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	post_recv(&pair.b, 1, 0, 64);
	qp_to_rtr(&pair, &pair.a, &pair.b);
	qp_to_rtr(&pair, &pair.b, &pair.a);
	qp_to_rts(&pair, &pair.a);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTR);
	pair_close(&pair);
}

/* From every state to ERR and to RESET: what is posted is flushed in ERR, in order, and gone without
 * a word in RESET. */
static void error_and_reset(void **state)
{
	static const enum ibv_qp_state from[] = {
		IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};

	(void)state;
	for (size_t f = 0; f < sizeof(from) / sizeof(from[0]); f++) {
		for (int through_error = 0; through_error < 2; through_error++) {
			struct pair_conf conf = {.unconnected = true};
			struct pair pair;

			pair_open(&pair, &conf);
			if (from[f] > IBV_QPS_INIT)
				qp_to_rtr(&pair, &pair.a, &pair.b);
			if (from[f] > IBV_QPS_RTR)
				qp_to_rts(&pair, &pair.a);
			if (from[f] > IBV_QPS_RTS)
				assert_int_equal(to_state(pair.a.qp, from[f]), 0);
			assert_int_equal(qp_state(pair.a.qp), from[f]);
			for (uint64_t i = 0; from[f] != IBV_QPS_ERR && i < 5; i++)
				post_recv(&pair.a, i, 0, 64);
			if (through_error) {
				assert_int_equal(to_state(pair.a.qp, IBV_QPS_ERR), 0);
				for (uint64_t i = 0; from[f] != IBV_QPS_ERR && i < 5; i++)
					expect_wc(pair.a.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
			}
			assert_int_equal(to_state(pair.a.qp, IBV_QPS_RESET), 0);
			assert_int_equal(qp_state(pair.a.qp), IBV_QPS_RESET);
			expect_quiet(pair.a.recv_cq);
			qp_to_init(pair.a.qp, conf.access);
			qp_to_rtr(&pair, &pair.a, &pair.b);
			qp_to_rtr(&pair, &pair.b, &pair.a);
			qp_to_rts(&pair, &pair.b);
			post_recv(&pair.a, 7, 0, 64);
			post_send(&pair.b, 8, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
			expect_wc(pair.b.send_cq, 8, IBV_WC_SUCCESS);
			expect_wc(pair.a.recv_cq, 7, IBV_WC_SUCCESS);
			pair_close(&pair);
		}
	}
}

/* ---- registrations that change ---- */

static void send_from(struct pair *pair, uint32_t lkey, const void *from, enum ibv_wc_status status)
{
	struct ibv_sge sge = {(uintptr_t)from, 8, lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	post_recv(&pair->b, 2, 0, 64);
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	expect_wc(pair->a.send_cq, 1, status);
	if (status == IBV_WC_SUCCESS)
		expect_wc(pair->b.recv_cq, 2, IBV_WC_SUCCESS);
}

/* Another place: the key changes with it, and the old one is dead. */
static void moved(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_mr *mr;
	struct pair pair;
	uint32_t before;

	(void)state;
	pair_open(&pair, &conf);
	mr = ibv_reg_mr(pair.pd, pair.a.memory, 4096, 0);
	assert_non_null(mr);
	send_from(&pair, mr->lkey, pair.a.memory, IBV_WC_SUCCESS);
	before = mr->lkey;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				 pair.a.memory + 8192, 4096, 0),
		0);
	assert_int_not_equal(mr->lkey, before);
	send_from(&pair, mr->lkey, pair.a.memory + 8192, IBV_WC_SUCCESS);
	send_from(&pair, before, pair.a.memory + 8192, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_close(&pair);
}

/* Another protection domain, other rights: the QP may no longer use it, or not for that. */
static void other_rights(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct pair_conf conf = {0};
		struct ibv_mr *mr;
		struct ibv_pd *pd;
		struct pair pair;

		pair_open(&pair, &conf);
		pd = ibv_alloc_pd(pair.context);
		mr = ibv_reg_mr(pair.pd, pair.b.memory, 4096,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_RELAXED_ORDERING);
		assert_non_null(mr);
		pair.b.mr->rkey ^= mr->rkey; /* post_send() takes it from there */
		mr->rkey ^= pair.b.mr->rkey;
		pair.b.mr->rkey ^= mr->rkey;
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &pair.b, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
		assert_int_equal(i ? ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0)
				   : ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					     IBV_ACCESS_LOCAL_WRITE),
			0);
		post_send(&pair.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &pair.b, 0);
		expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
		wait_state(pair.b.qp, IBV_QPS_ERR);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
		pair_close(&pair);
	}
}

/* Keys do not come back soon: one of a registration that has ended is of no other. */
static void keys_are_new(void **state)
{
	enum { N = 2000 };
	static uint32_t keys[N];
	struct pair_conf conf = {.unconnected = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (int i = 0; i < N; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, pair.a.memory, 4096, 0);

		assert_non_null(mr);
		keys[i] = mr->lkey;
		assert_int_equal(mr->rkey, mr->lkey);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(keys[i], keys[j]);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(drained),
		cmocka_unit_test(drains_what_has_begun),
		cmocka_unit_test(send_queue_error),
		cmocka_unit_test(posted_early),
		cmocka_unit_test(error_and_reset),
		cmocka_unit_test(moved),
		cmocka_unit_test(other_rights),
		cmocka_unit_test(keys_are_new),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
