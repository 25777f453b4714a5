/* raw_offload_test.c - what a port of raw Ethernet does to frames and says of them: checksums and tags out
 * and in, what a receive CQE has, and which queue a hash leads to
 */

#include "raw.h"

#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* ---- checksums and tags on the way out, against software's ---- */

static void offloaded_sums(void **state)
{
	static const struct raw_frame kinds[] = {
		{.payload = 100},
		{.payload = 101, .tcp = true},
		{.payload = 1, .ipv6 = true},
		{.payload = 8900, .ipv6 = true, .tcp = true},
		{.payload = 33, .vlan = 0x2007},
		{.payload = 1473, .vlan = 7, .ipv6 = true},
	};
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	for (size_t i = 0; i < N(kinds); i++) {
		const struct raw_frame *kind = &kinds[i];
		uint32_t size = raw_make(raw_slot(&raw, 0), kind);

		memcpy(raw_slot(&raw, 2), raw_slot(&raw, 0), size);
		raw_spoil_sums(raw_slot(&raw, 0), kind->vlan, kind->ipv6, kind->tcp);
		raw_post_recv(&raw, 0, i, 1, RAW_SLOT);
		raw_post_send(&raw, i, 0, size, IBV_SEND_IP_CSUM);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(raw.side.recv_cq, i, IBV_WC_SUCCESS);
		assert_memory_equal(raw_slot(&raw, 1), raw_slot(&raw, 2), size);
	}
	raw_close(&raw);
}

/* A sum of UDP that comes out as zero is written as all ones, which is the same number and does not
 * say that there is none. */
static void zero_sum(void **state)
{
	uint8_t *frame, *l4;
	struct raw raw;
	uint32_t size;
	uint16_t sum;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	frame = raw_slot(&raw, 0);
	size = raw_make(frame, &(struct raw_frame){.payload = 20});
	l4 = frame + 34;
	memset(l4 + 8, 0, 20);
	l4[6] = l4[7] = 0;
	/* what would be the sum goes into the payload */
	sum = (uint16_t)~raw_sum(l4, 28, raw_sum(frame + 26, 8, 17 + 28));
	l4[8] = (uint8_t)(sum >> 8);
	l4[9] = (uint8_t)sum;
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	raw_post_send(&raw, 0, 0, size, IBV_SEND_IP_CSUM);
	expect_wc(raw.side.recv_cq, 0, IBV_WC_SUCCESS);
	assert_int_equal(raw_slot(&raw, 1)[40], 0xff);
	assert_int_equal(raw_slot(&raw, 1)[41], 0xff);
	raw_close(&raw);
}

static void write_frame(struct ring *ring, uint32_t length, struct mlx5_wqe_eth_seg eth)
{
	uint8_t *wqe = ring_write_ctrl(ring, MLX5_OPCODE_SEND, 3);

	memcpy(wqe + 16, &eth, 16);
	ring_data(wqe + 32, length, ring->lkey, ring->memory);
}

static void inserted_tag(void **state)
{
	struct mlx5_wqe_eth_seg eth = {
		.inline_hdr_sz = htobe16(0x8000), .inline_hdr_start = {0x60, 0x09}};
	struct ring ring;
	struct raw raw;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	ring_take(&ring, &raw.side);
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 90});
	raw_make(raw_slot(&raw, 2), &(struct raw_frame){.payload = 90, .vlan = 0x6009});
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	write_frame(&ring, size, eth);
	ring_post(&ring);
	assert_int_equal(ring_wait(&ring)->op_own >> 4, MLX5_CQE_REQ);
	assert_int_equal(be32toh(raw_wait(&raw)->byte_cnt), size + 4);
	assert_memory_equal(raw_slot(&raw, 1), raw_slot(&raw, 2), size + 4);
	/* of the other kind */
	eth.inline_hdr_sz = htobe16(0x8001);
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	write_frame(&ring, size, eth);
	ring_post(&ring);
	assert_int_equal(be32toh(raw_wait(&raw)->byte_cnt), size + 4);
	assert_int_equal(raw_slot(&raw, 1)[12], 0x88);
	assert_int_equal(raw_slot(&raw, 1)[13], 0xa8);
	assert_memory_equal(raw_slot(&raw, 1) + 14, raw_slot(&raw, 2) + 14, size - 10);
	raw_close(&raw);
}

