/* command_flow.c - CREATE_FLOW: verbs' flow specs become a value and a mask to steer by
 *
 * The checks and their errnos are those of the kernel's ib_uverbs and mlx5_ib.
 */
#include "command.h"
#include "steer.h"
#include "trace.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

enum {
	MAX_SPECS = 10,
	SPEC_BYTES = 96, /* more than any spec has that is known */
	MAX_PRIORITY = 15,
	SPEC_INNER = 0x100,
	FILTER_MAX = sizeof(struct ib_uverbs_flow_ipv6_filter),
};

/* The values of IBV_FLOW_ATTR_*; none of these is of an API that would take another. */
enum { FLOW_NORMAL, FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_SNIFFER };
enum { FLOW_DONT_TRAP = 1 << 1, FLOW_EGRESS = 1 << 2 };

/* One spec, after the header: value and mask, each zero behind what the program gave. */
struct filter {
	uint8_t value[FILTER_MAX], mask[FILTER_MAX];
};

struct flow {
	struct vhca_request *request;
	uint32_t type, flags;
	uint16_t size, priority;
	uint8_t n_specs;
	struct vhca_steer_attr steer;
	struct vhca_counter_set *counters;
	bool is_ip; /* a spec says which */
	uint16_t ip_type;
	bool ends_multicast; /* the last spec of an address */
};

/* ---- fields ---- */

static void set_bytes(struct flow *flow, enum vhca_match_at at, const uint8_t *value,
	const uint8_t *mask, size_t n)
{
	memcpy(flow->steer.value.bytes + at, value, n);
	memcpy(flow->steer.mask.bytes + at, mask, n);
}

static void set_flags(struct flow *flow, uint32_t value, uint32_t mask)
{
	struct vhca_match *v = &flow->steer.value, *m = &flow->steer.mask;

	vhca_match_put(v, VHCA_AT_FLAGS, (uint16_t)(vhca_match_get(v, VHCA_AT_FLAGS) | value));
	vhca_match_put(m, VHCA_AT_FLAGS, (uint16_t)(vhca_match_get(m, VHCA_AT_FLAGS) | mask));
}

/* EINVAL: two specs ask for different protocols. */
static int set_protocol(struct flow *flow, uint8_t value, uint8_t mask)
{
	uint8_t *have_value = &flow->steer.value.bytes[VHCA_AT_PROTOCOL];
	uint8_t *have_mask = &flow->steer.mask.bytes[VHCA_AT_PROTOCOL];

	if ((*have_value ^ value) & *have_mask & mask)
		return EINVAL;
	if (mask) {
		*have_value = value;
		*have_mask = mask;
	}
	return 0;
}

static bool any(const uint8_t *bytes, size_t n)
{
	uint8_t all = 0;

	for (size_t i = 0; i < n; i++)
		all |= bytes[i];
	return all;
}

/* Those of a filter that mlx5 does not look at: a mask over them is refused. */
#define UNSUPPORTED(mask_, type_, after_) \
	any((mask_) + (offsetof(type_, after_)), sizeof(type_) - offsetof(type_, after_))

/* ---- specs ---- */

static int add_ethernet(struct flow *flow, const struct filter *filter)
{
	const struct ib_uverbs_flow_eth_filter *value = (const void *)filter->value;
	const struct ib_uverbs_flow_eth_filter *mask = (const void *)filter->mask;

	set_bytes(flow, VHCA_AT_DMAC, value->dst_mac, mask->dst_mac, 6);
	set_bytes(flow, VHCA_AT_SMAC, value->src_mac, mask->src_mac, 6);
	set_bytes(flow, VHCA_AT_TYPE, (const uint8_t *)&value->ether_type,
		(const uint8_t *)&mask->ether_type, 2);
	set_bytes(flow, VHCA_AT_TAG, (const uint8_t *)&value->vlan_tag,
		(const uint8_t *)&mask->vlan_tag, 2);
	if (mask->vlan_tag)
		set_flags(flow, VHCA_MATCH_CVLAN, VHCA_MATCH_CVLAN);
	flow->ends_multicast = mask->dst_mac[0] & value->dst_mac[0] & 1;
	return 0;
}

static void set_ip_version(struct flow *flow, uint32_t version, uint16_t type)
{
	flow->is_ip = true;
	flow->ip_type = type;
	set_flags(flow, version << VHCA_MATCH_IP_VERSION, 0xfu << VHCA_MATCH_IP_VERSION);
}

