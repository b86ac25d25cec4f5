/* chart.c: see chart.h */
#include "eval/chart.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "trace/svg.h"

#define PAGE 100	/* columns of the terminal */
#define COLS 64		/* of a plot there */
#define LINES 16
#define HEAT_LABEL 8
#define WIDTH 760	/* of the SVG */
#define LEFT 64
#define RIGHT 150	/* labels of lines and points reach into it */
#define TOP 40
#define PLOT 240
#define CELL 44		/* of a heat-map */
#define BELOW 48
#define MAX_LABEL 64	/* lines that are labelled: as many as policies fit into a run */
#define N_COLOUR 8	/* classes lane0 to lane7 */

int rk_chart_init(rk_chart *c, enum rk_chart_kind kind, int n_row, int n_col, rk_err *e)
{
	size_t n = (size_t)n_row * (size_t)n_col;

	*c = (rk_chart){ .kind = kind, .x_name = "", .y_name = "", .n_row = n_row, .n_col = n_col };
	c->label = calloc((size_t)n_row, sizeof *c->label);
	c->x = malloc(n * sizeof *c->x);
	c->y = malloc(n * sizeof *c->y);
	if (!c->label || !c->x || !c->y)
		return rk_fail(e, RK_ENOMEM, "no memory for a chart of %zu values", n);
	for (size_t i = 0; i < n; i++)
		c->x[i] = c->y[i] = NAN;
	return 0;
}

void rk_chart_free(rk_chart *c)
{
	for (int i = 0; c->label && i < c->n_row; i++)
		free(c->label[i]);
	free(c->label);
	free(c->x);
	free(c->y);
	*c = (rk_chart){ 0 };
}

int rk_chart_label(rk_chart *c, int row, const char *label, rk_err *e)
{
	c->label[row] = strdup(label);
	return c->label[row] ? 0 : rk_fail(e, RK_ENOMEM, "no memory for a chart");
}

static const char *label_of(const rk_chart *c, int row)
{
	return c->label[row] ? c->label[row] : "";
}

/* ---- axes ---- */

struct span { double lo, hi; };

/* What is shown around values that are all v. */
static struct span around(double v, const double usual[2])
{
	if (usual[0] < usual[1] && v >= usual[0] && v <= usual[1])
		return (struct span){ usual[0], usual[1] };
	return v > 0 ? (struct span){ 0, 2 * v } : v < 0 ? (struct span){ 2 * v, 0 } : (struct span){ 0, 1 };
}

/* From the least to the greatest value, widened by a twentieth so that no mark sits on the frame. */
static struct span span_of(const double *v, int n, const double usual[2])
{
	struct span s = { INFINITY, -INFINITY };

	for (int i = 0; i < n; i++)
		if (isfinite(v[i])) {
			s.lo = fmin(s.lo, v[i]);
			s.hi = fmax(s.hi, v[i]);
		}
	if (s.lo > s.hi)
		return (struct span){ 0, 1 };
	if (s.hi - s.lo <= 1e-9 * fabs(s.hi))	/* sums of the same numbers in another order are the same, too */
		s = around(s.hi, usual);
	double pad = (s.hi - s.lo) / 20;
	return (struct span){ s.lo - pad, s.hi + pad };
}

/* A round distance with at most n marks in the span. */
static double tick(struct span s, int n)
{
	double width = s.hi - s.lo, step = pow(10, floor(log10(width / n)));

	return width / step <= n ? step : width / (2 * step) <= n ? 2 * step : width / (5 * step) <= n ? 5 * step : 10 * step;
}

static int decimals(double step)
{
	int d = (int)ceil(-log10(step) - 1e-9);

	return d < 0 ? 0 : d;
}

/* ---- terminal ---- */

static char mark(int row)
{
	return "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*"[row < 52 ? row : 52];
}

