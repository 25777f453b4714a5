/* metrics.c - every object's counters as OpenMetrics text
 *
 * All samples of a family have to stand together, so the families are listed first and the registry
 * is walked once for each. In between objects come and go; names are copied. Kinds that there may be
 * thousands of, and texts that change, are left out: each would be a time series of its own.
 */

#include "obs/metrics.h"
#include "obs/text.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_SEEN 128

/* ---- a text that grows ---- */

struct text {
	char *bytes;
	size_t len, size;
	bool failed; /* no memory: what follows is not added */
};

static bool make_room(struct text *text, size_t more)
{
	size_t size = max(text->size, (size_t)4096);
	char *bytes;

	if (text->failed)
		return false;
	if (text->len + more <= text->size)
		return true;
	while (size < text->len + more)
		size *= 2;
	bytes = realloc(text->bytes, size);
	if (!bytes) {
		text->failed = true;
		return false;
	}
	text->bytes = bytes;
	text->size = size;
	return true;
}

static void put_bytes(struct text *text, const char *bytes, size_t len)
{
	if (!make_room(text, len))
		return;
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
}

static void put(struct text *text, const char *string)
{
	put_bytes(text, string, strlen(string));
}

static void put_number(struct text *text, uint64_t number)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	put(text, digits);
}

/* Inside quotes, and in a help line. What is no UTF-8 or cannot be seen becomes "?". */
static void put_escaped(struct text *text, const char *string)
{
	for (size_t left = strlen(string), n; left; left -= n, string += n) {
		n = vbn__utf8(string, left);
		if (*string == '\n')
			put(text, "\\n");
		else if (*string == '"' || *string == '\\')
			put_bytes(text, (char[]){'\\', *string}, 2);
		else if (!n || (unsigned char)*string < ' ' || *string == 0x7f)
			put(text, "?");
		else
			put_bytes(text, string, n);
		n = max(n, (size_t)1);
	}
}

/* ---- families ---- */

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_INFO };

struct family {
	char metric[128]; /* "verbena_queue_tx_bytes" */
	char kind[32], name[72], help[256];
	enum type type;
};

struct scrape {
	struct text text;
	struct family *families;
	size_t n_families, max_families;
	/* what has been looked at: objects with the same tables have the same families */
	struct {
		const struct counter_name *names;
		void (*describe)(const struct counter_set *set, struct fact_list *list);
	} seen[MAX_SEEN];
	size_t n_seen;
	const struct family *writing;
};

static struct family *find_family(const struct scrape *scrape, const char *metric)
{
	for (size_t i = 0; i < scrape->n_families; i++)
		if (!strcmp(scrape->families[i].metric, metric))
			return &scrape->families[i];
	return NULL;
}

static struct family *new_family(struct scrape *scrape)
{
	size_t most = scrape->max_families ? 2 * scrape->max_families : 128;
	struct family *families;

	if (scrape->n_families < scrape->max_families)
		return &scrape->families[scrape->n_families++];
	families = realloc(scrape->families, most * sizeof(*families));
	if (!families) {
		scrape->text.failed = true;
		return NULL;
	}
	scrape->families = families;
	scrape->max_families = most;
	return &families[scrape->n_families++];
}

/* A counter's samples end in _total, which is no part of its family's name. */
static void name_metric(char *metric, size_t size, const char *kind, const char *name)
{
	static const char total[] = "_total";
	size_t len;

	snprintf(metric, size, *name ? "verbena_%s_%s" : "verbena_%s", kind, name);
	len = strlen(metric);
	if (len > sizeof(total) && !strcmp(metric + len - (sizeof(total) - 1), total))
		metric[len - (sizeof(total) - 1)] = '\0';
}

static void add_family(
	struct scrape *scrape, enum type type, const char *kind, const char *name, const char *help)
{
	struct family made = {.type = type}, *family;

	name_metric(made.metric, sizeof(made.metric), kind, name);
	if (find_family(scrape, made.metric))
		return;
	snprintf(made.kind, sizeof(made.kind), "%s", kind);
	snprintf(made.name, sizeof(made.name), "%s", name);
	snprintf(made.help, sizeof(made.help), "%s", help);
	family = new_family(scrape);
	if (family)
		*family = made;
}

static enum type type_of(enum fact_kind kind)
{
	return kind == FACT_COUNTER ? TYPE_COUNTER : kind == FACT_GAUGE ? TYPE_GAUGE : TYPE_INFO;
}

static void add_facts(struct scrape *scrape, const struct counter_set *set)
{
	struct fact_list list = {.n = 0};
	char help[64];

	if (!set->describe)
		return;
	set->describe(set, &list);
	for (int i = 0; i < list.n; i++) {
		const struct fact *fact = &list.facts[i];

		if (fact->kind == FACT_NOTE)
			continue;
		if (type_of(fact->kind) == TYPE_INFO) {
			snprintf(help, sizeof(help), "what a %s is", set->kind);
			add_family(scrape, TYPE_INFO, set->kind, "", help);
		} else {
			add_family(scrape, type_of(fact->kind), set->kind, fact->name, fact->help);
		}
	}
}

static bool was_seen(struct scrape *scrape, const struct counter_set *set)
{
	for (size_t i = 0; i < scrape->n_seen; i++)
		if (scrape->seen[i].names == set->names &&
			scrape->seen[i].describe == set->describe)
			return true;
	if (scrape->n_seen < MAX_SEEN) {
		scrape->seen[scrape->n_seen].names = set->names;
		scrape->seen[scrape->n_seen++].describe = set->describe;
	}
	return false;
}

