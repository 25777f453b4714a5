/* raw_frame.c - takes an Ethernet frame apart, as far as checksums, hashes and rules need it */

#include "vhca/raw.h"

enum {
	MAC_BYTES = 6,
	TYPE_VLAN = 0x8100,
	TYPE_SERVICE_VLAN = 0x88a8,
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TAG_BYTES = 4,
	MAX_EXTENSIONS = 8, /* of IPv6: what has more is not looked into */
	TCP = 6,
	UDP = 17,
	TCP_ACK_FLAG = 0x10,
};

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* ---- L2 ---- */

static bool is_tag(uint16_t type)
{
	return type == TYPE_VLAN || type == TYPE_SERVICE_VLAN;
}

static void parse_tags(struct vhca_frame *frame)
{
	uint32_t at = 2 * MAC_BYTES;

	frame->type = get16(frame->bytes + at);
	while (is_tag(frame->type) && frame->n_tags < VHCA_MAX_TAGS &&
		at + 2 + TAG_BYTES <= frame->size) {
		frame->tag_type[frame->n_tags] = frame->type;
		frame->tag[frame->n_tags++] = get16(frame->bytes + at + 2);
		at += TAG_BYTES;
		frame->type = get16(frame->bytes + at);
	}
	frame->l3_at = (uint16_t)(at + 2);
}

/* ---- L4 ---- */

static void parse_tcp(struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l4_at;
	uint32_t room = frame->l4_end - frame->l4_at, bytes;

	if (room < 20)
		return;
	bytes = (header[12] >> 4) * 4u;
	if (bytes < 20 || bytes > room)
		return;
	frame->tcp_flags = header[13];
	frame->data_at = (uint16_t)(frame->l4_at + bytes);
	frame->l4 = !(frame->tcp_flags & TCP_ACK_FLAG)                ? VHCA_L4_TCP
		: frame->data_at == frame->l4_end && !frame->fragment ? VHCA_L4_TCP_EMPTY_ACK
								      : VHCA_L4_TCP_ACK;
}

static void parse_udp(struct vhca_frame *frame)
{
	if (frame->l4_end - frame->l4_at < 8)
		return;
	frame->data_at = (uint16_t)(frame->l4_at + 8);
	frame->l4 = VHCA_L4_UDP;
}

static void parse_l4(struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l4_at;

	if (frame->protocol == TCP)
		parse_tcp(frame);
	else if (frame->protocol == UDP)
		parse_udp(frame);
	if (!frame->l4)
		return;
	frame->source_port = get16(header);
	frame->dest_port = get16(header + 2);
}

/* ---- L3 ---- */

static void parse_ipv4(struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l3_at;
	uint32_t room = frame->size - frame->l3_at, bytes, total;
	uint16_t fragment;

	if (room < 20 || header[0] >> 4 != 4)
		return;
	bytes = (header[0] & 15) * 4;
	total = get16(header + 2);
	if (bytes < 20 || bytes > total || bytes > room)
		return;
	frame->cut = total > room;
	frame->l3 = VHCA_L3_IPV4;
	frame->tos = header[1];
	frame->ttl = header[8];
	frame->protocol = header[9];
	frame->options = bytes > 20;
	frame->l4_end = (uint16_t)(frame->l3_at + min(total, room));
	fragment = get16(header + 6) & 0x3fff;
	frame->fragment = fragment;
	if (fragment & 0x1fff) /* not the first one */
		return;
	frame->l4_at = (uint16_t)(frame->l3_at + bytes);
	parse_l4(frame);
}

enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60 };

static bool is_extension(uint8_t next)
{
	return next == HOP_BY_HOP || next == ROUTING || next == FRAGMENT || next == DESTINATION;
}

