/* vhca.h - the emulated ConnectX: its objects, and the seams between the files that make it
 *
 * Lives here: what a ConnectX and the kernel's mlx5_ib do, in user space under the unmodified
 * libibverbs and libmlx5. May come in: lib/base, libc; nothing else of the stack. The stack reaches
 * it only as it would reach a NIC.
 *
 *   front    what the kernel would be: front.h says which file has what
 *   device   what the chip would be
 *     device.c     devices, contexts, ports, GIDs
 *     object.c     numbers, PDs, MRs, AHs, UARs; queue.c CQs and SRQs; qp.c QPs and their states
 *     event.c      completion and async events
 *     memory.h     the program's memory, as a device reads and writes it
 *     fork.c       what a child of fork() has of it all
 *     lost.c       what fails when the program has unmapped memory; guard.c catches the fault
 *     port.c       what changes meanwhile: port state, GIDs, a device's death; interface.c, a port that
 *                  is an interface's
 *     status.c     the socket that answers about the process, status_json.c what; profile.c, what a
 *                  card says of itself
 *     output.c     files that the user named: trace.c's lines, pcap.c's packets
 *     engine.c     the thread that watches doorbells and runs queues; doze.c, how it sleeps
 *     requester.c  decodes send WQEs and executes them; completion and error of requests
 *     responder.c  receives: RQ and SRQ, scatter, remote access
 *     cqe.c        writes CQEs (64 and 128 bytes), overrun, arm and events
 *     rule.h       the rules of the device's contract, and their checks: rule.c tells, rule_wqe.c and
 *                  rule_doorbell.c look, threads.c at what the program's threads do; trap*.c, the
 *                  slow mode that sees every doorbell
 *     fault.c      misbehaviour on request
 *     wire.h       what a wire must do; wire_loopback.c, the in-process one
 *     flow.h       the wires of RoCEv2 packets: wire_packet.c, the transports of flow*.c, packet.c and
 *                  crc.c, patience.c with late receivers, disturb.c's faults
 *     raw.h        raw Ethernet: frames and the queues that receive them
 *     steer.h      which frames go to which receive queues; devx.h, what programs command by themselves
 *     route.h      the headers in front of a packet, and its ICRC; neighbor.h, whose MAC it goes to
 *     carrier.h    what carries packets: wire_udp.c, UDP sockets; wire_frame.c, TAP and packet socket
 *
 * Threads: commands run on the program's threads, what people ask and faults by the clock on the
 * status thread, everything else on the one engine thread of the process. All hold `device->lock`: a
 * command or question for its duration, the engine for one sweep; the engine gives way when
 * `commands_waiting` is not 0. Everything the program writes (rings, records, UAR pages, command
 * buffers) is hostile: read once, check, then use the copy.
 */
#ifndef VHCA_H
#define VHCA_H

#include "base/base.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/types.h>

#define VHCA_MAX_DEVICES   16
#define VHCA_N_GIDS        256
#define VHCA_MAX_ADDRESSES 8 /* of a port, from the options */
#define VHCA_MAX_GATEWAYS  8
#define VHCA_PAGE          4096u /* of the emulated device: log_uar_size 12 */

struct vhca_device;
struct vhca_context;
struct vhca_wire;
struct vhca_cq;
struct vhca_qp;
struct vhca_srq;
struct vhca_ah;

/* ---- options.c ---- */

enum vhca_profile { VHCA_CONNECTX5, VHCA_CONNECTX4LX };
enum vhca_strict { VHCA_REPORT, VHCA_ERROR, VHCA_ABORT };

/* What each device may have of its own. */
struct vhca_device_options {
	int mtu;   /* of the RoCE path: 256 to 4096 */
	int node;  /* NUMA node that sysfs reports; -1 is none */
	int speed; /* of the port, in Gbit/s; 0: what the profile comes with */
	enum vhca_profile profile;
};

/* ADDRESS[/PREFIX][@VLAN] */
struct vhca_address {
	uint8_t raw[16]; /* IPv4 is mapped into IPv6 */
	uint8_t prefix;  /* bits of `raw`; 0: all addresses are on its link */
	uint16_t vlan;   /* 0: none */
};

