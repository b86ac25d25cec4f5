/* sketch_avx2.c: scores of sketches for AVX2; meaning in sketch.h.
 *
 * A lane is a key: half a block, 8 keys, at a time.  Products of a byte pair are added in 16 bits: 2 * 15 * 127 fits, and
 * 8-bit codes are taken apart into seven bits and one.
 */
#include <immintrin.h>
#include <string.h>
#include "cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

/* acc[h] += u times four elements of the query, u at most 127. */
INLINE void multiply(int n_head, __m256i *acc, __m256i u, const rk_sketch_query *q, int j, int shift)
{
	for (int h = 0; h < n_head; h++) {
		int32_t four;
		memcpy(&four, q[h].q + j, sizeof four);
		__m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(u, _mm256_set1_epi32(four)), _mm256_set1_epi16(1));
		acc[h] = _mm256_add_epi32(acc[h], _mm256_slli_epi32(sum, shift));
	}
}

INLINE __m256i load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

/* acc[h] += codes times query for 8 keys of a block. */
INLINE void multiply_half(int n_head, int bits, __m256i *acc, const uint8_t *block, const rk_sketch_query *q, int dim)
{
	const int low = bits == 3 ? 2 : bits, fields = 8 / low;
	__m256i mask = _mm256_set1_epi8((char)((1 << low) - 1)), third = _mm256_set1_epi8(4), top = third;

	for (int j = 0; j < dim; block += 64) {
		__m256i v = load(block);
		_mm_prefetch((const char *)block + RK_SKETCH_AHEAD, _MM_HINT_T0);
		if (bits == 8) {
			multiply(n_head, acc, _mm256_and_si256(v, _mm256_set1_epi8(127)), q, j, 0);
			multiply(n_head, acc, _mm256_and_si256(_mm256_srli_epi16(v, 7), _mm256_set1_epi8(1)), q, j, 7);
			j += 4;
			continue;
		}
		if (bits == 3)	/* one vector of third bits for two of the others: its bits 0 .. 3, then 4 .. 7 */
			top = _mm256_srli_epi16(load(block - 4 * j + 4 * dim + 64 * (j / 32)), j % 32 / 4);
		#pragma GCC unroll 4
		for (int f = 0; f < fields; f++, j += 4) {
			__m256i u = _mm256_and_si256(_mm256_srli_epi16(v, f * low), mask);
			if (bits == 3) {
				__m256i t = f < 2 ? _mm256_slli_epi16(top, 2 - f) : _mm256_srli_epi16(top, f - 2);
				u = _mm256_or_si256(u, _mm256_and_si256(t, third));
			}
			multiply(n_head, acc, u, q, j, 0);
		}
	}
}

INLINE void score_heads(int n_head, int bits, float *s, int lds, const rk_sketch_query *q, const uint8_t *code,
                        const rk_half *scale, int n, int dim)
{
	for (int t = 0; t < n; t += 8) {
		const uint8_t *half = code + (size_t)(t / RK_SKETCH_BLOCK) * (size_t)(RK_SKETCH_BLOCK * dim * bits / 8) + 4 * (t % RK_SKETCH_BLOCK);
		__m256 sc = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scale + t)));
		__m256i acc[3], in = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - t), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
		for (int h = 0; h < n_head; h++)
			acc[h] = _mm256_setzero_si256();
		multiply_half(n_head, bits, acc, half, q, dim);
		for (int h = 0; h < n_head; h++) {
			__m256i sum = _mm256_sub_epi32(_mm256_slli_epi32(acc[h], 1), _mm256_set1_epi32(((1 << bits) - 1) * q[h].sum));
			__m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(sc, _mm256_set1_ps(q[h].half_step)));
			_mm256_maskstore_ps(s + (size_t)h * (size_t)lds + t, in, x);
		}
	}
}

INLINE void score_bits(int bits, float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                       const rk_half *scale, int n, int dim)
{
	for (; n_head >= 3; n_head -= 3, q += 3, s += 3 * (size_t)lds)
		score_heads(3, bits, s, lds, q, code, scale, n, dim);
	if (n_head == 2)
		score_heads(2, bits, s, lds, q, code, scale, n, dim);
	else if (n_head == 1)
		score_heads(1, bits, s, lds, q, code, scale, n, dim);
}

void rk_sketch_score_avx2(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                          const rk_half *scale, int n, int dim, int bits)
{
	switch (bits) {
	case 2:
		score_bits(2, s, lds, q, n_head, code, scale, n, dim);
		break;
	case 3:
		score_bits(3, s, lds, q, n_head, code, scale, n, dim);
		break;
	case 4:
		score_bits(4, s, lds, q, n_head, code, scale, n, dim);
		break;
	default:
		score_bits(8, s, lds, q, n_head, code, scale, n, dim);
	}
}
