/* sysfs_tree.c - the emulated sysfs tree and /dev/infiniband as tables, and what the files say
 *
 * Laid over the real tree: a "shadow" directory exists in both, and names that its table does not
 * have are the real system's. Every other directory is the emulation's alone, so that what the
 * table lacks does not exist, and real RDMA devices are hidden.
 */
#include "sysfs.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A PCI domain that no firmware hands out, so that the emulated functions never meet real ones. */
#define PCI_ROOT     "pci00fe:00"
#define PCI_BRIDGE   "00fe:00:00.0"
#define PCI_FUNCTION "00fe:%02x:00.0"

#define ATTR(name_, text_)                                                    \
	{                                                                     \
		.name = (name_), .text = (text_ "\n"), .kind = VHCA_ATTRIBUTE \
	}
#define ATTR_FN(name_, fn_)                                            \
	{                                                              \
		.name = (name_), .read = (fn_), .kind = VHCA_ATTRIBUTE \
	}
#define DIR_OF(name_, children_)                                                 \
	{                                                                        \
		.name = (name_), .children = (children_), .kind = VHCA_DIRECTORY \
	}
#define LINK_FN(name_, fn_)                                       \
	{                                                         \
		.name = (name_), .read = (fn_), .kind = VHCA_LINK \
	}
#define LINK(name_, text_)                                          \
	{                                                           \
		.name = (name_), .text = (text_), .kind = VHCA_LINK \
	}
#define END                  \
	{                    \
		.name = NULL \
	}

static size_t put(char *text, size_t size, const char *fmt, ...) printf_like(3, 4);

static size_t put(char *text, size_t size, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, size, fmt, args);
	va_end(args);
	return n < 0 ? 0 : min((size_t)n, size - 1);
}

/* ---- contents ---- */

static const struct vhca_device *device_of(const struct vhca_place *place)
{
	return vhca_device(place->device);
}

static const struct vhca_facts *facts_of(const struct vhca_place *place)
{
	return device_of(place)->facts;
}

static size_t read_guid(const struct vhca_place *place, char *text, size_t size)
{
	uint64_t guid = device_of(place)->node_guid;

	return put(text, size, "%04x:%04x:%04x:%04x\n", (unsigned int)(guid >> 48),
		(unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
		(unsigned int)(guid & 0xffff));
}

static size_t read_fw_ver(const struct vhca_place *place, char *text, size_t size)
{
	const uint16_t *version = facts_of(place)->firmware;

	return put(text, size, "%u.%u.%04u\n", version[0], version[1], version[2]);
}

static size_t read_hca_type(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "MT%u\n", facts_of(place)->device_id);
}

static size_t read_board_id(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%s\n", facts_of(place)->board_id);
}

static size_t read_node_desc(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%s verbena vhca\n", device_of(place)->name);
}

/* What changes while the program runs is looked at under the lock. */
static bool port_is_up(const struct vhca_place *place)
{
	struct vhca_device *device = vhca_device(place->device);
	bool up;

	vhca_lock(device);
	up = device->port_up;
	vhca_unlock(device);
	return up;
}

static size_t read_state(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%s\n", port_is_up(place) ? "4: ACTIVE" : "1: DOWN");
}

static size_t read_phys_state(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%s\n", port_is_up(place) ? "5: LinkUp" : "3: Disabled");
}

static size_t read_rate(const struct vhca_place *place, char *text, size_t size)
{
	uint8_t width, speed;
	const char *link;

	vhca_link_of(device_of(place)->options->speed, &width, &speed, &link);
	return put(text, size, "%s\n", link);
}

static struct vhca_gid gid_of(const struct vhca_place *place)
{
	struct vhca_device *device = vhca_device(place->device);
	struct vhca_gid gid;

	vhca_lock(device);
	gid = device->gids[place->index];
	vhca_unlock(device);
	return gid;
}

