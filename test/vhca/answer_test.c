/* answer_test.c - RDMA read and atomics: what comes back, where it lies, and in which order */

#include "pair.h"

#include <stdlib.h>

static const uint32_t sizes[] = {0, 1, 31, 32, 33, 64, 256, 4096, 1 << 20};

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum {
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC
};

/* Every combination of the CQE's size, scatter to CQE, whether all is signalled, and an SRQ. */
static struct pair_conf variant(int i)
{
	return (struct pair_conf){.cqe_size = i & 1 ? 128 : 64,
		.no_scatter = i & 2,
		.signal_all = i & 4,
		.srq = i & 8,
		.access = ALL_ACCESS,
		.max_rd_atomic = 16,
		.bytes = (1 << 20) + 64};
}

enum { N_VARIANTS = 16 };

static void read_by_wr(struct pair *pair, uint64_t wr_id, uint32_t length)
{
	struct ibv_qp_ex *qp = pair->a.qpx;

	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, pair->b.mr->rkey, (uintptr_t)pair->b.memory);
	if (length)
		ibv_wr_set_sge(qp, pair->a.mr->lkey, (uintptr_t)pair->a.memory, length);
	else
		ibv_wr_set_sge_list(qp, 0, NULL);
	assert_int_equal(ibv_wr_complete(qp), 0);
}

static void one_read(struct pair *pair, bool by_wr, uint32_t length)
{
	static uint64_t wr_id;
	struct ibv_wc wc;

	wr_id++;
	fill(pair->b.memory, length, (uint32_t)wr_id);
	memset(pair->a.memory, 0xee, length + 64);
	if (by_wr)
		read_by_wr(pair, wr_id, length);
	else
		post_send(&pair->a, wr_id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, length, &pair->b,
			0);
	wc = wait_wc(pair->a.send_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, length);
	assert_memory_equal(pair->a.memory, pair->b.memory, length);
	for (size_t i = length; i < length + 64; i++)
		assert_int_equal(pair->a.memory[i], 0xee);
}

static void reads_of_every_size(void **state)
{
	(void)state;
	for (int v = 0; v < N_VARIANTS; v++) {
		struct pair_conf conf = variant(v);
		struct pair pair;

		pair_open(&pair, &conf);
		for (size_t s = 0; s < N(sizes); s++) {
			one_read(&pair, false, sizes[s]);
			one_read(&pair, true, sizes[s]);
		}
		for (int i = 0; i < 200; i++) /* round the ring */
			one_read(&pair, i & 1, 24);
		pair_close(&pair);
	}
}

/* Into a list, of which parts are of no bytes, from one place. */
static void read_scatters(void **state)
{
	enum { MAX = 12 };
	struct pair_conf conf = {.max_sge = MAX, .max_wr = 8, .access = ALL_ACCESS};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	fill(pair.b.memory, 8192, 4);
	for (uint32_t i = 0; i < 300; i++) {
		struct ibv_sge to[MAX];
		struct ibv_send_wr wr = {.wr_id = i,
					   .sg_list = to,
					   .num_sge = 1 + (int)(i % MAX),
					   .send_flags = IBV_SEND_SIGNALED,
					   .opcode = IBV_WR_RDMA_READ},
				   *bad;
		uint32_t offset = 0;

		for (int s = 0; s < wr.num_sge; s++)
			to[s] = (struct ibv_sge){(uintptr_t)pair.a.memory + (uint32_t)s * 300,
				1 + (i * 13 + (uint32_t)s) % 90, pair.a.mr->lkey};
		wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
		wr.wr.rdma.rkey = pair.b.mr->rkey;
		assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		for (int s = 0; s < wr.num_sge; offset += to[s++].length)
			assert_memory_equal(
				pair.a.memory + s * 300, pair.b.memory + offset, to[s].length);
	}
	pair_close(&pair);
}

static void post_atomic(struct pair *pair, uint64_t wr_id, enum ibv_wr_opcode opcode,
	unsigned int flags, uint64_t compare_add, uint64_t swap, size_t target)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.memory, 8, pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = flags},
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)pair->b.memory + target;
	wr.wr.atomic.rkey = pair->b.mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

static uint64_t word(const uint8_t *memory)
{
	uint64_t value;

	memcpy(&value, memory, sizeof(value));
	return value;
}

/* What was there before comes back, in the host's order. */
static void expect_atomic(struct pair *pair, uint64_t wr_id, enum ibv_wc_opcode opcode,
	uint64_t before, uint64_t after)
{
	struct ibv_wc wc = wait_wc(pair->a.send_cq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.byte_len, 8);
	assert_int_equal(word(pair->a.memory), before);
	assert_int_equal(word(pair->b.memory + 8), after);
	assert_int_equal(word(pair->b.memory), 0);
	assert_int_equal(word(pair->b.memory + 16), 0);
}

