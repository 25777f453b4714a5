/* doctor_packet.c - checks of what raw packets need besides: capabilities, /dev/net/tun, the kernel's
 * BPF compiler
 */
#include "doctor.h"

#include <unistd.h>

#define CAP_NET_ADMIN 12
#define CAP_NET_RAW   13
#define CAP_SYS_ADMIN 21
#define CAP_BPF       39

/* A program for XDP is loaded by either; which before Linux 5.8 was the second alone. */
static bool may_load_bpf(const struct machine *machine)
{
	bool known;

	return machine_has_capability(machine, CAP_BPF, &known) ||
		machine_has_capability(machine, CAP_SYS_ADMIN, &known);
}

static void check_capabilities(const struct machine *machine, struct finding *finding)
{
	bool known, raw = machine_has_capability(machine, CAP_NET_RAW, &known);
	bool admin = machine_has_capability(machine, CAP_NET_ADMIN, &known);
	bool bpf = may_load_bpf(machine);

	wanted(finding,
		"CAP_NET_RAW for raw Ethernet queues, CAP_NET_ADMIN for tap: and xdp: ports, CAP_BPF for xdp: besides");
	/* Those of a file would keep ld.so from LD_PRELOAD, which vhca is, and from $ORIGIN. */
	fix(finding, "shell",
		"setpriv --reuid=USER --regid=GROUP --init-groups --inh-caps=+net_raw,+net_admin,+bpf --ambient-caps=+net_raw,+net_admin,+bpf verbena ... # no setcap: with file capabilities there is no vhca");
	fix(finding, "systemd",
		"AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF of the unit");
	fix(finding, "container",
		"docker run --cap-add NET_RAW --cap-add NET_ADMIN --cap-add BPF ...");
	if (!known)
		skipped(finding, "/proc/self/status does not tell");
	else if (raw && admin && bpf)
		found(finding, FINDING_OK, "all are effective");
	else if (!raw && !admin && !bpf)
		found(finding, FINDING_FAIL, "none is effective");
	else
		found(finding, raw ? FINDING_WARN : FINDING_FAIL, "without%s%s%s",
			raw ? "" : " CAP_NET_RAW", admin ? "" : " CAP_NET_ADMIN",
			bpf ? "" : " CAP_BPF");
}

static void check_tun(const struct machine *machine, struct finding *finding)
{
	static const char path[] = "dev/net/tun";
	struct stat info;

	wanted(finding,
		"/dev/net/tun, which this user may read and write: tap: ports are made by it");
	fix(finding, "shell", "modprobe tun && chmod 0666 /dev/net/tun");
	fix(finding, "systemd", "DeviceAllow=/dev/net/tun rw of the unit, and no PrivateDevices=");
	fix(finding, "container", "docker run --device=/dev/net/tun ...");
	if (!root_has(&machine->root, "dev/null"))
		skipped(finding, "/dev is not to be seen");
	else if (root_stat(&machine->root, &info, path))
		found(finding, FINDING_WARN, "/dev/net/tun does not exist");
	else if (machine->root.real ? access("/dev/net/tun", R_OK | W_OK) != 0
				    : (info.st_mode & 0666) != 0666)
		found(finding, FINDING_WARN,
			"/dev/net/tun is closed to this user: mode %04o, owner %u, group %u",
			info.st_mode & 07777, info.st_uid, info.st_gid);
	else
		found(finding, FINDING_OK, "open to this user");
}

/* A kernel that has no interpreter tells of no switch, or of one that is always on. */
static void check_jit(const struct machine *machine, struct finding *finding)
{
	int64_t on;

	wanted(finding, "1: xdp: ports run a program for each packet that the kernel hands over");
	fix(finding, "shell", "sysctl -w net.core.bpf_jit_enable=1");
	fix(finding, "systemd",
		"echo 'net.core.bpf_jit_enable=1' > /etc/sysctl.d/82-verbena.conf && systemctl restart systemd-sysctl");
	fix(finding, "container", "on its host, as above");
	if (root_number(&machine->root, &on, "proc/sys/net/core/bpf_jit_enable"))
		skipped(finding, "this user may not read it, or this kernel does not tell");
	else
		found(finding, on ? FINDING_OK : FINDING_WARN, "%lld", (long long)on);
}

static const struct check rows[] = {
	{"capabilities", FOR_PACKET, check_capabilities},
	{"tun-device", FOR_PACKET, check_tun},
	{"bpf-jit", FOR_PACKET, check_jit},
};

const struct checks packet_checks = {rows, ARRAY_SIZE(rows)};
