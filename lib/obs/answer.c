/* answer.c - the commands of the telemetry socket: any bytes in, JSON out */

#include "obs/json.h"
#include "obs/obs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_ECHO  64 /* bytes of a command that an answer repeats */
#define MAX_KINDS 32
#define MAX_NAMES (4 * MAX_KINDS + 68)
#define TAIL_ROOM 64 /* for what closes an answer */

/* One request, and its answer as far as it is written. */
struct call {
	char command[MAX_ECHO + 1];
	char params[TELEMETRY_MAX_REQUEST + 1];
	struct json json;
	bool goes_on;
	uint32_t next; /* where it does */
	char why[256]; /* there is no answer */
};

static int refuse(struct call *call, int code, const char *fmt, ...) printf_like(3, 4);
static int refuse(struct call *call, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(call->why, sizeof(call->why), fmt, args);
	va_end(args);
	return -code;
}

/* ---- an object in words ---- */

static bool is_constant(const struct fact *fact)
{
	return fact->kind == FACT_TEXT || fact->kind == FACT_NUMBER || fact->kind == FACT_NOTE;
}

static void write_facts(struct json *json, const struct fact_list *list, bool constant)
{
	for (int i = 0; i < list->n; i++) {
		const struct fact *fact = &list->facts[i];

		if (is_constant(fact) != constant)
			continue;
		if (fact->kind == FACT_TEXT || fact->kind == FACT_NOTE)
			vbn__json_text_pair(json, fact->name, fact->text);
		else
			vbn__json_pair(json, fact->name, fact->number);
	}
}

static void write_counters(struct json *json, const struct counter_set *set)
{
	for (; set; set = set->more)
		for (size_t i = 0; i < set->n; i++)
			vbn__json_pair(json, set->names[i].name, load_once(&set->values[i]));
}

enum { WITH_INFO = 1, WITH_STATS = 2 };

static void write_object(struct json *json, const struct counter_set *set, int with)
{
	struct fact_list list = {.n = 0};

	if (set->describe)
		set->describe(set, &list);
	vbn__json_open(json, '{');
	if (with & WITH_INFO) {
		vbn__json_pair(json, "id", set->id);
		vbn__json_text_pair(json, "name", set->object);
		write_facts(json, &list, true);
	}
	if (with & WITH_STATS) {
		write_counters(json, set);
		write_facts(json, &list, false);
	}
	vbn__json_close(json, '}');
}

/* ---- one object ---- */

/* A number, or a name. */
struct which {
	const char *text;
	unsigned long number;
	bool is_number;
};

static struct which which_object(const char *text)
{
	struct which which = {.text = text};
	char *end;

	which.is_number = *text >= '0' && *text <= '9';
	if (which.is_number) {
		which.number = strtoul(text, &end, 10);
		which.is_number = !*end;
	}
	return which;
}

static bool is_object(const struct counter_set *set, const struct which *which)
{
	return which->is_number ? set->id == which->number : !strcmp(set->object, which->text);
}

struct walk {
	struct call *call;
	const char *kind;
	struct which which;
	uint32_t from;
	int with;
};

static int write_if_it(const struct counter_set *set, void *arg)
{
	const struct walk *walk = arg;

	if (strcmp(set->kind, walk->kind) || !is_object(set, &walk->which))
		return 0;
	write_object(&walk->call->json, set, walk->with);
	return 1;
}

static int answer_one(struct call *call, const char *kind, int with)
{
	struct walk walk = {.call = call, .kind = kind, .with = with};

	if (!*call->params)
		return refuse(call, EINVAL,
			"which %s is not said: put its id behind a comma; /verbena/%s/list has them",
			kind, kind);
	walk.which = which_object(call->params);
	if (!vbn__counters_visit(write_if_it, &walk))
		return refuse(call, ENOENT,
			"there is no %s %.80s: /verbena/%s/list has those there are", kind,
			call->params, kind);
	return 0;
}

static int answer_info(struct call *call, const char *kind)
{
	return answer_one(call, kind, WITH_INFO);
}

static int answer_stats(struct call *call, const char *kind)
{
	return answer_one(call, kind, WITH_STATS);
}

/* ---- all objects of a kind ---- */

static void write_entry(struct json *json, const struct counter_set *set, int with)
{
	if (with)
		write_object(json, set, with);
	else
		vbn__json_number(json, set->id);
}

/* Sets of a kind come in the order of their ids. */
static int write_if_fits(const struct counter_set *set, void *arg)
{
	const struct walk *walk = arg;
	struct call *call = walk->call;
	const struct json before = call->json;

	if (set->id < walk->from || strcmp(set->kind, walk->kind))
		return 0;
	write_entry(&call->json, set, walk->with);
	if (!call->json.full)
		return 0;
	call->json = before;
	call->goes_on = true;
	call->next = set->id;
	return 1;
}

