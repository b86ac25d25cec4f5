/* chart.h: three pictures, as text for a terminal and as SVG: points with labels, lines over a common axis, a heat-map.
 *
 * A chart owns its arrays.  A value that is not known is NAN, and is left out.  Pure functions of the chart; the colours of the
 * SVG are classes of src/trace/report.css.
 */
#ifndef RK_EVAL_CHART_H
#define RK_EVAL_CHART_H

#include <stdio.h>
#include "base/err.h"

enum rk_chart_kind { RK_CHART_POINTS, RK_CHART_LINES, RK_CHART_HEAT };

typedef struct rk_chart {
	enum rk_chart_kind kind;
	char title[320];
	const char *x_name, *y_name;
	int n_row, n_col;	/* POINTS: a row per point, one column.  LINES: a row per line.  HEAT: cells */
	char **label;		/* [n_row] */
	double *x;		/* [n_row][n_col] abscissa.  HEAT: [0][n_col] what the columns stand for */
	double *y;		/* [n_row][n_col] ordinate.  HEAT: 0 to 1 */
	double x_usual[2], y_usual[2];	/* the axis shown where all its values are the same; both 0: from 0 to twice that value */
} rk_chart;

int rk_chart_init(rk_chart *c, enum rk_chart_kind kind, int n_row, int n_col, rk_err *e);
void rk_chart_free(rk_chart *c);
int rk_chart_label(rk_chart *c, int row, const char *label, rk_err *e);

/* n charts one below the other, heat-maps beside each other: on a terminal of 100 columns, or as an SVG file of its own. */
void rk_chart_print(const rk_chart *c, int n, FILE *f);
void rk_chart_svg(const rk_chart *c, int n, FILE *f);

#endif
