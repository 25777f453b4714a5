/* device.h - private to the device side: the objects as the engine sees them, and the seams between
 * its files
 *
 * Lives here: queues, their layouts, and what the files of the device side (vhca.h lists them) know
 * of each other. May touch it: those files alone; front sees vhca.h.
 *
 * Everything is done with the device's lock held, so nothing in here is shared between threads but
 * the program's memory, which other threads write at any time.
 */
#ifndef VHCA_DEVICE_H
#define VHCA_DEVICE_H

#include "vhca/memory.h"
#include "vhca/rule.h"
#include "vhca/trap.h"
#include "vhca/wire.h"

#define VHCA_MAX_MESSAGE         (1u << 30) /* max_msg_sz of the port */
#define VHCA_MAX_QUEUE           32768u     /* WQEs or WQEBBs of one ring */
#define VHCA_MAX_RD_ATOMIC       16u
#define VHCA_SEGMENT             16u /* bytes: every part of a WQE is a multiple of it */
#define VHCA_MAX_WQE             (63u * VHCA_SEGMENT)
#define VHCA_ATOMIC              8u  /* bytes */
#define VHCA_GRH                 40u /* bytes in front of a received datagram */

/* Of raw WQEs, as mlx5dv.h does not name them: the enhanced kind of several frames, and a tag in the
 * place of inlined headers. */
#define VHCA_OPCODE_MULTI_PACKET 0x29
#define VHCA_ETH_INSERT          0x8000

/* Of a control segment's fm_ce_se: wait for reads and atomics ahead. The three values are the kinds
 * that mlx5dv.h names. */
#define VHCA_FENCE_BITS          (MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE)

static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == VHCA_SEGMENT, "a control segment is one unit");
static_assert(sizeof(struct mlx5_wqe_data_seg) == VHCA_SEGMENT, "a data segment is one unit");
static_assert(
	sizeof(struct mlx5_wqe_raddr_seg) == VHCA_SEGMENT, "a remote address segment is one unit");
static_assert(sizeof(struct mlx5_cqe64) == 64, "the CQE that every program reads");
static_assert(sizeof(struct mlx5_err_cqe) == 64, "an error CQE has the size of any other");
static_assert(offsetof(struct mlx5_cqe64, wqe_counter) == 60, "the owner bit is in the last word");

/* ---- lists ---- */

struct vhca_link {
	struct vhca_link *next, *prev;
};

static inline void vhca_list_init(struct vhca_link *head)
{
	head->next = head->prev = head;
}

static inline bool vhca_list_empty(const struct vhca_link *head)
{
	return head->next == head;
}

