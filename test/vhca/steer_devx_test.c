/* steer_devx_test.c - DevX: queues, tables and TIRs made by the PRM's commands, and each wrong one refused
 * with the status that a device gives
 */

#include "raw.h"

#include "vhca/devx_prm.h"

#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { FINE = 0, BAD_OPERATION = 2, BAD_PARAMETER = 3, BAD_STATE = 9 }; /* the PRM's */
enum { OUT = 16, MAILBOX = 512 + 1024, RINGS = 4096 };

/* A mailbox in, and what its status was. */
struct command {
	uint8_t in[MAILBOX];
	uint8_t out[OUT];
};

/* Where everything is made. */
struct bench {
	struct raw raw;
	struct mlx5dv_devx_umem *umem;
	uint32_t pd, umem_id, cqn, rqn;
	struct mlx5dv_devx_obj *cq, *rq;
};

/* One field that is spoiled, and the status that it brings. */
struct wrong {
	uint32_t field;
	uint64_t value;
	uint8_t status;
};

static void put(struct command *command, uint32_t first, uint32_t field, uint64_t value)
{
	uint32_t at = WITHIN(first, field), width = at & 0xff, bit = at >> 8;

	for (uint32_t i = 0; i < width; i++) /* a field that is spoiled was something else before */
		command->in[(bit + i) / 8] &= (uint8_t) ~(1u << (7 - (bit + i) % 8));
	field_put(command->in, MAILBOX, at, value);
}

static struct command command_of(uint16_t opcode)
{
	struct command command = {.in = {0}};

	put(&command, 0, IN_OPCODE, opcode);
	return command;
}

/* NULL, and its status. */
static struct mlx5dv_devx_obj *make(struct bench *bench, struct command *command, uint8_t *status)
{
	struct mlx5dv_devx_obj *object;

	memset(command->out, 0, OUT);
	object =
		mlx5dv_devx_obj_create(bench->raw.context, command->in, MAILBOX, command->out, OUT);
	*status = command->out[0];
	assert_int_equal(!object, *status != FINE);
	return object;
}

static uint32_t number_of(const struct command *command)
{
	return (uint32_t)field_get(command->out, OUT, OUT_NUMBER);
}

/* Each spoils a command that would be right. */
static void expect_wrong(struct bench *bench, const struct command *right, uint32_t first,
	const struct wrong *wrong, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct command command = *right;
		uint8_t status;

		put(&command, first, wrong[i].field, wrong[i].value);
		make(bench, &command, &status);
		if (status != wrong[i].status)
			fail_msg("case %zu has the status 0x%x where 0x%x was due", i, status,
				wrong[i].status);
	}
}

static struct mlx5dv_devx_obj *make_right(struct bench *bench, struct command *command)
{
	uint8_t status;
	struct mlx5dv_devx_obj *object = make(bench, command, &status);

	assert_int_equal(status, FINE);
	return object;
}

/* ---- right ones: a CQ of 64 entries, queues of 16 WQEs of 64 bytes ---- */

static struct command cq_command(const struct bench *bench)
{
	struct command command = command_of(OP_CREATE_CQ);
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(bench->raw.context, 0);
	uint32_t eqn;

	assert_non_null(uar);
	assert_int_equal(mlx5dv_devx_query_eqn(bench->raw.context, 0, &eqn), 0);
	put(&command, 0, CQ_UMEM_VALID, 1);
	put(&command, 0, CQ_UMEM_ID, bench->umem_id);
	put(&command, CQ_CONTEXT, CQC_DBR_UMEM_VALID, 1);
	put(&command, CQ_CONTEXT, CQC_DBR_UMEM_ID, bench->umem_id);
	put(&command, CQ_CONTEXT, CQC_DBR_ADDR, 3 * RINGS);
	put(&command, CQ_CONTEXT, CQC_LOG_SIZE, 6);
	put(&command, CQ_CONTEXT, CQC_UAR_PAGE, uar->page_id);
	put(&command, CQ_CONTEXT, CQC_EQN, eqn);
	mlx5dv_devx_free_uar(uar);
	return command;
}

static struct command queue_command(const struct bench *bench, uint16_t opcode, uint32_t at)
{
	const uint32_t wq = QUEUE_CONTEXT + QUEUE_WQ;
	struct command command = command_of(opcode);

