/* worker_test.c - workers: cores, start, stop, drain, exit, attaching, counters, yielding */

#include "unit.h"

#include "run/run.h"

#include <verbena.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PATIENCE_NS (20ull * 1000 * 1000 * 1000)
#define MANY        1000

/* ---- what is shared between a test and its workers ---- */

static struct {
	int allowed[TOPO_MAX_CPUS];
	int n_allowed;
	int n_looping; /* workers that have polled; atomic */
	int n_exited;  /* exit functions that have run; atomic */
	int n_yields;  /* of workers; atomic */
	int left;      /* what the in_flight hook says; atomic */
	int order[8];  /* exit functions, as they ran */
	int n_order;
} shared;

/* Takes the place of libc's for the whole program: the loop's yields are counted. */
int sched_yield(void)
{
	if (vbn_worker_self())
		__atomic_add_fetch(&shared.n_yields, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_sched_yield);
}

/* For threads that cmocka's asserts cannot leave. */
static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "worker_test: does not hold: %s\n", what);
	abort();
}

static int counted(const int *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void count(int *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL);
}

/* One more of shared.order[]; what does not fit is dropped. */
static void note(int number)
{
	if (shared.n_order < (int)ARRAY_SIZE(shared.order))
		shared.order[shared.n_order++] = number;
}

static void wait_until(const int *counter, int value)
{
	uint64_t deadline = clock_ns() + PATIENCE_NS;

	while (counted(counter) < value) {
		must(clock_ns() < deadline, "the count is reached in time");
		sched_yield();
	}
}

/* As many of the allowed cores as there are, up to n, as a list. */
static int some_cores(int n, char *text, size_t size)
{
	n = min(n, shared.n_allowed);
	vbn__cpulist_format(shared.allowed, n, text, size);
	return n;
}

static int reset(void **state)
{
	struct topo topo;

	(void)state;
	memset(&shared, 0, sizeof(shared));
	unit_catch_log();
	if (vbn__topo_read(NULL, &topo))
		return -1;
	shared.n_allowed = topo.n_cpus;
	for (int i = 0; i < topo.n_cpus; i++)
		shared.allowed[i] = topo.cpus[i];
	return 0;
}

static int reset_and_init(void **state)
{
	return reset(state) || vbn_init(NULL, NULL);
}

static int fini(void **state)
{
	(void)state;
	vbn_fini();
	return 0;
}

/* ---- small workers ---- */

static int poll_idle(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	(void)arg;
	return 0;
}

/* Counts the worker as looping in its first turn. */
static int poll_looping(struct vbn_worker *worker, void *arg)
{
	struct vbn_worker_stats stats;

	(void)arg;
	vbn_worker_stats(worker, &stats);
	if (!stats.iterations)
		count(&shared.n_looping);
	return 0;
}

static int poll_done(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	vbn_worker_done(worker);
	return 0;
}

static void exit_counting(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	must(vbn_worker_self() == worker, "an exit function runs on its worker's thread");
	count(&shared.n_exited);
}

static int set_up_looping(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	return vbn_worker_add_poll(worker, poll_looping, NULL) ||
		vbn_worker_add_exit(worker, exit_counting, NULL);
}

static int set_up_done(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	return vbn_worker_add_poll(worker, poll_done, NULL);
}

static void no_traffic(void *arg, struct worker_traffic *sum)
{
	(void)arg;
	(void)sum;
}

/* ---- cores ---- */

struct seen {
	int index, core, cpu, node;
	char thread[16];
};

static int set_up_seen(struct vbn_worker *worker, void *arg)
{
	struct seen *seen = (struct seen *)arg + vbn_worker_index(worker);

	seen->index = vbn_worker_index(worker);
	seen->core = vbn_worker_core(worker);
	seen->node = vbn_worker_node(worker);
	seen->cpu = sched_getcpu();
	return vbn_worker_add_poll(worker, poll_done, NULL);
}

