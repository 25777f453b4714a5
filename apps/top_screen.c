/* top_screen.c - the live screen: keys, a frame at a time, and the terminal as it was afterwards */
#include "top.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000

enum { MAX_FRAME = 1 << 16, FIRST_ROW = 4, TABLE_WIDTH = 81, WIDE = TABLE_WIDTH + 19 };

/* Keys that are more than one byte. */
enum { KEY_NONE, KEY_UP = 256, KEY_DOWN, KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_ESCAPE };

/* ---- the terminal ---- */

static struct {
	struct termios before;
	bool utf8, color;
	bool ours; /* set up for the screen */
	int rows, columns;
} terminal;

/* Set by signals. */
static volatile sig_atomic_t suspended;

static void on_suspend(int signal)
{
	(void)signal;
	suspended = 1;
}

/* Interrupts poll(), and the size is asked for with each frame. */
static void on_resize(int signal)
{
	(void)signal;
}

/* Also where the terminal is not the one that controls this process: then nobody takes it away. */
static bool in_foreground(void)
{
	pid_t group = tcgetpgrp(STDIN_FILENO);

	return group < 0 || group == getpgrp();
}

bool screen_possible(void)
{
	const char *term = getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
		strcmp(term, "dumb") && in_foreground();
}

static void put_out(const char *text, size_t len)
{
	ssize_t n;

	while (len && (n = write(STDOUT_FILENO, text, len)) > 0) {
		text += n;
		len -= (size_t)n;
	}
}

static void put_string(const char *text)
{
	put_out(text, strlen(text));
}

static int enter(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal.before))
		return cannot(
			"the terminal cannot be set up: %s; take --count, or send the output to a file",
			strerror(errno));
	raw = terminal.before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	put_string("\033[?1049h\033[?25l\033[2J");
	terminal.ours = true;
	return 0;
}

/* A terminal that another job has by now is as that one wants it. */
static void leave(void)
{
	if (!terminal.ours || !in_foreground())
		return;
	put_string("\033[0m\033[?25h\033[?1049l");
	tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
	terminal.ours = false;
}

static void suspend(void)
{
	suspended = 0;
	leave();
	terminal.ours = false;
	raise(SIGSTOP);
}

static void find_size(void)
{
	struct winsize size;

	terminal.rows = 24;
	terminal.columns = 80;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col) {
		terminal.rows = size.ws_row;
		terminal.columns = size.ws_col;
	}
}

static void find_abilities(void)
{
	const char *no_color = getenv("NO_COLOR");

	setlocale(LC_CTYPE, "");
	terminal.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	terminal.color = !no_color || !*no_color;
}

/* ---- a frame: lines that are cut at the terminal's edge ---- */

static struct {
	char text[MAX_FRAME];
	size_t len;
	int column, row;
} frame;

/* What is below the last row is left out. */
static void add(const char *text, size_t len)
{
	if (frame.row >= terminal.rows || frame.len + len > sizeof(frame.text))
		return;
	memcpy(frame.text + frame.len, text, len);
	frame.len += len;
}

/* What takes no place: colours. */
static void style(const char *sequence)
{
	if (terminal.color || !strcmp(sequence, "0") || !strcmp(sequence, "7") ||
		!strcmp(sequence, "1") || !strcmp(sequence, "2")) {
		add("\033[", 2);
		add(sequence, strlen(sequence));
		add("m", 1);
	}
}

/* One character of one column, which may be several bytes. */
static void put_glyph(const char *glyph)
{
	if (frame.column < terminal.columns)
		add(glyph, strlen(glyph));
	frame.column++;
}

static void put(const char *text)
{
	for (; *text; text++)
		put_glyph((char[]){*text, '\0'});
}

static void put_format(const char *fmt, ...) printf_like(1, 2);
static void put_format(const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	put(text);
}

static void fill_to(int column)
{
	while (frame.column < column)
		put_glyph(" ");
}

