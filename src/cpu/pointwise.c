/* pointwise.c: the operations that touch each activation once: embedding, norm, RoPE, cache append, SiLU, sums.
 *
 * Rows are independent.  Up to RK_MAX_LANE rows run on the calling thread, since waking the team costs more than they
 * do; a prefill chunk is cut by rows.  Called on the engine thread.
 */
#include "cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The arguments of one operation, row by row. */
struct rows {
	rk_cpu *c;
	float *y;
	const float *x, *w;
	const int32_t *pos;
	const rk_store *st;
	int dim, n_head, layer, at;
	float eps, *lse;
	int32_t *argmax;
};

/* Does row(a, 0 .. n-1): on the team if there are more than few rows, else on this thread. */
static void each_row(struct rows *a, int n, int few, rk_team_fn row)
{
	if (n > few)
		rk_team_run(a->c->team, n, row, a);
	else
		for (int i = 0; i < n; i++)
			row(a, i, 0);
}

static const rk_lin_kernels *lin(const rk_backend *b)
{
	return ((const rk_cpu *)b)->lin;
}

void rk_cpu_embed(rk_backend *b, float *x, const int32_t *ids, int n)
{
	const rk_tensor *t = &b->w->tok_embd;
	const size_t row_bytes = rk_type_row_bytes(t->type, t->n_col);
	for (int i = 0; i < n; i++) {
		assert(ids[i] >= 0 && ids[i] < t->n_row);
		const uint8_t *row = (const uint8_t *)t->data + (size_t)ids[i] * row_bytes;
		lin(b)->dequant(t->type, row, x + i * t->n_col, t->n_col);
	}
}

static void rmsnorm_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	const size_t at = (size_t)i * (size_t)a->dim;
	(void)worker;
	a->c->lin->rmsnorm(a->y + at, a->x + at, a->w, a->dim, a->eps);
}

void rk_cpu_rmsnorm(rk_backend *b, float *y, const float *x, const rk_tensor *w, int n, int dim, float eps)
{
	assert(w->type == RK_F32 && w->n_col == dim);
	struct rows a = { .c = (rk_cpu *)b, .y = y, .x = x, .w = w->data, .dim = dim, .eps = eps };
	each_row(&a, n, RK_MAX_LANE, rmsnorm_row);
}

/* cos, sin [rope_dim/2][2] for row i of a call at position pos.  Double precision: at position 100,000 the angle of the
 * fastest pair has lost 17 bits to whole turns. */
static const float *trig_row(rk_cpu *c, int i, int32_t pos)
{
	rk_lin_scratch *s = c->lin_scratch;
	const rk_hparams *hp = c->b.hp;
	float *row = s->trig + (size_t)i * (size_t)hp->rope_dim;
	if (s->trig_pos[i] == pos)
		return row;
	for (int j = 0; j < hp->rope_dim / 2; j++) {
		double angle = (double)pos * (double)hp->rope_freq[j];
		row[2 * j] = (float)cos(angle);
		row[2 * j + 1] = (float)sin(angle);
	}
	s->trig_pos[i] = pos;
	return row;
}

static void rope_head(float *out, const float *x, const float *trig, int rope_dim, int head_dim)
{
	for (int j = 0; j < rope_dim; j += 2) {
		float c = trig[j], s = trig[j + 1], a = x[j], d = x[j + 1];
		out[j] = a * c - d * s;
		out[j + 1] = a * s + d * c;
	}
	for (int j = rope_dim; j < head_dim; j++)
		out[j] = x[j];
}

static void rope_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	const rk_hparams *hp = a->c->b.hp;
	const float *trig = trig_row(a->c, i, a->pos[i]);
	(void)worker;
	for (int h = 0; h < a->n_head; h++) {
		size_t at = ((size_t)i * (size_t)a->n_head + (size_t)h) * (size_t)hp->head_dim;
		rope_head(a->y + at, a->x + at, trig, hp->rope_dim, hp->head_dim);
	}
}

void rk_cpu_rope(rk_backend *b, float *out, const float *x, const int32_t *pos, int n, int n_head)
{
	rk_cpu *c = (rk_cpu *)b;
	assert(n <= c->cfg.max_rows);
	struct rows a = { .c = c, .y = out, .x = x, .pos = pos, .n_head = n_head };
	each_row(&a, n, RK_MAX_LANE, rope_row);
}

/* The vector of KV head h in row i of src, to element `at` of that head in the layer of a cache array dst. */
static void append_head(const rk_backend *b, void *dst, int cap, int layer, int h, int at, const float *src, int i)
{
	const size_t dim = (size_t)b->hp->head_dim;
	const size_t to = (rk_row_at(b->hp, layer, h, cap) + (size_t)at) * dim;
	src += ((size_t)i * (size_t)b->hp->n_kv_head + (size_t)h) * dim;
	if (b->kv_bytes == 4)
		memcpy((float *)dst + to, src, dim * sizeof *src);
	else
		lin(b)->to_half((rk_half *)dst + to, src, (int)dim);
}

static void append_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	const rk_backend *b = &a->c->b;
	(void)worker;
	for (int h = 0; h < b->hp->n_kv_head; h++) {
		append_head(b, a->st->k, a->st->cap, a->layer, h, a->at + i, a->x, i);
		append_head(b, a->st->v, a->st->cap, a->layer, h, a->at + i, a->w, i);
	}
}

void rk_cpu_kv_append(rk_backend *b, rk_store *st, int layer, int at, const float *k, const float *v, int n)
{
	assert(at >= 0 && n <= st->cap - at);
	struct rows a = { .c = (rk_cpu *)b, .x = k, .w = v, .st = st, .layer = layer, .at = at };
	each_row(&a, n, RK_MAX_LANE, append_row);
}

static void silu_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	const size_t at = (size_t)i * (size_t)a->dim;
	(void)worker;
	a->c->lin->silu_mul(a->y + at, a->x + at, a->w + at, (size_t)a->dim);
}

void rk_cpu_silu_mul(rk_backend *b, float *y, const float *gate, const float *up, int n, int dim)
{
	struct rows a = { .c = (rk_cpu *)b, .y = y, .x = gate, .w = up, .dim = dim };
	each_row(&a, n, RK_MAX_LANE, silu_row);
}

static void add_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	const size_t at = (size_t)i * (size_t)a->dim;
	(void)worker;
	a->c->lin->add(a->y + at, a->x + at, (size_t)a->dim);
}

void rk_cpu_add(rk_backend *b, float *x, const float *y, int n, int dim)
{
	struct rows a = { .c = (rk_cpu *)b, .y = x, .x = y, .dim = dim };
	each_row(&a, n, RK_MAX_LANE, add_row);
}

static void stats_row(void *ctx, int i, int worker)
{
	const struct rows *a = ctx;
	(void)worker;
	a->c->lin->logits_stats(a->x + (size_t)i * (size_t)a->dim, a->dim, a->lse + i, a->argmax + i);
}

void rk_cpu_logits_stats(rk_backend *b, const float *logits, int n, float *lse, int32_t *argmax)
{
	struct rows a = { .c = (rk_cpu *)b, .x = logits, .dim = b->hp->n_vocab, .lse = lse, .argmax = argmax };
	each_row(&a, n, 1, stats_row);
}

float rk_cpu_logits_kl(rk_backend *b, const float *p, float p_lse, const float *q, float q_lse)
{
	float kl = lin(b)->expected_gap(p, p_lse, q, b->hp->n_vocab) - p_lse + q_lse;
	return kl > 0 ? kl : 0;
}
