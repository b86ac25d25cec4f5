/* attn_avx512.c: attention kernels for AVX-512 F, BW, VL, DQ; signatures and meaning in attn.h, bodies in attn_vec.h.
 *
 * Lengths that do not fill a vector are masked.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))
#define VW 16
#define MAX_HEAD 4
#define GEMM_VEC 4

typedef __m512 vf;

INLINE vf vset(float x)
{
	return _mm512_set1_ps(x);
}

INLINE vf vfma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

INLINE vf vmax(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

INLINE __mmask16 mask_of(int n)
{
	return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* Elements i .. i+n-1 of a row, n clipped to 16; zero beyond. */
INLINE vf load_row(const void *x, size_t i, int n, bool f16)
{
	if (f16)
		return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(n), (const rk_half *)x + i));
	return _mm512_maskz_loadu_ps(mask_of(n), (const float *)x + i);
}

INLINE void store_row(float *dst, vf x, int n)
{
	_mm512_mask_storeu_ps(dst, mask_of(n), x);
}

INLINE float sum_lanes(vf x)
{
	return _mm512_reduce_add_ps(x);
}

INLINE float max_lanes(vf x)
{
	return _mm512_reduce_max_ps(x);
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

static int find_ge(float *to, int32_t *at, const float *s, int n, uint32_t bits)
{
	static const int32_t lane[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	const __m512i limit = _mm512_set1_epi32((int)bits), lanes = _mm512_loadu_si512(lane);
	int found = 0;

	for (int i = 0; i < n; i += 16) {
		__mmask16 in = mask_of(n - i);
		__m512i u = _mm512_maskz_loadu_epi32(in, s + i);
		__mmask16 ge = _mm512_mask_cmpge_epu32_mask(in, u, limit);
		__m512i index = _mm512_add_epi32(lanes, _mm512_set1_epi32(i));	/* compressing into memory is slow on Zen 4 */
		_mm512_mask_storeu_ps(to + found, in, _mm512_castsi512_ps(_mm512_maskz_compress_epi32(ge, u)));
		_mm512_mask_storeu_ps(at + found, in, _mm512_castsi512_ps(_mm512_maskz_compress_epi32(ge, index)));
		found += __builtin_popcount(ge);
	}
	return found;
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

#include "cpu/attn_vec.h"

const rk_attn_kernels rk_attn_avx512 = {
	.load_kt = rk_attn_avx2_load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.find_ge = find_ge, .exp_sum = exp_sum, .add_exp = add_exp, .largest_exp = largest_exp, .score = score, .score_rows = score_rows,
	.sketch = rk_sketch_score_avx512, .mix = mix, .mix_rows = mix_rows,
};
