/* msgrate.h - the parts of `verbena msgrate`: options, sides, ends, the run, its report
 *
 *     run ── side (one worker) ── end (one queue, sending or receiving or both) ── its peer end,
 *                                                       of this process, or of the other one
 *
 *     msgrate.c          options and their checks
 *     msgrate_run.c      runs from start to exit status, sweeps, serving
 *     msgrate_layout.c   which worker has which ends
 *     msgrate_device.c   which port, which cores
 *     msgrate_share.c    whose cores they are, too
 *     msgrate_op.h       the operations, and what follows from each
 *     msgrate_end.c      an end: its queue, what it exports, its last look
 *     msgrate_side.c     a worker: set-up, draining, teardown
 *     msgrate_loop.c     a worker: the hot loop, the window that counts
 *     msgrate_meet.c     how workers wait for one another
 *     msgrate_peer.c     what two processes tell each other
 *     msgrate_monitor.c  the thread that tells the time
 *     msgrate_modes.c    requested against effective
 *     msgrate_latency.c  what `verbena latency` adds
 *     msgrate_page.c     --report: charts of the runs
 *     msgrate_result.c   what a run comes to: its window, losses, what each worker did
 *     msgrate_report.c   the live line, the table, JSON
 *
 * Threads: a side and its ends belong to their worker; the counts that the live line shows are read
 * by the monitor thread with relaxed loads. `meeting` is how workers wait for one another outside
 * the loop. The main thread reads everything once vbn_run() has returned.
 */
#ifndef MSGRATE_H
#define MSGRATE_H

#include "cmd.h"
#include "histogram.h"
#include "msgrate_op.h"
#include "msgrate_pattern.h"

#include <pthread.h>

#define load_once(ptr)            __atomic_load_n(ptr, __ATOMIC_RELAXED)
#define store_once(ptr, value)    __atomic_store_n(ptr, value, __ATOMIC_RELAXED)
#define load_acquire(ptr)         __atomic_load_n(ptr, __ATOMIC_ACQUIRE)
#define store_release(ptr, value) __atomic_store_n(ptr, value, __ATOMIC_RELEASE)

#define SECOND                    1000000000ll
#define RECEIVE_BURST             64

/* What the user asked for; 0 in those that were not given, until msgrate.c fills the defaults in.
 */
struct msgrate_options {
	const char *device, *cores, *json, *report, *listen, *connect;
	int64_t connection;      /* enum vbn_transport */
	int64_t op;              /* enum msg_op */
	int64_t size, last_size; /* of a sweep; the one that is run is `size` */
	int64_t queues;
	int64_t tx_depth, rx_depth, post_list, cq_mod, inline_size;
	int64_t duration, iters, warmup; /* ns, messages per queue, ns */
	int64_t rate, mtu, gid_index;
	bool bidirectional, one_worker, verify, allow_loss, keep;
	bool latency; /* one message at a time, and each is timed */
	bool aside;   /* for the report alone: not a run that was asked for */
	bool inline_given, gid_given;
};

/* What an end tells of itself once all is over. */
struct tally {
	uint64_t sent, completed, received;
	uint64_t warm; /* of sent: before the window that counts */
	uint64_t corrupt, duplicate, reordered;
	uint64_t swapped; /* of atomics: how many took effect, as their answers say */
	bool failed;
};

