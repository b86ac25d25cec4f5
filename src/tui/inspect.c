/* inspect.c: the token under the cursor (the newest one without a cursor): what it is, what else could have come, and what
 * each layer did for it. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

/* len bytes in quotes, fit for one line, as far as they fit. */
static void quote(char out[48], const char *s, size_t len)
{
	size_t n = 0;

	out[n++] = '"';
	for (size_t i = 0; i < len && n < 40;) {
		int32_t cp;
		size_t k = rk_char_next(s + i, len - i, &cp);
		if (cp == '\n' || cp == '\t' || cp == '\r') {
			out[n++] = '\\';
			out[n++] = cp == '\n' ? 'n' : cp == '\t' ? 't' : 'r';
		} else if (cp == 0xFFFD || cp < ' ') {
			n += (size_t)snprintf(out + n, 48 - n, "\\x%02x", (unsigned char)s[i]);
		} else {
			memcpy(out + n, s + i, k);
			n += k;
		}
		i += k;
	}
	out[n++] = '"';
	out[n] = '\0';
}

/* A token by its id; where the feed has no vocabulary (a recording), its number. */
static void quote_id(const rk_ui *ui, int32_t id, char out[48])
{
	size_t len = 0;
	const char *s = ui->feed->token_text ? ui->feed->token_text(ui->feed->ctx, id, &len) : NULL;

	if (s)
		quote(out, s, len);
	else
		snprintf(out, 48, "#%d", id);
}

static void draw_alternatives(rk_ui *ui, rk_canvas *c, rk_rect r, int y, const rk_view_token *t)
{
	char q[48];
	int x = rk_puts(c, r, 0, y, RK_ROLE_DIM, "top 5   ");

	for (int i = 0; i < RK_VIEW_TOP && t->top_id[i] >= 0; i++) {
		quote_id(ui, t->top_id[i], q);
		int need = rk_text_width(q, strlen(q)) + 6;
		if (x + need > r.w)
			break;
		x = rk_puts(c, r, x, y, t->top_id[i] == t->id ? RK_ROLE_TITLE : RK_ROLE_TEXT, q);
		x = rk_putf(c, r, x, y, RK_ROLE_DIM, " %.0f%%  ", 100 * exp((double)t->top_logprob[i]));
	}
}

static void draw_layers(rk_ui *ui, rk_canvas *c, rk_rect r, int y, int64_t serial, const rk_view_token *t)
{
	const rk_view_layer *l = rk_view_layers_at(&ui->view, ui->lane, serial);
	int n = ui->view.n_layer, x;

	if (!l) {
		rk_puts(c, r, 0, y, RK_ROLE_DIM, "layers  n/a: it has not gone through the model yet");
		return;
	}
	x = rk_putf(c, r, 0, y, RK_ROLE_DIM, "layers  ");
	x = rk_putf(c, r, x, y, RK_ROLE_TEXT, "%d of %d full  ", t->n_full, n);
	for (int i = 0; i < n; i++) {
		bool full = l[i].kind == RK_STEP_FULL, glance = l[i].kind == RK_STEP_GLANCE, checked = glance || l[i].cos != RK_VIEW_NO_COS;
		x = rk_put_sym(c, r, x, y, full ? RK_ROLE_FULL : checked ? RK_ROLE_CHECK : RK_ROLE_PARTIAL,
		               full ? RK_SYM_FULL : glance ? RK_SYM_GLANCE : checked ? RK_SYM_CHECK : RK_SYM_DOT);
	}
	x = rk_puts(c, r, 0, y + 1, RK_ROLE_DIM, "cosine  ");
	bool any = false;
	for (int i = 0; i < n && x + 7 <= r.w; i++) {
		if (l[i].cos == RK_VIEW_NO_COS)
			continue;
		any = true;
		x = rk_putf(c, r, x, y + 1, RK_ROLE_DIM, "%d:", i);
		x = rk_putf(c, r, x, y + 1, l[i].kind == RK_STEP_FULL ? RK_ROLE_FULL : RK_ROLE_TEXT, "%.2f ", l[i].cos / 10000.0);
	}
	if (!any)
		rk_puts(c, r, x, y + 1, RK_ROLE_DIM, "no check was due");
}

void rk_inspector_draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	int64_t serial = rk_ui_serial(ui);
	/* without a cursor: the newest one that has gone through the model */
	if (ui->cursor < 0 && serial > 0 && !rk_view_layers_at(&ui->view, ui->lane, serial))
		serial--;
	const rk_view_token *t = rk_view_token_at(&ui->view, ui->lane, serial);
	char q[48], a[RK_FMT], b[RK_FMT];

	rk_put_line(c, r, 0, 0, r.w, RK_ROLE_RULE, RK_SYM_HLINE);
	rk_puts(c, r, 2, 0, RK_ROLE_RULE, ui->cursor < 0 ? " newest token " : " token under the cursor ");
	if (!t) {
		rk_puts(c, r, 0, 1, RK_ROLE_DIM, serial < 0 ? "no token yet" : "too old: its details are gone");
	} else {
		if (ui->feed->token_text || !t->text_len)
			quote_id(ui, t->id, q);
		else
			quote(q, ui->view.lane[ui->lane].text + t->text_at, t->text_len);
		int x = rk_puts(c, r, 0, 1, RK_ROLE_DIM, "token   ");
		x = rk_puts(c, r, x, 1, RK_ROLE_TITLE, q);
		x = rk_put_fit(c, r, x, 1, RK_ROLE_TEXT, "  id %d, number %d of its reply", t->id, t->index + 1);
		x = rk_put_fit(c, r, x, 1, RK_ROLE_TEXT, t->forced ? ", forced" : "");
		rk_put_fit(c, r, x, 1, RK_ROLE_TEXT, ", position %d", t->pos);
		x = rk_puts(c, r, 0, 2, RK_ROLE_DIM, "prob.   ");
		x = rk_putf(c, r, x, 2, RK_ROLE_TEXT, "%.1f %%  log %.3f", 100 * exp((double)t->logprob), (double)t->logprob);
		if (ui->lane == 0)
			x = rk_put_fit(c, r, x, 2, RK_ROLE_DIM, "  vanilla log %s  KL %s", rk_fmt_real(a, (double)t->shadow_logprob, 3),
			               rk_fmt_real(b, (double)t->kl, 4));
		if (ui->lane == 0 && !isnan(t->kl))
			rk_put_fit(c, r, x, 2, RK_ROLE_DIM, t->same_top1 ? "  same top-1" : "  other top-1");
		draw_alternatives(ui, c, r, 3, t);
		draw_layers(ui, c, r, 4, serial, t);
	}
}
