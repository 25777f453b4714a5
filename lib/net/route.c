/* route.c - routes: the longest prefix that has an address
 *
 * IPv4 is a trie of 16, 8 and 8 bits: one to three loads. IPv6 is one hash table, asked once for each
 * length that a prefix has, the longest first. A table is made anew from the list whenever that
 * changes, published, and the old one freed after a grace period.
 */

#include "net/seat.h"

#include <stdio.h>
#include <stdlib.h>

struct route {
	struct vbn_ip prefix;
	uint32_t bits; /* of 128 */
	struct net_hop hop;
	bool own; /* an interface's: stays */
};

enum { ROOT = 1 << 16, NODE = 256 };
#define IS_NODE (1u << 31)

struct prefix6 {
	struct vbn_ip prefix;
	uint32_t bits, value; /* value: hop + 1, 0: free */
};

struct route_table {
	struct rcu_later later;
	struct net_hop *hops;
	uint32_t *nodes; /* NODE values each */
	uint32_t n_nodes;
	struct prefix6 *prefixes;
	uint32_t prefix_mask, n_lengths;
	uint8_t lengths[129]; /* longest first */
	uint32_t root[ROOT];  /* hop + 1; 0: none; or IS_NODE and the node */
};

static void table_free(void *arg)
{
	struct route_table *table = arg;

	if (!table)
		return;
	free(table->hops);
	free(table->nodes);
	free(table->prefixes);
	free(table);
}

/* ---- making one ---- */

/* The node behind an entry, made where there is none; IS_NODE alone: no memory. */
static uint32_t *descend(struct route_table *table, uint32_t *entry)
{
	uint32_t *grown;

	if (*entry & IS_NODE)
		return table->nodes + (size_t)(*entry & ~IS_NODE) * NODE;
	grown = realloc(table->nodes, ((size_t)table->n_nodes + 1) * NODE * sizeof(*grown));
	if (!grown)
		return NULL;
	table->nodes = grown;
	grown += (size_t)table->n_nodes * NODE;
	for (int i = 0; i < NODE; i++)
		grown[i] = *entry;
	*entry = IS_NODE | table->n_nodes++;
	return grown;
}

static void fill(uint32_t *entries, uint32_t first, uint32_t n, uint32_t value)
{
	for (uint32_t i = 0; i < n; i++)
		entries[first + i] = value;
}

/* Shorter prefixes have been put in before, so nothing longer is overwritten. */
static int put4(struct route_table *table, uint32_t address, uint32_t length, uint32_t value)
{
	uint32_t *node, root_entry, mid;

	if (length <= 16) {
		fill(table->root, address >> 16, 1u << (16 - length), value);
		return 0;
	}
	node = descend(table, &table->root[address >> 16]);
	if (!node)
		return -ENOMEM;
	mid = address >> 8 & 0xff;
	if (length <= 24) {
		fill(node, mid, 1u << (24 - length), value);
		return 0;
	}
	/* descend() may move what `node` points to. */
	root_entry = node[mid];
	node = descend(table, &root_entry);
	if (!node)
		return -ENOMEM;
	table->nodes[(size_t)(table->root[address >> 16] & ~IS_NODE) * NODE + mid] = root_entry;
	fill(node, address & 0xff, 1u << (32 - length), value);
	return 0;
}

static uint64_t hash6(const struct vbn_ip *prefix, uint32_t bits)
{
	return mix(mix(ip_high(prefix) + bits) ^ ip_low(prefix));
}

static void put6(struct route_table *table, const struct route *route, uint32_t value)
{
	uint64_t at = hash6(&route->prefix, route->bits);

	while (table->prefixes[at & table->prefix_mask].value)
		at++;
	table->prefixes[at & table->prefix_mask] =
		(struct prefix6){route->prefix, route->bits, value};
}

static int shorter_first(const void *a, const void *b)
{
	const struct route *first = a, *second = b;

	return (int)first->bits - (int)second->bits;
}

