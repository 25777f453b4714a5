/* error_test.c - what goes wrong, told as hardware tells it: syndromes, flush in order, states,
 * events */

#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* One send that fails, between good ones before it and ones behind it that are flushed in order. */
static void fail_between(struct pair *pair, struct ibv_send_wr *bad_wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;

	post_recv(&pair->b, 100, 0, 64);
	post_send(&pair->a, 1, IBV_WR_SEND, 0, 0, 8, NULL, 0); /* unsignalled, and good: no CQE */
	bad_wr->wr_id = 2;
	assert_int_equal(ibv_post_send(pair->a.qp, bad_wr, &bad), 0);
	post_send(&pair->a, 3, IBV_WR_SEND, 0, 0, 8, NULL, 0);
	post_send(&pair->a, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	expect_wc(pair->a.send_cq, 2, status);
	expect_wc(pair->a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair->a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair->b.recv_cq, 100, IBV_WC_SUCCESS);
	assert_int_equal(qp_state(pair->a.qp), IBV_QPS_ERR);
	expect_quiet(pair->a.send_cq);
}

/* What is posted to a failed QP is flushed too. */
static void flushes_later_posts(struct side *side)
{
	for (uint64_t i = 0; i < 5; i++) {
		post_recv(side, 200 + i, 0, 64);
		expect_wc(side->recv_cq, 200 + i, IBV_WC_WR_FLUSH_ERR);
		post_send(side, 300 + i, IBV_WR_SEND, 0, 0, 8, NULL, 0);
		expect_wc(side->send_cq, 300 + i, IBV_WC_WR_FLUSH_ERR);
	}
}

static void bad_lkey(void **state)
{
	struct pair_conf conf = {0};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
		struct ibv_pd *other;
		struct ibv_mr *mr;
		struct pair pair;

		pair_open(&pair, &conf);
		other = ibv_alloc_pd(pair.context);
		mr = ibv_reg_mr(other, pair.a.memory, 4096, 0);
		assert_non_null(mr);
		sge = (struct ibv_sge){(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey};
		if (i == 0)
			sge.lkey ^= 1; /* the variant of no registration */
		else if (i == 1)
			sge.lkey = mr->lkey; /* of another PD */
		else
			sge.addr += 65536 - 7; /* one byte behind the end */
		fail_between(&pair, &wr, IBV_WC_LOC_PROT_ERR);
		flushes_later_posts(&pair.a);
		assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_int_equal(ibv_dealloc_pd(other), 0);
		pair_close(&pair);
	}
}

/* The registration ends: its key is dead. */
static void stale_lkey(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_mr *mr;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	mr = ibv_reg_mr(pair.pd, pair.a.memory, 4096, 0);
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)pair.a.memory, 8, mr->lkey};
	assert_int_equal(ibv_dereg_mr(mr), 0);
	fail_between(&pair, &wr, IBV_WC_LOC_PROT_ERR);
	pair_close(&pair);
}

static void too_long_for_the_receive(void **state)
{
	struct pair_conf conf = {0};

	(void)state;
	for (int room = 0; room < 40; room += 39) {
		struct pair pair;

		pair_open(&pair, &conf);
		post_recv(&pair.b, 1, 0, (uint32_t)room);
		post_recv(&pair.b, 2, 0, 64);
		post_recv(&pair.b, 3, 0, 64);
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 40, NULL, 0);
		post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 40, NULL, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
		expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		expect_wc(pair.b.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
		expect_wc(pair.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
		expect_wc(pair.b.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
		flushes_later_posts(&pair.b);
		pair_close(&pair);
	}
}

/* A receive into memory that is not registered, or not for writing. */
static void receive_into_bad_memory(void **state)
{
	struct pair_conf conf = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge;
		struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
		struct ibv_mr *mr;
		struct pair pair;

		pair_open(&pair, &conf);
		mr = ibv_reg_mr(pair.pd, pair.b.memory, 4096, 0);
		assert_non_null(mr);
		sge = (struct ibv_sge){(uintptr_t)pair.b.memory, 64, i ? mr->lkey : 0x123400};
		assert_int_equal(ibv_post_recv(pair.b.qp, &wr, &bad), 0);
		post_recv(&pair.b, 2, 0, 64);
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 40, NULL, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_REM_OP_ERR);
		expect_wc(pair.b.recv_cq, 1, IBV_WC_LOC_PROT_ERR);
		expect_wc(pair.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		pair_close(&pair);
	}
}

static void expect_async(struct ibv_context *context, enum ibv_event_type type)
{
	struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(ibv_get_async_event(context, &event), 0);
	assert_int_equal(event.event_type, type);
	ibv_ack_async_event(&event);
}

enum refusal { BAD_KEY, OUT_OF_BOUNDS, NOT_BY_MEMORY, NOT_BY_QP, N_REFUSALS };

static void refused_by_peer(enum ibv_wr_opcode opcode, int right, enum refusal refusal)
{
	const int local = IBV_ACCESS_LOCAL_WRITE;
	const uint32_t length = 8;
	struct pair_conf conf = {.access = refusal == NOT_BY_QP ? local : local | right};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.wr_id = 1,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_mr *mr;
	struct pair pair;
	uint64_t addr;
	uint32_t key;

	pair_open(&pair, &conf);
	memset(pair.a.memory, 1, 64);
	mr = ibv_reg_mr(pair.pd, pair.b.memory, 4096,
		(unsigned int)(refusal == NOT_BY_MEMORY ? local : local | right));
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)pair.a.memory, length, pair.a.mr->lkey};
	addr = (uintptr_t)pair.b.memory + (refusal == OUT_OF_BOUNDS ? 4096 : 0);
	key = refusal == BAD_KEY ? mr->rkey + 1 : mr->rkey;
	if (right == IBV_ACCESS_REMOTE_ATOMIC) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = key;
	}
	post_recv(&pair.b, 7, 0, 64);
	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	post_send(&pair.a, 2, IBV_WR_SEND, 0, 0, 8, NULL, 0);
	expect_wc(pair.a.send_cq, 1,
		refusal == NOT_BY_QP ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR);
	expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair.b.recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
	expect_async(pair.context,
		refusal == NOT_BY_QP ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(pair.b.memory[0], 0);
	assert_int_equal(pair.a.memory[0], 1);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_close(&pair);
}

