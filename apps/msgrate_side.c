/* msgrate_side.c - one worker of a run: its set-up, the hot loop, draining, teardown
 *
 * The window that counts is each side's own: the counts and the clock are read together by the
 * worker, between two bursts, when it sees the monitor's phase change and when it sees that the run
 * is stopping. Losses are not windowed: they are what was sent in the whole run, warm-up and drain
 * included, less what came.
 */
#include "msgrate.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define SECOND        1000000000ull
#define SETUP_TIMEOUT (20 * SECOND)
#define SLICE         (SECOND / 50) /* between looks at whether the run still goes on */
/* A drain is over when nothing came for so long; who has sent a signal waits no second for it. */
#define QUIET         SECOND
#define QUIET_HASTY   (SECOND / 10)
#define LATE          (SECOND / 100) /* what has not come by then when all else has is lost */
#define MIN_DEPTH     16             /* of the ring that a one-way end does not use */

/* ---- meeting ---- */

void give_up(struct run *run, int err)
{
	struct meeting *meeting = &run->meeting;

	pthread_mutex_lock(&meeting->lock);
	if (!meeting->given_up)
		meeting->error = err;
	meeting->given_up = true;
	pthread_cond_broadcast(&meeting->change);
	pthread_mutex_unlock(&meeting->lock);
}

static void arrive(struct run *run, enum stage stage)
{
	struct meeting *meeting = &run->meeting;

	pthread_mutex_lock(&meeting->lock);
	store_release(&meeting->arrived[stage], meeting->arrived[stage] + 1);
	pthread_cond_broadcast(&meeting->change);
	pthread_mutex_unlock(&meeting->lock);
}

/* All have arrived; what they wrote before is seen after. */
static bool all_arrived(const struct run *run, enum stage stage)
{
	return load_acquire(&run->meeting.arrived[stage]) == run->n_sides;
}

static struct timespec deadline_in(uint64_t ns)
{
	uint64_t at = now_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / SECOND), .tv_nsec = (long)(at % SECOND)};
}

int meet(struct run *run, enum stage stage, uint64_t timeout_ns)
{
	struct vbn_worker *worker = vbn_worker_self();
	struct meeting *meeting = &run->meeting;
	uint64_t end = now_ns() + timeout_ns;
	bool stopping = false;
	int err = 0;

	pthread_mutex_lock(&meeting->lock);
	while (meeting->arrived[stage] < run->n_sides && !meeting->given_up && !err) {
		struct timespec deadline = deadline_in(SLICE);

		pthread_cond_timedwait(&meeting->change, &meeting->lock, &deadline);
		/* A worker that could not even begin its set-up stops the run, and never comes
		 * here. */
		if (worker && !stopping && vbn_worker_stopping(worker)) {
			stopping = true;
			end = end < now_ns() + SECOND / 4 ? end : now_ns() + SECOND / 4;
		}
		if (now_ns() >= end)
			err = -ETIMEDOUT;
	}
	if (meeting->arrived[stage] == run->n_sides)
		err = 0; /* whatever came of it later */
	else if (meeting->given_up)
		err = -ECANCELED;
	pthread_mutex_unlock(&meeting->lock);
	return err;
}

/* ---- marks ---- */

static uint64_t good_messages(const struct run *run, const struct end *end)
{
	if (run->conf.op == OP_WRITE)
		return end->completed;
	return end->received - end->track.corrupt - end->track.duplicate;
}

static void take_mark(struct side *side, struct mark *mark)
{
	struct vbn_worker_stats stats;

	vbn_worker_stats(side->worker, &stats);
	*mark = (struct mark){.ns = now_ns(),
		.busy_cycles = stats.busy_cycles,
		.total_cycles = stats.total_cycles};
	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		mark->staged += end->staged;
		mark->sent += end->sent;
		mark->received += end->received;
		mark->good += good_messages(side->run, end);
	}
}

static void side_is_done(struct side *side)
{
	if (side->unfinished > 0 && !--side->unfinished)
		vbn_worker_done(side->worker);
}

/* The monitor has gone on to another phase. A run that is stopped while it warms up counts from its
 * beginning. */
