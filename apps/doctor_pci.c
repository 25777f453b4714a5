/* doctor_pci.c - checks of a NIC's slot: its node, its link, what stands between it and memory */
#include "doctor.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- several NICs: each is looked at, the worst is told of ---- */

struct verdict {
	enum finding_status status; /* OK until one is worse; SKIP while none told */
	char text[512];
};

static void tell(
	struct verdict *verdict, enum finding_status status, const char *nic, const char *what)
{
	size_t used = strlen(verdict->text);
	bool first = verdict->status == FINDING_SKIP;

	if (first || (status != FINDING_OK && verdict->status == FINDING_OK)) {
		verdict->status = status;
		used = 0;
	} else if (status == FINDING_OK && verdict->status != FINDING_OK) {
		return;
	}
	snprintf(verdict->text + used, sizeof(verdict->text) - used, "%s%s: %.300s",
		used ? ", " : "", nic, what);
}

static void conclude(const struct machine *machine, const struct verdict *verdict,
	struct finding *finding, const char *unknown)
{
	if (!machine->n_nics)
		skipped(finding, "there is no RDMA device");
	else if (verdict->status == FINDING_SKIP)
		skipped(finding, "%s", unknown);
	else
		found(finding, verdict->status, "%s", verdict->text);
}

static const char *slot_of(const struct machine *machine)
{
	return machine->n_nics && *machine->nics[0].bdf ? machine->nics[0].bdf : "SLOT";
}

/* ---- the node ---- */

static void check_node(const struct machine *machine, struct finding *finding)
{
	struct verdict verdict = {FINDING_SKIP, ""};
	char text[256];

	for (int i = 0; i < machine->n_nics; i++) {
		const struct nic *nic = &machine->nics[i];
		struct cpus near = machine_node_cpus(machine, nic->node);
		struct cpus usable = cpus_and(&near, &machine->allowed);
		char what[512];

		if (nic->node < 0 && machine->n_nodes > 1) {
			tell(&verdict, FINDING_WARN, nic->name,
				"firmware names no node, and there are several");
		} else if (nic->node >= 0) {
			bool near_enough = cpus_count(&usable) || !cpus_count(&near);

			snprintf(what, sizeof(what), "node %d, cores %s%s", nic->node,
				cpus_text(&near, text, sizeof(text)),
				near_enough ? "" : ", none of which this process may use");
			tell(&verdict, near_enough ? FINDING_OK : FINDING_WARN, nic->name, what);
		}
	}
	wanted(finding,
		"workers on cores of the NIC's node: from another one each access crosses the socket");
	if (machine->n_nics && machine->nics[0].node >= 0) {
		struct cpus near = machine_node_cpus(machine, machine->nics[0].node);

		cpus_text(&near, text, sizeof(text));
		fix(finding, "shell", "numactl --cpunodebind=%d --membind=%d verbena ...",
			machine->nics[0].node, machine->nics[0].node);
		fix(finding, "systemd",
			"CPUAffinity=%s and NUMAPolicy=bind, NUMAMask=%d of the unit", text,
			machine->nics[0].node);
		fix(finding, "container", "docker run --cpuset-cpus=%s --cpuset-mems=%d ...", text,
			machine->nics[0].node);
	} else {
		fix(finding, "shell",
			"lspci -vv -s %s | grep NUMA # ask the board's firmware for it (SRAT)",
			slot_of(machine));
	}
	conclude(machine, &verdict, finding, "there is one node, and the device names none");
}

/* ---- the link ---- */

static void check_width(const struct machine *machine, struct finding *finding)
{
	struct verdict verdict = {FINDING_SKIP, ""};

	for (int i = 0; i < machine->n_nics; i++) {
		const char *name = machine->nics[i].name;
		int64_t now, most;
		char what[64];

		if (root_number(&machine->root, &now,
			    "sys/class/infiniband/%s/device/current_link_width", name) ||
			root_number(&machine->root, &most,
				"sys/class/infiniband/%s/device/max_link_width", name) ||
			now <= 0)
			continue;
		snprintf(what, sizeof(what), "x%lld of x%lld", (long long)now, (long long)most);
		tell(&verdict, now < most ? FINDING_WARN : FINDING_OK, name, what);
	}
	wanted(finding, "all lanes that the NIC has");
	fix(finding, "shell",
		"lspci -vv -s %s | grep LnkSta # then move the card to a slot of its width, or seat it anew",
		slot_of(machine));
	conclude(machine, &verdict, finding, "sysfs tells of no PCIe link: it is no PCIe function");
}

static void check_speed(const struct machine *machine, struct finding *finding)
{
	struct verdict verdict = {FINDING_SKIP, ""};

	for (int i = 0; i < machine->n_nics; i++) {
		const char *name = machine->nics[i].name;
		char now[64], most[64], what[160];

		if (root_line(&machine->root, now, sizeof(now),
			    "sys/class/infiniband/%s/device/current_link_speed", name) ||
			root_line(&machine->root, most, sizeof(most),
				"sys/class/infiniband/%s/device/max_link_speed", name) ||
			strtod(now, NULL) <= 0)
			continue;
		snprintf(what, sizeof(what), "%s of %s", now, most);
		tell(&verdict, strtod(now, NULL) < strtod(most, NULL) ? FINDING_WARN : FINDING_OK,
			name, what);
	}
	wanted(finding, "the highest speed that the NIC has");
	fix(finding, "shell",
		"lspci -vv -s %s | grep LnkSta # then look for a slot of its generation, and for the speed limit in the board's firmware",
		slot_of(machine));
	conclude(machine, &verdict, finding, "sysfs tells of no PCIe link: it is no PCIe function");
}