static inline void vhca_list_add(struct vhca_link *head, struct vhca_link *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Harmless on a link that is in no list. */
static inline void vhca_list_remove(struct vhca_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	vhca_list_init(link);
}

/* ---- objects ---- */

struct vhca_events; /* a pipe and what is in it */

struct vhca_counted {
	struct vhca_events *events; /* where this object's go; NULL: nowhere */
	uint64_t element;           /* the program's name of the object */
	uint32_t read;              /* that the program has taken */
};

/* A UAR page in use: its registers, and who rings there. */
struct vhca_page {
	struct vhca_uar uar;
	struct vhca_link link; /* in tables->pages */
	uint8_t *registers;
	uint8_t trapped[4][8], trapped_arm[8]; /* trap_store.c's: doorbells as they are stored */
	struct vhca_link qps, cqs;
};

enum vhca_arm { VHCA_UNARMED, VHCA_ARMED_SOLICITED, VHCA_ARMED };

struct vhca_cq {
	struct vhca_object object;
	/* hot */
	uint8_t *buf;
	uint32_t mask;      /* entries - 1 */
	uint32_t log2_size; /* 6 or 7 */
	uint32_t pi;        /* entries ever written */
	uint32_t held;      /* entries of a compression session, not written yet */
	uint32_t ci;        /* consumer index when its record was last read */
	enum vhca_arm arm;
	bool dead;
	bool ignore_overrun;
	bool writing_late;
	const __be32 *db;
	struct vhca_session *session; /* of compression; NULL: CQEs are written one by one */
	uint32_t solicited_pi;        /* `pi` behind the last solicited or error CQE */
	uint8_t fired_sn;             /* 4 and its sequence number, once one has fired; 0 */
	bool arm_behind;              /* one more was armed though the program has read of it */
	uint32_t arm_ci;
	uint32_t arm_seen; /* the arm record that was acted upon */
	/* An armed CQ tells after so many entries since it last did, or so long after the first;
	 * both 0: at once. */
	uint16_t event_count, event_period; /* us */
	uint32_t event_pi;                  /* `pi` when it last did */
	uint64_t event_deadline;            /* clock_cycles(); 0: none */
	uint32_t n_late;                    /* CQEs that late.c has */
	uint32_t number;
	struct vhca_link on_page, in_sessions, in_moderated;
	struct vhca_counted completions, async;
	struct vhca_channel *channel;
	struct vhca_page *page;
	struct vhca_cq_attr attr;
};

struct vhca_srq {
	struct vhca_object object;
	uint8_t *buf;
	const __be32 *db;
	uint32_t log2_stride, n_wqe;
	uint32_t number;
	uint16_t head;  /* the WQE that is next: the program links the free ones through
			   next_wqe_index */
	uint16_t taken; /* WQEs ever taken, against the record's WQEs ever posted */
	uint16_t posted;
	uint32_t limit; /* armed while not 0 */
	struct vhca_counted async;
	struct vhca_srq_attr attr;
};

/* The receive WQE that a message consumes. */
struct vhca_receive {
	uint16_t index;     /* what the CQE reports */
	uint16_t next;      /* SRQ: the WQE behind it in the program's chain */
	const uint8_t *wqe; /* its data segments, in the program's memory */
	uint32_t n_segments;
};

struct vhca_qp {
	struct vhca_object object;
	/* what a send touches */
	uint32_t number, uidx;
	uint8_t *sq;
	uint32_t sq_mask; /* WQEBBs - 1 */
	uint16_t sq_ci;   /* WQEBB that is next */
	uint16_t sq_pi;   /* the record when it was last read */
	uint16_t sq_done; /* WQEBB behind the last one that a CQE covers */
	uint8_t type, state;
	bool active; /* in tables->active */
	bool draining,
		tell_drained; /* in SQD, with something begun; there is an event for its end */
	const __be32 *db;
	struct vhca_cq *send_cq;
	struct vhca_pd *pd;
	struct vhca_tables *tables; /* the device's */
	struct vhca_qp *peer;       /* valid while peer_generation is the tables' */
	uint64_t peer_generation;
	/* what a receive touches */
	uint8_t *rq;
	uint32_t rq_mask, log2_rq_stride;
	uint16_t rq_ci, rq_pi;
	uint8_t cqe_scatter;    /* receives up to so many bytes go into the CQE: 0, 32 or 64 */
	uint8_t answer_scatter; /* so do reads and atomics: 0 or 32 */
	uint8_t rq_first;       /* data segment of a stride that is the first: 1 behind a signature
				   segment */
	struct vhca_cq *recv_cq;
	struct vhca_srq *srq;
	uint32_t access;
	uint64_t unready_since; /* clock_cycles(): a wire waits for a receive WQE; 0: it does not */
	uint64_t unready_cpu;   /* ns of a core that the program had had by then */
	bool part_held;         /* of a message of several packets, some have come */
	struct vhca_receive part;
	uint32_t datagram_psn;
	struct vhca_flow *flow; /* on a wire of packets; NULL: nothing has gone that way */
	struct vhca_wq *wq; /* a raw one's receive queue, and where rules for it lead; or NULL */
	struct vhca_tir *tir;
	struct vhca_qp *owner; /* of a receive work queue: the raw QP whose it is; NULL */
	/* waiting for a timer */
	uint64_t deadline; /* clock_cycles(); 0: not waiting */
	uint8_t rnr_tries, transport_tries;
	uint8_t copies; /* that have left of the WQE in hand, which a fault doubles */
	struct vhca_link in_active, in_waiting, in_errored, in_unreported, on_page;
	/* what the program set */
	struct ibv_qp_attr set;
	uint32_t sgid_index;
	struct vhca_page *page;
	struct vhca_counted async;
	struct vhca_qp_attr attr;
	/* rule_doorbell.c's */
	uint8_t rings_at; /* the register where it was seen to ring; 0: none yet */
	bool unrung, unrung_told;
	uint16_t unrung_record;
	uint8_t reports[VHCA_N_RULES];
};

struct vhca_ah {
	struct vhca_object object;
	struct vhca_pd *pd;
	struct ibv_ah_attr attr;
};

/* Objects by number: O(1) to find; numbers go round before one is used again, so that a stale one
 * is found out. */
struct vhca_numbers {
	void **object;
	uint32_t n, used, next;
};

struct vhca_tables {
	struct vhca_numbers qps, cqs, srqs, keys, wqs, rqts, tirs;
	uint8_t *variant; /* by key index: the low byte of the last key */
	uint32_t next_pdn, next_devx;
	struct vhca_link pages;
	struct vhca_link active;     /* QPs with send WQEs to execute or flush */
	struct vhca_link waiting;    /* QPs with a deadline */
	struct vhca_link errored;    /* QPs whose receive WQEs are flushed as they are posted */
	struct vhca_link unreported; /* QPs to fail: a completion found no place in its CQ */
	struct vhca_link sessions;   /* CQs with a compression session to end */
	struct vhca_link steering;   /* rules of steering, in their order */
	struct vhca_link moderated;  /* armed CQs with an event deadline */
	struct vhca_late *late, **last_late; /* CQEs that have not come yet */
	uint64_t chance;
};

/* Changes whenever a QP comes, goes or changes state or address: a peer found before is then looked
 * up again. */
extern uint64_t vhca_qp_generation;

static inline struct vhca_tables *vhca_tables_of(const struct vhca_object *object)
{
	return object->context->device->tables;
}

static force_inline struct vhca_counters *vhca_counters_of(const struct vhca_object *object)
{
	return &object->context->device->counters;
}

/* ---- object.c ---- */

int vhca_tables_create(struct vhca_device *device);
int vhca_number_add(struct vhca_numbers *numbers, void *object, uint32_t *number);
void vhca_number_remove(struct vhca_numbers *numbers, uint32_t number);

/* Zeroed, and in no list until it is linked; one that is not linked yet ends by free(). */
void *vhca_object_new(struct vhca_context *context, enum vhca_kind kind, size_t size);
void vhca_object_link(struct vhca_object *object);
void vhca_object_free(struct vhca_object *object);

/* What RoCE asks of an address vector. */
int vhca_address_check(
	const struct vhca_device *device, const struct ibv_ah_attr *attr, uint32_t sgid_index);
/* NULL: the context has no such UAR. */
struct vhca_page *vhca_page_find(struct vhca_context *context, uint32_t number);
struct vhca_qp *vhca_find_qp(struct vhca_device *device, uint32_t number);
struct vhca_cq *vhca_find_cq(struct vhca_device *device, uint32_t number);
/* NULL: none of this process has that GID on that VLAN. */
struct vhca_device *vhca_find_device(const uint8_t gid[16], uint16_t vlan);
/* The device of the GID that a connected QP leads to, on the VLAN of its own. */
struct vhca_device *vhca_find_peer_device(const struct vhca_qp *qp);
/* Of a connected QP's GID: 0 or 1, for v1 and v2, which do not reach each other. */
static inline uint8_t vhca_roce_version(const struct vhca_qp *qp)
{
	return qp->object.context->device->gids[qp->sgid_index].type;
}

/* Of a UD WQE's address vector: the source GID, and what becomes the priority of a tag. */
static inline uint32_t vhca_av_gid(const struct mlx5_wqe_av *av)
{
	return from_be32(av->grh_gid_fl) >> 20 & 0xff;
}

static inline uint8_t vhca_av_sl(const struct mlx5_wqe_av *av)
{
	return av->stat_rate_sl >> 1 & 7;
}

/* The tag of what leaves by that GID; 0: there is none. */
static inline uint16_t vhca_tag_of(const struct vhca_gid *gid, uint8_t sl)
{
	return (uint16_t)(gid->vlan ? sl << 13 | gid->vlan : 0);
}

static force_inline struct vhca_mr *vhca_find_mr(const struct vhca_tables *tables, uint32_t key)
{
	uint32_t index = key >> 8;
	struct vhca_mr *mr = likely(index < tables->keys.n) ? tables->keys.object[index] : NULL;

	return likely(mr && mr->key == key) ? mr : NULL;
}

/* Where `length` bytes at `addr` of `mr` lie, or NULL where that is not all inside. */
static force_inline uint8_t *vhca_mr_at(const struct vhca_mr *mr, uint64_t addr, uint64_t length)
{
	uint64_t offset = addr - mr->iova;

	if (unlikely(offset > mr->length || length > mr->length - offset))
		return NULL;
	return vhca_pointer(mr->start + offset);
}

/* Says what is wrong with a data segment, and with which syndrome. */
uint8_t vhca_local_refused(
	struct vhca_qp *qp, uint32_t index, const struct mlx5_wqe_data_seg *seg, uint32_t need);

/* Turns a data segment into memory. 0, or the syndrome after a report. */
static force_inline uint8_t vhca_local_access(struct vhca_qp *qp, uint32_t index,
	const struct mlx5_wqe_data_seg *seg, uint32_t length, uint32_t need, struct vhca_sge *sge)
{
	const struct vhca_mr *mr = vhca_find_mr(qp->tables, from_be32(seg->lkey));

	if (likely(mr && mr->pd == qp->pd && !(need & ~mr->access))) {
		sge->addr = vhca_mr_at(mr, from_be64(seg->addr), length);
		sge->length = length;
		if (likely(sge->addr != NULL))
			return 0;
	}
	return vhca_local_refused(qp, index, seg, need);
}

/* ---- event.c ---- */

static inline void vhca_counted_init(
	struct vhca_counted *counted, struct vhca_events *events, uint64_t element)
{
	*counted = (struct vhca_counted){.events = events, .element = element};
}

void vhca_events_destroy(struct vhca_events *events);
/* Takes back what the program has not read; returns how many it has. */
uint32_t vhca_events_end(struct vhca_counted *counted);
/* Some of it are still to be read. */
bool vhca_events_unread(const struct vhca_counted *counted);
void vhca_channel_destroy(struct vhca_channel *channel);
/* Tells the program; nothing where it has no channel for it. */
void vhca_event_async(struct vhca_counted *object, enum ibv_event_type type);
void vhca_event_completion(struct vhca_cq *cq);
/* Tells of the port or the device, which no object stands for. */
void vhca_event_context(struct vhca_context *context, enum ibv_event_type type, uint64_t element);

/* ---- queue.c and qp.c ---- */

void vhca_cq_destroy(struct vhca_cq *cq);
void vhca_srq_destroy(struct vhca_srq *srq);
void vhca_qp_destroy(struct vhca_qp *qp);

/* To ERR, from wherever: what is posted is flushed. The engine does the flushing. */
void vhca_qp_fail(struct vhca_qp *qp);
/* The same, and the program hears of it by the queue's fatal event. */
void vhca_qp_fatal(struct vhca_qp *qp);
/* Those that have lost a completion. */
void vhca_qps_fail_unreported(struct vhca_tables *tables);
/* A send WQE has failed. RC fails with it; of UC and UD the send queue does, which is SQE. */
void vhca_qp_fail_send(struct vhca_qp *qp);
/* In SQD something has come to its end: if it was the last that had begun, the program hears of it. */
void vhca_qp_drain(struct vhca_qp *qp);

/* ---- engine.c ---- */

/* The QP has send WQEs to execute or flush. */
static inline void vhca_qp_activate(struct vhca_qp *qp)
{
	if (!qp->active && !qp->deadline) {
		qp->active = true;
		vhca_list_add(&qp->object.context->device->tables->active, &qp->in_active);
	}
}

static inline void vhca_qp_deactivate(struct vhca_qp *qp)
{
	qp->active = false;
	vhca_list_remove(&qp->in_active);
}

/* Takes a QP out of the round until the time has come. */
void vhca_qp_wait(struct vhca_qp *qp, uint64_t ns);
void vhca_qp_wait_cancel(struct vhca_qp *qp);
/* clock_cycles() in so long a time: the engine looks at timers by then. */
uint64_t vhca_deadline(uint64_t ns);
/* Lets the engine do what was rung before. The lock is let go meanwhile. */
void vhca_engine_settle(struct vhca_device *device);

/* Core clock ticks of now; and as a CQE tells them, which is as fresh as vhca_clock_tick() has made
 * it. */
uint64_t vhca_clock(void);
extern uint64_t vhca_ticks;

static force_inline void vhca_clock_tick(void)
{
	vhca_ticks = vhca_clock();
}

/* ---- lost.c: after a fault on memory that the program has taken away ---- */

/* Whether it is in the message's gather list. */
bool vhca_message_lost(const struct vhca_message *message, uintptr_t address);
/* Out of the middle of a sweep. */
void vhca_engine_fault(int n_devices, uintptr_t address);

/* Takes the doorbells of a page, before what they stand for goes or starts anew. */
unsigned int vhca_page_poll(struct vhca_page *page);
/* Whether there are any. */
bool vhca_page_rung(const struct vhca_page *page);

/* ---- requester.c ---- */

/* Why, for the vendor syndrome of an error CQE. */
enum vhca_vendor {
	VHCA_VENDOR_NONE,
	VHCA_VENDOR_LKEY = 0x53,
	VHCA_VENDOR_WQE = 0x68,
	VHCA_VENDOR_LENGTH = 0x6f,
	VHCA_VENDOR_RETRY = 0x81,
	VHCA_VENDOR_REMOTE = 0x88,
	VHCA_VENDOR_RNR = 0x97,
	VHCA_VENDOR_FLUSH = 0xf9,
	VHCA_VENDOR_FAULT = 0xfa,
};

/* Of what was wrong at this end. */
static inline uint8_t vhca_vendor_of(uint8_t syndrome)
{
	switch (syndrome) {
	case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: return VHCA_VENDOR_LKEY;
	case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR: return VHCA_VENDOR_LENGTH;
	default: return VHCA_VENDOR_WQE;
	}
}

/* A WQE that has not completed, and of which the peer may know. */
bool vhca_requester_has_begun(const struct vhca_qp *qp);

/* The WQE in hand fails, if the address is of its message. */
bool vhca_requester_lost(uintptr_t address);

/* Executes send WQEs, or flushes them in ERR; returns how many. */
unsigned int vhca_requester_run(struct vhca_qp *qp);
/* min_rnr_timer's code. */
uint64_t vhca_rnr_ns(uint8_t timer);

/* A send WQE that a wire has taken and not completed. It is decoded again whenever its data is
 * needed: it lies in the ring until it completes. */
struct vhca_request {
	uint16_t index;     /* of its first WQEBB */
	uint8_t opcode;     /* MLX5_OPCODE_* */
	uint8_t n_segments; /* ds */
	bool signalled;
	bool answered;    /* `answer` goes into its CQE */
	bool altered;     /* on its way, by a fault */
	uint8_t syndrome; /* it fails when all before it are done */
	uint32_t length;
	uint32_t psn, n_psn; /* first packet, and how many; a NOP has none */
	uint8_t answer[32];
};

/* What the WQE at `index` asks for by now, until the next such call; or a syndrome. */
uint8_t vhca_requester_load(struct vhca_qp *qp, uint16_t index, struct vhca_message **message);
void vhca_requester_complete(struct vhca_qp *qp, const struct vhca_request *request);
/* All before it have completed; those behind it are flushed. */
void vhca_requester_error(
	struct vhca_qp *qp, const struct vhca_request *request, uint8_t syndrome, uint8_t vendor);

/* Flushes receive WQEs of a QP in ERR; returns how many. */
unsigned int vhca_responder_flush(struct vhca_qp *qp);

/* ---- responder.c ---- */

/* Does what a message asks of `qp`, which is its addressee and ready. Of a message in packets,
 * message->qp is the addressee too. */
struct vhca_answer vhca_respond(struct vhca_qp *qp, const struct vhca_message *message);
/* There is a receive WQE for a message that begins. */
bool vhca_responder_ready(struct vhca_qp *qp);
/* The rest of a message will not come: its receive WQE is as if it had not been taken. */
void vhca_responder_release(struct vhca_qp *qp);
/* Takes a datagram, or drops and counts it. */
void vhca_receive_datagram(struct vhca_qp *qp, const struct vhca_message *message,
	const struct vhca_datagram *datagram);

/* ---- cqe.c ---- */

/* `answer`: what a read or atomic has brought goes into the CQE; NULL: it has gone to memory, or
 * there is none. */
void vhca_cqe_request(struct vhca_qp *qp, uint8_t opcode, uint16_t wqe_counter, uint32_t length,
	const uint8_t *answer);

struct vhca_received {
	uint8_t opcode; /* MLX5_CQE_RESP_* */
	uint16_t wqe_counter;
	uint32_t length;
	__be32 imm;
	uint32_t source_qpn; /* and, of a datagram, its kind and that there is a GRH, as
				flags_rqpn has it */
	uint16_t tag;        /* of a datagram in a frame with one */
	bool solicited;
	const struct vhca_message
		*inlined; /* its data goes into the CQE; NULL: it has gone to memory */
};

void vhca_cqe_receive(struct vhca_qp *qp, const struct vhca_received *received);

/* A CQE64 of a raw frame, but for its owner bit: what mlx5dv.h has as reserved is named here. */
struct vhca_raw_cqe {
	uint8_t reserved0[2];
	__be16 wqe_id; /* of a striding WQE */
	uint8_t reserved4[8];
	__be32 hash;
	uint8_t hash_type;
	uint8_t reserved17[3];
	uint16_t sum;
	uint8_t reserved22[6];
	uint8_t ok;    /* hds_ip_ext */
	uint8_t types; /* l4_hdr_type_etc */
	__be16 vlan_info;
	__be32 uidx;
	uint8_t reserved36[8];
	__be32 byte_cnt;
	__be64 timestamp;
	__be32 flow_tag;
	uint8_t last[4];
};

static_assert(sizeof(struct vhca_raw_cqe) == sizeof(struct mlx5_cqe64), "one layout of a CQE64");
static_assert(offsetof(struct vhca_raw_cqe, ok) == offsetof(struct mlx5_cqe64, hds_ip_ext) &&
		offsetof(struct vhca_raw_cqe, byte_cnt) == offsetof(struct mlx5_cqe64, byte_cnt) &&
		offsetof(struct vhca_raw_cqe, flow_tag) ==
			offsetof(struct mlx5_cqe64, sop_drop_qpn),
	"one layout of a CQE64");

/* Fills in whose it is and when. `n_counted`: how far the WQE counter, or the stride's, moves on. */
void vhca_cqe_raw(
	struct vhca_qp *queue, struct vhca_raw_cqe *cqe, uint16_t wqe_counter, uint16_t n_counted);
/* `opcode` is MLX5_CQE_REQ_ERR or MLX5_CQE_RESP_ERR. */
void vhca_cqe_error(struct vhca_qp *qp, uint8_t opcode, uint8_t syndrome, uint8_t vendor,
	uint8_t wqe_opcode, uint16_t wqe_counter);
void vhca_cqe_resize(struct vhca_cq *cq);
/* A CQE64 that is not in its ring yet. */
struct vhca_cqe {
	uint8_t body[64];
	uint16_t wqe_counter;
	uint8_t op_own;
	bool solicited;
};

void vhca_cqe_write(struct vhca_cq *cq, const struct vhca_cqe *cqe);
/* The CQE64 of the slot that `index` counts to. */
uint8_t *vhca_cqe_slot(const struct vhca_cq *cq, uint32_t index);
int vhca_session_create(struct vhca_cq *cq);
/* The sweep is over: what was held back for compression is written. */
void vhca_sessions_end(struct vhca_tables *tables);
/* The event's deadline has come. */
void vhca_cq_period_over(struct vhca_cq *cq);
/* The program may have armed the CQ. */
void vhca_cq_arm(struct vhca_cq *cq);
void vhca_gather(uint8_t *to, const struct vhca_message *message);
/* `n` bytes of a message's list from `offset` on: all within its length. */
void vhca_gather_part(uint8_t *to, const struct vhca_message *message, uint32_t offset, uint32_t n);
void vhca_scatter_part(
	const struct vhca_message *message, uint32_t offset, const uint8_t *from, uint32_t n);

/* ---- flow.c ---- */

/* Something has left and not completed. */
bool vhca_flow_under_way(const struct vhca_qp *qp);

/* The QP fails: what a wire has taken and not completed is the ring's again. */
void vhca_flow_abandon(struct vhca_qp *qp);
/* The memory of one of these has gone: it fails in its turn. */
void vhca_flow_lost(struct vhca_qp *qp, uint16_t index);
/* The QP is reset or ends. */
void vhca_flow_end(struct vhca_qp *qp);

/* ---- device.c ---- */

/* The port's IP address; IPv4 is mapped into IPv6. */
void vhca_device_address(const struct vhca_device *device, uint8_t address[16]);
/* It has another one, with GIDs made of it: before any program has seen it. */
void vhca_device_move(struct vhca_device *device, const uint8_t address[16]);
/* Its MAC: node GUID, and the link-local GIDs at 0 and 1, which the host answers for or not. */
void vhca_device_identify(struct vhca_device *device, const uint8_t mac[6], bool host);

/* ---- late.c ---- */

struct vhca_late;

extern bool vhca_late_any; /* set once, before the engine runs */
/* A word of VHCA_FAULT: torn or delay-cqe=TIME; false if it is neither. */
bool vhca_late_word(const char *word);
/* Keeps the CQE until its time; false: there is no memory. */
bool vhca_late_put(struct vhca_cq *cq, const struct vhca_cqe *cqe);
/* Writes those that are due; *next becomes the earliest of the others. */
void vhca_late_run(struct vhca_tables *tables, uint64_t now, uint64_t *next);
/* Writes all now: a command ends only when what was before it is done. */
void vhca_late_flush(struct vhca_tables *tables);

/* ---- fault.c ---- */

enum vhca_fault_kind {
	VHCA_FAULT_NONE,
	VHCA_FAULT_DROP,
	VHCA_FAULT_DOUBLE,
	VHCA_FAULT_ALTER,
	VHCA_FAULT_RNR
};

extern bool vhca_fault_any; /* set once, before the engine runs */
void vhca_fault_parse(const char *spec);
/* disturb.c: a word about packets; false if it is none. */
bool vhca_disturb_word(const char *word);
/* What is to happen to the message that is about to be delivered, and sets it in there; and that it
 * has been, which counts it. A NOP is none. */
enum vhca_fault_kind vhca_fault_message(struct vhca_message *message);
void vhca_fault_delivered(const struct vhca_message *message);
/* Changes a byte of what a message carries, or of what it has brought back. */
void vhca_fault_alter(struct vhca_message *message);
void vhca_fault_alter_brought(const struct vhca_message *message);
/* Counts a send WQE about to be executed; the syndrome it completes with, or 0. */
uint8_t vhca_fault_syndrome(void);
/* A message wants a receive WQE, which counts: whether it is to find none. */
bool vhca_fault_not_ready(void);
extern bool vhca_fault_rnr; /* whether that has to be asked at all */

#endif
