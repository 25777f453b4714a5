/* msgrate_loop.c - what a worker does in a run: marks of the window that counts, the hot loop
 *
 * The window that counts is each side's own: the counts and the clock are read together by the
 * worker, between two bursts, when it sees the monitor's phase change and when it sees that the run
 * is stopping. Losses are not windowed: they are what was sent in the whole run, warm-up and drain
 * included, less what came.
 */
#include "msgrate_window.h"

/* ---- marks ---- */

/* Of a stream, at the end that counts it. */
static uint64_t good_messages(const struct run *run, const struct end *end)
{
	uint64_t bad = end->track.corrupt + end->track.duplicate;

	if (counts_where_it_comes(run))
		return end->received - bad;
	return end->completed - (run->conf.op == OP_WRITE ? 0 : bad);
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

/* Between processes the monitor ends the run, when both have sent all. */
static void side_is_done(struct side *side)
{
	if (side->run->other)
		__atomic_fetch_sub(&side->run->n_unfinished, 1, __ATOMIC_RELAXED);
	else if (side->unfinished > 0 && !--side->unfinished)
		vbn_worker_done(side->worker);
}

/* The monitor has gone on to another phase. A run that is stopped while it warms up counts from its
 * beginning. */
static void __attribute__((cold, noinline)) enter_phase(struct side *side, int phase)
{
	const struct msgrate_options *conf = &side->run->conf;

	if (side->phase == PHASE_HOLD && !side->unfinished && !side->run->other)
		vbn_worker_done(
			side->worker); /* it only receives: when to stop is the senders' matter */
	side->phase = phase;
	if (phase == PHASE_END)
		store_once(&side->quiet, true);
	if (phase > PHASE_COUNT)
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
	if (end->sends && !end->answers && !end->finished)
		side_is_done(end->side);
}

/* ---- the hot loop ---- */

static force_inline void count_first(struct side *side)
{
	if (unlikely(!side->first_ns))
		side->first_ns = now_ns();
}

static force_inline void count_received(struct side *side, struct end *end, int n)
{
	store_once(&end->received, end->received + (uint64_t)n);
	if (unlikely(end->gives_credit) && end->received - end->credited >= side->credit_step)
		give_credit(side, end);
	count_first(side);
}

/* Receives a burst; for an end that only sends it reaps what has completed, and takes credits. */
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
	if (unlikely(end->is_given)) {
		take_credit(end, credit_of(side->run, bufs[n - 1]));
		vbn_buf_free(bufs, n);
		return 0;
	}
	for (int i = 0; verify && i < n; i++)
		track_message(&end->track, bufs[i]->data, bufs[i]->len, size, end->peer_stream);
	vbn_buf_free(bufs, n);
	end->receive_bursts++;
	count_received(side, end, n);
	return n;
}

/* ---- the same by events, where completions say more than that a message came ---- */

/* Immediate data has the lower bits of the message's number. */
static force_inline void check_message(struct end *end, const struct vbn_event *event,
	const uint8_t *data, size_t size, const enum msg_op op)
{
	if (op_has_imm(op) && size >= 8 &&
		unlikely(!event->has_imm ||
			((uint32_t)pattern_word(data) & CREDIT_MASK) != event->imm))
		end->track.corrupt++;
	else
		track_message(&end->track, data, event->len, size, end->peer_stream);
}

static force_inline const uint8_t *slot_of(const struct end *end, uint32_t imm, size_t size)
{
	const uint8_t *slots = vbn_export_addr(end->slots);

	return slots + (imm & end->slot_mask) * slot_size(size);
}

/* A sender that took a message for lost, while this end was kept from its core, has sent a later one
 * to the same slot, and may be at it. What that one shows is the number of the one before. */
