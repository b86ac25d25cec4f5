/* sketch_avx2.c: scores of sketches for AVX2; meaning in sketch.h, bodies in sketch_vec.h.
 *
 * Products of a byte pair are added in 16 bits, of up to 8 groups in turn: 8 * 2 * 15 * 127 fits.  8-bit codes are taken apart
 * into seven bits and one.
 */
#include <immintrin.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))
#define VW 8

typedef __m256i vi;

INLINE vi load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

/* Bits low .. low+width-1 of each byte, moved to bit `to` and up. */
INLINE vi field(vi v, int low, int width, int to)
{
	vi moved = low > to ? _mm256_srli_epi16(v, low - to) : low < to ? _mm256_slli_epi16(v, to - low) : v;

	return width == 8 ? v : _mm256_and_si256(moved, _mm256_set1_epi8((char)(((1 << width) - 1) << to)));
}

INLINE vi part_add(vi part, vi u, int32_t four)
{
	return _mm256_add_epi16(part, _mm256_maddubs_epi16(u, _mm256_set1_epi32(four)));
}

INLINE vi part_sum(vi sum, vi part)
{
	return _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
}

/* sum + u times four bytes of a query, u any byte. */
INLINE vi add_bytes(vi sum, vi u, int32_t four)
{
	vi high = part_sum(_mm256_setzero_si256(), part_add(_mm256_setzero_si256(), field(u, 7, 1, 0), four));

	sum = part_sum(sum, part_add(_mm256_setzero_si256(), field(u, 0, 7, 0), four));
	return _mm256_add_epi32(sum, _mm256_slli_epi32(high, 7));
}

/* The first n scores. */
INLINE void store_scores(float *to, vi sum, int32_t offset, const rk_half *scale, float half_step, int n)
{
	__m256 sc = _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scale)), _mm256_set1_ps(half_step));
	__m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_add_epi32(sum, sum), _mm256_set1_epi32(offset))), sc);

	if (n >= VW)	/* a masked store costs AMD's processors 12 cycles and more */
		_mm256_storeu_ps(to, x);
	else
		_mm256_maskstore_ps(to, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), x);
}

#include "cpu/sketch_vec.h"

void rk_sketch_score_avx2(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                          const rk_half *scale, int n, int dim, int bits)
{
	score(s, lds, q, n_head, code, scale, n, dim, bits);
}
