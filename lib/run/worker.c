/* worker.c - a worker: its iteration, its counters and modes; making one of the calling thread */

#include "run/internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

thread_local_near struct vbn_worker *vbn__self;

/* Every worker there is: for an attached one's index, for the choice of AUTO, and to keep the
 * control thread off their cores. */
static struct {
	pthread_mutex_t lock;
	struct vbn_worker *first;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct counter_name counter_names[] = {
	{"iterations", "one turn of the loop"},
	{"idle_iterations", "a turn of the loop whose poll functions had nothing to do"},
	{"busy_cycles", "one cycle of a turn that was not idle"},
	{"total_cycles", "one cycle since the loop began"},
};
static_assert(sizeof(struct loop_stats) == ARRAY_SIZE(counter_names) * sizeof(uint64_t),
	"each stat has a name");

static const struct counter_name timer_names[] = {{"timers_fired", "one timer whose time came"}};
static const struct counter_name post_names[] = {
	{"posts_sent", "a function that this worker had another one run"},
	{"posts_run", "a function that another thread had this worker run"},
	{"posts_waited",
		"an iteration that left posts for the next one, for another worker was behind"},
};
static const struct counter_name sleep_names[] = {
	{"sleeps", "a time that this worker slept until something came, or for a while"}};
static const struct counter_name home_names[] = {
	{"bufs_sent_home", "a buf of another worker's that was freed here"},
	{"bufs_came_home", "a buf of this worker's that was freed by another thread"},
	{"bufs_waited",
		"an iteration that left bufs for the next one, for another worker was behind"},
};
static_assert(
	sizeof(struct lane_stats) == 3 * sizeof(uint64_t), "each of a lane's stats has a name");

/* ---- the iteration ---- */

/* One clock for an iteration. What an idle one gives away is counted as idle. */
static force_inline void account(struct vbn_worker *worker, int did)
{
	struct loop_stats *stats = &worker->stats;
	uint64_t now, cycles;

	if (!did && worker->idles)
		vbn__idle(worker);
	now = clock_cycles();
	cycles = now - worker->last_cycles;
	worker->last_cycles = now;
	store_once(&stats->iterations, stats->iterations + 1);
	store_once(&stats->total_cycles, stats->total_cycles + cycles);
	if (did)
		store_once(&stats->busy_cycles, stats->busy_cycles + cycles);
	else
		store_once(&stats->idle_iterations, stats->idle_iterations + 1);
}

/* What the program handed in and what is due come before the polls, so that what they stage is
 * flushed in the same turn. What crosses to other workers, and the quiescent state, come after the
 * doorbells. The arrays are read anew in each turn: a hook may add others, and they may move. */
fast_path int vbn__worker_iterate(struct vbn_worker *worker)
{
	int did = 0;

	if (lane_active(worker->posts))
		did += vbn__posts_run(worker);
	if (unlikely(wheel_due(&worker->wheel, worker->last_cycles)))
		did += vbn__wheel_run(&worker->wheel, worker, worker->last_cycles);
	for (uint32_t i = 0; i < worker->n_polls; i++)
		did += max(worker->polls[i].fn(worker, worker->polls[i].arg), 0);
	for (uint32_t i = 0; i < worker->n_flushes; i++)
		worker->flushes[i].fn(worker->flushes[i].arg);
	if (lane_active(worker->posts))
		lane_flush(worker->posts);
	if (lane_active(worker->home))
		vbn__home_exchange(worker->home);
	rcu_quiescent(&worker->rcu);
	account(worker, did);
	return did;
}

VBN_API int vbn_worker_poll(struct vbn_worker *worker)
{
	return vbn__worker_iterate(worker);
}

/* ---- life ---- */

static void keep_control_off(void)
{
	cpu_set_t taken;

	CPU_ZERO(&taken);
	for (const struct vbn_worker *worker = live.first; worker; worker = worker->next)
		if (worker->core >= 0)
			CPU_SET((size_t)worker->core, &taken);
	vbn__control_keep_off(&taken);
}

static bool index_is_live(int index)
{
	for (const struct vbn_worker *worker = live.first; worker; worker = worker->next)
		if (worker->index == index)
			return true;
	return false;
}

static int free_index(void)
{
	int index = 0;

	while (index_is_live(index))
		index++;
	return index;
}

/* Workers that are or will be there when this one's run has started. */
static int count_busy(int of_this_run)
{
	int n = of_this_run;

	for (const struct vbn_worker *worker = live.first; worker; worker = worker->next)
		if (worker->attached)
			n++;
	return n;
}

/* An attached worker and one of a run may have the same index. */
static bool number_is_live(int number)
{
	for (const struct vbn_worker *worker = live.first; worker; worker = worker->next)
		if (worker->number == number)
			return true;
	return false;
}

static void enlist(struct vbn_worker *worker, const struct worker_plan *plan)
{
	pthread_mutex_lock(&live.lock);
	worker->n_busy = count_busy(plan->n_workers);
	worker->index = plan->index < 0 ? free_index() : plan->index;
	worker->number = worker->index;
	while (number_is_live(worker->number))
		worker->number++;
	worker->next = live.first;
	live.first = worker;
	keep_control_off();
	pthread_mutex_unlock(&live.lock);
}

static void delist(const struct vbn_worker *worker)
{
	pthread_mutex_lock(&live.lock);
	for (struct vbn_worker **at = &live.first; *at; at = &(*at)->next) {
		if (*at == worker) {
			*at = worker->next;
			break;
		}
	}
	keep_control_off();
	pthread_mutex_unlock(&live.lock);
}

static int node_of(const struct topo *topo, int core)
{
	if (core < 0)
		core = sched_getcpu();
	return core >= 0 && core < TOPO_MAX_CPUS ? topo->node_of_cpu[core] : 0;
}

static struct worker_traffic traffic_of(struct vbn_worker *worker)
{
	struct worker_traffic sum;