/* Each remote operation, refused for each reason. */
static void remote_access_refused(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		int right;
	} cases[] = {{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE},
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
		{IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};

	(void)state;
	for (size_t i = 0; i < N(cases); i++)
		for (enum refusal refusal = 0; refusal < N_REFUSALS; refusal++)
			refused_by_peer(cases[i].opcode, cases[i].right, refusal);
}

/* A write of no bytes needs no key. */
static void empty_write_needs_no_key(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_send_wr wr = {.wr_id = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void receiver_not_ready(void **state)
{
	struct pair_conf patient = {.rnr_retry = 7, .min_rnr_timer = 10 /* 0.32 ms */};
	struct pair_conf curt = {.no_retries = true},
			 few = {.rnr_retry = 3, .min_rnr_timer = 14 /* 1.28 ms */};
	struct pair pair;

	(void)state;
	pair_open(&pair, &patient);
	for (uint64_t i = 0; i < 8; i++)
		post_send(&pair.a, i, i & 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
			IBV_SEND_SIGNALED, 0, 8, &pair.b, 0);
	expect_quiet(pair.a.send_cq);
	for (uint64_t i = 0; i < 8; i++) {
		post_recv(&pair.b, i, 0, 64);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);

	for (int i = 0; i < 2; i++) {
		pair_open(&pair, i ? &few : &curt);
		post_send(&pair.a, 1, IBV_WR_SEND, 0, 0, 8, NULL, 0);
		post_send(&pair.a, 2, IBV_WR_SEND, 0, 0, 8, NULL, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
		pair_close(&pair);
	}
}

/* 30 segments of 40 MiB are more than the port's max_msg_sz of 1 GiB. */
static void message_too_long(void **state)
{
	enum { SEGMENTS = 30, BYTES = 40 << 20 };
	struct pair_conf conf = {.max_sge = SEGMENTS, .bytes = BYTES};
	struct ibv_sge sge[SEGMENTS];
	struct ibv_send_wr wr = {.sg_list = sge, .num_sge = SEGMENTS, .opcode = IBV_WR_SEND};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (int i = 0; i < SEGMENTS; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)pair.a.memory, BYTES, pair.a.mr->lkey};
	fail_between(&pair, &wr, IBV_WC_LOC_LEN_ERR);
	pair_close(&pair);
}

/* The requester waits as long as the responder's timer says, as often as it may, and then gives up.
 */
static void receiver_not_ready_takes_its_time(void **state)
{
	struct pair_conf conf = {.rnr_retry = 3, .min_rnr_timer = 20 /* 10.24 ms */};
	struct timespec start, end;
	struct pair pair;
	double ms;

	(void)state;
	pair_open(&pair, &conf);
	clock_gettime(CLOCK_MONOTONIC, &start);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	clock_gettime(CLOCK_MONOTONIC, &end);
	ms = (double)(end.tv_sec - start.tv_sec) * 1e3 +
		(double)(end.tv_nsec - start.tv_nsec) / 1e6;
	print_message("3 retries after 10.24 ms each: %.2f ms\n", ms);
	assert_true(ms > 3 * 10.24 - 0.1);
	pair_close(&pair);
}

/* The peer is gone, not ready, or connected to another. */
static void nobody_answers(void **state)
{
	struct pair_conf conf = {.timeout = 6 /* 0.26 ms */, .retry_cnt = 2, .unconnected = true};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct pair pair;

		pair_open(&pair, &conf);
		qp_to_rtr(&pair, &pair.a, &pair.b);
		if (i == 1)
			qp_to_rtr(&pair, &pair.b, &pair.b);
		qp_to_rts(&pair, &pair.a);
		if (i == 2) {
			assert_int_equal(ibv_destroy_qp(pair.b.qp), 0);
			pair.b.qp = NULL;
		}
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		pair_close(&pair);
	}
}

/* A peer that becomes ready within the retries gets the message. */
static void late_peer_is_reached(void **state)
{
	struct pair_conf conf = {.timeout = 12 /* 17 ms */, .unconnected = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	qp_to_rtr(&pair, &pair.a, &pair.b);
	qp_to_rts(&pair, &pair.a);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	expect_quiet(pair.a.send_cq);
	post_recv(&pair.b, 1, 0, 64);
	qp_to_rtr(&pair, &pair.b, &pair.a);
	expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* The program moves the QP to ERR: all that is outstanding is flushed, the receives too. */
static void modify_to_error_flushes(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 40; i++)
		post_recv(&pair.a, i, 0, 64);
	for (uint64_t i = 0; i < 30; i++)
		post_send(&pair.a, i, IBV_WR_SEND, 0, 0, 8, NULL, 0); /* b posts no receives */
	assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
	for (uint64_t i = 0; i < 40; i++)
		expect_wc(pair.a.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t i = 0; i < 30; i++)
		expect_wc(pair.a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
	flushes_later_posts(&pair.a);
	pair_close(&pair);
}

/* An atomic is of 8 bytes, and libmlx5 makes so many of each segment. By packets the vendor syndrome was that of a wrong lkey. */
static void vendor_syndromes(void **state)
{
	struct pair_conf conf = {
		.max_sge = 2, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_sge sge[2];
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, &conf);
	sge[0] = sge[1] = (struct ibv_sge){(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey};
	wr.sg_list = sge;
	wr.num_sge = 2;
	wr.wr.atomic.remote_addr = (uintptr_t)pair.b.memory;
	wr.wr.atomic.rkey = pair.b.mr->rkey;
	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	wc = wait_wc(pair.a.send_cq);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(wc.vendor_err, 0x6f);
	pair_close(&pair);
}

/* A CQ that nobody polls fills up; the next completion is lost, the CQ is dead, and the QP with it. It
 * stayed in RTS: what was posted from then on vanished. */
static void cq_overrun(void **state)
{
	struct pair_conf conf = {.cq_depth = 15};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 17; i++) {
		post_recv(&pair.b, i, 0, 64);
		post_send(&pair.a, i, IBV_WR_SEND, i < 16 ? 0 : IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	}
	expect_async(pair.context, IBV_EVENT_CQ_ERR);
	expect_async(pair.context, IBV_EVENT_QP_FATAL);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
	pair_close(&pair);
}

/* Transitions and attributes that the kernel's driver refuses. */
static void modify_refuses(void **state)
{
	struct pair_conf conf = {.unconnected = true};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct pair pair;
	int full = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.sgid_index = 3}};

	(void)state;
	pair_open(&pair, &conf);
	assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), EINVAL); /* INIT to RTS */
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full & ~IBV_QP_DEST_QPN), EINVAL);
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full | IBV_QP_TIMEOUT), EINVAL);
	rtr.path_mtu = 6;
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full), EINVAL);
	rtr.path_mtu = IBV_MTU_2048; /* above the port's, which was not looked at */
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full), EINVAL);
	rtr.path_mtu = IBV_MTU_1024;
	rtr.max_dest_rd_atomic = 17;
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full), EINVAL);
	rtr.max_dest_rd_atomic = 16;
	rtr.ah_attr.is_global = 0;
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full), EINVAL);
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.grh.sgid_index = 200; /* an empty entry */
	assert_int_not_equal(ibv_modify_qp(pair.a.qp, &rtr, full), 0);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_INIT);
	rtr.ah_attr.grh.sgid_index = 3;
	assert_int_equal(ibv_modify_qp(pair.a.qp, &rtr, full), 0);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_RTR);
	pair_close(&pair);
}

static void registration_refuses(void **state)
{
	struct pair_conf conf = {.unconnected = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	assert_null(ibv_reg_mr(
		pair.pd, (void *)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE)); /* nothing is there */
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_mr(pair.pd, pair.a.memory, 4096, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pair.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(pair.a.send_cq), EBUSY);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_lkey),
		cmocka_unit_test(stale_lkey),
		cmocka_unit_test(too_long_for_the_receive),
		cmocka_unit_test(receive_into_bad_memory),
		cmocka_unit_test(remote_access_refused),
		cmocka_unit_test(empty_write_needs_no_key),
		cmocka_unit_test(receiver_not_ready),
		cmocka_unit_test(receiver_not_ready_takes_its_time),
		cmocka_unit_test(message_too_long),
		cmocka_unit_test(nobody_answers),
		cmocka_unit_test(late_peer_is_reached),
		cmocka_unit_test(modify_to_error_flushes),
		cmocka_unit_test(vendor_syndromes),
		cmocka_unit_test(cq_overrun),
		cmocka_unit_test(modify_refuses),
		cmocka_unit_test(registration_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
