/* doctor_cpu.c - checks of cores: what else runs there, how fast they are, how deep they sleep */
#include "doctor.h"

#include <ctype.h>
#include <stdlib.h>

#define DEEP_US   50 /* a sleep state that takes longer to leave is felt */

/* ---- isolation: three words, which belong together, and one start of the machine ---- */

#define ISOLATION "isolcpus=managed_irq,domain,%s nohz_full=%s rcu_nocbs=%s"

static void suggest(const struct machine *machine, char text[256])
{
	struct cpus cores = machine_worker_cores(machine);

	cpus_text(&cores, text, 256);
}

static void check_isolcpus(const struct machine *machine, struct finding *finding)
{
	char cores[256], text[256];

	suggest(machine, cores);
	wanted(finding, "cores of their own for workers, as isolcpus=managed_irq,domain,%s", cores);
	fix_boot(finding, "isolation", ISOLATION, cores, cores, cores);
	if (cpus_count(&machine->isolated))
		found(finding, FINDING_OK, "cores %s",
			cpus_text(&machine->isolated, text, sizeof(text)));
	else if (!*machine->cmdline && !root_has(&machine->root, "sys/devices/system/cpu/isolated"))
		skipped(finding,
			"neither /proc/cmdline nor /sys/devices/system/cpu/isolated is there");
	else if (cpus_count(&machine->online) == 1)
		skipped(finding, "there is one core");
	else
		found(finding, FINDING_WARN, "none");
}

/* Cores of a boot word that names a list; false: the word is not there. */
static bool boot_cores(const struct machine *machine, const char *name, struct cpus *cores)
{
	char value[256];

	*cores = (struct cpus){0};
	return machine_boot_word(machine, name, value) && cpus_parse(cores, value);
}

static void judge_cores(
	const struct machine *machine, struct finding *finding, const struct cpus *cores)
{
	struct cpus should = machine_worker_cores(machine), missing = cpus_without(&should, cores);
	char text[256], short_of[256];

	suggest(machine, text);
	fix_boot(finding, "isolation", ISOLATION, text, text, text);
	cpus_text(cores, text, sizeof(text));
	if (!cpus_count(&machine->online) && !*machine->cmdline)
		skipped(finding, "/proc/cmdline is not there");
	else if (cpus_count(&machine->online) == 1)
		skipped(finding, "there is one core");
	else if (!cpus_count(cores))
		found(finding, FINDING_WARN, "none");
	else if (cpus_count(&missing))
		found(finding, FINDING_WARN, "cores %s, not %s", text,
			cpus_text(&missing, short_of, sizeof(short_of)));
	else
		found(finding, FINDING_OK, "cores %s", text);
}

static void check_nohz(const struct machine *machine, struct finding *finding)
{
	struct cpus cores;
	char text[4096];

	if (root_line(&machine->root, text, sizeof(text), "sys/devices/system/cpu/nohz_full") ||
		!cpus_parse(&cores, text))
		boot_cores(machine, "nohz_full", &cores);
	wanted(finding, "no timer tick on workers' cores");
	judge_cores(machine, finding, &cores);
}

static void check_rcu(const struct machine *machine, struct finding *finding)
{
	struct cpus cores;

	boot_cores(machine, "rcu_nocbs", &cores);
	wanted(finding, "RCU callbacks of workers' cores run elsewhere, said beside nohz_full");
	judge_cores(machine, finding, &cores);
}

/* ---- frequency and sleep ---- */

struct governors {
	const struct machine *machine;
	struct cpus slow;
	int n;
	char name[32];
};

static int core_number(const char *name)
{
	return !strncmp(name, "cpu", 3) && isdigit((unsigned char)name[3]) ? atoi(name + 3) : -1;
}

static int look_at_governor(const struct root *root, const char *name, void *arg)
{
	struct governors *governors = arg;
	int cpu = core_number(name);
	char text[32];

	if (cpu < 0 || !cpus_has(&governors->machine->allowed, cpu) ||
		root_line(root, text, sizeof(text),
			"sys/devices/system/cpu/%s/cpufreq/scaling_governor", name))
		return 0;
	governors->n++;
	if (strcmp(text, "performance")) {
		cpus_add(&governors->slow, cpu);
		snprintf(governors->name, sizeof(governors->name), "%s", text);
	}
	return 0;
}

static void check_governor(const struct machine *machine, struct finding *finding)
{
	struct governors governors = {.machine = machine};
	char text[256];

	root_each(&machine->root, "sys/devices/system/cpu", look_at_governor, &governors);
	wanted(finding, "performance: a clock that does not change");
	fix(finding, "shell",
		"for i in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $i; done");
	fix(finding, "systemd",
		"apt-get install -y tuned && tuned-adm profile latency-performance");
	fix(finding, "container", "on its host, as above");
	if (!governors.n)
		skipped(finding, "no core has cpufreq: firmware or a hypervisor decides");
	else if (cpus_count(&governors.slow))
		found(finding, FINDING_WARN, "%s on cores %s", governors.name,
			cpus_text(&governors.slow, text, sizeof(text)));
	else
		found(finding, FINDING_OK, "performance");
}

