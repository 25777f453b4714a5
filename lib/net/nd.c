/* nd.c - IPv6 neighbour discovery (RFC 4861, 4862): solicitations and advertisements
 *
 * What routers say (advertisements, redirects) is not taken: routes are the program's.
 */

#include "net/seat.h"

struct wire_nd {
	uint8_t type, code;
	__be16 sum;
	__be32 flags; /* of an advertisement */
	uint8_t target[16];
} wire_struct;

enum { ND_ROUTER = 1u << 31, ND_SOLICITED = 1u << 30, ND_OVERRIDE = 1u << 29 };
#define ND_BYTES sizeof(struct wire_nd)
enum { OPTION_SOURCE = 1, OPTION_TARGET = 2 };

static const struct vbn_ip all_nodes = {{0xff, 0x02, [15] = 1}};

/* ---- sending ---- */

/* `option` has the interface's MAC; 0: none. */
static void send_nd(struct net_seat *seat, struct vbn_buf *buf, const struct net_if *iface,
	const struct vbn_ip *from, const struct vbn_ip *to, const uint8_t *mac, uint8_t option)
{
	struct wire_nd *nd = (struct wire_nd *)buf->data;
	struct dst dst, *found = &dst;

	buf->len = ND_BYTES;
	if (option) {
		uint8_t *at = buf->data + ND_BYTES;

		at[0] = option;
		at[1] = 1;
		memcpy(at + 2, iface->mac, 6);
		buf->len += 8;
	}
	nd->code = 0;
	nd->sum = 0;
	nd->sum = sum_finish(sum_add(
		sum_ips(from, to) + sum_pseudo(buf->len, PROTO_ICMP6), buf->data, buf->len));
	if (mac)
		vbn__dst_fixed(&dst, iface, to, mac);
	else
		found = dst_find(seat, to, iface->index + 1);
	vbn__ip_send(seat,
		&(struct ip_out){
			.dst = found, .from = from, .to = to, .protocol = PROTO_ICMP6, .ttl = 255},
		buf);
}

static void solicit(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *from,
	const struct vbn_ip *target, const uint8_t *mac)
{
	struct vbn_ip to = mac ? *target : vbn__ip_solicited(target);
	struct vbn_buf *buf = vbn__net_buf(seat, iface);
	struct wire_nd *nd;

	if (!buf)
		return;
	nd = (struct wire_nd *)buf->data;
	nd->type = ICMP6_NS;
	nd->flags = 0;
	memcpy(nd->target, target->bytes, 16);
	seat_count(seat, solicitations_sent);
	send_nd(seat, buf, iface, from, &to, mac, ip_is_none(from) ? 0 : OPTION_SOURCE);
}

void vbn__nd_solicit(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip,
	const uint8_t mac[6])
{
	struct dst dst = {.ip = *ip, .next_hop = *ip, .iface = iface};
	const struct vbn_ip *source = vbn__source_for(seat, &dst);

	if (source)
		solicit(seat, iface, source, ip, mac);
}

static void advertise(struct net_seat *seat, struct vbn_buf *buf, const struct net_if *iface,
	const struct vbn_ip *own, const struct vbn_ip *to, const uint8_t *mac, uint32_t flags)
{
	struct wire_nd *nd = (struct wire_nd *)buf->data;

	nd->type = ICMP6_NA;
	nd->flags = be32(flags | (seat->net->forward ? ND_ROUTER : 0));
	memcpy(nd->target, own->bytes, 16);
	seat_count(seat, advertisements_sent);
	send_nd(seat, buf, iface, own, to, mac, OPTION_TARGET);
}

void vbn__nd_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe)
{
	struct vbn_ip none = {{0}};
	struct vbn_buf *buf;

	if (probe) {
		solicit(seat, iface, &none, ip, NULL);
		return;
	}
	buf = vbn__net_buf(seat, iface);
	if (buf)
		advertise(seat, buf, iface, ip, &all_nodes, NULL, ND_OVERRIDE);
}

/* ---- receiving ---- */

/* The MAC in the option of this type, NULL; *good is false where the options are malformed. */
static const uint8_t *option_find(const struct vbn_buf *buf, uint8_t type, bool *good)
{
	const uint8_t *at = buf->data + ND_BYTES, *end = buf->data + buf->len, *mac = NULL;

	*good = false;
	while (at < end) {
		size_t left = (size_t)(end - at);

		if (left < 8 || !at[1] || at[1] * 8u > left)
			return NULL;
		if (at[0] == type && at[1] == 1)
			mac = at + 2;
		at += at[1] * 8u;
	}
	*good = !mac || !(mac[0] & 1);
	return mac;
}

