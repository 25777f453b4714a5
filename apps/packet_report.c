/* packet_report.c - what a packet command counts: the balance, the live line, the table, JSON */
#include "chart.h"
#include "packet.h"

#include <unistd.h>

/* ---- drops by name ---- */

void drops_add(struct drops *drops, const char *name, uint64_t count)
{
	struct named_count *at = drops->of;

	for (; at < drops->of + drops->n; at++)
		if (!strcmp(at->name, name)) {
			at->count += count;
			return;
		}
	if (drops->n == ARRAY_SIZE(drops->of))
		return;
	drops->n++;
	snprintf(at->name, sizeof(at->name), "%.31s", name);
	at->count = count;
}

uint64_t drops_total(const struct drops *drops)
{
	uint64_t sum = 0;

	for (int i = 0; i < drops->n; i++)
		sum += drops->of[i].count;
	return sum;
}

json_t *drops_json(const struct drops *drops)
{
	json_t *map = json_object();

	for (int i = 0; i < drops->n; i++)
		json_object_set_new(
			map, drops->of[i].name, json_integer((json_int_t)drops->of[i].count));
	return map;
}

/* Those before a queue has handed a frame out: of what came, not of what it received. */
static bool is_before(const char *name)
{
	return !strncmp(name, "rx_", 3);
}

/* ---- the result ---- */

/* Frames that the queue has not handed out, by its own names. */
static uint64_t dropped_before(const struct lane *lane)
{
	uint64_t sum = 0;

	for (int i = 0; i < lane->named.n; i++)
		if (is_before(lane->named.of[i].name))
			sum += lane->named.of[i].count;
	return sum;
}

/* Frames that this command itself has dropped. */
static uint64_t dropped_here(const struct lane *lane)
{
	uint64_t sum = 0;

	for (int i = 0; i < N_DROPS; i++)
		sum += lane->drops[i];
	return sum;
}

/* What the port knows of no queue: `*after` of it, of sent frames. */
static void port_drops(struct packet_run *run, const struct packet_device *device, uint64_t *before,
	uint64_t *after)
{
	struct vbn_drop now[MAX_NAMED_DROPS];
	int n = vbn_port_drops(device->port, now, MAX_NAMED_DROPS);

	for (int i = 0; i < n && i < MAX_NAMED_DROPS; i++) {
		uint64_t count = now[i].count - device->before[i].count;
		bool sent = strstr(now[i].name, "tx_");

		*(sent ? after : before) += count;
		drops_add(&run->drops, now[i].name, count);
	}
}

static void take_span(struct packet_run *run)
{
	uint64_t first = 0, last = 0;

	if (run->command->span)
		run->command->span(run, &first, &last);
	if (last <= first || !first)
		return;
	run->start_ns = first;
	run->stop_ns = last;
}

/* received = sent + drops: of what the queues have handed out it is checked, what was lost before and behind
 * them is told by who lost it. */
void packet_result_take(struct packet_run *run)
{
	uint64_t handed_out = 0, kept = 0, before = 0, after = 0;
	uint64_t (*delivered)(const struct packet_run *run) = run->command->delivered;

	for (int w = 0; w < run->n_workers; w++) {
		const struct drops *named = &run->workers[w].named;

		for (int d = 0; d < named->n; d++)
			drops_add(&run->drops, named->of[d].name, named->of[d].count);
		for (int i = 0; i < run->workers[w].n_lanes; i++) {
			const struct lane *lane = &run->workers[w].lanes[i];

			handed_out += lane->stats.rx_messages;
			run->sent += lane->stats.tx_done;
			before += dropped_before(lane);
			kept += delivered ? dropped_here(lane)
					  : drops_total(&lane->named) - dropped_before(lane);
			run->n_failed += lane->failed;
			for (int d = 0; d < lane->named.n; d++)
				drops_add(&run->drops, lane->named.of[d].name,
					lane->named.of[d].count);
		}
	}
	take_span(run);
	run->balanced = handed_out == kept + (delivered ? delivered(run) : run->sent);
	for (int i = 0; i < run->n_devices; i++)
		port_drops(run, &run->devices[i], &before, &after);
	run->received = handed_out + before;
	run->sent -= after < run->sent ? after : run->sent;
}

static uint64_t busy_cycles(const struct packet_worker *worker)
{
	return worker->stop.busy_cycles - worker->start.busy_cycles;
}

/* What its cycles went into. */
static uint64_t packets_of(const struct packet_worker *worker)
{
	uint64_t packets = 0;

	for (int i = 0; i < worker->n_lanes; i++)
		packets += worker->run->command->forwards ? worker->lanes[i].stats.rx_messages
							  : worker->lanes[i].stats.tx_messages;
	return packets;
}

