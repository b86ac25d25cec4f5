/* aid_engine.c: see aid_engine.h */
#include "aid_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	abort();
}

static void *zeroed(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p)
		die("calloc", "out of memory");
	return p;
}

/* ---- rig ---- */

rk_policy aid_policy(const char *spec)
{
	rk_policy p;
	rk_err e;
	if (rk_policy_parse(&p, spec, &e))
		die(spec, e.msg);
	return p;
}

void aid_rig_open(aid_rig *r, const aid_rig_opt *opt)
{
	rk_session_cfg cfg = { .n_ctx = opt->n_ctx, .chunk = opt->chunk, .keep_full = opt->keep_full };
	char path[32];
	rk_err e;
	*r = (aid_rig){ .fd = -1 };
	if (!opt->path)
		r->fd = aid_tiny_memfd(&opt->tiny, opt->seed ? opt->seed : 1, path);
	if (rk_model_load(&r->m, opt->path ? opt->path : path, &e))
		die("model", e.msg);
	while (opt->lanes[cfg.n_lane]) {
		cfg.lane[cfg.n_lane] = aid_policy(opt->lanes[cfg.n_lane]);
		cfg.n_lane++;
	}
	int chunk = cfg.chunk ? cfg.chunk : RK_DEFAULT_CHUNK;
	rk_backend_cfg bc = {
		.device = "cpu", .n_thread = opt->n_thread ? opt->n_thread : 1, .exact = opt->exact,
		.max_rows = chunk > RK_MAX_LANE ? chunk : RK_MAX_LANE, .max_pos = cfg.n_ctx ? cfg.n_ctx : r->m->hp.n_ctx_train,
	};
	if (rk_backend_open(&r->b, r->m, &bc, &e))
		die("backend", e.msg);
	if (rk_session_init(&r->s, r->m, r->b, &cfg, &e))
		die("session", e.msg);
}

void aid_rig_close(aid_rig *r)
{
	rk_session_free(&r->s);
	rk_backend_close(r->b);
	rk_model_free(r->m);
	if (r->fd >= 0)
		close(r->fd);
}

int32_t *aid_ids(int n, int n_vocab, uint64_t seed)
{
	int32_t *ids = zeroed((size_t)n, sizeof *ids);
	for (int i = 0; i < n; i++)
		ids[i] = 3 + (int32_t)(aid_random(&seed) * (n_vocab - 3));	/* 0..2 are the tiny model's control tokens */
	return ids;
}

void aid_start(rk_session *s, const int32_t *ids, int n, int max_new)
{
	rk_err e;
	if (rk_session_start(s, ids, n, max_new, NULL, NULL, &e))
		die("start", e.msg);
}

void aid_step_one(rk_session *s, int lane, int32_t id)
{
	rk_err e;
	if (rk_session_step(s, &lane, &id, 1, &e))
		die("step", e.msg);
}

void aid_step_all(rk_session *s, int32_t id)
{
	int lanes[RK_MAX_LANE];
	int32_t ids[RK_MAX_LANE];
	rk_err e;
	for (int i = 0; i < s->cfg.n_lane; i++) {
		lanes[i] = i;
		ids[i] = id;
	}
	if (rk_session_step(s, lanes, ids, s->cfg.n_lane, &e))
		die("step", e.msg);
}

const float *aid_logits(const rk_session *s, int lane)
{
	return s->logits + (size_t)lane * (size_t)s->m->hp.n_vocab;
}

double aid_max_diff(const float *a, const float *b, int n)
{
	double max = 0;
	for (int i = 0; i < n; i++) {
		double d = fabs((double)a[i] - (double)b[i]);
		max = d > max || isnan(d) ? d : max;
	}
	return max;
}

/* ---- simulation ---- */

struct ring { int32_t *pos; int n; double *acc; };	/* acc: [cap] by position, H2O */

