/* pictures.h: the pictures of an evaluation: needle's heat-maps of depth and length, ppl's ratio over position (figure 3 of the
 * RefreshKV paper), and quality against cost where three or more policies ran. */
#ifndef RK_EVAL_PICTURES_H
#define RK_EVAL_PICTURES_H

#include "eval/chart.h"
#include "eval/records.h"

/* *charts [*n]: each to be freed with rk_chart_free, then the array; also after an error. */
int rk_eval_pictures(const rk_records *r, rk_chart **charts, int *n, rk_err *e);

#endif
