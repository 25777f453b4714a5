/* idle.c - what a worker does in an iteration that found nothing to do: poll again, give the core away,
 * or, after a while, sleep */

#include "run/internal.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SLEEP_AFTER_NS =
		50000, /* of idle iterations: what comes sooner is not waited for by a sleep */
	SLEEP_LEAST_NS = 20000,
};

uint64_t vbn__sleep_longest_ns = 1000000;

static uint64_t cycles_of(const struct vbn_worker *worker, uint64_t ns)
{
	return (uint64_t)((unsigned __int128)ns * worker->cycles_per_ns >> 32);
}

/* Until the next timer, and not for long. */
static uint64_t time_to_sleep(const struct vbn_worker *worker, uint64_t now)
{
	const uint64_t due = worker->wheel.due;

	if (due >= now + cycles_of(worker, vbn__sleep_longest_ns))
		return vbn__sleep_longest_ns;
	if (due <= now)
		return 0;
	return (uint64_t)(((unsigned __int128)(due - now) << 32) / worker->cycles_per_ns);
}

/* No grace period waits for it meanwhile. */
static bool sleep_once(struct vbn_worker *worker, uint64_t now)
{
	const uint64_t ns = time_to_sleep(worker, now);
	const struct port_hook *port = worker->ports;
	bool paused, slept;

	if (worker->n_ports != 1 || !port->sleep || ns < SLEEP_LEAST_NS ||
		load_once(&worker->run->stopping))
		return false;
	paused = vbn__rcu_pause();
	slept = port->sleep(port->arg, ns);
	vbn__rcu_resume(paused);
	if (slept)
		store_once(&worker->n_sleeps, worker->n_sleeps + 1);
	return slept;
}

/* Whether it has been idle for so long that it may sleep. */
static bool is_tired(struct vbn_worker *worker, uint64_t now)
{
	if (worker->busy_seen == worker->stats.busy_cycles)
		return now - worker->idle_since > cycles_of(worker, SLEEP_AFTER_NS);
	worker->busy_seen = worker->stats.busy_cycles;
	worker->idle_since = now;
	return false;
}

noinline void vbn__idle(struct vbn_worker *worker)
{
	const uint64_t now = clock_cycles();

	if (worker->sleeps && is_tired(worker, now) && sleep_once(worker, now))
		return;
	if (worker->yields)
		sched_yield();
}

/* ---- what it does ---- */

static bool should_yield(const struct vbn_worker *worker)
{
	if (worker->idle_asked == VBN_AUTO)
		return worker->n_busy >= worker->n_allowed;
	return worker->idle_asked == VBN_ON;
}

/* NULL: it can. */
static const char *why_no_sleep(void)
{
	const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	if (commands < 0 || !(commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		return "this kernel, or a filter of system calls, has no membarrier() across processes";
	if (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == 0 || errno != EINVAL)
		return "this kernel, or a filter of system calls, has no futex_waitv(): Linux 5.16 has";
	return NULL;
}

void vbn__idle_init(struct vbn_worker *worker, const struct worker_plan *plan)
{
	worker->idle_asked = plan->idle_yield;
	worker->sleep_asked = plan->idle_sleep;
	worker->yields = should_yield(worker);
	if (plan->idle_sleep == VBN_ON)
		worker->why_sleep = why_no_sleep();
	worker->sleeps = plan->idle_sleep == VBN_ON && !worker->why_sleep;
	worker->idles = worker->yields || worker->sleeps;
	worker->idle_since = worker->last_cycles;
	if (worker->sleeps)
		worker->why_sleep =
			"asked for; after 50 us of nothing to do, where all its queues are of shared memory and wait for nothing";
	else if (!worker->why_sleep)
		worker->why_sleep = plan->idle_sleep == VBN_OFF
			? "asked for"
			: "a wake-up takes microseconds; idle_sleep asks for it";
}

bool vbn__worker_sleeps(const struct vbn_worker *worker, enum vbn_switch *asked, const char **why)
{
	*asked = worker->sleep_asked;
	*why = worker->why_sleep;
	return worker->sleeps;
}

static void report_yield(const struct vbn_worker *worker, struct mode_report *report)
{
	const char *requested = vbn__mode_switch(worker->idle_asked);
	const char *effective = worker->yields ? "yield" : "busy poll";

	if (worker->idle_asked != VBN_AUTO)
		vbn__mode_add(report, "idle", requested, effective, "asked for");
	else if (worker->yields)
		vbn__mode_add(report, "idle", requested, effective,
			"workers: %d; CPUs this process may use: %d; nothing else would run",
			worker->n_busy, worker->n_allowed);
	else
		vbn__mode_add(report, "idle", requested, effective,
			"workers: %d; CPUs this process may use: %d; others have some left",
			worker->n_busy, worker->n_allowed);
}

void vbn__idle_modes(const struct vbn_worker *worker, struct mode_report *report)
{
	report_yield(worker, report);
	vbn__mode_add(report, "sleep", vbn__mode_switch(worker->sleep_asked),
		worker->sleeps ? "on" : "off", "%s", worker->why_sleep);
}
