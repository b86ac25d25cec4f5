/* script.h: a key script: what a user would press, from a file (`--keys FILE`), so that tests see the real program.
 *
 * One instruction a line; empty lines and lines starting with # are passed over:
 *	key NAME...		presses keys: `key Tab Tab z`
 *	type TEXT		types the rest of the line
 *	paste TEXT		the same as a bracketed paste; \n is a new line
 *	:COMMAND		runs a command: `:dump FILE`, `:policy h2o`, `:quit`
 *	wait idle|reply|prefill	until the engine is in that state
 *	wait tokens N		until lane 0 has N tokens in all
 *	wait MS			that many milliseconds
 * The program goes on by itself after the last line.
 */
#ifndef RK_TUI_SCRIPT_H
#define RK_TUI_SCRIPT_H

#include "tui/app.h"

typedef struct rk_script {
	char *text;		/* owned; lines end with NUL */
	char **line;		/* [n]; owned */
	int n, at;
	int64_t until_ns;	/* of a running `wait MS`; 0: none */
} rk_script;

int rk_script_load(rk_script *s, const char *path, rk_err *e);	/* RK_EUSAGE naming file and line */
void rk_script_free(rk_script *s);
/* Runs what can run now; true when something was done and the screen should be drawn before going on. */
bool rk_script_run(rk_script *s, rk_ui *ui);

#endif
