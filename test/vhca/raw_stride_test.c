/* raw_stride_test.c - striding receive queues, and compressed CQEs of raw frames */

#include "raw.h"

#include <stdlib.h>

#define N(a)   (sizeof(a) / sizeof((a)[0]))

#define FILLER 0x80000000u

enum {
	LOG2_STRIDE = 8,
	LOG2_N = 4,
	STRIDE = 1 << LOG2_STRIDE,
	N_STRIDES = 1 << LOG2_N,
	FIRST_SLOT = 2
};

static const struct raw_conf striding = {.receiver = RAW_STRIDING,
	.max_wr = 4,
	.log2_stride = LOG2_STRIDE,
	.log2_n_strides = LOG2_N};

static uint16_t wqe_id(const struct mlx5_cqe64 *cqe)
{
	return be16toh(cqe->wqe_id);
}

/* ---- strides ---- */

/* What the device is to do, beside what it does. */
struct model {
	uint16_t wqe, stride;
};

/* A frame in its strides; the CQE of those that stay empty comes first. */
static void expect_strides(struct raw *raw, struct model *model, const uint8_t *sent, uint32_t size)
{
	uint32_t shift = raw->conf.two_byte_shift ? 2 : 0;
	uint32_t n = (size + shift + STRIDE - 1) / STRIDE, counts;
	struct mlx5_cqe64 *cqe = raw_wait(raw);
	const uint8_t *at;

	if (model->stride + n > N_STRIDES) {
		assert_int_equal(be32toh(cqe->byte_cnt),
			FILLER | (uint32_t)(N_STRIDES - model->stride) << 16);
		assert_int_equal(wqe_id(cqe), model->wqe);
		assert_int_equal(be16toh(cqe->wqe_counter), model->stride);
		model->wqe++;
		model->stride = 0;
		cqe = raw_wait(raw);
	}
	counts = be32toh(cqe->byte_cnt);
	assert_int_equal(counts, n << 16 | size);
	assert_int_equal(wqe_id(cqe), model->wqe);
	assert_int_equal(be16toh(cqe->wqe_counter), model->stride);
	at = raw_slot(raw, FIRST_SLOT + model->wqe % 4) + model->stride * STRIDE;
	if (shift)
		assert_memory_equal(at, "\0\0", 2);
	assert_memory_equal(at + shift, sent, size);
	model->stride = (uint16_t)(model->stride + n);
	if (model->stride == N_STRIDES) {
		model->wqe++;
		model->stride = 0;
	}
}

static void strides(struct raw *raw)
{
	struct model model = {0, 0};

	for (uint32_t i = 0; i < 4; i++) {
		memset(raw_slot(raw, FIRST_SLOT + i), 0xee, RAW_SLOT);
		raw_post_strides(raw, FIRST_SLOT + i);
	}
	for (uint32_t i = 0; i < 400; i++) {
		struct raw_frame frame = {.payload = 18 + i * 97 % 3900, .seed = i};
		uint32_t size = raw_make(raw_slot(raw, 0), &frame);
		uint16_t before = model.wqe;

		raw_post_send(raw, i, 0, size, 0);
		expect_wc(raw->side.send_cq, i, IBV_WC_SUCCESS);
		expect_strides(raw, &model, raw_slot(raw, 0), size);
		while (before != model.wqe)
			raw_post_strides(raw, FIRST_SLOT + before++ % 4);
	}
}

static void frames_in_strides(void **state)
{
	static const int sizes[] = {64, 128};

	(void)state;
	for (size_t i = 0; i < N(sizes); i++)
		for (int shift = 0; shift < 2; shift++) {
			struct raw_conf conf = striding;
			struct raw raw;

			conf.cqe_size = sizes[i];
			conf.two_byte_shift = shift;
			raw_open(&raw, &conf);
			strides(&raw);
			raw_close(&raw);
		}
}