/* No new line behind the last row, so that the screen does not scroll. */
static void end_line(void)
{
	add("\033[K", 3);
	if (frame.row + 1 < terminal.rows)
		add("\r\n", 2);
	frame.row++;
	frame.column = 0;
}

static void begin_frame(void)
{
	frame.len = 0;
	frame.row = frame.column = 0;
	add("\033[H", 3);
}

static void end_frame(void)
{
	put_out(frame.text, frame.len);
	put_string("\033[J");
}

/* ---- what is shown ---- */

struct state {
	const struct screen_conf *conf;
	struct processes all;
	struct table table;
	size_t view;
	int sort[8]; /* of each view: its column; -1: by name */
	bool ascending[8];
	size_t selected, top;
	uint32_t selected_id; /* what is selected stays so as it moves */
	pid_t selected_pid;
	pid_t only;
	int64_t interval_ns;
	uint64_t next_ns;
	int64_t left; /* samples; 0: no end */
	bool looked, paused, help, done;
};

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

	put_glyph(" ");
	style("32");
	for (int i = from; i < N_HISTORY; i++)
		put_glyph(row->has_history ? glyph_of(row->history[i]) : " ");
	style("39");
}

static void put_right(const char *text, int width)
{
	fill_to(frame.column + width - (int)strlen(text));
	put(text);
}

/* What an object has failed of, "" where it has not; what cannot be seen is shown so. */
static const char *error_of(const struct row *row, char text[256])
{
	const char *error = json_string_value(json_object_get(row->now, "error"));

	snprintf(text, 256, "%s", error ? error : "");
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
			*c = '?';
	return text;
}

/* On a wide terminal: whose the line is, and what it has failed of. */
static void put_beside(const struct row *row)
{
	char error[256];

	fill_to(TABLE_WIDTH);
	put_format(" %-16.16s %s", row->process->name, error_of(row, error));
}

static void put_row(const struct state *state, const struct row *row, bool selected)
{
	const struct view *view = state->table.view;
	char text[32];

	if (selected)
		style("7");
	if (row->alarming)
		style("31");
	put_format("%-*.*s", view->width, view->width, row->name);
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
	fill_to(terminal.columns);
	style("0");
	end_line();
}

static void put_head(const struct state *state)
{
	const struct view *view = state->table.view;
	const int sort = state->sort[state->view];
	const char *arrow = state->ascending[state->view] ? "^" : "v";
	char text[32];

	style("1");
	snprintf(text, sizeof(text), "%s%s", view->title, sort < 0 ? arrow : "");
	put_format("%-*s", view->width, text);
	for (size_t i = 0; i < view->n_columns; i++) {
		snprintf(text, sizeof(text), "%s%s", view->columns[i].title,
			(int)i == sort ? arrow : "");
		put_right(text, view->columns[i].width);
	}
	if (terminal.columns >= WIDE) {
		fill_to(TABLE_WIDTH);
		put(" PROGRAM");
	}
	style("0");
	end_line();
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
	put_format("%.1f/%zu busy  %s msg/s", busy, table.n, number_text(messages, a));
	if (terminal.columns >= WIDE)
		put_format("  %s B/s", number_text(bytes, b));
	table_free(&table);
}

static void put_drops(const struct state *state)
{
	struct drops drops[N_DROPS];
	char rate[16], total[16];
	bool any = false;

	drops_sum(&state->all, state->only, drops);
	put("drops:");
	for (int i = 0; i < N_DROPS; i++) {
		if (!drops[i].total)
			continue;
		any = true;
		if (drops[i].rate > 0)
			style("31");
		put_format(" %s %s", drops[i].name, number_text((double)drops[i].total, total));
		if (drops[i].rate > 0)
			put_format(" (+%s/s)", number_text(drops[i].rate, rate));
		style("0");
	}
	if (!any)
		put(" none");
}

