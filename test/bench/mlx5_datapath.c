/* mlx5_datapath.c - Verbena's mlx5 data path against libmlx5's own, in instructions and time per
 * message
 *
 * Both run on the same kind of rings of the same device in the same run, their rounds interleaved:
 * 64-byte messages in bursts of 64. Only the calls are counted, after completions have landed;
 * neither filling work requests nor waiting is.
 */
#include "datapath.h"

#include <errno.h>
#include <getopt.h>
#include <infiniband/mlx5dv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the cases ---- */

enum {
	OURS_POST,
	OURS_POST_INLINE,
	OURS_REAP,
	OURS_REAP_EVENTS,
	OURS_RECEIVE,
	PEER_POST_SEND,
	PEER_POST_SEND_INLINE,
	PEER_WR,
	PEER_WR_INLINE,
	PEER_POLL_CQ,
	PEER_POLL_AND_POST_RECV,
	N_ACTS,
};

static const struct act *const acts[N_ACTS] = {
	[OURS_POST] = &ours_post,
	[OURS_POST_INLINE] = &ours_post_inline,
	[OURS_REAP] = &ours_reap,
	[OURS_REAP_EVENTS] = &ours_reap_events,
	[OURS_RECEIVE] = &ours_receive,
	[PEER_POST_SEND] = &peer_post_send,
	[PEER_POST_SEND_INLINE] = &peer_post_send_inline,
	[PEER_WR] = &peer_wr,
	[PEER_WR_INLINE] = &peer_wr_inline,
	[PEER_POLL_CQ] = &peer_poll_cq,
	[PEER_POLL_AND_POST_RECV] = &peer_poll_and_post_recv,
};

static const struct comparison {
	const char *name, *peer;
	int ours, theirs;
} comparisons[] = {
	{"post", "ibv_post_send", OURS_POST, PEER_POST_SEND},
	{"post", "ibv_wr", OURS_POST, PEER_WR},
	{"post_inline", "ibv_post_send", OURS_POST_INLINE, PEER_POST_SEND_INLINE},
	{"post_inline", "ibv_wr", OURS_POST_INLINE, PEER_WR_INLINE},
	{"reap", "ibv_poll_cq", OURS_REAP, PEER_POLL_CQ},
	{"reap_events", "ibv_poll_cq", OURS_REAP_EVENTS, PEER_POLL_CQ},
	{"receive_refill", "ibv_poll_cq+ibv_post_recv", OURS_RECEIVE, PEER_POLL_AND_POST_RECV},
};

enum { N_COMPARISONS = sizeof(comparisons) / sizeof(comparisons[0]) };

/* Nanoseconds per message over the rounds. */
struct outcome {
	struct spread ours_ns, peer_ns;
};

/* ---- the device ---- */

static bool find_device(const char *wanted, char *name, size_t size)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool found = false;

	for (int i = 0; list && list[i] && !found; i++) {
		const char *candidate = ibv_get_device_name(list[i]);

		found = mlx5dv_is_supported(list[i]) && (!wanted || !strcmp(wanted, candidate));
		if (found)
			snprintf(name, size, "%s", candidate);
	}
	if (list)
		ibv_free_device_list(list);
	return found;
}

/* Starts this program again with the emulated device loaded ahead of libibverbs. */
static void restart_emulated(char **argv)
{
	const char *others = getenv("LD_PRELOAD");
	char preload[4096];

	if (getenv("MLX5_DATAPATH_EMULATED"))
		die("no mlx5 device, not even with %s loaded", VHCA_LIBRARY);
	fprintf(stderr, "no mlx5 device on this machine: running on the emulated one\n");
	snprintf(preload, sizeof(preload), "%s%s%s", VHCA_LIBRARY, others ? ":" : "",
		others ? others : "");
	setenv("LD_PRELOAD", preload, 1);
	setenv("MLX5_DATAPATH_EMULATED", "1", 1);
	execv("/proc/self/exe", argv);
	die("cannot start itself again: %s", strerror(errno));
}

/* ---- time ---- */

static struct outcome time_comparison(const struct comparison *comparison, int rounds)
{
	double *ours = calloc((size_t)rounds, sizeof(*ours));
	double *theirs = calloc((size_t)rounds, sizeof(*theirs));
	struct outcome outcome;

	if (!ours || !theirs)
		die("no memory for %d rounds", rounds);
	for (int i = 0; i < rounds / 10 + 1; i++) {
		time_round(acts[comparison->ours]);
		time_round(acts[comparison->theirs]);
	}
	for (int i = 0; i < rounds; i++) {
		ours[i] = time_round(acts[comparison->ours]);
		theirs[i] = time_round(acts[comparison->theirs]);
	}
	outcome = (struct outcome){spread_of(ours, rounds), spread_of(theirs, rounds)};
	free(ours);
	free(theirs);
	return outcome;
}

/* ---- the report ---- */