/* ---- between it and memory ---- */

static int take_any(const struct root *root, const char *name, void *arg)
{
	(void)root;
	(void)name;
	(void)arg;
	return 1;
}

/* By the kernel's command line; "": it says nothing. */
static const char *iommu_words(const struct machine *machine, char value[256])
{
	static const char *const names[] = {"iommu", "intel_iommu", "amd_iommu"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (machine_boot_word(machine, names[i], value) &&
			(!strcmp(value, "pt") || !strcmp(value, "off")))
			return value;
	return "";
}

static void check_iommu(const struct machine *machine, struct finding *finding)
{
	struct verdict verdict = {FINDING_SKIP, ""};
	char value[256];
	bool there = root_each(&machine->root, "sys/class/iommu", take_any, NULL) == 1;

	for (int i = 0; i < machine->n_nics; i++) {
		char type[32];

		if (root_line(&machine->root, type, sizeof(type),
			    "sys/class/infiniband/%s/device/iommu_group/type",
			    machine->nics[i].name))
			continue;
		tell(&verdict, strcmp(type, "identity") ? FINDING_WARN : FINDING_OK,
			machine->nics[i].name, type);
	}
	wanted(finding,
		"none, or one that passes through: else it translates each access of the NIC");
	fix_boot(finding, "iommu", "iommu=pt");
	if (verdict.status != FINDING_SKIP)
		found(finding, verdict.status, "%s", verdict.text);
	else if (*iommu_words(machine, value))
		found(finding, FINDING_OK, "iommu=%s", value);
	else if (there || (machine_boot_word(machine, "intel_iommu", value) && strstr(value, "on")))
		found(finding, FINDING_WARN,
			"one is on, and iommu=pt is not on the kernel's command line");
	else if (root_has(&machine->root, "sys/class"))
		found(finding, FINDING_OK, "none");
	else
		skipped(finding, "sysfs is not there");
}

/* ---- what configuration space says ---- */

#define CAPABILITIES_AT   0x34
#define CAPABILITY_PCIE   0x10
#define DEVICE_CONTROL    8
#define RELAXED_ORDERING  (1u << 4)
#define CONFIG_SPACE_SIZE 256

/* The offset of the PCI Express capability; 0: none that can be read. */
static size_t express_at(const uint8_t *config, size_t n)
{
	size_t at = n > CAPABILITIES_AT ? config[CAPABILITIES_AT] & ~3u : 0;

	for (int hops = 0; at >= 64 && at + DEVICE_CONTROL + 2 <= n && hops < 48; hops++) {
		if (config[at] == CAPABILITY_PCIE)
			return at;
		at = config[at + 1] & ~3u;
	}
	return 0;
}

static void check_ordering(const struct machine *machine, struct finding *finding)
{
	struct verdict verdict = {FINDING_SKIP, ""};

	for (int i = 0; i < machine->n_nics; i++) {
		uint8_t config[CONFIG_SPACE_SIZE + 1];
		char path[ROOT_PATH];
		ssize_t n;
		size_t at;
		bool on;

		snprintf(path, sizeof(path), "sys/class/infiniband/%s/device/config",
			machine->nics[i].name);
		n = root_bytes(&machine->root, config, sizeof(config), path);
		at = n > 0 ? express_at(config, (size_t)n) : 0;
		if (!at)
			continue;
		on = config[at + DEVICE_CONTROL] & RELAXED_ORDERING;
		tell(&verdict, on ? FINDING_OK : FINDING_WARN, machine->nics[i].name,
			on ? "on" : "off in its device control register");
	}
	wanted(finding,
		"on: writes of the NIC may pass one another where their order means nothing");
	fix(finding, "shell",
		"setpci -s %s CAP_EXP+8.w=10:10 # until it is reset; for good it is the board's firmware",
		slot_of(machine));
	fix(finding, "container", "on its host, as above");
	conclude(machine, &verdict, finding,
		machine->root.real && geteuid()
			? "its configuration space shows root alone more than 64 bytes: sudo verbena doctor"
			: "its configuration space does not tell: it is emulated, or a hypervisor keeps it");
}

static void check_compression(const struct machine *machine, struct finding *finding)
{
	wanted(finding, "AGGRESSIVE where completions fill the PCIe link; BALANCED is the default");
	fix(finding, "shell",
		"mlxconfig -y -d %s set CQE_COMPRESSION=1 && mlxfwreset -y -d %s reset",
		slot_of(machine), slot_of(machine));
	/* Neither sysfs nor configuration space has it; it is asked of the firmware. */
	if (machine->n_nics)
		skipped(finding,
			"the firmware tells it to root alone: mlxconfig -d %s query CQE_COMPRESSION, or from Linux 6.18 on devlink dev param show pci/%s name cqe_compress_type",
			slot_of(machine), slot_of(machine));
	else
		skipped(finding, "there is no RDMA device");
}

static const struct check rows[] = {
	{"nic-node", FOR_ALL, check_node},
	{"pcie-width", FOR_ALL, check_width},
	{"pcie-speed", FOR_ALL, check_speed},
	{"iommu", FOR_ALL, check_iommu},
	{"relaxed-ordering", FOR_ALL, check_ordering},
	{"cqe-compression", FOR_ALL, check_compression},
};

const struct checks pci_checks = {rows, ARRAY_SIZE(rows)};
