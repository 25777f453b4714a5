/* msgrate.c - `verbena msgrate`: options and their checks, the run from start to exit status */
#include "msgrate.h"

#include <stdlib.h>

#define DAY          (86400 * SECOND)

#define VALUE(field) offsetof(struct msgrate_options, field)

static const struct option options[] = {
	{"device", "NAME", VALUE_TEXT, VALUE(device), 0, 0, NULL,
		"an RDMA device, as mlx5_0; vhca, an emulated one; or\nshm, memory of this host (the best real port there is,\nelse vhca)"},
	{"cores", "LIST", VALUE_TEXT, VALUE(cores), 0, 0, NULL,
		"as 0,2-3; one worker each, in pairs: the first sends\nto the second (two near the device; one where this\nprocess may use no more than two)"},
	{"connection", "TYPE", VALUE_WORD, VALUE(connection), 0, 0, CONNECTION_WORDS,
		"transport: rc, uc or ud (rc)"},
	{"op", "OP", VALUE_WORD, VALUE(op), 0, 0, OP_WORDS,
		"send, send-imm, write, write-imm, read, fetch-add or\ncmp-swap (send); uc has no read and no atomics, ud sends\nonly"},
	{"size", "BYTES", VALUE_RANGE, VALUE(size), 0, 1ll << 40, NULL,
		"of a message (64; 8 of atomics, always); A-B is a run\nfor each power of two between, and for both ends"},
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
	{"listen", "ADDR:PORT", VALUE_TEXT, VALUE(listen), 0, 0, NULL,
		"wait for another process, on this host or another, that\nconnects here and decides what is run; [v6]:PORT, :PORT"},
	{"connect", "ADDR:PORT", VALUE_TEXT, VALUE(connect), 0, 0, NULL,
		"the process that listens, tried for 5 s"},
	{"keep", NULL, VALUE_FLAG, VALUE(keep), 0, 0, NULL,
		"with --listen: serve one run after another, until stopped"},
	{"one-worker", NULL, VALUE_FLAG, VALUE(one_worker), 0, 0, NULL,
		"both ends on one worker, for each core"},
	{"verify", NULL, VALUE_FLAG, VALUE(verify), 0, 0, NULL,
		"number each message, fill it with a pattern, check both:\neach message that is received; of writes, which nobody\nreceives, the last one in each slot of the target's memory,\nat the end; of reads and atomics each answer. Without it\nonly losses are known"},
	{"allow-loss", NULL, VALUE_FLAG, VALUE(allow_loss), 0, 0, NULL,
		"with uc and ud: messages that are lost are no failure"},
	{"json", "FILE", VALUE_TEXT, VALUE(json), 0, 0, NULL,
		"write the result as one JSON object; - is standard\noutput, which then has nothing else"},
	{"report", "FILE.html", VALUE_TEXT, VALUE(report), 0, 0, NULL,
		"write a page with charts: the rate over time, the latency\n(a second more, for it), sizes where there are several"},
};
static_assert(ARRAY_SIZE(options) <= 64, "a bit for each that is given");

