/* msgrate_report.c - what a run says: the live line, the table, JSON */
#include "chart.h"
#include "msgrate.h"

/* ---- the live line ---- */

/* By the monitor: the workers count on meanwhile, so each value is of a moment of its own. */
void progress_take(struct run *run, struct progress *progress)
{
	*progress = (struct progress){.ns = now_ns()};
	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];

		progress->messages += load_once(&end->received) + load_once(&end->completed) +
			load_once(&end->peer_received);
	}
	pthread_mutex_lock(&run->lock);
	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];
		struct vbn_worker_stats stats;

		if (!side->worker || side->over)
			continue;
		vbn_worker_stats(side->worker, &stats);
		progress->busy_cycles += stats.busy_cycles;
		progress->total_cycles += stats.total_cycles;
	}
	pthread_mutex_unlock(&run->lock);
}

void progress_print(const struct run *run, const struct progress *start,
	const struct progress *before, const struct progress *now)
{
	double seconds = (double)(now->ns - before->ns) / 1e9;
	double rate = ratio((double)(now->messages - before->messages), seconds);
	double busy = 0;
	char rates[32], total[32];

	if (now->total_cycles > before->total_cycles)
		busy = ratio((double)(now->busy_cycles - before->busy_cycles),
			(double)(now->total_cycles - before->total_cycles));
	say_live("%4.0f s  %s msg/s  %.2f Gbit/s  %s messages  busy %.0f %%",
		(double)(now->ns - start->ns) / 1e9, human_number(rate, rates),
		rate * (double)run->conf.size * 8 / 1e9,
		human_number((double)(now->messages - start->messages), total), busy * 100);
}

/* ---- names ---- */

static const char *op_name(const struct run *run)
{
	static const char *const names[] = {
		"send", "send-imm", "write", "write-imm", "read", "fetch-add", "cmp-swap"};

	return names[run->conf.op];
}

static const char *connection_name(const struct run *run)
{
	static const char *const names[] = {"rc", "uc", "ud"};

	return names[run->conf.connection];
}

static const char *role(const struct run *run)
{
	return !run->other ? "both" : run->other->leads ? "connect" : "listen";
}

/* A scan of the target sees the last write of each slot, and no order. */
static bool checks_corrupt(const struct run *run)
{
	return run->conf.verify;
}

static bool checks_order(const struct run *run)
{
	return run->conf.verify && op_sees_order((enum msg_op)run->conf.op);
}

/* ---- the table ---- */

static void print_row(const char *worker, const char *core, const char *node, uint64_t sent,
	uint64_t received, double rate, double gbit, double cycles, double burst, double busy)
{
	char text[32], share[16] = "";

	if (busy >= 0)
		snprintf(share, sizeof(share), "%.0f %%", busy * 100);
	printf("%-7s %5s %5s %14llu %14llu %10s %8.3f %11.1f %6.1f %6s\n", worker, core, node,
		(unsigned long long)sent, (unsigned long long)received, human_number(rate, text),
		gbit, cycles, burst, share);
}

static void print_side(const struct run *run, const struct side *side, double seconds)
{
	char worker[16], core[16], node[16];
	struct side_result result;

	side_result(run, side, seconds, &result);
	snprintf(worker, sizeof(worker), "%d", side->index);
	snprintf(core, sizeof(core), "%d", side->core);
	snprintf(node, sizeof(node), "%d", side->node);
	print_row(worker, core, node, result.sent, result.received, result.msg_rate,
		result.msg_rate * (double)run->conf.size * 8 / 1e9, result.cycles_per_message,
		result.burst, result.busy_share);
}

/* A count that was not made is not 0. */
static void print_count(const char *name, uint64_t n, bool checked)
{
	if (checked)
		printf(", %s %llu", name, (unsigned long long)n);
	else
		printf(", %s not checked", name);
}