static void __attribute__((cold, noinline)) enter_phase(struct side *side, int phase)
{
	const struct msgrate_options *conf = &side->run->conf;

	if (side->phase == PHASE_NONE && !side->unfinished)
		vbn_worker_done(
			side->worker); /* it only receives: when to stop is the senders' matter */
	side->phase = phase;
	if (phase == PHASE_END)
		return;
	take_mark(side, &side->start);
	for (int i = 0; i < side->n_ends && phase == PHASE_COUNT; i++) {
		struct end *end = &side->ends[i];

		end->warm = end->staged;
		if (conf->iters)
			end->limit = end->staged + (uint64_t)conf->iters;
	}
}

static void __attribute__((cold, noinline)) end_failed(struct end *end)
{
	if (end->failed)
		return;
	end->failed = true;
	if (end->sends && !end->finished)
		side_is_done(end->side);
}

/* ---- the hot loop ---- */

static force_inline void count_first(struct side *side)
{
	if (unlikely(!side->first_ns))
		side->first_ns = now_ns();
}

/* Receives a burst; for an end that only sends it reaps what has completed. */
static force_inline int end_receive(struct side *side, struct end *end, const bool verify)
{
	size_t size = (size_t)side->run->conf.size;
	struct vbn_buf *bufs[RECEIVE_BURST];
	int n = vbn_recv(end->queue, bufs, RECEIVE_BURST);

	if (n <= 0) {
		if (unlikely(n < 0))
			end_failed(end);
		return 0;
	}
	for (int i = 0; verify && i < n; i++)
		track_message(&end->track, bufs[i]->data, bufs[i]->len, size, end->peer->stream);
	vbn_buf_free(bufs, n);
	store_once(&end->received, end->received + (uint64_t)n);
	end->receive_bursts++;
	count_first(side);
	return n;
}

/* Writes the next burst of messages into bufs of the pool. Returns how many. */
static force_inline uint16_t end_stage(
	struct side *side, struct end *end, uint64_t room, const bool verify)
{
	const struct msgrate_options *conf = &side->run->conf;
	uint64_t left = end->limit - end->staged, burst = (uint64_t)conf->post_list;
	uint16_t n;

	burst = burst < left ? burst : left;
	n = (uint16_t)(burst < room ? burst : room);
	if (unlikely(!n) || vbn_buf_alloc(side->tx_pool, end->held, n) < 0)
		return 0;
	for (uint16_t i = 0; i < n; i++) {
		end->held[i]->len = (uint32_t)conf->size;
		if (verify)
			pattern_fill(end->held[i]->data, (size_t)conf->size, end->staged + i,
				end->stream);
	}
	end->staged += n;
	end->first_held = 0;
	return n;
}

/* All of --iters is sent; it is finished once the device says that it is done, too. */
static void __attribute__((cold, noinline)) end_finish(struct end *end)
{
	if (end->finished || vbn_queue_outstanding(end->queue))
		return;
	end->finished = true;
	side_is_done(end->side);
}

/* Stages a burst and rings its doorbell. What the queue does not take is held for the next time. */
static force_inline int end_send(
	struct side *side, struct end *end, uint64_t room, const enum msg_op op, const bool verify)
{
	struct vbn_buf **bufs;
	int n;

	if (!end->n_held)
		end->n_held = end_stage(side, end, room, verify);
	if (unlikely(!end->n_held)) {
		if (end->staged == end->limit)
			end_finish(end);
		return 0;
	}
	bufs = end->held + end->first_held;
	if (op == OP_WRITE)
		n = vbn_write(
			end->queue, bufs, end->remotes + (end->sent & end->slot_mask), end->n_held);
	else
		n = vbn_send(end->queue, bufs, end->n_held);
	if (n <= 0) {
		if (unlikely(n < 0))
			end_failed(end);
		return 0;
	}
	vbn_flush(end->queue);
	end->n_held = (uint16_t)(end->n_held - n);
	end->first_held = (uint16_t)(end->first_held + n);
	store_once(&end->sent, end->sent + (uint64_t)n);
	return n;
}

static force_inline void end_count_writes(struct side *side, struct end *end)
{
	uint64_t completed;

	if (unlikely(end->failed))
		return;
	completed = end->sent - vbn_queue_outstanding(end->queue);
	if (completed != end->completed) {
		store_once(&end->completed, completed);
		count_first(side);
	}
}

/* --rate: how many messages may go now. What could not go in time is not made up for, but for a
 * millisecond's worth, or a burst where that is within a hundredth of a second: a worker is not
 * always there at the right moment. */