struct vhca_options {
	int n_devices;
	struct vhca_device_options device[VHCA_MAX_DEVICES];
	enum vhca_strict strict;
	bool trap; /* the program's UAR pages */
	bool devx; /* programs may command the device by themselves */
	bool doze; /* while idle, where that can be had; else naps */
	uint64_t seed;
	/* of the first device's port; the next devices count up */
	struct vhca_address addresses[VHCA_MAX_ADDRESSES];
	uint32_t n_addresses;
	bool of_interface; /* instead: those that the interface behind the wire has */
	struct vhca_address gateways[VHCA_MAX_GATEWAYS];
	uint32_t n_gateways;
	char wire[64];            /* "loopback" */
	const char *fault;        /* list of faults, of any length */
	const char *trace, *pcap; /* files; "": none */
};

/* Parsed from VHCA_* once; a bad value is one sentence on standard error and the default. Any
 * thread. */
const struct vhca_options *vhca_options(void);
/* Somebody named an address, other than the one that the first port has anyway. */
bool vhca_address_asked(void);

/* ---- profile.c: what a model of the card says of itself ---- */

struct vhca_facts {
	const char *name;           /* as VHCA_PROFILE has it */
	const char *board_id;       /* PSID */
	uint16_t device_id;         /* PCI */
	uint16_t subsystem_id;      /* PCI */
	uint16_t firmware[3];       /* 16.35.2000 */
	uint8_t eth_min_inline;     /* MLX5_USER_INLINE_MODE_* */
	bool enhanced_multi_packet; /* WQEs that carry several packets, without a minimum inline */
	bool compresses_stride;     /* mini CQEs with a stride index */
	uint16_t speeds[6];         /* Gbit/s that its port can have; the last one is 0 */
	uint16_t speed;             /* as shipped */
};

const struct vhca_facts *vhca_facts(enum vhca_profile profile);
/* NULL: no card has it. */
const struct vhca_facts *vhca_facts_named(const char *name, enum vhca_profile *profile);
/* Link width and speed per lane as the port's query encodes them, and as sysfs says them. */
void vhca_link_of(int gbit, uint8_t *width, uint8_t *speed, const char **text);

/* ---- counters: the kernel's names; sysfs shows them, the device side adds to them ---- */

/* Of ports/1/counters. The data counters are of octets, and shown as words of four. */
#define VHCA_PORT_COUNTERS(X)              \
	X(excessive_buffer_overrun_errors) \
	X(link_downed)                     \
	X(link_error_recovery)             \
	X(local_link_integrity_errors)     \
	X(multicast_rcv_packets)           \
	X(multicast_xmit_packets)          \
	X(port_rcv_constraint_errors)      \
	X(port_rcv_data)                   \
	X(port_rcv_errors)                 \
	X(port_rcv_packets)                \
	X(port_rcv_remote_physical_errors) \
	X(port_rcv_switch_relay_errors)    \
	X(port_xmit_constraint_errors)     \
	X(port_xmit_data)                  \
	X(port_xmit_discards)              \
	X(port_xmit_packets)               \
	X(port_xmit_wait)                  \
	X(symbol_error)                    \
	X(unicast_rcv_packets)             \
	X(unicast_xmit_packets)

/* Of ports/1/hw_counters. */
#define VHCA_HW_COUNTERS(X)           \
	X(duplicate_request)          \
	X(implied_nak_seq_err)        \
	X(local_ack_timeout_err)      \
	X(out_of_buffer)              \
	X(out_of_sequence)            \
	X(packet_seq_err)             \
	X(req_cqe_error)              \
	X(req_cqe_flush_error)        \
	X(req_remote_access_errors)   \
	X(req_remote_invalid_request) \
	X(resp_cqe_error)             \
	X(resp_cqe_flush_error)       \
	X(resp_local_length_error)    \
	X(resp_remote_access_errors)  \
	X(rnr_nak_retry_err)          \
	X(rx_atomic_requests)         \
	X(rx_icrc_encapsulated)       \
	X(rx_read_requests)           \
	X(rx_write_requests)

/* Written with the device's lock held: `device->counters.port_xmit_packets++`. */
struct vhca_counters {
#define VHCA_COUNTER(name_) uint64_t name_;
	VHCA_PORT_COUNTERS(VHCA_COUNTER)
	VHCA_HW_COUNTERS(VHCA_COUNTER)
#undef VHCA_COUNTER
};

/* What people and programs are told of a counter. */
static inline uint64_t vhca_counter_shown(const char *name, uint64_t value)
{
	return strstr(name, "_data") ? value / 4 : value;
}

/* Raw frames that have come: too_long, host's (no rule is for them), ruled_out, or taken, which is as
 * copies for as many queues as the rules say: delivered, out_of_buffer, not_ready (the queue receives
 * nothing), or failed (the queue was wrong, and failed with it). */
