/* pane_timeline.c: layers against steps.  Solid: the layer took a full step; a small square: it chose anew from sketches (glance);
 * a bullet: it checked and stayed partial; a dot: partial.  Where a cell stands for several layers or steps, its density is the share of full ones. */
#include <string.h>
#include "tui/pane.h"

#define ABOUT "A row for each layer, a column for each token: where a layer looks at the whole cache, and where a part of it will do."
#define STRIDE 8	/* columns that the raster moves on by */

struct cell { int n, full, glance, checked; };

static enum rk_sym glyph(const struct cell *k, enum rk_role *role)
{
	*role = RK_ROLE_FULL;
	if (k->full)
		return k->full == k->n ? RK_SYM_FULL : k->full * 2 >= k->n ? RK_SYM_MOST : k->full * 4 >= k->n ? RK_SYM_HALF : RK_SYM_SOME;
	*role = k->glance || k->checked ? RK_ROLE_CHECK : RK_ROLE_PARTIAL;
	return k->glance ? RK_SYM_GLANCE : k->checked ? RK_SYM_CHECK : RK_SYM_DOT;
}

static void draw_column(rk_ui *ui, rk_canvas *c, rk_rect r, int x, int64_t from, int steps, int rows, int top, int group)
{
	struct cell cell[RK_MAX_LAYER] = { 0 };
	int n = ui->view.n_layer;
	bool cursor = ui->cursor >= from && ui->cursor < from + steps;

	for (int64_t s = from; s < from + steps; s++) {
		const rk_view_layer *l = rk_view_layers_at(&ui->view, ui->lane, s);
		for (int y = 0; l && y < rows; y++)
			for (int i = top + y * group; i < top + (y + 1) * group && i < n; i++) {
				cell[y].n++;
				cell[y].full += l[i].kind == RK_STEP_FULL;
				cell[y].glance += l[i].kind == RK_STEP_GLANCE;
				cell[y].checked += l[i].cos != RK_VIEW_NO_COS;
			}
	}
	for (int y = 0; y < rows; y++) {
		enum rk_role role;
		enum rk_sym sym = glyph(&cell[y], &role);
		if (cell[y].n)
			rk_put_sym(c, r, x, y, cursor ? RK_ROLE_CURSOR : role, sym);
		else if (cursor)
			rk_puts(c, r, x, y, RK_ROLE_CURSOR, " ");
	}
}

static void draw_axis(rk_ui *ui, rk_canvas *c, rk_rect r, int y, int64_t from, int cols, int steps)
{
	const rk_view_token *a = NULL, *b = NULL;
	int64_t end = from + (int64_t)cols * steps;

	for (int64_t s = from; s < end && !a; s++)
		if ((a = rk_view_token_at(&ui->view, ui->lane, s)) && !a->stepped)
			a = NULL;
	for (int64_t s = end - 1; s >= from && !b; s--)
		if ((b = rk_view_token_at(&ui->view, ui->lane, s)) && !b->stepped)
			b = NULL;
	if (!a)
		return;
	int x = rk_putf(c, r, 3, y, RK_ROLE_DIM, "step %d", a->step + 1);
	const rk_view_token *t = ui->cursor >= 0 ? rk_view_token_at(&ui->view, ui->lane, ui->cursor) : NULL;
	char num[RK_FMT] = "";
	if (b)
		snprintf(num, sizeof num, "%d", b->step + 1);
	rk_put_right(c, r, y, RK_ROLE_DIM, num);
	rk_rect left = { r.x, r.y, r.w - (int)strlen(num) - 1, r.h };
	if (t && t->stepped && x + 40 <= left.w)
		rk_put_fit(c, left, x + 3, y, RK_ROLE_TEXT, "cursor: step %d, %d of %d layers full", t->step + 1, t->n_full, ui->view.n_layer);
	else if (t && t->stepped)
		rk_put_fit(c, left, x + 2, y, RK_ROLE_TEXT, "here %d, %d full", t->step + 1, t->n_full);
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	int n = v->n_layer, rows = r.h - 1, cols = r.w - 3, steps = ui->steps_per_col;

	if (!v->n_lane || !v->stats.lane[ui->lane].n_step || rows < 1 || cols < 1) {
		rk_put_n_a(c, r, ABOUT, "no decode step yet");
		return;
	}
	int group = (n + rows - 1) / rows;
	rows = (n + group - 1) / group;
	int64_t last = v->lane[ui->lane].n_token - 1;
	if (last >= 0 && !rk_view_layers_at(v, ui->lane, last))
		last--;		/* a token that has not gone through the model takes no column */
	if (ui->cursor >= 0 && ui->cursor + (int64_t)cols * steps / 2 < last)
		last = ui->cursor + (int64_t)cols * steps / 2;
	/* Whole columns, so that a cell does not change what it stands for; and the raster moves on by several at a time, because
	 * each move repaints it. */
	int64_t from = 0, col = last / steps;
	if (col >= cols)
		from = ((col - cols) / STRIDE + 1) * STRIDE * steps;
	for (int y = 0; y < rows; y++)
		rk_putf(c, r, 0, y, RK_ROLE_DIM, "%2d", y * group);
	for (int x = 0; x < cols && from + (int64_t)x * steps <= last; x++)
		draw_column(ui, c, r, 3 + x, from + (int64_t)x * steps, steps, rows, 0, group);
	draw_axis(ui, c, r, rows, from, cols, steps);
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	const rk_canvas *c = &ui->canvas;
	rk_policy p;
	bool glances = rk_ui_policy(ui, ui->lane, &p) && p.bits > 0;
	size_t n = (size_t)snprintf(out, size, "%s %s  %s checked  %s partial", rk_sym_text(c, glances ? RK_SYM_GLANCE : RK_SYM_FULL),
	                            glances ? "glance" : "full", rk_sym_text(c, RK_SYM_CHECK), rk_sym_text(c, RK_SYM_DOT));

	if (ui->steps_per_col > 1)
		snprintf(out + n, size - n, "  %d steps a column", ui->steps_per_col);
}

const rk_pane rk_pane_timeline = {
	.name = "timeline", .title = "Timeline", .draw = draw, .caption = caption,
	.footer = { RK_ACT_LEFT, RK_ACT_RIGHT, RK_ACT_WIDER, RK_ACT_NARROWER, RK_ACT_LAST, RK_ACT_ZOOM, RK_ACT_PAUSE, RK_ACT_STEP },
};
