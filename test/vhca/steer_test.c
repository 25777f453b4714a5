/* steer_test.c - flow rules by verbs' specs and by mlx5dv's matchers: what fits, in which order, what
 * becomes of it, what is refused; DevX objects beside them; and the end of all that on a dead device
 */

#include "../unit/vhca_ask.h"
#include "raw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const uint8_t unicast[6] = {2, 0, 10, 9, 8, 7};

/* ---- rules ---- */

struct flow {
	struct ibv_flow_attr attr;
	uint8_t specs[512];
};

static struct flow flow_of(enum ibv_flow_attr_type type, uint16_t priority)
{
	return (struct flow){.attr = {.type = type,
				     .size = sizeof(struct ibv_flow_attr),
				     .priority = priority,
				     .port = 1}};
}

static void add_spec(struct flow *flow, const void *spec, size_t size)
{
	memcpy((uint8_t *)flow + flow->attr.size, spec, size);
	flow->attr.size = (uint16_t)(flow->attr.size + size);
	flow->attr.num_of_specs++;
}

static void add_mac(struct flow *flow, const uint8_t mac[6])
{
	struct ibv_flow_spec_eth spec = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(spec)};

	memcpy(spec.val.dst_mac, mac, 6);
	memset(spec.mask.dst_mac, 0xff, 6);
	add_spec(flow, &spec, sizeof(spec));
}

