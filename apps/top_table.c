/* top_table.c - what processes said, as tables: rows of a view, sorted; drops; text and JSON of them */
#include "top.h"

#include <math.h>
#include <stdlib.h>

/* ---- rows ---- */

/* Both lists are in the order of their ids. */
static const json_t *find_before(const json_t *before, size_t *at, json_int_t id)
{
	const json_t *object;

	while ((object = json_array_get(before, *at))) {
		json_int_t its = json_integer_value(json_object_get(object, "id"));

		if (its == id)
			return object;
		if (its > id)
			return NULL;
		(*at)++;
	}
	return NULL;
}

static void name_row(struct row *row)
{
	const char *name = json_string_value(json_object_get(row->now, "name"));

	snprintf(row->name, sizeof(row->name), "%s", name ? name : "?");
	make_printable(row->name);
}

static struct history *history_of(struct process *process, uint32_t id)
{
	struct history *grown;

	for (size_t i = 0; i < process->n_histories; i++)
		if (process->histories[i].id == id)
			return &process->histories[i];
	grown = realloc(process->histories, (process->n_histories + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	process->histories = grown;
	grown[process->n_histories] = (struct history){.id = id};
	for (int i = 0; i < N_HISTORY; i++)
		grown[process->n_histories].share[i] = NAN;
	return &grown[process->n_histories++];
}

void process_remember(struct process *process)
{
	size_t i, at = 0;
	json_t *object;

	json_array_foreach(process->now[KIND_WORKER], i, object)
	{
		struct row row = {.process = process, .now = object};
		struct history *history;

		row.id = (uint32_t)json_integer_value(json_object_get(object, "id"));
		row.before = find_before(process->before[KIND_WORKER], &at, row.id);
		history = history_of(process, row.id);
		if (!history)
			return;
		memmove(history->share, history->share + 1,
			(N_HISTORY - 1) * sizeof(history->share[0]));
		history->share[N_HISTORY - 1] = (float)worker_busy(&row);
	}
}

static void find_history(struct row *row)
{
	for (size_t i = 0; i < row->process->n_histories; i++) {
		const struct history *history = &row->process->histories[i];

		if (history->id != row->id)
			continue;
		row->has_history = true;
		for (int k = 0; k < N_HISTORY; k++)
			row->history[k] = (double)history->share[k];
	}
}

static void fill_row(struct row *row, const struct view *view)
{
	row->id = (uint32_t)json_integer_value(json_object_get(row->now, "id"));
	row->seconds =
		row->before ? (double)(row->process->now_ns - row->process->before_ns) / 1e9 : 0;
	name_row(row);
	for (size_t i = 0; i < view->n_columns; i++)
		row->value[i] = column_value(&view->columns[i], row);
	row->alarming = object_number(row->now, "failed") > 0 || object_number(row->now, "up") == 0;
	if (view->kind == KIND_WORKER)
		find_history(row);
}

static void add_rows(struct table *table, const struct process *process)
{
	const enum kind kind = table->view->kind;
	size_t i, at = 0;
	json_t *object;

	json_array_foreach(process->now[kind], i, object)
	{
		struct row *row = &table->rows[table->n++];

		*row = (struct row){.process = process, .now = object};
		row->before = find_before(process->before[kind], &at,
			json_integer_value(json_object_get(object, "id")));
		fill_row(row, table->view);
	}
}

static bool is_wanted(const struct process *process, pid_t only)
{
	return !process->foreign && (!only || process->pid == only);
}

void table_build(
	struct table *table, const struct view *view, const struct processes *all, pid_t only)
{
	size_t n = 0;

	*table = (struct table){.view = view};
	for (const struct process *process = all->first; process; process = process->next)
		if (is_wanted(process, only))
			n += json_array_size(process->now[view->kind]);
	table->rows = calloc(n + 1, sizeof(*table->rows));
	if (!table->rows)
		return;
	for (const struct process *process = all->first; process; process = process->next)
		if (is_wanted(process, only))
			add_rows(table, process);
}

void table_free(struct table *table)
{
	free(table->rows);
}

/* ---- sorting ---- */

struct order {
	int column;
	const char *text; /* of a column that has no number */
	bool ascending;
};

/* "mlx5_0/9" before "mlx5_0/10". */
static int compare_names(const struct row *a, const struct row *b)
{
	int order = strverscmp(a->name, b->name);

	if (!order)
		order = (a->process->pid > b->process->pid) - (a->process->pid < b->process->pid);
	return order;
}

static const char *text_of(const struct row *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row->now, key));

