/* rx_rule.c - rules of an rx group: checked, kept while the group is not built, handed to its driver */

#include "port/port.h"

#include <stdlib.h>

/* ---- what a rule may say ---- */

static bool is_zero(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	while (n && !*at)
		at++, n--;
	return !n;
}

static bool matches_nothing(const struct vbn_rx_rule *rule)
{
	return is_zero(rule->dst_mac_mask, 6) && is_zero(rule->src_mac_mask, 6) &&
		!rule->ethertype && !rule->vlan.set && !rule->ip_version && !rule->src_prefix &&
		!rule->dst_prefix && !rule->protocol.set && !rule->src_port.set &&
		!rule->dst_port.set;
}

static int refuse(const char *why)
{
	return fail(EINVAL, "rule cannot be added: %s", why);
}

static int check_ip(const struct vbn_rx_rule *rule)
{
	const uint8_t longest = rule->ip_version == 4 ? 32 : 128;
	const uint16_t ethertype = rule->ip_version == 4 ? 0x0800 : 0x86dd;
	const bool ports = rule->src_port.set || rule->dst_port.set;

	if (rule->ip_version && rule->ip_version != 4 && rule->ip_version != 6)
		return refuse("ip_version must be 4 or 6, or 0 for any packet");
	if (!rule->ip_version && (rule->src_prefix || rule->dst_prefix || rule->protocol.set))
		return refuse("it names an address or a protocol and no ip_version: say 4 or 6");
	if (rule->ip_version && rule->ethertype && rule->ethertype != ethertype)
		return refuse("its ethertype is not that of its ip_version: leave it 0");
	if (rule->src_prefix > longest || rule->dst_prefix > longest)
		return refuse("a prefix is longer than the address: 0 to 32 bits, or 128 of IPv6");
	if (ports &&
		(!rule->protocol.set || (rule->protocol.value != 6 && rule->protocol.value != 17)))
		return refuse("it names a port and not its protocol: say 6 for TCP or 17 for UDP");
	if (rule->protocol.set && rule->protocol.value > 255)
		return refuse("protocol must be 0 to 255");
	if ((rule->src_port.set && rule->src_port.value > 65535) ||
		(rule->dst_port.set && rule->dst_port.value > 65535))
		return refuse("a port must be 0 to 65535");
	return 0;
}

static int check(const struct vbn_rx_rule *rule)
{
	if (rule->kind > VBN_RULE_MATCH || rule->action > VBN_RULE_DROP)
		return refuse("its kind or action is none that rx_group.h names");
	if (rule->mark > 0xffffff)
		return refuse("mark must be 1 to 0xffffff, or 0 for none");
	if (rule->mark && rule->action == VBN_RULE_DROP)
		return refuse("it drops what it would mark: leave mark 0");
	if (rule->kind != VBN_RULE_MATCH && !matches_nothing(rule))
		return refuse("it takes everything and matches something: take VBN_RULE_MATCH");
	if (rule->vlan.set && rule->vlan.value > 4095)
		return refuse("vlan must be 0 to 4095");
	return check_ip(rule);
}

static int check_owned(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule)
{
	if (rule->kind == VBN_RULE_EVERYTHING && rule->action == VBN_RULE_TAKE && !rule->mark)
		return 0;
	return fail(EOPNOTSUPP,
		"rule cannot be added: port %s has its interface or file to itself and gets everything: take VBN_RULE_EVERYTHING, and tell packets apart in the program",
		group->port->info.name);
}

static int check_for(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule)
{
	const struct driver *driver = group->port->driver;
	int ret = check(rule);

	if (!ret && driver->owns_interface)
		ret = check_owned(group, rule);
	if (!ret && driver->rule_check)
		ret = driver->rule_check(group, rule);
	return ret;
}

/* ---- of a group that is built ---- */

static int apply(struct vbn_rx_group *group, struct rx_rule *rule)
{
	const struct driver *driver = group->port->driver;

	return group->built && driver->rule_add ? driver->rule_add(group, rule) : 0;
}

