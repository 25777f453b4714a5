/* icmp.c - ICMP of both versions: echoes answered, errors sent and taken (RFC 792, 1122, 1812, 4443) */

#include "net/seat.h"

/* ---- errors to send ---- */

enum { QUOTE4 = 576 - IP4_BYTES - 8, QUOTE6 = 1280 - IP6_BYTES - 8, TOKEN = 1000 };

struct error_type {
	uint8_t type4, code4, type6, code6;
};

static const struct error_type error_types[] = {
	[ERROR_NO_ROUTE] = {ICMP_UNREACHABLE, 0, ICMP6_UNREACHABLE, 0},
	[ERROR_NO_HOST] = {ICMP_UNREACHABLE, 1, ICMP6_UNREACHABLE, 3},
	[ERROR_NO_PORT] = {ICMP_UNREACHABLE, 3, ICMP6_UNREACHABLE, 4},
	[ERROR_NO_PROTOCOL] = {ICMP_UNREACHABLE, 2, ICMP6_PARAMETER, 1},
	[ERROR_TIME] = {ICMP_TIME, 0, ICMP6_TIME, 0},
	[ERROR_REASSEMBLY] = {ICMP_TIME, 1, ICMP6_TIME, 1},
	[ERROR_TOO_BIG] = {ICMP_UNREACHABLE, 4, ICMP6_TOO_BIG, 0},
	[ERROR_SOURCE_ROUTE] = {ICMP_UNREACHABLE, 5, ICMP6_PARAMETER, 0},
	[ERROR_PARAMETER] = {ICMP_PARAMETER, 0, ICMP6_PARAMETER, 0},
	[ERROR_OPTION] = {ICMP_PARAMETER, 0, ICMP6_PARAMETER, 2},
};

static bool may_send(struct net_seat *seat)
{
	uint64_t rate = seat->net->conf.icmp_rate, most = rate * TOKEN;
	uint64_t more = (seat->now - seat->icmp_at) * rate;

	seat->icmp_at = seat->now;
	seat->icmp_tokens = (uint32_t)min(seat->icmp_tokens + more, most);
	if (seat->icmp_tokens < TOKEN) {
		seat_count(seat, icmp_limited);
		return false;
	}
	seat->icmp_tokens -= TOKEN;
	return true;
}

/* Errors about errors, about later fragments, and to those who are not one host are not sent. */
static bool deserves4(const struct vbn_buf *buf, enum icmp_error error)
{
	const struct wire_ip4 *ip = (const struct wire_ip4 *)buf->data;
	uint32_t header = (ip->version_ihl & 15u) * 4;

	if (ip->from[0] == 0 || ip->from[0] == 127 || ip->from[0] >= 224 || ip->to[0] >= 224)
		return false;
	if (ip->fragment & be16(IP4_OFFSET))
		return false;
	if (ip->protocol != PROTO_ICMP || error == ERROR_REASSEMBLY)
		return true;
	return buf->len > header &&
		(buf->data[header] == ICMP_ECHO || buf->data[header] == ICMP_ECHO_REPLY ||
			buf->data[header] == 13 || buf->data[header] == 14);
}

/* The transport behind what extension headers are whole; *at is where it begins. */
static uint8_t transport6(const uint8_t *data, uint32_t len, uint32_t *at)
{
	uint8_t next = data[6];

	*at = IP6_BYTES;
	while (next == PROTO_HOPOPTS || next == PROTO_DSTOPTS || next == PROTO_ROUTING ||
		next == PROTO_FRAGMENT) {
		uint32_t bytes;

		if (*at + 8 > len)
			return PROTO_NONE;
		bytes = next == PROTO_FRAGMENT ? 8 : (data[*at + 1] + 1u) * 8;
		if (next == PROTO_FRAGMENT && load_be16(data + *at + 2) & ~7u)
			return PROTO_NONE;
		next = data[*at];
		*at += bytes;
		if (*at > len)
			return PROTO_NONE;
	}
	return next;
}

static bool deserves6(const struct vbn_buf *buf, enum icmp_error error)
{
	const struct wire_ip6 *ip = (const struct wire_ip6 *)buf->data;
	struct vbn_ip from = ip_from6(ip->from);
	uint32_t at;

	if (ip_is_none(&from) || from.bytes[0] == 0xff)
		return false;
	/* Groups are told of what is too big, and of options that say so (RFC 4443 2.4 e). */
	if (ip->to[0] == 0xff && error != ERROR_TOO_BIG && error != ERROR_OPTION)
		return false;
	return transport6(buf->data, buf->len, &at) != PROTO_ICMP6 ||
		(at < buf->len && buf->data[at] & 0x80);
}

