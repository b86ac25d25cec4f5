/* screen.h: the terminal, through ncurses: opening, restoring whatever happens, showing a canvas, reading keys.
 *
 * The only file that knows curses.  One screen per process: the crash handler needs to find it.  UI thread only, except
 * for rk_screen_emergency, which is safe in a signal handler.
 */
#ifndef RK_TUI_SCREEN_H
#define RK_TUI_SCREEN_H

#include <stdio.h>
#include "tui/keys.h"
#include "tui/theme.h"

enum rk_color_mode { RK_COLOR_AUTO, RK_COLOR_ALWAYS, RK_COLOR_NEVER };

typedef struct rk_screen_cfg {
	enum rk_color_mode color;
	bool mouse;
	bool ascii;		/* no drawing characters even in a UTF-8 locale */
} rk_screen_cfg;

typedef struct rk_screen {
	bool open, utf8, mouse;
	int n_color;		/* 0, 8, 16, 256, or 1 << 24 */
	int fd;			/* of the keyboard; -1: none */
	int mouse_x, mouse_y, mouse_wheel;	/* of the last RK_KEY_MOUSE; wheel: -1 up, 1 down, 0 a click */
	const rk_theme *theme;
} rk_screen;

/* Keys come from standard input where that is a terminal, else from /dev/tty.  Errors leave the terminal untouched. */
int rk_screen_open(rk_screen *s, const rk_screen_cfg *cfg, rk_err *e);
/* The screen of an xterm of that size without a terminal and without keys: its bytes go to the descriptor of f, an empty
 * file, and the caller takes them out.  f must outlive the screen. */
int rk_screen_open_file(rk_screen *s, FILE *f, int cols, int rows, rk_err *e);
void rk_screen_close(rk_screen *s);
/* Leaves the terminal to a shell, and takes it back (also after a resize meanwhile). */
void rk_screen_suspend(rk_screen *s);
void rk_screen_resume(rk_screen *s);

void rk_screen_size(const rk_screen *s, int *cols, int *rows);	/* asks the terminal */
void rk_screen_resized(rk_screen *s, int cols, int rows);
void rk_screen_theme(rk_screen *s, const rk_theme *t);	/* t must stay */
void rk_screen_mouse(rk_screen *s, bool on);
/* Shows the canvas; the terminal's cursor at (x, y), or hidden where x < 0. */
void rk_screen_show(rk_screen *s, const rk_canvas *c, int x, int y);
int32_t rk_screen_key(rk_screen *s);	/* the next key; RK_KEY_NONE: none waits; -1: the terminal is gone */

/* Puts the terminal back as it was found; async-signal-safe. */
void rk_screen_emergency(void);

#endif