static int poll_name(struct vbn_worker *worker, void *arg)
{
	struct seen *seen = (struct seen *)arg + vbn_worker_index(worker);
	char wanted[16];

	pthread_getname_np(pthread_self(), seen->thread, sizeof(seen->thread));
	snprintf(wanted, sizeof(wanted), "vbn-w%d", vbn_worker_index(worker));
	if (!strcmp(seen->thread, wanted))
		vbn_worker_done(worker);
	return 0;
}

static int set_up_name(struct vbn_worker *worker, void *arg)
{
	return vbn_worker_add_poll(worker, poll_name, arg);
}

static void workers_run_on_the_cores_asked_for(void **state)
{
	struct seen seen[2] = {0};
	char cores[64];
	int n = some_cores(2, cores, sizeof(cores));

	(void)state;
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_seen, seen), 0);
	for (int i = 0; i < n; i++) {
		assert_int_equal(seen[i].index, i);
		assert_int_equal(seen[i].core, shared.allowed[i]);
		assert_int_equal(seen[i].cpu, shared.allowed[i]);
		assert_true(seen[i].node >= 0);
	}
}

static void cores_are_taken_in_the_order_written(void **state)
{
	struct seen seen[2] = {0};
	char cores[64];

	(void)state;
	if (shared.n_allowed < 2) {
		snprintf(cores, sizeof(cores), "%d", shared.allowed[0]);
		assert_int_equal(
			vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_seen, seen), 0);
		return;
	}
	snprintf(cores, sizeof(cores), "%d,%d", shared.allowed[1], shared.allowed[0]);
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_seen, seen), 0);
	assert_int_equal(seen[0].cpu, shared.allowed[1]);
	assert_int_equal(seen[1].cpu, shared.allowed[0]);
}

static void threads_have_names(void **state)
{
	struct seen seen[2] = {0};
	char cores[64];

	(void)state;
	some_cores(2, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_name, seen), 0);
	assert_string_equal(seen[0].thread, "vbn-w0");
}

static int set_up_counting(struct vbn_worker *worker, void *arg)
{
	count(arg);
	return vbn_worker_add_poll(worker, poll_done, NULL);
}

static void default_is_every_allowed_core_but_one(void **state)
{
	int n = 0;

	(void)state;
	assert_int_equal(vbn_run(NULL, set_up_counting, &n), 0);
	assert_int_equal(n, max(shared.n_allowed - 1, 1));
}

static void cores_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *cores, *words;
		int ret;
	} bad[] = {
		{"x", "not a number", -EINVAL},
		{"", "empty", -EINVAL},
		{"0,0", "listed twice", -EINVAL},
		{"0-", "range", -EINVAL},
		{"99999", "maximum", -EINVAL},
		{"1023", "core 1023", -EPERM},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int n = 0;

		assert_int_equal(
			vbn_run(&(struct vbn_run_conf){.cores = bad[i].cores}, set_up_counting, &n),
			bad[i].ret);
		assert_logged(bad[i].words);
		assert_int_equal(n, 0);
	}
}

/* ---- start ---- */

static int set_up_last_fails(struct vbn_worker *worker, void *arg)
{
	const int *n = arg;
	uint64_t deadline = clock_ns() + PATIENCE_NS;

	vbn_worker_add_poll(worker, poll_looping, NULL);
	vbn_worker_add_exit(worker, exit_counting, NULL);
	if (vbn_worker_index(worker) == *n - 1)
		return -ENXIO;
	/* a set-up that waits for another one's learns that it waits in vain */
	while (!vbn_worker_stopping(worker) && clock_ns() < deadline)
		sched_yield();
	return vbn_worker_stopping(worker) ? 0 : -ETIMEDOUT;
}

static void failed_set_up_winds_up_every_worker(void **state)
{
	char cores[64];
	int n = some_cores(2, cores, sizeof(cores));

	(void)state;
	assert_int_equal(
		vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_last_fails, &n), -ENXIO);
	assert_int_equal(shared.n_exited, n);
	assert_int_equal(shared.n_looping, 0);
	/* and a later run is none the worse */
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_done, NULL), 0);
}