static int add_ipv4(struct flow *flow, const struct filter *filter)
{
	const struct ib_uverbs_flow_ipv4_filter *value = (const void *)filter->value;
	const struct ib_uverbs_flow_ipv4_filter *mask = (const void *)filter->mask;

	if (UNSUPPORTED(filter->mask, struct ib_uverbs_flow_ipv4_filter, ttl))
		return EOPNOTSUPP;
	set_ip_version(flow, 4, 0x0800);
	set_bytes(flow, VHCA_AT_SOURCE + 12, (const uint8_t *)&value->src_ip,
		(const uint8_t *)&mask->src_ip, 4);
	set_bytes(flow, VHCA_AT_DEST + 12, (const uint8_t *)&value->dst_ip,
		(const uint8_t *)&mask->dst_ip, 4);
	set_bytes(flow, VHCA_AT_TOS, &value->tos, &mask->tos, 1);
	flow->ends_multicast = ((const uint8_t *)&mask->dst_ip)[0] >> 4 == 0xe &&
		((const uint8_t *)&value->dst_ip)[0] >> 4 == 0xe;
	return set_protocol(flow, value->proto, mask->proto);
}

static int add_ipv6(struct flow *flow, const struct filter *filter)
{
	const struct ib_uverbs_flow_ipv6_filter *value = (const void *)filter->value;
	const struct ib_uverbs_flow_ipv6_filter *mask = (const void *)filter->mask;

	if (mask->flow_label ||
		UNSUPPORTED(filter->mask, struct ib_uverbs_flow_ipv6_filter, hop_limit))
		return EOPNOTSUPP;
	set_ip_version(flow, 6, 0x86dd);
	set_bytes(flow, VHCA_AT_SOURCE, value->src_ip, mask->src_ip, 16);
	set_bytes(flow, VHCA_AT_DEST, value->dst_ip, mask->dst_ip, 16);
	set_bytes(flow, VHCA_AT_TOS, &value->traffic_class, &mask->traffic_class, 1);
	flow->ends_multicast = false;
	return set_protocol(flow, value->next_hdr, mask->next_hdr);
}

static int add_ports(
	struct flow *flow, const struct filter *filter, enum vhca_match_at at, uint8_t ip)
{
	const struct ib_uverbs_flow_tcp_udp_filter *value = (const void *)filter->value;
	const struct ib_uverbs_flow_tcp_udp_filter *mask = (const void *)filter->mask;

	set_bytes(flow, at, (const uint8_t *)&value->src_port, (const uint8_t *)&mask->src_port, 2);
	set_bytes(flow, at + 2, (const uint8_t *)&value->dst_port, (const uint8_t *)&mask->dst_port,
		2);
	flow->ends_multicast = false;
	return set_protocol(flow, ip, 0xff);
}

static int add_tcp(struct flow *flow, const struct filter *filter)
{
	return add_ports(flow, filter, VHCA_AT_TCP, 6);
}

static int add_udp(struct flow *flow, const struct filter *filter)
{
	return add_ports(flow, filter, VHCA_AT_UDP, 17);
}

static const struct {
	uint32_t type, size;
	int (*add)(struct flow *flow, const struct filter *filter);
} filters[] = {
	{IBV_FLOW_SPEC_ETH, sizeof(struct ib_uverbs_flow_eth_filter), add_ethernet},
	{IBV_FLOW_SPEC_IPV4, sizeof(struct ib_uverbs_flow_ipv4_filter), add_ipv4},
	{IBV_FLOW_SPEC_IPV6, sizeof(struct ib_uverbs_flow_ipv6_filter), add_ipv6},
	{IBV_FLOW_SPEC_TCP, sizeof(struct ib_uverbs_flow_tcp_udp_filter), add_tcp},
	{IBV_FLOW_SPEC_UDP, sizeof(struct ib_uverbs_flow_tcp_udp_filter), add_udp},
};

/* Value, then mask: each half of what follows the header, whatever the size. */
static int read_filter(const uint8_t *bytes, uint32_t size, uint32_t known, struct filter *filter)
{
	uint32_t half = (size - (uint32_t)sizeof(struct ib_uverbs_flow_spec_hdr)) / 2;
	uint32_t n = min(half, known);

	bytes += sizeof(struct ib_uverbs_flow_spec_hdr);
	if (!half || any(bytes + n, half - n) || any(bytes + half + n, half - n))
		return EINVAL;
	memset(filter, 0, sizeof(*filter));
	memcpy(filter->value, bytes, n);
	memcpy(filter->mask, bytes + half, n);
	return 0;
}