/* Where the headers end; 0: they do not, or it is not the first fragment. */
static uint32_t skip_extensions(struct vhca_frame *frame, uint32_t at)
{
	for (int i = 0; is_extension(frame->protocol); i++) {
		const uint8_t *header = frame->bytes + at;
		uint32_t bytes;

		if (i == MAX_EXTENSIONS || at + 8 > frame->l4_end)
			return 0;
		bytes = frame->protocol == FRAGMENT ? 8 : 8 + header[1] * 8u;
		if (at + bytes > frame->l4_end)
			return 0;
		if (frame->protocol == FRAGMENT) {
			frame->fragment = true;
			if (get16(header + 2) & 0xfff8)
				return 0;
		}
		frame->options = true;
		frame->protocol = header[0];
		at += bytes;
	}
	return at;
}

static void parse_ipv6(struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l3_at;
	uint32_t room = frame->size - frame->l3_at, payload, at;

	if (room < 40 || header[0] >> 4 != 6)
		return;
	payload = get16(header + 4);
	frame->cut = payload > room - 40;
	frame->l3 = VHCA_L3_IPV6;
	frame->tos = (uint8_t)(header[0] << 4 | header[1] >> 4);
	frame->ttl = header[7];
	frame->protocol = header[6];
	frame->l4_end = (uint16_t)(frame->l3_at + 40 + min(payload, room - 40));
	at = skip_extensions(frame, frame->l3_at + 40u);
	if (!at)
		return;
	frame->l4_at = (uint16_t)at;
	parse_l4(frame);
}

void vhca_frame_parse(struct vhca_frame *frame, const uint8_t *bytes, uint32_t size)
{
	static const uint8_t everyone[MAC_BYTES] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

	*frame = (struct vhca_frame){.bytes = bytes, .size = size};
	frame->multicast = bytes[0] & 1;
	frame->broadcast = !memcmp(bytes, everyone, MAC_BYTES);
	parse_tags(frame);
	if (frame->type == TYPE_IPV4)
		parse_ipv4(frame);
	else if (frame->type == TYPE_IPV6)
		parse_ipv6(frame);
}

/* ---- sums ---- */

uint64_t vhca_sum(const uint8_t *bytes, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t word;
	uint16_t half;

	for (; n >= 4; n -= 4, bytes += 4) {
		memcpy(&word, bytes, 4);
		sum += word;
	}
	if (n & 2) {
		memcpy(&half, bytes, 2);
		sum += half;
		bytes += 2;
	}
	if (n & 1)
		sum += be16((uint16_t)(bytes[0] << 8));
	return sum;
}

uint16_t vhca_sum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

uint64_t vhca_sum_pseudo(const struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l3_at;
	bool ipv4 = frame->l3 == VHCA_L3_IPV4;
	uint64_t sum = ipv4 ? vhca_sum(header + 12, 8) : vhca_sum(header + 8, 32);

	return sum + be16(frame->protocol) + be16((uint16_t)(frame->l4_end - frame->l4_at));
}

static bool l4_is_right(const struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l4_at;
	uint32_t length = frame->l4_end - frame->l4_at;

	if (frame->l4 == VHCA_L4_UDP) {
		if (get16(header + 4) != length)
			return false;
		if (!get16(header + 6))
			return frame->l3 == VHCA_L3_IPV4; /* none was made */
	}
	return vhca_sum_fold(vhca_sum(header, length) + vhca_sum_pseudo(frame)) == 0xffff;
}

void vhca_frame_sums(struct vhca_frame *frame)
{
	const uint8_t *header = frame->bytes + frame->l3_at;

	frame->sum = vhca_sum_fold(vhca_sum(header, frame->size - frame->l3_at));
	frame->l3_ok = frame->l3 == VHCA_L3_IPV6 ||
		(frame->l3 == VHCA_L3_IPV4 &&
			vhca_sum_fold(vhca_sum(header, (header[0] & 15) * 4u)) == 0xffff);
	frame->l4_ok =
		frame->l3_ok && frame->l4 && !frame->cut && !frame->fragment && l4_is_right(frame);
}
