/* top_screen.c - the live screen: samples, keys, the loop */
#include "top_screen.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000

/* Keys that are more than one byte. */
enum { KEY_NONE, KEY_UP = 256, KEY_DOWN, KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_ESCAPE };

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

	processes_look(&state->all, state->conf->prefix, state->conf->pid);
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
	const int page = (int)screen_rows();

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
		return n < 0 && (errno == EINTR || errno == EAGAIN || !terminal_in_foreground());
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
	terminal_suspend_if_asked();
	if (!terminal_in_foreground())
		terminal.ours = false;
	else if (terminal.ours || !terminal_enter())
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
		screen_draw(state);
		if (!state->done)
			wait_for_key_or_time(state);
	}
}

int screen_run(const struct screen_conf *conf)
{
	struct state state = {.conf = conf,
		.interval_ns = conf->interval_ns,
		.left = conf->count ? conf->count + 1 : 0};
	int status;

	for (size_t i = 0; i < n_views; i++)
		state.sort[i] = (int)views[i].sort;
	terminal_find_abilities();
	terminal_take_signals();
	stop_signals_take();
	status = terminal_enter();
	if (status)
		return status;
	loop(&state);
	terminal_leave();
	table_free(&state.table);
	processes_free(&state.all);
	return STATUS_DONE;
}
