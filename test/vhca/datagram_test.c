/* datagram_test.c - UD: address handles, what stands in front of a datagram, Q_Keys, and what is
 * dropped */

#include "pair.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GRH = 40, MTU = 1024, GID_INDEX = 3 };

static const uint32_t sizes[] = {0, 1, 31, 32, 33, 64, 256, MTU - 1, MTU};

#define N(a) (sizeof(a) / sizeof((a)[0]))

static struct ibv_ah *make_ah(struct pair *pair, int gid_index, uint8_t sl)
{
	struct ibv_ah_attr attr = {.is_global = 1,
		.port_num = 1,
		.sl = sl,
		.grh = {.sgid_index = (uint8_t)gid_index, .hop_limit = 17, .traffic_class = 0x5c}};
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(pair->context, 1, gid_index, &attr.grh.dgid), 0);
	ah = ibv_create_ah(pair->pd, &attr);
	assert_non_null(ah);
	return ah;
}

static void send_datagram(struct pair *pair, struct ibv_ah *ah, uint64_t wr_id, uint32_t qpn,
	uint32_t qkey, uint32_t length, bool imm, unsigned int flags)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.memory, length, pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				   .sg_list = &sge,
				   .num_sge = length ? 1 : 0,
				   .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED | flags,
				   .imm_data = htobe32((uint32_t)wr_id)},
			   *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

static void one_datagram(
	struct pair *pair, struct ibv_ah *ah, uint32_t length, bool imm, unsigned int flags)
{
	static uint64_t wr_id;
	struct ibv_wc wc;

	wr_id++;
	fill(pair->a.memory, length, (uint32_t)wr_id);
	memset(pair->b.memory, 0xee, GRH + MTU + 64);
	post_recv(&pair->b, wr_id, 0, GRH + MTU);
	send_datagram(pair, ah, wr_id, pair->b.qp->qp_num, PAIR_QKEY, length, imm, flags);
	expect_wc(pair->a.send_cq, wr_id, IBV_WC_SUCCESS);
	wc = wait_wc(pair->b.recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, length + GRH);
	assert_int_equal(wc.src_qp, pair->a.qp->qp_num);
	assert_int_equal(wc.sl, 2); /* RoCE v2 over IPv4 */
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | (imm ? IBV_WC_WITH_IMM : 0));
	if (imm)
		assert_int_equal(be32toh(wc.imm_data), wr_id);
	assert_memory_equal(pair->b.memory + GRH, pair->a.memory, length);
	for (size_t i = GRH + length; i < GRH + MTU + 64; i++)
		assert_int_equal(pair->b.memory[i], 0xee);
}

/* Of each CQE size, with an SRQ and without, gathered and inline. */
static void every_size(void **state)
{
	(void)state;
	for (int v = 0; v < 4; v++) {
		struct pair_conf conf = {.type = IBV_QPT_UD,
			.cqe_size = v & 1 ? 128 : 64,
			.srq = v & 2,
			.max_inline = 256};
		struct ibv_ah *ah;
		struct pair pair;

		pair_open(&pair, &conf);
		ah = make_ah(&pair, GID_INDEX, 5);
		for (size_t s = 0; s < N(sizes); s++) {
			one_datagram(&pair, ah, sizes[s], false, 0);
			one_datagram(&pair, ah, sizes[s], true, 0);
			if (sizes[s] <= 256)
				one_datagram(&pair, ah, sizes[s], false, IBV_SEND_INLINE);
		}
		for (int i = 0; i < 300; i++) /* round the rings */
			one_datagram(&pair, ah, (uint32_t)i, i & 1, 0);
		assert_int_equal(ibv_destroy_ah(ah), 0);
		pair_close(&pair);
	}
}

/* Sockets carry RoCEv2 of the port's address, whatever the GID. */
static bool by_sockets(void)
{
	return strstr(getenv("VHCA_FAULT") ?: "", "loss=");
}

/* What the receiver reads in front of the datagram, by the kind of the sender's GID; libibverbs
 * makes the way back of it. */