/* A stack that no address space has room for: every pthread_create() fails. */
static void set_stack_size(size_t size)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, size);
	assert_int_equal(pthread_setattr_default_np(&attr), 0);
	pthread_attr_destroy(&attr);
}

static size_t stack_size(void)
{
	pthread_attr_t attr;
	size_t size;

	pthread_getattr_default_np(&attr);
	pthread_attr_getstacksize(&attr, &size);
	pthread_attr_destroy(&attr);
	return size;
}

static void threads_that_cannot_be_had_are_no_run(void **state)
{
	size_t size = stack_size();
	int ret, of_init, n = 0;

	(void)state;
	set_stack_size(1ull << 47);
	ret = vbn_run(NULL, set_up_counting, &n);
	of_init = vbn_init(NULL, NULL);
	set_stack_size(size);
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(of_init, -EAGAIN);
	assert_logged("worker 0: cannot be started");
	assert_logged("control thread: cannot be started");
	assert_int_equal(n, 0);
	assert_int_equal(vbn_run(NULL, set_up_counting, &n), 0);
}

static int set_up_run_within(struct vbn_worker *worker, void *arg)
{
	*(int *)arg = vbn_run(NULL, set_up_done, NULL);
	return vbn_worker_add_poll(worker, poll_done, NULL);
}

static void one_run_at_a_time(void **state)
{
	char cores[64];
	int inner = 0;

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(
		vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_run_within, &inner), 0);
	assert_int_equal(inner, -EBUSY);
	assert_logged("another one is under way");
}

/* ---- stop ---- */

static int set_up_stop(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	vbn_stop();
	return vbn_worker_add_exit(worker, exit_counting, NULL);
}

static void a_stop_during_set_up_is_not_lost(void **state)
{
	char cores[64];
	int n = some_cores(2, cores, sizeof(cores));

	(void)state;
	vbn_stop(); /* with no run under way: forgotten */
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_stop, NULL), 0);
	assert_int_equal(shared.n_exited, n);
}

struct helper {
	pthread_t thread;
	int n_workers;
	int signal; /* 0: vbn_stop() */
};

/* Stops the run, once every worker loops, from a thread of its own. */
static void *helper_main(void *arg)
{
	const struct helper *helper = arg;

	wait_until(&shared.n_looping, helper->n_workers);
	if (helper->signal)
		raise(helper->signal);
	else
		vbn_stop();
	return NULL;
}

static int run_and_stop(int signal, enum vbn_switch signals)
{
	struct helper helper = {.signal = signal};
	char cores[64];
	int ret;

	helper.n_workers = some_cores(2, cores, sizeof(cores));
	assert_int_equal(pthread_create(&helper.thread, NULL, helper_main, &helper), 0);
	ret = vbn_run(
		&(struct vbn_run_conf){.cores = cores, .signals = signals}, set_up_looping, NULL);
	pthread_join(helper.thread, NULL);
	assert_int_equal(shared.n_exited, helper.n_workers);
	return ret;
}

static void stops_by_call(void **state)
{
	(void)state;
	assert_int_equal(run_and_stop(0, VBN_AUTO), 0);
}

static void stops_when_all_are_done(void **state)
{
	char cores[64];

	(void)state;
	some_cores(2, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_done, NULL), 0);
}

static volatile sig_atomic_t n_caught;

static void catch (int signal)
{
	(void)signal;
	n_caught++;
}

static void stops_by_signal_and_gives_it_back(void **state)
{
	struct sigaction before, after;

	(void)state;
	n_caught = 0;
	sigaction(SIGINT, &(struct sigaction){.sa_handler = catch}, &before);
	assert_int_equal(run_and_stop(SIGINT, VBN_AUTO), SIGINT);
	assert_int_equal(n_caught, 0);
	sigaction(SIGINT, &before, &after);
	assert_ptr_equal(after.sa_handler, catch);
	memset(&shared.n_looping, 0, sizeof(shared.n_looping));
	shared.n_exited = 0;
	assert_int_equal(run_and_stop(SIGTERM, VBN_ON), SIGTERM);
}

static void catch_and_stop(int signal)
{
	catch (signal);
	vbn_stop();
}

