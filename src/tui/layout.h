/* layout.h: where the panes are: a pure function of the terminal's size.
 *
 * Row 0 is the header, the last row the footer.  The chat is never dropped; of the others, what does not fit leaves in
 * the order occupancy, ratio, timeline, stride, speed.  Rectangles include a pane's title row; they never overlap and never
 * leave the screen (tests/test_layout.c tries every size from 1x1 up).
 */
#ifndef RK_TUI_LAYOUT_H
#define RK_TUI_LAYOUT_H

#include "tui/canvas.h"

enum rk_pane_id { RK_PANE_CHAT, RK_PANE_STRIDE, RK_PANE_TIMELINE, RK_PANE_OCCUPANCY, RK_PANE_RATIO, RK_PANE_SPEED, RK_N_PANE };

#define RK_MIN_COLS 24
#define RK_MIN_ROWS 6

typedef struct rk_layout {
	bool too_small;			/* then nothing else is set */
	rk_rect header, footer;
	rk_rect pane[RK_N_PANE];	/* w = 0: dropped */
	int n_divider;
	rk_rect divider[3];		/* columns between panes, one wide */
} rk_layout;

/* zoom: the pane that takes everything, -1: none. */
void rk_layout_make(rk_layout *l, int cols, int rows, int zoom);

#endif
