/* run.c - vbn_run(): cores, threads, set-up in step, signals, the end in order
 *
 * The threads meet at three points: the gate (all threads could be had), the end of set-up (all are
 * set up, or the run is wound up), and the end of the loops (no worker's exit functions run while
 * another one polls).
 */

#include "run/internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define SETTLE_NS (100ull * 1000 * 1000)

struct member {
	pthread_t thread;
	int index, core;
};

enum gate { GATE_SHUT, GATE_OPEN, GATE_NEVER };

/* The one run of vbn_run() there can be. Static, so that a signal handler and a late vbn_stop()
 * find it at any time. */
static struct {
	struct run run;
	bool under_way; /* atomic */
	/* constant while threads live */
	const struct vbn_run_conf *conf;
	int (*setup)(struct vbn_worker *worker, void *arg);
	void *arg;
	struct topo topo;
	struct member members[TOPO_MAX_CPUS];
	struct vbn_worker *workers[TOPO_MAX_CPUS];
	/* under the lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum gate gate;
	int n_arrived;
	unsigned int meeting; /* how often all have met */
	int failed;           /* the first set-up failure, -errno */
	/* the signal handler's */
	uint64_t signal_ns;
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- signals ---- */

static void stop_run(void)
{
	store_once(&team.run.stopping, 1);
}

static uint32_t stops; /* calls of vbn_stop(); anyone, in a signal handler, too */

uint32_t vbn__stops(void)
{
	return load_once(&stops);
}

VBN_API void vbn_stop(void)
{
	__atomic_fetch_add(&stops, 1, __ATOMIC_RELAXED);
	stop_run();
}

/* The first one ends the run in order. A later one is somebody's who does not want to wait: it does
 * what it does to any program. Not one that comes at once: timeout(1) and terminals send the same
 * signal to a process and to its group. */
static void on_signal(int signal)
{
	uint64_t now = clock_ns();
	uint64_t before = load_once(&team.signal_ns);

	if (!before) {
		store_once(&team.signal_ns, now);
		if (!load_once(&team.run.stopping))
			store_once(&team.run.signal, signal);
		stop_run();
	} else if (now - before > SETTLE_NS) {
		sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
		raise(signal);
	}
}

struct old_actions {
	struct sigaction interrupt, terminate;
};

/* A signal that whoever started the program wants ignored, as nohup does, stays so. */
static void take_signal(int signal, const struct sigaction *action, struct sigaction *old)
{
	sigaction(signal, NULL, old);
	if (old->sa_handler != SIG_IGN)
		sigaction(signal, action, NULL);
}

static void take_signals(struct old_actions *old)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGINT);
	sigaddset(&action.sa_mask, SIGTERM);
	take_signal(SIGINT, &action, &old->interrupt);
	take_signal(SIGTERM, &action, &old->terminate);
}

static void give_back_signals(const struct old_actions *old)
{
	sigaction(SIGINT, &old->interrupt, NULL);
	sigaction(SIGTERM, &old->terminate, NULL);
}

/* ---- meeting points ---- */

/* Waits until every worker's thread has come here. */
static void meet(void)
{
	bool paused = vbn__rcu_pause();
	unsigned int meeting;

	pthread_mutex_lock(&team.lock);
	meeting = team.meeting;
	if (++team.n_arrived == team.run.n_workers) {
		team.n_arrived = 0;
		team.meeting++;
		pthread_cond_broadcast(&team.changed);
	}
	while (team.meeting == meeting)
		pthread_cond_wait(&team.changed, &team.lock);
	pthread_mutex_unlock(&team.lock);
	vbn__rcu_resume(paused);
}

static void set_gate(enum gate gate)
{
	pthread_mutex_lock(&team.lock);
	team.gate = gate;
	pthread_cond_broadcast(&team.changed);
	pthread_mutex_unlock(&team.lock);
}

static bool pass_gate(void)
{
	bool open;

	pthread_mutex_lock(&team.lock);
	while (team.gate == GATE_SHUT)
		pthread_cond_wait(&team.changed, &team.lock);
	open = team.gate == GATE_OPEN;
	pthread_mutex_unlock(&team.lock);
	return open;
}

/* Also stops the run, so that a set-up that waits for this one's can see that it waits in vain. */
static void note_failure(int ret)
{
	pthread_mutex_lock(&team.lock);
	if (!team.failed)
		team.failed = ret;
	pthread_mutex_unlock(&team.lock);
	stop_run();
}

static int failure(void)
{
	int ret;

	pthread_mutex_lock(&team.lock);
	ret = team.failed;
	pthread_mutex_unlock(&team.lock);
	return ret;
}

/* ---- a worker's thread ---- */

static int start_worker(const struct member *member)
{
	struct vbn_worker *worker;
	int ret;

	ret = vbn__worker_pin(member->core, &team.topo);
	if (ret)
		return ret;
	ret = vbn__worker_create(&(struct worker_plan){.run = &team.run,
					 .topo = &team.topo,
					 .index = member->index,
					 .n_workers = team.run.n_workers,
					 .core = member->core,
					 .why_core = team.conf->cores
						 ? "asked for"
						 : "all but the lowest, which is left to others",
					 .idle_yield = team.conf->idle_yield,
					 .idle_sleep = team.conf->idle_sleep},
		&worker);
	if (ret)
		return ret;
	team.workers[member->index] = worker;
	ret = team.setup ? team.setup(worker, team.arg) : 0;
	return min(ret, 0);
}

