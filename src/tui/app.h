/* app.h: the program on the screen: its state, and the loop that keeps it alive.
 *
 * One thread: it reads keys, drains the source's events into the view, and draws at most RK_FPS times a second, only when
 * something changed.  Panes (pane.h) draw from this state and never call the source; keys become actions (keys.h), which
 * act.c carries out.  The screen may be missing (a test): everything else works without it.
 */
#ifndef RK_TUI_APP_H
#define RK_TUI_APP_H

#include "base/paths.h"
#include "tui/chat_lines.h"
#include "tui/input.h"
#include "tui/layout.h"
#include "tui/screen.h"
#include "tui/settings.h"
#include "tui/feed.h"
#include "tui/view.h"

#define RK_FPS 15
#define RK_LANES_SHOWN 4	/* columns of the compare view */

enum rk_overlay { RK_OVERLAY_NONE, RK_OVERLAY_HELP, RK_OVERLAY_TOUR };
enum rk_line_mode { RK_LINE_NONE, RK_LINE_COMMAND, RK_LINE_SEARCH };

typedef struct rk_ui {
	rk_feed *feed;
	rk_settings set;
	rk_view view;
	rk_canvas canvas;
	rk_layout layout;
	rk_screen screen;

	/* where the user is */
	enum rk_pane_id focus;
	bool zoomed, typing, compare;
	int lane;			/* shown by the panes that show one */
	int64_t cursor;			/* serial of a token of that lane; -1: follow the newest */
	enum rk_overlay overlay;
	int overlay_top;		/* first line shown of the overlay, or the tour's page */
	rk_input input;			/* the question */
	rk_input line;			/* the `:` or `/` line */
	enum rk_line_mode line_mode;
	char message[400];
	bool message_error;
	int64_t message_until;		/* monotonic ns; 0: none */
	bool cursor_shown;		/* of the terminal, at: */
	int cursor_x, cursor_y;

	/* chat */
	rk_chat_lines lines[RK_MAX_LANE];
	int64_t top;			/* first line shown; -1: the end */
	rk_rect text_rect;		/* where the last frame had the conversation, and its first line */
	int64_t text_top;
	bool from_past;			/* the source does not hold this conversation: the next question takes it along */
	bool shade, inspect;
	char *pattern;			/* what was searched last; owned */
	int found_item;			/* -1: no match */
	size_t found_at, found_len;
	/* stride, occupancy: first layer shown; timeline: steps per column */
	int top_layer;
	int steps_per_col;

	/* pace */
	bool paused;
	float tok_per_s;		/* ceiling; 0: none */
	float pace_first;		/* the ceiling if it is one for the first reply only; else 0 */
	int seed;			/* of the next regenerate */

	/* readings that the loop takes, never a pane */
	int64_t now_ns;
	double rss, rss_peak;		/* bytes; NAN: not known */
	int64_t rss_ns;

	bool dirty, quit;
	bool interrupted;		/* the last key was Ctrl-C: another one quits */
	char history[RK_PATH_MAX];	/* file that questions are kept in; "": none */
	const char *lead;		/* of rk_app_cfg; borrowed */
	char session_name[64];		/* of the last :save or --resume; "": none */
} rk_ui;

typedef struct rk_app_cfg {
	rk_screen_cfg screen;
	const char *keys;		/* key script, NULL: none */
	const char *first;		/* asked at once, NULL: none */
	const char *resume;		/* session name or file; NULL: none */
	const char *lead;		/* a note at the top of the conversation, NULL: none */
	float pace;			/* ceiling on tokens per second until the first reply is over; 0: none */
	rk_settings settings;
} rk_app_cfg;

/* Opens the screen and runs until the user leaves.  0, or -1 with the terminal restored. */
int rk_app_run(rk_feed *feed, const rk_app_cfg *cfg, rk_err *e);

/* Parts of it, for tests without a terminal. */
int rk_ui_init(rk_ui *ui, rk_feed *feed, const rk_settings *set, rk_err *e);
void rk_ui_free(rk_ui *ui);
void rk_ui_draw(rk_ui *ui);			/* into ui->canvas, whose size is the screen's */
void rk_ui_drain(rk_ui *ui);			/* takes the events that wait */
void rk_ui_key(rk_ui *ui, int32_t key);
void rk_ui_act(rk_ui *ui, enum rk_action a);

/* What the user gets to read in the footer for a while. */
void rk_ui_say(rk_ui *ui, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void rk_ui_complain(rk_ui *ui, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* act.c: what several keys and commands share. */
void rk_ui_ask(rk_ui *ui, const char *user);
void rk_ui_regenerate(rk_ui *ui, bool edit);
void rk_ui_set_policy(rk_ui *ui, const char *spec);
/* One lane more or less, and the last question once more, since the lanes of a session share one prefill. */
void rk_ui_add_lane(rk_ui *ui, const char *spec);
void rk_ui_drop_lane(rk_ui *ui, int lane);
void rk_ui_pace(rk_ui *ui, float tok_per_s);
void rk_ui_search(rk_ui *ui, int direction);	/* for ui->pattern, from the last match */
void rk_ui_new_session(rk_ui *ui);
void rk_ui_show_cursor(rk_ui *ui);		/* scrolls the conversation to the token under the cursor */
void rk_ui_dump(rk_ui *ui, const char *path);	/* the screen as text */
/* The serial that panes show: the cursor, or the newest token. */
int64_t rk_ui_serial(const rk_ui *ui);

/* command.c: to a place in a recording: percent, or the text after a slash. */
void rk_ui_seek(rk_ui *ui, const char *where);
/* One line of `:`. */
void rk_ui_command(rk_ui *ui, const char *line);
typedef struct rk_command_row { const char *name, *args, *doc; void (*fn)(rk_ui *ui, char *args); } rk_command_row;
extern const rk_command_row rk_commands[];	/* ends with name NULL */

/* help.c, tour.c */
void rk_help_draw(rk_ui *ui, rk_canvas *c, rk_rect r);
void rk_tour_draw(rk_ui *ui, rk_canvas *c, rk_rect r);
#define RK_TOUR_PAGES 6

#endif