static void signals_stay_the_programs_where_off(void **state)
{
	struct sigaction before;

	(void)state;
	n_caught = 0;
	sigaction(SIGINT, &(struct sigaction){.sa_handler = catch_and_stop}, &before);
	assert_int_equal(run_and_stop(SIGINT, VBN_OFF), 0);
	assert_int_equal(n_caught, 1);
	sigaction(SIGINT, &before, NULL);
}

static uint32_t never_done(void *arg)
{
	(void)arg;
	return 1;
}

static int poll_tell(struct vbn_worker *worker, void *arg)
{
	const int *fd = arg;

	if (!counted(&shared.n_looping)) {
		count(&shared.n_looping);
		must(write(*fd, "", 1) == 1, "the parent can be told");
	}
	(void)worker;
	return 0;
}

static int set_up_stuck(struct vbn_worker *worker, void *arg)
{
	return vbn__worker_add_port(worker, never_done, no_traffic, arg) ||
		vbn_worker_add_poll(worker, poll_tell, arg);
}

/* A run that will not drain; the second SIGINT must still end it, the way it ends any program. Not
 * one that comes at once: timeout(1) sends its signal to a process and to its group. */
static void second_signal_gets_out(void **state)
{
	uint64_t first, deadline = clock_ns() + PATIENCE_NS;
	char cores[64], byte;
	int fds[2], status = 0;
	pid_t pid;

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = 3600ull * 1000000000},
			set_up_stuck, &fds[1]);
		_exit(99);
	}
	assert_true(pid > 0);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	first = clock_ns();
	while (!waitpid(pid, &status, WNOHANG)) {
		assert_true(clock_ns() < deadline);
		kill(pid, SIGINT);
		sched_yield();
	}
	close(fds[0]);
	close(fds[1]);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGINT);
	assert_true(clock_ns() - first >= 100 * 1000 * 1000);
}

/* ---- drain ---- */

/* One operation completes each time it is asked. */
static uint32_t one_less(void *arg)
{
	int *left = arg;

	return (uint32_t)(*left > 0 ? (*left)-- : 0);
}

static void exit_sees_left(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	note(*(int *)arg);
}

static int set_up_in_flight(struct vbn_worker *worker, void *arg)
{
	return vbn__worker_add_port(worker, one_less, no_traffic, arg) ||
		vbn_worker_add_exit(worker, exit_sees_left, arg) ||
		vbn_worker_add_poll(worker, poll_done, NULL);
}

static void drain_waits_for_what_is_in_flight(void **state)
{
	char cores[64];
	int left = MANY;

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = PATIENCE_NS},
				 set_up_in_flight, &left),
		0);
	assert_int_equal(left, 0);
	assert_int_equal(shared.n_order, 1);
	assert_int_equal(shared.order[0], 0);
	assert_null(strstr(unit_log, "in flight"));
}

static uint32_t three(void *arg)
{
	(void)arg;
	return 3;
}

static int set_up_never_drained(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	return vbn__worker_add_port(worker, three, no_traffic, NULL) ||
		vbn_worker_add_exit(worker, exit_counting, NULL) ||
		vbn_worker_add_poll(worker, poll_done, NULL);
}

static void drain_gives_up_when_its_time_is_over(void **state)
{
	const uint64_t drain_ns = 20 * 1000 * 1000;
	uint64_t start = clock_ns();
	char cores[64];

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = drain_ns},
				 set_up_never_drained, NULL),
		0);
	assert_true(clock_ns() - start >= drain_ns);
	assert_int_equal(shared.n_exited, 1);
	assert_logged("in flight: 3, of which worker 0 has 3");
}

static uint32_t shared_left(void *arg)
{
	(void)arg;
	return (uint32_t)counted(&shared.left);
}

/* Worker 0 receives what the last worker has in flight: one message for each turn, while stopping.
 */
static int poll_receive(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	vbn_worker_done(worker);
	if (!vbn_worker_stopping(worker) || !counted(&shared.left))
		return 0;
	__atomic_sub_fetch(&shared.left, 1, __ATOMIC_ACQ_REL);
	return 1;
}

