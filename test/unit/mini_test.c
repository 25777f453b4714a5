/* mini_test.c - compressed completions: each decoder against what a random device wrote, against
 * the other one, and on rings that mean harm */

#include "mini_ring.h"

#include "unit.h"

static const struct mini_decoder *decoders[] = {&vbn__mini_scalar, NULL};

#define for_each_decoder(decoder)                            \
	for (size_t i_ = 0; i_ < ARRAY_SIZE(decoders); i_++) \
		for (const struct mini_decoder *decoder = decoders[i_]; decoder; decoder = NULL)

static void must_be_well(const char *complaint)
{
	if (complaint)
		unit_fail("%s", complaint);
}

/* Sessions of random lengths between plain entries, taken in random cuts, round rings of all sizes:
 * what is read is what was written. */
static void test_sessions(void **state)
{
	(void)state;
	for_each_decoder(decoder)
		must_be_well(mini_check_sessions(decoder, UNIT_SHADOW ? 200000 : 1000000));
}

static void test_every_length_at_every_slot(void **state)
{
	(void)state;
	for_each_decoder(decoder) must_be_well(mini_check_lengths(decoder));
}

static void test_hostile_rings(void **state)
{
	(void)state;
	for_each_decoder(decoder) must_be_well(mini_check_spoilt(decoder, 2000));
}

static void test_decoders_agree(void **state)
{
	(void)state;
	print_message("this CPU's decoder: %s\n", decoders[1]->name);
	must_be_well(mini_check_equal(decoders[0], decoders[1], UNIT_SHADOW ? 200000 : 1000000));
}

/* One array, each field by hand. */
static void test_fields(void **state)
{
	static const uint8_t array[MINI_CQES][8] = {
		{0x12, 0x34, 0x56, 0x78, 0, 0, 0, 64},
		{0xff, 0, 0, 0xfe, 0x80, 0, 0, 1},
	};
	struct completion completions[MINI_CQES];

	(void)state;
	for_each_decoder(decoder)
	{
		decoder->decode(array, completions);
		assert_int_equal(completions[0].len, 64);
		assert_int_equal(completion_hash(&completions[0]), 0x12345678);
		assert_int_equal(completion_checksum(&completions[0]), 0x1234);
		assert_int_equal(completion_stride(&completions[0]), 0x5678);
		assert_int_equal(completion_wqe(&completions[0]), 0x1234);
		assert_int_equal(completion_opcode(&completions[0]), 0x56);
		assert_int_equal(completions[1].len, 0x80000001u);
		assert_int_equal(completion_hash(&completions[1]), 0xff0000feu);
		assert_int_equal(completions[7].len, 0);
	}
}

/* The bug that this format invites: entries of an earlier pass, in slots that a session covers, two
 * passes later. */
static void test_stale_entries_stay_hidden(void **state)
{
	static struct mini_ring ring;
	const struct mlx5_cqe64 *cqe;
	struct mlx5_cqe64 plain = {.op_own = MLX5_CQE_RESP_SEND << 4};
	struct mlx5_cqe64 title = {
		.byte_cnt = be32(8), .op_own = MLX5_CQE_RESP_SEND << 4 | 3 << 2 | 1};

	(void)state;
	assert_true(mini_ring_open(&ring, decoders[1], 3, 6, false, 1));
	for (uint32_t i = 0; i < 8; i++) /* the first pass: eight plain ones */
		memcpy(ring.cq.first + 64 * i, &plain, sizeof(plain));
	memcpy(ring.cq.first, &title, sizeof(title)); /* the second: one session */
	assert_true(cqe_is_title(cq_look(&ring.cq, 8, &cqe)));
	assert_true(session_begin(&ring.session, &ring.cq, 8, 8));
	for (uint32_t n; (n = session_ready(&ring.session));)
		session_take(&ring.session, &ring.cq, n);
	for (uint32_t index = 16; index < 24; index++) /* the third: nothing yet */
		assert_true(cqe_absent(cq_look(&ring.cq, index, &cqe)));
	mini_ring_close(&ring);
}

static void test_impossible_lengths(void **state)
{
	static const uint32_t lengths[] = {0, 1, 17, 1000, 0x80000000, 0xffffffff};
	static struct mini_ring ring;

	(void)state;
	assert_true(mini_ring_open(&ring, decoders[1], 4, 6, true, 1));
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct mlx5_cqe64 title = {.byte_cnt = be32(lengths[i])};

		memcpy(ring.cq.first, &title, sizeof(title));
		assert_false(session_begin(&ring.session, &ring.cq, 0, 16));
		assert_int_equal(session_ready(&ring.session), 0);
	}
	mini_ring_close(&ring);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_sessions),
		cmocka_unit_test(test_every_length_at_every_slot),
		cmocka_unit_test(test_decoders_agree),
		cmocka_unit_test(test_hostile_rings),
		cmocka_unit_test(test_stale_entries_stay_hidden),
		cmocka_unit_test(test_impossible_lengths),
	};

	decoders[1] = vbn__mini_decoder();
	return cmocka_run_group_tests_name("mini", tests, NULL, NULL);
}