static int table_make(struct route *list, uint32_t n, struct route_table **made)
{
	uint32_t n_slots = (uint32_t)pow2_ceil(2 * (uint64_t)n + 1), last = 129;
	struct route_table *table = calloc(1, sizeof(*table));
	int err = 0;

	if (!table)
		return -ENOMEM;
	table->hops = calloc(n + 1, sizeof(*table->hops));
	table->prefixes = calloc(n_slots, sizeof(*table->prefixes));
	table->prefix_mask = n_slots - 1;
	if (!table->hops || !table->prefixes)
		err = -ENOMEM;
	qsort(list, n, sizeof(*list), shorter_first);
	for (uint32_t i = 0; i < n && !err; i++) {
		table->hops[i] = list[i].hop;
		if (ip_is4(&list[i].prefix))
			err = put4(table, be32toh(load4(list[i].prefix.bytes + 12)),
				list[i].bits - 96, i + 1);
		else
			put6(table, &list[i], i + 1);
	}
	for (uint32_t i = n; i-- && !err;) {
		if (ip_is4(&list[i].prefix) || list[i].bits == last)
			continue;
		last = list[i].bits;
		table->lengths[table->n_lengths++] = (uint8_t)last;
	}
	if (err)
		table_free(table);
	else
		*made = table;
	return err;
}

/* ---- looking up ---- */

static fast_path uint32_t find4(const struct route_table *table, uint32_t address)
{
	uint32_t value = table->root[address >> 16];

	if (value & IS_NODE)
		value = table->nodes[(size_t)(value & ~IS_NODE) * NODE + (address >> 8 & 0xff)];
	if (value & IS_NODE)
		value = table->nodes[(size_t)(value & ~IS_NODE) * NODE + (address & 0xff)];
	return value;
}

static fast_path uint32_t find6(const struct route_table *table, const struct vbn_ip *ip)
{
	for (uint32_t i = 0; i < table->n_lengths; i++) {
		uint32_t bits = table->lengths[i];
		struct vbn_ip prefix = vbn__ip_mask(ip, bits);

		for (uint64_t at = hash6(&prefix, bits);; at++) {
			const struct prefix6 *slot = &table->prefixes[at & table->prefix_mask];

			if (!slot->value)
				break;
			if (slot->bits == bits && ip_equal(&slot->prefix, &prefix))
				return slot->value;
		}
	}
	return 0;
}

fast_path const struct net_hop *vbn__route_find(const struct vbn_net *net, const struct vbn_ip *ip)
{
	const struct route_table *table = rcu_read(&net->routes);
	uint32_t value =
		ip_is4(ip) ? find4(table, be32toh(load4(ip->bytes + 12))) : find6(table, ip);

	return value ? &table->hops[value - 1] : NULL;
}

/* ---- changing the list ---- */

static struct route *list_find(
	const struct vbn_net *net, const struct vbn_ip *prefix, uint32_t bits)
{
	for (uint32_t i = 0; i < net->n_routes; i++)
		if (net->route_list[i].bits == bits && ip_equal(&net->route_list[i].prefix, prefix))
			return &net->route_list[i];
	return NULL;
}

static int publish(struct vbn_net *net)
{
	struct route_table *old = net->routes, *table;
	int err = table_make(net->route_list, net->n_routes, &table);

	if (err)
		return err;
	rcu_publish(&net->routes, table);
	__atomic_fetch_add(&net->generation, 1, __ATOMIC_RELEASE);
	if (old)
		vbn__rcu_call(&old->later, table_free, old);
	return 0;
}

static void list_put(
	struct vbn_net *net, const struct vbn_ip *ip, uint32_t bits, const struct net_hop *hop)
{
	struct vbn_ip prefix = vbn__ip_mask(ip, bits);

	/* Two interfaces in one subnet: the first has it. */
	if (list_find(net, &prefix, bits))
		return;
	net->route_list[net->n_routes++] = (struct route){prefix, bits, *hop, true};
}

static void list_put_interface(struct vbn_net *net, const struct net_if *iface)
{
	for (uint32_t i = 0; i < iface->n_addresses; i++) {
		const struct net_address *address = &iface->addresses[i];
		struct net_hop hop = {.iface = iface, .mtu = iface->mtu, .kind = HOP_UNICAST};
		struct vbn_ip last = address->ip;

		if (ip_is_link_local(&address->ip))
			continue;
		if (ip_is4(&address->ip) && address->length < 31) {
			uint32_t all = be32toh(load4(last.bytes + 12)) |
				(uint32_t)(0xffffffffull >> address->length);
			uint32_t order = htobe32(all);

			memcpy(last.bytes + 12, &order, 4);
			hop.kind = HOP_BROADCAST;
			list_put(net, &last, 128, &hop);
			hop.kind = HOP_UNICAST;
		}
		list_put(net, &address->ip, ip_bits(&address->ip, address->length), &hop);
	}
}

