/* series.h: a whole trace as columns in memory, for figures that look at all of it at once: statistics, CSV, HTML, SVG.
 *
 * Built from events alone.  Some 56 bytes per token and one per layer and step; sessions that follow each other in a
 * trace (windows of ppl) are laid end to end.
 */
#ifndef RK_TRACE_SERIES_H
#define RK_TRACE_SERIES_H

#include "engine/stats.h"
#include "trace/trace.h"

/* CHECKED: a check was due, and the step stayed partial. */
enum rk_cell { RK_CELL_PARTIAL, RK_CELL_FULL, RK_CELL_GLANCE, RK_CELL_CHECKED };

typedef struct rk_series_token {
	int32_t index;		/* in its reply */
	int32_t id;
	int32_t choice;		/* rk_event_own_choice */
	float nll;		/* -log-probability in the lane's own distribution */
	float base_nll;		/* the same token's by full attention over the same history; NaN: no baseline */
	float kl;		/* KL(full attention || lane); NaN: no baseline */
	bool same_top1;		/* means nothing where kl is NaN */
	size_t step;		/* of the lane, that feeds it; n_step where none did */
	size_t text, n_text;	/* its characters, in the lane's text */
} rk_series_token;

typedef struct rk_series_lane {
	char spec[RK_SPEC_MAX];		/* the last one, where it changed */
	rk_series_token *token;		/* [n_token] */
	size_t n_token, cap_token;
	char *text;			/* [n_text] */
	size_t n_text, cap_text;
	uint8_t *cell;			/* [n_step][n_layer] enum rk_cell */
	size_t n_step, cap_cell;
	int64_t n_full[RK_MAX_LAYER];
	bool has_occupancy;
	rk_layer_occupancy occupancy[RK_MAX_LAYER];	/* the last one reported */
	size_t reply;			/* first token of the reply that runs */
} rk_series_lane;

typedef struct rk_series {
	rk_trace_header head;		/* a copy; owns nothing */
	int n_lane, n_layer;
	int base;			/* lane of the first vanilla policy; -1: none */
	int n_session, n_prompt;	/* of the last session */
	int64_t lost;
	rk_series_lane lane[RK_MAX_LANE];
} rk_series;

void rk_series_init(rk_series *s, const rk_trace_header *h);
void rk_series_free(rk_series *s);
int rk_series_add(rk_series *s, const rk_event *ev, const void *payload, rk_err *e);
/* After the last event: what is left to do where the trace has no end. */
void rk_series_end(rk_series *s);
/* All events from the start of t, which is left at its end. */
int rk_series_load(rk_series *s, rk_trace *t, rk_err *e);

/* Steps per full step of one layer; NAN without one. */
double rk_series_stride(const rk_series *s, int lane, int layer);
/* exp(mean(nll - base_nll)) over tokens [from, to) that have a baseline; NAN without. */
double rk_series_ratio(const rk_series *s, int lane, size_t from, size_t to);
/* Does any token of the lane have a baseline? */
bool rk_series_has_ratio(const rk_series *s, int lane);

#endif
