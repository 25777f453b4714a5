/* cmd.h - what the subcommands share: exit statuses, sentences, option tables, JSON output, going
 * under vhca
 *
 * Lives in apps/: the `verbena` command, one subcommand to a file or to a few files of one prefix.
 * May come in: the public API of the library, jansson, libc. Nothing of lib/ is included here.
 */
#ifndef CMD_H
#define CMD_H

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <verbena.h>

#define ARRAY_SIZE(a)          (sizeof(a) / sizeof((a)[0]))
#define likely(x)              __builtin_expect(!!(x), 1)
#define unlikely(x)            __builtin_expect(!!(x), 0)
#define force_inline           inline __attribute__((__always_inline__))
#define cache_aligned          __attribute__((aligned(64)))
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))

/* Exit statuses are a contract with scripts. */
enum {
	STATUS_DONE = 0,
	STATUS_LOST = 1,    /* it ran, and something was lost, corrupt, doubled, or failed */
	STATUS_USAGE = 2,   /* an unknown option, a value out of its range, a contradiction */
	STATUS_CANNOT = 3,  /* this machine cannot: device, core, permission, memory, ring */
	STATUS_NO_PEER = 4, /* the peer was not reached, or was lost */
	STATUS_CANNOT_EXEC = 126,
	STATUS_NO_COMMAND = 127,
	STATUS_STOPPED = 130, /* by SIGINT or SIGTERM before its end */
};

/* ---- verbena.c ---- */

/* The user's start of the command, CLOCK_MONOTONIC; it survives going under vhca. */
extern uint64_t cmd_started_ns;

/* The arguments as the user gave them, for starting over under vhca. */
extern char **cmd_argv;

uint64_t now_ns(void);

/* From here on SIGINT and SIGTERM end what vbn_run() runs, or will run, in order; the first one.
 * Where they are ignored, as under nohup, they stay so. */
void stop_signals_take(void);

/* The signal that asked to stop, or 0. */
int stop_signal(void);

/* Starts the library with the --vbn-* options of the command line; its sentences go through say().
 * Returns 0 or an exit status. */
int cmd_library_start(void);

/* ---- say.c: sentences on standard error ---- */

/* "verbena msgrate: sentence". Any thread. */
void say(const char *fmt, ...) printf_like(1, 2);
void say_as(const char *subcommand);

/* The same, and returns the status, so that one line says why and leaves. */
int usage_error(const char *fmt, ...) printf_like(1, 2);
int cannot(const char *fmt, ...) printf_like(1, 2);

/* The last sentence of those, and of the library's errors; "": there was none. */
const char *last_failure(void);

/* The line that says how a run is going: rewritten in place on a terminal, else a line each. */
void say_live(const char *fmt, ...) printf_like(1, 2);

/* Takes the place of standard streams that are closed, so that no file that is opened later is
 * mistaken for one of them. Returns 0, or a status where there is no standard output. */
int streams_open(void);

/* Whether all that was printed on standard output could be written; says once why it could not: by
 * `err`, where a step is known to have failed with it. Returns 0 or STATUS_CANNOT. */
int output_check(int err);

/* Says why `what` could not be written, by errno's value. */
int cannot_write(const char *what, int err);

/* What others say of themselves goes to a terminal: nothing but printable characters. */
void make_printable(char *text);

/* "1 message", "2 messages". */
const char *plural(uint64_t n, const char *noun, char text[64]);

/* What the library logs. Once an error has been told, the errors that follow from it while it
 * unwinds are not: say_library_again() ends that. */
void say_library(int level, const char *sentence, void *arg);
void say_library_again(void);

/* The exit status for a library call that failed with `err`; says `what` only where the library has
 * said nothing. */
int library_failed(int err, const char *what);

/* ---- options.c ---- */

enum value {
	VALUE_FLAG,  /* bool; takes no argument */
	VALUE_TEXT,  /* const char * */
	VALUE_COUNT, /* int64_t; units k, M, G */
	VALUE_POW2,  /* int64_t; a count that is a power of two */
	VALUE_SIZE,  /* int64_t bytes; units KiB, MiB, GiB */
	VALUE_RANGE, /* two int64_t of bytes, one behind the other: "64", or "64-4KiB" */
	VALUE_RATE,  /* struct rate: "1Mpps", "10Gbit" */
	VALUE_TIME,  /* int64_t ns; units us, ms, s; seconds when bare */
	VALUE_WORD,  /* int64_t: the index in words */
	VALUE_TEXTS, /* struct texts: may be given several times */
};

struct rate {
	int64_t n; /* a second */
	bool bits; /* of them, not of frames */
};

struct texts {
	const char *text[16];
	int n;
};

struct option {
	const char *name; /* without its dashes */
	const char *arg;  /* what its value is called in the help */
	enum value value;
	size_t offset; /* of its value in the subcommand's options */
	int64_t low, high;
	const char *words; /* "send write", for VALUE_WORD */
	const char *help;
};

struct command {
	const char *name;
	const char *usage;   /* behind "verbena NAME " */
	const char *summary; /* what it does, for --help */
	const char *more;    /* examples and notes, behind the options */
	const struct option *options;
	size_t n_options;
	const char *without; /* words: options of the table that it has not */
};

