/* doctor_nic.c - checks of RDMA devices: modules, device files, ports, GIDs, MTU, losses, rdma-core */
#include "doctor.h"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MELLANOX      "0x15b3"
#define LEAST_LIBRARY 39
#define LEAST_MTU     4200 /* 4096 bytes of a packet, and its headers */
#define MAX_GIDS      256

/* ---- is there one ---- */

struct functions {
	int n; /* ConnectX functions of the machine, driven or not */
	char first[32];
};

static int look_at_function(const struct root *root, const char *name, void *arg)
{
	struct functions *functions = arg;
	char vendor[16], class[16];

	if (root_line(root, vendor, sizeof(vendor), "sys/bus/pci/devices/%s/vendor", name) ||
		strcmp(vendor, MELLANOX) ||
		root_line(root, class, sizeof(class), "sys/bus/pci/devices/%s/class", name) ||
		strncmp(class, "0x02", 4))
		return 0;
	if (!functions->n++)
		snprintf(functions->first, sizeof(functions->first), "%s", name);
	return 0;
}

static void check_nic(const struct machine *machine, struct finding *finding)
{
	struct functions functions = {0};
	char text[512] = "";
	size_t used = 0;

	if (!root_has(&machine->root, "sys/class") && !root_has(&machine->root, "sys/bus")) {
		wanted(finding, "an RDMA device");
		skipped(finding, "neither /sys/class nor /sys/bus is there");
		return;
	}
	root_each(&machine->root, "sys/bus/pci/devices", look_at_function, &functions);
	for (int i = 0; i < machine->n_nics && used < sizeof(text); i++) {
		const char *name = machine->nics[i].name;
		char rate[64] = "";

		root_line(&machine->root, rate, sizeof(rate),
			"sys/class/infiniband/%s/ports/1/rate", name);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s%s%s",
			used ? ", " : "", name, *rate ? " " : "", rate);
	}
	wanted(finding, "an RDMA device; a ConnectX-4 or later has a driver of Verbena's own");
	fix(finding, "shell",
		"lspci -d 15b3: -k # without one: verbena vhca -- COMMAND, an emulated one");
	fix(finding, "container", "docker run --device=/dev/infiniband --network=host ...");
	if (machine->n_nics)
		found(finding, FINDING_OK, "%s", text);
	else if (functions.n)
		found(finding, FINDING_FAIL,
			"%s is a ConnectX that no RDMA driver has: see kernel-modules",
			functions.first);
	else
		found(finding, FINDING_WARN, "none");
}

/* ---- modules and device files ---- */

/* In sysfs, else in the list of those that were loaded. */
static bool has_module(const struct machine *machine, const char *name)
{
	char text[65536], line[64];

	if (root_has(&machine->root, "sys/module"))
		return root_has(&machine->root, "sys/module/%s", name);
	if (root_bytes(&machine->root, text, sizeof(text), "proc/modules") < 0)
		return false;
	snprintf(line, sizeof(line), "\n%s ", name);
	return !strncmp(text, line + 1, strlen(line + 1)) || strstr(text, line);
}

static void check_modules(const struct machine *machine, struct finding *finding)
{
	static const char *const modules[] = {"mlx5_core", "mlx5_ib", "ib_uverbs"};
	struct functions functions = {0};
	char missing[128] = "";
	size_t used = 0;
	bool mlx5;

	root_each(&machine->root, "sys/bus/pci/devices", look_at_function, &functions);
	mlx5 = functions.n > 0;
	for (int i = 0; i < machine->n_nics; i++)
		mlx5 |= !strncmp(machine->nics[i].name, "mlx5", 4);
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++)
		if ((mlx5 || i == 2) && !has_module(machine, modules[i]))
			used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%s",
				used ? " " : "", modules[i]);
	wanted(finding, "%sib_uverbs", mlx5 ? "mlx5_core, mlx5_ib, " : "");
	fix(finding, "shell", "modprobe -a %s", *missing ? missing : "mlx5_ib ib_uverbs");
	fix(finding, "systemd",
		"printf '%%s\\n' %s > /etc/modules-load.d/verbena.conf && systemctl restart systemd-modules-load",
		*missing ? missing : "mlx5_ib ib_uverbs");
	fix(finding, "container", "on its host, as above");
	if (machine->root.real && vhca_is_loaded())
		skipped(finding, "an emulated device has none");
	else if (!root_has(&machine->root, "sys/module") &&
		!root_has(&machine->root, "proc/modules"))
		skipped(finding, "/sys/module is not there");
	else if (!mlx5 && !machine->n_nics)
		skipped(finding, "there is no RDMA device to drive");
	else if (*missing && machine->n_nics)
		found(finding, FINDING_WARN, "without %s, unless the kernel has it built in",
			missing);
	else if (*missing)
		found(finding, FINDING_FAIL, "without %s", missing);
	else
		found(finding, FINDING_OK, "loaded");
}

