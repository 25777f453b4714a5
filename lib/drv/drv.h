/* drv.h - the driver contract: what makes a port work, and the heads that every driver's port and
 * queue start with
 *
 * Lives here: the tables a driver fills. May come in: mem, base, and run for control calls. May
 * touch it: port, and each driver. A new driver is a folder beside this file and one line in
 * port/driver.c; a driver never includes another one. What the drivers on libibverbs share is
 * rdma.h.
 *
 * Threads: `struct driver` functions run on the control thread, one at a time. `struct queue_ops`
 * functions run on the queue's worker and hold to the rules of a fast path: no lock, no locked
 * instruction, no system call, no allocation, no log.
 *
 * State of a queue is what is in its ops table, so that no data-path function asks: the port room
 * gives a new queue vbn__refusing_ops; a driver gives it the driver's own when it is connected, with
 * lines of vbn__lacking_ops for what the transport has not, and refuses again once it has failed.
 */
#ifndef VBN_DRV_H
#define VBN_DRV_H

#include "base/base.h"
#include "mem/mem.h"
#include "run/run.h"

#include <verbena/export.h>
#include <verbena/packet.h>
#include <verbena/peer.h>
#include <verbena/port.h>
#include <verbena/queue.h>
#include <verbena/rx_group.h>
#include <verbena/srq.h>
#include <verbena/worker.h>

struct driver;

/* A worker's queues: the port room keeps it, a driver marks a queue dirty in it. */
struct queue_list {
	struct vbn_queue **dirty; /* those that may have something staged, each at most once */
	uint32_t n_dirty;
	uint32_t turn; /* whose turn vbn_poll() begins with */
	bool groups_first;
	uint32_t news;  /* set by the control thread, atomically: some queue has `news` */
	uint32_t n_own; /* queues at the front of `queues` that are polled each by itself */
	uint32_t n_queues;
	struct vbn_queue **queues;
	struct queue_group *groups; /* those of the drivers, one a port */
	uint32_t capacity;
	struct vbn_worker *worker;
	struct worker_traffic gone; /* what destroyed queues have passed */
};

/* What queues of one worker and one port have in common: CQs, SRQs, a doorbell register. A driver's
 * group starts with it, is made with the first queue or SRQ that needs it and goes with the last;
 * both on the control thread while the worker waits. */
struct queue_group {
	struct vbn_port *port;
	struct queue_list *list;
	struct queue_group *next;
	/* Queues and SRQs; atomically, where queues are made while the worker polls. */
	uint32_t n_users;
	/* Events of the queues that share CQs; NULL while none does. */
	int (*poll)(struct queue_group *group, struct vbn_event *events, int n);
};

/* What the control thread has to tell a queue's worker. */
enum queue_news {
	NEWS_QP = 1 << 0,     /* the device moved the QP to error and said so by an event */
	NEWS_CQ = 1 << 1,     /* a CQ of the queue has failed: nothing more will come from it */
	NEWS_DEVICE = 1 << 2, /* the device is gone */
	NEWS_LINK = 1 << 3,   /* its connection has been made, or has ended */
};

/* What each driver's queue starts with. */
struct vbn_queue {
	/* line 0: read by each call, written by the first stage after a flush */
	const struct queue_ops *ops;
	struct queue_list *list;
	struct vbn_port *port;
	void *context;
	struct vbn_worker *worker;
	uint32_t number; /* for people: the QPN */
	bool dirty;
	bool connected;
	bool failed;
	bool grouped;  /* its group polls for it */
	bool ready;    /* its driver has connected it; what is left is its rx group's */
	bool in_group; /* it counts as one of its rx group's that are connected */
	bool ended;    /* a reset is under way: the QP has been moved to its error state */
	bool away;     /* the control thread is at work on it: its news wait */
	int refusal;   /* what a queue that takes nothing answers: -ENOTCONN, -EPIPE */
	/* line 1 and on: counted once a burst */
	struct vbn_queue_stats stats cache_aligned;
	/* control path */
	uint32_t news;  /* enum queue_news, set by the control thread, atomically */
	uint32_t cause; /* of them, why the control thread ends the QP; set before it does */
	struct vbn_queue *next, **at;          /* of the port's: the control thread's */
	uint32_t index;                        /* in its list's `queues` */
	const struct queue_ops *connected_ops; /* the driver's, for when it is connected */
	struct counter_set counters;
	struct vbn_queue_conf conf;  /* checked, defaults filled in */
	struct vbn_queue_conf asked; /* as the caller gave it */
	char error[640];             /* the first error in words */
};
static_assert(offsetof(struct vbn_queue, stats) == CACHE_LINE,
	"a queue's first line holds what each call reads");

