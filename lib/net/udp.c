/* udp.c - UDP's data path: datagrams to sockets in bursts, and from them (RFC 768) */

#include "net/udp.h"

#include <verbena/worker.h>

/* ---- which socket ---- */

/* How well a key fits a datagram; 0: not at all. */
static force_inline int fit(
	const struct udp_key *key, const struct rx *rx, uint16_t from, uint16_t to)
{
	int points = 1;

	if (key->local_port != to || (key->interface && key->interface != rx->iface->index + 1))
		return 0;
	if (key->bound) {
		if (!ip_equal(&key->local, &rx->to))
			return 0;
		points += 2;
	}
	if (key->connected) {
		if (key->peer_port != from || !ip_equal(&key->peer, &rx->from))
			return 0;
		points += 4;
	}
	return points;
}

/* The best there is: among equals this worker's. */
static force_inline struct vbn_udp *find(const struct rx *rx, uint16_t from, uint16_t to)
{
	const struct vbn_net *net = rx->seat->net;
	struct vbn_udp *udp = rcu_read(&net->sockets[udp_bucket(net, to)]), *best = NULL;
	int most = 0;

	for (; udp; udp = rcu_read(&udp->next)) {
		int points = fit(rcu_read(&udp->key), rx, from, to) * 2;

		if (!points)
			continue;
		points += udp->seat == rx->seat;
		if (points <= most)
			continue;
		most = points;
		best = udp;
	}
	return best;
}

/* ---- to a socket ---- */

fast_path void vbn__udp_batch(struct net_seat *seat)
{
	struct vbn_udp *udp = seat->batch;
	int n = seat->n_batch;

	if (!n)
		return;
	seat->n_batch = 0;
	seat->batch = NULL;
	seat_count_n(seat, udp_received, n);
	count_add(&udp->received, (uint64_t)n);
	udp->recv(udp, seat->batch_bufs, n, udp->arg);
}

/* One that nobody is called for waits in the ring. */
static bool to_ring(struct vbn_udp *udp, struct vbn_buf *buf)
{
	if (udp->head - udp->tail > udp->ring_mask) {
		count_add(&udp->dropped, 1);
		return false;
	}
	udp->ring[udp->head++ & udp->ring_mask] = buf;
	return true;
}

/* False: there was no room, and the buf is still the caller's. */
static force_inline bool to_socket(struct net_seat *seat, struct vbn_udp *udp, struct vbn_buf *buf)
{
	if (unlikely(!udp->recv))
		return to_ring(udp, buf);
	if (unlikely(seat->batch != udp || seat->n_batch == BURST)) {
		vbn__udp_batch(seat);
		seat->batch = udp;
	}
	seat->batch_bufs[seat->n_batch++] = buf;
	return true;
}

static force_inline void deliver(struct net_seat *seat, struct vbn_udp *udp, struct vbn_buf *buf)
{
	if (likely(to_socket(seat, udp, buf)))
		seat_count(seat, delivered);
	else
		seat_drop(seat, buf, drop_udp_full);
}

/* ---- to another worker ---- */

/* In the buf's own room, which the worker that it goes to reads before anything writes there. */
struct handed {
	struct vbn_post post;
	struct vbn_net *net;
	struct vbn_buf *buf;
	const struct net_if *iface;
};

static void taken_over(struct vbn_worker *worker, void *arg)
{
	struct handed handed;
	struct net_seat *seat;
	struct vbn_udp_address from, to;
	struct rx rx;

	memcpy(&handed, arg, sizeof(handed));
	seat = vbn__seat_of(handed.net, worker);
	if (!seat) {
		buf_drop(handed.buf);
		return;
	}
	seat_count(seat, taken_over);
	vbn_udp_source(handed.buf, &from);
	vbn_udp_destination(handed.buf, &to);
	rx = (struct rx){.seat = seat, .iface = handed.iface, .from = from.ip, .to = to.ip};
	{
		struct vbn_udp *udp = find(&rx, from.port, to.port);

		if (udp && udp->seat == seat)
			deliver(seat, udp, handed.buf);
		else
			seat_drop(seat, handed.buf, drop_no_port);
	}
	vbn__udp_batch(seat);
}

/* Room for it behind the data, or in front of the headers; NULL. */
static struct handed *room_in(struct vbn_buf *buf)
{
	uint8_t *behind = buf->data + buf->len, *room = vbn_buf_room(buf);
	uint8_t *headers = buf->data - UDP_BYTES - vbn_buf_packet(buf)->l3_len;
	uintptr_t at = round_up((uintptr_t)behind, 8);

	if (at + sizeof(struct handed) <= (uintptr_t)room + buf->size)
		return (struct handed *)at;
	at = round_up((uintptr_t)room, 8);
	return at + sizeof(struct handed) <= (uintptr_t)headers ? (struct handed *)at : NULL;
}

