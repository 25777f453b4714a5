/* shm.h - the driver for workers of one host: queues over shared memory, in one process and between
 * several
 *
 * Lives here: ports that are a name in this host, and queues that are two rings. May come in: sockets
 * and memfds, on the control thread. May touch it: port, through struct driver.
 *
 *   ring.h       what two queues share: segment and records; what a message costs
 *   segment.c    a segment: made, sealed, mapped; one that a peer has sent, checked
 *   wire.h       what two control threads say to each other
 *   meet.h       how processes meet: meet.c who may come to a port's socket, ask.c asking another's
 *   life.h       a word of each process that the kernel writes when it dies
 *   lend.h       zones that peers may read: lend.c offered, view.c mapped, ref.c named and fetched
 *   port.c       the driver's table, open, list, modes, counters
 *   queue.c      create, connect, reset, free; modes
 *   tx.c         stage and flush
 *   wait.c       operations that wait for room
 *   box.h        the box: lone messages
 *   done.c       what has been done is released
 *   rx.c         what has arrived is handed out
 *   serve.c      what the peer asks for: writes, reads, atomics; and the answers
 *   export.c     memory that peers may ask for
 *   fail.c       the data path of a failed queue
 *   ud.h         datagrams: ud.c how pairs meet, ud_tx.c sent, ud_rx.c received
 *   sleep.c      a worker that sleeps until a peer sends
 *   srq.c        bufs that several queues receive into
 *
 * Each queue owns the segment that its peer writes into. Connecting fetches the peer's, by the
 * socket that the peer's address names, and takes effect at once: what is sent before the peer has
 * connected, too, waits in its ring.
 *
 * A message is copied twice, by the sender into the ring and by the receiver out of it; neither sees the
 * other's pools, nor its exports. A send is then done when it is in the peer's ring, which is the peer's
 * memory: it is there whatever becomes of the sender. A large one from a zone that is shared (memfd = ON,
 * verbena/zone.h) is copied once, by the receiver, which can read that zone: its buf stays here until the
 * receiver has said so by `taken`; a sender that closes before takes it back, unless it dies. Writes,
 * reads and atomics are carried out by the owner of the memory, when it polls the queue that they come
 * by; a write is done when the peer has said so by `taken`, a read when its answer is here.
 *
 * Datagrams have none of this: their queue has a ring for each that sends to it, and what does not fit is
 * dropped (ud.h).
 *
 * A peer is hostile. Its process is of the same user, or it is refused. It may write what it likes
 * into both segments, and nothing else but read what is shared: segments are sealed against shrinking,
 * so that no access is beyond their end, and are of plain pages, since a huge one that a peer punches
 * out need not come back.
 * What a ring says is checked against ring.h; what cannot be fails the queue, with a count.
 *
 * The peer's process has ended when its life word says so, which idle polls look at, or when the socket
 * hangs up, which the control thread tells its queues.
 */
#ifndef VBN_SHM_H
#define VBN_SHM_H

#include "drv/drv.h"
#include "drv/shm/ring.h"

enum {
	SHM_MAX_DEPTH = 32768,
	SHM_MAX_READS = 128,
	SHM_MAX_INLINE = 960, /* of vbn_send_inline() */
	SHM_NAME = 32,        /* of a port, with its 0 */
};

/* ---- segments: the control thread's ---- */

struct shm_segment {
	uint8_t *base;
	size_t size;
	uint32_t ring_size;
	uint32_t refs;
	int fd; /* of one made here; -1 */
	char pages[64], why[160];
	bool attached;           /* somebody writes into it, or has */
	struct shm_views *views; /* zones of who writes into it; NULL: nobody does */
};

static inline struct shm_head *segment_head(const struct shm_segment *segment)
{
	return (struct shm_head *)(void *)segment->base;
}

static inline uint8_t *segment_ring(const struct shm_segment *segment)
{
	return segment->base + SHM_HEAD;
}

/* What the process asks for. */
const char *vbn__shm_pages_asked(void);
/* With one ref. 0, or -errno with the sentence. */
int vbn__shm_segment_make(uint32_t ring_size, int node, struct shm_segment **segment);
/* Takes the descriptor, whatever comes of it. -EPROTO, without a sentence: it is none of ours, or not
 * what was said of it; `why` says how. */
