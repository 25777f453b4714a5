/* top.h - what the files of `verbena top` share: processes that are followed, what they said, tables
 * of it */
#ifndef TOP_H
#define TOP_H

#include "cmd.h"

#include <sys/types.h>

/* The kinds of objects that are shown, each a list that a process gives. */
enum kind {
	KIND_WORKER,
	KIND_QUEUE,
	KIND_SRQ,
	KIND_POOL,
	KIND_PORT,
	KIND_CHANNELS, /* groups of them */
	KIND_CHANNEL,
	KIND_CONTROL,
	N_KINDS
};

enum { N_HISTORY = 10 };

/* How busy a worker was, the latest last. */
struct history {
	uint32_t id;
	float share[N_HISTORY];
};

struct process {
	char path[108];
	char prefix[64];
	char name[16]; /* of its program */
	int fd;        /* -1: not connected */
	pid_t pid;
	bool foreign; /* speaks the protocol, and is no Verbena */
	bool silent;  /* did not answer the last time */
	bool gone;
	uint32_t looked;   /* by which look it was asked last */
	uint64_t retry_ns; /* a silent one is left alone until then */
	/* arrays of objects, in the order of their ids; NULL: not known */
	json_t *now[N_KINDS], *before[N_KINDS];
	uint64_t now_ns, before_ns;
	struct history *histories;
	size_t n_histories;
	struct process *next;
};

struct processes {
	struct process *first;
	int n;           /* Verbena's that are followed */
	int n_foreign;   /* others that were met */
	bool any_lost;   /* one that was followed has ended */
	pid_t ended[16]; /* of these those that the last look missed */
	int n_ended;
	uint32_t look;
};

/* ---- top_ask.c ---- */

/* Asks each for everything, drops those that are gone, and takes in the new ones: of one prefix (NULL: all), one
 * process (0: all). */
void processes_look(struct processes *all, const char *prefix, pid_t pid);
void processes_free(struct processes *all);

/* Why there is nothing of a process that was asked for. */
const char *absence(pid_t pid, char text[160]);

/* ---- top_table.c ---- */

enum { MAX_COLUMNS = 12 };

struct row {
	const struct process *process;
	const json_t *now, *before; /* before: NULL where it is new */
	double seconds;             /* between them; 0: nothing to compare with */
	uint32_t id;
	char name[32];
	double value[MAX_COLUMNS]; /* NAN: there is none */
	double history[N_HISTORY];
	bool has_history;
	bool alarming;
};

enum shown { SHOWN_NUMBER, SHOWN_COUNT, SHOWN_SHARE, SHOWN_SPARK, SHOWN_TEXT };

struct column {
	const char *title, *key; /* key: in JSON */
	int width;
	enum shown shown;
	/* one of them, the first three by the object's key: text (SHOWN_TEXT), a number as it is, a count's rate;
	 * or what it takes more for */
	const char *text, *number, *rate;
	double (*value)(const struct row *row);
};

struct view {
	const char *name;
	enum kind kind;
	const char *title; /* of the first column */
	int width;         /* of that */
	const struct column *columns;
	size_t n_columns;
	size_t sort; /* by this column at first */
};

/* top_views.c */
extern const struct view views[];
extern const size_t n_views;

/* Of an object that a process gave; NAN: it has no such number. */
double object_number(const json_t *object, const char *key);
/* Of a row in a column; NAN: there is none. */
double column_value(const struct column *column, const struct row *row);
/* Of a worker: the share of cycles in turns of its loop that found work. */
double worker_busy(const struct row *row);

struct table {
	const struct view *view;
	struct row *rows;
	size_t n;
};

/* Notes how busy its workers were in the interval that has just ended. */
void process_remember(struct process *process);

/* `only`: of this process; 0: of all. Sorted by a column (-1: by name). */
void table_build(
	struct table *table, const struct view *view, const struct processes *all, pid_t only);
void table_sort(struct table *table, int column, bool ascending);
void table_free(struct table *table);

/* What was lost, per counter, in the last interval and ever. */
struct drops {
	const char *name;
	double rate;
	uint64_t total;
};
enum { N_DROPS = 9 };
void drops_sum(const struct processes *all, pid_t only, struct drops drops[N_DROPS]);

/* For how many seconds the process's control thread has been kept by one call, and how many wait for
 * it; 0 where it is not. */
double process_kept(const struct process *process, int *waiting);

/* "1.25 M" */
const char *number_text(double number, char text[16]);

/* The text of a row's column. */
void cell_text(const struct row *row, const struct column *column, size_t i, char text[32]);

json_t *top_json(const struct processes *all);

/* ---- top_screen.c ---- */

struct screen_conf {
	int64_t interval_ns, count;
	const char *prefix;
	pid_t pid;
};

/* The live screen, until a key or a signal ends it. Returns an exit status. */
int screen_run(const struct screen_conf *conf);

/* Whether there is a terminal for it. */
bool screen_possible(void);

#endif
