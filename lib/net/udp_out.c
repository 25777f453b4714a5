/* udp_out.c - UDP out: datagrams of sockets, and their answers to those that have come
 *
 * Most are whole, and go to one neighbour on an untagged link: their headers are written in one go. The others
 * go by way of ip_out.c.
 */

#include "net/udp.h"

/* ---- where to ---- */

/* One way that datagrams of a call go: the same for most of a burst. */
struct way {
	struct dst *dst;
	struct vbn_ip from, to;
	uint16_t from_port, to_port;
	uint32_t interface; /* as asked for */
	uint8_t ttl;
	uint32_t most; /* bytes of a datagram with UDP's header */
};

static int way_find(
	struct vbn_udp *udp, struct way *way, const struct vbn_ip *from, uint32_t interface)
{
	struct net_seat *seat = udp->seat;
	const struct udp_key *key = udp->key;
	bool group = ip_is_multicast(&way->to), v4 = ip_is4(&way->to), ask;
	uint32_t scope = interface ? interface : key->interface;
	const struct vbn_ip *source;

	if (ip_is_none(&way->to) || !way->to_port)
		return -EDESTADDRREQ;
	ask = group || ip_is_link_local(&way->to) ||
		(v4 && load4(way->to.bytes + 12) == UINT32_MAX);
	way->dst = dst_find(seat, &way->to, ask ? (scope ? scope : 1) : 0);
	if (way->dst->kind == DST_NONE || way->dst->kind == DST_LOCAL)
		return -EHOSTUNREACH;
	if (way->dst->kind == DST_BROADCAST && !udp->broadcast)
		return -EACCES;
	source = key->bound && !ip_is_multicast(&key->local) ? &key->local : from ? from : NULL;
	if (!source)
		source = vbn__source_for(seat, way->dst);
	if (!source)
		return -EADDRNOTAVAIL;
	if (ip_is4(source) != v4)
		return -EINVAL;
	way->interface = interface;
	way->from = *source;
	way->from_port = key->local_port;
	way->ttl = group ? udp->group_ttl : udp->ttl;
	way->most = v4 ? 65535 - IP4_BYTES : 65535;
	if (udp->dont_fragment == VBN_ON)
		way->most = min(way->most, way->dst->mtu - (uint32_t)(v4 ? IP4_BYTES : IP6_BYTES));
	return 0;
}

/* ---- as most are ---- */

enum { FRAME4 = ETHER_BYTES + IP4_BYTES + UDP_BYTES, FRAME6 = ETHER_BYTES + IP6_BYTES + UDP_BYTES };

/* The word of where it goes, if it may go as most do, with `headers` bytes in front; 0. */
static force_inline uint64_t is_plain(const struct dst *dst, struct vbn_buf *buf, uint32_t headers)
{
	if (unlikely(!(dst->ease & DST_OUT) || buf->flags & VBN_BUF_CHAIN ||
		    buf->data - headers < vbn_buf_room(buf) || dst->end->n_out + 2 > END_OUT ||
		    buf->len + headers - ETHER_BYTES > dst->mtu))
		return 0;
	return dst_word(dst);
}

/* `sum` is that of the addresses. */
static force_inline void put_udp(const struct vbn_net_end *end, struct wire_udp *header,
	uint32_t ports, uint32_t length, uint64_t sum)
{
	memcpy(header, &ports, 4);
	header->length = be16((uint16_t)length);
	header->sum = 0;
	if (!end->offload)
		header->sum = sum_finish_udp(
			sum_add(sum + sum_pseudo(length, PROTO_UDP), header, length));
}

static force_inline void stage(
	const struct dst *dst, struct vbn_buf *buf, uint32_t headers, uint64_t word)
{
	struct vbn_packet *packet = vbn_buf_packet(buf);
	uint8_t *at = buf->data - headers;

	packet->flags = dst->end->offload ? VBN_PACKET_TX_L4_CSUM : 0;
	packet->vlan = 0;
	packet->l2_len = ETHER_BYTES;
	packet->l3_len = (uint8_t)(headers - ETHER_BYTES - UDP_BYTES);
	packet->type = 0;
	buf->data = at;
	buf->len += headers;
	dst_stage(dst, buf, at, word);
}

