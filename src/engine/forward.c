/* forward.c: the forward pass of a llama model, read top to bottom: a prefill chunk, and a decode step of several lanes.
 *
 * The only place that knows the order of operations; what each does is in backend.h.  All buffers are allocated once per
 * session (rk_act_init); nothing here allocates, decides about memory, or talks to anyone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "engine/session.h"

/* Backend memory, f32; R = rows = the largest of chunk, lanes and the shadow's batch, E = n_embd, Q = n_head*head_dim, KV = n_kv_head*head_dim. */
struct rk_act {
	int rows;
	float *x;		/* [R][E] residual stream */
	float *h;		/* [R][E] normed input, then a block's output */
	float *q_pre, *q;	/* [R][Q] queries before and after RoPE */
	float *k, *v;		/* [R][KV] */
	float *att;		/* [R][Q] attention output */
	float *gate, *up;	/* [R][F] */
	float *logits;		/* [n_lane, or the shadow's batch][n_vocab] */
	float *colsum;		/* [n_layer][n_kv_head][n_prompt] column sums of the prompt's attention; NULL when no lane wants them */
	size_t bytes;
	int32_t *pos;		/* [R] host */
};

static bool wants_colsum(const rk_policy *lanes, int n_lane)
{
	for (int i = 0; i < n_lane; i++)
		if (lanes[i].score == RK_SCORE_ACCUMULATED)
			return true;
	return false;
}

static size_t row_floats(const rk_hparams *hp)
{
	size_t qd = (size_t)hp->n_head * (size_t)hp->head_dim, kvd = (size_t)hp->n_kv_head * (size_t)hp->head_dim;

	return 2 * (size_t)hp->n_embd + 3 * qd + 2 * kvd + 2 * (size_t)hp->n_ff;
}

static size_t colsum_floats(const rk_hparams *hp, int n_prompt)
{
	return rk_row_at(hp, hp->n_layer, 0, n_prompt);
}

/* Rows that a decode step, or the shadow's batch, may have. */
static int decode_rows(const rk_session_cfg *cfg)
{
	return cfg->shadow && cfg->n_lane < RK_SHADOW_BATCH ? RK_SHADOW_BATCH : cfg->n_lane;
}

static int act_rows(const rk_session_cfg *cfg)
{
	return cfg->chunk > decode_rows(cfg) ? cfg->chunk : decode_rows(cfg);
}

size_t rk_act_bytes(const rk_backend *b, const rk_session_cfg *cfg, int n_prompt)
{
	size_t rows = (size_t)act_rows(cfg), n = rows * row_floats(b->hp);

	n += (size_t)decode_rows(cfg) * (size_t)b->hp->n_vocab;
	if (wants_colsum(cfg->lane, cfg->n_lane))
		n += colsum_floats(b->hp, n_prompt);
	return n * sizeof(float) + rows * sizeof(int32_t);
}

int rk_act_init(rk_session *s, int n_prompt, rk_err *e)
{
	rk_backend *b = s->b;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = calloc(1, sizeof *a);

	if (!a)
		return rk_fail(e, RK_ENOMEM, "activations: out of memory");
	s->act = a;
	a->rows = act_rows(&s->cfg);
	a->bytes = rk_act_bytes(b, &s->cfg, n_prompt) - (size_t)a->rows * sizeof *a->pos;
	a->pos = malloc((size_t)a->rows * sizeof *a->pos);
	void *p = NULL;
	if (!a->pos)
		rk_fail(e, RK_ENOMEM, "activations: out of memory for %d rows; lower --chunk", a->rows);
	else
		b->ops->alloc(b, a->bytes, &p, e);	/* says what is wrong: a device may also have been lost */
	if (!p) {
		rk_act_free(s);
		return -1;
	}
	size_t rows = (size_t)a->rows, qd = (size_t)hp->n_head * (size_t)hp->head_dim, kvd = (size_t)hp->n_kv_head * (size_t)hp->head_dim;
	float *f = p;
	a->x = f, f += rows * (size_t)hp->n_embd;
	a->h = f, f += rows * (size_t)hp->n_embd;
	a->q_pre = f, f += rows * qd;
	a->q = f, f += rows * qd;
	a->att = f, f += rows * qd;
	a->k = f, f += rows * kvd;
	a->v = f, f += rows * kvd;
	a->gate = f, f += rows * (size_t)hp->n_ff;
	a->up = f, f += rows * (size_t)hp->n_ff;
	a->logits = f, f += (size_t)decode_rows(&s->cfg) * (size_t)hp->n_vocab;
	a->colsum = wants_colsum(s->cfg.lane, s->cfg.n_lane) ? f : NULL;
	return 0;
}

void rk_act_free(rk_session *s)
{
	struct rk_act *a = s->act;

	if (!a)
		return;
	if (a->x)
		s->b->ops->free(s->b, a->x, a->bytes);
	free(a->pos);
	free(a);
	s->act = NULL;
}

