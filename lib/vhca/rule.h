/* rule.h - the device's contract with a program: one table of its rules, and the checks
 *
 * Lives here: each rule once, with its identifier, class, sentence and source; README.md lists them
 * beside their tests, and a test compares. May touch it: the device side, through device.h; the
 * table alone, tests.
 *
 * A check on the way of every WQE or doorbell is inline and one branch; what it finds goes to the
 * cold side, in rule.c and rule_doorbell.c.
 */
#ifndef VHCA_RULE_H
#define VHCA_RULE_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum vhca_rule_class {
	VHCA_REPORTED,  /* the program gets the device's error */
	VHCA_UNDEFINED, /* the device misbehaves: the program gets what it would most likely do */
	VHCA_SOFT,      /* programs in use break it and hardware lets it pass: told once */
	VHCA_INVISIBLE, /* no one can see it here */
};

/* clang-format off */
#define VHCA_RULES(X) \
	/* what is written in a send WQE */ \
	X(WQE_INDEX, "wqe-index", VHCA_REPORTED, \
		"a send WQE carries the 16-bit count of WQEBBs written before it", \
		"PRM, Control Segment, wqe_index") \
	X(WQE_QPN, "wqe-qpn", VHCA_REPORTED, \
		"a send WQE carries the number of the QP in whose ring it lies", \
		"PRM, Control Segment, qp_or_sq") \
	X(WQE_DS, "wqe-ds", VHCA_REPORTED, \
		"a send WQE carries its size in units of 16 bytes, 1 to 63, all of what its opcode needs, and ends before the send record", \
		"PRM, Control Segment, ds") \
	X(WQE_OPCODE, "wqe-opcode", VHCA_REPORTED, \
		"a send WQE carries an opcode that its QP's transport has", \
		"PRM, Send WQE opcodes") \
	X(WQE_OPMOD, "wqe-opmod", VHCA_REPORTED, \
		"the opcode modifier is 0 for opcodes without one", \
		"PRM, Control Segment, opc_mod") \
	X(CTRL_RESERVED, "ctrl-reserved", VHCA_REPORTED, \
		"the bits beside ds and in fm_ce_se that have no meaning are 0", \
		"PRM, Control Segment") \
	X(CTRL_STALE, "ctrl-stale", VHCA_SOFT, \
		"the two bytes behind the signature are 0 on QPs without DCI streams", \
		"mlx5dv.h, struct mlx5_wqe_ctrl_seg; mlx5dv_set_ctrl_seg() leaves them as they were") \
	X(RADDR_RESERVED, "raddr-reserved", VHCA_SOFT, \
		"the last word of a remote address segment is 0", \
		"mlx5dv.h, struct mlx5_wqe_raddr_seg, reserved") \
	X(DATAGRAM_RESERVED, "datagram-reserved", VHCA_SOFT, \
		"the reserved bytes of an address vector are 0", \
		"mlx5dv.h, struct mlx5_wqe_av, reserved and reserved0") \
	X(SEGMENT_END, "segment-end", VHCA_REPORTED, \
		"every segment ends within the WQE, inline data too: that is all the device limits them by", \
		"PRM, Inline Data Segment") \
	X(SEGMENT_ZERO, "segment-zero", VHCA_REPORTED, \
		"a data segment's byte count of 0 means 2 GiB: leave out a segment of no bytes", \
		"PRM, Memory Pointer Data Segment, byte_count") \
	X(MESSAGE_LENGTH, "message-length", VHCA_REPORTED, \
		"a message is no longer than the port's max_msg_sz, a datagram than the path MTU", \
		"IBA, 9.7.5.1.3 Message size") \
	X(ADDRESS_VECTOR, "address-vector", VHCA_REPORTED, \
		"a datagram has an address vector of 48 bytes, whose source GID is in the port's table", \
		"PRM, UD Address Vector") \
	X(RD_ATOMIC, "rd-atomic", VHCA_REPORTED, \
		"reads and atomics need a max_dest_rd_atomic of the responder that is not 0", \
		"IBA, 11.2.5 Modify Queue Pair") \
	X(ATOMIC_ALIGNMENT, "atomic-alignment", VHCA_REPORTED, \
		"an atomic's remote address is a multiple of 8", \
		"IBA, 9.4.5 Atomic operations") \
	/* what is written in a raw frame's WQE */ \
	X(ETH_RESERVED, "eth-reserved", VHCA_UNDEFINED, \
		"fields of the Ethernet segment for features that the device has not (parsing offsets, MSS, inner checksums) are 0", \
		"PRM, Ethernet Segment") \
	X(ETH_INLINE, "eth-inline", VHCA_REPORTED, \
		"a device with eth_min_inline L2 has the MAC header inlined in the Ethernet segment, with its tag", \
		"PRM, Ethernet Segment, inline_headers; HCA_CAP, wqe_inline_mode") \
	X(MPW_HEADER, "mpw-header", VHCA_REPORTED, \
		"a multi-packet WQE inlines no headers in its Ethernet segment", \
		"PRM, Enhanced Multi-Packet Send WQE") \
	X(FRAME_SIZE, "frame-size", VHCA_UNDEFINED, \
		"a frame has 14 to 9018 bytes: no other leaves the port", \
		"PRM, PMTU register, max_mtu") \
	/* what is written in a receive WQE */ \
	X(RECEIVE_INLINE, "receive-inline", VHCA_REPORTED, \
		"a data segment of a receive WQE is a pointer: bit 31 of its byte count is 0", \
		"PRM, Receive WQE") \
	X(RECEIVE_LENGTH, "receive-length", VHCA_REPORTED, \
		"a receive WQE has room for the message that consumes it", \
		"IBA, 9.7.5.2.4 Responder length validation") \
	X(STRIDE_ROOM, "stride-room", VHCA_UNDEFINED, \
		"a striding receive WQE has memory for all of its strides", \
		"PRM, Striding RQ") \
	X(SRQ_LINK, "srq-link", VHCA_UNDEFINED, \
		"next_wqe_index names a WQE of the SRQ", \
		"mlx5dv.h, struct mlx5_wqe_srq_next_seg") \
	/* memory */ \
	X(LKEY, "lkey", VHCA_REPORTED, \
		"a data segment's lkey is of a registration", \
		"PRM, Memory Pointer Data Segment, l_key") \
	X(LKEY_PD, "lkey-pd", VHCA_REPORTED, \
		"the lkey's registration is of the QP's protection domain", \
		"IBA, 10.2.3 Protection Domains") \
	X(LKEY_BOUNDS, "lkey-bounds", VHCA_REPORTED, \
		"a data segment lies within the registration of its lkey", \
		"PRM, Memory Pointer Data Segment, address") \
	X(LKEY_ACCESS, "lkey-access", VHCA_REPORTED, \
		"memory that the device writes is registered for local write", \
		"IBA, 10.6.3.3 Local Access") \
	X(RKEY, "rkey", VHCA_REPORTED, \
		"a remote access carries the rkey of a registration", \
		"IBA, 9.4.1.1.2 R_Key validation") \
	X(RKEY_PD, "rkey-pd", VHCA_REPORTED, \
		"the rkey's registration is of the responder's protection domain", \
		"IBA, 10.2.3 Protection Domains") \
	X(RKEY_BOUNDS, "rkey-bounds", VHCA_REPORTED, \
		"a remote access lies within the registration of its rkey", \
		"IBA, 9.4.1.1.2 R_Key validation") \
	X(RKEY_ACCESS, "rkey-access", VHCA_REPORTED, \
		"a remote access needs that right of the registration and of the responder's QP", \
		"IBA, 10.6.3.4 Remote Access") \
	X(FREED_MEMORY, "freed-memory", VHCA_REPORTED, \
		"memory stays mapped while it is registered", \
		"ibv_reg_mr(3); IBA, 10.6 Memory Management") \
	/* records */ \
	X(SEND_RECORD, "send-record", VHCA_UNDEFINED, \
		"the send record is at most a ring ahead of the WQEs that have been executed", \
		"PRM, Doorbell Record") \
	X(RECEIVE_RECORD, "receive-record", VHCA_UNDEFINED, \
		"the receive record is at most a ring ahead of the WQEs that have been consumed: RQ overrun", \
		"PRM, Doorbell Record") \
	X(SRQ_RECORD, "srq-record", VHCA_UNDEFINED, \
		"the record of an SRQ is at most its size ahead of the WQEs that have been taken", \
		"PRM, Doorbell Record") \
	X(RECORD_ORDER, "record-order", VHCA_UNDEFINED, \
		"a record is big-endian: this one makes sense only in the other order", \
		"PRM, Doorbell Record") \
	X(RECORD_SLOT, "record-slot", VHCA_UNDEFINED, \
		"the first record is the receive counter, the second the send counter", \
		"mlx5dv.h, MLX5_RCV_DBR and MLX5_SND_DBR") \
	X(SLOT_REUSE, "slot-reuse", VHCA_UNDEFINED, \
		"a slot of the send ring is written again only after a CQE that covers it", \
		"PRM, Work Queue Overview") \
	/* doorbells */ \
	X(DOORBELL_VALUE, "doorbell-value", VHCA_UNDEFINED, \
		"a doorbell is the first 8 bytes of the last WQE, in one store, on the UAR of its QP", \
		"PRM, UAR Page, Send doorbell") \
	X(DOORBELL_RECORD, "doorbell-record", VHCA_UNDEFINED, \
		"a doorbell rings for WQEs that the send record includes", \
		"PRM, Posting a Work Request to Work Queue") \
	X(RECORD_FIRST, "record-first", VHCA_UNDEFINED, \
		"the record is written before the doorbell, at each store", \
		"PRM, Posting a Work Request to Work Queue") \
	X(RECORD_DOORBELL, "record-doorbell", VHCA_UNDEFINED, \
		"a record that moves is followed by its doorbell", \
		"PRM, Posting a Work Request to Work Queue") \
	X(BLUEFLAME_COPY, "blueflame-copy", VHCA_UNDEFINED, \
		"what is copied into a BlueFlame register is the WQE that lies in the ring", \
		"PRM, UAR Page, BlueFlame") \
	X(UAR_OFFSET, "uar-offset", VHCA_UNDEFINED, \
		"stores to a UAR page go to its registers: the CQ doorbell at 0x20, BlueFlame from 0x800 to 0xbff", \
		"PRM, UAR Page") \
	X(SEND_STATE, "send-state", VHCA_UNDEFINED, \
		"send WQEs are posted in RTS, SQD, SQE or ERR", \
		"IBA, 10.3.1 QP states; libmlx5 does not look") \
	/* CQs */ \
	X(CQ_OVERRUN, "cq-overrun", VHCA_UNDEFINED, \
		"a CQ has room for every CQE: the consumer index in its record says which slots are free", \
		"PRM, CQ Overrun") \
	X(ARM_DOORBELL, "arm-doorbell", VHCA_UNDEFINED, \
		"the doorbell that arms names a CQ of the UAR and the sequence number of its arm record", \
		"PRM, UAR Page, CQ doorbell") \
	X(ARM_SEQUENCE, "arm-sequence", VHCA_SOFT, \
		"the sequence number moves on by one with every event that is read, before the CQ is armed again", \
		"PRM, CQ Doorbell Record, cmd_sn; libmlx5 moves it when the event is read") \
	/* what only hardware would show */ \
	X(WRITE_COMBINING, "write-combining", VHCA_INVISIBLE, \
		"a doorbell leaves the write-combining buffer when it is flushed, and passes earlier stores without a barrier", \
		"PRM, UAR Page; udma_barrier.h") \
	X(WQE_ORDER, "wqe-order", VHCA_INVISIBLE, \
		"a barrier keeps WQEs before their record on processors that reorder stores", \
		"udma_barrier.h, udma_to_device_barrier()") \
	X(CQE_ORDER, "cqe-order", VHCA_INVISIBLE, \
		"a barrier keeps reads of a CQE behind the one of its owner bit on processors that reorder loads", \
		"udma_barrier.h, udma_from_device_barrier()")