	put(&command, QUEUE_CONTEXT, QUEUE_CQN, bench->cqn);
	put(&command, wq, WQ_TYPE, WQ_TYPE_CYCLIC);
	put(&command, wq, WQ_PD, bench->pd);
	put(&command, wq, WQ_LOG_STRIDE, 6);
	put(&command, wq, WQ_LOG_SIZE, 4);
	put(&command, wq, WQ_UMEM_VALID, 1);
	put(&command, wq, WQ_UMEM_ID, bench->umem_id);
	put(&command, wq, WQ_UMEM_OFFSET, at);
	put(&command, wq, WQ_DBR_UMEM_VALID, 1);
	put(&command, wq, WQ_DBR_UMEM_ID, bench->umem_id);
	put(&command, wq, WQ_DBR_ADDR, 3 * RINGS + 64);
	return command;
}

static struct command table_command(const struct bench *bench, uint16_t opcode, uint32_t n)
{
	struct command command = command_of(opcode);

	put(&command, RQT_CONTEXT, RQTC_MAX_SIZE, 4);
	put(&command, RQT_CONTEXT, RQTC_ACTUAL_SIZE, n);
	for (uint32_t i = 0; i < n; i++)
		put(&command, RQT_CONTEXT, FIELD(RQTC_LIST + 32 * i + 8, 24), bench->rqn);
	return command;
}

static void open_bench(struct bench *bench)
{
	struct mlx5dv_pd pd;
	struct mlx5dv_obj object = {.pd = {NULL, &pd}};
	struct command command;

	raw_open(&bench->raw, &(struct raw_conf){.receiver = RAW_NONE});
	object.pd.in = bench->raw.pd;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD), 0);
	bench->pd = pd.pdn;
	bench->umem = mlx5dv_devx_umem_reg(
		bench->raw.context, raw_slot(&bench->raw, 0), 4 * RINGS, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(bench->umem);
	bench->umem_id = bench->umem->umem_id;
	command = cq_command(bench);
	bench->cq = make_right(bench, &command);
	bench->cqn = number_of(&command);
	command = queue_command(bench, OP_CREATE_RQ, RINGS);
	bench->rq = make_right(bench, &command);
	bench->rqn = number_of(&command);
}

static void close_bench(struct bench *bench)
{
	assert_int_equal(mlx5dv_devx_obj_destroy(bench->rq), 0);
	assert_int_equal(mlx5dv_devx_obj_destroy(bench->cq), 0);
	assert_int_equal(mlx5dv_devx_umem_dereg(bench->umem), 0);
	raw_close(&bench->raw);
}

/* ---- cases ---- */

static void wrong_cqs(void **state)
{
	static const struct wrong wrong[] = {
		{CQC_LOG_SIZE, 23, BAD_PARAMETER}, /* more than the device has */
		{CQC_LOG_SIZE, 9, BAD_PARAMETER},  /* and more than the memory */
		{CQC_CQE_SIZE, 2, BAD_PARAMETER},
		{CQC_EQN, 0, BAD_PARAMETER},
		{CQC_UAR_PAGE, 0xffffff, BAD_PARAMETER},
		{CQC_DBR_UMEM_VALID, 0, BAD_PARAMETER},
		{CQC_DBR_ADDR, 4 * RINGS - 4, BAD_PARAMETER},
		{CQC_DBR_ADDR, ~0ull, BAD_PARAMETER},
	};
	struct bench bench;
	struct command right;

	(void)state;
	open_bench(&bench);
	right = cq_command(&bench);
	expect_wrong(&bench, &right, CQ_CONTEXT, wrong, N(wrong));
	close_bench(&bench);
}

static void expect_wrong_queues(uint16_t opcode, const struct wrong *in_context,
	size_t n_in_context, const struct wrong *in_wq, size_t n_in_wq)
{
	struct bench bench;
	struct command right;

	open_bench(&bench);
	right = queue_command(&bench, opcode, 2 * RINGS);
	expect_wrong(&bench, &right, QUEUE_CONTEXT, in_context, n_in_context);
	expect_wrong(&bench, &right, QUEUE_CONTEXT + QUEUE_WQ, in_wq, n_in_wq);
	close_bench(&bench);
}

