/* engine.c - the thread that watches doorbells, runs queues and keeps time
 *
 * One thread for the process. A sweep holds the locks of all devices: it takes the doorbells of
 * each UAR page, runs each queue that has work for a bounded while, flushes failed ones, and looks
 * at the timers. Then it lets commands in.
 */

#include "vhca/device.h"
#include "vhca/doze.h"
#include "vhca/guard.h"
#include "vhca/trap.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CLOCK_OFFSET = 0,
	SPIN_NS = 30 * 1000,            /* of empty sweeps before the core is offered to others */
	SETTLE_NS = 1000 * 1000 * 1000, /* the engine may have to wait for a core */
	SETTLE_SWEEPS = 256,
	SETTLE_NAP_NS = 20 * 1000,
	EXIT_NAPS = 5000,              /* for the lock */
	YIELD_NS = 100 * 1000,         /* ... before the thread sleeps */
	CONTENDED_SPIN_NS = 15 * 1000, /* ... where others want it: the pause between two bursts */
	CONTENDED_NS = 60 * 1000, /* a yield that took so long: others want the core, so sleeping
				     wakes up sooner */
	CONTENDED_FOR_NS = 50 * 1000 * 1000,
	STORE_NS = 1000 * 1000, /* the store that ended a doze is awaited like that, ... */
	STORE_NAP_NS = 100 * 1000,
	FIRST_NAP_NS = 10 * 1000,
	LAST_NAP_NS = 950 * 1000,   /* with what waking takes, within a millisecond */
	IDLE_NS = 20 * 1000 * 1000, /* naps stay short, and no doze begins, while there was work so
				       recently */
	TURN_NS = 100 * 1000,
	RECENT_NAP_NS = 50 * 1000,
	LONGEST_NS = 1000 * 1000 * 1000,
	WATCHES_PER_S = 1, /* for records whose doorbell does not come */
};

static const uint16_t bf_registers[] = {0x800, 0x900, 0xa00, 0xb00};

