/* msgrate_run.c - runs from start to exit status: one, a sweep of sizes, one after another for who
 * connects */
#include "msgrate.h"

#include <stdlib.h>
#include <time.h>

#define DEFAULT_DEPTH     1024
#define DEFAULT_POST_LIST 64
#define DEFAULT_CQ_MOD    64
#define RING_MEMORY       (32ll << 20) /* of a worker's rings of bufs, that default depths keep to */

/* ---- what the port decides ---- */

static int too_large(
	const char *option, int64_t value, uint64_t most, const char *what, const struct run *run)
{
	return usage_error(
		"option --%s cannot be %lld: port %s has %s of at most %llu; give no more", option,
		(long long)value, run->port_info.name, what, (unsigned long long)most);
}

/* Those that the port decides; of a sweep before its first run. */
static int check_port(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	const struct vbn_port_info *port = &run->port_info;
	int64_t mtu = conf->mtu ? conf->mtu : port->mtu;
	int64_t size = conf->size > conf->last_size ? conf->size : conf->last_size;

	if (port->max_message && (uint64_t)size > port->max_message)
		return too_large("size", size, port->max_message, "messages", run);
	if (conf->connection == VBN_UD && size > mtu)
		return too_large("size", size, (uint64_t)mtu, "datagrams", run);
	if (port->max_depth && conf->tx_depth > port->max_depth)
		return too_large("tx-depth", conf->tx_depth, port->max_depth, "rings", run);
	if (port->max_depth && conf->rx_depth > port->max_depth)
		return too_large("rx-depth", conf->rx_depth, port->max_depth, "rings", run);
	return 0;
}

/* A ring of the default depth is made shallower for messages that would fill the memory. */
static int64_t default_depth(const struct run *run)
{
	int64_t each = (run->conf.size + 128) * run->conf.queues, depth = DEFAULT_DEPTH;

	while (depth > 1 && depth * each > RING_MEMORY)
		depth /= 2;
	if (run->port_info.max_depth && depth > run->port_info.max_depth)
		depth = run->port_info.max_depth;
	return depth;
}

/* Sets a depth that was not given, and says what it is. */
static void settle_depth(struct run *run, int64_t *depth, const char *name)
{
	int64_t given = *depth;

	if (!given)
		*depth = default_depth(run);
	note_number(run, name, given, *depth,
		given ? "as asked"
			: *depth == DEFAULT_DEPTH
			? "the default"
			: "less than the default 1024, for the memory of messages of this size");
}

/* Sets what may be at most a ring's depth. */
static int settle_part(
	struct run *run, int64_t *value, int64_t otherwise, const char *option, const char *name)
{
	int64_t given = *value, depth = run->conf.tx_depth;

	if (given > depth)
		return cannot(
			"option --%s cannot be %lld: the send ring holds %lld messages; give at most that, or a "
			"larger --tx-depth",
			option, (long long)given, (long long)depth);
	*value = given ? given : otherwise < depth ? otherwise : depth;
	if (name) /* else the queues say it */
		note_number(run, name, given, *value,
			given                         ? "as asked"
				: *value == otherwise ? "the default"
						      : "no more than the ring holds");
	return 0;
}

static int settle_rings(struct run *run)
{
	struct msgrate_options *conf = &run->conf;
	int status;

	settle_depth(run, &conf->tx_depth, "tx_depth");
	settle_depth(run, &conf->rx_depth, "rx_depth");
	status = settle_part(run, &conf->post_list, DEFAULT_POST_LIST, "post-list", "post_list");
	if (!status)
		status = settle_part(run, &conf->cq_mod, DEFAULT_CQ_MOD, "cq-mod", NULL);
	return status;
}

/* ---- the run ---- */

/* 0 or -errno of the first thing that failed. */
static int run_workers(struct run *run)
{
	static char cores[MAX_CORES * 6];
	struct vbn_run_conf conf = {.cores = cores, .signals = VBN_OFF};
	int err;

	cores_text(run, cores, sizeof(cores));
	err = vbn_run(&conf, side_setup, run);
	return err < 0 && run->meeting.error ? run->meeting.error : err;
}

static void say_failures(const struct run *run)
{
	int told = 0, failed = 0;

	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];

		failed += end->failed;
		if (*end->error && told++ < 4)
			say("%s", end->error);
	}
	if (failed > 4)
		say("%d queues have failed: those above are the first of them", failed);
}

static int verdict(const struct run *run, const struct result *result)
{
	bool may_lose = run->conf.allow_loss && run->conf.connection != VBN_RC;

	if (stop_signal())
		return STATUS_STOPPED;
	if (run->other && run->other->lost) {
		other_say_loss(run->other);
		return STATUS_NO_PEER;
	}
	if ((result->lost && !may_lose) || result->corrupt || result->duplicate ||
		result->reordered || result->failed_queues)
		return STATUS_LOST;
	if (!result->received)
		say("no message got through: nothing was received while the run lasted; give it longer, or look at "
		    "verbena devices");
	else if (!result->messages)
		say("no message was done within the %.3f s that count, and %llu in the whole run: give it a longer "
		    "--duration, or --iters",
			result->seconds, (unsigned long long)result->received);
	return result->received ? STATUS_DONE : STATUS_LOST;
}

