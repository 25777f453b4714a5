/* top.c - `verbena top`: live counters of running processes, on a screen, as lines, or as JSON */
#include "top.h"

#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

struct top_options {
	const char *prefix, *json;
	int64_t pid, interval_ns, count;
	bool plain;
};

static const struct option options[] = {
	{"prefix", "NAME", VALUE_TEXT, offsetof(struct top_options, prefix), 0, 0, NULL,
		"only processes of this --vbn-file-prefix"},
	{"pid", "N", VALUE_COUNT, offsetof(struct top_options, pid), 1, INT32_MAX, NULL,
		"only this process"},
	{"interval", "T", VALUE_TIME, offsetof(struct top_options, interval_ns), NS_PER_S / 10,
		3600ll * NS_PER_S, NULL, "between two looks; default 1 s"},
	{"count", "N", VALUE_COUNT, offsetof(struct top_options, count), 1, INT32_MAX, NULL,
		"end after so many intervals"},
	{"plain", NULL, VALUE_FLAG, offsetof(struct top_options, plain), 0, 0, NULL,
		"lines instead of a screen, as where standard output is no terminal"},
	{"json", "FILE", VALUE_TEXT, offsetof(struct top_options, json), 0, 0, NULL,
		"the last interval as one JSON object, after --count (default 1);\n- is standard output"},
};

