/* udp.c - UDP in: datagrams to sockets, in bursts (RFC 768) */

#include "net/udp.h"

/* ---- which socket ---- */

/* How well a key fits a datagram; 0: not at all. */
static int fit(const struct udp_key *key, const struct rx *rx, uint16_t from, uint16_t to)
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
static struct vbn_udp *find(const struct rx *rx, uint16_t from, uint16_t to)
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

/* ---- what quick.c goes by ---- */

static void place_addresses(struct udp_place *place, const struct udp_key *key)
{
	uint8_t ends[8] = {0}, mask[8] = {0};
	uint16_t ports[2] = {0}, ports_mask[2] = {0};

	if (key->bound) {
		memcpy(ends + 4, key->local.bytes + 12, 4);
		memset(mask + 4, 255, 4);
	}
	if (key->connected) {
		memcpy(ends, key->peer.bytes + 12, 4);
		memset(mask, 255, 4);
		ports[0] = htobe16(key->peer_port);
		ports_mask[0] = UINT16_MAX;
	}
	place->ends = load8(ends);
	place->ends_mask = load8(mask);
	place->ports = load4(ports);
	place->ports_mask = load4(ports_mask);
}

/* Who may have a port's datagrams is remembered, where it is this worker's one socket: of several only if all
 * take everything, since then each worker's own is as good as any. */
