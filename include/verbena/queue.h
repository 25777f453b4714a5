/* verbena/queue.h - a queue: a QP that one worker owns; stage, flush, receive, events
 *
 * Staging writes WQEs and tells the device nothing; vbn_flush() rings one doorbell for all that is
 * staged; the worker's loop flushes every queue at the end of an iteration. Messages of a queue are
 * executed and completed in order.
 *
 *                        RC    UC    UD
 *    send, send_imm      yes   yes   to each buf's peer
 *    write, write_imm    yes   yes   no
 *    read, atomics       yes   no    no
 *
 * What a transport has not answers -EOPNOTSUPP. Raw Ethernet (VBN_RAW) has send alone: a buf is a frame,
 * see verbena/packet.h.
 *
 * iWARP (a port whose link is VBN_LINK_IWARP) has RC alone, and of it send, write and read: what needs
 * immediate data and the atomics answer -EOPNOTSUPP, and so does read where the device wants what it
 * reads into to be open to the peer, which pools are not (the port's capabilities say). Besides:
 *  - a send or write completes when the device has taken it, not when it has arrived;
 *  - a message that finds no receive posted ends the connection: there are no RNR retries, so the peer
 *    must know how many it may send, and the pool have bufs beyond the ring for those in hand;
 *  - a read goes into one segment;
 *  - when a connection ends, whatever the cause, both queues fail with VBN_REMOTE_ABORTED.
 *
 * A queue that has failed returns -EPIPE from every data-path function but vbn_poll() and
 * vbn_recv(), which first yield what had arrived. vbn_poll() then yields one VBN_OP_FAILED event
 * with the first error, and then each outstanding operation that has KEEP or a cookie, or that is a
 * read or an atomic, in order, with its own op and status VBN_FLUSHED; outstanding bufs of others
 * are freed and counted (`tx_flushed`, `rx_flushed`). vbn_queue_reset() makes it new.
 */
#ifndef VERBENA_QUEUE_H
#define VERBENA_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include <verbena/buf.h>
#include <verbena/export.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_worker;
struct vbn_port;
struct vbn_queue;
struct vbn_peer;
struct vbn_rx_group;
struct vbn_srq;

enum vbn_transport { VBN_RC, VBN_UC, VBN_UD, VBN_RAW };

struct vbn_queue_conf {
	enum vbn_transport transport;

	/* Messages in flight, and receives posted: powers of two, 1 to the port's max_depth; default
	 * 1024. A send of up to two segments takes one entry of the ring, a longer one several; a
	 * datagram takes two. */
	uint32_t tx_depth;
	uint32_t rx_depth;

	/* At least one completion each so many sends: a power of two up to tx_depth; default 64. */
	uint32_t cq_mod;

	/* Bufs of up to so many bytes are copied into the WQE, 0 to 960; default 0. It is also what
	 * vbn_send_inline() takes, where that is more than 28. */
	struct vbn_num inline_size;

	/* Segments of a chain, 1 to the port's max_gather (at most 30); default 4. */
	uint32_t max_gather;

	/* Where receives come from. Required unless srq is set: holds at least rx_depth bufs; its
	 * data_size is the largest message that can be received. For UD a headroom of 64 spares
	 * each message the copy of its network header: without, the header takes the first 40 bytes
	 * of the data, so that a message may be 40 bytes shorter than data_size. A longer message
	 * fails the queue (on shm it is dropped): where whoever has a UD queue's key is not trusted,
	 * hold the path MTU. */
	struct vbn_pool *rx_pool;

	/* Where most sends come from: bufs of this pool cost least; default rx_pool. */
	struct vbn_pool *tx_pool;

	/* The worker's shared receive ring that this queue receives from: rx_depth and rx_pool are
	 * then the SRQ's. */
	struct vbn_srq *srq;

	/* Raw Ethernet: whose packets it gets its part of (verbena/rx_group.h). NULL: it transmits
	 * only; rx_pool and rx_depth are then of no account, and tx_pool is required. */
	struct vbn_rx_group *rx_group;

	/* What the peer may do to exports through this queue: enum vbn_access. UC has writes alone, UD
	 * has none. */
	uint32_t remote_access;

