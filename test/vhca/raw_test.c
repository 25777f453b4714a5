/* raw_test.c - raw Ethernet: frames by libmlx5's posting and by hand, through the port and back, and what
 * the device says of itself and refuses
 */

#include "raw.h"

#include <stdio.h>
#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { MULTI_PACKET = 0x29 };

/* ---- by libmlx5 alone ---- */

/* One frame after the other, more than the rings are long, and each as it was sent. */
static void there_and_back(struct raw *raw)
{
	for (uint32_t i = 0; i < 200; i++) {
		struct raw_frame frame = {.payload = 18 + i * 44, .seed = i, .dest_port = 7};
		uint32_t size = raw_make(raw_slot(raw, 0), &frame);
		struct ibv_wc wc;

		raw_post_recv(raw, 0, 1000 + i, 1, RAW_SLOT);
		raw_post_send(raw, i, 0, size, 0);
		expect_wc(raw->side.send_cq, i, IBV_WC_SUCCESS);
		wc = wait_wc(raw->side.recv_cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 1000 + i);
		assert_int_equal(wc.byte_len, size);
		if (raw->conf.receiver == RAW_QP)
			assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
		assert_memory_equal(raw_slot(raw, 1), raw_slot(raw, 0), size);
	}
}

static void qp_to_itself(void **state)
{
	static const int sizes[] = {64, 128};
	struct raw raw;

	(void)state;
	for (size_t i = 0; i < N(sizes); i++) {
		raw_open(&raw,
			&(struct raw_conf){.receiver = RAW_QP, .max_wr = 16, .cqe_size = sizes[i]});
		there_and_back(&raw);
		raw_close(&raw);
	}
}

static void qp_to_wq(void **state)
{
	static const int sizes[] = {64, 128};
	struct raw raw;

	(void)state;
	for (size_t i = 0; i < N(sizes); i++) {
		raw_open(&raw,
			&(struct raw_conf){.receiver = RAW_WQ, .max_wr = 16, .cqe_size = sizes[i]});
		there_and_back(&raw);
		raw_close(&raw);
	}
}

/* A frame of three pieces of memory, into one of three others. */
static void gather_and_scatter(void **state)
{
	struct raw raw;
	struct ibv_sge from[3], to[3];
	struct ibv_send_wr send = {.sg_list = from,
				   .num_sge = 3,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_recv_wr receive = {.sg_list = to, .num_sge = 3}, *bad_receive;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_sge = 4});
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 700});
	from[0] = (struct ibv_sge){(uintptr_t)raw_slot(&raw, 0), 20, raw.side.mr->lkey};
	from[1] = (struct ibv_sge){(uintptr_t)raw_slot(&raw, 0) + 20, 300, raw.side.mr->lkey};
	from[2] =
		(struct ibv_sge){(uintptr_t)raw_slot(&raw, 0) + 320, size - 320, raw.side.mr->lkey};
	to[0] = (struct ibv_sge){(uintptr_t)raw_slot(&raw, 1), 14, raw.side.mr->lkey};
	to[1] = (struct ibv_sge){(uintptr_t)raw_slot(&raw, 1) + 14, 100, raw.side.mr->lkey};
	to[2] = (struct ibv_sge){(uintptr_t)raw_slot(&raw, 1) + 114, 2000, raw.side.mr->lkey};
	assert_int_equal(ibv_post_wq_recv(raw.wq[0], &receive, &bad_receive), 0);
	assert_int_equal(ibv_post_send(raw.side.qp, &send, &bad), 0);
	expect_wc(raw.side.send_cq, 0, IBV_WC_SUCCESS);
	expect_wc(raw.side.recv_cq, 0, IBV_WC_SUCCESS);
	assert_memory_equal(raw_slot(&raw, 1), raw_slot(&raw, 0), size);
	raw_close(&raw);
}

/* What is shorter than a frame of Ethernet is padded by the port. */
static void short_frames(void **state)
{
	static const uint8_t zeroes[RAW_PADDED];
	struct ibv_wc wc;
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 0});
	memset(raw_slot(&raw, 1), 0xff, RAW_SLOT);
	raw_post_recv(&raw, 0, 1, 1, RAW_SLOT);
	raw_post_send(&raw, 2, 0, 42, 0);
	wc = wait_wc(raw.side.recv_cq);
	assert_int_equal(wc.byte_len, RAW_PADDED);
	assert_memory_equal(raw_slot(&raw, 1), raw_slot(&raw, 0), 42);
	assert_memory_equal(raw_slot(&raw, 1) + 42, zeroes, RAW_PADDED - 42);
	raw_close(&raw);
}

/* ---- several frames in a WQE ---- */