cold static void hand_over(struct rx *rx, struct vbn_udp *udp, struct vbn_buf *buf)
{
	struct vbn_worker *worker = udp->seat->worker;
	struct handed *handed = worker && rx->seat->worker ? room_in(buf) : NULL;

	if (!handed) {
		seat_drop(rx->seat, buf, drop_no_buf);
		return;
	}
	*handed = (struct handed){{.fn = taken_over, .arg = handed}, rx->seat->net, buf, rx->iface};
	seat_count(rx->seat, handed_over);
	vbn_post(worker, &handed->post);
}

/* ---- groups and broadcast: to each socket of this worker that wants them ---- */

static bool wants(const struct vbn_udp *udp, const struct rx *rx)
{
	if (rx->local->kind == DST_BROADCAST)
		return true;
	for (int i = 0; i < UDP_GROUPS; i++)
		if (udp->groups[i].interface == rx->iface->index + 1 &&
			ip_equal(&udp->groups[i].ip, &rx->to))
			return true;
	return false;
}

static bool group_fits(const struct vbn_udp *udp, const struct rx *rx, uint16_t from, uint16_t to)
{
	return fit(rcu_read(&udp->key), rx, from, to) && wants(udp, rx);
}

/* A datagram of its own, with its headers; NULL: there is no buf, or it is too large for one. */
static struct vbn_buf *copy_of(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf)
{
	uint32_t back = UDP_BYTES + vbn_buf_packet(buf)->l3_len,
		 total = (uint32_t)vbn_buf_total(buf);
	struct vbn_buf *copy = vbn__net_buf(seat, iface);
	uint8_t *to;

	if (!copy)
		return NULL;
	if (copy->size < round_up(back, 16) + total) {
		buf_drop(copy);
		return NULL;
	}
	copy->data = to = vbn_buf_room(copy) + round_up(back, 16);
	copy->len = total;
	memcpy(to - back, buf->data - back, back);
	*vbn_buf_packet(copy) = *vbn_buf_packet(buf);
	for (;; buf = buf->next) {
		memcpy(to, buf->data, buf->len);
		to += buf->len;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return copy;
	}
}

static void deliver_copy(struct rx *rx, struct vbn_udp *udp, struct vbn_buf *buf)
{
	struct vbn_buf *copy = copy_of(rx->seat, rx->iface, buf);

	if (!copy) {
		seat_count(rx->seat, udp_copy_no_buf);
		return;
	}
	seat_count(rx->seat, udp_copied);
	if (!to_socket(rx->seat, udp, copy))
		buf_drop(copy);
}

static void group_input(struct rx *rx, struct vbn_buf *buf, uint16_t from, uint16_t to)
{
	const struct vbn_net *net = rx->seat->net;
	struct vbn_udp *last = NULL, *away = NULL;

	for (struct vbn_udp *udp = rcu_read(&net->sockets[udp_bucket(net, to)]); udp;
		udp = rcu_read(&udp->next)) {
		/* What another worker's socket has joined only that worker knows. */
		if (udp->seat != rx->seat) {
			if (fit(rcu_read(&udp->key), rx, from, to))
				away = udp;
			continue;
		}
		if (!group_fits(udp, rx, from, to))
			continue;
		if (last)
			deliver_copy(rx, last, buf);
		last = udp;
	}
	if (last)
		deliver(rx->seat, last, buf);
	else if (away)
		hand_over(rx, away, buf);
	else
		seat_drop(rx->seat, buf, drop_no_port);
}

/* ---- in ---- */

cold static void no_port(struct rx *rx, struct vbn_buf *buf)
{
	uint32_t back = vbn_buf_packet(buf)->l3_len + UDP_BYTES;

	buf->data -= back;
	buf->len += back;
	vbn__icmp_error(rx->seat, rx->iface, buf, rx->group, ERROR_NO_PORT, 0);
	seat_drop(rx->seat, buf, drop_no_port);
}

/* Cuts a chain to `total` bytes: fragments may have brought more than UDP's length. */
static void cut(struct vbn_buf *buf, uint32_t total)
{
	while (buf->len < total && buf->flags & VBN_BUF_CHAIN) {
		total -= buf->len;
		buf = buf->next;
	}
	buf->len = min(buf->len, total);
	if (buf->flags & VBN_BUF_CHAIN) {
		buf->flags &= (uint8_t)~VBN_BUF_CHAIN;
		buf_drop(buf->next);
	}
}

