/* patience.c - how long what has come waits for a receive WQE, where nobody would send it again
 *
 * Ethernet would pause the sender, and a receiver is mostly late because it has had no core. So a
 * packet waits for a while, and for longer as long as a thread of the program is about to run: until
 * the program has had so much of a core that it must have meant to post nothing.
 */

#include "vhca/flow.h"

#include <time.h>

enum {
	AT_LEAST_NS = 60 * 1000 * 1000,
	CHANCE_NS = 10 * 1000 * 1000,    /* of a core, for the program to post receives */
	LOOK_EVERY_NS = 5 * 1000 * 1000, /* whether a thread is about to run */
	SECONDS_AT_MOST = 10,
};

static uint64_t clock_of(clockid_t clock)
{
	struct timespec time;

	return clock_gettime(clock, &time)
		? 0
		: (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* What all threads but this one have had of the cores. */
static uint64_t program_ns(void)
{
	return clock_of(CLOCK_PROCESS_CPUTIME_ID) - clock_of(CLOCK_THREAD_CPUTIME_ID);
}

/* The two clocks are not read at once: the difference may go back a little. */
static bool had_its_chance(const struct vhca_qp *qp)
{
	return (int64_t)(program_ns() - qp->unready_cpu) >= CHANCE_NS;
}

/* Once in a while: it takes some ten microseconds. */
static bool starved(struct vhca_packet_wire *wire, uint64_t now)
{
	if (now - wire->starved_at >= wire->hz / 1000 * (LOOK_EVERY_NS / 1000 / 1000)) {
		wire->starved_at = now;
		wire->starved = vhca_threads_about_to_run();
	}
	return wire->starved;
}

bool vhca_patience(struct vhca_packet_wire *wire, struct vhca_qp *qp)
{
	uint64_t now = clock_cycles(), waited;

	if (!qp->unready_since) {
		qp->unready_since = now;
		qp->unready_cpu = program_ns();
	}
	waited = now - qp->unready_since;
	if (waited < wire->hz / 1000 * (AT_LEAST_NS / 1000 / 1000))
		return true;
	return waited < wire->hz * SECONDS_AT_MOST && !had_its_chance(qp) && starved(wire, now);
}
