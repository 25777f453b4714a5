/* top_draw.c - what the live screen shows: the title, the views, a table or what stands in for it, the keys */
#include "top_screen.h"

#include <math.h>
#include <time.h>

enum { FIRST_ROW = 4, TABLE_WIDTH = 81, WIDE = TABLE_WIDTH + 19 };

static const char *glyph_of(double share)
{
	static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const plain[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
	int level = isnan(share) ? 0 : (int)ceil(fmin(fmax(share, 0), 1) * 8);

	return terminal.utf8 ? bars[level] : plain[level];
}

/* The latest of it. */
static void put_spark(const struct row *row, int width)
{
	int from = N_HISTORY - (width - 1);

	frame_glyph(" ");
	frame_style("32");
	for (int i = from; i < N_HISTORY; i++)
		frame_glyph(row->has_history ? glyph_of(row->history[i]) : " ");
	frame_style("39");
}

static void put_right(const char *text, int width)
{
	frame_fill_to(frame.column + width - (int)strlen(text));
	frame_put(text);
}

/* What an object has failed of, "" where it has not; what cannot be seen is shown so. */
static const char *error_of(const struct row *row, char text[256])
{
	const char *error = json_string_value(json_object_get(row->now, "error"));

	snprintf(text, 256, "%s", error ? error : "");
	make_printable(text);
	return text;
}

/* On a wide terminal: whose the line is, and what it has failed of. */
static void put_beside(const struct row *row)
{
	char error[256];

	frame_fill_to(TABLE_WIDTH);
	frame_format(" %-16.16s %s", row->process->name, error_of(row, error));
}

static void put_row(const struct state *state, const struct row *row, bool selected)
{
	const struct view *view = state->table.view;
	char text[32];

	if (selected)
		frame_style("7");
	if (row->alarming)
		frame_style("31");
	frame_format("%-*.*s", view->width, view->width, row->name);
	for (size_t i = 0; i < view->n_columns; i++) {
		const struct column *column = &view->columns[i];

		if (column->shown == SHOWN_SPARK) {
			put_spark(row, column->width);
			continue;
		}
		cell_text(row, column, i, text);
		put_right(text, column->width);
	}
	if (terminal.columns >= WIDE)
		put_beside(row);
	frame_fill_to(terminal.columns);
	frame_style("0");
	frame_end_line();
}

static void put_head(const struct state *state)
{
	const struct view *view = state->table.view;
	const int sort = state->sort[state->view];
	const char *arrow = state->ascending[state->view] ? "^" : "v";
	char text[32];

	frame_style("1");
	snprintf(text, sizeof(text), "%s%s", view->title, sort < 0 ? arrow : "");
	frame_format("%-*s", view->width, text);
	for (size_t i = 0; i < view->n_columns; i++) {
		snprintf(text, sizeof(text), "%s%s", view->columns[i].title,
			(int)i == sort ? arrow : "");
		put_right(text, view->columns[i].width);
	}
	if (terminal.columns >= WIDE) {
		frame_fill_to(TABLE_WIDTH);
		frame_put(" PROGRAM");
	}
	frame_style("0");
	frame_end_line();
}

/* Sums over all workers of what is followed. */
static void put_totals(const struct state *state)
{
	struct table table;
	double busy = 0, messages = 0, bytes = 0;
	char a[16], b[16];

	table_build(&table, &views[0], &state->all, state->only);
	for (size_t i = 0; i < table.n; i++) {
		const double *value = table.rows[i].value;

		busy += isnan(value[2]) ? 0 : value[2];
		messages += isnan(value[4]) ? 0 : value[4];
		bytes += isnan(value[5]) ? 0 : value[5];
	}
	frame_format("%.1f/%zu busy  %s msg/s", busy, table.n, number_text(messages, a));
	if (terminal.columns >= WIDE)
		frame_format("  %s B/s", number_text(bytes, b));
	table_free(&table);
}

static void put_drops(const struct state *state)
{
	struct drops drops[N_DROPS];
	char rate[16], total[16];
	bool any = false;

	drops_sum(&state->all, state->only, drops);
	frame_put("drops:");
	for (int i = 0; i < N_DROPS; i++) {
		if (!drops[i].total)
			continue;
		any = true;
		if (drops[i].rate > 0)
			frame_style("31");
		frame_format(" %s %s", drops[i].name, number_text((double)drops[i].total, total));
		if (drops[i].rate > 0)
			frame_format(" (+%s/s)", number_text(drops[i].rate, rate));
		frame_style("0");
	}
	if (!any)
		frame_put(" none");
}

static void put_title(const struct state *state)
{
	time_t now = time(NULL);
	struct tm local;
	char clock[16];

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &local));
	frame_style("1");
	frame_format("verbena top  %s", clock);
	frame_style("0");
	frame_format("  every %.4g s  ", (double)state->interval_ns / 1e9);
	if (state->only)
		frame_format("process %d only", state->only);
	else
		frame_format("%d process%s", state->all.n, state->all.n == 1 ? "" : "es");
	for (const struct process *process = state->all.first; process; process = process->next)
		if (process->silent && !process->foreign)
			frame_format("  (%d does not answer)", process->pid);
	if (state->paused) {
		frame_put("  ");
		frame_style("7");
		frame_put(" PAUSED ");
		frame_style("0");
	}
	frame_end_line();
}