static force_inline bool sum_holds(const struct rx *rx, const struct vbn_buf *buf,
	const struct wire_udp *header, uint32_t length)
{
	uint64_t sum;

	if (!header->sum)
		return ip_is4(&rx->to); /* IPv6: there must be one */
	sum = sum_ips(&rx->from, &rx->to) + sum_pseudo(length, PROTO_UDP);
	if (likely(!(buf->flags & VBN_BUF_CHAIN)))
		return sum_is_good(sum_add(sum, buf->data, length));
	return sum_is_good(vbn__sum_chain(sum, buf));
}

fast_path void vbn__udp_input(struct rx *rx, struct vbn_buf *buf)
{
	struct net_seat *seat = rx->seat;
	const struct wire_udp *header = (const struct wire_udp *)buf->data;
	uint32_t total = buf->len, length;
	uint16_t from, to, flags = vbn_buf_packet(buf)->flags;
	struct vbn_udp *udp;

	if (unlikely(buf->flags & VBN_BUF_CHAIN))
		total = (uint32_t)vbn_buf_total(buf);
	if (unlikely(buf->len < UDP_BYTES)) {
		seat_drop(seat, buf, drop_udp);
		return;
	}
	length = from_be16(header->length);
	if (unlikely(length != total)) {
		if (length < UDP_BYTES || length > total) {
			seat_drop(seat, buf, drop_udp);
			return;
		}
		cut(buf, length);
	}
	if (unlikely(flags & VBN_PACKET_L4_BAD ||
		    (!(flags & VBN_PACKET_L4_GOOD) && !sum_holds(rx, buf, header, length)))) {
		seat_drop(seat, buf, drop_l4_sum);
		return;
	}
	from = from_be16(header->from);
	to = from_be16(header->to);
	buf->data += UDP_BYTES;
	buf->len -= UDP_BYTES;
	vbn_buf_packet(buf)->l2_len = (uint8_t)(rx->iface->index + 1); /* for vbn_udp_source() */
	if (unlikely(rx->local->kind != DST_LOCAL)) {
		group_input(rx, buf, from, to);
		return;
	}
	udp = find(rx, from, to);
	if (unlikely(!udp))
		no_port(rx, buf);
	else if (unlikely(udp->seat != seat))
		hand_over(rx, udp, buf);
	else
		deliver(seat, udp, buf);
}

VBN_API int vbn_udp_recv(struct vbn_udp *udp, struct vbn_buf **bufs, int n)
{
	int got = 0;

	while (got < n && udp->tail != udp->head)
		bufs[got++] = udp->ring[udp->tail++ & udp->ring_mask];
	seat_count_n(udp->seat, udp_received, got);
	count_add(&udp->received, (uint64_t)got);
	return got;
}

/* ---- out ---- */

enum { HEADERS4 = ETHER_BYTES + IP4_BYTES + UDP_BYTES };

/* One way that datagrams of a call go: the same for most of a burst. */
struct way {
	struct dst *dst;
	struct vbn_ip from, to;
	uint16_t from_port, to_port;
	uint32_t interface; /* as asked for */
	uint8_t ttl;
	uint32_t most; /* bytes of a datagram with UDP's header */
	/* Of IPv4 on an untagged link that fills in UDP's checksums: all headers but what differs by the
	 * datagram, and the sum of IP's. */
	struct vbn_net_end *end; /* NULL: not of that kind */
	uint64_t sum;
	uint8_t headers[HEADERS4];
};

static void way_prepare(struct vbn_udp *udp, struct way *way)
{
	const struct net_if *iface = way->dst->iface;
	struct vbn_net_end *end = udp->seat->ends[iface->link];
	struct wire_ether *ether = (struct wire_ether *)way->headers;
	struct wire_ip4 *ip = (struct wire_ip4 *)(way->headers + ETHER_BYTES);
	struct wire_udp *header = (struct wire_udp *)(ip + 1);

	way->end = end && end->offload && !iface->vlan && ip_is4(&way->to) ? end : NULL;
	if (!way->end)
		return;
	memset(way->headers, 0, sizeof(way->headers));
	memcpy(ether->from, iface->mac, 6);
	ether->type = be16(ETHERTYPE_V4);
	ip->version_ihl = 0x45;
	ip->tos = udp->traffic_class;
	ip->fragment = be16(udp->dont_fragment != VBN_OFF && !way->dst->locked ? IP4_DF : 0);
	ip->ttl = way->ttl;
	ip->protocol = PROTO_UDP;
	memcpy(ip->from, way->from.bytes + 12, 4);
	memcpy(ip->to, way->to.bytes + 12, 4);
	header->from = be16(way->from_port);
	way->sum = csum_ip4_header(ip);
}

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
	way_prepare(udp, way);
	return 0;
}

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

