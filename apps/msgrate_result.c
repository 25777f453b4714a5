/* msgrate_result.c - what a run comes to: its window, what was lost, what each worker did */
#include "msgrate.h"

#include <sys/resource.h>

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

/* ---- streams ---- */

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

/* ---- one worker's ---- */

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
void side_result(
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