static void add_type(struct flow *flow, uint16_t type)
{
	struct ibv_flow_spec_eth spec = {.type = IBV_FLOW_SPEC_ETH,
		.size = sizeof(spec),
		.val.ether_type = __builtin_bswap16(type),
		.mask.ether_type = 0xffff};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_vlan(struct flow *flow, uint16_t vlan)
{
	struct ibv_flow_spec_eth spec = {.type = IBV_FLOW_SPEC_ETH,
		.size = sizeof(spec),
		.val.vlan_tag = __builtin_bswap16(vlan),
		.mask.vlan_tag = __builtin_bswap16(0xfff)};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_ipv4(struct flow *flow)
{
	struct ibv_flow_spec_ipv4 spec = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(spec)};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_ipv6(struct flow *flow)
{
	struct ibv_flow_spec_ipv6 spec = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(spec)};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_port(struct flow *flow, enum ibv_flow_spec_type type, uint16_t port)
{
	struct ibv_flow_spec_tcp_udp spec = {.type = type,
		.size = sizeof(spec),
		.val.dst_port = __builtin_bswap16(port),
		.mask.dst_port = 0xffff};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_tag(struct flow *flow, uint32_t tag)
{
	struct ibv_flow_spec_action_tag spec = {
		.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(spec), .tag_id = tag};

	add_spec(flow, &spec, sizeof(spec));
}

static void add_drop(struct flow *flow)
{
	struct ibv_flow_spec_action_drop spec = {
		.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(spec)};

	add_spec(flow, &spec, sizeof(spec));
}

static struct ibv_flow *make(struct raw *raw, struct flow *flow)
{
	struct ibv_flow *made = ibv_create_flow(raw->side.qp, &flow->attr);

	assert_non_null(made);
	return made;
}

static void refused(struct raw *raw, struct flow *flow, int error)
{
	errno = 0;
	assert_null(ibv_create_flow(raw->side.qp, &flow->attr));
	assert_int_equal(errno, error);
}

static void open_plain(struct raw *raw)
{
	raw_open(raw, &(struct raw_conf){.receiver = RAW_QP, .no_flow = true});
}

/* Sends a frame to the port itself; the CQE of its receive, if there is one by then. */
static struct mlx5_cqe64 *exchange(
	struct raw *raw, const uint8_t *mac, const struct raw_frame *frame, int ms)
{
	uint32_t size = raw_make(raw_slot(raw, 0), frame);

	memcpy(raw_slot(raw, 0), mac, 6);
	raw_post_send(raw, 1, 0, size, 0);
	expect_wc(raw->side.send_cq, 1, IBV_WC_SUCCESS);
	return raw_poll(raw, ms);
}

/* It arrives; the flow tag of its CQE. */
static uint32_t comes(struct raw *raw, const uint8_t *mac, const struct raw_frame *frame)
{
	struct mlx5_cqe64 *cqe = exchange(raw, mac, frame, 10000);

	assert_non_null(cqe);
	assert_int_equal(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	return __builtin_bswap32(cqe->sop_drop_qpn) & 0xffffff;
}

static void stays_away(struct raw *raw, const uint8_t *mac, const struct raw_frame *frame)
{
	assert_null(exchange(raw, mac, frame, 10));
}

static void post(struct raw *raw, int n)
{
	for (int i = 0; i < n; i++)
		raw_post_recv(raw, 0, (uint64_t)i, 1, RAW_SLOT);
}

/* ---- what fits ---- */

static void fields(void **state)
{
	struct raw_frame udp7 = {.payload = 40, .dest_port = 7},
			 udp8 = {.payload = 40, .dest_port = 8};
	struct raw_frame tcp7 = {.payload = 40, .dest_port = 7, .tcp = true};
	struct raw_frame six7 = {.payload = 40, .dest_port = 7, .ipv6 = true};
	struct raw_frame tag5 = {.payload = 40, .dest_port = 7, .vlan = 5};
	struct raw_frame tag6 = {.payload = 40, .dest_port = 7, .vlan = 6};
	struct ibv_flow *rule;
	struct flow flow;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 32);

	stays_away(&raw, unicast, &udp7); /* there is no rule */

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_mac(&flow, unicast);
	rule = make(&raw, &flow);
	comes(&raw, unicast, &udp7);
	stays_away(&raw, raw_mac, &udp7);
	assert_int_equal(ibv_destroy_flow(rule), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_vlan(&flow, 5);
	rule = make(&raw, &flow);
	comes(&raw, unicast, &tag5);
	stays_away(&raw, unicast, &tag6);
	stays_away(&raw, unicast, &udp7);
	assert_int_equal(ibv_destroy_flow(rule), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_ipv4(&flow);
	add_port(&flow, IBV_FLOW_SPEC_UDP, 7);
	rule = make(&raw, &flow);
	comes(&raw, unicast, &udp7);
	comes(&raw, unicast, &tag5); /* a tag is no matter */
	stays_away(&raw, unicast, &udp8);
	stays_away(&raw, unicast, &tcp7);
	stays_away(&raw, unicast, &six7);
	assert_int_equal(ibv_destroy_flow(rule), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_ipv6(&flow);
	rule = make(&raw, &flow);
	comes(&raw, unicast, &six7);
	stays_away(&raw, unicast, &udp7);
	assert_int_equal(ibv_destroy_flow(rule), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_port(&flow, IBV_FLOW_SPEC_TCP, 7);
	rule = make(&raw, &flow);
	comes(&raw, unicast, &tcp7);
	stays_away(&raw, unicast, &udp7);
	assert_int_equal(ibv_destroy_flow(rule), 0);
	raw_close(&raw);
}

/* The lowest priority comes first, whenever it was made; what is dropped is not received. */
static void order(void **state)
{
	struct raw_frame frame = {.payload = 40, .dest_port = 7};
	struct ibv_flow *all, *dropped, *marked;
	struct flow flow;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 16);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 5);
	add_mac(&flow, unicast);
	all = make(&raw, &flow);
	assert_int_equal(comes(&raw, unicast, &frame), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 3);
	add_mac(&flow, unicast);
	add_tag(&flow, 0xabcdef);
	marked = make(&raw, &flow);
	assert_int_equal(comes(&raw, unicast, &frame), 0xabcdef);
	refused(&raw, &(struct flow){flow.attr, {0}}, EINVAL); /* specs of no size */

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 3); /* the same entry, which cannot do both */
	add_mac(&flow, unicast);
	add_drop(&flow);
	refused(&raw, &flow, EEXIST);

	flow.attr.priority = 1;
	dropped = make(&raw, &flow);
	stays_away(&raw, unicast, &frame);
	assert_int_equal(ibv_destroy_flow(dropped), 0);
	assert_int_equal(ibv_destroy_flow(marked), 0);
	assert_int_equal(comes(&raw, unicast, &frame), 0);

	assert_int_equal(ibv_destroy_qp(raw.side.qp), EBUSY); /* a rule leads to it */
	assert_int_equal(ibv_destroy_flow(all), 0);
	raw_close(&raw);
}

/* Promiscuous has all that no other rule has, all-multicast what is for many; both get a copy. */
static void the_rest(void **state)
{
	struct raw_frame frame = {.payload = 40, .dest_port = 7};
	struct ibv_flow *all, *multicast, *one;
	struct flow flow;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 16);
	flow = flow_of(IBV_FLOW_ATTR_MC_DEFAULT, 0);
	multicast = make(&raw, &flow);
	comes(&raw, raw_mac, &frame);
	stays_away(&raw, unicast, &frame);

	flow = flow_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	all = make(&raw, &flow);
	comes(&raw, unicast, &frame);
	raw_expect_quiet(&raw);
	comes(&raw, raw_mac, &frame);
	assert_non_null(raw_poll(&raw, 1000)); /* twice, as there are two */

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 15);
	add_mac(&flow, raw_mac);
	one = make(&raw, &flow);
	comes(&raw, raw_mac, &frame);
	raw_expect_quiet(&raw);
	assert_int_equal(ibv_destroy_flow(one), 0);
	assert_int_equal(ibv_destroy_flow(all), 0);
	assert_int_equal(ibv_destroy_flow(multicast), 0);
	raw_close(&raw);
}

static void counters(void **state)
{
	struct ibv_counters_init_attr none = {.comp_mask = 0};
	struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0};
	struct ibv_counter_attach_attr bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
	struct raw_frame frame = {.payload = 58, .dest_port = 7};
	struct ibv_flow_spec_counter_action count = {
		.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(count)};
	uint64_t values[2] = {9, 9};
	struct ibv_counters *set;
	struct ibv_flow *rule;
	struct flow flow;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 16);
	set = ibv_create_counters(raw.context, &none);
	assert_non_null(set);
	assert_int_equal(ibv_attach_counters_point_flow(set, &packets, NULL), 0);
	assert_int_equal(ibv_attach_counters_point_flow(set, &bytes, NULL), 0);
	count.counters = set;
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_mac(&flow, unicast);
	add_spec(&flow, &count, sizeof(count));
	rule = make(&raw, &flow);
	assert_int_equal(ibv_read_counters(set, values, 2, 0), 0);
	assert_int_equal(values[0], 0);
	for (int i = 0; i < 5; i++)
		comes(&raw, unicast, &frame);
	stays_away(&raw, raw_mac, &frame);
	assert_int_equal(ibv_read_counters(set, values, 2, 0), 0);
	assert_int_equal(values[0], 5);
	assert_int_equal(values[1], 5 * 100);
	assert_int_equal(ibv_destroy_counters(set), EBUSY);
	assert_int_equal(ibv_destroy_flow(rule), 0);
	assert_int_equal(ibv_destroy_counters(set), 0);
	raw_close(&raw);
}