static const struct command command = {
	.name = "top",
	.usage = "[options]",
	.summary =
		"Shows what running processes that use Verbena are doing: their workers (busy share, messages, bursts,\n"
		"cycles per message), queues, pools, ports and channels, and what was dropped. It asks the processes of this user,\n"
		"or as root of all, by their telemetry sockets; they need no option for it, and it costs their workers\n"
		"nothing. Without a terminal it prints a line for each worker and interval.",
	.more = "keys: 1-5 view, up/down pick, enter this process alone, s sort, r reverse, p pause, + - interval, ? help, q quit\n"
		"\n"
		"examples:\n"
		"  verbena top                            all there are, live\n"
		"  verbena top --prefix kv                those that were started with --vbn-file-prefix=kv\n"
		"  verbena top --count 1 --json -         one interval, for a script\n"
		"  verbena top --plain --interval 10 >>log\n"
		"\n"
		"exit status: 0 also when it is ended by q or a signal; 2 usage; 4 there was no process, or none any more\n"
		"before --count.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* ---- lines ---- */

static void print_heading(void)
{
	printf("%-8s %8s %-8s %4s %6s %9s %9s %9s %7s %8s %6s\n", "time", "pid", "worker", "core",
		"busy", "msg/s", "B/s", "burst/s", "/burst", "cyc/msg", "drops");
}

static void print_row(const struct row *row, const char *clock, uint64_t drops)
{
	const struct view *view = &views[0];
	char text[MAX_COLUMNS][32];

	for (size_t i = 0; i < view->n_columns; i++)
		cell_text(row, &view->columns[i], i, text[i]);
	printf("%-8s %8s %-8s %4s %6s %9s %9s %9s %7s %8s %6llu\n", clock, text[0], row->name,
		text[1], text[2], text[4], text[5], text[6], text[7], text[8],
		(unsigned long long)drops);
}

static uint64_t drops_of(const struct processes *all, pid_t pid)
{
	struct drops drops[N_DROPS];
	uint64_t sum = 0;

	drops_sum(all, pid, drops);
	for (int i = 0; i < N_DROPS; i++)
		sum += drops[i].total;
	return sum;
}

/* What a reader of columns leaves out. */
static void print_trouble(const struct process *process, const char *clock)
{
	int waiting;
	double kept = process_kept(process, &waiting);

	if (process->silent && !process->foreign)
		printf("# %s %d does not answer\n", clock, process->pid);
	else if (kept > 0)
		printf("# %s %d: a device keeps its control thread, %.0f s, %d calls wait\n", clock,
			process->pid, kept, waiting);
}

static void clock_text(char clock[16])
{
	time_t now = time(NULL);
	struct tm local;

	strftime(clock, 16, "%H:%M:%S", localtime_r(&now, &local));
}

static void print_ended(const struct processes *all)
{
	char clock[16];

	clock_text(clock);
	for (int i = 0; i < all->n_ended; i++)
		printf("# %s %d has ended\n", clock, all->ended[i]);
	if (fflush(stdout))
		output_check(errno); /* while errno is its */
}

static void print_lines(const struct processes *all, int64_t turn)
{
	struct table table;
	char clock[16];

	clock_text(clock);
	table_build(&table, &views[0], all, 0);
	table_sort(&table, -1, true);
	if (turn % 20 == 0 || turn == 0)
		print_heading();
	for (size_t i = 0; i < table.n; i++)
		print_row(&table.rows[i], clock, drops_of(all, table.rows[i].process->pid));
	for (const struct process *process = all->first; process; process = process->next)
		print_trouble(process, clock);
	table_free(&table);
	if (fflush(stdout))
		output_check(errno);
}

/* A signal ends it early. */
static void wait_ns(int64_t ns)
{
	uint64_t end = now_ns() + (uint64_t)ns;

	for (uint64_t now; !stop_signal() && (now = now_ns()) < end;) {
		uint64_t left = end - now < NS_PER_S / 5 ? end - now : NS_PER_S / 5;

		nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
	}
}

static int nobody(const struct top_options *conf, const struct processes *all)
{
	char why[160];

	if (all->any_lost)
		return say("the processes that were followed have ended: start again when there are others"),
		       STATUS_NO_PEER;
	if (conf->pid)
		say("%s", absence((pid_t)conf->pid, why));
	else
		say("no process is there to be shown: none of this user's uses Verbena%s%s; start one, or run this as root",
			conf->prefix ? " with the prefix " : "", conf->prefix ? conf->prefix : "");
	return STATUS_NO_PEER;
}

/* Looks once more than there are intervals. */
static int follow(const struct top_options *conf, struct processes *all, bool lines)
{
	for (int64_t turn = 0;; turn++) {
		processes_look(all, conf->prefix, (pid_t)conf->pid);
		if (stop_signal())
			return STATUS_DONE; /* it has cut an answer off, too */
		if (lines)
			print_ended(all);
		if (!all->n)
			return turn && !conf->count && all->any_lost ? STATUS_DONE
								     : nobody(conf, all);
		if (turn && lines)
			print_lines(all, turn - 1);
		if (ferror(stdout) || (conf->count && turn == conf->count))
			return STATUS_DONE;
		wait_ns(conf->interval_ns);
		if (stop_signal())
			return STATUS_DONE;
	}
}

static int run_plain(struct top_options *conf)
{
	struct processes all = {.n = 0};
	struct sink sink;
	int status = json_open(&sink, conf->json);

	if (status)
		return status;
	if (conf->json && !conf->count)
		conf->count = 1;
	stop_signals_take();
	status = follow(conf, &all, !conf->json || strcmp(conf->json, "-"));
	if (status && conf->json)
		sink_abandon(&sink);
	else if (!status)
		status = json_finish(&sink, conf->json ? top_json(&all) : NULL);
	processes_free(&all);
	return status;
}

int cmd_top(int argc, char **argv)
{
	struct top_options conf = {.interval_ns = NS_PER_S};
	uint64_t given;
	int status = streams_open();

	if (!status)
		status = options_parse(&command, argc, argv, &conf, &given, NULL);
	if (status != OPTIONS_OK)
		return status;
	if (conf.prefix && (!*conf.prefix || strchr(conf.prefix, '/')))
		return usage_error(
			"--prefix \"%.80s\" is no prefix: give the name that --vbn-file-prefix was given",
			conf.prefix);
	if (conf.plain || conf.json || !screen_possible())
		return run_plain(&conf);
	return screen_run(&(struct screen_conf){.interval_ns = conf.interval_ns,
		.count = conf.count,
		.prefix = conf.prefix,
		.pid = (pid_t)conf.pid});
}
