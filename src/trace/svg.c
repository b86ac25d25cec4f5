/* svg.c: see svg.h.
 *
 * All panes are WIDTH wide, with layer 0 at the top and one block per lane.  Marks that look the same share one path, so
 * that a long trace stays a small file.
 */
#include "trace/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 960
#define LEFT 56		/* where the plots start: labels of the vertical axis are to the left */
#define RIGHT 24
#define PLOT (WIDTH - LEFT - RIGHT)
#define TITLE 34	/* height of a lane's title and what is above it */
#define AXIS 34		/* height of the labels below a plot */
#define N_SHADE 8	/* shades of a column that stands for several steps */

const char *const rk_pane_names[] = { "timeline", "stride", "occupancy", "ratio", NULL };

/* ---- pieces ---- */

void rk_xml_text(FILE *f, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c == '<')
			fputs("&lt;", f);
		else if (c == '>')
			fputs("&gt;", f);
		else if (c == '&')
			fputs("&amp;", f);
		else if (c == '"')
			fputs("&quot;", f);
		else if (c >= 0x20 || c == '\n' || c == '\t')
			fputc(c, f);
	}
}

static void begin(FILE *f, const char *name, double height, const char *style)
{
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pane\" data-pane=\"%s\" viewBox=\"0 0 %d %.0f\"",
	        name, WIDTH, height);
	if (style)
		fprintf(f, " width=\"%d\" height=\"%.0f\"><style>%s</style>", WIDTH, height, style);
	else
		fputc('>', f);
	fprintf(f, "<rect class=\"paper\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH, height);
}

static void label(FILE *f, double x, double y, const char *class, const char *anchor, const char *text)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
	rk_xml_text(f, text, strlen(text));
	fputs("</text>\n", f);
}

static void title(FILE *f, const rk_series *s, int lane, double y)
{
	char text[RK_SPEC_MAX + 16];

	snprintf(text, sizeof text, "%d: %s", lane + 1, s->lane[lane].spec);
	label(f, LEFT, y + TITLE - 10, "title", "start", s->n_lane > 1 ? text : s->lane[lane].spec);
}

/* A swatch and its meaning; returns where the next one may start. */
static double legend(FILE *f, double x, double y, const char *class, const char *text)
{
	fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" class=\"%s\"/>", x, y - 9, class);
	label(f, x + 15, y, "note", "start", text);
	return x + 15 + 6.2 * (double)strlen(text) + 18;
}

/* A round distance between marks, so that at most n of them fit into span. */
static double tick_step(double span, int n)
{
	double step = pow(10, floor(log10(span / n)));

	while (span / step > n)
		step *= span / (2 * step) <= n ? 2 : span / (5 * step) <= n ? 5 : 10;
	return step;
}

/* Marks from 0 to max along the bottom of a plot, with a line up through it. */
static void x_axis(FILE *f, double max, double x0, double width, double top, double bottom, const char *what,
                   int decimals)
{
	double step = tick_step(max, 10);
	char text[32];

	if (decimals == 0 && step < 1)
		step = 1;
	for (double v = 0; v <= max * 1.0001; v += step) {
		double x = x0 + v / max * width;
		fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", x, top, bottom + 4);
		snprintf(text, sizeof text, "%.*f", step < 1 ? decimals : 0, v);
		label(f, x, bottom + 15, "tick", "middle", text);
	}
	label(f, x0 + width, bottom + 29, "note", "end", what);
}

static void layer_labels(FILE *f, int n_layer, double top, double row)
{
	char text[16];
	int step = (int)ceil(11 / row);

	for (int l = 0; l < n_layer; l += step) {
		snprintf(text, sizeof text, "%d", l);
		label(f, LEFT - 8, top + (l + 0.5) * row + 3.5, "tick", "end", text);
	}
}

static double row_height(int n_layer)
{
	return n_layer <= 36 ? 12 : n_layer <= 80 ? 7 : 4;
}

static double block_height(const rk_series *s)
{
	return TITLE + s->n_layer * row_height(s->n_layer) + AXIS;
}

/* ---- timeline ---- */

size_t rk_svg_steps_per_column(const rk_series_lane *l)
{
	return l->n_step <= RK_MAX_COLUMN ? 1 : (l->n_step + RK_MAX_COLUMN - 1) / RK_MAX_COLUMN;
}

