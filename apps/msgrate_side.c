/* msgrate_side.c - one worker of a run: its set-up, draining, teardown */
#include "msgrate.h"

#include <sched.h>
#include <stdlib.h>

/* Bytes of messages that processes of one host copy once: below, two cores that share the copying carry more. */
enum { COPIED_ONCE = 64 << 10 };

#define SETUP_TIMEOUT (20 * SECOND)
#define PEER_TIMEOUT  (60 * SECOND) /* the monitor ends it, where the other process is lost */
/* A drain is over when nothing came for so long; who has sent a signal waits no second for it. */
#define QUIET         SECOND
#define QUIET_HASTY   (SECOND / 10)
#define UD_HEADROOM   64 /* where a datagram's network header goes, instead of being copied away */

/* ---- set-up, on the worker's thread ---- */

/* Every sending end may have its ring full and a burst in hand, each that gives credits a ring of
 * them; of received bursts there is one in hand at a time, and the rings are full all the same: the
 * peers may have been told already to send more. */
static void size_pools(const struct side *side, struct vbn_pool_conf *tx, struct vbn_pool_conf *rx)
{
	const struct msgrate_options *conf = &side->run->conf;
	bool used = false;

	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		if (end->sends || side->run->other)
			tx->n_bufs += end_tx_depth(side->run, end) + (uint32_t)conf->post_list;
		used |= end->receives;
		rx->n_bufs += end_rx_depth(side->run, end);
	}
	rx->n_bufs += rx->n_bufs < RECEIVE_BURST ? rx->n_bufs : RECEIVE_BURST;
	if (!used || (conf->op != OP_SEND && conf->op != OP_SEND_IMM))
		rx->data_size = 64;
	if (conf->connection == VBN_UD)
		rx->headroom = (struct vbn_num)VBN_NUM(UD_HEADROOM);
}

static int create_pools(struct side *side)
{
	uint32_t size = side->run->conf.size < 64 ? 64 : (uint32_t)side->run->conf.size;
	struct vbn_pool_conf tx = {.data_size = size, .name = "msgrate tx"};
	struct vbn_pool_conf rx = {.data_size = size, .name = "msgrate rx"};
	struct vbn_zone_conf zone = {.name = "msgrate"};
	int err;

	if (side->run->port_info.link == VBN_LINK_HOST && size >= COPIED_ONCE)
		zone.memfd = VBN_ON;
	size_pools(side, &tx, &rx);
	zone.size = vbn_pool_footprint(&rx) + (tx.n_bufs ? vbn_pool_footprint(&tx) : 0);
	__atomic_fetch_add(&side->run->zone_bytes, zone.size, __ATOMIC_RELAXED);
	err = vbn_zone_create(&zone, &side->zone);
	tx.zone = rx.zone = side->zone;
	if (!err)
		err = vbn_pool_create(&rx, &side->rx_pool);
	if (!err && tx.n_bufs)
		err = vbn_pool_create(&tx, &side->tx_pool);
	return err;
}

static int create_ends(struct side *side)
{
	int err = 0;

	for (int i = 0; i < side->n_ends && !err; i++)
		err = vbn_worker_stopping(side->worker) ? -ECANCELED : end_create(&side->ends[i]);
	return err;
}

static int connect_ends(struct side *side)
{
	int err = 0;

	for (int i = 0; i < side->n_ends && !err; i++)
		err = end_connect(&side->ends[i]);
	return err;
}

/* ---- modes: an object may have more of them than were asked for ---- */

#define MAX_MODES 32

static int n_written(int n)
{
	return n < MAX_MODES ? n : MAX_MODES;
}

/* Of a queue's receive side from an end that receives, of where its worker is from each, all others
 * from one that sends. */
static bool is_noted(const struct end *end, const struct vbn_mode *mode)
{
	if (!strcmp(mode->name, "near_device"))
		return true;
	return strncmp(mode->name, "rx_", 3) ? end->sends : end->receives;
}

