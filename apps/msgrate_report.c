/* msgrate_report.c - what a run says: modes, the live line, the table, JSON */
#include "msgrate.h"

#include <stdlib.h>
#include <sys/resource.h>

/* ---- modes ---- */

static bool same_mode(const struct vbn_mode *a, const struct vbn_mode *b)
{
	return !strcmp(a->requested, b->requested) && !strcmp(a->effective, b->effective);
}

static const struct vbn_mode *find_mode(const struct run *run, const char *name)
{
	for (int i = 0; i < run->n_modes; i++)
		if (!strcmp(run->modes[i].name, name))
			return &run->modes[i];
	return NULL;
}

/* With modes_lock held. The first of a name has it plain; another one that differs is named after
 * whose it is. */
static void add_one(struct run *run, const struct vbn_mode *mode, const char *who)
{
	const struct vbn_mode *known = find_mode(run, mode->name);
	struct vbn_mode *more;
	char name[sizeof(mode->name)];

	snprintf(name, sizeof(name), "%.31s", mode->name);
	if (known) {
		if (same_mode(known, mode))
			return;
		snprintf(name, sizeof(name), "%.18s, %.11s", mode->name, who);
		if (find_mode(run, name))
			return;
	}
	more = realloc(run->modes, (size_t)(run->n_modes + 1) * sizeof(*more));
	if (!more)
		return;
	run->modes = more;
	more[run->n_modes] = *mode;
	memcpy(more[run->n_modes++].name, name, sizeof(name));
}

void modes_add(struct run *run, const struct vbn_mode *modes, int n, const char *who)
{
	pthread_mutex_lock(&run->modes_lock);
	for (int i = 0; i < n; i++)
		add_one(run, &modes[i], who);
	pthread_mutex_unlock(&run->modes_lock);
}

void mode_add(struct run *run, const char *name, const char *requested, const char *effective,
	const char *why)
{
	struct vbn_mode mode = {0};

	snprintf(mode.name, sizeof(mode.name), "%s", name);
	snprintf(mode.requested, sizeof(mode.requested), "%s", requested);
	snprintf(mode.effective, sizeof(mode.effective), "%s", effective);
	snprintf(mode.why, sizeof(mode.why), "%s", why);
	modes_add(run, &mode, 1, "");
}

void modes_print(const struct run *run)
{
	fprintf(stderr, "%-24s %-14s %-22s %s\n", "mode", "requested", "effective", "why");
	for (int i = 0; i < run->n_modes; i++) {
		const struct vbn_mode *mode = &run->modes[i];

		fprintf(stderr, "%-24s %-14s %-22s %s\n", mode->name, mode->requested,
			mode->effective, mode->why);
	}
}

/* ---- the live line ---- */

/* By the monitor: the workers count on meanwhile, so each value is of a moment of its own. */
void progress_take(struct run *run, struct progress *progress)
{
	*progress = (struct progress){.ns = now_ns()};
	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];

		progress->messages += load_once(&end->received) + load_once(&end->completed);
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

/* 2413456 is "2.41 M". */
static const char *human(double value, char *text, size_t size)
{
	static const char *const units[] = {"", " k", " M", " G", " T"};
	size_t i = 0;

	for (; value >= 1000 && i + 1 < ARRAY_SIZE(units); i++)
		value /= 1000;
	snprintf(text, size, "%.*f%s", i ? 2 : 0, value, units[i]);
	return text;
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
		(double)(now->ns - start->ns) / 1e9, human(rate, rates, sizeof(rates)),
		rate * (double)run->conf.size * 8 / 1e9,
		human((double)(now->messages - start->messages), total, sizeof(total)), busy * 100);
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

/* Whether this side's counts are the messages: where they come, and of writes where they complete.
 */
static bool side_counts(const struct run *run, const struct side *side)
{
	for (int i = 0; i < side->n_ends; i++)
		if (run->conf.op == OP_WRITE ? side->ends[i].sends : side->ends[i].receives)
			return true;
	return false;
}

static uint64_t good_in_all(const struct run *run)
{
	uint64_t good = 0;

	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];

		good += run->conf.op == OP_WRITE
			? end->completed
			: end->received - end->track.corrupt - end->track.duplicate;
	}
	return good;
}

