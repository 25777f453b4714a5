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
 * State of a queue is which ops table it has, so that no data-path function asks: a driver gives a
 * new queue vbn__queue_unconnected, its own table once connected, and its table of failure once it
 * has failed.
 */
#ifndef VBN_DRV_H
#define VBN_DRV_H

#include "base/base.h"
#include "mem/mem.h"
#include "run/run.h"

#include <verbena/export.h>
#include <verbena/port.h>
#include <verbena/queue.h>
#include <verbena/worker.h>

/* Data-path functions are kept together, apart from the rest: a check reads this section of the
 * object for what a fast path must not have. */
#define fast_path __attribute__((section(".text.fast"), __hot__))

struct driver;

/* A worker's queues: the port room keeps it, a driver marks a queue dirty in it. */
struct queue_list {
	struct vbn_queue **dirty; /* those that may have something staged, each at most once */
	uint32_t n_dirty;
	uint32_t n_queues;
	struct vbn_queue **queues;
	uint32_t turn; /* whose turn vbn_poll() begins with */
	uint32_t capacity;
	struct vbn_worker *worker;
	struct worker_traffic gone; /* what destroyed queues have passed */
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
	int refusal; /* what a queue that takes nothing answers: -ENOTCONN, -EPIPE */
	/* lines 1 and 2: counted once a burst */
	struct vbn_queue_stats stats cache_aligned;
	/* control path */
	struct counter_set counters;
	struct vbn_queue_conf conf;  /* checked, defaults filled in */
	struct vbn_queue_conf asked; /* as the caller gave it */
	char error[512];             /* the first error in words */
};
static_assert(offsetof(struct vbn_queue, stats) == CACHE_LINE,
	"a queue's first line holds what each call reads");

struct queue_ops {
	int (*send)(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
	int (*send_inline)(struct vbn_queue *queue, const void *data, size_t len);
	int (*write)(struct vbn_queue *queue, struct vbn_buf **bufs,
		const struct vbn_remote *remotes, int n);
	void (*flush)(struct vbn_queue *queue);
	int (*recv)(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
	/* Fills events; with n 0 it only reaps. Signals an idle tail. */
	int (*poll)(struct vbn_queue *queue, struct vbn_event *events, int n);
	/* Sends staged or in flight. */
	uint32_t (*outstanding)(const struct vbn_queue *queue);
};

/* What takes nothing: each answers queue->refusal, the flush does nothing. */
int vbn__refuse_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
int vbn__refuse_send_inline(struct vbn_queue *queue, const void *data, size_t len);
int vbn__refuse_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n);
void vbn__refuse_flush(struct vbn_queue *queue);

/* Ops of a queue that is not connected: it refuses, and nothing is outstanding. */
extern const struct queue_ops vbn__queue_unconnected;

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
	uint32_t mtu;                                  /* path MTU asked for or the active one */
	struct zone_registration zones[MEM_MAX_ZONES]; /* written on the control thread, before a
							  pool of the zone is sent from */
	uint32_t n_queues, n_exports;
	struct vbn_port *next;
	struct counter_set counters;
	uint64_t events[4]; /* counters: enum port_counter */
};

enum port_counter { PORT_DOWN, PORT_UP, PORT_ADDRESS_CHANGED, PORT_DEVICE_ERROR };

struct export_key {
	void *region;
	uint32_t rkey;
};

struct driver {
	const char *name;
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
		struct export_key *key);
	void (*export_unregister)(struct vbn_port *port, struct export_key *key);

	/* conf has been checked against the port's info and filled in. The queue's worker waits
	 * meanwhile. */
	int (*queue_create)(struct vbn_port *port, struct vbn_worker *worker,
		const struct vbn_queue_conf *conf, struct vbn_queue **queue);
	void (*queue_address)(const struct vbn_queue *queue, struct vbn_address *address);
	/* Fills the receive ring: on the worker's thread, before queue_connect. */
	int (*queue_fill)(struct vbn_queue *queue);
	int (*queue_connect)(struct vbn_queue *queue, const struct vbn_address *peer);
	/* Stops the device's access to the queue's bufs. */
	void (*queue_stop)(struct vbn_queue *queue);
	/* Frees the bufs it holds (on the worker's thread), then the queue. */
	void (*queue_free)(struct vbn_queue *queue);
	void (*queue_modes)(const struct vbn_queue *queue, struct mode_report *report);
};

/* An address on the wire: vbn_address taken apart and put together. */
struct address {
	enum vbn_transport transport;
	enum vbn_link link;
	uint32_t mtu; /* bytes */
	uint32_t qpn, psn;
	uint16_t lid;
	uint8_t gid[16];
};
void vbn__address_pack(const struct address *address, struct vbn_address *wire);
/* -EINVAL with a sentence. */
int vbn__address_unpack(const struct vbn_address *wire, struct address *address);

#endif
