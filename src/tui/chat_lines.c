/* chat_lines.c: see chat_lines.h */
#include "tui/chat_lines.h"

#include <stdlib.h>
#include <string.h>
#include "tui/canvas.h"

void rk_chat_lines_free(rk_chat_lines *l)
{
	free(l->line);
	free(l->mark);
	*l = (rk_chat_lines){ 0 };
}

const char *rk_chat_text(const rk_view *v, const rk_view_item *it, int lane, size_t *len)
{
	if (it->kind == RK_ITEM_REPLY) {
		if (it->past)
			lane = 0;
		*len = it->text_len[lane];
		return *len ? v->lane[lane].text + it->text_at[lane] : "";
	}
	*len = strlen(it->text);
	return it->text;
}

static bool add_line(rk_chat_lines *l, rk_chat_line line)
{
	if (l->n == l->cap) {
		int cap = l->cap ? 2 * l->cap : 256;
		rk_chat_line *p = realloc(l->line, (size_t)cap * sizeof *p);
		if (!p)
			return false;
		l->line = p;
		l->cap = cap;
	}
	l->line[l->n++] = line;
	return true;
}

/* Where a line that starts at `from` ends, and where the next one starts: at a blank where there is one. */
static size_t line_break(const char *s, size_t len, size_t from, int width, size_t *next)
{
	size_t blank = 0, i = from;
	int w = 0;
	int32_t cp;

	while (i < len) {
		size_t n = rk_char_next(s + i, len - i, &cp);
		int cw = cp == '\t' ? 1 : rk_char_width(cp);
		if (cp == '\n') {
			*next = i + n;
			return i;
		}
		if (w + cw > width && i > from) {
			if (cp == ' ') {
				*next = i + 1;
				return i;
			}
			*next = blank ? blank + 1 : i;
			return blank ? blank : i;
		}
		if (cp == ' ' && i > from)
			blank = i;
		w += cw;
		i += n;
	}
	*next = len;
	return len;
}

/* Breaks an item's text from byte `from` on. */
static void wrap(rk_chat_lines *l, const char *s, size_t len, size_t from, int item)
{
	int width = l->width - RK_CHAT_INDENT > 1 ? l->width - RK_CHAT_INDENT : 1;

	do {
		size_t next, end = line_break(s, len, from, width, &next);
		if (!add_line(l, (rk_chat_line){ item, (uint32_t)from, (uint32_t)(end - from), from == 0 }))
			return;
		/* a text that ends with a new line has an empty last line, which is not worth a row until it has text */
		if (next >= len)
			return;
		from = next;
	} while (true);
}

static bool reserve_marks(rk_chat_lines *l, int n)
{
	if (n <= l->cap_mark)
		return true;
	struct rk_chat_mark *p = realloc(l->mark, 2 * (size_t)n * sizeof *p);
	if (!p)
		return false;
	l->mark = p;
	l->cap_mark = 2 * n;
	return true;
}

void rk_chat_lines_update(rk_chat_lines *l, const rk_view *v, int lane, int width)
{
	size_t len;
	int i = 0;

	if (width != l->width || v->n_cut != l->n_cut) {
		l->n = l->n_item = 0;
		l->width = width;
		l->n_cut = v->n_cut;
	}
	if (!reserve_marks(l, v->n_item))
		return;
	while (i < l->n_item && (rk_chat_text(v, &v->item[i], lane, &len), l->mark[i].len == len))
		i++;
	if (i == v->n_item)
		return;
	/* An item that grew goes on from the start of its last line; the lines of later items are made anew. */
	bool grew = i < l->n_item;
	size_t from = 0;
	if (grew) {
		l->n = (i + 1 < l->n_item ? l->mark[i + 1].line : l->n) - 1;
		from = l->line[l->n].at;
	}
	for (; i < v->n_item; i++, from = 0, grew = false) {
		const rk_view_item *it = &v->item[i];
		const char *s = rk_chat_text(v, it, lane, &len);
		if (!grew) {
			l->mark[i].line = l->n;
			if (i > 0 && (it->kind != RK_ITEM_NOTE || v->item[i - 1].kind != RK_ITEM_NOTE))
				add_line(l, (rk_chat_line){ .item = -1 });
		}
		wrap(l, s, len, from, i);
		l->mark[i].len = len;
	}
	l->n_item = v->n_item;
}

int rk_chat_line_of(const rk_chat_lines *l, int item, size_t at)
{
	int last = l->n - 1;

	for (int i = item >= 0 && item < l->n_item ? l->mark[item].line : l->n; i < l->n; i++) {
		if (l->line[i].item < 0)
			continue;
		if (l->line[i].item != item || l->line[i].at > at)
			break;
		last = i;
	}
	return last;
}