/* `ends` are both addresses, `ports` both ports, as they are to be sent. */
static force_inline void send4(struct vbn_udp *udp, const struct dst *dst, struct vbn_buf *buf,
	uint64_t word, uint64_t ends, uint32_t ports)
{
	const struct udp_head *head = &udp->common;
	struct wire_udp *header = (struct wire_udp *)(buf->data - UDP_BYTES);
	struct wire_ip4 *ip = (struct wire_ip4 *)((uint8_t *)header - IP4_BYTES);
	uint32_t length = buf->len + UDP_BYTES;
	uint64_t sum = sum_halves(ends);

	memcpy(ip, &head->first4, 2);
	ip->length = be16((uint16_t)(length + IP4_BYTES));
	ip->id = be16(udp->seat->id4++);
	memcpy(&ip->fragment, &head->fragment4, 2);
	memcpy(&ip->ttl, &head->hop4, 2);
	memcpy(ip->from, &ends, 8);
	ip->sum = sum_finish(
		sum + head->sum4 + (be_force uint16_t)ip->length + (be_force uint16_t)ip->id);
	put_udp(dst->end, header, ports, length, sum);
	stage(dst, buf, FRAME4, word);
}

static force_inline void send6(struct vbn_udp *udp, const struct dst *dst, struct vbn_buf *buf,
	uint64_t word, const struct vbn_ip *from, const struct vbn_ip *to, uint32_t ports)
{
	const struct udp_head *head = &udp->common;
	struct wire_udp *header = (struct wire_udp *)(buf->data - UDP_BYTES);
	struct wire_ip6 *ip = (struct wire_ip6 *)((uint8_t *)header - IP6_BYTES);
	uint32_t length = buf->len + UDP_BYTES;

	memcpy(ip, &head->first6, 4);
	ip->length = be16((uint16_t)length);
	memcpy(&ip->next, &head->hop6, 2);
	memcpy(ip->from, from, 16);
	memcpy(ip->to, to, 16);
	put_udp(dst->end, header, ports, length,
		dst->end->offload ? 0 : sum_add(0, ip->from, 2 * sizeof(ip->from)));
	stage(dst, buf, FRAME6, word);
}

/* Of a call's bufs, those that went so. */
static void count_sent(struct vbn_udp *udp, uint32_t n)
{
	count_add(&udp->sent, n);
	seat_count_n(udp->seat, udp_sent, n);
	seat_count_n(udp->seat, tx_packets, n);
}

/* ---- whatever they are ---- */

static force_inline bool room_for(const struct net_seat *seat, const struct way *way)
{
	struct vbn_net_end *end = seat->ends[way->dst->iface->link];

	if (unlikely(!end))
		return true; /* counted as a drop */
	if (unlikely(end->n_out + 2 > END_OUT)) {
		vbn__end_flush(end);
		return end->n_out + 2 <= END_OUT;
	}
	return true;
}

/* 1: taken; 0: there is no room; or -errno. */
static noinline fast_path int send_odd(
	struct vbn_udp *udp, const struct way *way, struct vbn_buf *buf)
{
	struct net_seat *seat = udp->seat;
	uint32_t length = buf->len;
	struct wire_udp *header;
	struct ip_out out;

