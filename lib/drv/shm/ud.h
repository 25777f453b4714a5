/* ud.h - datagrams over shared memory: a queue that sends to any queue whose address it has, and
 * receives from many
 *
 * A ring for each pair: the first time that a queue is given a peer, the two meet on their control
 * threads, and the receiver makes a segment (ring.h) which that queue alone writes into. So sending takes
 * no locked instruction, and a sender that lies, stops or dies has nothing to do with the others' rings.
 *
 *   way      the sender's end: one for each peer of a queue
 *   inlet    the receiver's end: at most UD_INLETS of a queue, UD_INLETS_OF_ONE of them of one process
 *   target   a peer of a port, which its queues share: what a buf's handle points to
 *
 * A datagram is never waited for. Whose ring has no room for one more loses it, and so does who has no
 * buf for it; each is counted (enum ud_drop). What lies in a ring when its receiver ends is counted by
 * the sender, who knows by `taken` what was not: once it has something to send there, or goes itself.
 *
 *   sent = received + drops of the sender + drops of the receiver
 *
 * The key is looked at once, where the two meet: who has not the receiver's gets no ring.
 *
 * Who frees what: ways and inlets are made and freed by the control thread, and used by the worker. The
 * control thread marks what is over; the worker takes what is left of an inlet, shows what is staged on
 * a way, forgets it, and marks it as done; a timer of the port's has the control thread free what is
 * done. Where a queue is reset or ends, its worker waits, and it all goes at once.
 */
#ifndef VBN_SHM_UD_H
#define VBN_SHM_UD_H

#include "drv/shm/shm.h"

enum {
	UD_MTU = 4096,
	UD_RING = 256 << 10, /* bytes of each ring */
	UD_PAST_END = 8192,  /* of no use, at the most, so that no record passes its end */
	UD_INLETS = 128,
	UD_INLETS_OF_ONE = 64,
	UD_TARGETS = 1024, /* peers of a port at a time */
	UD_HEADER = 40,    /* in front of a datagram: what a network's takes */
	UD_SOURCE = 16,    /* bytes of it, the last ones: where it came from */
	UD_NUMBER_MAX = 0xffffff,
};

enum ud_drop {
	UD_NO_ROOM,
	UD_NO_PEER,
	UD_NO_RECEIVE,
	UD_N_DROPS,
};

/* ---- what the worker has of each ring ---- */

struct ud_way {
	struct ring_writer ring;
	struct shm_head *peer;
	struct ud_way *dirty_next;
	bool dirty;    /* in its queue's list of those that have something staged */
	bool dead;     /* nobody takes anything there */
	bool told;     /* what was not taken has been counted */
	uint32_t over; /* control → worker: to be forgotten */
	uint32_t done; /* worker → control: it is */
	/* the control thread's */
	struct shm_segment *segment; /* NULL: the two could not meet */
	struct shm_peer *process;
	struct ud_target *target;
	uint32_t id; /* what the receiver calls it */
	struct ud_way *next;
};

struct ud_inlet {
	/* line 0: each datagram */
	uint8_t *ring;
	uint64_t pos, told;
	uint64_t burst;
	uint32_t mask;
	uint32_t number; /* the sender's queue, by what it says of itself */
	uint8_t source[UD_SOURCE];
	struct shm_head *head;
	uint32_t over, done; /* as of a way */
	uint64_t stop;       /* of a failed queue: what is behind is not looked at */
	/* the control thread's */
	struct shm_segment *segment;
	const struct shm_source *client; /* who has asked for it; NULL: this process */
	uint32_t id, slot;
	struct ud_inlet *next;
};

