/* msgrate_report.c - what a run says: the live line, the table, JSON */
#include "chart.h"
#include "msgrate.h"

#include <stdlib.h>
#include <sys/resource.h>

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

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
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

/* ---- the result ---- */

/* Resident memory at its highest: by the memory of this program alone, where getrusage() has that
 * of what ran before exec, too. */
static uint64_t max_rss(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	struct rusage usage;
	char line[128];

	while (file && !kib && fgets(line, sizeof(line), file))
		sscanf(line, "VmHWM: %llu", &kib);
	if (file)
		fclose(file);
	if (!kib && !getrusage(RUSAGE_SELF, &usage))
		kib = (unsigned long long)usage.ru_maxrss;
	return kib * 1024;
}

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

static bool received(const struct run *run)
{
	return counts_where_it_comes(run);
}

/* Whether this end's counts are the messages: where they come, else where they complete. */
static bool end_counts(const struct run *run, const struct end *end)
{
	return received(run) ? end->receives : end->sends;
}

static bool side_counts(const struct run *run, const struct side *side)
{
	for (int i = 0; i < side->n_ends; i++)
		if (end_counts(run, &side->ends[i]))
			return true;
	return false;
}

/* What two ends tell of the stream from the one to the other. */
struct stream {
	const struct tally *sender, *receiver;
};

/* What came of a stream whole and for the first time. */
static uint64_t good_of(const struct run *run, const struct stream *stream)
{
	const struct tally *counts = received(run) ? stream->receiver : stream->sender;
	uint64_t all = received(run) ? counts->received : counts->completed;

	return run->conf.op == OP_WRITE ? all : all - counts->corrupt - counts->duplicate;
}

/* The stream that an end counts. */
static struct stream counted_by(const struct run *run, const struct end *end)
{
	if (received(run))
		return (struct stream){&end->peer_tally, &end->tally};
	return (struct stream){&end->tally, &end->peer_tally};
}

/* Those of the window. --iters counts all that was sent after the warm-up, however late it came;
 * --duration what came while it lasted. */
static uint64_t side_messages(const struct run *run, const struct side *side)
{
	uint64_t messages = 0;

	if (!run->conf.iters)
		return side->stop.good - side->start.good;
	for (int i = 0; i < side->n_ends; i++) {
		struct stream stream = counted_by(run, &side->ends[i]);
		uint64_t good;

		if (!end_counts(run, &side->ends[i]))
			continue;
		good = good_of(run, &stream);
		messages += good > stream.sender->warm ? good - stream.sender->warm : 0;
	}
	return messages;
}

static double first_message(const struct run *run)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < run->n_sides; i++)
		if (run->sides[i].first_ns && run->sides[i].first_ns < first)
			first = run->sides[i].first_ns;
	return first == UINT64_MAX || first < run->began_ns ? -1
							    : (double)(first - run->began_ns) / 1e9;
}

void window_take(const struct run *run, struct window *window)
{
	uint64_t first = UINT64_MAX, last = 0;

	*window = (struct window){.first_message_seconds = first_message(run)};
	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];

		if (!side_counts(run, side))
			continue;
		first = side->start.ns && side->start.ns < first ? side->start.ns : first;
		last = side->stop.ns > last ? side->stop.ns : last;
		window->messages += side_messages(run, side);
	}
	window->ns = last > first ? last - first : 0;
}

static bool counts_here(const struct run *run)
{
	for (int i = 0; i < run->n_sides; i++)
		if (side_counts(run, &run->sides[i]))
			return true;
	return false;
}

/* The time that this end sent, where the one that counts has told nothing. */
static uint64_t own_window_ns(const struct run *run)
{
	uint64_t longest = 0;

	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];
		uint64_t ns = side->start.ns ? side->stop.ns - side->start.ns : 0;

		longest = ns > longest ? ns : longest;
	}
	return longest;
}

/* Between processes each counts what comes to it. */
static void result_window(const struct run *run, struct result *result)
{
	const struct other *other = run->other;
	struct window window;

	window_take(run, &window);
	if (!result->counted)
		window.ns = own_window_ns(run);
	if (other && !other->lost) {
		window.messages += other->messages;
		window.ns = other->window_ns > window.ns ? other->window_ns : window.ns;
		if (window.first_message_seconds < 0)
			window.first_message_seconds = other->first_message_seconds;
	}
	result->messages = window.messages;
	result->seconds = (double)window.ns / 1e9;
	result->first_message_seconds = window.first_message_seconds;
}

static void count_tally(struct result *result, const struct tally *tally)
{
	result->failed_queues += tally->failed;
	result->corrupt += tally->corrupt;
	result->reordered += tally->reordered;
}

/* A receiver's duplicates that nothing tells apart (without --verify) are what came beyond what was
 * sent. */
