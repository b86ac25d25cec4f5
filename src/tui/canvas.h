/* canvas.h: a grid of character cells that panes draw into: text, symbols, bars, clipped to rectangles.
 *
 * Knows display widths and roles of colour, not terminals: screen.c shows a canvas through curses, `:dump` writes it as
 * text, tests look at it in memory.  Without UTF-8 every symbol has an ASCII form and other text shows '?' where a
 * character cannot be written.  UI thread only; a canvas owns its cells.
 */
#ifndef RK_TUI_CANVAS_H
#define RK_TUI_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>
#include "base/err.h"

/* What a cell means; a theme says how that looks (theme.h has the names, in this order). */
enum rk_role {
	RK_ROLE_TEXT, RK_ROLE_DIM, RK_ROLE_TITLE, RK_ROLE_FOCUS, RK_ROLE_RULE, RK_ROLE_KEY, RK_ROLE_USER, RK_ROLE_NOTE,
	RK_ROLE_GOOD, RK_ROLE_WARN, RK_ROLE_ERROR, RK_ROLE_CURSOR, RK_ROLE_MATCH, RK_ROLE_DIFFERS,
	RK_ROLE_FULL, RK_ROLE_PARTIAL, RK_ROLE_CHECK, RK_ROLE_BAR, RK_ROLE_BASE,
	RK_ROLE_SINK, RK_ROLE_PROMPT, RK_ROLE_GENERATED, RK_ROLE_RECENT,
	RK_ROLE_SHADE1, RK_ROLE_SHADE2, RK_ROLE_SHADE3, RK_ROLE_SHADE4,	/* a token's share of full layers: above 0, 1/4, 1/2, 3/4 */
	RK_N_ROLE
};

enum rk_sym {
	RK_SYM_HLINE, RK_SYM_VLINE, RK_SYM_FULL, RK_SYM_MOST, RK_SYM_HALF, RK_SYM_SOME, RK_SYM_GLANCE, RK_SYM_CHECK,
	RK_SYM_DOT, RK_SYM_MORE, RK_SYM_POINT, RK_SYM_TIMES,
	RK_SYM_SINK, RK_SYM_PROMPT, RK_SYM_GENERATED, RK_SYM_RECENT,
	RK_N_SYM
};

#define RK_COMBINING 2	/* marks kept on top of a character; more are dropped */

typedef struct rk_glyph {
	wchar_t ch[1 + RK_COMBINING];	/* ch[0] 0: blank; unused marks are 0 */
	uint8_t width;			/* 1 or 2 columns; 0: the right half of the cell to the left */
	uint8_t role;
} rk_glyph;

typedef struct rk_rect { int x, y, w, h; } rk_rect;

typedef struct rk_canvas {
	int cols, rows;
	bool utf8;
	rk_glyph *cell;		/* [rows][cols] */
} rk_canvas;

int rk_canvas_resize(rk_canvas *c, int cols, int rows, rk_err *e);	/* also the first time; the content is cleared */
void rk_canvas_free(rk_canvas *c);
void rk_canvas_clear(rk_canvas *c);
void rk_canvas_write(const rk_canvas *c, FILE *f);	/* as text, lines without trailing blanks */

/* Columns that a character takes: 0 for marks and controls, 1 or 2; one rule for the whole program. */
int rk_char_width(int32_t cp);
/* The next character of UTF-8 text (an ill-formed byte is U+FFFD); returns its bytes, >= 1 where len > 0. */
size_t rk_char_next(const char *s, size_t len, int32_t *cp);
int rk_text_width(const char *s, size_t len);

/* Drawing: x, y are relative to r and everything outside r is cut off.  put and putf return the column after the text. */
int rk_put(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *s, size_t len);
int rk_puts(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *s);
int rk_putf(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* As putf where the whole text fits, else nothing: for what a narrow pane can do without. */
int rk_put_fit(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
void rk_put_right(rk_canvas *c, rk_rect r, int y, enum rk_role role, const char *s);	/* ends at r's right edge */
int rk_put_sym(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, enum rk_sym sym);
void rk_put_line(rk_canvas *c, rk_rect r, int x, int y, int w, enum rk_role role, enum rk_sym sym);
void rk_put_vline(rk_canvas *c, rk_rect r, int x, enum rk_role role);
/* A bar of w columns of which frac (0 to 1) is filled, in eighths of a column where the terminal can. */
void rk_put_bar(rk_canvas *c, rk_rect r, int x, int y, int w, double frac, enum rk_role role);
/* One column of a curve: the bar of height frac that ends in row y, for a plot of one row. */
void rk_put_level(rk_canvas *c, rk_rect r, int x, int y, double frac, enum rk_role role);
/* A cell of a plot that is twice as fine as the rows: its upper half, its lower half, or both. */
void rk_put_halves(rk_canvas *c, rk_rect r, int x, int y, bool upper, bool lower, enum rk_role role);
void rk_fill(rk_canvas *c, rk_rect r, enum rk_role role);	/* blanks */
void rk_set_role(rk_canvas *c, rk_rect r, int x, int y, int w, enum rk_role role);

const char *rk_sym_text(const rk_canvas *c, enum rk_sym sym);

/* Numbers for people; NAN is n/a.  All return buf. */
#define RK_FMT 24
char *rk_fmt_real(char buf[RK_FMT], double v, int decimals);
char *rk_fmt_bytes(char buf[RK_FMT], double bytes);	/* "98.4 MB", decimal units */
char *rk_fmt_count(char buf[RK_FMT], int64_t n);	/* "12,345" */

#endif
