/* rule.c - the device's contract with a program: its rules, and how a broken one is told */

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

/* clang-format off */
static const struct rule rules[VHCA_N_RULES] = {
	[VHCA_RULE_WQE_INDEX] = {"wqe-index", VHCA_REPORTED,
		"a send WQE carries the 16-bit count of WQEBBs written before it",
		"PRM, Control Segment, wqe_index"},
	[VHCA_RULE_WQE_QPN] = {"wqe-qpn", VHCA_REPORTED,
		"a send WQE carries the number of the QP in whose ring it lies",
		"PRM, Control Segment, qp_or_sq"},
	[VHCA_RULE_WQE_DS] = {"wqe-ds", VHCA_REPORTED,
		"a send WQE carries its size in units of 16 bytes, 1 to 63, and all of what its opcode needs",
		"PRM, Control Segment, ds"},
	[VHCA_RULE_WQE_OPCODE] = {"wqe-opcode", VHCA_REPORTED,
		"a send WQE carries an opcode that its QP's transport has",
		"PRM, Send WQE opcodes"},
	[VHCA_RULE_WQE_OPMOD] = {"wqe-opmod", VHCA_REPORTED,
		"the opcode modifier is 0 for opcodes without one",
		"PRM, Control Segment, opc_mod"},
	[VHCA_RULE_SEGMENT_END] = {"segment-end", VHCA_REPORTED,
		"every segment ends within the WQE",
		"PRM, Inline Data Segment"},
	[VHCA_RULE_SEGMENT_ZERO] = {"segment-zero", VHCA_REPORTED,
		"a data segment's byte count of 0 means 2 GiB: leave out a segment of no bytes",
		"PRM, Memory Pointer Data Segment, byte_count"},
	[VHCA_RULE_LKEY] = {"lkey", VHCA_REPORTED,
		"a data segment's lkey is of a registration of the QP's protection domain",
		"PRM, Memory Pointer Data Segment, l_key"},
	[VHCA_RULE_LKEY_BOUNDS] = {"lkey-bounds", VHCA_REPORTED,
		"a data segment lies within the registration of its lkey",
		"PRM, Memory Pointer Data Segment, address"},
	[VHCA_RULE_LKEY_ACCESS] = {"lkey-access", VHCA_REPORTED,
		"memory that the device writes is registered for local write",
		"IBA, Local Access"},
	[VHCA_RULE_MESSAGE_LENGTH] = {"message-length", VHCA_REPORTED,
		"a message is no longer than the port's max_msg_sz",
		"IBA, Message size"},
	[VHCA_RULE_RKEY] = {"rkey", VHCA_REPORTED,
		"a remote access carries the rkey of a registration of the responder's protection domain",
		"IBA, R_Key validation"},
	[VHCA_RULE_RKEY_BOUNDS] = {"rkey-bounds", VHCA_REPORTED,
		"a remote access lies within the registration of its rkey",
		"IBA, R_Key validation"},
	[VHCA_RULE_RKEY_ACCESS] = {"rkey-access", VHCA_REPORTED,
		"a remote access needs that right of the registration and of the responder's QP",
		"IBA, R_Key validation"},
	[VHCA_RULE_RECEIVE_LENGTH] = {"receive-length", VHCA_REPORTED,
		"a receive WQE has room for the message that consumes it",
		"IBA, Responder length validation"},
	[VHCA_RULE_SEND_RECORD] = {"send-record", VHCA_UNDEFINED,
		"the send record is big-endian, and at most a ring ahead of the WQEs that have completed",
		"PRM, Doorbell Record"},
	[VHCA_RULE_RECEIVE_RECORD] = {"receive-record", VHCA_UNDEFINED,
		"the receive record is big-endian, and at most a ring ahead of the WQEs that have been consumed",
		"PRM, Doorbell Record"},
	[VHCA_RULE_CQ_OVERRUN] = {"cq-overrun", VHCA_UNDEFINED,
		"a CQ has room for every CQE: the consumer index in its record says which slots are free",
		"PRM, CQ Overrun"},
};
/* clang-format on */

static uint64_t n_breaches[VHCA_N_RULES];

uint64_t vhca_rule_breaches(enum vhca_rule rule, const char **name)
{
	*name = rules[rule].name;
	return load_once(&n_breaches[rule]);
}

static bool limit_reached(struct vhca_qp *qp, enum vhca_rule rule)
{
	static uint8_t without_qp[VHCA_N_RULES];
	uint8_t *n = qp ? &qp->reports[rule] : &without_qp[rule];

	if (*n == REPORTS_PER_QP)
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
		snprintf(who, sizeof(who), " by QP 0x%x of %s", qp->number,
			qp->object.context->device->name);
	log_error("vhca: rule %s broken%s at index %u: %s is 0x%llx%s; %s (%s)", broken->name, who,
		index, field, (unsigned long long)found, due, broken->sentence, broken->source);
}

bool vhca_rule_report(enum vhca_rule rule, struct vhca_qp *qp, uint32_t index, const char *field,
	uint64_t found, uint64_t wanted)
{
	const struct rule *broken = &rules[rule];
	enum vhca_strict strict = vhca_options()->strict;

	__atomic_fetch_add(&n_breaches[rule], 1, __ATOMIC_RELAXED);
	if (!limit_reached(qp, rule) || strict == VHCA_ABORT)
		say(broken, qp, index, field, found, wanted);
	if (strict == VHCA_ABORT) {
		log_error("vhca: the process ends here because VHCA_STRICT is abort");
		abort();
	}
	return strict == VHCA_ERROR && broken->class == VHCA_UNDEFINED;
}
