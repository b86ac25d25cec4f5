/* theme.h: how each role of the canvas looks: colours and attributes, read from themes/NAME.yaml.
 *
 * A line of a theme is `role: "COLOUR [on COLOUR] [bold] [dim] [underline] [reverse]"`, where COLOUR is default, one of the
 * sixteen names of a terminal (red, bright-red, ...) or "#rrggbb".  screen.c brings colours down to what the terminal has.
 */
#ifndef RK_TUI_THEME_H
#define RK_TUI_THEME_H

#include "tui/canvas.h"

#define RK_COLOR_DEFAULT (-1)
#define RK_COLOR_NAMED 0x1000000	/* + 0 to 15: the terminal's own palette */

enum { RK_ATTR_BOLD = 1, RK_ATTR_DIM = 2, RK_ATTR_UNDERLINE = 4, RK_ATTR_REVERSE = 8 };

typedef struct rk_style {
	int32_t fg, bg;		/* RK_COLOR_DEFAULT, RK_COLOR_NAMED + n, or 0xrrggbb */
	uint8_t attr;
} rk_style;

typedef struct rk_theme {
	char name[32];
	rk_style role[RK_N_ROLE];
} rk_theme;

/* name: one that travels in the binary, or the path of a YAML file (with a '/' or ending in .yaml).  Roles that the file
 * does not mention look like text.  Errors name file and line, or the nearest theme. */
int rk_theme_load(rk_theme *t, const char *name, rk_err *e);
/* The next theme of the binary after this one, for the key that goes through them. */
const char *rk_theme_next(const char *name);

int rk_style_parse(rk_style *s, const char *text, rk_err *e);
const char *rk_role_name(enum rk_role role);
int rk_color_nearest(int32_t rgb, int n_color);	/* index among the standard 256, 16 or 8 colours */

#endif
