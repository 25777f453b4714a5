/* quick.c - most packets, in one pass: whole ones with neither tags nor options, to be forwarded, or for a UDP
 * socket of this worker
 *
 * Each is looked at once, and there is no call for it and no counter: those are added up by the burst.
 * Whatever is odd about one, harmless or not, leaves it as it came to ether.c and what is behind it, where all
 * rules are: nothing is done here that would not be done there, too.
 */

#include "net/udp.h"

/* What a burst comes to. */
struct tally {
	uint32_t forwarded, delivered;
};

enum { FRAME4 = ETHER_BYTES + IP4_BYTES + UDP_BYTES, FRAME6 = ETHER_BYTES + IP6_BYTES + UDP_BYTES };

/* ---- forwarding ---- */

/* The word of the next hop, where the packet may go there; 0. */
static force_inline uint64_t may_pass(const struct dst *dst, uint32_t length, uint8_t hops)
{
	if (unlikely(hops <= 1 || length > dst->mtu || dst->end->n_out == END_OUT))
		return 0;
	return dst_word(dst);
}

/* The frame becomes the one that is sent, where it is. */
static force_inline void pass(
	const struct dst *dst, struct vbn_buf *buf, uint64_t word, uint32_t length, uint8_t l3_len)
{
	struct vbn_packet *packet = vbn_buf_packet(buf);

	packet->flags = 0;
	packet->vlan = 0;
	packet->l2_len = ETHER_BYTES;
	packet->l3_len = l3_len;
	packet->type = 0;
	buf->len = ETHER_BYTES + length;
	dst_stage(dst, buf, buf->data, word);
}

/* ---- to sockets ---- */

static force_inline bool is_for(const struct udp_place *place, uint64_t ends, uint32_t ports)
{
	return !(((ends ^ place->ends) & place->ends_mask) |
		((ports ^ place->ports) & place->ports_mask));
}

/* The place that says where a datagram to this port goes; NULL: none does. */
static force_inline const struct udp_place *place_of(const struct net_seat *seat, uint16_t port)
{
	const struct udp_place *place = &seat->ports[port % SEAT_PORTS];

	return likely(place->key == udp_place_key(seat->net, port) && place->udp) ? place : NULL;
}

static force_inline void deliver(struct vbn_net_end *end, struct vbn_buf *buf, struct vbn_udp *udp,
	uint8_t *header, uint32_t length, uint8_t l3_len, struct tally *tally)
{
	struct net_seat *seat = end->seat;

	buf->data = header + UDP_BYTES;
	buf->len = length - UDP_BYTES;
	vbn_buf_packet(buf)->l2_len = (uint8_t)end->untagged;
	vbn_buf_packet(buf)->l3_len = l3_len;
	if (unlikely(udp != seat->batch || seat->n_batch == BURST)) {
		vbn__udp_deliver(seat, udp, buf);
		return;
	}
	seat->batch_bufs[seat->n_batch++] = buf;
	tally->delivered++;
}

/* ---- IPv4 ---- */

/* First bytes of an IPv4 address that is looked at more closely as a source: this network, loopback, link-local
 * ones, groups and what is above. */
static force_inline bool is_odd4(uint8_t first)
{
	return (uint8_t)(first - 1) >= 223 || first == 127 || first == 169;
}

static force_inline bool udp4(
	struct vbn_net_end *end, struct vbn_buf *buf, uint32_t total, struct tally *tally)
{
	const struct wire_ip4 *ip = (const struct wire_ip4 *)(buf->data + ETHER_BYTES);
	struct wire_udp *header = (struct wire_udp *)(buf->data + ETHER_BYTES + IP4_BYTES);
	uint32_t length = total - IP4_BYTES;
	uint16_t flags = vbn_buf_packet(buf)->flags;
	const struct udp_place *place = place_of(end->seat, from_be16(header->to));
	uint64_t ends = load8(ip->from);

	if (unlikely(!place || ip->protocol != PROTO_UDP ||
		    ip->fragment & be16(IP4_MF | IP4_OFFSET) ||
		    from_be16(header->length) != length || length < UDP_BYTES ||
		    !is_for(place, ends, load4(header))))
		return false;
	if (!(flags & VBN_PACKET_L4_GOOD) &&
		(unlikely(flags & VBN_PACKET_L4_BAD || !header->sum) ||
			!sum_is_good(sum_add(
				sum_halves(ends) + sum_pseudo(length, PROTO_UDP), header, length))))
		return false;
	deliver(end, buf, place->udp, (uint8_t *)header, length, IP4_BYTES, tally);
	return true;
}

static force_inline bool input4(struct vbn_net_end *end, struct vbn_buf *buf, struct tally *tally)
{
	struct net_seat *seat = end->seat;
	struct wire_ip4 *ip = (struct wire_ip4 *)(buf->data + ETHER_BYTES);
	uint32_t total = from_be16(ip->length);
	uint64_t key = dst_key4(load4(ip->to), 0), word;
	const struct dst *dst = dst_place4(seat, key);

	/* Behind its length is padding. */
	if (unlikely(total - IP4_BYTES > buf->len - ETHER_BYTES - IP4_BYTES ||
		    is_odd4(ip->from[0]) || dst->key4 != key ||
		    dst->generation != load_once(&seat->net->generation)))
		return false;
	if (!(vbn_buf_packet(buf)->flags & VBN_PACKET_IP_GOOD) &&
		unlikely(!sum_is_good(csum_ip4_header(ip))))
		return false;
	if (dst->ease & DST_IN)
		return likely(!dst->by || dst->by == end->untagged) && udp4(end, buf, total, tally);
	if (unlikely(!(dst->ease & DST_THROUGH)))
		return false;
	word = may_pass(dst, total, ip->ttl);
	if (unlikely(!word))
		return false;
	ip4_hop(ip);
	pass(dst, buf, word, total, IP4_BYTES);
	tally->forwarded++;
	return true;
}

