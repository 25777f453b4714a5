/* method_flow.c - the native methods of flow steering: counters, matchers, and mlx5dv's flows */
#include "uverbs.h"

#include "devx.h"
#include "trace.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

enum {
	MATCH_PARAMS = 512, /* bytes of all match parameters: ours are the first ones */
	MATCH_OUTER = 1,    /* criteria: outer headers are looked at */
	MAX_PRIORITY = 15,
	FLOW_TYPE_NORMAL = 0,
};

/* ---- counters ---- */

static int counters_create(struct vhca_call *call)
{
	struct vhca_counter_set *set;
	uint32_t handle;
	int error = vhca_counter_set_create(call->request.context, &set);

	if (error)
		return error;
	error = vhca_handle_add(call->request.context, set, &handle);
	if (error) {
		vhca_object_destroy(&set->object);
		return error;
	}
	return vhca_attr_return(call, 0, handle);
}

static int counters_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(
		call->request.context, vhca_attr_handle(call, 0), VHCA_COUNTER_SET);
}

/* They are never older than the frames themselves, whatever the flags ask. */
static int counters_read(struct vhca_call *call)
{
	const struct vhca_counter_set *set = vhca_handle_find(
		call->request.context, vhca_attr_handle(call, 0), VHCA_COUNTER_SET);
	uint64_t values[VHCA_MAX_COUNTERS] = {0};
	struct vhca_span out = vhca_attr_span(call, 1);

	if (!set)
		return ENOENT;
	if (vhca_attr_number(call, 2) & ~(uint64_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return EINVAL;
	if (!set->bound || out.size / sizeof(values[0]) < set->n_values)
		return EINVAL;
	for (uint32_t i = 0; i < set->n; i++)
		values[set->what[i].index] +=
			set->what[i].bytes ? set->tally.bytes : set->tally.packets;
	return vhca_span_write(&out, values, sizeof(values));
}

/* ---- matchers ---- */

/* Match parameters of the program's: what lies behind the outer headers must not matter. */
static int read_match(
	const struct vhca_call *call, unsigned int spec, bool mask, struct vhca_match *match)
{
	uint8_t params[MATCH_PARAMS];
	struct vhca_span span = vhca_attr_span(call, spec);
	int error = vhca_span_read(&span, params, sizeof(params));

	if (error)
		return error == EOPNOTSUPP ? EINVAL : error;
	memcpy(match, params, sizeof(*match));
	for (size_t i = sizeof(*match); mask && i < sizeof(params); i++)
		if (params[i])
			return EOPNOTSUPP;
	return 0;
}

enum { MATCHER_HANDLE, MATCHER_MASK, MATCHER_CRITERIA, MATCHER_TYPE, MATCHER_FLAGS, MATCHER_TABLE };

static int matcher_create(struct vhca_call *call)
{
	struct vhca_match mask;
	struct vhca_matcher *matcher;
	uint64_t criteria = vhca_attr_number(call, MATCHER_CRITERIA);
	uint64_t priority = vhca_attr_number(call, MATCHER_TYPE);
	uint32_t handle;
	int error;

	/* tables of what is sent, of a switch and of RDMA are other hardware's */
	if (vhca_attr_number(call, MATCHER_FLAGS) ||
		vhca_attr_number(call, MATCHER_TABLE) != MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX ||
		vhca_attr_element(call, MATCHER_TYPE) != FLOW_TYPE_NORMAL)
		return EOPNOTSUPP;
	if (criteria & ~(uint64_t)MATCH_OUTER)
		return EOPNOTSUPP;
	if (priority > MAX_PRIORITY)
		return EINVAL;
	error = read_match(call, MATCHER_MASK, true, &mask)
		?: vhca_matcher_create(call->request.context, &mask, (uint8_t)criteria,
			   (uint16_t)priority, &matcher);
	if (error)
		return error;
	error = vhca_handle_add(call->request.context, matcher, &handle);
	if (error) {
		vhca_object_destroy(&matcher->object);
		return error;
	}
	return vhca_attr_return(call, MATCHER_HANDLE, handle);
}

static int matcher_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(call->request.context, vhca_attr_handle(call, 0), VHCA_MATCHER);
}

/* ---- flows of mlx5dv ---- */

enum {
	FLOW_HANDLE,
	FLOW_VALUE,
	FLOW_QP,
	FLOW_MATCHER,
	FLOW_DEVX,
	FLOW_ACTIONS,
	FLOW_TAG,
	FLOW_COUNTERS,
	FLOW_COUNTER_OFFSET,
	FLOW_FLAGS,
};

static bool is_multicast_only(const struct vhca_match *value, const struct vhca_match *mask)
{
	return value->bytes[VHCA_AT_DMAC] & mask->bytes[VHCA_AT_DMAC] & 1;
}

static int find_destination(struct vhca_call *call, struct vhca_steer_attr *attr)
{
	struct vhca_context *context = call->request.context;
	struct vhca_devx *devx;

	if (vhca_attr_given(call, FLOW_QP)) {
		struct vhca_qp *qp =
			vhca_handle_find(context, vhca_attr_handle(call, FLOW_QP), VHCA_QP);

		if (!qp || !vhca_steer_tir(qp))
			return EINVAL;
		attr->tir = vhca_steer_tir(qp);
		attr->tir_holder = (struct vhca_object *)(void *)qp;
		return 0;
	}
	devx = vhca_handle_find(context, vhca_attr_handle(call, FLOW_DEVX), VHCA_DEVX);
	attr->tir = devx ? vhca_devx_tir(devx, &attr->tir_holder) : NULL;
	return attr->tir ? 0 : EINVAL;
}

/* One destination, or one of the two things that a frame without a destination meets with. */
static int read_action(struct vhca_call *call, struct vhca_steer_attr *attr)
{
	bool leads = vhca_attr_given(call, FLOW_QP) || vhca_attr_given(call, FLOW_DEVX);

	if (vhca_attr_given(call, FLOW_QP) && vhca_attr_given(call, FLOW_DEVX))
		return EINVAL;
	switch (vhca_attr_number(call, FLOW_FLAGS)) {
	case 0:
		attr->action = VHCA_STEER_TO_TIR;
		return leads ? find_destination(call, attr) : EINVAL;
	case MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP: attr->action = VHCA_STEER_DROP; break;
	case MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS: attr->action = VHCA_STEER_TO_HOST; break;
	default: return EINVAL;
	}
	return leads ? EINVAL : 0;
}

static int read_tag(const struct vhca_call *call, struct vhca_steer_attr *attr)
{
	uint64_t tag = vhca_attr_number(call, FLOW_TAG);

	attr->tagged = vhca_attr_given(call, FLOW_TAG);
	attr->tag = (uint32_t)tag;
	return tag > VHCA_MAX_TAG ? EINVAL : 0;
}

static int read_counters(struct vhca_call *call, struct vhca_steer_attr *attr)
{
	struct vhca_span span = vhca_attr_span(call, FLOW_COUNTERS);
	uint32_t handle, offset = 0;
	struct vhca_devx *devx;
	int error;

	if (!span.present)
		return 0;
	if (span.size != sizeof(handle))
		return EINVAL;
	error = vhca_span_read(&span, &handle, sizeof(handle))
		?: vhca_attr_read(call, FLOW_COUNTER_OFFSET, &offset, sizeof(offset));
	if (error)
		return error;
	devx = vhca_handle_find(call->request.context, handle, VHCA_DEVX);
	attr->tally = devx ? vhca_devx_tally(devx, offset, &attr->tally_holder) : NULL;
	return attr->tally ? 0 : EINVAL;
}

static int flow_create(struct vhca_call *call)
{
	struct vhca_context *context = call->request.context;
	const struct vhca_matcher *matcher =
		vhca_handle_find(context, vhca_attr_handle(call, FLOW_MATCHER), VHCA_MATCHER);
	struct vhca_steer_attr attr = {.dont_trap = false};
	struct vhca_steer_rule *rule;
	uint32_t handle;
	int error;

	if (!matcher)
		return ENOENT;
	if (vhca_attr_given(call, FLOW_ACTIONS)) /* no action can have been made */
		return EINVAL;
	error = read_match(call, FLOW_VALUE, false, &attr.value) ?: read_action(call, &attr) ?: read_tag(call, &attr) ?: read_counters(call, &attr);
	if (error)
		return error;
	if (matcher->criteria)
		attr.mask = matcher->mask;
	attr.priority = matcher->priority;
	attr.class = is_multicast_only(&attr.value, &attr.mask) ? VHCA_STEER_MULTICAST
								: VHCA_STEER_NORMAL;
	error = vhca_steer_rule_create(context, &attr, &rule);
	if (error)
		return error;
	error = vhca_handle_add(context, rule, &handle);
	if (error) {
		vhca_object_destroy((struct vhca_object *)(void *)rule);
		return error;
	}
	vhca_note(" priority %u action %u tag 0x%x", attr.priority, attr.action, attr.tag);
	return vhca_attr_return(call, FLOW_HANDLE, handle);
}

static int flow_destroy(struct vhca_call *call)
{
	return vhca_handle_destroy(
		call->request.context, vhca_attr_handle(call, 0), VHCA_STEER_RULE);
}

const struct vhca_method vhca_flow_methods[] = {
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, counters_create,
		{{UVERBS_ATTR_CREATE_COUNTERS_HANDLE, ATTR_NEW, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, counters_destroy,
		{{UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, counters_read,
		{{UVERBS_ATTR_READ_COUNTERS_HANDLE, ATTR_HANDLE, REQUIRED, 0},
			{UVERBS_ATTR_READ_COUNTERS_BUFF, ATTR_OUT, REQUIRED, 0},
			{UVERBS_ATTR_READ_COUNTERS_FLAGS, ATTR_IN, OPTIONAL, 4}},
		3},
	{MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, matcher_create,
		{{MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, ATTR_NEW, REQUIRED, 0},
			{MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, ATTR_IN, REQUIRED, 1},
			{MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, ATTR_IN, REQUIRED, 1},
			{MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, ATTR_IN, REQUIRED, 0},
			{MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, ATTR_IN, OPTIONAL, 1}},
		6},
	{MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, matcher_destroy,
		{{MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
	{UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, flow_create,
		{{MLX5_IB_ATTR_CREATE_FLOW_HANDLE, ATTR_NEW, REQUIRED, 0},
			{MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, ATTR_IN, REQUIRED, 1},
			{MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, ATTR_HANDLE, OPTIONAL, 0},
			{MLX5_IB_ATTR_CREATE_FLOW_MATCHER, ATTR_HANDLE, REQUIRED, 0},
			{MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, ATTR_HANDLE, OPTIONAL, 0},
			{MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_CREATE_FLOW_TAG, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, ATTR_IN, OPTIONAL, 4},
			{MLX5_IB_ATTR_CREATE_FLOW_FLAGS, ATTR_IN, OPTIONAL, 4}},
		10},
	{UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, flow_destroy,
		{{MLX5_IB_ATTR_DESTROY_FLOW_HANDLE, ATTR_HANDLE, REQUIRED, 0}}, 1},
};

const size_t vhca_n_flow_methods = ARRAY_SIZE(vhca_flow_methods);