static void put_title(const struct state *state)
{
	time_t now = time(NULL);
	struct tm local;
	char clock[16];

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &local));
	style("1");
	put_format("verbena top  %s", clock);
	style("0");
	put_format("  every %.4g s  ", (double)state->interval_ns / 1e9);
	if (state->only)
		put_format("process %d only", state->only);
	else
		put_format("%d process%s", state->all.n, state->all.n == 1 ? "" : "es");
	for (const struct process *process = state->all.first; process; process = process->next)
		if (process->silent && !process->foreign)
			put_format("  (%d does not answer)", process->pid);
	if (state->paused) {
		put("  ");
		style("7");
		put(" PAUSED ");
		style("0");
	}
	end_line();
}

static void put_views(const struct state *state)
{
	for (size_t i = 0; i < n_views; i++) {
		if (i == state->view)
			style("7");
		put_format(" %zu %s ", i + 1, views[i].name);
		style("0");
	}
	put(" ");
	put_totals(state);
	end_line();
}

static void put_key(const char *key, const char *what)
{
	style("1");
	put(key);
	style("0");
	put(" ");
	put(what);
	put("  ");
}

static void put_foot(const struct state *state)
{
	while (frame.row < terminal.rows - 2)
		end_line();
	put_drops(state);
	end_line();
	put_key("1-5", "view");
	put_key("s", "sort");
	put_key("r", "reverse");
	put_key("p", "pause");
	put_key("j/k", "pick");
	put_key("enter", state->only ? "all" : "one");
	put_key("?", "help");
	put_key("q", "quit");
	add("\033[K", 3);
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
		put_format("  %s", help_lines[i]);
		end_line();
	}
}

static void put_nobody(const struct state *state)
{
	char why[160];

	end_line();
	if (state->conf->pid)
		put_format("  waiting: %s", absence(state->conf->pid, why));
	else
		put("  waiting for a process that uses Verbena: none of yours listens");
	if (state->conf->prefix)
		put_format(" with the prefix %s", state->conf->prefix);
	end_line();
	if (state->all.n_foreign)
		put_format("  (%d of DPDK's are there: dpdk-telemetry.py asks those)",
			state->all.n_foreign);
	end_line();
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
	style("31");
	put_format(" %d: a device keeps its control thread, %.0f s, %d calls wait", process->pid,
		kept, waiting);
	style("39");
	return true;
}

/* Whose the picked line is, or what is worse. */
static void put_picked(const struct state *state)
{
	const struct row *row = &state->table.rows[state->selected];
	char error[256];

	if (!put_kept(state) && state->selected < state->table.n) {
		style(row->alarming ? "31" : "2");
		if (*error_of(row, error))
			put_format(" %s", error);
		else
			put_format(" %s, process %d, prefix %s", row->process->name,
				row->process->pid, row->process->prefix);
		style("0");
	}
	end_line();
}

static size_t rows_that_fit(void)
{
	return (size_t)(terminal.rows > FIRST_ROW + 3 ? terminal.rows - FIRST_ROW - 2 : 1);
}

static void scroll(struct state *state)
{
	size_t fit = rows_that_fit();

	if (state->selected < state->top)
		state->top = state->selected;
	if (state->selected >= state->top + fit)
		state->top = state->selected - fit + 1;
}

static void put_table(struct state *state)
{
	size_t end;

	scroll(state);
	end = state->top + rows_that_fit();
	put_head(state);
	for (size_t i = state->top; i < state->table.n && i < end; i++)
		put_row(state, &state->table.rows[i], i == state->selected);
}

static void draw(struct state *state)
{
	find_size();
	begin_frame();
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
	end_frame();
}

/* ---- what it is made from ---- */

/* The line that was picked stays so. */
static void select_again(struct state *state)
{
	for (size_t i = 0; i < state->table.n; i++) {
		if (state->table.rows[i].id != state->selected_id ||
			state->table.rows[i].process->pid != state->selected_pid)
			continue;
		state->selected = i;
		return;
	}
	if (state->selected >= state->table.n)
		state->selected = state->table.n ? state->table.n - 1 : 0;
}

