/* datapath.h - what the parts of mlx5_datapath share: an act is one thing to measure, done by one
 * side
 *
 * datapath_ours.c and datapath_peer.c know how each side does its acts, callgrind.c counts
 * instructions, mlx5_datapath.c pairs the acts into cases, times them and reports.
 */
#ifndef DATAPATH_H
#define DATAPATH_H

#include <stdbool.h>
#include <stdint.h>

enum { BURST = 64, SIZE = 64, DEPTH = 1024 };

/* One round is prepare, call, settle; only the call is counted. The functions behind `call` are
 * named measure_*, are not inlined, and contain nothing but the calls to be compared: callgrind
 * collects by that name. */
struct act {
	void (*prepare)(void);
	void (*call)(void);
	bool (*settle)(
		void); /* false: the round does not count, for something had not landed yet */
};

extern const struct act ours_post, ours_post_inline, ours_reap, ours_receive;
extern const struct act peer_post_send, peer_post_send_inline, peer_wr, peer_wr_inline;
extern const struct act peer_poll_cq, peer_poll_and_post_recv;

/* Each opens the device by name and connects its queues in a loop; a failure ends the program with
 * a sentence. */
void ours_open(const char *device);
void ours_close(void);
void peer_open(const char *device);
void peer_close(void);

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

/* ---- callgrind.c ---- */

/* Runs this program again under callgrind; it calls count_rounds() there. counts[i] gets the
 * instructions of acts[i]'s calls, per message. False where there is no valgrind. */
bool count_instructions(const char *device, double *counts, int n_acts);

/* In the program under callgrind: the rounds of each act. */
void count_rounds(const struct act *const *acts, int n_acts);

#endif