/* x += W_o att; x += FFN(norm(x)), for n rows: the part of a layer that comes after attention. */
static void after_attention(rk_session *s, const rk_layer_weights *w, float *x, const float *att, int n, enum rk_phase phase)
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = s->act;

	op->matmul(b, &a->h, (const rk_tensor *[]){ &w->wo }, 1, att, n, phase);
	op->add(b, x, a->h, n, hp->n_embd);
	op->rmsnorm(b, a->h, x, &w->ffn_norm, n, hp->n_embd, hp->rms_eps);
	op->matmul(b, (float *[]){ a->gate, a->up }, (const rk_tensor *[]){ &w->w_gate, &w->w_up }, 2, a->h, n, phase);
	op->silu_mul(b, a->gate, a->gate, a->up, n, hp->n_ff);
	op->matmul(b, &a->h, (const rk_tensor *[]){ &w->w_down }, 1, a->gate, n, phase);
	op->add(b, x, a->h, n, hp->n_embd);
}

/* Norm, QKV and RoPE of n rows at a->pos. */
static void before_attention(rk_session *s, const rk_layer_weights *w, int n, enum rk_phase phase)
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = s->act;

	op->rmsnorm(b, a->h, a->x, &w->attn_norm, n, hp->n_embd, hp->rms_eps);
	op->matmul(b, (float *[]){ a->q_pre, a->k, a->v }, (const rk_tensor *[]){ &w->wq, &w->wk, &w->wv }, 3, a->h, n, phase);
	op->rope(b, a->q, a->q_pre, a->pos, n, hp->n_head);
	op->rope(b, a->k, a->k, a->pos, n, hp->n_kv_head);
}

/* Logits of n rows of x into a->logits. */
static void predict(rk_session *s, const float *x, int n)
{
	rk_backend *b = s->b;
	struct rk_act *a = s->act;

	b->ops->rmsnorm(b, a->h, x, &b->w->out_norm, n, b->hp->n_embd, b->hp->rms_eps);
	b->ops->matmul(b, &a->logits, (const rk_tensor *[]){ &b->w->output }, 1, a->h, n, RK_DECODE);
}

/* Moves row j of a->logits and its statistics to lane lanes[j]; lanes ascends. */
static void deliver(rk_session *s, const int *lanes, int n)
{
	size_t n_vocab = (size_t)s->b->hp->n_vocab;
	float lse[RK_MAX_LANE];
	int32_t argmax[RK_MAX_LANE];

	s->b->ops->logits_stats(s->b, s->act->logits, n, lse, argmax);
	for (int j = 0; j < n; j++) {
		s->b->ops->download(s->b, s->logits + (size_t)lanes[j] * n_vocab, s->act->logits + (size_t)j * n_vocab, n_vocab * sizeof(float));
		s->lse[lanes[j]] = lse[j];
		s->argmax[lanes[j]] = argmax[j];
	}
}

/* Keys and values of n positions, and the sketches that the store keeps of them; those of a prompt wait for its mean key. */
static void append(rk_session *s, rk_store *st, int layer, int at, const float *k, const float *v, int n)
{
	s->b->ops->kv_append(s->b, st, layer, at, k, v, n);
	if (st != &s->prompt && rk_store_sketched(st))
		s->b->ops->sketch(s->b, st, layer, at, n);
}

void rk_forward_prefill(rk_session *s, int lane, const int32_t *ids, int n, bool last)
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = s->act;
	rk_store *st = lane < 0 ? &s->prompt : &s->lane[lane].tail;
	const rk_store *before = lane < 0 ? NULL : &s->prompt;
	int at = st->len, n_pos = st->pos0 + at + n;
	int first = lane < 0 ? 0 : lane, end = lane < 0 ? s->cfg.n_lane + s->cfg.shadow : lane + 1;
	size_t qd = (size_t)hp->n_head * (size_t)hp->head_dim;

	for (int i = 0; i < n; i++)
		a->pos[i] = st->pos0 + at + i;
	op->embed(b, a->x, ids, n);
	for (int l = 0; l < hp->n_layer; l++) {
		const rk_layer_weights *w = &b->w->layer[l];
		float *colsum = a->colsum && lane < 0 ? a->colsum + rk_row_at(hp, l, 0, st->cap) : NULL;

		before_attention(s, w, n, RK_PREFILL);
		append(s, st, l, at, a->k, a->v, n);
		if (l == hp->n_layer - 1 && !last && !colsum)
			break;	/* nothing reads this layer's output: later chunks need only its keys and values */
		op->attn_prefill(b, l, before, st, at, a->q, n, a->att, colsum);
		for (int j = first; last && j < end; j++) {
			int n_q = s->lane[j].pol.window < n_pos ? s->lane[j].pol.window : n_pos;
			op->select(b, l, &s->lane[j], n_pos, a->q_pre + (size_t)(n - 1) * qd, a->q + (size_t)(n - n_q) * qd, n_q, colsum);
		}
		if (l < hp->n_layer - 1)
			after_attention(s, w, a->x, a->att, n, RK_PREFILL);
		else if (last)	/* only the last row is asked for */
			after_attention(s, w, a->x + (size_t)(n - 1) * (size_t)hp->n_embd, a->att + (size_t)(n - 1) * qd, 1, RK_PREFILL);
	}
	st->len += n;
	if (!last)
		return;
	predict(s, a->x + (size_t)(n - 1) * (size_t)hp->n_embd, 1);
	for (int j = first; j < end; j++)
		deliver(s, &j, 1);
}

