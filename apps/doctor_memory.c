/* doctor_memory.c - checks of memory: what may be locked, huge pages, who moves pages about */
#include "doctor.h"

#include <ctype.h>
#include <stdlib.h>

#define MIB           (1ull << 20)
#define CAP_IPC_LOCK  14
#define MEMLOCK_LEAST (1024 * MIB) /* rings, pools and exports of some workers */
#define PAGES_2M      64

/* ---- memlock ---- */

/* Bytes of the soft limit; UINT64_MAX: unlimited. */
static int read_memlock(const struct machine *machine, uint64_t *limit)
{
	static const char name[] = "Max locked memory";
	char text[4096];
	const char *at;

	if (root_bytes(&machine->root, text, sizeof(text), "proc/self/limits") < 0)
		return -ENOENT;
	at = strstr(text, name);
	if (!at)
		return -EINVAL;
	at += sizeof(name) - 1;
	at += strspn(at, " ");
	*limit = strncmp(at, "unlimited", 9) ? strtoull(at, NULL, 10) : UINT64_MAX;
	return isdigit((unsigned char)*at) || *at == 'u' ? 0 : -EINVAL;
}

/* The capability counts in the first user namespace alone: one that maps all numbers to themselves. */
static bool in_first_user_namespace(const struct machine *machine)
{
	char text[128];
	unsigned int inside, outside, n;

	if (root_line(&machine->root, text, sizeof(text), "proc/self/uid_map"))
		return true;
	return sscanf(text, "%u %u %u", &inside, &outside, &n) != 3 ||
		(!inside && !outside && n == UINT32_MAX);
}

static void check_memlock(const struct machine *machine, struct finding *finding)
{
	uint64_t limit;
	bool known;

	wanted(finding, "unlimited, or at least %llu MiB: a NIC's driver locks what it registers",
		MEMLOCK_LEAST / MIB);
	fix(finding, "shell",
		"echo '* - memlock unlimited' > /etc/security/limits.d/verbena.conf; ulimit -l unlimited # this shell; others log in anew");
	fix(finding, "systemd", "LimitMEMLOCK=infinity under [Service] of the unit");
	fix(finding, "container", "docker run --ulimit memlock=-1 ...");
	if (read_memlock(machine, &limit)) {
		skipped(finding, "/proc/self/limits does not tell");
	} else if (limit == UINT64_MAX) {
		found(finding, FINDING_OK, "unlimited");
	} else if (limit >= MEMLOCK_LEAST) {
		found(finding, FINDING_OK, "%llu MiB", (unsigned long long)(limit / MIB));
	} else if (machine_has_capability(machine, CAP_IPC_LOCK, &known) &&
		in_first_user_namespace(machine)) {
		found(finding, FINDING_OK, "%llu KiB, which CAP_IPC_LOCK lifts",
			(unsigned long long)(limit / 1024));
	} else {
		found(finding, machine->n_nics ? FINDING_FAIL : FINDING_WARN, "%llu KiB",
			(unsigned long long)(limit / 1024));
	}
}

/* ---- huge pages ---- */

struct huge {
	int64_t total, free;
};

/* Where the kernel has no nodes: of the machine. */
static int read_all_huge(const struct root *root, const char *size, struct huge *huge)
{
	int err = root_number(
		root, &huge->total, "sys/kernel/mm/hugepages/hugepages-%s/nr_hugepages", size);

	return err ? err
		   : root_number(root, &huge->free,
			     "sys/kernel/mm/hugepages/hugepages-%s/free_hugepages", size);
}

static int read_huge(const struct machine *machine, int node, const char *size, struct huge *huge)
{
	const struct root *root = &machine->root;
	int err = root_number(root, &huge->total,
		"sys/devices/system/node/node%d/hugepages/hugepages-%s/nr_hugepages", node, size);

	if (err == -ENOENT)
		return read_all_huge(root, size, huge);
	return err ? err
		   : root_number(root, &huge->free,
			     "sys/devices/system/node/node%d/hugepages/hugepages-%s/free_hugepages",
			     node, size);
}

/* "node 0: 64 of 128 free, node 1: none". */
static void list_huge(const struct machine *machine, const char *size, char *text, size_t room)
{
	size_t used = 0;
	struct huge all;

	*text = 0;
	if (!machine->n_nodes && !read_all_huge(&machine->root, size, &all))
		snprintf(
			text, room, "%lld of %lld free", (long long)all.free, (long long)all.total);
	for (int i = 0; i < machine->n_nodes && used < room; i++) {
		struct huge huge;

		if (read_huge(machine, machine->nodes[i], size, &huge))
			continue;
		used += (size_t)snprintf(text + used, room - used, "%snode %d: ", used ? ", " : "",
			machine->nodes[i]);
		if (used < room && huge.total)
			used += (size_t)snprintf(text + used, room - used, "%lld of %lld free",
				(long long)huge.free, (long long)huge.total);
		else if (used < room)
			used += (size_t)snprintf(text + used, room - used, "none");
	}
}