static void exit_nothing_left(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	(void)arg;
	if (!counted(&shared.left))
		count(&shared.n_exited);
}

static int set_up_pair(struct vbn_worker *worker, void *arg)
{
	const int *n = arg;
	int ret = vbn_worker_add_exit(worker, exit_nothing_left, NULL);

	if (!ret && vbn_worker_index(worker) == *n - 1)
		ret = vbn__worker_add_port(worker, shared_left, no_traffic, NULL);
	if (!ret)
		ret = vbn_worker_add_poll(
			worker, vbn_worker_index(worker) ? poll_done : poll_receive, NULL);
	return ret;
}

static void no_worker_exits_while_another_drains(void **state)
{
	char cores[64];
	int n = some_cores(2, cores, sizeof(cores));

	(void)state;
	shared.left = MANY;
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = PATIENCE_NS},
				 set_up_pair, &n),
		0);
	assert_int_equal(shared.left, 0);
	assert_int_equal(shared.n_exited, n);
}

/* A message that a worker holds and nobody has in flight: the run must go on until it is polled. */
static int poll_backlog(struct vbn_worker *worker, void *arg)
{
	int *backlog = arg;

	vbn_worker_done(worker);
	if (!vbn_worker_stopping(worker) || !*backlog)
		return 0;
	(*backlog)--;
	return 1;
}

static int set_up_backlog(struct vbn_worker *worker, void *arg)
{
	return vbn_worker_add_poll(worker, poll_backlog, arg);
}

static void drain_polls_what_has_arrived(void **state)
{
	char cores[64];
	int backlog = MANY;

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = PATIENCE_NS},
				 set_up_backlog, &backlog),
		0);
	assert_int_equal(backlog, 0);
}

/* ---- exit ---- */

static void exit_noting(struct vbn_worker *worker, void *arg)
{
	must(vbn_worker_self() == worker, "an exit function runs on its worker's thread");
	note(*(int *)arg);
}

static int set_up_exits(struct vbn_worker *worker, void *arg)
{
	int *numbers = arg;
	int ret = 0;

	for (int i = 0; i < 6 && !ret; i++)
		ret = vbn_worker_add_exit(worker, exit_noting, &numbers[i]);
	if (!ret)
		ret = vbn__worker_add_last_exit(worker, exit_noting, &numbers[7]);
	if (!ret)
		ret = vbn_worker_add_exit(worker, exit_noting, &numbers[6]);
	return ret || vbn_worker_add_poll(worker, poll_done, NULL);
}

static void exit_functions_run_in_reverse(void **state)
{
	int numbers[8] = {1, 2, 3, 4, 5, 6, 7, 0};
	char cores[64];

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_exits, numbers), 0);
	assert_int_equal(shared.n_order, 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(shared.order[i], 7 - i); /* a room's own, 0, is the last of all */
}

/* ---- the iteration ---- */

static int poll_noting(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	note(*(int *)arg);
	return *(int *)arg;
}

static void flush_noting(void *arg)
{
	note(*(int *)arg);
}

static void flush_follows_every_poll(void **state)
{
	int first = 2, second = 3, flush = 9;
	struct vbn_worker *worker;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn__worker_add_flush(worker, flush_noting, &flush), 0);
	assert_int_equal(vbn_worker_add_poll(worker, poll_noting, &first), 0);
	assert_int_equal(vbn_worker_add_poll(worker, poll_noting, &second), 0);
	assert_int_equal(vbn_worker_poll(worker), 5);
	assert_int_equal(shared.n_order, 3);
	assert_int_equal(shared.order[0], 2);
	assert_int_equal(shared.order[1], 3);
	assert_int_equal(shared.order[2], 9);
	vbn__worker_remove(worker, &flush);
	assert_int_equal(vbn_worker_poll(worker), 5);
	assert_int_equal(shared.n_order, 5);
	first = second = 0; /* or they would report work until the drain time is over */
	vbn_worker_detach(worker);
}

