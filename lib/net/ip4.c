/* ip4.c - IPv4 in: what is wrong, what is ours, what is forwarded */

#include "net/seat.h"

enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_LSRR = 131, OPTION_SSRR = 137 };

/* Nobody sends from there: this network (0/8), loopback, groups, class E and broadcast. */
static force_inline bool is_martian(const uint8_t from[4])
{
	return from[0] == 0 || from[0] == 127 || from[0] >= 224;
}

/* RFC 3927: what is from or to such an address stays on its link. */
static force_inline bool is_link_local(const uint8_t address[4])
{
	return address[0] == 169 && address[1] == 254;
}

enum options { OPTIONS_GOOD, OPTIONS_BAD, OPTIONS_SOURCE_ROUTE };

static enum options options_check(const uint8_t *at, uint32_t left)
{
	while (left) {
		if (*at == OPTION_END)
			return OPTIONS_GOOD;
		if (*at == OPTION_NOP) {
			at++;
			left--;
			continue;
		}
		if (left < 2 || at[1] < 2 || at[1] > left)
			return OPTIONS_BAD;
		if (*at == OPTION_LSRR || *at == OPTION_SSRR)
			return OPTIONS_SOURCE_ROUTE;
		left -= at[1];
		at += at[1];
	}
	return OPTIONS_GOOD;
}

/* True: it is dropped. */
cold static bool options_refuse(struct rx *rx, struct vbn_buf *buf, uint32_t header)
{
	switch (options_check(buf->data + IP4_BYTES, header - IP4_BYTES)) {
	case OPTIONS_GOOD: return false;
	case OPTIONS_BAD:
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_PARAMETER, IP4_BYTES);
		seat_drop(rx->seat, buf, drop_options);
		return true;
	default:
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_SOURCE_ROUTE, 0);
		seat_drop(rx->seat, buf, drop_source_route);
		return true;
	}
}

/* ---- forwarding ---- */

/* What cannot be forwarded, and who is told. */
cold static void forward_refuse(struct rx *rx, struct vbn_buf *buf, struct dst *dst)
{
	if (dst->kind == DST_NONE) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_NO_ROUTE, 0);
		seat_drop(rx->seat, buf, drop_no_route);
	} else {
		seat_drop(rx->seat, buf, drop_not_local);
	}
}

static void forward(struct rx *rx, struct vbn_buf *buf, struct dst *dst)
{
	struct wire_ip4 *ip = (struct wire_ip4 *)buf->data;

	if (unlikely(dst->kind != DST_UNICAST || rx->group || is_link_local(ip->from) ||
		    is_link_local(ip->to))) {
		forward_refuse(rx, buf, dst);
		return;
	}
	if (unlikely(ip->ttl <= 1)) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_TIME, 0);
		seat_drop(rx->seat, buf, drop_ttl);
		return;
	}
	if (unlikely(buf->len > dst->mtu && ip->fragment & be16(IP4_DF))) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_TOO_BIG, dst->mtu);
		seat_drop(rx->seat, buf, drop_too_big);
		return;
	}
	ip4_hop(ip);
	vbn_buf_packet(buf)->flags = 0;
	seat_count(rx->seat, forwarded);
	if (unlikely(buf->len > dst->mtu)) {
		vbn__ip4_refragment(rx->seat, dst, buf);
		return;
	}
	dst_send(rx->seat, dst, buf, false);
}

/* ---- ours ---- */

static void input_fragment(
	struct rx *rx, struct vbn_buf *buf, const struct wire_ip4 *ip, uint32_t header)
{
	uint32_t fragment = from_be16(ip->fragment);
	struct piece piece = {.id = from_be16(ip->id),
		.offset = (fragment & IP4_OFFSET) * 8,
		.protocol = ip->protocol,
		.more = fragment & IP4_MF};

	buf->data += header;
	buf->len -= header;
	vbn__fragment_input(rx, buf, &piece);
}