/* Pointers and inlined frames alternate; each frame comes by itself. */
static void multi_packet(void **state)
{
	struct ring ring;
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_wr = 64});
	ring_take(&ring, &raw.side);
	for (uint32_t round = 0; round < 40; round++) {
		uint8_t frames[2][128], *wqe;
		uint32_t size[2], ds = 2 + 3 * (1 + (60 + 3) / 16 + 1);

		for (uint32_t i = 0; i < 2; i++)
			size[i] = raw_make(frames[i],
				&(struct raw_frame){.payload = 18 - i, .seed = round * 2 + i});
		for (uint32_t i = 0; i < 6; i++)
			raw_post_plain(&raw, 10 + i, RAW_SLOT);
		memcpy(raw_slot(&raw, 0), frames[0], size[0]);
		ds = 2 + 3 + 3 * 4;
		wqe = malloc(64 * 5);
		memset(wqe, 0, 64 * 5);
		for (uint32_t i = 0, at = 32; i < 3; i++) {
			uint32_t inlined = htobe32(size[1] | 0x80000000u);

			ring_data(wqe + at, size[0], ring.lkey, ring.memory);
			at += 16;
			memcpy(wqe + at, &inlined, 4);
			memcpy(wqe + at + 4, frames[1], size[1]);
			at += 64;
		}
		/* into the ring, over its end */
		ring_write_ctrl(&ring, MULTI_PACKET, 1);
		ring.head = ring.last;
		{
			struct mlx5_wqe_ctrl_seg *ctrl = (void *)ring_slot(&ring, ring.last);

			ctrl->qpn_ds = htobe32(ring.qpn << 8 | ds);
			memcpy((uint8_t *)ctrl + 16, wqe + 16, 48);
			for (uint32_t b = 1; b < 5; b++)
				memcpy(ring_slot(&ring, (uint16_t)(ring.last + b)), wqe + 64 * b,
					64);
			ring.head = (uint16_t)(ring.last + (ds + 3) / 4);
		}
		free(wqe);
		ring_post(&ring);
		{
			struct mlx5_err_cqe *cqe = ring_wait(&ring);

			assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ);
			assert_int_equal(be32toh(cqe->s_wqe_opcode_qpn) >> 24, MULTI_PACKET);
			assert_int_equal(be16toh(cqe->wqe_counter), ring.last);
			ring.cq.dbrec[0] = htobe32(ring.cq_head);
		}
		for (uint32_t i = 0; i < 6; i++) {
			struct mlx5_cqe64 *cqe = raw_wait(&raw);

			assert_int_equal(
				be32toh(cqe->byte_cnt), size[i % 2] < 60 ? 60 : size[i % 2]);
			assert_memory_equal(raw_slot(&raw, 10 + i), frames[i % 2], size[i % 2]);
		}
	}
	raw_close(&raw);
}

/* As many as the size of a WQE has room for. */
static void most_packets(void **state)
{
	struct ring ring;
	struct raw raw;
	uint32_t size;
	uint8_t *wqe;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_wr = 64});
	ring_take(&ring, &raw.side);
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 200});
	for (uint32_t i = 0; i < 61; i++)
		raw_post_plain(&raw, 10 + i, RAW_SLOT);
	wqe = ring_write_ctrl(&ring, MULTI_PACKET, 63);
	for (uint32_t i = 0; i < 61; i++)
		ring_data(wqe + 32 + 16 * i, size, ring.lkey, ring.memory);
	ring_post(&ring);
	assert_int_equal(ring_wait(&ring)->op_own >> 4, MLX5_CQE_REQ);
	for (uint32_t i = 0; i < 61; i++) {
		assert_int_equal(be16toh(raw_wait(&raw)->wqe_counter), i);
		assert_memory_equal(raw_slot(&raw, 10 + i), raw_slot(&raw, 0), size);
	}
	raw_expect_quiet(&raw);
	raw_close(&raw);
}

/* ---- without room ---- */

static uint64_t hw_counter(struct raw *raw, const char *name)
{
	char path[256], text[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		ibv_get_device_name(raw->context->device), name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	return strtoull(text, NULL, 10);
}

static void out_of_buffer(void **state)
{
	struct raw raw;
	uint64_t before;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	before = hw_counter(&raw, "out_of_buffer");
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 40});
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	for (uint64_t i = 0; i < 4; i++) {
		raw_post_send(&raw, i, 0, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
	}
	raw_wait(&raw);
	raw_expect_quiet(&raw);
	assert_int_equal(hw_counter(&raw, "out_of_buffer") - before, 3);
	raw_close(&raw);
}