/* ---- IPv6 ---- */

/* The same of IPv6, of either end: none, loopback, mapped ones; groups, link-local ones. */
static force_inline bool is_odd6(uint8_t first)
{
	return (uint8_t)(first - 1) >= 0xfd;
}

static force_inline bool udp6(
	struct vbn_net_end *end, struct vbn_buf *buf, uint32_t length, struct tally *tally)
{
	const struct wire_ip6 *ip = (const struct wire_ip6 *)(buf->data + ETHER_BYTES);
	struct wire_udp *header = (struct wire_udp *)(buf->data + ETHER_BYTES + IP6_BYTES);
	uint16_t flags = vbn_buf_packet(buf)->flags;
	const struct udp_place *place = place_of(end->seat, from_be16(header->to));

	if (unlikely(!place || !place->any || ip->next != PROTO_UDP ||
		    from_be16(header->length) != length || length < UDP_BYTES || !header->sum))
		return false;
	if (!(flags & VBN_PACKET_L4_GOOD) &&
		(unlikely(flags & VBN_PACKET_L4_BAD) ||
			!sum_is_good(sum_add(sum_add(sum_pseudo(length, PROTO_UDP), ip->from,
						     2 * sizeof(ip->from)),
				header, length))))
		return false;
	deliver(end, buf, place->udp, (uint8_t *)header, length, IP6_BYTES, tally);
	return true;
}

static force_inline bool input6(struct vbn_net_end *end, struct vbn_buf *buf, struct tally *tally)
{
	struct net_seat *seat = end->seat;
	struct wire_ip6 *ip = (struct wire_ip6 *)(buf->data + ETHER_BYTES);
	uint32_t length = from_be16(ip->length);
	struct vbn_ip to = ip_from6(ip->to);
	const struct dst *dst = dst_place6(seat, &to, 0);
	uint64_t word;

	if (unlikely(length > buf->len - ETHER_BYTES - IP6_BYTES || is_odd6(ip->from[0]) ||
		    is_odd6(ip->to[0]) || !dst_is6(seat, dst, &to, 0)))
		return false;
	if (dst->ease & DST_IN)
		return likely(!dst->by || dst->by == end->untagged) &&
			udp6(end, buf, length, tally);
	if (unlikely(!(dst->ease & DST_THROUGH)))
		return false;
	word = may_pass(dst, IP6_BYTES + length, ip->hops);
	if (unlikely(!word))
		return false;
	ip->hops--;
	pass(dst, buf, word, IP6_BYTES + length, IP6_BYTES);
	tally->forwarded++;
	return true;
}

/* ---- a burst ---- */

enum { ODD_FLAGS = VBN_PACKET_IP_BAD | VBN_PACKET_VLAN };

/* True: it is done with. */
static force_inline bool input(struct vbn_net_end *end, struct vbn_buf *buf, struct tally *tally)
{
	const uint8_t *frame = buf->data;
	uint32_t kind;

	if (unlikely(buf->len < FRAME4 || buf->flags & VBN_BUF_CHAIN ||
		    vbn_buf_packet(buf)->flags & ODD_FLAGS ||
		    (load8(frame) & end->first_mask) != end->first))
		return false;
	/* The ethertype, IP's version, and the length of IPv4's header. */
	kind = load4(frame + 12);
	if (likely((kind & (be_force uint32_t)be32(0xffffff00)) ==
		    (be_force uint32_t)be32(0x08004500)))
		return input4(end, buf, tally);
	return (kind & (be_force uint32_t)be32(0xfffff000)) ==
		(be_force uint32_t)be32(0x86dd6000) &&
		buf->len >= FRAME6 && input6(end, buf, tally);
}

static noinline fast_path void input_odd(struct vbn_net_end *end, struct vbn_buf *buf)
{
	struct rx rx = {.end = end, .seat = end->seat};

	vbn__ether_input(&rx, buf);
}

fast_path void vbn__quick_input(struct vbn_net_end *end, struct vbn_buf **bufs, int n)
{
	struct net_seat *seat = end->seat;
	struct tally tally = {0};

	for (int i = 0; i < n; i++) {
		if (i + 3 < n)
			__builtin_prefetch(bufs[i + 3]->data);
		if (i + 6 < n)
			__builtin_prefetch(bufs[i + 6]);
		if (unlikely(!input(end, bufs[i], &tally)))
			input_odd(end, bufs[i]);
	}
	seat_count_n(seat, rx_frames, n);
	seat_count_n(seat, forwarded, tally.forwarded);
	seat_count_n(seat, tx_packets, tally.forwarded);
	seat_count_n(seat, delivered, tally.delivered);
	vbn__udp_batch(seat);
}