struct sleeps {
	const struct machine *machine;
	int cpu, n;
	int64_t deepest; /* us */
	char name[32];
};

static int look_at_state(const struct root *root, const char *name, void *arg)
{
	struct sleeps *sleeps = arg;
	int64_t latency, disabled = 0;

	if (strncmp(name, "state", 5) ||
		root_number(root, &latency, "sys/devices/system/cpu/cpu%d/cpuidle/%s/latency",
			sleeps->cpu, name))
		return 0;
	sleeps->n++;
	root_number(root, &disabled, "sys/devices/system/cpu/cpu%d/cpuidle/%s/disable", sleeps->cpu,
		name);
	if (!disabled && latency > sleeps->deepest) {
		sleeps->deepest = latency;
		if (root_line(root, sleeps->name, sizeof(sleeps->name),
			    "sys/devices/system/cpu/cpu%d/cpuidle/%s/name", sleeps->cpu, name))
			snprintf(sleeps->name, sizeof(sleeps->name), "%s", name);
	}
	return 0;
}

static int look_at_sleep(const struct root *root, const char *name, void *arg)
{
	struct sleeps *sleeps = arg;
	char path[ROOT_PATH];

	sleeps->cpu = core_number(name);
	if (sleeps->cpu < 0 || !cpus_has(&sleeps->machine->allowed, sleeps->cpu))
		return 0;
	snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%d/cpuidle", sleeps->cpu);
	root_each(root, path, look_at_state, sleeps);
	return 0;
}

static void check_sleep(const struct machine *machine, struct finding *finding)
{
	struct sleeps sleeps = {.machine = machine};

	root_each(&machine->root, "sys/devices/system/cpu", look_at_sleep, &sleeps);
	wanted(finding,
		"no state on that takes more than %d us to leave: the wake-up is part of a message's "
		"time",
		DEEP_US);
	fix(finding, "shell",
		"for i in /sys/devices/system/cpu/cpu*/cpuidle/state*; do [ $(cat $i/latency) -le %d ] || echo 1 > $i/disable; done",
		DEEP_US);
	fix(finding, "systemd",
		"apt-get install -y tuned && tuned-adm profile latency-performance");
	fix(finding, "boot", "intel_idle.max_cstate=1 processor.max_cstate=1");
	fix(finding, "container", "on its host, as above");
	if (!sleeps.n)
		skipped(finding, "no core has cpuidle: firmware or a hypervisor decides");
	else if (sleeps.deepest > DEEP_US)
		found(finding, FINDING_WARN, "%s takes %lld us", sleeps.name,
			(long long)sleeps.deepest);
	else
		found(finding, FINDING_OK, "at most %lld us", (long long)sleeps.deepest);
}

/* ---- siblings ---- */

/* The threads that go where each physical core keeps its first. */
static struct cpus second_threads(const struct machine *machine, const struct cpus *cores)
{
	struct cpus seconds = {0};

	for (int cpu = cpus_next(cores, 0); cpu >= 0; cpu = cpus_next(cores, cpu + 1)) {
		struct cpus siblings = machine_siblings(machine, cpu);

		siblings = cpus_and(&siblings, &machine->online);
		for (int other = cpus_next(&siblings, cpu + 1);
			other >= 0 && !cpus_has(&seconds, cpu);
			other = cpus_next(&siblings, other + 1))
			cpus_add(&seconds, other);
		/* A worker's core whose sibling is none of theirs keeps it: that one goes. */
		for (int other = cpus_next(&siblings, 0); other >= 0 && other < cpu;
			other = cpus_next(&siblings, other + 1))
			if (!cpus_has(cores, other))
				cpus_add(&seconds, other);
	}
	return seconds;
}

/* "4 5 6" */
static void words_of(const struct cpus *cpus, char *text, size_t size)
{
	size_t used = 0;

	*text = 0;
	for (int cpu = cpus_next(cpus, 0); cpu >= 0 && used < size; cpu = cpus_next(cpus, cpu + 1))
		used += (size_t)snprintf(text + used, size - used, "%s%d", used ? " " : "", cpu);
}

static void fix_siblings(
	const struct machine *machine, struct finding *finding, const struct cpus *cores)
{
	struct cpus seconds = second_threads(machine, cores), hit;
	char words[256], text[128];

	words_of(&seconds, words, sizeof(words));
	hit = cpus_and(&seconds, &machine->isolated);
	cpus_text(&hit, text, sizeof(text));
	if (!*words)
		fix(finding, "shell",
			"echo off > /sys/devices/system/cpu/smt/control # takes every second thread offline, isolated ones too");
	else
		fix(finding, "shell",
			"for i in %s; do echo 0 > /sys/devices/system/cpu/cpu$i/online; done%s%s",
			words, *text ? " # of the isolated these go offline: " : "", text);
	fix(finding, "boot", "nosmt # every second thread, isolated ones too");
	fix(finding, "container", "on its host, as above");
}

