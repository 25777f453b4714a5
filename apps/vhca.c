/* vhca.c - `verbena vhca`: run a command where libibverbs finds emulated ConnectX devices */
#include "vhca.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define VALUE(field) offsetof(struct vhca_options, field)

static const struct option options[] = {
	{"devices", "N", VALUE_COUNT, VALUE(devices), 1, 16, NULL,
		"how many: mlx5_0, mlx5_1, ... (1)"},
	{"address", "ADDR", VALUE_TEXT, VALUE(address), 0, 0, NULL,
		"IPv4 or IPv6 address of the first, with /PREFIX and @VLAN\nbehind it, or a list; the others count up. Or interface:\nthose of packet:INTERFACE (127.0.0.1)"},
	{"gateway", "ADDR,...", VALUE_TEXT, VALUE(gateway), 0, 0, NULL,
		"who leads beyond the link of an address with a prefix,\non tap: and packet: (none)"},
	{"wire", "WIRE", VALUE_TEXT, VALUE(wire), 0, 0, NULL,
		"what the ports are plugged into: loopback, udp,\ntap:INTERFACE, packet:INTERFACE (udp)"},
	{"mtu", "N,...", VALUE_TEXT, VALUE(mtu), 0, 0, NULL,
		"path MTU in bytes of each device, as 1024,4096; the last\none is repeated (1024)"},
	{"node", "N,...", VALUE_TEXT, VALUE(node), 0, 0, NULL,
		"NUMA node each reports; -1 is none (-1)"},
	{"profile", "NAME,...", VALUE_TEXT, VALUE(profile), 0, 0, NULL,
		"what each is: connectx5 or connectx4lx (connectx5)"},
	{"speed", "N,...", VALUE_TEXT, VALUE(speed), 0, 0, NULL,
		"Gbit/s of each port: 10, 25, 40, 50, 100 (100, and 25\nof a connectx4lx)"},
	{"strict", "MODE", VALUE_WORD, VALUE(strict), 0, 0, "report error abort",
		"what a breach of the device's contract does besides what\nthe device would do: report, error, abort (report)"},
	{"trap", NULL, VALUE_FLAG, VALUE(trap), 0, 0, NULL,
		"look at each store to a UAR page by itself, at some\nmicroseconds each; x86-64"},
	{"devx", NULL, VALUE_FLAG, VALUE(devx), 0, 0, NULL,
		"let programs command the device by themselves, as\nDPDK's mlx5 does where it may"},
	{"idle", "MODE", VALUE_WORD, VALUE(idle), 0, 0, "doze nap",
		"how the emulator waits for work: doze, until a store to\na UAR page wakes it, where the kernel has userfaultfd;\nnap, a millisecond at a time (doze)"},
	{"fault", "SPEC", VALUE_TEXT, VALUE(fault), 0, 0, NULL,
		"misbehave; a comma list of those below"},
	{"seed", "N", VALUE_COUNT, VALUE(seed), 0, INT64_MAX, NULL,
		"of whatever is random; what that hits depends on the\ntiming of processes, too (1)"},
	{"trace", "FILE", VALUE_TEXT, VALUE(trace), 0, 0, NULL,
		"commands, doorbells, WQEs and CQEs, a line for each; %p\nin FILE is the process's number"},
	{"pcap", "FILE", VALUE_TEXT, VALUE(pcap), 0, 0, NULL,
		"the packets on the wire, as pcapng; %p as above"},
};

