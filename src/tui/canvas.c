/* canvas.c: see canvas.h */
#include "tui/canvas.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const struct { const char *utf8, *ascii; } syms[RK_N_SYM] = {
	[RK_SYM_HLINE] = { "─", "-" }, [RK_SYM_VLINE] = { "│", "|" },
	[RK_SYM_FULL] = { "█", "#" }, [RK_SYM_MOST] = { "▓", "%" }, [RK_SYM_HALF] = { "▒", "+" }, [RK_SYM_SOME] = { "░", ":" },
	[RK_SYM_GLANCE] = { "▪", "g" }, [RK_SYM_CHECK] = { "•", "o" },
	[RK_SYM_DOT] = { "·", "." }, [RK_SYM_MORE] = { "…", "~" }, [RK_SYM_POINT] = { "▸", ">" },
	[RK_SYM_TIMES] = { "×", "x" },
	[RK_SYM_SINK] = { "█", "S" }, [RK_SYM_PROMPT] = { "▓", "p" }, [RK_SYM_GENERATED] = { "▒", "a" }, [RK_SYM_RECENT] = { "░", "r" },
};

static const char *const eighths[2][9] = {
	{ " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█" },	/* rightwards */
	{ " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" },	/* upwards */
};

int rk_canvas_resize(rk_canvas *c, int cols, int rows, rk_err *e)
{
	rk_glyph *cell = calloc((size_t)cols * (size_t)rows + 1, sizeof *cell);

	if (!cell)
		return rk_fail(e, RK_ENOMEM, "screen: out of memory for %d x %d cells", cols, rows);
	free(c->cell);
	c->cell = cell;
	c->cols = cols;
	c->rows = rows;
	rk_canvas_clear(c);
	return 0;
}

void rk_canvas_free(rk_canvas *c)
{
	free(c->cell);
	c->cell = NULL;
}

void rk_canvas_clear(rk_canvas *c)
{
	for (int i = 0; i < c->cols * c->rows; i++)
		c->cell[i] = (rk_glyph){ .width = 1, .role = RK_ROLE_TEXT };
}

static void write_char(FILE *f, wchar_t ch)
{
	utf8proc_uint8_t out[4];
	utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)ch, out);

	fwrite(out, 1, (size_t)n, f);
}

void rk_canvas_write(const rk_canvas *c, FILE *f)
{
	for (int y = 0; y < c->rows; y++) {
		const rk_glyph *row = c->cell + (size_t)y * (size_t)c->cols;
		int n = c->cols;
		while (n > 0 && (row[n - 1].ch[0] == 0 || row[n - 1].ch[0] == ' ') && row[n - 1].width == 1)
			n--;
		for (int x = 0; x < n; x++) {
			if (!row[x].width)
				continue;
			write_char(f, row[x].ch[0] ? row[x].ch[0] : ' ');
			for (int k = 1; k <= RK_COMBINING && row[x].ch[k]; k++)
				write_char(f, row[x].ch[k]);
		}
		putc('\n', f);
	}
}

int rk_char_width(int32_t cp)
{
	if (cp < 32 || cp == 127)
		return 0;
	if (cp < 127)
		return 1;
	int w = utf8proc_charwidth(cp);
	utf8proc_category_t cat = utf8proc_category(cp);

	/* utf8proc gives a soft hyphen and unassigned or private characters a width of their own making */
	if (cat == UTF8PROC_CATEGORY_CC || cat == UTF8PROC_CATEGORY_CF)
		return 0;
	return w < 0 ? 1 : w > 2 ? 2 : w;
}

size_t rk_char_next(const char *s, size_t len, int32_t *cp)
{
	utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)len, cp);

	if (n > 0)
		return (size_t)n;
	*cp = 0xFFFD;
	return 1;
}

int rk_text_width(const char *s, size_t len)
{
	int w = 0;
	int32_t cp;

	for (size_t i = 0; i < len;) {
		i += rk_char_next(s + i, len - i, &cp);
		w += rk_char_width(cp);
	}
	return w;
}

/* The cell at (x, y) of r, NULL where it is cut off. */
static rk_glyph *at(rk_canvas *c, rk_rect r, int x, int y)
{
	if (x < 0 || y < 0 || x >= r.w || y >= r.h || r.x + x < 0 || r.y + y < 0 || r.x + x >= c->cols || r.y + y >= c->rows)
		return NULL;
	return c->cell + (size_t)(r.y + y) * (size_t)c->cols + (size_t)(r.x + x);
}

/* Overwriting one half of a wide character blanks the other. */
static void claim(rk_canvas *c, rk_glyph *cell)
{
	size_t x = (size_t)(cell - c->cell) % (size_t)c->cols;

	if (cell->width == 0 && x > 0)
		cell[-1] = (rk_glyph){ .width = 1, .role = cell[-1].role };
	if (cell->width == 2 && x + 1 < (size_t)c->cols)
		cell[1] = (rk_glyph){ .width = 1, .role = cell[1].role };
}

static int put_char(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, int32_t cp)
{
	int w = rk_char_width(cp);

	if (!c->utf8 && cp > 126) {
		if (w == 0)
			return x;
		for (int i = 0; i < w; i++)
			x = put_char(c, r, x, y, role, '?');
		return x;
	}
	if (w == 0) {
		rk_glyph *left = at(c, r, x - 1, y);
		if (left && left->width == 0)
			left = at(c, r, x - 2, y);
		for (int k = 1; left && cp > 127 && left->ch[0] && k <= RK_COMBINING; k++)
			if (!left->ch[k]) {
				left->ch[k] = (wchar_t)cp;
				break;
			}
		return x;
	}
	rk_glyph *cell = at(c, r, x, y), *right = w == 2 ? at(c, r, x + 1, y) : NULL;
	if (cell && w == 2 && !right) {	/* half of it would be cut off */
		claim(c, cell);
		*cell = (rk_glyph){ .width = 1, .role = (uint8_t)role };
	} else if (cell) {
		claim(c, cell);
		if (right)
			claim(c, right);
		*cell = (rk_glyph){ .ch = { (wchar_t)cp }, .width = (uint8_t)w, .role = (uint8_t)role };
		if (right)
			*right = (rk_glyph){ .width = 0, .role = (uint8_t)role };
	}
	return x + w;
}

