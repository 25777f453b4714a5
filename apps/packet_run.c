/* packet_run.c - a run of a packet command from start to exit status, and the thread that tells the time */
#include "packet.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define TICK     (SECOND / 50) /* how often the monitor looks whether all is done */
#define LIVE     SECOND
#define COMES    (SECOND / 5) /* nothing came for so long: nothing more will */
#define NOT_MORE (2 * SECOND) /* and it is not waited longer for what does */

/* ---- the monitor ---- */

/* Until the moment, or the end of the run: true then. */
static bool sleep_until(struct packet_run *run, uint64_t ns)
{
	struct timespec at = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
	int err = 0;
	bool over;

	pthread_mutex_lock(&run->lock);
	while (!run->over && !err)
		err = pthread_cond_timedwait(&run->change, &run->lock, &at);
	over = run->over;
	pthread_mutex_unlock(&run->lock);
	return over;
}

/* All workers have their queues; false: the run is over before. */
static bool await_ready(struct packet_run *run)
{
	bool is;

	pthread_mutex_lock(&run->lock);
	while (!run->over && run->n_ready < run->n_workers)
		pthread_cond_wait(&run->change, &run->lock);
	is = !run->over;
	pthread_mutex_unlock(&run->lock);
	return is;
}

static bool is_done(const struct packet_run *run, uint64_t now)
{
	if (run->conf.duration && now - run->start_ns >= (uint64_t)run->conf.duration)
		return true;
	if (stop_signal() || (run->command->endless && files_have_ended(run)))
		return true;
	return run->command->is_done && run->command->is_done(run);
}

static uint64_t sum_messages(struct packet_run *run)
{
	struct vbn_worker_stats stats;
	uint64_t sum = 0;

	pthread_mutex_lock(&run->lock);
	for (int i = 0; i < run->n_workers; i++) {
		if (run->workers[i].gone)
			continue;
		vbn_worker_stats(run->workers[i].worker, &stats);
		sum += stats.messages;
	}
	pthread_mutex_unlock(&run->lock);
	return sum;
}

/* What has been handed to the queues is with their devices, or dropped. */
static bool all_is_sent(struct packet_run *run)
{
	bool is = true;

	pthread_mutex_lock(&run->lock);
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes && !run->workers[w].gone; i++) {
			struct vbn_queue_stats stats;

			vbn_queue_stats(run->workers[w].lanes[i].queue, &stats);
			is &= stats.tx_messages ==
				stats.tx_done + stats.tx_refused + stats.tx_flushed;
		}
	pthread_mutex_unlock(&run->lock);
	return is;
}

/* What a signal ends is not waited for: there may always be more of it. */
static bool has_come(struct packet_run *run)
{
	if (run->command->has_come)
		return run->command->has_come(run);
	return !files_have_ended(run) || all_is_sent(run);
}

/* Nothing new is sent; what is on its way may come. */
static void wind_down(struct packet_run *run)
{
	uint64_t began = now_ns(), last = began, now = began, before = sum_messages(run);

	run->stop_ns = began;
	store_once(&run->winding_down, true);
	while (!has_come(run) && now - last < COMES && now - began < NOT_MORE) {
		uint64_t seen;

		if (sleep_until(run, now + TICK / 4))
			return;
		seen = sum_messages(run);
		now = now_ns();
		if (seen != before)
			last = now;
		before = seen;
	}
	vbn_stop();
}

/* Known once they are built. */
static void note_groups(struct packet_run *run)
{
	struct vbn_mode modes[32];

	for (int i = 0; i < run->n_devices; i++) {
		const struct packet_device *device = &run->devices[i];
		int n = device->group ? vbn_rx_group_modes(device->group, modes, ARRAY_SIZE(modes))
				      : 0;

		mode_list_add(&run->modes, modes, n < 32 ? n : 32, device->info.name);
	}
}

static void *watch(void *arg)
{
	struct packet_run *run = arg;
	uint64_t now, live;
	char text[160];

	if (!await_ready(run))
		return NULL;
	devices_ready(run);
	note_groups(run);
	mode_list_print(&run->modes);
	devices_text(run, text);
	say("ready: %s%s%s", run->mode ? run->mode : "", run->mode ? " on " : "", text);
	store_once(&run->start_ns, now_ns());
	now = run->start_ns;
	live = now + LIVE;
	while (!is_done(run, now)) {
		uint64_t end = run->conf.duration ? run->start_ns + (uint64_t)run->conf.duration
						  : UINT64_MAX;

		if (sleep_until(run, now + TICK < end ? now + TICK : end))
			return NULL;
		now = now_ns();
		if (now < live)
			continue;
		pthread_mutex_lock(&run->lock);
		live_print(run, now);
		pthread_mutex_unlock(&run->lock);
		live = now + LIVE;
	}
	wind_down(run);
	return NULL;
}

/* Signals are for the thread that waits for the run. */
static int monitor_start(struct packet_run *run)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&run->monitor, NULL, watch, run);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err ? cannot("the thread that tells the time cannot be started: %s; raise ulimit -u",
			     strerror(err))
		   : 0;
}

static void monitor_stop(struct packet_run *run)
{
	pthread_mutex_lock(&run->lock);
	run->over = true;
	pthread_cond_broadcast(&run->change);
	pthread_mutex_unlock(&run->lock);
	pthread_join(run->monitor, NULL);
	say_live(NULL);
	if (run->start_ns && !run->stop_ns)
		run->stop_ns = now_ns();
}

/* ---- the run ---- */

