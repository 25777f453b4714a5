/* raw.c - ports, queues and frames of tests of raw Ethernet */

#include "raw.h"

#include <stdio.h>
#include <stdlib.h>

const uint8_t raw_mac[6] = {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};

static const uint8_t hash_key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
	0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77,
	0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/* ---- objects ---- */

static void open_device(struct raw *raw)
{
	struct ibv_device **list;
	char text[16];
	int n;

	snprintf(text, sizeof(text), "%d", raw->conf.cqe_size);
	setenv("MLX5_CQE_SIZE", text, 1);
	assert_non_null(vhca_present());
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_true(n > raw->conf.device);
	raw->context = ibv_open_device(list[raw->conf.device]);
	assert_non_null(raw->context);
	ibv_free_device_list(list);
	raw->pd = ibv_alloc_pd(raw->context);
	assert_non_null(raw->pd);
}

static struct ibv_cq *make_cq(struct raw *raw, uint8_t compress)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = raw->conf.cq_depth};
	struct mlx5dv_cq_init_attr dv = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
			MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		.cqe_comp_res_format = compress,
		.cqe_size = (uint16_t)raw->conf.cqe_size};
	struct ibv_cq_ex *cq;

	if (!compress)
		return ibv_create_cq(raw->context, (int)raw->conf.cq_depth, NULL, NULL, 0);
	cq = mlx5dv_create_cq(raw->context, &attr, &dv);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};
	int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);

	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

static void make_qp(struct raw *raw)
{
	const struct raw_conf *conf = &raw->conf;
	bool receives = conf->receiver == RAW_QP;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = raw->side.send_cq,
		.recv_cq = raw->side.recv_cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = raw->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = receives && conf->strip_vlan ? IBV_QP_CREATE_CVLAN_STRIPPING : 0,
		.cap = {.max_send_wr = conf->max_wr < 64 ? 64 : conf->max_wr,
			.max_recv_wr = receives ? conf->max_wr : 0,
			.max_send_sge = conf->max_sge,
			.max_recv_sge = receives ? conf->max_sge : 0,
			.max_inline_data = conf->max_inline},
	};

	raw->side.qp = ibv_create_qp_ex(raw->context, &attr);
	assert_non_null(raw->side.qp);
	to_state(raw->side.qp, IBV_QPS_INIT);
	to_state(raw->side.qp, IBV_QPS_RTR);
	to_state(raw->side.qp, IBV_QPS_RTS);
}

static struct ibv_wq *make_wq(struct raw *raw)
{
	const struct raw_conf *conf = &raw->conf;
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = conf->max_wr,
		.max_sge = conf->max_sge,
		.pd = raw->pd,
		.cq = raw->side.recv_cq,
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = conf->strip_vlan ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0,
	};
	struct mlx5dv_wq_init_attr dv = {.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = {.single_stride_log_num_of_bytes = conf->log2_stride,
			.single_wqe_log_num_of_strides = conf->log2_n_strides,
			.two_byte_shift_en = conf->two_byte_shift}};
	struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ibv_wq *wq = conf->receiver == RAW_STRIDING
		? mlx5dv_create_wq(raw->context, &attr, &dv)
		: ibv_create_wq(raw->context, &attr);

	assert_non_null(wq);
	assert_int_equal(ibv_modify_wq(wq, &ready), 0);
	return wq;
}

static uint32_t log2_of(uint32_t n)
{
	uint32_t log = 0;

	while (1u << log < n)
		log++;
	return log;
}

static void make_hash_qp(struct raw *raw)
{
	struct ibv_rwq_ind_table_init_attr table = {
		.log_ind_tbl_size = log2_of(raw->conf.n_wqs), .ind_tbl = raw->wq};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = raw->pd,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof(hash_key),
			.rx_hash_key = (uint8_t *)(uintptr_t)hash_key,
			.rx_hash_fields_mask = raw->conf.hash},
	};
	struct mlx5dv_obj object = {
		.rwq = {raw->wq[0], &raw->rq}, .cq = {raw->side.recv_cq, &raw->rcq}};

	raw->table = ibv_create_rwq_ind_table(raw->context, &table);
	assert_non_null(raw->table);
	attr.rwq_ind_tbl = raw->table;
	raw->hash_qp = ibv_create_qp_ex(raw->context, &attr);
	assert_non_null(raw->hash_qp);
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_RWQ), 0);
}

static void make_flow(struct raw *raw)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = {
		.attr = {.type = IBV_FLOW_ATTR_NORMAL,
			.size = sizeof(flow),
			.num_of_specs = 1,
			.port = 1},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(flow.eth)},
	};

	memcpy(flow.eth.val.dst_mac, raw_mac, 6);
	memset(flow.eth.mask.dst_mac, 0xff, 6);
	raw->flow = ibv_create_flow(
		raw->conf.receiver == RAW_QP ? raw->side.qp : raw->hash_qp, &flow.attr);
	assert_non_null(raw->flow);
}

