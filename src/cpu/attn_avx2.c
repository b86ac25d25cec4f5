/* attn_avx2.c: attention kernels for AVX2, FMA and F16C; signatures and meaning in attn.h.
 *
 * Blocks are written once as always-inlined functions whose loop bounds are constants at the call, so that the
 * accumulators live in registers: gemm 6 rows x 2 vectors (12 of 16 registers), score 4 keys x up to 2 heads, mix up
 * to 4 heads x 2 vectors.  Lengths that do not fill a vector go through load_some and store_some.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

/* The first n lanes, n clipped to 0..8. */
INLINE __m256i mask_of(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static __m256 load_some(const void *x, size_t i, int n, bool f16)
{
	if (!f16)
		return _mm256_maskload_ps((const float *)x + i, mask_of(n));
	rk_half h[8] = { 0 };
	if (n > 0)
		memcpy(h, (const rk_half *)x + i, (size_t)n * sizeof *h);
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)h));
}

/* Elements i .. i+n-1 of a row, n clipped to 8; zero beyond. */
INLINE __m256 load_row(const void *x, size_t i, int n, bool f16)
{
	if (n < 8)
		return load_some(x, i, n, f16);
	if (f16)
		return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const rk_half *)x + i)));
	return _mm256_loadu_ps((const float *)x + i);
}

INLINE void store_some(float *dst, __m256 x, int n)
{
	if (n >= 8)
		_mm256_storeu_ps(dst, x);
	else
		_mm256_maskstore_ps(dst, mask_of(n), x);
}

INLINE void transpose_8(__m256 r[8])
{
	__m256 t[8], u[8];

	for (int i = 0; i < 8; i += 2) {
		t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4)
		for (int j = 0; j < 2; j++) {
			u[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
			u[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
		}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
		r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
	}
}

void rk_attn_avx2_load_kt(float *kt, const void *k, int n, int d, bool f16)
{
	for (int t = 0; t < RK_ATTN_BLOCK; t += 8)
		for (int j = 0; j < d; j += 8) {
			__m256 r[8];
			for (int i = 0; i < 8; i++)
				r[i] = load_row(k, (size_t)(t + i) * (size_t)d + (size_t)j, t + i < n ? d - j : 0, f16);
			transpose_8(r);
			for (int i = 0; i < 8 && j + i < d; i++)
				_mm256_storeu_ps(kt + (j + i) * RK_ATTN_BLOCK + t, r[i]);
		}
}

static void load_v(float *vt, const void *v, int n, int d, int d_pad, bool f16)
{
	for (int t = 0; t < n; t++)
		for (int j = 0; j < d_pad; j += 8)
			_mm256_storeu_ps(vt + t * d_pad + j, load_row(v, (size_t)t * (size_t)d + (size_t)j, d - j, f16));
	memset(vt + n * d_pad, 0, (size_t)(RK_ATTN_BLOCK - n) * (size_t)d_pad * sizeof *vt);
}

INLINE void gemm_block(int mr, float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                       int k)
{
	__m256 acc[6][2];

	for (int r = 0; r < mr; r++)
		for (int i = 0; i < 2; i++)
			acc[r][i] = scale ? _mm256_mul_ps(_mm256_loadu_ps(c + r * ldc + 8 * i), _mm256_set1_ps(scale[r]))
			                  : _mm256_setzero_ps();
	for (int t = 0; t < k; t++) {
		__m256 b0 = _mm256_loadu_ps(b + (size_t)t * (size_t)ldb), b1 = _mm256_loadu_ps(b + (size_t)t * (size_t)ldb + 8);
		for (int r = 0; r < mr; r++) {
			__m256 av = _mm256_broadcast_ss(a + r * lda + t);
			acc[r][0] = _mm256_fmadd_ps(av, b0, acc[r][0]);
			acc[r][1] = _mm256_fmadd_ps(av, b1, acc[r][1]);
		}
	}
	for (int r = 0; r < mr; r++)
		for (int i = 0; i < 2; i++)
			_mm256_storeu_ps(c + r * ldc + 8 * i, acc[r][i]);
}

static void gemm(float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                 int m, int n, int k)
{
	for (int j = 0; j < n; j += 16) {
		int r = 0;
		for (; r + 6 <= m; r += 6)
			gemm_block(6, c + r * ldc + j, ldc, scale ? scale + r : NULL, a + r * lda, lda, b + j, ldb, k);
		for (; r < m; r++)
			gemm_block(1, c + r * ldc + j, ldc, scale ? scale + r : NULL, a + r * lda, lda, b + j, ldb, k);
	}
}

INLINE __m128 halves_added(__m256 x)
{
	return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

INLINE float sum_of_8(__m256 x)
{
	__m128 s = halves_added(x);

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static float max(const float *s, int n)
{
	float m = s[0];
	int i = 0;

	if (n >= 8) {
		__m256 mv = _mm256_loadu_ps(s);
		for (i = 8; i + 8 <= n; i += 8)
			mv = _mm256_max_ps(mv, _mm256_loadu_ps(s + i));
		__m128 x = _mm_max_ps(_mm256_castps256_ps128(mv), _mm256_extractf128_ps(mv, 1));
		x = _mm_max_ps(x, _mm_movehl_ps(x, x));
		m = _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
	}
	for (; i < n; i++)
		m = s[i] > m ? s[i] : m;
	return m;
}

static int count_ge(const float *s, int n, uint32_t bits)
{
	__m256i limit = _mm256_set1_epi32((int)bits), count = _mm256_setzero_si256();

	for (int i = 0; i < n; i += 8) {
		__m256i u = _mm256_castps_si256(load_row(s, (size_t)i, n - i, false));
		__m256i ge = _mm256_cmpeq_epi32(_mm256_max_epu32(u, limit), u);
		count = _mm256_sub_epi32(count, _mm256_and_si256(ge, mask_of(n - i)));
	}
	__m128i x = _mm_add_epi32(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1));
	x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
	return _mm_cvtsi128_si32(x) + _mm_extract_epi32(x, 1);
}

/* 2^x for x <= 0: 2^round(x) times a minimax polynomial of the rest (degree 6, relative error 2e-9, exactly 1 at
 * 0). */
INLINE __m256 exp2_vec(__m256 x)
{
	__m256 low = _mm256_set1_ps(RK_ATTN_MIN_EXP2), keep = _mm256_cmp_ps(x, low, _CMP_GE_OQ);
	x = _mm256_max_ps(x, low);
	__m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm256_sub_ps(x, n);
	__m256 p = _mm256_set1_ps(1.53533620e-4f);

	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.33988739e-3f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.61843692e-3f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.55033237e-2f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.40226477e-1f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.93147182e-1f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
	__m256i bits = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23));
	return _mm256_and_ps(_mm256_castsi256_ps(bits), keep);
}

