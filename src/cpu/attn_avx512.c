/* attn_avx512.c: attention kernels for AVX-512 F, BW, VL, DQ; signatures and meaning in attn.h.
 *
 * Blocks are written once as always-inlined functions whose loop bounds are constants at the call, so that the
 * accumulators live in registers: gemm 6 rows x 4 vectors (24 of 32 registers), score 4 keys x up to 4 heads, mix up
 * to 4 heads x 4 vectors.  Lengths that do not fill a vector are masked.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __mmask16 mask_of(int n)
{
	return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

INLINE __m512 load_row(const void *x, size_t i, __mmask16 m, bool f16)
{
	if (f16)
		return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const rk_half *)x + i));
	return _mm512_maskz_loadu_ps(m, (const float *)x + i);
}

static void load_v(float *vt, const void *v, int n, int d, int d_pad, bool f16)
{
	for (int t = 0; t < n; t++)
		for (int j = 0; j < d_pad; j += 16)
			_mm512_storeu_ps(vt + t * d_pad + j, load_row(v, (size_t)t * (size_t)d + (size_t)j, mask_of(d - j), f16));
	memset(vt + n * d_pad, 0, (size_t)(RK_ATTN_BLOCK - n) * (size_t)d_pad * sizeof *vt);
}

INLINE void gemm_block(int mr, int nv, float *c, int ldc, const float *scale, const float *a, int lda, const float *b,
                       int ldb, int k)
{
	__m512 acc[6][4];

	for (int r = 0; r < mr; r++)
		for (int i = 0; i < nv; i++)
			acc[r][i] = scale ? _mm512_mul_ps(_mm512_loadu_ps(c + r * ldc + 16 * i), _mm512_set1_ps(scale[r]))
			                  : _mm512_setzero_ps();
	for (int t = 0; t < k; t++) {
		__m512 bv[4];
		for (int i = 0; i < nv; i++)
			bv[i] = _mm512_loadu_ps(b + (size_t)t * (size_t)ldb + 16 * i);
		for (int r = 0; r < mr; r++) {
			__m512 av = _mm512_set1_ps(a[r * lda + t]);
			for (int i = 0; i < nv; i++)
				acc[r][i] = _mm512_fmadd_ps(av, bv[i], acc[r][i]);
		}
	}
	for (int r = 0; r < mr; r++)
		for (int i = 0; i < nv; i++)
			_mm512_storeu_ps(c + r * ldc + 16 * i, acc[r][i]);
}

INLINE void gemm_columns(int nv, float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                         int m, int k)
{
	int r = 0;

	for (; r + 6 <= m; r += 6)
		gemm_block(6, nv, c + r * ldc, ldc, scale ? scale + r : NULL, a + r * lda, lda, b, ldb, k);
	for (; r < m; r++)
		gemm_block(1, nv, c + r * ldc, ldc, scale ? scale + r : NULL, a + r * lda, lda, b, ldb, k);
}

static void gemm(float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                 int m, int n, int k)
{
	int j = 0;

	for (; j + 64 <= n; j += 64)
		gemm_columns(4, c + j, ldc, scale, a, lda, b + j, ldb, m, k);
	for (; j < n; j += 16)
		gemm_columns(1, c + j, ldc, scale, a, lda, b + j, ldb, m, k);
}

static float max(const float *s, int n)
{
	__m512 m = _mm512_set1_ps(s[0]);

	for (int i = 0; i < n; i += 16)
		m = _mm512_max_ps(m, _mm512_mask_loadu_ps(m, mask_of(n - i), s + i));
	return _mm512_reduce_max_ps(m);
}

static int count_ge(const float *s, int n, uint32_t bits)
{
	__m512i limit = _mm512_set1_epi32((int)bits);
	int count = 0;

	for (int i = 0; i < n; i += 16) {
		__mmask16 in = mask_of(n - i);
		count += __builtin_popcount(_mm512_mask_cmpge_epu32_mask(in, _mm512_maskz_loadu_epi32(in, s + i), limit));
	}
	return count;
}

/* 2^x for x <= 0: 2^round(x) times a minimax polynomial of the rest (degree 6, relative error 2e-9, exactly 1 at
 * 0). */
INLINE __m512 exp2_vec(__m512 x)
{
	__mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(RK_ATTN_MIN_EXP2), _CMP_GE_OQ);
	__m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(x, n);
	__m512 p = _mm512_set1_ps(1.53533620e-4f);

	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.33988739e-3f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.61843692e-3f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55033237e-2f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226477e-1f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147182e-1f));
	p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
	return _mm512_maskz_scalef_ps(keep, p, n);
}

static float exp_sum(float *p, const float *s, int n, float m)
{
	__m512 mv = _mm512_set1_ps(m), sum = _mm512_setzero_ps();
	int i = 0;

	for (; i + 16 <= n; i += 16) {
		__m512 e = exp2_vec(_mm512_sub_ps(_mm512_loadu_ps(s + i), mv));
		_mm512_storeu_ps(p + i, e);
		sum = _mm512_add_ps(sum, e);
	}
	if (i < n) {
		__mmask16 in = mask_of(n - i);
		__m512 e = _mm512_maskz_mov_ps(in, exp2_vec(_mm512_sub_ps(_mm512_maskz_loadu_ps(in, s + i), mv)));
		_mm512_mask_storeu_ps(p + i, in, e);
		sum = _mm512_add_ps(sum, e);
	}
	return _mm512_reduce_add_ps(sum);
}

