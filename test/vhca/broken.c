/* broken.c - a rule that a case breaks, under each VHCA_STRICT */

#include "broken.h"

#include "child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

const struct broken_rule broken_rules[VHCA_N_RULES] = {
#define ROW(id_, ...) {__VA_ARGS__},
	VHCA_RULES(ROW)
#undef ROW
};

/* The rule is named, with its sentence; no other is. */
static void expect_named(const struct rule_case *one, const char *strict, const char *said)
{
	char due[64];

	snprintf(due, sizeof(due), "rule %s broken", broken_rules[one->rule].name);
	if (!strstr(said, due) || !strstr(said, broken_rules[one->rule].sentence))
		fail_msg("%s, %s: \"%s\" is not in \"%s\"", one->name, strict, due, said);
	/* What hardware lets pass was told as an error. */
	if (!strstr(said, "error: vhca: rule") != (broken_rules[one->rule].class == VHCA_SOFT))
		fail_msg("%s, %s: told as what it is not: \"%s\"", one->name, strict, said);
	for (const char *at = said; !one->with_others && (at = strstr(at, "rule ")); at++)
		if (strncmp(at, due, strlen(due)))
			fail_msg("%s, %s: another rule is in \"%s\"", one->name, strict, said);
}

void rule_broken(void **state)
{
	static const char *const levels[] = {"report", "error", "abort"};
	const struct rule_case *one = *state;
	const int due[] = {one->report, one->error, one->abort};
	char said[8192];

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		int found = child_run(one->run, levels[i], said, sizeof(said));

		if (found != due[i])
			fail_msg("%s, %s: outcome 0x%x where 0x%x was due; \"%s\"", one->name,
				levels[i], found, due[i], said);
		expect_named(one, levels[i], said);
	}
}