struct files {
	const struct machine *machine;
	int n;
	bool missing, closed;
	char bad[64];
	char mode[64];
};

static void judge_file(struct files *files, const char *name, const struct stat *info)
{
	bool mine = files->machine->root.real;
	char path[80];

	snprintf(path, sizeof(path), "/dev/infiniband/%s", name);
	if (mine ? !access(path, R_OK | W_OK) : (info->st_mode & 0666) == 0666)
		return;
	files->closed = true;
	snprintf(files->bad, sizeof(files->bad), "%s", name);
	snprintf(files->mode, sizeof(files->mode), "mode %04o, owner %u, group %u",
		info->st_mode & 07777, info->st_uid, info->st_gid);
}

static int look_at_file(const struct root *root, const char *name, void *arg)
{
	struct files *files = arg;
	struct stat info;
	char path[128];

	if (strncmp(name, "uverbs", 6))
		return 0;
	files->n++;
	snprintf(path, sizeof(path), "dev/infiniband/%.64s", name);
	if (root_stat(root, &info, path)) {
		files->missing = true;
		snprintf(files->bad, sizeof(files->bad), "%s", name);
	} else {
		judge_file(files, name, &info);
	}
	return 0;
}

static void check_files(const struct machine *machine, struct finding *finding)
{
	struct files files = {.machine = machine};

	root_each(&machine->root, "sys/class/infiniband_verbs", look_at_file, &files);
	if (!files.n)
		root_each(&machine->root, "dev/infiniband", look_at_file, &files);
	wanted(finding, "/dev/infiniband/uverbs*, which this user may read and write");
	if (files.closed)
		fix(finding, "shell",
			"echo 'KERNEL==\"uverbs*\", MODE=\"0666\"' > /etc/udev/rules.d/90-verbena.rules && udevadm control --reload && udevadm trigger -s infiniband_verbs");
	else if (files.missing)
		fix(finding, "shell", "udevadm trigger -s infiniband_verbs && udevadm settle");
	else
		fix(finding, "shell", "modprobe ib_uverbs");
	fix(finding, "systemd",
		"DeviceAllow=char-infiniband_verbs rw of the unit, and no PrivateDevices=");
	fix(finding, "container", "docker run --device=/dev/infiniband ...");
	if (!files.n && machine->n_nics)
		found(finding, FINDING_FAIL,
			"%s has none: ib_uverbs is not loaded, or they are kept from this container",
			machine->nics[0].name);
	else if (!files.n)
		skipped(finding, "there is no RDMA device");
	else if (files.missing)
		found(finding, FINDING_FAIL, "/dev/infiniband/%s does not exist", files.bad);
	else if (files.closed)
		found(finding, FINDING_FAIL, "/dev/infiniband/%s is closed to this user: %s",
			files.bad, files.mode);
	else
		found(finding, FINDING_OK, "%d, open to this user", files.n);
}

/* ---- ports ---- */

static void check_port(const struct machine *machine, struct finding *finding)
{
	char text[512] = "", state[64];
	size_t used = 0;
	int up = 0, told = 0;

	for (int i = 0; i < machine->n_nics && used < sizeof(text); i++) {
		const struct nic *nic = &machine->nics[i];

		if (root_line(&machine->root, state, sizeof(state),
			    "sys/class/infiniband/%s/ports/1/state", nic->name))
			continue;
		told++;
		up += nic->up;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
			used ? ", " : "", nic->name, state);
	}
	wanted(finding, "a port that is ACTIVE");
	fix(finding, "shell",
		"ip link set dev %s up # then its cable, its switch's port, on InfiniBand the subnet manager",
		machine->n_nics && *machine->nics[0].netdev ? machine->nics[0].netdev : "NETDEV");
	if (!told)
		skipped(finding, "there is no RDMA device");
	else
		found(finding, up ? FINDING_OK : FINDING_FAIL, "%s", text);
}

/* What a GID is good for, the best last. */
enum gid_rank { GID_NONE, GID_V1, GID_LINK_LOCAL, GID_V6, GID_V4 };

static enum gid_rank rank_gid(const char *gid, const char *type)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint8_t bytes[16], sum = 0;

	if (inet_pton(AF_INET6, gid, bytes) != 1)
		return GID_NONE;
	for (size_t i = 0; i < sizeof(bytes); i++)
		sum |= bytes[i];
	if (!sum)
		return GID_NONE;
	if (!strstr(type, "v2"))
		return GID_V1;
	if (!memcmp(bytes, mapped, sizeof(mapped)))
		return bytes[12] == 169 && bytes[13] == 254 ? GID_LINK_LOCAL : GID_V4;
	return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 ? GID_LINK_LOCAL : GID_V6;
}