#define VHCA_RAW_COUNTERS(X) \
	X(came)              \
	X(too_long)          \
	X(host)              \
	X(ruled_out)         \
	X(taken)             \
	X(copies)            \
	X(delivered)         \
	X(out_of_buffer)     \
	X(not_ready)         \
	X(failed)

struct vhca_raw_counters {
#define VHCA_COUNTER(name_) uint64_t name_;
	VHCA_RAW_COUNTERS(VHCA_COUNTER)
#undef VHCA_COUNTER
};

/* ---- device.c ---- */

struct vhca_gid {
	uint8_t raw[16];
	uint8_t type;   /* enum ibv_gid_type_sysfs of libibverbs' driver.h: 0 IB/RoCE v1, 1 RoCE v2;
			 valid where raw is not 0 */
	uint16_t vlan;  /* 802.1Q tag of what it sends on an Ethernet wire; 0: none */
	uint8_t prefix; /* bits of `raw` that all addresses of its link have; 0: all are there */
	bool host;      /* an address of the host's interface: the host answers for it */
};

static inline bool vhca_gid_is_empty(const struct vhca_gid *gid)
{
	static const uint8_t none[16];

	return !memcmp(gid->raw, none, sizeof(none));
}

struct vhca_device {
	int index;
	char name[16];      /* "mlx5_0" */
	uint64_t node_guid; /* host order */
	pthread_mutex_t lock;
	int commands_waiting; /* threads that want the lock: the engine gives way */
	const struct vhca_device_options *options;
	const struct vhca_facts *facts;
	bool port_up;
	uint16_t qkey_violations; /* stays at its largest */
	bool fatal;  /* the chip is dead: no queue runs, commands but the ends of objects fail */
	int refused; /* errno: it has not the address that was asked for, which has been told; 0 */
	enum ibv_mtu mtu;
	struct vhca_counters counters;
	struct vhca_raw_counters raw;
	struct vhca_gid gids[VHCA_N_GIDS];
	uint8_t address[16];                     /* of the port; IPv4 is mapped into IPv6 */
	uint8_t gateways[VHCA_MAX_GATEWAYS][16]; /* on an Ethernet wire, to what is beyond a link */
	uint32_t n_gateways;
	struct vhca_wire *wire;
	struct vhca_context *contexts; /* list */
	struct vhca_tables *tables;    /* objects by number: object.c's */
};

/* The devices of this process, made on first use. Any thread. */
int vhca_n_devices(void);
struct vhca_device *vhca_device(int index);
/* Those there are already: none where nobody has asked yet. */
int vhca_n_devices_made(void);

/* For a command: takes the lock so that the engine makes way. */
void vhca_lock(struct vhca_device *device);
void vhca_unlock(struct vhca_device *device);

/* One open of /dev/infiniband/uverbsN. `bar` is the program-visible UAR space: a memfd that is also
 * the command fd, so that the program's mmap of it needs no hook. */
struct vhca_context {
	struct vhca_device *device;
	struct vhca_context *next;
	int bar_fd;   /* our own duplicate, so that the program's close does not take it */
	uint8_t *bar; /* our mapping of all of it */
	size_t bar_size;
	uint64_t uars_used[16];       /* bitmap of UAR pages, 1,024 of them */
	struct vhca_events *async;    /* event.c's: unread struct ib_uverbs_async_event_desc; NULL
					 before ASYNC_EVENT_ALLOC */
	struct vhca_object *objects;  /* list: what a context's end destroys */
	struct vhca_handles *handles; /* uverbs.c's: handle number to object */
};

int vhca_context_create(struct vhca_device *device, int memfd, struct vhca_context **context);
/* Destroys what the program left. The lock is taken inside. */
void vhca_context_destroy(struct vhca_context *context);

/* The frequency of the core clock and so of CQE timestamps: what QUERY_DEVICE_EX reports as
 * hca_core_clock. */
#define VHCA_CLOCK_KHZ 156250u

/* Layout of the bar: page 0 and on are UARs. The two read-only pages lie where libmlx5 maps them
 * without being told: at page (MLX5_IB_MMAP_* << 8) of the command fd. What lies between is a hole.
 */
#define VHCA_N_UARS    1024u
#define VHCA_BAR_CLOCK \
	((size_t)(5u << 8) * VHCA_PAGE) /* the free-running core clock, at offset 0 */
#define VHCA_BAR_CLOCK_INFO ((size_t)(7u << 8) * VHCA_PAGE) /* struct mlx5_ib_clock_info */
#define VHCA_BAR_SIZE       (VHCA_BAR_CLOCK_INFO + VHCA_PAGE)