static size_t read_gid(const struct vhca_place *place, char *text, size_t size)
{
	struct vhca_gid gid = gid_of(place);
	const uint8_t *raw = gid.raw;
	size_t n = 0;

	for (int i = 0; i < 16; i += 2)
		n += put(text + n, size - n, "%02x%02x%c", raw[i], raw[i + 1], i < 14 ? ':' : '\n');
	return n;
}

static size_t read_gid_type(const struct vhca_place *place, char *text, size_t size)
{
	static const uint8_t none[16];
	struct vhca_gid gid = gid_of(place);

	if (!memcmp(gid.raw, none, sizeof(none)))
		return 0;
	return put(text, size, "%s\n", gid.type ? "RoCE v2" : "IB/RoCE v1");
}

/* ---- the network interface behind the port: asked by ioctl, since the sysfs that is mounted may be
 * of another network namespace ---- */

static bool ask_interface(unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool answered;

	if (fd < 0)
		return false;
	*ifr = (struct ifreq){.ifr_ifindex = 0};
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", vhca_interface_name());
	answered = !ioctl(fd, request, ifr);
	close(fd);
	return answered;
}

static size_t read_if_address(const struct vhca_place *place, char *text, size_t size)
{
	struct ifreq ifr;
	uint8_t mac[6];

	(void)place;
	if (!ask_interface(SIOCGIFHWADDR, &ifr))
		return 0;
	memcpy(mac, ifr.ifr_hwaddr.sa_data, sizeof(mac));
	return put(text, size, "%02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5]);
}

static size_t read_if_index(const struct vhca_place *place, char *text, size_t size)
{
	(void)place;
	return put(text, size, "%u\n", if_nametoindex(vhca_interface_name()));
}

static size_t read_if_mtu(const struct vhca_place *place, char *text, size_t size)
{
	struct ifreq ifr;

	(void)place;
	return ask_interface(SIOCGIFMTU, &ifr) ? put(text, size, "%d\n", ifr.ifr_mtu) : 0;
}

/* No network interface stands behind the port: as for an unused entry, there is nothing to read. */
static size_t read_nothing(const struct vhca_place *place, char *text, size_t size)
{
	(void)place;
	(void)text;
	(void)size;
	return 0;
}

static uint64_t counter_of(const struct vhca_place *place, size_t offset)
{
	struct vhca_device *device = vhca_device(place->device);
	uint64_t value;

	vhca_lock(device);
	memcpy(&value, (const char *)&device->counters + offset, sizeof(value));
	vhca_unlock(device);
	return value;
}

#define READ_COUNTER(name_)                                                                 \
	static size_t read_##name_(const struct vhca_place *place, char *text, size_t size) \
	{                                                                                   \
		uint64_t value = counter_of(place, offsetof(struct vhca_counters, name_));  \
                                                                                            \
		return put(text, size, "%llu\n",                                            \
			(unsigned long long)vhca_counter_shown(#name_, value));             \
	}
VHCA_PORT_COUNTERS(READ_COUNTER)
VHCA_HW_COUNTERS(READ_COUNTER)
#undef READ_COUNTER

static size_t read_uverbs_dev(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%d:%d\n", UVERBS_MAJOR, UVERBS_MINOR + place->device);
}

static size_t read_uverbs_uevent(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "MAJOR=%d\nMINOR=%d\nDEVNAME=infiniband/uverbs%d\n", UVERBS_MAJOR,
		UVERBS_MINOR + place->device, place->device);
}

static size_t read_ibdev(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%s\n", device_of(place)->name);
}

static size_t read_ibdev_uevent(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "NAME=%s\n", device_of(place)->name);
}

static size_t read_pci_device(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "0x%04x\n", facts_of(place)->device_id);
}

static size_t read_pci_subsystem(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "0x%04x\n", facts_of(place)->subsystem_id);
}

static size_t read_modalias(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "pci:v000015B3d%08Xsv000015B3sd%08Xbc02sc00i00\n",
		facts_of(place)->device_id, facts_of(place)->subsystem_id);
}