/* The frame that finds no WQE is dropped; the next one goes where it would have gone. */
static void strides_run_out(void **state)
{
	struct model model = {0, 0};
	struct raw raw;
	uint32_t size;

	(void)state;
	raw_open(&raw, &striding);
	raw_post_strides(&raw, FIRST_SLOT);
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 2000});
	raw_post_send(&raw, 0, 0, size, 0);
	expect_strides(&raw, &model, raw_slot(&raw, 0), size);
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 2200});
	raw_post_send(&raw, 1, 0, size, 0);
	expect_wc(raw.side.send_cq, 0, IBV_WC_SUCCESS);
	expect_wc(raw.side.send_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(be32toh(raw_wait(&raw)->byte_cnt), FILLER | 8u << 16);
	raw_expect_quiet(&raw);
	raw_post_strides(&raw, FIRST_SLOT + 1);
	raw_post_send(&raw, 2, 0, size, 0);
	model = (struct model){1, 0};
	expect_strides(&raw, &model, raw_slot(&raw, 0), size);
	raw_close(&raw);
}

/* ---- compressed CQEs ---- */

/* One of what a session stands for. */
struct told {
	uint32_t byte_cnt, info;
	uint16_t wqe_counter, wqe_id;
	bool title, alone;
};

enum { COMPRESSED = 3, MINIS = 8 };

static uint8_t *cqe_at(const struct raw *raw, uint32_t index)
{
	return (uint8_t *)raw->rcq.buf + (size_t)(index % raw->rcq.cqe_cnt) * raw->rcq.cqe_size +
		(raw->rcq.cqe_size == 128 ? 64 : 0);
}

/* Takes the next CQE apart, with all that it stands for; how many. What lies between a session's
 * arrays was not written, and is marked, so that it is not taken for a CQE of the lap after the next.
 */
static uint32_t take_session(struct raw *raw, struct told *told)
{
	struct mlx5_cqe64 *cqe = raw_wait(raw);
	uint32_t first = raw->rcq_head - 1, n;

	if (mlx5dv_get_cqe_format(cqe) != COMPRESSED) {
		*told = (struct told){.byte_cnt = be32toh(cqe->byte_cnt),
			.wqe_counter = be16toh(cqe->wqe_counter),
			.wqe_id = be16toh(cqe->wqe_id),
			.alone = true};
		return 1;
	}
	n = be32toh(cqe->byte_cnt);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t array = i < MINIS ? 1 : i / MINIS * MINIS, words[2];

		memcpy(words, cqe_at(raw, first + array) + i % MINIS * 8, 8);
		told[i] = (struct told){.byte_cnt = be32toh(words[1]),
			.info = be32toh(words[0]),
			.wqe_counter = be16toh(cqe->wqe_counter),
			.wqe_id = be16toh(cqe->wqe_id),
			.title = !i};
	}
	for (uint32_t i = 0; i < n; i++)
		cqe_at(raw, first + i)[63] = MLX5_CQE_INVALID << 4;
	raw->rcq_head = first + n;
	raw->rcq.dbrec[0] = htobe32(raw->rcq_head & 0xffffff);
	return n;
}

enum { BURST = 24 };

/* One doorbell for all of a burst, so that its CQEs come together. */
static void send_burst(struct raw *raw, struct ring *ring, uint32_t round, uint32_t size[BURST])
{
	for (uint32_t i = 0; i < BURST; i++) {
		uint8_t *slot = raw_slot(raw, 20 + i), *wqe;
		struct raw_frame frame = {
			.payload = 40 + i, .seed = round, .source_port = (uint16_t)i};

		size[i] = raw_make(slot, &frame);
		wqe = ring_write_ctrl(ring, MLX5_OPCODE_SEND, 3);
		ring_data(wqe + 32, size[i], ring->lkey, (uintptr_t)slot);
		if (i + 1 < BURST)
			((struct mlx5_wqe_ctrl_seg *)(void *)wqe)->fm_ce_se = 0;
	}
	ring_post(ring);
	assert_int_equal(ring_wait(ring)->op_own >> 4, MLX5_CQE_REQ);
	ring->cq.dbrec[0] = htobe32(ring->cq_head);
}

