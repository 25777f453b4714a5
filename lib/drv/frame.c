/* frame.c - checksums and tags of frames in software */

#include "drv/frame.h"

#include "base/checksum.h"

enum {
	ETHERTYPE_IP4 = 0x0800,
	ETHERTYPE_IP6 = 0x86dd,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_QINQ = 0x88a8,
	TAGS_MOST = 2,
	EXTENSIONS_MOST = 8,
	PROTO_HOP_BY_HOP = 0,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_ROUTING = 43,
	PROTO_ICMP6 = 58,
	PROTO_DESTINATION = 60,
};

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* The type behind what tags there are; 0: the frame is cut short. */
static uint32_t network_layer(const uint8_t *data, uint32_t len, uint32_t *at)
{
	uint32_t type, end = FRAME_HEADER;

	if (len < end)
		return 0;
	type = get16(data + end - 2);
	for (int i = 0; i < TAGS_MOST && (type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ); i++) {
		end += FRAME_TAG;
		if (len < end)
			return 0;
		type = get16(data + end - 2);
	}
	*at = end;
	return type;
}

/* Where in its header a protocol has its checksum, and how long that is; 0: it has none known here. */
static uint32_t checksum_field(uint8_t protocol, bool is_ip6, uint32_t *header)
{
	switch (protocol) {
	case PROTO_TCP: *header = 20; return 16;
	case PROTO_UDP: *header = 8; return 6;
	case PROTO_ICMP6: *header = 4; return is_ip6 ? 2 : 0;
	default: return 0;
	}
}

static void fourth_layer(const uint8_t *data, uint32_t len, uint64_t total, uint32_t at,
	uint32_t bytes, uint8_t protocol, bool is_ip6, struct frame_sums *sums)
{
	uint32_t header = 0;
	const uint32_t field = checksum_field(protocol, is_ip6, &header);
	(void)data;

	if (!field || bytes < header || at + header > len || (uint64_t)at + bytes > total)
		return;
	sums->l4 = at;
	sums->l4_len = bytes;
	sums->l4_field = at + field;
	sums->is_udp = protocol == PROTO_UDP;
}

static void find_ip4(
	const uint8_t *data, uint32_t len, uint64_t total, uint32_t at, struct frame_sums *sums)
{
	const uint8_t *ip = data + at;
	uint32_t header, bytes;

	if (at + 20 > len || ip[0] >> 4 != 4)
		return;
	header = (ip[0] & 15u) * 4;
	bytes = get16(ip + 2);
	if (header < 20 || at + header > len || bytes < header)
		return;
	sums->ip = at;
	sums->ip_len = header;
	if (get16(ip + 6) & 0x3fff) /* a fragment */
		return;
	bytes -= header;
	fourth_layer(data, len, total, at + header, bytes, ip[9], false, sums);
	if (sums->l4)
		sums->pseudo = csum_pseudo4(ip + 12, ip + 16, ip[9], (uint16_t)bytes);
}

/* Extensions that stand before the whole of a message; a fragment's has none of its checksum. A
 * checksum covers the last hop of a routing header, which is not looked for: such a frame goes as it is. */
static void find_ip6(
	const uint8_t *data, uint32_t len, uint64_t total, uint32_t at, struct frame_sums *sums)
{
	const uint8_t *ip = data + at;
	uint32_t here = at + 40, bytes;
	uint8_t next;

	if (here > len || ip[0] >> 4 != 6)
		return;
	bytes = get16(ip + 4);
	next = ip[6];
	for (int i = 0;
		i < EXTENSIONS_MOST && (next == PROTO_HOP_BY_HOP || next == PROTO_DESTINATION);
		i++) {
		uint32_t size;

		if (here + 8 > len)
			return;
		size = 8 + data[here + 1] * 8u;
		if (size > bytes || here + size > len)
			return;
		next = data[here];
		here += size;
		bytes -= size;
	}
	fourth_layer(data, len, total, here, bytes, next, true, sums);
	if (sums->l4)
		sums->pseudo = csum_pseudo6(ip + 8, ip + 24, next, bytes);
}