static void consume(struct rx *rx, struct vbn_buf *buf)
{
	seat_count(rx->seat, consumed);
	buf_drop(buf);
}

static void answer(
	struct rx *rx, const struct net_address *own, const uint8_t *mac, struct vbn_buf *buf)
{
	bool probe = ip_is_none(&rx->from);
	struct vbn_buf *reply = vbn__net_buf(rx->seat, rx->iface);

	if (!reply) {
		seat_drop(rx->seat, buf, drop_no_buf);
		return;
	}
	/* Without its MAC the neighbours say, or are asked. */
	advertise(rx->seat, reply, rx->iface, &own->ip, probe ? &all_nodes : &rx->from,
		probe ? NULL : mac, ND_OVERRIDE | (probe ? 0 : ND_SOLICITED));
	seat_count(rx->seat, answered);
	buf_drop(buf);
}

static void heard_solicitation(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_nd *nd = (const struct wire_nd *)buf->data;
	struct vbn_ip target = ip_from6(nd->target), solicited = vbn__ip_solicited(&target);
	const struct net_address *own = vbn__if_has(rx->iface, &target);
	bool good, probe = ip_is_none(&rx->from);
	const uint8_t *mac = option_find(buf, OPTION_SOURCE, &good);

	if (!good || ip_is_multicast(&target) ||
		(probe && (mac || !ip_equal(&rx->to, &solicited)))) {
		seat_drop(rx->seat, buf, drop_nd);
		return;
	}
	if (!own || vbn__glance_byte(&own->state) != ADDRESS_VALID) {
		/* Two that probe for the same address at once: neither gets it. Our own question, looped back, is none. */
		if (own && probe && memcmp(rx->mac_from, rx->iface->mac, 6))
			vbn__address_conflict(rx->seat, rx->iface, own);
		consume(rx, buf);
		return;
	}
	if (!memcmp(rx->mac_from, rx->iface->mac, 6)) {
		consume(rx, buf);
		return;
	}
	if (probe)
		seat_count(rx->seat, address_conflicts);
	else if (mac)
		vbn__neighbour_heard(
			rx->seat, &rx->from, rx->iface, mac, HEARD_ASKING | HEARD_OVERRIDE);
	answer(rx, own, mac, buf);
}

static void heard_advertisement(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_nd *nd = (const struct wire_nd *)buf->data;
	struct vbn_ip target = ip_from6(nd->target);
	const struct net_address *own = vbn__if_has(rx->iface, &target);
	uint32_t flags = from_be32(nd->flags);
	unsigned int heard = (flags & ND_SOLICITED ? HEARD_ANSWER : 0) |
		(flags & ND_OVERRIDE ? HEARD_OVERRIDE : 0) |
		(flags & ND_ROUTER ? HEARD_ROUTER : HEARD_HOST);
	bool good;
	const uint8_t *mac = option_find(buf, OPTION_TARGET, &good);

	if (!good || ip_is_multicast(&target) || ip_is_none(&rx->from) ||
		(ip_is_multicast(&rx->to) && flags & ND_SOLICITED)) {
		seat_drop(rx->seat, buf, drop_nd);
		return;
	}
	if (own && memcmp(rx->mac_from, rx->iface->mac, 6))
		vbn__address_conflict(rx->seat, rx->iface, own);
	/* A unicast question may be answered without the option: it says who sent it, then. */
	else if (!own && (mac || flags & ND_SOLICITED))
		vbn__neighbour_heard(rx->seat, &target, rx->iface, mac ? mac : rx->mac_from, heard);
	consume(rx, buf);
}

void vbn__nd_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_nd *nd = (const struct wire_nd *)buf->data;

	if (rx->ttl != 255 || nd->code || vbn_buf_total(buf) != buf->len) {
		seat_drop(rx->seat, buf, drop_nd);
		return;
	}
	if (nd->type != ICMP6_NS && nd->type != ICMP6_NA) {
		consume(rx, buf);
		return;
	}
	if (buf->len < ND_BYTES)
		seat_drop(rx->seat, buf, drop_nd);
	else if (nd->type == ICMP6_NS)
		heard_solicitation(rx, buf);
	else
		heard_advertisement(rx, buf);
}
