/* msgrate_side.c - one worker of a run: its set-up, draining, teardown */
#include "msgrate.h"

#include <sched.h>
#include <stdlib.h>

#define SETUP_TIMEOUT (20 * SECOND)
/* A drain is over when nothing came for so long; who has sent a signal waits no second for it. */
#define QUIET         SECOND
#define QUIET_HASTY   (SECOND / 10)
#define MIN_DEPTH     16 /* of the ring that a one-way end does not use */

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
			did += end_receive(&side->ends[i]);
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

	mark_take(side, &side->stop);
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
		mark_take(side, &side->stop);
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
		err = vbn_worker_add_poll(side->worker, side_loop(run), side);
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
