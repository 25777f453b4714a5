/* run.h - workers' loop, the control thread, start and stop
 *
 * Lives here: threads. May come in: base, mem. Knows ports by hooks only: a port hangs its flush,
 * its count of what is in flight and its traffic on the worker. May touch it: port, drivers (for
 * control calls), chan, net.
 *
 * Threads: a worker's thread owns the worker; the control thread runs what needs system calls; the
 * main thread waits. What crosses: control calls (a mutex and a condition, never on a fast path),
 * `stopping` (written by anyone, read by the loop once an iteration, relaxed), the stats (written
 * by the worker with plain stores, read by anyone with relaxed loads).
 */
#ifndef VBN_RUN_H
#define VBN_RUN_H

#include "base/base.h"

#include <pthread.h>
#include <signal.h>

#include <verbena/worker.h>

/* ---- the control thread ---- */

int vbn__control_start(void);
void vbn__control_stop(void);

/* Runs fn(arg) on the control thread with memory preferred on `node` (-1: anywhere), waits, returns
 * its result. From the control thread itself it is a plain call. -ESHUTDOWN: there is no control
 * thread (vbn_init() was not called). */
int vbn__control_call(int node, int (*fn)(void *arg), void *arg);

/* How often the calling thread has waited for the control thread. */
uint64_t vbn__control_waits(void);

/* Calls fn(fd, arg) on the control thread whenever fd is readable, until unwatched (which returns
 * only when fn is not running). */
int vbn__control_watch(int fd, void (*fn)(int fd, void *arg), void *arg);
void vbn__control_unwatch(int fd);

/* Runs fn on the control thread before it ends, once: for the room that keeps descriptors of its own
 * there. On the control thread. */
void vbn__control_at_stop(void (*fn)(void));

/* How often vbn_stop() has been called: who waits outside of a run ends when it changes. Any thread. */
uint32_t vbn__stops(void);

/* Pins the control thread to the lowest core it may use that is not taken; unpinned where none is
 * left, or none is taken. */
void vbn__control_keep_off(const cpu_set_t *taken);

/* A thread of the library's that from now on keeps off workers' cores with the control thread; NULL:
 * none any more. */
void vbn__control_beside(const pthread_t *thread);

/* The core it is pinned to; -1: not pinned; -ESHUTDOWN: there is none. */
int vbn__control_core(void);

/* Blocks, for the calling thread and those it starts, what is sent to a process: not what a thread
 * does to itself (SIGSEGV and its like, which emulators and sanitizers live on), nor a profiler's.
 */
void vbn__block_signals(sigset_t *before);

/* ---- a worker's hooks ---- */

/* At the end of each iteration, after the poll functions: flush. Inline cost: one indirect call a
 * hook. Removed by the same pair. */
int vbn__worker_add_flush(struct vbn_worker *worker, void (*fn)(void *arg), void *arg);

/* How many operations are in flight, asked while draining; and the worker's messages and bytes,
 * asked by vbn_worker_stats() from any thread. */
struct worker_traffic {
	uint64_t messages, bytes;
};
int vbn__worker_add_port(struct vbn_worker *worker, uint32_t (*in_flight)(void *arg),
	void (*traffic)(void *arg, struct worker_traffic *sum), void *arg);

/* What an idle worker sleeps on, of a port that was added with this arg: until something comes for it,
 * or at the most so long. False: it did not. A worker with several ports does not sleep. */
void vbn__worker_sleeps_by(
	struct vbn_worker *worker, bool (*sleep)(void *arg, uint64_t ns), void *arg);

/* How long a sleep is at the most: what a worker is not woken for, posts, the end of the run, waits so
 * long. Tests that look for a wake-up that is lost make it longer. */
extern uint64_t vbn__sleep_longest_ns;

/* Whether the worker sleeps where it is idle, what was asked for, and why. */
bool vbn__worker_sleeps(const struct vbn_worker *worker, enum vbn_switch *asked, const char **why);

/* Every hook with this arg, and every last exit function. */
void vbn__worker_remove(struct vbn_worker *worker, void *arg);

/* What tells it from every other live worker: its index, unless two have the same. */
uint32_t vbn__worker_number(const struct vbn_worker *worker);

/* One slot for the port room's own state of a worker; freed by an exit function of its own. */
void **vbn__worker_port_slot(struct vbn_worker *worker);

/* As vbn_worker_add_exit(), but run after every function added by that: what a room keeps for a
 * worker outlives what the program's own exit functions destroy. On the worker's thread. */
int vbn__worker_add_last_exit(
	struct vbn_worker *worker, void (*fn)(struct vbn_worker *worker, void *arg), void *arg);

/* Held by the worker while it changes what its traffic hooks read (a table that moves, a queue that
 * goes): they run on other threads, under this lock. Never on a fast path. */
void vbn__worker_lock_traffic(struct vbn_worker *worker);
void vbn__worker_unlock_traffic(struct vbn_worker *worker);

#endif