/* The operations of a decode step of lanes[n], from the embedding to a->logits; ns_attn [n] += time of each lane's attention. */
static void step_operations(rk_session *s, rk_lane_cache *const lanes[], rk_step_report *const reports[], const int32_t *ids, int n,
                            int64_t ns_attn[])
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = s->act;
	size_t qd = (size_t)hp->n_head * (size_t)hp->head_dim, kvd = (size_t)hp->n_kv_head * (size_t)hp->head_dim;

	op->embed(b, a->x, ids, n);
	for (int l = 0; l < hp->n_layer; l++) {
		before_attention(s, &b->w->layer[l], n, RK_DECODE);
		/* One lane at a time, so that each lane's attention is timed on its own. */
		for (int j = 0; j < n; j++) {
			rk_lane_cache *c = lanes[j];
			size_t jq = (size_t)j * qd, jk = (size_t)j * kvd;
			int64_t t = rk_clock_ns();
			if (c->keeps_full)
				append(s, &c->tail, l, c->tail.len, a->k + jk, a->v + jk, 1);
			op->attn_decode(b, l, &c, 1, a->q_pre + jq, a->q + jq, a->k + jk, a->v + jk, a->att + jq, &reports[j]);
			ns_attn[j] += rk_clock_ns() - t;
		}
		after_attention(s, &b->w->layer[l], a->x, a->att, n, RK_DECODE);
	}
	predict(s, a->x, n);
}

void rk_forward_step(rk_session *s, const int *lanes, const int32_t *ids, int n)
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	struct rk_act *a = s->act;
	rk_lane_cache *c[RK_MAX_LANE];
	rk_step_report *r[RK_MAX_LANE];
	int64_t t0 = rk_clock_ns(), ns_attn[RK_MAX_LANE] = { 0 };

	for (int j = 0; j < n; j++) {
		c[j] = &s->lane[lanes[j]];
		r[j] = &s->report[lanes[j]];
		a->pos[j] = c[j]->n_pos++;
		r[j]->bytes_full = r[j]->bytes_partial = r[j]->bytes_score = 0;
	}
	if (!op->step_begin || !op->step_begin(b, c, n, ids, a->pos))
		step_operations(s, c, r, ids, n, ns_attn);
	if (op->step_end)
		op->step_end(b, r, ns_attn);
	for (int j = 0; j < n; j++) {
		c[j]->tail.len += c[j]->keeps_full;
		c[j]->step++;
		c[j]->force_full = false;
	}
	deliver(s, lanes, n);
	s->ns_shared = rk_clock_ns() - t0;
	for (int j = 0; j < n; j++)
		s->ns_shared -= s->ns_attn[lanes[j]] = ns_attn[j];
}

/* The shadow is vanilla: n of its tokens attend everything at once, as in a prefill, with a decode step's arithmetic for
 * the weights.  One layer also runs the last token as a decode step would, to time it. */
void rk_forward_shadow(rk_session *s, const int32_t *ids, int n, float *logits, float *lse, int32_t *argmax, int64_t *ns_attn)
{
	rk_backend *b = s->b;
	const rk_backend_ops *op = b->ops;
	const rk_hparams *hp = b->hp;
	struct rk_act *a = s->act;
	rk_lane_cache *c = &s->lane[s->cfg.n_lane];
	rk_step_report report = { 0 }, *rep = &report;
	size_t qd = (size_t)hp->n_head * (size_t)hp->head_dim, kvd = (size_t)hp->n_kv_head * (size_t)hp->head_dim;
	int at = c->tail.len, timed = at % hp->n_layer;

	for (int i = 0; i < n; i++)
		a->pos[i] = c->n_pos + i;
	c->n_pos += n;
	op->embed(b, a->x, ids, n);
	for (int l = 0; l < hp->n_layer; l++) {
		before_attention(s, &b->w->layer[l], n, RK_DECODE);
		op->kv_append(b, &c->tail, l, at, a->k, a->v, n);
		if (l == timed) {
			size_t j = (size_t)(n - 1);
			int64_t t = rk_clock_ns();
			op->attn_decode(b, l, &c, 1, a->q_pre + j * qd, a->q + j * qd, a->k + j * kvd, a->v + j * kvd, a->att, &rep);
			*ns_attn = (rk_clock_ns() - t) * hp->n_layer;
		}
		op->attn_prefill(b, l, &s->prompt, &c->tail, at, a->q, n, a->att, NULL);
		after_attention(s, &b->w->layer[l], a->x, a->att, n, RK_DECODE);
	}
	c->tail.len += n;
	predict(s, a->x, n);
	op->logits_stats(b, a->logits, n, lse, argmax);
	op->download(b, logits, a->logits, (size_t)n * (size_t)hp->n_vocab * sizeof(float));
}