/* The best one of a port, as "index 3, 0000:…"; told: whether its table can be read at all. */
static enum gid_rank best_gid(
	const struct machine *machine, const struct nic *nic, char text[128], bool *told)
{
	enum gid_rank best = GID_NONE;
	char gid[64], type[32];

	*text = 0;
	*told = false;
	for (int i = 0; i < MAX_GIDS; i++) {
		enum gid_rank rank;

		if (root_line(&machine->root, gid, sizeof(gid),
			    "sys/class/infiniband/%s/ports/1/gids/%d", nic->name, i))
			return best;
		*told = true;
		if (root_line(&machine->root, type, sizeof(type),
			    "sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", nic->name, i))
			continue; /* an empty slot answers EINVAL */
		rank = rank_gid(gid, type);
		if (rank > best) {
			best = rank;
			snprintf(text, 128, "index %d, %s, %s", i, gid, type);
		}
	}
	return best;
}

static void check_gid(const struct machine *machine, struct finding *finding)
{
	enum finding_status worst = FINDING_SKIP;
	char text[512] = "", one[128];
	const char *netdev = "NETDEV";

	for (int i = 0; i < machine->n_nics; i++) {
		const struct nic *nic = &machine->nics[i];
		enum finding_status status;
		enum gid_rank rank;
		bool told;

		if (!nic->ethernet)
			continue;
		rank = best_gid(machine, nic, one, &told);
		if (!told)
			continue;
		status = rank >= GID_V6          ? FINDING_OK
			: rank >= GID_LINK_LOCAL ? FINDING_WARN
						 : FINDING_FAIL;
		if (worst != FINDING_SKIP && status <= worst)
			continue;
		worst = status;
		netdev = *nic->netdev ? nic->netdev : netdev;
		snprintf(text, sizeof(text), "%s: %s%s", nic->name, *one ? one : "none",
			rank == GID_LINK_LOCAL ? ": link-local, so not beyond a router" : "");
	}
	wanted(finding, "RoCE v2 with a routable address: Verbena takes IPv4 before IPv6");
	fix(finding, "shell", "ip addr add ADDRESS/PREFIX dev %s", netdev);
	fix(finding, "systemd",
		"Address=ADDRESS/PREFIX under [Network] of the interface's .network file");
	fix(finding, "container",
		"docker run --network=host ...: a GID is of the network namespace that its interface is in");
	if (worst == FINDING_SKIP)
		skipped(finding, "%s",
			machine->n_nics ? "no port is Ethernet, or its GIDs cannot be read"
					: "there is no RDMA device");
	else
		found(finding, worst, "%s", text);
}

/* Why there is none that an interface could be asked of. */
static void skip_interface(const struct machine *machine, struct finding *finding)
{
	if (machine->n_nics)
		skipped(finding, "no Ethernet interface is known for %s", machine->nics[0].name);
	else
		skipped(finding, "there is no RDMA device");
}

/* The next NIC that has an interface. */
static const struct nic *with_netdev(const struct machine *machine, int *at)
{
	while (*at < machine->n_nics) {
		const struct nic *nic = &machine->nics[(*at)++];

		if (*nic->netdev && nic->ethernet)
			return nic;
	}
	return NULL;
}

static void check_mtu(const struct machine *machine, struct finding *finding)
{
	const struct nic *nic, *least_of = NULL, *last = NULL;
	int64_t mtu, least = INT64_MAX;

	for (int i = 0; (nic = with_netdev(machine, &i));) {
		last = nic;
		if (root_number(&machine->root, &mtu, "sys/class/net/%s/mtu", nic->netdev) ||
			mtu >= least)
			continue;
		least = mtu;
		least_of = nic;
	}
	wanted(finding,
		"%d or more, on switches and peers, too: packets of 4096 bytes instead of 1024",
		LEAST_MTU);
	fix(finding, "shell", "ip link set dev %s mtu 9000",
		least_of ? least_of->netdev : "NETDEV");
	fix(finding, "systemd",
		"MTUBytes=9000 under [Link] of the interface's .link or .network file");
	fix(finding, "container", "on its host, as above");
	if (!last)
		skip_interface(machine, finding);
	else if (!least_of)
		skipped(finding, "%s, the interface of %s, is not to be seen here, or is emulated",
			last->netdev, last->name);
	else
		found(finding, least < LEAST_MTU ? FINDING_WARN : FINDING_OK, "%s: %lld",
			least_of->netdev, (long long)least);
}

