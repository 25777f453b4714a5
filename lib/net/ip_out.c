/* ip_out.c - packets of our own: IP headers, and fragments where they do not fit */

#include "net/seat.h"

/* ---- sums of chains ---- */

uint64_t vbn__sum_chain(uint64_t sum, const struct vbn_buf *buf)
{
	bool odd = false;

	for (;; buf = buf->next) {
		if (odd)
			sum += csum_at_odd(sum_add(0, buf->data, buf->len));
		else
			sum = sum_add(sum, buf->data, buf->len);
		odd ^= buf->len & 1;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return sum;
	}
}

/* Of UDP and ICMPv6: the transport's whole, which begins at buf->data. */
static void fill_sum(const struct ip_out *out, struct vbn_buf *buf, uint32_t length)
{
	__be16 sum = 0;
	uint8_t *field = buf->data + (out->protocol == PROTO_UDP ? 6 : 2);

	memcpy(field, &sum, 2);
	sum = sum_finish_udp(vbn__sum_chain(
		sum_ips(out->from, out->to) + sum_pseudo(length, out->protocol), buf));
	memcpy(field, &sum, 2);
}

/* ---- headers ---- */

static force_inline uint32_t header_bytes(const struct ip_out *out)
{
	if (ip_is4(out->to))
		return out->router_alert ? IP4_BYTES + 4 : IP4_BYTES;
	return out->router_alert ? IP6_BYTES + 8 : IP6_BYTES;
}

static force_inline void put_ip4(uint8_t *at, const struct ip_out *out, uint32_t header,
	uint32_t length, uint16_t id, uint16_t fragment)
{
	struct wire_ip4 *ip = (struct wire_ip4 *)at;
	uint64_t sum;

	ip->version_ihl = (uint8_t)(0x40 | header / 4);
	ip->tos = out->traffic_class;
	ip->length = be16((uint16_t)(header + length));
	ip->id = be16(id);
	ip->fragment = be16(fragment);
	ip->ttl = out->ttl;
	ip->protocol = out->protocol;
	ip->sum = 0;
	memcpy(ip->from, out->from->bytes + 12, 4);
	memcpy(ip->to, out->to->bytes + 12, 4);
	sum = (uint64_t)load4(at) + load4(at + 4) + load4(at + 8) + load4(at + 12) + load4(at + 16);
	if (unlikely(header > IP4_BYTES)) {
		memcpy(at + IP4_BYTES, (const uint8_t[]){0x94, 4, 0, 0}, 4);
		sum += load4(at + IP4_BYTES);
	}
	ip->sum = sum_finish(sum);
}

static force_inline void put_ip6(
	uint8_t *at, const struct ip_out *out, uint32_t length, uint8_t next)
{
	struct wire_ip6 *ip = (struct wire_ip6 *)at;

	ip->version_class_flow = be32(0x60000000u | (uint32_t)out->traffic_class << 20);
	ip->length = be16((uint16_t)length);
	ip->next = next;
	ip->hops = out->ttl;
	memcpy(ip->from, out->from->bytes, 16);
	memcpy(ip->to, out->to->bytes, 16);
}

static void put_alert6(uint8_t *at, uint8_t next)
{
	memcpy(at, (const uint8_t[]){next, 0, 5, 2, 0, 0, 1, 0}, 8);
}

/* ---- fragments ---- */

/* Where in a chain copying has come to. */
struct cursor {
	const struct vbn_buf *buf;
	uint32_t at;
};

static void copy_out(struct cursor *from, uint8_t *to, uint32_t n)
{
	while (n) {
		uint32_t some = min(n, from->buf->len - from->at);

		memcpy(to, from->buf->data + from->at, some);
		to += some;
		n -= some;
		from->at += some;
		if (from->at == from->buf->len && from->buf->flags & VBN_BUF_CHAIN)
			*from = (struct cursor){from->buf->next, 0};
	}
}

/* How much of the payload a fragment takes: of the MTU, and of a buf of the pool. */
static uint32_t fragment_bytes(const struct dst *dst, uint32_t header, const struct vbn_buf *piece)
{
	uint32_t room = piece->size - VBN_NET_HEADROOM;

	return min(dst->mtu - header, room) & ~7u;
}

static void send_fragment(struct net_seat *seat, const struct ip_out *out, struct vbn_buf *piece,
	uint32_t id, uint32_t offset, bool more)
{
	bool v4 = ip_is4(out->to);
	uint32_t length = piece->len;

	if (v4) {
		piece->data -= IP4_BYTES;
		piece->len += IP4_BYTES;
		put_ip4(piece->data, out, IP4_BYTES, length, (uint16_t)id,
			(uint16_t)(offset / 8 | (more ? IP4_MF : 0)));
	} else {
		struct wire_fragment *fragment = (struct wire_fragment *)(piece->data - 8);

		*fragment = (struct wire_fragment){
			out->protocol, 0, be16((uint16_t)(offset | more)), be32(id)};
		piece->data -= IP6_BYTES + 8;
		piece->len += IP6_BYTES + 8;
		put_ip6(piece->data, out, length + 8, PROTO_FRAGMENT);
	}
	seat_count(seat, fragments_sent);
	dst_send(seat, out->dst, piece, true);
}