static void traffic_of(void *arg, struct worker_traffic *sum)
{
	const struct worker_traffic *traffic = arg;

	sum->messages += traffic->messages;
	sum->bytes += traffic->bytes;
}

static uint32_t none(void *arg)
{
	(void)arg;
	return 0;
}

static int poll_number(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	return *(int *)arg;
}

static int find_idle(const char *kind, const char *object, const char *name, const char *help,
	uint64_t value, void *arg)
{
	(void)help;
	if (!strcmp(kind, "worker") && !strcmp(object, "0") && !strcmp(name, "idle_iterations"))
		*(uint64_t *)arg = value;
	return 0;
}

static void stats_count_iterations_and_traffic(void **state)
{
	struct worker_traffic port = {.messages = 7, .bytes = 448},
			      other = {.messages = 1, .bytes = 2};
	struct vbn_worker_stats stats;
	struct vbn_worker *worker;
	uint64_t idle = 0;
	int work = 1;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn_worker_add_poll(worker, poll_number, &work), 0);
	assert_int_equal(vbn__worker_add_port(worker, none, traffic_of, &port), 0);
	assert_int_equal(vbn__worker_add_port(worker, none, traffic_of, &other), 0);
	for (int i = 0; i < 5; i++)
		vbn_worker_poll(worker);
	work = 0;
	for (int i = 0; i < 3; i++)
		vbn_worker_poll(worker);
	vbn_worker_stats(worker, &stats);
	assert_int_equal(stats.iterations, 8);
	assert_int_equal(stats.idle_iterations, 3);
	assert_int_equal(stats.messages, 8);
	assert_int_equal(stats.bytes, 450);
	assert_true(stats.busy_cycles > 0);
	assert_true(stats.total_cycles > stats.busy_cycles);
	assert_int_equal(vbn_counters_each(find_idle, &idle), 0);
	assert_int_equal(idle, 3);
	/* what a port has carried stays counted when it goes */
	vbn__worker_remove(worker, &port);
	vbn_worker_stats(worker, &stats);
	assert_int_equal(stats.messages, 8);
	vbn_worker_detach(worker);
}

/* ---- the application's own thread ---- */

static void attached_thread_is_a_worker(void **state)
{
	struct vbn_worker *worker = NULL, *second;
	cpu_set_t before, after;
	int left = MANY;

	(void)state;
	sched_getaffinity(0, sizeof(before), &before);
	assert_null(vbn_worker_self());
	assert_int_equal(
		vbn_worker_attach(
			&(struct vbn_worker_conf){.core = VBN_NUM((uint32_t)shared.allowed[0])},
			&worker),
		0);
	assert_ptr_equal(vbn_worker_self(), worker);
	assert_int_equal(vbn_worker_index(worker), 0);
	assert_int_equal(vbn_worker_core(worker), shared.allowed[0]);
	assert_int_equal(sched_getcpu(), shared.allowed[0]);
	assert_int_equal(vbn_worker_attach(NULL, &second), -EALREADY);
	assert_int_equal(vbn__worker_add_port(worker, one_less, no_traffic, &left), 0);
	assert_int_equal(vbn_worker_add_exit(worker, exit_counting, NULL), 0);
	assert_int_equal(vbn_worker_poll(worker), 0);
	assert_false(vbn_worker_stopping(worker));
	vbn_worker_detach(worker);
	assert_int_equal(left, 0);
	assert_int_equal(shared.n_exited, 1);
	assert_null(vbn_worker_self());
	sched_getaffinity(0, sizeof(after), &after);
	assert_true(CPU_EQUAL(&before, &after));
}

static void attaching_to_a_core_not_allowed_is_refused(void **state)
{
	struct vbn_worker *worker;

	(void)state;
	assert_int_equal(
		vbn_worker_attach(&(struct vbn_worker_conf){.core = VBN_NUM(1023)}, &worker),
		-EPERM);
	assert_logged("core 1023");
	assert_int_equal(
		vbn_worker_attach(&(struct vbn_worker_conf){.core = VBN_NUM(UINT32_MAX)}, &worker),
		-EPERM);
	assert_null(vbn_worker_self());
}