static void print_plot(const rk_chart *c, FILE *f)
{
	char grid[LINES][COLS + 1];
	int n = c->n_row * c->n_col;
	struct span sx = span_of(c->x, n, c->x_usual), sy = span_of(c->y, n, c->y_usual);
	double step = tick(sy, 4);

	memset(grid, ' ', sizeof grid);
	for (int i = n - 1; i >= 0; i--) {	/* of marks on one spot the first is seen */
		if (!isfinite(c->x[i]) || !isfinite(c->y[i]))
			continue;
		int col = (int)((c->x[i] - sx.lo) / (sx.hi - sx.lo) * COLS), line = (int)((sy.hi - c->y[i]) / (sy.hi - sy.lo) * LINES);
		grid[line][col] = mark(i / c->n_col);
	}
	fprintf(f, "%s\n%10s\n", c->title, c->y_name);
	for (int l = 0; l < LINES; l++) {
		double top = sy.hi - (sy.hi - sy.lo) * l / LINES, bottom = sy.hi - (sy.hi - sy.lo) * (l + 1) / LINES;
		double at = ceil(bottom / step) * step + 0.0;	/* no -0 */
		grid[l][COLS] = '\0';
		for (int k = COLS - 1; k >= 0 && grid[l][k] == ' '; k--)
			grid[l][k] = '\0';
		if (at < top)	/* one on the border of two lines is marked once */
			fprintf(f, "%10.*f +%s\n", decimals(step), at, grid[l]);
		else
			fprintf(f, "%10s |%s\n", "", grid[l]);
	}
	fprintf(f, "%10s +", "");
	for (int k = 0; k < COLS; k++)
		fputc('-', f);
	fprintf(f, "\n%10s  %-*.4g%.4g  %s\n", "", COLS - 6, sx.lo, sx.hi, c->x_name);
	for (int i = 0; i < c->n_row; i++)
		fprintf(f, "  %c  %s\n", mark(i), label_of(c, i));
}

/* Five shades: 0, below a third, below two thirds, below 1, and 1. */
static const char *shade(double v)
{
	return isnan(v) ? " " : v <= 0 ? "·" : v < 1.0 / 3 ? "░" : v < 2.0 / 3 ? "▒" : v < 1 ? "▓" : "█";
}

static int heat_width(const rk_chart *c)
{
	int title = (int)strlen(c->title), cells = 7 * c->n_col;

	return (title > cells ? title : cells) + 3;
}

/* n heat-maps of the same rows beside each other. */
static void print_heats(const rk_chart *c, int n, FILE *f)
{
	fprintf(f, "%*s", HEAT_LABEL, "");
	for (int i = 0; i < n; i++)
		fprintf(f, "%-*s", heat_width(&c[i]), c[i].title);
	fprintf(f, "\n%-*s", HEAT_LABEL, c->y_name);
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < c[i].n_col; k++)
			fprintf(f, "%-7.0f", c[i].x[k]);
		fprintf(f, "%*s", heat_width(&c[i]) - 7 * c[i].n_col, "");
	}
	fprintf(f, "%s\n", c->x_name);
	for (int row = 0; row < c->n_row; row++) {
		fprintf(f, "%-*s", HEAT_LABEL, label_of(c, row));
		for (int i = 0; i < n; i++) {
			for (int k = 0; k < 7 * c[i].n_col; k++)
				fputs(k % 7 < 6 ? shade(c[i].y[row * c[i].n_col + k / 7]) : " ", f);
			if (i + 1 < n)
				fprintf(f, "%*s", heat_width(&c[i]) - 7 * c[i].n_col, "");
		}
		fputc('\n', f);
	}
}

/* How many of c[0..n) are heat-maps of one axis that go beside each other. */
static int beside(const rk_chart *c, int n)
{
	int width = HEAT_LABEL, m = 0;

	while (m < n && c[m].kind == RK_CHART_HEAT && c[m].n_row == c->n_row && (m == 0 || width + heat_width(&c[m]) <= PAGE))
		width += heat_width(&c[m++]);
	return m;
}