static void cores_text(const struct packet_run *run, char *text, size_t size)
{
	size_t n = 0;

	for (int i = 0; i < run->n_workers && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%d", i ? "," : "", run->cores[i]);
}

static int cores_choose(struct packet_run *run)
{
	if (run->n_cores)
		return 0;
	run->n_cores = 1;
	return core_choose(run->devices[0].info.node, run->cores, run->cores_why);
}

static void note_options(struct packet_run *run)
{
	const struct packet_options *conf = &run->conf;
	struct vbn_mode modes[32];
	char asked[32], cores[64];

	cores_text(run, cores, sizeof(cores));
	mode_list_add_one(&run->modes, "cores", conf->cores ? conf->cores : "auto", cores,
		conf->cores ? "as asked" : run->cores_why);
	snprintf(asked, sizeof(asked), "%lld", (long long)conf->queues);
	mode_list_add_one(&run->modes, "queues", asked, asked, "of each device, to a worker");
	snprintf(asked, sizeof(asked), "%lld", (long long)conf->burst);
	mode_list_add_one(&run->modes, "burst", asked, asked, "frames at once, at most");
	for (int i = 0; i < run->n_devices; i++) {
		const struct packet_device *device = &run->devices[i];
		int n = vbn_port_modes(device->port, modes, ARRAY_SIZE(modes));

		mode_list_add(&run->modes, modes, n < 32 ? n : 32, device->info.name);
	}
}

static int capture_make(struct packet_run *run)
{
	const struct packet_options *conf = &run->conf;
	int status;

	if (!conf->pcap)
		return 0;
	status = capture_open(&run->capture, conf->pcap, (uint32_t)conf->snaplen);
	for (int i = 0; i < run->n_devices && !status; i++)
		capture_interface(
			run->capture, run->devices[i].info.name, run->devices[i].info.mac);
	for (int i = 0; i < run->n_workers && !status; i++) {
		run->workers[i].tap = capture_tap(run->capture);
		if (!run->workers[i].tap)
			status = cannot("%s cannot be captured to: there is no memory; give a "
					"smaller --snaplen",
				conf->pcap);
	}
	return status ? status : capture_start(run->capture);
}

/* 0 or -errno of what failed first. */
static int run_workers(struct packet_run *run)
{
	static char cores[MAX_CORES * 6];
	struct vbn_run_conf conf = {.cores = cores, .signals = VBN_OFF};

	cores_text(run, cores, sizeof(cores));
	return vbn_run(&conf, worker_setup, run);
}

static int report(struct packet_run *run, struct sink *json)
{
	int status;

	packet_result_take(run);
	if (json->file != stdout)
		packet_result_print(run);
	status = packet_result_verdict(run);
	if (json->path) {
		int written = json_finish(json, packet_result_json(run));

		status = status ? status : written;
	}
	return status;
}

static int execute(struct packet_run *run, struct sink *json)
{
	int status = monitor_start(run), err;

	if (status)
		return status;
	err = run_workers(run);
	monitor_stop(run);
	if (run->capture)
		status = capture_finish(run->capture);
	if (err < 0 && !stop_signal())
		return library_failed(err, "the run cannot be set up");
	err = report(run, json);
	return err ? err : status;
}

static int run_on_devices(struct packet_run *run)
{
	struct sink json;
	int status = cores_choose(run);

	if (!status)
		status = workers_make(run);
	if (!status)
		status = devices_group(run);
	if (!status)
		status = capture_make(run);
	if (!status)
		status = json_open(&json, run->conf.json);
	if (status)
		return status;
	note_options(run);
	status = execute(run, &json);
	if (json.path && json.file)
		sink_abandon(&json);
	return status;
}

static void defaults(struct packet_options *conf)
{
	conf->queues = conf->queues ? conf->queues : 1;
	conf->burst = conf->burst ? conf->burst : 32;
	conf->tx_depth = conf->tx_depth ? conf->tx_depth : 1024;
	conf->rx_depth = conf->rx_depth ? conf->rx_depth : 1024;
	conf->snaplen = conf->snaplen ? conf->snaplen : 9216;
}

static void run_init(struct packet_run *run)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&run->lock, NULL);
	pthread_cond_init(&run->change, &monotonic);
	pthread_condattr_destroy(&monotonic);
	mode_list_init(&run->modes);
	defaults(&run->conf);
}

int packet_begin(const struct command *command, int argc, char **argv, struct packet_run *run,
	void *conf, uint64_t *given)
{
	stop_signals_take();
	run->own = conf;
	return options_parse(command, argc, argv, conf, given, NULL);
}

uint64_t packet_own_sum(const struct packet_run *run, size_t offset)
{
	uint64_t sum = 0;

	for (int i = 0; i < run->n_workers; i++) {
		const char *own = run->workers[i].own;

		sum += own ? load_once((const uint64_t *)(const void *)(own + offset)) : 0;
	}
	return sum;
}

int packet_execute(struct packet_run *run)
{
	int status = 0;

	run->conf = *(const struct packet_options *)run->own;
	run_init(run);
	if (run->conf.cores)
		status = cores_take(run->conf.cores, run->cores, &run->n_cores);
	if (!status)
		status = files_check(run);
	if (!status)
		status = devices_before_library(run);
	if (!status)
		status = cmd_library_start();
	if (status)
		return status;
	status = devices_open(run);
	if (!status && run->command->prepare)
		status = run->command->prepare(run);
	if (!status)
		status = run_on_devices(run);
	if (run->command->free_workers)
		run->command->free_workers(run);
	if (run->command->unprepare)
		run->command->unprepare(run);
	capture_destroy(run->capture);
	devices_close(run);
	workers_free(run);
	mode_list_free(&run->modes);
	vbn_fini();
	return status;
}