/* From whom an error is: whoever it was sent to, where that is ours; else who is near the sender. */
static const struct vbn_ip *error_source(
	struct net_seat *seat, struct dst *back, const struct vbn_ip *to, uint32_t scope)
{
	bool scoped = ip_is_link_local(to) || ip_is_multicast(to);
	struct dst *dst = dst_find(seat, to, scoped ? scope : 0);
	bool ours = dst->kind == DST_LOCAL;

	return ours ? &dst->address->ip : vbn__source_for(seat, back);
}

void vbn__icmp_error(struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf,
	bool group, enum icmp_error error, uint32_t info)
{
	bool v4 = buf->data[0] >> 4 == 4;
	const struct error_type *type = &error_types[error];
	struct vbn_ip from = v4 ? ip_from4(buf->data + 12) : ip_from6(buf->data + 8);
	struct vbn_ip to = v4 ? ip_from4(buf->data + 16) : ip_from6(buf->data + 24);
	uint32_t scope = iface->index + 1, quoted;
	struct ip_out out = {.to = &from, .protocol = v4 ? PROTO_ICMP : PROTO_ICMP6, .ttl = 64};
	struct dst back;
	struct wire_icmp *icmp;
	struct vbn_buf *reply;

	if (group || !(v4 ? deserves4(buf, error) : deserves6(buf, error)) || !may_send(seat))
		return;
	/* A copy, since looking up the source may take its place. */
	back = *dst_find(seat, &from, ip_is_link_local(&from) ? scope : 0);
	out.dst = &back;
	if (back.kind == DST_UNICAST)
		out.from = error_source(seat, &back, &to, scope);
	if (!out.from) {
		seat_count(seat, tx_packets);
		seat_count(seat, drop_tx_no_route);
		return;
	}
	reply = vbn__net_buf(seat, back.iface);
	if (!reply) {
		seat_count(seat, icmp_no_buf);
		return;
	}
	quoted = min(buf->len, (uint32_t)(v4 ? QUOTE4 : QUOTE6));
	quoted = min(quoted, reply->size - VBN_NET_HEADROOM - 8);
	icmp = (struct wire_icmp *)reply->data;
	icmp->type = v4 ? type->type4 : type->type6;
	icmp->code = v4 ? type->code4 : type->code6;
	icmp->sum = 0;
	icmp->rest = be32(v4 && icmp->type == ICMP_PARAMETER ? info << 24 : info);
	memcpy(reply->data + 8, buf->data, quoted);
	reply->len = 8 + quoted;
	icmp->sum = sum_finish(
		sum_add(v4 ? 0 : sum_ips(out.from, &from) + sum_pseudo(reply->len, PROTO_ICMP6),
			reply->data, reply->len));
	seat_count(seat, icmp_sent);
	vbn__ip_send(seat, &out, reply);
}

/* ---- echo ---- */

/* The request becomes its reply: one byte differs. */
static void echo(struct rx *rx, struct vbn_buf *buf, uint8_t reply)
{
	struct wire_icmp *icmp = (struct wire_icmp *)buf->data;
	uint32_t scope = ip_is_link_local(&rx->from) ? rx->iface->index + 1 : 0;
	struct vbn_ip to = rx->from, from;
	struct dst *dst = dst_find(rx->seat, &to, scope);
	const struct vbn_ip *source =
		rx->local->kind == DST_LOCAL && ip_equal(&rx->local->ip, &rx->to)
		? &rx->to
		: vbn__source_for(rx->seat, dst);
	uint16_t old = load2(icmp);

	if (dst->kind != DST_UNICAST || !source) {
		seat_drop(rx->seat, buf, drop_no_route);
		return;
	}
	from = *source;
	icmp->type = reply;
	icmp->sum = (be_force __be16)csum_replace2((be_force uint16_t)icmp->sum, old, load2(icmp));
	/* Asked as one of a group, it answers from an address of its own, which ICMPv6's sum has in it. */
	if (!ip_is4(&to))
		icmp->sum = (be_force __be16)csum_replace2((be_force uint16_t)icmp->sum,
			csum_fold(sum_add(0, &rx->to, sizeof(rx->to))),
			csum_fold(sum_add(0, &from, sizeof(from))));
	seat_count(rx->seat, answered);
	seat_count(rx->seat, echo_answered);
	vbn__ip_send(rx->seat,
		&(struct ip_out){.dst = dst,
			.from = &from,
			.to = &to,
			.protocol = ip_is4(&to) ? PROTO_ICMP : PROTO_ICMP6,
			.ttl = 64,
			.router_alert = false},
		buf);
}