static void stripped_tag(void **state)
{
	struct mlx5_cqe64 *cqe;
	struct raw raw;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .strip_vlan = true});
	size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 90, .vlan = 0x6009});
	raw_make(raw_slot(&raw, 2), &(struct raw_frame){.payload = 90});
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	raw_post_send(&raw, 0, 0, size, 0);
	cqe = raw_wait(&raw);
	assert_int_equal(be32toh(cqe->byte_cnt), size - 4);
	assert_int_equal(be16toh(cqe->vlan_info), 0x6009);
	assert_int_equal(cqe->l4_hdr_type_etc & 1, 1);
	assert_memory_equal(raw_slot(&raw, 1), raw_slot(&raw, 2), size - 4);
	/* without a tag there is nothing to strip */
	raw_post_recv(&raw, 0, 0, 1, RAW_SLOT);
	memcpy(raw_slot(&raw, 0), raw_slot(&raw, 2), size);
	raw_post_send(&raw, 0, 0, size - 4, 0);
	cqe = raw_wait(&raw);
	assert_int_equal(be32toh(cqe->byte_cnt), size - 4);
	assert_int_equal(cqe->l4_hdr_type_etc & 1, 0);
	raw_close(&raw);
}

/* What is asked for, and has no such header, leaves as it is. */
static void sums_of_nothing(void **state)
{
	struct raw raw;
	struct ring ring;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	ring_take(&ring, &raw.side);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t size = raw_make(raw_slot(&raw, 0), &(struct raw_frame){.payload = 40 + i});
		uint8_t *wqe = ring_write_ctrl(&ring, MLX5_OPCODE_SEND, 3);
		struct mlx5_wqe_eth_seg *eth = (void *)(wqe + 16);
		uint8_t *frame = raw_slot(&raw, 0);

		raw_spoil_sums(frame, false, false, false);
		if (i == 0)
			frame[13] = 0x06; /* ARP's type */
		else if (i == 1)
			frame[14] = 0x43; /* a header of 12 bytes */
		else
			frame[16] = 0xff; /* longer than the frame */
		eth->cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
		raw_post_plain(&raw, 1, RAW_SLOT);
		ring_data(wqe + 32, size, raw.side.mr->lkey, (uintptr_t)frame);
		ring_post(&ring);
		assert_int_equal(ring_wait(&ring)->op_own >> 4, MLX5_CQE_REQ);
		assert_int_equal(be32toh(raw_wait(&raw)->byte_cnt), size);
		if (i < 2)
			assert_memory_equal(raw_slot(&raw, 1), frame, size);
	}
	raw_close(&raw);
}

/* ---- what a receive CQE says ---- */

enum { NONE, IPV6, IPV4 };
enum { TCP = 1, UDP = 2 };

static struct mlx5_cqe64 *send_and_receive(struct raw *raw, uint32_t size)
{
	raw_post_recv(raw, 0, 0, 1, RAW_SLOT);
	raw_post_send(raw, 0, 0, size, 0);
	return raw_wait(raw);
}

static uint16_t sum_of(const struct mlx5_cqe64 *cqe)
{
	uint16_t sum;

	memcpy(&sum, (const uint8_t *)cqe + 20, 2);
	return be16toh(sum);
}

static void described(void **state)
{
	static const struct {
		struct raw_frame frame;
		uint8_t l3, l4;
	} cases[] = {
		{{.payload = 40}, IPV4, UDP},
		{{.payload = 41, .tcp = true}, IPV4, TCP},
		{{.payload = 42, .ipv6 = true}, IPV6, UDP},
		{{.payload = 43, .ipv6 = true, .tcp = true}, IPV6, TCP},
		{{.payload = 44, .vlan = 5}, IPV4, UDP},
	};
	struct raw raw;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .hash = RAW_ALL_HASH});
	for (size_t i = 0; i < N(cases); i++) {
		const struct raw_frame *frame = &cases[i].frame;
		uint32_t l3_at = frame->vlan ? 18 : 14, size = raw_make(raw_slot(&raw, 0), frame);
		struct mlx5_cqe64 *cqe = send_and_receive(&raw, size);

		assert_int_equal(cqe->hds_ip_ext, MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
		assert_int_equal(cqe->l4_hdr_type_etc, cases[i].l3 << 2 | cases[i].l4 << 4);
		assert_int_equal(sum_of(cqe), raw_sum(raw_slot(&raw, 0) + l3_at, size - l3_at, 0));
		assert_int_equal(be32toh(cqe->sop_drop_qpn), 0); /* no flow tag */
		assert_true(be64toh(cqe->timestamp) != 0);
		/* and with checksums that are wrong */
		raw_spoil_sums(raw_slot(&raw, 0), frame->vlan, frame->ipv6, frame->tcp);
		cqe = send_and_receive(&raw, size);
		assert_int_equal(
			cqe->hds_ip_ext, MLX5_CQE_L2_OK | (frame->ipv6 ? MLX5_CQE_L3_OK : 0));
	}
	raw_close(&raw);
}