static bool __attribute__((cold, noinline))
overtaken(const struct end *end, const uint8_t *data, size_t size, uint32_t imm, uint64_t *sequence)
{
	for (int look = 0; look < 1000; look++) {
		if (pattern_check(data, size, end->peer_stream, sequence)) {
			uint32_t later = ((uint32_t)*sequence - imm) & CREDIT_MASK;

			*sequence -= later;
			return later < CREDIT_MASK / 2 && !(later & end->slot_mask);
		}
		__atomic_signal_fence(__ATOMIC_ACQUIRE); /* looks again, not at a copy */
	}
	return false;
}

static force_inline void check_slot(struct end *end, const struct vbn_event *event, size_t size)
{
	const uint8_t *data = slot_of(end, event->imm, size);
	uint64_t sequence;

	if (unlikely(!event->has_imm || event->len != size))
		end->track.corrupt++;
	else if (likely(pattern_check(data, size, end->peer_stream, &sequence) &&
			 ((uint32_t)sequence & CREDIT_MASK) == event->imm))
		track_sequence(&end->track, sequence);
	else if (overtaken(end, data, size, event->imm, &sequence))
		track_sequence(&end->track, sequence);
	else
		end->track.corrupt++;
}

static force_inline void event_received(struct side *side, struct end *end,
	const struct vbn_event *event, const enum msg_op op, const bool verify)
{
	size_t size = (size_t)side->run->conf.size;

	if (end->is_given && is_credit(side->run, event)) {
		take_credit(end, credit_of(side->run, event->buf));
		return;
	}
	if (verify && op == OP_WRITE_IMM)
		check_slot(end, event, size);
	else if (verify)
		check_message(end, event, event->buf->data, size, op);
	count_received(side, end, 1);
}

/* Answers come in order. */
static force_inline void check_answer(
	struct end *end, const struct vbn_buf *buf, size_t size, const enum msg_op op)
{
	uint64_t expected = end->completed, value;

	if (op == OP_READ) {
		if (!pattern_check(buf->data, size, end->stream, &value) ||
			value != (expected & end->slot_mask))
			end->track.corrupt++;
		return;
	}
	memcpy(&value, buf->data, sizeof(value));
	if (op == OP_FETCH_ADD)
		track_sequence(&end->track, value);
	else if (value != expected)
		end->track.corrupt++;
}

static force_inline void event_answered(struct side *side, struct end *end,
	const struct vbn_event *event, const enum msg_op op, const bool verify)
{
	uint64_t value = 0;

	if (verify)
		check_answer(end, event->buf, (size_t)side->run->conf.size, op);
	if (op_is_atomic(op))
		memcpy(&value, event->buf->data, sizeof(value));
	end->swapped += op == OP_FETCH_ADD || value == end->completed;
	store_once(&end->completed, end->completed + 1);
	count_first(side);
}

static force_inline void side_event(
	struct side *side, const struct vbn_event *event, const enum msg_op op, const bool verify)
{
	struct end *end = vbn_queue_context(event->queue);

	if (event->op == VBN_OP_FAILED)
		end_failed(end);
	else if (event->status == VBN_OK && op_is_received(op) &&
		(event->op == VBN_OP_RECV || event->op == VBN_OP_RECV_WRITE))
		event_received(side, end, event, op, verify);
	else if (event->status == VBN_OK && !op_is_received(op) && event->op != VBN_OP_RECV)
		event_answered(side, end, event, op, verify);
}

static force_inline int side_events(struct side *side, const enum msg_op op, const bool verify)
{
	struct vbn_event events[RECEIVE_BURST];
	int n = vbn_poll(side->worker, events, RECEIVE_BURST);

	for (int i = 0; i < n; i++) {
		if (i == 0 || events[i].queue != events[i - 1].queue)
			((struct end *)vbn_queue_context(events[i].queue))->receive_bursts++;
		side_event(side, &events[i], op, verify);
		if (events[i].buf)
			vbn_buf_free(&events[i].buf, 1);
	}
	return n > 0 ? n : 0;
}

/* ---- sending ---- */