/* One queue. Streams go from a sending end to its peer. */
struct end {
	/* line 0: written at each burst; owner: the worker; the monitor reads the counts */
	struct vbn_queue *queue;
	uint64_t sent;      /* taken by the queue */
	uint64_t completed; /* of what is not received: by the device */
	uint64_t received;
	uint64_t receive_bursts; /* that brought something */
	uint64_t staged; /* sequence numbers given out; what is held is staged and not sent */
	uint64_t limit;  /* of staged */
	uint16_t n_held, first_held;
	bool failed, finished;
	/* line 1: the stream that comes in, with --verify */
	struct track track;
	bool sends, receives; /* never change */
	bool answers;         /* of a latency run: sends only when something has come */
	bool may_lose;        /* of a latency run: goes on where an answer does not come */
	bool gives_credit,
		is_given; /* between processes: tells the peer what it has received; is told */
	uint32_t stream, peer_stream; /* of what this end sends, and its peer */
	/* line 2 and on: read only in the loop */
	struct vbn_buf **held; /* bufs that are written and that the queue has not taken yet */
	struct end *peer;      /* NULL: in the other process */
	struct side *side;
	struct vbn_remote
		*remotes; /* by slot, with a burst's worth of them again behind the last */
	uint32_t *imms;   /* of the burst in hand */
	struct vbn_atomic *atomics;
	struct vbn_peer *datagram_peer;
	uint32_t slot_mask;
	uint64_t swapped;
	uint64_t warm;            /* of staged: when the window that counts began */
	uint64_t asked_at;        /* of a latency run: ns, when what is on its way was sent */
	uint64_t given_up;        /* of staged: lost, so not on their way to the peer */
	uint64_t looks;           /* of a latency run: for the answer that has not come */
	uint64_t shut_at;         /* what the peer had received when its window was found shut */
	uint64_t shut_since;      /* ns */
	uint64_t shut_turns;      /* the turns of the side that receives */
	uint64_t peer_received;   /* between processes, as the peer has told */
	uint64_t peer_sent;       /* the same, once it has stopped; UINT64_MAX before */
	uint64_t credited;        /* of received: what the peer has been told */
	struct vbn_export *slots; /* what the peer writes to or reads from */
	struct vbn_address address, peer_address;
	struct vbn_handle handle, peer_handle; /* of the slots */
	struct vbn_queue_stats stats;          /* at the end */
	struct tally tally, peer_tally;
	char error[640]; /* why it failed; as long as the library's */
} cache_aligned;
static_assert(offsetof(struct end, track) == 64, "what each burst writes is one line");

static force_inline uint64_t end_received_by_peer(const struct end *end)
{
	return end->peer ? load_once(&end->peer->received) : load_once(&end->peer_received);
}

static force_inline uint64_t end_sent_by_peer(const struct end *end)
{
	return end->peer ? load_once(&end->peer->sent) : load_once(&end->peer_sent);
}

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
	uint64_t turns; /* of its loop, so far; others read it */
	struct vbn_pool *tx_pool, *rx_pool;
	struct vbn_zone *zone;
	struct histogram *times; /* of a latency run: of this side's round trips */
	uint64_t first_ns;       /* the first message that came */
	uint64_t last_ns;        /* the last one, of those that came while draining */
	struct mark start, stop; /* the window that counts */
	int64_t window;          /* messages on their way to an end, at most */
	int64_t least_room;      /* of that, to begin a burst */
	uint64_t credit_step;    /* received messages to a credit */
	uint64_t pace_start;     /* --rate: ns at which nothing had been sent yet */
	uint64_t pace_sent;      /* since */
	double pace_per_ns;
	int index, core, node;
	bool quiet; /* it sends no more */
	bool over;  /* the exit function has run */
} cache_aligned;

/* Messages go in the first two. In the last one nothing new is sent: what is on its way comes in
 * before the run is stopped. */
enum phase { PHASE_WARM, PHASE_COUNT, PHASE_HOLD, PHASE_END };

/* PEERED and PARTED are the monitor's: the other process has told where its ends are, and what came
 * of them. */
enum stage {
	STAGE_ADDRESS,
	STAGE_PEERED,
	STAGE_CONNECTED,
	STAGE_STOPPED,
	STAGE_DRAINED,
	STAGE_PARTED,
	STAGE_SCANNED,
	N_STAGES
};

/* min p50 p90 p99 p99.9 p99.99 p99.999 max */
#define N_PERCENTILES 8

/* The other process of a run. */
struct other {
	struct vbn_session *session;
	struct vbn_session_listener *listener;
	char *buffer; /* of what comes in */
	bool leads;   /* this process decides the parameters, and when the run ends */
	bool ended;   /* the other one sends no more */
	bool ended_early;
	bool told; /* what it has counted */
	bool lost; /* and why: */
	char why[512];
	bool loss_said;
	int link;   /* of its port: enum vbn_link */
	int n_ends; /* of its */
	/* what it has counted */
	uint64_t messages, window_ns;
	double first_message_seconds;
	uint64_t percentiles[N_PERCENTILES]; /* of a latency run, of the one that leads */
};

