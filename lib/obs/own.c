/* own.c - a program's own commands and counters */

#include "obs/obs.h"

#include <verbena/counter.h>
#include <verbena/telemetry.h>

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_COMMANDS 64
#define MAX_NAME     56
#define MAX_HELP     256

struct command {
	char name[MAX_NAME], help[MAX_HELP];
	vbn_telemetry_fn *fn;
	void *arg;
};

/* Held while a command is answered, so that none is removed meanwhile. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct command *commands[MAX_COMMANDS];

static struct command **find(const char *name)
{
	for (size_t i = 0; i < MAX_COMMANDS; i++)
		if (commands[i] && !strcmp(commands[i]->name, name))
			return &commands[i];
	return NULL;
}

static struct command **find_room(void)
{
	for (size_t i = 0; i < MAX_COMMANDS; i++)
		if (!commands[i])
			return &commands[i];
	return NULL;
}

static bool is_command_name(const char *name)
{
	size_t len = strlen(name);

	if (len < 2 || len >= MAX_NAME || name[0] != '/' || !strncmp(name, "/verbena/", 9) ||
		!strcmp(name, "/help") || !strcmp(name, "/info"))
		return false;
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("/_-", *c))
			return false;
	return true;
}

static int insert(const struct command *made)
{
	struct command **room, *command;

	if (find(made->name))
		return fail(EEXIST,
			"telemetry command %s cannot be added: there is one of that name; remove it first",
			made->name);
	room = find_room();
	if (!room)
		return fail(ENOSPC,
			"telemetry command %s cannot be added: %d exist, which is the most; remove one",
			made->name, MAX_COMMANDS);
	command = malloc(sizeof(*command));
	if (!command)
		return fail(ENOMEM,
			"telemetry command %s cannot be added: there is no memory; free some",
			made->name);
	*command = *made;
	*room = command;
	return 0;
}

VBN_API int vbn_telemetry_command(
	const char *name, const char *help, vbn_telemetry_fn *fn, void *arg)
{
	struct command command = {.fn = fn, .arg = arg};
	int ret;

	if (!name || !fn || !is_command_name(name))
		return fail(EINVAL,
			"telemetry command \"%.80s\" cannot be added: its name is \"/\" and up to %d letters, digits, \"/\", \"_\" or \"-\", and not the library's: choose one as /myprogram/state",
			name ? name : "", MAX_NAME - 2);
	snprintf(command.name, sizeof(command.name), "%s", name);
	snprintf(command.help, sizeof(command.help), "%s", help ? help : "");
	pthread_mutex_lock(&lock);
	ret = insert(&command);
	pthread_mutex_unlock(&lock);
	return ret;
}

VBN_API void vbn_telemetry_remove(const char *name)
{
	struct command **at;

	pthread_mutex_lock(&lock);
	at = name ? find(name) : NULL;
	if (at) {
		free(*at);
		*at = NULL;
	}
	pthread_mutex_unlock(&lock);
}

void vbn__own_commands(void (*fn)(const char *command, const char *help, void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < MAX_COMMANDS; i++)
		if (commands[i])
			fn(commands[i]->name, commands[i]->help, arg);
	pthread_mutex_unlock(&lock);
}

int vbn__own_answer(const char *name, const char *params, char *json, size_t size)
{
	struct command **at;
	int ret = -ENOENT;

	pthread_mutex_lock(&lock);
	at = find(name);
	if (at) {
		json[0] = '\0';
		ret = min((*at)->fn(params, json, size, (*at)->arg), 0);
		if (!ret && (!json[0] || strnlen(json, size) == size))
			ret = -EMSGSIZE;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

/* ---- counters ---- */

struct vbn_counters {
	struct counter_set set;
	struct counter_name names[];
};

/* As metrics have it. */
static bool is_word(const char *text, size_t most)
{
	size_t len = text ? strlen(text) : 0;

	if (!len || len > most || !islower((unsigned char)text[0]))
		return false;
	for (const char *c = text; *c; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
			return false;
	return true;
}

static bool is_taken(const char *kind)
{
	for (size_t i = 0; vbn__obs_kinds[i]; i++)
		if (!strcmp(vbn__obs_kinds[i], kind))
			return true;
	return false;
}

static int check(const struct vbn_counters_conf *conf)
{
	if (!is_word(conf->kind, 24) || is_taken(conf->kind))
		return fail(EINVAL,
			"counters of kind \"%.40s\" cannot be added: a kind is up to 24 of a-z, 0-9, \"_\", and none of the library's: choose one as \"myprogram\"",
			conf->kind ? conf->kind : "");
	if (!conf->object || !conf->n || !conf->names || !conf->values)
		return fail(EINVAL,
			"counters of kind \"%s\" cannot be added: they need an object, names, values and n",
			conf->kind);
	for (size_t i = 0; i < conf->n; i++)
		if (!is_word(conf->names[i].name, 64))
			return fail(EINVAL,
				"counter \"%.80s\" of \"%s\" cannot be added: a name is up to 64 of a-z, 0-9, \"_\", as in rx_dropped",
				conf->names[i].name ? conf->names[i].name : "", conf->kind);
	return 0;
}

VBN_API int vbn_counters_add(const struct vbn_counters_conf *conf, struct vbn_counters **added)
{
	struct vbn_counters *counters;
	int ret = check(conf);

	*added = NULL;
	if (ret)
		return ret;
	counters = calloc(1, sizeof(*counters) + conf->n * sizeof(counters->names[0]));
	if (!counters)
		return fail(ENOMEM,
			"counters of \"%s\" cannot be added: there is no memory; free some",
			conf->kind);
	for (size_t i = 0; i < conf->n; i++)
		counters->names[i] = (struct counter_name){
			conf->names[i].name, conf->names[i].help ? conf->names[i].help : ""};
	counters->set = (struct counter_set){
		.kind = conf->kind, .names = counters->names, .values = conf->values, .n = conf->n};
	snprintf(counters->set.object, sizeof(counters->set.object), "%s", conf->object);
	vbn__counters_add(&counters->set);
	*added = counters;
	return 0;
}

VBN_API void vbn_counters_remove(struct vbn_counters *counters)
{
	if (!counters)
		return;
	vbn__counters_remove(&counters->set);
	free(counters);
}
