/* hand.c - frames that came to one worker and are another's: datagrams for its sockets, and fragments, which
 * whoever's they are puts together
 *
 * From each worker to each other there is a ring: made as soon as there are both, kept as long as the net, since the
 * numbers of seats are used again. What finds it full is dropped by the one who hands it over. A pointer's lowest bit
 * says what it is, the buf's packet by which interface it came.
 */

#include "net/seat.h"

#include <stdlib.h>
#include <verbena/ring.h>

enum { RING = 512, AT_ONCE = 32, FROM_GROUP = 1 };
static_assert(HANDED_KINDS <= 2, "one bit says which");

int vbn__hand_open(struct vbn_net *net, uint32_t number)
{
	uint64_t others = net->numbers & ~(1ull << number);
	int err = 0;

	for (uint32_t i = 0; i < NET_SEATS && !err; i++) {
		struct vbn_ring *ring;

		if (!(others >> i & 1))
			continue;
		for (int way = 0; way < 2 && !err; way++) {
			struct vbn_ring **at =
				way ? &net->rings[i][number] : &net->rings[number][i];

			if (*at)
				continue;
			err = vbn_ring_create(RING, &ring);
			if (!err)
				store_release(at, ring);
		}
	}
	if (!err)
		store_release(&net->numbers, net->numbers | 1ull << number);
	return err;
}

static void *as_item(struct vbn_buf *buf, enum handed kind)
{
	return (char *)buf + kind;
}

static struct vbn_buf *from_item(void *item, enum handed *kind)
{
	*kind = (enum handed)((uintptr_t)item & 1);
	return (struct vbn_buf *)(void *)((char *)item - *kind);
}

bool vbn__hand_over(const struct rx *rx, uint32_t number, struct vbn_buf *buf, enum handed kind)
{
	struct vbn_ring *ring = load_acquire(&rx->seat->net->rings[number][rx->seat->number]);
	struct vbn_packet *packet = vbn_buf_packet(buf);

	packet->l2_len = (uint8_t)(rx->iface->index + 1);
	packet->type = rx->group ? FROM_GROUP : 0;
	if (!ring || !vbn_ring_put_one(ring, as_item(buf, kind)))
		return false;
	vbn_ring_publish(ring);
	return true;
}

static void input(struct net_seat *seat, void *item)
{
	static const uint8_t nobody[6];
	enum handed kind;
	struct vbn_buf *buf = from_item(item, &kind);
	struct vbn_packet *packet = vbn_buf_packet(buf);
	struct rx rx = {.seat = seat,
		.iface = net_interface(seat->net, packet->l2_len - 1u),
		.group = packet->type == FROM_GROUP,
		.handed = true,
		.mac_from = nobody};

	seat_count(seat, taken_over);
	if (kind == HANDED_DATAGRAM)
		vbn__udp_handed(&rx, buf);
	else if (buf->data[0] >> 4 == 4)
		vbn__ip4_input(&rx, buf);
	else
		vbn__ip6_input(&rx, buf);
}

int vbn__hand_take(struct net_seat *seat)
{
	uint64_t others = hand_others(seat);
	void *items[AT_ONCE];
	int taken = 0;

	for (; others; others &= others - 1) {
		struct vbn_ring *ring =
			load_acquire(&seat->net->rings[seat->number][__builtin_ctzll(others)]);
		uint32_t n = ring ? vbn_ring_take(ring, items, AT_ONCE) : 0;

		for (uint32_t i = 0; i < n; i++)
			input(seat, items[i]);
		taken += (int)n;
	}
	if (taken)
		vbn__udp_batch(seat);
	return taken;
}

static uint32_t drop_all(struct vbn_ring *ring)
{
	enum handed kind;
	uint32_t n = 0;

	for (void *item; ring && vbn_ring_take(ring, &item, 1); n++)
		buf_drop(from_item(item, &kind));
	return n;
}

void vbn__hand_drop(struct net_seat *seat)
{
	for (int i = 0; i < NET_SEATS; i++) {
		uint32_t n = drop_all(load_acquire(&seat->net->rings[seat->number][i]));

		seat_count_n(seat, taken_over, n);
		seat_count_n(seat, drop_closed, n);
	}
}

/* What came when its worker had gone. */
void vbn__hand_destroy(struct vbn_net *net)
{
	for (int i = 0; i < NET_SEATS * NET_SEATS && net->rings; i++) {
		struct vbn_ring *ring = net->rings[i / NET_SEATS][i % NET_SEATS];

		drop_all(ring);
		vbn_ring_destroy(ring);
	}
	free(net->rings);
}
