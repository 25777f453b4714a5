/* raw_rule.c - flow rules of an rx group: one for each kind of packet that is hashed in its own way */

#include "drv/mlx5/raw.h"

#include <stdlib.h>

enum {
	LEVELS = 4,           /* of a rule's priority */
	LEVEL_EVERYTHING = 4, /* behind all of them */
	STEPS = 3,            /* of a level: with ports, with addresses, any */
	COUNT_PACKETS = 0,
	COUNT_BYTES = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
};

struct raw_rule {
	struct ibv_counters *counters; /* NULL: the device has none */
	struct ibv_flow *flows[N_CLASSES];
	int n;
};

/* What a packet must be, 0 for any. */
struct kind {
	uint8_t ip_version, protocol;
};

static const struct kind class_kinds[N_CLASSES] = {
	[CLASS_IPV4] = {4, 0},
	[CLASS_IPV6] = {6, 0},
	[CLASS_UDP4] = {4, PROTOCOL_UDP},
	[CLASS_TCP4] = {4, PROTOCOL_TCP},
	[CLASS_UDP6] = {6, PROTOCOL_UDP},
	[CLASS_TCP6] = {6, PROTOCOL_TCP},
};

int vbn__raw_rule_check(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule)
{
	if (rule->priority >= LEVELS)
		return fail(EINVAL,
			"rule cannot be added: priority is %u, and port %s has 0 to %d: lower ones are asked first",
			rule->priority, group->port->info.name, LEVELS - 1);
	return 0;
}

/* ---- specs ---- */

/* An attribute and its specs, as libibverbs wants them: one behind the other. */
struct flow {
	struct ibv_flow_attr attr;
	uint8_t specs[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) +
		sizeof(struct ibv_flow_spec_tcp_udp) + sizeof(struct ibv_flow_spec_action_tag) +
		sizeof(struct ibv_flow_spec_counter_action)];
};

static void add(struct flow *flow, const void *spec, uint16_t size)
{
	uint8_t *to = (uint8_t *)flow + flow->attr.size;

	memcpy(to, spec, size);
	flow->attr.size = (uint16_t)(flow->attr.size + size);
	flow->attr.num_of_specs++;
}

static void add_eth(struct flow *flow, const struct vbn_rx_rule *rule)
{
	struct ibv_flow_spec_eth eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth)};

	memcpy(eth.val.dst_mac, rule->dst_mac, 6);
	memcpy(eth.mask.dst_mac, rule->dst_mac_mask, 6);
	memcpy(eth.val.src_mac, rule->src_mac, 6);
	memcpy(eth.mask.src_mac, rule->src_mac_mask, 6);
	if (rule->kind == VBN_RULE_ALL_MULTICAST)
		eth.val.dst_mac[0] = eth.mask.dst_mac[0] = 1;
	for (int i = 0; i < 6; i++) {
		eth.val.dst_mac[i] &= eth.mask.dst_mac[i];
		eth.val.src_mac[i] &= eth.mask.src_mac[i];
	}
	if (rule->ethertype) {
		eth.val.ether_type = (be_force uint16_t)be16(rule->ethertype);
		eth.mask.ether_type = 0xffff;
	}
	if (rule->vlan.set) {
		eth.val.vlan_tag = (be_force uint16_t)be16((uint16_t)rule->vlan.value);
		eth.mask.vlan_tag = (be_force uint16_t)be16(0xfff);
	}
	add(flow, &eth, sizeof(eth));
}

static void prefix_mask(uint8_t *mask, uint32_t bits)
{
	for (; bits >= 8; bits -= 8)
		*mask++ = 0xff;
	if (bits)
		*mask = (uint8_t)(0xff00 >> bits);
}

static void prefixed(void *value, void *mask, const uint8_t *address, uint32_t bits, uint32_t size)
{
	uint8_t bytes[16] = {0}, masks[16] = {0};

	prefix_mask(masks, bits);
	for (uint32_t i = 0; i < size; i++)
		bytes[i] = address[i] & masks[i];
	memcpy(value, bytes, size);
	memcpy(mask, masks, size);
}

