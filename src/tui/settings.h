/* settings.h: what the user chose once: configs/refreshkv.yaml documents every key.
 *
 * Read from $XDG_CONFIG_HOME/refreshkv/refreshkv.yaml when it is there, or from --config FILE.  Unknown keys, bad values and
 * key-binding conflicts are errors that name file and line.
 */
#ifndef RK_TUI_SETTINGS_H
#define RK_TUI_SETTINGS_H

#include "tui/keys.h"
#include "tui/theme.h"

typedef struct rk_settings {
	rk_theme theme;
	rk_keymap keys;
	bool mouse, ascii, shade, shadow, history;
	char policy[160];		/* RK_SPEC_MAX; "": the program's default */
} rk_settings;

void rk_settings_default(rk_settings *s, rk_err *e);
/* path NULL: the user's file, whose absence is fine. */
int rk_settings_load(rk_settings *s, const char *path, rk_err *e);

#endif
