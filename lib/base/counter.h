/* counter.h - the registry of named counters that all rooms use
 *
 * A set is an object's counters: an array of uint64_t in memory of the owner, written by the owner
 * alone with plain stores, and one table of names. Registering costs nothing on the fast path;
 * readers load each value once (relaxed), so a set is read without a lock, value by value, never as
 * a snapshot.
 */
#ifndef VBN_COUNTER_H
#define VBN_COUNTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The owner counts: a plain load, add and store, never torn for a reader on another thread. */
static inline __attribute__((__always_inline__)) void count_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

struct counter_name {
	const char *name; /* "rx_no_buf": the field's word, lower case */
	const char *help; /* one clause: what one count is */
};

/* What else can be said of an object, beside its counters. */
enum fact_kind {
	FACT_TEXT,    /* does not change: "driver" */
	FACT_NUMBER,  /* does not change: "tx_depth" */
	FACT_GAUGE,   /* goes up and down: "free_bufs" */
	FACT_COUNTER, /* as a counter, but worked out when asked for */
	FACT_NOTE,    /* a text that comes and changes: "error"; no part of metrics */
};

#define FACT_TEXT_BYTES 640 /* longer ones are cut */

struct fact {
	const char *name, *help; /* as a counter's; help only of what is counted or measured */
	enum fact_kind kind;
	uint64_t number;
	char text[FACT_TEXT_BYTES];
};

struct fact_list {
	struct fact facts[16]; /* what does not fit is left out */
	int n;
};

void vbn__fact_text(struct fact_list *list, const char *name, const char *text);
/* As vbn__glance() reads it: who owns it may be writing just now. */
void vbn__fact_note(struct fact_list *list, const char *name, const char *text);
void vbn__fact_number(struct fact_list *list, const char *name, uint64_t number);
void vbn__fact_gauge(struct fact_list *list, const char *name, const char *help, uint64_t number);
void vbn__fact_counter(struct fact_list *list, const char *name, const char *help, uint64_t number);

/* A word or flag that its owner writes with plain stores, read from another thread: a value of a
 * moment, as a relaxed load gives it. The owner's stores stay what the fast path wants them to be;
 * they cannot tear, for the word is aligned. */
uint32_t vbn__glance(const uint32_t *word);
uint64_t vbn__glance_count(const uint64_t *word);
uint8_t vbn__glance_byte(const uint8_t *byte);
bool vbn__glance_flag(const bool *flag);
/* Up to size - 1 bytes of a text whose array its owner may be writing just now, a 0 behind them: parts
 * of the old and the new one in the worst case. The array's last byte is always 0. */
void vbn__glance_text(char *to, size_t size, const char *text);

struct counter_set {
	const char *kind; /* "worker", "queue", "pool", "port" */
	char object[32];  /* "0", "mlx5_0/17" */
	const struct counter_name *names;
	const uint64_t *values;
	size_t n;
	/* Optional: further counters of the same object, which come and go with this set. */
	struct counter_set *more;
	/* Optional: on the thread of who looks, mostly telemetry's, under the registry's lock, so the
	 * object is there. Takes nothing that is held while somebody waits for a device. */
	void (*describe)(const struct counter_set *set, struct fact_list *list);
	/* Tells it from others of its kind, now and later: the registry's, unless the owner has
	 * numbered it. */
	uint32_t id;
	bool numbered;
	bool many; /* there may be thousands of its kind: metrics have their sums alone */
	struct counter_set *next, **at; /* the registry's */
};

/* The set stays the caller's memory and must be removed before it goes. Any thread; takes a lock.
 */
void vbn__counters_add(struct counter_set *set);
void vbn__counters_remove(struct counter_set *set);

/* Gives a text that describe() reads, NULL or the caller's from malloc(), a new value: the old one is freed
 * when nobody looks. Any thread; takes a lock. */
void vbn__counters_exchange(char **text, char *value);

/* Calls fn for each registered set, `more` not followed, under the registry's lock: as below. Sets of
 * one kind come in the order of their ids, which is that of registration but for numbered ones. */
int vbn__counters_visit(int (*fn)(const struct counter_set *set, void *arg), void *arg);

/* Calls fn for each counter of each set, in the order of registration, under the registry's lock:
 * fn must not add or remove. Stops when fn returns non-zero and returns that. Any thread. */
int vbn__counters_each(
	int (*fn)(const struct counter_set *set, size_t i, uint64_t value, void *arg), void *arg);

#endif