/* A frame that the WQE has no room for fails the queue; what is posted is flushed. It can be reset. */
static void too_long_for_the_wqe(void **state)
{
	struct ibv_wq_attr reset = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RESET};
	struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct raw raw;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 400});
	raw_post_recv(&raw, 0, 7, 1, 100);
	raw_post_recv(&raw, 0, 8, 1, RAW_SLOT);
	raw_post_send(&raw, 0, 0, size, 0);
	expect_wc(raw.side.recv_cq, 7, IBV_WC_LOC_LEN_ERR);
	expect_wc(raw.side.recv_cq, 8, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_modify_wq(raw.wq[0], &reset), 0);
	assert_int_equal(ibv_modify_wq(raw.wq[0], &ready), 0);
	raw_post_recv(&raw, 0, 9, 1, RAW_SLOT);
	raw_post_send(&raw, 1, 0, size, 0);
	expect_wc(raw.side.recv_cq, 9, IBV_WC_SUCCESS);
	raw_close(&raw);
}

/* ---- programs that count fewer bits ---- */

/* DPDK's transmit writes 16 bits of the consumer index, and its CQ does not overrun for that. */
static void consumer_of_16_bits(void **state)
{
	struct ring ring;
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_NONE, .max_wr = 64});
	ring_take(&ring, &raw.side);
	for (uint32_t i = 0; i < 70000; i += 50) {
		for (uint32_t k = 0; k < 50; k++)
			ring_write_ctrl(&ring, MLX5_OPCODE_NOP, 1);
		ring_post(&ring);
		for (uint32_t k = 0; k < 50; k++)
			assert_int_equal(ring_wait(&ring)->op_own >> 4, MLX5_CQE_REQ);
		ring.cq.dbrec[0] = htobe32(ring.cq_head & 0xffff);
	}
	raw_close(&raw);
}

/* ---- two ports, each plugged into the other ---- */

static void between_devices(void **state)
{
	struct raw a, b;
	uint32_t size;

	(void)state;
	raw_open(&a, &(struct raw_conf){.receiver = RAW_WQ});
	raw_open(&b, &(struct raw_conf){.device = 1, .receiver = RAW_WQ});
	for (uint32_t i = 0; i < 100; i++) {
		size = raw_make(raw_slot(&a, 0), &(struct raw_frame){.payload = 18 + i, .seed = i});
		raw_post_recv(&b, 0, i, 1, RAW_SLOT);
		raw_post_send(&a, i, 0, size, 0);
		expect_wc(a.side.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(b.side.recv_cq, i, IBV_WC_SUCCESS);
		assert_memory_equal(raw_slot(&b, 1), raw_slot(&a, 0), size);
	}
	raw_post_recv(&a, 0, 7, 1, RAW_SLOT);
	raw_post_send(&b, 8, 0, 100, 0); /* of zeroes: for no rule */
	expect_wc(b.side.send_cq, 8, IBV_WC_SUCCESS);
	raw_post_send(&a, 9, 0, size, 0);
	expect_wc(a.side.send_cq, 9, IBV_WC_SUCCESS);
	expect_quiet(a.side.recv_cq); /* what it sends does not come back */
	raw_close(&a);
	raw_close(&b);
}

/* ---- what the device says of itself, and what it refuses ---- */

static void capabilities(void **state)
{
	struct mlx5dv_context dv = {
		.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_CQE_COMPRESION};
	struct ibv_device_attr_ex attr;
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_NONE});
	assert_int_equal(ibv_query_device_ex(raw.context, NULL, &attr), 0);
	assert_int_equal(attr.raw_packet_caps,
		IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM);
	assert_true(ibv_is_qpt_supported(attr.rss_caps.supported_qpts, IBV_QPT_RAW_PACKET));
	assert_true(attr.rss_caps.rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ);
	assert_int_equal(attr.rss_caps.rx_hash_fields_mask, 0xff);
	assert_int_equal(attr.rss_caps.max_rwq_indirection_table_size, 2048);
	assert_true(attr.max_wq_type_rq > 0);
	assert_int_equal(attr.tso_caps.max_tso, 0);
	assert_int_equal(attr.packet_pacing_caps.qp_rate_limit_max, 0);
	assert_int_equal(mlx5dv_query_device(raw.context, &dv), 0);
	assert_true(dv.flags & MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW);
	assert_int_equal(dv.striding_rq_caps.min_single_stride_log_num_of_bytes, 6);
	assert_int_equal(dv.striding_rq_caps.max_single_wqe_log_num_of_strides, 14);
	assert_int_equal(dv.cqe_comp_caps.supported_format,
		MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM |
			MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX);
	raw_close(&raw);
}