static void check_siblings(const struct machine *machine, struct finding *finding)
{
	struct cpus cores = machine_worker_cores(machine), shared = {0};
	char text[256];
	int64_t active;
	bool told;

	for (int cpu = cpus_next(&cores, 0); cpu >= 0; cpu = cpus_next(&cores, cpu + 1)) {
		struct cpus siblings = machine_siblings(machine, cpu);

		siblings = cpus_and(&siblings, &machine->online);
		if (cpus_count(&siblings) > 1)
			cpus_add(&shared, cpu);
	}
	wanted(finding, "a physical core to each worker: a sibling takes half of it");
	fix_siblings(machine, finding, &cores);
	if (root_number(&machine->root, &active, "sys/devices/system/cpu/smt/active"))
		active = -1;
	told = root_has(&machine->root,
		"sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpus_next(&cores, 0));
	if (!cpus_count(&machine->online))
		skipped(finding, "/sys/devices/system/cpu/online is not there");
	else if (!active)
		found(finding, FINDING_OK, "off");
	else if (!told && active > 0)
		found(finding, FINDING_WARN, "on");
	else if (!cpus_count(&shared))
		found(finding, FINDING_OK, "workers' cores have one thread each");
	else
		found(finding, FINDING_WARN, "cores %s have a sibling each",
			cpus_text(&shared, text, sizeof(text)));
}

/* ---- interrupts ---- */

struct interrupts {
	const struct machine *machine;
	int n, bad;
	char first[32];
};

/* Where it goes, else where it may go: as a list, else as a mask. */
static bool read_affinity(const struct root *root, const char *irq, struct cpus *cpus)
{
	char text[4096];

	if (!root_line(root, text, sizeof(text), "proc/irq/%s/effective_affinity_list", irq) ||
		!root_line(root, text, sizeof(text), "proc/irq/%s/smp_affinity_list", irq))
		return cpus_parse(cpus, text);
	return !root_line(root, text, sizeof(text), "proc/irq/%s/smp_affinity", irq) &&
		cpus_parse_mask(cpus, text);
}

static int look_at_interrupt(const struct root *root, const char *name, void *arg)
{
	struct interrupts *interrupts = arg;
	struct cpus cpus;

	if (!isdigit((unsigned char)*name) || !read_affinity(root, name, &cpus))
		return 0;
	interrupts->n++;
	cpus = cpus_and(&cpus, &interrupts->machine->isolated);
	if (cpus_count(&cpus) && !interrupts->bad++)
		snprintf(interrupts->first, sizeof(interrupts->first), "%s", name);
	return 0;
}

static void check_interrupts(const struct machine *machine, struct finding *finding)
{
	struct interrupts interrupts = {.machine = machine};
	struct cpus rest = cpus_without(&machine->online, &machine->isolated);
	char text[256];

	root_each(&machine->root, "proc/irq", look_at_interrupt, &interrupts);
	cpus_text(&rest, text, sizeof(text));
	wanted(finding, "none on isolated cores");
	fix(finding, "shell",
		"for i in /proc/irq/*/smp_affinity_list; do echo %s > $i 2>/dev/null; done", text);
	fix(finding, "systemd",
		"systemctl disable --now irqbalance; and the line above in a unit of Type=oneshot");
	fix(finding, "container", "on its host, as above");
	if (!cpus_count(&machine->isolated))
		skipped(finding, "no core is isolated: see isolcpus");
	else if (!interrupts.n)
		skipped(finding, "/proc/irq is not there");
	else if (interrupts.bad)
		found(finding, FINDING_WARN, "%d of %d may come there, %s first", interrupts.bad,
			interrupts.n, interrupts.first);
	else
		found(finding, FINDING_OK, "none of %d", interrupts.n);
}

static void check_clock(const struct machine *machine, struct finding *finding)
{
	static const char dir[] = "sys/devices/system/clocksource/clocksource0";
	char text[64], available[256] = "";

	wanted(finding,
		"tsc or arch_sys_counter: others are read by a system call, at a microsecond each");
	root_line(&machine->root, available, sizeof(available), "%s/available_clocksource", dir);
	if (strstr(available, "tsc"))
		fix(finding, "shell", "echo tsc > /%s/current_clocksource", dir);
	fix_boot(finding, "clocksource", "clocksource=tsc tsc=reliable");
	if (root_line(&machine->root, text, sizeof(text), "%s/current_clocksource", dir))
		skipped(finding, "sysfs does not tell");
	else
		found(finding,
			!strcmp(text, "tsc") || !strcmp(text, "arch_sys_counter") ||
					!strcmp(text, "kvm-clock")
				? FINDING_OK
				: FINDING_WARN,
			"%s", text);
}

static const struct check rows[] = {
	{"isolcpus", FOR_ALL, check_isolcpus},
	{"nohz_full", FOR_ALL, check_nohz},
	{"rcu_nocbs", FOR_ALL, check_rcu},
	{"governor", FOR_ALL, check_governor},
	{"c-states", FOR_ALL, check_sleep},
	{"smt-siblings", FOR_ALL, check_siblings},
	{"irq-affinity", FOR_ALL, check_interrupts},
	{"clocksource", FOR_ALL, check_clock},
};

const struct checks cpu_checks = {rows, ARRAY_SIZE(rows)};
