/* writer.c - a capture file that is written: pcap of nanoseconds, or pcapng with one interface */

#include "drv/pcap/pcap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	LINK_ETHERNET = 1,
	LONGEST = 65535,
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_PACKET = 6,
	OPTION_RESOLUTION = 9,
	NANOSECONDS = 9, /* 10^-9 s */
};

/* In the byte order of the host, which their magic tells. */
static const struct {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, longest, link;
} file_header = {0xa1b23c4d, 2, 4, 0, 0, LONGEST, LINK_ETHERNET};

static const struct {
	uint32_t type, size, magic;
	uint16_t major, minor;
	uint32_t length[2]; /* -1: not known */
	uint32_t size_again;
} section = {BLOCK_SECTION, sizeof(section), 0x1a2b3c4d, 1, 0, {0xffffffff, 0xffffffff},
	sizeof(section)};
static_assert(sizeof(section) == 28, "a section header block without options");

static const struct {
	uint32_t type, size;
	uint16_t link, zero;
	uint32_t longest;
	uint16_t option, option_len;
	uint8_t resolution, pad[3];
	uint32_t end, size_again;
} interface = {BLOCK_INTERFACE, sizeof(interface), LINK_ETHERNET, 0, LONGEST, OPTION_RESOLUTION, 1,
	NANOSECONDS, {0}, 0, sizeof(interface)};
static_assert(sizeof(interface) == 32, "an interface description block with its time resolution");

struct packet_block {
	uint32_t type, size, interface, time_high, time_low, caught, len;
};
static_assert(sizeof(struct packet_block) == 28, "what is before a packet's bytes");

struct packet_header {
	uint32_t seconds, nanoseconds, caught, len;
};

/* ---- bytes ---- */

static int write_out(struct pcap_writer *writer)
{
	while (writer->at < writer->n) {
		const ssize_t done =
			write(writer->fd, writer->room + writer->at, writer->n - writer->at);

		if (done >= 0)
			writer->at += (size_t)done;
		else if (errno != EINTR)
			return -errno;
	}
	writer->at = writer->n = 0;
	return 0;
}

/* Room for a whole record, so that none is ever in the file in part for good. */
static int make_room(struct pcap_writer *writer, size_t n)
{
	if (n > sizeof(writer->room))
		return -EMSGSIZE;
	return n > sizeof(writer->room) - writer->n ? write_out(writer) : 0;
}

static void put(struct pcap_writer *writer, const void *data, size_t n)
{
	memcpy(writer->room + writer->n, data, n);
	writer->n += n;
}

/* ---- open and close ---- */

static void put_start(struct pcap_writer *writer)
{
	if (!writer->ng) {
		put(writer, &file_header, sizeof(file_header));
		return;
	}
	put(writer, &section, sizeof(section));
	put(writer, &interface, sizeof(interface));
}

/* A pipe that nobody reads is not waited for: that would be for ever, and no signal ends it. */
static int open_file(const char *file)
{
	const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);

	if (fd < 0)
		return -errno;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

int vbn__pcap_writer_open(const char *file, struct pcap_writer **result)
{
	struct pcap_writer *writer = calloc(1, sizeof(*writer));
	const size_t len = strlen(file);
	int ret;

	if (!writer)
		return -ENOMEM;
	writer->ng = len > 7 && !strcmp(file + len - 7, ".pcapng");
	writer->fd = open_file(file);
	if (writer->fd >= 0) {
		put_start(writer);
		*result = writer;
		return 0;
	}
	ret = writer->fd;
	free(writer);
	return fail(-ret, "port pcap:>%s cannot be opened: the file cannot be written: %s", file,
		ret == -ENXIO ? "it is a pipe that nobody reads: start its reader first"
			      : strerror(-ret));
}

int vbn__pcap_writer_close(struct pcap_writer *writer)
{
	int ret;

	if (!writer)
		return 0;
	ret = write_out(writer);
	if (close(writer->fd) && !ret)
		ret = -errno;
	free(writer);
	return ret;
}

/* ---- packets ---- */

static void put_chain(struct pcap_writer *writer, const struct vbn_buf *buf)
{
	for (;; buf = buf->next) {
		put(writer, buf->data, buf->len);
		if (!(buf->flags & VBN_BUF_CHAIN))
			return;
	}
}

static int put_block(
	struct pcap_writer *writer, const struct vbn_buf *buf, uint32_t len, uint64_t time)
{
	static const uint8_t zeros[4];
	const uint32_t pad = (uint32_t)round_up(len, 4) - len;
	const uint32_t size = (uint32_t)sizeof(struct packet_block) + len + pad + 4;
	const struct packet_block block = {.type = BLOCK_PACKET,
		.size = size,
		.time_high = (uint32_t)(time >> 32),
		.time_low = (uint32_t)time,
		.caught = len,
		.len = len};
	const int ret = make_room(writer, size);

	if (ret)
		return ret;
	put(writer, &block, sizeof(block));
	put_chain(writer, buf);
	put(writer, zeros, pad);
	put(writer, &size, sizeof(size));
	return 0;
}

static int put_packet(
	struct pcap_writer *writer, const struct vbn_buf *buf, uint32_t len, uint64_t time)
{
	const struct packet_header header = {.seconds = (uint32_t)(time / 1000000000),
		.nanoseconds = (uint32_t)(time % 1000000000),
		.caught = len,
		.len = len};
	const int ret = make_room(writer, sizeof(header) + len);

	if (ret)
		return ret;
	put(writer, &header, sizeof(header));
	put_chain(writer, buf);
	return 0;
}

int vbn__pcap_writer_put(struct pcap_writer *writer, const struct vbn_buf *buf, uint64_t time)
{
	const uint32_t len = (uint32_t)vbn_buf_total(buf);

	return writer->ng ? put_block(writer, buf, len, time) : put_packet(writer, buf, len, time);
}