/* --iters counts all that it sent after the warm-up, however late it came; --duration what came
 * while it lasted. */
static void result_window(const struct run *run, struct result *result)
{
	uint64_t first = UINT64_MAX, last = 0, warm = 0, window = 0;

	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];
		warm += side->start.staged;
		if (!side_counts(run, side))
			continue;
		first = side->start.ns < first ? side->start.ns : first;
		last = side->stop.ns > last ? side->stop.ns : last;
		window += side->stop.good - side->start.good;
	}
	result->seconds = last > first ? (double)(last - first) / 1e9 : 0;
	result->messages = window;
	if (run->conf.iters) {
		uint64_t good = good_in_all(run);

		result->messages = good > warm ? good - warm : 0;
	}
}

/* A receiver's duplicates that nothing tells apart (without --verify) are what came beyond what was
 * sent. */
static void result_losses(const struct run *run, struct result *result)
{
	for (int i = 0; i < run->n_ends; i++) {
		const struct end *end = &run->ends[i];
		uint64_t came, sent = end->sent, duplicate;

		result->failed_queues += end->failed;
		result->sent += sent;
		result->received += run->conf.op == OP_WRITE ? end->completed : end->received;
		result->corrupt += end->track.corrupt;
		result->reordered += end->track.reordered;
		if (!end->sends)
			continue;
		came = run->conf.op == OP_WRITE ? end->completed : end->peer->received;
		duplicate = end->peer->track.duplicate;
		if (came > sent && came - sent > duplicate) {
			uint64_t more = came - sent - duplicate;

			result->messages -= more < result->messages ? more : result->messages;
			duplicate += more;
		}
		result->duplicate += duplicate;
		result->lost += sent + duplicate - came;
	}
}

static void result_costs(const struct run *run, struct result *result)
{
	uint64_t busy = 0, doorbells = 0, first = UINT64_MAX;

	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];

		busy += side->stop.busy_cycles - side->start.busy_cycles;
		if (side->first_ns && side->first_ns < first)
			first = side->first_ns;
	}
	for (int i = 0; i < run->n_ends; i++)
		doorbells += run->ends[i].stats.tx_doorbells;
	result->msg_rate = ratio((double)result->messages, result->seconds);
	result->gbit_rate = result->msg_rate * (double)run->conf.size * 8 / 1e9;
	result->cycles_per_message = ratio((double)busy, (double)result->messages);
	result->burst = ratio((double)result->sent, (double)doorbells);
	result->first_message_seconds = first == UINT64_MAX || first < cmd_started_ns
		? -1
		: (double)(first - cmd_started_ns) / 1e9;
	result->max_rss_bytes = max_rss();
}

void result_take(const struct run *run, struct result *result)
{
	*result = (struct result){0};
	result_window(run, result);
	result_losses(run, result);
	result_costs(run, result);
}

/* ---- one worker's ---- */

struct side_result {
	uint64_t sent, received;
	double msg_rate, busy_share, cycles_per_message, burst;
};

/* A worker's rate is of what came to it, or, where it only sends, of what it sent. */
static void side_result(const struct run *run, const struct side *side, struct side_result *result)
{
	double seconds = (double)(side->stop.ns - side->start.ns) / 1e9, messages;
	double busy = (double)(side->stop.busy_cycles - side->start.busy_cycles);
	bool sends_only = run->conf.op == OP_SEND && !side_counts(run, side);
	uint64_t doorbells = 0, bursts = 0;

	*result = (struct side_result){0};
	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		result->sent += end->sent;
		result->received += end->received;
		doorbells += end->stats.tx_doorbells;
		bursts += end->receive_bursts;
	}
	messages = sends_only ? (double)(side->stop.sent - side->start.sent)
			      : (double)(side->stop.good - side->start.good);
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
		(unsigned long long)sent, (unsigned long long)received,
		human(rate, text, sizeof(text)), gbit, cycles, burst, share);
}