/* See verbena/queue.h for what each answers. */
struct queue_ops {
	int (*send)(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
	int (*send_imm)(
		struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n);
	int (*send_inline)(struct vbn_queue *queue, const void *data, size_t len);
	int (*send_inline_imm)(struct vbn_queue *queue, const void *data, size_t len, uint32_t imm);
	int (*send_inline_to)(
		struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len);
	int (*write)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, int n);
	int (*write_imm)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, const uint32_t *imms, int n);
	int (*write_inline)(struct vbn_queue *queue, const void *data, size_t len,
		const struct vbn_remote *remote);
	int (*read)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, int n);
	int (*fetch_add)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n);
	int (*cmp_swap)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n);
	void (*flush)(struct vbn_queue *queue);
	int (*recv)(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
	/* Fills events; with n 0 it only reaps. Signals an idle tail. Of a grouped queue only the
	 * drain calls it, with n 0. */
	int (*poll)(struct vbn_queue *queue, struct vbn_event *events, int n);
	/* Sends staged or in flight. */
	uint32_t (*outstanding)(const struct vbn_queue *queue);
};

/* What takes nothing and has nothing: each answers queue->refusal, the flush does nothing. */
extern const struct queue_ops vbn__refusing_ops;

/* What a transport has not: each answers -EOPNOTSUPP. */
extern const struct queue_ops vbn__lacking_ops;

/* The buf of a send, or of what else its owner has asked for, comes back with the cookie that it went
 * with. */
static force_inline void event_of_buf(struct vbn_queue *queue, struct vbn_buf *buf, uint32_t len,
	enum vbn_op op, enum vbn_status status, struct vbn_event *event)
{
	*event = (struct vbn_event){
		.queue = queue,
		.buf = buf,
		.cookie = buf->flags & VBN_BUF_COOKIE ? buf->cookie : NULL,
		.len = len,
		.op = (uint8_t)op,
		.status = (uint8_t)status,
	};
	buf->flags &= (uint8_t)~VBN_BUF_COOKIE;
}

/* A technique of a queue's conf that a driver may lack, so that it cannot be insisted on. */
struct technique {
	const char *name;
	bool wanted;
};

/* The first that the conf insists on, of mlx5's own rings and of `more`; NULL: none. */
const char *vbn__technique_wanted(
	const struct vbn_queue_conf *conf, const struct technique *more, size_t n);

/* On the control thread: what the queue's worker finds at its next vbn_poll(). */
static inline void queue_tell(struct vbn_queue *queue, uint32_t news)
{
	struct queue_list *list = load_acquire(&queue->list);

	__atomic_fetch_or(&queue->news, news, __ATOMIC_RELEASE);
	if (list)
		store_release(&list->news, 1);
}

/* Marks the queue for the flush at the end of the iteration. */
static force_inline void queue_mark_dirty(struct vbn_queue *queue)
{
	if (!queue->dirty) {
		queue->dirty = true;
		queue->list->dirty[queue->list->n_dirty++] = queue;
	}
}

/* A zone as a port has registered it. */
struct zone_registration {
	void *region;        /* the driver's; NULL: not registered */
	uint32_t key;        /* lkey, host order */
	uint64_t generation; /* of the zone it was made for */
};

struct vbn_port {
	const struct driver *driver;
	struct vbn_port_info info;
	uint32_t mtu; /* path MTU asked for or the active one */
	/* Of a connection; 0: no matter. 6 where a device takes 7 for "for ever". */
	uint32_t max_retries;
	struct zone_registration zones[MEM_MAX_ZONES]; /* written on the control thread, before a
							  pool of the zone is sent from */
	uint32_t n_queues, n_exports, n_srqs, n_peers, n_groups;
	struct vbn_queue *queues; /* the control thread's */
	struct peer_entry *peers; /* the control thread's */
	bool relaxed_ordering;    /* zones are registered so */
	enum vbn_switch relaxed_asked;
	struct vbn_port *next;
	struct counter_set counters;
	uint64_t events[4]; /* counters: enum port_counter */
};

enum port_counter { PORT_DOWN, PORT_UP, PORT_ADDRESS_CHANGED, PORT_DEVICE_ERROR };

struct export_key {
	void *region;
	uint32_t rkey;
};

/* A peer as the port keeps it: one for each address and way there. */
struct peer_entry {
	struct vbn_peer peer;
	struct vbn_port *port;
	struct peer_entry *next;
	uint32_t refs;
	struct vbn_address address;
	uint8_t service_level, traffic_class, hop_limit;
	void *driver_data;
};

