/* figures.c: see figures.h */
#include "cmd/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int rk_sums_add(rk_sums *s, const rk_stats *stats, int lane, rk_err *e)
{
	const rk_lane_stats *l = &stats->lane[lane];
	float *ms = realloc(s->ms, (size_t)(s->n_step + l->n_step_ms + 1) * sizeof *ms);
	if (!ms)
		return rk_fail(e, RK_ENOMEM, "no memory for the figures");
	s->ms = ms;
	if (l->n_step_ms)
		memcpy(ms + s->n_step, l->step_ms, (size_t)l->n_step_ms * sizeof *ms);
	s->nll += l->nll;
	s->n_token += l->n_token;
	s->kl += l->kl;
	s->n_kl += l->n_kl;
	s->n_same += l->n_same_top1;
	s->n_step += l->n_step;
	s->n_layer_step += (int64_t)l->n_step * stats->n_layer;
	for (int i = 0; i < stats->n_layer; i++)
		s->n_full += l->n_full[i];
	s->bytes += l->bytes_full + l->bytes_partial + l->bytes_score;
	s->bytes_vanilla += l->bytes_vanilla;
	s->churn += l->churn;
	s->n_churn += l->n_churn;
	return 0;
}

void rk_sums_free(rk_sums *s)
{
	free(s->ms);
	*s = (rk_sums){ 0 };
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double median(float *v, int64_t n)
{
	if (n == 0)
		return NAN;
	qsort(v, (size_t)n, sizeof *v, by_value);
	return ((double)v[(n - 1) / 2] + (double)v[n / 2]) / 2;
}

static double mean(double sum, int64_t n)
{
	return n ? sum / (double)n : (double)NAN;
}

rk_figures rk_sums_figures(rk_sums *s, const rk_sums *base)
{
	return (rk_figures){
		.ppl = exp(mean(s->nll, s->n_token)),
		.ratio = base ? exp(mean(s->nll, s->n_token) - mean(base->nll, base->n_token)) : (double)NAN,
		.kl = mean(s->kl, s->n_kl),
		.same_top1 = mean((double)s->n_same, s->n_kl),
		.ms = median(s->ms, s->n_step),
		.bytes = mean((double)s->bytes, s->n_step),
		.bytes_vanilla = mean((double)s->bytes_vanilla, s->n_step),
		.stride = mean((double)s->n_layer_step, s->n_full),
		.churn = mean(s->churn, s->n_churn),
	};
}
