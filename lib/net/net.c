/* net.c - a net: made from what its user wants */

#include "net/seat.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* ---- interfaces ---- */

static int address_add(
	struct net_if *iface, const struct vbn_ip *ip, uint32_t length, enum vbn_switch probe)
{
	struct net_address *address = &iface->addresses[iface->n_addresses];

	if (iface->n_addresses == VBN_NET_ADDRESSES)
		return fail(EINVAL, "interface %s: more than %d addresses", iface->name,
			VBN_NET_ADDRESSES);
	*address = (struct net_address){.ip = *ip, .length = length, .state = ADDRESS_VALID};
	iface->n_addresses++;
	if (probe == VBN_OFF)
		return 0;
	address->announces = ip_is4(ip) ? 2 : 1;
	address->probes = probe == VBN_ON ? (ip_is4(ip) ? 3 : 1) : ip_is4(ip) ? 0 : 1;
	address->state = probe == VBN_ON ? ADDRESS_TENTATIVE : ADDRESS_VALID;
	return 0;
}

/* The subnet's own address or its broadcast; a subnet of two has neither (RFC 3021). */
static bool is_of_all(const struct vbn_ip *ip, uint32_t length)
{
	const uint32_t host = length < 31 && ip_is4(ip) ? UINT32_MAX >> length : 0;
	__be32 address;

	memcpy(&address, ip->bytes + 12, sizeof(address));
	return host && ((from_be32(address) & host) == 0 || (from_be32(address) & host) == host);
}

static int address_parse(struct net_if *iface, char *text, enum vbn_switch probe)
{
	char *slash = strchr(text, '/'), *end;
	struct vbn_ip ip;
	unsigned long length;

	if (slash)
		*slash = '\0';
	if (!slash || vbn_ip_parse(text, &ip))
		return fail(EINVAL, "interface %s: %s is no ADDRESS/LENGTH as 10.0.0.2/24",
			iface->name, text);
	length = strtoul(slash + 1, &end, 10);
	if (!slash[1] || *end || length < 1 || length > (ip_is4(&ip) ? 32 : 128))
		return fail(
			EINVAL, "interface %s: %s has no prefix length as /24", iface->name, text);
	if (ip_is_multicast(&ip) || ip_is_none(&ip) ||
		(ip_is4(&ip) && (ip.bytes[12] == 0 || ip.bytes[12] == 127)))
		return fail(EINVAL, "interface %s: %s is no address that a host can have",
			iface->name, text);
	if (is_of_all(&ip, (uint32_t)length))
		return fail(EINVAL,
			"interface %s: %s is not a host's address: of a /%lu it stands for the subnet, or for all of it",
			iface->name, text, length);
	if (vbn__if_has(iface, &ip))
		return fail(EINVAL, "interface %s: it is given %s twice", iface->name, text);
	if (!ip_is4(&ip) && iface->mtu < 1280)
		return fail(EINVAL, "interface %s: IPv6 needs an MTU of 1280, it has %u",
			iface->name, iface->mtu);
	return address_add(iface, &ip, (uint32_t)length, probe);
}

static int addresses_parse(struct net_if *iface, const char *text, enum vbn_switch probe)
{
	char *copy = strdup(text ? text : ""), *save = NULL;
	int err = copy ? 0 : -ENOMEM;

	for (char *one = copy ? strtok_r(copy, ", ", &save) : NULL; one && !err;
		one = strtok_r(NULL, ", ", &save))
		err = address_parse(iface, one, probe);
	free(copy);
	return err;
}

static int link_local_add(struct net_if *iface, enum vbn_switch probe)
{
	const uint8_t *mac = iface->mac;
	struct vbn_ip ip = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe,
		mac[3], mac[4], mac[5]}};

	return vbn__if_has(iface, &ip) ? 0 : address_add(iface, &ip, 64, probe);
}

static int interface_make(
	struct vbn_net *net, uint32_t index, const struct vbn_net_interface_conf *conf)
{
	static const uint8_t none[6];
	struct net_if *iface = &net->interfaces[index];
	enum vbn_switch probe = net->conf.probe_addresses;
	uint32_t vid = conf->vlan.set ? conf->vlan.value : 0;
	int err;

	if (conf->name)
		snprintf(iface->name, sizeof(iface->name), "%s", conf->name);
	else
		snprintf(iface->name, sizeof(iface->name), "if%u", index);
	iface->index = index;
	iface->link = conf->link;
	iface->mtu = conf->mtu ? conf->mtu : 1500;
	memcpy(iface->mac, conf->mac, 6);
	iface->vlan = (uint16_t)vid;
	if (conf->link >= VBN_NET_LINKS)
		return fail(EINVAL, "interface %s: link %u is not 0 to %d", iface->name, conf->link,
			VBN_NET_LINKS - 1);
	if (iface->mtu < 68 || iface->mtu > 9216)
		return fail(EINVAL,
			"interface %s: an MTU of %u is not 68 to 9216: set mtu to what its port and its link carry",
			iface->name, iface->mtu);
	if (conf->mac[0] & 1 || !memcmp(conf->mac, none, 6))
		return fail(EINVAL, "interface %s: its MAC is no unicast one", iface->name);
	if (conf->vlan.set && (vid < 1 || vid > 4094))
		return fail(
			EINVAL, "interface %s: a VLAN of %u is not 1 to 4094", iface->name, vid);
	if (net->by_vlan[conf->link][vid])
		return fail(EINVAL,
			"interface %s: link %u has another one with the same VLAN, or none",
			iface->name, conf->link);
	net->by_vlan[conf->link][vid] = (uint8_t)(index + 1);
	err = addresses_parse(iface, conf->addresses, probe);
	if (err)
		return err;
	if (conf->link_local == VBN_ON && iface->mtu < 1280)
		return fail(EINVAL, "interface %s: IPv6 needs an MTU of 1280, it has %u",
			iface->name, iface->mtu);
	if (conf->link_local == VBN_OFF || iface->mtu < 1280)
		return 0;
	return link_local_add(iface, probe);
}