static void add_ipv4(struct flow *flow, const struct vbn_rx_rule *rule, uint32_t protocol)
{
	struct ibv_flow_spec_ipv4_ext ip = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ip)};

	prefixed(&ip.val.src_ip, &ip.mask.src_ip, rule->src_ip, rule->src_prefix, 4);
	prefixed(&ip.val.dst_ip, &ip.mask.dst_ip, rule->dst_ip, rule->dst_prefix, 4);
	ip.val.proto = (uint8_t)protocol;
	ip.mask.proto = protocol ? 0xff : 0;
	add(flow, &ip, sizeof(ip));
}

static void add_ipv6(struct flow *flow, const struct vbn_rx_rule *rule, uint32_t protocol)
{
	struct ibv_flow_spec_ipv6 ip = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip)};

	prefixed(ip.val.src_ip, ip.mask.src_ip, rule->src_ip, rule->src_prefix, 16);
	prefixed(ip.val.dst_ip, ip.mask.dst_ip, rule->dst_ip, rule->dst_prefix, 16);
	ip.val.next_hdr = (uint8_t)protocol;
	ip.mask.next_hdr = protocol ? 0xff : 0;
	add(flow, &ip, sizeof(ip));
}

static void add_ports(struct flow *flow, const struct vbn_rx_rule *rule, uint32_t protocol)
{
	struct ibv_flow_spec_tcp_udp l4 = {
		.type = protocol == PROTOCOL_TCP ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP,
		.size = sizeof(l4)};

	if (rule->src_port.set) {
		l4.val.src_port = (be_force uint16_t)be16((uint16_t)rule->src_port.value);
		l4.mask.src_port = 0xffff;
	}
	if (rule->dst_port.set) {
		l4.val.dst_port = (be_force uint16_t)be16((uint16_t)rule->dst_port.value);
		l4.mask.dst_port = 0xffff;
	}
	add(flow, &l4, sizeof(l4));
}

static void add_actions(
	struct flow *flow, const struct vbn_rx_rule *rule, struct ibv_counters *counters)
{
	struct ibv_flow_spec_action_tag tag = {
		.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(tag), .tag_id = rule->mark};
	struct ibv_flow_spec_action_drop drop = {
		.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(drop)};
	struct ibv_flow_spec_counter_action count = {
		.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(count), .counters = counters};

	if (rule->mark)
		add(flow, &tag, sizeof(tag));
	if (rule->action == VBN_RULE_DROP)
		add(flow, &drop, sizeof(drop));
	if (counters)
		add(flow, &count, sizeof(count));
}

/* ---- which kinds ---- */

/* What a packet of the rule and of the class is; false: there is none. */
static bool meet(const struct vbn_rx_rule *rule, const struct kind *class, struct kind *both)
{
	const struct kind wanted = {
		rule->ip_version, rule->protocol.set ? (uint8_t)rule->protocol.value : 0};
	const uint16_t ethertype = class->ip_version == 4 ? 0x0800 : 0x86dd;

	if (class->ip_version &&
		((wanted.ip_version && wanted.ip_version != class->ip_version) ||
			(rule->ethertype && rule->ethertype != ethertype)))
		return false;
	if (class->protocol && wanted.protocol && wanted.protocol != class->protocol)
		return false;
	*both = (struct kind){class->ip_version ? class->ip_version : wanted.ip_version,
		class->protocol ? class->protocol : wanted.protocol};
	return true;
}

static struct ibv_flow *make_flow(const struct raw_group *raw, const struct vbn_rx_rule *rule,
	struct ibv_counters *counters, struct ibv_qp *qp, const struct kind *kind)
{
	const uint32_t level =
		rule->kind == VBN_RULE_EVERYTHING ? LEVEL_EVERYTHING : rule->priority;
	const uint32_t step = kind->protocol ? 0 : kind->ip_version ? 1 : 2;
	struct flow flow = {.attr = {.type = IBV_FLOW_ATTR_NORMAL,
				    .size = offsetof(struct flow, specs),
				    .priority = (uint16_t)(level * STEPS + step),
				    .port = (uint8_t)raw->group.port->info.port}};