int vbn__shm_segment_map(
	int fd, uint32_t ring_size, struct shm_segment **segment, const char **why);
/* NULL is allowed. */
void vbn__shm_segment_put(struct shm_segment *segment);

/* ---- ports ---- */

enum shm_count {
	SHM_ATTACHED,
	SHM_REFUSED_PEERS,
	SHM_LOST_PEERS,
	SHM_FAULTS,
	SHM_UNREAD,
	SHM_UNTAKEN,
	SHM_OTHER_KEYS,
	SHM_VIEWED,
	SHM_UNVIEWED,
	SHM_N_COUNTS
};

struct shm_source; /* a watched descriptor: meet.h */
struct shm_peer;   /* another process: ask.c's */
struct shm_life;   /* life.h */
struct shm_loans;  /* lend.h */
struct shm_views;
struct shm_exports;
struct ud_target; /* ud.h */
struct shm_ud;

struct shm_port {
	struct vbn_port port;
	char name[SHM_NAME];
	uint64_t id; /* what its socket is called by */
	uint32_t next_number;
	struct shm_exports *exports; /* read by workers: rcu */
	/* the control thread's */
	struct shm_source *listener;
	struct shm_source *clients; /* that have connected here */
	struct shm_peer *peers;     /* that this port has connected to */
	struct shm_source *sweep;   /* ud.c's timer; NULL: none yet */
	struct ud_target **targets; /* of its peers, by index; NULL: none yet */
	struct shm_loans *loans;    /* to queues of this process; NULL: it has had none */
	struct shm_port *next;
	struct counter_set counters;
	uint64_t counts[SHM_N_COUNTS]; /* of several threads: atomic */
};

static inline struct shm_port *shm_port(const struct vbn_port *port)
{
	return container_of((struct vbn_port *)(uintptr_t)port, struct shm_port, port);
}

/* Off the fast path. */
static inline void shm_count(struct shm_port *port, enum shm_count which, uint64_t n)
{
	__atomic_fetch_add(&port->counts[which], n, __ATOMIC_RELAXED);
}

/* ---- meet.c, ask.c: on the control thread ---- */

int vbn__shm_listen(struct shm_port *port);
/* Whether VBN_SHM_UIDS is a list of users, or not set: 0 or -EINVAL. */
int vbn__shm_users_check(void);
void vbn__shm_unlisten(struct shm_port *port);

/* What a peer tells of itself. */
struct shm_terms {
	uint32_t ring_size;
	uint32_t max_message; /* bytes of its receives */
	uint32_t ring;        /* of datagrams: what the receiver calls it */
};

/* Fetches the segment of a peer's queue, and lends its process what the port has. *process is NULL where
 * that is in this process. */
struct shm_queue;
int vbn__shm_attach(struct shm_queue *sq, const struct address *peer, struct shm_segment **segment,
	struct shm_terms *terms, struct shm_peer **process);
void vbn__shm_detach(struct shm_port *port, struct shm_peer *process);
/* Tells a queue for datagrams that nobody writes into this ring of its any more. */
void vbn__shm_leave(
	struct shm_port *port, const struct address *peer, struct shm_peer *process, uint32_t ring);
/* The word that says when it dies (life.h), with a ref more; NULL: there is none. */
struct shm_life *vbn__shm_life_of(struct shm_peer *process);

/* ---- a queue ---- */

/* Bufs that wait to be received into: taken from the pool, so that no other use of it keeps messages
 * out. A message gets one of the pool's as long as there are some, which are warm, and one of
 * these where there are none. */
struct shm_bufs {
	struct vbn_pool *pool;
	struct vbn_buf **stack;
	uint32_t n, depth;
	struct vbn_srq *srq; /* they are shared; NULL: they are the queue's */
	bool below;          /* the limit's event has been given */
};

/* An operation that is not over with the copy: it waits for room or an answer, or its buf goes back
 * by an event. */
