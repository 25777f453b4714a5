/* ring.h - the send ring of one side of a pair, written by hand as a program with mlx5dv writes it
 */
#ifndef TEST_VHCA_RING_H
#define TEST_VHCA_RING_H

#include "pair.h"

struct ring {
	struct mlx5dv_qp dv;
	struct mlx5dv_cq cq;
	uint16_t head; /* WQEBBs written */
	uint16_t last; /* where the last WQE begins */
	uint32_t cq_head;
	uint32_t qpn, lkey;
	uint64_t memory;
};

/* A WQE with a data segment right behind its control segment: what a case spoils of a good one. */
struct wqe {
	uint32_t opcode, index, opmod, qpn_xor, ds;
	uint32_t byte_count, lkey_xor;
	uint64_t addr_add;
	uint32_t data1; /* byte count of a second segment, where ds has one */
};

/* A signalled SEND of 8 bytes. */
extern const struct wqe good_send;

/* For a QP that has posted nothing yet. */
void ring_take(struct ring *ring, struct side *side);
uint8_t *ring_slot(struct ring *ring, uint16_t index);
/* Writes the next WQE of one WQEBB; returns its slot, to be spoiled further. */
uint8_t *ring_write(struct ring *ring, const struct wqe *wqe);
/* The control segment of the next WQE of so many segments, signalled; the rest is zero. */
uint8_t *ring_write_ctrl(struct ring *ring, uint32_t opcode, uint32_t ds);
void ring_data(void *segment, uint32_t byte_count, uint32_t lkey, uint64_t addr);
void ring_raddr(void *segment, uint32_t rkey, uint64_t addr);

void ring_record(struct ring *ring, uint32_t record);
void ring_bell(struct ring *ring, uint64_t value);
/* The first words of the last WQE. */
uint64_t ring_bell_value(struct ring *ring);
/* All that is written, as it should be done; or with another record. */
void ring_post(struct ring *ring);
void ring_post_record(struct ring *ring, uint32_t record);

/* The next CQE of a CQ that is polled by hand, of 64 bytes or the last ones of 128; NULL after so many
 * milliseconds without. `head` is how many there were. */
struct mlx5_cqe64 *cq_next(const struct mlx5dv_cq *cq, uint32_t *head, int ms);
/* The next CQE, or NULL after so many milliseconds without. */
struct mlx5_err_cqe *ring_poll(struct ring *ring, int ms);
/* The same; fails the test where none comes in seconds. */
struct mlx5_err_cqe *ring_wait(struct ring *ring);

#endif