static void what_is_refused(void **state)
{
	struct ibv_flow_spec_ipv4_ext ttl = {.type = IBV_FLOW_SPEC_IPV4_EXT,
		.size = sizeof(ttl),
		.val.ttl = 1,
		.mask.ttl = 0xff};
	struct ibv_flow_spec_ipv6 label = {
		.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(label), .mask.flow_label = 0xffff};
	struct ibv_flow_spec_tunnel tunnel = {
		.type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(tunnel)};
	struct flow flow;
	struct raw raw;
	struct pair pair;

	(void)state;
	open_plain(&raw);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 16);
	add_mac(&flow, unicast);
	refused(&raw, &flow, ENOMEM);
	flow.attr.priority = 0;
	flow.attr.port = 2;
	refused(&raw, &flow, EINVAL);
	flow.attr.port = 1;
	flow.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	refused(&raw, &flow, EOPNOTSUPP);
	flow.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	flow.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	refused(&raw, &flow, EINVAL);
	flow = flow_of(IBV_FLOW_ATTR_SNIFFER, 0);
	refused(&raw, &flow, EOPNOTSUPP);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_spec(&flow, &ttl, sizeof(ttl));
	refused(&raw, &flow, EOPNOTSUPP);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_spec(&flow, &label, sizeof(label));
	refused(&raw, &flow, EOPNOTSUPP);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_spec(&flow, &tunnel, sizeof(tunnel));
	refused(&raw, &flow, EOPNOTSUPP);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0); /* one IP's type, and another's header */
	add_type(&flow, 0x86dd);
	add_ipv4(&flow);
	refused(&raw, &flow, EINVAL);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0); /* two protocols */
	add_port(&flow, IBV_FLOW_SPEC_UDP, 7);
	add_port(&flow, IBV_FLOW_SPEC_TCP, 7);
	refused(&raw, &flow, EINVAL);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	add_mac(&flow, unicast);
	add_tag(&flow, 1 << 24);
	refused(&raw, &flow, EINVAL);
	raw_close(&raw);

	pair_open(&pair, &(struct pair_conf){.device = 0}); /* of no raw frames */
	flow = flow_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	errno = 0;
	assert_null(ibv_create_flow(pair.a.qp, &flow.attr));
	assert_int_equal(errno, EINVAL);
	pair_close(&pair);
}