struct shm_wqe {
	struct vbn_buf *buf; /* NULL: a copy of bytes */
	uint64_t addr;
	uint64_t value, compare;
	uint64_t end; /* in the ring; behind its last record */
	uint32_t rkey, imm;
	uint32_t len;  /* bytes in all */
	uint32_t done; /* bytes of them in the ring; of a fetch, that have come */
	uint8_t kind;  /* enum shm_kind of its records: SEND, WRITE, or a fetch */
	uint8_t op;    /* enum vbn_op of its event */
	bool has_imm, returns, put, answered;
	bool lent; /* its bytes are the peer's to read until it has taken its last record */
};

/* A slot of an operation that has no shm_wqe: a plain send, over when it is published. */
enum { SLOT_PLAIN, SLOT_WQE };

/* The box as one end has it. */
struct shm_talk {
	struct shm_box *box;
	uint64_t look_at;  /* clock_cycles(): not before, where it waits for an answer */
	uint32_t patience; /* cycles until the first look */
	uint32_t least;    /* between two looks */
	uint32_t len;
	uint16_t sequence; /* of the last message, whoever sent it */
	bool turn;         /* this end may send */
	bool waits;        /* it has sent the last one */
	bool early;        /* and looked before the answer was there */
	bool staged;       /* what follows is to be sent with the flush, by the box or the ring */
	uint8_t data[SHM_BOX_DATA];
};

/* Operations are counted freely from 0; in order tail <= done <= rung <= put <= head. */
struct shm_tx {
	/* line 0, 1: each stage */
	struct ring_writer ring;
	uint32_t head;   /* next to stage */
	uint32_t put;    /* all before are in the ring */
	uint32_t tail;   /* all before have been released */
	uint32_t mask;   /* of the depth */
	uint32_t n_wqes; /* between tail and head, those with a shm_wqe */
	uint32_t
		longest; /* bytes that are copied into one record as they come, and that the peer receives */
	uint32_t plain; /* the word of a buf of the pool without flags */
	uint8_t *slots; /* SLOT_PLAIN or SLOT_WQE */
	struct vbn_pool *pool;
	/* flush */
	struct shm_head *peer;
	uint32_t rung; /* all before are published */
	uint32_t done; /* all before have been carried out */
	struct shm_wqe *wqes;
	uint32_t max_message;            /* the peer's receives */
	uint32_t n_fetches, max_fetches; /* reads and atomics under way */
	uint32_t fetch;                  /* the first that may be one of them */
	uint64_t waiting;                /* bytes between put and head, fetches' aside */
	struct shm_loans *loans;         /* to the peer; NULL: nothing goes by reference */
	uint32_t ref_min;                /* bytes from which on it does */
	uint32_t whole;        /* bytes that go in one record and that the peer receives */
	uint64_t lent;         /* bytes that it may read */
	uint64_t by_reference; /* operations that went so */
};

/* An answer that the peer waits for. */
struct shm_pending {
	uint64_t addr, value;
	uint32_t rkey, index, len, done;
	bool is_value; /* of an atomic; else what is at addr */
};

struct shm_rx {
	/* line 0: each message */
	uint8_t *ring;
	uint64_t pos, told;
	uint64_t burst; /* the end of the burst, as far as its writer says so */
	uint32_t mask, data_size;
	struct shm_bufs *bufs;
	struct shm_head *head;
	const uint32_t *life; /* of the peer's process: life.h */
	/* a message that comes in pieces */
	struct vbn_buf *part;
	uint32_t part_total, part_done;
	uint32_t write_len; /* bytes of a write so far */
	uint32_t fetched;   /* bytes that came by reference, in one call */
	/* answers that there is no room for yet: a ring of max_peer_reads */
	struct shm_pending *pending;
	uint32_t pending_head, pending_tail, pending_mask;
	uint64_t stop; /* of a failed queue: what is behind is not looked at */
	struct shm_bufs own;
};

struct shm_failure {
	enum vbn_status status;
	bool reported;
	bool of_send;
	bool faulty; /* the ring cannot be trusted */
	uint32_t wqe;
};

