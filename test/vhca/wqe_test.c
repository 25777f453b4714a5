/* wqe_test.c - WQEs written by hand into libmlx5's ring that break the device's rules, and what the
 * CQ then says */

#include "ring.h"

#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static void expect_cqe(struct ring *ring, uint8_t opcode, uint8_t syndrome, uint16_t counter)
{
	struct mlx5_err_cqe *cqe = ring_wait(ring);

	assert_int_equal(cqe->op_own >> 4, opcode);
	if (opcode == MLX5_CQE_REQ_ERR)
		assert_int_equal(cqe->syndrome, syndrome);
	assert_int_equal(be16toh(cqe->wqe_counter), counter);
	assert_int_equal(be32toh(cqe->s_wqe_opcode_qpn) & 0xffffff, ring->qpn);
}

/* Two good WQEs, the spoiled one, two more: success, success, the syndrome, flush, flush. */
static void expect_syndrome(const struct wqe *spoiled, uint8_t syndrome)
{
	struct pair_conf conf = {.no_scatter = true};
	struct ring ring;
	struct pair pair;

	pair_open(&pair, &conf);
	ring_take(&ring, &pair.a);
	for (uint64_t i = 0; i < 5; i++)
		post_recv(&pair.b, i, 0, 4096);
	ring_write(&ring, &good_send);
	ring_write(&ring, &good_send);
	ring_write(&ring, spoiled);
	ring_write(&ring, &good_send);
	ring_write(&ring, &good_send);
	ring_post(&ring);
	expect_cqe(&ring, MLX5_CQE_REQ, 0, 0);
	expect_cqe(&ring, MLX5_CQE_REQ, 0, 1);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, syndrome, 2);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 3);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 4);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
	expect_wc(pair.b.recv_cq, 0, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	expect_quiet(pair.b.recv_cq);
	pair_close(&pair);
}

static void spoiled_wqes(void **state)
{
	static const struct {
		const char *what;
		struct wqe wqe;
		uint8_t syndrome;
	} cases[] = {
		{"an index that is not the slot's",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8, .index = 1},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"the number of another QP",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8, .qpn_xor = 1},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"a size of 0", {.opcode = MLX5_OPCODE_SEND, .ds = 0, .byte_count = 8},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"an opcode modifier",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8, .opmod = 1},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"a send that invalidates, which the device does not offer",
			{.opcode = MLX5_OPCODE_SEND_INVAL, .ds = 2, .byte_count = 8},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"a change of a key, which it does not offer either",
			{.opcode = MLX5_OPCODE_UMR, .ds = 2, .byte_count = 8},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"no opcode of an RC QP", {.opcode = 0x3f, .ds = 2, .byte_count = 8},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"a write without its remote address",
			{.opcode = MLX5_OPCODE_RDMA_WRITE, .ds = 1, .byte_count = 8},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
		{"a key of nothing",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8, .lkey_xor = 0x70},
			MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
		{"an address in front of the memory",
			{.opcode = MLX5_OPCODE_SEND,
				.ds = 2,
				.byte_count = 8,
				.addr_add = (uint64_t)-1},
			MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
		{"an end behind the memory",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 65537},
			MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
		{"a byte count of 0, which is 2 GiB",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 0},
			MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
		{"a bad second segment",
			{.opcode = MLX5_OPCODE_SEND, .ds = 3, .byte_count = 8, .data1 = 65537},
			MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
		{"inline data longer than the WQE",
			{.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 0x80000000 | 13},
			MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
	};

	(void)state;
	for (size_t i = 0; i < N(cases); i++) {
		print_message("%s\n", cases[i].what);
		expect_syndrome(&cases[i].wqe, cases[i].syndrome);
	}
}

/* A size that reaches past what the record has published. */
static void size_past_the_record(void **state)
{
	struct pair_conf conf = {0};
	struct wqe wqe = good_send;
	struct ring ring;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	ring_take(&ring, &pair.a);
	wqe.ds = 63;
	ring_write(&ring, &wqe);
	ring_post(&ring);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
	pair_close(&pair);
}

/* A record in host order sends the device far ahead: it stops at the first slot that holds no WQE
 * of that index. */
static void record_in_host_order(void **state)
{
	struct pair_conf conf = {0};
	struct ring ring;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	ring_take(&ring, &pair.a);
	post_recv(&pair.b, 1, 0, 64);
	ring_write(&ring, &good_send);
	ring_post_record(
		&ring, 0x0100); /* what 1 looks like in a 16-bit counter of the other order */
	expect_cqe(&ring, MLX5_CQE_REQ, 0, 0);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 1);
	pair_close(&pair);
}

/* Null segments carry no bytes: they are left out. */
static void null_segment(void **state)
{
	struct pair_conf conf = {0};
	struct wqe wqe = good_send;
	struct ring ring;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	ring_take(&ring, &pair.a);
	post_recv(&pair.b, 1, 0, 64);
	wqe.byte_count = 0;
	wqe.lkey_xor = ring.lkey ^ MLX5_INVALID_LKEY;
	ring_write(&ring, &wqe);
	ring_post(&ring);
	expect_cqe(&ring, MLX5_CQE_REQ, 0, 0);
	assert_int_equal(wait_wc(pair.b.recv_cq).byte_len, 0);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(spoiled_wqes),
		cmocka_unit_test(size_past_the_record),
		cmocka_unit_test(record_in_host_order),
		cmocka_unit_test(null_segment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
