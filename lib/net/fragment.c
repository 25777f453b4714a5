/* fragment.c - datagrams put together from fragments, within bounds of memory and time
 *
 * All pieces of one go to one worker, whichever they come to.
 *
 * A seat has a fixed number of datagrams in pieces and a limit of bufs that they hold; the oldest makes
 * room. Pieces stay in the bufs that they came in, so that what is whole is a chain. Where two overlap, the
 * datagram and whatever comes of it later is dropped (RFC 5722; for IPv4, too), but for a piece that is
 * there already, which is only dropped itself.
 */

#include "net/seat.h"

enum { MOST_PIECES = 160, MOST_BYTES = 65535 };

/* A piece's place, while it waits: bufs that wait use neither chain nor cookie. */
static void place_set(struct vbn_buf *buf, uint32_t offset)
{
	buf->cookie = (void *)(uintptr_t)offset;
}

static uint32_t place(const struct vbn_buf *buf)
{
	return (uint32_t)(uintptr_t)buf->cookie;
}

enum end_why { END_TIME, END_ROOM, END_OVERLAP, END_CLOSED };

static void count_gone(struct net_seat *seat, enum end_why why, uint32_t n)
{
	switch (why) {
	case END_TIME: seat_count_n(seat, drop_fragment_time, n); break;
	case END_ROOM: seat_count_n(seat, drop_fragment_room, n); break;
	case END_OVERLAP: seat_count_n(seat, drop_fragment_overlap, n); break;
	default: seat_count_n(seat, drop_closed, n); break;
	}
}

static void pieces_drop(struct net_seat *seat, struct datagram *datagram, enum end_why why)
{
	struct vbn_buf *next;

	count_gone(seat, why, datagram->n_pieces);
	seat->n_held -= datagram->n_pieces;
	for (struct vbn_buf *buf = datagram->first; buf; buf = next) {
		next = buf->next;
		buf_drop(buf);
	}
	datagram->first = NULL;
	datagram->n_pieces = 0;
}

/* ---- which one ---- */

static bool is_of(const struct datagram *datagram, const struct rx *rx, const struct piece *piece)
{
	return datagram->used && datagram->id == piece->id &&
		ip_equal(&datagram->from, &rx->from) && ip_equal(&datagram->to, &rx->to) &&
		datagram->interface == rx->iface->index &&
		(datagram->protocol == piece->protocol || !ip_is4(&rx->to));
}

/* The datagram of a piece, or a place for a new one: the oldest's, where all are taken. */
static struct datagram *datagram_for(struct rx *rx, const struct piece *piece)
{
	struct net_seat *seat = rx->seat;
	struct datagram *place_for = NULL;

	for (uint32_t i = 0; i < seat->net->conf.max_datagrams; i++) {
		struct datagram *datagram = &seat->datagrams[i];

		if (is_of(datagram, rx, piece))
			return datagram;
		if (!place_for ||
			(place_for->used &&
				(!datagram->used || datagram->until < place_for->until)))
			place_for = datagram;
	}
	if (place_for->used)
		pieces_drop(seat, place_for, END_ROOM);
	*place_for = (struct datagram){.from = rx->from,
		.to = rx->to,
		.id = piece->id,
		.interface = rx->iface->index,
		.protocol = piece->protocol,
		.used = true,
		.until = seat->now + seat->net->conf.reassembly_ms};
	return place_for;
}

static void make_room(struct net_seat *seat, const struct datagram *but)
{
	struct datagram *oldest = NULL;

	for (uint32_t i = 0; i < seat->net->conf.max_datagrams; i++) {
		struct datagram *datagram = &seat->datagrams[i];

		if (datagram->n_pieces && datagram != but &&
			(!oldest || datagram->until < oldest->until))
			oldest = datagram;
	}
	if (!oldest)
		return;
	pieces_drop(seat, oldest, END_ROOM);
	oldest->used = false;
}

/* ---- putting together ---- */

enum fit { FITS, IS_THERE, OVERLAPS };

/* Where it belongs in the list; *at is the link that is to point to it. */
static enum fit find_place(
	struct datagram *datagram, uint32_t offset, uint32_t len, struct vbn_buf ***at)
{
	struct vbn_buf **link = &datagram->first, *before = NULL;

	while (*link && place(*link) < offset) {
		before = *link;
		link = &before->next;
	}
	*at = link;
	if (*link && place(*link) == offset && (*link)->len == len)
		return IS_THERE;
	if (before && place(before) + before->len > offset)
		return OVERLAPS;
	if (*link && offset + len > place(*link))
		return OVERLAPS;
	return FITS;
}

/* What contradicts what is known of the datagram's end. */
static bool is_beyond(
	const struct datagram *datagram, const struct piece *piece, uint32_t offset, uint32_t len)
{
	const struct vbn_buf *last = datagram->first;

	if (datagram->total)
		return offset + len > datagram->total ||
			(!piece->more && offset + len != datagram->total);
	if (piece->more)
		return false;
	for (; last; last = last->next)
		if (place(last) + last->len > offset + len)
			return true;
	return false;
}

static void die(struct net_seat *seat, struct datagram *datagram)
{
	pieces_drop(seat, datagram, END_OVERLAP);
	datagram->dead = true;
}