static int add_tag(struct flow *flow, const uint8_t *bytes, uint32_t size)
{
	struct ib_uverbs_flow_spec_action_tag spec;

	if (size != sizeof(spec))
		return EINVAL;
	memcpy(&spec, bytes, sizeof(spec));
	if (spec.tag_id > VHCA_MAX_TAG || flow->type != FLOW_NORMAL)
		return EINVAL;
	flow->steer.tagged = true;
	flow->steer.tag = spec.tag_id;
	return 0;
}

static int add_counters(struct flow *flow, const uint8_t *bytes, uint32_t size)
{
	struct ib_uverbs_flow_spec_action_count spec;

	if (size != sizeof(spec))
		return EINVAL;
	memcpy(&spec, bytes, sizeof(spec));
	if (flow->counters)
		return EINVAL;
	flow->counters = vhca_handle_find(flow->request->context, spec.handle, VHCA_COUNTER_SET);
	return flow->counters ? 0 : EINVAL;
}

static int add_spec(struct flow *flow, const uint8_t *bytes, uint32_t type, uint32_t size)
{
	struct filter filter;

	switch (type) {
	case IBV_FLOW_SPEC_ACTION_TAG: return add_tag(flow, bytes, size);
	case IBV_FLOW_SPEC_ACTION_COUNT: return add_counters(flow, bytes, size);
	case IBV_FLOW_SPEC_ACTION_DROP:
		flow->steer.action = VHCA_STEER_DROP;
		return size == sizeof(struct ib_uverbs_flow_spec_action_drop) ? 0 : EINVAL;
	case IBV_FLOW_SPEC_ACTION_HANDLE: return EOPNOTSUPP;
	default: break;
	}
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++)
		if (filters[i].type == type)
			return read_filter(bytes, size, filters[i].size, &filter)
				?: filters[i].add(flow, &filter);
	/* tunnels, what is inside of them, ESP and MPLS */
	return EOPNOTSUPP;
}

static int add_specs(struct flow *flow, const uint8_t *bytes)
{
	uint32_t left = flow->size, n = 0;

	while (n < flow->n_specs && left >= sizeof(struct ib_uverbs_flow_spec_hdr)) {
		struct ib_uverbs_flow_spec_hdr header;
		int error;

		memcpy(&header, bytes, sizeof(header));
		if (header.size < sizeof(header) || header.size > left || header.reserved)
			return EINVAL;
		error = add_spec(flow, bytes, header.type, header.size);
		if (error)
			return error;
		bytes += header.size;
		left -= header.size;
		n++;
	}
	return left || n != flow->n_specs ? EINVAL : 0;
}

/* ---- the command ---- */

static int check_attr(const struct ib_uverbs_flow_attr *attr)
{
	if (attr->flags > (FLOW_DONT_TRAP | FLOW_EGRESS | 1) || attr->num_of_specs > MAX_SPECS ||
		attr->size > attr->num_of_specs * SPEC_BYTES || attr->reserved[0] ||
		attr->reserved[1] || attr->port != 1)
		return EINVAL;
	if (attr->flags & FLOW_DONT_TRAP &&
		(attr->type == FLOW_ALL_DEFAULT || attr->type == FLOW_MC_DEFAULT))
		return EINVAL;
	if (attr->type > FLOW_SNIFFER)
		return EINVAL;
	if (attr->type == FLOW_SNIFFER || attr->flags & ~(uint32_t)FLOW_DONT_TRAP)
		return EOPNOTSUPP;
	return attr->priority > MAX_PRIORITY ? ENOMEM : 0;
}

/* An EtherType that is asked for must not be another IP's than the spec behind. */
static bool types_agree(const struct flow *flow)
{
	uint16_t mask = vhca_match_get(&flow->steer.mask, VHCA_AT_TYPE);
	uint16_t value = vhca_match_get(&flow->steer.value, VHCA_AT_TYPE);

	return !flow->is_ip || mask != 0xffff || value == flow->ip_type;
}

static void place(struct flow *flow)
{
	flow->steer.priority = flow->priority;
	flow->steer.dont_trap = flow->flags & FLOW_DONT_TRAP;
	if (flow->type == FLOW_NORMAL) {
		flow->steer.class = flow->ends_multicast ? VHCA_STEER_MULTICAST : VHCA_STEER_NORMAL;
		return;
	}
	/* specs have no say in these */
	flow->steer.class = VHCA_STEER_REST;
	flow->steer.priority = 0;
	memset(&flow->steer.value, 0, sizeof(flow->steer.value));
	memset(&flow->steer.mask, 0, sizeof(flow->steer.mask));
	if (flow->type == FLOW_MC_DEFAULT)
		flow->steer.value.bytes[VHCA_AT_DMAC] = flow->steer.mask.bytes[VHCA_AT_DMAC] = 1;
}