static uint64_t pace_room(struct side *side)
{
	uint64_t now = now_ns();
	double due = (double)(now - side->pace_start) * side->pace_per_ns - (double)side->pace_sent;
	double burst = (double)side->run->conf.post_list, in_10_ms = side->pace_per_ns * 1e7;
	double most = side->pace_per_ns * 1e6;

	burst = burst < in_10_ms ? burst : in_10_ms;
	most = most > burst ? most : burst;
	if (most < 1)
		most = 1;
	if (due > most) {
		side->pace_start = now - (uint64_t)(most / side->pace_per_ns);
		side->pace_sent = 0;
		due = most;
	}
	return due > 0 ? (uint64_t)due : 0;
}

/* The window to the peer is shut. What is lost would keep it shut for ever: where the device is
 * done with all that was sent and still nothing comes, it is not counted as on its way any more. */
static void __attribute__((cold, noinline)) wait_for_window(struct end *end, uint64_t received)
{
	uint64_t now = now_ns();

	if (received != end->shut_at || end->n_held || vbn_queue_outstanding(end->queue)) {
		end->shut_at = received;
		end->shut_since = now;
	} else if (now - end->shut_since > LATE) {
		end->given_up = end->staged - received;
	}
}

/* How many messages the peer has receives for: at least a good part of a burst, or none. A sender
 * that goes on regardless makes its queue wait for the receiver by RNR timers, which is slower. */
static force_inline uint64_t receive_room(const struct side *side, struct end *end)
{
	uint64_t received = load_once(&end->peer->received);
	int64_t on_the_way = (int64_t)(end->staged - end->given_up - received);
	int64_t room = side->run->conf.rx_depth - on_the_way;

	if (likely(room >= side->least_room))
		return (uint64_t)room;
	wait_for_window(end, received);
	return 0;
}

static force_inline uint64_t send_room(
	struct side *side, struct end *end, const enum msg_op op, const bool paced)
{
	uint64_t room = op == OP_SEND ? receive_room(side, end) : UINT64_MAX;

	if (paced) {
		uint64_t due = pace_room(side);

		room = room < due ? room : due;
	}
	return room;
}

static force_inline int side_poll(struct vbn_worker *worker, struct side *side,
	const enum msg_op op, const bool verify, const bool paced)
{
	int phase = load_once(&side->run->phase), did = 0;
	bool stopping = vbn_worker_stopping(worker) || phase == PHASE_END;

	if (unlikely(phase != side->phase))
		enter_phase(side, phase);
	if (unlikely(stopping && !side->stop.ns))
		take_mark(side, &side->stop);
	for (int i = 0; i < side->n_ends; i++) {
		struct end *end = &side->ends[i];

		did += end_receive(side, end, verify);
		if (op == OP_WRITE && end->sends)
			end_count_writes(side, end);
		if (end->sends && likely(!stopping && !end->failed)) {
			int n = end_send(side, end, send_room(side, end, op, paced), op, verify);

			did += n;
			if (paced)
				side->pace_sent += (uint64_t)n;
		}
	}
	return did;
}

/* One loop for each combination, so that none asks in the loop what it is. */
#define SIDE_POLL(name, op, verify, paced)                              \
	static int name(struct vbn_worker *worker, void *arg)           \
	{                                                               \
		return side_poll(worker, arg, (op), (verify), (paced)); \
	}

SIDE_POLL(poll_send, OP_SEND, false, false)
SIDE_POLL(poll_send_paced, OP_SEND, false, true)
SIDE_POLL(poll_send_verify, OP_SEND, true, false)
SIDE_POLL(poll_send_verify_paced, OP_SEND, true, true)
SIDE_POLL(poll_write, OP_WRITE, false, false)
SIDE_POLL(poll_write_paced, OP_WRITE, false, true)
SIDE_POLL(poll_write_verify, OP_WRITE, true, false)
SIDE_POLL(poll_write_verify_paced, OP_WRITE, true, true)

static vbn_poll_fn *const polls[2][2][2] = {
	[OP_SEND] = {{poll_send, poll_send_paced}, {poll_send_verify, poll_send_verify_paced}},
	[OP_WRITE] = {{poll_write, poll_write_paced}, {poll_write_verify, poll_write_verify_paced}},
};

/* ---- set-up, on the worker's thread ---- */

