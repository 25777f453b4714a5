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
	TAG_BYTES = 4,
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

void vhca_pcap_packet(bool sent, const struct vhca_route *route, const void *bytes, size_t size)
{
	uint8_t headers[ETHERNET_BYTES + TAG_BYTES + VHCA_ROUTE_BYTES];
	uint8_t *to = put_mac(put_mac(headers, route->dest), route->source);
	struct iovec frame[2] = {{headers, 0}, {(void *)(uintptr_t)bytes, size}};

	if (route->tag)
		to = put16(put16(to, VHCA_TYPE_VLAN), route->tag);
	to = put16(to, vhca_route_type(route));
	to += vhca_route_headers(route, (uint32_t)(size - VHCA_ICRC_BYTES), to);
	frame[0].iov_len = (size_t)(to - headers);
	write_packet(sent, frame, frame[0].iov_len + size);
}

void vhca_pcap_frame(bool sent, const void *bytes, size_t size)
{
	struct iovec frame[2] = {{(void *)(uintptr_t)bytes, size}, {NULL, 0}};

	write_packet(sent, frame, size);
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
