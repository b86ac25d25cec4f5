/* figures.h: sums over tokens and steps of one policy, over several sessions where there are, and the figures of a table. */
#ifndef RK_CMD_FIGURES_H
#define RK_CMD_FIGURES_H

#include "engine/stats.h"

typedef struct rk_sums {
	double nll, kl;
	int64_t n_token, n_kl, n_same;
	int64_t n_step, n_layer_step, n_full;	/* steps; steps x layers; layers that did a full step */
	int64_t bytes, bytes_vanilla;
	double churn;
	int64_t n_churn;
	float *ms;				/* [n_step] of each step; owned */
} rk_sums;

typedef struct rk_figures {	/* NAN: not known */
	double ppl, ratio, kl, same_top1, ms, bytes, bytes_vanilla, stride, churn;
} rk_figures;

int rk_sums_add(rk_sums *s, const rk_stats *stats, int lane, rk_err *e);
void rk_sums_free(rk_sums *s);
/* base: of the same tokens by full attention; NULL: none.  Sorts s->ms. */
rk_figures rk_sums_figures(rk_sums *s, const rk_sums *base);

#endif