void vbn__frame_sums(const uint8_t *data, uint32_t len, uint64_t total, struct frame_sums *sums)
{
	uint32_t at = 0;

	*sums = (struct frame_sums){0};
	switch (network_layer(data, len, &at)) {
	case ETHERTYPE_IP4: find_ip4(data, len, total, at, sums); return;
	case ETHERTYPE_IP6: find_ip6(data, len, total, at, sums); return;
	default: return;
	}
}

static void put16(uint8_t *at, uint16_t as_it_lies)
{
	memcpy(at, &as_it_lies, sizeof(as_it_lies));
}

/* The sum of `len` bytes of a chain from `at` on. */
static uint64_t sum_chain(const struct vbn_buf *buf, uint32_t at, uint32_t len)
{
	uint64_t sum = 0;
	bool odd = false;

	for (;; buf = buf->next) {
		const uint32_t skip = min(at, buf->len), here = min(buf->len - skip, len);
		const uint64_t part = vbn__csum_bytes(buf->data + skip, here, 0);

		sum = csum_add(sum, odd ? csum_at_odd(part) : part);
		odd ^= here & 1;
		at -= skip;
		len -= here;
		if (!len || !(buf->flags & VBN_BUF_CHAIN))
			return sum;
	}
}

static void fill(struct vbn_buf *buf, uint16_t flags, bool device_l4)
{
	uint8_t *data = buf->data;
	struct frame_sums sums;

	vbn__frame_sums(data, buf->len, vbn_buf_total(buf), &sums);
	if (flags & VBN_PACKET_TX_IP_CSUM && sums.ip) {
		put16(data + sums.ip + 10, 0);
		put16(data + sums.ip + 10,
			csum_finish(vbn__csum_bytes(data + sums.ip, sums.ip_len, 0)));
	}
	if (flags & VBN_PACKET_TX_L4_CSUM && sums.l4 && !device_l4) {
		uint64_t sum;

		put16(data + sums.l4_field, 0);
		sum = csum_add(sum_chain(buf, sums.l4, sums.l4_len), sums.pseudo);
		put16(data + sums.l4_field, sums.is_udp ? csum_finish_udp(sum) : csum_finish(sum));
	}
}

static int put_tag(struct vbn_buf *buf, uint16_t vlan)
{
	uint8_t *tag;

	if (buf->len < FRAME_HEADER - 2)
		return -EINVAL;
	if (vbn_buf_headroom(buf) >= FRAME_TAG) {
		memmove(buf->data - FRAME_TAG, buf->data, 12);
		buf->data -= FRAME_TAG;
	} else if (vbn_buf_tailroom(buf) >= FRAME_TAG) {
		memmove(buf->data + 12 + FRAME_TAG, buf->data + 12, buf->len - 12);
	} else {
		return -EINVAL;
	}
	buf->len += FRAME_TAG;
	tag = buf->data + 12;
	put16(tag, htobe16(ETHERTYPE_VLAN));
	put16(tag + 2, htobe16(vlan));
	return 0;
}

fast_path int vbn__frame_prepare(struct vbn_buf *buf, bool device_l4)
{
	struct vbn_packet *packet = vbn_buf_packet(buf);

	if (packet->flags & VBN_PACKET_TX_VLAN) {
		int ret = put_tag(buf, packet->vlan);

		if (ret)
			return ret;
		packet->flags &=
			(uint16_t)~VBN_PACKET_TX_VLAN; /* it is in, should it be sent again */
		if (packet->l2_len)
			packet->l2_len = (uint8_t)(packet->l2_len + FRAME_TAG);
	}
	if (packet->flags & (VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM))
		fill(buf, packet->flags, device_l4);
	return 0;
}
