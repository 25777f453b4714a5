/* pool_debug_test.c - what debug builds catch: double free, use after free, strangers, foreign
 * threads, leaks by name
 *
 * Each catch ends its process, so a child makes the mistake and the parent reads what the child
 * said of it. The functions that make mistakes are exported (the program is linked with -rdynamic),
 * for their names are part of the sentence.
 */

#include "unit.h"

#include "mem/mem.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static struct vbn_pool *make(const char *name)
{
	const struct vbn_pool_conf conf = {
		.n_bufs = 8, .data_size = 200, .headroom = VBN_NUM(64), .name = name};
	struct vbn_pool *pool;

	if (vbn_pool_create(&conf, &pool))
		abort();
	return pool;
}

/* What fn says before it aborts, in unit_log. */
static void expect_abort(void (*fn)(void))
{
	int ends[2], status;
	size_t len = 0;
	ssize_t got;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		dup2(ends[1], STDERR_FILENO);
		for (int number = 1; number < 32; number++)
			signal(number, SIG_DFL); /* cmocka would go on with the next test */
		vbn__log_set(LOG_DEBUG, NULL, NULL);
		fn();
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], unit_log + len, sizeof(unit_log) - 1 - len)) > 0)
		len += (size_t)got;
	unit_log[len] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
		unit_fail("the child did not abort (status %#x) and said: %s", (unsigned int)status,
			unit_log);
}

/* Not inlined, no tail calls, no two merged into one: what a sentence names is the function that
 * called. */
#define mistake    noinline __attribute__((visibility("default")))
#define here(name) __asm__ volatile("# " name::: "memory")

mistake void allocates(struct vbn_pool *pool, struct vbn_buf **bufs, int n);
mistake void frees(struct vbn_buf **bufs, int n);
mistake void frees_again(struct vbn_buf **bufs, int n);

mistake void allocates(struct vbn_pool *pool, struct vbn_buf **bufs, int n)
{
	if (vbn_buf_alloc(pool, bufs, n) != n)
		abort();
	here("allocates");
}

mistake void frees(struct vbn_buf **bufs, int n)
{
	vbn_buf_free(bufs, n);
	here("frees");
}

mistake void frees_again(struct vbn_buf **bufs, int n)
{
	vbn_buf_free(bufs, n);
	here("frees_again");
}

/* ---- mistakes ---- */

static void twice(void)
{
	struct vbn_buf *bufs[3];

	allocates(make("twice"), bufs, 3);
	frees(bufs, 3);
	frees_again(&bufs[1], 1);
}

static void double_free(void **state)
{
	(void)state;
	expect_abort(twice);
	assert_has(
		unit_log, "pool twice/1: buf 1: freed twice, noticed in a call by frees_again+0x");
	assert_has(unit_log, "last allocated by allocates+0x");
	assert_has(unit_log, "last freed by frees+0x");
}

static void twice_in_one_chain(void)
{
	struct vbn_buf *bufs[2];

	allocates(make("chain"), bufs, 2);
	vbn_buf_append(bufs[0], bufs[1]);
	frees(bufs, 2); /* the second is the tail of the first */
}

static void double_free_by_a_chain(void **state)
{
	(void)state;
	expect_abort(twice_in_one_chain);
	assert_has(unit_log, "freed twice");
	assert_has(unit_log, "last freed by frees+0x");
}

static void writes_data_late(void)
{
	struct vbn_pool *pool = make("late");
	struct vbn_buf *buf;
	uint8_t *data;

	allocates(pool, &buf, 1);
	data = buf->data;
	frees(&buf, 1);
	data[12] = 7;
	allocates(pool, &buf, 1);
}

static void use_after_free(void **state)
{
	(void)state;
	expect_abort(writes_data_late);
	assert_has(unit_log,
		"pool late/1: buf 0: use after free: byte 76 of its room was written while it was home");
	assert_has(unit_log, "noticed in a call by allocates+0x");
	assert_has(unit_log, "last freed by frees+0x");
}

static void writes_header_late(void)
{
	struct vbn_pool *pool = make("header");
	struct vbn_buf *buf;

	allocates(pool, &buf, 1);
	frees(&buf, 1);
	buf->len = 64;
	allocates(pool, &buf, 1);
}

static void sets_flag_late(void)
{
	struct vbn_pool *pool = make("header");
	struct vbn_buf *buf;

	allocates(pool, &buf, 1);
	frees(&buf, 1);
	buf->flags = VBN_BUF_KEEP;
	allocates(pool, &buf, 1);
}

