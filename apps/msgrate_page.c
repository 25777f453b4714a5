/* msgrate_page.c - --report: one page with the charts of a command's runs, its machine and modes */
#include "chart.h"
#include "msgrate.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- samples ---- */

static uint64_t side_count(const struct run *run, const struct side *side)
{
	bool received = counts_where_it_comes(run);
	uint64_t came = 0, sent = 0;

	for (int i = 0; i < side->n_ends; i++) {
		const struct end *end = &side->ends[i];

		came += load_once(received ? &end->received : &end->completed);
		sent += load_once(&end->sent);
	}
	return came ? came : sent;
}

/* A row for which there is no memory is left out. */
static uint64_t *new_row(struct samples *samples)
{
	size_t size = samples->width * sizeof(*samples->rows);

	if (samples->n_rows == samples->room) {
		size_t room = samples->room ? 2 * samples->room : 256;
		uint64_t *rows = realloc(samples->rows, room * size);

		if (!rows)
			return NULL;
		samples->rows = rows;
		samples->room = room;
	}
	return samples->rows + samples->n_rows++ * samples->width;
}

uint64_t samples_tick(const struct run *run)
{
	uint64_t part = run->conf.iters ? SECOND / 20 : (uint64_t)run->conf.duration / 100;

	return part < SECOND / 50 ? SECOND / 50 : part < SECOND ? part : SECOND;
}

void samples_take(struct run *run)
{
	struct samples *samples = run->samples;
	uint64_t *row, now = now_ns();

	if (!samples)
		return;
	samples->width = (size_t)run->n_sides + 1;
	/* One that comes late has its next one on its heels: a rate of a moment so short says nothing. */
	if (samples->n_rows &&
		now - samples->rows[(samples->n_rows - 1) * samples->width] < samples_tick(run) / 2)
		return;
	row = new_row(samples);
	if (!row)
		return;
	row[0] = now;
	for (int i = 0; i < run->n_sides; i++)
		row[1 + i] = side_count(run, &run->sides[i]);
}

/* ---- what is kept of a run ---- */

struct page_run {
	struct page_run *next;
	json_t *result;
	struct samples samples;
	struct histogram *times; /* of a latency run */
};

struct page {
	struct page_run *first, **last;
	size_t n_runs;
};

struct page *page_create(void)
{
	struct page *page = calloc(1, sizeof(*page));

	if (page)
		page->last = &page->first;
	return page;
}

void page_destroy(struct page *page)
{
	struct page_run *next;

	for (struct page_run *run = page ? page->first : NULL; run; run = next) {
		next = run->next;
		json_decref(run->result);
		free(run->samples.rows);
		free(run->times);
		free(run);
	}
	free(page);
}

void page_add(struct page *page, const struct run *run, json_t *result)
{
	struct page_run *kept = calloc(1, sizeof(*kept));

	if (!kept) {
		json_decref(result);
		return;
	}
	kept->result = result;
	kept->samples = *run->samples;
	*run->samples = (struct samples){0};
	kept->times = run->conf.latency ? calloc(1, sizeof(*kept->times)) : NULL;
	if (kept->times)
		times_sum(run, kept->times);
	*page->last = kept;
	page->last = &kept->next;
	page->n_runs++;
}

static const char *text_of(const struct page_run *run, const char *key)
{
	const char *text = json_string_value(json_object_get(run->result, key));

	return text ? text : "";
}

static double number_of(const struct page_run *run, const char *key)
{
	return json_number_value(json_object_get(run->result, key));
}

/* ---- charts ---- */

#define MAX_SERIES 8

/* The rates of one side between each two rows. */
static size_t side_rates(const struct samples *samples, size_t side, double *xs, double *ys)
{
	size_t n = 0;

	for (size_t i = 1; i < samples->n_rows; i++) {
		const uint64_t *row = samples->rows + i * samples->width;
		const uint64_t *before = row - samples->width;
		double seconds = (double)(row[0] - before[0]) / 1e9;

		if (seconds <= 0)
			continue;
		xs[n] = (double)(row[0] - samples->rows[0]) / 1e9;
		ys[n++] = (double)(row[1 + side] - before[1 + side]) / seconds;
	}
	return n;
}

