/* rcu.h - tables that workers read without a lock: read-copy-update, by liburcu's QSBR
 *
 *   reader (a worker, in an iteration)      updater (mostly the control thread)
 *     table = rcu_read(&published);           rcu_publish(&published, new);
 *     … uses it, to the end of the            vbn__rcu_call(&old->later, free_table, old);
 *     iteration at most
 *
 * Each worker is a registered reader, and one whole iteration is a read-side critical section: what
 * rcu_read() gave is valid until the iteration ends and costs a plain load. The loop announces the
 * quiescent state once an iteration, after the flush; that is two loads and a compare, and fences
 * only where somebody waits for a grace period.
 *
 * A worker is offline, so that no grace period waits for it, while it waits for the control thread
 * or for other workers (start, end of set-up, end of loops); so pointers that rcu_read() gave do not
 * live across a control call. A thread that was attached counts as reading from vbn_worker_attach()
 * to vbn_worker_detach(), but for the time between vbn_worker_offline() and vbn_worker_online(): one
 * that stays away from vbn_worker_poll() without saying so holds up every grace period, and memory
 * that was retired waits. It is only ever the memory that waits: nothing in this library waits for a
 * grace period on the control thread.
 *
 * Callbacks run on liburcu's own thread, created by the first vbn__rcu_call(), in the order of the
 * calls. Updaters exclude each other by means of their own. cds_lfht works too, with the flavor
 * urcu_qsbr_flavor: its updaters must be registered readers, which the control thread is not.
 */
#ifndef VBN_RCU_H
#define VBN_RCU_H

#include "base/base.h"

#include <urcu-qsbr.h>

/* The value that rcu_read() gives from here on; what was written to it before is seen through it. */
#define rcu_publish(where, value) store_release(where, value)
#define rcu_read(where)           load_acquire(where)

/* In the object that is to go. */
struct rcu_later {
	struct rcu_head head; /* liburcu's */
	void (*fn)(void *arg);
	void *arg;
};

/* Calls fn(arg) when every reader has passed a quiescent state. Any thread; never blocks on readers.
 */
void vbn__rcu_call(struct rcu_later *later, void (*fn)(void *arg), void *arg);

/* Returns when every reader has passed a quiescent state, and when every vbn__rcu_call() before has
 * been made. Any thread; a worker is offline meanwhile. Not on the control thread: an attached worker
 * may be away for long. */
void vbn__rcu_wait(void);
void vbn__rcu_barrier(void);

/* ---- for the loop and for what blocks ---- */

/* A worker's view of itself as a reader. */
struct rcu_self {
	const unsigned long *current,
		*seen; /* grace periods: the newest, and the newest announced */
	bool ours;     /* we registered the thread, so we unregister it */
};

/* The worker's thread. A thread that the program has registered itself stays registered. */
void vbn__rcu_enter(struct rcu_self *self);
void vbn__rcu_leave(struct rcu_self *self);

/* Around what blocks; on any thread. The pair is for one that may be offline already. */
bool vbn__rcu_pause(void);
void vbn__rcu_resume(bool paused);

void vbn__rcu_quiescent(void);

/* Nothing that rcu_read() gave is used any more. */
static force_inline void rcu_quiescent(const struct rcu_self *self)
{
	if (unlikely(load_once(self->current) != load_once(self->seen)))
		vbn__rcu_quiescent();
}

#endif