/* What all workers, or none, get past; outside the loop only. */
struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t change;
	int arrived[N_STAGES];
	bool given_up; /* a side's set-up has failed: nobody waits any more */
	int error;     /* the first one's */
};

/* Counts of the sides over time: rows of ns and a count for each side. */
struct samples {
	uint64_t *rows;
	size_t n_rows, room;
	size_t width; /* of a row */
};

struct run {
	struct msgrate_options conf;
	uint64_t given; /* which options */
	const char *requested_device;
	char chosen[256]; /* which device, and why, where the user left it open */
	struct vbn_port *port;
	struct vbn_port_info port_info;
	uint32_t credit_len; /* of a message that is one; 0: they are immediate data */
	int cores[MAX_CORES];
	int n_cores;
	struct side *sides;
	int n_sides;
	struct end *ends;
	int n_ends;
	int n_senders;     /* ends that send */
	uint64_t began_ns; /* where the first message is counted from: of the first run the start of
				the command, of a listener's that it was asked for, else its own */
	int n_unfinished;  /* of them, between processes: written by all sides */
	struct other *other; /* NULL: both ends are in this process */
	int n_made;          /* ends whose queue there is; written by all sides */
	uint64_t zone_bytes; /* of their zones, which take their time; written by all sides */
	int phase;           /* enum phase; written by the monitor */
	struct meeting meeting;
	/* the monitor */
	pthread_t monitor;
	pthread_mutex_t lock;
	pthread_cond_t over_change;
	bool over;
	struct samples *samples; /* NULL: there is no report to draw them */
	/* requested against effective */
	struct mode_list modes;
};

/* All runs of this command. */
struct runs {
	struct run run; /* the one that is under way */
	struct sink sink;
	json_t *results;
	struct sink report;
	struct page *page; /* NULL: there is no report */
	int n;
	int n_begun;
};

/* Whether messages count where they come: those that take receives, and writes one at a time, which
 * are looked for. */
static inline bool counts_where_it_comes(const struct run *run)
{
	return op_is_received((enum msg_op)run->conf.op) ||
		(run->conf.latency && run->conf.op == OP_WRITE);
}

/* What the user calls it. */
static inline const char *tool_name(const struct run *run)
{
	return run->conf.latency ? "latency" : "msgrate";
}

/* ---- msgrate_page.c: --report ---- */

/* How often makes a line of it. */
uint64_t samples_tick(const struct run *run);

/* By the monitor: the counts of this moment. */
void samples_take(struct run *run);

struct page *page_create(void);
void page_destroy(struct page *page);
/* One that is over; takes its samples and a reference to its result. */
void page_add(struct page *page, const struct run *run, json_t *result);
/* Returns errno's value, or 0. */
int page_write(FILE *file, const struct page *page);

/* ---- msgrate_latency.c ---- */

/* All sides' times. */
void times_sum(const struct run *run, struct histogram *sum);
void percentiles_take(const struct run *run, uint64_t percentiles[N_PERCENTILES]);
void percentiles_print(const struct run *run, const uint64_t percentiles[N_PERCENTILES]);
json_t *percentiles_json(const uint64_t percentiles[N_PERCENTILES]);

/* ---- msgrate_run.c: an exit status ---- */

int runs_execute(struct run *all);

/* ---- msgrate_layout.c ---- */

/* 0 or an exit status. */
int sides_make(struct run *run);
void sides_free(struct run *run);

/* ---- msgrate_device.c: 0 or an exit status ---- */

/* Goes under vhca where the user asks for it; to be called before the library is started. */
int device_before_library(struct run *run);

/* "mlx5_0", or "mlx5_0, emulated (vhca)". */
const char *device_text(const struct run *run, char text[64]);

/* Opens the port that the user named, or the best; goes under vhca where there is none. */
int device_open(struct run *run);

/* Whether the port has what the run takes; how credits go. */
int device_check(struct run *run);

/* The list of --cores, checked for its form and for what this process may use. */
int cores_parse(struct run *run);

/* Where the user named none: near the device. */
int cores_choose(struct run *run);

/* ---- msgrate_share.c ---- */

/* Where another process's pinned thread is busy on a worker's core: says so. */
void cores_say_shared(const struct run *run);

/* ---- msgrate_side.c ---- */

