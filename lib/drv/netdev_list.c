/* netdev_list.c - the interfaces of this network namespace, and what the kernel says of each */

#include "drv/netdev.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* One question to the kernel; `request` has the interface's name. */
static bool answers(int fd, unsigned long what, struct ifreq *request)
{
	return !ioctl(fd, what, request);
}

static void ask_driver(int fd, struct ifreq *request, struct netdev_found *found)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};

	request->ifr_data = (char *)&info;
	if (!answers(fd, SIOCETHTOOL, request))
		return;
	snprintf(found->driver, sizeof(found->driver), "%.*s", (int)sizeof(found->driver) - 1,
		info.driver);
	found->is_tap = !strcmp(info.driver, "tun") && !strcmp(info.bus_info, "tap");
}

static void ask_queues(int fd, struct ifreq *request, struct netdev_found *found)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};

	found->rx_queues = 1;
	request->ifr_data = (char *)&channels;
	if (answers(fd, SIOCETHTOOL, request))
		found->rx_queues = max(channels.combined_count + channels.rx_count, 1u);
}

static void ask_speed(int fd, struct ifreq *request, struct netdev_found *found)
{
	struct ethtool_cmd speed = {.cmd = ETHTOOL_GSET};
	uint32_t mbit;

	request->ifr_data = (char *)&speed;
	if (!answers(fd, SIOCETHTOOL, request))
		return;
	/* Not by ethtool_cmd_speed(), which shifts 65535 as an int. */
	mbit = (uint32_t)speed.speed_hi << 16 | speed.speed;
	found->speed_mbit = mbit == (uint32_t)SPEED_UNKNOWN ? 0 : mbit;
}

/* sysfs may be another network namespace's, with an interface of that name: the number tells. */
static bool read_number(const char *name, const char *attribute, int *number)
{
	char path[128];
	FILE *file;
	bool is_there;

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, attribute);
	file = fopen(path, "re");
	if (!file)
		return false;
	is_there = fscanf(file, "%d", number) == 1;
	fclose(file);
	return is_there;
}

static int node_of(const struct netdev_found *found)
{
	int index, node;

	if (!read_number(found->name, "ifindex", &index) || index != found->dev.index ||
		!read_number(found->name, "device/numa_node", &node))
		return -1;
	return node;
}

static bool look_at(int fd, const struct if_nameindex *from, struct netdev_found *found)
{
	struct ifreq request = {0};

	if (strlen(from->if_name) >= sizeof(found->name) ||
		vbn__netdev_look(from->if_name, &found->dev))
		return false;
	strcpy(found->name, from->if_name);
	strcpy(request.ifr_name, from->if_name);
	if (!answers(fd, SIOCGIFHWADDR, &request) || request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		return false;
	ask_driver(fd, &request, found);
	ask_queues(fd, &request, found);
	ask_speed(fd, &request, found);
	found->node = node_of(found);
	return true;
}

int vbn__netdev_list(struct netdev_found *found, int n)
{
	struct if_nameindex *all = if_nameindex();
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int count = 0;

	for (int i = 0; all && fd >= 0 && all[i].if_index && count < n; i++) {
		found[count] = (struct netdev_found){.node = -1};
		count += look_at(fd, &all[i], &found[count]);
	}
	if (fd >= 0)
		close(fd);
	if (all)
		if_freenameindex(all);
	return count;
}
