/* options.c - option tables: long names only, values with units and ranges, one sentence for each
 * mistake
 *
 * Not getopt_long(): it takes abbreviations, so that an option that does not exist yet (--connect)
 * would be taken for one that does (--connection).
 */
#include "cmd.h"

#include <ctype.h>

/* ---- values ---- */

struct unit {
	const char *name;
	int64_t scale;
};

static const struct unit count_units[] = {
	{"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {NULL, 0}};
static const struct unit size_units[] = {
	{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
static const struct unit time_units[] = {
	{"", 1000000000}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}};
static const struct unit rate_units[] = {{"bit", 1}, {"kbit", 1000}, {"Mbit", 1000000},
	{"Gbit", 1000000000}, {"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {"pps", 1},
	{"kpps", 1000}, {"Mpps", 1000000}, {"Gpps", 1000000000}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(enum value value)
{
	switch (value) {
	case VALUE_SIZE:
	case VALUE_RANGE: return size_units;
	case VALUE_TIME: return time_units;
	case VALUE_POW2: return no_units;
	case VALUE_RATE: return rate_units;
	default: return count_units;
	}
}

/* Digits, perhaps a point and digits, a unit: the value in the smallest unit. NULL, or what is
 * wrong with the text. */
static const char *parse_number(const char *text, const struct unit *units, int64_t *value)
{
	bool negative = *text == '-';
	__int128 whole = 0, part = 0, scale = 1;
	const char *at = text + negative;

	if (!isdigit((unsigned char)*at))
		return "it is not a number";
	for (; isdigit((unsigned char)*at); at++)
		if (whole < INT64_MAX)
			whole = whole * 10 + (*at - '0');
	if (*at == '.') {
		if (!isdigit((unsigned char)*++at))
			return "it is not a number";
		for (; isdigit((unsigned char)*at); at++)
			if (scale < 1000000000) {
				part = part * 10 + (*at - '0');
				scale *= 10;
			}
	}
	while (units->name && strcmp(units->name, at))
		units++;
	if (!units->name)
		return "its unit is none that this option has";
	whole = whole * units->scale + part * units->scale / scale;
	if (part * units->scale % scale)
		return "it is a fraction of the smallest unit";
	if (whole > INT64_MAX)
		return negative ? "it is too small" : "it is too large";
	*value = (int64_t)(negative ? -whole : whole);
	return NULL;
}

/* In the largest unit that says it whole. */
static void format_value(const struct option *option, int64_t value, char *text, size_t size)
{
	const struct unit *best = NULL;

	for (const struct unit *unit = units_of(option->value); unit->name; unit++)
		if (*unit->name && value && value % unit->scale == 0)
			best = unit;
	if (best)
		snprintf(text, size, "%lld %s", (long long)(value / best->scale), best->name);
	else
		snprintf(text, size, "%lld", (long long)value);
}

/* "a power of two from 1 to 32768", "send or write". */
static void describe(const struct option *option, char *text, size_t size)
{
	char low[32], high[32];
	const char *kind = "a count", *units = " (k, M, G are units)";
	bool large = option->high >= 1000;

	if (option->value == VALUE_WORD) {
		size_t n = 0;

		for (const char *c = option->words; *c && n + 5 < size; c++)
			n += (size_t)snprintf(text + n, size - n, *c == ' ' ? " or " : "%c", *c);
		return;
	}
	if (option->value == VALUE_POW2)
		kind = "a power of two", units = " (without a unit)", large = true;
	else if (option->value == VALUE_SIZE)
		kind = "a size", units = " (KiB, MiB, GiB are units; bytes when bare)",
		large = true;
	else if (option->value == VALUE_RANGE)
		kind = "a size, or two with a dash between,",
		units = " (KiB, MiB, GiB are units; bytes when bare)", large = true;
	else if (option->value == VALUE_TIME)
		kind = "a time", units = " (us, ms, s are units; seconds when bare)";
	else if (option->value == VALUE_RATE)
		kind = "a rate",
		units = " (kpps, Mpps, k, M, G are units; kbit, Mbit, Gbit of bits; frames when bare)";
	format_value(option, option->low, low, sizeof(low));
	format_value(option, option->high, high, sizeof(high));
	snprintf(text, size, "%s from %s to %s%s", kind, low, high, large ? units : "");
}

static int bad_value(
	const struct option *option, const char *called, const char *text, const char *why)
{
	char range[160];

	describe(option, range, sizeof(range));
	return usage_error("%s cannot be \"%.80s\": %s; give %s", called, text, why, range);
}

static int take_word(
	const struct option *option, const char *called, const char *text, int64_t *value)
{
	size_t length = strlen(text);
	const char *word = option->words;

	for (*value = 0;; (*value)++) {
		size_t n = strcspn(word, " ");

		if (n == length && !memcmp(word, text, n))
			return 0;
		if (!word[n])
			return bad_value(option, called, text, "there is no such one");
		word += n + 1;
	}
}

static int take_number(
	const struct option *option, const char *called, const char *text, int64_t *value)
{
	const char *why = parse_number(text, units_of(option->value), value);

	if (!why && *value < option->low)
		why = "it is too small";
	if (!why && *value > option->high)
		why = "it is too large";
	if (!why && option->value == VALUE_POW2 && (*value & (*value - 1)))
		why = "it is no power of two";
	return why ? bad_value(option, called, text, why) : 0;
}

/* "A", which is also its end, or "A-B". */
static int take_range(
	const struct option *option, const char *called, const char *text, int64_t *values)
{
	const char *dash = strchr(text, '-'), *why = NULL;
	char first[32];
	int status;

	if (!dash || dash == text) {
		status = take_number(option, called, text, values);
		values[1] = values[0];
		return status;
	}
	snprintf(first, sizeof(first), "%.*s", (int)(dash - text), text);
	status = take_number(option, called, first, &values[0]);
	if (!status)
		status = take_number(option, called, dash + 1, &values[1]);
	if (!status && values[1] < values[0])
		why = "it ends before it begins";
	return why ? bad_value(option, called, text, why) : status;
}

static int take_rate(
	const struct option *option, const char *called, const char *text, struct rate *rate)
{
	rate->bits = strstr(text, "bit");
	return take_number(option, called, text, &rate->n);
}

/* One more of them. */
static int take_text(
	const struct option *option, const char *called, const char *text, struct texts *texts)
{
	if (!*text)
		return usage_error("%s cannot be empty: give %s", called, option->arg);
	if (texts->n == option->high)
		return usage_error("%s is given more than %d times: give fewer", called, texts->n);
	texts->text[texts->n++] = text;
	return 0;
}

int option_take(const struct option *option, const char *called, const char *text, void *conf)
{
	void *place = (char *)conf + option->offset;

	switch (option->value) {
	case VALUE_FLAG: *(bool *)place = true; return 0;
	case VALUE_TEXT:
		*(const char **)place = text;
		return *text ? 0 : usage_error("%s cannot be empty: give %s", called, option->arg);
	case VALUE_TEXTS: return take_text(option, called, text, place);
	case VALUE_WORD: return take_word(option, called, text, place);
	case VALUE_RANGE: return take_range(option, called, text, place);
	case VALUE_RATE: return take_rate(option, called, text, place);
	default: return take_number(option, called, text, place);
	}
}

/* ---- help ---- */

/* Whether a word is among words. */
static bool is_among(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
		if (strcspn(at, " ") == length && !memcmp(at, word, length))
			return true;
	return false;
}

static bool has_option(const struct command *command, const struct option *option)
{
	return !command->without || !is_among(command->without, option->name);
}

/* The help of an option may be of several lines, which stand under one another. */
static void print_option(const struct option *option)
{
	char head[40];
	const char *line = option->help;
	int width = (int)strcspn(line, "\n");

	snprintf(head, sizeof(head), "--%s%s%s", option->name, option->arg ? " " : "",
		option->arg ? option->arg : "");
	printf("  %-24s %.*s\n", head, width, line);
	while (line[width]) {
		line += width + 1;
		width = (int)strcspn(line, "\n");
		printf("  %-24s %.*s\n", "", width, line);
	}
}

static int print_help(const struct command *command)
{
	printf("usage: verbena %s %s\n\n%s\n\noptions:\n", command->name, command->usage,
		command->summary);
	for (size_t i = 0; i < command->n_options; i++)
		if (has_option(command, &command->options[i]))
			print_option(&command->options[i]);
	printf("  %-24s %s\n\n%s", "--help", "this text", command->more);
	return STATUS_DONE;
}

int usage_short_help(void)
{
	return usage_error(
		"argument \"-h\" is not expected here: options have long names; --help is "
		"this one's");
}

/* ---- the command line ---- */

static int find_option(const struct command *command, const char *name, size_t length)
{
	for (size_t i = 0; i < command->n_options; i++)
		if (has_option(command, &command->options[i]) &&
			strlen(command->options[i].name) == length &&
			!memcmp(command->options[i].name, name, length))
			return (int)i;
	return -1;
}

bool option_given(const struct command *command, uint64_t given, const char *name)
{
	int i = find_option(command, name, strlen(name));

	return i >= 0 && given >> i & 1;
}

/* Takes the option at argv[0]; *used is how many arguments it was. */
static int take_option(
	const struct command *command, char **argv, void *conf, uint64_t *given, int *used)
{
	const char *name = argv[0] + 2, *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);
	int i = find_option(command, name, length);
	const struct option *option = &command->options[i];
	const char *text = equals ? equals + 1 : NULL;
	char called[64];

	*used = 1;
	if (i < 0)
		return usage_error(
			"option --%.*s is unknown: verbena %s --help lists those there are",
			(int)length, name, command->name);
	if (*given >> i & 1 && option->value != VALUE_TEXTS)
		return usage_error("option --%s is given twice: give it once", option->name);
	*given |= 1ull << i;
	if (option->value == VALUE_FLAG && equals)
		return usage_error(
			"option --%s takes no value: leave out \"=%.80s\"", option->name, text);
	if (option->value != VALUE_FLAG && !equals) {
		text = argv[1];
		*used = 2;
		if (!text || !strncmp(text, "--", 2))
			return usage_error("option --%s has no value: give %s behind it",
				option->name, option->arg);
	}
	snprintf(called, sizeof(called), "option --%s", option->name);
	return option_take(option, called, text, conf);
}

int options_parse(const struct command *command, int argc, char **argv, void *conf, uint64_t *given,
	char ***rest)
{
	int used, status;

	*given = 0;
	if (rest)
		*rest = NULL;
	for (int i = 1; i < argc; i += used) {
		if (!strcmp(argv[i], "--help"))
			return print_help(command);
		if (!strcmp(argv[i], "-h"))
			return usage_short_help();
		if (rest && !strcmp(argv[i], "--")) {
			*rest = argv + i + 1;
			break;
		}
		if (strncmp(argv[i], "--", 2) || !argv[i][2])
			return usage_error("argument \"%.80s\" is not expected here: %s", argv[i],
				rest ? "the command goes behind --, and options have two dashes"
				     : "options begin with two dashes");
		status = take_option(command, argv + i, conf, given, &used);
		if (status)
			return status;
	}
	return OPTIONS_OK;
}