static void note_queue_modes(struct end *end, const char *who)
{
	struct vbn_mode modes[MAX_MODES];
	int n = n_written(vbn_queue_modes(end->queue, modes, MAX_MODES)), kept = 0;

	for (int i = 0; i < n; i++)
		if (is_noted(end, &modes[i]))
			modes[kept++] = modes[i];
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

/* Of messages that have not been received: as many as there are receives for. Where datagrams have less
 * room than that, no more than it holds. */
static int64_t window_of(const struct run *run)
{
	const int64_t room = run->port_info.datagram_room, each = run->conf.size + 16;

	if (run->conf.connection != VBN_UD || !room || run->conf.rx_depth * each <= room)
		return run->conf.rx_depth;
	return room / each > 1 ? room / each : 1;
}

/* Credits come in where messages do: so a window leaves them room. */
static void set_pace_and_window(struct side *side)
{
	const struct run *run = side->run;
	int64_t most = run->conf.post_list;

	side->window = window_of(run);
	if (run->other && run->conf.bidirectional && side->window > 1)
		side->window /= 2;
	side->credit_step = side->window < 4 ? 1 : (uint64_t)side->window / 4;
	side->least_room = side->window / 2 < most ? side->window / 2 : most;
	if (!side->least_room)
		side->least_room = 1;
	side->unfinished = 0;
	for (int i = 0; i < side->n_ends; i++)
		side->unfinished += side->ends[i].sends && !side->ends[i].answers;
	side->pace_per_ns = run->n_senders
		? (double)run->conf.rate / 1e9 * side->unfinished / run->n_senders
		: 0;
	side->pace_start = now_ns();
	if (side->pace_per_ns > 0) /* the first message is due */
		side->pace_start -= (uint64_t)(1 / side->pace_per_ns);
}

/* Takes down what there is of a side, on its thread. */
static void side_destroy(struct side *side)
{
	struct run *run = side->run;

	pthread_mutex_lock(&run->lock);
	side->over = true;
	pthread_mutex_unlock(&run->lock);
	for (int i = 0; i < side->n_ends; i++)
		end_destroy(&side->ends[i]);
	vbn_pool_destroy(side->tx_pool);
	vbn_pool_destroy(side->rx_pool);
	vbn_zone_destroy(side->zone);
}

/* ---- the end, on the worker's thread ---- */

static bool all_came(const struct side *side)
{
	bool received = counts_where_it_comes(side->run);

	for (int i = 0; i < side->n_ends && received; i++) {
		const struct end *end = &side->ends[i];

		if (end->receives && end->received < end_sent_by_peer(end))
			return false;
	}
	return true;
}

/* Receives what is still on its way: until all that was sent has come, or nothing comes any more.
 */
static void drain(struct side *side)
{
	const struct other *other = side->run->other;
	uint64_t last = now_ns();

	while (!(all_arrived(side->run, STAGE_STOPPED) && all_came(side))) {
		bool hasty = stop_signal() || (other && load_once(&other->lost));

		if (side_receive(side))
			side->last_ns = last = now_ns();
		else if (now_ns() - last > (hasty ? QUIET_HASTY : QUIET))
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

/* No queue goes before its peer has all that it sends, and no memory before it was looked at. */
static void part(struct side *side)
{
	struct run *run = side->run;
	int err = meet(run, STAGE_DRAINED, SECOND / 4);

	if (run->other)
		err = meet(run, STAGE_PARTED, PEER_TIMEOUT);
	for (int i = 0; i < side->n_ends && !err; i++) {
		struct end *end = &side->ends[i];

		if (end->peer)
			end->peer_tally = end->peer->tally;
		end_scan(end);
	}
	arrive(run, STAGE_SCANNED);
}

static void side_exit(struct vbn_worker *worker, void *arg)
{
	struct side *side = arg;
	struct run *run = side->run;

	(void)worker;
	if (!side->stop.ns)
		mark_take(side, &side->stop);
	store_once(&side->quiet, true);
	arrive(run, STAGE_STOPPED);
	drain(side);
	if (run->conf.iters)
		count_drained(side);
	for (int i = 0; i < side->n_ends; i++)
		end_note(&side->ends[i]);
	arrive(run, STAGE_DRAINED);
	part(side);
	side_destroy(side);
}

static int set_up(struct side *side)
{
	struct run *run = side->run;
	int err = create_pools(side);

	if (!err && run->conf.latency) {
		side->times = calloc(1, sizeof(*side->times));
		err = side->times ? 0 : -ENOMEM;
	}
	if (!err)
		err = create_ends(side);
	if (err)
		return err;
	arrive(run, STAGE_ADDRESS);
	err = meet(run, STAGE_ADDRESS, SETUP_TIMEOUT);
	if (!err && run->other)
		err = meet(run, STAGE_PEERED, PEER_TIMEOUT);
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
	side->phase = PHASE_HOLD;
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
