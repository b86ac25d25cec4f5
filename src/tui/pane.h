/* pane.h: what a pane is: a name, a title, how it draws and which of its keys the footer shows.
 *
 * A pane draws from the state of the program into a rectangle of the canvas (below its title) and does nothing else: it
 * reads no clock, no file and no engine, so that it can be tested in memory.
 */
#ifndef RK_TUI_PANE_H
#define RK_TUI_PANE_H

#include "tui/app.h"

typedef struct rk_pane {
	const char *name;		/* in commands */
	const char *title;
	void (*draw)(rk_ui *ui, rk_canvas *c, rk_rect r);
	void (*caption)(const rk_ui *ui, char *out, size_t size);	/* beside the title; NULL: nothing */
	enum rk_action footer[12];	/* ends with 0 */
} rk_pane;

extern const rk_pane rk_pane_chat, rk_pane_stride, rk_pane_timeline, rk_pane_occupancy, rk_pane_ratio, rk_pane_speed;
extern const rk_pane *const rk_panes[RK_N_PANE];	/* by enum rk_pane_id */

/* chat: what is below the text of the pane. */
void rk_inspector_draw(rk_ui *ui, rk_canvas *c, rk_rect r);
#define RK_INSPECTOR_ROWS 6
#define RK_INSPECTOR_LEAVES 2	/* rows of the conversation that it must leave */
void rk_compare_draw(rk_ui *ui, rk_canvas *c, rk_rect r);
/* Lines of a lane's conversation in r, from ui->top on; used by both of the above views. */
void rk_chat_draw_lines(rk_ui *ui, rk_canvas *c, rk_rect r, int lane);
/* In the middle: there is nothing to show, and why; above it, where there is room, what will be seen here. */
void rk_put_n_a(rk_canvas *c, rk_rect r, const char *about, const char *why);

/* The policy of the lane that is shown; false while there is none. */
bool rk_ui_policy(const rk_ui *ui, int lane, rk_policy *p);

#endif