/* The result of one run, which the sink of all of them takes. */
static int report(struct run *run, struct runs *runs)
{
	struct result result;
	int status = 0;

	result_take(run, &result);
	result_notes(run, &result);
	if (runs->page)
		page_add(runs->page, run, result_json(run, &result));
	if (run->conf.aside)
		return 0;
	say_failures(run);
	if (runs->sink.file != stdout) {
		if (runs->n++)
			putchar('\n');
		result_print(run, &result);
		status = output_check(0);
	}
	if (runs->sink.path || runs->page)
		json_array_append_new(runs->results, result_json(run, &result));
	return status ? status : verdict(run, &result);
}

/* One that is stopped while it is set up has results, too: nothing was sent. */
static int execute(struct run *run, struct runs *runs)
{
	int status, err;

	run->phase = run->other ? PHASE_HOLD : run->conf.warmup ? PHASE_WARM : PHASE_COUNT;
	status = monitor_start(run);
	if (status)
		return status;
	err = run_workers(run);
	monitor_stop(run);
	if (err < 0 && run->other && run->other->lost && !stop_signal()) {
		other_say_loss(run->other);
		return STATUS_NO_PEER;
	}
	if (err < 0 && !stop_signal())
		return library_failed(err, "the run cannot be set up");
	return report(run, runs);
}

