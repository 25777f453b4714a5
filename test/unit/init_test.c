/* init_test.c - starting and ending the library: its options, its log, and the calls that belong to
 * no object */

#include "unit.h"

#include "mem/mem.h"

#include <verbena.h>

#include <sched.h>

#define MAX_ARGS 8

static char said[2048];
static int n_said;

static void keep_sentence(int level, const char *sentence, void *arg)
{
	(void)level;
	(void)arg;
	n_said++;
	snprintf(said, sizeof(said), "%s", sentence);
}

static int listen(void **state)
{
	(void)state;
	n_said = 0;
	said[0] = '\0';
	vbn_log_to(VBN_LOG_NOTICE, keep_sentence, NULL);
	return 0;
}

/* A command line as main() gets it: words of one string, NULL at the end. */
struct args {
	char text[256];
	char *words[MAX_ARGS + 1];
	char **argv;
	int argc;
};

static void set_args(struct args *args, const char *line)
{
	char *rest = args->text, *word;

	memset(args, 0, sizeof(*args));
	snprintf(args->text, sizeof(args->text), "%s", line);
	while ((word = strsep(&rest, " ")))
		args->words[args->argc++] = word;
	args->argv = args->words;
}

static void assert_args(const struct args *args, const char *line)
{
	char joined[256] = "";

	for (int i = 0; i < args->argc; i++) {
		size_t len = strlen(joined);

		snprintf(joined + len, sizeof(joined) - len, "%s%s", i ? " " : "", args->argv[i]);
	}
	assert_string_equal(joined, line);
	assert_null(args->argv[args->argc]);
}

static void the_version_is_the_projects(void **state)
{
	int major, minor, patch;

	(void)state;
	assert_int_equal(sscanf(vbn_version(), "%d.%d.%d", &major, &minor, &patch), 3);
}

static void starts_without_arguments_and_only_once(void **state)
{
	int argc = 0;
	char *none[] = {NULL};
	char **argv = none;

	(void)state;
	assert_int_equal(vbn_init(NULL, NULL), 0);
	assert_int_equal(vbn_init(NULL, NULL), -EALREADY);
	assert_has(said, "vbn_fini()");
	vbn_fini();
	vbn_fini();
	assert_int_equal(vbn_init(&argc, &argv), 0);
	assert_int_equal(argc, 0);
	vbn_fini();
}

