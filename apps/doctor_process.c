/* doctor_process.c - checks of what this process may: cgroup limits, cores */
#include "doctor.h"

#include <stdlib.h>

#define LEAST_CORES 3 /* two workers, and one for all else */

/* ---- control groups ---- */

/* The path of this process in the unified hierarchy, or in that of a controller of the old one, without
 * the slash; "" where it is the top, or where none is told. */
static void group_path(const struct machine *machine, const char *controller, char path[256])
{
	char text[4096];

	*path = 0;
	if (root_bytes(&machine->root, text, sizeof(text), "proc/self/cgroup") < 0)
		return;
	for (char *line = text, *next; *line; line = next) {
		char *controllers = strchr(line, ':'), *at;

		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = 0;
		at = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!at)
			continue;
		*at++ = 0;
		if (controller ? strstr(controllers + 1, controller) != NULL
			       : !strncmp(line, "0:", 2))
			snprintf(path, 256, "%s", *at == '/' ? at + 1 : at);
	}
}

/* Calls fn for the group and each that it is in, from the inside out. */
static void each_group(const struct machine *machine, const char *mount, const char *controller,
	void (*fn)(const struct root *root, const char *group, void *arg), void *arg)
{
	char path[256], group[ROOT_PATH];

	group_path(machine, controller, path);
	for (;;) {
		char *slash = strrchr(path, '/');

		snprintf(group, sizeof(group), "%s%s%s", mount, *path ? "/" : "", path);
		fn(&machine->root, group, arg);
		if (!*path)
			return;
		*(slash ? slash : path) = 0;
	}
}

struct quota {
	bool known;
	double cores; /* 0: unlimited; else the least of all groups */
};

static void take_quota(struct quota *quota, double us, double period)
{
	double cores = period > 0 ? us / period : 0;

	quota->known = true;
	if (us > 0 && cores > 0 && (quota->cores == 0 || cores < quota->cores))
		quota->cores = cores;
}

static void read_quota(const struct root *root, const char *group, void *arg)
{
	long long us, period;
	char text[64];

	if (root_line(root, text, sizeof(text), "%s/cpu.max", group))
		return;
	if (sscanf(text, "%lld %lld", &us, &period) == 2)
		take_quota(arg, (double)us, (double)period);
	else
		((struct quota *)arg)->known = true;
}

static void read_old_quota(const struct root *root, const char *group, void *arg)
{
	int64_t us, period;

	if (!root_number(root, &us, "%s/cpu.cfs_quota_us", group) &&
		!root_number(root, &period, "%s/cpu.cfs_period_us", group))
		take_quota(arg, (double)us, (double)period);
}

static void check_quota(const struct machine *machine, struct finding *finding)
{
	struct quota quota = {0};

	each_group(machine, "sys/fs/cgroup", NULL, read_quota, &quota);
	each_group(machine, "sys/fs/cgroup/cpu", "cpu", read_old_quota, &quota);
	wanted(finding,
		"none: a worker never sleeps, and is held for the rest of each period once it is used up");
	fix(finding, "shell", "systemctl set-property UNIT CPUQuota=");
	fix(finding, "systemd", "no CPUQuota= in the unit, nor in its slice");
	fix(finding, "container",
		"docker run without --cpus, with --cpuset-cpus=LIST; in Kubernetes: whole CPUs, "
		"and the static CPU manager");
	if (quota.cores > 0)
		found(finding, FINDING_FAIL, "%.2f cores", quota.cores);
	else if (quota.known)
		found(finding, FINDING_OK, "none");
	else
		skipped(finding, "no control group that this process is in tells");
}

/* The kernel tells this by the affinity, too; another machine's tree may have the group alone. */
static void read_cpuset(const struct root *root, const char *group, void *arg)
{
	struct cpus *allowed = arg, cpus;
	char text[4096];

	if (!root_line(root, text, sizeof(text), "%s/cpuset.cpus.effective", group) &&
		cpus_parse(&cpus, text) && cpus_count(&cpus))
		*allowed = cpus_count(allowed) ? cpus_and(allowed, &cpus) : cpus;
}

/* Where the machine itself has too few, no mask gives more. */
static void fix_cpuset(const struct machine *machine, struct finding *finding)
{
	char all[256];

	cpus_text(&machine->online, all, sizeof(all));
	if (cpus_count(&machine->online) < LEAST_CORES) {
		fix(finding, "shell",
			"verbena msgrate --one-worker # the machine has no more cores: a virtual one gets them from its hypervisor");
		return;
	}
	fix(finding, "shell", "taskset -c %s verbena ...", all);
	fix(finding, "systemd", "AllowedCPUs= and CPUAffinity= of the unit: with %s", all);
	fix(finding, "container", "docker run --cpuset-cpus=%s ...", all);
}

static void check_cpuset(const struct machine *machine, struct finding *finding)
{
	struct cpus allowed = machine->allowed, inside;
	char text[256], isolated[256];
	int n;

	each_group(machine, "sys/fs/cgroup", NULL, read_cpuset, &allowed);
	inside = cpus_and(&allowed, &machine->isolated);
	n = cpus_count(&allowed);
	cpus_text(&allowed, text, sizeof(text));
	wanted(finding, "at least %d, among them the isolated ones", LEAST_CORES);
	fix_cpuset(machine, finding);
	if (!n)
		skipped(finding,
			"neither /proc/self/status nor /sys/devices/system/cpu/online is there");
	else if (cpus_count(&machine->isolated) && !cpus_count(&inside))
		found(finding, FINDING_WARN, "cores %s, none of the isolated %s", text,
			cpus_text(&machine->isolated, isolated, sizeof(isolated)));
	else
		found(finding, n < LEAST_CORES ? FINDING_WARN : FINDING_OK, "cores %s%s", text,
			cpus_count(&machine->online) < LEAST_CORES ? ", all that there are" : "");
}

struct huge_limit {
	bool known;
	int64_t least; /* bytes; -1: none */
};

static void read_huge_limit(const struct root *root, const char *group, void *arg)
{
	struct huge_limit *limit = arg;
	char text[64];
	int64_t bytes;

	if (root_line(root, text, sizeof(text), "%s/hugetlb.2MB.max", group))
		return;
	limit->known = true;
	if (!strcmp(text, "max"))
		return;
	bytes = strtoll(text, NULL, 10);
	if (limit->least < 0 || bytes < limit->least)
		limit->least = bytes;
}

static void check_huge_limit(const struct machine *machine, struct finding *finding)
{
	struct huge_limit limit = {.least = -1};

	each_group(machine, "sys/fs/cgroup", NULL, read_huge_limit, &limit);
	wanted(finding,
		"none, or 128 MiB: past it a worker that touches its page is ended by SIGBUS");
	fix(finding, "shell", "echo max > /sys/fs/cgroup/GROUP/hugetlb.2MB.max");
	fix(finding, "container", "in Kubernetes: resources.limits.hugepages-2Mi: 128Mi");
	if (!limit.known)
		skipped(finding, "no control group limits huge pages");
	else if (limit.least < 0)
		found(finding, FINDING_OK, "none");
	else
		found(finding, limit.least < 128ll << 20 ? FINDING_WARN : FINDING_OK, "%lld MiB",
			(long long)(limit.least >> 20));
}

static const struct check rows[] = {
	{"cpu-quota", FOR_ALL, check_quota},
	{"cpuset", FOR_ALL, check_cpuset},
	{"hugepages-limit", FOR_ALL, check_huge_limit},
};

const struct checks process_checks = {rows, ARRAY_SIZE(rows)};