static const struct command command = {
	.name = "vhca",
	.usage = "[options] -- COMMAND [arguments]\n"
		 "       verbena vhca status [--json FILE]",
	.summary =
		"Runs COMMAND with an emulated ConnectX under the libibverbs and libmlx5 of this machine. Real\n"
		"devices are hidden from it. The exit status is the command's own. `status` shows the emulated devices\n"
		"that running programs have open.",
	.more = "examples:\n"
		"  verbena vhca -- ibv_devinfo -v\n"
		"  verbena vhca --devices 2 --mtu 4096 -- ibv_devices\n"
		"  verbena vhca --devices 2 --node 0,1 --profile connectx5,connectx4lx -- ibv_devinfo\n"
		"  verbena vhca --trace - -- ibv_rc_pingpong -g 3\n"
		"  verbena vhca --fault msg-drop=1000 -- verbena msgrate --verify --duration 1\n"
		"                           loses one message; msgrate tells, and exits with 1\n"
		"\n"
		"faults, in a comma list:\n"
		"  msg-drop=N  msg-double=N  msg-alter=N\n"
		"                           the N-th message, of whatever kind, is lost, comes twice, comes\n"
		"                           with another byte\n"
		"  syndrome=HEX@N           the N-th WQE completes with that syndrome\n"
		"  rnr=N                    the N-th message to want a receive finds none\n"
		"  delay-cqe=TIME  torn     completions come late; come in pieces, the owner bit last\n"
		"  loss=R  reorder=R  duplicate=R  corrupt=R  delay=TIME\n"
		"                           of the packets on a wire that has some, R of 1\n"
		"  port-flap=TIME           the port goes down and up, each time after so long\n"
		"  device-fatal=TIME        the devices die after so long\n"
		"\n"
		"VHCA_DEVICES, VHCA_ADDRESS, VHCA_WIRE, ... in the environment are the same as the options, which\n"
		"go before them; a bad value is a bad option. The emulator goes first in LD_PRELOAD and leaves the rest of it.\n"
		"\n"
		"not there, and refused: rdma_cm (perftest's -R, rping), XRC, memory windows, multicast,\n"
		"device memory; rules of steering beyond the outer headers, or in tables other than the root.\n"
		"\n"
		"exit status: the command's; 2 usage; 3 the emulator is not to be found; 126 the command cannot be\n"
		"run on it (not executable, set-id, file capabilities, static); 127 there is no such command.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* The word at place i of a blank-separated list. */
static void word_at(const char *words, int64_t i, char *text, size_t size)
{
	while (i--)
		words = strchr(words, ' ') + 1;
	snprintf(text, size, "%.*s", (int)strcspn(words, " "), words);
}

/* VHCA_MTU for mtu. */
static void variable_name(const char *option, char name[32])
{
	size_t n = (size_t)snprintf(name, 32, "VHCA_");

	for (; *option && n < 31; option++)
		name[n++] = (char)(*option - 'a' + 'A');
	name[n] = '\0';
}

const char *vhca_called(const struct vhca_options *conf, const char *option, char text[64])
{
	char name[32];

	variable_name(option, name);
	if (option_given(&command, conf->inherited, option))
		snprintf(text, 64, "%s in the environment", name);
	else
		snprintf(text, 64, "option --%s", option);
	return text;
}

/* Of an option without a value the variable is 1 or 0, and 0 as if it were not there. */
static int take_flag(struct vhca_options *conf, size_t i, const char *called, const char *text)
{
	if (strcmp(text, "0") && strcmp(text, "1"))
		return usage_error(
			"%s cannot be \"%.80s\": it says yes or no; give 1 or 0", called, text);
	*(bool *)((char *)conf + options[i].offset) = *text == '1';
	return 0;
}

/* Takes the variables whose options are not given, so that a bad one is told as a bad option is:
 * the emulator itself would only warn, and run as something else. */
static int take_variables(struct vhca_options *conf, uint64_t *given)
{
	char name[32], called[64];
	int status = 0;

	for (size_t i = 0; i < ARRAY_SIZE(options) && !status; i++) {
		const char *text;

		variable_name(options[i].name, name);
		text = getenv(name);
		if (!text || !*text || *given >> i & 1)
			continue;
		conf->inherited |= 1ull << i;
		*given |= 1ull << i;
		vhca_called(conf, options[i].name, called);
		status = options[i].value == VALUE_FLAG
			? take_flag(conf, i, called, text)
			: option_take(&options[i], called, text, conf);
	}
	return status;
}

static bool is_variable(const char *text, size_t length)
{
	char name[32];

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		variable_name(options[i].name, name);
		if (strlen(name) == length && !memcmp(name, text, length))
			return true;
	}
	return false;
}