static void its_options_are_taken_out(void **state)
{
	static const struct {
		const char *before, *after;
	} lines[] = {
		{"prog", "prog"},
		{"prog --vbn-log=debug", "prog"},
		{"prog a --vbn-log=error b --vbn-page-size=plain c", "prog a b c"},
		{"prog --vbn-page-size=2M --vbn-page-size=1G --vbn-page-size=transparent -x",
			"prog -x"},
		{"prog --vbn-log=info -- cmd --vbn-log=never", "prog -- cmd --vbn-log=never"},
		{"--vbn-log=oddly-named x", "--vbn-log=oddly-named x"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct args args;

		set_args(&args, lines[i].before);
		assert_int_equal(vbn_init(&args.argc, &args.argv), 0);
		assert_args(&args, lines[i].after);
		vbn_fini();
		listen(NULL); /* the level is the process's until it is set again */
	}
}

static void what_it_does_not_know_is_refused(void **state)
{
	static const struct {
		const char *line, *words;
	} bad[] = {
		{"prog --vbn-colour=red", "--vbn-colour=red"},
		{"prog --vbn-", "--vbn-page-size=SIZE"},
		{"prog --vbn-telemetry=maybe", "auto, on or off"},
		{"prog --vbn-file-prefix=..", "directory"},
		{"prog --vbn-file-prefix=a/b", "directory"},
		{"prog --vbn-log", "--vbn-log=LEVEL"},
		{"prog --vbn-log=", "error, warning"},
		{"prog --vbn-log=loud", "\"loud\""},
		{"prog --vbn-log=info --vbn-page-size=4M", "2M or 1G"},
		{"prog --vbn-page-size=plain1", "\"plain1\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct args args;

		set_args(&args, bad[i].line);
		n_said = 0;
		assert_int_equal(vbn_init(&args.argc, &args.argv), -EINVAL);
		assert_int_equal(n_said, 1);
		assert_has(said, bad[i].words);
		assert_args(&args, bad[i].line);
	}
	/* and none has left anything behind */
	assert_int_equal(vbn_init(NULL, NULL), 0);
	vbn_fini();
}

static void the_log_option_keeps_who_listens(void **state)
{
	struct args args;

	(void)state;
	set_args(&args, "prog --vbn-log=error");
	assert_int_equal(vbn_init(&args.argc, &args.argv), 0);
	log_warning("unheard");
	assert_int_equal(n_said, 0);
	log_error("heard");
	assert_string_equal(said, "heard");
	vbn_fini();
	set_args(&args, "prog --vbn-log=debug");
	assert_int_equal(vbn_init(&args.argc, &args.argv), 0);
	log_debug("every word");
	assert_string_equal(said, "every word");
	vbn_fini();
}

static void the_page_size_option_holds_for_zones(void **state)
{
	struct vbn_zone *zone;
	struct vbn_mode mode;
	struct args args;

	(void)state;
	set_args(&args, "prog --vbn-page-size=plain");
	assert_int_equal(vbn_init(&args.argc, &args.argv), 0);
	assert_int_equal(vbn_zone_create(&(struct vbn_zone_conf){.size = 1 << 16}, &zone), 0);
	assert_true(vbn_zone_modes(zone, &mode, 1) >= 1);
	assert_string_equal(mode.name, "page_size");
	assert_string_equal(mode.requested, "plain");
	vbn_zone_destroy(zone);
	vbn_fini();
}

static int count_them(const char *kind, const char *object, const char *name, const char *help,
	uint64_t value, void *arg)
{
	uint64_t *sum = arg;

	if (strcmp(kind, "test") || strcmp(object, "a/1") || !strlen(help))
		return 0;
	sum[0] += value;
	return strcmp(name, "last") ? 0 : 17;
}

static void counters_are_walked_and_the_walk_can_be_ended(void **state)
{
	static const struct counter_name names[] = {
		{"first", "one"}, {"last", "two"}, {"unseen", "three"}};
	uint64_t values[] = {5, 6, 7}, sum = 0;
	struct counter_set set = {
		.kind = "test", .object = "a/1", .names = names, .values = values, .n = 3};

	(void)state;
	assert_int_equal(vbn_counters_each(count_them, &sum), 0);
	assert_int_equal(sum, 0);
	vbn__counters_add(&set);
	assert_int_equal(vbn_counters_each(count_them, &sum), 17);
	assert_int_equal(sum, 11);
	vbn__counters_remove(&set);
}

static void cycles_have_a_rate(void **state)
{
	uint64_t hz = vbn_cycles_hz();

	(void)state;
	assert_true(hz >= 1000 * 1000);
	assert_int_equal(vbn_cycles_hz(), hz);
}

static void near_cores_are_the_allowed_ones_each_once(void **state)
{
	int cores[TOPO_MAX_CPUS], one[1] = {-1};
	cpu_set_t allowed;
	int n;

	(void)state;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int node = -1; node < 2; node++) {
		cpu_set_t seen;

		CPU_ZERO(&seen);
		n = vbn_cores_near(node, cores, TOPO_MAX_CPUS);
		assert_int_equal(n, CPU_COUNT(&allowed));
		for (int i = 0; i < n; i++)
			CPU_SET((size_t)cores[i], &seen);
		assert_true(CPU_EQUAL(&seen, &allowed));
	}
	assert_int_equal(vbn_cores_near(-1, one, 1), n);
	assert_int_equal(one[0], vbn_cores_near(-1, cores, TOPO_MAX_CPUS) ? cores[0] : -1);
	assert_int_equal(vbn_cores_near(-1, NULL, 0), n);
}

#define listening(test) cmocka_unit_test_setup(test, listen)

int main(void)
{
	const struct CMUnitTest tests[] = {
		listening(the_version_is_the_projects),
		listening(starts_without_arguments_and_only_once),
		listening(its_options_are_taken_out),
		listening(what_it_does_not_know_is_refused),
		listening(the_log_option_keeps_who_listens),
		listening(the_page_size_option_holds_for_zones),
		listening(counters_are_walked_and_the_walk_can_be_ended),
		listening(cycles_have_a_rate),
		listening(near_cores_are_the_allowed_ones_each_once),
	};

	return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