	/* The caller's: vbn_queue_context(). */
	void *context;

	/* RC: reads and atomics in flight towards the peer, and those of the peer that are taken at
	 * once; 0 to the device's limit, default 16 or that. What holds is the smaller of what one
	 * end has and the other takes; the device waits with those above it. */
	struct vbn_num max_reads;
	struct vbn_num max_peer_reads;

	/* RC, as the field encodes them. Retries: 0 to 7, default 7 (6 of soft-RoCE, which takes 7 for
	 * "for ever"); 7 RNR retries are for ever. Local ACK timeout: 4.096 us * 2^value, 0 to 31, 0 is
	 * never; default 14 (67 ms). Minimum RNR NAK timer: 0 to 31; default 1 (10 us). */
	struct vbn_num retry_count;
	struct vbn_num rnr_retry;
	struct vbn_num timeout;
	struct vbn_num rnr_timer;

	/* UD: a datagram is received where its sender had this key of its peer; default 0x11111111,
	 * the highest bit is not the caller's. */
	struct vbn_num qkey;

	/* Service level 0 to 7, traffic class 0 to 255 (DSCP and, in the lower two bits, ECN), hop
	 * limit 1 to 255 (default 64). */
	struct vbn_num service_level;
	struct vbn_num traffic_class;
	uint32_t hop_limit;

	/* Packet pacing: kbit/s that the device holds this queue to; 0 is unlimited. -ENOTSUP where
	 * the device has no pacing for the transport. */
	uint32_t pace_kbit;

	/* ---- techniques: AUTO takes what is best measured, ON insists (-ENOTSUP where it cannot be
	 * had), and vbn_queue_modes() says what holds ---- */

	/* Completions into CQs that all such queues of the worker share, so that polling costs by
	 * the completion, not by the queue; vbn_recv() is then -EOPNOTSUPP. AUTO: with an srq. */
	enum vbn_switch shared_cq;

	/* One doorbell for a burst. AUTO, ON; OFF rings for each message. */
	enum vbn_switch doorbell_burst;

	/* The WQEs of plain bufs, one segment of tx_pool each, are of a form that was worked out when the
	 * queue was made, and only what differs is put into it. OFF works out each WQE by itself, from
	 * its buf. AUTO: on. */
	enum vbn_switch templates;

	/* A lone WQE of up to 64 bytes is stored into the doorbell register instead of being fetched.
	 * AUTO: off. */
	enum vbn_switch blueflame;

	/* A doorbell register of the worker's own. AUTO: where it can be had. */
	enum vbn_switch own_uar;

	/* The first bytes of small messages in the CQE itself, copied to the buf here. AUTO: off. */
	enum vbn_switch scatter_to_cqe;

	/* Several completions of a queue, of receives and of sends, in the room of one. With an srq it
	 * is the srq's conf that decides, and AUTO follows it. AUTO: off. */
	enum vbn_switch cqe_compression;

	/* The CQE and the buf header to come next are fetched ahead. Where queues share CQs, one that
	 * asks for it asks for all. AUTO: off. */
	enum vbn_switch prefetch;

	/* Port shm: messages and writes of 4 KiB or more are copied once, by the receiver, instead of into
	 * the ring and out of it, where they lie in a zone that is shared (memfd = ON, verbena/zone.h) and
	 * the peer has mapped it, which happens behind the connect; others go by the ring, in order with
	 * them. A send's buf then is free, or comes back, when the peer has received it, not before, and a
	 * queue that is destroyed or reset takes back what was not received. It halves what copying costs;
	 * up to some 64 KiB two cores that share the copying carry more by the ring. ON: -ENOTSUP unless
	 * tx_pool's zone is shared. AUTO: where it is. */
	enum vbn_switch by_reference;

	/* Bytes of a CQE: 64 or 128; default what libmlx5 takes, 64 on x86. */
	uint32_t cqe_size;

	/* ---- of raw Ethernet ---- */

