/* verbena.c - the command: which subcommand, and how the library is started for it */
#include "cmd.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

uint64_t cmd_started_ns;
char **cmd_argv;

/* --vbn-* options, taken out of the subcommand's: for vbn_init(). */
static int library_argc;
static char **library_argv;

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
	bool uses_library;
} subcommands[] = {
	{"msgrate", cmd_msgrate, "messages per second over RDMA: the stress test", true},
	{"latency", cmd_latency, "one message at a time: its time, in percentiles", true},
	{"fwd", cmd_fwd, "forward Ethernet frames: io, mac, macswap, l3", true},
	{"echo", cmd_echo, "answer ARP, ND, ping and UDP, by an IP stack in user space", true},
	{"pktgen", cmd_pktgen, "send Ethernet frames at a rate, time what comes back", true},
	{"doctor", cmd_doctor, "what this machine lacks, with the commands that mend it", false},
	{"devices", cmd_devices, "ports, drivers, NUMA nodes, GIDs, capabilities", true},
	{"top", cmd_top, "live counters of running processes: workers, queues, pools, ports",
		false},
	{"vhca", cmd_vhca, "run a command on an emulated ConnectX", false},
};

static const char *const examples =
	"\n"
	"examples:\n"
	"  verbena msgrate --duration 3 --verify\n"
	"                       on the best port there is, else on an emulated one\n"
	"  verbena doctor       what it would run better with\n"
	"  verbena devices\n"
	"  verbena vhca -- ibv_devinfo -v\n"
	"\n"
	"verbena SUBCOMMAND --help teaches each.\n";

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- stopping ---- */

#define SETTLE_NS 100000000u /* a group and its member may get the same signal twice at once */

static volatile sig_atomic_t stopped_by;

/* A second one, later, is of somebody who does not want to wait: it does what it does to any
 * program. */
static void on_stop(int signal)
{
	static uint64_t first_ns;
	uint64_t now = now_ns();

	if (!stopped_by) {
		stopped_by = signal;
		first_ns = now;
		vbn_stop();
	} else if (now - first_ns > SETTLE_NS) {
		sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
		raise(signal);
	}
}

void stop_signals_take(void)
{
	static const int signals[] = {SIGINT, SIGTERM};
	struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART}, old;
	sigset_t both;

	sigemptyset(&both);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&both, signals[i]);
	action.sa_mask = both;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	/* vhca_start_over() had them wait for this. */
	if (vhca_why())
		sigprocmask(SIG_UNBLOCK, &both, NULL);
}

int stop_signal(void)
{
	return stopped_by;
}

/* ---- help, and the library ---- */

static void print_usage(FILE *out)
{
	fputs("usage: verbena SUBCOMMAND [options] [-- COMMAND]\n\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++)
		fprintf(out, "  verbena %-10s %s\n", subcommands[i].name, subcommands[i].help);
	fprintf(out, "  verbena %-10s %s\n", "help",
		"this text; help SUBCOMMAND is SUBCOMMAND --help");
	fprintf(out, "  verbena %-10s %s\n", "--version", "the version");
	fputs(examples, out);
}

int cmd_library_start(void)
{
	int err;

	vbn_log_to(VBN_LOG_NOTICE, say_library, NULL);
	err = vbn_init(&library_argc, &library_argv);
	return err ? library_failed(err, "the library cannot be started") : 0;
}

/* Moves the library's options to library_argv; returns how many arguments stay. */
static int split_library_options(int argc, char **argv)
{
	int kept = 0;

	library_argv = calloc((size_t)argc + 2, sizeof(*library_argv));
	if (!library_argv)
		return -ENOMEM;
	library_argv[library_argc++] = argv[0];
	for (int i = 0; i < argc; i++) {
		if (i && !strncmp(argv[i], "--vbn-", 6))
			library_argv[library_argc++] = argv[i];
		else
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	return kept;
}

/* argv is changed below, and a start under vhca needs it as it was. */
static char **copy_arguments(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	if (copy)
		memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	return copy;
}

static int run_subcommand(size_t i, int argc, char **argv)
{
	int status = 0;

	say_as(subcommands[i].name);
	/* `verbena vhca` hands its streams to the command as they are. */
	if (subcommands[i].uses_library) {
		status = streams_open();
		argc = split_library_options(argc, argv);
	}
	if (argc < 0)
		return cannot("the arguments cannot be read: there is no memory; free some");
	if (!status)
		status = subcommands[i].run(argc, argv);
	free(library_argv);
	return status;
}

static int find_subcommand(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++)
		if (!strcmp(name, subcommands[i].name))
			return (int)i;
	return -1;
}

static int no_subcommand(const char *name)
{
	if (!strcmp(name, "-h"))
		return usage_short_help();
	return usage_error("there is no subcommand \"%.80s\": verbena --help lists them", name);
}

/* What is no subcommand: help and the version. */
static int run_word(int argc, char **argv)
{
	static char help_option[] = "--help";
	bool help = !strcmp(argv[1], "help"), version = !strcmp(argv[1], "--version");

	if (help && argc == 3) {
		int i = find_subcommand(argv[2]);

		if (i < 0)
			return no_subcommand(argv[2]);
		return subcommands[i].run(2, (char *[]){argv[2], help_option, NULL});
	}
	if (!help && !version && strcmp(argv[1], "--help"))
		return no_subcommand(argv[1]);
	if (argc > 2)
		return usage_error("argument \"%.80s\" is not expected behind %s: leave it out",
			argv[help ? 3 : 2], argv[1]);
	if (version)
		printf("verbena %s\n", vbn_version());
	else
		print_usage(stdout);
	return STATUS_DONE;
}

static int run(int argc, char **argv)
{
	int i;

	if (argc < 2) {
		print_usage(stderr);
		return STATUS_USAGE;
	}
	i = find_subcommand(argv[1]);
	return i < 0 ? run_word(argc, argv) : run_subcommand((size_t)i, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int status;

	cmd_started_ns = now_ns();
	cmd_argv = copy_arguments(argc, argv);
	if (!cmd_argv)
		return cannot("the arguments cannot be read: there is no memory; free some");
	status = run(argc, argv);
	free(cmd_argv);
	/* What failed already keeps its status. */
	return output_check(0) && status == STATUS_DONE ? STATUS_CANNOT : status;
}