static double cycles_per_packet(const struct packet_run *run)
{
	uint64_t cycles = 0, packets = 0;

	for (int w = 0; w < run->n_workers; w++) {
		cycles += busy_cycles(&run->workers[w]);
		packets += packets_of(&run->workers[w]);
	}
	return packets ? (double)cycles / (double)packets : 0;
}

static double per_second(const struct packet_run *run, uint64_t n)
{
	double seconds = run_seconds(run);

	return seconds > 0 ? (double)n / seconds : 0;
}

static double msg_rate(const struct packet_run *run)
{
	return per_second(run, run->sent);
}

/* Bits of frames, without FCS. */
static double gbit_rate(const struct packet_run *run)
{
	uint64_t bytes = 0;

	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++)
			bytes += run->workers[w].lanes[i].stats.tx_bytes;
	return 8 * per_second(run, bytes) / 1e9;
}

int packet_result_verdict(const struct packet_run *run)
{
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++)
			if (*run->workers[w].lanes[i].error)
				say("%s", run->workers[w].lanes[i].error);
	if (!run->balanced)
		say("frames are not accounted for: received is not sent and drops by name together; this is a "
		    "fault of verbena or of the driver: tell its authors, with the JSON");
	if (stop_signal() && !run->command->endless)
		return STATUS_STOPPED;
	if (run->n_failed || !run->balanced)
		return STATUS_LOST;
	return run->command->verdict ? run->command->verdict(run) : STATUS_DONE;
}

/* ---- while it runs ---- */

static void live_sums(const struct packet_run *run, uint64_t *received, uint64_t *sent)
{
	*received = *sent = 0;
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes && !run->workers[w].gone; i++) {
			struct vbn_queue_stats stats;

			vbn_queue_stats(run->workers[w].lanes[i].queue, &stats);
			*received += stats.rx_messages;
			*sent += stats.tx_messages;
		}
}

static void live_line(struct packet_run *run, uint64_t now, double seconds)
{
	uint64_t received, sent;
	char in[32], out[32];

	live_sums(run, &received, &sent);
	human_number((double)(received - run->live_received) / seconds, in);
	human_number((double)(sent - run->live_sent) / seconds, out);
	say_live("%6.1f s  received %12llu  %10s/s  sent %12llu  %10s/s",
		(double)(now - run->start_ns) / 1e9, (unsigned long long)received, in,
		(unsigned long long)sent, out);
	run->live_received = received;
	run->live_sent = sent;
}

static void live_row(const struct packet_run *run, struct lane *lane, int worker, double seconds)
{
	struct vbn_queue_stats stats;
	char in[32], out[32];

	vbn_queue_stats(lane->queue, &stats);
	human_number((double)(stats.rx_messages - lane->stats.rx_messages) / seconds, in);
	human_number((double)(stats.tx_messages - lane->stats.tx_messages) / seconds, out);
	fprintf(stderr, "\033[K%-6d %-16s %5d %14llu %10s/s %14llu %10s/s\n", worker,
		run->devices[lane->device].info.name, lane->index,
		(unsigned long long)stats.rx_messages, in, (unsigned long long)stats.tx_messages,
		out);
	lane->stats = stats; /* for the next one: the end's are taken when all is over */
}

/* Each queue's rates, over the last one on the terminal. */
static void live_table(struct packet_run *run, double seconds)
{
	int rows = 1;

	for (int w = 0; w < run->n_workers; w++)
		rows += run->workers[w].n_lanes;
	if (run->live_ns)
		fprintf(stderr, "\033[%dA", rows);
	fprintf(stderr, "\033[K%-6s %-16s %5s %14s %12s %14s %12s\n", "worker", "device", "queue",
		"received", "", "sent", "");
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes && !run->workers[w].gone; i++)
			live_row(run, &run->workers[w].lanes[i], w, seconds);
}

void live_print(struct packet_run *run, uint64_t now)
{
	uint64_t since = run->live_ns ? run->live_ns : run->start_ns;
	double seconds = (double)(now - since) / 1e9;

	if (run->command->live_table && isatty(STDERR_FILENO))
		live_table(run, seconds);
	else
		live_line(run, now, seconds);
	run->live_ns = now;
}

/* ---- the table ---- */

static void print_drops(const struct drops *drops)
{
	bool any = false;

	for (int i = 0; i < drops->n; i++) {
		if (!drops->of[i].count)
			continue;
		printf("%s%s %llu", any ? ", " : "drops: ", drops->of[i].name,
			(unsigned long long)drops->of[i].count);
		any = true;
	}
	puts(any ? "" : "drops: none");
}