	/* Many packets to one receive WQE: into strides of 256 bytes, as many as each takes, of memory of
	 * the ring's own. They are copied into bufs of rx_pool when they are received, so that a buf that
	 * is held holds up nothing but itself; a packet that finds none waits in the ring (rx_no_buf).
	 * For small packets. rx_depth counts strides. AUTO: off. */
	enum vbn_switch striding;

	/* Several packets in one send WQE. AUTO: where the device has it. */
	enum vbn_switch multi_packet;

	/* Checksums of what is received are looked at, and those of what is sent filled in, by the
	 * device. AUTO: where it can. OFF leaves the first to the receiver; sends get theirs in
	 * software. */
	enum vbn_switch checksum_offload;

	/* A VLAN tag is taken out of what is received, into the buf's vbn_packet. AUTO: off. */
	enum vbn_switch vlan_strip;

	/* When a packet came, in its vbn_packet. AUTO: off; pcap has it always. */
	enum vbn_switch timestamps;

	/* AF_XDP: frames are not copied between the interface and the pool. AUTO: where it can be. */
	enum vbn_switch zero_copy;
};

/* Where a queue is, for its peer. Bytes to be sent by any means; the layout is big-endian and
 * versioned: 0 "VBNA", 4 version (2), 5 transport, 6 log2 of the path MTU, 7 link (enum vbn_link),
 * 8 QPN (4), 12 first PSN (4), 16 GID (16), 32 LID (2), 34 reads and atomics it keeps in flight, 35
 * those it takes, 36 Q_Key (4), 40 to 47 zero. Of a queue on iWARP (7 is 4): 12 and 36 are a random
 * token, 16 the IP address (IPv4 as ::ffff:a.b.c.d), 40 the TCP port of rdma_cm (2). */
struct vbn_address {
	uint8_t bytes[48];
};

/* Makes the QP and its CQs. -EINVAL: conf out of range (the sentence names the field, its range);
 * -ENOMEM: the pool is too small for the ring, or the device refused; -ENOTSUP: a technique that is
 * ON cannot be had; -EPERM: not the worker's thread. The system calls are made on the control
 * thread. */
int vbn_queue_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);

/* Zeros of a raw one, which has none. */
void vbn_queue_address(const struct vbn_queue *queue, struct vbn_address *address);

/* Posts the receives, then takes the QP through RTR to RTS towards the peer; the smaller path MTU
 * of the two ends holds. A UD queue has no peer of its own, nor a raw one: NULL. -EINVAL: not an
 * address, another version, another transport or link; -EISCONN: connected before; -EPERM: not the
 * worker's thread.
 *
 * On iWARP this is the beginning: the ends then meet by rdma_cm, on the control thread. What is staged
 * meanwhile stays in the ring and goes when they have. Both ends must be connected within 10 s of each
 * other, else the queue fails, and vbn_queue_error() says why (nobody there, another peer, late). */
int vbn_queue_connect(struct vbn_queue *queue, const struct vbn_address *peer);

/* Takes a queue, failed or not, back to where it was when made, with a new PSN: connect it again,
 * to a new address (vbn_queue_address() has changed, too). Outstanding work is reported by
 * vbn_poll() as that of a failed queue first: -EAGAIN while there is some; poll, and call again. 0:
 * it is unconnected. A queue whose CQ had failed comes back with another CQ and QPN, the others on
 * that CQ when they are reset, too. -EIO: that cannot be had (by plain verbs, or because the CQ is
 * its srq's, which must be made anew), so that it can only be destroyed; -EPERM: not the worker's
 * thread. A TAP device that is gone is made anew; where an interface is gone, -ENODEV until it is
 * back. A capture file is read from its beginning, and written on. */
int vbn_queue_reset(struct vbn_queue *queue);

/* Ends the QP; bufs it holds are freed. Events not yet polled are lost. The end of a worker destroys
 * the queues it still has. The worker's thread. NULL is allowed. */
void vbn_queue_destroy(struct vbn_queue *queue);

void *vbn_queue_context(const struct vbn_queue *queue);

/* Modes of this queue, requested against effective. Writes at most n and returns how many there
 * are. */
int vbn_queue_modes(const struct vbn_queue *queue, struct vbn_mode *modes, int n);

/* The first error in words (which WQE, which syndrome, the device's reason, the peer), "" while the
 * queue works. Valid while the queue is. */