/* Writes the next burst of messages into bufs of the pool. Returns how many. */
static force_inline uint16_t end_stage(
	struct side *side, struct end *end, uint64_t room, const enum msg_op op, const bool verify)
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
		if (verify && op_sends_bytes(op))
			pattern_fill(end->held[i]->data, (size_t)conf->size, end->staged + i,
				end->stream);
	}
	for (uint16_t i = 0; unlikely(end->datagram_peer) && i < n; i++)
		vbn_buf_set_peer(end->held[i], end->datagram_peer);
	end->staged += n;
	end->first_held = 0;
	return n;
}

/* All of --iters is sent; it is finished once the device says that it is done, too. */
static void __attribute__((cold, noinline)) end_finish(struct end *end)
{
	if (end->finished || end->answers || vbn_queue_outstanding(end->queue))
		return;
	end->finished = true;
	side_is_done(end->side);
}

/* Compare-and-swap counts: each finds what the one before left. */
static force_inline void number_atomics(struct end *end, int n)
{
	for (int i = 0; i < n; i++)
		end->atomics[i] =
			(struct vbn_atomic){end->sent + (uint64_t)i + 1, end->sent + (uint64_t)i};
}

static force_inline void number_imms(struct end *end, int n)
{
	for (int i = 0; i < n; i++)
		end->imms[i] = (uint32_t)(end->sent + (uint64_t)i) & CREDIT_MASK;
}

static force_inline int end_post(struct end *end, struct vbn_buf **bufs, const enum msg_op op)
{
	const struct vbn_remote *remotes = end->remotes + (end->sent & end->slot_mask);
	int n = end->n_held;

	if (op_has_imm(op))
		number_imms(end, n);
	if (op == OP_CMP_SWAP)
		number_atomics(end, n);
	switch (op) {
	case OP_SEND: return vbn_send(end->queue, bufs, n);
	case OP_SEND_IMM: return vbn_send_imm(end->queue, bufs, end->imms, n);
	case OP_WRITE: return vbn_write(end->queue, bufs, remotes, n);
	case OP_WRITE_IMM: return vbn_write_imm(end->queue, bufs, remotes, end->imms, n);
	case OP_READ: return vbn_read(end->queue, bufs, remotes, n);
	case OP_FETCH_ADD: return vbn_fetch_add(end->queue, bufs, end->remotes, end->atomics, n);
	case OP_CMP_SWAP: return vbn_cmp_swap(end->queue, bufs, end->remotes, end->atomics, n);
	}
	return 0;
}

/* Stages a burst and rings its doorbell. What the queue does not take is held for the next time. */
static force_inline int end_send(
	struct side *side, struct end *end, uint64_t room, const enum msg_op op, const bool verify)
{
	int n;