	if (unlikely(buf->flags & VBN_BUF_CHAIN)) {
		uint64_t total = vbn_buf_total(buf);

		if (total > UINT16_MAX)
			return -EMSGSIZE;
		length = (uint32_t)total;
	}
	length += UDP_BYTES;
	if (unlikely(length > way->most))
		return -EMSGSIZE;
	if (unlikely(!room_for(seat, way)))
		return 0;
	vbn_buf_packet(buf)->flags = 0;
	count_add(&udp->sent, 1);
	seat_count(seat, udp_sent);
	buf = push(seat, way->dst->iface, buf, UDP_BYTES);
	if (unlikely(!buf)) {
		seat_count(seat, tx_packets);
		return 1;
	}
	header = (struct wire_udp *)buf->data;
	header->from = be16(way->from_port);
	header->to = be16(way->to_port);
	header->length = be16((uint16_t)length);
	header->sum = 0;
	out = (struct ip_out){.dst = way->dst,
		.from = &way->from,
		.to = &way->to,
		.protocol = PROTO_UDP,
		.ttl = way->ttl,
		.traffic_class = udp->traffic_class,
		.dont_fragment = udp->dont_fragment != VBN_OFF && !way->dst->locked,
		.offload = VBN_PACKET_TX_L4_CSUM};
	vbn__ip_send(seat, &out, buf);
	return 1;
}

/* ---- sending ---- */

static force_inline uint32_t ports_of(const struct way *way)
{
	const uint16_t ports[2] = {htobe16(way->from_port), htobe16(way->to_port)};

	return load4(ports);
}

/* False where it is not as most are, and nothing has been done. */
static force_inline bool send_plain(struct vbn_udp *udp, const struct way *way, struct vbn_buf *buf)
{
	bool v4 = ip_is4(&way->to);
	uint64_t word = is_plain(way->dst, buf, v4 ? FRAME4 : FRAME6);

	if (unlikely(!word))
		return false;
	if (v4)
		send4(udp, way->dst, buf, word, load_pair(way->from.bytes + 12, way->to.bytes + 12),
			ports_of(way));
	else
		send6(udp, way->dst, buf, word, &way->from, &way->to, ports_of(way));
	return true;
}

/* Sending may look up others in the place of what was found: what is found is found again. */
static force_inline bool is_same_way(
	const struct way *way, const struct vbn_ip *to, uint32_t interface)
{
	return way->dst && ip_equal(&way->to, to) && way->interface == interface &&
		ip_equal(&way->dst->ip, to);
}

static force_inline int way_to(
	struct vbn_udp *udp, struct way *way, const struct vbn_udp_address *to)
{
	way->to_port = to->port;
	if (likely(is_same_way(way, &to->ip, to->interface)) && likely(to->port))
		return 0;
	way->to = to->ip;
	return way_find(udp, way, NULL, to->interface);
}

VBN_API fast_path int vbn_udp_send(
	struct vbn_udp *udp, const struct vbn_udp_address *to, struct vbn_buf **bufs, int n)
{
	const struct udp_key *key = udp->key;
	struct vbn_udp_address peer = {
		.ip = key->peer, .port = key->peer_port, .interface = (uint16_t)udp->peer_scope};
	struct way way = {.dst = NULL};
	uint32_t n_plain = 0;
	int i, done = 0;

	for (i = 0; i < n; i++) {
		done = way_to(udp, &way, to ? &to[i] : &peer);
		if (likely(!done) && likely(send_plain(udp, &way, bufs[i]))) {
			n_plain++;
			continue;
		}
		if (!done)
			done = send_odd(udp, &way, bufs[i]);
		if (done <= 0)
			break;
	}
	count_sent(udp, n_plain);
	return i ? i : done;
}

/* ---- answers ---- */

/* Not of a group nor broadcast: an answer comes from where the question went. */
static bool is_our_own(struct net_seat *seat, const struct vbn_ip *to, uint32_t interface)
{
	return dst_find(seat, to, ip_is_link_local(to) ? interface : 0)->kind == DST_LOCAL;
}

/* What datagrams of a burst were sent to, which is ours: the same for most. */
struct asked {
	uint32_t ip4;
	struct vbn_ip ip6;
	bool is4, is6;
};

static force_inline bool was_asked4(struct net_seat *seat, struct asked *asked, uint32_t to)
{
	if (unlikely(!asked->is4 || asked->ip4 != to)) {
		asked->ip4 = to;
		asked->is4 = dst_find4(seat, to, 0)->kind == DST_LOCAL;
	}
	return asked->is4;
}

