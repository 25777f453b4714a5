/* two.h - two processes with a QP each, connected over UDP: what a test of the wire begins with */
#ifndef TEST_VHCA_TWO_H
#define TEST_VHCA_TWO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/types.h>

enum {
	SLOT = 8192,  /* the largest message */
	N_SLOTS = 64, /* of each kind of memory */
	N_RECEIVES = 64,
	PATIENCE_S = 60,
	TWO_QKEY = 0x11223344, /* of UD QPs */
};

/* The memory of a side: slots of each kind, then the words that atomics change. */
enum { SENT, RECEIVED, WRITTEN, READABLE, N_KINDS };

#define MEMORY (N_KINDS * N_SLOTS * SLOT + 4096)
#define WORDS  (N_KINDS * N_SLOTS * SLOT)

struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t memory;
	pid_t process;
};

struct side {
	int peer; /* a socket */
	enum ibv_qp_type type;
	uint32_t n_messages;
	uint8_t sgid_index;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct address remote;
	struct ibv_ah *ah; /* of UD: the peer's */
	uint64_t atomics;  /* of each kind, so far */
};

/* What the QP is connected with; 0 of the limits of reads and atomics is 4, of the timeout 15, of the
 * GID 3, which is RoCEv2's. */
struct manner {
	uint8_t timeout, retry_cnt, rnr_retry, max_rd_atomic, max_dest_rd_atomic, sgid_index;
};

/* Opens, meets the peer, and connects; a UD QP gets an address handle of the peer. */
void side_open(struct side *side, const struct manner *manner);
void side_close(struct side *side);

/* Until the other side has come so far too. */
void rendezvous(struct side *side);

uint8_t *slot(struct side *side, int kind, uint32_t i);
void post_receive(struct side *side, uint32_t n);
/* One of `length` bytes at slots `i` of both; an atomic is at WORDS, a compare and swap of 0 to 0. */
struct ibv_send_wr one(struct side *side, enum ibv_wr_opcode opcode, uint32_t i, uint32_t length,
	struct ibv_sge *sge);
void post_one(struct side *side, enum ibv_wr_opcode opcode, uint32_t i, uint32_t length);

/* Whether there is a completion; gives way where there is none. */
bool try_wc(struct ibv_cq *cq, struct ibv_wc *wc);
struct ibv_wc wait_wc(struct ibv_cq *cq);
double now(void);

/* Of the device's port: "hw_counters/out_of_buffer". */
uint64_t counter_of(struct side *side, const char *name);

typedef void side_fn(struct side *side);

/* Both to their good end, with VHCA_FAULT as `fault`; `killed`: the second one ends by SIGKILL. */
void run_two(
	side_fn *a, side_fn *b, enum ibv_qp_type type, uint32_t n, const char *fault, bool killed);

#endif