/* ---- the net ---- */

static uint32_t or_default(uint32_t value, uint32_t usual)
{
	return value ? value : usual;
}

static void conf_fill(struct vbn_net_conf *conf)
{
	conf->max_routes = or_default(conf->max_routes, 1024);
	conf->max_neighbours = or_default(conf->max_neighbours, 1024);
	conf->max_sockets = or_default(conf->max_sockets, 1024);
	conf->max_groups = or_default(conf->max_groups, 256);
	conf->max_paths = or_default(conf->max_paths, 256);
	conf->max_waiting_each = or_default(conf->max_waiting_each, 64);
	conf->max_waiting = or_default(conf->max_waiting, 256);
	conf->max_datagrams = or_default(conf->max_datagrams, 64);
	conf->max_fragments = or_default(conf->max_fragments, 1024);
	conf->reassembly_ms = or_default(conf->reassembly_ms, 15000);
	conf->reachable_ms = or_default(conf->reachable_ms, 30000);
	conf->retransmit_ms = or_default(conf->retransmit_ms, 1000);
	conf->delay_ms = or_default(conf->delay_ms, 5000);
	conf->stale_ms = or_default(conf->stale_ms, 600000);
	conf->icmp_rate = or_default(conf->icmp_rate, 100);
}

static int conf_check(const struct vbn_net_conf *conf)
{
	const struct {
		const char *name;
		uint32_t value;
	} limits[] = {
		{"max_routes", conf->max_routes},
		{"max_neighbours", conf->max_neighbours},
		{"max_sockets", conf->max_sockets},
		{"max_groups", conf->max_groups},
		{"max_paths", conf->max_paths},
		{"max_waiting", conf->max_waiting},
		{"max_datagrams", conf->max_datagrams},
		{"max_fragments", conf->max_fragments},
		{"icmp_rate", conf->icmp_rate},
	};

	if (!conf->n_interfaces || conf->n_interfaces > VBN_NET_INTERFACES || !conf->interfaces)
		return fail(EINVAL, "net: %u interfaces are not 1 to %d", conf->n_interfaces,
			VBN_NET_INTERFACES);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		if (limits[i].value > 65536)
			return fail(EINVAL, "net: %s %u is above 65536", limits[i].name,
				limits[i].value);
	return 0;
}

static void net_free(struct vbn_net *net)
{
	vbn__routes_destroy(net);
	vbn__neighbours_destroy(net);
	free(net->groups);
	free(net->paths);
	free(net->sockets);
	free(net->by_vlan);
	free(net->interfaces);
	vbn__hand_destroy(net);
	pthread_mutex_destroy(&net->lock);
	pthread_mutex_destroy(&net->routes_lock);
	free(net);
}

static int net_fill(struct vbn_net *net)
{
	const struct vbn_net_conf *conf = &net->conf;
	int err = conf_check(conf);

	net->interfaces = calloc(conf->n_interfaces, sizeof(*net->interfaces));
	net->by_vlan = calloc(VBN_NET_LINKS, sizeof(*net->by_vlan));
	net->rings = calloc(NET_SEATS, sizeof(*net->rings));
	if (!err && (!net->interfaces || !net->by_vlan || !net->rings))
		err = -ENOMEM;
	for (uint32_t i = 0; i < conf->n_interfaces && !err; i++)
		err = interface_make(net, i, &conf->interfaces[i]);
	if (err)
		return err;
	net->n_interfaces = conf->n_interfaces;
	net->conf.interfaces = NULL;
	if (vbn__neighbours_create(net) || vbn__multicast_create(net) || vbn__paths_create(net) ||
		vbn__sockets_create(net) || vbn__routes_create(net))
		return fail(ENOMEM, "net %s: there is no memory for its tables", net->name);
	return 0;
}

VBN_API int vbn_net_create(const struct vbn_net_conf *conf, struct vbn_net **created)
{
	struct vbn_net *net = aligned_alloc(CACHE_LINE, round_up(sizeof(*net), CACHE_LINE));
	int err;

	if (!net)
		return fail(ENOMEM, "net: there is no memory for it");
	*net = (struct vbn_net){.conf = *conf, .forward = conf->forward, .generation = 1};
	snprintf(net->name, sizeof(net->name), "%s", conf->name ? conf->name : "net");
	conf_fill(&net->conf);
	pthread_mutex_init(&net->lock, NULL);
	pthread_mutex_init(&net->routes_lock, NULL);
	if (getrandom(&net->seed, sizeof(net->seed), GRND_NONBLOCK) != sizeof(net->seed))
		net->seed = clock_ns() ^ (uintptr_t)net;
	err = net_fill(net);
	if (err)
		net_free(net);
	else
		*created = net;
	return err;
}

VBN_API void vbn_net_destroy(struct vbn_net *net)
{
	if (!net)
		return;
	for (int i = 0; i < NET_SEATS; i++) {
		if (!net->seats[i])
			continue;
		log_error(
			"net %s cannot be destroyed: a worker has an end of it: detach that first",
			net->name);
		return;
	}
	/* Neighbours and tables on their way through a grace period. */
	vbn__rcu_barrier();
	net_free(net);
}