	if (!end->n_held)
		end->n_held = end_stage(side, end, room, op, verify);
	if (unlikely(!end->n_held)) {
		if (end->staged == end->limit)
			end_finish(end);
		return 0;
	}
	n = end_post(end, end->held + end->first_held, op);
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

/* ---- one at a time, and timed ---- */

/* A write tells nobody that it came: its last byte says so, another one each time round the slots. */
static force_inline uint8_t mark_value(const struct end *end, uint64_t n)
{
	return (uint8_t)(n / ((uint64_t)end->slot_mask + 1) % 255 + 1);
}

static force_inline int look_for_write(struct side *side, struct end *end)
{
	size_t size = (size_t)side->run->conf.size;
	const uint8_t *slots = vbn_export_addr(end->slots);
	const uint8_t *mark = slots + (end->received & end->slot_mask) * slot_size(size) + size - 1;

	if (!end->receives || load_acquire(mark) != mark_value(end, end->received))
		return 0;
	store_once(&end->received, end->received + 1);
	count_first(side);
	return 1;
}

/* What has come back of what an end has sent. */
static force_inline uint64_t answered(const struct end *end, const enum msg_op op)
{
	return op_is_received(op) || op == OP_WRITE ? end->received : end->completed;
}

static force_inline void end_time(struct side *side, struct end *end, const enum msg_op op)
{
	uint64_t took;

	if (end->answers || !end->asked_at || answered(end, op) + end->given_up != end->sent)
		return;
	took = now_ns() - end->asked_at;
	end->asked_at = 0;
	if (side->phase == PHASE_COUNT)
		histogram_record(side->times, took);
}

/* Without a reliable connection an answer that has not come by now never will: the next message goes
 * all the same. Looked at now and then, since the clock costs more than a look. */
static void __attribute__((noinline)) wait_for_answer(struct end *end)
{
	if (++end->looks % 256 || !end->asked_at || now_ns() - end->asked_at < LATE_FOR_SURE)
		return;
	end->asked_at = 0;
	end->given_up++;
}

static force_inline uint64_t ping_room(struct end *end, const enum msg_op op)
{
	uint64_t back = answered(end, op);

	if (end->answers)
		return back - end->staged;
	if (unlikely(back + end->given_up > end->staged)) /* it has come after all */
		end->given_up = end->staged - back;
	if (back + end->given_up == end->staged)
		return 1;
	if (unlikely(end->may_lose))
		wait_for_answer(end);
	return 0;
}

static force_inline int end_ping(
	struct side *side, struct end *end, uint64_t room, const enum msg_op op, const bool verify)
{
	/* Before it goes: this thread may lose its core right behind the doorbell. */
	uint64_t now = room || end->n_held ? now_ns() : 0;
	int n;

