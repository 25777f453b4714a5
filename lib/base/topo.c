/* topo.c - allowed CPUs, NUMA nodes of CPUs and devices, lists of CPUs as text */

#include "base/base.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <numa.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KERNEL_CPUS 8192 /* the most that any kernel is built for: a smaller mask is refused */

/* ---- files of sysfs and proc ---- */

/* Reads a small file whole; false where there is none. Plain open and read: what stands in for
 * sysfs answers those. */
static bool read_text(const char *root, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	size_t len = 0;
	ssize_t got;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", root ? root : "", file) >= (int)sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (len < size - 1 && (got = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)got;
	close(fd);
	text[len] = '\0';
	return true;
}

/* Reads a file that holds a list of CPUs: how many, 0 where it is empty, -ENOENT where there is
 * none, or -EINVAL. */
static int read_cpulist(const char *root, const char *file, int *cpus)
{
	char text[4096];
	const char *why;
	int n;

	if (!read_text(root, file, text, sizeof(text)))
		return -ENOENT;
	if (text[0] == '\0' || text[0] == '\n')
		return 0;
	n = vbn__cpulist_parse(text, cpus, TOPO_MAX_CPUS, &why);
	if (n < 0)
		return fail(EINVAL,
			"topology: cannot read %s/%s as a list of CPUs: %s; correct the tree under that root",
			root ? root : "", file, why);
	return n;
}

/* ---- lists ---- */

/* One number of a list; *text goes behind it. */
static int parse_cpu(const char **text, const char **why)
{
	int cpu = 0;

	if (!isdigit((unsigned char)**text)) {
		*why = "not a number";
		return -EINVAL;
	}
	for (; isdigit((unsigned char)**text); (*text)++) {
		cpu = cpu * 10 + (**text - '0');
		if (cpu >= TOPO_MAX_CPUS) {
			*why = "a CPU is above the maximum of 1023";
			return -EINVAL;
		}
	}
	return cpu;
}
static_assert(TOPO_MAX_CPUS == 1024, "the sentence in parse_cpu names the maximum");

/* One element, "2" or "2-3". */
static int parse_range(const char **text, int *first, int *last, const char **why)
{
	*first = *last = parse_cpu(text, why);
	if (*first < 0)
		return -EINVAL;
	if (**text != '-')
		return 0;
	(*text)++;
	if (**text == '\0' || **text == '\n' || **text == ',') {
		*why = "a range has no end";
		return -EINVAL;
	}
	*last = parse_cpu(text, why);
	if (*last < 0)
		return -EINVAL;
	if (*last < *first) {
		*why = "a range ends before it starts";
		return -EINVAL;
	}
	return 0;
}

static int add_range(
	cpu_set_t *seen, int first, int last, int *cpus, int n, int max_cpus, const char **why)
{
	for (int cpu = first; cpu <= last; cpu++) {
		if (CPU_ISSET((size_t)cpu, seen)) {
			*why = "a CPU is listed twice";
			return -EINVAL;
		}
		if (n == max_cpus) {
			*why = "more CPUs are listed than there is room for";
			return -EINVAL;
		}
		CPU_SET((size_t)cpu, seen);
		cpus[n++] = cpu;
	}
	return n;
}
static_assert(CPU_SETSIZE >= TOPO_MAX_CPUS, "every CPU of a list fits a cpu_set_t");

int vbn__cpulist_parse(const char *text, int *cpus, int max_cpus, const char **why)
{
	cpu_set_t seen;
	int first, last, n = 0;

	CPU_ZERO(&seen);
	*why = "the list is empty";
	if (*text == '\0' || *text == '\n')
		return -EINVAL;
	if (*text == '-') {
		*why = "a range has no start";
		return -EINVAL;
	}
	for (;;) {
		if (parse_range(&text, &first, &last, why))
			return -EINVAL;
		n = add_range(&seen, first, last, cpus, n, max_cpus, why);
		if (n < 0 || *text == '\0' || !strcmp(text, "\n"))
			return n;
		if (*text++ != ',') {
			*why = "not a number";
			return -EINVAL;
		}
		if (*text == '\0' || *text == '\n' || *text == ',') {
			*why = "a comma has no CPU behind it";
			return -EINVAL;
		}
	}
}