	pthread_mutex_lock(&worker->ports_lock);
	sum = worker->gone;
	for (uint32_t i = 0; i < worker->n_ports; i++)
		worker->ports[i].traffic(worker->ports[i].arg, &sum);
	pthread_mutex_unlock(&worker->ports_lock);
	return sum;
}

static void describe(const struct counter_set *set, struct fact_list *list)
{
	struct vbn_worker *worker = container_of(set, struct vbn_worker, counters);
	struct worker_traffic traffic = traffic_of(worker);

	vbn__fact_number(list, "index", (uint64_t)worker->index);
	if (worker->core >= 0)
		vbn__fact_number(list, "core", (uint64_t)worker->core);
	if (worker->node >= 0)
		vbn__fact_number(list, "node", (uint64_t)worker->node);
	vbn__fact_counter(
		list, "messages", "messages its queues received and sent", traffic.messages);
	vbn__fact_counter(list, "bytes", "bytes its queues received and sent", traffic.bytes);
}

static void init_set(const struct vbn_worker *worker, struct counter_set *set,
	const struct counter_name *names, const uint64_t *values, size_t n)
{
	*set = (struct counter_set){.kind = "worker",
		.names = names,
		.values = values,
		.n = n,
		.id = (uint32_t)worker->number,
		.numbered = true};
	snprintf(set->object, sizeof(set->object), "%d", worker->index);
}

static void add_counters(struct vbn_worker *worker)
{
	init_set(worker, &worker->counters, counter_names, &worker->stats.iterations,
		ARRAY_SIZE(counter_names));
	init_set(worker, &worker->timer_counters, timer_names, &worker->wheel.n_fired,
		ARRAY_SIZE(timer_names));
	init_set(worker, &worker->post_counters, post_names, &worker->posts->stats.sent,
		ARRAY_SIZE(post_names));
	init_set(worker, &worker->home_counters, home_names, &worker->home->stats.sent,
		ARRAY_SIZE(home_names));
	init_set(worker, &worker->sleep_counters, sleep_names, &worker->n_sleeps,
		ARRAY_SIZE(sleep_names));
	worker->counters.describe = describe;
	worker->counters.more = &worker->timer_counters;
	worker->timer_counters.more = &worker->post_counters;
	worker->post_counters.more = &worker->home_counters;
	worker->home_counters.more = &worker->sleep_counters;
	vbn__counters_add(&worker->counters);
}

static int open_lanes(struct vbn_worker *worker)
{
	int ret = vbn__home_open();

	if (!ret) {
		ret = vbn__posts_open(worker);
		if (ret)
			vbn__home_close();
	}
	worker->home = vbn__home;
	if (ret == -ENOSPC)
		return fail(ENOSPC,
			"worker: cannot be made: %d workers exist, which is the most; detach some",
			LANE_ENDS);
	return ret ? fail(-ret, "worker: cannot be made: no memory for its lanes; free some") : 0;
}

int vbn__worker_create(const struct worker_plan *plan, struct vbn_worker **created)
{
	struct vbn_worker *worker = aligned_alloc(CACHE_LINE, sizeof(*worker));
	int ret;

	if (!worker)
		return fail(ENOMEM, "worker: cannot be made: no memory for its state; free some");
	memset(worker, 0, sizeof(*worker));
	worker->run = plan->run;
	worker->attached = plan->attached;
	worker->core = plan->core;
	worker->why_core = plan->why_core;
	worker->n_allowed = plan->topo->n_cpus;
	worker->node = node_of(plan->topo, plan->core);
	worker->drain.calm_since = CALM_NEVER;
	worker->last_cycles = clock_cycles();
	ret = open_lanes(worker);
	if (ret) {
		free(worker);
		return ret;
	}
	vbn__timers_init(worker);
	vbn__rcu_enter(&worker->rcu);
	pthread_mutex_init(&worker->ports_lock, NULL);
	enlist(worker, plan);
	vbn__idle_init(worker, plan);
	add_counters(worker);
	vbn__self = worker;
	*created = worker;
	return 0;
}

/* Each may add others of its kind; the arrays are read anew. */
static void run_exits(struct vbn_worker *worker)
{
	while (worker->n_exits) {
		struct exit_hook hook = worker->exits[--worker->n_exits];

		hook.fn(worker, hook.arg);
	}
	while (worker->n_last_exits) {
		struct exit_hook hook = worker->last_exits[--worker->n_last_exits];

		hook.fn(worker, hook.arg);
	}
}

void vbn__worker_exit(struct vbn_worker *worker)
{
	run_exits(worker);
	vbn__posts_close(worker);
	vbn__home_close();
	vbn__rcu_leave(&worker->rcu);
	vbn__self = NULL;
}

void vbn__worker_destroy(struct vbn_worker *worker)
{
	if (!worker)
		return;
	vbn__counters_remove(&worker->counters);
	delist(worker);
	pthread_mutex_destroy(&worker->ports_lock);
	free(worker->polls);
	free(worker->flushes);
	free(worker->ports);
	free(worker->exits);
	free(worker->last_exits);
	free(worker);
}

int vbn__worker_pin(int core, const struct topo *topo)
{
	cpu_set_t set;
	int ret;

	CPU_ZERO(&set);
	CPU_SET((size_t)core, &set);
	ret = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (ret)
		return fail(ret,
			"core %d: a worker cannot be pinned to it: %s; see that the CPU is online, among the %d this process "
			"may use",
			core, strerror(ret), topo->n_cpus);
	return 0;
}

/* ---- the calling thread as a worker ---- */

/* One allocation: the run of one. */
struct attached_run {
	struct run run;
	struct vbn_worker *worker;
};

static int attach_pinned(
	const struct vbn_worker_conf *conf, const struct topo *topo, cpu_set_t *before)
{
	int core = (int)min(conf->core.value, (uint32_t)INT32_MAX);

	if (!vbn__topo_cpu_allowed(topo, core))
		return fail(EPERM,
			"core %u: the calling thread cannot become its worker: this process may not use that CPU; name one of its "
			"affinity mask (taskset -cp), or widen that",
			conf->core.value);
	pthread_getaffinity_np(pthread_self(), sizeof(*before), before);
	return vbn__worker_pin(core, topo);
}

VBN_API int vbn_worker_attach(const struct vbn_worker_conf *conf, struct vbn_worker **worker)
{
	static const struct vbn_worker_conf defaults;
	struct attached_run *attached;
	struct topo topo;
	cpu_set_t before;
	int ret;

	if (!conf)
		conf = &defaults;
	if (vbn__self)
		return fail(EALREADY,
			"worker %d: the calling thread cannot become another: it is that one; detach it first",
			vbn__self->index);
	ret = vbn__topo_read(NULL, &topo);
	if (ret)
		return ret;
	attached = aligned_alloc(CACHE_LINE, round_up(sizeof(*attached), CACHE_LINE));
	if (!attached)
		return fail(ENOMEM, "worker: cannot be made: no memory for its state; free some");
	memset(attached, 0, sizeof(*attached));
	attached->run.n_workers = 1;
	attached->run.workers = &attached->worker;
	attached->run.drain_ns = DRAIN_DEFAULT_NS;
	if (conf->core.set) {
		ret = attach_pinned(conf, &topo, &before);
		if (ret)
			goto free_run;
	}
	ret = vbn__worker_create(
		&(struct worker_plan){.run = &attached->run,
			.topo = &topo,
			.index = -1,
			.n_workers = 1,
			.core = conf->core.set ? (int)conf->core.value : -1,
			.why_core = conf->core.set ? "asked for" : "the thread keeps its affinity",
			.idle_yield = conf->idle_yield,
			.idle_sleep = conf->idle_sleep,
			.attached = true},
		&attached->worker);
	if (ret)
		goto unpin;
	if (conf->core.set)
		attached->worker->affinity_before = before;
	*worker = attached->worker;
	return 0;

unpin:
	if (conf->core.set)
		pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
free_run:
	free(attached);
	return ret;
}

VBN_API void vbn_worker_detach(struct vbn_worker *worker)
{
	struct run *run;

	if (!worker)
		return;
	if (worker != vbn__self || !worker->attached) {
		log_error(
			"worker %d: cannot be detached here: it is not one that this thread has attached; detach it on the thread "
			"that did, and leave those of vbn_run() to it",
			worker->index);
		return;
	}
	run = worker->run;
	store_once(&run->stopping, 1);
	vbn__worker_drain(worker);
	vbn__worker_exit(worker);
	if (worker->core >= 0)
		pthread_setaffinity_np(
			pthread_self(), sizeof(worker->affinity_before), &worker->affinity_before);
	vbn__worker_destroy(worker);
	free(container_of(run, struct attached_run, run));
}

VBN_API void vbn_worker_offline(struct vbn_worker *worker)
{
	(void)worker;
	vbn__rcu_pause();
}

VBN_API void vbn_worker_online(struct vbn_worker *worker)
{
	(void)worker;
	vbn__rcu_resume(true);
}

/* ---- stopping ---- */

VBN_API void vbn_worker_done(struct vbn_worker *worker)
{
	struct run *run = worker->run;

	if (worker->done)
		return;
	worker->done = true;
	if (__atomic_add_fetch(&run->n_done, 1, __ATOMIC_RELAXED) == run->n_workers)
		store_once(&run->stopping, 1);
}

VBN_API bool vbn_worker_stopping(const struct vbn_worker *worker)
{
	return load_once(&worker->run->stopping);
}

/* ---- what it says of itself ---- */

VBN_API struct vbn_worker *vbn_worker_self(void)
{
	return vbn__self;
}

VBN_API int vbn_worker_index(const struct vbn_worker *worker)
{
	return worker->index;
}

uint32_t vbn__worker_number(const struct vbn_worker *worker)
{
	return (uint32_t)worker->number;
}

VBN_API int vbn_worker_core(const struct vbn_worker *worker)
{
	return worker->core;
}

VBN_API int vbn_worker_node(const struct vbn_worker *worker)
{
	return worker->node;
}

VBN_API void vbn_worker_stats(const struct vbn_worker *worker, struct vbn_worker_stats *stats)
{
	/* To ask is to lock, which is no change a caller could see. */
	struct worker_traffic traffic = traffic_of((struct vbn_worker *)worker);

	*stats = (struct vbn_worker_stats){
		.iterations = load_once(&worker->stats.iterations),
		.idle_iterations = load_once(&worker->stats.idle_iterations),
		.messages = traffic.messages,
		.bytes = traffic.bytes,
		.busy_cycles = load_once(&worker->stats.busy_cycles),
		.total_cycles = load_once(&worker->stats.total_cycles),
	};
}

static void report_control(struct mode_report *report)
{
	int core = vbn__control_core();

	if (core == -ESHUTDOWN)
		vbn__mode_add(report, "control_core", "auto", "none",
			"vbn_init() has started no control thread");
	else if (core < 0)
		vbn__mode_add(report, "control_core", "auto", "not pinned",
			"workers leave no core to pin it to");
	else
		vbn__mode_add(report, "control_core", "auto", vbn__mode_number((uint64_t)core, ""),
			"no worker takes it");
}

VBN_API int vbn_worker_modes(const struct vbn_worker *worker, struct vbn_mode *modes, int n)
{
	struct mode_report report = {.modes = modes, .max = n};
	const char *core = "not pinned", *asked = "auto";

	if (worker->core >= 0)
		core = vbn__mode_number((uint64_t)worker->core, "");
	if (!strcmp(worker->why_core, "asked for"))
		asked = core;
	vbn__mode_add(&report, "core", asked, core, "%s", worker->why_core);
	vbn__mode_add(&report, "numa_node", "auto", vbn__mode_number((uint64_t)worker->node, ""),
		worker->core >= 0 ? "the core's" : "where the thread was when it became a worker");
	vbn__idle_modes(worker, &report);
	report_control(&report);
	return report.n;
}