static void note_selected(struct state *state)
{
	if (state->selected >= state->table.n)
		return;
	state->selected_id = state->table.rows[state->selected].id;
	state->selected_pid = state->table.rows[state->selected].process->pid;
}

static bool is_followed(const struct state *state, pid_t pid)
{
	for (const struct process *process = state->all.first; process; process = process->next)
		if (process->pid == pid)
			return true;
	return false;
}

static void build(struct state *state)
{
	if (state->only && !is_followed(state, state->only))
		state->only = 0;
	table_free(&state->table);
	table_build(&state->table, &views[state->view], &state->all, state->only);
	table_sort(&state->table, state->sort[state->view], state->ascending[state->view]);
	select_again(state);
}

static void sample(struct state *state)
{
	int64_t wait;

	processes_find(&state->all, state->conf->prefix, state->conf->pid);
	processes_ask(&state->all);
	/* Nothing can be said after one look, so the second comes soon. */
	wait = state->looked ? state->interval_ns : state->interval_ns / 4;
	state->looked = true;
	state->next_ns = now_ns() + (uint64_t)wait;
	if (state->left && !--state->left)
		state->done = true;
}

/* ---- keys ---- */

static void change_view(struct state *state, size_t view)
{
	state->view = view;
	state->selected = state->top = 0;
	state->selected_pid = 0;
	state->help = false;
}

/* To the next column with a value, and past the last one to the name. */
static void change_sort(struct state *state, int step)
{
	const struct view *view = &views[state->view];
	int *sort = &state->sort[state->view];

	do {
		*sort += step;
		if (*sort >= (int)view->n_columns)
			*sort = -1;
		else if (*sort < -1)
			*sort = (int)view->n_columns - 1;
	} while (*sort >= 0 && view->columns[*sort].shown == SHOWN_SPARK);
	/* Names as in a book, of numbers the largest first. */
	state->ascending[state->view] = *sort < 0 || view->columns[*sort].text;
}

static void move(struct state *state, int by)
{
	size_t last = state->table.n ? state->table.n - 1 : 0;

	if (by < 0)
		state->selected -= state->selected < (size_t)-by ? state->selected : (size_t)-by;
	else
		state->selected =
			state->selected + (size_t)by > last ? last : state->selected + (size_t)by;
	note_selected(state);
}

static void change_interval(struct state *state, bool longer)
{
	int64_t interval = longer ? state->interval_ns * 2 : state->interval_ns / 2;

	if (interval >= 100 * NS_PER_MS && interval <= 64000ll * NS_PER_MS)
		state->interval_ns = interval;
	state->next_ns = now_ns() + (uint64_t)state->interval_ns;
}

static void toggle_process(struct state *state)
{
	if (state->only)
		state->only = 0;
	else if (state->selected < state->table.n)
		state->only = state->table.rows[state->selected].process->pid;
}

static void on_key(struct state *state, int key)
{
	const int page = (int)rows_that_fit();

	if (key >= '1' && key < '1' + (int)n_views) {
		change_view(state, (size_t)(key - '1'));
		return;
	}
	switch (key) {
	case '\t': change_view(state, (state->view + 1) % n_views); break;
	case 's': change_sort(state, 1); break;
	case 'S': change_sort(state, -1); break;
	case 'n':
		state->sort[state->view] = -1;
		state->ascending[state->view] = true;
		break;
	case 'r': state->ascending[state->view] = !state->ascending[state->view]; break;
	case 'p':
	case ' ': state->paused = !state->paused; break;
	case 'k':
	case KEY_UP: move(state, -1); break;
	case 'j':
	case KEY_DOWN: move(state, 1); break;
	case KEY_PAGE_UP: move(state, -page); break;
	case KEY_PAGE_DOWN: move(state, page); break;
	case '\n':
	case '\r': toggle_process(state); break;
	case '+': change_interval(state, true); break;
	case '-': change_interval(state, false); break;
	case '?':
	case 'h': state->help = !state->help; break;
	case KEY_ESCAPE: state->help = false; break;
	case 'q':
	case 4: state->done = true; break;
	default: break;
	}
}

