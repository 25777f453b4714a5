/* msgrate.h - the parts of `verbena msgrate`: options, sides, ends, the run, its report
 *
 *     run ── side (one worker) ── end (one queue, sending or receiving or both) ── its peer end
 *
 *     msgrate.c          options, checks, what they come to, the run from start to exit status
 *     msgrate_device.c   which port, which cores
 *     msgrate_side.c     a worker: set-up, draining, teardown
 *     msgrate_loop.c     a worker: the hot loop, the window that counts
 *     msgrate_meet.c     how workers wait for one another
 *     msgrate_monitor.c  the thread that tells the time
 *     msgrate_modes.c    requested against effective
 *     msgrate_report.c   the live line, the table, JSON
 *
 * Threads: a side and its ends belong to their worker; the counts that the live line shows are read
 * by the monitor thread with relaxed loads. `meeting` is how workers wait for one another outside
 * the loop. The main thread reads everything once vbn_run() has returned.
 */
#ifndef MSGRATE_H
#define MSGRATE_H

#include "cmd.h"
#include "msgrate_pattern.h"

#include <pthread.h>

#define load_once(ptr)            __atomic_load_n(ptr, __ATOMIC_RELAXED)
#define store_once(ptr, value)    __atomic_store_n(ptr, value, __ATOMIC_RELAXED)
#define load_acquire(ptr)         __atomic_load_n(ptr, __ATOMIC_ACQUIRE)
#define store_release(ptr, value) __atomic_store_n(ptr, value, __ATOMIC_RELEASE)

#define SECOND                    1000000000ll
#define RECEIVE_BURST             64
#define MAX_CORES                 1024

enum msg_op { OP_SEND, OP_WRITE };

/* What the user asked for; 0 in those that were not given, until msgrate.c fills the defaults in.
 */
struct msgrate_options {
	const char *device, *cores, *json;
	int64_t connection, op;
	int64_t size, queues;
	int64_t tx_depth, rx_depth, post_list, cq_mod, inline_size;
	int64_t duration, iters, warmup; /* ns, messages per queue, ns */
	int64_t rate, mtu, gid_index;
	bool bidirectional, one_worker, verify;
	bool inline_given, gid_given;
};

/* One queue. Streams go from a sending end to its peer. */
struct end {
	/* line 0: written at each burst; owner: the worker; the monitor reads the counts */
	struct vbn_queue *queue;
	uint64_t sent;      /* taken by the queue */
	uint64_t completed; /* of writes: by the device */
	uint64_t received;
	uint64_t receive_bursts; /* that brought something */
	uint64_t staged; /* sequence numbers given out; what is held is staged and not sent */
	uint64_t limit;  /* of staged */
	uint16_t n_held, first_held;
	bool failed, finished;
	/* line 1: the stream that comes in, with --verify */
	struct track track;
	bool sends, receives; /* never change */
	uint32_t stream;      /* of what this end sends */
	/* line 2 and on: read only in the loop */
	struct vbn_buf **held; /* bufs that are written and that the queue has not taken yet */
	struct end *peer;
	struct side *side;
	struct vbn_remote *remotes; /* of writes: by slot, with a burst's worth of them again behind
				       the last */
	uint32_t slot_mask;
	uint64_t warm;            /* of staged: when the window that counts began */
	uint64_t given_up;        /* of staged: lost, so not on their way to the peer */
	uint64_t shut_at;         /* what the peer had received when its window was found shut */
	uint64_t shut_since;      /* ns */
	struct vbn_export *slots; /* of a receiving end of writes: what the peer writes to */
	struct vbn_address address;
	struct vbn_queue_stats stats; /* at the end */
	char error[256];              /* why it failed */
} cache_aligned;
static_assert(offsetof(struct end, track) == 64, "what each burst writes is one line");

/* A side's counts at one moment. */
struct mark {
	uint64_t ns;
	uint64_t staged, sent, received;
	uint64_t good; /* that came, whole and for the first time */
	uint64_t busy_cycles, total_cycles;
};

/* One worker's part. */
struct side {
	struct run *run;
	struct vbn_worker *worker; /* NULL before set-up and after the end; the monitor looks with
				      run->lock held */
	struct end *ends;
	int n_ends;
	int unfinished; /* sending ends with something left to send */
	int phase;      /* the run's, as this side has seen it */
	struct vbn_pool *tx_pool, *rx_pool;
	struct vbn_zone *zone;
	uint64_t first_ns;       /* the first message that came */
	uint64_t last_ns;        /* the last one, of those that came while draining */
	struct mark start, stop; /* the window that counts */
	int64_t least_room;      /* of the peer's receives, to begin a burst */
	uint64_t pace_start;     /* --rate: ns at which nothing had been sent yet */
	uint64_t pace_sent;      /* since */
	double pace_per_ns;
	int index, core, node;
	bool over; /* the exit function has run */
} cache_aligned;

