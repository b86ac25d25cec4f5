/* eval_report.h: what `refreshkv eval` prints and writes of its records, whether it has made or merged them. */
#ifndef RK_CMD_EVAL_REPORT_H
#define RK_CMD_EVAL_REPORT_H

#include <stdio.h>
#include "eval/records.h"

/* Pictures, scores by task and length, and what each policy cost. */
int rk_eval_report(const rk_records *r, FILE *f, rk_err *e);
/* The pictures as an SVG file. */
int rk_eval_svg(const rk_records *r, FILE *f, rk_err *e);
/* One row per record and policy. */
void rk_eval_csv(const rk_records *r, FILE *f);
/* "vanilla 40.0, refreshkv 35.0" (with ppl: ratios) for the progress line. */
void rk_eval_running(const rk_records *r, char *out, size_t size);

#endif