/* Depths of an end's rings: a direction that it has not gets the least there is. */
static uint32_t tx_depth(const struct run *run, const struct end *end)
{
	return end->sends || run->conf.tx_depth < MIN_DEPTH ? (uint32_t)run->conf.tx_depth
							    : MIN_DEPTH;
}

static uint32_t rx_depth(const struct run *run, const struct end *end)
{
	bool used = end->receives && run->conf.op == OP_SEND;

	return used || run->conf.rx_depth < MIN_DEPTH ? (uint32_t)run->conf.rx_depth : MIN_DEPTH;
}

/* Every sending end may have its ring full and a burst in hand; of received bursts there is one in
 * hand at a time. */
static int create_pools(struct side *side)
{
	const struct msgrate_options *conf = &side->run->conf;
	bool receives = false;
	uint32_t size = conf->size < 64 ? 64 : (uint32_t)conf->size;
	struct vbn_pool_conf tx = {.data_size = size, .name = "msgrate tx"};
	struct vbn_pool_conf rx = {.data_size = size, .name = "msgrate rx"};
	struct vbn_zone_conf zone = {.name = "msgrate"};
	int err;

	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		if (end->sends)
			tx.n_bufs += tx_depth(side->run, end) + (uint32_t)conf->post_list;
		receives |= end->receives;
		rx.n_bufs += rx_depth(side->run, end);
	}
	rx.n_bufs += conf->rx_depth < RECEIVE_BURST ? (uint32_t)conf->rx_depth : RECEIVE_BURST;
	if (!receives || conf->op != OP_SEND)
		rx.data_size = 64;
	zone.size = vbn_pool_footprint(&rx) + (tx.n_bufs ? vbn_pool_footprint(&tx) : 0);
	err = vbn_zone_create(&zone, &side->zone);
	tx.zone = rx.zone = side->zone;
	if (!err)
		err = vbn_pool_create(&rx, &side->rx_pool);
	if (!err && tx.n_bufs)
		err = vbn_pool_create(&tx, &side->tx_pool);
	return err;
}

static size_t slot_size(const struct run *run)
{
	size_t size = (size_t)run->conf.size;

	return size ? (size + 63) & ~(size_t)63 : 64;
}

/* Where the peer's writes go: a slot for each that can be in flight. */
static int create_slots(struct end *end)
{
	const struct run *run = end->side->run;
	struct vbn_export_conf conf = {
		.size = slot_size(run) * (size_t)run->conf.tx_depth, .access = VBN_REMOTE_WRITE};

	if (!end->receives || run->conf.op != OP_WRITE)
		return 0;
	return vbn_export_create(run->port, &conf, &end->slots);
}

static int create_queue(struct end *end)
{
	struct run *run = end->side->run;
	const struct msgrate_options *options = &run->conf;
	struct vbn_queue_conf conf = {
		.transport = VBN_RC,
		.tx_depth = tx_depth(run, end),
		.rx_depth = rx_depth(run, end),
		.inline_size = {(uint32_t)options->inline_size, options->inline_given},
		.rx_pool = end->side->rx_pool,
		.tx_pool = end->side->tx_pool,
		.remote_access = options->op == OP_WRITE && end->receives ? VBN_REMOTE_WRITE : 0,
		.context = end,
	};
	int err;

	conf.cq_mod = (uint32_t)options->cq_mod;
	if (conf.cq_mod > conf.tx_depth)
		conf.cq_mod = conf.tx_depth;
	err = vbn_queue_create(end->side->worker, run->port, &conf, &end->queue);
	if (err)
		return err;
	vbn_queue_address(end->queue, &end->address);
	__atomic_fetch_add(&run->n_made, 1, __ATOMIC_RELAXED);
	return 0;
}

static int create_end(struct end *end)
{
	struct run *run = end->side->run;
	const struct msgrate_options *conf = &run->conf;
	int err;

	end->limit = UINT64_MAX;
	end->shut_at = UINT64_MAX;
	end->slot_mask = (uint32_t)conf->tx_depth - 1;
	end->held = calloc((size_t)conf->post_list, sizeof(struct vbn_buf *));
	if (!end->held)
		return -ENOMEM;
	err = track_init(&end->track, (uint64_t)(conf->tx_depth + conf->rx_depth));
	if (!err)
		err = create_slots(end);
	return err ? err : create_queue(end);
}

