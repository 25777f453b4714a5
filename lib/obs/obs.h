/* obs.h - what can be seen of a running process from outside
 *
 * Lives here: the telemetry socket, which speaks DPDK's protocol, metrics over HTTP, and what a
 * program adds to both. May come in: base (the registry of counters), run (the control thread). May
 * touch it: nothing but run/init.c, which starts and ends it. It knows no object: each room hangs
 * its counters and what there is to say of their owner into the registry, and appears here.
 *
 * Everything runs on a thread of its own, so that a control thread that waits for a device leaves
 * nobody without an answer, and reads under the registry's lock, which owners take only when an object
 * comes or goes. A worker stores nothing for it and is never waited for. Clients are hostile: what they
 * send is bounded, and none that is slow, silent or many holds up the others.
 */
#ifndef VBN_OBS_H
#define VBN_OBS_H

#include "base/base.h"

/* What one answer may have; clients are told. */
#define TELEMETRY_MAX_ANSWER  65536
#define TELEMETRY_MAX_REQUEST 1024

struct obs_conf {
	enum vbn_switch telemetry; /* AUTO: where it can be had */
	const char *prefix;        /* NULL: "verbena" */
	const char *metrics;       /* "ADDR:PORT"; NULL: none */
};

/* After the control thread has been started, before it is stopped. -errno with a sentence, where
 * what was insisted on cannot be had; nothing is started then. The main thread. */
int vbn__obs_start(const struct obs_conf *conf);
void vbn__obs_stop(void);

/* ---- counters of this room ---- */

enum obs_count {
	OBS_CLIENTS,
	OBS_CLIENTS_DROPPED,
	OBS_COMMANDS,
	OBS_REFUSED,
	OBS_SCRAPES,
	OBS_COUNTS,
};

/* The telemetry thread's. */
void vbn__obs_count(enum obs_count which);

/* ---- place.c ---- */

/* A socket that listens where DPDK's tools look for it. */
struct place {
	char path[108];
	int fd; /* -1: none */
	uint64_t dev, ino;
};

/* prefix has been checked. `why` gets a clause for a sentence where it fails: -errno. */
int vbn__place_take(const char *prefix, struct place *place, char why[256]);
void vbn__place_leave(struct place *place);

/* Whether a prefix can be a directory's name. */
bool vbn__place_prefix_ok(const char *prefix);

/* ---- thread.c: the telemetry thread ---- */

/* Calls fn(fd, arg) on the telemetry thread whenever fd is readable. Before that is started. */
int vbn__obs_watch(int fd, void (*fn)(int fd, void *arg), void *arg);
/* 0 or -errno. */
int vbn__obs_thread_start(void);
/* What is watched is forgotten, too. */
void vbn__obs_thread_stop(void);

/* ---- server.c: the telemetry thread's, but for its start and stop, which are without one ---- */

/* Takes the socket over. 0 or -errno. */
int vbn__server_start(int listen_fd);
void vbn__server_stop(void);

/* ---- answer.c ---- */

/* Answers one request of a client in at most `size` bytes of JSON, at least 1024: how many. Any
 * bytes; one thread at a time. */
size_t vbn__telemetry_answer(const char *request, size_t len, char *answer, size_t size);

/* What a client is told when it has connected. */
size_t vbn__telemetry_greeting(char *text, size_t size);

/* The library's kinds of objects, which are there even while no object is; ends with NULL. */
extern const char *const vbn__obs_kinds[];

/* ---- own.c: what a program has added ---- */

/* Calls fn for each command of the program's. */
void vbn__own_commands(void (*fn)(const char *command, const char *help, void *arg), void *arg);

/* The program's answer: a JSON value. -ENOENT: there is no such command; else what it returned. */
int vbn__own_answer(const char *command, const char *params, char *json, size_t size);

#endif