static int answer_many(struct call *call, const char *kind, int with)
{
	struct walk walk = {.call = call, .kind = kind, .with = with};
	const struct which from = which_object(call->params);

	if (*call->params && (!from.is_number || from.number > UINT32_MAX))
		return refuse(call, EINVAL,
			"\"%.80s\" is no id to begin with: give the number of the first %s, or nothing",
			call->params, kind);
	walk.from = (uint32_t)from.number;
	vbn__json_open(&call->json, '[');
	vbn__counters_visit(write_if_fits, &walk);
	vbn__json_close(&call->json, ']');
	return 0;
}

static int answer_list(struct call *call, const char *kind)
{
	return answer_many(call, kind, 0);
}

static int answer_all(struct call *call, const char *kind)
{
	return answer_many(call, kind, WITH_INFO | WITH_STATS);
}

static const struct verb {
	const char *name;
	int (*answer)(struct call *call, const char *kind);
	const char *help;
} verbs[] = {
	{"all", answer_all,
		"Everything of each %s. Parameter: optional, the id to begin with (\"next\" of the answer before)"},
	{"info", answer_info, "What a %s is. Parameter: its id or name"},
	{"list", answer_list, "The ids of each %s. Parameter: optional, the id to begin with"},
	{"stats", answer_stats,
		"The counters of a %s, and what goes up and down. Parameter: its id or name"},
};

/* ---- which commands there are ---- */

const char *const vbn__obs_kinds[] = {"worker", "queue", "srq", "pool", "port", "channels",
	"channel", "exchange", "control", "telemetry", NULL};

/* Those of the library, and of what there is. */
struct kinds {
	char names[MAX_KINDS][32];
	int n;
};

static void add_kind(struct kinds *kinds, const char *kind)
{
	for (int i = 0; i < kinds->n; i++)
		if (!strcmp(kinds->names[i], kind))
			return;
	if (kinds->n < MAX_KINDS)
		snprintf(kinds->names[kinds->n++], sizeof(kinds->names[0]), "%s", kind);
}

static int see_kind(const struct counter_set *set, void *arg)
{
	add_kind(arg, set->kind);
	return 0;
}

static void find_kinds(struct kinds *kinds)
{
	kinds->n = 0;
	for (size_t i = 0; vbn__obs_kinds[i]; i++)
		add_kind(kinds, vbn__obs_kinds[i]);
	vbn__counters_visit(see_kind, kinds);
}

/* "/verbena/KIND/VERB" taken apart; NULL where it is none. */
static const struct verb *verb_of(const char *command, const struct kinds *kinds, const char **kind)
{
	static const char begin[] = "/verbena/";
	size_t len;

	if (strncmp(command, begin, sizeof(begin) - 1))
		return NULL;
	command += sizeof(begin) - 1;
	for (int i = 0; i < kinds->n; i++) {
		*kind = kinds->names[i];
		len = strlen(*kind);
		if (strncmp(command, *kind, len) || command[len] != '/')
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(verbs); k++)
			if (!strcmp(command + len + 1, verbs[k].name))
				return &verbs[k];
	}
	return NULL;
}

struct names {
	char names[MAX_NAMES][MAX_ECHO];
	int n;
};

static void add_name(const char *name, const char *help, void *arg)
{
	struct names *names = arg;

	(void)help;
	if (names->n < MAX_NAMES)
		snprintf(names->names[names->n++], MAX_ECHO, "%s", name);
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(left, right);
}

static void write_names(struct json *json, struct names *names)
{
	qsort(names->names, (size_t)names->n, MAX_ECHO, compare_names);
	vbn__json_open(json, '[');
	for (int i = 0; i < names->n; i++)
		vbn__json_string(json, names->names[i]);
	vbn__json_close(json, ']');
}

static int answer_commands(struct call *call)
{
	struct names *names = malloc(sizeof(*names));
	struct kinds kinds;
	char name[MAX_ECHO];

	if (!names)
		return refuse(call, ENOMEM, "there is no memory");
	names->n = 0;
	add_name("/", "", names);
	add_name("/help", "", names);
	add_name("/info", "", names);
	find_kinds(&kinds);
	for (int i = 0; i < kinds.n; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(verbs); k++) {
			snprintf(name, sizeof(name), "/verbena/%s/%s", kinds.names[i],
				verbs[k].name);
			add_name(name, "", names);
		}
	}
	vbn__own_commands(add_name, names);
	write_names(&call->json, names);
	free(names);
	return 0;
}

/* ---- the commands that are about no object ---- */

static void write_greeting(struct json *json)
{
	vbn__json_open(json, '{');
	vbn__json_text_pair(json, "version", "Verbena " VBN_VERSION);
	vbn__json_pair(json, "pid", (uint64_t)getpid());
	vbn__json_pair(json, "max_output_len", TELEMETRY_MAX_ANSWER);
	vbn__json_close(json, '}');
}

size_t vbn__telemetry_greeting(char *text, size_t size)
{
	struct json json;

	vbn__json_start(&json, text, size);
	write_greeting(&json);
	return (size_t)(json.at - text);
}

static int answer_greeting(struct call *call)
{
	write_greeting(&call->json);
	return 0;
}

static int answer_help(struct call *call);

