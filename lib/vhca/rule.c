/* rule.c - how a broken rule is told */

#include "vhca/device.h"

#include <stdio.h>
#include <stdlib.h>

enum { REPORTS_PER_QP = 3 };

struct rule {
	const char *name;
	enum vhca_rule_class class;
	const char *sentence;
	const char *source; /* where the rule is written */
};

static const struct rule rules[VHCA_N_RULES] = {
#define VHCA_RULE_ROW(id_, ...) [VHCA_RULE_##id_] = {__VA_ARGS__},
	VHCA_RULES(VHCA_RULE_ROW)
#undef VHCA_RULE_ROW
};

static uint64_t n_breaches[VHCA_N_RULES];

uint64_t vhca_rule_breaches(enum vhca_rule rule, const char **name)
{
	*name = rules[rule].name;
	return load_once(&n_breaches[rule]);
}

/* What hardware lets pass is worth one sentence in a process. */
static bool limit_reached(struct vhca_qp *qp, enum vhca_rule rule)
{
	static uint8_t without_qp[VHCA_N_RULES];
	bool soft = rules[rule].class == VHCA_SOFT;
	uint8_t *n = qp && !soft ? &qp->reports[rule] : &without_qp[rule];

	if (*n == (soft ? 1 : REPORTS_PER_QP))
		return true;
	++*n;
	return false;
}

static cold void say(const struct rule *broken, const struct vhca_qp *qp, uint32_t index,
	const char *field, uint64_t found, uint64_t wanted)
{
	char due[48] = "", who[48] = "";

	if (wanted != VHCA_ANOTHER)
		snprintf(due, sizeof(due), " where 0x%llx was due", (unsigned long long)wanted);
	if (qp)
		snprintf(who, sizeof(who), " by %s 0x%x of %s",
			qp->object.kind == VHCA_WQ ? "WQ" : "QP", qp->number,
			qp->object.context->device->name);
	vbn__log(broken->class == VHCA_SOFT ? LOG_NOTICE : LOG_ERROR,
		"vhca: rule %s broken%s at index %u: %s is 0x%llx%s; %s (%s)", broken->name, who,
		index, field, (unsigned long long)found, due, broken->sentence, broken->source);
}

bool vhca_rule_report(enum vhca_rule rule, struct vhca_qp *qp, uint32_t index, const char *field,
	uint64_t found, uint64_t wanted)
{
	const struct rule *broken = &rules[rule];
	enum vhca_strict strict = vhca_options()->strict;
	bool stops = strict == VHCA_ABORT && broken->class != VHCA_SOFT;

	__atomic_fetch_add(&n_breaches[rule], 1, __ATOMIC_RELAXED);
	if (!limit_reached(qp, rule) || stops)
		say(broken, qp, index, field, found, wanted);
	if (stops) {
		log_error("vhca: the process ends here because VHCA_STRICT is abort");
		abort();
	}
	return strict == VHCA_ERROR && broken->class == VHCA_UNDEFINED;
}