static const struct command command = {
	.name = "msgrate",
	.usage = "[options]",
	.summary =
		"Sends messages from one worker to another, of this process or of two, through an RDMA device, as fast as\n"
		"it goes: messages per second, what was lost, what each message cost.",
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
		"  verbena msgrate --op read --size 64-1MiB --duration 1\n"
		"                           RDMA reads, a run of a second for each size\n"
		"  verbena msgrate --listen :7471         and elsewhere\n"
		"  verbena msgrate --connect HOST:7471 --connection ud --verify\n"
		"                           datagrams between two processes or hosts\n"
		"\n"
		"`messages` and msg/s are of the window that counts; `sent`, `received` and `lost` are of the whole run, its\n"
		"warm-up and its end included. JSON has null for what was not checked, and, behind the keys that are always\n"
		"there in their order, `stopped` and `errors`, a sentence for each queue that failed. Several runs are an\n"
		"object with `runs`.\n"
		"\n"
		"exit status: 0 nothing lost; 1 something was lost, corrupt, doubled, reordered, a queue failed, or nothing\n"
		"got through; 2 usage; 3 cannot run here; 4 the other process was not reached, or was lost; 130 stopped by\n"
		"SIGINT or SIGTERM, with the results so far.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* The same options, but for those that say how many messages are on their way. */
static const struct command latency_command = {
	.name = "latency",
	.usage = "[options]",
	.summary =
		"Sends one message at a time between two workers, of this process or of two, through an RDMA device, and\n"
		"waits for the answer: half of the round trip, in percentiles and drawn. Of a read and an atomic it is the\n"
		"whole operation.",
	.more = "Sizes take KiB, MiB, GiB; counts k, M, G; times us, ms, s. Each option is given at most once.\n"
		"\n"
		"examples:\n"
		"  verbena latency\n"
		"                           64-byte messages for 10 s\n"
		"  verbena latency --op read --size 8-4KiB --duration 1\n"
		"                           reads, a run of a second for each size\n"
		"  verbena latency --listen :7471         and elsewhere\n"
		"  verbena latency --connect HOST:7471 --op write --json -\n"
		"                           writes that the other end polls for in memory\n"
		"\n"
		"JSON is msgrate's, with `percentiles` in ns behind it; messages go both ways.\n"
		"\n"
		"exit status: as msgrate's.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.without = "tx-depth rx-depth post-list cq-mod bidirectional",
};

/* ---- checks ---- */

bool asked(const struct run *run, const char *option)
{
	return option_given(&command, run->given, option);
}

/* What the connecting process decides. */
static int check_listening(const struct run *run)
{
	static const char *const decided[] = {"connection", "op", "size", "queues", "tx-depth",
		"rx-depth", "post-list", "cq-mod", "duration", "iters", "warmup", "bidirectional",
		"rate", "verify"};

	for (size_t i = 0; i < ARRAY_SIZE(decided); i++)
		if (asked(run, decided[i]))
			return usage_error(
				"options --listen and --%s contradict each other: the process that "
				"connects decides; give --%s there",
				decided[i], decided[i]);
	return 0;
}

static int check_roles(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;

	if (conf->listen && conf->connect)
		return usage_error(
			"options --listen and --connect contradict each other: give one of them to "
			"each process");
	if ((conf->listen || conf->connect) && conf->one_worker)
		return usage_error(
			"options --one-worker and --%s contradict each other: the two ends are in "
			"two processes",
			conf->listen ? "listen" : "connect");
	if (conf->keep && !conf->listen)
		return usage_error(
			"option --keep is for a process that listens: give --listen, too");
	return conf->listen ? check_listening(run) : 0;
}

static int check_operation(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	const enum msg_op op = (enum msg_op)conf->op;

	if (conf->connection == VBN_UD && op_has_target(op))
		return usage_error(
			"options --connection ud and --op contradict each other: datagrams are only "
			"sent; give --op send or send-imm");
	if (conf->connection == VBN_UC && (op == OP_READ || op_is_atomic(op)))
		return usage_error(
			"options --connection uc and --op contradict each other: an unreliable "
			"connection carries no answers; give --connection rc");
	if (op_is_atomic(op) && asked(run, "size") &&
		(conf->size != ATOMIC_SIZE || conf->last_size != ATOMIC_SIZE))
		return usage_error(
			"option --size contradicts --op: atomics are of %d bytes; leave --size out",
			ATOMIC_SIZE);
	if (conf->latency && op == OP_WRITE && conf->verify)
		return usage_error(
			"options --verify and --op write contradict each other: the last byte of a "
			"write says that it has come; leave --verify out");
	if (conf->latency && op == OP_WRITE && asked(run, "size") && !conf->size)
		return usage_error(
			"option --size cannot be 0 with --op write: the last byte of a write says "
			"that it has come; give at least 1");
	if (conf->allow_loss && conf->connection == VBN_RC && !conf->listen)
		return usage_error(
			"option --allow-loss is for --connection uc and ud: a reliable connection "
			"loses nothing");
	return 0;
}

/* Those that need no device. */
static int check_options(struct run *run)
{
	struct msgrate_options *conf = &run->conf;
	int status = check_roles(run);

	if (!status)
		status = check_operation(run);
	if (status)
		return status;
	if (asked(run, "duration") && asked(run, "iters"))
		return usage_error(
			"options --duration and --iters contradict each other: give the one that ends the run");
	if (conf->verify && asked(run, "size") && conf->size < PATTERN_MIN_SIZE &&
		!op_is_atomic((enum msg_op)conf->op))
		return usage_error(
			"option --size cannot be %lld with --verify: the number and check of a message take "
			"%u bytes; give at least %u, or leave --verify out",
			(long long)conf->size, PATTERN_MIN_SIZE, PATTERN_MIN_SIZE);
	if (conf->report && !strcmp(conf->report, "-"))
		return usage_error(
			"option --report cannot be \"-\": a page goes to a file; give FILE.html, or /dev/stdout");
	conf->inline_given = asked(run, "inline-size");
	conf->gid_given = asked(run, "gid-index");
	if (!asked(run, "size"))
		conf->size = conf->last_size =
			op_is_atomic((enum msg_op)conf->op) ? ATOMIC_SIZE : 64;
	if (!conf->queues)
		conf->queues = 1;
	if (conf->latency) /* the answer is a message, too */
		conf->bidirectional = op_is_received((enum msg_op)conf->op) || conf->op == OP_WRITE;
	if (!conf->duration)
		conf->duration = 10 * SECOND;
	if (!asked(run, "warmup"))
		conf->warmup = conf->iters ? 0 : SECOND / 5;
	return 0;
}

static int execute(const struct command *which, int argc, char **argv)
{
	static struct run run;
	int status;

	stop_signals_take();
	run.conf.latency = which == &latency_command;
	status = options_parse(which, argc, argv, &run.conf, &run.given, NULL);
	if (status != OPTIONS_OK)
		return status;
	status = check_options(&run);
	if (!status)
		status = cores_parse(&run);
	if (!status)
		status = device_before_library(&run);
	if (!status)
		status = cmd_library_start();
	if (status)
		return status;
	status = runs_execute(&run);
	vbn_fini();
	return status;
}

int cmd_msgrate(int argc, char **argv)
{
	return execute(&command, argc, argv);
}

int cmd_latency(int argc, char **argv)
{
	return execute(&latency_command, argc, argv);
}