/* What each driver's SRQ starts with. */
struct vbn_srq {
	struct vbn_port *port;
	struct queue_list *list;
	struct vbn_srq_conf conf; /* checked, defaults filled in */
	uint32_t n_queues;
	uint64_t no_buf, limits; /* counted by the worker; srq.c shows them by their order */
	struct counter_set counters;
};

/* What each driver's rx group starts with; the control thread's. The port room makes and keeps it, a
 * driver has what it needs behind it. */
struct vbn_rx_group {
	struct vbn_port *port;
	struct vbn_rx_group_conf conf; /* checked, defaults filled in; conf.key is `key`, or NULL */
	uint8_t key[VBN_RX_KEY_SIZE];
	struct vbn_queue **queues; /* conf.n_queues in the table's order; NULL: none has joined */
	uint32_t n_connected;
	bool built;
	uint32_t last_id;
	struct rx_rule *rules; /* in the order of their adding */
};

struct rx_rule {
	struct vbn_rx_rule rule;
	uint64_t packets, bytes; /* of the times that its group was built before */
	uint32_t id;
	struct rx_rule *next;
	void *driver_data;
};

/* Where in its group's table the next queue to be made will be; n_queues: the group is full. */
static inline uint32_t rx_group_vacancy(const struct vbn_rx_group *group)
{
	uint32_t i = 0;

	while (i < group->conf.n_queues && group->queues[i])
		i++;
	return i;
}

/* Drops being reported: as a mode_report. */
struct drop_list {
	struct vbn_drop *drops;
	int max, n;
};

void vbn__drop_add(struct drop_list *list, const char *name, const char *help, uint64_t count);

/* An address on the wire: vbn_address taken apart and put together. */
struct address {
	enum vbn_transport transport;
	enum vbn_link link;
	uint32_t mtu; /* bytes */
	uint32_t qpn, psn;
	uint32_t qkey;
	uint16_t lid;
	uint16_t tcp_port;         /* iWARP: rdma_cm's */
	uint8_t reads, peer_reads; /* in flight towards the peer, and taken from it */
	uint8_t gid[16];
};

struct driver {
	const char *name;
	bool by_name; /* its ports are those that carry its name, "shm" or "shm:NAME", and no others */
	/* Peers' accesses to exports are carried out by workers, in their iterations: who ends an
	 * export waits until none is at it. */
	bool serves_exports;
	/* The rest of a port's name is the driver's to read: there may be a file's in it. */
	bool whole_name;
	/* Its packet ports have an interface, or a file, to themselves: there are no rules but
	 * EVERYTHING, and the port room answers for it. */
	bool owns_interface;
	/* Lists the ports this driver can open: at most n of them are written; how many there are,
	 * or -errno. */
	int (*list)(struct vbn_port_info *infos, int n);
	/* `name` is what stands behind an optional "driver:" and before an optional ":port". */
	int (*open)(const char *name, int port_number, const struct vbn_port_conf *conf,
		struct vbn_port **port);
	void (*close)(struct vbn_port *port);
	void (*modes)(const struct vbn_port *port, struct mode_report *report);
	int (*gids)(const char *name, int port_number, char (*gids)[80], int n);

	int (*zone_register)(struct vbn_port *port, struct vbn_zone *zone,
		struct zone_registration *registration);
	void (*zone_unregister)(struct vbn_port *port, struct zone_registration *registration);
	int (*export_register)(struct vbn_port *port, void *addr, size_t size, uint32_t access,
		bool relaxed, struct export_key *key);
	void (*export_unregister)(struct vbn_port *port, struct export_key *key);