static size_t read_pci_uevent(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size,
		"DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:%04X\nPCI_SUBSYS_ID=15B3:%04X\n"
		"PCI_SLOT_NAME=" PCI_FUNCTION "\n"
		"MODALIAS=pci:v000015B3d%08Xsv000015B3sd%08Xbc02sc00i00\n",
		facts_of(place)->device_id, facts_of(place)->subsystem_id,
		(unsigned int)place->device + 1, facts_of(place)->device_id,
		facts_of(place)->subsystem_id);
}

static size_t read_numa_node(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "%d\n", device_of(place)->options->node);
}

/* What the real system says of the node that the device claims, or of all CPUs where it claims
 * none. */
static size_t read_real(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return 0;
	text[n] = '\0';
	return (size_t)n;
}

static size_t read_local_cpulist(const struct vhca_place *place, char *text, size_t size)
{
	int node = device_of(place)->options->node;
	char path[64];
	size_t n;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", max(node, 0));
	n = read_real(node < 0 ? "/sys/devices/system/cpu/online" : path, text, size);
	return n ? n : put(text, size, "0-%ld\n", max(sysconf(_SC_NPROCESSORS_CONF), 1L) - 1);
}

/* All CPUs as sysfs writes a mask: groups of 32 bits, the highest first. */
static size_t put_all_cpus(char *text, size_t size)
{
	long n_cpus = min(max(sysconf(_SC_NPROCESSORS_CONF), 1L), 1024L);
	size_t n = 0;

	for (long word = (n_cpus - 1) / 32; word >= 0; word--) {
		long bits = min(n_cpus - word * 32, 32L);

		n += put(text + n, size - n, "%0*x%c", (int)((bits + 3) / 4),
			bits == 32 ? 0xffffffffu : (1u << bits) - 1, word ? ',' : '\n');
	}
	return n;
}

static size_t read_local_cpus(const struct vhca_place *place, char *text, size_t size)
{
	int node = device_of(place)->options->node;
	char path[64];
	size_t n = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpumap", max(node, 0));
	if (node >= 0)
		n = read_real(path, text, size);
	return n ? n : put_all_cpus(text, size);
}

static size_t read_function_link(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "../../../" PCI_FUNCTION, (unsigned int)place->device + 1);
}

static size_t read_class_ib_link(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size,
		"../../devices/" PCI_ROOT "/" PCI_BRIDGE "/" PCI_FUNCTION "/infiniband/mlx5_%d",
		(unsigned int)place->device + 1, place->device);
}

static size_t read_class_uverbs_link(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size,
		"../../devices/" PCI_ROOT "/" PCI_BRIDGE "/" PCI_FUNCTION
		"/infiniband_verbs/uverbs%d",
		(unsigned int)place->device + 1, place->device);
}

static size_t read_bus_link(const struct vhca_place *place, char *text, size_t size)
{
	return put(text, size, "../../../devices/" PCI_ROOT "/" PCI_BRIDGE "/" PCI_FUNCTION,
		(unsigned int)place->device + 1);
}

/* ---- the tree ---- */

static const struct vhca_entry gids[] = {
	{.name = "",
		.count = EACH_INDEX,
		.n = VHCA_N_GIDS,
		.read = read_gid,
		.kind = VHCA_ATTRIBUTE},
	END,
};

static const struct vhca_entry gid_types[] = {
	{.name = "",
		.count = EACH_INDEX,
		.n = VHCA_N_GIDS,
		.read = read_gid_type,
		.kind = VHCA_ATTRIBUTE},
	END,
};

static const struct vhca_entry gid_ndevs[] = {
	{.name = "",
		.count = EACH_INDEX,
		.n = VHCA_N_GIDS,
		.read = read_nothing,
		.kind = VHCA_ATTRIBUTE},
	END,
};

static const struct vhca_entry gid_attrs[] = {
	DIR_OF("ndevs", gid_ndevs),
	DIR_OF("types", gid_types),
	END,
};

static const struct vhca_entry pkeys[] = {
	ATTR("0", "0xffff"),
	END,
};