static int create_ends(struct side *side)
{
	int err = 0;

	for (int i = 0; i < side->n_ends && !err; i++)
		err = vbn_worker_stopping(side->worker) ? -ECANCELED : create_end(&side->ends[i]);
	return err;
}

/* The remote of each slot, and those of the first ones again: a burst from any slot is one piece of
 * the array. */
static int learn_slots(struct end *end)
{
	const struct run *run = end->side->run;
	size_t n = (size_t)run->conf.tx_depth, more = (size_t)run->conf.post_list;

	if (!end->sends || run->conf.op != OP_WRITE)
		return 0;
	end->remotes = calloc(n + more, sizeof(*end->remotes));
	if (!end->remotes)
		return -ENOMEM;
	for (size_t i = 0; i < n + more; i++)
		end->remotes[i] = vbn_export_remote(end->peer->slots, i % n * slot_size(run));
	return 0;
}

static int connect_ends(struct side *side)
{
	int err = 0;

	for (int i = 0; i < side->n_ends && !err; i++) {
		struct end *end = &side->ends[i];

		err = vbn_queue_connect(end->queue, &end->peer->address);
		if (!err)
			err = learn_slots(end);
	}
	return err;
}

/* ---- modes: an object may have more of them than were asked for ---- */

#define MAX_MODES 32

static int n_written(int n)
{
	return n < MAX_MODES ? n : MAX_MODES;
}

/* Of a queue's receive side from an end that receives, all others from one that sends. */
static void note_queue_modes(struct end *end, const char *who)
{
	struct vbn_mode modes[MAX_MODES];
	int n = n_written(vbn_queue_modes(end->queue, modes, MAX_MODES)), kept = 0;

	for (int i = 0; i < n; i++) {
		bool of_receives = !strncmp(modes[i].name, "rx_", 3);

		if (of_receives ? end->receives : end->sends)
			modes[kept++] = modes[i];
	}
	modes_add(end->side->run, modes, kept, who);
}

/* All but the core: the run's own line has the cores of all, and what the user asked for. */
static void note_worker_modes(struct side *side, const char *who)
{
	struct vbn_mode modes[MAX_MODES];
	int n = n_written(vbn_worker_modes(side->worker, modes, MAX_MODES));

	for (int i = 0; i < n; i++)
		if (strcmp(modes[i].name, "core"))
			modes_add(side->run, &modes[i], 1, who);
}

static void note_modes(struct side *side)
{
	struct vbn_mode modes[MAX_MODES];
	char who[32];

	snprintf(who, sizeof(who), "worker %d", side->index);
	note_worker_modes(side, who);
	modes_add(side->run, modes, n_written(vbn_zone_modes(side->zone, modes, MAX_MODES)), who);
	/* One with both ends has the sending ones first, and as many that receive. */
	note_queue_modes(&side->ends[0], who);
	note_queue_modes(&side->ends[side->n_ends - 1], who);
}

static void set_pace_and_window(struct side *side)
{
	const struct run *run = side->run;

	side->least_room = run->conf.rx_depth / 2 < run->conf.post_list ? run->conf.rx_depth / 2
									: run->conf.post_list;
	if (!side->least_room)
		side->least_room = 1;
	side->unfinished = 0;
	for (int i = 0; i < side->n_ends; i++)
		side->unfinished += side->ends[i].sends;
	side->pace_per_ns = (double)run->conf.rate / 1e9 * side->unfinished / run->n_senders;
	side->pace_start = now_ns();
}

/* Takes down what there is of a side, on its thread. */
static void side_destroy(struct side *side)
{
	struct run *run = side->run;

	pthread_mutex_lock(&run->lock);
	side->over = true;
	pthread_mutex_unlock(&run->lock);
	for (int i = 0; i < side->n_ends; i++) {
		struct end *end = &side->ends[i];

		if (end->n_held)
			vbn_buf_free(end->held + end->first_held, end->n_held);
		vbn_queue_destroy(end->queue);
		vbn_export_destroy(end->slots);
		free(end->remotes);
		free(end->held);
		free(end->track.seen);
		end->n_held = 0;
	}
	vbn_pool_destroy(side->tx_pool);
	vbn_pool_destroy(side->rx_pool);
	vbn_zone_destroy(side->zone);
}

/* ---- the end, on the worker's thread ---- */

