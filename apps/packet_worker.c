/* packet_worker.c - a worker of a packet command: its pool, its queues, what it does with what cannot be
 * sent, its end */
#include "packet.h"

#include <stdlib.h>

const char *const drop_names[N_DROPS] = {
	[DROP_TX_RING_FULL] = "tx_ring_full",
	[DROP_NOT_SENDABLE] = "not_sendable",
	[DROP_QUEUE_FAILED] = "queue_failed",
	[DROP_AT_THE_END] = "at_the_end",
	[DROP_STRANGER] = "stranger",
};

enum {
	HEADROOM = 192, /* what AF_XDP leaves alone, less a buf's header; enough for any header */
	LEAST_DATA = 1792, /* with both, the 2 KiB that AF_XDP wants at least */
	FILE_DATA = 9216,  /* what is in a file may be of any device */
	OVERHEAD = 22,     /* Ethernet with two tags */
	MOST_GATHER = 16,
};

/* ---- making ---- */

int workers_make(struct packet_run *run)
{
	const int queues = (int)run->conf.queues;

	run->workers = calloc((size_t)run->n_cores, sizeof(*run->workers));
	if (!run->workers)
		return cannot("workers cannot be made: there is no memory; free some");
	run->n_workers = run->n_cores;
	for (int w = 0; w < run->n_workers; w++) {
		struct packet_worker *worker = &run->workers[w];

		worker->run = run;
		worker->index = w;
		worker->burst = (int)run->conf.burst;
		worker->n_lanes = queues * run->n_devices;
		worker->lanes = aligned_alloc(64, (size_t)worker->n_lanes * sizeof(struct lane));
		if (!worker->lanes)
			return cannot("queues cannot be made: there is no memory; free some");
		memset(worker->lanes, 0, (size_t)worker->n_lanes * sizeof(struct lane));
	}
	return 0;
}

void workers_free(struct packet_run *run)
{
	for (int w = 0; w < run->n_workers; w++)
		free(run->workers[w].lanes);
	free(run->workers);
}

static uint32_t data_size(const struct packet_run *run)
{
	uint32_t most = LEAST_DATA;

	for (int i = 0; i < run->n_devices; i++) {
		const struct packet_device *device = &run->devices[i];
		uint32_t size = (device->info.frame_mtu + OVERHEAD + 63) & ~63u;

		if (device_is_file(device) && size < FILE_DATA)
			size = FILE_DATA;
		most = size > most ? size : most;
	}
	return most;
}

/* Every ring may be full, and a burst of each in hand. */
static int create_pool(struct packet_worker *worker)
{
	const struct packet_options *conf = &worker->run->conf;
	struct vbn_pool_conf pool = {
		.data_size = data_size(worker->run),
		.headroom = VBN_NUM(HEADROOM),
		.name = worker->run->command->name,
	};

	pool.n_bufs = (uint32_t)worker->n_lanes *
			(uint32_t)(conf->rx_depth + conf->tx_depth + 2 * conf->burst) +
		worker->run->command->more_bufs;
	return vbn_pool_create(&pool, &worker->pool);
}

static void describe_lane(struct packet_worker *worker, int i)
{
	struct packet_run *run = worker->run;
	const int queues = (int)run->conf.queues;
	struct lane *lane = &worker->lanes[i];
	struct packet_device *device = &run->devices[i / queues];

	lane->device = (uint8_t)(i / queues);
	lane->index = worker->index * queues + i % queues;
	lane->tx_depth = (uint32_t)run->conf.tx_depth;
	lane->receives = device->group;
	lane->file = device_is_file(device);
	lane->ended = !device_is_read(device);
	lane->tap = worker->tap;
	lane->out = run->n_devices > 1 ? &worker->lanes[(i + queues) % worker->n_lanes] : lane;
	memcpy(lane->mac, device->info.mac, 6);
	memcpy(lane->peer, (uint8_t[]){2, 0, 0, 0, 0, lane->device}, 6);
}

static int create_lane(struct packet_worker *worker, struct lane *lane)
{
	const struct packet_run *run = worker->run;
	const struct packet_device *device = &run->devices[lane->device];
	struct vbn_queue_conf conf = {
		.transport = VBN_RAW,
		.tx_depth = (uint32_t)run->conf.tx_depth,
		.rx_depth = (uint32_t)run->conf.rx_depth,
		.rx_pool = device->group ? worker->pool : NULL,
		.tx_pool = worker->pool,
		.rx_group = device->group,
		.max_gather = device->info.max_gather < MOST_GATHER ? device->info.max_gather
								    : MOST_GATHER,
	};

	return vbn_queue_create(worker->worker, device->port, &conf, &lane->queue);
}

static void note_modes(struct packet_worker *worker)
{
	struct vbn_mode modes[40];
	char who[32];
	int n;

	snprintf(who, sizeof(who), "worker %d", worker->index);
	n = vbn_worker_modes(worker->worker, modes, ARRAY_SIZE(modes));
	mode_list_add(&worker->run->modes, modes, n < 40 ? n : 40, who);
	for (int i = 0; i < worker->n_lanes; i++) {
		const struct lane *lane = &worker->lanes[i];

		n = vbn_queue_modes(lane->queue, modes, ARRAY_SIZE(modes));
		mode_list_add(&worker->run->modes, modes, n < 40 ? n : 40,
			worker->run->devices[lane->device].info.name);
	}
}

/* ---- the end, on the worker's thread ---- */