static int add_families(const struct counter_set *set, void *arg)
{
	struct scrape *scrape = arg;

	if (set->many || was_seen(scrape, set))
		return 0;
	add_facts(scrape, set);
	for (const struct counter_set *of = set; of; of = of->more)
		for (size_t i = 0; i < of->n; i++)
			add_family(scrape, TYPE_COUNTER, of->kind, of->names[i].name,
				of->names[i].help);
	return 0;
}

/* ---- samples ---- */

static void put_label(struct text *text, const char *name, const char *value)
{
	put(text, name);
	put(text, "=\"");
	put_escaped(text, value);
	put(text, "\"");
}

static void put_number_label(struct text *text, const char *name, uint64_t value)
{
	put(text, ",");
	put(text, name);
	put(text, "=\"");
	put_number(text, value);
	put(text, "\"");
}

/* A name may be there twice, as two ports of one device: then the id tells them apart. */
static void put_labels(struct text *text, const struct counter_set *set)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", set->id);
	put_label(text, set->kind, set->numbered ? number : set->object);
	if (!set->numbered)
		put_number_label(text, "id", set->id);
}

static void put_sample(struct scrape *scrape, const struct counter_set *set, uint64_t value)
{
	struct text *text = &scrape->text;

	put(text, scrape->writing->metric);
	put(text, scrape->writing->type == TYPE_COUNTER ? "_total{" : "{");
	put_labels(text, set);
	put(text, "} ");
	put_number(text, value);
	put(text, "\n");
}

static void put_info(struct scrape *scrape, const struct counter_set *set)
{
	struct fact_list list = {.n = 0};
	struct text *text = &scrape->text;

	set->describe(set, &list);
	put(text, scrape->writing->metric);
	put(text, "_info{");
	put_labels(text, set);
	for (int i = 0; i < list.n; i++) {
		if (list.facts[i].kind == FACT_TEXT) {
			put(text, ",");
			put_label(text, list.facts[i].name, list.facts[i].text);
		} else if (list.facts[i].kind == FACT_NUMBER) {
			put_number_label(text, list.facts[i].name, list.facts[i].number);
		}
	}
	put(text, "} 1\n");
}

static void put_fact(struct scrape *scrape, const struct counter_set *set)
{
	struct fact_list list = {.n = 0};

	set->describe(set, &list);
	for (int i = 0; i < list.n; i++) {
		const struct fact *fact = &list.facts[i];

		if (type_of(fact->kind) == scrape->writing->type &&
			!strcmp(fact->name, scrape->writing->name))
			put_sample(scrape, set, fact->number);
	}
}

static bool put_counter(struct scrape *scrape, const struct counter_set *set)
{
	for (const struct counter_set *of = set; of; of = of->more) {
		for (size_t i = 0; i < of->n; i++) {
			if (strcmp(of->names[i].name, scrape->writing->name))
				continue;
			put_sample(scrape, set, load_once(&of->values[i]));
			return true;
		}
	}
	return false;
}

static int put_object(const struct counter_set *set, void *arg)
{
	struct scrape *scrape = arg;
	const enum type type = scrape->writing->type;

	if (set->many || strcmp(set->kind, scrape->writing->kind))
		return 0;
	if (type == TYPE_COUNTER && put_counter(scrape, set))
		return 0;
	if (!set->describe)
		return 0;
	if (type == TYPE_INFO)
		put_info(scrape, set);
	else
		put_fact(scrape, set);
	return 0;
}

/* ---- the text ---- */

static const char *unit_of(const struct family *family)
{
	static const char *const units[] = {"bytes", "cycles", "messages", "bufs", "doorbells"};
	const char *last = strrchr(family->metric, '_');

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (family->type != TYPE_INFO && !strcmp(last + 1, units[i]))
			return units[i];
	return NULL;
}

static void put_line(struct text *text, const char *word, const char *metric, const char *rest)
{
	put(text, "# ");
	put(text, word);
	put(text, " ");
	put(text, metric);
	put(text, " ");
	put_escaped(text, rest);
	put(text, "\n");
}

static void put_head(struct text *text, const struct family *family)
{
	static const char *const types[] = {"counter", "gauge", "info"};
	const char *unit = unit_of(family);

	put_line(text, "TYPE", family->metric, types[family->type]);
	if (unit)
		put_line(text, "UNIT", family->metric, unit);
	if (*family->help)
		put_line(text, "HELP", family->metric, family->help);
}

static void put_process(struct text *text)
{
	put_line(text, "TYPE", "verbena_build", "info");
	put_line(text, "HELP", "verbena_build", "the library in this process");
	put(text, "verbena_build_info{");
	put_label(text, "version", VBN_VERSION);
	put(text, "} 1\n");
	put_line(text, "TYPE", "verbena_clock_hertz", "gauge");
	put_line(text, "UNIT", "verbena_clock_hertz", "hertz");
	put_line(text, "HELP", "verbena_clock_hertz", "cycles, as counters have them, a second");
	put(text, "verbena_clock_hertz ");
	put_number(text, vbn__clock_hz());
	put(text, "\n");
}

char *vbn__metrics_text(size_t *len)
{
	struct scrape scrape = {.n_families = 0};

	vbn__counters_visit(add_families, &scrape);
	put_process(&scrape.text);
	for (size_t i = 0; i < scrape.n_families; i++) {
		scrape.writing = &scrape.families[i];
		put_head(&scrape.text, scrape.writing);
		vbn__counters_visit(put_object, &scrape);
	}
	put(&scrape.text, "# EOF\n");
	free(scrape.families);
	*len = scrape.text.len;
	if (!scrape.text.failed)
		return scrape.text.bytes;
	free(scrape.text.bytes);
	return NULL;
}