static void atomics(void **state)
{
	const uint64_t start = 0x0102030405060708, added = start + 0xf0f0f0f0f0f0f0f0;

	(void)state;
	for (int v = 0; v < N_VARIANTS; v++) {
		struct pair_conf conf = variant(v);
		struct pair pair;

		pair_open(&pair, &conf);
		for (uint64_t i = 0; i < 100; i += 3) {
			memcpy(pair.b.memory + 8, &start, 8);
			post_atomic(&pair, i, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
				0xf0f0f0f0f0f0f0f0, 0, 8);
			expect_atomic(&pair, i, IBV_WC_FETCH_ADD, start, added);
			post_atomic(&pair, i + 1, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
				start, 5, 8);
			expect_atomic(&pair, i + 1, IBV_WC_COMP_SWAP, added, added);
			post_atomic(&pair, i + 2, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
				added, i, 8);
			expect_atomic(&pair, i + 2, IBV_WC_COMP_SWAP, added, i);
		}
		pair_close(&pair);
	}
}

/* Given all signalled and CQEs of 64 bytes, what comes back in up to 32 bytes is in the CQE, and
 * its memory untouched until the program copies; else in the memory alone. */
static void answers_in_the_cqe(void **state)
{
	static const struct {
		bool signal_all, off;
		int cqe_size;
		uint32_t length;
		bool inlined;
	} cases[] = {{true, false, 64, 32, true}, {true, false, 64, 33, false},
		{false, false, 64, 32, false}, {true, true, 64, 32, false},
		{true, false, 128, 32, false}};

	(void)state;
	for (size_t i = 0; i < N(cases); i++) {
		struct pair_conf conf = {.cqe_size = cases[i].cqe_size,
			.signal_all = cases[i].signal_all,
			.no_scatter = cases[i].off,
			.access = ALL_ACCESS};
		struct mlx5dv_cq cq = {0};
		struct mlx5dv_obj object = {.cq = {.out = &cq}};
		struct mlx5_cqe64 *cqe;
		struct pair pair;

		pair_open(&pair, &conf);
		object.cq.in = pair.a.send_cq;
		assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
		fill(pair.b.memory, 64, 9);
		memset(pair.a.memory, 0xee, 64);
		post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, cases[i].length,
			&pair.b, 0);
		post_recv(&pair.b, 2, 100, 64); /* a write behind it tells that the read is done */
		post_send(&pair.a, 3, IBV_WR_RDMA_WRITE_WITH_IMM,
			IBV_SEND_SIGNALED | IBV_SEND_FENCE, 200, 1, &pair.b, 200);
		expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
		cqe = (void *)((uint8_t *)cq.buf + cq.cqe_size - 64);
		assert_int_equal(mlx5dv_get_cqe_format(cqe), cases[i].inlined ? 1 : 0);
		if (cases[i].inlined)
			assert_memory_equal(cqe, pair.b.memory, 32);
		assert_int_equal(pair.a.memory[0], cases[i].inlined ? 0xee : pair.b.memory[0]);
		expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
		expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
		assert_memory_equal(pair.a.memory, pair.b.memory, cases[i].length);
		pair_close(&pair);
	}
}

/* Unsignalled ones in a row, then a fenced write that sends back what the last read brought. */
static void fence(void **state)
{
	struct pair_conf conf = {.access = ALL_ACCESS};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 50; i++) {
		memset(pair.b.memory, (int)i, 64);
		memset(pair.a.memory, 0xee, 64);
		for (int r = 0; r < 5; r++)
			post_send(&pair.a, 0, IBV_WR_RDMA_READ, 0, 0, 64, &pair.b, 0);
		post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_FENCE, 0, 64,
			&pair.b, 1024);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		assert_memory_equal(pair.b.memory + 1024, pair.b.memory, 64);
	}
	pair_close(&pair);
}

/* What is read goes into memory registered for it alone. */
static void read_into_memory_not_for_writing(void **state)
{
	struct pair_conf conf = {.access = ALL_ACCESS};
	struct pair pair;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.wr_id = 1,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ},
			   *bad;

	(void)state;
	pair_open(&pair, &conf);
	mr = ibv_reg_mr(pair.pd, pair.a.memory, 4096, 0);
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)pair.a.memory, 64, mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
	wr.wr.rdma.rkey = pair.b.mr->rkey;
	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_close(&pair);
}

static void atomic_not_aligned(void **state)
{
	struct pair_conf conf = {.access = ALL_ACCESS};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	post_atomic(&pair, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, 1, 0, 4);
	expect_wc(pair.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	wait_state(pair.b.qp, IBV_QPS_ERR);
	pair_close(&pair);
}

/* A responder that has no resources for reads and atomics refuses them. */
static void no_resources(void **state)
{
	struct pair_conf conf = {.access = ALL_ACCESS, .unconnected = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	qp_to_rtr(&pair, &pair.a, &pair.b);
	pair.conf.max_rd_atomic = 0;
	qp_to_rtr(&pair, &pair.b, &pair.a);
	qp_to_rts(&pair, &pair.a);
	qp_to_rts(&pair, &pair.b);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 8, &pair.b, 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_of_every_size),
		cmocka_unit_test(read_scatters),
		cmocka_unit_test(atomics),
		cmocka_unit_test(answers_in_the_cqe),
		cmocka_unit_test(fence),
		cmocka_unit_test(read_into_memory_not_for_writing),
		cmocka_unit_test(atomic_not_aligned),
		cmocka_unit_test(no_resources),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