/* ---- errors that come ---- */

static void consume(struct rx *rx, struct vbn_buf *buf)
{
	seat_count(rx->seat, consumed);
	buf_drop(buf);
}

/* What a packet of ours was about, as an error quotes it. */
struct quote {
	struct vbn_ip from, to;
	uint8_t protocol;
	const uint8_t *transport; /* at least 8 bytes */
	uint32_t total;           /* its length */
};

static bool quote4(const uint8_t *at, uint32_t len, struct quote *quote)
{
	const struct wire_ip4 *ip = (const struct wire_ip4 *)at;
	uint32_t header;

	if (len < IP4_BYTES || ip->version_ihl >> 4 != 4)
		return false;
	header = (ip->version_ihl & 15u) * 4;
	if (header < IP4_BYTES || len < header + 8 || ip->fragment & be16(IP4_OFFSET))
		return false;
	*quote = (struct quote){ip_from4(ip->from), ip_from4(ip->to), ip->protocol, at + header,
		from_be16(ip->length)};
	return true;
}

static bool quote6(const uint8_t *at, uint32_t len, struct quote *quote)
{
	const struct wire_ip6 *ip = (const struct wire_ip6 *)at;
	uint32_t where;

	if (len < IP6_BYTES || at[0] >> 4 != 6)
		return false;
	quote->from = ip_from6(ip->from);
	quote->to = ip_from6(ip->to);
	quote->protocol = transport6(at, len, &where);
	quote->transport = at + where;
	quote->total = IP6_BYTES + from_be16(ip->length);
	return where + 8 <= len;
}

static int error_of(bool v4, const struct wire_icmp *icmp)
{
	if (!v4)
		return icmp->type == ICMP6_TOO_BIG                           ? -EMSGSIZE
			: icmp->type == ICMP6_UNREACHABLE && icmp->code == 4 ? -ECONNREFUSED
			: icmp->type == ICMP6_UNREACHABLE && icmp->code == 0 ? -ENETUNREACH
									     : -EHOSTUNREACH;
	if (icmp->type == ICMP_UNREACHABLE && icmp->code == 4)
		return -EMSGSIZE;
	if (icmp->type == ICMP_UNREACHABLE && (icmp->code == 3 || icmp->code == 2))
		return -ECONNREFUSED;
	return icmp->type == ICMP_UNREACHABLE && icmp->code == 0 ? -ENETUNREACH : -EHOSTUNREACH;
}

/* Plateaus below a packet's length, for routers that name no MTU (RFC 1191 7.1). */
static uint32_t plateau(uint32_t total)
{
	static const uint16_t plateaus[] = {
		32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68};

	for (size_t i = 0; i < ARRAY_SIZE(plateaus); i++)
		if (plateaus[i] < total)
			return plateaus[i];
	return 68;
}

static uint32_t told_mtu(bool v4, const struct wire_icmp *icmp, const struct quote *quote)
{
	uint32_t mtu = from_be32(icmp->rest);

	if (!v4)
		return mtu;
	mtu &= 0xffff;
	return mtu ? mtu : plateau(quote->total);
}

/* An error is believed where it quotes what this host can have sent: from an address of its own, and by UDP
 * from a socket that is there, to whom that socket sends. */
static bool is_ours(struct rx *rx, const struct quote *quote, int error)
{
	uint32_t scope = ip_is_link_local(&quote->from) ? rx->iface->index + 1 : 0;

	if (dst_find(rx->seat, &quote->from, scope)->kind != DST_LOCAL)
		return false;
	if (quote->protocol == PROTO_UDP)
		return vbn__udp_failed(rx->seat, &quote->from, load_be16(quote->transport),
			&quote->to, load_be16(quote->transport + 2), error);
	/* Our echo replies are what else may be too big. */
	return error == -EMSGSIZE &&
		((quote->protocol == PROTO_ICMP && quote->transport[0] == ICMP_ECHO_REPLY) ||
			(quote->protocol == PROTO_ICMP6 &&
				quote->transport[0] == ICMP6_ECHO_REPLY));
}

