/* numa_test.c - on a machine of two NUMA nodes: ports, workers, pools, zones, exports and rings are
 * where they should be, and what is not is said
 *
 * For the guest, as root: it sets how many huge pages there are. VBN_TEST_DEVICE names a device of
 * node VBN_TEST_NODE, by either driver.
 */

#include "../unit/unit.h"

#include "drv/mlx5/mlx5.h"
#include "drv/verbs/verbs.h"
#include "mem/mem.h"

#include <dirent.h>
#include <numaif.h>
#include <verbena.h>

#define NODES      2
#define PAGE_2M    (2ul << 20)
#define HUGE_PAGES "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/%s"

static struct vbn_port *port;
static struct vbn_port_info info;
static int near_node, far_node;

/* ---- facts ---- */

/* How many of the pages of this memory are not on the node. */
static long pages_elsewhere(const void *memory, size_t size, int node)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	long elsewhere = 0;

	for (uintptr_t at = (uintptr_t)memory & ~(page - 1); at < (uintptr_t)memory + size;
		at += page) {
		void *one = (void *)at;
		int found = -1;

		if (move_pages(0, 1, &one, NULL, &found, 0) || found != node)
			elsewhere++;
	}
	return elsewhere;
}

/* Of a table in the heap, whose first and last page are others', too. */
static long whole_pages_elsewhere(const void *memory, size_t size, int node)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const uintptr_t first = round_up((uintptr_t)memory, page),
			end = ((uintptr_t)memory + size) & ~(page - 1);

	return end > first ? pages_elsewhere((const void *)first, end - first, node) : 0;
}

static void set_huge_pages(int node, int n)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), HUGE_PAGES, node, "nr_hugepages");
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%d\n", n);
	assert_int_equal(fclose(file), 0);
}

/* The CPUs that the thread of this name may use, as "0-3"; empty where there is none. */
static void cpus_of_thread(const char *name, char *cpus, size_t size)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], line[256], wanted[64];

	snprintf(wanted, sizeof(wanted), "Name:\t%s\n", name);
	cpus[0] = '\0';
	for (struct dirent *task; !cpus[0] && (task = readdir(tasks));) {
		FILE *status;
		bool is_it = false;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		status = fopen(path, "r");
		while (status && fgets(line, sizeof(line), status)) {
			is_it = is_it || !strcmp(line, wanted);
			if (is_it && sscanf(line, "Cpus_allowed_list: %63s", wanted) == 1)
				snprintf(cpus, size, "%s", wanted);
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
}

static int last_core_of(int node)
{
	struct topo topo;
	int core = -1;

	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	for (int i = 0; i < topo.n_cpus; i++)
		if (topo.node_of_cpu[topo.cpus[i]] == node)
			core = topo.cpus[i];
	assert_true(core >= 0);
	return core;
}

static const struct vbn_mode *find_mode(const struct vbn_mode *modes, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, name))
			return &modes[i];
	return NULL;
}

/* ---- workers, each on a core of its node, and what each has found of itself ---- */

struct made {
	struct vbn_queue *queue;
	struct vbn_export *exported;
	struct vbn_pool *pool, *other_pool;
};

struct found {
	int node;
	long worker, pool, other_pool, exported, rings;
	struct vbn_mode near_device, zone_node, page_size, control_core;
	struct made made;
};
static struct found found[4];

static void note(struct vbn_mode *kept, const struct vbn_mode *modes, int n, const char *name)
{
	const struct vbn_mode *mode = find_mode(modes, n, name);

	if (mode)
		*kept = *mode;
}

/* Pages of its rings and tables that are not on the node. */
static void note_queue(struct found *here, struct vbn_queue *queue, int node)
{
	struct vbn_mode modes[48];
	int n = vbn_queue_modes(queue, modes, ARRAY_SIZE(modes));

	note(&here->near_device, modes, n, "near_device");
	if (!strcmp(info.driver, "mlx5")) {
		const struct mlx5_queue *mq = mlx5_queue(queue);

		here->rings = whole_pages_elsewhere(mq->sq.wqes, (mq->sq.mask + 1ul) * 64, node) +
			whole_pages_elsewhere(
				mq->sq.slots, (mq->sq.mask + 1ul) * sizeof(*mq->sq.slots), node) +
			whole_pages_elsewhere(
				mq->rq->wqes, (size_t)mq->rq->depth << mq->rq->log2_stride, node);
	} else {
		const struct verbs_queue *vq = verbs_queue(queue);

		here->rings = whole_pages_elsewhere(
				      vq->sq.wrs, (vq->sq.mask + 1ul) * sizeof(*vq->sq.wrs), node) +
			whole_pages_elsewhere(
				vq->rq->wrs, (vq->rq->mask + 1ul) * sizeof(*vq->rq->wrs), node);
	}
}