static void count_stream(const struct run *run, struct result *result, const struct stream *stream)
{
	uint64_t came = received(run) ? stream->receiver->received : stream->sender->completed;
	uint64_t sent = stream->sender->sent;
	uint64_t duplicate = (received(run) ? stream->receiver : stream->sender)->duplicate;

	result->sent += sent;
	result->received += came;
	if (came > sent && came - sent > duplicate) {
		uint64_t more = came - sent - duplicate;

		result->messages -= more < result->messages ? more : result->messages;
		duplicate += more;
	}
	result->duplicate += duplicate;
	if (received(run) && sent + duplicate > came)
		result->lost += sent + duplicate - came;
	else if (!received(run) && sent > came)
		result->lost += sent - came;
}

/* The same, where the other process has told nothing: what this end has seen itself. */
static void count_half(const struct run *run, struct result *result, const struct end *end)
{
	const struct tally *tally = &end->tally;

	result->sent += tally->sent;
	result->received += received(run) ? tally->received : tally->completed;
	result->duplicate += tally->duplicate;
}

static void result_losses(const struct run *run, struct result *result)
{
	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];
		struct stream own = {&end->tally, &end->peer_tally};
		struct stream peers = {&end->peer_tally, &end->tally};

		count_tally(result, &end->tally);
		if (end->sends && result->whole)
			count_stream(run, result, &own);
		if (!result->whole)
			count_half(run, result, end);
		if (end->peer || !result->whole)
			continue;
		count_tally(result, &end->peer_tally);
		if (end->receives)
			count_stream(run, result, &peers);
	}
}

static void result_costs(const struct run *run, struct result *result)
{
	uint64_t busy = 0, doorbells = 0, sent = 0;

	for (int i = 0; i < run->n_sides; i++)
		busy += run->sides[i].stop.busy_cycles - run->sides[i].start.busy_cycles;
	for (int i = 0; i < run->n_ends; i++) {
		doorbells += run->ends[i].stats.tx_doorbells;
		sent += run->ends[i].stats.tx_messages;
	}
	result->msg_rate = ratio((double)result->messages, result->seconds);
	result->gbit_rate = result->msg_rate * (double)run->conf.size * 8 / 1e9;
	result->cycles_per_message = ratio((double)busy, (double)result->messages);
	result->burst = ratio((double)sent, (double)doorbells);
	result->max_rss_bytes = max_rss();
}

/* Ends of this process have told by now what they tell one another. */
static void learn_tallies(struct run *run)
{
	for (int i = 0; i < run->n_ends; i++)
		if (run->ends[i].peer)
			run->ends[i].peer_tally = run->ends[i].peer->tally;
}

void result_take(struct run *run, struct result *result)
{
	*result = (struct result){.whole = !run->other || run->other->told};
	result->counted = result->whole || counts_here(run);
	learn_tallies(run);
	result_window(run, result);
	result_losses(run, result);
	result_costs(run, result);
	if (run->conf.latency)
		percentiles_take(run, result->percentiles);
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

/* ---- one worker's ---- */

struct side_result {
	uint64_t sent, received;
	double msg_rate, busy_share, cycles_per_message, burst;
};

/* What has completed of the peers' operations, of those that a side is only the target of. */
static uint64_t side_target_of(const struct side *side)
{
	uint64_t sum = 0;

	for (int i = 0; i < side->n_ends; i++)
		sum += side->ends[i].receives ? side->ends[i].peer_tally.completed : 0;
	return sum;
}

/* What a worker's rate is of: what it counts; where it only sends, what it sent; where it is only a
 * target, what its peers did there, as much of it as was in the window. */
static uint64_t side_share(const struct run *run, const struct side *side)
{
	uint64_t sum = 0;

	if (side_counts(run, side))
		return side_messages(run, side);
	if (!received(run) && side->ends[0].peer)
		return side_messages(run, side->ends[0].peer->side);
	if (!received(run)) {
		for (int i = 0; i < run->n_sides; i++)
			sum += side_target_of(&run->sides[i]);
		return (uint64_t)(ratio((double)side_target_of(side), (double)sum) *
			(double)run->other->messages);
	}
	if (!run->conf.iters)
		return side->stop.sent - side->start.sent;
	for (int i = 0; i < side->n_ends; i++)
		sum += side->ends[i].sent - side->ends[i].warm;
	return sum;
}

/* All in the run's window, so that the workers' figures add up to the run's. */
static void side_result(
	const struct run *run, const struct side *side, double seconds, struct side_result *result)
{
	double messages = (double)side_share(run, side);
	double busy = (double)(side->stop.busy_cycles - side->start.busy_cycles);
	uint64_t doorbells = 0, bursts = 0;

	*result = (struct side_result){0};
	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		result->sent += end->sent;
		if (end->receives)
			result->received +=
				received(run) ? end->tally.received : end->peer_tally.completed;
		doorbells += end->stats.tx_doorbells;
		bursts += end->receive_bursts;
	}
	result->msg_rate = ratio(messages, seconds);
	result->busy_share =
		ratio(busy, (double)(side->stop.total_cycles - side->start.total_cycles));
	result->cycles_per_message = ratio(busy, messages);
	result->burst = result->sent ? ratio((double)result->sent, (double)doorbells)
				     : ratio((double)result->received, (double)bursts);
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