/* In the last one nothing new is sent: what is on its way comes in before the run is stopped. */
enum phase { PHASE_NONE, PHASE_WARM, PHASE_COUNT, PHASE_END };

enum stage { STAGE_ADDRESS, STAGE_CONNECTED, STAGE_STOPPED, STAGE_DRAINED, N_STAGES };

/* What all workers, or none, get past; outside the loop only. */
struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t change;
	int arrived[N_STAGES];
	bool given_up; /* a side's set-up has failed: nobody waits any more */
	int error;     /* the first one's */
};

struct run {
	struct msgrate_options conf;
	uint64_t given; /* which options */
	const char *requested_device;
	char chosen[256]; /* which device, and why, where the user left it open */
	struct vbn_port *port;
	struct vbn_port_info port_info;
	int cores[MAX_CORES];
	int n_cores;
	struct side *sides;
	int n_sides;
	struct end *ends;
	int n_ends;
	int n_senders; /* ends that send */
	int n_made;    /* ends whose queue there is; written by all sides */
	int phase;     /* enum phase; written by the monitor */
	struct meeting meeting;
	/* the monitor */
	pthread_t monitor;
	pthread_mutex_t lock;
	pthread_cond_t over_change;
	bool over;
	/* requested against effective */
	pthread_mutex_t modes_lock;
	struct vbn_mode *modes;
	int n_modes;
};

/* ---- msgrate_device.c: 0 or an exit status ---- */

/* Goes under vhca where the user asks for it; to be called before the library is started. */
int device_before_library(struct run *run);

/* "mlx5_0", or "mlx5_0, emulated (vhca)". */
const char *device_text(const struct run *run, char text[64]);

/* Opens the port that the user named, or the best; goes under vhca where there is none. */
int device_open(struct run *run);

/* The list of --cores, checked for its form and for what this process may use. */
int cores_parse(struct run *run);

/* Where the user named none: near the device. */
int cores_choose(struct run *run);

/* ---- msgrate_side.c ---- */

/* The set-up function for vbn_run(); arg is the run. */
int side_setup(struct vbn_worker *worker, void *arg);

/* ---- msgrate_loop.c: on the worker's thread ---- */

/* The poll function for what the user asked for; its argument is the side. */
vbn_poll_fn *side_loop(const struct run *run);

/* One burst, after the loop. Returns how many messages came. */
int end_receive(struct end *end);
void mark_take(struct side *side, struct mark *mark);

/* ---- msgrate_meet.c ---- */

void arrive(struct run *run, enum stage stage);

/* All have arrived; what they wrote before is seen after. */
bool all_arrived(const struct run *run, enum stage stage);

/* Waits until all have arrived at the stage. -ECANCELED: someone has given up; -ETIMEDOUT. */
int meet(struct run *run, enum stage stage, uint64_t timeout_ns);
void give_up(struct run *run, int err);

/* ---- msgrate_monitor.c ---- */

int monitor_start(struct run *run);
void monitor_stop(struct run *run);

/* ---- msgrate_modes.c ---- */

/* Whether the user gave this option. */
bool asked(const struct run *run, const char *option);
void cores_text(const struct run *run, char *text, size_t size);
/* given 0: the user left it open. */
void note_number(
	struct run *run, const char *name, int64_t given, int64_t effective, const char *why);
/* What this command decides, and the port. */
void note_options(struct run *run);

/* Adds a line to the block of modes: `who` tells lines of one name apart, where they differ. */
void modes_add(struct run *run, const struct vbn_mode *modes, int n, const char *who);
void mode_add(struct run *run, const char *name, const char *requested, const char *effective,
	const char *why);
void modes_print(const struct run *run);

/* ---- msgrate_report.c ---- */

/* What the live line shows. */
struct progress {
	uint64_t ns, messages, busy_cycles, total_cycles;
};

void progress_take(struct run *run, struct progress *progress);
void progress_print(const struct run *run, const struct progress *start,
	const struct progress *before, const struct progress *now);

/* What a run comes to. */
struct result {
	double seconds;
	uint64_t messages, sent, received, lost, corrupt, duplicate, reordered;
	int failed_queues;
	double msg_rate, gbit_rate, cycles_per_message, burst;
	double first_message_seconds; /* below 0: none came */
	uint64_t max_rss_bytes;
};

/* Adds the mode that only a run can tell, and warns where its window is not what was asked for. */
void result_notes(struct run *run, const struct result *result);

void result_take(const struct run *run, struct result *result);
void result_print(const struct run *run, const struct result *result);
json_t *result_json(const struct run *run, const struct result *result);

#endif