static void draw_rates(FILE *file, const struct page_run *run)
{
	const struct samples *samples = &run->samples;
	size_t n = samples->width > 1 ? samples->width - 1 : 0, room = samples->n_rows + 1;
	struct series series[MAX_SERIES];
	char names[MAX_SERIES][32], title[96];
	double *points;

	n = n < MAX_SERIES ? n : MAX_SERIES;
	points = calloc(2 * (n + 1) * room, sizeof(*points));
	if (!points)
		return;
	for (size_t i = 0; i < n; i++) {
		double *xs = points + 2 * i * room, *ys = xs + room;

		snprintf(names[i], sizeof(names[i]), "worker %zu", i);
		series[i] = (struct series){names[i], xs, ys, side_rates(samples, i, xs, ys)};
	}
	snprintf(title, sizeof(title), "Messages per second over time, %.0f bytes",
		number_of(run, "size"));
	chart_draw(file,
		&(struct chart){title, "s", "messages/s", SCALE_LINEAR, SCALE_LINEAR, series, n});
	free(points);
}

static void draw_latency(FILE *file, const struct page_run *run)
{
	enum { POINTS = 120 };
	static double xs[POINTS], ys[POINTS];
	const char *op = text_of(run, "op");
	bool whole = !strncmp(op, "read", 4) || !strncmp(op, "fetch", 5) || !strncmp(op, "cmp", 3);
	struct series series = {whole ? "the whole operation" : "half of a round trip", xs, ys, 0};
	char title[96];
	double fraction = 1;

	for (size_t i = 0; i < POINTS && run->times->n; i++, fraction /= 1.1) {
		if (fraction * (double)run->times->n < 1)
			break;
		xs[i] = 100 * (1 - fraction);
		ys[i] = (double)histogram_percentile(run->times, i ? xs[i] : 0.0001) /
			(whole ? 1e3 : 2e3);
		series.n = i + 1;
	}
	snprintf(title, sizeof(title), "Latency by percentile, %.0f bytes", number_of(run, "size"));
	chart_draw(file,
		&(struct chart){title, "percentile", "us", SCALE_NINES, SCALE_LOG10, &series, 1});
}

static bool is_latency(const struct page_run *run)
{
	return run->times != NULL;
}

/* One value of all runs of a kind, over their sizes. */
static void draw_sizes(FILE *file, const struct page *page, bool latency, const char *key,
	const char *title, const char *unit)
{
	double *xs = calloc(2 * page->n_runs + 1, sizeof(*xs)), *ys = xs + page->n_runs;
	struct series series = {unit, xs, ys, 0};

	for (const struct page_run *run = page->first; xs && run; run = run->next) {
		if (is_latency(run) != latency)
			continue;
		xs[series.n] = number_of(run, "size");
		ys[series.n++] = latency
			? json_number_value(json_object_get(
				  json_object_get(run->result, "percentiles"), key)) /
				1e3
			: number_of(run, key);
	}
	if (series.n > 1)
		chart_draw(file,
			&(struct chart){title, "bytes", unit, SCALE_SIZE,
				latency ? SCALE_LOG10 : SCALE_LINEAR, &series, 1});
	free(xs);
}

/* ---- words ---- */

static void row(FILE *file, const char *name, const char *value)
{
	fputs("<tr><th>", file);
	html_text(file, name);
	fputs("</th><td>", file);
	html_text(file, value);
	fputs("</td></tr>\n", file);
}

static void cpu_model(char *text, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(text, size, "unknown");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			snprintf(text, size, "%.120s", strchr(line, ':') + 2);
			text[strcspn(text, "\n")] = 0;
			break;
		}
	if (file)
		fclose(file);
}

/* The runs that were asked for: all but the one that the report adds. */
static size_t n_asked(const struct page *page)
{
	size_t n = 0;

	for (const struct page_run *run = page->first; run; run = run->next)
		n += is_latency(run) == is_latency(page->first);
	return n;
}