static void wrong_rqs(void **state)
{
	static const struct wrong in_rqc[] = {
		{QUEUE_CQN, 0xffffff, BAD_PARAMETER},
		{QUEUE_STATE, 2, BAD_PARAMETER},
		{RQC_COUNTER_SET, 77, BAD_PARAMETER},
		{RQC_MEMORY_TYPE, 1, BAD_OPERATION}, /* a pool's: RMP */
		{QUEUE_HAIRPIN, 1, BAD_OPERATION},
		{RQC_SCATTER_FCS, 1, BAD_OPERATION},
		{RQC_DELAY_DROP, 1, BAD_OPERATION},
		{QUEUE_RESERVED_LKEY, 1, BAD_OPERATION},
	};
	static const struct wrong in_wq[] = {
		{WQ_TYPE, 0, BAD_PARAMETER}, /* a linked list, which an SRQ's is */
		{WQ_PD, 0xffffff, BAD_PARAMETER},
		{WQ_LOG_SIZE, 16, BAD_PARAMETER},
		{WQ_LOG_STRIDE, 3, BAD_PARAMETER},
		{WQ_LOG_STRIDE, 11, BAD_PARAMETER},
		{WQ_UMEM_OFFSET, 4 * RINGS - 64, BAD_PARAMETER},
		{WQ_UMEM_OFFSET, ~0ull, BAD_PARAMETER},
		{WQ_UMEM_ID, 0, BAD_PARAMETER},
		{WQ_UMEM_VALID, 0, BAD_PARAMETER},
		{WQ_DBR_UMEM_VALID, 0, BAD_PARAMETER},
		{WQ_DBR_ADDR, 3 * RINGS + 4, BAD_PARAMETER},
		{WQ_PAGE_OFFSET, 1, BAD_PARAMETER},
	};

	(void)state;
	expect_wrong_queues(OP_CREATE_RQ, in_rqc, N(in_rqc), in_wq, N(in_wq));
}

static void wrong_sqs(void **state)
{
	static const struct wrong in_sqc[] = {
		{QUEUE_CQN, 0xffffff, BAD_PARAMETER},
		{SQC_N_TIS, 2, BAD_PARAMETER},
		{SQC_N_TIS, 1, BAD_PARAMETER}, /* of no number that is a TIS's */
		{QUEUE_HAIRPIN, 1, BAD_OPERATION},
		{SQC_RATE_LIMIT, 1, BAD_OPERATION},
		{QUEUE_RESERVED_LKEY, 1, BAD_OPERATION},
	};
	static const struct wrong in_wq[] = {
		{WQ_TYPE, WQ_TYPE_CYCLIC_STRIDING, BAD_PARAMETER},
		{WQ_LOG_STRIDE, 7, BAD_PARAMETER},
		{WQ_LOG_SIZE, 16, BAD_PARAMETER},
		{WQ_PD, 0xffffff, BAD_PARAMETER},
		{WQ_UAR_PAGE, 0xffffff, BAD_PARAMETER},
		{WQ_UMEM_OFFSET, 4 * RINGS - 64, BAD_PARAMETER},
	};

	(void)state;
	expect_wrong_queues(OP_CREATE_SQ, in_sqc, N(in_sqc), in_wq, N(in_wq));
}

/* Striding ones too: 64 bytes to 8 KiB, 8 strides and up. */
static void wrong_strides(void **state)
{
	static const struct wrong wrong[] = {
		{WQ_LOG_STRIDES, 6, BAD_PARAMETER}, /* 2^15 */
		{WQ_LOG_STRIDES, 9, BAD_PARAMETER}, /* 2^2 */
		{WQ_LOG_STRIDE, 4, BAD_PARAMETER},  /* no room behind the next segment */
	};
	const uint32_t wq = QUEUE_CONTEXT + QUEUE_WQ;
	struct bench bench;
	struct command right;

	(void)state;
	open_bench(&bench);
	right = queue_command(&bench, OP_CREATE_RQ, 2 * RINGS);
	put(&right, wq, WQ_TYPE, WQ_TYPE_CYCLIC_STRIDING);
	put(&right, wq, WQ_LOG_STRIDES, 0);
	put(&right, wq, WQ_LOG_STRIDE_BYTES, 5);
	assert_int_equal(mlx5dv_devx_obj_destroy(make_right(&bench, &right)), 0);
	expect_wrong(&bench, &right, wq, wrong, N(wrong));
	close_bench(&bench);
}

static void modify_table(struct bench *bench, struct mlx5dv_devx_obj *table, uint32_t number,
	uint32_t n, uint8_t status)
{
	struct command command = table_command(bench, OP_MODIFY_RQT, n);

	put(&command, 0, MODIFY_NUMBER, number);
	mlx5dv_devx_obj_modify(table, command.in, MAILBOX, command.out, OUT);
	assert_int_equal(command.out[0], status);
}

