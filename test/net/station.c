/* station.c - a host of a few lines on a packet port, and Linux at the other end */

#include "station.h"

#include "base/checksum.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static int linux_ns = -1, own_ns = -1;
static uint32_t channels, mtu_asked;
static const char *kind;
static const char *linux_end;

double station_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool station_is_tap(void)
{
	return !strcmp(kind, "tap");
}

bool station_is_generic(void)
{
	return !strcmp(kind, "xdp-generic");
}

/* ---- Linux's end ---- */

static int run(const char *command)
{
	const int status = system(command);

	return status == -1 ? -1 : status;
}

static int go_to(int ns)
{
	return setns(ns, CLONE_NEWNET);
}

static int skip_all(const char *why)
{
	printf("SKIP net_%s: %s\n", kind, why);
	return 77;
}

/* A packet that Linux sends by a veth has no checksum of the fourth layer unless it is told to. */
static int no_offload(const char *name)
{
	struct ethtool_value value = {.cmd = ETHTOOL_STXCSUM};
	struct ifreq request = {.ifr_data = (char *)&value};
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret;

	strcpy(request.ifr_name, name);
	ret = ioctl(fd, SIOCETHTOOL, &request);
	close(fd);
	return ret;
}

static int set_channels(const char *name, uint32_t n)
{
	struct ethtool_channels value = {.cmd = ETHTOOL_SCHANNELS, .rx_count = n, .tx_count = n};
	struct ifreq request = {.ifr_data = (char *)&value};
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret;

	strcpy(request.ifr_name, name);
	ret = ioctl(fd, SIOCETHTOOL, &request);
	close(fd);
	return ret;
}

/* In Linux's namespace. */
static int make_pair(uint32_t mtu)
{
	char command[256];

	snprintf(command, sizeof(command),
		"ip link add near netns /proc/%d/fd/%d mtu %u numrxqueues %d numtxqueues %d type veth peer name far mtu %u numrxqueues %d numtxqueues %d",
		getpid(), own_ns, mtu, MOST_QUEUES, MOST_QUEUES, mtu, MOST_QUEUES, MOST_QUEUES);
	if (run(command) || run("ip address add 10.9.0.1/24 dev far") ||
		run("ip link set far up") || no_offload("far"))
		return -1;
	if (go_to(own_ns))
		return -1;
	return run("ip link set near up");
}

static int make_veth(uint32_t mtu)
{
	own_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own_ns < 0 || unshare(CLONE_NEWNET))
		return -1;
	linux_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return make_pair(mtu);
}

static bool may_tap(void)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI, .ifr_name = "probe"};
	const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	const bool may = fd >= 0 && !ioctl(fd, TUNSETIFF, &request);

	if (fd >= 0)
		close(fd);
	return may;
}

static bool may_xdp(void)
{
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
	const int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	const int map_fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map));

	if (fd >= 0)
		close(fd);
	if (map_fd >= 0)
		close(map_fd);
	return fd >= 0 && map_fd >= 0;
}

int station_network(uint32_t mtu)
{
	mtu_asked = mtu;
	kind = getenv("STATION_PORT");
	if (!kind)
		kind = "tap";
	if (geteuid())
		return skip_all("needs root");
	if (unshare(CLONE_NEWNET))
		return skip_all("needs to make a network namespace");
	if (!station_is_tap()) {
		linux_end = "far";
		if (!may_xdp())
			return skip_all("needs AF_XDP sockets and bpf");
		return make_veth(mtu) ? skip_all("needs to make a veth pair, with iproute2") : 0;
	}
	linux_end = "near";
	if (!may_tap())
		return skip_all("needs /dev/net/tun");
	return 0;
}

int linux_socket(int type, int protocol)
{
	int fd;

	if (linux_ns >= 0)
		assert_int_equal(go_to(linux_ns), 0);
	fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	assert_true(fd >= 0);
	if (linux_ns >= 0)
		assert_int_equal(go_to(own_ns), 0);
	return fd;
}