static uint16_t sum_behind_mac(const uint8_t *frame, uint32_t size)
{
	return raw_sum(frame + 14, size - 14, 0);
}

/* Plain WQEs: what each mini CQE says is the frame's hash, or its sum. */
static void compressed(uint8_t format, int cqe_size)
{
	struct raw_conf conf = {.receiver = RAW_WQ,
		.max_wr = 64,
		.hash = RAW_ALL_HASH,
		.compress = format,
		.cqe_size = cqe_size,
		.cq_depth = 63};
	uint32_t n_sessions = 0, size[BURST];
	struct told told[256];
	struct ring ring;
	struct raw raw;

	raw_open(&raw, &conf);
	ring_take(&ring, &raw.side);
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < BURST; i++)
			raw_post_plain(&raw, 50, RAW_SLOT);
		send_burst(&raw, &ring, round, size);
		while (n < BURST)
			n += take_session(&raw, told + n);
		assert_int_equal(n, BURST);
		for (uint32_t i = 0; i < BURST; i++) {
			assert_int_equal(told[i].byte_cnt, size[i]);
			n_sessions += told[i].title;
			if (told[i].alone)
				continue;
			if (format == MLX5DV_CQE_RES_FORMAT_HASH)
				assert_int_not_equal(told[i].info, i ? told[i - 1].info : 0);
			else
				assert_int_equal(told[i].info >> 16,
					sum_behind_mac(raw_slot(&raw, 20 + i), size[i]));
		}
	}
	assert_true(n_sessions > 0);
	raw_close(&raw);
}

static void compressed_by_hash(void **state)
{
	(void)state;
	compressed(MLX5DV_CQE_RES_FORMAT_HASH, 64);
}

static void compressed_by_sum(void **state)
{
	(void)state;
	compressed(MLX5DV_CQE_RES_FORMAT_CSUM, 64);
	compressed(MLX5DV_CQE_RES_FORMAT_CSUM, 128);
}

/* Strides: the mini CQE says where its frame begins. */
static void compressed_with_stride(void **state)
{
	uint32_t n_sessions = 0, size[BURST];
	struct raw_conf conf = striding;
	struct model model = {0, 0};
	struct told told[256];
	struct ring ring;
	struct raw raw;

	(void)state;
	conf.compress = MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
	conf.cq_depth = 127;
	raw_open(&raw, &conf);
	ring_take(&ring, &raw.side);
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t n = 0, posted = raw.posted;

		while ((uint16_t)(raw.posted - model.wqe) < 4)
			raw_post_strides(&raw, FIRST_SLOT + raw.posted % 4);
		assert_true(raw.posted >= posted);
		send_burst(&raw, &ring, round, size);
		while (n < BURST)
			n += take_session(&raw, told + n);
		for (uint32_t i = 0; i < BURST; i++) {
			const uint8_t *sent = raw_slot(&raw, 20 + i);
			const uint8_t *at =
				raw_slot(&raw, FIRST_SLOT + model.wqe % 4) + model.stride * STRIDE;

			assert_int_equal(told[i].byte_cnt, 1u << 16 | size[i]);
			assert_int_equal(told[i].wqe_id, model.wqe);
			if (told[i].alone)
				assert_int_equal(told[i].wqe_counter, model.stride);
			else
				assert_int_equal(told[i].info,
					(uint32_t)sum_behind_mac(sent, size[i]) << 16 |
						model.stride);
			n_sessions += told[i].title;
			assert_memory_equal(at, sent, size[i]);
			if (++model.stride == N_STRIDES) {
				model.wqe++;
				model.stride = 0;
			}
		}
	}
	assert_true(n_sessions > 0);
	raw_close(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_in_strides),
		cmocka_unit_test(strides_run_out),
		cmocka_unit_test(compressed_by_hash),
		cmocka_unit_test(compressed_by_sum),
		cmocka_unit_test(compressed_with_stride),
	};

	setenv("VHCA_WIRE", "loopback", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
