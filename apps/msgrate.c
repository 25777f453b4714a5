/* msgrate.c - `verbena msgrate`: options and their checks, the run from start to exit status */
#include "msgrate.h"

#include <stdlib.h>

#define DAY               (86400 * SECOND)

#define DEFAULT_DEPTH     1024
#define DEFAULT_POST_LIST 64
#define DEFAULT_CQ_MOD    64
#define RING_MEMORY       (32ll << 20) /* of a worker's rings of bufs, that default depths keep to */

#define VALUE(field)      offsetof(struct msgrate_options, field)

static const struct option options[] = {
	{"device", "NAME", VALUE_TEXT, VALUE(device), 0, 0, NULL,
		"an RDMA device, as mlx5_0, or vhca, an emulated one\n(the best real port there is, else vhca)"},
	{"cores", "LIST", VALUE_TEXT, VALUE(cores), 0, 0, NULL,
		"as 0,2-3; one worker each, in pairs: the first sends\nto the second (two near the device; one where this\nprocess may use no more than two)"},
	{"connection", "TYPE", VALUE_WORD, VALUE(connection), 0, 0, "rc", "transport: rc (rc)"},
	{"op", "OP", VALUE_WORD, VALUE(op), 0, 0, "send write", "send or write (send)"},
	{"size", "BYTES", VALUE_SIZE, VALUE(size), 0, 1ll << 40, NULL, "of a message (64)"},
	{"queues", "N", VALUE_COUNT, VALUE(queues), 1, 4096, NULL,
		"queues of a worker to its peer (1)"},
	{"tx-depth", "N", VALUE_POW2, VALUE(tx_depth), 1, 1 << 20, NULL,
		"messages in flight on a queue; a power of two (1024)"},
	{"rx-depth", "N", VALUE_POW2, VALUE(rx_depth), 1, 1 << 20, NULL,
		"receives posted on a queue; a power of two (1024)"},
	{"post-list", "N", VALUE_COUNT, VALUE(post_list), 1, 32768, NULL,
		"messages to a doorbell (64)"},
	{"cq-mod", "N", VALUE_POW2, VALUE(cq_mod), 1, 32768, NULL,
		"sends to a completion; a power of two (64)"},
	{"inline-size", "N", VALUE_SIZE, VALUE(inline_size), 0, 960, NULL,
		"messages of up to so many bytes go into the WQE; at most\n960 (the library's choice)"},
	{"duration", "T", VALUE_TIME, VALUE(duration), SECOND / 1000, 365 * DAY, NULL,
		"how long (10 s)"},
	{"iters", "N", VALUE_COUNT, VALUE(iters), 1, 1000000000000000, NULL,
		"instead of a time: messages per queue, all of which\ncount; there is no warm-up unless asked for"},
	{"warmup", "T", VALUE_TIME, VALUE(warmup), 0, DAY, NULL,
		"time before that is not counted (0.2 s)"},
	{"bidirectional", NULL, VALUE_FLAG, VALUE(bidirectional), 0, 0, NULL,
		"each queue sends and receives"},
	{"rate", "N", VALUE_COUNT, VALUE(rate), 1, 1000000000000, NULL,
		"messages per second in all, at most: what could not go in\ntime is not made up for (unlimited)"},
	{"mtu", "N", VALUE_POW2, VALUE(mtu), 256, 4096, NULL, "path MTU (the port's)"},
	{"gid-index", "N", VALUE_COUNT, VALUE(gid_index), 0, 65535, NULL,
		"source GID (RoCE v2 with a routable address first)"},
	{"one-worker", NULL, VALUE_FLAG, VALUE(one_worker), 0, 0, NULL,
		"both ends on one worker, for each core"},
	{"verify", NULL, VALUE_FLAG, VALUE(verify), 0, 0, NULL,
		"number each message, fill it with a pattern, check both:\neach message that is received; of writes, which nobody\nreceives, the last one in each slot of the target's memory,\nat the end. Without it only losses are known"},
	{"json", "FILE", VALUE_TEXT, VALUE(json), 0, 0, NULL,
		"write the result as one JSON object; - is standard\noutput, which then has nothing else"},
};
static_assert(ARRAY_SIZE(options) <= 64, "a bit for each that is given");

