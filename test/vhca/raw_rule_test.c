/* raw_rule_test.c - the rules of raw Ethernet, broken by WQEs written by hand, and what the program
 * then gets
 */

#include "broken.h"
#include "raw.h"

#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { MULTI_PACKET = 0x29, FRAME = 100 };

struct bench {
	struct raw raw;
	struct ring ring;
};

static void open_bench(struct bench *bench, struct raw_conf conf)
{
	raw_open(&bench->raw, &conf);
	ring_take(&bench->ring, &bench->raw.side);
	raw_make(raw_slot(&bench->raw, 0), &(struct raw_frame){.payload = FRAME});
}

static int first_cqe(struct bench *bench)
{
	struct mlx5_err_cqe *cqe = ring_wait(&bench->ring);

	return cqe->op_own >> 4 == MLX5_CQE_REQ ? FINE : cqe->syndrome;
}

/* A WQE of an Ethernet segment, and of one pointer; to be spoiled. */
static struct mlx5_wqe_eth_seg *write_frame(struct bench *bench, uint32_t opcode, uint32_t length)
{
	uint8_t *wqe = ring_write_ctrl(&bench->ring, opcode, 3);

	ring_data(wqe + 32, length, bench->ring.lkey, bench->ring.memory);
	return (void *)(wqe + 16);
}

static int spoiled(void (*spoil)(struct mlx5_wqe_eth_seg *eth))
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	spoil(write_frame(&bench, MLX5_OPCODE_SEND, FRAME));
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static void with_mss(struct mlx5_wqe_eth_seg *eth)
{
	eth->mss = htobe16(1400);
}

static int eth_reserved(void)
{
	return spoiled(with_mss);
}

static void with_inner_sums(struct mlx5_wqe_eth_seg *eth)
{
	eth->cs_flags = 0x30;
}

static int eth_reserved_flags(void)
{
	return spoiled(with_inner_sums);
}

static void with_offsets(struct mlx5_wqe_eth_seg *eth)
{
	eth->rsvd0 = htobe32(0x0e220000);
}

static int eth_reserved_offsets(void)
{
	return spoiled(with_offsets);
}

static void with_nothing(struct mlx5_wqe_eth_seg *eth)
{
	(void)eth;
}

static int eth_inline(void)
{
	setenv("VHCA_PROFILE", "connectx4lx", 1);
	return spoiled(with_nothing);
}

