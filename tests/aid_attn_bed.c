/* aid_attn_bed.c: see aid_attn_bed.h */
#include "aid_attn_bed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CANARY 64

bool bed_has_isa(enum rk_isa isa)
{
	return isa <= rk_cpu_best_isa();
}

/* Layout: size, data, canary. */
void *bed_alloc(size_t bytes)
{
	char *p = calloc(1, 64 + bytes + CANARY);

	assert_non_null(p);
	memcpy(p, &bytes, sizeof bytes);
	memset(p + 64 + bytes, 0xa5, CANARY);
	return p + 64;
}

void bed_free(void *p)
{
	size_t bytes;

	if (!p)
		return;
	memcpy(&bytes, (char *)p - 64, sizeof bytes);
	for (int i = 0; i < CANARY; i++)
		assert_int_equal(((unsigned char *)p)[bytes + (size_t)i], 0xa5);
	free((char *)p - 64);
}

void bed_open(bed *b, const bed_shape *s, int prompt_cap)
{
	rk_err e = { 0 };

	*b = (bed){ .hp = { .n_layer = 2, .n_head = s->n_head, .n_kv_head = s->n_kv, .head_dim = s->d } };
	b->c = (rk_cpu){ .b = { .hp = &b->hp, .kv_bytes = s->kv_bytes, .n_thread = s->n_thread }, .isa = s->isa,
	                 .cfg = { .n_thread = s->n_thread, .max_rows = s->max_rows, .max_pos = s->max_pos },
	                 .lin = &rk_lin_scalar, .attn = rk_attn_kernels_for(s->isa) };
	assert_int_equal(rk_team_open(&b->c.team, s->n_thread, &e), 0);
	assert_int_equal(rk_cpu_attn_init(&b->c, &e), 0);
	ref_seq_init(&b->seq, s->n_head, s->n_kv, s->d, s->max_pos);
	bed_store_init(b, &b->prompt, prompt_cap, 0);
}

void bed_close(bed *b)
{
	bed_store_free(b, &b->prompt);
	ref_seq_free(&b->seq);
	rk_cpu_attn_free(&b->c);
	rk_team_close(b->c.team);
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

void bed_random(uint32_t *state, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)next(state) / (float)(1 << 23) - 1.0f;
}

void bed_integers(uint32_t *state, float *x, size_t n, int range)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(int)(next(state) % (uint32_t)(2 * range + 1)) - (float)range;
}

void bed_store_init(bed *b, rk_store *st, int cap, int pos0)
{
	size_t bytes = rk_row_at(&b->hp, b->hp.n_layer, 0, cap) * (size_t)b->hp.head_dim * b->c.b.kv_bytes;

	*st = (rk_store){ .cap = cap, .pos0 = pos0 };
	if (cap == 0)
		return;
	st->k = bed_alloc(bytes);
	st->v = bed_alloc(bytes);
	memset(st->k, 0x7d, bytes);	/* what was never written must not matter */
	memset(st->v, 0x7d, bytes);
}

void bed_store_free(bed *b, rk_store *st)
{
	(void)b;
	bed_free(st->k);
	bed_free(st->v);
	*st = (rk_store){ 0 };
}

static double put(void *dst, size_t i, float x, size_t kv_bytes)
{
	if (kv_bytes == sizeof(float)) {
		((float *)dst)[i] = x;
		return (double)x;
	}
	((rk_half *)dst)[i] = rk_float_to_half(x);
	return (double)rk_half_to_float(((rk_half *)dst)[i]);
}

void bed_append(bed *b, rk_store *st, int at, const float *k, const float *v, int n)
{
	int d = b->hp.head_dim, n_kv = b->hp.n_kv_head;
	size_t kv_bytes = b->c.b.kv_bytes;

	assert_true(at + n <= st->cap);
	for (int i = 0; i < n; i++)
		for (int kv = 0; kv < n_kv; kv++)
			for (int j = 0; j < d; j++) {
				size_t dst = (rk_row_at(&b->hp, BED_LAYER, kv, st->cap) + (size_t)(at + i)) * (size_t)d + (size_t)j;
				int src = (i * n_kv + kv) * d + j, seq = ((st->pos0 + at + i) * n_kv + kv) * d + j;
				b->seq.k[seq] = put(st->k, dst, k[src], kv_bytes);
				b->seq.v[seq] = put(st->v, dst, v[src], kv_bytes);
			}
	st->len = at + n;
	b->seq.n = st->pos0 + at + n;
}

void bed_lane_init(bed *b, rk_lane_cache *l, const rk_policy *pol, int budget, bool keeps_full, int max_new)
{
	size_t rings = rk_row_at(&b->hp, b->hp.n_layer, 0, 1);
	int n = b->prompt.cap, cap = budget + 1;	/* as rk_partial_cap */

	*l = (rk_lane_cache){ .pol = *pol, .budget = budget, .keeps_full = keeps_full, .prompt = &b->prompt, .n_pos = n };
	if (keeps_full)
		bed_store_init(b, &l->tail, max_new, n);
	l->q_ref = bed_alloc((size_t)(b->hp.n_layer * b->hp.n_head * b->hp.head_dim) * sizeof(float));
	if (pol->score == RK_SCORE_NONE)
		return;
	if (pol->evict == RK_EVICT_OLDEST)
		cap = budget;
	if (pol->evict == RK_EVICT_NONE)
		cap = (budget < n ? budget : n) + max_new;
	size_t bytes = rings * (size_t)cap * (size_t)b->hp.head_dim * b->c.b.kv_bytes;
	l->part = (rk_partial){ .cap = cap, .k = bed_alloc(bytes), .v = bed_alloc(bytes),
	                        .pos = bed_alloc(rings * (size_t)cap * sizeof(int32_t)),
	                        .count = bed_alloc(rings * sizeof(int32_t)), .next = bed_alloc(rings * sizeof(int32_t)) };
	if (pol->score == RK_SCORE_ACCUMULATED)
		l->part.acc = bed_alloc(rings * (size_t)cap * sizeof(float));
}

void bed_lane_free(bed *b, rk_lane_cache *l)
{
	bed_store_free(b, &l->tail);
	bed_free(l->q_ref);
	bed_free(l->part.k);
	bed_free(l->part.v);
	bed_free(l->part.pos);
	bed_free(l->part.acc);
	bed_free(l->part.count);
	bed_free(l->part.next);
}

/* With u = 2^-24 the unit roundoff: the query is scaled (the factor and the product rounded: 2u) and a score is a
 * chain of d products and sums, so it is off by at most (2d + 2) u S, S = d q_max k_max / sqrt(d) log2(e).  The
 * maximum is subtracted (u more of at most 2S) and exp2 turns the error x into a relative error ln2 x + 4u of a
 * probability's numerator.  Numerator and denominator: twice that.  Sums of n non-negative terms and of their
 * products with v: 2 (n + 8) u, rescaling once per block of 64 keys: 3u each. */
double bed_tolerance(const bed *b, double q_max, double k_max, double v_max, int n)
{
	double u = ldexp(1, -24), d = b->hp.head_dim, s = sqrt(d) * q_max * k_max * 1.4427;

	return v_max * u * (2 * (0.6932 * (2 * d + 4) * s + 4) + 2 * (n + 8) + 3 * (n / 64.0 + 1));
}
