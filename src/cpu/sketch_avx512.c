/* sketch_avx512.c: scores of sketches for AVX-512 VNNI; meaning in sketch.h, bodies in sketch_vec.h.
 *
 * One instruction adds four products to each lane.  4 bits, head_dim 64, 3 heads: 8 loads and 48 products for 16 keys.
 */
#include <immintrin.h>
#include <string.h>
#include "cpu/cpu.h"

#pragma GCC target("avx512vnni")

#define INLINE static inline __attribute__((always_inline))
#define VW 16

typedef __m512i vi;

INLINE vi load(const uint8_t *p)
{
	return _mm512_loadu_si512(p);
}

/* Bits low .. low+width-1 of each byte, moved to bit `to` and up. */
INLINE vi field(vi v, int low, int width, int to)
{
	vi moved = low > to ? _mm512_srli_epi16(v, (unsigned)(low - to)) : low < to ? _mm512_slli_epi16(v, (unsigned)(to - low)) : v;

	return width == 8 ? v : _mm512_and_si512(moved, _mm512_set1_epi8((char)(((1 << width) - 1) << to)));
}

INLINE vi add_bytes(vi sum, vi u, int32_t four)
{
	return _mm512_dpbusd_epi32(sum, u, _mm512_set1_epi32(four));
}

INLINE vi part_add(vi part, vi u, int32_t four)
{
	return add_bytes(part, u, four);
}

INLINE vi part_sum(vi sum, vi part)
{
	return _mm512_add_epi32(sum, part);
}

/* The first n scores. */
INLINE void store_scores(float *to, vi sum, int32_t offset, const rk_half *scale, float half_step, int n)
{
	__m512 sc = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)scale)), _mm512_set1_ps(half_step));
	__mmask16 in = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);

	sum = _mm512_sub_epi32(_mm512_add_epi32(sum, sum), _mm512_set1_epi32(offset));
	_mm512_mask_storeu_ps(to, in, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), sc));
}

#include "cpu/sketch_vec.h"

void rk_sketch_score_avx512(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                            const rk_half *scale, int n, int dim, int bits)
{
	if (__builtin_cpu_supports("avx512vnni"))
		score(s, lds, q, n_head, code, scale, n, dim, bits);
	else
		rk_sketch_score_avx2(s, lds, q, n_head, code, scale, n, dim, bits);
}