struct layer {
	float *attn_norm, *wq, *wk, *wv, *wo, *ffn_norm, *w_gate, *w_up, *w_down;
	double *k, *v;		/* [cap][n_kv_head * head_dim] */
	double *colsum;		/* [n_kv_head][cap] */
	double *q;		/* [window][n_head * head_dim] the last queries after RoPE, that of token t at t % window */
	double *q_pre;		/* [n_head * head_dim] the last query before RoPE */
	double *q_ref;		/* [n_head * head_dim] what is compared, of the last selection */
	double *rest;		/* [n_head][head_dim + 1] stand-in for what is not selected, and its share */
	struct ring *ring;	/* [n_kv_head] */
	enum rk_step_kind kind;
	double cos;
};

struct aid_sim {
	const rk_model *m;
	const rk_hparams *hp;
	rk_policy pol;
	bool half, force_full;
	int cap, window, n_prompt, budget, step, n;	/* n: tokens so far, the running one included */
	struct layer *layer;
	float *embd, *out_norm, *output;
	double *logits, *p;	/* p: [cap] */
	const uint8_t *follow;
	double tie, margin;
	int near_ties;
};

static float *weights(const rk_tensor *t)
{
	float *w = zeroed((size_t)(t->n_row * t->n_col), sizeof *w);
	for (int64_t r = 0; r < t->n_row; r++)
		rk_dequant_row(t->type, (const char *)t->data + (size_t)r * rk_type_row_bytes(t->type, t->n_col), w + r * t->n_col,
		    t->n_col);
	return w;
}

static int budget_of(const rk_policy *p, int n_prompt)
{
	double k = p->k < 1 ? floor(p->k * n_prompt + 1e-9) : p->k;
	return p->score == RK_SCORE_NONE ? 0 : k < 1 ? 1 : (int)k;
}

aid_sim *aid_sim_new(const rk_model *m, const rk_policy *pol, bool half)
{
	const rk_hparams *hp = &m->hp;
	aid_sim *w = zeroed(1, sizeof *w);
	size_t cap = (size_t)hp->n_ctx_train, qd = (size_t)(hp->n_head * hp->head_dim),
	    kvd = (size_t)(hp->n_kv_head * hp->head_dim);
	*w = (aid_sim){ .m = m, .hp = hp, .pol = *pol, .half = half, .cap = hp->n_ctx_train, .margin = INFINITY };
	w->window = pol->window > 1 ? pol->window : 1;
	w->embd = weights(&m->w.tok_embd);
	w->out_norm = weights(&m->w.out_norm);
	w->output = weights(&m->w.output);
	w->logits = zeroed((size_t)hp->n_vocab, sizeof(double));
	w->p = zeroed(cap, sizeof(double));
	w->layer = zeroed((size_t)hp->n_layer, sizeof *w->layer);
	for (int l = 0; l < hp->n_layer; l++) {
		const rk_layer_weights *from = &m->w.layer[l];
		struct layer *y = &w->layer[l];
		y->attn_norm = weights(&from->attn_norm);
		y->wq = weights(&from->wq);
		y->wk = weights(&from->wk);
		y->wv = weights(&from->wv);
		y->wo = weights(&from->wo);
		y->ffn_norm = weights(&from->ffn_norm);
		y->w_gate = weights(&from->w_gate);
		y->w_up = weights(&from->w_up);
		y->w_down = weights(&from->w_down);
		y->k = zeroed(cap * kvd, sizeof(double));
		y->v = zeroed(cap * kvd, sizeof(double));
		y->colsum = zeroed((size_t)hp->n_kv_head * cap, sizeof(double));
		y->q = zeroed((size_t)w->window * qd, sizeof(double));
		y->q_pre = zeroed(qd, sizeof(double));
		y->rest = zeroed((size_t)(hp->n_head * (hp->head_dim + 1)), sizeof(double));
		y->q_ref = zeroed((size_t)(hp->n_head * hp->head_dim), sizeof(double));
		y->ring = zeroed((size_t)hp->n_kv_head, sizeof *y->ring);
		for (int kv = 0; kv < hp->n_kv_head; kv++) {
			y->ring[kv].pos = zeroed(cap + 1, sizeof(int32_t));
			y->ring[kv].acc = zeroed(cap, sizeof(double));
		}
	}
	return w;
}

