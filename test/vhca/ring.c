/* ring.c - the send ring of one side of a pair, written by hand as a program with mlx5dv writes it
 */

#include "ring.h"

#include <sched.h>
#include <time.h>

const struct wqe good_send = {.opcode = MLX5_OPCODE_SEND, .ds = 2, .byte_count = 8};

void ring_take(struct ring *ring, struct side *side)
{
	struct mlx5dv_obj object = {.qp = {side->qp, &ring->dv}, .cq = {side->send_cq, &ring->cq}};

	memset(ring, 0, sizeof(*ring));
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), 0);
	ring->qpn = side->qp->qp_num;
	ring->lkey = side->mr->lkey;
	ring->memory = (uintptr_t)side->memory;
}

uint8_t *ring_slot(struct ring *ring, uint16_t index)
{
	return (uint8_t *)ring->dv.sq.buf + (index % ring->dv.sq.wqe_cnt) * 64;
}

static void write_ctrl(struct ring *ring, void *slot, const struct wqe *wqe)
{
	struct mlx5_wqe_ctrl_seg *ctrl = slot;

	ctrl->opmod_idx_opcode = htobe32(wqe->opmod << 24 |
		(uint32_t)(uint16_t)(ring->head + wqe->index) << 8 | wqe->opcode);
	ctrl->qpn_ds = htobe32((ring->qpn ^ wqe->qpn_xor) << 8 | wqe->ds);
	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	ring->last = ring->head;
}

uint8_t *ring_write_ctrl(struct ring *ring, uint32_t opcode, uint32_t ds)
{
	struct wqe wqe = {.opcode = opcode, .ds = ds};
	uint8_t *slot = ring_slot(ring, ring->head);

	memset(slot, 0, (ds + 3) / 4 * 64);
	write_ctrl(ring, slot, &wqe);
	ring->head = (uint16_t)(ring->head + (ds + 3) / 4);
	return slot;
}

void ring_data(void *segment, uint32_t byte_count, uint32_t lkey, uint64_t addr)
{
	struct mlx5_wqe_data_seg *data = segment;

	data->byte_count = htobe32(byte_count);
	data->lkey = htobe32(lkey);
	data->addr = htobe64(addr);
}

void ring_raddr(void *segment, uint32_t rkey, uint64_t addr)
{
	struct mlx5_wqe_raddr_seg *raddr = segment;

	raddr->raddr = htobe64(addr);
	raddr->rkey = htobe32(rkey);
	raddr->reserved = 0;
}

uint8_t *ring_write(struct ring *ring, const struct wqe *wqe)
{
	uint8_t *slot = ring_slot(ring, ring->head);
	uint32_t lkey = ring->lkey ^ wqe->lkey_xor;

	memset(slot, 0, 64);
	write_ctrl(ring, slot, wqe);
	ring_data(slot + 16, wqe->byte_count, lkey, ring->memory + wqe->addr_add);
	ring_data(slot + 32, wqe->data1, lkey, ring->memory + wqe->addr_add);
	ring->head++;
	return slot;
}

void ring_record(struct ring *ring, uint32_t record)
{
	__atomic_store_n(&ring->dv.dbrec[MLX5_SND_DBR], htobe32(record), __ATOMIC_RELEASE);
}

void ring_bell(struct ring *ring, uint64_t value)
{
	__atomic_store_n((uint64_t *)ring->dv.bf.reg, value, __ATOMIC_RELEASE);
}

uint64_t ring_bell_value(struct ring *ring)
{
	uint64_t words;

	memcpy(&words, ring_slot(ring, ring->last), sizeof(words));
	return words;
}

void ring_post_record(struct ring *ring, uint32_t record)
{
	ring_record(ring, record);
	ring_bell(ring, ring_bell_value(ring));
}

void ring_post(struct ring *ring)
{
	ring_post_record(ring, ring->head);
}

static bool has_passed(const struct timespec *end)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - end->tv_sec) * 1000000000 + now.tv_nsec - end->tv_nsec >= 0;
}

struct mlx5_cqe64 *cq_next(const struct mlx5dv_cq *cq, uint32_t *head, int ms)
{
	struct mlx5_cqe64 *cqe = (void *)((uint8_t *)cq->buf + *head % cq->cqe_cnt * cq->cqe_size +
		cq->cqe_size - 64);
	uint8_t owner = *head / cq->cqe_cnt & 1;
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000;
	do {
		uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

		if (op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == owner) {
			++*head;
			return cqe;
		}
		sched_yield();
	} while (!has_passed(&end));
	return NULL;
}

struct mlx5_err_cqe *ring_poll(struct ring *ring, int ms)
{
	return (void *)cq_next(&ring->cq, &ring->cq_head, ms);
}

struct mlx5_err_cqe *ring_wait(struct ring *ring)
{
	struct mlx5_err_cqe *cqe = ring_poll(ring, 10000);

	if (!cqe)
		fail_msg("no CQE %u in ten seconds", ring->cq_head);
	return cqe;
}
