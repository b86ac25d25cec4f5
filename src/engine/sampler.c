/* sampler.c: see sampler.h.  Runs on the engine thread; the candidate array is allocated once. */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include "base/rng.h"

int rk_sampler_init(rk_sampler *s, const rk_sampling *cfg, int n_vocab, rk_err *e)
{
	*s = (rk_sampler){ .cfg = *cfg, .state = cfg->seed };
	if (cfg->temp <= 0)
		return 0;
	s->cand = malloc((size_t)n_vocab * sizeof *s->cand);
	if (!s->cand)
		return rk_fail(e, RK_ENOMEM, "sampler: out of memory for %d candidates", n_vocab);
	return 0;
}

void rk_sampler_free(rk_sampler *s)
{
	free(s->cand);
	s->cand = NULL;
}

static int by_logit(const void *a, const void *b)
{
	const struct rk_cand *x = a, *y = b;

	if (x->logit != y->logit)
		return x->logit < y->logit ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

int32_t rk_sample(rk_sampler *s, const float *logits, int n_vocab, int32_t argmax)
{
	const rk_sampling *c = &s->cfg;

	if (c->temp <= 0)
		return argmax;
	float top = logits[argmax];
	int n = 0;
	/* Tokens that top_p or min_p would drop anyway need no sorting: below e^-20 of the best one nothing can be drawn
	 * at usual temperatures, and a hotter one widens the window with it. */
	float floor_logit = top - 20.0f * (c->temp > 1 ? c->temp : 1);
	for (int i = 0; i < n_vocab; i++)
		if (logits[i] >= floor_logit)
			s->cand[n++] = (struct rk_cand){ logits[i], i };
	if (n == 0)	/* the best logit is not a number */
		return argmax;
	qsort(s->cand, (size_t)n, sizeof *s->cand, by_logit);
	if (c->top_k > 0 && n > c->top_k)
		n = c->top_k;
	if (c->top_p < 1) {
		double sum = 0, run = 0;
		for (int i = 0; i < n; i++)
			sum += exp((double)(s->cand[i].logit - top));
		for (int i = 0; i < n; i++) {
			run += exp((double)(s->cand[i].logit - top));
			if (run >= c->top_p * sum) {
				n = i + 1;
				break;
			}
		}
	}
	if (c->min_p > 0)
		while (n > 1 && s->cand[n - 1].logit < top + logf(c->min_p))
			n--;
	double sum = 0, run = 0;
	for (int i = 0; i < n; i++)
		sum += exp((double)((s->cand[i].logit - top) / c->temp));
	double at = rk_rng_unit(&s->state) * sum;
	for (int i = 0; i < n; i++) {
		run += exp((double)((s->cand[i].logit - top) / c->temp));
		if (at < run)
			return s->cand[i].id;
	}
	return s->cand[n - 1].id;
}
