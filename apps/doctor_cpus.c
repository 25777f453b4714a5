/* doctor_cpus.c - sets of CPUs, as the kernel writes them: "0-3,8" */
#include "doctor.h"

#include <ctype.h>
#include <stdlib.h>

bool cpus_has(const struct cpus *cpus, int cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX && cpus->bits[cpu / 64] >> cpu % 64 & 1;
}

void cpus_add(struct cpus *cpus, int cpu)
{
	if (cpu >= 0 && cpu < CPUS_MAX)
		cpus->bits[cpu / 64] |= 1ull << cpu % 64;
}

int cpus_next(const struct cpus *cpus, int from)
{
	for (int cpu = from; cpu < CPUS_MAX; cpu++)
		if (cpus_has(cpus, cpu))
			return cpu;
	return -1;
}

int cpus_count(const struct cpus *cpus)
{
	int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(cpus->bits); i++)
		n += __builtin_popcountll(cpus->bits[i]);
	return n;
}

struct cpus cpus_and(const struct cpus *a, const struct cpus *b)
{
	struct cpus both;

	for (size_t i = 0; i < ARRAY_SIZE(both.bits); i++)
		both.bits[i] = a->bits[i] & b->bits[i];
	return both;
}

struct cpus cpus_without(const struct cpus *a, const struct cpus *b)
{
	struct cpus left;

	for (size_t i = 0; i < ARRAY_SIZE(left.bits); i++)
		left.bits[i] = a->bits[i] & ~b->bits[i];
	return left;
}

/* One element; false: it is none. */
static bool add_range(struct cpus *cpus, const char *text)
{
	char *end;
	long low = strtol(text, &end, 10), high = low;

	if (end == text)
		return false;
	if (*end == '-') {
		text = end + 1;
		high = strtol(text, &end, 10);
		if (end == text)
			return false;
	}
	if (*end && *end != ',' && !isspace((unsigned char)*end))
		return false;
	if (low < 0 || high < low || high >= CPUS_MAX)
		return false;
	for (long cpu = low; cpu <= high; cpu++)
		cpus_add(cpus, (int)cpu);
	return true;
}

bool cpus_parse(struct cpus *cpus, const char *text)
{
	*cpus = (struct cpus){0};
	while (*text && !isspace((unsigned char)*text)) {
		/* Flags of isolcpus=, and "(null)" where nohz_full has none. */
		if (isdigit((unsigned char)*text) && !add_range(cpus, text))
			return false;
		text += strcspn(text, ",");
		text += *text == ',';
	}
	return true;
}

bool cpus_parse_mask(struct cpus *cpus, const char *text)
{
	int cpu = 0;

	*cpus = (struct cpus){0};
	for (size_t n = strcspn(text, " \n"); n--;) {
		int digit = (unsigned char)text[n];

		if (digit == ',')
			continue;
		if (!isxdigit(digit))
			return false;
		digit = isdigit(digit) ? digit - '0' : tolower(digit) - 'a' + 10;
		for (int bit = 0; bit < 4; bit++, cpu++)
			if (digit >> bit & 1)
				cpus_add(cpus, cpu);
	}
	return cpu > 0;
}

const char *cpus_text(const struct cpus *cpus, char *text, size_t size)
{
	size_t used = 0;

	*text = 0;
	for (int low = cpus_next(cpus, 0), high; low >= 0 && used < size;
		low = cpus_next(cpus, high + 1)) {
		for (high = low; cpus_has(cpus, high + 1);)
			high++;
		used += (size_t)snprintf(text + used, size - used, "%s%d", used ? "," : "", low);
		if (high > low && used < size)
			used += (size_t)snprintf(text + used, size - used, "-%d", high);
	}
	return text;
}