static void headers(void **state)
{
	const int length = 12 + 8 + 4 + 16 + 4; /* BTH, DETH, ImmDt, payload and pad, ICRC */
	struct pair_conf conf = {.type = IBV_QPT_UD};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	for (int gid_index = 0; gid_index < 4; gid_index++) {
		struct ibv_ah *ah = make_ah(&pair, gid_index, 5), *back;
		int kind = by_sockets() ? GID_INDEX : gid_index;
		const uint8_t *grh = pair.b.memory;
		struct ibv_ah_attr attr;
		union ibv_gid gid;
		struct ibv_wc wc;

		post_recv(&pair.b, 1, 0, GRH + 64);
		memset(pair.b.memory, 0xee, GRH);
		send_datagram(&pair, ah, 2, pair.b.qp->qp_num, PAIR_QKEY, 13, true, 0);
		expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
		wc = wait_wc(pair.b.recv_cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.sl, kind == 3 ? 2 : kind & 1);
		assert_int_equal(ibv_query_gid(pair.context, 1, kind, &gid), 0);
		if (kind == 3) { /* IPv4 */
			for (int i = 0; i < 20; i++)
				assert_int_equal(grh[i], 0);
			assert_int_equal(grh[20], 0x45);
			assert_int_equal(grh[21], 0x5c);
			assert_int_equal(grh[22] << 8 | grh[23], 20 + 8 + length);
			assert_int_equal(grh[28], 17); /* the time to live, and the protocol */
			assert_int_equal(grh[29], 17);
			assert_memory_equal(grh + 32, gid.raw + 12, 4);
			assert_memory_equal(grh + 36, gid.raw + 12, 4);
		} else {
			assert_int_equal(grh[0] >> 4, 6);
			assert_int_equal((grh[0] << 8 | grh[1]) >> 4 & 0xff, 0x5c);
			assert_int_equal(grh[4] << 8 | grh[5], (kind & 1 ? 8 : 0) + length);
			assert_int_equal(grh[6], kind & 1 ? 17 : 0x1b);
			assert_int_equal(grh[7], 17);
			assert_memory_equal(grh + 8, gid.raw, 16);
			assert_memory_equal(grh + 24, gid.raw, 16);
		}
		assert_int_equal(
			ibv_init_ah_from_wc(pair.context, 1, &wc, (void *)pair.b.memory, &attr), 0);
		assert_memory_equal(attr.grh.dgid.raw, gid.raw, 16);
		back = ibv_create_ah(pair.pd, &attr);
		assert_non_null(back);
		assert_int_equal(ibv_destroy_ah(back), 0);
		assert_int_equal(ibv_destroy_ah(ah), 0);
	}
	pair_close(&pair);
}

static unsigned long long out_of_buffer(void)
{
	FILE *file = fopen("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "re");
	unsigned long long value;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &value), 1);
	fclose(file);
	return value;
}

/* Of the wire it waits a moment for a receive. */
static void expect_out_of_buffer(unsigned long long before)
{
	for (int patience = 10000; out_of_buffer() == before && patience; patience--)
		usleep(1000);
	assert_int_equal(out_of_buffer(), before + 1);
}

/* Whatever becomes of a datagram, its sender is told that it has gone. */
static void dropped(void **state)
{
	enum { WRONG_QKEY, NO_RECEIVE, NO_QP, NOT_UD, N_CASES };
	struct pair_conf conf = {.type = IBV_QPT_UD}, connected = {.type = IBV_QPT_RC};
	struct pair pair, other;
	struct ibv_port_attr port;
	struct ibv_ah *ah;

	(void)state;
	pair_open(&pair, &conf);
	connected.share = &pair;
	pair_open(&other, &connected);
	ah = make_ah(&pair, GID_INDEX, 5);
	for (int i = 0; i < N_CASES; i++) {
		unsigned long long before = out_of_buffer();
		uint32_t qpn = i == NO_QP ? 0xfffff0
			: i == NOT_UD     ? other.b.qp->qp_num
					  : pair.b.qp->qp_num;

		if (i != NO_RECEIVE)
			post_recv(&pair.b, (uint64_t)i, 0, GRH + 64);
		send_datagram(&pair, ah, 1, qpn, i == WRONG_QKEY ? PAIR_QKEY + 1 : PAIR_QKEY, 8,
			false, 0);
		expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
		if (i == NO_RECEIVE)
			expect_out_of_buffer(before);
		expect_quiet(pair.b.recv_cq);
		expect_quiet(other.b.recv_cq);
		assert_int_equal(ibv_query_port(pair.context, 1, &port), 0);
		assert_int_equal(port.qkey_viol_cntr, 1);
		if (i == WRONG_QKEY) { /* its receive is still there */
			send_datagram(&pair, ah, 2, pair.b.qp->qp_num, PAIR_QKEY, 8, false, 0);
			expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
			expect_wc(pair.b.recv_cq, 0, IBV_WC_SUCCESS);
		}
	}
	/* A key with its highest bit set stands for the QP's own. */
	send_datagram(&pair, ah, 3, pair.b.qp->qp_num, 0x80000000, 8, false, 0);
	expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, NO_QP, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(&other);
	pair_close(&pair);
}

static void longer_than_a_packet(void **state)
{
	struct pair_conf conf = {.type = IBV_QPT_UD};
	struct pair pair;
	struct ibv_ah *ah;

	(void)state;
	pair_open(&pair, &conf);
	ah = make_ah(&pair, GID_INDEX, 5);
	post_recv(&pair.b, 1, 0, 4096);
	send_datagram(&pair, ah, 1, pair.b.qp->qp_num, PAIR_QKEY, MTU + 1, false, 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_LOC_LEN_ERR);
	expect_quiet(pair.b.recv_cq);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size),
		cmocka_unit_test(headers),
		cmocka_unit_test(dropped),
		cmocka_unit_test(longer_than_a_packet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