int linux_udp(uint16_t port)
{
	struct sockaddr_in own = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(LINUX_ADDRESS)};
	const int fd = linux_socket(SOCK_DGRAM, 0), room = 8 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	return fd;
}

/* From here on it says nothing by itself of IPv6. */
int linux_frames(void)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET};
	int fd;

	assert_int_equal(go_to(linux_ns), 0);
	assert_int_equal(run("sysctl -qw net.ipv6.conf.far.disable_ipv6=1 || true"), 0);
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	to.sll_ifindex = (int)if_nametoindex(linux_end);
	assert_int_equal(bind(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(go_to(own_ns), 0);
	return fd;
}

struct sockaddr_in station_address(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(STATION_ADDRESS)};
}

void linux_mac(uint8_t mac[6])
{
	struct ifreq request = {0};
	const int fd = linux_socket(SOCK_DGRAM, 0);

	strcpy(request.ifr_name, linux_end);
	assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &request), 0);
	memcpy(mac, request.ifr_hwaddr.sa_data, 6);
	close(fd);
}

/* ---- open and close ---- */

void station_channels(uint32_t n)
{
	channels = n;
}

/* The kernel refuses while a socket that has been closed is not quite gone. */
static void wait_channels(const char *name, uint32_t n)
{
	const double deadline = station_seconds() + 20;

	while (set_channels(name, n)) {
		if (station_seconds() > deadline)
			unit_fail("%s cannot be given %u queues: %s", name, n, strerror(errno));
		usleep(1000);
	}
}

/* Both ends have as many queues. */
static void give_queues(uint32_t n)
{
	assert_int_equal(go_to(linux_ns), 0);
	wait_channels("far", n);
	assert_int_equal(go_to(own_ns), 0);
	wait_channels("near", n);
}

static void open_port(struct station *station)
{
	struct vbn_port_conf conf = {0};
	const char *name = "xdp:near";

	if (station_is_tap()) {
		name = "tap:near";
		conf.frame_mtu = mtu_asked;
	} else {
		conf.xdp_native = !strcmp(kind, "xdp-native") ? VBN_ON : VBN_OFF;
	}
	assert_int_equal(vbn_port_open(name, &conf, &station->port), 0);
	vbn_port_info(station->port, &station->info);
	if (station_is_tap())
		assert_int_equal(run("ip address add 10.9.0.1/24 dev near"), 0);
}

void station_open(struct station *station, uint32_t n_queues, const struct vbn_queue_conf *asked)
{
	const struct vbn_pool_conf pool = {
		.n_bufs = 2048, .data_size = max(mtu_asked + 128, 4032u), .name = "station"};
	struct vbn_queue_conf conf = asked ? *asked : (struct vbn_queue_conf){0};

	memset(station, 0, sizeof(*station));
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &station->worker), 0);
	if (linux_ns >= 0)
		give_queues(channels ? channels : n_queues);
	open_port(station);
	assert_int_equal(vbn_pool_create(&pool, &station->pool), 0);
	assert_int_equal(
		vbn_rx_group_create(station->port,
			&(struct vbn_rx_group_conf){.n_queues = n_queues}, &station->group),
		0);
	conf.transport = VBN_RAW;
	conf.rx_group = station->group;
	conf.rx_pool = station->pool;
	conf.tx_depth = conf.rx_depth = STATION_DEPTH;
	station->n_queues = n_queues;
	for (uint32_t i = 0; i < n_queues; i++) {
		assert_int_equal(vbn_queue_create(station->worker, station->port, &conf,
					 &station->queues[i]),
			0);
		assert_false(vbn_rx_group_is_built(station->group));
		assert_int_equal(vbn_queue_connect(station->queues[i], NULL), 0);
	}
	assert_true(vbn_rx_group_is_built(station->group));
}

