/* verbena/worker.h - workers: pinned threads that run messages to completion; polling, stopping,
 * counters
 *
 * A worker's iteration: functions that other threads have posted, timers that are due, its poll
 * functions in turn, then one flush of each queue that has something staged. A worker owns its
 * queues, pools and timers; nothing of a worker may be used by another thread unless said so.
 */
#ifndef VERBENA_WORKER_H
#define VERBENA_WORKER_H

#include <stdint.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_worker;

struct vbn_run_conf {
	/* "0,2-3": one worker each, in this order; default: every allowed core but one, at least one. */
	const char *cores;

	/* Give the core away in an iteration that found nothing to do. AUTO: where workers take every
	 * core this process may use, so that nothing else could run; the modes say so. */
	enum vbn_switch idle_yield;

	/* Sleep after 50 us of idle iterations, until a peer sends, a timer is due, or 1 ms is over: so
	 * long may a post, an end of the run, or a poll function that looks elsewhere wait. ON: where
	 * all the worker's queues are of port shm and none is for datagrams, none of them waits for its
	 * peer, and the worker has no channels; else it polls on. AUTO: off. A mode of the worker says what holds. */
	enum vbn_switch idle_sleep;

	/* At a stop, how long in-flight work may take; default 500 ms. */
	uint64_t drain_ns;

	/* AUTO, ON: SIGINT and SIGTERM stop the run, and a second one does what it does to any program;
	 * OFF: they stay the program's. One that is ignored stays ignored. */
	enum vbn_switch signals;
};

struct vbn_worker_conf {
	struct vbn_num core;        /* pin to it; default: the calling thread keeps its affinity */
	enum vbn_switch idle_yield; /* as above */
	enum vbn_switch idle_sleep;
};

/* Returns how much it did; 0 makes the iteration count as idle. What is below 0 counts as 0. */
typedef int vbn_poll_fn(struct vbn_worker *worker, void *arg);

/* Starts a worker on each core, calls setup on each worker's own thread (all at the same time),
 * waits for all of them, and then runs the loops until vbn_stop(), a signal, or vbn_worker_done()
 * of every worker. It drains: poll functions go on (vbn_worker_stopping() is then true, and they
 * should start nothing new) until no worker has anything in flight and each has then found nothing
 * to do, so that what has arrived is polled too; or until drain_ns is over, and a warning says what
 * was left. When all have left their loops, each worker's exit functions run on its thread in
 * reverse order. A worker is gone when vbn_run() returns.
 *
 * setup may be NULL. The calling thread only waits. Returns 0, or
 *   the signal's number, where a signal stopped it;
 *   -errno of a set-up that failed: the others are then wound up, their exit functions run;
 *   -EINVAL: a core listed twice or that is not one; -EPERM: a core this process may not use;
 *   -EBUSY: another vbn_run() is under way; -EAGAIN: no thread could be started. */
int vbn_run(const struct vbn_run_conf *conf, int (*setup)(struct vbn_worker *worker, void *arg),
	void *arg);

/* Ends vbn_run() in order, and a vbn_session_connect() that waits. Any thread, or a signal handler.
 * Without either it does nothing. */
void vbn_stop(void);

/* This worker wants no more: when all have said so, vbn_run() stops as by vbn_stop(). The worker's
 * thread; more than once is as once. */
void vbn_worker_done(struct vbn_worker *worker);

/* True once the run is ending: start nothing new. In a set-up it tells that another worker's has
 * failed. Any thread. */
bool vbn_worker_stopping(const struct vbn_worker *worker);

/* Makes the calling thread a worker, for a loop of one's own around vbn_worker_poll(). -EALREADY:
 * it is one; -EPERM: a core this process may not use. Of its counters, busy_cycles takes in what
 * the thread does between two calls. */
int vbn_worker_attach(const struct vbn_worker_conf *conf, struct vbn_worker **worker);

/* Drains (for up to 500 ms) and ends what vbn_worker_attach() made, on the same thread, which gets
 * its affinity back. NULL is allowed. */
void vbn_worker_detach(struct vbn_worker *worker);

/* One iteration: posts, timers, poll functions, flush. Returns what they did. */
int vbn_worker_poll(struct vbn_worker *worker);

/* Around a time for which a thread that was attached stays away from vbn_worker_poll(): what other
 * threads have taken out of tables that workers read is not freed before each worker has polled or
 * is offline. In between it does nothing with the worker or what the worker owns. Nothing else
 * waits, so a short time needs neither. */
void vbn_worker_offline(struct vbn_worker *worker);
void vbn_worker_online(struct vbn_worker *worker);

/* Adds a function to the loop, or one to run at the worker's end. -EPERM: not on the worker's thread;
 * -EINVAL: no function; -ENOMEM. */
int vbn_worker_add_poll(struct vbn_worker *worker, vbn_poll_fn *fn, void *arg);
int vbn_worker_add_exit(
	struct vbn_worker *worker, void (*fn)(struct vbn_worker *worker, void *arg), void *arg);

/* From 0, in the order of the cores (an attached one has the lowest that was free); the core (-1
 * where not pinned); its NUMA node (where not pinned: of the core it was attached on). */
int vbn_worker_index(const struct vbn_worker *worker);
int vbn_worker_core(const struct vbn_worker *worker);
int vbn_worker_node(const struct vbn_worker *worker);

/* The calling thread's worker, or NULL. */
struct vbn_worker *vbn_worker_self(void);

/* A function for another thread's worker to run. The caller's memory, mostly a member of what it is
 * about, and the library's from vbn_post() until the function is called, which may free it or post
 * it again. */
struct vbn_post {
	void (*fn)(struct vbn_worker *worker, void *arg);
	void *arg;
	struct vbn_post *next; /* the library's */
};

/* Has `worker` call post->fn(worker, post->arg) on its own thread in one of its next iterations,
 * before it polls; its own worker too. Any thread; the worker must not have ended. Never fails,
 * never blocks. What the caller wrote before is seen by the function; posts of one thread to one
 * worker run in order, those of several in none. From a worker it is a store into a ring (no locked
 * instruction) that the other side is shown at the end of the iteration; what finds the ring full
 * waits and goes with a later one (the counter `posts_waited`). A run that ends first runs what its
 * workers have posted to each other; what comes after that is dropped, and a warning says so. */
void vbn_post(struct vbn_worker *worker, struct vbn_post *post);

struct vbn_worker_stats {
	uint64_t iterations, idle_iterations;
	uint64_t messages, bytes; /* received and sent by its queues */
	uint64_t busy_cycles;     /* cycles of iterations that were not idle */
	uint64_t total_cycles;    /* since the loop began */
};

/* Any thread: values of a moment. */
void vbn_worker_stats(const struct vbn_worker *worker, struct vbn_worker_stats *stats);

/* "core", "numa_node", "idle", "sleep", "control_core": requested against effective. Writes at most n and
 * returns how many there are. Any thread. */
int vbn_worker_modes(const struct vbn_worker *worker, struct vbn_mode *modes, int n);

/* The clock of timers: what it was when this iteration began, on the worker's thread in its loop;
 * elsewhere what it is now. */
uint64_t vbn_worker_cycles(const struct vbn_worker *worker);

/* Cycles per second of the counter that cycles are counted in. */
uint64_t vbn_cycles_hz(void);

/* Cores this process may use near a NUMA node, best first: the node's own, then by distance, the
 * lowest allowed core last among equals. Node -1: any, yet the first n are of one node where one has
 * so many. Writes at most n and returns how many there are. */
int vbn_cores_near(int node, int *cores, int n);

#ifdef __cplusplus
}
#endif

#endif