/* ---- object.c, queue.c, qp.c, event.c: with the device's lock held; 0 or a positive errno ---- */

enum vhca_kind {
	VHCA_PD,
	VHCA_MR,
	VHCA_CQ,
	VHCA_QP,
	VHCA_SRQ,
	VHCA_AH,
	VHCA_UAR,
	VHCA_CHANNEL,
	VHCA_XRCD,
	VHCA_MW,
	VHCA_WQ,
	VHCA_RQT,
	VHCA_TIR,
	VHCA_STEER_RULE,
	VHCA_COUNTER_SET,
	VHCA_MATCHER,
	VHCA_DEVX,
	VHCA_UMEM
};

struct vhca_object {
	enum vhca_kind kind;
	uint32_t refs; /* objects that need this one: destroy answers EBUSY while not 0 */
	struct vhca_context *context;
	struct vhca_object *next, **back; /* in context->objects */
};

struct vhca_pd {
	struct vhca_object object;
	uint32_t pdn;
};

struct vhca_mr {
	struct vhca_object object;
	struct vhca_pd *pd;
	uint64_t start; /* the program's address of the first byte */
	uint64_t length;
	uint64_t iova;   /* what WQEs and peers call the first byte */
	uint32_t access; /* IBV_ACCESS_* */
	uint32_t key;    /* lkey and rkey */
};

struct vhca_channel {
	struct vhca_object object;
	struct vhca_events *events; /* event.c's: unread struct ib_uverbs_comp_event_desc */
};

struct vhca_uar {
	struct vhca_object object;
	uint32_t page; /* in the context's bar */
};

struct vhca_cq_attr {
	uint64_t buf;                 /* the program's addresses */
	uint64_t db;                  /* two records: [0] consumer index, [1] arm */
	uint32_t n_cqe;               /* a power of two */
	uint32_t cqe_size;            /* 64 or 128 */
	uint64_t user_handle;         /* comes back in events */
	struct vhca_channel *channel; /* NULL: none */
	uint32_t uar_page;
	uint8_t compress; /* mlx5_ib_create_cq.cqe_comp_en */
	uint8_t compress_format;
	bool ignore_overrun;
	bool timestamp;
};

struct vhca_srq_attr {
	struct vhca_pd *pd;
	uint64_t buf, db;
	uint32_t max_wr, max_sge,
		limit; /* the ring has pow2_ceil(max_wr + 1) slots, as libmlx5 made it */
	uint32_t uidx;
	uint64_t user_handle;
	uint32_t flags;
};

struct vhca_qp_attr {
	struct vhca_pd *pd;
	struct vhca_cq *send_cq, *recv_cq;
	struct vhca_srq *srq; /* NULL: an RQ of its own */
	uint8_t type;         /* enum ibv_qp_type */
	bool signal_all;      /* for QUERY_QP: libmlx5 sets the bit in each ctrl segment, the device
				 looks only there */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint64_t user_handle;
	/* the provider's part, struct mlx5_ib_create_qp */
	uint64_t buf, sq_buf, db;            /* db: [0] receive counter, [1] send counter */
	uint32_t sq_wqe_count;               /* WQEBBs of 64 bytes, a power of two */
	uint32_t rq_wqe_count, rq_wqe_shift; /* count of strides and log2 of a stride's bytes */
	uint32_t flags;                      /* MLX5_QP_FLAG_* */
	uint32_t uidx;
	uint32_t uar_page;
	/* of a raw packet QP */
	bool strip_vlan;
	struct vhca_rqt *rqt; /* it only receives, by a hash of these fields; NULL: it has queues */
	uint64_t hash_fields; /* MLX5_RX_HASH_* */
	uint8_t hash_key[40];
};

int vhca_pd_create(struct vhca_context *context, struct vhca_pd **pd);
int vhca_mr_create(struct vhca_pd *pd, uint64_t start, uint64_t length, uint64_t iova,
	uint32_t access, struct vhca_mr **mr);
int vhca_mr_rereg(struct vhca_mr *mr, uint32_t flags, struct vhca_pd *pd, uint64_t start,
	uint64_t length, uint64_t iova, uint32_t access);
/* Brings in pages of a registration on demand. */
int vhca_mr_advise(
	struct vhca_pd *pd, uint32_t lkey, uint64_t addr, uint64_t length, bool writable);
int vhca_uar_create(struct vhca_context *context, struct vhca_uar **uar);
int vhca_channel_create(
	struct vhca_context *context, int *program_fd, struct vhca_channel **channel);
