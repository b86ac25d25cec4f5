/* aid_ref_attn.c: see aid_ref_attn.h */
#include "aid_ref_attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_seq_init(ref_seq *s, int n_head, int n_kv, int d, int cap)
{
	*s = (ref_seq){ .n_head = n_head, .n_kv = n_kv, .d = d, .cap = cap };
	s->k = calloc((size_t)(cap * n_kv * d), sizeof(double));
	s->v = calloc((size_t)(cap * n_kv * d), sizeof(double));
}

void ref_seq_free(ref_seq *s)
{
	free(s->k);
	free(s->v);
}

void ref_probabilities(const ref_seq *s, int kv, const float *q, const int *pos, int n, double *p)
{
	double max = -INFINITY, sum = 0;

	for (int i = 0; i < n; i++) {
		const double *k = s->k + ((pos ? pos[i] : i) * s->n_kv + kv) * s->d;
		p[i] = 0;
		for (int j = 0; j < s->d; j++)
			p[i] += (double)q[j] * k[j];
		p[i] /= sqrt(s->d);
		max = fmax(max, p[i]);
	}
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(p[i] - max);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

void ref_attend(const ref_seq *s, int kv, const float *q, const int *pos, int n, double *out)
{
	double *p = malloc((size_t)n * sizeof *p);

	ref_probabilities(s, kv, q, pos, n, p);
	for (int j = 0; j < s->d; j++) {
		out[j] = 0;
		for (int i = 0; i < n; i++)
			out[j] += p[i] * s->v[((pos ? pos[i] : i) * s->n_kv + kv) * s->d + j];
	}
	free(p);
}

void ref_prefill(const ref_seq *s, const float *q, int first, int n, double *out, double *colsum)
{
	double *p = malloc((size_t)s->cap * sizeof *p);

	for (int i = 0; i < n; i++)
		for (int h = 0; h < s->n_head; h++) {
			int kv = h / (s->n_head / s->n_kv), row = (i * s->n_head + h) * s->d;
			ref_attend(s, kv, q + row, NULL, first + i + 1, out + row);
			if (!colsum)
				continue;
			ref_probabilities(s, kv, q + row, NULL, first + i + 1, p);
			for (int t = 0; t <= first + i; t++)
				colsum[kv * s->cap + t] += p[t];
		}
	free(p);
}

struct scored {
	double score;
	int pos;
};

/* Best first: higher score, then lower position. */
static int better(const void *a, const void *b)
{
	const struct scored *x = a, *y = b;

	return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : x->pos - y->pos;
}

/* As ref_topk; *margin is lowered to the relative distance between the last kept and the first left out. */
static int topk(const double *score, int n, int k, int *pos, double *margin)
{
	struct scored *s = malloc((size_t)(n + 1) * sizeof *s);

	for (int i = 0; i < n; i++)
		s[i] = (struct scored){ score[i], i };
	qsort(s, (size_t)n, sizeof *s, better);
	k = k < n ? k : n;
	for (int i = 0; i < k; i++)
		pos[k - 1 - i] = s[i].pos;
	/* Kept entries must be told apart too: their order is the order in which they leave. */
	for (int i = 0; i < k && i + 1 < n; i++)
		if (s[i].score != s[i + 1].score)
			*margin = fmin(*margin, (s[i].score - s[i + 1].score) / s[i].score);
	free(s);
	return k;
}

int ref_topk(const double *score, int n, int k, int *pos)
{
	double margin = INFINITY;

	return topk(score, n, k, pos, &margin);
}

void ref_lane_init(ref_lane *l, const rk_policy *pol, int budget, bool keeps_full, const ref_seq *s)
{
	*l = (ref_lane){ .pol = *pol, .budget = budget, .keeps_full = keeps_full, .margin = INFINITY };
	for (int kv = 0; kv < s->n_kv; kv++) {
		l->list[kv] = calloc((size_t)s->cap + 1, sizeof(int));
		l->attended[kv] = calloc((size_t)s->cap + 1, sizeof(int));
		l->acc[kv] = calloc((size_t)s->cap + 1, sizeof(double));
	}
	l->q_ref = calloc((size_t)(s->n_head * s->d), sizeof(double));
}

void ref_lane_free(ref_lane *l)
{
	for (int kv = 0; kv < REF_MAX_KV; kv++) {
		free(l->list[kv]);
		free(l->attended[kv]);
		free(l->acc[kv]);
	}
	free(l->q_ref);
}

/* What is compared of one token's queries: out [returned length]. */
static int compared(const ref_lane *l, const ref_seq *s, const float *q_pre, const float *q, double *out)
{
	enum rk_query form = l->pol.query;

	q = form == RK_QUERY_PRE || form == RK_QUERY_PRE_CAT ? q_pre : q;
	if (form == RK_QUERY_PRE_CAT || form == RK_QUERY_POST_CAT) {
		for (int j = 0; j < s->n_head * s->d; j++)
			out[j] = (double)q[j];
		return s->n_head * s->d;
	}
	for (int j = 0; j < s->d; j++) {
		out[j] = 0;
		for (int h = 0; h < s->n_head; h++)
			out[j] += (double)q[h * s->d + j] / s->n_head;
	}
	return s->d;
}

static bool in(const int *list, int n, int p)
{
	for (int i = 0; i < n; i++)
		if (list[i] == p)
			return true;
	return false;
}

/* Attention score of every position for one KV head: mean over the last n_q queries, then over the group, then
 * pooled. */
static void attention_score(const ref_lane *l, const ref_seq *s, int kv, const float *q, int n_q, double *out)
{
	int group = s->n_head / s->n_kv, n = s->n;
	double *p = malloc((size_t)n * sizeof *p), *mean = malloc((size_t)n * sizeof *mean);
	double *agg = calloc((size_t)n, sizeof *agg);

	for (int g = 0; g < group; g++) {
		memset(mean, 0, (size_t)n * sizeof *mean);
		for (int j = 0; j < n_q; j++) {
			int see = n - n_q + 1 + j;
			ref_probabilities(s, kv, q + (j * s->n_head + kv * group + g) * s->d, NULL, see, p);
			for (int t = 0; t < see; t++)
				mean[t] += p[t] / n_q;
		}
		for (int t = 0; t < n; t++) {
			if (l->pol.group == RK_GROUP_MEAN)
				agg[t] += mean[t] / group;
			else if (g == 0 || (l->pol.group == RK_GROUP_MAX && mean[t] > agg[t]))
				agg[t] = mean[t];
		}
	}
	for (int t = 0; t < n; t++) {
		out[t] = -INFINITY;
		for (int o = -(l->pol.pool / 2); o <= l->pol.pool / 2; o++)
			if (t + o >= 0 && t + o < n)
				out[t] = fmax(out[t], agg[t + o]);
	}
	free(p);
	free(mean);
	free(agg);
}

/* A new list for one KV head; acc is up to date for the accumulated score. */
static void select_head(ref_lane *l, const ref_seq *s, int kv, const float *q, int n_q)
{
	int n = s->n, k = l->budget < n ? l->budget : n, len = 0, n_old = l->len[kv];
	int *old = malloc((size_t)s->cap * sizeof *old);
	double *score = malloc((size_t)n * sizeof *score);
	int *list = l->list[kv];

	memcpy(old, list, (size_t)n_old * sizeof *old);
	if (l->pol.score == RK_SCORE_ATTENTION) {
		attention_score(l, s, kv, q, n_q, score);
		len = topk(score, n, k, list, &l->margin);
	} else if (l->pol.score == RK_SCORE_ACCUMULATED) {
		int recent = l->budget / 2 < n ? l->budget / 2 : n;
		len = topk(l->acc[kv], n - recent, k - recent, list, &l->margin);
		for (int t = n - recent; t < n; t++)
			list[len++] = t;
	} else {	/* the first `sinks`, then the most recent */
		int sinks = l->pol.sinks < k ? l->pol.sinks : k;
		for (int t = n - (k - sinks); t < n; t++)
			list[len++] = t;
		for (int t = sinks - 1; t >= 0; t--)
			list[len++] = t;
	}
	int fresh = 0;
	for (int i = 0; i < len; i++)
		fresh += !in(old, n_old, list[i]);
	l->churn += (double)fresh / len / s->n_kv;
	l->len[kv] = len;
	free(old);
	free(score);
}

void ref_lane_select(ref_lane *l, const ref_seq *s, const float *q_pre, const float *q, int n_q, const float *colsum,
                     int colsum_cap)
{
	if (l->pol.score == RK_SCORE_NONE)
		return;
	for (int kv = 0; kv < s->n_kv; kv++) {
		for (int t = 0; colsum && t < s->n; t++)
			l->acc[kv][t] = (double)colsum[kv * colsum_cap + t];
		select_head(l, s, kv, q, n_q);
	}
	compared(l, s, q_pre, q + (n_q - 1) * s->n_head * s->d, l->q_ref);
}

static void drop(ref_lane *l, int kv, int i)
{
	memmove(l->list[kv] + i, l->list[kv] + i + 1, (size_t)(--l->len[kv] - i) * sizeof(int));
}

/* Index of the oldest that may go: not a sink, unless sinks are all there is beside the new token. */
static int oldest(const ref_lane *l, int kv)
{
	int best = -1, n = l->len[kv] - 1;	/* the last is the new token */

	for (int i = 0; i < n; i++)
		if (l->list[kv][i] >= l->pol.sinks && (best < 0 || l->list[kv][i] < l->list[kv][best]))
			best = i;
	for (int i = 0; best < 0 && i < n; i++)	/* the youngest sink */
		if (l->list[kv][i] == n - 1)
			best = i;
	return best;
}

static void attend_list(ref_lane *l, const ref_seq *s, int kv, const float *q, double *out)
{
	int group = s->n_head / s->n_kv;

	l->n_attended[kv] = l->len[kv];
	memcpy(l->attended[kv], l->list[kv], (size_t)l->len[kv] * sizeof(int));
	for (int h = kv * group; h < (kv + 1) * group; h++)
		ref_attend(s, kv, q + h * s->d, l->list[kv], l->len[kv], out + h * s->d);
}

static void partial_head(ref_lane *l, const ref_seq *s, int kv, const float *q, double *out)
{
	int group = s->n_head / s->n_kv, newest = s->n - 1, *list = l->list[kv];

	list[l->len[kv]++] = newest;
	if (l->pol.evict == RK_EVICT_OLDEST && l->len[kv] > l->budget)
		drop(l, kv, oldest(l, kv));
	attend_list(l, s, kv, q, out);
	if (l->pol.score == RK_SCORE_ACCUMULATED) {
		double *p = malloc((size_t)l->len[kv] * sizeof *p);
		for (int h = kv * group; h < (kv + 1) * group; h++) {
			ref_probabilities(s, kv, q + h * s->d, list, l->len[kv], p);
			for (int i = 0; i < l->len[kv]; i++)
				l->acc[kv][list[i]] += p[i];
		}
		free(p);
	}
	if (l->len[kv] <= l->budget)
		return;
	if (l->pol.evict == RK_EVICT_LOWEST)
		drop(l, kv, 0);
	if (l->pol.evict == RK_EVICT_LOWEST_ACCUMULATED) {
		int low = -1;
		for (int i = 0; i < l->len[kv]; i++) {
			double a = l->acc[kv][list[i]], b = low < 0 ? 0 : l->acc[kv][list[low]];
			if (list[i] < s->n - l->budget / 2 && (low < 0 || a < b || (a == b && list[i] > list[low])))
				low = i;
		}
		for (int i = 0; i < l->len[kv]; i++) {
			double a = l->acc[kv][list[i]], b = l->acc[kv][list[low]];
			if (list[i] < s->n - l->budget / 2 && a != b)
				l->margin = fmin(l->margin, (a - b) / a);
		}
		drop(l, kv, low);
	}
}

static void decide(ref_lane *l, const ref_seq *s, const float *q_pre, const float *q)
{
	const rk_policy *p = &l->pol;
	bool due = p->refresh == RK_REFRESH_QUERY && l->step % p->qc == p->qc - 1;

	l->cos = NAN;
	l->full = p->score == RK_SCORE_NONE;
	if (l->full || !l->keeps_full)
		return;
	l->full = l->force_full || (p->refresh == RK_REFRESH_STRIDE && l->step % p->stride == p->stride - 1);
	if (!due)
		return;
	double *m = malloc((size_t)(s->n_head * s->d) * sizeof *m), ab = 0, aa = 0, bb = 0;
	int n = compared(l, s, q_pre, q, m);
	for (int j = 0; j < n; j++) {
		ab += m[j] * l->q_ref[j];
		aa += m[j] * m[j];
		bb += l->q_ref[j] * l->q_ref[j];
	}
	free(m);
	l->cos = ab / sqrt(aa * bb);
	l->full |= l->cos < (double)p->s;
	l->margin = fmin(l->margin, fabs(l->cos - (double)p->s));
}

void ref_lane_step(ref_lane *l, const ref_seq *s, const float *q_pre, const float *q, double *out)
{
	int group = s->n_head / s->n_kv;

	decide(l, s, q_pre, q);
	l->churn = l->full && l->pol.score != RK_SCORE_NONE ? 0 : NAN;
	for (int kv = 0; kv < s->n_kv; kv++) {
		if (!l->full) {
			partial_head(l, s, kv, q, out);
			continue;
		}
		if (l->pol.score != RK_SCORE_NONE)
			select_head(l, s, kv, q, 1);
		if (l->pol.score != RK_SCORE_NONE && l->pol.attend == RK_ATTEND_SELECTED) {
			attend_list(l, s, kv, q, out);
			continue;
		}
		l->n_attended[kv] = s->n;
		for (int t = 0; t < s->n; t++)
			l->attended[kv][t] = t;
		for (int h = kv * group; h < (kv + 1) * group; h++)
			ref_attend(s, kv, q + h * s->d, NULL, s->n, out + h * s->d);
	}
	if (l->full && l->pol.score != RK_SCORE_NONE)
		compared(l, s, q_pre, q, l->q_ref);
	l->step++;
	l->force_full = false;
}
