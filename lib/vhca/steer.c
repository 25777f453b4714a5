/* steer.c - flow steering: rules in their order, what a frame is compared by, and where it goes */

#include "vhca/steer.h"

#include "vhca/raw.h"

#include <stdlib.h>

struct vhca_steer_rule {
	struct vhca_object object;
	struct vhca_link in_steering; /* in tables->steering, in their order */
	struct vhca_steer_attr attr;
};

/* ---- what of a frame is compared ---- */

static void key_tag(const struct vhca_frame *frame, struct vhca_match *key, uint16_t *flags)
{
	if (!frame->n_tags)
		return;
	vhca_match_put(key, VHCA_AT_TAG, frame->tag[0]);
	*flags |= frame->tag_type[0] == 0x8100 ? VHCA_MATCH_CVLAN : VHCA_MATCH_SVLAN;
}

static void key_ip(const struct vhca_frame *frame, struct vhca_match *key, uint16_t *flags)
{
	const uint8_t *ip = frame->bytes + frame->l3_at;
	uint32_t room = frame->size - frame->l3_at;

	if (frame->l3 == VHCA_L3_NONE)
		return;
	key->bytes[VHCA_AT_PROTOCOL] = frame->protocol;
	key->bytes[VHCA_AT_TOS] = frame->tos;
	key->bytes[VHCA_AT_TTL] = frame->ttl;
	*flags |= frame->fragment ? VHCA_MATCH_FRAGMENT : 0;
	if (frame->l3 == VHCA_L3_IPV4 && room >= 20) {
		*flags |= 4u << VHCA_MATCH_IP_VERSION;
		memcpy(key->bytes + VHCA_AT_SOURCE + 12, ip + 12, 4);
		memcpy(key->bytes + VHCA_AT_DEST + 12, ip + 16, 4);
	} else if (frame->l3 == VHCA_L3_IPV6 && room >= 40) {
		*flags |= 6u << VHCA_MATCH_IP_VERSION;
		memcpy(key->bytes + VHCA_AT_SOURCE, ip + 8, 16);
		memcpy(key->bytes + VHCA_AT_DEST, ip + 24, 16);
	}
}

static void key_ports(const struct vhca_frame *frame, struct vhca_match *key, uint16_t *flags)
{
	bool udp = frame->l4 == VHCA_L4_UDP;
	enum vhca_match_at at = udp ? VHCA_AT_UDP : VHCA_AT_TCP;

	if (frame->l4 == VHCA_L4_NONE)
		return;
	*flags |= udp ? 0 : frame->tcp_flags;
	vhca_match_put(key, at, frame->source_port);
	vhca_match_put(key, at + 2, frame->dest_port);
}

void vhca_steer_key(const struct vhca_frame *frame, struct vhca_match *key)
{
	uint16_t flags = 0;

	memset(key, 0, sizeof(*key));
	memcpy(key->bytes + VHCA_AT_DMAC, frame->bytes, 6);
	memcpy(key->bytes + VHCA_AT_SMAC, frame->bytes + 6, 6);
	vhca_match_put(key, VHCA_AT_TYPE, frame->type);
	key_tag(frame, key, &flags);
	key_ip(frame, key, &flags);
	key_ports(frame, key, &flags);
	vhca_match_put(key, VHCA_AT_FLAGS, flags);
}

/* ---- rules ---- */

/* All but reserved bits, an IPv4 header's length and the checks of checksums. */
static const struct vhca_match comparable = {
	.bytes = {[0 ... 23] = 0xff, [VHCA_AT_TTL... VHCA_MATCH_BYTES - 1] = 0xff},
};

static bool mask_is_known(const struct vhca_match *mask)
{
	for (size_t i = 0; i < ARRAY_SIZE(mask->words); i++)
		if (mask->words[i] & ~comparable.words[i])
			return false;
	return true;
}

static bool fits(const struct vhca_steer_attr *attr, const struct vhca_match *key)
{
	uint64_t differs = 0;

	for (size_t i = 0; i < ARRAY_SIZE(key->words); i++)
		differs |= (key->words[i] ^ attr->value.words[i]) & attr->mask.words[i];
	return !differs;
}

static bool same_place(const struct vhca_steer_attr *a, const struct vhca_steer_attr *b)
{
	return a->class == b->class && a->priority == b->priority;
}

static bool same_entry(const struct vhca_steer_attr *a, const struct vhca_steer_attr *b)
{
	return same_place(a, b) && !memcmp(&a->mask, &b->mask, sizeof(a->mask)) &&
		!memcmp(&a->value, &b->value, sizeof(a->value));
}

/* An entry has one action and one tag, and any number of destinations. */
static bool contradicts(const struct vhca_steer_attr *a, const struct vhca_steer_attr *b)
{
	return a->action != b->action || a->tagged != b->tagged || a->tag != b->tag;
}

static bool comes_before(const struct vhca_steer_attr *a, const struct vhca_steer_attr *b)
{
	return a->class != b->class ? a->class < b->class : a->priority < b->priority;
}

static struct vhca_steer_rule *rule_of(struct vhca_link *link)
{
	return container_of(link, struct vhca_steer_rule, in_steering);
}