char *vbn__cpulist_format(const int *cpus, int n, char *text, size_t size)
{
	size_t len = 0;
	int next;

	if (size)
		text[0] = '\0';
	for (int i = 0; i < n && len < size; i = next) {
		for (next = i + 1; next < n && cpus[next] == cpus[next - 1] + 1;)
			next++;
		len += (size_t)snprintf(text + len, size - len, "%s%d", i ? "," : "", cpus[i]);
		if (next - i > 1 && len < size)
			len += (size_t)snprintf(text + len, size - len, "-%d", cpus[next - 1]);
	}
	return text;
}

/* ---- allowed CPUs ---- */

static void keep_cpus(struct topo *topo, const cpu_set_t *allowed)
{
	for (int cpu = 0; cpu < TOPO_MAX_CPUS; cpu++)
		if (CPU_ISSET((size_t)cpu, allowed))
			topo->cpus[topo->n_cpus++] = (short)cpu;
}

static int read_affinity(cpu_set_t *allowed)
{
	unsigned long mask[KERNEL_CPUS / 8 / sizeof(unsigned long)] = {0};

	if (sched_getaffinity(0, sizeof(mask), (cpu_set_t *)(void *)mask))
		return fail(errno,
			"topology: cannot read the CPUs this thread may use: sched_getaffinity: %s; allow that call",
			strerror(errno));
	memcpy(allowed, mask, sizeof(*allowed));
	return 0;
}

static void set_of(cpu_set_t *set, const int *cpus, int n)
{
	CPU_ZERO(set);
	for (int i = 0; i < n; i++)
		CPU_SET((size_t)cpus[i], set);
}

/* "Cpus_allowed_list:\t0-1" of proc's status, as read_cpulist(). */
static int read_allowed_list(const char *root, int *cpus)
{
	static const char key[] = "Cpus_allowed_list:";
	char text[8192], *at, *end;
	const char *why;
	int n;

	if (!read_text(root, "proc/self/status", text, sizeof(text)))
		return -ENOENT;
	at = strstr(text, key);
	if (!at)
		return -ENOENT;
	at += strlen(key);
	at += strspn(at, " \t");
	end = strchr(at, '\n');
	if (end)
		*end = '\0';
	n = vbn__cpulist_parse(at, cpus, TOPO_MAX_CPUS, &why);
	if (n < 0)
		return fail(EINVAL,
			"topology: cannot read %s of %s/proc/self/status: %s; correct the tree under that root",
			key, root, why);
	return n;
}

/* A machine described under a root: what is online there and allowed there; what it does not say is
 * no bound. */
static int read_described_cpus(const char *root, cpu_set_t *allowed)
{
	int cpus[TOPO_MAX_CPUS];
	cpu_set_t bound;
	bool described = false;
	int n;

	memset(allowed, 0xff, sizeof(*allowed));
	n = read_cpulist(root, "sys/devices/system/cpu/online", cpus);
	if (n >= 0) {
		set_of(allowed, cpus, n);
		described = true;
	} else if (n != -ENOENT) {
		return n;
	}
	n = read_allowed_list(root, cpus);
	if (n >= 0) {
		set_of(&bound, cpus, n);
		CPU_AND(allowed, allowed, &bound);
		described = true;
	} else if (n != -ENOENT) {
		return n;
	}
	return described ? 0 : read_affinity(allowed);
}

/* ---- nodes ---- */

/* libnuma reads a node's CPUs when it is first asked for them, and keeps them where all threads look. */
static pthread_mutex_t libnuma_lock = PTHREAD_MUTEX_INITIALIZER;

