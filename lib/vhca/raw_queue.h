/* raw_queue.h - receive work queues, indirection tables and TIRs, as those who make them know them
 *
 * With the device's lock held; 0 or a positive errno.
 */
#ifndef VHCA_RAW_QUEUE_H
#define VHCA_RAW_QUEUE_H

#include "vhca/vhca.h"

struct vhca_wq;
struct vhca_tir;

#define VHCA_RSS_KEY     40u
#define VHCA_MAX_RQT     11 /* log2 of a table's size */
/* log2 of bytes, and of how many of them a striding WQE has */
#define VHCA_MIN_STRIDE  6
#define VHCA_MAX_STRIDE  13
#define VHCA_MIN_STRIDES 3
#define VHCA_MAX_STRIDES 14

/* ---- receive work queues ---- */

struct vhca_wq_attr {
	struct vhca_pd *pd; /* of its lkeys */
	struct vhca_cq *cq;
	uint64_t buf, db;     /* the program's addresses; the record is at db, and has 8 bytes */
	uint32_t n_wqe;       /* a power of two */
	uint32_t log2_stride; /* bytes of a WQE */
	uint32_t uidx;
	uint64_t user_handle;
	bool strip_vlan;
	bool signature; /* a segment in front of the data segments */
	/* striding: a WQE is a buffer of strides, which frames consume one after the other; a next
	 * segment of 16 bytes, without a meaning, is in front of its data segments */
	bool striding;
	uint8_t log2_stride_bytes, log2_n_strides;
	bool two_byte_shift;   /* frames begin two bytes into their stride */
	struct vhca_qp *owner; /* a raw QP's own is in no list of objects; NULL: it is by itself */
};

int vhca_wq_create(
	struct vhca_context *context, const struct vhca_wq_attr *attr, struct vhca_wq **wq);
/* EINVAL: there is no such way. To RESET: it begins anew with WQE 0. */
int vhca_wq_modify(struct vhca_wq *wq, enum ibv_qp_state to);
void vhca_wq_destroy(struct vhca_wq *wq);
/* Ends the events; how many the program has read. */
uint32_t vhca_wq_events(struct vhca_wq *wq);
uint32_t vhca_wq_number(const struct vhca_wq *wq);
enum ibv_qp_state vhca_wq_state(const struct vhca_wq *wq);
void vhca_wq_strip_vlan(struct vhca_wq *wq, bool strip);

/* ---- indirection tables ---- */

int vhca_rqt_create(struct vhca_context *context, struct vhca_wq *const *wqs, uint32_t n,
	struct vhca_rqt **rqt);
/* The table becomes another one. */
int vhca_rqt_modify(struct vhca_rqt *rqt, struct vhca_wq *const *wqs, uint32_t n);
void vhca_rqt_destroy(struct vhca_rqt *rqt);
uint32_t vhca_rqt_number(const struct vhca_rqt *rqt);
uint32_t vhca_rqt_size(const struct vhca_rqt *rqt);

/* ---- TIRs: what a rule of steering leads to ---- */

struct vhca_tir_attr {
	struct vhca_wq *wq;   /* either a queue ... */
	struct vhca_rqt *rqt; /* ... or a table */
	uint64_t fields;      /* MLX5_RX_HASH_*; 0: the table's first queue */
	uint8_t key[VHCA_RSS_KEY];
	bool symmetric; /* source and destination may change places */
	bool of_qp;     /* a raw QP's own: in no list of objects */
};

int vhca_tir_create(
	struct vhca_context *context, const struct vhca_tir_attr *attr, struct vhca_tir **tir);
void vhca_tir_destroy(struct vhca_tir *tir);
uint32_t vhca_tir_number(const struct vhca_tir *tir);

/* Whether raw frames leave the process: its wire carries them. */
bool vhca_raw_leaves(const struct vhca_device *device);

#endif
