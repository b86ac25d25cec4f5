/* keys.h: keys, what they do and where: one table feeds dispatch, the footer, the `?` overlay, the settings file and the
 * manual page.
 *
 * A key is a Unicode character, or RK_KEY_* for what has none; RK_ALT is added for Alt.  Names as in settings and key
 * scripts: "a", "Enter", "C-a", "M-Enter", "F1".  A key that two actions of one place claim is an error.
 */
#ifndef RK_TUI_KEYS_H
#define RK_TUI_KEYS_H

#include "base/err.h"
#include <stdint.h>

#define RK_ALT 0x400000
enum rk_key {
	RK_KEY_NONE = 0, RK_KEY_TAB = 9, RK_KEY_LINEFEED = 10, RK_KEY_ENTER = 13, RK_KEY_ESC = 27, RK_KEY_BACKSPACE = 127,
	RK_KEY_UP = 0x200000, RK_KEY_DOWN, RK_KEY_LEFT, RK_KEY_RIGHT, RK_KEY_PGUP, RK_KEY_PGDN, RK_KEY_HOME, RK_KEY_END,
	RK_KEY_DELETE, RK_KEY_BACKTAB, RK_KEY_F1, RK_KEY_F2, RK_KEY_F3, RK_KEY_F4, RK_KEY_F5, RK_KEY_F6, RK_KEY_F7, RK_KEY_F8,
	RK_KEY_F9, RK_KEY_F10, RK_KEY_PASTE_BEGIN, RK_KEY_PASTE_END, RK_KEY_MOUSE,
};
#define RK_CTRL(c) ((c) & 31)

enum rk_action {
	RK_ACT_NONE,
	/* everywhere but while typing */
	RK_ACT_QUIT, RK_ACT_HELP, RK_ACT_NEXT_PANE, RK_ACT_PREV_PANE, RK_ACT_ZOOM, RK_ACT_TYPE, RK_ACT_COMMAND, RK_ACT_SEARCH,
	RK_ACT_NEXT_MATCH, RK_ACT_PREV_MATCH, RK_ACT_STOP, RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_SLOWER, RK_ACT_FASTER, RK_ACT_EDIT_POLICY,
	RK_ACT_LEFT, RK_ACT_RIGHT, RK_ACT_UP, RK_ACT_DOWN, RK_ACT_PAGE_UP, RK_ACT_PAGE_DOWN, RK_ACT_FIRST, RK_ACT_LAST,
	RK_ACT_SHADE, RK_ACT_INSPECT, RK_ACT_WIDER, RK_ACT_NARROWER, RK_ACT_COMPARE, RK_ACT_LANE, RK_ACT_REGENERATE, RK_ACT_EDIT_LAST,
	RK_ACT_THEME, RK_ACT_TOUR, RK_ACT_MOUSE, RK_ACT_DUMP,
	/* while typing */
	RK_ACT_SEND, RK_ACT_NEWLINE, RK_ACT_LINE_START, RK_ACT_LINE_END, RK_ACT_DELETE_TO_START, RK_ACT_DELETE_TO_END, RK_ACT_DELETE_WORD,
	RK_ACT_LEAVE, RK_ACT_TYPE_NEXT_PANE, RK_ACT_TYPE_HELP,
	RK_N_ACTION
};

enum rk_place { RK_IN_PANES, RK_IN_TYPING };

typedef struct rk_action_row {
	const char *name;	/* in the settings file */
	enum rk_place place;
	const char *keys;	/* defaults, separated by blanks */
	const char *label;	/* in the footer */
	const char *doc;	/* one sentence for the overlay */
} rk_action_row;

extern const rk_action_row rk_actions[RK_N_ACTION];
#define RK_SEEK_DOC "in a recording: go to its beginning, or on to 10, 20, ... 90 percent"	/* of the digits, where they have no other meaning */

#define RK_KEYS_PER_ACTION 4
typedef struct rk_keymap {
	int32_t key[RK_N_ACTION][RK_KEYS_PER_ACTION];
} rk_keymap;

void rk_keymap_default(rk_keymap *m);
/* "quit", "q C-d": replaces that action's keys.  RK_EUSAGE: unknown action or key (the nearest is offered), too many. */
int rk_keymap_set(rk_keymap *m, const char *action, const char *keys, rk_err *e);
/* RK_EUSAGE when a key is claimed twice in one place, or nothing is left to quit with; names both actions. */
int rk_keymap_check(const rk_keymap *m, rk_err *e);
enum rk_action rk_keymap_find(const rk_keymap *m, enum rk_place place, int32_t key);

int32_t rk_key_parse(const char *name);		/* RK_KEY_NONE: no such key */
char *rk_key_name(int32_t key, char out[16]);
char *rk_keymap_names(const rk_keymap *m, enum rk_action a, char *out, int size);	/* "j Down" */

#endif
