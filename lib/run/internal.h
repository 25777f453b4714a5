/* internal.h - what the files of this room share: the worker's layout, the run it belongs to, drain
 *
 * A run is the set of workers that stop together: those of vbn_run(), or one worker that was
 * attached.
 */
#ifndef VBN_RUN_INTERNAL_H
#define VBN_RUN_INTERNAL_H

#include "mem/mem.h"
#include "run/rcu.h"
#include "run/run.h"
#include "run/wheel.h"

#include <pthread.h>

struct poll_hook {
	vbn_poll_fn *fn;
	void *arg;
};

struct flush_hook {
	void (*fn)(void *arg);
	void *arg;
};

struct exit_hook {
	void (*fn)(struct vbn_worker *worker, void *arg);
	void *arg;
};

struct port_hook {
	uint32_t (*in_flight)(void *arg);
	void (*traffic)(void *arg, struct worker_traffic *sum);
	bool (*sleep)(void *arg, uint64_t ns); /* NULL: it cannot */
	void *arg;
};

/* A counter set of kind "worker": all uint64_t, in the order of the table of names in worker.c. */
struct loop_stats {
	uint64_t iterations, idle_iterations, busy_cycles, total_cycles;
};

struct run {
	/* line 0: read by every worker in every iteration, written when the run ends */
	uint32_t stopping; /* anyone, once; relaxed */
	uint32_t over;     /* the first worker, after the drain; release */
	int signal;        /* the one that stopped it; written by its handler before `stopping` */
	/* line 1: start and end */
	int n_workers cache_aligned;
	int n_done;                  /* workers that want no more; atomic */
	struct vbn_worker **workers; /* complete before any of them loops */
	uint64_t drain_ns, deadline_ns;
};
static_assert(offsetof(struct run, n_workers) == CACHE_LINE,
	"nothing written shares the line of `stopping`");

struct vbn_worker {
	/* line 0: written by every iteration; owner: the worker's thread, others read the stats
	 * relaxed */
	struct loop_stats stats;
	uint64_t last_cycles; /* the clock at the end of the last iteration */
	struct poll_hook *polls;
	struct flush_hook *flushes;
	uint32_t n_polls, n_flushes;
	/* line 1: read by every iteration, written before the loop */
	struct run *run;
	struct lane_end *home, *posts; /* bufs that go home, functions to run: from and to others */
	struct rcu_self rcu;
	bool idles;   /* an idle iteration does something: yields, or sleeps */
	bool looping; /* in its own loop, so that last_cycles is of now */
	bool attached;
	enum vbn_switch idle_asked;
	void *port_slot;
	/* line 2: written by the worker while it drains, read by the run's first worker */
	struct {
		uint64_t seq;        /* iterations of the drain; release, the others before it */
		uint64_t calm_since; /* the first of the calm ones that led to seq; CALM_NEVER: seq
					was not */
		uint32_t in_flight;
		uint64_t noted_seq; /* the first worker's: seq when the wave began */
	} drain cache_aligned;
	/* line 3 and on: not on any fast path */
	pthread_mutex_t ports_lock
		cache_aligned; /* the worker changes ports, vbn_worker_stats() reads them */
	struct port_hook *ports;
	uint32_t n_ports;
	struct worker_traffic gone; /* of ports that were removed; under ports_lock */
	int index, core, node;
	int number; /* the index, where no other live one has it: for who looks from outside */
	int n_busy, n_allowed; /* what AUTO decided on: workers in the process, CPUs it may use */
	const char *why_core, *why_sleep;
	enum vbn_switch sleep_asked;
	bool yields, sleeps;
	uint64_t idle_since, busy_seen; /* cycles; stats.busy_cycles then */
	uint64_t n_sleeps;              /* counter */
	bool done;
	struct exit_hook *exits, *last_exits;
	uint32_t n_exits, n_last_exits;
	struct counter_set counters, home_counters, post_counters, timer_counters, sleep_counters;
	cpu_set_t affinity_before; /* of an attached thread that was pinned */
	struct vbn_worker *next;   /* in the list of live workers */
	/* its first line is read by every iteration */
	uint64_t cycles_per_ns; /* 32 bits of it behind the point */
	struct wheel wheel cache_aligned;
};
static_assert(offsetof(struct vbn_worker, run) == CACHE_LINE, "what an iteration writes is line 0");
static_assert(
	offsetof(struct vbn_worker, drain) == 2 * CACHE_LINE, "what an iteration reads is line 1");
static_assert(
	offsetof(struct vbn_worker, ports_lock) == 3 * CACHE_LINE, "drain has a line of its own");

#define CALM_NEVER       UINT64_MAX
#define DRAIN_DEFAULT_NS (500ull * 1000 * 1000)

/* The calling thread's worker, NULL where it is none. */
extern thread_local_near struct vbn_worker *vbn__self;

/* ---- post.c, timer.c ---- */

/* On the worker's thread: 0, -ENOMEM, -ENOSPC. */
int vbn__posts_open(struct vbn_worker *worker);
void vbn__posts_close(struct vbn_worker *worker);

/* Runs what has been posted: how many. */
int vbn__posts_run(struct vbn_worker *worker);

void vbn__timers_init(struct vbn_worker *worker);

/* ---- worker.c ---- */

/* What a new worker is made from. The core is pinned already. */
struct worker_plan {
	struct run *run;
	const struct topo *topo;
	int index;     /* -1: the lowest that no live worker has */
	int n_workers; /* of its run */
	int core;      /* -1: not pinned */
	const char *why_core;
	enum vbn_switch idle_yield, idle_sleep;
	bool attached;
};

/* On the worker's own thread, so that its memory is of its node; makes it vbn_worker_self().
 * -ENOMEM. */
int vbn__worker_create(const struct worker_plan *plan, struct vbn_worker **worker);

/* ---- idle.c ---- */

/* What the worker does in idle iterations; it has been made. */
void vbn__idle_init(struct vbn_worker *worker, const struct worker_plan *plan);
/* An idle iteration of one that has idles set. */
void vbn__idle(struct vbn_worker *worker);
void vbn__idle_modes(const struct vbn_worker *worker, struct mode_report *report);

/* ---- worker.c ---- */

/* One iteration, as vbn_worker_poll(), which is a call through the shared object's table. */
int vbn__worker_iterate(struct vbn_worker *worker);

/* The exit functions, last added first; then no thread is this worker any more. The worker's
 * thread. */
void vbn__worker_exit(struct vbn_worker *worker);

/* Any thread, when the worker's own has left it. NULL is allowed. */
void vbn__worker_destroy(struct vbn_worker *worker);

/* Pins the calling thread. 0 or -errno with the sentence. */
int vbn__worker_pin(int core, const struct topo *topo);

/* ---- drain.c ---- */

/* Iterates until the whole run has drained or its time is over. The worker's thread, once
 * run->stopping is set. */
void vbn__worker_drain(struct vbn_worker *worker);

#endif
