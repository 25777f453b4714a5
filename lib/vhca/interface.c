/* interface.c - the addresses and gateways of the interface that a port is of, by route netlink */

#include "vhca/interface.h"

#include "vhca/device.h"
#include "vhca/route.h"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	MAX_HOST_GIDS = 64,
	MAC_BYTES = 6,
	HIGH_FD = 500, /* programs close low ones that they do not know */
	ANSWER_BYTES = 32768,
};

/* What the interface has. */
struct found {
	uint32_t n_gids, n_gateways;
	struct vhca_gid gids[MAX_HOST_GIDS];
	uint8_t gateways[VHCA_MAX_GATEWAYS][16];
};

static struct {
	struct vhca_device *device;
	int fd; /* told of changes; -1: none */
	ino_t ino;
	unsigned int index;
} interface = {.fd = -1};

/* ---- netlink ---- */

struct attributes {
	const uint8_t *at;
	size_t left;
};

/* The next one, whose bytes are all there; NULL: that was the last. */
static const struct rtattr *next_attribute(struct attributes *attributes)
{
	const struct rtattr *attribute = (const void *)attributes->at;
	size_t step;

	if (attributes->left < sizeof(*attribute) || attribute->rta_len < sizeof(*attribute) ||
		attribute->rta_len > attributes->left)
		return NULL;
	step = min(round_up(attribute->rta_len, 4), attributes->left);
	attributes->at += step;
	attributes->left -= step;
	return attribute;
}

static const uint8_t *value_of(const struct rtattr *attribute)
{
	return (const uint8_t *)attribute + sizeof(*attribute);
}

static size_t size_of(const struct rtattr *attribute)
{
	return attribute->rta_len - sizeof(*attribute);
}

/* False: no address of that family. */
static bool take_raw(const struct rtattr *attribute, uint8_t family, uint8_t raw[16])
{
	size_t n = family == AF_INET ? 4 : 16;

	if (size_of(attribute) != n)
		return false;
	memset(raw, 0, 16);
	if (family == AF_INET)
		raw[10] = raw[11] = 0xff;
	memcpy(raw + 16 - n, value_of(attribute), n);
	return true;
}

static uint32_t take_number(const struct rtattr *attribute)
{
	uint32_t number = 0;

	memcpy(&number, value_of(attribute), min(size_of(attribute), sizeof(number)));
	return number;
}

/* ---- addresses ---- */

static void add_gids(struct found *found, struct vhca_gid *gid)
{
	for (gid->type = 0; gid->type < 2 && found->n_gids < MAX_HOST_GIDS; gid->type++)
		found->gids[found->n_gids++] = *gid;
}

/* Those that may be used: a tentative IPv6 address is not yet. */
static void take_address(struct found *found, const struct ifaddrmsg *message, size_t size)
{
	struct attributes attributes = {(const uint8_t *)(message + 1), size};
	uint32_t flags = message->ifa_flags;
	struct vhca_gid gid = {.host = true};
	const struct rtattr *attribute;
	bool any = false;

	if (message->ifa_index != interface.index ||
		(message->ifa_family != AF_INET && message->ifa_family != AF_INET6))
		return;
	while ((attribute = next_attribute(&attributes))) {
		/* of a link of two ends, the other one's is the address */
		if (attribute->rta_type == IFA_LOCAL ||
			(attribute->rta_type == IFA_ADDRESS && !any))
			any |= take_raw(attribute, message->ifa_family, gid.raw);
		else if (attribute->rta_type == IFA_FLAGS)
			flags = take_number(attribute);
	}
	gid.prefix = (uint8_t)(message->ifa_prefixlen + (message->ifa_family == AF_INET ? 96 : 0));
	if (any && gid.prefix <= 128 && !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)))
		add_gids(found, &gid);
}

/* Of routes, those to everywhere. */
static void take_route(struct found *found, const struct rtmsg *message, size_t size)
{
	struct attributes attributes = {(const uint8_t *)(message + 1), size};
	const struct rtattr *attribute;
	uint32_t out = 0;
	uint8_t raw[16] = {0};
	bool any = false;

	if (message->rtm_dst_len || message->rtm_table != RT_TABLE_MAIN ||
		(message->rtm_family != AF_INET && message->rtm_family != AF_INET6))
		return;
	while ((attribute = next_attribute(&attributes))) {
		if (attribute->rta_type == RTA_OIF)
			out = take_number(attribute);
		else if (attribute->rta_type == RTA_GATEWAY)
			any = take_raw(attribute, message->rtm_family, raw);
	}
	if (any && out == interface.index && found->n_gateways < VHCA_MAX_GATEWAYS)
		memcpy(found->gateways[found->n_gateways++], raw, 16);
}

static void take_message(struct found *found, const struct nlmsghdr *message)
{
	const void *body = message + 1;
	size_t size = message->nlmsg_len - sizeof(*message);

	if (message->nlmsg_type == RTM_NEWADDR && size >= sizeof(struct ifaddrmsg))
		take_address(found, body, size - sizeof(struct ifaddrmsg));
	if (message->nlmsg_type == RTM_NEWROUTE && size >= sizeof(struct rtmsg))
		take_route(found, body, size - sizeof(struct rtmsg));
}