static void nodes_of_libnuma(struct topo *topo)
{
	if (numa_available() < 0)
		return;
	topo->n_nodes = numa_max_node() + 1;
	pthread_mutex_lock(&libnuma_lock);
	for (int i = 0; i < topo->n_cpus; i++)
		topo->node_of_cpu[topo->cpus[i]] = (short)max(numa_node_of_cpu(topo->cpus[i]), 0);
	pthread_mutex_unlock(&libnuma_lock);
}

static int nodes_of_sysfs(const char *root, struct topo *topo)
{
	int cpus[TOPO_MAX_CPUS];

	for (int node = 0; node < TOPO_MAX_NODES; node++) {
		char file[64];
		int n;

		snprintf(file, sizeof(file), "sys/devices/system/node/node%d/cpulist", node);
		n = read_cpulist(root, file, cpus);
		if (n == -ENOENT)
			continue;
		if (n < 0)
			return n;
		topo->n_nodes = node + 1;
		for (int i = 0; i < n; i++)
			topo->node_of_cpu[cpus[i]] = (short)node;
	}
	return 0;
}

int vbn__topo_read(const char *root, struct topo *topo)
{
	cpu_set_t allowed;
	int ret;

	memset(topo, 0, sizeof(*topo));
	topo->n_nodes = 1;
	ret = root ? read_described_cpus(root, &allowed) : read_affinity(&allowed);
	if (ret)
		return ret;
	keep_cpus(topo, &allowed);
	if (root)
		return nodes_of_sysfs(root, topo);
	nodes_of_libnuma(topo);
	return 0;
}

bool vbn__topo_cpu_allowed(const struct topo *topo, int cpu)
{
	for (int i = 0; i < topo->n_cpus; i++)
		if (topo->cpus[i] == cpu)
			return true;
	return false;
}

/* ---- nodes of devices ---- */

#define DEVICE_DEPTH 8 /* a device below the PCI function: virtio's, a USB adapter's */

/* The node that a directory of sysfs names in a file "numa_node"; or -1, with *found false where it
 * has none. */
static int read_node(const char *root, const char *dir, bool *found)
{
	char file[PATH_MAX], text[32], *end;
	long node;

	*found = false;
	if (snprintf(file, sizeof(file), "%s/numa_node", dir) >= (int)sizeof(file))
		return -1;
	*found = read_text(root, file, text, sizeof(text));
	if (!*found)
		return -1;
	node = strtol(text, &end, 10);
	if (end == text || node < 0 || node >= TOPO_MAX_NODES)
		return -1;
	return (int)node;
}

/* The node of the device behind a class path, or of the nearest one above it that names one: behind
 * a symbolic link "/.." is its target's parent. */
static int node_behind(const char *root, const char *class_path)
{
	char dir[PATH_MAX];
	bool found = false;
	int node = -1;
	size_t len;

	len = (size_t)snprintf(dir, sizeof(dir), "sys/%s/device", class_path);
	for (int i = 0; i < DEVICE_DEPTH && !found && len + 3 < sizeof(dir); i++) {
		node = read_node(root, dir, &found);
		memcpy(dir + len, "/..", sizeof("/.."));
		len += 3;
	}
	return node;
}

/* Whether a file of a class path names a network interface: its class path. */
static bool read_interface(
	const char *root, const char *class_path, const char *file, char *interface, size_t size)
{
	char path[PATH_MAX], text[64];

	if (snprintf(path, sizeof(path), "sys/%s/%s", class_path, file) >= (int)sizeof(path) ||
		!read_text(root, path, text, sizeof(text)))
		return false;
	text[strcspn(text, "\n")] = '\0';
	if (!text[0] || strchr(text, '/'))
		return false;
	snprintf(interface, size, "class/net/%s", text);
	return true;
}

int vbn__topo_device_node(const char *root, const char *class_path)
{
	char interface[96];
	int node = node_behind(root, class_path);

	if (node >= 0)
		return node;
	if (read_interface(root, class_path, "parent", interface, sizeof(interface)) ||
		read_interface(root, class_path, "ports/1/gid_attrs/ndevs/0", interface,
			sizeof(interface)))
		return node_behind(root, interface);
	return -1;
}
