/* unit.h - what unit tests share: cmocka, the sentences that were logged, skips by name */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours says why */

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNIT_SHADOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNIT_SHADOW 1
#endif
#endif
#ifndef UNIT_SHADOW
#define UNIT_SHADOW 0
#endif

/* Leaves the test as skipped; CI knows which names may be. */
#define unit_skip(name, ...)                           \
	do {                                           \
		printf("SKIP " name ": " __VA_ARGS__); \
		printf("\n");                          \
		skip();                                \
	} while (0)

/* Fails the test with a sentence. */
#define unit_fail(...)                     \
	do {                               \
		print_error(__VA_ARGS__);  \
		print_error("\n");         \
		_fail(__FILE__, __LINE__); \
	} while (0)

static char unit_log[8192]; /* what was logged since unit_catch_log(), one sentence a line */

static inline void unit_add_to_log(int level, const char *sentence, void *arg)
{
	size_t len = strlen(unit_log);

	(void)level;
	(void)arg;
	snprintf(unit_log + len, sizeof(unit_log) - len, "%s\n", sentence);
}

static inline void unit_catch_log(void)
{
	unit_log[0] = '\0';
	vbn__log_set(LOG_DEBUG, unit_add_to_log, NULL);
}

#define assert_logged(text)     unit_assert_has("the log", unit_log, text, __FILE__, __LINE__)
#define assert_has(where, text) unit_assert_has(#where, where, text, __FILE__, __LINE__)

static inline void unit_assert_has(
	const char *what, const char *where, const char *text, const char *file, int line)
{
	if (strstr(where, text))
		return;
	print_error("%s is:\n%s\nand has not: %s\n", what, where, text);
	_fail(file, line);
}

#endif
