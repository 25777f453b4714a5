/* queue_fuzz.h - two queue pairs whose rings a fuzz target fills, and the memory that they may reach
 */
#ifndef TEST_FUZZ_QUEUE_H
#define TEST_FUZZ_QUEUE_H

#include "device_fuzz.h"
#include "vhca/device.h"

/* Of the byte that chooses queues; the two lowest bits are the transport. */
enum {
	CHOOSE_CQE_128 = 4,
	CHOOSE_SCATTER = 8,
	CHOOSE_SRQ = 16,
	CHOOSE_MEND = 32,
	CHOOSE_TWICE = 64
};

struct fuzz_queue {
	struct vhca_cq *cq;
	struct vhca_srq *srq;
	struct vhca_qp *qp;
	uint8_t *cq_buf, *rings, *srq_buf;
	__be32 *records; /* CQ, QP, SRQ: two each */
};

/* Once: a context, a PD, a UAR, and memory of which the middle is registered. */
void fuzz_queues_init(void);
/* With the device's lock. */
void fuzz_queue_make(struct fuzz_queue *queue, uint8_t choice);
void fuzz_queue_end(struct fuzz_queue *queue);
/* From RESET to RTS; NULL: the peer is on this device. */
void fuzz_queue_connect(
	struct fuzz_queue *queue, const struct fuzz_queue *peer, const uint8_t address[16]);

struct vhca_device *fuzz_device(void);
/* Rings and records; where it is chosen, WQEs get the index and number that they must have. */
void fuzz_queue_fill(struct fuzz_queue *queue, struct fuzz_bytes *input);
void fuzz_queue_mend(const struct fuzz_queue *queue, const struct fuzz_queue *peer);
void fuzz_queue_ring(const struct fuzz_queue *queue, uint64_t choice);
/* Before and after: only what is registered may have changed. */
void fuzz_memory_reset(void);
void fuzz_memory_check(void);

#endif
