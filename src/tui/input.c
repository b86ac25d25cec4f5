/* input.c: see input.h */
#include "tui/input.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void rk_input_free(rk_input *in)
{
	free(in->text);
	free(in->draft);
	for (int i = 0; i < in->n_history; i++)
		free(in->history[i]);
	*in = (rk_input){ 0 };
}

static bool reserve(rk_input *in, size_t len)
{
	if (len + 1 <= in->cap)
		return true;
	size_t cap = len * 2 + 64;
	char *p = realloc(in->text, cap);
	if (!p)
		return false;
	in->text = p;
	in->cap = cap;
	p[in->len] = '\0';	/* an empty input has no text until now */
	return true;
}

void rk_input_insert(rk_input *in, const char *s, size_t len)
{
	if (in->len + len > RK_INPUT_MAX || !reserve(in, in->len + len)) {
		in->cut = true;
		return;
	}
	memmove(in->text + in->at + len, in->text + in->at, in->len - in->at);
	memcpy(in->text + in->at, s, len);
	in->len += len;
	in->at += len;
	in->text[in->len] = '\0';
}

static void erase(rk_input *in, size_t from, size_t to)
{
	if (from >= to)
		return;
	memmove(in->text + from, in->text + to, in->len - to);
	in->len -= to - from;
	in->text[in->len] = '\0';
	in->at = from;
}

void rk_input_set(rk_input *in, const char *text)
{
	in->len = in->at = 0;
	rk_input_insert(in, text, strlen(text));
}

void rk_input_remember(rk_input *in, const char *text)
{
	if (in->n_history && !strcmp(in->history[in->n_history - 1], text))
		return;
	if (in->n_history == RK_HISTORY) {
		free(in->history[0]);
		memmove(in->history, in->history + 1, (RK_HISTORY - 1) * sizeof *in->history);
		in->n_history--;
	}
	char *copy = strdup(text);
	if (copy)
		in->history[in->n_history++] = copy;
}

char *rk_input_take(rk_input *in)
{
	char *out = in->len ? strdup(in->text) : NULL;

	if (out)
		rk_input_remember(in, out);
	in->back = 0;
	rk_input_set(in, "");
	return out;
}

static void go_back(rk_input *in, int by)
{
	int to = in->back + by;

	if (to < 0 || to > in->n_history)
		return;
	if (in->back == 0) {
		free(in->draft);
		in->draft = in->text ? strdup(in->text) : NULL;
	}
	in->back = to;
	rk_input_set(in, to ? in->history[in->n_history - to] : in->draft ? in->draft : "");
}

/* A step over one character, with the marks and joiners that belong to it. */
static size_t next_char(const rk_input *in, size_t at)
{
	int32_t a, b, state = 0;

	if (at >= in->len)
		return in->len;
	at += rk_char_next(in->text + at, in->len - at, &a);
	while (at < in->len) {
		size_t n = rk_char_next(in->text + at, in->len - at, &b);
		if (utf8proc_grapheme_break_stateful(a, b, &state))
			break;
		at += n;
		a = b;
	}
	return at;
}

static size_t previous_char(const rk_input *in, size_t at)
{
	size_t from = at > 64 ? at - 64 : 0, last = from;

	while (from > 0 && ((unsigned char)in->text[from] & 0xC0) == 0x80)
		from--;
	for (size_t i = from; i < at; i = next_char(in, i))
		last = i;
	return at ? last : 0;
}

static size_t line_start(const rk_input *in)
{
	size_t i = in->at;

	while (i > 0 && in->text[i - 1] != '\n')
		i--;
	return i;
}

static size_t line_end(const rk_input *in)
{
	size_t i = in->at;

	while (i < in->len && in->text[i] != '\n')
		i++;
	return i;
}

/* One line up or down, to the same column in characters; false: there is none. */
static bool move_line(rk_input *in, int by)
{
	size_t start = line_start(in), end = line_end(in), col = 0;

	for (size_t i = start; i < in->at; i = next_char(in, i))
		col++;
	if (by < 0 ? start == 0 : end == in->len)
		return false;
	in->at = by < 0 ? start - 1 : end + 1;
	in->at = by < 0 ? line_start(in) : in->at;
	for (end = line_end(in); col > 0 && in->at < end; col--)
		in->at = next_char(in, in->at);
	return true;
}

