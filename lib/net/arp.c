/* arp.c - ARP (RFC 826, 5227): questions, answers, announcements */

#include "net/seat.h"

enum { ARP_REQUEST = 1, ARP_REPLY = 2 };

static const uint8_t nobody[6], everybody[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* ---- sending ---- */

static uint64_t word_to(const uint8_t mac[6])
{
	union mac_word word = {.word = 0};

	memcpy(word.mac, mac, 6);
	word.flags = WORD_READY;
	return word.word;
}

static void fill(struct wire_arp *arp, uint16_t operation, const struct net_if *iface,
	const uint8_t sender_ip[4], const uint8_t target_mac[6], const uint8_t target_ip[4])
{
	arp->hardware = be16(1);
	arp->protocol = be16(ETHERTYPE_V4);
	arp->hardware_len = 6;
	arp->protocol_len = 4;
	arp->operation = be16(operation);
	memcpy(arp->sender_mac, iface->mac, 6);
	memmove(arp->sender_ip, sender_ip, 4);
	memmove(arp->target_mac, target_mac, 6);
	memmove(arp->target_ip, target_ip, 4);
}

static void ask(struct net_seat *seat, const struct net_if *iface, const uint8_t sender_ip[4],
	const uint8_t target_ip[4], const uint8_t *mac)
{
	struct vbn_buf *buf = vbn__net_buf(seat, iface);

	if (!buf)
		return;
	buf->len = sizeof(struct wire_arp);
	fill((struct wire_arp *)buf->data, ARP_REQUEST, iface, sender_ip, nobody, target_ip);
	seat_count(seat, arp_requests_sent);
	seat_count(seat, tx_packets);
	vbn__ether_output(seat, buf, iface, word_to(mac ? mac : everybody), ETHERTYPE_ARP);
}

void vbn__arp_request(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip,
	const uint8_t mac[6])
{
	struct dst dst = {.ip = *ip, .next_hop = *ip, .iface = iface};
	const struct vbn_ip *source = vbn__source_for(seat, &dst);

	/* With none yet there is nobody to answer to. */
	if (source)
		ask(seat, iface, source->bytes + 12, ip->bytes + 12, mac);
}

void vbn__arp_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe)
{
	ask(seat, iface, probe ? nobody : ip->bytes + 12, ip->bytes + 12, NULL);
}

/* ---- receiving ---- */

static bool is_sane(const struct wire_arp *arp)
{
	return arp->hardware == be16(1) && arp->protocol == be16(ETHERTYPE_V4) &&
		arp->hardware_len == 6 && arp->protocol_len == 4 &&
		(arp->operation == be16(ARP_REQUEST) || arp->operation == be16(ARP_REPLY)) &&
		!(arp->sender_mac[0] & 1) && memcmp(arp->sender_mac, nobody, 6);
}

/* Only who is on this link can have something to say about it. */
static bool is_neighbour(const struct rx *rx, const struct vbn_ip *ip)
{
	const struct net_hop *hop = vbn__route_find(rx->seat->net, ip);

	return hop && hop->iface == rx->iface && !hop->via && hop->kind != HOP_BROADCAST;
}

static void answer(struct rx *rx, struct vbn_buf *buf)
{
	struct wire_arp *arp = (struct wire_arp *)buf->data, asked = *arp;

	buf->len = sizeof(*arp);
	vbn_buf_packet(buf)->flags = 0;
	fill(arp, ARP_REPLY, rx->iface, asked.target_ip, asked.sender_mac, asked.sender_ip);
	seat_count(rx->seat, answered);
	seat_count(rx->seat, arp_replies_sent);
	seat_count(rx->seat, tx_packets);
	vbn__ether_output(rx->seat, buf, rx->iface, word_to(asked.sender_mac), ETHERTYPE_ARP);
}

static void consume(struct rx *rx, struct vbn_buf *buf)
{
	seat_count(rx->seat, consumed);
	buf_drop(buf);
}

/* Somebody who has no address yet asks for one. */
static void heard_probe(struct rx *rx, struct vbn_buf *buf, const struct net_address *target)
{
	const struct wire_arp *arp = (const struct wire_arp *)buf->data;

	if (target && vbn__glance_byte(&target->state) == ADDRESS_VALID &&
		arp->operation == be16(ARP_REQUEST)) {
		answer(rx, buf);
		return;
	}
	if (target && memcmp(arp->sender_mac, rx->iface->mac, 6))
		vbn__address_conflict(rx->seat, rx->iface, target);
	consume(rx, buf);
}

static void heard_own(struct rx *rx, struct vbn_buf *buf, const struct net_address *own)
{
	const struct wire_arp *arp = (const struct wire_arp *)buf->data;

	if (memcmp(arp->sender_mac, rx->iface->mac, 6))
		vbn__address_conflict(rx->seat, rx->iface, own);
	consume(rx, buf);
}

void vbn__arp_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_arp *arp = (const struct wire_arp *)buf->data;
	const struct net_address *own, *target;
	struct vbn_ip sender, wanted;
	bool request;

	if (buf->len < sizeof(*arp) || !is_sane(arp) || memcmp(arp->sender_mac, rx->mac_from, 6)) {
		seat_drop(rx->seat, buf, drop_arp);
		return;
	}
	sender = ip_from4(arp->sender_ip);
	wanted = ip_from4(arp->target_ip);
	target = vbn__if_has(rx->iface, &wanted);
	own = vbn__if_has(rx->iface, &sender);
	request = arp->operation == be16(ARP_REQUEST);
	if (!load4(arp->sender_ip)) {
		heard_probe(rx, buf, target);
		return;
	}
	if (own) {
		heard_own(rx, buf, own);
		return;
	}
	if (!is_neighbour(rx, &sender)) {
		seat_drop(rx->seat, buf, drop_arp);
		return;
	}
	if (!target || vbn__glance_byte(&target->state) != ADDRESS_VALID) {
		vbn__neighbour_heard(rx->seat, &sender, rx->iface, arp->sender_mac, HEARD_OVERRIDE);
		consume(rx, buf);
		return;
	}
	vbn__neighbour_heard(rx->seat, &sender, rx->iface, arp->sender_mac,
		HEARD_OVERRIDE |
			(request                    ? HEARD_ASKING
					: rx->group ? 0
						    : HEARD_ANSWER));
	if (request)
		answer(rx, buf);
	else
		consume(rx, buf);
}
