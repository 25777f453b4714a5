/* post_test.c - posts: functions that other threads have a worker run; order, completeness, and that a
 * run does not end before them */

#include "unit.h"

#include <verbena.h>

#include <pthread.h>

#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "post_test: does not hold: %s; the log is:\n%s\n", what, unit_log);
	abort();
}

/* ---- from one thread to itself ---- */

struct counted {
	struct vbn_post post;
	int n, again;
};

static void count(struct vbn_worker *worker, void *arg)
{
	struct counted *counted = arg;

	must(vbn_worker_self() == worker, "a post runs on its worker's thread");
	counted->n++;
	if (counted->again) {
		counted->again--;
		vbn_post(worker, &counted->post);
	}
}

static void to_itself(void **state)
{
	struct counted counted = {.post = {.fn = count, .arg = &counted}, .again = 2};
	struct vbn_worker *worker;

	(void)state;
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	vbn_post(worker, &counted.post);
	assert_int_equal(counted.n, 0);
	vbn_worker_poll(worker); /* shown at its end */
	assert_int_equal(counted.n, 0);
	assert_int_equal(vbn_worker_poll(worker), 1);
	assert_int_equal(counted.n, 1);
	assert_int_equal(vbn_worker_poll(worker), 1);
	assert_int_equal(vbn_worker_poll(worker), 1);
	assert_int_equal(vbn_worker_poll(worker), 0);
	assert_int_equal(counted.n, 3);
	vbn_worker_detach(worker);
}

/* ---- from everyone to everyone ---- */

enum { STRANGERS = 2, EACH = UNIT_SHADOW ? 3000 : 30000, BURST = 100 };

struct numbered {
	struct vbn_post post;
	int from;
	uint32_t number;
};

/* By receiver and sender: the strangers come behind the workers. */
static struct {
	struct vbn_worker *workers[2];
	int n_ready, n_finished; /* atomic */
	uint32_t next[2][2 + STRANGERS];
	uint32_t posted[2][2];
	uint64_t deadline;
	uint64_t sent, ran, waited;
} all;

static void run_numbered(struct vbn_worker *worker, void *arg)
{
	struct numbered *numbered = arg;
	int to = vbn_worker_index(worker);

	must(all.next[to][numbered->from] == numbered->number, "posts of one thread stay in order");
	all.next[to][numbered->from]++;
	free(numbered);
}

static void post_number(int from, int to, uint32_t number)
{
	struct numbered *numbered = malloc(sizeof(*numbered));

	must(numbered != NULL, "there is memory");
	*numbered = (struct numbered){
		.post = {.fn = run_numbered, .arg = numbered}, .from = from, .number = number};
	vbn_post(all.workers[to], &numbered->post);
}

static int poll_posting(struct vbn_worker *worker, void *arg)
{
	const int from = vbn_worker_index(worker);
	int did = 0;

	(void)arg;
	must(clock_ns() < all.deadline, "all posts are run in time");
	if (__atomic_load_n(&all.n_ready, __ATOMIC_ACQUIRE) < 2)
		return 0;
	for (int to = 0; to < 2; to++)
		for (int i = 0; i < BURST && all.posted[from][to] < EACH; i++, did++)
			post_number(from, to, all.posted[from][to]++);
	if (!did && __atomic_load_n(&all.n_finished, __ATOMIC_ACQUIRE) == STRANGERS)
		vbn_worker_done(worker);
	return did;
}

static int add_counter(const char *kind, const char *object, const char *name, const char *help,
	uint64_t value, void *arg)
{
	(void)object;
	(void)help;
	(void)arg;
	if (strcmp(kind, "worker"))
		return 0;
	all.sent += strcmp(name, "posts_sent") ? 0 : value;
	all.ran += strcmp(name, "posts_run") ? 0 : value;
	all.waited += strcmp(name, "posts_waited") ? 0 : value;
	return 0;
}

static void exit_counting(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	if (!vbn_worker_index(worker))
		vbn_counters_each(add_counter, NULL);
}

static int set_up_posting(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	all.workers[vbn_worker_index(worker)] = worker;
	__atomic_add_fetch(&all.n_ready, 1, __ATOMIC_ACQ_REL);
	must(!vbn_worker_add_exit(worker, exit_counting, NULL), "a worker takes an exit function");
	return vbn_worker_add_poll(worker, poll_posting, NULL);
}

static void *stranger(void *arg)
{
	int from = 2 + (int)(intptr_t)arg;

	while (__atomic_load_n(&all.n_ready, __ATOMIC_ACQUIRE) < 2)
		sched_yield();
	for (uint32_t number = 0; number < EACH; number++)
		for (int to = 0; to < 2; to++)
			post_number(from, to, number);
	__atomic_add_fetch(&all.n_finished, 1, __ATOMIC_ACQ_REL);
	return NULL;
}

static void from_everyone_to_everyone(void **state)
{
	pthread_t threads[STRANGERS];
	struct topo topo;
	char cores[32];

	(void)state;
	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	if (topo.n_cpus < 2)
		unit_skip("post_two_workers",
			"this process may use one CPU, and two workers need two");
	snprintf(cores, sizeof(cores), "%d,%d", topo.cpus[0], topo.cpus[1]);
	all.deadline = clock_ns() + PATIENCE_NS;
	for (intptr_t i = 0; i < STRANGERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stranger, (void *)i), 0);
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores, .drain_ns = PATIENCE_NS},
				 set_up_posting, NULL),
		0);
	for (int i = 0; i < STRANGERS; i++)
		pthread_join(threads[i], NULL);
	for (int to = 0; to < 2; to++)
		for (int from = 0; from < 2 + STRANGERS; from++)
			assert_int_equal(all.next[to][from], EACH);
	assert_int_equal(all.sent, 2 * 2 * EACH);
	assert_int_equal(all.ran, 2 * (2 + STRANGERS) * EACH);
}

/* ---- too late ---- */

static struct counted late = {.post = {.fn = count, .arg = &late}};

static void post_late(struct vbn_worker *worker, void *arg)
{
	(void)arg;
	vbn_post(worker, &late.post);
}

static void after_the_loop_it_is_dropped_and_said(void **state)
{
	struct vbn_worker *worker;

	(void)state;
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(NULL, &worker), 0);
	assert_int_equal(vbn_worker_add_exit(worker, post_late, NULL), 0);
	vbn_worker_detach(worker);
	assert_int_equal(late.n, 0);
	assert_logged("ended with 1 posts that it did not run");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(to_itself),
		cmocka_unit_test(from_everyone_to_everyone),
		cmocka_unit_test(after_the_loop_it_is_dropped_and_said),
	};

	unit_catch_log();
	return cmocka_run_group_tests_name("post", tests, NULL, NULL);
}