int rk_svg_shade(const rk_series_lane *l, int n_layer, size_t column, int layer)
{
	size_t per = rk_svg_steps_per_column(l), from = column * per, to = from + per < l->n_step ? from + per : l->n_step, full = 0;
	bool checked = false, glance = false;

	for (size_t i = from; i < to; i++) {
		uint8_t cell = l->cell[i * (size_t)n_layer + (size_t)layer];
		full += cell == RK_CELL_FULL;
		glance |= cell == RK_CELL_GLANCE;
		checked |= cell == RK_CELL_CHECKED;
	}
	if (full == 0)
		return glance ? RK_SHADE_GLANCE : checked ? RK_SHADE_CHECKED : 0;
	return (int)((full * N_SHADE + (to - from) - 1) / (to - from));
}

/* All cells of one shade as one path; runs of equal cells are one rectangle. */
static void shade_path(FILE *f, const signed char *cells, int n_layer, size_t n_col, int want, double top, double row, double col)
{
	bool dot = want == RK_SHADE_CHECKED;
	double pad = dot ? row * 0.36 : row > 6 ? 0.5 : 0, gap = dot && col > 3 ? col * 0.3 : 0;
	bool open = false;

	for (int l = 0; l < n_layer; l++)
		for (size_t i = 0, j; i < n_col; i = j) {
			j = i + 1;
			if (cells[(size_t)l * n_col + i] != want)
				continue;
			while (!dot && j < n_col && cells[(size_t)l * n_col + j] == want)
				j++;
			if (!open)
				fprintf(f, "<path class=\"%s\" d=\"", dot ? "check" : want == RK_SHADE_GLANCE ? "glance" : "full");
			open = true;
			fprintf(f, "M%.2f %.1fh%.2fv%.1fh-%.2fz", LEFT + (double)i * col + gap, top + l * row + pad,
			        (double)(j - i) * col - 2 * gap, row - 2 * pad, (double)(j - i) * col - 2 * gap);
		}
	if (open && want < 0)
		fputs("\"/>\n", f);
	else if (open)
		fprintf(f, "\" fill-opacity=\"%.3f\"/>\n", (double)want / N_SHADE);
}

static void timeline_lane(FILE *f, const rk_series *s, int lane, double y)
{
	const rk_series_lane *l = &s->lane[lane];
	size_t per = rk_svg_steps_per_column(l), n_col = (l->n_step + per - 1) / per;
	double row = row_height(s->n_layer), top = y + TITLE, height = s->n_layer * row, col = PLOT / (double)(n_col ? n_col : 1);
	signed char *cells = malloc((size_t)s->n_layer * (n_col + 1));
	char what[64] = "decode step";

	if (col > 16)
		col = 16;	/* a short reply: cells, not stripes */
	double width = n_col ? col * (double)n_col : PLOT;
	title(f, s, lane, y);
	layer_labels(f, s->n_layer, top, row);
	fprintf(f, "<rect class=\"partial hit\" data-lane=\"%d\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
	        lane, LEFT, top, width, height);
	if (!n_col)
		label(f, LEFT + 8, top + 16, "note", "start", "no decode step");
	for (size_t i = 0; cells && i < n_col; i++)
		for (int j = 0; j < s->n_layer; j++)
			cells[(size_t)j * n_col + i] = (signed char)rk_svg_shade(l, s->n_layer, i, j);
	for (int want = RK_SHADE_GLANCE; cells && want <= N_SHADE; want++)
		if (want)
			shade_path(f, cells, s->n_layer, n_col, want, top, row, col);
	free(cells);
	if (per > 1)
		snprintf(what, sizeof what, "decode step (%zu per column)", per);
	if (l->n_step)
		x_axis(f, (double)l->n_step, LEFT, width * (double)l->n_step / (double)(n_col * per), top + height, top + height,
		       what, 0);
}

static bool any_glance(const rk_series *s)
{
	for (int i = 0; i < s->n_lane; i++)
		if (s->lane[i].n_step && memchr(s->lane[i].cell, RK_CELL_GLANCE, s->lane[i].n_step * (size_t)s->n_layer))
			return true;
	return false;
}

static void timeline(FILE *f, const rk_series *s)
{
	double y = 8;

	double x = legend(f, LEFT, y + 14, "full", "full step: all positions, then a new selection");
	if (any_glance(s))
		x = legend(f, x, y + 14, "glance", "glance: selected from sketches");
	x = legend(f, x, y + 14, "partial", "partial step");
	legend(f, x, y + 14, "check", "checked, stayed partial");
	y += 20;
	for (int i = 0; i < s->n_lane; i++, y += block_height(s))
		timeline_lane(f, s, i, y);
}