static void heard_error(struct rx *rx, struct vbn_buf *buf)
{
	bool v4 = ip_is4(&rx->to);
	const struct wire_icmp *icmp = (const struct wire_icmp *)buf->data;
	struct quote quote;
	int error = error_of(v4, icmp);
	struct dst *dst;
	uint32_t mtu;

	if (vbn_buf_total(buf) != buf->len ||
		!(v4 ? quote4(buf->data + 8, buf->len - 8, &quote)
		     : quote6(buf->data + 8, buf->len - 8, &quote))) {
		seat_drop(rx->seat, buf, drop_icmp);
		return;
	}
	if (!is_ours(rx, &quote, error)) {
		seat_drop(rx->seat, buf, drop_icmp_unverified);
		return;
	}
	seat_count(rx->seat, icmp_received);
	if (error == -EMSGSIZE) {
		mtu = told_mtu(v4, icmp, &quote);
		dst = dst_find(rx->seat, &quote.to,
			ip_is_link_local(&quote.to) ? rx->iface->index + 1 : 0);
		/* It may only become smaller, and less than the packet that it is about. */
		if (dst->kind == DST_UNICAST && mtu < dst->mtu &&
			(v4 ? mtu < quote.total : mtu >= 1280))
			vbn__learn(rx->seat,
				&(struct news){.kind = NEWS_PATH, .value = mtu, .ip = quote.to});
	}
	consume(rx, buf);
}

/* ---- in ---- */

void vbn__icmp4_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_icmp *icmp = (const struct wire_icmp *)buf->data;

	if (buf->len < 8) {
		seat_drop(rx->seat, buf, drop_icmp);
		return;
	}
	if (!(vbn_buf_packet(buf)->flags & VBN_PACKET_L4_GOOD) &&
		!sum_is_good(vbn__sum_chain(0, buf))) {
		seat_drop(rx->seat, buf, drop_l4_sum);
		return;
	}
	switch (icmp->type) {
	case ICMP_ECHO:
		if (icmp->code)
			seat_drop(rx->seat, buf, drop_icmp);
		else if (rx->local->kind != DST_LOCAL)
			seat_drop(
				rx->seat, buf, drop_group); /* RFC 1122 3.2.2.6: may be discarded */
		else
			echo(rx, buf, ICMP_ECHO_REPLY);
		return;
	case ICMP_UNREACHABLE:
	case ICMP_TIME:
	case ICMP_PARAMETER: heard_error(rx, buf); return;
	case ICMP_ECHO_REPLY:
	case ICMP_QUENCH:
	case ICMP_REDIRECT: consume(rx, buf); return;
	default: seat_drop(rx->seat, buf, drop_icmp);
	}
}

void vbn__icmp6_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_icmp *icmp = (const struct wire_icmp *)buf->data;
	uint64_t sum =
		sum_ips(&rx->from, &rx->to) + sum_pseudo((uint32_t)vbn_buf_total(buf), PROTO_ICMP6);

	if (buf->len < 8) {
		seat_drop(rx->seat, buf, drop_icmp);
		return;
	}
	if (!(vbn_buf_packet(buf)->flags & VBN_PACKET_L4_GOOD) &&
		!sum_is_good(vbn__sum_chain(sum, buf))) {
		seat_drop(rx->seat, buf, drop_l4_sum);
		return;
	}
	switch (icmp->type) {
	case ICMP6_ECHO:
		if (icmp->code || ip_is_none(&rx->from))
			seat_drop(rx->seat, buf, drop_icmp);
		else
			echo(rx, buf, ICMP6_ECHO_REPLY);
		return;
	case ICMP6_UNREACHABLE:
	case ICMP6_TOO_BIG:
	case ICMP6_TIME:
	case ICMP6_PARAMETER: heard_error(rx, buf); return;
	case ICMP6_RS:
	case ICMP6_RA:
	case ICMP6_NS:
	case ICMP6_NA:
	case 137: vbn__nd_input(rx, buf); return;
	case ICMP6_MLD_QUERY:
	case ICMP6_MLD_REPORT:
	case ICMP6_MLD_DONE:
	case 143: vbn__mld_input(rx, buf); return;
	case ICMP6_ECHO_REPLY: consume(rx, buf); return;
	default: seat_drop(rx->seat, buf, drop_icmp);
	}
}
