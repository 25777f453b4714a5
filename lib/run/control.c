/* control.c - the control thread: system calls for everyone else, one at a time, and watched file
 * descriptors
 *
 * Calls wait in a list under a lock; the thread takes them in order and wakes each caller by a
 * condition of its own. Watches belong to the control thread alone: adding and removing one is a
 * call like any other, so neither can meet a running one.
 */

#include "run/rcu.h"
#include "run/run.h"

#include <numaif.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NODE_BITS 1024 /* the most nodes a kernel can be built for */
#define WORD_BITS (8 * sizeof(unsigned long))

struct call {
	int (*fn)(void *arg);
	void *arg;
	int node;
	int result;
	bool done;
	pthread_cond_t finished;
	struct call *next;
};

struct watch {
	int fd;
	void (*fn)(int fd, void *arg);
	void *arg;
	struct watch *next;
};

/* The memory policy that the thread came with, to go back to, and what holds now. */
struct policy {
	int mode;
	unsigned long mask[NODE_BITS / WORD_BITS];
	bool known;
	int node; /* preferred now; -1: as it came */
};

static struct {
	pthread_mutex_t lock;
	/* under the lock */
	bool open;        /* calls are taken */
	int core;         /* pinned to; -1: not pinned */
	cpu_set_t cores;  /* where it runs */
	pthread_t beside; /* runs there, too */
	bool has_beside;
	uint32_t n_waiting; /* calls that have not begun */
	struct call *first, **end;
	/* constant while the thread lives */
	pthread_t thread;
	int epoll_fd, wake_fd;
	cpu_set_t allowed;
	/* the control thread's own */
	struct watch *watches;
	struct policy policy;
	void (*at_stop)(void);
	uint64_t counts[2];
	uint64_t busy_since; /* clock_ns(); 0: it waits for something to do; read by others */
} control = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { COUNT_CALLS, COUNT_EVENTS };

static const struct counter_name counter_names[] = {
	[COUNT_CALLS] = {"calls", "calls that were made on the control thread for others"},
	[COUNT_EVENTS] = {"events", "events of descriptors that the control thread watches"},
};
static_assert(ARRAY_SIZE(counter_names) == ARRAY_SIZE(control.counts), "each count has its name");

/* Whoever looks from outside sees here whether a device keeps the control thread. */
static void describe(const struct counter_set *set, struct fact_list *list)
{
	const uint64_t since = load_once(&control.busy_since), now = clock_ns();

	(void)set;
	vbn__fact_gauge(list, "busy_ms", "milliseconds that it has been at one call or event",
		since && now > since ? (now - since) / 1000000 : 0);
	vbn__fact_gauge(list, "waiting", "calls that wait for it", load_once(&control.n_waiting));
}

static struct counter_set counters = {.kind = "control",
	.object = "process",
	.names = counter_names,
	.values = control.counts,
	.n = ARRAY_SIZE(counter_names),
	.describe = describe};

static _Thread_local bool on_control_thread;
static _Thread_local uint64_t n_waits;