static bool is_local(const struct rx *rx, const struct dst *dst)
{
	if (likely(dst->kind == DST_LOCAL))
		return load_once(&dst->address->state) == ADDRESS_VALID &&
			(dst->iface == rx->iface || rx->seat->net->forward) && !rx->group;
	if (dst->kind == DST_BROADCAST)
		return dst->iface == rx->iface && rx->group;
	return dst->kind == DST_GROUP && rx->group;
}

static force_inline uint32_t scope_of(const struct rx *rx, const uint8_t to[4])
{
	return to[0] >= 224 || is_link_local(to) ? rx->iface->index + 1 : 0;
}

fast_path void vbn__ip4_input(struct rx *rx, struct vbn_buf *buf)
{
	struct net_seat *seat = rx->seat;
	const struct wire_ip4 *ip = (const struct wire_ip4 *)buf->data;
	uint16_t flags = vbn_buf_packet(buf)->flags;
	uint32_t header, length;
	struct dst *dst;

	if (unlikely(buf->len < IP4_BYTES)) {
		seat_drop(seat, buf, drop_short);
		return;
	}
	header = (ip->version_ihl & 15u) * 4;
	length = from_be16(ip->length);
	if (unlikely(ip->version_ihl >> 4 != 4 || header < IP4_BYTES || length < header)) {
		seat_drop(seat, buf, drop_version);
		return;
	}
	if (unlikely(length > buf->len)) {
		seat_drop(seat, buf, drop_short);
		return;
	}
	buf->len = length; /* behind it is padding */
	if (unlikely(flags & VBN_PACKET_IP_BAD ||
		    (!(flags & VBN_PACKET_IP_GOOD) && !sum_is_good(sum_add(0, ip, header))))) {
		seat_drop(seat, buf, drop_ip_sum);
		return;
	}
	if (unlikely(is_martian(ip->from))) {
		seat_drop(seat, buf, drop_source);
		return;
	}
	if (unlikely(header > IP4_BYTES) && options_refuse(rx, buf, header))
		return;
	dst = dst_find4(seat, load4(ip->to), scope_of(rx, ip->to));
	if (!is_local(rx, dst)) {
		if (seat->net->forward && dst->kind <= DST_UNICAST)
			forward(rx, buf, dst);
		else if (dst->kind == DST_GROUP || dst->kind == DST_FOREIGN_GROUP)
			seat_drop(seat, buf, drop_group);
		else
			seat_drop(seat, buf, drop_not_local);
		return;
	}
	rx->local = dst;
	rx->from = ip_from4(ip->from);
	rx->to = ip_from4(ip->to);
	rx->ttl = ip->ttl;
	vbn_buf_packet(buf)->l3_len = (uint8_t)header;
	if (unlikely(ip->fragment & be16(IP4_MF | IP4_OFFSET))) {
		input_fragment(rx, buf, ip, header);
		return;
	}
	buf->data += header;
	buf->len -= header;
	vbn__l4_input(rx, buf, ip->protocol);
}

fast_path void vbn__l4_input(struct rx *rx, struct vbn_buf *buf, uint8_t protocol)
{
	bool v4 = ip_is4(&rx->to);

	if (likely(protocol == PROTO_UDP)) {
		vbn__udp_input(rx, buf);
	} else if (v4 && protocol == PROTO_ICMP) {
		vbn__icmp4_input(rx, buf);
	} else if (v4 && protocol == PROTO_IGMP) {
		vbn__igmp_input(rx, buf);
	} else if (!v4 && protocol == PROTO_ICMP6) {
		vbn__icmp6_input(rx, buf);
	} else {
		uint32_t back = vbn_buf_packet(buf)->l3_len;

		buf->data -= back;
		buf->len += back;
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_NO_PROTOCOL, 0);
		seat_drop(rx->seat, buf, drop_protocol);
	}
}