/* ---- mlx5dv's matchers ---- */

/* Match parameters of the PRM: the destination's MAC is 8 bytes in. */
struct match {
	size_t size;
	uint64_t words[64];
};

static struct match match_mac(const uint8_t mac[6])
{
	struct match match = {.size = sizeof(match.words)};

	memcpy((uint8_t *)match.words + 8, mac, 6);
	return match;
}

static struct mlx5dv_flow_matcher *make_matcher(
	struct raw *raw, struct match *mask, uint8_t criteria)
{
	struct mlx5dv_flow_matcher_attr attr = {.type = IBV_FLOW_ATTR_NORMAL,
		.priority = 2,
		.match_criteria_enable = criteria,
		.match_mask = (struct mlx5dv_flow_match_parameters *)(void *)mask};

	return mlx5dv_create_flow_matcher(raw->context, &attr);
}

static struct ibv_flow *dv_flow(struct mlx5dv_flow_matcher *matcher, struct match *value, size_t n,
	struct mlx5dv_flow_action_attr *actions)
{
	return mlx5dv_create_flow(
		matcher, (struct mlx5dv_flow_match_parameters *)(void *)value, n, actions);
}

static void matchers(void **state)
{
	static const uint8_t ones[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	struct match mask = match_mac(ones), value = match_mac(unicast), odd = mask;
	struct raw_frame frame = {.payload = 40, .dest_port = 7};
	struct mlx5dv_flow_action_attr actions[2], drop = {.type = MLX5DV_FLOW_ACTION_DROP};
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *rule;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 16);
	errno = 0;
	assert_null(make_matcher(&raw, &mask, 2)); /* what is not outer headers' */
	assert_int_equal(errno, EOPNOTSUPP);
	odd.words[8] = 1;
	assert_null(make_matcher(&raw, &odd, 1));
	matcher = make_matcher(&raw, &mask, 1);
	assert_non_null(matcher);

	actions[0] = (struct mlx5dv_flow_action_attr){
		.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = raw.side.qp};
	actions[1] =
		(struct mlx5dv_flow_action_attr){.type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 4660};
	rule = dv_flow(matcher, &value, 2, actions);
	assert_non_null(rule);
	assert_int_equal(comes(&raw, unicast, &frame), 4660);
	stays_away(&raw, raw_mac, &frame);
	assert_null(dv_flow(matcher, &value, 1, &drop)); /* the same entry */
	assert_int_equal(errno, EEXIST);
	assert_int_equal(ibv_destroy_flow(rule), 0);

	rule = dv_flow(matcher, &value, 1, &drop);
	assert_non_null(rule);
	stays_away(&raw, unicast, &frame);
	assert_int_equal(ibv_destroy_flow(rule), 0);
	assert_null(dv_flow(matcher, &value, 0, NULL)); /* it leads nowhere */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mlx5dv_destroy_flow_matcher(matcher), 0);
	raw_close(&raw);
}