void raw_open(struct raw *raw, const struct raw_conf *conf)
{
	size_t bytes = (size_t)RAW_SLOT * RAW_SLOTS;
	struct mlx5dv_obj object = {.cq = {NULL, &raw->rcq}};

	memset(raw, 0, sizeof(*raw));
	raw->conf = *conf;
	raw->conf.max_wr = conf->max_wr ? conf->max_wr : 64;
	raw->conf.max_sge = conf->max_sge ? conf->max_sge : 1;
	raw->conf.n_wqs = conf->n_wqs ? conf->n_wqs : 1;
	raw->conf.cq_depth = conf->cq_depth ? conf->cq_depth : 4 * raw->conf.max_wr;
	raw->conf.cqe_size = conf->cqe_size ? conf->cqe_size : 64;
	open_device(raw);
	raw->side.memory = aligned_alloc(4096, bytes);
	assert_non_null(raw->side.memory);
	memset(raw->side.memory, 0, bytes);
	raw->side.mr = ibv_reg_mr(raw->pd, raw->side.memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(raw->side.mr);
	raw->side.send_cq = make_cq(raw, 0);
	raw->side.recv_cq = make_cq(raw, conf->compress);
	assert_non_null(raw->side.send_cq);
	assert_non_null(raw->side.recv_cq);
	make_qp(raw);
	object.cq.in = raw->side.recv_cq;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
	if (conf->receiver == RAW_WQ || conf->receiver == RAW_STRIDING) {
		for (uint32_t i = 0; i < raw->conf.n_wqs; i++)
			raw->wq[i] = make_wq(raw);
		make_hash_qp(raw);
	}
	if (conf->receiver != RAW_NONE && !conf->no_flow)
		make_flow(raw);
}

void raw_close(struct raw *raw)
{
	if (raw->flow)
		assert_int_equal(ibv_destroy_flow(raw->flow), 0);
	if (raw->hash_qp) {
		assert_int_equal(ibv_destroy_qp(raw->hash_qp), 0);
		assert_int_equal(ibv_destroy_rwq_ind_table(raw->table), 0);
	}
	for (uint32_t i = 0; i < raw->conf.n_wqs && raw->wq[i]; i++)
		assert_int_equal(ibv_destroy_wq(raw->wq[i]), 0);
	assert_int_equal(ibv_destroy_qp(raw->side.qp), 0);
	assert_int_equal(ibv_destroy_cq(raw->side.send_cq), 0);
	assert_int_equal(ibv_destroy_cq(raw->side.recv_cq), 0);
	assert_int_equal(ibv_dereg_mr(raw->side.mr), 0);
	assert_int_equal(ibv_dealloc_pd(raw->pd), 0);
	assert_int_equal(ibv_close_device(raw->context), 0);
	free(raw->side.memory);
}

uint8_t *raw_slot(struct raw *raw, uint32_t i)
{
	return raw->side.memory + (size_t)i * RAW_SLOT;
}

/* ---- posting ---- */

static struct ibv_sge sge_of(struct raw *raw, uint32_t slot, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)raw_slot(raw, slot), length, raw->side.mr->lkey};
}

void raw_post_recv(struct raw *raw, uint32_t wq, uint64_t wr_id, uint32_t slot, uint32_t length)
{
	struct ibv_sge sge = sge_of(raw, slot, length);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	if (raw->conf.receiver == RAW_QP)
		assert_int_equal(ibv_post_recv(raw->side.qp, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_wq_recv(raw->wq[wq], &wr, &bad), 0);
}

void raw_post_plain(struct raw *raw, uint32_t slot, uint32_t length)
{
	uint8_t *wqe = (uint8_t *)raw->rq.buf + raw->posted % raw->rq.wqe_cnt * raw->rq.stride;

	memset(wqe, 0, raw->rq.stride);
	ring_data(wqe, length, raw->side.mr->lkey, (uintptr_t)raw_slot(raw, slot));
	if (raw->rq.stride > 16)
		ring_data(wqe + 16, 0, MLX5_INVALID_LKEY, 0);
	__atomic_store_n(raw->rq.dbrec, htobe32(++raw->posted), __ATOMIC_RELEASE);
}

void raw_post_strides(struct raw *raw, uint32_t slot)
{
	uint32_t bytes = 1u << (raw->conf.log2_stride + raw->conf.log2_n_strides);
	uint8_t *wqe = (uint8_t *)raw->rq.buf + raw->posted % raw->rq.wqe_cnt * raw->rq.stride;

	memset(wqe, 0, raw->rq.stride);
	ring_data(wqe + 16, bytes, raw->side.mr->lkey, (uintptr_t)raw_slot(raw, slot));
	if (raw->rq.stride > 32)
		ring_data(wqe + 32, 0, MLX5_INVALID_LKEY, 0);
	__atomic_store_n(raw->rq.dbrec, htobe32(++raw->posted), __ATOMIC_RELEASE);
}

void raw_post_send(struct raw *raw, uint64_t wr_id, uint32_t slot, uint32_t length, int flags)
{
	struct ibv_sge sge = sge_of(raw, slot, length);
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (unsigned int)flags};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(raw->side.qp, &wr, &bad), 0);
}

