/* attn_prefill.c: causal attention of a chunk of queries, flash-style: no n x L matrix exists.
 *
 * A work item is one KV head and a tile of queries; the rows of a tile are (query, head of the group), so that a tile
 * of keys and values is converted once for all of them.  Keys are taken in blocks of RK_ATTN_BLOCK counted from the
 * start of each store, with the running maximum and sum of FlashAttention (arXiv 2205.14135, algorithm 1).  A block
 * that a row may not see leaves it unchanged to the bit, so a row's result depends on its position only, not on tile,
 * chunk or thread.
 */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define MIN_QUERIES 8	/* no tile is cut below this to occupy more threads */

/* One call of attn_prefill. */
struct call {
	rk_cpu *c;
	const rk_store *prompt, *tail;
	int layer, tail_len;
	int n;		/* queries */
	int group;	/* rows per query */
	int tile;	/* queries per work item */
	const float *q;	/* [n][n_head][head_dim] */
	float *out;	/* [n][n_head][head_dim] */
	float *colsum;	/* [n_kv_head][tail->cap] or NULL */
};

static size_t first_row(const struct call *a, int kv)
{
	return (size_t)kv * (size_t)a->c->cfg.max_rows * (size_t)a->group;
}

/* Where row r of a KV head lies in q and out. */
static size_t element_of_row(const struct call *a, int kv, int r)
{
	const rk_hparams *hp = a->c->b.hp;
	size_t query = (size_t)(r / a->group), head = (size_t)(kv * a->group + r % a->group);

	return (query * (size_t)hp->n_head + head) * (size_t)hp->head_dim;
}

/* Rows r0 .. r1-1 of a KV head from q (scaled) into the scratch, or from o (divided by the sum) into out. */
static void load_rows(const struct call *a, int kv, int r0, int r1)
{
	rk_attn_scratch *s = a->c->attn_scratch;
	const rk_hparams *hp = a->c->b.hp;
	float scale = rk_attn_scale(hp);

	for (int r = r0; r < r1; r++) {
		const float *src = a->q + element_of_row(a, kv, r);
		float *dst = s->q_rows + (first_row(a, kv) + (size_t)r) * (size_t)s->d_pad;
		for (int j = 0; j < hp->head_dim; j++)
			dst[j] = src[j] * scale;
	}
}

static void store_rows(const struct call *a, int kv, int r0, int r1, const float *o)
{
	rk_attn_scratch *s = a->c->attn_scratch;
	const rk_hparams *hp = a->c->b.hp;

	for (int r = r0; r < r1; r++, o += s->d_pad) {
		float *dst = a->out + element_of_row(a, kv, r);
		float w = 1 / s->row_sum[first_row(a, kv) + (size_t)r];
		for (int j = 0; j < hp->head_dim; j++)
			dst[j] = o[j] * w;
	}
}

/* Keys of a block that begins at key0 of the tail that row r sees; 0 or less: none. */
static int visible(const struct call *a, int r, int key0)
{
	int n = a->tail_len + r / a->group + 1 - key0;

	return n < RK_ATTN_BLOCK ? n : RK_ATTN_BLOCK;
}

/* Scores of rows r0 .. r1-1 (at most RK_ATTN_ROWS) with the block in t->kt, into t->s. */
static void score_rows(const struct call *a, const rk_attn_thread *t, int kv, int r0, int r1)
{
	rk_attn_scratch *s = a->c->attn_scratch;
	const float *q = s->q_rows + (first_row(a, kv) + (size_t)r0) * (size_t)s->d_pad;

	a->c->attn->gemm(t->s, RK_ATTN_BLOCK, NULL, q, s->d_pad, t->kt, RK_ATTN_BLOCK, r1 - r0, RK_ATTN_BLOCK,
	                 a->c->b.hp->head_dim);
}

/* Adds the block of n_key keys in t->kt, t->vt to the outputs o of rows r0 .. r1-1.  key0: its first key in the
 * tail, or -1 for a block of the prompt, of which every row sees all. */
static void attend_rows(const struct call *a, const rk_attn_thread *t, int kv, int r0, int r1, int key0, int n_key,
                        float *o)
{
	const rk_attn_kernels *k = a->c->attn;
	rk_attn_scratch *s = a->c->attn_scratch;
	float scale[RK_ATTN_ROWS];

	score_rows(a, t, kv, r0, r1);
	for (int r = r0; r < r1; r++) {
		size_t at = first_row(a, kv) + (size_t)r;
		float *row = t->s + (r - r0) * RK_ATTN_BLOCK, *max = &s->row_max[at], *sum = &s->row_sum[at];
		int n = key0 < 0 ? n_key : visible(a, r, key0), see = n > 0 ? n : 0;
		scale[r - r0] = 1;
		memset(row + see, 0, (size_t)(RK_ATTN_BLOCK - see) * sizeof *row);
		if (see == 0)
			continue;
		float m = k->max(row, see);
		if (m > *max) {
			scale[r - r0] = exp2f(*max - m);
			*max = m;
		}
		*sum = *sum * scale[r - r0] + k->exp_sum(row, row, see, *max);
	}
	k->gemm(o, s->d_pad, scale, t->s, RK_ATTN_BLOCK, t->vt, s->d_pad, r1 - r0, s->d_pad, RK_ATTN_BLOCK);
}