/* ---- DevX ---- */

enum { IN = 64, OUT = 1024 + 16 };

/* A command of the PRM: opcode in front, and words behind. */
static struct mlx5dv_devx_obj *devx_make(struct ibv_context *context, uint16_t opcode, uint8_t *out)
{
	uint8_t in[IN] = {(uint8_t)(opcode >> 8), (uint8_t)opcode};

	memset(out, 0, OUT);
	return mlx5dv_devx_obj_create(context, in, sizeof(in), out, OUT);
}

static void devx(void **state)
{
	static const uint8_t ones[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	struct match mask = match_mac(ones), value = match_mac(unicast);
	uint8_t in[IN] = {1, 0, [7] = 1}, out[OUT]; /* QUERY_HCA_CAP, general, current */
	uint8_t query[IN] = {0x09, 0x3b};
	struct raw_frame frame = {.payload = 58, .dest_port = 7};
	struct mlx5dv_flow_action_attr actions[2];
	struct mlx5dv_devx_obj *domain, *counter;
	struct mlx5dv_flow_matcher *matcher;
	struct mlx5dv_devx_umem *umem;
	struct ibv_flow *rule;
	uint32_t eqn;
	struct raw raw;

	(void)state;
	open_plain(&raw);
	post(&raw, 16);
	assert_int_equal(mlx5dv_devx_general_cmd(raw.context, in, sizeof(in), out, sizeof(out)), 0);
	assert_int_equal(out[16 + 540 / 8] >> 3 & 1, 1); /* eth_net_offloads */
	in[7] = 2 * 0x11;                                /* a capability that is not */
	assert_int_not_equal(
		mlx5dv_devx_general_cmd(raw.context, in, sizeof(in), out, sizeof(out)), 0);
	assert_int_equal(mlx5dv_devx_query_eqn(raw.context, 0, &eqn), 0);
	assert_int_not_equal(mlx5dv_devx_query_eqn(raw.context, 9999, &eqn), 0);

	domain = devx_make(raw.context, 0x816, out);
	assert_non_null(domain);
	assert_true(out[9] || out[10] || out[11]);
	assert_null(devx_make(raw.context, 0x400, out)); /* a CQ without memory */
	assert_null(devx_make(raw.context, 0x90c, out)); /* a receive memory pool */
	assert_int_equal(mlx5dv_devx_obj_destroy(domain), 0);

	umem = mlx5dv_devx_umem_reg(raw.context, raw_slot(&raw, 4), 4096, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(umem);
	assert_int_equal(mlx5dv_devx_umem_dereg(umem), 0);
	assert_null(mlx5dv_devx_umem_reg(raw.context, NULL, 4096, IBV_ACCESS_LOCAL_WRITE));

	counter = devx_make(raw.context, 0x939, out);
	assert_non_null(counter);
	memcpy(query + 28, out + 8, 4);
	matcher = make_matcher(&raw, &mask, 1);
	assert_non_null(matcher);
	actions[0] = (struct mlx5dv_flow_action_attr){
		.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = raw.side.qp};
	actions[1] = (struct mlx5dv_flow_action_attr){
		.type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter};
	rule = dv_flow(matcher, &value, 2, actions);
	assert_non_null(rule);
	for (int i = 0; i < 3; i++)
		comes(&raw, unicast, &frame);
	memset(out, 0, sizeof(out));
	assert_int_equal(mlx5dv_devx_obj_query(counter, query, sizeof(query), out, sizeof(out)), 0);
	assert_int_equal(out[16 + 7], 3);
	assert_int_equal(out[24 + 6] << 8 | out[24 + 7], 300);
	assert_int_equal(ibv_destroy_flow(rule), 0);
	assert_int_equal(mlx5dv_devx_obj_destroy(counter), 0);
	assert_int_equal(mlx5dv_destroy_flow_matcher(matcher), 0);
	raw_close(&raw);
}

/* ---- death ---- */

/* What takes away still works, whoever made it; what makes does not. The device stays
 * dead, so this is the last case. */
static void a_device_dies(void **state)
{
	static const uint8_t ones[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	struct ibv_counters_init_attr none = {.comp_mask = 0};
	struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS};
	struct ibv_flow_spec_counter_action count = {
		.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(count)};
	struct match mask = match_mac(ones), value = match_mac(unicast);
	struct flow flow = flow_of(IBV_FLOW_ATTR_NORMAL, 0);
	struct mlx5dv_flow_action_attr actions[2];
	struct mlx5dv_flow_matcher *matcher;
	struct mlx5dv_devx_obj *counter;
	struct mlx5dv_devx_umem *umem;
	struct ibv_flow *rule, *dv_rule;
	struct mlx5dv_devx_uar *uar;
	struct raw raw;
	uint8_t out[OUT];

	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .n_wqs = 2, .hash = RAW_ALL_HASH});
	count.counters = ibv_create_counters(raw.context, &none);
	assert_non_null(count.counters);
	assert_int_equal(ibv_attach_counters_point_flow(count.counters, &packets, NULL), 0);
	add_mac(&flow, raw_mac);
	add_spec(&flow, &count, sizeof(count));
	rule = ibv_create_flow(raw.hash_qp, &flow.attr);
	assert_non_null(rule);
	counter = devx_make(raw.context, 0x939, out);
	assert_non_null(counter);
	matcher = make_matcher(&raw, &mask, 1);
	assert_non_null(matcher);
	actions[0] = (struct mlx5dv_flow_action_attr){
		.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = raw.hash_qp};
	actions[1] = (struct mlx5dv_flow_action_attr){
		.type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter};
	dv_rule = dv_flow(matcher, &value, 2, actions);
	assert_non_null(dv_rule);
	umem = mlx5dv_devx_umem_reg(raw.context, raw_slot(&raw, 4), 4096, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(umem);
	uar = mlx5dv_devx_alloc_uar(raw.context, 0);
	assert_non_null(uar);

	vhca_tell("fatal mlx5_0");
	errno = 0;
	assert_null(ibv_create_flow(raw.hash_qp, &flow.attr));
	assert_int_equal(errno, EIO);
	assert_null(devx_make(raw.context, 0x939, out));
	assert_int_equal(errno, EIO);
	assert_int_equal(ibv_destroy_flow(dv_rule), 0);
	assert_int_equal(mlx5dv_destroy_flow_matcher(matcher), 0);
	assert_int_equal(mlx5dv_devx_obj_destroy(counter), 0);
	assert_int_equal(mlx5dv_devx_umem_dereg(umem), 0);
	mlx5dv_devx_free_uar(uar);
	assert_int_equal(ibv_destroy_flow(rule), 0);
	assert_int_equal(ibv_destroy_counters(count.counters), 0);
	raw_close(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields),
		cmocka_unit_test(order),
		cmocka_unit_test(the_rest),
		cmocka_unit_test(counters),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(matchers),
		cmocka_unit_test(devx),
		cmocka_unit_test(a_device_dies),
	};

	setenv("VHCA_WIRE", "loopback", 1);
	setenv("VHCA_DEVX", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
