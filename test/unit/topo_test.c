/* topo_test.c - CPUs, nodes and devices of this machine and of machines described under a root;
 * lists of CPUs */

#include "unit.h"

#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>

/* ---- a described machine ---- */

static char root[64];

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/topo_test.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int remove_root(void **state)
{
	(void)state;
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void describe(const char *file, const char *text)
{
	char path[256];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", root, file);
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0755);
		*at = '/';
	}
	out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static void two_nodes(void **state)
{
	struct topo topo;

	(void)state;
	describe("sys/devices/system/cpu/online", "0-7\n");
	describe("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
	describe("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
	assert_int_equal(vbn__topo_read(root, &topo), 0);
	assert_int_equal(topo.n_nodes, 2);
	assert_int_equal(topo.n_cpus, 8);
	for (int cpu = 0; cpu < 8; cpu++) {
		assert_int_equal(topo.cpus[cpu], cpu);
		assert_int_equal(topo.node_of_cpu[cpu], cpu & 2 ? 1 : 0);
		assert_true(vbn__topo_cpu_allowed(&topo, cpu));
	}
	assert_false(vbn__topo_cpu_allowed(&topo, 8));
	assert_false(vbn__topo_cpu_allowed(&topo, -1));
}

static void allowed_is_bounded_by_online_and_status(void **state)
{
	struct topo topo;

	(void)state;
	describe("sys/devices/system/cpu/online", "0-5\n");
	describe("proc/self/status",
		"Name:\tx\nCpus_allowed:\tffff\nCpus_allowed_list:\t4-900\nMems_allowed_list:\t0\n");
	assert_int_equal(vbn__topo_read(root, &topo), 0);
	assert_int_equal(topo.n_cpus, 2);
	assert_int_equal(topo.cpus[0], 4);
	assert_int_equal(topo.cpus[1], 5);
	assert_int_equal(topo.n_nodes, 1);
}

/* A node of memory alone has an empty list; numbers of nodes may have holes. */
static void nodes_without_cpus_and_holes(void **state)
{
	struct topo topo;

	(void)state;
	describe("sys/devices/system/cpu/online", "0-1\n");
	describe("sys/devices/system/node/node1/cpulist", "\n");
	describe("sys/devices/system/node/node4/cpulist", "1\n");
	assert_int_equal(vbn__topo_read(root, &topo), 0);
	assert_int_equal(topo.n_nodes, 5);
	assert_int_equal(topo.node_of_cpu[0], 0);
	assert_int_equal(topo.node_of_cpu[1], 4);
}

static void nothing_described(void **state)
{
	struct topo topo, here;

	(void)state;
	assert_int_equal(vbn__topo_read(NULL, &here), 0);
	assert_int_equal(vbn__topo_read(root, &topo), 0);
	assert_int_equal(topo.n_nodes, 1);
	assert_int_equal(topo.n_cpus, here.n_cpus); /* this thread's affinity */
}

static void bad_tree_is_an_error(void **state)
{
	struct topo topo;

	(void)state;
	unit_catch_log();
	describe("sys/devices/system/cpu/online", "0-1\n");
	describe("sys/devices/system/node/node0/cpulist", "0-\n");
	assert_int_equal(vbn__topo_read(root, &topo), -EINVAL);
	assert_logged("node0/cpulist");
	assert_logged("a range has no end");
}

static void device_nodes(void **state)
{
	(void)state;
	describe("sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
	describe("sys/class/infiniband/mlx5_1/device/numa_node", "-1\n");
	describe("sys/class/infiniband/mlx5_2/device/numa_node", "soon\n");
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/mlx5_0"), 1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/mlx5_1"), -1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/mlx5_2"), -1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/mlx5_3"), -1);
}

/* As sysfs has it: a class directory leads by a link into the tree of devices. */
static void link_device(const char *class_path, const char *target)
{
	char link[256];

	snprintf(link, sizeof(link), "%s/sys/%s/x", root, class_path);
	describe(link + strlen(root) + 1, "");
	strcpy(strrchr(link, '/'), "/device");
	assert_int_equal(symlink(target, link), 0);
}

/* Soft-RoCE is where its network interface is, and a virtio device where its PCI function is. */
static void software_device_nodes(void **state)
{
	(void)state;
	describe("sys/devices/pci0000:40/0000:41:00.0/numa_node", "1\n");
	describe("sys/devices/pci0000:40/0000:41:00.0/virtio2/vendor", "0x1af4\n");
	link_device("class/net/eth0", "../../../devices/pci0000:40/0000:41:00.0/virtio2");
	describe("sys/class/net/veth0/mtu", "1500\n");
	describe("sys/class/infiniband/rxe2/parent", "eth0\n");
	describe("sys/class/infiniband/rxe3/ports/1/gid_attrs/ndevs/0", "eth0\n");
	describe("sys/class/infiniband/rxe0/parent", "veth0\n");
	describe("sys/class/infiniband/rxe4/parent", "../infiniband/rxe2\n");
	describe("sys/class/infiniband/siw0/fw_ver", "0\n");
	assert_int_equal(vbn__topo_device_node(root, "class/net/eth0"), 1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/rxe2"), 1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/rxe3"), 1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/rxe0"), -1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/rxe4"), -1);
	assert_int_equal(vbn__topo_device_node(root, "class/infiniband/siw0"), -1);
}

