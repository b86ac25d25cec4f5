/* sketch_avx512.c: scores of sketches for AVX-512 VNNI; meaning in sketch.h.
 *
 * A lane is a key: one vector holds four elements of 16 keys, and one instruction adds four products to each lane, so
 * nothing is ever summed across a vector.  4 bits, head_dim 64, 3 heads: 8 loads and 48 products for 16 keys.
 */
#include <immintrin.h>
#include <string.h>
#include "cpu/cpu.h"

#pragma GCC target("avx512vnni")

#define INLINE static inline __attribute__((always_inline))

INLINE void multiply(int n_head, __m512i *acc, __m512i u, const rk_sketch_query *q, int j)
{
	for (int h = 0; h < n_head; h++) {
		int32_t four;
		memcpy(&four, q[h].q + j, sizeof four);
		acc[h] = _mm512_dpbusd_epi32(acc[h], u, _mm512_set1_epi32(four));
	}
}

/* acc[h] += codes times query for one block. */
INLINE void multiply_block(int n_head, int bits, __m512i *acc, const uint8_t *block, const rk_sketch_query *q, int dim)
{
	const int low = bits == 3 ? 2 : bits, fields = 8 / low;
	__m512i mask = _mm512_set1_epi8((char)((1 << low) - 1)), third = _mm512_set1_epi8(4), top = third;

	for (int j = 0; j < dim; block += 64) {
		__m512i v = _mm512_loadu_si512(block);
		_mm_prefetch((const char *)block + RK_SKETCH_AHEAD, _MM_HINT_T0);
		if (bits == 3)	/* one vector of third bits for two of the others: its bits 0 .. 3, then 4 .. 7 */
			top = _mm512_srli_epi16(_mm512_loadu_si512(block - 4 * j + 4 * dim + 64 * (j / 32)), j % 32 / 4);
		#pragma GCC unroll 4
		for (int f = 0; f < fields; f++, j += 4) {
			__m512i u = _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)(f * low)), mask);
			if (bits == 3) {
				__m512i t = f < 2 ? _mm512_slli_epi16(top, 2 - (unsigned)f) : _mm512_srli_epi16(top, (unsigned)f - 2);
				u = _mm512_or_si512(u, _mm512_and_si512(t, third));
			}
			multiply(n_head, acc, u, q, j);
		}
	}
}

INLINE void score_heads(int n_head, int bits, float *s, int lds, const rk_sketch_query *q, const uint8_t *code,
                        const rk_half *scale, int n, int dim)
{
	for (int t = 0; t < n; t += RK_SKETCH_BLOCK, code += RK_SKETCH_BLOCK * dim * bits / 8) {
		__mmask16 in = n - t >= 16 ? 0xffff : (__mmask16)((1u << (n - t)) - 1);
		__m512 sc = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scale + t)));
		__m512i acc[4];
		for (int h = 0; h < n_head; h++)
			acc[h] = _mm512_setzero_si512();
		multiply_block(n_head, bits, acc, code, q, dim);
		for (int h = 0; h < n_head; h++) {
			__m512i sum = _mm512_sub_epi32(_mm512_slli_epi32(acc[h], 1), _mm512_set1_epi32(((1 << bits) - 1) * q[h].sum));
			__m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(sc, _mm512_set1_ps(q[h].half_step)));
			_mm512_mask_storeu_ps(s + (size_t)h * (size_t)lds + t, in, x);
		}
	}
}

INLINE void score_bits(int bits, float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                       const rk_half *scale, int n, int dim)
{
	for (; n_head >= 4; n_head -= 4, q += 4, s += 4 * (size_t)lds)
		score_heads(4, bits, s, lds, q, code, scale, n, dim);
	if (n_head == 3)
		score_heads(3, bits, s, lds, q, code, scale, n, dim);
	else if (n_head == 2)
		score_heads(2, bits, s, lds, q, code, scale, n, dim);
	else if (n_head == 1)
		score_heads(1, bits, s, lds, q, code, scale, n, dim);
}

static void score_vnni(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code, const rk_half *scale,
                       int n, int dim, int bits)
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

void rk_sketch_score_avx512(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                            const rk_half *scale, int n, int dim, int bits)
{
	if (__builtin_cpu_supports("avx512vnni"))
		score_vnni(s, lds, q, n_head, code, scale, n, dim, bits);
	else
		rk_sketch_score_avx2(s, lds, q, n_head, code, scale, n, dim, bits);
}
