/* doctor_machine.c - what several checks need to know of a machine: its CPUs, nodes and NICs */
#include "doctor.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- NICs ---- */

static void read_netdev(const struct root *root, struct nic *nic);

static int add_nic(const struct root *root, const char *name, void *arg)
{
	struct machine *machine = arg;
	struct nic *nic = &machine->nics[machine->n_nics];
	char text[64];
	int64_t node;

	if (machine->n_nics == MAX_NICS)
		return 0;
	machine->n_nics++;
	*nic = (struct nic){.node = -1};
	snprintf(nic->name, sizeof(nic->name), "%s", name);
	if (!root_number(root, &node, "sys/class/infiniband/%s/device/numa_node", name))
		nic->node = (int)node;
	root_link_name(root, nic->bdf, sizeof(nic->bdf), "sys/class/infiniband/%s/device", name);
	if (!root_line(root, text, sizeof(text), "sys/class/infiniband/%s/ports/1/state", name))
		nic->up = strstr(text, "ACTIVE") != NULL;
	read_netdev(root, nic);
	if (root_line(root, text, sizeof(text), "sys/class/infiniband/%s/ports/1/link_layer", name))
		nic->ethernet = *nic->netdev != 0;
	else
		nic->ethernet = !strcmp(text, "Ethernet");
	return 0;
}

static int take_first(const struct root *root, const char *name, void *arg)
{
	struct nic *nic = arg;

	(void)root;
	snprintf(nic->netdev, sizeof(nic->netdev), "%s", name);
	return 1;
}

/* The one that its GIDs are of, else what hangs on the same function. */
static void read_netdev(const struct root *root, struct nic *nic)
{
	char path[ROOT_PATH];

	for (int i = 0; i < 16; i++)
		if (!root_line(root, nic->netdev, sizeof(nic->netdev),
			    "sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d", nic->name, i) &&
			*nic->netdev)
			return;
	*nic->netdev = 0;
	snprintf(path, sizeof(path), "sys/class/infiniband/%s/device/net", nic->name);
	root_each(root, path, take_first, nic);
}

/* ---- nodes and CPUs ---- */

static int add_node(const struct root *root, const char *name, void *arg)
{
	struct machine *machine = arg;

	(void)root;
	if (!strncmp(name, "node", 4) && isdigit((unsigned char)name[4]) &&
		machine->n_nodes < MAX_NODES)
		machine->nodes[machine->n_nodes++] = atoi(name + 4);
	return 0;
}

static bool read_cpus(const struct root *root, struct cpus *cpus, const char *path)
{
	char text[4096];

	*cpus = (struct cpus){0};
	return !root_line(root, text, sizeof(text), "%s", path) && cpus_parse(cpus, text) &&
		cpus_count(cpus);
}

/* The value behind "Name:" of a file of such lines; NULL. */
static const char *field_of(const char *text, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, name, n) && at[n] == ':')
			return at + n + 1 + strspn(at + n + 1, " \t");
	}
	return NULL;
}

static int add_cpu(const struct root *root, const char *name, void *arg)
{
	(void)root;
	if (!strncmp(name, "cpu", 3) && isdigit((unsigned char)name[3]))
		cpus_add(arg, atoi(name + 3));
	return 0;
}

static void read_online(struct machine *machine)
{
	static const char dir[] = "sys/devices/system/cpu";

	if (!read_cpus(&machine->root, &machine->online, "sys/devices/system/cpu/online"))
		root_each(&machine->root, dir, add_cpu, &machine->online);
}

static void read_allowed(struct machine *machine)
{
	char text[8192];
	const char *list;

	machine->allowed = machine->online;
	if (root_bytes(&machine->root, text, sizeof(text), "proc/self/status") < 0)
		return;
	list = field_of(text, "Cpus_allowed_list");
	if (list && cpus_parse(&machine->allowed, list) && cpus_count(&machine->online))
		machine->allowed = cpus_and(&machine->allowed, &machine->online);
}

/* What the kernel says, else its command line. */
static void read_isolated(struct machine *machine)
{
	char value[256];

	if (read_cpus(&machine->root, &machine->isolated, "sys/devices/system/cpu/isolated"))
		return;
	if (!root_has(&machine->root, "sys/devices/system/cpu/isolated") &&
		machine_boot_word(machine, "isolcpus", value))
		cpus_parse(&machine->isolated, value);
}

void machine_read(struct machine *machine)
{
	const struct root *root = &machine->root;

	if (root_bytes(root, machine->cmdline, sizeof(machine->cmdline), "proc/cmdline") < 0)
		machine->cmdline[0] = 0;
	read_online(machine);
	read_allowed(machine);
	read_isolated(machine);
	root_each(root, "sys/devices/system/node", add_node, machine);
	root_each(root, "sys/class/infiniband", add_nic, machine);
}

const char *machine_boot_word(const struct machine *machine, const char *name, char value[256])
{
	size_t n = strlen(name);

	for (const char *at = machine->cmdline; *at; at += strspn(at, " \n")) {
		size_t length = strcspn(at, " \n");

		if (!strncmp(at, name, n) && (at[n] == '=' || n == length)) {
			size_t skip = n == length ? n : n + 1;

			snprintf(value, 256, "%.*s", (int)(length - skip), at + skip);
			return value;
		}
		at += length;
	}
	return NULL;
}

struct cpus machine_siblings(const struct machine *machine, int cpu)
{
	char path[ROOT_PATH];
	struct cpus siblings;

	snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		cpu);
	if (!read_cpus(&machine->root, &siblings, path))
		cpus_add(&siblings, cpu);
	return siblings;
}

struct cpus machine_node_cpus(const struct machine *machine, int node)
{
	char path[ROOT_PATH];
	struct cpus cpus;

	snprintf(path, sizeof(path), "sys/devices/system/node/node%d/cpulist", node);
	if (node < 0 || !read_cpus(&machine->root, &cpus, path))
		return machine->online;
	return cpus;
}

int machine_home_node(const struct machine *machine)
{
	if (machine->n_nics && machine->nics[0].node >= 0)
		return machine->nics[0].node;
	return machine->n_nodes ? machine->nodes[0] : 0;
}

struct cpus machine_worker_cores(const struct machine *machine)
{
	struct cpus cores, rest;
	int first;

	if (cpus_count(&machine->isolated))
		return machine->isolated;
	cores = machine_node_cpus(machine, machine_home_node(machine));
	first = cpus_next(&cores, 0);
	if (first < 0 || cpus_count(&cores) < 2)
		return cores;
	rest = machine_siblings(machine, first);
	cpus_add(&rest, first);
	rest = cpus_without(&cores, &rest);
	return cpus_count(&rest) ? rest : cores;
}

bool machine_has_capability(const struct machine *machine, int bit, bool *known)
{
	char text[8192];
	const char *mask = NULL;

	if (root_bytes(&machine->root, text, sizeof(text), "proc/self/status") >= 0)
		mask = field_of(text, "CapEff");
	*known = mask != NULL;
	return mask && strtoull(mask, NULL, 16) >> bit & 1;
}
