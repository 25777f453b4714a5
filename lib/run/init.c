/* init.c - the library's start and end, its own options, and the small calls that belong to no
 * object */

#include "mem/mem.h"
#include "obs/obs.h"
#include "run/rcu.h"
#include "run/run.h"

#include <verbena/counter.h>
#include <verbena/init.h>

#include <numa.h>
#include <pthread.h>
#include <stdlib.h>

static bool initialised; /* the main thread's */

static struct {
	pthread_mutex_t lock;
	int level;
	vbn_log_fn *fn;
	void *arg;
} logging = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_NOTICE};

static_assert((int)VBN_LOG_ERROR == (int)LOG_ERROR && (int)VBN_LOG_DEBUG == (int)LOG_DEBUG,
	"public and private levels agree");

VBN_API const char *vbn_version(void)
{
	return VBN_VERSION;
}

/* ---- log ---- */

VBN_API void vbn_log_to(int level, vbn_log_fn *fn, void *arg)
{
	pthread_mutex_lock(&logging.lock);
	logging.level = level;
	logging.fn = fn;
	logging.arg = arg;
	vbn__log_set(level, fn, arg);
	pthread_mutex_unlock(&logging.lock);
}

/* Another level for whoever listens now. */
static void set_log_level(int level)
{
	pthread_mutex_lock(&logging.lock);
	logging.level = level;
	vbn__log_set(level, logging.fn, logging.arg);
	pthread_mutex_unlock(&logging.lock);
}

/* ---- options ---- */

struct options {
	int pages;     /* enum vbn_pages */
	int log_level; /* -1: not given */
	int telemetry; /* enum vbn_switch */
	const char *file_prefix, *metrics;
};

struct word {
	const char *text;
	int value;
};

static const struct word page_words[] = {
	{"plain", VBN_PAGES_PLAIN},
	{"transparent", VBN_PAGES_TRANSPARENT},
	{"2M", VBN_PAGES_2M},
	{"1G", VBN_PAGES_1G},
	{NULL, 0},
};

static const struct word log_words[] = {
	{"error", LOG_ERROR},
	{"warning", LOG_WARNING},
	{"notice", LOG_NOTICE},
	{"info", LOG_INFO},
	{"debug", LOG_DEBUG},
	{NULL, 0},
};

static const struct word switch_words[] = {
	{"auto", VBN_AUTO},
	{"on", VBN_ON},
	{"off", VBN_OFF},
	{NULL, 0},
};

static const struct {
	const char *prefix;
	const char *choice;
	const struct word *words; /* NULL: any text, checked by whose it is */
	size_t field;
} known_options[] = {
	{"--vbn-page-size=", "plain, transparent, 2M or 1G", page_words,
		offsetof(struct options, pages)},
	{"--vbn-log=", "error, warning, notice, info or debug", log_words,
		offsetof(struct options, log_level)},
	{"--vbn-telemetry=", "auto, on or off", switch_words, offsetof(struct options, telemetry)},
	{"--vbn-file-prefix=", NULL, NULL, offsetof(struct options, file_prefix)},
	{"--vbn-metrics=", NULL, NULL, offsetof(struct options, metrics)},
};

static bool is_ours(const char *text)
{
	return !strncmp(text, "--vbn-", 6);
}

static bool is_end(const char *text)
{
	return !strcmp(text, "--");
}

static int parse_value(const char *text, size_t option, struct options *options)
{
	const char *value = text + strlen(known_options[option].prefix);

	if (!known_options[option].words) {
		memcpy((char *)options + known_options[option].field, &value, sizeof(value));
		return 0;
	}
	for (const struct word *word = known_options[option].words; word->text; word++) {
		if (!strcmp(word->text, value)) {
			memcpy((char *)options + known_options[option].field, &word->value,
				sizeof(word->value));
			return 0;
		}
	}
	return fail(EINVAL,
		"option %s: not understood: \"%s\" is no value it knows; give it one of %s", text,
		value, known_options[option].choice);
}

static int parse_option(const char *text, struct options *options)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_options); i++)
		if (!strncmp(text, known_options[i].prefix, strlen(known_options[i].prefix)))
			return parse_value(text, i, options);
	return fail(EINVAL,
		"option %s: not understood: the library has --vbn-page-size=SIZE, --vbn-log=LEVEL, --vbn-telemetry=SWITCH, "
		"--vbn-file-prefix=NAME and --vbn-metrics=ADDR:PORT only; correct it or leave it out",
		text);
}

/* What follows "--" is somebody else's. */
static int parse_options(int argc, char **argv, struct options *options)
{
	int ret = 0;

	for (int i = 1; i < argc && !is_end(argv[i]) && !ret; i++)
		if (is_ours(argv[i]))
			ret = parse_option(argv[i], options);
	return ret;
}