static const struct plain {
	const char *name;
	int (*answer)(struct call *call);
	const char *help;
} plain[] = {
	{"/", answer_commands, "All commands. Takes no parameters"},
	{"/help", answer_help, "What a command answers. Parameter: the command"},
	{"/info", answer_greeting,
		"Version, process id, and the longest answer in bytes. Takes no parameters"},
};

struct own_help {
	const char *command;
	char *text;
	size_t size;
	bool found;
};

static void find_own_help(const char *command, const char *help, void *arg)
{
	struct own_help *wanted = arg;

	if (strcmp(command, wanted->command))
		return;
	snprintf(wanted->text, wanted->size, "%s", help);
	wanted->found = true;
}

static bool help_of(const char *command, char *text, size_t size)
{
	struct own_help own = {.command = command, .text = text, .size = size};
	const struct verb *verb;
	struct kinds kinds;
	const char *kind;

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (!strcmp(command, plain[i].name)) {
			snprintf(text, size, "%s", plain[i].help);
			return true;
		}
	}
	find_kinds(&kinds);
	verb = verb_of(command, &kinds, &kind);
	if (!verb) {
		vbn__own_commands(find_own_help, &own);
		return own.found;
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, size, verb->help, kind);
#pragma GCC diagnostic pop
	return true;
}

static int answer_help(struct call *call)
{
	char text[384];

	if (!*call->params)
		return refuse(call, EINVAL,
			"of which command is not said: put it behind a comma, as in /help,/info; / lists them");
	if (!help_of(call->params, text, sizeof(text)))
		return refuse(call, ENOENT, "there is no command %.80s: / lists those there are",
			call->params);
	vbn__json_open(&call->json, '{');
	vbn__json_text_pair(&call->json, call->params, text);
	vbn__json_close(&call->json, '}');
	return 0;
}

static int answer_own(struct call *call)
{
	const size_t size = (size_t)(call->json.end - call->json.at);
	char *text = malloc(size);
	int ret = text ? vbn__own_answer(call->command, call->params, text, size) : -ENOMEM;

	if (!ret)
		vbn__json_raw(&call->json, text);
	free(text);
	if (ret == -ENOENT)
		return refuse(call, ENOENT, "there is no such command: / lists those there are");
	if (ret)
		return refuse(call, -ret, "the program's command failed: %s", strerror(-ret));
	return 0;
}

/* ---- a request ---- */

static int answer(struct call *call)
{
	const struct verb *verb;
	struct kinds kinds;
	const char *kind;

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (!strcmp(call->command, plain[i].name))
			return plain[i].answer(call);
	find_kinds(&kinds);
	verb = verb_of(call->command, &kinds, &kind);
	return verb ? verb->answer(call, kind) : answer_own(call);
}

/* Up to a NUL, without white space at its end. */
static size_t text_length(const char *bytes, size_t len)
{
	len = strnlen(bytes, len);
	while (len && strchr(" \t\r\n", bytes[len - 1]))
		len--;
	return len;
}

/* -EMSGSIZE: longer than any command is. */
static int take_apart(struct call *call, const char *bytes, size_t len)
{
	const char *comma;
	size_t n;

	len = text_length(bytes, len);
	comma = memchr(bytes, ',', len);
	n = comma ? (size_t)(comma - bytes) : len;
	memcpy(call->command, bytes, min(n, (size_t)MAX_ECHO));
	call->command[min(n, (size_t)MAX_ECHO)] = '\0';
	if (n > MAX_ECHO || len > TELEMETRY_MAX_REQUEST)
		return refuse(call, EMSGSIZE, "no command is so long: / lists those there are");
	len -= comma ? n + 1 : n;
	memcpy(call->params, comma ? comma + 1 : "", len);
	call->params[len] = '\0';
	return 0;
}

/* Value or none, the object ends. */
static void finish(struct call *call, int ret)
{
	struct json *json = &call->json;

	if (ret) {
		vbn__json_raw(json, "null");
		vbn__json_text_pair(json, "error", call->why);
	} else if (call->goes_on) {
		vbn__json_pair(json, "next", call->next);
	}
	vbn__json_close(json, '}');
}

static void begin(struct call *call, char *text, size_t size)
{
	vbn__json_start(&call->json, text, size);
	vbn__json_open(&call->json, '{');
	vbn__json_key(&call->json, call->command);
}

size_t vbn__telemetry_answer(const char *request, size_t len, char *text, size_t size)
{
	struct call call = {.next = 0};
	int ret = take_apart(&call, request, len);

	begin(&call, text, size - TAIL_ROOM);
	vbn__obs_count(OBS_COMMANDS);
	if (!ret)
		ret = answer(&call);
	if (!ret && call.json.full)
		ret = refuse(&call, EMSGSIZE, "the answer is longer than max_output_len");
	if (ret) {
		begin(&call, text, size);
		vbn__obs_count(OBS_REFUSED);
	}
	call.json.end = text + size;
	finish(&call, ret);
	return (size_t)(call.json.at - text);
}