/* False: the answer has ended. */
static bool take_answer(struct found *found, const uint8_t *bytes, size_t left)
{
	while (left >= sizeof(struct nlmsghdr)) {
		const struct nlmsghdr *message = (const void *)bytes;
		size_t step = round_up(message->nlmsg_len, 4);

		if (message->nlmsg_len < sizeof(*message) || message->nlmsg_len > left ||
			message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR)
			return false;
		take_message(found, message);
		bytes += min(step, left);
		left -= min(step, left);
	}
	return true;
}

static void dump(struct found *found, int fd, uint16_t what)
{
	struct {
		struct nlmsghdr header;
		struct rtmsg body; /* as long as any: the family alone is looked at */
	} question = {.header = {.nlmsg_len = sizeof(question),
			      .nlmsg_type = what,
			      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
	static union {
		struct nlmsghdr align;
		uint8_t bytes[ANSWER_BYTES];
	} answer;
	ssize_t n;

	if (send(fd, &question, sizeof(question), 0) != (ssize_t)sizeof(question))
		return;
	do
		n = recv(fd, &answer, sizeof(answer), 0);
	while (n > 0 && take_answer(found, answer.bytes, (size_t)n));
}

/* All that there is now; false: it cannot be had. */
static bool look(struct found *found)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	*found = (struct found){.n_gids = 0};
	if (fd < 0)
		return false;
	dump(found, fd, RTM_GETADDR);
	dump(found, fd, RTM_GETROUTE);
	close(fd);
	return true;
}

/* ---- GIDs ---- */

static bool has(const struct found *found, const struct vhca_gid *gid)
{
	for (uint32_t i = 0; i < found->n_gids; i++)
		if (!memcmp(found->gids[i].raw, gid->raw, 16) && found->gids[i].type == gid->type)
			return true;
	return false;
}

/* The link-local GIDs of the MAC, 0 and 1, are there whatever the interface has. */
static void take_gids(struct vhca_device *device, const struct found *found)
{
	for (int i = 2; i < VHCA_N_GIDS; i++) {
		struct vhca_gid gid;

		vhca_lock(device);
		gid = device->gids[i];
		vhca_unlock(device);
		if (!vhca_gid_is_empty(&gid) && gid.host && !has(found, &gid))
			vhca_gid_delete(device, i);
	}
	for (uint32_t i = 0; i < found->n_gids; i++) {
		int index;

		vhca_gid_add(device, &found->gids[i], &index);
	}
}

static void take_gateways(struct vhca_device *device, const struct found *found)
{
	vhca_lock(device);
	memcpy(device->gateways, found->gateways, sizeof(device->gateways));
	device->n_gateways = found->n_gateways;
	vhca_unlock(device);
}

static void take_all(void)
{
	struct found found;

	if (!look(&found))
		return;
	take_gateways(interface.device, &found);
	take_gids(interface.device, &found);
}

/* ---- changes ---- */

static int open_changes(void)
{
	struct sockaddr_nl name = {.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
			RTMGRP_IPV6_ROUTE};
	int low = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, HIGH_FD);
	struct stat st;

	if (low >= 0 && fd >= 0)
		close(low);
	else
		fd = low;
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&name, sizeof(name)) || syscall(SYS_fstat, fd, &st)) {
		int error = errno;

		close(fd);
		return -error;
	}
	interface.ino = st.st_ino;
	return fd;
}

int vhca_interface_fd(void)
{
	return vhca_socket_is_ours(interface.fd, interface.ino) ? interface.fd : -1;
}

/* What has changed is not of interest, only that something has. */
void vhca_interface_changed(void)
{
	uint8_t bytes[4096];

	while (recv(interface.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0 || errno == ENOBUFS)
		;
	take_all();
}

/* ---- the beginning ---- */

static int read_mac(const char *name, uint8_t mac[MAC_BYTES])
{
	struct ifreq request = {.ifr_flags = 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;

	if (fd < 0)
		return -errno;
	memcpy(request.ifr_name, name, min(strlen(name), sizeof(request.ifr_name) - 1));
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		error = -errno;
	else if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		error = -EPROTOTYPE;
	close(fd);
	memcpy(mac, request.ifr_hwaddr.sa_data, MAC_BYTES);
	return error;
}

/* An IPv4 one if there is any. */
static void choose_address(struct vhca_device *device)
{
	memcpy(device->address, device->gids[0].raw, 16);
	for (int i = VHCA_N_GIDS - 1; i > 1; i--)
		if (!vhca_gid_is_empty(&device->gids[i]) &&
			(vhca_is_ipv4(device->gids[i].raw) || !vhca_is_ipv4(device->address)))
			memcpy(device->address, device->gids[i].raw, 16);
}

int vhca_interface_begin(struct vhca_device *device, const char *name)
{
	uint8_t mac[MAC_BYTES];
	int error = read_mac(name, mac);

	if (error)
		return error;
	if (vhca_interface_fd() >= 0)
		close(interface.fd); /* of the process that forked this one */
	interface.index = if_nametoindex(name);
	interface.fd = open_changes(); /* ahead of the look, so that nothing is missed */
	if (interface.fd < 0)
		return interface.fd;
	interface.device = device;
	memset(device->gids, 0, sizeof(device->gids));
	vhca_device_identify(device, mac, true);
	take_all();
	choose_address(device);
	return 0;
}