static void *attach_main(void *arg)
{
	struct vbn_worker *worker;

	if (vbn_worker_attach(NULL, &worker))
		return NULL;
	*(int *)arg = vbn_worker_index(worker);
	vbn_worker_poll(worker);
	vbn_worker_detach(worker);
	return arg;
}

static void attached_threads_have_their_own_indices(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;
	void *result;
	int index = -1;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(pthread_create(&thread, NULL, attach_main, &index), 0);
	pthread_join(thread, &result);
	assert_non_null(result);
	assert_int_equal(index, 1);
	vbn_worker_detach(worker);
}

static void *detach_main(void *arg)
{
	vbn_worker_detach(arg);
	return NULL;
}

static void another_threads_detach_is_refused(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(pthread_create(&thread, NULL, detach_main, worker), 0);
	pthread_join(thread, NULL);
	assert_logged("cannot be detached here");
	assert_int_equal(vbn_worker_poll(worker), 0);
	vbn_worker_detach(worker);
}

static int do_nothing(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	(void)arg;
	return 0;
}

static void *add_main(void *arg)
{
	assert_int_equal(vbn_worker_add_poll(arg, do_nothing, NULL), -EPERM);
	assert_int_equal(vbn_worker_add_exit(arg, NULL, NULL), -EPERM);
	return NULL;
}

/* A NULL among them was called once, in the loop. */
static void what_cannot_be_called_is_refused(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_add_poll(NULL, do_nothing, NULL), -EPERM);
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn_worker_add_poll(worker, NULL, NULL), -EINVAL);
	assert_int_equal(vbn_worker_add_exit(worker, NULL, NULL), -EINVAL);
	assert_logged("it is NULL; name one");
	assert_int_equal(pthread_create(&thread, NULL, add_main, worker), 0);
	pthread_join(thread, NULL);
	assert_logged("on its own thread");
	assert_int_equal(vbn_worker_poll(worker), 0);
	vbn_worker_detach(worker);
}

/* ---- yielding, and what the modes say ---- */

static void find_mode(const struct vbn_worker *worker, const char *name, struct vbn_mode *found)
{
	struct vbn_mode modes[8];
	int n = vbn_worker_modes(worker, modes, ARRAY_SIZE(modes));

	memset(found, 0, sizeof(*found));
	for (int i = 0; i < min(n, (int)ARRAY_SIZE(modes)); i++)
		if (!strcmp(modes[i].name, name))
			*found = modes[i];
}

struct modes_seen {
	struct vbn_mode idle, control, core;
};

/* Runs some idle turns, then is done. */
static int poll_some(struct vbn_worker *worker, void *arg)
{
	struct vbn_worker_stats stats;

	(void)arg;
	vbn_worker_stats(worker, &stats);
	if (stats.iterations >= MANY)
		vbn_worker_done(worker);
	return 0;
}

static int set_up_modes(struct vbn_worker *worker, void *arg)
{
	struct modes_seen *seen = arg;

	if (!vbn_worker_index(worker)) {
		find_mode(worker, "idle", &seen->idle);
		find_mode(worker, "control_core", &seen->control);
		find_mode(worker, "core", &seen->core);
	}
	return vbn_worker_add_poll(worker, poll_some, NULL);
}

/* Narrows this thread to its first core, and runs one worker. */
static void run_on_one_core(enum vbn_switch idle_yield, struct modes_seen *seen)
{
	cpu_set_t before, one;

	CPU_ZERO(&one);
	CPU_SET((size_t)shared.allowed[0], &one);
	sched_getaffinity(0, sizeof(before), &before);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(
		vbn_run(&(struct vbn_run_conf){.idle_yield = idle_yield}, set_up_modes, seen), 0);
	sched_setaffinity(0, sizeof(before), &before);
}

static void yields_where_workers_take_every_core(void **state)
{
	struct modes_seen seen;

	(void)state;
	run_on_one_core(VBN_AUTO, &seen);
	assert_string_equal(seen.idle.requested, "auto");
	assert_string_equal(seen.idle.effective, "yield");
	assert_true(strlen(seen.idle.why) > 0);
	assert_true(counted(&shared.n_yields) >= MANY);
}

