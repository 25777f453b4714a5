/* msgrate_modes.c - requested against effective: the block of modes, and what this command decides */
#include "msgrate.h"

/* ---- modes ---- */

void modes_add(struct run *run, const struct vbn_mode *modes, int n, const char *who)
{
	mode_list_add(&run->modes, modes, n, who);
}

void mode_add(struct run *run, const char *name, const char *requested, const char *effective,
	const char *why)
{
	mode_list_add_one(&run->modes, name, requested, effective, why);
}

void modes_print(const struct run *run)
{
	mode_list_print(&run->modes);
}

/* ---- requested against effective: what this command decides ---- */

void cores_text(const struct run *run, char *text, size_t size)
{
	size_t n = 0;

	for (int i = 0; i < run->n_sides && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%d", i ? "," : "", run->cores[i]);
}

/* Where the user left the device open, run->chosen ends with why. */
static const char *why_device(const struct run *run)
{
	const char *why = strstr(run->chosen, ": ");

	if (!run->conf.device)
		return why ? why + 2 : "the best port that there is";
	return strcmp(run->conf.device, "vhca") ? "as asked" : "an emulated one, as asked";
}

static bool follows(const struct run *run)
{
	return run->other && !run->other->leads;
}

/* Of an option that was not given here. */
static const char *why_open(const struct run *run, const char *otherwise)
{
	return follows(run) ? "the process that connects decides" : otherwise;
}

static const char *why_workers(const struct run *run)
{
	if (run->n_sides < run->n_cores)
		return "the process that connects asks for fewer queues than --cores has cores";
	if (run->conf.cores)
		return "one for each core of --cores";
	if (run->other)
		return "one, this process's end: --cores lists more";
	if (run->conf.one_worker)
		return "both ends on one, as asked";
	if (run->n_sides > 1)
		return "one for each end";
	return "both ends on one: two would leave no core of those allowed to anything else";
}

static void note_port(struct run *run)
{
	struct vbn_mode modes[32];
	int n = vbn_port_modes(run->port, modes, ARRAY_SIZE(modes));

	modes_add(run, modes, n < (int)ARRAY_SIZE(modes) ? n : (int)ARRAY_SIZE(modes), "port");
}

void note_number(
	struct run *run, const char *name, int64_t given, int64_t effective, const char *why)
{
	char requested[32] = "auto", holds[32];

	if (given)
		snprintf(requested, sizeof(requested), "%lld", (long long)given);
	snprintf(holds, sizeof(holds), "%lld", (long long)effective);
	mode_add(run, name, requested, holds, why);
}

static void note_flag(
	struct run *run, const char *name, bool given, bool effective, const char *why)
{
	mode_add(run, name, given ? "on" : "off", effective ? "on" : "off", why);
}

static void note_time(struct run *run, const char *name, int64_t ns, const char *why)
{
	char text[32];

	snprintf(text, sizeof(text), "%g s", (double)ns / 1e9);
	mode_add(run, name, asked(run, name) ? text : "auto", text, why);
}

static void note_verify(struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	char scan[64];

	snprintf(scan, sizeof(scan), "last scan of %lld slots", (long long)conf->tx_depth);
	if (!conf->verify)
		mode_add(run, "verify", "off", "off",
			why_open(run, "not asked for; what is lost is known by counting, no more"));
	else if (conf->op == OP_WRITE)
		mode_add(run, "verify", "on", scan,
			"nobody receives a write: of each slot the last message is checked, at the end");
	else
		mode_add(run, "verify", "on", "each message", why_open(run, "as asked"));
}

static void note_length(struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)conf->iters);
	if (conf->iters)
		mode_add(run, "iters", text, text,
			why_open(run, "as asked, of each queue that sends"));
	else
		note_time(run, "duration", conf->duration,
			asked(run, "duration") ? "as asked" : why_open(run, "the default"));
	note_time(run, "warmup", conf->warmup,
		asked(run, "warmup")  ? "as asked"
			: conf->iters ? "none with --iters, of which all count"
				      : why_open(run, "the default"));
	snprintf(text, sizeof(text), "%lld msg/s at most", (long long)conf->rate);
	mode_add(run, "rate", conf->rate ? text : "unlimited", conf->rate ? text : "unlimited",
		why_open(run, conf->rate ? "as asked, in all" : "not asked for"));
}

static void note_workers(struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	char asked_for[32] = "auto", workers[32], cores[64];

	snprintf(workers, sizeof(workers), "%d", run->n_sides);
	if (conf->cores || conf->one_worker)
		snprintf(asked_for, sizeof(asked_for), "%d",
			conf->cores ? run->n_cores : run->n_sides);
	mode_add(run, "workers", asked_for, workers, why_workers(run));
	note_flag(run, "one_worker", conf->one_worker, !run->other && run->n_sides == 1,
		run->other ? "the two ends are in two processes" : why_workers(run));
	cores_text(run, cores, sizeof(cores));
	mode_add(run, "cores", conf->cores ? conf->cores : "auto", cores,
		run->n_sides < run->n_cores ? why_workers(run)
			: conf->cores       ? "as asked"
					    : "of those allowed, near the device");
}

void note_options(struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	char device[64];

	mode_add(run, "device", run->requested_device, device_text(run, device), why_device(run));
	note_workers(run);
	note_number(run, "queues", asked(run, "queues") ? conf->queues : 0, conf->queues,
		asked(run, "queues") ? "as asked, of a worker to its peer"
				     : why_open(run, "the default"));
	note_flag(run, "bidirectional", conf->bidirectional && !conf->latency, conf->bidirectional,
		conf->latency ? "an answer is a message as what it answers"
			: conf->bidirectional
			? why_open(run, "as asked: each queue sends and receives")
			: why_open(run, "not asked for: one end of each queue sends"));
	note_verify(run);
	note_length(run);
	note_port(run);
}
