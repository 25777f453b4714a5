/* raw_test.c - raw Ethernet: frames by libmlx5's posting and by hand through the port and back */

#include "raw.h"

#include <stdlib.h>

/* ---- plain ---- */

static void expect_frame(struct raw *raw, uint32_t slot, const uint8_t *sent, uint32_t size)
{
	assert_memory_equal(raw_slot(raw, slot), sent, size);
}

/* As ordinary programs do it: one QP sends and receives, more often than its rings are long. */
static void qp_to_itself(void **state)
{
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_QP, .max_wr = 16});
	for (uint32_t i = 0; i < 200; i++) {
		struct raw_frame frame = {.payload = 18 + i * 7, .seed = i, .dest_port = 7};
		uint32_t size = raw_make(raw_slot(&raw, 0), &frame);
		struct ibv_wc wc;

		raw_post_recv(&raw, 0, 1000 + i, 1, RAW_SLOT);
		raw_post_send(&raw, i, 0, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
		wc = wait_wc(raw.side.recv_cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 1000 + i);
		assert_int_equal(wc.byte_len, size);
		assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
		expect_frame(&raw, 1, raw_slot(&raw, 0), size);
	}
	raw_close(&raw);
}

static void wq_by_hash(void **state)
{
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_wr = 16});
	for (uint32_t i = 0; i < 100; i++) {
		struct raw_frame frame = {.payload = 18 + i * 7, .seed = i, .dest_port = 7};
		uint32_t size = raw_make(raw_slot(&raw, 0), &frame);
		struct ibv_wc wc;

		raw_post_recv(&raw, 0, 1000 + i, 1, RAW_SLOT);
		raw_post_send(&raw, i, 0, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
		wc = wait_wc(raw.side.recv_cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 1000 + i);
		assert_int_equal(wc.byte_len, size);
		expect_frame(&raw, 1, raw_slot(&raw, 0), size);
	}
	raw_close(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qp_to_itself),
		cmocka_unit_test(wq_by_hash),
	};

	setenv("VHCA_WIRE", "loopback", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
