/* dst.c - destinations: a worker's memory of where packets to an address go
 *
 * A table of its own, one place for each hash, which the newest has. What has changed since (routes,
 * paths, groups) is told by the net's generation; a neighbour's by its own word.
 */

#include "net/seat.h"

static uint64_t group_word(const struct vbn_ip *group)
{
	union mac_word word = {.mac = {0x33, 0x33}, .flags = WORD_READY};

	if (ip_is4(group)) {
		memcpy(word.mac, (const uint8_t[]){0x01, 0x00, 0x5e}, 3);
		memcpy(word.mac + 3, group->bytes + 13, 3);
		word.mac[3] &= 0x7f;
	} else {
		memcpy(word.mac + 2, group->bytes + 12, 4);
	}
	word.flags = WORD_READY;
	return word.word;
}

static uint64_t broadcast_word(void)
{
	union mac_word word = {.mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

	word.flags = WORD_READY;
	return word.word;
}

/* Of who has no word yet: nobody's. */
static const uint64_t no_word;

static void set_fixed(struct dst *dst, uint64_t word)
{
	dst->fixed = word;
	dst->word = &dst->fixed;
}

/* That of the neighbour's present life; once it has ended there is none. */
static void set_neighbour(struct dst *dst, struct neighbour *neighbour)
{
	union mac_word word = {.word = neighbour ? load_acquire(&neighbour->word) : 0};

	dst->neighbour = word.flags ? neighbour : NULL;
	dst->word = word.flags ? &neighbour->word : &no_word;
	dst->expect = (uint16_t)((word.flags & WORD_LIVES) | WORD_READY);
}

static void set_interface(struct dst *dst, const struct net_if *iface)
{
	__be16 type = be16(ip_is4(&dst->ip) ? ETHERTYPE_V4 : ETHERTYPE_V6);

	dst->iface = iface;
	dst->mtu = iface->mtu;
	memcpy(&dst->source, iface->mac, 6);
	memcpy((uint8_t *)&dst->source + 6, &type, 2);
}

static void on_link(struct net_seat *seat, struct dst *dst)
{
	const struct net_if *iface = net_interface(seat->net, dst->scope ? dst->scope - 1 : 0);

	set_interface(dst, iface);
	dst->next_hop = dst->ip;
}

static void look_link_local(struct net_seat *seat, struct dst *dst)
{
	on_link(seat, dst);
	dst->address = vbn__if_has(dst->iface, &dst->ip);
	dst->kind = dst->address ? DST_LOCAL : DST_UNICAST;
}

static void look_route(struct net_seat *seat, struct dst *dst)
{
	const struct net_hop *hop = vbn__route_find(seat->net, &dst->ip);

	if (!hop)
		return;
	set_interface(dst, hop->iface);
	dst->next_hop = hop->via ? hop->gateway : dst->ip;
	dst->address = hop->address;
	dst->kind = hop->kind == HOP_LOCAL   ? DST_LOCAL
		: hop->kind == HOP_BROADCAST ? DST_BROADCAST
					     : DST_UNICAST;
	dst->mtu = vbn__path_mtu(seat->net, seat->now, &dst->ip, hop->mtu, &dst->locked);
	if (hop->kind == HOP_BROADCAST)
		set_fixed(dst, broadcast_word());
}

/* RFC 3927: nobody passes on what is for the link. */
static bool is_link_local4(const struct vbn_ip *ip)
{
	return ip_is4(ip) && ip->bytes[12] == 169 && ip->bytes[13] == 254;
}

static uint8_t ease_of(const struct vbn_net *net, const struct dst *dst)
{
	/* A state that is valid stays so. */
	if (dst->kind == DST_LOCAL)
		return vbn__glance_byte(&dst->address->state) == ADDRESS_VALID ? DST_IN : 0;
	if (dst->kind != DST_UNICAST || !dst->end || dst->iface->vlan || dst->locked)
		return 0;
	return DST_OUT |
		(net->forward && !dst->scope && !is_link_local4(&dst->ip) ? DST_THROUGH : 0);
}

struct dst *vbn__dst_miss(struct net_seat *seat, const struct vbn_ip *ip, uint32_t scope)
{
	uint64_t key4 = ip_is4(ip) ? dst_key4(load4(ip->bytes + 12), scope) : 0;
	struct dst *dst = key4 ? dst_place4(seat, key4) : dst_place6(seat, ip, scope);
	uint64_t generation = load_acquire(&seat->net->generation);

	*dst = (struct dst){.ip = *ip,
		.key4 = key4,
		.scope = scope,
		.generation = generation,
		.word = &no_word,
		.expect = WORD_READY};
	if (ip_is_multicast(ip)) {
		on_link(seat, dst);
		set_fixed(dst, group_word(ip));
		dst->kind = vbn__multicast_has(seat->net, ip, dst->iface->index)
			? DST_GROUP
			: DST_FOREIGN_GROUP;
	} else if (ip_is4(ip) && load4(ip->bytes + 12) == UINT32_MAX) {
		on_link(seat, dst);
		set_fixed(dst, broadcast_word());
		dst->kind = DST_BROADCAST;
	} else if (ip_is_link_local(ip)) {
		look_link_local(seat, dst);
	} else {
		look_route(seat, dst);
	}
	if (dst->kind == DST_UNICAST)
		set_neighbour(
			dst, vbn__neighbour_find(seat->net, &dst->next_hop, dst->iface->index));
	dst->end = dst->iface ? seat->ends[dst->iface->link] : NULL;
	dst->by = (uint8_t)(dst->iface && !seat->net->forward ? dst->iface->index + 1 : 0);
	dst->ease = ease_of(seat->net, dst);
	return dst;
}

void vbn__dst_fixed(
	struct dst *dst, const struct net_if *iface, const struct vbn_ip *ip, const uint8_t mac[6])
{
	union mac_word word = {.word = 0};

	memcpy(word.mac, mac, 6);
	word.flags = WORD_READY;
	*dst = (struct dst){.ip = *ip, .next_hop = *ip, .kind = DST_UNICAST, .expect = WORD_READY};
	set_interface(dst, iface);
	set_fixed(dst, word.word);
}

struct dst *vbn__dst_miss4(struct net_seat *seat, uint32_t address, uint32_t scope)
{
	struct vbn_ip ip = ip_from4((const uint8_t *)&address);

	return vbn__dst_miss(seat, &ip, scope);
}

static uint32_t waiting_for(const struct net_seat *seat, const struct dst *dst, uint32_t *oldest)
{
	uint32_t n = 0;

	for (uint32_t i = seat->n_waiting; i--;) {
		const struct waiting *waiting = &seat->waiting[i];

		if (waiting->iface != dst->iface || !ip_equal(&waiting->next_hop, &dst->next_hop))
			continue;
		*oldest = i;
		n++;
	}
	return n;
}

/* The oldest of a neighbour makes room; where others fill the room, what is new has none. */
static void wait_for(struct net_seat *seat, struct dst *dst, struct neighbour *neighbour,
	struct vbn_buf *buf, bool ours)
{
	uint32_t oldest = 0, n;

	/* An ICMP error about what has waited in vain: the list is just gone through. */
	if (seat->looking) {
		seat_drop(seat, buf, drop_tx_waiting);
		return;
	}
	n = waiting_for(seat, dst, &oldest);
	if (n &&
		(n >= seat->net->conf.max_waiting_each ||
			seat->n_waiting == seat->net->conf.max_waiting)) {
		seat_drop(seat, seat->waiting[oldest].buf, drop_tx_waiting);
		seat->n_waiting--;
		memmove(&seat->waiting[oldest], &seat->waiting[oldest + 1],
			(seat->n_waiting - oldest) * sizeof(*seat->waiting));
	}
	if (seat->n_waiting == seat->net->conf.max_waiting) {
		seat_drop(seat, buf, drop_tx_waiting);
		return;
	}
	seat->unasked |= !neighbour;
	seat->waiting[seat->n_waiting++] = (struct waiting){
		buf, neighbour, dst->next_hop, dst->iface, dst->expect & WORD_LIVES, ours};
}

static uint16_t ethertype_of(const struct vbn_buf *buf)
{
	return buf->data[0] >> 4 == 4 ? ETHERTYPE_V4 : ETHERTYPE_V6;
}

static void no_neighbour(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf, bool ours)
{
	if (!ours)
		vbn__icmp_error(seat, iface, buf, false, ERROR_NO_HOST, 0);
	seat_drop(seat, buf, drop_tx_no_neighbour);
}

void vbn__dst_slow(struct net_seat *seat, struct dst *dst, struct vbn_buf *buf, bool ours)
{
	struct neighbour *neighbour = dst->neighbour;
	union mac_word word = {.word = 0};

	if (dst->kind != DST_UNICAST) {
		seat_drop(seat, buf, drop_tx_no_route);
		return;
	}
	if (neighbour)
		word.word = load_acquire(&neighbour->word);
	if (!word.flags || (word.flags ^ dst->expect) & WORD_LIVES) {
		bool later = false;

		neighbour = vbn__neighbour_want(seat, &dst->next_hop, dst->iface, &later);
		if (later) {
			wait_for(seat, dst, NULL, buf, ours);
			return;
		}
		if (!neighbour) {
			seat_drop(seat, buf, drop_tx_neighbours_full);
			return;
		}
		set_neighbour(dst, neighbour);
		word.word = load_acquire(dst->word);
	}
	if (word.flags & WORD_STALE)
		vbn__neighbour_used(seat, neighbour);
	if (word.flags & (WORD_READY | WORD_STALE))
		vbn__ether_output(seat, buf, dst->iface, word.word, ethertype_of(buf));
	else if (word.flags & WORD_WAITING)
		wait_for(seat, dst, neighbour, buf, ours);
	else
		no_neighbour(seat, dst->iface, buf, ours);
}

/* ---- what waits ---- */

/* Of one that could not be asked for, or has ended, it is 0. */
static union mac_word word_of(const struct waiting *waiting)
{
	union mac_word word = {.word = 0};

	if (waiting->neighbour)
		word.word = load_acquire(&waiting->neighbour->word);
	if ((word.flags & WORD_LIVES) != waiting->life)
		word.word = 0;
	return word;
}

/* False: somebody else holds the lock. */
static bool ask_now(struct net_seat *seat, struct waiting *waiting)
{
	bool later = false;
	union mac_word word = {.word = 0};

	waiting->neighbour = vbn__neighbour_want(seat, &waiting->next_hop, waiting->iface, &later);
	if (waiting->neighbour)
		word.word = load_acquire(&waiting->neighbour->word);
	waiting->life = word.flags & WORD_LIVES;
	return !later;
}

/* False: it goes on waiting. */
static bool waited(struct net_seat *seat, struct waiting *waiting)
{
	union mac_word word;

	if (!waiting->neighbour && !ask_now(seat, waiting)) {
		seat->unasked = true;
		return false;
	}
	word = word_of(waiting);
	if (word.flags & WORD_WAITING)
		return false;
	if (word.flags & WORD_STALE)
		vbn__neighbour_used(seat, waiting->neighbour);
	if (word.flags & (WORD_READY | WORD_STALE))
		vbn__ether_output(
			seat, waiting->buf, waiting->iface, word.word, ethertype_of(waiting->buf));
	else if (!waiting->neighbour)
		seat_drop(seat, waiting->buf, drop_tx_neighbours_full);
	else
		no_neighbour(seat, waiting->iface, waiting->buf, waiting->ours);
	return true;
}

void vbn__waiting_look(struct net_seat *seat)
{
	uint32_t kept = 0;

	seat->resolved = load_acquire(&seat->net->resolved);
	seat->looking = true;
	seat->unasked = false;
	for (uint32_t i = 0; i < seat->n_waiting; i++) {
		struct waiting waiting = seat->waiting[i];

		if (!waited(seat, &waiting))
			seat->waiting[kept++] = waiting;
	}
	seat->n_waiting = kept;
	seat->looking = false;
}

void vbn__waiting_drop(struct net_seat *seat)
{
	for (uint32_t i = 0; i < seat->n_waiting; i++)
		seat_drop(seat, seat->waiting[i].buf, drop_tx_closed);
	seat->n_waiting = 0;
}
