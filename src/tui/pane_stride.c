/* pane_stride.c: the effective stride of every layer as bars, layer 0 first: decode steps per full step so far (the paper's
 * figure 4, live).  A layer that has not taken a full step has no stride yet and is marked. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

#define ABOUT "How many steps a layer takes from one look at the whole cache to the next: a long bar saves much."
#define MIN_COL 13	/* "00 ####  12.5" */

/* The end of the scale: a power of two, so that it does not move with every step. */
static double scale(const rk_ui *ui)
{
	double end = 16;

	for (int i = 0; i < ui->view.n_layer; i++) {
		double s = rk_stats_layer_stride(&ui->view.stats, ui->lane, i);
		while (isfinite(s) && s > end)
			end *= 2;
	}
	return end;
}

/* Strides reach from 1 to the number of steps, so the bars are logarithmic; a stride of 1 is a quarter of a column. */
static double bar_share(double stride, double end)
{
	return fmax(0.03, log2(stride) / log2(end));
}

static void draw_layer(rk_ui *ui, rk_canvas *c, rk_rect r, int x, int y, int w, int layer, double end)
{
	double s = rk_stats_layer_stride(&ui->view.stats, ui->lane, layer);
	int bar = w - 9;
	char num[RK_FMT];

	rk_putf(c, r, x, y, RK_ROLE_DIM, "%2d", layer);
	if (isfinite(s))
		rk_put_bar(c, r, x + 3, y, bar, bar_share(s, end), RK_ROLE_BAR);
	else
		rk_put_line(c, r, x + 3, y, bar, RK_ROLE_RULE, RK_SYM_DOT);
	rk_putf(c, r, x + 3 + bar, y, isfinite(s) ? RK_ROLE_TEXT : RK_ROLE_DIM, "%5s", rk_fmt_real(num, s, s < 99.95 ? 1 : 0));
}

/* Columns and rows of the table of layers, and the first layer shown. */
struct grid { int cols, rows, top; };

static struct grid grid_of(const rk_ui *ui, int w, int h)
{
	int n = ui->view.n_layer, most = w / MIN_COL > 0 ? w / MIN_COL : 1;
	struct grid g = { .cols = (n + h - 1) / h };

	if (g.cols > most)
		g.cols = most;
	g.rows = (n + g.cols - 1) / g.cols < h ? (n + g.cols - 1) / g.cols : h;
	g.top = ui->top_layer < n - g.rows * g.cols ? ui->top_layer : n - g.rows * g.cols;
	if (g.top < 0)
		g.top = 0;
	return g;
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;

	if (!v->n_lane || !v->stats.lane[ui->lane].n_step || r.h < 1) {
		rk_put_n_a(c, r, ABOUT, "no decode step yet");
		return;
	}
	struct grid g = grid_of(ui, r.w, r.h);
	int w = (r.w + 1) / g.cols;
	double end = scale(ui);
	for (int i = 0; i < g.rows * g.cols && g.top + i < v->n_layer; i++)
		draw_layer(ui, c, r, i / g.rows * w, i % g.rows, w - 1, g.top + i, end);
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	const rk_view *v = &ui->view;
	rk_rect r = ui->layout.pane[RK_PANE_STRIDE];
	rk_policy p;
	char num[RK_FMT];
	size_t n = 0;

	if (!v->n_lane || r.h < 2)
		return;
	struct grid g = grid_of(ui, r.w, r.h - 1);
	if (g.rows * g.cols < v->n_layer)
		n = (size_t)snprintf(out, size, "layers %d to %d of %d  ", g.top, g.top + g.rows * g.cols - 1, v->n_layer);
	n += (size_t)snprintf(out + n, size - n, "mean %s", rk_fmt_real(num, rk_stats_stride(&v->stats, ui->lane), 1));
	if (r.w < 50 || !rk_ui_policy(ui, ui->lane, &p))
		return;
	if (p.bits > 0)
		snprintf(out + n, size - n, "  glances, no full steps");
	else if (p.refresh == RK_REFRESH_QUERY)
		snprintf(out + n, size - n, "  QC %d  s %.2f", p.qc, (double)p.s);
	else if (p.refresh == RK_REFRESH_STRIDE)
		snprintf(out + n, size - n, "  fixed stride %d", p.stride);
	else if (p.score != RK_SCORE_NONE)
		snprintf(out + n, size - n, "  never refreshes");
}

const rk_pane rk_pane_stride = {
	.name = "stride", .title = "Effective stride", .draw = draw, .caption = caption,
	.footer = { RK_ACT_EDIT_POLICY, RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_ZOOM, RK_ACT_LANE },
};
