/* writer.c - a capture file that is written: pcap of nanoseconds, or pcapng with one interface */

#include "drv/pcap/pcap.h"

#include <stdlib.h>

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

static bool put(struct pcap_writer *writer, const void *data, size_t n)
{
	return !n || fwrite_unlocked(data, n, 1, writer->file) == 1;
}

static bool put_start(struct pcap_writer *writer)
{
	if (!writer->ng)
		return put(writer, &file_header, sizeof(file_header));
	return put(writer, &section, sizeof(section)) && put(writer, &interface, sizeof(interface));
}

int vbn__pcap_writer_open(const char *file, struct pcap_writer **result)
{
	struct pcap_writer *writer = calloc(1, sizeof(*writer));
	const size_t len = strlen(file);
	int ret = 0;

	if (!writer)
		return -ENOMEM;
	writer->ng = len > 7 && !strcmp(file + len - 7, ".pcapng");
	writer->file = fopen(file, "we");
	if (!writer->file)
		ret = -errno;
	else if (setvbuf(writer->file, writer->room, _IOFBF, sizeof(writer->room)) ||
		!put_start(writer))
		ret = -EIO;
	if (!ret) {
		*result = writer;
		return 0;
	}
	if (writer->file)
		fclose(writer->file);
	free(writer);
	return fail(-ret, "port pcap:>%s cannot be opened: the file cannot be written: %s", file,
		strerror(-ret));
}

int vbn__pcap_writer_close(struct pcap_writer *writer)
{
	int ret;

	if (!writer)
		return 0;
	ret = fclose(writer->file) ? -errno : 0;
	free(writer);
	return ret;
}

static bool put_chain(struct pcap_writer *writer, const struct vbn_buf *buf)
{
	for (;; buf = buf->next) {
		if (!put(writer, buf->data, buf->len))
			return false;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return true;
	}
}

static bool put_block(
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

	return put(writer, &block, sizeof(block)) && put_chain(writer, buf) &&
		put(writer, zeros, pad) && put(writer, &size, sizeof(size));
}

static bool put_packet(
	struct pcap_writer *writer, const struct vbn_buf *buf, uint32_t len, uint64_t time)
{
	const struct packet_header header = {.seconds = (uint32_t)(time / 1000000000),
		.nanoseconds = (uint32_t)(time % 1000000000),
		.caught = len,
		.len = len};

	return put(writer, &header, sizeof(header)) && put_chain(writer, buf);
}

int vbn__pcap_writer_put(struct pcap_writer *writer, const struct vbn_buf *buf, uint64_t time)
{
	const uint32_t len = (uint32_t)vbn_buf_total(buf);

	errno = 0;
	if (writer->ng ? put_block(writer, buf, len, time) : put_packet(writer, buf, len, time))
		return 0;
	return errno ? -errno : -EIO;
}