static bool all_came(const struct side *side)
{
	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		if (end->receives && end->received < load_once(&end->peer->sent))
			return false;
	}
	return true;
}

/* Receives what is still on its way: until all that was sent has come, or nothing comes any more.
 */
static void drain(struct side *side)
{
	const struct run *run = side->run;
	uint64_t last = now_ns();

	while (!(all_arrived(run, STAGE_STOPPED) && (run->conf.op == OP_WRITE || all_came(side)))) {
		int did = 0;

		for (int i = 0; i < side->n_ends; i++)
			did += end_receive(
				side, &side->ends[i], run->conf.verify && run->conf.op == OP_SEND);
		if (did)
			side->last_ns = last = now_ns();
		else if (now_ns() - last > (stop_signal() ? QUIET_HASTY : QUIET))
			break;
		else
			sched_yield();
	}
}

/* All of --iters counts, and the time until the last of them came. */
static void count_drained(struct side *side)
{
	uint64_t stopped = side->stop.ns;

	take_mark(side, &side->stop);
	side->stop.ns = side->last_ns > stopped ? side->last_ns : stopped;
}

/* --verify of writes: each slot must hold the last message that went there. Those that writes which
 * never completed may have changed are left out; these are counted as lost. */
static void scan_slots(struct end *end)
{
	const struct run *run = end->side->run;
	uint64_t sent = end->peer->sent, n = (uint64_t)run->conf.tx_depth;
	const uint8_t *base = end->slots ? vbn_export_addr(end->slots) : NULL;

	for (uint64_t i = sent > n ? sent - n : 0; base && i < end->peer->completed; i++) {
		const uint8_t *slot = base + i % n * slot_size(run);
		uint64_t sequence;

		if (!pattern_check(slot, (size_t)run->conf.size, end->peer->stream, &sequence) ||
			sequence != i)
			end->track.corrupt++;
	}
}

static void note_end(struct end *end)
{
	vbn_queue_stats(end->queue, &end->stats);
	snprintf(end->error, sizeof(end->error), "%s", vbn_queue_error(end->queue));
	if (*end->error)
		end->failed = true;
	if (end->side->run->conf.op == OP_WRITE && end->sends)
		end->completed = end->stats.tx_done < end->sent ? end->stats.tx_done : end->sent;
}

static void side_exit(struct vbn_worker *worker, void *arg)
{
	struct side *side = arg;
	struct run *run = side->run;

	(void)worker;
	if (!side->stop.ns)
		take_mark(side, &side->stop);
	arrive(run, STAGE_STOPPED);
	drain(side);
	if (run->conf.iters)
		count_drained(side);
	for (int i = 0; i < side->n_ends; i++)
		note_end(&side->ends[i]);
	/* No queue goes before its peer has all that it sends. */
	arrive(run, STAGE_DRAINED);
	if (!meet(run, STAGE_DRAINED, SECOND / 4) && run->conf.verify && run->conf.op == OP_WRITE)
		for (int i = 0; i < side->n_ends; i++)
			scan_slots(&side->ends[i]);
	side_destroy(side);
}

static int set_up(struct side *side)
{
	struct run *run = side->run;
	int err = create_pools(side);

	if (!err)
		err = create_ends(side);
	if (err)
		return err;
	arrive(run, STAGE_ADDRESS);
	err = meet(run, STAGE_ADDRESS, SETUP_TIMEOUT);
	if (!err)
		err = connect_ends(side);
	if (!err)
		err = vbn_worker_add_poll(side->worker,
			polls[run->conf.op][run->conf.verify][run->conf.rate > 0], side);
	if (!err)
		err = vbn_worker_add_exit(side->worker, side_exit, side);
	return err;
}

int side_setup(struct vbn_worker *worker, void *arg)
{
	struct run *run = arg;
	struct side *side = &run->sides[vbn_worker_index(worker)];
	int err;

	side->core = vbn_worker_core(worker);
	side->node = vbn_worker_node(worker);
	pthread_mutex_lock(&run->lock);
	side->worker = worker;
	pthread_mutex_unlock(&run->lock);
	set_pace_and_window(side);
	if (stop_signal())
		vbn_stop(); /* it came before there was a run to stop */
	err = set_up(side);
	if (err) {
		give_up(run, err);
		side_destroy(side);
		return err;
	}
	note_modes(side);
	arrive(run, STAGE_CONNECTED);
	return 0;
}
