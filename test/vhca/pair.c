/* pair.c - two connected RC QPs of one process on the emulated device, driven by libmlx5 alone */

#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { GID_INDEX = 3, PATIENCE_S = 10 };

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void fill(uint8_t *memory, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		memory[i] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
}

static void defaults(struct pair_conf *conf)
{
	conf->cqe_size = conf->cqe_size ? conf->cqe_size : 64;
	conf->max_wr = conf->max_wr ? conf->max_wr : 64;
	conf->max_sge = conf->max_sge ? conf->max_sge : 1;
	conf->cq_depth = conf->cq_depth ? conf->cq_depth : 4 * conf->max_wr;
	conf->bytes = conf->bytes ? conf->bytes : 65536;
	conf->access =
		conf->access ? conf->access : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	conf->timeout = conf->timeout ? conf->timeout : 10;
	conf->retry_cnt = conf->retry_cnt || conf->no_retries ? conf->retry_cnt : 7;
	conf->rnr_retry = conf->rnr_retry || conf->no_retries ? conf->rnr_retry : 7;
	conf->min_rnr_timer = conf->min_rnr_timer ? conf->min_rnr_timer : 1;
	conf->type = conf->type ? conf->type : IBV_QPT_RC;
	conf->max_rd_atomic = conf->max_rd_atomic ? conf->max_rd_atomic : 1;
}

static void open_device(struct pair *pair)
{
	struct ibv_device **list;
	char text[8];
	int n;

	if (pair->conf.share) {
		pair->context = pair->conf.share->context;
		pair->pd = pair->conf.share->pd;
		pair->srq = pair->conf.share->srq;
		return;
	}
	assert_non_null(vhca_present());
	snprintf(text, sizeof(text), "%d", pair->conf.cqe_size);
	setenv("MLX5_CQE_SIZE", text, 1);
	setenv("MLX5_SCATTER_TO_CQE", pair->conf.no_scatter ? "0" : "1", 1);
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_true(n > pair->conf.device);
	pair->context = ibv_open_device(list[pair->conf.device]);
	assert_non_null(pair->context);
	ibv_free_device_list(list);
	pair->pd = ibv_alloc_pd(pair->context);
	assert_non_null(pair->pd);
	if (pair->conf.srq) {
		struct ibv_srq_init_attr attr = {
			.attr = {.max_wr = pair->conf.max_wr, .max_sge = pair->conf.max_sge}};

		pair->srq = ibv_create_srq(pair->pd, &attr);
		assert_non_null(pair->srq);
	}
	if (pair->conf.events) {
		pair->channel = ibv_create_comp_channel(pair->context);
		assert_non_null(pair->channel);
	}
}

static void make_qp(struct pair *pair, struct side *side)
{
	const struct pair_conf *conf = &pair->conf;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = side->send_cq,
		.recv_cq = side->recv_cq,
		.qp_type = conf->type,
		.pd = pair->pd,
		.srq = pair->srq,
		.sq_sig_all = conf->signal_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		.cap = {.max_send_wr = conf->max_wr,
			.max_recv_wr = conf->srq ? 0 : conf->max_wr,
			.max_send_sge = conf->max_sge,
			.max_recv_sge = conf->srq ? 0 : conf->max_sge,
			.max_inline_data = conf->max_inline},
	};

	if (conf->type == IBV_QPT_UD)
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	if (conf->type == IBV_QPT_UC)
		attr.send_ops_flags &= ~(uint64_t)(IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	side->qp = ibv_create_qp_ex(pair->context, &attr);
	assert_non_null(side->qp);
	side->qpx = ibv_qp_to_qp_ex(side->qp);
}

static void make_side(struct pair *pair, struct side *side)
{
	const struct pair_conf *conf = &pair->conf;

	side->memory = aligned_alloc(4096, (conf->bytes + 4095) & ~(size_t)4095);
	assert_non_null(side->memory);
	memset(side->memory, 0, conf->bytes);
	side->mr = ibv_reg_mr(pair->pd, side->memory, conf->bytes, (unsigned int)conf->access);
	assert_non_null(side->mr);
	side->send_cq = ibv_create_cq(pair->context, (int)conf->cq_depth, NULL, NULL, 0);
	side->recv_cq = conf->cq
		?: ibv_create_cq(pair->context, (int)conf->cq_depth, side, pair->channel, 0);
	assert_non_null(side->send_cq);
	assert_non_null(side->recv_cq);
	make_qp(pair, side);
	qp_to_init(side->qp, conf->access);
}

