/* raw.h - a port of the emulated device as programs of raw Ethernet use it: queues, frames, CQEs
 *
 * Where there is one device its port is plugged into itself, where there are two into each other.
 */
#ifndef TEST_VHCA_RAW_H
#define TEST_VHCA_RAW_H

#include "ring.h"

enum {
	RAW_SLOT = 9216, /* of memory, for a frame */
	RAW_SLOTS = 96,
	RAW_PADDED = 60,
	RAW_ALL_HASH = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
		IBV_RX_HASH_DST_PORT_UDP,
};

/* What it receives by. */
enum raw_receiver { RAW_QP, RAW_WQ, RAW_STRIDING, RAW_NONE };

struct raw_conf {
	int device;
	enum raw_receiver receiver;
	uint32_t max_wr;  /* 0 is 64 */
	uint32_t max_sge; /* 0 is 1 */
	uint32_t max_inline;
	uint32_t n_wqs;    /* a power of two; 0 is 1 */
	uint32_t cq_depth; /* 0 is enough for all */
	int cqe_size;      /* 0 is 64 */
	uint8_t compress;  /* enum mlx5dv_cqe_comp_res_format; 0: none */
	uint64_t hash;     /* 0: the first queue gets all */
	uint8_t log2_stride, log2_n_strides;
	bool two_byte_shift, strip_vlan, no_flow;
};

struct raw {
	struct raw_conf conf;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct side side; /* the QP that sends, and receives where it is RAW_QP */
	struct ibv_wq *wq[8];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *hash_qp;
	struct ibv_flow *flow;
	/* the receive queue's rings, by hand: of WQ 0 */
	struct mlx5dv_rwq rq;
	struct mlx5dv_cq rcq;
	uint16_t posted;
	uint32_t rcq_head;
};

void raw_open(struct raw *raw, const struct raw_conf *conf);
void raw_close(struct raw *raw);
uint8_t *raw_slot(struct raw *raw, uint32_t i);

/* A receive of `length` bytes into a slot, by libmlx5. */
void raw_post_recv(struct raw *raw, uint32_t wq, uint64_t wr_id, uint32_t slot, uint32_t length);
/* The same by hand, for who polls by hand: to WQ 0. */
void raw_post_plain(struct raw *raw, uint32_t slot, uint32_t length);
/* A striding WQE whose memory begins at the slot. */
void raw_post_strides(struct raw *raw, uint32_t slot);
/* Sends the bytes of a slot by libmlx5, signalled. */
void raw_post_send(struct raw *raw, uint64_t wr_id, uint32_t slot, uint32_t length, int flags);

/* The next CQE of the receive CQ, by hand; NULL after so many milliseconds without. */
struct mlx5_cqe64 *raw_poll(struct raw *raw, int ms);
struct mlx5_cqe64 *raw_wait(struct raw *raw);
void raw_expect_quiet(struct raw *raw);

/* ---- frames ---- */

struct raw_frame {
	uint16_t vlan; /* TCI; 0: none */
	bool ipv6, tcp;
	uint16_t source_port, dest_port;
	uint32_t payload; /* bytes */
	uint32_t seed;
};

/* The destination that the flow of raw_open() is for. */
extern const uint8_t raw_mac[6];
/* Writes it, with right checksums; how many bytes. */
uint32_t raw_make(uint8_t *to, const struct raw_frame *frame);
/* Spoils the checksums, which a device is to make anew. */
void raw_spoil_sums(uint8_t *frame, bool vlan, bool ipv6, bool tcp);
/* The one's complement sum of bytes, folded, as they lie. */
uint16_t raw_sum(const uint8_t *bytes, uint32_t n, uint32_t start);

#endif