static void use_of_a_freed_header(void **state)
{
	(void)state;
	expect_abort(writes_header_late);
	assert_has(unit_log,
		"pool header/1: buf 0: use after free: its header was written while it was home");
	expect_abort(sets_flag_late);
	assert_has(unit_log, "use after free: its header was written while it was home");
}

static void runs_over_its_end(void)
{
	struct vbn_buf *bufs[2];

	allocates(make("over"), bufs, 2);
	memset(bufs[0]->data, 0, 200 + 64 + 64);
	frees(bufs, 2);
}

static void overwritten_header(void **state)
{
	(void)state;
	expect_abort(runs_over_its_end);
	assert_has(unit_log, "its header has been overwritten");
	assert_has(unit_log, "freed by frees+0x");
}

static struct vbn_pool *shared;

static void *allocates_elsewhere(void *arg)
{
	struct vbn_buf *buf;

	allocates(shared, &buf, 1);
	return arg;
}

static void uses_by_two_threads(void)
{
	struct vbn_buf *buf;
	pthread_t other;

	shared = make("shared");
	allocates(shared, &buf, 1);
	pthread_create(&other, NULL, allocates_elsewhere, NULL);
	pthread_join(other, NULL);
}

static void foreign_thread(void **state)
{
	(void)state;
	expect_abort(uses_by_two_threads);
	assert_has(unit_log, "pool shared/1: buf 1: used by thread ");
	assert_has(unit_log, "belongs to thread ");
}

/* ---- what is no mistake ---- */

/* The first user owns the pool, whoever made it. */
static void *uses(void *pool)
{
	struct vbn_buf *bufs[8];

	for (int i = 0; i < 3; i++) {
		allocates(pool, bufs, 8);
		for (int j = 0; j < 8; j++) {
			memset(vbn_buf_room(bufs[j]), i, bufs[j]->size);
			bufs[j]->len = 200;
			bufs[j]->mark = 1;
			bufs[j]->peer[1] = 2;
			vbn_buf_set_cookie(bufs[j], pool);
		}
		vbn_buf_append(bufs[2], bufs[3]);
		frees(bufs, 3);
		frees(bufs + 4, 4);
	}
	return NULL;
}

static void right_use(void **state)
{
	struct vbn_pool *pool = make("right");
	pthread_t other;

	(void)state;
	unit_catch_log();
	assert_int_equal(pthread_create(&other, NULL, uses, pool), 0);
	pthread_join(other, NULL);
	assert_int_equal(vbn_pool_available(pool), 8);
	vbn_pool_destroy(pool);
	assert_string_equal(unit_log, "");
}

static void inlines_of_drivers(void **state)
{
	struct vbn_pool *pool = make("driver");
	struct vbn_buf *buf = pool_pop(pool);

	(void)state;
	buf_start(pool, buf, pool_data(pool, buf), 5);
	assert_int_equal(buf_word(buf), plain_word(pool));
	pool_push(pool, buf);
	assert_ptr_equal(pool_pop(pool), buf);
	buf->data = pool_data(pool, buf);
	buf->len = 9;
	buf->flags = 0;
	vbn_buf_free(&buf, 1);
	vbn_pool_destroy(pool);
}

static void leaks_by_name(void **state)
{
	struct vbn_pool *pool = make("leaky");
	struct vbn_buf *bufs[4];

	(void)state;
	unit_catch_log();
	allocates(pool, bufs, 4);
	assert_int_equal(vbn_buf_alloc(pool, &bufs[0], 1), 1);
	assert_int_equal(vbn__pools_report_leaks(), 5);
	assert_logged("pool leaky/1: 5 of its 8 bufs are not home");
	assert_logged("pool leaky/1: 4 of them were allocated by allocates+0x");
	assert_logged("pool leaky/1: 1 of them were allocated by ");
	vbn_pool_destroy(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(double_free),
		cmocka_unit_test(double_free_by_a_chain),
		cmocka_unit_test(use_after_free),
		cmocka_unit_test(use_of_a_freed_header),
		cmocka_unit_test(overwritten_header),
		cmocka_unit_test(foreign_thread),
		cmocka_unit_test(right_use),
		cmocka_unit_test(inlines_of_drivers),
		cmocka_unit_test(leaks_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
