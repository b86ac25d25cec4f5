/* stats.h: what the printed figures are made of: sums over the event stream, per lane.
 *
 * Built from events alone, so that live figures, printed figures and figures of a replayed trace are the same.
 */
#ifndef RK_ENGINE_STATS_H
#define RK_ENGINE_STATS_H

#include "engine/event.h"
#include "backend/backend.h"

typedef struct rk_lane_stats {
	char spec[RK_SPEC_MAX];
	int n_token;			/* tokens of the reply */
	int n_step;			/* decode steps */
	int n_full[RK_MAX_LAYER];	/* full steps per layer */
	int64_t bytes_full, bytes_partial, bytes_score, bytes_vanilla;	/* K and V bytes read, summed over steps */
	int64_t ns_shared, ns_attn;	/* summed over steps */
	double nll;			/* sum of -logprob over tokens */
	double kl; int n_kl;		/* sums over tokens with a baseline */
	int n_same_top1;
	double churn; int n_churn;	/* sums over layer selections */
	bool ended;			/* what follows is known: a trace may be cut off, a session may fail */
	enum rk_end end;
	uint64_t logits_hash;
	float *step_ms; int n_step_ms, cap_step_ms;	/* ms/token of each step: shared + this lane's attention; owned */
} rk_lane_stats;

typedef struct rk_stats {
	int n_lane, n_layer;
	int n_prompt;			/* tokens of the first prompt */
	int n_prefill; int64_t ns_prefill;	/* tokens and time of the last prefill */
	int64_t cache_full, cache_partial;	/* bytes allocated */
	int64_t lost;
	rk_lane_stats lane[RK_MAX_LANE];
} rk_stats;

void rk_stats_init(rk_stats *s);
void rk_stats_free(rk_stats *s);
int rk_stats_add(rk_stats *s, const rk_event *ev, const void *payload, rk_err *e);

/* Decode steps per full step over all layers; NAN (n/a) while there was no full step. */
double rk_stats_stride(const rk_stats *s, int lane);
double rk_stats_layer_stride(const rk_stats *s, int lane, int layer);
double rk_stats_ppl(const rk_stats *s, int lane);			/* exp(mean NLL) */
double rk_stats_ratio(const rk_stats *s, int lane, int base);		/* exp(mean NLL lane - mean NLL base) */
double rk_stats_ms_median(rk_stats *s, int lane);			/* NAN without steps */
double rk_stats_bytes_per_step(const rk_stats *s, int lane);		/* K and V bytes read */
/* rk_policy_remark of the first lane that it has one on, else "". */
void rk_stats_remark(const rk_stats *s, char out[RK_REMARK_MAX]);

#endif