	if (op == OP_WRITE && !end->n_held && room) {
		end->n_held = end_stage(side, end, 1, op, verify);
		if (end->n_held)
			end->held[0]->data[side->run->conf.size - 1] =
				mark_value(end, end->staged - 1);
	}
	n = end_send(side, end, room, op, verify);
	if (n && !end->answers)
		end->asked_at = now;
	return n;
}

/* Sends one where its time has come. Returns how many went. */
static force_inline int end_ping_turn(struct side *side, struct end *end, const enum msg_op op,
	const bool verify, const bool paced)
{
	uint64_t room = ping_room(end, op);

	if (paced && room && !end->answers)
		room = pace_room(side) > 0;
	return end_ping(side, end, room, op, verify);
}

/* ---- the loops ---- */

/* What has come, and then what may go. */
static force_inline int side_poll(struct vbn_worker *worker, struct side *side,
	const enum msg_op op, const bool events, const bool verify, const bool paced,
	const bool ping)
{
	int phase = load_once(&side->run->phase), did = 0;
	bool stopping = vbn_worker_stopping(worker) || phase == PHASE_END;
	bool sending = likely(!stopping && phase != PHASE_HOLD);

	store_once(&side->turns, side->turns + 1);
	if (unlikely(phase != side->phase))
		enter_phase(side, phase);
	if (unlikely(stopping && !side->stop.ns))
		mark_take(side, &side->stop);
	if (events)
		did += side_events(side, op, verify);
	for (int i = 0; i < side->n_ends; i++) {
		struct end *end = &side->ends[i];
		int n;

		if (!events)
			did += receive_burst(side, end, verify && op == OP_SEND);
		if (ping && op == OP_WRITE)
			did += look_for_write(side, end);
		if (!end->sends)
			continue;
		if (op == OP_WRITE)
			end_count_writes(side, end);
		if (ping)
			end_time(side, end, op);
		if (unlikely(!sending || end->failed))
			continue;
		n = ping ? end_ping_turn(side, end, op, verify, paced)
			 : end_send(side, end, send_room(side, end, op, paced), op, verify);
		did += n;
		if (paced && !(ping && end->answers))
			side->pace_sent += (uint64_t)n;
	}
	return did;
}

/* One loop for each combination, so that none asks in the loop what it is. */
#define SIDE_POLL(name, op, events, verify, paced, ping)                                  \
	static int name(struct vbn_worker *worker, void *arg)                             \
	{                                                                                 \
		return side_poll(worker, arg, (op), (events), (verify), (paced), (ping)); \
	}

#define SIDE_POLLS(name, op, events, ping)                      \
	SIDE_POLL(name, op, events, false, false, ping)         \
	SIDE_POLL(name##_paced, op, events, false, true, ping)  \
	SIDE_POLL(name##_verify, op, events, true, false, ping) \
	SIDE_POLL(name##_verify_paced, op, events, true, true, ping)

#define POLLS(name)                                        \
	{                                                  \
		{name, name##_paced},                      \
		{                                          \
			name##_verify, name##_verify_paced \
		}                                          \
	}

SIDE_POLLS(send_bursts, OP_SEND, false, false)
SIDE_POLLS(send_events, OP_SEND, true, false)
SIDE_POLLS(send_imm, OP_SEND_IMM, true, false)
SIDE_POLLS(write_bursts, OP_WRITE, false, false)
SIDE_POLLS(write_imm, OP_WRITE_IMM, true, false)
SIDE_POLLS(read_events, OP_READ, true, false)
SIDE_POLLS(fetch_add, OP_FETCH_ADD, true, false)
SIDE_POLLS(cmp_swap, OP_CMP_SWAP, true, false)

/* By operation, verified, paced. */
static vbn_poll_fn *const polls[][2][2] = {
	[OP_SEND] = POLLS(send_bursts),
	[OP_SEND_IMM] = POLLS(send_imm),
	[OP_WRITE] = POLLS(write_bursts),
	[OP_WRITE_IMM] = POLLS(write_imm),
	[OP_READ] = POLLS(read_events),
	[OP_FETCH_ADD] = POLLS(fetch_add),
	[OP_CMP_SWAP] = POLLS(cmp_swap),
};
SIDE_POLLS(ping_send, OP_SEND, false, true)
SIDE_POLLS(ping_send_imm, OP_SEND_IMM, true, true)
SIDE_POLLS(ping_write, OP_WRITE, false, true)
SIDE_POLLS(ping_write_imm, OP_WRITE_IMM, true, true)
SIDE_POLLS(ping_read, OP_READ, true, true)
SIDE_POLLS(ping_fetch_add, OP_FETCH_ADD, true, true)
SIDE_POLLS(ping_cmp_swap, OP_CMP_SWAP, true, true)

static vbn_poll_fn *const pings[][2][2] = {
	[OP_SEND] = POLLS(ping_send),
	[OP_SEND_IMM] = POLLS(ping_send_imm),
	[OP_WRITE] = POLLS(ping_write),
	[OP_WRITE_IMM] = POLLS(ping_write_imm),
	[OP_READ] = POLLS(ping_read),
	[OP_FETCH_ADD] = POLLS(ping_fetch_add),
	[OP_CMP_SWAP] = POLLS(ping_cmp_swap),
};

static vbn_poll_fn *const mixed[2][2] = POLLS(send_events);

/* Where both ends send between processes, credits come in among the messages. */
static bool credits_mix(const struct run *run)
{
	return run->other && run->conf.bidirectional && run->conf.op == OP_SEND &&
		!run->conf.latency;
}

vbn_poll_fn *side_loop(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;

	if (conf->latency)
		return pings[conf->op][conf->verify][conf->rate > 0];
	if (credits_mix(run))
		return mixed[conf->verify][conf->rate > 0];
	return polls[conf->op][conf->verify][conf->rate > 0];
}

int side_receive(struct side *side)
{
	const struct msgrate_options *conf = &side->run->conf;
	int did = 0;

	if (credits_mix(side->run) || (conf->op != OP_SEND && conf->op != OP_WRITE))
		return side_events(side, (enum msg_op)conf->op, conf->verify);
	for (int i = 0; i < side->n_ends; i++) {
		did += receive_burst(side, &side->ends[i], conf->verify && conf->op == OP_SEND);
		if (conf->latency && conf->op == OP_WRITE)
			did += look_for_write(side, &side->ends[i]);
	}
	return did;
}