/* clang-format on */

enum vhca_rule {
#define VHCA_RULE_ID(id_, ...) VHCA_RULE_##id_,
	VHCA_RULES(VHCA_RULE_ID)
#undef VHCA_RULE_ID
		VHCA_N_RULES
};

/* For `wanted`: there is no one value that would have been right. */
#define VHCA_ANOTHER UINT64_MAX

struct vhca_qp;

/* Says on standard error that `qp` (NULL: none) broke `rule` at the WQE or CQE `index`; how often
 * is limited for each rule and QP. True where the option `error` wants an undefined outcome to be
 * an error; does not return under `abort`. */
bool vhca_rule_report(enum vhca_rule rule, struct vhca_qp *qp, uint32_t index, const char *field,
	uint64_t found, uint64_t wanted);

/* ---- rule_wqe.c: what the inline checks find ---- */

/* Bits of a control segment's last twelve bytes that have no meaning, as the 64-bit word behind
 * opmod_idx_opcode has them in memory: those beside ds, the two bytes behind the signature, and
 * those of fm_ce_se. */
#define VHCA_CTRL_RESERVED 0x000000c000ffff11ull

static inline __attribute__((__always_inline__)) bool vhca_ctrl_clean(const void *ctrl)
{
	uint64_t word;

	memcpy(&word, (const uint8_t *)ctrl + 4, sizeof(word));
	return !(word & htobe64(VHCA_CTRL_RESERVED));
}

