/* pane_ratio.c: the perplexity of lane 0 over vanilla's on the same tokens, as the shadow scores them: running, and over the
 * last tokens; a curve of the latter with a line at 1.  Without a shadow there is no baseline, and the pane says so. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

#define SETTLED 16	/* tokens after which the ratio is no longer that of a handful of words; the scale is theirs */

static bool is_forced(const rk_view *v)
{
	const rk_view_token *t = v->n_lane ? rk_view_token_at(v, 0, v->lane[0].n_token - 1) : NULL;

	return t && t->forced;
}

static double windowed_at(const rk_view *v, int64_t serial)
{
	double running, windowed;

	rk_view_ratio_at(v, serial, &running, &windowed);
	return windowed;
}

static int curve_row(double value, double lo, double hi, int rows)
{
	int y = (int)lround((hi - value) / (hi - lo) * (rows - 1));

	return y < 0 ? 0 : y >= rows ? rows - 1 : y;
}

static void draw_curve(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	int64_t last = v->lane[0].n_token - 1, oldest = rk_view_oldest(v, 0);
	int at = rk_view_last(v, RK_ITEM_REPLY), cols = r.w - 6, per = 1;
	int64_t first = at < 0 ? last : v->item[at].first[0];
	double lo = 0.98, hi = 1.02;	/* never narrower, so that rounding does not look like news */

	if (first < oldest)
		first = oldest;
	while ((last - first) / per >= cols)
		per++;
	for (int64_t s = first; s <= last; s += per) {
		double value = windowed_at(v, s);
		if (isfinite(value) && s >= first + SETTLED) {
			lo = fmin(lo, value);
			hi = fmax(hi, value);
		}
	}
	lo = floor(fmax(lo, 0.1) * 50) / 50;
	hi = ceil(fmin(hi, 10) * 50) / 50;
	int base = curve_row(1, lo, hi, r.h);
	rk_put_line(c, r, 6, base, cols, RK_ROLE_RULE, RK_SYM_HLINE);
	rk_putf(c, r, 0, 0, RK_ROLE_DIM, "%5.2f", hi);
	rk_putf(c, r, 0, r.h - 1, RK_ROLE_DIM, "%5.2f", lo);
	rk_putf(c, r, 0, base, RK_ROLE_BASE, "%5.2f", 1.0);
	for (int x = 0; x < cols && first + (int64_t)x * per <= last; x++) {
		int64_t s = first + (int64_t)x * per;
		double value = windowed_at(v, s);
		bool cursor = ui->lane == 0 && ui->cursor >= s && ui->cursor < s + per;
		if (isfinite(value))
			rk_put_sym(c, r, 6 + x, curve_row(value, lo, hi, r.h), cursor ? RK_ROLE_CURSOR : value > 1.1 ? RK_ROLE_WARN : RK_ROLE_GOOD,
			           RK_SYM_CHECK);
	}
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	const rk_view_lane *l = &v->lane[0];
	double running, windowed;
	char a[RK_FMT], b[RK_FMT], k[RK_FMT], s[RK_FMT];

	if (!v->n_lane || !l->n_cum) {
		rk_put_n_a(c, r, !v->n_lane || !l->n_token ? "no token yet" : v->phase == RK_PHASE_REPLY && l->n_token < 20 ?
		           "waiting for the shadow" : "no baseline: the vanilla shadow is off");
		return;
	}
	rk_view_ratio_at(v, ui->lane == 0 ? rk_ui_serial(ui) : l->n_token - 1, &running, &windowed);
	int x = rk_puts(c, r, 0, 0, RK_ROLE_DIM, "all ");
	x = rk_puts(c, r, x, 0, running > 1.1 ? RK_ROLE_WARN : RK_ROLE_TITLE, rk_fmt_real(a, running, 3));
	x = rk_put_fit(c, r, x, 0, RK_ROLE_TEXT, "  last %d %s", RK_VIEW_WINDOW, rk_fmt_real(b, windowed, 3));
	x = rk_put_fit(c, r, x, 0, RK_ROLE_TEXT, "  KL %s", rk_fmt_real(k, l->cum_kl / l->n_cum, 4));
	rk_put_fit(c, r, x, 0, RK_ROLE_TEXT, "  same top-1 %s %%", rk_fmt_real(s, 100.0 * l->n_same / l->n_cum, 0));
	if (r.h > 3)
		draw_curve(ui, c, (rk_rect){ r.x, r.y + 1, r.w, r.h - 1 });
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	const rk_view *v = &ui->view;

	if (v->n_lane && v->lane[0].n_cum)
		snprintf(out, size, "to vanilla, %s, %d tokens", is_forced(v) ? "forced" : "generated", v->lane[0].n_cum);
	else
		snprintf(out, size, "no baseline");
}

const rk_pane rk_pane_ratio = {
	.name = "ratio", .title = "Perplexity ratio", .draw = draw, .caption = caption,
	.footer = { RK_ACT_LEFT, RK_ACT_RIGHT, RK_ACT_EDIT_POLICY, RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_ZOOM },
};
