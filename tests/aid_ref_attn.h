/* aid_ref_attn.h: the specification of attention and of the cache policies, in plain double precision.
 *
 * Shares no code with src/: sequences of every key and value ever seen, position lists instead of rings, sorting
 * instead of selection.  ref_lane_step follows docs/POLICIES.md line by line and says which positions a step attends.
 */
#ifndef RK_TESTS_AID_REF_ATTN_H
#define RK_TESTS_AID_REF_ATTN_H

#include <stdbool.h>
#include "policy/policy.h"

#define REF_MAX_KV 4

/* All positions of one layer; k, v are what the cache holds, after rounding. */
typedef struct ref_seq {
	int n_head, n_kv, d;
	int n, cap;
	double *k, *v;	/* [cap][n_kv][d] */
} ref_seq;

/* Kept positions of one lane: list[kv][0] leaves first under evict=lowest. */
typedef struct ref_lane {
	rk_policy pol;
	int budget, step;
	bool keeps_full, force_full;
	int len[REF_MAX_KV];
	int *list[REF_MAX_KV];
	double *acc[REF_MAX_KV];	/* [position] accumulated probability */
	double *q_ref;			/* [n_head * d] what is compared, of the last selection */
	/* of the last step or selection */
	bool full;
	double cos;			/* NaN: no check */
	double churn;			/* NaN: no selection */
	double margin;			/* smallest relative distance of a decision to the other outcome, over all steps */
	int n_attended[REF_MAX_KV];
	int *attended[REF_MAX_KV];
} ref_lane;

void ref_seq_init(ref_seq *s, int n_head, int n_kv, int d, int cap);
void ref_seq_free(ref_seq *s);

/* p[i] = softmax over i < n of q . k[pos[i]] / sqrt(d); pos NULL: positions 0 .. n-1. */
void ref_probabilities(const ref_seq *s, int kv, const float *q, const int *pos, int n, double *p);
/* out [d] of one head. */
void ref_attend(const ref_seq *s, int kv, const float *q, const int *pos, int n, double *out);
/* Queries q [n][n_head][d] at positions first .. first+n-1: out [n][n_head][d]; colsum NULL or [n_kv][s->cap] +=
 * probabilities. */
void ref_prefill(const ref_seq *s, const float *q, int first, int n, double *out, double *colsum);
/* The k highest of score[n] in the order in which a ring gives them up. */
int ref_topk(const double *score, int n, int k, int *pos);

void ref_lane_init(ref_lane *l, const rk_policy *pol, int budget, bool keeps_full, const ref_seq *s);
void ref_lane_free(ref_lane *l);
/* After a prefill of s->n positions; arguments as backend.h's select (colsum [n_kv][colsum_cap]). */
void ref_lane_select(ref_lane *l, const ref_seq *s, const float *q_pre, const float *q, int n_q, const float *colsum,
                     int colsum_cap);
/* One step whose token is already the last position of s: out [n_head][d]. */
void ref_lane_step(ref_lane *l, const ref_seq *s, const float *q_pre, const float *q, double *out);

#endif
