/* ip6.c - IPv6 in: what is wrong, what is ours, what is forwarded; extension headers (RFC 8200) */

#include "net/seat.h"

static force_inline bool is_martian(const struct vbn_ip *from)
{
	static const struct vbn_ip loopback = {{[15] = 1}};

	/* An IPv4-mapped one is none that may be on a wire. */
	return from->bytes[0] == 0xff || ip_equal(from, &loopback) || ip_is4(from);
}

/* ---- options ---- */

/* Skips a header of options; 0: good; else an error for the sender, or -1: silently gone. *at is the bad
 * option's place. */
enum verdict { GOOD, MALFORMED, SILENT, TOLD, TOLD_UNICAST };

static enum verdict options_walk(const uint8_t *header, uint32_t bytes, uint32_t *at)
{
	for (uint32_t i = 2; i < bytes;) {
		uint8_t type = header[i];

		*at = i;
		if (type == 0) {
			i++;
			continue;
		}
		if (i + 2 > bytes || i + 2 + header[i + 1] > bytes)
			return MALFORMED;
		/* PadN and router alert are known. */
		if (type != 1 && type != 5) {
			switch (type >> 6) {
			case 1: return SILENT;
			case 2: return TOLD;
			case 3: return TOLD_UNICAST;
			default: break;
			}
		}
		i += 2u + header[i + 1];
	}
	return GOOD;
}

/* What extension headers say. */
struct chain {
	uint32_t bytes;   /* of all headers, with IPv6's own */
	uint32_t next_at; /* where the last "next header" is */
	uint8_t protocol;
	bool fragment;
	struct piece piece;
};

enum refusal {
	FINE,
	CUT,
	BAD_OPTION,
	UNKNOWN_OPTION,
	UNKNOWN_OPTION_UNICAST,
	QUIET,
	ROUTED,
	TOO_LONG,
	MISPLACED
};

static enum refusal refusal_of(enum verdict verdict)
{
	switch (verdict) {
	case GOOD: return FINE;
	case SILENT: return QUIET;
	case TOLD: return UNKNOWN_OPTION;
	case TOLD_UNICAST: return UNKNOWN_OPTION_UNICAST;
	default: return BAD_OPTION;
	}
}

/* One extension header, its length known to be within the packet. */
static enum refusal header_read(
	const uint8_t *at, uint32_t bytes, struct chain *chain, uint32_t *pointer)
{
	uint32_t where = 0;
	enum refusal refusal = FINE;

	switch (chain->protocol) {
	case PROTO_HOPOPTS:
		if (chain->bytes != IP6_BYTES)
			return MISPLACED;
		__attribute__((fallthrough));
	case PROTO_DSTOPTS:
		refusal = refusal_of(options_walk(at, bytes, &where));
		*pointer = chain->bytes + where;
		break;
	case PROTO_ROUTING:
		/* With no segments left it means nothing; else it is source routing. */
		*pointer = chain->bytes + 2;
		refusal = at[3] ? ROUTED : FINE;
		break;
	default: break;
	}
	return refusal;
}

static bool is_extension(uint8_t protocol)
{
	return protocol == PROTO_HOPOPTS || protocol == PROTO_DSTOPTS || protocol == PROTO_ROUTING;
}

/* From chain->bytes on, up to a fragment header and over it, or to the transport. */
static enum refusal chain_walk(const struct vbn_buf *buf, struct chain *chain, uint32_t *pointer)
{
	while (is_extension(chain->protocol)) {
		const uint8_t *at = buf->data + chain->bytes;
		uint32_t left = buf->len - chain->bytes, bytes;
		enum refusal refusal;

		if (left < 8)
			return CUT;
		bytes = (at[1] + 1u) * 8;
		if (bytes > left)
			return CUT;
		refusal = header_read(at, bytes, chain, pointer);
		if (refusal != FINE)
			return refusal;
		chain->next_at = chain->bytes;
		chain->protocol = at[0];
		chain->bytes += bytes;
	}
	return chain->bytes > UINT8_MAX ? TOO_LONG : FINE;
}

static enum refusal fragment_read(const struct vbn_buf *buf, struct chain *chain)
{
	const struct wire_fragment *fragment =
		(const struct wire_fragment *)(buf->data + chain->bytes);

	if (buf->len - chain->bytes < sizeof(*fragment))
		return CUT;
	chain->fragment = true;
	chain->piece = (struct piece){.id = from_be32(fragment->id),
		.offset = from_be16(fragment->offset) & ~7u,
		.protocol = fragment->next,
		.more = from_be16(fragment->offset) & 1};
	chain->next_at = chain->bytes;
	chain->protocol = fragment->next;
	chain->bytes += 8;
	return chain->bytes > UINT8_MAX ? TOO_LONG : FINE;
}

cold static void refuse(struct rx *rx, struct vbn_buf *buf, enum refusal refusal, uint32_t pointer)
{
	switch (refusal) {
	case CUT: seat_drop(rx->seat, buf, drop_short); return;
	case BAD_OPTION:
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_PARAMETER, pointer);
		break;
	case UNKNOWN_OPTION:
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_OPTION, pointer);
		break;
	case UNKNOWN_OPTION_UNICAST:
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_OPTION, pointer);
		break;
	case ROUTED:
		vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_PARAMETER, pointer);
		seat_drop(rx->seat, buf, drop_source_route);
		return;
	default: break;
	}
	seat_drop(rx->seat, buf, drop_options);
}