void vbn__block_signals(sigset_t *before)
{
	static const int kept[] = {
		SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		sigdelset(&set, kept[i]);
	pthread_sigmask(SIG_BLOCK, &set, before);
}

/* ---- the thread ---- */

static void policy_save(struct policy *policy)
{
	memset(policy, 0, sizeof(*policy));
	policy->node = -1;
	policy->known = !get_mempolicy(&policy->mode, policy->mask, NODE_BITS + 1, NULL, 0);
}

/* A kernel without NUMA and a container that forbids it are as good as one node: no failure is
 * reported. */
static void policy_prefer(struct policy *policy, int node)
{
	unsigned long mask[NODE_BITS / WORD_BITS] = {0};

	if (!policy->known || node == policy->node || node >= NODE_BITS)
		return;
	policy->node = node;
	if (node < 0) {
		set_mempolicy(policy->mode, policy->mask, NODE_BITS + 1);
		return;
	}
	mask[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
	set_mempolicy(MPOL_PREFERRED, mask, NODE_BITS + 1);
}

static int call_on_node(int node, int (*fn)(void *arg), void *arg)
{
	int before = control.policy.node;
	int result;

	policy_prefer(&control.policy, node);
	result = fn(arg);
	policy_prefer(&control.policy, before);
	return result;
}

/* Runs what is waiting. False: the thread is to end, and nothing is waiting. */
static bool run_calls(void)
{
	struct call *call;
	bool open;

	pthread_mutex_lock(&control.lock);
	while ((call = control.first)) {
		control.first = call->next;
		if (!control.first)
			control.end = &control.first;
		store_once(&control.n_waiting, control.n_waiting - 1);
		pthread_mutex_unlock(&control.lock);
		store_once(&control.busy_since, clock_ns());
		call->result = call_on_node(call->node, call->fn, call->arg);
		store_once(&control.busy_since, 0);
		count_add(&control.counts[COUNT_CALLS], 1);
		pthread_mutex_lock(&control.lock);
		call->done = true;
		pthread_cond_signal(&call->finished);
	}
	open = control.open;
	pthread_mutex_unlock(&control.lock);
	return open;
}

/* One event a time: a watch that its own function, or the call before, removes can have no event
 * left to come. */
static void wait_for_event(void)
{
	struct epoll_event event;
	struct watch *watch;
	uint64_t count;

	if (epoll_wait(control.epoll_fd, &event, 1, -1) != 1)
		return;
	watch = event.data.ptr;
	if (watch) {
		store_once(&control.busy_since, clock_ns());
		watch->fn(watch->fd, watch->arg);
		store_once(&control.busy_since, 0);
		count_add(&control.counts[COUNT_EVENTS], 1);
	} else if (read(control.wake_fd, &count, sizeof(count)) < 0) {
		return; /* woken already */
	}
}

static void *control_main(void *arg)
{
	(void)arg;
	on_control_thread = true;
	policy_save(&control.policy);
	while (run_calls())
		wait_for_event();
	return NULL;
}

/* ---- start and stop ---- */

static void wake(void)
{
	uint64_t one = 1;

	if (write(control.wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is readable all the same */
}

static int make_fds(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int ret;

	control.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (control.epoll_fd < 0)
		return -errno;
	control.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (control.wake_fd < 0) {
		ret = -errno;
		goto close_epoll;
	}
	if (epoll_ctl(control.epoll_fd, EPOLL_CTL_ADD, control.wake_fd, &event)) {
		ret = -errno;
		goto close_wake;
	}
	return 0;

close_wake:
	close(control.wake_fd);
close_epoll:
	close(control.epoll_fd);
	return ret;
}

/* Under the lock, so that the thread finds `open` set. */
static int start_thread(void)
{
	sigset_t before;
	int ret;

	pthread_mutex_lock(&control.lock);
	vbn__block_signals(&before);
	ret = pthread_create(&control.thread, NULL, control_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!ret)
		pthread_setname_np(control.thread, "vbn-control");
	control.open = !ret;
	pthread_mutex_unlock(&control.lock);
	return -ret;
}

static bool is_open(void)
{
	bool open;

	pthread_mutex_lock(&control.lock);
	open = control.open;
	pthread_mutex_unlock(&control.lock);
	return open;
}

int vbn__control_start(void)
{
	int ret;

	if (is_open())
		return -EALREADY;
	if (pthread_getaffinity_np(pthread_self(), sizeof(control.allowed), &control.allowed))
		CPU_ZERO(&control.allowed);
	control.core = -1;
	control.cores = control.allowed;
	control.n_waiting = 0;
	control.first = NULL;
	control.end = &control.first;
	ret = make_fds();
	if (ret)
		return fail(-ret,
			"control thread: cannot be started: its descriptors could not be made (%s); raise the "
			"limit on open files (ulimit -n)",
			strerror(-ret));
	ret = start_thread();
	if (ret) {
		close(control.wake_fd);
		close(control.epoll_fd);
		return fail(-ret,
			"control thread: cannot be started: the system gave no thread (%s); raise the limit on "
			"processes (ulimit -u) or free memory",
			strerror(-ret));
	}
	vbn__counters_add(&counters);
	return 0;
}

void vbn__control_at_stop(void (*fn)(void))
{
	control.at_stop = fn;
}

static int run_at_stop(void *arg)
{
	void (*fn)(void) = control.at_stop;

	(void)arg;
	control.at_stop = NULL;
	if (fn)
		fn();
	return 0;
}

void vbn__control_stop(void)
{
	struct watch *watch;

	if (!is_open())
		return;
	vbn__counters_remove(&counters);
	vbn__control_call(-1, run_at_stop, NULL);
	pthread_mutex_lock(&control.lock);
	control.open = false;
	wake();
	pthread_mutex_unlock(&control.lock);
	pthread_join(control.thread, NULL);
	while ((watch = control.watches)) {
		control.watches = watch->next;
		free(watch);
	}
	close(control.wake_fd);
	close(control.epoll_fd);
}

/* ---- calls ---- */

/* Queues the call and waits for its end. */
static int submit(struct call *call)
{
	int ret = 0;

	pthread_mutex_lock(&control.lock);
	if (!control.open) {
		ret = -ESHUTDOWN;
		goto unlock;
	}
	*control.end = call;
	control.end = &call->next;
	store_once(&control.n_waiting, control.n_waiting + 1);
	wake();
	while (!call->done)
		pthread_cond_wait(&call->finished, &control.lock);
unlock:
	pthread_mutex_unlock(&control.lock);
	return ret;
}

int vbn__control_call(int node, int (*fn)(void *arg), void *arg)
{
	struct call call = {.fn = fn, .arg = arg, .node = node};
	bool paused;
	int ret;

	if (on_control_thread)
		return call_on_node(node, fn, arg);
	n_waits++;
	pthread_cond_init(&call.finished, NULL);
	paused = vbn__rcu_pause(); /* no grace period waits for who waits */
	ret = submit(&call);
	vbn__rcu_resume(paused);
	pthread_cond_destroy(&call.finished);
	return ret ? ret : call.result;
}

uint64_t vbn__control_waits(void)
{
	return n_waits;
}

/* ---- watches ---- */

static int watch_add(void *arg)
{
	const struct watch *asked = arg;
	struct watch *watch = malloc(sizeof(*watch));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
	int ret;

	if (!watch)
		return -ENOMEM;
	*watch = *asked;
	if (epoll_ctl(control.epoll_fd, EPOLL_CTL_ADD, watch->fd, &event)) {
		ret = -errno;
		free(watch);
		return ret;
	}
	watch->next = control.watches;
	control.watches = watch;
	return 0;
}

static int watch_remove(void *arg)
{
	const int *fd = arg;

	for (struct watch **at = &control.watches; *at; at = &(*at)->next) {
		struct watch *watch = *at;

		if (watch->fd != *fd)
			continue;
		*at = watch->next;
		epoll_ctl(control.epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
		free(watch);
		return 0;
	}
	return -ENOENT;
}

int vbn__control_watch(int fd, void (*fn)(int fd, void *arg), void *arg)
{
	return vbn__control_call(-1, watch_add, &(struct watch){.fd = fd, .fn = fn, .arg = arg});
}

void vbn__control_unwatch(int fd)
{
	vbn__control_call(-1, watch_remove, &fd);
}

/* ---- where it runs ---- */

static int lowest_free(const cpu_set_t *taken)
{
	for (int core = 0; core < CPU_SETSIZE; core++)
		if (CPU_ISSET((size_t)core, &control.allowed) && !CPU_ISSET((size_t)core, taken))
			return core;
	return -1;
}

/* Where neither can be, both stay where they were. */
static void follow(void)
{
	if (control.has_beside)
		pthread_setaffinity_np(control.beside, sizeof(control.cores), &control.cores);
}

void vbn__control_beside(const pthread_t *thread)
{
	pthread_mutex_lock(&control.lock);
	control.has_beside = thread != NULL;
	if (thread)
		control.beside = *thread;
	follow();
	pthread_mutex_unlock(&control.lock);
}

void vbn__control_keep_off(const cpu_set_t *taken)
{
	cpu_set_t set;
	int core;

	pthread_mutex_lock(&control.lock);
	if (!control.open)
		goto unlock;
	core = CPU_COUNT(taken) ? lowest_free(taken) : -1;
	set = control.allowed;
	if (core >= 0) {
		CPU_ZERO(&set);
		CPU_SET((size_t)core, &set);
	}
	if (pthread_setaffinity_np(control.thread, sizeof(set), &set)) {
		core = -1; /* it stays where it was */
	} else {
		control.cores = set;
		follow();
	}
	control.core = core;
unlock:
	pthread_mutex_unlock(&control.lock);
}

int vbn__control_core(void)
{
	int core;

	pthread_mutex_lock(&control.lock);
	core = control.open ? control.core : -ESHUTDOWN;
	pthread_mutex_unlock(&control.lock);
	return core;
}