static const struct vhca_entry counters[] = {
#define PORT_COUNTER(name_) ATTR_FN(#name_, read_##name_),
	VHCA_PORT_COUNTERS(PORT_COUNTER)
#undef PORT_COUNTER
		END,
};

static const struct vhca_entry hw_counters[] = {
#define HW_COUNTER(name_) ATTR_FN(#name_, read_##name_),
	VHCA_HW_COUNTERS(HW_COUNTER)
#undef HW_COUNTER
		ATTR("lifespan", "10"),
	END,
};

static const struct vhca_entry port[] = {
	ATTR("cap_mask", "0x04010000"),
	DIR_OF("counters", counters),
	DIR_OF("gid_attrs", gid_attrs),
	DIR_OF("gids", gids),
	DIR_OF("hw_counters", hw_counters),
	ATTR("lid", "0x0"),
	ATTR("lid_mask_count", "0"),
	ATTR("link_layer", "Ethernet"),
	ATTR_FN("phys_state", read_phys_state),
	DIR_OF("pkeys", pkeys),
	ATTR_FN("rate", read_rate),
	ATTR("sm_lid", "0x0"),
	ATTR("sm_sl", "0"),
	ATTR_FN("state", read_state),
	END,
};

static const struct vhca_entry ports[] = {
	{.name = "",
		.count = EACH_INDEX,
		.n = 1,
		.first = 1,
		.children = port,
		.kind = VHCA_DIRECTORY},
	END,
};

static const struct vhca_entry ibdev[] = {
	ATTR_FN("board_id", read_board_id),
	LINK_FN("device", read_function_link),
	ATTR_FN("fw_ver", read_fw_ver),
	ATTR_FN("hca_type", read_hca_type),
	ATTR("hw_rev", "0"),
	ATTR_FN("node_desc", read_node_desc),
	ATTR_FN("node_guid", read_guid),
	ATTR("node_type", "1: CA"),
	DIR_OF("ports", ports),
	LINK("subsystem", "../../../../../../class/infiniband"),
	ATTR_FN("sys_image_guid", read_guid),
	ATTR_FN("uevent", read_ibdev_uevent),
	END,
};

static const struct vhca_entry uverbs[] = {
	ATTR("abi_version", "1"),
	ATTR_FN("dev", read_uverbs_dev),
	LINK_FN("device", read_function_link),
	ATTR_FN("ibdev", read_ibdev),
	LINK("subsystem", "../../../../../../class/infiniband_verbs"),
	ATTR_FN("uevent", read_uverbs_uevent),
	END,
};

static const struct vhca_entry function_ib[] = {
	{.name = "mlx5_", .count = THIS_DEVICE, .children = ibdev, .kind = VHCA_DIRECTORY},
	END,
};

static const struct vhca_entry function_uverbs[] = {
	{.name = "uverbs", .count = THIS_DEVICE, .children = uverbs, .kind = VHCA_DIRECTORY},
	END,
};

static const struct vhca_entry interface[] = {
	ATTR_FN("address", read_if_address),
	ATTR("dev_id", "0x0"),
	ATTR("dev_port", "0"),
	ATTR_FN("ifindex", read_if_index),
	ATTR_FN("mtu", read_if_mtu),
	ATTR("type", "1"),
	END,
};

static const struct vhca_entry function_net[] = {
	{.name = "", .count = INTERFACE, .children = interface, .kind = VHCA_DIRECTORY},
	END,
};

#define BAR_LINES                                                    \
	"0x00000fe000000000 0x00000fe001ffffff 0x000000000014220c\n" \
	"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" \
	"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" \
	"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" \
	"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" \
	"0x0000000000000000 0x0000000000000000 0x0000000000000000"

