/* broken.h - a rule that a case breaks, under VHCA_STRICT=report, error and abort
 *
 * Each case runs in three processes of its own, since the option is read once. It answers with what
 * the CQ said, or with the state of a queue where that is the outcome. What was said on standard error
 * must name the rule, and no other.
 */
#ifndef TEST_VHCA_BROKEN_H
#define TEST_VHCA_BROKEN_H

#include "child.h"
#include "vhca/rule.h"

/* What a case answers: 0 is a good CQE, up to 0x3f a syndrome. */
enum {
	FINE = 0,
	QP_ERROR = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
	PROTECTION = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
	LENGTH = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
	FLUSHED = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
	INVALID = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
	ACCESS = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
	OPERATION = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
	NOTHING = 0x40,      /* no CQE, and the QP lives */
	STATE = 0x50,        /* and a QP's state */
	WRONG = CHILD_WRONG, /* the case went otherwise than it says */
	STOPPED = CHILD_STOPPED,
};

struct broken_rule {
	const char *name;
	enum vhca_rule_class class;
	const char *sentence, *source;
};

/* As the device side has them. */
extern const struct broken_rule broken_rules[VHCA_N_RULES];

struct rule_case {
	const char *name; /* of the function */
	int (*run)(void);
	enum vhca_rule rule;
	int report, error, abort;
	bool with_others; /* what follows of it breaks other rules */
};

/* clang-format off */
#define REPORTED(run_, rule_, outcome_) {#run_, run_, VHCA_RULE_##rule_, outcome_, outcome_, STOPPED, false}
#define UNDEFINED(run_, rule_, report_, error_) {#run_, run_, VHCA_RULE_##rule_, report_, error_, STOPPED, false}
#define SOFT(run_, rule_) {#run_, run_, VHCA_RULE_##rule_, FINE, FINE, FINE, false}
/* Its consequences break others. */
#define WIDE(run_, rule_, report_, error_) {#run_, run_, VHCA_RULE_##rule_, report_, error_, STOPPED, true}
/* clang-format on */

/* A test whose initial state is a case. */
void rule_broken(void **state);

#endif
