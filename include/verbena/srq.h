/* verbena/srq.h - an SRQ: one receive ring for many queues of a worker
 *
 * Thousands of queues post no receives of their own; what arrives on any takes the next buf of the
 * shared ring, which vbn_poll() fills again from the pool. Its queues share CQs, too.
 */
#ifndef VERBENA_SRQ_H
#define VERBENA_SRQ_H

#include <stdbool.h>
#include <stdint.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_pool;
struct vbn_port;
struct vbn_srq;
struct vbn_worker;

struct vbn_srq_conf {
	uint32_t depth; /* receives posted: a power of two to the port's max_depth; default 4096 */
	struct vbn_pool *pool; /* required: holds at least depth bufs */

	/* Fewer posted than this once all that could be was posted again yield one event
	 * VBN_OP_SRQ_LIMIT: the pool does not keep up. It is armed again when the ring is full again.
	 * 0: none. The worker counts, and not the device, which has such an event, too: that one comes
	 * for a mere burst that the next poll makes good, takes a system call to arm for each time, and
	 * gets here by the control thread when the ring may long be full, or empty. */
	uint32_t limit;
	void *context; /* the event's cookie */

	bool datagrams;    /* for UD queues; else for those of RC and UC */
	uint32_t cqe_size; /* as a queue's */

	/* As a queue's: ON, and its queues' completions come compressed, too. AUTO: off. */
	enum vbn_switch cqe_compression;
};

/* Posts its receives. -EINVAL: conf out of range; -ENOMEM: the pool is too small, or the device
 * refused; -ENOTSUP: the driver has none; -EPERM: not the worker's thread. */
int vbn_srq_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);

/* Its queues must be gone: else it stays, and a sentence says so. The worker's thread. NULL is
 * allowed. */
void vbn_srq_destroy(struct vbn_srq *srq);

struct vbn_srq_stats {
	uint64_t posted; /* now */
	uint64_t no_buf; /* receives not posted again at once because the pool was empty */
	uint64_t limits; /* how often the limit was reached */
};

/* The owner's thread; another one reads each value of a moment. */
void vbn_srq_stats(const struct vbn_srq *srq, struct vbn_srq_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
