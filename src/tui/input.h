/* input.h: a text editor of one or more lines with history: the question, the `:` line, the `/` line.  UI thread only. */
#ifndef RK_TUI_INPUT_H
#define RK_TUI_INPUT_H

#include "tui/canvas.h"
#include "tui/keys.h"

#define RK_INPUT_MAX (1u << 20)	/* bytes; a larger paste is cut off and said to be */
#define RK_HISTORY 200

typedef struct rk_input {
	char *text;		/* NUL-terminated UTF-8; owned */
	size_t len, cap, at;	/* at: byte offset of the cursor */
	bool pasting;		/* between the terminal's paste marks: Enter is a new line */
	bool cut;		/* something did not fit */
	char *history[RK_HISTORY];	/* oldest first; owned */
	int n_history, back;	/* back: entries back from the draft, 0: the draft itself */
	char *draft;		/* what was typed before going back; owned */
} rk_input;

void rk_input_free(rk_input *in);
void rk_input_set(rk_input *in, const char *text);	/* the cursor goes to the end */
void rk_input_insert(rk_input *in, const char *s, size_t len);
/* The text, which is then empty and remembered in the history; the caller frees it.  NULL: empty or no memory. */
char *rk_input_take(rk_input *in);
/* Adds to the history, unless it is what was added last. */
void rk_input_remember(rk_input *in, const char *text);
/* An editing key or a character; false: not for an editor.  Up and Down go through the history at the first and last line. */
bool rk_input_key(rk_input *in, enum rk_action a, int32_t key);
/* Lines it takes at this width, at least 1. */
int rk_input_rows(const rk_input *in, int width);
/* Draws it, scrolled so that the cursor shows; *x, *y: where the cursor is on the canvas. */
void rk_input_draw(const rk_input *in, rk_canvas *c, rk_rect r, int *x, int *y);

#endif
