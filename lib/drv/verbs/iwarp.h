/* iwarp.h - queues of an iWARP device: connected by rdma_cm, and what their data path does otherwise
 *
 *   cm.c        on the control thread: a port listens, and hears; with call.c by cm.h
 *   call.c      there, too: a queue calls its peer or is called by it
 *   cm_none.c   where the library was built without librdmacm: why there are no connections
 *   iwarp.c     on the worker's thread: a queue that is being connected, or was cut off
 *
 * Both ends have each other's address before they connect, as with any queue. Of the two the one
 * whose name (IP address, TCP port, token) is the smaller calls; the other one takes the call, or
 * keeps it until its own vbn_queue_connect() comes. So neither end waits for the other in
 * vbn_queue_connect(): meanwhile the queue stages and posts nothing, and what is staged goes when
 * the connection is there.
 *
 * What is said when calling, taking and refusing is a struct cm_words. The caller names the token of
 * the queue that it means and its own; both must be what the addresses say. The tokens are random,
 * so that a stranger who finds the TCP port is refused, and counted.
 *
 * What iWARP does otherwise than the rest:
 *  - a completion of a send or write says that the device has taken it, not that it has arrived;
 *  - a read may complete after what was staged behind it, so a send or write behind one is fenced;
 *  - a device may send from a buf in place while TCP has it, unless the request asks for a
 *    completion: so each one does;
 *  - a message that finds no receive posted ends the connection;
 *  - a connection ends with its TCP stream, and its queue pair with it: a reset makes a new one.
 */
#ifndef VBN_IWARP_H
#define VBN_IWARP_H

#include "drv/rdma.h"

struct verbs_queue;

/* An end of a connection, as its address has it. Big-endian, so that memcmp() orders them. */
struct link_name {
	uint8_t ip[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t port[2];
	uint8_t token[8];
};
static_assert(sizeof(struct link_name) == 26, "names are compared whole, so there is no padding");

enum link_state { LINK_NONE, LINK_TRYING, LINK_UP, LINK_DOWN };

/* A queue's connection: the control thread's but for `state`, which the worker reads, and what says
 * why it is DOWN, which does not change from then on. */
struct verbs_link {
	uint32_t state; /* enum link_state */
	struct link_name own, peer;
	struct rdma_cm_id *id;
	uint64_t deadline; /* ns, while TRYING */
	enum vbn_status status;
	char why[256];
};

/* The port's end of rdma_cm: made when it is opened. */
struct verbs_cm;

struct verbs_port {
	struct rdma_port rdma;
	struct verbs_cm *cm; /* NULL: not iWARP */
};

static inline struct verbs_port *verbs_port(const struct vbn_port *port)
{
	return container_of(rdma_port((struct vbn_port *)(uintptr_t)port), struct verbs_port, rdma);
}

/* cm.c: on the control thread; 0, or -errno with a sentence. Listens, and notes the address as the
 * port's. stop accepts what never started. */
int vbn__cm_start(struct verbs_port *port);
void vbn__cm_stop(struct verbs_port *port);
/* A name of its own for a queue that is made, or made anew. */
void vbn__cm_name(const struct verbs_port *port, struct link_name *name);
/* Calls the peer or waits for its call: `state` tells what comes of it, and the queue's worker is
 * told NEWS_LINK. */
int vbn__cm_connect(struct verbs_queue *vq);
/* Forgets the connection. Its queue pair is gone, or does nothing any more. */
void vbn__cm_end(struct verbs_queue *vq);

/* iwarp.c: on the control thread */
void vbn__iwarp_address(const struct verbs_queue *vq, struct vbn_address *wire);
int vbn__iwarp_connect(struct verbs_queue *vq);
/* On the worker's. */
void vbn__iwarp_news(struct verbs_queue *vq, uint32_t news);

#endif