static void fragments_and_others(void **state)
{
	struct mlx5_cqe64 *cqe;
	struct raw raw;
	uint8_t *frame;
	uint32_t size;

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ});
	frame = raw_slot(&raw, 0);
	size = raw_make(frame, &(struct raw_frame){.payload = 40});
	frame[20] = 0x20; /* more fragments */
	cqe = send_and_receive(&raw, size);
	assert_int_equal(cqe->l4_hdr_type_etc, 0x80 | IPV4 << 2 | UDP << 4);
	assert_int_equal(cqe->hds_ip_ext & MLX5_CQE_L4_OK, 0);
	frame[21] = 9; /* a later one */
	cqe = send_and_receive(&raw, size);
	assert_int_equal(cqe->l4_hdr_type_etc, 0x80 | IPV4 << 2);
	frame[12] = 0x08; /* ARP's type */
	frame[13] = 0x06;
	cqe = send_and_receive(&raw, size);
	assert_int_equal(cqe->l4_hdr_type_etc, 0);
	assert_int_equal(cqe->hds_ip_ext, MLX5_CQE_L2_OK);
	raw_close(&raw);
}

/* The verification suite of Microsoft's RSS: 66.9.149.187:2794 to 161.142.100.80:1766. */
static void hash_as_defined(void **state)
{
	static const struct {
		uint64_t fields;
		uint32_t hash;
		uint8_t type;
	} cases[] = {
		{IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, 0x323e8fc2, 1 << 2},
		{RAW_ALL_HASH, 0x51ccc178, 1 << 2 | 2 << 6},
	};
	static const uint8_t addresses[8] = {66, 9, 149, 187, 161, 142, 100, 80};

	(void)state;
	for (size_t i = 0; i < N(cases); i++) {
		struct mlx5_cqe64 *cqe;
		struct raw raw;
		uint32_t size, hash;

		raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .hash = cases[i].fields});
		size = raw_make(raw_slot(&raw, 0),
			&(struct raw_frame){.payload = 40, .source_port = 2794, .dest_port = 1766});
		memcpy(raw_slot(&raw, 0) + 26, addresses, 8);
		cqe = send_and_receive(&raw, size);
		memcpy(&hash, (uint8_t *)cqe + 12, 4);
		assert_int_equal(be32toh(hash), cases[i].hash);
		assert_int_equal(((uint8_t *)cqe)[16], cases[i].type);
		raw_close(&raw);
	}
}

/* Flows spread over the queues by the lowest bits of their hash, and each stays on its own. */
static void spread(void **state)
{
	uint32_t n[4] = {0}, last = 0;
	struct raw raw;

	(void)state;
	raw_open(&raw,
		&(struct raw_conf){
			.receiver = RAW_WQ, .n_wqs = 4, .hash = RAW_ALL_HASH, .max_wr = 64});
	for (uint32_t i = 0; i < 64; i++)
		for (uint32_t q = 0; q < 4; q++)
			raw_post_recv(&raw, q, q, 1 + q, RAW_SLOT);
	for (uint32_t i = 0; i < 64; i++) {
		struct raw_frame frame = {.payload = 40, .source_port = (uint16_t)(i / 2 * 131)};
		uint32_t size = raw_make(raw_slot(&raw, 0), &frame), hash;
		struct mlx5_cqe64 *cqe;

		raw_post_send(&raw, i, 0, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
		cqe = raw_wait(&raw);
		memcpy(&hash, (uint8_t *)cqe + 12, 4);
		if (i % 2)
			assert_int_equal(hash, last);
		last = hash;
		n[be32toh(hash) & 3]++;
		assert_memory_equal(
			raw_slot(&raw, 1 + (be32toh(hash) & 3)), raw_slot(&raw, 0), size);
	}
	for (uint32_t q = 0; q < 4; q++)
		assert_true(n[q] >= 4);
	raw_close(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offloaded_sums),
		cmocka_unit_test(zero_sum),
		cmocka_unit_test(sums_of_nothing),
		cmocka_unit_test(inserted_tag),
		cmocka_unit_test(stripped_tag),
		cmocka_unit_test(described),
		cmocka_unit_test(fragments_and_others),
		cmocka_unit_test(hash_as_defined),
		cmocka_unit_test(spread),
	};
	/* The older profile inserts no tags, and libmlx5 inlines the MAC header. */
	const struct CMUnitTest old[] = {cmocka_unit_test(offloaded_sums)};
	const char *profile = getenv("VHCA_PROFILE");

	setenv("VHCA_WIRE", "loopback", 1);
	if (profile && !strcmp(profile, "connectx4lx"))
		return cmocka_run_group_tests(old, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