void rk_chart_print(const rk_chart *c, int n, FILE *f)
{
	for (int i = 0; i < n;) {
		int m = beside(c + i, n - i);
		if (m)
			print_heats(c + i, m, f);
		else
			print_plot(c + i, f);
		i += m ? m : 1;
		fputc('\n', f);
	}
}

/* ---- SVG ---- */

static void text(FILE *f, double x, double y, const char *class, const char *anchor, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
	rk_xml_text(f, s, strlen(s));
	fputs("</text>\n", f);
}

static double height(const rk_chart *c)
{
	return TOP + (c->kind == RK_CHART_HEAT ? c->n_row * CELL / 2 : PLOT) + BELOW;
}

struct frame {
	double top;
	struct span x, y;
};

static double to_x(const struct frame *p, double x)
{
	return LEFT + (x - p->x.lo) / (p->x.hi - p->x.lo) * (WIDTH - LEFT - RIGHT);
}

static double to_y(const struct frame *p, double y)
{
	return p->top + (p->y.hi - y) / (p->y.hi - p->y.lo) * PLOT;
}

static void axes(const rk_chart *c, const struct frame *p, FILE *f)
{
	char s[32];
	double step = tick(p->x, 8), bottom = p->top + PLOT;

	for (double k = ceil(p->x.lo / step), v; (v = k * step + 0.0) <= p->x.hi; k++) {	/* + 0.0: no -0 */
		fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", to_x(p, v), p->top, bottom);
		snprintf(s, sizeof s, "%.*f", decimals(step), v);
		text(f, to_x(p, v), bottom + 15, "tick", "middle", s);
	}
	step = tick(p->y, 6);
	for (double k = ceil(p->y.lo / step), v; (v = k * step + 0.0) <= p->y.hi; k++) {
		fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, to_y(p, v), WIDTH - RIGHT);
		snprintf(s, sizeof s, "%.*f", decimals(step), v);
		text(f, LEFT - 6, to_y(p, v) + 3.5, "tick", "end", s);
	}
	text(f, WIDTH - RIGHT, bottom + 32, "note", "end", c->x_name);
	text(f, LEFT, p->top - 6, "note", "start", c->y_name);
}

/* Labels at the ends of lines, pushed down where they would cover each other. */
static void end_labels(const rk_chart *c, const struct frame *p, FILE *f)
{
	bool done[MAX_LABEL] = { false };
	double free_from = -INFINITY;

	for (int n = 0; n < c->n_row && n < MAX_LABEL; n++) {
		double best = INFINITY;
		int row = -1;
		for (int i = 0; i < c->n_row && i < MAX_LABEL; i++) {
			double y = c->y[(size_t)(i + 1) * (size_t)c->n_col - 1];
			if (!done[i] && isfinite(y) && to_y(p, y) < best) {
				best = to_y(p, y);
				row = i;
			}
		}
		if (row < 0)
			return;
		done[row] = true;
		double at = fmax(best, free_from);
		free_from = at + 11;
		fprintf(f, "<path class=\"curve lane%d\" d=\"M%d %.1fh10\"/>", row % N_COLOUR, WIDTH - RIGHT + 6, at);
		text(f, WIDTH - RIGHT + 20, at + 3.5, "tick", "start", label_of(c, row));
	}
}

static void svg_lines(const rk_chart *c, const struct frame *p, FILE *f)
{
	for (int i = 0; i < c->n_row; i++) {
		bool pen = false;
		fprintf(f, "<path class=\"curve lane%d\" d=\"", i % N_COLOUR);
		for (size_t k = (size_t)i * (size_t)c->n_col; k < (size_t)(i + 1) * (size_t)c->n_col; k++) {
			if (!isfinite(c->x[k]) || !isfinite(c->y[k]))
				continue;
			fprintf(f, "%s%.1f %.1f", pen ? "L" : "M", to_x(p, c->x[k]), to_y(p, c->y[k]));
			pen = true;
		}
		fputs("\"/>\n", f);
	}
	end_labels(c, p, f);
}