static void run_init(struct run *run)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&run->lock, NULL);
	mode_list_init(&run->modes);
	pthread_mutex_init(&run->meeting.lock, NULL);
	pthread_cond_init(&run->over_change, &monotonic);
	pthread_cond_init(&run->meeting.change, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Ports of two kinds never meet. */
static int check_links(const struct run *run)
{
	const char *here = run->port_info.name;

	if (run->other->link == (int)run->port_info.link)
		return 0;
	if (run->other->link == VBN_LINK_HOST)
		return cannot(
			"the two ends cannot meet: the other end is on shm and this one on %s: give both "
			"--device shm, or neither",
			here);
	if (run->port_info.link == VBN_LINK_HOST)
		return cannot(
			"the two ends cannot meet: this end is on %s and the other one on a network "
			"device: give both --device shm, or neither",
			here);
	return cannot("the two ends cannot meet: %s is of another kind of network than the other "
		      "end's port: give each a --device of one kind, as verbena devices shows them",
		here);
}

/* What the connecting process asks and this one answers. */
static int agree(struct run *run)
{
	int err;

	if (!run->other)
		return 0;
	err = run->other->leads ? other_offer(run) : other_accept(run);
	if (!err)
		return check_links(run);
	if (stop_signal())
		return STATUS_STOPPED;
	other_say_loss(run->other);
	return STATUS_NO_PEER;
}

/* `run` is fresh, but for its options, port and cores. */
static int run_one(struct run *run, struct runs *runs)
{
	struct samples samples = {0};
	int status = check_port(run);

	run->began_ns = runs->n_begun++ || run->conf.listen ? now_ns() : cmd_started_ns;
	if (!status)
		status = device_check(run);
	run_init(run);
	if (run->other)
		run->other->ended = run->other->ended_early = run->other->told = false;
	if (runs->page)
		run->samples = &samples;
	if (!status && (!run->other || run->other->leads))
		status = settle_rings(run);
	if (!status)
		status = sides_make(run);
	if (!status)
		status = agree(run);
	if (!status) {
		note_options(run);
		status = execute(run, runs);
	}
	free(samples.rows);
	mode_list_free(&run->modes);
	sides_free(run);
	return status;
}

/* ---- several runs ---- */

/* The worst of two: what came first, of equals. */
static int worse(int one, int other)
{
	return one ? one : other;
}

static int64_t next_size(int64_t size, int64_t last)
{
	int64_t next = 1;

	while (next <= size)
		next *= 2;
	return size == last || next > last ? last : next;
}

/* A run for each size. One that cannot be, or that is stopped, is the last one. */
static int sweep(const struct run *all, struct runs *runs)
{
	int64_t size = all->conf.size, last = all->conf.last_size;
	int status = 0, one;

	for (;; size = next_size(size, last)) {
		struct run *run = &runs->run;

		*run = *all;
		run->conf.size = size;
		if (size != all->conf.size && !stop_signal())
			run->chosen[0] = 0;
		one = run_one(run, runs);
		status = worse(status, one);
		if (size == last || one > STATUS_LOST)
			return status;
	}
}

/* A report has a latency curve, too: a second of one message at a time. */
static int latency_aside(const struct run *all, struct runs *runs)
{
	struct run *run = &runs->run;
	struct msgrate_options *conf = &run->conf;

	*run = *all;
	run->chosen[0] = 0;
	conf->latency = conf->aside = true;
	conf->bidirectional = op_is_received((enum msg_op)conf->op) || conf->op == OP_WRITE;
	conf->verify = false;
	conf->iters = conf->rate = 0;
	conf->duration = SECOND;
	conf->warmup = SECOND / 10;
	if (conf->op == OP_WRITE && !conf->size)
		conf->size = 1;
	say("for the report: the latency of one message at a time, 1 s");
	return run_one(run, runs);
}

/* All that was asked for, and what the report needs besides. */
static int sweep_and_report(const struct run *all, struct runs *runs)
{
	int status = sweep(all, runs);

	if (runs->page && !all->conf.latency && status <= STATUS_LOST && !stop_signal())
		status = worse(status, latency_aside(all, runs));
	return stop_signal() ? STATUS_STOPPED : status;
}

/* Runs for one peer, until it has had all that it wants. */
static int serve_peer(const struct run *all, struct runs *runs)
{
	int status = 0;

	for (int n = 0;; n++) {
		struct run *run = &runs->run;
		int one;

		*run = *all;
		if (other_take(run)) {
			if (n && vbn_session_status(run->other->session) == -ENOTCONN)
				return status;
			if (stop_signal())
				return STATUS_STOPPED;
			other_say_loss(run->other);
			return worse(status, STATUS_NO_PEER);
		}
		one = run_one(run, runs);
		status = worse(status, one);
		if (one > STATUS_LOST)
			return status;
	}
}

/* What the other process is told of a run that this one cannot have; NULL: nothing. */
static const char *refusal(const char *side, int status, char text[256])
{
	const char *why = last_failure();

	if (status != STATUS_CANNOT && status != STATUS_USAGE)
		return NULL;
	snprintf(text, 256, "the %s side cannot run this: %s", side,
		*why ? why : "its own output says why");
	return text;
}

static int serve(const struct run *all, struct runs *runs)
{
	struct other *other = all->other;
	int status = other_listen(other, all->conf.listen), one;
	char text[256];

	if (status)
		return status;
	do {
		one = other_wait(other);
		if (!one) {
			one = serve_peer(all, runs);
			other_part(other, refusal("listening", one, text));
		}
		status = all->conf.keep && one == STATUS_NO_PEER ? status : worse(status, one);
	} while (all->conf.keep && !stop_signal());
	vbn_session_unlisten(other->listener);
	return stop_signal() ? STATUS_STOPPED : status;
}

static int lead(const struct run *all, struct runs *runs)
{
	int status = other_connect(all->other, all->conf.connect);
	char text[256];

	if (status)
		return status;
	status = sweep_and_report(all, runs);
	other_part(all->other, refusal("connecting", status, text));
	return status;
}

/* One result as it is; several as a list of them. */
static json_t *results_json(struct runs *runs, bool several)
{
	if (!several && json_array_size(runs->results) == 1)
		return json_incref(json_array_get(runs->results, 0));
	return json_pack("{s:s, s:O}", "tool", tool_name(&runs->run), "runs", runs->results);
}

static int runs_on_port(struct run *all, struct runs *runs)
{
	bool several = all->conf.size != all->conf.last_size;
	int status = cores_choose(all);

	if (!status)
		status = json_open(&runs->sink, all->conf.json);
	if (status)
		return status;
	status = sink_open(&runs->report, "report", all->conf.report);
	if (status) {
		if (runs->sink.file)
			sink_abandon(&runs->sink);
		return status;
	}
	runs->results = json_array();
	if (all->conf.report)
		runs->page = page_create();
	if (all->conf.listen)
		status = serve(all, runs);
	else if (all->conf.connect)
		status = lead(all, runs);
	else
		status = sweep_and_report(all, runs);
	if (runs->sink.path && json_array_size(runs->results) &&
		json_finish(&runs->sink, results_json(runs, several)))
		status = STATUS_CANNOT;
	if (runs->sink.file)
		sink_abandon(&runs->sink);
	if (runs->page && json_array_size(runs->results) &&
		sink_finish(&runs->report, page_write(runs->report.file, runs->page)))
		status = STATUS_CANNOT;
	if (runs->report.file)
		sink_abandon(&runs->report);
	page_destroy(runs->page);
	json_decref(runs->results);
	return status;
}

int runs_execute(struct run *all)
{
	static struct runs runs;
	static struct other other;
	int status = device_open(all);

	if (status)
		return status;
	if (all->conf.listen || all->conf.connect)
		all->other = &other;
	status = runs_on_port(all, &runs);
	vbn_port_close(all->port);
	return status;
}