static int remove_options(int argc, char **argv)
{
	bool ended = false;
	int kept = min(argc, 1);

	for (int i = 1; i < argc; i++) {
		ended = ended || is_end(argv[i]);
		if (ended || !is_ours(argv[i]))
			argv[kept++] = argv[i];
	}
	argv[kept] = NULL;
	return kept;
}

/* ---- start and end ---- */

static int report_topology(void)
{
	struct topo topo;
	int ret = vbn__topo_read(NULL, &topo);

	if (!ret)
		log_debug("topology: this process may use %d CPUs; the machine has %d NUMA nodes",
			topo.n_cpus, topo.n_nodes);
	return ret;
}

VBN_API int vbn_init(int *argc, char ***argv)
{
	struct options options = {.pages = VBN_PAGES_AUTO, .log_level = -1};
	bool given = argc && argv && *argv;
	int ret;

	if (initialised)
		return fail(EALREADY,
			"library: cannot be initialised: it is; call vbn_fini() before another vbn_init()");
	ret = given ? parse_options(*argc, *argv, &options) : 0;
	if (ret)
		return ret;
	if (options.log_level >= 0)
		set_log_level(options.log_level);
	ret = report_topology();
	if (ret)
		return ret;
	ret = vbn__control_start();
	if (ret)
		return ret;
	ret = vbn__obs_start(&(struct obs_conf){.telemetry = (enum vbn_switch)options.telemetry,
		.prefix = options.file_prefix,
		.metrics = options.metrics});
	if (ret) {
		vbn__control_stop();
		return ret;
	}
	vbn__zone_default_pages((enum vbn_pages)options.pages);
	if (given)
		*argc = remove_options(*argc, *argv);
	initialised = true;
	return 0;
}

VBN_API void vbn_fini(void)
{
	if (!initialised)
		return;
	vbn__obs_stop();
	vbn__control_stop();
	vbn__rcu_barrier();
	vbn__pools_report_leaks();
	vbn__zone_default_pages(VBN_PAGES_AUTO);
	initialised = false;
}

/* ---- counters, clock, cores ---- */

struct counter_visit {
	int (*fn)(const char *kind, const char *object, const char *name, const char *help,
		uint64_t value, void *arg);
	void *arg;
};

static int visit_counter(const struct counter_set *set, size_t i, uint64_t value, void *arg)
{
	const struct counter_visit *visit = arg;

	return visit->fn(
		set->kind, set->object, set->names[i].name, set->names[i].help, value, visit->arg);
}

VBN_API int vbn_counters_each(int (*fn)(const char *kind, const char *object, const char *name,
				      const char *help, uint64_t value, void *arg),
	void *arg)
{
	struct counter_visit visit = {.fn = fn, .arg = arg};

	return vbn__counters_each(visit_counter, &visit);
}

VBN_API uint64_t vbn_cycles_hz(void)
{
	return vbn__clock_hz();
}

/* How far a core is from a node: 10 is on it, more is further, as the firmware says. */
struct near_core {
	int core, distance;
	bool lowest; /* of all allowed ones: left to others as long as there are more */
};

static int distance_to(const struct topo *topo, int node, int core)
{
	int of_core = topo->node_of_cpu[core];
	int distance;

	if (node < 0 || of_core == node)
		return 10;
	distance = numa_available() < 0 ? 0 : numa_distance(node, of_core);
	return distance > 0 ? distance : 20;
}

static int compare_near(const void *left, const void *right)
{
	const struct near_core *a = left, *b = right;

	if (a->distance != b->distance)
		return a->distance - b->distance;
	if (a->lowest != b->lowest)
		return a->lowest - b->lowest;
	return a->core - b->core;
}

/* Where any node will do: the first on which n cores are together, not counting the lowest allowed
 * one; -1: there is none. */
static int node_with_room(const struct topo *topo, int n)
{
	int others[TOPO_MAX_NODES] = {0}, node = 0;

	for (int i = 1; i < topo->n_cpus; i++)
		others[topo->node_of_cpu[topo->cpus[i]]]++;
	while (node < topo->n_nodes && others[node] < n)
		node++;
	return node < topo->n_nodes ? node : -1;
}

VBN_API int vbn_cores_near(int node, int *cores, int n)
{
	struct near_core near[TOPO_MAX_CPUS];
	struct topo topo;
	int ret;

	ret = vbn__topo_read(NULL, &topo);
	if (ret)
		return ret;
	if (node < 0)
		node = node_with_room(&topo, n);
	for (int i = 0; i < topo.n_cpus; i++)
		near[i] = (struct near_core){.core = topo.cpus[i],
			.distance = distance_to(&topo, node, topo.cpus[i]),
			.lowest = i == 0};
	qsort(near, (size_t)topo.n_cpus, sizeof(near[0]), compare_near);
	for (int i = 0; i < min(n, topo.n_cpus); i++)
		cores[i] = near[i].core;
	return topo.n_cpus;
}