/* ---- effective stride ---- */

static double longest_stride(const rk_series *s)
{
	double max = 1;

	for (int i = 0; i < s->n_lane; i++)
		for (int l = 0; l < s->n_layer; l++) {
			double v = rk_series_stride(s, i, l);
			max = isnan(v) || v < max ? max : v;
		}
	return max;
}

static bool any_full(const rk_series *s, int lane)
{
	for (int l = 0; l < s->n_layer; l++)
		if (s->lane[lane].n_full[l])
			return true;
	return false;
}

/* A lane without a full step has a line of text instead of bars. */
static double stride_height(const rk_series *s, int lane)
{
	return any_full(s, lane) ? block_height(s) : TITLE + 24;
}

static void stride(FILE *f, const rk_series *s)
{
	double row = row_height(s->n_layer), max = longest_stride(s), y = 8;
	char text[64];

	for (int i = 0; i < s->n_lane; y += stride_height(s, i++)) {
		double top = y + TITLE, bottom = top + s->n_layer * row;
		title(f, s, i, y);
		if (!any_full(s, i)) {
			label(f, LEFT, top + 10, "note", "start", "n/a: no layer has gone full");
			continue;
		}
		layer_labels(f, s->n_layer, top, row);
		x_axis(f, max, LEFT, PLOT - 40, top, bottom, "effective stride: decode steps per full step, by layer", 1);
		for (int l = 0; l < s->n_layer; l++) {
			double v = rk_series_stride(s, i, l), at = top + l * row;
			snprintf(text, sizeof text, isnan(v) ? "n/a" : "%.1f", v);
			if (!isnan(v))
				fprintf(f, "<rect class=\"full hit\" data-tip=\"layer %d: every %.2f steps, %lld full of %zu\" x=\"%d\" y=\"%.1f\" "
				        "width=\"%.1f\" height=\"%.1f\"/>", l, v, (long long)s->lane[i].n_full[l], s->lane[i].n_step, LEFT, at + 1,
				        v / max * (PLOT - 40), row - 2);
			if (row > 6)
				label(f, LEFT + (isnan(v) ? 0 : v / max * (PLOT - 40)) + 5, at + row / 2 + 3.5, isnan(v) ? "note" : "value", "start", text);
		}
	}
}

/* ---- occupancy ---- */

static void coverage(FILE *f, const rk_layer_occupancy *o, int layer, double x0, double width, double y, double row)
{
	double w = width / RK_COVERAGE;

	for (int j = 0; j < RK_COVERAGE; j++)
		if (o->coverage[j])
			fprintf(f, "<rect class=\"prompt hit\" data-tip=\"layer %d, part %d of %d of the prompt: %.0f %% held\" x=\"%.2f\" y=\"%.1f\" "
			        "width=\"%.2f\" height=\"%.1f\" fill-opacity=\"%.2f\"/>", layer, j + 1, RK_COVERAGE, o->coverage[j] / 2.55,
			        x0 + j * w, y + 1, w, row - 2, 0.12 + 0.88 * o->coverage[j] / 255);
	fputc('\n', f);
}

static void occupancy_lane(FILE *f, const rk_series *s, int lane, double y, double max)
{
	static const char *const names[] = { "sink", "prompt", "generated", "recent" };
	const rk_series_lane *l = &s->lane[lane];
	double row = row_height(s->n_layer), top = y + TITLE, bottom = top + s->n_layer * row, half = (PLOT - 40) / 2.0;

	title(f, s, lane, y);
	layer_labels(f, s->n_layer, top, row);
	if (!l->has_occupancy) {
		label(f, LEFT + 8, top + 16, "note", "start", "no occupancy was recorded");
		return;
	}
	x_axis(f, max, LEFT, half, top, bottom, "entries held, all KV heads", 0);
	fprintf(f, "<rect class=\"partial\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
	        LEFT + half + 40, top, half, bottom - top);
	for (int i = 0; i < s->n_layer; i++) {
		const rk_layer_occupancy *o = &l->occupancy[i];
		const uint32_t n[] = { o->sink, o->prompt, o->generated, o->recent };
		double x = LEFT;
		for (int j = 0; j < 4; j++) {
			double w = n[j] / max * half;
			if (n[j])
				fprintf(f, "<rect class=\"%s hit\" data-tip=\"layer %d: %u %s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>",
				        names[j], i, n[j], names[j], x, top + i * row + 1, w, row - 2);
			x += w;
		}
		coverage(f, o, i, LEFT + half + 40, half, top + i * row, row);
	}
	label(f, LEFT + half + 40, bottom + 15, "tick", "start", "start");
	label(f, LEFT + 2 * half + 40, bottom + 15, "tick", "end", "end");
	label(f, LEFT + 2 * half + 40, bottom + 29, "note", "end", "share of each part of the prompt that is held");
}

