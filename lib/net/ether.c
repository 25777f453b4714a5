/* ether.c - Ethernet and VLAN: frames in, whatever they are, and frames out */

#include "net/seat.h"

#include <verbena/queue.h>

/* ---- in ---- */

static force_inline bool is_our_mac(const struct net_if *iface, const uint8_t *to)
{
	return !((load4(to) ^ load4(iface->mac)) |
		(uint32_t)(load2(to + 4) ^ load2(iface->mac + 4)));
}

/* The interface for a frame, NULL: none, and it is counted and gone. *behind is what the header takes. */
static const struct net_if *interface_of(
	struct vbn_net_end *end, struct vbn_buf *buf, uint32_t *behind, uint16_t *type)
{
	struct net_seat *seat = end->seat;
	const struct vbn_packet *packet = vbn_buf_packet(buf);
	const struct wire_ether *ether = (const struct wire_ether *)buf->data;
	uint32_t vid = 0, index;

	if (unlikely(buf->len < ETHER_BYTES || buf->flags & VBN_BUF_CHAIN)) {
		if (buf->flags & VBN_BUF_CHAIN)
			seat_drop(seat, buf, drop_chained);
		else
			seat_drop(seat, buf, drop_short);
		return NULL;
	}
	*type = from_be16(ether->type);
	*behind = ETHER_BYTES;
	if (unlikely(packet->flags & VBN_PACKET_VLAN)) {
		vid = packet->vlan & 0xfff;
	} else if (*type == ETHERTYPE_TAG) {
		if (buf->len < ETHER_BYTES + TAG_BYTES) {
			seat_drop(seat, buf, drop_short);
			return NULL;
		}
		vid = load_be16(buf->data + 14) & 0xfff;
		*type = load_be16(buf->data + 16);
		*behind = ETHER_BYTES + TAG_BYTES;
	}
	index = seat->net->by_vlan[end->link][vid];
	if (unlikely(!index)) {
		seat_drop(seat, buf, drop_vlan);
		return NULL;
	}
	return net_interface(seat->net, index - 1);
}

fast_path void vbn__ether_input(struct rx *rx, struct vbn_buf *buf)
{
	uint8_t *frame = buf->data;
	uint32_t behind;
	uint16_t type;

	rx->iface = interface_of(rx->end, buf, &behind, &type);
	if (unlikely(!rx->iface))
		return;
	rx->group = frame[0] & 1;
	rx->mac_from = frame + 6;
	if (unlikely(!rx->group && !is_our_mac(rx->iface, frame))) {
		seat_drop(rx->seat, buf, drop_other_host);
		return;
	}
	if (unlikely(frame[6] & 1)) {
		seat_drop(rx->seat, buf, drop_source);
		return;
	}
	buf->data = frame + behind;
	buf->len -= behind;
	if (likely(type == ETHERTYPE_V4))
		vbn__ip4_input(rx, buf);
	else if (type == ETHERTYPE_V6)
		vbn__ip6_input(rx, buf);
	else if (type == ETHERTYPE_ARP)
		vbn__arp_input(rx, buf);
	else
		seat_drop(rx->seat, buf, drop_ethertype);
}

/* ---- out ---- */

struct vbn_buf *vbn__net_buf(struct net_seat *seat, const struct net_if *iface)
{
	struct vbn_net_end *end = seat->ends[iface->link];
	struct vbn_buf *buf;

	if (!end || vbn_buf_alloc(end->pool, &buf, 1) < 0)
		return NULL;
	buf->data = vbn_buf_room(buf) + VBN_NET_HEADROOM;
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = 0};
	return buf;
}

cold struct vbn_buf *vbn__push_segment(
	struct net_seat *seat, const struct net_if *iface, struct vbn_buf *buf, uint32_t n)
{
	struct vbn_buf *head = vbn__net_buf(seat, iface);

	if (!head) {
		seat_drop(seat, buf, drop_tx_no_buf);
		return NULL;
	}
	*vbn_buf_packet(head) = *vbn_buf_packet(buf);
	head->data -= n;
	head->len = n;
	vbn_buf_append(head, buf);
	return head;
}

fast_path void vbn__end_flush(struct vbn_net_end *end)
{
	struct net_seat *seat = end->seat;
	int n = (int)end->n_out, sent;

	if (!n)
		return;
	sent = end->queue ? vbn_send(end->queue, end->out, n) : end->output(end->out, n, end->arg);
	if (unlikely(sent < 0)) {
		/* The queue has failed, or the first frame is none of its: nothing would ever go. */
		seat_count_n(seat, drop_tx_refused, n);
		vbn_buf_free(end->out, n);
		end->n_out = 0;
		return;
	}
	seat_count_n(seat, tx_frames, sent);
	end->n_out -= (uint32_t)sent;
	if (unlikely(end->n_out))
		memmove(end->out, end->out + sent, end->n_out * sizeof(*end->out));
}

fast_path void vbn__ether_output(struct net_seat *seat, struct vbn_buf *buf,
	const struct net_if *iface, uint64_t word, uint16_t type)
{
	struct vbn_net_end *end = seat->ends[iface->link];
	uint32_t n = iface->vlan ? ETHER_BYTES + TAG_BYTES : ETHER_BYTES;
	uint8_t *at;

	if (unlikely(!end)) {
		seat_drop(seat, buf, drop_tx_no_end);
		return;
	}
	if (unlikely(end->n_out == END_OUT)) {
		vbn__end_flush(end);
		if (end->n_out == END_OUT) {
			seat_drop(seat, buf, drop_tx_full);
			return;
		}
	}
	buf = push(seat, iface, buf, n);
	if (unlikely(!buf))
		return;
	at = buf->data;
	memcpy(at, &word, 8); /* two bytes more than the MAC: the next store has them */
	memcpy(at + 6, iface->mac, 6);
	if (unlikely(iface->vlan)) {
		memcpy(at + 12, &(__be16){be16(ETHERTYPE_TAG)}, 2);
		memcpy(at + 14, &(__be16){be16(iface->vlan)}, 2);
		at += TAG_BYTES;
	}
	memcpy(at + 12, &(__be16){be16(type)}, 2);
	vbn_buf_packet(buf)->l2_len = (uint8_t)n;
	end->out[end->n_out++] = buf;
}