static bool is_refused(const struct vhca_tables *tables, const struct vhca_steer_attr *attr)
{
	const struct vhca_link *head = &tables->steering;

	for (struct vhca_link *link = head->next; link != head; link = link->next)
		if (same_entry(&rule_of(link)->attr, attr) &&
			contradicts(&rule_of(link)->attr, attr))
			return true;
	return false;
}

/* Behind all that do not come after it. */
static void rule_insert(struct vhca_tables *tables, struct vhca_steer_rule *rule)
{
	struct vhca_link *at = tables->steering.next;

	while (at != &tables->steering && !comes_before(&rule->attr, &rule_of(at)->attr))
		at = at->next;
	vhca_list_add(at, &rule->in_steering);
}

int vhca_steer_rule_create(struct vhca_context *context, const struct vhca_steer_attr *attr,
	struct vhca_steer_rule **result)
{
	struct vhca_tables *tables = context->device->tables;
	struct vhca_steer_rule *rule;

	if (!mask_is_known(&attr->mask))
		return EOPNOTSUPP;
	rule = vhca_object_new(context, VHCA_STEER_RULE, sizeof(*rule));
	if (!rule)
		return ENOMEM;
	rule->attr = *attr;
	for (size_t i = 0; i < ARRAY_SIZE(attr->mask.words); i++)
		rule->attr.value.words[i] &= attr->mask.words[i];
	if (is_refused(tables, &rule->attr)) {
		free(rule);
		return EEXIST;
	}
	if (rule->attr.tir_holder)
		rule->attr.tir_holder->refs++;
	if (rule->attr.tally_holder)
		rule->attr.tally_holder->refs++;
	rule_insert(tables, rule);
	vhca_object_link(&rule->object);
	*result = rule;
	return 0;
}

void vhca_steer_rule_destroy(struct vhca_steer_rule *rule)
{
	vhca_list_remove(&rule->in_steering);
	if (rule->attr.tir_holder)
		rule->attr.tir_holder->refs--;
	if (rule->attr.tally_holder)
		rule->attr.tally_holder->refs--;
	vhca_object_free(&rule->object);
}

void vhca_steer_each(const struct vhca_device *device,
	void (*each)(void *arg, const struct vhca_steer_attr *attr), void *arg)
{
	const struct vhca_link *head = &device->tables->steering;

	for (struct vhca_link *link = head->next; link != head; link = link->next)
		each(arg, &rule_of(link)->attr);
}

struct vhca_tir *vhca_steer_tir(struct vhca_qp *qp)
{
	return qp->tir;
}

/* ---- where a frame goes ---- */

static void count_frame(struct vhca_tally *tally, const struct vhca_frame *frame)
{
	if (!tally)
		return;
	tally->packets++;
	tally->bytes += frame->size;
}

static void take(const struct vhca_steer_attr *attr, const struct vhca_frame *frame,
	struct vhca_steered *steered)
{
	count_frame(attr->tally, frame);
	if (attr->action == VHCA_STEER_DROP && !steered->n)
		steered->dropped = true;
	if (attr->action != VHCA_STEER_TO_TIR || steered->n == VHCA_MAX_STEERED)
		return;
	steered->to[steered->n].tir = attr->tir;
	steered->to[steered->n].flow_tag = attr->tagged ? attr->tag : 0;
	steered->n++;
}

void vhca_steer(
	struct vhca_device *device, const struct vhca_frame *frame, struct vhca_steered *steered)
{
	const struct vhca_link *head = &device->tables->steering;
	const struct vhca_steer_attr *won = NULL;
	struct vhca_match key;

	steered->dropped = false;
	steered->n = 0;
	if (vhca_list_empty(head) || frame->size < VHCA_MIN_FRAME)
		return;
	vhca_steer_key(frame, &key);
	for (struct vhca_link *link = head->next; link != head; link = link->next) {
		const struct vhca_steer_attr *attr = &rule_of(link)->attr;

		if (won && !same_place(won, attr))
			break;
		if (!fits(attr, &key))
			continue;
		if (won && won->class != VHCA_STEER_REST && !same_entry(won, attr))
			continue;
		take(attr, frame, steered);
		if (!attr->dont_trap)
			won = attr;
	}
}

/* ---- counters and matchers: what commands keep for rules to come ---- */

int vhca_counter_set_create(struct vhca_context *context, struct vhca_counter_set **result)
{
	struct vhca_counter_set *set = vhca_object_new(context, VHCA_COUNTER_SET, sizeof(*set));

	if (!set)
		return ENOMEM;
	vhca_object_link(&set->object);
	*result = set;
	return 0;
}

int vhca_matcher_create(struct vhca_context *context, const struct vhca_match *mask,
	uint8_t criteria, uint16_t priority, struct vhca_matcher **result)
{
	struct vhca_matcher *matcher;

	if (!mask_is_known(mask))
		return EOPNOTSUPP;
	matcher = vhca_object_new(context, VHCA_MATCHER, sizeof(*matcher));
	if (!matcher)
		return ENOMEM;
	matcher->mask = *mask;
	matcher->criteria = criteria;
	matcher->priority = priority;
	vhca_object_link(&matcher->object);
	*result = matcher;
	return 0;
}
