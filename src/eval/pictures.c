/* pictures.c: see pictures.h */
#include "eval/pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "eval/summary.h"

#define N_DEPTH 11
#define MAX_BLOCK 32	/* of positions, in the ratio over position */

/* ---- needle ---- */

/* Mean score of a policy over the examples of one depth. */
static double cell(const rk_records *r, const char *spec, const char *task, double length, int depth)
{
	double sum = 0;
	json_t *rec;
	size_t i, at;
	int n = 0;

	json_array_foreach(r->list, i, rec) {
		const char *t = json_string_value(json_object_get(rec, "task"));
		json_t *d = json_object_get(json_object_get(rec, "data"), "depth");
		const json_t *reply = rk_eval_reply(rec, spec, &at);
		if (!reply || !t || strcmp(t, task) || json_number_value(json_object_get(rec, "length")) != length ||
		    !json_is_number(d) || lround(json_number_value(d) * (N_DEPTH - 1)) != depth)
			continue;
		sum += json_number_value(json_object_get(reply, "score"));
		n++;
	}
	return n ? sum / n : (double)NAN;
}

static int heat_map(const rk_records *r, rk_chart *c, const char *task, size_t policy, rk_err *e)
{
	if (rk_chart_init(c, RK_CHART_HEAT, N_DEPTH, rk_records_count(r, "lengths"), e))
		return -1;
	snprintf(c->title, sizeof c->title, "%s: %s", task, rk_records_text(r, "names", policy));
	c->x_name = "tokens";
	c->y_name = "depth";
	for (int i = 0; i < N_DEPTH; i++) {
		char label[16];
		snprintf(label, sizeof label, "%d %%", 100 * i / (N_DEPTH - 1));
		if (rk_chart_label(c, i, label, e))
			return -1;
		for (int k = 0; k < c->n_col; k++) {
			c->x[k] = json_number_value(json_array_get(json_object_get(r->header, "lengths"), (size_t)k));
			c->y[i * c->n_col + k] = cell(r, rk_records_text(r, "policies", policy), task, c->x[k], i);
		}
	}
	return 0;
}

/* ---- ppl ---- */

/* Adds a lane's nll per block of positions: sum [n_block], n [n_block]. */
static void add_blocks(const json_t *reply, double *sum, int *n, int n_block)
{
	json_t *nll = json_object_get(reply, "nll"), *v;
	size_t i, size = json_array_size(nll);

	json_array_foreach(nll, i, v) {
		size_t b = i * (size_t)n_block / size;
		sum[b] += json_number_value(v);
		n[b]++;
	}
}

/* Mean difference of nll from the baseline's per block, over the records that hold both. */
static void block_ratios(const rk_records *r, const char *spec, double *y, int n_block)
{
	double own[MAX_BLOCK] = { 0 }, base[MAX_BLOCK] = { 0 };
	int n[MAX_BLOCK] = { 0 }, n_base[MAX_BLOCK] = { 0 };
	json_t *rec;
	size_t i, at;

	json_array_foreach(r->list, i, rec) {
		const json_t *a = rk_eval_reply(rec, spec, &at), *b = rk_eval_reply(rec, rk_records_baseline(r), &at);
		if (!a || !b)
			continue;
		add_blocks(a, own, n, n_block);
		add_blocks(b, base, n_base, n_block);
	}
	for (int k = 0; k < n_block; k++)
		y[k] = n[k] ? exp((own[k] - base[k]) / n[k]) : (double)NAN;
}

static int over_position(const rk_records *r, rk_chart *c, rk_err *e)
{
	json_int_t said = json_integer_value(json_object_get(r->header, "eval"));	/* > 0 */
	int eval = said < 1 << 20 ? (int)said : 1 << 20;
	int n_block = eval < MAX_BLOCK ? eval : eval < 8 * MAX_BLOCK ? MAX_BLOCK / 2 : MAX_BLOCK;

	if (rk_chart_init(c, RK_CHART_LINES, rk_records_count(r, "policies"), n_block, e))
		return -1;
	snprintf(c->title, sizeof c->title, "ratio of perplexities over position, mean of %d tokens per mark", eval / n_block);
	c->x_name = "tokens after the prompt";
	c->y_name = "ratio";
	c->y_usual[0] = 0.9, c->y_usual[1] = 1.1;
	for (int i = 0; i < c->n_row; i++) {
		double *x = c->x + (size_t)i * (size_t)n_block;
		for (int k = 0; k < n_block; k++)
			x[k] = (k + 0.5) * eval / n_block;
		block_ratios(r, rk_records_text(r, "policies", (size_t)i), c->y + (size_t)i * (size_t)n_block, n_block);
		if (rk_chart_label(c, i, rk_records_text(r, "names", (size_t)i), e))
			return -1;
	}
	return 0;
}

/* ---- quality against cost ---- */

static int trade_off(const rk_records *r, rk_chart *c, bool ms, rk_err *e)
{
	bool ppl = rk_records_suite_is(r, "ppl");

	if (rk_chart_init(c, RK_CHART_POINTS, rk_records_count(r, "policies"), 1, e))
		return -1;
	c->x_name = ms ? "ms per token" : "K and V bytes read per step, % of vanilla";
	c->y_name = ppl ? "ratio of perplexities" : "score, %";
	c->x_usual[1] = ms ? 0 : 100;
	c->y_usual[0] = ppl ? 0.9 : 0;
	c->y_usual[1] = ppl ? 1.1 : 100;
	snprintf(c->title, sizeof c->title, "%s against %s", ppl ? "ratio" : "score", ms ? "time" : "bytes read");
	for (int i = 0; i < c->n_row; i++) {
		rk_eval_figures f = rk_eval_sum(r->list, rk_records_text(r, "policies", (size_t)i), rk_records_baseline(r), NULL, 0, -1);
		c->x[i] = ms ? f.ms : 100 * f.bytes / f.bytes_vanilla;
		c->y[i] = ppl ? f.ratio : 100 * f.score;
		if (rk_chart_label(c, i, rk_records_text(r, "names", (size_t)i), e))
			return -1;
	}
	return 0;
}

int rk_eval_pictures(const rk_records *r, rk_chart **charts, int *n, rk_err *e)
{
	int n_policy = rk_records_count(r, "policies"), n_task = rk_records_count(r, "tasks"), n_heat = rk_records_suite_is(r, "needle") ? n_task * n_policy : 0;

	*n = 0;
	*charts = calloc((size_t)n_heat + 3, sizeof **charts);
	if (!*charts)
		return rk_fail(e, RK_ENOMEM, "no memory for pictures");
	for (int i = 0; i < n_heat; i++)
		if (heat_map(r, &(*charts)[(*n)++], rk_records_text(r, "tasks", (size_t)(i / n_policy)), (size_t)(i % n_policy), e))
			return -1;
	if (rk_records_suite_is(r, "ppl") && json_integer_value(json_object_get(r->header, "eval")) > 0 && over_position(r, &(*charts)[(*n)++], e))
		return -1;
	for (int ms = 0; ms < 2 && n_policy > 2; ms++)
		if (trade_off(r, &(*charts)[(*n)++], ms, e))
			return -1;
	return 0;
}
