/* doctor.h - `verbena doctor`: checks of a machine, each one a small function over a root
 *
 *     doctor.c          options, the run of all checks, the table, JSON
 *     doctor_root.c     reading below --root
 *     doctor_cpus.c     sets of CPUs, as the kernel writes them
 *     doctor_finding.c  what a check says
 *     doctor_machine.c  what several checks need to know: CPUs, NICs
 *     doctor_memory.c   memlock, huge pages, transparent ones
 *     doctor_cpu.c      isolation, frequency, sleep states, siblings, interrupts
 *     doctor_process.c  what this process may: cgroup limits, cores
 *     doctor_packet.c   what raw packets need besides: capabilities, /dev/net/tun, BPF
 *     doctor_pci.c      NICs: slot, node, IOMMU, ordering
 *     doctor_nic.c      NICs: modules, device files, ports, GIDs, MTU, pause frames, library
 *
 * A check reads and judges; it changes nothing, needs no root, and says `skip` with the reason where
 * what it wants to know cannot be read. A new check is a function and a row of its file's table.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include "cmd.h"

#include <sys/stat.h>

/* ---- doctor_root.c: paths are below the root and begin without a slash ---- */

struct root {
	int fd;    /* of the directory; -1: the machine itself */
	bool real; /* what no file tells may be asked of this kernel */
};

#define ROOT_PATH 512

/* 0 or -errno. */
int root_open(struct root *root, const char *dir);
void root_close(struct root *root);

/* The first line without its end, of a path that is printed: -ENOENT and so on where it cannot be
 * read. */
int root_line(const struct root *root, char *text, size_t size, const char *fmt, ...)
	printf_like(4, 5);
/* Up to size bytes, a 0 behind them: how many. */
ssize_t root_bytes(const struct root *root, void *bytes, size_t size, const char *path);
int root_number(const struct root *root, int64_t *value, const char *fmt, ...) printf_like(3, 4);
bool root_has(const struct root *root, const char *fmt, ...) printf_like(2, 3);
int root_stat(const struct root *root, struct stat *info, const char *path);
/* The last part of what a symbolic link points to. */
int root_link_name(const struct root *root, char *name, size_t size, const char *fmt, ...)
	printf_like(4, 5);
/* Calls fn for each name of a directory, in order, until it returns other than 0: that. */
int root_each(const struct root *root, const char *path,
	int (*fn)(const struct root *root, const char *name, void *arg), void *arg);

/* ---- doctor_cpus.c ---- */

#define CPUS_MAX 4096

struct cpus {
	uint64_t bits[CPUS_MAX / 64];
};

/* "0-3,8", with flags before it as isolcpus= has them. False: it is none. */
bool cpus_parse(struct cpus *cpus, const char *text);
/* "ff", "00000001,00000000": a bit for each CPU. */
bool cpus_parse_mask(struct cpus *cpus, const char *text);
const char *cpus_text(const struct cpus *cpus, char *text, size_t size);
bool cpus_has(const struct cpus *cpus, int cpu);
void cpus_add(struct cpus *cpus, int cpu);
int cpus_count(const struct cpus *cpus);
/* The lowest from `from` on; -1. */
int cpus_next(const struct cpus *cpus, int from);
struct cpus cpus_and(const struct cpus *a, const struct cpus *b);
struct cpus cpus_without(const struct cpus *a, const struct cpus *b);

/* ---- doctor_machine.c ---- */

#define MAX_NICS  16
#define MAX_NODES 64

struct nic {
	char name[64];   /* mlx5_0 */
	char bdf[32];    /* 0000:3b:00.0; "" where it has none */
	char netdev[16]; /* of port 1; "" where it has none */
	int node;        /* -1: none */
	bool up, ethernet;
};

struct machine {
	struct root root;
	struct nic nics[MAX_NICS];
	int n_nics;
	int nodes[MAX_NODES]; /* their numbers */
	int n_nodes;
	struct cpus online, allowed, isolated;
	char cmdline[4096];
};

void machine_read(struct machine *machine);
/* The value of a word of the kernel's command line ("isolcpus"); NULL: it has none. */
const char *machine_boot_word(const struct machine *machine, const char *name, char value[256]);
/* The cores that workers would best have: those that are isolated, else of the first NIC's node all
 * but the first one and its sibling. */
struct cpus machine_worker_cores(const struct machine *machine);
struct cpus machine_siblings(const struct machine *machine, int cpu);
struct cpus machine_node_cpus(const struct machine *machine, int node);
/* The node that memory is best on. */
int machine_home_node(const struct machine *machine);
bool machine_has_capability(const struct machine *machine, int bit, bool *known);

/* ---- doctor_finding.c ---- */

enum finding_status { FINDING_OK, FINDING_WARN, FINDING_FAIL, FINDING_SKIP };

struct finding {
	enum finding_status status;
	char found[512], wanted[256];
	char fix[8192]; /* lines: "shell: …", "systemd: …", "container: …" */
};

/* The one that is left says what was found. */
void found(struct finding *finding, enum finding_status status, const char *fmt, ...)
	printf_like(3, 4);
void skipped(struct finding *finding, const char *fmt, ...) printf_like(2, 3);
void wanted(struct finding *finding, const char *fmt, ...) printf_like(2, 3);
/* For `where`: "shell", "systemd", "container", "boot". */
void fix(struct finding *finding, const char *where, const char *fmt, ...) printf_like(3, 4);
/* Words on the kernel's command line, in a file of this name: with them all places that a machine may
 * have them in. Done twice it is as done once. */
void fix_boot(struct finding *finding, const char *name, const char *fmt, ...) printf_like(3, 4);

/* ---- checks ---- */

enum purpose { FOR_MSGRATE = 1, FOR_PACKET = 2, FOR_ALL = 3 };

struct check {
	const char *name;
	unsigned int purposes; /* a set of enum purpose */
	void (*fn)(const struct machine *machine, struct finding *finding);
};

struct checks {
	const struct check *rows;
	size_t n;
};

extern const struct checks memory_checks, cpu_checks, process_checks, packet_checks, pci_checks,
	nic_checks;

#endif