/* Lane r of the result = the sum of the 16 lanes of a[r]. */
INLINE __m128 sums_of_4(const __m512 a[4])
{
	__m512 x = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
	__m512 y = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
	__m512d xd = _mm512_castps_pd(x), yd = _mm512_castps_pd(y);
	__m512 z = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(xd, yd)),
	                         _mm512_castpd_ps(_mm512_unpackhi_pd(xd, yd)));
	__m256 w = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));

	return _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
}

/* acc[h][r] += elements j .. j+15 of q[h] times those of the row at row[r]. */
INLINE void score_step(int n_head, __m512 acc[4][4], const float *q, const void *k, const size_t row[4], int j, int d,
                       __mmask16 in, bool f16)
{
	__m512 kv[4];

	for (int r = 0; r < 4; r++)
		kv[r] = load_row(k, row[r] + (size_t)j, in, f16);
	for (int h = 0; h < n_head; h++) {
		__m512 qv = _mm512_maskz_loadu_ps(in, q + h * d + j);
		for (int r = 0; r < 4; r++)
			acc[h][r] = _mm512_fmadd_ps(qv, kv[r], acc[h][r]);
	}
}

/* Four keys at a time; where fewer are left the last one stands in for the missing, so that every key takes the
 * same path. */
INLINE void score_heads(int n_head, float *s, int lds, const float *q, const void *k, int n, int d, bool f16)
{
	for (int t = 0; t < n; t += 4) {
		__m512 acc[4][4];
		size_t row[4];
		int j = 0;
		for (int r = 0; r < 4; r++)
			row[r] = (size_t)(t + r < n ? t + r : n - 1) * (size_t)d;
		for (int h = 0; h < n_head; h++)
			for (int r = 0; r < 4; r++)
				acc[h][r] = _mm512_setzero_ps();
		for (; j + 16 <= d; j += 16)
			score_step(n_head, acc, q, k, row, j, d, 0xffff, f16);
		if (j < d)
			score_step(n_head, acc, q, k, row, j, d, mask_of(d - j), f16);
		for (int h = 0; h < n_head; h++) {
			__m128 sums = sums_of_4(acc[h]);
			float *to = s + (size_t)h * (size_t)lds + t;
			if (t + 4 <= n)
				_mm_storeu_ps(to, sums);
			else
				_mm_mask_storeu_ps(to, (__mmask8)mask_of(n - t), sums);
		}
	}
}

INLINE void score_any(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	switch (n_head) {
	case 1:
		score_heads(1, s, lds, q, k, n, d, f16);
		break;
	case 2:
		score_heads(2, s, lds, q, k, n, d, f16);
		break;
	case 3:
		score_heads(3, s, lds, q, k, n, d, f16);
		break;
	default:
		score_heads(4, s, lds, q, k, n, d, f16);
	}
}

/* More than 4 heads take several passes over keys that the first pass has brought into the cache. */
static void score(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	for (int h = 0; h < n_head; h += 4) {
		float *sh = s + (size_t)h * (size_t)lds;
		if (f16)
			score_any(sh, lds, q + h * d, n_head - h, k, n, d, true);
		else
			score_any(sh, lds, q + h * d, n_head - h, k, n, d, false);
	}
}

/* Columns j .. j+16*nv-1 of o; `last` masks the last vector. */
INLINE void mix_block(int n_head, int nv, float *o, const float *p, int ldp, const void *v, int n, int d, int j,
                      __mmask16 last, bool f16)
{
	__m512 acc[4][4];

	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			acc[h][i] = _mm512_setzero_ps();
	for (int t = 0; t < n; t++) {
		size_t row = (size_t)t * (size_t)d + (size_t)j;
		__m512 vv[4];
		for (int i = 0; i < nv; i++)
			vv[i] = load_row(v, row + 16 * (size_t)i, i == nv - 1 ? last : 0xffff, f16);
		for (int h = 0; h < n_head; h++) {
			__m512 pv = _mm512_set1_ps(p[(size_t)h * (size_t)ldp + t]);
			for (int i = 0; i < nv; i++)
				acc[h][i] = _mm512_fmadd_ps(pv, vv[i], acc[h][i]);
		}
	}
	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			_mm512_mask_storeu_ps(o + h * d + j + 16 * i, i == nv - 1 ? last : 0xffff, acc[h][i]);
}

INLINE void mix_heads(int n_head, float *o, const float *p, int ldp, const void *v, int n, int d, bool f16)
{
	int j = 0;

	for (; j + 64 <= d; j += 64)
		mix_block(n_head, 4, o, p, ldp, v, n, d, j, 0xffff, f16);
	for (; j < d; j += 16)
		mix_block(n_head, 1, o, p, ldp, v, n, d, j, mask_of(d - j), f16);
}

INLINE void mix_any(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16)
{
	switch (n_head) {
	case 1:
		mix_heads(1, o, p, ldp, v, n, d, f16);
		break;
	case 2:
		mix_heads(2, o, p, ldp, v, n, d, f16);
		break;
	case 3:
		mix_heads(3, o, p, ldp, v, n, d, f16);
		break;
	default:
		mix_heads(4, o, p, ldp, v, n, d, f16);
	}
}

static void mix(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16)
{
	for (int h = 0; h < n_head; h += 4) {
		const float *ph = p + (size_t)h * (size_t)ldp;
		if (f16)
			mix_any(o + h * d, ph, ldp, n_head - h, v, n, d, true);
		else
			mix_any(o + h * d, ph, ldp, n_head - h, v, n, d, false);
	}
}

const rk_attn_kernels rk_attn_avx512 = {
	.load_kt = rk_attn_avx2_load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.exp_sum = exp_sum, .score = score, .sketch = rk_sketch_score_avx512, .mix = mix,
};
