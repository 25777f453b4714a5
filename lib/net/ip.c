/* ip.c - addresses as texts, prefixes, and which of ours is meant */

#include "net/seat.h"

#include <arpa/inet.h>
#include <stdio.h>

VBN_API int vbn_ip_parse(const char *text, struct vbn_ip *ip)
{
	uint8_t v4[4];

	if (inet_pton(AF_INET, text, v4) == 1)
		*ip = ip_from4(v4);
	else if (inet_pton(AF_INET6, text, ip->bytes) != 1)
		return -EINVAL;
	return 0;
}

VBN_API const char *vbn_ip_text(const struct vbn_ip *ip, char text[VBN_IP_TEXT])
{
	if (ip_is4(ip))
		inet_ntop(AF_INET, ip->bytes + 12, text, VBN_IP_TEXT);
	else
		inet_ntop(AF_INET6, ip->bytes, text, VBN_IP_TEXT);
	return text;
}

struct vbn_ip vbn__ip_mask(const struct vbn_ip *ip, uint32_t bits)
{
	struct vbn_ip masked = *ip;

	for (uint32_t at = 0; at < 16; at++) {
		uint32_t left = bits > 8 * at ? min(bits - 8 * at, 8u) : 0;

		masked.bytes[at] &= (uint8_t)(0xff00 >> left);
	}
	return masked;
}

struct vbn_ip vbn__ip_solicited(const struct vbn_ip *ip)
{
	struct vbn_ip group = {{0xff, 0x02, [11] = 0x01, [12] = 0xff}};

	memcpy(group.bytes + 13, ip->bytes + 13, 3);
	return group;
}

const struct net_address *vbn__if_has(const struct net_if *iface, const struct vbn_ip *ip)
{
	for (uint32_t i = 0; i < iface->n_addresses; i++)
		if (ip_equal(&iface->addresses[i].ip, ip))
			return &iface->addresses[i];
	return NULL;
}

/* How good an address is to send to dst from; 0: not at all. */
static int fitness(const struct net_address *address, const struct net_if *iface, struct dst *dst)
{
	struct vbn_ip a, b;
	uint32_t bits = ip_bits(&address->ip, address->length);

	if (vbn__glance_byte(&address->state) != ADDRESS_VALID ||
		ip_is4(&address->ip) != ip_is4(&dst->ip))
		return 0;
	if (ip_is_link_local(&address->ip))
		return iface != dst->iface                                               ? 0
			: ip_is_link_local(&dst->next_hop) && ip_is_link_local(&dst->ip) ? 5
											 : 1;
	if (ip_is_link_local(&dst->ip))
		return 0;
	a = vbn__ip_mask(&address->ip, bits);
	b = vbn__ip_mask(&dst->next_hop, bits);
	return (iface == dst->iface ? 3 : 2) + ip_equal(&a, &b);
}

const struct vbn_ip *vbn__source_for(struct net_seat *seat, struct dst *dst)
{
	const struct vbn_ip *best = NULL;
	int best_fitness = 0;

	if (!dst->iface)
		return NULL;
	for (uint32_t i = 0; i < seat->net->n_interfaces; i++) {
		const struct net_if *iface = net_interface(seat->net, i);

		for (uint32_t k = 0; k < iface->n_addresses; k++) {
			int fit = fitness(&iface->addresses[k], iface, dst);

			if (fit <= best_fitness)
				continue;
			best_fitness = fit;
			best = &iface->addresses[k].ip;
		}
	}
	return best;
}
