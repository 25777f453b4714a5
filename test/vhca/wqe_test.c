/* wqe_test.c - WQEs written by hand into libmlx5's ring that break the device's rules, and what the
 * CQ then says */

#include "pair.h"

#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* A SEND of 8 bytes as it should be, which each case spoils. */
struct wqe {
	uint32_t opcode, index, opmod, qpn_xor, ds;
	uint32_t byte_count, lkey_xor;
	uint64_t addr_add;
	uint32_t data1; /* byte count of a second segment, where ds has one */
};

struct ring {
	struct mlx5dv_qp dv;
	struct mlx5dv_cq cq;
	uint16_t head; /* WQEBBs */
	uint32_t cq_head;
	uint32_t qpn, lkey;
	uint64_t memory;
};

static void take_ring(struct pair *pair, struct ring *ring)
{
	struct mlx5dv_obj object = {
		.qp = {pair->a.qp, &ring->dv}, .cq = {pair->a.send_cq, &ring->cq}};

	memset(ring, 0, sizeof(*ring));
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), 0);
	ring->qpn = pair->a.qp->qp_num;
	ring->lkey = pair->a.mr->lkey;
	ring->memory = (uintptr_t)pair->a.memory;
}

static const struct wqe good = {.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8};

static void write_wqe(struct ring *ring, const struct wqe *wqe)
{
	uint8_t *slot = (uint8_t *)ring->dv.sq.buf + (ring->head % ring->dv.sq.wqe_cnt) * 64;
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)slot;
	struct mlx5_wqe_data_seg *data = (void *)(slot + 16);

	memset(slot, 0, 64);
	ctrl->opmod_idx_opcode = htobe32(wqe->opmod << 24 |
		(uint32_t)(uint16_t)(ring->head + wqe->index) << 8 | wqe->opcode);
	ctrl->qpn_ds = htobe32((ring->qpn ^ wqe->qpn_xor) << 8 | wqe->ds);
	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	data->byte_count = htobe32(wqe->byte_count);
	data->lkey = htobe32(ring->lkey ^ wqe->lkey_xor);
	data->addr = htobe64(ring->memory + wqe->addr_add);
	data[1].byte_count = htobe32(wqe->data1);
	data[1].lkey = data->lkey;
	data[1].addr = data->addr;
	ring->head++;
}

/* Of the last WQE. */
static uint64_t first_words(struct ring *ring)
{
	uint16_t last = (uint16_t)(ring->head - 1);
	uint64_t words;

	memcpy(&words, (uint8_t *)ring->dv.sq.buf + (last % ring->dv.sq.wqe_cnt) * 64,
		sizeof(words));
	return words;
}

static void ring_doorbell(struct ring *ring, uint32_t record)
{
	__atomic_store_n(&ring->dv.dbrec[1], htobe32(record), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)ring->dv.bf.reg, first_words(ring), __ATOMIC_RELEASE);
}

static struct mlx5_err_cqe *wait_cqe(struct ring *ring)
{
	struct mlx5_cqe64 *cqe =
		(void *)((uint8_t *)ring->cq.buf + (ring->cq_head % ring->cq.cqe_cnt) * 64);
	uint8_t owner = ring->cq_head / ring->cq.cqe_cnt & 1;

	for (long i = 0; i < 2000000000; i++) {
		uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

		if (op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == owner) {
			ring->cq_head++;
			return (void *)cqe;
		}
	}
	fail_msg("no CQE %u", ring->cq_head);
	return NULL;
}

static void expect_cqe(struct ring *ring, uint8_t opcode, uint8_t syndrome, uint16_t counter)
{
	struct mlx5_err_cqe *cqe = wait_cqe(ring);

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
	take_ring(&pair, &ring);
	for (uint64_t i = 0; i < 5; i++)
		post_recv(&pair.b, i, 0, 4096);
	write_wqe(&ring, &good);
	write_wqe(&ring, &good);
	write_wqe(&ring, spoiled);
	write_wqe(&ring, &good);
	write_wqe(&ring, &good);
	ring_doorbell(&ring, ring.head);
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
	struct wqe wqe = good;
	struct ring ring;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	take_ring(&pair, &ring);
	wqe.ds = 63;
	write_wqe(&ring, &wqe);
	ring_doorbell(&ring, ring.head);
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
	take_ring(&pair, &ring);
	post_recv(&pair.b, 1, 0, 64);
	write_wqe(&ring, &good);
	ring_doorbell(&ring, 0x0100); /* what 1 looks like in a 16-bit counter of the other order */
	expect_cqe(&ring, MLX5_CQE_REQ, 0, 0);
	expect_cqe(&ring, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 1);
	pair_close(&pair);
}

/* Null segments carry no bytes: they are left out. */
static void null_segment(void **state)
{
	struct pair_conf conf = {0};
	struct wqe wqe = good;
	struct ring ring;
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	take_ring(&pair, &ring);
	post_recv(&pair.b, 1, 0, 64);
	wqe.byte_count = 0;
	wqe.lkey_xor = ring.lkey ^ MLX5_INVALID_LKEY;
	write_wqe(&ring, &wqe);
	ring_doorbell(&ring, ring.head);
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
