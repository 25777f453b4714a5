/* misbehave_test.c - VHCA_FAULT's messages: the second is lost, the fourth doubled, the sixth altered,
 * of each kind, within a process and by packets; and packets that are lost by chance, which a seed
 * brings back
 */

#include "child.h"
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	N = 7,
	LOST = 2,
	DOUBLED = 4,
	ALTERED = 6,
	LENGTH = 64,
	GRH = 40,
	SLOT = 128,
	GID_INDEX = 3
};

static struct {
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	bool by_packets;
} now_run;

static uint8_t *slot(struct side *side, uint64_t i)
{
	return side->memory + SLOT * i;
}

/* ---- one message of a kind ---- */

static struct ibv_ah *make_ah(struct pair *pair)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID_INDEX, .hop_limit = 1}};
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(pair->context, 1, GID_INDEX, &attr.grh.dgid), 0);
	ah = ibv_create_ah(pair->pd, &attr);
	assert_non_null(ah);
	return ah;
}

static void post(struct pair *pair, struct ibv_ah *ah, uint64_t i)
{
	bool atomic = now_run.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = {(uintptr_t)slot(&pair->a, i), atomic ? 8 : LENGTH, pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = now_run.opcode,
				   .send_flags = IBV_SEND_SIGNALED,
				   .imm_data = htobe32((uint32_t)i)},
			   *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
		wr.wr.ud.remote_qkey = PAIR_QKEY;
	} else if (atomic) {
		wr.wr.atomic.remote_addr = (uintptr_t)slot(&pair->b, 0);
		wr.wr.atomic.rkey = pair->b.mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)slot(&pair->b, i);
		wr.wr.rdma.rkey = pair->b.mr->rkey;
	}
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

/* ---- what has become of all ---- */

static int n_wrong(const uint8_t *bytes, uint64_t i)
{
	int n = 0;

	for (int k = 0; k < LENGTH; k++)
		n += bytes[k] != i;
	return n;
}

/* In the order they were sent, each into the next receive. */
static void expect_received(struct pair *pair, int head)
{
	uint64_t n = 0;

	for (uint64_t i = 1; i <= N; i++)
		for (int copy = i == LOST; copy < 1 + (i == DOUBLED); copy++, n++) {
			const uint8_t *bytes = now_run.opcode == IBV_WR_RDMA_WRITE_WITH_IMM
				? slot(&pair->b, i)
				: slot(&pair->b, n + N + 1) + head;

			expect_wc(pair->b.recv_cq, n, IBV_WC_SUCCESS);
			assert_int_equal(n_wrong(bytes, i), i == ALTERED);
		}
	expect_quiet(pair->b.recv_cq);
}

/* Writes are in the peer's memory, what was read in the own. */
static void expect_moved(struct side *to)
{
	for (uint64_t i = 1; i <= N; i++)
		assert_int_equal(n_wrong(slot(to, i), i),
			i == LOST              ? LENGTH
				: i == ALTERED ? 1
					       : 0);
}

static void expect_added(struct pair *pair)
{
	uint64_t total, brought, due = 0;

	for (uint64_t i = 1; i <= N; i++) {
		memcpy(&brought, slot(&pair->a, i), sizeof(brought));
		due += i == DOUBLED; /* the second answer is what stays */
		if (i == LOST)
			continue;
		assert_int_equal(brought, i == ALTERED ? due ^ 0x10 : due);
		due++;
	}
	memcpy(&total, slot(&pair->b, 0), sizeof(total));
	assert_int_equal(total, N);
}

static void expect_done(struct pair *pair)
{
	switch (now_run.opcode) {
	case IBV_WR_RDMA_WRITE: expect_moved(&pair->b); break;
	case IBV_WR_RDMA_READ: expect_moved(&pair->a); break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: expect_added(pair); break;
	default: expect_received(pair, now_run.type == IBV_QPT_UD ? GRH : 0);
	}
}