static void deliver(struct rx *rx, struct datagram *datagram)
{
	struct vbn_buf *first = datagram->first;
	uint8_t protocol = datagram->protocol;

	for (struct vbn_buf *buf = first; buf; buf = buf->next) {
		buf->cookie = NULL;
		/* What the device says of one piece's sum is nothing of the whole's. */
		vbn_buf_packet(buf)->flags &= (uint16_t) ~(VBN_PACKET_L4_GOOD | VBN_PACKET_L4_BAD);
		if (buf->next)
			buf->flags |= VBN_BUF_CHAIN;
	}
	seat_count_n(rx->seat, merged, datagram->n_pieces - 1u);
	seat_count(rx->seat, reassembled);
	rx->seat->n_held -= datagram->n_pieces;
	datagram->used = false;
	datagram->first = NULL;
	datagram->n_pieces = 0;
	vbn__l4_input(rx, first, protocol);
}

/* ---- whose ---- */

/* The number of the seat that puts a datagram together: of those that have an end there always the same one,
 * by whichever worker its pieces come. */
static uint32_t whose(const struct rx *rx, const struct piece *piece)
{
	const struct vbn_net *net = rx->seat->net;
	uint64_t seats = load_acquire(&net->link_seats[rx->iface->link]), hash;
	uint32_t n = (uint32_t)__builtin_popcountll(seats);

	if (rx->handed || n < 2)
		return rx->seat->number;
	hash = mix(mix(ip_low(&rx->from) ^ net->seed) ^ ip_low(&rx->to));
	for (n = (uint32_t)(mix(hash ^ piece->id) >> 32) % n; n; n--)
		seats &= seats - 1;
	return (uint32_t)__builtin_ctzll(seats);
}

static void hand_over(struct rx *rx, struct vbn_buf *buf, uint32_t number)
{
	uint32_t back = vbn_buf_packet(buf)->l3_len;

	buf->data -= back;
	buf->len += back;
	if (vbn__hand_over(rx, number, buf, HANDED_PACKET))
		seat_count(rx->seat, handed_over);
	else
		seat_drop(rx->seat, buf, drop_handed_full);
}

void vbn__fragment_input(struct rx *rx, struct vbn_buf *buf, const struct piece *piece)
{
	struct net_seat *seat = rx->seat;
	uint32_t number = whose(rx, piece);
	struct datagram *datagram;
	struct vbn_buf **at;

	if (unlikely(number != seat->number)) {
		hand_over(rx, buf, number);
		return;
	}
	if (!buf->len || (piece->more && buf->len % 8) || piece->offset + buf->len > MOST_BYTES) {
		seat_drop(seat, buf, drop_fragment);
		return;
	}
	datagram = datagram_for(rx, piece);
	if (datagram->dead) {
		seat_drop(seat, buf, drop_fragment_overlap);
		return;
	}
	switch (find_place(datagram, piece->offset, buf->len, &at)) {
	case IS_THERE: seat_drop(seat, buf, drop_fragment_duplicate); return;
	case OVERLAPS:
		seat_drop(seat, buf, drop_fragment_overlap);
		die(seat, datagram);
		return;
	default: break;
	}
	if (is_beyond(datagram, piece, piece->offset, buf->len)) {
		seat_drop(seat, buf, drop_fragment_overlap);
		die(seat, datagram);
		return;
	}
	if (seat->n_held >= seat->net->conf.max_fragments)
		make_room(seat, datagram);
	if (datagram->n_pieces >= MOST_PIECES || seat->n_held >= seat->net->conf.max_fragments) {
		seat_drop(seat, buf, drop_fragment_room);
		return;
	}
	/* The transport is that of the first piece. */
	if (!piece->offset)
		datagram->protocol = piece->protocol;
	if (!piece->more)
		datagram->total = piece->offset + buf->len;
	place_set(buf, piece->offset);
	buf->next = *at;
	*at = buf;
	datagram->bytes += buf->len;
	datagram->n_pieces++;
	seat->n_held++;
	if (datagram->total && datagram->bytes == datagram->total)
		deliver(rx, datagram);
}

/* ---- time ---- */

static void give_up(struct net_seat *seat, struct datagram *datagram)
{
	struct vbn_buf *first = datagram->first;

	/* Whoever sent the first piece is told (RFC 1122 3.3.2, 8200 4.5). */
	if (first && !place(first) && !ip_is_multicast(&datagram->to)) {
		uint32_t back = vbn_buf_packet(first)->l3_len;

		first->data -= back;
		first->len += back;
		vbn__icmp_error(seat, net_interface(seat->net, datagram->interface), first, false,
			ERROR_REASSEMBLY, 0);
	}
	pieces_drop(seat, datagram, END_TIME);
	datagram->used = false;
}

void vbn__fragments_look(struct net_seat *seat)
{
	for (uint32_t i = 0; i < seat->net->conf.max_datagrams; i++)
		if (seat->datagrams[i].used && seat->now >= seat->datagrams[i].until)
			give_up(seat, &seat->datagrams[i]);
}

void vbn__fragments_drop(struct net_seat *seat)
{
	for (uint32_t i = 0; i < seat->net->conf.max_datagrams; i++) {
		pieces_drop(seat, &seat->datagrams[i], END_CLOSED);
		seat->datagrams[i].used = false;
	}
}