static void wrong_tables(void **state)
{
	static const struct wrong wrong[] = {
		{RQTC_ACTUAL_SIZE, 0, BAD_PARAMETER},
		{RQTC_ACTUAL_SIZE, 3, BAD_PARAMETER},
		{RQTC_MAX_SIZE, 2, BAD_PARAMETER}, /* less than it has */
		{RQTC_MAX_SIZE, 4096, BAD_PARAMETER},
		{RQTC_LIST_TYPE, 1, BAD_PARAMETER},
		{FIELD(RQTC_LIST + 32 + 8, 24), 0xfffff, BAD_PARAMETER},
	};
	struct mlx5dv_devx_obj *table;
	struct bench bench;
	struct command right;
	uint32_t number;

	(void)state;
	open_bench(&bench);
	right = table_command(&bench, OP_CREATE_RQT, 4);
	expect_wrong(&bench, &right, RQT_CONTEXT, wrong, N(wrong));
	table = make_right(&bench, &right);
	number = number_of(&right);
	modify_table(&bench, table, number, 2, FINE);
	modify_table(&bench, table, number, 4, FINE);
	modify_table(&bench, table, number, 8, BAD_PARAMETER); /* more than it was made for */
	modify_table(&bench, table, number + 1, 2, BAD_PARAMETER);
	assert_int_not_equal(mlx5dv_devx_obj_destroy(bench.rq), 0); /* the table has it */
	assert_int_equal(mlx5dv_devx_obj_destroy(table), 0);
	close_bench(&bench);
}

static void wrong_tirs(void **state)
{
	static const struct wrong wrong[] = {
		{TIRC_DISPATCH, 2, BAD_PARAMETER},
		{TIRC_TABLE, 0xffffff, BAD_PARAMETER},
		{TIRC_TRANSPORT_DOMAIN, 0xffffff, BAD_PARAMETER},
		{TIRC_HASH, 1, BAD_OPERATION}, /* XOR */
		{TIRC_LRO, 1, BAD_OPERATION},
		{TIRC_TUNNELED, 1, BAD_OPERATION},
		{WITHIN(TIRC_OUTER, SELECT_FIELDS), 16, BAD_OPERATION},
		{WITHIN(TIRC_INNER, SELECT_FIELDS), 1, BAD_OPERATION},
	};
	struct mlx5dv_devx_obj *table, *tir;
	struct bench bench;
	struct command right;
	uint32_t number;

	(void)state;
	open_bench(&bench);
	right = table_command(&bench, OP_CREATE_RQT, 4);
	table = make_right(&bench, &right);
	number = number_of(&right);
	right = command_of(OP_CREATE_TIR);
	put(&right, TIR_CONTEXT, TIRC_DISPATCH, 1);
	put(&right, TIR_CONTEXT, TIRC_HASH, HASH_TOEPLITZ);
	put(&right, TIR_CONTEXT, WITHIN(TIRC_OUTER, SELECT_FIELDS), 15);
	put(&right, TIR_CONTEXT, TIRC_TABLE, number);
	expect_wrong(&bench, &right, TIR_CONTEXT, wrong, N(wrong));
	tir = make_right(&bench, &right);
	assert_int_not_equal(mlx5dv_devx_obj_destroy(table), 0); /* the TIR has it */
	assert_int_equal(mlx5dv_devx_obj_destroy(tir), 0);
	assert_int_equal(mlx5dv_devx_obj_destroy(table), 0);
	close_bench(&bench);
}

static void modify_queue(struct bench *bench, uint32_t from, uint32_t to, uint8_t status)
{
	struct command command = command_of(OP_MODIFY_RQ);

	put(&command, 0, MODIFY_STATE, from);
	put(&command, 0, MODIFY_NUMBER, bench->rqn);
	put(&command, QUEUE_CONTEXT, QUEUE_STATE, to);
	mlx5dv_devx_obj_modify(bench->rq, command.in, MAILBOX, command.out, OUT);
	assert_int_equal(command.out[0], status);
}

/* A queue goes from where it is said to be, and is. */
static void states(void **state)
{
	struct bench bench;

	(void)state;
	open_bench(&bench);
	modify_queue(&bench, QUEUE_READY, QUEUE_ERROR, BAD_STATE);
	modify_queue(&bench, QUEUE_RESET, QUEUE_ERROR, BAD_PARAMETER);
	modify_queue(&bench, QUEUE_RESET, QUEUE_READY, FINE);
	modify_queue(&bench, QUEUE_READY, 2, BAD_PARAMETER);
	modify_queue(&bench, QUEUE_READY, QUEUE_ERROR, FINE);
	modify_queue(&bench, QUEUE_ERROR, QUEUE_READY, BAD_PARAMETER);
	modify_queue(&bench, QUEUE_ERROR, QUEUE_RESET, FINE);
	close_bench(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_cqs),
		cmocka_unit_test(wrong_rqs),
		cmocka_unit_test(wrong_sqs),
		cmocka_unit_test(wrong_strides),
		cmocka_unit_test(wrong_tables),
		cmocka_unit_test(wrong_tirs),
		cmocka_unit_test(states),
	};

	setenv("VHCA_WIRE", "loopback", 1);
	setenv("VHCA_DEVX", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