void qp_to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = (unsigned int)access,
		.qkey = PAIR_QKEY};
	int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	assert_int_equal(
		ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
}

void qp_to_rtr(struct pair *pair, struct side *side, struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = pair->conf.max_rd_atomic,
		.min_rnr_timer = pair->conf.min_rnr_timer,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (pair->conf.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (pair->conf.type == IBV_QPT_UD)
		mask = IBV_QP_STATE;
	assert_int_equal(ibv_query_gid(peer->qp->context, 1, GID_INDEX, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(side->qp, &attr, mask), 0);
}

void qp_to_rts(struct pair *pair, struct side *side)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = pair->conf.timeout,
		.retry_cnt = pair->conf.retry_cnt,
		.rnr_retry = pair->conf.rnr_retry,
		.max_rd_atomic = pair->conf.max_rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (pair->conf.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	assert_int_equal(ibv_modify_qp(side->qp, &attr, mask), 0);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void wait_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	double end = now() + PATIENCE_S;

	while (qp_state(qp) != state)
		if (now() > end)
			fail_msg("the QP is in state %d, not in %d", qp_state(qp), state);
}

void pair_open(struct pair *pair, const struct pair_conf *conf)
{
	memset(pair, 0, sizeof(*pair));
	pair->conf = *conf;
	defaults(&pair->conf);
	open_device(pair);
	make_side(pair, &pair->a);
	make_side(pair, &pair->b);
	if (pair->conf.unconnected)
		return;
	qp_to_rtr(pair, &pair->a, &pair->b);
	qp_to_rtr(pair, &pair->b, &pair->a);
	qp_to_rts(pair, &pair->a);
	qp_to_rts(pair, &pair->b);
}

static void close_side(const struct pair *pair, struct side *side)
{
	if (side->qp)
		assert_int_equal(ibv_destroy_qp(side->qp), 0);
	assert_int_equal(ibv_destroy_cq(side->send_cq), 0);
	if (!pair->conf.cq)
		assert_int_equal(ibv_destroy_cq(side->recv_cq), 0);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
	free(side->memory);
}

void pair_close(struct pair *pair)
{
	close_side(pair, &pair->a);
	close_side(pair, &pair->b);
	if (pair->channel)
		assert_int_equal(ibv_destroy_comp_channel(pair->channel), 0);
	if (pair->conf.share)
		return;
	if (pair->srq)
		assert_int_equal(ibv_destroy_srq(pair->srq), 0);
	assert_int_equal(ibv_dealloc_pd(pair->pd), 0);
	assert_int_equal(ibv_close_device(pair->context), 0);
}

void post_recv(struct side *side, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)side->memory + offset, length, side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0}, *bad;

	assert_int_equal(side->qp->srq ? ibv_post_srq_recv(side->qp->srq, &wr, &bad)
				       : ibv_post_recv(side->qp, &wr, &bad),
		0);
}

void post_send(struct side *side, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
	size_t offset, uint32_t length, const struct side *target, size_t target_offset)
{
	struct ibv_sge sge = {(uintptr_t)side->memory + offset, length, side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.opcode = opcode,
		.send_flags = flags,
		.imm_data = htobe32((uint32_t)wr_id * 3 + 1),
	};
	struct ibv_send_wr *bad;

	if (target) {
		wr.wr.rdma.remote_addr = (uintptr_t)target->memory + target_offset;
		wr.wr.rdma.rkey = target->mr->rkey;
	}
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	double end = now() + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		if (now() > end)
			fail_msg("nothing completed in %d s", PATIENCE_S);
	assert_int_equal(n, 1);
	return wc;
}

void expect_quiet(struct ibv_cq *cq)
{
	double end = now() + 0.02;
	struct ibv_wc wc;

	while (now() < end)
		if (ibv_poll_cq(cq, 1, &wc))
			fail_msg("wr_id %llu completed with %s where nothing was due",
				(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(cq);

	if (wc.wr_id != wr_id || wc.status != status)
		fail_msg("wr_id %llu completed with %s where %llu with %s was due",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			(unsigned long long)wr_id, ibv_wc_status_str(status));
}