void aid_sim_free(aid_sim *w)
{
	for (int l = 0; l < w->hp->n_layer; l++) {
		struct layer *y = &w->layer[l];
		void *all[] = { y->attn_norm, y->wq, y->wk, y->wv, y->wo, y->ffn_norm, y->w_gate, y->w_up, y->w_down, y->k, y->v,
		    y->colsum,
		                y->q, y->q_pre, y->q_ref, y->rest };
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			free(all[i]);
		for (int kv = 0; kv < w->hp->n_kv_head; kv++) {
			free(y->ring[kv].pos);
			free(y->ring[kv].acc);
		}
		free(y->ring);
	}
	free(w->layer);
	free(w->embd);
	free(w->out_norm);
	free(w->output);
	free(w->logits);
	free(w->p);
	free(w);
}

/* y = W x */
static void mul(double *y, const float *w, const double *x, int n_row, int n_col)
{
	for (int r = 0; r < n_row; r++) {
		double sum = 0;
		for (int c = 0; c < n_col; c++)
			sum += (double)w[(size_t)r * (size_t)n_col + (size_t)c] * x[c];
		y[r] = sum;
	}
}

static void norm(const aid_sim *w, double *y, const double *x, const float *weight)
{
	double sum = 0;
	for (int i = 0; i < w->hp->n_embd; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < w->hp->n_embd; i++)
		y[i] = x[i] / sqrt(sum / w->hp->n_embd + (double)w->hp->rms_eps) * (double)weight[i];
}

static void rotate(const aid_sim *w, double *x, int n_head, int pos)
{
	int d = w->hp->head_dim;
	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < d; i += 2) {
			double angle = pos * pow((double)w->hp->rope_theta, -(double)i / d), a = x[h * d + i], b = x[h * d + i + 1];
			x[h * d + i] = a * cos(angle) - b * sin(angle);
			x[h * d + i + 1] = a * sin(angle) + b * cos(angle);
		}
}

static double stored(const aid_sim *w, double x)
{
	return w->half ? (double)rk_half_to_float(rk_float_to_half((float)x)) : x;
}