/* ---- losses ---- */

static int read_pause(const char *netdev, struct ethtool_pauseparam *pause)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	struct ifreq request = {0};

	if (fd < 0)
		return -errno;
	*pause = (struct ethtool_pauseparam){.cmd = ETHTOOL_GPAUSEPARAM};
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", netdev);
	request.ifr_data = (void *)pause;
	if (ioctl(fd, SIOCETHTOOL, &request))
		err = -errno;
	close(fd);
	return err;
}

static void check_pause(const struct machine *machine, struct finding *finding)
{
	struct ethtool_pauseparam pause;
	const struct nic *nic;
	int at = 0;

	nic = with_netdev(machine, &at);
	wanted(finding,
		"on both ways, or PFC on RoCE's priority, at the switch too: RoCE is slow to get over a loss");
	fix(finding, "shell", "ethtool -A %s rx on tx on", nic ? nic->netdev : "NETDEV");
	fix(finding, "systemd",
		"RxFlowControl=yes and TxFlowControl=yes under [Link] of the interface's .link file");
	fix(finding, "container", "on its host, as above");
	if (!nic)
		skip_interface(machine, finding);
	else if (!machine->root.real)
		skipped(finding, "no file tells: on the machine itself this asks the driver");
	else if (read_pause(nic->netdev, &pause))
		skipped(finding,
			"the driver of %s does not tell, or the interface is not to be seen here",
			nic->netdev);
	else
		found(finding, pause.rx_pause && pause.tx_pause ? FINDING_OK : FINDING_WARN,
			"%s: rx %s, tx %s", nic->netdev, pause.rx_pause ? "on" : "off",
			pause.tx_pause ? "on" : "off");
}

static void check_losses(const struct machine *machine, struct finding *finding)
{
	static const char *const names[] = {"packet_seq_err", "out_of_sequence",
		"local_ack_timeout_err", "rx_icrc_encapsulated"};
	char text[512] = "";
	size_t used = 0;
	int told = 0;

	for (int i = 0; i < machine->n_nics; i++)
		for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
			int64_t n;

			if (root_number(&machine->root, &n,
				    "sys/class/infiniband/%s/ports/1/hw_counters/%s",
				    machine->nics[i].name, names[j]))
				continue;
			told++;
			if (n > 0 && used < sizeof(text))
				used += (size_t)snprintf(text + used, sizeof(text) - used,
					"%s%s %s %lld", used ? ", " : "", machine->nics[i].name,
					names[j], (long long)n);
		}
	wanted(finding, "none since the driver was loaded");
	fix(finding, "shell",
		"ethtool -S NETDEV | grep -e discard -e crc # cables; see pause-frames and path MTUs, too");
	if (!told)
		skipped(finding, "no RDMA device counts them");
	else
		found(finding, used ? FINDING_WARN : FINDING_OK, "%s", used ? text : "none");
}

/* ---- rdma-core ---- */

/* libibverbs.so.1 points to libibverbs.so.1.14.44.0: of rdma-core 44. 0: it is not there. */
static int library_version(const struct machine *machine)
{
	static const char *const dirs[] = {"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
		"usr/lib64", "usr/lib", "lib/x86_64-linux-gnu", "lib64", "usr/local/lib"};
	char name[128];
	int version;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (!root_link_name(
			    &machine->root, name, sizeof(name), "%s/libibverbs.so.1", dirs[i]) &&
			sscanf(name, "libibverbs.so.1.%*d.%d", &version) == 1)
			return version;
	return 0;
}

static void check_library(const struct machine *machine, struct finding *finding)
{
	int version = library_version(machine);

	wanted(finding, "%d or later", LEAST_LIBRARY);
	fix(finding, "shell", "apt-get install -y rdma-core ibverbs-providers");
	fix(finding, "container", "the same in its image: its libraries are its own");
	if (!version)
		skipped(finding, "no libibverbs.so.1 is in the usual places");
	else
		found(finding, version < LEAST_LIBRARY ? FINDING_FAIL : FINDING_OK, "%d", version);
}

static const struct check rows[] = {
	{"nic", FOR_ALL, check_nic},
	{"kernel-modules", FOR_ALL, check_modules},
	{"device-files", FOR_ALL, check_files},
	{"port-state", FOR_ALL, check_port},
	{"gid", FOR_MSGRATE, check_gid},
	{"mtu", FOR_ALL, check_mtu},
	{"pause-frames", FOR_MSGRATE, check_pause},
	{"losses", FOR_MSGRATE, check_losses},
	{"rdma-core", FOR_ALL, check_library},
};

const struct checks nic_checks = {rows, ARRAY_SIZE(rows)};