static void put_views(const struct state *state)
{
	for (size_t i = 0; i < n_views; i++) {
		if (i == state->view)
			frame_style("7");
		frame_format(" %zu %s ", i + 1, views[i].name);
		frame_style("0");
	}
	frame_put(" ");
	put_totals(state);
	frame_end_line();
}

static void put_key(const char *key, const char *what)
{
	frame_style("1");
	frame_put(key);
	frame_style("0");
	frame_put(" ");
	frame_put(what);
	frame_put("  ");
}

static void put_foot(const struct state *state)
{
	while (frame.row < terminal.rows - 2)
		frame_end_line();
	put_drops(state);
	frame_end_line();
	put_key("1-5", "view");
	put_key("s", "sort");
	put_key("r", "reverse");
	put_key("p", "pause");
	put_key("j/k", "pick");
	put_key("enter", state->only ? "all" : "one");
	put_key("?", "help");
	put_key("q", "quit");
	frame_clear_rest();
}

static const char *const help_lines[] = {
	"1 to 5, tab    workers, queues, pools, ports, channels (the first some hundred)",
	"up, down       pick a line; j and k, page up and page down do, too",
	"enter          follow the process of that line alone; again: all of them",
	"s, S           sort by the next column, by the one before; v and ^ mark it",
	"n              sort by name",
	"r              the other way round",
	"p, space       pause: nothing is asked until it is pressed again",
	"+, -           a longer, a shorter interval",
	"q, ctrl-c      end",
	"",
	"BUSY is the share of cycles in turns of the loop that found work, and how it",
	"was; BURST/S such turns a second, /BURST messages in one of them, CYC/MSG busy",
	"cycles a message. /BELL is messages a doorbell, FLIGHT sends not completed yet,",
	"DROPS receives without a buf and what was outstanding when a queue failed. A",
	"red line has failed, or is down; picked, it says of what.",
	NULL,
};

static void put_help(void)
{
	for (int i = 0; help_lines[i] && frame.row < terminal.rows - 3; i++) {
		frame_format("  %s", help_lines[i]);
		frame_end_line();
	}
}

static void put_nobody(const struct state *state)
{
	char why[160];

	frame_end_line();
	if (state->conf->pid)
		frame_format("  waiting: %s", absence(state->conf->pid, why));
	else
		frame_put("  waiting for a process that uses Verbena: none of yours listens");
	if (state->conf->prefix)
		frame_format(" with the prefix %s", state->conf->prefix);
	frame_end_line();
	if (state->all.n_foreign)
		frame_format("  (%d of DPDK's are there: dpdk-telemetry.py asks those)",
			state->all.n_foreign);
	frame_end_line();
}

/* The first process whose control thread is kept: what opens, connects or ends there does not go on. */
static bool put_kept(const struct state *state)
{
	const struct process *process = state->all.first;
	double kept = 0;
	int waiting;

	while (process && (kept = process_kept(process, &waiting)) <= 0)
		process = process->next;
	if (kept <= 0)
		return false;
	frame_style("31");
	frame_format(" %d: a device keeps its control thread, %.0f s, %d calls wait", process->pid,
		kept, waiting);
	frame_style("39");
	return true;
}

/* Whose the picked line is, or what is worse. */
static void put_picked(const struct state *state)
{
	const struct row *row = &state->table.rows[state->selected];
	char error[256];

	if (!put_kept(state) && state->selected < state->table.n) {
		frame_style(row->alarming ? "31" : "2");
		if (*error_of(row, error))
			frame_format(" %s", error);
		else
			frame_format(" %s, process %d, prefix %s", row->process->name,
				row->process->pid, row->process->prefix);
		frame_style("0");
	}
	frame_end_line();
}

size_t screen_rows(void)
{
	return (size_t)(terminal.rows > FIRST_ROW + 3 ? terminal.rows - FIRST_ROW - 2 : 1);
}

static void scroll(struct state *state)
{
	size_t fit = screen_rows();

	if (state->selected < state->top)
		state->top = state->selected;
	if (state->selected >= state->top + fit)
		state->top = state->selected - fit + 1;
}

static void put_table(struct state *state)
{
	size_t end;

	scroll(state);
	end = state->top + screen_rows();
	put_head(state);
	for (size_t i = state->top; i < state->table.n && i < end; i++)
		put_row(state, &state->table.rows[i], i == state->selected);
}

void screen_draw(struct state *state)
{
	terminal_find_size();
	frame_begin();
	put_title(state);
	put_views(state);
	put_picked(state);
	if (state->help)
		put_help();
	else if (!state->all.n)
		put_nobody(state);
	else
		put_table(state);
	put_foot(state);
	frame_end();
}
