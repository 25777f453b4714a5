/* topo.h - which CPUs this process may use, and which NUMA node CPUs and devices belong to
 *
 * CPUs come from the calling thread's affinity, nodes from libnuma. A test or `doctor --root`
 * describes another machine by a root of its own, and then nothing of this one is looked at:
 *
 *   ROOT/sys/devices/system/cpu/online           the CPUs there are
 *   ROOT/proc/self/status, Cpus_allowed_list     those of them that are allowed
 *   ROOT/sys/devices/system/node/nodeN/cpulist   the nodes
 *
 * Each may be missing: no bound, no bound, one node. Only where both of the first two are missing
 * do the CPUs come from this thread's affinity. A machine that says nothing is one node, 0. Any
 * thread; no locks; nothing cached.
 */
#ifndef VBN_TOPO_H
#define VBN_TOPO_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#define TOPO_MAX_CPUS  1024
#define TOPO_MAX_NODES 1024

struct topo {
	int n_cpus;                       /* allowed CPUs */
	int n_nodes;                      /* the highest node's number and one; at least 1 */
	short cpus[TOPO_MAX_CPUS];        /* the allowed CPUs in ascending order */
	short node_of_cpu[TOPO_MAX_CPUS]; /* by CPU number; 0 where unknown */
};

/* Reads the topology. `root` replaces "/" for sysfs (NULL: the machine itself). 0 or -errno. */
int vbn__topo_read(const char *root, struct topo *topo);

bool vbn__topo_cpu_allowed(const struct topo *topo, int cpu);

/* The node of the device behind a sysfs class path such as "class/infiniband/mlx5_0": that of the PCI
 * function that it is or hangs on. A software RDMA device (rxe) is where its network interface is. -1
 * where sysfs says none. */
int vbn__topo_device_node(const char *root, const char *class_path);

/* Parses "0,2-3" into cpus[], in the order given (a line end behind it is allowed); returns how
 * many, or -EINVAL with *why set to what is wrong with it (a static clause such as "a range has no
 * end"). An empty list is an error. */
int vbn__cpulist_parse(const char *text, int *cpus, int max, const char **why);

/* Writes the list as "0,2-3", in the order given, cut at size. Returns text. */
char *vbn__cpulist_format(const int *cpus, int n, char *text, size_t size);

#endif