/* Adds the first n_key keys of a store to rows r0 .. r1-1. */
static void attend_store(const struct call *a, rk_attn_thread *t, const rk_store *st, int n_key, bool causal, int kv,
                         int r0, int r1)
{
	rk_cpu *c = a->c;
	rk_attn_scratch *s = c->attn_scratch;
	int d = c->b.hp->head_dim;
	bool f16 = c->b.kv_bytes == 2;
	rk_attn_span rows = rk_attn_rows(c, st->k, st->v, a->layer, kv, st->cap, n_key);

	for (int key0 = 0; key0 < n_key; key0 += RK_ATTN_BLOCK) {
		size_t at = (size_t)key0 * (size_t)d * c->b.kv_bytes;
		int n = n_key - key0 < RK_ATTN_BLOCK ? n_key - key0 : RK_ATTN_BLOCK;
		c->attn->load_kt(t->kt, rows.k + at, n, d, f16);
		c->attn->load_v(t->vt, rows.v + at, n, d, s->d_pad, f16);
		for (int r = r0; r < r1; r += RK_ATTN_ROWS) {
			int end = r + RK_ATTN_ROWS < r1 ? r + RK_ATTN_ROWS : r1;
			if (causal && visible(a, end - 1, key0) <= 0)
				continue;
			attend_rows(a, t, kv, r, end, causal ? key0 : -1, n, t->o + (size_t)(r - r0) * (size_t)s->d_pad);
		}
	}
}

/* Queries i0 .. i1-1 of one KV head. */
static void attend_tile(const struct call *a, rk_attn_thread *t, int kv, int i0, int i1)
{
	rk_attn_scratch *s = a->c->attn_scratch;
	int r0 = i0 * a->group, r1 = i1 * a->group;

	load_rows(a, kv, r0, r1);
	memset(t->o, 0, (size_t)(r1 - r0) * (size_t)s->d_pad * sizeof *t->o);
	for (int r = r0; r < r1; r++) {
		s->row_max[first_row(a, kv) + (size_t)r] = -INFINITY;
		s->row_sum[first_row(a, kv) + (size_t)r] = 0;
	}
	if (a->prompt)
		attend_store(a, t, a->prompt, a->prompt->len, false, kv, r0, r1);
	attend_store(a, t, a->tail, a->tail_len + i1, true, kv, r0, r1);
	store_rows(a, kv, r0, r1, t->o);
}

/* Second pass, once every row's maximum and sum are known: the block of keys from key0 on, over all rows in order. */
static void sum_columns(const struct call *a, rk_attn_thread *t, int kv, int key0)
{
	rk_cpu *c = a->c;
	rk_attn_scratch *s = c->attn_scratch;
	int d = c->b.hp->head_dim, n_row = a->n * a->group, n_key = a->tail_len + a->n;
	rk_attn_span rows = rk_attn_rows(c, a->tail->k, a->tail->v, a->layer, kv, a->tail->cap, n_key);
	float *col = a->colsum + (size_t)kv * (size_t)a->tail->cap + (size_t)key0;

	c->attn->load_kt(t->kt, rows.k + (size_t)key0 * (size_t)d * c->b.kv_bytes,
	                 n_key - key0 < RK_ATTN_BLOCK ? n_key - key0 : RK_ATTN_BLOCK, d, c->b.kv_bytes == 2);
	for (int r0 = 0; r0 < n_row; r0 += RK_ATTN_ROWS) {
		int r1 = r0 + RK_ATTN_ROWS < n_row ? r0 + RK_ATTN_ROWS : n_row;
		if (visible(a, r1 - 1, key0) <= 0)
			continue;
		score_rows(a, t, kv, r0, r1);
		for (int r = r0; r < r1; r++) {
			float *p = t->s + (r - r0) * RK_ATTN_BLOCK, w = 1 / s->row_sum[first_row(a, kv) + (size_t)r];
			int see = visible(a, r, key0);
			if (see <= 0)
				continue;
			c->attn->exp_sum(p, p, see, s->row_max[first_row(a, kv) + (size_t)r]);
			for (int j = 0; j < see; j++)
				col[j] += p[j] * w;
		}
	}
}

/* Last tile first: it sees the most keys. */
static void tile_piece(void *ctx, int item, int worker)
{
	const struct call *a = ctx;
	rk_attn_scratch *s = a->c->attn_scratch;
	int n_kv = a->c->b.hp->n_kv_head, n_tile = (a->n + a->tile - 1) / a->tile;
	int i0 = (n_tile - 1 - item / n_kv) * a->tile;

	attend_tile(a, &s->thread[worker], item % n_kv, i0, i0 + a->tile < a->n ? i0 + a->tile : a->n);
}

static void column_piece(void *ctx, int item, int worker)
{
	const struct call *a = ctx;
	rk_attn_scratch *s = a->c->attn_scratch;
	int n_kv = a->c->b.hp->n_kv_head;

	sum_columns(a, &s->thread[worker], item % n_kv, item / n_kv * RK_ATTN_BLOCK);
}

void rk_cpu_attn_prefill(rk_backend *b, int layer, const rk_store *prompt, const rk_store *tail, int tail_len,
                         const float *q, int n, float *out, float *colsum)
{
	rk_cpu *c = (rk_cpu *)b;
	int n_kv = b->hp->n_kv_head;
	struct call a = { .c = c, .prompt = prompt, .tail = tail, .layer = layer, .tail_len = tail_len, .n = n,
	                  .group = b->hp->n_head / n_kv, .tile = RK_ATTN_QUERIES, .q = q, .out = out, .colsum = colsum };

	assert(n <= c->cfg.max_rows && tail_len + n <= tail->cap);
	while (a.tile > MIN_QUERIES && n_kv * ((n + a.tile - 1) / a.tile) < 4 * b->n_thread)
		a.tile /= 2;
	int n_tile = (n + a.tile - 1) / a.tile, n_block = (tail_len + n + RK_ATTN_BLOCK - 1) / RK_ATTN_BLOCK;

	rk_team_run(c->team, n_kv * n_tile, tile_piece, &a);
	if (colsum)
		rk_team_run(c->team, n_kv * n_block, column_piece, &a);
}