static int hash_error(struct raw *raw, uint64_t fields, uint8_t key_bytes, uint8_t function)
{
	static uint8_t key[64];
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = raw->pd,
		.rwq_ind_tbl = raw->table,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {function, key_bytes, key, fields},
	};

	errno = 0;
	assert_null(ibv_create_qp_ex(raw->context, &attr));
	return errno;
}

/* Of strides there are 64 bytes to 8 KiB, 8 to 16384 to a WQE. */
static void strides_refused(struct raw *raw)
{
	static const struct {
		uint8_t bytes, strides;
	} wrong[] = {{5, 6}, {14, 6}, {6, 2}, {6, 15}, {0, 0}, {255, 255}};
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ,
		.max_wr = 4,
		.max_sge = 1,
		.pd = raw->pd,
		.cq = raw->side.recv_cq};

	for (size_t i = 0; i < N(wrong); i++) {
		struct mlx5dv_wq_init_attr dv = {.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
			.striding_rq_attrs = {wrong[i].bytes, wrong[i].strides, 0}};

		errno = 0;
		assert_null(mlx5dv_create_wq(raw->context, &attr, &dv));
		assert_int_equal(errno, EINVAL);
	}
}

/* A table of two queues, and nothing to choose by. */
static void hash_of_nothing(void)
{
	struct raw raw;

	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .n_wqs = 2, .hash = RAW_ALL_HASH});
	assert_int_equal(hash_error(&raw, 0, 40, IBV_RX_HASH_FUNC_TOEPLITZ), EINVAL);
	assert_int_equal(hash_error(&raw, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP, 40,
				 IBV_RX_HASH_FUNC_TOEPLITZ),
		EINVAL);
	raw_close(&raw);
}

static void refused(void **state)
{
	struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ,
		.max_wr = 4,
		.max_sge = 1,
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = IBV_WQ_FLAGS_SCATTER_FCS};
	struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD};
	struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
		.wq_state = IBV_WQS_ERR,
		.curr_wq_state = IBV_WQS_RESET};
	struct raw raw;

	(void)state;
	hash_of_nothing();
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	strides_refused(&raw);
	assert_int_equal(hash_error(&raw, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6, 40,
				 IBV_RX_HASH_FUNC_TOEPLITZ),
		EINVAL);
	assert_int_equal(hash_error(&raw, IBV_RX_HASH_INNER | IBV_RX_HASH_SRC_IPV4, 40,
				 IBV_RX_HASH_FUNC_TOEPLITZ),
		EOPNOTSUPP);
	assert_int_equal(
		hash_error(&raw, IBV_RX_HASH_SRC_IPV4, 39, IBV_RX_HASH_FUNC_TOEPLITZ), EINVAL);
	assert_int_equal(hash_error(&raw, IBV_RX_HASH_SRC_IPV4, 40, 0), EOPNOTSUPP);
	wq.pd = raw.pd;
	wq.cq = raw.side.recv_cq;
	assert_null(ibv_create_wq(raw.context, &wq));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_modify_wq(raw.wq[0], &ready), EINVAL); /* it is not in RESET */
	assert_int_equal(ibv_modify_qp(raw.side.qp, &drain, IBV_QP_STATE), EINVAL);
	/* what others need does not go */
	assert_int_equal(ibv_destroy_wq(raw.wq[0]), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(raw.table), EBUSY);
	assert_int_equal(ibv_destroy_qp(raw.hash_qp), EBUSY);
	raw_close(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qp_to_itself),
		cmocka_unit_test(qp_to_wq),
		cmocka_unit_test(gather_and_scatter),
		cmocka_unit_test(short_frames),
		cmocka_unit_test(multi_packet),
		cmocka_unit_test(most_packets),
		cmocka_unit_test(out_of_buffer),
		cmocka_unit_test(too_long_for_the_wqe),
		cmocka_unit_test(consumer_of_16_bits),
		cmocka_unit_test(capabilities),
		cmocka_unit_test(refused),
	};

	/* The older profile has no multi-packet WQEs and inserts no tags: libmlx5 inlines the MAC header. */
	const struct CMUnitTest old[] = {
		cmocka_unit_test(qp_to_itself),
		cmocka_unit_test(qp_to_wq),
		cmocka_unit_test(gather_and_scatter),
		cmocka_unit_test(short_frames),
	};
	const struct CMUnitTest two[] = {cmocka_unit_test(between_devices)};
	const char *profile = getenv("VHCA_PROFILE");

	setenv("VHCA_WIRE", "loopback", 1);
	if (profile && !strcmp(profile, "connectx4lx"))
		return cmocka_run_group_tests(old, NULL, NULL);
	if (getenv("VHCA_DEVICES"))
		return cmocka_run_group_tests(two, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