/* The first flow of a set says what each of its numbers is; those beside it need not. */
static int bind_counters(struct flow *flow)
{
	struct vhca_counter_set *set = flow->counters;
	struct mlx5_ib_flow_counters_desc desc[VHCA_MAX_COUNTERS];
	struct {
		uint32_t n, reserved; /* struct mlx5_ib_create_flow */
		struct mlx5_ib_flow_counters_data data;
	} uhw;
	int error = vhca_span_read(&flow->request->uhw_in, &uhw, sizeof(uhw));

	if (error || !set)
		return error;
	flow->steer.tally = &set->tally;
	flow->steer.tally_holder = &set->object;
	if (uhw.n > 1 || uhw.reserved || uhw.data.reserved)
		return EINVAL;
	if (set->bound && set->object.refs)
		return uhw.n ? EINVAL : 0;
	if (!uhw.n || uhw.data.ncounters > VHCA_MAX_COUNTERS)
		return EINVAL;
	set->n_values = 0;
	error = vhca_copy_in(
		desc, (uintptr_t)uhw.data.counters_data, uhw.data.ncounters * sizeof(desc[0]));
	for (uint32_t i = 0; !error && i < uhw.data.ncounters; i++) {
		if (desc[i].description > 1 || desc[i].index >= VHCA_MAX_COUNTERS)
			return EINVAL;
		set->what[i].bytes = desc[i].description;
		set->what[i].index = desc[i].index;
		set->n_values = max(set->n_values, desc[i].index + 1);
	}
	set->n = error ? 0 : uhw.data.ncounters;
	set->bound = !error;
	return error;
}

static int read_flow(struct flow *flow, struct ib_uverbs_create_flow *cmd)
{
	struct vhca_span specs = flow->request->in;
	const struct ib_uverbs_flow_attr *attr;
	uint8_t bytes[MAX_SPECS * SPEC_BYTES];
	int error = vhca_copy_in(cmd, flow->request->in.address, sizeof(*cmd));

	if (error)
		return error;
	attr = &cmd->flow_attr;
	flow->type = attr->type;
	flow->flags = attr->flags;
	flow->size = attr->size;
	flow->priority = attr->priority;
	flow->n_specs = attr->num_of_specs;
	error = cmd->comp_mask ? EINVAL : check_attr(attr);
	if (error)
		return error;
	specs.address += sizeof(*cmd);
	specs.size -= sizeof(*cmd);
	if (specs.size < flow->size)
		return EINVAL;
	error = vhca_copy_in(bytes, specs.address, flow->size) ?: add_specs(flow, bytes);
	if (error)
		return error;
	if (flow->steer.action == VHCA_STEER_DROP && flow->flags & FLOW_DONT_TRAP)
		return EINVAL;
	return types_agree(flow) ? 0 : EINVAL;
}

int vhca_create_flow(struct vhca_request *request)
{
	struct ib_uverbs_create_flow_resp resp = {.comp_mask = 0};
	struct ib_uverbs_create_flow cmd;
	struct vhca_steer_rule *rule;
	struct flow flow = {.request = request};
	struct vhca_qp *qp;
	int error = read_flow(&flow, &cmd);

	if (error)
		return error;
	qp = vhca_handle_find(request->context, cmd.qp_handle, VHCA_QP);
	if (!qp || !vhca_steer_tir(qp))
		return EINVAL;
	place(&flow);
	if (flow.steer.action == VHCA_STEER_TO_TIR) {
		flow.steer.tir = vhca_steer_tir(qp);
		flow.steer.tir_holder = (struct vhca_object *)(void *)qp;
	}
	error = bind_counters(&flow) ?: vhca_steer_rule_create(request->context, &flow.steer, &rule) ?: vhca_adopt(request, rule, &resp.flow_handle);
	if (error)
		return error;
	vhca_note(" qp 0x%x type %u priority %u specs %u", vhca_qp_number(qp), flow.type,
		flow.priority, flow.n_specs);
	return vhca_span_write(&request->out, &resp, sizeof(resp));
}

int vhca_destroy_flow(struct vhca_request *request)
{
	struct ib_uverbs_destroy_flow cmd;
	int error = vhca_span_read(&request->in, &cmd, sizeof(cmd));

	if (error)
		return error;
	return cmd.comp_mask
		? EINVAL
		: vhca_handle_destroy(request->context, cmd.flow_handle, VHCA_STEER_RULE);
}