/* For ASYNC_EVENT_ALLOC: makes context->async and the program's end, a blocking pipe. */
int vhca_async_create(struct vhca_context *context, int *program_fd);
int vhca_cq_create(
	struct vhca_context *context, const struct vhca_cq_attr *attr, struct vhca_cq **cq);
/* Events come after `count` CQEs or `period` microseconds; EINVAL for too long a period. */
#define VHCA_MAX_EVENT_PERIOD 4095
int vhca_cq_moderate(struct vhca_cq *cq, uint16_t count, uint16_t period);
int vhca_cq_resize(struct vhca_cq *cq, uint64_t buf, uint32_t n_cqe, uint32_t cqe_size);
int vhca_srq_create(
	struct vhca_context *context, const struct vhca_srq_attr *attr, struct vhca_srq **srq);
int vhca_srq_modify(struct vhca_srq *srq,
	uint32_t limit); /* arms the limit event; EINVAL above the SRQ's size */
void vhca_srq_query(
	const struct vhca_srq *srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit);
int vhca_qp_create(
	struct vhca_context *context, const struct vhca_qp_attr *attr, struct vhca_qp **qp);
/* `mask` and `attr` as ibv_modify_qp; checks transitions, required and allowed masks, and ranges as
 * mlx5_ib does. */
int vhca_qp_modify(
	struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask, uint32_t av_sgid_index);
void vhca_qp_query(struct vhca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int vhca_ah_create(struct vhca_pd *pd, const struct ibv_ah_attr *attr, struct vhca_ah **ah);

/* Ends any object; EBUSY while others need it. */
int vhca_object_destroy(struct vhca_object *object);

/* Numbers the program sees. */
uint32_t vhca_cq_number(const struct vhca_cq *cq);
uint32_t vhca_qp_number(const struct vhca_qp *qp);
uint32_t vhca_srq_number(const struct vhca_srq *srq);

/* What DESTROY_CQ, DESTROY_QP and DESTROY_SRQ answer: events the program has read; ask before
 * vhca_object_destroy, they also take back the ones it has not, so that none is read for an object
 * that is gone. */
uint32_t vhca_cq_events(struct vhca_cq *cq, uint32_t *async);
uint32_t vhca_qp_events(struct vhca_qp *qp);
uint32_t vhca_srq_events(struct vhca_srq *srq);

/* ---- lost.c: with the lock held ---- */

/* Fails the queues whose ring or record was at the address; false: there is none. */
bool vhca_queue_lost(struct vhca_device *device, uintptr_t address);

/* ---- port.c: what changes while programs run. They take the lock; 0 or a positive errno ---- */

/* Contexts hear PORT_ACTIVE or PORT_ERR. */
void vhca_port_set(struct vhca_device *device, bool up);
/* Contexts hear DEVICE_FATAL; nothing moves on the device any more. */
void vhca_device_fail(struct vhca_device *device);
/* Contexts hear GID_CHANGE. EEXIST, with its index, where the table has it. */
int vhca_gid_add(struct vhca_device *device, const struct vhca_gid *gid, int *index);
int vhca_gid_delete(struct vhca_device *device, int index);
/* A word of VHCA_FAULT: port-flap=TIME or device-fatal=TIME; false if it is neither. */
bool vhca_port_fault(const char *word);
/* "250us", "10ms", "1s"; seconds when bare. */
bool vhca_parse_time(const char *text, uint64_t *ns);
/* Does what these have due, and returns in how many milliseconds to come again; -1: never. */
int vhca_port_clock(void);

/* ---- status.c: the thread that answers `verbena vhca status` ---- */

/* The first context starts the thread, the last one stops it. Without it all else works: a process
 * that cannot have one says so. */
void vhca_status_start(void);
void vhca_status_stop(void);
/* In a child of fork. */
void vhca_status_forked(void);
/* Programs close descriptors that they do not know, and open others in their place. */
bool vhca_socket_is_ours(int fd, ino_t ino);

/* ---- engine.c ---- */

/* The first context starts the engine thread, the last one stops it. */
int vhca_engine_start(void);
void vhca_engine_stop(void);
/* In a child of fork. */
void vhca_engine_forked(void);

/* ---- fork.c: around fork() ---- */

void vhca_fork_prepare(void);
void vhca_fork_parent(void);
void vhca_fork_child(void);
/* This is a child of a process that had devices open. */
extern bool vhca_fork_left_devices;

#endif
