/* pane_speed.c: time and bytes of a step beside vanilla's, measured in the same run, and what the session takes of memory
 * and context.  Means over the last steps up to the cursor. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

#define WINDOW 32

static int label(rk_canvas *c, rk_rect r, int y, const char *name)
{
	rk_puts(c, r, 0, y, RK_ROLE_DIM, name);
	return 11;
}

static void draw_time(const rk_ui *ui, rk_canvas *c, rk_rect r, const rk_view_speed *s)
{
	const rk_view_lane *l0 = &ui->view.lane[0];
	double vanilla = s->ms_shared + (double)l0->ms_vanilla_attn;
	char a[RK_FMT], b[RK_FMT];
	int base = rk_view_base_lane(&ui->view);

	if (base == ui->lane)
		vanilla = s->ms;
	else if (base >= 0)
		vanilla = rk_view_speed_at(&ui->view, base, ui->view.lane[base].n_token - 1, WINDOW).ms;
	int x = rk_puts(c, r, label(c, r, 0, "ms/token"), 0, RK_ROLE_TITLE, rk_fmt_real(a, s->ms, 1));
	x = rk_putf(c, r, x, 0, RK_ROLE_DIM, "  vanilla ");
	x = rk_puts(c, r, x, 0, RK_ROLE_TEXT, rk_fmt_real(a, vanilla, 1));
	if (isfinite(vanilla) && isfinite(s->ms))
		rk_put_fit(c, r, x, 0, RK_ROLE_DIM, "  %.2f%s as fast", vanilla / s->ms, rk_sym_text(c, RK_SYM_TIMES));
	x = rk_puts(c, r, label(c, r, 1, "tok/s"), 1, RK_ROLE_TITLE, rk_fmt_real(a, 1000 / s->ms, 1));
	rk_put_fit(c, r, x, 1, RK_ROLE_DIM, "  attention %s ms, else %s", rk_fmt_real(a, s->ms_attn, 1), rk_fmt_real(b, s->ms_shared, 1));
}

static void draw_bytes(const rk_ui *ui, rk_canvas *c, rk_rect r, const rk_view_speed *s)
{
	double read = s->bytes_full + s->bytes_partial + s->bytes_score, claim = NAN;
	char a[RK_FMT], b[RK_FMT];
	rk_policy p;
	const rk_view_token *t = rk_view_token_at(&ui->view, ui->lane, rk_ui_serial(ui));

	if (t && t->pos > 0 && rk_ui_policy(ui, ui->lane, &p) && p.score != RK_SCORE_NONE)
		claim = s->bytes_vanilla * (rk_policy_budget(&p, ui->view.stats.n_prompt) + 1) / (t->pos + 1);
	int x = rk_puts(c, r, label(c, r, 2, "read/step"), 2, RK_ROLE_TITLE, rk_fmt_bytes(a, read));
	x = rk_put_fit(c, r, x, 2, RK_ROLE_DIM, "  budget %s", rk_fmt_bytes(a, claim));
	rk_put_fit(c, r, x, 2, RK_ROLE_DIM, "  vanilla %s", rk_fmt_bytes(b, s->bytes_vanilla));
	const rk_feed_info *in = &ui->feed->info;
	double rate = (in->weight_bytes + read) / (s->ms * 1e-3);
	x = rk_putf(c, r, label(c, r, 3, "bandwidth"), 3, RK_ROLE_TITLE, "%s%s", rk_fmt_bytes(a, rate), isfinite(rate) ? "/s" : "");
	if (isfinite(in->bandwidth))
		x = rk_put_fit(c, r, x, 3, RK_ROLE_DIM, " of %s/s measured here", rk_fmt_bytes(b, in->bandwidth));
	rk_put_fit(c, r, x, 3, RK_ROLE_DIM, "  %s", in->device);
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	int64_t serial = rk_ui_serial(ui);
	rk_view_speed s = v->n_lane ? rk_view_speed_at(v, ui->lane, serial, WINDOW) : (rk_view_speed){ .ms = NAN };
	const rk_view_token *t = v->n_lane ? rk_view_token_at(v, ui->lane, serial) : NULL;
	char a[RK_FMT], b[RK_FMT];

	if (s.n) {
		draw_time(ui, c, r, &s);
		draw_bytes(ui, c, r, &s);
	} else {
		static const char *const name[] = { "ms/token", "tok/s", "read/step", "bandwidth" };
		for (int y = 0; y < 4; y++)
			rk_puts(c, r, label(c, r, y, name[y]), y, RK_ROLE_DIM, "n/a");
	}
	int used = t ? t->pos + 1 : v->stats.n_prompt;
	int x = rk_puts(c, r, label(c, r, 4, "context"), 4, RK_ROLE_TITLE, v->n_lane ? rk_fmt_count(a, used) : "n/a");
	if (ui->feed->info.n_ctx)
		rk_putf(c, r, x, 4, RK_ROLE_DIM, " of %s tokens", rk_fmt_count(b, ui->feed->info.n_ctx));
	x = rk_puts(c, r, label(c, r, 5, "memory"), 5, RK_ROLE_TITLE, rk_fmt_bytes(a, ui->rss));
	rk_put_fit(c, r, x, 5, RK_ROLE_DIM, "  peak %s", rk_fmt_bytes(b, ui->rss_peak));
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	if (isfinite((double)ui->view.lane[0].ms_shadow) && ui->view.lane[0].n_cum)
		snprintf(out, size, "watching costs %.1f ms/token", (double)ui->view.lane[0].ms_shadow);
}

const rk_pane rk_pane_speed = {
	.name = "speed", .title = "Speed", .draw = draw, .caption = caption,
	.footer = { RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_SLOWER, RK_ACT_FASTER, RK_ACT_EDIT_POLICY, RK_ACT_ZOOM, RK_ACT_LANE },
};
