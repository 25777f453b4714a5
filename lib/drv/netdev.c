/* netdev.c - a network interface by its name */

#include "drv/netdev.h"

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int name_request(const char *name, struct ifreq *request)
{
	const size_t len = strlen(name);

	*request = (struct ifreq){0};
	if (!len || len >= sizeof(request->ifr_name))
		return -ENODEV;
	memcpy(request->ifr_name, name, len);
	return 0;
}

static int ask(unsigned long what, struct ifreq *request)
{
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, what, request))
		ret = -errno;
	close(fd);
	return ret;
}

int vbn__netdev_look(const char *name, struct netdev *dev)
{
	struct ifreq request;
	int ret = name_request(name, &request);

	*dev = (struct netdev){0};
	if (!ret)
		ret = ask(SIOCGIFINDEX, &request);
	if (ret)
		return ret;
	dev->index = request.ifr_ifindex;
	ret = ask(SIOCGIFMTU, &request);
	if (ret)
		return ret;
	dev->mtu = (uint32_t)request.ifr_mtu;
	ret = ask(SIOCGIFHWADDR, &request);
	if (ret)
		return ret;
	memcpy(dev->mac, request.ifr_hwaddr.sa_data, sizeof(dev->mac));
	ret = ask(SIOCGIFFLAGS, &request);
	dev->up = !ret && request.ifr_flags & IFF_UP && request.ifr_flags & IFF_RUNNING;
	return ret;
}

int vbn__netdev_set_mtu(const char *name, uint32_t mtu)
{
	struct ifreq request;
	int ret = name_request(name, &request);

	request.ifr_mtu = (int)mtu;
	return ret ? ret : ask(SIOCSIFMTU, &request);
}

int vbn__netdev_set_up(const char *name)
{
	struct ifreq request;
	int ret = name_request(name, &request);

	if (!ret)
		ret = ask(SIOCGIFFLAGS, &request);
	if (ret || request.ifr_flags & IFF_UP)
		return ret;
	request.ifr_flags |= IFF_UP;
	return ask(SIOCSIFFLAGS, &request);
}

uint32_t vbn__netdev_rx_queues(const char *name)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq request;

	if (name_request(name, &request))
		return 1;
	request.ifr_data = (char *)&channels;
	if (ask(SIOCETHTOOL, &request))
		return 1;
	return max(channels.combined_count + channels.rx_count, 1u);
}

/* A line: "  eth0: bytes packets errs drop fifo frame compressed multicast  bytes packets errs drop …" */
static bool parse_line(const char *line, const char *name, struct netdev_counts *counts)
{
	const char *colon = strchr(line, ':');
	unsigned long long v[12];

	while (*line == ' ')
		line++;
	if (!colon || (size_t)(colon - line) != strlen(name) ||
		strncmp(line, name, strlen(name)) != 0)
		return false;
	if (sscanf(colon + 1, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0],
		    &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &v[9], &v[10],
		    &v[11]) != 12)
		return false;
	*counts = (struct netdev_counts){.rx_packets = v[1],
		.rx_errors = v[2],
		.rx_dropped = v[3],
		.tx_packets = v[9],
		.tx_errors = v[10],
		.tx_dropped = v[11]};
	return true;
}

int vbn__netdev_counts(const char *name, struct netdev_counts *counts)
{
	FILE *file = fopen("/proc/thread-self/net/dev", "re");
	char line[512];
	int ret = -ENODEV;

	*counts = (struct netdev_counts){0};
	if (!file)
		return -errno;
	while (ret && fgets(line, sizeof(line), file))
		if (parse_line(line, name, counts))
			ret = 0;
	fclose(file);
	return ret;
}

static void subtract(
	struct netdev_counts *from, const struct netdev_counts *a, const struct netdev_counts *b)
{
	*from = (struct netdev_counts){
		.rx_packets = a->rx_packets - b->rx_packets,
		.rx_errors = a->rx_errors - b->rx_errors,
		.rx_dropped = a->rx_dropped - b->rx_dropped,
		.tx_packets = a->tx_packets - b->tx_packets,
		.tx_errors = a->tx_errors - b->tx_errors,
		.tx_dropped = a->tx_dropped - b->tx_dropped,
	};
}

void vbn__netdev_since_now(struct netdev_since *since, const char *name)
{
	struct netdev_counts now;

	vbn__netdev_counts(name, &now);
	subtract(&since->before, &now, &since->last);
}

void vbn__netdev_since(struct netdev_since *since, const char *name, struct netdev_counts *counts)
{
	struct netdev_counts now;

	if (!vbn__netdev_counts(name, &now))
		subtract(&since->last, &now, &since->before);
	*counts = since->last;
}