static int count(const struct vbn_rx_group *group, const struct rx_rule *rule, uint64_t *packets,
	uint64_t *bytes)
{
	const struct driver *driver = group->port->driver;
	uint64_t more_packets = 0, more_bytes = 0;
	int ret = 0;

	if (!driver->rule_count)
		return -EOPNOTSUPP;
	if (group->built)
		ret = driver->rule_count(group, rule, &more_packets, &more_bytes);
	*packets = rule->packets + more_packets;
	*bytes = rule->bytes + more_bytes;
	return ret;
}

/* What it has counted stays with the rule. */
static void withdraw(struct vbn_rx_group *group, struct rx_rule *rule)
{
	const struct driver *driver = group->port->driver;

	if (!group->built || !driver->rule_remove)
		return;
	count(group, rule, &rule->packets, &rule->bytes);
	driver->rule_remove(group, rule);
}

/* All of them, or none. */
int vbn__rx_rules_apply(struct vbn_rx_group *group)
{
	for (struct rx_rule *rule = group->rules; rule; rule = rule->next) {
		int ret = apply(group, rule);

		if (!ret)
			continue;
		for (struct rx_rule *done = group->rules; done != rule; done = done->next)
			withdraw(group, done);
		return ret;
	}
	return 0;
}

void vbn__rx_rules_withdraw(struct vbn_rx_group *group)
{
	for (struct rx_rule *rule = group->rules; rule; rule = rule->next)
		withdraw(group, rule);
}

void vbn__rx_rules_free(struct vbn_rx_group *group)
{
	while (group->rules) {
		struct rx_rule *rule = group->rules;

		group->rules = rule->next;
		free(rule);
	}
}

/* ---- add, remove, count ---- */

struct rule_call {
	struct vbn_rx_group *group;
	const struct vbn_rx_rule *rule;
	uint32_t id;
	uint64_t packets, bytes;
};

/* The link that points to the rule, or to NULL at the end. */
static struct rx_rule **find(struct vbn_rx_group *group, uint32_t id)
{
	struct rx_rule **at = &group->rules;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static int add_call(void *arg)
{
	struct rule_call *call = arg;
	struct vbn_rx_group *group = call->group;
	struct rx_rule *rule;
	int ret = check_for(group, call->rule);

	if (ret)
		return ret;
	rule = calloc(1, sizeof(*rule));
	if (!rule)
		return -ENOMEM;
	rule->rule = *call->rule;
	rule->id = group->last_id + 1;
	ret = apply(group, rule);
	if (ret) {
		free(rule);
		return ret;
	}
	call->id = ++group->last_id;
	*find(group, 0) = rule;
	return 0;
}

static int remove_call(void *arg)
{
	struct rule_call *call = arg;
	struct rx_rule **at = find(call->group, call->id), *rule = *at;

	if (!rule)
		return -ENOENT;
	withdraw(call->group, rule);
	*at = rule->next;
	free(rule);
	return 0;
}

static int count_call(void *arg)
{
	struct rule_call *call = arg;
	struct rx_rule *rule = *find(call->group, call->id);

	return rule ? count(call->group, rule, &call->packets, &call->bytes) : -ENOENT;
}

VBN_API int vbn_rx_rule_add(
	struct vbn_rx_group *group, const struct vbn_rx_rule *rule, uint32_t *id)
{
	struct rule_call call = {.group = group, .rule = rule};
	int ret = vbn__control_call(-1, add_call, &call);

	if (!ret && id)
		*id = call.id;
	return ret;
}

VBN_API int vbn_rx_rule_remove(struct vbn_rx_group *group, uint32_t id)
{
	return vbn__control_call(-1, remove_call, &(struct rule_call){.group = group, .id = id});
}

VBN_API int vbn_rx_rule_count(
	const struct vbn_rx_group *group, uint32_t id, uint64_t *packets, uint64_t *bytes)
{
	struct rule_call call = {.group = (struct vbn_rx_group *)(uintptr_t)group, .id = id};
	int ret = vbn__control_call(-1, count_call, &call);

	if (!ret && packets)
		*packets = call.packets;
	if (!ret && bytes)
		*bytes = call.bytes;
	return ret;
}