struct shm_queue {
	struct vbn_queue queue;
	struct shm_tx tx cache_aligned;
	struct shm_rx rx cache_aligned;
	struct shm_talk talk cache_aligned;
	uint32_t gone; /* set by the control thread: the peer's process has ended */
	struct shm_failure failure;
	struct queue_ops ops;
	struct shm_ud *ud; /* NULL: it is of RC or UC */
	/* control path */
	uint64_t nonce;               /* what the writer of `in` must know */
	enum vbn_transport transport; /* for the control thread, which may be asked at once */
	struct shm_segment *in, *out;
	struct shm_peer *process; /* whose queue the peer is; NULL: one of this process */
	struct shm_life *life;    /* rx.life's; NULL: it is nobody's */
	struct shm_loans *loans;  /* tx.loans, wanted or not */
	struct address peer;
	char peer_text[64];
	int pid; /* the peer's */
};

static force_inline uint32_t tx_slots_free(const struct shm_tx *tx)
{
	return tx->mask + 1 - (tx->head - tx->tail);
}

/* All that is put is shown: plain sends are over. */
static force_inline void tx_rang(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;

	tx->rung = tx->put;
	count_add(&sq->queue.stats.tx_doorbells, 1);
	if (likely(!tx->n_wqes)) {
		count_add(&sq->queue.stats.tx_done, tx->rung - tx->tail);
		tx->tail = tx->done = tx->rung;
	}
}

static force_inline struct shm_queue *shm_queue(const struct vbn_queue *queue)
{
	return container_of((struct vbn_queue *)(uintptr_t)queue, struct shm_queue, queue);
}

/* ---- seams between the files: the worker's ---- */

/* tx.c */
void vbn__shm_tx_ops(struct queue_ops *ops, bool fetches);
void vbn__shm_flush(struct vbn_queue *queue);
/* Room for a record of `size` bytes, once what the peer has taken is known and a PAD is written; NULL
 * where there is none. */
uint8_t *vbn__shm_room(struct shm_queue *sq, uint32_t size);
/* Segments that are not empty; -EINVAL: too many. */
int vbn__shm_check_chain(const struct shm_queue *sq, const struct vbn_buf *buf);
/* Shows what is in the ring. False: the peer takes nothing any more, and the queue has failed. */
bool vbn__shm_publish(struct shm_queue *sq);

/* wait.c */
/* Moves what waits into the ring, as far as there is room. */
void vbn__shm_put_waiting(struct shm_queue *sq);
/* And shows it: what poll does for what was flushed before. */
void vbn__shm_tx_go_on(struct shm_queue *sq);
/* The peer's receives are shorter: its end is told, so that it fails, too. */
void vbn__shm_too_long(struct shm_queue *sq, uint32_t index, uint32_t total);
/* `len` bytes of a chain, from `skip` on. */
void vbn__shm_chain_copy(uint8_t *to, const struct vbn_buf *buf, uint32_t skip, uint32_t len);

/* done.c */
/* Follows what has been carried out. */
void vbn__shm_follow(struct shm_queue *sq);
/* Releases what is before `end`: at most n events. How many. */
int vbn__shm_release(struct shm_queue *sq, uint32_t end, enum vbn_status status,
	struct vbn_event *events, int n);
uint32_t vbn__shm_outstanding(const struct vbn_queue *queue);
/* An answer to a fetch; false: it is none that was asked for. */
bool vbn__shm_answered(
	struct shm_queue *sq, const struct shm_answer *answer, const uint8_t *data, uint32_t len);

/* rx.c */
/* Takes in what moves this end's own operations on, and no message. */
void vbn__shm_progress(struct shm_queue *sq);
void vbn__shm_rx_ops(struct queue_ops *ops, bool shared);
/* Messages that had come when the queue failed. */
int vbn__shm_take_rest(
	struct shm_queue *sq, struct vbn_buf **bufs, struct vbn_event *events, int n);
struct vbn_buf *vbn__shm_buf(struct shm_bufs *bufs);
/* How many the pool had not. */
uint32_t vbn__shm_bufs_fill(struct shm_bufs *bufs);
void vbn__shm_bufs_drop(struct shm_bufs *bufs);
/* Takes nothing from here on but what has come by now. */
void vbn__shm_rx_stop(struct shm_queue *sq, bool faulty);
/* Of messages that nobody will take. */
uint32_t vbn__shm_rx_unread(const struct shm_queue *sq);