static void svg_points(const rk_chart *c, const struct frame *p, FILE *f)
{
	for (int i = 0; i < c->n_row; i++) {
		if (!isfinite(c->x[i]) || !isfinite(c->y[i]))
			continue;
		fprintf(f, "<circle class=\"curve lane%d\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"/>", i % N_COLOUR, to_x(p, c->x[i]), to_y(p, c->y[i]));
		text(f, to_x(p, c->x[i]) + 8, to_y(p, c->y[i]) + 3.5, "tick", "start", label_of(c, i));
	}
}

static void svg_plot(const rk_chart *c, double top, FILE *f)
{
	int n = c->n_row * c->n_col;
	struct frame p = { top, span_of(c->x, n, c->x_usual), span_of(c->y, n, c->y_usual) };

	axes(c, &p, f);
	if (c->kind == RK_CHART_LINES)
		svg_lines(c, &p, f);
	else
		svg_points(c, &p, f);
}

static double heat_span(const rk_chart *c)
{
	double title = 6.5 * (double)strlen(c->title), cells = c->n_col * CELL;

	return LEFT + (title > cells ? title : cells) + 16;
}

static void svg_heat(const rk_chart *c, double left, double top, FILE *f)
{
	char s[32];

	for (int i = 0; i < c->n_row; i++) {
		double y = top + i * CELL / 2.0;
		text(f, left - 6, y + CELL / 4.0 + 3.5, "tick", "end", label_of(c, i));
		for (int k = 0; k < c->n_col; k++) {
			double v = c->y[i * c->n_col + k], x = left + k * CELL;
			fprintf(f, "<rect class=\"partial\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>", x, y, CELL - 1, CELL / 2 - 1);
			if (isnan(v))
				continue;
			fprintf(f, "<rect class=\"full\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>", v, x, y, CELL - 1,
			        CELL / 2 - 1);
		}
	}
	for (int k = 0; k < c->n_col; k++) {
		snprintf(s, sizeof s, "%.0f", c->x[k]);
		text(f, left + (k + 0.5) * CELL, top + c->n_row * CELL / 2.0 + 14, "tick", "middle", s);
	}
	text(f, left, top + c->n_row * CELL / 2.0 + 30, "note", "start", c->x_name);
	text(f, left - 6, top - 6, "note", "end", c->y_name);
}

/* Charts one below the other, heat-maps beside each other as far as the page goes.  f NULL: only how high it all is. */
static double lay_out(const rk_chart *c, int n, FILE *f)
{
	double x = 0, top = 0, line = 0;	/* line: height of the row of heat-maps that is being filled */

	for (int i = 0; i < n; i++) {
		bool heat = c[i].kind == RK_CHART_HEAT;
		if (line > 0 && (!heat || x + heat_span(&c[i]) > WIDTH)) {
			top += line;
			x = line = 0;
		}
		if (f)
			text(f, x + LEFT, top + 16, "title", "start", c[i].title);
		if (f && heat)
			svg_heat(&c[i], x + LEFT, top + TOP, f);
		else if (f)
			svg_plot(&c[i], top + TOP, f);
		if (heat) {
			x += heat_span(&c[i]);
			line = fmax(line, height(&c[i]));
		} else {
			top += height(&c[i]);
		}
	}
	return top + line;
}

void rk_chart_svg(const rk_chart *c, int n, FILE *f)
{
	const rk_embedded *style = rk_embedded_find("src/trace/report.css");
	double total = lay_out(c, n, NULL);

	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\"><style>%.*s</style>"
	        "<rect class=\"paper\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH, total, WIDTH, total, style ? (int)style->len : 0,
	        style ? style->data : "", WIDTH, total);
	lay_out(c, n, f);
	fputs("</svg>\n", f);
}
