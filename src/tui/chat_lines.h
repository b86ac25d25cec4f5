/* chat_lines.h: the conversation broken into lines of a width.  Kept up to date incrementally: a token that arrives costs
 * the line it lands on, not the conversation.  UI thread only. */
#ifndef RK_TUI_CHAT_LINES_H
#define RK_TUI_CHAT_LINES_H

#include "tui/view.h"

typedef struct rk_chat_line {
	int item;		/* of the view; -1: a blank line between items */
	uint32_t at, len;	/* bytes, within the item's text */
	bool first;		/* of its item */
} rk_chat_line;

typedef struct rk_chat_lines {
	rk_chat_line *line;	/* [n]; owned */
	int n, cap;
	int width, n_item;	/* what it was made of */
	unsigned n_cut;
	struct rk_chat_mark { int line; size_t len; } *mark;	/* [n_item] first line and text length of each item; owned */
	int cap_mark;
} rk_chat_lines;

#define RK_CHAT_INDENT 2

void rk_chat_lines_free(rk_chat_lines *l);
/* Brings it up to date for a lane of the view.  On lack of memory the lines end early. */
void rk_chat_lines_update(rk_chat_lines *l, const rk_view *v, int lane, int width);
/* The text of an item as a lane shows it. */
const char *rk_chat_text(const rk_view *v, const rk_view_item *it, int lane, size_t *len);
/* The line that holds byte `at` of an item; the last line when there is none. */
int rk_chat_line_of(const rk_chat_lines *l, int item, size_t at);

#endif