/* Of a run whose other end counts, and is lost. */
static void print_half_verdict(const struct run *run, const struct result *result)
{
	uint64_t sum = 0;
	char sent[64];

	for (int i = 0; i < run->n_sides; i++)
		sum += run->sides[i].stop.sent - run->sides[i].start.sent;
	printf("\n%s sent in %.3f s; what came of them is not known, the other process has not told: "
	       "messages, lost, corrupt, duplicate, reordered; failed queues here %d; %.1f MiB "
	       "resident at most\n",
		plural(sum, "message", sent), result->seconds, result->failed_queues,
		(double)result->max_rss_bytes / (1 << 20));
}

static void print_verdict(const struct run *run, const struct result *result)
{
	char messages[64];

	if (!result->counted) {
		print_half_verdict(run, result);
		return;
	}
	printf("\n%s in %.3f s", plural(result->messages, "message", messages), result->seconds);
	if (result->first_message_seconds >= 0)
		printf(", the first after %.3f s", result->first_message_seconds);
	if (result->whole)
		printf("; lost %llu", (unsigned long long)result->lost);
	else
		printf("; lost not known, the other process has not told");
	print_count("corrupt", result->corrupt, checks_corrupt(run));
	print_count("duplicate", result->duplicate, checks_order(run) || result->duplicate);
	print_count("reordered", result->reordered, checks_order(run));
	printf(", failed queues %d; %.1f MiB resident at most\n", result->failed_queues,
		(double)result->max_rss_bytes / (1 << 20));
	puts("sent and received are of the whole run, warm-up and end included; messages and msg/s of "
	     "the window that counts");
	if (run->other && result->whole)
		puts("the line \"both\" is of this process and the other one, whose workers are in "
		     "its own table");
}

/* The workers' in sum; between processes with the other one's, where it has told. */
static void print_all(const struct run *run, const struct result *result)
{
	struct side_result side;
	double rate = result->msg_rate, busy = 0;

	if (result->whole) {
		print_row(run->other ? "both" : "all", "", "", result->sent, result->received, rate,
			result->gbit_rate, result->cycles_per_message, result->burst, -1);
		return;
	}
	rate = 0;
	for (int i = 0; i < run->n_sides; i++) {
		side_result(run, &run->sides[i], result->seconds, &side);
		rate += side.msg_rate;
		busy += side.msg_rate * side.cycles_per_message;
	}
	print_row("here", "", "", result->sent, result->received, rate,
		rate * (double)run->conf.size * 8 / 1e9, ratio(busy, rate), result->burst, -1);
}

void result_print(const struct run *run, const struct result *result)
{
	char device[64];

	printf("%s %s of %lld bytes on %s, driver %s%s%s\n\n", connection_name(run), op_name(run),
		(long long)run->conf.size, device_text(run, device), run->port_info.driver,
		run->other ? ", to " : "",
		run->other && run->other->session ? vbn_session_peer(run->other->session) : "");
	printf("%-7s %5s %5s %14s %14s %10s %8s %11s %6s %6s\n", "worker", "core", "node", "sent",
		"received", "msg/s", "Gbit/s", "cycles/msg", "burst", "busy");
	for (int i = 0; i < run->n_sides; i++)
		print_side(run, &run->sides[i], result->seconds);
	print_all(run, result);
	if (run->conf.latency)
		percentiles_print(run, result->percentiles);
	print_verdict(run, result);
}

/* ---- notes on a run that is over ---- */

/* More than a twentieth off is not what was asked for: the machine was too busy to look at the
 * clock. */
static void warn_of_window(const struct run *run, const struct result *result)
{
	double wanted = (double)run->conf.duration / 1e9;

	if (run->conf.iters || stop_signal() || result->failed_queues || result->seconds <= 0 ||
		(run->other && run->other->ended_early))
		return;
	if (result->seconds < wanted * 0.95 && run->other && run->other->lost)
		return;
	if (result->seconds > wanted * 1.05 || result->seconds < wanted * 0.95)
		say("the window that counts was %.3f s long, not the %.3f s of --duration: the workers were "
		    "kept from their cores; give them cores of their own, or a longer --duration",
			result->seconds, wanted);
}