static void print_table(FILE *out, const struct outcome *outcomes, const double *counts)
{
	fprintf(out, "%-15s%-27s%25s%9s%40s%9s\n", "", "", "instructions per message", "",
		"ns per message: median (p10-p90)", "");
	fprintf(out, "%-15s%-27s%13s%12s%9s%20s%20s%9s\n", "case", "peer", "ours", "peer", "ratio",
		"ours", "peer", "ratio");
	for (int i = 0; i < N_COMPARISONS; i++) {
		const struct comparison *c = &comparisons[i];
		const struct spread *ours = &outcomes[i].ours_ns, *peer = &outcomes[i].peer_ns;
		char ours_ns[40], peer_ns[40];

		fprintf(out, "%-15s%-27s", c->name, c->peer);
		if (isnan(counts[c->ours]))
			fprintf(out, "%13s%12s%9s", "-", "-", "-");
		else
			fprintf(out, "%13.1f%12.1f%9.2f", counts[c->ours], counts[c->theirs],
				counts[c->ours] / counts[c->theirs]);
		snprintf(ours_ns, sizeof(ours_ns), "%.1f (%.1f-%.1f)", ours->median, ours->low,
			ours->high);
		snprintf(peer_ns, sizeof(peer_ns), "%.1f (%.1f-%.1f)", peer->median, peer->low,
			peer->high);
		fprintf(out, "%20s%20s%9.2f\n", ours_ns, peer_ns, ours->median / peer->median);
	}
}

static void print_number(FILE *out, const char *key, double value)
{
	if (isnan(value))
		fprintf(out, ", \"%s\": null", key);
	else
		fprintf(out, ", \"%s\": %.2f", key, value);
}

static void print_json(FILE *out, const struct outcome *outcomes, const double *counts)
{
	fprintf(out, "{\"cases\": [");
	for (int i = 0; i < N_COMPARISONS; i++) {
		const struct comparison *c = &comparisons[i];

		fprintf(out, "%s\n  {\"name\": \"%s\", \"peer\": \"%s\"", i ? "," : "", c->name,
			c->peer);
		print_number(out, "ours_instructions", counts[c->ours]);
		print_number(out, "peer_instructions", counts[c->theirs]);
		print_number(out, "ours_ns", outcomes[i].ours_ns.median);
		print_number(out, "peer_ns", outcomes[i].peer_ns.median);
		fprintf(out, "}");
	}
	fprintf(out, "\n]}\n");
}

static void write_json(const char *path, const struct outcome *outcomes, const double *counts)
{
	FILE *out = strcmp(path, "-") ? fopen(path, "w") : stdout;

	if (!out)
		die("cannot write %s: %s", path, strerror(errno));
	print_json(out, outcomes, counts);
	if (ferror(out) || fflush(out))
		die("cannot write %s: %s", path, strerror(errno));
	if (out != stdout)
		fclose(out);
}

/* ---- the command line ---- */

struct options {
	const char *json, *device;
	int rounds;
	bool count; /* this is the run under callgrind */
};

static void usage(FILE *out)
{
	fputs("usage: mlx5_datapath [--device NAME] [--rounds N] [--json FILE]\n"
	      "Compares Verbena's mlx5 data path with libmlx5's own: instructions (by callgrind) and time per message.\n"
	      "  --device NAME  an mlx5 device (default: the first; else the emulated one)\n"
	      "  --rounds N     timed rounds of each side, 10 to 1000000 (default 1000)\n"
	      "  --json FILE    the figures as JSON; - is standard output, and the table then goes to standard error\n",
		out);
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"json", required_argument, NULL, 'j'},
		{"device", required_argument, NULL, 'd'},
		{"rounds", required_argument, NULL, 'r'},
		{"count", no_argument, NULL, 'c'}, /* by the program itself, under callgrind */
		{"help", no_argument, NULL, 'h'},
		{},
	};
	struct options options = {.rounds = 1000};
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		char *end = NULL;

		switch (option) {
		case 'j': options.json = optarg; break;
		case 'd': options.device = optarg; break;
		case 'r': options.rounds = (int)strtol(optarg, &end, 10); break;
		case 'c': options.count = true; break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
		if ((end && *end) || options.rounds < 10 || options.rounds > 1000000) {
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc) {
		usage(stderr);
		exit(2);
	}
	return options;
}

static void measure(const struct options *options, const char *device)
{
	struct outcome outcomes[N_COMPARISONS];
	double counts[N_ACTS];

	for (int i = 0; i < N_COMPARISONS; i++) {
		fprintf(stderr, "timing %s against %s, %d rounds each\n", comparisons[i].name,
			comparisons[i].peer, options->rounds);
		outcomes[i] = time_comparison(&comparisons[i], options->rounds);
	}
	for (int i = 0; i < N_ACTS; i++)
		counts[i] = NAN;
	fprintf(stderr, "counting instructions under callgrind\n");
	if (!count_instructions((const char *const[]){"--device", device, NULL}, counts, N_ACTS))
		fprintf(stderr,
			"valgrind is not installed: no instruction counts (.ci/deps test installs it)\n");
	print_table(
		options->json && !strcmp(options->json, "-") ? stderr : stdout, outcomes, counts);
	if (options->json)
		write_json(options->json, outcomes, counts);
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	char device[64];

	if (!find_device(options.device, device, sizeof(device))) {
		if (options.device && find_device(NULL, device, sizeof(device)))
			die("no mlx5 device is named %s; %s is one", options.device, device);
		restart_emulated(argv);
	}
	peer_open(device);
	ours_open(device);
	if (options.count)
		count_rounds(acts, N_ACTS);
	else
		measure(&options, device);
	ours_close();
	peer_close();
	return 0;
}