enum { OPTIONS_OK = -1 };

/* Fills *conf from argv[1] on. OPTIONS_OK, or the status to leave with (after --help: 0). `given`
 * gets a bit for each option by its place in the table. *rest is what follows "--"; a subcommand
 * without such a part gives NULL. */
int options_parse(const struct command *command, int argc, char **argv, void *conf, uint64_t *given,
	char ***rest);

/* For "-h": the name it has here. STATUS_USAGE. */
int usage_short_help(void);

/* Takes a value as options_parse() does; `called` is what a sentence calls the option. */
int option_take(const struct option *option, const char *called, const char *text, void *conf);

/* Whether the option of this name is among the given ones. */
bool option_given(const struct command *command, uint64_t given, const char *name);

/* ---- sink.c: files that hold the whole of something, or do not exist ---- */

/* A file to write; -errno. A pipe that nobody reads is -ENXIO: it is not waited for a reader, which no signal
 * would end. */
int open_to_write(const char *path, int flags);
/* The cause, in a sentence. */
const char *why_not_opened(int err);

/* Opened before the work, so that a path that cannot be written is known at once. */
struct sink {
	const char *path; /* NULL: not asked for */
	FILE *file;
	bool created; /* by us: removed again where there is no result */
};

/* `option` names it in sentences. 0 or an exit status. */
int sink_open(struct sink *sink, const char *option, const char *path);
/* err: errno's value of what was written, or 0. Returns 0 or an exit status. */
int sink_finish(struct sink *sink, int err);
/* Without a result. */
void sink_abandon(struct sink *sink);

/* --json: - is standard output. */
int json_open(struct sink *sink, const char *path);
/* Takes the reference to `root`. Returns 0 or an exit status. */
int json_finish(struct sink *sink, json_t *root);

/* Numbers that JSON has no word for become 0. */
json_t *json_number(double value);

/* ---- cores.c ---- */

#define MAX_CORES 1024

/* A list as "0,2-3" of --cores: its form, and whether this process may use each. 0 or an exit status. */
int cores_take(const char *text, int cores[MAX_CORES], int *n);

/* ---- pollers.c ---- */

/* Of its program, for a terminal: printable characters alone. "": it has ended. */
void process_name(pid_t process, char name[16]);

/* For each core a process with a thread that polls there and may run nowhere else; 0: none does. With
 * `awake` those that run at this moment. */
void pollers_find(bool awake, pid_t on[MAX_CORES]);

/* One core for a worker near a NUMA node, and why it is that one: the first on which no other process polls.
 * Where there is none that is said, and it is the first. 0 or an exit status. */
int core_choose(int node, int *core, char why[128]);

/* ---- modes.c: requested against effective ---- */

struct mode_list {
	pthread_mutex_t lock;
	struct vbn_mode *modes;
	int n;
};

void mode_list_init(struct mode_list *list);
void mode_list_free(struct mode_list *list);
/* Adds lines: `who` tells those of one name apart, where they differ. Any thread. */
void mode_list_add(struct mode_list *list, const struct vbn_mode *modes, int n, const char *who);
void mode_list_add_one(struct mode_list *list, const char *name, const char *requested,
	const char *effective, const char *why);
/* On standard error. */
void mode_list_print(const struct mode_list *list);
json_t *mode_list_json(const struct mode_list *list);

/* ---- preload.c: running a program under vhca ---- */

#define VHCA_LIBRARY "libverbena-vhca.so"

/* True where this process already runs on the emulator. */
bool vhca_is_loaded(void);

/* Puts the emulator first in LD_PRELOAD and leaves the rest of it; a sanitizer's runtime, where
 * `sanitizer` names one, goes ahead of it. Returns 0 or STATUS_CANNOT. */
int vhca_preload(const char *sanitizer);

/* Starts this command over under vhca; returns only with an exit status. `why` is what vhca_why()
 * answers in the new process, for it to say once it is sure to run; NULL where this is not one. */
int vhca_start_over(const char *why);
const char *vhca_why(void);

/* The sanitizer runtime that is loaded here, or NULL. */
const char *loaded_sanitizer(void);

/* True for the runtimes that refuse to run behind another library. */
bool is_sanitizer(const char *library);

/* ---- program.c: can this program be run with a preload ---- */

struct program {
	char path[4096];     /* of the command */
	char sanitizer[128]; /* the runtime it needs, "" where none */
};

/* Finds `name` as a shell would and looks whether a preload will reach it. Returns 0, or a status
 * after a sentence. */
int program_find(const char *name, struct program *program);

/* ---- ports ---- */

/* A port of raw Ethernet alone, that is an interface of the kernel's. */
static inline bool port_is_interface(const struct vbn_port_info *info)
{
	return !strcmp(info->driver, "tap") || !strcmp(info->driver, "xdp");
}

/* ---- the subcommands: argv[0] is their name ---- */

int cmd_msgrate(int argc, char **argv);
int cmd_latency(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_fwd(int argc, char **argv);
int cmd_echo(int argc, char **argv);
int cmd_pktgen(int argc, char **argv);
int cmd_vhca(int argc, char **argv);
int cmd_vhca_status(int argc, char **argv);

#endif