/* When all have looked: memory that another worker's queue has freed is on that one's node. */
static void end(struct vbn_worker *worker, void *arg)
{
	const struct found *here = arg;

	(void)worker;
	vbn_queue_destroy(here->made.queue);
	vbn_export_destroy(here->made.exported);
	vbn_pool_destroy(here->made.other_pool);
	vbn_pool_destroy(here->made.pool);
}

static int look(struct found *here, struct vbn_worker *worker, int node)
{
	struct vbn_pool_conf small = {.n_bufs = 3000, .data_size = 1024, .name = "own"},
			     other = small;
	struct vbn_queue_conf conf = {.tx_depth = 1024, .rx_depth = 1024};
	struct vbn_pool *pool = NULL, *other_pool = NULL;
	struct vbn_export *exported = NULL;
	struct vbn_queue *queue = NULL;
	struct vbn_mode modes[16];
	int ret, n;

	other.node = (struct vbn_num)VBN_NUM((uint32_t)(1 - node));
	ret = vbn_pool_create(&small, &pool);
	if (!ret)
		ret = vbn_pool_create(&other, &other_pool);
	if (!ret)
		ret = vbn_export_create(port,
			&(struct vbn_export_conf){.size = 1 << 20, .access = VBN_REMOTE_WRITE},
			&exported);
	conf.rx_pool = pool;
	if (!ret)
		ret = vbn_queue_create(worker, port, &conf, &queue);
	if (ret)
		return ret;
	here->worker = pages_elsewhere(worker, 4096, node);
	here->pool = pages_elsewhere(pool->zone->base, pool->zone->size, node);
	here->other_pool =
		pages_elsewhere(other_pool->zone->base, other_pool->zone->size, 1 - node);
	here->exported =
		pages_elsewhere(vbn_export_addr(exported), vbn_export_size(exported), node);
	note_queue(here, queue, node);
	n = vbn_zone_modes(pool->zone, modes, ARRAY_SIZE(modes));
	note(&here->zone_node, modes, n, "zone_node");
	note(&here->page_size, modes, n, "page_size");
	here->made = (struct made){queue, exported, pool, other_pool};
	return vbn_worker_add_exit(worker, end, here);
}

static int set_up(struct vbn_worker *worker, void *arg)
{
	struct found *here = &found[vbn_worker_index(worker)];

	(void)arg;
	here->node = vbn_worker_node(worker);
	vbn_worker_done(worker);
	return look(here, worker, here->node);
}

static void run_on(const char *cores)
{
	memset(found, 0, sizeof(found));
	assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cores}, set_up, NULL), 0);
}

/* One on each node: worker i on node i. */
static void run_on_both_nodes(void)
{
	char cores[32];

	snprintf(cores, sizeof(cores), "%d,%d", last_core_of(0), last_core_of(1));
	run_on(cores);
}

/* ---- tests ---- */

static void a_port_is_on_the_node_of_its_device(void **state)
{
	struct vbn_mode modes[32];
	const struct vbn_mode *mode;
	char text[16];

	(void)state;
	assert_int_equal(info.node, near_node);
	mode = find_mode(modes, vbn_port_modes(port, modes, ARRAY_SIZE(modes)), "device_node");
	assert_non_null(mode);
	snprintf(text, sizeof(text), "%d", near_node);
	assert_string_equal(mode->effective, text);
}

static void cores_near_it_are_of_its_node(void **state)
{
	struct topo topo;
	int cores[8], n = vbn_cores_near(info.node, cores, ARRAY_SIZE(cores));

	(void)state;
	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	assert_int_equal(topo.n_nodes, NODES);
	assert_int_equal(n, topo.n_cpus);
	for (int i = 0; i < n; i++)
		assert_int_equal(topo.node_of_cpu[cores[i]], i < n / 2 ? near_node : far_node);
	/* any node will do, but one */
	vbn_cores_near(-1, cores, 2);
	assert_int_equal(topo.node_of_cpu[cores[0]], topo.node_of_cpu[cores[1]]);
}

static void what_a_worker_uses_is_on_its_node(void **state)
{
	(void)state;
	run_on_both_nodes();
	for (int node = 0; node < NODES; node++) {
		assert_int_equal(found[node].node, node);
		assert_int_equal(found[node].worker, 0);
		assert_int_equal(found[node].pool, 0);
		assert_int_equal(found[node].other_pool, 0);
		assert_int_equal(found[node].exported, 0);
		assert_int_equal(found[node].rings, 0);
		assert_string_equal(found[node].zone_node.effective, node ? "1" : "0");
	}
}