/* 0, or the syndrome, of a control segment that is not clean. */
uint8_t vhca_rule_ctrl(struct vhca_qp *qp, const void *ctrl);
/* Tells of a remote address segment that is not, and looks at an address vector. */
void vhca_rule_raddr(struct vhca_qp *qp, const struct mlx5_wqe_raddr_seg *seg);
void vhca_rule_datagram(struct vhca_qp *qp, const struct mlx5_wqe_av *av);

/* ---- rule_doorbell.c ---- */

struct vhca_page;
struct vhca_cq;
struct vhca_device;

/* A doorbell, as it was read from register `at` of the page: reads the records of the queues it may
 * stand for. */
void vhca_doorbell_send(struct vhca_page *page, unsigned int at, uint64_t value);
void vhca_doorbell_arm(struct vhca_page *page, uint64_t value);
/* Where doorbells are trapped, some were not: all that ring on the page may have. */
void vhca_doorbells_slipped(struct vhca_page *page);
/* A record of a receive ring that is not plain: further ahead than the ring is long, or of more
 * than 16 bits. */
void vhca_rule_receive_record(struct vhca_qp *qp, uint32_t record);
void vhca_rule_srq_record(struct vhca_qp *qp, uint32_t record);
void vhca_rule_srq_link(struct vhca_qp *qp, uint16_t index, uint16_t next);
/* True where the overrun is to be an error. */
void vhca_rule_cq_overrun(struct vhca_cq *cq, struct vhca_qp *qp);
/* Looks for records whose doorbell never came; engine thread, about once a second. */
void vhca_rules_watch(struct vhca_device *device);
/* Behind the last device. */
void vhca_rules_watched(void);

/* ---- threads.c: the engine's own ---- */

/* Remembers how far each thread of the program has come. */
void vhca_threads_look(void);
/* Each that was there has run for some milliseconds since, ended, or sleeps in a system call. */
bool vhca_threads_went_on(void);
/* One waits for a core, or is held by a debugger. */
bool vhca_threads_about_to_run(void);

/* How often it was broken in this process, told or not; and what it is called. */
uint64_t vhca_rule_breaches(enum vhca_rule rule, const char **name);

#endif