struct shm_ud {
	/* sending */
	struct ud_way *
		*ways; /* by target: published by the control thread, taken out by the worker */
	struct ud_way *dirty;
	/* receiving */
	uint32_t n_inlets; /* slots that have ever been in use */
	uint32_t turn;
	uint32_t longest, data_at; /* of a buf: bytes of a datagram, and where they begin */
	struct ud_inlet *inlets[UD_INLETS]; /* as the ways */
	uint64_t drops[UD_N_DROPS];
	/* the control thread's */
	struct ud_inlet *all_inlets;
	struct ud_way *all_ways;
	uint32_t last_id;
	uint32_t qkey;
	int node;
};

/* A peer, as a handle. */
struct ud_target {
	uint32_t index;
	uint32_t refs; /* the peer's, and of the ways that lead there */
	struct address address;
};

static force_inline bool ud_is_handle(uint64_t handle)
{
	return handle > UD_NUMBER_MAX;
}

static force_inline struct ud_target *ud_target(uint64_t handle)
{
	return (struct ud_target *)(uintptr_t)handle;
}

/* Bytes of a record in a ring of datagrams; 0: it is none. */
static inline uint32_t ud_record_size(uint64_t header, uint32_t mask)
{
	const uint32_t kind = record_kind(header), len = record_len(header);

	if (len > mask || (kind == SHM_PAD && len < SHM_WORD))
		return 0;
	return kind == SHM_PAD ? len : record_size(kind == SHM_SEND_IMM ? SHM_WORD : 0, len);
}

static force_inline void ud_drop(struct shm_queue *sq, enum ud_drop which)
{
	count_add(&sq->ud->drops[which], 1);
}

/* ---- ud.c: on the control thread ---- */

int vbn__shm_ud_make(
	struct shm_queue *sq, const struct vbn_queue_conf *conf, const struct vbn_worker *worker);
void vbn__shm_ud_free(struct shm_queue *sq);
void vbn__shm_ud_connect(struct shm_queue *sq);
/* All its rings go; the worker waits. */
void vbn__shm_ud_end(struct shm_queue *sq);

int vbn__shm_peer_create(struct peer_entry *entry);
void vbn__shm_peer_destroy(struct peer_entry *entry);
int vbn__shm_peer_join(struct peer_entry *entry, struct vbn_queue *queue);
void vbn__shm_buf_source(const struct vbn_buf *buf, uint32_t *qpn, uint8_t gid[16]);
void vbn__shm_queue_drops(const struct vbn_queue *queue, struct drop_list *list);

/* A ring of this queue's for who asks, which has named it; or it leaves one. */
struct shm_request;
struct shm_reply;
struct shm_segment *vbn__shm_ud_answer(struct shm_queue *sq, const struct shm_request *request,
	struct shm_reply *reply, const struct shm_source *client);
/* A process has hung up: one that writes into this port's queues, or one that they write to. */
void vbn__shm_ud_client_gone(struct shm_port *port, const struct shm_source *client);
void vbn__shm_ud_process_gone(struct shm_port *port, const struct shm_peer *process);
void vbn__shm_ud_close(struct shm_port *port);

/* The first time that a queue sends to a peer that another one has asked for; on the worker's thread,
 * which waits. A way that leads nowhere: the two cannot meet. NULL: no memory. */
struct ud_way *vbn__shm_ud_meet(struct shm_queue *sq, uint64_t handle);

/* ---- ud_tx.c ---- */

void vbn__shm_ud_tx_ops(struct queue_ops *ops);
/* Shows what is staged on it. */
void vbn__shm_ud_show(struct shm_queue *sq, struct ud_way *way);
/* Datagrams that were shown on a way that nobody reads any more, and not taken: the first time that it
 * is asked. */
uint64_t vbn__shm_ud_untaken(struct ud_way *way);
/* What the control thread has marked is forgotten. */
void vbn__shm_ud_news(struct shm_queue *sq);

/* ---- ud_rx.c ---- */

void vbn__shm_ud_rx_ops(struct queue_ops *ops, bool shared);
/* Takes nothing from here on but what has come by now. */
void vbn__shm_ud_stop(struct shm_queue *sq);
int vbn__shm_ud_take_rest(
	struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n);

#endif
