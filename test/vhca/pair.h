/* pair.h - two connected RC QPs of one process on the emulated device, driven by libmlx5 alone */
#ifndef TEST_VHCA_PAIR_H
#define TEST_VHCA_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>

struct pair;

struct pair_conf {
	int device;               /* index */
	const struct pair *share; /* whose context and PD are used */
	int cqe_size;             /* MLX5_CQE_SIZE: 64 or 128; 0 is 64 */
	bool no_scatter;          /* MLX5_SCATTER_TO_CQE=0 */
	uint32_t max_wr;          /* 0 is 64 */
	uint32_t max_sge;         /* 0 is 1 */
	uint32_t max_inline;
	uint32_t cq_depth; /* 0 is enough for all */
	size_t bytes;      /* of each side's memory; 0 is 64 KiB */
	int access;        /* of the QP and of the memory; 0 is local and remote write */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer; /* 0 are 10, 7, 7 and 1 */
	bool no_retries;  /* rnr_retry and retry_cnt are really 0 */
	bool events;      /* the receive CQs have a completion channel */
	bool unconnected; /* both stay in INIT */
	bool signal_all;
	bool srq; /* both receive from pair.srq, the shared context's if there is one */
	uint8_t max_rd_atomic; /* of both directions; 0 is 1 */
	struct ibv_cq
		*cq; /* of the shared context: both receive there, and pair_close() leaves it */
	enum ibv_qp_type type; /* 0 is RC */
};

/* Asked for, so that the linker keeps the library ahead of libibverbs. */
const char *vhca_present(void);

struct side {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr;
	uint8_t *memory;
};

struct pair {
	struct pair_conf conf;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct side a, b;
};

void pair_open(struct pair *pair, const struct pair_conf *conf);
void pair_close(struct pair *pair);

enum { PAIR_QKEY = 0x11223344 }; /* of UD QPs */

void qp_to_init(struct ibv_qp *qp, int access);
void qp_to_rtr(struct pair *pair, struct side *side, struct side *peer);
void qp_to_rts(struct pair *pair, struct side *side);
enum ibv_qp_state qp_state(struct ibv_qp *qp);
void wait_state(struct ibv_qp *qp, enum ibv_qp_state state);

/* One segment, or none where length is 0. To the QP, or to its SRQ. */
void post_recv(struct side *side, uint64_t wr_id, size_t offset, uint32_t length);
void post_send(struct side *side, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
	size_t offset, uint32_t length, const struct side *target, size_t target_offset);

/* Fails the test when nothing completes within seconds. */
struct ibv_wc wait_wc(struct ibv_cq *cq);
/* Nothing completes for some milliseconds. */
void expect_quiet(struct ibv_cq *cq);
void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);

void fill(uint8_t *memory, size_t n, uint32_t seed);

#endif