static int run_one(void)
{
	struct pair_conf conf = {.type = now_run.type,
		.no_scatter = true,
		.max_rd_atomic = 4,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	bool read = now_run.opcode == IBV_WR_RDMA_READ;
	struct ibv_ah *ah;
	struct pair pair;

	setenv("VHCA_WIRE", now_run.by_packets ? "udp" : "loopback", 1);
	setenv("VHCA_FAULT",
		now_run.by_packets ? "msg-drop=2,msg-double=4,msg-alter=6,loss=0"
				   : "msg-drop=2,msg-double=4,msg-alter=6",
		1);
	pair_open(&pair, &conf);
	ah = now_run.type == IBV_QPT_UD ? make_ah(&pair) : NULL;
	for (uint64_t i = 0; i <= N + 1; i++)
		post_recv(&pair.b, i, SLOT * (i + N + 1), SLOT);
	if (now_run.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
		for (uint64_t i = 1; i <= N; i++)
			memset(slot(read ? &pair.b : &pair.a, i), (int)i, LENGTH);
	for (uint64_t i = 1; i <= N; i++)
		post(&pair, ah, i);
	for (uint64_t i = 1; i <= N; i++)
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
	expect_done(&pair);
	if (ah)
		assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(&pair);
	return 0;
}

static void of_each_kind(void **state)
{
	static const struct {
		enum ibv_qp_type type;
		enum ibv_wr_opcode opcode;
	} kinds[] = {{IBV_QPT_RC, IBV_WR_SEND}, {IBV_QPT_RC, IBV_WR_SEND_WITH_IMM},
		{IBV_QPT_RC, IBV_WR_RDMA_WRITE}, {IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM},
		{IBV_QPT_RC, IBV_WR_RDMA_READ}, {IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD},
		{IBV_QPT_UC, IBV_WR_SEND}, {IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM},
		{IBV_QPT_UD, IBV_WR_SEND}};
	char said[4096];

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		for (int by_packets = 0; by_packets < 2; by_packets++) {
			int found;

			now_run.type = kinds[k].type;
			now_run.opcode = kinds[k].opcode;
			now_run.by_packets = by_packets;
			found = child_run(run_one, "report", said, sizeof(said));
			if (found)
				fail_msg("type %d, opcode %d, %s packets: 0x%x, \"%s\"",
					(int)kinds[k].type, (int)kinds[k].opcode,
					by_packets ? "by" : "without", found, said);
		}
	}
}

/* ---- chance ---- */

enum { N_DATAGRAMS = 60 };

/* Which of many datagrams arrive, up to one that is sent until it does: none overtakes another. */
static void note_arrived(struct pair *pair, struct ibv_ah *ah, char arrived[N_DATAGRAMS + 1])
{
	uint32_t number = 0;

	for (uint64_t i = 0; number < N_DATAGRAMS; i++) {
		uint64_t next = i < N_DATAGRAMS ? i : N_DATAGRAMS;
		struct ibv_wc wc;

		post(pair, ah, next);
		expect_wc(pair->a.send_cq, next, IBV_WC_SUCCESS);
		if (next == N_DATAGRAMS)
			usleep(1000);
		while (number < N_DATAGRAMS && ibv_poll_cq(pair->b.recv_cq, 1, &wc) > 0) {
			number = be32toh(wc.imm_data);
			arrived[number] = number < N_DATAGRAMS ? 'x' : 0;
		}
	}
}

static int say_arrived(void)
{
	struct pair_conf conf = {.type = IBV_QPT_UD, .max_wr = 128};
	char arrived[N_DATAGRAMS + 1] = {0};
	struct ibv_ah *ah;
	struct pair pair;

	setenv("VHCA_WIRE", "udp", 1);
	setenv("VHCA_FAULT", "loss=0.5", 1);
	now_run.opcode = IBV_WR_SEND_WITH_IMM;
	pair_open(&pair, &conf);
	ah = make_ah(&pair);
	for (uint64_t i = 0; i < 128; i++)
		post_recv(&pair.b, i, 0, SLOT);
	memset(arrived, '-', N_DATAGRAMS);
	note_arrived(&pair, ah, arrived);
	dprintf(STDERR_FILENO, "%s", arrived);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(&pair);
	return 0;
}

static void seeded(void **state)
{
	static const char *const seeds[] = {"7", "7", "8"};
	char said[3][4096];

	(void)state;
	for (int i = 0; i < 3; i++) {
		setenv("VHCA_SEED", seeds[i], 1);
		assert_int_equal(child_run(say_arrived, "report", said[i], sizeof(said[i])), 0);
		assert_non_null(strchr(said[i], 'x'));
		assert_non_null(strchr(said[i], '-'));
	}
	assert_string_equal(said[0], said[1]);
	assert_string_not_equal(said[0], said[2]);
}

/* ---- what cannot be ---- */

static int open_with_loss(void)
{
	struct pair_conf conf = {0};
	struct pair pair;

	setenv("VHCA_FAULT", "loss=0.5", 1);
	pair_open(&pair, &conf);
	pair_close(&pair);
	return 0;
}

static void packets_without_a_wire(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(child_run(open_with_loss, "report", said, sizeof(said)), 0);
	assert_non_null(strstr(said, "faults of packets do nothing on mlx5_0"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_each_kind),
		cmocka_unit_test(seeded),
		cmocka_unit_test(packets_without_a_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
