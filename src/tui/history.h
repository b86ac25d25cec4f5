/* history.h: the questions of earlier runs, for the Up key: a text file that only the user can read.
 *
 * One question a line, oldest first; a new line within it is written "\n", a backslash "\\".  Bounded: what is longer than
 * RK_HISTORY_LINE bytes is not kept, and the file goes back to the last RK_HISTORY questions when a program starts.  Several
 * programs may add at the same time; what one adds while another one starts and cuts the file back can be lost.  UI thread only.
 */
#ifndef RK_TUI_HISTORY_H
#define RK_TUI_HISTORY_H

#include "base/err.h"
#include "tui/input.h"

#define RK_HISTORY_LINE 4096
#define RK_HISTORY_FILE (RK_HISTORY * 1024)	/* bytes above which the file is cut back at the start */

/* Into the editor's history; a file that is not there is an empty one, lines that are not UTF-8 are passed over. */
int rk_history_load(rk_input *in, const char *path, rk_err *e);
/* Makes file (mode 0600) and folders where they are missing. */
int rk_history_add(const char *path, const char *text, rk_err *e);

#endif