	static_assert(offsetof(struct flow, specs) == sizeof(struct ibv_flow_attr),
		"specs follow the attribute at once");
	add_eth(&flow, rule);
	if (kind->ip_version == 4)
		add_ipv4(&flow, rule, kind->protocol);
	else if (kind->ip_version == 6)
		add_ipv6(&flow, rule, kind->protocol);
	if (kind->protocol == PROTOCOL_TCP || kind->protocol == PROTOCOL_UDP)
		add_ports(&flow, rule, kind->protocol);
	add_actions(&flow, rule, counters);
	return ibv_create_flow(qp, &flow.attr);
}

/* ---- counters ---- */

static struct ibv_counters *make_counters(const struct raw_group *raw)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counter_attach_attr packets = {
		.counter_desc = IBV_COUNTER_PACKETS, .index = COUNT_PACKETS};
	struct ibv_counter_attach_attr bytes = {
		.counter_desc = IBV_COUNTER_BYTES, .index = COUNT_BYTES};
	struct ibv_counters *counters =
		ibv_create_counters(rdma_port(raw->group.port)->context, &init);

	if (counters &&
		(ibv_attach_counters_point_flow(counters, &packets, NULL) ||
			ibv_attach_counters_point_flow(counters, &bytes, NULL))) {
		ibv_destroy_counters(counters);
		counters = NULL;
	}
	return counters;
}

int vbn__raw_rule_count(const struct vbn_rx_group *group, const struct rx_rule *rule,
	uint64_t *packets, uint64_t *bytes)
{
	const struct raw_rule *raw = rule->driver_data;
	uint64_t values[2] = {0};

	(void)group;
	if (!raw || !raw->counters)
		return -EOPNOTSUPP;
	if (ibv_read_counters(raw->counters, values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED) &&
		ibv_read_counters(raw->counters, values, 2, 0))
		return -EIO;
	*packets = values[COUNT_PACKETS];
	*bytes = values[COUNT_BYTES];
	return 0;
}

/* ---- add and remove ---- */

void vbn__raw_rule_remove(struct vbn_rx_group *group, struct rx_rule *rule)
{
	struct raw_rule *raw = rule->driver_data;

	(void)group;
	if (!raw)
		return;
	while (raw->n)
		ibv_destroy_flow(raw->flows[--raw->n]);
	if (raw->counters)
		ibv_destroy_counters(raw->counters);
	free(raw);
	rule->driver_data = NULL;
}

static int refused(const struct vbn_rx_group *group)
{
	const int error = errno ? errno : EIO;

	if (error == EPERM || error == EACCES)
		return fail(error,
			"rule of port %s cannot be added: packets of a device that the kernel shares take CAP_NET_RAW: run as root, or give the process that capability",
			group->port->info.name);
	return fail(error,
		"rule of port %s cannot be added: the device refused it: %s; take a plainer one",
		group->port->info.name, strerror(error));
}

/* From the class that says most of a packet to the one that says nothing; what another one has said
 * already is left out. */
int vbn__raw_rule_add(struct vbn_rx_group *group, struct rx_rule *rule)
{
	const struct raw_group *raw = raw_group(group);
	struct raw_rule *made = calloc(1, sizeof(*made));
	struct kind said[N_CLASSES];

	if (!made)
		return -ENOMEM;
	rule->driver_data = made;
	made->counters = make_counters(raw);
	for (int i = N_CLASSES - 1; i >= 0; i--) {
		struct kind kind;
		bool again = false;

		if (!raw->qps[i] || !meet(&rule->rule, &class_kinds[i], &kind))
			continue;
		for (int k = 0; k < made->n; k++)
			again |= !memcmp(&said[k], &kind, sizeof(kind));
		if (again)
			continue;
		errno = 0;
		made->flows[made->n] =
			make_flow(raw, &rule->rule, made->counters, raw->qps[i], &kind);
		if (!made->flows[made->n]) {
			const int ret = refused(group);

			vbn__raw_rule_remove(group, rule);
			return ret;
		}
		said[made->n++] = kind;
	}
	return 0;
}