static void a_worker_far_from_the_device_is_told(void **state)
{
	(void)state;
	run_on_both_nodes();
	assert_string_equal(found[near_node].near_device.effective, "yes");
	assert_string_equal(found[far_node].near_device.effective, "no");
	assert_has(found[far_node].near_device.why,
		"the device is on node 1 and the worker on node 0");
}

static void huge_pages_are_taken_on_each_node(void **state)
{
	(void)state;
	for (int node = 0; node < NODES; node++)
		set_huge_pages(node, 12);
	run_on_both_nodes();
	for (int node = 0; node < NODES; node++) {
		set_huge_pages(node, 0);
		assert_string_equal(found[node].page_size.effective, "2 MiB");
		assert_int_equal(found[node].pool, 0);
		assert_int_equal(found[node].other_pool, 0);
	}
}

/* Those of another node are no help: a zone of these pages is bound to its node. */
static void huge_pages_missing_on_one_node_are_said(void **state)
{
	struct vbn_zone_conf conf = {.size = 3 * PAGE_2M, .pages = VBN_PAGES_2M, .name = "far"};
	struct vbn_zone *zone;

	(void)state;
	set_huge_pages(0, 1);
	set_huge_pages(1, 12);
	conf.node = (struct vbn_num)VBN_NUM(0);
	unit_catch_log();
	assert_int_equal(vbn_zone_create(&conf, &zone), -ENOMEM);
	assert_logged("node 0 needs 3 pages of 2 MiB and has 1 free; node 1 has 12");
	assert_logged(
		"echo 3 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
	conf.node = (struct vbn_num)VBN_NUM(1);
	assert_int_equal(vbn_zone_create(&conf, &zone), 0);
	assert_int_equal(pages_elsewhere(zone->base, zone->size, 1), 0);
	vbn_zone_destroy(zone);
	run_on_both_nodes();
	assert_string_equal(found[1].page_size.effective, "2 MiB");
	assert_has(found[0].page_size.effective, "transparent");
	assert_has(found[0].page_size.why, "pages of 2 MiB and has 1 free; node 1 has ");
	assert_int_equal(found[0].pool, 0);
	for (int node = 0; node < NODES; node++)
		set_huge_pages(node, 0);
}

/* It takes the lowest core that no worker has, whichever node that is of; where none is left it
 * floats. */
static int note_control(struct vbn_worker *worker, void *cpus)
{
	struct vbn_mode modes[16];
	int n = vbn_worker_modes(worker, modes, ARRAY_SIZE(modes));

	if (!vbn_worker_index(worker)) {
		cpus_of_thread("vbn-control", cpus, 64);
		note(&found[0].control_core, modes, n, "control_core");
	}
	vbn_worker_done(worker);
	return 1;
}

/* Looked at from the loop: all workers are there. */
static int watch_control(struct vbn_worker *worker, void *cpus)
{
	return vbn_worker_add_poll(worker, note_control, cpus);
}

static void the_control_thread_keeps_off(void **state)
{
	static const struct {
		const char *cores, *control, *mode;
	} cases[] = {
		{"1,3", "0", "0"},
		{"0,2", "1", "1"},
		{"0,1", "2", "2"},
		{"0-3", "0-3", "not pinned"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char cpus[64];

		memset(found, 0, sizeof(found));
		assert_int_equal(vbn_run(&(struct vbn_run_conf){.cores = cases[i].cores},
					 watch_control, cpus),
			0);
		assert_string_equal(found[0].control_core.effective, cases[i].mode);
		assert_string_equal(cpus, cases[i].control);
	}
}

static int open_port(void **state)
{
	const char *device = getenv("VBN_TEST_DEVICE"), *node = getenv("VBN_TEST_NODE");

	(void)state;
	near_node = node ? atoi(node) : 1;
	far_node = 1 - near_node;
	unit_catch_log();
	if (vbn_init(NULL, NULL) || vbn_port_open(device ? device : "rxe2", NULL, &port)) {
		print_error("%s", unit_log);
		return -1;
	}
	vbn_port_info(port, &info);
	return 0;
}

static int close_port(void **state)
{
	(void)state;
	vbn_port_close(port);
	vbn_fini();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_is_on_the_node_of_its_device),
		cmocka_unit_test(cores_near_it_are_of_its_node),
		cmocka_unit_test(what_a_worker_uses_is_on_its_node),
		cmocka_unit_test(a_worker_far_from_the_device_is_told),
		cmocka_unit_test(huge_pages_are_taken_on_each_node),
		cmocka_unit_test(huge_pages_missing_on_one_node_are_said),
		cmocka_unit_test(the_control_thread_keeps_off),
	};

	return cmocka_run_group_tests(tests, open_port, close_port);
}