static void warn_of_variables(void)
{
	for (char **at = environ; *at; at++) {
		size_t length = strcspn(*at, "=");

		if (!strncmp(*at, "VHCA_", 5) && !is_variable(*at, length))
			say("%.*s in the environment is no variable of the emulator: it has no effect; "
			    "verbena vhca --help lists the options, which are mirrored",
				(int)(length < 80 ? length : 80), *at);
	}
}

static int set_variable(const struct option *option, const void *conf)
{
	const void *place = (const char *)conf + option->offset;
	char name[32], text[64];
	const char *value = text;

	variable_name(option->name, name);
	if (option->value == VALUE_TEXT)
		value = *(const char *const *)place;
	else if (option->value == VALUE_FLAG)
		snprintf(text, sizeof(text), "%d", *(const bool *)place);
	else if (option->value == VALUE_WORD)
		word_at(option->words, *(const int64_t *)place, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%lld", (long long)*(const int64_t *)place);
	return setenv(name, value, 1)
		? cannot("%s cannot be put into the environment: there is no memory; free some",
			  name)
		: 0;
}

static int set_variables(const struct vhca_options *conf, uint64_t given)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		int status = given >> i & 1 ? set_variable(&options[i], conf) : 0;

		if (status)
			return status;
	}
	return 0;
}

static int run(char **argv)
{
	struct program program;
	int status = program_find(argv[0], &program);

	/* The emulator of a sanitized build needs the runtime even where the command does not. */
	if (!status)
		status = vhca_preload(*program.sanitizer ? program.sanitizer : loaded_sanitizer());
	if (status)
		return status;
	if (*program.sanitizer)
		say("%s is built with a sanitizer that wants to be first: %s is preloaded ahead of the emulator",
			program.path, program.sanitizer);
	fflush(NULL);
	/* execvp() for a script without "#!", which it hands to the shell; the path has a slash or
	 * PATH has it. */
	execvp(strchr(argv[0], '/') ? argv[0] : program.path, argv);
	say("%s cannot be run: %s; see that it is a program for this machine", program.path,
		strerror(errno));
	return errno == ENOENT ? STATUS_NO_COMMAND : STATUS_CANNOT_EXEC;
}

/* A file that begins with this run, named so that the command may change its directory. One that is
 * inherited began with another. */
static int settle_file(const struct vhca_options *conf, const char *option, const char **path,
	char absolute[PATH_MAX])
{
	char here[PATH_MAX];
	int fd;

	if (!*path || !strcmp(*path, "-") || option_given(&command, conf->inherited, option))
		return 0;
	if (**path != '/') {
		if (!getcwd(here, sizeof(here)) ||
			snprintf(absolute, PATH_MAX, "%s/%s", here, *path) >= PATH_MAX)
			return cannot("%s: the directory has no name: %s; give the whole path",
				*path, strerror(errno));
		*path = absolute;
	}
	if (strstr(*path, "%p"))
		return 0;
	fd = open_to_write(*path, O_CREAT | O_TRUNC);
	if (fd < 0 && fd != -ENXIO) /* a pipe may find its reader later */
		return cannot("%s: it cannot be written: %s; give a path in a directory of yours",
			*path, why_not_opened(fd));
	if (fd >= 0)
		close(fd);
	return 0;
}

int cmd_vhca(int argc, char **argv)
{
	char trace[PATH_MAX], pcap[PATH_MAX];
	struct vhca_options conf = {0};
	uint64_t given;
	char **rest;
	int status;

	if (argc > 1 && !strcmp(argv[1], "status"))
		return cmd_vhca_status(argc - 1, argv + 1);
	status = options_parse(&command, argc, argv, &conf, &given, &rest);
	if (status != OPTIONS_OK)
		return status;
	if (!rest || !rest[0])
		return usage_error(
			"there is no command to run: give it behind --, as in verbena vhca -- ibv_devinfo");
	status = take_variables(&conf, &given);
	if (!status)
		status = vhca_check(&conf);
	if (!status)
		status = settle_file(&conf, "trace", &conf.trace, trace);
	if (!status)
		status = settle_file(&conf, "pcap", &conf.pcap, pcap);
	if (!status)
		status = set_variables(&conf, given);
	if (status)
		return status;
	warn_of_variables();
	return run(rest);
}