const char *vbn_queue_error(const struct vbn_queue *queue);

struct vbn_queue_stats {
	uint64_t tx_messages, tx_bytes; /* staged */
	uint64_t tx_done;               /* completed by the device, flushed ones not counted */
	uint64_t tx_doorbells;
	uint64_t tx_signalled, tx_nops;
	uint64_t tx_flushed; /* outstanding when the queue failed */
	uint64_t rx_messages, rx_bytes;
	uint64_t rx_flushed;
	uint64_t rx_no_buf;    /* receives not posted again at once because the pool was empty; of a
				   striding ring, polls that left a packet there for that reason */
	uint64_t tx_blueflame; /* doorbells that carried their WQE */
	uint64_t rx_scattered; /* messages that came in their CQE */
	uint64_t rx_compressed; /* messages whose completion came compressed */
	uint64_t tx_compressed; /* completions of sends that came compressed */
	/* Raw Ethernet: packets that are lost (vbn_queue_drops() has the device's, too). */
	uint64_t rx_too_long;  /* longer than rx_pool's data_size */
	uint64_t rx_malformed; /* what the device or file says of them cannot be */
	uint64_t tx_refused;   /* the device did not take them: of tx_messages, not of tx_done */
};

/* The owner's thread; another one reads each value of a moment. */
void vbn_queue_stats(const struct vbn_queue *queue, struct vbn_queue_stats *stats);

/* ---- the data path: the owning worker's thread; no locks, no system calls, no logs ---- */

/* Stages sends; on a UD queue each to its buf's peer (vbn_buf_set_peer). Takes as many as it
 * returns (from the first), leaves the rest with the caller: fewer than n when the ring is full.
 * Bufs of 0 to the port's max_message bytes, to the path MTU on UD. -EPIPE: failed; -ENOTCONN.
 * Where the first one cannot be sent: -EMSGSIZE; -EINVAL: too many segments, one of a zone that the
 * port does not know (vbn_port_register), or a datagram without a peer. */
int vbn_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n);

/* The same with immediate data, imms[i] in host order with bufs[i]. */
int vbn_send_imm(struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n);

/* Stages one send of a copy of the bytes, up to the queue's inline limit (a mode of the queue). 1,
 * 0 when the ring is full, or as above. RC and UC; UD has vbn_send_inline_to(). */
int vbn_send_inline(struct vbn_queue *queue, const void *data, size_t len);
int vbn_send_inline_imm(struct vbn_queue *queue, const void *data, size_t len, uint32_t imm);
int vbn_send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len);

/* Stages RDMA writes of bufs[i] to remotes[i]: what vbn_send() says holds. With immediate data the
 * peer gets an event VBN_OP_RECV_WRITE, for which it must have a receive posted. */
int vbn_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
int vbn_write_imm(struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes,
	const uint32_t *imms, int n);

/* Stages one write of a copy of the bytes, up to the inline limit. */
int vbn_write_inline(
	struct vbn_queue *queue, const void *data, size_t len, struct vbn_remote remote);

/* Stages RDMA reads from remotes[i] into bufs[i], whose len (each segment's, of a chain) says how
 * much. Each yields its event with the buf, whatever its flags. Reads are carried out in order with
 * what was staged before, but sends and writes staged behind may overtake their answers. */
int vbn_read(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);

struct vbn_atomic {
	uint64_t value;   /* what is added, or swapped in */
	uint64_t compare; /* compare-and-swap: only where the memory holds this */
};

/* Stages atomics on the 8 bytes at remotes[i], a multiple of 8. bufs[i] is one segment with len 8:
 * it gets what was there before, in host order, and its event returns it. -EMSGSIZE: len is not 8. */
int vbn_fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes,
	const struct vbn_atomic *atomics, int n);
int vbn_cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes,
	const struct vbn_atomic *atomics, int n);

/* Rings one doorbell for everything staged; nothing staged is no doorbell. */
void vbn_flush(struct vbn_queue *queue);

