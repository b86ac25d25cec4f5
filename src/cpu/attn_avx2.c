/* attn_avx2.c: attention kernels for AVX2, FMA and F16C; signatures and meaning in attn.h, bodies in attn_vec.h.
 *
 * 16 registers: score keeps 4 keys x 3 heads and the three queries, mix 3 heads x 4 vectors and their weights.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))
#define VW 8
#define MAX_HEAD 3
#define GEMM_VEC 2

typedef __m256 vf;

INLINE vf vset(float x)
{
	return _mm256_set1_ps(x);
}

INLINE vf vfma(vf a, vf b, vf c)
{
	return _mm256_fmadd_ps(a, b, c);
}

INLINE vf vmax(vf a, vf b)
{
	return _mm256_max_ps(a, b);
}

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

INLINE void store_row(float *dst, __m256 x, int n)
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

INLINE __m128 halves_added(__m256 x)
{
	return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

INLINE float sum_lanes(__m256 x)
{
	__m128 s = halves_added(x);

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float max_lanes(__m256 m)
{
	__m128 x = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));

	x = _mm_max_ps(x, _mm_movehl_ps(x, x));
	return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/* All bits set in those lanes of s that reach the limit as unsigned numbers, of n lanes, clipped to 8. */
INLINE __m256i reach(const float *s, int n, __m256i limit)
{
	__m256i u = _mm256_castps_si256(load_row(s, 0, n, false)), ge = _mm256_cmpeq_epi32(_mm256_max_epu32(u, limit), u);

	return n < 8 ? _mm256_and_si256(ge, mask_of(n)) : ge;
}

static int count_ge(const float *s, int n, uint32_t bits)
{
	__m256i limit = _mm256_set1_epi32((int)bits), count[4] = { 0 };
	int i = 0;

	for (; i + 32 <= n; i += 32)
		for (int j = 0; j < 4; j++)
			count[j] = _mm256_sub_epi32(count[j], reach(s + i + 8 * j, 8, limit));
	for (; i < n; i += 8)
		count[0] = _mm256_sub_epi32(count[0], reach(s + i, n - i, limit));
	__m256i sum = _mm256_add_epi32(_mm256_add_epi32(count[0], count[1]), _mm256_add_epi32(count[2], count[3]));
	__m128i x = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
	x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
	return _mm_cvtsi128_si32(x) + _mm_extract_epi32(x, 1);
}

static int find_ge(float *to, int32_t *at, const float *s, int n, uint32_t bits)
{
	static const uint8_t front[16][4] = {	/* by mask: the lanes that are in it, moved to the front */
		{ 0 }, { 0 }, { 1 }, { 0, 1 }, { 2 }, { 0, 2 }, { 1, 2 }, { 0, 1, 2 },
		{ 3 }, { 0, 3 }, { 1, 3 }, { 0, 1, 3 }, { 2, 3 }, { 0, 2, 3 }, { 1, 2, 3 }, { 0, 1, 2, 3 },
	};
	const __m128i limit = _mm_set1_epi32((int)bits);
	int found = 0, i = 0;

	for (; i + 4 <= n; i += 4) {
		__m128i u = _mm_loadu_si128((const __m128i *)(s + i)), ge = _mm_cmpeq_epi32(_mm_max_epu32(u, limit), u);
		unsigned mask = (unsigned)_mm_movemask_ps(_mm_castsi128_ps(ge));
		__m128i lanes = _mm_cvtepu8_epi32(_mm_loadu_si32(front[mask]));
		_mm_storeu_ps(to + found, _mm_permutevar_ps(_mm_castsi128_ps(u), lanes));
		_mm_storeu_si128((__m128i *)(at + found), _mm_add_epi32(lanes, _mm_set1_epi32(i)));
		found += __builtin_popcount(mask);
	}
	for (; i < n; i++) {
		uint32_t u;
		memcpy(&u, s + i, sizeof u);
		to[found] = s[i];
		at[found] = i;
		found += u >= bits;
	}
	return found;
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

/* Lane r of the result = the sum of the 8 lanes of a[r]. */
INLINE __m128 sums_of_4(const __m256 a[4])
{
	return halves_added(_mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3])));
}

#include "cpu/attn_vec.h"

const rk_attn_kernels rk_attn_avx2 = {
	.load_kt = rk_attn_avx2_load_kt, .load_v = load_v, .gemm = gemm, .max = max, .count_ge = count_ge,
	.find_ge = find_ge, .exp_sum = exp_sum, .add_exp = add_exp, .largest_exp = largest_exp, .score = score, .score_rows = score_rows,
	.sketch = rk_sketch_score_avx2, .mix = mix, .mix_rows = mix_rows,
};