static noinline void place_fill(struct net_seat *seat, uint16_t port)
{
	const struct vbn_net *net = seat->net;
	struct udp_place *place = &seat->ports[port % SEAT_PORTS];
	struct vbn_udp *mine = NULL;
	bool narrow = false;
	int n = 0;

	*place = (struct udp_place){.key = udp_place_key(net, port)};
	for (struct vbn_udp *udp = rcu_read(&net->sockets[udp_bucket(net, port)]); udp;
		udp = rcu_read(&udp->next)) {
		const struct udp_key *key = rcu_read(&udp->key);

		if (key->local_port != port)
			continue;
		n++;
		mine = udp->seat == seat ? udp : mine;
		narrow |= key->bound || key->connected;
		if (key->interface || (key->bound && !ip_is4(&key->local)))
			return;
	}
	if (!mine || (n > 1 && narrow))
		return;
	if (narrow)
		place_addresses(place, rcu_read(&mine->key));
	place->any = !narrow;
	place->udp = mine;
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
static bool to_socket(struct net_seat *seat, struct vbn_udp *udp, struct vbn_buf *buf)
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

fast_path void vbn__udp_deliver(struct net_seat *seat, struct vbn_udp *udp, struct vbn_buf *buf)
{
	if (likely(to_socket(seat, udp, buf)))
		seat_count(seat, delivered);
	else
		seat_drop(seat, buf, drop_udp_full);
}

/* ---- to another worker ---- */

cold static void hand_over(struct rx *rx, const struct vbn_udp *udp, struct vbn_buf *buf)
{
	if (vbn__hand_over(rx, udp->number, buf, HANDED_DATAGRAM))
		seat_count(rx->seat, handed_over);
	else
		seat_drop(rx->seat, buf, drop_handed_full);
}

/* ---- groups and broadcast: to each socket that wants them ---- */

static bool wants(const struct vbn_udp *udp, const struct rx *rx)
{
	if (rx->local->kind == DST_BROADCAST)
		return true;
	for (int i = 0; i < UDP_GROUPS; i++)
		if (udp_group_is(&udp->groups[i], &rx->to, rx->iface->index + 1))
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

static void hand_copy(struct rx *rx, uint32_t number, struct vbn_buf *buf)
{
	struct vbn_buf *copy = copy_of(rx->seat, rx->iface, buf);

	if (!copy) {
		seat_count(rx->seat, udp_copy_no_buf);
	} else if (vbn__hand_over(rx, number, copy, HANDED_DATAGRAM)) {
		seat_count(rx->seat, copies_handed_over);
	} else {
		seat_count(rx->seat, copies_handed_full);
		buf_drop(copy);
	}
}

/* To each worker that has such a socket one, which goes to all of its own; the last of all gets what came. */
static void group_input(struct rx *rx, struct vbn_buf *buf, uint16_t from, uint16_t to)
{
	const struct vbn_net *net = rx->seat->net;
	struct vbn_udp *last = NULL, *away = NULL;
	uint64_t others = 0;

	for (struct vbn_udp *udp = rcu_read(&net->sockets[udp_bucket(net, to)]); udp;
		udp = rcu_read(&udp->next)) {
		if ((udp->seat != rx->seat && rx->handed) || !group_fits(udp, rx, from, to))
			continue;
		if (udp->seat != rx->seat) {
			away = udp;
			others |= 1ull << udp->number;
			continue;
		}
		if (last)
			deliver_copy(rx, last, buf);
		last = udp;
	}
	if (away && !last)
		others &= ~(1ull << away->number);
	for (; others; others &= others - 1)
		hand_copy(rx, (uint32_t)__builtin_ctzll(others), buf);
	if (last)
		vbn__udp_deliver(rx->seat, last, buf);
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

static bool sum_holds(const struct rx *rx, const struct vbn_buf *buf, const struct wire_udp *header,
	uint32_t length, uint16_t flags)
{
	uint64_t sum;

	/* IPv6: there must be one, whatever a device says of it. */
	if (!header->sum)
		return ip_is4(&rx->to);
	if (flags & (VBN_PACKET_L4_GOOD | VBN_PACKET_L4_BAD))
		return flags & VBN_PACKET_L4_GOOD;
	sum = sum_ips(&rx->from, &rx->to) + sum_pseudo(length, PROTO_UDP);
	if (likely(!(buf->flags & VBN_BUF_CHAIN)))
		return sum_is_good(sum_add(sum, buf->data, length));
	return sum_is_good(vbn__sum_chain(sum, buf));
}

/* Its data is the payload. */
static void to_whom(struct rx *rx, struct vbn_buf *buf, uint16_t from, uint16_t to)
{
	struct net_seat *seat = rx->seat;
	struct vbn_udp *udp;

	if (unlikely(rx->local->kind != DST_LOCAL)) {
		group_input(rx, buf, from, to);
		return;
	}
	if (seat->ports[to % SEAT_PORTS].key != udp_place_key(seat->net, to))
		place_fill(seat, to);
	udp = find(rx, from, to);
	if (likely(udp && udp->seat == seat))
		vbn__udp_deliver(seat, udp, buf);
	else if (udp && !rx->handed)
		hand_over(rx, udp, buf);
	else
		no_port(rx, buf);
}

fast_path void vbn__udp_input(struct rx *rx, struct vbn_buf *buf)
{
	struct net_seat *seat = rx->seat;
	const struct wire_udp *header = (const struct wire_udp *)buf->data;
	uint32_t total = buf->len, length;
	uint16_t flags = vbn_buf_packet(buf)->flags;

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
	if (unlikely(!sum_holds(rx, buf, header, length, flags))) {
		seat_drop(seat, buf, drop_l4_sum);
		return;
	}
	buf->data += UDP_BYTES;
	buf->len -= UDP_BYTES;
	vbn_buf_packet(buf)->l2_len = (uint8_t)(rx->iface->index + 1); /* for vbn_udp_source() */
	to_whom(rx, buf, from_be16(header->from), from_be16(header->to));
}

void vbn__udp_handed(struct rx *rx, struct vbn_buf *buf)
{
	struct vbn_udp_address from, to;
	bool scoped;

	vbn_udp_source(buf, &from);
	vbn_udp_destination(buf, &to);
	rx->from = from.ip;
	rx->to = to.ip;
	scoped = ip_is_multicast(&to.ip) || ip_is_link_local(&to.ip) ||
		(ip_is4(&to.ip) && load4(to.ip.bytes + 12) == UINT32_MAX);
	rx->local = dst_find(rx->seat, &to.ip, scoped ? rx->iface->index + 1 : 0);
	to_whom(rx, buf, from.port, to.port);
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