	return text ? text : "";
}

static int compare_rows(const void *left, const void *right, void *arg)
{
	const struct row *a = left, *b = right;
	const struct order *by = arg;
	double x = by->column < 0 ? 0 : a->value[by->column];
	double y = by->column < 0 ? 0 : b->value[by->column];
	int order = (x > y) - (x < y);

	if (by->text)
		order = strcmp(text_of(a, by->text), text_of(b, by->text));
	else if (isnan(x) != isnan(y))
		return isnan(x) ? 1 : -1; /* what has no value stands last */
	if (order)
		return by->ascending ? order : -order;
	order = compare_names(a, b);
	return by->column < 0 && !by->ascending ? -order : order;
}

void table_sort(struct table *table, int column, bool ascending)
{
	struct order by = {.column = column, .ascending = ascending};

	if (column >= 0)
		by.text = table->view->columns[column].text;
	if (table->n)
		qsort_r(table->rows, table->n, sizeof(*table->rows), compare_rows, &by);
}

/* ---- drops ---- */

static const struct {
	enum kind kind;
	const char *key, *name;
} drop_keys[N_DROPS] = {
	{KIND_QUEUE, "rx_no_buf", "rx_no_buf"},
	{KIND_QUEUE, "tx_flushed", "tx_flushed"},
	{KIND_QUEUE, "rx_flushed", "rx_flushed"},
	{KIND_SRQ, "no_buf", "srq_no_buf"},
	{KIND_POOL, "empty", "pool_empty"},
	{KIND_PORT, "went_down", "port_went_down"},
	{KIND_CHANNELS, "failed", "channels_failed"},
	{KIND_CHANNELS, "faults", "channels_faults"},
	{KIND_CHANNELS, "dropped", "channels_dropped"},
};

static double sum_of(const json_t *list, const char *key)
{
	double sum = 0, value;
	size_t i;
	json_t *object;

	json_array_foreach(list, i, object)
	{
		value = object_number(object, key);
		sum += isnan(value) ? 0 : value;
	}
	return sum;
}

static void add_drops(const struct process *process, int i, struct drops *drops)
{
	const enum kind kind = drop_keys[i].kind;
	double now = sum_of(process->now[kind], drop_keys[i].key);
	double before = sum_of(process->before[kind], drop_keys[i].key);

	drops->total += (uint64_t)now;
	if (process->before[kind] && now > before)
		drops->rate +=
			(now - before) * 1e9 / (double)(process->now_ns - process->before_ns);
}

void drops_sum(const struct processes *all, pid_t only, struct drops drops[N_DROPS])
{
	for (int i = 0; i < N_DROPS; i++) {
		drops[i] = (struct drops){.name = drop_keys[i].name};
		for (const struct process *process = all->first; process; process = process->next)
			if (is_wanted(process, only))
				add_drops(process, i, &drops[i]);
	}
}

/* ---- the control thread ---- */

#define KEPT_MS 1000 /* opening a device takes less */

double process_kept(const struct process *process, int *waiting)
{
	const json_t *control = json_array_get(process->now[KIND_CONTROL], 0);
	double busy_ms = object_number(control, "busy_ms");

	*waiting = 0;
	if (isnan(busy_ms) || busy_ms < KEPT_MS)
		return 0;
	*waiting = (int)fmax(object_number(control, "waiting"), 0);
	return busy_ms / 1000;
}