static void delete_word(rk_input *in)
{
	size_t i = in->at;

	while (i > 0 && (in->text[i - 1] == ' ' || in->text[i - 1] == '\n'))
		i--;
	while (i > 0 && in->text[i - 1] != ' ' && in->text[i - 1] != '\n')
		i--;
	erase(in, i, in->at);
}

static bool edit(rk_input *in, enum rk_action a, int32_t key)
{
	switch (a) {
	case RK_ACT_NEWLINE: rk_input_insert(in, "\n", 1); return true;
	case RK_ACT_LINE_START: in->at = line_start(in); return true;
	case RK_ACT_LINE_END: in->at = line_end(in); return true;
	case RK_ACT_DELETE_TO_START: erase(in, line_start(in), in->at); return true;
	case RK_ACT_DELETE_TO_END: erase(in, in->at, line_end(in)); return true;
	case RK_ACT_DELETE_WORD: delete_word(in); return true;
	default: break;
	}
	switch (key) {
	case RK_KEY_BACKSPACE: erase(in, previous_char(in, in->at), in->at); return true;
	case RK_KEY_DELETE: case RK_CTRL('d'): erase(in, in->at, next_char(in, in->at)); return true;
	case RK_KEY_LEFT: case RK_CTRL('b'): in->at = previous_char(in, in->at); return true;
	case RK_KEY_RIGHT: case RK_CTRL('f'): in->at = next_char(in, in->at); return true;
	case RK_KEY_UP: if (!move_line(in, -1)) go_back(in, 1); return true;
	case RK_KEY_DOWN: if (!move_line(in, 1)) go_back(in, -1); return true;
	}
	return false;
}

bool rk_input_key(rk_input *in, enum rk_action a, int32_t key)
{
	utf8proc_uint8_t out[4];

	if (key == RK_KEY_PASTE_BEGIN || key == RK_KEY_PASTE_END) {
		in->pasting = key == RK_KEY_PASTE_BEGIN;
		return true;
	}
	if (in->pasting && (key == RK_KEY_ENTER || key == RK_KEY_LINEFEED))
		a = RK_ACT_NEWLINE;
	else if (in->pasting)
		a = RK_ACT_NONE;
	if (!reserve(in, in->len))
		return true;
	if (edit(in, a, key))
		return true;
	if (key == RK_KEY_TAB && in->pasting)
		key = ' ';
	if (key < ' ' || key >= RK_KEY_UP)
		return in->pasting;
	utf8proc_ssize_t n = utf8proc_encode_char(key, out);
	rk_input_insert(in, (const char *)out, (size_t)n);
	return true;
}

/* Walks over the text as it is broken into rows: calls for each character with its row and column. */
static int walk(const rk_input *in, int width, rk_canvas *c, rk_rect r, int top, int *cx, int *cy)
{
	int x = 0, y = 0;
	int32_t cp;

	for (size_t i = 0; i <= in->len;) {
		size_t n = i < in->len ? rk_char_next(in->text + i, in->len - i, &cp) : 1;
		int w = i < in->len && cp != '\n' ? rk_char_width(cp) : 0;
		if (x + w > width - 1 && w) {	/* the last column is for the cursor */
			x = 0;
			y++;
		}
		if (i == in->at) {
			*cx = x;
			*cy = y;
		}
		if (i == in->len)
			break;
		if (c && y >= top && cp != '\n')
			rk_put(c, r, x, y - top, RK_ROLE_TEXT, in->text + i, n);
		x += w;
		if (cp == '\n') {
			x = 0;
			y++;
		}
		i += n;
	}
	return y + 1;
}

int rk_input_rows(const rk_input *in, int width)
{
	int x, y;

	return width < 2 ? 1 : walk(in, width, NULL, (rk_rect){ 0 }, 0, &x, &y);
}

void rk_input_draw(const rk_input *in, rk_canvas *c, rk_rect r, int *x, int *y)
{
	int cx = 0, cy = 0;

	if (r.w < 2 || r.h < 1)
		return;
	walk(in, r.w, NULL, r, 0, &cx, &cy);
	int top = cy >= r.h ? cy - r.h + 1 : 0;
	walk(in, r.w, c, r, top, &cx, &cy);
	*x = r.x + cx;
	*y = r.y + cy - top;
}