static void never_yields_where_off(void **state)
{
	struct modes_seen seen;

	(void)state;
	run_on_one_core(VBN_OFF, &seen);
	assert_string_equal(seen.idle.requested, "off");
	assert_string_equal(seen.idle.effective, "busy poll");
	assert_int_equal(counted(&shared.n_yields), 0);
}

static void yields_where_on(void **state)
{
	struct modes_seen seen;

	(void)state;
	run_on_one_core(VBN_ON, &seen);
	assert_string_equal(seen.idle.requested, "on");
	assert_string_equal(seen.idle.effective, "yield");
	assert_true(counted(&shared.n_yields) >= MANY);
}

/* On a machine with one core the rule asks for the other answer. */
static void busy_polls_where_a_core_is_left(void **state)
{
	struct modes_seen seen;
	char cores[64];

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_modes, &seen), 0);
	assert_string_equal(seen.idle.effective, shared.n_allowed > 1 ? "busy poll" : "yield");
	assert_string_equal(seen.core.requested, cores);
	assert_string_equal(seen.core.effective, cores);
}

static void control_thread_keeps_off_workers_cores(void **state)
{
	struct modes_seen seen;
	char wanted[16], cores[64];

	(void)state;
	some_cores(1, cores, sizeof(cores));
	assert_int_equal(vbn__control_core(), -1);
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_modes, &seen), 0);
	snprintf(wanted, sizeof(wanted), "%d", shared.allowed[min(1, shared.n_allowed - 1)]);
	assert_string_equal(seen.control.effective, shared.n_allowed > 1 ? wanted : "not pinned");
	assert_int_equal(vbn__control_core(), -1);
}

static void control_core_is_said_to_be_missing(void **state)
{
	struct vbn_worker *worker;
	struct vbn_mode mode;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	find_mode(worker, "control_core", &mode);
	assert_string_equal(mode.effective, "none");
	assert_int_equal(vbn_worker_modes(worker, NULL, 0), 5);
	vbn_worker_add_poll(worker, poll_idle, NULL);
	vbn_worker_detach(worker);
}

#define alone(test)        cmocka_unit_test_setup(test, reset)
#define with_control(test) cmocka_unit_test_setup_teardown(test, reset_and_init, fini)

int main(void)
{
	const struct CMUnitTest tests[] = {
		alone(second_signal_gets_out), /* first: it forks, while there is one thread */
		with_control(workers_run_on_the_cores_asked_for),
		alone(cores_are_taken_in_the_order_written),
		alone(threads_have_names),
		with_control(default_is_every_allowed_core_but_one),
		alone(cores_that_cannot_be_are_refused),
		alone(failed_set_up_winds_up_every_worker),
		alone(threads_that_cannot_be_had_are_no_run),
		alone(one_run_at_a_time),
		alone(a_stop_during_set_up_is_not_lost),
		alone(stops_by_call),
		alone(stops_when_all_are_done),
		alone(stops_by_signal_and_gives_it_back),
		alone(signals_stay_the_programs_where_off),
		alone(drain_waits_for_what_is_in_flight),
		alone(drain_gives_up_when_its_time_is_over),
		alone(no_worker_exits_while_another_drains),
		alone(drain_polls_what_has_arrived),
		alone(exit_functions_run_in_reverse),
		alone(flush_follows_every_poll),
		alone(stats_count_iterations_and_traffic),
		alone(attached_thread_is_a_worker),
		alone(attaching_to_a_core_not_allowed_is_refused),
		alone(attached_threads_have_their_own_indices),
		alone(another_threads_detach_is_refused),
		alone(what_cannot_be_called_is_refused),
		alone(yields_where_workers_take_every_core),
		alone(never_yields_where_off),
		alone(yields_where_on),
		alone(busy_polls_where_a_core_is_left),
		with_control(control_thread_keeps_off_workers_cores),
		alone(control_core_is_said_to_be_missing),
	};

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