/* One that is as most are: false, where it is not, and nothing has been done. */
static force_inline bool send_plain(struct vbn_udp *udp, const struct way *way, struct vbn_buf *buf)
{
	struct net_seat *seat = udp->seat;
	struct vbn_net_end *end = way->end;
	uint8_t *at = buf->data - HEADERS4;
	uint32_t length = buf->len + UDP_BYTES;
	struct wire_ip4 *ip = (struct wire_ip4 *)(at + ETHER_BYTES);
	struct wire_udp *header = (struct wire_udp *)(ip + 1);
	union mac_word word;

	if (unlikely(!end || buf->flags & VBN_BUF_CHAIN || at < vbn_buf_room(buf) ||
		    end->n_out + 2 > END_OUT || length + IP4_BYTES > way->dst->mtu))
		return false;
	word.word = dst_word(way->dst);
	if (unlikely(!word.word))
		return false;
	memcpy(at, way->headers, HEADERS4);
	memcpy(at, word.mac, 6);
	ip->length = be16((uint16_t)(length + IP4_BYTES));
	ip->id = be16(seat->id4++);
	ip->sum = sum_finish(way->sum + (be_force uint16_t)ip->length + (be_force uint16_t)ip->id);
	header->to = be16(way->to_port);
	header->length = be16((uint16_t)length);
	buf->data = at;
	buf->len += HEADERS4;
	*vbn_buf_packet(buf) = (struct vbn_packet){
		.flags = VBN_PACKET_TX_L4_CSUM, .l2_len = ETHER_BYTES, .l3_len = IP4_BYTES};
	end->out[end->n_out++] = buf;
	count_add(&udp->sent, 1);
	seat_count(seat, udp_sent);
	seat_count(seat, tx_packets);
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

static force_inline int send_one(struct vbn_udp *udp, const struct way *way, struct vbn_buf *buf)
{
	return likely(send_plain(udp, way, buf)) ? 1 : send_odd(udp, way, buf);
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

	for (int i = 0; i < n; i++) {
		const struct vbn_udp_address *where = to ? &to[i] : &peer;
		int done = way_to(udp, &way, where);

		if (likely(!done))
			done = send_one(udp, &way, bufs[i]);
		if (done <= 0)
			return i ? i : done;
	}
	return n;
}

/* Not of a group nor broadcast: an answer comes from where the question went. */
static bool is_our_own(struct net_seat *seat, const struct vbn_udp_address *to)
{
	return dst_find(seat, &to->ip, ip_is_link_local(&to->ip) ? to->interface : 0)->kind ==
		DST_LOCAL;
}

VBN_API fast_path int vbn_udp_reply(struct vbn_udp *udp, struct vbn_buf **bufs, int n)
{
	struct way way = {.dst = NULL};
	struct vbn_ip was_to = {{0}};

	for (int i = 0; i < n; i++) {
		struct vbn_udp_address from, to;
		int done = 0;

		vbn_udp_source(bufs[i], &from);
		vbn_udp_destination(bufs[i], &to);
		way.to_port = from.port;
		if (unlikely(!is_same_way(&way, &from.ip, from.interface) ||
			    !ip_equal(&was_to, &to.ip) || !from.port)) {
			way.to = from.ip;
			was_to = to.ip;
			done = way_find(udp, &way, is_our_own(udp->seat, &to) ? &to.ip : NULL,
				from.interface);
		}
		if (!done)
			done = send_one(udp, &way, bufs[i]);
		if (done <= 0)
			return i ? i : done;
	}
	return n;
}

/* ---- errors ---- */

bool vbn__udp_failed(struct net_seat *seat, const struct vbn_ip *local, uint16_t local_port,
	const struct vbn_ip *remote, uint16_t remote_port, int error)
{
	const struct vbn_net *net = seat->net;
	struct vbn_udp *udp = rcu_read(&net->sockets[udp_bucket(net, local_port)]);
	bool known = false;

	for (; udp; udp = rcu_read(&udp->next)) {
		const struct udp_key *key = rcu_read(&udp->key);

		if (key->local_port != local_port ||
			(key->bound && !ip_equal(&key->local, local)) ||
			(key->connected &&
				(key->peer_port != remote_port || !ip_equal(&key->peer, remote))))
			continue;
		known = true;
		/* Who sends to many is not told that one of them has no such port. */
		if (key->connected || error == -EMSGSIZE)
			store_once(&udp->error, (uint32_t)-error);
	}
	return known;
}

VBN_API int vbn_udp_error(struct vbn_udp *udp)
{
	uint32_t error = vbn__glance(&udp->error);

	if (error)
		store_once(&udp->error, 0);
	return -(int)error;
}

VBN_API void vbn_udp_stats(const struct vbn_udp *udp, struct vbn_udp_stats *stats)
{
	stats->received = vbn__glance_count(&udp->received);
	stats->sent = vbn__glance_count(&udp->sent);
	stats->dropped = vbn__glance_count(&udp->dropped);
}
