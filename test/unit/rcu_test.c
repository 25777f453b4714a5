/* rcu_test.c - tables that workers read while another thread replaces them: nothing is freed under a
 * reader, everything is freed in the end, and nobody waits for a worker that waits */

#include "unit.h"

#include "run/rcu.h"
#include "run/run.h"

#include <verbena.h>

#include <pthread.h>
#include <sched.h>

#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "rcu_test: does not hold: %s; the log is:\n%s\n", what, unit_log);
	abort();
}

static void deadline_in(uint64_t *deadline)
{
	*deadline = clock_ns() + PATIENCE_NS;
}

/* ---- workers read, a thread replaces ---- */

enum { VERSIONS = UNIT_SHADOW ? 300 : 2000, WORDS = 32 };

struct table {
	struct rcu_later later;
	uint64_t words[WORDS]; /* all the version's number; 0 in one that is gone */
};

static struct {
	struct table *published;
	int n_freed; /* the callback thread's; atomic */
	int n_readers;
	bool updated;
	uint64_t deadline;
	uint64_t reads;
} shared;

static struct table *make_table(uint64_t version)
{
	struct table *table = malloc(sizeof(*table));

	must(table != NULL, "there is memory");
	for (int i = 0; i < WORDS; i++)
		table->words[i] = version;
	return table;
}

static void free_table(void *arg)
{
	struct table *table = arg;

	memset(table->words, 0, sizeof(table->words));
	free(table);
	__atomic_add_fetch(&shared.n_freed, 1, __ATOMIC_RELEASE);
}

static int poll_reading(struct vbn_worker *worker, void *arg)
{
	const struct table *table = rcu_read(&shared.published);
	uint64_t version = table->words[0];

	(void)arg;
	must(clock_ns() < shared.deadline, "all versions are published in time");
	must(version != 0, "a table that is read has not been freed");
	for (int i = 1; i < WORDS; i++)
		must(table->words[i] == version, "a table is one version throughout");
	if (__atomic_load_n(&shared.updated, __ATOMIC_ACQUIRE))
		vbn_worker_done(worker);
	return 1;
}

static int set_up_reading(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	__atomic_add_fetch(&shared.n_readers, 1, __ATOMIC_RELEASE);
	return vbn_worker_add_poll(worker, poll_reading, NULL);
}

static void *update(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&shared.n_readers, __ATOMIC_ACQUIRE))
		sched_yield();
	for (uint64_t version = 2; version <= VERSIONS; version++) {
		struct table *old = shared.published;

		rcu_publish(&shared.published, make_table(version));
		vbn__rcu_call(&old->later, free_table, old);
		if (version % 50 == 0)
			vbn__rcu_wait();
	}
	__atomic_store_n(&shared.updated, true, __ATOMIC_RELEASE);
	return NULL;
}

static void readers_and_an_updater(void **state)
{
	pthread_t updater;

	(void)state;
	deadline_in(&shared.deadline);
	shared.published = make_table(1);
	assert_int_equal(pthread_create(&updater, NULL, update, NULL), 0);
	assert_int_equal(vbn_run(NULL, set_up_reading, NULL), 0);
	pthread_join(updater, NULL);
	vbn__rcu_barrier();
	assert_int_equal(__atomic_load_n(&shared.n_freed, __ATOMIC_ACQUIRE), VERSIONS - 1);
	assert_int_equal(shared.published->words[0], VERSIONS);
	free(shared.published);
}

/* ---- who holds up a grace period ---- */

static int grace_periods; /* that have ended; atomic */

static void *wait_for_grace(void *arg)
{
	(void)arg;
	vbn__rcu_wait();
	__atomic_add_fetch(&grace_periods, 1, __ATOMIC_RELEASE);
	return NULL;
}

static pthread_t start_waiting(void)
{
	pthread_t thread;

	grace_periods = 0;
	must(!pthread_create(&thread, NULL, wait_for_grace, NULL), "there is a thread");
	return thread;
}

static bool is_over(void)
{
	return __atomic_load_n(&grace_periods, __ATOMIC_ACQUIRE);
}

/* The thread waits for as long as the worker is online and does not poll, and not longer. */
static void a_worker_that_does_not_poll(void **state)
{
	struct vbn_worker *worker;
	pthread_t thread;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	thread = start_waiting();
	usleep(20000); /* it would be over by then: but a slow machine only makes this easier */
	assert_false(is_over());
	for (uint64_t deadline = clock_ns() + PATIENCE_NS; !is_over();) {
		assert_true(clock_ns() < deadline);
		vbn_worker_poll(worker);
		sched_yield();
	}
	pthread_join(thread, NULL);
	vbn_worker_offline(worker);
	thread = start_waiting();
	pthread_join(thread, NULL); /* comes back, or the test does not */
	vbn_worker_online(worker);
	assert_int_equal(vbn_worker_poll(worker), 0);
	vbn_worker_detach(worker);
	pthread_join(start_waiting(), NULL);
}

static int wait_on_control(void *arg)
{
	(void)arg;
	vbn__rcu_wait();
	return 7;
}

static void a_worker_that_waits_for_the_control_thread(void **state)
{
	struct vbn_worker *worker;

	(void)state;
	assert_int_equal(vbn__control_start(), 0);
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn__control_call(-1, wait_on_control, NULL), 7);
	vbn__rcu_wait(); /* its own */
	vbn_worker_detach(worker);
	vbn__control_stop();
}

static void freed(void *arg)
{
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
}

/* Set-up takes long on one worker while the other one is through with its own. */
static int set_up_waiting(struct vbn_worker *worker, void *arg)
{
	struct rcu_later later;
	bool gone = false;

	(void)arg;
	vbn_worker_done(worker);
	if (vbn_worker_index(worker))
		return 0;
	vbn__rcu_wait();
	vbn__rcu_call(&later, freed, &gone);
	vbn__rcu_barrier();
	must(__atomic_load_n(&gone, __ATOMIC_ACQUIRE), "a barrier waits for callbacks");
	return 0;
}

static void workers_that_wait_for_one_another(void **state)
{
	struct topo topo;
	char cores[TOPO_MAX_CPUS];
	int cpus[2];

	(void)state;
	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	for (int i = 0; i < min(2, topo.n_cpus); i++)
		cpus[i] = topo.cpus[i];
	vbn__cpulist_format(cpus, min(2, topo.n_cpus), cores, sizeof(cores));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up_waiting, NULL), 0);
}

/* A program that has its own use for liburcu keeps its thread registered. */
static void a_thread_that_is_registered_already(void **state)
{
	struct vbn_worker *worker;

	(void)state;
	urcu_qsbr_register_thread();
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	vbn_worker_poll(worker);
	vbn_worker_detach(worker);
	urcu_qsbr_thread_online();
	assert_true(urcu_qsbr_read_ongoing());
	urcu_qsbr_unregister_thread();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_that_is_registered_already),
		cmocka_unit_test(readers_and_an_updater),
		cmocka_unit_test(a_worker_that_does_not_poll),
		cmocka_unit_test(a_worker_that_waits_for_the_control_thread),
		cmocka_unit_test(workers_that_wait_for_one_another),
	};

	unit_catch_log();
	return cmocka_run_group_tests_name("rcu", tests, NULL, NULL);
}