static double most_entries(const rk_series *s)
{
	double max = 1;

	for (int i = 0; i < s->n_lane; i++)
		for (int l = 0; l < s->n_layer; l++) {
			const rk_layer_occupancy *o = &s->lane[i].occupancy[l];
			double n = (double)o->sink + o->prompt + o->generated + o->recent;
			max = n > max ? n : max;
		}
	return max;
}

static void occupancy(FILE *f, const rk_series *s)
{
	double y = 8, x = legend(f, LEFT, y + 14, "sink", "sinks (positions 0-3)");

	x = legend(f, x, y + 14, "prompt", "prompt");
	x = legend(f, x, y + 14, "generated", "generated");
	legend(f, x, y + 14, "recent", "last 64 positions");
	y += 20;
	for (int i = 0; i < s->n_lane; i++, y += block_height(s))
		occupancy_lane(f, s, i, y, most_entries(s));
}

/* ---- ratio ---- */

rk_ratio_point *rk_svg_ratio_curve(const rk_series_lane *l)
{
	rk_ratio_point *p = malloc((l->n_token + 1) * sizeof *p);
	double sum = 0, window = 0;
	size_t n = 0, n_window = 0;

	for (size_t i = 0; p && i < l->n_token; i++) {
		const rk_series_token *t = &l->token[i], *old = i >= RK_RATIO_WINDOW ? &l->token[i - RK_RATIO_WINDOW] : NULL;
		double d = (double)t->nll - (double)t->base_nll;
		if (!isnan(d)) {
			sum += d;
			window += d;
			n++;
			n_window++;
		}
		double gone = old ? (double)old->nll - (double)old->base_nll : (double)NAN;
		if (!isnan(gone)) {
			window -= gone;
			n_window--;
		}
		p[i].running = n ? exp(sum / (double)n) : (double)NAN;
		p[i].windowed = n_window ? exp(window / (double)n_window) : (double)NAN;
	}
	return p;
}

/* A line through at most RK_MAX_COLUMN points. */
static void curve(FILE *f, const rk_ratio_point *p, size_t n, bool windowed, int lane, double top, double height,
                  double lo, double hi)
{
	size_t per = n > RK_MAX_COLUMN ? n / RK_MAX_COLUMN : 1;
	bool on = false;

	fprintf(f, "<path class=\"curve lane%d%s\" d=\"", lane, windowed ? " windowed" : "");
	for (size_t i = 0; i < n; i += per) {
		double v = windowed ? p[i].windowed : p[i].running;
		if (!isfinite(v)) {
			on = false;
			continue;
		}
		v = v < lo ? lo : v > hi ? hi : v;
		double x = LEFT + (n > 1 ? (double)i / (double)(n - 1) : 0) * PLOT;
		fprintf(f, "%c%.1f %.1f", on ? 'L' : 'M', x, top + height - (v - lo) / (hi - lo) * height);
		on = true;
	}
	fputs("\"/>\n", f);
}

/* The smallest range that holds 1 and every running ratio behind the first few tokens, which say little. */
static void ratio_range(rk_ratio_point *const p[], const rk_series *s, double *lo, double *hi)
{
	*lo = 0.95;
	*hi = 1.05;
	for (int i = 0; i < s->n_lane; i++)
		for (size_t j = s->lane[i].n_token > 32 ? 16 : 0; p[i] && j < s->lane[i].n_token; j++) {
			double a = p[i][j].running, b = p[i][j].windowed;
			if (isfinite(a) && isfinite(b)) {
				*lo = fmin(*lo, fmin(a, b));
				*hi = fmax(*hi, fmax(a, b));
			}
		}
	*lo = fmax(*lo, 0.1);
	*hi = fmin(*hi, 10);
	double pad = (*hi - *lo) * 0.05;
	*lo -= pad;
	*hi += pad;
}