static void print_side(const struct run *run, const struct side *side)
{
	char worker[16], core[16], node[16];
	struct side_result result;

	side_result(run, side, &result);
	snprintf(worker, sizeof(worker), "%d", side->index);
	snprintf(core, sizeof(core), "%d", side->core);
	snprintf(node, sizeof(node), "%d", side->node);
	print_row(worker, core, node, result.sent, result.received, result.msg_rate,
		result.msg_rate * (double)run->conf.size * 8 / 1e9, result.cycles_per_message,
		result.burst, result.busy_share);
}

static void print_verdict(const struct result *result)
{
	printf("\n%llu messages in %.3f s", (unsigned long long)result->messages, result->seconds);
	if (result->first_message_seconds >= 0)
		printf(", the first after %.3f s", result->first_message_seconds);
	printf("; lost %llu, corrupt %llu, duplicate %llu, reordered %llu, failed queues %d; %.1f MiB resident at "
	       "most\n",
		(unsigned long long)result->lost, (unsigned long long)result->corrupt,
		(unsigned long long)result->duplicate, (unsigned long long)result->reordered,
		result->failed_queues, (double)result->max_rss_bytes / (1 << 20));
}

void result_print(const struct run *run, const struct result *result)
{
	printf("%-7s %5s %5s %14s %14s %10s %8s %11s %6s %6s\n", "worker", "core", "node", "sent",
		"received", "msg/s", "Gbit/s", "cycles/msg", "burst", "busy");
	for (int i = 0; i < run->n_sides; i++)
		print_side(run, &run->sides[i]);
	print_row("all", "", "", result->sent, result->received, result->msg_rate,
		result->gbit_rate, result->cycles_per_message, result->burst, -1);
	print_verdict(result);
}

/* ---- JSON ---- */

static json_t *effective_json(const struct run *run)
{
	json_t *map = json_object();

	for (int i = 0; i < run->n_modes; i++) {
		const struct vbn_mode *mode = &run->modes[i];

		json_object_set_new(map, mode->name,
			json_pack("{s:s, s:s, s:s}", "requested", mode->requested, "effective",
				mode->effective, "why", mode->why));
	}
	return map;
}

static json_t *workers_json(const struct run *run)
{
	json_t *list = json_array();

	for (int i = 0; i < run->n_sides; i++) {
		const struct side *side = &run->sides[i];
		struct side_result result;

		side_result(run, side, &result);
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

static void set_counts(json_t *root, const struct result *result)
{
	json_object_set_new(root, "messages", json_integer((json_int_t)result->messages));
	json_object_set_new(root, "sent", json_integer((json_int_t)result->sent));
	json_object_set_new(root, "received", json_integer((json_int_t)result->received));
	json_object_set_new(root, "lost", json_integer((json_int_t)result->lost));
	json_object_set_new(root, "corrupt", json_integer((json_int_t)result->corrupt));
	json_object_set_new(root, "duplicate", json_integer((json_int_t)result->duplicate));
	json_object_set_new(root, "reordered", json_integer((json_int_t)result->reordered));
	json_object_set_new(root, "failed_queues", json_integer(result->failed_queues));
}

json_t *result_json(const struct run *run, const struct result *result)
{
	json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "tool",
		"msgrate", "version", vbn_version(), "role", "both", "driver",
		run->port_info.driver, "device", run->port_info.name, "requested_device",
		run->requested_device, "connection", "rc", "op",
		run->conf.op == OP_WRITE ? "write" : "send", "size", (json_int_t)run->conf.size,
		"seconds", json_number(result->seconds));

	if (!root)
		return NULL;
	set_counts(root, result);
	json_object_set_new(root, "msg_rate", json_number(result->msg_rate));
	json_object_set_new(root, "gbit_rate", json_number(result->gbit_rate));
	json_object_set_new(root, "cycles_per_message", json_number(result->cycles_per_message));
	json_object_set_new(root, "first_message_seconds",
		result->first_message_seconds < 0 ? json_null()
						  : json_number(result->first_message_seconds));
	json_object_set_new(root, "max_rss_bytes", json_integer((json_int_t)result->max_rss_bytes));
	json_object_set_new(root, "effective", effective_json(run));
	json_object_set_new(root, "workers", workers_json(run));
	return root;
}