static const struct vhca_entry function[] = {
	ATTR("class", "0x020000"),
	ATTR("current_link_speed", "8.0 GT/s PCIe"),
	ATTR("current_link_width", "16"),
	ATTR_FN("device", read_pci_device),
	LINK("driver", "../../../../bus/pci/drivers/mlx5_core"),
	ATTR("enable", "1"),
	DIR_OF("infiniband", function_ib),
	DIR_OF("infiniband_verbs", function_uverbs),
	ATTR("irq", "0"),
	ATTR_FN("local_cpulist", read_local_cpulist),
	ATTR_FN("local_cpus", read_local_cpus),
	ATTR("max_link_speed", "8.0 GT/s PCIe"),
	ATTR("max_link_width", "16"),
	ATTR_FN("modalias", read_modalias),
	{.name = "net", .count = ON_A_LINK, .children = function_net, .kind = VHCA_DIRECTORY},
	ATTR_FN("numa_node", read_numa_node),
	ATTR("resource", BAR_LINES),
	ATTR("revision", "0x00"),
	LINK("subsystem", "../../../../bus/pci"),
	ATTR_FN("subsystem_device", read_pci_subsystem),
	ATTR("subsystem_vendor", "0x15b3"),
	ATTR_FN("uevent", read_pci_uevent),
	ATTR("vendor", "0x15b3"),
	END,
};

static const struct vhca_entry bridge[] = {
	ATTR("class", "0x060400"),
	ATTR("device", "0x0001"),
	{.name = "00fe:",
		.suffix = ":00.0",
		.count = EACH_DEVICE,
		.first = 1,
		.hex = true,
		.children = function,
		.kind = VHCA_DIRECTORY},
	ATTR("max_link_speed", "8.0 GT/s PCIe"),
	ATTR("max_link_width", "16"),
	ATTR("current_link_speed", "8.0 GT/s PCIe"),
	ATTR("current_link_width", "16"),
	ATTR("vendor", "0x15b3"),
	END,
};

static const struct vhca_entry pci_root[] = {
	DIR_OF(PCI_BRIDGE, bridge),
	END,
};

static const struct vhca_entry devices[] = {
	DIR_OF(PCI_ROOT, pci_root),
	END,
};

static const struct vhca_entry class_ib[] = {
	{.name = "mlx5_", .count = EACH_DEVICE, .read = read_class_ib_link, .kind = VHCA_LINK},
	END,
};

static const struct vhca_entry class_uverbs[] = {
	ATTR("abi_version", "6"),
	{.name = "uverbs", .count = EACH_DEVICE, .read = read_class_uverbs_link, .kind = VHCA_LINK},
	END,
};

static const struct vhca_entry classes[] = {
	DIR_OF("infiniband", class_ib),
	DIR_OF("infiniband_verbs", class_uverbs),
	{.name = "infiniband", .count = ANY_OTHER, .kind = VHCA_ATTRIBUTE},
	END,
};

static const struct vhca_entry bus_pci_devices[] = {
	{.name = "00fe:",
		.suffix = ":00.0",
		.count = EACH_DEVICE,
		.first = 1,
		.hex = true,
		.read = read_bus_link,
		.kind = VHCA_LINK},
	END,
};

#define SHADOW(name_, children_)                                                                 \
	{                                                                                        \
		.name = (name_), .children = (children_), .kind = VHCA_DIRECTORY, .shadow = true \
	}

static const struct vhca_entry bus_pci[] = {SHADOW("devices", bus_pci_devices), END};
static const struct vhca_entry bus[] = {SHADOW("pci", bus_pci), END};
static const struct vhca_entry sys[] = {
	SHADOW("bus", bus),
	SHADOW("class", classes),
	SHADOW("devices", devices),
	END,
};

static const struct vhca_entry dev_infiniband[] = {
	{.name = "uverbs", .count = EACH_DEVICE, .kind = VHCA_CHARDEV},
	END,
};

static const struct vhca_entry dev[] = {DIR_OF("infiniband", dev_infiniband), END};
static const struct vhca_entry top[] = {SHADOW("sys", sys), SHADOW("dev", dev), END};
const struct vhca_entry vhca_root = SHADOW("", top);