int rk_put(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *s, size_t len)
{
	int32_t cp;

	for (size_t i = 0; i < len;) {
		i += rk_char_next(s + i, len - i, &cp);
		x = put_char(c, r, x, y, role, cp);
	}
	return x;
}

int rk_puts(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *s)
{
	return rk_put(c, r, x, y, role, s, strlen(s));
}

int rk_putf(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	return rk_puts(c, r, x, y, role, buf);
}

int rk_put_fit(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	return x + rk_text_width(buf, strlen(buf)) <= r.w ? rk_puts(c, r, x, y, role, buf) : r.w;
}

void rk_put_right(rk_canvas *c, rk_rect r, int y, enum rk_role role, const char *s)
{
	rk_puts(c, r, r.w - rk_text_width(s, strlen(s)), y, role, s);
}

const char *rk_sym_text(const rk_canvas *c, enum rk_sym sym)
{
	return c->utf8 ? syms[sym].utf8 : syms[sym].ascii;
}

int rk_put_sym(rk_canvas *c, rk_rect r, int x, int y, enum rk_role role, enum rk_sym sym)
{
	return rk_puts(c, r, x, y, role, rk_sym_text(c, sym));
}

void rk_put_line(rk_canvas *c, rk_rect r, int x, int y, int w, enum rk_role role, enum rk_sym sym)
{
	for (int i = 0; i < w; i++)
		rk_put_sym(c, r, x + i, y, role, sym);
}

void rk_put_vline(rk_canvas *c, rk_rect r, int x, enum rk_role role)
{
	for (int y = 0; y < r.h; y++)
		rk_put_sym(c, r, x, y, role, RK_SYM_VLINE);
}

void rk_put_bar(rk_canvas *c, rk_rect r, int x, int y, int w, double frac, enum rk_role role)
{
	int n = (int)lround((frac < 0 ? 0 : frac > 1 ? 1 : frac) * 8 * w);

	if (!c->utf8)
		n = (n + 4) / 8 * 8;
	for (int i = 0; i < w && n > 0; i++, n -= 8)
		if (c->utf8)
			rk_puts(c, r, x + i, y, role, eighths[0][n < 8 ? n : 8]);
		else
			rk_puts(c, r, x + i, y, role, "#");
}

void rk_put_level(rk_canvas *c, rk_rect r, int x, int y, double frac, enum rk_role role)
{
	int n = (int)lround((frac < 0 ? 0 : frac > 1 ? 1 : frac) * 8);

	if (c->utf8)
		rk_puts(c, r, x, y, role, eighths[1][n]);
	else
		rk_puts(c, r, x, y, role, n == 0 ? " " : n < 3 ? "-" : n < 6 ? "=" : "#");
}

void rk_put_halves(rk_canvas *c, rk_rect r, int x, int y, bool upper, bool lower, enum rk_role role)
{
	if (!upper && !lower)
		return;
	if (c->utf8)
		rk_puts(c, r, x, y, role, upper && lower ? "█" : upper ? "▀" : "▄");
	else
		rk_put_sym(c, r, x, y, role, RK_SYM_CHECK);
}

void rk_fill(rk_canvas *c, rk_rect r, enum rk_role role)
{
	for (int y = 0; y < r.h; y++)
		for (int x = 0; x < r.w; x++) {
			rk_glyph *cell = at(c, r, x, y);
			if (!cell)
				continue;
			claim(c, cell);
			*cell = (rk_glyph){ .width = 1, .role = (uint8_t)role };
		}
}

void rk_set_role(rk_canvas *c, rk_rect r, int x, int y, int w, enum rk_role role)
{
	for (int i = 0; i < w; i++) {
		rk_glyph *cell = at(c, r, x + i, y);
		if (cell)
			cell->role = (uint8_t)role;
	}
}

char *rk_fmt_real(char buf[RK_FMT], double v, int decimals)
{
	if (isfinite(v))
		snprintf(buf, RK_FMT, "%.*f", decimals, v);
	else
		snprintf(buf, RK_FMT, isinf(v) ? "inf" : "n/a");
	return buf;
}

char *rk_fmt_bytes(char buf[RK_FMT], double bytes)
{
	static const char *const unit[] = { "B", "kB", "MB", "GB", "TB" };
	int u = 0;

	if (!isfinite(bytes))
		return rk_fmt_real(buf, bytes, 0);
	for (; bytes >= 999.5 && u < 4; u++)
		bytes /= 1000;
	snprintf(buf, RK_FMT, "%.*f %s", u == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes, unit[u]);
	return buf;
}

char *rk_fmt_count(char buf[RK_FMT], int64_t n)
{
	char digits[RK_FMT];
	int len = snprintf(digits, sizeof digits, "%lld", (long long)(n < 0 ? -n : n)), o = 0;

	if (n < 0)
		buf[o++] = '-';
	for (int i = 0; i < len && o < RK_FMT - 2; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			buf[o++] = ',';
		buf[o++] = digits[i];
	}
	buf[o] = '\0';
	return buf;
}