void station_network_again(uint32_t n_queues)
{
	if (station_is_tap()) {
		assert_int_equal(run("ip address add 10.9.0.1/24 dev near"), 0);
		return;
	}
	assert_int_equal(go_to(linux_ns), 0);
	assert_int_equal(make_pair(mtu_asked), 0);
	give_queues(n_queues);
}

/* Events of what it had are taken. */
static int reset_one(struct station *station, uint32_t index)
{
	const double deadline = station_seconds() + 20;
	struct vbn_event event;
	int ret;

	while ((ret = vbn_queue_reset(station->queues[index])) == -EAGAIN) {
		if (station_seconds() > deadline)
			unit_fail("queue %u does not come to its end", index);
		vbn_worker_poll(station->worker);
		while (vbn_poll(station->worker, &event, 1) == 1)
			if (event.buf)
				vbn_buf_free(&event.buf, 1);
	}
	return ret;
}

int station_reset(struct station *station)
{
	for (uint32_t i = 0; i < station->n_queues; i++) {
		const int ret = reset_one(station, i);

		if (ret)
			return ret;
		assert_int_equal(vbn_queue_connect(station->queues[i], NULL), 0);
	}
	assert_true(vbn_rx_group_is_built(station->group));
	return 0;
}

void station_close(struct station *station)
{
	for (uint32_t i = 0; i < station->n_queues; i++)
		vbn_queue_destroy(station->queues[i]);
	vbn_rx_group_destroy(station->group);
	vbn_worker_poll(station->worker);
	assert_int_equal(vbn_pool_available(station->pool), vbn_pool_size(station->pool));
	vbn_pool_destroy(station->pool);
	vbn_port_close(station->port);
	vbn_worker_detach(station->worker);
}

/* ---- answers ---- */

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void swap(uint8_t *a, uint8_t *b, size_t n)
{
	uint8_t kept[16];

	memcpy(kept, a, n);
	memcpy(a, b, n);
	memcpy(b, kept, n);
}

static bool answer_arp(const struct station *station, uint8_t *frame, uint32_t len)
{
	uint8_t *arp = frame + ETH;
	const uint32_t own = htonl(STATION_ADDRESS);

	if (len < ETH + 28 || get16(arp + 6) != 1 || memcmp(arp + 24, &own, 4) != 0)
		return false;
	arp[7] = 2;
	memcpy(arp + 18, arp + 8, 10);
	memcpy(arp + 8, station->info.mac, 6);
	memcpy(arp + 14, &own, 4);
	memcpy(frame, frame + 6, 6);
	memcpy(frame + 6, station->info.mac, 6);
	return true;
}

/* The checksum of what is echoed stays right but for the type; what goes up by 8 here, there comes down. */
static bool answer_icmp(uint8_t *frame, uint32_t len)
{
	uint8_t *icmp = frame + ETH + IP;
	uint16_t csum;

	if (len < ETH + IP + 8 || icmp[0] != 8)
		return false;
	memcpy(&csum, icmp + 2, 2);
	csum = csum_replace2(csum, htons(8 << 8), 0);
	memcpy(icmp + 2, &csum, 2);
	icmp[0] = 0;
	return true;
}

static bool answer_udp(struct vbn_buf *buf)
{
	uint8_t *udp = buf->data + ETH + IP;

	if (buf->len < UDP_HEADERS || get16(udp + 2) != 7)
		return false;
	swap(udp, udp + 2, 2);
	memset(udp + 6, 0xa5, 2); /* does not matter */
	vbn_buf_packet(buf)->flags = VBN_PACKET_TX_L4_CSUM;
	return true;
}

static bool answer(const struct station *station, struct vbn_buf *buf)
{
	uint8_t *frame = buf->data;

	vbn_buf_packet(buf)->flags = 0;
	if (buf->len < ETH + 28)
		return false;
	if (get16(frame + 12) == 0x0806)
		return answer_arp(station, frame, buf->len);
	if (get16(frame + 12) != 0x0800 || frame[ETH] != 0x45)
		return false;
	if (!(frame[ETH + 9] == 1                  ? answer_icmp(frame, buf->len)
			    : frame[ETH + 9] == 17 ? answer_udp(buf)
						   : false))
		return false;
	swap(frame, frame + 6, 6);
	swap(frame + ETH + 12, frame + ETH + 16, 4);
	return true;
}