/* `total` bytes from `from` on, copied into bufs of the pool. The payload's first byte has `base` as its
 * offset, and where `more`, its last is not the datagram's. */
static bool send_pieces(struct net_seat *seat, const struct ip_out *out, struct cursor from,
	uint32_t total, uint32_t id, uint32_t base, bool more)
{
	uint32_t header = ip_is4(out->to) ? IP4_BYTES : IP6_BYTES + 8, some;

	for (uint32_t offset = 0; offset < total; offset += some) {
		struct vbn_buf *piece = vbn__net_buf(seat, out->dst->iface);

		if (!piece) {
			seat_count(seat, tx_packets);
			seat_count(seat, drop_tx_no_buf);
			return false;
		}
		some = min(fragment_bytes(out->dst, header, piece), total - offset);
		copy_out(&from, piece->data, some);
		piece->len = some;
		send_fragment(seat, out, piece, id, base + offset, more || offset + some < total);
	}
	return true;
}

static void send_in_fragments(
	struct net_seat *seat, const struct ip_out *out, struct vbn_buf *buf, uint32_t total)
{
	uint32_t id = ip_is4(out->to) ? seat->id4++ : seat->id6++;

	seat_count(seat, fragmented);
	send_pieces(seat, out, (struct cursor){buf, 0}, total, id, 0, false);
	buf_drop(buf);
}

void vbn__ip4_refragment(struct net_seat *seat, struct dst *dst, struct vbn_buf *buf)
{
	const struct wire_ip4 *ip = (const struct wire_ip4 *)buf->data;
	struct vbn_ip from = ip_from4(ip->from), to = ip_from4(ip->to);
	uint32_t header = (ip->version_ihl & 15u) * 4, fragment = from_be16(ip->fragment);
	struct ip_out out = {.dst = dst,
		.from = &from,
		.to = &to,
		.protocol = ip->protocol,
		.ttl = ip->ttl,
		.traffic_class = ip->tos};

	seat_count(seat, fragmented);
	send_pieces(seat, &out, (struct cursor){buf, header}, buf->len - header, from_be16(ip->id),
		(fragment & IP4_OFFSET) * 8, fragment & IP4_MF);
	buf_drop(buf);
}

/* ---- sending ---- */

/* Queues gather a few segments; what is of many, and fits one packet, becomes one. NULL: gone, counted. */
static struct vbn_buf *in_one(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf, uint32_t total)
{
	struct vbn_buf *one = vbn__net_buf(seat, iface);
	struct cursor from = {buf, 0};

	if (one && total > one->size - VBN_NET_HEADROOM) {
		buf_drop(one);
		one = NULL;
	}
	if (one) {
		copy_out(&from, one->data, total);
		one->len = total;
	} else {
		seat_count(seat, tx_packets);
		seat_count(seat, drop_tx_no_buf);
	}
	buf_drop(buf);
	return one;
}

fast_path void vbn__ip_send(struct net_seat *seat, const struct ip_out *out, struct vbn_buf *buf)
{
	const struct net_if *iface = out->dst->iface;
	uint32_t header = header_bytes(out), total = buf->len;
	struct vbn_net_end *end = iface ? seat->ends[iface->link] : NULL;
	struct vbn_packet *packet;
	bool fits;

	if (unlikely(!end)) {
		seat_count(seat, tx_packets);
		seat_drop(seat, buf, drop_tx_no_end);
		return;
	}
	if (unlikely(buf->flags & VBN_BUF_CHAIN))
		total = (uint32_t)vbn_buf_total(buf);
	fits = header + total <= out->dst->mtu;
	if (unlikely(out->offload && (!end->offload || !fits)))
		fill_sum(out, buf, total);
	if (unlikely(!fits)) {
		send_in_fragments(seat, out, buf, total);
		return;
	}
	if (unlikely(buf->flags & VBN_BUF_CHAIN)) {
		buf = in_one(seat, iface, buf, total);
		if (!buf)
			return;
	}
	buf = push(seat, iface, buf, header);
	if (unlikely(!buf)) {
		seat_count(seat, tx_packets);
		return;
	}
	if (likely(ip_is4(out->to))) {
		put_ip4(buf->data, out, header, total, seat->id4, out->dont_fragment ? IP4_DF : 0);
		seat->id4++;
	} else if (out->router_alert) {
		put_alert6(buf->data + IP6_BYTES, out->protocol);
		put_ip6(buf->data, out, total + 8, PROTO_HOPOPTS);
	} else {
		put_ip6(buf->data, out, total, out->protocol);
	}
	packet = vbn_buf_packet(buf);
	packet->flags = end->offload ? out->offload : 0;
	packet->l3_len = (uint8_t)header;
	packet->type = 0;
	dst_send(seat, out->dst, buf, true);
}