/* serve.c */
enum shm_served {
	SERVED,
	SERVED_EVENT,
	SERVED_NOT_YET,
	SERVED_FAULT, /* unless the queue has failed already, that is a fault of the peer's */
};
/* A record of another kind than a message. SERVED_EVENT: a write with immediate data has come. */
enum shm_served vbn__shm_serve(struct shm_queue *sq, uint32_t kind, const uint8_t *at, uint32_t len,
	struct vbn_event *event);
/* Answers what there is room for. */
void vbn__shm_serve_pending(struct shm_queue *sq);

/* export.c */
struct shm_exports;
int vbn__shm_export_register(struct vbn_port *port, void *addr, size_t size, uint32_t access,
	bool relaxed, struct export_key *key);
void vbn__shm_export_unregister(struct vbn_port *port, struct export_key *key);
/* The bytes that a peer names; NULL: it may not. For the iteration. */
uint8_t *vbn__shm_export_find(
	const struct shm_port *port, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t access);

/* fail.c */
void vbn__shm_fail(struct shm_queue *sq, enum vbn_status status, const char *fmt, ...)
	printf_like(3, 4);
/* What the peer did cannot be: the queue fails, and its ring is not looked at any more. */
void vbn__shm_fault(struct shm_queue *sq, const char *what);
/* The peer takes nothing more, and operations of this end wait for it. */
void vbn__shm_peer_closed(struct shm_queue *sq);
/* The peer has closed while bytes were fetched from it. */
void vbn__shm_unlent(struct shm_queue *sq);
/* Operation `index` of this end is the cause. */
void vbn__shm_fail_op(
	struct shm_queue *sq, enum vbn_status status, uint32_t index, const char *cause);

/* srq.c */
int vbn__shm_srq_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);
int vbn__shm_srq_fill(struct vbn_srq *srq);
void vbn__shm_srq_stop(struct vbn_srq *srq);
void vbn__shm_srq_free(struct vbn_srq *srq);
uint32_t vbn__shm_srq_posted(const struct vbn_srq *srq);
struct shm_bufs *vbn__shm_srq_bufs(struct vbn_srq *srq);
/* Fills it again; the limit's event, where it is reached. How many events. */
int vbn__shm_srq_refill(struct shm_bufs *bufs, struct vbn_event *event, int n);

/* sleep.c */
/* What was shown to a peer that sleeps, or has closed: it is woken. False: it takes nothing any more,
 * and the queue has failed. */
bool vbn__shm_wake(struct shm_queue *sq);
/* This process may be woken without a fence of its own on the way to a peer. */
void vbn__shm_sleep_begin(void);
uint32_t *vbn__shm_sleep(struct vbn_queue *queue);
bool vbn__shm_may_sleep(const struct vbn_queue *queue);
void vbn__shm_sleep_over(struct vbn_queue *queue);

/* queue.c */
int vbn__shm_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
/* Another segment in the place of one that somebody has attached to, as long as the queue is not
 * connected. */
int vbn__shm_queue_renew(struct shm_queue *sq);
void vbn__shm_queue_address(const struct vbn_queue *queue, struct vbn_address *address);
int vbn__shm_queue_fill(struct vbn_queue *queue);
uint32_t vbn__shm_queue_posted(const struct vbn_queue *queue);
int vbn__shm_queue_connect(struct vbn_queue *queue, const struct address *peer);
int vbn__shm_queue_fail(struct vbn_queue *queue);
bool vbn__shm_queue_quiet(const struct vbn_queue *queue);
int vbn__shm_queue_reset(struct vbn_queue *queue);
void vbn__shm_queue_news(struct vbn_queue *queue, uint32_t news);
/* The life word of its process says that it has died. */
void vbn__shm_peer_died(struct shm_queue *sq);
void vbn__shm_queue_stop(struct vbn_queue *queue);
void vbn__shm_queue_free(struct vbn_queue *queue);
void vbn__shm_queue_modes(const struct vbn_queue *queue, struct mode_report *report);

extern const struct driver vbn__driver_shm;

#endif
