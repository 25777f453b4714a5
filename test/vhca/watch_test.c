/* watch_test.c - a doorbell that is late is not one that is missing
 *
 * The device looks once a second for a record whose doorbell has not come. A thread may be kept from
 * running just there, by a debugger or a busy machine: nothing is to be said of it.
 */

#include "child.h"
#include "ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	STOPPED_MS = 3300, /* three looks */
	DONE = 1,
	NOT_ALLOWED,
};

/* Of this process and the one that stops its thread. */
static struct {
	int tid;     /* of the thread */
	int stopped; /* it is, or cannot be */
	int written; /* the record */
} * shared;

static void say(int *flag, int value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

static int hear(const int *flag)
{
	int value;

	while (!(value = __atomic_load_n(flag, __ATOMIC_ACQUIRE)))
		usleep(1000);
	return value;
}

/* Rings when the record is written. Until then it spins, so that it is stopped in no system call. */
static void *ring_late(void *arg)
{
	struct ring *ring = arg;

	say(&shared->tid, (int)syscall(SYS_gettid));
	while (!__atomic_load_n(&shared->written, __ATOMIC_ACQUIRE))
		;
	ring_bell(ring, ring_bell_value(ring));
	return NULL;
}

/* As a debugger does; its own end lets the thread go on. */
static void stop_for_long(void)
{
	int tid = hear(&shared->tid), status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ||
		waitpid(tid, &status, __WALL) != tid) {
		say(&shared->stopped, NOT_ALLOWED);
		_exit(1);
	}
	say(&shared->stopped, DONE);
	hear(&shared->written);
	usleep(STOPPED_MS * 1000);
	_exit(0);
}

static int stopped_in_between(void)
{
	struct pair_conf conf = {0};
	struct pair pair;
	struct ring ring;
	pthread_t thread;
	pid_t tracer;
	int stopped;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tracer = fork();
	if (!tracer)
		stop_for_long();
	pair_open(&pair, &conf);
	ring_take(&ring, &pair.a);
	post_recv(&pair.b, 1, 0, 64);
	ring_write(&ring, &good_send);
	if (pthread_create(&thread, NULL, ring_late, &ring))
		return CHILD_WRONG;
	stopped = hear(&shared->stopped);
	ring_record(&ring, 1);
	say(&shared->written, 1);
	waitpid(tracer, NULL, 0);
	pthread_join(thread, NULL);
	ring_wait(&ring);
	return stopped;
}

static void a_stopped_thread(void **state)
{
	char said[4096];
	int answer = child_run(stopped_in_between, "abort", said, sizeof(said));

	(void)state;
	if (answer == NOT_ALLOWED) {
		print_message("SKIP watch_stopped: a thread cannot be stopped here\n");
		return;
	}
	if (answer != DONE || strstr(said, "rule "))
		fail_msg("answer %d, and it said \"%s\"", answer, said);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(a_stopped_thread)};

	return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