/* The next key of what was typed; what it does not know of a sequence is left out. */
static int next_key(const char **at, const char *end)
{
	static const struct {
		const char *sequence;
		int key;
	} known[] = {{"\033[A", KEY_UP}, {"\033OA", KEY_UP}, {"\033[B", KEY_DOWN},
		{"\033OB", KEY_DOWN}, {"\033[5~", KEY_PAGE_UP}, {"\033[6~", KEY_PAGE_DOWN}};
	size_t left = (size_t)(end - *at);

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		size_t len = strlen(known[i].sequence);

		if (left < len || strncmp(*at, known[i].sequence, len))
			continue;
		*at += len;
		return known[i].key;
	}
	if (**at != '\033')
		return (unsigned char)*(*at)++;
	if (left == 1) {
		(*at)++;
		return KEY_ESCAPE;
	}
	*at += 2;
	while (*at < end && (unsigned char)(*at)[-1] < '@')
		(*at)++;
	return KEY_NONE;
}

/* False: the terminal is gone. */
static bool read_keys(struct state *state)
{
	char typed[64];
	ssize_t n = read(STDIN_FILENO, typed, sizeof(typed));
	const char *at = typed;

	if (n <= 0) /* EIO: by now another job has the keys */
		return n < 0 && (errno == EINTR || errno == EAGAIN || !in_foreground());
	while (at < typed + n)
		on_key(state, next_key(&at, typed + n));
	return true;
}

/* ---- the loop ---- */

static void wait_for_key_or_time(struct state *state)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t now = now_ns();
	uint64_t wait_ms = state->next_ns > now ? (state->next_ns - now) / NS_PER_MS + 1 : 0;

	if (state->paused || wait_ms > 500)
		wait_ms = 500; /* a signal may have come just before */
	if (poll(&in, 1, (int)wait_ms) > 0 && !read_keys(state))
		state->done = true;
	if (stop_signal())
		state->done = true;
}

/* In the background there is nothing to draw on, and no key to read. False: not now. */
static bool have_terminal(struct state *state)
{
	if (suspended)
		suspend();
	if (!in_foreground())
		terminal.ours = false;
	else if (terminal.ours || !enter())
		return true;
	nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
	state->done = stop_signal();
	return false;
}

static void loop(struct state *state)
{
	while (!state->done) {
		if (!have_terminal(state))
			continue;
		if (!state->paused && now_ns() >= state->next_ns)
			sample(state);
		build(state);
		draw(state);
		if (!state->done)
			wait_for_key_or_time(state);
	}
}

static void take_signals(void)
{
	struct sigaction action = {.sa_handler = on_suspend};

	sigaction(SIGTSTP, &action, NULL);
	action.sa_handler = on_resize;
	sigaction(SIGWINCH, &action, NULL);
	/* They would stop a call that SIGTERM then only begins again. */
	action.sa_handler = SIG_IGN;
	sigaction(SIGTTOU, &action, NULL);
	sigaction(SIGTTIN, &action, NULL);
	stop_signals_take();
}

int screen_run(const struct screen_conf *conf)
{
	struct state state = {.conf = conf,
		.interval_ns = conf->interval_ns,
		.left = conf->count ? conf->count + 1 : 0};
	int status;

	for (size_t i = 0; i < n_views; i++)
		state.sort[i] = (int)views[i].sort;
	find_abilities();
	take_signals();
	status = enter();
	if (status)
		return status;
	loop(&state);
	leave();
	table_free(&state.table);
	processes_free(&state.all);
	return STATUS_DONE;
}
