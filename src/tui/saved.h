/* saved.h: conversations on disk: sessions to come back to (JSON in the data folder) and exports to read elsewhere. */
#ifndef RK_TUI_SAVED_H
#define RK_TUI_SAVED_H

#include "tui/app.h"

/* The turns of the conversation on the screen, lane 0's replies; allocated, with their texts, in one piece: free() it.
 * A last question without a reply has reply NULL.  *n may be 0. */
rk_said *rk_saved_turns(const rk_ui *ui, int *n, rk_err *e);

/* name: letters, digits, - _ . (in <data>/sessions/NAME.json), or a path with a '/'.  Written whole or not at all. */
int rk_saved_write(const rk_ui *ui, const char *name, rk_err *e);
/* Fills the empty view with a saved conversation and notes what has changed since (document, model).  A damaged file is
 * refused and left as it is. */
int rk_saved_read(rk_ui *ui, const char *name, rk_err *e);
/* The ending chooses: .md Markdown, .json, .txt.  An existing file is not overwritten. */
int rk_saved_export(const rk_ui *ui, const char *path, rk_err *e);

#endif
