/* vhca.c - `verbena vhca`: run a command where libibverbs finds emulated ConnectX devices */
#include "cmd.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

struct vhca_options {
	int64_t devices, mtu, node, seed, profile, strict, wire;
	const char *address, *fault;
};

#define VALUE(field) offsetof(struct vhca_options, field)

static const struct option options[] = {
	{"devices", "N", VALUE_COUNT, VALUE(devices), 1, 16, NULL,
		"how many: mlx5_0, mlx5_1, ... (1)"},
	{"address", "ADDR", VALUE_TEXT, VALUE(address), 0, 0, NULL,
		"IPv4 or IPv6 address of the first; the others count up\n(127.0.0.1)"},
	{"wire", "WIRE", VALUE_WORD, VALUE(wire), 0, 0, "loopback",
		"what the ports are plugged into: loopback, inside the\nprocess (loopback)"},
	{"mtu", "N", VALUE_POW2, VALUE(mtu), 256, 4096, NULL, "path MTU in bytes (1024)"},
	{"node", "N", VALUE_COUNT, VALUE(node), -1, 1023, NULL,
		"NUMA node they report; -1 is none (-1)"},
	{"profile", "NAME", VALUE_WORD, VALUE(profile), 0, 0, "connectx5 connectx4lx",
		"connectx5 or connectx4lx (connectx5)"},
	{"strict", "MODE", VALUE_WORD, VALUE(strict), 0, 0, "report error abort",
		"what a breach of the device's contract does besides what\nthe device would do: report, error, abort (report)"},
	{"fault", "SPEC", VALUE_TEXT, VALUE(fault), 0, 0, NULL,
		"misbehave; a comma list of msg-drop=N, msg-double=N,\nmsg-alter=N for the N-th message delivered, and\nsyndrome=HEX@N: the N-th WQE fails so"},
	{"seed", "N", VALUE_COUNT, VALUE(seed), 0, INT64_MAX, NULL,
		"of whatever is random, so that it repeats (1)"},
};

static const struct command command = {
	.name = "vhca",
	.usage = "[options] -- COMMAND [arguments]",
	.summary =
		"Runs COMMAND with an emulated ConnectX under the libibverbs and libmlx5 of this machine. Real\n"
		"devices are hidden from it. The exit status is the command's own.",
	.more = "examples:\n"
		"  verbena vhca -- ibv_devinfo -v\n"
		"  verbena vhca --devices 2 --mtu 4096 -- ibv_devices\n"
		"  verbena vhca --fault msg-drop=1000 -- verbena msgrate --verify --duration 1\n"
		"                           loses one message; msgrate tells, and exits with 1\n"
		"\n"
		"VHCA_DEVICES, VHCA_ADDRESS, VHCA_WIRE, ... in the environment are the same as the options, which\n"
		"go before them. The emulator goes first in LD_PRELOAD and leaves the rest of it.\n"
		"\n"
		"exit status: the command's; 2 usage; 3 the emulator is not to be found; 126 the command cannot be\n"
		"run on it (not executable, set-id, file capabilities, static); 127 there is no such command.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

static int check_address(const char *address)
{
	unsigned char raw[16];

	if (!address || inet_pton(AF_INET, address, raw) == 1 ||
		inet_pton(AF_INET6, address, raw) == 1)
		return 0;
	return usage_error(
		"option --address cannot be \"%.80s\": it is no address; give an IPv4 or IPv6 address",
		address);
}

/* Digits of a number from 1, and nothing behind them. */
static bool is_place(const char *text, size_t length)
{
	return length && length < 19 && *text != '0' && strspn(text, "0123456789") >= length;
}

/* "msg-drop=5", "syndrome=15@5": a word there is, and a place from 1. */
static bool fault_is_known(const char *text, size_t length)
{
	static const char *const words[] = {"msg-drop=", "msg-double=", "msg-alter=", "syndrome="};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i]);

		if (length <= n || memcmp(text, words[i], n))
			continue;
		if (*words[i] == 's') {
			size_t digits = strspn(text + n, "0123456789abcdefABCDEF");

			n += digits + 1;
			if (!digits || digits > 2 || n > length || text[n - 1] != '@')
				return false;
		}
		return is_place(text + n, length - n);
	}
	return false;
}

static int check_fault(const char *fault)
{
	for (size_t n; fault && *fault; fault += n + (fault[n] == ',')) {
		n = strcspn(fault, ",");
		if (!fault_is_known(fault, n))
			return usage_error(
				"option --fault cannot have \"%.*s\": there is no such fault; give "
				"msg-drop=N, msg-double=N, msg-alter=N or syndrome=HEX@N, N from 1",
				(int)(n < 80 ? n : 80), fault);
	}
	return 0;
}

/* The word at place i of a blank-separated list. */
static void word_at(const char *words, int64_t i, char *text, size_t size)
{
	while (i--)
		words = strchr(words, ' ') + 1;
	snprintf(text, size, "%.*s", (int)strcspn(words, " "), words);
}

/* VHCA_MTU for --mtu. */
static int set_variable(const struct option *option, const void *conf)
{
	const void *place = (const char *)conf + option->offset;
	char name[32] = "VHCA_", text[64];
	const char *value = text;
	size_t n = strlen(name);

	for (const char *c = option->name; *c; c++)
		name[n++] = (char)(*c - 'a' + 'A');
	if (option->value == VALUE_TEXT)
		value = *(const char *const *)place;
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

int cmd_vhca(int argc, char **argv)
{
	struct vhca_options conf = {0};
	uint64_t given;
	char **rest;
	int status = options_parse(&command, argc, argv, &conf, &given, &rest);

	if (status != OPTIONS_OK)
		return status;
	if (!rest || !rest[0])
		return usage_error(
			"there is no command to run: give it behind --, as in verbena vhca -- ibv_devinfo");
	status = check_address(conf.address);
	if (!status)
		status = check_fault(conf.fault);
	if (!status)
		status = set_variables(&conf, given);
	return status ? status : run(rest);
}