/* Drops that the queue's stats have are among those of its names. */
static void note_lane(struct lane *lane)
{
	struct vbn_drop drops[MAX_NAMED_DROPS];
	const char *error = vbn_queue_error(lane->queue);
	uint64_t unfinished;
	int n = vbn_queue_drops(lane->queue, drops, MAX_NAMED_DROPS);

	vbn_queue_stats(lane->queue, &lane->stats);
	snprintf(lane->error, sizeof(lane->error), "%s", error);
	for (int i = 0; i < n && i < MAX_NAMED_DROPS; i++)
		drops_add(&lane->named, drops[i].name, drops[i].count);
	for (int i = 0; i < N_DROPS; i++)
		if (lane->drops[i])
			drops_add(&lane->named, drop_names[i], lane->drops[i]);
	drops_add(&lane->named, "tx_flushed", lane->stats.tx_flushed);
	unfinished = lane->stats.tx_messages - lane->stats.tx_done - lane->stats.tx_refused -
		lane->stats.tx_flushed;
	if (unfinished)
		drops_add(&lane->named, "tx_unfinished", unfinished);
}

static void worker_exit(struct vbn_worker *vbn_worker, void *arg)
{
	struct packet_worker *worker = arg;

	vbn_worker_stats(vbn_worker, &worker->stop);
	/* The monitor looks no more. */
	pthread_mutex_lock(&worker->run->lock);
	worker->gone = true;
	pthread_mutex_unlock(&worker->run->lock);
	for (int i = 0; i < worker->n_lanes; i++)
		if (worker->lanes[i].queue)
			note_lane(&worker->lanes[i]);
	if (worker->run->command->teardown)
		worker->run->command->teardown(worker);
	for (int i = 0; i < worker->n_lanes; i++) {
		vbn_queue_destroy(worker->lanes[i].queue);
		worker->lanes[i].queue = NULL;
	}
	vbn_pool_destroy(worker->pool);
}

static void ready(struct packet_run *run)
{
	pthread_mutex_lock(&run->lock);
	run->n_ready++;
	pthread_cond_broadcast(&run->change);
	pthread_mutex_unlock(&run->lock);
}

/* The signal came before there was a run to stop: what takes time is not begun. */
static int stopped_early(void)
{
	return stop_signal() ? -EINTR : 0;
}

int worker_setup(struct vbn_worker *vbn_worker, void *arg)
{
	struct packet_run *run = arg;
	struct packet_worker *worker = &run->workers[vbn_worker_index(vbn_worker)];
	int err;

	worker->worker = vbn_worker;
	worker->core = vbn_worker_core(vbn_worker);
	worker->node = vbn_worker_node(vbn_worker);
	err = stopped_early();
	if (!err)
		err = create_pool(worker);
	for (int i = 0; i < worker->n_lanes && !err; i++) {
		describe_lane(worker, i);
		err = stopped_early();
		if (!err)
			err = create_lane(worker, &worker->lanes[i]);
	}
	for (int i = 0; i < worker->n_lanes && !err; i++)
		err = vbn_queue_connect(worker->lanes[i].queue, NULL);
	if (!err)
		err = stopped_early();
	if (!err && run->command->setup)
		err = run->command->setup(worker);
	if (!err)
		err = vbn_worker_add_poll(vbn_worker, run->command->loop(run), worker);
	if (!err)
		err = vbn_worker_add_exit(vbn_worker, worker_exit, worker);
	if (err) {
		worker_exit(vbn_worker, worker);
		return err;
	}
	note_modes(worker);
	vbn_worker_stats(vbn_worker, &worker->start);
	ready(run);
	return 0;
}

/* ---- what cannot be sent ---- */

static void drop(struct lane *lane, enum drop why, struct vbn_buf **bufs, int n)
{
	vbn_count(&lane->drops[why], (uint64_t)n);
	vbn_buf_free(bufs, n);
}

/* None of them. */
static enum drop why_not_sent(int answer)
{
	switch (answer) {
	case 0: return DROP_TX_RING_FULL;
	case -EOPNOTSUPP: return DROP_NOT_SENDABLE; /* a file that is only read */
	default: return DROP_QUEUE_FAILED;
	}
}

void lane_send_rest(struct lane *lane, struct vbn_buf **bufs, int n, int got)
{
	int at = 0;

	for (;; got = vbn_send(lane->out->queue, bufs + at, n - at)) {
		if (got > 0) {
			at += got;
		} else if (got == -EMSGSIZE || got == -EINVAL) {
			drop(lane, DROP_NOT_SENDABLE, bufs + at++, 1);
		} else {
			drop(lane, why_not_sent(got), bufs + at, n - at);
			return;
		}
		if (at == n)
			return;
	}
}

__attribute__((cold)) int lane_end_burst(struct lane *lane, struct vbn_buf **bufs, int n)
{
	drop(lane, DROP_AT_THE_END, bufs, n);
	return 0;
}

__attribute__((cold)) void lane_look_for_end(const struct packet_worker *worker, struct lane *lane)
{
	struct vbn_port_info info;

	if (lane->ended)
		return;
	vbn_port_info(worker->run->devices[lane->device].port, &info);
	store_once(&lane->ended, !info.up);
}

bool files_have_ended(const struct packet_run *run)
{
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++)
			if (!load_once(&run->workers[w].lanes[i].ended))
				return false;
	return true;
}

void lane_failed(struct lane *lane)
{
	lane->failed = true;
	vbn_stop();
}
