/* top_terminal.c - the terminal of the live screen, and as it was before; frames that are put together and
 * written at once */
#include "top_screen.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_FRAME = 1 << 16 };

/* ---- the terminal ---- */

struct terminal terminal;

static struct termios before;

/* Set by a signal. */
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
bool terminal_in_foreground(void)
{
	pid_t group = tcgetpgrp(STDIN_FILENO);

	return group < 0 || group == getpgrp();
}

bool screen_possible(void)
{
	const char *term = getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
		strcmp(term, "dumb") && terminal_in_foreground();
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

int terminal_enter(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &before))
		return cannot(
			"the terminal cannot be set up: %s; take --count, or send the output to a file",
			strerror(errno));
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	put_string("\033[?1049h\033[?25l\033[2J");
	terminal.ours = true;
	return 0;
}

/* A terminal that another job has by now is as that one wants it. */
void terminal_leave(void)
{
	if (!terminal.ours || !terminal_in_foreground())
		return;
	put_string("\033[0m\033[?25h\033[?1049l");
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	terminal.ours = false;
}

void terminal_suspend_if_asked(void)
{
	if (!suspended)
		return;
	suspended = 0;
	terminal_leave();
	terminal.ours = false;
	raise(SIGSTOP);
}

void terminal_find_size(void)
{
	struct winsize size;

	terminal.rows = 24;
	terminal.columns = 80;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col) {
		terminal.rows = size.ws_row;
		terminal.columns = size.ws_col;
	}
}

void terminal_find_abilities(void)
{
	const char *no_color = getenv("NO_COLOR");

	setlocale(LC_CTYPE, "");
	terminal.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	terminal.color = !no_color || !*no_color;
}

void terminal_take_signals(void)
{
	struct sigaction action = {.sa_handler = on_suspend};

	sigaction(SIGTSTP, &action, NULL);
	action.sa_handler = on_resize;
	sigaction(SIGWINCH, &action, NULL);
	/* They would stop a call that SIGTERM then only begins again. */
	action.sa_handler = SIG_IGN;
	sigaction(SIGTTOU, &action, NULL);
	sigaction(SIGTTIN, &action, NULL);
}

/* ---- a frame: lines that are cut at the terminal's edge ---- */

static char text_of[MAX_FRAME];
static size_t text_len;
struct frame frame;

/* What is below the last row is left out. */
static void add(const char *text, size_t len)
{
	if (frame.row >= terminal.rows || text_len + len > sizeof(text_of))
		return;
	memcpy(text_of + text_len, text, len);
	text_len += len;
}

void frame_style(const char *sequence)
{
	if (terminal.color || !strcmp(sequence, "0") || !strcmp(sequence, "7") ||
		!strcmp(sequence, "1") || !strcmp(sequence, "2")) {
		add("\033[", 2);
		add(sequence, strlen(sequence));
		add("m", 1);
	}
}

void frame_glyph(const char *glyph)
{
	if (frame.column < terminal.columns)
		add(glyph, strlen(glyph));
	frame.column++;
}

void frame_put(const char *text)
{
	for (; *text; text++)
		frame_glyph((char[]){*text, '\0'});
}

void frame_format(const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	frame_put(text);
}

void frame_fill_to(int column)
{
	while (frame.column < column)
		frame_glyph(" ");
}

void frame_clear_rest(void)
{
	add("\033[K", 3);
}

/* No new line behind the last row, so that the screen does not scroll. */
void frame_end_line(void)
{
	frame_clear_rest();
	if (frame.row + 1 < terminal.rows)
		add("\r\n", 2);
	frame.row++;
	frame.column = 0;
}

void frame_begin(void)
{
	text_len = 0;
	frame.row = frame.column = 0;
	add("\033[H", 3);
}

void frame_end(void)
{
	put_out(text_of, text_len);
	put_string("\033[J");
}
