/* pcap.c - a capture of the wire: pcapng, with nanoseconds and the direction of each packet
 *
 * Several processes may write to one file: each block is written by one appending write, and all of
 * them describe the same interface. The format is that of the pcapng draft (IETF opsawg).
 */
#include "vhca/vhca.h"

#include "vhca/output.h"
#include "vhca/pcap.h"

#include <endian.h>
#include <time.h>

enum {
	ETHERNET_BYTES = 14,
	IPV4_BYTES = 20,
	IPV6_BYTES = 40,
	UDP_BYTES = 8,
	ROCE_PORT = 4791,
	HOP_LIMIT = 64,
	LINKTYPE_ETHERNET = 1,
	FLAG_INBOUND = 1,
	FLAG_OUTBOUND = 2,
};

bool vhca_pcap_on;

static struct vhca_output output = {.what = "capture", .fd = -1};

/* ---- blocks ---- */

struct block_option {
	uint16_t code, length;
	uint8_t value[4];
};

/* The section, and the one interface that every process means. */
static const struct {
	struct {
		uint32_t type, length, magic;
		uint16_t major, minor;
		uint64_t section_length;
		uint32_t length_again;
	} __attribute__((packed)) section;
	struct {
		uint32_t type, length;
		uint16_t link_type, reserved;
		uint32_t snap_length;
		struct block_option name, resolution;
		uint32_t end_of_options, length_again;
	} __attribute__((packed)) interface;
} __attribute__((packed)) start = {
	.section = {.type = 0x0a0d0d0a,
		.length = sizeof(start.section),
		.magic = 0x1a2b3c4d,
		.major = 1,
		.section_length = UINT64_MAX, /* not known */
		.length_again = sizeof(start.section)},
	.interface = {.type = 1,
		.length = sizeof(start.interface),
		.link_type = LINKTYPE_ETHERNET,
		.name = {2, 4, "vhca"},
		.resolution = {9, 1, {9}}, /* 10^-9 s */
		.length_again = sizeof(start.interface)},
};

struct packet_block {
	uint32_t type, length, interface, time_high, time_low, captured, original;
};

struct packet_end {
	struct block_option flags;
	uint32_t end_of_options, length;
};

static_assert(sizeof(struct packet_block) == 28, "the fixed part of an enhanced packet block");
static_assert(sizeof(struct packet_end) == 16, "flags, end of options, length");

/* The parts of `frame` are an Ethernet frame. */
static void write_packet(bool sent, const struct iovec frame[2], size_t size)
{
	static const uint8_t pad[4];
	size_t n_pad = -size & 3;
	uint32_t length =
		(uint32_t)(sizeof(struct packet_block) + size + n_pad + sizeof(struct packet_end));
	struct packet_block block = {.type = 6,
		.length = length,
		.captured = (uint32_t)size,
		.original = (uint32_t)size};
	struct packet_end end = {
		.flags = {2, 4, {sent ? FLAG_OUTBOUND : FLAG_INBOUND}}, .length = length};
	struct iovec parts[] = {{&block, sizeof(block)}, frame[0], frame[1],
		{(void *)(uintptr_t)pad, n_pad}, {&end, sizeof(end)}};
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	block.time_high = (uint32_t)(ns >> 32);
	block.time_low = (uint32_t)ns;
	vhca_pcap_on = vhca_output_write(&output, parts, ARRAY_SIZE(parts));
}

/* ---- headers ---- */

static uint8_t *put16(uint8_t *to, size_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
	return to + 2;
}

/* As device.c makes them. */
static uint8_t *put_mac(uint8_t *to, const uint8_t address[16])
{
	to[0] = 2;
	to[1] = 0;
	memcpy(to + 2, address + 12, 4);
	return to + 6;
}

static bool is_ipv4(const uint8_t address[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(address, mapped, sizeof(mapped));
}

static uint16_t ip_checksum(const uint8_t *header)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < IPV4_BYTES; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return (uint16_t)~sum;
}

static uint8_t *put_ipv4(uint8_t *to, const uint8_t *source, const uint8_t *dest, size_t size)
{
	uint8_t *header = to;

	memset(to, 0, IPV4_BYTES);
	to[0] = 0x45;
	put16(to + 2, IPV4_BYTES + UDP_BYTES + size);
	to[6] = 0x40; /* do not fragment */
	to[8] = HOP_LIMIT;
	to[9] = 17;
	memcpy(to + 12, source + 12, 4);
	memcpy(to + 16, dest + 12, 4);
	put16(to + 10, ip_checksum(header));
	return to + IPV4_BYTES;
}

static uint8_t *put_ipv6(uint8_t *to, const uint8_t *source, const uint8_t *dest, size_t size)
{
	memset(to, 0, IPV6_BYTES);
	to[0] = 0x60;
	put16(to + 4, UDP_BYTES + size);
	to[6] = 17;
	to[7] = HOP_LIMIT;
	memcpy(to + 8, source, 16);
	memcpy(to + 24, dest, 16);
	return to + IPV6_BYTES;
}

/* ---- what the wire calls ---- */

void vhca_pcap_packet(bool sent, const uint8_t source[16], const uint8_t dest[16],
	uint16_t source_port, const void *bytes, size_t size)
{
	uint8_t headers[ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES];
	bool v4 = is_ipv4(source) && is_ipv4(dest);
	uint8_t *to = put_mac(headers, dest);
	struct iovec frame[2] = {{headers, 0}, {(void *)(uintptr_t)bytes, size}};

	to = put_mac(to, source);
	to = put16(to, v4 ? 0x0800 : 0x86dd);
	to = v4 ? put_ipv4(to, source, dest, size) : put_ipv6(to, source, dest, size);
	to = put16(to, source_port);
	to = put16(to, ROCE_PORT);
	to = put16(to, UDP_BYTES + size);
	to = put16(to, 0); /* RoCEv2 allows no UDP checksum */
	frame[0].iov_len = (size_t)(to - headers);
	write_packet(sent, frame, frame[0].iov_len + size);
}

void vhca_pcap_frame(bool sent, const void *frame, size_t size)
{
	struct iovec parts[2] = {{(void *)(uintptr_t)frame, size}, {NULL, 0}};

	write_packet(sent, parts, size);
}

void vhca_pcap_open(void)
{
	const struct vhca_options *options = vhca_options();

	if (!*options->pcap)
		return;
	if (!strcmp(options->wire, "loopback"))
		log_warning(
			"vhca: the capture %s will be empty: on the loopback messages go from queue to "
			"queue and are no packets; choose a wire that has some",
			options->pcap);
	vhca_pcap_on = vhca_output_open(&output, options->pcap, &start, sizeof(start), 4);
}