static struct {
	pthread_mutex_t lock; /* of users and the thread's start and stop */
	int users;
	pthread_t thread;
	bool stop;
	/* the thread's own */
	uint64_t hz;
	uint64_t next_deadline; /* clock_cycles(); the earliest of all waiting QPs, or later than it
				 */
	uint64_t last_clock_page;
	uint64_t last_watch;
	bool watch;                                 /* in this sweep */
	uint64_t n_sweeps;                          /* under the lock of any device */
	struct vhca_wire *wires[VHCA_MAX_DEVICES];  /* that something can come in by */
	struct pollfd inputs[VHCA_MAX_DEVICES + 1]; /* one place more for the end of a doze */
	nfds_t n_inputs;
	bool nothing_in; /* the last sleep ended without any of them: one sweep need not look */
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Core clock ticks are cycles scaled by a 64.64 factor. */
static uint64_t ticks_per_cycle; /* times 2^64 */

/* ---- time ---- */

static void clock_init(void)
{
	if (ticks_per_cycle)
		return;
	engine.hz = vbn__clock_hz();
	ticks_per_cycle = (uint64_t)(((unsigned __int128)VHCA_CLOCK_KHZ * 1000 << 64) / engine.hz);
}

uint64_t vhca_ticks;

uint64_t vhca_clock(void)
{
	return (uint64_t)((unsigned __int128)clock_cycles() * ticks_per_cycle >> 64);
}

static uint64_t cycles_of(uint64_t ns)
{
	return (uint64_t)((unsigned __int128)ns * engine.hz / 1000000000u);
}

/* The page that the program maps as the free-running clock: high word, low word, big-endian. */
static void write_clock_pages(struct vhca_device *device)
{
	uint64_t clock = vhca_clock();

	for (struct vhca_context *context = device->contexts; context; context = context->next)
		store_once((uint64_t *)(void *)(context->bar + VHCA_BAR_CLOCK + CLOCK_OFFSET),
			htobe64(clock));
}

uint64_t vhca_deadline(uint64_t ns)
{
	uint64_t deadline = clock_cycles() + cycles_of(ns);

	store_once(&engine.next_deadline, min(engine.next_deadline, deadline));
	return deadline;
}

void vhca_qp_wait(struct vhca_qp *qp, uint64_t ns)
{
	vhca_qp_deactivate(qp);
	qp->deadline = vhca_deadline(ns);
	vhca_list_add(&qp->object.context->device->tables->waiting, &qp->in_waiting);
}

void vhca_qp_wait_cancel(struct vhca_qp *qp)
{
	qp->deadline = 0;
	vhca_list_remove(&qp->in_waiting);
}

/* CQs that have held back their event for long enough. */
static void run_moderation(struct vhca_device *device, uint64_t now, uint64_t *next)
{
	struct vhca_link *moderated = &device->tables->moderated, *link, *after;

	for (link = moderated->next; link != moderated; link = after) {
		struct vhca_cq *cq = container_of(link, struct vhca_cq, in_moderated);

		after = link->next;
		if (cq->event_deadline > now)
			*next = min(*next, cq->event_deadline);
		else
			vhca_cq_period_over(cq);
	}
}

/* Queues whose time has come go on; the next deadline is found anew. */
static void run_timers(struct vhca_device *device, uint64_t now, uint64_t *next)
{
	struct vhca_link *waiting = &device->tables->waiting, *link, *after;

	for (link = waiting->next; link != waiting; link = after) {
		struct vhca_qp *qp = container_of(link, struct vhca_qp, in_waiting);

		after = link->next;
		if (qp->deadline > now) {
			*next = min(*next, qp->deadline);
			continue;
		}
		vhca_qp_wait_cancel(qp);
		vhca_qp_activate(qp);
	}
}

/* ---- doorbells ---- */

/* A store was not trapped: its mapping is made since the last command. From now on it is, and who
 * else may have rung there meanwhile is heard. */
static cold void slipped(struct vhca_page *page)
{
	vhca_trap_pages(page->uar.object.context);
	vhca_doorbells_slipped(page);
}

unsigned int vhca_page_poll(struct vhca_page *page)
{
	unsigned int n = 0;
	uint64_t value;

	for (size_t i = 0; i < ARRAY_SIZE(bf_registers); i++) {
		value = vhca_doorbell_take(page->registers + bf_registers[i]);
		if (value) {
			vhca_doorbell_send(page, bf_registers[i], value);
			n++;
		}
	}
	value = vhca_doorbell_take(page->registers + MLX5_CQ_DOORBELL);
	if (value) {
		vhca_doorbell_arm(page, value);
		n++;
	}
	if (unlikely(vhca_trapped) && n)
		slipped(page);
	return n;
}

static bool is_rung(const uint8_t *doorbell)
{
	return load_once((const uint64_t *)(const void *)doorbell);
}

bool vhca_page_rung(const struct vhca_page *page)
{
	for (size_t i = 0; i < ARRAY_SIZE(bf_registers); i++)
		if (is_rung(page->registers + bf_registers[i]))
			return true;
	return is_rung(page->registers + MLX5_CQ_DOORBELL);
}

/* ---- sweep ---- */

static unsigned int run_pages(struct vhca_tables *tables)
{
	unsigned int n = 0;

	for (struct vhca_link *link = tables->pages.next; link != &tables->pages; link = link->next)
		n += vhca_page_poll(container_of(link, struct vhca_page, link));
	return n;
}

static unsigned int run_queues(struct vhca_tables *tables)
{
	struct vhca_link *link, *after, *last = tables->active.prev;
	unsigned int n = 0;

	if (vhca_list_empty(&tables->active))
		return 0;
	for (link = tables->active.next;; link = after) {
		bool at_end = link == last;

		after = link->next;
		n += vhca_requester_run(container_of(link, struct vhca_qp, in_active));
		if (at_end || after == &tables->active)
			return n;
	}
}

static unsigned int run_flushes(struct vhca_tables *tables)
{
	unsigned int n = 0;

	for (struct vhca_link *link = tables->errored.next; link != &tables->errored;
		link = link->next)
		n += vhca_responder_flush(container_of(link, struct vhca_qp, in_errored));
	return n;
}

/* The rare look at what is seldom wrong. */
static void watch(struct vhca_device *device)
{
	vhca_rules_watch(device);
	if (!vhca_trapped)
		return;
	for (struct vhca_context *context = device->contexts; context; context = context->next)
		vhca_trap_pages(context);
}

static unsigned int sweep_device(struct vhca_device *device)
{
	unsigned int n;

	if (unlikely(device->fatal))
		return 0;
	n = run_pages(device->tables);
	if (unlikely(engine.watch))
		watch(device);
	n += run_queues(device->tables);
	if (unlikely(!vhca_list_empty(&device->tables->errored)))
		n += run_flushes(device->tables);
	if (device->wire->ops->poll && !engine.nothing_in)
		n += device->wire->ops->poll(device->wire);
	if (unlikely(!vhca_list_empty(&device->tables->sessions)))
		vhca_sessions_end(device->tables);
	if (unlikely(!vhca_list_empty(&device->tables->unreported)))
		vhca_qps_fail_unreported(device->tables);
	return n;
}

static unsigned int sweep_timers(int n_devices, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	store_once(&engine.next_deadline, UINT64_MAX); /* what is set meanwhile counts as well */
	for (int i = 0; i < n_devices; i++) {
		struct vhca_wire *wire = vhca_device(i)->wire;

		run_timers(vhca_device(i), now, &next);
		vhca_late_run(vhca_device(i)->tables, now, &next);
		run_moderation(vhca_device(i), now, &next);
		if (wire->ops->timers)
			wire->ops->timers(wire, now, &next);
	}
	store_once(&engine.next_deadline, min(engine.next_deadline, next));
	return 1;
}

static unsigned int sweep_devices(int n_devices, bool clock_due)
{
	unsigned int n = 0;

	for (int i = 0; i < n_devices; i++) {
		if (clock_due)
			write_clock_pages(vhca_device(i));
		n += sweep_device(vhca_device(i));
	}
	return n;
}

/* A fault on the program's memory ends the sweep; what it was about fails, and the next sweep goes
 * on. That may fault too, on other memory, until all that is gone has been told. */
static unsigned int sweep_guarded(int n_devices, bool clock_due)
{
	struct vhca_guard guard = {.address = 0};
	unsigned int n;

	if (likely(!vhca_guarded(&guard))) {
		n = sweep_devices(n_devices, clock_due);
	} else {
		vhca_engine_fault(n_devices, guard.address);
		n = 1;
	}
	vhca_unguarded(&guard);
	return n;
}

/* Whether it is time for the rare look at all records. */
static bool watch_due(uint64_t now)
{
	if (likely(now - engine.last_watch < engine.hz / WATCHES_PER_S))
		return false;
	engine.last_watch = now;
	return true;
}

/* A message may go from one device to another, so all are locked, always in the same order. */
static unsigned int sweep(int n_devices)
{
	uint64_t now = clock_cycles();
	bool clock_due = now - engine.last_clock_page > engine.hz / 1000000;
	unsigned int n = 0;

	engine.watch = clock_due && watch_due(now);
	for (int i = 0; i < n_devices; i++)
		pthread_mutex_lock(&vhca_device(i)->lock);
	if (unlikely(now >= engine.next_deadline)) {
		n += sweep_timers(n_devices, now);
		engine.nothing_in = false; /* what a timer has made ready goes out there */
	}
	vhca_clock_tick();
	n += sweep_guarded(n_devices, clock_due);
	if (unlikely(engine.watch))
		vhca_rules_watched();
	engine.nothing_in = false;
	if (clock_due)
		engine.last_clock_page = now;
	engine.n_sweeps++;
	for (int i = n_devices - 1; i >= 0; i--)
		pthread_mutex_unlock(&vhca_device(i)->lock);
	return n;
}

/* A mutex is not fair: without this a command would wait for many sweeps. */
static void let_commands_in(int n_devices)
{
	for (int i = 0; i < n_devices; i++)
		for (int spins = 0;
			unlikely(load_once(&vhca_device(i)->commands_waiting)) && spins < 1000;
			spins++)
			if (spins < 100)
				cpu_relax();
			else
				sched_yield();
}

static void nap(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* The engine's sleep also ends when something comes in from outside, and, if `fd` is one, by that:
 * true. */
static bool sleep_for(uint64_t ns, int fd)
{
	struct timespec time = {
		.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	struct pollfd *last = &engine.inputs[engine.n_inputs];
	int n;

	for (nfds_t i = 0; i < engine.n_inputs; i++) {
		struct vhca_wire *wire = engine.wires[i];

		engine.inputs[i].fd = wire->held ? -1 : wire->fd;
	}
	*last = (struct pollfd){.fd = fd, .events = POLLIN};
	n = ppoll(engine.inputs, engine.n_inputs + (fd >= 0), &time, NULL);
	engine.nothing_in = !n;
	return n > 0 && last->revents;
}

static void find_inputs(int n_devices)
{
	engine.n_inputs = 0;
	for (int i = 0; i < n_devices; i++) {
		struct vhca_wire *wire = vhca_device(i)->wire;

		if (wire->fd < 0)
			continue;
		engine.wires[engine.n_inputs] = wire;
		engine.inputs[engine.n_inputs++].events = POLLIN;
	}
}

/* ---- for commands ---- */

/* What has been rung when it is called is done when it returns, but for what waits on timers: two
 * sweeps see the doorbell, and then no queue is active, or all have had many turns. The lock is let
 * go meanwhile, so the caller keeps its objects. */
void vhca_engine_settle(struct vhca_device *device)
{
	uint64_t first = engine.n_sweeps, until = clock_ns() + SETTLE_NS, n;

	do {
		vhca_unlock(device);
		nap(SETTLE_NAP_NS);
		vhca_lock(device);
		n = engine.n_sweeps - first;
	} while (clock_ns() < until &&
		(n < 2 || (n < SETTLE_SWEEPS && !vhca_list_empty(&device->tables->active))));
}

/* ---- idling ---- */

struct idle {
	uint64_t since; /* ns, of the last sweep that found work */
	uint64_t nap;
	uint64_t contended_until; /* ns: others want the core */
};

/* Until when the core counts as contended; 0: it is not. */
static uint64_t yield(uint64_t now)
{
	uint64_t after;

	sched_yield();
	after = clock_ns();
	return after - now > CONTENDED_NS ? after + CONTENDED_FOR_NS : 0;
}

/* How long until then, at most `ns`. */
static uint64_t until(uint64_t deadline, uint64_t ns)
{
	uint64_t now = clock_cycles(), left;

	if (deadline == UINT64_MAX)
		return ns;
	left = deadline > now ? deadline - now : 0;
	left = (uint64_t)((unsigned __int128)left * 1000000000u / engine.hz);
	return min(ns, left);
}

/* The program's thread goes on with its store only now, perhaps on this core. So a short look, and a
 * nap: one that has slept for long enough, and run for a short time, gets the core back at once. */
static void await_store(struct idle *state)
{
	state->since = clock_ns();
	state->contended_until = state->since + STORE_NS;
	state->nap = STORE_NAP_NS;
}

/* Sleeps until the program rings, calls or reads the clock; false where that cannot be had. What
 * only waits for its time lets the next doze begin at once. */
static bool doze(struct idle *state, int n_devices)
{
	uint64_t watch = engine.last_watch + engine.hz / WATCHES_PER_S;

	if (!vhca_doze_begin(n_devices))
		return false;
	if (!load_acquire(&engine.stop) &&
		sleep_for(until(load_once(&engine.next_deadline), until(watch, LONGEST_NS)),
			vhca_doze_fd()))
		await_store(state);
	vhca_doze_end();
	return true;
}

/* Nothing was found: spin, then yield, then naps that grow, then a doze, or naps without end that
 * still answer within a millisecond. Where busy threads want the core, yielding may take
 * milliseconds: sleep early instead. */
static void idle(struct idle *state, int n_devices)
{
	uint64_t now = clock_ns(), idle_ns = now - state->since;
	bool contended = now < state->contended_until;

	if (idle_ns < (contended ? CONTENDED_SPIN_NS : SPIN_NS)) {
		cpu_relax();
		return;
	}
	if (idle_ns < SPIN_NS + YIELD_NS && !contended) {
		state->contended_until = yield(now);
		return;
	}
	if (idle_ns >= IDLE_NS && doze(state, n_devices))
		return;
	sleep_for(until(load_once(&engine.next_deadline), state->nap), -1);
	state->nap =
		min(state->nap * 2, (uint64_t)(idle_ns < IDLE_NS ? RECENT_NAP_NS : LAST_NAP_NS));
}

/* The scheduler lets a waking thread that asks for short turns preempt one in the middle of a long
 * turn, instead of waiting milliseconds for its end. A kernel that knows no such wish (before 6.12)
 * leaves it at that. */
static void ask_for_short_turns(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
		uint32_t min, max;
	} attr = {.size = sizeof(attr), .nice = getpriority(PRIO_PROCESS, 0), .runtime = TURN_NS};

	syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *run(void *unused)
{
	struct idle state = {.since = clock_ns(), .nap = FIRST_NAP_NS};
	int n_devices = vhca_n_devices();

	(void)unused;
	pthread_setname_np(pthread_self(), "vhca");
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
	ask_for_short_turns();
	find_inputs(n_devices);
	while (!load_acquire(&engine.stop)) {
		if (sweep(n_devices)) {
			state.nap = 0;
		} else {
			if (!state.nap) {
				state.since = clock_ns();
				state.nap = FIRST_NAP_NS;
			}
			idle(&state, n_devices);
		}
		let_commands_in(n_devices);
	}
	return NULL;
}

/* ---- start and stop ---- */

/* The program's signals are not the engine's. */
static int start_thread(void)
{
	sigset_t all, before;
	int error;

	clock_init();
	engine.next_deadline = UINT64_MAX;
	engine.stop = false;
	vhca_doze_start();
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* guard.c's */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&engine.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		vhca_doze_stop();
	return error;
}

int vhca_engine_start(void)
{
	int error = 0;

	pthread_mutex_lock(&engine.lock);
	if (!engine.users)
		error = start_thread();
	if (!error)
		engine.users++;
	pthread_mutex_unlock(&engine.lock);
	return error;
}

static void drain(struct vhca_device *device)
{
	struct vhca_wire *wire = device->wire;

	if (wire && wire->ops->drain)
		wire->ops->drain(wire);
}

static void drain_all(void)
{
	for (int i = 0; i < vhca_n_devices(); i++) {
		vhca_lock(vhca_device(i));
		drain(vhca_device(i));
		vhca_unlock(vhca_device(i));
	}
}

/* A program need not close its devices. It may also end in a signal's handler, within a command. */
static __attribute__((destructor)) void drain_at_exit(void)
{
	for (int i = 0; load_once(&engine.users) && i < vhca_n_devices_made(); i++) {
		pthread_mutex_t *lock = &vhca_device(i)->lock;
		int patience = EXIT_NAPS;

		while (pthread_mutex_trylock(lock) && --patience)
			nap(SETTLE_NAP_NS);
		if (!patience)
			return;
		drain(vhca_device(i));
		pthread_mutex_unlock(lock);
	}
}

void vhca_engine_stop(void)
{
	pthread_mutex_lock(&engine.lock);
	if (!--engine.users) {
		store_release(&engine.stop, true);
		vhca_doze_wake();
		pthread_join(engine.thread, NULL);
		vhca_doze_stop();
		drain_all();
	}
	pthread_mutex_unlock(&engine.lock);
}

void vhca_engine_forked(void)
{
	pthread_mutex_init(&engine.lock, NULL);
	engine.users = 0;
	vhca_doze_forked();
}
