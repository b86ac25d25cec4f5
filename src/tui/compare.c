/* compare.c: the lanes of a session as columns: the same question, each policy's own text, scrolled together; the first token
 * where a lane's own choice is not lane 0's is marked.  Below: a scoreboard. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

#define SCORES 7

static void draw_scores(rk_ui *ui, rk_canvas *c, rk_rect r, int x, int w, int lane)
{
	const rk_view *v = &ui->view;
	const rk_lane_stats *l = &v->stats.lane[lane];
	rk_view_speed s = rk_view_speed_at(v, lane, v->lane[lane].n_token - 1, 32);
	int at = rk_view_last(v, RK_ITEM_REPLY);
	char a[RK_FMT];
	rk_rect col = { r.x + x, r.y, w, r.h };
	double ratio = v->lane[lane].n_cum ? exp(v->lane[lane].cum_nll / v->lane[lane].n_cum) : rk_view_lane_ratio(v, lane);
	double kl = l->n_kl ? l->kl / l->n_kl : v->lane[lane].n_cum ? v->lane[lane].cum_kl / v->lane[lane].n_cum : (double)NAN;

	rk_puts(c, col, 0, 0, RK_ROLE_TEXT, rk_fmt_real(a, ratio, 3));
	rk_puts(c, col, 0, 1, RK_ROLE_TEXT, rk_fmt_real(a, kl, 4));
	rk_puts(c, col, 0, 2, RK_ROLE_TEXT, rk_fmt_real(a, s.ms, 1));
	rk_puts(c, col, 0, 3, RK_ROLE_TEXT, rk_fmt_bytes(a, s.bytes_full + s.bytes_partial + s.bytes_score));
	rk_puts(c, col, 0, 4, RK_ROLE_TEXT, rk_fmt_real(a, rk_stats_stride(&v->stats, lane), 1));
	if (lane == 0)
		rk_puts(c, col, 0, 5, RK_ROLE_DIM, "the reference");
	else if (at >= 0 && v->item[at].differs[lane] >= 0)
		rk_putf(c, col, 0, 5, RK_ROLE_DIFFERS, "token %d", v->item[at].differs[lane] + 1);
	else
		rk_puts(c, col, 0, 5, RK_ROLE_GOOD, "same so far");
}

void rk_compare_draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	static const char *const label[SCORES - 1] = { "ratio", "KL", "ms/token", "read/step", "eff.stride", "differs at" };
	int n = ui->view.n_lane < RK_LANES_SHOWN ? ui->view.n_lane : RK_LANES_SHOWN, scores = r.h > 2 * SCORES ? SCORES : 0, x0 = scores ? 11 : 0;
	int w = (r.w - x0 + 1) / n;
	char brief[RK_SPEC_MAX];

	if (w < 8) {
		rk_put_n_a(c, r, "", "too narrow for columns: c shows one lane");
		return;
	}
	for (int i = 0; i < n; i++) {
		rk_rect col = { r.x + x0 + i * w, r.y, w - 1, r.h - scores };
		rk_puts(c, col, 0, 0, i == ui->lane ? RK_ROLE_FOCUS : RK_ROLE_TITLE, rk_view_brief(ui->view.stats.lane[i].spec, brief));
		rk_chat_draw_lines(ui, c, (rk_rect){ col.x, col.y + 1, col.w, col.h - 1 }, i);
		if (i > 0)
			rk_put_vline(c, (rk_rect){ col.x - 1, r.y, 1, r.h }, 0, RK_ROLE_RULE);
	}
	if (!scores)
		return;
	rk_rect low = { r.x, r.y + r.h - scores, r.w, scores };
	rk_put_line(c, low, 0, 0, low.w, RK_ROLE_RULE, RK_SYM_HLINE);
	low.y++;
	low.h--;
	for (int y = 0; y < SCORES - 1; y++)
		rk_puts(c, low, 0, y, RK_ROLE_DIM, label[y]);
	for (int i = 0; i < n; i++)
		draw_scores(ui, c, low, x0 + i * w, w - 1, i);
}