/* ---- text ---- */

const char *number_text(double value, char text[16])
{
	static const char units[] = " kMGTP";
	int unit = 0;

	if (isnan(value)) {
		snprintf(text, 16, "-");
		return text;
	}
	while (value >= 999.95 && unit < 5) {
		value /= 1000;
		unit++;
	}
	if (unit)
		snprintf(text, 16, value < 99.95 ? "%.2f %c" : "%.1f %c", value, units[unit]);
	else
		snprintf(text, 16, value == floor(value) ? "%.0f" : "%.1f", value);
	return text;
}

void cell_text(const struct row *row, const struct column *column, size_t i, char text[32])
{
	char short_text[16];
	double value = row->value[i];

	if (column->shown == SHOWN_TEXT)
		snprintf(text, 32, "%.20s", text_of(row, column->text));
	else if (isnan(value))
		snprintf(text, 32, "-");
	else if (column->shown == SHOWN_SHARE)
		snprintf(text, 32, "%.0f %%", 100 * value);
	else if (column->shown == SHOWN_COUNT)
		snprintf(text, 32, "%.0f", value);
	else
		snprintf(text, 32, "%s", number_text(value, short_text));
	make_printable(text);
}

/* ---- JSON ---- */

static json_t *row_json(const struct row *row, const struct view *view)
{
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(row->name));
	for (size_t i = 0; i < view->n_columns; i++) {
		const struct column *column = &view->columns[i];

		if (!column->key || !strcmp(column->key, "pid"))
			continue;
		json_object_set_new(object, column->key,
			column->shown == SHOWN_TEXT    ? json_string(text_of(row, column->text))
				: isnan(row->value[i]) ? json_null()
				: column->shown == SHOWN_COUNT
				? json_integer((json_int_t)row->value[i])
				: json_number(row->value[i]));
	}
	if (view->kind == KIND_QUEUE)
		json_object_set_new(object, "failed", json_boolean(row->alarming));
	return object;
}

static json_t *view_json(const struct view *view, const struct processes *all, pid_t pid)
{
	json_t *list = json_array();
	struct table table;

	table_build(&table, view, all, pid);
	for (size_t i = 0; i < table.n; i++)
		json_array_append_new(list, row_json(&table.rows[i], view));
	table_free(&table);
	return list;
}

static json_t *drops_json(const struct processes *all, pid_t pid)
{
	json_t *object = json_object();
	struct drops drops[N_DROPS];

	drops_sum(all, pid, drops);
	for (int i = 0; i < N_DROPS; i++)
		json_object_set_new(
			object, drops[i].name, json_integer((json_int_t)drops[i].total));
	return object;
}

static json_t *process_json(const struct processes *all, const struct process *process)
{
	json_t *object = json_pack("{s:i,s:s,s:s,s:f,s:b}", "pid", process->pid, "name",
		process->name, "prefix", process->prefix, "seconds",
		process->before_ns ? (double)(process->now_ns - process->before_ns) / 1e9 : 0.0,
		"answers", !process->silent);
	int waiting;
	double kept = process_kept(process, &waiting);

	for (size_t i = 0; i < n_views; i++)
		json_object_set_new(object, views[i].name, view_json(&views[i], all, process->pid));
	json_object_set_new(object, "drops", drops_json(all, process->pid));
	json_object_set_new(object, "control",
		json_pack("{s:f,s:i}", "kept_seconds", kept, "waiting", waiting));
	return object;
}

json_t *top_json(const struct processes *all)
{
	json_t *list = json_array();

	for (const struct process *process = all->first; process; process = process->next)
		if (!process->foreign)
			json_array_append_new(list, process_json(all, process));
	return json_pack(
		"{s:s,s:s,s:o}", "tool", "top", "version", vbn_version(), "processes", list);
}