/* The MAC header is there, but the tag in it wants four bytes more. */
static int eth_inline_tag(void)
{
	struct bench bench;
	struct mlx5_wqe_eth_seg *eth;
	uint8_t *wqe;

	setenv("VHCA_PROFILE", "connectx4lx", 1);
	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	wqe = ring_write_ctrl(&bench.ring, MLX5_OPCODE_SEND, 4);
	eth = (void *)(wqe + 16);
	eth->inline_hdr_sz = htobe16(14);
	eth->inline_hdr[10] = 0x81;
	ring_data(wqe + 48, FRAME, bench.ring.lkey, bench.ring.memory);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* Headers that reach beyond the WQE. */
static int eth_inline_end(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	write_frame(&bench, MLX5_OPCODE_SEND, FRAME)->inline_hdr_sz = htobe16(64);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* Of a tag that is to be inserted: neither 802.1Q nor 802.1ad; and where the device takes none. */
static void with_a_tag(struct mlx5_wqe_eth_seg *eth)
{
	eth->inline_hdr_sz = htobe16(0x8000);
}

static void with_an_odd_tag(struct mlx5_wqe_eth_seg *eth)
{
	eth->inline_hdr_sz = htobe16(0x8002);
}

static int eth_insert_reserved(void)
{
	return spoiled(with_an_odd_tag);
}

static int eth_insert_inline(void)
{
	setenv("VHCA_PROFILE", "connectx4lx", 1);
	return spoiled(with_a_tag);
}

/* More headers than the field has bits for, in a WQE that would have room for them. */
static int eth_inline_long(void)
{
	struct bench bench;
	uint8_t *wqe;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	wqe = ring_write_ctrl(&bench.ring, MLX5_OPCODE_SEND, 63);
	((struct mlx5_wqe_eth_seg *)(void *)(wqe + 16))->inline_hdr_sz = htobe16(0x400);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int eth_missing(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	ring_write_ctrl(&bench.ring, MLX5_OPCODE_SEND, 1);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int mpw_header(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	write_frame(&bench, MULTI_PACKET, FRAME)->inline_hdr_sz = htobe16(2);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int mpw_empty(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	ring_write_ctrl(&bench.ring, MULTI_PACKET, 2);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* The second frame is inline data that ends behind the WQE. */
static int mpw_inline_end(void)
{
	struct bench bench;
	uint8_t *wqe;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	wqe = ring_write_ctrl(&bench.ring, MULTI_PACKET, 5);
	ring_data(wqe + 32, FRAME, bench.ring.lkey, bench.ring.memory);
	*(uint32_t *)(void *)(wqe + 48) = htobe32(MLX5_INLINE_SEG | 60);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int mpw_bounds(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	bench.ring.memory += (uint64_t)RAW_SLOT * RAW_SLOTS - FRAME + 1;
	write_frame(&bench, MULTI_PACKET, FRAME);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* The older profile has no such WQEs. */
static int mpw_unknown(void)
{
	struct bench bench;

	setenv("VHCA_PROFILE", "connectx4lx", 1);
	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	write_frame(&bench, MULTI_PACKET, FRAME);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int tso_unknown(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	write_frame(&bench, MLX5_OPCODE_TSO, FRAME);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int sized(uint32_t opcode, uint32_t length)
{
	struct bench bench;
	struct mlx5_err_cqe *cqe;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	write_frame(&bench, opcode, length);
	write_frame(&bench, MLX5_OPCODE_SEND, FRAME);
	ring_post(&bench.ring);
	cqe = ring_wait(&bench.ring);
	return cqe->op_own >> 4 == MLX5_CQE_REQ ? FINE : cqe->syndrome;
}

static int frame_size(void)
{
	return sized(MLX5_OPCODE_SEND, 9019);
}

static int frame_size_short(void)
{
	return sized(MLX5_OPCODE_SEND, 13);
}

static int frame_size_of_several(void)
{
	return sized(MULTI_PACKET, 9019);
}

static int raw_lkey(void)
{
	struct bench bench;

	open_bench(&bench, (struct raw_conf){.receiver = RAW_NONE});
	bench.ring.lkey ^= 0x100;
	write_frame(&bench, MULTI_PACKET, FRAME);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* Half of the memory that its strides ask for: the first frame finds out. */
static int stride_room(void)
{
	struct bench bench;
	struct mlx5_cqe64 *cqe;
	uint32_t size;

	open_bench(&bench,
		(struct raw_conf){.receiver = RAW_STRIDING,
			.max_wr = 4,
			.max_sge = 1,
			.log2_stride = 8,
			.log2_n_strides = 3});
	raw_post_strides(&bench.raw, 1);
	((struct mlx5_wqe_data_seg *)(void *)((uint8_t *)bench.raw.rq.buf + 16))->byte_count =
		htobe32(1024);
	size = raw_make(raw_slot(&bench.raw, 0), &(struct raw_frame){.payload = FRAME});
	raw_post_send(&bench.raw, 1, 0, size, 0);
	cqe = raw_wait(&bench.raw);
	return cqe->op_own >> 4 == MLX5_CQE_RESP_SEND
		? FINE
		: ((struct mlx5_err_cqe *)(void *)cqe)->syndrome;
}

static struct rule_case cases[] = {
	UNDEFINED(eth_reserved, ETH_RESERVED, FINE, QP_ERROR),
	UNDEFINED(eth_reserved_flags, ETH_RESERVED, FINE, QP_ERROR),
	UNDEFINED(eth_reserved_offsets, ETH_RESERVED, FINE, QP_ERROR),
	REPORTED(eth_inline, ETH_INLINE, QP_ERROR),
	REPORTED(eth_inline_tag, ETH_INLINE, QP_ERROR),
	REPORTED(eth_inline_end, SEGMENT_END, QP_ERROR),
	REPORTED(eth_inline_long, SEGMENT_END, QP_ERROR),
	UNDEFINED(eth_insert_reserved, ETH_RESERVED, FINE, QP_ERROR),
	REPORTED(eth_insert_inline, ETH_INLINE, QP_ERROR),
	REPORTED(eth_missing, WQE_DS, QP_ERROR),
	REPORTED(mpw_header, MPW_HEADER, QP_ERROR),
	REPORTED(mpw_empty, WQE_DS, QP_ERROR),
	REPORTED(mpw_inline_end, SEGMENT_END, QP_ERROR),
	REPORTED(mpw_bounds, LKEY_BOUNDS, PROTECTION),
	REPORTED(mpw_unknown, WQE_OPCODE, QP_ERROR),
	REPORTED(tso_unknown, WQE_OPCODE, QP_ERROR),
	UNDEFINED(frame_size, FRAME_SIZE, FINE, FLUSHED),
	UNDEFINED(frame_size_short, FRAME_SIZE, FINE, FLUSHED),
	UNDEFINED(frame_size_of_several, FRAME_SIZE, FINE, FLUSHED),
	REPORTED(raw_lkey, LKEY, PROTECTION),
	UNDEFINED(stride_room, STRIDE_ROOM, FINE, FLUSHED),
};

int main(void)
{
	struct CMUnitTest tests[N(cases)];

	for (size_t i = 0; i < N(cases); i++)
		tests[i] = (struct CMUnitTest){.name = cases[i].name,
			.test_func = rule_broken,
			.initial_state = &cases[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