	/* conf has been checked against the port's info and filled in. The queue's worker, whose list
	 * it is, waits meanwhile, unless queue_adopt is set and the queue has an SRQ: then the worker
	 * may go on polling, and nothing that it reads is changed behind its back. */
	int (*queue_create)(struct vbn_port *port, struct queue_list *list,
		const struct vbn_queue_conf *conf, struct vbn_queue **queue);
	/* Set where queues with an SRQ are made, connected, reset and stopped while their worker goes
	 * on polling, unless they have a `cause`; both on the worker's thread. A new queue is made
	 * known to the group that polls for it; one that is to be stopped is in no list of its group
	 * any more, and nothing is posted to it: what is still received for it is an event or goes
	 * home, and what completes is nobody's. */
	int (*queue_adopt)(struct vbn_queue *queue);
	void (*queue_part)(struct vbn_queue *queue);
	void (*queue_address)(const struct vbn_queue *queue, struct vbn_address *address);
	/* Fills the receive ring: on the worker's thread, before queue_connect. */
	int (*queue_fill)(struct vbn_queue *queue);
	/* peer is NULL for UD. Says by connected_ops what the queue does from now on. */
	int (*queue_connect)(struct vbn_queue *queue, const struct address *peer);
	/* Receives that are posted now, of a queue that has a ring of its own; on the worker's
	 * thread. */
	uint32_t (*queue_posted)(const struct vbn_queue *queue);
	/* Makes a connected queue fail, so that all it has comes back. The worker waits. */
	int (*queue_fail)(struct vbn_queue *queue);
	/* Whether a failed queue has reported all it had; on the worker's thread. */
	bool (*queue_quiet)(const struct vbn_queue *queue);
	/* Back to as it was made. The worker waits. */
	int (*queue_reset)(struct vbn_queue *queue);
	/* On the worker's thread: what the control thread has heard. */
	void (*queue_news)(struct vbn_queue *queue, uint32_t news);
	/* Stops the device's access to the queue's bufs. */
	void (*queue_stop)(struct vbn_queue *queue);
	/* Frees the bufs it holds (on the worker's thread), then the queue. */
	void (*queue_free)(struct vbn_queue *queue);
	void (*queue_modes)(const struct vbn_queue *queue, struct mode_report *report);
	/* Where a worker can sleep until something comes for the queue, on its thread; NULL: it cannot.
	 * Says that it is about to: a futex, which is 1 until whoever sends has stored another value
	 * and woken it; NULL: not now. */
	uint32_t *(*queue_sleep)(struct vbn_queue *queue);
	/* Behind a fence: whether nothing has come. */
	bool (*queue_may_sleep)(const struct vbn_queue *queue);
	void (*queue_sleep_over)(struct vbn_queue *queue);

	/* NULL: the driver has none. As of a queue: create and stop on the control thread, fill and
	 * free on the worker's. */
	int (*srq_create)(struct vbn_port *port, struct queue_list *list,
		const struct vbn_srq_conf *conf, struct vbn_srq **srq);
	int (*srq_fill)(struct vbn_srq *srq);
	void (*srq_stop)(struct vbn_srq *srq);
	void (*srq_free)(struct vbn_srq *srq);
	uint32_t (*srq_posted)(const struct vbn_srq *srq);

	/* entry->address and the way are set; fills handle, number, source. NULL: no UD here. */
	int (*peer_create)(struct peer_entry *entry);
	void (*peer_destroy)(struct peer_entry *entry);
	/* A queue, of any worker, asks for the peer: each time that one does. NULL: no matter. */
	int (*peer_join)(struct peer_entry *entry, struct vbn_queue *queue);
	/* Where a datagram came from: its QPN and GID. */
	void (*buf_source)(const struct vbn_buf *buf, uint32_t *qpn, uint8_t gid[16]);

	/* Raw Ethernet, on the control thread; `group_size` 0: the driver has none, and none of its
	 * ports says "packet". A queue of a group is given to queue_create by conf->rx_group, its place
	 * is rx_group_vacancy(). */
	size_t group_size; /* of the driver's struct that starts with a vbn_rx_group; zeroed */
	/* Whether the hash, the symmetry, the key can be had; fills in conf.hash. NULL: they are the
	 * interface's, and cannot be asked for. */
	int (*group_create)(struct vbn_rx_group *group);
	void (*group_destroy)(struct vbn_rx_group *group);
	/* All queues are there and connected: from here on packets come. Its rules are added after
	 * this, and removed before the group is unbuilt, which happens while all queues still are. */
	int (*group_build)(struct vbn_rx_group *group);
	void (*group_unbuild)(struct vbn_rx_group *group);
	void (*group_modes)(const struct vbn_rx_group *group, struct mode_report *report);
	/* Whether there can be such a rule, of which it is known that it does not contradict itself:
	 * asked when it is added, built or not. */
	int (*rule_check)(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule);
	int (*rule_add)(struct vbn_rx_group *group, struct rx_rule *rule);
	void (*rule_remove)(struct vbn_rx_group *group, struct rx_rule *rule);
	/* -EOPNOTSUPP or NULL: it does not count. */
	int (*rule_count)(const struct vbn_rx_group *group, const struct rx_rule *rule,
		uint64_t *packets, uint64_t *bytes);
	/* What is dropped outside of vbn_queue_stats; NULL: nothing that is known of. */
	void (*queue_drops)(const struct vbn_queue *queue, struct drop_list *list);
	void (*port_drops)(const struct vbn_port *port, struct drop_list *list);
};

/* An address as bytes, put together and taken apart. */
void vbn__address_pack(const struct address *address, struct vbn_address *wire);
/* -EINVAL with a sentence. */
int vbn__address_unpack(const struct vbn_address *wire, struct address *address);

#endif
