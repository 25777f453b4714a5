/* bench.h - what benchmarks share: an act is one thing to measure; its time, and its instructions
 *
 * bench.c times acts and sums up rounds, callgrind.c counts their instructions.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>

enum { BURST = 64 }; /* what a call does so many of */

/* One round is prepare, call, settle; only the call is counted. The functions behind `call` are
 * named measure_*, are not inlined, and contain nothing but the calls to be compared: callgrind
 * collects by that name. */
struct act {
	void (*prepare)(void);
	void (*call)(void);
	bool (*settle)(
		void); /* false: the round does not count, for something had not landed yet */
};

/* Says what went wrong and exits with 1. */
_Noreturn void __attribute__((format(printf, 1, 2))) die(const char *format, ...);

/* Lets the device (an emulated one is a thread that wants a core) work; dies when `what` has not
 * come within 10 seconds. */
struct patience {
	uint64_t deadline_ns;
};
struct patience patience_start(void);
void patience_wait(const struct patience *patience, const char *what);
void rest_us(long us);
uint64_t now_ns(void);

/* ---- bench.c ---- */

/* Over rounds. */
struct spread {
	double median, low, high; /* low and high: the 10th and the 90th percentile */
};

/* Sorts the values. */
struct spread spread_of(double *values, int n);

/* Nanoseconds of one call, by BURST; rounds in which something had not landed are done again. */
double time_round(const struct act *act);

/* Of so many rounds. */
struct spread time_rounds(const struct act *act, int rounds);

/* Medians of two acts whose rounds take turns, so that what else the machine does falls on both. */
void time_pair(const struct act *const pair[2], int rounds, double ns[2]);

/* ---- callgrind.c ---- */

/* Runs this program again under callgrind with --count and the options (up to 8, the last one NULL); it calls count_rounds() there. counts[i] gets the
 * instructions of acts[i]'s calls, by BURST. False where there is no valgrind. */
bool count_instructions(const char *const *options, double *counts, int n_acts);

/* The rooms of the library that instructions are told apart by: whose function executes them, its
 * inlined ones included. */
enum bench_room { ROOM_DRIVER, ROOM_CHANNELS, ROOM_PORT, ROOM_REST, ROOM_ALL, N_ROOMS };
struct cost {
	double rooms[N_ROOMS];
};

/* As count_instructions(), by room. */
bool count_costs(const char *const *options, struct cost *costs, int n_acts);

/* In the program under callgrind: the rounds of each act. */
void count_rounds(const struct act *const *acts, int n_acts);

#endif
