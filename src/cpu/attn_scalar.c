/* attn_scalar.c: attention kernels in plain C, for machines without AVX2, and the choice among the tables.
 *
 * Reference of the vector versions (same names, same order of arguments); signatures and meaning in attn.h.
 */
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

static inline float element(const void *x, size_t i, bool f16)
{
	return f16 ? rk_half_to_float(((const rk_half *)x)[i]) : ((const float *)x)[i];
}

static void load_kt(float *kt, const void *k, int n, int d, bool f16)
{
	for (int j = 0; j < d; j++)
		for (int t = 0; t < RK_ATTN_BLOCK; t++)
			kt[j * RK_ATTN_BLOCK + t] = t < n ? element(k, (size_t)t * (size_t)d + (size_t)j, f16) : 0;
}

static void load_v(float *vt, const void *v, int n, int d, int d_pad, bool f16)
{
	memset(vt, 0, RK_ATTN_BLOCK * (size_t)d_pad * sizeof *vt);
	for (int t = 0; t < n; t++)
		for (int j = 0; j < d; j++)
			vt[t * d_pad + j] = element(v, (size_t)t * (size_t)d + (size_t)j, f16);
}

static void gemm(float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                 int m, int n, int k)
{
	for (int r = 0; r < m; r++) {
		float *row = c + (size_t)r * (size_t)ldc;
		for (int j = 0; j < n; j++)
			row[j] = scale ? row[j] * scale[r] : 0;
		for (int i = 0; i < k; i++)
			for (int j = 0; j < n; j++)
				row[j] += a[(size_t)r * (size_t)lda + (size_t)i] * b[(size_t)i * (size_t)ldb + (size_t)j];
	}
}

static float max(const float *s, int n)
{
	float m = s[0];

	for (int i = 1; i < n; i++)
		m = s[i] > m ? s[i] : m;
	return m;
}

static int count_ge(const float *s, int n, uint32_t bits)
{
	int count = 0;

	for (int i = 0; i < n; i++) {
		uint32_t u;
		memcpy(&u, s + i, sizeof u);
		count += u >= bits;
	}
	return count;
}

static int find_ge(float *to, int32_t *at, const float *s, int n, uint32_t bits)
{
	int found = 0;

	for (int i = 0; i < n; i++) {
		uint32_t u;
		memcpy(&u, s + i, sizeof u);
		if (u >= bits) {
			to[found] = s[i];
			at[found++] = i;
		}
	}
	return found;
}

static float exp2_or_0(float x)
{
	return x < RK_ATTN_MIN_EXP2 ? 0 : exp2f(x);
}

static float exp_sum(float *p, const float *s, int n, float m)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += p[i] = exp2_or_0(s[i] - m);
	return sum;
}

static void add_exp(float *p, const float *s, int n, float m, float w)
{
	for (int i = 0; i < n; i++)
		p[i] += exp2_or_0(s[i] - m) * w;
}

static void largest_exp(float *p, const float *s, int lds, int n_head, int n, const float *m, const float *l)
{
	for (int i = 0; i < n; i++) {
		float x = s[i] - m[0] - l[0];
		for (int h = 1; h < n_head; h++)
			x = fmaxf(x, s[(size_t)h * (size_t)lds + (size_t)i] - m[h] - l[h]);
		p[i] = exp2_or_0(x);
	}
}

static void score_key(float *s, int lds, const float *q, int n_head, const void *k, int d, bool f16)
{
	for (int h = 0; h < n_head; h++) {
		float sum = 0;
		for (int j = 0; j < d; j++)
			sum += q[h * d + j] * element(k, (size_t)j, f16);
		s[(size_t)h * (size_t)lds] = sum;
	}
}

static void score(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	for (int t = 0; t < n; t++)
		score_key(s + t, lds, q, n_head, (const char *)k + (size_t)(t * d) * (f16 ? 2 : 4), d, f16);
}

static void score_rows(float *s, int lds, const float *q, int n_head, const char *const *k, int n, int d, bool f16)
{
	for (int t = 0; t < n; t++)
		score_key(s + t, lds, q, n_head, k[t], d, f16);
}

static void add_value(float *o, const float *p, int ldp, int n_head, const void *v, int d, bool f16)
{
	for (int j = 0; j < d; j++) {
		float x = element(v, (size_t)j, f16);
		for (int h = 0; h < n_head; h++)
			o[h * d + j] += p[(size_t)h * (size_t)ldp] * x;
	}
}

static void mix(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16)
{
	memset(o, 0, (size_t)n_head * (size_t)d * sizeof *o);
	for (int t = 0; t < n; t++)
		add_value(o, p + t, ldp, n_head, (const char *)v + (size_t)(t * d) * (f16 ? 2 : 4), d, f16);
}

static void mix_rows(float *o, const float *p, int ldp, int n_head, const char *const *v, int n, int d, bool f16)
{
	memset(o, 0, (size_t)n_head * (size_t)d * sizeof *o);
	for (int t = 0; t < n; t++)
		add_value(o, p + t, ldp, n_head, v[t], d, f16);
}

const rk_attn_kernels rk_attn_scalar = {
	.load_kt = load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.find_ge = find_ge,	.exp_sum = exp_sum, .add_exp = add_exp, .largest_exp = largest_exp,
	.score = score, .score_rows = score_rows, .sketch = rk_sketch_score_scalar, .mix = mix, .mix_rows = mix_rows,
};

const rk_attn_kernels *rk_attn_kernels_for(int isa)
{
	switch (isa) {
	case RK_ISA_AVX512:
		return &rk_attn_avx512;
	case RK_ISA_AVX2:
		return &rk_attn_avx2;
	default:
		return &rk_attn_scalar;
	}
}
