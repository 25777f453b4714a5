/* mode.c - building a report of modes */

#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

void vbn__mode_add(struct mode_report *report, const char *name, const char *requested,
	const char *effective, const char *why, ...)
{
	struct vbn_mode *mode;
	va_list args;

	if (report->n++ >= report->max)
		return;
	mode = &report->modes[report->n - 1];
	snprintf(mode->name, sizeof(mode->name), "%s", name);
	snprintf(mode->requested, sizeof(mode->requested), "%s", requested);
	snprintf(mode->effective, sizeof(mode->effective), "%s", effective);
	va_start(args, why);
	vsnprintf(mode->why, sizeof(mode->why), why, args);
	va_end(args);
}

const char *vbn__mode_number(uint64_t number, const char *unit)
{
	static _Thread_local char text[4][32];
	static _Thread_local unsigned int turn;
	char *at = text[turn++ % ARRAY_SIZE(text)];

	snprintf(at, sizeof(text[0]), "%llu%s%s", (unsigned long long)number, *unit ? " " : "",
		unit);
	return at;
}

const char *vbn__mode_switch(enum vbn_switch value)
{
	static const char *const text[] = {"auto", "on", "off"};

	return text[min((unsigned int)value, 2u)];
}