static void list_put_local(struct vbn_net *net, const struct net_if *iface)
{
	for (uint32_t i = 0; i < iface->n_addresses; i++) {
		struct net_hop hop = {.iface = iface,
			.address = &iface->addresses[i],
			.mtu = iface->mtu,
			.kind = HOP_LOCAL};

		if (!ip_is_link_local(&iface->addresses[i].ip))
			list_put(net, &iface->addresses[i].ip, 128, &hop);
	}
}

int vbn__routes_create(struct vbn_net *net)
{
	net->route_list = calloc(
		(size_t)net->conf.max_routes + (size_t)net->n_interfaces * 3 * VBN_NET_ADDRESSES,
		sizeof(*net->route_list));
	if (!net->route_list)
		return -ENOMEM;
	for (uint32_t i = 0; i < net->n_interfaces; i++)
		list_put_local(net, net_interface(net, i));
	for (uint32_t i = 0; i < net->n_interfaces; i++)
		list_put_interface(net, net_interface(net, i));
	return publish(net);
}

void vbn__routes_destroy(struct vbn_net *net)
{
	table_free(net->routes);
	free(net->route_list);
}

/* ---- the public face ---- */

static int route_check(const struct vbn_net *net, const struct vbn_net_route *route)
{
	bool v4 = ip_is4(&route->prefix);

	if (route->interface >= net->n_interfaces)
		return fail(EINVAL, "route: there is no interface %u: the net has %u",
			route->interface, net->n_interfaces);
	if (route->length > (v4 ? 32 : 128))
		return fail(EINVAL, "route: a prefix of %u bits is longer than an address",
			route->length);
	if (!ip_is_none(&route->gateway) &&
		(ip_is4(&route->gateway) != v4 || ip_is_multicast(&route->gateway)))
		return fail(
			EINVAL, "route: the gateway is no unicast address of the prefix's version");
	if (route->length && ip_is_multicast(&route->prefix))
		return fail(EINVAL,
			"route: the prefix is of multicast addresses, which have no routes");
	return 0;
}

static int add_locked(struct vbn_net *net, const struct vbn_net_route *route)
{
	const struct net_if *iface = net_interface(net, route->interface);
	uint32_t bits = ip_bits(&route->prefix, route->length);
	struct route added = {vbn__ip_mask(&route->prefix, bits), bits,
		{.gateway = route->gateway,
			.iface = iface,
			.mtu = route->mtu ? min(route->mtu, iface->mtu) : iface->mtu,
			.kind = HOP_UNICAST,
			.via = !ip_is_none(&route->gateway)},
		false};
	uint32_t n_own = 0;
	int err;

	if (list_find(net, &added.prefix, bits))
		return fail(EEXIST, "route: there is one for this prefix: remove that first");
	for (uint32_t i = 0; i < net->n_routes; i++)
		n_own += net->route_list[i].own;
	if (net->n_routes - n_own >= net->conf.max_routes)
		return fail(
			ENOSPC, "route: there are %u, which is max_routes", net->conf.max_routes);
	net->route_list[net->n_routes++] = added;
	err = publish(net);
	if (!err)
		return 0;
	*list_find(net, &added.prefix, bits) = net->route_list[--net->n_routes];
	return fail(-err, "route: there is no memory for the table");
}

VBN_API int vbn_net_route_add(struct vbn_net *net, const struct vbn_net_route *route)
{
	int err = route_check(net, route);

	if (err)
		return err;
	pthread_mutex_lock(&net->routes_lock);
	err = add_locked(net, route);
	pthread_mutex_unlock(&net->routes_lock);
	return err;
}