/* The set-up function for vbn_run(); arg is the run. */
int side_setup(struct vbn_worker *worker, void *arg);

/* ---- msgrate_loop.c: on the worker's thread ---- */

/* The poll function for what the user asked for; its argument is the side. */
vbn_poll_fn *side_loop(const struct run *run);

/* One burst of each end, after the loop. Returns how many messages came. */
int side_receive(struct side *side);
void mark_take(struct side *side, struct mark *mark);

/* ---- msgrate_end.c: on the worker's thread; 0 or -errno ---- */

uint32_t end_tx_depth(const struct run *run, const struct end *end);
uint32_t end_rx_depth(const struct run *run, const struct end *end);
int end_create(struct end *end);
/* With the addresses of both ends known. */
int end_connect(struct end *end);
/* Fills its tally, and then, with the peer's, what a last look at the memory shows. */
void end_note(struct end *end);
void end_scan(struct end *end);
/* Half made is allowed. */
void end_destroy(struct end *end);

/* Of a target's memory. */
static force_inline size_t slot_size(size_t size)
{
	return size ? (size + 63) & ~(size_t)63 : 64;
}

/* ---- msgrate_meet.c ---- */

void arrive_all(struct run *run, enum stage stage);
void arrive(struct run *run, enum stage stage);

/* All have arrived; what they wrote before is seen after. */
bool all_arrived(const struct run *run, enum stage stage);

/* Waits until all have arrived at the stage. -ECANCELED: someone has given up; -ETIMEDOUT. */
int meet(struct run *run, enum stage stage, uint64_t timeout_ns);
void give_up(struct run *run, int err);

/* ---- msgrate_peer.c: where nothing else is said 0, or -errno with other->why ---- */

/* 0 or an exit status. */
int other_connect(struct other *other, const char *address);
int other_listen(struct other *other, const char *address);
int other_wait(struct other *other);
void other_part(struct other *other, const char *reason);

/* The parameters: the one that leads offers them, the other one takes and then accepts them. */
int other_offer(struct run *run);
int other_take(struct run *run);
int other_accept(struct run *run);

int other_swap_ends(struct run *run);
int other_ready(struct run *run);
/* Whether it has ended, or is lost. */
bool other_poll(struct run *run, uint64_t timeout_ns);
int other_tell_end(struct run *run);
/* Why it is lost, once; nothing where it is not, or where the user has ended the run. */
void other_say_loss(struct other *other);
/* It has said nothing for too long, and is given up. */
void other_is_silent(struct run *run);
/* "tally", and after the last look "final". */
int other_swap_tallies(struct run *run, const char *say);

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

/* ---- msgrate_result.c ---- */

/* What this process has counted. */
struct window {
	uint64_t messages, ns;
	double first_message_seconds; /* below 0: none came */
};

void window_take(const struct run *run, struct window *window);

/* What a run comes to. */
struct result {
	bool whole;   /* both ends have told what they counted; else what was lost is not known */
	bool counted; /* the end that counts the messages has; else how many came is not known */
	double seconds;
	uint64_t messages, sent, received, lost, corrupt, duplicate, reordered;
	int failed_queues;
	double msg_rate, gbit_rate, cycles_per_message, burst;
	double first_message_seconds; /* below 0: none came */
	uint64_t max_rss_bytes;
	uint64_t percentiles[N_PERCENTILES]; /* of a latency run: ns */
};

void result_take(struct run *run, struct result *result);

/* What one worker did, in the run's window. */
struct side_result {
	uint64_t sent, received;
	double msg_rate, busy_share, cycles_per_message, burst;
};

void side_result(
	const struct run *run, const struct side *side, double seconds, struct side_result *result);

static inline double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* ---- msgrate_report.c ---- */

/* What the live line shows. */
struct progress {
	uint64_t ns, messages, busy_cycles, total_cycles;
};

void progress_take(struct run *run, struct progress *progress);
void progress_print(const struct run *run, const struct progress *start,
	const struct progress *before, const struct progress *now);

/* Adds the mode that only a run can tell, and warns where its window is not what was asked for. */
void result_notes(struct run *run, const struct result *result);

void result_print(const struct run *run, const struct result *result);
json_t *result_json(const struct run *run, const struct result *result);

#endif
