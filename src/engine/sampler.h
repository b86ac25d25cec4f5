/* sampler.h: the next token from a row of logits. */
#ifndef RK_ENGINE_SAMPLER_H
#define RK_ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef struct rk_sampling {
	float temp;	/* 0: greedy, the lower id wins ties */
	int top_k;	/* 0: off */
	float top_p;	/* 1: off */
	float min_p;	/* 0: off; relative to the most probable token */
	uint64_t seed;
} rk_sampling;

typedef struct rk_sampler {
	rk_sampling cfg;
	uint64_t state;				/* rng.h */
	struct rk_cand { float logit; int32_t id; } *cand;	/* [n_vocab] work space; NULL when greedy */
} rk_sampler;

int rk_sampler_init(rk_sampler *s, const rk_sampling *cfg, int n_vocab, rk_err *e);
void rk_sampler_free(rk_sampler *s);
/* Filters in the order top-k, top-p, min-p (both on the unscaled distribution), then temperature, then draws. */
int32_t rk_sample(rk_sampler *s, const float *logits, int n_vocab, int32_t argmax);

#endif