/* p[0..n) = softmax of head h's query over the positions pos[0..n), or 0..n-1 when pos is NULL. */
static void probabilities(const aid_sim *w, const struct layer *y, int h, const double *q, const int32_t *pos, int n,
    double *p)
{
	int d = w->hp->head_dim, kv = h / (w->hp->n_head / w->hp->n_kv_head), kvd = w->hp->n_kv_head * d;
	double max = -INFINITY, sum = 0;
	for (int i = 0; i < n; i++) {
		const double *k = y->k + (size_t)(pos ? pos[i] : i) * (size_t)kvd + kv * d;
		p[i] = 0;
		for (int j = 0; j < d; j++)
			p[i] += q[h * d + j] * k[j];
		p[i] /= sqrt(d);
		max = fmax(max, p[i]);
	}
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(p[i] - max);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

/* The nearest f16 number, in one rounding: by way of float there would be two.  0 <= x, of ordinary size. */
static double as_half(double x)
{
	int e;
	frexp(x, &e);
	e = e < -13 ? -13 : e;
	return ldexp(rint(ldexp(x, 11 - e)), e - 11);
}

/* v [d] less `from` as its sketch stands for it, in rotated form: [dim]; without bits only rotated.  dim: a power of two, at least 32. */
static int sketched(const double *v, const double *from, int d, int bits, double *out)
{
	int dim = 32;
	double max = 0, mean = 0, levels = 1 << bits;
	while (dim < d)
		dim *= 2;
	for (int i = 0; i < dim; i++) {
		out[i] = 0;
		for (int j = 0; j < d; j++)
			out[i] += (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1) * (v[j] - from[j]) / sqrt(dim);
		max = fmax(max, fabs(out[i]));
		mean += fabs(out[i]) / dim;
	}
	double scale = as_half(bits == 2 ? mean : max / (levels / 2 - 0.5));
	for (int i = 0; bits && i < dim; i++)
		out[i] = scale * (fmin(fmax(rint(out[i] / scale - 0.5), -levels / 2), levels / 2 - 1) + 0.5);
	return dim;
}

/* As probabilities of all n positions, from sketches of the keys less the prompt's mean key. */
static void glance(const aid_sim *w, const struct layer *y, int h, const double *q, int n, double *p)
{
	int d = w->hp->head_dim, kv = h / (w->hp->n_head / w->hp->n_kv_head), kvd = w->hp->n_kv_head * d;
	double x[1024], k[1024], mean[1024] = { 0 }, max = -INFINITY, sum = 0;
	int dim = sketched(q + h * d, mean, d, 0, x);
	for (int i = 0; i < w->n_prompt; i++)
		for (int j = 0; j < d; j++)
			mean[j] += y->k[(size_t)i * (size_t)kvd + (size_t)(kv * d + j)] / w->n_prompt;
	for (int j = 0; j < d; j++)
		mean[j] = (double)(float)mean[j];
	for (int i = 0; i < n; i++) {
		sketched(y->k + (size_t)i * (size_t)kvd + kv * d, mean, d, w->pol.bits, k);
		p[i] = 0;
		for (int j = 0; j < dim; j++)
			p[i] += x[j] * k[j] / sqrt(d);
		max = fmax(max, p[i]);
	}
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(p[i] - max);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

/* out = head h's attention; p is left in w->p. */
static void attend(const aid_sim *w, const struct layer *y, int h, const double *q, const int32_t *pos, int n,
    double *out)
{
	int d = w->hp->head_dim, kv = h / (w->hp->n_head / w->hp->n_kv_head), kvd = w->hp->n_kv_head * d;
	probabilities(w, y, h, q, pos, n, w->p);
	for (int j = 0; j < d; j++)
		out[h * d + j] = 0;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < d; j++)
			out[h * d + j] += w->p[i] * y->v[(size_t)(pos ? pos[i] : i) * (size_t)kvd + (size_t)(kv * d + j)];
}

struct rank { double score; int32_t pos; };

/* Ascending score; of equals the higher position first, so that the lower one stays longer. */
static int by_rank(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;
	return x->score != y->score ? (x->score < y->score ? -1 : 1) : y->pos - x->pos;
}

/* Relative distance of neighbours in a sorted list, where they differ: equal ones are a tie in f32 too. */
static void note_margin(aid_sim *w, double low, double high)
{
	if (low != high && (high - low) / high < w->margin)
		w->margin = (high - low) / high;
}

/* pos[0..k) = the k highest of score[n], in ascending order. */
static void top(aid_sim *w, const double *score, int n, int k, int32_t *pos)
{
	struct rank *r = zeroed((size_t)n, sizeof *r);
	for (int i = 0; i < n; i++)
		r[i] = (struct rank){ score[i], i };
	qsort(r, (size_t)n, sizeof *r, by_rank);
	for (int i = 0; i < k; i++)
		pos[i] = r[n - k + i].pos;
	for (int i = n - k > 0 ? n - k : 1; i < n; i++)	/* the cut, and the order in which the kept ones go */
		note_margin(w, r[i - 1].score, r[i].score);
	free(r);
}

/* RefreshKV's and SnapKV's selection with the last n_q queries over n positions; bits: by a glance. */
static void select_by_attention(aid_sim *w, struct layer *y, int kv, int n_q, int n, int bits)
{
	int group = w->hp->n_head / w->hp->n_kv_head, pool = w->pol.pool / 2;
	double *mean = zeroed((size_t)n, sizeof *mean), *score = zeroed((size_t)n, sizeof *score);
	for (int g = 0; g < group; g++) {
		memset(mean, 0, (size_t)n * sizeof *mean);
		for (int t = n - n_q; t < n; t++) {
			const double *q = y->q + (size_t)(t % w->window) * (size_t)(w->hp->n_head * w->hp->head_dim);
			if (bits)
				glance(w, y, kv * group + g, q, t + 1, w->p);
			else
				probabilities(w, y, kv * group + g, q, NULL, t + 1, w->p);
			for (int i = 0; i <= t; i++)
				mean[i] += w->p[i] / n_q;
		}
		for (int i = 0; i < n; i++)
			switch (w->pol.group) {
			case RK_GROUP_MAX:
				score[i] = fmax(score[i], mean[i]);
				break;
			case RK_GROUP_MEAN:
				score[i] += mean[i] / group;
				break;
			case RK_GROUP_FIRST:
				score[i] = g ? score[i] : mean[i];
				break;
			}
	}
	double *pooled = mean;
	for (int i = 0; i < n; i++) {
		pooled[i] = 0;
		for (int j = i - pool; j <= i + pool; j++)
			if (j >= 0 && j < n)
				pooled[i] = fmax(pooled[i], score[j]);
	}
	y->ring[kv].n = w->budget < n ? w->budget : n;
	top(w, pooled, n, y->ring[kv].n, y->ring[kv].pos);
	free(mean);
	free(score);
}

/* The mean over the heads, or all of them; returns how many numbers that is. */
static int take_compared(const aid_sim *w, double *out, const double *q)
{
	if (w->pol.query == RK_QUERY_PRE_CAT || w->pol.query == RK_QUERY_POST_CAT) {
		memcpy(out, q, (size_t)(w->hp->n_head * w->hp->head_dim) * sizeof *out);
		return w->hp->n_head * w->hp->head_dim;
	}
	for (int j = 0; j < w->hp->head_dim; j++) {
		out[j] = 0;
		for (int h = 0; h < w->hp->n_head; h++)
			out[j] += q[h * w->hp->head_dim + j] / w->hp->n_head;
	}
	return w->hp->head_dim;
}

/* The query that is compared between steps. */
static const double *compared(const aid_sim *w, const struct layer *y)
{
	return w->pol.query == RK_QUERY_PRE ||
	    w->pol.query == RK_QUERY_PRE_CAT ? y->q_pre : y->q + (size_t)((w->n - 1) % w->window) * (size_t)(w->hp->n_head * w->hp->head_dim);
}

/* What the prefill of n tokens in all leaves behind in a layer. */
static void first_selection(aid_sim *w, struct layer *y)
{
	int half = w->budget / 2;
	for (int kv = 0; kv < w->hp->n_kv_head; kv++) {
		struct ring *r = &y->ring[kv];
		const double *col = y->colsum + (size_t)kv * (size_t)w->cap;
		switch (w->pol.score) {
		case RK_SCORE_ATTENTION:
			select_by_attention(w, y, kv, w->window < w->n ? w->window : w->n, w->n, 0);
			break;
		case RK_SCORE_ACCUMULATED:
			r->n = w->budget < w->n ? w->budget : w->n;
			half = half < r->n ? half : r->n;
			top(w, col, w->n - half, r->n - half, r->pos);
			for (int i = 0; i < half; i++)
				r->pos[r->n - half + i] = w->n - half + i;
			memcpy(r->acc, col, (size_t)w->n * sizeof *col);
			break;
		default:
			break;	/* positions need no selection */
		}
	}
	take_compared(w, y->q_ref, compared(w, y));
}

static void attend_all(aid_sim *w, struct layer *y, const double *q, double *out, bool sum_up)
{
	int group = w->hp->n_head / w->hp->n_kv_head;
	for (int h = 0; h < w->hp->n_head; h++) {
		attend(w, y, h, q, NULL, w->n, out);
		for (int i = 0; sum_up && i < w->n; i++)
			y->colsum[(size_t)(h / group) * (size_t)w->cap + (size_t)i] += w->p[i];
	}
}

/* Attends a ring's positions with the group's heads; sums the probabilities up where H2O wants them. */
static void attend_ring(aid_sim *w, struct layer *y, int kv, const double *q, double *out)
{
	struct ring *r = &y->ring[kv];
	int group = w->hp->n_head / w->hp->n_kv_head;
	for (int h = kv * group; h < (kv + 1) * group; h++) {
		attend(w, y, h, q, r->pos, r->n, out);
		for (int i = 0; i < r->n; i++)
			r->acc[r->pos[i]] += w->p[i];
	}
}

static void drop(struct ring *r, int i)
{
	memmove(r->pos + i, r->pos + i + 1, (size_t)(r->n - i - 1) * sizeof *r->pos);
	r->n--;
}

static void drop_lowest_accumulated(aid_sim *w, struct ring *r)
{
	int low = -1;
	double next = INFINITY;
	for (int i = 0; i < r->n; i++) {
		if (r->pos[i] >= w->n - w->budget / 2)
			continue;
		if (low < 0 || r->acc[r->pos[i]] < r->acc[r->pos[low]]) {
			next = low < 0 ? next : r->acc[r->pos[low]];
			low = i;
		} else if (r->acc[r->pos[i]] < next) {
			next = r->acc[r->pos[i]];
		}
	}
	if (next < INFINITY)
		note_margin(w, r->acc[r->pos[low]], next);
	drop(r, low);
}

static bool renews(const aid_sim *w)
{
	return w->pol.tail && (w->force_full || w->step % w->pol.tail == 0);
}

/* The share of head h that the ring does not hold, as `bits` see it; renew: and the attention over that. */
static void weigh_rest(aid_sim *w, struct layer *y, int h, const double *q, int bits, bool renew)
{
	int d = w->hp->head_dim, n_rest = 0;
	const struct ring *r = &y->ring[h / (w->hp->n_head / w->hp->n_kv_head)];
	double *rest = y->rest + h * (d + 1), out[1024], held = 0;
	int32_t others[4096];
	if (bits)
		glance(w, y, h, q, w->n, w->p);
	else
		probabilities(w, y, h, q, NULL, w->n, w->p);
	for (int i = 0; i < r->n; i++) {
		held += w->p[r->pos[i]];
		w->p[r->pos[i]] = -1;
	}
	rest[d] = 1 - held;
	for (int i = 0; i < w->n; i++)
		if (w->p[i] >= 0)
			others[n_rest++] = i;
	if (!renew || !n_rest)
		return;
	attend(w, y, h, q, others, n_rest, out);
	memcpy(rest, out + h * d, (size_t)d * sizeof *out);
}

static void add_rest(const aid_sim *w, const struct layer *y, double *out)
{
	int d = w->hp->head_dim;
	for (int h = 0; w->pol.tail && h < w->hp->n_head; h++)
		for (int j = 0; j < d; j++) {
			const double *rest = y->rest + h * (d + 1);
			out[h * d + j] = (1 - rest[d]) * out[h * d + j] + rest[d] * rest[j];
		}
}

static void partial_step(aid_sim *w, struct layer *y, const double *q, double *out)
{
	for (int kv = 0; kv < w->hp->n_kv_head; kv++) {
		struct ring *r = &y->ring[kv];
		if (w->pol.score == RK_SCORE_POSITION) {	/* known without looking back */
			int sinks = w->n > w->budget ? w->pol.sinks : w->n, recent = w->n > w->budget ? w->budget - sinks : 0;
			for (r->n = 0; r->n < sinks; r->n++)
				r->pos[r->n] = r->n;
			for (int p = w->n - recent; p < w->n; p++)
				r->pos[r->n++] = p;
		} else {
			r->pos[r->n++] = w->n - 1;
		}
		attend_ring(w, y, kv, q, out);
		if (r->n <= w->budget || w->pol.evict == RK_EVICT_NONE)
			continue;
		if (w->pol.evict == RK_EVICT_LOWEST)
			drop(r, 0);
		else if (w->pol.evict == RK_EVICT_LOWEST_ACCUMULATED)
			drop_lowest_accumulated(w, r);
	}
	add_rest(w, y, out);
}

static void full_step(aid_sim *w, struct layer *y, const double *q, double *out)
{
	int bits = renews(w) ? 0 : w->pol.bits;
	if (w->pol.score == RK_SCORE_NONE || w->pol.attend == RK_ATTEND_FULL || renews(w))
		attend_all(w, y, q, out, false);
	if (w->pol.score == RK_SCORE_NONE)
		return;
	for (int kv = 0; kv < w->hp->n_kv_head; kv++) {
		select_by_attention(w, y, kv, 1, w->n, bits);
		if (w->pol.attend == RK_ATTEND_SELECTED && !renews(w))
			attend_ring(w, y, kv, q, out);
	}
	for (int h = 0; w->pol.tail && h < w->hp->n_head; h++)
		weigh_rest(w, y, h, q, bits, renews(w));
	if (!renews(w))
		add_rest(w, y, out);
	take_compared(w, y->q_ref, compared(w, y));
}

static bool decide(aid_sim *w, struct layer *y, int l)
{
	const rk_policy *p = &w->pol;
	bool forced = w->force_full || renews(w);
	y->cos = NAN;
	if (p->score == RK_SCORE_NONE || (p->refresh == RK_REFRESH_STRIDE && w->step % p->stride == p->stride - 1))
		return true;
	if (p->refresh != RK_REFRESH_QUERY || w->step % p->qc != p->qc - 1)
		return forced;
	double now[1024], ab = 0, aa = 0, bb = 0;
	int n = take_compared(w, now, compared(w, y));
	for (int j = 0; j < n; j++) {
		ab += now[j] * y->q_ref[j];
		aa += now[j] * now[j];
		bb += y->q_ref[j] * y->q_ref[j];
	}
	y->cos = ab / sqrt(aa * bb);
	bool full = forced || y->cos < (double)p->s;
	if (w->follow && fabs(y->cos - (double)p->s) < w->tie && full != (w->follow[l] != RK_STEP_PARTIAL)) {
		w->near_ties++;
		return !full;
	}
	return full;
}

/* One token through the model. */
static void forward(aid_sim *w, int32_t id, bool prefill)
{
	const rk_hparams *hp = w->hp;
	int e = hp->n_embd, qd = hp->n_head * hp->head_dim, kvd = hp->n_kv_head * hp->head_dim, pos = w->n++;
	double *x = zeroed((size_t)e, sizeof *x), *h = zeroed((size_t)e, sizeof *h), *att = zeroed((size_t)qd, sizeof *att);
	double *gate = zeroed((size_t)hp->n_ff, sizeof *gate), *up = zeroed((size_t)hp->n_ff, sizeof *up);
	if (w->n > w->cap)
		die("simulation", "more tokens than the model's context");
	for (int i = 0; i < e; i++)
		x[i] = (double)w->embd[(size_t)id * (size_t)e + (size_t)i];
	for (int l = 0; l < hp->n_layer; l++) {
		struct layer *y = &w->layer[l];
		double *q = y->q + (size_t)(pos % w->window) * (size_t)qd, *k = y->k + (size_t)pos * (size_t)kvd,
		    *v = y->v + (size_t)pos * (size_t)kvd;
		norm(w, h, x, y->attn_norm);
		mul(y->q_pre, y->wq, h, qd, e);
		mul(k, y->wk, h, kvd, e);
		mul(v, y->wv, h, kvd, e);
		memcpy(q, y->q_pre, (size_t)qd * sizeof *q);
		rotate(w, q, hp->n_head, pos);
		rotate(w, k, hp->n_kv_head, pos);
		for (int i = 0; i < kvd; i++) {
			k[i] = stored(w, k[i]);
			v[i] = stored(w, v[i]);
		}
		if (prefill) {
			attend_all(w, y, q, att, true);
		} else {
			bool full = decide(w, y, l);
			y->kind = !full ? RK_STEP_PARTIAL : w->pol.bits && !renews(w) ? RK_STEP_GLANCE : RK_STEP_FULL;
			(full ? full_step : partial_step)(w, y, q, att);
		}
		mul(h, y->wo, att, e, qd);
		for (int i = 0; i < e; i++)
			x[i] += h[i];
		norm(w, h, x, y->ffn_norm);
		mul(gate, y->w_gate, h, hp->n_ff, e);
		mul(up, y->w_up, h, hp->n_ff, e);
		for (int i = 0; i < hp->n_ff; i++)
			gate[i] *= up[i] / (1 + exp(-gate[i]));
		mul(h, y->w_down, gate, e, hp->n_ff);
		for (int i = 0; i < e; i++)
			x[i] += h[i];
	}
	norm(w, h, x, w->out_norm);
	mul(w->logits, w->output, h, hp->n_vocab, e);
	free(x);
	free(h);
	free(att);
	free(gate);
	free(up);
}

void aid_sim_start(aid_sim *w, const int32_t *ids, int n)
{
	w->n_prompt = n;
	w->n = w->step = 0;
	w->budget = budget_of(&w->pol, n);
	for (int i = 0; i < n; i++)
		forward(w, ids[i], true);
	for (int l = 0; l < w->hp->n_layer; l++)
		first_selection(w, &w->layer[l]);
}

void aid_sim_step(aid_sim *w, int32_t id, const uint8_t *follow, double tie)
{
	w->follow = follow;
	w->tie = tie;
	forward(w, id, false);
	w->force_full = false;
	w->step++;
}

void aid_sim_turn(aid_sim *w, const int32_t *ids, int n)
{
	if (w->pol.score == RK_SCORE_NONE || w->pol.refresh != RK_REFRESH_NEVER) {
		for (int i = 0; i < n; i++)
			forward(w, ids[i], true);
		for (int l = 0; l < w->hp->n_layer; l++)
			first_selection(w, &w->layer[l]);
		w->force_full = false;
	} else {
		for (int i = 0; i < n; i++)
			aid_sim_step(w, ids[i], NULL, 0);
	}
	w->step = 0;
}

void aid_sim_set_policy(aid_sim *w, const rk_policy *pol, bool ring)
{
	w->pol = *pol;
	w->budget = budget_of(pol, w->n_prompt);
	w->force_full = ring && pol->score == RK_SCORE_ATTENTION;
}

const double *aid_sim_logits(const aid_sim *w)
{
	return w->logits;
}

enum rk_step_kind aid_sim_kind(const aid_sim *w, int layer)
{
	return w->layer[layer].kind;
}

double aid_sim_cos(const aid_sim *w, int layer)
{
	return w->layer[layer].cos;
}

int aid_sim_near_ties(const aid_sim *w)
{
	return w->near_ties;
}

double aid_sim_margin(const aid_sim *w)
{
	return w->margin;
}

int aid_sim_ring(const aid_sim *w, int layer, int kv_head, int32_t *pos)
{
	const struct ring *r = &w->layer[layer].ring[kv_head];
	memcpy(pos, r->pos, (size_t)r->n * sizeof *pos);
	return r->n;
}
