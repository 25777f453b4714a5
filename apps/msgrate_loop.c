/* msgrate_loop.c - what a worker does in a run: marks of the window that counts, the hot loop
 *
 * The window that counts is each side's own: the counts and the clock are read together by the
 * worker, between two bursts, when it sees the monitor's phase change and when it sees that the run
 * is stopping. Losses are not windowed: they are what was sent in the whole run, warm-up and drain
 * included, less what came.
 */
#include "msgrate.h"

#define LATE (SECOND / 100) /* what has not come by then when all else has is lost */

/* ---- marks ---- */

static uint64_t good_messages(const struct run *run, const struct end *end)
{
	if (run->conf.op == OP_WRITE)
		return end->completed;
	return end->received - end->track.corrupt - end->track.duplicate;
}

void mark_take(struct side *side, struct mark *mark)
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
	mark_take(side, &side->start);
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
static force_inline int receive_burst(struct side *side, struct end *end, const bool verify)
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
		mark_take(side, &side->stop);
	for (int i = 0; i < side->n_ends; i++) {
		struct end *end = &side->ends[i];

		did += receive_burst(side, end, verify);
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

vbn_poll_fn *side_loop(const struct run *run)
{
	return polls[run->conf.op][run->conf.verify][run->conf.rate > 0];
}

int end_receive(struct end *end)
{
	const struct msgrate_options *conf = &end->side->run->conf;

	return receive_burst(end->side, end, conf->verify && conf->op == OP_SEND);
}
