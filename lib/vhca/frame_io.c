/* frame_io.c - Ethernet frames in and out by a TAP or a packet socket */

#include "vhca/frame_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
	TYPE_ALL = 0x0003,
	TYPE_VLAN = 0x8100,
	TYPE_AT = 12,
	MAC_HEADER = 14,
	BATCH = 32,       /* frames of one system call */
	SEND_WAIT_MS = 2, /* for room in the kernel, before a frame is given up */
	SOCKET_BYTES = 4 * 1024 * 1024,
};

union control {
	struct cmsghdr align;
	uint8_t room[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

struct slot {
	uint8_t room[VHCA_TAG_BYTES + VHCA_IO_FRAME];
};

struct vhca_frame_io {
	int fd;
	bool is_socket;
	unsigned int n_in, next_in, n_out;
	uint64_t overflowed;
	struct mmsghdr in[BATCH], out[BATCH];
	struct iovec in_part[BATCH], out_part[BATCH];
	union control control[BATCH];
	struct slot in_slot[BATCH], out_slot[BATCH];
};

/* ---- life ---- */

static int make(int fd, bool is_socket, struct vhca_frame_io **result)
{
	struct vhca_frame_io *io = calloc(1, sizeof(*io));

	if (!io) {
		close(fd);
		return -ENOMEM;
	}
	io->fd = fd;
	io->is_socket = is_socket;
	for (unsigned int i = 0; i < BATCH; i++) {
		io->in_part[i] =
			(struct iovec){io->in_slot[i].room + VHCA_TAG_BYTES, VHCA_IO_FRAME};
		io->out_part[i].iov_base = io->out_slot[i].room;
		io->out[i].msg_hdr.msg_iov = &io->out_part[i];
		io->out[i].msg_hdr.msg_iovlen = 1;
	}
	*result = io;
	return 0;
}

int vhca_frame_io_tap(const char *name, struct vhca_frame_io **io)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int error;

	if (fd < 0)
		return -errno;
	memcpy(request.ifr_name, name, min(strlen(name), sizeof(request.ifr_name) - 1));
	if (!ioctl(fd, TUNSETIFF, &request))
		return make(fd, false, io);
	error = errno;
	close(fd);
	return -error;
}

/* All frames, as a port with a MAC of its own behind that interface would get them. */
static int set_up_socket(int fd, unsigned int index)
{
	struct sockaddr_ll name = {
		.sll_family = AF_PACKET, .sll_protocol = be16(TYPE_ALL), .sll_ifindex = (int)index};
	struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
	int one = 1, bytes = SOCKET_BYTES;

	if (bind(fd, (const struct sockaddr *)&name, sizeof(name)))
		return -errno;
	setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof(promiscuous));
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	return 0;
}

int vhca_frame_io_socket(const char *name, struct vhca_frame_io **io)
{
	unsigned int index = if_nametoindex(name);
	int fd, error;

	if (!index)
		return -errno;
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	error = set_up_socket(fd, index);
	if (!error)
		return make(fd, true, io);
	close(fd);
	return error;
}

void vhca_frame_io_close(struct vhca_frame_io *io)
{
	if (!io)
		return;
	close(io->fd);
	free(io);
}

int vhca_frame_io_fd(const struct vhca_frame_io *io)
{
	return io->fd;
}

/* The kernel begins anew with each answer. */
uint64_t vhca_frame_io_overflowed(struct vhca_frame_io *io)
{
	struct tpacket_stats stats;
	socklen_t size = sizeof(stats);

	if (io->is_socket && !getsockopt(io->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size))
		io->overflowed += stats.tp_drops;
	return io->overflowed;
}