#define RATIO_HEIGHT 240

static void ratio_axis(FILE *f, double lo, double hi, double top)
{
	double step = tick_step(hi - lo, 7), one = top + RATIO_HEIGHT - (1 - lo) / (hi - lo) * RATIO_HEIGHT;
	char text[32];

	for (double v = ceil(lo / step) * step; v <= hi; v += step) {
		double y = top + RATIO_HEIGHT - (v - lo) / (hi - lo) * RATIO_HEIGHT;
		if (fabs(y - one) < 12)
			continue;	/* its label would meet that of 1 */
		fprintf(f, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>", LEFT, y, PLOT);
		snprintf(text, sizeof text, "%.*f", step < 0.1 ? 2 : 1, v);
		label(f, LEFT - 8, y + 3.5, "tick", "end", text);
	}
	fprintf(f, "<path class=\"one\" d=\"M%d %.1fh%d\"/>\n", LEFT, one, PLOT);
	label(f, LEFT - 8, one + 3.5, "value", "end", "1");
}

/* What the ratio is measured on. */
static const char *ratio_note(const rk_series *s, bool any)
{
	if (!any)
		return "no baseline: record with --trace-shadow, or compare on the same tokens with vanilla";
	return s->head.follow == RK_FOLLOW_NONE ? "generated: the policy's own tokens, scored by full attention beside it" :
	       "forced: every policy on the same tokens";
}

static void ratio(FILE *f, const rk_series *s)
{
	rk_ratio_point *p[RK_MAX_LANE] = { 0 };
	double lo, hi, top = 48 + 16 * s->n_lane;
	size_t longest = 1;
	bool any = false;
	int n_line = 0;
	char text[RK_SPEC_MAX + 64];

	for (int i = 0; i < s->n_lane; i++) {
		bool has = rk_series_has_ratio(s, i) && i != s->base;
		p[i] = has ? rk_svg_ratio_curve(&s->lane[i]) : NULL;
		any |= has;
		longest = s->lane[i].n_token > longest ? s->lane[i].n_token : longest;
	}
	label(f, LEFT, 22, "note", "start", ratio_note(s, any));
	ratio_range(p, s, &lo, &hi);
	fprintf(f, "<rect class=\"hit plot\" data-lane=\"0\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
	        LEFT, top, PLOT, RATIO_HEIGHT);
	ratio_axis(f, lo, hi, top);
	x_axis(f, (double)longest, LEFT, PLOT, top + RATIO_HEIGHT, top + RATIO_HEIGHT, "token of the reply", 0);
	for (int i = 0; i < s->n_lane; i++) {
		size_t n = s->lane[i].n_token;
		if (!p[i])
			continue;
		curve(f, p[i], n, true, i, top, RATIO_HEIGHT, lo, hi);
		curve(f, p[i], n, false, i, top, RATIO_HEIGHT, lo, hi);
		snprintf(text, sizeof text, "%s: %.4f over %zu tokens", s->lane[i].spec, n ? p[i][n - 1].running : (double)NAN, n);
		fprintf(f, "<path class=\"curve lane%d\" d=\"M%d %dh18\"/>", i, LEFT, 36 + 16 * n_line);
		label(f, LEFT + 24, 40 + 16 * n_line++, "value", "start", text);
		free(p[i]);
	}
	label(f, LEFT, top + RATIO_HEIGHT + 29, "note", "start", "perplexity against full attention; bold: all tokens so far, thin: the last 64; what is above 10 is drawn at 10");
}

void rk_svg_pane(FILE *f, const rk_series *s, enum rk_pane pane, const char *style)
{
	static void (*const draw[])(FILE *, const rk_series *) = {
		[RK_PANE_TIMELINE] = timeline, [RK_PANE_STRIDE] = stride, [RK_PANE_OCCUPANCY] = occupancy, [RK_PANE_RATIO] = ratio,
	};
	double height = pane == RK_PANE_RATIO ? 48 + 16 * s->n_lane + RATIO_HEIGHT + AXIS + 4 : pane == RK_PANE_STRIDE ? 12 : 32;

	for (int i = 0; i < s->n_lane && pane != RK_PANE_RATIO; i++)
		height += pane == RK_PANE_STRIDE ? stride_height(s, i) : block_height(s);
	begin(f, rk_pane_names[pane], height, style);
	draw[pane](f, s);
	fputs("</svg>\n", f);
}
