/* svg.h: draws the panes of a trace as SVG.  Pure functions of the series; colours are classes, defined by report.css. */
#ifndef RK_TRACE_SVG_H
#define RK_TRACE_SVG_H

#include "trace/export.h"

#define RK_RATIO_WINDOW 64	/* tokens of the windowed ratio */
#define RK_MAX_COLUMN 1000	/* of the timeline; longer traces have several steps per column */

/* style: text of a style sheet to put inside, for a file of its own; NULL inside a page that has it. */
void rk_svg_pane(FILE *f, const rk_series *s, enum rk_pane pane, const char *style);

/* How many steps one column of a lane's timeline stands for. */
size_t rk_svg_steps_per_column(const rk_series_lane *l);
/* A cell of it: eighths of its steps that went full, rounded up; where none did RK_SHADE_GLANCE or, if a check was due,
 * RK_SHADE_CHECKED. */
enum { RK_SHADE_GLANCE = -2, RK_SHADE_CHECKED = -1 };
int rk_svg_shade(const rk_series_lane *l, int n_layer, size_t column, int layer);

typedef struct rk_ratio_point {
	double running;		/* over all tokens up to this one */
	double windowed;	/* over the last RK_RATIO_WINDOW */
} rk_ratio_point;
/* [n_token], allocated; NULL: no memory. */
rk_ratio_point *rk_svg_ratio_curve(const rk_series_lane *l);

/* s as XML text, controls left out. */
void rk_xml_text(FILE *f, const char *s, size_t n);

#endif