/* ---- CQEs ---- */

struct mlx5_cqe64 *raw_poll(struct raw *raw, int ms)
{
	struct mlx5_cqe64 *cqe = cq_next(&raw->rcq, &raw->rcq_head, ms);

	if (cqe)
		raw->rcq.dbrec[0] = htobe32(raw->rcq_head & 0xffffff);
	return cqe;
}

struct mlx5_cqe64 *raw_wait(struct raw *raw)
{
	struct mlx5_cqe64 *cqe = raw_poll(raw, 20000);

	if (!cqe)
		fail_msg("no CQE %u in twenty seconds", raw->rcq_head);
	return cqe;
}

void raw_expect_quiet(struct raw *raw)
{
	assert_null(raw_poll(raw, 20));
}

/* ---- frames ---- */

static uint8_t *put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
	return to + 2;
}

uint16_t raw_sum(const uint8_t *bytes, uint32_t n, uint32_t start)
{
	uint32_t sum = start;

	for (uint32_t i = 0; i < n; i++)
		sum += (uint32_t)bytes[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static const uint8_t addresses4[8] = {10, 1, 2, 3, 10, 9, 8, 7};
static const uint8_t addresses6[32] = {0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	0xfd, 9, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8};

static uint8_t *put_ip(uint8_t *at, const struct raw_frame *frame, uint32_t length)
{
	uint8_t protocol = frame->tcp ? 6 : 17, *ip = at;

	if (frame->ipv6) {
		memset(at, 0, 40);
		at[0] = 0x60;
		put16(at + 4, length);
		at[6] = protocol;
		at[7] = 64;
		memcpy(at + 8, addresses6, 32);
		return at + 40;
	}
	memset(at, 0, 20);
	at[0] = 0x45;
	put16(at + 2, length + 20);
	at[8] = 64;
	at[9] = protocol;
	memcpy(at + 12, addresses4, 8);
	put16(at + 10, (uint16_t)~raw_sum(ip, 20, 0));
	return at + 20;
}

static uint16_t l4_sum(const struct raw_frame *frame, const uint8_t *l4, uint32_t length)
{
	uint32_t pseudo = (frame->tcp ? 6 : 17) + length;

	pseudo += frame->ipv6 ? raw_sum(addresses6, 32, 0) : raw_sum(addresses4, 8, 0);
	return (uint16_t)~raw_sum(l4, length, pseudo);
}

uint32_t raw_make(uint8_t *to, const struct raw_frame *frame)
{
	static const uint8_t source[6] = {2, 0, 10, 1, 2, 3};
	uint32_t header = frame->tcp ? 20 : 8, length = header + frame->payload;
	uint8_t *at = to, *l4;

	memcpy(at, raw_mac, 6);
	memcpy(at + 6, source, 6);
	at += 12;
	if (frame->vlan)
		at = put16(put16(at, 0x8100), frame->vlan);
	at = put16(at, frame->ipv6 ? 0x86dd : 0x0800);
	l4 = put_ip(at, frame, length);
	memset(l4, 0, header);
	put16(l4, frame->source_port);
	put16(l4 + 2, frame->dest_port);
	if (frame->tcp)
		l4[12] = 5 << 4;
	else
		put16(l4 + 4, length);
	for (uint32_t i = 0; i < frame->payload; i++)
		l4[header + i] = (uint8_t)(frame->seed + i * 7 + (i >> 8));
	put16(l4 + (frame->tcp ? 16 : 6), l4_sum(frame, l4, length));
	return (uint32_t)(l4 - to) + length;
}

void raw_spoil_sums(uint8_t *frame, bool vlan, bool ipv6, bool tcp)
{
	uint8_t *ip = frame + 14 + (vlan ? 4 : 0), *l4 = ip + (ipv6 ? 40 : 20);

	if (!ipv6)
		put16(ip + 10, 0x1234);
	put16(l4 + (tcp ? 16 : 6), 0x5678);
}