/* Of all nodes together. */
static int64_t all_pages(const struct machine *machine, const char *size)
{
	int64_t sum = 0;
	struct huge huge;

	if (!machine->n_nodes)
		return read_all_huge(&machine->root, size, &huge) ? 0 : huge.total;
	for (int i = 0; i < machine->n_nodes; i++)
		if (!read_huge(machine, machine->nodes[i], size, &huge))
			sum += huge.total;
	return sum;
}

/* What a pool is set to is its size with those that are in use: so what is short comes on top. */
static void fix_pages(const struct machine *machine, struct finding *finding, int node,
	const char *size, int64_t n)
{
	if (machine->n_nodes)
		fix(finding, "shell",
			"echo %lld > /sys/devices/system/node/node%d/hugepages/hugepages-%s/nr_hugepages",
			(long long)n, node, size);
	else
		fix(finding, "shell",
			"echo %lld > /sys/kernel/mm/hugepages/hugepages-%s/nr_hugepages",
			(long long)n, size);
}

static void check_pages_2m(const struct machine *machine, struct finding *finding)
{
	static const char size[] = "2048kB";
	int node = machine_home_node(machine);
	struct huge huge = {0};
	int err = read_huge(machine, node, size, &huge);
	int64_t more = huge.free < PAGES_2M ? PAGES_2M - huge.free : 0;
	/* The kernel deals what is new to the nodes in turn. */
	int64_t all = all_pages(machine, size) + more * (machine->n_nodes ? machine->n_nodes : 1);
	char text[400];

	wanted(finding, "at least %d free on node %d, which is the NIC's or the first", PAGES_2M,
		node);
	fix_pages(machine, finding, node, size, huge.total + more);
	fix(finding, "systemd",
		"echo 'vm.nr_hugepages=%lld' > /etc/sysctl.d/80-verbena.conf && systemctl restart systemd-sysctl",
		(long long)all);
	fix(finding, "container",
		"set them on its host; in Kubernetes: resources.limits.hugepages-2Mi: %dMi",
		2 * PAGES_2M);
	if (err) {
		skipped(finding,
			"node %d tells of no huge pages of 2 MiB: this kernel has none, or sysfs is not there",
			node);
		return;
	}
	list_huge(machine, size, text, sizeof(text));
	found(finding, huge.free < PAGES_2M ? FINDING_WARN : FINDING_OK, "%s", text);
}

/* Nobody needs them; those that are there should be to be had. */
static void check_pages_1g(const struct machine *machine, struct finding *finding)
{
	static const char size[] = "1048576kB";
	int node = machine_home_node(machine);
	struct huge huge = {0};
	int err = read_huge(machine, node, size, &huge);
	char text[400];

	wanted(finding,
		"none, or one free on node %d for --vbn-page-size=1G: end what holds them, or add one",
		node);
	fix_pages(machine, finding, node, size, huge.total + 1);
	if (err) {
		skipped(finding,
			"node %d tells of no huge pages of 1 GiB: the processor or kernel has none",
			node);
		return;
	}
	list_huge(machine, size, text, sizeof(text));
	found(finding, huge.total && !huge.free ? FINDING_WARN : FINDING_OK, "%s", text);
}

/* ---- who moves pages ---- */

static void check_thp(const struct machine *machine, struct finding *finding)
{
	char text[128];

	wanted(finding,
		"madvise: for who asks, as zones do where huge pages are short; always has the kernel "
		"compact memory under everybody");
	fix(finding, "shell", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
	fix(finding, "systemd",
		"echo 'w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise' > /etc/tmpfiles.d/verbena.conf && systemd-tmpfiles --create");
	fix(finding, "container", "on its host, as above");
	if (root_line(&machine->root, text, sizeof(text),
		    "sys/kernel/mm/transparent_hugepage/enabled"))
		skipped(finding, "this kernel has no transparent huge pages");
	else if (strstr(text, "[madvise]"))
		found(finding, FINDING_OK, "madvise");
	else
		found(finding, FINDING_WARN, "%s",
			strstr(text, "[always]")          ? "always"
				: strstr(text, "[never]") ? "never"
							  : text);
}

static void check_balancing(const struct machine *machine, struct finding *finding)
{
	int64_t on;

	wanted(finding, "0: it unmaps pages to see who uses them, and workers wait for that");
	fix(finding, "shell", "sysctl -w kernel.numa_balancing=0");
	fix(finding, "systemd",
		"echo 'kernel.numa_balancing=0' > /etc/sysctl.d/81-verbena.conf && systemctl restart systemd-sysctl");
	fix(finding, "container", "on its host, as above");
	if (machine->n_nodes < 2 ||
		root_number(&machine->root, &on, "proc/sys/kernel/numa_balancing"))
		skipped(finding, "%s",
			machine->n_nodes < 2 ? "there is one node"
					     : "this kernel has no balancing");
	else
		found(finding, on ? FINDING_WARN : FINDING_OK, "%lld", (long long)on);
}

static const struct check rows[] = {
	{"memlock", FOR_ALL, check_memlock},
	{"hugepages-2M", FOR_ALL, check_pages_2m},
	{"hugepages-1G", FOR_ALL, check_pages_1g},
	{"transparent-hugepages", FOR_ALL, check_thp},
	{"numa-balancing", FOR_ALL, check_balancing},
};

const struct checks memory_checks = {rows, ARRAY_SIZE(rows)};