/* Receives up to n messages and posts as many bufs again. Completed sends are reaped too, but their
 * events stay for vbn_poll(). Immediate data is in the buf's `mark`. Returns how many, 0,
 * -ENOTCONN, -EOPNOTSUPP (its CQ is shared), or -EPIPE once a failed queue has nothing left. */
int vbn_recv(struct vbn_queue *queue, struct vbn_buf **bufs, int n);

enum vbn_op {
	VBN_OP_RECV,
	VBN_OP_SEND,
	VBN_OP_WRITE,
	VBN_OP_FAILED,
	VBN_OP_READ,
	VBN_OP_FETCH_ADD,
	VBN_OP_CMP_SWAP,
	VBN_OP_RECV_WRITE, /* a peer's write with immediate data has landed: len bytes, not in buf,
			      which is the empty receive that it took */
	VBN_OP_SRQ_LIMIT,  /* queue and buf are NULL, cookie is the SRQ's context */
};

enum vbn_status {
	VBN_OK,
	VBN_LOCAL_LENGTH,
	VBN_LOCAL_QP,
	VBN_LOCAL_PROTECTION,
	VBN_FLUSHED,
	VBN_BAD_RESPONSE,
	VBN_LOCAL_ACCESS,
	VBN_REMOTE_INVALID,
	VBN_REMOTE_ACCESS,
	VBN_REMOTE_OPERATION,
	VBN_RETRY_EXCEEDED,
	VBN_RNR_RETRY_EXCEEDED,
	VBN_REMOTE_ABORTED,
	VBN_DEVICE_ERROR,
	VBN_CQ_ERROR,
};

/* "retry exceeded" */
const char *vbn_status_text(enum vbn_status status);

struct vbn_event {
	struct vbn_queue *queue;
	struct vbn_buf *buf; /* the caller's from here on: a message received (a datagram's source
				is in its `peer`), what was read, or a buf that KEEP or a cookie
				returns */
	void *cookie;        /* of the buf, where it had one */
	uint32_t len;        /* bytes received, or of the operation */
	uint32_t imm;        /* immediate data, host order, where has_imm */
	uint8_t op;          /* enum vbn_op */
	uint8_t status;      /* enum vbn_status */
	uint8_t has_imm;
};

/* Fills up to n events of all the worker's queues, each queue's in order, taking turns. Returns how
 * many. */
int vbn_poll(struct vbn_worker *worker, struct vbn_event *events, int n);

/* Operations staged or in flight that have not completed. */
uint32_t vbn_queue_outstanding(const struct vbn_queue *queue);

/* The one-message forms. */
static inline int vbn_send_one(struct vbn_queue *queue, struct vbn_buf *buf)
{
	return vbn_send(queue, &buf, 1);
}

static inline int vbn_send_imm_one(struct vbn_queue *queue, struct vbn_buf *buf, uint32_t imm)
{
	return vbn_send_imm(queue, &buf, &imm, 1);
}

static inline int vbn_write_one(
	struct vbn_queue *queue, struct vbn_buf *buf, struct vbn_remote remote)
{
	return vbn_write(queue, &buf, &remote, 1);
}

static inline int vbn_write_imm_one(
	struct vbn_queue *queue, struct vbn_buf *buf, struct vbn_remote remote, uint32_t imm)
{
	return vbn_write_imm(queue, &buf, &remote, &imm, 1);
}

static inline int vbn_read_one(
	struct vbn_queue *queue, struct vbn_buf *buf, struct vbn_remote remote)
{
	return vbn_read(queue, &buf, &remote, 1);
}

static inline int vbn_fetch_add_one(
	struct vbn_queue *queue, struct vbn_buf *buf, struct vbn_remote remote, uint64_t add)
{
	struct vbn_atomic atomic = {add, 0};

	return vbn_fetch_add(queue, &buf, &remote, &atomic, 1);
}

static inline int vbn_cmp_swap_one(struct vbn_queue *queue, struct vbn_buf *buf,
	struct vbn_remote remote, uint64_t compare, uint64_t swap)
{
	struct vbn_atomic atomic = {swap, compare};

	return vbn_cmp_swap(queue, &buf, &remote, &atomic, 1);
}

#ifdef __cplusplus
}
#endif

#endif
