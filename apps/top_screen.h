/* top_screen.h - the live screen of `verbena top`
 *
 *     top_screen.c      what it is made from, keys, the loop
 *     top_draw.c        what it shows
 *     top_terminal.c    the terminal, and frames of it
 */
#ifndef TOP_SCREEN_H
#define TOP_SCREEN_H

#include "top.h"

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

/* ---- top_terminal.c ---- */

struct terminal {
	bool utf8, color;
	bool ours; /* set up for the screen */
	int rows, columns;
};
extern struct terminal terminal;

/* Also where the terminal is not the one that controls this process: then nobody takes it away. */
bool terminal_in_foreground(void);
void terminal_find_abilities(void);
void terminal_find_size(void);
/* SIGTSTP is done when it suits; a change of size ends a wait. */
void terminal_take_signals(void);
void terminal_suspend_if_asked(void);
/* 0 or an exit status. */
int terminal_enter(void);
void terminal_leave(void);

/* Lines that are cut at the terminal's edge; what is below the last row is left out. */
struct frame {
	int column, row;
};
extern struct frame frame;

void frame_begin(void);
/* What takes no place: colours. */
void frame_style(const char *sequence);
/* One character of one column, which may be several bytes. */
void frame_glyph(const char *glyph);
void frame_put(const char *text);
void frame_format(const char *fmt, ...) printf_like(1, 2);
void frame_fill_to(int column);
void frame_clear_rest(void);
void frame_end_line(void);
void frame_end(void);

/* ---- top_draw.c ---- */

void screen_draw(struct state *state);
/* Of a table, that fit. */
size_t screen_rows(void);

#endif