static int poll_queue(struct station *station, uint32_t index)
{
	struct vbn_buf *bufs[32], *answers[32];
	const int n = vbn_recv(station->queues[index], bufs, 32);
	int n_answers = 0, sent;

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		if (answer(station, bufs[i]))
			answers[n_answers++] = bufs[i];
		else
			vbn_buf_free(&bufs[i], 1);
	}
	sent = vbn_send(station->queues[index], answers, n_answers);
	assert_true(sent >= 0);
	if (sent < n_answers)
		vbn_buf_free(answers + sent, n_answers - sent);
	station->received += (uint64_t)n;
	station->by_queue[index] += (uint64_t)n;
	station->answered += (uint64_t)sent;
	return n;
}

int station_poll(struct station *station)
{
	int n = 0;

	for (uint32_t i = 0; i < station->n_queues; i++)
		n += poll_queue(station, i);
	vbn_worker_poll(station->worker);
	return n;
}

/* ---- packets ---- */

struct vbn_buf *station_udp(struct station *station, uint16_t port, const void *data, uint32_t size)
{
	struct vbn_buf *buf;
	const uint16_t lengths[2] = {
		htons((uint16_t)(IP + UDP + size)), htons((uint16_t)(UDP + size))};
	const uint16_t ports[2] = {htons(7777), htons(port)};
	const uint32_t addresses[2] = {htonl(STATION_ADDRESS), htonl(LINUX_ADDRESS)};
	uint8_t *frame;

	assert_int_equal(vbn_buf_alloc(station->pool, &buf, 1), 1);
	frame = buf->data;
	memset(frame, 0, UDP_HEADERS);
	linux_mac(frame);
	memcpy(frame + 6, station->info.mac, 6);
	frame[12] = 8;
	frame[ETH] = 0x45;
	memcpy(frame + ETH + 2, &lengths[0], 2);
	frame[ETH + 8] = 64;
	frame[ETH + 9] = 17;
	frame[ETH + 10] = 0x55; /* does not matter */
	memcpy(frame + ETH + 12, addresses, 8);
	memcpy(frame + ETH + IP, ports, 4);
	memcpy(frame + ETH + IP + 4, &lengths[1], 2);
	if (size)
		memcpy(frame + UDP_HEADERS, data, size);
	buf->len = UDP_HEADERS + size;
	*vbn_buf_packet(buf) =
		(struct vbn_packet){.flags = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM};
	return buf;
}

/* ---- drops ---- */

static uint64_t sum_of(const struct vbn_drop *drops, int n, const char *prefix)
{
	uint64_t sum = 0;

	assert_true(n >= 0 && n <= 16);
	for (int i = 0; i < n; i++)
		if (!strncmp(drops[i].name, prefix, strlen(prefix)))
			sum += drops[i].count;
	return sum;
}

uint64_t station_drops(const struct station *station, const char *prefix)
{
	struct vbn_drop drops[16];
	uint64_t sum = sum_of(drops, vbn_port_drops(station->port, drops, 16), prefix);

	for (uint32_t i = 0; i < station->n_queues; i++)
		sum += sum_of(drops, vbn_queue_drops(station->queues[i], drops, 16), prefix);
	return sum;
}

static void print(const struct vbn_drop *drops, int n)
{
	for (int i = 0; i < n; i++)
		if (drops[i].count)
			print_message("  %s %llu (%s)\n", drops[i].name,
				(unsigned long long)drops[i].count, drops[i].help);
}

void station_print_drops(const struct station *station)
{
	struct vbn_drop drops[16];

	print(drops, vbn_port_drops(station->port, drops, 16));
	for (uint32_t i = 0; i < station->n_queues; i++)
		print(drops, vbn_queue_drops(station->queues[i], drops, 16));
}