void packet_result_print(const struct packet_run *run)
{
	char text[160], number[32];

	devices_text(run, text);
	printf("%s%s%s\n\n%-6s %-16s %5s %14s %14s %12s %10s\n", run->mode ? run->mode : "",
		run->mode ? " on " : "", text, "worker", "device", "queue", "received", "sent",
		"dropped", "sent/s");
	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++) {
			const struct lane *lane = &run->workers[w].lanes[i];

			printf("%-6d %-16s %5d %14llu %14llu %12llu %10s\n", w,
				run->devices[lane->device].info.name, lane->index,
				(unsigned long long)lane->stats.rx_messages,
				(unsigned long long)lane->stats.tx_done,
				(unsigned long long)drops_total(&lane->named),
				human_number(per_second(run, lane->stats.tx_done), number));
		}
	printf("\nreceived %llu, sent %llu in %.3f s: %s/s, %.0f cycles a packet\n",
		(unsigned long long)run->received, (unsigned long long)run->sent, run_seconds(run),
		human_number(msg_rate(run), number), cycles_per_packet(run));
	print_drops(&run->drops);
	if (run->command->print)
		run->command->print(run);
	if (run->capture)
		capture_print(run->capture);
}

/* ---- JSON ---- */

static json_t *queues_json(const struct packet_run *run)
{
	json_t *list = json_array();

	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++) {
			const struct lane *lane = &run->workers[w].lanes[i];

			json_array_append_new(list,
				json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:o}", "device",
					run->devices[lane->device].info.name, "queue", lane->index,
					"worker", w, "received",
					(json_int_t)lane->stats.rx_messages, "sent",
					(json_int_t)lane->stats.tx_done, "received_bytes",
					(json_int_t)lane->stats.rx_bytes, "sent_bytes",
					(json_int_t)lane->stats.tx_bytes, "doorbells",
					(json_int_t)lane->stats.tx_doorbells, "drops",
					drops_json(&lane->named)));
		}
	return list;
}

static json_t *workers_json(const struct packet_run *run)
{
	json_t *list = json_array();

	for (int w = 0; w < run->n_workers; w++) {
		const struct packet_worker *worker = &run->workers[w];
		uint64_t busy = busy_cycles(worker), packets = packets_of(worker);
		uint64_t total = worker->stop.total_cycles - worker->start.total_cycles;
		uint64_t received = 0, sent = 0;

		for (int i = 0; i < worker->n_lanes; i++) {
			received += worker->lanes[i].stats.rx_messages;
			sent += worker->lanes[i].stats.tx_done;
		}
		json_array_append_new(list,
			json_pack("{s:i, s:i, s:I, s:I, s:o, s:o, s:o}", "core", worker->core,
				"node", worker->node, "sent", (json_int_t)sent, "received",
				(json_int_t)received, "msg_rate",
				json_number(per_second(run, sent)), "busy_share",
				json_number(total ? (double)busy / (double)total : 0),
				"cycles_per_packet",
				json_number(packets ? (double)busy / (double)packets : 0)));
	}
	return list;
}

static json_t *devices_json(const struct packet_run *run)
{
	json_t *list = json_array();

	for (int i = 0; i < run->n_devices; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:s}", "name", run->devices[i].info.name, "driver",
				run->devices[i].info.driver));
	return list;
}

static json_t *errors_json(const struct packet_run *run)
{
	json_t *list = json_array();

	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++)
			if (*run->workers[w].lanes[i].error)
				json_array_append_new(
					list, json_string(run->workers[w].lanes[i].error));
	return list;
}

json_t *packet_result_json(const struct packet_run *run)
{
	json_t *root = json_pack("{s:s, s:s, s:o, s:o}", "tool", run->command->name, "version",
		vbn_version(), "mode", run->mode ? json_string(run->mode) : json_null(), "devices",
		devices_json(run));

	if (!root)
		return NULL;
	json_object_set_new(root, "seconds", json_number(run_seconds(run)));
	json_object_set_new(root, "received", json_integer((json_int_t)run->received));
	json_object_set_new(root, "sent", json_integer((json_int_t)run->sent));
	json_object_set_new(root, "drops", drops_json(&run->drops));
	json_object_set_new(root, "msg_rate", json_number(msg_rate(run)));
	json_object_set_new(root, "gbit_rate", json_number(gbit_rate(run)));
	json_object_set_new(root, "cycles_per_packet", json_number(cycles_per_packet(run)));
	json_object_set_new(root, "queues", queues_json(run));
	json_object_set_new(root, "workers", workers_json(run));
	json_object_set_new(root, "accounted", json_boolean(run->balanced));
	if (run->command->json)
		run->command->json(run, root);
	json_object_set_new(
		root, "capture", run->capture ? capture_json(run->capture) : json_null());
	json_object_set_new(root, "effective", mode_list_json(&run->modes));
	json_object_set_new(root, "stopped", json_boolean(stop_signal()));
	json_object_set_new(root, "errors", errors_json(run));
	return root;
}
