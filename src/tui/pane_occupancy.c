/* pane_occupancy.c: what each layer's partial cache holds, by origin and by part of the document, and how much of it the
 * layer's last refresh replaced; under the cursor, as of the last report before it. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

static const struct { enum rk_role role; enum rk_sym sym; const char *name; } kind[4] = {
	{ RK_ROLE_SINK, RK_SYM_SINK, "sink" }, { RK_ROLE_PROMPT, RK_SYM_PROMPT, "prompt" },
	{ RK_ROLE_GENERATED, RK_SYM_GENERATED, "answer" }, { RK_ROLE_RECENT, RK_SYM_RECENT, "recent" },
};

#define ABOUT "What each layer keeps: first tokens, document, answer, newest tokens; and from which parts of the document."

/* Several layers as one row. */
struct row {
	uint32_t part[4];
	int coverage[RK_COVERAGE];
	int n;
	double churn; int n_churn;
};

/* The churn of a layer's last selection at or before a token; NAN: none in sight. */
static double last_churn(const rk_ui *ui, int layer, int64_t serial)
{
	for (int64_t s = serial; s >= 0 && s > serial - 512; s--) {
		const rk_view_layer *l = rk_view_layers_at(&ui->view, ui->lane, s);
		if (l && l[layer].churn != 255)
			return l[layer].churn / 254.0;
	}
	return NAN;
}

static void add_layer(const rk_ui *ui, struct row *row, const rk_layer_occupancy *o, int layer, int64_t serial)
{
	double churn = last_churn(ui, layer, serial);

	row->part[0] += o->sink;
	row->part[1] += o->prompt;
	row->part[2] += o->generated;
	row->part[3] += o->recent;
	for (int i = 0; i < RK_COVERAGE; i++)
		row->coverage[i] += o->coverage[i];
	row->n++;
	if (isfinite(churn)) {
		row->churn += churn;
		row->n_churn++;
	}
}

static void draw_stack(rk_canvas *c, rk_rect r, int x, int y, int w, const struct row *row, uint64_t most)
{
	uint64_t sum = 0;
	int done = 0;

	for (int k = 0; k < 4; k++) {
		sum += row->part[k];
		int upto = most ? (int)((sum * (uint64_t)w + most / 2) / most) : 0;
		if (upto == done && row->part[k] && done < w)
			upto++;		/* what is there is seen */
		for (; done < upto && done < w; done++)
			rk_put_sym(c, r, x + done, y, kind[k].role, kind[k].sym);
	}
}

/* Which parts of the document are held: one character per 1/32, or per 1/16. */
static void draw_coverage(rk_canvas *c, rk_rect r, int x, int y, int w, const struct row *row)
{
	int per = RK_COVERAGE / w;

	for (int i = 0; i < w; i++) {
		int sum = 0;
		for (int k = 0; k < per; k++)
			sum += row->coverage[i * per + k];
		double share = (double)sum / (255.0 * per * row->n);
		if (share < 0.005)
			rk_put_sym(c, r, x + i, y, RK_ROLE_RULE, RK_SYM_DOT);
		else
			rk_put_level(c, r, x + i, y, share < 0.125 ? 0.125 : share, RK_ROLE_PROMPT);
	}
}

static void draw_legend(rk_canvas *c, rk_rect r, int bar, int cover)
{
	int x = 0;

	for (int k = 0; k < 4; k++) {
		if (x + 2 + (int)strlen(kind[k].name) > bar + 3)
			break;
		x = rk_put_sym(c, r, x, 0, kind[k].role, kind[k].sym);
		x = rk_putf(c, r, x, 0, RK_ROLE_DIM, c->utf8 ? "%s " : "=%s ", kind[k].name);
	}
	if (cover)
		rk_puts(c, r, 4 + bar, 0, RK_ROLE_DIM, cover == 32 ? "document, start to end" : "document");
	rk_put_right(c, r, 0, RK_ROLE_DIM, "churn");
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_view *v = &ui->view;
	int64_t serial = rk_ui_serial(ui), taken;
	const rk_layer_occupancy *o = v->n_lane ? rk_view_occupancy_at(v, ui->lane, serial, &taken) : NULL;
	int rows = r.h - 1, n = v->n_layer, cover = r.w >= 74 ? 32 : r.w >= 40 ? 16 : 0, bar = r.w - 3 - (cover ? cover + 2 : 1) - 5;

	if (!o || rows < 1 || bar < 4) {
		rk_put_n_a(c, r, ABOUT, v->n_lane ? "reported every 16 steps" : "no session yet");
		return;
	}
	int group = (n + rows - 1) / rows;
	rows = (n + group - 1) / group;
	struct row row[RK_MAX_LAYER] = { 0 };
	uint64_t most = 0;
	for (int i = 0; i < n; i++)
		add_layer(ui, &row[i / group], &o[i], i, serial);
	for (int y = 0; y < rows; y++) {
		uint64_t sum = (uint64_t)row[y].part[0] + row[y].part[1] + row[y].part[2] + row[y].part[3];
		sum = sum * (uint64_t)group / (uint64_t)row[y].n;	/* a last row of fewer layers is to the same scale */
		most = sum > most ? sum : most;
	}
	draw_legend(c, r, bar, cover);
	for (int y = 0; y < rows; y++) {
		char num[RK_FMT];
		rk_putf(c, r, 0, y + 1, RK_ROLE_DIM, "%2d", y * group);
		draw_stack(c, r, 3, y + 1, bar, &row[y], most * (uint64_t)row[y].n / (uint64_t)group);
		if (cover)
			draw_coverage(c, r, 4 + bar, y + 1, cover, &row[y]);
		double churn = row[y].n_churn ? row[y].churn / row[y].n_churn : (double)NAN;
		rk_fmt_real(num, 100 * churn, 0);
		if (isfinite(churn))
			strcat(num, " %");
		rk_put_right(c, r, y + 1, isfinite(churn) ? RK_ROLE_TEXT : RK_ROLE_DIM, num);
	}
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	const rk_view *v = &ui->view;
	char a[RK_FMT], b[RK_FMT];

	if (v->n_lane)
		snprintf(out, size, "C_p %s  C_f %s", rk_fmt_bytes(a, (double)v->stats.cache_partial), rk_fmt_bytes(b, (double)v->stats.cache_full));
}

const rk_pane rk_pane_occupancy = {
	.name = "occupancy", .title = "Occupancy", .draw = draw, .caption = caption,
	.footer = { RK_ACT_LEFT, RK_ACT_RIGHT, RK_ACT_ZOOM, RK_ACT_PAUSE, RK_ACT_STEP, RK_ACT_LANE },
};
