/* lin_avx2.c: the kernels of lin.h for AVX2 with FMA and F16C.  Compiled for that set, called only where it exists. */
#include "cpu/lin.h"

#define VW 8
#define VFMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#include <immintrin.h>
#include "cpu/lin_float.h"
#include "cpu/lin_unpack.h"
#include "cpu/lin_dot.h"

void rk_lin_dot_q8_avx2(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
	dot_q8(t, w, n_row, a, y, ldy);
}

const rk_lin_kernels rk_lin_avx2 = {
	.dequant = dequant,
	.quantise = quantise,
	.dot_q8 = rk_lin_dot_q8_avx2,
	.dot_f32 = dot_f32,
	.to_half = to_half,
	.rmsnorm = rmsnorm,
	.silu_mul = silu_mul,
	.add = add,
	.logits_stats = logits_stats,
	.expected_gap = expected_gap,
};