void result_notes(struct run *run, const struct result *result)
{
	char wanted[32], measured[64];

	snprintf(wanted, sizeof(wanted), "%lld", (long long)run->conf.post_list);
	snprintf(measured, sizeof(measured), "%.1f", result->burst);
	mode_add(run, "burst_size", wanted, measured,
		"measured: messages to a doorbell; fewer where a ring or the receiver had no more room");
	warn_of_window(run, result);
}

/* ---- JSON ---- */

static json_t *workers_json(const struct run *run, double seconds)
{
	json_t *list = json_array();

	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];
		struct side_result result;

		side_result(run, side, seconds, &result);
		json_array_append_new(list,
			json_pack("{s:i, s:i, s:I, s:I, s:o, s:o, s:o}", "core", side->core, "node",
				side->node, "sent", (json_int_t)result.sent, "received",
				(json_int_t)result.received, "msg_rate",
				json_number(result.msg_rate), "busy_share",
				json_number(result.busy_share), "cycles_per_message",
				json_number(result.cycles_per_message)));
	}
	return list;
}

static json_t *errors_json(const struct run *run)
{
	json_t *list = json_array();

	for (int i = 0; i < run->n_ends; i++)
		if (*run->ends[i].error)
			json_array_append_new(list, json_string(run->ends[i].error));
	return list;
}

static void set_count(json_t *root, const char *key, uint64_t n, bool checked)
{
	json_object_set_new(root, key, checked ? json_integer((json_int_t)n) : json_null());
}

static void set_rate(json_t *root, const char *key, double rate, bool known)
{
	json_object_set_new(root, key, known ? json_number(rate) : json_null());
}

static void set_counts(const struct run *run, json_t *root, const struct result *result)
{
	set_count(root, "messages", result->messages, result->counted);
	set_count(root, "sent", result->sent, true);
	set_count(root, "received", result->received, true);
	set_count(root, "lost", result->lost, result->whole);
	set_count(root, "corrupt", result->corrupt, result->counted && checks_corrupt(run));
	set_count(root, "duplicate", result->duplicate,
		(result->counted && checks_order(run)) || result->duplicate);
	set_count(root, "reordered", result->reordered, result->counted && checks_order(run));
	set_count(root, "failed_queues", (uint64_t)result->failed_queues, true);
}

json_t *result_json(const struct run *run, const struct result *result)
{
	json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "tool",
		tool_name(run), "version", vbn_version(), "role", role(run), "driver",
		run->port_info.driver, "device", run->port_info.name, "requested_device",
		run->requested_device, "connection", connection_name(run), "op", op_name(run),
		"size", (json_int_t)run->conf.size, "seconds", json_number(result->seconds));

	if (!root)
		return NULL;
	set_counts(run, root, result);
	set_rate(root, "msg_rate", result->msg_rate, result->counted);
	set_rate(root, "gbit_rate", result->gbit_rate, result->counted);
	set_rate(root, "cycles_per_message", result->cycles_per_message, result->counted);
	json_object_set_new(root, "first_message_seconds",
		result->first_message_seconds < 0 ? json_null()
						  : json_number(result->first_message_seconds));
	json_object_set_new(root, "max_rss_bytes", json_integer((json_int_t)result->max_rss_bytes));
	json_object_set_new(root, "effective", mode_list_json(&run->modes));
	json_object_set_new(root, "workers", workers_json(run, result->seconds));
	json_object_set_new(root, "stopped", json_boolean(stop_signal()));
	json_object_set_new(root, "errors", errors_json(run));
	if (run->conf.latency)
		json_object_set_new(root, "percentiles", percentiles_json(result->percentiles));
	return root;
}
