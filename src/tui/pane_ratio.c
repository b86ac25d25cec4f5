/* pane_ratio.c: the perplexity of lane 0 over vanilla's on the same tokens, as the shadow scores them: running, and over the
 * last tokens; a curve of the latter with a line at 1.  Without a shadow there is no baseline, and the pane says so. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

#define ABOUT "How much more the policy is surprised by the text than full attention is: 1.00 means that nothing is lost."
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

/* Where a value stands, in n steps from the top. */
static int height(double value, double lo, double hi, int n)
{
	int y = (int)lround((hi - value) / (hi - lo) * (n - 1));

	return y < 0 ? 0 : y >= n ? n - 1 : y;
}

struct curve { int64_t first, last; int per; double lo, hi; };	/* per: tokens for each column */

/* The last reply, as far as its tokens have details, in w columns. */
static struct curve curve_of(const rk_view *v, int w)
{
	int at = rk_view_last(v, RK_ITEM_REPLY);
	int64_t oldest = rk_view_oldest(v, 0), last = v->lane[0].n_token - 1;
	struct curve k = { .first = at < 0 ? last : v->item[at].first[0], .last = last, .per = 1 };

	if (k.first < oldest)
		k.first = oldest;
	while ((last - k.first) / k.per >= w)
		k.per++;
	k.lo = 0.98;	/* never narrower, so that rounding does not look like news */
	k.hi = 1.02;
	for (int64_t s = k.first + SETTLED; s <= last; s += k.per) {
		double value = windowed_at(v, s);
		if (isfinite(value)) {
			k.lo = fmin(k.lo, value);
			k.hi = fmax(k.hi, value);
		}
	}
	k.lo = floor(fmax(k.lo, 0.1) * 50) / 50;
	k.hi = ceil(fmin(k.hi, 10) * 50) / 50;
	return k;
}

/* A line from token to token: each column reaches from the value before to its own. */
static void draw_line(const rk_ui *ui, rk_canvas *c, rk_rect r, const struct curve *k)
{
	int before = -1;

	for (int x = 0; x < r.w && k->first + (int64_t)x * k->per <= k->last; x++) {
		int64_t s = k->first + (int64_t)x * k->per;
		double value = windowed_at(&ui->view, s);
		if (!isfinite(value))
			continue;
		int to = height(value, k->lo, k->hi, 2 * r.h), from = before < 0 || before == to ? to : before < to ? before + 1 : before - 1;
		int top = from < to ? from : to, end = from < to ? to : from;
		bool cursor = ui->lane == 0 && ui->cursor >= s && ui->cursor < s + k->per;
		enum rk_role role = cursor ? RK_ROLE_CURSOR : value > 1.1 ? RK_ROLE_WARN : RK_ROLE_GOOD;
		for (int y = top / 2; y <= end / 2; y++)
			rk_put_halves(c, r, x, y, top <= 2 * y, end > 2 * y, role);
		before = to;
	}
}

static void draw_curve(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	rk_rect plot = { r.x + 6, r.y, r.w - 6, r.h };
	struct curve k = curve_of(&ui->view, plot.w > 0 ? plot.w : 1);
	int base = height(1, k.lo, k.hi, 2 * r.h) / 2;

	rk_put_line(c, plot, 0, base, plot.w, RK_ROLE_RULE, RK_SYM_HLINE);
	rk_putf(c, r, 0, 0, RK_ROLE_DIM, "%5.2f", k.hi);
	rk_putf(c, r, 0, r.h - 1, RK_ROLE_DIM, "%5.2f", k.lo);
	rk_putf(c, r, 0, base, RK_ROLE_BASE, "%5.2f", 1.0);
	draw_line(ui, c, plot, &k);
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	const rk_view_lane *l = &v->lane[0];
	double running, windowed;
	char a[RK_FMT], b[RK_FMT], k[RK_FMT], s[RK_FMT];

	if (!v->n_lane || !l->n_cum) {
		rk_put_n_a(c, r, ABOUT, !v->n_lane || !l->n_token ? "no token yet" : v->phase == RK_PHASE_REPLY && l->n_token < 20 ?
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
		snprintf(out, size, "%s, %s, %d tokens", v->n_lane > 1 ? "lane 1" : "to vanilla", is_forced(v) ? "forced" : "generated", v->lane[0].n_cum);
	else
		snprintf(out, size, "no baseline");
}

const rk_pane rk_pane_ratio = {
	.name = "ratio", .title = "Perplexity ratio", .draw = draw, .caption = caption,
	.footer = { RK_ACT_LEFT, RK_ACT_RIGHT, RK_ACT_EDIT_POLICY, RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_ZOOM },
};