static float exp_sum(float *p, const float *s, int n, float m)
{
	__m256 mv = _mm256_set1_ps(m), sum = _mm256_setzero_ps();

	for (int i = 0; i < n; i += 8) {
		__m256 e = exp2_vec(_mm256_sub_ps(load_row(s, (size_t)i, n - i, false), mv));
		if (n - i < 8)
			e = _mm256_and_ps(e, _mm256_castsi256_ps(mask_of(n - i)));
		store_some(p + i, e, n - i);
		sum = _mm256_add_ps(sum, e);
	}
	return sum_of_8(sum);
}

/* Lane r of the result = the sum of the 8 lanes of a[r]. */
INLINE __m128 sums_of_4(const __m256 a[4])
{
	return halves_added(_mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3])));
}

/* Four keys at a time; where fewer are left the last one stands in for the missing, so that every key takes the
 * same path. */
INLINE void score_heads(int n_head, float *s, int lds, const float *q, const void *k, int n, int d, bool f16)
{
	for (int t = 0; t < n; t += 4) {
		__m256 acc[2][4];
		size_t row[4];
		for (int r = 0; r < 4; r++)
			row[r] = (size_t)(t + r < n ? t + r : n - 1) * (size_t)d;
		for (int h = 0; h < n_head; h++)
			for (int r = 0; r < 4; r++)
				acc[h][r] = _mm256_setzero_ps();
		for (int j = 0; j < d; j += 8) {
			__m256 kv[4];
			for (int r = 0; r < 4; r++)
				kv[r] = load_row(k, row[r] + (size_t)j, d - j, f16);
			for (int h = 0; h < n_head; h++) {
				__m256 qv = load_row(q, (size_t)(h * d + j), d - j, false);
				for (int r = 0; r < 4; r++)
					acc[h][r] = _mm256_fmadd_ps(qv, kv[r], acc[h][r]);
			}
		}
		for (int h = 0; h < n_head; h++)
			_mm_maskstore_ps(s + (size_t)h * (size_t)lds + t, _mm256_castsi256_si128(mask_of(n - t)),
			                 sums_of_4(acc[h]));
	}
}

/* More than 2 heads take several passes over keys that the first pass has brought into the cache. */
INLINE void score_any(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	for (int h = 0; h < n_head; h += 2) {
		float *sh = s + (size_t)h * (size_t)lds;
		if (h + 1 < n_head)
			score_heads(2, sh, lds, q + h * d, k, n, d, f16);
		else
			score_heads(1, sh, lds, q + h * d, k, n, d, f16);
	}
}

static void score(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	if (f16)
		score_any(s, lds, q, n_head, k, n, d, true);
	else
		score_any(s, lds, q, n_head, k, n, d, false);
}

/* Columns j .. j+8*nv-1 of o, of which `left` are there. */
INLINE void mix_block(int n_head, int nv, float *o, const float *p, int ldp, const void *v, int n, int d, int j, int left,
                      bool f16)
{
	__m256 acc[4][2];

	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			acc[h][i] = _mm256_setzero_ps();
	for (int t = 0; t < n; t++) {
		size_t row = (size_t)t * (size_t)d + (size_t)j;
		__m256 vv[2];
		for (int i = 0; i < nv; i++)
			vv[i] = load_row(v, row + 8 * (size_t)i, left - 8 * i, f16);
		for (int h = 0; h < n_head; h++) {
			__m256 pv = _mm256_broadcast_ss(p + (size_t)h * (size_t)ldp + t);
			for (int i = 0; i < nv; i++)
				acc[h][i] = _mm256_fmadd_ps(pv, vv[i], acc[h][i]);
		}
	}
	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			store_some(o + h * d + j + 8 * i, acc[h][i], left - 8 * i);
}

INLINE void mix_heads(int n_head, float *o, const float *p, int ldp, const void *v, int n, int d, bool f16)
{
	int j = 0;

	for (; j + 16 <= d; j += 16)
		mix_block(n_head, 2, o, p, ldp, v, n, d, j, 16, f16);
	for (; j < d; j += 8)
		mix_block(n_head, 1, o, p, ldp, v, n, d, j, d - j, f16);
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

const rk_attn_kernels rk_attn_avx2 = {
	.load_kt = rk_attn_avx2_load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.exp_sum = exp_sum, .score = score, .sketch = rk_sketch_score_avx2, .mix = mix,
};
