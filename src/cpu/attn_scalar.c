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

static float exp_sum(float *p, const float *s, int n, float m)
{
	float sum = 0;

	for (int i = 0; i < n; i++) {
		float x = s[i] - m;
		p[i] = x < RK_ATTN_MIN_EXP2 ? 0 : exp2f(x);
		sum += p[i];
	}
	return sum;
}

static void score(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	for (int t = 0; t < n; t++)
		for (int h = 0; h < n_head; h++) {
			float sum = 0;
			for (int j = 0; j < d; j++)
				sum += q[h * d + j] * element(k, (size_t)t * (size_t)d + (size_t)j, f16);
			s[(size_t)h * (size_t)lds + (size_t)t] = sum;
		}
}

static void mix(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16)
{
	memset(o, 0, (size_t)n_head * (size_t)d * sizeof *o);
	for (int t = 0; t < n; t++)
		for (int j = 0; j < d; j++) {
			float x = element(v, (size_t)t * (size_t)d + (size_t)j, f16);
			for (int h = 0; h < n_head; h++)
				o[h * d + j] += p[(size_t)h * (size_t)ldp + (size_t)t] * x;
		}
}

const rk_attn_kernels rk_attn_scalar = {
	.load_kt = load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.exp_sum = exp_sum, .score = score, .sketch = rk_sketch_score_scalar, .mix = mix,
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
