/* export.h: a trace in other programs' formats: CSV tables, Chrome trace events (Perfetto), SVG of a pane, one HTML page.
 *
 * Each reads the trace from its start and writes to files of the caller's, who checks them for write errors.
 */
#ifndef RK_TRACE_EXPORT_H
#define RK_TRACE_EXPORT_H

#include <stdio.h>
#include "trace/series.h"

typedef struct rk_csv_files {
	FILE *token, *step, *refresh;	/* a row per token; per step and layer; per selection (and KV head, with positions) */
} rk_csv_files;

int rk_export_csv(rk_trace *t, const rk_csv_files *f, rk_err *e);

/* pid: lane; tid: layer, and one more for the steps as a whole.  A layer's slice spans its step: how long each layer took
 * is not recorded. */
int rk_export_chrome(rk_trace *t, FILE *f, rk_err *e);

/* Colours follow the reader's light or dark preference; nothing is fetched. */
int rk_export_html(rk_trace *t, FILE *f, rk_err *e);

/* "partial", "full" or "glance" */
const char *rk_step_kind_name(enum rk_step_kind kind);

enum rk_pane { RK_PANE_TIMELINE, RK_PANE_STRIDE, RK_PANE_OCCUPANCY, RK_PANE_RATIO };
#define RK_N_PANE 4
extern const char *const rk_pane_names[];	/* in the order of the enum, NULL-terminated */

int rk_export_svg(rk_trace *t, enum rk_pane pane, FILE *f, rk_err *e);

#endif