static void this_machine(void **state)
{
	cpu_set_t allowed;
	struct topo topo;

	(void)state;
	assert_int_equal(vbn__topo_read(NULL, &topo), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	assert_int_equal(topo.n_cpus, CPU_COUNT(&allowed));
	assert_true(topo.n_nodes >= 1);
	for (int i = 0; i < topo.n_cpus; i++) {
		assert_true(CPU_ISSET((size_t)topo.cpus[i], &allowed));
		assert_true(topo.node_of_cpu[topo.cpus[i]] < topo.n_nodes);
	}
}

/* The first of all readers, at once: libnuma, too, is asked for the first time. */
enum { READERS = 4 };

static pthread_barrier_t readers;

static void *read_at_once(void *topo)
{
	pthread_barrier_wait(&readers);
	return vbn__topo_read(NULL, topo) ? NULL : topo;
}

static void several_threads(void **state)
{
	struct topo topos[READERS];
	pthread_t threads[READERS];
	void *read;

	(void)state;
	pthread_barrier_init(&readers, NULL, READERS);
	for (int i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_at_once, &topos[i]), 0);
	for (int i = 0; i < READERS; i++) {
		pthread_join(threads[i], &read);
		assert_ptr_equal(read, &topos[i]);
		assert_memory_equal(&topos[i], &topos[0], sizeof(topos[0]));
	}
	pthread_barrier_destroy(&readers);
}

/* ---- lists ---- */

static void good_lists(void **state)
{
	static const struct {
		const char *text;
		int n, cpus[8];
	} cases[] = {
		{"0", 1, {0}},
		{"0,2-3", 3, {0, 2, 3}},
		{"3,1,0", 3, {3, 1, 0}},
		{"5-5", 1, {5}},
		{"1023", 1, {1023}},
		{"0-7", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
		{"007", 1, {7}},
		{"1\n", 1, {1}},
	};
	const char *why;
	int cpus[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(vbn__cpulist_parse(cases[i].text, cpus, 8, &why), cases[i].n);
		assert_memory_equal(cpus, cases[i].cpus, (size_t)cases[i].n * sizeof(int));
	}
}

static void bad_lists(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"", "the list is empty"},
		{"\n", "the list is empty"},
		{"2-", "a range has no end"},
		{"2-,3", "a range has no end"},
		{"-2", "a range has no start"},
		{"3-2", "a range ends before it starts"},
		{"1,1", "a CPU is listed twice"},
		{"0-3,2", "a CPU is listed twice"},
		{"x", "not a number"},
		{"1x", "not a number"},
		{"1, 2", "not a number"},
		{"0-3:2", "not a number"},
		{"1-2-3", "not a number"},
		{"0x1", "not a number"},
		{"1\n2", "not a number"},
		{"1,", "a comma has no CPU behind it"},
		{",1", "not a number"},
		{"1,,2", "a comma has no CPU behind it"},
		{"1024", "a CPU is above the maximum of 1023"},
		{"0-1024", "a CPU is above the maximum of 1023"},
		{"99999999999999999999", "a CPU is above the maximum of 1023"},
		{"0-8", "more CPUs are listed than there is room for"},
	};
	const char *why;
	int cpus[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(vbn__cpulist_parse(cases[i].text, cpus, 8, &why), -EINVAL);
		assert_string_equal(why, cases[i].why);
	}
}

static void formatting(void **state)
{
	const int cpus[] = {0, 2, 3, 5, 6, 7, 4};
	char text[32];

	(void)state;
	assert_string_equal(vbn__cpulist_format(cpus, 7, text, sizeof(text)), "0,2-3,5-7,4");
	assert_string_equal(vbn__cpulist_format(cpus, 1, text, sizeof(text)), "0");
	assert_string_equal(vbn__cpulist_format(cpus, 0, text, sizeof(text)), "");
	for (size_t size = 1; size <= 12; size++) {
		memset(text, '#', sizeof(text));
		vbn__cpulist_format(cpus, 7, text, size);
		assert_int_equal(strlen(text), size - 1);
		assert_memory_equal(text, "0,2-3,5-7,4", size - 1);
		assert_int_equal(text[size], '#');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_threads),
		cmocka_unit_test_setup_teardown(two_nodes, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			allowed_is_bounded_by_online_and_status, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			nodes_without_cpus_and_holes, make_root, remove_root),
		cmocka_unit_test_setup_teardown(nothing_described, make_root, remove_root),
		cmocka_unit_test_setup_teardown(bad_tree_is_an_error, make_root, remove_root),
		cmocka_unit_test_setup_teardown(device_nodes, make_root, remove_root),
		cmocka_unit_test_setup_teardown(software_device_nodes, make_root, remove_root),
		cmocka_unit_test(this_machine),
		cmocka_unit_test(good_lists),
		cmocka_unit_test(bad_lists),
		cmocka_unit_test(formatting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