static void loop(struct vbn_worker *worker)
{
	const uint32_t *stopping = &worker->run->stopping;

	worker->last_cycles = clock_cycles();
	worker->looping = true;
	while (likely(!load_once(stopping)))
		vbn__worker_iterate(worker);
	vbn__worker_drain(worker);
	worker->looping = false;
}

static void *worker_main(void *arg)
{
	const struct member *member = arg;
	struct vbn_worker *worker;
	int ret;

	if (!pass_gate())
		return NULL;
	ret = start_worker(member);
	if (ret)
		note_failure(ret);
	meet();
	worker = team.workers[member->index];
	if (!failure())
		loop(worker);
	meet();
	if (worker)
		vbn__worker_exit(worker);
	return NULL;
}

/* ---- cores ---- */

static void text_of_allowed(char *text, size_t size)
{
	int cpus[TOPO_MAX_CPUS];

	for (int i = 0; i < team.topo.n_cpus; i++)
		cpus[i] = team.topo.cpus[i];
	vbn__cpulist_format(cpus, team.topo.n_cpus, text, size);
}

/* By default the lowest core is left to the control thread, to interrupts and to everyone else. */
static int default_cores(int *cores)
{
	int skipped = team.topo.n_cpus > 1;
	int n = 0;

	for (int i = skipped; i < team.topo.n_cpus; i++)
		cores[n++] = team.topo.cpus[i];
	return n;
}

static int named_cores(const char *text, int *cores)
{
	const char *why;
	char allowed[128];
	int n;

	n = vbn__cpulist_parse(text, cores, TOPO_MAX_CPUS, &why);
	if (n < 0)
		return fail(EINVAL,
			"cores \"%s\": no worker can be started: %s; write each core once, as in 0,2-3",
			text, why);
	text_of_allowed(allowed, sizeof(allowed));
	for (int i = 0; i < n; i++)
		if (!vbn__topo_cpu_allowed(&team.topo, cores[i]))
			return fail(EPERM,
				"core %d: no worker can be started on it: this process may use CPUs %s only; choose among "
				"these, or widen its affinity (taskset -cp) or cpuset",
				cores[i], allowed);
	return n;
}

/* ---- start and end ---- */

static void reset(const struct vbn_run_conf *conf,
	int (*setup)(struct vbn_worker *worker, void *arg), void *arg)
{
	store_once(&team.run.stopping, 0);
	team.run.over = 0;
	store_once(&team.run.signal, 0);
	team.run.n_done = 0;
	memset(team.workers, 0, sizeof(team.workers));
	team.run.workers = team.workers;
	team.run.drain_ns = conf->drain_ns ? conf->drain_ns : DRAIN_DEFAULT_NS;
	team.conf = conf;
	team.setup = setup;
	team.arg = arg;
	team.gate = GATE_SHUT;
	team.n_arrived = 0;
	team.failed = 0;
	store_once(&team.signal_ns, 0);
}

static int plan_members(void)
{
	int cores[TOPO_MAX_CPUS];
	int n, ret;

	ret = vbn__topo_read(NULL, &team.topo);
	if (ret)
		return ret;
	n = team.conf->cores ? named_cores(team.conf->cores, cores) : default_cores(cores);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		team.members[i].index = i;
		team.members[i].core = cores[i];
	}
	team.run.n_workers = n;
	return 0;
}

static int start_thread(struct member *member)
{
	char name[16];
	int ret;

	ret = pthread_create(&member->thread, NULL, worker_main, member);
	if (ret)
		return fail(ret,
			"worker %d: cannot be started: the system gave no thread (%s); raise the limit on processes "
			"(ulimit -u) or free memory",
			member->index, strerror(ret));
	snprintf(name, sizeof(name), "vbn-w%hu", (unsigned short)member->index);
	pthread_setname_np(member->thread, name);
	return 0;
}

/* Starts all threads or none: those that were had before one could not be never pass the gate. */
static int run_threads(void)
{
	sigset_t before;
	int n, ret = 0;

	vbn__block_signals(&before);
	for (n = 0; n < team.run.n_workers; n++) {
		ret = start_thread(&team.members[n]);
		if (ret)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	set_gate(ret ? GATE_NEVER : GATE_OPEN);
	for (int i = 0; i < n; i++)
		pthread_join(team.members[i].thread, NULL);
	for (int i = 0; i < n; i++)
		vbn__worker_destroy(team.workers[i]);
	return ret;
}

static int run(void)
{
	bool signals = team.conf->signals != VBN_OFF;
	struct old_actions old;
	int ret;

	ret = plan_members();
	if (ret)
		return ret;
	if (signals)
		take_signals(&old);
	ret = run_threads();
	if (signals)
		give_back_signals(&old);
	if (ret)
		return ret;
	return team.failed ? team.failed : load_once(&team.run.signal);
}

VBN_API int vbn_run(const struct vbn_run_conf *conf,
	int (*setup)(struct vbn_worker *worker, void *arg), void *arg)
{
	static const struct vbn_run_conf defaults;
	int ret;

	if (__atomic_exchange_n(&team.under_way, true, __ATOMIC_ACQUIRE))
		return fail(EBUSY,
			"run: cannot start: another one is under way in this process; wait for its end, or add to its cores");
	reset(conf ? conf : &defaults, setup, arg);
	ret = run();
	__atomic_store_n(&team.under_way, false, __ATOMIC_RELEASE);
	return ret;
}