/* The run, of those asked for, in which this is highest. */
static const struct page_run *best_of(const struct page *page, const char *key)
{
	const struct page_run *best = page->first;

	for (const struct page_run *run = page->first; run; run = run->next)
		if (is_latency(run) == is_latency(page->first) &&
			number_of(run, key) > number_of(best, key))
			best = run;
	return best;
}

static void write_result(FILE *file, const struct page *page)
{
	const struct page_run *first = page->first, *fastest = best_of(page, "msg_rate");
	const struct page_run *widest = best_of(page, "gbit_rate");
	char text[256], rate[32];

	human_number(number_of(fastest, "msg_rate"), rate);
	if (n_asked(page) == 1)
		snprintf(text, sizeof(text), "%s messages/s, %.2f Gbit/s, %.0f cycles a message",
			rate, number_of(first, "gbit_rate"),
			number_of(first, "cycles_per_message"));
	else
		snprintf(text, sizeof(text),
			"at most %s messages/s, of %.0f bytes; at most %.2f Gbit/s, of %.0f bytes",
			rate, number_of(fastest, "size"), number_of(widest, "gbit_rate"),
			number_of(widest, "size"));
	row(file, "result", text);
}

/* The sum of all runs, or why there is none. */
static void add_count(const struct page *page, const char *key, char *text, size_t size)
{
	size_t used = strlen(text);
	double sum = 0;

	for (const struct page_run *run = page->first; run; run = run->next) {
		if (is_latency(run) != is_latency(page->first))
			continue;
		if (json_is_null(json_object_get(run->result, key))) {
			snprintf(text + used, size - used, ", %s not checked", key);
			return;
		}
		sum += number_of(run, key);
	}
	snprintf(text + used, size - used, "%s%s %.0f", used ? ", " : "", key, sum);
}

static void write_counts(FILE *file, const struct page *page)
{
	static const char *const keys[] = {
		"sent", "received", "lost", "corrupt", "duplicate", "reordered"};
	char text[256] = "";

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		add_count(page, keys[i], text, sizeof(text));
	row(file, "counts", text);
}

static void write_what(FILE *file, const struct page *page)
{
	const struct page_run *first = page->first, *last = first;
	char text[128];

	for (const struct page_run *run = first; run; run = run->next)
		if (is_latency(run) == is_latency(first))
			last = run;
	if (last == first)
		snprintf(text, sizeof(text), "%s %s of %.0f bytes", text_of(first, "connection"),
			text_of(first, "op"), number_of(first, "size"));
	else
		snprintf(text, sizeof(text), "%s %s of %.0f to %.0f bytes, %zu runs",
			text_of(first, "connection"), text_of(first, "op"),
			number_of(first, "size"), number_of(last, "size"), n_asked(page));
	row(file, "what", text);
}

static void write_machine(FILE *file, const struct page *page)
{
	const struct page_run *run = page->first;
	char model[128], text[512];
	struct utsname name;
	time_t now = time(NULL);
	struct tm when;

	cpu_model(model, sizeof(model));
	uname(&name);
	fprintf(file, "<h2>The run%s and the machine</h2>\n<table>\n",
		n_asked(page) > 1 ? "s" : "");
	write_what(file, page);
	write_result(file, page);
	write_counts(file, page);
	snprintf(text, sizeof(text), "%s, driver %s%s", text_of(run, "device"),
		text_of(run, "driver"),
		vhca_is_loaded() ? "; emulated (vhca): its times are no hardware's" : "");
	row(file, "device", text);
	snprintf(text, sizeof(text), "%s, %ld CPUs", model, sysconf(_SC_NPROCESSORS_ONLN));
	row(file, "processor", text);
	snprintf(text, sizeof(text), "%s %s", name.sysname, name.release);
	row(file, "system", text);
	localtime_r(&now, &when);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &when);
	row(file, "when", text);
	row(file, "verbena", vbn_version());
	fputs("</table>\n", file);
}

