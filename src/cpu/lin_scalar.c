/* lin_scalar.c: the kernels of lin.h for any x86-64.
 *
 * The integer products are plain C and define the arithmetic that the AVX2 and AVX-512 versions follow: an exact
 * integer sum per group of 32 (two of 16 for Q6_K), scaled and added up in f32.  The float kernels are those of
 * lin_float.h on the baseline's 4 lanes, without fused multiply-add.
 */
#include "cpu/lin.h"

#define VW 4
#define VFMA(a, b, c) ((a) * (b) + (c))
#include "cpu/lin_float.h"

/* A group of 32 weights: w[j] = d[j/16] q[j] + m. */
typedef struct group {
	int8_t q[RK_GROUP];
	float d[2], m;
} group;

/* q[j] = nibble j of the 16 bytes at qs, with bit j of qh (may be NULL) as bit 4, minus off */
static void unpack_45(group *g, const uint8_t *qs, const uint8_t *qh, int off)
{
	for (int j = 0; j < RK_GROUP; j++) {
		int q = qs[j % 16] >> (j / 16 * 4) & 15;
		if (qh)
			q |= (qh[j / 8] >> (j % 8) & 1) << 4;
		g->q[j] = (int8_t)(q - off);
	}
}

/* Group k of a Q4_K or Q5_K (qh not NULL) block; layout in quant.h and quant.c. */
static void unpack_45_k(group *g, int k, const uint8_t s[12], const uint8_t *qs, const uint8_t *qh, float d, float dmin)
{
	int sc = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
	int mn = k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | (s[k] >> 6) << 4;
	for (int j = 0; j < RK_GROUP; j++)
		g->q[j] = (int8_t)((qs[k / 2 * 32 + j] >> (k % 2 * 4) & 15) | (qh ? (qh[j] >> k & 1) << 4 : 0));
	g->d[0] = g->d[1] = d * (float)sc;
	g->m = -(dmin * (float)mn);
}

static void unpack_6_k(group *g, int k, const rk_block_q6_k *b)
{
	const uint8_t *ql = b->ql + k / 4 * 64 + k % 2 * 32, *qh = b->qh + k / 4 * 32;
	float d = rk_half_to_float(b->d);
	for (int j = 0; j < RK_GROUP; j++)
		g->q[j] = (int8_t)(((ql[j] >> (k / 2 % 2 * 4) & 15) | (qh[j] >> (k % 4 * 2) & 3) << 4) - 32);
	for (int h = 0; h < 2; h++)
		g->d[h] = d * (float)b->scales[2 * k + h];
	g->m = 0;
}

static void unpack_simple(group *g, rk_half d, rk_half m)
{
	g->d[0] = g->d[1] = rk_half_to_float(d);
	g->m = m ? rk_half_to_float(m) : 0;
}

/* Group k of the block at src. */
static void unpack(enum rk_type t, const void *src, int k, group *g)
{
	switch (t) {
	case RK_Q4_0: {
		const rk_block_q4_0 *b = src;
		unpack_45(g, b->qs, NULL, 8);
		unpack_simple(g, b->d, 0);
		break;
	}
	case RK_Q4_1: {
		const rk_block_q4_1 *b = src;
		unpack_45(g, b->qs, NULL, 0);
		unpack_simple(g, b->d, b->m);
		break;
	}
	case RK_Q5_0: {
		const rk_block_q5_0 *b = src;
		unpack_45(g, b->qs, b->qh, 16);
		unpack_simple(g, b->d, 0);
		break;
	}
	case RK_Q5_1: {
		const rk_block_q5_1 *b = src;
		unpack_45(g, b->qs, b->qh, 0);
		unpack_simple(g, b->d, b->m);
		break;
	}
	case RK_Q8_0: {
		const rk_block_q8_0 *b = src;
		memcpy(g->q, b->qs, sizeof g->q);
		unpack_simple(g, b->d, 0);
		break;
	}
	case RK_Q4_K: {
		const rk_block_q4_k *b = src;
		unpack_45_k(g, k, b->scales, b->qs, NULL, rk_half_to_float(b->d), rk_half_to_float(b->dmin));
		break;
	}
	case RK_Q5_K: {
		const rk_block_q5_k *b = src;
		unpack_45_k(g, k, b->scales, b->qs, b->qh, rk_half_to_float(b->d), rk_half_to_float(b->dmin));
		break;
	}
	case RK_Q6_K:
		unpack_6_k(g, k, src);
		break;
	default:
		__builtin_unreachable();	/* the callers pass quantised types only */
	}
}

/* One row times up to NT activations, so that a group is unpacked once for all of them. */
#define NT 8

static void dot_row(enum rk_type t, const uint8_t *w, const rk_act *a, int i0, int nt, float *y, size_t ldy)
{
	int per_block = rk_type_block_len(t) / RK_GROUP, n_group = a->n_col / RK_GROUP;
	size_t block_bytes = rk_type_block_bytes(t);
	float acc[NT] = { 0 };
	for (int g = 0; g < n_group; g++) {
		group u;
		unpack(t, w + (size_t)(g / per_block) * block_bytes, g % per_block, &u);
		for (int i = 0; i < nt; i++) {
			const size_t at = (size_t)g * (size_t)a->n + (size_t)(i0 + i);
			const int8_t *q = a->q + at * RK_GROUP;
			const float *ds = a->ds + at * 2;
			int sum[2] = { 0 };
			for (int j = 0; j < 16; j++) {
				sum[0] += u.q[j] * q[j];
				sum[1] += u.q[j + 16] * q[j + 16];
			}
			acc[i] += ds[0] * (u.d[0] * (float)sum[0] + u.d[1] * (float)sum[1]) + u.m * ds[1];
		}
	}
	for (int i = 0; i < nt; i++)
		y[(size_t)(i0 + i) * ldy] = acc[i];
}

static void dot_q8(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
	size_t row_bytes = rk_type_row_bytes(t, a->n_col);
	for (int r = 0; r < n_row; r++) {
		const uint8_t *row = (const uint8_t *)w + (size_t)r * row_bytes;
		for (int i = 0; i < a->n; i += NT)
			dot_row(t, row, a, i, a->n - i < NT ? a->n - i : NT, y + r, ldy);
	}
}

static void to_half(rk_half *dst, const float *src, int n)
{
	for (int j = 0; j < n; j++)
		dst[j] = rk_float_to_half(src[j]);
}

const rk_lin_kernels rk_lin_scalar = {
	.dequant = rk_dequant_row,
	.quantise = quantise,
	.dot_q8 = dot_q8,
	.dot_f32 = dot_f32,
	.to_half = to_half,
	.rmsnorm = rmsnorm,
	.silu_mul = silu_mul,
	.add = add,
	.logits_stats = logits_stats,
	.expected_gap = expected_gap,
};
