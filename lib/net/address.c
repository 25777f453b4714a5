/* address.c - our own addresses: announced, probed for (RFC 5227, 4862), and defended */

#include "net/seat.h"

enum { PROBE_MS = 1000, ANNOUNCE_MS = 2000, DEFEND_MS = 10000 };

enum deed { NOTHING, PROBE, ANNOUNCE };

static enum deed address_due(struct net_seat *seat, struct net_address *address)
{
	if (address->state == ADDRESS_DUPLICATE || seat->now < address->next)
		return NOTHING;
	if (address->probes) {
		address->probes--;
		address->next = seat->now + PROBE_MS;
		return PROBE;
	}
	if (address->state == ADDRESS_TENTATIVE) {
		store_once(&address->state, ADDRESS_VALID);
		__atomic_fetch_add(&seat->net->generation, 1, __ATOMIC_RELEASE);
	}
	if (!address->announces)
		return NOTHING;
	address->announces--;
	address->next = seat->now + ANNOUNCE_MS;
	return ANNOUNCE;
}

void vbn__address_announce(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip, bool probe)
{
	if (ip_is4(ip))
		vbn__arp_announce(seat, iface, ip, probe);
	else
		vbn__nd_announce(seat, iface, ip, probe);
}

void vbn__addresses_look(struct net_seat *seat, struct net_if *iface)
{
	enum deed deeds[VBN_NET_ADDRESSES];

	if (!net_try(seat->net))
		return;
	for (uint32_t i = 0; i < iface->n_addresses; i++)
		deeds[i] = address_due(seat, &iface->addresses[i]);
	pthread_mutex_unlock(&seat->net->lock);
	for (uint32_t i = 0; i < iface->n_addresses; i++)
		if (deeds[i] != NOTHING)
			vbn__address_announce(
				seat, iface, &iface->addresses[i].ip, deeds[i] == PROBE);
}

void vbn__address_conflict(
	struct net_seat *seat, const struct net_if *iface, const struct net_address *address)
{
	seat_count(seat, address_conflicts);
	vbn__learn(seat, &(struct news){.kind = NEWS_CLAIM, .iface = iface, .ip = address->ip});
}

bool vbn__address_learn(struct net_seat *seat, const struct news *news)
{
	struct net_if *iface = &seat->net->interfaces[news->iface->index];
	struct net_address *address =
		&iface->addresses[vbn__if_has(iface, &news->ip) - iface->addresses];

	if (address->state == ADDRESS_TENTATIVE)
		store_once(&address->state, ADDRESS_DUPLICATE);
	if (address->state == ADDRESS_DUPLICATE || seat->now < address->defended)
		return false;
	address->defended = seat->now + DEFEND_MS;
	return true;
}

VBN_API int vbn_net_addresses(struct vbn_net *net, struct vbn_net_address *addresses, int n)
{
	int found = 0;

	for (uint32_t i = 0; i < net->n_interfaces; i++) {
		const struct net_if *iface = net_interface(net, i);

		for (uint32_t k = 0; k < iface->n_addresses; k++, found++) {
			const struct net_address *address = &iface->addresses[k];
			uint8_t state = vbn__glance_byte(&address->state);

			if (found < n)
				addresses[found] = (struct vbn_net_address){address->ip,
					address->length, i, state == ADDRESS_TENTATIVE,
					state == ADDRESS_DUPLICATE};
		}
	}
	return found;
}