static const struct command command = {
	.name = "msgrate",
	.usage = "[options]",
	.summary =
		"Sends messages from one worker to another in this process, through an RDMA device, as fast as it goes:\n"
		"messages per second, what was lost, what each message cost.",
	.more = "Sizes take KiB, MiB, GiB; counts k, M, G; times us, ms, s. Each option is given at most once.\n"
		"--vbn-page-size=plain|transparent|2M|1G and --vbn-log=LEVEL are the library's own options.\n"
		"\n"
		"examples:\n"
		"  verbena msgrate\n"
		"                           64-byte messages for 10 s\n"
		"  verbena msgrate --duration 3 --verify --json -\n"
		"                           every message checked; the result for a script\n"
		"  verbena msgrate --device vhca --op write --size 4KiB --iters 1M\n"
		"                           a million RDMA writes on the emulated ConnectX\n"
		"  verbena msgrate --cores 2-5 --queues 4 --bidirectional\n"
		"                           cores 2 and 3, and 4 and 5, in both directions\n"
		"\n"
		"`messages` and msg/s are of the window that counts; `sent`, `received` and `lost` are of the whole run, its\n"
		"warm-up and its end included. JSON has null for what was not checked, and, behind the keys that are always\n"
		"there in their order, `stopped` and `errors`, a sentence for each queue that failed.\n"
		"\n"
		"exit status: 0 nothing lost; 1 something was lost, corrupt, doubled, reordered, a queue failed, or nothing\n"
		"got through; 2 usage; 3 cannot run here; 130 stopped by SIGINT or SIGTERM, with the results so far.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* ---- checks ---- */

bool asked(const struct run *run, const char *option)
{
	return option_given(&command, run->given, option);
}

/* Those that need no device. */
static int check_options(struct run *run)
{
	struct msgrate_options *conf = &run->conf;

	if (asked(run, "duration") && asked(run, "iters"))
		return usage_error(
			"options --duration and --iters contradict each other: give the one that ends the run");
	if (conf->verify && asked(run, "size") && conf->size < PATTERN_MIN_SIZE)
		return usage_error(
			"option --size cannot be %lld with --verify: the number and check of a message take "
			"%u bytes; give at least %u, or leave --verify out",
			(long long)conf->size, PATTERN_MIN_SIZE, PATTERN_MIN_SIZE);
	conf->inline_given = asked(run, "inline-size");
	conf->gid_given = asked(run, "gid-index");
	if (!asked(run, "size"))
		conf->size = 64;
	if (!conf->queues)
		conf->queues = 1;
	if (!conf->duration)
		conf->duration = 10 * SECOND;
	if (!asked(run, "warmup"))
		conf->warmup = conf->iters ? 0 : SECOND / 5;
	return 0;
}

static int too_large(
	const char *option, int64_t value, uint64_t most, const char *what, const struct run *run)
{
	return usage_error(
		"option --%s cannot be %lld: port %s has %s of at most %llu; give no more", option,
		(long long)value, run->port_info.name, what, (unsigned long long)most);
}

/* Those that the port decides. */
static int check_port(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	const struct vbn_port_info *port = &run->port_info;

	if (port->max_message && (uint64_t)conf->size > port->max_message)
		return too_large("size", conf->size, port->max_message, "messages", run);
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

	while (depth > 16 && depth * each > RING_MEMORY)
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

/* ---- sides and ends ---- */

static int pair_of(const struct run *run, int core)
{
	return run->conf.one_worker ? core : core / 2;
}

/* Links n ends of a side to as many of its peer's, from the given places on. Streams are numbered
 * by the sending end. */
static void link_ends(struct run *run, struct side *a, int at_a, struct side *b, int at_b, int n)
{
	for (int i = 0; i < n; i++) {
		struct end *sender = &a->ends[at_a + i], *receiver = &b->ends[at_b + i];

		sender->side = a;
		receiver->side = b;
		sender->peer = receiver;
		receiver->peer = sender;
		sender->sends = receiver->receives = true;
		sender->receives = receiver->sends = run->conf.bidirectional;
		sender->stream = (uint32_t)(sender - run->ends) + 1;
		receiver->stream = (uint32_t)(receiver - run->ends) + 1;
		run->n_senders += run->conf.bidirectional ? 2 : 1;
	}
}

/* Cores pair up in their order; one that is left over, and each with --one-worker, has both ends.
 */
static void lay_out(struct run *run)
{
	int n = (int)run->conf.queues, used = 0;

	for (int i = 0; i < run->n_sides; i++) {
		struct side *side = &run->sides[i];
		bool first = i == 0 || pair_of(run, i) != pair_of(run, i - 1);
		bool alone =
			first && (i + 1 == run->n_sides || pair_of(run, i + 1) != pair_of(run, i));

		side->run = run;
		side->index = i;
		side->ends = run->ends + used;
		side->n_ends = alone ? 2 * n : n;
		used += side->n_ends;
		if (alone)
			link_ends(run, side, 0, side, n, n);
		else if (!first)
			link_ends(run, side - 1, 0, side, 0, n);
	}
}

static void *zalloc_aligned(size_t n, size_t size)
{
	void *memory = aligned_alloc(64, n * size);

	return memory ? memset(memory, 0, n * size) : NULL;
}

static int make_sides(struct run *run)
{
	size_t most = 2 * (size_t)run->conf.queues * (size_t)run->n_cores;

	run->n_sides = run->n_cores;
	run->sides = zalloc_aligned((size_t)run->n_sides, sizeof(*run->sides));
	run->ends = zalloc_aligned(most, sizeof(*run->ends));
	if (!run->sides || !run->ends)
		return cannot(
			"the run cannot be laid out: there is no memory for %zu queues; give fewer --queues",
			most);
	lay_out(run);
	for (int i = 0; i < run->n_sides; i++)
		run->n_ends += run->sides[i].n_ends;
	return 0;
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

static int verdict(const struct result *result)
{
	if (stop_signal())
		return STATUS_STOPPED;
	if (result->lost || result->corrupt || result->duplicate || result->reordered ||
		result->failed_queues)
		return STATUS_LOST;
	if (!result->received)
		say("no message got through: nothing was received while the run lasted; give it longer, or look at "
		    "verbena devices");
	return result->received ? STATUS_DONE : STATUS_LOST;
}

static int report(struct run *run, struct json_sink *sink)
{
	struct result result;
	int status = 0;

	result_take(run, &result);
	result_notes(run, &result);
	say_failures(run);
	if (sink->file != stdout) {
		result_print(run, &result);
		status = output_check(0);
	}
	if (sink->path && json_finish(sink, result_json(run, &result)))
		status = STATUS_CANNOT;
	return status ? status : verdict(&result);
}

/* One that is stopped while it is set up has results, too: nothing was sent. */
static int execute(struct run *run, struct json_sink *sink)
{
	int status, err;

	run->phase = run->conf.warmup ? PHASE_WARM : PHASE_COUNT;
	status = monitor_start(run);
	if (status)
		return status;
	err = run_workers(run);
	monitor_stop(run);
	if (err < 0 && !stop_signal())
		return library_failed(err, "the run cannot be set up");
	return report(run, sink);
}

/* With the library started and the port open. */
static int run_on_port(struct run *run)
{
	struct json_sink sink;
	int status = check_port(run);

	if (!status)
		status = settle_rings(run);
	if (!status)
		status = cores_choose(run);
	if (!status)
		status = make_sides(run);
	if (!status)
		status = json_open(&sink, run->conf.json);
	if (status)
		return status;
	note_options(run);
	status = execute(run, &sink);
	if (sink.file)
		json_abandon(&sink);
	return status;
}

static int run_with_library(struct run *run)
{
	int status = device_open(run);

	if (status)
		return status;
	status = run_on_port(run);
	vbn_port_close(run->port);
	return status;
}

static void run_init(struct run *run)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&run->lock, NULL);
	pthread_mutex_init(&run->modes_lock, NULL);
	pthread_mutex_init(&run->meeting.lock, NULL);
	pthread_cond_init(&run->over_change, &monotonic);
	pthread_cond_init(&run->meeting.change, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int cmd_msgrate(int argc, char **argv)
{
	static struct run run;
	int status;

	stop_signals_take();
	status = options_parse(&command, argc, argv, &run.conf, &run.given, NULL);
	if (status != OPTIONS_OK)
		return status;
	run_init(&run);
	status = check_options(&run);
	if (!status)
		status = cores_parse(&run);
	if (!status)
		status = device_before_library(&run);
	if (!status)
		status = cmd_library_start();
	if (status)
		return status;
	status = run_with_library(&run);
	vbn_fini();
	free(run.modes);
	free(run.ends);
	free(run.sides);
	return status;
}
