/* network.c - the far end of a veth pair or a TAP, in a network namespace of this process */

#include "network.h"

#include <arpa/inet.h>
#include <cmocka.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct network net = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint16_t word(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

void put_word(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* What the kernel took out of the frame is put back. */
static ssize_t receive_frame(uint8_t *frame)
{
	union {
		struct cmsghdr align;
		uint8_t room[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} control;
	struct iovec part = {frame, FRAME - 4};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t size = recvmsg(net.fd, &message, MSG_DONTWAIT);
	struct cmsghdr *header = size > 14 ? CMSG_FIRSTHDR(&message) : NULL;
	struct tpacket_auxdata aux;

	if (!header || header->cmsg_type != PACKET_AUXDATA)
		return size;
	memcpy(&aux, CMSG_DATA(header), sizeof(aux));
	if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
		return size;
	memmove(frame + 16, frame + 12, (size_t)size - 12);
	put_word(frame + 12, TYPE_VLAN);
	put_word(frame + 14, aux.tp_vlan_tci);
	return size + 4;
}

static void keep_frame(const uint8_t *bytes, size_t size)
{
	if (net.n == MAX_FRAMES)
		return;
	memcpy(net.frames[net.n].bytes, bytes, size);
	net.frames[net.n++].size = size;
}

static void *be_the_network(void *unused)
{
	static uint8_t frame[FRAME];

	(void)unused;
	while (!__atomic_load_n(&net.stop, __ATOMIC_ACQUIRE)) {
		struct pollfd fd = {.fd = net.fd, .events = POLLIN};
		bool silent;
		ssize_t size;

		if (poll(&fd, 1, 50) != 1)
			continue;
		size = receive_frame(frame);
		if (size < 14)
			continue;
		pthread_mutex_lock(&net.lock);
		keep_frame(frame, (size_t)size);
		silent = net.silent;
		pthread_mutex_unlock(&net.lock);
		if (!silent && send(net.fd, frame, (size_t)size, 0) != size)
			perror("frame_test: a frame is lost");
	}
	return NULL;
}

static int open_network(void)
{
	struct sockaddr_ll name = {.sll_family = AF_PACKET,
		.sll_protocol = htobe16(0x0003),
		.sll_ifindex = (int)if_nametoindex("far")};
	int one = 1;

	net.fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (net.fd < 0 || setsockopt(net.fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one)) ||
		setsockopt(net.fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) ||
		bind(net.fd, (struct sockaddr *)&name, sizeof(name)))
		return -1;
	return pthread_create(&net.thread, NULL, be_the_network, NULL);
}

void forget_frames(bool silent)
{
	pthread_mutex_lock(&net.lock);
	net.n = 0;
	net.silent = silent;
	pthread_mutex_unlock(&net.lock);
}

uint16_t tag_of(const struct frame *frame)
{
	return word(frame->bytes + 12) == TYPE_VLAN ? word(frame->bytes + 14) : 0;
}

const uint8_t *inside(const struct frame *frame)
{
	return frame->bytes + (tag_of(frame) ? 18 : 14);
}

uint16_t type_of(const struct frame *frame)
{
	return word(inside(frame) - 2);
}

bool is_roce(const struct frame *frame)
{
	const uint8_t *ip = inside(frame);

	switch (type_of(frame)) {
	case TYPE_ROCE: return true;
	case TYPE_IPV4: return ip[9] == 17 && word(ip + 22) == 4791;
	case TYPE_IPV6: return ip[6] == 17 && word(ip + 42) == 4791;
	default: return false;
	}
}

/* The QP that a RoCE packet goes to. */
uint32_t qpn_of(const struct frame *frame)
{
	uint16_t type = type_of(frame);
	const uint8_t *bth = inside(frame) + (type == TYPE_ROCE ? 40 : type == TYPE_IPV4 ? 28 : 48);

	return (uint32_t)bth[5] << 16 | word(bth + 6);
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The `nth` frame of that type, ever since the others were forgotten; waits for it. */
struct frame wait_frame(bool roce, uint16_t type, size_t nth)
{
	double deadline = seconds() + 10;
	struct frame found = {.size = 0};

	while (!found.size && seconds() < deadline) {
		size_t n = 0;

		pthread_mutex_lock(&net.lock);
		for (size_t i = 0; i < net.n && !found.size; i++)
			if (is_roce(&net.frames[i]) == roce && type_of(&net.frames[i]) == type &&
				n++ == nth)
				found = net.frames[i];
		pthread_mutex_unlock(&net.lock);
		if (!found.size)
			usleep(1000);
	}
	if (!found.size)
		fail_msg("no frame of type 0x%x came", type);
	return found;
}

void inject(const struct frame *frame)
{
	assert_int_equal(send(net.fd, frame->bytes, frame->size, 0), frame->size);
}

/* ---- ARP ---- */

const uint8_t nowhere[6] = {2, 9, 9, 9, 9, 9};

/* Who asked is told that `nowhere` has the address. */
void answer_arp(const struct frame *question)
{
	struct frame answer = *question;
	size_t at = tag_of(question) ? 18 : 14;

	memcpy(answer.bytes, question->bytes + 6, 6);
	memcpy(answer.bytes + 6, nowhere, 6);
	put_word(answer.bytes + at + 6, 2);
	memcpy(answer.bytes + at + 8, nowhere, 6);
	memcpy(answer.bytes + at + 14, question->bytes + at + 24, 4);
	memcpy(answer.bytes + at + 18, question->bytes + at + 8, 10);
	inject(&answer);
}

/* ---- its life ---- */

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done ? 0 : -1;
}

static int own_network(void)
{
	char text[64];
	uid_t user = getuid();
	gid_t group = getgid();

	if (unshare(CLONE_NEWNET | (user ? CLONE_NEWUSER : 0)))
		return -1;
	if (!user)
		return 0;
	put("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "0 %u 1", user);
	if (put("/proc/self/uid_map", text))
		return -1;
	snprintf(text, sizeof(text), "0 %u 1", group);
	return put("/proc/self/gid_map", text);
}

/* Until then the kernel drops what is sent there. */
static bool link_runs(const char *name)
{
	struct ifreq request = {.ifr_flags = 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool runs;

	strcpy(request.ifr_name, name);
	runs = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &request) && request.ifr_flags & IFF_RUNNING;
	close(fd);
	return runs;
}

void network_wait(const char *name)
{
	for (int patience = 10000; patience && !link_runs(name); patience--)
		usleep(1000);
}

/* `make` makes the link whose end "far" is. */
static int start(const char *make)
{
	if (own_network()) {
		printf("SKIP vhca_frame: no network namespace can be made here\n");
		return 77;
	}
	put("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"); /* frames of the host's own */
	if (system(make) || open_network()) {
		printf("SKIP vhca_frame: no such link can be made here: %s\n", make);
		return 77;
	}
	return 0;
}

int network_start(void)
{
	int error = start(
		"ip link add near type veth peer name far && ip link set near addrgenmode none up"
		" && ip link set far addrgenmode none up");

	if (!error) {
		network_wait("near");
		network_wait("far");
	}
	return error;
}

int network_start_tap(void)
{
	return start("ip tuntap add dev far mode tap && ip link set far addrgenmode none up");
}

void network_stop(void)
{
	__atomic_store_n(&net.stop, true, __ATOMIC_RELEASE);
	pthread_join(net.thread, NULL);
	close(net.fd);
}