/* ---- in ---- */

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* What the kernel tells of a frame beside it: it takes the tag out of those that a socket gets. */
static void read_beside(struct msghdr *message, struct vhca_frame_in *frame)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	struct tpacket_auxdata aux;

	if (!header || header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA)
		return;
	memcpy(&aux, CMSG_DATA(header), sizeof(aux));
	if (aux.tp_status & TP_STATUS_VLAN_VALID)
		frame->tag = aux.tp_vlan_tci;
	frame->sum_missing = aux.tp_status & TP_STATUS_CSUMNOTREADY;
}

static bool fetch(struct vhca_frame_io *io)
{
	int n;

	for (unsigned int i = 0; i < BATCH; i++)
		io->in[i].msg_hdr = (struct msghdr){.msg_iov = &io->in_part[i],
			.msg_iovlen = 1,
			.msg_control = &io->control[i],
			.msg_controllen = sizeof(io->control[i])};
	n = recvmmsg(io->fd, io->in, BATCH, 0, NULL);
	io->next_in = 0;
	io->n_in = n > 0 ? (unsigned int)n : 0;
	return n > 0;
}

static bool receive_by_socket(struct vhca_frame_io *io, struct vhca_frame_in *frame)
{
	struct mmsghdr *message;

	if (io->next_in == io->n_in && !fetch(io))
		return false;
	message = &io->in[io->next_in];
	frame->bytes = io->in_slot[io->next_in++].room + VHCA_TAG_BYTES;
	frame->size = message->msg_len;
	read_beside(&message->msg_hdr, frame);
	return true;
}

static bool receive_by_tap(struct vhca_frame_io *io, struct vhca_frame_in *frame)
{
	ssize_t size;

	frame->bytes = io->in_slot[0].room + VHCA_TAG_BYTES;
	size = read(io->fd, frame->bytes, VHCA_IO_FRAME);
	frame->size = size > 0 ? (size_t)size : 0;
	return size > 0;
}

bool vhca_frame_io_receive(struct vhca_frame_io *io, struct vhca_frame_in *frame)
{
	frame->tag = 0;
	frame->sum_missing = false;
	if (!(io->is_socket ? receive_by_socket(io, frame) : receive_by_tap(io, frame)))
		return false;
	if (frame->size >= MAC_HEADER + VHCA_TAG_BYTES && !frame->tag &&
		get16(frame->bytes + TYPE_AT) == TYPE_VLAN) {
		frame->tag = get16(frame->bytes + TYPE_AT + 2);
		memmove(frame->bytes + VHCA_TAG_BYTES, frame->bytes, TYPE_AT);
		frame->bytes += VHCA_TAG_BYTES;
		frame->size -= VHCA_TAG_BYTES;
	}
	return true;
}

/* ---- out ---- */

/* A NIC would send more slowly: what the kernel has no room for waits, but not for long. */
static bool wait_for_room(const struct vhca_frame_io *io)
{
	struct pollfd ready = {.fd = io->fd, .events = POLLOUT};

	return (errno == EAGAIN || errno == ENOBUFS) && poll(&ready, 1, SEND_WAIT_MS) > 0;
}

unsigned int vhca_frame_io_flush(struct vhca_frame_io *io)
{
	unsigned int n_refused = 0;
	bool waited = false;

	for (unsigned int at = 0; at < io->n_out;) {
		int n = sendmmsg(io->fd, io->out + at, io->n_out - at, 0);

		if (n > 0) {
			at += (unsigned int)n;
			waited = false;
		} else if (waited || !wait_for_room(io)) {
			at++;
			n_refused++;
		} else {
			waited = true;
		}
	}
	io->n_out = 0;
	return n_refused;
}

unsigned int vhca_frame_io_send(struct vhca_frame_io *io, const uint8_t *bytes, size_t size)
{
	if (!io->is_socket)
		return write(io->fd, bytes, size) != (ssize_t)size;
	if (size > sizeof(struct slot))
		return 1;
	memcpy(io->out_slot[io->n_out].room, bytes, size);
	io->out_part[io->n_out++].iov_len = size;
	return io->n_out == BATCH ? vhca_frame_io_flush(io) : 0;
}