static void write_runs(FILE *file, const struct page *page)
{
	char rate[32];

	fputs("<h2>Runs</h2>\n<table>\n<tr><th>tool</th><th>operation</th><th>bytes</th><th>messages/s"
	      "</th><th>Gbit/s</th><th>cycles/message</th><th>lost</th><th>p50 us</th><th>p99 us</th></tr>\n",
		file);
	for (const struct page_run *run = page->first; run; run = run->next) {
		const json_t *times = json_object_get(run->result, "percentiles");

		fprintf(file,
			"<tr><td>%s</td><td>%s %s</td><td>%.0f</td><td>%s</td><td>%.3f</td><td>%.0f</td>"
			"<td>%.0f</td>",
			text_of(run, "tool"), text_of(run, "connection"), text_of(run, "op"),
			number_of(run, "size"), human_number(number_of(run, "msg_rate"), rate),
			number_of(run, "gbit_rate"), number_of(run, "cycles_per_message"),
			number_of(run, "lost"));
		if (times)
			fprintf(file, "<td>%.2f</td><td>%.2f</td></tr>\n",
				json_number_value(json_object_get(times, "p50")) / 1e3,
				json_number_value(json_object_get(times, "p99")) / 1e3);
		else
			fputs("<td></td><td></td></tr>\n", file);
	}
	fputs("</table>\n", file);
}

static void write_modes(FILE *file, const struct page_run *run)
{
	const char *name;
	json_t *mode;

	fputs("<h2>Modes</h2>\n<table>\n<tr><th>mode</th><th>requested</th><th>effective</th><th>why</th>"
	      "</tr>\n",
		file);
	json_object_foreach(json_object_get(run->result, "effective"), name, mode)
	{
		static const char *const keys[] = {"requested", "effective", "why"};

		fputs("<tr><td>", file);
		html_text(file, name);
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			const char *text = json_string_value(json_object_get(mode, keys[i]));

			fputs("</td><td>", file);
			html_text(file, text ? text : "");
		}
		fputs("</td></tr>\n", file);
	}
	fputs("</table>\n", file);
}

static const char head[] =
	"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Verbena</title>\n<style>\n"
	"body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em;color:#1f2328}\n"
	"h1{font-size:1.5em}h2{font-size:1.1em;margin:1.6em 0 .4em}\n"
	"table{border-collapse:collapse;width:100%;font-size:.87em}\n"
	"th,td{text-align:left;padding:.25em .6em;border-bottom:1px solid #d8dee4;vertical-align:top}\n"
	"svg{width:100%;height:auto;font:11px system-ui,sans-serif;fill:#57606a}\n"
	".grid{stroke:#e3e7ec;stroke-width:1}.name{font-weight:600;font-size:12px}\n"
	"summary{cursor:pointer;font-weight:600;margin:1.6em 0 .4em}\n"
	"@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}"
	"svg{fill:#9198a1}.grid{stroke:#21262d}}\n"
	"</style></head><body>\n<h1>Verbena: message rate and latency</h1>\n";

/* Of each run by itself. */
static void draw_runs(FILE *file, const struct page *page)
{
	for (const struct page_run *run = page->first; run; run = run->next)
		if (!is_latency(run))
			draw_rates(file, run);
	for (const struct page_run *run = page->first; run; run = run->next)
		if (is_latency(run))
			draw_latency(file, run);
}

/* Of several runs first what they come to together; each by itself for who wants it. */
static void write_sweep(FILE *file, const struct page *page)
{
	draw_sizes(file, page, false, "msg_rate", "Messages per second by size", "messages/s");
	draw_sizes(file, page, false, "gbit_rate", "Gbit/s by size", "Gbit/s");
	draw_sizes(file, page, true, "p50", "Median latency by size", "us");
	write_runs(file, page);
	fputs("<details><summary>Each run by itself</summary>\n", file);
	draw_runs(file, page);
	fputs("</details>\n", file);
}

int page_write(FILE *file, const struct page *page)
{
	errno = 0;
	fputs(head, file);
	write_machine(file, page);
	if (n_asked(page) > 1) {
		write_sweep(file, page);
	} else {
		draw_runs(file, page);
		write_runs(file, page);
	}
	write_modes(file, page->first);
	fputs("</body></html>\n", file);
	return fflush(file) || ferror(file) ? errno ? errno : EIO : 0;
}