/* ---- forwarding ---- */

cold static void forward_refuse(struct rx *rx, struct vbn_buf *buf, struct dst *dst)
{
	if (dst->kind == DST_NONE && !rx->group) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_NO_ROUTE, 0);
		seat_drop(rx->seat, buf, drop_no_route);
	} else {
		seat_drop(rx->seat, buf, drop_not_local);
	}
}

static void forward(struct rx *rx, struct vbn_buf *buf, struct dst *dst)
{
	struct wire_ip6 *ip = (struct wire_ip6 *)buf->data;

	/* What is of a link stays on it; an unspecified source is nobody to answer to. */
	if (unlikely(dst->kind != DST_UNICAST || rx->group || ip_is_link_local(&rx->from) ||
		    ip_is_link_local(&rx->to) || ip_is_none(&rx->from))) {
		forward_refuse(rx, buf, dst);
		return;
	}
	if (unlikely(ip->hops <= 1)) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_TIME, 0);
		seat_drop(rx->seat, buf, drop_ttl);
		return;
	}
	if (unlikely(buf->len > dst->mtu)) {
		vbn__icmp_error(rx->seat, rx->iface, buf, false, ERROR_TOO_BIG, dst->mtu);
		seat_drop(rx->seat, buf, drop_too_big);
		return;
	}
	ip->hops--;
	vbn_buf_packet(buf)->flags = 0;
	seat_count(rx->seat, forwarded);
	dst_send(rx->seat, dst, buf, false);
}

/* ---- ours ---- */

static bool is_local(const struct rx *rx, const struct dst *dst)
{
	if (likely(dst->kind == DST_LOCAL))
		return load_once(&dst->address->state) == ADDRESS_VALID &&
			(dst->iface == rx->iface || rx->seat->net->forward) && !rx->group;
	return dst->kind == DST_GROUP && rx->group;
}

/* Headers behind a fragment header that is no fragment's, or of a first fragment: read once whole. */
static void deliver(struct rx *rx, struct vbn_buf *buf, struct chain *chain)
{
	buf->data += chain->bytes;
	buf->len -= chain->bytes;
	vbn_buf_packet(buf)->l3_len = (uint8_t)chain->bytes;
	if (chain->protocol == PROTO_NONE) {
		seat_count(rx->seat, consumed);
		buf_drop(buf);
	} else {
		vbn__l4_input(rx, buf, chain->protocol);
	}
}

static void input_extended(struct rx *rx, struct vbn_buf *buf, struct chain *chain)
{
	uint32_t pointer = 0;
	enum refusal refusal = chain_walk(buf, chain, &pointer);

	if (refusal == FINE && chain->protocol == PROTO_FRAGMENT) {
		refusal = fragment_read(buf, chain);
		if (refusal == FINE && (chain->piece.offset || chain->piece.more)) {
			vbn_buf_packet(buf)->l3_len = (uint8_t)chain->bytes;
			buf->data += chain->bytes;
			buf->len -= chain->bytes;
			vbn__fragment_input(rx, buf, &chain->piece);
			return;
		}
		/* RFC 6946: a datagram of one fragment is whole. Options behind it are read as any others. */
		if (refusal == FINE)
			refusal = chain_walk(buf, chain, &pointer);
	}
	if (refusal != FINE)
		refuse(rx, buf, refusal, pointer);
	else
		deliver(rx, buf, chain);
}

fast_path void vbn__ip6_input(struct rx *rx, struct vbn_buf *buf)
{
	struct net_seat *seat = rx->seat;
	const struct wire_ip6 *ip = (const struct wire_ip6 *)buf->data;
	struct chain chain = {.bytes = IP6_BYTES, .next_at = 6};
	uint32_t length;
	struct dst *dst;
	bool scoped;

	if (unlikely(buf->len < IP6_BYTES)) {
		seat_drop(seat, buf, drop_short);
		return;
	}
	if (unlikely((buf->data[0] >> 4) != 6)) {
		seat_drop(seat, buf, drop_version);
		return;
	}
	length = IP6_BYTES + from_be16(ip->length);
	if (unlikely(length > buf->len)) {
		seat_drop(seat, buf, drop_short);
		return;
	}
	buf->len = length;
	rx->from = ip_from6(ip->from);
	rx->to = ip_from6(ip->to);
	rx->ttl = ip->hops;
	if (unlikely(is_martian(&rx->from) || ip_is4(&rx->to))) {
		seat_drop(seat, buf, drop_source);
		return;
	}
	scoped = rx->to.bytes[0] == 0xff || ip_is_link_local(&rx->to);
	rx->local = dst = dst_find(seat, &rx->to, scoped ? rx->iface->index + 1 : 0);
	if (!is_local(rx, dst)) {
		/* Who probes for an address asks its group, which is joined while that is tentative, too. */
		if (seat->net->forward && dst->kind <= DST_UNICAST)
			forward(rx, buf, dst);
		else if (dst->kind == DST_GROUP || dst->kind == DST_FOREIGN_GROUP)
			seat_drop(seat, buf, drop_group);
		else
			seat_drop(seat, buf, drop_not_local);
		return;
	}
	chain.protocol = ip->next;
	if (likely(ip->next == PROTO_UDP || ip->next == PROTO_ICMP6))
		deliver(rx, buf, &chain);
	else
		input_extended(rx, buf, &chain);
}