static int remove_locked(struct vbn_net *net, const struct vbn_net_route *route)
{
	uint32_t bits = ip_bits(&route->prefix, route->length);
	struct vbn_ip prefix = vbn__ip_mask(&route->prefix, bits);
	struct route *found = list_find(net, &prefix, bits), removed;
	int err;

	if (!found || found->own)
		return fail(ENOENT, "route: there is none for this prefix that was added");
	removed = *found;
	*found = net->route_list[--net->n_routes];
	err = publish(net);
	if (!err)
		return 0;
	net->route_list[net->n_routes++] = removed;
	return fail(-err, "route: there is no memory for the table");
}

VBN_API int vbn_net_route_remove(struct vbn_net *net, const struct vbn_net_route *route)
{
	int err = route_check(net, route);

	if (err)
		return err;
	pthread_mutex_lock(&net->routes_lock);
	err = remove_locked(net, route);
	pthread_mutex_unlock(&net->routes_lock);
	return err;
}

/* ---- as a text ---- */

static int interface_named(const struct vbn_net *net, const char *name)
{
	for (uint32_t i = 0; i < net->n_interfaces; i++)
		if (!strcmp(net->interfaces[i].name, name))
			return (int)i;
	return -1;
}

/* The interface that has the gateway on its subnet; -1. */
static int interface_towards(const struct vbn_net *net, const struct vbn_ip *gateway)
{
	for (uint32_t i = 0; i < net->n_interfaces; i++) {
		const struct net_if *iface = net_interface(net, i);

		for (uint32_t k = 0; k < iface->n_addresses; k++) {
			uint32_t bits =
				ip_bits(&iface->addresses[k].ip, iface->addresses[k].length);
			struct vbn_ip a = vbn__ip_mask(gateway, bits),
				      b = vbn__ip_mask(&iface->addresses[k].ip, bits);

			if (ip_is4(gateway) == ip_is4(&iface->addresses[k].ip) && ip_equal(&a, &b))
				return (int)i;
		}
	}
	return -1;
}

/* "ADDRESS/LENGTH", or "default" of the gateway's version. */
static int parse_prefix(char *text, struct vbn_net_route *route)
{
	char *slash = strchr(text, '/'), *end;
	unsigned long length;

	if (!strcmp(text, "default")) {
		static const struct vbn_ip any4 = {{[10] = 0xff, 0xff}};

		route->prefix = ip_is4(&route->gateway) ? any4 : (struct vbn_ip){{0}};
		route->length = 0;
		return 0;
	}
	if (slash)
		*slash = '\0';
	if (vbn_ip_parse(text, &route->prefix))
		return -EINVAL;
	route->length = ip_is4(&route->prefix) ? 32 : 128;
	if (!slash)
		return 0;
	length = strtoul(slash + 1, &end, 10);
	if (!slash[1] || *end || length > route->length)
		return -EINVAL;
	route->length = (uint32_t)length;
	return 0;
}

VBN_API int vbn_net_route_parse(struct vbn_net *net, const char *text, struct vbn_net_route *route)
{
	char copy[160], *save = NULL, *prefix, *word, *value;
	int interface = -1;

	*route = (struct vbn_net_route){.length = 0};
	snprintf(copy, sizeof(copy), "%s", text);
	prefix = strtok_r(copy, " ", &save);
	while ((word = strtok_r(NULL, " ", &save))) {
		value = strtok_r(NULL, " ", &save);
		if (value && !strcmp(word, "via") && !vbn_ip_parse(value, &route->gateway))
			continue;
		if (value && !strcmp(word, "dev") && (interface = interface_named(net, value)) >= 0)
			continue;
		if (value && !strcmp(word, "mtu") &&
			(route->mtu = (uint32_t)strtoul(value, NULL, 10)) >= 68)
			continue;
		return fail(EINVAL,
			"route \"%s\": %s: say PREFIX/LENGTH, then any of via GATEWAY, dev INTERFACE, mtu BYTES",
			text, word);
	}
	if (!prefix || parse_prefix(prefix, route))
		return fail(EINVAL,
			"route \"%s\": it does not begin with a prefix as 10.1.0.0/16 or default",
			text);
	if (interface < 0)
		interface = interface_towards(net, &route->gateway);
	if (interface < 0)
		return fail(EINVAL,
			"route \"%s\": no interface's subnet has the gateway: name one by dev",
			text);
	route->interface = (uint32_t)interface;
	return 0;
}