static force_inline bool was_asked6(
	struct net_seat *seat, struct asked *asked, const struct vbn_ip *to)
{
	if (unlikely(!asked->is6 || !ip_equal(&asked->ip6, to))) {
		asked->ip6 = *to;
		asked->is6 = !ip_is_link_local(to) && dst_find6(seat, to, 0)->kind == DST_LOCAL;
	}
	return asked->is6;
}

static force_inline bool reply4(
	struct vbn_udp *udp, struct asked *asked, struct vbn_buf *buf, uint32_t ports)
{
	const struct wire_ip4 *ip = (const struct wire_ip4 *)(buf->data - UDP_BYTES - IP4_BYTES);
	struct dst *dst;
	uint64_t word;

	if (unlikely(!was_asked4(udp->seat, asked, load4(ip->to))))
		return false;
	dst = dst_find4(udp->seat, load4(ip->from), 0);
	word = is_plain(dst, buf, FRAME4);
	if (unlikely(!word))
		return false;
	send4(udp, dst, buf, word, turn8(load8(ip->from)), ports);
	return true;
}

static force_inline bool reply6(
	struct vbn_udp *udp, struct asked *asked, struct vbn_buf *buf, uint32_t ports)
{
	const struct wire_ip6 *ip = (const struct wire_ip6 *)(buf->data - UDP_BYTES - IP6_BYTES);
	struct vbn_ip from = ip_from6(ip->from), to = ip_from6(ip->to);
	struct dst *dst;
	uint64_t word;

	if (unlikely(ip_is_link_local(&from) || !was_asked6(udp->seat, asked, &to)))
		return false;
	dst = dst_find6(udp->seat, &from, 0);
	word = is_plain(dst, buf, FRAME6);
	if (unlikely(!word))
		return false;
	send6(udp, dst, buf, word, &to, &from, ports);
	return true;
}

/* Headers without options or extensions, turned round; false where there is more to it. */
static force_inline bool reply_plain(struct vbn_udp *udp, struct asked *asked, struct vbn_buf *buf)
{
	const struct wire_udp *header = (const struct wire_udp *)(buf->data - UDP_BYTES);
	uint32_t ports = turn4(load4(header)), l3_len = vbn_buf_packet(buf)->l3_len;

	if (unlikely(!header->from || from_be16(header->to) != udp->key->local_port))
		return false;
	if (likely(l3_len == IP4_BYTES))
		return reply4(udp, asked, buf, ports);
	return l3_len == IP6_BYTES && *(buf->data - UDP_BYTES - IP6_BYTES) >> 4 == 6 &&
		reply6(udp, asked, buf, ports);
}

/* 1, 0 or -errno, as send_odd(). */
static noinline fast_path int reply_odd(struct vbn_udp *udp, struct vbn_buf *buf)
{
	struct way way = {.dst = NULL};
	struct vbn_udp_address from, to;
	int err;

	vbn_udp_source(buf, &from);
	vbn_udp_destination(buf, &to);
	way.to = from.ip;
	way.to_port = from.port;
	err = way_find(udp, &way, is_our_own(udp->seat, &to.ip, to.interface) ? &to.ip : NULL,
		from.interface);
	return err ? err : send_odd(udp, &way, buf);
}

VBN_API fast_path int vbn_udp_reply(struct vbn_udp *udp, struct vbn_buf **bufs, int n)
{
	struct asked asked = {.is4 = false};
	uint32_t n_plain = 0;
	int i, done = 0;

	for (i = 0; i < n; i++) {
		if (likely(reply_plain(udp, &asked, bufs[i]))) {
			n_plain++;
			continue;
		}
		done = reply_odd(udp, bufs[i]);
		if (done <= 0)
			break;
	}
	count_sent(udp, n_plain);
	return i ? i : done;
}
